"""Threads that say who they are and then block, each kind in a system call of its own.

    threads.py COUNT [NATIVE]

COUNT threads run Python, the first one included; NATIVE more are made by the C library alone and
never see Python. One line of JSON is printed once all are about to block:
{"pid": …, "python": [[native id, ident], …], "native": how many}
The program ends when its standard input does.
"""
import json
import os
import select
import socket
import sys
import threading
import time

COUNT = int(sys.argv[1])
NATIVE = int(sys.argv[2]) if len(sys.argv) > 2 else 0
FOREVER = 1e6

who = []
ready = threading.Semaphore(0)
kept = []


def in_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def in_timed_wait():
    threading.Event().wait(FOREVER)


def in_sleep():
    time.sleep(FOREVER)


def in_read():
    ends = os.pipe()
    kept.append(ends)
    os.read(ends[0], 1)


def in_recv():
    ends = socket.socketpair()
    kept.append(ends)
    ends[0].recv(1)


def in_select():
    ends = os.pipe()
    kept.append(ends)
    select.select([ends[0]], [], [], FOREVER)


def in_poll():
    select.poll().poll(int(FOREVER))


def in_epoll():
    poll = select.epoll()
    kept.append(poll)
    poll.poll(FOREVER)


def deep(block, depth):
    if depth:
        deep(block, depth - 1)
    else:
        block()


def thread(block, depth):
    who.append((threading.get_native_id(), threading.get_ident()))
    ready.release()
    deep(block, depth)


def native_thread():
    import ctypes

    libc = ctypes.CDLL(None)
    kept.append(libc)
    ident = ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(ident), None, ctypes.cast(libc.pause, ctypes.c_void_p), None)


def natives():
    made = 0
    for _ in range(NATIVE):
        try:
            native_thread()
        except (ImportError, OSError):
            break
        made += 1
    return made


WAYS = [in_lock, in_timed_wait, in_sleep, in_read, in_recv, in_select, in_poll, in_epoll]
who.append((threading.get_native_id(), threading.get_ident()))
made = natives() if NATIVE else 0
for index in range(COUNT - 1):
    way = WAYS[index % len(WAYS)]
    threading.Thread(target=thread, args=(way, index % 7 * 20), daemon=True).start()
for _ in range(COUNT - 1):
    ready.acquire()
print(json.dumps({"pid": os.getpid(), "python": who, "native": made}), flush=True)
sys.stdin.read()
os._exit(0)
