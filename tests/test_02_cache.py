"""The checks of chapter 02's exercise are worth their points: right answers pass, wrong ones hear their cause.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import copy
import math

import numpy as np
from exercise_lists import install

from mgpt.cache import KVCache
from mgpt.checkpoint import load_mg2
from mgpt.course.questions import find
from mgpt.generate import generate_cached

STEM = "02_cache"


# ------------------------------------------------------------------ right answers, written differently
def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def soft(scores):
    weights = [math.exp(s - max(scores)) for s in scores]
    return [w / sum(weights) for w in weights]


def mix(weights, rows):
    return [sum(w * row[i] for w, row in zip(weights, rows)) for i in range(len(rows[0]))]


def q1_with_loops(q, k, v, keys, values):
    keys, values = copy.deepcopy(keys), copy.deepcopy(values)
    for g in range(len(k)):
        keys[g].append(k[g])
        values[g].append(v[g])
    out = []
    for g in range(len(k)):
        for h in range(len(q) // len(k)):
            query = q[g * (len(q) // len(k)) + h]
            out.append(mix(soft([dot(query, key) / math.sqrt(len(query)) for key in keys[g]]), values[g]))
    return {"mixed": out, "keys": keys, "values": values}


def q1_with_numpy(q, k, v, keys, values):
    keys = np.array([rows + [row] for rows, row in zip(keys, k)])
    values = np.array([rows + [row] for rows, row in zip(values, v)])
    group = len(q) // len(k)
    scores = np.einsum("hd,hsd->hs", np.array(q), np.repeat(keys, group, axis=0)) / np.sqrt(len(q[0]))
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return {"mixed": np.einsum("hs,hsd->hd", weights, np.repeat(values, group, axis=0)), "keys": keys, "values": values}


def q1_running(q, k, v, keys, values):
    """The softmax as a running sum, one position after another."""
    keys = [(*rows, row) for rows, row in zip(keys, k)]
    values = [(*rows, row) for rows, row in zip(values, v)]
    mixed = []
    for h in range(len(q)):
        g = h * len(k) // len(q)
        total, acc = 0.0, np.zeros(len(q[h]))
        for key, value in zip(keys[g], values[g]):
            w = math.exp(dot(q[h], key) * len(key) ** -0.5)
            total, acc = total + w, acc + w * np.array(value)
        mixed.append(acc / total)
    return {"values": values, "keys": keys, "mixed": [list(row) for row in mixed]}


def q2_row_by_row(q, k, v, keys, values, chunk_size):
    keys, values, mixed, held = list(keys), list(values), [], []
    for i in range(len(q)):
        keys.append(k[i])
        values.append(v[i])
        mixed.append(mix(soft([dot(q[i], key) / math.sqrt(len(q[i])) for key in keys]), values))
        if (i + 1) % chunk_size == 0 or i + 1 == len(q):
            held.append(len(keys))
    return {"mixed": mixed, "held": held}


def q2_whole_mask(q, k, v, keys, values, chunk_size):
    s, t = len(keys), len(q)
    all_k, all_v = np.array(keys + k), np.array(values + v)
    scores = np.array(q) @ all_k.T / math.sqrt(len(q[0]))
    scores = np.where(np.tri(t, s + t, s, dtype=bool), scores, -1e30)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    held = [s + min(n + chunk_size, t) for n in range(0, t, chunk_size)]
    return {"held": held, "mixed": weights @ all_v}


def q2_recursive(q, k, v, keys, values, chunk_size):
    if not q:
        return {"mixed": [], "held": []}
    n = min(chunk_size, len(q))
    keys, values, past = keys + k[:n], values + v[:n], len(keys)
    mixed = [mix(soft([dot(q[i], keys[j]) / math.sqrt(len(q[i])) for j in range(past + i + 1)]), values[: past + i + 1])
             for i in range(n)]
    rest = q2_recursive(q[n:], k[n:], v[n:], keys, values, chunk_size)
    return {"mixed": mixed + rest["mixed"], "held": [past + n] + rest["held"]}


def q3_ids_only(operations, capacity):
    ids, work, refused = [], 0, 0
    for name, what in operations:
        if name == "pass":
            if len(ids) + len(what) > capacity:
                refused += 1
            else:
                ids = ids + what
                work += len(what)
        elif what > len(ids):
            refused += 1
        else:
            del ids[what:]
    return {"cache": [[token, i] for i, token in enumerate(ids)], "processed": work, "refused": refused}


class Slots:
    def __init__(self, capacity):
        self.rows, self.length = [None] * capacity, 0

    def put(self, ids):
        if self.length + len(ids) > len(self.rows):
            raise OverflowError
        for token in ids:
            self.rows[self.length] = (token, self.length)
            self.length += 1

    def cut(self, n):
        if n > self.length:
            raise OverflowError
        self.length = n


def q3_with_slots(operations, capacity):
    slots, work, refused = Slots(capacity), 0, 0
    for name, what in operations:
        try:
            if name == "truncate":
                slots.cut(what)
            else:
                slots.put(what)
                work += len(what)
        except OverflowError:
            refused += 1
    return {"processed": work, "refused": refused, "cache": slots.rows[: slots.length]}


def q3_with_numpy(operations, capacity):
    held, work, refused = np.zeros((0, 2), dtype=int), 0, 0
    for name, what in operations:
        n = len(held) + len(what) if name == "pass" else what
        if n > (capacity if name == "pass" else len(held)):
            refused += 1
        elif name == "pass":
            held = np.vstack([held, np.column_stack([what, np.arange(len(held), n)])])
            work += len(what)
        else:
            held = held[:n]
    return {"cache": held, "processed": np.int64(work), "refused": refused}


def q4_by_passes(turns):
    text, held, slow, fast, prefills = 0, 0, 0, 0, []
    for new, outputs in turns:
        text += new
        for n in range(outputs):
            slow += text
            if n == 0:
                prefills.append(text - held)
            fast += text - held
            held = text
            text += 1
    return {"full_prefix": slow, "cached": fast, "prefills": prefills}


def q4_closed(turns):
    ends = np.cumsum([new + outputs for new, outputs in turns])
    slow = sum(n * (end - n) + n * (n - 1) // 2 for end, (_new, n) in zip(ends, turns))
    prefills = [new + (i > 0) for i, (new, _n) in enumerate(turns)]
    return {"full_prefix": slow, "cached": ends[-1] - 1, "prefills": prefills}


def q4_with_sets(turns):
    computed, text, slow, prefills = set(), 0, 0, []
    for new, outputs in turns:
        text += new
        for n in range(outputs):
            slow += len(range(text))
            fresh = set(range(text)) - computed
            if n == 0:
                prefills.append(len(fresh))
            computed |= fresh
            text += 1
    return {"full_prefix": slow, "cached": len(computed), "prefills": prefills}


RIGHT = {
    "q1": [q1_with_loops, q1_with_numpy, q1_running],
    "q2": [q2_row_by_row, q2_whole_mask, q2_recursive],
    "q3": [q3_ids_only, q3_with_slots, q3_with_numpy],
    "q4": [q4_by_passes, q4_closed, q4_with_sets],
}


# ------------------------------------------------------------------ wrong answers: name of the mistake -> code
def attend(weigh=lambda scores, d: soft([s / math.sqrt(d) for s in scores]), head=lambda h, n, g: h // (n // g),
           own=True, mixes="values", out=None):
    """The learner's decode step with one of its lines written otherwise."""
    def answer(q, k, v, keys, values):
        new_k = [rows + [row] for rows, row in zip(keys, k)]
        new_v = [rows + [row] for rows, row in zip(values, v)]
        mixed = []
        for h, query in enumerate(q):
            g = head(h, len(q), len(k))
            seen_k, seen_v = (new_k[g], new_v[g]) if own else (keys[g], values[g])
            if not seen_k:
                mixed.append([0.0] * len(query))
                continue
            weights = weigh([dot(query, key) for key in seen_k], len(query))
            mixed.append(mix(weights, seen_v if mixes == "values" else seen_k))
        right = {"mixed": mixed, "keys": new_k, "values": new_v}
        return right | (out(k, v, keys, values) if out else {})
    return answer


