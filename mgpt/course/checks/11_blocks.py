"""Chapter 11: a pool of blocks, what it wastes, attention block by block, and an audit of tables and free list."""

import math

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.text import N_


# ---------------------------------------------------------------- 1: append, rewind, end
def whole(n, size):
    """Blocks of n positions."""
    return -(-n // size)


def live(num_blocks, block_size, steps, need=whole, keep=whole, ahead=lambda held, n, size: held + n, grab=False,
         count=False, take=lambda free: 0, back="last first", front=False, every=False, silent=False, drop=False,
         never=False, spare=0, stop=False, first=0, old=False):
    """A pool under steps, right or with one thing changed.

    need, keep: blocks of n positions at an append and at a rewind; ahead: positions after an append; grab: a refused step
    takes what is free; count: a refused step counts its positions; take(free): which free block; back: "last first", "in
    order" or "first blocks"; front: given back before the others; every: empty tables are shown; silent: refusals are not;
    drop: keep n means drop n; never: nothing is given back; spare: blocks that must stay free; stop: nothing is done behind a
    refused step; first: the index of the first step; old: a rewind does not change the positions held.
    """
    free, tables, lengths, refused = list(range(num_blocks)), {}, {}, []
    for number, (name, action, n) in enumerate(steps, first):
        table, held = tables.setdefault(name, []), lengths.get(name, 0)
        if stop and refused:
            break
        if action == "+":
            end = ahead(held, n, block_size)
            missing = max(need(end, block_size) - len(table), 0)
            fits = missing + spare <= len(free)
            if not fits:
                refused.append(number)
            if fits or grab:
                table += [free.pop(take(free)) for _ in range(min(missing, len(free)))]
            lengths[name] = end if fits or count else held
        else:
            kept = max(held - n, 0) if drop else n
            lengths[name] = held if old else kept
            if not never:
                rest = max(len(table) - keep(kept, block_size), 0)
                gone = table[:rest] if back == "first blocks" else table[len(table) - rest:]
                tables[name] = table[rest:] if back == "first blocks" else table[: len(table) - rest]
                gone = gone[::-1] if back == "last first" else gone
                free = gone + free if front else free + gone
    shown = {name: table for name, table in tables.items() if table or every}
    return {"tables": shown, "free": free, "refused": [] if silent else refused}


def draw_steps(rng):
    """Two to four requests that append, rewind and end in a pool that is sometimes too small."""
    size, num_blocks = rng.choice([2, 3, 4, 4]), rng.randrange(5, 10)
    steps, held = [], {}
    for _ in range(rng.randrange(8, 15)):
        name = rng.choice("ABCD"[: rng.randrange(2, 5)])
        if held.get(name) and rng.random() < 0.4:
            step = [name, "=", rng.choice([0, 0, rng.randrange(held[name] + 1)])]
        else:
            step = [name, "+", rng.choice([1, 1, rng.randrange(1, 3 * size), size])]
        before = len(live(num_blocks, size, steps)["refused"])
        steps.append(step)
        if step[1] == "=":
            held[name] = step[2]
        elif len(live(num_blocks, size, steps)["refused"]) == before:
            held[name] = held.get(name, 0) + step[2]
    return num_blocks, size, steps


def steps(text):
    """[["A", "+", 6], …] from "A+6 …"."""
    return [[step[0], step[1], int(step[2:])] for step in text.split()]


Q1 = Question(
    "11_blocks.q1", "serve", points=5, reference=live, draw=draw_steps, fresh=24, whole=True,
    cases=(
        Case((6, 4, steps("A+3 B+6 A+6 B=0 C+9")), {"tables": {"A": [0, 3, 4], "C": [5, 2, 1]}, "free": [], "refused": []}),
        Case((3, 8, steps("A+3 B+6 A+6 B=0 C+9")), {"tables": {"A": [0, 2]}, "free": [1], "refused": [4]}),
        Case((6, 4, steps("A+4 B+9 A+1 B=5 A=4")), {"tables": {"A": [0], "B": [1, 2]}, "free": [5, 3, 4], "refused": []}),
        Case((5, 2, steps("A+3 B+2 A=1 B+3 A+2")), {"tables": {"A": [0, 1], "B": [2, 3, 4]}, "free": [], "refused": []}),
        Case((4, 2, steps("A+3 B+5 B+4 A+1 A=2")), {"tables": {"A": [0], "B": [2, 3]}, "free": [1], "refused": [1]}),
    ),
    mistakes=(
        Mistake("blocks cut off", lambda *a: live(*a, need=lambda n, size: n // size, keep=lambda n, size: n // size),
                N_("a block that is begun is a whole block: round up")),
        Mistake("a block ahead", lambda *a: live(*a, need=lambda n, size: n // size + 1),
                N_("a block is taken when a position is written into it, not when the block before it is full")),
        Mistake("every append in new blocks", lambda *a: live(
                    *a, ahead=lambda held, n, size: whole(held, size) * size + n),
                N_("the empty slots of the last block are used first")),
        Mistake("what is left is taken", lambda *a: live(*a, grab=True),
                N_("an append that does not fit takes no block at all")),
        Mistake("refused and counted", lambda *a: live(*a, count=True),
                N_("a refused append holds no new positions: nothing was written")),
        Mistake("nothing given back", lambda *a: live(*a, never=True),
                N_("blocks that hold no position any more go back to the free list")),
        Mistake("a partial block given back", lambda *a: live(*a, keep=lambda n, size: n // size),
                N_("a block that still holds a kept position stays in the table")),
        Mistake("one block kept too many", lambda *a: live(*a, keep=lambda n, size: n // size + 1),
                N_("at an edge the block behind the last kept position is empty and goes back")),
        Mistake("the first blocks given back", lambda *a: live(*a, back="first blocks"),
                N_("the first positions are kept, so it is the end of the table that goes")),
        Mistake("given back in table order", lambda *a: live(*a, back="in order"),
                N_("the last block of the table goes back first")),
        Mistake("given back to the front", lambda *a: live(*a, front=True),
                N_("blocks are given back behind the others that are free")),
        Mistake("given back to the front in table order", lambda *a: live(*a, front=True, back="in order"),
                N_("blocks go back to the end of the free list: not to its front, and not into the order of their ids")),
        Mistake("taken from the end", lambda *a: live(*a, take=lambda free: len(free) - 1),
                N_("the first of the free list is taken")),
        Mistake("the smallest id", lambda *a: live(*a, take=lambda free: free.index(min(free))),
                N_("the first of the free list is taken, whatever its id")),
        Mistake("empty tables listed", lambda *a: live(*a, every=True),
                N_("a request without blocks is not among the tables")),
        Mistake("refusals not listed", lambda *a: live(*a, silent=True),
                N_("the steps that were refused have to be listed by their index")),
        Mistake("drop for keep", lambda *a: live(*a, drop=True),
                N_("\"=\" n says how many positions stay, not how many go")),
        Mistake("the old length kept", lambda *a: live(*a, old=True),
                N_("after \"=\" n the request holds n positions, and its next append starts there")),
        Mistake("a pool must not become full", lambda *a: live(*a, spare=1),
                N_("an append is refused only if too few are free: it may take the last one")),
        Mistake("stopped at a refusal", lambda *a: live(*a, stop=True),
                N_("a refused step is left out, and the steps behind it are done")),
        Mistake("steps counted from 1", lambda *a: live(*a, first=1),
                N_("the steps are counted from 0")),
    ),
    hints=(
        N_("Which three things change from step to step? For an append: how many blocks will the request have after it, and how "
           "many has it?"),
        N_("Keep free (a list), tables and lengths. missing = ceil((held + n)/block_size) − len(table); compare it with len(free) "
           "before you take any."),
        N_("\"+\": if missing > len(free), note the index; else take that many with free.pop(0) and add n. \"=\": while len(table) "
           "> ceil(n/block_size): free.append(table.pop()); length = n."),
    ),
    stands_for=("mgpt.blocks.BlockPool", "mgpt.blocks.PagedKVCache"),
)


# ---------------------------------------------------------------- 2: slots, waste and the size of a pool
GIB = 2**30


def counts(requests, block_size, position_bytes, gib, held=lambda r: r[0] + r[1] - 1, need=whole, pooled=False,
           unit=GIB, fit=None, size=None, empty=None):
    """The account, or what a changed rule gives: held(request) positions; need: blocks of n positions; pooled: rounded once."""
    positions = [held(request) for request in requests]
    if pooled:
        positions = [sum(positions)]
    blocks = sum(need(n, block_size) for n in positions)
    slots = blocks * block_size
    block_bytes = block_size * position_bytes
    return {"blocks": blocks, "waste": slots - sum(positions) if empty is None else empty(blocks, len(requests)),
            "bytes": slots * position_bytes if size is None else size(blocks, sum(positions)),
            "fit": gib * unit // block_bytes if fit is None else fit(gib * unit, block_bytes)}


def draw_requests(rng):
    requests = [[rng.randrange(1, 60), rng.choice([1, 1, rng.randrange(1, 40)])] for _ in range(rng.randrange(2, 6))]
    return requests, rng.choice([3, 4, 8, 16, 24]), 1024 * rng.choice([48, 96, 160, 320]), rng.randrange(1, 40)


Q2 = Question(
    "11_blocks.q2", "account", points=3, reference=counts, draw=draw_requests, fresh=14, whole=True,
    cases=(
        Case(([[8, 4], [8, 3], [4, 2]], 4, 131072, 8), {"blocks": 8, "waste": 6, "bytes": 4194304, "fit": 16384}),
        Case(([[8, 1], [7, 3], [1, 1]], 4, 65536, 1), {"blocks": 6, "waste": 6, "bytes": 1572864, "fit": 4096}),
        Case(([[30, 9], [16, 1], [5, 30]], 16, 196608, 2), {"blocks": 7, "waste": 24, "bytes": 22020096, "fit": 682}),
    ),
    mistakes=(
        Mistake("the last output counted", lambda *a: counts(*a, held=lambda r: r[0] + r[1]),
                N_("the last output has been chosen and not processed: P + G − 1 positions")),
        Mistake("the prompt alone", lambda *a: counts(*a, held=lambda r: r[0]),
                N_("outputs that were processed stand in the cache, too")),
        Mistake("blocks cut off", lambda *a: counts(*a, need=lambda n, size: n // size),
                N_("a block that is begun is a whole block: round up")),
        Mistake("a block ahead", lambda *a: counts(*a, need=lambda n, size: n // size + 1),
                N_("a request whose last block is just full holds no further one")),
        Mistake("rounded once", lambda *a: counts(*a, pooled=True),
                N_("a block belongs to one request: round up for each, then add")),
        Mistake("GB for GiB", lambda *a: counts(*a, unit=10**9),
                N_("1 GiB is 2**30 bytes; 10**9 are a GB")),
        Mistake("MiB for GiB", lambda *a: counts(*a, unit=2**20),
                N_("that is the number for MiB: 1 GiB is 1024 of them")),
        Mistake("a block that does not fit", lambda *a: counts(*a, fit=lambda room, each: whole(room, each)),
                N_("the rest of the memory is no block: round down")),
        Mistake("positions for blocks", lambda requests, size, each, gib: counts(
                    requests, size, each, gib, fit=lambda room, block: room * size // block),
                N_("\"fit\" counts blocks, and a block takes block_size positions' bytes")),
        Mistake("bytes of positions", lambda requests, size, each, gib: counts(
                    requests, size, each, gib, size=lambda blocks, n: n * each),
                N_("whole blocks are taken, empty slots included: slots times the bytes of a position")),
        Mistake("bytes of one slot a block", lambda requests, size, each, gib: counts(
                    requests, size, each, gib, size=lambda blocks, n: blocks * each),
                N_("a block has block_size slots, and each takes the bytes of a position")),
        Mistake("K and V again", lambda requests, size, each, gib: counts(
                    requests, size, each, gib, size=lambda blocks, n: 2 * blocks * size * each),
                N_("the bytes of a position already hold K and V: no factor 2")),
        Mistake("K and V again in the pool", lambda requests, size, each, gib: counts(requests, size, 2 * each, gib),
                N_("a block takes block_size · position_bytes bytes, K and V together: no factor 2")),
        Mistake("what is left fits", lambda *a: {**counts(*a), "fit": counts(*a)["fit"] - counts(*a)["blocks"]},
                N_("\"fit\" counts all blocks of the pool, also those that the requests hold")),
        Mistake("waste in bytes", lambda *a: {**counts(*a), "waste": counts(*a)["waste"] * a[2]},
                N_("\"waste\" counts empty slots, not their bytes")),
        Mistake("waste of the worst case", lambda requests, size, each, gib: counts(
                    requests, size, each, gib, empty=lambda blocks, n: n * (size - 1)),
                N_("block_size − 1 is the most that a request can waste; the waste is slots − positions")),
    ),
    hints=(
        N_("How many positions does each request hold now? Then blocks, slots and waste follow in this order."),
        N_("P + G − 1 positions; ceil of that over block_size for each request; waste is slots minus positions."),
        N_("blocks = Σ ceil((P + G − 1)/block_size); slots = blocks · block_size; waste = slots − Σ (P + G − 1); bytes = slots · "
           "position_bytes; fit = gib · 2**30 // (block_size · position_bytes)."),
    ),
    stands_for=("mgpt.memory.paged_bytes",),
)


# ---------------------------------------------------------------- 3: attention, block by block
def exp(x):
    return math.exp(x) if x < 700 else math.inf


def ledger(q, k_pool, v_pool, table, length, scale=lambda d: d**-0.5, order=list, tail=False, tail_max=False, shrink=None,
           shrink_sum=True, shrink_mix=True, run=max, divide=True, cut=False):
    """The ledger over a block table, right or with one thing changed.

    order(table): the blocks in the order read; tail, tail_max: empty slots take part, or only in the maximum; shrink(old, new): the
    factor; run(old, new): the maximum kept; divide: by the sum at the end; cut: the last, partial block is not read.
    """
    size, width = len(k_pool[0]), len(q)
    top, total, mix, tops, totals = -math.inf, 0.0, [0.0] * width, [], []
    n_blocks = max(1, length // size) if cut else len(table)
    for index, block in enumerate(order(table)[:n_blocks]):
        slots = range(size if tail or tail_max else min(size, length - index * size))
        scores = [scale(width) * sum(a * b for a, b in zip(q, k_pool[block][slot])) for slot in slots]
        new = run(top, max(scores))
        if tail_max:
            scores = scores[: min(size, length - index * size)]
        weights = [exp(s - new) for s in scores]
        factor = 0.0 if top == -math.inf else exp(top - new) if shrink is None else shrink(top, new)
        total = total * (factor if shrink_sum else 1) + sum(weights)
        mix = [m * (factor if shrink_mix else 1) + sum(w * v_pool[block][s][i] for s, w in enumerate(weights))
               for i, m in enumerate(mix)]
        top = new
        tops.append(top)
        totals.append(total)
    return {"max": tops, "sum": totals, "output": [m / total for m in mix] if divide else mix}


def averaged(q, k_pool, v_pool, table, length):
    """Each block's own softmax, and the mean of their outputs."""
    size, right = len(k_pool[0]), ledger(q, k_pool, v_pool, table, length)
    parts = [ledger(q, k_pool, v_pool, [block], min(size, length - i * size))["output"] for i, block in enumerate(table)]
    return {**right, "output": [sum(column) / len(parts) for column in zip(*parts)]}


def draw_pool(rng):
    """A query over a scattered table; the slots behind its end hold what an earlier request has left."""
    size, width, n_blocks = rng.choice([1, 2, 3, 4]), rng.choice([2, 3, 4]), rng.randrange(4, 7)
    length = rng.randrange(2, 3 * size + 1)
    wide = rng.choice([2, 2, 3, 60])

    def rows(by):
        return [[[round(rng.uniform(-by, by), 2) for _ in range(width)] for _ in range(size)] for _ in range(n_blocks)]

    table = rng.sample(range(n_blocks), whole(length, size))
    q, k_pool = [round(rng.uniform(-wide, wide), 2) for _ in range(width)], rows(wide)
    for slot in range(length - (len(table) - 1) * size, size):
        k_pool[table[-1]][slot] = [round(rng.choice([-1, 1.5]) * x, 2) for x in q]  # often the largest score of all
    return q, k_pool, rows(5), table, length


def final(figures):
    """The last of some figures in the place of each."""
    return [figures[-1]] * len(figures)


def two_passes(q, k_pool, v_pool, table, length):
    """The largest of all scores first, and then the sums against it."""
    right = ledger(q, k_pool, v_pool, table, length)
    tops, sums = right["max"], right["sum"]
    return {**right, "max": final(tops), "sum": [total * exp(top - tops[-1]) for total, top in zip(sums, tops)]}


def raised(x, top):
    """x · exp(top), infinite where that is no float."""
    return x * exp(top) if top < 700 else math.inf


def block_tops(q, k_pool, v_pool, table, length):
    size = len(k_pool[0])
    return [ledger(q, k_pool, v_pool, [block], min(size, length - i * size))["max"][0] for i, block in enumerate(table)]


POOLS = [[[1], [5]], [[2], [3]]], [[[4], [8]], [[6], [-2]]]  # keys and values of two blocks
LARGE = [[[500], [400]], [[900], [899]]]
WIDE = [[[2, 0, 1, 1], [0, 2, 0, 0]]], [[[2, 6, 0, 1], [2, -2, 4, 1]]]
Q3 = Question(
    "11_blocks.q3", "attend", points=5, reference=ledger, draw=draw_pool, fresh=24,
    cases=tuple(Case(args, {key: [round(x, 10) for x in row] for key, row in ledger(*args).items()}) for args in (
        ([1], *POOLS, [1, 0], 3),
        ([1], *POOLS, [1, 0], 4),
        ([-1], *POOLS, [1, 0], 3),
        ([2], LARGE, POOLS[1], [0, 1], 4),
        ([1, 1, 0, 2], *WIDE, [0], 2),
    )),
    mistakes=(
        Mistake("empty slots attended", lambda *a: ledger(*a, tail=True),
                N_("the slots behind the last position take part here: they hold nothing of this request")),
        Mistake("empty slots in the maximum", lambda *a: ledger(*a, tail_max=True),
                N_("the maximum is taken over empty slots, too: it belongs to the positions held")),
        Mistake("the table not used", lambda *a: ledger(*a, order=lambda table: list(range(len(table)))),
                N_("logical block i is not physical block i: read k_pool[table[i]]")),
        Mistake("the table sorted", lambda *a: ledger(*a, order=sorted),
                N_("the table is in logical order already; sorted by physical id the empty slots are in the wrong block")),
        Mistake("the last block not read", lambda *a: ledger(*a, cut=True),
                N_("the last block counts even if it is not full: ceil(length / block_size) blocks")),
        Mistake("scores not scaled", lambda *a: ledger(*a, scale=lambda d: 1.0),
                N_("the scores have to be divided by the square root of the width")),
        Mistake("divided by the width", lambda *a: ledger(*a, scale=lambda d: 1 / d),
                N_("the scores are divided by the square root of the width, not by the width")),
        Mistake("nothing rescaled", lambda *a: ledger(*a, shrink_sum=False, shrink_mix=False),
                N_("when the maximum rises, sum and mix so far are measured against the old one: both must be multiplied")),
        Mistake("the sum not rescaled", lambda *a: ledger(*a, shrink_sum=False),
                N_("the mix is rescaled and the sum is not: both were measured against the old maximum")),
        Mistake("the mix not rescaled", lambda *a: ledger(*a, shrink_mix=False),
                N_("the sum is rescaled and the mix is not: both were measured against the old maximum")),
        Mistake("rescaled the wrong way", lambda *a: ledger(*a, shrink=lambda old, new: exp(new - old)),
                N_("what was summed so far gets smaller when the maximum rises: exp(old − new)")),
        Mistake("each block's own maximum", lambda *a: ledger(*a, run=lambda old, new: new),
                N_("the maximum runs: the larger of the old one and the block's, else exp(old − new) can overflow")),
        Mistake("the maximum of the block listed", lambda *a: {**ledger(*a), "max": block_tops(*a)},
                N_("\"max\" is the largest score so far, not the largest of the block")),
        Mistake("the maximum begins at 0", lambda *a: ledger(*a, run=lambda old, new: max(old, new, 0)),
                N_("all scores can be negative: before the first block the maximum is below every number, not 0")),
        Mistake("two passes", two_passes,
                N_("the figures after a block know only the scores so far, not the largest of all")),
        Mistake("the last figures alone", lambda *a: {**ledger(*a), "max": ledger(*a)["max"][-1:], "sum": ledger(*a)["sum"][-1:]},
                N_("\"max\" and \"sum\" have one entry for each block")),
        Mistake("weights without the maximum", lambda *a: {
                    **ledger(*a), "sum": [raised(x, top) for x, top in zip(ledger(*a)["sum"], ledger(*a)["max"])]},
                N_("\"sum\" adds exp(score − max): without the maximum large scores overflow")),
        Mistake("not divided at the end", lambda *a: ledger(*a, divide=False),
                N_("the output is the mix divided by the sum of the weights")),
        Mistake("blocks averaged", averaged,
                N_("each block has its own softmax here: a block with larger scores must weigh more")),
    ),
    hints=(
        N_("Three things are kept from block to block: a maximum, a sum of weights, and a mix of values. What happens to the last two "
           "when the first rises?"),
        N_("For block index i read physical block table[i], and of its slots only min(block_size, length − i · block_size). Score: "
           "q·k / sqrt(len(q))."),
        N_("new = max(m, largest score); f = exp(m − new); weights = exp(score − new); l = l·f + Σ weights; o[d] = o[d]·f + "
           "Σ weight·v[d]; m = new. At the end o[d] / l."),
    ),
    stands_for=("mgpt.paged_attention.paged_attention", "mgpt.paged_attention.attention_steps"),
)

Q3_WHY = choice(
    "11_blocks.q3_why", "q3_why", "c",
    {"a": N_("the block size changes nothing: with a partial last block the same mistake shows for every size"),
     "b": N_("the ledger has no order, but the empty slots have a place: with a partial block the result differs"),
     "d": N_("RoPE has turned the keys before they were stored; it does not put blocks in order")},
    (N_("What does the logical order decide when one query may see every position?"),
     N_("Two things depend on the order: which block is the last one, and which positions lie behind a query."),
     N_("Take 32 positions and the table [7, 3]: which slots are read in this order, and which in the order [3, 7]? Then 33 positions.")),
)


# ---------------------------------------------------------------- 4: an audit
def found(num_blocks, block_size, tables, lengths, free, need=whole, short=lambda has, needs: has != needs, ids=range,
          leaked=lambda block, listed, free: block not in listed and block not in free,
          stale=lambda block, listed, free: block in listed and block in free,
          twice=lambda block, tables: sum(table.count(block) for table in tables) > 1,
          doubled=lambda block, free: free.count(block) > 1):
    """The faults of a pool without sharing, or what a changed rule takes for them."""
    listed = [block for table in tables.values() for block in table]
    blocks = ids(num_blocks)
    return {"leaked": [b for b in blocks if leaked(b, listed, free)],
            "stale": [b for b in blocks if stale(b, listed, free)],
            "twice": [b for b in blocks if twice(b, tables.values())],
            "doubled": [b for b in blocks if doubled(b, free)],
            "misfit": sorted(name for name, table in tables.items() if short(len(table), need(lengths[name], block_size)))}


def draw_faults(rng):
    """A sound pool, and then up to four faults."""
    size, num_blocks = rng.choice([2, 3, 4]), rng.randrange(8, 13)
    free = rng.sample(range(num_blocks), num_blocks)
    tables, lengths = {}, {}
    for name in "ABC"[: rng.randrange(2, 4)]:
        lengths[name] = rng.choice([rng.randrange(1, 3 * size), size, 2 * size])
        n = min(whole(lengths[name], size), len(free) - 1)
        lengths[name] = min(lengths[name], n * size)
        tables[name], free = free[:n], free[n:]
    for fault in rng.sample(["leak", "stale", "twice", "within", "doubled", "short", "long"], rng.randrange(2, 6)):
        name, other = rng.sample(sorted(tables), 2)
        if fault == "leak" and len(free) > 1:
            free = free[1:]
        elif fault == "stale":
            free = free + [tables[name][-1]]
        elif fault == "twice":
            tables[name] = tables[name][:-1] + [tables[other][0]]
        elif fault == "within" and len(tables[name]) > 1:
            tables[name] = tables[name][:-1] + [tables[name][0]]
        elif fault == "doubled" and free:
            free = free + [free[0]]
        elif fault == "short":
            lengths[name] = len(tables[name]) * size + 1
        elif fault == "long" and len(tables[name]) > 1:
            lengths[name] = (len(tables[name]) - 1) * size
    return num_blocks, size, tables, lengths, free


def faults(leaked=(), stale=(), twice=(), doubled=(), misfit=()):
    return {"leaked": list(leaked), "stale": list(stale), "twice": list(twice), "doubled": list(doubled),
            "misfit": list(misfit)}


Q4 = Question(
    "11_blocks.q4", "audit", points=4, reference=found, draw=draw_faults, fresh=20, whole=True,
    cases=(
        Case((6, 4, {"A": [0, 3, 4], "C": [5, 2, 1]}, {"A": 9, "C": 9}, []), faults()),
        Case((8, 4, {"A": [0, 1, 2, 3]}, {"A": 13}, []), faults(leaked=[4, 5, 6, 7])),
        Case((6, 4, {"A": [0, 1], "B": [1, 5]}, {"A": 8, "B": 8}, [2, 3, 4, 3]), faults(twice=[1], doubled=[3])),
        Case((6, 4, {"C": [0], "B": [3], "A": [4, 2]}, {"A": 4, "B": 4, "C": 5}, [2, 5]),
             faults(leaked=[1], stale=[2], misfit=["A", "C"])),
        Case((5, 2, {"A": [0, 1, 0]}, {"A": 6}, [4, 1, 4, 3]), faults(leaked=[2], stale=[1], twice=[0], doubled=[4])),
    ),
    mistakes=(
        Mistake("not free is leaked", lambda *a: found(*a, leaked=lambda b, listed, free: b not in free),
                N_("a block in a table is not free, and rightly so: leaked is what stands in neither")),
        Mistake("not listed is leaked", lambda *a: found(*a, leaked=lambda b, listed, free: b not in listed),
                N_("a free block stands in no table, and rightly so: leaked is what stands in neither")),
        Mistake("leaks not seen", lambda *a: found(*a, leaked=lambda b, listed, free: False),
                N_("blocks that are neither free nor in a table are lost to everybody")),
        Mistake("stale not seen", lambda *a: found(*a, stale=lambda b, listed, free: False),
                N_("a block that is free and still in a table will be overwritten by its next user")),
        Mistake("in a table is stale", lambda *a: found(*a, stale=lambda b, listed, free: b in listed),
                N_("a block in a table is stale only if it is free as well")),
        Mistake("twice in one table not seen", lambda *a: found(
                    *a, twice=lambda b, tables: sum(b in table for table in tables) > 1),
                N_("a block can stand twice in one table, too")),
        Mistake("twice in one table only", lambda *a: found(
                    *a, twice=lambda b, tables: any(table.count(b) > 1 for table in tables)),
                N_("without sharing no block stands in two tables")),
        Mistake("stale counted as twice", lambda num, size, tables, lengths, free: found(
                    num, size, tables, lengths, free,
                    twice=lambda b, all_tables: sum(t.count(b) for t in all_tables) + (b in free) > 1),
                N_("\"twice\" counts entries of the tables alone")),
        Mistake("doubled not seen", lambda *a: found(*a, doubled=lambda b, free: False),
                N_("a block that was released twice stands twice in the free list")),
        Mistake("blocks cut off", lambda *a: found(*a, need=lambda n, size: n // size),
                N_("a request of n positions needs ceil(n / block_size) blocks")),
        Mistake("a block ahead", lambda *a: found(*a, need=lambda n, size: n // size + 1),
                N_("a request whose last block is just full needs no further one")),
        Mistake("long tables not seen", lambda *a: found(*a, short=lambda has, needs: has < needs),
                N_("a table that is too long does not fit its length either")),
        Mistake("in the order of the dict", lambda num, size, tables, lengths, free: {
                    **found(num, size, tables, lengths, free),
                    "misfit": [name for name in tables if len(tables[name]) != whole(lengths[name], size)]},
                N_("\"misfit\" is in ascending order of the names")),
        Mistake("repeated", lambda num, size, tables, lengths, free: {
                    **found(num, size, tables, lengths, free),
                    "twice": sorted(b for table in tables.values() for b in table
                                    if sum(t.count(b) for t in tables.values()) > 1),
                    "doubled": sorted(b for b in free if free.count(b) > 1)},
                N_("each block is listed once, however often it stands there")),
        Mistake("ids from 1", lambda *a: found(*a, ids=lambda n: range(1, n + 1)),
                N_("the ids are 0 to num_blocks − 1")),
    ),
    hints=(
        N_("Each block should stand in exactly one place: once in one table, or once in the free list. What are the ways to break this?"),
        N_("Count for each id how often it stands in all tables together, and how often in the free list."),
        N_("in_tables and in_free are the two counts. leaked: both 0; stale: both > 0; twice: in_tables > 1; doubled: in_free > 1; "
           "misfit: len(table) ≠ ceil(length / block_size)."),
    ),
)

QUESTIONS = (Q1, Q2, Q3, Q3_WHY, Q4)
