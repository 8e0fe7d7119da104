"""Tasks that wait for one queue, as many as the argument says, and one that takes turns on command."""
import asyncio
import sys
import threading

from truth import account, command, ready, say


async def gets(queue):
    return await queue.get()


async def worker(queue):
    await gets(queue)


async def turns(event):
    while True:
        await event.wait()
        event.clear()
        # Another line than the one before.
        await event.wait()
        event.clear()


def commands(loop, event):
    """Each line is a turn, until the last one."""
    command()
    say("running")
    while command() == "turn":
        loop.call_soon_threadsafe(event.set)
    loop.call_soon_threadsafe(loop.stop)


async def settle():
    for _ in range(3):
        await asyncio.sleep(0)


def main():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    count = int(sys.argv[1])
    queue, event = asyncio.Queue(), asyncio.Event()
    tasks = [loop.create_task(worker(queue)) for _ in range(count)]
    tasks.append(loop.create_task(turns(event), name="turns"))
    loop.run_until_complete(settle())
    # From inside the loop: then it runs, and waits next.
    loop.call_soon(lambda: ready(tasks=count + 1))
    threading.Thread(target=commands, args=(loop, event), daemon=True).start()
    loop.run_forever()
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    say("done", threads=[account("main")])


if __name__ == "__main__":
    main()
