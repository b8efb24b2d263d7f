"""The scheduler's ticks: the A/B/C trace in full, public bug reports, laws over random workloads."""

import json
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mgpt.blocks import BlockPool
from mgpt.prefix import PrefixCache
from mgpt.scheduler import CLOCK_RULE, Request, RequestTick, Scheduler, simulate

DATA = Path(__file__).parent / "data"
ABC = [Request(**entry) for entry in json.loads((DATA / "abc.json").read_text(encoding="utf-8"))]
SCENARIOS = json.loads((DATA / "scenarios.json").read_text(encoding="utf-8"))

# The table of the conventions: policy, budget, sharing; output ticks, TTFT, latency, completion of A / B / C;
# peak blocks, peak reserved, positions computed, positions reused.
TABLE = [
    ("static", None, None, "0–3 / 4–6 / 4–5", "1/4/3", "4/6/4", "4/7/6", 5, 5, 26, 0),
    ("static", None, "prewarmed", "0–3 / 4–6 / 4–5", "1/4/3", "4/6/4", "4/7/6", 5, 5, 18, 8),
    ("static", 4, None, "1–4 / 6–8 / 8–9", "2/6/7", "5/8/8", "5/9/10", 4, 5, 26, 0),
    ("static", 8, None, "0–3 / 4–6 / 5–6", "1/4/4", "4/6/5", "4/7/7", 5, 5, 26, 0),
    ("continuous", None, None, "0–3 / 1–3 / 4–5", "1/1/3", "4/3/4", "4/4/6", 6, 6, 26, 0),
    ("continuous", None, "prewarmed", "0–3 / 1–3 / 4–5", "1/1/3", "4/3/4", "4/4/6", 5, 5, 18, 8),
    ("continuous", 4, None, "1–4 / 4–6 / 6–7", "2/4/5", "5/6/6", "5/7/8", 5, 6, 26, 0),
    ("continuous", 4, "prewarmed", "0–3 / 2–4 / 5–6", "1/2/4", "4/4/5", "4/5/7", 5, 5, 18, 8),
    ("continuous", 8, None, "0–3 / 2–4 / 4–5", "1/2/3", "4/4/4", "4/5/6", 6, 6, 26, 0),
]


def abc(policy="continuous", **more):
    return simulate(ABC, policy=policy, **{"max_active": 2, "block_size": 4, **more})


def outputs(timeline):
    return {key: served.output_ticks for key, served in timeline.requests.items()}


def column(timeline, field, key=None):
    return [getattr(row if key is None else row.requests[key], field) for row in timeline.ticks]


# ---------------------------------------------------------------- the A/B/C trace

@pytest.mark.parametrize("line", TABLE, ids=[f"{line[0]}-{line[1]}-{line[2]}" for line in TABLE])
def test_the_abc_table(line):
    policy, budget, sharing, ticks, ttft, latency, completion, peak, reserved, computed, reused = line
    timeline = abc(policy, token_budget=budget, sharing=sharing)
    served = list(timeline.requests.values())
    assert " / ".join(f"{r.output_ticks[0]}–{r.output_ticks[-1]}" for r in served) == ticks
    assert "/".join(str(r.ttft) for r in served) == ttft
    assert "/".join(str(r.latency) for r in served) == latency
    assert "/".join(str(r.completion) for r in served) == completion
    assert (timeline.peak_blocks, timeline.peak_reserved) == (peak, reserved)
    assert (timeline.positions_computed, timeline.positions_reused) == (computed, reused)
    assert timeline.makespan == max(r.completion for r in served) == len(timeline.ticks)


@pytest.mark.parametrize("case", SCENARIOS, ids=[f"{case['id']} {case['title']}" for case in SCENARIOS])
def test_every_row_of_an_independent_simulator(case):
    """Full tick tables from an independent reference simulator, field by field."""
    timeline = simulate(ABC, **case["settings"])
    assert {name: getattr(timeline, name) for name in case["totals"]} == case["totals"]
    for field in ("output_ticks", "ttft", "latency", "completion"):
        assert {key: getattr(served, field) for key, served in timeline.requests.items()} == case[field]
    assert max(column(timeline, "physical_positions")) == case["peak_physical"]
    assert timeline.ticks[-1].blocks_after == case["resident_at_end"]
    computed = 0
    for row, want in zip(timeline.ticks, case["ticks"], strict=True):
        computed += sum(entry["inputs"] for entry in want["requests"].values())
        assert row.positions_computed == computed
        for key, entry in want.pop("requests").items():
            assert {field: getattr(row.requests[key], field) for field in entry} == entry
        assert list(row.shared_users.values()) == want.pop("users")
        assert {field: getattr(row, field) for field in want} == want


def test_tick_1_of_the_continuous_run():
    row = abc().ticks[1]
    a, b, c = (row.requests[key] for key in "ABC")
    assert a == RequestTick("decode", start=8, inputs=1, sampled=True, outputs=2, positions=9, blocks=3)
    assert b == RequestTick("prefill", start=0, inputs=8, sampled=True, outputs=1, positions=8, blocks=2)
    assert c == RequestTick("not arrived", None, inputs=0, sampled=False, outputs=0, positions=0, blocks=0)
    assert (row.blocks_in_use, row.blocks_reserved, row.logical_positions, row.waste) == (5, 6, 17, 3)


def test_tick_1_of_the_continuous_run_with_a_shared_block():
    row = abc(sharing="prewarmed").ticks[1]
    assert (row.requests["B"].start, row.requests["B"].inputs) == (4, 4)
    assert (row.logical_positions, row.physical_positions, row.blocks_in_use) == (17, 13, 4)
    assert row.shared_users == {("x", 0): 2}


def test_in_use_resident_and_reserved_are_three_numbers():
    row = abc(sharing="prewarmed").ticks[4]  # A and B have ended, C needs two blocks and has taken one
    assert (row.blocks_in_use, row.blocks_resident, row.blocks_reserved) == (1, 2, 3)
    assert row.shared_users == {("x", 0): 0}


