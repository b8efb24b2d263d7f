"""Chapter 09: padding and positions, where a query looks, the logits to read, rows that finish, buckets."""

import functools

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.text import N_


# ---------------------------------------------------------------- 1: slots and positions
def slots(lengths, side, passes, width=None, new=1):
    """Rows of 1 and 0: which slots are real after some decode passes."""
    width = max(lengths) if width is None else width
    rows = []
    for length in lengths:
        padding = [0] * (width - length)
        rows.append((padding + [1] * length if side == "left" else [1] * length + padding) + [new] * passes)
    return rows


def counted(row, start=0, padding=lambda count: 0):
    """Positions of a row of slots: real ones counted from `start`; padding(count): what a padding slot gets."""
    positions, count = [], 0
    for real in row:
        positions.append(start + count if real else padding(count))
        count += real
    return positions


def layout(lengths, side, passes, number=counted, **change):
    rows = slots(lengths, side, passes, **change)
    return {"real": rows, "positions": [number(row) for row in rows]}


def with_decode(at):
    """A wrong layout: decode slot s of a request stands at at(length, width, s)."""
    def wrong(lengths, side, passes):
        result, width = layout(lengths, side, passes), max(lengths)
        for length, row in zip(lengths, result["positions"]):
            row[width:] = [at(length, width, step) for step in range(passes)]
        return result

    return wrong


def outputs_in_the_hole(lengths, side, passes):
    """Right padding filled up by the outputs: the padding stands last."""
    rows = [[1] * (n + passes) + [0] * (max(lengths) - n) if side == "right" else row
            for n, row in zip(lengths, slots(lengths, side, passes))]
    return {"real": rows, "positions": [counted(row) for row in rows]}


def draw_layout(rng):
    lengths = [rng.randrange(1, 7) for _ in range(rng.randrange(2, 5))]
    lengths[0] = max(1, max(lengths) - rng.randrange(1, 4))
    return lengths + [7], rng.choice(["left", "right"]), rng.randrange(4)


Q1 = Question(
    "09_batching.q1", "layout", points=4, whole=True, reference=layout, draw=draw_layout, fresh=12,
    cases=(
        Case(([3, 1], "left", 0), {"real": [[1, 1, 1], [0, 0, 1]], "positions": [[0, 1, 2], [0, 0, 0]]}),
        Case(([3, 1], "right", 0), {"real": [[1, 1, 1], [1, 0, 0]], "positions": [[0, 1, 2], [0, 0, 0]]}),
        Case(([2, 4], "left", 1), {"real": [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]],
                                   "positions": [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]}),
        Case(([2, 4], "right", 2), {"real": [[1, 1, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1]],
                                    "positions": [[0, 1, 0, 0, 2, 3], [0, 1, 2, 3, 4, 5]]}),
        Case(([2, 2], "left", 1), {"real": [[1, 1, 1], [1, 1, 1]], "positions": [[0, 1, 2], [0, 1, 2]]}),
    ),
    mistakes=(
        Mistake("numbers of columns", lambda *a: layout(*a, number=lambda row: list(range(len(row)))),
                N_("these are the numbers of the columns: a position counts the real tokens of its request")),
        Mistake("columns, 0 at padding", lambda *a: layout(*a, number=lambda row: [
                    i * real for i, real in enumerate(row)]),
                N_("the first real token of a row stands at position 0, wherever its slot is")),
        Mistake("decode at the cache's length", with_decode(lambda length, width, step: width + step),
                N_("a decode slot goes on where its own request ended; the length of the cache counts padding too")),
        Mistake("decode at one position", with_decode(lambda length, width, step: length),
                N_("each decode pass is one position further on")),
        Mistake("decode one late", with_decode(lambda length, width, step: length + 1 + step),
                N_("output 1 stands right behind the prompt: at the position that is the prompt's length")),
        Mistake("counted from 1", lambda *a: layout(*a, number=lambda row: counted(row, start=1)),
                N_("positions begin at 0")),
        Mistake("-1 at padding", lambda *a: layout(*a, number=lambda row: counted(row, padding=lambda count: -1)),
                N_("a padding slot gets position 0 here: it means nothing, but `forward` takes no −1")),
        Mistake("padding repeats the last", lambda *a: layout(*a, number=lambda row: counted(
                    row, padding=lambda count: max(count - 1, 0))),
                N_("a padding slot gets position 0 here; yours has the one of the token before it")),
        Mistake("padding counted on", lambda *a: layout(*a, number=lambda row: counted(
                    row, padding=lambda count: count)),
                N_("a padding slot gets position 0 here; yours has the one of the next token")),
        Mistake("sides exchanged", lambda n, side, passes: layout(n, "right" if side == "left" else "left", passes),
                N_("left padding stands before the tokens, right padding behind them")),
        Mistake("decode slots as padding", lambda *a: layout(*a, new=0),
                N_("in this question every row goes on: the slots of the decode passes are real")),
        Mistake("the hole filled", outputs_in_the_hole,
                N_("the padding of a prefill keeps its slots; what is decoded stands behind it")),
        Mistake("one pass too many", lambda n, side, passes: layout(n, side, passes + 1),
                N_("as many slots are added as there are decode passes")),
        Mistake("True and False", lambda *a: layout(*a) | {"real": [[bool(x) for x in row] for row in slots(*a)]},
                N_("right, but written as True and False: 1 and 0 are asked for")),
    ),
    hints=(
        N_("Write the row of 1 and 0 of one request first, decode slots included. What in it tells the positions?"),
        N_("A position counts the real slots before it. Then nothing depends on the side, and nothing on the phase."),
        N_("For each row: count = 0; for each slot: append count if it is real, else 0; count += the slot's 1 or 0."),
    ),
    stands_for=("mgpt.widgets.batch_layout.pad", "mgpt.widgets.batch_layout.positions_of"),
)
Q1_WHY = choice(
    "09_batching.q1_why", "q1_why", "c",
    {"a": N_("every row is shifted as a whole, and rotary scores depend on distances only"),
     "b": N_("the shift is the same in prefill and decode, so what follows output 1 is right as well"),
     "d": N_("a position too large is refused, but no number turns into NaN")},
    hints=(N_("By how much is each token of a row moved? Is it the same for all of that row?"),
           N_("What do rotary scores depend on? And what else depends on the numbers themselves?"),
           N_("The kept keys are turned by their position, and max_seq_len limits it.")),
)


