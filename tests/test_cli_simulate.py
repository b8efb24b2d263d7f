"""`mgpt simulate`: what it prints, writes and refuses."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mgpt.cli import main
from mgpt.cli.simulate import spans

ABC = str(Path(__file__).parent / "data" / "abc.json")
COURSE = [ABC, "--policy", "continuous", "--token-budget", "4", "--block-size", "4", "--max-active", "2"]


def run(capsys, *arguments):
    """(exit status, stdout, stderr) of `mgpt simulate`."""
    status = main(["simulate", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def cells(line):
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def write(tmp_path, value):
    path = tmp_path / "requests.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def test_the_abc_trace_is_printed_tick_by_tick_and_request_by_request(capsys):
    status, out, err = run(capsys, *COURSE)
    assert (status, err) == (0, "")
    lines = [cells(line) for line in out.splitlines()]
    header = lines.index(["tick", "A", "B", "C", "computed", "reused", "logical", "physical", "in use",
                          "resident", "reserved", "waste"])
    assert lines[header + 2] == ["0", "prefill 0:4 4/1", "not arrived", "not arrived",
                                 *"4 0 4 4 1 1 3 0".split()]
    assert lines[header + 3][2] == "prefill - 0/0"  # admitted, and the budget is spent
    assert lines[header + 4] == ["2", "decode 8:9 #2 9/3", "prefill 0:3 3/1", "waiting",
                                 *"12 0 12 12 4 4 6 4".split()]
    assert lines[header + 9] == ["7", "finished", "finished", "decode 4:5 #2 5/2",
                                 *"26 0 5 5 2 2 2 3".split()]
    served = lines.index(["request", "arrival", "output ticks", "TTFT", "TPOT", "latency", "completion",
                          "reused", "preempted"])
    assert lines[served + 2 : served + 5] == [
        ["A", "0", "1–4", "2", "1.0", "5", "5", "0", "0"],
        ["B", "1", "4–6", "4", "1.0", "6", "7", "0", "0"],
        ["C", "2", "6–7", "5", "1.0", "6", "8", "0", "0"]]
    assert "makespan 8; positions computed 26, reused 0; peak blocks 5, peak reserved 6" in out


def test_the_clock_rule_and_the_settings_are_stated(capsys):
    out = " ".join(run(capsys, *COURSE)[1].split())
    assert "tick t is [t, t+1), logical time and not milliseconds" in out
    assert "TTFT = tick of the first output + 1 - arrival" in out
    assert "policy continuous, max_active 2, block_size 4, token_budget 4, chunked True, pool_blocks" in out


def test_every_option_reaches_the_scheduler(capsys):
    _, out, _ = run(capsys, ABC, "--policy", "static", "--max-active", 3, "--block-size", 4, "--token-budget",
                    10, "--pool-blocks", 6, "--sharing", "dynamic", "--no-chunked", "--reserve", "prompt",
                    "--json")
    assert json.loads(out)["settings"] == {
        "policy": "static", "max_active": 3, "block_size": 4, "token_budget": 10, "chunked": False,
        "pool_blocks": 6, "sharing": "dynamic", "reserve": "prompt"}


@pytest.mark.parametrize("options, computed, reused, makespan, peak", [
    (["--policy", "static"], 26, 0, 7, 5), ([], 26, 0, 6, 6), (["--sharing", "none"], 26, 0, 6, 6),
    (["--sharing", "prewarmed"], 18, 8, 6, 5), (["--sharing", "dynamic"], 22, 4, 6, 5),
    (["--token-budget", "8"], 26, 0, 6, 6), (["--token-budget", "8", "--no-chunked"], 26, 0, 7, 5),
    (["--pool-blocks", "3"], 26, 0, 9, 3),
])
def test_an_option_changes_the_run(capsys, options, computed, reused, makespan, peak):
    status, out, _ = run(capsys, ABC, "--max-active", 2, "--block-size", 4, "--json", *options)
    value = json.loads(out)
    assert status == 0
    assert [value[key] for key in ("positions_computed", "positions_reused", "makespan", "peak_blocks")] == [
        computed, reused, makespan, peak]


def test_json_has_the_names_of_the_timeline(capsys):
    status, out, _ = run(capsys, *COURSE, "--json")
    value = json.loads(out)
    assert (value["makespan"], value["positions_computed"], value["positions_reused"]) == (8, 26, 0)
    assert (value["peak_blocks"], value["peak_reserved"]) == (5, 6)
    assert {key: r["output_ticks"] for key, r in value["requests"].items()} == {
        "A": [1, 2, 3, 4], "B": [4, 5, 6], "C": [6, 7]}
    c = value["requests"]["C"]
    assert (c["id"], c["ttft"], c["latency"], c["completion"]) == ("C", 5, 6, 8)
    row = value["ticks"][2]
    names = ("tick", "blocks_in_use", "blocks_resident", "blocks_reserved", "waste")
    assert [row[name] for name in names] == [2, 4, 4, 6, 4]
    assert row["requests"]["B"] == {"state": "prefill", "start": 0, "inputs": 3, "sampled": False,
                                    "outputs": 0, "positions": 3, "blocks": 1}
    assert "[t, t+1)" in value["clock"]


def test_shared_blocks_show_their_reference_counts(capsys):
    arguments = [ABC, "--max-active", 2, "--block-size", 4, "--sharing", "prewarmed"]
    _, out, _ = run(capsys, *arguments)
    counts = [line.rsplit("x[0]: ")[1] for line in out.splitlines() if "x[0]: " in line]
    assert counts == ["1", "2", "2", "2", "0", "0"]
    rows = json.loads(run(capsys, *arguments, "--json")[1])["ticks"]
    assert [row["shared_users"] for row in rows[3:5]] == [
        [{"prefix_key": "x", "block": 0, "users": 2}], [{"prefix_key": "x", "block": 0, "users": 0}]]


def test_a_preemption_is_shown(capsys, tmp_path):
    path = write(tmp_path, [{"id": name, "arrival": 0, "prompt_len": 4, "output_len": 6} for name in "AB"])
    _, out, _ = run(capsys, path, "--max-active", 2, "--block-size", 4, "--pool-blocks", 3,
                    "--reserve", "prompt")
    lines = [cells(line) for line in out.splitlines()]
    assert [line[-1] for line in lines if line[:1] in (["tick"], ["1"])] == ["preempted", "B"]
    assert ["B", "0", "0, 7–11", "1", "2.2", "12", "12", "0", "1"] in lines


def test_many_requests_share_one_column(capsys, tmp_path):
    path = write(tmp_path, [{"id": i, "arrival": 0, "prompt_len": 4, "output_len": 2} for i in range(7)])
    _, out, _ = run(capsys, path, "--max-active", 2, "--block-size", 4)
    lines = [cells(line) for line in out.splitlines()]
    first = next(line for line in lines if line[:1] == ["0"])
    assert first[:3] == ["0", "0 prefill 0:4 #1 4/1; 1 prefill 0:4 #1 4/1", "5"]
    assert max(map(len, out.splitlines())) < 150


def test_missing_times_are_a_dash_and_never_zero(capsys, tmp_path):
    path = write(tmp_path, [{"id": "none", "arrival": 0, "prompt_len": 4, "output_len": 0},
                            {"id": "one", "arrival": 0, "prompt_len": 4, "output_len": 1}])
    _, out, _ = run(capsys, path, "--max-active", 1, "--block-size", 4)
    lines = [cells(line) for line in out.splitlines()]
    assert ["none", "0", "-", "-", "-", "-", "-", "0", "0"] in lines
    assert ["one", "0", "0", "1", "-", "1", "1", "0", "0"] in lines


def test_a_tpot_that_is_no_short_number_is_rounded(capsys, tmp_path):
    path = write(tmp_path, [{"id": name, "arrival": 0, "prompt_len": 4, "output_len": n}
                            for name, n in (("A", 8), ("B", 4))])
    _, out, _ = run(capsys, path, "--max-active", 2, "--block-size", 4, "--pool-blocks", 3,
                    "--reserve", "prompt")
    lines = [cells(line) for line in out.splitlines()]
    assert ["B", "0", "0, 9–11", "1", "3.67", "12", "12", "0", "1"] in lines


def test_no_requests_are_no_ticks(capsys, tmp_path):
    status, out, err = run(capsys, write(tmp_path, []), "--max-active", 1, "--block-size", 4)
    assert (status, err) == (0, "") and "makespan 0" in out


@pytest.mark.parametrize("ticks, text", [
    ([], None), ([3], "3"), ([1, 2, 3, 5], "1–3, 5"), ([0, 2, 3], "0, 2–3")])
def test_ticks_are_written_as_runs(ticks, text):
    assert spans(ticks) == text


class Page(HTMLParser):
    """Tags that are open, header cells, captions, and rows of a page; ValueError when tags do not nest."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.rows, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        if self.open:
            raise ValueError(f"left open: {self.open}")

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            raise ValueError(f"</{tag}> at the wrong place")

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("th", "td"):
            self.rows[-1][-1] += data

    def attributes(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def page(capsys, tmp_path, *arguments):
    target = tmp_path / "ticks.html"
    status, out, err = run(capsys, *arguments, "--html", target)
    assert (status, err) == (0, "") and str(target) in out
    return target.read_text(encoding="utf-8")


def test_the_page_holds_both_tables_and_the_clock_rule(capsys, tmp_path):
    parsed = Page(page(capsys, tmp_path, *COURSE))
    ticks = [row for row in parsed.rows if row[0] in map(str, range(8))]
    assert len(ticks) == 8
    assert ticks[2][:5] == ["2", "decode 8:9, output 2; positions 9, KV blocks 3",
                            "prefill 0:3; positions 3, KV blocks 1", "waiting", "12"]
    assert ["B", "1", "4–6", "4", "1.0", "6", "7", "0", "0"] in parsed.rows
    assert "tick t is [t, t+1)" in parsed.text and "makespan 8" in parsed.text


def test_the_page_is_accessible_and_needs_nothing_else(capsys, tmp_path):
    text = page(capsys, tmp_path, *COURSE, "--sharing", "dynamic")
    parsed = Page(text)
    assert text.startswith("<!DOCTYPE html>") and parsed.attributes("html") == [{"lang": "en"}]
    assert [len(parsed.attributes(tag)) for tag in ("title", "h1", "main")] == [1, 1, 1]
    assert len(parsed.attributes("table")) == len(parsed.attributes("caption")) == 2
    assert all(attrs.get("scope") in ("col", "row", "colgroup") for attrs in parsed.attributes("th"))
    for attrs in parsed.attributes("div"):
        assert attrs["role"] == "region" and attrs["tabindex"] == "0" and attrs["aria-label"]
    groups, header, *rows = [row for row in parsed.rows if len(row) != 9]
    spans_of = [int(attrs["colspan"]) for attrs in parsed.attributes("th") if "colspan" in attrs]
    assert len(groups) == len(spans_of) and sum(spans_of) == len(header)
    assert {len(row) for row in rows} == {len(header)}
    assert not [attrs for tag in ("script", "link", "img", "iframe") for attrs in parsed.attributes(tag)]
    assert "http" not in text and "url(" not in text and "@import" not in text


def test_ids_are_text_in_the_page(capsys, tmp_path):
    path = write(tmp_path, [{"id": "<b>&\"", "arrival": 0, "prompt_len": 4, "output_len": 1,
                             "prefix_key": "<i>", "prefix_len": 4}])
    text = page(capsys, tmp_path, path, "--max-active", 1, "--block-size", 4, "--sharing", "dynamic")
    assert "<b>" not in text and "<i>" not in text and "&lt;b&gt;&amp;" in text
    Page(text)


def test_a_page_and_json_can_be_had_at_once(capsys, tmp_path):
    target = tmp_path / "ticks.html"
    status, out, _ = run(capsys, *COURSE, "--html", target, "--json")
    assert status == 0 and json.loads(out)["makespan"] == 8 and target.exists()


GOOD = {"id": "A", "arrival": 0, "prompt_len": 8, "output_len": 4}


@pytest.mark.parametrize("content, message", [
    ("[", "is not JSON"), ({"id": "A"}, "must hold a list of requests, got dict"),
    ([["A", 0, 8, 4]], "request 0: must be an object"),
    ([GOOD, {"id": "B", "arrival": 0}], "request 1: lacks prompt_len, output_len"),
    ([{**GOOD, "prompt": 8}], "request 0: has 'prompt'"), ([{**GOOD, "arrival": -1}], "arrival .*, got -1"),
    ([{**GOOD, "prompt_len": 2.5}], "prompt_len .*, got 2.5"),
    ([{**GOOD, "arrival": float("nan")}], "arrival .*, got nan"),
    ([{**GOOD, "output_len": "4"}], "output_len .*, got '4'"),
    ([{**GOOD, "output_len": None}], "output_len .*None"),
    ([{**GOOD, "id": ["A"]}], "id must be hashable"),
    ([{**GOOD, "prefix_len": 9, "prefix_key": "x"}], "prefix_len"),
    ([GOOD, GOOD], "'A' twice"), ([{**GOOD, "id": 1}, {**GOOD, "id": "1"}], "'1' twice"),
])
def test_a_bad_file_is_one_clear_line_and_status_2(capsys, tmp_path, content, message):
    status, out, err = run(capsys, write(tmp_path, content), "--max-active", 2, "--block-size", 4)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1 and err.startswith("mgpt simulate: ") and "requests.json" in err
    with pytest.raises(ValueError, match=message):
        raise ValueError(err)


@pytest.mark.parametrize("options, message", [
    (["--max-active", "0"], "max_active must be an integer >= 1, got 0"),
    (["--max-active", "-1"], "max_active must be an integer >= 1, got -1"),
    (["--max-active", "1.5"], "--max-active must be a whole number, got '1.5'"),
    (["--block-size", "nan"], "--block-size must be a whole number, got 'nan'"),
    (["--block-size", "1_0"], "--block-size must be a whole number, got '1_0'"),
    (["--token-budget", "0"], "token_budget must be an integer >= 1"),
    (["--pool-blocks", "1e3"], "--pool-blocks must be a whole number"),
    (["--policy", "fifo"], "policy must be one of continuous, static"),
    (["--sharing", "all"], "sharing must be one of None, prewarmed, dynamic"),
    (["--reserve", "no"], "reserve must be one of full, prompt"),
    (["--pool-blocks", "2"], "request 'A' can never fit"),
    (["--token-budget", "7", "--no-chunked"],
     "request 'A' can never be scheduled"),
])
def test_a_bad_option_is_one_clear_line_and_status_2(capsys, options, message):
    status, out, err = run(capsys, ABC, "--max-active", "2", "--block-size", "4", *options)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1 and err.startswith("mgpt simulate: ") and message in err


def test_a_file_that_is_not_there_is_one_clear_line_and_status_2(capsys, tmp_path):
    status, out, err = run(capsys, tmp_path / "no.json", "--max-active", 2, "--block-size", 4)
    assert (status, out) == (2, "") and len(err.splitlines()) == 1 and "no.json" in err


def test_a_page_that_cannot_be_written_is_one_clear_line_and_status_2(capsys, tmp_path):
    status, out, err = run(capsys, *COURSE, "--html", tmp_path / "no" / "ticks.html")
    assert (status, out) == (2, "") and len(err.splitlines()) == 1 and "ticks.html" in err
