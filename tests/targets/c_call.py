"""C code called from Python, and Python called from that C: the callers of each frame are known."""
import functools
import zlib

from truth import Worker, command, ready, say

stop = False
pairs = [
    ["run", "work"], ["work", "checksum"], ["work", "ordered"], ["work", "folded"],
    ["ordered", "key"], ["folded", "step"],
]
data = bytes(1 << 20)


def checksum():
    zlib.crc32(data)


def key(number):
    return -number


def ordered():
    sorted(range(2000), key=key)


def step(total, number):
    return total + number


def folded():
    functools.reduce(step, range(2000))


def work():
    while not stop:
        checksum()
        ordered()
        folded()


if __name__ == "__main__":
    worker = Worker(work)
    ready(pairs=pairs, c_line=checksum.__code__.co_firstlineno + 1)
    command()
    worker.start()
    say("running")
    command()
    stop = True
    worker.join()
    say("done", threads=[worker.account])
    command()
