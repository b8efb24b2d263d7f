"""Chapter 15: blocks in a memory, goodput with the failed counted, a choice by a stated goal, and the capstone."""

import functools
import itertools

import numpy as np

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.machine import SERVED, kv_bytes_per_position
from mgpt.quality import hard_results
from mgpt.serving import Setting, serve
from mgpt.text import N_, _
from mgpt.timing import summarize
from mgpt.workloads import workload

GIB, MIB = 2**30, 2**20


# ---------------------------------------------------------------- 1: how many blocks
def vector(width, kv, scale=4, half=True):
    """Bytes of one K or V vector."""
    if kv == "f16":
        return 2 * width
    return (-(-width // 2) if kv == "int4" and half else width) + scale


def pool(machine, model, kv, block_size, gib=GIB, reserve=1, weights=1, sides=2, layers=True, of=vector, up=False,
         spare=False, below=False):
    """The pool, right or with one thing changed."""
    left = int((machine["memory_gib"] - reserve * machine["reserve_gib"]) * gib) - weights * machine["weight_bytes"]
    position = sides * model["n_kv_head"] * of(model["head_dim"], kv) * (model["n_layer"] if layers else 1)
    left, block = left if below else max(left, 0), position * block_size
    blocks = -(-left // block) if up else left // block
    positions = left // position if spare else blocks * block_size
    return {"blocks": blocks, "positions": positions, "unused_bytes": left - blocks * block}


def draw_pool(rng):
    """A machine, a model and a format; now and then nothing is left."""
    model = {"n_layer": rng.choice([16, 24, 32, 40]), "n_kv_head": rng.choice([1, 4, 8, 16]),
             "head_dim": rng.choice([64, 80, 96, 128])}
    weights = rng.randrange(3 * GIB, 15 * GIB)
    memory = rng.choice([16, 20, 24, 40]) if rng.random() < 0.85 else 4
    machine = {"memory_gib": memory, "reserve_gib": rng.choice([1, 2]), "weight_bytes": weights}
    return machine, model, rng.choice(["f16", "int8", "int4", "int4"]), rng.choice([16, 64, 128, 256])


CARD = {"memory_gib": 16, "reserve_gib": 1, "weight_bytes": 11_866_218_496}
MODEL = {"n_layer": 32, "n_kv_head": 8, "head_dim": 128}
Q1 = Question(
    "15_choosing.q1", "pool", points=3, reference=pool, draw=draw_pool, fresh=12, whole=True,
    cases=(
        Case((CARD, MODEL, "f16", 64), {"blocks": 505, "positions": 32_320, "unused_bytes": 3_661_824}),
        Case((CARD, MODEL, "int8", 64), {"blocks": 980, "positions": 62_720, "unused_bytes": 1_040_384}),
        Case((CARD, MODEL, "int4", 256), {"blocks": 475, "positions": 121_600, "unused_bytes": 6_283_264}),
        Case(({"memory_gib": 12, "reserve_gib": 1, "weight_bytes": 12 * GIB}, MODEL, "f16", 16),
             {"blocks": 0, "positions": 0, "unused_bytes": 0}),
    ),
    mistakes=(
        Mistake("GB for GiB", lambda *a: pool(*a, gib=10**9),
                N_("a GiB is 2^30 bytes; 10^9 are a GB")),
        Mistake("reserve forgotten", lambda *a: pool(*a, reserve=0),
                N_("the reserve is taken off the memory first: activations and workspace need it")),
        Mistake("weights forgotten", lambda *a: pool(*a, weights=0),
                N_("the weights stand in the same memory: take them off first")),
        Mistake("V forgotten", lambda *a: pool(*a, sides=1),
                N_("a position has a K vector and a V vector for each KV head: a factor 2 is missing")),
        Mistake("one layer", lambda *a: pool(*a, layers=False),
                N_("every layer keeps K and V of its own: multiply by the layers")),
        Mistake("scales forgotten", lambda *a: pool(*a, of=lambda w, kv: vector(w, kv, scale=0)),
                N_("int8 and int4 need a float32 scale, 4 bytes, for each K and each V vector")),
        Mistake("one scale for K and V", lambda *a: pool(*a, of=lambda w, kv: vector(w, kv, scale=2)),
                N_("K and V have a scale of 4 bytes each, not one together")),
        Mistake("a byte for a nibble", lambda *a: pool(*a, of=lambda w, kv: vector(w, kv, half=False)),
                N_("two int4 codes fit into one byte")),
        Mistake("rounded up", lambda *a: pool(*a, up=True),
                N_("a block that does not fit whole is no block: round down")),
        Mistake("positions of broken blocks", lambda *a: pool(*a, spare=True),
                N_("only whole blocks hold positions: blocks · block_size")),
        Mistake("less than nothing", lambda *a: pool(*a, below=True),
                N_("weights and reserve leave nothing here: all three are 0, and never below")),
    ),
    hints=(
        N_("What stands in the memory beside the KV blocks? And how many bytes does one position take in all layers?"),
        N_("A vector of d values: 2·d bytes in f16, d + 4 in int8, d/2 + 4 in int4. A position has 2 · n_layer · n_kv_head of "
           "them."),
        N_("left = (memory_gib − reserve_gib)·2**30 − weight_bytes, at least 0; blocks = left // (block_size · bytes of a "
           "position); unused = what the division leaves."),
    ),
    stands_for=("mgpt.machine.blocks_in", "mgpt.machine.kv_memory"),  # 15.4 is given kv_bytes_per_position
)


# ---------------------------------------------------------------- 2: goodput
def broken(request):
    return len(request["ticks"]) < request["wanted"] or not request["ticks"]


def times_of(request, ends):
    return [ends[tick] for tick in request["ticks"]]


def tpot_of(times, arrival):
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None


def good(run, slo, ends=None, failed=broken, wait=lambda times, arrival: times[0] - arrival, pace=tpot_of, strict=False,
         both=all, divisor=None, lenient=False):
    """Goodput and failures of a run, right or with one thing changed."""
    ends, passed, lost = run["ends"] if ends is None else ends, 0, 0
    for request in run["requests"]:
        if failed(request):
            lost += 1
            if not lenient or not request["ticks"]:
                continue
        times = times_of(request, ends)
        values = (wait(times, request["arrival"]), slo["ttft"]), (pace(times, request["arrival"]), slo["tpot"])
        passed += both(value is None or (value < limit if strict else value <= limit) for value, limit in values)
    n = len(run["requests"]) if divisor is None else divisor(len(run["requests"]), lost)
    return {"goodput": passed / n if n else None, "failed": lost}


def of_means(run, slo):
    """Everybody is good where the means are."""
    served = [(times_of(r, run["ends"]), r["arrival"]) for r in run["requests"] if not broken(r)]
    lost = len(run["requests"]) - len(served)
    if not served:
        return {"goodput": 0.0 if run["requests"] else None, "failed": lost}
    paces = [pace for pace in (tpot_of(*one) for one in served) if pace is not None]
    fine = np.mean([times[0] - arrival for times, arrival in served]) <= slo["ttft"]
    fine = bool(fine and (not paces or np.mean(paces) <= slo["tpot"]))
    return {"goodput": fine * len(served) / len(run["requests"]), "failed": lost}


def draw_run(rng):
    """A run of some ticks; limits that some requests meet exactly."""
    ends, now = [], 0
    for _tick in range(rng.randrange(8, 15)):
        now += rng.choice([10, 20, 30, 60])
        ends.append(now)
    requests = []
    for name in "ABCDEFG"[: rng.randrange(5, 8)]:
        ticks = sorted(rng.sample(range(len(ends)), rng.choice([0, 1, 1, 2, 3, 4])))
        wanted = len(ticks) + rng.choice([0, 0, 0, 2]) if ticks else rng.randrange(1, 4)
        arrival = rng.randrange(0, (ends[ticks[0]] if ticks else ends[0]) // 10 + 1) * 10
        requests.append({"id": name, "arrival": arrival, "ticks": ticks, "wanted": wanted})
    served = [r for r in requests if not broken(r)]
    waits = [ends[r["ticks"][0]] - r["arrival"] for r in served] or [50]
    paces = [pace for r in served if (pace := tpot_of(times_of(r, ends), 0)) is not None] or [30]
    return {"ends": ends, "requests": requests}, {"ttft": rng.choice(waits), "tpot": rng.choice(paces)}


def asked(*rows):
    return [dict(zip(("id", "arrival", "ticks", "wanted"), row)) for row in rows]


RUN = {"ends": [40, 60, 80, 180], "requests": asked(
    ("A", 0, [0, 1, 2], 3), ("B", 30, [2], 1), ("C", 50, [], 2), ("D", 10, [1, 3], 2))}
Q2 = Question(
    "15_choosing.q2", "goodput", points=4, reference=good, draw=draw_run, fresh=24,
    cases=(
        Case((RUN, {"ttft": 50, "tpot": 20}), {"goodput": 0.5, "failed": 1}),
        Case((RUN, {"ttft": 40, "tpot": 120}), {"goodput": 0.25, "failed": 1}),
        Case((RUN, {"ttft": 50, "tpot": 120}), {"goodput": 0.75, "failed": 1}),
        Case(({"ends": [30, 50], "requests": asked(("A", 0, [0, 1], 4))}, {"ttft": 90, "tpot": 90}),
             {"goodput": 0.0, "failed": 1}),
        Case(({"ends": [], "requests": []}, {"ttft": 1, "tpot": 1}), {"goodput": None, "failed": 0}),
    ),
    mistakes=(
        Mistake("the failed left out", lambda r, s: good(r, s, divisor=lambda n, lost: n - lost),
                N_("goodput = good / all requests: who failed stays in the count")),
        Mistake("broken off counted as served", lambda r, s: good(r, s, failed=lambda x: not x["ticks"]),
                N_("a request that broke off before its last output failed, however fast it was")),
        Mistake("failed and good at once", lambda r, s: good(r, s, lenient=True),
                N_("a failed request is counted as failed and is never good, however fast its first outputs were")),
        Mistake("limits exclusive", lambda r, s: good(r, s, strict=True),
                N_("limits are inclusive: exactly at the limit is good")),
        Mistake("one output never good", lambda r, s: good(
                    r, s, pace=lambda times, a: float("inf") if len(times) < 2 else tpot_of(times, a)),
                N_("one output has no TPOT: the TPOT limit does not apply to it")),
        Mistake("start of the tick", lambda r, s: good(r, s, ends=[0, *r["ends"]]),
                N_("an output is seen at the end of its tick: ends[tick]")),
        Mistake("arrival forgotten", lambda r, s: good(r, s, wait=lambda times, arrival: times[0]),
                N_("TTFT is counted from the arrival of the request, not from 0")),
        Mistake("mean time per output", lambda r, s: good(r, s, pace=lambda times, a: (times[-1] - a) / len(times)),
                N_("that is the latency over the outputs; TPOT = (last − first)/(n − 1)")),
        Mistake("mean time per output of two and more", lambda r, s: good(
                    r, s, pace=lambda times, a: (times[-1] - a) / len(times) if len(times) > 1 else None),
                N_("TPOT does not hold the wait for output 1: (last − first)/(n − 1)")),
        Mistake("longest gap", lambda r, s: good(
                    r, s, pace=lambda times, a: max((b - a for a, b in itertools.pairwise(times)), default=None)),
                N_("that is the longest gap; TPOT is the mean of the gaps of a request")),
        Mistake("nobody", lambda r, s: good(r, s) if r["requests"] else {"goodput": 0.0, "failed": 0},
                N_("without requests there is no goodput: None, not 0")),
        Mistake("divided by n", lambda r, s: good(
                    r, s, pace=lambda times, a: (times[-1] - times[0]) / len(times) if len(times) > 1 else None),
                N_("n outputs have n − 1 gaps: divide by n − 1")),
        Mistake("one limit is enough", lambda r, s: good(r, s, both=any),
                N_("a good request meets every limit that applies to it")),
        Mistake("ticks for milliseconds", lambda r, s: good(r, s, ends=range(1, len(r["ends"]) + 1)),
                N_("limits and arrivals are in ms: turn ticks into ms by their ends")),
        Mistake("judged by the means", of_means,
                N_("goodput is decided request by request: a good mean hides those who waited")),
    ),
    hints=(
        N_("Go request by request: did it fail? If not, which limits apply to it?"),
        N_("times = [ends[t] for t in ticks]; failed: fewer outputs than wanted; TPOT only where there are two or more."),
        N_("good: times[0] − arrival ≤ ttft, and n < 2 or (times[-1] − times[0])/(n − 1) ≤ tpot. Divide by all requests; "
           "None where there are none."),
    ),
    stands_for=("mgpt.timing.summarize",),
)


# ---------------------------------------------------------------- 3: a choice by a stated goal
def p95(values):
    return float(np.percentile(values, 95))


def choose(runs, goal, rule=True, trace=True, wait=p95, strict=False, memory=True, changed=True, limit=True, unserved=True,
           most=False, throughput=lambda run: run["outputs"] / run["makespan"], last=False, anyway=False):
    """The best run by a goal, right or with one thing changed."""
    fits, out = [], []
    for run in runs:
        waits = [wait_ms for wait_ms in run["ttft"] if wait_ms is not None]
        slow = wait(waits) if waits else 0.0
        fine = (not rule or run["rule"] == goal["rule"]) and (not trace or run["trace"] == goal["trace"])
        fine = fine and (not unserved or None not in run["ttft"])
        within = (lambda value, most: value < most) if strict else (lambda value, most: value <= most)
        fine = fine and (not limit or within(slow, goal["ttft"]))
        fine = fine and (not memory or within(run["peak_bytes"], goal["memory"]))
        fine = fine and (not changed or within(run["changed"], goal["changed"]))
        score = {"waits": -slow, "throughput": throughput(run), "memory": -run["peak_bytes"]}[goal["want"]]
        score = -score if most and goal["want"] == "memory" else score
        (fits if fine else out).append((score, run["name"]))
    if not fits:
        return {"best": max(out)[1] if anyway and out else None, "left_out": [name for _score, name in out]}
    scores = [score for score, _name in fits]
    place = len(scores) - 1 - scores[::-1].index(max(scores)) if last else scores.index(max(scores))
    return {"best": fits[place][1], "left_out": [name for _score, name in out]}


def draw_choice(rng):
    """Some runs, most of them comparable, and a goal near their values."""
    runs, goal_memory = [], rng.choice([2048, 3072])
    for name in "abcdefg"[: rng.randrange(4, 8)]:
        usual = rng.randrange(20, 60) * 10
        ttft = [usual + 10 * rng.randrange(-9, 10) for _ in range(rng.randrange(6, 12))]
        if rng.random() < 0.5:
            ttft[rng.randrange(len(ttft))] += 10 * rng.randrange(30, 90)
        if rng.random() < 0.12:
            ttft[rng.randrange(len(ttft))] = None
        runs.append({
            "name": name, "rule": "roofline" if rng.random() < 0.85 else "unit-tick",
            "trace": 1 if rng.random() < 0.85 else 2,
            "ttft": ttft, "outputs": rng.choice([1200, 1200, 2400]), "makespan": rng.choice([4000, 6000, 8000, 9000]),
            "peak_bytes": rng.choice([1024, 2048, 3072, 1536]) * MIB, "changed": rng.choice([0, 0, 2, 20])})
    if rng.random() < 0.4:  # two equal in all that counts
        runs.append({**runs[0], "name": "z"})
    limit = rng.choice([p95([w for w in run["ttft"] if w is not None]) for run in runs] + [650.0, 900.0])
    return runs, {"want": rng.choice(["waits", "throughput", "memory"]), "rule": "roofline", "trace": 1, "ttft": limit,
                  "memory": goal_memory * MIB, "changed": rng.choice([2, 5])}


def ran(name, ttft, outputs, makespan, peak, changed=0, rule="roofline", trace=1):
    return {"name": name, "rule": rule, "trace": trace, "ttft": ttft, "outputs": outputs, "makespan": makespan,
            "peak_bytes": peak, "changed": changed}


B = ran("b", [300, 300], 1200, 900, 300)
WANT = {"rule": "roofline", "trace": 1, "memory": 400}
Q3 = Question(
    "15_choosing.q3", "choose", points=5, reference=choose, draw=draw_choice, fresh=40,
    cases=(
        Case(([ran("a", [90, 90, 90, 2000], 900, 600, 400), B, ran("c", [300, 300], 900, 700, 300)],
              {"want": "waits", "ttft": 1000, "changed": 5, **WANT}), {"best": "b", "left_out": ["a"]}),
        Case(([B, ran("d", [4, 4], 900, 70, 100, rule="unit-tick"), ran("e", [90, 800], 900, 600, 400)],
              {"want": "throughput", "ttft": 800, "changed": 5, **WANT}), {"best": "e", "left_out": ["d"]}),
        Case(([B, ran("f", [290, 290], 900, 650, 150, 20), ran("g", [90, None], 800, 500, 100)],
              {"want": "memory", "ttft": 1000, "changed": 20, **WANT}), {"best": "f", "left_out": ["g"]}),
        Case(([B, ran("h", [200, 200], 900, 700, 300, trace=2)], {"want": "memory", "ttft": 250, "changed": 20, **WANT}),
             {"best": None, "left_out": ["b", "h"]}),
    ),
    mistakes=(
        Mistake("another cost rule compared", lambda *a: choose(*a, rule=False),
                N_("runs under another cost rule cannot be compared: leave them out")),
        Mistake("another trace compared", lambda *a: choose(*a, trace=False),
                N_("runs on another trace cannot be compared: leave them out")),
        Mistake("judged by the mean", lambda *a: choose(*a, wait=lambda waits: float(np.mean(waits))),
                N_("the limit and the wait are p95, not the mean: a mean hides those who waited")),
        Mistake("judged by the median", lambda *a: choose(*a, wait=lambda waits: float(np.median(waits))),
                N_("that is p50; the goal asks for p95")),
        Mistake("judged by the worst", lambda *a: choose(*a, wait=max),
                N_("that is the longest wait; the goal asks for p95 by the linear rule")),
        Mistake("the failed left out", lambda *a: choose(*a, unserved=False),
                N_("a run in which somebody was never served is left out, however fast the others were")),
        Mistake("limits exclusive", lambda *a: choose(*a, strict=True), N_("limits are inclusive")),
        Mistake("memory ignored", lambda *a: choose(*a, memory=False), N_("the peak must fit the memory of the goal")),
        Mistake("quality ignored", lambda *a: choose(*a, changed=False),
                N_("too many changed answers: a run that breaks the quality limit is left out")),
        Mistake("throughput bought with waiting", lambda *a: choose(*a, limit=False),
                N_("the TTFT limit holds whatever is wanted, also for throughput and memory")),
        Mistake("outputs, not outputs a second", lambda *a: choose(*a, throughput=lambda run: run["outputs"]),
                N_("throughput is outputs divided by the makespan")),
        Mistake("the most memory", lambda *a: choose(*a, most=True), N_("least memory is wanted, not most")),
        Mistake("the last of equals", lambda *a: choose(*a, last=True), N_("of equals the first in the list is taken")),
        Mistake("somebody must win", lambda *a: choose(*a, anyway=True),
                N_("where no run keeps the limits there is no best one: None")),
    ),
    hints=(
        N_("First decide which runs may be compared at all, then which keep the limits, and only then which is best."),
        N_("Left out: another rule or trace, a None among the waits, p95 over ttft, peak over memory, too many changed answers."),
        N_("np.percentile(waits, 95); score −p95, outputs/makespan or −peak_bytes; max() gives the first of equals; the names "
           "left out in the order of the list."),
    ),
    stands_for=(),
)


# ---------------------------------------------------------------- 4: the capstone
LIMITS = {"ttft": 1200, "tpot": 30}  # ms: for p95, and for each request in the goodput
GOODPUT, MOST_CHANGED, TRACES = 0.97, 5, (1, 8)  # 1 is the learner's, 2 stands in the chapter, 8 is held out
RANGES = {"max_active": (1, 256), "token_budget": (32, 16_384), "block_size": (8, 16_384), "pool_blocks": (1, 10**6)}
OPTIONS = {"policy": ("continuous", "static"), "kv": ("f16", "int8", "int4"), "sharing": (None, "dynamic")}


@functools.lru_cache(maxsize=512)
def report_of(trace, pool_blocks, setting):
    """The Report of a setting on one trace of a hundred requests."""
    memory = pool_blocks * setting.block_size * kv_bytes_per_position(SERVED, setting.kv)
    return summarize(serve(workload("chat", 100, trace), setting, memory=memory).traces, slo=LIMITS)


def malformed(value):
    """What keeps a value from being a setting, or None."""
    names = {*RANGES, *OPTIONS}
    if not isinstance(value, dict) or value.keys() != names:
        return _("a dict with the keys {keys} is needed").format(keys=", ".join(sorted(names)))
    for name, allowed in OPTIONS.items():
        if not isinstance(value[name], str | None) or value[name] not in allowed:
            return _("{name} must be one of {allowed}, not {value}").format(
                name=name, allowed=", ".join(map(repr, allowed)), value=repr(value[name]))
    for name, (low, high) in RANGES.items():
        number = value[name]
        if number is None and name == "token_budget":
            continue
        if type(number) is not int or not low <= number <= high:
            return _("{name} must be a whole number from {low} to {high}, not {value}").format(
                name=name, low=low, high=high, value=repr(number))
    return None


def verdict(value, budget):
    """None for a setting that keeps every limit on both traces; else the limit that it misses first, and by how much."""
    if (why := malformed(value)) is not None:
        return "no setting", why
    used = value["pool_blocks"] * value["block_size"] * kv_bytes_per_position(SERVED, value["kv"])
    if used > budget:
        return "more than the memory", _("pool_blocks takes {used:,} bytes, {over:,} more than the budget").format(
            used=used, over=used - budget)
    changed = changed_answers(value["kv"])
    if changed > MOST_CHANGED:
        return "quality", _("{kv} changed {n} of MG-2's answers, {over} over the limit of {most}").format(
            kv=value["kv"], n=changed, over=changed - MOST_CHANGED, most=MOST_CHANGED)
    setting = Setting(**{name: value[name] for name in value if name != "pool_blocks"})
    for trace in TRACES:
        name, misses = missed(report_of(trace, value["pool_blocks"], setting))
        if name is not None and trace == TRACES[0]:
            return name, misses
        if name is not None:
            return "tuned on one trace", _("on a second trace of the same kind: {misses}").format(misses=misses)
    return None


def missed(report):
    """(name of the first limit that a report misses or None, all that it misses in words)."""
    found = []
    if report.n_errors:
        found.append(("refused", _("{n} of {all} requests were refused, 0 are allowed").format(
            n=report.n_errors, all=report.n)))
    for key, stats in (("ttft", report.ttft), ("tpot", report.tpot)):
        if stats.p95 is not None and stats.p95 > LIMITS[key]:
            over = stats.p95 - LIMITS[key]
            digits = 0 if over >= 1 else 2  # 30.2 ms is not "30 ms, 0 over the limit of 30"
            found.append((key, _("p95 {name} is {value} ms, {over} over the limit of {limit}").format(
                name=key.upper(), value=f"{stats.p95:.{digits}f}", over=f"{over:.{digits}f}", limit=LIMITS[key])))
    if report.goodput < GOODPUT:
        found.append(("goodput", _("goodput is {value:.2f}, {under:.2f} under the limit of {limit}").format(
            value=report.goodput, under=GOODPUT - report.goodput, limit=GOODPUT)))
    return (found[0][0] if found else None), "; ".join(words for _name, words in found)


def changed_answers(kv):
    """MG-2's answers that this KV format changed, of its 1,344 hard questions."""
    rows = {row["name"]: row["changed"] for row in hard_results()["rows"]}
    return 0 if kv == "f16" else rows[f"KV {kv} per vector"]


def plan(budget, pool_blocks=None, **change):
    """One good setting of several, or the same with something changed."""
    chosen = {"policy": "continuous", "max_active": 16, "token_budget": 128, "block_size": 64, "kv": "int8",
              "sharing": "dynamic"} | change
    whole = budget // (chosen["block_size"] * kv_bytes_per_position(SERVED, chosen["kv"]))
    return chosen | {"pool_blocks": whole if pool_blocks is None else pool_blocks(budget, whole)}


Q4 = Question(
    "15_choosing.q4", "plan", points=6, reference=plan, fresh=1, verdict=verdict,
    draw=lambda rng: (rng.randrange(640 * MIB, 1000 * MIB),),
    cases=(Case((640 * MIB,), plan(640 * MIB)), Case((1024 * MIB,), plan(1024 * MIB))),
    mistakes=(
        Mistake("no setting", lambda b: plan(b, pool_blocks=lambda budget, whole: whole + 0.5),
                N_("the answer must be a setting that the simulator can run")),
        Mistake("more than the memory", lambda b: plan(b, pool_blocks=lambda budget, whole: budget // (64 * 65_536)),
                N_("whole blocks must fit the budget, with the scales of the format: round down")),
        Mistake("quality", lambda b: plan(b, kv="int4"),
                N_("fewer bits are not free: this format breaks the quality limit")),
        Mistake("refused", lambda b: plan(b, pool_blocks=lambda budget, whole: 25),
                N_("the longest request must fit the pool by itself, or it is refused and failed")),
        Mistake("ttft", lambda b: plan(b, max_active=2),
                N_("the wait for output 1 is queue and prefill: find what keeps requests out or computes too much")),
        Mistake("tpot", lambda b: plan(b, token_budget=None),
                N_("outputs come too slowly: find what makes the ticks of those who decode so long")),
        Mistake("goodput", lambda b: plan(b, token_budget=None, max_active=8),
                N_("both percentiles are kept and yet too many requests miss one of the limits")),
        Mistake("tuned on one trace", lambda b: plan(b, kv="f16", token_budget=64),
                N_("a setting that only just keeps the limits on the trace at hand may miss them on another: leave room")),
    ),
    hints=(
        N_("Start with the plainest setting and read which limit fails first. Table by table the chapter shows what moves it."),
        N_("Long prompts make the gaps: which technique bounds the tick? The common prefix is computed a hundred times: which "
           "technique computes it once? Which format gives more blocks and changes no answer?"),
        N_("A budget near 128 positions keeps TPOT; sharing or int8 keeps TTFT. pool_blocks = budget // (block_size · bytes of a "
           "position in your format): 131,072 in f16, 67,584 in int8."),
    ),
)

Q4_WHY = choice(
    "15_choosing.q4_why", "q4_why", "c",
    {"a": N_("the second trace has as many requests, drawn in the same way: it is not made to be harder"),
     "b": N_("both runs are exact and give the same result every time: no noise is averaged"),
     "d": N_("the simulator's rules are the same for both; a second trace tests the choice, not the simulator")},
    (N_("What did you look at while you chose your numbers?"),
     N_("A setting with a goodput of exactly 0.97 was picked because it passes here. What does that say about tomorrow's "
        "requests?"),
     N_("Chapter 7 keeps the calibration set apart from the evaluation set. Which of the two is the trace you have?")),
)

QUESTIONS = (Q1, Q2, Q3, Q4, Q4_WHY)
