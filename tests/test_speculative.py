"""Speculative decoding loses nothing: greedy texts are equal, sampled ones equally distributed; and what it costs."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripted import Scripted
from mgpt.blocks import BlockPool, PagedKVCache
from mgpt.cache import KVCache
from mgpt.config import GPTConfig
from mgpt.generate import generate_cached
from mgpt.model import forward, init_params
from mgpt.sampling import probabilities, sample
from mgpt.speculative import (Round, accept_probability, acceptance_rate, exact_distribution, expected_speedup,
                              expected_tokens, residual, speculative_generate, verify)

CONFIG = GPTConfig(vocab_size=12, max_seq_len=40, n_layer=2, n_head=4, n_kv_head=2, head_dim=4, n_embd=16, n_inner=24,
                   tie_embeddings=False)
PROMPT = [3, 1, 4, 1, 5]


def model(seed=0, noise=0.0, config=CONFIG):
    """(params, config): random, and with `noise` a disturbed copy of it, which guesses right now and then."""
    params, rng = init_params(config, np.random.default_rng(seed)), np.random.default_rng(seed + 1)
    return {**params, "head": params["head"] + noise * rng.normal(size=params["head"].shape)}, config


def agree(a, b):
    """The seam's law: max|Δ| ≤ 1e-12 · max|logit|."""
    return np.max(np.abs(a - b)) <= 1e-12 * np.max(np.abs(b))


def distributions(size):
    """Distributions of `size` numbers, zeros and very small ones among them."""
    weights = st.lists(st.sampled_from([0.0, 1e-300, 1e-17, 1e-9, 0.1, 0.25, 1.0, 3.0]) | st.floats(0, 1),
                       min_size=size, max_size=size)
    return weights.filter(lambda w: sum(w) > 1e-3).map(lambda w: np.array(w) / sum(w))


pairs = st.integers(1, 7).flatmap(lambda size: st.tuples(distributions(size), distributions(size)))
fair = settings(deadline=None, derandomize=True, max_examples=150)
Q, P = np.array([0.75, 0.125, 0.125]), np.array([0.25, 0.25, 0.5])


# --- one position, over every path ----------------------------------------------------------------

@fair
@given(pairs)
def test_the_emitted_token_has_exactly_the_target_s_distribution(pair):
    q, p = pair
    got = exact_distribution(q, p)
    assert got.shape == p.shape and np.max(np.abs(got - p)) <= 1e-12


@pytest.mark.parametrize("q, p", [
    pytest.param([0.5, 0.5], [0.5, 0.5], id="equal: zero residual"),
    pytest.param([1.0, 0.0], [0.0, 1.0], id="disjoint: never accepted"),
    pytest.param([1.0], [1.0], id="one token"),
    pytest.param([0.0, 1.0, 0.0], [0.2, 0.3, 0.5], id="greedy draft"),
    pytest.param([0.2, 0.3, 0.5], [0.0, 0.0, 1.0], id="greedy target"),
    pytest.param([0.1 + 0.2, 0.7], [0.3, 0.7], id="equal up to rounding"),
])
def test_edges_of_the_theorem(q, p):
    with np.errstate(all="raise"):
        assert np.max(np.abs(exact_distribution(q, p) - p)) <= 1e-12


def test_a_worked_example_of_acceptance_and_residual():
    assert [accept_probability(q, p) for q, p in zip(Q, P)] == [1 / 3, 1, 1]
    assert residual(Q, P).tolist() == residual(list(Q), list(P)).tolist() == [0, 0.25, 0.75]
    assert acceptance_rate(Q, P) == 0.5


def test_a_zero_residual_is_never_divided_by():
    with np.errstate(all="raise"):
        assert residual(P, P).tolist() == residual(list(P), list(P)).tolist() == P.tolist()
        assert verify([1], [P], [P, P], Scripted(1 - 2**-53, 0.99)) == ([1], 2)


@pytest.mark.parametrize("wrong, value", [
    pytest.param(lambda q, p, kept: kept + (1 - kept.sum()) * p, [0.375, 0.25, 0.375], id="replaced from the target"),
    pytest.param(lambda q, p, kept: kept + (1 - kept.sum()) * q, [0.625, 0.1875, 0.1875], id="replaced from the draft"),
    pytest.param(lambda q, p, kept: kept + np.maximum(p - q, 0) * (1 - kept.sum()), [0.25, 0.1875, 0.3125],
                 id="residual not normalised"),
    pytest.param(lambda q, p, kept: q, [0.75, 0.125, 0.125], id="every guess accepted"),
])
def test_trap_wrong_replacements_give_other_distributions(wrong, value):
    assert wrong(Q, P, np.minimum(Q, P)).tolist() == value
    assert exact_distribution(Q, P).tolist() == P.tolist() != value


