"""The checks of chapter 08 are worth their points, and its control and figures show what `mgpt.cost` counts.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import itertools
import math
import random
import re
from fractions import Fraction

import numpy as np
import pytest
from exercise_lists import install, spoil

from mgpt.checkpoint import load_mg2
from mgpt.config import GPTConfig
from mgpt.cost import Cost, decode_cost, prefill_cost, weight_count
from mgpt.course.questions import find
from mgpt.machine import Machine
from mgpt.widgets import load, respond
from mgpt.widgets.machine import PRESETS, measure
from mgpt.widgets.roofline import EIGHT_B, MODELS, batch_bytes, batches, many, rate, roofline, three

STEM = "08_cost"


# ------------------------------------------------------------------ right answers, written differently
def q1_matrix_by_matrix(model, requests, weight_bytes, kv_bytes):
    E, F, d, V = (model[key] for key in ("width", "inner", "head_dim", "vocab"))
    H, K, L = model["heads"], model["kv_heads"], model["layers"]
    shapes = [(E, H * d), (E, K * d), (E, K * d), (H * d, E), (E, F), (E, F), (F, E)]
    flops = kv = 0
    for new, kept in requests:
        for _layer in range(L):
            for rows, columns in shapes:
                flops += 2 * new * rows * columns
            for _head in range(H):
                flops += 2 * new * d * (kept + new)      # scores
                flops += 2 * new * (kept + new) * d      # mix
            kv += 2 * K * d * (kept + new) * kv_bytes
        flops += 2 * E * V
    weights = (L * (sum(a * b for a, b in shapes) + 2 * E) + E + E * V) * weight_bytes
    return {"intensity": flops / (weights + kv), "flops": flops, "bytes_weights": weights, "bytes_kv": kv}


def q1_with_numpy(model, requests, weight_bytes, kv_bytes):
    new, kept = np.array(requests, dtype=np.int64).T
    seen, d, E = kept + new, model["head_dim"], model["width"]
    layer = E * d * 2 * (model["heads"] + model["kv_heads"]) + 3 * E * model["inner"]
    layers, head = new.sum() * layer + 2 * model["heads"] * d * (new @ seen), E * model["vocab"]
    flops = 2 * (model["layers"] * layers + len(requests) * head)
    weights = weight_bytes * (model["layers"] * (layer + 2 * E) + E * (1 + model["vocab"]))
    kv = 2 * model["layers"] * model["kv_heads"] * d * seen.sum() * kv_bytes
    return {"flops": flops, "bytes_weights": weights, "bytes_kv": kv, "intensity": flops / (weights + kv)}


def q1_with_the_engine(model, requests, weight_bytes, kv_bytes):
    """A chunk of n positions behind k kept ones: the prefill of all k + n, less the k rows that are not computed."""
    config = GPTConfig(vocab_size=model["vocab"], max_seq_len=1, n_layer=model["layers"], n_head=model["heads"],
                       n_kv_head=model["kv_heads"], head_dim=model["head_dim"], n_embd=model["width"],
                       n_inner=model["inner"])
    head, flops, kv = 2 * model["width"] * model["vocab"], 0, 0
    for new, kept in requests:
        one = decode_cost(config, kept + new, 1, weight_bytes, kv_bytes)
        flops, kv = flops + new * (one.flops - head) + head, kv + one.bytes_kv
    weights = weight_count(config) * weight_bytes
    return {"flops": flops, "bytes_weights": weights, "bytes_kv": kv, "intensity": flops / (weights + kv)}


def q2_by_search(bytes_weights, bytes_per_position, context, memory_gib):
    one = context * bytes_per_position
    overtakes = 1
    while overtakes * one <= bytes_weights:
        overtakes += 1
    fits = 1
    while bytes_weights + (fits + 1) * one <= memory_gib * 1024**3:
        fits += 1
    token = (bytes_weights + fits * one) / fits
    return {"overtakes": overtakes, "fits": fits, "bytes_a_token": token, "gain": (bytes_weights + one) / token}


def q2_with_fractions(bytes_weights, bytes_per_position, context, memory_gib):
    one = Fraction(context * bytes_per_position)
    fits = int((memory_gib * 2**30 - bytes_weights) / one)
    token = bytes_weights / Fraction(fits) + one
    return {"gain": float((bytes_weights + one) / token), "bytes_a_token": float(token), "fits": fits,
            "overtakes": math.floor(bytes_weights / one) + 1}


def q2_with_numpy(bytes_weights, bytes_per_position, context, memory_gib):
    one = np.int64(context) * bytes_per_position
    fits = (np.int64(memory_gib) * 2**30 - bytes_weights) // one
    return {"overtakes": bytes_weights // one + 1, "fits": fits, "bytes_a_token": one + bytes_weights / fits,
            "gain": fits * (one + bytes_weights) / (fits * one + bytes_weights)}


def q3_by_intensity(bandwidth, peak, passes):
    ridge = peak * 1e12 / (bandwidth * 1e9)
    answer = []
    for one in passes:
        intensity = one["flops"] / one["bytes"]
        speed = min(peak * 1e12, intensity * bandwidth * 1e9)
        answer.append({"side": "bandwidth" if intensity < ridge else "compute", "ms": one["flops"] / speed * 1000,
                       "share": speed / (peak * 1e12)})
    return answer


def q3_by_cases(bandwidth, peak, passes):
    def bound(flops, nbytes):
        a, b = flops / (peak * 1e12), nbytes / (bandwidth * 1e9)
        if a >= b:
            return {"side": "compute", "ms": 1e3 * a, "share": 1}
        return {"side": "bandwidth", "ms": 1e3 * b, "share": a / b}

    return [bound(one["flops"], one["bytes"]) for one in passes]


def q3_with_numpy(bandwidth, peak, passes):
    work = np.array([[one["flops"], one["bytes"]] for one in passes], dtype=float).reshape(-1, 2)
    times = work / [peak * 1e12, bandwidth * 1e9]
    return [{"side": ["compute", "bandwidth"][int(t.argmax())], "ms": t.max() * 1e3, "share": t[0] / t.max()}
            for t in times]


def q4_by_search(fixed, per_position, kv_position, weights, ridge, context):
    def some(n):
        return fixed + per_position * n > ridge * kv_position * n

    batch = None
    if some(context):
        low, high = 1, 1
        while not enough(high, fixed, per_position, kv_position, weights, ridge, context):
            high *= 2
        while low < high:
            middle = (low + high) // 2
            if enough(middle, fixed, per_position, kv_position, weights, ridge, context):
                high = middle
            else:
                low = middle + 1
        batch = low
    last = None
    if per_position < ridge * kv_position:
        last = 0
        while some(last + 1):
            last += 1
    return {"batch": batch, "last_context": last}


def enough(batch, fixed, per_position, kv_position, weights, ridge, context):
    return batch * (fixed + per_position * context) >= ridge * (weights + batch * kv_position * context)


def q4_with_fractions(fixed, per_position, kv_position, weights, ridge, context):
    rest = Fraction(fixed + per_position * context, ridge) - kv_position * context  # bytes of weights it pays for
    last = None
    if per_position < ridge * kv_position:
        last = math.ceil(Fraction(fixed, ridge * kv_position - per_position)) - 1
    return {"batch": math.ceil(weights / rest) if rest > 0 else None, "last_context": last}


def q4_plainly(fixed, per_position, kv_position, weights, ridge, context):
    f, k = fixed + per_position * context, kv_position * context
    if f <= ridge * k:
        batch = None
    else:
        batch, rest = divmod(ridge * weights, f - ridge * k)
        batch += rest > 0
    if per_position >= ridge * kv_position:
        return {"batch": batch, "last_context": None}
    last, rest = divmod(fixed, ridge * kv_position - per_position)
    return {"batch": batch, "last_context": last - (rest == 0)}


RIGHT = {
    "q1": [q1_matrix_by_matrix, q1_with_numpy, q1_with_the_engine],
    "q2": [q2_with_fractions, q2_by_search, q2_with_numpy],
    "q3": [q3_by_cases, q3_by_intensity, q3_with_numpy],
    "q4": [q4_plainly, q4_by_search, q4_with_fractions],
}


# ------------------------------------------------------------------ wrong answers: name of the mistake -> code
def q1_matrices(m, projected="kv_heads", inner=3):
    return m["width"] * m["head_dim"] * 2 * (m["heads"] + m[projected]) + inner * m["width"] * m["inner"]


def q1_like(matrices=q1_matrices,
            compare=lambda m, n, k: 2 * m["heads"] * m["head_dim"] * n * (n + k), heads=lambda n: 1, two=2,
            more=lambda m, values: values, kv=lambda m, r: sum(n + k for n, k in r), of=lambda m: 2 * m["kv_heads"],
            width=lambda w, k: k, divide=lambda w, k: w + k):
    def answer(model, requests, weight_bytes, kv_bytes):
        head = model["width"] * model["vocab"]
        flops = two * sum(model["layers"] * (n * matrices(model) + compare(model, n, k)) + heads(n) * head
                          for n, k in requests)
        values = model["layers"] * (matrices(model) + 2 * model["width"]) + model["width"] + head
        weights = more(model, values) * weight_bytes
        read = kv(model, requests) * model["layers"] * of(model) * model["head_dim"] * width(weight_bytes, kv_bytes)
        return {"flops": flops, "bytes_weights": weights, "bytes_kv": read, "intensity": flops / divide(weights, read)}

    return answer


def q1_last_norm(model, requests, weight_bytes, kv_bytes):
    right = q1_matrix_by_matrix(model, requests, weight_bytes, kv_bytes)
    weights = right["bytes_weights"] - model["width"] * weight_bytes
    return {**right, "bytes_weights": weights, "intensity": right["flops"] / (weights + right["bytes_kv"])}


def q1_one_head(model, requests, weight_bytes, kv_bytes):
    right = q1_matrix_by_matrix(model, requests, weight_bytes, kv_bytes)
    flops = right["flops"] - 2 * model["width"] * model["vocab"] * (len(requests) - 1)
    return {**right, "flops": flops, "intensity": flops / (right["bytes_weights"] + right["bytes_kv"])}


def q1_weights_each(model, requests, weight_bytes, kv_bytes):
    right = q1_matrix_by_matrix(model, requests, weight_bytes, kv_bytes)
    weights = right["bytes_weights"] * len(requests)
    return {**right, "bytes_weights": weights, "intensity": right["flops"] / (weights + right["bytes_kv"])}


def q2_like(overtakes=lambda w, k: w // k + 1, room=lambda w, gib: gib * 2**30 - w, fit=lambda room, k: room // k,
            token=lambda w, k, n: (w + n * k) / n, gain=lambda w, k, n, t: (w + k) / t):
    def answer(bytes_weights, bytes_per_position, context, memory_gib):
        one = bytes_per_position * context
        n = max(1, fit(room(bytes_weights, memory_gib), one))
        each = token(bytes_weights, one, n)
        return {"overtakes": overtakes(bytes_weights, one), "fits": n, "bytes_a_token": each,
                "gain": gain(bytes_weights, one, n, each)}

    return answer


def q2_weights_in_each(bytes_weights, bytes_per_position, context, memory_gib):
    one = bytes_per_position * context
    n = max(1, memory_gib * 2**30 // (bytes_weights + one))
    token = bytes_weights / n + one
    return {"overtakes": bytes_weights // one + 1, "fits": n, "bytes_a_token": token,
            "gain": (bytes_weights + one) / token}


def q2_where_kv_overtakes(bytes_weights, bytes_per_position, context, memory_gib):
    right = q2_by_search(bytes_weights, bytes_per_position, context, memory_gib)
    one = bytes_per_position * context
    token = bytes_weights / right["overtakes"] + one
    return {**right, "bytes_a_token": token, "gain": (bytes_weights + one) / token}


def q3_speeds(bandwidth, peak, passes):
    right = q3_by_intensity(bandwidth, peak, passes)
    return [{**one, "share": one["share"] * peak * 1e12} for one in right]


def q3_like(giga=1e9, tera=1e12, time=max, unit=1000, at_the_ridge="compute", names=("compute", "bandwidth"),
            share=lambda a, b: min(a, b) / b):
    def answer(bandwidth, peak, passes):
        answer = []
        for one in passes:
            a, b = one["flops"] / (peak * tera), one["bytes"] / (bandwidth * giga)
            side = names[0] if a > b else names[1] if a < b else at_the_ridge
            answer.append({"side": side, "ms": time(a, b) * unit, "share": share(a, b)})
        return answer

    return answer


def q4_like(f=lambda fixed, each, n: fixed + each * n, k=lambda kv, n: kv * n, up=lambda a, b: (a + b - 1) // b,
            nothing=None, last=lambda fixed, loss: (fixed - 1) // loss, always=None,
            loss=lambda each, kv, ridge: ridge * kv - each):
    def answer(fixed, each, kv, weights, ridge, context):
        rest = f(fixed, each, context) - ridge * k(kv, context)
        down = loss(each, kv, ridge)
        return {"batch": up(ridge * weights, rest) if rest > 0 else nothing,
                "last_context": last(fixed, down) if down > 0 else always}

    return answer


def q4_weights_each(fixed, each, kv, weights, ridge, context):
    alone = fixed + each * context >= ridge * (weights + kv * context)
    return {**q4_plainly(fixed, each, kv, weights, ridge, context), "batch": 1 if alone else None}


def q4_unchecked_batch(fixed, each, kv, weights, ridge, context):
    rest = fixed + each * context - ridge * kv * context
    batch = rest and math.ceil(Fraction(ridge * weights, rest))
    return {**q4_plainly(fixed, each, kv, weights, ridge, context), "batch": batch}


def q4_unchecked_context(fixed, each, kv, weights, ridge, context):
    loss = ridge * kv - each
    return {**q4_plainly(fixed, each, kv, weights, ridge, context), "last_context": loss and (fixed - 1) // loss}


def q4_doubled(fixed, each, kv, weights, ridge, context):
    return q4_plainly(2 * fixed, 2 * each, kv, weights, ridge, context)


WRONG = {
    "q1": {
        "multiply-adds counted once": q1_like(two=1),
        "query heads in the KV bytes": q1_like(of=lambda m: 2 * m["heads"]),
        "KV heads in attention": q1_like(compare=lambda m, n, k: 2 * m["kv_heads"] * m["head_dim"] * n * (n + k)),
        "K and V as wide as Q": q1_like(lambda m: q1_matrices(m, "heads")),
        "cached positions not compared": q1_like(compare=lambda m, n, k: 2 * m["heads"] * m["head_dim"] * n * n),
        "own positions not compared": q1_like(compare=lambda m, n, k: 2 * m["heads"] * m["head_dim"] * n * k),
        "masked positions left out": q1_like(
            compare=lambda m, n, k: 2 * m["heads"] * m["head_dim"] * sum(range(k + 1, k + n + 1))),
        "half of the whole": q1_like(compare=lambda m, n, k: m["heads"] * m["head_dim"] * n * (n + k)),
        "new positions not in the KV": q1_like(kv=lambda m, r: sum(k for n, k in r)),
        "kept positions not in the KV": q1_like(kv=lambda m, r: sum(n for n, k in r)),
        "one cache for all": spoil(q1_matrix_by_matrix, bytes_kv=lambda right, m, r, w, b: (
            2 * m["layers"] * m["kv_heads"] * m["head_dim"] * b * max(n + k for n, k in r))),
        "one comparison a request": q1_like(compare=lambda m, n, k: 2 * m["heads"] * m["head_dim"] * (n + k)),
        "one head for all": q1_one_head,
        "way back of the heads forgotten": q1_like(
            lambda m: q1_matrices(m) - m["width"] * m["heads"] * m["head_dim"]),
        "last norm forgotten": q1_last_norm,
        "one norm a layer": q1_like(more=lambda m, values: values - m["width"] * m["layers"]),
        "head on every position": q1_like(heads=lambda n: n),
        "head forgotten": q1_like(heads=lambda n: 0),
        "weights read for each request": q1_weights_each,
        "K or V forgotten": q1_like(of=lambda m: m["kv_heads"]),
        "embedding read": q1_like(more=lambda m, values: values + m["width"] * m["vocab"]),
        "gate or up forgotten": q1_like(lambda m: q1_matrices(m, inner=2)),
        "norms forgotten": q1_like(more=lambda m, values: values - m["width"] * (2 * m["layers"] + 1)),
        "one width for both": q1_like(width=lambda w, k: w),
        "intensity of the weights alone": q1_like(divide=lambda w, k: w),
    },
    "q2": {
        "equal counted as more": q2_like(overtakes=lambda w, k: math.ceil(Fraction(w, k))),
        "the last that does not": q2_like(overtakes=lambda w, k: w // k),
        "context forgotten": spoil(q2_by_search, overtakes=lambda right, w, p, c, m: w // p + 1),
        "GB for GiB": q2_like(room=lambda w, gib: gib * 10**9 - w),
        "weights not in the memory": q2_like(room=lambda w, gib: gib * 2**30),
        "weights for each request in the memory": q2_weights_in_each,
        "the batch that overtakes": q2_where_kv_overtakes,
        "overtaking only where it fits": spoil(
            q2_by_search, overtakes=lambda right, *args: min(right["overtakes"], right["fits"])),
        "rounded up": q2_like(fit=lambda room, k: room // k + 1),
        "one fewer fits": q2_like(fit=lambda room, k: room // k - 1),
        "the whole pass": q2_like(token=lambda w, k, n: w + n * k, gain=lambda w, k, n, t: (w + k) / (t / n)),
        "KV shared too": q2_like(token=lambda w, k, n: (w + k) / n),
        "nothing shared": q2_like(token=lambda w, k, n: w + k),
        "weights alone": q2_like(token=lambda w, k, n: w / n),
        "gain by the number of requests": q2_like(gain=lambda w, k, n, t: n),
        "gain upside down": q2_like(gain=lambda w, k, n, t: t / (w + k)),
        "gain over the weights": q2_like(gain=lambda w, k, n, t: w / t),
        "the limit for the gain": q2_like(gain=lambda w, k, n, t: 1 + w / k),
    },
    "q3": {
        "both times added": q3_like(time=lambda a, b: a + b),
        "the shorter time": q3_like(time=min),
        "operations alone": q3_like(time=lambda a, b: a, share=lambda a, b: 1),
        "bytes alone": q3_like(time=lambda a, b: b),
        "sides exchanged": q3_like(names=("bandwidth", "compute"), at_the_ridge="bandwidth"),
        "the ridge on the bandwidth side": q3_like(at_the_ridge="bandwidth"),
        "always compute": q3_like(names=("compute", "compute")),
        "above the roof": q3_like(share=lambda a, b: a / b),
        "share of the bandwidth": q3_like(share=lambda a, b: min(a, b) / a),
        "operations a second": q3_speeds,
        "per cent": q3_like(share=lambda a, b: 100 * min(a, b) / b),
        "no powers of ten": q3_like(giga=1, tera=1),
        "GiB for GB": q3_like(giga=2**30),
        "TFLOP/s taken as GFLOP/s": q3_like(tera=1e9),
        "seconds": q3_like(unit=1),
        "microseconds": q3_like(unit=10**6),
    },
    "q4": {
        "a search that stops": spoil(q4_plainly, batch=lambda right, *args: (
            right["batch"] if (right["batch"] or 0) < 20_000 else None)),
        "None for no context": spoil(q4_plainly, last_context=lambda right, *args: right["last_context"] or None),
        "a position that pays exactly": spoil(q4_plainly, last_context=lambda right, f, e, kv, w, ridge, n: (
            0 if e == ridge * kv else right["last_context"])),
        "KV forgotten": q4_like(k=lambda kv, n: 0),
        "KV of one position": q4_like(k=lambda kv, n: kv),
        "attention's operations forgotten": q4_like(f=lambda fixed, each, n: fixed),
        "weights for each request": q4_weights_each,
        "rounded down": q4_like(up=lambda a, b: a // b),
        "one more than needed": q4_like(up=lambda a, b: a // b + 1),
        "0 for no batch": q4_like(nothing=0),
        "a batch below zero": q4_unchecked_batch,
        "the batch where KV overtakes": spoil(q4_plainly, batch=lambda right, f, e, kv, w, r, n: w // (kv * n) + 1),
        "multiply-adds": q4_doubled,
        "the equal context counted": q4_like(last=lambda fixed, loss: fixed // loss),
        "attention left out of the last context": q4_like(loss=lambda each, kv, ridge: ridge * kv),
        "a last context below zero": q4_unchecked_context,
        "0 for every context": q4_like(always=0),
    },
}

install(globals(), STEM, RIGHT, WRONG)


# ------------------------------------------------------------------ the exercise and the engine
@pytest.mark.parametrize("seed", range(5))
def test_the_pass_that_is_asked_for_is_the_engines_where_the_engine_has_it(seed):
    question = find(f"{STEM}.q1")
    model, _requests, weight_bytes, kv_bytes = question.draw(random.Random(seed))
    config = GPTConfig(vocab_size=model["vocab"], max_seq_len=1, n_layer=model["layers"], n_head=model["heads"],
                       n_kv_head=model["kv_heads"], head_dim=model["head_dim"], n_embd=model["width"],
                       n_inner=model["inner"], tie_embeddings=False)
    for requests, cost in (([[300, 0]], prefill_cost(config, 300, kv_bytes)),
                           ([[1, 99]] * 7, decode_cost(config, 100, 7, weight_bytes, kv_bytes))):
        width = kv_bytes if requests[0][0] == 300 else weight_bytes
        assert Cost(**question.reference(model, requests, width, kv_bytes)) == cost


def test_the_batch_that_is_asked_for_is_the_first_on_the_compute_side_of_the_counted_passes():
    config, ridge = EIGHT_B, 153
    alone = decode_cost(config, 512, 1, 2)
    fixed = 2 * alone.flops - decode_cost(config, 1024, 1, 2).flops
    args = (fixed, (alone.flops - fixed) // 512, alone.bytes_kv // 512, alone.bytes_weights, ridge, 512)
    batch = find(f"{STEM}.q4").reference(*args)["batch"]
    machine = Machine(1.0, float(ridge))
    sides = [machine.side(decode_cost(config, 512, n, 2).intensity) for n in (batch - 1, batch)]
    assert batch == 459 and sides == ["bandwidth", "compute"]
    assert args == find(f"{STEM}.q4").cases[0].args


@pytest.mark.parametrize("seed", range(20))
def test_fresh_cases_hold_every_kind_that_a_mistake_is_about(seed):
    last = [case for case in find(f"{STEM}.q4").fresh_cases(seed)]
    assert any(case.expected["batch"] is None for case in last) and any(case.expected["batch"] for case in last)
    assert {0, None} <= {case.expected["last_context"] for case in find(f"{STEM}.q4").cases}
    assert any(case.expected["overtakes"] > case.expected["fits"] for case in find(f"{STEM}.q2").cases)
    passes = [one for case in find(f"{STEM}.q3").fresh_cases(seed) for one in case.expected]
    assert {one["side"] for one in passes} == {"compute", "bandwidth"}


# ------------------------------------------------------------------ machines
def test_a_machine_is_bound_by_the_longer_of_two_times():
    machine = Machine(bandwidth=2e12, peak=300e12)
    assert machine.ridge == 150
    assert [machine.attainable(i) for i in (1, 75, 150, 300)] == [2e12, 150e12, 300e12, 300e12]
    assert [machine.side(i) for i in (1, 149.9, 150, 300)] == ["bandwidth", "bandwidth", "compute", "compute"]
    assert machine.least_seconds(Cost(30 * 10**12, 10**10, 5 * 10**9, 2000.0)) == 0.1
    assert machine.least_seconds(Cost(15 * 10**9, 10**10, 5 * 10**9, 1.0)) == 0.0075


def test_the_roof_and_the_least_time_say_the_same():
    for machine, context, batch in itertools.product(PRESETS.values(), (10, 700, 9000), (1, 30, 3000)):
        cost = decode_cost(EIGHT_B, context, batch, 2)
        assert math.isclose(cost.flops / machine.least_seconds(cost), machine.attainable(cost.intensity))


def test_ones_own_machine_is_measured_and_plausible():
    """No time is asserted: only that a number stands where one should, within nine powers of ten."""
    mine = measure()
    assert 1e8 < mine.bandwidth < 1e13 and 1e8 < mine.peak < 1e15


# ------------------------------------------------------------------ the control
def view(**state):
    control = load("roofline")
    return control.view(control.read(state))


@pytest.mark.parametrize("state", [
    {}, {"model": "mha", "context": 9000, "batch": 7}, {"model": "mg2", "machine": "core", "weights": "8", "kv": "8"},
    {"machine": "mine", "bandwidth": 14.8, "peak": 71.0, "model": "gpt2s", "weights": "4", "kv": "1", "context": 300},
    {"machine": "h100", "batch": 100_000, "context": 3}])
def test_the_columns_are_what_is_counted(state):
    control = load("roofline")
    state = control.read(state)
    config, weights, kv = MODELS[state["model"]][1], int(state["weights"]), int(state["kv"])
    machine = Machine(14.8e9, 71e9) if state["machine"] == "mine" else PRESETS[state["machine"]]
    shown = control.view(state)
    expected = [decode_cost(config, state["context"], n, weights, kv) for n in (1, state["batch"])]
    labels, first, *columns = zip(shown.header, *shown.rows)  # a column a pass
    assert labels == ("pass", "operations", "weights read", "KV", "operations a byte", "limit", "time at least",
                      "bytes a token")
    for cost, column in zip(expected, columns):
        limit = {"compute": "operations", "bandwidth": "bytes"}[machine.side(cost.intensity)]
        assert column[1] == many(cost.flops) and column[5] == limit
        assert math.isclose(float(column[4].replace(",", "")), cost.intensity, rel_tol=0.006)
        least = machine.least_seconds(cost) * 1e3
        assert math.isclose(float(column[6].split()[0].replace(",", "")), least, rel_tol=0.006)
    prefill = prefill_cost(config, state["context"], weights)
    assert first[1] == many(prefill.flops) and first[3] == columns[0][3]


@pytest.mark.parametrize("context, batch", [(2048, 56), (8192, 14), (32_768, 4), (131_072, 1)])
def test_the_sentence_names_the_batch_where_kv_overtakes(context, batch):
    assert f"overtake the weights at a batch of {batch}." in view(context=context).sentence


def test_the_sentence_says_which_side_and_when_no_batch_helps():
    far, near, over = view(context=769), view(context=512), view(context=512, batch=1024)
    assert "the bytes decide" in far.sentence and "No batch size" in far.sentence
    assert "the bytes decide" in near.sentence and "No batch size" not in near.sentence
    assert "the operations decide" in over.sentence and "No batch size" not in over.sentence


def test_my_machine_uses_my_numbers_and_no_other_machine_does():
    a, b = ({"bandwidth": 10.0, "peak": 100.0}, {"bandwidth": 20.0, "peak": 50.0})
    assert view(machine="mine", **a).rows != view(machine="mine", **b).rows
    assert view(machine="a100", **a).rows == view(machine="a100", **b).rows
    assert "10 GB/s, 100 GFLOP/s" in view(machine="mine", **a).pictures[0].svg()
    assert 'role="alert"' in respond("roofline", {"machine": "mine", "bandwidth": 0})["html"]


def test_the_models_have_their_published_sizes():
    assert weight_count(EIGHT_B) + 128_256 * 4096 == 8_030_261_248
    _params, config, _tokenizer = load_mg2()
    assert MODELS["mg2"][1] == config
    assert [MODELS[key][1].n_kv_head for key in ("mha", "gqa", "mqa")] == [32, 8, 1]


# ------------------------------------------------------------------ the figures
def marks(figure):
    """Centres of the marks, x and y."""
    found = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="8" height="8"', figure.svg())
    return sorted((float(x) + 4, float(y) + 4) for x, y in found)


def test_marks_lie_on_the_roof_and_as_far_apart_as_their_logarithms():
    machine = PRESETS["a100"]
    points = [("a", 1.0), ("b", 10.0), ("c", 100.0), ("d", 1000.0), ("e", 5000.0)]
    (ax, ay), (bx, by), (cx, cy), (dx, dy), (_ex, ey) = marks(roofline("figure-test", [("A", machine)], points))
    assert math.isclose(bx - ax, cx - bx, abs_tol=0.01) and math.isclose(dx - cx, bx - ax, abs_tol=0.01)
    assert math.isclose(ay - by, by - cy, abs_tol=0.01) and dy == ey < cy


def test_a_roof_is_dashed_and_every_machine_has_its_name():
    figure = roofline("figure-test", [("one", PRESETS["a100"]), ("two", PRESETS["h100"])], [("a", 1.0)])
    assert figure.svg().count("stroke-dasharray") == 4
    assert ">one<" in figure.svg() and ">two<" in figure.svg()
    assert "153 op/byte" in figure.description and "a: 1 op/byte, 2.04 TFLOP/s" in figure.description


def test_bars_are_as_high_as_the_bytes_of_a_token():
    bars = batches(EIGHT_B, 8192, most=64, also=[14])
    assert [bar[0] for bar in bars] == [1, 2, 4, 8, 14, 16, 32, 64]
    svg = batch_bytes("figure-test", bars, marked=14).svg()
    kv = [float(h) for h in re.findall(r'height="([\d.]+)" fill="var\(--mgpt-k\)"', svg)]
    weights = [float(h) for h in re.findall(r'height="([\d.]+)" fill="var\(--mgpt-time\)"', svg)]
    assert len(set(kv)) == 1 and len(kv) == len(weights) == 8
    for (batch, w, k), height in zip(bars, weights):
        assert math.isclose(height / kv[0], w / (k), rel_tol=1e-3)
    assert svg.count('stroke-width="2.2"') == 1 and [w < kv[0] for w in weights] == [False] * 4 + [True] * 4


@pytest.mark.parametrize("number, words", [
    (5, "5"), (1500, "1.5 k"), (16_083_058_688, "16.08 G"), (30_787_376_250_880, "30.79 T")])
def test_numbers_of_operations_in_words(number, words):
    assert many(number) == words


@pytest.mark.parametrize("number, words", [
    (5_121_474_560, "5,121,474,560"), (152.6, "153"), (99.96, "100"), (18, "18"), (0.0738, "0.0738"),
    (2.29e-5, "0.0000229"), (1e-6, "0.000001")])
def test_numbers_in_words_have_no_powers_of_ten(number, words):
    assert three(number) == words


def test_speeds_in_words():
    assert rate(1e16) == "10,000 TFLOP/s"
    assert rate(312e12) == "312 TFLOP/s" and rate(53e9) == "53 GFLOP/s" and rate(2.039e12) == "2.04 TFLOP/s"
