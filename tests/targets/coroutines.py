"""Two tasks that take turns on one thread, and a generator on another: whose frames are known.

Each of them calls a function of its own, under generators and coroutines that live as long as the
program: their addresses are `id()`, leaf first, with their place in the stack.
"""
import asyncio
import sys
import threading
from truth import Worker, command, ready, say

stop = False


def burner():
    def burn():
        for _ in range(1000):
            pass
    # Each has a code of its own.
    burn.__code__ = burn.__code__.replace(co_name="burn")
    return burn


burn_one, burn_two, burn_three = burner(), burner(), burner()


class Turn:
    def __await__(self):
        yield


def numbers(burn):
    while not stop:
        burn()
        yield 1


async def by_turns(burn):
    while not stop:
        burn()
        await Turn()


async def by_numbers(generator):
    for _ in generator:
        await Turn()


async def outer(inner):
    await inner


def consume(generator):
    known["roots"]["three"] = root()
    begun.set()
    for _ in generator:
        pass


def root():
    """The address of this thread's first frame object."""
    frame = sys._getframe()
    while frame.f_back:
        frame = frame.f_back
    return id(frame)


async def both(*coroutines):
    known["roots"]["one"] = known["roots"]["two"] = root()
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    await Turn()
    worker.start()
    begun.wait()
    say("running", **known)
    await asyncio.get_event_loop().run_in_executor(None, command)
    global stop
    stop = True
    for task in tasks:
        await task


if __name__ == "__main__":
    one = by_turns(burn_one)
    first = outer(one)
    generator = numbers(burn_two)
    two = by_numbers(generator)
    second = outer(two)
    alone = numbers(burn_three)
    worker, begun = Worker(consume, alone), threading.Event()
    idle = numbers(burner())
    next(idle)
    known = {
        "burn": {
            name: {"code": id(burn.__code__), "generators": [id(it) for it in generators]}
            for name, burn, generators in [
                ("one", burn_one, [one, first]),
                ("two", burn_two, [generator, two, second]),
                ("three", burn_three, [alone]),
            ]
        },
        "roots": {},
        "suspended": {"generator": id(idle), "code": id(idle.gi_code)},
    }
    ready()
    command()
    asyncio.run(both(first, second))
    worker.join()
    say("done", threads=[worker.account])
    command()
