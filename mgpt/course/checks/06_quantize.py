"""Quantization: codes with their errors told apart, packing and unpacking, groups with bytes, affine maps."""

import math

import numpy as np

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.quantize import (affine_params, error_split, pack_int4, quantize, quantize_affine, symmetric_scale,
                           unpack_int4)
from mgpt.text import N_


def half_up(ratio):
    return math.floor(ratio + 0.5)


def half_away(ratio):
    return int(math.copysign(math.floor(abs(ratio) + 0.5), ratio))


# ---------------------------------------------------------------- 1: codes, values, and two kinds of error
def report(xs, scale, bits, **wrong):
    """The right dict, or one with some entries replaced."""
    codes, split = quantize(xs, scale, bits).tolist(), error_split(xs, scale, bits)
    return {"codes": codes, "restored": [scale * code for code in codes], "clipped": int(split.clipped.sum()),
            "sq_round": split.sum_sq_round, "sq_clip": split.sum_sq_clip, **wrong}


def by_code(rule, low=None, high=None, clipped=None):
    """A mistake's function: codes by another rule (its range by bits), and everything else following from them."""
    def wrong(xs, scale, bits):
        qmax = 2 ** (bits - 1) - 1
        bottom, top = -qmax if low is None else low(qmax), qmax if high is None else high(qmax)
        free = [rule(x, scale) for x in xs]
        codes = [max(bottom, min(top, code)) for code in free]
        outside = [clipped(x, scale, code, qmax) if clipped else not bottom <= near <= top
                   for x, code, near in zip(xs, codes, free)]
        squares = [(scale * code - x) ** 2 for x, code in zip(xs, codes)]
        return {"codes": codes, "restored": [scale * code for code in codes], "clipped": sum(outside),
                "sq_round": math.fsum(s for s, out in zip(squares, outside) if not out),
                "sq_clip": math.fsum(s for s, out in zip(squares, outside) if out)}

    return wrong


def nearest(x, scale):
    return round(x / scale)


def summed(xs, scale, bits, of):
    """{sq_round, sq_clip} with another measure than the square."""
    split, restored = error_split(xs, scale, bits), report(xs, scale, bits)["restored"]
    errors = [of(back - x) for x, back in zip(xs, restored)]
    return {"sq_round": math.fsum(e for e, out in zip(errors, split.clipped) if not out),
            "sq_clip": math.fsum(e for e, out in zip(errors, split.clipped) if out)}


def draw_values(rng):
    """Quarters of a scale that is a power of two: ties, values just beyond the last code, and far ones."""
    scale, bits = rng.choice([0.25, 0.5, 2.0]), rng.choice([3, 4, 5])
    qmax = 2 ** (bits - 1) - 1
    quarters = [rng.randrange(-4 * qmax - 12, 4 * qmax + 13) for _ in range(5)]
    quarters += [4 * rng.randrange(-qmax, qmax) + 2, 4 * qmax + 1, -4 * qmax - 6]
    rng.shuffle(quarters)
    return [scale * q / 4 for q in quarters], scale, bits


