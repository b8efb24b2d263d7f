"""The block pool: every block is free, in use or cached, and nothing that is refused changes that."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mgpt.blocks import Block, BlockPool, OutOfBlocks
from mgpt.prefix import PrefixCache


def snapshot(pool):
    """All that can be seen of a pool."""
    return [pool.block(i) for i in range(pool.num_blocks)], pool.num_free, pool.num_in_use, pool.num_cached


def filed(pool, n_blocks=1):
    """n blocks of `pool`, filed in a new prefix cache under ids 0, 1, 2, ..."""
    cache = PrefixCache(pool, model_key="model")
    ids = [pool.allocate() for _ in range(n_blocks)]
    cache.insert(range(n_blocks * pool.block_size), ids)
    return cache, ids


def test_a_new_pool_is_free():
    pool = BlockPool(3, 4)
    assert (pool.num_blocks, pool.block_size, pool.num_free, pool.num_resident) == (3, 4, 3, 0)
    assert [pool.ref_count(i) for i in range(3)] == [0, 0, 0]


def test_allocate_gives_each_block_once_and_then_refuses():
    pool = BlockPool(3, 4)
    ids = [pool.allocate() for _ in range(3)]
    assert sorted(ids) == [0, 1, 2] and all(type(i) is int for i in ids)
    assert [pool.ref_count(i) for i in ids] == [1, 1, 1]
    before = snapshot(pool)
    with pytest.raises(RuntimeError, match="none of the 3 blocks is free: 3 in use, 0 cached"):
        pool.allocate()
    assert snapshot(pool) == before


def test_a_block_is_free_again_only_when_its_last_user_leaves():
    pool = BlockPool(1, 4)
    block = pool.allocate()
    pool.share(block)
    pool.share(block)
    seen = []
    for _ in range(3):
        pool.release(block)
        seen.append((pool.ref_count(block), pool.num_free))
    assert seen == [(2, 0), (1, 0), (0, 1)]
    assert pool.allocate() == block


def test_releasing_a_block_without_a_user_is_refused_and_changes_nothing():
    """vllm-project/vllm#42571, #42615: the block was put into the free list twice, and num_free grew by 2."""
    pool = BlockPool(3, 4)
    block = pool.allocate()
    pool.release(block)
    before = snapshot(pool)
    for unused in (block, 2):
        with pytest.raises(ValueError, match="no user to release"):
            pool.release(unused)
        assert snapshot(pool) == before
        pool.check_integrity()
    assert sorted(pool.allocate() for _ in range(3)) == [0, 1, 2]


def test_a_free_block_cannot_be_shared():
    pool = BlockPool(2, 4)
    before = snapshot(pool)
    with pytest.raises(ValueError, match="block 1 is free"):
        pool.share(1)
    assert snapshot(pool) == before


@pytest.mark.parametrize("bad", [-1, 2, 7, 0.0, 1.5, True, None, "0"])
@pytest.mark.parametrize("method", ["share", "release", "ref_count", "block", "writable", "filed_by"])
def test_an_id_that_is_none_of_the_pool_is_refused(method, bad):
    pool = BlockPool(2, 4)
    pool.allocate(), pool.allocate()
    before = snapshot(pool)
    with pytest.raises(ValueError, match="block_id must be"):
        getattr(pool, method)(bad)
    assert snapshot(pool) == before


def test_numpy_integers_are_ids_and_sizes():
    pool = BlockPool(np.int64(2), np.int32(4))
    pool.allocate()
    pool.share(np.int64(0))
    assert pool.ref_count(np.uint8(0)) == 2 and type(pool.block_size) is int
    pool.release(np.int16(0))
    assert pool.block(np.int64(0)) == Block(0, 1, False) and type(pool.block(np.int64(0)).id) is int


@pytest.mark.parametrize("name, arguments", [("num_blocks", (0, 4)), ("num_blocks", (1.0, 4)), ("block_size", (4, 0)),
                                             ("block_size", (4, True)), ("num_blocks", (-1, 4))])
