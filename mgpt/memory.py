"""Bytes of a KV cache: for plain shapes, and for the config.json of public decoders.

L layers, T cached positions, H_kv KV heads, d head width, b bytes a value.  Layers that are all alike hold
M = 2 L H_kv d b (sum of T): K and V, and no query heads.  In general it is a sum over layers of
min(T, window) H_kv (d_k + d_v) b, where some layers hold nothing that grows.  Results are exact Python ints.
"""

import functools
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction

from mgpt.kv_layers import KVLayer, read_layers
from mgpt.validate import integer, one_of

VALUE_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "fp8": 1}  # fp8's per-tensor scale is outside
CODE_BITS = {"int8": 8, "int4": 4}  # and a float32 scale for each vector
BYTES_OF_32 = {"q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18}  # GGML: codes and scales of 32
DTYPES = (*VALUE_BYTES, *CODE_BITS, *BYTES_OF_32)


def checked_lengths(lengths):
    """Processed lengths, one a request, as a list of ints; a lone int is one request."""
    many = hasattr(lengths, "__iter__") and getattr(lengths, "ndim", 1)  # a 0-d array has __iter__ too
    if not many or isinstance(lengths, (str, bytes, dict)):
        return [integer("lengths", lengths)]
    return [integer(f"lengths[{i}]", length) for i, length in enumerate(lengths)]


def kv_cache_bytes(*, n_layer, n_kv_head, head_dim, lengths, bytes_per_value=2):
    """Bytes of K and V of layers all alike:
    2 (sum of lengths) n_layer n_kv_head head_dim bytes_per_value.

    lengths: positions cached, an int (one request) or a sequence (one a request).
    Allocation blocks, windows and the scales of quantized values are not in it.
    ValueError for counts < 1, lengths < 0, non-integers.
    """
    total = 2 * sum(checked_lengths(lengths))
    for name, value in (("n_layer", n_layer), ("n_kv_head", n_kv_head),
                        ("head_dim", head_dim), ("bytes_per_value", bytes_per_value)):
        total *= integer(name, value, at_least=1)
    return total


@dataclass(frozen=True)
class PagedBytes:
    """Whole KV blocks of some requests: blocks, their slots (positions), the empty slots, and bytes."""

    blocks: int
    slots: int
    waste_tokens: int
    nbytes: int


def paged_bytes(lengths, block_size, bytes_per_token):
    """PagedBytes of requests that share no block: each fills whole blocks by itself, then they add up."""
    lengths, block_size = checked_lengths(lengths), integer("block_size", block_size, at_least=1)
    blocks = sum(-(-length // block_size) for length in lengths)
    slots = blocks * block_size
    nbytes = slots * integer("bytes_per_token", bytes_per_token, at_least=1)
    return PagedBytes(blocks, slots, slots - sum(lengths), nbytes)


def format_bytes(n, si=False):
    """"384 MiB", "1.50 GiB": in the largest unit >= 1, without decimals when exact, else with two.

    si=True counts in powers of 1000 (B, kB, MB, GB) instead of 1024: the same 384 MiB are "402.65 MB".
    """
    n = integer("n", n)
    base = 1000 if si else 1024
    units = ("B", "kB", "MB", "GB") if si else ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = max((i for i in range(len(units)) if n >= base**i), default=0)
    if n % base**power == 0:
        return f"{n // base**power} {units[power]}"
    hundredths = round(Fraction(100 * n, base**power))  # exact: a float would round first, or overflow
    return f"{hundredths // 100}.{hundredths % 100:02} {units[power]}"


def vector_bytes(width, dtype):
    """Bytes of one stored vector (K or V of a head, MLA's latent), codes and scales; width 0 is no vector."""
    one_of("dtype", dtype, DTYPES)
    if width and dtype in CODE_BITS:
        return -(-width * CODE_BITS[dtype] // 8) + 4
    if dtype in BYTES_OF_32:
        if width % 32:
            raise ValueError(f"dtype {dtype} packs 32 values: widths must be multiples of 32, got {width}")
        return width // 32 * BYTES_OF_32[dtype]
    return width * VALUE_BYTES.get(dtype, 0)


def heads_on_rank(layer, tp):
    """KV heads of a layer on each of tp ranks: split, or one on each (a copy) where ranks exceed heads."""
    if tp > 1 and (layer.n_head is None or layer.n_head % tp):
        heads = layer.n_head or "num_attention_heads is missing"
        raise ValueError(f"tp must divide the query heads ({heads}), got {tp}")
    if layer.n_kv_head % tp and tp % layer.n_kv_head:
        raise ValueError(f"tp must divide, or be a multiple of, the {layer.n_kv_head} KV heads, got {tp}")
    return max(1, layer.n_kv_head // tp)


@dataclass(frozen=True)
class KVShape:
    """What each layer of a decoder caches; None where no KV grows (linear, Mamba, another layer's reused)."""

    layers: tuple[KVLayer | None, ...]

    @classmethod
    def from_hf(cls, config):
        """The KVShape of a public decoder's config.json, given as a dict and judged by its keys.

        ValueError names every key that the count needs and does not find, or one whose value cannot be meant.
        """
        return cls(read_layers(config))

    @property
    def structure(self):
        """"MHA", "GQA", "MQA", "MLA"; joined by "+" where layers differ; "none" where nothing grows."""
        return "+".join(dict.fromkeys(layer.structure for layer in self.layers if layer)) or "none"

    def as_mha(self):
        """The same model with K and V for each query head; None where the config lacks their widths."""
        layers = []
        for layer in self.layers:
            if layer is not None:
                if layer.n_head is None or (layer.structure == "MLA" and layer.expanded is None):
                    return None
                k_dim, v_dim = layer.expanded or (layer.k_dim, layer.v_dim)
                layer = replace(layer, n_kv_head=layer.n_head, k_dim=k_dim, v_dim=v_dim, expanded=None)
            layers.append(layer)
        return KVShape(tuple(layers))

    @functools.cached_property
    def _kinds(self):
        """{layer: how many are like it}."""
        return Counter(layer for layer in self.layers if layer)

    def bytes_per_token(self, dtype="f16", tp=1):
        """Bytes of the first token; later ones take less once a window is full.  A rank's share if tp > 1."""
        return self.bytes(1, dtype, tp)

    def bytes(self, lengths, dtype="f16", tp=1):
        """Bytes of requests of these processed lengths (an int, or one a request); a rank's share if tp > 1.

        dtype: f32 f16 bf16 fp8, int8 int4 (and a float32 scale a vector), GGML's q8_0 q5_1 q5_0 q4_1 q4_0.
        ValueError for another dtype, a width that it cannot pack, a tp that the heads cannot be shared over.
        """
        lengths, tp, total = checked_lengths(lengths), integer("tp", tp, at_least=1), 0
        one_of("dtype", dtype, DTYPES)
        for layer, count in self._kinds.items():
            positions = sum(min(n, layer.window or n) for n in lengths)
            vectors = vector_bytes(layer.k_dim, dtype) + vector_bytes(layer.v_dim, dtype)
            total += count * positions * heads_on_rank(layer, tp) * vectors
        return total
