"""Times of a request, and reports that drop nobody.  Times of cases from tools are in seconds, as there."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.timing import Report, RequestTrace, Stats, summarize

LAW = settings(deadline=None, derandomize=True, max_examples=150)
MEASURES = ("ttft", "gaps", "chunk_gaps", "tpot", "e2e", "mean_time_per_output")
NONE = Stats(0, None, None, None, None)


def sent(ttft, gap, n, arrival=0.0, **more):
    """A trace of n tokens with equal gaps."""
    return RequestTrace(arrival, [arrival + ttft + gap * i for i in range(n)], **more)


# One trace ----------------------------------------------------------------------------------------

def test_example_30_2():
    trace = RequestTrace(0, [150, 190, 235, 270], started=30)
    assert (trace.ttft, trace.gaps, trace.tpot, trace.e2e) == (150, [40, 45, 35], 40, 270)
    assert trace.mean_time_per_output == 67.5
    assert trace.queue_time == 30
    assert (trace.n_tokens, trace.failed, trace.chunk_gaps) == (4, False, None)
    assert 1000 / trace.tpot == 25


def test_exercise_30_8_1():
    trace = RequestTrace(10, [110, 160, 220])
    assert (trace.ttft, trace.gaps, trace.tpot, trace.e2e) == (100, [50, 60], 55, 210)


def test_integers_stay_integers_and_exact():
    start = 2**60
    trace = RequestTrace(start, [start + 1, start + 3])
    assert (trace.ttft, trace.gaps, trace.e2e) == (1, [2], 3)
    assert all(type(value) is int for value in (trace.ttft, trace.e2e, *trace.gaps))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int32, Fraction], ids=lambda kind: kind.__name__)
def test_numbers_of_other_kinds_become_python_numbers(kind):
    times = np.array([110, 160]) if kind is np.int32 else [kind(110), kind(160)]
    trace = RequestTrace(kind(10), times, started=kind(20))
    for name in ("arrival", "ttft", "tpot", "e2e", "mean_time_per_output", "queue_time"):
        assert type(getattr(trace, name)) in (int, float)
    assert {type(value) for value in (*trace.gaps, *trace.token_times)} <= {int, float}
    assert (trace.ttft, trace.gaps, trace.tpot, trace.queue_time) == (100, [50], 50, 10)


@pytest.mark.parametrize("trace", [
    RequestTrace(5), RequestTrace(5, []), RequestTrace(5, chunks=[]),
    RequestTrace(5, chunks=[(6, 0), (7, 0)]), RequestTrace(5, error="503"), RequestTrace(5, [], error=""),
], ids=["nothing", "empty", "no chunk", "chunks without tokens", "error", "transport said OK"])
def test_zero_tokens_are_a_failed_request_without_any_measure(trace):
    assert trace.failed and trace.n_tokens == 0
    assert [getattr(trace, name) for name in MEASURES] == [None] * len(MEASURES)


@pytest.mark.parametrize("trace", [
    RequestTrace(0, [5]), RequestTrace(0, chunks=[(5, 1)]), RequestTrace(0, chunks=[(1, 0), (5, 1), (9, 0)]),
    RequestTrace(0, span=(5, 5, 1)),
], ids=["time", "chunk", "chunk among empty ones", "span"])
def test_one_token_has_no_gap_and_a_missing_tpot_is_none_never_zero(trace):
    assert trace.gaps == [] and trace.tpot is None
    assert (trace.ttft, trace.e2e, trace.mean_time_per_output, trace.failed) == (5, 5, 5, False)


def test_measures_of_the_largest_legal_times_stay_finite():
    trace = RequestTrace(-1e300, [1e300, 1e300])
    assert math.isfinite(trace.e2e) and math.isfinite(summarize([trace] * 3).e2e.mean)


def test_equal_times_are_legal_and_zero_is_a_measurement():
    trace = RequestTrace(7, [7, 7, 7])
    assert (trace.ttft, trace.gaps, trace.tpot, trace.e2e) == (0, [0, 0], 0, 0)
    assert trace.tpot is not None and not trace.failed


def test_a_failure_after_tokens_keeps_what_was_seen():
    trace = RequestTrace(0, [100, 150], error="connection lost")
    assert trace.failed
    assert (trace.ttft, trace.gaps, trace.n_tokens) == (100, [50], 2)


def test_an_empty_error_is_no_error():
    assert RequestTrace(0, [1], error="").error is None
    assert RequestTrace(0, [1], error="") == RequestTrace(0, [1])


def test_chunks_of_one_token_are_times_of_tokens():
    trace = RequestTrace(0, chunks=[(100, 1), (160, 1), (170, 1)])
    assert trace.gaps == trace.chunk_gaps == [60, 10]


def test_one_chunk_of_several_tokens():
    trace = RequestTrace(0, chunks=[(300, 3)])
    assert (trace.ttft, trace.gaps, trace.chunk_gaps, trace.tpot, trace.n_tokens) == (300, None, [], 0, 3)


def test_a_chunk_without_tokens_moves_neither_ttft_nor_the_end_nor_the_gaps():
    with_empty = RequestTrace(0, chunks=[(50, 0), (100, 2), (120, 0), (150, 1), (900, 0)])
    assert with_empty == RequestTrace(0, chunks=[(100, 2), (150, 1)])
    assert (with_empty.ttft, with_empty.e2e, with_empty.chunk_gaps, with_empty.tpot) == (100, 150, [50], 25)


@pytest.mark.parametrize("n", [2, 4])
def test_a_span_has_no_gaps_but_a_tpot(n):
    trace = RequestTrace(0, span=(150, 270, n))
    assert (trace.ttft, trace.tpot, trace.e2e, trace.n_tokens) == (150, 120 / (n - 1), 270, n)
    assert trace.gaps is None and trace.chunk_gaps is None


@pytest.mark.parametrize(("arguments", "named"), [
    ({"arrival": math.nan}, "arrival"), ({"arrival": math.inf}, "arrival"), ({"arrival": None}, "arrival"),
    ({"arrival": "5"}, "arrival"), ({"arrival": True}, "arrival"), ({"arrival": 10**400}, "arrival"),
    ({"arrival": 1e301}, "arrival"), ({"arrival": 1j}, "arrival"),
    ({"arrival": Fraction(10**400)}, "arrival"),
    ({"token_times": [1, math.nan]}, r"token_times\[1\]"), ({"token_times": [math.nan]}, r"token_times\[0\]"),
    ({"token_times": [1, 2, math.inf]}, r"token_times\[2\]"),
    ({"token_times": [1, -math.inf]}, r"token_times\[1\]"),
    ({"token_times": [1, 3, 2]}, r"token_times\[2\]"),
    ({"arrival": 5, "token_times": [4]}, r"token_times\[0\]"),
    ({"token_times": [1, "2"]}, r"token_times\[1\]"), ({"token_times": [False]}, r"token_times\[0\]"),
    ({"token_times": "12"}, "token_times"), ({"token_times": 5}, "token_times"),
    ({"token_times": b"1"}, "token_times"),
    ({"token_times": {1, 2}}, "token_times"), ({"token_times": None}, "token_times"),
    ({"token_times": np.array(3.0)}, "token_times"), ({"token_times": np.zeros((2, 2))}, r"token_times\[0\]"),
    ({"chunks": [(1, 1), (0.5, 1)]}, r"chunks\[1\]"), ({"chunks": [(math.nan, 1)]}, r"chunks\[0\]"),
    ({"arrival": 5, "chunks": [(4, 0), (6, 1)]}, r"chunks\[0\]"),
    ({"chunks": [(1, 1), (9, 0), (2, 1)]}, r"chunks\[2\]"),
    ({"chunks": [(1, -1)]}, r"chunks\[0\]\[1\]"), ({"chunks": [(1, 1.0)]}, r"chunks\[0\]\[1\]"),
    ({"chunks": [(1, True)]}, r"chunks\[0\]\[1\]"), ({"chunks": [1]}, r"chunks\[0\]"),
    ({"chunks": 3}, "chunks"),
    ({"chunks": [(1, 2, 3)]}, r"chunks\[0\]"),
    ({"token_times": [1], "chunks": [(1, 1)]}, "only one"), ({"token_times": [1], "chunks": []}, "only one"),
    ({"span": (1, 2, 3), "chunks": [(1, 1)]}, "only one"),
    ({"span": (2, 1, 3)}, r"span\[1\]"), ({"arrival": 5, "span": (4, 6, 3)}, r"span\[0\]"),
    ({"span": (1, 2, 0)}, r"span\[2\]"), ({"span": (1, 2, 1)}, "one token"), ({"span": (1, 2)}, "span"),
    ({"span": (math.nan, 2, 2)}, r"span\[0\]"),
    ({"arrival": 5, "started": 4}, "started"), ({"started": 2, "token_times": [1]}, "started"),
    ({"started": 2, "chunks": [(1, 0), (1.5, 1)]}, "started"), ({"started": math.nan}, "started"),
    ({"error": 5}, "error"), ({"error": True}, "error"), ({"unit": "s"}, "unit"), ({"unit": None}, "unit"),
])
def test_impossible_times_are_refused_at_construction_and_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        RequestTrace(**{"arrival": 0, **arguments})


def test_work_may_start_at_the_arrival_or_with_the_first_token_and_after_an_empty_chunk():
    assert RequestTrace(3, [9], started=3).queue_time == 0
    assert RequestTrace(3, [9], started=9).queue_time == 6
    assert RequestTrace(3, chunks=[(4, 0), (9, 1)], started=8).queue_time == 5
    assert RequestTrace(3, started=8, error="lost").queue_time == 5


def test_a_trace_cannot_be_changed():
    with pytest.raises(AttributeError):
        RequestTrace(0, [1]).arrival = 5


# Answers that tools gave, and the traps among them ------------------------------------------------

def test_met_001_tpot_divides_by_the_gaps_not_by_the_tokens():
    """vllm, sglang calculate_metrics: 66.7 ms.  Over n: 50; guidellm, the TGI router, llmperf: 75."""
    trace = RequestTrace(0.0, [0.1, 0.15, 0.21, 0.3])
    assert trace.ttft == 0.1 and trace.n_tokens == 4 and trace.e2e == 0.3
    assert trace.gaps == pytest.approx([0.05, 0.06, 0.09], abs=1e-15)
    assert trace.tpot == pytest.approx(0.06666666666666667, abs=1e-15)
    span = trace.token_times[-1] - trace.token_times[0]
    assert span / trace.n_tokens == pytest.approx(0.05) != pytest.approx(trace.tpot)
    assert trace.mean_time_per_output == pytest.approx(0.075, abs=1e-15) != pytest.approx(trace.tpot)


def test_met_002_the_tpot_of_one_token_is_missing():
    """vllm bench all_tpots, sglang goodput and the vLLM server metric say 0.0; loadgen -(latency - ttft)."""
    trace = RequestTrace(0.1, [0.2])
    assert trace.gaps == [] and trace.tpot is None
    assert trace.ttft == trace.e2e == pytest.approx(0.1, abs=1e-15)
    report = summarize([trace, RequestTrace(0, [0.1, 0.2])])
    assert report.tpot.count == 1
    assert report.tpot.mean == pytest.approx(0.1)  # with a 0.0 for the missing one it would be 0.05


def test_met_004_a_tpot_limit_does_not_apply_to_one_token():
    """vLLM, SGLang: good, because its TPOT is 0; AIPerf: not good.  Here: good by its other limits."""
    one = RequestTrace(0.1, [0.2])
    report = summarize([one], slo={"ttft": 0.15, "tpot": 0.001})
    assert (report.goodput, report.n, report.n_without_tpot) == (1.0, 1, 1)
    assert summarize([one], slo={"ttft": 0.05, "tpot": 0.001}).goodput == 0.0
    assert summarize([one], slo={"tpot": 0.001}).goodput == 1.0


def test_met_005_no_sample_has_no_statistics():
    """vllm bench prints 0.0 for each; sglang: IndexError of np.percentile([])."""
    report = summarize([RequestTrace(0, error="503")])
    assert (report.n, report.n_errors, report.failure_rate) == (1, 1, 1.0)
    assert report.ttft == report.tpot == report.gap == report.e2e == report.partial_ttft == NONE


def test_met_007_an_answer_without_a_token_is_a_failed_request():
    """sglang async_request_openai_completions: success, ttft 0.0, 16 requested tokens; totals 20, 0.05."""
    silent = RequestTrace(0, chunks=[(0.1, 0), (0.2, 0)])
    good = RequestTrace(0, [0.1, 0.15, 0.21, 0.3])
    assert silent.failed and silent.ttft is None and silent.n_tokens == 0
    report = summarize([good, silent])
    assert report.output_tokens == 4 and report.ttft.mean == 0.1


def test_met_008_tpot_uses_the_tokens_that_came():
    """sgl-project/sglang#10746: the requested 1024 in place of the actual 100 gave 9.68 ms."""
    trace = RequestTrace(0, span=(0.1, 10.0, 100))
    assert trace.tpot == pytest.approx(0.1, abs=1e-15)
    assert (10.0 - 0.1) / (1024 - 1) == pytest.approx(0.00967741935483871)


