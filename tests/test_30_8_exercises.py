"""The checks of 30.8 are worth their points: right answers of any style pass, known wrong ones get their own message.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import math
import subprocess
import sys

import numpy as np
from exercise_lists import install, spoil

from mgpt.course.questions import find

STEM = "30_8_exercises"


# ------------------------------------------------------------------ right answers, written differently
def q1_with_loops(arrival, token_times):
    gaps = []
    for i in range(1, len(token_times)):
        gaps.append(token_times[i] - token_times[i - 1])
    tpot = None
    if gaps:
        tpot = sum(gaps) / len(gaps)
    return dict(ttft=token_times[0] - arrival, gaps=gaps, tpot=tpot, e2e=token_times[-1] - arrival)


def q1_with_numpy(arrival, token_times):
    times = np.array(token_times, dtype=float)
    gaps = np.diff(times)
    return {"ttft": times[0] - arrival, "gaps": gaps, "tpot": gaps.mean() if len(gaps) else None,
            "e2e": times[-1] - arrival}


def q1_with_totals(arrival, token_times):
    e2e, ttft = float(token_times[-1] - arrival), float(token_times[0] - arrival)
    n = len(token_times)
    return {"e2e": e2e, "ttft": ttft, "tpot": None if n == 1 else (e2e - ttft) / (n - 1),
            "gaps": tuple(b - a for a, b in zip(token_times[:-1], token_times[1:]))}


def q2_simulated(prompt_len, outputs_chosen):
    cache = list(range(prompt_len))
    for output in range(1, outputs_chosen):
        cache.append(prompt_len + output)
    return len(cache)


def q3_with_numpy(n_layer, n_head, n_kv_head, head_dim, lengths, bytes_per_value):
    each = np.array(lengths, dtype=np.int64) * 2 * n_layer * n_kv_head * head_dim * bytes_per_value
    return {"per_request": each, "total": each.sum(), "total_mib": each.sum() / 1024**2}


def q3_with_arrays(n_layer, n_head, n_kv_head, head_dim, lengths, bytes_per_value):
    each = []
    for length in lengths:
        keys = length * n_kv_head * head_dim * n_layer
        each += [(keys + keys) * bytes_per_value]
    return {"total_mib": sum(each) / 1048576, "total": sum(each), "per_request": tuple(each)}


def q3_one_line(n_layer, n_head, n_kv_head, head_dim, lengths, b):
    f = lambda t: 2 * n_layer * n_kv_head * head_dim * b * t  # noqa: E731
    return {"per_request": list(map(f, lengths)), "total": f(sum(lengths)), "total_mib": f(sum(lengths)) / 2**20}


def q4_with_numpy(x, scale):
    code = np.clip(np.rint(np.float64(x) / scale), -7, 7).astype(int)
    return {"code": code, "restored": code * scale, "error": code * scale - x}


def q4_by_cases(x, scale):
    ratio = x / scale
    low = math.floor(ratio)
    rest = ratio - low
    code = low if rest < 0.5 or (rest == 0.5 and low % 2 == 0) else low + 1
    code = 7 if code > 7 else -7 if code < -7 else code
    return {"code": code, "restored": float(code * scale), "error": float(code * scale - x)}


def q4_by_search(x, scale):
    code = min(range(-7, 8), key=lambda c: (abs(x / scale - c), c % 2))
    return {"code": code, "restored": code * scale, "error": code * scale - x}


def q5_with_gaps(arrival, token_times):
    gaps = [b - a for a, b in zip(token_times, token_times[1:])]
    mean = (token_times[-1] - arrival) / len(token_times)
    return {"tpot": sum(gaps) / len(gaps) if gaps else None, "mean_time_per_output": mean}


def q5_with_numpy(arrival, token_times):
    gaps = np.diff(token_times)
    return {"mean_time_per_output": np.float64(token_times[-1] - arrival) / len(token_times),
            "tpot": gaps.mean() if gaps.size else None}


def q5_guarded(arrival, token_times):
    tpot = None
    try:
        tpot = (token_times[-1] - token_times[0]) / (len(token_times) - 1)
    except ZeroDivisionError:
        pass
    return {"tpot": tpot, "mean_time_per_output": (token_times[-1] - arrival) / len(token_times)}


def q6_by_groups(n_weights, group_size, kv_bytes):
    total = 0
    for start in range(0, n_weights, group_size):
        n = min(group_size, n_weights - start)
        total += -(-n // 2) + 4
    return {"weight_bytes": total, "kv_bytes": kv_bytes}


def q6_closed(n_weights, group_size, kv_bytes):
    full, rest = n_weights // group_size, n_weights % group_size
    codes = full * math.ceil(group_size / 2) + math.ceil(rest / 2)
    return {"weight_bytes": codes + 4 * math.ceil(n_weights / group_size), "kv_bytes": kv_bytes}


def q6_with_numpy(n_weights, group_size, kv_bytes):
    sizes = np.diff(np.append(np.arange(0, n_weights, group_size), n_weights))
    return {"weight_bytes": np.sum((sizes + 1) // 2) + 4 * len(sizes), "kv_bytes": np.int64(kv_bytes)}


RIGHT = {
    "q1": [q1_with_loops, q1_with_numpy, q1_with_totals],
    "q2": [lambda p, g: p + g - 1, q2_simulated, lambda p, g: np.int64(p) + (g - 1)],
    "q3": [q3_with_numpy, q3_with_arrays, q3_one_line],
    "q4": [q4_with_numpy, q4_by_cases, q4_by_search],
    "q5": [q5_with_gaps, q5_with_numpy, q5_guarded],
    "q6": [q6_by_groups, q6_closed, q6_with_numpy],
}


# ------------------------------------------------------------------ wrong answers: name of the mistake -> code
def one_or(value):
    """value(result, arrival, times), but None for a single output."""
    return lambda r, a, t: value(r, a, t) if len(t) > 1 else None


def shape(**change):
    def answer(n_layer, n_head, n_kv_head, head_dim, lengths, bytes_per_value):
        given = dict(n_layer=n_layer, kv=n_kv_head, d=head_dim, b=bytes_per_value, two=2, unit=2**20)
        given.update({key: value(n_head, n_kv_head) if callable(value) else value for key, value in change.items()})
        each = [given["two"] * given["n_layer"] * given["kv"] * given["d"] * given["b"] * t for t in lengths]
        total = sum(each)
        return {"per_request": each, "total": total, "total_mib": total / given["unit"]}

    return answer


def code_of(rule, low=-7, high=7):
    def answer(x, scale):
        code = int(min(high, max(low, rule(x, scale))))
        return {"code": code, "restored": code * scale, "error": code * scale - x}

    return answer


def groups_of(sizes, code_bytes=lambda n: (n + 1) // 2, scale=4, kv=lambda kv: kv):
    def answer(n_weights, group_size, kv_bytes):
        total = sum(code_bytes(n) + scale for n in sizes(n_weights, group_size))
        return {"weight_bytes": total, "kv_bytes": kv(kv_bytes)}

    return answer


def ragged(n, g):
    return [g] * (n // g) + ([n % g] if n % g else [])


q1, q5 = q1_with_loops, q5_with_gaps
WRONG = {
    "q1": {
        "divided by n": spoil(q1, tpot=one_or(lambda r, a, t: (t[-1] - t[0]) / len(t))),
        "full latency over n": spoil(q1, tpot=one_or(lambda r, a, t: (t[-1] - a) / len(t))),
        "wait counted in": spoil(q1, tpot=one_or(lambda r, a, t: (t[-1] - a) / (len(t) - 1))),
        "zero for missing": spoil(q1, tpot=lambda r, a, t: r["tpot"] or 0),
        "TTFT for missing": spoil(q1, tpot=lambda r, a, t: r["tpot"] or r["ttft"]),
        "clock time as TTFT": spoil(q1, ttft=lambda r, a, t: t[0]),
        "clock time as latency": spoil(q1, e2e=lambda r, a, t: t[-1]),
        "latency without the wait": spoil(q1, e2e=lambda r, a, t: t[-1] - t[0]),
        "wait among the gaps": spoil(q1, gaps=lambda r, a, t: [y - x for x, y in zip([a, *t], t)]),
        "gaps from the first": spoil(q1, gaps=lambda r, a, t: [y - t[0] for y in t[1:]]),
        "last gap as TPOT": spoil(q1, tpot=one_or(lambda r, a, t: r["gaps"][-1])),
    },
    "q2": {
        "chosen counted as cached": lambda p, g: p + g,
        "prompt only": lambda p, g: p,
        "one too few": lambda p, g: p + g - 2,
        "outputs only": lambda p, g: g,
        "decode passes only": lambda p, g: g - 1,
        "K and V counted apart": lambda p, g: 2 * p + 2 * g - 2,
        "work of the full prefix": lambda p, g: sum(p + n for n in range(g)),
        "always one more": lambda p, g: p + 1,
        "prompt kept once an output": lambda p, g: p * g,
    },
    "q3": {
        "query heads counted": shape(kv=lambda h, kv: h),
        "all heads counted": shape(kv=lambda h, kv: h + kv),
        "MB for MiB": shape(unit=1_000_000),
        "KiB for MiB": shape(unit=1024),
        "GiB for MiB": shape(unit=1024**3),
        "K or V forgotten": shape(two=1),
        "layers forgotten": shape(n_layer=1),
        "bytes a value forgotten": shape(b=1),
        "bits for bytes": shape(two=16),
        "one request only": spoil(q3_one_line, total=lambda r, *s: r["per_request"][0],
                                  total_mib=lambda r, *s: r["per_request"][0] / 2**20),
        "padded to the longest": lambda l, h, kv, d, t, b: {**q3_one_line(l, h, kv, d, t, b), **{
            key: q3_one_line(l, h, kv, d, [max(t)] * len(t), b)[key] for key in ("total", "total_mib")}},
    },
    "q4": {
        "half up": code_of(lambda x, s: math.floor(x / s + 0.5)),
        "half away from zero": code_of(lambda x, s: math.copysign(int(abs(x / s) + 0.5), x)),
        "truncated": code_of(lambda x, s: math.trunc(x / s)),
        "floored": code_of(lambda x, s: x // s),
        "not clipped": code_of(lambda x, s: round(x / s), -1000, 1000),
        "code −8 used": code_of(lambda x, s: round(x / s), -8, 7),
        "unsigned codes": code_of(lambda x, s: round(x / s), 0, 15),
        "clipped before dividing": code_of(lambda x, s: round(max(-7, min(7, x)) / s), -1000, 1000),
        "multiplied by the scale": code_of(lambda x, s: round(x * s)),
        "error the other way": spoil(q4_by_cases, error=lambda r, x, s: x - r["restored"]),
        "code as value": lambda x, s: {"code": (c := q4_by_cases(x, s)["code"]), "restored": c, "error": c - x},
        "clipping called rounding": spoil(q4_by_cases, error=lambda r, x, s: max(-s / 2, min(s / 2, r["error"]))),
    },
    "q5": {
        "the report's own": spoil(q5, tpot=lambda r, a, t: (t[-1] - a) / len(t)),
        "the report's own, guarded": spoil(q5, tpot=one_or(lambda r, a, t: (t[-1] - a) / len(t))),
        "divided by n": spoil(q5, tpot=one_or(lambda r, a, t: (t[-1] - t[0]) / len(t))),
        "wait counted in": spoil(q5, tpot=one_or(lambda r, a, t: (t[-1] - a) / (len(t) - 1))),
        "zero for missing": spoil(q5, tpot=lambda r, a, t: r["tpot"] or 0.0),
        "latency for missing": spoil(q5, tpot=lambda r, a, t: r["tpot"] or t[0] - a),
        "names swapped": lambda a, t: {"tpot": q5(a, t)["mean_time_per_output"], "mean_time_per_output": q5(a, t)["tpot"]},
        "full average without the wait": spoil(q5, mean_time_per_output=lambda r, a, t: (t[-1] - t[0]) / len(t)),
        "full average over n − 1": spoil(q5, mean_time_per_output=lambda r, a, t: (t[-1] - a) / max(1, len(t) - 1)),
        "clock time averaged": spoil(q5, mean_time_per_output=lambda r, a, t: t[-1] / len(t)),
        "tokens a second": spoil(q5, tpot=one_or(lambda r, a, t: 1000 / r["tpot"])),
    },
    "q6": {
        "KV quartered": groups_of(ragged, kv=lambda kv: kv // 4),
        "KV halved": groups_of(ragged, kv=lambda kv: kv // 2),
        "scales forgotten": groups_of(ragged, scale=0),
        "one scale for all": groups_of(lambda n, g: [n]),
        "tail forgotten": groups_of(lambda n, g: [g] * (n // g)),
        "tail padded": groups_of(lambda n, g: [g] * -(-n // g)),
        "not packed": groups_of(ragged, code_bytes=lambda n: n),
        "bits for bytes": groups_of(ragged, code_bytes=lambda n: 4 * n),
        "scale of two bytes": groups_of(ragged, scale=2),
        "odd code lost": groups_of(ragged, code_bytes=lambda n: n // 2),
        "packed across groups": lambda n, g, kv: {"weight_bytes": -(-n // 2) + 4 * -(-n // g), "kv_bytes": kv},
    },
}


install(globals(), STEM, RIGHT, WRONG)


def test_the_answers_of_30_9_are_visible_cases():
    """The numbers of 30.9, typed here once more and by hand."""
    def case(name, index=0):
        return find(f"{STEM}.{name}").cases[index]

    assert case("q1").args == (10, [110, 160, 220])
    assert case("q1").expected == {"ttft": 100, "gaps": [50, 60], "tpot": 55, "e2e": 210}
    assert [(case("q2", i).args, case("q2", i).expected) for i in (0, 1)] == [((10, 1), 10), ((10, 2), 11)]
    assert case("q3").expected == {"per_request": [192 * 2**20] * 4, "total": 805_306_368, "total_mib": 768}
    assert [case("q4", i).args + tuple(case("q4", i).expected.values()) for i in range(3)] == [
        (0.75, 0.5, 2, 1.0, 0.25), (-0.75, 0.5, -2, -1.0, -0.25), (5.0, 0.5, 7, 3.5, -1.5)]


def test_fresh_numbers_follow_the_seed_alone_and_are_the_same_in_another_process():
    code = f"from mgpt.course.questions import find; print(find('{STEM}.q1').fresh_cases('s')[0].args)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert str(find(f"{STEM}.q1").fresh_cases("s")[0].args) == other.strip()
    assert find(f"{STEM}.q1").fresh_cases("s") != find(f"{STEM}.q1").fresh_cases("t")
