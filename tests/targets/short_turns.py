"""More threads than CPUs, each with short turns of a function of its own, named like the thread."""
import threading
import time

from truth import accounts_of, command, ready, say

THREADS = 8
source = ""
for number in range(THREADS):
    source += """
def turn_%d():
    while not stop.is_set():
        until = time.perf_counter() + 0.0005
        while time.perf_counter() < until:
            pass
        time.sleep(0.002)
""" % number
exec(compile(source, __file__, "exec"))
stop = threading.Event()


if __name__ == "__main__":
    turns = [globals()["turn_%d" % number] for number in range(THREADS)]
    threads = [threading.Thread(target=turn, name=turn.__name__) for turn in turns]
    ready()
    command()
    for thread in threads:
        thread.start()
    say("running")
    command()
    stop.set()
    for thread in threads:
        thread.join()
    say("done", threads=accounts_of([]))
    command()
