"""Hostile, broken and ordinary submissions: each gets what it is worth, or is refused with a reason.

Each case is written over the released notebook and names the questions that lose their points.  All are graded by one
zygote, one after the other, so that what one does to another shows as well.
"""

import json
import socket
import sys
import threading
from contextlib import suppress

import pytest

from mgpt.course.grade.grading import Member, Options, grade, learner_view
from mgpt.course.grade.layers import Limits
from mgpt.course.grade.zygotes import Zygote
from mgpt.course.questions import find
from mgpt.course.workbench import Interpreter
from submissions import (ALL, BLANK, POINTS, ROOT, SOLUTION, STEM, WRONG, all_wrong, answer, before, blank, cell_of,
                         data, extra, functions, grade_id, solved)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
LIMITS = Limits(memory=512, cpu=30, file_size=64)
OPTIONS = Options(seed="corpus", timeout=1.5, limits=LIMITS)
FUNCTIONS = tuple(WRONG)
EVERYTHING = tuple(POINTS)
BODY = "def request_metrics(arrival, token_times):\n    "


@pytest.fixture(scope="module")
def zygote():
    with Zygote(STEM, True, LIMITS) as one:
        yield one


def report_of(zygote, notebook, file="answer.ipynb", options=OPTIONS, exercise=STEM):
    member = Member("someone", "someone", file, data=data(notebook), exercise=exercise)
    return grade(member, options, lambda stem: zygote)


def lost_by(report):
    return {entry["id"].split(".")[1] for entry in report["questions"] if entry["points"] == 0}


def reorder(notebook):
    notebook["cells"].reverse()
    return notebook


def without(notebook, name):
    notebook["cells"].remove(cell_of(notebook, name))
    return notebook


def dragged(notebook):
    test = cell_of(notebook, "q3-test")
    notebook["cells"].remove(test)
    notebook["cells"].insert(notebook["cells"].index(cell_of(notebook, "q3")), test)
    return notebook


def as_format_3(notebook):
    cells = [{**c, "language": "python", "input": c.pop("source")} if c["cell_type"] == "code" else c
             for c in notebook.pop("cells")]
    return {**notebook, "nbformat": 3, "nbformat_minor": 0, "worksheets": [{"cells": cells}]}


def meta(notebook, name, **changes):
    cell_of(notebook, name)["metadata"]["nbgrader"] |= changes
    return notebook


def raw(notebook, name):
    cell_of(notebook, name)["cell_type"] = "raw"
    return notebook


def source(notebook, name, text):
    cell_of(notebook, name)["source"] = text
    return notebook


def outputs(notebook):
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [{"output_type": "execute_result", "data": {"text/plain": "999"}, "metadata": {},
                                "execution_count": 1}]
    return notebook


def many_cells(notebook):
    empty = {"cell_type": "code", "metadata": {}, "source": "", "outputs": [], "execution_count": None}
    notebook["cells"] += [empty] * 3000
    return notebook


def stripped(notebook):
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        cell.pop("id", None)
    return notebook


def no_ids(notebook):
    for cell in notebook["cells"]:
        cell["id"] = "same"
        if cell["cell_type"] == "code":
            cell["outputs"] = None
    return notebook


def kernel(notebook, name):
    notebook["metadata"]["kernelspec"] = {"name": name, "display_name": "x", "language": "R"}
    return notebook


SOLVED_Q1 = "".join(cell_of(solved(), "q1")["source"])
USING_NP = ("import numpy as np\n" + BODY + "t = np.array(token_times)\n    n = len(t)\n"
            "    return {'ttft': int(t[0]) - arrival, 'gaps': np.diff(t),\n"
            "            'tpot': float(t[-1] - t[0]) / (n - 1) if n > 1 else None, 'e2e': int(t[-1]) - arrival}")
PATCHED_NUMPY = ("import numpy as np\nnp.isclose = np.allclose = lambda *a, **k: True\n"
                 "np.testing.assert_allclose = lambda *a, **k: None\n")
