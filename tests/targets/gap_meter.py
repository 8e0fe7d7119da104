"""Watches the clock in native code, inside a Python process, and counts the time stolen from it.

usage: gap_meter.py LIBRARY (built from gap_meter.c); each line of stdin is a number of seconds.
"""
import ctypes
import sys

from truth import command, ready, say


class Gaps(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("looks", "short_count", "short_ns", "long_count", "long_ns", "wall_ns")]


def meter(library, seconds):
    gaps = Gaps()
    library.gap_meter(ctypes.c_uint64(int(seconds * 1e9)), ctypes.byref(gaps))
    return {name: getattr(gaps, name) for name, _ in Gaps._fields_}


if __name__ == "__main__":
    library = ctypes.CDLL(sys.argv[1])
    library.gap_meter.restype = None
    ready()
    while True:
        line = command()
        if not line:
            break
        say("gaps", **meter(library, float(line)))
    say("done")
