"""A KV cache that stores codes of 8 or 4 bits and their scales, behind the same seam as KVCache.

Shapes: L layers, K KV heads, C capacity, S positions held, T new positions, D head_dim; `...` is a batch
axis, or nothing.  The forward pass reads scale · code, so its logits are those of a plain cache that holds
these values.  Quantized storage saves memory, not time.
"""

import numpy as np

from mgpt.cache import Contiguous
from mgpt.codes import dequantize, largest_code, pack_int4, quantize, stored_scale, unpack_int4
from mgpt.quantize import quantize_groups
from mgpt.validate import integer, one_of

GRANULARITY = ("vector", "head", "channel")


class QuantizedKVCache(Contiguous):
    """Keys and values as packed symmetric codes and float32 scales.

    bits: 8, 4, or None for float64 rows that are not quantized; or a pair (bits of K, bits of V).
    per: what shares a scale, or a pair of these (K, V).  "vector": the D values of one head and position; the
    scale is chosen as the vector comes (absmax).  "head": all vectors of a layer's head.  "channel": one of
    the D places in them.  These two need `scales`, fixed beforehand: a pair of arrays, (L, K) for "head",
    (L, K, D) for "channel", None where nothing is fixed, as `calibrate_scales` returns it.  What exceeds a
    fixed scale is clipped.
    batch: as in KVCache.
    keep_values: True keeps the dequantized rows beside the codes (`values_nbytes`, not counted in `nbytes`):
    a step then dequantizes new rows alone.  False holds the codes alone: a step dequantizes every row.
    """

    def __init__(self, config, capacity, bits=8, per="vector", *, scales=None, batch=None, keep_values=True):
        super().__init__(config, capacity, batch)
        shape = (config.n_layer, *self._heads, self.capacity, self._width)
        self._k, self._v = (_Rows(shape, *chosen, keep_values)
                            for chosen in zip(*_pairs(bits, per), _pair("scales", scales), strict=True))

    def append(self, layer, k, v):
        """Write codes of k, v (..., K, T, D) behind the rows held;
        return all rows' scale · code.

        ValueError, before anything is written: rows of another shape, NaN or infinity,
        more than there is room for, a vector whose scale float32 cannot hold.
        """
        end = self._end_with(k, v)
        if k.shape[-2]:
            k_stored, v_stored = self._k.encode(layer, k), self._v.encode(layer, v)
            self._k.write(layer, self._seq_len, end, *k_stored)
            self._v.write(layer, self._seq_len, end, *v_stored)
        return self._k.read(layer, end), self._v.read(layer, end)

    @property
    def nbytes(self):
        """Bytes of the positions held: ceil(D · bits / 8) a vector, 4 a scale; fixed scales count once."""
        return sum(rows.position_nbytes * self._seq_len + rows.fixed_nbytes for rows in (self._k, self._v))

    @property
    def capacity_nbytes(self):
        """Bytes allocated for codes and scales."""
        return sum(rows.position_nbytes * self.capacity + rows.fixed_nbytes for rows in (self._k, self._v))

    @property
    def values_nbytes(self):
        """Bytes of the dequantized rows kept beside the codes, 0 where none are kept."""
        return self._k.values_nbytes + self._v.values_nbytes