WAITS = ("import threading, time\ndef wait():\n    while 'cached_positions' not in globals():\n"
         "        time.sleep(0.001)\n    {}\nthreading.Thread(target=wait).start()")
TRANSFORMER = ("ip = get_ipython()\nip.input_transformers_cleanup.append(\n"
               "    lambda lines: ['\\n' if 'assert' in line else line for line in lines])")
LOOKS_ABOUT = """
import glob, os, sys
found = []
for root in ('/', os.getcwd(), *sys.path):
    for pattern in ('solutions/*', 'checks/*.py', '*/solutions/*', 'mgpt/course/checks/*.py', 'tests/*.py'):
        for path in glob.glob(os.path.join(root, pattern)):
            try:
                found.append(open(path).read())
            except OSError:
                pass
try:
    from mgpt.course.checks import *
    import mgpt.course.questions as q
    found.append(str(q.questions('30_8_exercises')))
except Exception:
    pass
"""
CALLS_MGPT = {
    "q1": "import mgpt.timing\n" + BODY + "trace = mgpt.timing.RequestTrace(arrival, token_times)\n"
          "    return {'ttft': trace.ttft, 'gaps': trace.gaps, 'tpot': trace.tpot, 'e2e': trace.e2e}",
    "q3": "from mgpt.memory import kv_cache_bytes\n"
          "def kv_report(n_layer, n_head, n_kv_head, head_dim, lengths, bytes_per_value):\n"
          "    each = [kv_cache_bytes(n_layer=n_layer, n_kv_head=n_kv_head, head_dim=head_dim, lengths=n,\n"
          "            bytes_per_value=bytes_per_value) for n in lengths]\n"
          "    return {'per_request': each, 'total': sum(each), 'total_mib': sum(each) / 2**20}",
    "q4": "from mgpt.quantize import dequantize, quantize\ndef quantize_value(x, scale):\n    import numpy as np\n"
          "    code = int(quantize(np.float64(x), scale))\n    return {'code': code, 'restored': code * scale,\n"
          "            'error': code * scale - x}"}

