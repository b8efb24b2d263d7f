"""Submissions on a Dask cluster: bytes out, JSON back; every worker runs the same sandbox.  Needs the extra `dask`."""

import dataclasses
import functools
import json
import threading

from mgpt.course.grade.batch import Nurseries, Walls, layers_text, timed
from mgpt.course.grade.grading import Member, Options
from mgpt.course.grade.layers import Limits
from mgpt.course.questions import stems

AHEAD = 4  # submissions under way for each thread of the cluster, so that memory does not grow with their number


def results(address, todo, options, walls, log_layers):
    """(report, seconds, CPU seconds) of each loaded member, as they are done.

    A submission whose worker dies is graded by another.  ValueError where nothing answers at the address or a worker
    lacks what `walls` asks for.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ValueError("--scheduler needs Dask: pip install 'mgpt[dask]'") from None
    told = json.dumps({"options": dataclasses.asdict(options), "walls": dataclasses.asdict(walls)})
    try:
        client = Client(address, timeout=20, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ValueError(f"--scheduler: no Dask scheduler answers at {address} ({type(error).__name__})") from None
    with client:
        workers = client.run(look_around, told)
        if not workers:
            raise ValueError(f"--scheduler: {address} has no workers; start some with `dask worker {address}`")
        for where in sorted(workers):
            if workers[where].get("refused"):
                raise ValueError(f"worker {where}: {workers[where]['refused']}")
            log_layers(where, workers[where]["layers"])
        free = AHEAD * max(1, sum(client.nthreads().values()))
        running = as_completed(loop=client.loop)
        for member in todo:
            if free == 0:
                yield _result(next(running))
                free += 1
            running.add(client.submit(grade_there, _packed(member), told, pure=False, retries=10))
            free -= 1
        for future in running:
            yield _result(future)


def _result(future):
    report, seconds, cpu = json.loads(future.result())
    return report, seconds, cpu


def _packed(member):
    """A loaded member as two parts: what is JSON, and its bytes."""
    known = {name: value for name, value in dataclasses.asdict(member).items() if name not in ("data", "path")}
    return json.dumps(known), member.data


def grade_there(packed, told):
    """Grade one submission on a worker; JSON text comes back."""
    known, data = packed
    nurseries = _nurseries(told, threading.get_ident())
    return json.dumps(timed(Member(**json.loads(known), data=data), _options(told), nurseries))


def look_around(told):
    """The layers of this worker, or why it may not grade."""
    try:
        with _new_nurseries(told) as nurseries:
            return {"layers": layers_text(nurseries.of(stems()[0]))}
    except ValueError as error:
        return {"refused": str(error)}


@functools.lru_cache(64)
def _nurseries(told, thread):
    """The warm processes of one thread of this worker; they end with it."""
    return _new_nurseries(told)


def _new_nurseries(told):
    walls = json.loads(told)["walls"]
    return Nurseries(_options(told), Walls(tuple(walls["required"]), walls["unsandboxed"]))


def _options(told):
    options = json.loads(told)["options"]
    return Options(**{**options, "limits": Limits(**options["limits"])})


