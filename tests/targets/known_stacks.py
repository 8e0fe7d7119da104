"""A program whose stacks are known, by its own account.

Every thread but one is parked in a C call under a chain of closures, generators, coroutines,
comprehensions, callbacks from C, names outside ASCII and calls over several lines. The last one
prints one line of JSON, all threads' stacks leaf first, and then blocks on the same source line.
When standard input ends, so does the program.
"""
import _thread
import functools
import json
import os
import sys
import threading
import time

gate = _thread.allocate_lock()
gate.acquire()
parked = {}


def park():
    parked[threading.get_ident()] = True
    gate.acquire()


PARK_LINE = park.__code__.co_firstlineno + 2


def closure(depth):
    def inner(x):
        def innermost():
            return park()
        return innermost() or x
    return inner(depth)


def generator():
    yield 1
    closure(1)
    yield 2


def delegating():
    yield from generator()


async def coroutine():
    for _ in delegating():
        pass


async def awaiting():
    await coroutine()


def drive(coro):
    try:
        coro.send(None)
    except StopIteration:
        pass


def naïve_функция_𝒳():
    drive(awaiting())


def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper


class Box:
    class Größe:
        @logged
        def méthode(self):
            def by(x):
                naïve_функция_𝒳()
                return x
            return sorted([3], key=by)

    @property
    def size(self):
        return Box.Größe().méthode()

    def __add__(self, other):
        return (lambda: self.size)()


def comprehension():
    return [
        Box() + x
        for x in range(1)
    ]


def many_lines(n):
    return functools.reduce(
        lambda a, b: a or
        comprehension(),
        [
            0,
            n,
        ]
    )


def recursive(n):
    if n:
        return recursive(
            n - 1
        )
    return many_lines(1)


def from_text():
    exec(compile("\n\n\ndef made():\n\n    recursive(2)\nmade()", "/nowhere/mäde.py", "exec"), globals())


def far_apart():
    x = [





























































































































        recursive(1)
    ]
    return x


def before_its_own_start(
    n=1,
):
    return max(
        n,
        key=lambda _: (


            from_text()
        ),
    ) if False else from_text()


def deep(n):
    if n:
        deep(n - 1)
    else:
        park()


def account():
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    natives = {thread.ident: thread.native_id for thread in threading.enumerate()}
    own = threading.get_ident()
    threads = {}
    for ident, frame in sys._current_frames().items():
        if ident == own:
            frame = frame.f_back
        stack = []
        while frame:
            code = frame.f_code
            name = getattr(code, "co_qualname", code.co_name)
            stack.append([name, os.path.basename(code.co_filename), frame.f_lineno])
            frame = frame.f_back
        threads[ident] = {"name": names.get(ident), "native_id": natives.get(ident), "stack": stack}
    return {"pid": os.getpid(), "hexversion": sys.hexversion, "own": own, "threads": threads}


def emit(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def is_parked(frame):
    return frame.f_code is park.__code__ and frame.f_lineno == PARK_LINE


def report(expected):
    while True:
        frames = sys._current_frames()
        if len(parked) == expected and all(is_parked(frames[ident]) for ident in parked):
            break
        time.sleep(0.001)
    emit(account()), os.read(0, 1), os._exit(0)


sys.setrecursionlimit(10000)
threading.stack_size(64 << 20)
targets = [
    (recursive, (5,), "worker-0"),
    (from_text, (), "wörker ✓ 𝒳"),
    (far_apart, (), "a name that is far too long for the sixteen bytes of a kernel thread"),
    (before_its_own_start, (), "w"),
    (deep, (1200,), "deep"),
]
for function, args, name in targets:
    threading.Thread(target=function, args=args, name=name, daemon=True).start()
threading.Thread(target=report, args=(len(targets) + 1,), name="reporter", daemon=True).start()
recursive(3)
