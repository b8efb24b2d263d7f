"""The two generators: equal tokens, counted work, what the cache holds, and refusals at the call."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.cache import KVCache
from mgpt.config import GPTConfig
from mgpt.generate import Generation, decode_one_token, generate_cached, generate_full_prefix, prefill
from mgpt.model import forward, init_params
from mgpt.sampling import greedy, sample

CONFIG = GPTConfig(vocab_size=29, max_seq_len=48, n_layer=2, n_head=4, n_kv_head=2, head_dim=4, n_embd=16, n_inner=24,
                   tie_embeddings=False)
PARAMS = init_params(CONFIG, np.random.default_rng(0))
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
BOTH = pytest.mark.parametrize("generate", [generate_full_prefix, generate_cached])


def close(a, b):
    """The seam's law: max|Δ| ≤ 1e-12 · max|logit|."""
    return len(a) == len(b) and all(np.max(np.abs(x - y)) <= 1e-12 * np.max(np.abs(y)) for x, y in zip(a, b))


# --- equal texts ----------------------------------------------------------------------------------

@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(1, 10), st.integers(0, 12), st.sampled_from([None, 1, 2, 3, 7, 50]), st.integers(0, 2**32 - 1))
def test_the_cached_generator_equals_the_full_prefix_one(n_prompt, n_new, chunk_size, seed):
    rng = np.random.default_rng(seed)
    params, prompt = init_params(CONFIG, rng), rng.integers(0, 29, n_prompt)
    slow = generate_full_prefix(params, CONFIG, prompt, n_new)
    fast = generate_cached(params, CONFIG, prompt, n_new, chunk_size=chunk_size)
    assert fast.tokens == slow.tokens and len(fast.tokens) == n_new
    assert close(fast.logits, slow.logits)


def test_a_sampled_text_depends_on_its_own_rng_alone():
    def text(generate, seed, **options):
        rng = np.random.default_rng(seed)
        return generate(PARAMS, CONFIG, PROMPT, 12, sampler=lambda row: sample(row, rng, 1.5), **options).tokens

    assert text(generate_full_prefix, 1) == text(generate_cached, 1) == text(generate_cached, 1, chunk_size=3)
    assert text(generate_cached, 1) != text(generate_cached, 2)
    alone = text(generate_cached, 1)
    rngs = [np.random.default_rng(seed) for seed in (1, 2)]
    both = [generate_cached(PARAMS, CONFIG, PROMPT, 12, sampler=lambda row, rng=rng: sample(row, rng, 1.5))
            for rng in rngs]
    for _ in zip(*both):  # one token each in turn, as a server would
        pass
    assert both[0].tokens == alone


def test_trap_a_decode_position_off_by_one_spoils_the_text():
    """Decode position = cache length before the write; a public NumPy implementation has it one off."""
    def text(shift):
        cache, ids = KVCache(CONFIG, 30), PROMPT
        for _ in range(16):
            n = len(ids)
            positions = np.arange(cache.seq_len, cache.seq_len + n) + (shift if cache.seq_len else 0)
            ids = [greedy(forward(PARAMS, CONFIG, ids, cache, positions=positions, last_only=True))]
            yield ids[0]

    right = generate_full_prefix(PARAMS, CONFIG, PROMPT, 16).tokens
    assert list(text(0)) == right
    assert list(text(1)) != right


def test_every_token_is_the_greedy_choice_of_its_row():
    run = generate_cached(PARAMS, CONFIG, PROMPT, 6)
    assert run.tokens == [int(np.argmax(row)) for row in run.logits]
    assert len(run.logits) == 6 and all(row.shape == (29,) for row in run.logits)
    assert len(set(run.tokens)) > 2  # a text of one repeated token would prove little


# --- counted work ---------------------------------------------------------------------------------

def test_full_prefix_processes_the_growing_prefix_every_time():
    run = generate_full_prefix(PARAMS, CONFIG, PROMPT, 4)
    assert (run.positions_processed, run.cache_len) == (38, None)  # 8 + 9 + 10 + 11


def test_with_a_cache_each_position_is_processed_once():
    run = generate_cached(PARAMS, CONFIG, PROMPT, 4)
    assert (run.positions_processed, run.cache_len) == (11, 11)


