"""The forward pass: RMSNorm, RoPE, grouped-query attention, SwiGLU, held to plain loops written here."""

import cmath
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.cache import KVCache
from mgpt.config import GPTConfig
from mgpt.model import attention, forward, init_params, layer_shapes, rms_norm, rope, silu

LAW = 1e-12  # of the largest logit


def config(**changes):
    shape = dict(vocab_size=23, max_seq_len=40, n_layer=2, n_head=4, n_kv_head=2, head_dim=6, n_embd=16, n_inner=20,
                 tie_embeddings=False)
    return GPTConfig(**{**shape, **changes})


def params_of(shape, seed=0):
    """Random parameters whose norms are not all ones, so that a forgotten norm weight shows."""
    rng = np.random.default_rng(seed)
    params = init_params(shape, rng)
    for arrays in (params, *params["layers"]):
        for name in arrays:
            if name.endswith("norm"):
                arrays[name] = rng.uniform(0.5, 1.5, arrays[name].shape)
    return params


def agree(a, b):
    return np.max(np.abs(a - b)) <= LAW * np.max(np.abs(b))


# --- the slow oracle: one position, one head, one number at a time --------------------------------

def rope_by_complex_numbers(row, position, theta):
    """Component i and component i + D/2 are one complex number, turned by position · theta^(-2i/D)."""
    half = len(row) // 2
    turned = [complex(row[i], row[i + half]) * cmath.exp(1j * position * theta ** (-2 * i / len(row)))
              for i in range(half)]
    return [z.real for z in turned] + [z.imag for z in turned]


def rope_interleaved(row, position, theta):
    """The other public pairing, (2i, 2i + 1): wrong for these weights."""
    out = []
    for i in range(0, len(row), 2):
        z = complex(row[i], row[i + 1]) * cmath.exp(1j * position * theta ** (-i / len(row)))
        out += [z.real, z.imag]
    return out


