"""Starts and ends short threads all the time; each bears the name of the one function it runs."""
import threading

from truth import Worker, command, ready, say

stop = False


def work_0(n):
    for i in range(n):
        pass


def work_1(n):
    for i in range(n):
        pass


def work_2(n):
    for i in range(n):
        pass


def work_3(n):
    for i in range(n):
        pass


started = 0

# Most are over before anybody has asked who they are, the last ones seldom.
WORKS = [(work_0, 5000), (work_1, 20000), (work_2, 100000), (work_3, 1000000)]


def churn():
    global started
    while not stop:
        threads = [
            threading.Thread(target=work, name=work.__name__, args=(n,)) for work, n in WORKS
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        started += len(threads)


if __name__ == "__main__":
    worker = Worker(churn)
    ready()
    command()
    worker.start()
    say("running")
    command()
    stop = True
    worker.join()
    say("done", threads=[worker.account], started=started)
    command()
