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


def churn():
    global started
    works = [work_0, work_1, work_2, work_3]
    while not stop:
        threads = [
            threading.Thread(target=work, name=work.__name__, args=(20000,)) for work in works
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
