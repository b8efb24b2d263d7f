"""Leads of a choice on a number line, before and after a change: left of zero another token leads."""

from mgpt.text import _
from mgpt.widgets.svg import Figure

ROW, TOP, LEFT, RIGHT = 40, 52, 92, 416


def margin_line(name, title, rows):
    """A Figure.  rows: [(label, margin before, lead after, changed)], a line each, drawn to one scale."""
    ends = [value for _label, before, after, _changed in rows for value in (before, after)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    spread = (high - low) or 1.0
    data = "; ".join(_("{label}: before {before:.2f}, after {after:.2f}").format(
        label=label, before=before, after=after) for label, before, after, _changed in rows)
    figure = Figure(name, 480, TOP + ROW * len(rows) + 22, title, data)

    def x(value):
        return LEFT + (value - low) * (RIGHT - LEFT) / spread

    bottom = TOP + ROW * len(rows) - 14
    figure.line(x(0), TOP - 12, x(0), bottom, dashed=True)
    figure.text(x(0), bottom + 16, _("0: a tie"), anchor="middle" if low < 0 else "start", size=11)
    figure.text(RIGHT, bottom + 16, _("lead, in logits"), anchor="end", size=11)
    figure.text(4, 16, _("hollow: before · solid: after · cross: another token is chosen"), size=12)
    figure.text(472, TOP - 16, _("after"), anchor="end", size=12)
    for index, (label, before, after, changed) in enumerate(rows):
        y = TOP + ROW * index + 4
        figure.text(4, y + 4, label, size=12)
        figure.line(LEFT, y, RIGHT, y, stroke="quiet", width=0.6)
        figure.line(x(before), y, x(after), y, stroke="time", width=4)
        figure.rect(x(before) - 5, y - 5, 10, 10, fill="none", thick=True)
        if changed:
            for rise in (-6, 6):
                figure.line(x(after) - 6, y - rise, x(after) + 6, y + rise, width=2.4)
        else:
            figure.rect(x(after) - 4, y - 4, 8, 8, fill="k", stroke="none")
        figure.text(472, y + 4, f"{after:.2f}".replace("-", "−"), anchor="end", size=12)
    return figure
