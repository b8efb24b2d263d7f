"""Figure 14.1: which cached values of one head share a scale: a vector, a group of it, a channel, or all."""

import numpy as np

from mgpt.text import _
from mgpt.widgets.svg import Figure

CELL, GAP, LEFT, TOP = 9, 18, 26, 40


def scale_sharing(name, rows, panels):
    """A Figure.  rows (S, D): a head's K or V; panels: [(words, positions, channels)], the size of a scale's share.

    Positions run to the right, channels downwards; the area of a square is the size of its value.  A last frame may
    be short.
    """
    n_positions, n_channels = rows.shape
    sizes = np.sqrt(np.abs(rows) / np.abs(rows).max())
    width, height = n_positions * CELL, n_channels * CELL
    peaks = np.abs(rows).max(axis=0)
    figure = Figure(name, LEFT + len(panels) * (width + GAP) - GAP + 2, TOP + height + 24,
                    _("Which values of a head share a scale"),
                    _("{n} positions of {d} channels, largest values by channel {peaks}; {panels}").format(
                        n=n_positions, d=n_channels, peaks=" ".join(f"{peak:.1f}" for peak in peaks),
                        panels=", ".join(f"{words}: {p} x {c}" for words, p, c in panels)))
    figure.text(0, TOP + 9, "0", size=11)
    figure.text(0, TOP + height, n_channels - 1, size=11)
    for index, (words, positions, channels) in enumerate(panels):
        x0 = LEFT + index * (width + GAP)
        figure.text(x0, TOP - 8, words, size=12)
        for position, channel in np.ndindex(rows.shape):
            side = (CELL - 1.5) * sizes[position, channel]
            figure.rect(x0 + (position + 0.5) * CELL - side / 2, TOP + (channel + 0.5) * CELL - side / 2, side, side,
                        fill="k", stroke="none")
        for left in range(0, n_positions, positions):
            for top in range(0, n_channels, channels):
                figure.rect(x0 + left * CELL, TOP + top * CELL, min(positions, n_positions - left) * CELL,
                            min(channels, n_channels - top) * CELL)
    figure.text(LEFT, TOP + height + 18, _("position →"), size=11)
    figure.text(0, 14, _("channel ↓   one frame, one scale:"), size=12)
    return figure
