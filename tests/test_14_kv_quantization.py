"""The checks of chapter 14 are worth their points; its control and figures show what `mgpt` says.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import html
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from exercise_lists import install, spoil

from mgpt.cache import KVCache
from mgpt.checkpoint import load_mg2
from mgpt.model import forward
from mgpt.policy import TRAVEL_PROMPT, questions, split_of
from mgpt.quantize import quantize_groups
from mgpt.quantized_cache import QuantizedKVCache
from mgpt.widgets import kv_bits, load, respond
from mgpt.widgets.error_chart import error_by_position, error_chart
from mgpt.widgets.scale_sharing import scale_sharing

STEM = "14_kv_quantization"


def scale_for(values, bits):
    top = max(abs(v) for v in values)
    return top / (2 ** (bits - 1) - 1) if top > 0 else 1.0


# ------------------------------------------------------------------ 1: right answers, written differently
def q1_records(steps, bits):
    """One record a position: (scale, codes)."""
    held, reads = [], []
    for step in steps:
        if isinstance(step, list):
            held = held + [(scale_for(v, bits), [round(x / scale_for(v, bits)) for x in v]) for v in step]
            reads.append([[s * c for c in codes] for s, codes in held])
        else:
            held = held[:step]
    return {"reads": reads, "scales": [s for s, _ in held], "codes": [codes for _, codes in held]}


def q1_restored_kept(steps, bits):
    """Restored rows are kept beside the codes and handed out as copies."""
    codes, scales, rows, reads = [], [], [], []
    for step in steps:
        if not isinstance(step, list):
            for kept in (codes, scales, rows):
                del kept[step:]
            continue
        for v in step:
            scales.append(scale_for(v, bits))
            codes.append([int(round(x / scales[-1])) for x in v])
            rows.append([scales[-1] * c for c in codes[-1]])
        reads.append([row[:] for row in rows])
    return {"codes": codes, "scales": scales, "reads": reads}


def q1_arrays(steps, bits):
    """With the engine's own groups, in float64."""
    width = len(next(step for step in steps if isinstance(step, list))[0])
    codes, scales, reads = np.zeros((0, width), np.int8), np.zeros((0, 1)), []
    for step in steps:
        if isinstance(step, list):
            new = quantize_groups(np.array(step, dtype=float), width, bits, scale_dtype=np.float64)
            codes, scales = np.vstack([codes, new.codes]), np.vstack([scales, new.scales])
            reads.append((codes * scales).tolist())
        else:
            codes, scales = codes[:step], scales[:step]
    return {"codes": codes.tolist(), "scales": scales.ravel().tolist(), "reads": reads}


def q1(chosen=scale_for, nearest=round, cut=lambda held, n: (held[0][:n], held[1][:n]), read=None, whole=None,
       clip=True):
    """A learner's loop with one thing done otherwise; `whole(scales, old, step)` rewrites the scales after an append."""
    def answer(steps, bits):
        qmax = 2 ** (bits - 1) - 1
        codes, scales, reads = [], [], []
        for step in steps:
            if isinstance(step, int):
                codes, scales = cut((codes, scales), step)
                continue
            old = len(codes)
            for v in step:
                s = chosen(v, bits) if chosen.__code__.co_argcount == 2 else chosen(v, bits, step, scales)
                scales = scales + [s]
                new = [nearest(x / s if s else 0.0) for x in v]
                codes = codes + [[max(-qmax, min(qmax, code)) for code in new] if clip else new]
            scales = whole(scales) if whole else scales
            rows = [[s * c for c in row] for s, row in zip(scales, codes)]
            reads.append(read(rows, old, step) if read else rows)
        return {"codes": codes, "scales": scales, "reads": reads}

    return answer


def floor_half(ratio):
    return math.floor(ratio + 0.5)


def away(ratio):
    return int(ratio + 0.5) if ratio >= 0 else int(ratio - 0.5)


def too_far(values, bits):
    return max(map(abs, values)) / 2 ** (bits - 1) or 1.0


def signed(values, bits):
    return max(values) / (2 ** (bits - 1) - 1) or 1.0


