"""Chapter 14: a quantized cache in plain values, what shares a scale, capacity with metadata, the worst position."""

import math

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.text import N_


def half_up(ratio):
    return math.floor(ratio + 0.5)


def half_away(ratio):
    return int(math.copysign(math.floor(abs(ratio) + 0.5), ratio))


def largest(values):
    return max(map(abs, values), default=0.0)


def absmax(values, bits, qmax=lambda bits: 2 ** (bits - 1) - 1, peak=largest, zero=1.0):
    """The scale of values that share one."""
    top = peak(values)
    return top / qmax(bits) if top else zero


def coded(values, scale, bits, code=round, clip=True):
    qmax = 2 ** (bits - 1) - 1 if clip else math.inf
    return [max(-qmax, min(qmax, code(x / (scale or 1.0)))) for x in values]


def times(scale, codes):
    return [scale * code for code in codes]


# ---------------------------------------------------------------- 1: a cache of codes
def live(steps, bits, *, scale=absmax, code=round, clip=True, per="vector", exact=False, read="all", keep=None,
         cut=None, newest=False):
    """What the cache holds and what was read, right or with one thing changed.

    scale(values, bits); clip: codes stay within the range; per: "vector", "append" (one scale for all of an
    append) or "cache" (the first vector's);
    exact: new rows are read as they came; read: "all", "new" or "old" rows; keep(held, n): positions left by a
    truncate; cut: what it cuts; newest: all is read, and kept, with the newest scale.
    """
    codes, scales, reads = [], [], []
    for step in steps:
        if isinstance(step, int):
            left = step if keep is None else keep(len(codes), step)
            codes = codes[:left] if cut != "scales" else codes
            scales = scales[:left] if cut != "codes" else scales
            continue
        old = len(codes)
        for vector in step:
            shared = {"vector": vector, "append": [x for one in step for x in one]}.get(per)
            chosen = scales[0] if shared is None and scales else scale(vector if shared is None else shared, bits)
            scales.append(chosen)
            codes.append(coded(vector, chosen, bits, code, clip))
        if newest:
            scales = [scales[-1]] * len(scales)
        rows = [times(s, c) for s, c in zip(scales, codes)]
        if exact:
            rows = rows[:old] + [list(map(float, vector)) for vector in step]
        reads.append({"all": rows, "new": rows[old:], "old": rows[:old]}[read])
    return {"codes": codes, "scales": scales, "reads": reads}


def vector_of(rng, bits, width):
    """A vector whose scale is a power of two, often with ties, sometimes of zeros."""
    qmax, step = 2 ** (bits - 1) - 1, rng.choice([0.125, 0.25, 0.5, 1.0])
    if not rng.randrange(6):
        return [0.0] * width
    values = [step * rng.randrange(-2 * qmax, 2 * qmax + 1) / 2 for _ in range(width)]
    values[rng.randrange(width)] = rng.choice([-1, 1, -1]) * qmax * step
    return values


def draw_steps(rng):
    """Appends of one to three vectors, with truncations that leave something, or nothing, between them."""
    bits, width, held, steps = rng.choice([4, 3, 8]), rng.randrange(2, 4), 0, []
    for number in range(rng.randrange(3, 6)):
        if number and rng.randrange(2):
            held = rng.randrange(0, held)
            steps.append(held)
        size = rng.randrange(1, 4)
        steps.append([vector_of(rng, bits, width) for _ in range(size)])
        held += size
    if not rng.randrange(3):
        steps.append(rng.randrange(1, held + 1))
    return steps, bits


