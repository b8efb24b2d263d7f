"""The work of one pass, counted from the shapes: floating-point operations, and bytes that have to be read.

Shapes: T new positions, S positions seen (kept + new), L layers, D head_dim, H query heads, E n_embd, V vocab_size.

Counted: 2·m·n·k operations for each matrix product (m, k) @ (k, n), a multiplication and an addition each: the
four of a layer, the scores q·kᵀ, the mix of the values, and the head on the last position alone.  Attention is
counted over all S columns, as `mgpt.model` computes it; a kernel that leaves out what the causal mask hides does
(T + 1) / (2·T) of that in a prefill, and all of it in a decode pass.
Not counted: norms, RoPE, softmax, SiLU and residual sums, which take a few operations a value; the look-up of the
embedding; activations written and read between the products.  Whether max_seq_len allows the length is not asked.
Mixture-of-experts layers are not in this model.  There a token is multiplied with the experts chosen for it, so
the operations count those alone, while the bytes count every expert that any token of the batch has chosen.
"""

from dataclasses import dataclass
from math import prod

from mgpt.memory import kv_cache_bytes
from mgpt.model import layer_shapes
from mgpt.validate import integer


@dataclass(frozen=True)
class Cost:
    """One pass: exact ints, and intensity = flops / (bytes_weights + bytes_kv), in operations a byte."""

    flops: int
    bytes_weights: int
    bytes_kv: int
    intensity: float


def prefill_cost(config, n, bytes_per_value=8):
    """Cost of the pass over a prompt of n positions with nothing kept.

    It grows with n in the layers and with n² in attention: 4·L·H·D·n² operations.  bytes_kv: n positions, written.
    ValueError unless n and bytes_per_value are integers >= 1.
    """
    n = integer("n", n, at_least=1)
    return _cost(config, n, n, 1, bytes_per_value, bytes_per_value)


def decode_cost(config, context, batch=1, bytes_per_value=8, kv_bytes_per_value=None):
    """Cost of one decode pass of `batch` requests, each seeing `context` positions, its new one included.

    The weights are read once for the whole batch, K and V once for each request: batching amortises the weights
    and not the KV.  bytes_kv: `context` positions a request, all but one of them read, that one written.
    kv_bytes_per_value: of a cache that stores its values otherwise than the weights; None is bytes_per_value.
    ValueError unless all are integers >= 1.
    """
    context, batch = integer("context", context, at_least=1), integer("batch", batch, at_least=1)
    if kv_bytes_per_value is None:
        kv_bytes_per_value = bytes_per_value
    return _cost(config, 1, context, batch, bytes_per_value, kv_bytes_per_value)


def weight_count(config):
    """Values that every pass reads: all layers, the last norm and the head (the embedding where it is tied).

    A separate embedding is not among them: a pass looks up one row of it a token.
    """
    layer = sum(prod(shape) for shape in layer_shapes(config).values())
    return config.n_layer * layer + config.n_embd + config.n_embd * config.vocab_size


def _cost(config, n_new, n_seen, batch, bytes_per_value, kv_bytes_per_value):
    shapes = layer_shapes(config).values()
    matrices = sum(prod(shape) for shape in shapes if len(shape) == 2)
    attention = 2 * config.n_head * config.head_dim * n_seen  # scores and mix
    head = config.n_embd * config.vocab_size
    flops = 2 * batch * (n_new * config.n_layer * (matrices + attention) + head)
    value = integer("bytes_per_value", bytes_per_value, at_least=1)
    kv_value = integer("kv_bytes_per_value", kv_bytes_per_value, at_least=1)
    bytes_weights = weight_count(config) * value
    bytes_kv = batch * kv_cache_bytes(
        n_layer=config.n_layer, n_kv_head=config.n_kv_head,
        head_dim=config.head_dim, lengths=n_seen, bytes_per_value=kv_value)
    return Cost(flops, bytes_weights, bytes_kv, flops / (bytes_weights + bytes_kv))
