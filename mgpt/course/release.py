"""solutions/*.md -> exercises/*.ipynb: the learner's notebooks are a byte-exact function of the marked solutions.

Marks: `### BEGIN SOLUTION` … `### END SOLUTION` becomes a stub, `### BEGIN HIDDEN TESTS` … `### END HIDDEN TESTS`
goes away.  A test cell's body is written from the checks, so that no expected value is typed twice.
"""

import ast
import hashlib
import json
import re
from pathlib import Path

from mgpt.course.questions import questions

MARK = re.compile(r"^\s*### (BEGIN|END) (SOLUTION|HIDDEN TESTS)\s*$")
BANNER = "<!-- Generated from solutions/{stem}.md by `python -m mgpt release`. Edit that file, not this one. -->"
FREE_STUB = "*Your answer:*"


def root():
    """The checkout that holds solutions/.  ValueError where mgpt is installed without it."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / "solutions").is_dir():
        raise ValueError(f"{folder} has no solutions/: release works in a checkout of the course")
    return folder


def released():
    """Path of each exercise notebook -> the text it must have."""
    base = root()
    return {base / "exercises" / f"{source.stem}.ipynb": notebook_text(source)
            for source in sorted((base / "solutions").glob("*.md"))}


def notebook_text(source):
    """The released notebook of one marked solution, as JSON text.  ValueError names file, cell and mark."""
    import jupytext

    source = Path(source)
    try:
        cells = jupytext.reads(source.read_text(encoding="utf-8"), fmt="md:myst").cells
        return _dump(_release_cells(cells, source.stem), source.stem)
    except ValueError as error:
        raise ValueError(f"{source.name}: {error}") from None


def _release_cells(cells, stem):
    wanted, ids, result = _wanted_cells(stem), set(), []
    for number, cell in enumerate(cells):
        text, meta = cell.source, dict(cell.metadata.get("nbgrader", {}))
        tags = list(cell.metadata.get("tags", []))
        name = meta.get("grade_id", f"cell {number + 1}")
        if meta:
            role, question = wanted.pop(name, (None, None))
            if role is None:
                raise ValueError(f"{name}: no question of the checks has this grade_id, or it stands twice")
            meta = _complete(name, role, question)
        stub = strip_marks(text, name, _stub(cell.cell_type) if meta.get("solution") else None)
        if meta.get("solution") and stub == text:
            raise ValueError(f"{name}: an answer cell needs a region ### BEGIN SOLUTION … ### END SOLUTION")
        if meta and role == "test":
            stub, tags = test_source(question), [*tags, "raises-exception"]  # untouched stubs raise by design
        if number == 0:
            stub = f"{BANNER.format(stem=stem)}\n\n{stub}"
        metadata = {key: value for key, value in (("nbgrader", meta), ("tags", tags)) if value}
        result.append(_cell(cell.cell_type, stub, metadata, name if meta else None, ids))
    if wanted:
        raise ValueError(f"cells are missing for {', '.join(wanted)}")
    return result


def _wanted_cells(stem):
    """grade_id -> (role, question) of every cell that must be there: answer, test, and a free answer an exercise."""
    wanted = {}
    for question in questions(stem).values():
        wanted[question.grade_id] = ("answer", question)
        wanted[f"{question.grade_id}-test"] = ("test", question)
        if question.is_choice:
            wanted[f"{question.grade_id}-free"] = ("free", question)
    return wanted


def _complete(grade_id, role, question):
    """nbgrader's cell metadata, version 3 of its schema.  Points stand on the test cell alone."""
    meta = {"grade_id": grade_id, "grade": role != "answer", "locked": role == "test", "solution": role != "test",
            "schema_version": 3, "task": False}
    if role != "answer":
        meta["points"] = question.points if role == "test" else 1  # a free answer: one manual point, outside full marks
    return meta


def strip_marks(text, where, stub=None):
    """`text` with hidden tests removed and each solution region replaced by stub(its lines).

    ValueError: a mark that is not closed, not opened, nested or crossed; a solution where none may be (stub None).
    """
    kept, region, kind = [], [], None
    for line in text.splitlines():
        mark = MARK.match(line)
        if mark is None:
            (kept if kind is None else region).append(line)
        elif mark[1] == "BEGIN":
            if kind is not None:
                raise ValueError(f"{where}: ### BEGIN {mark[2]} inside ### BEGIN {kind}")
            if mark[2] == "SOLUTION" and stub is None:
                raise ValueError(f"{where}: ### BEGIN SOLUTION in a cell that is no answer cell")
            kind = mark[2]
        else:
            if kind != mark[2]:
                raise ValueError(f"{where}: ### END {mark[2]} without its ### BEGIN {mark[2]}")
            kept += stub(region) if kind == "SOLUTION" else []
            region, kind = [], None
    if kind is not None:
        raise ValueError(f"{where}: ### BEGIN {kind} is never closed")
    if re.search(r"(BEGIN|END) (SOLUTION|HIDDEN)", "\n".join(kept)):
        raise ValueError(f"{where}: a mark is misspelt; it must stand alone on its line as '### BEGIN SOLUTION'")
    return "\n".join(kept)


def _stub(cell_type):
    if cell_type == "markdown":
        return lambda region: [FREE_STUB]

    def stub(region):
        indent = " " * min((len(line) - len(line.lstrip()) for line in region if line.strip()), default=0)
        if indent:
            return [f'{indent}raise NotImplementedError("replace this line by your answer")']
        assigned = [node for node in ast.parse("\n".join(region)).body if isinstance(node, ast.Assign)]
        return [f"{target.id} = ..." for node in assigned for target in node.targets] or ["..."]

    return stub


def test_source(question):
    """The generated body of a test cell: the friendly check first, then the visible cases as assertions."""
    name = question.asks_for
    if question.is_choice or question.verdict is not None:
        return f'from mgpt.course import check\n\nassert check("{question.id}", {name}).passed'
    options = ", whole=True" if question.whole else ""
    options += f", tolerance={question.tolerance}" if question.tolerance != 1e-9 else ""
    lines = ["from mgpt.course import agrees, check", "", f'check("{question.id}", {name})']
    for case in question.cases:
        call, expected = f"{name}({', '.join(map(repr, case.args))})", f"{case.expected!r}{options}"
        one_line = f"assert agrees({call}, {expected})"
        lines += [one_line] if len(one_line) <= 88 else ["assert agrees(", f"    {call},", f"    {expected},", ")"]
    return "\n".join(lines)


def _cell(kind, text, metadata, name, ids):
    # Ids depend on a cell's own content only, so that one more cell does not rename the others.
    cell_id = name or hashlib.sha256(text.encode()).hexdigest()[:12]
    while cell_id in ids:
        cell_id = hashlib.sha256(cell_id.encode()).hexdigest()[:12]
    ids.add(cell_id)
    cell = {"cell_type": kind, "id": cell_id, "metadata": metadata, "source": text.splitlines(keepends=True)}
    return {**cell, "execution_count": None, "outputs": []} if kind == "code" else cell


def _dump(cells, stem):
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
                "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
