"""The checks of chapter 11 are worth their points; its control and figures show what `mgpt` says.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import math
import re
from collections import Counter, deque

import numpy as np
import pytest
from exercise_lists import install

from mgpt.blocks import BlockPool, OutOfBlocks, PagedKVCache, paged_attention
from mgpt.config import GPTConfig
from mgpt.course.questions import find
from mgpt.memory import paged_bytes
from mgpt.model import attention
from mgpt.widgets import load, respond
from mgpt.widgets.block_table import MOST_STEPS, SHAPE, after, block_table, memory_lines, table_rows

STEM = "11_blocks"


# ------------------------------------------------------------------ right answers, written differently
def shape(width, heads=1):
    return GPTConfig(vocab_size=2, max_seq_len=999, n_layer=1, n_head=heads, n_kv_head=heads, head_dim=width,
                     n_embd=2, n_inner=2)


def q1_engine(num_blocks, block_size, steps):
    """The engine's own pool and caches."""
    pool, caches, refused = BlockPool(num_blocks, block_size), {}, []
    for number, (name, action, n) in enumerate(steps):
        cache = caches.setdefault(name, PagedKVCache(shape(2), pool))
        if action == "=":
            cache.truncate(n)
            continue
        try:
            cache.append(0, *np.zeros((2, 1, n, 2)))
            cache.advance(n)
        except OutOfBlocks:
            refused.append(number)
    tables = {name: list(cache.block_table) for name, cache in caches.items() if cache.block_table}
    return {"tables": tables, "free": [pool.allocate() for _ in range(pool.num_free)], "refused": refused}


def q1_position_by_position(num_blocks, block_size, steps):
    free, rows, refused = deque(range(num_blocks)), {}, []  # rows: a request's (block, slot) of each position
    for number, (name, action, n) in enumerate(steps):
        row = rows.setdefault(name, [])
        if action == "+":
            empty = -len(row) % block_size
            if math.ceil(max(0, n - empty) / block_size) > len(free):
                refused.append(number)
                continue
            for _ in range(n):
                slot = len(row) % block_size
                row.append((row[-1][0] if slot else free.popleft(), slot))
        else:
            while len(row) > n:
                block, slot = row.pop()
                if slot == 0:
                    free.append(block)
    tables = {name: [block for block, slot in row if slot == 0] for name, row in rows.items() if row}
    return dict(refused=refused, free=list(free), tables=tables)


def q1_slices(num_blocks, block_size, steps):
    free, state, refused = tuple(range(num_blocks)), {}, []
    for number, (name, action, n) in enumerate(steps):
        blocks, held = state.get(name, ((), 0))
        held = held + n if action == "+" else n
        more = math.ceil(held / block_size) - len(blocks)
        if more > len(free):
            refused.append(number)
        elif more >= 0:
            state[name], free = (blocks + free[:more], held), free[more:]
        else:
            state[name], free = (blocks[:more], held), free + blocks[:more - 1:-1]
    return {"tables": {k: list(b) for k, (b, _n) in state.items() if b}, "free": list(free), "refused": refused}


def positions_of(r):
    return r[0] + r[1] - 1


