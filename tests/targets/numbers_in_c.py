"""Matrices that numpy multiplies, beside Python: one thread, by turns.

usage: numbers_in_c.py PACKAGES SECONDS

PACKAGES is a folder that has numpy.
"""
import os
import sys

# Before numpy is there: its threads would each need a truth of their own.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
sys.path.insert(0, sys.argv[1])
import numpy

from truth import Worker, by_turns, tell_shares

matrix = numpy.ones((300, 300))


def multiplies():
    for _ in range(5):
        matrix @ matrix


def adds():
    total = 0.0
    for number in range(40000):
        total += number


if __name__ == "__main__":
    pairs = [["run", "by_turns"]]
    tell_shares(Worker(by_turns, [multiplies, adds], float(sys.argv[2])), pairs=pairs)
