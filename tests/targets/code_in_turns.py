"""Code that is compiled, run once and freed, over and over: each takes the place of the one before.

Each has a file name of its own, and a function that it calls; they work for ten milliseconds.
usage: code_in_turns.py SECONDS
"""
import sys
import time

from truth import command, ready, say

SOURCE = """
def part():
    work(clock() + 0.005)
part()
work(clock() + 0.005)
"""


def work(end):
    while time.thread_time() < end:
        pass


def run(number):
    code = compile(SOURCE, "/part_%d.py" % number, "exec")
    exec(code, {"work": work, "clock": time.thread_time})


if __name__ == "__main__":
    ready()
    command()
    end = time.thread_time() + float(sys.argv[1])
    number = 0
    while time.thread_time() < end:
        run(number)
        number += 1
    say("done", threads=[], parts=number)
    command()
