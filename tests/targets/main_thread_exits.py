"""A program whose first thread ends, by itself, while two others work on: the process lives.

One spins, one reads standard input and then ends the program. Nothing of the first thread is left
in the process but its entry among the kernel's threads.
"""
import ctypes
import os
import threading

from truth import Worker, account, command, ready, say

working = threading.Event()
over = threading.Event()


def spin():
    x = 0
    while not over.is_set():
        for _ in range(1000):
            x += 1


def state_of_first():
    with open("/proc/self/task/%d/stat" % os.getpid()) as stat:
        return stat.read().rpartition(")")[2].split()[0]


def read():
    while state_of_first() != "Z":
        pass
    ready(main=os.getpid())
    command()
    working.set()
    say("running")
    command()
    over.set()
    spinner.join()
    say("done", threads=[spinner.account, account("read")])
    os._exit(0)


def spin_when_told():
    working.wait()
    spin()


spinner = Worker(spin_when_told)
spinner.start()
threading.Thread(target=read, name="read").start()
ctypes.CDLL(None).pthread_exit(None)
