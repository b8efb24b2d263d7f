"""Errors on a logarithmic scale: against the context's length (figure 14.2), and position by position."""

import math

from mgpt.text import _
from mgpt.widgets.svg import Figure

LEFT, TOP, HEIGHT, GAP = 40, 34, 150, 34
INKS = ("k", "time", "quiet")


def error_chart(name, panels, low=0.01, high=100):
    """A Figure.  panels: {title: {words: [(length, error)]}}; both axes logarithmic, the errors from low to high."""
    width = (468 - LEFT - GAP * (len(panels) - 1)) / len(panels)
    inks = dict(zip(dict.fromkeys(words for series in panels.values() for words in series), INKS))
    data = "; ".join(f"{title}, {words}: " + " ".join(f"{n} {error:.2g}" for n, error in points)
                     for title, series in panels.items() for words, points in series.items())
    figure = Figure(name, 480, TOP + HEIGHT + 40, _("Largest error of a position's logits against its context"), data)

    def y(error):
        return TOP + HEIGHT * math.log(high / max(error, low)) / math.log(high / low)

    for index, (title, series) in enumerate(panels.items()):
        x0 = LEFT + index * (width + GAP)
        lengths = [n for points in series.values() for n, _error in points]
        first, last = min(lengths), max(lengths)

        def x(n):
            return x0 + width * math.log(n / first) / math.log(last / first)

        figure.text(x0, TOP - 20, title, bold=True)
        for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
            figure.line(x0, y(10**power), x0 + width, y(10**power), stroke="quiet", dashed=True, width=0.5)
            figure.text(x0 - 4, y(10**power) + 4, f"{10.0**power:g}", anchor="end", size=11)
        for n in [2**power for power in range(20) if first <= 2**power <= last]:
            figure.line(x(n), TOP + HEIGHT, x(n), TOP + HEIGHT + 4)
            figure.text(x(n), TOP + HEIGHT + 16, n, anchor="middle", size=11)
        for words, points in series.items():
            ink = inks[words]
            places = [(x(n), y(error)) for n, error in points]
            for start, end in zip(places, places[1:]):
                figure.line(*start, *end, stroke=ink, width=1.8)
            for place in places:
                figure.rect(place[0] - 2, place[1] - 2, 4, 4, fill=ink, stroke="none")
            figure.text(x0 + 4, places[0][1] - 7, words, size=11)
    figure.text(476, TOP + HEIGHT + 34, _("positions in the cache"), anchor="end", size=11)
    return figure


def error_by_position(name, errors, positions_shown):
    """A Figure: one bar a position from 0 to positions_shown - 1, the worst with a thick outline, the mean dashed."""
    shown = errors[:positions_shown]
    worst, mean = max(range(len(shown)), key=lambda i: shown[i]), sum(shown) / len(shown)
    top = max(max(shown), 1e-12)
    figure = Figure(name, 480, TOP + HEIGHT, _("Largest error of each position's logits"),
                    " ".join(f"{error:.3f}" for error in shown))
    base, step = TOP + HEIGHT - 24, min(24, 430 / len(shown))
    figure.line(LEFT, base, 470, base)
    for index, error in enumerate(shown):
        height = (base - TOP) * error / top
        figure.rect(LEFT + index * step + 0.5, base - height, max(step - 1, 1), height, fill="k",
                    stroke="currentColor" if index == worst else "none", thick=index == worst)
    level = base - (base - TOP) * mean / top
    figure.line(LEFT, level, 470, level, dashed=True)
    figure.text(LEFT, TOP - 20, _("largest {top:.3f}, at position {at}; mean, dashed, {mean:.3f}").format(
        top=shown[worst], at=worst, mean=mean), size=12)
    for index in range(0, len(shown), max(1, 10 * round(len(shown) / 50))):
        figure.text(LEFT + (index + 0.5) * step, base + 15, index, anchor="middle", size=11)
    figure.text(LEFT - 4, TOP + 4, f"{top:.2g}", anchor="end", size=11)
    figure.text(LEFT - 4, base, "0", anchor="end", size=11)
    return figure
