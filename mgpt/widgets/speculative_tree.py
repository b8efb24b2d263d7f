"""The accept/reject tree of chapter 13: every path of a round, with its exact probability, and what comes out.

q is the draft's distribution, p the target's, the same at every place of the round.  Ids are named a, b, c, d.
"""

import functools
import re
from fractions import Fraction

from mgpt.speculative import accept_probability, acceptance_rate, exact_distribution, expected_tokens, residual
from mgpt.text import N_, _
from mgpt.widgets.control import Choice, Control, Table, Text, View
from mgpt.widgets.svg import Figure

NAMES, MOST_DENOMINATOR = "abcd", 1000
LONGEST = 400  # a longer denominator is shown as a decimal
ROW, TOP, WIDTH = 46, 46, 392
ROOT, GUESS, BRANCH, JOIN, OUT, RIGHT = 8, 34, 104, 214, 238, 390  # columns, from left to right


def distribution(label, text):
    """The numbers in a line of text, as Fractions.  ValueError says what is allowed."""
    words = [word for word in re.split(r"[\s,;]+", text) if word]
    try:
        numbers = [Fraction(word) for word in words]
    except (ValueError, ZeroDivisionError):
        numbers = []
    small = all(number.denominator <= MOST_DENOMINATOR for number in numbers)
    if not (2 <= len(numbers) <= len(NAMES) and min(numbers) >= 0 and small and sum(numbers) == 1):
        raise ValueError(_("{label}: 2 to {most} numbers from 0 to 1 that sum to 1 are needed, like 3/4, 1/8, 1/8, not "
                           "{text}").format(label=label, most=len(NAMES), text=text))
    return numbers


@functools.lru_cache(maxsize=512)
def exact(number):
    """A float as the fraction it stands for, where a short one does; else with four decimals."""
    fraction = Fraction(number).limit_denominator(LONGEST)
    return str(fraction) if abs(fraction - Fraction(number)) < 1e-12 else f"{number:.4f}"


def paths(q, p):
    """For each id: (guessed, kept if guessed or None, guessed and kept, guessed and not, comes out as a replacement)."""
    q, p = [float(x) for x in q], [float(x) for x in p]
    rejected, replacement = 1 - acceptance_rate(q, p), residual(q, p)
    rows = []
    for guessed, target, share in zip(q, p, replacement):
        keep = accept_probability(guessed, target) if guessed else None
        kept = guessed * keep if guessed else 0.0
        rows.append((guessed, keep, kept, guessed - kept, rejected * float(share)))
    return rows


def view(state):
    """The View of a state: q, p and the number of guesses in a round."""
    q, p = distribution(_("Draft q"), state["q"]), distribution(_("Target p"), state["p"])
    if len(q) != len(p):
        raise ValueError(_("q and p must have as many numbers: {q} and {p}").format(q=len(q), p=len(p)))
    gamma, names = int(state["guesses"]), NAMES[: len(q)]
    floats = [float(x) for x in q], [float(x) for x in p]
    comes_out, alpha = exact_distribution(*floats), acceptance_rate(*floats)
    rows = tuple((name, exact(guessed), exact(target), None if keep is None else exact(keep), exact(kept), exact(again),
                  exact(out)) for name, target, (guessed, keep, kept, _no, again), out
                 in zip(names, floats[1], paths(q, p), comes_out))
    header = (_("id"), _("guessed, q"), _("target, p"), _("kept if guessed"), _("guessed and kept"),
              _("as a replacement"), _("comes out"))
    chances = [alpha**n * (1 - alpha) for n in range(gamma)] + [alpha**gamma]
    tokens = Table(_("Tokens of a round"), (_("tokens"), _("probability")),
                   tuple((n, exact(chance)) for n, chance in enumerate(chances, 1)))
    listed = ", ".join(f"{name} {exact(float(out))}" for name, out in zip(names, comes_out))
    sentence = _("The first token comes out as {out}: the outcome distribution equals p. A guess is kept with probability "
                 "{alpha}, and a round gives {mean} tokens on average.").format(
        out=listed, alpha=exact(alpha), mean=exact(expected_tokens(alpha, gamma)))
    note = _("The same q and p stand at every place of the round; a real model has other rows at each.")
    return View((tree(names, q, p, gamma),), header, rows, sentence, more=(tokens,), note=note)


