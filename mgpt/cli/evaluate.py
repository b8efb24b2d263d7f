"""`mgpt evaluate`: what fewer bits, in the weights, in the KV cache or in both, do to MG-2's answers."""

import functools
import sys

import numpy as np

from mgpt.blocks import BlockPool, PagedKVCache
from mgpt.cache import KVCache
from mgpt.checkpoint import cast, load_mg2
from mgpt.cli import print_json, table
from mgpt.generate import generate_cached, generate_full_prefix
from mgpt.model import forward
from mgpt.policy import ANSWER_LEN, questions
from mgpt.policy_eval import evaluate
from mgpt.prefix import PrefixCache
from mgpt.quantize import quantize_params
from mgpt.quantized_cache import QuantizedKVCache, calibrate_scales

HELP = "ask MG-2 the held-out policy questions, in float64 and with fewer bits"
BLOCK_SIZE = 16
NEAR_TIE = 1.0  # logits
N_CLOSEST = 5


def arguments(parser):
    parser.add_argument("--hard", action="store_true",
                        help="192 policies of 7 items and 4 updates, 1,344 questions (not 64 of 4 and 2, 256)")


def run(args):
    rows = []
    for row, n_rows in measure(questions("held_out", hard=args.hard)):
        rows.append(row)
        if sys.stderr.isatty():
            print(f"\r\033[K{len(rows)}/{n_rows} {row['name']}", end="" if len(rows) < n_rows else "\r\033[K",
                  file=sys.stderr, flush=True)
    if args.json:
        print_json({"set": "hard" if args.hard else "ordinary", "near_tie_below": NEAR_TIE, "rows": rows})
        return
    columns = ("name", "right", "questions", "accuracy", "changed", "stale", "smallest_margin",
               "weight_nbytes", "kv_nbytes")
    shown = [{**row, "accuracy": f"{row['accuracy']:.2%}", "smallest_margin": f"{row['smallest_margin']:.3f}"}
             for row in rows]
    print(table([[row[column] for column in columns] for row in shown], columns))
    print(f"\nThe closest decisions of {rows[0]['name']} (margin in logits, answer, question); "
          f"{rows[0]['near_ties']} below {NEAR_TIE:g}:")
    for near in rows[0]["closest"]:
        print(f"{near['margin']:.3f}  {near['answer']}  {near['prompt']}")


def measure(asked):
    """Yields (row, number of rows) for every way of running MG-2 over the questions `asked`, float64 first.

    A row is a dict of plain values: name, accuracy, changed (answers that differ from float64's), nbytes (the
    sum of weight_nbytes, with scales, and kv_nbytes, of one question's positions; None without a cache), right
    and stale answers, accuracy on updated and untouched items, and the questions decided most closely.
    """
    params, config, tokenizer = load_mg2()
    # One prompt of each calibration policy fixes the scales of a head or channel.
    calibration = {q.policy: tokenizer.encode(q.prompt) for q in questions("calibration", hard=True)}
    ways = _ways(params, config, list(calibration.values()))
    prompt = np.array([tokenizer.encode(asked[0].prompt + asked[0].answer)[:-1]])
    reference = None
    for name, used, weight_nbytes, make_cache, how in ways:
        result = evaluate(used, config, asked, **how)
        reference = reference or result
        kv_nbytes = None
        if make_cache is not None:
            cache = make_cache(prompt.size, None)
            forward(used, config, prompt[0], cache)
            kv_nbytes = cache.nbytes
        closest = [{"margin": margin, "prompt": q.prompt, "answer": answer, "right_answer": q.answer}
                   for margin, q, answer in result.closest(N_CLOSEST)]
        yield {
            "name": name, "accuracy": result.accuracy, "changed": result.changed(reference),
            "nbytes": weight_nbytes + (kv_nbytes or 0), "weight_nbytes": weight_nbytes, "kv_nbytes": kv_nbytes,
            "questions": len(asked), "right": result.right, "stale": result.stale,
            "accuracy_updated": result.accuracy_on(updated=True),
            "accuracy_untouched": result.accuracy_on(updated=False),
            "smallest_margin": closest[0]["margin"], "near_ties": result.near_ties(NEAR_TIE),
            "closest": closest,
        }, len(ways)