def test_a_prewarmed_block_is_resident_and_reserved_before_anybody_comes_and_at_the_end():
    timeline = simulate([Request("A", 2, 8, 1, "x", 4)], max_active=1, block_size=4, sharing="prewarmed")
    assert column(timeline, "blocks_resident") == [1, 1, 2]
    assert column(timeline, "blocks_reserved") == [1, 1, 2]
    assert column(timeline, "blocks_in_use") == [0, 0, 2]
    assert timeline.ticks[-1].blocks_after == 1


def test_a_prefix_computed_in_the_run_is_hit_one_tick_later():
    timeline = abc(sharing="dynamic")
    assert outputs(timeline) == {"A": [0, 1, 2, 3], "B": [1, 2, 3], "C": [4, 5]}
    assert (timeline.positions_computed, timeline.positions_reused) == (22, 4)
    assert column(timeline, "blocks_reserved") == [3, 5, 5, 5, 2, 2]  # a block without a user is not reserved
    assert column(timeline, "blocks_resident") == [2, 4, 5, 5, 2, 3]
    assert [row.shared_users for row in timeline.ticks] == [{}, *({("x", 0): n} for n in (2, 2, 2, 0, 0))]


# ---------------------------------------------------------------- public reports and other tools' answers

def test_a_full_hit_still_computes_the_last_positions():
    """vllm-project/vllm#11186, #17999, #3239; GeeeekExplorer/nano-vllm#114, #117, #199;
    openvinotoolkit/openvino.genai#800 (sch-001, sch-003): neither 8 reused and 0 computed, nor 7 and 1.
    """
    timeline = simulate([Request("A", 0, 8, 1, "x", 8)], max_active=1, block_size=4, sharing="prewarmed")
    first = timeline.ticks[0].requests["A"]
    assert (timeline.positions_reused, timeline.positions_computed, first.start) == (4, 4, 4)
    assert timeline.ticks[0].shared_users == {("x", 0): 1, ("x", 1): 0}


@pytest.mark.parametrize("prompt_len, prefix_len, hit", [
    (1, 1, 0), (3, 3, 0), (4, 4, 0), (5, 4, 4), (5, 5, 4), (8, 7, 4), (9, 8, 8), (9, 9, 8)])
def test_a_hit_is_whole_blocks_and_at_most_all_positions_but_one(prompt_len, prefix_len, hit):
    timeline = simulate([Request("A", 0, prompt_len, 1, "x", prefix_len)], max_active=1, block_size=4,
                        sharing="prewarmed")
    assert (timeline.positions_reused, timeline.positions_computed) == (hit, prompt_len - hit)


def test_a_block_is_taken_in_the_tick_that_first_writes_into_it():
    """GeeeekExplorer/nano-vllm#240, #66: the reports are wrong, `len % block == 1` was right (sch-004)."""
    timeline = simulate([Request("A", 0, 4, 6)], max_active=1, block_size=4)
    assert column(timeline, "blocks", "A") == [1, 2, 2, 2, 2, 3]
    assert column(timeline, "positions", "A") == [4, 5, 6, 7, 8, 9]
    proposed = [math.ceil((4 + g) / 4) for g in range(1, 7)]  # a block for the output just sampled
    assert proposed == [2, 2, 2, 2, 3, 3] != column(timeline, "blocks", "A")


def test_the_last_output_takes_no_position():
    """inference-sim/inference-sim#1435 (sch-007)."""
    timeline = simulate([Request("A", 0, 8, 1)], max_active=1, block_size=4)
    with_the_last_output = math.ceil((8 + 1) / 4)
    assert with_the_last_output == 3 != timeline.peak_blocks
    assert (timeline.peak_blocks, timeline.peak_reserved) == (2, 2)


def test_cached_blocks_without_a_user_are_not_free_twice():
    """vllm-project/vllm#11562, #11565 (sch-009): 4 new blocks do not fit 5 free ones, 2 of them hits."""
    old = Request("old", 0, 9, 1, "x", 8)  # leaves 2 cached blocks without a user
    busy = Request("busy", 1, 4, 6)  # 3 blocks of 8: 5 are left
    new = Request("new", 2, 24, 1, "x", 8)  # 6 blocks, 2 of them hits
    timeline = simulate([old, busy, new], max_active=2, block_size=4, pool_blocks=8, sharing="dynamic")
    assert timeline.requests["new"].admitted == 7  # the tick after busy has ended, not 2
    assert [row.shared_users for row in timeline.ticks[2:7]] == [{("x", 0): 0, ("x", 1): 0}] * 5  # untouched
    assert timeline.requests["new"].positions_reused == 8
    too_early = next(row.tick for row in timeline.ticks[2:] if 8 - row.blocks_in_use >= 4)
    assert too_early == 2 != timeline.requests["new"].admitted  # the wrong test: 4 <= 5


def test_a_hit_in_use_saves_a_block_and_a_hit_without_a_user_takes_one():
    """nano-vllm's can_allocate (sch-010): 3 blocks, hits in use and without a user, fit 2."""
    first = Request("first", 0, 9, 1, "x", 8)  # caches x[0], x[1]
    user = Request("user", 1, 5, 8, "x", 4)  # uses x[0], 3 blocks in all
    third = Request("third", 2, 12, 1, "x", 8)  # x[0] in use, x[1] without a user, one new
    fits = {"max_active": 2, "block_size": 4, "sharing": "dynamic"}
    assert simulate([first, user, third], pool_blocks=5, **fits).requests["third"].admitted == 2
    assert simulate([first, user, third], pool_blocks=4, **fits).requests["third"].admitted == 9


def test_the_deepest_block_of_a_prefix_is_evicted_first():
    """llm-d/llm-d-inference-sim#704, #709; NVIDIA/Megatron-LM#5822 (sch-016)."""
    old = Request("old", 0, 13, 1, "x", 12)  # leaves x[0], x[1], x[2]
    other = Request("other", 1, 5, 1)  # 2 blocks of 4: one is free, one must be evicted
    again = Request("again", 2, 13, 1, "x", 12)
    timeline = simulate([old, other, again], max_active=1, block_size=4, pool_blocks=4, sharing="dynamic")
    assert list(timeline.ticks[1].shared_users) == [("x", 0), ("x", 1)]
    assert timeline.requests["again"].positions_reused == 8  # evicting x[0] would have left 0


