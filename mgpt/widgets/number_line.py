"""Values and their codes on number lines: hollow the true value, solid the code's value, the error a bar between them."""

from mgpt.codes import largest_code
from mgpt.text import _
from mgpt.widgets.svg import Figure

WIDTH, LEFT, RIGHT, TOP, LANE, AXIS = 400, 50, 356, 46, 22, 34


def shown(number):
    """A number in few digits, with a true minus."""
    return f"{number:.4g}".replace("-", "−")


def number_line(name, title, groups, bits):
    """A Figure with one axis a group.  groups: [(scale, [(x, code, restored, clipped)])], drawn to one unit.

    A tick a code where they stay apart, a short dashed one half-way between two codes, where a tie lies; a wall
    at the last code on either side.
    """
    qmax = largest_code(bits)
    reach = max(max([qmax * scale, *(abs(row[0]) for row in rows)]) for scale, rows in groups) * 1.04
    height = TOP + sum(AXIS + LANE * len(rows) for _scale, rows in groups) + 8
    data = "; ".join(_("scale {scale}: {rows}").format(scale=shown(scale), rows=", ".join(
        _("{x} becomes {restored}").format(x=shown(x), restored=shown(restored)) for x, _code, restored, _clipped in rows))
        for scale, rows in groups)
    figure = Figure(name, WIDTH, height, title, data)

    def at(value):
        return (LEFT + RIGHT) / 2 + value / reach * (RIGHT - LEFT) / 2

    figure.text(4, 14, _("hollow: value · solid: what its code stands for"), size=12)
    figure.text(4, 30, _("bar: error, hatched where clipped · wall: last code"), size=12)
    y = TOP
    for scale, rows in groups:
        y += AXIS - 8
        bottom = y + LANE * len(rows) + 4
        _axis(figure, at, scale, qmax, y)
        for side in (-qmax, qmax):
            figure.line(at(side * scale), y - 6, at(side * scale), bottom, width=3)
        for x, code, restored, clipped in rows:
            y += LANE
            start, end = sorted((at(x), at(restored)))
            figure.rect(start, y - 9, end - start, 6, fill="hatch" if clipped else "time", stroke="time")
            figure.rect(at(restored) - 3.5, y - 9.5, 7, 7, fill="k", stroke="none")
            figure.rect(at(x) - 5.5, y - 11.5, 11, 11, thick=True)
            figure.text(4, y - 2, shown(x), size=11)
            figure.text(WIDTH - 4, y - 2, shown(code), anchor="end", size=11)
        y += 8
    return figure


def _axis(figure, at, scale, qmax, y):
    """A line from wall to wall with its ticks; codes are named where there is room."""
    room = at(scale) - at(0)
    named = range(-qmax, qmax + 1) if room >= 20 else (-qmax, 0, qmax) if room * qmax >= 22 else (0,)
    figure.line(at(-qmax * scale), y, at(qmax * scale), y, width=1.4)
    figure.text(WIDTH - 4, y + 4, _("code"), anchor="end", size=11)
    for code in range(-qmax, qmax + 1):
        if room >= 5 or code in named:
            figure.line(at(code * scale), y - 5, at(code * scale), y + 3)
        if room >= 16 and code < qmax:
            figure.line(at((code + 0.5) * scale), y - 4, at((code + 0.5) * scale), y, stroke="quiet", dashed=True)
        if code in named:
            figure.text(at(code * scale), y - 8, shown(code), anchor="middle", size=10)
