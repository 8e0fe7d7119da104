"""A busy loop in a program that has taken `sys` out of `sys.modules`.

The interpreter keeps its own, and so goes on; but who looks into the dict finds none.
"""
import os
import sys
import threading

from truth import command, ready, say


def spin():
    while True:
        for _ in range(1000):
            pass


if __name__ == "__main__":
    ready()
    command()
    del sys.modules["sys"]
    threading.Thread(target=spin, name="spin", daemon=True).start()
    say("running")
    command()
    say("done", threads=[])
    command()
    os._exit(0)
