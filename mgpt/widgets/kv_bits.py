"""The control of chapter 14: how a cache is stored, against its bytes and its error at every position.

A prompt's logits are computed once a format and kept; the number of positions says how many of them are looked at.
"""

import functools
import math

import numpy as np

from mgpt.cache import KVCache
from mgpt.model import forward
from mgpt.policy import TRAVEL_PROMPT, questions
from mgpt.quantized_cache import QuantizedKVCache, calibrate_scales
from mgpt.text import N_, _
from mgpt.widgets.control import Choice, Control, Number, View
from mgpt.widgets.error_chart import error_by_position
from mgpt.widgets.quality_explorer import model
from mgpt.widgets.svg import Figure

FORMATS = {  # key -> (label, short mark, bits of K and V, what shares a scale)
    "f16": (N_("float16"), "f16", None, None),
    "8-vector": (N_("int8 per vector"), "8", 8, "vector"),
    "8-channel": (N_("int8 per channel"), "8c", 8, "channel"),
    "8-head": (N_("int8 per head"), "8h", 8, "head"),
    "84": (N_("K int8, V int4 per vector"), "8/4", (8, 4), "vector"),
    "48": (N_("K int4, V int8 per vector"), "4/8", (4, 8), "vector"),
    "4-vector": (N_("int4 per vector"), "4", 4, "vector"),
    "4-channel": (N_("int4 per channel"), "4c", 4, "channel"),
    "4-head": (N_("int4 per head"), "4h", 4, "head"),
}
MARKED_LEFT = ("84", "8-head", "4-head")  # their marks would hide others
LONGEST = 102


@functools.lru_cache(maxsize=1)
def prompts():
    """Token ids: the book's question, then the first question of each of the first 24 hard policies."""
    hard = {q.policy: q.prompt for q in reversed(questions("held_out", hard=True))}
    return [np.array(model()[2].encode(text)) for text in [TRAVEL_PROMPT, *reversed(hard.values())][:25]]


@functools.lru_cache(maxsize=None)
def fixed_scales(bits, per):
    """Scales from the calibration split, None where each vector brings its own."""
    if per == "vector":
        return None
    params, config, tokenizer = model()
    texts = {q.policy: q.prompt for q in questions("calibration", hard=True)}
    ids = np.array([tokenizer.encode(text) for text in list(texts.values())[:48]])
    seen = KVCache(config, ids.shape[1], batch=len(ids))
    forward(params, config, ids, seen, last_only=True)
    return calibrate_scales(config, [seen], bits, per, batch=len(ids))


def make_cache(key, capacity):
    """An empty cache of a format of FORMATS, or a float64 one for None."""
    config = model()[1]
    if key is None:
        return KVCache(config, capacity)
    _label, _mark, bits, per = FORMATS[key]
    if bits is None:
        return KVCache(config, capacity, np.float16)
    return QuantizedKVCache(config, capacity, bits, per, scales=fixed_scales(bits, per))


@functools.lru_cache(maxsize=300)
def logits_of(number, key):
    """Logits (S, V) of a prompt, over a cache of this format."""
    params, config, _tokenizer = model()
    ids = prompts()[number]
    return forward(params, config, ids, make_cache(key, len(ids)))


def measured(number, key, n):
    """(errors, a list: the largest error of a logit at each of the first n positions; choices that changed)."""
    exact, stored = (logits_of(number, one)[:n] for one in (None, key))
    changed = int((exact.argmax(axis=-1) != stored.argmax(axis=-1)).sum())
    return np.abs(stored - exact).max(axis=-1).tolist(), changed


@functools.lru_cache(maxsize=None)
def nbytes_of(key, n):
    """Bytes of n positions with all scales, those fixed beforehand too."""
    cache = make_cache(key, LONGEST)
    cache.advance(n)
    return cache.nbytes