def test_the_least_recently_used_prefix_is_evicted_first():
    runs = [Request("y", 0, 5, 1, "y", 4), Request("x", 1, 5, 1, "x", 4), Request("y again", 2, 5, 1, "y", 4),
            Request("large", 3, 9, 1)]
    timeline = simulate(runs, max_active=1, block_size=4, pool_blocks=4, sharing="dynamic")
    assert timeline.ticks[3].shared_users == {("y", 0): 0}


def test_two_requests_of_one_tick_do_not_hit_each_others_blocks():
    """GeeeekExplorer/nano-vllm#208; vllm-project/vllm#7822 (sch-027)."""
    pair = [Request("A", 0, 8, 2, "x", 4), Request("B", 0, 8, 2, "x", 4)]
    timeline = simulate(pair, max_active=2, block_size=4, sharing="dynamic")
    assert (timeline.positions_reused, timeline.positions_computed) == (0, 18)
    assert column(timeline, "blocks_resident") == [4, 6]  # of two equal blocks the second stays private
    assert timeline.ticks[1].shared_users == {("x", 0): 1}
    assert timeline.ticks[1].blocks_after == 1


def test_only_the_chunk_that_fills_a_block_makes_it_hittable():
    pair = [Request("A", 0, 8, 1, "x", 8), Request("B", 1, 9, 1, "x", 8)]
    timeline = simulate(pair, max_active=2, block_size=4, token_budget=3, sharing="dynamic")
    assert timeline.requests["B"].positions_reused == 0  # tick 0 has cached three positions, no whole block
    assert simulate(pair, max_active=2, block_size=4, token_budget=4,
                    sharing="dynamic").requests["B"].positions_reused == 4


def test_a_member_that_ends_before_its_wave_releases_its_blocks():
    """microsoft/vidur's FasterTransformer scheduler left 4 of 8 blocks taken (sch-035)."""
    timeline = abc("static", pool_blocks=8)
    assert column(timeline, "blocks_after") == [2, 3, 3, 0, 3, 3, 0]
    c, end = ABC[2], timeline.requests["C"].completion
    leaked = math.ceil((c.prompt_len + c.output_len - 1) / 4)
    assert timeline.ticks[end].blocks_resident == 3 and timeline.ticks[end].requests["B"].blocks + leaked == 5


def test_never_more_than_max_active_run():
    """nano-vllm looked at the requests scheduled in the step, not at those running, and ran 3 (sch-036)."""
    three = [Request(i, i, 8, 6) for i in range(3)]
    timeline = simulate(three, max_active=2, block_size=4)
    assert max(active(row) for row in timeline.ticks) == 2
    assert timeline.requests[2].admitted == 6  # the tick after the first has ended


@pytest.mark.parametrize("settings, want", [
    ({"token_budget": 4}, {"A": [1, 2, 3, 4], "B": [4, 5, 6], "C": [6, 7]}),
    ({"token_budget": 8}, {"A": [0, 1, 2, 3], "B": [2, 3, 4], "C": [4, 5]}),
    ({}, {"A": [0, 1, 2, 3], "B": [1, 2, 3], "C": [4, 5]}),
    ({"policy": "static"}, {"A": [0, 1, 2, 3], "B": [4, 5, 6], "C": [4, 5]}),
], ids=["sch-045", "sch-046", "sch-047", "sch-048"])
def test_vidur_agrees(settings, want):
    """microsoft/vidur's Sarathi and FasterTransformer schedulers, run on the A/B/C trace."""
    assert outputs(abc(**settings)) == want


def test_decodes_come_first_and_two_are_active():
    """nano-vllm runs prefills first, and its three active requests starve the third (sch-049)."""
    prefill_first = {"A": [0, 3, 4, 5], "B": [1, 3, 4], "C": [2, 5]}
    ours = outputs(abc(token_budget=1000))
    assert ours == {"A": [0, 1, 2, 3], "B": [1, 2, 3], "C": [4, 5]} != prefill_first


# ---------------------------------------------------------------- preemption

PRESSED = [Request("A", 0, 4, 6), Request("B", 0, 4, 6), Request("C", 1, 4, 2)]


def pressed(reserve="prompt"):
    return simulate(PRESSED, max_active=2, block_size=4, pool_blocks=3, reserve=reserve)


def test_the_last_of_the_running_is_preempted_keeps_its_outputs_and_comes_back_first():
    timeline = pressed()
    assert [(row.tick, row.preempted) for row in timeline.ticks if row.preempted] == [(1, ["B"]), (7, ["C"])]
    assert outputs(timeline) == {"A": [0, 1, 2, 3, 4, 5], "B": [0, 7, 8, 9, 10, 11], "C": [6, 13]}
    assert [timeline.requests[key].preemptions for key in "ABC"] == [0, 1, 1]
    back = timeline.ticks[6].requests["B"]  # P + G - 1 = 4 positions again, and no output counted twice
    assert (back.state, back.start, back.inputs, back.sampled, back.outputs) == ("prefill", 0, 4, False, 1)
    assert timeline.positions_computed == 9 + (4 + 9) + (4 + 5)


def test_nobody_is_admitted_in_the_tick_that_preempted():
    """vLLM's V1 scheduler 0.33.0 (sch-043): B would fit again at once, thanks to the prefix that A filed."""
    pair = [Request("A", 0, 8, 3, "x", 8), Request("B", 0, 9, 3, "x", 8)]
    timeline = simulate(pair, max_active=2, block_size=4, pool_blocks=5, reserve="prompt", sharing="dynamic")
    row, after = timeline.ticks[1:3]
    assert (row.preempted, row.requests["B"].state, row.blocks_reserved) == (["B"], "waiting", 3)
    assert (after.requests["B"].state, after.requests["B"].start, after.blocks_reserved) == ("prefill", 8, 4)
    assert outputs(timeline) == {"A": [0, 1, 2], "B": [0, 3, 4]}


def test_a_preemption_counts_no_output_twice():
    """inference-sim/inference-sim#1091, #1121, #357 (sch-032)."""
    pair = [Request("A", 0, 2, 8), Request("B", 0, 3, 8)]
    timeline = simulate(pair, max_active=2, block_size=2, pool_blocks=6, reserve="prompt")
    assert timeline.requests["B"].preemptions > 0
    assert {key: len(ticks) for key, ticks in outputs(timeline).items()} == {"A": 8, "B": 8}
    lost = sum(a.requests[key].positions for a, b in pairwise(timeline.ticks) for key in b.preempted)
    assert timeline.positions_computed == 9 + 10 + lost


