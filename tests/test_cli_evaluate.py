"""`mgpt evaluate`: the table of what fewer bits do, on the ordinary set."""

import io
import json
import sys

import pytest

from mgpt.cli import main
from mgpt.cli.evaluate import measure
from mgpt.policy import questions
from mgpt.prefix import PrefixCache

WEIGHTS = [f"weights int{bits} per {per}" for bits in (8, 4, 3) for per in ("tensor", "row", "group of 32")]
KV = [f"KV int{bits} per {per}" for bits in (8, 4) for per in ("vector", "head", "channel")]


@pytest.fixture(scope="module")
def printed():
    out, sys.stdout = sys.stdout, io.StringIO()
    try:
        assert main(["evaluate", "--json"]) == 0
        return json.loads(sys.stdout.getvalue())
    finally:
        sys.stdout = out


@pytest.fixture(scope="module")
def rows(printed):
    return {row["name"]: row for row in printed["rows"]}


def test_float64_is_first_and_every_combination_has_its_row(printed):
    assert [row["name"] for row in printed["rows"]] == [
        "float64", "float64, paged", "float64, prefix-shared", "float64, full prefix", "float32", *WEIGHTS, *KV,
        "K int4 per vector, V float64", "K float64, V int4 per vector", "weights int8 per row + KV int8 per vector",
        "weights int4 per group of 32 + KV int4 per vector"]
    assert printed["set"] == "ordinary"


def test_a_row_agrees_with_itself(rows):
    for row in rows.values():
        assert row["questions"] == 256
        assert row["accuracy"] == row["right"] / 256
        assert 256 * row["accuracy"] == pytest.approx(116 * row["accuracy_updated"] + 140 * row["accuracy_untouched"])
        assert row["nbytes"] == row["weight_nbytes"] + (row["kv_nbytes"] or 0)
        assert row["stale"] <= 256 - row["right"] <= row["changed"]  # float64 has no wrong answer


def test_every_storage_of_float64_gives_the_same_answers(rows):
    same = [row for name, row in rows.items() if name.startswith("float64")]
    assert len(same) == 4
    assert {(row["right"], row["changed"], row["stale"]) for row in same} == {(256, 0, 0)}
    assert max(row["smallest_margin"] for row in same) - min(row["smallest_margin"] for row in same) < 1e-11


def test_int8_weights_change_no_answer_and_int4_a_few(rows):
    assert [rows[name]["changed"] for name in WEIGHTS] == [0, 0, 0, 7, 1, 2, 226, 35, 7]


def test_keys_lose_more_than_values(rows):
    assert rows["K int4 per vector, V float64"]["changed"] == 3
    assert rows["K float64, V int4 per vector"]["changed"] == 0


@pytest.mark.parametrize("name, weight_nbytes, kv_nbytes", [
    # 78,848 values in 10 matrices of 744 rows, 2,512 groups (the head's rows of 40 are a group of 32 and one of 8),
    # 320 values in norms; 60 positions of 2 layers, K and V, 2 heads, 16 values
    ("float64", 79_168 * 8, 60 * 128 * 8), ("float64, paged", 79_168 * 8, 60 * 128 * 8),
    ("float64, full prefix", 79_168 * 8, None), ("float32", 79_168 * 4, 60 * 128 * 4),
    ("weights int8 per tensor", 78_848 + 10 * 4 + 320 * 8, 60 * 128 * 8),
    ("weights int4 per row", 78_848 // 2 + 744 * 4 + 320 * 8, 60 * 128 * 8),
    ("weights int3 per group of 32", 78_848 // 8 * 3 + 2512 * 4 + 320 * 8, 60 * 128 * 8),
    ("KV int8 per vector", 79_168 * 8, 60 * 8 * (16 + 4)), ("KV int4 per vector", 79_168 * 8, 60 * 8 * (8 + 4)),
    ("KV int8 per head", 79_168 * 8, 60 * 8 * 16 + 8 * 4), ("KV int4 per channel", 79_168 * 8, 60 * 8 * 8 + 128 * 4),
    ("K int4 per vector, V float64", 79_168 * 8, 60 * 4 * (8 + 4) + 60 * 4 * 16 * 8),
    ("weights int8 per row + KV int8 per vector", 78_848 + 744 * 4 + 320 * 8, 60 * 8 * (16 + 4)),
])
def test_bytes_count_codes_scales_and_what_stays(name, weight_nbytes, kv_nbytes, rows):
    assert (rows[name]["weight_nbytes"], rows[name]["kv_nbytes"]) == (weight_nbytes, kv_nbytes)


def test_the_closest_decisions_are_listed(rows):
    for row in rows.values():
        margins = [near["margin"] for near in row["closest"]]
        assert len(margins) == 5 and margins == sorted(margins) and margins[0] == row["smallest_margin"]
        assert row["near_ties"] >= sum(margin < 1.0 for margin in margins)
    assert rows["float64"]["near_ties"] == 1
    near = rows["float64"]["closest"][0]
    assert near["answer"] == near["right_answer"] and near["prompt"].endswith("? answer:")
    assert near["margin"] == pytest.approx(0.619, abs=0.001)


def test_rows_come_one_by_one_with_their_number():
    row, n_rows = next(measure(questions("held_out", hard=True)[:14]))
    assert (row["name"], row["right"], row["questions"], n_rows) == ("float64", 14, 14, 24)


def test_the_prefix_shared_row_reuses_the_policy_s_blocks(monkeypatch):
    cached, match = [], PrefixCache.match

    def counted(self, token_ids):
        found = match(self, token_ids)
        cached.append(found[1])
        return found

    monkeypatch.setattr(PrefixCache, "match", counted)
    names = [row["name"] for (row, _), _ in zip(measure(questions("held_out", hard=True)[:14]), range(3))]
    assert names[-1] == "float64, prefix-shared"
    assert cached == [0, *[96] * 6] * 2  # a policy of 96 positions is six blocks of 16


def test_text_is_a_table_and_progress_goes_to_a_terminal_alone(monkeypatch, capsys):
    def two_rows(asked):
        for row, _ in zip(measure(asked[:4]), range(2)):
            yield row[0], 2

    monkeypatch.setattr("mgpt.cli.evaluate.measure", two_rows)
    assert main(["evaluate", "--hard"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    header, rule, first, second, *_ = out.splitlines()
    assert header.split()[:3] == ["name", "right", "questions"]
    assert first.split()[:4] == ["float64", "4", "4", "100.00%"] and second.startswith("float64, paged")
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    main(["evaluate"])
    assert "1/2 float64" in terminal.getvalue() and "2/2" in terminal.getvalue()
