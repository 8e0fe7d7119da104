"""A busy loop inside generators that delegate: the callers of each frame are known."""
from truth import Worker, command, ready, say

stop = False
pairs = [["run", "consume"], ["consume", "outer"], ["outer", "inner"], ["inner", "burn"]]


def burn():
    for _ in range(1000):
        pass


def inner():
    while not stop:
        burn()
        yield 1


def outer():
    yield from inner()


def consume():
    for _ in outer():
        pass


if __name__ == "__main__":
    worker = Worker(consume)
    ready(pairs=pairs)
    command()
    worker.start()
    say("running")
    command()
    stop = True
    worker.join()
    say("done", threads=[worker.account])
    command()