def slow_attention(q, k, v, kv_head=lambda h, group, n_kv: h // group):
    """q (H, T, D), k and v (K, S, D): head by head, query by query, under the causal rule."""
    n_head, n_new, width = q.shape
    n_kv, n_seen = k.shape[:2]
    out = np.zeros(q.shape)
    for h in range(n_head):
        g = kv_head(h, n_head // n_kv, n_kv)
        for t in range(n_new):
            sees = n_seen - n_new + t + 1
            scores = [sum(q[h, t, i] * k[g, s, i] for i in range(width)) / math.sqrt(width) for s in range(sees)]
            weights = [math.exp(score - max(scores)) for score in scores]
            for s in range(sees):
                out[h, t] += weights[s] / sum(weights) * v[g, s]
    return out


def slow_norm(row, weight, eps):
    return np.array(row) / math.sqrt(sum(x * x for x in row) / len(row) + eps) * weight


def slow_forward(params, c, ids, turn=rope_by_complex_numbers, kv_head=lambda h, group, n_kv: h // group, start=0):
    """Logits (T, V) of the whole text, from the formulas alone."""
    x = [params["embed"][i] for i in ids]
    cut = c.n_head * c.head_dim, (c.n_head + c.n_kv_head) * c.head_dim
    for p in params["layers"]:
        rows = [slow_norm(row, p["attn_norm"], c.norm_eps) @ p["qkv"] for row in x]
        q, k, v = (np.array([part.reshape(-1, c.head_dim) for part in parts]).swapaxes(0, 1)
                   for parts in zip(*(np.split(row, cut) for row in rows)))
        for heads in (q, k):
            for h in range(len(heads)):
                for t in range(len(ids)):
                    heads[h, t] = turn(heads[h, t], start + t, c.rope_theta)
        mixed = slow_attention(q, k, v, kv_head)
        x = [row + mixed[:, t].reshape(-1) @ p["attn_out"] for t, row in enumerate(x)]
        for t, row in enumerate(x):
            gate, up = np.split(slow_norm(row, p["mlp_norm"], c.norm_eps) @ p["gate_up"], 2)
            x[t] = row + np.array([g / (1 + math.exp(-g)) for g in gate]) * up @ p["mlp_out"]
    head = params["embed"].T if c.tie_embeddings else params["head"]
    return np.array([slow_norm(row, params["norm"], c.norm_eps) @ head for row in x])


shapes = st.builds(
    lambda kv, group, half, tie, layers, theta: config(
        n_head=kv * group, n_kv_head=kv, head_dim=2 * half, tie_embeddings=tie, n_layer=layers, rope_theta=theta),
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.booleans(), st.integers(1, 2),
    st.sampled_from([100.0, 10_000.0, 500_000.0]))


@settings(deadline=None, derandomize=True, max_examples=25)
@given(shapes, st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_the_forward_pass_equals_the_written_out_formulas(c, n, seed):
    params, ids = params_of(c, seed), np.random.default_rng(seed).integers(0, c.vocab_size, n)
    assert agree(forward(params, c, ids), slow_forward(params, c, ids))


@pytest.mark.parametrize("mutant", [
    pytest.param(dict(turn=rope_interleaved), id="interleaved RoPE on half-split weights"),
    pytest.param(dict(kv_head=lambda h, group, n_kv: h % n_kv), id="h % H_kv instead of h // group"),
    pytest.param(dict(turn=lambda row, position, theta: row), id="no RoPE"),
    pytest.param(dict(turn=lambda row, position, theta: rope_by_complex_numbers(row, -position, theta)),
                 id="rotation the other way round, Q and K alike"),
])
def test_trap_a_wrong_rotation_or_head_map_is_far_off(mutant):
    c = config()
    params, ids = params_of(c), [3, 1, 4, 1, 5, 9]
    right, wrong = forward(params, c, ids), slow_forward(params, c, ids, **mutant)
    if "turn" in mutant:
        assert agree(right[0], wrong[0])  # the first position attends to itself alone: RoPE cannot show there
    assert np.max(np.abs(right - wrong)) > 0.01 * np.max(np.abs(right))


def test_trap_both_pairings_agree_at_position_zero():
    """So a test on one position proves nothing about RoPE."""
    row = [1.0, 2.0, 3.0, 4.0]
    assert rope_interleaved(row, 0, 1e4) == rope_by_complex_numbers(row, 0, 1e4) == row
    assert np.max(np.abs(np.subtract(rope_interleaved(row, 1, 1e4), rope_by_complex_numbers(row, 1, 1e4)))) > 0.8


# --- RoPE -----------------------------------------------------------------------------------------

@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 8), st.integers(0, 5000), st.sampled_from([100.0, 10_000.0, 1e6]), st.integers(0, 2**32 - 1))
def test_rope_is_a_complex_rotation_of_component_i_with_component_i_plus_half(half, start, theta, seed):
    x = np.random.default_rng(seed).normal(size=(3, 2, 2 * half))
    turned = rope(x, [start, start + 5], theta)
    for h in range(3):
        for t, position in enumerate((start, start + 5)):
            expected = rope_by_complex_numbers(x[h, t], position, theta)
            assert np.allclose(turned[h, t], expected, rtol=0, atol=1e-11)


def test_rope_turns_a_unit_vector_by_one_radian_a_position():
    turned = rope(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), [0, 1, 2])
    assert np.allclose(turned, [[1, 0], [0.5403023058681398, 0.8414709848078965],
                                [-0.9092974268256817, -0.4161468365471424]], rtol=0, atol=1e-15)


def test_rope_takes_integers_without_truncating_and_keeps_float32():
    assert np.allclose(rope([[1, 0]], [1]), [[0.5403023058681398, 0.8414709848078965]], rtol=0, atol=1e-15)
    assert rope(np.ones((1, 2), np.float32), [1]).dtype == np.float32


def test_rope_leaves_position_zero_and_every_length_alone():
    x = np.random.default_rng(0).normal(size=(4, 8))
    turned = rope(x, [0, 1, 10, 1000])
    assert np.array_equal(turned[0], x[0])
    assert np.allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(x, axis=1), rtol=1e-14)


def test_scores_of_rotated_rows_depend_on_the_distance_alone():
    q, k = np.random.default_rng(1).normal(size=(2, 1, 8))
    scores = [float((rope(q, [p + 3]) @ rope(k, [p]).T)[0, 0]) for p in (0, 7, 900)]
    assert max(scores) - min(scores) < 1e-11
    assert abs(float((rope(q, [4]) @ rope(k, [0]).T)[0, 0]) - scores[0]) > 1e-3


def test_a_uniform_shift_of_all_positions_is_invisible():
    c = config(max_seq_len=2000)
    params, ids = params_of(c), [3, 1, 4, 1, 5]
    right = forward(params, c, ids)
    shifted = forward(params, c, ids, positions=np.arange(5) + 1000)
    assert np.max(np.abs(shifted - right)) < 1e-10 * np.max(np.abs(right))
    assert np.max(np.abs(forward(params, c, ids, positions=2 * np.arange(5)) - right)) > 0.01


