"""`mgpt trace FILE`: TTFT, gaps, TPOT, e2e latency and goodput of a trace, failed requests beside them."""

from dataclasses import asdict

from mgpt.cli import print_json, table
from mgpt.timing import load_traces, summarize

HELP = "metrics of a real trace or benchmark result"
FEW = 20  # as many requests, and as many gaps of one, are printed one by one
NAMES = {"ttft": "TTFT", "tpot": "TPOT", "gap": "gap", "e2e": "e2e latency", "partial_ttft": "TTFT of failed"}


def arguments(parser):
    parser.add_argument("file", metavar="FILE",
                        help="CSV, JSONL, or a result file of vLLM, SGLang, AIPerf, GenAI-Perf or guidellm")
    parser.add_argument("--slo", metavar="ttft=500,tpot=50",
                        help="limits for the goodput: any of ttft, tpot, e2e")


def run(args):
    slo = None if args.slo is None else parse_slo(args.slo)
    traces = load_traces(args.file)
    report = summarize(traces, slo=slo)
    if args.json:
        fields = ("request_id", "failed", "error", "n_tokens", "ttft", "gaps", "chunk_gaps", "tpot", "e2e",
                  "mean_time_per_output", "queue_time")
        print_json({**asdict(report), "failure_rate": report.failure_rate, "slo": slo,
                    "requests": [{field: getattr(trace, field) for field in fields} for trace in traces]})
        return
    unit = {"ms": "ms", "tick": "ticks"}[report.unit]
    if len(traces) <= FEW:
        print(f"request: TTFT · gaps · TPOT · e2e latency, in {unit}")
        for i, trace in enumerate(traces, 1):
            print(f"{i if trace.request_id is None else trace.request_id}: {_request(trace)}")
        print()
    failed = f"{report.n_errors} failed" + (f" ({100 * report.failure_rate:.1f} %)" if report.n else "")
    print(f"{_many(report.n, 'request')}, {failed}, {_many(report.output_tokens, 'output token')}")
    print(f"times in {unit}, of the {report.n - report.n_errors} that did not fail:")
    rows = []
    for name, title in NAMES.items():
        stats = getattr(report, name)
        rows.append([title, stats.count, *map(_short, (stats.mean, stats.p50, stats.p95, stats.p99))])
    print(table(rows, ["", "samples", "mean", "p50", "p95", "p99"]))
    if slo:
        limits = ", ".join(f"{NAMES[key]} <= {_number(limit)} {unit}" for key, limit in slo.items())
        rate = "none, there is no request"
        if report.n:
            rate = f"{round(report.goodput * report.n)} of {report.n} requests = {100 * report.goodput:.1f} %"
        print(f"goodput ({limits}): {rate}")
        print(f"without TPOT, having one token: {_many(report.n_without_tpot, 'request')}")


def parse_slo(text):
    """{"ttft": 500.0, …} of "ttft=500,…".  ValueError for another form; `summarize` checks names, values."""
    slo = {}
    for part in text.split(","):
        key, equals, limit = (piece.strip() for piece in part.partition("="))
        try:
            value = float(limit)
        except ValueError:
            equals = ""
        if not equals or key in slo:
            raise ValueError(f"--slo must look like ttft=500,tpot=50, each name once, got {text!r}")
        slo[key] = value
    return slo


def _request(trace):
    if trace.failed:
        seen = trace.n_tokens > 0
        after = f" after {_many(trace.n_tokens, 'token')}, TTFT {_number(trace.ttft)}" if seen else ""
        return f"failed{after}: {' '.join((trace.error or 'no token came').split())[:80]}"
    gaps = "-" if not trace.gaps else " ".join(map(_number, trace.gaps[:FEW]))
    if trace.gaps and len(trace.gaps) > FEW:
        gaps += f" … ({len(trace.gaps)} gaps)"
    return " · ".join([_number(trace.ttft), gaps, _number(trace.tpot), _number(trace.e2e)])


def _short(value):
    """Two decimals at most, three digits of a small value; None stays None."""
    if value is None:
        return None
    value = float(f"{value:.3g}") if abs(value) < 0.1 else round(value, 2)
    return int(value) if value == int(value) else value


def _number(value):
    return "-" if value is None else str(_short(value))


def _many(count, word):
    return f"{count} {word}" + ("" if count == 1 else "s")