Q1 = Question(
    "14_kv_quantization.q1", "live", points=4, whole=True, reference=live, draw=draw_steps, fresh=14,
    cases=(
        Case(([[[3.5, -1.25], [0.5, 7.0]]], 4), {
            "codes": [[7, -2], [0, 7]], "scales": [0.5, 1.0], "reads": [[[3.5, -1.0], [0.0, 7.0]]]}),
        Case(([[[1.75, 0.5]], [[-14.0, 3.0]]], 4), {
            "codes": [[7, 2], [-7, 2]], "scales": [0.25, 2.0],
            "reads": [[[1.75, 0.5]], [[1.75, 0.5], [-14.0, 4.0]]]}),
        Case(([[[0.0, 0.0], [1.5, 0.75]], 1, [[-3.0, 0.5]]], 3), {
            "codes": [[0, 0], [-3, 0]], "scales": [1.0, 1.0],
            "reads": [[[0.0, 0.0], [1.5, 1.0]], [[0.0, 0.0], [-3.0, 0.0]]]}),
        Case(([[[127.0, 0.5], [3.5, -63.5]], 2, [[-31.75, 0.375]], 1], 8), {
            "codes": [[127, 0]], "scales": [1.0],
            "reads": [[[127.0, 0.0], [3.5, -63.5]], [[127.0, 0.0], [3.5, -63.5], [-31.75, 0.5]]]}),
    ),
    mistakes=(
        Mistake("new rows read exactly", lambda s, b: live(s, b, exact=True),
                N_("a pass reads its own new rows by their codes too; otherwise chunks would change the logits")),
        Mistake("one scale for the cache", lambda s, b: live(s, b, per="cache"),
                N_("each vector has a scale of its own; this keeps the first one for all, and later vectors clip")),
        Mistake("one scale for the cache, not clipped", lambda s, b: live(s, b, per="cache", clip=False),
                N_("each vector has a scale of its own; this keeps the first, and later codes leave the range")),
        Mistake("one scale for an append", lambda s, b: live(s, b, per="append"),
                N_("vectors that come together share nothing: each has its own scale, whatever the chunking is")),
        Mistake("the newest scale for all", lambda s, b: live(s, b, newest=True),
                N_("old codes keep the scale that they were made with; under a newer one they stand for other values")),
        Mistake("only the new rows", lambda s, b: live(s, b, read="new"),
                N_("a pass reads all positions held, the old ones as well")),
        Mistake("only the old rows", lambda s, b: live(s, b, read="old"),
                N_("a pass also reads the rows that it has just written: a position sees itself")),
        Mistake("truncate drops n", lambda s, b: live(s, b, keep=lambda held, n: max(0, held - n)),
                N_("a number n keeps the first n positions; this drops n")),
        Mistake("truncate ignored", lambda s, b: live(s, b, keep=lambda held, n: held),
                N_("a number n truncates: only the first n positions stay")),
        Mistake("scales not truncated", lambda s, b: live(s, b, cut="codes"),
                N_("codes and scales are truncated together; here new codes meet scales of forgotten positions")),
        Mistake("codes not truncated", lambda s, b: live(s, b, cut="scales"),
                N_("codes and scales are truncated together; here the codes stay")),
        Mistake("divided by 2^(bits - 1)", lambda s, b: live(
                    s, b, scale=lambda v, b: absmax(v, b, qmax=lambda bits: 2 ** (bits - 1))),
                N_("the largest value gets the last symmetric code, 2^(bits − 1) − 1: divide by that")),
        Mistake("divided by 2^(bits - 1), not clipped", lambda s, b: live(
                    s, b, clip=False, scale=lambda v, b: absmax(v, b, qmax=lambda bits: 2 ** (bits - 1))),
                N_("the largest value gets the code 2^(bits − 1) − 1; this reaches 2^(bits − 1), which stays unused")),
        Mistake("largest without abs", lambda s, b: live(
                    s, b, scale=lambda v, b: absmax(v, b, peak=lambda values: max(0.0, *values))),
                N_("the scale comes from the largest |x|: a large negative value counts as well")),
        Mistake("largest without abs, not clipped", lambda s, b: live(
                    s, b, clip=False, scale=lambda v, b: absmax(v, b, peak=max)),
                N_("the scale comes from the largest |x|, and is above 0: take abs(x) first")),
        Mistake("zeros get scale 0", lambda s, b: live(s, b, scale=lambda v, b: absmax(v, b, zero=0.0)),
                N_("a vector of zeros gets the scale 1")),
        Mistake("half up", lambda s, b: live(s, b, code=half_up), N_("ties go to the even code")),
        Mistake("half away", lambda s, b: live(s, b, code=half_away), N_("ties go to the even code, not away from 0")),
        Mistake("cut", lambda s, b: live(s, b, code=int), N_("int() cuts towards zero; the nearest code is wanted")),
        Mistake("always four bits", lambda s, b: live(s, 4), N_("the codes and the scale depend on bits")),
    ),
    hints=(
        N_("Two lists grow and shrink together. What is written for a vector, and what is read after an append?"),
        N_("For each vector by itself: scale, codes. After an append: scale · code of every position held."),
        N_("scale = max|x| / (2^(bits−1) − 1) or 1; codes with round(x / scale); reads.append([[s * c for c in row] …]); "
           "a number n: codes = codes[:n]; scales = scales[:n]."),
    ),
    stands_for=("mgpt.quantized_cache.QuantizedKVCache", "mgpt.quantized_blocks.QuantizedPagedKVCache",
                "mgpt.quantize.quantize_groups", "mgpt.quantize.quantize"),
)

