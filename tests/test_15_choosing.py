"""The checks of chapter 15 are worth their points; its tables, its figure and its control show what `mgpt` says.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import html
import importlib
import math
import re
import statistics
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from exercise_lists import install, result_of, spoil

from mgpt.course.judge import FAIL, judge
from mgpt.course.notebook import caller
from mgpt.course.questions import find
from mgpt.machine import GIB, SERVED, kv_bytes_per_position
from mgpt.quality import hard_results
from mgpt.serving import Setting, serve
from mgpt.timing import summarize
from mgpt.widgets import load, respond
from mgpt.widgets.choosing import TRACES, outcome_of, setting_of
from mgpt.widgets.tradeoffs import (
    BASE, LABELS, SLO, TECHNIQUES, changed_answers, goal, run, shown, tradeoff_chart, tradeoff_table)
from mgpt.workloads import workload

STEM = "15_choosing"
CHECKS = importlib.import_module(f"mgpt.course.checks.{STEM}")
MIB = 2**20


# ------------------------------------------------------------------ right answers, written differently
def q1_loop(machine, model, kv, block_size):
    """Take blocks off until none fits."""
    bits, scale = {"f16": (16, 0), "int8": (8, 4), "int4": (4, 4)}[kv]
    each = math.ceil(model["head_dim"] * bits / 8) + scale
    each = each * 2 * model["n_kv_head"] * model["n_layer"] * block_size
    left = machine["memory_gib"] * 1024**3 - machine["reserve_gib"] * 1024**3 - machine["weight_bytes"]
    if left < 0:
        left = 0
    blocks, rest = divmod(left, each)
    return dict(blocks=blocks, positions=blocks * block_size, unused_bytes=rest)


def q1_layers(machine, model, kv, block_size):
    """Sum over layers, sides and heads."""
    d, vectors = model["head_dim"], 0
    for _layer in range(model["n_layer"]):
        for _side in "KV":
            vectors += model["n_kv_head"]
    width = 2 * d if kv == "f16" else d + 4 if kv == "int8" else -(-d // 2) + 4
    free = max(0, ((machine["memory_gib"] - machine["reserve_gib"]) << 30) - machine["weight_bytes"])
    n = free // (vectors * width) // block_size
    return {"blocks": n, "positions": n * block_size, "unused_bytes": free - n * block_size * vectors * width}


def q1_numpy(machine, model, kv, block_size):
    widths = {"f16": model["head_dim"] * 2, "int8": model["head_dim"] + 4, "int4": (model["head_dim"] + 1) // 2 + 4}
    block = np.int64(block_size) * 2 * model["n_layer"] * model["n_kv_head"] * widths[kv]
    free = np.maximum(np.int64((machine["memory_gib"] - machine["reserve_gib"]) * 2**30 - machine["weight_bytes"]), 0)
    return {"blocks": free // block, "positions": free // block * block_size, "unused_bytes": free % block}


def with_pool(change):
    """q1_loop with changed arguments: change(machine, model, kv, block_size) -> the arguments."""
    return lambda *args: q1_loop(*change(*args))


def q1_recount(factor):
    """Every position takes `factor` of its bytes."""
    def answer(machine, model, kv, block_size):
        return q1_bytes(machine, model, kv, block_size, lambda d: factor(d, kv))

    return answer


def q1_bytes(machine, model, kv, block_size, vector, sides=2, layers=None):
    block = block_size * sides * (model["n_layer"] if layers is None else layers) * model["n_kv_head"] * vector(model["head_dim"])
    left = max(0, (machine["memory_gib"] - machine["reserve_gib"]) * 2**30 - machine["weight_bytes"])
    return {"blocks": left // block, "positions": left // block * block_size, "unused_bytes": left % block}


def right_vector(kv):
    return lambda d: {"f16": 2 * d, "int8": d + 4, "int4": (d + 1) // 2 + 4}[kv]


def q1_gb(machine, model, kv, block_size):
    left = max(0, (machine["memory_gib"] - machine["reserve_gib"]) * 10**9 - machine["weight_bytes"])
    block = block_size * 2 * model["n_layer"] * model["n_kv_head"] * right_vector(kv)(model["head_dim"])
    return {"blocks": left // block, "positions": left // block * block_size, "unused_bytes": left % block}


def q1_up(machine, model, kv, block_size):
    model_block = block_size * 2 * model["n_layer"] * model["n_kv_head"] * right_vector(kv)(model["head_dim"])
    left = max(0, (machine["memory_gib"] - machine["reserve_gib"]) * 2**30 - machine["weight_bytes"])
    blocks = math.ceil(Fraction(left, model_block))
    return {"blocks": blocks, "positions": blocks * block_size, "unused_bytes": left - blocks * model_block}


def q1_broken(machine, model, kv, block_size):
    right = q1_loop(machine, model, kv, block_size)
    single = q1_loop(machine, model, kv, 1)
    return {**right, "positions": single["blocks"]}


def q1_below(machine, model, kv, block_size):
    block = block_size * 2 * model["n_layer"] * model["n_kv_head"] * right_vector(kv)(model["head_dim"])
    blocks, rest = divmod((machine["memory_gib"] - machine["reserve_gib"]) * 2**30 - machine["weight_bytes"], block)
    return {"blocks": blocks, "positions": blocks * block_size, "unused_bytes": rest}


def q2_parts(run, slo):
    failed = [r for r in run["requests"] if len(r["ticks"]) == 0 or len(r["ticks"]) != r["wanted"]]
    fine = 0
    for r in run["requests"]:
        if r in failed:
            continue
        seen = list(map(run["ends"].__getitem__, r["ticks"]))
        limits = [seen[0] - r["arrival"] <= slo["ttft"]]
        if seen[1:]:
            limits.append(seen[-1] - seen[0] <= slo["tpot"] * len(seen[1:]) + 1e-9)
        fine += min(limits)
    total = len(run["requests"])
    return {"goodput": None if total == 0 else fine / total, "failed": len(failed)}


def q2_gaps(run, slo):
    """TPOT as the mean of the gaps."""
    marks = []
    for request in run["requests"]:
        times = np.array([run["ends"][t] for t in request["ticks"]], dtype=float)
        if times.size < max(request["wanted"], 1):
            marks.append(None)
            continue
        pace = np.diff(times).mean() if times.size > 1 else 0.0
        marks.append(bool(times[0] - request["arrival"] <= slo["ttft"] and pace <= slo["tpot"] + 1e-9))
    return {"goodput": sum(m is True for m in marks) / len(marks) if marks else None, "failed": marks.count(None)}


def q2_bad_ones(run, slo):
    """Start with everybody and take off who missed something."""
    requests = run["requests"]
    if not requests:
        return {"goodput": None, "failed": 0}
    good, failed = len(requests), 0
    for request in requests:
        ticks = request["ticks"]
        if not ticks or len(ticks) < request["wanted"]:
            good, failed = good - 1, failed + 1
        elif run["ends"][ticks[0]] > slo["ttft"] + request["arrival"]:
            good -= 1
        elif len(ticks) >= 2 and (run["ends"][ticks[-1]] - run["ends"][ticks[0]]) / (len(ticks) - 1) > slo["tpot"]:
            good -= 1
    return {"goodput": good / len(requests), "failed": failed}


def q2_like(times=lambda run, r: [run["ends"][t] for t in r["ticks"]], lost=lambda r: len(r["ticks"]) < r["wanted"] or not r["ticks"],
            first=lambda x, r: x[0] - r["arrival"], rest=lambda x, r: (x[-1] - x[0]) / (len(x) - 1) if len(x) > 1 else None,
            keeps=lambda value, limit: value <= limit, joined=all, of=lambda n, failed: n):
    def answer(run, slo):
        good = failed = 0
        for r in run["requests"]:
            if lost(r):
                failed += 1
            else:
                x = times(run, r)
                pairs = [(first(x, r), slo["ttft"]), (rest(x, r), slo["tpot"])]
                good += joined(value is None or keeps(value, limit) for value, limit in pairs)
        n = of(len(run["requests"]), failed)
        return {"goodput": good / n if n else None, "failed": failed}

    return answer


def q2_means(run, slo):
    served = [r for r in run["requests"] if r["ticks"] and len(r["ticks"]) >= r["wanted"]]
    failed = len(run["requests"]) - len(served)
    if not run["requests"]:
        return {"goodput": None, "failed": 0}
    if not served:
        return {"goodput": 0.0, "failed": failed}
    ends = run["ends"]
    waits = statistics.fmean(ends[r["ticks"][0]] - r["arrival"] for r in served)
    paces = [(ends[r["ticks"][-1]] - ends[r["ticks"][0]]) / (len(r["ticks"]) - 1) for r in served if len(r["ticks"]) > 1]
    fine = waits <= slo["ttft"] and (not paces or statistics.fmean(paces) <= slo["tpot"])
    return {"goodput": len(served) * fine / len(run["requests"]), "failed": failed}


def percentile95(waits):
    """NumPy's linear rule by hand."""
    ordered = sorted(waits)
    place = Fraction(95, 100) * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))