@fair
@given(pairs)
def test_the_acceptance_rate_is_the_sum_of_the_smaller_probabilities(pair):
    q, p = pair
    by_guess = sum(q[i] * accept_probability(q[i], p[i]) for i in range(len(q)) if q[i] > 0)
    assert abs(acceptance_rate(q, p) - by_guess) <= 1e-12
    assert abs(acceptance_rate(q, p) - (1 - np.abs(p - q).sum() / 2)) <= 1e-12  # 1 - total variation distance
    assert type(acceptance_rate(q, p)) is float


# --- verify ---------------------------------------------------------------------------------------

def test_two_guesses_and_a_bonus_are_distributed_as_the_target_s_rows_by_exact_enumeration():
    """Every combination of guesses and of uniform numbers on a grid that hits each threshold exactly."""
    q = np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]])
    p = np.array([[0.25, 0.3125, 0.4375], [0.5, 0.25, 0.25], [0.125, 0.25, 0.625]])
    grid = [(i + 0.5) / 8 for i in range(8)]  # ratios 1/2, residual (0, 1/4, 3/4), bonus in eighths: all on the grid
    mass, given_first = np.zeros(3), np.zeros((3, 3))
    third, by_length = np.zeros(3), np.zeros(4)
    for guesses in itertools.product(range(3), repeat=2):
        weight = q[0, guesses[0]] * q[1, guesses[1]] / 8**3
        for numbers in itertools.product(grid, repeat=3):
            accepted, token = verify(guesses, q, p, Scripted(*numbers))
            out = [*accepted, token]
            by_length[len(out)] += weight
            mass[out[0]] += weight
            if len(out) > 1:
                given_first[out[0], out[1]] += weight
            if len(out) > 2:
                third[out[2]] += weight
    assert np.allclose(mass, [0.25, 0.3125, 0.4375], rtol=0, atol=1e-12)
    seconds = given_first / given_first.sum(axis=1, keepdims=True)
    assert np.allclose(seconds, [[0.5, 0.25, 0.25]] * 3, rtol=0, atol=1e-12)
    assert np.allclose(third / third.sum(), [0.125, 0.25, 0.625], rtol=0, atol=1e-12)
    assert np.allclose(by_length, [0, 0.25, 0.1875, 0.5625], rtol=0, atol=1e-12)  # 3/4 are kept, twice


def test_guesses_are_kept_up_to_the_first_rejection():
    q, p = [Q, Q, Q], [P, P, P, P]
    assert verify([0, 0, 0], q, p, Scripted(0.3, 0.4, 0.1)) == ([0], 1)  # 0.4 >= 1/3; 0.1 of the residual: 1
    assert verify([0, 0, 0], q, p, Scripted(0.4, 0.3)) == ([], 2)  # later guesses do not matter any more
    assert verify([0, 1, 2], q, p, Scripted(0.3, 0.99, 0.99, 0.3)) == ([0, 1, 2], 1)


def test_when_all_are_kept_the_bonus_comes_from_the_last_row_of_the_target():
    p = [P, P, [0.0, 0.0, 1.0]]
    assert verify([1, 2], [Q, Q], p, Scripted(0.9, 0.9, 0.01)) == ([1, 2], 2)
    assert verify([], np.empty((0, 3)), [[0.0, 1.0, 0.0]], Scripted(0.5)) == ([], 1)  # no guess: a plain draw


