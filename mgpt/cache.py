"""A contiguous KV cache: one preallocated array for K and one for V.

Shapes: L layers, K KV heads, C capacity, S positions held, T new positions, D head_dim.
"""

import numpy as np

from mgpt.validate import float_type, integer


class Contiguous:
    """What contiguous caches have in common: how many positions they hold, of how many, in rows of which shape."""

    def __init__(self, config, capacity, batch):
        self.capacity = integer("capacity", capacity, at_least=1)
        lead = () if batch is None else (integer("batch", batch, at_least=1),)
        self._heads, self._width = (*lead, config.n_kv_head), config.head_dim
        self._seq_len = 0

    @property
    def seq_len(self):
        """Positions held; does not change within a pass."""
        return self._seq_len

    def _end_with(self, k, v):
        """Positions there would be with rows k, v (..., K, T, D).  ValueError: another shape, or no room."""
        if k.shape != v.shape or k.shape[:-2] != self._heads or k.shape[-1] != self._width:
            raise ValueError(f"k and v must both be of shape {(*self._heads, 'T', self._width)}, "
                             f"got {k.shape} and {v.shape}")
        end = self._seq_len + k.shape[-2]
        if end > self.capacity:
            raise ValueError(f"the cache holds {self._seq_len} of {self.capacity} positions: "
                             f"{k.shape[-2]} more do not fit")
        return end

    def advance(self, n):
        """Count n appended positions as held: once, at the end of a pass."""
        n = integer("n", n)
        if self._seq_len + n > self.capacity:
            raise ValueError(f"cannot advance by {n}: {self._seq_len} of {self.capacity} positions are held")
        self._seq_len += n

    def truncate(self, n):
        """Keep the first n positions and forget the others."""
        if integer("n", n) > self._seq_len:
            raise ValueError(f"cannot truncate to {n} positions: only {self._seq_len} are held")
        self._seq_len = int(n)


class KVCache(Contiguous):
    """Keys and values of the positions already processed, for `forward`'s seam.

    capacity: positions there is room for.  dtype: any float type of NumPy; np.float16 stores 2 bytes a value.
    batch: None for one sequence, or how many sequences advance together (arrays then have an axis B).
    """

    def __init__(self, config, capacity, dtype=np.float64, batch=None):
        super().__init__(config, capacity, batch)
        shape = (config.n_layer, *self._heads, self.capacity, self._width)
        dtype = float_type("dtype", dtype)
        self._k, self._v = np.zeros(shape, dtype), np.zeros(shape, dtype)  # (L, K, C, D)

    def append(self, layer, k, v):
        """Write rows k, v (K, T, D) of one layer behind the positions held;
        return all rows (K, S, D) as views.

        ValueError, before anything is written, when they do not fit.
        """
        end = self._end_with(k, v)
        keys, values = self._k[layer], self._v[layer]
        keys[..., self._seq_len : end, :] = k
        values[..., self._seq_len : end, :] = v
        return keys[..., :end, :], values[..., :end, :]

    @property
    def nbytes(self):
        """Bytes of K and V of the positions held: 2 · L · positions · K · D · bytes a value (times the batch)."""
        return self.capacity_nbytes // self.capacity * self._seq_len

    @property
    def capacity_nbytes(self):
        """Bytes allocated."""
        return self._k.nbytes + self._v.nbytes