def test_met_011_a_role_only_chunk_is_no_chunk():
    """vllm-project/vllm#15106: the role chunk taken for a token gave TTFT 0.9 and gaps 1.3, 0.02."""
    trace = RequestTrace(0, chunks=[(0.9, 0), (2.2, 1), (2.22, 1)])
    assert trace.ttft == 2.2
    assert trace.gaps == pytest.approx([0.02], abs=1e-12)
    as_token = RequestTrace(0, [0.9, 2.2, 2.22])
    assert as_token.ttft == 0.9 and as_token.gaps == pytest.approx([1.3, 0.02], abs=1e-12)


def test_met_013_tokens_of_one_chunk_have_no_gaps_of_their_own():
    """vllm-project/vllm#42661 (review): [0.1] is a chunk gap; with equal stamps it would be 0, 0, 0.1."""
    trace = RequestTrace(0.0, chunks=[(0.1, 3), (0.2, 1)])
    assert (trace.ttft, trace.n_tokens, trace.gaps, trace.chunk_gaps) == (0.1, 4, None, [0.1])
    assert trace.tpot == pytest.approx(0.03333333333333333, abs=1e-15)
    assert summarize([trace]).gap == NONE


def test_met_015_a_failed_request_divides_nothing_by_its_zero_latency():
    """ray-project/llmperf#55: ZeroDivisionError ended the whole run."""
    report = summarize([RequestTrace(0, error="timeout")], slo={"e2e": 1000})
    assert report.goodput == 0.0 and report.e2e.mean is None


