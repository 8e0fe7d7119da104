"""Threads that all run often: a little work and a tiny sleep, over and over.

usage: busy_threads.py THREADS

The main thread is one of them, so all of the process's threads are Python's.
"""
import select
import sys
import threading
import time

from truth import Worker, account, command, ready, say

stop = False


def work():
    for _ in range(2000):
        pass


def busy():
    while not stop:
        work()
        time.sleep(0.0005)


def main():
    while not select.select([sys.stdin], [], [], 0.0005)[0]:
        work()


if __name__ == "__main__":
    threading.stack_size(512 << 10)
    workers = [Worker(busy) for _ in range(int(sys.argv[1]) - 1)]
    ready()
    command()
    for worker in workers:
        worker.start()
    say("running")
    main()
    command()
    stop = True
    for worker in workers:
        worker.join()
    say("done", threads=[account("main")] + [worker.account for worker in workers])
    command()
