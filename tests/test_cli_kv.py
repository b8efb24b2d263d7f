"""`mgpt kv`: what it prints, the exact integers of --json, and one clear line for bad input."""

import json
from pathlib import Path

import pytest

from mgpt.cli import main
from mgpt.cli.kv import parse_size

CONFIGS = Path(__file__).parents[1] / "mgpt" / "data" / "configs"
LLAMA = str(CONFIGS / "llama-3.1-8b.json")


def run(capsys, *arguments):
    status = main(["kv", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def answer(capsys, *arguments):
    status, out, _ = run(capsys, *arguments, "--json")
    assert status == 0
    return json.loads(out)


def test_the_table_says_shape_token_request_total_and_budget(capsys):
    status, out, err = run(capsys, LLAMA, "--tokens", "8192", "--requests", "4", "--budget", "24GiB")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "layers   32, GQA",
        "         32 hold every position: 8 KV heads for 32 query heads, width 128",
        "token    128 KiB a token (131,072 bytes, f16)",
        "request  1 GiB a request of 8,192 tokens",
        "total    4 GiB for 4 requests (4,294,967,296 bytes)",
        "as MHA   512 KiB a token, 4.00 times as much",
        "budget   24 GiB: 24 requests of 8,192 tokens fit"]


def test_the_table_says_what_windows_cap_and_what_holds_nothing(capsys):
    _, oss, _ = run(capsys, str(CONFIGS / "gpt-oss-20b.json"), "--tokens", "8192")
    assert "12 hold the last 128 positions: 8 KV heads for 64 query heads, width 64" in oss
    assert "windows  without them 384 MiB, 1.97 times as much" in oss
    _, qwen, _ = run(capsys, str(CONFIGS / "qwen3.5-27b.json"), "--tokens", "8192")
    assert "48 without KV that grows" in qwen and "windows" not in qwen
    _, mimo, _ = run(capsys, str(CONFIGS / "mimo-v2-flash.json"))
    assert "9 hold every position: 4 KV heads for 64 query heads, width 192 (K), 128 (V)" in mimo


def test_the_table_of_a_latent_cache_names_no_kv_heads(capsys, tmp_path):
    _, out, _ = run(capsys, str(CONFIGS / "deepseek-v3.json"))
    assert "61 hold every position: one latent of 576 values for 128 query heads" in out
    assert "KV heads" not in out and "as MHA   4.77 MiB a token, 71.11 times as much" in out
    bare = tmp_path / "config.json"
    bare.write_text('{"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}')
    assert "as MHA   not known" in run(capsys, str(bare))[1]


def test_without_tokens_only_a_token_is_counted(capsys):
    status, out, _ = run(capsys, LLAMA)
    assert status == 0 and "128 KiB a token" in out and "request" not in out
    assert answer(capsys, LLAMA)["bytes_total"] is None


def test_json_holds_exact_integers(capsys):
    options = "--tokens 8191 --requests 3 --tp 4 --dtype int8 --budget 1GB"
    found = answer(capsys, LLAMA, *options.split())
    group = {"layers": 32, "query_heads": 32, "kv_heads": 8, "k_dim": 128, "v_dim": 128, "window": None}
    assert found == {
        "config": LLAMA, "layers": 32, "structure": "GQA",
        "layer_groups": [group],
        "dtype": "int8", "tp": 4, "tokens": 8191, "requests": 3, "bytes_per_token": 16_896,
        "bytes_per_request": 138_395_136, "bytes_total": 415_185_408,
        "bytes_per_request_without_windows": 138_395_136, "mha_bytes_per_token": 67_584,
        "mha_bytes_per_request": 553_580_544, "budget": 10**9, "requests_in_budget": 7}
    assert all(type(found[key]) is int for key in ("bytes_total", "budget", "requests_in_budget"))


@pytest.mark.parametrize("budget, fits", [
    ("4294967296", 4), ("4294967295", 3), ("0", 0), ("1GiB", 1), ("1GB", 0), ("4.5GiB", 4)])
def test_a_request_fits_only_whole(capsys, budget, fits):
    assert answer(capsys, LLAMA, "--tokens", "8192", "--budget", budget)["requests_in_budget"] == fits


def test_requests_of_no_tokens_fit_without_limit(capsys):
    assert answer(capsys, LLAMA, "--tokens", "0", "--budget", "1GiB")["requests_in_budget"] is None
    _, out, _ = run(capsys, LLAMA, "--tokens", "0", "--budget", "1GiB")
    assert "any number of requests of 0 tokens fit" in out


@pytest.mark.parametrize("text, size", [
    ("24GiB", 25_769_803_776), ("24GB", 24_000_000_000), ("512MiB", 536_870_912), ("512 MiB", 536_870_912),
    ("1KiB", 1024), ("1kB", 1000), ("2TiB", 2_199_023_255_552), ("2TB", 2_000_000_000_000), ("1000", 1000),
    ("1000B", 1000), ("24gib", 25_769_803_776), ("1.5GiB", 1_610_612_736), ("0.1kB", 100), ("0.1B", 0)])
def test_gib_are_powers_of_two_and_gb_powers_of_ten(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "24G", "24 GiBs", "1e9", "nan", "1,5GiB", "0x10"])
def test_another_size_is_refused(text):
    with pytest.raises(ValueError, match="--budget must be a size like 24GiB"):
        parse_size(text)


