"""The quality explorer of chapter 07: one question to MG-2, its three decisions before and after fewer bits.

Fewer bits for the weights are made once a setting and kept; so are the logits of a question.  The first look at a
setting therefore takes longer than the next ones.
"""

import functools

import numpy as np

from mgpt.cache import KVCache
from mgpt.checkpoint import load_mg2
from mgpt.generate import generate_cached
from mgpt.policy import ANSWER_LEN, TRAVEL_PROMPT, questions
from mgpt.quality import decisions
from mgpt.quantize import quantize_params
from mgpt.quantized_cache import QuantizedKVCache
from mgpt.text import N_, _
from mgpt.widgets.control import Choice, Control, Number, View
from mgpt.widgets.margin_line import margin_line

TRAVEL_ANSWER = "750"
WEIGHTS = {"float64": N_("float64")} | {
    f"{bits}-{per}": label for bits, labels in {
        8: (N_("int8, a scale a tensor"), N_("int8, a scale a row"), N_("int8, groups of 32")),
        4: (N_("int4, a scale a tensor"), N_("int4, a scale a row"), N_("int4, groups of 32")),
        3: (N_("int3, a scale a tensor"), N_("int3, a scale a row"), N_("int3, groups of 32")),
    }.items() for per, label in zip(("tensor", "row", "32"), labels)}
KV = {"float64": N_("float64"), "8": N_("int8, a scale a vector"), "4": N_("int4, a scale a vector"),
      "k4": N_("K int4, V float64"), "v4": N_("K float64, V int4")}
KV_BITS = {"8": 8, "4": 4, "k4": (4, None), "v4": (None, 4)}


@functools.lru_cache(maxsize=1)
def model():
    """MG-2 as it is."""
    return load_mg2()


@functools.lru_cache(maxsize=len(WEIGHTS))
def stored(weights):
    """(params, their bytes with scales) of a key of WEIGHTS."""
    params = model()[0]
    if weights == "float64":
        return params, _nbytes(params)
    bits, per = weights.split("-")
    return quantize_params(params, int(bits), int(per) if per.isdigit() else per, include_embeddings=True)


def _nbytes(node):
    if isinstance(node, np.ndarray):
        return node.nbytes
    return sum(map(_nbytes, node.values() if isinstance(node, dict) else node))


@functools.lru_cache(maxsize=1)
def asked():
    """(prompt, right answer, superseded answers): the book's question, then those of the ordinary set."""
    return ((TRAVEL_PROMPT, TRAVEL_ANSWER, ("600",)),
            *((q.prompt, q.answer, q.superseded) for q in questions("held_out")))


@functools.lru_cache(maxsize=512)
def answered(number, weights, kv):
    """(text, rows of logits, bytes of the weights, bytes of the cache) of one question."""
    _params, config, tokenizer = model()
    params, weight_nbytes = stored(weights)
    ids = tokenizer.encode(asked()[number][0])
    capacity = len(ids) + ANSWER_LEN - 1
    cache = KVCache(config, capacity) if kv == "float64" else QuantizedKVCache(config, capacity, KV_BITS[kv])
    generation = generate_cached(params, config, ids, ANSWER_LEN, cache=cache)
    rows = np.stack(generation.logits)
    return tokenizer.decode(generation.tokens), rows, weight_nbytes, cache.nbytes


def view(state):
    """The View of a state: the question's number, and how weights and cache are stored."""
    _prompt, right, superseded = asked()[state["question"]]
    text_before, before, *_sizes = answered(state["question"], "float64", "float64")
    text_after, after, weight_nbytes, kv_nbytes = answered(state["question"], state["weights"], state["kv"])
    decode = model()[2].decode
    compared = decisions(before, after)
    rows = tuple((n, decode([d.token]), round(d.margin, 2), decode([d.token_after]), round(d.lead_after, 2))
                 for n, d in enumerate(compared, 1))
    rows += tuple((n, text_before[n - 1], None, None, None) for n in range(len(compared) + 1, ANSWER_LEN + 1))
    header = (_("digit"), _("float64 chooses"), _("its lead"), _("chosen after"), _("lead of float64's choice after"))
    marks = [(_("digit {n}: {token}").format(n=n, token=decode([d.token])), d.margin, d.lead_after, d.changed)
             for n, d in enumerate(compared, 1)]
    picture = margin_line("figure-quality-explorer", _("Lead of each chosen digit, before and after"), marks)
    return View((picture,), header, rows, sentence(state, text_before, text_after, right, superseded, compared,
                                                   weight_nbytes, kv_nbytes))


def sentence(state, text_before, text_after, right, superseded, compared, weight_nbytes, kv_nbytes):
    """Question, answers and bytes in words; which kind of wrong a wrong answer is."""
    asked_text = asked()[state["question"]][0]
    if text_after == right:
        verdict = _("right")
    elif text_after in superseded:
        verdict = _("wrong, a superseded value")
    else:
        verdict = _("wrong, and no earlier value of this item either")
    smallest = min(compared, key=lambda d: d.lead_after)
    words = _("“{asked}” float64 answers {before}; as stored here the answer is {after}: {verdict}. The smallest lead "
              "is {lead:.2f}. Weights take {weights:,} bytes with their scales, the cache of this request {kv:,}.")
    return words.format(asked=asked_text, before=text_before, after=text_after, verdict=verdict,
                        lead=smallest.lead_after, weights=weight_nbytes, kv=kv_nbytes)


CONTROL = Control(
    "quality_explorer", N_("One question, fewer bits"),
    inputs=(
        Number("question", N_("Question"), 0, 0, 256, unit=N_("0: the book's; 1 to 256: ordinary set")),
        Choice("weights", N_("Weights"), "4-tensor", WEIGHTS),
        Choice("kv", N_("KV cache"), "float64", KV),
    ),
    view=view,
)
