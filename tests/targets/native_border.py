"""Threads that wait below C code that called Python: each says what its stack is, leaf first.

A name with a leading `C ` is a C function between two Python functions; a blank separates names
that it may have.
"""
import ctypes
import functools
import json
import os
import sys
import threading

reader, writer = os.pipe()
numbers = (ctypes.c_int * 2)(2, 1)
compares = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
qsort = ctypes.CDLL(None).qsort


def wait(*_):
    os.read(reader, 1)
    return 0


def calls():
    wait()


def sorts():
    sorted([1], key=wait)


def reduces():
    functools.reduce(wait, [1, 2])


def maps():
    for _ in map(wait, [1]):
        pass


def generates():
    yield wait()


def sums():
    sum(generates())


class Waits:
    def __init__(self):
        wait()

    def __lt__(self, other):
        wait()
        return False


def makes():
    Waits()


def compares_by_ctypes():
    qsort(numbers, 2, 4, compares(wait))


def nested():
    sorted([1], key=lambda _: functools.reduce(lambda *_: calls(), [1, 2]))


def nested_deeply(depth=30):
    sorted([1], key=lambda _: nested_deeply(depth - 1) if depth else wait())


# 3.12 counts calls through C, and lets there be fewer.
DEEP = 400 if sys.version_info[:2] == (3, 12) else 800


def recurses(depth=DEEP):
    sorted([depth - 1], key=recurses) if depth else wait()


SORT = "C list_sort_impl list_sort list.sort builtin_sorted PyList_Sort"
REDUCE = "C functools_reduce _functools_reduce functools_reduce_impl _functools_reduce_impl"
STACKS = {
    calls: ["wait", "calls"],
    sorts: ["wait", SORT, "sorts"],
    reduces: ["wait", REDUCE, "reduces"],
    maps: ["wait", "C map_next", "maps"],
    sums: ["wait", "generates", "C builtin_sum builtin_sum_impl", "sums"],
    makes: ["wait", "__init__", "makes"],
    compares_by_ctypes: [
        "wait",
        "C closure_fcn _CallPythonObject",
        "C qsort __qsort_r qsort_r",
        "C ffi_call ffi_call_int ffi_call_unix64",
        "C _ctypes_callproc _call_function_pointer",
        "compares_by_ctypes",
    ],
    nested: ["wait", "calls", "<lambda>", REDUCE, "<lambda>", SORT, "nested"],
    nested_deeply: ["wait", "<lambda>", SORT] + ["nested_deeply", "<lambda>", SORT] * 30
    + ["nested_deeply"],
}

STACKS[recurses] = ["wait"] + ["recurses", SORT] * DEEP + ["recurses"]

if __name__ == "__main__":
    threading.stack_size(64 << 20)
    sys.setrecursionlimit(10000)
    threads = {}
    started = threading.Semaphore(0)

    def begin(function):
        threads[threading.get_native_id()] = STACKS[function]
        started.release()
        function()

    for each in STACKS:
        threading.Thread(target=begin, args=(each,), daemon=True).start()
    for each in STACKS:
        started.acquire()
    sys.stdout.write(json.dumps({"reader": reader, "threads": threads}) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()
    os._exit(0)
