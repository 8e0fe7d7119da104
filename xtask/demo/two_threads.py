"""Two threads with a known truth: each says at its end how much CPU time it had.

One compresses random bytes in C, without the GIL. The other sleeps three seconds and then
multiplies in Python. The main thread waits for both.
"""
import os
import threading
import time
import zlib

had = {}


def compress(data):
    for _ in range(20):
        zlib.compress(data)
    had["compress"] = time.thread_time()


def half_sleep():
    time.sleep(3)
    for i in range(10_000_000):
        i * 3
    had["half_sleep"] = time.thread_time()


if __name__ == "__main__":
    data = os.urandom(10_000_000)
    threads = [
        threading.Thread(target=compress, args=[data], name="compress"),
        threading.Thread(target=half_sleep, name="half_sleep"),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    both = sum(had.values())
    for name, cpu in sorted(had.items()):
        print("truth: %s had %.2f s of CPU, %.1f %%" % (name, cpu, 100 * cpu / both))
