"""From a row of logits to a token: greedy, temperature, top-k, top-p, with an rng of its own."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scripted import Scripted
from mgpt.sampling import draw, greedy, probabilities, sample

rows = st.lists(st.floats(-30, 30), min_size=1, max_size=12).map(np.array)
fair = settings(deadline=None, derandomize=True, max_examples=100)
LOGITS = np.log([0.5, 0.25, 0.125, 0.125])  # their softmax is exactly this


# --- greedy ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("logits, token", [
    ([0.6, 0.7], 1), ([0.5, 0.5], 0), ([1, 3, 3, 2], 1), ([-0.0, 0.0], 0), ([-math.inf, -math.inf], 0),
    ([0, math.inf, math.inf], 1), ([-5], 0), ([1, 2, 2**53], 2),
])
def test_greedy_takes_the_first_of_equal_logits(logits, token):
    got = greedy(np.array(logits))
    assert got == greedy(list(logits)) == token and type(got) is int


def test_paris_and_lyon_a_tie_made_by_rounding_goes_to_the_first():
    assert greedy([0.6, 0.7]) == 1
    assert greedy(0.5 * np.round(np.array([0.6, 0.7]) / 0.5)) == 0  # both become 0.5


@fair
@given(rows)
def test_greedy_is_the_first_position_of_the_maximum(row):
    assert greedy(row) == list(row).index(max(row))


@pytest.mark.parametrize("logits", [[math.nan, 1], [1, math.nan], [math.inf, math.nan], [], 3.0, [[1, 2]],
                                    ["1", "2"], "12", [1j], [True], None, [[1], [1, 2]]])
def test_a_row_without_a_largest_logit_is_refused(logits):
    with pytest.raises(ValueError, match="logits must"):
        greedy(logits)
    with pytest.raises(ValueError, match="logits must"):
        sample(logits, np.random.default_rng(0))


@pytest.mark.parametrize("logits", [[math.inf, 0], [-math.inf, -math.inf]])
def test_there_is_no_distribution_over_an_infinite_maximum(logits):
    with pytest.raises(ValueError, match="finite maximum"):
        probabilities(logits)


# --- the distribution -----------------------------------------------------------------------------

def test_probabilities_are_the_softmax():
    assert np.allclose(probabilities(LOGITS), [0.5, 0.25, 0.125, 0.125], rtol=0, atol=1e-15)
    assert np.allclose(probabilities(LOGITS + 700), [0.5, 0.25, 0.125, 0.125], rtol=0, atol=1e-13)


def test_temperature_one_half_squares_the_odds_and_two_takes_their_root():
    assert np.allclose(probabilities(LOGITS, 0.5), np.array([16, 4, 1, 1]) / 22, rtol=0, atol=1e-15)
    assert np.allclose(probabilities(np.log([4.0, 1.0]), 2), [2 / 3, 1 / 3], rtol=0, atol=1e-15)


@pytest.mark.parametrize("options, expected", [
    (dict(top_k=1), [1, 0, 0, 0]), (dict(top_k=2), [2 / 3, 1 / 3, 0, 0]),
    (dict(top_k=3), [4 / 7, 2 / 7, 1 / 7, 0]),  # the first of two equals stays
    (dict(top_k=4), [0.5, 0.25, 0.125, 0.125]), (dict(top_k=99), [0.5, 0.25, 0.125, 0.125]),
    (dict(top_p=0.4), [1, 0, 0, 0]), (dict(top_p=0.6), [2 / 3, 1 / 3, 0, 0]),
    (dict(top_p=0.8), [4 / 7, 2 / 7, 1 / 7, 0]),
    (dict(top_p=0.9), [0.5, 0.25, 0.125, 0.125]), (dict(top_p=1.0), [0.5, 0.25, 0.125, 0.125]),
    (dict(top_p=1e-9), [1, 0, 0, 0]),
    (dict(top_k=2, top_p=0.6), [1, 0, 0, 0]),  # of the two kept, the first alone has 2/3 >= 0.6
    (dict(temperature=0.5, top_k=2), [0.8, 0.2, 0, 0]),
    (dict(temperature=0.5, top_p=0.7), [1, 0, 0, 0]),  # 16/22 reaches 0.7 only because temperature comes first
])
def test_worked_examples_of_the_order_temperature_top_k_top_p(options, expected):
    assert np.allclose(probabilities(LOGITS, **options), expected, rtol=0, atol=1e-15)


def test_top_p_keeps_the_token_that_crosses_the_threshold():
    """Trap: keeping only tokens whose sum stays below top_p would leave nothing at top_p < the largest probability."""
    assert np.count_nonzero(probabilities(LOGITS, top_p=0.3)) == 1
    assert np.count_nonzero(probabilities(LOGITS, top_p=0.51)) == 2


@fair
@given(rows, st.floats(0.05, 20), st.integers(1, 14), st.floats(0.01, 1))
def test_what_is_kept_keeps_its_odds_and_sums_to_one(row, temperature, top_k, top_p):
    full = probabilities(row, temperature)
    for options in (dict(), dict(top_k=top_k), dict(top_p=top_p), dict(top_k=top_k, top_p=top_p)):
        got = probabilities(row, temperature, **options)
        kept = got > 0
        assert abs(got.sum() - 1) < 1e-12 and (got >= 0).all() and got[greedy(row)] > 0
        assert np.allclose(got[kept], full[kept] / full[kept].sum(), rtol=1e-9)
        if "top_k" in options:
            assert kept.sum() <= top_k
        if (~kept).any():  # nothing dropped is more likely than something kept
            assert full[~kept].max() <= full[kept].min() * (1 + 1e-12)


@fair
@given(rows, st.floats(0.05, 0.95))
def test_top_p_keeps_the_fewest_tokens_that_reach_it(row, top_p):
    full, kept = probabilities(row), probabilities(row, top_p=top_p) > 0
    sums = np.cumsum(np.sort(full[kept])[::-1])
    assume(np.min(np.abs(sums - top_p)) > 1e-9)
    assert sums[-1] >= top_p and (len(sums) == 1 or sums[-2] < top_p)


def test_a_low_temperature_tends_to_greedy_and_a_high_one_to_uniform():
    assert np.array_equal(probabilities(LOGITS, 5e-4), [1, 0, 0, 0])
    assert np.allclose(probabilities(LOGITS, 1e9), 0.25, rtol=0, atol=1e-8)


def test_extreme_temperatures_and_logits_give_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(probabilities([5.0, -5.0], 5e-324)) == [1, 0]
        assert list(probabilities([1e308, -1e308])) == [1, 0]
        assert list(probabilities([0.0, -math.inf])) == [1, 0]
        assert list(probabilities([0.0, 0.0, -math.inf], 1e300)) == [0.5, 0.5, 0]


@pytest.mark.parametrize("options", [
    dict(temperature=0), dict(temperature=-1), dict(temperature=math.nan), dict(temperature=math.inf),
    dict(temperature="1"), dict(temperature=True), dict(top_k=0), dict(top_k=-1), dict(top_k=1.0), dict(top_k=True),
    dict(top_p=0), dict(top_p=-0.1), dict(top_p=1.0001), dict(top_p=math.nan),
])
def test_options_outside_their_range_are_refused_by_name(options):
    name = next(iter(options))
    with pytest.raises(ValueError, match=name):
        sample(LOGITS, np.random.default_rng(0), **options)


# --- drawing --------------------------------------------------------------------------------------

def test_frequencies_follow_the_probabilities():
    rng, n = np.random.default_rng(7), 20_000
    counts = np.bincount([sample(LOGITS, rng) for _ in range(n)], minlength=4)
    expected = np.array([0.5, 0.25, 0.125, 0.125])
    assert (np.abs(counts - n * expected) < 5 * np.sqrt(n * expected * (1 - expected))).all()


@pytest.mark.parametrize("u, token", [
    (0.0, 0), (0.4999, 0), (0.5001, 1), (0.7499, 1), (0.7501, 2), (0.8751, 3), (1 - 2**-53, 3),
])
def test_one_uniform_number_decides_by_the_cumulative_sum(u, token):
    rng = Scripted(u)
    assert sample(LOGITS, rng) == token and rng.values == []


@pytest.mark.parametrize("u", [0.0, 0.3, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("probs", [[0, 1, 0], [0, 0.5, 0.5, 0], [0, 0.1, 0.7, 0.2 - 2**-54, 0, 0]])
def test_a_token_of_probability_zero_is_never_drawn(probs, u):
    assert probs[draw(probs, Scripted(u))] > 0


def test_the_same_rng_state_gives_the_same_tokens_and_python_ints():
    a, b = np.random.default_rng(3), np.random.default_rng(3)
    tokens = [sample(LOGITS, a) for _ in range(50)]
    assert tokens == [sample(LOGITS, b) for _ in range(50)] and all(type(token) is int for token in tokens)
    assert len(set(tokens)) == 4


def test_the_legacy_global_state_is_neither_read_nor_advanced():
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    first = sample(LOGITS, np.random.default_rng(1))
    np.random.seed(99)
    assert sample(LOGITS, np.random.default_rng(1)) == first
    np.random.seed(0)
    assert np.array_equal(np.random.get_state()[1], before)


def test_every_token_takes_one_number_whatever_the_options():
    """So that two requests of one seed stay in step when only their options differ."""
    for options in (dict(), dict(top_k=1), dict(top_p=0.5), dict(temperature=9.0)):
        rng, other = np.random.default_rng(4), np.random.default_rng(4)
        sample(LOGITS, rng, **options)
        other.random()
        assert rng.random() == other.random()


@pytest.mark.parametrize("rng", [None, 0, np.random, np.random.RandomState(0)])
def test_an_rng_must_be_a_generator(rng):
    with pytest.raises(ValueError, match="rng must be a numpy.random.Generator"):
        sample(LOGITS, rng)


def test_logits_are_left_as_they_were():
    row = LOGITS.copy()
    sample(row, np.random.default_rng(0), 0.5, 2, 0.9)
    greedy(row)
    assert np.array_equal(row, LOGITS)