def q3_sorted(runs, goal):
    def fine(run):
        return (run["rule"], run["trace"]) == (goal["rule"], goal["trace"]) and all(w is not None for w in run["ttft"]) \
            and percentile95(run["ttft"]) <= goal["ttft"] + 1e-9 and run["peak_bytes"] <= goal["memory"] \
            and run["changed"] <= goal["changed"]

    keys = {"waits": lambda run: percentile95(run["ttft"]), "throughput": lambda run: -run["outputs"] / run["makespan"],
            "memory": lambda run: run["peak_bytes"]}
    fit = sorted(filter(fine, runs), key=keys[goal["want"]])  # stable
    return {"best": fit[0]["name"] if fit else None, "left_out": [run["name"] for run in runs if not fine(run)]}


def q3_loop(runs, goal):
    best, record, out = None, None, []
    for run in runs:
        if run["rule"] != goal["rule"] or run["trace"] != goal["trace"] or run["peak_bytes"] > goal["memory"]:
            out.append(run["name"])
        elif None in run["ttft"] or run["changed"] > goal["changed"] or np.percentile(run["ttft"], 95) > goal["ttft"]:
            out.append(run["name"])
        else:
            mark = {"waits": np.percentile(run["ttft"], 95), "memory": run["peak_bytes"],
                    "throughput": run["makespan"] / run["outputs"]}[goal["want"]]
            if record is None or mark < record:
                best, record = run["name"], mark
    return {"best": best, "left_out": out}