def test_met_017_guidellm_names_e2e_over_n_time_per_output_token():
    """vllm-project/guidellm#1144, #1145: its inter_token_latency is TPOT, its time_per_output_token not."""
    trace = RequestTrace(0.0, [0.1, 0.15, 0.21, 0.3])
    assert trace.tpot == pytest.approx(0.06666666666666667, abs=1e-15)
    assert trace.mean_time_per_output == pytest.approx(0.075, abs=1e-15)


def test_met_021_equal_time_stamps_are_legal_and_earlier_ones_are_not():
    """aiperf inter_chunk_latency_metric refuses a gap of 0 with "must be positive"."""
    assert RequestTrace(0, [0.1, 0.1, 0.2]).gaps == [0.0, 0.1]
    with pytest.raises(ValueError, match=r"token_times\[1\]"):
        RequestTrace(0, [0.1, 0.09, 0.2])


def test_met_023_failed_requests_are_no_fast_samples():
    """ai-dynamo/aiperf#1338: 34 errors of under 1 ms mixed in made 747.6 ms into 494.1."""
    report = summarize([sent(747.6, 0, 1)] * 66 + [RequestTrace(0, error="503")] * 34)
    assert report.e2e.mean == pytest.approx(747.6, rel=1e-12)
    assert (report.n, report.n_errors, report.e2e.count) == (100, 34, 66)
    assert (66 * 747.6 + 34 * 2.0) / 100 == pytest.approx(494.1, abs=0.1)


