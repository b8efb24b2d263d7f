"""When K/V may be used again: the same beginning of token ids, and the same everything else."""

import dataclasses
import hashlib
import numbers

import numpy as np


def longest_common_prefix(a, b):
    """How many leading token ids a and b share:
    from the first that differs on, K/V are no longer valid.
    """
    a, b = token_list("a", a), token_list("b", b)
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y),
                min(len(a), len(b)))


def token_list(name, ids):
    """`ids` as a list of ints.  ValueError unless it is a flat sequence of integers >= 0."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a flat sequence of integers, got {array.dtype} of shape {array.shape}")
    if array.size and array.min() < 0:
        raise ValueError(f"{name} must be integers >= 0, got {array.min()}")
    return [int(value) for value in array]


def fingerprint(params, config, *, adapter=None, vocabulary=None, settings=None):
    """A hex string (SHA-256) that differs when anything differs on which K/V depend.

    params and config: weights with their dtypes and shapes; heads, widths, norm and
    RoPE settings.
    adapter: a name or arrays.
    vocabulary: the tokenizer's entries in the order of their ids, or a dict.
    settings: whatever else an engine may vary: the attention rule, a position offset,
    the cache's dtype.
    Each may nest dicts, sequences, dataclasses, arrays, numbers, text and None;
    ValueError for anything else.
    """
    digest = hashlib.sha256()
    _feed(digest, [params, config, adapter, vocabulary, settings])
    return digest.hexdigest()


def _feed(digest, value):
    """Write `value` so that two different values never give the same bytes: kind, length, content."""
    def write(kind, content=b""):
        digest.update(b"%s %d " % (kind, len(content)) + content)

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if value is None or isinstance(value, (bool, np.bool_)):
        write(str(value).encode())
    elif isinstance(value, numbers.Real):  # 10_000 and 10_000.0 are one setting
        whole = isinstance(value, numbers.Integral) or float(value).is_integer()
        write(b"number", (str(int(value)) if whole else float(value).hex()).encode())
    elif isinstance(value, (str, bytes)):
        text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        write(b"str" if isinstance(value, str) else b"bytes", text)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        array = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        write(b"array", f"{array.dtype.str} {value.shape}".encode())
        write(b"content", array.tobytes())
    elif isinstance(value, dict):
        write(b"dict", str(len(value)).encode())
        for key in sorted(value, key=lambda key: (type(key).__name__, key)):
            _feed(digest, key)
            _feed(digest, value[key])
    elif isinstance(value, (list, tuple)):
        write(b"list", str(len(value)).encode())
        for item in value:
            _feed(digest, item)
    else:
        raise ValueError("a fingerprint covers dicts, sequences, dataclasses, arrays, numbers and text, "
                         f"got {type(value).__name__}")
