"""The work of a generator without a cache: a row a pass, a cell a position, hatched where it was computed before."""

from mgpt.text import _
from mgpt.validate import integer
from mgpt.widgets.svg import Figure

CELL, X0, TOP = 22, 78, 34


def full_prefix_work(prompt_len, n_outputs):
    """A Figure of n_outputs passes over a growing prefix of prompt_len + output positions."""
    integer("prompt_len", prompt_len, at_least=1)
    integer("n_outputs", n_outputs, at_least=1)
    lengths = [prompt_len + n for n in range(n_outputs)]
    data = "; ".join(_("pass {n}: {length} positions, {again} of them again").format(
        n=n + 1, length=length, again=lengths[n - 1] if n else 0) for n, length in enumerate(lengths))
    width = X0 + (lengths[-1] + 1) * (CELL + 1) + 60
    figure = Figure("figure-full-prefix", width, TOP + 30 * n_outputs + 20, _("Positions processed without a cache"), data)
    figure.text(X0 - 12, 16, _("pass"), anchor="end")
    figure.text(X0, 16, _("positions through the layers"))
    figure.text(width - 4, 16, _("sum"), anchor="end")
    for row, length in enumerate(lengths):
        y = TOP + 30 * row
        figure.text(X0 - 12, y + 16, row + 1, anchor="end")
        for index in range(length):
            x = X0 + index * (CELL + 1) + (5 if index >= prompt_len else 0)
            again = row > 0 and index < lengths[row - 1]
            figure.rect(x, y, CELL, CELL, fill="hatch" if again else "none", stroke="currentColor", thick=not again)
        figure.text(width - 4, y + 16, sum(lengths[: row + 1]), anchor="end")
    for index in range(lengths[-1]):
        x = X0 + index * (CELL + 1) + (5 if index >= prompt_len else 0)
        figure.text(x + CELL / 2, TOP + 30 * n_outputs + 6, index + 1, anchor="middle", size=11)
    return figure