def test_met_024_a_server_that_refuses_load_does_not_look_good():
    """ai-dynamo/aiperf#688, SemiAnalysisAI/InferenceX#357, vllm-project/vllm#26478: errors dropped."""
    report = summarize([sent(10, 1, 3)] * 6 + [RequestTrace(0, error="503")] * 250, slo={"ttft": 100})
    assert report.failure_rate == 0.9765625
    assert report.ttft.count == 6
    assert report.goodput == 6 / 256  # over those that were served it would be 1.0


def test_met_025_a_503_is_a_failed_request():
    """gpustack/gpustack#1677: counted as success."""
    assert RequestTrace(0, error="HTTP 503").failed


def test_met_029_percentiles_are_numpys_linear_rule():
    """MLPerf loadgen's sorted[int(n * p)] says 10."""
    stats = summarize([sent(ttft, 0, 1) for ttft in (7, 1, 10, 2, 9, 3, 8, 4, 6, 5)]).ttft
    assert stats.p99 == pytest.approx(9.91, abs=1e-12)
    assert (stats.count, stats.mean, stats.p50) == (10, 5.5, 5.5)
    assert stats.p95 == pytest.approx(9.55, abs=1e-12)


def test_met_031_the_tgi_router_divides_the_whole_time_by_the_tokens():
    """TGI router/src/server.rs: time_per_token 0.075 = inference time / n, prefill included."""
    trace = RequestTrace(0.0, span=(0.1, 0.3, 4))
    assert trace.tpot == pytest.approx(0.06666666666666667, abs=1e-15)
    assert trace.mean_time_per_output == pytest.approx(0.075, abs=1e-15)


