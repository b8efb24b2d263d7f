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
    prompt = np.array(tokenizer.encode(asked[0].prompt + asked[0].answer)[:-1])
    reference = None
    for name, way in ways.items():
        used, weight_nbytes, make_cache, how = way()
        result = evaluate(used, config, asked, **how)
        reference = reference or result
        kv_nbytes = None
        if make_cache is not None:
            cache = make_cache(prompt.size, None)
            forward(used, config, prompt, cache)
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
    """Name -> a function without arguments, which makes what `measure` needs when it is the row's turn:
    (params, their bytes, make_cache(capacity, batch) or None, arguments of evaluate)."""
    ways, full = {}, _nbytes(params)

    def plain(dtype):
        return lambda capacity, batch: KVCache(config, capacity, dtype, batch)

    def paged(capacity, batch):
        return PagedKVCache(config, BlockPool(-(-capacity // BLOCK_SIZE), BLOCK_SIZE))

    @functools.cache
    def weights(bits, per):
        return quantize_params(params, bits, per, include_embeddings=True)

    @functools.cache
    def filled():
        cache = KVCache(config, len(calibration_ids[0]), batch=len(calibration_ids))
        forward(params, config, np.array(calibration_ids), cache, last_only=True)
        return cache

    def quantized(bits, per):
        scales = None
        if per != "vector":
            scales = calibrate_scales(config, [filled()], bits, per, batch=len(calibration_ids))
        return lambda capacity, batch: QuantizedKVCache(config, capacity, bits, per, scales=scales, batch=batch)

    def add(name, make_used, make_cache):
        def way():
            (used, nbytes), cache = make_used(), make_cache()
            return used, nbytes, cache, {"make_cache": cache}

        ways[name] = way

    def float64():
        return params, full

    add("float64", float64, lambda: plain(np.float64))
    ways["float64, paged"] = lambda: (params, full, paged, {"make_cache": paged, "batch": None})
    ways["float64, prefix-shared"] = lambda: (params, full, paged, {"answer": _prefix_shared(params, config)})
    ways["float64, full prefix"] = lambda: (
        params, full, None, {"answer": lambda ids: generate_full_prefix(params, config, ids, ANSWER_LEN).logits})
    add("float32", lambda: (cast(params, np.float32), full // 2), lambda: plain(np.float32))
    for bits in (8, 4, 3):
        for per in ("tensor", "row", 32):
            add(_weights_name(bits, per), functools.partial(weights, bits, per), lambda: plain(np.float64))
    for bits in (8, 4):
        for per in ("vector", "head", "channel"):
            add(f"KV int{bits} per {per}", float64, functools.partial(quantized, bits, per))
    add("K int4 per vector, V float64", float64, lambda: quantized((4, None), "vector"))
    add("K float64, V int4 per vector", float64, lambda: quantized((None, 4), "vector"))
    for bits, per in ((8, "row"), (4, 32)):
        add(f"{_weights_name(bits, per)} + KV int{bits} per vector", functools.partial(weights, bits, per),
            functools.partial(quantized, bits, "vector"))
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
