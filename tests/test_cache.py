"""The contiguous cache: what it holds, what it occupies, and that a refused write changes nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.cache import KVCache
from mgpt.config import GPTConfig
from mgpt.model import forward, init_params

EXAMPLE_30_3 = GPTConfig(vocab_size=11, max_seq_len=64, n_layer=2, n_head=4, n_kv_head=2, head_dim=4, n_embd=8,
                         n_inner=8)


def rows(n, seed=0, config=EXAMPLE_30_3):
    """Keys and values of n positions, each (L, K, n, D)."""
    return np.random.default_rng(seed).normal(size=(2, config.n_layer, config.n_kv_head, n, config.head_dim))


def fill(cache, k, v):
    for layer in range(len(k)):
        cache.append(layer, k[layer], v[layer])
    cache.advance(k.shape[2])


def held(cache):
    """What the cache gives back for the positions it holds, read through an empty append."""
    k, v = rows(0)
    got = [cache.append(layer, k[layer], v[layer]) for layer in range(2)]
    return np.array([k for k, _ in got]), np.array([v for _, v in got])


def test_example_30_3_occupies_512_576_and_640_bytes():
    cache = KVCache(EXAMPLE_30_3, capacity=10, dtype=np.float16)
    params = init_params(EXAMPLE_30_3, np.random.default_rng(0))
    sizes = []
    for ids in ([1, 2, 3, 4, 5, 6, 7, 8], [9], [10]):
        forward(params, EXAMPLE_30_3, ids, cache)
        sizes.append(cache.nbytes)
    assert sizes == [512, 576, 640]
    assert cache.capacity_nbytes == 640 and all(type(size) is int for size in (*sizes, cache.capacity_nbytes))


def test_a_2_byte_cache_of_8_positions_really_stores_512_bytes():
    cache = KVCache(EXAMPLE_30_3, capacity=8, dtype=np.float16)
    fill(cache, *rows(8))
    k, v = held(cache)
    assert k.nbytes + v.nbytes == cache.nbytes == cache.capacity_nbytes == 512
    views = cache.append(0, *(part[0] for part in rows(0)))
    assert all(view.base is not None and view.dtype == np.float16 for view in views)


def test_nbytes_counts_positions_held_and_capacity_nbytes_what_is_allocated():
    cache = KVCache(EXAMPLE_30_3, capacity=100)
    assert (cache.nbytes, cache.capacity_nbytes) == (0, 25_600)
    fill(cache, *rows(3))
    assert (cache.nbytes, cache.capacity_nbytes) == (768, 25_600)


def test_a_batch_multiplies_the_bytes():
    assert KVCache(EXAMPLE_30_3, 8, np.float16, batch=3).capacity_nbytes == 1536


def test_seq_len_does_not_change_within_a_pass():
    cache = KVCache(EXAMPLE_30_3, 5)
    k, v = rows(2)
    for layer in range(2):
        cache.append(layer, k[layer], v[layer])
        assert cache.seq_len == 0
    cache.advance(2)
    assert cache.seq_len == 2


def test_append_returns_all_rows_kept_and_new_as_views():
    cache = KVCache(EXAMPLE_30_3, 8)
    k, v = rows(5)
    fill(cache, k[:, :, :3], v[:, :, :3])
    keys, values = cache.append(1, k[1][:, 3:], v[1][:, 3:])
    assert np.array_equal(keys, k[1]) and np.array_equal(values, v[1])
    assert not keys.flags.owndata and keys.shape == (2, 5, 4)


def test_an_append_past_the_capacity_raises_before_it_writes():
    cache = KVCache(EXAMPLE_30_3, 4)
    fill(cache, *rows(3))
    before = [array.copy() for array in held(cache)]
    k, v = rows(2, seed=1)
    with pytest.raises(ValueError, match="3 of 4 positions: 2 more do not fit"):
        cache.append(0, k[0], v[0])
    assert cache.seq_len == 3 and all(np.array_equal(a, b) for a, b in zip(held(cache), before))
    k, v = rows(1, seed=2)
    keys, _ = cache.append(0, k[0], v[0])  # the last place is still free, and still unwritten by the refused rows
    assert np.array_equal(keys[:, 3:], k[0])


def test_a_pass_past_the_capacity_leaves_the_cache_usable():
    c, params = EXAMPLE_30_3, init_params(EXAMPLE_30_3, np.random.default_rng(0))
    cache = KVCache(c, 4)
    forward(params, c, [1, 2, 3], cache)
    with pytest.raises(ValueError, match="do not fit"):
        forward(params, c, [4, 5], cache)
    assert cache.seq_len == 3
    right = forward(params, c, [1, 2, 3, 4], last_only=True)
    assert np.max(np.abs(forward(params, c, [4], cache)[-1] - right)) <= 1e-12 * np.max(np.abs(right))


@pytest.mark.parametrize("shape", [(1, 2, 4), (2, 2, 3), (2, 4), (3, 2, 4), (1, 2, 2, 4)])
def test_rows_of_another_shape_are_refused_instead_of_broadcast(shape):
    """One KV head written into two would be repeated silently, and the model would answer nonsense."""
    cache = KVCache(EXAMPLE_30_3, 4)
    with pytest.raises(ValueError, match="k and v must both be"):
        cache.append(0, np.ones(shape), np.ones(shape))
    with pytest.raises(ValueError, match="k and v must both be"):
        cache.append(0, np.ones((2, 2, 4)), np.ones((2, 1, 4)))


def test_advance_past_the_capacity_or_backwards_is_refused():
    cache = KVCache(EXAMPLE_30_3, 4)
    for n in (5, -1, 1.0, True):
        with pytest.raises(ValueError, match="advance|n must be"):
            cache.advance(n)
    assert cache.seq_len == 0


@pytest.mark.parametrize("n", [4, -1, 1.5, None, True])
def test_truncate_keeps_a_prefix_of_what_is_held_and_nothing_else(n):
    cache = KVCache(EXAMPLE_30_3, 8)
    fill(cache, *rows(3))
    with pytest.raises(ValueError, match="n must be|truncate to 4 positions: only 3"):
        cache.truncate(n)
    assert cache.seq_len == 3


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=12))
def test_after_any_appends_and_truncations_the_cache_holds_what_a_list_would(steps):
    cache, kept, seed = KVCache(EXAMPLE_30_3, 16), [rows(0)], 0
    for is_append, n in steps:
        whole = np.concatenate(kept, axis=3)
        if is_append and cache.seq_len + n <= 16:
            seed += 1
            kept = [whole, rows(n, seed)]
            fill(cache, *kept[1])
        elif not is_append and n <= cache.seq_len:
            cache.truncate(np.int64(n))
            kept = [whole[:, :, :, :n]]
        whole = np.concatenate(kept, axis=3)
        k, v = held(cache)
        assert type(cache.seq_len) is int and cache.seq_len == whole.shape[3]
        assert np.array_equal(k, whole[0]) and np.array_equal(v, whole[1])
        assert cache.nbytes == 256 * cache.seq_len  # 2 · 2 layers · 2 heads · 4 · 8 bytes


def test_truncated_positions_may_be_written_anew():
    c, params = EXAMPLE_30_3, init_params(EXAMPLE_30_3, np.random.default_rng(0))
    cache = KVCache(c, 6)
    forward(params, c, [1, 2, 3, 4, 5], cache)
    cache.truncate(2)
    got = forward(params, c, [8, 9], cache)
    right = forward(params, c, [1, 2, 8, 9])[2:]
    assert np.max(np.abs(got - right)) <= 1e-12 * np.max(np.abs(right))


@pytest.mark.parametrize("arguments, word", [
    (dict(capacity=0), "capacity"), (dict(capacity=2.0), "capacity"), (dict(capacity=4, dtype=np.int8), "dtype"),
    (dict(capacity=4, dtype="no type"), "dtype"), (dict(capacity=4, dtype=None), "dtype"),
    (dict(capacity=4, batch=0), "batch"),
])
def test_a_cache_of_no_size_or_of_integers_is_refused(arguments, word):
    with pytest.raises(ValueError, match=word):
        KVCache(EXAMPLE_30_3, **arguments)
