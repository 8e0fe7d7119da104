"""A web service of Django behind waitress, under load: each handler says what it took.

usage: web_service.py PACKAGES SECONDS           serves for so many seconds
       web_service.py load PORT SECONDS          asks it, from a process of its own

PACKAGES is a folder that has both.
"""
import hashlib
import http.client
import json
import logging
import os
import subprocess
import sys
import threading
import time

from truth import LASTED, SPENT, Taking, account, command, ready, say

PATHS = ["/page", "/search?words=item+7", "/api", "/login"]
CLIENTS = 3
ROWS = 200


def asks(port, until):
    connection, number = http.client.HTTPConnection("127.0.0.1", port), 0
    while time.perf_counter() < until:
        connection.request("GET", PATHS[number % len(PATHS)])
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read(), answer.status
        number += 1


def load(port, seconds):
    until = time.perf_counter() + seconds
    clients = [threading.Thread(target=asks, args=(port, until)) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


if sys.argv[1] == "load":
    load(int(sys.argv[2]), float(sys.argv[3]))
    sys.exit()

sys.path.insert(0, sys.argv[1])
import django
from django.conf import settings
from django.db import connection as database
from django.http import HttpResponse, JsonResponse
from django.template import engines
from django.urls import path
import waitress

# Goes with the script's folder.
ITEMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "items")
settings.configure(
    SECRET_KEY="none",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ITEMS}},
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
)
django.setup()


def rows():
    with database.cursor() as cursor:
        cursor.execute("select name, price from items")
        return cursor.fetchall()


PAGE = engines["django"].from_string(
    "<ul>{% for name, price in items %}<li>{{ name|upper }}: {{ price|floatformat:2 }}</li>{% endfor %}</ul>"
)


def page(request):
    return HttpResponse(PAGE.render({"items": rows()}))


def search(request):
    words, found = request.GET["words"].split(), []
    for name, _ in rows():
        grams = {name[at:at + 2] for at in range(len(name))}
        found.append((sum(word in name or word[:2] in grams for word in words), name))
    return JsonResponse({"found": sorted(found)[-5:]})


def api(request):
    items = [{"name": name, "price": price, "taxed": round(price * 1.19, 2)} for name, price in rows()]
    return HttpResponse(json.dumps(items), content_type="application/json")


def login(request):
    return HttpResponse(hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 6000).hex())


def measured(handler):
    def answers(request):
        with Taking(handler.__name__):
            return handler(request)
    return answers


urlpatterns = [path(handler.__name__, measured(handler)) for handler in (page, search, api, login)]


def fills():
    with database.cursor() as cursor:
        cursor.execute("create table items (name, price)")
        for number in range(ROWS):
            cursor.execute("insert into items values (%s, %s)", ["item %d" % number, number * 1.3])
    database.close()


def serves(seconds):
    from django.core.wsgi import get_wsgi_application

    logging.getLogger("waitress").setLevel(logging.ERROR)
    server = waitress.create_server(get_wsgi_application(), host="127.0.0.1", port=0, threads=4)
    threading.Thread(target=server.run, daemon=True).start()
    port = server.effective_port
    words = [sys.executable, os.path.abspath(__file__), "load", str(port)]
    # What is imported with the first answer is not to be measured.
    subprocess.run(words + ["0.2"], check=True)
    SPENT.clear(), LASTED.clear()
    ready()
    command()
    subprocess.run(words + [str(seconds)], check=True)
    facts = account("serves")
    facts["spent_s"], facts["lasted_s"] = SPENT, LASTED
    say("done", threads=[facts])
    command()


if __name__ == "__main__":
    fills()
    serves(float(sys.argv[2]))
    os._exit(0)
