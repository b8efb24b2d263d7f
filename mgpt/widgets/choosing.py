"""The choosing table of chapter 15: a workload, a setting and a goal; every limit, kept or missed."""

import functools

from mgpt.machine import GIB, TEACHING_MACHINE
from mgpt.memory import format_bytes
from mgpt.serving import Setting, serve
from mgpt.text import N_, _
from mgpt.timing import summarize
from mgpt.widgets.control import Choice, Control, Number, Table, View
from mgpt.widgets.svg import Figure
from mgpt.widgets.tradeoffs import LABELS, changed_answers, shown
from mgpt.workloads import workload

TRACES = {"chat": (20, 1), "batch": (20, 1), "documents": (6, 2)}  # requests, seed: small enough to follow every touch
CHOSEN = ("policy", "sharing", "budget", "block", "kv", "max_active", "memory")
MOST_KEPT = 4
LEFT, RIGHT = 64, 462


def setting_of(state):
    """The Setting of a state."""
    return Setting(
        policy=state["policy"], max_active=state["max_active"], kv=state["kv"],
        block_size=None if state["block"] == "contiguous" else int(state["block"]),
        token_budget=None if state["budget"] == "none" else int(state["budget"]),
        sharing=None if state["sharing"] == "none" else state["sharing"])


@functools.lru_cache(maxsize=64)
def run(scenario, setting, memory):
    """The Outcome of a Setting within so many bytes of KV memory."""
    return serve(workload(scenario, *TRACES[scenario]), setting, memory=memory)


def outcome_of(state):
    return run(state["scenario"], setting_of(state), int(state["memory"] * GIB))


def view(state):
    """The View of a state: waits and paces of every request against the limits, memory against the budget."""
    outcome, slo = outcome_of(state), {"ttft": state["ttft"], "tpot": state["tpot"]}
    report = summarize(outcome.traces, slo=slo)
    rows = metrics(outcome, report, state)
    kept = kept_table(state)
    return View((picture(outcome, report, state),), (_("what"), _("value"), _("limit"), _("kept")), rows,
                sentence(outcome, report, state), more=(kept,) if kept else (), note=rule())


def rule():
    machine = TEACHING_MACHINE
    return _("Roofline rule: a tick lasts {overhead:g} ms and the longer of FLOPs / {peak:g} TFLOP/s and bytes / "
             "{band:g} TB/s of an assumed machine. Outputs are stamped at the end of their tick.").format(
        overhead=machine.overhead, peak=machine.peak / 1e12, band=machine.bandwidth / 1e12)


def metrics(outcome, report, state):
    """Rows (what, value, limit, kept) of one run."""
    def row(what, value, limit=None, kept=None):
        return what, value, limit, None if kept is None else _("yes") if kept else _("no")

    def timed(what, stats, limit):
        if stats.p95 is None:
            return row(what, None, shown(limit))
        return row(what, shown(stats.p95), shown(limit), stats.p95 <= limit)

    memory = int(state["memory"] * GIB)
    return (
        row(_("goodput"), shown(report.goodput)),
        timed(_("p95 TTFT, ms"), report.ttft, state["ttft"]),
        timed(_("p95 TPOT, ms"), report.tpot, state["tpot"]),
        row(_("failed requests"), report.n_errors, 0, report.n_errors == 0),
        row(_("outputs a second"), shown(outcome.throughput)),
        row(_("makespan, ms"), shown(outcome.makespan)),
        row(_("peak KV reserved"), format_bytes(outcome.peak_kv_bytes), format_bytes(memory),
            outcome.peak_kv_bytes <= memory),
        row(_("blocks in the pool"), outcome.pool_blocks),
        row(_("requests at once, most"), outcome.peak_active, state["max_active"], True),
        row(_("positions computed"), shown(outcome.positions_computed)),
        row(_("positions reused"), shown(outcome.positions_reused)),
        row(_("MG-2's answers changed"), changed_answers("KV", state["kv"])),
    )


