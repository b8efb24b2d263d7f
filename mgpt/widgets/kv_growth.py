"""Bytes of a request against its length, a curve a model: which cache grows with the context, and which stops."""

from mgpt.memory import format_bytes
from mgpt.text import _
from mgpt.widgets.svg import Figure
from mgpt.widgets.trace_explorer import nice_step

LEFT, RIGHT, TOP, BASE, POINTS = 52, 340, 24, 204, 24


def kv_growth(name, curves, tokens, limit=None):
    """A Figure.  curves: [(words, function from a length to bytes)]; limit: (bytes, words), drawn if in sight."""
    lengths = sorted({max(1, round(tokens * i / POINTS)) for i in range(1, POINTS + 1)})
    values = [(words, [count(length) for length in lengths]) for words, count in curves]
    most = max(max(series) for _words, series in values) or 1
    data = "; ".join(f"{words}: {format_bytes(series[-1])}" for words, series in values)
    figure = Figure(name, 480, BASE + 42, _("Bytes of a request against its length"),
                    _("at {n} tokens: {data}").format(n=tokens, data=data))

    def x(length):
        return LEFT + length * (RIGHT - LEFT) / tokens

    def y(nbytes):
        return BASE - nbytes * (BASE - TOP) / most

    _axes(figure, tokens, most, x, y)
    for number, (_words, series) in enumerate(values):
        before = (x(0), BASE)
        for length, nbytes in zip(lengths, series):
            here = (x(length), y(nbytes))
            figure.line(*before, *here, stroke=("k", "time", "quiet")[number % 3], dashed=number >= 3,
                        width=2.2 - 0.4 * (number % 3))
            before = here
    for words, at, height in _spread([(words, y(series[-1])) for words, series in values]):
        figure.line(RIGHT + 2, at, RIGHT + 9, height, stroke="quiet")
        figure.text(RIGHT + 12, height + 4, words, size=11)
    if limit and limit[0] <= most:
        figure.line(LEFT, y(limit[0]), RIGHT, y(limit[0]), dashed=True)
        figure.text(LEFT + 4, y(limit[0]) - 4, f"{limit[1]} {format_bytes(limit[0])}", size=11)
    return figure


def _axes(figure, tokens, most, x, y):
    unit = max((power for power in range(5) if most >= 1024**power), default=0)
    name, size = ("B", "KiB", "MiB", "GiB", "TiB")[unit], 1024**unit
    figure.line(LEFT, BASE, RIGHT, BASE)
    figure.line(LEFT, TOP, LEFT, BASE)
    step = nice_step(most / size)
    for number in range(int(most / size / step) + 1):
        figure.line(LEFT - 4, y(number * step * size), LEFT, y(number * step * size))
        figure.text(LEFT - 7, y(number * step * size) + 4, f"{number * step:g}", anchor="end", size=11)
    figure.text(LEFT - 7, TOP - 10, name, anchor="end", size=11)
    for quarter in range(5):
        figure.line(x(tokens * quarter / 4), BASE, x(tokens * quarter / 4), BASE + 4)
        figure.text(x(tokens * quarter / 4), BASE + 17, f"{round(tokens * quarter / 4):,}", anchor="middle", size=11)
    figure.text(RIGHT, BASE + 34, _("tokens"), anchor="end", size=11)


def _spread(labels, room=15):
    """[(words, wanted height)] as [(words, wanted, given)]: no two labels nearer than `room`, within the figure."""
    placed, below = [], BASE + room
    for words, wanted in sorted(labels, key=lambda item: -item[1]):
        below = min(wanted, below - room)
        placed.append((words, wanted, below))
    return placed
