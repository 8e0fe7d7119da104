"""A small shop that is busy for some seconds: something to profile, Python 3.8 and later.

Its threads do what services do: read orders (JSON) and check them (regular expressions), rank
products (a sort with a key function), plan routes (recursion), archive the day (zlib, which lets
the GIL go) and report now and then (sleep).

usage: workload.py [SECONDS]
"""
import itertools
import json
import random
import re
import sys
import threading
import time
import zlib

EMAIL = re.compile(r"(?:\w+\.)*\w+@(?:\w+\.)+[a-z]{2,}")
POSTCODE = re.compile(r"\d{4,5}[ -]?[A-Z]{2}|\d{5}(?:-\d{4})?")
WORD = re.compile(r"\w+")

CITIES = ["Aarhus", "Bergen", "Cork", "Delft", "Espoo", "Faro", "Ghent"]


class Shop:
    """What the threads share; `closing` is the time at which they go home."""

    def __init__(self, seconds, chance):
        self.closing = time.monotonic() + seconds
        self.orders = [make_order(chance, number) for number in range(400)]
        self.distances = {
            pair: chance.randint(50, 900) for pair in itertools.permutations(CITIES, 2)
        }
        self.done = {}

    def is_open(self):
        return time.monotonic() < self.closing

    def count(self, what, how_many):
        self.done[what] = self.done.get(what, 0) + how_many


def make_order(chance, number):
    """One order as it comes over the wire."""
    lines = [
        {
            "product": chance.choice(["lamp", "chair", "desk", "shelf", "rug"]),
            "pieces": chance.randint(1, 9),
            "price": round(chance.uniform(5, 500), 2),
            "note": "to be left with the neighbours, please ring twice " * chance.randint(1, 3),
        }
        for _ in range(chance.randint(2, 12))
    ]
    customer = {"email": "anna.maria.%d@mail.example.org" % number, "postcode": "12345-6789"}
    return json.dumps({"number": number, "customer": customer, "lines": lines})


# Thread `orders`: read and check.


def take_orders(shop):
    while shop.is_open():
        for text in shop.orders:
            order = read_order(text)
            shop.count("orders", is_valid(order))


def read_order(text):
    order = json.loads(text)
    order["total"] = sum(line["pieces"] * line["price"] for line in order["lines"])
    return order


def is_valid(order):
    return check_customer(order["customer"]) and all(check_note(line) for line in order["lines"])


def check_customer(customer):
    email, postcode = customer["email"], customer["postcode"]
    return EMAIL.fullmatch(email) is not None and POSTCODE.fullmatch(postcode) is not None


def check_note(line):
    return len(WORD.findall(line["note"])) < 100


# Thread `ranking`: sort with a key.


def rank_products(shop):
    orders = [read_order(text) for text in shop.orders]
    while shop.is_open():
        lines = [line for order in orders for line in order["lines"]]
        lines.sort(key=attractiveness, reverse=True)
        shop.count("rankings", 1)


def attractiveness(line):
    popularity = line["pieces"] / (1 + len(line["note"]) % 7)
    return popularity * discounted(line["price"])


def discounted(price):
    return price * 0.9 if price > 100 else price


# Thread `routes`: recursion.


def plan_routes(shop):
    while shop.is_open():
        for start in CITIES:
            rest = frozenset(CITIES) - {start}
            shop.count("routes", shortest_route(shop.distances, start, rest) > 0)


def shortest_route(distances, here, rest):
    """The length of the shortest way through all cities of `rest`."""
    if not rest:
        return 0
    shortest = float("inf")
    for there in rest:
        length = distances[here, there] + shortest_route(distances, there, rest - {there})
        shortest = min(shortest, length)
    return shortest


# Thread `archive`: compression, in C and without the GIL.


def archive_the_day(shop):
    day = "\n".join(shop.orders * 4).encode()
    while shop.is_open():
        shop.count("megabytes archived", len(zlib.compress(day, 9)) and len(day) / 1e6)


# Thread `report`: it sleeps, and has no samples worth seeing.


def report(shop):
    while shop.is_open():
        time.sleep(0.25)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 8.0
    shop = Shop(seconds, random.Random(7))
    threads = [
        threading.Thread(target=work, args=[shop], name=name)
        for name, work in [
            ("orders", take_orders),
            ("ranking", rank_products),
            ("routes", plan_routes),
            ("archive", archive_the_day),
            ("report", report),
        ]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = ["%d %s" % (how_many, what) for what, how_many in sorted(shop.done.items())]
    print("workload: " + ", ".join(done))


if __name__ == "__main__":
    main()
