"""Starts and ends threads all the time, each of which runs through short calls, and makes and
drops code objects."""
import os
import sys
import threading


def leaf(n):
    return n + 1


def branch(n):
    return leaf(n) + leaf(n)


def made(n):
    scope = {}
    exec("def fresh_%d(n):\n\n    return n\n" % n, scope)
    return scope["fresh_%d" % n](n)


def run(n):
    for _ in range(200):
        branch(n)
        made(n)


sys.stdout.write("{\"pid\": %d}\n" % os.getpid())
sys.stdout.flush()
number = 0
while True:
    threads = [threading.Thread(target=run, args=(number + k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    number += 8
