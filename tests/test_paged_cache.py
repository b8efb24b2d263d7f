"""The cache in blocks: which blocks it takes and gives back, what it copies, and attention read from the blocks."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mgpt.blocks import BlockPool, PagedKVCache, paged_attention
from mgpt.cache import KVCache
from mgpt.config import GPTConfig
from mgpt.generate import generate_cached, generate_full_prefix
from mgpt.model import attention, forward, init_params
from mgpt.paged_attention import attention_steps
from mgpt.prefix import PrefixCache

CONFIG = GPTConfig(vocab_size=19, max_seq_len=64, n_layer=2, n_head=4, n_kv_head=2, head_dim=4, n_embd=8, n_inner=12)
PARAMS = init_params(CONFIG, np.random.default_rng(0))


def rows(n, seed=0):
    """Keys and values of n positions, each (L, K, n, D)."""
    return np.random.default_rng(seed).normal(size=(2, CONFIG.n_layer, CONFIG.n_kv_head, n, CONFIG.head_dim))


def fill(cache, n, seed=0):
    k, v = rows(n, seed)
    for layer in range(CONFIG.n_layer):
        cache.append(layer, k[layer], v[layer])
    cache.advance(n)
    return k, v


def held(cache):
    """(2, L, K, S, D): what the cache gives back, read through an append of no position."""
    nothing = np.zeros((CONFIG.n_kv_head, 0, CONFIG.head_dim))
    return np.array([cache.append(layer, nothing, nothing) for layer in range(CONFIG.n_layer)]).swapaxes(0, 1)


def paged(num_blocks=8, block_size=4, **options):
    pool = BlockPool(num_blocks, block_size)
    return pool, PagedKVCache(CONFIG, pool, **options)


def scattered(pool, cache, n):
    """Fill `cache` while another takes every second block, so that its blocks are no neighbours."""
    other = PagedKVCache(CONFIG, pool)
    for seed in range(n):
        fill(cache, 1, seed)
        fill(other, 1, seed + 100)
    return other


# --- blocks taken and given back -------------------------------------------------------------------------------------

def test_blocks_are_taken_by_the_pass_that_first_writes_into_them():
    """sch-004 (GeeeekExplorer/nano-vllm#240, #66): a sampled token's K/V are written by the pass after it."""
    pool, cache = paged()
    seen = []
    generation = generate_cached(PARAMS, CONFIG, [1, 2, 3, 4], 6, cache=cache)
    for _ in generation:
        seen.append((cache.seq_len, len(cache.block_table)))
    assert seen == [(4, 1), (5, 2), (6, 2), (7, 2), (8, 2), (9, 3)]


def test_trap_a_block_for_the_sampled_token_is_taken_one_pass_too_early():
    """sch-004: counting the output that was sampled but not processed gives 2 blocks after the prefill, not 1."""
    pool, cache = paged()
    next(generate_cached(PARAMS, CONFIG, [1, 2, 3, 4], 6, cache=cache))
    assert -(-(4 + 1) // pool.block_size) == 2 != len(cache.block_table) == 1


def test_the_last_output_takes_no_block():
    """inference-sim/inference-sim#1435 (sch-007): P = 8 and one output need 2 blocks of 4; wrong was 3."""
    _, cache = paged()
    assert len(generate_cached(PARAMS, CONFIG, range(8), 1, cache=cache).tokens) == 1
    assert len(cache.block_table) == 2 and cache.seq_len == 8


@pytest.mark.parametrize("block_size, blocks", [(1, 11), (3, 4), (4, 3), (11, 1), (16, 1)])
def test_a_cache_holds_the_whole_blocks_of_its_positions(block_size, blocks):
    pool, cache = paged(num_blocks=12, block_size=block_size)
    fill(cache, 11)
    assert len(cache.block_table) == blocks == pool.num_in_use
    assert all(type(block) is int for block in cache.block_table)


@pytest.mark.parametrize("dtype, bytes_per_value", [(np.float64, 8), (np.float32, 4), (np.float16, 2)])
def test_nbytes_are_the_positions_and_capacity_the_blocks(dtype, bytes_per_value):
    """2 layers, 2 KV heads, width 4: 32 values a position (64 bytes in float16, as in example 30.3)."""
    _, cache = paged(dtype=dtype)
    sizes = [(cache.nbytes, cache.capacity_nbytes)]
    for n in (8, 1, 1):
        fill(cache, n)
        sizes.append((cache.nbytes, cache.capacity_nbytes))
    values = [(0, 0), (256, 256), (288, 384), (320, 384)]
    assert sizes == [(a * bytes_per_value, b * bytes_per_value) for a, b in values]


@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("scatter", [False, True])
def test_rows_come_back_in_logical_order_whatever_block_they_stand_in(block_size, scatter):
    pool, cache = paged(num_blocks=24, block_size=block_size)
    if scatter:
        scattered(pool, cache, 10)
        expected = np.concatenate([rows(1, seed) for seed in range(10)], axis=3)
        if block_size < 10:
            assert np.any(np.diff(cache.block_table) != 1)
    else:
        expected = np.array(fill(cache, 10))
    assert np.array_equal(held(cache), expected)


def test_neighbouring_blocks_are_read_as_views():
    pool, cache = paged()
    k, v = rows(9)
    for got in cache.append(0, k[0], v[0]):
        assert got.base is not None and (np.shares_memory(got, pool.storage.k) or np.shares_memory(got, pool.storage.v))


def test_an_append_past_the_pool_raises_before_it_writes_or_takes_a_block():
    pool, cache = paged(num_blocks=3)
    fill(cache, 6)
    before, table = held(cache).copy(), cache.block_table
    whole = pool.storage.k.copy()
    for error in (RuntimeError, ValueError):
        with pytest.raises(error, match="2 more blocks are needed, 1 of 3 are free"):
            cache.append(0, *(np.ones((2, 7, 4)),) * 2)
    assert (cache.block_table, cache.seq_len, pool.num_free) == (table, 6, 1)
    assert np.array_equal(held(cache), before) and np.array_equal(pool.storage.k, whole)
    fill(cache, 6)
    assert cache.seq_len == 12 and pool.num_free == 0


def test_a_pass_that_failed_can_be_tried_again():
    pool, cache = paged()
    fill(cache, 3)
    cache.append(0, *(np.ones((2, 6, 4)),) * 2)  # the pass ends here, in its first layer
    k, v = fill(cache, 2, seed=5)
    assert np.array_equal(held(cache)[:, :, :, 3:], [k, v])
    cache.release()
    pool.check_integrity()
    assert pool.num_free == 8


@pytest.mark.parametrize("shape", [(2, 3), (1, 3, 4), (3, 3, 4), (2, 3, 5), (1, 2, 3, 4)])
def test_rows_of_another_shape_are_refused(shape):
    pool, cache = paged()
    with pytest.raises(ValueError, match=r"k and v must both be \(2, T, 4\)"):
        cache.append(0, np.ones(shape), np.ones(shape))
    assert pool.num_free == 8


@pytest.mark.parametrize("bad", [-1, 1.0, None, True])
def test_bad_counts_are_refused(bad):
    _, cache = paged()
    fill(cache, 3)
    for call in (cache.advance, cache.truncate):
        with pytest.raises(ValueError, match="n must be an integer >= 0"):
            call(bad)
    with pytest.raises(ValueError, match="only 3 are held"):
        cache.truncate(4)
    with pytest.raises(ValueError, match="cannot advance by 2"):
        cache.advance(2)
    assert cache.seq_len == 3


@pytest.mark.parametrize("keep, blocks", [(9, 3), (8, 2), (5, 2), (4, 1), (1, 1), (0, 0)])
def test_truncate_gives_whole_blocks_back(keep, blocks):
    pool, cache = paged()
    expected = np.array(fill(cache, 9))
    cache.truncate(keep)
    assert (cache.seq_len, len(cache.block_table), pool.num_free) == (keep, blocks, 8 - blocks)
    assert np.array_equal(held(cache), expected[:, :, :, :keep])
    pool.check_integrity()


def test_a_block_is_given_back_once_however_often_the_cache_is_released():
    """vllm-project/vllm#1556, #3347 (sch-012): a shared block was dropped twice, "Double free!"."""
    pool, cache = paged()
    fill(cache, 6)
    twin = cache.fork()
    cache.truncate(2)
    for _ in range(3):
        cache.release()
    pool.check_integrity()
    assert [pool.ref_count(block) for block in twin.block_table] == [1, 1] and pool.num_free == 6
    fill(cache, 2)
    assert cache.seq_len == 2


def test_a_finished_wave_leaves_no_block_behind():
    """sch-035 (microsoft/vidur): a member that ended before its wave kept its blocks for ever, 4 of 8."""
    pool = BlockPool(8, 4)
    long, short = PagedKVCache(CONFIG, pool), PagedKVCache(CONFIG, pool)
    fill(long, 12), fill(short, 5)
    short.release()
    fill(long, 1)
    assert pool.num_in_use == 4
    long.release()
    assert pool.num_in_use == 0 and pool.num_free == 8


# --- sharing and copying ---------------------------------------------------------------------------------------------

def test_a_fork_shares_every_block_and_copies_the_one_it_writes():
    pool, cache = paged()
    first = np.array(fill(cache, 6))
    twin = cache.fork()
    assert twin.block_table == cache.block_table and pool.num_in_use == 2
    assert [pool.ref_count(block) for block in cache.block_table] == [2, 2]
    of_twin, of_cache = np.array(fill(twin, 1, seed=1)), np.array(fill(cache, 1, seed=2))
    assert twin.block_table[0] == cache.block_table[0] and twin.block_table[1] != cache.block_table[1]
    assert pool.num_in_use == 3 and [pool.ref_count(block) for block in cache.block_table] == [2, 1]
    assert np.array_equal(held(twin), np.concatenate([first, of_twin], axis=3))
    assert np.array_equal(held(cache), np.concatenate([first, of_cache], axis=3))


def test_a_fork_at_the_edge_of_a_block_copies_nothing():
    pool, cache = paged()
    fill(cache, 8)
    twin = cache.fork()
    fill(twin, 1)
    assert twin.block_table[:2] == cache.block_table and pool.num_in_use == 3


def test_a_fork_shares_no_block_of_a_pass_that_failed():
    pool, cache = paged()
    fill(cache, 3)
    cache.append(0, *(np.ones((2, 6, 4)),) * 2)  # blocks for positions 3 .. 8, and then the pass ends
    twin = cache.fork()
    assert (len(cache.block_table), len(twin.block_table), twin.seq_len) == (3, 1, 3)


def test_a_fork_keeps_the_dtype_and_evicts_like_its_parent():
    pool = BlockPool(2, 4)
    prefix = PrefixCache(pool, model_key="model")
    cache = PagedKVCache(CONFIG, pool, np.float16, prefix_cache=prefix)
    fill(cache, 8)
    prefix.insert(range(8), cache.block_table)
    cache.truncate(4)
    twin = cache.fork()
    assert held(twin).dtype == np.float16
    fill(twin, 1)
    assert len(twin.block_table) == 2 and prefix.num_filed == 1


def test_a_copy_that_has_no_room_leaves_the_shared_block_as_it_is():
    pool, cache = paged(num_blocks=2)
    expected = np.array(fill(cache, 6))
    twin = cache.fork()
    with pytest.raises(RuntimeError, match="1 more blocks are needed, 0 of 2"):
        fill(twin, 1, seed=1)
    assert np.array_equal(held(cache), expected) and [pool.ref_count(i) for i in cache.block_table] == [2, 2]
    cache.release()  # then the twin is the only user, and needs no copy
    fill(twin, 1, seed=1)
    assert pool.num_in_use == 2


def test_trap_two_writers_of_one_partial_block_tear_it():
    """Avarok-Cybersecurity/atlas#1193, #1200 (sch-040): without the copy, the second writer overwrites the first."""
    class Torn(PagedKVCache):
        def _make_room(self, end):
            pass  # there is room, and nobody asks whose

    intact = {}
    for kind in (PagedKVCache, Torn):
        pool, cache = paged()
        fill(cache, 2)
        one, other = kind(CONFIG, pool), kind(CONFIG, pool)
        for branch in (one, other):
            branch.attach(cache.block_table, 2)
        written = np.array(fill(one, 1, seed=1))
        fill(other, 1, seed=2)
        intact[kind] = np.array_equal(held(one)[:, :, :, 2:], written)
    assert intact == {PagedKVCache: True, Torn: False}


def test_a_rewind_into_a_filed_block_copies_it_before_writing():
    """Else the prefix cache would answer for the new ids with the old key: no other user shows that it is shared."""
    pool, cache = paged()
    prefix = PrefixCache(pool, model_key="model")
    expected = np.array(fill(cache, 8))
    prefix.insert(range(8), cache.block_table)
    cache.truncate(6)
    assert pool.ref_count(cache.block_table[1]) == 1
    fill(cache, 2, seed=1)
    reader = PagedKVCache(CONFIG, pool)
    reader.attach(*prefix.match(range(9)))
    assert np.array_equal(held(reader), expected)
    assert not np.array_equal(held(cache), expected)


def test_an_attached_prefix_is_the_same_memory_and_counts_as_held():
    pool, cache = paged()
    prefix = PrefixCache(pool, model_key="model")
    expected = np.array(fill(cache, 10))
    prefix.insert(range(10), cache.block_table)
    cache.release()
    assert (pool.num_free, pool.num_cached) == (6, 2)
    reader = PagedKVCache(CONFIG, pool)
    reader.attach(*prefix.match(range(20)))
    assert reader.seq_len == 8 and pool.num_in_use == 2 and pool.num_free == 6
    assert np.array_equal(held(reader), expected[:, :, :, :8])
    assert reader.nbytes == reader.capacity_nbytes == 2 * reader.block_nbytes
    assert prefix.evict(8) == []


@pytest.mark.parametrize("ids, n, message", [
    ([0], 8, "8 positions stand in 2 blocks of 4, got 1"), ([0, 1, 2], 8, "got 3"), ([0, 7], 8, r"\[7\] are free"),
    ([0, 8], 8, "below num_blocks"), ([0, -1], 8, "block_id must be"), ([], -1, "num_cached_tokens must be"),
    ([0, 1], 8.0, "num_cached_tokens must be"),
])
def test_a_prefix_that_cannot_be_is_refused_and_takes_no_reference(ids, n, message):
    pool, cache = paged()
    fill(cache, 8)
    reader = PagedKVCache(CONFIG, pool)
    with pytest.raises(ValueError, match=message):
        reader.attach(ids, n)
    assert [pool.ref_count(i) for i in range(8)] == [1, 1, 0, 0, 0, 0, 0, 0]
    assert (reader.seq_len, reader.block_table) == (0, ())


def test_only_an_empty_cache_takes_a_prefix():
    pool, cache = paged()
    fill(cache, 4)
    with pytest.raises(ValueError, match="only an empty cache"):
        cache.attach(cache.block_table, 4)
    assert pool.ref_count(cache.block_table[0]) == 1


def test_a_pool_holds_one_shape_and_dtype_at_a_time():
    pool, cache = paged()
    fill(cache, 1)
    other = GPTConfig(**{**CONFIG.__dict__, "n_kv_head": 4})
    for arguments in ((other, pool), (CONFIG, pool, np.float32)):
        with pytest.raises(ValueError, match="the pool's blocks hold float64"):
            PagedKVCache(*arguments)
    cache.release()
    PagedKVCache(other, pool)
    for dtype in (np.int8, "no type", None):
        with pytest.raises(ValueError, match="dtype must be a float type"):
            PagedKVCache(CONFIG, pool, dtype)


# --- eviction when the pool needs it ---------------------------------------------------------------------------------

def test_without_a_prefix_cache_to_evict_from_cached_blocks_are_not_taken():
    pool, cache = paged(num_blocks=2)
    prefix = PrefixCache(pool, model_key="model")
    fill(cache, 8)
    prefix.insert(range(8), cache.block_table)
    cache.release()
    with pytest.raises(RuntimeError):
        fill(PagedKVCache(CONFIG, pool), 1)
    assert prefix.num_filed == 2


@pytest.mark.parametrize("n, left", [(4, 2), (5, 1), (12, 0)])
def test_only_as_many_blocks_are_evicted_as_are_needed(n, left):
    pool = BlockPool(3, 4)
    prefix = PrefixCache(pool, model_key="model")
    cache = PagedKVCache(CONFIG, pool, prefix_cache=prefix)
    fill(cache, 8)
    prefix.insert(range(8), cache.block_table)
    cache.release()
    fill(cache, n)
    assert prefix.num_filed == left and pool.num_cached == left
    prefix.check_integrity()


def test_a_request_that_cannot_fit_evicts_nothing_and_keeps_its_references():
    """vllm-project/vllm#11562, #11565 (sch-009): 5 blocks without a user, 2 of them its own hit: 3 < 4, seen before any
    is touched.  Comparing 4 <= 5 and then touching fails midway; touching first leaks the references."""
    pool = BlockPool(5, 4)
    prefix = PrefixCache(pool, model_key="model")
    cache = PagedKVCache(CONFIG, pool, prefix_cache=prefix)
    fill(cache, 12)
    prefix.insert(range(12), cache.block_table)
    cache.release()
    assert pool.num_free + pool.num_cached == 5
    found, n_cached = prefix.match([*range(8), 50])
    cache.attach(found, n_cached)
    before = [pool.block(i) for i in range(5)]
    with pytest.raises(RuntimeError, match="4 more blocks are needed"):
        fill(cache, 16)
    assert [pool.block(i) for i in range(5)] == before and prefix.num_filed == 3 and cache.seq_len == 8
    fill(cache, 12)  # 3 blocks: 2 free ones and the cached one that is not its own
    assert pool.num_free == pool.num_cached == 0


def test_a_hit_in_use_saves_a_block_and_a_cached_hit_takes_one_that_could_have_been_freed():
    """sch-010 (nano-vllm can_allocate): P = 12, one hit in use, one cached, 2 without a user: 3 - 1 = 2 fit."""
    pool = BlockPool(3, 4)
    prefix = PrefixCache(pool, model_key="model")
    first = PagedKVCache(CONFIG, pool)
    fill(first, 8)
    prefix.insert(range(8), first.block_table)
    first.truncate(4)
    assert (pool.num_in_use, pool.num_cached, pool.num_free) == (1, 1, 1)
    second = PagedKVCache(CONFIG, pool, prefix_cache=prefix)
    second.attach(*prefix.match(range(12)))
    fill(second, 4)
    assert (len(second.block_table), pool.num_free) == (3, 0)


# --- attention over blocks -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 8, 16, 64])
@pytest.mark.parametrize("n_head, n_kv_head", [(4, 4), (4, 2), (4, 1)], ids=["MHA", "GQA", "MQA"])
@pytest.mark.parametrize("n_new", [1, 2, 13])
def test_attention_over_blocks_equals_contiguous_attention(block_size, n_head, n_kv_head, n_new):
    config = GPTConfig(**{**CONFIG.__dict__, "n_head": n_head, "n_kv_head": n_kv_head})
    rng = np.random.default_rng(3)
    k, v = rng.normal(size=(2, n_kv_head, 13, 4)) * 5  # wide scores: the running maximum has to move
    q = rng.normal(size=(n_head, n_new, 4)) * 5
    pool = BlockPool(30, block_size)
    cache, other = PagedKVCache(config, pool), PagedKVCache(config, pool)
    for position in range(13):
        for one in (cache, other):
            for layer in range(2):
                one.append(layer, *(rows[:, position : position + 1] * (one is cache) for rows in (k, v)))
            one.advance(1)
    unseen = np.arange(13) > np.arange(13 - n_new, 13)[:, None]
    expected = attention(q, k, v, unseen)
    assert np.max(np.abs(paged_attention(q, cache, 1) - expected)) <= 1e-12 * np.max(np.abs(expected))


def test_the_account_of_the_online_softmax_block_by_block():
    """Scores 0 and ln 2 in the first block, ln 4 in the second, by hand: sums 1.5, then 1.5 · (2/4) + 1 = 1.75."""
    config = GPTConfig(**{**CONFIG.__dict__, "n_layer": 1, "n_head": 1, "n_kv_head": 1})
    pool = BlockPool(2, 2)
    cache = PagedKVCache(config, pool)
    k, v = np.zeros((1, 3, 4)), np.zeros((1, 3, 4))
    k[0, :, 0], v[0, :, 0] = np.log([1, 2, 4]), [7, 14, 28]
    cache.append(0, k, v)
    cache.advance(3)
    q = np.zeros((1, 1, 4))
    q[0, 0, 0] = 2.0  # times 1 / sqrt(4)
    first, second = attention_steps(q, cache, 0)
    assert (first.block_id, second.block_id) == cache.block_table
    assert [step.maximum.item() for step in (first, second)] == pytest.approx([np.log(2), np.log(4)], rel=1e-15)
    assert [step.total.item() for step in (first, second)] == pytest.approx([1.5, 1.75], rel=1e-15)
    assert [step.mixed[0, 0, 0, 0] for step in (first, second)] == pytest.approx([17.5, 36.75], rel=1e-15)
    assert paged_attention(q, cache, 0)[0, 0, 0] == pytest.approx(21.0, rel=1e-15)


def test_scores_that_would_overflow_stay_finite():
    pool, cache = paged()
    k, v = rows(6)
    for layer in range(2):
        cache.append(layer, 1e3 * k[layer], v[layer])
    cache.advance(6)
    out = paged_attention(np.full((4, 1, 4), 1e3), cache, 0)
    assert np.all(np.isfinite(out)) and np.max(np.abs(out)) <= np.max(np.abs(v[0]))


def test_slots_behind_the_last_position_are_never_read():
    """What an earlier user left there may be anything: 0 times NaN would be NaN."""
    pool, cache = paged()
    fill(cache, 6)
    expected = paged_attention(np.ones((4, 2, 4)), cache, 0)
    for values in (pool.storage.k, pool.storage.v):
        values[:, :, 1, 2:] = np.nan
    assert np.array_equal(paged_attention(np.ones((4, 2, 4)), cache, 0), expected)
    assert np.all(np.isfinite(held(cache)))


@pytest.mark.parametrize("q", [np.ones((4, 0, 4)), np.ones((4, 4, 4)), np.ones((4, 4))])
def test_queries_that_have_no_position_are_refused(q):
    _, cache = paged()
    fill(cache, 3)
    with pytest.raises(ValueError, match=r"q must be \(H, T, D\) with T in 1 .. 3"):
        paged_attention(q, cache, 0)


# --- random lives ----------------------------------------------------------------------------------------------------

ACTIONS = st.sampled_from(["append", "truncate", "fork", "release", "file", "attach"])


@settings(max_examples=80, deadline=None, derandomize=True)
@given(size=st.integers(1, 5),
       steps=st.lists(st.tuples(ACTIONS, st.integers(0, 3), st.integers(0, 9)), max_size=25))
@example(size=2, steps=[("append", 0, 1), ("fork", 0, 1), ("append", 0, 1), ("append", 1, 2)])  # two write one tail
def test_every_cache_keeps_its_own_rows_whatever_the_others_do(size, steps):
    """Up to four caches over one small pool, each beside the plain array of what it should hold."""
    pool = BlockPool(9, size)
    prefix = PrefixCache(pool, model_key="model")
    caches = [PagedKVCache(CONFIG, pool, prefix_cache=prefix) for _ in range(4)]
    expected = [np.zeros((2, 2, 2, 0, 4)) for _ in range(4)]
    texts = [[] for _ in range(4)]  # an id for each position: the seed of its rows, so equal ids have equal rows
    for action, i, n in steps:
        cache, j = caches[i], (i + n) % 4
        if action == "append":
            ids = [n % 3] * max(n, 1)
            new = np.concatenate([rows(1, 1000 * len(texts[i]) + token) for token in ids], axis=3)
            before = pool.num_free, cache.block_table
            try:
                for layer in range(2):
                    cache.append(layer, new[0, layer], new[1, layer])
            except RuntimeError:
                assert (pool.num_free, cache.block_table) == before
                continue
            cache.advance(len(ids))
            expected[i] = np.concatenate([expected[i], new], axis=3)
            texts[i] = texts[i] + [(len(texts[i]), token) for token in ids]
        elif action == "truncate":
            keep = min(n, cache.seq_len)
            cache.truncate(keep)
            expected[i], texts[i] = expected[i][:, :, :, :keep], texts[i][:keep]
        elif action == "release":
            cache.release()
            expected[i], texts[i] = expected[i][:, :, :, :0], []
        elif action == "fork" and i != j:
            caches[j].release()
            caches[j], expected[j], texts[j] = cache.fork(), expected[i], texts[i]
        elif action == "file":
            prefix.insert([100 * at + token for at, token in texts[i]], cache.block_table)
        elif action == "attach" and i != j:
            cache.release()
            cache.attach(*prefix.match([100 * at + token for at, token in texts[j]]))
            expected[i], texts[i] = expected[j][:, :, :, : cache.seq_len], texts[j][: cache.seq_len]
        prefix.check_integrity()
        for one, rows_of_one in zip(caches, expected):
            assert len(one.block_table) == -(-one.seq_len // size)
            assert np.array_equal(held(one), rows_of_one)
        assert pool.num_in_use == len({block for one in caches for block in one.block_table})


def test_generation_through_blocks_gives_the_tokens_of_the_slow_generator():
    for block_size in (1, 3, 16):
        _, cache = paged(num_blocks=40, block_size=block_size)
        slow = generate_full_prefix(PARAMS, CONFIG, [1, 2, 3, 4, 5], 12)
        assert generate_cached(PARAMS, CONFIG, [1, 2, 3, 4, 5], 12, cache=cache, chunk_size=2).tokens == slow.tokens


def test_a_paged_forward_equals_a_contiguous_one_in_a_two_byte_cache():
    """Both store what float16 keeps of the same numbers, so they agree to the law, not just roughly."""
    contiguous = KVCache(CONFIG, 12, np.float16)
    _, cache = paged(dtype=np.float16)
    for ids in ([1, 2, 3, 4, 5, 6, 7], [8], [9]):
        one, other = forward(PARAMS, CONFIG, ids, cache), forward(PARAMS, CONFIG, ids, contiguous)
        assert np.max(np.abs(one - other)) <= 1e-12 * np.max(np.abs(other))
