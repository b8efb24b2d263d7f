"""Reports -> files: JSON and HTML a learner in two views, the gradebook, forms for other systems.

Every byte follows from the reports and the manual marks; no clock, no machine, no order of work.
"""

import csv
import io
import json
import math
import os
import re
from collections import Counter
from pathlib import Path

from mgpt.course.grade import pages
from mgpt.course.grade.grading import GRADED, digest, learner_view

MANUAL_COLUMNS = ("submission", "question", "points", "comment", "answer_sha256")
TABLES = ("gradebook.csv", "canvas.csv", "moodle.csv", "manual_todo.csv", "overview.html", "summary.json")


def slug(name):
    """A file name for a submission, the same everywhere: plain ASCII, told apart by a digest where that changes it."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:80] or "submission"
    return plain if plain == name else f"{plain}-{digest(name.encode())[:8]}"


def report_path(out, name):
    return Path(out) / "instructor" / f"{slug(name)}.json"


def write_text(path, text):
    """Replace a file at once; nothing is touched where it has this text already."""
    data = text.encode()
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    os.replace(part, path)


def write_json(path, value):
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n")


def read_manual(path):
    """(submission, question) -> a mark given by a person, from a CSV file.  ValueError names the line."""
    marks = {}
    with open(path, newline="", encoding="utf-8-sig") as lines:
        rows = csv.DictReader(lines)
        if not set(MANUAL_COLUMNS[:3]) <= set(rows.fieldnames or ()):
            raise ValueError(f"{path}: the first line must name {', '.join(MANUAL_COLUMNS)}")
        for row in rows:
            if not (row["points"] or "").strip():
                continue
            try:
                points = float(row["points"])
            except ValueError:
                points = math.nan
            if not math.isfinite(points) or points < 0:
                raise ValueError(f"{path}, line {rows.line_num}: points must be a number of at least 0, got "
                                 f"{row['points']!r}")
            key = _unguarded(row["submission"] or ""), row["question"] or ""
            if key in marks:
                raise ValueError(f"{path}, line {rows.line_num}: a second mark for {' '.join(key)}")
            marks[key] = {"points": int(points) if points.is_integer() else points, "comment": row.get("comment") or "",
                          "answer_sha256": row.get("answer_sha256") or ""}
    return marks


def with_marks(report, marks):
    """The report with its manual marks and its total; a mark is flagged where the answer has changed since."""
    given = []
    for (name, question), mark in sorted(marks.items()):
        if name == report["submission"]:
            now = report["free"].get(question, {}).get("sha256", "")
            changed = bool(mark["answer_sha256"]) and mark["answer_sha256"] != now
            given.append({"question": question, "points": mark["points"], "comment": mark["comment"],
                          "changed": changed})
    total = None if report["points"] is None else report["points"] + sum(mark["points"] for mark in given)
    return {**report, "manual": given, "total": total}


def write_all(out, names, marks):
    """Write everything for these submissions (their reports lie in `out`) and remove what is of no submission.

    Returns how many have each status.
    """
    out, kept = Path(out), set()
    names = sorted(names)
    reports = (_read(report_path(out, name)) for name in names)
    statistics = pages.Statistics()
    gradebook = {"rows": [], "questions": {}}
    todo = []
    for report in reports:
        report = with_marks(report, marks)
        base, seen = slug(report["submission"]), learner_view(report)
        files = {f"instructor/{base}.json": None, f"learners/{base}.json": None,
                 f"instructor/{base}.html": pages.report_page(report, instructor=True),
                 f"learners/{base}.html": pages.report_page(seen, instructor=False),
                 f"gradescope/{base}.json": None}
        for value, place in ((report, "instructor"), (seen, "learners"), (gradescope(seen), "gradescope")):
            write_json(out / place / f"{base}.json", value)
        for place, text in files.items():
            if text is not None:
                write_text(out / place, text)
        kept |= {str(out / place) for place in files}
        statistics.add(report, base)
        _add_row(gradebook, report)
        todo += _todo(report)
    tables = {
        "gradebook.csv": _gradebook(gradebook), "canvas.csv": _canvas(gradebook), "moodle.csv": _moodle(gradebook),
        "manual_todo.csv": _csv([MANUAL_COLUMNS + ("answer",), *todo]), "overview.html": statistics.page(),
        "summary.json": json.dumps(statistics.summary(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"}
    for name, text in tables.items():
        write_text(out / name, text)
    for place in ("instructor", "learners", "gradescope"):
        folder = out / place
        for path in folder.iterdir() if folder.is_dir() else ():
            if str(path) not in kept and path.is_file():
                path.unlink()
    return dict(Counter(row["status"] for row in gradebook["rows"]))


def _read(path):
    report = json.loads(path.read_text(encoding="utf-8"))
    return {name: value for name, value in report.items() if name not in ("manual", "total")}


def _add_row(gradebook, report):
    for entry in report["questions"]:
        gradebook["questions"].setdefault(entry["id"], entry["max_points"])
    manual = sum(mark["points"] for mark in report["manual"])
    gradebook["rows"].append({
        **{name: report[name] for name in ("submission", "learner", "exercise", "status", "points", "max_points",
                                           "total", "reason", "notes")},
        "manual": manual, "each": {entry["id"]: entry["points"] for entry in report["questions"]}})


def _gradebook(gradebook):
    columns = list(gradebook["questions"])
    lines = [["submission", "learner", "exercise", "status", "points", "max_points", "manual_points", "total", *columns,
              "reason"]]
    for row in gradebook["rows"]:
        first = [row[name] for name in ("submission", "learner", "exercise", "status", "points", "max_points", "manual",
                                        "total")]
        lines.append([*first, *(row["each"].get(name) for name in columns), row["reason"]])
    return _csv(lines)


def _canvas(gradebook):
    """Canvas's import: one column an exercise, the possible points in the second line; no grade where there is none."""
    columns = _exercises(gradebook)
    lines = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *columns],
             ["    Points Possible", "", "", "", "", *(columns[name] for name in columns)]]
    learners = sorted({row["learner"] for row in gradebook["rows"]})
    for learner in learners:
        totals = {row["exercise"]: row["total"] for row in gradebook["rows"] if row["learner"] == learner}
        lines.append([learner, "", "", learner, "", *(totals.get(name) for name in columns)])
    return _csv(lines)


