"""Counted work: equal to what the real forward pass multiplies and keeps, and how it grows."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.cache import KVCache
from mgpt.config import GPTConfig
from mgpt.cost import Cost, decode_cost, prefill_cost, weight_count
from mgpt.model import forward, init_params

SMALL = GPTConfig(vocab_size=10, max_seq_len=64, n_layer=2, n_head=4, n_kv_head=2, head_dim=4, n_embd=8, n_inner=12)
# Meta-Llama-3-8B, its config.json
LLAMA_3_8B = GPTConfig(vocab_size=128256, max_seq_len=8192, n_layer=32, n_head=32, n_kv_head=8, head_dim=128,
                       n_embd=4096, n_inner=14336, tie_embeddings=False)


class Counted(np.ndarray):
    """An array that counts the operations of every matrix product it takes part in, 2·m·n·k each.

    A product of two vectors is none: that is the sum of squares of a norm.
    """

    flops = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        plain = [np.asarray(x) if isinstance(x, Counted) else x for x in inputs]
        if out is not None:
            options["out"] = tuple(np.asarray(x) for x in out)
        result = getattr(ufunc, method)(*plain, **options)
        if ufunc is np.matmul and plain[1].ndim > 1:
            Counted.flops += 2 * result.size * plain[0].shape[-1]
        return result.view(Counted) if isinstance(result, np.ndarray) else result


def counted_flops(config, ids, n_past=0, last_only=True):
    """What one real pass multiplies, behind n_past kept positions."""
    def wrap(value):
        if isinstance(value, dict):
            return {name: wrap(x) for name, x in value.items()}
        return [wrap(x) for x in value] if isinstance(value, list) else value.view(Counted)

    params = wrap(init_params(config, np.random.default_rng(0)))
    ids = np.asarray(ids)
    cache = KVCache(config, n_past + ids.shape[-1], batch=None if ids.ndim == 1 else len(ids))
    cache._k, cache._v = cache._k.view(Counted), cache._v.view(Counted)
    if n_past:
        forward(params, config, np.zeros((*ids.shape[:-1], n_past), int), cache)
    Counted.flops = 0
    forward(params, config, ids, cache, last_only=last_only)
    return Counted.flops


shapes = st.builds(
    lambda kv, group, half, layers, tie, embd, inner, vocab: GPTConfig(
        vocab_size=vocab, max_seq_len=64, n_layer=layers, n_head=kv * group, n_kv_head=kv, head_dim=2 * half,
        n_embd=embd, n_inner=inner, tie_embeddings=tie),
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.integers(2, 9),
    st.integers(1, 9), st.integers(2, 9))
fair = settings(deadline=None, derandomize=True, max_examples=40)


# --- against the real pass ------------------------------------------------------------------------

@fair
@given(shapes, st.integers(1, 12))
def test_prefill_flops_are_those_of_the_real_pass(config, n):
    assert prefill_cost(config, n).flops == counted_flops(config, [0] * n)


@fair
@given(shapes, st.integers(1, 12), st.integers(1, 4))
def test_decode_flops_are_those_of_the_real_pass(config, context, batch):
    assert decode_cost(config, context).flops == counted_flops(config, [0], n_past=context - 1)
    assert decode_cost(config, context, batch).flops == counted_flops(config, [[0]] * batch, n_past=context - 1)


def test_the_counter_sees_the_head_on_every_row_where_it_is_asked_for():
    """The oracle can tell: all rows instead of the last cost 2·E·V for each of the four others."""
    assert counted_flops(SMALL, [0] * 5, last_only=False) - counted_flops(SMALL, [0] * 5) == 4 * 2 * 8 * 10


@fair
@given(shapes)
def test_weight_bytes_are_those_of_the_arrays_a_pass_reads(config):
    params = init_params(config, np.random.default_rng(0))
    arrays = [params["norm"], params.get("head", params["embed"])]
    arrays += [array for layer in params["layers"] for array in layer.values()]
    wide, narrow = sum(a.nbytes for a in arrays), sum(a.astype(np.float32).nbytes for a in arrays)
    assert prefill_cost(config, 3).bytes_weights == decode_cost(config, 3).bytes_weights == wide
    assert prefill_cost(config, 3, 4).bytes_weights == decode_cost(config, 3, 1, 4).bytes_weights == narrow


@fair
@given(shapes, st.integers(1, 12))
def test_kv_bytes_are_those_of_the_real_cache_after_the_pass(config, n):
    cache = KVCache(config, 20)
    forward(init_params(config, np.random.default_rng(0)), config, [0] * n, cache)
    assert prefill_cost(config, n).bytes_kv == decode_cost(config, n).bytes_kv == cache.nbytes


# --- by hand --------------------------------------------------------------------------------------

def test_a_prefill_counted_by_hand():
    # A token and layer: qkv 8·32, out 16·8, gate and up 8·24, down 12·8 = 672; attention 2·4·4·3 = 96 over 3 columns.
    # 3 tokens · 2 layers · (672 + 96) + head 8·10 = 4,688 multiply-adds.
    # Weights: 2 layers · (672 + 16 norms) + 8 + 80 = 1,464 values.  KV: 2 · 2 · 2 · 4 · 3 = 96 values.
    cost = prefill_cost(SMALL, 3)
    assert cost == Cost(flops=9376, bytes_weights=11_712, bytes_kv=768, intensity=9376 / 12_480)


def test_a_decode_pass_of_four_requests_counted_by_hand():
    # 4 requests · (2 layers · (672 + 2·4·4·10) + 80) = 8,256 multiply-adds; KV 4 · 10 positions · 32 values.
    cost = decode_cost(SMALL, 10, batch=4, bytes_per_value=2)
    assert cost == Cost(flops=16_512, bytes_weights=2928, bytes_kv=2560, intensity=16_512 / 5488)


def test_example_30_3_and_the_larger_cache_of_30_4():
    other = dict(vocab_size=5, max_seq_len=4096, n_embd=8, n_inner=8)
    example = GPTConfig(**other, n_layer=2, n_head=4, n_kv_head=2, head_dim=4)
    assert [decode_cost(example, context, bytes_per_value=2).bytes_kv for context in (8, 9, 10)] == [512, 576, 640]
    larger = GPTConfig(**other, n_layer=24, n_head=16, n_kv_head=8, head_dim=128)
    assert decode_cost(larger, 4096, bytes_per_value=2).bytes_kv == 402_653_184
    assert decode_cost(larger, 4096, batch=2, bytes_per_value=2).bytes_kv == 805_306_368


def test_llama_3_8b_has_its_published_size():
    """8,030,261,248 parameters, of which the separate embedding's 128256 · 4096 are looked up and not read."""
    assert weight_count(LLAMA_3_8B) == 8_030_261_248 - 128_256 * 4096
    cost = decode_cost(LLAMA_3_8B, 8192, bytes_per_value=2)
    assert (cost.bytes_weights, cost.bytes_kv) == (15_009_849_344, 1_073_741_824)


