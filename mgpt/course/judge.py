"""The verdict on one answer.  Nothing of the learner's runs here: a `call` brings plain values.

The same judge serves the notebook (where `call` calls the function) and the grader (where it asks another process).
"""

from dataclasses import dataclass

from mgpt.course.plain import agrees
from mgpt.text import N_, _

PASS, FAIL, BLANK, ERROR = N_("pass"), N_("fail"), N_("not attempted"), N_("error")

MISSING_VALUE = N_("it gives back None: is a `return` missing?")
NO_LETTER = N_("a choice is answered with one small letter in quotes, like \"a\"")
HARD_CODED = N_("right for the numbers of the text, wrong for fresh ones: the answer must follow from the arguments")


class AnswerRaised(Exception):
    """The learner's code raised, or gave what cannot be compared.  `blank`: it is the untouched stub."""

    def __init__(self, message, blank=False):
        super().__init__(message)
        self.blank = blank


@dataclass(frozen=True)
class Result:
    """points of max_points; message is for the learner; mistake names the known wrong answer, if it is one."""

    id: str
    status: str
    points: int
    max_points: int
    message: str
    mistake: str | None = None

    @property
    def passed(self):
        return self.status == PASS

    def __str__(self):
        mark = {PASS: "✓", FAIL: "✗", BLANK: "·", ERROR: "!"}[self.status]
        return f"{mark} {self.id}: {self.message}"


def judge(question, call, seed="practice"):
    """Result of a question: every visible case and the fresh ones of `seed`, all or nothing.

    call(*args) returns a plain value or raises AnswerRaised.
    """
    visible, hidden = question.cases, question.fresh_cases(seed)
    seen, first_wrong = [], None  # seen: (case, got), for naming the mistake
    for number, case in enumerate(visible + hidden):
        try:
            got = call(*case.args)
        except AnswerRaised as raised:
            if raised.blank:
                return _result(question, BLANK, _("not attempted yet"))
            if first_wrong is None:
                return _result(question, ERROR, f"{_shown(question, case, number, visible)}: {raised}")
            continue
        seen.append((case, got))
        if first_wrong is None and (fault := _fault(question, case, got)) is not None:
            first_wrong, first_fault = (number, case, got), fault
    if first_wrong is None:
        return _result(question, PASS, _("right"), points=question.points)
    number, case, got = first_wrong
    if question.verdict is not None:
        return _unmet(question, first_fault, _shown(question, case, number, visible), got, number >= len(visible))
    mistake = _known_mistake(question, seen, first_wrong)
    if mistake is not None:
        message = _(mistake.message)
    elif got is None:
        message = _(MISSING_VALUE)
    elif question.is_choice:
        message = _(NO_LETTER)
    elif number >= len(visible) > 0:
        message = _(HARD_CODED)
    elif question.whole and agrees(got, case.expected, question.tolerance):
        message = _("the value is right, but it must be an int: counts and bytes are whole")
    else:
        message = _("not what is asked for")
    if not question.is_choice:
        where = _shown(question, case, number, visible)
        message = _("{call} gave {got}, expected {expected}: {message}").format(
            call=where, got=_short(_telling(question, got, case.expected)),
            expected=_short(_telling(question, case.expected, got)), message=message)
    return _result(question, FAIL, message, mistake=mistake and mistake.name)


def _fault(question, case, got):
    """None where `got` is right; else (the name of its mistake or None, a sentence or None)."""
    if question.verdict is not None:
        return question.verdict(got, *case.args)
    return None if agrees(got, case.expected, question.tolerance, question.whole) else (None, None)


def _unmet(question, fault, where, got, fresh):
    """The Result of a value that a verdict refuses: what is wrong with it, and by how much."""
    name, sentence = fault
    mistake = None if fresh else next((m for m in question.mistakes if m.name == name), None)
    why = _(HARD_CODED) if fresh else _(mistake.message) if mistake else ""
    message = _("{call} gave {got}: {why}").format(
        call=where, got=_short(got, 240), why="; ".join(part for part in (sentence, why) if part))
    return _result(question, FAIL, message, mistake=mistake and mistake.name)


def _known_mistake(question, seen, first_wrong):
    """The mistake that explains every value seen; else one that explains the first wrong value; else None."""
    def explains(mistake, case, got):
        try:
            return agrees(got, mistake.wrong(*case.args), question.tolerance, question.whole)
        except (ArithmeticError, ValueError, IndexError, TypeError):
            return False

    matching = [m for m in question.mistakes if explains(m, *first_wrong[1:])]
    matching.sort(key=lambda m: -sum(explains(m, case, got) for case, got in seen))  # stable: first named wins a tie
    return matching[0] if matching else None


def _result(question, status, message, points=0, mistake=None):
    return Result(question.id, status, points, question.points, message, mistake)


def _shown(question, case, number, visible):
    if question.is_choice:
        return question.asks_for
    return f"{question.asks_for}({', '.join(_short(arg) for arg in case.args)})"


def _telling(question, value, other):
    """`value`; of two dicts with the entries in front in which they differ: what follows may be cut off."""
    if type(value) is not dict or type(other) is not dict:
        return value
    return dict(sorted(value.items(), key=lambda item: item[0] in other and agrees(
        item[1], other[item[0]], question.tolerance, question.whole)))


def _short(value, limit=120):
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit - 1]}…"
