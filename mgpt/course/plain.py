"""What may cross from a learner's code to the judge: plain values, compared by value.

Numbers, text, True/False, None, lists and dicts with text keys.  NumPy scalars and arrays count as the numbers
and lists they hold, tuples as lists; anything else is refused with a sentence for the learner.
"""

import json
import math

import numpy as np

from mgpt.text import _

MAX_BYTES = 1_000_000


class NotPlain(Exception):
    """A value that cannot be judged; the message says why."""


def plain(value):
    """`value` as exact built-in numbers, strings, None, lists and dicts.  NotPlain for anything else."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value.tolist()
    if type(value) in (list, tuple):
        return [plain(item) for item in value]
    if type(value) is dict:
        for key in value:
            if type(key) is not str:
                raise NotPlain(_("a dict with a key of type {type} cannot be compared; its keys must be text")
                               .format(type=type(key).__name__))
        return {key: plain(item) for key, item in value.items()}
    raise NotPlain(_("a value of type {type} cannot be compared; return numbers, text, lists or dicts")
                   .format(type=type(value).__name__))


def dumps(value):
    """One line of JSON that keeps int, float and bool apart (NaN and infinities included)."""
    try:
        text = json.dumps(plain(value))
    except RecursionError:
        raise NotPlain(_("the value contains itself, or is nested too deeply")) from None
    if len(text) > MAX_BYTES:
        raise NotPlain(_("the value is too large ({size} bytes)").format(size=len(text)))
    return text


def agrees(got, expected, tolerance=1e-9, whole=False):
    """True where `got` is `expected`: same structure, numbers within a relative tolerance, text exactly.

    A bool is no number and None is no 0.  With whole=True an expected int wants an int: 3.0 is not 3.
    """
    try:
        return _agrees(plain(got), plain(expected), tolerance, whole)
    except NotPlain:
        return False


def _agrees(got, expected, tolerance, whole):
    if type(expected) in (int, float) and type(got) in (int, float):
        if whole and type(expected) is int:
            return type(got) is int and got == expected
        if expected != expected:  # NaN
            return got != got
        if got == expected:
            return True
        try:
            return math.isclose(got, expected, rel_tol=tolerance, abs_tol=tolerance * 1e-3)
        except OverflowError:  # an int beyond the floats' range
            return False
    if type(got) is not type(expected):
        return False
    if type(expected) is list:
        return len(got) == len(expected) and all(_agrees(g, e, tolerance, whole) for g, e in zip(got, expected))
    if type(expected) is dict:
        return got.keys() == expected.keys() and all(_agrees(got[k], expected[k], tolerance, whole) for k in got)
    return got == expected