# ---------------------------------------------------------------- 2: where a query looks
def may_look(real, n_new, allowed=lambda real, q, k: real[q] and real[k] and k <= q, first=None, keys=None):
    """A line a query: 1 where allowed(real, query slot, key slot).  first: of the queries; keys: of the columns."""
    first = len(real) - n_new if first is None else first
    keys = range(len(real)) if keys is None else keys
    return [[int(bool(allowed(real, q, k))) for k in keys] for q in range(first, first + n_new)]


def draw_row(rng):
    """Prompt with padding on either side, and decode slots of which the last ones may be padding."""
    n, hole, steps = rng.randrange(2, 5), rng.randrange(1, 4), rng.randrange(4)
    ended = rng.randrange(steps + 1)
    prompt = rng.choice([[0] * hole + [1] * n, [1] * n + [0] * hole])
    real = prompt + [1] * (steps - ended) + [0] * ended
    return real, rng.randrange(1, len(real) + 1)


Q2 = Question(
    "09_batching.q2", "may_look", points=4, whole=True, reference=may_look, draw=draw_row, fresh=14,
    cases=(
        Case(([1, 1, 1], 3), [[1, 0, 0], [1, 1, 0], [1, 1, 1]]),
        Case(([0, 1, 1], 3), [[0, 0, 0], [0, 1, 0], [0, 1, 1]]),
        Case(([1, 1, 0], 3), [[1, 0, 0], [1, 1, 0], [0, 0, 0]]),
        Case(([0, 1, 1, 1], 1), [[0, 1, 1, 1]]),
        Case(([1, 1, 0, 1, 1], 2), [[1, 1, 0, 1, 0], [1, 1, 0, 1, 1]]),
        Case(([1, 1, 1, 0], 1), [[0, 0, 0, 0]]),
    ),
    mistakes=(
        Mistake("causal alone", lambda r, n: may_look(r, n, lambda real, q, k: k <= q),
                N_("padding is not hidden: a key must be real, and so must the query")),
        Mistake("padding keys seen", lambda r, n: may_look(r, n, lambda real, q, k: real[q] and k <= q),
                N_("a padding slot has K and V like any other: it has to be hidden as a key")),
        Mistake("padding queries look", lambda r, n: may_look(r, n, lambda real, q, k: real[k] and k <= q),
                N_("a padding query looks nowhere in this question: its line is 0")),
        Mistake("later keys seen", lambda r, n: may_look(r, n, lambda real, q, k: real[q] and real[k]),
                N_("a query does not look at what comes later in its row: the causal rule holds beside the padding")),
        Mistake("not at itself", lambda r, n: may_look(r, n, lambda real, q, k: real[q] and real[k] and k < q),
                N_("a token looks at itself too")),
        Mistake("causal from 0", lambda r, n: may_look(
                    r, n, lambda real, q, k: real[q] and real[k] and k <= q - (len(r) - n)),
                N_("the causal rule is counted from the start of the pass here: all that is kept comes earlier")),
        Mistake("new keys alone", lambda r, n: may_look(r, n, keys=range(len(r) - n, len(r))),
                N_("a line has a column for every slot, kept and new")),
        Mistake("kept keys alone", lambda r, n: may_look(
                    r, n, lambda real, q, k: real[q] and real[k] and k < len(r) - n),
                N_("the new slots are keys as well, each for itself and for those behind it")),
        Mistake("the first slots", lambda r, n: may_look(r, n, first=0),
                N_("the new slots are the last ones of the row")),
        Mistake("a line for every slot", lambda r, n: may_look(r, len(r)),
                N_("kept slots ask nothing any more: only new ones have a line")),
        Mistake("hidden marked", lambda r, n: may_look(
                    r, n, lambda real, q, k: not (real[q] and real[k] and k <= q)),
                N_("1 stands where the query looks, 0 where it does not")),
        Mistake("turned around", lambda r, n: may_look(r, n, lambda real, q, k: real[q] and real[k] and k >= q),
                N_("a query looks back, not forward")),
        Mistake("True and False", lambda r, n: [[bool(x) for x in line] for line in may_look(r, n)],
                N_("right, but written as True and False: 1 and 0 are asked for")),
    ),
    hints=(
        N_("Three conditions have to hold at once. Which are they?"),
        N_("The new slots are the last n_new of the row. Number all slots from 0, so that queries and keys count "
           "alike."),
        N_("for q in range(len(real) − n_new, len(real)): a line of 1 where real[q], real[k] and k <= q, for k over "
           "all slots."),
    ),
    stands_for=("mgpt.widgets.batch_layout.looks",),
)


