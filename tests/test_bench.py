"""The speed table: its targets, what counts as met, what the committed result says.  No time is asserted."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def bench():
    import os

    before = dict(os.environ)
    spec = importlib.util.spec_from_file_location("bench", ROOT / "tools" / "bench.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    os.environ.clear()
    os.environ.update(before)  # the script sets the number of threads
    return module


def test_a_value_meets_its_target_from_the_right_side_and_a_missing_one_is_not_met(bench):
    lines = bench.lines_of({
        "8 alone ÷ batch of 8, context 64": {"tiny": 3.5, "small": 3.499},
        "growth exponent of cached time, 64 → 1024": {"tiny": 1.15, "small": 1.151},
    })
    results = {(x["measure"], x["shape"]): x["result"] for x in lines}
    assert results["8 alone ÷ batch of 8, context 64", "tiny"] == "met"
    assert results["8 alone ÷ batch of 8, context 64", "small"] == "missed"
    assert results["growth exponent of cached time, 64 → 1024", "tiny"] == "met"
    assert results["growth exponent of cached time, 64 → 1024", "small"] == "missed"
    assert results["decode step ÷ bandwidth floor", "gpt2s"] == "not measured"
    tiny_floor = bench.lines_of({"decode step ÷ bandwidth floor": {"tiny": 5.0}})[-6]
    assert tiny_floor["result"] == "for information" and tiny_floor["value"] == 5.0
    assert next(x for x in lines if x["result"] == "not measured")["value"] is None


def test_every_target_of_the_course_is_a_line(bench):
    targets = {(x["measure"], x["shape"]): x["target"] for x in bench.lines_of({})}
    assert len(targets) == 21 and targets["decode step ÷ bandwidth floor", "tiny"] is None
    assert targets["full prefix ÷ cached, 1024 tokens", "tiny"] == "≥ 250"
    assert targets["transformers with cache ÷ cached", "small"] == "≥ 2.8"
    assert targets["decode step ÷ bandwidth floor", "small"] == "≤ 1.2"


def test_sides_take_turns_and_the_first_round_does_not_count(bench):
    order = []

    def side(name, results):
        return lambda: order.append(name) or results.pop(0)

    medians = bench.in_turn(3, side("a", [99, 1, 5, 2]), side("b", [99, 7, 8, 9]))
    assert medians == [2, 8] and "".join(order) == "abababab"


def test_a_sampled_sum_of_passes_counts_every_length_once(bench, monkeypatch):
    monkeypatch.setattr(bench, "cpu_time", lambda work: work())
    config = bench.GPTConfig.from_hf(bench.SHAPES["tiny"])
    exact = bench.full_prefix_time(len, config, 64, n_timed=64)
    assert exact == sum(range(bench.PROMPT, bench.PROMPT + 64))
    sampled = bench.full_prefix_time(len, config, 64, n_timed=8)
    assert abs(sampled / exact - 1) < 0.01


def test_the_committed_result_has_every_line_and_says_which_machine_it_is_of(bench):
    result = json.loads((ROOT / "tools" / "bench_result.json").read_text(encoding="utf-8"))
    def named(lines):
        return [(x["measure"], x["shape"], x["target"]) for x in lines]

    assert named(result["lines"]) == named(bench.lines_of({})) and not result["quick"]
    assert {"cpu", "cores", "numpy", "blas", "python", "threads used"} <= set(result["machine"])
    for line in result["lines"]:
        value = float("nan") if line["value"] is None else line["value"]
        assert line in bench.lines_of({line["measure"]: {line["shape"]: value}})
