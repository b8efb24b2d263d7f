"""One submission's bytes -> one report: a function of the bytes, the checks and the options alone."""

import dataclasses
import functools
import hashlib
import json
import os
import re
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mgpt.course.grade.layers import Limits
from mgpt.course.judge import BLANK, ERROR, FAIL, HARD_CODED, PASS, Result, judge
from mgpt.course.questions import find, questions
from mgpt.course.submission import LARGEST_FILE, NotOfThisCourse, parse
from mgpt.course.workbench import Workbench, caller
from mgpt.text import N_, _

GRADED, REFUSED, FAILED = "graded", "refused", "error"
RAISES_ON_FRESH = N_("right for the numbers of the text, but with fresh ones it raises an error "
                     "or gives no plain value")
MISSING = N_("its answer cell is missing")


@dataclass(frozen=True)
class Options:
    """What decides about points beside the submission.  seed: of the hidden cases; individual: mixed with the learner's
    name.  timeout: seconds for a cell or call."""

    seed: str = "grade"
    individual: bool = False
    timeout: float = 10.0
    limits: Limits = field(default_factory=Limits)

    def seed_of(self, learner):
        return f"{self.seed}/{learner}" if self.individual else self.seed


@dataclass(frozen=True)
class Member:
    """A submission before it is read: `name` is its name in all reports, `learner` whose it is.

    path: where it lies; `load` reads it.  exercise: the stem to assume where the notebook does not tell; refusal: why
    there is nothing to read, if so.
    """

    name: str
    learner: str
    file: str
    path: Path | None = None
    data: bytes | None = None
    exercise: str | None = None
    refusal: str | None = None

    def load(self):
        """The same with its bytes, or with the reason why it has none."""
        try:
            status = os.stat(self.path)
            if stat.S_ISDIR(status.st_mode):
                reason = f"{self.file} is a folder without a notebook; submit the .ipynb file itself"
            elif not stat.S_ISREG(status.st_mode):
                reason = f"{self.file} is no ordinary file; submit the .ipynb file itself"
            elif status.st_size > LARGEST_FILE:
                reason = f"{self.file} has {status.st_size} bytes; clear its outputs and save it again"
            else:
                return dataclasses.replace(self, path=None, data=self.path.read_bytes())
        except OSError as error:
            reason = f"{self.file} cannot be read: {error.strerror}; submit it again"
        return dataclasses.replace(self, path=None, data=b"", refusal=reason)

    def key(self, options):
        """A digest of everything that the report follows from."""
        told = [self.name, self.learner, self.file, self.exercise, self.refusal, digest(self.data),
                tests_digest(), json.dumps(asdict(options), sort_keys=True)]
        return digest("\0".join(map(str, told)).encode())


def digest(data):
    return hashlib.sha256(data).hexdigest()


@functools.cache
def tests_digest():
    """sha256 over what decides about points: checks, judge, all modules they import, and the trusted notebooks.

    No seed is in it, so that a report which carries it tells nothing.
    """
    package = Path(__file__).resolve().parents[2]
    todo = [Path(__file__).resolve(), *sorted((package / "course" / "checks").glob("*.py"))]
    seen = {}
    while todo:
        file = todo.pop()
        if file in seen or not file.is_file():
            continue
        seen[file] = digest(file.read_bytes())
        text = file.read_text(encoding="utf-8")
        for name in re.findall(r"^\s*(?:from|import) (mgpt[\w.]*)(?: import ([\w, ]+))?", text, re.M):
            base = package.parent.joinpath(*name[0].split("."))
            todo += [base.with_suffix(".py"), base / "__init__.py"]
            todo += [base / f"{part.strip()}.py" for part in name[1].split(",")]
    notebooks = sorted((package.parent / "exercises").glob("*.ipynb"))
    hashes = [f"{file.relative_to(package.parent).as_posix()} {seen[file]}" for file in sorted(seen)]
    return digest("\n".join(hashes + [f"{file.name} {digest(file.read_bytes())}" for file in notebooks]).encode())


def read_member(member):
    """The Submission in a loaded member, or the reason of a refusal as text; None for a notebook without any code."""
    if member.refusal:
        return member.refusal
    try:
        return parse(member.data, member.file, member.exercise)
    except NotOfThisCourse as error:
        return None if error.empty else str(error)
    except ValueError as error:
        return str(error)


def grade(member, options, nursery_of):
    """The report of one submission as plain data, instructor's view.

    nursery_of(stem) gives the zygote to use.  A submission never raises; a fault of the grader itself is a report
    with the status "error".
    """
    report = {"submission": member.name, "learner": member.learner, "file": member.file, "exercise": None,
              "status": GRADED, "reason": "", "points": 0, "max_points": 0, "notes": [], "questions": [], "free": {},
              "sha256": {"submission": digest(member.data), "tests": tests_digest()}, "key": member.key(options)}
    submission = read_member(member)
    if isinstance(submission, str):
        return {**report, "status": REFUSED, "reason": submission, "points": None, "max_points": None}
    if submission is None:
        return {**report, "notes": ["the notebook has no cells: nothing to grade"]}
    report |= {"exercise": submission.stem, "notes": sorted(set(submission.notes), key=submission.notes.index),
               "free": {question_id: {"text": text, "sha256": digest(text.encode())}
                        for question_id, text in submission.free.items()}}
    try:
        found = _judge(submission, options, options.seed_of(member.learner), nursery_of(submission.stem))
    except Exception as error:
        return {**report, "status": FAILED, "points": None, "max_points": None,
                "reason": f"the grader failed, not the submission: {type(error).__name__}: {error}"}
    return {**report, "questions": found, "points": sum(q["points"] for q in found),
            "max_points": sum(q["max_points"] for q in found)}


def _judge(submission, options, seed, nursery):
    """A dict a question.  Every visible case is called before any hidden one, so that what an answer gives for a
    visible case (which its learner sees) cannot carry hidden numbers out."""
    with Workbench(submission.cells, options.timeout, nursery, submission.answers.values()) as bench:
        known = questions(submission.stem)
        calls = {question_id: caller(bench, known[question_id], cell)
                 for question_id, cell in submission.answers.items()}
        seen = {question_id: judge(dataclasses.replace(known[question_id], fresh=0), call, seed)
                for question_id, call in calls.items()}
        return [_entry(question, seen.get(question_id), calls.get(question_id), seed)
                for question_id, question in known.items()]


def _entry(question, visible, call, seed):
    if call is None:
        visible = full = Result(question.id, ERROR, 0, question.points, _(MISSING))
    elif visible.status in (PASS, FAIL):
        full = judge(question, call, seed)
        full = visible if visible.status != PASS and full.status != FAIL else full
    else:
        full = visible
    message = full.message  # where a visible case is wrong, it is about that one
    if visible.passed and not full.passed:
        mistake = next((m for m in question.mistakes if m.name == full.mistake), None)
        message = _(RAISES_ON_FRESH) if full.status in (ERROR, BLANK) else _(HARD_CODED)
        if mistake:
            message += f" ({_(mistake.message)})"
    return {"id": question.id, "points": full.points, "max_points": full.max_points, "status": full.status,
            "message": message, "misconception": full.mistake, "full_message": full.message}


def learner_view(report):
    """The report without anything hidden: what a learner may keep."""
    questions_seen = [{name: value for name, value in entry.items() if name != "full_message"}
                      for entry in report["questions"]]
    for entry in questions_seen:
        entry["hints"] = [] if entry["status"] == PASS else [_(hint) for hint in find(entry["id"]).hints]
    kept = {name: value for name, value in report.items() if name not in ("key", "free")}
    return {**kept, "questions": questions_seen}


