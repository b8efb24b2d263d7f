"""The law of every cache: the same tokens, and logits within 1e-12 of the largest, however the text came in.

The oracle is `forward` over the whole text without a cache, or the generator that runs it for every token.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.blocks import BlockPool, PagedKVCache
from mgpt.cache import KVCache
from mgpt.config import GPTConfig
from mgpt.generate import generate_cached, generate_full_prefix
from mgpt.model import forward, init_params
from mgpt.prefix import PrefixCache
from mgpt.sampling import greedy

LAW = 1e-12  # of the largest logit of the oracle
CAPACITY = 24


def deviation(got, expected):
    """max|Δ| in units of the largest logit."""
    return np.max(np.abs(got - expected)) / np.max(np.abs(expected))


# --- one factory a cache kind: (config, params, ids) -> an empty cache, or one that already holds a beginning of ids --

def contiguous(config, params, ids):
    return KVCache(config, CAPACITY)


def paged(block_size):
    def make(config, params, ids):
        return PagedKVCache(config, BlockPool(-(-CAPACITY // block_size), block_size))
    return make


def scattered(block_size):
    """Blocks that are no neighbours, in an order that is not that of the positions."""
    def make(config, params, ids):
        pool = BlockPool(2 * CAPACITY, block_size)
        taken = [pool.allocate() for _ in range(2 * CAPACITY)]
        for block in [*taken[::-2], *taken[::2]]:
            pool.release(block)
        return PagedKVCache(config, pool)
    return make


def prefix_shared(block_size):
    """Another request has computed the same ids and left; what it filed is attached."""
    def make(config, params, ids):
        pool = BlockPool(2 * CAPACITY, block_size)
        prefix = PrefixCache(pool, model_key="model")
        first = PagedKVCache(config, pool)
        forward(params, config, ids, first)
        prefix.insert(ids, first.block_table)
        first.release()
        cache = PagedKVCache(config, pool)
        cache.attach(*prefix.match(ids))
        return cache
    return make


def forked(block_size):
    """A branch of a request that holds half of the ids and has gone on with others of its own."""
    def make(config, params, ids):
        first = PagedKVCache(config, BlockPool(2 * CAPACITY, block_size))
        if len(ids) > 1:
            forward(params, config, ids[: len(ids) // 2], first)
        branch = first.fork()
        forward(params, config, ids[::-1][:3], first)
        return branch
    return make


KINDS = {
    "KVCache": contiguous, "paged 1": paged(1), "paged 2": paged(2), "paged 5": paged(5), "paged 24": paged(24),
    "scattered 1": scattered(1), "scattered 3": scattered(3), "prefix-shared 1": prefix_shared(1),
    "prefix-shared 3": prefix_shared(3), "forked 1": forked(1), "forked 4": forked(4),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@st.composite
def models(draw):
    """(config, params): MHA, GQA and MQA, tied and separate head, norms that are not all ones."""
    n_kv_head, group = draw(st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 2), (3, 2)]))
    config = GPTConfig(
        vocab_size=draw(st.integers(5, 20)), max_seq_len=CAPACITY, n_layer=draw(st.integers(1, 2)),
        n_head=n_kv_head * group, n_kv_head=n_kv_head, head_dim=draw(st.sampled_from([2, 4, 6])),
        n_embd=draw(st.integers(4, 10)), n_inner=draw(st.integers(3, 12)), tie_embeddings=draw(st.booleans()))
    return config, params_of(config, draw(st.integers(0, 99)))


def params_of(config, seed=0):
    rng = np.random.default_rng(seed)
    params = init_params(config, rng)
    for arrays in (params, *params["layers"]):
        arrays.update({name: rng.uniform(0.5, 1.5, a.shape) for name, a in arrays.items() if name.endswith("norm")})
    return params


def ids_of(config, n, seed=0):
    return np.random.default_rng(seed).integers(0, config.vocab_size, n)


def run(params, config, ids, cache, sizes=(), step=forward):
    """Process `ids`, behind what the cache holds, in passes of the given sizes and then one by one; all the logits."""
    out, at = [], 0
    for size in [*sizes, *[1] * len(ids)]:
        if at < len(ids):
            out.append(step(params, config, ids[at : at + size], cache))
            at += size
    return np.concatenate(out)


laws = settings(max_examples=25, deadline=None, derandomize=True)


# --- the law ----------------------------------------------------------------------------------------------------------

@every_kind
@laws
@given(model=models(), n=st.integers(1, CAPACITY), sizes=st.lists(st.integers(1, 9), max_size=8),
       seed=st.integers(0, 9))
def test_any_chunking_of_any_cache_gives_the_logits_of_one_pass(kind, model, n, sizes, seed):
    config, params = model
    ids = ids_of(config, n, seed)
    cache = KINDS[kind](config, params, ids)
    n_held = cache.seq_len
    assert n_held < n
    got = run(params, config, ids[n_held:], cache, sizes)
    assert deviation(got, forward(params, config, ids)[n_held:]) <= LAW
    assert cache.seq_len == n


@every_kind
@laws
@given(model=models(), n=st.integers(1, 14), n_new=st.integers(1, 10), chunk=st.none() | st.integers(1, 6))
def test_the_cached_generator_gives_the_tokens_of_the_slow_one(kind, model, n, n_new, chunk):
    config, params = model
    ids = ids_of(config, n)
    slow = generate_full_prefix(params, config, ids, n_new)
    cache = KINDS[kind](config, params, ids)
    n_held = cache.seq_len
    fast = generate_cached(params, config, ids[n_held:], n_new, cache=cache, chunk_size=chunk)
    assert fast.tokens == slow.tokens
    assert deviation(np.array(fast.logits), np.array(slow.logits)) <= LAW
    assert fast.cache_len == n + n_new - 1 and fast.positions_processed == n + n_new - 1 - n_held


@every_kind
@laws
@given(model=models(), n=st.integers(2, 16), data=st.data())
def test_after_truncate_a_cache_goes_on_as_if_the_rest_had_never_been(kind, model, n, data):
    config, params = model
    ids = ids_of(config, n)
    cache = KINDS[kind](config, params, ids)
    run(params, config, ids[cache.seq_len :], cache, [n])
    keep = data.draw(st.integers(0, n))
    cache.truncate(keep)
    other = ids_of(config, data.draw(st.integers(1, 8)), seed=1)
    got = run(params, config, other, cache, data.draw(st.lists(st.integers(1, 5), max_size=3)))
    assert deviation(got, forward(params, config, np.concatenate([ids[:keep], other]))[keep:]) <= LAW


@every_kind
@laws
@given(model=models(), n=st.integers(1, 12), before=st.integers(1, 5), after=st.integers(1, 5))
def test_a_preempted_request_resumes_with_the_same_tokens(kind, model, n, before, after):
    """It drops its blocks, keeps its outputs, and recomputes the P + G - 1 positions that it had, in one pass."""
    config, params = model
    ids = ids_of(config, n)
    expected = generate_full_prefix(params, config, ids, before + after)
    cache = KINDS[kind](config, params, ids)
    first = generate_cached(params, config, ids[cache.seq_len :], before, cache=cache)
    outputs = list(first.tokens)
    assert cache.seq_len == n + before - 1
    cache.truncate(0)
    logits = forward(params, config, [*ids, *outputs[:-1]], cache, last_only=True)
    assert cache.seq_len == n + before - 1 and deviation(logits, expected.logits[before - 1]) <= LAW
    resumed = generate_cached(params, config, outputs[-1:], after, cache=cache)
    assert outputs + resumed.tokens == expected.tokens
    assert deviation(np.array(resumed.logits), np.array(expected.logits[before:])) <= LAW


@laws
@given(model=models(), block_size=st.integers(1, 5), shared=st.integers(0, 8),
       tails=st.lists(st.integers(1, 5), min_size=2, max_size=4))
def test_requests_that_share_a_prefix_and_take_turns_get_what_each_gets_alone(model, block_size, shared, tails):
    config, params = model
    pool = BlockPool(4 * CAPACITY, block_size)
    prefix = PrefixCache(pool, model_key="model")
    texts = [np.concatenate([ids_of(config, shared), ids_of(config, n, seed)]) for seed, n in enumerate(tails, 1)]
    caches, logits = [], []
    for text in texts:
        cache = PagedKVCache(config, pool, prefix_cache=prefix)
        cache.attach(*prefix.match(text))
        logits.append([forward(params, config, text[cache.seq_len :], cache, last_only=True)])
        prefix.insert(text, cache.block_table)
        caches.append(cache)
        prefix.check_integrity()
    chosen = [[] for _ in texts]
    for _ in range(4):
        for i, cache in enumerate(caches):
            chosen[i].append(greedy(logits[i][-1]))
            logits[i].append(forward(params, config, chosen[i][-1:], cache, last_only=True))
    for text, rows, tokens in zip(texts, logits, chosen):
        alone = generate_full_prefix(params, config, text, 5)
        assert tokens == alone.tokens[:4]
        assert deviation(np.array(rows), np.array(alone.logits)) <= LAW
    whole = shared // block_size
    assert pool.num_in_use <= sum(len(cache.block_table) for cache in caches) - whole * (len(texts) - 1)


# --- batches ----------------------------------------------------------------------------------------------------------

def padded(texts, side, filler):
    """(ids, mask) of unequal texts, (B, T) each, padded on one side with an id that is a real one elsewhere."""
    width = max(map(len, texts))
    ids, mask = np.full((len(texts), width), filler), np.zeros((len(texts), width), bool)
    for row, text in enumerate(texts):
        where = slice(width - len(text), None) if side == "left" else slice(0, len(text))
        ids[row, where], mask[row, where] = text, True
    return ids, mask


lengths = st.lists(st.integers(1, 10), min_size=1, max_size=4)


@pytest.mark.parametrize("side", ["left", "right"])
@laws
@given(model=models(), lengths=lengths, cached=st.booleans(), split=st.integers(1, 10))
def test_padding_on_either_side_gives_each_request_what_it_gets_alone(side, model, lengths, cached, split):
    config, params = model
    texts = [ids_of(config, n, seed) for seed, n in enumerate(lengths)]
    ids, mask = padded(texts, side, filler=1)
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    if cached:  # in two passes: the second sees what the first has kept, padding included
        cache, n = KVCache(config, CAPACITY, batch=len(texts)), min(split, ids.shape[1])
        passes = [(slice(0, n), mask[:, :n])] + ([(slice(n, None), mask)] if n < ids.shape[1] else [])
        got = np.concatenate([forward(params, config, ids[:, part], cache, positions=positions[:, part], mask=seen)
                              for part, seen in passes], axis=1)
    else:
        got = forward(params, config, ids, positions=positions, mask=mask)
    assert np.all(np.isfinite(got))
    for row, text in enumerate(texts):
        assert deviation(got[row][mask[row]], forward(params, config, text)) <= LAW


@pytest.mark.parametrize("side", ["left", "right"])
@laws
@given(model=models(), lengths=lengths, n_new=st.integers(1, 6))
def test_a_padded_batch_decodes_the_tokens_that_each_request_decodes_alone(side, model, lengths, n_new):
    config, params = model
    texts = [ids_of(config, n, seed) for seed, n in enumerate(lengths)]
    ids, mask = padded(texts, side, filler=0)
    at = np.array(lengths)
    cache = KVCache(config, CAPACITY, batch=len(texts))
    logits = forward(params, config, ids, cache, positions=np.maximum(np.cumsum(mask, axis=1) - 1, 0), mask=mask)
    last = [-1] * len(texts) if side == "left" else at - 1  # where each row's last real position stands
    tokens = [[greedy(logits[row, last[row]])] for row in range(len(texts))]
    for step in range(n_new - 1):
        mask = np.concatenate([mask, np.ones((len(texts), 1), bool)], axis=1)
        new = np.array([[row[-1]] for row in tokens])
        logits = forward(params, config, new, cache, positions=(at + step)[:, None], mask=mask, last_only=True)
        for row, one in enumerate(logits):
            tokens[row].append(greedy(one))
    assert tokens == [generate_full_prefix(params, config, text, n_new).tokens for text in texts]


@laws
@given(model=models(), n=st.integers(1, 8), data=st.data())
def test_the_order_in_a_batch_changes_nothing(model, n, data):
    config, params = model
    ids = np.stack([ids_of(config, n, seed) for seed in range(4)])
    order = data.draw(st.permutations(range(4)))
    got = forward(params, config, ids[order], KVCache(config, n, batch=4))
    assert deviation(got, np.stack([forward(params, config, row) for row in ids])[order]) <= LAW


# --- mutants: broken copies of the seam, each of which the law must catch ---------------------------------------------

def half_split(width):
    """Index pairs that turn together, as Llama's public weights have them."""
    return np.arange(width // 2), np.arange(width // 2, width)


def interleaved(width):
    """The other public pairing: right for other weights."""
    return np.arange(0, width, 2), np.arange(1, width, 2)


def grouped(n_head, n_kv_head):
    """The KV head of each query head."""
    return np.arange(n_head) // (n_head // n_kv_head)


def modulo(n_head, n_kv_head):
    return np.arange(n_head) % n_kv_head


def causal(n_past, n_new):
    """True where a query may look, (T, S)."""
    return np.arange(n_past + n_new) <= np.arange(n_past, n_past + n_new)[:, None]


def square(n_past, n_new):
    """The causal rule of a first pass; one new position alone sees everything."""
    return np.arange(n_past + n_new) <= (np.arange(n_new)[:, None] if n_new > 1 else n_past)


def no_rule(n_past, n_new):
    return np.ones((n_new, n_past + n_new), bool)


def copied(*, late=0, pairs=half_split, kv_head=grouped, seen=causal, chunk_from_zero=False):
    """A second, plain writing of `forward` over a cache, with one thing to break at a time."""
    def norm(x, weight):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight

    def rotate(x, positions):
        first, second = pairs(x.shape[-1])
        angle = np.outer(positions, 10_000.0 ** (-np.arange(len(first)) / len(first)))  # (T, D/2)
        out = np.empty_like(x)
        out[..., first] = x[..., first] * np.cos(angle) - x[..., second] * np.sin(angle)
        out[..., second] = x[..., second] * np.cos(angle) + x[..., first] * np.sin(angle)
        return out

    def step(params, config, ids, cache):
        n_past, n_new = cache.seq_len, len(ids)
        start = 0 if chunk_from_zero else n_past + late * (n_past > 0)
        n_head, n_kv = config.n_head, config.n_kv_head
        x = params["embed"][ids]  # (T, E)
        for layer, p in enumerate(params["layers"]):
            rows = (norm(x, p["attn_norm"]) @ p["qkv"]).reshape(n_new, -1, config.head_dim).transpose(1, 0, 2)
            turned = rotate(rows[: n_head + n_kv], np.arange(start, start + n_new))
            k, v = cache.append(layer, turned[n_head:], rows[n_head + n_kv :])  # (K, S, D)
            scores = turned[:n_head] @ k[kv_head(n_head, n_kv)].swapaxes(1, 2) / np.sqrt(config.head_dim)
            weights = np.where(seen(n_past, n_new), np.exp(scores), 0.0)  # (H, T, S)
            mixed = weights / weights.sum(axis=-1, keepdims=True) @ v[kv_head(n_head, n_kv)]
            x = x + mixed.transpose(1, 0, 2).reshape(n_new, -1) @ p["attn_out"]
            gate, up = np.split(norm(x, p["mlp_norm"]) @ p["gate_up"], 2, axis=-1)
            x = x + (gate / (1 + np.exp(-gate)) * up) @ p["mlp_out"]
        cache.advance(n_new)
        return norm(x, params["norm"]) @ params.get("head", params["embed"].T)

    return step


GQA = GPTConfig(vocab_size=23, max_seq_len=32, n_layer=2, n_head=4, n_kv_head=2, head_dim=4, n_embd=8, n_inner=12,
                tie_embeddings=False)
PARAMS = params_of(GQA)
IDS = ids_of(GQA, 14)
EXPECTED = forward(PARAMS, GQA, IDS)
three_kinds = pytest.mark.parametrize("kind", ["KVCache", "paged 1", "scattered 3"])


def law_of(step=forward, make=contiguous, config=GQA, params=PARAMS, sizes=(5, 4)):
    """The deviation of a run in chunks, by default of 5, 4 and then one by one."""
    got = run(params, config, IDS, make(config, params, IDS), sizes, step)
    return deviation(got, forward(params, config, IDS))


@three_kinds
def test_the_unbroken_copy_passes_the_check_that_the_mutants_must_fail(kind):
    assert law_of(copied(), KINDS[kind]) <= LAW


@pytest.mark.parametrize("change", [
    pytest.param(dict(late=1), id="position read after the write"),
    pytest.param(dict(late=-1), id="position one too early"),
    pytest.param(dict(chunk_from_zero=True), id="every chunk counted from 0"),
    pytest.param(dict(kv_head=modulo), id="h % H_kv"), pytest.param(dict(pairs=interleaved), id="interleaved RoPE"),
    pytest.param(dict(seen=square), id="square mask on a cache that is not empty"),
    pytest.param(dict(seen=no_rule), id="no causal rule inside a chunk"),
])
@three_kinds
def test_each_mutant_of_the_forward_breaks_the_law(change, kind):
    """A public NumPy implementation has the first one, and loses 63 of 64 tokens."""
    assert law_of(copied(**change), KINDS[kind]) > 1e-3


@pytest.mark.parametrize("sizes", [(14,), ()], ids=["one pass", "one by one"])
def test_a_square_mask_is_invisible_without_a_chunk_on_kept_positions(sizes):
    assert law_of(copied(seen=square), sizes=sizes) <= LAW


def test_a_late_position_is_invisible_in_one_pass():
    assert law_of(copied(late=1), sizes=(14,)) <= LAW


@pytest.mark.parametrize("n_kv_head", [1, 4], ids=["MQA", "MHA"])
def test_modulo_heads_are_invisible_without_groups(n_kv_head):
    config = dataclasses.replace(GQA, n_kv_head=n_kv_head)
    assert law_of(copied(kv_head=modulo), config=config, params=params_of(config)) <= LAW


def test_interleaved_rope_is_invisible_at_position_0_alone():
    got = run(PARAMS, GQA, IDS, KVCache(GQA, 14), [14], copied(pairs=interleaved))
    assert deviation(got[:1], EXPECTED[:1]) <= LAW
    assert all(deviation(got[at], EXPECTED[at]) > 1e-3 for at in range(1, len(IDS)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_uniform_shift_of_all_positions_is_invisible(kind):
    """Only differences of positions enter attention, so no check of logits can see the shift."""
    def shifted(params, config, ids, cache):
        start = cache.seq_len + 7
        return forward(params, config, ids, cache, positions=np.arange(start, start + len(ids)))

    if "shared" in kind or "forked" in kind:  # what these already hold is not shifted: the shift is not uniform
        n_held = KINDS[kind](GQA, PARAMS, IDS).seq_len
        got = run(PARAMS, GQA, IDS[n_held:], KINDS[kind](GQA, PARAMS, IDS), [5], shifted)
        assert deviation(got, EXPECTED[n_held:]) > 1e-3
    else:
        assert law_of(shifted, KINDS[kind]) <= LAW


class OneSlotLate(PagedKVCache):
    """Writes every position one slot further on."""

    def append(self, layer, k, v):
        self._seq_len += 1
        try:
            return tuple(rows[:, :-1] for rows in super().append(layer, k, v))
        finally:
            self._seq_len -= 1


class PhysicalOrder(PagedKVCache):
    """Takes the order of the block ids for that of the positions."""

    def _rows(self, pages, end):
        table, self._table = self._table, sorted(self._table)
        rows = super()._rows(pages, end)
        self._table = table
        return rows


class KeepsRejected(KVCache):
    """Does not rewind, so rejected positions stay in the context."""

    def truncate(self, n):
        pass


class ForgetsToCopy(PagedKVCache):
    """Writes into a block that another branch reads."""

    def _make_room(self, end):
        writable, self._pool.writable = self._pool.writable, lambda block: True
        super()._make_room(end)
        self._pool.writable = writable


def test_mutant_slots_break_the_law():
    assert law_of(make=lambda c, p, i: OneSlotLate(c, BlockPool(24, 3))) > 1e-3


def test_mutant_block_orders_break_the_law():
    def make(config, params, ids):
        return PhysicalOrder(config, scattered(3)(config, params, ids)._pool)

    assert law_of(make=make) > 1e-3


@pytest.mark.parametrize("kind, holds", [(KVCache, True), (KeepsRejected, False)])
def test_mutant_rewinds_break_the_law(kind, holds):
    cache = kind(GQA, 30)
    forward(PARAMS, GQA, np.concatenate([IDS[:6], IDS[::-1][:3]]), cache)
    cache.truncate(6)
    assert (deviation(run(PARAMS, GQA, IDS[6:], cache), EXPECTED[6:]) <= LAW) == holds


@pytest.mark.parametrize("kind, holds", [(PagedKVCache, True), (ForgetsToCopy, False)])
def test_mutant_sharing_breaks_the_law_of_the_other_branch(kind, holds):
    cache = kind(GQA, BlockPool(24, 4))
    forward(PARAMS, GQA, IDS[:6], cache)
    branch = kind(GQA, cache._pool)
    branch.attach(cache.block_table, 6)
    forward(PARAMS, GQA, IDS[6:8], cache)
    forward(PARAMS, GQA, IDS[::-1][:2], branch)
    assert (deviation(run(PARAMS, GQA, IDS[8:], cache), EXPECTED[8:]) <= LAW) == holds
