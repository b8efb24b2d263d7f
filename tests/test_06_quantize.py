"""The checks of 06 are worth their points, and its control shows what mgpt quantizes.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from exercise_lists import install, spoil

from mgpt.course.questions import find
from mgpt.quantize import dequantize, error_split, quantize, quantize_groups
from mgpt.widgets import load
from mgpt.widgets.number_line import number_line

STEM = "06_quantize"


# ------------------------------------------------------------------ right answers, written differently
def q1_with_numpy(xs, scale, bits):
    x, last = np.array(xs), 2 ** (bits - 1) - 1
    near = np.rint(x / scale)
    codes = np.clip(near, -last, last)
    out, squares = abs(near) > last, (codes * scale - x) ** 2
    return {"codes": codes.astype(int), "restored": codes * scale, "clipped": out.sum(),
            "sq_round": squares[~out].sum(), "sq_clip": squares[out].sum()}


def q1_by_cases(xs, scale, bits):
    last = (1 << bits - 1) - 1
    codes, kinds = [], []
    for x in xs:
        ratio = x / scale
        below = math.floor(ratio)
        rest = ratio - below
        near = below + (rest > 0.5 or (rest == 0.5 and below % 2 == 1))
        kinds.append(not -last <= near <= last)
        codes.append(last if near > last else -last if near < -last else near)
    errors = [code * scale - x for code, x in zip(codes, xs)]
    return dict(codes=codes, restored=[code * scale for code in codes], clipped=sum(kinds),
                sq_round=sum(e * e for e, k in zip(errors, kinds) if not k),
                sq_clip=sum(e * e for e, k in zip(errors, kinds) if k))


def q1_with_fractions(xs, scale, bits):
    last = 2 ** (bits - 1) - 1
    near = [round(Fraction(x) / Fraction(scale)) for x in xs]
    codes = [sorted((-last, n, last))[1] for n in near]
    square = [(c * scale - x) ** 2 for c, x in zip(codes, xs)]
    clipped = [c != n for c, n in zip(codes, near)]
    return {"restored": [scale * c for c in codes], "codes": codes, "clipped": clipped.count(True),
            "sq_clip": sum(s for s, c in zip(square, clipped) if c) * 1.0,
            "sq_round": sum(s for s, c in zip(square, clipped) if not c) * 1.0}


def q2_with_a_loop(codes):
    result = []
    for i in range(0, len(codes), 2):
        second = codes[i + 1] if i + 1 < len(codes) else 0
        result.append(codes[i] % 16 + 16 * (second % 16))
    return result


def q2_with_numpy(codes):
    nibbles = np.zeros(len(codes) + len(codes) % 2, np.uint8)
    nibbles[: len(codes)] = np.array(codes, np.int8).view(np.uint8) & 15
    return nibbles[::2] + (nibbles[1::2] << 4)


def q2_with_hex(codes):
    digits = [f"{code % 16:x}" for code in codes] + ["0"] * (len(codes) % 2)
    return list(bytes.fromhex("".join(b + a for a, b in zip(digits[::2], digits[1::2]))))


def q3_with_a_loop(packed, n):
    codes = []
    for i in range(n):
        nibble = packed[i // 2] % 16 if i % 2 == 0 else packed[i // 2] // 16
        codes.append(nibble if nibble < 8 else nibble - 16)
    return codes


def q3_with_numpy(packed, n):
    data = np.array(packed, np.uint8)
    both = np.stack([data & 15, data >> 4], axis=-1).ravel()[:n]
    return (both.astype(int) ^ 8) - 8


def q3_with_bits(packed, n):
    bits = "".join(f"{byte:08b}"[4:] + f"{byte:08b}"[:4] for byte in packed)
    return [int(bits[i + 1:i + 4], 2) - 8 * int(bits[i]) for i in range(0, 4 * n, 4)]


def q4_with_divmod(xs, group_size):
    full, rest = divmod(len(xs), group_size)
    sizes = [group_size] * full + [rest] * bool(rest)
    scales, codes = [], []
    for i, size in enumerate(sizes):
        group = xs[i * group_size:i * group_size + size]
        top = max(max(group), -min(group))
        scales.append(top / 7 if top else 1.0)
        codes.extend(round(x / scales[-1]) for x in group)
    return {"scales": scales, "codes": codes, "nbytes": sum(-(-size // 2) for size in sizes) + 4 * len(sizes)}


def q4_with_numpy(xs, group_size):
    groups = np.split(np.array(xs), range(group_size, len(xs), group_size))
    scales = [abs(g).max() / 7 if g.any() else 1.0 for g in groups]
    codes = np.concatenate([np.rint(g / s) for g, s in zip(groups, scales)]).astype(int)
    return {"scales": scales, "codes": codes, "nbytes": sum(math.ceil(len(g) / 2) + 4 for g in groups)}


def q4_value_by_value(xs, group_size):
    tops = {}
    for i, x in enumerate(xs):
        tops[i // group_size] = max(tops.get(i // group_size, 0), abs(x))
    scales = [top / 7 or 1 for top in tops.values()]
    codes = [round(x / scales[i // group_size]) for i, x in enumerate(xs)]
    nbytes = sum(4 + (min(group_size, len(xs) - g * group_size) + 1) // 2 for g in tops)
    return {"scales": scales, "codes": codes, "nbytes": nbytes}


def q5_with_numpy(lo, hi, xs, bits):
    lo, hi = np.minimum(lo, 0.0), np.maximum(hi, 0.0)
    scale = (hi - lo) / (2**bits - 1)
    zero = int(np.clip(np.rint(0 - lo / scale), 0, 2**bits - 1))
    return {"scale": scale, "zero_point": zero,
            "codes": np.clip(np.rint(np.array(xs) / scale) + zero, 0, 2**bits - 1).astype(int)}


def q5_by_cases(lo, hi, xs, bits):
    if lo > 0:
        lo = 0
    if hi < 0:
        hi = 0
    last = 2**bits - 1
    step, zero = (hi - lo) / last, round(-lo * last / (hi - lo))
    codes = []
    for x in xs:
        code = round(x / step) + zero
        if code < 0:
            code = 0
        if code > last:
            code = last
        codes.append(code)
    return dict(codes=codes, zero_point=zero, scale=step)


def q5_with_fractions(lo, hi, xs, bits):
    low, high = min(Fraction(lo), Fraction(0)), max(Fraction(hi), Fraction(0))
    step = (high - low) / (2**bits - 1)
    zero = round(-low / step)
    return {"scale": float(step), "zero_point": zero,
            "codes": [sorted((0, round(Fraction(x) / step) + zero, 2**bits - 1))[1] for x in xs]}


RIGHT = {
    "q1": [q1_by_cases, q1_with_numpy, q1_with_fractions],
    "q2": [q2_with_a_loop, q2_with_numpy, q2_with_hex],
    "q3": [q3_with_a_loop, q3_with_numpy, q3_with_bits],
    "q4": [q4_with_divmod, q4_with_numpy, q4_value_by_value],
    "q5": [q5_by_cases, q5_with_numpy, q5_with_fractions],
}


# ------------------------------------------------------------------ known wrong answers
def coded(rule=lambda r: round(r), ends=lambda last: (-last, last), is_clipped=None):
    """q1 with another rounding, other ends of the codes, or another judgement of what is clipped."""
    def answer(xs, scale, bits):
        last = 2 ** (bits - 1) - 1
        low, high = ends(last)
        near = [int(rule(x / scale)) for x in xs]
        codes = [min(max(n, low), high) for n in near]
        out = [is_clipped(x, scale, c, last) if is_clipped else n != c for x, n, c in zip(xs, near, codes)]
        gaps = [(c * scale - x) ** 2 for c, x in zip(codes, xs)]
        return {"codes": codes, "restored": [c * scale for c in codes], "clipped": sum(out),
                "sq_round": float(sum(g for g, o in zip(gaps, out) if not o)),
                "sq_clip": float(sum(g for g, o in zip(gaps, out) if o))}

    return answer


def gathered(measure, clipped):
    def entry(r, xs, scale, bits):
        last = 2 ** (bits - 1) - 1
        return float(sum(measure(back - x) for x, back in zip(xs, r["restored"])
                         if (abs(round(x / scale)) > last) == clipped))

    return entry


def joined(nibble=lambda c: c % 16, swap=False, pad=0):
    def answer(codes):
        n = [nibble(c) for c in codes]
        if len(n) % 2:
            n.append(pad(codes) if callable(pad) else pad)
        return [n[i] * 16 + n[i + 1] if swap else n[i] | (n[i + 1] << 4) for i in range(0, len(n), 2)]

    return answer


def taken(code=lambda b: (b + 8) % 16 - 8, swap=False, keep=lambda d, n: n):
    def answer(packed, n):
        nibbles = []
        for byte in packed:
            nibbles += [byte // 16, byte % 16] if swap else [byte % 16, byte // 16]
        return [code(b) for b in nibbles][: keep(packed, n)]

    return answer


def cut(xs, size):
    return [xs[i:i + size] for i in range(0, len(xs), size)]


def joined_tail(xs, size):
    groups = cut(xs, size)
    if len(groups) > 1 and len(groups[-1]) < size:
        tail = groups.pop()
        groups[-1] = groups[-1] + tail
    return groups


def grouped(parts=cut, top=lambda g: max(abs(x) for x in g) / 7 or 1.0, rule=round,
            size=lambda groups, g: sum((len(p) + 1) // 2 + 4 for p in groups)):
    def answer(xs, group_size):
        groups = parts(xs, group_size)
        scales = [top(g) for g in groups]
        codes = [max(-7, min(7, rule(x / (s or 1.0)))) for g, s in zip(groups, scales) for x in g]
        return {"scales": scales, "codes": codes, "nbytes": size(groups, group_size)}

    return answer


def mapped(extend=True, steps=lambda b: 2**b - 1, zero=round, clip_zero=True, code=lambda r, z: round(r) + z, clip=True,
           bits_of=lambda b: b):
    def answer(lo, hi, xs, bits):
        bits = bits_of(bits)
        last = 2**bits - 1
        if extend:
            lo, hi = min(lo, 0), max(hi, 0)
        scale = (hi - lo) / steps(bits)
        z = zero(-lo / scale)
        z = min(max(z, 0), last) if clip_zero else z
        codes = [code(x / scale, z) for x in xs]
        return {"scale": scale, "zero_point": z, "codes": [min(max(c, 0), last) for c in codes] if clip else codes}

    return answer


def shifted(lo, hi, xs, bits):
    right, half = q5_by_cases(lo, hi, xs, bits), 2 ** (bits - 1)
    return {"scale": right["scale"], "zero_point": right["zero_point"] - half, "codes": [c - half for c in right["codes"]]}


def sixteen(lo, hi, xs, bits):
    right = q5_by_cases(lo, hi, xs, bits)
    scale = (max(hi, 0) - min(lo, 0)) / 2**bits
    return {**right, "scale": scale, "codes": [sorted((0, round(x / scale) + right["zero_point"], 2**bits - 1))[1] for x in xs]}


q1 = q1_by_cases
WRONG = {
    "q1": {
        "half up": coded(lambda r: math.floor(r + 0.5)),
        "half away from zero": coded(lambda r: math.copysign(int(abs(r) + 0.5), r)),
        "truncated": coded(math.trunc),
        "not clipped": coded(ends=lambda last: (-10**6, 10**6)),
        "lowest code used": coded(ends=lambda last: (-last - 1, last)),
        "always four bits": coded(ends=lambda last: (-7, 7)),
        "codes without a sign": coded(ends=lambda last: (0, 2 * last + 1)),
        "clipping called rounding": spoil(q1, clipped=lambda r, *a: 0, sq_clip=lambda r, *a: 0.0,
                                          sq_round=lambda r, *a: r["sq_round"] + r["sq_clip"]),
        "clipped by value": coded(is_clipped=lambda x, s, c, last: x > last * s or x < -last * s),
        "the last code called clipped": coded(is_clipped=lambda x, s, c, last: c in (last, -last)),
        "errors without squares": spoil(q1, sq_round=gathered(abs, False), sq_clip=gathered(abs, True)),
        "signed errors added": spoil(q1, sq_round=gathered(float, False), sq_clip=gathered(float, True)),
        "codes as values": spoil(q1, restored=lambda r, *a: [c * 1.0 for c in r["codes"]]),
        "kinds swapped": spoil(q1, sq_round=lambda r, *a: r["sq_clip"], sq_clip=lambda r, *a: r["sq_round"]),
    },
    "q2": {
        "first code high": joined(swap=True),
        "not packed": lambda codes: [c % 16 for c in codes],
        "eight bits each": lambda codes: [c % 256 for c in codes],
        "odd tail lost": lambda codes: joined()(codes[:-1] if len(codes) % 2 else codes),
        "tail filled with ones": joined(pad=15),
        "last code twice": joined(pad=lambda codes: codes[-1] % 16),
        "sign lost": joined(abs),
        "sign and size": joined(lambda c: 8 - c if c < 0 else c),
        "shifted by eight": joined(lambda c: c + 8),
        "bytes with a sign": lambda codes: [(b + 128) % 256 - 128 for b in joined()(codes)],
        "nibbles not cut": joined(lambda c: c),
        "times ten": lambda codes: [b % 16 * 10 + b // 16 for b in joined()(codes)],
    },
    "q3": {
        "without a sign": taken(lambda b: b),
        "first code high": taken(swap=True),
        "padding kept": taken(keep=lambda d, n: 2 * len(d)),
        "shifted by eight": taken(lambda b: b - 8),
        "sign and size": taken(lambda b: 8 - b if b >= 8 else b),
        "minus fifteen": taken(lambda b: b - 15 if b >= 8 else b),
        "seven made negative": taken(lambda b: b - 16 if b >= 7 else b),
        "low nibbles only": lambda d, n: [(b % 16 + 8) % 16 - 8 for b in d],
        "one code a byte": lambda d, n: [(b + 128) % 256 - 128 for b in d],
        "all low, then all high": lambda d, n: [(b + 8) % 16 - 8 for b in [x % 16 for x in d] + [x // 16 for x in d]][:n],
    },
    "q4": {
        "one scale for all": grouped(lambda xs, g: [xs]),
        "tail forgotten": grouped(lambda xs, g: [p for p in cut(xs, g) if len(p) == g]),
        "tail joined": grouped(joined_tail),
        "tail padded in bytes": grouped(size=lambda groups, g: len(groups) * ((g + 1) // 2 + 4)),
        "scales forgotten": grouped(size=lambda groups, g: sum((len(p) + 1) // 2 for p in groups)),
        "packed across groups": grouped(size=lambda groups, g: (sum(map(len, groups)) + 1) // 2 + 4 * len(groups)),
        "half bytes": grouped(size=lambda groups, g: 4 * len(groups) + sum(map(len, groups)) / 2),
        "not packed": grouped(size=lambda groups, g: sum(map(len, groups)) + 4 * len(groups)),
        "largest without abs": grouped(top=lambda g: max(max(g), 0) / 7 or 1.0),
        "divided by eight": grouped(top=lambda g: max(map(abs, g)) / 8 or 1.0),
        "divided by fifteen": grouped(top=lambda g: (max(g) - min(g)) / 15 or 1.0),
        "zero scale": grouped(top=lambda g: max(map(abs, g)) / 7),
        "half up": grouped(rule=lambda r: math.floor(r + 0.5)),
        "cut": grouped(rule=math.trunc),
    },
    "q5": {
        "range without zero": mapped(extend=False),
        "zero point outside the codes": mapped(extend=False, clip_zero=False),
        "zero point cut": mapped(zero=math.floor),
        "added before rounding": mapped(code=lambda r, z: round(r + z)),
        "sixteen steps": sixteen,
        "zero point always 0": mapped(zero=lambda place: 0),
        "zero point not added": mapped(code=lambda r, z: round(r)),
        "not clipped": mapped(clip=False),
        "signed codes": shifted,
        "half up": mapped(code=lambda r, z: math.floor(r + 0.5) + z),
        "cut": mapped(code=lambda r, z: math.trunc(r) + z),
        "always four bits": mapped(bits_of=lambda bits: 4),
    },
}

install(globals(), STEM, RIGHT, WRONG)


def test_the_chapters_own_numbers_are_visible_cases():
    """Table 30.2's codes packed; 8 with s = 0.5 clipped by 4.5; an affine range of 5 and above that is extended to 0."""
    assert (find(f"{STEM}.q2").cases[0].args, find(f"{STEM}.q2").cases[0].expected) == (([-2, 0, 1, 4],), [14, 65])
    first = find(f"{STEM}.q1").cases[0]
    assert first.args[0][-1] == 8.0 and first.expected["sq_clip"] == 4.5**2
    assert find(f"{STEM}.q5").cases[2].expected["zero_point"] == 0


