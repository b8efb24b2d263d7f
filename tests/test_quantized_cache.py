"""The quantized cache's law: logits are those of a plain cache over the values that the codes stand for.

`CodedRows` is the other side: a plain KVCache whose rows first go through codes by formulas written here.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.cache import KVCache
from mgpt.config import GPTConfig
from mgpt.generate import generate_cached
from mgpt.model import forward, init_params
from mgpt.quantized_cache import QuantizedKVCache, calibrate_scales

pytestmark = pytest.mark.filterwarnings("error")
laws = settings(deadline=None, derandomize=True, max_examples=100)
VARIANTS = [(bits, per) for bits in (8, 4, None, (8, 4), (None, 4), (4, None))
            for per in ("vector", "head", "channel", ("channel", "vector"))]


def model(seed=0, **changes):
    shape = dict(n_layer=2, n_head=4, n_kv_head=2, head_dim=6)
    config = GPTConfig(vocab_size=23, max_seq_len=40, n_embd=12, n_inner=8, **{**shape, **changes})
    return config, init_params(config, np.random.default_rng(seed))


def filled(config, params, ids):
    cache = KVCache(config, len(ids))
    forward(params, config, np.array(ids), cache)
    return cache


def coded(rows, bits, scale):
    """What the codes of rows (..., T, D) stand for; scale None: absmax of each vector, kept in float32."""
    if bits is None:
        return rows
    qmax = {8: 127, 4: 7}[bits]
    if scale is None:
        peak = np.abs(rows).max(axis=-1, keepdims=True)
        scale = np.where(peak > 0, peak / qmax, 1.0)
    scale = scale.astype(np.float32).astype(np.float64)
    return scale * np.minimum(np.maximum(np.round(rows / scale), -qmax), qmax)


class CodedRows(KVCache):
    def __init__(self, config, capacity, bits, scales):
        super().__init__(config, capacity)
        self.bits = bits if isinstance(bits, tuple) else (bits, bits)
        self.scales = scales

    def append(self, layer, k, v):
        rows = []
        for new, bits, scale in zip((k, v), self.bits, self.scales, strict=True):
            shared = None if scale is None else scale[layer].reshape(k.shape[0], 1, -1)
            rows.append(coded(new, bits, shared))
        return super().append(layer, *rows)


def equal(got, expected):
    assert np.abs(got - expected).max() <= 1e-12 * np.abs(expected).max()


def in_chunks(params, config, ids, cache, cuts):
    return np.concatenate([forward(params, config, part, cache) for part in np.split(np.array(ids), cuts)])


@pytest.mark.parametrize("keep_values", [True, False])
@pytest.mark.parametrize(("bits", "per"), VARIANTS, ids=str)
def test_logits_are_those_of_a_plain_cache_over_the_values_that_the_codes_stand_for(bits, per, keep_values):
    config, params = model()
    ids = np.random.default_rng(1).integers(0, 23, 16)
    # Calibrated on other positions, so that some of the values exceed fixed scales and clip.
    others = [filled(config, params, [3, 1, 4]), filled(config, params, [1, 5])]
    scales = calibrate_scales(config, others, bits, per)
    expected = forward(params, config, ids, CodedRows(config, 16, bits, scales))
    for cuts in ([], [9], [1, 2, 10, 15]):
        cache = QuantizedKVCache(config, 16, bits, per, scales=scales, keep_values=keep_values)
        equal(in_chunks(params, config, ids, cache, cuts), expected)
        cache.truncate(5)
        equal(forward(params, config, ids[5:], cache), expected[5:])


@laws
@given(st.sampled_from([(1, 1), (2, 1), (4, 2), (3, 3)]), st.sampled_from([2, 4, 10]), st.booleans(),
       st.sampled_from([8, 4, (8, 4), (4, None)]), st.lists(st.integers(0, 22), min_size=2, max_size=12),
       st.lists(st.integers(1, 11), max_size=3), st.integers(0, 12), st.booleans())
def test_the_law_for_any_shape_chunking_and_truncation(heads, width, tied, bits, ids, cuts, kept, keep):
    config, params = model(n_head=heads[0], n_kv_head=heads[1], head_dim=width, tie_embeddings=tied)
    cuts = sorted({cut for cut in cuts if cut < len(ids)})
    expected = forward(params, config, np.array(ids), CodedRows(config, len(ids), bits, (None, None)))
    cache = QuantizedKVCache(config, len(ids), bits, keep_values=keep)
    equal(in_chunks(params, config, ids, cache, cuts), expected)
    kept = min(kept, len(ids) - 1)
    cache.truncate(kept)
    assert cache.seq_len == kept
    equal(forward(params, config, np.array(ids[kept:]), cache), expected[kept:])


def test_generated_tokens_and_logits_are_those_of_the_plain_cache_over_the_same_values():
    config, params = model()
    plain = generate_cached(params, config, [1, 2, 3], 8, cache=CodedRows(config, 10, 4, (None, None)))
    cache = QuantizedKVCache(config, 10, 4)
    quantized = generate_cached(params, config, [1, 2, 3], 8, cache=cache, chunk_size=2)
    assert quantized.tokens == plain.tokens and quantized.cache_len == 10
    equal(np.array(quantized.logits), np.array(plain.logits))


def test_trap_quantizing_only_what_earlier_passes_wrote():
    """A pass also reads its own new rows as codes: with exact ones, logits would depend on the chunking."""
    config, params = model()
    ids = np.arange(8)

    class ExactNewRows(CodedRows):
        def append(self, layer, k, v):
            keys, values = (rows.copy() for rows in super().append(layer, k, v))
            keys[:, self.seq_len :], values[:, self.seq_len :] = k, v
            return keys, values

    whole = forward(params, config, ids, ExactNewRows(config, 8, 4, (None, None)))
    halves = in_chunks(params, config, ids, ExactNewRows(config, 8, 4, (None, None)), [4])
    assert np.abs(whole - halves).max() > 1e-3 * np.abs(whole).max()
    equal(in_chunks(params, config, ids, QuantizedKVCache(config, 8, 4), [4]),
          forward(params, config, ids, QuantizedKVCache(config, 8, 4)))


def test_without_quantization_the_rows_are_exact():
    config, params = model()
    ids = np.arange(8)
    cache = QuantizedKVCache(config, 8, None)
    equal(forward(params, config, ids, cache), forward(params, config, ids))
    assert cache.nbytes == KVCache(config, 8).capacity_nbytes == cache.capacity_nbytes
    assert cache.values_nbytes == 0


def test_each_sequence_of_a_batch_equals_the_sequence_alone():
    config, params = model()
    ids = np.random.default_rng(2).integers(0, 23, (3, 7))
    batch = KVCache(config, 7, batch=3)
    forward(params, config, ids, batch)
    for per in ("vector", "head", "channel"):
        scales = calibrate_scales(config, [batch], 4, per, batch=3)
        together = QuantizedKVCache(config, 9, 4, per, scales=scales, batch=3)
        logits = forward(params, config, ids, together)
        alone = [QuantizedKVCache(config, 9, 4, per, scales=scales) for _ in ids]
        for row, got, cache in zip(ids, logits, alone, strict=True):
            equal(got, forward(params, config, row, cache))
        static = [0 if s is None else s.nbytes for s in scales]
        assert together.nbytes - sum(static) == 3 * (alone[0].nbytes - sum(static))


# --- bytes

@pytest.mark.parametrize(("bits", "nbytes"), [
    (8, 67_584), (4, 34_816), (None, 524_288), ((8, 4), 51_200), ((4, None), 279_552)])
def test_bytes_a_token_of_llama_3_1_8b_with_a_float32_scale_for_each_vector(bits, nbytes):
    """kv-042, kv-043: vLLM's int8 and int4 per token and head, (128 + 128) + 2 · 4 bytes a head and layer.

    The codes alone would be 65,536 and 32,768.  float64 is 2 · 32 · 8 · 128 · 8; a pair is half of each.
    """
    llama, _ = model(n_layer=32, n_head=32, n_kv_head=8, head_dim=128)
    cache = QuantizedKVCache(llama, 3, bits, keep_values=False)
    assert (cache.nbytes, cache.capacity_nbytes) == (0, 3 * nbytes)
    cache.advance(2)
    assert cache.nbytes == 2 * nbytes and type(cache.nbytes) is int


@pytest.mark.parametrize(("bits", "per", "position", "fixed"), [
    (4, "vector", 3 + 4, 0), (8, "vector", 6 + 4, 0), (4, "head", 3, 4), (8, "channel", 6, 6 * 4)])
def test_fixed_scales_are_counted_once(bits, per, position, fixed):
    config, params = model()
    scales = calibrate_scales(config, [filled(config, params, [1, 2])], bits, per)
    cache = QuantizedKVCache(config, 10, bits, per, scales=scales)
    vectors = 2 * 2 * 2  # K and V, layers, KV heads
    assert (cache.nbytes, cache.capacity_nbytes) == (vectors * fixed, vectors * (10 * position + fixed))
    for held in (7, 8):
        forward(params, config, np.arange(held - cache.seq_len), cache)
        assert cache.nbytes == vectors * (held * position + fixed)
    cache.truncate(3)
    assert cache.nbytes == vectors * (3 * position + fixed)


def allocated(cache):
    """Bytes of every array that hangs on the cache, found by looking."""
    found, todo = {}, [cache]
    while todo:
        for value in vars(todo.pop()).values():
            if isinstance(value, np.ndarray):
                owner = value if value.base is None else value.base
                found[id(owner)] = owner.nbytes
            elif hasattr(value, "__dict__"):
                todo.append(value)
    return sum(found.values())


@pytest.mark.parametrize(("bits", "per"), VARIANTS, ids=str)
def test_the_bytes_counted_are_the_bytes_allocated(bits, per):
    config, params = model()
    scales = calibrate_scales(config, [filled(config, params, [1, 2])], bits, per)
    codes_alone = QuantizedKVCache(config, 10, bits, per, scales=scales, keep_values=False)
    with_values = QuantizedKVCache(config, 10, bits, per, scales=scales)
    assert codes_alone.values_nbytes == 0
    assert allocated(codes_alone) == codes_alone.capacity_nbytes
    assert allocated(with_values) == with_values.capacity_nbytes + with_values.values_nbytes
    quantized = sum(b is not None for b in (bits if isinstance(bits, tuple) else (bits, bits)))
    assert with_values.values_nbytes == quantized * 2 * 2 * 10 * 6 * 8


# --- calibration

def test_calibration_takes_the_largest_magnitude_of_every_cache():
    config, params = model()
    first, second = filled(config, params, [1, 2, 3, 4]), filled(config, params, [9, 8])
    none = np.zeros((2, 0, 6))
    keys = [np.concatenate([cache.append(layer, none, none)[0] for cache in (first, second)], axis=1)
            for layer in range(2)]  # (L, K, 6 positions, D)
    k_head, v_head = calibrate_scales(config, [first, second], 4, "head")
    k_channel, v_channel = calibrate_scales(config, [first, second], 8, "channel")
    assert k_head.shape == v_head.shape == (2, 2)
    assert k_channel.shape == v_channel.shape == (2, 2, 6)
    assert k_head.dtype == k_channel.dtype == np.float32
    np.testing.assert_allclose(k_head, np.abs(keys).max(axis=(2, 3)) / 7, rtol=1e-7)
    np.testing.assert_allclose(k_channel, np.abs(keys).max(axis=2) / 127, rtol=1e-7)
    assert (v_head != k_head).all()
    mixed = calibrate_scales(config, [first, second], (8, 4), ("channel", "vector"))
    assert (mixed[0] == k_channel).all() and mixed[1] is None
    assert calibrate_scales(config, [first], (None, 4), "head")[0] is None


def test_calibrating_a_batch_is_calibrating_on_each_of_its_sequences():
    config, params = model()
    ids = np.random.default_rng(3).integers(0, 23, (3, 5))
    batch = KVCache(config, 5, batch=3)
    forward(params, config, ids, batch)
    together = calibrate_scales(config, [batch], 4, "channel", batch=3)
    np.testing.assert_allclose(together, calibrate_scales(config, [filled(config, params, row) for row in ids], 4,
                                                          "channel"), rtol=1e-6)


def test_calibration_leaves_the_caches_as_they_were_and_never_gives_a_scale_of_zero():
    config, params = model()
    cache = filled(config, params, [1, 2])
    calibrate_scales(config, [cache])
    assert cache.seq_len == 2
    for layer in range(2):
        cache.append(layer, np.zeros((2, 0, 6)), np.zeros((2, 0, 6)))[1][..., 3] = 0
    assert (calibrate_scales(config, [cache], 8, "channel")[1][..., 3] == 1).all()


def test_what_exceeds_a_fixed_scale_is_clipped():
    config, _ = model()
    cache = QuantizedKVCache(config, 2, 4, "head", scales=(np.full((2, 2), 0.5), np.full((2, 2), 1.0)))
    rows = np.array([9.0, -9.0, 0.75, -0.75, 1.25, 0.0])
    k, v = cache.append(0, np.tile(rows, (2, 1, 1)), np.tile(rows, (2, 1, 1)))
    assert k[1, 0].tolist() == [3.5, -3.5, 1.0, -1.0, 1.0, 0.0]
    assert v[1, 0].tolist() == [7.0, -7.0, 1.0, -1.0, 1.0, 0.0]


# --- refusals

def test_a_refused_append_writes_nothing():
    config, params = model()
    ids = np.arange(6)
    cache = QuantizedKVCache(config, 6, 8)
    forward(params, config, ids[:4], cache)
    rows = np.ones((2, 1, 6))
    cache.append(0, rows, 2 * rows)
    for k, v, match in [(np.ones((2, 3, 6)), np.ones((2, 3, 6)), "3 more do not fit"),
                        (5 * rows, np.full((2, 1, 6), np.nan), "finite"), (5 * rows, rows[:1], "shape"),
                        (5 * rows, 1e60 * rows, "scale"), (np.ones((2, 1, 4)), np.ones((2, 1, 4)), "shape")]:
        with pytest.raises(ValueError, match=match):
            cache.append(0, k, v)
    cache.advance(1)
    keys, values = cache.append(0, np.zeros((2, 0, 6)), np.zeros((2, 0, 6)))
    np.testing.assert_allclose([keys[:, 4], values[:, 4]], [rows[:, 0], 2 * rows[:, 0]], rtol=1e-7)


def test_a_vector_of_zeros_stays_zero():
    config, _ = model()
    k, v = QuantizedKVCache(config, 2, 4).append(1, np.zeros((2, 1, 6)), np.zeros((2, 1, 6)))
    assert (k == 0).all() and (v == 0).all()


@pytest.mark.parametrize(("arguments", "match"), [
    ({"bits": 3}, "bits must be one of 8, 4, None"), ({"bits": 8.0}, "bits"), ({"bits": (8,)}, "bits.*pair"),
    ({"bits": (8, 4, 4)}, "bits.*pair"), ({"bits": "8"}, "bits"), ({"bits": True}, "bits"),
    ({"per": "token"}, "per must be one of vector, head, channel"), ({"per": ("head", "row")}, "per"),
    ({"per": "head"}, r"scales per head must have shape \(2, 2\), got None"),
    ({"per": "channel", "scales": (np.ones((2, 2)),) * 2}, r"scales per channel must have shape \(2, 2, 6\)"),
    ({"per": "head", "scales": (np.ones((2, 2)), np.zeros((2, 2)))}, "scale"),
    ({"per": "head", "scales": (np.full((2, 2), np.nan),) * 2}, "scale"),
    ({"scales": (np.ones((2, 2)),) * 2}, "scales must be None"),
    ({"capacity": 0}, "capacity"), ({"batch": 0}, "batch"),
])
def test_a_cache_that_cannot_be_is_refused(arguments, match):
    config, _ = model()
    with pytest.raises(ValueError, match=match):
        QuantizedKVCache(config, **{"capacity": 4, **arguments})


def test_advance_and_truncate_stay_inside_what_is_held():
    config, _ = model()
    cache = QuantizedKVCache(config, 4)
    for call in (lambda: cache.advance(5), lambda: cache.advance(-1), lambda: cache.truncate(1),
                 lambda: cache.truncate(-1)):
        with pytest.raises(ValueError):
            call()
    cache.advance(4)
    cache.truncate(np.int64(2))
    assert cache.seq_len == 2 and type(cache.seq_len) is int


def test_calibration_needs_positions():
    config, _ = model()
    for caches in ([], [KVCache(config, 4)]):
        with pytest.raises(ValueError, match="caches must hold positions"):
            calibrate_scales(config, caches)
