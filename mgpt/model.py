"""The forward pass of a Llama-shaped decoder: RMSNorm, RoPE (half-split), grouped-query attention, SwiGLU.

Shapes: B batch, T new positions, S positions seen (kept + new), D head_dim, H query heads, K KV heads,
G = H / K query heads a KV head, E n_embd, F n_inner, V vocab_size.  `...` is B, or nothing.
Weights are C-ordered [in, out]; Q, K, V stand side by side in one matrix, and so do gate and up.
"""

import functools
import math

import numpy as np

from mgpt.validate import array

UNSEEN = -1e30  # finite, so that a row which sees nothing (padding) stays finite too; exp() of it is exactly 0


def init_params(config, rng):
    """Random float64 parameters of the shape `config`, drawn from `rng` (a numpy.random.Generator).

    A dict: "embed" (V, E), "layers" (a list of dicts, see `layer_shapes`), "norm" (E,), and, unless the
    embedding is tied, "head" (E, V).  Matrices are normal with deviation 1/sqrt(in), norms are ones.
    """
    def draw(shape):
        return np.ones(shape) if len(shape) == 1 else rng.normal(0.0, shape[0] ** -0.5, shape)

    params = {
        "embed": rng.normal(0.0, 1.0, (config.vocab_size, config.n_embd)),
        "layers": [{name: draw(shape) for name, shape in layer_shapes(config).items()} for _ in range(config.n_layer)],
        "norm": np.ones(config.n_embd),
    }
    if not config.tie_embeddings:
        params["head"] = draw((config.n_embd, config.vocab_size))
    return params


def layer_shapes(config):
    """Name -> shape of one layer's arrays."""
    heads, width = config.n_head + 2 * config.n_kv_head, config.head_dim
    return {
        "attn_norm": (config.n_embd,), "qkv": (config.n_embd, heads * width),
        "attn_out": (config.n_head * width, config.n_embd),
        "mlp_norm": (config.n_embd,), "gate_up": (config.n_embd, 2 * config.n_inner),
        "mlp_out": (config.n_inner, config.n_embd),
    }


def rms_norm(x, weight, eps):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich 2019)."""
    if x.ndim == 1:  # one row: a Python number costs less than an array of one
        return x * (weight / math.sqrt(x @ x / x.size + eps))
    return x * (weight / np.sqrt(np.vecdot(x, x, keepdims=True) / x.shape[-1] + eps))


def silu(x):
    """x * sigmoid(x), written with tanh because that cannot overflow."""
    half = 0.5 * x
    return half * np.tanh(half) + half


@functools.lru_cache(maxsize=16)
def _frequencies(head_dim, theta):
    frequencies = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    return np.stack((-frequencies, frequencies))  # (2, D/2): the first half of a head turns with -sin


def _rope_table(positions, head_dim, theta, dtype):
    """cos and signed sin of every position's angles, each (..., T, 2, D/2); computed in float64."""
    angles = np.asarray(positions)[..., None, None] * _frequencies(head_dim, theta)
    return np.cos(angles).astype(dtype, copy=False), np.sin(angles).astype(dtype, copy=False)


