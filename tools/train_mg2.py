"""Train MG-2, the course's checkpoint, and write it to mgpt/data.

    pip install -e '.[train]'
    python tools/train_mg2.py                 # a few minutes of CPU; one thread, one seed

PyTorch is needed here alone.  The model is mgpt/model.py written again in PyTorch, with the same parameter names
and layouts, so the arrays are exported as they are, and mgpt itself counts the held-out answers of the card.
Running it again reproduces the accuracy; the bytes may differ with PyTorch's version and the processor.
"""

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from mgpt import policy
from mgpt.checkpoint import cast, save_checkpoint
from mgpt.config import GPTConfig
from mgpt.model import layer_shapes
from mgpt.policy_eval import evaluate

CONFIG = GPTConfig(
    vocab_size=len(policy.VOCABULARY), max_seq_len=256, n_layer=2, n_head=4, n_kv_head=2, head_dim=16,
    n_embd=64, n_inner=128, tie_embeddings=False,
)
TOKENIZER = policy.make_tokenizer()
MAX_ITEMS, MAX_UPDATES, MAX_QUESTIONS = 7, 4, 4
ITEMS_BEFORE_UPDATES = 2  # with so few items there are no updates yet: looking up has to be learned first
BATCH, LEARNING_RATE, WEIGHT_DECAY, NEXT_TOKEN_WEIGHT = 32, 3e-3, 0.05, 0.1
SHORT_SHARE = 0.3  # of the batches after the warm-up
WARM_UP_STEPS = 100  # of the learning rate


def example(bits, n_items, n_updates, short):
    """One training sequence: (ids, the places of the answers' digits)."""
    drawn = policy.draw_policy(bits, "train", n_items, n_updates)
    text = drawn.text.replace(" is ", " ") if short else drawn.text
    ids, places = TOKENIZER.encode(text), []
    left = [item for item, _ in drawn.lines]
    for _ in range(min(n_items, MAX_QUESTIONS)):
        question = policy.Question(drawn, left.pop(int(bits.random_raw() % len(left))))
        ids += TOKENIZER.encode(f"limit for {question.item}" if short else question.text)
        places += range(len(ids), len(ids) + policy.ANSWER_LEN)
        ids += TOKENIZER.encode(f"{question.answer}.")
    return ids, places


def batch(bits, n_items, n_updates, short):
    """ids (B, T), and a mask (B, T) of the answers' digits; all sequences of a batch are equally long."""
    examples = [example(bits, n_items, n_updates, short) for _ in range(BATCH)]
    ids = torch.tensor([ids for ids, _ in examples])
    answers = torch.zeros(ids.shape, dtype=torch.bool)
    for row, (_, places) in enumerate(examples):
        answers[row, places] = True
    return ids, answers


def new_parameters(generator):
    """The dict of arrays of mgpt.model.init_params, as torch parameters."""
    def draw(shape, deviation=None):
        if len(shape) == 1:
            return torch.ones(shape).requires_grad_()
        deviation = shape[0] ** -0.5 if deviation is None else deviation
        return (torch.randn(shape, generator=generator) * deviation).requires_grad_()

    shapes = layer_shapes(CONFIG)
    return {
        "embed": draw((CONFIG.vocab_size, CONFIG.n_embd), deviation=0.5),
        "layers": [{name: draw(shapes[name]) for name in shapes} for _ in range(CONFIG.n_layer)],
        "norm": draw((CONFIG.n_embd,)),
        "head": draw((CONFIG.n_embd, CONFIG.vocab_size)),
    }