Q1 = Question(
    "06_quantize.q1", "quantize_report", points=4, whole=True, reference=report, draw=draw_values, fresh=8,
    cases=(
        Case(([-1.25, -0.25, 0.75, 1.75, 8.0], 0.5, 4),
             {"codes": [-2, 0, 2, 4, 7], "restored": [-1.0, 0.0, 1.0, 2.0, 3.5], "clipped": 1,
              "sq_round": 0.25, "sq_clip": 20.25}),
        Case(([3.5, 3.625, 3.75, -3.75], 0.5, 4),
             {"codes": [7, 7, 7, -7], "restored": [3.5, 3.5, 3.5, -3.5], "clipped": 2,
              "sq_round": 0.015625, "sq_clip": 0.125}),
        Case(([-3.0, -8.0, 5.0], 2.0, 3),
             {"codes": [-2, -3, 2], "restored": [-4.0, -6.0, 4.0], "clipped": 1, "sq_round": 2.0, "sq_clip": 4.0}),
    ),
    mistakes=(
        Mistake("half up", by_code(lambda x, s: half_up(x / s)),
                N_("floor(x/s + 0.5) sends every tie upwards; ties go to the even code")),
        Mistake("half away from zero", by_code(lambda x, s: half_away(x / s)),
                N_("ties go to the even code, not away from zero: 2.5 becomes 2")),
        Mistake("truncated", by_code(lambda x, s: int(x / s)),
                N_("int() cuts towards zero; the nearest code is wanted")),
        Mistake("not clipped", by_code(nearest, low=lambda q: -999, high=lambda q: 999),
                N_("codes end at 2^(bits−1) − 1: what lies beyond is clipped")),
        Mistake("lowest code used", by_code(nearest, low=lambda q: -q - 1),
                N_("the symmetric map leaves the code −2^(bits−1) unused")),
        Mistake("always four bits", by_code(nearest, low=lambda q: -7, high=lambda q: 7),
                N_("the last code depends on bits: 2^(bits−1) − 1")),
        Mistake("codes without a sign", by_code(nearest, low=lambda q: 0, high=lambda q: 2 * q + 1),
                N_("the codes are signed here, from −qmax to qmax")),
        Mistake("clipping called rounding", lambda *a: report(*a, clipped=0, sq_clip=0.0,
                                                              sq_round=report(*a)["sq_round"] + report(*a)["sq_clip"]),
                N_("a value outside the codes is clipped: its whole error is clipping error, not rounding")),
        Mistake("clipped by value", by_code(nearest, clipped=lambda x, s, code, q: abs(x) > q * s),
                N_("3.625 with scale 0.5 is 7.25, which rounds to 7: it is not clipped. Judge by the code before clipping")),
        Mistake("the last code called clipped", by_code(nearest, clipped=lambda x, s, code, q: abs(code) == q),
                N_("a value may have the last code by right: clipped is only what would get a code beyond it")),
        Mistake("errors without squares", lambda *a: report(*a, **summed(*a, of=abs)),
                N_("the errors are squared before they are added")),
        Mistake("signed errors added", lambda *a: report(*a, **summed(*a, of=float)),
                N_("errors of both signs cancel when added: square them first")),
        Mistake("codes as values", lambda *a: report(*a, restored=[float(c) for c in report(*a)["codes"]]),
                N_("a code stands for scale · code, not for itself")),
        Mistake("kinds swapped", lambda *a: report(*a, sq_round=report(*a)["sq_clip"], sq_clip=report(*a)["sq_round"]),
                N_("the two sums are swapped")),
    ),
    hints=(
        N_("Take one value. Which whole number is nearest to x/scale, and is it still a code?"),
        N_("Keep the rounded quotient before you clip it: it decides whether the error counts as clipping."),
        N_("near = round(x / scale); code = max(−qmax, min(qmax, near)); clipped if abs(near) > qmax; error = "
           "scale · code − x."),
    ),
    stands_for=("mgpt.quantize.quantize", "mgpt.quantize.error_split"),
)


# ---------------------------------------------------------------- 2: packing
def packed(codes, nibble=lambda code: code & 15, high_first=False, tail=0):
    """Bytes of codes, two a byte."""
    nibbles = [nibble(code) for code in codes] + [tail] * (len(codes) % 2)
    pairs = zip(nibbles[0::2], nibbles[1::2])
    return [(a << 4 | b) if high_first else (a | b << 4) for a, b in pairs]


def right_packed(codes):
    return pack_int4(codes).tolist()


def sign_and_size(code):
    return abs(code) | (8 if code < 0 else 0)


def draw_codes(rng):
    codes = [rng.randrange(-7, 8) for _ in range(rng.choice([3, 5, 6, 7]))]
    return ([-rng.randrange(2, 7), *codes, rng.randrange(1, 8)],)


