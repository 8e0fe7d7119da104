"""Python below C below Python, twenty times over, at work in C.

usage: native_depth.py [DEPTH]

For each number on stdin it does so many units of work below DEPTH functions of Python, each called
by one of C, and says how long that took, and by what share interruptions made it longer.
"""
import functools
import sys
import time
import zlib

from truth import command, in_pieces, ready, say

DATA = bytes(range(256)) * 8


lost = 0.0


def piece():
    for _ in range(10):
        zlib.crc32(DATA)


def level(units, depth):
    global lost
    if depth == 0:
        lost, _ = in_pieces(piece, units // 10)
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
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        say("work", wall_s=wall, cpu_s=cpu, lost=lost)
