"""The KV calculator of chapter 04: bytes of a token, of requests, and how many requests a budget holds."""

import functools
import json
from dataclasses import replace
from pathlib import Path

from mgpt.memory import KVShape, format_bytes
from mgpt.text import N_, _
from mgpt.widgets.control import Choice, Control, Number, View
from mgpt.widgets.kv_growth import kv_growth

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
PRESETS = {  # one model in three versions: 32 layers, 32 query heads, width 128
    "mha": (N_("32 layers, MHA: 32 KV heads"), 32),
    "gqa": (N_("32 layers, GQA: 8 KV heads"), 8),
    "mqa": (N_("32 layers, MQA: 1 KV head"), 1),
}
DTYPES = {"f16": N_("2 bytes (f16, bf16)"), "f32": N_("4 bytes (f32)"), "fp8": N_("1 byte (fp8)"),
          "int8": N_("int8 and scales"), "int4": N_("int4 and scales")}
NAMES = tuple(sorted(path.stem for path in CONFIGS.glob("*.json")))
GIB = 2**30


@functools.lru_cache(maxsize=64)
def public_config(name):
    """The keys of a public model's config.json that the count of KV bytes reads, and its "_source"."""
    return json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))


def model_name(name):
    """Publisher and model, as in "meta-llama/Llama-3.1-8B"."""
    return public_config(name)["_source"].split(":")[0]


@functools.lru_cache(maxsize=64)
def shape_of(name):
    """The KVShape of a preset or of a stored public config."""
    if name in PRESETS:
        return KVShape.from_hf({"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096,
                                "num_key_value_heads": PRESETS[name][1]})
    return KVShape.from_hf(public_config(name))


def versions(shape):
    """[(name, KVShape)]: the shape, and the same model without windows and as MHA where that is another count."""
    endless = KVShape(tuple(layer and replace(layer, window=None) for layer in shape.layers))
    others = [(_("without windows"), endless)]
    if (mha := shape.as_mha()) is not None:
        others.append((_("as MHA"), mha))
    return [(_("as it is"), shape), *((name, other) for name, other in others if other.layers != shape.layers)]


def view(state):
    """The View of a state: model, tokens, requests, dtype, budget."""
    shape, tokens, requests, dtype = shape_of(state["model"]), state["tokens"], state["requests"], state["dtype"]
    budget = int(state["budget"] * GIB)
    rows, curves = [], []
    for name, version in versions(shape):
        each = version.bytes(tokens, dtype)
        sizes = map(format_bytes, (version.bytes_per_token(dtype), each, each * requests))
        rows.append((name, *sizes, budget // each))
        curves.append((name, functools.partial(version.bytes, dtype=dtype)))
    header = (_("version"), _("the first token"), _("a request of {n} tokens").format(n=tokens), _("all requests"),
              _("requests in the budget"))
    figure = kv_growth("figure-kv-calculator", curves, tokens, limit=(budget, _("budget")))
    return View((figure,), header, tuple(rows), sentence(state, shape, rows[0]))


def sentence(state, shape, row):
    _name, token, each, together, fit = row
    return _("{structure}: {token} for the first token, {each} a request, {together} for {n} requests; "
             "{budget:g} GiB hold {fit} such requests, and nothing else.").format(
        structure=shape.structure, token=token, each=each, together=together, n=state["requests"],
        budget=state["budget"], fit=fit)


CONTROL = Control(
    "kv_calculator", N_("Bytes of a KV cache"),
    inputs=(
        Choice("model", N_("Model"), "gqa", {name: words for name, (words, _heads) in PRESETS.items()}
               | {name: model_name(name).split("/")[1] for name in NAMES}),  # short: the list fits a phone
        Number("tokens", N_("Length of a request"), 4096, 1, 1_048_576, unit=N_("tokens")),
        Number("requests", N_("Requests"), 4, 1, 10_000),
        Choice("dtype", N_("Stored value"), "f16", DTYPES),
        Number("budget", N_("Budget for KV"), 24.0, 0.1, 10_000, step=0.1, unit="GiB"),
    ),
    view=view,
)
