"""Pairs of threads that hand a lock to and fro as fast as they can, below calls that are known.

usage: lock_ping_pong.py THREADS

As in short_calls.py, `f_i` calls only `g_i`, and so on; the deepest waits for its own lock and
lets the other's go, each time in another family: a stack put together from two is impossible.
"""
import sys
import threading
import time

from truth import Worker, command, ready, say

LEVELS = "fghjklmn"
FAMILIES = range(6)
source = ""
pairs = [["run", "work"]]
for i in FAMILIES:
    pairs.append(["work", "f_%d" % i])
    for caller, callee in zip(LEVELS, LEVELS[1:]):
        source += "def %s_%d(own, other): %s_%d(own, other)\n" % (caller, i, callee, i)
        pairs.append(["%s_%d" % (caller, i), "%s_%d" % (callee, i)])
    source += "def %s_%d(own, other): own.acquire(); other.release()\n" % (LEVELS[-1], i)
exec(compile(source, __file__, "exec"))

stop = False


def work(own, other):
    try:
        while not stop:
            for _ in range(200):
                f_0(own, other); f_1(own, other); f_2(own, other)
                f_3(own, other); f_4(own, other); f_5(own, other)
            # Else the main thread may wait minutes for its turn: who lets the GIL go has it again
            # before one that is woken up.
            time.sleep(0.002)
    except RuntimeError:
        pass  # a lock was let go twice: the main thread ends the game


def let_go(lock):
    try:
        lock.release()
    except RuntimeError:
        pass  # nobody holds it


if __name__ == "__main__":
    workers, locks = [], []
    for _ in range(int(sys.argv[1]) // 2):
        ping, pong = threading.Lock(), threading.Lock()
        pong.acquire()
        locks += [ping, pong]
        workers += [Worker(work, ping, pong), Worker(work, pong, ping)]
    ready(pairs=pairs)
    command()
    for worker in workers:
        worker.start()
    say("running")
    command()
    stop = True
    for worker in workers:
        while worker.is_alive():
            for lock in locks:
                let_go(lock)
            worker.join(0.01)
    say("done", threads=[worker.account for worker in workers])
    command()