Q1_WHY = choice(
    "14_kv_quantization.q1_why", "q1_why", "b",
    {"a": N_("four bytes decide nothing here; with another scale the codes would mean other values"),
     "c": N_("the scale was not lost: it stands beside the codes, for everybody who reads them"),
     "d": N_("a scale that comes with its vector is not fixed for a model; it is found in the block")},
    (N_("The block holds whole numbers. What makes them keys and values?"),
     N_("A wrote code 7 with the scale 0.5. B reads it with the scale 2. What value does each see?"),
     N_("Look at the trap 'the request's own scale on a shared block'.")),
)


# ---------------------------------------------------------------- 2: what shares a scale
def pieces(values, size):
    return [values[start:start + size] for start in range(0, len(values), size)]


def whole_pieces(values, size):
    return [piece for piece in pieces(values, size) if len(piece) == size] or [values]


def joined(values, size):
    whole = [piece for piece in pieces(values, size) if len(piece) == size]
    return whole[:-1] + [values[(len(whole) - 1) * size:]] if whole else [values]


def packed(sizes, bits, size):
    return sum(math.ceil(n * bits / 8) + 4 for line in sizes for n in line)


def turned(table):
    return [list(line) for line in zip(*table)]


def stored(rows, per, size, bits, *, split=pieces, scale=absmax, code=round, clip=True, worst=max, nbytes=packed,
           signed=False, back=True):
    """The right dict, or one with another cut, another rule for scales or codes, or another count."""
    lines = rows if per == "token" else turned(rows)
    groups = [split(line, size) for line in lines]
    scales = [[scale(group, bits) for group in line] for line in groups]
    restored = [[x for group, s in zip(line, line_scales) for x in times(s, coded(group, s, bits, code, clip))]
                for line, line_scales in zip(groups, scales)]
    errors = [value - x if signed else abs(value - x)
              for line, line_restored in zip(lines, restored) for x, value in zip(line, line_restored)]
    return {"scales": scales, "restored": turned(restored) if back and per == "channel" else restored,
            "worst": worst(errors), "nbytes": nbytes([[len(group) for group in line] for line in groups], bits, size)}


def draw_table(rng):
    """A table whose groups, cut the way that is asked for, have scales that are powers of two."""
    per, bits, size = rng.choice(["token", "channel"]), rng.choice([4, 3, 8]), rng.choice([2, 3])
    n_lines, length = rng.randrange(2, 5), size * rng.randrange(1, 3) + rng.randrange(1, size)
    lines = []
    for _line in range(n_lines):
        groups = [vector_of(rng, bits, min(size, length - start)) for start in range(0, length, size)]
        lines.append([x for group in groups for x in group])
    return lines if per == "token" else [list(row) for row in zip(*lines)], per, size, bits


