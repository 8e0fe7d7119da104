"""Programs that speeds are often measured with, each in a few lines; one thread runs them by turns.

usage: classics.py numbers|objects|texts SECONDS

numbers  planets that attract each other, and the norm of an endless matrix
objects  a machine that interprets its own code, and a network of constraints
texts    JSON there and back, and words that are counted

Who calls whom is known.
"""
import json
import sys

from truth import Worker, by_turns, tell_shares


class Body:
    def __init__(self, place, speed, mass):
        self.place, self.speed, self.mass = place, speed, mass


bodies = [Body([n * 1.7, n * n * 0.3, 5.0 - n], [0.1 * n, 0.2, 0.01 * n], 1.0 + n) for n in range(5)]


def attracts(one, other, step):
    x, y, z = [one.place[0] - other.place[0], one.place[1] - other.place[1], one.place[2] - other.place[2]]
    size = step / (x * x + y * y + z * z + 0.01) ** 1.5
    for axis, distance in enumerate((x, y, z)):
        one.speed[axis] -= distance * other.mass * size
        other.speed[axis] += distance * one.mass * size


def moves(body, step):
    for axis in range(3):
        body.place[axis] += step * body.speed[axis]


def planets():
    for _ in range(100):
        for n, one in enumerate(bodies):
            for other in bodies[n + 1:]:
                attracts(one, other, 0.001)
        for body in bodies:
            moves(body, 0.001)


def cell(row, column):
    return 1.0 / ((row + column) * (row + column + 1) // 2 + row + 1)


def times(vector):
    product = []
    for row in range(len(vector)):
        total = 0.0
        for column, value in enumerate(vector):
            total += cell(row, column) * value
        product.append(total)
    return product


def norm():
    vector = [1.0] * 60
    for _ in range(4):
        vector = times(vector)


# Counts down from the first number, and adds up.
CODE = ["op_push", "op_load", "op_add", "op_store", "op_down", "op_again"]


class Machine:
    def begins(self, count):
        self.stack, self.total, self.left, self.at = [], 0, count, 0

    def op_push(self):
        self.stack.append(self.left)

    def op_load(self):
        self.stack.append(self.total)

    def op_add(self):
        self.stack.append(self.stack.pop() + self.stack.pop())

    def op_store(self):
        self.total = self.stack.pop()

    def op_down(self):
        self.left -= 1

    def op_again(self):
        if self.left:
            self.at = -1


def interprets():
    machine = Machine()
    machine.begins(1200)
    operations = {}
    for word in CODE:
        operations[word] = getattr(machine, word)
    while machine.at < len(CODE):
        operations[CODE[machine.at]]()
        machine.at += 1


class Variable:
    def __init__(self, value):
        self.value, self.followers = value, []

    def becomes(self, value):
        self.value = value
        for follower in self.followers:
            follower.holds()


class Sum:
    def __init__(self, one, other, result):
        self.one, self.other, self.result = one, other, result
        one.followers.append(self)

    def holds(self):
        self.result.becomes(self.one.value + self.other.value)


chain = [Variable(n) for n in range(40)]
for n in range(39):
    Sum(chain[n], Variable(1), chain[n + 1])


def constrains():
    for value in range(40):
        chain[0].becomes(value)


document = {"orders": [{"id": n, "name": "item %d" % n, "price": n / 7, "tags": ["a", "b"]} for n in range(150)]}


def there_and_back():
    for _ in range(5):
        json.loads(json.dumps(document))


text = "the quick brown fox jumps over the lazy dog and the dog does not mind it " * 150


def counts_words():
    counts = {}
    for _ in range(3):
        for word in text.split():
            counts[word] = counts.get(word, 0) + 1


PROGRAMS = {
    "numbers": ([planets, norm],
                [["planets", "attracts"], ["planets", "moves"], ["norm", "times"], ["times", "cell"]]),
    "objects": ([interprets, constrains],
                [["interprets", "begins"]] + [["interprets", word] for word in CODE]
                + [["constrains", "becomes"], ["becomes", "holds"], ["holds", "becomes"]]),
    "texts": ([there_and_back, counts_words], []),
}


if __name__ == "__main__":
    programs, pairs = PROGRAMS[sys.argv[1]]
    tell_shares(Worker(by_turns, programs, float(sys.argv[2])), pairs=[["run", "by_turns"]] + pairs)
