"""Two threads that share the GIL, busy until told to stop."""
from truth import Worker, command, ready, say

stop = False


def add():
    total = 0
    while not stop:
        for i in range(1000):
            total += i


def concatenate():
    while not stop:
        text = ""
        for _ in range(1000):
            text += "x"


if __name__ == "__main__":
    workers = [Worker(add), Worker(concatenate)]
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