WRONG_Q1 = {
    "new rows read exactly": q1(read=lambda rows, old, step: rows[:old] + step),
    "one scale for the cache": q1(lambda v, bits, step, scales: scales[0] if scales else scale_for(v, bits)),
    "one scale for the cache, not clipped": q1(
        lambda v, bits, step, scales: scales[0] if scales else scale_for(v, bits), clip=False),
    "one scale for an append": q1(lambda v, bits, step, scales: scale_for(sum(step, []), bits)),
    "the newest scale for all": q1(whole=lambda scales: [scales[-1] for _ in scales]),
    "only the new rows": q1(read=lambda rows, old, step: rows[old:]),
    "only the old rows": q1(read=lambda rows, old, step: rows[:old]),
    "truncate drops n": q1(cut=lambda held, n: tuple(kept[:len(kept) - min(n, len(kept))] for kept in held)),
    "truncate ignored": q1(cut=lambda held, n: held),
    "scales not truncated": q1(cut=lambda held, n: (held[0][:n], held[1])),
    "codes not truncated": q1(cut=lambda held, n: (held[0], held[1][:n])),
    "divided by 2^(bits - 1)": q1(lambda v, bits: max(map(abs, v)) / 2 ** (bits - 1) or 1.0),
    "largest without abs": q1(lambda v, bits: max(*v, 0.0) / (2 ** (bits - 1) - 1) or 1.0),
    "zeros get scale 0": q1(lambda v, bits: max(map(abs, v)) / (2 ** (bits - 1) - 1)),
    "divided by 2^(bits - 1), not clipped": q1(too_far, clip=False),
    "largest without abs, not clipped": q1(signed, clip=False),
    "half up": q1(nearest=floor_half),
    "half away": q1(nearest=away),
    "cut": q1(nearest=int),
    "always four bits": lambda steps, bits: q1_records(steps, 4),
}


