"""Unequal requests in one pass: a rectangle with padding, or one packed row.

Shapes: B requests, W slots of a prefill, T slots of a pass, S slots kept and new, V vocabulary.
A slot is a place in the arrays: real where it holds a token of its request, padding elsewhere.
"""

import numpy as np

from mgpt.cache import KVCache
from mgpt.model import forward
from mgpt.sampling import greedy
from mgpt.validate import one_of


def pad(prompts, side, filler=0):
    """ids (B, W), with `filler` beside the prompts, and real (B, W)."""
    one_of("side", side, ("left", "right"))
    width = max(len(prompt) for prompt in prompts)
    ids = np.full((len(prompts), width), filler)
    real = np.zeros(ids.shape, bool)
    for row, prompt in enumerate(prompts):
        start = width - len(prompt) if side == "left" else 0
        own = slice(start, start + len(prompt))
        ids[row, own], real[row, own] = prompt, True
    return ids, real


def positions_of(real):
    """Positions (B, S); those of padding mean nothing."""
    return np.maximum(np.cumsum(real, axis=-1) - 1, 0)


def last_real(real):
    """The slot (B,) of each row's last real token."""
    return real.shape[-1] - 1 - np.argmax(real[..., ::-1], axis=-1)


def looks(real, n_new):
    """Where each of the last n_new slots of each row looks, (B, T, S)."""
    n_slots = real.shape[-1]
    new = np.arange(n_slots - n_new, n_slots)
    causal = np.arange(n_slots) <= new[:, None]  # (T, S)
    return causal & real[:, None, :] & real[:, new, None]


def pack(prompts):
    """ids (S,) of all prompts in one row, and owner (S,), whose slot each is."""
    lengths = [len(prompt) for prompt in prompts]
    return np.concatenate(prompts), np.repeat(np.arange(len(prompts)), lengths)


def looks_packed(owner, n_new):
    """Where each of the last n_new slots of a packed row looks, (T, S)."""
    n_slots = len(owner)
    new = np.arange(n_slots - n_new, n_slots)
    causal = np.arange(n_slots) <= new[:, None]  # (T, S)
    return causal & (owner == owner[new, None])


def generate_padded(params, config, prompts, limits, side, *,
                    filler=0, stop_ids=(), samplers=None):
    """Tokens and their rows of logits, a list of each for each request.

    limits: outputs wanted of each.  samplers: one a request, else greedy.
    """
    samplers = samplers or [greedy] * len(prompts)
    ids, real = pad(prompts, side, filler)
    n_slots = ids.shape[1] + max(limits) - 1
    cache = KVCache(config, n_slots, batch=len(prompts))
    logits = forward(params, config, ids, cache,
                     positions=positions_of(real), mask=real)
    logits = logits[np.arange(len(prompts)), last_real(real)]  # (B, V)
    tokens, rows = [[] for _ in prompts], [[] for _ in prompts]
    running = np.ones(len(prompts), bool)
    while True:
        for i in np.flatnonzero(running):
            rows[i].append(logits[i])
            tokens[i].append(samplers[i](logits[i]))
            running[i] = (len(tokens[i]) < limits[i]
                          and tokens[i][-1] not in stop_ids)
        if not running.any():
            return tokens, rows
        new = np.array([row[-1:] for row in tokens])  # (B, 1)
        # A finished row has a slot all the same: padding, from now on.
        real = np.hstack([real, running[:, None]])
        logits = forward(params, config, new, cache, last_only=True,
                         positions=positions_of(real)[:, -1:], mask=real)
