"""Garbage collections that it measures itself, beside as much other work.

usage: collects.py SECONDS explicit|automatic [BYSTANDER]

It ends when it has used so much CPU time. explicit: `gc.collect()` over a large heap, a clock read
on either side. automatic: collections that allocations set off, between the two calls of
`gc.callbacks`. A bystander is a thread that collects nothing and wants the GIL all the time.
"""
import gc
import sys
import threading
import time

from truth import Worker, accounts_of, command, ready, say

stop = False


class Clock:
    """This thread's CPU time, and all time, in the collections between begin and end."""

    def __init__(self):
        self.cpu_s = self.wall_s = self.last_s = 0.0
        self.count = 0

    def begin(self):
        self.cpu, self.wall = time.thread_time(), time.perf_counter()

    def end(self):
        # All time first: a thread's own is a system call, and where one ends it may wait for a CPU.
        wall, cpu = time.perf_counter(), time.thread_time()
        self.last_s = cpu - self.cpu
        self.cpu_s += self.last_s
        self.wall_s += wall - self.wall
        self.count += 1

    def called(self, phase, _):
        self.begin() if phase == "start" else self.end()


clock = Clock()


def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for _ in range(100):
            pass


def collect():
    clock.begin()
    gc.collect()
    clock.end()


def allocate():
    """Cycles, so that only the collector frees them."""
    for _ in range(1000):
        cycle = []
        cycle.append(cycle)


def collects(seconds, way):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        way()
        compute(clock.last_s)
        clock.last_s = 0.0
    spent = threading.current_thread().spent
    spent["gc"], spent["gc_cpu"], spent["gc_count"] = clock.wall_s, clock.cpu_s, clock.count


def stands_by():
    while not stop:
        for _ in range(1000):
            pass


if __name__ == "__main__":
    seconds, way = float(sys.argv[1]), sys.argv[2]
    gc.disable()
    heap = [[] for _ in range(100000)]
    gc.collect()
    workers = [Worker(collects, seconds, collect if way == "explicit" else allocate)]
    if len(sys.argv) > 3:
        workers.append(Worker(stands_by))
    ready()
    command()
    if way == "automatic":
        gc.set_threshold(100000, 2, 2)
        gc.callbacks.append(clock.called)
        gc.enable()
    for worker in workers:
        worker.start()
    workers[0].join()
    stop = True
    for worker in workers:
        worker.join()
    gc.disable()
    say("done", threads=accounts_of(workers))
    command()
