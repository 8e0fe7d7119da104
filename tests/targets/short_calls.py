"""Nothing but short calls, whose callers are known: `f_i` calls only `g_i`, and so on, 8 deep.

usage: short_calls.py THREADS
"""
import sys

from truth import Worker, command, ready, say

LEVELS = "fghjklmn"
FAMILIES = range(6)
source = ""
pairs = [["run", "work"]]
for i in FAMILIES:
    pairs.append(["work", "f_%d" % i])
    for caller, callee in zip(LEVELS, LEVELS[1:]):
        source += "def %s_%d(): %s_%d()\n" % (caller, i, callee, i)
        pairs.append(["%s_%d" % (caller, i), "%s_%d" % (callee, i)])
    source += "def %s_%d(): pass\n" % (LEVELS[-1], i)
exec(compile(source, __file__, "exec"))

stop = False


def work():
    while not stop:
        f_0(); f_1(); f_2(); f_3(); f_4(); f_5()


if __name__ == "__main__":
    workers = [Worker(work) for _ in range(int(sys.argv[1]))]
    ready(pairs=pairs)
    command()
    for worker in workers:
        worker.start()
    say("running")
    command()
    stop = True
    for worker in workers:
        worker.join()
    say("done", threads=[worker.account for worker in workers])
    command()
