"""Codes in blocks: the logits of the contiguous quantized cache for every block size, and blocks that can be shared."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.blocks import BlockPool, OutOfBlocks, PagedKVCache, paged_attention
from mgpt.config import GPTConfig
from mgpt.generate import generate_cached
from mgpt.memory import vector_bytes
from mgpt.model import attention, forward, init_params
from mgpt.prefix import PrefixCache
from mgpt.quantized_blocks import QuantizedPagedKVCache
from mgpt.quantized_cache import QuantizedKVCache

pytestmark = pytest.mark.filterwarnings("error")


def model(**changes):
    shape = dict(n_layer=2, n_head=4, n_kv_head=2, head_dim=6)
    config = GPTConfig(vocab_size=23, max_seq_len=40, n_embd=12, n_inner=8, **{**shape, **changes})
    return config, init_params(config, np.random.default_rng(0))


def paged(config, bits, blocks=12, size=4, **options):
    pool = BlockPool(blocks, size)
    return pool, QuantizedPagedKVCache(config, pool, bits, **options)


def equal(got, expected):
    assert np.abs(got - expected).max() <= 1e-12 * np.abs(expected).max()


def in_chunks(params, config, ids, cache, cuts):
    return np.concatenate([forward(params, config, part, cache) for part in np.split(np.array(ids), cuts)])


def held(config, cache):
    none = np.zeros((config.n_kv_head, 0, config.head_dim))
    return np.array([cache.append(layer, none, none) for layer in range(config.n_layer)])


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.sampled_from([8, 4]), st.integers(1, 7), st.sampled_from([2, 6, 10]), st.integers(0, 9),
       st.lists(st.integers(1, 14), max_size=3), st.booleans())
def test_logits_are_those_of_the_contiguous_cache_for_any_block_size_chunking_and_truncation(
        bits, size, width, kept, cuts, apart):
    config, params = model(head_dim=width)
    ids = np.random.default_rng(kept).integers(0, 23, 15)
    expected = forward(params, config, ids, QuantizedKVCache(config, 15, bits))
    pool, cache = paged(config, bits, blocks=32, size=size)
    if apart:  # its blocks are then no neighbours
        other = QuantizedPagedKVCache(config, pool, bits)
        forward(params, config, ids[:1], cache)
        forward(params, config, ids[::-1], other)
        cuts = [cut for cut in cuts if cut > 1]
        got = in_chunks(params, config, ids[1:], cache, sorted({cut - 1 for cut in cuts}))
        equal(got, expected[1:])
    else:
        equal(in_chunks(params, config, ids, cache, sorted(set(cuts))), expected)
    cache.truncate(kept)
    equal(forward(params, config, ids[kept:], cache), expected[kept:])
    pool.check_integrity()


@pytest.mark.parametrize("bits", [8, 4])
def test_generated_tokens_are_those_of_the_contiguous_cache(bits):
    config, params = model()
    plain = generate_cached(params, config, [1, 2, 3], 9, cache=QuantizedKVCache(config, 11, bits))
    ours = generate_cached(params, config, [1, 2, 3], 9, cache=paged(config, bits)[1], chunk_size=2)
    assert ours.tokens == plain.tokens and ours.cache_len == 11
    equal(np.array(ours.logits), np.array(plain.logits))


@pytest.mark.parametrize("bits", [8, 4])
def test_a_hit_gives_the_same_rows_and_logits_as_computing_the_prefix(bits):
    config, params = model()
    pool, first = paged(config, bits)
    prefixes = PrefixCache(pool, model_key=("model", "kv", bits))
    ids = np.random.default_rng(1).integers(0, 23, 11)
    forward(params, config, ids, first)
    prefixes.insert(ids.tolist(), first.block_table)
    second = QuantizedPagedKVCache(config, pool, bits, prefix_cache=prefixes)
    found, n = prefixes.match(ids.tolist())
    second.attach(found, n)
    assert n == 8 and second.block_table == first.block_table[:2]
    logits = forward(params, config, ids[n:], second)
    equal(logits, forward(params, config, ids, QuantizedKVCache(config, 11, bits))[n:])
    assert (held(config, first) == held(config, second)).all()
    assert pool.num_resident == 4 and pool.ref_count(found[0]) == 2
    prefixes.check_integrity()


@pytest.mark.parametrize("bits", [8, 4])
def test_a_fork_copies_codes_and_scales_before_it_writes(bits):
    config, params = model()
    pool, cache = paged(config, bits)
    ids = np.arange(6)
    forward(params, config, ids, cache)
    before = held(config, cache)
    twin = cache.fork()
    assert isinstance(twin, QuantizedPagedKVCache) and twin.block_table == cache.block_table
    forward(params, config, np.array([20, 21]), twin)
    assert twin.block_table[0] == cache.block_table[0] and twin.block_table[1] != cache.block_table[1]
    assert (held(config, cache) == before).all()
    assert (held(config, twin)[..., :6, :] == before).all()
    pool.check_integrity()


ACTIONS = st.sampled_from(["append"] * 4 + ["fork"] * 2 + ["truncate"] * 2 + ["release", "file", "attach"])


@settings(deadline=None, derandomize=True, max_examples=80)
@given(st.sampled_from([8, 4]), st.integers(1, 4),
       st.lists(st.tuples(ACTIONS, st.integers(0, 2), st.integers(0, 7)), min_size=10, max_size=25))
def test_every_cache_reads_its_own_codes_whatever_the_others_do(bits, size, steps):
    """Three caches over one small pool; each holds the rows that a contiguous quantized cache gives its texts."""
    config, _ = model(n_layer=1)
    record = vector_bytes(6, f"int{bits}")
    pool = BlockPool(8, size)
    prefixes = PrefixCache(pool, model_key=bits)
    caches = [QuantizedPagedKVCache(config, pool, bits, prefix_cache=prefixes) for _ in range(3)]
    texts = [[] for _ in caches]  # the K and V of a token at a position follow from both

    def rows(text):
        drawn = [np.random.default_rng(token + 10 * at).normal(size=(2, 2, 1, 6)) * 2.0**token
                 for at, token in enumerate(text)]
        return np.concatenate([np.zeros((2, 2, 0, 6)), *drawn], axis=2)  # (K or V, KV heads, T, D)

    for action, i, n in steps:
        cache, j = caches[i], (i + n) % 3
        if action == "append":
            text = texts[i] + [n % 3] * max(1, n % 4)
            before = pool.num_free, cache.block_table
            try:
                cache.append(0, *rows(text)[:, :, len(texts[i]):])
            except OutOfBlocks:
                assert (pool.num_free, cache.block_table) == before
                continue
            cache.advance(len(text) - len(texts[i]))
            texts[i] = text
        elif action == "truncate":
            cache.truncate(min(n, cache.seq_len))
            texts[i] = texts[i][: cache.seq_len]
        elif action == "release":
            cache.release()
            texts[i] = []
        elif action == "fork" and i != j:
            caches[j].release()
            caches[j], texts[j] = cache.fork(), texts[i]
        elif action == "file":
            prefixes.insert(texts[i], cache.block_table)
        elif action == "attach" and i != j:
            cache.release()
            cache.attach(*prefixes.match(texts[j]))
            texts[i] = texts[j][: cache.seq_len]
        prefixes.check_integrity()
        for one, text in zip(caches, texts):
            contiguous = QuantizedKVCache(config, 40, bits)
            expected = contiguous.append(0, *rows(text))
            assert one.seq_len == len(text) and np.array_equal(held(config, one)[0], expected)
            assert one.nbytes == 4 * record * len(text)  # 2 · KV heads · a record
            assert one.capacity_nbytes == 4 * record * size * -(-len(text) // size)
        assert pool.num_in_use == len({block for one in caches for block in one.block_table})


def test_a_cache_that_holds_nothing_gives_empty_rows_of_the_right_width():
    config, _ = model()
    for bits in (8, 4):
        pool, cache = paged(config, bits)
        assert held(config, cache).shape == (2, 2, 2, 0, 6) and held(config, cache).dtype == np.float64
        assert (cache.nbytes, cache.capacity_nbytes, pool.num_free) == (0, 0, 12)
        assert all(not pages.any() and pages.shape == (2, 12, 4, 6) for pages in cache.pages(1))


@pytest.mark.parametrize("bits", [8, 4])
def test_the_rows_that_are_given_out_are_nobodys_memory(bits):
    config, params = model()
    _, cache = paged(config, bits)
    forward(params, config, np.arange(5), cache)
    before = held(config, cache)
    for layer in range(2):
        for rows in (*cache.append(layer, *np.zeros((2, 2, 0, 6))), *cache.pages(layer)):
            rows[...] = 7.0
    assert (held(config, cache) == before).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_a_fork_evicts_like_its_parent_and_a_copy_without_room_changes_nothing(bits):
    config, params = model()
    pool = BlockPool(3, 4)
    prefixes = PrefixCache(pool, model_key=bits)
    cache = QuantizedPagedKVCache(config, pool, bits, prefix_cache=prefixes)
    forward(params, config, np.arange(4), cache)
    prefixes.insert([0, 1, 2, 3], cache.block_table)
    cache.release()  # cached, without a user
    forward(params, config, np.arange(10, 16), cache)
    twin, before = cache.fork(), held(config, cache)
    forward(params, config, np.array([1]), twin)  # the shared tail is copied into the evicted block
    assert prefixes.num_filed == 0 and (held(config, twin)[..., :6, :] == before).all()
    third = twin.fork()
    with pytest.raises(OutOfBlocks):
        forward(params, config, np.array([2]), third)
    assert third.block_table == twin.block_table and (held(config, cache) == before).all()
    pool.check_integrity()


@pytest.mark.parametrize("bits, width, record", [(8, 128, 132), (4, 128, 68), (4, 16, 12), (8, 16, 20), (4, 6, 7)])
def test_the_bytes_of_a_block_are_codes_and_scales_as_the_counter_has_them(bits, width, record):
    """kv-042, kv-043: a float32 scale beside the codes of each K and V vector; for a width of 128, 132 and 68 bytes."""
    config, _ = model(head_dim=width)
    pool, cache = paged(config, bits, size=16)
    assert record == vector_bytes(width, f"int{bits}")
    vectors = 2 * config.n_layer * config.n_kv_head
    assert cache.block_nbytes == vectors * 16 * record
    assert pool.storage.k.nbytes + pool.storage.v.nbytes == 12 * cache.block_nbytes
    rows = np.ones((2, 5, width))
    for layer in range(2):
        cache.append(layer, rows, rows)
    cache.advance(5)
    assert (cache.nbytes, cache.capacity_nbytes) == (5 * vectors * record, cache.block_nbytes)


def test_attention_from_the_blocks_reads_what_the_codes_stand_for():
    config, params = model()
    _, cache = paged(config, 4)
    forward(params, config, np.arange(7), cache)
    q = np.random.default_rng(2).normal(size=(4, 1, 6))
    k, v = held(config, cache)[1]
    equal(paged_attention(q, cache, 1), attention(q, k, v))


def test_one_pool_holds_one_format():
    config, params = model()
    pool, cache = paged(config, 8)
    forward(params, config, np.arange(3), cache)
    for other in (lambda: QuantizedPagedKVCache(config, pool, 4), lambda: PagedKVCache(config, pool)):
        with pytest.raises(ValueError, match="the pool's blocks hold int8"):
            other()


def test_records_of_one_size_are_not_one_format():
    """Four bits of 8 values and eight bits of 4 take 4 bytes each, and mean something else."""
    narrow, _ = model(head_dim=4)
    wide, params = model(head_dim=8)
    pool, cache = paged(wide, 4)
    assert cache.block_nbytes == paged(narrow, 8)[1].block_nbytes
    forward(params, wide, np.arange(3), cache)
    with pytest.raises(ValueError, match="the pool's blocks hold uint8"):
        QuantizedPagedKVCache(narrow, pool, 8)


def test_an_empty_cache_whose_storage_was_replaced_refuses_to_write():
    """Blocks written there would stand in no other cache's memory, whatever their tables say."""
    config, params = model()
    pool = BlockPool(6, 4)
    old = PagedKVCache(config, pool)
    new = QuantizedPagedKVCache(config, pool, 4)  # nothing is resident: the pool holds int4 from now on
    with pytest.raises(ValueError, match="storage"):
        forward(params, config, np.arange(3), old)
    forward(params, config, np.arange(3), new)
    with pytest.raises(ValueError, match="storage"):
        old.attach(new.block_table, 3)
    assert pool.num_resident == 1 and pool.ref_count(new.block_table[0]) == 1 and not old.block_table
    new.release()
    again = PagedKVCache(config, pool)
    assert np.array_equal(forward(params, config, np.arange(3), again),
                          forward(params, config, np.arange(3), PagedKVCache(config, BlockPool(1, 4))))


def test_a_refused_append_takes_no_block_and_writes_nothing():
    config, params = model()
    pool, cache = paged(config, 8, blocks=2)
    forward(params, config, np.arange(4), cache)
    before, rows = held(config, cache), np.ones((2, 1, 6))
    for k, v, match in [(rows, np.full((2, 1, 6), np.nan), "finite"), (rows, 1e60 * rows, "scale"),
                        (rows[:1], rows[:1], "must both be"), (np.ones((2, 1, 10)), np.ones((2, 1, 10)), "6")]:
        with pytest.raises(ValueError, match=match):
            cache.append(0, k, v)
    with pytest.raises(OutOfBlocks):
        cache.append(0, np.ones((2, 5, 6)), np.ones((2, 5, 6)))
    assert pool.num_free == 1 and (held(config, cache) == before).all()


@pytest.mark.parametrize("bits", [3, None, 8.0, True, (8, 4)])
def test_other_bits_are_refused(bits):
    config, _ = model()
    with pytest.raises(ValueError, match="bits"):
        paged(config, bits)