def tree(names, q, p, gamma, name="figure-speculative-tree"):
    """All paths of a round: guess, kept (solid) or not (dashed), replacement; last, the token when all are kept."""
    alpha, lines = acceptance_rate([float(x) for x in q], [float(x) for x in p]), paths(q, p)
    step = TOP + ROW * len(names)
    data = "; ".join(_("{id}: guessed {q}, kept {kept}, replaced {again}").format(
        id=id_, q=exact(line[0]), kept=exact(line[2]), again=exact(line[4])) for id_, line in zip(names, lines))
    figure = Figure(name, WIDTH, gamma * step + (58 if alpha else 6),
                    _("Accept or replace: every path of a round of {n} guesses").format(n=gamma), data)
    for place in range(gamma):
        if alpha or place == 0:
            _place(figure, names, lines, place, place * step, alpha**place, alpha)
    if alpha:
        _bonus(figure, names, p, gamma * step, alpha**gamma, gamma)
    return figure


def _place(figure, names, lines, place, y0, reached, alpha):
    """One guess: its branches, with probabilities from the start of the round."""
    figure.text(ROOT - 6, y0 + 15, _("guess {n}, reached: {chance}").format(n=place + 1, chance=exact(reached)), bold=True)
    figure.text(OUT, y0 + 15, _("token {n} comes out").format(n=place + 1), bold=True)
    middle = y0 + TOP + ROW * len(names) / 2 - 6
    figure.rect(ROOT - 4, middle - 4, 8, 8, fill="currentColor")
    if 1 - alpha > 1e-12:
        figure.text(JOIN + 6, y0 + 34, _("✗ {chance} in all").format(chance=exact(reached * (1 - alpha))), anchor="end", size=11)
    for i, (id_, (guessed, keep, kept, lost, again)) in enumerate(zip(names, lines)):
        y = y0 + TOP + ROW * i + 12
        if guessed:
            figure.line(ROOT + 4, middle, GUESS - 4, y)
            figure.text(GUESS, y + 4, f"{id_} {exact(reached * guessed)}", size=12)
        if kept:
            figure.line(GUESS + 58, y, BRANCH, y - 8)
            figure.text(BRANCH + 4, y - 5, f"✓ × {exact(keep)} = {exact(reached * kept)}", size=11)
            figure.line(BRANCH + 98, y - 9, OUT - 4, y - 5)
        if lost > 1e-12:
            figure.line(GUESS + 58, y, BRANCH, y + 12, dashed=True)
            figure.text(BRANCH + 4, y + 16, f"✗ × {exact(1 - keep)} = {exact(reached * lost)}", size=11)
            figure.line(BRANCH + 98, y + 12, JOIN, middle, dashed=True)
        if again > 1e-12:
            figure.line(JOIN, middle, OUT - 4, y + 3, dashed=True)
        _sum(figure, id_, reached * kept, reached * again, y)


def _sum(figure, id_, kept, again, y):
    """What comes out of one id: its kept share, solid, and its share as a replacement, dashed."""
    parts = " + ".join(exact(part) for part in (kept, again) if part > 1e-12)
    figure.text(OUT, y, f"{id_} {parts} = {exact(kept + again)}" if "+" in parts else f"{id_} {parts or 0}", size=11)
    width = RIGHT - OUT
    figure.rect(OUT, y + 6, width * kept, 10, fill="quiet", stroke="none")
    if again > 1e-12:
        figure.rect(OUT + width * kept, y + 6, width * again, 10, dashed=True)


def _bonus(figure, names, p, y0, reached, gamma):
    """The token that follows when every guess is kept: one draw from p."""
    words = _("guess kept: {chance}, and one more token") if gamma == 1 else _("both kept: {chance}, and one more token")
    figure.text(ROOT - 6, y0 + 15, words.format(chance=exact(reached)), bold=True)
    figure.line(ROOT + 4, y0 + 38, GUESS - 4, y0 + 38)
    for i, (id_, share) in enumerate(zip(names, p)):
        figure.text(GUESS + 86 * i, y0 + 42, f"{id_} {exact(reached * float(share))}", size=12)


CONTROL = Control(
    "speculative_tree", N_("Accept, reject, replace"),
    inputs=(
        Text("q", N_("Draft q"), "3/4, 1/8, 1/8", limit=60),
        Text("p", N_("Target p"), "1/4, 1/4, 1/2", limit=60),
        Choice("guesses", N_("Guesses a round"), "1", {"1": "1", "2": "2"}),
    ),
    view=view,
)
