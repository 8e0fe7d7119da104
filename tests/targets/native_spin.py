"""Python below C below Python, so many times over, and a busy loop on top, until it is told to stop.

usage: native_spin.py DEPTH
"""
import functools
import sys
import zlib

from truth import Worker, command, ready, say

DATA = bytes(range(256)) * 8
stop = False


def work():
    while not stop:
        zlib.crc32(DATA)


def level(_, depth):
    if depth == 0:
        work()
    else:
        functools.reduce(level, (depth - 1,), 0)


if __name__ == "__main__":
    ready()
    command()
    worker = Worker(level, 0, int(sys.argv[1]))
    worker.start()
    say("running")
    command()
    stop = True
    worker.join()
    say("done", threads=[worker.account])
    command()
