"""`mgpt kv CONFIG.json`: what a model's KV cache takes, and how many requests a budget holds."""

import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction

from mgpt.cli import print_json, read_json
from mgpt.memory import DTYPES, KVShape, format_bytes
from mgpt.validate import integer

HELP = "bytes of the KV cache of a public config.json, and how many requests fit in a budget"
UNITS = {"": 1, "b": 1, **{f"{p}b": 1000**i for i, p in enumerate("kmgt", start=1)},
         **{f"{p}ib": 1024**i for i, p in enumerate("kmgt", start=1)}}


def arguments(parser):
    # Numbers are checked in `run`, so that a bad one is refused in one line like all other bad input.
    parser.add_argument("config", metavar="CONFIG.json", help="config.json of a public decoder")
    parser.add_argument("--tokens", metavar="T", help="positions cached in each request")
    parser.add_argument("--requests", metavar="N", default="1", help="requests of T tokens (1)")
    parser.add_argument("--dtype", default="f16", help=f"type of the cached values (f16): {' '.join(DTYPES)}")
    parser.add_argument("--tp", metavar="N", default="1", help="tensor-parallel ranks; bytes of one (1)")
    parser.add_argument("--budget", metavar="SIZE", help="memory for KV (a rank's): 24GiB, 24GB or bytes")


def whole(name, text, at_least):
    """The int that an option's text spells, else ValueError."""
    return integer(name, int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else text, at_least)


def parse_size(text):
    """Bytes of "24GiB" (2^30), "24GB" (10^9), "512MiB", "1.5GiB" or "1000"; a part of a byte is dropped."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]*)", text.strip().lower())
    if not match or match[2] not in UNITS:
        raise ValueError(f"--budget must be a size like 24GiB, 512MiB, 24GB or plain bytes, got {text!r}")
    return int(Fraction(match[1]) * UNITS[match[2]])


def measure(shape, tokens, requests, dtype, tp, budget):
    """What the command prints, as a dict of plain values; sizes in bytes, None where there is no answer."""
    mha, unbounded = shape.as_mha(), KVShape(tuple(x and replace(x, window=None) for x in shape.layers))
    each = None if tokens is None else shape.bytes(tokens, dtype, tp)
    return {
        "layers": len(shape.layers), "structure": shape.structure,
        "layer_groups": [{"layers": n, "query_heads": x.n_head, "kv_heads": x.n_kv_head, "k_dim": x.k_dim,
                          "v_dim": x.v_dim, "window": x.window} if x else {"layers": n, "kv_heads": None}
                         for x, n in Counter(shape.layers).items()],
        "dtype": dtype, "tp": tp, "tokens": tokens, "requests": requests,
        "bytes_per_token": shape.bytes_per_token(dtype, tp),
        "bytes_per_request": each, "bytes_total": None if each is None else each * requests,
        "bytes_per_request_without_windows": None if each is None else unbounded.bytes(tokens, dtype, tp),
        "mha_bytes_per_token": mha and mha.bytes_per_token(dtype, tp),
        "mha_bytes_per_request": mha and (None if each is None else mha.bytes(tokens, dtype, tp)),
        "budget": budget, "requests_in_budget": budget // each if budget is not None and each else None,
    }


def group_text(group):
    """One kind of layer in words."""
    if group["kv_heads"] is None:
        return f"{group['layers']} without KV that grows"
    held = "every position" if group["window"] is None else f"the last {group['window']:,} positions"
    queries = "" if group["query_heads"] is None else f" for {group['query_heads']} query heads"
    if not group["v_dim"]:
        return f"{group['layers']} hold {held}: one latent of {group['k_dim']} values{queries}"
    width = f"{group['k_dim']}" + (f" (K), {group['v_dim']} (V)" if group["v_dim"] != group["k_dim"] else "")
    return f"{group['layers']} hold {held}: {group['kv_heads']} KV heads{queries}, width {width}"


def lines(m):
    """The dict of `measure` as (label, text) rows."""
    where = f", on each of {m['tp']} ranks" if m["tp"] > 1 else ""
    yield "layers", f"{m['layers']}, {m['structure']}"
    for group in m["layer_groups"]:
        yield "", group_text(group)
    token, total = m["bytes_per_token"], m["bytes_total"]
    yield "token", f"{format_bytes(token)} a token ({token:,} bytes, {m['dtype']}{where})"
    if m["tokens"] is not None:
        yield "request", f"{format_bytes(m['bytes_per_request'])} a request of {m['tokens']:,} tokens"
        yield "total", f"{format_bytes(total)} for {m['requests']:,} requests ({total:,} bytes)"
        without = m["bytes_per_request_without_windows"] * m["requests"]
        if without != total:
            yield "windows", f"without them {format_bytes(without)}, {without / total:.2f} times as much"
    if m["mha_bytes_per_token"] is None:
        yield "as MHA", "not known: the config does not give the widths of a head"
    elif m["mha_bytes_per_token"] != token:
        times = m["mha_bytes_per_token"] / token
        yield "as MHA", f"{format_bytes(m['mha_bytes_per_token'])} a token, {times:.2f} times as much"
    if m["budget"] is not None:
        fits = "any number of" if m["requests_in_budget"] is None else f"{m['requests_in_budget']:,}"
        yield "budget", f"{format_bytes(m['budget'])}{where}: {fits} requests of {m['tokens']:,} tokens fit"


def run(args):
    """Prints the table or the JSON; ValueError for bad options and configs that cannot be counted."""
    tokens = None if args.tokens is None else whole("--tokens", args.tokens, at_least=0)
    requests, tp = whole("--requests", args.requests, at_least=1), whole("--tp", args.tp, at_least=1)
    budget = None if args.budget is None else parse_size(args.budget)
    if tokens is None and (budget is not None or args.requests != "1"):
        raise ValueError("--tokens is needed to count requests, or how many of them fit in --budget")
    measured = measure(KVShape.from_hf(read_json(args.config)), tokens, requests, args.dtype, tp, budget)
    if args.json:
        print_json({"config": args.config, **measured})
    else:
        print("\n".join(f"{label:8} {text}".rstrip() for label, text in lines(measured)))