@pytest.mark.parametrize("arguments, words", [
    (["--tokens", "-5"], "--tokens must be an integer >= 0, got -5"),
    (["--tokens", "8.5"], "--tokens must be an integer >= 0, got '8.5'"),
    (["--tokens", "many"], "--tokens must be an integer >= 0, got 'many'"),
    (["--tokens", "8", "--requests", "0"], "--requests must be an integer >= 1, got 0"),
    (["--tokens", "8", "--requests", "1.5"], "--requests must be an integer >= 1, got '1.5'"),
    (["--tp", "0"], "--tp must be an integer >= 1, got 0"),
    (["--tp", "3"], "tp must divide the query heads (32), got 3"),
    (["--dtype", "f8"], "dtype must be one of f32, f16"), (["--requests", "2"], "--tokens is needed"),
    (["--budget", "1GiB"], "--tokens is needed"),
    (["--tokens", "8", "--budget", "-1"], "--budget must be a size"),
    (["--tokens", "8", "--budget", "lots"], "--budget must be a size")])
def test_a_bad_option_is_one_line_and_status_2(capsys, arguments, words):
    status, out, err = run(capsys, LLAMA, *arguments)
    assert (status, out) == (2, "") and err.startswith(f"mgpt kv: {words}") and err.count("\n") == 1


@pytest.mark.parametrize("text, words", [
    (None, "No such file"), ("", "is not JSON"), ("{", "is not JSON"), ("[]", "config must be a dict"),
    ("3", "config must be"),
    ("{}", "config.json lacks num_hidden_layers, num_attention_heads, hidden_size"),
    ('{"n_layer": 2.5, "n_head": 2, "n_embd": 8}', "n_layer must be an integer >= 1"),
    ('{"n_layer": -2, "n_head": 2, "n_embd": 8}', "n_layer must be an integer >= 1"),
    ('{"n_layer": NaN, "n_head": 2, "n_embd": 8}', "n_layer must be an integer >= 1")])
def test_a_bad_file_is_one_line_and_status_2(capsys, tmp_path, text, words):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    status, out, err = run(capsys, str(path), "--tokens", "8")
    assert (status, out) == (2, "") and err.startswith("mgpt kv: ") and words in err and err.count("\n") == 1


def test_a_folder_is_no_file(capsys, tmp_path):
    status, out, err = run(capsys, str(tmp_path))
    assert (status, out) == (2, "") and err.count("\n") == 1
