"""Nine serving techniques on three traces: each run without it and with it, and what it gained and cost."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mgpt.machine import SERVED, kv_bytes_per_position, weight_bytes
from mgpt.quality import hard_results
from mgpt.serving import Setting, serve
from mgpt.text import N_, _
from mgpt.timing import summarize
from mgpt.widgets.control import Table
from mgpt.widgets.svg import Figure
from mgpt.workloads import workload

BASE = Setting(max_active=16, block_size=64)
SIZES = {"chat": 100, "batch": 100, "documents": 40}
SLO = {"chat": {"ttft": 1000, "tpot": 40}, "batch": None, "documents": {"ttft": 5000}}
LABELS = {"chat": N_("chat"), "batch": N_("offline batch"), "documents": N_("long documents")}
MIB = 2**20
LEFT, ROW, TOP, PANEL, GAP, PAD = 152, 22, 52, 92, 16, 6


def goal(name, outcome):
    """What is wanted of a workload, more is better: goodput under its SLO, or outputs a second."""
    slo = SLO[name]
    return outcome.throughput if slo is None else summarize(outcome.traces, slo=slo).goodput


@functools.lru_cache(maxsize=256)
def run(name, setting=BASE, kv_heads=SERVED.n_kv_head, seed=1):
    """The Outcome of a Setting on a workload, all of them by the roofline rule on the teaching machine."""
    return serve(workload(name, SIZES[name], seed), setting, config=replace(SERVED, n_kv_head=kv_heads))


def changed_answers(what, form):
    """How many of MG-2's 1,344 hard questions were answered otherwise, as `mgpt evaluate --hard` found."""
    if form == "f16":
        return 0
    name = f"weights {form} per group of 32" if what == "weights" else f"KV {form} per vector"
    return next(row["changed"] for row in hard_results()["rows"] if row["name"] == name)


@dataclass(frozen=True)
class Measure:
    """One number of a run: of(outcome, setting, config)."""

    label: str
    of: Callable

    def pair(self, before, after):
        return f"{_(self.label)}: {shown(self.of(*before))} → {shown(self.of(*after))}"


@dataclass(frozen=True)
class Technique:
    """Changes of the base setting (or "kv_heads") without it and with it, and what to look at."""

    name: str
    gain: Measure
    cost: Measure
    without: dict = field(default_factory=dict)
    with_it: dict = field(default_factory=dict)

    def runs(self, name):
        """((Outcome, Setting, GPTConfig) without, the same with it) on one trace."""
        both = []
        for change in (self.without, self.with_it):
            heads = change.get("kv_heads", SERVED.n_kv_head)
            setting = replace(BASE, **{key: value for key, value in change.items() if key != "kv_heads"})
            both.append((run(name, setting, heads), setting, replace(SERVED, n_kv_head=heads)))
        return tuple(both)

    def goals(self, name):
        """The goal of the workload without the technique and with it."""
        return tuple(goal(name, outcome) for outcome, _setting, _config in self.runs(name))


COMPUTED = Measure(N_("computed"), lambda o, s, c: o.positions_computed)
A_POSITION = Measure(N_("KV a position, KiB"), lambda o, s, c: kv_bytes_per_position(c, s.kv) / 1024)
VECTORS = Measure(N_("K/V vectors kept"), lambda o, s, c: 2 * c.n_layer * c.n_kv_head)
READ = Measure(N_("weights read, GiB"), lambda o, s, c: weight_bytes(c, s.weights) / 2**30)
ROOM = Measure(N_("room"), lambda o, s, c: o.pool_blocks * o.block_size)
W_CHANGED = Measure(N_("answers changed"), lambda o, s, c: changed_answers("weights", s.weights))
KV_CHANGED = Measure(N_("answers changed"), lambda o, s, c: changed_answers("KV", s.kv))
TECHNIQUES = (
    Technique(N_("KV cache"), COMPUTED, Measure(N_("peak KV, MiB"), lambda o, s, c: o.peak_kv_bytes / MIB),
              without={"kv_cache": False}),
    Technique(N_("GQA, 8 of 32 KV heads"), A_POSITION, VECTORS, without={"kv_heads": 32}),
    Technique(N_("MQA, 1 of 8 KV heads"), A_POSITION, VECTORS, with_it={"kv_heads": 1}),
    Technique(N_("INT8 weights"), READ, W_CHANGED, with_it={"weights": "int8"}),
    Technique(N_("INT4 weights"), READ, W_CHANGED, with_it={"weights": "int4"}),
    Technique(N_("INT8 KV"), ROOM, KV_CHANGED, with_it={"kv": "int8"}),
    Technique(N_("INT4 KV"), ROOM, KV_CHANGED, with_it={"kv": "int4"}),
    Technique(N_("paged KV"), Measure(N_("at once"), lambda o, s, c: o.peak_active),
              Measure(N_("table entries"), lambda o, s, c: o.peak_blocks), without={"block_size": None}),
    Technique(N_("continuous batching"), Measure(N_("p95 TTFT, ms"), lambda o, s, c: summarize(o.traces).ttft.p95),
              Measure(N_("p95 TPOT, ms"), lambda o, s, c: summarize(o.traces).tpot.p95), without={"policy": "static"}),
    Technique(N_("chunked prefill, 128"), Measure(N_("longest gap, ms"), lambda o, s, c: o.longest_gap),
              Measure(N_("passes"), lambda o, s, c: o.passes), with_it={"token_budget": 128}),
    Technique(N_("prefix cache"), COMPUTED, Measure(N_("blocks idle"), lambda o, s, c: o.idle_blocks),
              with_it={"sharing": "dynamic"}),
    Technique(N_("speculation, α = 0.8"), Measure(N_("passes"), lambda o, s, c: o.passes),
              Measure(N_("guesses lost"), lambda o, s, c: o.guesses_lost),
              with_it={"gamma": 4, "alpha": 0.8}),
)


