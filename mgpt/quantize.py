"""Choosing scales, quantizing in groups, and what the result costs: error and bytes.

Shapes: x and its codes (..., N), N values along the last axis; scales (..., G), one a group of group_size
values, of which the last may be short.  The rules of rounding, and what is refused everywhere: `mgpt.codes`.
"""

import math
from dataclasses import dataclass

import numpy as np

from mgpt.codes import (affine_range, dequantize, dequantize_affine, largest_code, pack_int4, packed_nbytes,
                        quantize, quantize_affine, real_values, stored_scale, unclipped_codes, unpack_int4)
from mgpt.validate import finite, float_type, integer, one_of

__all__ = ["ErrorSplit", "Quantized", "affine_params", "dequantize", "dequantize_affine", "error_split",
           "pack_int4", "quantize", "quantize_affine", "quantize_groups", "quantize_params",
           "symmetric_scale", "unpack_int4"]


def affine_params(lo, hi, bits=8, signed=False):
    """(scale, zero_point), a float and an int, for values from lo to hi.

    The range is first extended to include 0, so 0 has a code of its own and constants
    survive.  A range of 0 alone gets (1.0, 0).
    ValueError: lo > hi, or a range so wide or narrow that no float can be its scale.
    """
    qmin, qmax = affine_range(bits, signed)
    lo, hi = finite("lo", lo), finite("hi", hi)
    if lo > hi:
        raise ValueError(f"lo must be <= hi, got lo = {lo!r} and hi = {hi!r}")
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    if lo == hi:
        return 1.0, 0
    scale = finite("the scale of lo .. hi", (hi - lo) / (qmax - qmin), above=0)
    return scale, min(max(round(qmin - lo / scale), qmin), qmax)


def symmetric_scale(x, bits=4, method="absmax", *, percentile=99.9):
    """One scale for all of x, a Python float computed in float64; 1.0 when x is all zero.

    absmax: max|x| / qmax.  percentile: NumPy's linear percentile of |x|, over qmax (ValueError when it is 0).
    mse: of the thresholds max|x| · i/200, i = 1 .. 200, the one whose codes have the smallest sum of squared
    errors, the largest among equals, over qmax.
    """
    x, qmax = real_values(x), largest_code(bits)
    one_of("method", method, ("absmax", "percentile", "mse"))
    if finite("percentile", percentile, at_least=0) > 100:
        raise ValueError(f"percentile must be in 0 .. 100, got {percentile!r}")
    peak = np.abs(x).max()
    if peak == 0:
        return 1.0
    if method == "absmax":
        threshold = float(peak)
    elif method == "percentile":
        threshold = float(np.percentile(np.abs(x).astype(np.float64), percentile))
        if threshold == 0:
            raise ValueError(f"percentile must be higher: {percentile} of |x| is 0 while x is not all zero")
    else:
        # A power of two moves x near 2^10, where no square can overflow or vanish; it changes no code.
        shift = 11 - int(np.frexp(peak)[1])
        x, peak = np.ldexp(x, shift), math.ldexp(float(peak), shift)

        def error(i):
            scale = peak * i / 200 / qmax
            return float(np.square(x - dequantize(quantize(x, scale, bits), scale)).sum())

        threshold = math.ldexp(peak * min(range(1, 201), key=lambda i: (error(i), -i)) / 200, -shift)
    return finite("the scale of x", threshold / qmax, above=0)


@dataclass(frozen=True, eq=False)
class Quantized:
    """Symmetric codes in groups along the last axis.

    codes: int8 of x's shape, one a byte, not padded.  scales: (..., G).  dtype: what dequantize() returns.
    """

    codes: np.ndarray
    scales: np.ndarray
    group_size: int
    bits: int
    dtype: np.dtype

    @property
    def shape(self):
        return self.codes.shape

    @property
    def nbytes(self):
        """Bytes when stored: each group's codes packed, ceil(n · bits / 8), and the scales."""
        row = packed_nbytes(self.shape[-1], self.bits, self.group_size)
        return math.prod(self.shape[:-1]) * row + self.scales.nbytes

    def dequantize(self):
        """scale · code of every value, the shape and float dtype of the x that was quantized."""
        wide = np.result_type(self.dtype, self.scales.dtype)  # so that rounding comes once, at the end
        values = dequantize(self.codes, _spread(self.scales, self.group_size, self.shape[-1]).astype(wide))
        with np.errstate(over="ignore", under="ignore"):
            return values.astype(self.dtype)