def test_table_30_1_positions_in_the_cache_after_each_choice():
    run = generate_cached(PARAMS, CONFIG, PROMPT, 4)
    seen = []
    for _ in run:
        seen.append((len(run.tokens), run.cache_len, run.positions_processed))
    assert seen == [(1, 8, 8), (2, 9, 9), (3, 10, 10), (4, 11, 11)]


def test_exercise_30_8_2_choosing_an_output_is_no_pass():
    cache = KVCache(CONFIG, 11)
    run = generate_cached(PARAMS, CONFIG, list(range(10)), 2, cache=cache)
    next(run)
    assert cache.seq_len == 10
    next(run)
    assert cache.seq_len == 11


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 10), st.integers(0, 8))
def test_the_cache_holds_p_plus_g_minus_1_positions_more_at_the_end(n_prompt, n_new, chunk_size, n_past):
    cache = KVCache(CONFIG, 30)
    if n_past:
        forward(PARAMS, CONFIG, list(range(n_past)), cache)
    run = generate_cached(PARAMS, CONFIG, list(range(n_prompt)), n_new, cache=cache, chunk_size=chunk_size)
    assert len(run.tokens) == n_new
    assert run.cache_len == cache.seq_len == n_past + n_prompt + n_new - 1
    assert run.positions_processed == n_prompt + n_new - 1
    assert all(type(count) is int for count in (run.cache_len, run.positions_processed, *run.tokens))


def test_n_outputs_take_n_minus_1_decode_passes(monkeypatch):
    passes = []

    def counted(params, config, ids, *args, **options):
        passes.append(len(ids))
        return forward(params, config, ids, *args, **options)

    monkeypatch.setattr("mgpt.generate.forward", counted)
    generate_cached(PARAMS, CONFIG, PROMPT, 5, chunk_size=3).tokens
    assert passes == [3, 3, 2, 1, 1, 1, 1]


@BOTH
def test_no_outputs_take_no_pass(generate, monkeypatch):
    monkeypatch.setattr("mgpt.generate.forward", None)
    run = generate(PARAMS, CONFIG, PROMPT, 0)
    assert (run.tokens, run.logits, run.positions_processed) == ([], [], 0)
    assert run.cache_len == (0 if generate is generate_cached else None)


def test_a_cache_that_holds_something_is_the_beginning_of_the_text():
    cache = KVCache(CONFIG, 20)
    forward(PARAMS, CONFIG, PROMPT[:5], cache)
    run = generate_cached(PARAMS, CONFIG, PROMPT[5:], 6, cache=cache)
    whole = generate_full_prefix(PARAMS, CONFIG, PROMPT, 6)
    assert run.tokens == whole.tokens and close(run.logits, whole.logits)
    assert (run.positions_processed, run.cache_len) == (8, 13)


def test_a_text_goes_on_from_its_own_cache_when_its_last_output_is_given_as_the_prompt():
    cache = KVCache(CONFIG, 30)
    first = generate_cached(PARAMS, CONFIG, PROMPT, 3, cache=cache).tokens
    second = generate_cached(PARAMS, CONFIG, first[-1:], 4, cache=cache).tokens
    assert first + second == generate_full_prefix(PARAMS, CONFIG, PROMPT, 7).tokens


def test_a_rewound_cache_gives_the_same_text_again():
    cache = KVCache(CONFIG, 30)
    first = generate_cached(PARAMS, CONFIG, PROMPT, 8, cache=cache).tokens
    cache.truncate(5)
    assert generate_cached(PARAMS, CONFIG, PROMPT[5:], 8, cache=cache).tokens == first


def test_prefill_in_chunks_equals_prefill_at_once_also_behind_kept_positions():
    right = forward(PARAMS, CONFIG, PROMPT, last_only=True)
    for chunk_size in (None, 1, 2, 3, 5, 8, 100):
        cache = KVCache(CONFIG, 8)
        forward(PARAMS, CONFIG, PROMPT[:2], cache)
        assert close([prefill(PARAMS, CONFIG, PROMPT[2:], cache, chunk_size)], [right])
        assert cache.seq_len == 8


