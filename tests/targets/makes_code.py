"""Code that a program makes, and makes anew at the same place; its perf map says what it is.

usage: makes_code.py SECONDS

It runs the first for so much CPU time and, after a command, the second.
"""
import ctypes
import mmap
import os
import sys
import time

from truth import Worker, accounts_of, command, ready, say, work

# push rbp; mov rbp, rsp; again: dec rdi; jnz again; pop rbp; ret
CODE = bytes.fromhex("55 4889e5 48ffcf 75fb 5d c3")
TURNS = 1000000
MAP = "/tmp/perf-%d.map" % os.getpid()
SECONDS = float(sys.argv[1])


def make(name):
    memory[:len(CODE)] = CODE
    with open(MAP, "a") as lines:
        lines.write("%x %x %s\n" % (address, len(CODE), name))


def first():
    make("made_first")
    while time.thread_time() < SECONDS:
        made(TURNS)


def second():
    with open(MAP, "a") as lines:
        lines.write("this is no line of a perf map\n")
    make("made_second")
    while time.thread_time() < SECONDS:
        made(TURNS)


if __name__ == "__main__":
    memory = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
                       prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    made = ctypes.CFUNCTYPE(None, ctypes.c_long)(address)
    workers = [Worker(first), Worker(second)]
    ready()
    command()
    for worker in workers:
        worker.start()
        worker.join()
        if worker is workers[0]:
            # Longer than samples are held back to be put in order.
            work(0.02)
            say("made_first")
            command()
    os.remove(MAP)
    say("done", threads=accounts_of(workers))
    command()