def quantize_groups(x, group_size, bits=4, scale_dtype=np.float32):
    """x (..., N) as a Quantized: an absmax scale for every group_size values, a short last group its own.

    The scales are rounded to scale_dtype first, and the codes are made with the scales as stored (an all-zero
    group gets 1).  ValueError when scale_dtype turns a scale into 0 or infinity.
    """
    x, qmax, group_size = real_values(x), largest_code(bits), integer("group_size", group_size, at_least=1)
    scale_dtype = float_type("scale_dtype", scale_dtype)
    if x.ndim == 0:
        raise ValueError("x must have a last axis to form groups along, got a single number")
    starts = np.arange(0, x.shape[-1], group_size)
    peaks = np.maximum.reduceat(np.abs(x), starts, axis=-1)  # (..., G)
    scales = np.where(peaks == 0, 1.0, peaks.astype(np.result_type(x.dtype, np.float64)) / qmax)
    scales = stored_scale(scales, scale_dtype)
    codes = quantize(x, _spread(scales, group_size, x.shape[-1]), bits)
    return Quantized(codes, scales, group_size, int(bits), x.dtype)


@dataclass(frozen=True, eq=False)
class ErrorSplit:
    """Squared errors (x - scale · code)^2 by their cause; the two sums add up to the total.

    clipped: x's shape, True where the unclipped code leaves -qmax .. qmax.  sum_sq_clip: over those, whose
    whole error counts as clipping; sum_sq_round: over all others.  Python floats.
    """

    clipped: np.ndarray
    sum_sq_round: float
    sum_sq_clip: float


def error_split(x, scale, bits=4):
    """The ErrorSplit of what quantize(x, scale, bits) and dequantize(codes, scale) make of x.

    Judged by the code, not by |x| > qmax · scale: the largest value can exceed qmax times its rounded scale.
    """
    x, qmax = real_values(x), largest_code(bits)
    clipped = np.asarray(np.abs(unclipped_codes(x, scale)) > qmax)
    with np.errstate(over="ignore", under="ignore"):
        error = np.asarray(np.square(x.astype(np.float64) - dequantize(quantize(x, scale, bits), scale)))
        return ErrorSplit(clipped, float(error[~clipped].sum()), float(error[clipped].sum()))


def quantize_params(params, bits, per="tensor", include_embeddings=False):
    """(params, nbytes): every matrix as its symmetric codes stand for it, and the bytes of everything.

    params: dicts and lists of arrays, as `init_params` makes them; it is not changed, and every array comes
    back in its own dtype.  per: one float32 absmax scale a "tensor", a "row" (each index of all axes but the
    last), or a group of so many values along the last axis.  Arrays of one axis, or without floats, stay as
    they are; so do "embed" and "head" (a head of its own is an embedding) unless include_embeddings.
    nbytes: packed codes and scales of what is quantized, and what stays in its own dtype.
    """
    largest_code(bits)
    if per not in ("tensor", "row"):
        per = integer("per (a group size, where it is not 'tensor' or 'row')", per, at_least=1)

    def visit(node, path):
        if isinstance(node, (dict, list, tuple)):
            keys = list(node) if isinstance(node, dict) else range(len(node))
            done = {key: visit(node[key], (*path, key)) for key in keys}
            values = {key: value for key, (value, _) in done.items()}
            nbytes = sum(count for _, count in done.values())
            return values if isinstance(node, dict) else list(values.values()), nbytes
        if not isinstance(node, np.ndarray):
            raise ValueError(f"params{list(path)} must be an array, got {type(node).__name__}")
        embedding = path[-1:] in (("embed",), ("head",))
        if node.ndim < 2 or node.dtype.kind != "f" or embedding and not include_embeddings:
            return node.copy(), node.nbytes
        rows = node.reshape(1, -1) if per == "tensor" else node
        try:
            quantized = quantize_groups(rows, max(1, rows.shape[-1]) if isinstance(per, str) else per, bits)
        except ValueError as error:
            raise ValueError(f"params{list(path)}: {error}") from None
        return quantized.dequantize().reshape(node.shape), quantized.nbytes

    return visit(params, ())


def _spread(scales, group_size, n):
    """Scales (..., G) beside the n values they serve, (..., n)."""
    return scales[..., np.arange(n) // group_size]
