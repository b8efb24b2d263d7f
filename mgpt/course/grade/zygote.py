"""A warm process that forks a confined child for each submission: `python -m mgpt.course.grade.zygote FD` (Linux).

It runs from a copy of the course without checks, solutions and the functions asked for, so a child has nothing to find.
On the control socket FD: first the house's description, answered by the layers in force; then
`{"fork": true}` with the child's channel, answered by `{}`, and `{"stop": true}`, after which nothing of the child
lives.
"""

import gc
import importlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys

import numpy as np

from mgpt.course.grade import syscalls
from mgpt.course.grade.layers import LAYERS, Limits
from mgpt.course.grade.sandbox import House, LayerFailed, address_space, confine, furnish, open_namespaces
from mgpt.course.runner import make_shell, serve

MESSAGE = 1 << 20
LAZY = "wave"  # a module nobody has loaded yet: can a child still import?


def main(control):
    """Serve one grader until its end of the control socket is closed."""
    os.environ["IPYTHONDIR"] = "/nonexistent"
    told = json.loads(control.recv(MESSAGE))
    house = House(told["box"], told["readable"], told["listable"], Limits(**told["limits"]))
    if told["sandbox"]:
        open_namespaces(house)
        keeper = os.fork()  # the next process is number 1 of the new PID namespace
        if keeper:
            control.close()
            os.waitpid(keeper, 0)
            os._exit(0)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)  # a keeper that is killed takes all with it
    shell = _warm()
    if told["sandbox"]:
        furnish(house, told["empty"])
    else:
        house.layers.update(dict.fromkeys(LAYERS[2:], "not asked for"))
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    house.held = address_space() if os.path.exists("/proc/self/statm") else house.held
    seen = _probe(house, told["hidden"])
    control.send(json.dumps({"layers": house.layers, "own_cpu": _own_cpu(), **seen}).encode())
    gc.collect()
    gc.freeze()  # what is warm stays shared: the collector of a child does not touch it
    _loop(control, house, shell)


def _warm():
    """The shell, with what its first cells would load; the learner's names are empty, chance is fixed."""
    from mgpt.course import check, hint, progress  # noqa: F401  (what the first cell of an exercise imports)

    for lazy in ("IPython.core.magics", "numpy.random", "math", "statistics", "collections", "itertools", "functools",
                 "fractions", "decimal", "dataclasses", "typing", "copy", "time"):
        importlib.import_module(lazy)
    shell = make_shell()
    for source in ("warm = 1\nwarm", "%time warm = 2", "raise ValueError('warm')", "def warm(:"):
        shell.run_cell(source, store_history=False)
    shell.reset(new_session=False)
    random.seed(0)
    np.random.seed(0)
    return shell


def _probe(house, hidden):
    """Fork children that only look around, until one can be closed in; layers that fail are struck out."""
    while True:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            try:
                confine(house, os.getppid())
                report = {"seen": _look_around(hidden)}
            except LayerFailed as failed:
                report = {"failed": list(failed.args)}
            except BaseException as error:
                report = {"failed": ["session", f"{type(error).__name__}: {error}"]}
            os.write(writing, json.dumps(report).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            report = json.loads(pipe.read() or b'{"failed": ["session", "the probe died"]}')
        _sweep(house, pid)
        if "failed" in report:
            layer, reason = report["failed"]
            if house.layers.get(layer) is not None:
                raise RuntimeError(f"the sandbox cannot be built: {layer}: {reason}")
            house.layers[layer] = reason
            continue
        if report["seen"].pop("imports") is False and house.uid is not None:
            house.uid = None
            house.layers["uid"] = "an unprivileged user cannot read this Python"
            continue
        for layer in ("session", "rlimits", "uid"):
            house.layers.setdefault(layer, None)
        return report["seen"]


def _look_around(hidden):
    files = True
    for path in hidden:
        try:
            os.listdir(path) if os.path.isdir(path) else open(path).close()
            files = False
        except OSError:
            pass
    try:
        with socket.socket() as probe:
            probe.settimeout(2)
            probe.connect(("127.0.0.1", 9))
        network = False
    except ConnectionRefusedError:
        network = False
    except OSError:
        network = True
    try:
        importlib.import_module(LAZY)
        imports = True
    except ImportError:
        imports = False
    return {"hides_files": files, "hides_network": network, "imports": imports}


def _loop(control, house, shell):
    child = None
    while True:
        data, received, _, _ = socket.recv_fds(control, MESSAGE, 1)
        if not data:
            break
        request, reply = json.loads(data), {}
        if "fork" in request:
            channel = received[0]
            child = os.fork()
            if child == 0:
                _child(house, channel, control, shell)
            os.close(channel)
        else:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            _sweep(house, child)
            child, after = None, resource.getrusage(resource.RUSAGE_CHILDREN)
            reply = {"cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "own_cpu": _own_cpu()}
        control.send(json.dumps(reply).encode())
    _sweep(house, child)


def _own_cpu():
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def _child(house, channel, control, shell):
    """The forked process: closed in, then the learner's until its channel closes.  Never returns."""
    try:
        control.close()
        parent = os.getppid()
        os.dup2(channel, 3)
        os.closerange(4, house.ruleset or 4)
        if house.ruleset:
            os.closerange(house.ruleset + 1, 256)
        confine(house, parent)
        if house.ruleset:
            os.close(house.ruleset)
        serve(3, 3, shell)
    except BaseException:
        os._exit(70)
    os._exit(0)


def _sweep(house, child):
    """Kill what is left of a submission: in a PID namespace everybody else, otherwise the child and its descendants."""
    while True:
        if house.has("pid"):
            _kill(-1)
        else:
            for pid in _children() | ({child} if child else set()):
                _kill(pid)
            child = None  # its number may soon be another's
        try:
            os.waitpid(-1, 0)  # one at a time: orphans of what has just died become ours and are killed next
        except ChildProcessError:
            break
    if not house.has("mount"):
        shutil.rmtree(f"{house.box}/home", ignore_errors=True)


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _children():
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as listed:
            return {int(pid) for pid in listed.read().split()}
    except OSError:
        return set()


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
