"""Three small traces that differ in what matters: chat, an offline batch, long documents.

Seeded and made of whole numbers: the same seed gives the same requests on every Python.  Arrivals are milliseconds.
They are drawn for teaching and resemble no measured traffic.
"""

import random

from mgpt.timeline import Request
from mgpt.validate import integer, one_of

WORKLOADS = ("chat", "batch", "documents")


def workload(name, n=100, seed=1):
    """n Requests, in order of arrival.

    "chat": arrivals at random; a common system prompt of 512 positions, then what the user wrote; one in ten pastes a
    long text; short answers.  "batch": all there at 0, nothing in common, outputs very unequal.  "documents": long
    prompts; about every second one asks about the document of the request before it.
    ValueError: another name, n or seed no integer >= 0.
    """
    one_of("name", name, WORKLOADS)
    rng = random.Random(f"{name} {integer('seed', seed)}")
    return {"chat": _chat, "batch": _batch, "documents": _documents}[name](rng, integer("n", n))


def _chat(rng, n):
    requests, arrival = [], 0
    for i in range(n):
        arrival += round(rng.expovariate(1 / 175))
        user = rng.randrange(1500, 3000) if rng.random() < 0.1 else rng.randrange(40, 400)
        requests.append(Request(i, arrival, 512 + user, rng.randrange(12, 49), "system prompt", 512))
    return requests


def _batch(rng, n):
    return [Request(i, 0, rng.randrange(100, 900), rng.choice((4, 8, 16, 96)) + rng.randrange(4)) for i in range(n)]


def _documents(rng, n):
    requests, arrival, document = [], 0, None
    for i in range(n):
        arrival += round(rng.expovariate(1 / 1400))
        if document is None or rng.random() < 0.5:
            document = (f"document {i}", rng.randrange(3000, 12_000))
        requests.append(Request(i, arrival, document[1] + rng.randrange(30, 100), rng.randrange(20, 80), *document))
    return requests