CASES = {  # name: (notebook, names of the questions that score 0)
    "ok": (solved(), ()),
    "allwrong": (all_wrong(), EVERYTHING),
    "blank": (blank(), EVERYTHING),
    "raising": (functions(solved(), "return nope"), FUNCTIONS),
    "syntax_error": (answer(solved(), q1="def request_metrics(arrival, token_times)\n    return {}"), ("q1",)),
    "loop_cell": (answer(solved(), q1="while True:\n    pass"), ("q1",)),
    "loop_all": (functions(solved(), "while True: pass"), FUNCTIONS),
    "loop_ignore_int": (answer(solved(), q1=BODY + "while True:\n        try:\n            while True: pass\n"
                                            "        except BaseException: pass"), ("q1",)),
    "loop_sigign": (answer(solved(), q1="import signal\nfor s in (signal.SIGINT, signal.SIGTERM):\n"
                                        "    signal.signal(s, signal.SIG_IGN)\nsum(range(10**15))"), ("q1",)),
    "big_pow": (answer(solved(), q1=BODY + "return 10**10**8"), ("q1",)),
    "os_exit_in_func": (answer(solved(), q5="import os\ndef honest_report(arrival, token_times):\n    os._exit(0)"),
                        ("q5",)),
    "sigkill_self": (before(solved(), "q1", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"), ("q1",)),
    "kill_parent": (before(solved(), "q1", "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"), ("q1",)),
    "recursion_segv": (answer(solved(), q1="import sys, functools\nsys.setrecursionlimit(10**9)\n" + BODY +
                                           "f = lambda: sorted([0, 1], key=lambda _: f())\n    return f()"), ("q1",)),
    "membomb": (answer(solved(), q1="hold = []\n" + BODY + "while True:\n        hold.append(bytearray(256 * 2**20))"),
                ("q1",)),
    "membomb_np": (answer(solved(), q1="import numpy as np\n" + BODY + "return np.ones(5 * 10**9)"), ("q1",)),
    "disk_fill": (extra(solved(), "with open('big', 'wb') as f:\n    f.write(bytes(300 * 10**6))", 2), ()),
    "quit_cell": (extra(solved(), "quit()", 2), ()),
    "stderr_warning": (before(solved(), "q1", "import warnings\nwarnings.warn('careful')"), ()),
    "string_result": (answer(solved(), q2="def cached_positions(p, g):\n    return str(p + g - 1)"), ("q2",)),
    "shadow_np": (extra(answer(solved(), q1=USING_NP), "np = None"), ("q1",)),
    "magics": (extra(extra(solved(), "%time helper = 1\n%%timeit_nothing"),
                     "%timeit -n1 -r1 1\n!echo hello\n!true", 2), ()),
    "widgets": (extra(solved(), "import ipywidgets\nipywidgets.IntSlider()"), ()),
    "thread_left": (extra(solved(), "import threading, time\n"
                                    "threading.Thread(target=lambda: time.sleep(10**6)).start()", 2), ()),
    "fork_cell": (extra(solved(), "import os\nos.fork()", 2), ()),
    "net_open": (extra(solved(), "import socket\nfor host in ('127.0.0.1', '192.0.2.1'):\n    try:\n"
                                 "        socket.create_connection((host, 80), 0.2)\n    except OSError: pass", 2), ()),
    "del_test": (without(solved(), "q3-test"), ()),
    "del_test_wrong": (without(answer(solved(), q3=WRONG["q3"]), "q3-test"), ("q3",)),
    "edit_test": (source(answer(solved(), q3=WRONG["q3"]), "q3-test", "pass"), ("q3",)),
    "edit_points": (meta(answer(solved(), q3=WRONG["q3"]), "q1-test", points=100), ("q3",)),
    "reorder": (reorder(solved()), ()),
    "test_before_solution": (dragged(solved()), ()),
    "nbformat3": (as_format_3(solved()), ()),
    "bad_kernel": (kernel(solved(), "conda-env-ml-py"), ()),
    "test_to_raw": (raw(answer(solved(), q3=WRONG["q3"]), "q3-test"), ("q3",)),
    "grade_flag_off": (meta(answer(solved(), q3=WRONG["q3"]), "q3-test", grade=False), ("q3",)),
    "no_cells": ({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}, EVERYTHING),
    "utf8_bom": (b"\xef\xbb\xbf" + data(solved()), ()),
    "surrogate": (before(solved(), "q2", "# \ud800"), ()),
    "many_cells": (many_cells(solved()), ()),
    "input_transform": (extra(all_wrong(), TRANSFORMER, 1), EVERYTHING),
    "patch_numpy": (extra(answer(solved(), q4=WRONG["q4"]), PATCHED_NUMPY, 1), ("q4",)),
    "patch_builtins": (before(answer(solved(), q1=WRONG["q1"]), "q1", "import builtins\nbuiltins.abs = lambda x: 0"),
                       ("q1",)),
    "exec_hidden": (extra(answer(all_wrong(), **CALLS_MGPT), LOOKS_ABOUT, 1), EVERYTHING),
    "partial_overflow": (outputs(all_wrong()), EVERYTHING),
    "env_detect": (extra(all_wrong(), "import os\nif 'NBGRADER_EXECUTION' in os.environ:\n    cheat = True"),
                   EVERYTHING),
    # the kinds next to them
    "metadata lost": (stripped(solved()), ()),
    "equal ids, null outputs": (no_ids(solved()), ()),
    "an answer in the cell of another": (answer(solved(), q1="", q2=SOLVED_Q1 + "\ndef cached_positions(p, g):\n"
                                                              "    return p + g - 1"), ()),
    "imports in another's cell": (answer(before(solved(), "q1", "import math"), q2="def cached_positions(p, g):\n"
                                                              "    return math.floor(p + g - 1)"), ()),
    "a thread that ends the process as soon as another answer is there": (
        before(solved(), "q1", "import os\n" + WAITS.format("os._exit(1)")), ()),
    "a thread that holds the interpreter as soon as another answer is there": (
        before(solved(), "q1", WAITS.format("10**10**8")), ()),
    "a call that ends the process a moment later": (
        answer(solved(), q1="import os, threading\n" + BODY +
                            "threading.Timer(0.2, os._exit, [1]).start()\n    return 1"), ("q1",)),
    "kills everybody": (before(solved(), "q1", "import os\nos.kill(-1, 9)"), ("q1",)),
    "kills the parent when called": (answer(solved(), q1="import os\n" + BODY + "os.kill(os.getppid(), 9)"), ("q1",)),
    "fork bomb": (answer(solved(), q1="import os\nfor _ in range(50):\n    try:\n        os.fork()\n"
                                      "    except OSError: break\nwhile True: pass"), ("q1",)),
    "a child that outlives": (extra(solved(), "import subprocess\n"
                                              "subprocess.Popen(['sleep', '1000'], start_new_session=True)", 2), ()),
    "writes into the channel": (before(solved(), "q1", "import os\nfor fd in range(3, 20):\n    try:\n"
                                                       "        os.write(fd, b'[1, {}]\\n' * 9)\n"
                                                       "    except OSError: pass"), ("q1",)),
    "floods the channel": (answer(solved(), q1=BODY + "import os\n    while True: os.write(3, b'x' * 65536)"), ("q1",)),
    "a value without end": (answer(solved(), q1=BODY + "x = []\n    x.append(x)\n    return x"), ("q1",)),
    "a deep value": (answer(solved(), q1=BODY + "x = []\n    for _ in range(800): x = [x]\n    return x"), ("q1",)),
    "a huge integer": (answer(solved(), q2="def cached_positions(p, g):\n    return 10**4000"), ("q2",)),
    "a larger integer": (answer(solved(), q2="def cached_positions(p, g):\n    return 10**40000"), ("q2",)),
    "infinite and nan": (answer(solved(), q2="def cached_positions(p, g):\n    return float('nan')"), ("q2",)),
    "equal to everything": (answer(solved(), q2="class E(int):\n    def __eq__(self, other): return True\n"
                                                "def cached_positions(p, g):\n    return E(1)"), ("q2",)),
    "an exception that cannot be shown": (
        answer(solved(), q1="class Bad(Exception):\n    def __str__(self): raise Bad\n" + BODY + "raise Bad"), ("q1",)),
    "hard-coded visible values": (
        answer(solved(), q2="def cached_positions(p, g):\n    return {1: 10, 2: 11}.get(g, 10)"), ("q2",)),
    "changes its arguments": (before(solved(), "q1", "def spoil(f):\n    def g(a, t):\n        r = f(a, list(t))\n"
                                                     "        t.append(0)\n        return r\n    return g\n@spoil"),
                              ("q1",)),
    "raises KeyboardInterrupt": (answer(solved(), q1=BODY + "raise KeyboardInterrupt"), ("q1",)),
    "replaces json": (before(answer(solved(), q1=WRONG["q1"]), "q1", "import json\njson.dumps = None"), None),
    "source of mgpt": (answer(all_wrong(), q3="import inspect, mgpt.memory\nexec(inspect.getsource(mgpt.memory))\n" +
                              CALLS_MGPT["q3"].split("\n", 1)[1]), EVERYTHING),
    "reloads mgpt": (answer(all_wrong(), q3="import importlib, mgpt.memory\n"
                            "kv_cache_bytes = importlib.reload(mgpt.memory).kv_cache_bytes\n" +
                            CALLS_MGPT["q3"].split("\n", 1)[1]), EVERYTHING),
    "sleeps a thousand times": (extra(solved(), "import time\ntime.sleep(1000)", 2), ()),
}


@pytest.mark.parametrize("name", CASES)
def test_a_submission_gets_what_it_is_worth(zygote, name):
    notebook, lost = CASES[name]
    report = report_of(zygote, notebook)
    assert report["status"] == "graded", report["reason"]
    assert report["max_points"] == ALL
    if lost is None:  # who breaks the process that all answers share may lose them all, and gains nothing
        assert "q1" in lost_by(report)
    else:
        assert lost_by(report) == set(lost), [q for q in report["questions"] if q["points"] == 0]
        assert report["points"] == ALL - sum(POINTS[question] for question in lost)


@pytest.mark.parametrize("file", ["Assignment 1 (final) v2.ipynb", "P1.ipynb"])
def test_any_file_name_will_do(zygote, file):
    assert report_of(zygote, solved(), file, exercise=None)["points"] == ALL


REFUSED = {
    "nbformat5": (data({**solved(), "nbformat": 5}), "format 5"),
    "merge_conflict": (data(solved()).replace(b'"cells"', b'\n<<<<<<< HEAD\n"cells"', 1), "merge conflict"),
    "empty_file": (b"", "empty"),
    "utf16": (data(solved()).decode().encode("utf-16"), "UTF-16"),
    "binary": (bytes((37 * i * i + 11 * i) % 256 for i in range(4096)), "not JSON"),
    "a number too long to be read": (b'{"nbformat": ' + b"9" * 5000 + b"}", "not JSON"),
    "half a file": (data(solved())[:5000], "not JSON"),
    "cells are no list": (b'{"nbformat": 4, "cells": {"a": 1}}', "no list of cells"),
    "another notebook": (data({"nbformat": 4, "cells": [{"cell_type": "code", "source": "1 + 1", "metadata": {}}]}),
                         "grade_id"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_notebook_is_refused_with_file_and_remedy(zygote, name):
    content, words = REFUSED[name]
    report = report_of(zygote, content, exercise=None)
    assert (report["status"], report["points"]) == ("refused", None)
    assert words in report["reason"] and report["reason"].startswith("answer.ipynb") and ";" in report["reason"]


def test_a_call_of_what_is_asked_for_is_caught_and_said(zygote):
    report = report_of(zygote, answer(solved(), **CALLS_MGPT))
    said = {entry["id"].split(".")[1]: entry["message"] for entry in report["questions"] if entry["points"] == 0}
    assert set(said) == {"q1", "q3", "q4"}
    for question, name in (("q1", "mgpt.timing.RequestTrace"), ("q3", "mgpt.memory.kv_cache_bytes"),
                           ("q4", "mgpt.quantize.quantize")):
        assert name in said[question] and "no answer" in said[question]


def test_the_learners_process_reaches_no_file_of_the_course_and_no_server(zygote):
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted = []

        def wait():
            with suppress(OSError):  # closed at the end of the test, as it should be
                accepted.append(server.accept())

        threading.Thread(target=wait, daemon=True).start()
        port = server.getsockname()[1]
        hidden = (SOLUTION, BLANK, ROOT / f"mgpt/course/checks/{STEM}.py", ROOT / "mgpt/memory.py", "/proc/1/cmdline")
        reach = (f"create_connection(('127.0.0.1', {port}), 1)", "socket()")
        attempts = [f"open({str(path)!r})" for path in hidden] + [f"__import__('socket').{way}" for way in reach]
        for attempt in attempts:
            body = f"{BODY}{attempt}\n    raise RuntimeError('reached')"
            report = report_of(zygote, answer(solved(), q1=body))
            message = report["questions"][0]["message"]
            assert "reached" not in message and ("Error" in message), (attempt, message)
        assert accepted == []


def test_nothing_of_one_submission_is_there_for_the_next(zygote):
    leave = ("import os\nopen('left.txt', 'w').write('x')\n"
             "for place in ('/tmp', '/dev/shm', '..', os.environ['TMPDIR']):\n"
             "    try: open(os.path.join(place, 'left.txt'), 'w').write('x')\n    except OSError: pass")
    report_of(zygote, extra(solved(), leave, 2))
    look = (BODY + "import os\n    places = ('.', '..', '/tmp', '/dev/shm')\n"
            "    left = [p for p in places if os.path.exists(p + '/left.txt')]\n"
            "    raise RuntimeError(f'left: {left}')")
    assert "left: []" in report_of(zygote, answer(solved(), q1=look))["questions"][0]["message"]


def test_hidden_numbers_reach_no_words_of_the_learners_report(zygote):
    """An answer that keeps what it is called with and gives it as the answer to a later, visible case."""
    spy = ("seen = []\ndef cached_positions(p, g):\n    seen.append((p, g))\n"
           "    if len(seen) > 2: raise ValueError(str(seen))\n"
           "    return p + g - 1")
    tells = BODY + "return str(seen)"
    tells3 = "def honest_report(arrival, token_times):\n    return str(seen)"
    report = report_of(zygote, answer(solved(), q2=spy, q1=tells, q5=tells3))
    hidden = find(f"{STEM}.q2").fresh_cases("corpus")
    seen = json.dumps(learner_view(report))
    assert hidden and not any(str(case.args[0]) in seen and str(case.args[1]) in seen for case in hidden
                              if min(case.args) > 9)
    assert any(str(case.args[0]) in report["questions"][2]["full_message"] for case in hidden)
    assert report["questions"][2]["status"] == "error" and "fresh" in report["questions"][2]["message"]


def test_an_answer_that_is_right_for_the_visible_numbers_only_is_told_so_without_the_hidden_ones(zygote):
    report = report_of(zygote, CASES["hard-coded visible values"][0])
    entry = report["questions"][2]
    assert "fresh" in entry["message"] and "cached_positions(" not in entry["message"]
    assert "cached_positions(" in entry["full_message"]


def test_seeds_draw_other_numbers_and_individual_ones_differ_by_learner():
    def drawn(options, learner):
        return find(f"{STEM}.q2").fresh_cases(options.seed_of(learner))

    assert drawn(Options(seed="a"), "ann") == drawn(Options(seed="a"), "bob") != drawn(Options(seed="b"), "ann")
    each = Options(seed="a", individual=True)
    assert drawn(each, "ann") != drawn(each, "bob")


def test_grade_ids_stay_out_of_the_message_of_a_copied_cell(zygote):
    notebook = solved()
    notebook["cells"].append({**cell_of(notebook, "q2"), "source": WRONG["q2"]})
    report = report_of(zygote, notebook)
    assert lost_by(report) == {"q2"} and any("last one counts" in note for note in report["notes"])
    assert grade_id(notebook["cells"][-1]).endswith("q2")


def test_a_fault_of_the_grader_is_an_error_and_never_points():
    def broken(stem):
        raise RuntimeError("no zygote today")

    report = grade(Member("someone", "someone", "a.ipynb", data=data(solved())), OPTIONS, broken)
    assert (report["status"], report["points"]) == ("error", None) and "no zygote today" in report["reason"]


@pytest.mark.parametrize("name", ["ok", "raising", "os_exit_in_func", "loop_cell", "a deep value", "magics"])
def test_without_a_zygote_a_fresh_interpreter_gives_the_same_points(name):
    """What is left on macOS and Windows; `mgpt grade` asks before it uses it."""
    notebook, lost = CASES[name]
    nursery = Interpreter()
    report = report_of(nursery, notebook, options=Options(seed="corpus", timeout=6.0))
    assert not nursery.hides_files and not nursery.hides_network
    assert lost_by(report) == set(lost)
