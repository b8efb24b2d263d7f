"""`mgpt trace`: what it prints, and how it refuses."""

import json
from pathlib import Path

import pytest

from mgpt.cli import main
from mgpt.cli.trace import parse_slo

DATA = Path(__file__).parent / "data"


@pytest.fixture
def mgpt(capsys):
    def run(*arguments):
        status = main(["trace", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


def row(out, title):
    """The cells of one row of the summary."""
    line, = (line for line in out.splitlines() if line.startswith(title + "  "))
    return line.removeprefix(title).split()


def test_example_30_2(mgpt):
    status, out, err = mgpt(DATA / "example_30_2.csv")
    assert (status, err) == (0, "")
    assert "30.2: 150 · 40 45 35 · 40 · 270\n" in out
    assert row(out, "TTFT") == ["1", "150", "150", "150", "150"]
    assert row(out, "gap") == ["3", "40", "40", "44.5", "44.9"]
    assert row(out, "TTFT of failed") == ["0", "-", "-", "-", "-"]
    assert "1 request, 0 failed (0.0 %), 4 output tokens\n" in out
    assert "goodput" not in out


def test_failed_requests_stand_beside_every_latency(mgpt):
    _, out, _ = mgpt(DATA / "bench_vllm.json", "--slo", "ttft=250, tpot=40")
    assert "6 requests, 2 failed (33.3 %), 12 output tokens\n" in out
    assert "4: failed: Service Unavailable\n" in out
    assert "5: failed after 2 tokens, TTFT 120: Traceback: ServerDisconnectedError\n" in out
    assert row(out, "TPOT")[0] == "2" and row(out, "TTFT")[0] == "4"
    assert "goodput (TTFT <= 250 ms, TPOT <= 40 ms): 4 of 6 requests = 66.7 %\n" in out
    assert "without TPOT, having one token: 2 requests\n" in out


def test_json_holds_the_report_and_each_request(mgpt):
    status, out, _ = mgpt(DATA / "bench_vllm.json", "--json", "--slo", "ttft=250,tpot=40")
    result = json.loads(out)
    assert status == 0
    assert (result["n"], result["n_errors"], result["failure_rate"]) == (6, 2, 2 / 6)
    assert (result["goodput"], result["slo"]) == (4 / 6, {"ttft": 250, "tpot": 40})
    assert result["partial_ttft"]["count"] == 1 and result["unit"] == "ms"
    assert [r["failed"] for r in result["requests"]] == [False, False, False, True, True, False]
    one = result["requests"][1]
    assert (one["gaps"], one["tpot"], one["n_tokens"]) == ([], None, 1)


def test_json_without_an_slo_has_no_goodput(mgpt):
    result = json.loads(mgpt(DATA / "example_30_2.csv", "--json")[1])
    assert result["goodput"] is None and result["slo"] is None
    assert result["requests"][0]["gaps"] == [40, 45, 35] and result["requests"][0]["tpot"] == 40


def test_many_requests_are_summarized_alone_and_long_gaps_are_cut(mgpt, tmp_path):
    path = tmp_path / "many.jsonl"
    request = json.dumps({"arrival": 0, "token_times": list(range(50))})
    path.write_text("\n".join([request] * 21))
    _, out, _ = mgpt(path)
    assert "request:" not in out and "21 requests, 0 failed" in out
    path.write_text(request)
    assert "1: 0 · " + "1 " * 20 + "… (49 gaps) · 1 · 49\n" in mgpt(path)[1]


def test_no_request_and_only_failed_requests_are_reports_too(mgpt, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival,token_times\n")
    status, out, _ = mgpt(path, "--slo", "ttft=5")
    assert status == 0 and "0 requests, 0 failed, 0 output tokens\n" in out
    assert "goodput (TTFT <= 5 ms): none, there is no request\n" in out
    path.write_text("arrival,token_times\n0,\n")
    status, out, _ = mgpt(path)
    assert status == 0 and "1: failed: no token came\n" in out and "1 request, 1 failed (100.0 %)" in out
    assert row(out, "TTFT") == ["0", "-", "-", "-", "-"]


def test_ticks_are_not_called_milliseconds(mgpt, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"arrival": 0, "token_times": [2, 3], "unit": "tick"}')
    _, out, _ = mgpt(path, "--slo", "ttft=2")
    assert "in ticks" in out and "TTFT <= 2 ticks" in out and " ms" not in out


def test_a_missing_tpot_is_a_dash_and_a_small_time_is_not_zero(mgpt, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("request_id,arrival,token_times\na,0,0.001234\nb,0,7;7\n")
    _, out, _ = mgpt(path)
    assert "a: 0.00123 · - · - · 0.00123\n" in out
    assert "b: 7 · 0 · 0 · 7\n" in out


@pytest.mark.parametrize(("text", "message"), [
    ("arrival,token_times\n0,5;nan\n", "line 2: token_times[1] must be a finite number, got nan"),
    ("arrival,token_times\n0,5;4\n", "line 2: token_times[1] must not be before token_times[0] = 5, got 4"),
    ('{"arrival": 0', "line 1, column 14: not JSON: Expecting ',' delimiter"),
    ("[1, 2]", "item 0: an object is needed, got 1"),
    ("", "is empty"),
    ('{"arrival": 0, "token_times": [1]}\n{"arrival": 0, "unit": "tick"}', "traces must have one unit"),
    ('{"arrival": 0, "request_id": "a\\nb", "error": "x"}\n{"arrival": "a\\nb"}', "line 2: arrival must be"),
])
def test_bad_input_is_one_clear_line_and_status_2(mgpt, tmp_path, text, message):
    path = tmp_path / "bad"
    path.write_text(text)
    status, out, err = mgpt(path)
    assert status == 2 and out == ""
    assert err.startswith("mgpt trace: ") and message in err and err.count("\n") == 1


def test_no_file_and_a_folder(mgpt, tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        status, out, err = mgpt(path)
        assert status == 2 and out == "" and str(path) in err and err.count("\n") == 1


@pytest.mark.parametrize("slo", ["ttft", "ttft=", "=5", "ttft=a", "ttft=5,", "", "ttft=5,ttft=6", "itl=5",
                                 "ttft=-1", "tpot=nan", "e2e=inf", "ttft=5ms"])
def test_a_bad_slo_is_refused(mgpt, slo):
    status, out, err = mgpt(DATA / "example_30_2.csv", "--slo", slo)
    assert status == 2 and out == "" and "slo" in err and err.count("\n") == 1


def test_an_slo_is_read_with_or_without_blanks():
    assert parse_slo("ttft=500,tpot=50") == parse_slo(" ttft = 500 , tpot = 50 ") == {"ttft": 500, "tpot": 50}
