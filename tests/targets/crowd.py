"""More children than anybody can follow: all wait, and one of them works.

usage: crowd.py COUNT
"""
import os
import sys
import time

from truth import command, ready, say


def main(count):
    ready()
    command()
    wait, go = os.pipe()
    for number in range(count):
        if os.fork() == 0:
            os.close(go)
            os.read(wait, 1)
            os._exit(0)
    say("running")
    command()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    os.close(go)
    for _ in range(count):
        os.wait()
    say("done", children=count)
    command()


if __name__ == "__main__":
    main(int(sys.argv[1]))
