"""One thread that computes in Python, and one of C: a thread state, but no frame.

usage: frameless.py SECONDS

A function of C is all that the second thread runs; it needs no GIL, and is at work to the end.
"""
import _thread
import os
import sys
import time
import zlib

from truth import LASTED, SPENT, Taking, Worker, command, ready, say


def computes(seconds, cpu_s):
    # Where it is once it has begun.
    while cpu_s() < 0.001:
        pass
    before, begin = cpu_s(), time.perf_counter()
    with Taking("computes"):
        while time.perf_counter() < begin + seconds:
            pass
    SPENT["frameless"] = cpu_s() - before
    LASTED["frameless"] = time.perf_counter() - begin


if __name__ == "__main__":
    ready()
    command()
    # Of two letters, which has zlib search longest; the process's end is its own.
    letters = os.urandom(16 << 20).translate(bytes(n & 1 for n in range(256)))
    ident = _thread.start_new_thread(zlib.compress, (letters, 9))
    clock = time.pthread_getcpuclockid(ident)
    worker = Worker(computes, float(sys.argv[1]), lambda: time.clock_gettime(clock))
    worker.start()
    worker.join()
    worker.account["spent_s"], worker.account["lasted_s"] = SPENT, LASTED
    say("done", threads=[worker.account])
    command()
    os._exit(0)
