"""`mgpt check NOTEBOOK`: answers run in a fresh process, are judged outside, and a bad one costs itself only."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest
from submissions import solved_text

from mgpt.cli import main
from mgpt.course.submission import read
from mgpt.course.workbench import Workbench, judge_submission

ROOT = Path(__file__).parents[1]
BLANK = ROOT / "exercises" / "30_8_exercises.ipynb"
SOLUTION = ROOT / "solutions" / "30_8_exercises.md"
MAX_POINTS = 22


def blank():
    return json.loads(BLANK.read_text())


@pytest.fixture(scope="module")
def solved():
    """The exercise with all right answers, as JSON text."""
    notebook = blank()
    answers = {cell.metadata.nbgrader.grade_id: cell.source for cell in jupytext.read(SOLUTION).cells
               if cell.metadata.get("nbgrader", {}).get("solution")}
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            cell["source"] = answers[cell["metadata"]["nbgrader"]["grade_id"]]
    return json.dumps(notebook)


def write(tmp_path, notebook, name="answer.ipynb"):
    path = tmp_path / name
    path.write_text(notebook if isinstance(notebook, str) else json.dumps(notebook))
    return path


def answer_cell(notebook, grade_id):
    return next(c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id)


def with_answer(solved, number, source):
    notebook = json.loads(solved)
    answer_cell(notebook, f"30_8_exercises-q{number}")["source"] = source
    return notebook


def points(path, timeout=20.0):
    return {r.id.split(".")[1]: r.points for r in judge_submission(read(path), timeout)}


def test_the_solution_gets_full_points(solved, tmp_path, capsys):
    assert main(["check", str(write(tmp_path, solved)), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["points"], report["max_points"]) == (MAX_POINTS, MAX_POINTS)
    assert all(q["status"] == "pass" and q["points"] == q["max_points"] for q in report["questions"])


@pytest.mark.parametrize("stem", sorted(path.stem for path in SOLUTION.parent.glob("*.md") if path != SOLUTION))
def test_every_solution_gets_full_points_where_the_functions_asked_for_are_withheld(stem, tmp_path):
    results = judge_submission(read(write(tmp_path, solved_text(stem))), 20.0)
    assert {r.id: (r.status, r.message) for r in results if r.status != "pass"} == {}


def test_the_blank_exercise_gets_zero_and_none_is_an_error(capsys):
    assert main(["check", str(BLANK), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["questions"]) == 12 and report["points"] == 0 and report["max_points"] == MAX_POINTS
    assert {q["status"] for q in report["questions"]} == {"not attempted"}


def test_the_text_output_has_a_line_a_question_and_a_sum(capsys):
    assert main(["check", str(BLANK)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 13 and lines[-1] == "0 of 22 points, 0 of 12 questions right"


@pytest.mark.parametrize("name, source", [
    ("wrong", "def request_metrics(arrival, token_times):\n    return {}"),
    ("syntax error", "def request_metrics(arrival, token_times)\n    return {}"),
    ("raises", "def request_metrics(arrival, token_times):\n    return nope"),
    ("empty", ""),
    ("exits", "import os\n\ndef request_metrics(arrival, token_times):\n    os._exit(0)"),
    ("kills itself", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"),
    ("loops at top level", "while True:\n    pass"),
    ("loops when called", "def request_metrics(arrival, token_times):\n    while True:\n        pass"),
    ("swallows interrupts", "while True:\n    try:\n        while True: pass\n    except BaseException: pass"),
    ("floods stdout", "def request_metrics(arrival, token_times):\n    print('{}' * 10**6)\n    return 'x' * 10**7"),
    ("equal to everything", "class L(dict):\n    def __eq__(self, o): return True\n"
                            "def request_metrics(arrival, token_times):\n    return L()"),
    ("closes its channel", "import os\ndef request_metrics(arrival, token_times):\n    os.closerange(0, 50)\n    return {}"),
])
def test_a_bad_answer_costs_its_own_question_only(solved, tmp_path, name, source):
    got = points(write(tmp_path, with_answer(solved, 1, source)), timeout=2.0)
    assert got.pop("q1") == 0
    assert sum(got.values()) == MAX_POINTS - 3, name


def test_a_message_says_what_happened_to_the_cell(solved, tmp_path):
    path = write(tmp_path, with_answer(solved, 2, "def cached_positions(p, g)\n    return 1"))
    result = next(r for r in judge_submission(read(path)) if r.id == "30_8_exercises.q2")
    assert result.status == "error" and "SyntaxError" in result.message


def test_a_cell_that_defines_its_answer_and_then_stumbles_keeps_the_points(solved, tmp_path):
    source = "def cached_positions(p, g):\n    return p + g - 1\n\nprint(undefined)"
    assert points(write(tmp_path, with_answer(solved, 2, source)))["q2"] == 2


def test_tests_in_the_notebook_are_not_trusted(solved, tmp_path):
    notebook = with_answer(solved, 1, "def request_metrics(arrival, token_times):\n    return {}")
    answer_cell(notebook, "30_8_exercises-q1-test")["source"] = "assert True"
    answer_cell(notebook, "30_8_exercises-q1-test")["metadata"]["nbgrader"]["points"] = 100
    assert points(write(tmp_path, notebook))["q1"] == 0


def test_extra_cells_magics_and_shell_lines_run_as_in_jupyter(solved, tmp_path):
    notebook = json.loads(solved)
    extra = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": ""}
    notebook["cells"].insert(1, extra | {"source": "%matplotlib_or_not\n"})
    notebook["cells"].insert(1, extra | {"source": "%time helper = 1\n!true\nhelper"})
    notebook["cells"].insert(1, extra | {"source": "raise ValueError('an extra cell that fails')"})
    answer_cell(notebook, "30_8_exercises-q2")["source"] = "def cached_positions(p, g):\n    return p + g - helper"
    assert sum(points(write(tmp_path, notebook)).values()) == MAX_POINTS


def strip_metadata(notebook):
    for cell in notebook["cells"]:
        cell["metadata"] = {}


def reverse(notebook):
    notebook["cells"].reverse()


def drop_tests(notebook):
    notebook["cells"] = [c for c in notebook["cells"] if not c["metadata"].get("nbgrader", {}).get("locked")]


def old_format(notebook):
    cells = [{**c, "language": "python", "input": c.pop("source")} if c["cell_type"] == "code" else c
             for c in notebook.pop("cells")]
    notebook.update(nbformat=3, nbformat_minor=0, worksheets=[{"cells": cells}])


def no_ids(notebook):
    for cell in notebook["cells"]:
        cell.pop("id")
    notebook["nbformat_minor"] = 0
    notebook["metadata"]["kernelspec"]["name"] = "conda-env-ml-py"


def empty_cells(notebook):
    empty = {"cell_type": "code", "metadata": {}, "source": "", "outputs": None, "execution_count": None}
    notebook["cells"] += [dict(empty) for _ in range(300)]


@pytest.mark.parametrize("change", [strip_metadata, reverse, drop_tests, old_format, no_ids, empty_cells])
def test_an_odd_notebook_with_right_answers_gets_full_points(solved, tmp_path, change):
    notebook = json.loads(solved)
    change(notebook)
    name = "30_8_exercises.ipynb" if change is strip_metadata else "Assignment 1 (final) v2.ipynb"
    assert sum(points(write(tmp_path, notebook, name)).values()) == MAX_POINTS


def test_of_several_copies_the_last_filled_one_counts(solved, tmp_path):
    notebook = json.loads(solved)
    first = answer_cell(notebook, "30_8_exercises-q2")
    notebook["cells"] += [{**first, "source": "def cached_positions(p, g):\n    return 0"}, {**first, "source": " "}]
    path = write(tmp_path, notebook)
    assert points(path)["q2"] == 0
    assert any("q2" in note and "last one counts" in note for note in read(path).notes)
    notebook["cells"][-2]["source"] = "def cached_positions(p, g)"  # broken: the right one before it does not stand in
    assert points(write(tmp_path, notebook))["q2"] == 0


def test_byte_order_mark_and_lone_surrogates_are_read(solved, tmp_path):
    path = tmp_path / "bom.ipynb"
    path.write_bytes(b"\xef\xbb\xbf" + solved.replace('"# How', '"\\\\ud800').encode())
    assert read(path).stem == "30_8_exercises"
    notebook = with_answer(solved, 2, "# \ud800\ndef cached_positions(p, g):\n    return p + g - 1")
    assert points(write(tmp_path, notebook))["q2"] == 2


@pytest.mark.parametrize("content, words", [
    (b"", "not JSON"), (b"<<<<<<< HEAD\n{}", "not JSON at line 1"), (b"\xff\xfe{\x00}\x00", "not JSON"),
    (bytes(range(256)), "not JSON"), (b"[]", "no nbformat"), (b"{}", "no nbformat"), (b'{"nbformat": "4"}', "no nbformat"),
    (b'{"nbformat": 5, "cells": []}', "format 5"), (b'{"nbformat": 4, "cells": 3}', "no list of cells"),
    (b'{"nbformat": 4, "cells": []}', "no cell carries a grade_id"), (b"[" * 100_000, "not JSON"),
])
def test_what_is_no_notebook_is_refused_in_one_line(tmp_path, capsys, content, words):
    path = tmp_path / "submission.ipynb"
    path.write_bytes(content)
    assert main(["check", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err and "submission.ipynb" in err


@pytest.mark.parametrize("arguments", [["no_such.ipynb"], ["."], [str(BLANK), "--timeout", "0"],
                                       [str(BLANK), "--timeout", "inf"], [str(BLANK), "--timeout", "1e300"]])
def test_bad_arguments_are_one_line_and_status_2(capsys, arguments):
    assert main(["check", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1


def test_missing_answers_cost_their_own_points(solved, tmp_path):
    notebook = json.loads(solved)
    notebook["cells"] = [c for c in notebook["cells"]
                         if c["metadata"].get("nbgrader", {}).get("grade_id") != "30_8_exercises-q3"]
    assert points(write(tmp_path, notebook))["q3"] == 0
    assert sum(points(write(tmp_path, notebook)).values()) == MAX_POINTS - 3


def test_the_child_never_holds_a_check(solved, tmp_path):
    """What the answers run in has not loaded the checks, so an expected value cannot be read out of it."""
    with Workbench(["import sys\ndef loaded():\n    return [m for m in sys.modules if 'checks' in m or 'judge' in m]"]) as bench:
        assert [m for m in bench.call("loaded", []) if "checks" in m] == []


def test_check_works_with_an_empty_home_and_leaves_it_empty(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    env = {**os.environ, "HOME": str(home)}
    env.pop("IPYTHONDIR", None)
    done = subprocess.run([sys.executable, "-m", "mgpt", "check", str(BLANK), "--json"], capture_output=True, text=True,
                          env=env)
    assert done.returncode == 0 and done.stderr == "" and json.loads(done.stdout)["points"] == 0
    assert list(home.iterdir()) == []