def q3_two_passes(runs, goal):
    """Quantile by np.quantile, and indexes for names."""
    ok = []
    for run in runs:
        reasons = [run["rule"] != goal["rule"], run["trace"] != goal["trace"], run["changed"] > goal["changed"],
                   run["peak_bytes"] > goal["memory"], None in run["ttft"]]
        if not any(reasons):
            reasons.append(bool(np.quantile(np.array(run["ttft"], float), 0.95) > goal["ttft"] + 1e-9))
        ok.append(not any(reasons))
    score = [-math.inf] * len(runs)
    for i, run in enumerate(runs):
        if ok[i]:
            score[i] = (-np.quantile(run["ttft"], 0.95) if goal["want"] == "waits" else -run["peak_bytes"]
                        if goal["want"] == "memory" else run["outputs"] / run["makespan"])
    best = runs[int(np.argmax(score))]["name"] if any(ok) else None
    return {"best": best, "left_out": [run["name"] for run, fine in zip(runs, ok) if not fine]}


def q3_blind(*keys, **values):
    """Blind for some of a run's entries: they are set so that they never matter."""
    def answer(runs, goal):
        seen = []
        for run in runs:
            changed = {key: goal[key] for key in keys} | values
            if changed.get("ttft") == "served":
                changed["ttft"] = [w for w in run["ttft"] if w is not None]
            seen.append({**run, **changed})
        return q3_loop(seen, goal)

    return answer


