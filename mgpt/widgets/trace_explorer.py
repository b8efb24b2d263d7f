"""The trace explorer of chapter 03: emissions as text, on a time line, with every figure that follows from them."""

import math
import re

from mgpt.text import N_, _
from mgpt.timing import RequestTrace, summarize
from mgpt.widgets.control import Control, Number, Text, View
from mgpt.widgets.svg import Figure

LEFT, RIGHT, TOP, ROW = 34, 462, 30, 44
MOST_REQUESTS, MOST_OUTPUTS = 6, 40


def read_requests(text):
    """[RequestTrace] of "arrival: output output …; arrival: …".  ValueError says which request cannot be read."""
    parts = [part for part in text.split(";") if part.strip()]
    if not 1 <= len(parts) <= MOST_REQUESTS:
        raise ValueError(_("Requests: 1 to {most} are shown, not {n}").format(most=MOST_REQUESTS, n=len(parts)))
    traces = []
    for letter, part in zip("ABCDEF", parts):
        try:
            arrival, outputs = part.split(":")
            times = [float(word) for word in re.split(r"[\s,]+", outputs.strip()) if word]
            if len(times) > MOST_OUTPUTS:
                raise ValueError(_("at most {most} outputs are shown").format(most=MOST_OUTPUTS))
            traces.append(RequestTrace(float(arrival), times, request_id=letter))
        except ValueError as error:
            raise ValueError(_("Request {letter}, {part}: {error}").format(
                letter=letter, part=repr(part.strip()), error=error)) from None
    return traces


def shown(value):
    """A number as it stands in a table: at most two decimals; a dash where there is none."""
    return "–" if value is None else f"{round(value, 2):.10g}"


def view(state):
    """The View of a state: requests as text, and two limits."""
    traces = read_requests(state["requests"])
    limits = {"ttft": state["ttft"], "tpot": state["tpot"]}
    rows = tuple(row(trace, limits) for trace in traces)
    header = (_("request"), _("outputs"), "TTFT", _("gaps"), "TPOT", _("full latency"), _("latency / outputs"),
              _("within the limits"))
    figure = trace_rows("figure-trace-explorer", traces, state["ttft"])
    return View((figure,), header, rows, sentence(traces, summarize(traces, slo=limits)))


def row(trace, limits):
    gaps = "–" if trace.gaps is None else " ".join(map(shown, trace.gaps)) or _("none")
    good = _("failed") if trace.failed else _("yes") if summarize([trace], slo=limits).goodput else _("no")
    return (trace.request_id, trace.n_tokens, shown(trace.ttft), gaps, shown(trace.tpot), shown(trace.e2e),
            shown(trace.mean_time_per_output), good)


def sentence(traces, report):
    """What to see: of one request its figures, of several the report."""
    trace = traces[0]
    if len(traces) > 1 or trace.failed:
        return _("{n} requests, {failed} failed. Mean TTFT {ttft} ms over {of}, mean TPOT {tpot} ms over {with_tpot}; "
                 "{good} of {n} requests are good.").format(
            n=report.n, failed=report.n_errors, ttft=shown(report.ttft.mean), of=report.ttft.count,
            tpot=shown(report.tpot.mean), with_tpot=report.tpot.count, good=round(report.goodput * report.n))
    if trace.tpot is None:
        return _("One output: TTFT and full latency are both {ttft} ms, and there is no TPOT.").format(
            ttft=shown(trace.ttft))
    return _("TTFT {ttft} ms and {gaps} gaps of {tpot} ms on average make the full latency of {e2e} ms; divided by all "
             "{n} outputs it would be {mean} ms, which is no TPOT.").format(
        ttft=shown(trace.ttft), gaps=trace.n_tokens - 1, tpot=shown(trace.tpot), e2e=shown(trace.e2e),
        n=trace.n_tokens, mean=shown(trace.mean_time_per_output))


