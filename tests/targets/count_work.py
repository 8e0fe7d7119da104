"""Does as many units of work as each line of stdin says, and answers with what they took, and by
what share interruptions made it longer, on the CPU and by the wall clock.

The digest depends on the units alone: whoever watches the program must not change it.
usage: count_work.py DEPTH
"""
import sys
import time

from truth import command, in_pieces, ready, say


def units(count, digest):
    def unit():
        nonlocal digest
        sum = digest
        for i in range(200):
            sum = (sum * 31 + i) & 0xFFFFFFFF
        digest = sum

    lost, lost_wall = in_pieces(unit, count)
    return digest, lost, lost_wall


def at_depth(depth, count, digest):
    if depth > 1:
        return at_depth(depth - 1, count, digest)
    return units(count, digest)


if __name__ == "__main__":
    depth = int(sys.argv[1])
    digest = 1
    ready(depth=depth)
    while True:
        line = command()
        if not line:
            break
        wall, cpu = time.perf_counter(), time.thread_time()
        digest, lost, lost_wall = at_depth(depth, int(line), digest)
        say(
            "work",
            units=int(line),
            wall_s=time.perf_counter() - wall,
            cpu_s=time.thread_time() - cpu,
            lost=lost,
            lost_wall=lost_wall,
            digest=digest,
        )
    say("done", digest=digest)