def q2_plain(requests, block_size, position_bytes, gib):
    blocks = sum(math.ceil(positions_of(r) / block_size) for r in requests)
    return {"blocks": blocks, "waste": blocks * block_size - sum(map(positions_of, requests)),
            "bytes": blocks * block_size * position_bytes, "fit": gib * 1024**3 // position_bytes // block_size}


def q2_engine(requests, block_size, position_bytes, gib):
    found = paged_bytes([positions_of(r) for r in requests], block_size, position_bytes)
    return {"blocks": found.blocks, "waste": found.waste_tokens, "bytes": found.nbytes,
            "fit": (gib << 30) // (block_size * position_bytes)}


def q2_remainders(requests, block_size, position_bytes, gib):
    blocks = waste = 0
    for r in requests:
        full, rest = divmod(positions_of(r), block_size)
        blocks += full + (rest > 0)
        waste += (block_size - rest) % block_size
    return dict(blocks=blocks, waste=waste, bytes=blocks * position_bytes * block_size,
                fit=int(gib * 2**30 / (position_bytes * block_size)))


def gathered(q, k_pool, v_pool, table, length):
    """Scores and values in logical order, and the block size."""
    size = len(k_pool[0])
    places = [(table[p // size], p % size) for p in range(length)]
    scores = np.array([np.dot(q, k_pool[b][s]) for b, s in places]) / np.sqrt(len(q))
    return scores, np.array([v_pool[b][s] for b, s in places]), size


def q3_gathered(q, k_pool, v_pool, table, length):
    """No ledger at all: each entry anew from the rows so far."""
    scores, values, size = gathered(q, k_pool, v_pool, table, length)
    ends = [min(length, (i + 1) * size) for i in range(len(table))]
    tops = [scores[:end].max() for end in ends]
    sums = [np.exp(scores[:end] - top).sum() for end, top in zip(ends, tops)]
    return {"max": tops, "sum": sums, "output": np.exp(scores - tops[-1]) @ values / sums[-1]}


def q3_by_position(q, k_pool, v_pool, table, length):
    """The ledger position by position, noted at the end of each block."""
    scores, values, size = gathered(q, k_pool, v_pool, table, length)
    m, l, o, tops, sums = -math.inf, 0.0, np.zeros(len(q)), [], []
    for p, (s, v) in enumerate(zip(scores.tolist(), values)):
        if s > m:
            m, l, o = s, l * math.exp(m - s), o * math.exp(m - s)
        l, o = l + math.exp(s - m), o + math.exp(s - m) * v
        if (p + 1) % size == 0 or p + 1 == length:
            tops.append(m)
            sums.append(l)
    return {"max": tops, "sum": sums, "output": (o / l).tolist()}


def q3_engine(q, k_pool, v_pool, table, length):
    """The engine's own ledger over the same blocks."""
    from types import SimpleNamespace

    from mgpt.paged_attention import attention_steps

    k, v = (np.array(pages)[None] for pages in (k_pool, v_pool))  # (K, N, P, D)
    cache = SimpleNamespace(seq_len=length, block_table=tuple(table), pages=lambda layer: (k, v))
    steps = list(attention_steps(np.array(q)[None, None], cache, 0))
    return {"max": [s.maximum.item() for s in steps], "sum": [s.total.item() for s in steps],
            "output": (steps[-1].mixed / steps[-1].total).ravel().tolist()}


def q4_counters(num_blocks, block_size, tables, lengths, free):
    used, spare = Counter(b for t in tables.values() for b in t), Counter(free)
    result = {"leaked": [], "stale": [], "twice": [], "doubled": []}
    for b in range(num_blocks):
        if not used[b] + spare[b]:
            result["leaked"].append(b)
        if used[b] and spare[b]:
            result["stale"].append(b)
        if used[b] >= 2:
            result["twice"].append(b)
        if spare[b] >= 2:
            result["doubled"].append(b)
    return {**result, "misfit": sorted(n for n in tables if math.ceil(lengths[n] / block_size) != len(tables[n]))}


def q4_sets(num_blocks, block_size, tables, lengths, free):
    listed = sum(tables.values(), [])
    return {"leaked": sorted(set(range(num_blocks)) - set(listed) - set(free)),
            "stale": sorted(set(listed) & set(free)), "twice": sorted({b for b in listed if listed.count(b) > 1}),
            "doubled": sorted({b for b in free if free.count(b) > 1}),
            "misfit": [n for n in sorted(tables)
                       if not (len(tables[n]) - 1) * block_size < lengths[n] <= len(tables[n]) * block_size]}


def q4_sorted(num_blocks, block_size, tables, lengths, free):
    def repeated(blocks):
        ordered = sorted(blocks)
        return sorted({a for a, b in zip(ordered, ordered[1:]) if a == b})

    listed, misfit = [b for t in tables.values() for b in t], []
    for name in sorted(tables):
        full, rest = divmod(lengths[name], block_size)
        if len(tables[name]) != full + bool(rest):
            misfit.append(name)
    return dict(leaked=[b for b in range(num_blocks) if b not in listed + free], twice=repeated(listed),
                stale=[b for b in sorted(set(free)) if b in listed], doubled=repeated(free), misfit=misfit)


RIGHT = {
    "q1": [q1_engine, q1_position_by_position, q1_slices],
    "q2": [q2_plain, q2_engine, q2_remainders],
    "q3": [q3_gathered, q3_by_position, q3_engine],
    "q4": [q4_counters, q4_sets, q4_sorted],
}


# ------------------------------------------------------------------ wrong answers, each with its cause
def q1_like(blocks=lambda n, size: math.ceil(n / size), stay=lambda n, size: math.ceil(n / size), first=lambda free: free[0],
            gone=reversed, cut="end", to="back", partly=False, counts=False, fresh=False, back=True, drop=False, forget=True):
    def wrong(num_blocks, block_size, steps):
        free, tables, held, refused = list(range(num_blocks)), {}, {}, []
        for i, (name, action, n) in enumerate(steps):
            tables.setdefault(name, []), held.setdefault(name, 0)
            if action == "+":
                before = math.ceil(held[name] / block_size) * block_size if fresh else held[name]
                need = max(0, blocks(before + n, block_size) - len(tables[name]))
                refused += [i] * (need > len(free))
                if need <= len(free) or partly:
                    for _ in range(min(need, len(free))):
                        tables[name].append(first(free))
                        free.remove(tables[name][-1])
                if i not in refused or counts:
                    held[name] = before + n
            else:
                n = max(0, held[name] - n) if drop else n
                held[name] = n if forget else held[name]
                over = max(0, len(tables[name]) - stay(n, block_size)) if back else 0
                if cut == "end":
                    leaving, tables[name] = tables[name][len(tables[name]) - over:], tables[name][:len(tables[name]) - over]
                else:
                    leaving, tables[name] = tables[name][:over], tables[name][over:]
                leaving = list(gone(leaving))
                free = leaving + free if to == "front" else free + leaving
        return {"tables": {k: t for k, t in tables.items() if t}, "free": free, "refused": refused}

    return wrong


def q1_full_is_refused(num_blocks, block_size, steps):
    free, tables, held, refused = list(range(num_blocks)), {}, Counter(), []
    for i, (name, action, n) in enumerate(steps):
        table = tables.get(name, [])
        end = held[name] + n if action == "+" else n
        more = math.ceil(end / block_size) - len(table)
        if action == "+" and more >= len(free):
            refused += [i]
            continue
        held[name] = end
        tables[name] = table[:more] if more < 0 else table + [free.pop(0) for _ in range(more)]
        free += reversed(table[more:] if more < 0 else [])
    return {"tables": {k: t for k, t in tables.items() if t}, "free": free, "refused": refused}


def q1_stops(num_blocks, block_size, steps):
    refused = q1_slices(num_blocks, block_size, steps)["refused"]
    return q1_slices(num_blocks, block_size, steps[:refused[0] + 1] if refused else steps)


def q1_from_one(*args):
    right = q1_position_by_position(*args)
    return {**right, "refused": [i + 1 for i in right["refused"]]}


def q1_all_tables(num_blocks, block_size, steps):
    right = q1_slices(num_blocks, block_size, steps)
    return {**right, "tables": {step[0]: right["tables"].get(step[0], []) for step in steps}}


def q2_like(held=positions_of, blocks=lambda ns, size: sum(math.ceil(n / size) for n in ns), **changed):
    def wrong(requests, block_size, position_bytes, gib):
        ns = [held(r) for r in requests]
        n = blocks(ns, block_size)
        right = {"blocks": n, "waste": n * block_size - sum(ns), "bytes": n * block_size * position_bytes,
                 "fit": gib * 2**30 // (block_size * position_bytes)}
        return {**right, **{key: change(n, ns, block_size, position_bytes, gib) for key, change in changed.items()}}

    return wrong


@np.errstate(all="ignore")
def q3_ledger(q, k_pool, v_pool, table, length, rows=None, divisor=np.sqrt, order=list, f=lambda old, new: np.exp(old - new),
              f_sum=True, f_mix=True, best=max, seen=None, end=lambda o, l: o / l, blocks=None):
    size = len(k_pool[0])
    m, l, o, tops, sums = -np.inf, 0.0, np.zeros(len(q)), [], []
    for i, b in enumerate(order(table)[:blocks(length, size) if blocks else None]):
        n = min(size, length - i * size)
        scores = np.array(k_pool[b]) @ np.array(q) / divisor(len(q))
        new = best(m, scores[: seen or n].max())
        scores, values = scores[: rows or n], np.array(v_pool[b])[: rows or n]
        factor = f(m, new) if np.isfinite(m) else 0.0
        w = np.exp(scores - new)
        l = (l * factor if f_sum else l) + w.sum()
        o = (o * factor if f_mix else o) + w @ values
        m = new
        tops.append(float(m))
        sums.append(float(l))
    return {"max": tops, "sum": sums, "output": end(o, l).tolist()}


def q3_like(**changed):
    return lambda *args: q3_ledger(*args, **changed)


def q3_means(q, k_pool, v_pool, table, length):
    scores, values, size = gathered(q, k_pool, v_pool, table, length)
    outs = []
    for start in range(0, length, size):
        w = np.exp(scores[start:start + size] - scores[start:start + size].max())
        outs.append(w / w.sum() @ values[start:start + size])
    return {**q3_gathered(q, k_pool, v_pool, table, length), "output": np.mean(outs, axis=0)}


def q3_block_by_block(q, k_pool, v_pool, table, length):
    scores, _values, size = gathered(q, k_pool, v_pool, table, length)
    tops = [scores[start:start + size].max() for start in range(0, length, size)]
    return {**q3_gathered(q, k_pool, v_pool, table, length), "max": tops}


def q3_two_passes(q, k_pool, v_pool, table, length):
    scores, values, size = gathered(q, k_pool, v_pool, table, length)
    weights = np.exp(scores - scores.max())
    ends = [min(length, (i + 1) * size) for i in range(len(table))]
    return {"max": [scores.max()] * len(ends), "sum": [weights[:end].sum() for end in ends],
            "output": weights @ values / weights.sum()}


def q3_only_last(*args):
    right = q3_gathered(*args)
    return {**right, "max": right["max"][-1:], "sum": right["sum"][-1:]}


@np.errstate(all="ignore")
def q3_unshifted_sums(q, k_pool, v_pool, table, length):
    scores, _values, size = gathered(q, k_pool, v_pool, table, length)
    sums = [np.exp(scores[:(i + 1) * size]).sum() for i in range(len(table))]
    return {**q3_gathered(q, k_pool, v_pool, table, length), "sum": sums}


def q4_like(**changed):
    """Some of the five lists made otherwise, from (ids, entries of the tables, free, tables, lengths, block size)."""
    def wrong(num_blocks, block_size, tables, lengths, free):
        entries = [b for t in tables.values() for b in t]
        right = q4_sets(num_blocks, block_size, tables, lengths, free)
        given = (range(num_blocks), entries, free, tables, lengths, block_size)
        return {**right, **{key: change(*given) for key, change in changed.items()}}

    return wrong


def q4_from_one(num_blocks, *rest):
    right = q4_counters(num_blocks + 1, *rest)
    return {key: [x for x in found if x != 0] for key, found in right.items()}


WRONG = {
    "q1": {
        "blocks cut off": q1_like(blocks=lambda n, size: n // size, stay=lambda n, size: n // size),
        "a block ahead": q1_like(blocks=lambda n, size: n // size + 1),
        "every append in new blocks": q1_like(fresh=True),
        "what is left is taken": q1_like(partly=True),
        "refused and counted": q1_like(counts=True),
        "nothing given back": q1_like(back=False),
        "a partial block given back": q1_like(stay=lambda n, size: n // size),
        "one block kept too many": q1_like(stay=lambda n, size: n // size + 1),
        "the first blocks given back": q1_like(cut="start"),
        "given back in table order": q1_like(gone=list),
        "given back to the front": q1_like(to="front"),
        "taken from the end": q1_like(first=lambda free: free[-1]),
        "the smallest id": q1_like(first=min),
        "empty tables listed": q1_all_tables,
        "refusals not listed": lambda *a: {**q1_engine(*a), "refused": []},
        "drop for keep": q1_like(drop=True),
        "given back to the front in table order": q1_like(to="front", gone=list),
        "the old length kept": q1_like(forget=False),
        "a pool must not become full": q1_full_is_refused,
        "stopped at a refusal": q1_stops,
        "steps counted from 1": q1_from_one,
    },
    "q2": {
        "the last output counted": q2_like(lambda r: r[0] + r[1]),
        "the prompt alone": q2_like(lambda r: r[0]),
        "blocks cut off": q2_like(blocks=lambda ns, size: sum(n // size for n in ns)),
        "rounded once": q2_like(blocks=lambda ns, size: math.ceil(sum(ns) / size)),
        "GB for GiB": q2_like(fit=lambda n, ns, size, each, gib: gib * 10**9 // (size * each)),
        "MiB for GiB": q2_like(fit=lambda n, ns, size, each, gib: gib * 1024**2 // (size * each)),
        "a block that does not fit": q2_like(fit=lambda n, ns, size, each, gib: math.ceil(gib * 2**30 / (size * each))),
        "positions for blocks": q2_like(fit=lambda n, ns, size, each, gib: gib * 2**30 // each),
        "bytes of positions": q2_like(bytes=lambda n, ns, size, each, gib: sum(ns) * each),
        "bytes of one slot a block": q2_like(bytes=lambda n, ns, size, each, gib: n * each),
        "K and V again": q2_like(bytes=lambda n, ns, size, each, gib: 2 * n * size * each),
        "a block ahead": q2_like(blocks=lambda ns, size: sum(n // size + 1 for n in ns)),
        "K and V again in the pool": lambda requests, size, each, gib: {
            **q2_plain(requests, size, 2 * each, gib), "waste": q2_engine(requests, size, each, gib)["waste"]},
        "what is left fits": q2_like(fit=lambda n, ns, size, each, gib: gib * 2**30 // (size * each) - n),
        "waste in bytes": q2_like(waste=lambda n, ns, size, each, gib: (n * size - sum(ns)) * each),
        "waste of the worst case": q2_like(waste=lambda n, ns, size, each, gib: len(ns) * (size - 1)),
    },
    "q3": {
        "empty slots attended": lambda *a: q3_ledger(*a, rows=len(a[1][0]), seen=len(a[1][0])),
        "empty slots in the maximum": lambda *a: q3_ledger(*a, seen=len(a[1][0])),
        "the table not used": q3_like(order=lambda table: list(range(len(table)))),
        "the table sorted": q3_like(order=sorted),
        "the last block not read": q3_like(blocks=lambda n, size: n // size or 1),
        "scores not scaled": q3_like(divisor=lambda d: 1),
        "divided by the width": q3_like(divisor=lambda d: d),
        "nothing rescaled": q3_like(f_sum=False, f_mix=False),
        "the sum not rescaled": q3_like(f_sum=False),
        "the mix not rescaled": q3_like(f_mix=False),
        "rescaled the wrong way": q3_like(f=lambda old, new: np.exp(new - old)),
        "each block's own maximum": q3_like(best=lambda old, new: new),
        "the maximum of the block listed": q3_block_by_block,
        "the maximum begins at 0": q3_like(best=lambda old, new: max(old, new, 0.0)),
        "two passes": q3_two_passes,
        "the last figures alone": q3_only_last,
        "weights without the maximum": q3_unshifted_sums,
        "not divided at the end": q3_like(end=lambda o, l: o),
        "blocks averaged": q3_means,
    },
    "q4": {
        "not free is leaked": q4_like(leaked=lambda ids, e, free, *_: [b for b in ids if b not in free]),
        "not listed is leaked": q4_like(leaked=lambda ids, e, *_: [b for b in ids if b not in e]),
        "leaks not seen": q4_like(leaked=lambda *_: []),
        "stale not seen": q4_like(stale=lambda *_: []),
        "in a table is stale": q4_like(stale=lambda ids, e, *_: sorted(set(e))),
        "twice in one table not seen": q4_like(twice=lambda ids, e, free, tables, *_: [
            b for b in ids if len([t for t in tables.values() if b in t]) > 1]),
        "twice in one table only": q4_like(twice=lambda ids, e, free, tables, *_: [
            b for b in ids if any(t.count(b) > 1 for t in tables.values())]),
        "stale counted as twice": q4_like(twice=lambda ids, e, free, *_: [
            b for b in ids if e.count(b) + (1 if b in free else 0) > 1]),
        "doubled not seen": q4_like(doubled=lambda *_: []),
        "blocks cut off": q4_like(misfit=lambda ids, e, f, tables, n, size: sorted(
            k for k in tables if len(tables[k]) != n[k] // size)),
        "a block ahead": q4_like(misfit=lambda ids, e, f, tables, n, size: sorted(
            k for k in tables if len(tables[k]) != 1 + n[k] // size)),
        "long tables not seen": q4_like(misfit=lambda ids, e, f, tables, n, size: sorted(
            k for k in tables if len(tables[k]) * size < n[k])),
        "in the order of the dict": q4_like(misfit=lambda ids, e, f, tables, n, size: [
            k for k in tables if len(tables[k]) != math.ceil(n[k] / size)]),
        "repeated": q4_like(twice=lambda ids, e, *_: sorted(b for b in e if e.count(b) > 1),
                            doubled=lambda ids, e, free, *_: sorted(b for b in free if free.count(b) > 1)),
        "ids from 1": q4_from_one,
    },
}

install(globals(), STEM, RIGHT, WRONG)


@pytest.mark.parametrize("seed", range(6))
def test_the_attention_that_is_asked_for_is_attention_over_the_gathered_rows(seed):
    for case in find(f"{STEM}.q3").fresh_cases(seed):
        q, k_pool, v_pool, table, length = case.args
        k, v = (np.concatenate([pages[b] for b in table])[None, :length] for pages in map(np.array, (k_pool, v_pool)))
        expected = attention(np.array(q)[None, None], k, v)[0, 0]
        assert np.abs(expected - case.expected["output"]).max() <= 1e-12 * np.abs(v).max()


def test_fresh_ledgers_hold_what_the_question_is_about():
    """Tails with old rows that would win, scores beyond exp, maxima that rise late."""
    cases = [case for seed in range(4) for case in find(f"{STEM}.q3").fresh_cases(seed)]
    sizes = [len(case.args[1][0]) for case in cases]
    assert sum(case.args[4] % size > 0 for case, size in zip(cases, sizes)) >= 20
    assert sum(max(case.expected["max"]) > 710 for case in cases) >= 5
    assert sum(case.expected["max"][0] < case.expected["max"][-1] for case in cases) >= 20


# ------------------------------------------------------------------ the control
def view(**state):
    control = load("block_table")
    return control.view(control.read(state))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("steps", ["", "A+3 B+6 A+6 B=0 C+9", "A+1 B+16 A=0 C+7 B=3 C+2", "A+48", "B+4 B=4 B=3 B+1 C+4 C=0"])
def test_every_entry_of_the_tables_is_the_caches_own(size, steps):
    """And so is every position: keys written with a number of their own are found where the table says."""
    pool = BlockPool(48 // size, size)
    caches, keys = {name: PagedKVCache(SHAPE, pool) for name in "ABC"}, {name: [] for name in "ABC"}
    for number, step in enumerate(steps.split()):
        name, sign, n = step[0], step[1], int(step[2:])
        if sign == "=":
            caches[name].truncate(n)
            keys[name] = keys[name][:n]
            continue
        rows = np.full((1, n, 2), 0.0)
        rows[0, :, 0] = 100 * number + np.arange(n)
        caches[name].append(0, rows, rows)
        caches[name].advance(n)
        keys[name] += rows[0, :, 0].tolist()
    shown = view(steps=steps, block_size=str(size), memory=48)
    assert shown.rows == table_rows(caches, pool)
    assert [row[:2] for row in shown.rows] == [(k, i) for k, c in caches.items() for i in range(len(c.block_table))]
    for name, index, positions, block, users, filled, empty in shown.rows:
        first = int(positions.split("–")[0])
        assert pool.storage.k[0, 0, block, :filled, 0].tolist() == keys[name][first:first + filled]
        assert (first, users, filled + empty) == (index * size, 1, size)
    for name, cache in caches.items():
        entries = [row for row in shown.rows if row[0] == name]
        assert sum(row[5] for row in entries) == cache.seq_len and sum(row[6] for row in entries) <= size - 1
    pool.check_integrity()


@pytest.mark.parametrize("size, blocks, refused", [("1", 18, False), ("2", 10, False), ("4", 6, False), ("8", 2, True)])
def test_the_steps_of_the_figure_under_every_block_size(size, blocks, refused):
    """The chapter says that one of the four sizes refuses the last step."""
    shown = view(block_size=size)
    assert ("refused" in shown.sentence) == refused
    assert f"{blocks} of {24 // int(size)} blocks are in use" in shown.sentence


def test_buttons_append_rewind_and_finish():
    state = respond("block_table", {"request": "A", "positions": 5}, "empty")["state"]
    assert state["steps"] == ""
    page = respond("block_table", state)["html"]
    assert "A holds no position and no block" in page and "0 of 6 blocks are in use" in page
    tables = []
    for action in ("append", "append", "rewind", "rewind", "rewind", "append", "finish"):
        state = respond("block_table", state, action)["state"]
        moment = after(state["steps"], 4, 6)
        tables.append((moment.caches["A"].seq_len, moment.caches["A"].block_table))
    assert tables == [(5, (0, 1)), (10, (0, 1, 2)), (5, (0, 1)), (0, ()), (0, ()), (5, (3, 4)), (0, ())]


def test_a_refused_step_is_said_and_changes_nothing():
    state = respond("block_table", {"request": "A", "positions": 3}, "append")["state"]
    shown = view(**state)
    assert "refused" not in shown.sentence  # three empty slots of its last block
    state = respond("block_table", state | {"positions": 9}, "append")["state"]
    refused = view(**state)
    assert refused.sentence.startswith("The last step was refused, and nothing changed: 3 more blocks are needed, 0 of 6")
    assert refused.rows == shown.rows


def test_the_record_of_steps_has_an_end_and_a_spoilt_one_is_said():
    full = " ".join(["A+1", "A=0"] * (MOST_STEPS // 2))
    assert "reset to go on" in respond("block_table", {"steps": full})["html"]
    assert respond("block_table", {"steps": full}, "append")["state"]["steps"] == full
    for steps in ("A+x", "D+1", "A", "<script>", full + " A+1", 7, None, ["A+1"]):
        for action in (None, "append", "rewind", "finish"):
            page = respond("block_table", {"steps": steps}, action)["html"]
            assert 'role="alert"' in page and "<script" not in page


# ------------------------------------------------------------------ the figures
def marks(figure, pattern):
    return re.findall(pattern, figure.svg(styled=False))


def test_the_figure_shows_every_block_twice_where_it_is_in_use_and_once_where_it_is_free():
    moment = after("A+6 B+5 A+3 B=0", 4, 6)
    figure = block_table("figure-test", moment.caches, moment.pool, {"A": range(6, 9)})
    ids = [int(i) for i in marks(figure, r'font-size="11" font-weight="600">(\d+)<')]
    assert Counter(ids) == {0: 2, 1: 2, 4: 2, 2: 1, 3: 1, 5: 1}
    filled = len(marks(figure, r'fill="var\(--mgpt-k\)"'))
    assert filled == 2 * 9 and len(marks(figure, ">·<")) == 2 * 3 + 3 * 4
    assert len(marks(figure, r'stroke-width="2.2"')) == 2 * 3
    assert len(marks(figure, ">free<")) == 3 and "A: 9 positions in physical blocks 0, 1, 4" in figure.description


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_nothing_of_the_figure_lies_beside_it(size):
    moment = after("A+20 B+20", size, 48 // size)
    figure = block_table("figure-test", moment.caches, moment.pool)
    for x, y, width, height in marks(figure, r'<rect x="([\d.-]+)" y="([\d.-]+)" width="([\d.-]+)" height="([\d.-]+)"'):
        assert 0 <= float(x) and float(x) + float(width) <= figure.width
        assert 0 <= float(y) and float(y) + float(height) <= figure.height
    for x, y in marks(figure, r'<text x="([\d.-]+)" y="([\d.-]+)"'):
        assert 0 < float(x) < figure.width and 0 < float(y) <= figure.height


def test_a_line_of_memory_has_a_dot_for_each_slot_taken_and_empty():
    figure = memory_lines("figure-test", [("one", [("A", 0, 16, 11), ("B", 16, 16, 10)]), ("two", [("C", 4, 4, 4)])], 48)
    assert len(marks(figure, ">·<")) == 5 + 6
    assert "A takes 16 slots from 0 and fills 11" in figure.description and figure.width <= 480


def test_paged_attention_reads_what_the_chapter_s_trap_reads():
    """A table sorted by physical id is right with full blocks and one query, and wrong with a partial one."""
    from types import SimpleNamespace

    rng = np.random.default_rng(5)
    for n, right in ((8, True), (9, False)):
        pool = BlockPool(4, 4)
        for block in reversed([pool.allocate() for _ in range(4)]):
            pool.release(block)
        cache = PagedKVCache(shape(2), pool)
        cache.append(0, *rng.normal(size=(2, 1, n, 2)))
        cache.advance(n)
        q = rng.normal(size=(1, 1, 2))
        spoilt = SimpleNamespace(seq_len=n, pages=cache.pages, block_table=sorted(cache.block_table))
        same = np.abs(paged_attention(q, spoilt, 0) - paged_attention(q, cache, 0)).max() < 1e-12
        assert same == right
