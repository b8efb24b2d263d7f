"""Two texts and one other change: which positions of a kept K/V serve again, and where K/V really differ.

What may be kept is what a `PrefixCache` finds; where K/V differ is measured on two caches of MG-2.
"""

import functools
import itertools

import numpy as np

from mgpt.blocks import BlockPool
from mgpt.cache import KVCache
from mgpt.checkpoint import load_mg2
from mgpt.model import forward
from mgpt.policy import TRAVEL_PROMPT_BEFORE
from mgpt.prefix import PrefixCache
from mgpt.text import N_, _
from mgpt.validity import fingerprint
from mgpt.widgets.control import Choice, Control, Text, View
from mgpt.widgets.svg import Figure

PITCH, CELL, PER_ROW, ROW, TOP, X0 = 46, 26, 8, 62, 46, 6
OFFSET, WINDOW = 7, 8
CHANGES = {
    "none": N_("nothing else"), "weights": N_("other weights"), "adapter": N_("an adapter on the weights"),
    "ids": N_("a tokenizer with other ids"), "positions": N_("positions 7 further on"),
    "attention": N_("attention to the last 8 positions only"), "tenant": N_("another customer asks"),
}


def kept_rows(cache, config):
    """(K, V) of each layer, (K, S, D): appending no position gives all that are held."""
    nothing = np.zeros((config.n_kv_head, 0, config.head_dim))
    return [cache.append(layer, nothing, nothing) for layer in range(config.n_layer)]


def differences(params, config, old_ids, new_ids, *, new_params=None, **new_pass):
    """(L, S) largest |difference| of K and V at each position that both texts have.

    new_params, and new_pass (positions or mask): what else is another in the pass over new_ids.
    """
    rows = []
    for ids, weights, options in ((old_ids, params, {}), (new_ids, new_params or params, new_pass)):
        cache = KVCache(config, len(ids))
        forward(weights, config, np.array(ids), cache, last_only=True, **options)
        rows.append(kept_rows(cache, config))
    shared = min(len(old_ids), len(new_ids))
    return np.array([[np.abs(a[:, :shared] - b[:, :shared]).max(axis=(0, 2)) for a, b in zip(old, new)]  # K, V: (S,)
                     for old, new in zip(*rows)]).max(axis=1)


@functools.lru_cache(maxsize=1)
def mg2():
    """MG-2, and the same with every projection of layer 0 nudged, and with an adapter on it."""
    params, config, tokenizer = load_mg2()
    first = params["layers"][0]
    pair = np.random.default_rng(0).normal(0, 0.05, (config.n_embd + first["qkv"].shape[1], 1))
    low_rank = pair[: config.n_embd] @ pair[config.n_embd :].T
    changed = {name: params | {"layers": [first | {"qkv": qkv}, *params["layers"][1:]]}
               for name, qkv in (("weights", first["qkv"] * 1.01), ("adapter", first["qkv"] + low_rank))}
    return params, config, tokenizer, changed


@functools.lru_cache(maxsize=16)
def model_keys(change):
    """(key of the model that made the K/V, key of the model that asks for them)."""
    params, config, tokenizer, changed = mg2()
    words = tokenizer.words
    other = {"ids": {"vocabulary": words[-1:] + words[:-1]}, "positions": {"settings": {"offset": OFFSET}},
             "attention": {"settings": {"window": WINDOW}}, "adapter": {"adapter": "low-rank"}}.get(change, {})
    asking = fingerprint(changed.get(change, params), config, **{"vocabulary": words} | other)
    return fingerprint(params, config, vocabulary=words), asking


@functools.lru_cache(maxsize=64)
def compare(old_text, new_text, change):
    """(old ids, new ids, positions to keep, first position whose K/V differ or None)."""
    params, config, tokenizer, changed = mg2()
    old, new = tokenizer.encode(old_text), tokenizer.encode(new_text)
    if not old or not new:
        raise ValueError(_("both texts need at least one token"))
    if max(len(old), len(new)) > 80:
        raise ValueError(_("at most 80 tokens are shown, not {n}").format(n=max(len(old), len(new))))
    new_pass = {}
    if change == "ids":
        new = [(token + 1) % len(tokenizer.words) for token in new]
    elif change == "positions":
        new_pass = {"positions": np.arange(len(new)) + OFFSET}
    elif change == "attention":
        i = np.arange(len(new))
        new_pass = {"mask": i > i[:, None] - WINDOW}
    elif change in changed:
        new_pass = {"new_params": changed[change]}
    measured = differences(params, config, old, new, **new_pass)
    largest = measured.max(axis=0)
    differ = np.flatnonzero(largest > 1e-9)
    return old, new, found(old, new, *model_keys(change), change == "tenant"), int(differ[0]) if differ.size else None


