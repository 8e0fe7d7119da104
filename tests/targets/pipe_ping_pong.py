"""A byte that goes to and fro between two threads or two processes: nothing but switches.

usage: pipe_ping_pong.py threads|processes [one_cpu]

Each line of stdin says how many times; the answer is what they took. On one CPU each hop is a
switch from one to the other, and nothing waits for a CPU to wake up: there is no shorter hop.
"""
import os
import sys
import threading
import time

from truth import command, ready, say


def echo(read, write):
    while True:
        byte = os.read(read, 1)
        if not byte:
            break
        os.write(write, byte)


def to_and_fro(count, read, write):
    for _ in range(count):
        os.write(write, b".")
        os.read(read, 1)


if __name__ == "__main__":
    if sys.argv[2:] == ["one_cpu"]:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    there, back = os.pipe(), os.pipe()
    if sys.argv[1] == "threads":
        threading.Thread(target=echo, args=(there[0], back[1]), daemon=True).start()
    elif os.fork() == 0:
        os.close(there[1])
        echo(there[0], back[1])
        os._exit(0)
    ready()
    while True:
        line = command()
        if not line:
            break
        wall, cpu = time.perf_counter(), time.thread_time()
        to_and_fro(int(line), back[0], there[1])
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        say("work", units=int(line), wall_s=wall, cpu_s=cpu)
    os.close(there[1])
    say("done", digest=0)
