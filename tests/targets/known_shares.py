"""Work whose every share is known: who calls whom, and what each spends on a CPU by its own clock.

usage: known_shares.py WAY SECONDS

recursive   each level of a recursion works for itself before it goes deeper
wide        one function calls thirty others, each of which works as long as it should
slices      two functions by turns, 3 ms and 1 ms
in_c        two functions by turns, one of which compresses in C, without the GIL
generators  the work is done in generators that others delegate to
coroutines  the work is done by three tasks in turns, in awaits within awaits
"""
import asyncio
import sys
import time
import zlib

from truth import Taking, Worker, command, done_shares, ready, say

stop = False
data = bytes(range(256)) * 1000
TURN = 0.0002


def own(name, seconds, piece=None):
    """A function of that name that works for so long, and keeps what it has spent."""
    def function():
        with Taking(name):
            end = clock() + seconds
            while clock() < end:
                if piece:
                    piece()
    clock = time.thread_time
    code = function.__code__.replace(co_name=name)
    if hasattr(code, "co_qualname"):
        code = code.replace(co_qualname=name)
    function.__code__ = code
    return function


levels = [own("own_%d" % n, n * TURN) for n in range(1, 9)]


def descend(level):
    levels[level]()
    if level + 1 < len(levels):
        descend(level + 1)


def recursive():
    while not stop:
        descend(0)


broad = [own("own_%d" % n, n % 5 * TURN + TURN) for n in range(30)]


def wide():
    while not stop:
        for function in broad:
            function()


major, minor = own("major", 0.003), own("minor", 0.001)


def slices():
    while not stop:
        major()
        minor()


native = own("native", 0.004, lambda: zlib.compress(data))
python = own("python", 0.004)


def in_c():
    while not stop:
        native()
        python()


few = [own("own_%d" % n, (n + 1) * TURN) for n in range(3)]


def inner(n):
    while not stop:
        few[n]()
        yield n


def outer(n):
    yield from inner(n)


def generators():
    for _ in zip(*[outer(n) for n in range(3)]):
        pass


async def inner_task(n):
    few[n]()


async def outer_task(n):
    while not stop:
        await inner_task(n)
        await asyncio.sleep(0)


async def main():
    await asyncio.gather(*[outer_task(n) for n in range(3)])


def coroutines():
    asyncio.new_event_loop().run_until_complete(main())


WAYS = {
    "recursive": (recursive, [["run", "recursive"], ["recursive", "descend"], ["descend", "descend"]]
                  + [["descend", "own_%d" % n] for n in range(1, 9)]),
    "wide": (wide, [["run", "wide"]] + [["wide", "own_%d" % n] for n in range(30)]),
    "slices": (slices, [["run", "slices"], ["slices", "major"], ["slices", "minor"]]),
    "in_c": (in_c, [["run", "in_c"], ["in_c", "native"], ["in_c", "python"]]),
    "generators": (generators, [["run", "generators"], ["generators", "outer"], ["outer", "inner"]]
                   + [["inner", "own_%d" % n] for n in range(3)]),
    "coroutines": (coroutines, [["outer_task", "inner_task"]]
                   + [["inner_task", "own_%d" % n] for n in range(3)]),
}


if __name__ == "__main__":
    way, pairs = WAYS[sys.argv[1]]
    worker = Worker(way)
    ready(pairs=pairs)
    command()
    worker.start()
    say("running")
    time.sleep(float(sys.argv[2]))
    stop = True
    worker.join()
    done_shares(worker)
