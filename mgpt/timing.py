"""Times of requests -> metrics: TTFT, gaps, TPOT, e2e latency, and reports that drop nobody.

One clock, milliseconds (or the scheduler's ticks, unit="tick").  a = arrival, t1 … tn = the times at which the
n output tokens were seen:

    TTFT = t1 - a      gaps = t2 - t1, …, tn - t(n-1)      TPOT = (tn - t1)/(n - 1)      e2e = tn - a

so e2e = TTFT + (n - 1) * TPOT for n >= 2.  What does not exist is None, never 0; 0.0 is a legal measurement.
"""

import math
import numbers
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

import numpy as np

from mgpt.trace_files import read_records
from mgpt.validate import finite, integer, one_of

UNITS = ("ms", "tick")
LIMITS = ("ttft", "tpot", "e2e")
LARGEST = 1e300  # keeps every difference and every sum of times finite


@dataclass(frozen=True)
class RequestTrace:
    """When one request arrived and when its tokens were seen.  Give the tokens in one of three ways:

    token_times  a time a token, when each was seen alone.
    chunks       (time, number of tokens) a chunk.  A chunk without a token (role only, usage) is none: it is dropped.
    span         (first time, last time, n), where no more is known.
    started      when the work on it began (the end of its wait in the queue); None when unknown.
    error        a message when the request failed; None or "" when it did not.  No token at all is a failure too.

    Integers stay integers, so ticks and whole milliseconds are exact.
    ValueError names the index of a time that is no finite number, runs backwards or lies before the arrival
    (equal times are legal), a `started` before the arrival or after the first token, tokens given in two ways.
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
        one_of("unit", self.unit, UNITS)
        if self.error is not None and not isinstance(self.error, str):
            raise ValueError(f"error must be a message or None, got {self.error!r}")
        arrival = _time("arrival", self.arrival)
        token_times = _items("token_times", self.token_times)
        if (len(token_times) > 0) + (self.chunks is not None) + (self.span is not None) > 1:
            raise ValueError("token_times, chunks and span exclude each other, got more than one of them")
        times = [(f"token_times[{i}]", t) for i, t in enumerate(token_times)]
        counts = [1] * len(times)
        if self.chunks is not None:
            chunks = [_items(f"chunks[{i}]", c, 2) for i, c in enumerate(_items("chunks", self.chunks))]
            times = [(f"chunks[{i}][0]", t) for i, (t, _) in enumerate(chunks)]
            counts = [integer(f"chunks[{i}][1]", k) for i, (_, k) in enumerate(chunks)]
        if self.span is not None:
            first, last, n = _items("span", self.span, 3)
            times, counts = [("span[0]", first), ("span[1]", last)], [integer("span[2]", n, at_least=1), 0]
        values = _forward(("arrival", arrival), times)
        started = None if self.started is None else _time("started", self.started)
        if started is not None and started < arrival:
            raise ValueError(f"started must not be before arrival = {arrival}, got {started}")
        for (name, _), t, k in zip(times, values, counts):
            if started is not None and k and started > t:
                raise ValueError(f"started must not be after the first token ({name} = {t}), got {started}")
        if self.span is not None and counts[0] == 1 and values[0] != values[1]:
            raise ValueError(f"span of one token must have first = last, got {values[0]} and {values[1]}")
        normal = {
            "arrival": arrival,
            "token_times": tuple(values) if self.chunks is None and self.span is None else (),
            "chunks": None if self.chunks is None else tuple((t, k) for t, k in zip(values, counts) if k),
            "span": None if self.span is None else (*values, counts[0]),
            "started": started,
            "error": self.error or None,
        }
        for name, value in normal.items():
            object.__setattr__(self, name, value)

    @property
    def n_tokens(self):
        """Output tokens that were seen: n."""
        if self.span is not None:
            return self.span[2]
        return len(self.token_times) if self.chunks is None else sum(k for _, k in self.chunks)

    @property
    def failed(self):
        """True after an error, and whenever no token came, whatever the transport said."""
        return self.error is not None or self.n_tokens == 0

    @property
    def _times(self):
        if self.span is not None:
            return self.span[:2]
        return self.token_times if self.chunks is None else tuple(t for t, _ in self.chunks)

    @property
    def ttft(self):
        """Time to first token, t1 - arrival: queue, prefill and first sampling.  None for n = 0."""
        return self._times[0] - self.arrival if self._times else None

    @property
    def gaps(self):
        """The n - 1 differences of consecutive token times; [] for n = 1.

        None for n = 0, and where tokens have no times of their own (several in a chunk, a span).
        """
        own = self.span is None and all(k == 1 for _, k in self.chunks or ())
        if self.n_tokens == 1:
            return []
        return _differences(self._times) if self.n_tokens and own else None

    @property
    def chunk_gaps(self):
        """The differences of consecutive chunk times.  None without chunks or for n = 0."""
        return _differences(self._times) if self.chunks else None

    @property
    def tpot(self):
        """Time per output token after the first, (tn - t1)/(n - 1).  None for n < 2."""
        return (self._times[-1] - self._times[0]) / (self.n_tokens - 1) if self.n_tokens > 1 else None

    @property
    def e2e(self):
        """End-to-end latency, tn - arrival (of a failed request: to the last token seen).  None for n = 0."""
        return self._times[-1] - self.arrival if self._times else None

    @property
    def mean_time_per_output(self):
        """e2e / n: contains the wait for the first token, so it is no TPOT.  None for n = 0."""
        return self.e2e / self.n_tokens if self.n_tokens else None

    @property
    def queue_time(self):
        """started - arrival.  None when `started` is unknown."""
        return None if self.started is None else self.started - self.arrival


@dataclass(frozen=True)
class Stats:
    """Of `count` samples the mean and NumPy's linear percentiles; all None where there is no sample."""

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True)
class Report:
    """Metrics of n requests, n_errors of them failed.  Latencies are over those that did not fail.

    ttft, e2e     a sample a request          tpot  a sample a request with n >= 2 tokens
    gap           a sample a gap, pooled      partial_ttft  of the failed requests that got a first token
    goodput       good / n (failed requests are never good); None without an SLO or without requests
    n_without_tpot  requests of one token that did not fail; a TPOT limit does not apply to them
    output_tokens   every token seen, of failed requests too
    """

    n: int
    n_errors: int
    ttft: Stats
    tpot: Stats
    gap: Stats
    e2e: Stats
    partial_ttft: Stats
    goodput: float | None
    n_without_tpot: int
    output_tokens: int
    unit: str

    @property
    def failure_rate(self):
        """n_errors / n.  None for n = 0."""
        return self.n_errors / self.n if self.n else None


