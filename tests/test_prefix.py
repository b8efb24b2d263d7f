"""The prefix cache: what is a hit, who may share it, and what eviction takes first."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.blocks import BlockPool
from mgpt.prefix import PrefixCache


def prefix_cache(num_blocks=8, block_size=4, model_key="model"):
    pool = BlockPool(num_blocks, block_size)
    return pool, PrefixCache(pool, model_key=model_key)


def serve(pool, cache, ids, **key):
    """A finished request: fills its whole blocks, files them and leaves.  Its block ids."""
    found, _ = cache.match(ids, **key)
    for block in found:
        pool.share(block)
    table = found + [pool.allocate() for _ in range(len(ids) // pool.block_size - len(found))]
    cache.insert(ids, table, **key)
    for block in table:
        pool.release(block)
    return table


# --- what is a hit --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("prompt_len, n_filed, hit", [
    pytest.param(8, 2, 4, id="sch-001 vllm-project/vllm#11186"), pytest.param(9, 2, 8, id="one position more"),
    pytest.param(8, 1, 4, id="sch-003 nano-vllm BlockManager"), pytest.param(7, 1, 4, id="whole blocks only"),
    pytest.param(4, 1, 0, id="one block"), pytest.param(5, 1, 4, id="one block and a token"),
    pytest.param(3, 1, 0, id="less than a block"), pytest.param(1, 2, 0, id="one token"),
    pytest.param(0, 2, 0, id="no token"), pytest.param(20, 2, 8, id="longer than what is filed"),
])
def test_a_hit_is_whole_blocks_and_leaves_a_position_to_compute(prompt_len, n_filed, hit):
    """The last token has to be run to get logits (vllm-project/vllm#11186, #17999, #3239; nano-vllm#114)."""
    pool, cache = prefix_cache()
    table = serve(pool, cache, range(4 * n_filed))
    found, n_cached = cache.match(range(prompt_len))
    assert (found, n_cached) == (table[: hit // 4], hit)
    assert type(n_cached) is int and all(type(block) is int for block in found)
    assert prompt_len - n_cached >= min(prompt_len, 1)


@pytest.mark.parametrize("wrong_rule, wrong_hit", [
    pytest.param(lambda n, size: n // size * size, 8, id="whole blocks of all P: nothing left to compute"),
    pytest.param(lambda n, size: n - 1, 7, id="P - 1 positions: no whole blocks"),
])
def test_trap_a_full_hit_is_capped_in_whole_blocks(wrong_rule, wrong_hit):
    """sch-001: the two wrong caps that engines shipped; the right one computes 4 of 8 positions again."""
    pool, cache = prefix_cache()
    serve(pool, cache, range(8))
    assert wrong_rule(8, 4) == wrong_hit != cache.match(range(8))[1] == 4


def test_a_partial_tail_is_never_filed():
    pool, cache = prefix_cache()
    blocks = [pool.allocate(), pool.allocate()]
    assert cache.insert(range(7), blocks) == 1
    assert cache.match(range(9)) == ([blocks[0]], 4)
    assert [pool.block(i).filed for i in blocks] == [True, False]


def test_fewer_or_more_block_ids_than_whole_blocks_leave_the_rest_alone():
    pool, cache = prefix_cache()
    blocks = [pool.allocate() for _ in range(3)]
    assert cache.insert(range(12), blocks[:1]) == 1
    assert cache.match(range(13)) == (blocks[:1], 4)
    assert cache.insert(range(8), blocks) == 1  # a third block is reserved, and holds nothing yet
    assert cache.match(range(13)) == (blocks[:2], 8)
    assert cache.insert([], []) == 0 and cache.insert(range(8), []) == 0 and cache.num_filed == 2


def test_a_block_is_keyed_by_all_that_comes_before_it():
    """inference-sim/inference-sim#196 (sch-019): a later chunk was hashed by itself, not from position 0 on."""
    pool, cache = prefix_cache()
    serve(pool, cache, [1, 2, 3, 4, 5, 6, 7, 8])
    assert cache.match([5, 6, 7, 8, 0]) == ([], 0)
    assert cache.match([9, 2, 3, 4, 5, 6, 7, 8, 0]) == ([], 0)
    assert cache.match([5, 6, 7, 8, 5, 6, 7, 8, 0]) == ([], 0)


def test_a_change_inside_the_prefix_ends_the_hit_at_its_block():
    """600 becomes 750 at position 5: the block before it is still good, its own and all later ones are not."""
    pool, cache = prefix_cache()
    old = [10, 11, 12, 13, 14, 600, 16, 17, 18, 19, 20, 21, 22]
    table = serve(pool, cache, old)
    assert cache.match(old) == (table, 12)
    assert cache.match([750 if token == 600 else token for token in old]) == (table[:1], 4)


@pytest.mark.parametrize("other", [dict(tenant="b", adapter="x"), dict(tenant="a", adapter="y"), dict(tenant="a"),
                                   dict(adapter="x"), dict(), dict(tenant="x", adapter="a")], ids=repr)
def test_equal_ids_of_another_tenant_or_adapter_are_no_hit(other):
    """sch-021: vllm-project/vllm#3264, #3263; xLLM-AI/xllm#2047; llm-d/llm-d-kv-cache#243."""
    pool, cache = prefix_cache()
    table = serve(pool, cache, range(8), tenant="a", adapter="x")
    assert cache.match(range(9), **other) == ([], 0)
    assert cache.match(range(9), tenant="a", adapter="x") == (table, 8)


def test_equal_ids_of_another_model_over_one_pool_are_no_hit():
    pool, cache = prefix_cache()
    other = PrefixCache(pool, model_key="another")
    table = serve(pool, cache, range(8))
    assert other.match(range(9)) == ([], 0)
    assert set(serve(pool, other, range(8))).isdisjoint(table)
    for each in (cache, other):
        each.check_integrity()


@pytest.mark.parametrize("tenant, like", [(1, True), (0, False), (1, 1.0), (0, None), ("1", 1), ("", None)])
def test_tenants_that_python_calls_equal_stay_apart(tenant, like):
    pool, cache = prefix_cache()
    serve(pool, cache, range(8), tenant=tenant)
    assert cache.match(range(9), tenant=like) == ([], 0)


def test_trap_a_polynomial_hash_collides_and_the_ids_do_not():
    """NVIDIA/Megatron-LM#4158 (sch-026): token[j] + 31 and token[j + 1] - 1 give one polynomial hash of base 31."""
    def polynomial(ids):
        return sum(token * 31**j for j, token in enumerate(ids))

    assert polynomial([10, 50]) == polynomial([41, 49]) == 1560
    pool, cache = prefix_cache(block_size=2)
    serve(pool, cache, [10, 50])
    assert cache.match([41, 49, 0]) == ([], 0)
    assert cache.match([10, 50, 0])[1] == 2


def test_trap_a_collision_of_pythons_hash_is_no_hit():
    """sch-025 (vllm-project/vllm#12621, GHSA-rm76-4mrf-v9r8): hash() is predictable, so a hit compares the ids."""
    modulus = 2**61 - 1
    assert hash((5, 7)) == hash((5 + modulus, 7))
    pool, cache = prefix_cache(block_size=2)
    serve(pool, cache, [5, 7])
    assert cache.match([5 + modulus, 7, 0]) == ([], 0)


def test_a_block_can_be_hit_only_after_it_was_filed():
    """sch-027 (nano-vllm#208, vllm-project/vllm#7822): requests of one tick do not share what none has computed."""
    pool, cache = prefix_cache()
    table_of_a = [pool.allocate(), pool.allocate()]
    assert cache.match(range(9)) == ([], 0)  # B, in the tick that computes A's blocks
    cache.insert(range(8), table_of_a)
    assert cache.match(range(9)) == (table_of_a, 8)


# --- references and filing -------------------------------------------------------------------------------------------

def test_match_and_insert_take_no_reference():
    pool, cache = prefix_cache()
    block = pool.allocate()
    cache.insert(range(4), [block])
    cache.match(range(5))
    assert pool.ref_count(block) == 1
    pool.release(block)
    assert pool.ref_count(block) == 0 and cache.match(range(5)) == ([block], 4) and pool.num_free == 7


def test_the_first_block_of_an_equal_key_stays():
    pool, cache = prefix_cache()
    first, second, behind = pool.allocate(), pool.allocate(), pool.allocate()
    assert cache.insert(range(4), [first]) == 1
    assert cache.insert(range(8), [second, behind]) == 1  # only the block behind it is new
    assert cache.match(range(9)) == ([first, behind], 8)
    pool.release(second)
    assert pool.block(second).state == "free"
    cache.check_integrity()


def test_filing_the_same_again_changes_nothing_also_when_its_user_has_left():
    pool, cache = prefix_cache()
    block = pool.allocate()
    cache.insert(range(4), [block])
    pool.release(block)
    assert cache.insert(range(4), [block]) == 0
    assert pool.block(block).state == "cached" and cache.match(range(5)) == ([block], 4)


@pytest.mark.parametrize("ids, blocks, message", [
    ([9, 9, 9, 9], lambda a, b: [7], "block 7 is free"), ([0, 1, 2, 3], lambda a, b: [7], "block 7 is free"),
    ([9, 9, 9, 9], lambda a, b: [a], "already filed under another key"),
    ([0, 1, 2, 3, 9, 9, 9, 9], lambda a, b: [a, a], "already filed under another key"),
    ([9, 9, 9, 9, 8, 8, 8, 8], lambda a, b: [b, b], "given twice"),
    ([9, 9, 9, 9, 8, 8, 8, 8], lambda a, b: [b, 7], "block 7 is free"),
    ([9, 9, 9, 9], lambda a, b: [8], "below num_blocks = 8"), ([9, 9, 9, 9], lambda a, b: [-1], "integers >= 0"),
    ([9, 9, 9, 9], lambda a, b: [1.0], "flat sequence of integers"), ([9, 9, 9, 9], lambda a, b: 1, "flat sequence"),
])
def test_a_block_that_does_not_hold_the_key_is_refused_and_nothing_is_filed(ids, blocks, message):
    pool, cache = prefix_cache()
    known, private = pool.allocate(), pool.allocate()
    cache.insert(range(4), [known])
    with pytest.raises(ValueError, match=re.escape(message)):
        cache.insert(ids, blocks(known, private))
    assert cache.num_filed == 1 and not pool.block(private).filed and cache.match(range(5)) == ([known], 4)
    cache.check_integrity()


def test_a_block_of_one_key_is_refused_under_a_second_key_that_has_its_own():
    pool, cache = prefix_cache()
    (a,), (b,) = serve(pool, cache, [1] * 4), serve(pool, cache, [2] * 4)
    with pytest.raises(ValueError, match="already filed under another key"):
        cache.insert([1] * 4, [b])
    assert cache.match([1] * 5) == ([a], 4) and cache.match([2] * 5) == ([b], 4)


def test_a_block_filed_by_another_cache_is_refused():
    pool, cache = prefix_cache()
    other = PrefixCache(pool, model_key="model")
    block = pool.allocate()
    cache.insert(range(4), [block])
    with pytest.raises(ValueError, match="already filed under another key"):
        other.insert(range(4), [block])
    assert other.num_filed == 0


@pytest.mark.parametrize("bad", [[1.0, 2.0], [-1, 2], [[1, 2]], "text", 5, None, [True, False], [None], [2**70]])
def test_only_flat_sequences_of_ids_are_ids(bad):
    pool, cache = prefix_cache()
    block = pool.allocate()
    for call in (cache.match, lambda ids: cache.insert(ids, [block])):
        with pytest.raises(ValueError, match="token_ids must be"):
            call(bad)


def test_arrays_tuples_and_ranges_are_the_same_ids():
    pool, cache = prefix_cache()
    table = serve(pool, cache, np.arange(8, dtype=np.uint16))
    for ids in (list(range(9)), tuple(range(9)), range(9), np.arange(9)):
        assert cache.match(ids) == (table, 8)


@pytest.mark.parametrize("call", [lambda pool, cache: PrefixCache(pool, model_key=[1]),
                                  lambda pool, cache: cache.match([1], tenant={}),
                                  lambda pool, cache: cache.insert([1], [], adapter=[])])
def test_a_key_that_cannot_be_compared_is_refused(call):
    with pytest.raises(ValueError, match="hashable"):
        call(*prefix_cache())


# --- eviction --------------------------------------------------------------------------------------------------------

def test_eviction_takes_the_deepest_of_a_chain_first():
    """sch-016 (llm-d/llm-d-inference-sim#704, #709; NVIDIA/Megatron-LM#5822): without 1, blocks 2 and 3 are lost."""
    pool, cache = prefix_cache()
    first, second, third = serve(pool, cache, range(12))
    assert cache.evict(1) == [third]
    assert cache.match(range(13)) == ([first, second], 8)
    assert cache.evict(5) == [second, first]
    assert pool.num_free == 8 and cache.num_filed == 0


@pytest.mark.parametrize("leave", [1, -1], ids=["root first", "deepest first"])
def test_the_order_in_which_references_are_given_back_does_not_matter(leave):
    pool, cache = prefix_cache()
    table = [pool.allocate() for _ in range(3)]
    cache.insert(range(12), table)
    for block in table[::leave]:
        pool.release(block)
    assert cache.evict(3) == table[::-1]


def test_eviction_takes_the_least_recently_used_first():
    pool, cache = prefix_cache()
    (a,), (b,), (c,) = (serve(pool, cache, [token] * 4) for token in (1, 2, 3))
    cache.match([1] * 5)
    serve(pool, cache, [2] * 4)
    assert cache.evict(3) == [c, a, b]


def test_a_use_of_a_block_is_a_use_of_all_before_it():
    pool, cache = prefix_cache()
    root, left = serve(pool, cache, [0] * 4 + [1] * 4)
    _, right = serve(pool, cache, [0] * 4 + [2] * 4)
    (alone,) = serve(pool, cache, [3] * 4)
    cache.match([0] * 4 + [1] * 4 + [9])
    assert cache.evict(4) == [right, alone, left, root]


def test_a_block_in_use_is_never_evicted():
    pool, cache = prefix_cache()
    root, leaf = serve(pool, cache, range(8))
    pool.share(root)
    assert cache.evict(8) == [leaf]
    assert cache.evict(8) == [] and cache.match(range(9)) == ([root], 4)


def test_what_eviction_makes_unreachable_is_forgotten_and_free_after_its_last_user():
    """B's own first block was a duplicate, so only its second is filed; A's first block leaves before it."""
    pool, cache = prefix_cache()
    (of_a,) = serve(pool, cache, range(4))
    duplicate, of_b = pool.allocate(), pool.allocate()
    cache.insert(range(8), [duplicate, of_b])
    assert cache.evict(8) == [of_a]
    cache.check_integrity()
    assert cache.num_filed == 0 and pool.block(of_b).state == "in use"
    pool.release(of_b)
    pool.release(duplicate)
    assert pool.num_free == 8
    assert cache.match(range(9)) == ([], 0)


def test_a_block_that_is_used_anew_never_answers_for_what_it_held():
    """vllm-project/vllm#4764, #5364 (sch-013): the map of hashes kept a block that had been taken from the evictor."""
    pool, cache = prefix_cache(num_blocks=1)
    (block,) = serve(pool, cache, [1, 2, 3, 4])
    assert cache.evict(1) == [block]
    assert pool.allocate() == block
    assert cache.match([1, 2, 3, 4, 5]) == ([], 0)
    cache.insert([6, 7, 8, 9], [block])
    assert cache.match([1, 2, 3, 4, 5]) == ([], 0) and cache.match([6, 7, 8, 9, 5]) == ([block], 4)


def test_blocks_filed_in_the_middle_of_a_prefill_stay_the_caches_after_an_abort():
    """sgl-project/sglang#38319 (sch-039): the tree pointed at pages that the abort had freed."""
    pool, cache = prefix_cache()
    table = [pool.allocate() for _ in range(3)]
    cache.insert(range(4), table[:1])  # the first chunk is done
    for block in table:
        pool.release(block)
    assert [pool.block(i).state for i in table] == ["cached", "free", "free"]
    assert cache.match(range(12)) == (table[:1], 4)


def test_free_evictable_and_in_use_add_up():
    """sgl-project/sglang#35270 (sch-038): shared pages were counted twice among the evictable."""
    pool, cache = prefix_cache()
    root, _ = serve(pool, cache, range(8))
    pool.share(root), pool.share(root)
    serve(pool, cache, [9] * 4)
    pool.allocate()
    assert (pool.num_free, cache.num_evictable, pool.num_in_use) == (4, 2, 2)


def test_evicting_none_and_bad_counts():
    pool, cache = prefix_cache()
    serve(pool, cache, range(8))
    assert cache.evict(0) == []
    for bad in (-1, 1.0, None, True):
        with pytest.raises(ValueError, match="n must be an integer >= 0"):
            cache.evict(bad)
    assert cache.num_filed == 2


def file_partial(node):
    node.children[1,] = type(node)(node, (1,), 5, 3)


@pytest.mark.parametrize("spoil", [
    lambda pool, cache, a, b: pool.unfile(a, cache),
    lambda pool, cache, a, b: cache._nodes.pop(b),
    lambda pool, cache, a, b: setattr(cache._nodes[b], "depth", 1),
    lambda pool, cache, a, b: setattr(cache._nodes[b], "last_used", 99),
    lambda pool, cache, a, b: setattr(cache._nodes[b], "block_id", a),
    lambda pool, cache, a, b: setattr(cache._nodes[b], "parent", None),
    lambda pool, cache, a, b: file_partial(cache._nodes[b]),
    lambda pool, cache, a, b: pool._free.append(7),
])
def test_the_integrity_check_sees_each_kind_of_damage(spoil):
    pool, cache = prefix_cache()
    a, b = serve(pool, cache, range(8))
    cache.check_integrity()
    spoil(pool, cache, a, b)
    with pytest.raises(AssertionError):
        cache.check_integrity()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(texts=st.lists(st.lists(st.integers(0, 1), max_size=9), max_size=6), ids=st.lists(st.integers(0, 1), max_size=9),
       size=st.integers(1, 3))
def test_a_hit_is_the_longest_common_beginning_in_whole_blocks(texts, ids, size):
    """Held to a list of the texts: a hit never depends on the order or the blocks in which they came."""
    pool, cache = prefix_cache(num_blocks=60, block_size=size)
    for text in texts:
        serve(pool, cache, text)
    cache.check_integrity()
    longest = 0
    for text in texts:
        n = 0
        while (n + size <= min(len(text), len(ids) - 1)) and text[n : n + size] == ids[n : n + size]:
            n += size
        longest = max(longest, n)
    assert cache.match(ids)[1] == longest
