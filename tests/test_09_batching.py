"""The checks of chapter 09 are worth their points; its layouts, figures and control show what the engine does.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import itertools
import re

import numpy as np
import pytest
from exercise_lists import install

from mgpt.cache import KVCache
from mgpt.checkpoint import load_mg2
from mgpt.config import GPTConfig
from mgpt.course.questions import find
from mgpt.generate import generate_cached
from mgpt.model import _unseen, forward, init_params
from mgpt.widgets import load, respond
from mgpt.widgets.batch_layout import generate_padded, last_real, looks, looks_packed, pack, pad, positions_of
from mgpt.widgets.padding_masks import NAMES, cells, grid, pass_of

STEM = "09_batching"


# ------------------------------------------------------------------ right answers, written differently
def q1_by_columns(lengths, side, passes):
    width = max(lengths)
    real, positions = [], []
    for n in lengths:
        first = width - n if side == "left" else 0
        own = [first <= c < first + n or c >= width for c in range(width + passes)]
        real.append([int(x) for x in own])
        positions.append([(c - first if c < width else n + c - width) if x else 0 for c, x in enumerate(own)])
    return {"real": real, "positions": positions}


def q1_numpy(lengths, side, passes):
    n, width = np.array(lengths)[:, None], max(lengths)
    columns = np.arange(width)
    real = columns >= width - n if side == "left" else columns < n
    real = np.hstack([real, np.ones((len(lengths), passes), bool)]).astype(int)
    return {"positions": (real.cumsum(axis=1) - 1) * real, "real": real}


def q1_concatenate(lengths, side, passes):
    rows, at = [], []
    for n in lengths:
        hole = [0] * (max(lengths) - n)
        tail = list(range(n, n + passes))
        at.append((hole + list(range(n)) if side == "left" else list(range(n)) + hole) + tail)
        rows.append((hole + n * [1] if side == "left" else n * [1] + hole) + len(tail) * [1])
    return dict(real=rows, positions=at)


def q2_numpy(real, n_new):
    real = np.array(real, bool)
    square = np.tri(len(real), dtype=bool) & real & real[:, None]
    return square[len(real) - n_new :].astype(int)


def q2_loops(real, n_new):
    result = []
    for t in range(n_new):
        slot, line = len(real) - n_new + t, [0] * len(real)
        for k in range(slot + 1):
            if real[k] == 1 and real[slot] == 1:
                line[k] = 1
        result.append(line)
    return result


def q2_products(real, n_new):
    lines = [[real[q] * x for x in real[: q + 1]] + [0] * (len(real) - q - 1) for q in range(len(real))]
    return lines[-n_new:]


def q3_from_the_end(logits, real):
    answer = []
    for rows, row in zip(logits, real):
        t = len(row) - 1
        while t >= 0 and row[t] == 0:
            t -= 1
        answer.append(None if t < 0 else max(range(len(rows[t])), key=lambda i: (rows[t][i], -i)))
    return answer


def q3_numpy(logits, real):
    logits, real = np.array(logits), np.array(real)
    last = real.shape[1] - 1 - real[:, ::-1].argmax(axis=1)
    tokens = logits[np.arange(len(real)), last].argmax(axis=1)
    return [int(token) if row.any() else None for token, row in zip(tokens, real)]


def q3_overwrite(logits, real):
    tokens = [None] * len(real)
    for b, row in enumerate(real):
        for t, one in enumerate(row):
            if one:
                tokens[b] = logits[b][t].index(max(logits[b][t]))
    return tokens


def q4_columns(chosen, limits, stop):
    outputs = []
    for row, limit in enumerate(limits):
        column = [line[row] for line in chosen][:limit]
        outputs.append(column[: column.index(stop) + 1] if stop in column else column)
    passes = max(map(len, outputs))
    return {"outputs": outputs, "passes": passes, "idle": sum(passes - len(row) for row in outputs)}


def q4_masks(chosen, limits, stop):
    alive = np.ones(len(limits), bool)
    outputs, passes, idle = [[] for _ in limits], 0, 0
    for n, line in enumerate(chosen):
        if not alive.any():
            break
        passes, idle = passes + 1, idle + (int((~alive).sum()) if n else 0)
        for i in np.flatnonzero(alive):
            outputs[i].append(line[i])
        alive &= np.array([o[-1] != stop and len(o) < limit for o, limit in zip(outputs, limits)])
    return {"outputs": outputs, "passes": passes, "idle": idle}


def q4_iterators(chosen, limits, stop):
    def text(row):
        for n, line in enumerate(chosen, 1):
            yield line[row]
            if line[row] == stop or n == limits[row]:
                return

    outputs = [list(text(row)) for row in range(len(limits))]
    last = max(len(o) for o in outputs)
    return {"outputs": outputs, "passes": last, "idle": len(limits) * (last - 1) - sum(len(o) - 1 for o in outputs)}


def q5_every_cut(lengths, max_rows, n_batches):
    row, found = sorted(lengths), []
    for k in range(min(n_batches, len(row))):
        for cuts in itertools.combinations(range(1, len(row)), k):
            ends = [0, *cuts, len(row)]
            batches = [row[a:b] for a, b in zip(ends, ends[1:])]
            if max(map(len, batches)) <= max_rows:
                found.append(sum(max(b) - x for b in batches for x in b))
    return min(found)


def q5_recursive(lengths, max_rows, n_batches):
    """From the longest down."""
    def go(left, batches):
        if not left:
            return 0
        if batches == 0 or len(left) > batches * max_rows:
            return float("inf")
        return min(sum(left[0] - x for x in left[:n]) + go(left[n:], batches - 1)
                   for n in range(1, min(max_rows, len(left)) + 1))

    return go(sorted(lengths, reverse=True), n_batches)


def q5_table(lengths, max_rows, n_batches):
    row = sorted(lengths)
    sums = [0, *itertools.accumulate(row)]
    table = {(0, b): 0 for b in range(n_batches + 1)}
    for n in range(1, len(row) + 1):
        for b in range(n_batches + 1):
            options = [table[m, b - 1] + (n - m) * row[n - 1] - sums[n] + sums[m]
                       for m in range(max(0, n - max_rows), n) if b > 0]
            table[n, b] = min(options, default=10**6)
    return table[len(row), n_batches]


RIGHT = {"q1": [q1_by_columns, q1_numpy, q1_concatenate], "q2": [q2_loops, q2_numpy, q2_products],
         "q3": [q3_from_the_end, q3_numpy, q3_overwrite], "q4": [q4_columns, q4_masks, q4_iterators],
         "q5": [q5_every_cut, q5_recursive, q5_table]}


# ------------------------------------------------------------------ wrong answers
def q1_like(place=lambda i, count, one: count if one else 0, shift=0):
    """place(column, real slots before it, 1 or 0) -> the position."""
    def answer(lengths, side, passes):
        result = q1_by_columns(lengths, side, passes)
        for row, at in zip(result["real"], result["positions"]):
            at[:] = [place(i, sum(row[:i]), one) for i, one in enumerate(row)]
        return result

    return answer


def q1_tail(at):
    def answer(lengths, side, passes):
        result, width = q1_by_columns(lengths, side, passes), max(lengths)
        for n, row in zip(lengths, result["positions"]):
            row[width:] = [at(n, width) + k for k in range(passes)] if at(n, width) is not None else [n] * passes
        return result

    return answer


def q1_swapped(lengths, side, passes):
    return q1_by_columns(lengths, {"left": "right", "right": "left"}[side], passes)


def q1_dead_tail(lengths, side, passes):
    result = q1_by_columns(lengths, side, passes)
    width = max(lengths)
    return {key: [row[:width] + [0] * passes for row in rows] for key, rows in result.items()}


def q1_filled(lengths, side, passes):
    if side == "left":
        return q1_by_columns(lengths, side, passes)
    total = max(lengths) + passes
    return {"real": [[1] * (n + passes) + [0] * (total - n - passes) for n in lengths],
            "positions": [[*range(n + passes)] + [0] * (total - n - passes) for n in lengths]}


def q1_bools(lengths, side, passes):
    result = q1_by_columns(lengths, side, passes)
    return {**result, "real": [[x == 1 for x in row] for row in result["real"]]}


def q2_like(rule, lines=None, columns=None):
    def answer(real, n_new):
        n = len(real)
        first = n - n_new
        return [[1 if rule(real, q, k, first) else 0 for k in (columns(first, n) if columns else range(n))]
                for q in (lines(n_new, n) if lines else range(first, n))]

    return answer


def both(real, q, k):
    return real[q] == real[k] == 1


def rule(real, q, k, first):
    return both(real, q, k) and k <= q


def q3_like(place, best=lambda xs: xs.index(max(xs))):
    return lambda logits, real: [best(rows[place(row, real)]) if 1 in row else None
                                 for rows, row in zip(logits, real)]


def last_one(row, real=None):
    return max((t for t, one in enumerate(row) if one), default=-1)


def q3_sum(logits, real):
    tokens = []
    for rows, row in zip(logits, real):
        total = [sum(x[v] for x, one in zip(rows, row) if one) for v in range(len(rows[0]))]
        tokens.append(total.index(max(total)) if 1 in row else None)
    return tokens


def q3_best_anywhere(logits, real):
    tokens = []
    for rows, row in zip(logits, real):
        mine = [x for x, one in zip(rows, row) if one]
        best = max((max(x) for x in mine), default=None)
        tokens.append(next((x.index(best) for x in mine if best in x), None))
    return tokens


def q3_no_none(logits, real):
    return [rows[last_one(row)].index(max(rows[last_one(row)])) for rows, row in zip(logits, real)]


def q4_after(change):
    def answer(chosen, limits, stop):
        result = q4_columns(chosen, limits, stop)
        return {**result, **change(result, chosen, limits, stop)}

    return answer


def q4_counted(outputs, passes, idle_of=None):
    idle = sum(max(0, passes - len(row)) for row in outputs) if idle_of is None else idle_of
    return {"outputs": outputs, "passes": passes, "idle": idle}


def q4_rows_of(cut):
    """cut(column, limit, stop) -> the outputs of a row; the batch runs until the longest is done."""
    def answer(chosen, limits, stop):
        outputs = [cut([line[r] for line in chosen], limit, stop) for r, limit in enumerate(limits)]
        return q4_counted(outputs, max(map(len, outputs)))

    return answer


def up_to_stop(column, limit, stop, start=0):
    column = column[:limit]
    return column[: column.index(stop, start) + 1] if stop in column[start:] else column


def q4_talks(chosen, limits, stop):
    right = q4_columns(chosen, limits, stop)
    return {**right, "outputs": [[line[r] for line in chosen[: right["passes"]]] for r in range(len(limits))]}


def q4_drops(chosen, limits, stop):
    right = q4_columns(chosen, limits, stop)
    return {**right, "outputs": [[x for x in row if x != stop] for row in right["outputs"]]}


def q4_first_ends(chosen, limits, stop):
    right = q4_columns(chosen, limits, stop)
    passes = min(map(len, right["outputs"]))
    return q4_counted([row[:passes] for row in right["outputs"]], passes)


def q4_one_stops_all(chosen, limits, stop):
    passes = next((n + 1 for n, line in enumerate(chosen) if stop in line), len(chosen))
    outputs = [row[:passes] for row in (([line[r] for line in chosen])[:limit] for r, limit in enumerate(limits))]
    return q4_counted(outputs, max(map(len, outputs)))


def q5_like(order=sorted, cost=lambda b: sum(max(b) - x for x in b), rows=lambda most, n: most, k=lambda k, n: k):
    def answer(lengths, max_rows, n_batches):
        queue, n = order(lengths), len(lengths)
        most, batches = rows(max_rows, n), k(n_batches, n)
        best = {0: 0}
        for _ in range(batches):
            new = dict(best)
            for a, value in best.items():
                for b in range(a + 1, min(a + most, n) + 1):
                    new[b] = min(new.get(b, 10**9), value + cost(queue[a:b]))
            best = new
        return best.get(n, 10**9)

    return answer


def q5_slices(size, **order):
    def answer(lengths, max_rows, n_batches):
        queue, step = sorted(lengths, **order), size(len(lengths), max_rows, n_batches)
        return sum(max(b) - x for i in range(0, len(queue), step) for b in [queue[i : i + step]] for x in b)

    return answer


def q5_gaps(lengths, max_rows, n_batches):
    queue = sorted(lengths)
    places = sorted(range(1, len(queue)), key=lambda i: queue[i] - queue[i - 1], reverse=True)[: n_batches - 1]
    total, start = 0, 0
    for end in [*sorted(places), len(queue)]:
        total += sum(queue[end - 1] - x for x in queue[start:end])
        start = end
    return total


WRONG = {
    "q1": {
        "numbers of columns": q1_like(lambda i, count, one: i),
        "columns, 0 at padding": q1_like(lambda i, count, one: i if one else 0),
        "decode at the cache's length": q1_tail(lambda n, width: width),
        "decode at one position": q1_tail(lambda n, width: None),
        "decode one late": q1_tail(lambda n, width: n + 1),
        "counted from 1": q1_like(lambda i, count, one: count + 1 if one else 0),
        "-1 at padding": q1_like(lambda i, count, one: count if one else -1),
        "padding repeats the last": q1_like(lambda i, count, one: max(count + one - 1, 0)),
        "padding counted on": q1_like(lambda i, count, one: count),
        "sides exchanged": q1_swapped,
        "decode slots as padding": q1_dead_tail,
        "the hole filled": q1_filled,
        "one pass too many": lambda lengths, side, passes: q1_by_columns(lengths, side, passes + 1),
        "True and False": q1_bools,
    },
    "q2": {
        "causal alone": q2_like(lambda real, q, k, first: k <= q),
        "padding keys seen": q2_like(lambda real, q, k, first: real[q] and k <= q),
        "padding queries look": q2_like(lambda real, q, k, first: real[k] and k <= q),
        "later keys seen": q2_like(lambda real, q, k, first: both(real, q, k)),
        "not at itself": q2_like(lambda real, q, k, first: both(real, q, k) and k < q),
        "causal from 0": q2_like(lambda real, q, k, first: both(real, q, k) and k + first <= q),
        "new keys alone": q2_like(rule, columns=range),
        "kept keys alone": q2_like(lambda real, q, k, first: both(real, q, k) and k < first),
        "the first slots": q2_like(rule, lines=lambda n_new, n: range(n_new)),
        "a line for every slot": q2_like(rule, lines=lambda n_new, n: range(n)),
        "hidden marked": q2_like(lambda real, q, k, first: k > q or not both(real, q, k)),
        "turned around": q2_like(lambda real, q, k, first: both(real, q, k) and q <= k),
        "True and False": lambda real, n_new: [[x == 1 for x in line] for line in q2_loops(real, n_new)],
    },
    "q3": {
        "the last column": q3_like(lambda row, real: len(row) - 1),
        "the count as a column": q3_like(lambda row, real: row.count(1) - 1),
        "the count, one too far": q3_like(lambda row, real: min(row.count(1), len(row) - 1)),
        "the first real one": q3_like(lambda row, real: row.index(1)),
        "the first row's column": q3_like(lambda row, real: last_one(real[0])),
        "the last of equals": q3_like(last_one, lambda xs: max(i for i, x in enumerate(xs) if x == max(xs))),
        "the value": q3_like(last_one, max),
        "added up": q3_sum,
        "the largest of all": q3_best_anywhere,
        "a finished row answers": q3_no_none,
        "a finished row gives 0": lambda logits, real: [x or 0 for x in q3_from_the_end(logits, real)],
        "a finished row is left out": lambda logits, real: [x for x in q3_from_the_end(logits, real) if x is not None],
    },
    "q4": {
        "finished rows talk on": q4_talks,
        "stop id dropped": q4_drops,
        "stop id ignored": q4_rows_of(lambda column, limit, stop: column[:limit]),
        "stop id at output 1 ignored": q4_rows_of(lambda column, limit, stop: up_to_stop(column, limit, stop, 1)),
        "ends with the first row": q4_first_ends,
        "a stop for all": q4_one_stops_all,
        "one output too many": q4_rows_of(lambda column, limit, stop: up_to_stop(column, limit + 1, stop)),
        "one limit for all": lambda chosen, limits, stop: q4_columns(chosen, [max(limits) for _ in limits], stop),
        "prefill not counted": q4_after(lambda right, *rest: {"passes": max(map(len, right["outputs"])) - 1}),
        "the last output processed": q4_after(lambda right, *rest: {"passes": max(map(len, right["outputs"])) + 1}),
        "all decode slots": q4_after(lambda right, chosen, limits, stop: {"idle": (right["passes"] - 1) * len(limits)}),
        "outputs for slots": q4_after(lambda right, chosen, limits, stop: {
            "idle": (right["passes"] - 1) * len(limits) - sum(len(row) for row in right["outputs"])}),
        "idle by the limits": q4_after(lambda right, chosen, limits, stop: {
            "idle": max(limits) * len(limits) - sum(limits)}),
    },
    "q5": {
        "order of arrival": q5_like(order=list),
        "equal batches": q5_slices(lambda n, most, k: -(-n // k)),
        "filled from the shortest": q5_slices(lambda n, most, k: most),
        "filled from the longest": q5_slices(lambda n, most, k: most, reverse=True),
        "cut at the largest gaps": q5_gaps,
        "slots": q5_like(cost=lambda b: max(b) * len(b)),
        "max_rows ignored": q5_like(rows=lambda most, n: n),
        "n_batches ignored": q5_like(k=lambda k, n: n),
        "one batch more": q5_like(k=lambda k, n: k + 1),
        "empty rows counted": lambda lengths, max_rows, k: q5_like(cost=lambda b: max_rows * max(b) - sum(b))(
            lengths, max_rows, k),
        "padded to the longest of all": lambda lengths, *rest: sum(max(lengths) - x for x in lengths),
        "spread of each batch": q5_like(cost=lambda b: b[-1] - b[0]),
    },
}

install(globals(), STEM, RIGHT, WRONG)


# ------------------------------------------------------------------ the layouts, against the engine
CONFIG = GPTConfig(vocab_size=19, max_seq_len=64, n_layer=3, n_head=4, n_kv_head=2, head_dim=4, n_embd=8, n_inner=12)
PARAMS = init_params(CONFIG, np.random.default_rng(0))
LENGTHS = [[3, 1, 5], [1], [4, 4], [1, 6, 2, 6], [7, 1]]


def texts_of(lengths):
    rng = np.random.default_rng(len(lengths))
    return [rng.integers(0, 19, n).tolist() for n in lengths]


def deviation(got, expected):
    return np.abs(np.array(got) - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_slots_and_positions_are_those_that_the_exercise_asks_for(lengths, side):
    ids, real = pad(texts_of(lengths), side, filler=-1)
    assert np.array_equal(real, ids >= 0) and [row[row >= 0].tolist() for row in ids] == texts_of(lengths)
    want = q1_by_columns(lengths, side, 2)
    grown = np.hstack([real, np.ones((len(lengths), 2), bool)])
    assert np.array_equal(grown, want["real"]) and np.array_equal(positions_of(grown) * grown, want["positions"])
    assert last_real(real).tolist() == [max(lengths) - 1 if side == "left" else n - 1 for n in lengths]


def test_an_unknown_side_is_refused():
    with pytest.raises(ValueError, match="side"):
        pad([[1], [1, 2]], "both")


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_real_query_looks_where_the_engine_lets_it_look(lengths, side):
    _ids, real = pad(texts_of(lengths), side)
    grown = np.hstack([real, np.arange(2 * len(lengths)).reshape(-1, 2) % 3 > 0])
    for n_new in range(1, grown.shape[1] + 1):
        mask = looks(grown, n_new)
        hidden = _unseen(grown.shape[1] - n_new, n_new, grown, (len(lengths), n_new))
        queries = grown[:, -n_new:]
        assert np.array_equal(mask[queries], np.broadcast_to(~hidden, mask.shape)[queries])
        assert not mask[~queries].any()
        assert np.array_equal((mask.sum(axis=-1) - 1)[queries], positions_of(grown)[:, -n_new:][queries])
        for row, line in zip(grown, mask):
            assert np.array_equal(line, q2_loops(row.astype(int), n_new))


@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_packed_pass_gives_each_request_what_it_gets_alone(lengths):
    texts = texts_of(lengths)
    ids, owner = pack(texts)
    mask = looks_packed(owner, len(ids))
    got = forward(PARAMS, CONFIG, ids, positions=mask.sum(axis=-1) - 1, mask=mask)
    for i, text in enumerate(texts):
        assert deviation(got[owner == i], forward(PARAMS, CONFIG, text)) <= 1e-12


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_unequal_rows_with_unequal_ends_get_what_each_gets_alone(lengths, side):
    texts = texts_of(lengths)
    limits = [1 + 5 * i % 7 for i in range(1, len(lengths) + 1)]
    for filler, stops in ((0, ()), (18, ()), (3, (2, 5, 7, 11))):
        tokens, rows = generate_padded(PARAMS, CONFIG, texts, limits, side, filler=filler, stop_ids=stops)
        for text, limit, mine, logits in zip(texts, limits, tokens, rows):
            alone = generate_cached(PARAMS, CONFIG, text, limit, stop_ids=stops)
            assert mine == alone.tokens and deviation(logits, alone.logits) <= 1e-12


def test_a_finished_row_stays_where_it_is_in_the_context():
    """60 of 64 positions and 2 outputs beside a request that goes on: no position of the first one grows any more."""
    texts, limits = texts_of([60, 2]), [2, 30]
    tokens, _rows = generate_padded(PARAMS, CONFIG, texts, limits, "left")
    assert tokens == [generate_cached(PARAMS, CONFIG, text, n).tokens for text, n in zip(texts, limits)]


def test_the_question_about_buckets_has_the_chapters_plan():
    queue = [40, 14, 30, 14, 22, 40, 14, 30, 22, 14, 38, 14]
    assert q5_every_cut(queue, 5, 3) == find(f"{STEM}.q5").reference(queue, 5, 3) == 18


def test_a_best_plan_cuts_the_sorted_lengths():
    """Over every way to share out seven prompts, not only neighbours."""
    for lengths in ([9, 1, 5, 5, 2, 8, 3], [4, 4, 1, 9, 9, 2, 6]):
        found = min(sum(max(b) * len(b) - sum(b) for b in groups if b)
                    for way in itertools.product(range(3), repeat=7)
                    for groups in [[[x for x, g in zip(lengths, way) if g == k] for k in range(3)]]
                    if max(map(len, groups)) <= 3)
        assert q5_every_cut(lengths, 3, 3) == found


# ------------------------------------------------------------------ the control and the figures
STATES = [([5, 3, 2], [3, 1, 2]), ([1], [1]), ([9, 9, 5, 1], [5, 1, 5, 2]), ([1, 9], [2, 2]), ([4, 4, 4], [1, 4, 2])]


@pytest.mark.parametrize("layout", ["left", "right", "packed"])
@pytest.mark.parametrize("lengths, outputs", STATES)
def test_every_pass_of_the_control_is_one_that_the_engine_computes_right(layout, lengths, outputs):
    """Fed to the engine, its slots, positions and mask give each request the logits it gets alone."""
    texts = texts_of(lengths)
    alone = [generate_cached(PARAMS, CONFIG, text, n) for text, n in zip(texts, outputs)]
    whole = [text + one.tokens for text, one in zip(texts, alone)]
    batch = None if layout == "packed" else len(lengths)
    cache = KVCache(CONFIG, 60, batch=batch)
    for number in range(max(outputs)):
        now = pass_of(lengths, outputs, layout, number)
        assert now.first_new == cache.seq_len
        ids = np.array([[whole[who][at] if who >= 0 else 0 for who, at in zip(owners, positions)]
                        for owners, positions in zip(now.owner, now.positions)])
        new = slice(now.first_new, None)
        arrays = [ids[:, new], now.positions[:, new], now.mask]
        ids, positions, mask = [a[0] for a in arrays] if batch is None else arrays
        logits = forward(PARAMS, CONFIG, ids, cache, positions=positions, mask=mask)
        assert set(now.read) == {i for i, n in enumerate(outputs) if n > number}
        for i, slot in now.read.items():
            row = logits[slot - now.first_new] if batch is None else logits[i, slot - now.first_new]
            assert deviation(row, alone[i].logits[number]) <= 1e-12 and now.outputs[i] == number + 1
            assert now.position_read(i) == lengths[i] + number - 1


def test_the_control_counts_slots_and_names_the_logits_to_read():
    def shown(**state):
        control = load("padding_masks")
        return control.view(control.read(state))

    assert [row[1:] for row in shown().rows] == [(5, 5, 0, 4, 4, 1), (3, 3, 2, 4, 2, 1), (2, 2, 3, 4, 1, 1)]
    right = shown(layout="right")
    assert [row[4:6] for row in right.rows] == [(4, 4), (2, 2), (1, 1)]
    assert "15 slots, of which 5 padding, for 10 tokens" in right.sentence and "A 4, B 2, C 1." in right.sentence
    decode = shown(layout="right", passes=1)
    assert [row[2:] for row in decode.rows] == [(6, 0, 0, 5, 2), (3, 3, None, None, None), (3, 3, 0, 2, 2)]
    assert "Decode pass 1: 3 slots, of which 1 padding, for 2 tokens" in decode.sentence
    packed = shown(layout="packed")
    assert [row[3:6] for row in packed.rows] == [(0, 4, 4), (0, 7, 2), (0, 9, 1)]


def test_steps_go_forth_and_back_and_stop_at_both_ends():
    state, seen = load("padding_masks").start(), []
    for action in ["back", "step", "step", "step", "back"]:
        state = respond("padding_masks", state, action)["state"]
        seen.append(state["passes"])
    assert seen == [0, 1, 2, 2, 1]
    assert 'role="alert"' in respond("padding_masks", {"lengths": "x"}, "step")["html"]


@pytest.mark.parametrize("state, words", [
    ({"lengths": ""}, "Prompts: 1 to 4 whole numbers from 1 to 9"), ({"lengths": "5 0 1"}, "from 1 to 9"),
    ({"lengths": "5 3 2 1 1"}, "1 to 4"), ({"lengths": "5 3"}, "each of the 2 prompts"),
    ({"outputs": "6 1 1"}, "from 1 to 5"), ({"lengths": "9 9 9"}, "at most 24 tokens"), ({"outputs": "a b c"}, "Outputs")])
def test_what_cannot_be_read_is_said(state, words):
    page = respond("padding_masks", state)["html"]
    assert 'role="alert"' in page and words in page


@pytest.mark.parametrize("layout", ["left", "right", "packed"])
@pytest.mark.parametrize("lengths, outputs", STATES)
def test_the_pictures_draw_every_slot_and_every_look_once(layout, lengths, outputs):
    for number in range(max(outputs)):
        now = pass_of(lengths, outputs, layout, number)
        picture, mask = cells(now, max(lengths)), grid(now)
        svg = picture.svg()
        assert svg.count('height="11" fill="var(--mgpt-k)"') == (now.owner >= 0).sum()
        assert svg.count(">·<") == (now.owner < 0).sum()
        assert svg.count('stroke-width="2.2"') == now.owner.shape[0] * now.mask.shape[1]
        assert svg.count('stroke-width="2.5"') == len(now.read) == svg.count("stroke-dasharray")
        assert mask.svg().count('fill="var(--mgpt-k)"') == now.mask.sum()
        for figure in (picture, mask):
            assert max(float(x) for x in re.findall(r' x2?="([\d.]+)"', figure.svg())) <= 480
            assert max(float(y) for y in re.findall(r' y2?="([\d.]+)"', figure.svg())) <= figure.height
        for i in range(len(lengths)):
            at = " ".join(str(n) for n in range((now.owner == i).sum()))
            assert f"{NAMES[i]}: positions {at}" in picture.description
        for line in now.mask:
            assert f": {' '.join(str(n) for n in line.sum(axis=-1))}" in mask.description


def test_mg2_answers_three_questions_in_one_batch():
    params, config, tokenizer = load_mg2()
    texts = [tokenizer.encode(f"limit for {item} is {n}. limit for {item}? answer:") for item, n in (
        ("taxi", 150), ("hotel", 600), ("train", 430))] + [tokenizer.encode(
            "limit for hotel is 600. limit for taxi is 150. limit for hotel? answer:")]
    for side in ("left", "right"):
        tokens, _rows = generate_padded(params, config, texts, [9] * 4, side, stop_ids=tokenizer.encode("."))
        assert [tokenizer.decode(mine) for mine in tokens] == ["150.", "600.", "430.", "600."]
