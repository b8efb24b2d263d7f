"""Figures of chapter 13: two distributions and what they share, acceptance along a text, a rewind, and a speed-up."""

from mgpt.speculative import acceptance_rate, expected_speedup, residual
from mgpt.text import _
from mgpt.widgets.svg import Figure


def overlap(name, q, p, ids="abcdefgh"):
    """Draft q and target p side by side: solid what both have, dashed what is rejected, thick what replaces it."""
    q, p = [float(x) for x in q], [float(x) for x in p]
    ids, height, left, step = ids[: len(q)], 150, 40, 130
    data = "; ".join(_("{id}: q {q:g}, p {p:g}, both {both:g}").format(id=i, q=a, p=b, both=min(a, b))
                     for i, a, b in zip(ids, q, p))
    figure = Figure(name, left + step * len(q), height + 62, _("What draft and target share"), data)
    figure.line(left - 20, height + 20, left + step * len(q) - 20, height + 20)
    for i, (id_, a, b) in enumerate(zip(ids, q, p)):
        for k, (sign, value) in enumerate((("q", a), ("p", b))):
            x, both = left + step * i + 46 * k, height * min(a, b)
            figure.rect(x, height + 20 - both, 36, both, fill="quiet", stroke="none")
            if value > min(a, b):
                more = height * value - both
                figure.rect(x, height + 20 - both - more, 36, more, dashed=sign == "q", thick=sign == "p")
            figure.text(x + 18, height + 12 - height * value, f"{value:g}", anchor="middle", size=11)
            figure.text(x + 18, height + 36, sign, anchor="middle", size=11)
        figure.text(left + step * i + 41, height + 54, id_, anchor="middle", bold=True)
    return figure


def acceptance_line(name, tokens, series):
    """One row a draft; for each token of a text a bar of height Σ min(p, q).  series: [(label, rates)]."""
    left, tall, step = 4, 46, 470 / len(tokens)
    data = "; ".join(f"{label}: " + " ".join(f"{rate:.2f}" for rate in rates) for label, rates in series)
    figure = Figure(name, 480, (tall + 34) * len(series) + 20, _("Acceptance along a text"), data)
    for row, (label, rates) in enumerate(series):
        base = (tall + 34) * row + tall + 22
        figure.text(left, base - tall - 8, label)
        figure.line(left, base - tall, left + step * len(rates), base - tall, dashed=True)
        figure.line(left, base, left + step * len(rates), base)
        for i, rate in enumerate(rates):
            figure.rect(left + step * i + 1, base - tall * rate, step - 2, tall * rate, fill="quiet", stroke="none")
    for i, token in enumerate(tokens):
        figure.text(left + step * (i + 0.5), (tall + 34) * len(series) + 6, token, anchor="middle", size=11)
    return figure


def rewind_map(name, block_size, stages, first=0):
    """KV blocks of one cache at some moments, from entry `first` of its table on; physical ids above.

    stages: [(label, positions held, block table, first position computed now or None)].
    """
    cell, row, left = 18, 66, 110
    data = "; ".join(_("{label}: {n} positions in blocks {blocks}").format(
        label=label, n=n, blocks=" ".join(map(str, table))) for label, n, table, _new in stages)
    most = max(len(table) for _label, _n, table, _new in stages) - first
    width = left + most * (block_size * cell + 14) + 4
    figure = Figure(name, width, row * len(stages) + 8, _("A rewind over a block edge"), data)
    for i, (label, n, table, new) in enumerate(stages):
        y = row * i + 26
        figure.text(2, y + 13, label)
        for b, block in enumerate(table[first:]):
            x = left + b * (block_size * cell + 14)
            figure.text(x, y - 8, block, size=11)
            figure.rect(x - 3, y - 4, block_size * cell + 6, cell + 8)
            for s in range(block_size):
                position = (first + b) * block_size + s
                if position < n:
                    figure.kv_cell(x + s * cell + 1, y, cell - 2, new=new is not None and position >= new)
                    figure.text(x + s * cell + cell / 2, y + cell + 17, position, anchor="middle", size=10)
                else:
                    figure.text(x + s * cell + cell / 2, y + 12, "·", anchor="middle")
    return figure


def speedup_chart(name, cost, rates, most=10):
    """Speed-up against guesses a round, a line for each acceptance rate, for a draft pass of `cost` target passes."""
    left, top, wide, tall = 36, 14, 360, 190
    curves = {rate: [1.0] + [expected_speedup(rate, gamma, cost) for gamma in range(1, most + 1)] for rate in rates}
    high = max(max(curve) for curve in curves.values())
    data = "; ".join(f"α {rate:g}: " + " ".join(f"{value:.2f}" for value in curve) for rate, curve in curves.items())
    figure = Figure(name, 480, top + tall + 44, _("Speed-up against guesses a round"), data)

    def at(gamma, value):
        return left + wide * gamma / most, top + tall * (1 - value / high)

    figure.line(left, top, left, top + tall)
    figure.line(left, top + tall, left + wide, top + tall)
    one = at(0, 1)[1]
    figure.line(left, one, left + wide, one, dashed=True)
    figure.text(left + wide + 6, one + 4, _("break even"), size=11)
    for value in range(int(high) + 1):
        figure.text(left - 8, at(0, value)[1] + 4, value, anchor="end", size=11)
    for gamma in range(0, most + 1, 2):
        figure.text(at(gamma, 0)[0], top + tall + 16, gamma, anchor="middle", size=11)
    figure.text(left + wide / 2, top + tall + 36, _("guesses a round, γ"), anchor="middle", size=11)
    for rate, curve in curves.items():
        points = [at(gamma, value) for gamma, value in enumerate(curve)]
        for (x1, y1), (x2, y2) in zip(points, points[1:]):
            figure.line(x1, y1, x2, y2, stroke="time", width=1.6)
        best = max(range(most + 1), key=lambda gamma: curve[gamma])
        x, y = points[best]
        figure.rect(x - 4, y - 4, 8, 8, fill="time", stroke="none")
        figure.text(points[-1][0] + 6, points[-1][1] + 4, f"α = {rate:g}", size=11)
    return figure
