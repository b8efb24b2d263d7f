"""`mgpt generate`: the book's story on the command line, and what it refuses."""

import json

import numpy as np
import pytest

from mgpt.cli import main
from mgpt.policy import TRAVEL_POLICY, TRAVEL_PROMPT, TRAVEL_PROMPT_BEFORE, TRAVEL_QUESTION, TRAVEL_UPDATE


def run(capsys, *argv):
    status = main(["generate", *argv])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("how", [["--cached"], ["--full-prefix"], []])
@pytest.mark.parametrize("prompt, answer", [(TRAVEL_PROMPT, "750."), (TRAVEL_PROMPT_BEFORE, "600.")])
def test_the_latest_limit_is_the_answer(prompt, answer, how, capsys):
    status, out, err = run(capsys, prompt, *how)
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == answer


def test_the_story_is_told_by_one_line_alone():
    assert TRAVEL_PROMPT == f"{TRAVEL_POLICY} {TRAVEL_UPDATE} {TRAVEL_QUESTION}"
    assert TRAVEL_PROMPT.replace(f" {TRAVEL_UPDATE}", "") == TRAVEL_PROMPT_BEFORE
    assert "hotel is 600" in TRAVEL_POLICY and "hotel is 750" in TRAVEL_UPDATE and "750" not in TRAVEL_PROMPT_BEFORE


def test_the_work_is_counted(capsys):
    cached = json.loads(run(capsys, TRAVEL_PROMPT, "--cached", "--json")[1])
    full = json.loads(run(capsys, TRAVEL_PROMPT, "--full-prefix", "--json")[1])
    assert len(cached["prompt_ids"]) == 40
    assert cached["tokens"] == full["tokens"] and cached["text"] == full["text"] == "750."
    assert (cached["method"], cached["positions_processed"], cached["cache_len"]) == ("cached", 43, 43)
    assert (full["method"], full["cache_len"]) == ("full-prefix", None)
    assert full["positions_processed"] == 40 + 41 + 42 + 43


@pytest.mark.parametrize("how", ["--cached", "--full-prefix"])
@pytest.mark.parametrize("n, text", [(0, ""), (1, "7"), (2, "75"), (3, "750"), (4, "750."), (50, "750.")])
def test_no_more_tokens_than_asked_for_and_none_after_the_stop(n, text, how, capsys):
    status, out, _ = run(capsys, TRAVEL_PROMPT, how, "--max-new-tokens", str(n), "--json")
    result = json.loads(out)
    assert (status, result["text"], len(result["tokens"])) == (0, text, len(text))
    if n == 0:
        assert result["positions_processed"] == 0


@pytest.mark.parametrize("argv, message", [
    (["limit for spaceship? answer:"], "outside the vocabulary: spaceship. Known are: . : ? limit for is"),
    ([""], "prompt must hold at least one token"),
    (["hotel", "--max-new-tokens", "-1"], "max_new_tokens must be an integer >= 0, got -1"),
    (["hotel", "--max-new-tokens", "257"], "max_seq_len is 256"),
    (["hotel " * 257], "max_seq_len is 256"),
    (["1 2", "--model", "no-such-folder"], "no-such-folder"),
])
def test_bad_input_is_one_line_and_status_2(argv, message, capsys):
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert message in err and err.count("\n") == 1 and err.startswith("mgpt generate: ")


def test_one_way_at_a_time(capsys):
    with pytest.raises(SystemExit) as caught:
        run(capsys, TRAVEL_PROMPT, "--cached", "--full-prefix")
    assert caught.value.code == 2


@pytest.fixture
def folder(tmp_path):
    """A tiny Llama-family folder, whose parameters are seeded."""
    safetensors = pytest.importorskip("safetensors.numpy")
    rng, hidden, kv, inner, vocab = np.random.default_rng(0), 8, 4, 12, 11
    shapes = {"model.embed_tokens": (vocab, hidden), "lm_head": (vocab, hidden)}
    for name, shape in {"q_proj": (hidden, hidden), "k_proj": (kv, hidden), "v_proj": (kv, hidden),
                        "o_proj": (hidden, hidden)}.items():
        shapes[f"model.layers.0.self_attn.{name}"] = shape
    for name, shape in {"gate_proj": (inner, hidden), "up_proj": (inner, hidden),
                        "down_proj": (hidden, inner)}.items():
        shapes[f"model.layers.0.mlp.{name}"] = shape
    tensors = {f"{name}.weight": rng.normal(size=shape) for name, shape in shapes.items()}
    for name in ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"):
        tensors[f"{name}.weight"] = np.ones(hidden)
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    config = {"model_type": "llama", "vocab_size": vocab, "max_position_embeddings": 32, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": hidden, "intermediate_size": inner}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path, config


def test_a_folder_takes_and_gives_token_ids(folder, capsys):
    path, config = folder
    status, out, err = run(capsys, "1 5, 2", "--model", str(path), "--max-new-tokens", "5", "--json")
    assert (status, err) == (0, "")
    result = json.loads(out)
    assert result["prompt_ids"] == [1, 5, 2] and len(result["tokens"]) == 5
    assert result["text"] == " ".join(map(str, result["tokens"]))
    again = ["--model", str(path), "--max-new-tokens", "5", "--full-prefix", "--json"]
    assert json.loads(run(capsys, "[1, 5, 2]", *again)[1])["tokens"] == result["tokens"]


@pytest.mark.parametrize("several", [False, True])
def test_a_folder_s_end_of_text_ends_the_text(several, folder, capsys):
    path, config = folder
    argv = ["1 5 2", "--model", str(path), "--max-new-tokens", "5", "--json"]
    tokens = json.loads(run(capsys, *argv)[1])["tokens"]
    config["eos_token_id"] = [10, tokens[1]] if several else tokens[1]
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    again = json.loads(run(capsys, *argv)[1])
    assert again["tokens"] == tokens[: tokens.index(tokens[1]) + 1]


@pytest.mark.parametrize("prompt, message", [
    ("limit for hotel", "prompt must be token ids for --model"), ("", "prompt must be token ids"),
    ("1 -2", "prompt must be token ids"), ("1 99", "ids must be in 0 .. 10"),
])
def test_a_folder_refuses_words_and_unknown_ids(prompt, message, folder, capsys):
    status, out, err = run(capsys, prompt, "--model", str(folder[0]))
    assert (status, out) == (2, "")
    assert message in err
