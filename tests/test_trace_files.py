"""Traces from files.  The bench_* files are made by hand, in the shapes that the tools' sources write."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.timing import RequestTrace, load_traces, summarize

DATA = Path(__file__).parent / "data"
HEADER = "request_id,arrival,started,error,token_times\n"


@pytest.fixture
def file(tmp_path):
    def write(content, name="traces"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def lines(*documents):
    return "\n".join(json.dumps(document) for document in documents)


def measures(trace):
    """What a trace says, rounded where a file's seconds or ns were turned into ms."""
    def near(value):
        return None if value is None else round(value, 6)

    gaps = None if trace.gaps is None else [near(gap) for gap in trace.gaps]
    return near(trace.ttft), gaps, near(trace.tpot), near(trace.e2e), trace.n_tokens


# CSV ----------------------------------------------------------------------------------------------

def test_example_30_2():
    assert load_traces(DATA / "example_30_2.csv") == [
        RequestTrace(0, [150, 190, 235, 270], started=30, request_id="30.2")]


def test_a_path_may_be_a_string():
    assert len(load_traces(str(DATA / "example_30_2.csv"))) == 1


def test_csv_keeps_failed_requests_and_their_reason(file):
    path = file(HEADER + 'a,0,,,5;6.5\nb,10,,"timeout, twice",\n\nc,20,21,lost,30;31\nd,30,,,\n')
    assert load_traces(path) == [
        RequestTrace(0, [5, 6.5], request_id="a"),
        RequestTrace(10, error="timeout, twice", request_id="b"),
        RequestTrace(20, [30, 31], started=21, error="lost", request_id="c"),
        RequestTrace(30, request_id="d"),
    ]
    assert summarize(load_traces(path)).n_errors == 3


@pytest.mark.parametrize("text", [
    "arrival,token_times\n0,5;6\n", "token_times,arrival\n5;6,0\n", " arrival , token_times \n 0 , 5 ; 6 \n",
    "\ufeffarrival,token_times\n0,5;6\n", "arrival,token_times\r\n0,5;6\r\n", "arrival,token_times\n0,5;6",
    "arrival,token_times,error\n0,5;6,   \n", '"arrival","token_times"\n"0","5;6"\n',
    "arrival,token_times\n\n0,5;6\n,\n",
], ids=["short", "other order", "blanks", "byte order mark", "CRLF", "no last newline", "blank error",
        "quoted", "blank lines"])
def test_csv_is_read_however_it_was_written(file, text):
    assert load_traces(file(text)) == [RequestTrace(0, [5, 6])]


def test_whole_numbers_stay_integers(file):
    trace, = load_traces(file("arrival,token_times\n1000000000000000001,1000000000000000004\n"))
    assert trace.ttft == 3 and type(trace.ttft) is int


def test_one_cell_holds_the_times_of_a_long_answer_and_the_limit_of_csv_is_restored(file):
    before = csv.field_size_limit()
    path = file("arrival,token_times\n0," + ";".join(str(10**6 + i) for i in range(30_000)) + "\n")
    trace, = load_traces(path)
    assert trace.n_tokens == 30_000 and trace.tpot == 1
    with pytest.raises(ValueError):
        load_traces(file("arrival,token_times\nx,5\n"))
    assert csv.field_size_limit() == before


def test_a_header_alone_is_no_request_at_all(file):
    assert load_traces(file(HEADER)) == []


