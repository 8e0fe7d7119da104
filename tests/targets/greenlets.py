"""Greenlets that spend a known time on a CPU, or none, and say so; of gevent too.

usage: greenlets.py PACKAGES still                  suspended in known places, in two threads
       greenlets.py PACKAGES turns SECONDS          plain ones that take turns
       greenlets.py PACKAGES server CLIENTS SECONDS gevent: a server on loopback, and its clients

PACKAGES is a folder that has greenlet and gevent; SECONDS are of the thread's CPU. At the end each
greenlet's time by the thread's clock is told, by the name under which a profile should have it, and
what all of the thread's was.
"""
import sys
import threading
import time

sys.path.insert(0, sys.argv[1])
import greenlet

from truth import SPENT, Spending, account, command, ready, say, work


class Derived(greenlet.greenlet):
    pass


def waits(back, depth):
    if depth:
        return waits(back, depth - 1)
    # By way of a function of C.
    return sorted([back], key=switches)


def switches(back):
    back.switch()
    return 0


def first(back, depth):
    waits(back, depth)


def parks(told, back, others):
    told.append(facts_of(back, others))
    began.release()
    stopped.wait()
    back.switch()


def facts_of(back, others):
    facts = []
    for other in others + [back]:
        frame, chain = other.gr_frame, []
        while frame is not None:
            code = frame.f_code
            chain.append([getattr(code, "co_qualname", code.co_name), frame.f_lineno])
            frame = frame.f_back
        facts.append(
            {
                "name": getattr(other, "name", None),
                "kind": "main_greenlet" if other is back else "greenlet",
                "state": "waiting" if other else "runnable",
                "chain": chain,
                "tid": threading.get_native_id(),
            }
        )
    return facts


began, stopped = threading.Semaphore(0), threading.Event()


def still_ones(tag, told):
    back = greenlet.getcurrent()
    alive = [kind(first) for kind in (greenlet.greenlet, Derived, greenlet.greenlet)]
    alive[0].name = "named " + tag
    for depth, one in enumerate(alive):
        one.switch(back, depth)
    alive.append(greenlet.greenlet(first))
    over = greenlet.greenlet(work)
    over.switch(0)
    running = greenlet.greenlet(parks)
    running.switch(told, back, alive)


def still():
    told = []
    threads = [
        threading.Thread(target=still_ones, args=(tag, told)) for tag in ("a", "b")
    ]
    for thread in threads:
        thread.start()
        began.acquire()
    ready(greenlets=sum(told, []))
    command()
    stopped.set()
    for thread in threads:
        thread.join()
    say("running")
    command()
    say("done", threads=[account("main")])


def of_heavy(seconds):
    work(seconds)


def of_light(seconds):
    work(seconds)


def takes_turns(back, name, function, seconds):
    while True:
        with Spending(name):
            function(seconds)
        back.switch()


def turns(seconds):
    back = greenlet.getcurrent()
    heavy = greenlet.greenlet(takes_turns)
    light = greenlet.greenlet(takes_turns)
    heavy.name, light.name = "heavy", "light"
    heavy.switch(back, "heavy", of_heavy, 0.004)
    light.switch(back, "light", of_light, 0.002)
    SPENT.clear()
    ready_to_go()
    until = time.thread_time() + float(seconds)
    while time.thread_time() < until:
        heavy.switch()
        light.switch()
        # It is its thread, and no task.
        with Spending("main"):
            work(0.001)
        passing = greenlet.greenlet(passes)
        passing.switch()
    say_done()


def passes():
    with Spending("passes"):
        work(0.001)


def server(clients, seconds):
    import gevent
    import gevent.event
    import gevent.pool
    import gevent.server
    import gevent.socket

    sizes = [0.0004, 0.0008, 0.0012]

    def answers(kind):
        def handle(connection, address):
            gevent.getcurrent().name = "serves %d" % kind
            name = gevent.getcurrent().name
            while connection.recv(1):
                with Spending(name):
                    work(sizes[kind])
                connection.sendall(b"x")

        return handle

    pool = gevent.pool.Pool()
    servers = []
    for kind in range(len(sizes)):
        listening = gevent.server.StreamServer(
            ("127.0.0.1", 0), answers(kind), spawn=pool
        )
        listening.start()
        servers.append(listening)
    until = []

    def asks(kind):
        connection = gevent.socket.create_connection(
            ("127.0.0.1", servers[kind].server_port)
        )
        while not until or time.thread_time() < until[0]:
            connection.sendall(b"x")
            connection.recv(1)
            if not until:
                begin.wait()
        connection.close()

    begin = gevent.event.Event()
    asking = [gevent.spawn(asks, number % len(sizes)) for number in range(int(clients))]
    for one in asking:
        one.name = "asks"
    # All connections are there, and each has its greenlet.
    while len(pool) < len(asking):
        gevent.sleep(0.001)
    gevent.sleep(0)
    SPENT.clear()
    ready_to_go()
    until.append(time.thread_time() + float(seconds))
    begin.set()
    gevent.joinall(asking)
    say_done(clients=len(asking))


def ready_to_go():
    ready()
    command()
    SPENT["all"] = -time.thread_time()


def say_done(**more):
    SPENT["all"] += time.thread_time()
    say("done", threads=[account("main")], spent=SPENT, **more)
    command()


if __name__ == "__main__":
    globals()[sys.argv[2]](*sys.argv[3:])
