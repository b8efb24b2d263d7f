"""A trace in milliseconds: the machine, the cost rule, the clock, the workloads, and what a setting gave."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.config import GPTConfig
from mgpt.cost import decode_cost, prefill_cost, weight_count
from mgpt.machine import (
    DRAFT, GIB, SERVED, TEACHING_MACHINE, Machine, Roofline, blocks_in, kv_bytes_per_position, kv_memory,
    resident_weight_bytes, weight_bytes)
from mgpt.model import init_params
from mgpt.quantize import quantize_params
from mgpt.scheduler import Request, simulate
from mgpt.serving import Setting, serve
from mgpt.timing import summarize
from mgpt.workloads import WORKLOADS, workload

SMALL = GPTConfig(vocab_size=50, max_seq_len=256, n_layer=2, n_head=4, n_kv_head=2, head_dim=8, n_embd=32, n_inner=40,
                  tie_embeddings=False)
UNIT = Machine(peak=1e30, bandwidth=1e30, memory=2**60, reserve=0, overhead=1.0)  # every pass lasts 1 ms


# ------------------------------------------------------------------ the cost rule
@pytest.mark.parametrize("config", [SMALL, SERVED, replace(SERVED, n_kv_head=1), DRAFT])
@pytest.mark.parametrize("context", [1, 2, 37, 1000])
def test_a_decode_costs_what_the_counter_says(config, context):
    rule, cost = Roofline(config, kv="f16"), decode_cost(config, context, bytes_per_value=2)
    assert rule.work([(context - 1, 1, 1)]) == (cost.flops, cost.bytes_weights + cost.bytes_kv)
    three = decode_cost(config, context, batch=3, bytes_per_value=2)
    assert rule.work([(context - 1, 1, 1)] * 3) == (three.flops, three.bytes_weights + three.bytes_kv)


@pytest.mark.parametrize("n", [1, 2, 37, 1000])
def test_a_prompt_costs_what_the_counter_says_without_what_the_mask_hides(n):
    cost, rule = prefill_cost(SERVED, n, bytes_per_value=2), Roofline(SERVED)
    hidden = 4 * SERVED.n_layer * SERVED.n_head * SERVED.head_dim * n * (n - 1) // 2
    assert rule.work([(0, n, 1)]) == (cost.flops - hidden, cost.bytes_weights + cost.bytes_kv)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 50))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_chunks_of_a_prompt_compute_what_the_whole_computes(chunks, start):
    rule, whole = Roofline(SERVED), [(start, sum(chunks), 1)]
    parts = [rule.work([(start + sum(chunks[:i]), n, int(i == len(chunks) - 1))]) for i, n in enumerate(chunks)]
    assert sum(flops for flops, _bytes in parts) == rule.work(whole)[0]
    assert sum(nbytes for _flops, nbytes in parts) >= rule.work(whole)[1]


def test_a_pass_lasts_as_long_as_the_longer_of_computing_and_reading():
    machine = Machine(peak=1e12, bandwidth=1e9, memory=GIB, reserve=0, overhead=2.5)
    rule = Roofline(SMALL, machine)
    for passes in ([(0, 5, 1)], [(0, 200, 1)], [(9, 1, 1)] * 40):
        flops, nbytes = rule.work(passes)
        assert rule.ms(passes) == 2.5 + max(flops / 1e9, nbytes / 1e6)
    assert rule.work([]) == (0, 2 * weight_count(SMALL))


@pytest.mark.parametrize("form, bits", [("int8", 8), ("int4", 4)])
def test_quantized_weights_take_what_quantize_params_counts(form, bits):
    params = init_params(SMALL, np.random.default_rng(1))
    _values, nbytes = quantize_params(params, bits, per=32)
    left = SMALL.n_layer * 2 * SMALL.n_embd + SMALL.n_embd + 2 * SMALL.n_embd * SMALL.vocab_size  # in float64 there
    assert resident_weight_bytes(SMALL, form) == nbytes - 8 * left + 2 * left


def test_known_bytes_of_the_served_model():
    assert weight_bytes(SERVED) == 11_604_074_496 and resident_weight_bytes(SERVED) == 11_866_218_496
    assert [kv_bytes_per_position(SERVED, kv) for kv in ("f16", "int8", "int4")] == [131_072, 67_584, 34_816]
    assert kv_memory(TEACHING_MACHINE, SERVED) == 16 * GIB - GIB - 11_866_218_496
    assert blocks_in(10 * 64 * 131_072 - 1, SERVED, 64) == 9 and blocks_in(0, SERVED, 64) == 0


def test_a_machine_without_room_is_refused():
    with pytest.raises(ValueError, match="weights and reserve"):
        kv_memory(replace(TEACHING_MACHINE, memory=12 * GIB), SERVED)
    for change in ({"peak": 0}, {"bandwidth": -1}, {"memory": 1.5}, {"overhead": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(change))):
            replace(TEACHING_MACHINE, **change)
    for call in (lambda: weight_bytes(SERVED, "int3"), lambda: kv_bytes_per_position(SERVED, "f8"), lambda: blocks_in(1, SERVED, 0)):
        with pytest.raises(ValueError):
            call()


# ------------------------------------------------------------------ the clock
def draw(data):
    arrival, requests = 0, []
    for i in range(data.draw(st.integers(1, 7))):
        arrival += data.draw(st.integers(0, 3))
        prompt, key = data.draw(st.integers(1, 20)), data.draw(st.sampled_from([None, "x", "y"]))
        shared = data.draw(st.integers(0, prompt)) if key else 0
        requests.append(Request(i, arrival, prompt, data.draw(st.integers(1, 6)), key, shared))
    return requests


@given(st.data())
@settings(deadline=None, derandomize=True, max_examples=150)
def test_with_ticks_of_one_ms_it_is_the_scheduler_tick_by_tick(data):
    requests = draw(data)
    given = {"policy": data.draw(st.sampled_from(["continuous", "static"])), "max_active": data.draw(st.integers(1, 4)),
             "block_size": data.draw(st.sampled_from([1, 4, 8])), "token_budget": data.draw(st.sampled_from([None, 3, 8])),
             "sharing": data.draw(st.sampled_from([None, "dynamic", "prewarmed"]))}
    least = max(-(-(r.prompt_len + r.output_len - 1) // given["block_size"]) for r in requests)
    pool = least + data.draw(st.integers(0, 12)) + 12 * (given["sharing"] == "prewarmed") * 8
    requests = [Request("first", 0, 2, 40), *requests]  # nobody idles: ticks of the scheduler and ms are one clock
    pool += -(-41 // given["block_size"])
    timeline = simulate(requests, pool_blocks=pool, **given)
    memory = pool * given["block_size"] * kv_bytes_per_position(SMALL)
    outcome = serve(requests, Setting(**given), config=SMALL, machine=UNIT, memory=memory)
    assert [list(trace.token_times) for trace in outcome.traces] == [
        [t + 1 for t in served.output_ticks] for served in timeline.requests.values()]
    assert (outcome.passes, outcome.makespan) == (timeline.makespan, timeline.makespan)
    assert (outcome.peak_blocks, outcome.peak_reserved) == (timeline.peak_blocks, timeline.peak_reserved)
    assert (outcome.positions_computed, outcome.positions_reused) == (timeline.positions_computed, timeline.positions_reused)
    assert outcome.peak_waste == max(row.waste for row in timeline.ticks)
    assert outcome.pool_blocks == pool and outcome.idle_blocks == timeline.ticks[-1].blocks_after
    assert outcome.peak_active == max(sum(entry.state in ("prefill", "decode") for entry in row.requests.values())
                                      for row in timeline.ticks)


def test_between_requests_the_clock_jumps_and_no_pass_is_run():
    outcome = serve([Request("A", 5, 3, 2), Request("B", 900, 3, 1)], Setting(), config=SMALL, machine=UNIT, memory=GIB)
    assert [list(trace.token_times) for trace in outcome.traces] == [[6, 7], [901]]
    assert outcome.passes == 3 and outcome.makespan == 901
    assert [trace.ttft for trace in outcome.traces] == [1, 1]


def test_arrivals_are_milliseconds_and_a_request_joins_the_first_tick_that_starts_with_it_there():
    slow = replace(UNIT, overhead=10.0)
    outcome = serve([Request("A", 0, 3, 3), Request("B", 11, 3, 1), Request("C", 20, 3, 1)], Setting(), config=SMALL,
                    machine=slow, memory=GIB)
    assert [list(trace.token_times) for trace in outcome.traces] == [[10, 20, 30], [30], [30]]
    assert [trace.arrival for trace in outcome.traces] == [0, 11, 20]


def test_the_order_of_the_list_does_not_matter_but_that_of_equal_arrivals():
    requests = workload("chat", 12)
    first = serve(requests, Setting(max_active=3))
    assert serve(requests[::-1], Setting(max_active=3)).makespan == first.makespan
    assert [trace.request_id for trace in first.traces] == list(range(12))


def test_who_can_never_fit_is_refused_failed_and_counted():
    requests = [Request("A", 0, 8, 4), Request("B", 0, 40, 4), Request("C", 0, 250, 10)]
    outcome = serve(requests, Setting(block_size=4), config=SMALL, machine=UNIT, memory=8 * 4 * kv_bytes_per_position(SMALL))
    errors = [trace.error for trace in outcome.traces]
    assert errors[0] is None and "never fit" in errors[1] and "max_seq_len 256" in errors[2]
    report = summarize(outcome.traces, slo={"ttft": 1e9})
    assert (report.n, report.n_errors, report.goodput) == (3, 2, 1 / 3)


def test_nobody_at_all_gives_an_empty_outcome():
    outcome = serve([], Setting())
    assert (outcome.traces, outcome.passes, outcome.throughput, outcome.longest_gap) == ([], 0, 0.0, 0.0)


# ------------------------------------------------------------------ without a cache, and with guesses
def test_without_a_cache_each_output_computes_the_whole_prefix():
    outcome = serve([Request("A", 0, 8, 4)], Setting(kv_cache=False), config=SMALL, machine=UNIT, memory=GIB)
    assert outcome.positions_computed == 8 + 9 + 10 + 11  # as generate_full_prefix, chapter 1
    assert (outcome.peak_kv_bytes, outcome.pool_blocks) == (0, 0)
    rule = Roofline(SERVED)
    alone = serve([Request("A", 0, 8, 2)], Setting(kv_cache=False))
    assert alone.makespan == pytest.approx(rule.ms([(0, 8, 1)]) + rule.ms([(0, 9, 1)]), rel=1e-12)


@pytest.mark.parametrize("gamma, outputs, passes, computed", [(4, 11, 3, 8 + 5 + 5), (4, 6, 2, 8 + 5), (3, 6, 3, 8 + 4 + 1), (1, 1, 1, 8)])
def test_guesses_that_are_all_kept_save_passes_and_lose_nothing(gamma, outputs, passes, computed):
    outcome = serve([Request("A", 0, 8, outputs)], Setting(gamma=gamma, alpha=1.0, block_size=1), config=SMALL, machine=UNIT,
                    memory=GIB, draft=SMALL)
    assert (outcome.passes, outcome.positions_computed, outcome.guesses_lost) == (passes, computed, 0)
    [trace] = outcome.traces
    assert trace.n_tokens == outputs and outcome.peak_blocks == 8 + outputs - 1


def test_guesses_that_are_never_kept_lose_all_and_save_nothing():
    plain = serve([Request("A", 0, 8, 6)], Setting(), config=SMALL, machine=UNIT, memory=GIB)
    outcome = serve([Request("A", 0, 8, 6)], Setting(gamma=3, alpha=0.0), config=SMALL, machine=UNIT, memory=GIB, draft=SMALL)
    assert outcome.passes == plain.passes == 6
    assert outcome.guesses_lost == 3 + 3 + 2 + 1 + 0 and outcome.positions_computed == plain.positions_computed + 9
    assert outcome.makespan == 6 + 1 + 5 * 3  # target passes, the draft's prefill, three draft passes a round


def test_kept_guesses_come_at_the_rate_that_is_assumed():
    requests = [Request(i, 0, 4, 81) for i in range(50)]
    outcome = serve(requests, Setting(gamma=1, alpha=0.7, max_active=50), config=SMALL, machine=UNIT, memory=GIB, draft=SMALL)
    rounds = outcome.positions_computed - 50 * 4 - 50 * 80  # one position more than outputs for each guess that was lost
    assert outcome.guesses_lost == rounds
    kept = 50 * 80 - sum(len(trace.chunks) - 1 for trace in outcome.traces)
    assert kept / (kept + outcome.guesses_lost) == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize("bad, words", [
    ({"gamma": 2, "token_budget": 8}, "gamma"), ({"gamma": 2, "kv_cache": False}, "gamma"), ({"alpha": 1.5}, "alpha"),
    ({"kv_cache": False, "sharing": "dynamic"}, "sharing"), ({"gamma": -1}, "gamma"), ({"kv_cache": 2}, "kv_cache")])
def test_settings_that_mean_nothing_are_refused(bad, words):
    with pytest.raises(ValueError, match=words):
        Setting(**bad)


@pytest.mark.parametrize("bad, words", [
    ({"policy": "fair"}, "policy"), ({"block_size": 0}, "block_size"), ({"kv": "int2"}, "kv"), ({"weights": "f8"}, "weights"),
    ({"max_active": 0}, "max_active"), ({"token_budget": 0}, "token_budget"), ({"sharing": "all"}, "sharing")])
def test_a_bad_setting_is_an_error_and_no_requests_failure(bad, words):
    with pytest.raises(ValueError, match=words):
        serve([Request("A", 0, 3, 1)], Setting(**bad))


def test_memory_below_one_block_is_refused():
    with pytest.raises(ValueError, match="no block of 64"):
        serve([Request("A", 0, 3, 1)], Setting(block_size=64), memory=64 * 131_072 - 1)


# ------------------------------------------------------------------ the workloads
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_the_same_for_the_same_seed_and_starts_alike_when_longer(name):
    assert workload(name, 30) == workload(name, 30, seed=1) != workload(name, 30, seed=2)
    assert workload(name, 60)[:30] == workload(name, 30)
    arrivals = [request.arrival for request in workload(name, 60)]
    assert arrivals == sorted(arrivals) and len({request.id for request in workload(name, 60)}) == 60


def test_known_requests_of_the_seed():
    """Other numbers on another Python would make every figure of the chapter another one."""
    def first(name):
        request = workload(name, 1)[0]
        return request.arrival, request.prompt_len, request.output_len

    assert [first(name) for name in WORKLOADS] == [(20, 814, 17), (0, 867, 17), (3394, 4939, 22)]
    assert [workload("documents", 40)[-1].arrival, workload("chat", 100)[-1].arrival] == [68_440, 16_212]


def test_workloads_are_what_they_are_said_to_be():
    chat, batch, documents = (workload(name, 200) for name in WORKLOADS)
    assert {request.prefix_len for request in chat} == {512} and len({request.prefix_key for request in chat}) == 1
    assert {request.arrival for request in batch} == {0} and {request.prefix_key for request in batch} == {None}
    assert min(request.prompt_len for request in documents) > 3000
    assert max(r.prompt_len + r.output_len for r in (*chat, *batch, *documents)) <= SERVED.max_seq_len
    for bad in (lambda: workload("talk"), lambda: workload("chat", -1), lambda: workload("chat", 1, seed=1.5)):
        with pytest.raises(ValueError):
            bad()