TABLE = [[3.5, 0.5, 14.0], [-1.25, 7.0, 1.0], [0.5, -1.75, -3.5]]

Q2 = Question(
    "14_kv_quantization.q2", "stored", points=4, whole=True, reference=stored, draw=draw_table, fresh=14,
    cases=(
        Case((TABLE, "token", 2, 4), {
            "scales": [[0.5, 2.0], [1.0, 1 / 7], [0.25, 0.5]], "worst": 0.25, "nbytes": 30,
            "restored": [[3.5, 0.5, 14.0], [-1.0, 7.0, 1.0], [0.5, -1.75, -3.5]]}),
        Case((TABLE, "channel", 2, 4), {
            "scales": [[0.5, 0.5 / 7], [1.0, 0.25], [2.0, 0.5]], "worst": 1.0, "nbytes": 30,
            "restored": [[3.5, 0.0, 14.0], [-1.0, 7.0, 0.0], [0.5, -1.75, -3.5]]}),
        Case(([[0.0, 0.0, 0.0, -1.75, 0.375, 0.25, 14.0]], "token", 3, 4), {
            "scales": [[1.0, 0.25, 2.0]], "worst": 0.125, "nbytes": 17,
            "restored": [[0.0, 0.0, 0.0, -1.75, 0.5, 0.25, 14.0]]}),
        Case(([[127.0, 0.0], [0.5, -63.5], [2.5, 31.75]], "channel", 3, 8), {
            "scales": [[1.0], [0.5]], "worst": 0.5, "nbytes": 14,
            "restored": [[127.0, 0.0], [0.0, -63.5], [2.0, 32.0]]}),
    ),
    mistakes=(
        Mistake("the other way", lambda r, p, s, b: stored(r, "channel" if p == "token" else "token", s, b),
                N_("per token a group runs along a row, per channel along a column: these are exchanged")),
        Mistake("left turned", lambda r, p, s, b: stored(r, p, s, b, back=False),
                N_("restored has the shape of rows, a row a position: turn the columns back")),
        Mistake("always per token", lambda r, p, s, b: stored(r, "token", s, b),
                N_("per channel, a group holds the same channel of neighbouring positions")),
        Mistake("one scale a line", lambda r, p, s, b: stored(r, p, max(len(r), len(r[0])), b),
                N_("every group of size values has a scale of its own; this takes one for a whole row or column")),
        Mistake("tail without a scale", lambda r, p, s, b: stored(r, p, s, b, split=whole_pieces),
                N_("the short last group is a group too: with a scale, codes and bytes")),
        Mistake("tail joined", lambda r, p, s, b: stored(r, p, s, b, split=joined),
                N_("the short last group has a scale of its own; it is not joined to the group before")),
        Mistake("mean error", lambda r, p, s, b: stored(r, p, s, b, worst=lambda e: math.fsum(e) / len(e)),
                N_("the largest error is asked for: a mean hides it")),
        Mistake("signed error", lambda r, p, s, b: stored(r, p, s, b, signed=True),
                N_("an error below zero is an error: take |restored − x|")),
        Mistake("scales not counted", lambda r, p, s, b: stored(
                    r, p, s, b, nbytes=lambda sizes, b, s: sum(math.ceil(n * b / 8) for line in sizes for n in line)),
                N_("each scale takes 4 bytes")),
        Mistake("tail padded in bytes", lambda r, p, s, b: stored(
                    r, p, s, b, nbytes=lambda sizes, b, s: sum(math.ceil(s * b / 8) + 4 for line in sizes for n in line)),
                N_("the last group is packed as short as it is")),
        Mistake("packed across groups", lambda r, p, s, b: stored(
                    r, p, s, b, nbytes=lambda sizes, b, s: sum(math.ceil(sum(n) * b / 8) + 4 * len(n) for n in sizes)),
                N_("each group is packed by itself, ceil(n · bits / 8) bytes")),
        Mistake("parts of bytes", lambda r, p, s, b: stored(
                    r, p, s, b, nbytes=lambda sizes, b, s: sum(n * b / 8 + 4 for line in sizes for n in line)),
                N_("there are no parts of bytes: each group's codes fill whole ones")),
        Mistake("parts of bytes cut off", lambda r, p, s, b: stored(
                    r, p, s, b, nbytes=lambda sizes, b, s: sum(n * b // 8 + 4 for line in sizes for n in line)),
                N_("a byte that is filled in part is stored as well: round up, ceil(n · bits / 8)")),
        Mistake("not packed", lambda r, p, s, b: stored(
                    r, p, s, b, nbytes=lambda sizes, b, s: sum(n + 4 for line in sizes for n in line)),
                N_("a code takes bits bits, not a byte of its own")),
        Mistake("largest without abs", lambda r, p, s, b: stored(
                    r, p, s, b, scale=lambda v, b: absmax(v, b, peak=lambda values: max([0.0, *values]))),
                N_("the scale comes from the largest |x|: a large negative value counts as well")),
        Mistake("largest without abs, not clipped", lambda r, p, s, b: stored(
                    r, p, s, b, clip=False, scale=lambda v, b: absmax(v, b, peak=max)),
                N_("the scale comes from the largest |x|, and is above 0: take abs(x) first")),
        Mistake("divided by 2^(bits - 1), not clipped", lambda r, p, s, b: stored(
                    r, p, s, b, clip=False, scale=lambda v, b: absmax(v, b, qmax=lambda bits: 2 ** (bits - 1))),
                N_("the largest value gets the code 2^(bits − 1) − 1; this reaches 2^(bits − 1), which stays unused")),
        Mistake("divided by 2^(bits - 1)", lambda r, p, s, b: stored(
                    r, p, s, b, scale=lambda v, b: absmax(v, b, qmax=lambda bits: 2 ** (bits - 1))),
                N_("the largest value gets the last symmetric code, 2^(bits − 1) − 1: divide by that")),
        Mistake("zeros get scale 0", lambda r, p, s, b: stored(r, p, s, b, scale=lambda v, b: absmax(v, b, zero=0.0)),
                N_("a group of zeros gets the scale 1")),
        Mistake("half up", lambda r, p, s, b: stored(r, p, s, b, code=half_up), N_("ties go to the even code")),
        Mistake("half away", lambda r, p, s, b: stored(r, p, s, b, code=half_away),
                N_("ties go to the even code, not away from 0")),
        Mistake("cut", lambda r, p, s, b: stored(r, p, s, b, code=int),
                N_("int() cuts towards zero; the nearest code is wanted")),
    ),
    hints=(
        N_("Cut the table first. Which lists of numbers share a scale, and how long is the last of them?"),
        N_("Per channel, turn the table: columns = zip(*rows). Then both cases are the same work, line by line."),
        N_("For each group: scale, codes, scale · code, and ceil(n · bits / 8) + 4 bytes. Turn the result back at the "
           "end: rows = zip(*columns)."),
    ),
    stands_for=("mgpt.quantize.quantize_groups", "mgpt.quantize.quantize", "mgpt.quantize.symmetric_scale"),
)


# ---------------------------------------------------------------- 3: bytes and requests
def side(width, bits, cache, *, ceil=True, tail=True, full=False, scales=True, zeros=True, plain=False):
    """Bytes of one vector of K or V, right or with one thing changed.

    full: a short last group is counted as a whole one; plain: 16 bits have scales as well.
    """
    if bits == 16 and not plain:
        return 2 * width
    sizes = [cache["group"] if full else min(cache["group"], width - start)
             for start in range(0, width, cache["group"])]
    codes = sum(math.ceil(n * bits / 8) for n in sizes) if ceil else sum(sizes) * bits // 8
    count = len(sizes) if tail else max(1, width // cache["group"])
    return codes + count * ((cache["scale_bytes"] if scales else 0) + (cache["zero_bytes"] if zeros else 0))


def capacity(model, cache, block_size, budget_gib, positions, *, gib=2**30, bits=("k_bits", "v_bits"), whole=True,
             vectors=1, up=False, **wrong):
    """The right dict, or one with another unit, other sides, or another rule of whole blocks."""
    token = sum(side(model["width"], cache[key], cache, **wrong) for key in bits)
    token *= model["layers"] * model["kv_heads"] * vectors
    blocks = budget_gib * gib // (block_size * token)
    if up:
        blocks = -(-budget_gib * gib // (block_size * token))
    each = -(-positions // block_size) if whole else None
    requests = blocks // each if whole else blocks * block_size // positions
    return {"token": token, "blocks": blocks, "requests": requests}


def no_partial(model, cache, block_size, budget_gib, positions):
    right = capacity(model, cache, block_size, budget_gib, positions)
    return right | {"requests": right["blocks"] // max(1, positions // block_size)}


def draw_capacity(rng):
    """K and V of other formats, groups that end short, odd widths, positions that end inside a block."""
    width = rng.choice([18, 21, 27, 45, 70, 100])
    model = {"layers": rng.randrange(8, 40), "kv_heads": rng.choice([2, 4, 8]), "width": width}
    k_bits, v_bits = rng.choice([(8, 4), (4, 3), (16, 4), (3, 5), (4, 8), (16, 3)])
    cache = {"k_bits": k_bits, "v_bits": v_bits, "group": rng.choice([7, 11, 13]),
             "scale_bytes": rng.choice([2, 4]), "zero_bytes": rng.choice([1, 2])}
    block_size = rng.choice([16, 32])
    return model, cache, block_size, rng.randrange(6, 24), block_size * rng.randrange(2, 6) + rng.randrange(3, 14)


LLAMA = {"layers": 32, "kv_heads": 8, "width": 128}
VECTOR4 = {"k_bits": 4, "v_bits": 4, "group": 128, "scale_bytes": 4, "zero_bytes": 0}

Q3 = Question(
    "14_kv_quantization.q3", "capacity", points=3, whole=True, reference=capacity, draw=draw_capacity, fresh=12,
    cases=(
        Case((LLAMA, VECTOR4 | {"k_bits": 16, "v_bits": 16}, 16, 1, 1000),
             {"token": 131_072, "blocks": 512, "requests": 8}),
        Case((LLAMA, VECTOR4, 16, 1, 1000), {"token": 34_816, "blocks": 1927, "requests": 30}),
        Case(({"layers": 10, "kv_heads": 2, "width": 21},
              {"k_bits": 8, "v_bits": 3, "group": 8, "scale_bytes": 2, "zero_bytes": 1}, 16, 2, 100),
             {"token": 940, "blocks": 142_784, "requests": 20_397}),
        Case(({"layers": 4, "kv_heads": 2, "width": 5},
              {"k_bits": 16, "v_bits": 4, "group": 2, "scale_bytes": 4, "zero_bytes": 1}, 8, 1, 33),
             {"token": 224, "blocks": 599_186, "requests": 119_837}),
    ),
    mistakes=(
        Mistake("GB for GiB", lambda *a: capacity(*a, gib=10**9), N_("1 GiB is 2^30 bytes; this counts 10^9")),
        Mistake("scales forgotten", lambda *a: capacity(*a, scales=False),
                N_("each group also stores its scale")),
        Mistake("zero points forgotten", lambda *a: capacity(*a, zeros=False),
                N_("each group also stores its zero point, where the format has one")),
        Mistake("the tail's scale forgotten", lambda *a: capacity(*a, tail=False),
                N_("the short last group has a scale and a zero point too: ceil(width / group) of them")),
        Mistake("the tail counted whole", lambda *a: capacity(*a, full=True),
                N_("the short last group is packed as short as it is: its codes take fewer bytes")),
        Mistake("packed across groups", lambda *a: capacity(*a, ceil=False),
                N_("each group is packed by itself and fills whole bytes, ceil(n · bits / 8)")),
        Mistake("K's bits for V", lambda *a: capacity(*a, bits=("k_bits", "k_bits")),
                N_("V has bits of its own")),
        Mistake("only one side", lambda *a: capacity(*a, bits=("k_bits",)), N_("a position has a K and a V vector")),
        Mistake("float16 with scales", lambda *a: capacity(*a, plain=True),
                N_("16 bits are float16: two bytes a value, and neither scales nor zero points")),
        Mistake("no whole blocks", lambda *a: capacity(*a, whole=False),
                N_("a request takes whole blocks; the empty slots of its last block serve nobody else")),
        Mistake("the last block forgotten", no_partial,
                N_("positions that do not fill a block still need one: round up")),
        Mistake("blocks rounded up", lambda *a: capacity(*a, up=True),
                N_("the budget is not exceeded: whole blocks that fit, rounded down")),
        Mistake("one layer", lambda m, *a: capacity({**m, "layers": 1}, *a), N_("every layer keeps K and V")),
        Mistake("one KV head", lambda m, *a: capacity({**m, "kv_heads": 1}, *a),
                N_("every KV head keeps a K and a V vector")),
        Mistake("doubled", lambda *a: capacity(*a, vectors=2),
                N_("K and V are counted already, each with its bits; another factor 2 is too much")),
    ),
    hints=(
        N_("Start with one vector. Into which groups is it cut, and what does each group store?"),
        N_("One vector: over its groups, ceil(n · bits / 8) + scale + zero point; float16: 2 · width. K and V apart."),
        N_("token = layers · kv_heads · (K + V); blocks = budget_gib · 2^30 // (block_size · token); a request needs "
           "ceil(positions / block_size) blocks."),
    ),
    stands_for=("mgpt.memory.KVShape", "mgpt.memory.vector_bytes", "mgpt.memory.paged_bytes"),
)


# ---------------------------------------------------------------- 4: the report
def first_largest(row):
    return row.index(max(row))


def lead(row):
    top = sorted(row)
    return top[-1] - top[-2]


def distance(before, after):
    return max(abs(a - b) for a, b in zip(before, after))


def report(exact, stored, *, error=distance, mean=None, place=None, pick=first_largest, margin=None, factor=2,
           slack=None, start=0):
    """The right dict, or one with another error, mean, place, order rule, margin or bound."""
    errors = [error(a, b) for a, b in zip(exact, stored)]
    place = place or (lambda values: values.index(max(values)))
    average = (mean or (lambda values: math.fsum(values) / len(values)))(errors)
    pairs = list(zip(exact, stored))
    margins = [lead(b if margin else a) for a, b in pairs]
    bounds = [average] * len(errors) if slack == "mean" else errors
    is_open = [m < factor * e if slack == "strict" else m <= factor * e for m, e in zip(margins, bounds)]
    return {"mean": average, "worst": max(errors), "position": place(errors) + start,
            "changed": [i + start for i, (a, b) in enumerate(pairs) if pick(a) != pick(b)],
            "open": [i + start for i, yes in enumerate(is_open) if yes]}


def last_largest(row):
    return len(row) - 1 - row[::-1].index(max(row))


def all_differences(exact, stored):
    every = [abs(a - b) for rows in zip(exact, stored) for a, b in zip(*rows)]
    return report(exact, stored) | {"mean": math.fsum(every) / len(every)}


def at_the_choice(before, after):
    at = first_largest(before)
    return abs(after[at] - before[at])


def draw_report(rng):
    """Quarters, so that ties of errors, of logits and of a margin with twice the error happen."""
    exact, stored = [], []
    for _position in range(rng.randrange(5, 9)):
        row = [rng.randrange(-8, 9) / 4 for _ in range(4)]
        if not rng.randrange(4):
            row[rng.randrange(1, 4)] = row[0]
        most = rng.choice([1, 1, 2, 4])
        exact.append(row)
        stored.append([x + rng.randrange(-most, most + 1) / 4 for x in row])
    return exact, stored


Q4 = Question(
    "14_kv_quantization.q4", "report", points=4, whole=True, reference=report, draw=draw_report, fresh=24,
    cases=(
        Case(([[0.5, 3.0, 1.0], [2.0, 0.0, 1.5], [4.0, 0.0, 0.0]],
              [[0.5, 2.75, 1.0], [1.5, 0.25, 2.0], [4.0, 0.25, 0.0]]),
             {"mean": 1 / 3, "worst": 0.5, "position": 1, "changed": [1], "open": [1]}),
        Case(([[1.0, 1.0], [2.0, 1.0], [0.0, 5.0]], [[1.0, 1.25], [1.5, 1.0], [0.0, 4.5]]),
             {"mean": 1.25 / 3, "worst": 0.5, "position": 1, "changed": [0], "open": [0, 1]}),
        Case(([[0.0, 2.0], [3.0, 0.0], [0.0, 2.0], [1.0, 0.0]], [[0.0, 2.0], [3.0, 0.0], [2.5, 2.0], [1.5, 0.0]]),
             {"mean": 0.75, "worst": 2.5, "position": 2, "changed": [2], "open": [2, 3]}),
        Case(([[1.0, 0.0, 2.0]], [[2.0, -1.5, 2.0]]),
             {"mean": 1.5, "worst": 1.5, "position": 0, "changed": [0], "open": [0]}),
    ),
    mistakes=(
        Mistake("mean over all logits", all_differences,
                N_("a position's error is its largest difference; the mean is over positions, not over all logits")),
        Mistake("signed", lambda e, s: report(e, s, error=lambda a, b: max(y - x for x, y in zip(a, b))),
                N_("a logit that fell is off as well: take |stored − exact|")),
        Mistake("root mean square", lambda e, s: report(
                    e, s, error=lambda a, b: math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / len(a))),
                N_("a position's error is the largest difference of its logits; a root mean square hides it")),
        Mistake("mean of a row", lambda e, s: report(
                    e, s, error=lambda a, b: math.fsum(abs(x - y) for x, y in zip(a, b)) / len(a)),
                N_("a position's error is the largest difference of its logits, not their mean")),
        Mistake("the chosen logit only", lambda e, s: report(e, s, error=at_the_choice),
                N_("another logit may have risen and won: look at all of a position's logits")),
        Mistake("the last worst position", lambda e, s: report(
                    e, s, place=lambda values: len(values) - 1 - values[::-1].index(max(values))),
                N_("of equal errors the first position is given")),
        Mistake("positions from 1", lambda e, s: report(e, s, start=1), N_("positions count from 0")),
        Mistake("the last of equals", lambda e, s: report(e, s, pick=last_largest),
                N_("greedy takes the first of equal logits")),
        Mistake("margin of the stored logits", lambda e, s: report(e, s, margin="stored"),
                N_("the margin is that of the exact logits; it says how far they may move")),
        Mistake("once the error", lambda e, s: report(e, s, factor=1),
                N_("the leader may fall by the error while another rises by it: compare with twice the error")),
        Mistake("the mean error as the bound", lambda e, s: report(e, s, slack="mean"),
                N_("each position is judged by its own error; the mean error clears the very position that is ruined")),
        Mistake("strictly below", lambda e, s: report(e, s, slack="strict"),
                N_("a margin of exactly twice the error can end in a tie, which the order decides: it is open too")),
        Mistake("largest as the mean", lambda e, s: report(e, s, mean=max),
                N_("mean and worst are two figures: the mean is the sum of the positions' errors over their number")),
    ),
    hints=(
        N_("One number a position first: how far is its row off? Mean, worst and position follow from that list."),
        N_("Changed: the greedy choices, first of equals, differ. Open: the exact margin is at most twice the error."),
        N_("errors = [max(abs(a − b) …) …]; position = errors.index(max(errors)); margin = largest − second of the exact "
           "row; open if margin <= 2 * error."),
    ),
    stands_for=("mgpt.quality.decisions", "mgpt.quality.lead", "mgpt.quality.margin"),
)

QUESTIONS = (Q1, Q1_WHY, Q2, Q3, Q4)