# --- attention, norms, activation -----------------------------------------------------------------

@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_query_head_h_reads_kv_head_h_div_group(n_kv, group, n_new, n_past, seed):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(n_kv * group, n_new, 4))
    k, v = rng.normal(size=(2, n_kv, n_past + n_new, 4))
    unseen = np.arange(n_past + n_new) > np.arange(n_past, n_past + n_new)[:, None]
    assert np.allclose(attention(q, k, v, unseen), slow_attention(q, k, v), rtol=0, atol=1e-13)


def test_attention_weights_of_a_worked_example():
    """Two kept keys with scores 2·ln 3 and 0, over √4: weights 3/4 and 1/4."""
    q = np.array([[[1.0, 0, 0, 0]]])
    k = np.array([[[2 * math.log(3), 0, 0, 0], [0, 5, 0, 0]]])
    v = np.array([[[4.0, 0, 0, 8], [0, 4, 0, 0]]])
    assert np.allclose(attention(q, k, v), [[[3, 1, 0, 6]]], rtol=0, atol=1e-14)


def test_large_scores_do_not_overflow():
    q = np.full((1, 1, 2), 1e4)
    k = np.array([[[1e4, 1e4], [-1e4, -1e4]]])
    with np.errstate(all="raise", under="ignore"):
        assert np.array_equal(attention(q, k, np.array([[[1.0, 2], [3, 4]]])), [[[1, 2]]])


def test_rms_norm_divides_by_the_root_of_the_mean_square():
    got = rms_norm(np.array([[3.0, 4.0]]), np.array([1.0, 2.0]), 0.5)  # mean square 12.5, + 0.5 = 13
    assert np.allclose(got, [[0.8320502943378437, 2.2188007849009166]], rtol=1e-15)


def test_rms_norm_does_not_subtract_the_mean():
    assert np.allclose(rms_norm(np.array([5.0, 5.0]), np.ones(2), 1e-12), [1, 1], rtol=1e-12)


def test_silu_is_x_times_its_sigmoid_and_never_overflows():
    with np.errstate(all="raise"):
        got = silu(np.array([-1000.0, -1.0, 0.0, 1.0, 1000.0]))
    assert np.allclose(got, [0, -0.2689414213699951, 0, 0.7310585786300049, 1000], rtol=1e-15, atol=1e-16)


# --- the pass as a whole --------------------------------------------------------------------------