def only_new(q, k, v, keys, values):
    return attend()(q, k, v, [[] for _ in k], [[] for _ in v])


def prefill_with(see, held=None):
    """Row i of a chunk that starts behind `past` rows (`before` of them from before the call) sees see(...)."""
    def answer(q, k, v, keys, values, chunk_size):
        rows_k, rows_v, counts, mixed = list(keys), list(values), [], []
        for begin in range(0, len(q), chunk_size):
            past, size = len(rows_k), len(q[begin : begin + chunk_size])
            rows_k, rows_v = rows_k + k[begin : begin + size], rows_v + v[begin : begin + size]
            for i in range(size):
                seen = [j for j in range(past + size) if see(j, i, past, size, len(keys))]
                scores = [dot(q[begin + i], rows_k[j]) / math.sqrt(len(q[0])) for j in seen]
                mixed.append(mix(soft(scores), [rows_v[j] for j in seen]) if seen else [0.0] * len(q[0]))
            counts.append(len(rows_k))
        return {"mixed": mixed, "held": held(counts, len(keys)) if held else counts}
    return answer


def causal(j, i, past, size, before):
    return j <= past + i


def full_chunks_only(q, k, v, keys, values, chunk_size):
    n = len(q) - len(q) % chunk_size
    return q2_row_by_row(q[:n], k[:n], v[:n], keys, values, chunk_size)


