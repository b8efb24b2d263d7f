"""One-line refusals: what was given, where, and what is allowed."""

import math
import numbers


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
