"""The loop that runs a learner's cells and calls, in a process that knows no check and no expected value.

Requests and replies are JSON, one a line; what the learner's code prints or reads goes to the null device.
Where no zygote can fork (not on Linux): `python -m mgpt.course.runner`.

  {"n": 1, "cell": source}                        -> [1, {}] or [1, {"raised": "SyntaxError: …"}]
  {"n": 2, "call": name, "args": […] | null}      -> [2, {"value": …}] or {"raised": …} or {"blank": true}
                                                     (args null: the variable itself)
A reply has "spent" where memory ran out, and "left" where a cell left threads or processes behind.
"""

import copy
import json
import os
import sys
import tempfile
import threading

from mgpt.course.notebook import raised
from mgpt.course.plain import MAX_BYTES, NotPlain, agrees, plain
from mgpt.text import _


def make_shell():
    """An IPython shell without history, terminal or files of its own."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    shell.system = shell.system_raw  # `!command` without a terminal
    return shell


def serve(reading, writing, shell):
    """Answer requests from one descriptor on another until the first is closed."""
    me = os.getpid()
    with os.fdopen(reading, "rb", closefd=False) as requests:
        for line in requests:
            request = json.loads(line)
            try:
                reply = _run(request["cell"], shell) if "cell" in request else _call(request, shell.user_ns)
                text = json.dumps(reply)
                if len(text) > MAX_BYTES:
                    text = json.dumps({"raised": _("the value is too large ({size} bytes)").format(size=len(text))})
            except MemoryError:
                text = json.dumps({"raised": _("it used more memory than it may"), "spent": True})
            except (ValueError, RecursionError) as error:
                text = json.dumps({"raised": _one_line(error)})
            if os.getpid() != me:  # a fork of the learner's went on as if it were us
                os._exit(0)
            data = f"[{request['n']}, {text}]\n".encode()
            while data:
                data = data[os.write(writing, data):]


def _run(source, shell):
    result = shell.run_cell(source, store_history=False)
    error = result.error_before_exec or result.error_in_exec
    if isinstance(error, MemoryError):
        raise error
    reply = {"raised": _one_line(error, "{type}: {text}")} if error else {}
    return {**reply, "left": True} if threading.active_count() > 1 or _has_children() else reply


def _one_line(error, form=None):
    try:
        return raised(error) if form is None else form.format(type=type(error).__name__, text=" ".join(
            str(error).split())[:300])
    except Exception:  # its own __str__ fails
        return type(error).__name__


def _has_children():
    try:
        os.waitpid(-1, os.WNOHANG)
        return True
    except (OSError, AttributeError):
        return False


def _call(request, space):
    name, args = request["call"], request["args"]
    if name not in space:
        return {"raised": _("{name} is not defined").format(name=name)}
    answer = space[name]
    if answer is Ellipsis or answer is None:
        return {"blank": True}
    try:
        if args is None:
            return {"value": plain(answer)}
        if not callable(answer):
            return {"raised": _("{name} must be a function").format(name=name)}
        given = copy.deepcopy(args)
        value = plain(answer(*given))
    except NotImplementedError:
        return {"blank": True}
    except NotPlain as error:
        return {"raised": str(error)}
    except MemoryError:
        raise
    except BaseException as error:  # KeyboardInterrupt and SystemExit are the learner's too
        return {"raised": _one_line(error)}
    return {"value": value} if agrees(given, args, 0.0) else {"raised": _("it changed its arguments; work on a copy")}


def main():
    reading, writing = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYTHONDIR"] = folder
        serve(reading, writing, make_shell())


if __name__ == "__main__":
    sys.exit(main())