Q2 = Question(
    "06_quantize.q2", "pack_codes", points=2, whole=True, reference=right_packed, draw=draw_codes, fresh=8,
    cases=(Case(([-2, 0, 1, 4],), [14, 65]), Case(([3, -1, 5],), [243, 5]), Case(([-7],), [9]),
           Case(([6, -3, -4, 2, 7, -5],), [214, 44, 183])),
    mistakes=(
        Mistake("first code high", lambda c: packed(c, high_first=True),
                N_("the first code of a pair lies in the low nibble, the second in the high one")),
        Mistake("not packed", lambda c: [code & 15 for code in c],
                N_("two codes share a byte; this gives a byte to each")),
        Mistake("eight bits each", lambda c: [code & 255 for code in c],
                N_("that is one byte a code in two's complement of eight bits; here a code has four")),
        Mistake("odd tail lost", lambda c: packed(c[: len(c) // 2 * 2]),
                N_("an odd number of codes needs one byte more, with 0 in its high nibble")),
        Mistake("tail filled with ones", lambda c: packed(c, tail=15),
                N_("the free nibble at the end is filled with 0")),
        Mistake("last code twice", lambda c: packed(c, tail=c[-1] & 15),
                N_("the free nibble at the end is filled with 0, not with the last code again")),
        Mistake("sign lost", lambda c: packed(c, abs),
                N_("a negative code keeps its sign in two's complement: −2 is 1110, which is 14")),
        Mistake("sign and size", lambda c: packed(c, sign_and_size),
                N_("that is a sign bit and a size; two's complement is wanted: −2 is 1110, which is 14")),
        Mistake("shifted by eight", lambda c: packed(c, lambda code: code + 8),
                N_("that stores code + 8; two's complement is wanted: code & 15")),
        Mistake("bytes with a sign", lambda c: [byte - 256 if byte > 127 else byte for byte in packed(c)],
                N_("a byte runs from 0 to 255; these are the same bits read with a sign")),
        Mistake("nibbles not cut", lambda c: packed(c, int),
                N_("a negative code has to be cut to four bits (code & 15) before it is joined")),
        Mistake("times ten", lambda c: [a * 10 + b for a, b in zip([x & 15 for x in c[0::2]],
                                                                   [x & 15 for x in c[1::2]] + [0])],
                N_("the second code moves up by four bits, which is a factor of 16")),
    ),
    hints=(
        N_("Write each code as four bits: what is −2 in two's complement?"),
        N_("code & 15 gives the four bits. The second of a pair moves up by four: << 4."),
        N_("byte = (first & 15) | ((second & 15) << 4); where the second is missing, take 0."),
    ),
    stands_for=("mgpt.quantize.pack_int4",),
)


# ---------------------------------------------------------------- 3: unpacking
def unpacked(data, n, code=lambda nibble: nibble - 16 if nibble > 7 else nibble, high_first=False):
    """The first n codes of bytes."""
    nibbles = [nibble for byte in data for nibble in ((byte >> 4, byte & 15) if high_first else (byte & 15, byte >> 4))]
    return [code(nibble) for nibble in nibbles[:n]]


def right_unpacked(data, n):
    return unpack_int4(data, n).tolist()


def draw_bytes(rng):
    codes = [-rng.randrange(2, 8), 7, *(rng.randrange(-7, 8) for _ in range(rng.choice([3, 4, 5, 7])))]
    return right_packed(codes), len(codes)


Q3 = Question(
    "06_quantize.q3", "unpack_codes", points=2, whole=True, reference=right_unpacked, draw=draw_bytes, fresh=8,
    cases=(Case(([14, 65], 4), [-2, 0, 1, 4]), Case(([243, 5], 3), [3, -1, 5]), Case(([214, 44, 183], 6), [6, -3, -4, 2, 7, -5]),
           Case(([9], 1), [-7])),
    mistakes=(
        Mistake("without a sign", lambda d, n: unpacked(d, n, int),
                N_("nibbles 8 to 15 are negative codes: subtract 16 from them")),
        Mistake("first code high", lambda d, n: unpacked(d, n, high_first=True),
                N_("the first code of a pair lies in the low nibble")),
        Mistake("padding kept", lambda d, n: unpacked(d, 2 * len(d)),
                N_("an odd number of codes leaves a nibble of padding at the end: n says where to stop")),
        Mistake("shifted by eight", lambda d, n: unpacked(d, n, lambda nibble: nibble - 8),
                N_("that reads nibbles as code + 8; they are two's complement")),
        Mistake("sign and size", lambda d, n: unpacked(d, n, lambda b: -(b & 7) if b > 7 else b),
                N_("that reads a sign bit and a size; two's complement is wanted: 14 is −2")),
        Mistake("minus fifteen", lambda d, n: unpacked(d, n, lambda b: b - 15 if b > 7 else b),
                N_("four bits have 16 patterns: subtract 16 from nibbles above 7")),
        Mistake("seven made negative", lambda d, n: unpacked(d, n, lambda b: b - 16 if b >= 7 else b),
                N_("7 is the largest positive code; only nibbles above 7 are negative")),
        Mistake("low nibbles only", lambda d, n: unpacked([byte & 15 for byte in d], 2 * n)[::2],
                N_("each byte holds two codes; the high nibble is byte >> 4")),
        Mistake("one code a byte", lambda d, n: [byte - 256 if byte > 127 else byte for byte in d],
                N_("each byte holds two codes: take its nibbles apart")),
        Mistake("all low, then all high", lambda d, n: unpacked(
                    [a | b << 4 for a, b in zip(*[iter([x & 15 for x in d] + [x >> 4 for x in d])] * 2)], n),
                N_("codes come in pairs: low and high nibble of the first byte, then those of the second")),
    ),
    hints=(
        N_("Take a byte apart: its low four bits first, then its high four."),
        N_("byte & 15 and byte >> 4. Which of the 16 patterns are negative?"),
        N_("code = nibble − 16 if nibble > 7 else nibble; at the end keep the first n codes."),
    ),
    stands_for=("mgpt.quantize.unpack_int4",),
)


# ---------------------------------------------------------------- 4: groups
def in_groups(xs, size, *, groups=None, scale=None, code=None, nbytes=None):
    """The right dict, or one with other groups, another rule for scales or codes, or another count of bytes."""
    groups = groups or [xs[start:start + size] for start in range(0, len(xs), size)]
    scales = [(scale or symmetric_scale)(group) for group in groups]
    codes = [c for group, s in zip(groups, scales) for c in (code or code_in_range)(group, s)]
    count = nbytes or (lambda sizes: sum(math.ceil(n / 2) + 4 for n in sizes))
    return {"scales": scales, "codes": codes, "nbytes": count([len(group) for group in groups])}


def code_in_range(group, scale):
    return quantize(group, scale).tolist()


def one_or(value):
    """A scale of 0 made 1, as for a group of zeros."""
    return value or 1.0


def draw_groups(rng):
    """Groups whose largest value is 7 steps of a power of two, an odd size, a short tail, sometimes one of zeros."""
    size, xs = rng.choice([3, 5]), []
    for length in [size] * rng.randrange(2, 4) + [rng.randrange(1, size)]:
        step = rng.choice([0.25, 0.5, 1.0, 2.0])
        group = [step * rng.randrange(-13, 14) / 2 for _ in range(length - 1)]
        group.insert(rng.randrange(length), rng.choice([-7, 7]) * step)
        xs += group
    zeros = rng.randrange(2)
    return ([0.0] * size * zeros + xs, size)


def whole_groups(xs, size):
    return [xs[start:start + size] for start in range(0, len(xs) - size + 1, size)]


Q4 = Question(
    "06_quantize.q4", "quantize_in_groups", points=4, whole=True, reference=in_groups, draw=draw_groups, fresh=8,
    cases=(
        Case(([3.5, 1.25, -0.75, 14.0, -5.0], 3), {"scales": [0.5, 2.0], "codes": [7, 2, -2, 7, -2], "nbytes": 11}),
        Case(([0.0, 0.0, 0.0, -1.75, 0.5, 0.375, 7.0], 3),
             {"scales": [1.0, 0.25, 1.0], "codes": [0, 0, 0, -7, 2, 2, 7], "nbytes": 17}),
        Case(([7.0, 1.0, 3.5, -2.0], 4), {"scales": [1.0], "codes": [7, 1, 4, -2], "nbytes": 6}),
    ),
    mistakes=(
        Mistake("one scale for all", lambda x, g: in_groups(x, g, groups=[x]),
                N_("each group has a scale of its own; this takes one for all values")),
        Mistake("tail forgotten", lambda x, g: in_groups(x, g, groups=whole_groups(x, g)),
                N_("the short last group is a group too: with codes, a scale, and bytes")),
        Mistake("tail joined", lambda x, g: in_groups(x, g, groups=whole_groups(x, g)[:-1] + [
                    x[(len(x) // g - 1) * g:]] if len(x) > g else [x]),
                N_("the short last group has a scale of its own; it is not joined to the group before")),
        Mistake("tail padded in bytes", lambda x, g: in_groups(x, g, nbytes=lambda n: len(n) * (math.ceil(g / 2) + 4)),
                N_("the last group is packed as short as it is; it is not filled up to the group size")),
        Mistake("scales forgotten", lambda x, g: in_groups(x, g, nbytes=lambda n: sum(math.ceil(k / 2) for k in n)),
                N_("each group also stores its scale, four bytes")),
        Mistake("packed across groups", lambda x, g: in_groups(x, g, nbytes=lambda n: math.ceil(sum(n) / 2) + 4 * len(n)),
                N_("each group is packed by itself: an odd one ends in a half-filled byte")),
        Mistake("half bytes", lambda x, g: in_groups(x, g, nbytes=lambda n: sum(k / 2 + 4 for k in n)),
                N_("there are no half bytes: an odd group ends in a half-filled byte, which counts whole")),
        Mistake("not packed", lambda x, g: in_groups(x, g, nbytes=lambda n: sum(k + 4 for k in n)),
                N_("two 4-bit codes share a byte")),
        Mistake("largest without abs", lambda x, g: in_groups(x, g, scale=lambda v: one_or(max(0, *v, 0) / 7)),
                N_("the scale comes from the largest |x|: a large negative value counts as well")),
        Mistake("divided by eight", lambda x, g: in_groups(x, g, scale=lambda v: one_or(max(map(abs, v)) / 8)),
                N_("the largest value gets code 7, the last of the symmetric codes: divide by 7")),
        Mistake("divided by fifteen", lambda x, g: in_groups(x, g, scale=lambda v: one_or((max(v) - min(v)) / 15)),
                N_("that is the step of an affine map; here the scale is max|x| / 7")),
        Mistake("zero scale", lambda x, g: in_groups(
                    x, g, scale=lambda v: max(map(abs, v)) / 7, code=lambda v, s: code_in_range(v, s or 1.0)),
                N_("a group of zeros gets the scale 1: a scale is above 0, so that nothing divides by it in vain")),
        Mistake("half up", lambda x, g: in_groups(x, g, code=lambda v, s: [max(-7, min(7, half_up(a / s))) for a in v]),
                N_("ties go to the even code")),
        Mistake("cut", lambda x, g: in_groups(x, g, code=lambda v, s: [int(a / s) for a in v]),
                N_("int() cuts towards zero; the nearest code is wanted")),
    ),
    hints=(
        N_("Cut the list first: which groups are there, and how long is the last?"),
        N_("For each group by itself: its largest |x|, its scale, its codes, and its bytes."),
        N_("scale = max|x| / 7, or 1 for a group of zeros; codes with round(); bytes: ceil(n / 2) + 4 a group."),
    ),
    stands_for=("mgpt.quantize.quantize_groups",),
)


# ---------------------------------------------------------------- 5: an affine map
def affine(lo, hi, xs, bits, *, scale=None, zero=None, code=None):
    """The right dict, or one with another scale, zero point (each a function of the right pair) or code rule."""
    right = affine_params(lo, hi, bits)
    scale = right[0] if scale is None else scale
    zero = right[1] if zero is None else zero
    codes = quantize_affine(xs, scale, zero, bits).tolist() if code is None else [code(x, scale, zero) for x in xs]
    return {"scale": scale, "zero_point": zero, "codes": codes}


def clamp(bits, value):
    return max(0, min(2**bits - 1, value))


def with_zero(lo, hi, bits):
    """The exact place of the zero point, before it is rounded."""
    return -min(lo, 0) / affine_params(lo, hi, bits)[0]


def tight(lo, hi, bits):
    return (hi - lo) / (2**bits - 1)


def minus_eight(lo, hi, xs, bits):
    right, shift = affine(lo, hi, xs, bits), 2 ** (bits - 1)
    return {"scale": right["scale"], "zero_point": right["zero_point"] - shift,
            "codes": [code - shift for code in right["codes"]]}


def draw_range(rng):
    """A step that is a power of two; ranges across 0 with a zero point between two codes, above 0 and below."""
    bits, step = rng.choice([3, 4, 8]), rng.choice([0.25, 0.5, 2.0])
    top, kind = 2**bits - 1, rng.randrange(4)
    if kind == 0:
        lo, hi = step * rng.randrange(1, top - 1), step * top
    elif kind == 1:
        lo, hi = -step * top, -step * rng.randrange(1, top - 1)
    else:
        below = rng.randrange(0, top - 2) + 0.75
        lo, hi = -step * below, step * (top - below)
    quarters = [rng.randrange(int(4 * lo / step) - 8, int(4 * hi / step) + 9) for _ in range(5)]
    ties = [4 * rng.randrange(math.ceil(lo / step), math.floor(hi / step)) + 2 for _ in range(3)]
    return lo, hi, [step * q / 4 for q in quarters + ties], bits


Q5 = Question(
    "06_quantize.q5", "affine_report", points=4, whole=True, reference=affine, draw=draw_range, fresh=12,
    cases=(
        Case((-1.875, 5.625, [-1.875, 0.0, 0.25, 0.75, 5.625, 9.0], 4),
             {"scale": 0.5, "zero_point": 4, "codes": [0, 4, 4, 6, 15, 15]}),
        Case((-2.5, 5.0, [0.25, 0.75, 1.25, -4.0], 4), {"scale": 0.5, "zero_point": 5, "codes": [5, 7, 7, 0]}),
        Case((5.0, 7.5, [5.0, 6.25, 7.5, 0.0], 4), {"scale": 0.5, "zero_point": 0, "codes": [10, 12, 15, 0]}),
        Case((-7.0, -2.0, [-7.0, -2.0, -3.5, 0.0], 3), {"scale": 1.0, "zero_point": 7, "codes": [0, 5, 3, 7]}),
    ),
    mistakes=(
        Mistake("range without zero", lambda lo, hi, x, b: affine(
                    lo, hi, x, b, scale=tight(lo, hi, b), zero=clamp(b, round(-lo / tight(lo, hi, b)))),
                N_("the range is extended to include 0 before the scale is chosen: 0 must have a code of its own")),
        Mistake("zero point outside the codes", lambda lo, hi, x, b: affine(
                    lo, hi, x, b, scale=tight(lo, hi, b), zero=round(-lo / tight(lo, hi, b)),
                    code=lambda v, s, z: clamp(b, round(v / s) + z)),
                N_("the zero point is itself a code, 0 … 2^bits − 1: extend the range to include 0 first")),
        Mistake("zero point cut", lambda lo, hi, x, b: affine(lo, hi, x, b, zero=int(with_zero(lo, hi, b))),
                N_("int() cuts the zero point; it is rounded to the nearest code")),
        Mistake("added before rounding", lambda lo, hi, x, b: affine(
                    lo, hi, x, b, code=lambda v, s, z: clamp(b, round(v / s + z))),
                N_("that is the rule of another library: here x/s is rounded first, then the zero point is added")),
        Mistake("sixteen steps", lambda lo, hi, x, b: affine(
                    lo, hi, x, b, scale=(max(hi, 0) - min(lo, 0)) / 2**b),
                N_("2^bits codes have 2^bits − 1 steps between them")),
        Mistake("zero point always 0", lambda lo, hi, x, b: affine(lo, hi, x, b, zero=0),
                N_("negative values need codes as well: the zero point lies −lo/s above the first code")),
        Mistake("zero point not added", lambda lo, hi, x, b: affine(
                    lo, hi, x, b, code=lambda v, s, z: clamp(b, round(v / s))),
                N_("the code counts from the zero point: round(x/s) + zero_point")),
        Mistake("not clipped", lambda lo, hi, x, b: affine(lo, hi, x, b, code=lambda v, s, z: round(v / s) + z),
                N_("codes end at 0 and 2^bits − 1: what lies outside the range is clipped")),
        Mistake("signed codes", minus_eight,
                N_("the codes run from 0 to 2^bits − 1 here; these are shifted by 2^(bits−1)")),
        Mistake("half up", lambda lo, hi, x, b: affine(
                    lo, hi, x, b, code=lambda v, s, z: clamp(b, half_up(v / s) + z)),
                N_("ties of x/s go to the even whole number")),
        Mistake("cut", lambda lo, hi, x, b: affine(lo, hi, x, b, code=lambda v, s, z: clamp(b, int(v / s) + z)),
                N_("int() cuts x/s towards zero; the nearest whole number is wanted")),
        Mistake("always four bits", lambda lo, hi, x, b: affine(lo, hi, x, 4),
                N_("the number of codes depends on bits")),
    ),
    hints=(
        N_("First the range: does it contain 0? If not, which end has to move?"),
        N_("s = (hi − lo)/(2^bits − 1) after that. At which code does 0 lie, rounded to the nearest?"),
        N_("lo, hi = min(lo, 0), max(hi, 0); z = round(−lo/s); code = round(x/s) + z, kept within 0 … 2^bits − 1."),
    ),
    stands_for=("mgpt.quantize.affine_params", "mgpt.quantize.quantize_affine"),
)


# ---------------------------------------------------------------- 6: calibration
Q6 = choice(
    "06_quantize.q6", "q6_answer", "b",
    {"a": N_("a larger scale wastes codes, but that is not what makes the figure untrustworthy"),
     "c": N_("both rules are sound; with any of them a scale has to be chosen on other data than those that judge it"),
     "d": N_("the range of weights is known, that of activations has to be estimated from data: calibration is needed")},
    hints=(N_("Which data chose the percentile, and which data judged it?"),
           N_("Of five percentiles the best on these questions was kept. Would it be the best on other questions?"),
           N_("A choice made on the evaluation set grades the choice; new data would give a lower figure.")),
)

QUESTIONS = (Q1, Q2, Q3, Q4, Q5, Q6)
