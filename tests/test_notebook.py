"""check, hint and progress: they say something useful, never raise, and show no traceback."""

import numpy as np
import pytest

from mgpt.course.judge import BLANK, ERROR, FAIL, PASS
from mgpt.course.notebook import Session
from mgpt.course.plain import NotPlain, agrees, dumps, plain
from mgpt.course.questions import find, stems

Q2, Q2_WHY = "30_8_exercises.q2", "30_8_exercises.q2_why"


def stub(prompt_len, outputs_chosen):
    raise NotImplementedError("replace this line by your answer")


def changes_its_list(arrival, token_times):
    token_times.sort(reverse=True)
    return {"ttft": 0, "gaps": [], "tpot": None, "e2e": 0}


def quits(p, g):
    raise SystemExit


@pytest.mark.parametrize("question, answer, status, words", [
    (Q2, lambda p, g: p + g - 1, PASS, "right"),
    (Q2, lambda p, g: p + g, FAIL, "cached_positions(10, 1) gave 11, expected 10: the last output has been chosen"),
    (Q2, lambda p, g: None, FAIL, "return"),
    (Q2, lambda p, g: float(p + g - 1), FAIL, "must be an int"),
    (Q2, lambda p, g: 12345, FAIL, "gave 12345, expected 10"),
    (Q2, stub, BLANK, "not attempted"),
    (Q2, ..., BLANK, "not attempted"),
    (Q2, None, BLANK, "not attempted"),
    (Q2, 10, ERROR, "must be a function"),
    (Q2, lambda p, g: 1 / 0, ERROR, "it raised ZeroDivisionError"),
    (Q2, quits, ERROR, "it raised SystemExit"),
    (Q2, lambda p, g: (i for i in range(p)), ERROR, "generator cannot be compared"),
    (Q2, lambda p, g: {0: p}, ERROR, "a dict with a key of type int cannot be compared; its keys must be text"),
    (Q2, lambda p: p, ERROR, "it raised TypeError"),
    ("30_8_exercises.q1", changes_its_list, ERROR, "changed its arguments"),
    (Q2_WHY, "c", PASS, "right"),
    (Q2_WHY, "d", FAIL, "nothing is overwritten"),
    (Q2_WHY, ..., BLANK, "not attempted"),
    ("30_8_exercises.q99", lambda: 0, ERROR, "no question"),
    ("no_such", lambda: 0, ERROR, "30_8_exercises"),
    (None, lambda: 0, ERROR, "no exercise"),
])
def test_check_says_what_is_right_or_wrong_and_never_raises(capsys, question, answer, status, words):
    result = Session().check(question, answer)
    out, err = capsys.readouterr()
    assert result.status == status and result.points == (result.max_points if status == PASS else 0)
    assert words in out and "Traceback" not in out and err == ""


def test_of_a_long_dict_the_entries_that_differ_are_shown_whatever_is_cut_off(capsys):
    question = find("14_kv_quantization.q2")
    right = {repr(case.args): case.expected for case in question.cases}
    wrong = {"scales": lambda right: right["scales"], "restored": lambda right: right["restored"],
             "worst": lambda right: right["worst"], "nbytes": lambda right: -right["nbytes"]}
    Session().check(question.id, lambda *args: {key: value(right[repr(args)]) for key, value in wrong.items()}
                    if repr(args) in right else None)
    out = capsys.readouterr().out
    assert "gave {'nbytes': -30, " in out and "expected {'nbytes': 30, " in out and "…" in out


def test_a_fresh_number_cannot_be_hard_coded(capsys):
    result = Session().check(Q2, lambda p, g: {1: 10, 2: 11}.get(g, 11))
    assert result.status == FAIL and "fresh" in capsys.readouterr().out


def test_an_endless_recursion_is_an_error_not_a_crash():
    def deeper(p, g):
        return deeper(p, g)

    assert "RecursionError" in Session().check(Q2, deeper).message


def test_hints_open_one_after_the_other_and_the_last_stays(capsys):
    session, question = Session(), Q2
    for _ in range(4):
        session.hint(question)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["Hint 1 of 3", "Hint 2 of 3", "Hint 3 of 3", "Hint 3 of 3"]
    assert lines[2] == lines[3] != lines[1]
    session.hint("30_8_exercises.q99")
    assert "no question" in capsys.readouterr().out


def test_progress_counts_what_was_checked_in_this_notebook(capsys):
    session = Session()
    session.progress()
    out = capsys.readouterr().out
    assert "0 of 22 points" in out and len(out.splitlines()) == len(stems())  # one line an exercise, no wall of questions
    assert len({line.index("░") for line in out.splitlines()}) == 1  # the bars stand below each other
    session.check(Q2, lambda p, g: p + g - 1)
    session.check(Q2_WHY, "d")
    capsys.readouterr()
    session.progress()
    out = capsys.readouterr().out
    assert "2 of 22 points" in out and f"✓ {Q2} " in out and f"✗ {Q2_WHY} " in out
    session.check(Q2, lambda p, g: 0)  # a later check counts, for better or worse
    capsys.readouterr()
    session.progress()
    assert "0 of 22 points" in capsys.readouterr().out


@pytest.mark.parametrize("answer", ["C", "TPOT", "", 3, ["c"]])
def test_a_choice_that_is_no_letter_is_told_the_form_and_nothing_of_the_answer(answer):
    result = Session().check(Q2_WHY, answer)
    assert result.status == FAIL and result.message == 'a choice is answered with one small letter in quotes, like "a"'


# ------------------------------------------------------------------ what counts as equal
@pytest.mark.parametrize("got, expected, equal", [
    (1, 1.0, True), (1.0, 1, True), (np.int64(3), 3, True), (np.array([1, 2]), [1, 2], True), ((1, 2), [1, 2], True),
    (True, 1, False), (1, True, False), (None, 0, False), (0, None, False), ("1", 1, False), ([1], 1, False),
    ([1, 2], [1, 2, 3], False), ({"a": 1}, {"a": 1, "b": 2}, False), ({"b": 1}, {"a": 1}, False),
    (0.1 + 0.2, 0.3, True), (0.3 + 1e-7, 0.3, False), (float("nan"), float("nan"), True), (float("nan"), 1.0, False),
    (float("inf"), float("inf"), True), (1e-13, 0.0, True), (1e-9, 0.0, False), (2**60 + 1, 2**60, True),
    (float("nan"), None, False), (10**400, 1.0, False), (10**400, 10**400, True), (1, 10**400, False),
    (float("nan"), 10**400, False),
])
def test_agrees_compares_values_not_types_but_keeps_truth_and_absence_apart(got, expected, equal):
    assert agrees(got, expected) is equal


def test_whole_wants_an_exact_int():
    assert agrees(2**60, 2**60, whole=True)
    assert not agrees(2**60 + 1, 2**60, whole=True)
    assert not agrees(3.0, 3, whole=True)
    assert agrees(3, 3.0, whole=True)  # a float is expected: a whole number is one, too


class Liar(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class ListLiar(list):
    pass


@pytest.mark.parametrize("value", [Liar(3), ListLiar([3]), object(), {1, 2}, {1: 2}, b"x", 1j, np.array(["a"]), lambda: 0, [Liar(1)]])
def test_only_exact_plain_values_cross_to_the_judge(value):
    with pytest.raises(NotPlain):
        plain(value)
    assert not agrees(value, 3)


def test_a_value_that_contains_itself_or_is_huge_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises((NotPlain, RecursionError)):
        dumps(loop)
    with pytest.raises(NotPlain, match="too large"):
        dumps("x" * 2_000_000)