def test_a_hit_after_a_preemption_is_no_reuse():
    """vllm-project/vllm#25780 (sch-031): own blocks, found again, made a hit rate of 32 % on random data."""
    pair = [Request("A", 0, 4, 6), Request("B", 0, 9, 6, "b", 9)]
    timeline = simulate(pair, max_active=2, block_size=4, pool_blocks=5, reserve="prompt", sharing="dynamic")
    assert timeline.requests["B"].preemptions == 1
    returns = [row for row in timeline.ticks if row.requests["B"].state == "prefill"][1:]
    assert returns[0].requests["B"].start > 0  # the hit is taken ...
    assert timeline.positions_reused == timeline.requests["B"].positions_reused == 0  # ... and not counted


def test_a_full_reservation_never_preempts_and_waits_instead():
    timeline = pressed(reserve="full")
    assert [row.preempted for row in timeline.ticks] == [[]] * timeline.makespan
    assert [timeline.requests[key].admitted for key in "ABC"] == [0, 6, 12]


def test_the_only_one_running_is_never_preempted():
    timeline = simulate([Request("A", 0, 4, 6)], max_active=2, block_size=4, pool_blocks=3, reserve="prompt")
    assert timeline.requests["A"].preemptions == 0 and timeline.makespan == 6


def test_a_request_that_needs_a_block_can_be_the_last_of_the_running_itself():
    pair = [Request("A", 0, 7, 3), Request("B", 0, 4, 3)]  # tick 1: A needs no block, B does
    timeline = simulate(pair, max_active=2, block_size=4, pool_blocks=3, reserve="prompt")
    assert timeline.ticks[1].preempted == ["B"]
    assert timeline.requests["A"].output_ticks == [0, 1, 2]


# ---------------------------------------------------------------- single rules

def test_equal_arrivals_keep_the_order_of_the_list():
    for names in ("ABC", "CBA", "BAC"):
        timeline = simulate([Request(name, 3, 4, 2) for name in names], max_active=1, block_size=4)
        assert sorted("ABC", key=lambda name: timeline.requests[name].admitted) == list(names)
        assert list(timeline.requests) == list(timeline.ticks[0].requests) == list(names)


def test_the_list_need_not_be_in_the_order_of_arrival():
    timeline = simulate([ABC[2], ABC[0], ABC[1]], max_active=2, block_size=4)
    assert list(timeline.requests) == ["C", "A", "B"]
    assert outputs(timeline) == outputs(abc())


def test_nobody_overtakes_a_head_that_does_not_fit():
    runs = [Request("large", 0, 8, 4), Request("head", 1, 8, 4), Request("small", 1, 1, 1)]
    timeline = simulate(runs, max_active=3, block_size=4, pool_blocks=4)
    assert [timeline.requests[key].admitted for key in ("large", "head", "small")] == [0, 4, 4]


def test_a_slot_and_a_block_are_used_again_one_tick_after_their_release():
    pair = [Request("A", 0, 4, 2), Request("B", 0, 4, 2)]
    assert simulate(pair, max_active=1, block_size=4).requests["B"].admitted == 2
    assert simulate(pair, max_active=2, block_size=4, pool_blocks=2).requests["B"].admitted == 2


def test_a_static_wave_starts_with_whoever_waits_when_nothing_is_active():
    runs = [Request("A", 0, 1, 3), Request("B", 1, 1, 5), Request("C", 2, 1, 1), Request("D", 3, 1, 1),
            Request("E", 4, 1, 1)]
    timeline = simulate(runs, policy="static", max_active=3, block_size=4)
    assert [timeline.requests[key].admitted for key in "ABCDE"] == [0, 3, 3, 3, 8]


def test_decode_tokens_count_against_the_budget_even_when_it_is_smaller_than_the_active():
    runs = [Request(name, 0, 1, 3) for name in "ABC"]
    timeline = simulate(runs, max_active=3, block_size=4, token_budget=2)
    assert outputs(timeline) == {"A": [0, 1, 2], "B": [0, 1, 2], "C": [3, 4, 5]}


def test_a_prefill_that_ends_in_a_tick_does_not_also_decode_in_it():
    timeline = simulate([Request("A", 0, 4, 2)], max_active=1, block_size=4, token_budget=100)
    assert column(timeline, "inputs", "A") == [4, 1]


def test_a_prompt_that_is_scheduled_whole_holds_back_those_behind_it():
    runs = [Request("A", 0, 2, 3), Request("B", 1, 4, 1), Request("C", 1, 1, 1)]
    whole = simulate(runs, max_active=3, block_size=4, token_budget=4, chunked=False)
    assert outputs(whole) == {"A": [0, 1, 2], "B": [3], "C": [4]}  # C would have fitted beside A
    cut = simulate(runs, max_active=3, block_size=4, token_budget=4)
    assert outputs(cut) == {"A": [0, 1, 2], "B": [2], "C": [2]}


def test_without_a_budget_a_prompt_is_whole_in_any_case():
    assert outputs(abc(chunked=False)) == outputs(abc())


def test_only_what_is_not_shared_has_to_fit_the_budget():
    timeline = abc(token_budget=4, chunked=False, sharing="prewarmed")
    assert timeline.requests["A"].output_ticks == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="'A' can never be scheduled.*8 positions.*token_budget is 4"):
        abc(token_budget=4, chunked=False, sharing="dynamic")  # nothing makes the hit certain


def test_requests_of_one_key_may_share_prefixes_of_different_length():
    runs = [Request("A", 0, 12, 1, "x", 12), Request("B", 1, 12, 1, "x", 4), Request("C", 1, 12, 1, "y", 8)]
    timeline = simulate(runs, max_active=3, block_size=4, sharing="prewarmed")
    assert [r.positions_reused for r in timeline.requests.values()] == [8, 4, 8]
    assert list(timeline.ticks[0].shared_users) == [("x", 0), ("x", 1), ("x", 2), ("y", 0), ("y", 1)]


