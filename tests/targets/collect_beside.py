"""One thread collects garbage all the time, one only computes, until told to stop."""
import gc

from truth import Worker, command, ready, say

stop = False
alive = [[] for _ in range(200000)]


def collect():
    while not stop:
        gc.collect()


def compute():
    while not stop:
        for _ in range(1000):
            pass


if __name__ == "__main__":
    # Only `collect` is to collect.
    gc.disable()
    workers = [Worker(collect), Worker(compute)]
    ready()
    command()
    for worker in workers:
        worker.start()
    say("running")
    command()
    stop = True
    for worker in workers:
        worker.join()
    say("done", threads=[worker.account for worker in workers])
    command()
