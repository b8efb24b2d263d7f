"""The checks of chapter 03 are worth their points, and its trace explorer shows what `mgpt` says.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import math
import statistics

import numpy as np
import pytest
from exercise_lists import install, spoil

from mgpt.course.questions import find
from mgpt.timing import RequestTrace, summarize
from mgpt.widgets import load, respond
from mgpt.widgets.latency_names import latency_names
from mgpt.widgets.percentile_line import percentile_line
from mgpt.widgets.trace_explorer import nice_step, read_requests

STEM = "03_timing"


# ------------------------------------------------------------------ right answers, written differently
def q1_by_tokens(arrival, chunks):
    stamps, several = [], False
    for time, tokens in chunks:
        several = several or tokens > 1
        stamps += [time] * tokens
    if not stamps:
        return dict(n=0, ttft=None, gaps=None, tpot=None, e2e=None)
    gaps = [stamps[i] - stamps[i - 1] for i in range(1, len(stamps))]
    tpot = sum(gaps) / len(gaps) if gaps else None
    return dict(n=len(stamps), ttft=stamps[0] - arrival, gaps=None if several else gaps, tpot=tpot,
                e2e=stamps[-1] - arrival)


def q1_with_numpy(arrival, chunks):
    table = np.array([chunk for chunk in chunks if chunk[1] != 0], dtype=float).reshape(-1, 2)
    n = int(table[:, 1].sum())
    result = {"n": n, "ttft": None, "gaps": None, "tpot": None, "e2e": None}
    if n:
        times = table[:, 0]
        result["ttft"], result["e2e"] = times[0] - arrival, times[-1] - arrival
        if n > 1:
            result["tpot"] = (times[-1] - times[0]) / (n - 1)
        if (table[:, 1] == 1).all():
            result["gaps"] = np.diff(times)
    return result


def q1_from_latency(arrival, chunks):
    first = last = None
    n, single = 0, True
    gaps = []
    for time, tokens in chunks:
        if tokens == 0:
            continue
        single = single and tokens == 1
        if first is None:
            first = time
        else:
            gaps.append(time - last)
        last, n = time, n + tokens
    if n == 0:
        return {"e2e": None, "ttft": None, "tpot": None, "gaps": None, "n": 0}
    ttft, e2e = first - arrival, last - arrival
    return {"n": n, "ttft": ttft, "e2e": e2e, "gaps": tuple(gaps) if single else None,
            "tpot": None if n == 1 else (e2e - ttft) / (n - 1)}


def q2_with_loop(requests):
    ttfts, tpots, partial, failed = [], [], [], 0
    for r in requests:
        times = r["times"]
        if r["error"] not in (None, "") or len(times) == 0:
            failed += 1
            if times:
                partial.append(times[0] - r["arrival"])
            continue
        ttfts.append(times[0] - r["arrival"])
        if len(times) >= 2:
            tpots.append((times[-1] - times[0]) / (len(times) - 1))
    return {"n": len(requests), "failed": failed, "ttft_mean": statistics.fmean(ttfts) if ttfts else None,
            "tpot_mean": statistics.fmean(tpots) if tpots else None, "tpot_count": len(tpots),
            "partial_ttfts": partial}


def q2_with_numpy(requests):
    good = [r for r in requests if len(r["times"]) and not r["error"]]
    bad = [r for r in requests if r not in good]
    tpots = [np.diff(r["times"]).mean() for r in good if len(r["times"]) > 1]
    ttfts = [r["times"][0] - r["arrival"] for r in good]
    return {"n": len(good) + len(bad), "failed": len(bad), "ttft_mean": np.mean(ttfts) if ttfts else None,
            "tpot_mean": np.mean(tpots) if tpots else None, "tpot_count": len(tpots),
            "partial_ttfts": np.array([r["times"][0] - r["arrival"] for r in bad if r["times"]], dtype=float)}


def q2_running(requests):
    n = failed = tpot_count = 0
    ttft_sum = tpot_sum = 0.0
    partial = []
    for n, r in enumerate(requests, 1):
        ok = bool(r["times"]) and not r["error"]
        failed += not ok
        if r["times"] and not ok:
            partial.append(r["times"][0] - r["arrival"])
        if ok:
            ttft_sum += r["times"][0] - r["arrival"]
            if r["times"][1:]:
                tpot_count += 1
                tpot_sum += (r["times"][-1] - r["times"][0]) / (len(r["times"]) - 1)
    return {"n": n, "failed": failed, "ttft_mean": ttft_sum / (n - failed) if n > failed else None,
            "tpot_mean": tpot_sum / tpot_count if tpot_count else None, "tpot_count": tpot_count,
            "partial_ttfts": partial}


def q3_by_cases(requests, limits):
    def good(r):
        times = r["times"]
        if r["error"] or not times:
            return False
        if "ttft" in limits and times[0] - r["arrival"] > limits["ttft"]:
            return False
        if "e2e" in limits and times[-1] - r["arrival"] > limits["e2e"]:
            return False
        return not ("tpot" in limits and len(times) > 1 and (times[-1] - times[0]) / (len(times) - 1) > limits["tpot"])

    single = [r for r in requests if len(r["times"]) == 1 and not r["error"]]
    share = None
    if limits and requests:
        share = sum(map(good, requests)) / len(requests)
    return {"goodput": share, "without_tpot": len(single)}


def q3_with_infinity(requests, limits):
    def value(r, key):
        t = r["times"]
        if key == "tpot":
            return (t[-1] - t[0]) / (len(t) - 1) if len(t) > 1 else -math.inf
        return (t[0] if key == "ttft" else t[-1]) - r["arrival"]

    answered = [r for r in requests if r["times"] and not r["error"]]
    kept = [all(value(r, key) <= limits[key] for key in limits) for r in answered]
    return {"without_tpot": sum(len(r["times"]) == 1 for r in answered),
            "goodput": None if not (limits and requests) else np.float64(sum(kept)) / len(requests)}


def q3_by_counting_the_bad(requests, limits):
    bad = alone = 0
    for r in requests:
        t = r["times"]
        if not t or r["error"]:
            bad += 1
            continue
        alone += len(t) == 1
        over = [t[0] - r["arrival"] > limits.get("ttft", math.inf),
                t[-1] - r["arrival"] > limits.get("e2e", math.inf)]
        if len(t) > 1:
            over.append((t[-1] - t[0]) / (len(t) - 1) > limits.get("tpot", math.inf))
        bad += any(over)
    return {"goodput": (len(requests) - bad) / len(requests) if requests and limits else None, "without_tpot": alone}


def q4_weighted(samples, p):
    s = sorted(samples)
    whole, fraction = divmod((len(s) - 1) * p / 100, 1)
    whole = int(whole)
    return float(s[-1]) if whole == len(s) - 1 else float(s[whole] * (1 - fraction) + s[whole + 1] * fraction)


def q4_interpolated(samples, p):
    return float(np.interp((len(samples) - 1) * p / 100, np.arange(len(samples)), np.sort(samples)))


def q4_by_numpy(samples, p):
    return float(np.percentile(samples, p))


RIGHT = {
    "q1": [q1_by_tokens, q1_with_numpy, q1_from_latency],
    "q2": [q2_with_loop, q2_with_numpy, q2_running],
    "q3": [q3_by_cases, q3_with_infinity, q3_by_counting_the_bad],
    "q4": [q4_weighted, q4_interpolated, q4_by_numpy],
    "q5": [lambda n, ttft, x: {"e2e": x * n, "tpot": None if n == 1 else (x * n - ttft) / (n - 1)},
           lambda n, ttft, x: {"e2e": np.float64(n) * x, "tpot": (n * x - ttft) / (n - 1) if n >= 2 else None},
           lambda n, ttft, x: {"tpot": x + (x - ttft) / (n - 1) if n > 1 else None, "e2e": sum([x] * n)}],
}


# ------------------------------------------------------------------ wrong answers: name of the mistake -> code
def where(value, keep=lambda r: r["n"] > 1):
    """value(result, arrival, kept times), or the right value where `keep` says no."""
    def entry(key):
        return lambda r, a, c: value(r, a, [t for t, k in c if k]) if keep(r) else r[key]

    return entry


def some(r):
    return r["n"] > 0


q1, q2, q3, q5 = q1_by_tokens, q2_with_loop, q3_by_cases, RIGHT["q5"][0]


def ok(r):
    return bool(r["times"]) and not r["error"]


def tpot(r):
    return (r["times"][-1] - r["times"][0]) / (len(r["times"]) - 1) if len(r["times"]) > 1 else None


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def middle(values):
    values = list(values)
    return statistics.median(values) if values else None


def linear(place, samples):
    s = sorted(samples)
    return float(np.interp(place, np.arange(len(s)), s))


WRONG = {
    "q1": {
        "divided by n": spoil(q1, tpot=where(lambda r, a, t: (t[-1] - t[0]) / r["n"])("tpot")),
        "full latency over n": spoil(q1, tpot=where(lambda r, a, t: (t[-1] - a) / r["n"])("tpot")),
        "wait counted in": spoil(q1, tpot=where(lambda r, a, t: r["e2e"] / (r["n"] - 1))("tpot")),
        "divided by chunks": spoil(q1, tpot=where(lambda r, a, t: (t[-1] - t[0]) / max(1, len(t) - 1))("tpot")),
        "zero for missing": spoil(q1, tpot=lambda r, a, c: 0.0 if r["n"] == 1 else r["tpot"]),
        "empty chunk as first token": spoil(q1, ttft=lambda r, a, c: c[0][0] - a if r["n"] else None),
        "empty chunk as the end": spoil(q1, e2e=lambda r, a, c: c[-1][0] - a if r["n"] else None),
        "chunk gaps as gaps": spoil(q1, gaps=where(lambda r, a, t: [y - x for x, y in zip(t, t[1:])], some)("gaps")),
        "zeros inside a chunk": spoil(q1, gaps=lambda r, a, c: None if not r["n"] else [
            int(d) for d in np.diff(np.repeat([t for t, _ in c], [k for _, k in c]))]),
        "clock time as TTFT": spoil(q1, ttft=where(lambda r, a, t: t[0], some)("ttft")),
        "clock time as latency": spoil(q1, e2e=where(lambda r, a, t: t[-1], some)("e2e")),
        "zeros for a failed request": lambda a, c: (
            q1(a, c) if any(k for _, k in c) else dict(n=0, ttft=0, gaps=[], tpot=0, e2e=0)),
        "chunks counted as tokens": spoil(q1, n=lambda r, a, c: sum(k > 0 for _, k in c)),
    },
    "q2": {
        "failed ones dropped": spoil(q2, n=lambda r, rs: len([x for x in rs if ok(x)])),
        "silent ones served": spoil(q2, failed=lambda r, rs: len([x for x in rs if x["error"]])),
        "broken ones served": lambda rs: q2([{**x, "error": None} for x in rs]),
        "empty error text as failure": lambda rs: q2(
            [{**x, "error": None if x["error"] is None else "bad"} for x in rs]),
        "zero for a missing TPOT": spoil(q2, tpot_mean=lambda r, rs: mean(tpot(x) or 0 for x in rs if ok(x)),
                                         tpot_count=lambda r, rs: sum(map(ok, rs))),
        "mean over gaps": spoil(q2, tpot_mean=lambda r, rs: mean(
            b - a for x in rs if ok(x) for a, b in zip(x["times"], x["times"][1:]))),
        "partial TTFTs averaged in": spoil(q2, ttft_mean=lambda r, rs: mean(
            x["times"][0] - x["arrival"] for x in rs if x["times"])),
        "failed ones as 0 ms": spoil(q2, ttft_mean=lambda r, rs: mean(
            x["times"][0] - x["arrival"] if ok(x) else 0 for x in rs)),
        "zero without samples": spoil(q2, ttft_mean=lambda r, rs: r["ttft_mean"] or 0,
                                      tpot_mean=lambda r, rs: r["tpot_mean"] or 0),
        "median for mean": spoil(q2, ttft_mean=lambda r, rs: middle(x["times"][0] - x["arrival"] for x in rs if ok(x)),
                                 tpot_mean=lambda r, rs: middle(tpot(x) for x in rs if ok(x) and tpot(x) is not None)),
        "partial TTFTs lost": spoil(q2, partial_ttfts=lambda r, rs: []),
    },
    "q3": {
        "over those served": spoil(q3, goodput=lambda r, rs, s: (
            r["goodput"] and r["goodput"] * len(rs) / sum(map(ok, rs)))),
        "strict limits": spoil(q3, goodput=lambda r, rs, s: None if r["goodput"] is None else q3_with_infinity(
            rs, {key: limit - 1e-6 for key, limit in s.items()})["goodput"]),
        "one output not good": lambda rs, s: {**q3(rs, s), "goodput": q3(
            [{**x, "error": "alone"} if len(x["times"]) == 1 and "tpot" in s else x for x in rs], s)["goodput"]},
        "one limit is enough": spoil(q3, goodput=lambda r, rs, s: None if r["goodput"] is None else mean(
            any(q3([x], {key: limit})["goodput"] for key, limit in s.items()) for x in rs)),
        "broken ones good": lambda rs, s: {
            **q3(rs, s), "goodput": q3([{**x, "error": None} for x in rs], s)["goodput"]},
        "zero without limits": spoil(q3, goodput=lambda r, rs, s: r["goodput"] or 0.0),
        "everything good without limits": spoil(q3, goodput=lambda r, rs, s: (
            mean(map(ok, rs)) if rs and not s else r["goodput"])),
        "a share in per cent": spoil(q3, goodput=lambda r, rs, s: (
            None if r["goodput"] is None else 100 * r["goodput"])),
        "a number of requests": spoil(q3, goodput=lambda r, rs, s: (
            None if r["goodput"] is None else r["goodput"] * len(rs))),
        "failed ones without TPOT": spoil(q3, without_tpot=lambda r, rs, s: (
            len([x for x in rs if len(x["times"]) <= 1]))),
        "only the first limit looked at": lambda rs, s: q3(rs, {key: s[key] for key in list(s)[:1]}),
    },
    "q4": {
        "not sorted": lambda s, p: float(np.interp((len(s) - 1) * p / 100, np.arange(len(s)), s)),
        "nearest rank": lambda s, p: float(np.percentile(s, p, method="inverted_cdf")),
        "place n·p": lambda s, p: float(sorted(s)[min(int(len(s) * p / 100), len(s) - 1)]),
        "n for n − 1": lambda s, p: linear(len(s) * p / 100, s),
        "fraction cut off": lambda s, p: float(np.percentile(s, p, method="lower")),
        "fraction rounded up": lambda s, p: float(np.percentile(s, p, method="higher")),
        "middle of the neighbours": lambda s, p: float(np.percentile(s, p, method="midpoint")),
        "fraction the other way": lambda s, p: float(
            np.percentile(s, p, method="lower") + np.percentile(s, p, method="higher") - np.percentile(s, p)),
        "counted from 1": lambda s, p: float(np.percentile(s, p, method="weibull")),
        "largest": lambda s, p: float(sorted(s)[-1]),
        "from the top": lambda s, p: -q4_weighted([-x for x in s], p),
    },
    "q5": {
        "taken as TPOT": spoil(q5, tpot=lambda r, n, t, x: x if n > 1 else None),
        "taken as TPOT throughout": spoil(q5, e2e=lambda r, n, t, x: r["e2e"] - x + t,
                                          tpot=lambda r, n, t, x: x if n > 1 else None),
        "divided by n": spoil(q5, tpot=lambda r, n, t, x: x - t / n if n > 1 else None),
        "wait left in": spoil(q5, tpot=lambda r, n, t, x: r["e2e"] / (n - 1) if n > 1 else None),
        "wait taken from each": spoil(q5, tpot=lambda r, n, t, x: x - t if n > 1 else None),
        "wait added again": spoil(q5, e2e=lambda r, n, t, x: r["e2e"] + t),
        "mean taken for gaps": spoil(q5, e2e=lambda r, n, t, x: r["e2e"] - x + t),
        "latency without the wait": spoil(q5, e2e=lambda r, n, t, x: r["e2e"] - t),
        "zero for missing": spoil(q5, tpot=lambda r, n, t, x: r["tpot"] or 0.0),
        "mean for missing": spoil(q5, tpot=lambda r, n, t, x: x if n == 1 else r["tpot"]),
        "outputs a second": spoil(q5, tpot=lambda r, n, t, x: 1000 / r["tpot"] if n > 1 else None),
    },
}

install(globals(), STEM, RIGHT, WRONG)


def test_the_numbers_of_example_30_2_are_visible_cases():
    case = find(f"{STEM}.q1").cases[0]
    assert case.args == (0, [[150, 1], [190, 1], [235, 1], [270, 1]])
    assert case.expected == {"n": 4, "ttft": 150, "gaps": [40, 45, 35], "tpot": 40.0, "e2e": 270}
    assert (find(f"{STEM}.q5").cases[0].args, find(f"{STEM}.q5").cases[0].expected) == (
        (4, 150, 67.5), {"e2e": 270.0, "tpot": 40.0})


# ------------------------------------------------------------------ the trace explorer
def view(requests, ttft=200, tpot=50):
    return load("trace_explorer").view({"requests": requests, "ttft": ttft, "tpot": tpot})


def test_the_explorer_starts_with_example_30_2():
    shown = load("trace_explorer").view(load("trace_explorer").start())
    assert shown.rows == (("A", 4, "150", "40 45 35", "40", "270", "67.5", "yes"),)
    assert "TTFT 150 ms and 3 gaps of 40 ms on average make the full latency of 270 ms" in shown.sentence
    assert "it would be 67.5 ms, which is no TPOT" in shown.sentence


@pytest.mark.parametrize("text", [
    "0: 150 190 235 270", "10: 110, 160, 220;0:30", "0:", "5: 5 5 5; 7: 9.5 10.25; 0: 1e5"])
def test_the_explorer_shows_what_the_traces_say(text):
    traces = read_requests(text)
    rows = view(text).rows
    assert len(rows) == len(traces)
    for row, trace in zip(rows, traces):
        numbers = [None if cell == "–" else float(cell) for cell in (row[2], row[4], row[5], row[6])]
        expected = [trace.ttft, trace.tpot, trace.e2e, trace.mean_time_per_output]
        assert numbers == [value if value is None else pytest.approx(value, abs=0.005) for value in expected]
        assert row[1] == trace.n_tokens
        kept = summarize([trace], slo={"ttft": 200, "tpot": 50}).goodput
        assert row[-1] == ("failed" if trace.failed else "yes" if kept else "no")


def test_a_report_over_several_requests_names_its_denominators():
    words = view("0: 150 190 235 270; 0: 100; 0:").sentence
    assert "3 requests, 1 failed. Mean TTFT 125 ms over 2, mean TPOT 40 ms over 1; 2 of 3 requests are good." in words
    assert view("0: 100").sentence == "One output: TTFT and full latency are both 100 ms, and there is no TPOT."


def test_the_missing_is_a_dash_and_never_a_zero():
    assert view("0: 100").rows[0][3:5] == ("none", "–")
    assert view("0:").rows[0][2:] == ("–", "–", "–", "–", "–", "failed")


@pytest.mark.parametrize("text, words", [
    ("", "1 to 6"), (";;", "1 to 6"), ("; ".join(["0: 1"] * 7), "1 to 6"), ("150 190", "Request A"),
    ("0: 1; 0: x", "Request B"), ("0: 190 150", "token_times[1]"), ("200: 150", "must not be before arrival"),
    ("0: nan", "finite"), ("0: 1: 2", "Request A"), ("0: " + "1 " * 41, "at most 40"),
])
def test_what_cannot_be_read_is_said_with_its_place(text, words):
    page = respond("trace_explorer", {"requests": text})["html"]
    assert 'role="alert"' in page and words in page


def test_requests_are_added_while_there_is_room():
    state = {}
    for _ in range(9):
        state = respond("trace_explorer", state, "one")["state"]
    assert state["requests"] == "0: 150 190 235 270" + "; 0: 100" * 5
    assert respond("trace_explorer", {}, "fail")["state"]["requests"] == "0: 150 190 235 270; 0:"


@pytest.mark.parametrize("span", [0.3, 1, 4, 7, 270, 999, 1000, 1e5])
def test_an_axis_has_four_to_ten_steps(span):
    assert 4 <= span / nice_step(span) <= 10


def test_the_figures_describe_what_they_draw():
    names = latency_names(RequestTrace(0, [150, 190, 235, 270], started=30))
    assert "TTFT 150 ms, of which 30 in the queue; gaps 40 45 35 ms with the mean TPOT 40 ms" in names.description
    report = summarize([RequestTrace(0, [t]) for t in (10, 20, 30)])
    line = percentile_line([30, 10, 20], report.ttft, "TTFT")
    assert "samples 10 20 30 ms" in line.description and "p95 29.0 ms" in line.description