# --- how it grows ---------------------------------------------------------------------------------

@fair
@given(shapes, st.integers(1, 10**6))
def test_prefill_grows_with_the_square_of_the_prompt_by_4_l_h_d(config, n):
    f = [prefill_cost(config, n + i).flops for i in range(3)]
    second_difference = f[2] - 2 * f[1] + f[0]  # of c·n² it is 2c
    assert second_difference == 2 * 4 * config.n_layer * config.n_head * config.head_dim


@fair
@given(shapes, st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 100))
def test_a_decode_pass_grows_linearly_with_its_context(config, context, more, batch):
    a, b = decode_cost(config, context, batch), decode_cost(config, context + more, batch)
    assert b.flops - a.flops == batch * 4 * config.n_layer * config.n_head * config.head_dim * more
    assert b.bytes_kv * context == a.bytes_kv * (context + more)  # in proportion: O(S·L·H_kv·d)
    assert b.bytes_weights == a.bytes_weights


@fair
@given(shapes, st.integers(1, 1000), st.integers(1, 1000))
def test_batching_amortises_the_weights_and_not_the_kv(config, context, batch):
    alone, together = decode_cost(config, context), decode_cost(config, context, batch)
    assert together.bytes_weights == alone.bytes_weights
    assert together.bytes_kv == batch * alone.bytes_kv and together.flops == batch * alone.flops
    assert alone.intensity <= together.intensity < alone.flops / alone.bytes_kv  # the KV's own intensity is the ceiling


