"""Processes that come from each other in every way there is, each with work of its own name.

usage: family.py WAY [SECONDS]

prefork      a master forks three workers, which wait, and a fourth when it is told to go
spawn        `multiprocessing` starts a worker by fork and one by spawn
chain        Python runs a shell that runs Python
orphan       a child's child works on when its parents have ended
thread_exec  a thread that is not the first replaces the program by another Python
thread_fork  a thread that is not the first forks
reuse        a child gets the id of one before it

Each process that works says what CPU time it took, the family's first one last of all.
"""
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time

from truth import command, ready, say

ME = os.path.abspath(__file__)


def spend(seconds):
    # A process's clock goes on at an exec, but not at a fork.
    end = time.process_time() + seconds
    while time.process_time() < end:
        for _ in range(200):
            pass


def first(seconds):
    spend(seconds)


def second(seconds):
    spend(seconds)


def third(seconds):
    spend(seconds)


def late(seconds):
    spend(seconds)


ROLES = {role.__name__: role for role in (first, second, third, late)}


def work(role, seconds, end):
    ROLES[role](seconds)
    account = {"pid": os.getpid(), "role": role, "cpu_s": time.process_time()}
    os.write(end, (json.dumps(account) + "\n").encode())


def fork(role, seconds, end):
    pid = os.fork()
    if pid == 0:
        work(role, seconds, end)
        os._exit(0)
    return pid


def of_another(role, seconds, end):
    """The command of a Python that does that."""
    os.set_inheritable(end, True)
    return [sys.executable, ME, "work", role, str(seconds), str(end)]


def prefork(seconds, end):
    wait, go = os.pipe()
    for role in ("first", "second", "third"):
        if os.fork() == 0:
            os.close(go)
            os.read(wait, 1)
            work(role, seconds, end)
            os._exit(0)
    ready()
    command()
    # What they wait is to be told, so it lasts for longer than it takes to look at them all.
    time.sleep(0.3)
    os.close(go)
    fork("late", seconds, end)


def spawn(seconds, end):
    begin()
    os.set_inheritable(end, True)
    for way, role in (("fork", "first"), ("spawn", "second")):
        worker = multiprocessing.get_context(way).Process(
            target=through_a_file, args=(role, seconds, end, os.getpid())
        )
        worker.start()
        worker.join()


def through_a_file(role, seconds, end, parent):
    """A spawned worker inherits no descriptors, but may open its parent's."""
    work(role, seconds, os.open("/proc/%d/fd/%d" % (parent, end), os.O_WRONLY))


def chain(seconds, end):
    begin()
    line = " ".join(of_another("first", seconds, end)) + "; true"
    subprocess.run(["sh", "-c", line], close_fds=False, check=True)


def orphan(seconds, end):
    begin()
    if os.fork() == 0:
        fork("first", seconds, end)
        os._exit(0)


def thread_exec(seconds, end):
    begin()
    if os.fork() == 0:
        words = of_another("second", seconds, end)

        def run():
            first(seconds)
            os.execv(words[0], words)

        threading.Thread(target=run).start()
        third(seconds)
        threading.Event().wait()


def thread_fork(seconds, end):
    begin()

    def run():
        os.waitpid(fork("first", seconds, end), 0)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def reuse(seconds, end):
    begin()
    pid = fork("first", seconds, end)
    os.waitpid(pid, 0)
    again = None
    while again != pid:
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(pid - 1))
        again = os.fork()
        if again == 0:
            if os.getpid() == pid:
                work("second", seconds, end)
            os._exit(0)
        os.waitpid(again, 0)


def begin():
    ready()
    command()


def main(way, seconds):
    take, end = os.pipe()
    globals()[way](seconds, end)
    os.close(end)
    # It ends when the last of the family has closed its side.
    with open(take) as lines:
        family = [json.loads(line) for line in lines]
    say("done", family=family, cpu_s=time.process_time())


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
    else:
        main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.4)