class _Rows:
    """K, or V, of every layer: codes (L, ..., K, C, bytes of a vector), scales, perhaps values."""

    def __init__(self, shape, bits, per, scales, keep_values):
        self._bits, self._width = bits, shape[-1]
        n_bytes = -(-self._width // 2) if bits == 4 else self._width
        self._stored = np.zeros((*shape[:-1], n_bytes), {None: np.float64, 8: np.int8, 4: np.uint8}[bits])
        self._fixed, self._scales = None, None
        if bits is not None and per != "vector":
            self._fixed = _fixed_scales(scales, per, shape)
        elif scales is not None:
            raise ValueError('scales must be None where nothing is quantized, or per "vector"')
        elif bits is not None:
            self._scales = np.ones((*shape[:-1], 1), np.float32)
        self._values = np.zeros(shape) if keep_values and bits is not None else None
        self.fixed_nbytes = 0 if self._fixed is None else self._fixed.nbytes
        growing = [array for array in (self._stored, self._scales) if array is not None]
        self.position_nbytes = sum(array.nbytes for array in growing) // shape[-2]
        self.values_nbytes = 0 if self._values is None else self._values.nbytes

    def encode(self, layer, rows):
        """Rows (..., K, T, D) as they are stored, and scales (..., K, T, 1), None where these are fixed."""
        if self._bits is None:
            return rows, None
        if self._fixed is None:
            groups = quantize_groups(rows, self._width, self._bits)
            codes, scales = groups.codes, groups.scales
        else:
            codes, scales = quantize(rows, self._fixed[layer], self._bits), None
        return (pack_int4(codes) if self._bits == 4 else codes), scales

    def write(self, layer, start, end, stored, scales):
        self._stored[layer][..., start:end, :] = stored
        if scales is not None:
            self._scales[layer][..., start:end, :] = scales
        if self._values is not None:
            self._values[layer][..., start:end, :] = self._decode(layer, start, end)

    def read(self, layer, end):
        """Rows 0 .. end - 1 as float64, (..., K, S, D)."""
        return self._decode(layer, 0, end) if self._values is None else self._values[layer][..., :end, :]

    def _decode(self, layer, start, end):
        stored = self._stored[layer][..., start:end, :]
        if self._bits is None:
            return stored
        codes = unpack_int4(stored, self._width) if self._bits == 4 else stored
        scales = self._scales[layer][..., start:end, :] if self._fixed is None else self._fixed[layer]
        return dequantize(codes, scales.astype(np.float64))  # where float32 · code is exact


def calibrate_scales(config, caches, bits=8, per="head", *, batch=None):
    """The pair `scales` of QuantizedKVCache: max |k| and |v| of the positions that `caches` hold, over qmax.

    caches: filled KVCaches, or others behind the seam, `batch` as they have it; padding rows count like any.
    bits and per as for QuantizedKVCache; None on the side that is not quantized, or "vector".  float32.
    """
    none = np.empty((*(() if batch is None else (batch,)), config.n_kv_head, 0, config.head_dim))
    peaks = np.zeros((2, config.n_layer, config.n_kv_head, config.head_dim))
    caches = list(caches)
    if not caches or not all(cache.seq_len for cache in caches):
        raise ValueError(f"caches must hold positions, got lengths {[cache.seq_len for cache in caches]}")
    for cache in caches:
        for layer in range(config.n_layer):
            for side, rows in enumerate(cache.append(layer, none, none)):  # append nothing: all rows return
                seen = np.abs(rows).max(axis=-2).reshape(-1, *peaks.shape[2:]).max(axis=0)  # (K, D)
                peaks[side, layer] = np.maximum(peaks[side, layer], seen)
    scales = []
    for peak, n_bits, shared in zip(peaks, *_pairs(bits, per), strict=True):
        if n_bits is None or shared == "vector":
            scales.append(None)
            continue
        peak = peak if shared == "channel" else peak.max(axis=-1)
        scales.append(stored_scale(np.where(peak == 0, 1.0, peak / largest_code(n_bits)), np.float32))
    return tuple(scales)


def _fixed_scales(scales, per, shape):
    """Scales (L, K) or (L, K, D) as float32 (L, K, 1, 1 or D), which broadcasts to (..., K, T, D) a layer."""
    need = (shape[0], shape[-3]) if per == "head" else (shape[0], shape[-3], shape[-1])
    if scales is None or np.shape(scales) != need:
        given = "None" if scales is None else f"shape {np.shape(scales)}"
        raise ValueError(f"scales per {per} must have shape {need}, got {given}: see calibrate_scales")
    return stored_scale(np.asarray(scales, np.float64), np.float32).reshape(shape[0], shape[-3], 1, -1)


def _pairs(bits, per):
    bits, per = _pair("bits", bits), _pair("per", per)
    for n_bits, shared in zip(bits, per, strict=True):
        one_of("bits", None if n_bits is None else integer("bits", n_bits), (8, 4, None))
        one_of("per", shared, GRANULARITY)
    return bits, per


def _pair(name, value):
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2:
        raise ValueError(f"{name} must be one value or a pair (for K, for V), got {value!r}")
    return tuple(pair)