def test_met_032_mean_tpot_is_per_request_and_mean_gap_per_gap():
    """vllm-project/guidellm#1144: 150 ms and 109.09 ms answer two questions."""
    report = summarize([sent(0.1, 0.1, 11), sent(0.1, 0.2, 2)])
    assert (report.tpot.count, report.gap.count) == (2, 11)
    assert report.tpot.mean == pytest.approx(0.15, abs=1e-12)
    assert report.gap.mean == pytest.approx(0.10909090909090909, abs=1e-12)


def test_met_034_a_usage_chunk_is_no_end():
    """sgl-project/genai-bench#44: the usage chunk made the latency 0.5."""
    trace = RequestTrace(0, chunks=[(0.1, 1), (0.2, 1), (0.5, 0)])
    assert (trace.ttft, trace.e2e, trace.n_tokens) == (0.1, 0.2, 2)


def test_met_036_an_output_counts_once():
    """inference-sim/inference-sim#1091: outputs recomputed after a preemption were counted again, 3048."""
    assert summarize([sent(1, 1, 2048)]).output_tokens == 2048


def test_met_037_one_token_has_an_empty_list_of_gaps():
    """LMCache/LMCache#2970: a gap of 0.0."""
    assert RequestTrace(0, [5]).gaps == []
    assert summarize([RequestTrace(0, [5])]).gap == NONE


# Reports ------------------------------------------------------------------------------------------

