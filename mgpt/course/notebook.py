"""What a learner calls: `check`, `hint`, `progress`.  They print, never raise, and show no traceback."""

import copy

from mgpt.course.judge import BLANK, ERROR, FAIL, PASS, AnswerRaised, Result, judge
from mgpt.course.plain import NotPlain, agrees, plain
from mgpt.course.questions import find, questions, stems
from mgpt.text import _


class Session:
    """What has been checked and which hints were opened since the notebook was started."""

    def __init__(self):
        self.results = {}
        self.hints_open = {}

    def check(self, question_id, answer):
        """Print and return the Result for an answer: a function, or the value of a choice."""
        try:
            question = find(question_id)
        except ValueError as error:
            print(f"! {error}")
            return Result(str(question_id), ERROR, 0, 0, str(error))
        result = judge(question, caller(question, answer))
        self.results[question.id] = result
        print(result)
        if result.status == FAIL:
            print("  " + _('A hint: hint("{id}")').format(id=question.id))
        return result

    def hint(self, question_id):
        """Print the next of three hints, from a nudge to the way itself; the third stays."""
        try:
            hints = find(question_id).hints
        except ValueError as error:
            print(f"! {error}")
            return
        number = min(self.hints_open.get(question_id, 0) + 1, len(hints))
        self.hints_open[question_id] = number
        print(_("Hint {number} of {total}: {text}").format(number=number, total=len(hints), text=_(hints[number - 1])))

    def progress(self):
        """Print the points of each exercise checked so far, with a line a question; of all, points alone, before."""
        begun = {result_id.split(".")[0] for result_id in self.results}
        shown = sorted(begun) or stems()
        width = max(map(len, shown))
        for stem in shown:
            found = questions(stem).values()
            points = sum(self.results[q.id].points for q in found if q.id in self.results)
            total = sum(q.points for q in found)
            filled = round(20 * points / total)
            print(f"{stem:<{width}}  {'█' * filled}{'░' * (20 - filled)}  " + _("{points} of {total} points").format(
                points=points, total=total))
            for question in found if begun else ():
                status = self.results[question.id].status if question.id in self.results else BLANK
                mark = {PASS: "✓", FAIL: "✗", BLANK: "·", ERROR: "!"}[status]
                print(f"  {mark} {question.id:<28} {_(status)}")


def caller(question, answer):
    """call(*args) for the judge, over the learner's own object in this process."""
    def call(*args):
        if answer is Ellipsis or answer is None:
            raise AnswerRaised("", blank=True)
        if question.is_choice:
            return _plain(answer)
        if not callable(answer):
            raise AnswerRaised(_("{name} must be a function, this is {type}").format(
                name=question.asks_for, type=type(answer).__name__))
        given = copy.deepcopy(args)
        try:
            value = answer(*given)
        except NotImplementedError:
            raise AnswerRaised("", blank=True) from None
        except (Exception, SystemExit) as error:
            raise AnswerRaised(raised(error)) from None
        return unchanged(_plain(value), agrees(given, args, tolerance=0.0))

    return call


def raised(error):
    """One line for an exception of the learner's code."""
    text = " ".join(str(error).split())
    return _("it raised {type}: {text}").format(type=type(error).__name__, text=text[:200])


def unchanged(value, same):
    """`value`, unless the answer changed its arguments."""
    if not same:
        raise AnswerRaised(_("it changed its arguments; work on a copy"))
    return value


def _plain(value):
    try:
        return plain(value)
    except NotPlain as error:
        raise AnswerRaised(str(error)) from None


_session = Session()
check, hint, progress = _session.check, _session.hint, _session.progress