def test_without_sharing_equal_prefixes_are_computed_each_time():
    assert abc().positions_reused == 0 and abc().ticks[1].shared_users == {}


def test_a_request_for_no_output_takes_no_pass_and_no_place():
    pair = [Request("A", 0, 8, 0), Request("B", 0, 4, 1)]
    timeline = simulate(pair, max_active=1, block_size=4, pool_blocks=1)
    empty = timeline.requests["A"]
    assert empty.output_ticks == []
    assert (empty.ttft, empty.latency, empty.completion, empty.admitted) == (None, None, None, None)
    assert timeline.requests["B"].output_ticks == [0] and timeline.positions_computed == 4
    assert timeline.ticks[0].requests["A"].state == "finished"
    assert timeline.to_traces()[0].failed


def test_no_requests_make_no_ticks():
    timeline = simulate([], max_active=1, block_size=4)
    assert (timeline.ticks, timeline.requests, timeline.to_traces()) == ([], {}, [])
    assert (timeline.makespan, timeline.positions_computed, timeline.positions_reused) == (0, 0, 0)
    assert (timeline.peak_blocks, timeline.peak_reserved) == (0, 0)


def test_idle_ticks_have_rows_and_count_in_the_makespan():
    timeline = simulate([Request("A", 3, 4, 1)], max_active=1, block_size=4)
    assert timeline.makespan == 4 and column(timeline, "positions_computed") == [0, 0, 0, 4]
    assert timeline.requests["A"].ttft == 1


def test_traces_are_stamped_at_the_end_of_the_tick():
    traces = abc(token_budget=4).to_traces()
    assert [trace.unit for trace in traces] == ["tick"] * 3
    assert [trace.request_id for trace in traces] == ["A", "B", "C"]
    assert [list(trace.token_times) for trace in traces] == [[2, 3, 4, 5], [5, 6, 7], [7, 8]]
    assert [trace.ttft for trace in traces] == [2, 4, 5]
    assert [trace.e2e for trace in traces] == [5, 6, 6]
    assert [trace.tpot for trace in traces] == [1.0, 1.0, 1.0]
    assert [trace.queue_time for trace in traces] == [0, 1, 3]  # until the first position is processed
    assert "[t, t+1)" in CLOCK_RULE and "first output + 1 - arrival" in CLOCK_RULE


def test_stepping_gives_the_rows_of_simulate():
    scheduler = Scheduler(ABC, max_active=2, block_size=4, token_budget=4)
    rows = []
    while not scheduler.done:
        rows.append(scheduler.step())
        assert scheduler.timeline().ticks == rows
    assert scheduler.timeline() == abc(token_budget=4)
    with pytest.raises(RuntimeError, match="every request is done"):
        scheduler.step()


def test_a_run_that_is_not_over_has_no_completion():
    scheduler = Scheduler(ABC, max_active=2, block_size=4)
    scheduler.step()
    a, b = (scheduler.timeline().requests[key] for key in "AB")
    assert (a.ttft, a.completion, a.latency) == (1, None, None)
    assert (b.ttft, b.completion, b.admitted) == (None, None, None)


def test_what_was_handed_out_does_not_change_later():
    scheduler = Scheduler(ABC, max_active=2, block_size=4, sharing="dynamic")
    row, timeline = scheduler.step(), scheduler.timeline()
    before = repr((row, timeline))
    while not scheduler.done:
        scheduler.step()
    assert repr((row, timeline)) == before


def test_numpy_integers_are_integers_and_come_out_as_pythons():
    one = np.int64(1)
    timeline = simulate([Request("A", one, np.int32(8), np.uint8(4))], max_active=one, block_size=4 * one,
                        token_budget=4 * one, pool_blocks=8 * one)
    served = timeline.requests["A"]
    values = [timeline.makespan, timeline.peak_blocks, timeline.positions_computed, served.ttft,
              served.latency, *served.output_ticks]
    assert [type(value) for value in values] == [int] * len(values)


# ---------------------------------------------------------------- refusals

@pytest.mark.parametrize("change, message", [
    ({"arrival": -1}, "arrival of request 'A' must be an integer >= 0, got -1"),
    ({"arrival": 0.5}, "arrival of request 'A' must be an integer >= 0, got 0.5"),
    ({"arrival": float("nan")}, "arrival"), ({"arrival": None}, "arrival"), ({"arrival": True}, "arrival"),
    ({"prompt_len": 0}, "prompt_len of request 'A' must be an integer >= 1, got 0"),
    ({"prompt_len": 8.0}, "prompt_len"), ({"prompt_len": "8"}, "prompt_len"),
    ({"output_len": -1}, "output_len"), ({"output_len": 1.5}, "output_len"),
    ({"prefix_len": -4}, "prefix_len"), ({"prefix_len": 9}, "prefix_len of request 'A' must be <= 8.*got 9"),
    ({"prefix_key": None}, "prefix_len of request 'A' must be <= 0.*without a prefix_key.*got 4"),
    ({"id": None}, "id"), ({"id": ["A"]}, r"id must be hashable, got \['A'\]"),
    ({"prefix_key": {}}, "prefix_key must be hashable"),
])
def test_a_bad_request_is_refused_by_name(change, message):
    good = {"id": "A", "arrival": 0, "prompt_len": 8, "output_len": 4, "prefix_key": "x", "prefix_len": 4}
    Request(**good)
    with pytest.raises(ValueError, match=message):
        Request(**{**good, **change})


@pytest.mark.parametrize("change, message", [
    ({"policy": "fifo"}, "policy must be one of continuous, static, got 'fifo'"),
    ({"policy": None}, "policy"),
    ({"max_active": 0}, "max_active must be an integer >= 1, got 0"), ({"max_active": 1.0}, "max_active"),
    ({"block_size": 0}, "block_size"), ({"block_size": None}, "block_size"),
    ({"token_budget": 0}, "token_budget"), ({"token_budget": 2.5}, "token_budget"),
    ({"pool_blocks": 0}, "pool_blocks"), ({"pool_blocks": -1}, "pool_blocks"),
    ({"sharing": "none"}, "sharing must be one of None, prewarmed, dynamic, got 'none'"),
    ({"sharing": True}, "sharing"),
    ({"chunked": "no"}, "chunked"), ({"chunked": None}, "chunked"), ({"reserve": "all"}, "reserve"),
])
def test_a_bad_setting_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        abc(**change)


