"""A learner's notebook file, read tolerantly: which cells answer which question."""

import ast
import functools
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from mgpt.course.questions import questions, stems

LARGEST_FILE = 300_000_000
FREE_STUB = "*Your answer:*"  # what the released notebook has there


class NotOfThisCourse(ValueError):
    """A notebook in which nothing says which exercise it is.  `empty`: it has no code at all."""

    def __init__(self, message, empty):
        super().__init__(message)
        self.empty = empty


@dataclass(frozen=True)
class Submission:
    """stem: which exercise it is.  cells: sources of the code cells to run, in order, test cells left out.
    answers: question id -> index into `cells`.  free: question id -> the learner's own words, where there are any.
    notes: what was unusual, in words."""

    stem: str
    cells: tuple[str, ...]
    answers: dict[str, int]
    notes: tuple[str, ...]
    free: dict[str, str] = field(default_factory=dict)


def read(path):
    """The Submission in a notebook file.  ValueError, in one line, for what is no notebook of this course."""
    path = Path(path)
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; clear its outputs and save it again")
    return parse(path.read_bytes(), path)


def parse(data, name, exercise=None):
    """The Submission in a notebook file's bytes; `name` is for messages, and its stem a hint.

    exercise: the stem to assume where the notebook does not tell.
    """
    cells = _cells(data, name)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    stem = _stem(cells, code, Path(name).stem) or exercise
    if stem is None:
        empty = not any(cell["source"].strip() for cell in code)
        raise NotOfThisCourse(f"{name}: no cell carries a grade_id of this course, and its name is no exercise's "
                              f"({', '.join(stems())}); start from a notebook of exercises/", empty)
    return _match(cells, code, stem)


def _stem(cells, code, file_stem):
    """Which exercise: by grade_ids, else by the file's name, else by the names of the functions asked for."""
    by_grade_id = {f"{q.grade_id}{role}": stem for stem in stems() for q in questions(stem).values()
                   for role in ("", "-test", "-free")}
    found = [by_grade_id[_grade_id(cell)] for cell in cells if _grade_id(cell) in by_grade_id]
    if not found and file_stem in stems():
        return file_stem
    if not found:
        defined = set().union(*(_defines(cell["source"]) for cell in code))
        found = [stem for stem in stems() for q in questions(stem).values()
                 if not q.is_choice and q.asks_for in defined]
    return max(sorted(set(found)), key=found.count) if found else None


def _match(cells, code, stem):
    known = questions(stem)
    tests = {f"{question.grade_id}-test" for question in known.values()}
    code = [cell for cell in code if _grade_id(cell) not in tests]
    if not any(_grade_id(cell) for cell in cells):  # metadata lost: the generated tests are known by their call
        code = [cell for cell in code if "assert" not in cell["source"] or "check(" not in cell["source"]]
    chosen, notes, dropped = {}, [], set()  # question id -> index into code
    for question in known.values():
        copies = [i for i, cell in enumerate(code) if _grade_id(cell) == question.grade_id]
        if not copies:
            copies = [i for i, cell in enumerate(code) if question.asks_for in _defines(cell["source"])]
            if copies:
                notes.append(f"{question.id}: the cell's metadata is lost; found by its name {question.asks_for}")
        if len(copies) > 1:
            copies = [i for i in copies if code[i]["source"].strip()] or copies
            notes.append(f"{question.id}: {len(copies)} answer cells; the last one counts")
            # The others are not run at all: what they define must not stand in for the one that counts.
            dropped |= set(copies[:-1])
        if copies:
            chosen[question.id] = copies[-1]
    sources = [cell["source"] for cell in code]
    order = _transplanted(stem, sources, chosen, dropped - set(chosen.values()), notes)
    answers = {question_id: place for place, (source, question_ids) in enumerate(order) for question_id in question_ids}
    return Submission(stem, tuple(source for source, _ in order), answers, tuple(notes), _free(cells, known))


def _transplanted(stem, sources, chosen, dropped, notes):
    """(source, ids of the questions it answers) in the order to run: the trusted notebook's cells with the learner's
    answers in their places, each other cell of the learner's behind the one it stood behind."""
    answered = {}
    for question_id, index in chosen.items():
        answered.setdefault(index, []).append(question_id)
    trusted = trusted_cells(stem)
    places = {}  # what a cell of the trusted notebook is known by -> its index in the learner's notebook
    for key, source in trusted:
        if key in chosen:
            places[key] = chosen[key]
        elif source is not None and source in sources:
            places[key] = sources.index(source)
    key_of, behind, last = {index: key for key, index in reversed(places.items())}, {None: []}, None
    for index, source in enumerate(sources):
        if index in key_of:
            last = key_of[index]
            behind.setdefault(last, [])
        elif index not in dropped:
            behind[last].append((source, answered.get(index, [])))
    order = list(behind[None])
    for key, source in trusted:
        if key in key_of.values():
            order.append((sources[places[key]], answered.get(places[key], [])))
        elif source is not None and key not in places:
            order.append((source, []))
            notes.append("a cell of the exercise is missing or changed; its own text was run")
        order += behind.get(key, [])
    return order


