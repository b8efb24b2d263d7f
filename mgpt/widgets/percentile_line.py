"""Figure 3.2: samples on a number line, with their mean and percentiles as named marks."""

from mgpt.text import _
from mgpt.widgets.svg import Figure
from mgpt.widgets.trace_explorer import nice_step

LEFT, RIGHT, BASE = 16, 464, 96


def percentile_line(samples, stats, name):
    """A Figure: one bar a sample, and of its Stats the mean (dashed), p50, p95 and p99."""
    samples = sorted(samples)
    values = {_("mean"): stats.mean, "p50": stats.p50, "p95": stats.p95, "p99": stats.p99}
    figure = Figure("figure-3-2", 480, BASE + 40, _("{n} samples of {name}, mean and percentiles").format(
        n=len(samples), name=name), _("samples {samples} ms; {marks}").format(
        samples=" ".join(f"{s:g}" for s in samples), marks=", ".join(f"{k} {v:.1f} ms" for k, v in values.items())))
    start, end = 0, samples[-1] * 1.04

    def x(value):
        return LEFT + (value - start) * (RIGHT - LEFT) / (end - start)

    for value in samples:
        figure.rect(x(value) - 1, BASE - 20, 2, 20, fill="k", stroke="none")
    for row, (words, value) in enumerate(sorted(values.items(), key=lambda item: item[1])):
        y = 14 if row % 2 == 0 else 32
        figure.line(x(value), y + 4, x(value), BASE - 22, stroke="time", dashed=words == _("mean"), width=1.5)
        near_end = x(value) > 400
        figure.text(x(value) + (0 if near_end else -4), y, f"{words} {value:.1f}", bold=True, size=12,
                    anchor="end" if near_end else "start")
    step = nice_step(end - start)
    figure.line(LEFT, BASE, RIGHT, BASE)
    for number in range(int(end / step) + 1):
        figure.line(x(number * step), BASE, x(number * step), BASE + 5)
        figure.text(x(number * step), BASE + 18, f"{number * step:g}", anchor="middle", size=11)
    figure.text(RIGHT, BASE + 34, _("{name}, ms").format(name=name), anchor="end", size=11)
    return figure
