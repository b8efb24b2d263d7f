"""`mgpt generate "prompt"`: MG-2, or a Llama-family folder, continues a text greedily."""

import re
from pathlib import Path

from mgpt.checkpoint import load_hf, load_mg2
from mgpt.cli import print_json, read_json
from mgpt.generate import generate_cached, generate_full_prefix

HELP = "continue a prompt, with a KV cache or over the full prefix"


def arguments(parser):
    parser.add_argument("prompt", help='words that MG-2 knows, as "limit for hotel is 600. limit for hotel? '
                                       'answer:"; with --model, token ids, as "1 15 27"')
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--cached", action="store_true", help="one prefill, then one pass a token (the default)")
    how.add_argument("--full-prefix", action="store_true", help="the whole text through the model for each token")
    parser.add_argument("--max-new-tokens", type=int, default=16, metavar="N", help="at most (default: 16)")
    parser.add_argument("--model", metavar="FOLDER", help="a Llama-family model: config.json and safetensors; "
                                                          "it takes and gives token ids")


def run(args):
    if args.model is None:
        params, config, tokenizer = load_mg2()
        ids, stop_ids, text_of = tokenizer.encode(args.prompt), tokenizer.encode("."), tokenizer.decode
    else:
        params, config = load_hf(args.model)
        ids, stop_ids, text_of = _ids(args.prompt), _stop_ids(args.model), _id_text
    if not ids:
        raise ValueError("prompt must hold at least one token, got an empty one")
    generate = generate_full_prefix if args.full_prefix else generate_cached
    made = generate(params, config, ids, args.max_new_tokens, stop_ids=stop_ids)
    method, text = "full-prefix" if args.full_prefix else "cached", text_of(made.tokens)
    if args.json:
        print_json({
            "text": text, "tokens": made.tokens, "method": method, "prompt_ids": ids,
            "positions_processed": made.positions_processed, "cache_len": made.cache_len,
        })
        return
    print(text)
    cache = "no cache" if made.cache_len is None else f"{made.cache_len} positions in the cache"
    print(f"[{method}: {len(ids)} prompt positions, {len(made.tokens)} outputs, "
          f"{made.positions_processed} positions processed, {cache}]")


def _ids(prompt):
    words = re.split(r"[\s,]+", prompt.strip(" \t\n,[]"))
    if not all(re.fullmatch(r"[0-9]{1,9}", word) for word in words):
        raise ValueError(f'prompt must be token ids for --model, as "1 15 27", got {prompt!r}')
    return [int(word) for word in words]


def _id_text(ids):
    return " ".join(map(str, ids))


def _stop_ids(folder):
    """eos_token_id of the folder's config.json: absent, one, or several."""
    stop = read_json(Path(folder) / "config.json").get("eos_token_id")
    return () if stop is None else tuple(stop) if isinstance(stop, list) else (stop,)
