"""Exercises are a byte-exact function of the solutions, and nothing of a solution gets out."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest
from nbgrader.nbgraderformat import MetadataValidator
from nbgrader.utils import determine_grade

from mgpt.cli import main
from mgpt.course import release
from mgpt.course.questions import questions, stems
from mgpt.course.release import notebook_text, released, strip_marks

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "solutions").glob("*.md"))
ONE = ROOT / "solutions" / "30_8_exercises.md"


def cells_of(text):
    return json.loads(text)["cells"]


def test_the_committed_exercises_are_what_the_solutions_give():
    for path, text in released().items():
        assert path.read_bytes() == text.encode(), f"{path.name} is stale: run `python -m mgpt release`"
    assert {path.name for path in (ROOT / "exercises").glob("*.ipynb")} == {path.name for path in released()}


def test_every_stem_with_checks_has_a_solution_and_every_solution_has_checks():
    assert [source.stem for source in SOURCES] == stems()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A small copy of the course to spoil."""
    for name in ("solutions", "exercises"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.setattr(release, "root", lambda: tmp_path)
    monkeypatch.setattr("mgpt.cli.release.root", lambda: tmp_path)
    return tmp_path


def test_release_check_sees_one_changed_byte_a_missing_file_and_an_orphan(checkout, capsys):
    assert main(["release", "--check"]) == 0
    notebook = checkout / "exercises" / "30_8_exercises.ipynb"
    notebook.write_bytes(notebook.read_bytes() + b" ")
    assert main(["release", "--check"]) == 1
    assert "30_8_exercises.ipynb" in capsys.readouterr().out
    notebook.unlink()
    assert main(["release", "--check"]) == 1
    assert main(["release"]) == 0 and main(["release", "--check"]) == 0
    (checkout / "exercises" / "99_gone.ipynb").write_text("{}")
    assert main(["release", "--check"]) == 1
    assert main(["release"]) == 0
    assert not (checkout / "exercises" / "99_gone.ipynb").exists()


def test_a_change_of_the_source_makes_the_exercise_stale(checkout):
    source = checkout / "solutions" / "30_8_exercises.md"
    source.write_text(source.read_text().replace("About 60 minutes", "About 61 minutes"))
    assert main(["release", "--check"]) == 1


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_no_line_of_a_solution_is_in_the_released_notebook(source):
    text = notebook_text(source)
    visible = "\n".join("".join(cell["source"]) for cell in cells_of(text))
    regions = re.findall(r"### BEGIN SOLUTION\n(.*?)\n\s*### END SOLUTION", source.read_text(), flags=re.S)
    lines = {line.strip() for region in regions for line in region.splitlines() if len(line.strip()) > 3}
    answers = sum(2 if question.is_choice else 1 for question in questions(source.stem).values())  # a choice: and words
    assert len(regions) == answers and lines
    assert not [line for line in lines if line in visible]
    assert "SOLUTION" not in text and "HIDDEN" not in text


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_released_notebook_is_a_valid_nbgrader_assignment(source):
    notebook = jupytext.reads(notebook_text(source), fmt="ipynb")
    MetadataValidator().validate_nb(notebook)
    marked = [cell.metadata.nbgrader for cell in notebook.cells if "nbgrader" in cell.metadata]
    keys = {"grade", "grade_id", "locked", "schema_version", "solution", "task"}
    assert all(set(meta) - {"points"} == keys and meta["schema_version"] == 3 for meta in marked)
    assert all(meta["points"] > 0 for meta in marked if meta["grade"])
    tests = [meta for meta in marked if meta["locked"]]
    assert sum(meta["points"] for meta in tests) == sum(q.points for q in questions(source.stem).values())


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_released_notebook_has_no_outputs_stable_ids_and_a_banner(source):
    cells = cells_of(notebook_text(source))
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code")
    ids = [cell["id"] for cell in cells]
    assert len(set(ids)) == len(ids)
    assert f"solutions/{source.name}" in cells[0]["source"][0] and "python -m mgpt release" in cells[0]["source"][0]


def test_a_new_cell_does_not_rename_the_others(tmp_path):
    source = tmp_path / ONE.name
    text = ONE.read_text()
    source.write_text(text.replace("## Where you are", "## One more\n\nWords.\n\n+++\n\n## Where you are"))
    before = {cell["id"] for cell in cells_of(notebook_text(ONE))}
    after = {cell["id"] for cell in cells_of(notebook_text(source))}
    assert before < after and len(after - before) == 1


def test_a_generated_test_cell_ends_in_an_assert_and_imports_what_it_uses():
    for stem in stems():
        for question in questions(stem).values():
            source = release.test_source(question)
            namespace = {}
            exec(source.split("\n\n")[0], namespace)
            assert {"check"} <= set(namespace)
            assert source.rsplit("assert", 1)[1] and compile(source, "test cell", "exec")
            assert all(name not in source for name in ("np.", "abs(", "list("))


@pytest.mark.parametrize("stem", stems())
def test_a_long_case_is_broken_into_lines_and_says_the_same(stem):
    for question in questions(stem).values():
        if question.is_choice or question.verdict is not None:
            continue
        source = release.test_source(question)
        options = source.rsplit("whole=True", 1)[0] != source
        calls = [node.test for node in ast.parse(source).body if isinstance(node, ast.Assert)]
        assert len(calls) == len(question.cases)
        for call, case in zip(calls, question.cases):
            asked, expected = call.args
            assert ast.unparse(asked) == ast.unparse(ast.parse(f"{question.asks_for}({', '.join(map(repr, case.args))})"))
            assert ast.unparse(expected) == ast.unparse(ast.parse(repr(case.expected)))
            assert question.whole == options == ("whole" in [word.arg for word in call.keywords])
        assert max(map(len, source.splitlines())) <= 88


@pytest.mark.parametrize("text, problem", [
    ("### BEGIN SOLUTION\nx = 1", "never closed"),
    ("### END SOLUTION", "without its"),
    ("### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION\n### END SOLUTION", "inside"),
    ("### BEGIN SOLUTION\n### BEGIN HIDDEN TESTS\n### END HIDDEN TESTS\n### END SOLUTION", "inside"),
    ("### BEGIN SOLUTION\n### END HIDDEN TESTS", "without its"),
    ("# BEGIN SOLUTION\nx = 1\n# END SOLUTION", "misspelt"),
    ("### BEGIN HIDDEN TESTS\nassert True", "never closed"),
])
def test_a_broken_mark_raises_and_says_where(text, problem):
    with pytest.raises(ValueError, match=f"cell-7.*{problem}"):
        strip_marks(text, "cell-7", stub=lambda region: ["..."])


def test_a_solution_outside_an_answer_cell_raises():
    with pytest.raises(ValueError, match="no answer cell"):
        strip_marks("### BEGIN SOLUTION\nx = 1\n### END SOLUTION", "cell-7")


def test_hidden_tests_go_away_and_the_rest_stays():
    assert strip_marks("a\n### BEGIN HIDDEN TESTS\nassert secret\n### END HIDDEN TESTS\nb", "cell") == "a\nb"


@pytest.mark.parametrize("old, new, problem", [
    ("grade_id: 30_8_exercises-q2\n", "grade_id: 30_8_exercises-q1\n", "30_8_exercises-q1: .* stands twice"),
    ("grade_id: 30_8_exercises-q2\n", "grade_id: 30_8_exercises-q9\n", "30_8_exercises-q9: no question"),
    ("    ### BEGIN SOLUTION\n    decode_passes", "    decode_passes", "q2: ### END SOLUTION without"),
])
def test_a_wrong_source_names_file_and_cell(tmp_path, old, new, problem):
    source = tmp_path / "30_8_exercises.md"
    text = ONE.read_text()
    assert old in text
    source.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=f"30_8_exercises.md: .*{problem}"):
        notebook_text(source)


def test_release_works_as_a_module():
    done = subprocess.run([sys.executable, "-m", "mgpt", "release", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def executed(notebook, tmp_path):
    from nbclient import NotebookClient

    NotebookClient(notebook, allow_errors=True, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    return {cell.metadata.nbgrader.grade_id: determine_grade(cell) for cell in notebook.cells
            if cell.metadata.get("nbgrader", {}).get("locked")}


def test_nbgraders_rule_gives_full_points_to_the_solution_and_none_to_the_blank(tmp_path):
    """nbgrader's own determine_grade over executed cells: the generated test cells are real tests there."""
    blank = jupytext.reads(notebook_text(ONE), fmt="ipynb")
    solved = jupytext.reads(notebook_text(ONE), fmt="ipynb")
    answers = {cell.metadata.nbgrader.grade_id: cell.source for cell in jupytext.read(ONE).cells
               if cell.metadata.get("nbgrader", {}).get("solution")}
    for cell in solved.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = answers[cell.metadata.nbgrader.grade_id]
    assert all(points == 0 for points, _ in executed(blank, tmp_path).values())
    assert all(points == most for points, most in executed(solved, tmp_path).values())
