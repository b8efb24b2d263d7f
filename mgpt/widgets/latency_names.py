"""Figure 3.1: the names of the waits of one request, as brackets over its time line."""

from mgpt.text import _
from mgpt.widgets.svg import Figure

LEFT, RIGHT, LINE = 30, 464, 112


def latency_names(trace):
    """A Figure of a RequestTrace with `started` and at least two outputs."""
    times, start = trace.token_times, trace.arrival
    figure = Figure("figure-3-1", 480, 212, _("The names of the waits"), _(
        "TTFT {ttft} ms, of which {queue} in the queue; gaps {gaps} ms with the mean TPOT {tpot} ms; "
        "full latency {e2e} ms").format(
        ttft=f"{trace.ttft:g}", queue=f"{trace.queue_time:g}", gaps=" ".join(f"{gap:g}" for gap in trace.gaps),
        tpot=f"{trace.tpot:g}", e2e=f"{trace.e2e:g}"))

    def x(time):
        return LEFT + (time - start) * (RIGHT - LEFT) / (times[-1] - start)

    def bracket(begin, end, y, words, bold=True, away=-6):
        figure.line(x(begin), y, x(end), y, stroke="time", width=1.5)
        for time in (begin, end):
            figure.line(x(time), y - 4, x(time), y + 4, stroke="time", width=1.5)
        figure.text((x(begin) + x(end)) / 2, y + away, words, anchor="middle", bold=bold)

    bracket(start, times[0], 26, f"TTFT {trace.ttft:g}")
    bracket(times[0], times[-1], 26, _("{n} gaps, TPOT {tpot}").format(n=len(trace.gaps), tpot=f"{trace.tpot:g}"))
    bracket(start, trace.started, 72, f"{trace.queue_time:g}", bold=False)
    bracket(trace.started, times[0], 72, f"{times[0] - trace.started:g}", bold=False)
    for before, after, gap in zip(times, times[1:], trace.gaps):
        bracket(before, after, 72, f"{gap:g}", bold=False)
    figure.rect(x(start), LINE - 14, x(trace.started) - x(start), 28, dashed=True)
    figure.text((x(start) + x(trace.started)) / 2, LINE + 5, _("queue"), anchor="middle", size=11)
    figure.rect(x(trace.started), LINE - 14, x(times[0]) - x(trace.started), 28)
    figure.text((x(trace.started) + x(times[0])) / 2, LINE + 5, _("prefill"), anchor="middle", size=11)
    figure.rect(x(times[0]), LINE - 14, x(times[-1]) - x(times[0]), 28)
    figure.text((x(times[0]) + x(times[-1])) / 2, LINE + 5, _("decode"), anchor="middle", size=11)
    for time in times:
        figure.rect(x(time) - 2, LINE - 18, 4, 36, fill="k", stroke="none")
    for time in (start, trace.started, *times):
        figure.text(x(time), LINE + 34, f"{time:g}", anchor="middle", size=11)
    figure.text(RIGHT + 14, LINE + 50, "ms", anchor="end", size=11)
    bracket(start, times[-1], 182, _("full latency {e2e}").format(e2e=f"{trace.e2e:g}"), away=18)
    return figure