# ------------------------------------------------------------------ the control
def state(**given):
    return load("quantizer").read(given)


def test_the_control_shows_table_30_2_and_the_clipped_eight():
    rows = load("quantizer").view(state(values="-1.2 -0.2 0.7 1.8 8")).rows
    assert [row[0] for row in rows] == ["−1.2", "−0.2", "0.7", "1.8", "8"]
    assert [row[2] for row in rows] == ["−2.4", "−0.4", "1.4", "3.6", "16"]
    assert [row[3] for row in rows] == ["−2", "0", "1", "4", "7"]
    assert [row[4] for row in rows] == ["−1", "0", "0.5", "2", "3.5"]
    assert [row[5] for row in rows] == ["0.2", "0.2", "−0.2", "0.2", "−4.5"]
    assert [row[6] for row in rows] == ["rounding"] * 4 + ["clipped"]


def test_ties_and_exact_values_have_their_names():
    rows = load("quantizer").view(state(values="0.75 1.25 -0.75 1 3.5 3.74 3.75")).rows
    assert [(row[3], row[6]) for row in rows] == [
        ("2", "tie, to even"), ("2", "tie, to even"), ("−2", "tie, to even"), ("2", "none"), ("7", "none"),
        ("7", "rounding"), ("7", "clipped")]


