"""Native code that other people wrote, called from Python.

usage: native_leaves.py compresses|multiplies SECONDS [PACKAGES]

It ends when it has used so much CPU time. PACKAGES is where numpy is, for multiplies.
"""
import sys
import time
import zlib

from truth import Worker, accounts_of, command, ready, say

data = bytes(range(256)) * 4096


def compresses():
    zlib.compress(data, 9)


def multiplies():
    matrix @ matrix


def work():
    while time.thread_time() < seconds:
        body()


if __name__ == "__main__":
    body, seconds = {"compresses": compresses, "multiplies": multiplies}[sys.argv[1]], float(sys.argv[2])
    if body is multiplies:
        sys.path.insert(0, sys.argv[3])
        import numpy
        matrix = numpy.ones((600, 600))
    worker = Worker(work)
    ready()
    command()
    worker.start()
    worker.join()
    say("done", threads=accounts_of([worker]))
    command()
