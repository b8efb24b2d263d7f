"""The closest decision of each question, before and after quantization: where small changes turn answers."""

from mgpt.text import _
from mgpt.widgets.svg import Figure

PANEL, HEIGHT, LEFT, TOP, GAP = 200, 210, 36, 42, 36


def margins(before, panels):
    """A Figure.  before: an Evaluation; panels: {name: Evaluation of the same questions after a change}, two at most.

    A dot is a question: across, its margin before; upwards, its margin after.  A cross below zero is a question whose
    answer is another one, by the margin of that other answer.
    """
    if not 1 <= len(panels) <= 2:
        raise ValueError(f"panels must be one or two, got {len(panels)}")
    top = max(max(each.margins) for each in (before, *panels.values()))
    crossed = [margin for each in panels.values() for margin, moved in zip(each.margins, _moved(before, each)) if moved]
    low = max(crossed, default=0)
    top, low = 2 * (int(top) // 2 + 1), 2 * (int(low) // 2 + 1)
    data = "; ".join(_("{name}: {changed} of {n} answers changed, smallest margin {low:.3f}").format(
        name=name, changed=each.changed(before), n=len(each.answers), low=min(each.margins))
        for name, each in panels.items())
    figure = Figure("figure-7-2", LEFT + len(panels) * (PANEL + GAP), TOP + HEIGHT + 40,
                    _("Margins before and after quantization"),
                    _("float64: smallest margin {low:.3f}; {data}").format(low=min(before.margins), data=data))
    figure.text(4, 14, _("margin after (below 0: another answer)"))
    for index, (name, each) in enumerate(panels.items()):
        _panel(figure, LEFT + index * (PANEL + GAP), name, before, each, top, low)
    right = LEFT + len(panels) * (PANEL + GAP) - GAP
    figure.text(right, TOP + HEIGHT + 34, _("margin before, in logits"), anchor="end")
    return figure


def _moved(before, after):
    return [old != new for old, new in zip(before.answers, after.answers)]


def _panel(figure, x0, name, before, after, top, low):
    def x(margin):
        return x0 + margin * PANEL / top

    def y(margin):
        return TOP + (top - margin) * HEIGHT / (top + low)

    figure.text(x0, TOP - 10, name, bold=True)
    figure.line(x0, TOP, x0, TOP + HEIGHT)
    figure.line(x0, y(0), x0 + PANEL, y(0), dashed=True)
    figure.line(x(0), y(0), x(top), y(top), stroke="quiet", dashed=True)
    for tick in range(-low // 4 * 4 + 4 * (low % 4 > 0), top + 1, 4):
        figure.text(x0 - 5, y(tick) + 4, f"{tick}".replace("-", "−"), anchor="end", size=11)
    for tick in range(0, top + 1, 4):
        figure.text(x(tick), TOP + HEIGHT + 16, tick, anchor="middle", size=11)
    for old, new, moved in zip(before.margins, after.margins, _moved(before, after)):
        if moved:
            for rise in (-4, 4):
                figure.line(x(old) - 4, y(-new) - rise, x(old) + 4, y(-new) + rise, stroke="time", width=2)
        else:
            figure.rect(x(old) - 1.5, y(new) - 1.5, 3, 3, fill="k", stroke="none")
