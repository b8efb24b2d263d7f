"""The sampler of chapter 01: one row of logits, what temperature, top-k and top-p leave of it, greedy's choice "
"and one draw."""

import math
import re

import numpy as np

from mgpt.sampling import draw, greedy, probabilities
from mgpt.text import N_, _
from mgpt.widgets.control import Control, Number, Text, View
from mgpt.widgets.svg import Figure

MOST_IDS, LARGEST = 12, 20
LEFT, RIGHT, TOP, ROW = 84, 376, 32, 24  # a probability of 1 reaches from LEFT to RIGHT


def logits_of(text):
    """The logits in a line of text.  ValueError says what is allowed."""
    words = [word for word in re.split(r"[\s,;]+", text) if word]
    try:
        logits = [float(word) for word in words]
    except ValueError:
        logits = []
    if not 1 <= len(logits) <= MOST_IDS or not all(math.isfinite(x) and abs(x) <= LARGEST for x in logits):
        raise ValueError(_("Logits: 1 to {most} numbers from −{largest} to {largest} are needed, not {text}").format(
            most=MOST_IDS, largest=LARGEST, text=text))
    return np.array(logits)


def view(state):
    """The View of a state: logits, temperature, top-k, top-p and the seed of one draw."""
    logits, seed = logits_of(state["logits"]), state["seed"]
    before = probabilities(logits, state["temperature"])
    after = probabilities(logits, state["temperature"], state["top_k"], state["top_p"])
    kept, best = np.flatnonzero(after), greedy(logits)
    u, drawn = float(np.random.default_rng(seed).random()), draw(after, np.random.default_rng(seed))
    rows = tuple((i, float(logits[i]), f"{before[i]:.3f}", _("yes") if after[i] else _("no"), f"{after[i]:.3f}")
                 for i in range(len(logits)))
    sentence = _("Greedy takes id {best}. {n_kept} of {n_all} ids are kept; before that they had {share:.3f} together. "
                 "Seed {seed} gives u = {u:.3f}, and the draw takes id {drawn}.").format(
        best=best, n_kept=len(kept), n_all=len(logits), share=before[kept].sum(), seed=seed, u=u, drawn=drawn)
    header = (_("id"), _("logit"), _("at this temperature"), _("kept"), _("probability"))
    return View((picture(logits, before, after, best, u, drawn),), header, rows, sentence)


def picture(logits, before, after, best, u, drawn):
    """A bar an id, solid where it is kept and dashed where it was before; below, the line on which u falls."""
    data = "; ".join(_("id {i}: {before:.3f}, then {after:.3f}").format(i=i, before=before[i], after=after[i])
                     for i in range(len(logits)))
    bottom = TOP + ROW * len(logits)
    figure = Figure("figure-sampler", 480, bottom + 84, _("Probabilities of the next id"), data)
    figure.text(24, 18, _("id"), anchor="end")
    figure.text(LEFT - 10, 18, _("logit"), anchor="end")
    figure.text(LEFT, 18, _("dashed: all ids; filled: what is kept"))
    for i, logit in enumerate(logits):
        y, width = TOP + ROW * i, (RIGHT - LEFT) * after[i]
        figure.text(24, y + 14, i, anchor="end", bold=i == drawn)
        figure.text(LEFT - 10, y + 14, f"{logit:g}", anchor="end")
        if after[i]:
            figure.rect(LEFT, y, width, 18, fill="quiet", stroke="none")
        figure.rect(LEFT, y, (RIGHT - LEFT) * before[i], 18, dashed=True)
        words = f"{after[i]:.3f}" if after[i] else "–"
        figure.text(LEFT + (RIGHT - LEFT) * max(before[i], after[i]) + 8, y + 14,
                    _("{number} greedy").format(number=words) if i == best else words)
    _line(figure, after, u, drawn, bottom + 34)
    return figure


def _line(figure, after, u, drawn, y):
    """The kept ids' pieces side by side from 0 to 1, and the mark of u."""
    start = 0.0
    for i in np.flatnonzero(after):
        width = (RIGHT - LEFT) * after[i]
        figure.rect(LEFT + (RIGHT - LEFT) * start, y, width, 18, fill="quiet" if i == drawn else "none")
        if width >= 16 and i != drawn:
            figure.text(LEFT + (RIGHT - LEFT) * start + width / 2, y + 14, i, anchor="middle", size=11)
        start += after[i]
    x = LEFT + (RIGHT - LEFT) * u
    figure.line(x, y - 8, x, y + 26, width=2)
    figure.text(x, y - 12, _("u = {u:.3f}, id {drawn}").format(u=u, drawn=drawn), anchor="middle", bold=True)
    for value in (0, 1):
        figure.text(LEFT + (RIGHT - LEFT) * value, y + 38, value, anchor="middle", size=11)


CONTROL = Control(
    "sampler", N_("From logits to an id"),
    inputs=(
        Text("logits", N_("Logits"), "2, 1, 0.5, 0.5, -1", limit=80),
        Number("temperature", N_("Temperature"), 1.0, 0.1, 5.0, step=0.1),
        Number("top_k", N_("Top-k"), MOST_IDS, 1, MOST_IDS, unit=N_("ids")),
        Number("top_p", N_("Top-p"), 0.9, 0.05, 1.0, step=0.05),
        Number("seed", N_("Seed of the draw"), 0, 0, 999),
    ),
    view=view,
)