def summarize(traces, *, slo=None):
    """The Report of any iterable of RequestTraces, an empty one too.

    slo: inclusive limits in the unit of the traces, any of {"ttft": …, "tpot": …, "e2e": …}.
    ValueError: something that is no RequestTrace, traces in different units, an unknown or bad limit.
    """
    traces = _items("traces", traces)
    for i, trace in enumerate(traces):
        if not isinstance(trace, RequestTrace):
            raise ValueError(f"traces[{i}] must be a RequestTrace, got {type(trace).__name__}")
        if trace.unit != traces[0].unit:
            raise ValueError(f"traces must have one unit, got {traces[0].unit!r} and traces[{i}] in {trace.unit!r}")
    if slo is not None and not isinstance(slo, Mapping):
        raise ValueError(f"slo must map {', '.join(LIMITS)} to limits, got {slo!r}")
    limits = {one_of("slo key", key, LIMITS): finite(f"slo[{key!r}]", value, at_least=0)
              for key, value in (slo or {}).items()}
    served = [t for t in traces if not t.failed]
    failed = [t for t in traces if t.failed]
    good = [t for t in served if all(getattr(t, key) is None or getattr(t, key) <= limits[key] for key in limits)]
    return Report(
        n=len(traces),
        n_errors=len(failed),
        ttft=_stats(t.ttft for t in served),
        tpot=_stats(t.tpot for t in served),
        gap=_stats(gap for t in served for gap in t.gaps or ()),
        e2e=_stats(t.e2e for t in served),
        partial_ttft=_stats(t.ttft for t in failed),
        goodput=len(good) / len(traces) if limits and traces else None,
        n_without_tpot=sum(t.n_tokens == 1 for t in served),
        output_tokens=sum(t.n_tokens for t in traces),
        unit=traces[0].unit if traces else "ms",
    )


def load_traces(path):
    """RequestTraces (ms) of a file, failed requests included: CSV, JSONL or a public tool's results.

    The shapes, and what each can and cannot tell: `mgpt.trace_files`.
    OSError without the file; ValueError with file, line and reason for a file that cannot be read so.
    """
    traces = []
    for place, arguments in read_records(path):
        try:
            traces.append(RequestTrace(**arguments))
        except ValueError as error:
            raise ValueError(f"{path}, {place}: {error}") from None
    return traces


def _time(name, value):
    """`value` as a Python int or float."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not abs(value) <= LARGEST:  # "not <=" also catches NaN
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _forward(before, named):
    """The named times as Python numbers.  ValueError when one is before the one before it."""
    values = []
    for name, value in named:
        value = _time(name, value)
        if value < before[1]:
            raise ValueError(f"{name} must not be before {before[0]} = {before[1]}, got {value}")
        before = name, value
        values.append(value)
    return values


def _items(name, value, length=None):
    """The items of a sequence.  ValueError for text, sets, mappings, things without items, another length."""
    if isinstance(value, (str, bytes, set, frozenset, Mapping)) or not hasattr(value, "__iter__"):
        raise ValueError(f"{name} must be a sequence, got {value!r}")
    items = tuple(value)
    if length is not None and len(items) != length:
        raise ValueError(f"{name} must have {length} items, got {len(items)}")
    return items


def _differences(times):
    return [later - earlier for earlier, later in zip(times, times[1:])]


def _stats(samples):
    samples = [float(s) for s in samples if s is not None]
    if not samples:
        return Stats(0, None, None, None, None)
    p50, p95, p99 = np.percentile(samples, [50, 95, 99], method="linear")
    return Stats(len(samples), math.fsum(samples) / len(samples), float(p50), float(p95), float(p99))