def test_a_report_of_nothing():
    assert summarize([], slo={"ttft": 1}) == Report(0, 0, NONE, NONE, NONE, NONE, NONE, None, 0, 0, "ms")
    assert summarize([]).failure_rate is None


def test_a_report_counts_everybody():
    traces = [
        RequestTrace(0, [150, 190, 235, 270]),
        RequestTrace(100, [300]),
        RequestTrace(100, chunks=[(200, 2), (260, 2)]),
        RequestTrace(200, [250, 280], error="lost"),
        RequestTrace(200, error="503"),
        RequestTrace(200),
    ]
    report = summarize(iter(traces), slo={"ttft": 150, "tpot": 40, "e2e": 270})
    assert (report.n, report.n_errors, report.failure_rate, report.unit) == (6, 3, 0.5, "ms")
    assert report.ttft == Stats(3, 150.0, 150.0, 195.0, 199.0)
    assert report.tpot == Stats(2, 30.0, 30.0, 39.0, 39.8)
    assert report.gap == Stats(3, 40.0, 40.0, 44.5, 44.9)
    assert report.e2e == Stats(3, 630 / 3, 200.0, 263.0, 268.6)
    assert report.partial_ttft == Stats(1, 50.0, 50.0, 50.0, 50.0)
    assert report.goodput == pytest.approx(2 / 6)
    assert (report.n_without_tpot, report.output_tokens) == (1, 11)


def test_limits_are_inclusive_and_all_of_them_hold():
    trace = RequestTrace(0, [150, 190, 235, 270])
    for limits, good in [({"ttft": 150}, 1), ({"ttft": 149.99}, 0), ({"tpot": 40}, 1), ({"tpot": 39}, 0),
                         ({"e2e": 270}, 1), ({"e2e": 269}, 0), ({"ttft": 150, "tpot": 39}, 0),
                         ({"ttft": 150, "tpot": 40, "e2e": 270}, 1)]:
        assert summarize([trace], slo=limits).goodput == good
    assert summarize([RequestTrace(0, [0, 0])], slo={"ttft": 0, "tpot": 0, "e2e": 0}).goodput == 1.0


def test_goodput_is_missing_without_an_slo():
    assert summarize([sent(1, 1, 2)]).goodput is None
    assert summarize([sent(1, 1, 2)], slo={}).goodput is None


@pytest.mark.parametrize("error", ["lost", None], ids=["after tokens", "without a token"])
def test_a_failed_request_is_never_good_and_has_no_part_in_n_without_tpot(error):
    report = summarize([RequestTrace(0, [1] if error else [], error=error)], slo={"ttft": 1e9})
    assert (report.goodput, report.n_without_tpot) == (0.0, 0)


@pytest.mark.parametrize(("slo", "named"), [
    ({"itl": 5}, "slo key"), ({"ttft": -1}, "ttft"), ({"tpot": math.nan}, "tpot"), ({"e2e": "5"}, "e2e"),
    ({"ttft": None}, "ttft"), ({"ttft": math.inf}, "ttft"), ({"ttft": True}, "ttft"), (5, "slo"),
    ([("ttft", 5)], "slo"), ("ttft=5", "slo"),
])
def test_bad_limits_are_refused_also_for_an_empty_report(slo, named):
    for traces in ([], [sent(1, 1, 2)]):
        with pytest.raises(ValueError, match=named):
            summarize(traces, slo=slo)


ONE = RequestTrace(0, [1])


@pytest.mark.parametrize("traces", [[ONE, {"arrival": 0}], [[1, 2]], 5, None, ONE])
def test_only_traces_are_summarized(traces):
    with pytest.raises(ValueError, match="traces"):
        summarize(traces)


def test_ticks_and_milliseconds_are_not_mixed():
    ticks = RequestTrace(0, [1, 2], unit="tick")
    assert summarize([ticks]).unit == "tick"
    with pytest.raises(ValueError, match="unit"):
        summarize([ticks, RequestTrace(0, [1, 2])])