@pytest.mark.parametrize("bits, group", [(4, 12), (4, 4), (8, 3), (3, 1), (2, 5)])
def test_groups_are_those_of_mgpt_with_its_bytes(bits, group):
    values = np.array([-1.2, 0.31, 0.7, 1.8, 20.0, -0.05, 0.4])
    view = load("quantizer").view(state(values=" ".join(map(str, values)), rule="absmax", bits=bits, group=group))
    expected = quantize_groups(values, group, bits)
    assert [row[3].replace("−", "-") for row in view.rows] == [str(code) for code in expected.codes]
    assert f"make {expected.nbytes};" in view.sentence and "take 28." in view.sentence
    assert len({row[1] for row in view.rows}) == len(set(np.round(expected.scales, 4)))


def test_the_sentence_tells_rounding_and_clipping_apart_over_all_groups():
    values = np.array([8.0, -1.2, -0.2, 0.7, 1.8, 9.0])
    split = error_split(values, 0.5)
    sentence = load("quantizer").view(state(values="8 -1.2 -0.2 0.7 1.8 9", group=2)).sentence
    assert (round(split.sum_sq_round, 12), split.sum_sq_clip) == (0.16, 50.5)
    assert "0.16 by rounding, 50.5 by clipping" in sentence and "3 of codes and 12 of scales make 15" in sentence