def test_prefill_takes_a_batch_and_refuses_nothing_at_all():
    batch = np.array([PROMPT, PROMPT[::-1]])
    cache = KVCache(CONFIG, 8, batch=2)
    assert close(prefill(PARAMS, CONFIG, batch, cache, 3), forward(PARAMS, CONFIG, batch, last_only=True))
    for chunk_size in (None, 2):
        with pytest.raises(ValueError, match="at least one"):
            prefill(PARAMS, CONFIG, [], KVCache(CONFIG, 8), chunk_size)


def test_a_prefill_with_a_bad_id_in_a_late_chunk_leaves_the_cache_empty():
    cache = KVCache(CONFIG, 8)
    with pytest.raises(ValueError, match="0 .. 28"):
        prefill(PARAMS, CONFIG, [1, 2, 3, 29], cache, 2)
    assert cache.seq_len == 0


def test_decode_one_token_is_one_position():
    cache = KVCache(CONFIG, 9)
    prefill(PARAMS, CONFIG, PROMPT, cache)
    right = forward(PARAMS, CONFIG, [*PROMPT, 7], last_only=True)
    assert close([decode_one_token(PARAMS, CONFIG, 7, cache)], [right])
    assert cache.seq_len == 9


# --- stop ids and the limit -----------------------------------------------------------------------

@BOTH
@pytest.mark.parametrize("kind", [tuple, list, set, np.array, iter])
def test_a_stop_id_is_kept_as_the_last_output(generate, kind):
    free = generate(PARAMS, CONFIG, PROMPT, 10).tokens
    stop = free[4]
    g = free.index(stop) + 1
    run = generate(PARAMS, CONFIG, PROMPT, 10, stop_ids=kind([28 if 28 not in free else 27, stop]))
    assert run.tokens == free[:g] and len(run.logits) == g
    if generate is generate_cached:
        assert (run.cache_len, run.positions_processed) == (8 + g - 1, 8 + g - 1)


def test_a_stop_id_in_the_prompt_stops_nothing():
    free = generate_cached(PARAMS, CONFIG, PROMPT, 6).tokens
    stops = [i for i in PROMPT if i not in free]
    assert stops and generate_cached(PARAMS, CONFIG, PROMPT, 6, stop_ids=stops).tokens == free


@BOTH
def test_p_plus_n_minus_1_positions_may_fill_the_context_and_not_one_more(generate):
    """The last output is chosen, never processed: it needs no position."""
    full = generate(PARAMS, CONFIG, PROMPT, 41)  # 8 + 41 - 1 = 48
    assert len(full.tokens) == 41
    with pytest.raises(ValueError, match="max_seq_len is 48"):
        generate(PARAMS, CONFIG, PROMPT, 42)
    assert len(generate(PARAMS, CONFIG, [1] * 48, 1).tokens) == 1
    with pytest.raises(ValueError, match="max_seq_len"):
        generate(PARAMS, CONFIG, [1] * 49, 1)


def test_what_a_cache_already_holds_counts_towards_the_context():
    cache = KVCache(CONFIG, 60)
    forward(PARAMS, CONFIG, PROMPT, cache)
    assert len(generate_cached(PARAMS, CONFIG, PROMPT, 33, cache=cache).tokens) == 33  # 8 + 8 + 33 - 1 = 48
    cache.truncate(8)
    with pytest.raises(ValueError, match="max_seq_len"):
        generate_cached(PARAMS, CONFIG, PROMPT, 34, cache=cache)


