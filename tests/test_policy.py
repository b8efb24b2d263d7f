"""The policy-update task and its evaluation: laws of the questions, and MG-2's exact counts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt import policy
from mgpt.blocks import BlockPool, PagedKVCache
from mgpt.cache import KVCache
from mgpt.checkpoint import load_mg2, mg2_card
from mgpt.generate import generate_cached, generate_full_prefix
from mgpt.policy import ITEMS, SPLITS, VALUES, VOCABULARY, Policy, Question, draw_policy, questions, split_of
from mgpt.policy_eval import Evaluation, evaluate
from mgpt.quantize import quantize_params
from mgpt.quantized_cache import QuantizedKVCache

SETS = {(split, hard): questions(split, hard) for split in ("calibration", "held_out") for hard in (False, True)}


def pairs(asked):
    return {pair for question in asked for pair in question.policy.lines + question.policy.updates}


# The task


def test_the_vocabulary_is_40_different_words():
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 40
    assert len(ITEMS) == 22


def test_each_pair_has_one_split_and_every_item_and_last_digit_has_some_of_each():
    held_out = [(item, value) for item in ITEMS for value in VALUES if split_of(item, value) == "held_out"]
    calibration = [(item, value) for item in ITEMS for value in VALUES if split_of(item, value) == "calibration"]
    assert (len(held_out), len(calibration)) == (3600, 1800)  # of 19,800: 2/11 and 1/11
    for some in (held_out, calibration):
        assert {(item, value % 10) for item, value in some} == set(itertools.product(ITEMS, range(10)))


def test_one_item_can_be_updated_as_often_as_the_smallest_split_has_values():
    drawn = draw_policy(np.random.PCG64(0), "calibration", 1, 80)
    assert len(set(drawn.lines + drawn.updates)) == 81


def test_the_story_of_the_book_was_never_trained_on():
    assert split_of("hotel", 600) == split_of("hotel", 750) == "held_out"
    assert split_of("train", 430) == split_of("taxi", 150) == "held_out"


@pytest.mark.parametrize("item, value, message", [
    ("spaceship", 600, "item must be one of hotel, train"), ("hotel", 99, "value must be in 100 .. 999, got 99"),
    ("hotel", 1000, "value must be in 100 .. 999"), ("hotel", 600.0, "value must be an integer"),
])
def test_a_pair_that_the_task_does_not_have_is_refused(item, value, message):
    with pytest.raises(ValueError, match=message):
        split_of(item, value)


def test_no_pair_is_in_two_of_calibration_evaluation_and_training():
    bits = np.random.PCG64(0)
    trained = pairs(Question(draw_policy(bits, "train", 7, 4), "hotel") for _ in range(500))
    calibration = pairs(SETS["calibration", False] + SETS["calibration", True])
    held_out = pairs(SETS["held_out", False] + SETS["held_out", True])
    assert not (trained & calibration or trained & held_out or calibration & held_out)
    prompts = {question.prompt for question in SETS["calibration", False] + SETS["calibration", True]}
    assert not prompts & {question.prompt for question in SETS["held_out", False] + SETS["held_out", True]}


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(0, 2**32), st.sampled_from(SPLITS), st.integers(1, 22), st.integers(0, 8))
def test_a_policy_says_every_item_once_and_updates_it_to_new_values_of_its_split(seed, split, n_items, n_updates):
    drawn = draw_policy(np.random.PCG64(seed), split, n_items, n_updates)
    items = [item for item, _ in drawn.lines]
    assert len(items) == len(set(items)) == n_items and len(drawn.updates) == n_updates
    assert {item for item, _ in drawn.updates} <= set(items)
    for item in items:
        said = drawn.values(item)
        assert len(said) == len(set(said))
    assert all(split_of(item, value) == split for item, value in drawn.lines + drawn.updates)
    assert policy.make_tokenizer().encode(drawn.text).count(VOCABULARY.index("is")) == n_items + n_updates


def test_the_latest_line_wins_and_all_before_it_are_superseded():
    twice = Policy((("hotel", 600), ("taxi", 150)), (("hotel", 650), ("hotel", 750)))
    assert twice.text == ("limit for hotel is 600. limit for taxi is 150. "
                          "update: limit for hotel is 650. update: limit for hotel is 750.")
    hotel, taxi = Question(twice, "hotel"), Question(twice, "taxi")
    assert (hotel.answer, hotel.superseded) == ("750", ("600", "650"))
    assert (taxi.answer, taxi.superseded) == ("150", ())
    assert hotel.prompt == f"{twice.text} limit for hotel? answer:"


def test_the_questions_of_a_split_are_always_the_same():
    assert questions("held_out", hard=True) == SETS["held_out", True]
    assert questions() == SETS["held_out", False]
    assert SETS["held_out", True][0].prompt == (
        "limit for concert is 373. limit for guide is 548. limit for meal is 301. limit for toll is 759. "
        "limit for hotel is 618. limit for phone is 286. limit for train is 133. update: limit for meal is 235. "
        "update: limit for guide is 698. update: limit for toll is 495. update: limit for guide is 955. "
        "limit for concert? answer:")
    assert [question.answer for question in SETS["held_out", True][:7]] == [
        "373", "955", "235", "495", "618", "286", "133"]


@pytest.mark.parametrize("hard, n, updated, length", [(False, 256, 116, 58), (True, 1344, 637, 102)])
def test_the_sets_have_their_sizes(hard, n, updated, length):
    asked = SETS["held_out", hard]
    assert len(asked) == n
    assert sum(bool(question.superseded) for question in asked) == updated
    tokenizer = policy.make_tokenizer()
    assert {len(tokenizer.encode(question.prompt)) for question in asked} == {length}


@pytest.mark.parametrize("call, message", [
    (lambda: questions("test"), "split must be one of train, calibration, held_out, got 'test'"),
    (lambda: draw_policy(np.random.PCG64(0), "held-out", 2, 1), "split must be one of"),
    (lambda: draw_policy(np.random.PCG64(0), "train", 0, 1), "n_items must be an integer >= 1, got 0"),
    (lambda: draw_policy(np.random.PCG64(0), "train", 23, 1), "n_items must be at most 22, got 23"),
    (lambda: draw_policy(np.random.PCG64(0), "train", 2, -1), "n_updates must be an integer >= 0, got -1"),
    (lambda: draw_policy(np.random.PCG64(0), "calibration", 1, 81), "n_updates must be at most 80, got 81"),
    (lambda: draw_policy(np.random.default_rng(0), "train", 2, 1), "bits must be a numpy.random.PCG64, got Generator"),
    (lambda: draw_policy(np.random.MT19937(0), "train", 2, 1), "bits must be a numpy.random.PCG64, got MT19937"),
])
def test_what_no_policy_can_be_drawn_from_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# The evaluation, over answers that are known


TWO = [Question(Policy((("hotel", 600), ("taxi", 150)), (("hotel", 750),)), item) for item in ("hotel", "taxi")]


def chooses(texts, leads=(5.0, 5.0, 5.0)):
    """An `answer` that says these texts in turn, each token with such a lead over all others."""
    left, ids = iter(texts), policy.make_tokenizer().encode

    def answer(prompt_ids):
        rows = np.zeros((3, len(VOCABULARY)))
        rows[np.arange(3), ids(next(left))] = leads
        return rows

    return answer


def test_right_and_stale_answers_are_counted_apart():
    told = evaluate(None, None, TWO * 2, answer=chooses(["750", "150", "600", "151"]))
    assert told.answers == ("750", "150", "600", "151")
    assert (told.right, told.stale, told.accuracy) == (2, 1, 0.5)
    assert told.accuracy_on(updated=True) == told.accuracy_on(updated=False) == 0.5
    assert evaluate(None, None, TWO[1:], answer=chooses(["150"])).accuracy_on(updated=True) is None


def test_a_superseded_value_of_another_item_is_wrong_but_not_stale():
    assert evaluate(None, None, TWO[1:], answer=chooses(["600"])).stale == 0


def test_changed_counts_answers_that_differ_whether_right_or_wrong():
    reference = evaluate(None, None, TWO * 2, answer=chooses(["750", "150", "600", "151"]))
    other = evaluate(None, None, TWO * 2, answer=chooses(["750", "151", "600", "152"]))
    assert (other.changed(reference), reference.changed(other), reference.changed(reference)) == (2, 2, 0)
    with pytest.raises(ValueError, match="evaluation of the same questions"):
        other.changed(evaluate(None, None, TWO, answer=chooses(["750", "150"])))


def test_a_margin_is_the_smallest_lead_among_the_answer_s_decisions():
    told = evaluate(None, None, TWO, answer=chooses(["750", "150"], leads=(3.0, 0.25, 2.0)))
    assert told.margins == (0.25, 0.25)
    assert told.near_ties(0.25) == 0 and told.near_ties(0.26) == 2
    logits = np.zeros((3, 40))
    logits[:, [4, 9, 17]] = 3.0, 1.0, 2.5  # the second is neither the last nor the smallest
    assert evaluate(None, None, TWO[:1], answer=lambda ids: logits).margins == (0.5,)
    tie = evaluate(None, None, TWO[:1], answer=lambda ids: np.zeros((3, 40)))
    assert tie.margins == (0.0,) and tie.answers == ("...",)  # the first of equals


def test_the_closest_decisions_come_smallest_first():
    told = Evaluation(tuple(TWO), ("750", "150"), (2.0, 1.0))
    assert told.closest(1) == [(1.0, TWO[1], "150")]
    assert [margin for margin, _, _ in told.closest(5)] == [1.0, 2.0]


@pytest.mark.parametrize("asked, how", [
    ([], {}), (TWO, {"make_cache": lambda *_: None, "answer": lambda *_: None}), (TWO, {"batch": 0}),
])
def test_an_evaluation_that_asks_nothing_or_two_ways_is_refused(asked, how):
    with pytest.raises(ValueError):
        evaluate(None, None, asked, **how)


# MG-2


PARAMS, CONFIG, TOKENIZER = load_mg2()
ASKED = SETS["held_out", False]
REFERENCE = evaluate(PARAMS, CONFIG, ASKED)


def test_mg2_answers_the_ordinary_set():
    assert (REFERENCE.right, REFERENCE.stale, len(ASKED)) == (256, 0, 256)
    assert mg2_card()["held_out"]["ordinary"] == {"questions": 256, "right": 256, "stale": 0}


def test_mg2_answers_the_hard_set():
    hard = evaluate(PARAMS, CONFIG, SETS["held_out", True])
    assert (hard.right, hard.stale, len(hard.questions)) == (1344, 0, 1344)
    assert (hard.accuracy_on(updated=True), hard.accuracy_on(updated=False)) == (1.0, 1.0)
    assert mg2_card()["held_out"]["hard"] == {"questions": 1344, "right": 1344, "stale": 0}
    assert hard.near_ties(1.0) == 0


@pytest.mark.parametrize("how", [
    {"batch": 1}, {"batch": 7}, {"batch": None},
    {"make_cache": lambda n, batch: KVCache(CONFIG, n + 5, batch=batch)},
    {"make_cache": lambda n, batch: PagedKVCache(CONFIG, BlockPool(n, 1)), "batch": None},
    {"make_cache": lambda n, batch: PagedKVCache(CONFIG, BlockPool(5, 16)), "batch": None},
    {"answer": lambda ids: generate_cached(PARAMS, CONFIG, ids, 3, chunk_size=7).logits},
    {"answer": lambda ids: generate_full_prefix(PARAMS, CONFIG, ids, 3).logits},
], ids=["batch of 1", "batch of 7", "one by one", "a larger cache", "blocks of 1", "blocks of 16", "chunked prefill",
        "full prefix"])
def test_every_way_to_run_float64_gives_the_same_answers(how):
    asked = ASKED[:40]
    told = evaluate(PARAMS, CONFIG, asked, **how)
    assert told.answers == REFERENCE.answers[:40]
    assert np.allclose(told.margins, REFERENCE.margins[:40], rtol=0, atol=1e-11)


def test_policies_of_several_shapes_keep_their_order():
    hard = SETS["held_out", True]
    asked = hard[:10] + ASKED[:5] + hard[20:23] + ASKED[6:7] + hard[:2]
    assert evaluate(PARAMS, CONFIG, asked).answers == tuple(question.answer for question in asked)


@pytest.mark.parametrize("bits, per, right, changed, stale", [
    (8, "tensor", 256, 0, 0), (8, "row", 256, 0, 0), (8, 32, 256, 0, 0),
    (4, "tensor", 249, 7, 0), (4, "row", 255, 1, 0), (4, 32, 254, 2, 1),
    (3, "tensor", 30, 226, 1), (3, "row", 221, 35, 1), (3, 32, 249, 7, 0),
])
def test_fewer_bits_in_the_weights_change_exactly_so_many_answers(bits, per, right, changed, stale):
    params, _ = quantize_params(PARAMS, bits, per, include_embeddings=True)
    told = evaluate(params, CONFIG, ASKED)
    assert (told.right, told.changed(REFERENCE), told.stale) == (right, changed, stale)


@pytest.mark.parametrize("bits, right, changed, stale", [
    (8, 256, 0, 0), (4, 254, 2, 0), ((4, None), 253, 3, 1), ((None, 4), 256, 0, 0),
])
def test_fewer_bits_in_the_cache_change_exactly_so_many_answers(bits, right, changed, stale):
    def make_cache(capacity, batch):
        return QuantizedKVCache(CONFIG, capacity, bits, batch=batch)

    told = evaluate(PARAMS, CONFIG, ASKED, make_cache=make_cache)
    assert (told.right, told.changed(REFERENCE), told.stale) == (right, changed, stale)
