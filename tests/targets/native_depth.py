"""Python below C below Python, twenty times over, at work in C.

usage: native_depth.py [DEPTH]

For each number on stdin it does so many units of work below DEPTH functions of Python, each called
by one of C, and says how long that took.
"""
import functools
import sys
import time
import zlib

from truth import command, ready, say

DATA = bytes(range(256)) * 8


def work(units):
    for _ in range(units):
        zlib.crc32(DATA)


def level(units, depth):
    if depth == 0:
        work(units)
    else:
        functools.reduce(level, (depth - 1,), units)
    return units


if __name__ == "__main__":
    depth = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    ready()
    while True:
        units = command()
        if not units:
            break
        wall, cpu = time.perf_counter(), time.thread_time()
        level(int(units), depth)
        say("work", wall_s=time.perf_counter() - wall, cpu_s=time.thread_time() - cpu)