def test_a_report_holds_python_numbers_alone():
    report = summarize([RequestTrace(np.float64(0), np.array([1.5, 2.5]))] * 2, slo={"ttft": np.float64(9)})
    for stats in (report.ttft, report.tpot, report.gap, report.e2e):
        assert type(stats.count) is int
        assert all(type(v) is float for v in (stats.mean, stats.p50, stats.p95, stats.p99))
    assert type(report.goodput) is float
    assert "np." not in repr(report)


# Laws ---------------------------------------------------------------------------------------------

arrivals = st.integers(-10**6, 10**6)
waits = st.lists(st.integers(0, 10**6), min_size=1, max_size=30)


def running(arrival, steps):
    times = []
    for step in steps:
        times.append((times[-1] if times else arrival) + step)
    return times


@LAW
@given(arrivals, waits)
def test_law_gaps_are_n_minus_1_and_add_up(arrival, steps):
    trace = RequestTrace(arrival, running(arrival, steps))
    assert trace.n_tokens == len(steps) and trace.ttft == steps[0] and trace.gaps == steps[1:]
    assert trace.e2e == trace.ttft + sum(trace.gaps) == sum(steps)
    if len(steps) > 1:
        assert trace.e2e == pytest.approx(trace.ttft + (trace.n_tokens - 1) * trace.tpot, rel=1e-12)


@LAW
@given(arrivals, waits, st.integers(-10**6, 10**6))
def test_law_a_shift_of_the_clock_changes_no_measure(arrival, steps, shift):
    times = running(arrival, steps)
    moved = RequestTrace(arrival + shift, [t + shift for t in times], started=arrival + shift)
    still = RequestTrace(arrival, times, started=arrival)
    for name in (*MEASURES, "queue_time"):
        assert getattr(moved, name) == getattr(still, name)


@LAW
@given(arrivals, st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 4)), max_size=20))
def test_law_chunks_agree_with_their_tokens_stamped_alike(arrival, steps):
    times = running(arrival, [step for step, _ in steps])
    chunks = [(t, k) for t, (_, k) in zip(times, steps)]
    together = RequestTrace(arrival, chunks=chunks)
    stamped = RequestTrace(arrival, [t for t, k in chunks for _ in range(k)])
    for name in ("n_tokens", "failed", "ttft", "tpot", "e2e", "mean_time_per_output"):
        assert getattr(together, name) == getattr(stamped, name)
    kept = [t for t, k in chunks if k]
    assert together.chunk_gaps == ([b - a for a, b in zip(kept, kept[1:])] if kept else None)
    several = together.n_tokens == 0 or together.n_tokens > 1 and any(k > 1 for _, k in chunks)
    assert together.gaps == (None if several else stamped.gaps)


@LAW
@given(st.lists(st.tuples(waits, st.booleans()), max_size=12), st.integers(0, 10**6))
def test_law_nobody_is_dropped_and_order_is_nothing(requests, limit):
    traces = [RequestTrace(0, running(0, steps), error="lost" if bad else None) for steps, bad in requests]
    report = summarize(traces, slo={"ttft": limit})
    assert report.n == len(traces) == report.n_errors + report.ttft.count
    assert report.ttft.count == report.tpot.count + report.n_without_tpot == report.e2e.count
    assert report.partial_ttft.count == report.n_errors  # all of these got a token
    assert report.output_tokens == sum(len(steps) for steps, _ in requests)
    good = sum(not bad and steps[0] <= limit for steps, bad in requests)
    assert report.goodput == (good / len(traces) if traces else None)
    for stats in (report.ttft, report.tpot, report.gap, report.e2e):
        assert (stats.count == 0) == (stats.mean is None)
        assert stats.count == 0 or stats.p50 <= stats.p95 <= stats.p99
    backwards = summarize(traces[::-1], slo={"ttft": limit})
    assert backwards == report
