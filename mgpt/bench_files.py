"""Result files of public benchmark tools -> what they saw of each request.

A reader takes one JSON document and yields (place, Seen).  A key of the document tells which reader fits:

ttfts        vLLM (`bench serve --save-result --save-detailed`), SGLang (`bench_serving --output-details`, a
             run a line).  Seconds.  itls are gaps of chunks: only where there are n - 1 has each token its
             time, and SGLang's own backend divides a chunk's gap among its tokens.  No e2e latency a request:
             the last chunk is taken.  Without start_times all arrivals are 0.  ttft 0.0: no token came.  vLLM
             before #15106 took a role-only chunk for the first token; SGLang writes the requested length when
             the server sent no usage.
metrics      AIPerf's profile_export.jsonl, a request a line.  ns; in the metrics the unit that stands there.
             Lines of the warm-up are no requests of the benchmark.  A failed request has no times.
experiments  Perf Analyzer's profile_export.json, made by GenAI-Perf.  ns.  It holds text, not tokens: a
             response with text counts as one token unless output_ids or a usage says more.
benchmarks   guidellm's benchmarks.json.  Seconds.  First token, last token and n, no gaps; perhaps a sample
             of the requests.  Those cut off by the end of the run ("incomplete") are kept as failed.

An answer that was not streamed is one chunk, at its end: its TTFT is its e2e latency, its TPOT 0.
"""

import json
from typing import NamedTuple

from mgpt.validate import finite, one_of

MS = {"ns": 1e-6, "us": 1e-3, "ms": 1, "s": 1000, "sec": 1000}
TEXT = ("content", "reasoning_content", "tool_calls", "text")  # one of these makes a response carry tokens


class Seen(NamedTuple):
    """One request; `start` in the file's unit, which is `ms` milliseconds long."""
    start: float | None
    ms: float
    offsets: list  # of each chunk with tokens, in ms after the start
    n: int  # tokens
    error: str | None = None
    request_id: object = None
    counts: list | None = None  # tokens of each chunk, where known

    def arguments(self, origin):
        """RequestTrace's arguments, on a clock that shows 0 at `origin`: epoch times would lose digits."""
        arrival = 0.0 if self.start is None else (self.start - origin) * self.ms
        times = [arrival + offset for offset in self.offsets]
        if self.n == 0 or not times:
            tokens = {}
        elif self.counts is not None and sum(self.counts) == self.n:
            tokens = {"chunks": list(zip(times, self.counts))}
        elif self.n in (1, len(times)):
            tokens = {"token_times": times[: self.n]}
        elif len(times) == 1:
            tokens = {"chunks": [(times[0], self.n)]}
        else:
            tokens = {"span": (times[0], times[-1], self.n)}
        return {"arrival": arrival, "error": self.error, "request_id": self.request_id, **tokens}


def serving(document):
    """vLLM's and SGLang's parallel lists."""
    columns = [document[key] for key in ("ttfts", "itls", "output_lens", "errors")]
    columns.append(document.get("start_times") or [None] * len(columns[0]))
    if len(set(map(len, columns))) != 1:
        raise ValueError("ttfts, itls, output_lens, errors and start_times differ in length")
    for i, (ttft, itls, n, error, start) in enumerate(zip(*columns)):
        offsets = []
        if finite(f"ttfts[{i}]", ttft, at_least=0) > 0:  # 0.0 = no token was ever seen
            offsets = _running(f"ttfts, itls [{i}]", [ttft, *itls], 1000)
        n = len(offsets) if error else _count(f"output_lens[{i}]", n)
        yield f"request {i}", Seen(_stamp(f"start_times[{i}]", start), 1000, offsets, n, error or None)


def aiperf(record):
    """One line of AIPerf's profile_export.jsonl."""
    metadata, metrics = record["metadata"], record["metrics"] or {}
    if metadata.get("benchmark_phase", "profiling") != "profiling":
        return

    def running(metric):
        values = metric["value"] if isinstance(metric["value"], list) else [metric["value"]]
        return _running("a time", values, MS[one_of("unit", metric["unit"], MS)])

    first, gaps = _first(metrics, "time_to_first_token", "ttft"), metrics.get("inter_chunk_latency")
    offsets = running(first) if first else []
    if first and gaps:
        offsets += [offsets[0] + gap for gap in running(gaps)]
    elif metrics.get("request_latency"):
        offsets += running(metrics["request_latency"])
    error = _message(record.get("error")) or ("cancelled" if metadata.get("was_cancelled") else None)
    length = _first(metrics, "output_sequence_length", "output_token_count")
    if offsets and not (length or gaps or error):
        raise ValueError("output_sequence_length is missing: the number of tokens is unknown")
    n = _count("output_sequence_length", length["value"]) if length else len(offsets)
    start = _stamp("request_start_ns", metadata["request_start_ns"])
    yield "request", Seen(start, MS["ns"], offsets, n, error, metadata.get("x_request_id"))