@BOTH
@pytest.mark.parametrize("change, word", [
    (dict(prompt_ids=[]), "prompt_ids"), (dict(prompt_ids=5), "prompt_ids"), (dict(prompt_ids=[[1, 2]]), "prompt_ids"),
    (dict(prompt_ids="hotel"), "prompt_ids"), (dict(prompt_ids=[1.5]), "prompt_ids"),
    (dict(prompt_ids=[True]), "prompt_ids"), (dict(prompt_ids=[1, 29]), "prompt_ids must be in 0 .. 28"),
    (dict(prompt_ids=[-1]), "prompt_ids must be in 0 .. 28"), (dict(prompt_ids=[[1], [1, 2]]), "prompt_ids"),
    (dict(prompt_ids=iter([1])), "prompt_ids"), (dict(stop_ids=np.array(5)), "stop_ids"),
    (dict(max_new_tokens=-1), "max_new_tokens"), (dict(max_new_tokens=2.0), "max_new_tokens"),
    (dict(max_new_tokens=True), "max_new_tokens"), (dict(max_new_tokens=None), "max_new_tokens"),
    (dict(stop_ids=5), "stop_ids"), (dict(stop_ids=None), "stop_ids"), (dict(stop_ids="5"), "stop_ids"),
    (dict(stop_ids=[None]), "stop_ids"), (dict(stop_ids=[1.0]), "stop_ids"),
])
def test_a_bad_request_is_refused_at_the_call_not_at_the_first_token(generate, change, word):
    with pytest.raises(ValueError, match=word):
        generate(PARAMS, CONFIG, **{**dict(prompt_ids=PROMPT, max_new_tokens=3), **change})


@pytest.mark.parametrize("chunk_size", [0, -1, 1.5, True])
def test_a_chunk_size_is_an_integer_of_at_least_one(chunk_size):
    with pytest.raises(ValueError, match="chunk_size"):
        generate_cached(PARAMS, CONFIG, PROMPT, 3, chunk_size=chunk_size)


@BOTH
@pytest.mark.parametrize("token", [29, -1, 1.0, None])
def test_a_sampler_that_names_no_id_is_refused(generate, token):
    with pytest.raises(ValueError, match="sampler"):
        generate(PARAMS, CONFIG, PROMPT, 3, sampler=lambda row: token).tokens


@BOTH
def test_a_sampler_may_answer_with_a_numpy_integer(generate):
    tokens = generate(PARAMS, CONFIG, PROMPT, 3, sampler=np.argmax).tokens
    assert all(type(token) is int for token in tokens)


@BOTH
def test_the_prompt_is_read_at_the_call(generate):
    prompt = np.array(PROMPT)
    run = generate(PARAMS, CONFIG, prompt, 3)
    prompt[:] = 0
    assert run.tokens == generate(PARAMS, CONFIG, PROMPT, 3).tokens and list(prompt) == [0] * 8


# --- a Generation ---------------------------------------------------------------------------------

@BOTH
def test_a_generation_can_be_read_before_during_and_after_iteration(generate):
    right = generate(PARAMS, CONFIG, PROMPT, 5).tokens  # read before any iteration: runs to the end
    assert len(right) == 5
    run = generate(PARAMS, CONFIG, PROMPT, 5)
    for n, token in enumerate(run, 1):
        assert run.tokens == right[:n] and token == right[n - 1] and len(run.logits) == n
    assert list(run) == list(run) == run.tokens == right


@BOTH
def test_two_iterators_over_one_generation_see_the_same_tokens(generate):
    run = generate(PARAMS, CONFIG, PROMPT, 5)
    a, b = iter(run), iter(run)
    first = [next(a), next(a), next(b)]
    assert first == [run.tokens[0], run.tokens[1], run.tokens[0]]
    assert list(a) == run.tokens[2:] and list(b) == run.tokens[1:]


def test_next_gives_the_next_token_and_a_loop_begins_at_the_first():
    run = generate_cached(PARAMS, CONFIG, PROMPT, 3)
    first = next(run)
    assert run.tokens == [first] and next(iter(run)) == first
    assert [next(run), next(run)] == run.tokens[1:]
    with pytest.raises(StopIteration):
        next(run)


def test_no_token_is_chosen_before_it_is_asked_for():
    seen = []

    def sampler(row):
        seen.append(len(seen))
        return greedy(row)

    run = generate_cached(PARAMS, CONFIG, PROMPT, 5, sampler=sampler)
    assert seen == []
    list(itertools.islice(run, 2))
    assert seen == [0, 1] and len(run.tokens) == 2 and run.cache_len == 9
    list(run)
    assert seen == [0, 1, 2, 3, 4]


def test_a_generation_takes_any_steps():
    run = Generation(iter([(7, "row a", 3, 3), (5, "row b", 1, 4)]))
    assert (run.tokens, run.logits, run.positions_processed, run.cache_len) == ([7, 5], ["row a", "row b"], 4, 4)
