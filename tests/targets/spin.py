"""One busy loop at a given depth of recursion, until told to stop.

usage: spin.py DEPTH
"""
import sys
import threading

from truth import Worker, command, ready, say

stop = False


def leaf():
    while not stop:
        for _ in range(1000):
            pass


def recurse(depth):
    if depth > 1:
        recurse(depth - 1)
    else:
        leaf()


if __name__ == "__main__":
    depth = int(sys.argv[1])
    sys.setrecursionlimit(depth + 100)
    threading.stack_size(64 << 20)
    worker = Worker(recurse, depth)
    ready(depth=depth)
    command()
    worker.start()
    say("running")
    command()
    stop = True
    worker.join()
    say("done", threads=[worker.account])
    command()
