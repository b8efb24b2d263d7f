"""A learner's notebook file, read tolerantly: which cells answer which question."""

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

from mgpt.course.questions import questions, stems


@dataclass(frozen=True)
class Submission:
    """stem: which exercise it is.  cells: sources of the code cells to run, in order, test cells left out.
    answers: question id -> index into `cells`.  notes: what was unusual, in words."""

    stem: str
    cells: tuple[str, ...]
    answers: dict[str, int]
    notes: tuple[str, ...]


def read(path):
    """The Submission in a notebook file.  ValueError, in one line, for what is no notebook of this course."""
    path = Path(path)
    code = [cell for cell in _cells(path) if cell["cell_type"] == "code"]
    marked = {_grade_id(cell): cell for cell in code}
    by_grade_id = {q.grade_id: q for stem in stems() for q in questions(stem).values()}
    found = [by_grade_id[grade_id].stem for grade_id in marked if grade_id in by_grade_id]
    stem = max(set(found), key=found.count) if found else path.stem
    if stem not in stems():
        raise ValueError(f"{path}: no cell carries a grade_id of this course, and its name is no exercise's "
                         f"({', '.join(stems())}); start from a notebook of exercises/")
    return _match(code, stem)


def _match(code, stem):
    known = questions(stem)
    tests = {f"{question.grade_id}-test" for question in known.values()}
    cells = [cell for cell in code if _grade_id(cell) not in tests]
    if not any(_grade_id(cell) for cell in code):  # metadata lost: the generated tests are known by their call
        cells = [cell for cell in code if "assert" not in cell["source"] or "check(" not in cell["source"]]
    answers, notes = {}, []
    for question in known.values():
        copies = [i for i, cell in enumerate(cells) if _grade_id(cell) == question.grade_id]
        if not copies:
            copies = [i for i, cell in enumerate(cells) if question.asks_for in _defines(cell["source"])]
            if copies:
                notes.append(f"{question.id}: the cell's metadata is lost; found by its name {question.asks_for}")
        if len(copies) > 1:
            filled = [i for i in copies if cells[i]["source"].strip()]
            copies = filled or copies
            notes.append(f"{question.id}: {len(copies)} answer cells; the last one counts")
            for other in copies[:-1]:  # not run at all: what it defines must not stand in for the one that counts
                cells[other] = {**cells[other], "source": ""}
        if copies:
            answers[question.id] = copies[-1]
    return Submission(stem, tuple(cell["source"] for cell in cells), answers, tuple(notes))


def _grade_id(cell):
    meta = cell["metadata"].get("nbgrader")
    return meta.get("grade_id") if isinstance(meta, dict) else None


def _defines(source):
    """Names that a cell's top level defines; of what does not parse, those of `def name` and `name =`."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return set(re.findall(r"^(?:def\s+)?(\w+)\s*[(=]", source, flags=re.M))
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return functions | {t.id for node in body if isinstance(node, ast.Assign)
                        for t in node.targets if isinstance(t, ast.Name)}


def _cells(path):
    """Cells of a notebook of format 3 to 4 as dicts with cell_type, source (text) and metadata."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        place = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"{path} is no notebook: it is not JSON{place}; open it in Jupyter and save it again") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("nbformat"), int):
        raise ValueError(f"{path} is no notebook: it has no nbformat; submit the .ipynb file itself")
    if notebook["nbformat"] not in (3, 4):
        raise ValueError(f"{path} has notebook format {notebook['nbformat']}; formats 3 and 4 are read: save it as 4")
    if notebook["nbformat"] == 3:
        sheets = notebook.get("worksheets") or [{}]
        raw = [cell for sheet in sheets for cell in sheet.get("cells", [])]
    else:
        raw = notebook.get("cells")
    if not isinstance(raw, list):
        raise ValueError(f"{path} is no notebook: it has no list of cells")
    return [_cell(cell) for cell in raw if isinstance(cell, dict)]


def _cell(cell):
    source = cell.get("source", cell.get("input", ""))
    source = "".join(map(str, source)) if isinstance(source, list) else str(source)
    metadata = cell.get("metadata")
    # A lone surrogate cannot be encoded, and no answer needs one.
    return {"cell_type": cell.get("cell_type"), "source": source.encode("utf-8", "replace").decode(),
            "metadata": metadata if isinstance(metadata, dict) else {}}
