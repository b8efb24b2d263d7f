"""Many traces -> one report that drops nobody: count, failures, latencies, goodput.

`RequestTrace` (mgpt.trace) holds the definitions of TTFT, gap, TPOT and e2e; `load_traces` (mgpt.trace_files)
reads them from files.  Both belong to this module's public names.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from mgpt.trace import RequestTrace
from mgpt.trace_files import load_traces
from mgpt.validate import finite, one_of

__all__ = ["Report", "RequestTrace", "Stats", "load_traces", "summarize"]

LIMITS = ("ttft", "tpot", "e2e")


@dataclass(frozen=True)
class Stats:
    """The number of samples, their mean and NumPy's linear percentiles; None where there is no sample."""

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True)
class Report:
    """Of n requests, n_errors failed: they stay in n and out of the latencies.

    ttft, tpot, e2e  a sample a request that did not fail (tpot: and has two tokens or more)
    gap              a sample a gap, over all those requests
    partial_ttft     of the failed requests that got a first token
    goodput          good / n, a failed request is never good; None without an SLO or for n = 0
    n_without_tpot   requests of one token that did not fail: no TPOT limit applies to them
    output_tokens    every token that was seen, of failed requests too
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

    slo: inclusive limits >= 0 in the unit of the traces, any of ttft, tpot (not applied to one token), e2e.
    ValueError: something that is no RequestTrace, mixed units, an unknown limit or a bad value of one.
    """
    if not isinstance(traces, Iterable):
        raise ValueError(f"traces must be RequestTraces, got {traces!r}")
    traces = list(traces)
    for i, trace in enumerate(traces):
        if not isinstance(trace, RequestTrace):
            raise ValueError(f"traces[{i}] must be a RequestTrace, got {type(trace).__name__}")
        if trace.unit != traces[0].unit:
            raise ValueError(f"traces must have one unit, got {traces[0].unit!r} and, at {i}, {trace.unit!r}")
    if not isinstance(slo, Mapping | None):
        raise ValueError(f"slo must map any of {', '.join(LIMITS)} to a limit, got {slo!r}")
    limits = {}
    for key, value in (slo or {}).items():
        limits[one_of("slo key", key, LIMITS)] = finite(f"slo[{key!r}]", value, at_least=0)
    served, failed = [t for t in traces if not t.failed], [t for t in traces if t.failed]
    good = sum(all(getattr(t, k) is None or getattr(t, k) <= v for k, v in limits.items()) for t in served)
    return Report(
        n=len(traces),
        n_errors=len(failed),
        ttft=_stats(t.ttft for t in served),
        tpot=_stats(t.tpot for t in served),
        gap=_stats(gap for t in served for gap in t.gaps or ()),
        e2e=_stats(t.e2e for t in served),
        partial_ttft=_stats(t.ttft for t in failed),
        goodput=good / len(traces) if limits and traces else None,
        n_without_tpot=sum(t.n_tokens == 1 for t in served),
        output_tokens=sum(t.n_tokens for t in traces),
        unit=traces[0].unit if traces else "ms",
    )


def _stats(samples):
    samples = [float(s) for s in samples if s is not None]
    if not samples:
        return Stats(0, None, None, None, None)
    p50, p95, p99 = np.percentile(samples, [50, 95, 99], method="linear").tolist()
    return Stats(len(samples), math.fsum(samples) / len(samples), p50, p95, p99)