def _ways(params, config, calibration_ids):
    """(name, params, weight bytes, make_cache(capacity, batch) or None, arguments of evaluate)."""
    full = _nbytes(params)

    def plain(dtype, capacity, batch):
        return KVCache(config, capacity, dtype, batch)

    def quantized(bits, per, scales, capacity, batch):
        return QuantizedKVCache(config, capacity, bits, per, scales=scales, batch=batch)

    def with_cache(name, used, nbytes, make_cache):
        return name, used, nbytes, make_cache, {"make_cache": make_cache}

    def paged(capacity, batch):
        return PagedKVCache(config, BlockPool(-(-capacity // BLOCK_SIZE), BLOCK_SIZE))

    float64, single = functools.partial(plain, np.float64), cast(params, np.float32)
    vector = {bits: functools.partial(quantized, bits, "vector", None) for bits in (8, 4, (4, None), (None, 4))}
    weights = {(bits, per): quantize_params(params, bits, per, include_embeddings=True)
               for bits in (8, 4, 3) for per in ("tensor", "row", 32)}
    ways = [
        with_cache("float64", params, full, float64),
        ("float64, paged", params, full, paged, {"make_cache": paged, "batch": None}),
        ("float64, prefix-shared", params, full, paged, {"answer": _prefix_shared(params, config)}),
        ("float64, full prefix", params, full, None,
         {"answer": lambda ids: generate_full_prefix(params, config, ids, ANSWER_LEN).logits}),
        with_cache("float32", single, _nbytes(single), functools.partial(plain, np.float32)),
    ]
    for (bits, per), (used, nbytes) in weights.items():
        ways.append(with_cache(_weights_name(bits, per), used, nbytes, float64))
    calibration = KVCache(config, len(calibration_ids[0]), batch=len(calibration_ids))
    forward(params, config, np.array(calibration_ids), calibration, last_only=True)
    for bits in (8, 4):
        ways.append(with_cache(f"KV int{bits} per vector", params, full, vector[bits]))
        for per in ("head", "channel"):
            scales = calibrate_scales(config, [calibration], bits, per, batch=len(calibration_ids))
            ways.append(with_cache(f"KV int{bits} per {per}", params, full,
                                   functools.partial(quantized, bits, per, scales)))
    ways.append(with_cache("K int4 per vector, V float64", params, full, vector[4, None]))
    ways.append(with_cache("K float64, V int4 per vector", params, full, vector[None, 4]))
    for bits, per in ((8, "row"), (4, 32)):
        name = f"{_weights_name(bits, per)} + KV int{bits} per vector"
        ways.append(with_cache(name, *weights[bits, per], vector[bits]))
    return ways


def _weights_name(bits, per):
    return f"weights int{bits} per {per if isinstance(per, str) else f'group of {per}'}"


def _prefix_shared(params, config):
    """answer(prompt_ids) for `evaluate`, over one pool: whole blocks of earlier prompts are reused."""
    pool = BlockPool(64, BLOCK_SIZE)
    prefixes = PrefixCache(pool, model_key="mg2")

    def answer(ids):
        cache = PagedKVCache(config, pool, prefix_cache=prefixes)
        block_ids, n_cached = prefixes.match(ids)
        cache.attach(block_ids, n_cached)
        rows = generate_cached(params, config, ids[n_cached:], ANSWER_LEN, cache=cache).logits
        prefixes.insert(ids, cache.block_table)
        cache.release()
        return rows

    return answer


def _nbytes(node):
    if isinstance(node, dict):
        return sum(map(_nbytes, node.values()))
    return sum(map(_nbytes, node)) if isinstance(node, list) else node.nbytes