# ---------------------------------------------------------------- 3: the logits to read
def first_of_largest(row):
    return row.index(max(row))


def choose(logits, real, slot=lambda row: len(row) - 1 - row[::-1].index(1), pick=first_of_largest):
    """A token for each row; slot(row of 1 and 0): where its logits are read."""
    return [pick(rows[slot(row)]) if any(row) else None for rows, row in zip(logits, real)]


def of_all(combine):
    """A wrong choose: combine(list of rows of logits) of all real slots."""
    def wrong(logits, real):
        return [first_of_largest(combine([one for one, is_real in zip(rows, row) if is_real])) if any(row) else None
                for rows, row in zip(logits, real)]

    return wrong


def gives(answer):
    """A wrong choose: answer(logits of a row, its row of 1 and 0) also where nothing is real."""
    return lambda logits, real: [first_of_largest(answer(rows, row)) for rows, row in zip(logits, real)]


def draw_logits(rng):
    width, kinds = rng.randrange(2, 5), ["left", "right", "full", "ended"]
    rng.shuffle(kinds)
    real = []
    for kind in kinds:
        hole = {"full": 0, "ended": width}.get(kind, rng.randrange(1, width))
        real.append([0] * hole + [1] * (width - hole) if kind == "left" else [1] * (width - hole) + [0] * hole)
    return [[[rng.randrange(5) for _ in range(4)] for _ in range(width)] for _ in kinds], real


