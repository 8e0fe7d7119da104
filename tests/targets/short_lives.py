"""Children one after the other, each of which works for as long as it lives, and says how long.

usage: short_lives.py fork|start LIFE SECONDS    for so many seconds, children of LIFE seconds
       short_lives.py lives LIFE END             such a child, which writes into that descriptor

fork: they are what their parent is. start: each is an interpreter of its own, whose start is not
counted.
"""
import json
import os
import subprocess
import sys
import time

from truth import LASTED, SPENT, Taking, account, command, ready, say


def lives(life):
    end = time.perf_counter() + life
    while time.perf_counter() < end:
        for _ in range(200):
            pass


def child(life, end):
    with Taking("lives"):
        lives(life)
    os.write(end, (json.dumps([SPENT["lives"], LASTED["lives"]]) + "\n").encode())
    os._exit(0)


def fork(life, end):
    pid = os.fork()
    if pid == 0:
        child(life, end)
    os.waitpid(pid, 0)


def start(life, end):
    words = [sys.executable, os.path.abspath(__file__), "lives", str(life), str(end)]
    subprocess.run(words, pass_fds=[end], check=True)


def bears(way, life, seconds):
    take, end = os.pipe()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        way(life, end)
    os.close(end)
    with open(take) as lines:
        told = [json.loads(line) for line in lines]
    facts = account("bears")
    facts["spent_s"] = {"lives": sum(cpu for cpu, _ in told)}
    facts["lasted_s"] = {"lives": sum(wall for _, wall in told)}
    say("done", threads=[facts], children=len(told))


if __name__ == "__main__":
    way, life, last = sys.argv[1:]
    if way == "lives":
        child(float(life), int(last))
    ready()
    command()
    bears(globals()[way], float(life), float(last))
    command()