def sentence(outcome, report, state):
    """What to see, by the goal that is stated."""
    if report.n_errors == report.n:
        return _("All {n} requests were refused: none of them can ever fit {memory} of KV memory.").format(
            n=report.n, memory=format_bytes(int(state["memory"] * GIB)))
    good = round(report.goodput * report.n)
    waits = [(name, stats.p95, state[name.lower()]) for name, stats in (("TTFT", report.ttft), ("TPOT", report.tpot))
             if stats.p95 is not None]
    limits = "; ".join(
        (_("p95 {name} keeps its limit with {room:,.0f} ms to spare") if value <= limit else
         _("p95 {name} misses its limit by {room:,.0f} ms")).format(name=name, room=abs(limit - value))
        for name, value, limit in waits)
    goal = {
        "goodput": _("By goodput: {good} of {n} requests keep every limit"),
        "throughput": _("By throughput: {rate:.0f} outputs a second, all done after {makespan:,.0f} ms"),
        "memory": _("By memory: at most {peak} reserved, for {active} requests at once"),
    }[state["want"]].format(good=good, n=report.n, rate=outcome.throughput, makespan=outcome.makespan,
                            peak=format_bytes(outcome.peak_kv_bytes), active=outcome.peak_active)
    failed = _(" {n} requests were refused and failed.").format(n=report.n_errors) if report.n_errors else ""
    return f"{goal}; {limits}.{failed}"


def picture(outcome, report, state):
    """A Figure: a mark a request for TTFT and for TPOT, the limits dashed, and the KV memory."""
    lines = [("TTFT", [t.ttft for t in outcome.traces if not t.failed], report.ttft, state["ttft"]),
             ("TPOT", [t.tpot for t in outcome.traces if t.tpot is not None], report.tpot, state["tpot"])]
    data = "; ".join(f"{name}, ms: {', '.join(shown(v) for v in values) or _('none')}; {_('limit')} {shown(limit)}"
                     for name, values, _stats, limit in lines)
    memory = int(state["memory"] * GIB)
    peak = outcome.peak_kv_bytes
    data += "; " + _("KV memory: {peak} of {memory}").format(peak=format_bytes(peak), memory=format_bytes(memory))
    figure = Figure("figure-choosing", 480, 214, _("Every request against the limits"), data)
    for number, (name, values, stats, limit) in enumerate(lines):
        y, top = 44 + 76 * number, max([1.2 * limit, *values])
        scale = (RIGHT - LEFT) / top
        figure.text(8, y + 5, name, bold=True)
        figure.line(LEFT, y + 16, RIGHT, y + 16)
        figure.text(LEFT, y + 31, 0, anchor="middle", size=11)
        figure.text(RIGHT, y + 31, f"{shown(top)} ms", anchor="end", size=11)
        for value in values:
            over = value > limit
            x = LEFT + value * scale
            figure.line(x, y - (10 if over else 2), x, y + 16, stroke="time" if over else "k", width=3 if over else 2)
        x = LEFT + limit * scale
        figure.line(x, y - 20, x, y + 16, dashed=True)
        figure.text(x, y - 24, f"{_('limit')} {shown(limit)}", anchor="middle" if x < 400 else "end", size=11)
        if stats.p95 is not None:
            x = LEFT + stats.p95 * scale
            figure.line(x, y + 16, x, y + 21)
            label = min(max(x, LEFT + 20), RIGHT - 78)  # beside the ends of the scale; a line leads from the mark to it
            figure.line(label, y + 21, x, y + 21)
            figure.text(label, y + 31, "p95", anchor="middle", size=11)
    y, scale = 186, (RIGHT - LEFT) / memory
    figure.text(8, y + 12, "KV", bold=True)
    figure.rect(LEFT, y, RIGHT - LEFT, 16, dashed=True)
    figure.rect(LEFT, y, peak * scale, 16, fill="k", stroke="none")
    figure.text(RIGHT, y - 5, f"{format_bytes(peak)} / {format_bytes(memory)}", anchor="end", size=11)
    return figure


