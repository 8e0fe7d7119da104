"""Two functions in turn, in step with the kernel's clock: 74 % of each period in one of them.

usage: in_step.py PERIOD_MS SECONDS [QUARTER]

Four threads, one after the other, begin their periods a quarter of a period apart, on one CPU:
who looks at the same instant of each period sees one function only, whatever that instant is.
With a quarter, only that thread.
"""
import os
import sys
import threading
import time

from truth import Worker, accounts_of, command, ready, say

SHARE = 0.74
QUARTERS = 4


def major(end):
    while time.monotonic_ns() < end:
        pass


def minor(end):
    while time.monotonic_ns() < end:
        pass


def in_step(period, quarter, seconds):
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    spent = {"major": 0.0, "minor": 0.0}
    lasted = threading.current_thread().lasted
    now = time.monotonic_ns()
    end = now + int(seconds * 1e9)
    start = (now // period + 1) * period + quarter * period // QUARTERS
    wall, cpu = time.perf_counter(), time.thread_time()
    while start < end:
        major(start + int(SHARE * period))
        until, between = time.perf_counter(), time.thread_time()
        spent["major"] += between - cpu
        lasted["major"] += until - wall
        start += period
        minor(start)
        wall, cpu = time.perf_counter(), time.thread_time()
        spent["minor"] += cpu - between
        lasted["minor"] += wall - until
    threading.current_thread().spent.update(spent)


if __name__ == "__main__":
    period, seconds = int(float(sys.argv[1]) * 1e6), float(sys.argv[2])
    quarters = [int(sys.argv[3])] if len(sys.argv) > 3 else range(QUARTERS)
    workers = [Worker(in_step, period, quarter, seconds) for quarter in quarters]
    for worker in workers:
        worker.lasted = {"major": 0.0, "minor": 0.0}
    ready()
    command()
    for worker in workers:
        worker.start()
        worker.join()
    accounts = accounts_of(workers)
    for worker in workers:
        # By the wall clock: who is kept from its CPU is in its function all the same.
        worker.account["lasted_s"] = worker.lasted
    say("done", threads=accounts)
    command()