class Toy:
    """A learner's cache with one rule written otherwise."""

    def __init__(self, capacity, wrong):
        self.rows, self.capacity, self.wrong = [], capacity, wrong
        self.processed = self.refused = 0

    def run(self, ids):
        room = self.capacity - len(self.rows)
        if len(ids) > room - (self.wrong == "refuses a full cache") and self.wrong != "no limit":
            self.refused += 1
            if self.wrong == "refused work counted":
                self.processed += len(ids)
            if self.wrong == "writes what fits":
                self.rows = self.rows + [[token, len(self.rows) + n] for n, token in enumerate(ids[:room])]
            return
        if self.wrong == "each pass begins anew" and len(ids) > 1:
            self.rows = []
        first = len(self.rows)
        for n, token in enumerate(ids):
            position = {"positions never go back": self.processed + n, "position after the write": first + n + 1,
                        "positions from 0 in each pass": n, "one position for a whole pass": first}
            self.rows = self.rows + [[token, position.get(self.wrong, first + n)]]
        self.processed += len(ids)

    def cut(self, n):
        if n > len(self.rows) and self.wrong != "truncates forward":
            self.refused += 1
            return
        before = len(self.rows)
        if self.wrong == "forgets n":
            self.rows = self.rows[: before - n]
        elif self.wrong == "keeps the end":
            self.rows = self.rows[before - n :]
        else:
            self.rows = self.rows[: n + (self.wrong == "keeps one more")]
        if self.wrong == "work undone":
            self.processed -= before - len(self.rows)


def toy(wrong):
    def answer(operations, capacity):
        cache = Toy(capacity, wrong)
        for name, what in operations:
            (cache.run if name == "pass" else cache.cut)(what)
        return {"cache": cache.rows, "processed": cache.processed, "refused": cache.refused}
    return answer


def bill(prefill=None, cached=None, slow=None):
    def answer(turns):
        right = q4_by_passes(turns)
        if prefill:
            right["prefills"] = prefill(turns)
            right["cached"] = sum(right["prefills"]) + sum(n for _new, n in turns) - len(turns)
        if cached:
            right["cached"] = cached(turns, right)
        if slow:
            right["full_prefix"] = slow(turns, right)
        return right
    return answer


def lengths(turns, answers=True):
    """Length of the text when each turn starts to generate."""
    text, result = 0, []
    for new, outputs in turns:
        result.append(text + new)
        text += new + outputs * answers
    return result


def rows_sum(length, n):
    return sum(range(length, length + n))