def arrays_of(params):
    """Every array, in a fixed order."""
    return [params["embed"], params["norm"], params["head"], *(a for p in params["layers"] for a in p.values())]


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + CONFIG.norm_eps) * weight


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def forward(params, ids):
    """Logits (B, T, V): mgpt.model.forward without a cache."""
    n_batch, n_positions = ids.shape
    width, n_head, n_kv = CONFIG.head_dim, CONFIG.n_head, CONFIG.n_kv_head
    frequencies = CONFIG.rope_theta ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(n_positions)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    x = params["embed"][ids]
    for p in params["layers"]:
        heads = (rms_norm(x, p["attn_norm"]) @ p["qkv"]).view(n_batch, n_positions, -1, width).transpose(1, 2)
        q, k, v = heads.split((n_head, n_kv, n_kv), dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = k.repeat_interleave(CONFIG.group, dim=1), v.repeat_interleave(CONFIG.group, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(n_batch, n_positions, -1) @ p["attn_out"]
        gate, up = (rms_norm(x, p["mlp_norm"]) @ p["gate_up"]).chunk(2, dim=-1)
        x = x + (F.silu(gate) * up) @ p["mlp_out"]
    return rms_norm(x, params["norm"]) @ params["head"]


def train(seed, n_steps, n_short):
    """The trained parameters.  One line of progress every 100 steps."""
    torch.set_num_threads(1)
    bits, generator = np.random.PCG64(seed), torch.Generator().manual_seed(seed)
    params = new_parameters(generator)
    arrays = arrays_of(params)
    groups = [{"params": [a for a in arrays if a.ndim > 1], "weight_decay": WEIGHT_DECAY},
              {"params": [a for a in arrays if a.ndim == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.98))
    most, moving, start = 2, 0.0, time.perf_counter()
    for step in range(n_steps):
        cosine = 0.5 * (1 + math.cos(math.pi * step / n_steps))
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARM_UP_STEPS) * cosine
        short = step < n_short or bits.random_raw() % 100 < 100 * SHORT_SHARE
        # Half of the batches at the largest size so far, the others anywhere below it.
        n_items = most if bits.random_raw() % 2 else 2 + bits.random_raw() % (most - 1)
        n_updates = bits.random_raw() % (min(MAX_UPDATES, most - ITEMS_BEFORE_UPDATES) + 1)
        ids, answers = batch(bits, n_items, n_updates, short)
        logits = forward(params, ids[:, :-1])
        target, wanted = ids[:, 1:], answers[:, 1:]
        losses = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)
        loss = losses[wanted].mean() + NEXT_TOKEN_WEIGHT * losses.mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(arrays, 1.0)
        optimizer.step()
        right = (logits.argmax(-1) == target)[wanted].view(-1, policy.ANSWER_LEN).all(dim=1)
        moving = 0.95 * moving + 0.05 * right.float().mean().item()
        if moving > 0.93 and most < MAX_ITEMS:
            most, moving = most + 1, 0.6  # the moving accuracy has to be earned anew
        if (step + 1) % 100 == 0:
            print(f"step {step + 1:5d}/{n_steps}  {time.perf_counter() - start:5.0f} s  up to {most} items  "
                  f"answers right {moving:.3f}  loss {loss.item():.3f}", file=sys.stderr, flush=True)
    return params


def exported(params):
    """The parameters as float32 NumPy arrays, nested as mgpt has them."""
    layers = [{name: a.detach().numpy() for name, a in p.items()} for p in params["layers"]]
    return {"layers": layers, **{name: params[name].detach().numpy() for name in ("embed", "norm", "head")}}


def figures(params):
    """Held-out answers of the exported parameters, counted by mgpt in float64."""
    result = {}
    for name, hard in (("ordinary", False), ("hard", True)):
        measured = evaluate(cast(params, np.float64), CONFIG, policy.questions("held_out", hard=hard))
        result[name] = {"questions": len(measured.questions), "right": measured.right, "stale": measured.stale}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3500)
    parser.add_argument("--short-steps", type=int, default=900,
                        help="the first steps, in the short format alone; with 0 of them the training was still at "
                             "two items after 2,400 steps")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "mgpt" / "data")
    args = parser.parse_args()
    params = exported(train(args.seed, args.steps, args.short_steps))
    measured = figures(params)
    card = {
        "name": "MG-2",
        "what": "The policy-update model of the course: it answers three-digit limits, the latest of several.",
        "limits": "It knows 40 words and this one task.  It was trained on at most 7 items and 4 updates.",
        "data": "Generated by mgpt.policy.draw_policy: pairs (item, value) of the split 'train' alone.  No text of "
                "anybody, no personal data.",
        "recipe": {
            "script": "tools/train_mg2.py", "seed": args.seed, "steps": args.steps,
            "short_steps": args.short_steps, "batch": BATCH, "optimizer": "AdamW", "learning_rate": LEARNING_RATE,
            "weight_decay": WEIGHT_DECAY, "next_token_weight": NEXT_TOKEN_WEIGHT,
            "torch": torch.__version__.split("+")[0],
        },
        "parameters": sum(array.numel() for array in arrays_of(new_parameters(torch.Generator()))),
        "stored_as": "float32, little-endian, NumPy .npz without pickled objects",
        "held_out": measured,
        "licence": "BSD-3-Clause, as the repository",
    }
    save_checkpoint(args.out, "mg2", params, CONFIG, policy.VOCABULARY, card)
    for name, counts in measured.items():
        print(f"held out, {name}: {counts['right']} of {counts['questions']} right")


if __name__ == "__main__":
    main()
