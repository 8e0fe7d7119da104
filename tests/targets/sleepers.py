"""Many sleeping threads beside a busy one.

usage: sleepers.py SLEEPERS
"""
import sys
import threading

from truth import Worker, command, ready, say

stop = False
wake = threading.Event()


def busy():
    while not stop:
        for _ in range(1000):
            pass


def asleep():
    wake.wait()


if __name__ == "__main__":
    threading.stack_size(512 << 10)
    sleepers = [Worker(asleep) for _ in range(int(sys.argv[1]))]
    for sleeper in sleepers:
        sleeper.start()
    worker = Worker(busy)
    ready(sleepers=len(sleepers))
    command()
    worker.start()
    say("running")
    command()
    stop = True
    wake.set()
    for thread in sleepers + [worker]:
        thread.join()
    say("done", threads=[worker.account])
    command()
