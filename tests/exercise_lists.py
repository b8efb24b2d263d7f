"""The laws of every exercise, over a stem's lists of right and wrong answers.

A test module of a stem defines RIGHT = {name: [functions]} and WRONG = {name: {mistake: function}} for its questions
that ask for functions, and calls `install(globals(), STEM, RIGHT, WRONG)`.
"""

import pytest

from mgpt.course.judge import FAIL, PASS, judge
from mgpt.course.notebook import caller
from mgpt.course.plain import agrees
from mgpt.course.questions import find, questions

SEEDS = range(8)


def result_of(stem, name, answer, seed="test"):
    """The Result of an answer, judged as in a notebook."""
    question = find(f"{stem}.{name}")
    return judge(question, caller(question, answer), seed)


def spoil(right, **change):
    """A wrong answer: the right one's dict with some entries computed otherwise, from (right dict, *args)."""
    def answer(*args):
        result = right(*args)
        return {**result, **{key: wrong(result, *args) for key, wrong in change.items()}}

    return answer


def install(module, stem, right, wrong):
    """Put the tests of one stem into a test module's namespace."""
    asked = {q.id.split(".")[1]: q for q in questions(stem).values()}
    functions = [name for name, q in asked.items() if not q.is_choice]
    choices = [name for name, q in asked.items() if q.is_choice]

    def test_every_question_is_in_the_lists():
        assert sorted(right) == sorted(wrong) == sorted(functions)

    @pytest.mark.parametrize("name, answer", [(n, a) for n, answers in right.items() for a in answers])
    def test_a_right_answer_passes_however_it_is_written(name, answer):
        result = result_of(stem, name, answer)
        assert (result.status, result.points) == (PASS, result.max_points), result.message

    @pytest.mark.parametrize("name, mistake", [(n, m) for n, wrongs in wrong.items() for m in wrongs])
    def test_a_known_wrong_answer_fails_with_the_message_of_its_cause(name, mistake):
        result = result_of(stem, name, wrong[name][mistake])
        assert (result.status, result.points, result.mistake) == (FAIL, 0, mistake), result.message
        assert next(m.message for m in asked[name].mistakes if m.name == mistake) in result.message

    @pytest.mark.parametrize("name", functions)
    def test_the_list_of_wrong_answers_is_whole_and_each_has_its_own_message(name):
        mistakes = asked[name].mistakes
        assert {m.name for m in mistakes} == set(wrong[name])
        assert len(mistakes) >= 8 and len(right[name]) >= 3
        assert len({m.message for m in mistakes}) == len(mistakes)

    @pytest.mark.parametrize("name", functions)
    def test_a_wrong_answer_returns_the_right_type(name):
        """A mistake of the list is a wrong value, never a crash or another kind of value."""
        for case in asked[name].cases:
            model = right[name][0](*case.args)
            for answer in wrong[name].values():
                value = answer(*case.args)
                assert type(value) is type(model)
                assert not isinstance(model, dict) or value.keys() == model.keys()

    @pytest.mark.parametrize("name", functions)
    def test_hard_coded_visible_values_pass_the_visible_cases_only(name):
        table = {repr(case.args): case.expected for case in asked[name].cases}
        last = list(table.values())[-1]
        result = result_of(stem, name, lambda *args: table.get(repr(args), last))
        assert result.status == FAIL and result.mistake is None and "fresh" in result.message

    @pytest.mark.parametrize("name", functions)
    def test_the_visible_cases_are_what_the_reference_gives(name):
        question = asked[name]
        for case in question.cases:
            assert agrees(question.reference(*case.args), case.expected, question.tolerance, question.whole)

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("name", functions)
    def test_no_seed_lets_a_known_mistake_pass_or_a_right_answer_fail(name, seed):
        assert result_of(stem, name, right[name][0], seed).passed
        for mistake, answer in wrong[name].items():
            assert not result_of(stem, name, answer, seed).passed, mistake

    @pytest.mark.parametrize("name", choices)
    def test_every_wrong_choice_says_why_not(name):
        question = asked[name]
        letters, expected = {"a", "b", "c", "d"}, question.cases[0].expected
        assert {m.name for m in question.mistakes} == {f"chose {letter}" for letter in letters - {expected}}
        assert judge(question, caller(question, expected)).passed
        messages = [judge(question, caller(question, letter)).message for letter in sorted(letters - {expected})]
        assert len(set(messages)) == 3
        for other in ("", expected.upper() + "!", 2, [expected], True):
            assert judge(question, caller(question, other)).points == 0

    def test_every_question_has_three_different_hints():
        assert all(len(set(question.hints)) == 3 for question in asked.values())

    module.update({name: test for name, test in locals().items() if name.startswith("test_")})