def test_two_requests_of_one_id_are_refused():
    with pytest.raises(ValueError, match="id.*'A' twice"):
        simulate([ABC[0], ABC[0]], max_active=1, block_size=4)


def test_what_is_no_request_is_refused():
    with pytest.raises(ValueError, match="Request"):
        simulate([{"id": "A"}], max_active=1, block_size=4)
    for lone in (ABC[0], None, 5):
        with pytest.raises(ValueError, match="requests must be a list of Request objects, got"):
            simulate(lone, max_active=1, block_size=4)


@pytest.mark.parametrize("more, message", [
    ({"pool_blocks": 2}, "'A' can never fit.*need 3 blocks of 4 positions, pool_blocks is 2"),
    ({"pool_blocks": 2, "reserve": "prompt"}, "'A' can never fit"),
    ({"pool_blocks": 2, "sharing": "dynamic"}, "'A' can never fit.*need 3 blocks"),
    ({"pool_blocks": 2, "sharing": "prewarmed"}, "'A' can never fit.*need 2 blocks.*beside the 1 pre-warmed"),
    ({"token_budget": 7, "chunked": False}, "'A' can never be scheduled.*8 positions.*token_budget is 7"),
    ({"token_budget": 9, "chunked": False, "pool_blocks": 3, "reserve": "prompt"},
     "'A' can never be scheduled.*10 positions"),
])
def test_a_request_that_could_never_be_served_is_refused_at_submission(more, message):
    with pytest.raises(ValueError, match=message):
        abc(**more)


@pytest.mark.parametrize("more", [
    {"pool_blocks": 3}, {"pool_blocks": 3, "sharing": "dynamic"}, {"pool_blocks": 3, "sharing": "prewarmed"},
    {"pool_blocks": 3, "reserve": "prompt"}, {"token_budget": 8, "chunked": False}, {"token_budget": 1},
    {"token_budget": 10, "chunked": False, "pool_blocks": 3, "reserve": "prompt"},
])
def test_a_request_that_just_fits_is_served(more):
    assert {key: len(ticks) for key, ticks in outputs(abc(**more)).items()} == {"A": 4, "B": 3, "C": 2}


# ---------------------------------------------------------------- laws over random workloads

def active(row):
    return sum(entry.state in ("prefill", "decode") for entry in row.requests.values())


def in_order(requests):
    """First come first served: the order of arrival, equal ones as in the list."""
    return sorted((r for r in requests if r.output_len), key=lambda r: r.arrival)


def blocks(positions, block_size):
    return math.ceil(positions / block_size)