def test_a_pool_of_no_blocks_or_of_empty_ones_is_refused(name, arguments):
    with pytest.raises(ValueError, match=f"{name} must be an integer >= 1"):
        BlockPool(*arguments)


def test_release_and_evict_are_two_steps():
    """A filed block outlives its last user, and only eviction makes it free."""
    pool = BlockPool(2, 4)
    cache, (block,) = filed(pool)
    assert pool.block(block).state == "in use"
    pool.release(block)
    assert pool.block(block) == Block(block, 0, True) and pool.block(block).state == "cached"
    assert (pool.num_free, pool.num_in_use, pool.num_cached, pool.num_resident) == (1, 0, 1, 1)
    assert cache.evict(1) == [block]
    assert pool.block(block).state == "free" and pool.num_free == 2


def test_a_cached_block_is_not_handed_out_and_its_release_is_refused():
    pool = BlockPool(1, 4)
    _, (block,) = filed(pool)
    pool.release(block)
    before = snapshot(pool)
    with pytest.raises(RuntimeError, match="0 in use, 1 cached"):
        pool.allocate()
    with pytest.raises(ValueError, match=r"no user to release \(cached\)"):
        pool.release(block)
    assert snapshot(pool) == before


def test_sharing_a_cached_block_puts_it_in_use_again():
    pool = BlockPool(1, 4)
    cache, (block,) = filed(pool)
    pool.release(block)
    pool.share(block)
    assert pool.ref_count(block) == 1 and cache.evict(1) == []


def test_only_the_one_user_of_an_unfiled_block_may_write():
    pool = BlockPool(3, 4)
    private, shared = pool.allocate(), pool.allocate()
    pool.share(shared)
    _, (known,) = filed(pool)
    assert [pool.writable(i) for i in (private, shared, known)] == [True, False, False]
    pool.release(private)
    assert not pool.writable(private)


def test_only_who_filed_a_block_can_unfile_it():
    """Else a prefix cache would answer for a block that somebody else fills."""
    pool = BlockPool(2, 4)
    cache, (block,) = filed(pool)
    for stranger in (None, PrefixCache(pool, model_key="model")):
        with pytest.raises(ValueError, match="not filed by this owner"):
            pool.unfile(block, stranger)
        with pytest.raises(ValueError, match="cannot be filed"):
            pool.file(block, stranger)
    with pytest.raises(ValueError, match="cannot be filed: free"):
        pool.file(1, cache)
    assert pool.filed_by(block) is cache


def test_running_out_is_the_pools_error_and_the_seams():
    assert issubclass(OutOfBlocks, RuntimeError) and issubclass(OutOfBlocks, ValueError)


@pytest.mark.parametrize("id_, spoil", [
    ("free twice", lambda pool: pool._free.append(pool._free[0])),
    ("lost", lambda pool: pool._free.popleft()),
    ("free and in use", lambda pool: pool._free.append(0)),
    ("negative count", lambda pool: pool._users.__setitem__(1, -1)),
    ("filed and free", lambda pool: pool._filed_by.update({1: None})),
    ("filed, unknown", lambda pool: pool._filed_by.update({9: None})),
])
def test_the_integrity_check_sees_each_kind_of_damage(id_, spoil):
    pool = BlockPool(3, 4)
    pool.allocate()
    pool.check_integrity()
    spoil(pool)
    with pytest.raises(AssertionError):
        pool.check_integrity()