def test_what_the_target_rules_out_is_never_kept_nor_drawn():
    rng = np.random.default_rng(0)
    q, p = [[0.6, 0.4, 0.0]], [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    for _ in range(50):
        assert verify([0], q, p, rng)[0] == []
        assert verify([0], q, p, rng)[1] in (1, 2)
        assert verify([1], q, p, rng) == ([1], 2)


def test_equal_distributions_keep_every_guess():
    rng = np.random.default_rng(0)
    assert all(verify([0, 2], [Q, P], [Q, P, P], rng)[0] == [0, 2] for _ in range(100))


def test_results_are_python_ints_also_from_numpy_ids_and_float32_rows():
    accepted, token = verify(np.array([1, 2], np.int32), np.array([P, P], np.float32), np.array([P] * 3, np.float32),
                             np.random.default_rng(0))
    assert accepted == [1, 2] and type(accepted) is list and {type(i) for i in [*accepted, token]} == {int}


RIGHT = dict(draft_tokens=[0], draft_probs=[[0.5, 0.5]], target_probs=[[0.5, 0.5]] * 2, rng=np.random.default_rng(0))


@pytest.mark.parametrize("change, word", [
    (dict(draft_tokens=[0, 1]), "draft_tokens must be 1 ids"), (dict(draft_tokens=0), "draft_tokens"),
    (dict(draft_tokens=[2]), "draft_tokens must be in 0 .. 1"), (dict(draft_tokens=[-1]), "draft_tokens"),
    (dict(draft_tokens=[0.0]), "draft_tokens must be integers"), (dict(draft_tokens=[]), "draft_tokens"),
    (dict(draft_probs=[[0.0, 1.0]]), r"draft_tokens\[0\] = 0 has probability 0"),
    (dict(draft_probs=[0.5, 0.5]), "draft_probs must be rows"), (dict(draft_probs=[[1.0]]), "draft_probs"),
    (dict(draft_probs=[[0.5, 0.5]] * 2), "draft_probs"), (dict(draft_probs=[[math.nan, 1]]), "draft_probs"),
    (dict(draft_probs=[[0.5, 0.6]]), "draft_probs must be numbers"),
    (dict(draft_probs=[[1.5, -0.5]]), "draft_probs must be numbers"),
    (dict(draft_probs=[[0.5, 0.5], [1.0]]), "draft_probs"), (dict(draft_probs="half"), "draft_probs"),
    (dict(draft_probs=[]), "draft_probs must be"), (dict(draft_tokens=[[0], [0, 1]]), "draft_tokens"),
    (dict(target_probs=[[0.5, 0.5]]), "target_probs"), (dict(target_probs=[[0.5, 0.5], [0.5, 0.4]]), "target_probs"),
    (dict(target_probs=[[0.5, 0.5], [math.inf, 0]]), "target_probs"),
    (dict(target_probs=np.empty((2, 0))), "target_probs"),
    (dict(rng=None), "rng"), (dict(rng=0), "rng"), (dict(rng=np.random.RandomState(0)), "rng"),
])
def test_verify_refuses_what_is_no_draft_and_no_distribution(change, word):
    with pytest.raises(ValueError, match=word):
        verify(**{**RIGHT, **change})


@pytest.mark.parametrize("nothing", [[], (), np.zeros((0, 2))])
def test_without_a_guess_the_token_is_drawn_from_the_target(nothing):
    for u, token in ((0.2, 0), (0.3, 1)):
        assert verify([], nothing, [[0.25, 0.75]], Scripted(u)) == ([], token)


@pytest.mark.parametrize("q, p", [
    ([0.5, 0.5], [1.0]), ([0.5, 0.4], [0.5, 0.5]), ([0.5, 0.5], [0.5, math.nan]), ([[0.5, 0.5]], [[0.5, 0.5]]),
    ([], []), ([-0.5, 1.5], [0.5, 0.5]),
])
def test_what_is_no_pair_of_distributions_over_one_vocabulary_is_refused(q, p):
    for function in (exact_distribution, acceptance_rate):
        with pytest.raises(ValueError, match="draft_probs|target_probs"):
            function(q, p)


# --- what a round is worth ------------------------------------------------------------------------

@pytest.mark.parametrize("alpha, gamma, tokens", [  # the speed column of table 1 of Leviathan et al. 2023
    (0.6, 2, 1.96), (0.7, 3, 2.53), (0.8, 2, 2.44), (0.8, 5, 3.69), (0.9, 2, 2.71), (0.9, 10, 6.86),
    (0, 4, 1), (1, 4, 5), (0.5, 0, 1),
])
def test_expected_tokens_of_the_published_table(alpha, gamma, tokens):
    got = expected_tokens(alpha, gamma)
    assert abs(got - tokens) < 0.005 and type(got) is float
    if alpha < 1:
        assert math.isclose(got, (1 - alpha ** (gamma + 1)) / (1 - alpha), rel_tol=1e-14)


def test_expected_tokens_equal_the_mean_length_over_every_accept_and_reject_path():
    alpha, gamma = 0.7, 3
    lengths = [alpha**k * (1 - alpha) * (k + 1) for k in range(gamma)] + [alpha**gamma * (gamma + 1)]
    assert math.isclose(expected_tokens(alpha, gamma), sum(lengths), rel_tol=1e-14)


def test_speculation_does_not_pay_when_the_guesses_are_bad_or_dear():
    assert expected_speedup(0.8, 5, 0) == expected_tokens(0.8, 5)
    assert math.isclose(expected_speedup(0.8, 4, 0.05), 2.8013333333333335)
    assert expected_speedup(0.1, 4, 0.05) < 1 and expected_speedup(0.8, 4, 1.0) < 1 < expected_speedup(0.8, 4, 0.2)


@pytest.mark.parametrize("call, word", [
    (lambda: expected_tokens(1.1, 3), "alpha"), (lambda: expected_tokens(-0.1, 3), "alpha"),
    (lambda: expected_tokens(math.nan, 3), "alpha"), (lambda: expected_tokens(0.5, -1), "gamma"),
    (lambda: expected_tokens(0.5, 2.0), "gamma"), (lambda: expected_speedup(0.5, 2, -1), "cost"),
])
def test_rates_outside_their_range_are_refused(call, word):
    with pytest.raises(ValueError, match=word):
        call()


# --- whole texts ----------------------------------------------------------------------------------

@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 6), st.integers(0, 12), st.integers(1, 6), st.sampled_from([0.0, 0.05, 0.3, 5.0]),
       st.integers(0, 99))