@pytest.mark.parametrize(("text", "message"), [
    (HEADER + "a,0,,,5\nb,x,,,6", "line 3: arrival must be a number, got 'x'"),
    (HEADER + "a,,,,5", "line 2: arrival must be a number, got ''"),
    (HEADER + "a,0,soon,,5", "line 2: started must be a number, got 'soon'"),
    (HEADER + "a,0,,,5;six", r"line 2: token_times\[1\] must be a number, got 'six'"),
    (HEADER + "a,0,,,5;;6", r"line 2: token_times\[1\] must be a number, got ''"),
    (HEADER + "a,0,,,5;", r"line 2: token_times\[1\] must be a number, got ''"),
    (HEADER + "a,0,,,1_0", r"line 2: token_times\[0\] must be a number, got '1_0'"),
    (HEADER + "a,0,,,5;nan", r"line 2: token_times\[1\] must be a finite number, got nan"),
    (HEADER + "a,0,,,1e400", r"line 2: token_times\[0\] must be a finite number, got inf"),
    (HEADER + "a,inf,,,", "line 2: arrival must be a finite number, got inf"),
    (HEADER + "a,0,,,5\n\nb,0,,,6;4", r"line 4: token_times\[1\] must not be before token_times\[0\] = 6"),
    (HEADER + "a,9,,,6", r"line 2: token_times\[0\] must not be before arrival = 9, got 6"),
    (HEADER + "a,9,7,,", "line 2: started must not be before arrival = 9, got 7"),
    (HEADER + "a,0,,,5,6", "line 2: 5 fields are needed, got 6"),
    (HEADER + "a,0,,timeout", "line 2: 5 fields are needed, got 4"),
    (HEADER + 'a,0,,"open,5', "line 2: unexpected end of data"),
    ("request_id,arrival\na,0", "line 1: the columns must be request_id,arrival,started,error,token_times"),
    ("arrival,token_times,errror\n0,5,x", "line 1: the columns must be"),
    ("arrival,arrival,token_times\n0,0,5", "line 1: the columns must be"),
    ("arrival;token_times\n0;5", "line 1: the columns must be"),
    ("hello", "line 1: the columns must be"),
    ("", "is empty"), (" \n\n", "is empty"), (b"\xff\xfe\x00", "is not UTF-8"),
])
def test_a_bad_csv_file_is_refused_with_file_line_and_reason(file, text, message):
    path = file(text)
    with pytest.raises(ValueError, match=message) as caught:
        load_traces(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_traces(tmp_path / "none.csv")


times = st.lists(st.one_of(st.integers(0, 10**15), st.floats(0, 1e15)), max_size=6).map(sorted)


@settings(deadline=None, derandomize=True, max_examples=80)
@given(st.lists(st.tuples(times, st.sampled_from([None, "lost", 'a "b", c'])), max_size=5))
def test_law_csv_and_jsonl_give_back_what_was_written(tmp_path_factory, requests):
    traces = [RequestTrace(0, t, error=e, request_id=str(i)) for i, (t, e) in enumerate(requests)]
    folder = tmp_path_factory.mktemp("round")
    rows = []
    for trace in traces:
        quoted = '"' + (trace.error or "").replace('"', '""') + '"'
        rows.append(f"{trace.request_id},0,,{quoted},{';'.join(map(repr, trace.token_times))}\n")
    (folder / "a").write_text(HEADER + "".join(rows))
    assert load_traces(folder / "a") == traces
    if traces:
        names = ("arrival", "token_times", "error", "request_id")
        (folder / "b").write_text(lines(*({name: getattr(t, name) for name in names} for t in traces)))
        assert load_traces(folder / "b") == traces


# JSONL --------------------------------------------------------------------------------------------

def test_jsonl_takes_every_argument_of_a_trace(file):
    path = file(lines(
        {"arrival": 0, "token_times": [150, 190], "started": 30, "request_id": 7},
        {"arrival": 1, "chunks": [[5, 2], [6, 0]], "unit": "ms", "token_times": None},
        {"arrival": 1, "span": [5, 9, 3], "error": None},
        {"arrival": 2, "error": "503"},
    ) + "\n\n")
    assert load_traces(path) == [
        RequestTrace(0, [150, 190], started=30, request_id=7),
        RequestTrace(1, chunks=[(5, 2)]),
        RequestTrace(1, span=(5, 9, 3)),
        RequestTrace(2, error="503"),
    ]


def test_one_object_and_a_list_of_objects_are_read_too(file):
    one, two = RequestTrace(0, [1]), RequestTrace(5)
    assert load_traces(file('{"arrival": 0,\n "token_times": [1]}')) == [one]
    assert load_traces(file('[{"arrival": 0,\n "token_times": [1]},\n {"arrival": 5}]')) == [one, two]
    assert load_traces(file("[]")) == []


@pytest.mark.parametrize(("text", "message"), [
    ('{"arrival": 0}\n{"arrival": 1', "line 2, column 14: not JSON"),
    ('{"arrival": 0\n', "line 2, column 1: not JSON"),
    ('{"arrival": 0}\n{"arrival": NaN}', "line 2: arrival must be a finite number, got nan"),
    ('{"arrival": 0}\n\n{"arrival": 5, "token_times": [4]}', r"line 3: token_times\[0\] must not be before"),
    ('{"arrival": 0}\n5', "line 2: an object is needed, got 5"),
    ('{"arrival": 0, "token_time": [1]}', "unknown token_time; allowed are arrival, token_times"),
    ('{"token_times": [1]}', r"no trace \(arrival is missing\).*its keys are token_times"),
    ('{"arrival": null}', "line 1: arrival must be a finite number, got None"),
    ('{"arrival": "0"}', "arrival must be a finite number, got '0'"),
    ('{"arrival": 0, "token_times": 5}', "token_times must be a sequence"),
    ('{"arrival": 0, "error": {"code": 5}}', "error must be a message"),
    ('{"arrival": 0, "chunks": [[1]]}', r"chunks\[0\] must be a sequence of 2"),
    pytest.param('{"arrival": 1' + "0" * 400 + "}", "arrival must be a finite number", id="huge"),
    pytest.param("[" * 200_000, "lists too deep", id="deep"),
    ("{}", "its keys are none"), ("[5]", "item 0: an object is needed, got 5"),
    ('{"mean_ttft_ms": 5, "completed": 3}', "--save-detailed"),
])
def test_a_bad_json_file_is_refused_with_file_place_and_reason(file, text, message):
    path = file(text)
    with pytest.raises(ValueError, match=message) as caught:
        load_traces(path)
    assert str(path) in str(caught.value)


# Result files of tools ----------------------------------------------------------------------------

def test_vllm_detailed_results():
    """vllm/benchmarks/serve.py: parallel lists in seconds, output_lens 0 where a request failed."""
    traces = load_traces(DATA / "bench_vllm.json")
    assert [measures(t) for t in traces] == [
        (150, [40, 45, 35], 40, 270, 4), (200, [], None, 200, 1), (100, None, 33.333333, 200, 4),
        (None, None, None, None, 0), (120, [30], 30, 150, 2), (250, [], None, 250, 1)]
    assert [t.arrival for t in traces] == [0, 250, 500, 500, 750, 1000]
    assert [t.error for t in traces] == [
        None, None, None, "Service Unavailable", "Traceback: ServerDisconnectedError", None]
    report = summarize(traces, slo={"ttft": 250, "tpot": 40})
    assert (report.n, report.n_errors, report.n_without_tpot) == (6, 2, 2)
    assert (report.ttft.count, report.tpot.count, report.partial_ttft.count) == (4, 2, 1)
    assert report.ttft.mean == pytest.approx(175)
    assert report.goodput == 4 / 6
    assert report.tpot.mean == pytest.approx(36.666667)  # the tool's 18.3 takes 0 for each missing one


def test_without_start_times_all_arrivals_are_zero(file):
    document = json.loads((DATA / "bench_vllm.json").read_text())
    with_starts = [measures(t) for t in load_traces(DATA / "bench_vllm.json")]
    del document["start_times"]
    traces = load_traces(file(json.dumps(document)))
    assert [t.arrival for t in traces] == [0] * 6
    assert [measures(t) for t in traces] == with_starts


def serving(ttft, itls, n, error=""):
    return {"ttfts": [ttft], "itls": [itls], "output_lens": [n], "errors": [error]}


@pytest.mark.parametrize(("document", "n", "gaps", "chunk_gaps"), [
    (serving(0.1, [0.1], 0), 0, None, None), (serving(0.0, [], 16), 0, None, None),
    (serving(0.1, [0.1], 1), 1, [], None), (serving(0.1, [], 1), 1, [], None),
    (serving(0.1, [0.5], 2), 2, [500], None), (serving(0.1, [], 9), 9, None, []),
    (serving(0.1, [0.5], 9), 9, None, None), (serving(0.1, [0.5, 0.5], 0, "lost"), 3, [500, 500], None),
    (serving(0.1, [0.5], 3, None), 3, None, None),
], ids=["no token, yet chunks", "the requested length", "more chunks than tokens", "one token", "two tokens",
        "one chunk", "two chunks", "lost after three chunks", "null error"])
def test_serving_results_by_the_number_of_chunks_and_tokens(file, document, n, gaps, chunk_gaps):
    trace, = load_traces(file(json.dumps(document)))
    assert trace.n_tokens == n and trace.chunk_gaps == chunk_gaps
    assert trace.gaps == (gaps if gaps is None else pytest.approx(gaps))
    assert trace.ttft == (pytest.approx(100) if n else None)


def test_sglang_details_a_run_a_line():
    """sglang bench_serving: success, ttft 0.0 and the requested 16 tokens for an answer without any."""
    traces = load_traces(DATA / "bench_sglang.jsonl")
    assert [measures(t) for t in traces] == [
        (100, [50, 60, 90], 66.666667, 300, 4), (None, None, None, None, 0),
        (400, None, 0, 400, 100), (None, None, None, None, 0)]
    report = summarize(traces)
    assert (report.n_errors, report.output_tokens) == (2, 104)
    assert report.ttft.mean == pytest.approx(250)  # with the 0.0 of failed requests: 125


def test_aiperf_records():
    """aiperf profile_export.jsonl: ns and units; gaps of chunks are none of tokens; warm-up left out."""
    traces = load_traces(DATA / "bench_aiperf.jsonl")
    assert [t.request_id for t in traces] == ["a", "b", "c", "d", "e"]
    assert [measures(t) for t in traces] == [
        (255, [10, 12, 20], 14, 297, 4), (100, None, 50, 500, 9), (None, None, None, None, 0),
        (300, None, 0, 300, 3), (None, None, None, None, 0)]
    assert traces[1].arrival == pytest.approx(1e-4, rel=1e-9)  # 100 ns: lost in a float of epoch ms
    assert traces[2].error == "499 RequestCancellationError Request was cancelled after 0.000 seconds"
    assert traces[4].failed  # `if not output_token_count` takes these 0 tokens for a missing count
    assert summarize(traces).n_errors == 2


def test_aiperf_one_token_ends_where_it_begins(file):
    metrics = {"time_to_first_token": {"value": 5, "unit": "ms"},
               "request_latency": {"value": 9, "unit": "ms"},
               "output_sequence_length": {"value": 1, "unit": "tokens"}}
    trace, = load_traces(file(lines({"metadata": {"request_start_ns": 7}, "metrics": metrics})))
    assert measures(trace) == (5, [], None, 5, 1)


def test_aiperf_the_count_without_reasoning_serves_where_the_whole_length_is_missing(file):
    metrics = {"time_to_first_token": {"value": 5, "unit": "ms"},
               "request_latency": {"value": 9, "unit": "ms"},
               "output_token_count": {"value": 3, "unit": "tokens"}}
    trace, = load_traces(file(lines({"metadata": {"request_start_ns": 7}, "metrics": metrics})))
    assert measures(trace) == (5, None, 2, 9, 3)


def test_aiperf_a_cancelled_request_failed_also_without_an_error(file):
    metadata = {"request_start_ns": 7, "was_cancelled": True}
    metrics = {"time_to_first_token": {"value": 5, "unit": "ms"}}
    trace, = load_traces(file(lines({"metadata": metadata, "metrics": metrics})))
    assert (trace.error, trace.ttft) == ("cancelled", 5)


def test_genai_perf_profile_export():
    """genai-perf llm_profile_data_parser.py: role, usage, [DONE] are no tokens; it skips empty requests."""
    traces = load_traces(DATA / "bench_genai_perf.json")
    assert [measures(t) for t in traces] == [
        (220, [20], 20, 240, 2), (100, None, 33.333333, 200, 4), (100, None, 50, 400, 7),
        (100, [], None, 100, 1), (None, None, None, None, 0)]
    assert traces[1].chunk_gaps == pytest.approx([100])
    assert [t.failed for t in traces] == [False, False, False, True, True]
    assert traces[3].error == "500 out of memory"


@pytest.mark.parametrize(("outputs", "n"), [
    ([{"text_output": "a"}, {"text_output": ""}, {"text_output": "b"}], 2),
    ([{"output_ids": [1, 2]}, {"output_ids": 7}, {"output_ids": ""}], 3),
    ([{"response": 'data: {"text_output": "a"}'}, {"response": ": ping"}, {"response": ""}], 1),
    ([{"response": '{"choices": [{"text": "abc"}],\n "usage": {"completion_tokens": 9}}'},
      {"response": ""}, {"response": ""}], 9),
    ([{"response": 'data: {"choices": [{"delta": {"reasoning_content": "a"}}]}'},
      {"response": 'data: {"choices": [{"delta": {"content": null, "tool_calls": [{}]}}]}'},
      {"response": 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}'}], 2),
    ([{"response": 'data: {"choices": [{"delta": {"cont'}, {"response": 'ent": "a"}}]}'},
      {"response": "data: [DONE]"}], 1),
], ids=["triton", "token ids", "generate", "not streamed", "reasoning and tools", "in pieces"])
def test_perf_analyzer_responses_of_every_kind(file, outputs, n):
    request = {"timestamp": 10**6, "response_timestamps": [3 * 10**6, 5 * 10**6, 8 * 10**6],
               "response_outputs": outputs}
    trace, = load_traces(file(lines({"experiments": [{"experiment": {}, "requests": [request]}]})))
    assert trace.n_tokens == n and not trace.failed
    assert trace.ttft == pytest.approx(2)


def perf_analyzer_trace(file, *responses):
    """The trace of one request at 0 whose responses come at 2, 4, … ms."""
    request = {"timestamp": 0, "response_timestamps": [2 * 10**6 * (i + 1) for i in range(len(responses))],
               "response_outputs": [{"response": response} for response in responses]}
    trace, = load_traces(file(lines({"experiments": [{"experiment": {}, "requests": [request]}]})))
    return trace


def test_perf_analyzer_a_usage_in_a_chunk_of_its_own_counts_tokens_and_is_no_end(file):
    text = 'data: {"choices": [{"delta": {"content": "ab"}}]}'
    trace = perf_analyzer_trace(file, text, text, 'data: {"choices": [], "usage": {"completion_tokens": 5}}')
    assert measures(trace) == (2, None, 0.5, 4, 5)


def test_perf_analyzer_an_error_stays_an_error_whatever_follows(file):
    text = 'data: {"choices": [{"delta": {"content": "a"}}]}'
    trace = perf_analyzer_trace(file, text, 'data: {"error": "overloaded"}', "data: [DONE]")
    assert (trace.error, trace.n_tokens, trace.failed) == ("overloaded", 1, True)


def guidellm_trace(file, status, output_tokens, **times):
    request = {"request_id": "x", "output_tokens": output_tokens, "info": {"timings": times}}
    trace, = load_traces(file(json.dumps({"benchmarks": [{"requests": {status: [request]}}]})))
    return trace


def test_guidellm_one_iteration_of_several_tokens_is_one_chunk(file):
    trace = guidellm_trace(file, "successful", 3, request_start=1.0, first_token_iteration=1.5,
                           last_token_iteration=1.5, token_iterations=1, request_end=2.0)
    assert measures(trace) == (500, None, 0, 500, 3) and trace.chunk_gaps == []


def test_guidellm_a_token_that_was_seen_counts_where_a_failed_request_has_no_usage(file):
    trace = guidellm_trace(file, "errored", None, resolve_start=1.0, first_token_iteration=1.5,
                           last_token_iteration=1.75)
    assert (trace.n_tokens, trace.ttft, trace.error) == (1, 500, "errored")
    assert summarize([trace]).partial_ttft.count == 1


def test_guidellm_counts_iterations_where_there_is_no_usage(file):
    trace = guidellm_trace(file, "successful", None, request_start=1.0, first_token_iteration=1.5,
                           last_token_iteration=1.75, token_iterations=6)
    assert measures(trace) == (500, None, 50, 750, 6)


def test_guidellm_benchmarks():
    """guidellm schemas: first token, last token and n alone.  Its own 78.1 ms named TPOT is e2e / n."""
    traces = load_traces(DATA / "bench_guidellm.json")
    assert [measures(t) for t in traces] == [
        (125, None, 62.5, 312.5, 4), (250, [], None, 250, 1), (500, None, 0, 500, 6),
        (500, [250], 250, 750, 2), (None, None, None, None, 0)]
    assert [t.arrival for t in traces] == [0, 1000, 2000, 3000, 3500]
    assert [t.error for t in traces] == [None, None, None, "incomplete", "503 Service Unavailable"]
    assert traces[0].mean_time_per_output == 78.125
    assert summarize(traces).partial_ttft.count == 1


def test_guidellm_of_old_releases():
    traces = load_traces(DATA / "bench_guidellm_0_3.json")
    assert [measures(t) for t in traces] == [(125, None, 62.5, 312.5, 4), (None, None, None, None, 0)]
    assert [t.error for t in traces] == [None, "timeout"]


def silent(start):
    """A request of Perf Analyzer without any response."""
    return {"timestamp": start, "response_timestamps": [], "response_outputs": []}


def timings(document):
    return document["benchmarks"][0]["requests"]["successful"][0]["info"]["timings"]


@pytest.mark.parametrize(("name", "change", "message"), [
    ("bench_vllm.json", lambda d: d.pop("itls"), "serving with 'itls' missing"),
    ("bench_vllm.json", lambda d: d["ttfts"].pop(), "differ in length"),
    ("bench_vllm.json", lambda d: d.update(ttfts=[float("nan")] * 6), r"ttfts\[0\] must be a finite number"),
    ("bench_vllm.json", lambda d: d["itls"][0].insert(1, -0.1), r"itls \[0\]\[2\] must be a finite number"),
    ("bench_vllm.json", lambda d: d.update(output_lens=[2.5] * 6), r"output_lens\[0\] must be a whole"),
    ("bench_vllm.json", lambda d: d.update(start_times=[5, "x"] * 3), r"start_times\[1\] must be a finite"),
    ("bench_vllm.json", lambda d: d.update(start_times=[10**400] * 6), r"start_times\[0\] must be a finite"),
    ("bench_genai_perf.json",
     lambda d: d["experiments"][0].update(requests=[silent(10**308), silent(-10**308)]), "too large"),
    ("bench_vllm.json", lambda d: d.update(ttfts=5), "not the shape of a result of serving"),
    ("bench_guidellm.json", lambda d: d["benchmarks"][0]["requests"].clear(), "no benchmark holds a request"),
    ("bench_guidellm.json", lambda d: d["benchmarks"][0].pop("requests"), "guidellm with 'requests' missing"),
    ("bench_guidellm.json", lambda d: d.update(benchmarks=[5]), "not the shape of a result of guidellm"),
    ("bench_guidellm.json", lambda d: timings(d).update(last_token_iteration=1700000000.0),
     r"successful request 0: span\[1\] must not be before span\[0\]"),
    ("bench_genai_perf.json", lambda d: d["experiments"][0]["requests"][0]["response_timestamps"].pop(),
     "line 1: request 0: response_timestamps and response_outputs differ in length"),
    ("bench_genai_perf.json", lambda d: d["experiments"][0]["requests"][1].update(timestamp=176 * 10**16),
     r"experiment 0, request 1: chunks\[0\]\[0\] must not be before arrival"),
])
def test_a_broken_result_file_is_refused_with_place_and_reason(file, name, change, message):
    document = json.loads((DATA / name).read_text())
    change(document)
    path = file(json.dumps(document))
    with pytest.raises(ValueError, match=message) as caught:
        load_traces(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("metrics", "message"), [
    ({"time_to_first_token": {"value": 5, "unit": "weeks"}}, "unit must be one of ns, us, ms, s, sec"),
    ({"time_to_first_token": {"value": 5, "unit": "ms"}, "request_latency": {"value": 9, "unit": "ms"}},
     "output_sequence_length is missing"),
    ({"time_to_first_token": {"value": "5", "unit": "ms"}}, "must be a finite number >= 0, got '5'"),
    ({"time_to_first_token": 5}, "not the shape of a result of aiperf"),
])
def test_a_broken_aiperf_line_is_refused_with_its_line(file, metrics, message):
    good = (DATA / "bench_aiperf.jsonl").read_text().splitlines()[1]
    bad = {"metadata": {"request_start_ns": 5}, "metrics": metrics, "error": None}
    with pytest.raises(ValueError, match=f"line 2: .*{message}"):
        load_traces(file(good + "\n" + json.dumps(bad)))
