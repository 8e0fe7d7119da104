"""Threads that are born one after another and sleep at once, for as long as the program lasts.

It says how each is called, as [native id, name], once all of them are about to sleep.
"""
import threading
import time

from truth import accounts_of, command, ready, say

BORN = 150
told = []
wake = threading.Event()


def asleep():
    told.append((threading.get_native_id(), threading.current_thread().name))
    wake.wait()


if __name__ == "__main__":
    threading.stack_size(512 << 10)
    ready()
    command()
    threads = [threading.Thread(target=asleep, name="born-%d" % n) for n in range(BORN)]
    for thread in threads:
        thread.start()
        time.sleep(0.002)
    while len(told) < BORN:
        time.sleep(0.001)
    say("running", told=told)
    command()
    wake.set()
    for thread in threads:
        thread.join()
    say("done", threads=accounts_of([]))
    command()
