"""Tasks of one loop that compute in their own coroutines, and sleep in between.

usage: loop_of_tasks.py SECONDS
"""
import asyncio
import sys
import time

from truth import Taking, Worker, tell_shares


async def parses(until):
    while time.perf_counter() < until:
        with Taking("parses"):
            for number in range(4000):
                int(str(number))
        await asyncio.sleep(0.001)


async def counts(until):
    while time.perf_counter() < until:
        with Taking("counts"):
            total = 0
            for number in range(20000):
                total += number
        await asyncio.sleep(0.002)


async def sorts(until):
    while time.perf_counter() < until:
        with Taking("sorts"):
            numbers = list(range(1000))
            for _ in range(20):
                numbers.sort(key=lambda number: -number)
        await asyncio.sleep(0.004)


async def looks(until):
    # Most of the time it waits.
    while time.perf_counter() < until:
        await asyncio.sleep(0.01)


async def all_of_them(seconds):
    until = time.perf_counter() + seconds
    await asyncio.gather(*[task(until) for task in (parses, counts, sorts, looks)])


def loop_of_tasks(seconds):
    asyncio.new_event_loop().run_until_complete(all_of_them(seconds))


if __name__ == "__main__":
    pairs = [["run", "loop_of_tasks"]]
    tell_shares(Worker(loop_of_tasks, float(sys.argv[1])), pairs=pairs)