@pytest.mark.parametrize("text", ["", "one two", "1 2 nan", "1e9", "1 2 3 4 5 6 7 8 9 10 11 12 13", "inf"])
def test_a_line_that_is_no_list_of_values_gets_a_sentence(text):
    assert "1 to 12 numbers" in load("quantizer").view_html({"values": text})


def test_the_number_line_has_hollow_and_solid_marks_bars_and_walls():
    values = np.array([-1.2, 8.0])
    codes = quantize(values, 0.5)
    rows = list(zip(values, codes, dequantize(codes, 0.5), [False, True]))
    figure = number_line("figure-test", "Two values", [(0.5, rows)], 4)
    svg = figure.svg()
    assert "−1.2 becomes −1, 8 becomes 3.5" in figure.description
    assert svg.count('width="11" height="11" fill="none"') == 2  # hollow
    assert svg.count('width="7" height="7" fill="var(--mgpt-k)"') == 2  # solid
    assert svg.count("url(#figure-test-hatch)") == 1 and svg.count('stroke-width="3"') == 2  # clipped bar, walls
    hollow, solid = (float(re.search(rf'x="([^"]+)" y="[^"]+" width="{size}" height="{size}"', svg)[1]) + size / 2
                     for size in (11, 7))
    assert hollow < solid  # -1.2 lies left of -1
