"""The checks of chapter 12 are worth their points; its figures and its two controls show what `mgpt` says.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import re

import numpy as np
import pytest
from exercise_lists import install
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.blocks import BlockPool, PagedKVCache
from mgpt.config import GPTConfig
from mgpt.course.questions import find
from mgpt.prefix import PrefixCache
from mgpt.widgets import load, respond
from mgpt.widgets.block_owners import look, owners
from mgpt.widgets.hash_chain import hash_chain
from mgpt.widgets.prefix_ownership import STORIES, Stage, read_events, stage_after

STEM = "12_prefix"


# ------------------------------------------------------------------ right answers, written differently
def told(request, size, blocks):
    n = size * len(blocks)
    return dict(blocks=blocks, reused=n, computed=len(request["prompt"]) - n)


def q1_dictionary(request, size, cached):
    known = {(e["parent"], tuple(e["tokens"]), e["tenant"], e["adapter"]): e["block"] for e in cached
             if e["tick"] < request["tick"]}
    blocks, before = [], None
    while size * (len(blocks) + 1) < len(request["prompt"]):
        own = tuple(request["prompt"][size * len(blocks) : size * (len(blocks) + 1)])
        before = known.get((before, own, request["tenant"], request["adapter"]))
        if before is None:
            break
        blocks.append(before)
    return told(request, size, blocks)


def q1_recursive(request, size, cached):
    def go(rest, before):
        for e in cached:
            if len(rest) > size and e["parent"] == before and e["tokens"] == rest[:size] and e["tick"] <= request["tick"] - 1:
                if (e["tenant"], e["adapter"]) == (request["tenant"], request["adapter"]):
                    return [e["block"], *go(rest[size:], e["block"])]
        return []

    return told(request, size, go(request["prompt"], None))


def q1_from_the_leaves(request, size, cached):
    """Write every filed chain out in full, and take the longest that begins the prompt."""
    mine = {e["block"]: e for e in cached if e["tenant"] == request["tenant"] and e["adapter"] == request["adapter"]
            and e["tick"] < request["tick"]}
    best = []
    for block in mine:
        chain = []
        while block is not None and block in mine:
            chain.insert(0, block)
            block = mine[block]["parent"]
        ids = [t for b in chain for t in mine[b]["tokens"]]
        if block is None and ids == request["prompt"][: len(ids)] and len(best) < len(chain) and len(ids) < len(
                request["prompt"]):
            best = chain
    return told(request, size, best)


def q2_state(users, filed):
    return "in use" if users else ("free", "cached")[filed]


def q2_two_lists(blocks, events):
    users, filed, refused = [b["users"] for b in blocks], [b["filed"] for b in blocks], []
    for i, event in enumerate(events):
        if event == ["allocate"]:
            for b in range(len(users)):
                if not users[b] and not filed[b]:
                    users[b] = 1
                    break
            else:
                refused += [i]
            continue
        what, b = event
        allowed = {"share": bool(users[b] or filed[b]), "release": users[b] > 0, "evict": filed[b] and not users[b]}[what]
        if not allowed:
            refused += [i]
        users[b] += {"share": 1, "release": -1, "evict": 0}[what] * allowed
        filed[b] = filed[b] and not (allowed and what == "evict")
    return {"users": users, "states": [q2_state(u, f) for u, f in zip(users, filed)], "refused": refused}


def q2_real_pool(blocks, events):
    """The pool of the book, and a prefix cache with one chain for each filed block."""
    pool = BlockPool(len(blocks), 1)
    cache = PrefixCache(pool, model_key="q2")
    for b in range(len(blocks)):
        assert pool.allocate() == b
        if blocks[b]["filed"]:
            cache.insert([b], [b])
    for b, block in enumerate(blocks):
        for _ in range(block["users"]):
            pool.share(b)
        pool.release(b)
    refused = []
    for i, (what, *which) in enumerate(events):
        free = [b for b in range(len(blocks)) if pool.block(b).state == "free"]
        try:
            if what == "allocate":
                while free and pool._free[0] != free[0]:
                    pool._free.rotate()
                pool.allocate()
            elif what == "evict":
                if pool.block(which[0]).state != "cached":
                    raise ValueError("not cached")
                cache._forget(cache._nodes[which[0]])
            else:
                getattr(pool, what)(which[0])
        except (ValueError, RuntimeError):
            refused.append(i)
    seen = [pool.block(b) for b in range(len(blocks))]
    return {"users": [b.users for b in seen], "states": [b.state for b in seen], "refused": refused}


def q2_table_of_states(blocks, events):
    moves = {("share", "in use"), ("share", "cached"), ("release", "in use"), ("evict", "cached")}
    now, refused = [(b["users"], b["filed"]) for b in blocks], []
    for number, event in enumerate(events):
        names = [q2_state(*b) for b in now]
        if event[0] == "allocate":
            if "free" in names:
                now[names.index("free")] = (1, False)
            else:
                refused.append(number)
        elif (event[0], names[event[1]]) in moves:
            users, filed = now[event[1]]
            now[event[1]] = {"share": (users + 1, filed), "release": (users - 1, filed), "evict": (0, False)}[event[0]]
        else:
            refused.append(number)
    return {"states": [q2_state(*b) for b in now], "refused": refused, "users": [users for users, _ in now]}


def q3_depth(cached, block):
    [parent] = [e["parent"] for e in cached if e["block"] == block]
    return 0 if parent is None else 1 + q3_depth(cached, parent)


def q3_one_by_one(cached, n):
    left, gone = [e for e in cached if not e["users"]], []
    while left and len(gone) < n:
        oldest = min(e["last_used"] for e in left)
        victim = max((e for e in left if e["last_used"] == oldest), key=lambda e: q3_depth(cached, e["block"]))
        left.remove(victim)
        gone.append(victim["block"])
    return gone


def q3_leaves_only(cached, n):
    """Only who has no child left can go; of these the least recently used."""
    left, gone = list(cached), []
    for _ in range(n):
        parents = {e["parent"] for e in left}
        leaves = [e for e in left if e["block"] not in parents and e["users"] == 0]
        if leaves:
            victim = min(leaves, key=lambda e: e["last_used"])
            left.remove(victim)
            gone.append(victim["block"])
    return gone


def q3_two_sorts(cached, n):
    order = sorted(cached, key=lambda e: q3_depth(cached, e["block"]), reverse=True)
    order.sort(key=lambda e: e["last_used"])
    return [e["block"] for e in order if e["users"] == 0][:n]


def q4_position_by_position(table, held, new, block_size, users, filed, free):
    """Write one position after the other, and take a block whenever one is needed."""
    was, count, left, copied = list(table), list(users), list(free), []
    table, users = list(table), list(users)
    for p in range(held, held + new):
        i = p // block_size
        if i < len(table) and i * block_size < held and (users[table[i]] > 1 or table[i] in filed):
            if not left:
                return {"table": was, "copied": [], "users": count}
            copied.append([table[i], left[0]])
            users[table[i]] -= 1
            table[i] = left.pop(0)
            users[table[i]] = 1
        if i == len(table):
            if not left:
                return {"table": was, "copied": [], "users": count}
            table.append(left.pop(0))
            users[table[-1]] = 1
    return {"table": table, "copied": copied, "users": users}


def q4_one_tail(table, held, new, block_size, users, filed, free):
    """Only the last block can be touched, and only where it is not full."""
    part = held % block_size
    copy = bool(part) and (users[table[-1]] > 1 or table[-1] in filed)
    room = (block_size - part) % block_size
    more = 0 if new <= room else -(-(new - room) // block_size)
    if copy + more > len(free):
        return dict(table=table[:], copied=[], users=users[:])
    after = users[:]
    for block in free[: copy + more]:
        after[block] = 1
    if not copy:
        return dict(table=table + free[:more], copied=[], users=after)
    after[table[-1]] -= 1
    return dict(table=table[:-1] + free[: 1 + more], copied=[[table[-1], free[0]]], users=after)


def q4_real_cache(table, held, new, block_size, users, filed, free):
    """The cache of the book, over a pool that stands as it is told."""
    pool = BlockPool(len(users), block_size)
    names = dict(zip([*free, *[b for b in range(len(users)) if b not in free]], range(len(users))))
    back = {real: told for told, real in names.items()}
    cache = PrefixCache(pool, model_key="q4")
    for _ in range(len(users)):
        pool.allocate()
    for told_id, real in names.items():
        if told_id in filed:
            cache.insert([told_id] * block_size, [real])
    config = GPTConfig(2, 64, 1, 1, 1, 2, 2, 2)
    paged = PagedKVCache(config, pool)
    paged.attach([names[b] for b in table], held)
    for told_id, real in names.items():
        for _ in range(users[told_id] - (told_id in table)):
            pool.share(real)
    for told_id in [*free, *[b for b in range(len(users)) if b not in free]]:
        pool.release(names[told_id])
    start = [pool.ref_count(names[b]) for b in range(len(users))]
    spare = set(range(len(users))) - set(free) - {back[b] for b in range(len(users)) if pool.block(b).state != "free"}
    for told_id in spare:  # without a user, and not handed out either
        pool._free.remove(names[told_id])
    rows = np.zeros((1, new, 2))
    try:
        paged.append(0, rows, rows)
    except RuntimeError:
        pass
    after = [back[b] for b in paged.block_table]
    return {"table": after, "copied": [[old, now] for old, now in zip(table, after) if old != now],
            "users": [pool.ref_count(names[b]) for b in range(len(users))] if after != table else start}


RIGHT = {
    "q1": [q1_dictionary, q1_recursive, q1_from_the_leaves],
    "q2": [q2_two_lists, q2_real_pool, q2_table_of_states],
    "q3": [q3_one_by_one, q3_leaves_only, q3_two_sorts],
    "q4": [q4_position_by_position, q4_one_tail, q4_real_cache],
}


# ------------------------------------------------------------------ wrong answers, each with its cause
def q1_like(blocks_of=lambda p, size: (p - 1) // size, ignore=(), match=None, late=0):
    def wrong(request, size, cached):
        blocks, before = [], None
        for i in range(blocks_of(len(request["prompt"]), size)):
            own = request["prompt"][i * size : (i + 1) * size]
            for e in cached:
                same = e["tokens"] == own if match is None else match(e, own)
                if (same and ("parent" in ignore or e["parent"] == before)
                        and ("tenant" in ignore or e["tenant"] == request["tenant"])
                        and ("adapter" in ignore or e["adapter"] == request["adapter"])
                        and e["tick"] < request["tick"] + late):
                    before = e["block"]
                    blocks.append(before)
                    break
            else:
                break
        return told(request, size, blocks)

    return wrong


def q1_unaligned(request, size, cached):
    right = q1_like(lambda p, size: p // size)(request, size, cached)
    if right["computed"] == 0:
        right = {**right, "reused": right["reused"] - 1, "computed": 1}
    return right


def q1_token_by_token(request, size, cached):
    right = q1_dictionary(request, size, cached)
    n, before = right["reused"], (right["blocks"] or [None])[-1]
    best = n
    for e in cached:
        if e["parent"] == before and (e["tenant"], e["adapter"]) == (request["tenant"], request["adapter"]):
            if e["tick"] < request["tick"]:
                more = 0
                while more < size and n + more < len(request["prompt"]) - 1 and e["tokens"][more] == request["prompt"][n + more]:
                    more += 1
                best = max(best, n + more)
    return {**right, "reused": best, "computed": len(request["prompt"]) - best}


def recount(**change):
    return lambda request, size, cached: {**(right := q1_dictionary(request, size, cached)),
                                          **{key: value(right, request) for key, value in change.items()}}


def q2_like(allowed=None, release=lambda u, f: (u - 1, f), share=lambda u: u + 1, evicted=(0, False), give=("free",),
            stop=False, start=0):
    rules = {"share": ("in use", "cached"), "release": ("in use",), "evict": ("cached",)} | (allowed or {})

    def wrong(blocks, events):
        now, refused = [(b["users"], b["filed"]) for b in blocks], []
        for i, event in enumerate(events):
            names = [q2_state(*b) for b in now]
            if event[0] == "allocate":
                b = next((k for k, name in enumerate(names) if name in give), None)
            else:
                b = event[1] if names[event[1]] in rules[event[0]] else None
            if b is None:
                refused.append(i + start)
                if stop:
                    break
                continue
            users, filed = now[b]
            now[b] = {"allocate": (1, filed), "share": (share(users), filed), "release": release(users, filed),
                      "evict": evicted}[event[0]]
        return {"users": [u for u, _ in now], "states": [q2_state(*b) for b in now], "refused": refused}

    return wrong


def q3_by(key, who=lambda e: e["users"] == 0, cut=lambda n, cached: n):
    def wrong(cached, n):
        order = sorted((e for e in cached if who(e)), key=lambda e: key(e, q3_depth(cached, e["block"])))
        return [e["block"] for e in order][: cut(n, cached)]

    return wrong


def q3_right(e, depth):
    return e["last_used"], -depth


def q3_counted(cached, n):
    users = {e["block"]: e["users"] for e in cached}
    first = q3_by(q3_right, who=lambda e: True)(cached, n)
    return [block for block in first if users[block] == 0]


def q3_chains(cached, n):
    when = {e["block"]: e["last_used"] for e in cached}
    times = [when[block] for block in q3_one_by_one(cached, n)]
    return [block for block in q3_one_by_one(cached, len(cached)) if when[block] in times]


def q4_like(locked=lambda b, users, filed: users[b] > 1 or b in filed, start=lambda held, size: held // size, blocks=None,
            leave=True, users_of_copy=lambda users, old: 1, strict=True, swapped=False):
    def wrong(table, held, new, size, users, filed, free):
        table, users, left, copied = table[:], users[:], free[:], []
        targets = [i for i in range(start(held, size), len(table)) if locked(table[i], users, filed)]
        goal = -(-(held + new) // size) if blocks is None else blocks(held, new, size)
        extra = max(0, goal - len(table))
        if strict and len(targets) + extra > len(left):
            return {"table": table, "copied": [], "users": users}
        late = [left.pop(0) for _ in range(min(extra, len(left)))] if swapped else None
        for i in targets:
            if left:
                old, block = table[i], left.pop(0)
                users[block] = users_of_copy(users, old)
                users[old] -= int(leave)
                table[i] = block
                copied.append([old, block])
        for block in late if swapped else left[:extra]:
            table.append(block)
            users[block] = 1
        return {"table": table, "copied": copied, "users": users}

    return wrong


WRONG = {
    "q1": {
        "a full hit": q1_like(lambda p, size: p // size),
        "P − 1 positions": q1_unaligned,
        "a block too few": q1_like(lambda p, size: max(0, p // size - 1)),
        "part of a block": q1_token_by_token,
        "the parent ignored": q1_like(ignore=("parent",)),
        "the tenant ignored": q1_like(ignore=("tenant",)),
        "the adapter ignored": q1_like(ignore=("adapter",)),
        "blocks of this tick": q1_like(late=1),
        "the sum trusted": q1_like(match=lambda e, own: e["sum"] == sum(own)),
        "the first block only": q1_like(lambda p, size: min(1, (p - 1) // size)),
        "blocks for positions": lambda r, size, c: (lambda a: {
            **a, "reused": len(a["blocks"]), "computed": len(r["prompt"]) - len(a["blocks"])})(q1_dictionary(r, size, c)),
        "the whole prompt computed": recount(computed=lambda right, request: len(request["prompt"])),
    },
    "q2": {
        "below zero": q2_like({"release": ("in use", "cached", "free")}),
        "releasing evicts": q2_like(release=lambda u, f: (u - 1, f and u > 1)),
        "a release empties": q2_like(release=lambda u, f: (0, f)),
        "evicted in use": lambda blocks, events: q2_evicts_filed(blocks, events),
        "a free block evicted": q2_like({"evict": ("cached", "free")}),
        "a free block shared": q2_like({"share": ("in use", "cached", "free")}),
        "cached not shared": q2_like({"share": ("in use",)}),
        "one user for all": q2_like(share=lambda u: 1),
        "cached handed out": q2_like(give=("free", "cached")),
        "the key kept": q2_like(evicted=(0, True)),
        "stopped at a refusal": q2_like(stop=True),
        "counted from 1": q2_like(start=1),
        "refusals not told": lambda b, e: {**q2_two_lists(b, e), "refused": []},
    },
    "q3": {
        "evicted in use": q3_by(q3_right, who=lambda e: True),
        "in use counted": q3_counted,
        "the newest first": q3_by(lambda e, d: (-e["last_used"], -d)),
        "the parent first": q3_by(lambda e, d: (e["last_used"], d)),
        "depth before use": q3_by(lambda e, d: (-d, e["last_used"])),
        "ties by id": q3_by(lambda e, d: (e["last_used"], e["block"])),
        "ties by the largest id": q3_by(lambda e, d: (e["last_used"], -e["block"])),
        "ties by place in the list": q3_by(lambda e, d: e["last_used"]),
        "depth alone": q3_by(lambda e, d: -d),
        "n ignored": q3_by(q3_right, cut=lambda n, cached: len(cached)),
        "whole chains": q3_chains,
        "one too few": q3_by(q3_right, cut=lambda n, cached: n - 1),
    },
    "q4": {
        "shared and written": q4_like(lambda b, users, filed: False),
        "filed and written": q4_like(lambda b, users, filed: users[b] > 1),
        "shared blocks written": q4_like(lambda b, users, filed: b in filed),
        "always copied": q4_like(lambda b, users, filed: True),
        "the whole table copied": q4_like(start=lambda held, size: 0),
        "a full block copied": q4_like(start=lambda held, size: (held - 1) // size),
        "the original kept": q4_like(leave=False),
        "the users copied": q4_like(users_of_copy=lambda users, old: users[old]),
        "as far as it goes": q4_like(strict=False),
        "new blocks before copies": q4_like(swapped=True),
        "a position too many": q4_like(blocks=lambda held, new, size: -(-(held + new + 1) // size)),
        "no new blocks": q4_like(blocks=lambda held, new, size: 0),
        "new positions in blocks of their own": q4_like(blocks=lambda held, new, size: -(-held // size) - (-new // size)),
    },
}


def q2_evicts_filed(blocks, events):
    """Eviction asks whether the block is filed, not whether anybody uses it."""
    users, filed, refused = [b["users"] for b in blocks], [b["filed"] for b in blocks], []
    for i, (what, *which) in enumerate(events):
        free = [b for b in range(len(users)) if not users[b] and not filed[b]]
        b = which[0] if which else free[0] if free else None
        if b is None or {"share": b in free, "release": not users[b], "evict": not filed[b], "allocate": False}[what]:
            refused.append(i)
        elif what == "evict":
            users[b], filed[b] = 0, False
        else:
            users[b] += -1 if what == "release" else 1
    return {"users": users, "states": [q2_state(u, f) for u, f in zip(users, filed)], "refused": refused}


install(globals(), STEM, RIGHT, WRONG)


def test_the_hit_that_is_asked_for_is_the_prefix_caches_own():
    """The same prompts through `PrefixCache`: blocks and positions agree."""
    reference = find(f"{STEM}.q1").reference
    rng = np.random.default_rng(1)
    pool = BlockPool(200, 2)
    prefixes = PrefixCache(pool, model_key="m")
    table, filed = [], {}
    for _ in range(60):
        ids = [int(t) for t in rng.integers(1, 3, rng.integers(1, 9))]
        key = {"tenant": ("red", "blue")[rng.integers(2)], "adapter": (None, "law")[rng.integers(2)]}
        blocks, n = prefixes.match(ids, **key)
        assert reference({"prompt": ids, "tick": 9, **key}, 2, table) == {
            "blocks": blocks, "reused": n, "computed": len(ids) - n}
        own = [pool.allocate() for _ in range(len(ids) // 2)]
        prefixes.insert(ids, own, **key)
        before = None
        for i, block in enumerate(own):
            place = (before, *ids[2 * i : 2 * i + 2], *key.values())
            if place not in filed:
                filed[place] = block
                table.append({"block": block, "parent": before, "tokens": ids[2 * i : 2 * i + 2], "sum": 0, "tick": 1, **key})
            before = filed[place]
    assert len(table) > 40


def test_the_order_that_is_asked_for_is_the_prefix_caches_own():
    pool = BlockPool(60, 1)
    prefixes, rng = PrefixCache(pool, model_key="m"), np.random.default_rng(2)
    for _ in range(30):
        ids = [int(t) for t in rng.integers(0, 3, 4)]
        own = [pool.allocate() for _ in ids]
        prefixes.insert(ids, own)
        for block in own:
            pool.release(block)
    cached = [{"block": n.block_id, "parent": n.parent.block_id, "users": 0, "last_used": n.last_used}
              for n in prefixes._nodes.values()]
    assert len(cached) > 20
    assert find(f"{STEM}.q3").reference(cached, 99) == prefixes.evict(99)


# ------------------------------------------------------------------ the ownership stepper
def states(text, **more):
    """(state, View) after each event of a text."""
    control = load("prefix_ownership")
    state = control.act("first", control.read({"events": text, **more}))
    yield state, control.view(state)
    while (after := control.act("step", state)) != state:
        state = after
        yield state, control.view(state)


TEXT = st.one_of(st.integers(1, 9).map(lambda n: "xyyxyxxyy"[:n]), st.text("xy", min_size=1, max_size=9))
EVENT = st.one_of(
    st.tuples(st.sampled_from("ABC"), st.just("asks"), TEXT, st.sampled_from(["", " as t"])),
    st.tuples(st.sampled_from("ABC"), st.just("adds"), st.text("xy", min_size=1, max_size=5), st.just("")),
    st.tuples(st.sampled_from("ABC"), st.just("branches"), st.sampled_from("ABC"), st.just("")),
    st.tuples(st.sampled_from("ABC"), st.just("leaves"), st.just(""), st.just("")),
    st.tuples(st.just("evict"), st.sampled_from("123"), st.just(""), st.just("")))


@settings(max_examples=120, deadline=None, derandomize=True)
@given(events=st.lists(EVENT, min_size=1, max_size=14), size=st.integers(1, 4), blocks=st.integers(1, 9))
def test_whatever_happens_every_request_reads_its_own_letters(events, size, blocks):
    """Never another's: not from a shared block, not from a copy, not from a block used again; and the counts add up."""
    stage, texts, tenants = Stage(blocks, size), {}, {}
    for event in events:
        text = " ".join(filter(None, event[:3])) + event[3]
        before = look(stage.pool, stage.caches), stage.computed, stage.reused
        said = stage.play(*read_events(text))
        if said.startswith("Refused"):
            assert (look(stage.pool, stage.caches), stage.computed, stage.reused) == before
        elif event[1] == "asks":
            texts[event[0]] = event[2]
        elif event[1] == "adds":
            texts[event[0]] += event[2]
        elif event[1] == "branches":
            texts[event[2]] = texts[event[0]]
        elif event[1] == "leaves":
            del texts[event[0]]
        letters = stage.letters()
        assert set(texts) == set(stage.caches)
        for who, cache in stage.caches.items():
            read = "".join(letters[cache.block_table[p // size], p % size] for p in range(cache.seq_len))
            assert read == texts[who]
        stage.prefixes.check_integrity()
        counts = [stage.pool.ref_count(i) for i in range(blocks)]
        assert counts == [sum(cache.block_table.count(i) for cache in stage.caches.values()) for i in range(blocks)]
        assert [len(seen.names) for seen in look(stage.pool, stage.caches)] == counts


def test_the_start_story_shares_branches_copies_releases_evicts_and_hits():
    seen = list(states(load("prefix_ownership").start()["events"]))
    said = [view.sentence for _state, view in seen]
    assert [words.split(".")[0] for words in said] == [
        "Nothing has happened: every block is free", "A asks 10 positions: nothing found, 10 computed",
        "B asks 10 positions: 8 found in blocks 0 1, 2 computed",
        "C stands in the same blocks as B: each counts one user more, and nothing is copied or computed",
        "C wants to write, and block 3 has another user: it is copied to block 4 first",
        "B writes into block 3, which nobody else uses: nothing is copied",
        "A gives back its references: blocks 0 1 still in use by others; block 2 free",
        "B gives back its references: blocks 0 1 still in use by others; block 3 free",
        "C gives back its references: blocks 0 1 resident without a user; block 4 free",
        "Evicted, in this order: block 1", "D asks 10 positions: 4 found in block 0, 6 computed"]
    users = [[row[2] for row in view.rows[:5]] for _state, view in seen]
    assert users == [[0, 0, 0, 0, 0], [1, 1, 1, 0, 0], [2, 2, 1, 1, 0], [3, 3, 1, 2, 0], [3, 3, 1, 1, 1], [3, 3, 1, 1, 1],
                     [2, 2, 0, 1, 1], [1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert seen[8][1].rows[0] == (0, "cached", 0, None, "HOTE", "yes") and seen[9][1].rows[1][1] == "free"
    assert "20 computed, 22 reused" in said[-1]


@pytest.mark.parametrize("name", STORIES)
def test_every_story_plays_to_its_end_without_a_refusal(name):
    control = load("prefix_ownership")
    state = control.act(name, control.start())
    assert state["done"] == 1 and state["events"] == STORIES[name][1]
    for _state, view in states(state["events"]):
        assert "Refused" not in view.sentence


def test_eviction_leaves_what_is_in_use():
    seen = list(states(STORIES["evict"][1]))
    assert "Evicted, in this order: blocks 1 0." in seen[4][1].sentence and "block 4." in seen[6][1].sentence
    assert [row[1] for row in seen[4][1].rows[3:6]] == ["in use"] * 3 and seen[4][1].rows[3][5] == "yes"


def test_a_request_that_finds_its_prefix_and_no_block_for_the_rest_leaves_no_reference():
    last = list(states("A asks abcdefgh; B asks abcdefghijkl", blocks=2))[-1][1]
    assert "Refused, and nothing changes" in last.sentence and [row[2] for row in last.rows] == [1, 1]


def test_tenants_share_nothing_and_each_finds_its_own():
    last = list(states(STORIES["tenants"][1]))
    assert "nothing found, 10 computed" in last[2][1].sentence and "8 found in blocks 3 4" in last[5][1].sentence


@pytest.mark.parametrize("text", ["", ";", "A asks", "A leaves now", "A sings la", "ask A x", "A asks x y", "A adds x as t",
                                  "evict", "evict x", "; ".join(["evict 1"] * 25), "A branches B as t", "A asks é",
                                  "A asks " + "x" * 25])
def test_what_is_no_event_is_said(text):
    for action in (None, "step", "back"):
        assert 'role="alert"' in respond("prefix_ownership", {"events": text}, action)["html"]


@pytest.mark.parametrize("text, words", [
    ("A leaves", "A is not at work"), ("A adds x", "A is not at work"), ("A branches B", "A is not at work"),
    ("A asks xx; A asks yy", "A is at work already"), ("A asks xx; A branches A", "A is at work already"),
    ("A asks abcdefghi", "Refused, and nothing changes: 3 more blocks are needed, 2 of 2 are free"),
    ("A asks abcdefg; A branches B; B adds x", "Refused, and nothing changes: 1 more blocks"), ("A asks x; evict 3", "Nothing is evicted")])
def test_what_cannot_be_done_is_refused_in_words(text, words):
    assert words in list(states(text, blocks=2))[-1][1].sentence


def test_the_picture_has_every_block_its_count_and_the_letters_of_the_storage():
    control = load("prefix_ownership")
    state = control.start() | {"done": 4}
    stage, _said = stage_after(state["events"], 8, 4, 4)
    [picture] = control.view(state).pictures
    assert re.findall(r"block (\d) (\d) of 4 positions, (\d) users ([ABC ]+)", picture.description) == [
        ("0", "4", "3", "A B C"), ("1", "4", "3", "A B C"), ("2", "2", "1", "A"), ("3", "2", "1", "B"), ("4", "3", "1", "C")]
    assert picture.description.count("free") == 3
    assert picture.svg().count('stroke-width="2.2"') == 1 == len(stage.new)  # what was copied is not computed
    assert "".join(stage.letters()[4, slot] for slot in range(3)) == "t?4"
    faded = control.view(control.start() | {"done": 8}).pictures[0].svg()
    assert faded.count("stroke-dasharray") == 2 and faded.count(">0</text>") >= 2


# ------------------------------------------------------------------ the other figures and the panel
def test_the_chain_of_keys_draws_equal_beginnings_once():
    figure = hash_chain("figure-test", "root", {"one": ["aaaa1", "bbbb1", "cccc1"], "two": ["aaaa1", "bbbb2"]}, 8)
    svg = figure.svg()
    assert svg.count("<rect") == 4 and svg.count(">aaaa</text>") == 1 and svg.count(">bbbb</text>") == 2
    assert [svg.count(f">{span}</text>") for span in ("0–7", "8–15", "16–23")] == [1, 2, 1]
    assert figure.description == "root; one: aaaa bbbb cccc; two: aaaa bbbb"


def test_two_pools_stand_below_each_other():
    pool = BlockPool(3, 8)
    config = GPTConfig(2, 64, 1, 1, 1, 2, 2, 2)
    cache = PagedKVCache(config, pool)
    cache.append(0, np.zeros((1, 9, 2)), np.zeros((1, 9, 2)))
    cache.advance(9)
    before = look(pool, {"A": cache})
    cache.release()
    figure = owners("figure-test", [("before", before), ("after", look(pool, {}))], 8)
    assert figure.description == ("before: block 0 8 of 8 positions, 1 users A, block 1 1 of 8 positions, 1 users A, "
                                  "block 2 free; after: block 0 free, block 1 free, block 2 free")
    assert figure.svg().count('fill="var(--mgpt-k)"') == 9 and figure.svg().count("·") == 7


def test_the_second_panel_has_sharing_on_and_shows_the_gain():
    control = load("prefix_panel")
    start = control.start()
    assert start["sharing"] == "dynamic" and "tick 2" in control.view(start).pictures[1].title.lower()
    assert control.view(start).pictures[1].description.startswith("shared: " + ", ".join(["4 of 4 positions, 4 users"] * 4))
    whole = control.view(start | {"ticks": 99})
    assert [row[3] for row in whole.more[0].rows] == [1, 1, 1, 1] and "40 positions computed so far, 48 reused" in whole.sentence
    alone = control.view(start | {"sharing": "none", "ticks": 99})
    assert [row[3] for row in alone.more[0].rows] == [1, 2, 3, 3] and "88 positions computed so far, 0 reused" in alone.sentence
    assert [picture.name for picture in whole.pictures] == ["figure-prefix-panel", "figure-prefix-panel-blocks"]