def q3_wait(statistic):
    """Another statistic than p95, both as limit and as wait."""
    def answer(runs, goal):
        return q3_loop([{**run, "ttft": run["ttft"] if None in run["ttft"] else [statistic(run["ttft"])]} for run in runs], goal)

    return answer


def q3_strict(runs, goal):
    right, out, fit = q3_loop(runs, goal), [], []
    for run in runs:
        inside = run["name"] not in right["left_out"] and percentile95(run["ttft"]) < goal["ttft"] \
            and run["peak_bytes"] < goal["memory"] and run["changed"] < goal["changed"]
        (fit.append(run) if inside else out.append(run["name"]))
    return {"best": q3_loop(fit, goal)["best"], "left_out": out}


def q3_memory_blind(runs, goal):
    return q3_loop(runs, {**goal, "memory": math.inf})


def q3_limit_blind(runs, goal):
    return q3_loop(runs, {**goal, "ttft": math.inf})


def q3_best(**scores):
    """The right runs are left out, and then another one is best."""
    def answer(runs, goal):
        right = q3_loop(runs, goal)
        fit = [run for run in runs if run["name"] not in right["left_out"]]
        if goal["want"] in scores and fit:
            return {**right, "best": max(fit, key=scores[goal["want"]])["name"]}
        return right

    return answer


def q3_last(runs, goal):
    return {**q3_loop(runs, goal), "best": q3_loop(runs[::-1], goal)["best"]}


def q3_anyway(runs, goal):
    right = q3_loop(runs, goal)
    if right["best"] is not None or not runs:
        return right
    marks = [({"waits": -percentile95([w for w in run["ttft"] if w is not None]), "memory": -run["peak_bytes"],
               "throughput": run["outputs"] / run["makespan"]}[goal["want"]], run["name"]) for run in runs]
    return {**right, "best": max(marks)[1]}


BYTES = {"f16": 131_072, "int8": 67_584, "int4": 34_816}


