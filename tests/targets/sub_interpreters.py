"""Several interpreters in one process: each on a thread of its own, two busy and one asleep.

Every thread has two states, one of the main interpreter and one of its own; what it runs now is
in the second. From 3.12 on each interpreter has its own GIL.
"""
import os
import threading

from truth import command, ready, say

try:
    import _interpreters as interpreters

    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters

    run = interpreters.run_string

# It sleeps now and then: from 3.9 to 3.11 a thread of one interpreter does not hear that one of
# another asks for the GIL they share, and would keep it for good.
BUSY = """
import time
def inner_{0}():
    while True:
        for _ in range(200000):
            pass
        time.sleep(0.001)
inner_{0}()
"""

ASLEEP = """
import time
def inner_{0}():
    time.sleep(1e6)
inner_{0}()
"""


def outer(source, name):
    run(interpreters.create(), source.format(name))


if __name__ == "__main__":
    ready()
    command()
    for source, name in [(BUSY, "first"), (BUSY, "second"), (ASLEEP, "third")]:
        threading.Thread(target=outer, args=(source, name), name=name, daemon=True).start()
    say("running")
    command()
    say("done", threads=[])
    command()
    os._exit(0)