Q3 = Question(
    "09_batching.q3", "choose", points=3, whole=True, reference=choose, draw=draw_logits, fresh=16,
    cases=(
        Case(([[[1, 3, 0], [2, 0, 5]], [[4, 0, 1], [0, 7, 0]]], [[1, 1], [0, 1]]), [2, 1]),
        Case(([[[1, 3, 0], [2, 0, 5]], [[4, 0, 1], [0, 7, 0]]], [[1, 1], [1, 0]]), [2, 0]),
        Case(([[[1, 6, 6]], [[0, 2, 9]]], [[1], [0]]), [1, None]),
        Case(([[[5, 1], [0, 2], [3, 1]], [[0, 1], [4, 0], [0, 9]]], [[1, 1, 1], [1, 1, 0]]), [0, 0]),
    ),
    mistakes=(
        Mistake("the last column", lambda x, r: choose(x, r, slot=lambda row: -1),
                N_("the last column is padding in a row that is padded on the right")),
        Mistake("the count as a column", lambda x, r: choose(x, r, slot=lambda row: sum(row) - 1),
                N_("the number of real slots tells the column under right padding only")),
        Mistake("the count, one too far", lambda x, r: choose(x, r, slot=lambda row: min(sum(row), len(row) - 1)),
                N_("columns are counted from 0, and the number of real slots is one of right padding alone")),
        Mistake("the first real one", lambda x, r: choose(x, r, slot=lambda row: row.index(1)),
                N_("the last token of the prompt chooses the output, not the first")),
        Mistake("the first row's column", lambda x, r: choose(x, r, slot=lambda row: len(row) - 1 - r[0][::-1].index(1)
                                                                if 1 in r[0] else -1),
                N_("each row has its own column to read")),
        Mistake("the last of equals", lambda x, r: choose(
                    x, r, pick=lambda row: len(row) - 1 - row[::-1].index(max(row))),
                N_("of equal logits the first is taken")),
        Mistake("the value", lambda x, r: choose(x, r, pick=max),
                N_("the token is the place of the largest logit, not its value")),
        Mistake("added up", of_all(lambda rows: [sum(column) for column in zip(*rows)]),
                N_("only one row of logits chooses: the other tokens chose nothing")),
        Mistake("the largest of all", of_all(lambda rows: max(rows, key=max)),
                N_("the row to read is told by its place, not by its logits")),
        Mistake("a finished row answers", gives(lambda rows, row: rows[-1] if not any(row) else
                rows[len(row) - 1 - row[::-1].index(1)]),
                N_("a row without a real slot in this pass chooses nothing: None")),
        Mistake("a finished row gives 0", gives(lambda rows, row: rows[len(row) - 1 - row[::-1].index(1)] if any(row)
                else [1]),
                N_("0 is a token. A row without a real slot in this pass gives None")),
        Mistake("a finished row is left out", lambda x, r: [token for token in choose(x, r) if token is not None],
                N_("one entry for each row is asked for, None where nothing is chosen")),
    ),
    hints=(
        N_("Which slot of a row holds the last token of its request?"),
        N_("Look for the last 1 of the row from its end. It works for both sides."),
        N_("last = max(t for t in range(T) if real[b][t]); then the place of the largest number in logits[b][last]."),
    ),
    stands_for=("mgpt.widgets.batch_layout.last_real", "mgpt.sampling.greedy"),
)


# ---------------------------------------------------------------- 4: rows that finish
def finish(chosen, limits, stop, keep=True, more=0, until=all, stops=lambda token, n, stop: token == stop, talk=False):
    """The batch, pass by pass.  keep: the stop id; more: outputs beyond the limit; until: which rows end the batch;
    stops(token, how many outputs, stop); talk: finished rows go on while the batch runs."""
    rows, ended, passes = [[] for _ in limits], [False] * len(limits), 0
    used = 0
    while not until(ended) and passes < len(chosen):
        for row, token in enumerate(chosen[passes]):
            if ended[row] and not talk:
                continue
            used += passes > 0 and not ended[row]
            if keep or token != stop:
                rows[row].append(token)
            ended[row] = ended[row] or stops(token, passes + 1, stop) or passes + 1 == limits[row] + more
        passes += 1
    return {"outputs": rows, "passes": passes, "idle": len(limits) * (passes - 1) - used}


def changed(change):
    """A wrong finish: the right dict with some entries changed by change(right, limits)."""
    return lambda chosen, limits, stop: (right := finish(chosen, limits, stop)) | change(right, limits)


def stop_for_all(chosen, limits, stop):
    """A stop id of one row ends the whole batch; a limit does not."""
    passes = next((n for n, line in enumerate(chosen, 1) if stop in line), len(chosen))
    return finish(chosen[:passes], limits, stop)


def draw_run(rng):
    limits = [rng.randrange(1, 6) for _ in range(3)]
    limits[rng.randrange(3)] = 6
    limits[rng.randrange(3)] = rng.randrange(2, 5)
    stop = rng.randrange(1, 4)
    chosen = [[stop if rng.random() < 0.25 else rng.choice([n for n in range(1, 10) if n != stop]) for _ in limits]
              for _ in range(8)]
    return chosen, limits, stop


