"""The child process that runs a learner's cells: `python -m mgpt.course.runner`.

Requests and replies are JSON, one a line.  The channel is a private copy of stdin and stdout; what the learner's
code prints or reads goes to the null device.  The child knows no check and no expected value.

  {"cell": source}                        -> {} or {"raised": "SyntaxError: …"}
  {"call": name, "args": […] | null}      -> {"value": …} | {"raised": …} | {"blank": true}   (null: the variable itself)
"""

import copy
import json
import os
import sys
import tempfile


def _private_channel():
    requests, replies = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    return requests, replies


def _shell(folder):
    os.environ["IPYTHONDIR"] = folder
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    return InteractiveShell.instance(config=config)


def _call(name, args, space):
    from mgpt.course.notebook import raised
    from mgpt.course.plain import NotPlain, agrees, plain
    from mgpt.text import _

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
    except (Exception, SystemExit) as error:
        return {"raised": raised(error)}
    return {"value": value} if agrees(given, args, 0.0) else {"raised": _("it changed its arguments; work on a copy")}


def main():
    requests, replies = _private_channel()
    with tempfile.TemporaryDirectory() as folder:
        shell = _shell(folder)
        for line in requests:
            request = json.loads(line)
            if "cell" in request:
                result = shell.run_cell(request["cell"], store_history=False)
                error = result.error_before_exec or result.error_in_exec
                reply = {"raised": f"{type(error).__name__}: {error}"} if error else {}
            else:
                reply = _call(request["call"], request["args"], shell.user_ns)
            replies.write(json.dumps(reply) + "\n")
            replies.flush()


if __name__ == "__main__":
    sys.exit(main())
