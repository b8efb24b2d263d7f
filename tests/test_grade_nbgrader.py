"""The exercises are valid nbgrader assignments: on ordinary submissions nbgrader and `mgpt grade` agree."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mgpt.cli import main
from mgpt.course.grade.nbgrader_course import source_notebook, write_course
from mgpt.course.questions import find
from submissions import ALL, BLANK, STEM, WRONG, all_wrong, answer, blank, data, functions, solved

SEED = "one seed for both"
MEMBERS = {
    "ok": solved(), "allwrong": all_wrong(), "blank": blank(),
    "mixed": answer(functions(solved(), "return nope"), q2="def cached_positions(p, g)\n    return 1",
                    q3="".join(WRONG["q3"]), q6_why='q6_why = "z"', q4_why='q4_why = "z"'),
    "hard_coded": answer(solved(), q2="def cached_positions(p, g):\n    return {1: 10, 2: 11}.get(g, 10)"),
}


def nbgrader(folder, *arguments):
    done = subprocess.run([sys.executable, "-m", "nbgrader", *arguments], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "IPYTHONDIR": str(folder / ".ipython")})
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture
def on_path(monkeypatch):
    """nbgrader calls alembic by its bare name."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
def test_nbgrader_and_mgpt_give_ordinary_submissions_the_same_points(tmp_path, on_path):
    course, submitted = tmp_path / "course", tmp_path / "course" / "submitted"
    write_course(course, SEED)
    nbgrader(course, "generate_assignment", STEM)
    for name, notebook in MEMBERS.items():
        place = submitted / name / STEM
        place.mkdir(parents=True)
        (place / f"{STEM}.ipynb").write_bytes(data(notebook))
    nbgrader(course, "autograde", STEM)

    from nbgrader.api import Gradebook

    theirs = {}
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", "mgpt") as book:
        for name in MEMBERS:
            grades = book.find_submission_notebook(STEM, STEM, name).grades
            theirs[name] = {grade.cell.name.removesuffix("-test").replace(f"{STEM}-", f"{STEM}."): grade.auto_score
                            for grade in grades if grade.cell.name.endswith("-test")}
    assert main(["grade", str(submitted), "--out", str(tmp_path / "out"), "--seed", SEED]) == 0
    ours = {}
    for path in (tmp_path / "out" / "learners").glob("*.json"):
        report = json.loads(path.read_text())
        ours[report["learner"]] = {entry["id"]: entry["points"] for entry in report["questions"]}
    assert theirs == ours
    assert sum(ours["ok"].values()) == ALL and sum(ours["allwrong"].values()) == sum(ours["blank"].values()) == 0
    assert ours["hard_coded"][f"{STEM}.q2"] == 0 < sum(ours["mixed"].values()) < ALL


def test_the_hidden_tests_stand_between_nbgraders_marks_and_follow_the_seed():
    text = BLANK.read_text()
    one, other = (source_notebook(STEM, text, seed) for seed in ("a", "b"))
    assert one == source_notebook(STEM, text, "a") != other
    cells = json.loads(one)["cells"]
    test = next(c for c in cells if c["metadata"].get("nbgrader", {}).get("grade_id") == f"{STEM}-q2-test")
    hidden = test["source"].split("### BEGIN HIDDEN TESTS")[1].split("### END HIDDEN TESTS")[0]
    case = find(f"{STEM}.q2").fresh_cases("a")[0]
    assert f"cached_positions(*{case.args!r}), {case.expected!r}" in hidden
    assert hidden.count("assert agrees(") == len(find(f"{STEM}.q2").fresh_cases("a"))
