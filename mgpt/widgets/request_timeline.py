"""Figure 30.1: one request on two time lines, the clock and the cache, drawn from a trace and a cache's counts."""

from mgpt.memory import format_bytes
from mgpt.text import _
from mgpt.widgets.svg import Figure

LEFT, RIGHT, CELL = 34, 462, 20


def request_timeline(trace, prompt_len, cached):
    """A Figure.  trace: a RequestTrace with `started`; cached: [(positions, bytes)] at each emission, in order."""
    times = list(trace.token_times)
    if len(cached) != len(times):
        raise ValueError(f"cached must have one entry for each of the {len(times)} outputs, got {len(cached)}")
    data = "; ".join(_("output {n} at {time} ms, {positions} positions, {nbytes} bytes").format(
        n=n, time=f"{time:g}", positions=positions, nbytes=nbytes)
        for n, (time, (positions, nbytes)) in enumerate(zip(times, cached), 1))
    figure = Figure("figure-30-1", 480, 154 + 34 * len(times) + 26, _("One request: clock and cache"),
                    _("arrival {a} ms, prefill from {s} ms; {data}").format(
                        a=f"{trace.arrival:g}", s=f"{trace.started:g}", data=data))
    _clock(figure, trace, times)
    _cache(figure, times, prompt_len, cached)
    return figure


def _clock(figure, trace, times):
    def x(time):
        return LEFT + (time - trace.arrival) * (RIGHT - LEFT) / (times[-1] - trace.arrival)

    top, height = 52, 30
    first = times[0]
    figure.line(x(trace.arrival), 30, x(first), 30, stroke="time", width=1.5)
    for end in (trace.arrival, first):
        figure.line(x(end), 25, x(end), 35, stroke="time", width=1.5)
    figure.text((x(trace.arrival) + x(first)) / 2, 22, f"TTFT {trace.ttft:g}", anchor="middle", bold=True)
    figure.rect(x(trace.arrival), top, x(trace.started) - x(trace.arrival), height, dashed=True)
    figure.rect(x(trace.started), top, x(first) - x(trace.started), height, thick=True)
    figure.text((x(trace.started) + x(first)) / 2, top + 20, _("prefill"), anchor="middle")
    figure.text((x(trace.arrival) + x(trace.started)) / 2, top - 5, _("queue"), anchor="middle")
    for before, after, gap in zip(times, times[1:], trace.gaps):
        figure.rect(x(before), top, x(after) - x(before), height, thick=True)
        figure.text((x(before) + x(after)) / 2, top - 5, f"{gap:g}", anchor="middle", bold=True)
    figure.text((x(first) + x(times[-1])) / 2, 30, _("decode, gaps"), anchor="middle")
    for time in (trace.arrival, trace.started, *times):
        figure.line(x(time), top + height, x(time), top + height + 6)
        figure.text(x(time), top + height + 19, f"{time:g}", anchor="middle")
    figure.text(RIGHT + 4, top + height + 33, "ms", anchor="end")


def _cache(figure, times, prompt_len, cached):
    top, x0 = 150, 60
    last = max(positions for positions, _bytes in cached)

    def cell_x(index):  # prompt cells first, outputs after a thin gap
        return x0 + index * (CELL + 1) + (5 if index >= prompt_len else 0)

    figure.text(LEFT + 18, top - 14, "ms", anchor="end")
    figure.text(x0, top - 14, _("K over V of each position"))
    for row, (time, (positions, nbytes)) in enumerate(zip(times, cached)):
        y, known = top + 34 * row, cached[row - 1][0] if row else 0
        figure.text(LEFT + 18, y + 15, f"{time:g}", anchor="end")
        for index in range(positions):
            figure.kv_cell(cell_x(index), y, CELL, new=index >= known)
        figure.rect(cell_x(positions), y, CELL, CELL, dashed=True)
        figure.text(cell_x(positions) + CELL / 2, y + 15, row + 1, anchor="middle")
        figure.text(RIGHT + 14, y + 15, f"{positions} · {format_bytes(nbytes)}", anchor="end")
    y = top + 34 * len(times) + 2
    for index in range(last):
        figure.text(cell_x(index) + CELL / 2, y, index + 1, anchor="middle", size=11)