def perf_analyzer(document):
    """GenAI-Perf's profile_export.json."""
    for e, experiment in enumerate(document["experiments"]):
        for i, request in enumerate(experiment["requests"]):
            start, times = _stamp("timestamp", request["timestamp"]), request["response_timestamps"]
            if len(times) != len(request["response_outputs"]):
                raise ValueError(f"request {i}: response_timestamps and response_outputs differ in length")
            offsets, counts, usage, error = [], [], None, None
            for t, output in zip(times, request["response_outputs"]):
                count, said, failure = _response(output)
                usage, error = said or usage, error or failure
                if count:
                    offsets.append((_stamp("response_timestamps", t) - start) * MS["ns"])
                    counts.append(count)
            seen = Seen(start, MS["ns"], offsets, _count("usage", usage or sum(counts)), error, None, counts)
            yield f"experiment {e}, request {i}", seen


def guidellm(document):
    """guidellm's benchmarks.json."""
    listed = [(f"benchmark {b}, {status} request {i}", status, request)
              for b, benchmark in enumerate(document["benchmarks"])
              for status in ("successful", "incomplete", "errored")
              for i, request in enumerate(benchmark["requests"].get(status) or ())]
    if not listed:
        raise ValueError("no benchmark holds a request (none were sampled?)")
    for place, status, request in listed:
        info = request.get("info") or {}
        times = info.get("timings") or request  # releases up to 0.3 have them in the request
        start = _stamp("request start", _first(times, "request_start", "resolve_start", "start_time"))
        ends = [_first(times, "first_token_iteration", "first_token_time"),
                _first(times, "last_token_iteration", "last_token_time")]
        if ends[0] is None:
            ends = [_first(times, "request_end", "end_time")] if status == "successful" else []
        elif times.get("token_iterations") == 1:
            ends = ends[:1]
        offsets = [(_stamp("token time", t) - start) * MS["s"] for t in ends]
        error = info.get("error") or request.get("error") or (None if status == "successful" else status)
        n = _count("output_tokens", _first({**times, **request}, "output_tokens", "token_iterations") or 0)
        n = max(n, 1) if offsets and error else n
        yield place, Seen(start, MS["s"], offsets, n, error, request.get("request_id"))


READERS = {"ttfts": serving, "metrics": aiperf, "experiments": perf_analyzer, "benchmarks": guidellm}


def _running(name, values, ms):
    """The running sums of durations, in ms."""
    total, result = 0.0, []
    for i, value in enumerate(values):
        total += finite(f"{name}[{i}]", value, at_least=0) * ms
        result.append(total)
    return result


def _stamp(name, value):
    """A point in time as it stands there: a float of epoch ns would lose digits."""
    return value if value is None or (finite(name, value) and isinstance(value, int)) else float(value)


def _count(name, value):
    if finite(name, value, at_least=0) % 1:
        raise ValueError(f"{name} must be a whole number of tokens, got {value!r}")
    return int(value)


def _first(mapping, *keys):
    """The first of these keys' values that is there and not null."""
    return next((mapping[key] for key in keys if mapping.get(key) is not None), None)


def _message(error):
    if not isinstance(error, dict):
        return error or None
    return " ".join(str(error[key]) for key in ("code", "type", "message") if error.get(key)) or "failed"


def _response(output):
    """(tokens, completion_tokens of a usage or None, error or None) of one response of Perf Analyzer."""
    if "output_ids" in output:
        ids = output["output_ids"]
        return len(ids) if isinstance(ids, list) else int(isinstance(ids, int)), None, None
    count, usage, error = 0, None, None
    for data in [output] if "text_output" in output else _events(output["response"]):
        choice = (data.get("choices") or [{}])[0]
        body = choice.get("delta") or choice.get("message") or choice
        count += bool(data.get("text_output") or any(map(body.get, TEXT)))
        usage = (data.get("usage") or {}).get("completion_tokens") or usage
        error = _message(data.get("error")) or error
    return count, usage, error


def _events(text):
    """The JSON objects of a response: one document, or those of a stream of server-sent events."""
    if text.lstrip().startswith("{"):
        return [json.loads(text)]
    events = []
    for line in text.splitlines():
        event = line.strip().removeprefix("data:").strip()
        try:
            if event.startswith("{"):  # not empty, [DONE], a comment or another field
                events.append(json.loads(event))
        except json.JSONDecodeError:  # a chunk that came in pieces: its first piece stands for it
            events.append({"text_output": event})
    return events