def shown(value):
    """A number for a table: three figures and k or M from 10,000 on; two decimals below 10, one below 100."""
    if value is None:
        return "–"
    for size, unit in ((10**6, "M"), (10**3, "k")):
        if value >= max(size, 10_000):
            return f"{value / size:.3g} {unit}"
    if value == int(value) or value >= 100:
        return f"{round(value):,}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def tradeoff_table(name):
    """The Table of every technique on one workload: the goal, what was gained, what it cost."""
    wanted = _("outputs a second") if SLO[name] is None else _("goodput")
    rows = []
    for technique in TECHNIQUES:
        before, after = technique.runs(name)
        goals = " → ".join(shown(value) for value in technique.goals(name))
        rows.append((_(technique.name), goals, technique.gain.pair(before, after), technique.cost.pair(before, after)))
    caption = _("{workload}: without → with, by the roofline rule").format(workload=_(LABELS[name]).capitalize())
    return Table(caption, (_("technique"), wanted, _("gained"), _("cost")), tuple(rows))


def tradeoff_chart(figure_name):
    """A Figure: for each technique and workload the goal without it (hollow) and with it (solid), right is better."""
    goals = {name: [technique.goals(name) for technique in TECHNIQUES] for name in SLO}
    data = "; ".join(f"{_(technique.name)}: " + ", ".join(
        f"{_(LABELS[name])} {shown(goals[name][i][0])} → {shown(goals[name][i][1])}" for name in SLO)
        for i, technique in enumerate(TECHNIQUES))
    height = TOP + ROW * len(TECHNIQUES) + 30
    figure = Figure(figure_name, 480, height, _("What each technique did to the goal of each workload"), data)
    for i, technique in enumerate(TECHNIQUES):
        figure.text(LEFT - 10, TOP + ROW * i + 15, _(technique.name), anchor="end", size=11)
    for column, name in enumerate(SLO):
        left = LEFT + column * (PANEL + GAP)
        top = 1.0 if SLO[name] else 100 * -(-max(map(max, goals[name])) // 100)
        figure.text(left, 16, _(LABELS[name]), bold=True, size=12)
        figure.text(left, 32, _("goodput") if SLO[name] else _("outputs a second"), size=11)
        bottom = TOP + ROW * len(TECHNIQUES)
        for part in (0, 1):
            x = left + PAD + part * (PANEL - 2 * PAD)
            figure.line(x, TOP - 6, x, bottom, stroke="quiet", width=0.6)
            figure.text(x, bottom + 15, f"{part * top:g}", anchor="middle", size=11)
        for i, (before, after) in enumerate(goals[name]):
            y, x1, x2 = TOP + ROW * i + 11, *(left + PAD + value / top * (PANEL - 2 * PAD) for value in (before, after))
            if abs(x2 - x1) > 4:
                figure.line(x1 + (4 if x2 > x1 else -4), y, x2, y, width=2)
            figure.rect(x2 - 4, y - 4, 8, 8, fill="k", stroke="currentColor")
            figure.rect(x1 - 4, y - 4, 8, 8, thick=True, stroke="time")
    return figure
