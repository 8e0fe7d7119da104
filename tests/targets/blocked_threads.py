"""Threads that wait, each for something of its own.

The ready line has them as [native id, name, what it waits for, when it began on CLOCK_MONOTONIC].
The second word that it is told makes one thread more: at `keep` it takes the GIL and never gives
it back, so that a thread `loser` waits for it from then on, and nothing is said any more; at
`collect` it collects garbage without end.
"""
import fcntl
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from truth import command, ready, say

FOREVER = 1e6
who = []
kept = []


def keep(*things):
    """What must stay open as long as the target lives."""
    kept.append(things)
    return things


def recv():
    keep(*socket.socketpair())[0].recv(1)


def accept():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    server.accept()


def send():
    keep(*socket.socketpair())[0].sendall(bytes(64 << 20))


def read_socket():
    os.read(keep(*socket.socketpair())[0].fileno(), 1)


def read_pipe():
    os.read(keep(*os.pipe())[0], 1)


def write_pipe():
    os.write(keep(*os.pipe())[1], bytes(64 << 20))


def fifo(name):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    os.mkfifo(path)
    return path


def open_named():
    os.open(fifo("opened"), os.O_RDONLY)


def read_named():
    # From outside it is a path, as any file is.
    os.read(os.open(fifo("read"), os.O_RDWR), 1)


def lock_file():
    with tempfile.NamedTemporaryFile() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with open(file.name) as other:
            fcntl.flock(other, fcntl.LOCK_EX)


def acquire():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def acquire_in_time():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=FOREVER)


def event():
    threading.Event().wait()


def sleep():
    time.sleep(FOREVER)


def select_nothing():
    select.select([], [], [], FOREVER)


def select_pipe():
    select.select([keep(*os.pipe())[0]], [], [])


def poll_pipe():
    poll = select.poll()
    poll.register(keep(*os.pipe())[0], select.POLLIN)
    poll.poll()


def epoll():
    keep(select.epoll())[0].poll()


def child():
    # It ends with its input, and so with this process.
    subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ).wait()


def pause():
    signal.pause()


def loser():
    while True:
        time.sleep(0.01)


def keeper():
    sum(range(10 ** 15))


def collector():
    keep([[] for _ in range(300000)])
    while True:
        gc.collect()


WAITS = [
    (recv, "io_socket"), (accept, "io_socket"), (send, "io_socket"), (read_socket, "io_socket"),
    (read_pipe, "io_pipe"), (write_pipe, "io_pipe"),
    (open_named, "io_file"), (read_named, "io_file"), (lock_file, "io_file"),
    (acquire, "lock"), (acquire_in_time, "lock"), (event, "lock"),
    (sleep, "sleep"), (select_nothing, "sleep"),
    (select_pipe, "poll"), (poll_pipe, "poll"), (epoll, "poll"),
    (child, "child"), (pause, "pause"),
]


def waits(body, reason):
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    who.append([threading.get_native_id(), body.__name__, reason, now])
    body()


def begin(target, name, *arguments):
    threading.Thread(target=target, name=name, args=arguments, daemon=True).start()


if __name__ == "__main__":
    for body, reason in WAITS:
        begin(waits, body.__name__, body, reason)
    while len(who) < len(WAITS):
        time.sleep(0.001)
    ready(threads=who)
    command()
    say("running")
    word = command()
    if word == "keep":
        begin(loser, "loser")
        begin(keeper, "keeper")
    if word == "collect":
        begin(collector, "collector")
    say("done", threads=[])
    command()
    os._exit(0)
