"""A KV cache by hand: one decode step, a prefill in chunks, passes and rewinds, and what a conversation costs."""

import functools

import numpy as np

from mgpt.cache import KVCache
from mgpt.config import GPTConfig
from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.generate import generate_cached, generate_full_prefix
from mgpt.model import attention, init_params
from mgpt.text import N_


# ---------------------------------------------------------------- 1: one decode step
def joined(kept, new):
    """Rows of each KV head with the new row behind them."""
    return [[*rows, row] for rows, row in zip(kept, new)]


def step(q, k, v, keys, values):
    """The right dict."""
    keys, values = joined(keys, k), joined(values, v)
    mixed = attention(np.array(q)[:, None], np.array(keys), np.array(values))  # (H, 1, D)
    return {"mixed": mixed[:, 0].tolist(), "keys": keys, "values": values}


def mixed_with(weigh, group=lambda h, n_head, n_kv: h // (n_head // n_kv), rows=lambda kept, new: joined(kept, new)):
    """A step whose "mixed" comes from other weights (weigh(scores, width)), KV heads or rows; its cache is right."""
    def answer(q, k, v, keys, values):
        right, mixed = step(q, k, v, keys, values), []
        seen_k, seen_v = rows(keys, k), rows(values, v)
        for h, query in enumerate(q):
            kv = group(h, len(q), len(k))
            weights = weigh(np.array([np.dot(query, key) for key in seen_k[kv]]), len(query))
            mixed.append(sum((w * np.array(x) for w, x in zip(weights, seen_v[kv])), np.zeros(len(query))).tolist())
        return right | {"mixed": mixed}
    return answer


def scaled(scores, width):
    return softmax(scores / width**0.5)


def softmax(scores):
    weights = np.exp(scores - scores.max(initial=0))
    return weights / weights.sum()


def largest_alone(scores, width):
    return (np.arange(len(scores)) == scores.argmax()).astype(float)


def keys_mixed(q, k, v, keys, values):
    return step(q, k, v, keys, values) | {"mixed": step(q, k, k, keys, keys)["mixed"]}


def cache_as_it_was(q, k, v, keys, values):
    return step(q, k, v, keys, values) | {"keys": keys, "values": values}


def newest_first(q, k, v, keys, values):
    return step(q, k, v, keys, values) | {"keys": [[row, *rows] for rows, row in zip(keys, k)],
                                          "values": [[row, *rows] for rows, row in zip(values, v)]}


def nothing_kept(q, k, v, keys, values):
    none = [[] for _ in keys]
    return step(q, k, v, none, none)


def values_alone_kept(q, k, v, keys, values):
    return step(q, k, v, keys, values) | {"keys": keys}


def rows_of(rng, n, width):
    return [[rng.randrange(-8, 9) / 4 for _ in range(width)] for _ in range(n)]


def draw_step(rng):
    n_kv, group, width, n_kept = rng.choice([2, 3]), rng.choice([2, 3]), rng.choice([2, 4]), rng.randrange(1, 6)
    return (rows_of(rng, n_kv * group, width), rows_of(rng, n_kv, width), rows_of(rng, n_kv, width),
            [rows_of(rng, n_kept, width) for _ in range(n_kv)], [rows_of(rng, n_kept, width) for _ in range(n_kv)])


Q1 = Question(
    "02_cache.q1", "decode_attention", points=3, reference=step, draw=draw_step,
    cases=(
        Case(([[0.0], [0.0]], [[5.0]], [[3.0]], [[]], [[]]),
             {"mixed": [[3.0], [3.0]], "keys": [[[5.0]]], "values": [[[3.0]]]}),
        Case(([[0.0], [0.0], [0.0], [0.0]], [[1.0], [2.0]], [[4.0], [20.0]], [[[7.0]], [[8.0]]], [[[2.0]], [[10.0]]]),
             {"mixed": [[3.0], [3.0], [15.0], [15.0]], "keys": [[[7.0], [1.0]], [[8.0], [2.0]]],
              "values": [[[2.0], [4.0]], [[10.0], [20.0]]]}),
        Case(([[2.0, 0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0, 0.0]], [[0.0, 0.0, 0.0, 1.0]], [[[1.0, 0.0, 0.0, 0.0]]],
              [[[1.0, 0.0, 0.0, 0.0]]]),
             {"mixed": [[0.7310585786300049, 0.0, 0.0, 0.2689414213699951]],
              "keys": [[[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]],
              "values": [[[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]]}),
    ),
    mistakes=(
        Mistake("own position left out", mixed_with(scaled, rows=lambda kept, new: kept),
                N_("the new position sees itself too: append its K and V first, compare then")),
        Mistake("h % H_kv", mixed_with(scaled, group=lambda h, n_head, n_kv: h % n_kv),
                N_("neighbouring query heads share a KV head: head h reads h // (H / H_kv), not h % H_kv")),
        Mistake("one KV head for all", mixed_with(scaled, group=lambda h, n_head, n_kv: 0),
                N_("each group of query heads reads a KV head of its own; this always reads KV head 0")),
        Mistake("scale forgotten", mixed_with(lambda scores, width: softmax(scores)),
                N_("the scores are divided by the square root of the width before the softmax")),
        Mistake("divided by the width", mixed_with(lambda scores, width: softmax(scores / width)),
                N_("the scores are divided by the square root of the width, not by the width")),
        Mistake("no softmax", mixed_with(lambda scores, width: scores / width**0.5),
                N_("the scores become weights that add up to 1: the softmax is missing")),
        Mistake("plain mean", mixed_with(lambda scores, width: np.full(len(scores), 1 / max(len(scores), 1))),
                N_("all positions get the same weight here; the query decides how much each counts")),
        Mistake("best key alone", mixed_with(largest_alone),
                N_("the softmax mixes all values; this takes the value of the best key alone")),
        Mistake("keys mixed", keys_mixed,
                N_("the weights come from the keys, and they mix the values")),
        Mistake("cache as it was", cache_as_it_was,
                N_("the new K and V have to be kept: the lists that come back are one row longer")),
        Mistake("newest first", newest_first,
                N_("the new row goes behind the others: row i belongs to position i")),
        Mistake("nothing kept", nothing_kept,
                N_("the rows that were kept are gone: the new row is added to them")),
        Mistake("values alone kept", values_alone_kept,
                N_("the key of the new position is needed by all later ones: keep K as well as V")),
    ),
    hints=(
        N_("Do what the chapter's decode step does, in its order: append, compare, mix."),
        N_("New lists: [rows + [row] for rows, row in zip(keys, k)]. With H query heads on H_kv KV heads, head "
           "h reads KV head h // (H // H_kv)."),
        N_("For each head: scores = [dot(query, key) / sqrt(width) for key in its KV head's rows]; weights = "
           "exp(score − largest), divided by their sum; mixed = the sum of weight · value."),
    ),
    stands_for=("mgpt.model.attention",),
)
Q1_WHY = choice(
    "02_cache.q1_why", "q1_why", "c",
    {"a": N_("the answer was right all the same; one more easy question may be answered right as well"),
     "b": N_("the cache holds as many positions either way: which head reads what does not change a count"),
     "d": N_("the wrong map reads as many numbers as the right one: it takes as long")},
    hints=(N_("Which of these looks at numbers that must change when the wrong head is read?"),
           N_("An answer is the largest of many logits. How much may the others change before it does?"),
           N_("The slow generator is plainly right. What of it can be compared to twelve digits?")),
)


# ---------------------------------------------------------------- 2: chunks
def bounds(n_new, size):
    """(begin, end) of each chunk."""
    return [(begin, min(begin + size, n_new)) for begin in range(0, n_new, size)]


def chunks(q, k, v, keys, values, chunk_size, *, sees=None, held=None):
    """The right dict; or row i of the chunk begin:end sees the kept-and-new positions sees(S, i, begin, end)."""
    all_k, all_v, n_kept = np.array([*keys, *k]), np.array([*values, *v]), len(keys)
    sees = sees or (lambda n_kept, i, begin, end: range(n_kept + i + 1))
    mixed = []
    for begin, end in bounds(len(q), chunk_size):
        for i in range(begin, end):
            seen = [j for j in sees(n_kept, i, begin, end) if j < len(all_k)]
            query = np.array(q[i])[None, None]  # one head, one position
            row = attention(query, all_k[None, seen], all_v[None, seen])[0, 0] if seen else 0 * query[0, 0]
            mixed.append(row.tolist())
    counts = [n_kept + end for _begin, end in bounds(len(q), chunk_size)]
    return {"mixed": mixed, "held": counts if held is None else held(counts, n_kept)}


def chunked(**change):
    return lambda *args: chunks(*args, **change)


def in_one_go(q, k, v, keys, values, chunk_size):
    """The right dict from one causal pass over everything: what chunks must give."""
    all_k, all_v = np.array([*keys, *k]), np.array([*values, *v])
    unseen = np.arange(len(all_k)) > len(keys) + np.arange(len(k))[:, None]  # (T, S)
    mixed = attention(np.array(q)[None], all_k[None], all_v[None], unseen)[0]
    return {"mixed": mixed.tolist(), "held": [len(keys) + end for _begin, end in bounds(len(q), chunk_size)]}


def whole_chunks(q, k, v, keys, values, chunk_size):
    n = len(q) // chunk_size * chunk_size
    return chunks(q[:n], k[:n], v[:n], keys, values, chunk_size)


def draw_chunks(rng):
    n_new, n_kept, width = rng.randrange(3, 9), rng.randrange(2, 6), rng.choice([2, 4])
    return (*(rows_of(rng, n_new, width) for _ in range(3)), *(rows_of(rng, n_kept, width) for _ in range(2)),
            rng.choice([2, 3, 4]))


Q2 = Question(
    "02_cache.q2", "prefill_chunks", points=3, reference=in_one_go, draw=draw_chunks, fresh=8,
    cases=(
        Case(([[0.0]] * 3, [[1.0], [2.0], [3.0]], [[4.0], [0.0], [28.0]], [[9.0]], [[8.0]], 2),
             {"mixed": [[6.0], [4.0], [10.0]], "held": [3, 4]}),
        Case(([[0.0]] * 5, [[1.0]] * 5, [[1.0], [3.0], [5.0], [7.0], [9.0]], [], [], 2),
             {"mixed": [[1.0], [2.0], [3.0], [4.0], [5.0]], "held": [2, 4, 5]}),
        Case(([[0.0]] * 2, [[1.0]] * 2, [[5.0], [4.0]], [[2.0]] * 4, [[1.0], [2.0], [3.0], [4.0]], 8),
             {"mixed": [[3.0], [19 / 6]], "held": [6]}),
    ),
    mistakes=(
        Mistake("square mask at the end", chunked(
                    sees=lambda kept, i, begin, end: [*range(i - begin + 1), *range(end - begin, kept + end)]),
                N_("a square mask for the new positions, stretched to fit, lands on the kept ones: new position "
                   "i sits behind all that is held, and sees all of it")),
        Mistake("kept positions not added", chunked(sees=lambda kept, i, begin, end: range(i + 1)),
                N_("i counts new positions only; with S kept before, new position i is position S + i, and sees "
                   "0 … S + i")),
        Mistake("kept ones not seen", chunked(sees=lambda kept, i, begin, end: range(kept, kept + i + 1)),
                N_("new positions see what was kept before the call as well")),
        Mistake("no mask", chunked(sees=lambda kept, i, begin, end: range(kept + end)),
                N_("a position of a chunk must not see later positions of the same chunk")),
        Mistake("itself not seen", chunked(sees=lambda kept, i, begin, end: range(kept + i)),
                N_("a position sees itself too")),
        Mistake("one ahead", chunked(sees=lambda kept, i, begin, end: range(min(kept + i + 2, kept + end))),
                N_("a position sees itself and earlier ones; this one also sees the next of its chunk")),
        Mistake("earlier chunks forgotten", chunked(
                    sees=lambda kept, i, begin, end: [*range(kept), *range(kept + begin, kept + i + 1)]),
                N_("each chunk's K and V stay in the cache: the next chunk sees them")),
        Mistake("counted in the chunk", chunked(sees=lambda kept, i, begin, end: range(kept + i - begin + 1)),
                N_("the offset grows with each chunk: row i of a later chunk sits behind the earlier chunks too")),
        Mistake("short chunk dropped", whole_chunks,
                N_("the last chunk may be short; its positions are wanted too")),
        Mistake("kept ones not counted", chunked(held=lambda counts, kept: [n - kept for n in counts]),
                N_("\"held\" counts all positions in the cache, those from before the call too")),
        Mistake("sizes for counts", chunked(held=lambda counts, kept: [b - a for a, b in zip([kept, *counts], counts)]),
                N_("\"held\" is what the cache holds after each chunk, not the size of the chunk")),
        Mistake("counted before the chunk", chunked(held=lambda counts, kept: [kept, *counts[:-1]]),
                N_("\"held\" is counted at the end of each chunk, not at its start")),
    ),
    hints=(
        N_("Which positions may new position i see, when S were kept before the call? Count for S = 1, i = 0 "
           "first."),
        N_("Go chunk by chunk: append all K and V of the chunk, then let each of its queries look at the first "
           "n rows of the cache. Which n?"),
        N_("New position i sees the first S + i + 1 rows, whatever the chunk size. After a chunk that ends with "
           "new position i, S + i + 1 positions are held."),
    ),
    stands_for=("mgpt.model.attention", "mgpt.generate.prefill"),
)


# ---------------------------------------------------------------- 3: passes and rewinds
TOY = GPTConfig(vocab_size=2, max_seq_len=512, n_layer=1, n_head=1, n_kv_head=1, head_dim=2, n_embd=2, n_inner=2)


def replay(operations, capacity):
    """The right dict, from a real cache whose keys are (id, position)."""
    cache, processed, refused = KVCache(TOY, capacity), 0, 0
    rows = np.zeros((1, 0, 2))
    for name, what in operations:
        try:
            if name == "truncate":
                cache.truncate(what)
                continue
            new = np.array([[[i, cache.seq_len + n] for n, i in enumerate(what)]], float)  # (1, T, 2)
            rows, _values = cache.append(0, new, new)
            cache.advance(len(what))
            processed += len(what)
        except ValueError:
            refused += 1
    return {"cache": rows[0, : cache.seq_len].astype(int).tolist(), "processed": processed, "refused": refused}


def replayed(position=lambda cache, done, n: len(cache) + n, cut=lambda cache, n: cache[:n],
             fits=lambda held, n, room: held + n <= room, start=lambda cache, ids: cache, rest=False, forward=False,
             undone=False, tried=False):
    """A replay by hand with one of its rules changed.

    rest: a pass that does not fit is written as far as there is room.
    forward: truncate to more than is held is no mistake.
    undone: truncated positions are taken off the work.  tried: a refused pass counts as work.
    """
    def answer(operations, capacity):
        cache, processed, refused = [], 0, 0
        for name, what in operations:
            if name == "truncate":
                if what > len(cache) and not forward:
                    refused += 1
                    continue
                processed -= max(len(cache) - what, 0) * undone
                cache = cut(cache, what)
                continue
            if not fits(len(cache), len(what), capacity):
                refused += 1
                processed += len(what) * tried
                what = what[: capacity - len(cache)] if rest else []
                cache = cache + [[i, position(cache, processed, n)] for n, i in enumerate(what)]
                continue
            base = start(cache, what)
            cache = base + [[i, position(base, processed, n)] for n, i in enumerate(what)]
            processed += len(what)
        return {"cache": cache, "processed": processed, "refused": refused}
    return answer


def draw_operations(rng):
    capacity, operations, held = rng.randrange(6, 13), [], 0
    for _ in range(rng.randrange(6, 14)):
        if held > 1 and rng.random() < 0.35:
            n = rng.randrange(0, held + 2)
            operations.append(["truncate", n])
            held = n if n <= held else held
        else:
            n = rng.choice([1, 1, 2, 3, 5])
            operations.append(["pass", [rng.randrange(10, 40) for _ in range(n)]])
            held += n if held + n <= capacity else 0
    return operations, capacity


Q3 = Question(
    "02_cache.q3", "replay", points=3, whole=True, reference=replay, draw=draw_operations, fresh=12,
    cases=(
        Case(([["pass", [17, 15, 10]], ["pass", [14]], ["truncate", 3], ["pass", [19, 18]]], 8),
             {"cache": [[17, 0], [15, 1], [10, 2], [19, 3], [18, 4]], "processed": 6, "refused": 0}),
        Case(([["pass", [11, 12, 13]], ["pass", [14, 15]], ["pass", [16]], ["truncate", 5]], 4),
             {"cache": [[11, 0], [12, 1], [13, 2], [16, 3]], "processed": 4, "refused": 2}),
        Case(([["pass", [11, 12]], ["truncate", 0], ["pass", [13]]], 4),
             {"cache": [[13, 0]], "processed": 3, "refused": 0}),
    ),
    mistakes=(
        Mistake("positions never go back", replayed(position=lambda cache, done, n: done + n),
                N_("after a truncate the text goes on from what is held: the next position is the cache's "
                   "length, not the number of positions ever processed")),
        Mistake("position after the write", replayed(position=lambda cache, done, n: len(cache) + n + 1),
                N_("the position of a new row is the cache's length before it is written: the first one is 0")),
        Mistake("positions from 0 in each pass", replayed(position=lambda cache, done, n: n),
                N_("a later pass goes on where the cache ends; its first position is not 0")),
        Mistake("one position for a whole pass", replayed(position=lambda cache, done, n: len(cache)),
                N_("the ids of one pass have positions of their own, one after another")),
        Mistake("forgets n", replayed(cut=lambda cache, n: cache[: max(len(cache) - n, 0)]),
                N_("truncate(n) keeps the first n positions; this forgets n of them")),
        Mistake("keeps the end", replayed(cut=lambda cache, n: cache[len(cache) - n:]),
                N_("truncate(n) keeps the first n positions and forgets the others; this keeps the last n")),
        Mistake("keeps one more", replayed(cut=lambda cache, n: cache[: n + 1]),
                N_("truncate(n) keeps n positions: 0 … n − 1")),
        Mistake("writes what fits", replayed(rest=True),
                N_("a pass that does not fit is refused before anything is written; this writes a part of it")),
        Mistake("refuses a full cache", replayed(fits=lambda held, n, room: held + n < room),
                N_("a pass that fills the last free position fits")),
        Mistake("no limit", replayed(fits=lambda held, n, room: True),
                N_("there is room for `capacity` positions: a pass that does not fit is refused")),
        Mistake("truncates forward", replayed(forward=True),
                N_("a cache cannot be truncated to more than it holds: that is refused")),
        Mistake("each pass begins anew", replayed(start=lambda cache, ids: cache if len(ids) == 1 else []),
                N_("a pass of several ids goes behind what is held as well: that is how chunks work")),
        Mistake("work undone", replayed(undone=True),
                N_("a truncate forgets positions; that they passed through the layers stays true")),
        Mistake("refused work counted", replayed(tried=True),
                N_("a refused pass has processed nothing")),
    ),
    hints=(
        N_("What does the next position depend on: on all that was ever processed, or on what is held now?"),
        N_("Keep one list of [id, position]. A pass appends to it, a truncate cuts it, and both look first "
           "whether they may."),
        N_("pass: if len(cache) + len(ids) > capacity, count it as refused; else each id gets the position "
           "len(cache) at the moment it is appended. truncate: n > len(cache) is refused; else cache = cache[:n]."),
    ),
)
Q3_WHY = choice(
    "02_cache.q3_why", "q3_why", "a",
    {"b": N_("any common shift is invisible, 7 or 700"),
     "c": N_("longer prompts change nothing: all distances stay the same"),
     "d": N_("kept keys are turned once, before they are kept, and never again")},
    hints=(N_("What do rotary scores depend on?"),
           N_("After the shift, how far is the new query from each kept key?"),
           N_("The bug of question 3 shifts the new positions and leaves the kept ones where they are.")),
)


# ---------------------------------------------------------------- 4: what a conversation costs
@functools.lru_cache(maxsize=4096)
def counted(turns):
    """The right dict, counted by real generators on a tiny model.  turns: ((new tokens, outputs), …)."""
    params = init_params(TOY, np.random.default_rng(0))
    text, cache, slow, fast, prefills = [], KVCache(TOY, TOY.max_seq_len), 0, 0, []
    for n_new, n_outputs in turns:
        text = text + [0] * n_new
        prefills.append(len(text) - cache.seq_len)
        kept = generate_cached(params, TOY, text[cache.seq_len:], n_outputs, cache=cache)
        text = text + list(kept)
        fast += kept.positions_processed
        slow += generate_full_prefix(params, TOY, text[:-n_outputs], n_outputs).positions_processed
    return {"full_prefix": slow, "cached": fast, "prefills": prefills}


def conversation(turns):
    return dict(counted(tuple(map(tuple, turns))))


def total(turns):
    return sum(new + outputs for new, outputs in turns)


def billed(prefills=None, cached=None, full_prefix=None):
    """The right dict with entries computed otherwise from (turns, right dict); "cached" follows the prefills."""
    def answer(turns):
        right = conversation(turns)
        if prefills:
            right["prefills"] = prefills(turns, right)
            right["cached"] = sum(right["prefills"]) + sum(outputs - 1 for _new, outputs in turns)
        if cached:
            right["cached"] = cached(turns, right)
        if full_prefix:
            right["full_prefix"] = full_prefix(turns, right)
        return right
    return answer


def triangle(length, n):
    return n * length + n * (n - 1) // 2


def texts(turns):
    """Length of the text at the start of each turn's generation."""
    return [total(turns[:n]) + turns[n][0] for n in range(len(turns))]


def prompts_before(turns):
    return [sum(new for new, _outputs in turns[: n + 1]) for n in range(len(turns))]


Q4 = Question(
    "02_cache.q4", "conversation_work", points=3, whole=True, reference=conversation, fresh=6,
    draw=lambda rng: ([[rng.randrange(2, 12), rng.randrange(2, 8)] for _ in range(rng.randrange(3, 6))],),
    cases=(
        Case(([[8, 4]],), {"full_prefix": 38, "cached": 11, "prefills": [8]}),
        Case(([[8, 4], [5, 3]],), {"full_prefix": 92, "cached": 19, "prefills": [8, 6]}),
        Case(([[3, 1], [2, 2], [4, 2]],), {"full_prefix": 41, "cached": 13, "prefills": [3, 3, 5]}),
    ),
    mistakes=(
        Mistake("last output skipped", billed(prefills=lambda turns, r: [new for new, _outputs in turns]),
                N_("the last output of a turn was chosen and not processed: the next turn's prefill begins with "
                   "it")),
        Mistake("cache dropped between turns", billed(prefills=lambda turns, r: texts(turns)),
                N_("that prefills the whole text anew in each turn: the cache is still there, and holds nearly "
                   "all of it")),
        Mistake("all outputs again", billed(prefills=lambda turns, r: [
                    new + (turns[n - 1][1] if n else 0) for n, (new, _outputs) in enumerate(turns)]),
                N_("the outputs before the last one were processed by their decode passes: their K and V are "
                   "kept")),
        Mistake("first turn has one more", billed(prefills=lambda turns, r: [new + 1 for new, _outputs in turns]),
                N_("the first turn has no output before it: its prefill is its prompt alone")),
        Mistake("outputs of the past not in the text", billed(full_prefix=lambda turns, r: sum(
                    triangle(length, n) for length, (_new, n) in zip(prompts_before(turns), turns))),
                N_("the text of a later turn holds the earlier answers too, not the prompts alone")),
        Mistake("past forgotten", billed(full_prefix=lambda turns, r: sum(triangle(new, n) for new, n in turns)),
                N_("each pass of the slow generator runs the whole conversation, not this turn alone")),
        Mistake("one position later", billed(
                    full_prefix=lambda turns, r: r["full_prefix"] + sum(n for _new, n in turns)),
                N_("the first pass of a turn runs the text as it is before its first output")),
        Mistake("text does not grow", billed(full_prefix=lambda turns, r: sum(
                    length * n for length, (_new, n) in zip(texts(turns), turns))),
                N_("within a turn the text grows by one with each output")),
        Mistake("last output counted", billed(cached=lambda turns, r: total(turns)),
                N_("the very last output is chosen and never processed")),
        Mistake("a pass more in each turn", billed(
                    cached=lambda turns, r: sum(r["prefills"]) + sum(n for _new, n in turns)),
                N_("a turn of G outputs has G − 1 decode passes: output 1 comes from its prefill")),
        Mistake("one fewer in each turn", billed(cached=lambda turns, r: total(turns) - len(turns)),
                N_("only the last output of all stays unprocessed; those of earlier turns are processed by the "
                   "next prefill")),
        Mistake("prefills alone", billed(cached=lambda turns, r: sum(r["prefills"])),
                N_("decode passes process positions too, one each")),
    ),
    hints=(
        N_("After a turn, which tokens of the text are in the cache, and which one is not?"),
        N_("P + G − 1: one token is missing from the cache at the end of each turn. Who processes it?"),
        N_("Turn 1 prefills P; each later turn prefills 1 + its new tokens; each turn adds G − 1 decode passes. "
           "Without a cache a turn costs L + (L + 1) + …, G terms, where L is the whole text at its start."),
    ),
)

QUESTIONS = (Q1, Q1_WHY, Q2, Q3, Q3_WHY, Q4)
