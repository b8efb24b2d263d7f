"""When a request arrived and when its tokens were seen -> TTFT, gaps, TPOT, e2e latency of that request.

One clock, milliseconds (ticks where unit="tick").  a = arrival, t1 … tn = the times of the n output tokens:

    TTFT = t1 - a      gaps = t2 - t1, …, tn - t(n-1)      TPOT = (tn - t1)/(n - 1)      e2e = tn - a

so e2e = TTFT + (n - 1) * TPOT for n >= 2.  What does not exist is None, never 0; 0.0 is a legal measurement.
"""

import math
import numbers
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from mgpt.validate import integer, one_of

LARGEST = 1e300  # differences and sums of such times stay finite


@dataclass(frozen=True)
class RequestTrace:
    """When one request arrived and when its tokens were seen, given in one of three ways:

    token_times  the time of each token, where each has its own.
    chunks       (time, number of tokens) each; one without tokens (role, usage) is no chunk and dropped.
    span         (time of the first token, time of the last, n >= 1), where no more is known.

    started: the end of the wait in the queue.  error: a message; None or "" when there was none.
    Integers stay integers, so that ticks and whole milliseconds are exact.

    ValueError names the index of a time that is no finite number, goes backwards or lies before the arrival
    (equal times are legal).  Also refused: `started` outside arrival … first token, tokens given twice.
    """

    arrival: float
    token_times: tuple = ()
    _: KW_ONLY
    chunks: tuple | None = None
    span: tuple | None = None
    started: float | None = None
    error: str | None = None
    request_id: object = None
    unit: str = "ms"

    def __post_init__(self):
        one_of("unit", self.unit, ("ms", "tick"))
        if not isinstance(self.error, str | None):
            raise ValueError(f"error must be a message or None, got {self.error!r}")
        token_times = _items("token_times", self.token_times)
        if bool(token_times) + (self.chunks is not None) + (self.span is not None) > 1:
            raise ValueError("only one of token_times, chunks and span can be given, got more")
        values = {"arrival": _time("arrival", self.arrival), "error": self.error or None}
        before = ("arrival", values["arrival"])
        named = [(f"token_times[{i}]", t) for i, t in enumerate(token_times)]
        values["token_times"] = tuple(_forward(before, named))
        if self.chunks is not None:
            pairs = [_items(f"chunks[{i}]", pair, 2) for i, pair in enumerate(_items("chunks", self.chunks))]
            times = _forward(before, [(f"chunks[{i}][0]", t) for i, (t, _) in enumerate(pairs)])
            counts = [integer(f"chunks[{i}][1]", k) for i, (_, k) in enumerate(pairs)]
            values["chunks"] = tuple((t, k) for t, k in zip(times, counts) if k)
        if self.span is not None:
            first, last, n = _items("span", self.span, 3)
            first, last = _forward(before, [("span[0]", first), ("span[1]", last)])
            if integer("span[2]", n, at_least=1) == 1 and first != last:
                raise ValueError(f"span of one token must have one time, got {first} and {last}")
            values["span"] = (first, last, int(n))
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.started is not None:
            started = _forward(before, [("started", self.started)])[0]
            if self._times and started > self._times[0]:
                raise ValueError(f"started must not be after token 0 at {self._times[0]}, got {started}")
            object.__setattr__(self, "started", started)

    @property
    def _times(self):
        if self.span is not None:
            return self.span[:2]
        return self.token_times if self.chunks is None else tuple(t for t, _ in self.chunks)

    @property
    def n_tokens(self):
        """n, the output tokens that were seen."""
        if self.span is not None:
            return self.span[2]
        return len(self.token_times) if self.chunks is None else sum(k for _, k in self.chunks)

    @property
    def failed(self):
        """True after an error, and whenever no token came, whatever the transport said."""
        return self.error is not None or self.n_tokens == 0

    @property
    def ttft(self):
        """Time to first token, t1 - arrival: queue, prefill, first sampling.  None for n = 0."""
        return self._times[0] - self.arrival if self._times else None

    @property
    def gaps(self):
        """The n - 1 differences of token times.  None for n = 0 or where tokens have no time of their own."""
        if self.n_tokens == 1:
            return []
        own = self.span is None and all(k == 1 for _, k in self.chunks or ())
        return _differences(self._times) if self.n_tokens and own else None

    @property
    def chunk_gaps(self):
        """The differences of chunk times.  None without chunks and for n = 0."""
        return _differences(self._times) if self.chunks else None

    @property
    def tpot(self):
        """Time per output token after the first, (tn - t1)/(n - 1).  None for n < 2."""
        return ((self._times[-1] - self._times[0]) / (self.n_tokens - 1)
                if self.n_tokens > 1 else None)

    @property
    def e2e(self):
        """End-to-end latency, tn - arrival; of a failed request, to the last token seen.  None for n = 0."""
        return self._times[-1] - self.arrival if self._times else None

    @property
    def mean_time_per_output(self):
        """e2e / n.  It contains the wait for the first token, so it is no TPOT.  None for n = 0."""
        return self.e2e / self.n_tokens if self.n_tokens else None

    @property
    def queue_time(self):
        """started - arrival.  None where `started` is unknown."""
        return None if self.started is None else self.started - self.arrival


def _time(name, value):
    """`value` as a Python int or float."""
    plain = math.nan
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            plain = int(value) if isinstance(value, numbers.Integral) else float(value)
        except OverflowError:  # a Fraction beyond every float
            pass
    if not abs(plain) <= LARGEST:  # "not <=" is also true of NaN
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return plain


def _forward(before, named):
    """The values of [(name, time)] as Python numbers, none before the one in front of it."""
    values = []
    for name, value in named:
        value = _time(name, value)
        if value < before[1]:
            raise ValueError(f"{name} must not be before {before[0]} = {before[1]}, got {value}")
        before = name, value
        values.append(value)
    return values


def _items(name, value, length=None):
    """The items of a sequence (of `length`); text, sets and mappings are none."""
    try:
        items = None if isinstance(value, str | bytes | set | Mapping) else tuple(value)
    except TypeError:
        items = None
    if items is None or length not in (None, len(items)):
        size = "" if length is None else f" of {length}"
        raise ValueError(f"{name} must be a sequence{size}, got {value!r}")
    return items


def _differences(times):
    return [later - earlier for earlier, later in zip(times, times[1:])]
