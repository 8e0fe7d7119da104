"""Threads that wait, each for reasons of its own, and say for how long by their own clocks.

usage: reasons.py SECONDS

A function is named for what its thread waits for while in it. One thread never lets the GIL go
unless it is asked to, and one asks for it all the time.
"""
import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import zlib

from truth import Worker, accounts_of, command, ready, say

BYTES = bytes(500000)
PAGE = os.sysconf("SC_PAGESIZE")
libc = ctypes.CDLL(None)
silent, peer = socket.socketpair()
pipe = os.pipe()
held = threading.Lock()
held.acquire()
waiting = 0


def io_socket(seconds):
    micros = int(seconds * 1e6)
    option = struct.pack("ll", micros // 1000000, micros % 1000000)
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, option)
    try:
        silent.recv(1)
    except BlockingIOError:
        pass


def lock(seconds):
    held.acquire(True, seconds)


def sleep(seconds):
    time.sleep(seconds)


def poll(seconds):
    silent_ones = select.poll()
    silent_ones.register(silent, select.POLLIN)
    silent_ones.poll(seconds * 1000)


def io_pipe(_):
    os.read(pipe[0], 1)


def child(_):
    os.waitpid(born, 0)


def io_file(_):
    os.read(terminal[0], 1)


def rt_sigtimedwait(seconds):
    signal.sigtimedwait([signal.SIGUSR1], seconds)


def gil(seconds):
    """Lets it go for a moment's work, in which the other takes it."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        zlib.crc32(BYTES)


def page_fault(_):
    """Touches a page that is not there until somebody brings it."""
    ctypes.memset(absent, 1, 1)


def page_that_is_not_there():
    """The address of a page, and the file that tells that it was touched; None where none may."""
    missing = 0x01  # UFFDIO_REGISTER_MODE_MISSING
    file = libc.syscall(323, os.O_CLOEXEC)  # userfaultfd
    if file < 0:
        return None
    libc.mmap.restype = ctypes.c_void_p
    address = libc.mmap(None, ctypes.c_size_t(PAGE), 3, 0x22, -1, ctypes.c_size_t(0))
    fcntl.ioctl(file, 0xC018AA3F, struct.pack("QQQ", 0xAA, 0, 0))  # UFFDIO_API
    fcntl.ioctl(file, 0xC020AA00, struct.pack("QQQQ", address, PAGE, missing, 0))  # UFFDIO_REGISTER
    return address, file


def bring_the_page():
    fcntl.ioctl(userfault, 0xC020AA04, struct.pack("QQQQ", absent, PAGE, 0, 0))  # UFFDIO_ZEROPAGE


def waits(*steps):
    thread = threading.current_thread()
    for reason, seconds in steps:
        thread.spend(reason.__name__, reason, seconds)


def spins():
    while waiting:
        pass


if __name__ == "__main__":
    seconds = float(sys.argv[1])
    until = os.pipe()
    born = os.fork()
    if born == 0:
        os.close(until[1])
        os.read(until[0], 1)
        os._exit(0)
    some, rest = 0.6 * seconds, 0.4 * seconds
    plan = [
        [(io_socket, some), (poll, rest)],
        [(lock, rest), (sleep, some)],
        [(gil, seconds)],
        [(io_pipe, 0), (rt_sigtimedwait, rest)],
        [(child, 0), (lock, rest)],
    ]
    try:
        terminal = os.openpty()
    except OSError:
        terminal = None  # in a root without its own /dev/pts
    else:
        plan.append([(io_file, 0), (sleep, rest)])
    absent, userfault = page_that_is_not_there() or (None, None)
    if absent:
        plan.append([(page_fault, 0), (sleep, rest)])
    workers = [Worker(waits, *steps) for steps in plan]
    spinner = Worker(spins)
    ready(spinner=len(workers))
    command()
    waiting = 1
    for worker in workers + [spinner]:
        worker.start()
    time.sleep(some)
    os.write(pipe[1], b".")
    os.close(until[1])
    if terminal:
        os.write(terminal[1], b"\n")
    if absent:
        bring_the_page()
    for worker in workers:
        worker.join()
    waiting = 0
    spinner.join()
    say("done", threads=accounts_of(workers + [spinner]))
    command()