WRONG = {
    "q1": {
        "own position left out": attend(own=False),
        "h % H_kv": attend(head=lambda h, n, g: h % g),
        "one KV head for all": attend(head=lambda h, n, g: 0),
        "scale forgotten": attend(weigh=lambda scores, d: soft(scores)),
        "divided by the width": attend(weigh=lambda scores, d: soft([s / d for s in scores])),
        "no softmax": attend(weigh=lambda scores, d: [s / math.sqrt(d) for s in scores]),
        "plain mean": attend(weigh=lambda scores, d: [1 / len(scores)] * len(scores)),
        "best key alone": attend(weigh=lambda scores, d: [
            float(i == scores.index(max(scores))) for i in range(len(scores))]),
        "keys mixed": attend(mixes="keys"),
        "cache as it was": attend(out=lambda k, v, keys, values: {"keys": keys, "values": values}),
        "newest first": attend(out=lambda k, v, keys, values: {
            "keys": [[row] + rows for rows, row in zip(keys, k)],
            "values": [[row] + rows for rows, row in zip(values, v)]}),
        "nothing kept": only_new,
        "values alone kept": attend(out=lambda k, v, keys, values: {"keys": keys}),
    },
    "q2": {
        "square mask at the end": prefill_with(lambda j, i, past, size, before: j <= i or j >= size),
        "kept positions not added": prefill_with(lambda j, i, past, size, before: j <= past - before + i),
        "kept ones not seen": prefill_with(lambda j, i, past, size, before: before <= j <= past + i),
        "no mask": prefill_with(lambda j, i, past, size, before: True),
        "itself not seen": prefill_with(lambda j, i, past, size, before: j < past + i),
        "one ahead": prefill_with(lambda j, i, past, size, before: j <= past + i + 1),
        "earlier chunks forgotten": prefill_with(
            lambda j, i, past, size, before: j < before or past <= j <= past + i),
        "counted in the chunk": prefill_with(lambda j, i, past, size, before: j <= before + i),
        "short chunk dropped": full_chunks_only,
        "kept ones not counted": prefill_with(causal, held=lambda counts, before: [n - before for n in counts]),
        "sizes for counts": prefill_with(causal, held=lambda counts, before: np.diff([before, *counts]).tolist()),
        "counted before the chunk": prefill_with(causal, held=lambda counts, before: [before] + counts[:-1]),
    },
    "q3": {name: toy(name) for name in [
        "positions never go back", "position after the write", "positions from 0 in each pass",
        "one position for a whole pass",
        "forgets n", "keeps the end", "keeps one more", "writes what fits", "refuses a full cache", "no limit",
        "truncates forward", "each pass begins anew", "work undone", "refused work counted"]},
    "q4": {
        "last output skipped": bill(prefill=lambda turns: [new for new, _n in turns]),
        "cache dropped between turns": bill(prefill=lengths),
        "all outputs again": bill(prefill=lambda turns: [
            new + before for (new, _n), before in zip(turns, [0] + [n for _new, n in turns])]),
        "first turn has one more": bill(prefill=lambda turns: [1 + new for new, _n in turns]),
        "outputs of the past not in the text": bill(slow=lambda turns, r: sum(
            rows_sum(length, n) for length, (_new, n) in zip(lengths(turns, answers=False), turns))),
        "past forgotten": bill(slow=lambda turns, r: sum(rows_sum(new, n) for new, n in turns)),
        "one position later": bill(slow=lambda turns, r: sum(
            rows_sum(length + 1, n) for length, (_new, n) in zip(lengths(turns), turns))),
        "text does not grow": bill(slow=lambda turns, r: sum(
            length * n for length, (_new, n) in zip(lengths(turns), turns))),
        "last output counted": bill(cached=lambda turns, r: r["cached"] + 1),
        "a pass more in each turn": bill(cached=lambda turns, r: r["cached"] + len(turns)),
        "one fewer in each turn": bill(cached=lambda turns, r: sum(new + n - 1 for new, n in turns)),
        "prefills alone": bill(cached=lambda turns, r: sum(r["prefills"])),
    },
}


install(globals(), STEM, RIGHT, WRONG)


def test_the_counts_asked_for_are_those_of_a_conversation_with_mg2():
    """A real conversation with MG-2 on one cache: prefills and work are what the exercise's reference says."""
    params, config, tokenizer = load_mg2()
    ids, turns = tokenizer.encode("hotel limit is 600"), [[5, 3], [4, 2], [2, 4]]
    cache, text, processed, prefills = KVCache(config, 40), [], [], []
    for new, outputs in turns:
        text += ids[:1] * new
        prefills.append(len(text) - cache.seq_len)
        generation = generate_cached(params, config, text[cache.seq_len :], outputs, cache=cache)
        text += generation.tokens
        processed.append(generation.positions_processed)
    reference = find(f"{STEM}.q4").reference(turns)
    assert reference["prefills"] == prefills == [5, 5, 3]
    assert reference["cached"] == sum(processed) == len(text) - 1 == 19