def nice_step(span):
    """1, 2 or 5 times a power of ten: four to ten such steps cover `span`."""
    power = 10 ** math.floor(math.log10(span / 4))
    return next(step * power for step in (5, 2, 1) if span / (step * power) >= 4)


def trace_rows(name, traces, limit=None):
    """A Figure: a row a request on one clock, a bar an output; `limit`: of the TTFT, dashed, after each arrival."""
    ends = [time for trace in traces for time in (trace.arrival, *trace.token_times)]
    start, end = min(ends), max(max(ends), min(ends) + 1)
    data = "; ".join(_("{letter} arrives at {arrival} ms, outputs at {times}").format(
        letter=trace.request_id, arrival=shown(trace.arrival),
        times=" ".join(map(shown, trace.token_times)) or _("no time: it failed")) for trace in traces)
    figure = Figure(name, 480, TOP + ROW * len(traces) + 24, _("Requests on the clock"), data)

    def x(time):
        return LEFT + (time - start) * (RIGHT - LEFT) / (end - start)

    for number, trace in enumerate(traces):
        _row(figure, trace, TOP + ROW * number + 16, x, limit, end, named=number == 0)
    bottom, step = TOP + ROW * len(traces), nice_step(end - start)
    figure.line(LEFT, bottom, RIGHT, bottom)
    tick = math.ceil(start / step) * step
    while tick <= end:
        figure.line(x(tick), bottom, x(tick), bottom + 5)
        figure.text(x(tick), bottom + 18, f"{tick:.6g}", anchor="middle", size=11)
        tick += step
    figure.text(4, bottom + 18, "ms", size=11)
    return figure


def _row(figure, trace, y, x, limit, end, named):
    times = trace.token_times
    figure.text(8, y + 5, trace.request_id, bold=True)
    figure.line(x(trace.arrival), y - 8, x(trace.arrival), y + 8)
    if limit is not None and trace.arrival + limit <= end:
        at = x(trace.arrival + limit)
        figure.line(at, y - 12, at, y + 14, dashed=True)
        if named:
            figure.text(at, y - 22, _("TTFT limit"), anchor="middle", size=11)
    if not times:
        figure.text(x(trace.arrival) + 6, y + 5, "× " + _("failed"))
        return
    figure.line(x(trace.arrival), y, x(times[0]), y, stroke="time", width=2)
    figure.line(x(times[0]), y, x(times[-1]), y, stroke="quiet")
    figure.text((x(trace.arrival) + x(times[0])) / 2, y - 6, f"TTFT {shown(trace.ttft)}", anchor="middle", size=11)
    for time in times:
        figure.rect(x(time) - 2, y - 9, 4, 18, fill="k", stroke="none")
    for before, after, gap in zip(times, times[1:], trace.gaps):
        if x(after) - x(before) >= 9 * len(shown(gap)) + 4:
            figure.text((x(before) + x(after)) / 2, y - 6, shown(gap), anchor="middle", size=11)


def add(request):
    """The action that puts one more request behind the others, while there is room."""
    def change(state):
        longer = f"{state['requests'].rstrip('; ')}; {request}"
        room = len([part for part in longer.split(";") if part.strip()]) <= MOST_REQUESTS and len(longer) <= 400
        return state | {"requests": longer if room else state["requests"]}

    return change


CONTROL = Control(
    "trace_explorer", N_("Requests on the clock"),
    inputs=(
        Text("requests", N_("Requests"), "0: 150 190 235 270",
             unit=N_("(arrival: outputs; arrival: outputs; … in ms)")),
        Number("ttft", N_("Limit of TTFT"), 200, 0, 100_000, unit="ms"),
        Number("tpot", N_("Limit of TPOT"), 50, 0, 100_000, unit="ms"),
    ),
    view=view,
    actions={"one": (N_("Add one of a single output"), add("0: 100")),
             "fail": (N_("Add a failed one"), add("0:"))},
)
