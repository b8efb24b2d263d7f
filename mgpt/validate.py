"""One-line refusals: what was given, where, and what is allowed."""

import math
import numbers

import numpy as np


def integer(name, value, at_least=0):
    """`value` as an int.  ValueError unless it is a whole number >= at_least (bools and floats are none)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < at_least:
        raise ValueError(f"{name} must be an integer >= {at_least}, got {value!r}")
    return int(value)


def finite(name, value, at_least=-math.inf, above=-math.inf):
    """`value` as a float.  ValueError unless it is finite, >= at_least and > above."""
    number = not isinstance(value, bool) and isinstance(value, numbers.Real)
    if not number or not _is_finite(value) or value < at_least or value <= above:
        bound = f" > {above:g}" if above > -math.inf else f" >= {at_least:g}" if at_least > -math.inf else ""
        raise ValueError(f"{name} must be a finite number{bound}, got {value!r}")
    return float(value)


def _is_finite(value):
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def one_of(name, value, allowed):
    """`value`, unchanged.  ValueError unless it is among `allowed`, which the message lists."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, got {value!r}")
    return value


def float_type(name, value):
    """`value` as a NumPy dtype.  ValueError unless it names a float type (None, NumPy's default, does not)."""
    try:
        dtype = None if value is None else np.dtype(value)
    except TypeError:
        dtype = None
    if dtype is None or dtype.kind != "f":
        raise ValueError(f"{name} must be a float type of NumPy, got {value!r}")
    return dtype


def array(name, value, kinds="fiu", what="real numbers"):
    """`value` as an array.  ValueError unless its dtype is among NumPy's `kinds`, and its rows of one length."""
    try:
        values = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be {what}: {error}") from None
    if values.dtype.kind not in kinds:
        raise ValueError(f"{name} must be {what}, got dtype {values.dtype}")
    return values
