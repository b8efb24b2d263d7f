"""A KV cache in blocks that hold codes and their scales, behind the same seam as PagedKVCache.

Shapes: K KV heads, N blocks of the pool, P positions a block, S positions held, T new positions, D head_dim,
R bytes of one stored vector, its record: ceil(D · bits / 8) bytes of packed codes, then its float32 scale.
"""

import numpy as np

from mgpt.codes import pack_int4, unpack_int4
from mgpt.paged_cache import PagedKVCache
from mgpt.quantize import quantize_groups
from mgpt.validate import integer, one_of

SCALE_BYTES = 4


class QuantizedPagedKVCache(PagedKVCache):
    """A PagedKVCache whose slots hold packed symmetric codes of `bits` (8 or 4) and a scale for each vector.

    A vector's scale is chosen from that vector alone (absmax) and stands in the slot beside its codes.  So a
    block means the same to every sequence whose table names it, and a copy of its bytes copies its values.
    No dequantized row is kept: each pass restores all rows that it reads.
    prefix_cache: as in PagedKVCache; its model_key has to name the format.  ValueError when the pool's
    resident blocks hold another one.
    """

    def __init__(self, config, pool, bits=8, *, prefix_cache=None):
        self._bits = one_of("bits", integer("bits", bits), (8, 4))
        self._codes_nbytes = -(-config.head_dim * self._bits // 8)
        self._record_nbytes = self._codes_nbytes + SCALE_BYTES
        # Another type of bytes for each number of bits: records of equal size are not one format.
        super().__init__(config, pool, np.int8 if self._bits == 8 else np.uint8, prefix_cache=prefix_cache)

    def append(self, layer, k, v):
        """Write the records of k, v (K, T, D) behind the positions held; return what all stand for (K, S, D).

        Errors, with nothing written: as PagedKVCache's, and ValueError for NaN, infinity, or a vector whose
        scale float32 cannot hold.
        """
        n_kv, width = self._config.n_kv_head, self._config.head_dim
        if k.ndim != 3 or k.shape != v.shape or (k.shape[0], k.shape[2]) != (n_kv, width):
            raise ValueError(f"k and v must both be ({n_kv}, T, {width}), got {k.shape} and {v.shape}")
        records = super().append(layer, self._encode(k), self._encode(v))
        return tuple(self._decode(rows) for rows in records)

    def pages(self, layer):
        """What the codes of all the pool's blocks in one layer stand for, K and V (K, N, P, D): no views."""
        return tuple(self._decode(pages) for pages in super().pages(layer))

    def _stored_vector(self, config, dtype):
        return np.dtype(dtype), self._record_nbytes

    def _encode(self, rows):
        """Rows (..., D) as records (..., R)."""
        if not rows.size:
            return np.zeros((*rows.shape[:-1], self._record_nbytes), np.uint8)
        groups = quantize_groups(rows, rows.shape[-1], self._bits)
        packed = pack_int4(groups.codes) if self._bits == 4 else groups.codes
        scales = np.ascontiguousarray(groups.scales)  # (..., 1)
        return np.concatenate([packed, scales.view(packed.dtype)], axis=-1)

    def _decode(self, records):
        """What records (..., R) stand for, (..., D) in float64; a slot never written stands for zeros."""
        codes, scales = np.split(records, [self._codes_nbytes], axis=-1)
        codes = unpack_int4(codes, self._config.head_dim) if self._bits == 4 else codes
        return codes * np.ascontiguousarray(scales).view(np.float32).astype(np.float64)  # exact: 24 + 8 bits
