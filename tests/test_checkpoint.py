"""MG-2's files: what they hold, and what a damaged or foreign file says."""

import dataclasses
import hashlib
import importlib.resources
import json
import subprocess
import sys

import numpy as np
import pytest

import mgpt.checkpoint
import mgpt.hf
from mgpt.checkpoint import cast, load_mg2, mg2_card, read_arrays, save_checkpoint
from mgpt.config import GPTConfig
from mgpt.model import forward, init_params
from mgpt.policy import VOCABULARY

DATA = importlib.resources.files("mgpt") / "data"
TINY = GPTConfig(6, 8, 1, 2, 1, 4, 8, 8, tie_embeddings=False)


def arrays(params):
    """Name in the file -> array."""
    flat = {key: array for key, array in params.items() if key != "layers"}
    return flat | {f"layers.{i}.{key}": array for i, p in enumerate(params["layers"]) for key, array in p.items()}


@pytest.fixture
def tiny(tmp_path):
    save_checkpoint(tmp_path, "tiny", init_params(TINY, np.random.default_rng(0)), TINY, "abcdef", {"name": "tiny"})
    return tmp_path


def test_mg2_has_the_shape_of_its_card():
    params, config, tokenizer = load_mg2()
    assert config == GPTConfig(vocab_size=40, max_seq_len=256, n_layer=2, n_head=4, n_kv_head=2, head_dim=16,
                               n_embd=64, n_inner=128, rope_theta=10_000.0, norm_eps=1e-5, tie_embeddings=False)
    assert tokenizer.words == VOCABULARY
    assert forward(params, config, np.arange(40)).shape == (40, 40)
    assert sum(array.size for array in arrays(params).values()) == 79_168 == mg2_card()["parameters"]


def test_parameters_are_float64_and_exactly_the_stored_float32():
    params, _, _ = load_mg2()
    for array in arrays(params).values():
        assert array.dtype == np.float64
        assert np.array_equal(array.astype(np.float32), array)
        assert array.flags.c_contiguous


def test_every_load_is_a_fresh_copy():
    first, second = load_mg2()[0], load_mg2()[0]
    first["embed"][:] = 0
    first["layers"][0]["qkv"][:] = 0
    assert second["embed"].any() and second["layers"][0]["qkv"].any()


def test_cast_copies_and_keeps_the_nesting():
    params = load_mg2()[0]
    single = cast(params, np.float32)
    assert arrays(single).keys() == arrays(params).keys()
    assert {array.dtype for array in arrays(single).values()} == {np.dtype(np.float32)}
    same = cast(params, np.float64)
    assert not any(np.shares_memory(arrays(same)[name], array) for name, array in arrays(params).items())


def test_the_files_are_small_and_hold_no_pickled_objects():
    with (DATA / "mg2.npz").open("rb") as file:
        content = file.read()
    assert len(content) < 350_000
    with (DATA / "mg2.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
        assert {stored[name].dtype for name in stored.files} == {np.dtype("<f4")}


def test_the_card_says_where_the_model_comes_from():
    card = mg2_card()
    assert {"name", "what", "limits", "data", "recipe", "held_out", "licence", "config", "vocabulary"} <= card.keys()
    assert {"script", "seed", "steps", "torch"} <= card["recipe"].keys()


def test_loading_needs_neither_torch_nor_safetensors():
    code = ("import sys; sys.modules['torch'] = sys.modules['safetensors'] = None\n"
            "from mgpt.checkpoint import load_mg2\nprint(load_mg2()[1].vocab_size)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("40\n", "")


def test_load_hf_is_reached_from_here():
    assert mgpt.checkpoint.load_hf is mgpt.hf.load_hf


def test_what_was_saved_is_read_back_in_float32(tiny):
    saved = arrays(init_params(TINY, np.random.default_rng(0)))
    read = arrays(read_arrays(tiny / "tiny.npz", TINY))
    assert read.keys() == saved.keys()
    for name, array in saved.items():
        assert np.array_equal(read[name], array.astype(np.float32).astype(np.float64))
    card = json.loads((tiny / "tiny.json").read_text(encoding="utf-8"))
    assert card == {"name": "tiny", "config": dataclasses.asdict(TINY), "vocabulary": list("abcdef")}


def test_saving_twice_gives_the_same_bytes(tiny):
    def digest():
        return hashlib.sha256((tiny / "tiny.npz").read_bytes()).hexdigest()

    first = digest()
    save_checkpoint(tiny, "tiny", init_params(TINY, np.random.default_rng(0)), TINY, "abcdef", {"name": "tiny"})
    assert digest() == first


def test_a_tied_model_has_no_head_in_its_file(tmp_path):
    tied = dataclasses.replace(TINY, tie_embeddings=True)
    save_checkpoint(tmp_path, "tied", init_params(tied, np.random.default_rng(0)), tied, "abcdef", {})
    assert "head" not in read_arrays(tmp_path / "tied.npz", tied)
    with pytest.raises(ValueError, match="missing or not foreseen: head"):
        read_arrays(tmp_path / "tied.npz", TINY)


@pytest.mark.parametrize("change, message", [
    (lambda a: a.pop("layers.0.qkv"), "missing or not foreseen: layers.0.qkv"),
    (lambda a: a.update(bias=np.zeros(3)), "missing or not foreseen: bias"),
    (lambda a: a.update(norm=np.ones(9)), r"norm must be finite floats of shape \(8,\), got float64 \(9,\)"),
    (lambda a: a.update(norm=np.ones(8, int)), r"norm must be finite floats of shape \(8,\), got int64 \(8,\)"),
    (lambda a: a["embed"].__setitem__((0, 0), np.nan), "embed must be finite floats"),
    (lambda a: a.update(norm=np.array([None] * 8)), "allow_pickle"),
])
def test_a_damaged_file_is_refused_by_name(change, message, tmp_path):
    stored = arrays(init_params(TINY, np.random.default_rng(0)))
    change(stored)
    np.savez(tmp_path / "damaged.npz", **stored)
    with pytest.raises(ValueError, match=message):
        read_arrays(tmp_path / "damaged.npz", TINY)
