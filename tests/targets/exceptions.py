"""Threads that wait inside and outside of `except` blocks, each told by `sys.exc_info()`.

The ready line has them as [native id, ident, name, whether it handles an exception].
"""
import sys
import threading

from truth import command, ready, say

who = []
here = threading.Semaphore(0)
let_go = threading.Event()


def park(name):
    handles = sys.exc_info()[0] is not None
    who.append([threading.get_native_id(), threading.get_ident(), name, handles])
    here.release()
    let_go.wait()


def plain():
    park("plain")


def in_except():
    try:
        raise KeyError(1)
    except KeyError:
        park("in_except")


def after_except():
    try:
        raise KeyError(1)
    except KeyError:
        pass
    park("after_except")


def in_finally():
    try:
        try:
            raise KeyError(1)
        finally:
            park("in_finally")
    except KeyError:
        pass


def finally_without():
    try:
        pass
    finally:
        park("finally_without")


def generator(name, handle):
    if handle:
        try:
            raise ValueError(1)
        except ValueError:
            park(name)
    else:
        park(name)
    yield


def generator_handles():
    list(generator("generator_handles", True))


def generator_does_not():
    list(generator("generator_does_not", False))


def generator_inside_except():
    try:
        raise KeyError(1)
    except KeyError:
        list(generator("generator_inside_except", False))


def generator_after_its_own():
    def both():
        try:
            raise KeyError(1)
        except KeyError:
            pass
        park("generator_after_its_own")
        yield

    list(both())


def nested_generators():
    def outer():
        try:
            raise KeyError(1)
        except KeyError:
            yield from generator("nested_generators", False)

    list(outer())


BODIES = [
    plain, in_except, after_except, in_finally, finally_without, generator_handles,
    generator_does_not, generator_inside_except, generator_after_its_own, nested_generators,
]

if __name__ == "__main__":
    threads = [threading.Thread(target=body) for body in BODIES]
    for thread in threads:
        thread.start()
        here.acquire()
    ready(threads=who)
    command()
    say("running")
    command()
    let_go.set()
    for thread in threads:
        thread.join()
    say("done", threads=[])
    command()
