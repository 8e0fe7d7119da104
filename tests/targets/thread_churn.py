"""Threads that live for a millisecond, one after another: ids, thread states and their memory are
used again all the time. Each has work of its own kind, by its number and its name.

At the end it says which kind each thread was, as [native id, kind].
"""
import threading
import time

from truth import accounts_of, command, ready, say

KINDS = 16
source = ""
for kind in range(KINDS):
    source += """
def kind_%d(until):
    while time.perf_counter() < until:
        for _ in range(50):
            pass
""" % kind
exec(compile(source, __file__, "exec"))
kinds = [globals()["kind_%d" % kind] for kind in range(KINDS)]
stop = threading.Event()
told = []


def live(kind):
    told.append((threading.get_native_id(), kind))
    kinds[kind](time.perf_counter() + 0.0007)


def bear():
    born = 0
    while not stop.is_set():
        kind = born * 7 % KINDS
        thread = threading.Thread(target=live, args=(kind,), name="kind-%d" % kind)
        thread.start()
        thread.join()
        born += 1


if __name__ == "__main__":
    ready()
    command()
    mother = threading.Thread(target=bear)
    begin = time.perf_counter()
    mother.start()
    say("running")
    command()
    stop.set()
    mother.join()
    say("done", threads=accounts_of([]), told=told, seconds=time.perf_counter() - begin)
    command()
