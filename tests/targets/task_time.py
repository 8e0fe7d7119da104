"""Tasks that spend a known time: on the loop's thread, by their own clocks, or waiting.

usage: task_time.py eager SECONDS          tasks that run inside the one that makes them (3.12+)
       task_time.py queue TASKS SECONDS    that many wait for one queue while one task works
       task_time.py turns SECONDS          tasks that take turns, with awaits within awaits
       task_time.py crowd TASKS SECONDS    that many work by turns, and one waits for an event
       task_time.py storm TASKS SECONDS    one works, and that many come and go meanwhile

It begins at `go` on stdin. At the end it tells what each task had by the thread's clock, by the name
under which a profile should have it, and what all of the thread's time was.
"""
import asyncio
import sys
import time

from truth import SPENT, Spending, account, command, ready, say, work


def of_heavy(seconds):
    work(seconds)


def of_light(seconds):
    work(seconds)


def of_all(seconds):
    work(seconds)


async def inner(name, function, seconds):
    with Spending(name):
        function(seconds)
    await asyncio.sleep(0)


async def middle(name, function, seconds):
    await inner(name, function, seconds)


async def takes_turns(name, function, seconds, until):
    while time.perf_counter() < until:
        await middle(name, function, seconds)


async def another(name, seconds, until):
    def numbers():
        # A generator in its stack that is no coroutine.
        with Spending(name):
            work(seconds)
        yield

    while time.perf_counter() < until:
        for _ in numbers():
            pass
        await asyncio.sleep(0)


async def getter(queue):
    while True:
        await queue.get()


async def producer(until):
    while time.perf_counter() < until:
        with Spending("producer"):
            work(0.01)
        await asyncio.sleep(0)


async def waiter(event):
    await event.wait()


async def short():
    await asyncio.sleep(0)


async def queue(tasks, seconds):
    waited_for = asyncio.Queue()
    waiting = [asyncio.ensure_future(getter(waited_for)) for _ in range(tasks)]
    await asyncio.sleep(0)
    ready_to_go()
    await producer(time.perf_counter() + seconds)
    say_done()
    for task in waiting:
        task.cancel()


async def turns(seconds):
    ready_to_go()
    until = time.perf_counter() + seconds
    tasks = [
        asyncio.ensure_future(takes_turns("heavy", of_heavy, 0.004, until)),
        asyncio.ensure_future(takes_turns("light", of_light, 0.002, until)),
        asyncio.ensure_future(another("another", 0.001, until)),
    ]
    for task, name in zip(tasks, ["heavy", "light"]):
        task.set_name(name)
    await asyncio.gather(*tasks)
    say_done()


async def works_at_once(seconds):
    with Spending("works_at_once"):
        work(seconds)


async def eager(seconds):
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    ready_to_go()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        asyncio.create_task(works_at_once(0.003))
        with Spending("eager"):
            work(0.002)
    say_done()


async def crowd(tasks, seconds):
    event = asyncio.Event()
    waiting = asyncio.ensure_future(waiter(event))
    await asyncio.sleep(0)
    ready_to_go()
    until = time.perf_counter() + seconds
    working = (takes_turns("takes_turns", of_all, 0.0005, until) for _ in range(tasks))
    await asyncio.gather(*working)
    say_done()
    event.set()
    await waiting


async def storm(tasks, seconds):
    ready_to_go()
    until = time.perf_counter() + seconds
    working = asyncio.ensure_future(producer(until))
    made = 0
    while made < tasks or time.perf_counter() < until:
        alive = [asyncio.ensure_future(short()) for _ in range(64)]
        made += len(alive)
        await asyncio.gather(*alive)
    await working
    say_done(made=made)


def ready_to_go():
    ready()
    command()
    SPENT["all"] = -time.thread_time()


def say_done(**more):
    SPENT["all"] += time.thread_time()
    say("done", threads=[account("loop")], spent=SPENT, **more)
    command()


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*[int(word) for word in sys.argv[2:]]))
