"""One thread that works for a millisecond and sleeps for one, over and over.

usage: work_and_sleep.py SECONDS

It works as long as it last slept, by its own CPU clock: half of its time is work wherever timers
are late.
"""
import sys
import threading
import time

from truth import Worker, accounts_of, command, ready, say


def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def works_and_sleeps(seconds):
    now = time.perf_counter()
    end, asleep = now + seconds, 0.0
    while now < end:
        time.sleep(0.001)
        slept = time.perf_counter() - now
        asleep += slept
        work(slept)
        now = time.perf_counter()
    threading.current_thread().spent["asleep"] = asleep


if __name__ == "__main__":
    worker = Worker(works_and_sleeps, float(sys.argv[1]))
    ready()
    command()
    worker.start()
    worker.join()
    say("done", threads=accounts_of([worker]))
    command()