def test_a_greedy_text_is_the_target_s_own(n_prompt, n_new, gamma, noise, seed):
    target, draft, prompt = model(seed), model(seed, noise), np.random.default_rng(seed).integers(0, 12, n_prompt)
    plain = generate_cached(*target, prompt, n_new)
    run = speculative_generate(target, draft, prompt, n_new, gamma=gamma)
    assert run.tokens == plain.tokens
    assert all(agree(a, b) for a, b in zip(run.logits, plain.logits, strict=True))
    assert run.cache_len == plain.cache_len == (n_prompt + n_new - 1 if n_new else 0)
    assert run.positions_processed == (n_prompt if n_new else 0) + sum(r.drafted + 1 for r in run.rounds)
    assert n_new - (n_new > 0) == sum(r.accepted + 1 for r in run.rounds)
    assert all(r.accepted <= r.drafted <= gamma for r in run.rounds)


def test_a_perfect_draft_gives_gamma_plus_one_tokens_a_pass():
    run = speculative_generate(model(), model(), PROMPT, 16, gamma=4)
    assert run.rounds == [Round(4, 4)] * 3
    assert (len(run.tokens), run.cache_len, run.positions_processed) == (16, 20, 20)  # 5 + 3 · 5


def test_a_hopeless_draft_costs_gamma_positions_a_token_and_changes_nothing():
    params, config = model()
    against = {**params, "head": -params["head"]}  # its favourite is what the target likes least
    run = speculative_generate((params, config), (against, config), PROMPT, 4, gamma=3)
    assert run.tokens == generate_cached(params, config, PROMPT, 4).tokens
    assert run.rounds == [Round(2, 0), Round(1, 0), Round(0, 0)]  # never more guesses than could still be used
    assert (run.positions_processed, run.cache_len) == (5 + 3 + 2 + 1, 8)


def test_the_draft_may_be_another_shape():
    small = GPTConfig(12, 40, 1, 2, 1, 2, 6, 8, tie_embeddings=True)
    run = speculative_generate(model(), (init_params(small, np.random.default_rng(3)), small), PROMPT, 10, gamma=3)
    assert run.tokens == generate_cached(*model(), PROMPT, 10).tokens


def test_the_last_output_needs_no_position_of_either_model():
    for n_new in (36, 35):
        assert len(speculative_generate(model(), model(0, 0.3), PROMPT, n_new, gamma=7).tokens) == n_new
    with pytest.raises(ValueError, match="max_seq_len is 40"):
        speculative_generate(model(), model(), PROMPT, 37, gamma=2)


def test_the_target_s_cache_is_rewound_to_what_the_text_needs():
    target, draft = model(), model(0, 0.3)
    cache = KVCache(CONFIG, 16)
    run = speculative_generate(target, draft, PROMPT, 12, gamma=4, cache=cache)
    assert sum(r.drafted - r.accepted for r in run.rounds) > 0  # something was rejected, and cut off
    assert cache.seq_len == run.cache_len == 16
    cache.truncate(15)
    right = forward(*target, [*PROMPT, *run.tokens[:-1]], last_only=True)
    assert agree(forward(*target, run.tokens[-2:-1], cache, last_only=True), right)