# ------------------------------------------------------------------ 2
def q2_cells(rows, per, size, bits):
    """Each cell asks for the scale of its group."""
    n, d = len(rows), len(rows[0])
    lines = n if per == "token" else d
    length = d if per == "token" else n

    def cell(line, i):
        return rows[line][i] if per == "token" else rows[i][line]

    def group(line, g):
        return [cell(line, i) for i in range(g * size, min(length, (g + 1) * size))]

    scales = [[scale_for(group(line, g), bits) for g in range(-(-length // size))] for line in range(lines)]
    back = [[0.0] * d for _ in rows]
    for i in range(n):
        for j in range(d):
            line, at = (i, j) if per == "token" else (j, i)
            s = scales[line][at // size]
            back[i][j] = s * round(rows[i][j] / s)
    sizes = [len(group(line, g)) for line in range(lines) for g in range(len(scales[line]))]
    return {"scales": scales, "restored": back, "nbytes": sum(math.ceil(k * bits / 8) + 4 for k in sizes),
            "worst": max(abs(back[i][j] - rows[i][j]) for i in range(n) for j in range(d))}


def q2_arrays(rows, per, size, bits):
    """quantize_groups counts 8 bytes for a float64 scale; the question counts 4."""
    table = np.array(rows) if per == "token" else np.array(rows).T
    groups = quantize_groups(table, size, bits, scale_dtype=np.float64)
    back = groups.dequantize()
    return {"scales": groups.scales.tolist(), "restored": (back if per == "token" else back.T).tolist(),
            "worst": float(np.abs(back - table).max()), "nbytes": groups.nbytes - 4 * groups.scales.size}


def q2_turn_and_recurse(rows, per, size, bits):
    if per == "channel":
        other = q2_turn_and_recurse([list(column) for column in zip(*rows)], "token", size, bits)
        return {**other, "restored": [list(row) for row in zip(*other["restored"])]}
    scales, restored, nbytes = [], [], 0
    for row in rows:
        parts = [row[i:i + size] for i in range(0, len(row), size)]
        scales.append([scale_for(part, bits) for part in parts])
        restored.append([s * round(x / s) for part, s in zip(parts, scales[-1]) for x in part])
        nbytes += sum((len(part) * bits + 7) // 8 + 4 for part in parts)
    worst = max(abs(a - b) for one, two in zip(rows, restored) for a, b in zip(one, two))
    return {"scales": scales, "restored": restored, "worst": worst, "nbytes": nbytes}


def q2(parts=None, chosen=scale_for, nearest=round, clip=True):
    """A learner's function with another cut, scale or rounding; all else follows."""
    def answer(rows, per, size, bits):
        qmax = 2 ** (bits - 1) - 1 if clip else 10**9
        table = rows if per == "token" else list(map(list, zip(*rows)))
        cut = [(parts or (lambda v, n: [v[i:i + n] for i in range(0, len(v), n)]))(line, size) for line in table]
        scales = [[chosen(part, bits) for part in line] for line in cut]
        back = [[s * max(-qmax, min(qmax, nearest(x / s if s else 0.0))) for part, s in zip(line, ss) for x in part]
                for line, ss in zip(cut, scales)]
        worst = max(abs(a - b) for one, two in zip(table, back) for a, b in zip(one, two))
        return {"scales": scales, "restored": back if per == "token" else list(map(list, zip(*back))), "worst": worst,
                "nbytes": sum(math.ceil(len(part) * bits / 8) + 4 for line in cut for part in line)}

    return answer


def q2_bytes(count):
    """The right dict with other bytes: count(lengths of a line's groups, size, bits), summed over lines."""
    def nbytes(_right, rows, per, size, bits):
        n_lines, length = (len(rows), len(rows[0])) if per == "token" else (len(rows[0]), len(rows))
        lengths = [size] * (length // size) + [length % size] * (length % size > 0)
        return n_lines * count(lengths, size, bits)

    return spoil(q2_cells, nbytes=nbytes)


def only_whole(values, size):
    full = len(values) // size * size
    return [values[i:i + size] for i in range(0, full, size)] or [values]


def with_tail(values, size):
    full = only_whole(values, size)
    tail = values[len(full) * size:]
    return full[:-1] + [full[-1] + tail]


def differences(right, rows):
    return [b - a for one, two in zip(rows, right["restored"]) for a, b in zip(one, two)]


WRONG_Q2 = {
    "the other way": lambda rows, per, size, bits: q2_cells(rows, {"token": "channel"}.get(per, "token"), size, bits),
    "left turned": spoil(q2_cells, restored=lambda r, rows, per, *_: r["restored"] if per == "token" else [
        list(column) for column in zip(*r["restored"])]),
    "always per token": lambda rows, per, size, bits: q2_cells(rows, "token", size, bits),
    "one scale a line": lambda rows, per, size, bits: q2_cells(rows, per, 10**6, bits),
    "tail without a scale": q2(only_whole),
    "tail joined": q2(with_tail),
    "mean error": spoil(q2_cells, worst=lambda r, rows, *_: math.fsum(map(abs, differences(r, rows)))
                        / len(differences(r, rows))),
    "signed error": spoil(q2_cells, worst=lambda r, rows, *_: max(differences(r, rows))),
    "scales not counted": q2_bytes(lambda lengths, size, bits: sum(-(-n * bits // 8) for n in lengths)),
    "tail padded in bytes": q2_bytes(lambda lengths, size, bits: len(lengths) * (-(-size * bits // 8) + 4)),
    "packed across groups": q2_bytes(lambda lengths, size, bits: -(-sum(lengths) * bits // 8) + 4 * len(lengths)),
    "parts of bytes": q2_bytes(lambda lengths, size, bits: sum(lengths) * bits / 8 + 4 * len(lengths)),
    "parts of bytes cut off": q2_bytes(lambda lengths, size, bits: sum(n * bits // 8 + 4 for n in lengths)),
    "not packed": q2_bytes(lambda lengths, size, bits: sum(lengths) + 4 * len(lengths)),
    "largest without abs": q2(chosen=lambda v, bits: max([*v, 0.0]) / (2 ** (bits - 1) - 1) or 1.0),
    "divided by 2^(bits - 1)": q2(chosen=lambda v, bits: max(map(abs, v)) / 2 ** (bits - 1) or 1.0),
    "zeros get scale 0": q2(chosen=lambda v, bits: max(map(abs, v)) / (2 ** (bits - 1) - 1)),
    "divided by 2^(bits - 1), not clipped": q2(chosen=too_far, clip=False),
    "largest without abs, not clipped": q2(chosen=signed, clip=False),
    "half up": q2(nearest=floor_half),
    "half away": q2(nearest=away),
    "cut": q2(nearest=int),
}


# ------------------------------------------------------------------ 3
def q3_formula(model, cache, block_size, budget_gib, positions):
    token = 0
    for bits in (cache["k_bits"], cache["v_bits"]):
        full, tail = divmod(model["width"], cache["group"])
        meta = cache["scale_bytes"] + cache["zero_bytes"]
        quantized = full * (-(-cache["group"] * bits // 8) + meta) + (-(-tail * bits // 8) + meta) * (tail > 0)
        token += 2 * model["width"] if bits == 16 else quantized
    token *= model["layers"] * model["kv_heads"]
    blocks = math.floor(Fraction(budget_gib * 1024**3, block_size * token))
    return {"token": token, "blocks": blocks, "requests": math.floor(Fraction(blocks, math.ceil(positions / block_size)))}


def q3_value_by_value(model, cache, block_size, budget_gib, positions):
    """Walk over the values of a vector; a group ends where its place is full."""
    def vector(bits):
        total, pending = 0, 0
        for place in range(model["width"]):
            if bits == 16:
                total += 2
                continue
            if place % cache["group"] == 0:
                total += math.ceil(pending / 8) + cache["scale_bytes"] + cache["zero_bytes"]
                pending = 0
            pending += bits
        return total + math.ceil(pending / 8)

    token = sum(map(vector, (cache["k_bits"], cache["v_bits"]))) * model["layers"] * model["kv_heads"]
    blocks = (budget_gib << 30) // (token * block_size)
    return dict(token=token, blocks=blocks, requests=blocks // ((positions + block_size - 1) // block_size))


def q3_try_out(model, cache, block_size, budget_gib, positions):
    """Requests by the whole bytes that one takes."""
    right = q3_formula(model, cache, block_size, 1, 1)
    block = right["token"] * block_size
    blocks = budget_gib * 2**30 // block
    taken = len(range(0, positions, block_size))
    return {"token": right["token"], "blocks": blocks, "requests": int(blocks // taken)}


def q3(unit=2**30, sides=("k_bits", "v_bits"), vector=None, times=1, change=lambda model, cache: (model, cache),
       blocks=lambda budget, block: budget // block, fit=lambda blocks, size, n: blocks // math.ceil(n / size)):
    """A learner's function with one factor otherwise."""
    def one(width, bits, cache):
        if bits == 16:
            return 2 * width
        lengths = [cache["group"]] * (width // cache["group"]) + [width % cache["group"]] * (width % cache["group"] > 0)
        return sum(math.ceil(n * bits / 8) + cache["scale_bytes"] + cache["zero_bytes"] for n in lengths)

    def answer(model, cache, block_size, budget_gib, positions):
        model, cache = change(model, cache)
        token = times * model["layers"] * model["kv_heads"] * sum((vector or one)(model["width"], cache[s], cache)
                                                                for s in sides)
        n = blocks(budget_gib * unit, block_size * token)
        return {"token": token, "blocks": n, "requests": fit(n, block_size, positions)}

    return answer


def no_tail(width, bits, cache):
    meta = cache["scale_bytes"] + cache["zero_bytes"]
    codes = sum(math.ceil(min(cache["group"], width - i) * bits / 8) for i in range(0, width, cache["group"]))
    return 2 * width if bits == 16 else codes + max(1, width // cache["group"]) * meta


def whole_tail(width, bits, cache):
    groups = math.ceil(width / cache["group"])
    one = math.ceil(cache["group"] * bits / 8) + cache["scale_bytes"] + cache["zero_bytes"]
    return 2 * width if bits == 16 else groups * one


def across(width, bits, cache):
    meta = cache["scale_bytes"] + cache["zero_bytes"]
    return 2 * width if bits == 16 else width * bits // 8 + math.ceil(width / cache["group"]) * meta


def scales_for_16(width, bits, cache):
    meta = cache["scale_bytes"] + cache["zero_bytes"]
    return sum(math.ceil(min(cache["group"], width - i) * bits / 8) + meta for i in range(0, width, cache["group"]))


WRONG_Q3 = {
    "GB for GiB": q3(unit=1000**3),
    "scales forgotten": q3(change=lambda m, c: (m, {**c, "scale_bytes": 0})),
    "zero points forgotten": q3(change=lambda m, c: (m, {**c, "zero_bytes": 0})),
    "the tail's scale forgotten": q3(vector=no_tail),
    "the tail counted whole": q3(vector=whole_tail),
    "packed across groups": q3(vector=across),
    "K's bits for V": q3(change=lambda m, c: (m, {**c, "v_bits": c["k_bits"]})),
    "only one side": q3(sides=("k_bits",)),
    "float16 with scales": q3(vector=scales_for_16),
    "no whole blocks": q3(fit=lambda blocks, size, n: blocks * size // n),
    "the last block forgotten": q3(fit=lambda blocks, size, n: blocks // max(1, n // size)),
    "blocks rounded up": q3(blocks=lambda budget, block: -(-budget // block)),
    "one layer": q3(change=lambda m, c: ({**m, "layers": 1}, c)),
    "one KV head": q3(change=lambda m, c: ({**m, "kv_heads": 1}, c)),
    "doubled": q3(times=2),
}


# ------------------------------------------------------------------ 4
def q4_arrays(exact, stored):
    a, b = np.array(exact), np.array(stored)
    errors = np.abs(a - b).max(axis=1)
    ordered = np.sort(a, axis=1)
    return {"mean": errors.mean(), "worst": errors.max(), "position": int(errors.argmax()),
            "changed": np.flatnonzero(a.argmax(axis=1) != b.argmax(axis=1)).tolist(),
            "open": np.flatnonzero(ordered[:, -1] - ordered[:, -2] <= 2 * errors).tolist()}


def q4_one_pass(exact, stored):
    total, worst, at, changed, unsafe = 0.0, -1.0, None, [], []
    for i in range(len(exact)):
        error = 0.0
        for a, b in zip(exact[i], stored[i]):
            error = max(error, a - b, b - a)
        total += error
        if error > worst:
            worst, at = error, i
        best = max(range(len(exact[i])), key=exact[i].__getitem__)
        others = exact[i][:best] + exact[i][best + 1:]
        if best != max(range(len(stored[i])), key=stored[i].__getitem__):
            changed.append(i)
        if not exact[i][best] - max(others) > 2 * error:
            unsafe.append(i)
    return {"mean": total / len(exact), "worst": worst, "position": at, "changed": changed, "open": unsafe}


def q4_comprehensions(exact, stored):
    e = [max(map(abs, map(float.__sub__, map(float, a), map(float, b)))) for a, b in zip(exact, stored)]
    tops = [sorted(a, reverse=True)[:2] for a in exact]
    return dict(mean=sum(e) / len(e), worst=max(e), position=min(range(len(e)), key=lambda i: (-e[i], i)),
                changed=[i for i, (a, b) in enumerate(zip(exact, stored)) if a.index(max(a)) != b.index(max(b))],
                open=[i for i, (x, y) in enumerate(tops) if x - y - 2 * e[i] <= 0])


def q4(error=lambda a, b: max(abs(x - y) for x, y in zip(a, b)), last=False, opens=lambda m, e, all_e: m <= 2 * e,
       margin_of=lambda a, b: a, mean=lambda errors: math.fsum(errors) / len(errors), first=0):
    """A learner's function with one thing done otherwise."""
    def choice_of(row):
        return max(i for i, x in enumerate(row) if x == max(row)) if last else row.index(max(row))

    def answer(exact, stored):
        errors = [error(a, b) for a, b in zip(exact, stored)]
        gaps = [np.diff(sorted(margin_of(a, b))[-2:]).item() for a, b in zip(exact, stored)]
        return {"mean": mean(errors), "worst": max(errors), "position": errors.index(max(errors)) + first,
                "changed": [i + first for i in range(len(exact)) if choice_of(exact[i]) != choice_of(stored[i])],
                "open": [i + first for i in range(len(exact)) if opens(gaps[i], errors[i], errors)]}

    return answer


def over_all(right, exact, stored):
    return float(np.abs(np.array(exact) - np.array(stored)).mean())


def last_worst(right, exact, stored):
    errors = np.abs(np.array(exact) - np.array(stored)).max(axis=1)
    return int(np.flatnonzero(errors == errors.max())[-1])


WRONG_Q4 = {
    "mean over all logits": spoil(q4_one_pass, mean=over_all),
    "signed": q4(lambda a, b: max(y - x for x, y in zip(a, b))),
    "root mean square": q4(lambda a, b: math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / len(a))),
    "mean of a row": q4(lambda a, b: float(np.abs(np.array(a) - b).mean())),
    "the chosen logit only": q4(lambda a, b: abs(b[a.index(max(a))] - max(a))),
    "the last worst position": spoil(q4_one_pass, position=last_worst),
    "positions from 1": q4(first=1),
    "the last of equals": q4(last=True),
    "margin of the stored logits": q4(margin_of=lambda a, b: b),
    "once the error": q4(opens=lambda m, e, all_e: m <= e),
    "the mean error as the bound": q4(opens=lambda m, e, all_e: m <= 2 * math.fsum(all_e) / len(all_e)),
    "strictly below": q4(opens=lambda m, e, all_e: m < 2 * e),
    "largest as the mean": q4(mean=max),
}

RIGHT = {"q1": [q1_records, q1_restored_kept, q1_arrays], "q2": [q2_cells, q2_arrays, q2_turn_and_recurse],
         "q3": [q3_formula, q3_value_by_value, q3_try_out], "q4": [q4_one_pass, q4_arrays, q4_comprehensions]}
WRONG = {"q1": WRONG_Q1, "q2": WRONG_Q2, "q3": WRONG_Q3, "q4": WRONG_Q4}
install(globals(), STEM, RIGHT, WRONG)


def test_an_answer_leaves_its_arguments_as_they_are():
    steps = [[[1.0, 2.0]], 0, [[3.0, 4.0]]]
    q1_restored_kept(steps, 4)
    assert steps == [[[1.0, 2.0]], 0, [[3.0, 4.0]]]


# ------------------------------------------------------------------ the control
def view(**state):
    control = load("kv_bits")
    return control.view(control.read(state))


def exact_and_stored(key, ids):
    params, config, _tokenizer = load_mg2()
    bits, per = {"4-vector": (4, "vector"), "84": ((8, 4), "vector"), "8-vector": (8, "vector")}[key]
    plain = forward(params, config, ids, KVCache(config, len(ids)))
    return plain, forward(params, config, ids, QuantizedKVCache(config, len(ids), bits, per))


@pytest.mark.parametrize("key, number, n", [("4-vector", 0, 40), ("84", 1, 102), ("8-vector", 5, 30)])
def test_every_row_is_what_the_cache_and_the_forward_pass_give(key, number, n):
    hard = list(dict.fromkeys(q.policy for q in questions("held_out", hard=True)))
    text = TRAVEL_PROMPT if number == 0 else f"{hard[number - 1].text} limit for {hard[number - 1].lines[0][0]}? answer:"
    ids = np.array(load_mg2()[2].encode(text))
    assert kv_bits.prompts()[number].tolist() == ids.tolist()
    plain, stored = (rows[:n] for rows in exact_and_stored(key, ids))
    errors = np.abs(stored - plain).max(axis=1)
    shown = view(format=key, prompt=number, positions=n)
    row = shown.rows[list(kv_bits.FORMATS).index(key)]
    nbytes = n * {"4-vector": 96, "84": 128, "8-vector": 160}[key]
    assert row[1:] == (f"{nbytes:,}", f"{nbytes / n:.0f}", f"{errors.mean():.3f}", f"{errors.max():.3f}",
                       int(errors.argmax()), int((plain.argmax(axis=1) != stored.argmax(axis=1)).sum()))
    assert f"{nbytes:,} bytes for {n} positions" in shown.sentence
    assert f"{errors.max():.3f} at position {errors.argmax()}" in shown.sentence


def test_more_positions_than_the_prompt_has_show_the_whole_prompt():
    pages = [respond("kv_bits", {"prompt": 0, "positions": n})["html"] for n in (102, 40, 39)]
    assert pages[0] == pages[1] != pages[2]


def test_fixed_scales_come_from_the_calibration_split_and_are_counted():
    said = {q.policy for q in questions("calibration", hard=True)}
    assert {split_of(*line) for policy in said for line in policy.lines + policy.updates} == {"calibration"}
    k, v = kv_bits.fixed_scales(4, "channel")
    assert k.shape == v.shape == (2, 2, 16) and kv_bits.fixed_scales(8, "vector") is None
    assert kv_bits.nbytes_of("4-channel", 10) == 10 * 8 * 8 + 128 * 4
    assert kv_bits.nbytes_of("4-head", 10) == 10 * 8 * 8 + 8 * 4
    assert kv_bits.nbytes_of("f16", 10) == 10 * 256 and kv_bits.nbytes_of(None, 10) == 10 * 1024


def test_the_chosen_format_and_the_worst_position_are_marked():
    page = respond("kv_bits", {"format": "4-head"})["html"]
    assert page.count('fill="var(--mgpt-k)" stroke="currentColor" stroke-width="2.2"') == 2
    assert html.escape("int4 per head") in page
    first, second = view(format="4-head").pictures
    assert len(first.description.split(";")) == len(kv_bits.FORMATS) and len(second.description.split()) == 102


# ------------------------------------------------------------------ the figures
def test_frames_cover_every_value_once_and_a_last_one_may_be_short():
    rows = np.arange(1.0, 78.0).reshape(11, 7)
    figure = scale_sharing("figure-test", rows, [("v", 1, 7), ("g", 1, 3), ("c", 4, 1)])
    frames = re.findall(r'width="([\d.]+)" height="([\d.]+)" fill="none"', figure.svg())
    areas = [float(w) * float(h) / 81 for w, h in frames]
    assert len(areas) == 11 + 11 * 3 + 3 * 7
    for start, end in ((0, 11), (11, 44), (44, 65)):
        assert sum(areas[start:end]) == pytest.approx(77)
    assert areas[11:14] == pytest.approx([3, 3, 1]) and min(areas[44:]) == pytest.approx(3)
    squares = [float(side) for side in re.findall(r'width="([\d.]+)" height="\1" fill="var\(--mgpt-k\)"', figure.svg())]
    assert len(squares) == 3 * 77 and max(squares) == 7.5
    assert min(squares) == pytest.approx(7.5 * math.sqrt(1 / 77), rel=1e-4)  # the area stands for the value


def test_a_chart_keeps_a_series_ink_in_every_panel_and_says_its_data():
    figure = error_chart("figure-test", {"a": {"x": [(16, 1.0), (64, 0.1)], "y": [(16, 0.2), (64, 0.2)]},
                                         "b": {"y": [(16, 0.3), (32, 0.05)]}})
    assert figure.description == "a, x: 16 1 64 0.1; a, y: 16 0.2 64 0.2; b, y: 16 0.3 32 0.05"
    svg = figure.svg()
    assert svg.count('fill="var(--mgpt-k)"') == 2 and svg.count('fill="var(--mgpt-time)"') == 4


def test_the_first_of_equally_bad_positions_is_marked():
    svg = error_by_position("figure-test", [0.5, 2.0, 2.0, 0.0], 4).svg()
    assert "largest 2.000, at position 1; mean, dashed, 1.125" in svg and svg.count('stroke-width="2.2"') == 1