@settings(deadline=None, derandomize=True, max_examples=25)
@given(shapes, st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_appending_never_changes_what_earlier_positions_computed(c, n, more, seed):
    params, ids = params_of(c, seed), np.random.default_rng(seed).integers(0, c.vocab_size, n + more)
    assert agree(forward(params, c, ids)[:n], forward(params, c, ids[:n]))


def test_changing_an_id_changes_its_own_position_and_later_ones_only():
    c = config()
    params = params_of(c)
    before, after = forward(params, c, [1, 2, 3, 4]), forward(params, c, [1, 2, 9, 4])
    assert agree(after[:2], before[:2])
    assert np.max(np.abs(after[2] - before[2])) > 0.01 and np.max(np.abs(after[3] - before[3])) > 0.01


def test_last_only_is_the_last_row():
    c = config()
    params = params_of(c)
    assert forward(params, c, [1, 2, 3], last_only=True).shape == (23,)
    assert agree(forward(params, c, [1, 2, 3], last_only=True), forward(params, c, [1, 2, 3])[-1])
    assert forward(params, c, [[1, 2, 3], [4, 5, 6]], last_only=True).shape == (2, 23)


def test_every_row_of_a_batch_equals_that_row_alone():
    c = config()
    params, ids = params_of(c), np.random.default_rng(2).integers(0, 23, (3, 5))
    together = forward(params, c, ids)
    assert together.shape == (3, 5, 23)
    assert all(agree(together[b], forward(params, c, ids[b])) for b in range(3))


def test_a_tied_head_is_the_embedding_and_a_separate_one_is_its_own_matrix():
    tied, separate = config(tie_embeddings=True), config(tie_embeddings=False)
    params = params_of(separate)
    own_head = forward(params, separate, [1, 2])
    without = {name: array for name, array in params.items() if name != "head"}
    same = {**without, "head": params["embed"].T.copy()}
    assert "head" not in init_params(tied, np.random.default_rng(0))
    assert agree(forward(without, tied, [1, 2]), forward(same, separate, [1, 2]))
    assert np.max(np.abs(own_head - forward(same, separate, [1, 2]))) > 0.1


def test_float32_parameters_stay_float32_with_and_without_a_cache():
    c = config(norm_eps=np.float64(1e-5), rope_theta=np.float64(1e4))
    params = params_of(c)
    small = {name: array.astype(np.float32) for name, array in params.items() if name != "layers"}
    small["layers"] = [{name: a.astype(np.float32) for name, a in layer.items()} for layer in params["layers"]]
    assert forward(small, c, [1, 2, 3]).dtype == np.float32
    assert forward(small, c, [1, 2, 3], KVCache(c, 3, np.float32)).dtype == np.float32
    wide = forward(params, c, [1, 2, 3])
    assert wide.dtype == np.float64
    assert 0 < np.max(np.abs(forward(small, c, [1, 2, 3]) - wide)) < 1e-4


def test_a_pass_changes_neither_parameters_nor_ids():
    c = config()
    params, ids = params_of(c), np.array([1, 2, 3])
    copies = [{name: a.copy() for name, a in layer.items()} for layer in params["layers"]]
    forward(params, c, ids, KVCache(c, 3))
    assert list(ids) == [1, 2, 3]
    for layer, copy in zip(params["layers"], copies, strict=True):
        assert all(np.array_equal(layer[name], copy[name]) for name in copy)


def test_the_same_seed_gives_the_same_parameters_in_the_shapes_of_the_config():
    c = config()
    a, b, other = (init_params(c, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert np.array_equal(a["layers"][1]["qkv"], b["layers"][1]["qkv"])
    assert not np.array_equal(a["layers"][1]["qkv"], other["layers"][1]["qkv"])
    assert {name: array.shape for name, array in a["layers"][0].items()} == layer_shapes(c) == {
        "attn_norm": (16,), "qkv": (16, 48), "attn_out": (24, 16), "mlp_norm": (16,), "gate_up": (16, 40),
        "mlp_out": (20, 16)}
    assert (a["embed"].shape, a["norm"].shape, a["head"].shape) == ((23, 16), (16,), (16, 23))
    assert all(array.dtype == np.float64 for array in a["layers"][0].values())


@pytest.mark.parametrize("ids, word", [
    ([], "at least one"), (5, "shape"), ([[[1]]], "shape"), ([1.0, 2.0], "integers"), ([True, False], "integers"),
    (["a"], "integers"), ([[0], [0, 1]], "integers"), ([0, 23], "0 .. 22"), ([-1, 3], "0 .. 22"), ([[0, 1], [2, 40]], "2"),
])
def test_ids_that_are_none_of_the_vocabulary_are_refused_by_name(ids, word):
    c = config()
    with pytest.raises(ValueError, match="ids must be") as error:
        forward(params_of(c), c, ids)
    assert word in str(error.value)


@pytest.mark.parametrize("positions", [[0], [0, 1, 2], [-1, 0], [39, 40], [0.0, 1.0], [[0, 1]]])
def test_positions_of_a_wrong_shape_or_outside_the_context_are_refused(positions):
    c = config()
    with pytest.raises(ValueError, match="positions must be"):
        forward(params_of(c), c, [1, 2], positions=positions)


@pytest.mark.parametrize("mask", [[1], [1, 1, 1], [0.0, 1.0], [[1], [1]]])
def test_a_mask_of_a_wrong_shape_is_refused(mask):
    c = config()
    with pytest.raises(ValueError, match="mask must be"):
        forward(params_of(c), c, [1, 2], mask=mask)


def test_a_text_longer_than_the_context_is_refused_and_the_cache_stays_as_it_was():
    c = config(max_seq_len=4)
    params, cache = params_of(c), KVCache(c, 10)
    forward(params, c, [1, 2, 3], cache)
    with pytest.raises(ValueError, match="max_seq_len"):
        forward(params, c, [4, 5], cache)
    assert cache.seq_len == 3
    assert agree(forward(params, c, [4], cache), forward(params, c, [1, 2, 3, 4])[-1:])


def test_a_query_that_sees_nothing_stays_finite_and_leaves_the_others_alone():
    """A left-padded row has queries that may look at nothing: their logits mean nothing, but are no NaN."""
    c = config()
    params = params_of(c)
    padded = forward(params, c, [7, 1, 2], positions=[0, 0, 1], mask=[0, 1, 1])
    assert np.isfinite(padded).all()
    assert agree(padded[1:], forward(params, c, [1, 2]))