class Ownership(RuleBasedStateMachine):
    """Random requests over one pool and two prefix caches, beside a model that keeps only what was asked for.

    `users` is the multiset of references; `text` says which block's worth of ids stands in each block in use or
    filed, with all before it, as (tenant, ids).
    """

    SIZE = 2

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(7, self.SIZE)
        self.caches = [PrefixCache(self.pool, model_key=key) for key in ("a", "b")]
        self.references = []
        self.text = {}  # what a request wrote into a block when it took it

    @rule()
    def allocate(self):
        if self.pool.num_free:
            block = self.pool.allocate()
            assert block not in self.references
            assert all(block not in cache._nodes for cache in self.caches)
            self.references.append(block)
            self.text.pop(block, None)
        else:
            with pytest.raises(RuntimeError):
                self.pool.allocate()

    @rule(block=st.integers(-1, 8))
    def release(self, block):
        if block in self.references:
            self.pool.release(block)
            self.references.remove(block)
        else:
            with pytest.raises(ValueError):
                self.pool.release(block)

    @rule(block=st.integers(-1, 8))
    def share(self, block):
        if 0 <= block < 7 and self.pool.block(block).state != "free":
            self.pool.share(block)
            self.references.append(block)
        else:
            with pytest.raises(ValueError):
                self.pool.share(block)

    @rule(which=st.integers(0, 1), ids=st.lists(st.integers(0, 1), max_size=7), tenant=st.sampled_from([None, "t"]),
          data=st.data())
    def serve(self, which, ids, tenant, data):
        """A request looks its prefix up, takes it, computes the rest into blocks of its own and files them."""
        cache = self.caches[which]
        found, n_cached = cache.match(ids, tenant=tenant)
        assert n_cached == len(found) * self.SIZE <= max(len(ids) - 1, 0)
        for depth, block in enumerate(found, 1):
            assert self.text[block] == (which, tenant, ids[: depth * self.SIZE]), "a stale block was found"
            self.pool.share(block)
            self.references.append(block)
        table = list(found)
        for end in range(n_cached + self.SIZE, len(ids) + 1, self.SIZE):
            if not self.pool.num_free and not cache.evict(1):
                break
            if not self.pool.num_free:
                break
            block = self.pool.allocate()
            self.text[block] = (which, tenant, ids[:end])
            self.references.append(block)
            table.append(block)
        cache.insert(ids, table, tenant=tenant)
        assert cache.match([*ids, 9], tenant=tenant)[1] == len(table) * self.SIZE
        if data.draw(st.booleans(), "the request ends at once"):
            for block in table:
                self.pool.release(block)
                self.references.remove(block)

    @rule(which=st.integers(0, 1), block=st.integers(0, 6), ids=st.lists(st.integers(0, 1), min_size=2, max_size=2))
    def insert_what_may_be_wrong(self, which, block, ids):
        """One block under a key that may be another's, by a caller that may not even have it."""
        cache = self.caches[which]
        before = [self.pool.block(i) for i in range(7)]
        right = self.text.get(block) == (which, "x", ids) and before[block].filed
        if before[block].state == "free" or before[block].filed and not right:
            with pytest.raises(ValueError):
                cache.insert(ids, [block], tenant="x")
            assert [self.pool.block(i) for i in range(7)] == before
        elif right:
            assert cache.insert(ids, [block], tenant="x") == 0
        elif cache.insert(ids, [block], tenant="x"):
            self.text[block] = (which, "x", ids)

    @rule(which=st.integers(0, 1), n=st.integers(0, 4))
    def evict(self, which, n):
        cache = self.caches[which]
        idle = {block for block in cache._nodes if block not in self.references}
        gone = cache.evict(n)
        assert len(gone) == len(set(gone)) == min(n, len(idle)) and set(gone) <= idle
        assert all(self.pool.block(block).state == "free" for block in gone)

    @precondition(lambda self: self.references)
    @rule()
    def everybody_leaves(self):
        for block in self.references:
            self.pool.release(block)
        self.references = []
        assert self.pool.num_in_use == 0 and self.pool.num_free + self.pool.num_cached == 7

    @invariant()
    def blocks_are_conserved(self):
        self.pool.check_integrity()
        for cache in self.caches:
            cache.check_integrity()
        assert [self.pool.ref_count(i) for i in range(7)] == [self.references.count(i) for i in range(7)]
        assert self.pool.num_free + self.pool.num_in_use + self.pool.num_cached == 7
        assert self.pool.num_in_use == len(set(self.references))
        assert sum(cache.num_evictable for cache in self.caches) == self.pool.num_cached

    def teardown(self):
        for block in self.references:
            self.pool.release(block)
        for cache in self.caches:
            cache.evict(7)
            cache.check_integrity()
        assert self.pool.num_free == 7


TestOwnership = Ownership.TestCase
TestOwnership.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)
