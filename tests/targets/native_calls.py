"""Python, C and Rust that call one another, each caller and callee known.

usage: native_calls.py C_LIBRARY RUST_LIBRARY WAY SECONDS

It ends when it has used so much CPU time. A pair is a caller, a callee, and what is in the caller's
source where it calls. The way is calls, tasks (the same in an asyncio task), sleeps (what C calls back
sleeps), ways (generators, destructors and exceptions, run by C), deep (a recursion through C) or
beside (a thread of C's own).
"""
import asyncio
import ctypes
import importlib.machinery
import importlib.util
import sys
import threading
import time

from truth import Worker, accounts_of, command, ready, say

TURNS = 20000
# 3.12 counts three calls in C for each of these, and allows 1,500.
DEPTH = 450 if sys.version_info[:2] == (3, 12) else 800
C_PATH, RUST_PATH, WAY, SECONDS = sys.argv[1:]
IS_EXTENSION = C_PATH.endswith("extension.so")

# The last of a pair is whether something native is between the two: ctypes, or the interpreter's own.
OF_C = not IS_EXTENSION
pairs = [
    ["calls", "is_over", "is_over(", False], ["calls", "a", "a(", False],
    ["in_task", "is_over", "is_over(", False], ["in_task", "a", "a(", False],
    ["a", "c_call", "c_call(", OF_C], ["c_call", "c1", "c1(", False], ["c1", "c2", "c2(", False],
    ["c2", "c_spin", "c_spin(", False], ["c2", "call_back", "call_back(", False],
    ["call_back", "b", "back", OF_C], ["b", "r1", "r1(", True], ["r1", "r2", "r2(", False],
    ["r2", "r_spin", "r_spin(", False], ["r_spin", "turn", "turn(", False],
    ["turn", "black_box", "black_box(", False], ["r2", "leaf", "back(", True],
    ["sleeps", "a_nap", "a_nap(", False], ["a_nap", "c_call", "c_call(", OF_C],
    ["call_back", "naps", "back", OF_C],
    ["ways", "is_over", "is_over(", False],
    ["ways", "sums", "sums(", False], ["sums", "numbers", "sum(", True],
    ["numbers", "leaf", "leaf(", False],
    ["ways", "drops", "drops(", False], ["drops", "__del__", "clear(", True],
    ["__del__", "leaf", "leaf(", False],
    ["ways", "fails", "fails(", False], ["fails", "c_call", "c_call(", OF_C],
    ["fails", "leaf", "leaf(", False],
    ["call_back", "raises", "back", OF_C], ["raises", "leaf", "leaf(", False],
    ["ways", "orders", "orders(", False], ["orders", "key", "sorted(", True],
    ["key", "leaf", "leaf(", False],
    ["deep", "dive", "dive(", False], ["dive", "dive", "sorted(", True],
    ["dive", "is_over", "is_over(", False], ["dive", "leaf", "leaf(", False],
    ["c_thread", "c_work", "c_work(", False], ["c_work", "c_spin", "c_spin(", False],
]

back_type = ctypes.CFUNCTYPE(ctypes.c_long)
keep = []
beside_tid = []


def backed(function):
    """The function as C has it."""
    keep.append(back_type(function))
    return keep[-1]


def with_types(function, *types):
    function.argtypes, function.restype = types, ctypes.c_long
    return function


def leaf():
    for _ in range(TURNS // 4):
        pass
    return 0


def b():
    r1(rust_back, TURNS)
    return 0


def a():
    c_call(c_back, TURNS)


def is_over():
    return time.thread_time() > float(SECONDS)


def calls():
    while not is_over():
        a()


async def in_task():
    while not is_over():
        a()


def tasks():
    asyncio.run(in_task())


def naps():
    time.sleep(0.2)
    return 0


def a_nap():
    c_call(nap_back, 1)


def sleeps():
    for _ in range(round(float(SECONDS) / 0.2)):
        a_nap()


def numbers():
    for number in range(3):
        leaf()
        yield number


def sums():
    sum(numbers())


class Dropped:
    def __del__(self):
        leaf()


def drops():
    dropped = [Dropped(), Dropped()]
    dropped.clear()


def raises():
    leaf()
    raise ValueError


def fails():
    try:
        c_call(raises_back, 1)
    except ValueError:
        leaf()


def key(number):
    leaf()
    return -number


def orders():
    sorted(range(3), key=key)


def ways():
    while not is_over():
        sums()
        drops()
        # An exception cannot pass through ctypes.
        if IS_EXTENSION:
            fails()
        orders()


def dive(depth):
    if depth:
        sorted([depth - 1], key=dive)
    else:
        while not is_over():
            leaf()


def deep():
    dive(DEPTH)


def beside():
    c_beside = with_types(ctypes.CDLL(C_PATH).c_beside, ctypes.c_double)
    beside_tid.append(c_beside(float(SECONDS)))


def extension(path):
    spec = importlib.util.spec_from_loader(
        "native_calls", importlib.machinery.ExtensionFileLoader("native_calls", path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    threading.stack_size(64 << 20)
    if IS_EXTENSION:
        c_call, of_c = extension(C_PATH).c_call, lambda function: function
    else:
        c_call, of_c = with_types(ctypes.CDLL(C_PATH).c_call, back_type, ctypes.c_long), backed
    c_back, nap_back, raises_back = of_c(b), of_c(naps), of_c(raises)
    r1 = with_types(ctypes.CDLL(RUST_PATH).r1, back_type, ctypes.c_ulong)
    rust_back = backed(leaf)
    worker = Worker({way.__name__: way for way in (calls, tasks, sleeps, ways, deep, beside)}[WAY])
    ready(pairs=pairs, extension=IS_EXTENSION, depth=DEPTH)
    command()
    worker.start()
    worker.join()
    say("done", threads=accounts_of([worker]), beside=beside_tid)
    command()