@functools.lru_cache
def trusted_cells(stem):
    """(key, source) of the released notebook's code cells without its tests: answers are (question id, None).

    Empty where the course is installed without its exercises; the learner's own order is kept then.
    """
    path = Path(__file__).resolve().parents[2] / "exercises" / f"{stem}.ipynb"
    if not path.is_file():
        return ()
    by_grade_id = {q.grade_id: q.id for q in questions(stem).values()}
    tests = {f"{grade_id}-test" for grade_id in by_grade_id}
    code = [cell for cell in _cells(path.read_bytes(), path) if cell["cell_type"] == "code"]
    return tuple((by_grade_id[_grade_id(cell)], None) if _grade_id(cell) in by_grade_id
                 else (f"cell {i}", cell["source"])
                 for i, cell in enumerate(code) if _grade_id(cell) not in tests)


def _free(cells, known):
    """question id -> the words of its free answer: the last cell with its grade_id that is not the stub."""
    by_grade_id = {f"{question.grade_id}-free": question.id for question in known.values()}
    words = {}
    for cell in cells:
        text = cell["source"].replace(FREE_STUB, "").strip()
        if _grade_id(cell) in by_grade_id and text:
            words[by_grade_id[_grade_id(cell)]] = text
    return words


def _grade_id(cell):
    meta = cell["metadata"].get("nbgrader")
    grade_id = meta.get("grade_id") if isinstance(meta, dict) else None
    return grade_id if isinstance(grade_id, str) else None


def _defines(source):
    """Names that a cell's top level defines; of what does not parse, those of `def name` and `name =`."""
    try:
        body = ast.parse(source).body if len(source) < 50_000 else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        body = None
    if body is None:
        return set(re.findall(r"^(?:def\s+)?(\w+)\s*[(=]", source, flags=re.M))
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return functions | {t.id for node in body if isinstance(node, ast.Assign)
                        for t in node.targets if isinstance(t, ast.Name)}


def _cells(data, name):
    """Cells of a notebook of format 3 to 4 as dicts with cell_type, source (text) and metadata."""
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no notebook: it is not JSON{_why_not_json(data, error)}") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("nbformat"), int):
        raise ValueError(f"{name} is no notebook: it has no nbformat; submit the .ipynb file itself")
    if notebook["nbformat"] not in (3, 4):
        raise ValueError(f"{name} has notebook format {notebook['nbformat']}; formats 3 and 4 are read: save it as 4")
    if notebook["nbformat"] == 3:
        sheets = notebook.get("worksheets") or [{}]
        sheets = [sheet for sheet in sheets if isinstance(sheet, dict)] if isinstance(sheets, list) else []
        raw = [cell for sheet in sheets for cell in sheet.get("cells") or [] if isinstance(sheet.get("cells"), list)]
    else:
        raw = notebook.get("cells")
    if not isinstance(raw, list):
        raise ValueError(f"{name} is no notebook: it has no list of cells; open it in Jupyter and save it again")
    return [_cell(cell) for cell in raw if isinstance(cell, dict)]


def _why_not_json(data, error):
    """Place and remedy, for the ways in which notebooks really break."""
    if not data.strip():
        return f": it is empty ({len(data)} bytes); save the notebook and submit it again"
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return " in UTF-8 but UTF-16 text; save it as UTF-8, as Jupyter does"
    place = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
    conflict = re.search(rb"^(<<<<<<<|=======|>>>>>>>)( |$)", data, flags=re.M)
    if conflict:
        line = data[:conflict.start()].count(b"\n") + 1
        return f" at line {line}: marks of a merge conflict; resolve it, open the notebook in Jupyter and save it"
    return f"{place}; open it in Jupyter and save it again"


def _cell(cell):
    source = cell.get("source", cell.get("input", ""))
    source = "".join(map(str, source)) if isinstance(source, list) else str(source)
    metadata = cell.get("metadata")
    # A lone surrogate cannot be encoded, and no answer needs one.
    return {"cell_type": cell.get("cell_type"), "source": source.encode("utf-8", "replace").decode(),
            "metadata": metadata if isinstance(metadata, dict) else {}}
