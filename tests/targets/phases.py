"""A function of its own name for each two milliseconds: who sees one knows when that was.

usage: phases.py SECONDS

It says when the first began, on CLOCK_MONOTONIC, as it begins.
"""
import sys
import time

from truth import Worker, command, ready, say

STEP_NS = 2000000
count = int(float(sys.argv[1]) * 1e9) // STEP_NS
source = ""
for number in range(count):
    source += """
def at_%d(end):
    while time.monotonic_ns() < end:
        pass
""" % number
exec(compile(source, __file__, "exec"))


def phases(functions, begin):
    for number, function in enumerate(functions, 1):
        function(begin + number * STEP_NS)


if __name__ == "__main__":
    functions = [globals()["at_%d" % number] for number in range(count)]
    ready(step_ns=STEP_NS)
    command()
    begin = time.monotonic_ns()
    worker = Worker(phases, functions, begin)
    worker.start()
    say("running", begin_ns=begin)
    command()
    say("done", threads=[])
    command()