@pytest.mark.parametrize("block_size", [1, 2, 3, 16])
def test_a_rewind_over_a_block_edge_gives_the_blocks_back(block_size):
    target, draft = model(), model(0, 0.3)
    pool = BlockPool(-(-16 // block_size), block_size)
    cache = PagedKVCache(CONFIG, pool)
    run = speculative_generate(target, draft, PROMPT, 12, gamma=4, cache=cache)
    for _ in run:
        assert pool.num_blocks - pool.num_free == -(-run.cache_len // block_size)
        pool.check_integrity()
    assert run.tokens == generate_cached(*target, PROMPT, 12).tokens and cache.seq_len == 16


@pytest.mark.parametrize("noise, gamma", [(0.5, 1), (0.5, 2), (5.0, 2)])
def test_sampled_texts_have_the_target_s_distribution(noise, gamma):
    """The first 3 of 4 tokens over 3 ids: frequencies of 700 runs against exact products of the target's rows."""
    tiny = GPTConfig(vocab_size=3, max_seq_len=8, n_layer=1, n_head=1, n_kv_head=1, head_dim=2, n_embd=4, n_inner=4,
                     tie_embeddings=False)
    target, draft, rng, n = model(4, config=tiny), model(4, noise, config=tiny), np.random.default_rng(11), 700
    exact = {}
    for text in itertools.product(range(3), repeat=3):
        rows = forward(*target, [0, *text])
        exact[text] = math.prod(probabilities(rows[i])[token] for i, token in enumerate(text))

    def chi_square(generation):
        counts = dict.fromkeys(exact, 0)
        for _ in range(n):
            counts[tuple(generation().tokens[:3])] += 1
        return sum((counts[text] - n * p) ** 2 / (n * p) for text, p in exact.items())

    # 26 degrees of freedom: 54.05 is exceeded once in 1,000.  The draft's own texts are far beyond it.
    assert chi_square(lambda: speculative_generate(target, draft, [0], 4, gamma=gamma, rng=rng)) < 54.05
    assert chi_square(lambda: generate_cached(*draft, [0], 3, sampler=lambda row: sample(row, rng))) > 200


def test_the_same_rng_gives_the_same_text():
    runs = [speculative_generate(model(), model(0, 0.3), PROMPT, 30, gamma=3, rng=np.random.default_rng(seed))
            for seed in (1, 1, 2)]
    assert runs[0].tokens == runs[1].tokens != runs[2].tokens
    assert runs[0].cache_len == 34 and len(runs[0].tokens) == 30


def test_a_sampled_draft_equal_to_the_target_is_always_accepted():
    run = speculative_generate(model(), model(), PROMPT, 31, gamma=5, rng=np.random.default_rng(0))
    assert run.rounds == [Round(5, 5)] * 5


def test_tokens_come_one_by_one_and_a_round_is_counted_with_its_first():
    run = speculative_generate(model(), model(), PROMPT, 7, gamma=2)
    seen = [(run.positions_processed, run.cache_len, len(run.rounds)) for _ in run]
    assert seen == [(5, 5, 0), *[(8, 8, 1)] * 3, *[(11, 11, 2)] * 3]


@pytest.mark.parametrize("change, word", [
    (dict(gamma=0), "gamma"), (dict(gamma=1.0), "gamma"), (dict(gamma=None), "gamma"), (dict(rng=0), "rng"),
    (dict(prompt_ids=[]), "prompt_ids"), (dict(prompt_ids=[12]), "prompt_ids"),
    (dict(max_new_tokens=-1), "max_new_tokens"),
    (dict(draft=model(config=GPTConfig(13, 40, 1, 1, 1, 2, 4, 4, tie_embeddings=False))), "vocabulary of 12, got 13"),
    (dict(draft=model(config=GPTConfig(12, 7, 1, 1, 1, 2, 4, 4, tie_embeddings=False))), "max_seq_len is 7"),
    (dict(target=CONFIG), "target must be a pair"), (dict(draft=(1, 2, 3)), "draft must be a pair"),
])
def test_a_bad_request_is_refused_at_the_call(change, word):
    request = dict(target=model(), draft=model(), prompt_ids=PROMPT, max_new_tokens=4, gamma=2)
    with pytest.raises(ValueError, match=word):
        speculative_generate(**{**request, **change})


def test_a_cache_that_the_draft_has_not_seen_is_refused():
    cache = KVCache(CONFIG, 20)
    forward(*model(), PROMPT, cache)
    with pytest.raises(ValueError, match="cache must be empty"):
        speculative_generate(model(), model(), PROMPT, 4, gamma=2, cache=cache)
