"""Threads that use the same CPU time each, by their own clocks, and then wait.

usage: equal_spinners.py THREADS SECONDS
"""
import sys
import time

from truth import Worker, command, ready, say


def work():
    for _ in range(2000):
        pass


def spin(seconds):
    while time.thread_time() < seconds:
        work()


if __name__ == "__main__":
    seconds = float(sys.argv[2])
    workers = [Worker(spin, seconds) for _ in range(int(sys.argv[1]))]
    ready(pairs=[["run", "spin"], ["spin", "work"]])
    command()
    for worker in workers:
        worker.start()
    say("running")
    for worker in workers:
        worker.join()
    say("done", threads=[worker.account for worker in workers])
    command()