Q4 = Question(
    "09_batching.q4", "finish", points=4, whole=True, reference=finish, draw=draw_run, fresh=14,
    cases=(
        Case(([[7, 5], [8, 6], [1, 1], [2, 2]], [3, 2], 0), {"outputs": [[7, 8, 1], [5, 6]], "passes": 3, "idle": 1}),
        Case(([[7, 5], [8, 0], [1, 4], [2, 2]], [4, 4], 0), {
            "outputs": [[7, 8, 1, 2], [5, 0]], "passes": 4, "idle": 2}),
        Case(([[0, 5], [8, 6], [1, 1]], [3, 2], 0), {"outputs": [[0], [5, 6]], "passes": 2, "idle": 1}),
        Case(([[7, 5], [8, 6]], [1, 1], 0), {"outputs": [[7], [5]], "passes": 1, "idle": 0}),
        Case(([[3, 9], [9, 3], [3, 3]], [3, 3], 9), {"outputs": [[3, 9], [9]], "passes": 2, "idle": 1}),
    ),
    mistakes=(
        Mistake("finished rows talk on", lambda *a: finish(*a, talk=True),
                N_("a finished row still gets logits; nothing is chosen from them")),
        Mistake("stop id dropped", lambda *a: finish(*a, keep=False),
                N_("the stop id was chosen: it is kept as the last output")),
        Mistake("stop id ignored", lambda *a: finish(*a, stops=lambda token, n, stop: False),
                N_("a row ends at its stop id, if that comes before its limit")),
        Mistake("stop id at output 1 ignored", lambda *a: finish(
                    *a, stops=lambda token, n, stop: token == stop and n > 1),
                N_("output 1 can be the stop id as well: the row ends with it")),
        Mistake("ends with the first row", lambda *a: finish(*a, until=any),
                N_("the batch goes on as long as any row is unfinished")),
        Mistake("a stop for all", stop_for_all,
                N_("a stop id ends its own row, not those beside it")),
        Mistake("one output too many", lambda *a: finish(*a, more=1),
                N_("output 1 comes from the prefill: a limit of n means n outputs in all")),
        Mistake("one limit for all", lambda chosen, limits, stop: finish(chosen, [max(limits)] * len(limits), stop),
                N_("each row has a limit of its own")),
        Mistake("prefill not counted", changed(lambda right, limits: {"passes": right["passes"] - 1}),
                N_("the prefill is a pass too")),
        Mistake("the last output processed", changed(lambda right, limits: {"passes": right["passes"] + 1}),
                N_("the last output is chosen and not processed: no pass follows it")),
        Mistake("all decode slots", changed(lambda right, limits: {"idle": len(limits) * (right["passes"] - 1)}),
                N_("idle are only the decode slots of rows that had finished")),
        Mistake("outputs for slots", changed(lambda right, limits: {
                    "idle": len(limits) * (right["passes"] - 1) - sum(map(len, right["outputs"]))}),
                N_("a row of n outputs uses n − 1 decode slots: output 1 came from the prefill")),
        Mistake("idle by the limits", changed(lambda right, limits: {"idle": sum(max(limits) - n for n in limits)}),
                N_("a row that met its stop id is idle from then on, and the passes end with the last row")),
    ),
    hints=(
        N_("Go through `chosen` pass by pass and remember which rows have finished. When does the batch end?"),
        N_("In each pass only unfinished rows append their token. A row finishes with the stop id, or with as many "
           "outputs as its limit."),
        N_("idle: in each pass but the first, the number of rows that had finished before it."),
    ),
    stands_for=("mgpt.widgets.batch_layout.generate_padded", "mgpt.generate.generate_cached"),
)


# ---------------------------------------------------------------- 5: buckets
def waste(batches, cost=lambda batch: len(batch) * max(batch) - sum(batch)):
    return sum(map(cost, batches))


def fewest(lengths, max_rows, n_batches, order=sorted, cost=lambda batch: len(batch) * max(batch) - sum(batch)):
    """The smallest total cost over cuts of the ordered lengths into at most n_batches batches."""
    row = tuple(order(lengths))

    @functools.lru_cache(maxsize=None)
    def rest(start, left):
        if start == len(row):
            return 0
        if left == 0:
            return 10**9
        return min(cost(row[start:end]) + rest(end, left - 1)
                   for end in range(start + 1, min(start + max_rows, len(row)) + 1))

    return rest(0, n_batches)


