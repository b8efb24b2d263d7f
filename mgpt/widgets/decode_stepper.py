"""The decode stepper of chapter 02: pass by pass, what goes in, what the cache holds, what may be chosen next."""

import functools

import numpy as np

from mgpt.config import GPTConfig
from mgpt.generate import generate_cached
from mgpt.model import init_params
from mgpt.text import N_, _
from mgpt.widgets.control import Control, Number, View
from mgpt.widgets.svg import Figure

CELL, X0, TOP, PER_ROW = 18, 8, 44, 20


@functools.lru_cache(maxsize=64)
def passes(prompt_len, n_outputs):
    """(new positions, positions held after it, output it lets us choose) of each pass, read off a real cache."""
    config = GPTConfig(vocab_size=2, max_seq_len=80, n_layer=1, n_head=1, n_kv_head=1, head_dim=2, n_embd=2, n_inner=2)
    generation = generate_cached(init_params(config, np.random.default_rng(0)), config, [0] * prompt_len, n_outputs)
    result, before = [], 0
    for output, _token in enumerate(generation, 1):
        result.append((generation.positions_processed - before, generation.cache_len, output))
        before = generation.positions_processed
    return tuple(result)


def view(state):
    """The View of a state: P, N, batch, and how many passes are done."""
    prompt_len, n_outputs, batch = state["prompt"], state["outputs"], state["batch"]
    done = min(state["passes"], n_outputs)
    rows = tuple((_("prefill") if n == 0 else _("decode"), new, held, held * batch, output)
                 for n, (new, held, output) in enumerate(passes(prompt_len, n_outputs)[:done]))
    header = (_("pass"), _("input tokens of a sequence"), _("cached positions of a sequence"),
              _("cached positions of the batch"), _("output chosen"))
    return View((picture(prompt_len, rows),), header, rows, sentence(rows))


def sentence(rows):
    if not rows:
        return _("Nothing has been processed: the cache is empty, and no output can be chosen.")
    _kind, new, held, together, output = rows[-1]
    return _("Output {output} has been chosen; the cache holds {held} positions of each sequence ({together} in the batch), "
             "not {more}: no pass has processed it yet. The last pass took {new} input tokens of each sequence.").format(
        output=output, held=held, together=together, more=held + 1, new=new)


def picture(prompt_len, rows):
    """The cache after the last pass: K over V of each position, the chosen output dashed."""
    held, new = (rows[-1][2], rows[-1][1]) if rows else (0, 0)
    cells = max(prompt_len, held + 1)
    lines = -(-cells // PER_ROW)
    figure = Figure("figure-decode-stepper", 2 * X0 + PER_ROW * (CELL + 1) + 6, TOP + lines * 44, _("The cache, pass by pass"),
                    _("{held} positions held, {new} of them from the last pass").format(held=held, new=new))
    figure.text(X0, 18, _("K over V of each position; thick: computed by the last pass"))
    for index in range(cells):
        x = X0 + (index % PER_ROW) * (CELL + 1) + (5 if index >= prompt_len and index // PER_ROW == prompt_len // PER_ROW else 0)
        y = TOP + index // PER_ROW * 44 - 14
        if index < held:
            figure.kv_cell(x, y, CELL, new=index >= held - new)
        else:
            figure.rect(x, y, CELL, CELL, dashed=True, stroke="currentColor" if rows else "quiet")
            if rows:
                figure.text(x + CELL / 2, y + 13, rows[-1][4], anchor="middle", size=11)
        figure.text(x + CELL / 2, y + CELL + 12, index + 1, anchor="middle", size=10)
    return figure


CONTROL = Control(
    "decode_stepper", N_("Decode, pass by pass"),
    inputs=(
        Number("prompt", N_("Prompt"), 8, 1, 40, unit=N_("tokens")),
        Number("outputs", N_("Outputs wanted"), 4, 1, 40, unit=N_("tokens")),
        Number("batch", N_("Batch"), 1, 1, 64, unit=N_("sequences")),
    ),
    view=view,
    actions={"step": (N_("Next pass"), lambda state: state | {"passes": min(state["passes"] + 1, state["outputs"])})},
    hidden={"passes": 1},
    play="step",
)