def _moodle(gradebook):
    """For Moodle's CSV import of grades: map `username`, then each exercise's grade and feedback."""
    lines = [["username", "exercise", "grade", "feedback"]]
    for row in gradebook["rows"]:
        lines.append([row["learner"], row["exercise"], row["total"], row["reason"] or "; ".join(row["notes"])])
    return _csv(lines)


def _exercises(gradebook):
    return {row["exercise"]: row["max_points"] for row in gradebook["rows"] if row["exercise"] and row["max_points"]}


def gradescope(seen):
    """Gradescope's results.json of one submission, from the learner's view."""
    tests = [{"name": entry["id"], "score": entry["points"], "max_score": entry["max_points"],
              "status": "passed" if entry["status"] == "pass" else "failed", "output": entry["message"],
              "visibility": "visible"} for entry in seen["questions"]]
    result = {"output": seen["reason"] or "; ".join(seen["notes"]), "tests": tests, "visibility": "visible"}
    return result if seen["total"] is None else {**result, "score": seen["total"]}


def _todo(report):
    marked = {mark["question"] for mark in report["manual"] if not mark["changed"]}
    return [[report["submission"], question, None, None, answer["sha256"], answer["text"]]
            for question, answer in sorted(report["free"].items()) if question not in marked]


def _csv(lines):
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
        ["" if cell is None else _guarded(cell) for cell in line] for line in lines)
    return text.getvalue()


def _guarded(cell):
    """A cell that no spreadsheet takes for a formula."""
    if not isinstance(cell, str):
        return cell
    cell = cell.replace("\0", "")
    return f"'{cell}" if cell.lstrip()[:1] in ("=", "+", "-", "@", "|", "%") or cell[:1] in ("\t", "\r", "\n") else cell


def _unguarded(cell):
    return cell[1:] if cell[:1] == "'" and _guarded(cell[1:]) == cell else cell


def statuses(counts):
    """(graded, refused or failed) of `write_all`'s result."""
    return counts.get(GRADED, 0), sum(counts.values()) - counts.get(GRADED, 0)
