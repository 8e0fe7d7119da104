"""What the targets share: one JSON object a line on stdout, commands a line on stdin."""
import json
import os
import sys
import threading
import time


def say(event, **facts):
    facts["event"] = event
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def ready(**facts):
    say("ready", pid=os.getpid(), version=list(sys.version_info[:3]), **facts)


def command():
    """The next line of stdin, or None when it was closed."""
    line = sys.stdin.readline()
    return line.strip() if line else None


def kept_waiting():
    """For how long this thread could have run and had no CPU, by the kernel, at the most.

    From 6.12 on, a sleeper that the kernel has not yet taken off its queue counts as well.
    """
    with open("/proc/thread-self/schedstat") as stat:
        return int(stat.read().split()[1]) / 1e9


def account(name):
    """This thread's CPU time, by its own clock and by the kernel's ticks."""
    tid = threading.get_native_id()
    with open("/proc/self/task/%d/stat" % tid) as stat:
        fields = stat.read().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return {
        "name": name,
        "tid": tid,
        "ident": threading.get_ident(),
        "cpu_s": time.thread_time(),
        "stat_s": ticks / os.sysconf("SC_CLK_TCK"),
        "runnable_s": kept_waiting(),
    }


def work(seconds):
    """Python alone, for so long on a CPU."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


# A piece that takes this much longer than its neighbours was not interrupted: the whole machine was
# stopped, or something else had its CPU.
NOT_AN_INTERRUPTION_NS = 200000


def in_pieces(piece, count):
    """Do a piece of work of some ten microseconds so often; by what share it was made longer: on the
    CPU by interruptions, and by the wall clock by all that kept it from running.

    How fast a CPU is drifts by more than they take. But neighbours drift alike: what a piece takes
    beyond the middle one of its neighbours was taken from it.
    """
    cpu, wall = time.thread_time_ns, time.perf_counter_ns
    on_cpu, in_all = [], []
    cpu_before, wall_before = cpu(), wall()
    for _ in range(count):
        piece()
        cpu_now, wall_now = cpu(), wall()
        on_cpu.append(cpu_now - cpu_before)
        in_all.append(wall_now - wall_before)
        cpu_before, wall_before = cpu_now, wall_now
    return beyond_neighbours(on_cpu, NOT_AN_INTERRUPTION_NS), beyond_neighbours(in_all, float("inf"))


def beyond_neighbours(took, most):
    """What values have beyond the middle one of their neighbours, of all; what is more is left out."""
    usual = lost = 0
    for start in range(0, len(took), 300):
        neighbours = sorted(took[start : start + 300])
        middle = neighbours[len(neighbours) // 2]
        usual += middle * len(neighbours)
        lost += sum(each - middle for each in neighbours if each - middle < most)
    return lost / usual if usual else 0.0


# What each name was given on a CPU, by `Spending`.
SPENT = {}


class Spending:
    """What is spent on a CPU while this is open goes to its name; nothing switches meanwhile."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.begin = time.thread_time()

    def __exit__(self, *what):
        spent = time.thread_time() - self.begin
        SPENT[self.name] = SPENT.get(self.name, 0.0) + spent


# What each name took by the wall clock, by `Taking`.
LASTED = {}
keeping = threading.Lock()


class Taking:
    """What is spent while this is open goes to its name, by both clocks; several threads may."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.wall, self.cpu = time.perf_counter(), time.thread_time()

    def __exit__(self, *what):
        cpu, wall = time.thread_time() - self.cpu, time.perf_counter() - self.wall
        with keeping:
            SPENT[self.name] = SPENT.get(self.name, 0.0) + cpu
            LASTED[self.name] = LASTED.get(self.name, 0.0) + wall


def by_turns(functions, seconds):
    """Calls each of them in turn, again and again, and keeps what each took."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for function in functions:
            with Taking(function.__name__):
                function()


def tell_shares(worker, **facts):
    """All that a target does whose one thread keeps what is spent."""
    ready(**facts)
    command()
    worker.start()
    worker.join()
    done_shares(worker)


def done_shares(worker):
    worker.account["spent_s"], worker.account["lasted_s"] = SPENT, LASTED
    say("done", threads=accounts_of([worker]))
    command()


class Worker(threading.Thread):
    """A thread that runs one function and leaves its account.

    `wall_s` is the function's time; the thread lived longer than that, and less than `life_s`.
    """

    def __init__(self, body, *args):
        super().__init__(name=body.__name__)
        self.body, self.args, self.account, self.spent = body, args, None, {}

    def start(self):
        self.born = time.perf_counter()
        super().start()

    def run(self):
        begin = time.perf_counter()
        self.body(*self.args)
        # First: what it is kept waiting from here on is beyond the kernel's number below.
        wall = time.perf_counter() - begin
        self.account = account(self.body.__name__)
        self.account["wall_s"] = wall
        self.account["spent_s"] = self.spent

    def spend(self, on, function, *args):
        """Calls the function and keeps, under a name, for how long it was not on a CPU."""
        ran, wall = time.thread_time(), time.perf_counter()
        function(*args)
        wall, ran = time.perf_counter() - wall, time.thread_time() - ran
        self.spent[on] = self.spent.get(on, 0.0) + wall - ran


def accounts_of(workers):
    """The accounts of threads that were joined, once the kernel has seen the last of them."""
    for worker in workers:
        while os.path.exists("/proc/self/task/%d" % worker.account["tid"]):
            time.sleep(0.001)
        worker.account["life_s"] = time.perf_counter() - worker.born
    return [worker.account for worker in workers]
