"""What a question is: checks as data, used alike by the learner's notebook, the grader and the tests."""

import functools
import importlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STEM_PATTERN = re.compile(r"\d\d?_\w+")


@dataclass(frozen=True)
class Case:
    """One call that a right answer must get right; for a choice, `args` is empty."""

    args: tuple
    expected: Any


@dataclass(frozen=True)
class Mistake:
    """A known wrong answer: `wrong(*args)` gives its value, `message` names the cause."""

    name: str
    wrong: Callable
    message: str


@dataclass(frozen=True)
class Question:
    """One graded answer.

    id: "stem.name".  asks_for: the name of the function (or, for a choice, of the variable) in the notebook.
    cases: the visible ones.  reference(*args) is the right answer and draw(rng) gives fresh arguments for the
    hidden cases, `fresh` of them; a choice has neither.  verdict: for a question with many right answers, of which
    `expected` is one: verdict(value, *args) is None for a right one, else (the name of its mistake or None, what is
    wrong with it in a sentence).  stands_for: what `mgpt` itself calls the function that is
    asked for, so that an answer which merely calls it can be told.
    """

    id: str
    asks_for: str
    points: int
    cases: tuple[Case, ...]
    mistakes: tuple[Mistake, ...]
    hints: tuple[str, str, str]
    reference: Callable | None = None
    draw: Callable[[random.Random], tuple] | None = None
    fresh: int = 5
    tolerance: float = 1e-9
    whole: bool = False
    verdict: Callable | None = None
    stands_for: tuple[str, ...] = field(default=())

    @property
    def stem(self):
        return self.id.split(".")[0]

    @property
    def is_choice(self):
        """True where a value is asked for, not a function."""
        return self.reference is None

    @property
    def grade_id(self):
        """The nbgrader id of the answer cell; its test cell has the same with "-test"."""
        return self.id.replace(".", "-")

    def fresh_cases(self, seed):
        """Hidden cases for one seed: the same seed gives the same numbers on every Python and NumPy."""
        if self.is_choice:
            return ()
        rng = random.Random(f"{seed}/{self.id}")
        drawn = [self.draw(rng) for _ in range(self.fresh)]
        return tuple(Case(args, self.reference(*args)) for args in drawn)


def choice(question_id, asks_for, right, wrong, hints, points=1):
    """A Question whose answer is one letter; `wrong` maps each other letter to the sentence that says why not."""
    def gives(letter):
        return lambda: letter

    mistakes = tuple(Mistake(f"chose {letter}", gives(letter), message) for letter, message in wrong.items())
    return Question(question_id, asks_for, points, (Case((), right),), mistakes, hints)


def stems():
    """The stems that have checks, in reading order."""
    return sorted(path.stem for path in (Path(__file__).parent / "checks").glob("[0-9]*.py"))


@functools.lru_cache
def questions(stem):
    """The questions of one stem, in order.  ValueError where there is no such stem."""
    if stem not in stems():
        raise ValueError(f"no exercise {stem!r}; there are {', '.join(stems())}")
    found = importlib.import_module(f"mgpt.course.checks.{stem}").QUESTIONS
    return {question.id: question for question in found}


def find(question_id):
    """The question with this id.  ValueError lists what there is."""
    stem = str(question_id).split(".")[0]
    if question_id not in (known := questions(stem)):
        raise ValueError(f"no question {question_id!r}; {stem} has {', '.join(known)}")
    return known[question_id]