def test_fewer_kv_heads_save_kv_bytes_and_no_attention_flops():
    heads = [GPTConfig(**{**vars(LLAMA_3_8B), "n_kv_head": n}) for n in (32, 8, 1)]
    kv = [decode_cost(config, 4096, bytes_per_value=2).bytes_kv for config in heads]
    assert kv == [4 * kv[1], kv[1], kv[1] // 8]
    growth = [decode_cost(config, 4097).flops - decode_cost(config, 4096).flops for config in heads]
    assert growth[0] == growth[1] == growth[2] == 4 * 32 * 32 * 128


@fair
@given(shapes, st.integers(1, 20))
def test_a_prefill_is_its_decode_passes_plus_masked_columns_less_their_heads(config, n):
    """What a kernel that skips the masked half would save: n(n - 1)/2 columns of scores and mix, per layer and head."""
    passes = sum(decode_cost(config, context).flops for context in range(1, n + 1))
    masked = 4 * config.n_layer * config.n_head * config.head_dim * n * (n - 1) // 2
    heads = (n - 1) * 2 * config.n_embd * config.vocab_size
    assert prefill_cost(config, n).flops == passes + masked - heads


def test_prefill_is_dense_work_and_decode_is_mostly_reading():
    prefill, decode = prefill_cost(LLAMA_3_8B, 2048, 2), decode_cost(LLAMA_3_8B, 2048, bytes_per_value=2)
    assert prefill.intensity > 1000 and 0.9 < decode.intensity < 1.1
    assert 20 < decode_cost(LLAMA_3_8B, 2048, batch=32, bytes_per_value=2).intensity < 32


def test_quantized_weights_leave_the_kv_bytes_and_the_flops_alone():
    plain, small = decode_cost(SMALL, 9, 2, 2), decode_cost(SMALL, 9, 2, 1, kv_bytes_per_value=2)
    assert small.bytes_weights * 2 == plain.bytes_weights
    assert (small.bytes_kv, small.flops) == (plain.bytes_kv, plain.flops)


# --- results and refusals -------------------------------------------------------------------------

def test_counts_are_exact_python_ints_and_the_intensity_a_float():
    huge = decode_cost(LLAMA_3_8B, np.int32(10**9), np.int64(10**6), np.int8(8))
    assert huge == decode_cost(LLAMA_3_8B, 10**9, 10**6)
    assert [type(x) for x in vars(huge).values()] == [int, int, int, float]
    assert huge.intensity == huge.flops / (huge.bytes_weights + huge.bytes_kv) and math.isfinite(huge.intensity)
    assert huge.bytes_kv == 2 * 32 * 8 * 128 * 8 * 10**15
    with pytest.raises(AttributeError):
        huge.flops = 0


@pytest.mark.parametrize("value", [0, -1, 1.5, "4", None, True])
@pytest.mark.parametrize("call, name", [
    (lambda v: prefill_cost(SMALL, v), "n"), (lambda v: prefill_cost(SMALL, 3, v), "bytes_per_value"),
    (lambda v: decode_cost(SMALL, v), "context"), (lambda v: decode_cost(SMALL, 3, v), "batch"),
    (lambda v: decode_cost(SMALL, 3, 1, v), "bytes_per_value"),
    (lambda v: decode_cost(SMALL, 3, 1, 8, 0 if v is None else v), "kv_bytes_per_value"),
])
def test_a_count_that_is_no_integer_of_at_least_one_is_refused_by_name(call, name, value):
    with pytest.raises(ValueError, match=f"^{name} must be an integer >= 1"):
        call(value)