def planned(**chosen):
    """A plan as a learner may write it, its pool as large as the budget allows."""
    chosen = {"policy": "continuous", "max_active": 16, "token_budget": 128, "block_size": 16, "kv": "f16", "sharing": None} | chosen
    return lambda budget: {**chosen, "pool_blocks": budget // (chosen["block_size"] * BYTES[chosen["kv"]])}


# Good answers that differ in kind: what makes each of them fit is another thing.
KINDS = {
    "prefix shared, full precision": planned(sharing="dynamic"),
    "nothing shared, half the bytes": planned(kv="int8", block_size=64),
    "nothing shared, half the bytes, larger chunks": planned(kv="int8", block_size=32, token_budget=192),
    "few at once, shared and halved": planned(sharing="dynamic", kv="int8", max_active=4, block_size=64),
    "larger chunks, shared and halved": planned(sharing="dynamic", kv="int8", token_budget=256, block_size=64),
    "waves in short ticks, shared and halved": planned(sharing="dynamic", kv="int8", policy="static", block_size=64),
    "only as many blocks as six requests need": lambda budget: {
        **planned(sharing="dynamic", kv="int8", max_active=6, token_budget=200, block_size=32)(budget), "pool_blocks": 300},
}


def q4_wrong(pool=None, **chosen):
    right = planned(**{"sharing": "dynamic", "kv": "int8", "block_size": 64} | chosen)
    return lambda budget: right(budget) if pool is None else {**right(budget), "pool_blocks": pool(budget)}


RIGHT = {
    "q1": [q1_loop, q1_layers, q1_numpy],
    "q2": [q2_parts, q2_gaps, q2_bad_ones],
    "q3": [q3_sorted, q3_loop, q3_two_passes],
    "q4": list(KINDS.values()),
}
WRONG = {
    "q1": {
        "GB for GiB": q1_gb,
        "reserve forgotten": with_pool(lambda m, *rest: ({**m, "reserve_gib": 0}, *rest)),
        "weights forgotten": with_pool(lambda m, *rest: ({**m, "weight_bytes": 0}, *rest)),
        "V forgotten": lambda m, o, kv, size: q1_bytes(m, o, kv, size, right_vector(kv), sides=1),
        "one layer": lambda m, o, kv, size: q1_bytes(m, o, kv, size, right_vector(kv), layers=1),
        "scales forgotten": q1_recount(lambda d, kv: {"f16": 2 * d, "int8": d, "int4": (d + 1) // 2}[kv]),
        "one scale for K and V": q1_recount(lambda d, kv: {"f16": 2 * d, "int8": d + 2, "int4": (d + 1) // 2 + 2}[kv]),
        "a byte for a nibble": q1_recount(lambda d, kv: {"f16": 2 * d}.get(kv, d + 4)),
        "rounded up": q1_up,
        "positions of broken blocks": q1_broken,
        "less than nothing": q1_below,
    },
    "q2": {
        "the failed left out": q2_like(of=lambda n, failed: n - failed),
        "broken off counted as served": q2_like(lost=lambda r: not r["ticks"]),
        "limits exclusive": q2_like(keeps=lambda value, limit: value < limit),
        "one output never good": q2_like(rest=lambda x, r: (x[-1] - x[0]) / (len(x) - 1) if len(x) > 1 else math.inf),
        "start of the tick": q2_like(times=lambda run, r: [run["ends"][t - 1] if t else 0 for t in r["ticks"]]),
        "arrival forgotten": q2_like(first=lambda x, r: x[0]),
        "mean time per output": q2_like(rest=lambda x, r: (x[-1] - r["arrival"]) / len(x)),
        "failed and good at once": lambda run, slo: {
            "goodput": q2_like(lost=lambda r: not r["ticks"])(run, slo)["goodput"], "failed": q2_parts(run, slo)["failed"]},
        "mean time per output of two and more": q2_like(
            rest=lambda x, r: (x[-1] - r["arrival"]) / len(x) if len(x) > 1 else None),
        "longest gap": q2_like(rest=lambda x, r: max(np.diff(x)) if len(x) > 1 else None),
        "nobody": lambda run, slo: {"goodput": q2_parts(run, slo)["goodput"] or 0.0, "failed": q2_parts(run, slo)["failed"]},
        "divided by n": q2_like(rest=lambda x, r: (x[-1] - x[0]) / len(x) if len(x) > 1 else None),
        "one limit is enough": q2_like(joined=any),
        "ticks for milliseconds": q2_like(times=lambda run, r: [t + 1 for t in r["ticks"]]),
        "judged by the means": q2_means,
    },
    "q3": {
        "another cost rule compared": q3_blind("rule"),
        "another trace compared": q3_blind("trace"),
        "judged by the mean": q3_wait(statistics.fmean),
        "judged by the median": q3_wait(statistics.median),
        "judged by the worst": q3_wait(max),
        "the failed left out": q3_blind(ttft="served"),
        "limits exclusive": q3_strict,
        "memory ignored": q3_memory_blind,
        "quality ignored": q3_blind("changed"),
        "throughput bought with waiting": q3_limit_blind,
        "outputs, not outputs a second": q3_best(throughput=lambda run: run["outputs"]),
        "the most memory": q3_best(memory=lambda run: run["peak_bytes"]),
        "the last of equals": q3_last,
        "somebody must win": q3_anyway,
    },
    "q4": {
        "no setting": q4_wrong(pool=lambda budget: budget / (64 * BYTES["int8"])),
        "more than the memory": q4_wrong(pool=lambda budget: budget // (64 * 2 * 32 * 8 * 128)),
        "quality": q4_wrong(kv="int4"),
        "refused": q4_wrong(pool=lambda budget: 30),
        "ttft": q4_wrong(max_active=3),
        "tpot": q4_wrong(token_budget=None),
        "goodput": q4_wrong(token_budget=None, max_active=8),
        "tuned on one trace": q4_wrong(kv="f16", token_budget=64),
    },
}

install(globals(), STEM, RIGHT, WRONG)


# ------------------------------------------------------------------ the capstone
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [640 * MIB, 700 * MIB + 12_345, 831_000_001, 1000 * MIB - 1, 1024 * MIB])
def test_every_kind_of_good_answer_is_good_over_the_whole_range_of_budgets(kind, budget):
    assert CHECKS.verdict(KINDS[kind](budget), budget) is None


def test_good_answers_differ_in_more_than_numbers():
    kinds = {(p["sharing"], p["kv"]) for p in (answer(640 * MIB) for answer in KINDS.values())}
    assert len(kinds) >= 3


@pytest.mark.parametrize("change, name, words", [
    ({"policy": "static", "token_budget": None}, "ttft", r"p95 TTFT is \d+ ms, \d+ over the limit of 1200"),
    ({"token_budget": None}, "tpot", r"p95 TPOT is \d+ ms, \d+ over the limit of 30"),
    ({"kv": "f16", "sharing": None}, "ttft", r"p95 TTFT"),
    ({"block_size": 2048}, "ttft", r"goodput is 0\.\d\d, 0\.\d\d under the limit of 0\.97"),
    ({"block_size": 16384, "kv": "f16", "pool_blocks": 1}, "more than the memory", r"1,476,395,008 more than the budget"),
    ({"max_active": 2}, "ttft", r"over the limit"),
    ({"kv": "int4"}, "quality", r"int4 changed 20 of MG-2's answers, 15 over the limit of 5"),
    ({"pool_blocks": 10}, "refused", r"\d+ of 100 requests were refused"),
    ({"policy": "fair"}, "no setting", r"policy must be one of 'continuous', 'static', not 'fair'"),
    ({"policy": []}, "no setting", "policy"), ({"max_active": True}, "no setting", "max_active"),
    ({"token_budget": 31}, "no setting", "token_budget"), ({"block_size": 0}, "no setting", "block_size"),
    ({"extra": 1}, "no setting", "keys")])
def test_a_plausible_answer_fails_with_the_limit_it_misses_and_by_how_much(change, name, words):
    base = planned(sharing="dynamic", kv="int8", block_size=64)(640 * MIB) | change
    if not {"pool_blocks", "block_size"}.isdisjoint(change) or "kv" in change:
        per = BYTES.get(base["kv"], 1) * max(base["block_size"], 1)
        base["pool_blocks"] = change.get("pool_blocks", 640 * MIB // per)
    found, sentence = CHECKS.verdict(base, 640 * MIB)
    assert found == name and re.search(words, sentence), sentence
    result = judge(find(f"{STEM}.q4"), caller(find(f"{STEM}.q4"), lambda budget: base))
    assert result.status == FAIL and sentence in result.message


@pytest.mark.parametrize("value", [None, [], "int8", 3, {}, {"policy": "continuous"}])
def test_what_is_no_setting_is_said_and_crashes_nothing(value):
    assert CHECKS.verdict(value, 640 * MIB)[0] == "no setting"


def test_a_fresh_budget_is_not_blamed_on_a_mistake_of_the_list():
    result = result_of(STEM, "q4", lambda budget: planned(kv="int8", sharing="dynamic")(
        budget if budget in (640 * MIB, 1024 * MIB) else 2 * budget))
    assert result.status == FAIL and result.mistake is None
    assert "fresh" in result.message and "more than the budget" in result.message


def test_the_simulator_of_the_check_is_the_one_of_the_package():
    chosen = planned(sharing="dynamic")(640 * MIB)
    setting = Setting(**{key: value for key, value in chosen.items() if key != "pool_blocks"})
    own = serve(workload("chat", 100), setting, memory=640 * MIB)
    assert own.pool_blocks == chosen["pool_blocks"] == 320
    assert CHECKS.report_of(1, 320, setting) == summarize(own.traces, slo={"ttft": 1200, "tpot": 30})


def test_bytes_of_the_formats_are_those_of_the_package():
    assert {kv: kv_bytes_per_position(SERVED, kv) for kv in BYTES} == BYTES


# ------------------------------------------------------------------ the trade-off table
@pytest.mark.parametrize("name", SLO)
def test_the_table_holds_every_technique_with_its_goal_gain_and_cost_from_two_runs(name):
    table = tradeoff_table(name)
    assert [row[0] for row in table.rows] == [technique.name for technique in TECHNIQUES]
    for technique, row in zip(TECHNIQUES, table.rows):
        (before, *_), (after, *_) = technique.runs(name)
        assert row[1] == f"{shown(goal(name, before))} → {shown(goal(name, after))}"
        assert len(before.traces) == len(after.traces) and all("→" in cell for cell in row[1:])
    assert "roofline rule" in table.caption and table.header[1] == ("outputs a second" if name == "batch" else "goodput")


def test_all_nine_techniques_of_the_course_are_there():
    names = " ".join(technique.name for technique in TECHNIQUES)
    for word in ("KV cache", "GQA", "MQA", "INT8 weights", "INT4 weights", "INT8 KV", "INT4 KV", "paged", "continuous", "chunked",
                 "prefix", "speculation"):
        assert word in names


def test_one_thing_differs_between_the_two_runs_of_a_row():
    for technique in TECHNIQUES:
        assert len({key for key in {**technique.without, **technique.with_it} if key != "alpha"}) == 1
        assert bool(technique.without) != bool(technique.with_it)


def test_known_rows_of_the_table():
    cells = {(name, row[0]): row[1:] for name in SLO for row in tradeoff_table(name).rows}
    assert cells["chat", "KV cache"] == ("0 → 0.70", "computed: 2.59 M → 88.8 k", "peak KV, MiB: 0 → 2,360")
    assert cells["batch", "continuous batching"] == ("254 → 412", "p95 TTFT, ms: 11.9 k → 7,365", "p95 TPOT, ms: 13.7 → 61.8")
    assert cells["documents", "prefix cache"] == ("0.47 → 1", "computed: 379 k → 154 k", "blocks idle: 0 → 492")
    assert cells["documents", "INT4 KV"][1:] == ("room: 32.3 k → 122 k", "answers changed: 0 → 20")


def test_changed_answers_are_what_the_evaluation_found():
    rows = {row["name"]: row for row in hard_results()["rows"]}
    assert changed_answers("KV", "int4") == rows["KV int4 per vector"]["changed"] == 20
    assert changed_answers("weights", "int4") == rows["weights int4 per group of 32"]["changed"] == 2
    assert changed_answers("weights", "f16") == changed_answers("KV", "int8") == 0


@pytest.mark.parametrize("value, text", [
    (None, "–"), (0, "0"), (1.0, "1"), (0.43, "0.43"), (12.34, "12.3"), (123.4, "123"), (9_999, "9,999"), (10_000, "10 k"),
    (88_806, "88.8 k"), (2_588_654, "2.59 M")])
def test_numbers_are_shown_short(value, text):
    assert shown(value) == text


def test_the_chart_draws_both_values_of_every_row():
    figure = tradeoff_chart("figure-test")
    assert figure.width <= 480 and figure.svg().count('height="8"') == 2 * len(TECHNIQUES) * len(SLO)
    assert "prefix cache: chat 0.70 → 0.96, offline batch 412 → 412, long documents 0.47 → 1" in figure.description


def test_a_workload_of_the_table_is_run_once_a_setting():
    assert run("chat", BASE) is run("chat", replace(BASE))


# ------------------------------------------------------------------ the control
STATES = [{}, {"budget": "128", "sharing": "dynamic"}, {"policy": "static"}, {"block": "contiguous"}, {"scenario": "batch", "kv": "int4"},
          {"scenario": "documents", "sharing": "dynamic", "kv": "int8", "want": "memory"}, {"memory": 0.25, "want": "throughput"}]


@pytest.mark.parametrize("state", STATES)
def test_the_control_shows_what_the_simulator_gives(state):
    control = load("choosing")
    state = control.read(state)
    own = serve(workload(state["scenario"], *TRACES[state["scenario"]]), setting_of(state), memory=int(state["memory"] * GIB))
    report = summarize(own.traces, slo={"ttft": state["ttft"], "tpot": state["tpot"]})
    assert outcome_of(state) == own
    view = control.view(state)
    cells = {row[0]: row[1] for row in view.rows}
    assert cells["goodput"] == shown(report.goodput) and cells["p95 TTFT, ms"] == shown(report.ttft.p95)
    assert cells["blocks in the pool"] == own.pool_blocks and cells["failed requests"] == report.n_errors
    assert "1 ms and the longer of FLOPs / 100 TFLOP/s and bytes / 1 TB/s" in view.note
    svg = view.pictures[0].svg()
    late = sum(t.ttft > state["ttft"] for t in own.traces if not t.failed) + sum(
        t.tpot > state["tpot"] for t in own.traces if t.tpot is not None)
    assert svg.count('stroke="var(--mgpt-time)"') == late


def test_the_sentence_speaks_of_the_goal_that_is_stated():
    sentences = [load("choosing").view(load("choosing").read({"want": want})).sentence for want in ("goodput", "throughput", "memory")]
    assert [s.split(":")[0] for s in sentences] == ["By goodput", "By throughput", "By memory"]
    assert "p95 TPOT misses its limit by" in sentences[0] and "p95 TTFT keeps its limit with" in sentences[0]


def test_all_refused_is_said():
    page = respond("choosing", {"scenario": "documents", "memory": 0.25})["html"]
    assert "All 6 requests were refused" in page and 'role="status"' in page
    page = respond("choosing", {"block": "contiguous", "memory": 1})["html"]
    assert 'role="alert"' in page and "no block of 16384" in html.unescape(page)


def test_settings_are_kept_once_at_most_four_and_compared_on_one_trace_alone():
    state = respond("choosing", {}, "keep")["state"]
    again = respond("choosing", state, "keep")["state"]
    assert again["kept"] == state["kept"] and state["kept"].count(";") == 0
    for active in (1, 2, 3, 4, 5):
        again = respond("choosing", {**again, "max_active": active}, "keep")["state"]
    assert again["kept"].count(";") == 3
    page = respond("choosing", again)["html"]
    assert "Settings kept, chat, one cost rule for all" in page
    assert "Settings kept" not in respond("choosing", {**again, "scenario": "batch"})["html"]
    assert respond("choosing", again, "forget")["state"]["kept"] == ""


@pytest.mark.parametrize("kept", ["nonsense", "chat,continuous", ";;", "chat,fair,none,none,64,f16,16,2", "chat," + "9" * 300, 7, None])
def test_kept_settings_that_cannot_be_read_are_left_out(kept):
    page = respond("choosing", {"kept": kept})["html"]
    assert 'role="status"' in page and "Settings kept" not in page


def test_the_labels_of_the_workloads_are_used_everywhere():
    assert set(LABELS) == set(SLO) == set(TRACES)


def test_a_wrong_q1_of_the_right_shape_is_not_taken_for_right():
    spoiled = spoil(q1_loop, blocks=lambda right, *args: right["blocks"] + 1)
    assert not result_of(STEM, "q1", spoiled).passed
