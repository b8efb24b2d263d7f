"""The frame of the command line: whatever is wrong with the arguments or with a file is one line and status 2."""

import pytest

from mgpt.cli import COMMANDS, main, read_json


def refusal(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (2, "") and err.count("\n") == 1 and "usage:" not in err
    return err


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_one_line_and_status_2(capsys, command):
    given = {"simulate": ["x", "--max-active", "1", "--block-size", "1"], "grade": ["x", "--out", "y"],
             "merge": ["x", "--out", "y"], "evaluate": [], "release": []}.get(command, ["x"])
    assert refusal(capsys, command, *given, "--no-such") == (
        "mgpt: unrecognized arguments: --no-such (see mgpt --help)\n")


@pytest.mark.parametrize("arguments, words", [
    ([], "mgpt: the following arguments are required: COMMAND"), (["nope"], "mgpt: argument COMMAND: invalid choice"),
    (["kv"], "mgpt kv: the following arguments are required: CONFIG.json (see mgpt kv --help)"),
    (["trace"], "mgpt trace: the following arguments are required: FILE"),
    (["simulate", "x", "--max-active", "2"], "mgpt simulate: the following arguments are required: --block-size"),
    (["generate", "hotel", "--max-new-tokens", "x"], "mgpt generate: argument --max-new-tokens: invalid int value: 'x'"),
    (["check", "x", "--timeout", "x"], "mgpt check: argument --timeout: invalid float value: 'x'"),
    (["grade", "x"], "mgpt grade: the following arguments are required: --out")])
def test_a_missing_or_bad_argument_is_one_line_and_status_2(capsys, arguments, words):
    assert refusal(capsys, *arguments).startswith(words)


@pytest.mark.parametrize("command", [["kv"], ["simulate", "--max-active", "1", "--block-size", "1"], ["trace"]])
def test_json_that_is_nested_too_deep_is_one_line_and_status_2(capsys, tmp_path, command):
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    assert main([*command, str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "too deep" in err and err.count("\n") == 1


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "bom.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(path) == {"a": 1}