def _rotate(x, cos, sin):
    halves = x.reshape(*x.shape[:-1], 2, x.shape[-1] // 2)  # (..., T, 2, D/2)
    return (halves * cos + halves[..., ::-1, :] * sin).reshape(x.shape)


def rope(x, positions, theta=10_000.0):
    """Rotary position embedding of x (..., T, D) at `positions` (T,), half-split (Su et al. 2021).

    Component i is paired with component i + D/2, as Llama's public weights have it; the interleaved
    pairing (2i, 2i + 1) gives other numbers for the same weights.  Integers become float64.
    """
    x = np.asarray(x)
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    return _rotate(x, *_rope_table(positions, x.shape[-1], theta, x.dtype))


def attention(q, k, v, unseen=None):
    """softmax(q kᵀ / sqrt(D)) v (Vaswani et al. 2017), each KV head serving its G query heads.

    q (..., H, T, D); k, v (..., K, S, D); `unseen` is True, or broadcastable to (..., T, S), where a query
    may not look.  Returns (..., H, T, D).  Query head h reads KV head h // G.
    """
    *batch, n_head, n_new, width = q.shape
    n_kv, n_seen = k.shape[-3], k.shape[-2]
    grouped = q.reshape(*batch, n_kv, n_head // n_kv * n_new, width) * width**-0.5
    scores = grouped @ k.swapaxes(-1, -2)  # (..., K, G*T, S)
    if unseen is not None:
        scores = scores.reshape(*batch, n_head, n_new, n_seen)
        scores = np.where(unseen[..., None, :, :], UNSEEN, scores).reshape(grouped.shape[:-1] + (n_seen,))
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    mixed = scores @ v / scores.sum(axis=-1, keepdims=True)  # (..., K, G*T, D)
    return mixed.reshape(q.shape)


def forward(params, config, ids, cache=None, *, positions=None, mask=None, last_only=False):
    """Logits of a pass over the new positions `ids`, behind whatever `cache` already holds.

    ids (T,) gives (T, V), or (V,) of the last row with last_only; ids (B, T) gives (B, T, V) or (B, V).
    positions: (T,) or (B, T), the RoPE position of each new id; by default cache.seq_len, cache.seq_len + 1, ...
    mask: which positions are real, True or 1 as kept and new positions come, (S,) or (B, S); or, query by query,
    (T, S) or (B, T, S).  It narrows the causal rule, which always holds.  A padding row's logits mean nothing.
    The cache is known by `append(layer, k, v)`, `advance(n)` and `seq_len` only.
    ValueError: ids that are no integers of the vocabulary, no ids, positions outside 0 .. max_seq_len - 1.
    """
    ids = checked_ids(ids, config.vocab_size)
    n_new, n_past = ids.shape[-1], 0 if cache is None else cache.seq_len
    positions = _checked_positions(positions, n_past, ids.shape, config.max_seq_len)
    cos, sin = _rope_table(positions, config.head_dim, config.rope_theta, params["embed"].dtype)
    if positions.ndim == 2:
        cos, sin = cos[:, None], sin[:, None]  # (B, 1, T, 2, D/2): the same for every head
    unseen = _unseen(n_past, n_new, mask, ids.shape)
    n_rotated, eps = config.n_head + config.n_kv_head, config.norm_eps
    # (N, E), N = B·T: the rows of a batch share each matrix product.  One row alone is (E,).
    x = params["embed"][ids.ravel() if ids.size > 1 else ids.item()]
    for layer, p in enumerate(params["layers"]):
        qkv = rms_norm(x, p["attn_norm"], eps) @ p["qkv"]
        heads = qkv.reshape(*ids.shape, -1, config.head_dim).swapaxes(-3, -2)  # (..., H + 2K, T, D)
        rotated = _rotate(heads[..., :n_rotated, :, :], cos, sin)
        k, v = rotated[..., config.n_head :, :, :], heads[..., n_rotated:, :, :]
        if cache is not None:
            k, v = cache.append(layer, k, v)  # (..., K, S, D)
        mixed = attention(rotated[..., : config.n_head, :, :], k, v, unseen)
        x = x + mixed.swapaxes(-3, -2).reshape(*x.shape[:-1], -1) @ p["attn_out"]
        gate_up = rms_norm(x, p["mlp_norm"], eps) @ p["gate_up"]  # (N, 2F)
        x = x + (silu(gate_up[..., : config.n_inner]) * gate_up[..., config.n_inner :]) @ p["mlp_out"]
    if cache is not None:
        cache.advance(n_new)
    if last_only and n_new > 1:
        x = x.reshape(*ids.shape, -1)[..., -1, :]  # (..., E)
    head = params["head"] if "head" in params else params["embed"].T
    logits = rms_norm(x, params["norm"], eps) @ head
    return logits.reshape(*(ids.shape[:-1] if last_only else ids.shape), -1)


def checked_ids(ids, vocab_size, name="ids"):
    """`ids` as an array.  ValueError unless it is (T,) or (B, T), not empty, integers of the vocabulary."""
    ids = array(name, ids, what="integers")
    if ids.ndim not in (1, 2) or ids.size == 0:
        raise ValueError(f"{name} must be (T,) or (B, T) with at least one position, got shape {ids.shape}")
    if ids.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, got {ids.dtype}")
    if ids.min() < 0 or ids.max() >= vocab_size:
        raise ValueError(f"{name} must be in 0 .. {vocab_size - 1} (vocab_size - 1), got {ids.min()} .. {ids.max()}")
    return ids


def _checked_positions(positions, n_past, shape, max_seq_len):
    if positions is None:
        positions = np.arange(n_past, n_past + shape[-1])
        if positions[-1] < max_seq_len:
            return positions
    positions = np.asarray(positions)
    if positions.shape not in (shape, shape[-1:]) or positions.dtype.kind not in "iu":
        raise ValueError(f"positions must be integers of shape {shape} or {shape[-1:]}, "
                         f"got {positions.dtype} {positions.shape}")
    if positions.min() < 0 or positions.max() >= max_seq_len:
        raise ValueError(f"positions must be in 0 .. {max_seq_len - 1} (max_seq_len - 1), "
                         f"got {positions.min()} .. {positions.max()}")
    return positions


def _unseen(n_past, n_new, mask, shape):
    """True where a query may not look, (..., T, S); None where it may look everywhere (one new position)."""
    n_seen = n_past + n_new
    unseen = None
    if n_new > 1:
        unseen = np.arange(n_seen) > np.arange(n_past, n_seen)[:, None]  # (T, S), the causal rule
    if mask is None:
        return unseen
    mask = np.asarray(mask)
    by_key, by_query = (*shape[:-1], n_seen), (*shape, n_seen)
    if mask.shape not in (by_key, by_query) or mask.dtype.kind not in "biu":
        raise ValueError(f"mask must be True/False or 1/0 of shape {by_key} or {by_query}, "
                         f"got {mask.dtype} {mask.shape}")
    hidden = ~mask.astype(bool)
    hidden = hidden[..., None, :] if mask.shape == by_key else hidden
    return hidden if unseen is None else hidden | unseen
