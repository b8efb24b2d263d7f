"""The checks of chapter 10 are worth their points; its table, its figures and its panel show what `mgpt` says.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import html
import math
import re
from collections import deque
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path

import pytest
from exercise_lists import install

from mgpt.course.questions import find
from mgpt.scheduler import CLOCK_RULE, Request, Scheduler, simulate
from mgpt.widgets import load, respond
from mgpt.widgets.scheduler_panel import ABC, MOST_TICKS, panel, read_requests, run_of
from mgpt.widgets.tick_chart import Watched, block_map, runs_table, tick_chart, tick_table

STEM = "10_scheduler"
ROOT = Path(__file__).parents[1]


# ------------------------------------------------------------------ right answers, written differently
def line(request, n, sampled):
    return dict(id=request["id"], inputs=n, sampled=sampled)


def q1_two_loops(active, budget):
    rows, used = [], 0
    for r in active:
        if r["outputs"] and (budget is None or used < budget):
            rows.append(line(r, 1, True))
            used += 1
    for r in active:
        if not r["outputs"]:
            missing = r["prompt"] - r["cached"]
            n = missing if budget is None or missing <= budget - used else budget - used
            if n:
                rows.append(line(r, n, r["cached"] + n == r["prompt"]))
                used += n
    return rows


def q1_token_by_token(active, budget):
    """Hand the budget out one position at a time."""
    left = math.inf if budget is None else budget
    rows = []
    for r in sorted(active, key=lambda r: r["outputs"] == 0):
        n, goal = 0, max(r["prompt"], r["cached"] + 1) if r["outputs"] else r["prompt"]
        while left > 0 and r["cached"] + n < goal:
            n, left = n + 1, left - 1
        if n:
            rows.append(line(r, n, r["cached"] + n == goal))
    return rows


def q1_prefix_sums(active, budget):
    order = [r for r in active if r["outputs"]] + [r for r in active if not r["outputs"]]
    wants = [1 if r["outputs"] else r["prompt"] - r["cached"] for r in order]
    before = [0, *accumulate(wants)]
    rows = []
    for r, want, start in zip(order, wants, before):
        n = want if budget is None else max(0, min(want, budget - start))
        if n:
            rows.append(line(r, n, n == want))
    return rows


def blocks_of(r, size):
    return math.ceil((r["prompt"] + r["wanted"] - 1) / size)


def q2_queue(waiting, running, policy, max_active, block_size, pool):
    if policy == "static" and len(running) > 0:
        return []
    queue, now = deque(waiting), list(running)
    chosen = []
    while queue and len(now) < max_active:
        if pool is not None and sum(blocks_of(r, block_size) for r in [*now, queue[0]]) > pool:
            return chosen
        now.append(queue.popleft())
        chosen.append(now[-1]["id"])
    return chosen


def q2_longest_prefix(waiting, running, policy, max_active, block_size, pool):
    """The longest beginning of the queue that fits."""
    free_slots = 0 if policy == "static" and running else max(0, max_active - len(running))
    for n in range(min(free_slots, len(waiting)), 0, -1):
        if pool is None or sum(blocks_of(r, block_size) for r in running + waiting[:n]) <= pool:
            return [r["id"] for r in waiting[:n]]
    return []


def q2_recursive(waiting, running, policy, max_active, block_size, pool):
    def go(queue, slots, free):
        if not queue or slots <= 0 or blocks_of(queue[0], block_size) > free:
            return []
        return [queue[0]["id"], *go(queue[1:], slots - 1, free - blocks_of(queue[0], block_size))]

    if running and policy != "continuous":
        return []
    free = math.inf if pool is None else pool - sum(blocks_of(r, block_size) for r in running)
    return go(waiting, max_active - len(running), free)


def q3_wanted(x):
    return {"waiting": 0, "decode": 1, "prefill": x["prompt"] - x["cached"]}[x["state"]]


def q3_comprehension(log, budget):
    most = math.inf if budget is None else budget
    gaps = [min(most, sum(map(q3_wanted, t))) - sum(x["inputs"] for x in t) for t in log]
    return [{"tick": i, "positions": gap} for i, gap in enumerate(gaps) if gap > 0]


def q3_unserved(log, budget):
    """What each could still have got, within what the budget still had."""
    rows = []
    for i, t in enumerate(log):
        missing = sum(q3_wanted(x) - x["inputs"] for x in t)
        if budget is not None:
            missing = min(missing, budget - sum(x["inputs"] for x in t))
        if missing > 0:
            rows.append(dict(tick=i, positions=missing))
    return rows


def q3_step_by_step(log, budget):
    rows = []
    for i in range(len(log)):
        used = could = 0
        for x in log[i]:
            used += x["inputs"]
            if x["state"] != "waiting":
                could += 1 if x["state"] == "decode" else x["prompt"] - x["cached"]
        if budget is not None and could > budget:
            could = budget
        if could != used and could > used:
            rows.append({"positions": could - used, "tick": i})
    return rows


def results(requests, ticks):
    return {r["id"]: {"outputs": ticks[r["id"]], "ttft": ticks[r["id"]][0] + 1 - r["arrival"],
                      "latency": ticks[r["id"]][-1] + 1 - r["arrival"]} for r in requests}


def q4_loop(requests, policy, max_active, budget, tick=q1_two_loops, key=lambda r: r["arrival"], late=0, gate=True):
    state = {r["id"]: {**r, "cached": 0, "outputs": 0} for r in sorted(requests, key=key)}
    ticks, active = {r["id"]: [] for r in requests}, []
    t = 0
    while any(s["outputs"] < s["wanted"] for s in state.values()):
        if policy == "continuous" or not active or not gate:
            for s in state.values():
                if s["outputs"] == s["wanted"] or s in active:
                    continue
                if s["arrival"] + late > t or len(active) >= max_active:
                    break
                active.append(s)
        for row in tick(active, budget):
            s = state[row["id"]]
            s["cached"] += row["inputs"]
            if row["sampled"]:
                s["outputs"] += 1
                ticks[s["id"]].append(t)
        active = [s for s in active if s["outputs"] < s["wanted"]]
        t += 1
    return results(requests, ticks)


def q4_scheduler(requests, policy, max_active, budget):
    """The scheduler of the book itself, with a block size of its own."""
    served = simulate([Request(r["id"], r["arrival"], r["prompt"], r["wanted"]) for r in requests], policy=policy,
                      max_active=max_active, block_size=3, token_budget=budget).requests
    return {k: {"outputs": list(s.output_ticks), "ttft": s.ttft, "latency": s.latency} for k, s in served.items()}


def q4_from_parts(requests, policy, max_active, budget):
    coming, queue, active, t = deque(sorted(requests, key=lambda r: r["arrival"])), [], [], 0
    ticks = {r["id"]: [] for r in requests}
    while coming or queue or active:
        while coming and coming[0]["arrival"] == t:
            queue.append({**coming.popleft(), "cached": 0, "outputs": 0})
        n = len(q2_queue(queue, active, policy, max_active, 1, None))
        active, queue = active + queue[:n], queue[n:]
        for row in q1_prefix_sums(active, budget):
            [r] = [r for r in active if r["id"] == row["id"]]
            r["cached"] += row["inputs"]
            r["outputs"] += row["sampled"]
            ticks[r["id"]] += [t] * row["sampled"]
        active = [r for r in active if r["outputs"] != r["wanted"]]
        t += 1
    return results(requests, ticks)


RIGHT = {
    "q1": [q1_two_loops, q1_token_by_token, q1_prefix_sums],
    "q2": [q2_queue, q2_longest_prefix, q2_recursive],
    "q3": [q3_comprehension, q3_unserved, q3_step_by_step],
    "q4": [q4_loop, q4_scheduler, q4_from_parts],
}


# ------------------------------------------------------------------ wrong answers, each with its cause
def hand_out(order, budget, wants, exact=True):
    rows, left = [], math.inf if budget is None else budget
    for r in order:
        n = min(wants(r), left)
        left -= n
        if n:
            rows.append(line(r, n, n == wants(r)))
    return rows


def wants(r):
    return 1 if r["outputs"] else r["prompt"] - r["cached"]


def split(active):
    return [r for r in active if r["outputs"]], [r for r in active if not r["outputs"]]


def q1_decodes_free(active, budget):
    decoding, prefilling = split(active)
    return [line(r, 1, True) for r in decoding] + hand_out(prefilling, budget, wants)


def q1_uncut(active, budget):
    rows, left = [], math.inf if budget is None else budget
    for r in sum(split(active), []):
        if wants(r) > left:
            left = 0
        else:
            rows.append(line(r, wants(r), True))
            left -= wants(r)
    return rows


def q1_and_decode(active, budget):
    rows = q1_two_loops(active, budget)
    left = math.inf if budget is None else budget - sum(x["inputs"] for x in rows)
    ended = {r["id"] for r in active if not r["outputs"]}
    for x in list(rows):
        if x["sampled"] and x["id"] in ended and left > 0:
            rows, left = rows + [dict(id=x["id"], inputs=1, sampled=True)], left - 1
    return rows


def q1_in_one(active, budget):
    """A prefill that has room left takes the output it has just chosen along."""
    rows, left = [], math.inf if budget is None else budget
    for r in sum(split(active), []):
        n = min(left, wants(r) + (r["outputs"] == 0))
        left -= n
        if n:
            rows.append(line(r, n, n >= wants(r)))
    return rows


def q1_one_prefill(active, budget):
    decoding, prefilling = split(active)
    return hand_out(decoding + prefilling[:1], budget, wants)


def q1_listed(active, budget):
    rows = {x["id"]: x for x in q1_two_loops(active, budget)}
    return [rows.get(r["id"], line(r, 0, False)) for r in sum(split(active), [])]


def resample(rule):
    def wrong(active, budget):
        outputs = {r["id"]: r["outputs"] for r in active}
        return [{**x, "sampled": rule(outputs[x["id"]])} for x in q1_two_loops(active, budget)]

    return wrong


def q2_like(blocks=blocks_of, skip=False, taken=None, slots=None, full=lambda used, pool: used > pool):
    def wrong(waiting, running, policy, max_active, block_size, pool):
        if policy == "static" and running:
            return []
        used = sum(blocks(r, block_size) for r in running) if taken is None else taken
        got = []
        for r in waiting:
            if (len(running) if slots is None else slots) + len(got) >= max_active:
                return got
            if pool is not None and full(used + blocks(r, block_size), pool):
                if skip:
                    continue
                return got
            used += blocks(r, block_size)
            got.append(r["id"])
        return got

    return wrong


def q2_pooled(waiting, running, policy, max_active, block_size, pool):
    if policy == "static" and running:
        return []
    n = 0
    while n < len(waiting) and len(running) + n < max_active:
        total = sum(r["prompt"] + r["wanted"] - 1 for r in [*running, *waiting[: n + 1]])
        if pool is not None and total > pool * block_size:
            break
        n += 1
    return [r["id"] for r in waiting[:n]]


def q3_like(want=q3_wanted, cap=lambda total, budget: total if budget is None else min(total, budget), value=None,
            first=0, every=False, got=lambda x: x["inputs"]):
    def wrong(log, budget):
        rows = []
        for i, t in enumerate(log):
            total, used = cap(sum(map(want, t)), budget), sum(map(got, t))
            if total > used or every:
                rows.append({"tick": i + first, "positions": total - used if value is None else value(total, t)})
        return rows

    return wrong


def restamped(change):
    """Right ticks, wrong figures: change(request, its result) replaces entries."""
    def wrong(requests, policy, max_active, budget):
        right = q4_loop(requests, policy, max_active, budget)
        return {r["id"]: {**right[r["id"]], **change(r, right[r["id"]])} for r in requests}

    return wrong


def q4_from_admission(requests, policy, max_active, budget):
    served = simulate([Request(r["id"], r["arrival"], r["prompt"], r["wanted"]) for r in requests], policy=policy,
                      max_active=max_active, block_size=2, token_budget=budget).requests
    return {k: {"outputs": s.output_ticks, "ttft": s.output_ticks[0] + 1 - s.admitted,
                "latency": s.output_ticks[-1] + 1 - s.admitted} for k, s in served.items()}


def q4_eager(requests, policy, max_active, budget):
    """Whoever finishes is replaced at once, and the newcomer is served in the same tick."""
    queue = deque(sorted(requests, key=lambda r: r["arrival"]))
    ticks, active, t = {r["id"]: [] for r in requests}, [], 0
    while queue or active:
        left, had_turn = math.inf if budget is None else budget, []
        while True:
            if left > 0 and (policy == "continuous" or not active):
                while queue and queue[0]["arrival"] <= t and len(active) < max_active:
                    active.append({**queue.popleft(), "cached": 0, "outputs": 0})
            fresh = [r for r in active if r["id"] not in had_turn]
            if not fresh:
                break
            had_turn += [r["id"] for r in fresh]
            for row in q1_two_loops(fresh, None if left == math.inf else left):
                [r] = [r for r in active if r["id"] == row["id"]]
                r["cached"], left = r["cached"] + row["inputs"], left - row["inputs"]
                if row["sampled"]:
                    r["outputs"] += 1
                    ticks[r["id"]].append(t)
            still = [r for r in active if r["outputs"] < r["wanted"]]
            if len(still) == len(active):
                break
            active = still
        t += 1
    return results(requests, ticks)


def q4_with(**changed):
    return lambda requests, policy, most, budget: q4_loop(requests, policy, most, budget, **changed)


def q1_prefill_first(active, budget):
    decoding, prefilling = split(active)
    return hand_out(prefilling + decoding, budget, wants)


WRONG = {
    "q1": {
        "prefill first": q1_prefill_first,
        "order of admission alone": lambda a, b: hand_out(a, b, wants),
        "decodes outside the budget": q1_decodes_free,
        "a budget for each": lambda a, b: [x for r in sum(split(a), []) for x in hand_out([r], b, wants)],
        "prompts not cut": q1_uncut,
        "from the start again": lambda a, b: hand_out(
            sum(split(a), []), b, lambda r: 1 if r["outputs"] else r["prompt"]),
        "every chunk samples": resample(lambda outputs: True),
        "the last chunk samples nothing": resample(lambda outputs: outputs > 0),
        "decodes after its own prefill": q1_and_decode,
        "prompt and output 1 in one": q1_in_one,
        "one prefill a tick": q1_one_prefill,
        "listed without a turn": q1_listed,
        "budget ignored": lambda a, b: q1_two_loops(a, None),
    },
    "q2": {
        "the head overtaken": q2_like(skip=True),
        "one output too many": q2_like(lambda r, size: math.ceil((r["prompt"] + r["wanted"]) / size)),
        "the prompt alone": q2_like(lambda r, size: math.ceil(r["prompt"] / size)),
        "blocks cut off": q2_like(lambda r, size: (r["prompt"] + r["wanted"] - 1) // size),
        "positions pooled": q2_pooled,
        "rounded up apart": q2_like(
            lambda r, size: math.ceil(r["prompt"] / size) + math.ceil((r["wanted"] - 1) / size)),
        "positions against blocks": q2_like(lambda r, size: r["prompt"] + r["wanted"] - 1),
        "running blocks forgotten": q2_like(taken=0),
        "a block kept free": q2_like(full=lambda used, pool: used >= pool),
        "a wave refilled": lambda w, r, policy, *rest: q2_queue(w, r, "continuous", *rest),
        "one a tick": lambda *a: q2_queue(*a)[:1],
        "running slots forgotten": q2_like(slots=0),
        "max_active ignored": lambda w, r, policy, most, *rest: q2_queue(w, r, policy, 10**6, *rest),
        "the pool ignored": lambda *a: q2_queue(*a[:5], None),
    },
    "q3": {
        "the waiting counted": q3_like(lambda x: x["prompt"] if x["state"] == "waiting" else q3_wanted(x)),
        "idle budget as waste": q3_like(cap=lambda total, b: total if b is None else b),
        "budget ignored": q3_like(cap=lambda total, b: total),
        "whole prompts open": q3_like(lambda x: x["prompt"] if x["state"] == "prefill" else q3_wanted(x)),
        "prefill alone": q3_like(lambda x: q3_wanted(x) * (x["state"] == "prefill")),
        "decodes left out": lambda log, b: q3_comprehension(
            [[x for x in t if x["state"] != "decode"] for t in log], b),
        "cached after the tick": lambda log, b: q3_comprehension(
            [[{**x, "cached": x["cached"] + x["inputs"]} for x in t] for t in log], b),
        "no budget, no verdict": lambda log, b: q3_unserved(log, b) if b else [],
        "decodes alone": q3_like(lambda x: int(x["state"] == "decode")),
        "counted from 1": q3_like(first=1),
        "every tick listed": q3_like(every=True),
        "what could be done": q3_like(value=lambda total, t: total),
        "what was done": q3_like(value=lambda total, t: sum(x["inputs"] for x in t)),
        "requests idle": q3_like(got=lambda x: q3_wanted(x) * (x["inputs"] > 0)),
    },
    "q4": {
        "stamped at the start": restamped(lambda r, x: {"ttft": x["ttft"] - 1, "latency": x["latency"] - 1}),
        "clock time for duration": restamped(
            lambda r, x: {"ttft": x["ttft"] + r["arrival"], "latency": x["latency"] + r["arrival"]}),
        "counted from admission": q4_from_admission,
        "latency from tick 0": restamped(lambda r, x: {"latency": x["latency"] + r["arrival"]}),
        "latency from the first output": restamped(lambda r, x: {"latency": x["latency"] - x["ttft"]}),
        "ticks counted from 1": restamped(lambda r, x: {"outputs": [t + 1 for t in x["outputs"]]}),
        "one output too many": lambda requests, *rest: q4_loop(
            [{**r, "wanted": r["wanted"] + 1} for r in requests], *rest),
        "the shortest first": q4_with(key=lambda r: (r["arrival"], r["prompt"])),
        "order of the list": q4_with(key=lambda r: 0),
        "admitted a tick late": q4_with(late=1),
        "slot reused in its tick": q4_eager,
        "static waves refilled": lambda requests, policy, most, b: q4_loop(requests, "continuous", most, b),
        "waves always": lambda requests, policy, most, b: q4_loop(requests, "static", most, b),
        "every chunk samples": q4_with(tick=resample(lambda outputs: True)),
        "prefill first": q4_with(tick=q1_prefill_first),
        "decodes outside the budget": q4_with(tick=q1_decodes_free),
        "budget ignored": lambda requests, policy, most, b: q4_loop(requests, policy, most, None),
        "one at a time": lambda requests, policy, most, b: q4_loop(requests, policy, 1, b),
    },
}

install(globals(), STEM, RIGHT, WRONG)


@pytest.mark.parametrize("policy", ["static", "continuous"])
@pytest.mark.parametrize("budget", [None, 3, 5])
def test_the_tick_that_is_asked_for_is_the_schedulers_own(policy, budget):
    requests = [Request("A", 0, 7, 5), Request("B", 0, 3, 2), Request("C", 1, 9, 3), Request("D", 2, 2, 6)]
    scheduler = Scheduler(requests, policy=policy, max_active=3, block_size=4, token_budget=budget)
    reference = find(f"{STEM}.q1").reference
    order, before = [], {}
    while not scheduler.done:
        row = scheduler.step()
        order += [key for key, e in row.requests.items() if e.state in ("prefill", "decode") and key not in order]
        active = [{"id": key, "prompt": next(r.prompt_len for r in requests if r.id == key), **before.get(key, {
            "cached": 0, "outputs": 0})} for key in order if row.requests[key].state in ("prefill", "decode")]
        done = {x["id"]: (x["inputs"], x["sampled"]) for x in reference(active, budget)}
        assert done == {key: (e.inputs, e.sampled) for key, e in row.requests.items() if e.inputs}
        before = {key: {"cached": e.positions, "outputs": e.outputs} for key, e in row.requests.items()}


# ------------------------------------------------------------------ the A/B/C table, in three places
SETTINGS = {
    "static": {}, "static, shared": {"sharing": "prewarmed"}, "static, budget 4": {"token_budget": 4},
    "static, budget 8": {"token_budget": 8}, "continuous": {}, "continuous, shared": {"sharing": "prewarmed"},
    "continuous, budget 4": {"token_budget": 4},
    "continuous, budget 4, shared": {"token_budget": 4, "sharing": "prewarmed"}, "continuous, budget 8": {"token_budget": 8},
}


def simulated():
    """The rows of the table, from the scheduler."""
    rows = []
    for name, more in SETTINGS.items():
        run = simulate(read_requests(ABC), policy=name.split(",")[0], max_active=2, block_size=4, **more)
        served = run.requests.values()
        rows.append([name, " / ".join(f"{min(s.output_ticks)}–{max(s.output_ticks)}" for s in served)] + [
            "/".join(str(getattr(s, field)) for s in served) for field in ("ttft", "latency", "completion")] + [
            str(n) for n in (run.peak_blocks, run.peak_reserved, run.positions_computed, run.positions_reused)])
    return rows


class Cells(HTMLParser):
    """The tables of a page, as lists of rows of text."""

    def __init__(self):
        super().__init__()
        self.tables, self._cell = [], None

    def handle_starttag(self, tag, attributes):
        if tag == "table":
            self.tables.append([])
        if tag == "tr" and self.tables:
            self.tables[-1].append([])
        if tag in ("td", "th") and self.tables:
            self._cell = ""

    def handle_data(self, data):
        if self._cell is not None:
            self._cell += data

    def handle_endtag(self, tag):
        if tag in ("td", "th") and self._cell is not None:
            self.tables[-1][-1].append(self._cell.strip())
            self._cell = None


def table_of(page):
    """The A/B/C table of a built page: header and rows."""
    cells = Cells()
    cells.feed((ROOT / "_build" / "html" / "book" / f"{page}.html").read_text())
    [found] = [table for table in cells.tables if table[0][:2] == ["policy", "output ticks A / B / C"]]
    return found


@pytest.mark.parametrize("page", ["conventions", "10_scheduler"])
def test_the_abc_table_on_a_page_is_what_the_scheduler_gives_row_by_row(page):
    header, *rows = table_of(page)
    assert header == ["policy", "output ticks A / B / C", "TTFT", "latency", "completion", "peak blocks", "peak reserved",
                      "computed", "reused"]
    assert rows == simulated() and len(rows) == 9
    assert rows[6] == ["continuous, budget 4", "1–4 / 4–6 / 6–7", "2/4/5", "5/6/6", "5/7/8", "5", "6", "26", "0"]


def test_the_table_of_runs_is_the_same_table():
    runs = {name: simulate(read_requests(ABC), policy=name.split(",")[0], max_active=2, block_size=4, **more)
            for name, more in SETTINGS.items()}
    assert [[str(cell) for cell in row] for row in runs_table("", runs).rows] == simulated()


# ------------------------------------------------------------------ the panel
def view(**state):
    control = load("scheduler_panel")
    return control.view(control.read(state))


def choices_of(name):
    more = SETTINGS[name]
    return {"policy": name.split(",")[0], "budget": more.get("token_budget", 0), "sharing": more.get("sharing", "none")}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_row_of_the_table_is_shown_at_once_after_at_most_three_choices(name):
    row = next(row for row in simulated() if row[0] == name)
    start, chosen = load("scheduler_panel").start(), choices_of(name)
    touched = [key for key, value in chosen.items() if start[key] != value]
    assert len(touched) <= 2
    shown = view(**chosen)
    [waits] = shown.more
    assert "/".join(str(line[3]) for line in waits.rows) == row[2]
    assert "/".join(str(line[5]) for line in waits.rows) == row[3]
    assert "/".join(str(line[4]) for line in waits.rows) == row[4]
    assert f"peaks so far {row[5]} resident and {row[6]} reserved" in shown.sentence
    assert f"{row[7]} positions computed so far, {row[8]} reused" in shown.sentence


@pytest.mark.parametrize("state", [
    {}, {"policy": "static", "budget": 4}, {"sharing": "prewarmed"}, {"pool": 5}, {"sharing": "dynamic", "pool": 6},
    {"budget": 8, "chunked": "no"}, {"pool": 4, "reserve": "prompt"}, {"pool": 3, "reserve": "prompt", "budget": 3},
    {"requests": "A: 0 16 2 16; B: 1 16 2 16; E: 3 9 3 8", "sharing": "dynamic", "budget": 4, "max_active": 3}])
def test_every_row_of_the_panel_is_the_schedulers_row(state):
    control = load("scheduler_panel")
    state = control.read(state)
    run = simulate(read_requests(state["requests"]), policy=state["policy"], max_active=state["max_active"],
                   block_size=state["block_size"], token_budget=state["budget"] or None, pool_blocks=state["pool"] or None,
                   sharing=None if state["sharing"] == "none" else state["sharing"],
                   chunked=state["chunked"] == "yes", reserve=state["reserve"])
    assert run_of(state)[0] == run
    for done in range(1, len(run.ticks) + 1):
        shown, row = control.view(state | {"ticks": done}), run.ticks[done - 1]
        assert len(shown.rows) == done
        assert shown.rows[-1][-6:] == (row.positions_computed, row.positions_reused, row.blocks_in_use,
                                       row.blocks_resident, row.blocks_reserved, row.waste)
        for text, entry in zip(shown.rows[-1][1:], row.requests.values()):
            active = entry.state in ("prefill", "decode")
            assert text.startswith(entry.state) and (f"({entry.positions}/{entry.blocks})" in text) == active
            assert (f"#{entry.outputs}" in text) == entry.sampled
            assert (f"{entry.start}:{entry.start + entry.inputs}" in text) if entry.inputs else ":" not in text
        assert shown.note == CLOCK_RULE
        lost = f"Preempted: {', '.join(row.preempted)}," if row.preempted else ""
        assert lost in shown.sentence and ("Preempted" in shown.sentence) == bool(lost)
        for served, line in zip(run.requests.values(), shown.more[0].rows):
            known = [None if end is None or end > done else end - served.arrival
                     for end in (served.output_ticks and served.output_ticks[0] + 1, served.completion)]
            assert [line[3], line[5]] == known


def test_steps_go_forth_and_back_and_stop_at_both_ends():
    assert html.escape(CLOCK_RULE) in respond("scheduler_panel", {})["html"]
    state = respond("scheduler_panel", {}, "first")["state"]
    assert state["ticks"] == 0 and "No tick has run" in respond("scheduler_panel", state)["html"]
    seen = []
    for action in ["back", "step", "step", "back", *["step"] * 9, "back", "last", "step"]:
        state = respond("scheduler_panel", state, action)["state"]
        seen.append(state["ticks"])
    assert seen == [0, 1, 2, 1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 5, 999, 6]
    assert 'role="alert"' not in respond("scheduler_panel", {"pool": 1, "requests": "A: 0 1 1"}, "step")["html"]


def test_a_wrong_input_keeps_the_steps_from_breaking():
    for action in ("first", "back", "step", "last"):
        assert 'role="alert"' in respond("scheduler_panel", {"requests": "A: 0"}, action)["html"]


@pytest.mark.parametrize("text, words", [
    ("", "1 to 6"), ("; ".join(f"{c}: 0 1 1" for c in "ABCDEFG"), "1 to 6"), ("A 0 8 4", "a colon"), ("A: 0 8", "three or four"),
    ("A: 0 8 4 4 4", "three or four"), (": 0 8 4", "a name"), ("A: 0 0 4", "prompt_len"), ("A: -1 8 4", "arrival"),
    ("A: 0 8 4 9", "prefix_len"), ("A: 0 8 4; A: 1 8 4", "twice"), ("A: 0 61 4", "at most 64"), ("A: 61 1 1", "at most 64"),
    ("A: 0 8 x", "whole numbers")])
def test_what_cannot_be_read_is_said(text, words):
    page = respond("scheduler_panel", {"requests": text})["html"]
    assert 'role="alert"' in page and words in page


def test_what_cannot_run_or_be_shown_is_said():
    assert "can never fit" in respond("scheduler_panel", {"pool": 2})["html"]
    slow = respond("scheduler_panel", {"requests": "A: 0 60 4; B: 0 60 4", "budget": 1})["html"]
    assert f"more than the {MOST_TICKS} ticks" in slow


def test_a_prompt_waits_until_whole_or_the_pool_runs_out():
    assert [row[2].split()[0] for row in view(budget=8).rows[1:3]] == ["prefill", "prefill"]
    assert [row[2] for row in view(budget=8, chunked="no").rows[1:3]] == ["prefill no turn (0/0)"] * 2
    assert "can never be scheduled" in respond("scheduler_panel", {"budget": 4, "chunked": "no"})["html"]
    bold = {"requests": "A: 0 4 4; B: 1 4 3", "pool": 3, "reserve": "prompt"}
    assert "Preempted" not in view(**bold | {"reserve": "full"}, ticks=3).sentence
    assert "Preempted: B, whose positions are computed again" in view(**bold, ticks=3).sentence


# ------------------------------------------------------------------ the panel of other chapters
def test_another_panel_has_its_own_name_start_and_figures_and_the_same_rules():
    other = panel("my_panel", "Mine", {"sharing": "dynamic", "requests": "A: 0 4 2 4; B: 2 6 2 4", "ticks": 2})
    start = other.start()
    assert (other.name, other.title) == ("my_panel", "Mine")
    assert (start["sharing"], start["ticks"], start["budget"]) == ("dynamic", 2, 0)
    assert other.read({}) == start and other.act("step", start)["ticks"] == 3
    assert [p.name for p in other.view(start).pictures] == ["figure-my-panel", "figure-my-panel-blocks"]
    same = load("scheduler_panel")
    assert other.view(start).rows == same.view(start).rows and other.view(start).sentence == same.view(start).sentence
    ids = re.findall(r'\bid="([^"]+)"', other.html() + same.html())
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("part", ["A: 0 8", "A 0 8 4", "A: 0 8 x", "A: 0 8 4 4 4", ": 0 8 4", "ABCD: 0 8 4", "A: 0 8.0 4"])
def test_a_request_that_cannot_be_read_is_named_and_the_form_is_said(part):
    with pytest.raises(ValueError) as raised:
        read_requests(f"B: 1 4 3; {part}")
    assert str(raised.value) == (f"Request {part.strip()!r}: a name of 1 to 3 letters, a colon, and three or four whole "
                                 "numbers are needed")


def test_start_values_that_the_panel_does_not_have_or_allow_are_refused():
    for wrong in ({"pools": 3}, {"pool": -1}, {"policy": "fifo"}, {"budget": 2.5}):
        with pytest.raises(ValueError, match="named like|Pool|Policy|Token budget"):
            panel("my_panel", "Mine", wrong)


# ------------------------------------------------------------------ the figures
def frames(figure):
    return re.findall(r"(\d+) of \d+ positions, (\d+) users", figure.description)


@pytest.mark.parametrize("settings", [
    {}, {"sharing": "prewarmed"}, {"sharing": "dynamic"}, {"sharing": "dynamic", "pool_blocks": 6, "token_budget": 5},
    {"sharing": "dynamic", "token_budget": 3, "policy": "static"}, {"pool_blocks": 6, "reserve": "prompt"}])
def test_the_block_map_holds_every_resident_block_and_position_once(settings):
    requests = [Request("A", 0, 9, 4, "x", 9), Request("B", 0, 9, 3, "x", 9), Request("C", 2, 6, 5, "x", 4),
                Request("D", 7, 9, 2, "x", 8)]
    scheduler = Watched(requests, max_active=3, block_size=4, **settings)
    while not scheduler.done:
        row = scheduler.step()
        figure = block_map("figure-test", row, scheduler.shared[-1], 4)
        found = frames(figure)
        assert len(found) == row.blocks_resident
        assert sum(int(held) for held, _users in found) == row.physical_positions
        assert [int(users) for _held, users in found[: len(row.shared_users)]] == list(row.shared_users.values())
        computed = sum(entry.inputs for entry in row.requests.values())
        assert figure.svg().count('stroke-width="2.2"') == computed


def test_the_chart_draws_every_turn_every_output_and_every_wait():
    run = simulate(read_requests(ABC), policy="static", max_active=2, block_size=4)
    svg = tick_chart("figure-test", [("static", run)]).svg()
    entries = [entry for row in run.ticks for entry in row.requests.values()]
    assert svg.count('height="24"') == sum(entry.inputs > 0 for entry in entries)
    assert svg.count('height="5" fill="var(--mgpt-k)"') == sum(entry.sampled for entry in entries) == 9
    assert svg.count("stroke-dasharray") == sum(entry.state == "waiting" for entry in entries) == 5
    assert svg.count('stroke-width="2.2"') == sum(entry.state == "prefill" for entry in entries) == 3
    assert "B arrives at 1, outputs in ticks 4 5 6" in svg
    first = tick_chart("figure-test", [("static", run)], done=1).svg()
    assert first.count('height="24"') == 1


def test_the_tick_table_names_its_columns_and_pins_tick_1():
    table = tick_table("", simulate(read_requests(ABC), max_active=2, block_size=4))
    assert table.rows[1] == (1, "decode 8:9 → #2 (9/3)", "prefill 0:8 → #1 (8/2)", "not arrived", 17, 0, 5, 5, 6, 3)
    assert table.header == ("tick", "A", "B", "C", "computed so far", "reused so far", "in use", "resident", "reserved",
                            "wasted slots")


def test_a_prefill_after_a_preemption_shows_no_new_output():
    two = [Request("A", 0, 4, 4), Request("B", 1, 4, 3)]
    run = simulate(two, max_active=2, block_size=4, reserve="prompt", pool_blocks=3)
    assert run.requests["B"].output_ticks == [1, 5, 6]
    assert [row[2] for row in tick_table("", run).rows] == [
        "not arrived", "prefill 0:4 → #1 (4/1)", "waiting", "waiting", "prefill 0:4 (4/1)", "decode 4:5 → #2 (5/2)",
        "decode 5:6 → #3 (6/2)"]
