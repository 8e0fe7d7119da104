"""Threads that all want to run, of four kinds of different number, for so long.

usage: kinds_of_threads.py THREADS SECONDS [pinned]

They are there before it is ready, and wait. pinned: on one CPU.
"""
import os
import sys
import threading
import time

from truth import Worker, command, ready, say

# Of each eight threads.
MIX = [0, 1, 0, 2, 0, 3, 0, 1]
end = 0.0
go = threading.Event()


def spins():
    begin = time.thread_time()
    while time.monotonic() < end:
        for _ in range(1000):
            pass
    threading.current_thread().used = time.thread_time() - begin


def kind_0():
    spins()


def kind_1():
    spins()


def kind_2():
    spins()


def kind_3():
    spins()


class Waiting(Worker):
    def run(self):
        go.wait()
        super().run()
        # What waking up took is not its kind's.
        self.account["cpu_s"] = self.used


if __name__ == "__main__":
    if len(sys.argv) > 3:
        os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    threading.stack_size(512 << 10)
    kinds = [kind_0, kind_1, kind_2, kind_3]
    workers = [Waiting(kinds[MIX[n % len(MIX)]]) for n in range(int(sys.argv[1]))]
    for worker in workers:
        worker.start()
    ready()
    command()
    say("running")
    end = time.monotonic() + float(sys.argv[2])
    go.set()
    for worker in workers:
        worker.join()
    say("done", threads=[worker.account for worker in workers])
    command()
