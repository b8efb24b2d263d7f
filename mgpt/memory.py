"""Bytes of a KV cache: for plain shapes, and for the config.json of public decoders.

L layers, T cached positions, H_kv KV heads, d head width, b bytes a value.  M = 2 L H_kv d b (sum of T): K and V, no
query heads.  All results are exact Python ints.
"""

from dataclasses import dataclass

from mgpt.validate import integer


def checked_lengths(lengths):
    """Processed lengths, one a request, as a list of ints; a lone int is one request."""
    if isinstance(lengths, (str, bytes, dict, bool)) or not (hasattr(lengths, "__iter__") and getattr(lengths, "ndim", 1)):
        return [integer("lengths", lengths)]
    return [integer(f"lengths[{i}]", length) for i, length in enumerate(lengths)]


def kv_cache_bytes(*, n_layer, n_kv_head, head_dim, lengths, bytes_per_value=2):
    """Bytes of K and V, 2 (sum of lengths) n_layer n_kv_head head_dim bytes_per_value, of layers that are all alike.

    lengths: positions cached, an int (one request) or a sequence (one a request).  Allocation blocks, windows and
    the scales of quantized values are not in it.  ValueError for counts below 1, lengths below 0 and non-integers.
    """
    counts = {"n_layer": n_layer, "n_kv_head": n_kv_head, "head_dim": head_dim, "bytes_per_value": bytes_per_value}
    total = 2 * sum(checked_lengths(lengths))
    for name, value in counts.items():
        total *= integer(name, value, at_least=1)
    return total


@dataclass(frozen=True)
class PagedBytes:
    """Whole KV blocks of some requests: blocks, their slots (positions), the slots that hold nothing, and bytes."""

    blocks: int
    slots: int
    waste_tokens: int
    nbytes: int


def paged_bytes(lengths, block_size, bytes_per_token):
    """PagedBytes of requests that share no block: each rounds up to whole blocks by itself, then they add up."""
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
    base, units = (1000, ("B", "kB", "MB", "GB")) if si else (1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    power = max((i for i in range(len(units)) if n >= base**i), default=0)
    number = f"{n / base**power:.2f}" if n % base**power else f"{n // base**power}"
    return f"{number} {units[power]}"