def kept_table(state):
    """The Table of the settings that were kept and of the one shown, on the same trace and limits; None without any."""
    states = [state | dict(zip(CHOSEN, values)) for scenario, *values in codes(state) if scenario == state["scenario"]]
    if not states:
        return None
    rows = []
    for number, one in enumerate([*states, state]):
        outcome = outcome_of(one)
        report = summarize(outcome.traces, slo={"ttft": state["ttft"], "tpot": state["tpot"]})
        label = number + 1 if number < len(states) else _("now")
        words = ", ".join(f"{one[name]:g}" if name == "memory" else str(one[name]) for name in CHOSEN)
        rows.append((label, words, shown(report.goodput), shown(report.ttft.p95), shown(report.tpot.p95),
                     shown(outcome.throughput), format_bytes(outcome.peak_kv_bytes), report.n_errors))
    caption = _("Settings kept, {scenario}, one cost rule for all").format(scenario=_(LABELS[state["scenario"]]))
    header = (_("no."), _("policy, prefix, budget, block, KV, active, GiB"), _("goodput"), _("p95 TTFT"), _("p95 TPOT"),
              _("outputs a second"), _("peak KV"), _("failed"))
    return Table(caption, header, tuple(rows))


def codes(state):
    """The kept settings, each [scenario, *values of CHOSEN]; what cannot be read is left out."""
    found = []
    for code in str(state["kept"]).split(";"):
        scenario, *values = code.split(",")
        try:
            pairs = zip(("scenario", *CHOSEN), (scenario, *values), strict=True)
            found.append([inputs[name].read(value) for name, value in pairs])
        except ValueError:
            continue
    return found[-MOST_KEPT:]


def keep(state):
    """Keep the setting that is shown, once; the oldest of more than four is dropped."""
    now = [state[name] for name in ("scenario", *CHOSEN)]
    kept = [code for code in codes(state) if code != now] + [now]
    return state | {"kept": ";".join(",".join(map(str, code)) for code in kept[-MOST_KEPT:])}


CONTROL = Control(
    "choosing", N_("The choosing table"),
    inputs=(
        Choice("scenario", N_("Workload"), "chat", LABELS),
        Choice("want", N_("Goal"), "goodput", {
            "goodput": N_("goodput"), "throughput": N_("throughput"), "memory": N_("KV memory")}),
        Choice("policy", N_("Policy"), "continuous", {"continuous": N_("continuous"), "static": N_("static waves")}),
        Choice("budget", N_("Token budget"), "none", {
            "none": N_("no limit"), **{str(n): str(n) for n in (64, 128, 256, 512, 1024)}}, unit=N_("(positions a tick)")),
        Choice("sharing", N_("Prefix"), "none", {
            "none": N_("not shared"), "dynamic": N_("found when computed")}),
        Choice("block", N_("Block size"), "64", {
            "32": "32", "64": "64", "256": "256", "contiguous": N_("contiguous, 16,384")}, unit=N_("(positions)")),
        Choice("kv", N_("KV format"), "f16", {"f16": "f16", "int8": "int8", "int4": "int4"}),
        Number("max_active", N_("Active at once"), 16, 1, 64, unit=N_("(requests)")),
        Number("memory", N_("KV memory"), 2, 0.25, 4, step=0.25, unit=N_("(GiB)")),
        Number("ttft", N_("TTFT limit"), 1000, 50, 60_000, unit=N_("(ms)")),
        Number("tpot", N_("TPOT limit"), 30, 5, 1000, unit=N_("(ms)")),
    ),
    view=view,
    actions={
        "keep": (N_("Keep this setting"), keep),
        "forget": (N_("Forget the kept"), lambda state: state | {"kept": ""}),
    },
    hidden={"kept": ""},
)
inputs = {item.name: item for item in CONTROL.inputs}
