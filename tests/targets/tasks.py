"""Tasks of two loops in two threads that await each other in every way, and say so.

Of what kind they are is the argument: `c`, `python`, `eager`, or `uvloop` and a folder that has it. The second loop's main
task stands in a call of its own, so that of its tasks one runs and two could.
"""
import asyncio
import gc
import sys
import threading

from truth import account, accounts_of, command, ready, say, Worker

KIND = sys.argv[1] if len(sys.argv) > 1 else "c"
told, loops, stopped = [], [], threading.Event()


class Awaitable:
    def __init__(self, coroutine):
        self.coroutine = coroutine

    def __await__(self):
        return self.coroutine.__await__()


async def leaf(awaited):
    await awaited


async def nested(awaited):
    await Awaitable(leaf(awaited))


async def generated(awaited):
    yield 1
    await leaf(awaited)
    yield 2


async def iterates(awaited):
    async for _ in generated(awaited):
        pass


async def gets(queue):
    await queue.get()


async def gathers(*awaited):
    await asyncio.gather(*awaited)


async def waits(*awaited):
    await asyncio.wait(awaited)


async def shields(awaited):
    await asyncio.shield(awaited)


async def times_out(awaited):
    await asyncio.wait_for(awaited, 1000)


async def sleeps():
    await asyncio.sleep(1000)


async def yields():
    await asyncio.sleep(0)


async def groups(started):
    async with asyncio.TaskGroup() as group:
        for number in range(2):
            make(sleeps(), "grouped %d" % number, started, group.create_task)


def make(coroutine, name, started, factory=None):
    if KIND == "python":
        task = asyncio.tasks._PyTask(coroutine, loop=asyncio.get_running_loop(), name=name)
    else:
        task = (factory or asyncio.get_running_loop().create_task)(coroutine, name=name)
    started[name] = task
    return task


def chain(coroutine):
    """Names and lines of the coroutines that await each other, leaf first."""
    found = []
    while coroutine is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(coroutine, kind + "_frame", None)
            if frame is not None:
                code = frame.f_code
                found.append([getattr(code, "co_qualname", code.co_name), frame.f_lineno])
                awaits = "yieldfrom" if kind == "gi" else "await"
                coroutine = getattr(coroutine, "%s_%s" % (kind, awaits))
                break
        else:
            # What stands between has no frame; of a wrapper only the referents tell.
            inner = [] if type(coroutine).__name__ == "FutureIter" else gc.get_referents(coroutine)
            inner = [it for it in inner if hasattr(it, "cr_frame") or hasattr(it, "ag_frame")]
            coroutine = inner[0] if inner else None
    return found[::-1]


def tell(started, awaiters, states):
    """Of each task: its name, coroutine, chain, state and who awaits it."""
    tid = threading.get_native_id()
    # From 3.14 on asyncio itself does not show those of Python.
    for task in asyncio.all_tasks() | {it for it in started.values() if not it.done()}:
        name = task.get_name()
        coroutine = task.get_coro()
        told.append({
            "name": name,
            "coroutine": getattr(coroutine.cr_code, "co_qualname", coroutine.cr_code.co_name),
            "chain": chain(coroutine),
            # It may begin before it has its name.
            "state": states.get(name, states.get(coroutine.__name__, "waiting")),
            "awaited_by": sorted(it for it in awaiters.get(name, []) if not started[it].done()),
            "tid": tid,
        })


async def idle():
    """All of them wait."""
    loop = asyncio.get_running_loop()
    loops.append(loop)
    if KIND == "eager":
        loop.set_task_factory(asyncio.eager_task_factory)
    started, never, queue = {}, loop.create_future(), asyncio.Queue()
    make(nested(never), "nested", started)
    make(iterates(loop.create_future()), "iterates", started)
    make(gets(queue), "gets", started)
    make(sleeps(), "sleeps", started)
    make(leaf(started["sleeps"]), "awaits a task", started)
    make(leaf(started["sleeps"]), "awaits it too", started)
    for kind in (gathers, waits, shields, times_out):
        of = [make(sleeps(), "%s: %d" % (kind.__name__, number), started) for number in range(2)]
        if kind in (shields, times_out):
            of = of[:1]
        make(kind(*of), kind.__name__, started)
    awaiters = {"sleeps": ["awaits a task", "awaits it too"]}
    for kind in (gathers, waits):
        for number in range(2):
            awaiters["%s: %d" % (kind.__name__, number)] = [kind.__name__]
    for kind in (shields, times_out):
        awaiters["%s: 0" % kind.__name__] = [kind.__name__]
    if sys.version_info >= (3, 11) and KIND != "python":
        make(groups(started), "groups", started)
        awaiters.update(("grouped %d" % number, ["groups"]) for number in range(2))
    me = asyncio.current_task()
    if hasattr(me, "set_name"):
        me.set_name("idle")
    for _ in range(20):
        await asyncio.sleep(0)
    done = asyncio.Event()
    # By then this task waits as well.
    loop.call_soon(lambda: (tell(started, awaiters, {}), settled.release()))
    loops.append(done)
    await done.wait()
    others = set(started.values()) - {me}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def busy():
    """One runs; one has its turn since it was made, one since what it awaited is there."""
    loop = asyncio.get_running_loop()
    started, there = {}, loop.create_future()
    asyncio.current_task().set_name("busy")
    if KIND == "eager":
        # They begin at once, inside of whoever makes them.
        loop.set_task_factory(asyncio.eager_task_factory)
    make(leaf(there), "woken", started)
    make(yields(), "yields", started)
    if KIND == "eager":
        there.set_result(None)
        make(eagerly(started), "eagerly", started)
    else:
        await asyncio.sleep(0)
        there.set_result(None)
        stands(started)
    await asyncio.gather(*started.values())


async def eagerly(started):
    stands(started)


def stands(started):
    states = {"busy": "running", "eagerly": "running", "yields": "runnable", "woken": "runnable"}
    tell(started, {}, states)
    settled.release()
    stopped.wait()


settled = threading.Semaphore(0)


def run(main):
    if KIND == "uvloop":
        sys.path.insert(0, sys.argv[2])
        import uvloop

        loop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    loop.run_until_complete(main())


def first():
    run(idle)


def second():
    run(busy)


def main():
    workers = [Worker(first), Worker(second)]
    for worker in workers:
        worker.daemon = True
        worker.start()
        settled.acquire()
    ready(tasks=told)
    command()
    say("running")
    command()
    stopped.set()
    loop, done = loops
    loop.call_soon_threadsafe(done.set)
    for worker in workers:
        worker.join()
    say("done", threads=[account("main")] + accounts_of(workers))


if __name__ == "__main__":
    main()
