"""Threads that fight for a GIL, and one that waits for a lock of its own.

From 3.12 on a second interpreter, whose GIL is its own, has two more that fight for that one.
The ready line has the threads of each kind as [native id, ident].
"""
import os
import sys
import threading

from truth import command, ready, say

# A second interpreter takes source alone, so the spinners are source in both. A turn is longer than
# the interval after which the GIL is asked for: where it changes hands more often, nobody asks, and
# the main thread may wait for minutes.
SPIN = """
import os, threading
def spin():
    os.write(%d, b"%%d %%d\\n" %% (threading.get_native_id(), threading.get_ident()))
    while not os.path.exists(%r):
        for _ in range(3000000):
            pass
threads = [threading.Thread(target=spin) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
STOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stop")


def spinners(pipe):
    exec(SPIN % (pipe, STOP), {})


def apart(pipe):
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    interpreters.run_string(interpreters.create(), SPIN % (pipe, STOP))


def lock(pipe):
    os.write(pipe, b"%d %d\n" % (threading.get_native_id(), threading.get_ident()))
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def begin(body, count):
    """Starts it and reads what `count` threads of it say of themselves."""
    read, write = os.pipe()
    thread = threading.Thread(target=body, args=(write,), daemon=True)
    thread.start()
    said = b""
    while said.count(b"\n") < count:
        said += os.read(read, 4096)
    return thread, [[int(word) for word in line.split()] for line in said.splitlines()]


if __name__ == "__main__":
    told = {}
    _, told["lock"] = begin(lock, 1)
    busy, told["spinners"] = begin(spinners, 2)
    threads = [busy]
    if sys.version_info >= (3, 12):
        busy, told["apart"] = begin(apart, 2)
        threads.append(busy)
    ready(**told)
    command()
    say("running")
    command()
    open(STOP, "w").close()
    for thread in threads:
        thread.join()
    say("done", threads=[])
    command()
