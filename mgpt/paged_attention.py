"""Attention read straight from the blocks, one block at a time: no row is gathered first.

Shapes: T queries (the last T positions held), H query heads, K KV heads, G = H / K, N blocks of the pool,
P positions a block, n <= P positions of one block, D head_dim.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SoftmaxStep:
    """After one block: running maximum and sum (K, G, T, 1), and the mix before its division (K, G, T, D)."""

    block_id: int
    maximum: np.ndarray
    total: np.ndarray
    mixed: np.ndarray


def attention_steps(q, cache, layer):
    """Attention of q (H, T, D), the last T positions that `cache` holds: yields a SoftmaxStep for each block.

    Online softmax (Milakov and Gimelshein 2018): when a block raises the maximum from m to m', what was
    summed so far is multiplied by exp(m - m'), so only one block's scores exist at a time.
    ValueError when q has no query, or more than positions are held.
    """
    if q.ndim != 3 or not 1 <= q.shape[1] <= cache.seq_len:
        raise ValueError(f"q must be (H, T, D) with T in 1 .. {cache.seq_len} (held), got {q.shape}")
    k_pages, v_pages = cache.pages(layer)
    n_kv, _, size, width = k_pages.shape
    n_head, n_new, _ = q.shape
    grouped = q.reshape(n_kv, n_head // n_kv, n_new, width)
    query_at = np.arange(cache.seq_len - n_new, cache.seq_len)[:, None]  # (T, 1)
    maximum, total, mixed = np.full((*grouped.shape[:-1], 1), -np.inf), 0.0, 0.0
    for index, block_id in enumerate(cache.block_table):
        # key_at: (n,), n <= P; k, v: (K, 1, n, D)
        key_at = np.arange(index * size, min((index + 1) * size, cache.seq_len))
        k, v = (pages[:, None, block_id, : len(key_at)] for pages in (k_pages, v_pages))
        scores = grouped @ k.swapaxes(-1, -2) * width**-0.5  # (K, G, T, n)
        scores = np.where(key_at > query_at, -np.inf, scores)
        # finite: all see position 0
        highest = np.maximum(maximum, scores.max(axis=-1, keepdims=True))
        weights, shrink = np.exp(scores - highest), np.exp(maximum - highest)
        total = total * shrink + weights.sum(axis=-1, keepdims=True)
        mixed = mixed * shrink + weights @ v
        maximum = highest
        yield SoftmaxStep(block_id, maximum, total, mixed)


def paged_attention(q, cache, layer):
    """softmax(q kᵀ / sqrt(D)) v under the causal rule, over a block table: (H, T, D) -> (H, T, D).

    q: the queries of the last T positions that `cache` holds.  Equal up to rounding to `mgpt.model.attention`
    over the rows gathered in logical order, for every block size.  Errors: see `attention_steps`.
    """
    for step in attention_steps(q, cache, layer):
        pass
    return (step.mixed / step.total).reshape(q.shape)
