"""The work explorer of chapter 01: what each pass without a cache processes, and how much of it again."""

import functools

import numpy as np

from mgpt.config import GPTConfig
from mgpt.generate import generate_cached, generate_full_prefix
from mgpt.model import init_params
from mgpt.text import N_, _
from mgpt.widgets.control import Control, Number, View
from mgpt.widgets.svg import Figure

LEFT, RIGHT, TOP, MOST, MOST_LABELLED = 44, 404, 30, 40, 16


@functools.lru_cache(maxsize=64)
def generators(prompt_len):
    """Both generators, with and without a cache, and the list of what their passes so far have counted."""
    config = GPTConfig(vocab_size=2, max_seq_len=80, n_layer=1, n_head=1, n_kv_head=1, head_dim=2, n_embd=2, n_inner=2)
    params, prompt = init_params(config, np.random.default_rng(0)), [0] * prompt_len
    return generate_full_prefix(params, config, prompt, MOST), generate_cached(params, config, prompt, MOST), []


def passes(prompt_len, n_outputs):
    """(positions of this pass, sum so far, that sum with a cache) of each pass, off the real generators."""
    slow, fast, counted = generators(prompt_len)
    while len(counted) < n_outputs:  # the next pass of each, and no more
        before = slow.positions_processed if counted else 0
        next(slow), next(fast)
        counted.append((slow.positions_processed - before, slow.positions_processed, fast.positions_processed))
    return tuple(counted[:n_outputs])


def view(state):
    """The View of a state: P and N."""
    found = passes(state["prompt"], state["outputs"])
    again = [0, *(length for length, _so_far, _once in found[:-1])]  # all that the pass before ran
    rows = tuple((n, length, repeated, so_far, once)
                 for n, ((length, so_far, once), repeated) in enumerate(zip(found, again), 1))
    header = (_("pass"), _("positions"), _("again"), _("sum"), _("sum if once"))
    n, length, repeated, so_far, once = rows[-1]
    sentence = _("Pass {n} runs {length} positions, {repeated} of them again. All passes together run {so_far}; with "
                 "each position computed once it would be {once}, so {ratio:.1f} times fewer.").format(
        n=n, length=length, repeated=repeated, so_far=so_far, once=once, ratio=so_far / once)
    return View((picture(rows),), header, rows, sentence)


def picture(rows):
    """A bar a pass: hatched what was computed before, thick what is new."""
    step = 22 if len(rows) <= MOST_LABELLED else 11
    unit = (RIGHT - LEFT) / rows[-1][1]
    data = "; ".join(_("pass {n}: {length} positions, {again} of them again").format(n=n, length=length, again=again)
                     for n, length, again, _so_far, _once in rows)
    height = TOP + step * len(rows) + 8
    figure = Figure("figure-prefix-work", 480, height, _("Positions of each pass, without a cache"), data)
    figure.text(LEFT - 8, 16, _("pass"), anchor="end")
    figure.text(LEFT, 16, _("hatched: again; thick: new"))
    figure.text(474, 16, _("sum"), anchor="end")
    for index, (n, length, again, so_far, _once) in enumerate(rows):
        y = TOP + step * index
        figure.rect(LEFT, y, unit * again, step - 4, fill="hatch")
        figure.rect(LEFT + unit * again, y, unit * (length - again), step - 4, thick=True)
        if len(rows) <= MOST_LABELLED or index in (0, len(rows) - 1):
            figure.text(LEFT - 8, y + step - 8 + (step < 20) * 5, n, anchor="end", size=12)
            figure.text(474, y + step - 8 + (step < 20) * 5, so_far, anchor="end", size=12)
    return figure


CONTROL = Control(
    "prefix_work", N_("The work of the growing prefix"),
    inputs=(
        Number("prompt", N_("Prompt"), 8, 1, 40, unit=N_("tokens")),
        Number("outputs", N_("Outputs"), 4, 1, MOST, unit=N_("tokens")),
    ),
    view=view,
)
