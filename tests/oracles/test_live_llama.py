"""Logits and tokens, computed now by transformers' Llama in float64 and by mgpt, are equal to 1e-10."""

import json

import numpy as np
import pytest
import record_oracles as oracles
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from mgpt.cache import KVCache
from mgpt.checkpoint import load_hf
from mgpt.config import GPTConfig
from mgpt.generate import generate_cached
from mgpt.hf import params_from_tensors
from mgpt.model import forward


pytestmark = pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")


def both(settings, seed=1, exact=True):
    """transformers' model and mgpt's (params, config) with the same weights."""
    config = GPTConfig.from_hf(settings)
    tensors = oracles.draw_tensors(config, seed)
    return oracles.torch_llama(settings, tensors, exact), params_from_tensors(tensors, config), config


def assert_same_model(model, params, config, n_prompt, seed=1, n_new=8):
    ids = oracles.draw_ids(config, seed, n_prompt)
    assert np.abs(forward(params, config, np.array(ids)) - oracles.torch_logits(model, ids)).max() < 1e-10
    tokens, last = oracles.torch_greedy(model, ids, n_new)
    generation = generate_cached(params, config, ids, n_new)
    assert generation.tokens == tokens
    assert np.abs(generation.logits[-1] - last).max() < 1e-10


@pytest.mark.parametrize("name", oracles.SHAPES)
def test_a_fresh_recording_equals_the_one_kept(name):
    path = oracles.OUT / f"llama_{name}.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    fresh = oracles.record(name, kept["seed"])
    for key in ("recorded_by", "script_sha256", "config", "ids", "positions", "tokens"):
        assert fresh[key] == kept[key]
    assert np.abs(np.array(fresh["logits"]) - np.array(kept["logits"])).max() < 1e-10
    assert np.abs(np.array(fresh["last_logits"]) - np.array(kept["last_logits"])).max() < 1e-10


@pytest.mark.parametrize("n_head, n_kv_head", [
    (1, 1), (2, 1), (2, 2), (3, 1), (3, 3), (4, 2), (6, 2), (6, 3), (8, 4), (12, 4),
])
@pytest.mark.parametrize("head_dim", [2, 6, 16])
def test_every_grouping_of_heads_is_the_same(n_head, n_kv_head, head_dim):
    settings = oracles.llama(2, n_head, n_kv_head, 12 * n_head, 20, 29, head_dim=head_dim)
    assert_same_model(*both(settings, seed=n_head), n_prompt=7)


@pytest.mark.parametrize("more", [
    {"tie_word_embeddings": True}, {"rms_norm_eps": 1e-3}, {"rope_parameters": oracles.theta(1e6)},
    {"rope_parameters": oracles.theta(2.5)}, {"vocab_size": 2}, {"intermediate_size": 1},
    {"num_hidden_layers": 5},
], ids=str)
def test_every_setting_that_the_config_knows_is_the_same(more):
    assert_same_model(*both(oracles.llama(2, 4, 2, 16, 20, 29) | more), n_prompt=7)


def test_a_config_without_kv_heads_means_one_for_each_query_head():
    settings = oracles.llama(2, 4, 4, 16, 20, 29)
    del settings["num_key_value_heads"]
    assert_same_model(*both(settings), n_prompt=7)


def test_the_last_position_that_the_model_has_is_the_same():
    model, params, config = both(oracles.llama(2, 4, 2, 16, 20, 29))
    assert_same_model(model, params, config, n_prompt=config.max_seq_len - 3, n_new=4)


def test_unequal_lengths_in_a_batch_are_masked_alike():
    model, params, config = both(oracles.llama(2, 4, 2, 16, 20, 29))
    ids = np.array([[0, 0, 0, 5, 7], [3, 9, 4, 1, 2]])
    mask = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    positions = np.maximum(mask.cumsum(axis=1) - 1, 0)
    with torch.no_grad():
        theirs = model(torch.tensor(ids), attention_mask=torch.tensor(mask),
                       position_ids=torch.tensor(positions)).logits.numpy()
    ours = forward(params, config, ids, positions=positions, mask=mask)
    assert np.abs(ours - theirs)[mask.astype(bool)].max() < 1e-10


def test_stock_transformers_in_float64_still_rounds_to_float32_inside():
    """Its norm and rotary table are float32: a named difference of about 1e-5, not an error of ours."""
    model, params, config = both(oracles.SHAPES["long"][0], exact=False)
    ids = oracles.draw_ids(config, 1, 300)
    difference = np.abs(forward(params, config, np.array(ids)) - oracles.torch_logits(model, ids)).max()
    assert 1e-7 < difference < 1e-3


# --- load_hf on folders that transformers itself has written ---


@pytest.mark.parametrize("name", ["gqa", "mqa_tied", "head_wider_than_its_share", "mha_small_eps"])
def test_a_folder_written_by_save_pretrained_is_the_same_model(tmp_path, name):
    model, params, config = both(oracles.SHAPES[name][0])
    model.save_pretrained(tmp_path)
    loaded, loaded_config = load_hf(tmp_path)
    assert loaded_config == config and sorted(loaded) == sorted(params)
    assert_same_model(model, loaded, loaded_config, n_prompt=7)


def test_shards_written_by_save_pretrained_are_the_same_model(tmp_path):
    model, *_ = both(oracles.SHAPES["gqa"][0])
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2 and not (tmp_path / "model.safetensors").exists()
    assert_same_model(model, *load_hf(tmp_path), n_prompt=7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_stored_halves_are_widened_to_the_numbers_that_torch_reads(tmp_path, dtype):
    model, *_ = both(oracles.SHAPES["gqa"][0])
    model.to(dtype).save_pretrained(tmp_path)
    model.to(torch.float64)  # the stored values, exactly
    assert_same_model(model, *load_hf(tmp_path), n_prompt=7)


def test_llama_configs_own_defaults_are_read_alike(tmp_path):
    torch.manual_seed(0)
    small = LlamaConfig(vocab_size=29, hidden_size=16, intermediate_size=20, num_hidden_layers=2,
                        num_attention_heads=4, attn_implementation="sdpa")
    model = LlamaForCausalLM(small).to(torch.float64).eval()
    oracles.make_float64(model)
    model.save_pretrained(tmp_path)
    assert_same_model(model, *load_hf(tmp_path), n_prompt=7)


def test_a_cache_filled_in_chunks_goes_on_as_transformers_does():
    model, params, config = both(oracles.SHAPES["gqa_3_groups_tied"][0])
    ids = oracles.draw_ids(config, 3, 20)
    cache = KVCache(config, 20, np.float64)
    rows = [forward(params, config, np.array(ids[a:b]), cache) for a, b in ((0, 1), (1, 6), (6, 7), (7, 20))]
    assert np.abs(np.concatenate(rows) - oracles.torch_logits(model, ids)).max() < 1e-10