def even(lengths, max_rows, n_batches):
    """Sorted, in batches of nearly one size."""
    row, size = sorted(lengths), -(-len(lengths) // n_batches)
    return waste([row[i : i + size] for i in range(0, len(row), size)])


def filled(lengths, max_rows, n_batches, **order):
    """Sorted, each batch full before the next one begins."""
    row = sorted(lengths, **order)
    return waste([row[i : i + max_rows] for i in range(0, len(row), max_rows)])


def at_the_gaps(lengths, max_rows, n_batches):
    """Sorted, cut at the largest gaps."""
    row = sorted(lengths)
    gaps = sorted(range(1, len(row)), key=lambda i: row[i - 1] - row[i])[: n_batches - 1]
    cuts = [0, *sorted(gaps), len(row)]
    return waste([row[a:b] for a, b in zip(cuts, cuts[1:])])


def draw_queue(rng):
    """Lengths in three clusters, and little room beside what is needed."""
    n, n_batches = rng.randrange(6, 10), rng.randrange(2, 5)
    lengths = [rng.choice([8, 20, 40]) + rng.randrange(8) for _ in range(n)]
    return lengths, -(-n // n_batches) + rng.randrange(1, 3), n_batches


Q5 = Question(
    "09_batching.q5", "least_padding", points=5, whole=True, reference=fewest, draw=draw_queue, fresh=14,
    cases=(
        Case(([40, 14, 30], 3, 1), 36),
        Case(([40, 14, 30], 3, 2), 10),
        Case(([40, 14, 30], 2, 3), 0),
        Case(([9, 9, 9, 1, 9], 4, 2), 0),
        Case(([40, 14, 30, 14, 22, 40, 14, 30, 22, 14, 38, 14], 4, 3), 44),
        Case(([40, 14, 30, 14, 22, 40, 14, 30, 22, 14, 38, 14], 5, 3), 18),
    ),
    mistakes=(
        Mistake("order of arrival", lambda *a: fewest(*a, order=list),
                N_("any requests may share a batch, not only neighbours in the queue: sort them first")),
        Mistake("equal batches", even,
                N_("batches need not be of one size: an uneven cut may waste less")),
        Mistake("filled from the shortest", filled,
                N_("a batch need not be filled before the next one begins")),
        Mistake("filled from the longest", lambda *a: filled(*a, reverse=True),
                N_("filling batches from the longest on is not always the best cut")),
        Mistake("cut at the largest gaps", at_the_gaps,
                N_("the largest gaps are not always the best cuts: the number of rows counts too, and max_rows")),
        Mistake("slots", lambda *a: fewest(*a, cost=lambda batch: len(batch) * max(batch)),
                N_("that is the number of all slots; only the padding is asked for")),
        Mistake("max_rows ignored", lambda lengths, max_rows, n: fewest(lengths, len(lengths), n),
                N_("a batch has at most max_rows rows")),
        Mistake("n_batches ignored", lambda lengths, max_rows, n: fewest(lengths, max_rows, len(lengths)),
                N_("at most n_batches passes may be made")),
        Mistake("one batch more", lambda lengths, max_rows, n: fewest(lengths, max_rows, n + 1),
                N_("n cuts make n + 1 batches")),
        Mistake("empty rows counted", lambda lengths, max_rows, n: fewest(
                    lengths, max_rows, n, cost=lambda batch: max_rows * max(batch) - sum(batch)),
                N_("a batch has as many rows as it has requests; it is not filled up to max_rows")),
        Mistake("padded to the longest of all",
                lambda lengths, max_rows, n: len(lengths) * max(lengths) - sum(lengths),
                N_("each batch is padded to its own longest request")),
        Mistake("spread of each batch", lambda *a: fewest(*a, cost=lambda batch: max(batch) - min(batch)),
                N_("every row of a batch is filled up to its longest, not only the shortest one")),
    ),
    hints=(
        N_("Sort the lengths. Why is there a best plan whose batches are runs of neighbours in that order?"),
        N_("The first batch takes the shortest 1, 2, … up to max_rows requests. What remains is the same question, "
           "with one batch less."),
        N_("rest(start, left) = the minimum over end of (end − start) · row[end − 1] − sum(row[start:end]) + "
           "rest(end, left − 1); 0 when all are taken, infinite when no batch is left."),
    ),
)

QUESTIONS = (Q1, Q1_WHY, Q2, Q3, Q4, Q5)