def found(old, new, made, wanted, other_tenant):
    """Positions that a prefix cache of one-position blocks finds for `new` after `old` was filed in it."""
    pool = BlockPool(len(old), 1)
    caches = {key: PrefixCache(pool, model_key=key) for key in (made, wanted)}
    caches[made].insert(old, [pool.allocate() for _position in old], tenant="first")
    return caches[wanted].match(new, tenant="second" if other_tenant else "first")[1]


def view(state):
    """The View of two texts and a change."""
    old, new, keep, first = compare(state["cached"], state["new"], state["change"])
    pieces = mg2()[2]
    ids = pieces.encode(state["new"])
    why = [(index < keep, reason(old, new, keep, index, state["change"])) for index in range(len(new))]
    rows, start = [], 0
    for (kept, words), run in itertools.groupby(why):  # a row a run of positions with one reason
        end = start + len(list(run))
        places = str(start) if end == start + 1 else f"{start}–{end - 1}"
        rows.append((places, pieces.decode(ids[start:end]), _("kept") if kept else _("computed"), words))
        start = end
    header = (_("positions"), _("tokens"), _("K/V"), _("why"))
    shown = [pieces.decode([token]) for token in ids]
    return View((picture(shown, keep),), header, tuple(rows), sentence(old, new, keep, first, state["change"]))


def reason(old, new, keep, index, change):
    if index < keep:
        return _("all ids up to here are equal")
    if change != "none":
        return _(CHANGES[change])
    if index >= len(old):
        return _("not in the cache")
    if old[index] != new[index]:
        return _("another id")
    if old[:index] == new[:index]:
        return _("the last position gives the logits")
    return _("an id before it differs")


def sentence(old, new, keep, first, change):
    work = _("Of {n} positions, kept: {keep}; computed: {rest}. ").format(
        keep=keep, n=len(new), rest=len(new) - keep)
    if first is None:
        measured = _("Measured, no K/V differ.")
    else:
        measured = _("Measured, K/V differ from position {first} on.").format(first=first)
    if change == "tenant":
        return work + measured + " " + _("K/V hold no permission: each customer has a prefix cache apart from the others.")
    if change != "none":
        return work + measured + " " + _("The fingerprint differs, and that alone decides.")
    return work + measured


def picture(words, keep):
    """The new text: K over V where they are kept, a thick outline where the pass computes them."""
    lines = -(-len(words) // PER_ROW)
    figure = Figure("figure-reusable-prefix", 2 * X0 + PER_ROW * PITCH, TOP + lines * ROW, _("What the new text can reuse"),
                    _("{keep} of {n} positions kept, the others computed").format(keep=keep, n=len(words)))
    figure.text(X0, 18, _("filled: K over V kept; thick outline: computed again"))
    for index, word in enumerate(words):
        x, y = X0 + index % PER_ROW * PITCH + 10, TOP + index // PER_ROW * ROW
        figure.text(x + CELL / 2, y - 4, word, anchor="middle", size=9 if len(word) > 6 else 12)
        if index < keep:
            figure.kv_cell(x, y, CELL)
        else:
            figure.rect(x, y, CELL, CELL, thick=True)
        figure.text(x + CELL / 2, y + CELL + 12, index, anchor="middle", size=10)
    return figure


CONTROL = Control(
    "reusable_prefix", N_("What may be kept"),
    inputs=(
        Text("cached", N_("Text in the cache"), TRAVEL_PROMPT_BEFORE),
        Text("new", N_("New text"), TRAVEL_PROMPT_BEFORE.replace("600", "750")),
        Choice("change", N_("What else changed"), "none", CHANGES),
    ),
    view=view,
)