def view(state):
    """The View of a state: prompt, format, number of positions."""
    number, chosen = state["prompt"], state["format"]
    n = min(state["positions"], len(prompts()[number]))
    rows, points = [], []
    for key, (label, mark, _bits, _per) in FORMATS.items():
        errors, changed = measured(number, key, n)
        nbytes, worst = nbytes_of(key, n), max(errors)
        rows.append((_(label), f"{nbytes:,}", f"{nbytes / n:.0f}", f"{sum(errors) / n:.3f}", f"{worst:.3f}",
                     errors.index(worst), changed))
        points.append((mark, nbytes / n, worst, key == chosen, key in MARKED_LEFT))
    errors, changed = measured(number, chosen, n)
    header = (_("cache"), _("bytes"), _("bytes a position"), _("mean error"), _("largest error"), _("at position"),
              _("changed choices"))
    words = _("{label}: {nbytes:,} bytes for {n} positions, scales included, where float64 takes {plain:,}. The error of "
              "a position's logits is {mean:.3f} in the mean and {worst:.3f} at position {at}; {changed} of {n} greedy "
              "choices change.")
    worst = max(errors)
    sentence = words.format(label=_(FORMATS[chosen][0]), nbytes=nbytes_of(chosen, n), n=n, plain=nbytes_of(None, n),
                            mean=sum(errors) / n, worst=worst, at=errors.index(worst), changed=changed)
    pictures = (bytes_and_error("figure-kv-bits", points), error_by_position("figure-kv-bits-positions", errors, n))
    return View(pictures, header, tuple(rows), sentence,
                note=_("Error: the largest |difference| of a logit from float64's, same tokens. Marks: c per channel, "
                       "h per head, whose scales come from the calibration split and are counted; 8/4 K int8, V int4."))


def bytes_and_error(name, points):
    """A Figure.  points: [(mark, bytes a position, largest error, chosen, mark to the left)]; logarithmic axes."""
    left, right, top, base = 48, 460, 30, 180
    low, high = 10.0 ** math.floor(math.log10(min(max(e, 1e-6) for _m, _b, e, *_rest in points))), 100.0
    least, most = min(b for _m, b, *_rest in points) * 0.85, max(b for _m, b, *_rest in points) * 1.15
    figure = Figure(name, 480, base + 40, _("Bytes a position against the largest error"), "; ".join(
        f"{mark}: {b:.0f}, {error:.3f}" for mark, b, error, *_rest in points))

    def x(b):
        return left + (right - left) * math.log(b / least) / math.log(most / least)

    def y(error):
        return top + (base - top) * math.log(high / max(error, 1e-6)) / math.log(high / low)

    figure.text(4, 14, _("largest error of a logit"), size=12)
    for power in range(round(math.log10(low)), 3):
        figure.line(left, y(10.0**power), right, y(10.0**power), stroke="quiet", dashed=True, width=0.5)
        figure.text(left - 5, y(10.0**power) + 4, f"{10.0**power:g}", anchor="end", size=11)
    for b in (32, 64, 128, 256, 512, 1024):
        if least <= b <= most:
            figure.line(x(b), base, x(b), base + 4)
            figure.text(x(b), base + 17, b, anchor="middle", size=11)
    figure.line(left, base, right, base)
    for mark, b, error, chosen, to_left in points:
        size = 11 if chosen else 7
        figure.rect(x(b) - size / 2, y(error) - size / 2, size, size, fill="k" if chosen else "none", thick=chosen)
        figure.text(x(b) + (-9 if to_left else 9), y(error) + 4, mark, size=11, bold=chosen,
                    anchor="end" if to_left else "start")
    figure.text(right, base + 34, _("bytes a position"), anchor="end", size=11)
    return figure


CONTROL = Control(
    "kv_bits", N_("Bits of the cache, bytes and error"),
    inputs=(
        Choice("format", N_("Cache"), "4-vector", {key: label for key, (label, *_rest) in FORMATS.items()}),
        Number("prompt", N_("Prompt"), 1, 0, 24, unit=N_("0: the book's; 1 to 24: hard set")),
        Number("positions", N_("Positions"), LONGEST, 1, LONGEST),
    ),
    view=view,
)
