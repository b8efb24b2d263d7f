"""Numbers to codes of a few bits and back, for a scale that is given; packing of 4-bit codes into bytes.

Shapes: x and its codes have one shape.  A scale or zero point is one number, or an array that broadcasts to
that shape, such as (R, 1) for one a row.  qmax = 2^(bits-1) - 1; the symmetric code -2^(bits-1) is unused.

Rounding is half to even, the division is a true one in x's dtype (integers count as float64).  Everywhere,
ValueError: a scale that is not finite or not > 0, NaN or infinity in x, an empty x, bits outside 2 .. 8.
The public names are re-exported by `mgpt.quantize`, which chooses the scales.
"""

import numpy as np

from mgpt.validate import array, integer, one_of


def quantize(x, scale, bits=4):
    """Symmetric codes clip(round(x / scale), -qmax, qmax), int8 of x's shape.

    The scale is first cast to x's float dtype, and must be finite and > 0 there.
    """
    x, qmax = real_values(x), largest_code(bits)
    return np.asarray(np.clip(unclipped_codes(x, scale), -qmax, qmax), np.int8)


def dequantize(codes, scale):
    """scale · codes: what the codes stand for, in the scale's float dtype (a Python number's is float64)."""
    return dequantize_affine(codes, scale, 0)


def quantize_affine(x, scale, zero_point, bits=8, signed=False):
    """Affine codes clip(round(x / scale) + zero_point, qmin, qmax), x's shape: uint8, or int8 when signed.

    qmin .. qmax is 0 .. 2^bits - 1, or -2^(bits-1) .. 2^(bits-1) - 1 when signed; zero_point lies in it.
    Rounded before the zero point is added, as ONNX's QuantizeLinear does.
    """
    qmin, qmax = affine_range(bits, signed)
    x = real_values(x)
    zero = _fits("zero_point", _integers("zero_point", zero_point, qmin, qmax), x.shape)
    codes = unclipped_codes(x, scale) + zero.astype(x.dtype)
    return np.asarray(np.clip(codes, qmin, qmax), np.int8 if signed else np.uint8)


def dequantize_affine(codes, scale, zero_point):
    """scale · (codes - zero_point), in the scale's float dtype."""
    codes = _integers("codes", codes)
    scale = _checked_scale(scale, codes.shape)
    zero = _fits("zero_point", _integers("zero_point", zero_point), codes.shape)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray((codes.astype(scale.dtype) - zero.astype(scale.dtype)) * scale)


def pack_int4(codes):
    """Two 4-bit codes a byte along the last axis: (..., n) integers in -8 .. 7 to (..., ceil(n / 2)) uint8.

    Two's-complement nibbles, the first code in the low one, as in ONNX's int4; an odd end is padded with 0,
    so n has to be kept.  Rows are packed each by itself.
    """
    codes = _integers("codes", codes, -8, 7)
    if codes.ndim == 0:
        raise ValueError("codes must have an axis to pack along, got a single number")
    nibbles = codes.astype(np.int8).view(np.uint8) & 15
    low, high = nibbles[..., 0::2], nibbles[..., 1::2]
    packed = low.copy()
    packed[..., : high.shape[-1]] |= high << 4
    return packed


def unpack_int4(packed, n):
    """The n codes of each row that pack_int4 made: (..., ceil(n / 2)) bytes to (..., n) int8."""
    packed, n = _integers("packed", packed, 0, 255), integer("n", n)
    if packed.ndim == 0 or packed.shape[-1] != (n + 1) // 2:
        raise ValueError(f"n = {n} codes take {(n + 1) // 2} bytes, got packed of shape {packed.shape}")
    packed = packed.astype(np.uint8)
    codes = np.empty((*packed.shape[:-1], n), np.int8)
    codes[..., 0::2] = packed & 15
    codes[..., 1::2] = (packed >> 4)[..., : n // 2]
    return (codes ^ 8) - np.int8(8)  # extends the sign: 8 .. 15 become -8 .. -1


def packed_nbytes(n, bits, group_size):
    """Bytes of n codes in groups, each packed by itself: ceil(group · bits / 8), a short last group too."""
    whole, tail = divmod(n, group_size)
    return whole * -(-group_size * bits // 8) + -(-tail * bits // 8)


def largest_code(bits):
    """qmax of symmetric codes."""
    return 2 ** (_checked_bits(bits) - 1) - 1


def affine_range(bits, signed):
    """(qmin, qmax) of affine codes."""
    bits = _checked_bits(bits)
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def real_values(x):
    """x as a float array: neither empty nor with a NaN or infinity, its own float dtype kept."""
    x = array("x", x)
    if x.size == 0:
        raise ValueError(f"x must hold at least one value, got shape {x.shape}")
    if not np.isfinite(x).all():
        where = np.argwhere(~np.isfinite(x))[0]
        raise ValueError(f"x must be finite, got {x[tuple(where)]} at index {where.tolist()}")
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def unclipped_codes(x, scale):
    """round_half_even(x / scale) in x's float dtype; a quotient past its range is infinite, which clips."""
    scale = stored_scale(_checked_scale(scale, x.shape), x.dtype)
    with np.errstate(over="ignore", under="ignore"):
        return np.rint(x / scale)


def stored_scale(scale, dtype):
    """The scales as `dtype` holds them.  ValueError where that is 0 or infinite."""
    with np.errstate(over="ignore", under="ignore"):
        stored = scale.astype(dtype)
    lost = ~(np.isfinite(stored) & (stored > 0))
    if lost.any():
        raise ValueError(f"scale {scale[lost].flat[0]} becomes {stored[lost].flat[0]} in {np.dtype(dtype)}: "
                         "it must stay finite and > 0 there")
    return stored


def _checked_scale(scale, shape):
    scale = array("scale", scale)
    scale = _fits("scale", scale if scale.dtype.kind == "f" else scale.astype(np.float64), shape)
    wrong = ~(np.isfinite(scale) & (scale > 0))
    if wrong.any():
        raise ValueError(f"scale must be finite and > 0, got {scale[wrong].flat[0]}")
    return scale


def _checked_bits(bits):
    return one_of("bits", integer("bits", bits), range(2, 9))


def _integers(name, value, lowest=None, highest=None):
    empty = isinstance(value, (list, tuple)) and not value  # NumPy takes these for floats
    values = array(name, np.zeros(0, np.int64) if empty else value, "iu", "integers")
    if lowest is not None and values.size and (values.min() < lowest or values.max() > highest):
        raise ValueError(f"{name} must be in {lowest} .. {highest}, got {values.min()} .. {values.max()}")
    return values


def _fits(name, values, shape):
    try:
        fits = np.broadcast_shapes(values.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name} must be one number or broadcast to shape {shape}, got shape {values.shape}")
    return values
