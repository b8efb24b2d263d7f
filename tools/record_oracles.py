"""Record what transformers' Llama computes in float64, as small fixtures for tests without PyTorch.

    .venv-oracles/bin/python tools/record_oracles.py          (environment: tools/oracles.txt)

Weights are not stored: `draw_tensors` makes them from a seed.  A fixture carries the tools' versions and
the SHA-256 of this file, so a change here without a new recording fails a test.  PyTorch is imported only
where it is used: tests and tools/bench.py import the other functions without it.
"""

import hashlib
import json
import math
import platform
from pathlib import Path

import numpy as np

from mgpt.config import GPTConfig
from mgpt.hf import tensor_shapes

OUT = Path(__file__).parents[1] / "tests" / "data" / "oracles"
N_NEW = 16  # greedy tokens of a fixture


def llama(n_layer, n_head, n_kv_head, hidden, inner, vocab, **more):
    """A config.json of the Llama family; `more` overrides or adds keys."""
    return {
        "model_type": "llama", "vocab_size": vocab, "max_position_embeddings": 64,
        "num_hidden_layers": n_layer, "num_attention_heads": n_head, "num_key_value_heads": n_kv_head,
        "hidden_size": hidden, "intermediate_size": inner, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False, "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    } | more


def theta(value):
    return {"rope_type": "default", "rope_theta": value}


# name -> (config.json, prompt length)
SHAPES = {
    "gqa": (llama(2, 4, 2, 32, 48, 37), 12),
    "gqa_3_groups_tied": (llama(2, 6, 3, 24, 40, 33, tie_word_embeddings=True), 9),
    "mqa_tied": (llama(2, 4, 1, 32, 48, 31, tie_word_embeddings=True), 12),
    "mha_small_eps": (llama(2, 3, 3, 24, 32, 37, rms_norm_eps=1e-6, rope_parameters=theta(500_000.0)), 12),
    "head_wider_than_its_share": (llama(2, 4, 2, 32, 48, 37, head_dim=24), 12),
    "head_narrower_than_its_share": (
        llama(3, 8, 2, 64, 32, 41, head_dim=2, rope_parameters=theta(100.0)), 12),
    "one_layer_one_head": (llama(1, 1, 1, 8, 8, 11), 1),
    "long": (llama(2, 4, 2, 16, 24, 37, max_position_embeddings=512, rope_parameters=theta(1e6)), 480),
}


def raw(seed, n):
    """n 64-bit numbers: the raw stream of a bit generator, which NumPy never changes (distributions it may)."""
    return np.random.PCG64(seed).random_raw(n)


def draw_tensors(config, seed):
    """Public tensor name -> float64 array, uniform, scaled to keep activations near 1 (norms 0.5 .. 1.5)."""
    shapes = tensor_shapes(config)
    n_values = sum(math.prod(shape) for shape in shapes.values())
    unit = (raw(seed, n_values) >> 11) * 2.0**-53  # in [0, 1)
    tensors, start = {}, 0
    for name, shape in shapes.items():
        values = unit[start : start + math.prod(shape)].reshape(shape)
        start += values.size
        width = 12.0**0.5 * (1.0 if "embed" in name else shape[-1] ** -0.5)  # for that deviation
        tensors[name] = values + 0.5 if len(shape) == 1 else (values - 0.5) * width
    return tensors


def draw_ids(config, seed, n):
    """n token ids, of another stream than the weights."""
    return [int(i) for i in raw([seed, 1], n) % config.vocab_size]


def torch_llama(settings, tensors, exact=True):
    """transformers' LlamaForCausalLM in float64 with these weights.

    Stock, it still computes its norm and its rotary table in float32; `exact` replaces both by float64 ones.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**settings, attn_implementation="sdpa")).to(torch.float64).eval()
    state = {name: torch.from_numpy(x) for name, x in tensors.items()}
    if settings["tie_word_embeddings"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    model.generation_config.eos_token_id = None
    if exact:
        make_float64(model)
    return model


def make_float64(model):
    """Replace the norm and the rotary table of a Llama model by float64 ones; the formulas are its own."""
    import torch

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def rotary(self, x, position_ids):
        base, dim = self.config.rope_parameters["rope_theta"], self.config.head_dim
        inverse = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angles = position_ids[..., None].double() * inverse
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    for module in model.modules():
        if type(module).__name__ == "LlamaRMSNorm":
            module.forward = norm.__get__(module)
        elif type(module).__name__ == "LlamaRotaryEmbedding":
            module.forward = rotary.__get__(module)


def torch_logits(model, ids):
    """Logits (T, V) of one pass over ids."""
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def torch_greedy(model, ids, n_new):
    """n_new greedy tokens, with transformers' own cache, and the last logits (V,) they were chosen from.

    `model.generate` chooses the same tokens but hands logits out in float32, so the loop is written out.
    """
    import torch

    tokens, past, step = [], None, torch.tensor([ids])
    with torch.no_grad():
        for _ in range(n_new):
            out = model(step, past_key_values=past, use_cache=True, logits_to_keep=1)
            past, logits = out.past_key_values, out.logits[0, -1]
            tokens.append(int(logits.argmax()))
            step = torch.tensor([tokens[-1:]])
    return tokens, logits.numpy()


def script_hash():
    return hashlib.sha256(Path(__file__).read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def record(name, seed):
    """One fixture as a dict: logits of the first, middle and last prompt position, and greedy tokens."""
    import torch
    import transformers

    settings, n_prompt = SHAPES[name]
    config = GPTConfig.from_hf(settings)
    ids = draw_ids(config, seed, n_prompt)
    model = torch_llama(settings, draw_tensors(config, seed))
    logits = torch_logits(model, ids)
    positions = sorted({0, n_prompt // 2, n_prompt - 1})
    tokens, last_logits = torch_greedy(model, ids, N_NEW)
    return {
        "recorded_by": "tools/record_oracles.py", "script_sha256": script_hash(),
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
                     "numpy": np.__version__, "python": platform.python_version()},
        "config": settings, "seed": seed, "ids": ids, "positions": positions,
        "logits": [logits[p].tolist() for p in positions],
        "tokens": tokens, "last_logits": last_logits.tolist(),
    }


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(SHAPES, start=1):
        path = OUT / f"llama_{name}.json"
        path.write_text(json.dumps(record(name, seed)) + "\n", encoding="utf-8", newline="\n")
        print(f"{path.name}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
