"""Many short-lived children: each works for its share of a life, and says what CPU time it took.

usage: children.py COUNT RATE LIFE WORK

COUNT children are forked at RATE a second. Each lives for LIFE seconds and computes for WORK of
them; every second one is of the other kind, which works twice as long. Before that, one of each
kind that works for a second does what they will do.
"""
import json
import os
import sys
import time

from truth import command, ready, say


def light(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        for _ in range(200):
            pass


def heavy(seconds):
    end = time.process_time() + 2 * seconds
    while time.process_time() < end:
        for _ in range(200):
            pass


def child(kind, life, work, end):
    begun = time.monotonic()
    kind(work)
    time.sleep(max(0.0, begun + life - time.monotonic()))
    account = {"pid": os.getpid(), "kind": kind.__name__, "cpu_s": time.process_time()}
    # Less than the kernel takes apart: children never write into each other's lines.
    os.write(end, (json.dumps(account) + "\n").encode())
    os._exit(0)


def main(count, rate, life, work):
    take, end = os.pipe()
    ready()
    command()
    # What has run once while somebody could look has its name, also in those that are too short.
    for kind in (light, heavy):
        if os.fork() == 0:
            child(kind, 0, 1, os.open(os.devnull, os.O_WRONLY))
    os.wait()
    os.wait()
    say("running")
    command()
    begun = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        if os.fork() == 0:
            child(heavy if number % 2 else light, life, work, end)
    os.close(end)
    with open(take) as lines:
        children = [json.loads(line) for line in lines]
    for _ in range(count):
        os.wait()
    say("done", children=children, cpu_s=time.process_time())
    command()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