@st.composite
def workloads(draw, sharing=(None, "prewarmed", "dynamic"), reserve=("full", "prompt"),
              policy=("continuous", "static")):
    """(requests, settings) that no rule refuses, often with just enough blocks and budget."""
    requests = []
    for i in range(draw(st.sampled_from([4, 5, 3, 2, 6, 1]))):
        prompt_len = draw(st.integers(1, 12))
        prefix_len = draw(st.just(prompt_len) | st.integers(0, prompt_len))
        key = draw(st.sampled_from(["x", "x", "y"])) if prefix_len else None
        requests.append(Request(f"r{i}", draw(st.integers(0, 5)), prompt_len, draw(st.integers(0, 12)), key,
                                prefix_len))
    block_size = draw(st.sampled_from([1, 2, 3, 4, 16]))
    more = {"policy": draw(st.sampled_from(policy)), "sharing": draw(st.sampled_from(sharing)),
            "reserve": draw(st.sampled_from(reserve)), "chunked": draw(st.booleans())}
    warm = {(r.prefix_key, i) for r in requests for i in range(r.prefix_len // block_size)}
    least = max(blocks(r.prompt_len + max(r.output_len - 1, 0), block_size) for r in requests)
    least += len(warm) if more["sharing"] == "prewarmed" else 0
    more["pool_blocks"] = draw(st.sampled_from([least, least, least + 1, least + 3, None]))
    longest = max(r.prompt_len + r.output_len for r in requests)
    more["token_budget"] = draw(st.none() | st.integers(1 if more["chunked"] else longest, longest + 4))
    return requests, {"max_active": draw(st.sampled_from([3, 2, 4, 1])), "block_size": block_size, **more}


def law(**kinds):
    """Run a test over 80 random workloads, always the same ones."""
    def wrap(test):
        return settings(max_examples=80, deadline=None, derandomize=True)(given(workloads(**kinds))(test))
    return wrap


@law()
def test_everybody_gets_every_output_once_whatever_the_policy(workload):
    requests, more = workload
    timeline = simulate(requests, **more)
    for request in requests:
        ticks = timeline.requests[request.id].output_ticks
        assert len(ticks) == request.output_len
        assert all(a < b for a, b in pairwise(ticks)) and all(t >= request.arrival for t in ticks)
        sampled = [row.tick for row in timeline.ticks if row.requests[request.id].sampled]
        assert sampled == ticks


@law()
def test_first_come_first_served(workload):
    requests, more = workload
    timeline = simulate(requests, **more)
    admitted = [timeline.requests[r.id].admitted for r in in_order(requests)]
    assert admitted == sorted(admitted)
    assert all(timeline.requests[r.id].admitted >= r.arrival for r in in_order(requests))
    for row in timeline.ticks:  # at any time the active ones are those that came before all who wait
        states = [row.requests[r.id].state for r in in_order(requests)]
        line = [s for s in states if s in ("prefill", "decode", "waiting")]
        assert line == sorted(line, key=lambda s: s == "waiting")


@law()
def test_the_budget_is_never_exceeded_and_decodes_come_first(workload):
    requests, more = workload
    for row in simulate(requests, **more).ticks:
        entries = [row.requests[r.id] for r in in_order(requests)]
        assert sum(entry.inputs for entry in entries) <= (more["token_budget"] or math.inf)
        assert all(entry.inputs == 1 for entry in entries if entry.state == "decode")
        served = [entry.inputs > 0 for entry in entries if entry.state == "prefill"]
        assert served == sorted(served, reverse=True)  # who is not served stands behind all who are


@law()
def test_max_active_and_the_pool_are_never_exceeded(workload):
    requests, more = workload
    limit = more["pool_blocks"] or math.inf
    for row in simulate(requests, **more).ticks:
        assert active(row) <= more["max_active"]
        assert row.blocks_in_use <= row.blocks_resident <= limit
        assert row.blocks_in_use <= row.blocks_reserved <= limit


@law()
def test_no_tick_is_idle_while_there_is_work(workload):
    """Work conservation: what a tick leaves undone lacks budget, slot or block, or waits for a wave."""
    requests, more = workload
    by_id, before = {r.id: r for r in requests}, 0
    for row in simulate(requests, **more).ticks:
        states = {key: entry.state for key, entry in row.requests.items()}
        undone = [key for key, entry in row.requests.items() if states[key] == "prefill"
                  and entry.positions < by_id[key].prompt_len + max(entry.outputs - 1, 0)]
        left = (more["token_budget"] or math.inf) - sum(entry.inputs for entry in row.requests.values())
        if active(row):
            assert any(entry.inputs for entry in row.requests.values())
        if more["chunked"]:
            assert not undone or left == 0
        waiting = [r for r in in_order(requests) if states[r.id] == "waiting"]
        free = active(row) < more["max_active"] and not row.preempted
        if waiting and free and more["pool_blocks"] is None:
            assert more["policy"] == "static" and before
        if waiting:
            assert active(row)
        before = sum(entry.state in ("prefill", "decode") and entry.outputs < by_id[key].output_len
                     for key, entry in row.requests.items())


@law(reserve=("prompt",))
def test_preemption_takes_the_last_of_the_running_keeps_outputs_and_stops_admission(workload):
    requests, more = workload
    timeline = simulate(requests, **more)
    for last, row in pairwise(timeline.ticks):
        running = [r.id for r in in_order(requests) if last.requests[r.id].state in ("prefill", "decode")
                   and timeline.requests[r.id].completion != row.tick]
        stay = running[: len(running) - len(row.preempted)]
        assert row.preempted == running[len(stay) :][::-1]
        assert all(row.requests[key].state == "waiting" for key in row.preempted)
        assert all(row.requests[key].outputs == last.requests[key].outputs for key in row.preempted)
        now = [r.id for r in in_order(requests) if row.requests[r.id].state in ("prefill", "decode")]
        assert now == stay if row.preempted else now[: len(stay)] == stay
    counts = Counter(key for row in timeline.ticks for key in row.preempted)
    assert {key: r.preemptions for key, r in timeline.requests.items() if r.preemptions} == counts


@law()
def test_a_static_wave_is_joined_by_nobody(workload):
    requests, more = workload
    timeline = simulate(requests, **{**more, "policy": "static"})
    running = set()
    for row in timeline.ticks:
        now = {key for key, entry in row.requests.items() if entry.state in ("prefill", "decode")}
        assert now <= running or not running
        ended = {key for key in now if timeline.requests[key].completion == row.tick + 1}
        running = now - ended


@law()
def test_p_plus_g_minus_1_positions_are_live(workload):
    requests, more = workload
    for row in simulate(requests, **more).ticks:
        for request in requests:
            entry = row.requests[request.id]
            if entry.state in ("prefill", "decode"):
                assert entry.positions <= request.prompt_len + max(entry.outputs - 1, 0)
                assert entry.blocks == blocks(entry.positions, more["block_size"])
                if entry.state == "decode" or entry.sampled:
                    assert entry.positions == request.prompt_len + entry.outputs - 1
                if entry.inputs and entry.state == "prefill":
                    assert entry.start + entry.inputs == entry.positions
            else:
                assert (entry.positions, entry.blocks, entry.inputs, entry.start) == (0, 0, 0, None)


@law(sharing=(None,), reserve=("full",))
def test_no_two_policies_disagree_on_the_positions_computed(workload):
    requests, more = workload
    total = sum(r.prompt_len + r.output_len - 1 for r in requests if r.output_len)
    for policy in ("continuous", "static"):
        timeline = simulate(requests, **{**more, "policy": policy})
        assert (timeline.positions_computed, timeline.positions_reused) == (total, 0)
        assert timeline.peak_blocks <= timeline.peak_reserved


@law()
def test_computed_hit_and_given_up_positions_add_up(workload):
    requests, more = workload
    timeline = simulate(requests, **more)
    hits = given_up = 0
    before = {r.id: None for r in requests}
    for row in timeline.ticks:
        given_up += sum(before[key].positions for key in row.preempted)
        for key, entry in row.requests.items():
            if entry.state == "prefill" and (before[key] is None or before[key].state != "prefill"):
                hits += entry.positions - entry.inputs  # admitted in this tick
        before = row.requests
    total = sum(r.prompt_len + r.output_len - 1 for r in requests if r.output_len)
    assert timeline.positions_computed + hits == total + given_up
    inputs = [entry.inputs for row in timeline.ticks for entry in row.requests.values()]
    assert timeline.positions_computed == sum(inputs)
    if not given_up:
        assert timeline.positions_reused == hits
    assert timeline.positions_reused == sum(r.positions_reused for r in timeline.requests.values())
    if more["reserve"] == "full":
        assert not any(row.preempted for row in timeline.ticks)


@law()
def test_blocks_are_conserved(workload):
    requests, more = workload
    timeline = simulate(requests, **more)
    size = more["block_size"]
    for row in timeline.ticks:
        users = Counter(row.shared_users)
        tables = sum(entry.blocks for entry in row.requests.values())
        assert row.blocks_in_use == tables - sum(n - 1 for n in users.values() if n)
        assert row.blocks_resident == row.blocks_in_use + sum(n == 0 for n in users.values())
        assert row.logical_positions == sum(entry.positions for entry in row.requests.values())
        assert row.physical_positions + row.waste == row.blocks_resident * size
        assert 0 <= row.waste <= active(row) * (size - 1)  # at most one unfilled block a request
    if timeline.ticks:
        warm = {(r.prefix_key, i) for r in requests for i in range(r.prefix_len // size)}
        end = timeline.ticks[-1].blocks_after
        assert end == {None: 0, "prewarmed": len(warm)}.get(more["sharing"], end) <= len(warm)


@law()
def test_peaks_are_the_largest_rows_and_the_makespan_the_last_completion(workload):
    requests, more = workload
    timeline = simulate(requests, **more)
    assert timeline.peak_blocks == max((row.blocks_resident for row in timeline.ticks), default=0)
    assert timeline.peak_reserved == max((row.blocks_reserved for row in timeline.ticks), default=0)
    completions = [r.completion for r in timeline.requests.values() if r.completion is not None]
    assert timeline.makespan == max(completions, default=0)
    assert [row.tick for row in timeline.ticks] == list(range(timeline.makespan))
    for trace, served in zip(timeline.to_traces(), timeline.requests.values(), strict=True):
        assert (trace.ttft, trace.e2e) == (served.ttft, served.latency)
        assert trace.n_tokens == len(served.output_ticks)


@law(reserve=("full",), sharing=(None,))
def test_without_limits_of_the_pool_chunks_of_any_size_change_no_total(workload):
    requests, more = workload
    free = {**more, "pool_blocks": None, "chunked": True}
    runs = [simulate(requests, **{**free, "token_budget": budget}) for budget in (None, 1, 3)]
    assert len({run.positions_computed for run in runs}) == 1
    assert runs[0].makespan <= runs[1].makespan


# ---------------------------------------------------------------- in step with the real pool and prefix cache

def token_ids(request, index):
    """Ids that are equal exactly where the prefix says so."""
    keys = {"x": 1_000, "y": 2_000, "z": 3_000}
    shared = [keys[request.prefix_key] + i for i in range(request.prefix_len)] if request.prefix_key else []
    return shared + [10_000 + 100 * index + i for i in range(request.prompt_len - request.prefix_len)]


def replay(requests, more, timeline):
    """Give the rows' work to a BlockPool and a PrefixCache, and compare after every tick."""
    size = more["block_size"]
    pool = BlockPool(more["pool_blocks"] or 1_000, size)
    cache = PrefixCache(pool, model_key="m")
    ids = {r.id: token_ids(r, i) for i, r in enumerate(requests)}
    by_id = {r.id: r for r in requests}
    order = [r.id for r in in_order(requests)]  # of arrival and thus of admission, after a preemption too
    tables = {}

    def insert(key, positions):
        if more["sharing"]:
            part = ids[key][: min(by_id[key].prefix_len, positions)]
            cache.insert(part, tables[key][: len(part) // size])

    if more["sharing"] == "prewarmed":
        for key in ids:
            path, _ = cache.match([*ids[key][: by_id[key].prefix_len], 0])
            whole = by_id[key].prefix_len // size
            new = [pool.allocate() for _ in range(whole - len(path))]
            tables[key] = path + new
            insert(key, by_id[key].prefix_len)
            for block_id in new:
                pool.release(block_id)
        tables.clear()
    for row in timeline.ticks:
        for key in row.preempted:
            for block_id in tables.pop(key):
                pool.release(block_id)
        running = [key for key in order if row.requests[key].state in ("prefill", "decode")]
        for key in running:
            if key not in tables:
                tables[key], hit = cache.match(ids[key])
                assert hit == row.requests[key].positions - row.requests[key].inputs
                for block_id in tables[key]:
                    pool.share(block_id)
        for key in running:
            while len(tables[key]) * size < row.requests[key].positions:
                if not pool.num_free:
                    assert len(cache.evict(1)) == 1
                tables[key].append(pool.allocate())
        assert pool.num_resident == row.blocks_resident
        assert pool.num_in_use == row.blocks_in_use
        assert [len(tables[key]) for key in running] == [row.requests[key].blocks for key in running]
        assert pool.num_cached == sum(users == 0 for users in row.shared_users.values())
        for key in running:
            insert(key, row.requests[key].positions)
        for key in running:
            if timeline.requests[key].completion == row.tick + 1:
                for block_id in tables.pop(key):
                    pool.release(block_id)
        assert pool.num_resident == row.blocks_after
        cache.check_integrity()


@law()
def test_the_counted_blocks_are_those_of_a_real_pool_and_prefix_cache(workload):
    requests, more = workload
    replay(requests, more, simulate(requests, **more))


@st.composite
def crowds(draw):
    """Many prompts of three prefixes through a pool that can hardly hold one: blocks are evicted all the time."""
    requests = []
    for i in range(draw(st.sampled_from([6, 8, 10]))):
        prompt_len = draw(st.integers(3, 12))
        requests.append(Request(f"r{i}", draw(st.integers(0, 9)), prompt_len, draw(st.integers(1, 5)),
                                draw(st.sampled_from("xyz")), prompt_len))
    block_size = draw(st.integers(1, 4))
    least = max(blocks(r.prompt_len + r.output_len - 1, block_size) for r in requests)
    return requests, {
        "max_active": draw(st.integers(1, 3)), "block_size": block_size, "sharing": "dynamic",
        "pool_blocks": least + draw(st.integers(0, 2)), "reserve": draw(st.sampled_from(["full", "prompt"]))}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(crowds())
@example(([Request("r0", 0, 4, 1, "x", 4), Request("r1", 0, 9, 6, "x", 9), Request("r2", 1, 8, 5),
           Request("r3", 2, 9, 1, "x", 9)],  # tick 4 evicts x[0] of r0, while r1 uses x[1] behind it
          {"max_active": 2, "block_size": 4, "sharing": "dynamic", "reserve": "full", "pool_blocks": 7}))
def test_dynamic_sharing_evicts_what_a_real_prefix_cache_evicts(workload):
    requests, more = workload
    replay(requests, more, simulate(requests, **more))


def test_eviction_takes_no_more_blocks_than_are_missing():
    requests = [Request("A", 0, 9, 1, "x", 8), Request("B", 1, 5, 1, "y", 4)]
    timeline = simulate(requests, max_active=1, block_size=4, pool_blocks=3, sharing="dynamic")
    assert [row.blocks_resident for row in timeline.ticks] == [3, 3]
    assert list(timeline.ticks[1].shared_users) == [("x", 0)]  # the deepest went, for one block was missing
