"""One thread compresses random bytes, one sleeps and then multiplies, the main thread joins.

usage: origin.py ROUNDS SLEEP_SECONDS MULTIPLICATIONS [MEGABYTES]
"""
import os
import sys
import threading
import time
import zlib

from truth import Worker, account, accounts_of, command, ready, say


def compress(rounds, data):
    for _ in range(rounds):
        zlib.compress(data)


def half_sleep(seconds, multiplications):
    threading.current_thread().spend("sleep", time.sleep, seconds)
    product = 1
    for i in range(multiplications):
        product = i * 3


if __name__ == "__main__":
    rounds, seconds, multiplications = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    data = os.urandom(int(sys.argv[4] if len(sys.argv) > 4 else 10) * 1000 * 1000)
    before = account("main")
    ready()
    command()
    workers = [Worker(compress, rounds, data), Worker(half_sleep, seconds, multiplications)]
    for worker in workers:
        worker.start()
    begin = time.perf_counter()
    for worker in workers:
        worker.join()
    joined = time.perf_counter() - begin
    ended = accounts_of(workers)
    main = account("main")
    for key in ["cpu_s", "stat_s", "runnable_s"]:
        main[key] -= before[key]
    main["spent_s"] = {"lock": joined}
    say("done", threads=[main] + ended)
    command()
