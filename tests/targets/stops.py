"""A program that is stopped for a while by a signal, and goes on.

usage: stops.py SECONDS

One thread sends itself the signal and says for how long it was stopped, another spins until that
is over. The others wait for longer than that, each with a time limit, and are named for what they
wait in. A child process lets them go on.
"""
import ctypes
import os
import select
import signal
import sys
import threading
import time

from truth import Worker, accounts_of, command, ready, say, work

over = threading.Event()
held = threading.Lock()
held.acquire()
silent = os.pipe()


def let_go_on(process, seconds):
    state = None
    while state != "T":
        with open("/proc/%d/stat" % process) as stat:
            state = stat.read().rpartition(")")[2].split()[0]
    time.sleep(seconds)
    os.kill(process, signal.SIGCONT)


def stopped():
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def lock(seconds):
    held.acquire(True, seconds)


def poll(seconds):
    silent_one = select.poll()
    silent_one.register(silent[0], select.POLLIN)
    silent_one.poll(seconds * 1000)


def sleep(seconds):
    """Not Python's, which begins anew after an interruption."""
    ctypes.CDLL(None).usleep(int(seconds * 1e6))


def waits(reason, seconds):
    threading.current_thread().spend(reason.__name__, reason, seconds)


def switches(workers):
    counts = []
    for worker in workers:
        with open("/proc/self/task/%d/status" % worker.native_id) as status:
            counts += [line for line in status if line.startswith("voluntary")]
    return counts


def are_asleep(workers):
    """Who waits for the GIL meanwhile asks for it every few milliseconds."""
    before = switches(workers)
    work(0.015)
    return switches(workers) == before


def stops():
    threading.current_thread().spend("stopped", stopped)
    over.set()


def spins():
    while not over.is_set():
        pass


if __name__ == "__main__":
    seconds = float(sys.argv[1])
    waiters = [Worker(waits, reason, 2 * seconds + 2) for reason in (lock, poll, sleep)]
    workers = waiters + [Worker(spins), Worker(stops)]
    ready()
    command()
    us = os.getpid()
    child = os.fork()
    if child == 0:
        let_go_on(us, seconds)
        os._exit(0)
    for worker in waiters:
        worker.start()
    while not are_asleep(waiters):
        pass
    for worker in workers[len(waiters) :]:
        worker.start()
    for worker in workers:
        worker.join()
    os.waitpid(child, 0)
    say("done", threads=accounts_of(workers))
    command()
