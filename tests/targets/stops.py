"""A program that is stopped for a while by a signal, and goes on.

usage: stops.py SECONDS

One thread sends itself the signal and says for how long it was stopped, the other spins until
that is over. A child process lets them go on.
"""
import os
import signal
import sys
import threading
import time

from truth import Worker, accounts_of, command, ready, say

over = threading.Event()


def let_go_on(process, seconds):
    state = None
    while state != "T":
        with open("/proc/%d/stat" % process) as stat:
            state = stat.read().rpartition(")")[2].split()[0]
    time.sleep(seconds)
    os.kill(process, signal.SIGCONT)


def stopped():
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def stops():
    threading.current_thread().spend("stopped", stopped)
    over.set()


def spins():
    while not over.is_set():
        pass


if __name__ == "__main__":
    workers = [Worker(spins), Worker(stops)]
    ready()
    command()
    us = os.getpid()
    child = os.fork()
    if child == 0:
        let_go_on(us, float(sys.argv[1]))
        os._exit(0)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    os.waitpid(child, 0)
    say("done", threads=accounts_of(workers))
    command()
