"""Llama-family folders: what transformers computes is computed here, and bad folders are named."""

import importlib.util
import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from mgpt.cache import KVCache
from mgpt.config import GPTConfig
from mgpt.generate import generate_cached, generate_full_prefix
from mgpt.hf import MissingExtra, load_hf, params_from_tensors, tensor_shapes
from mgpt.model import forward

ROOT = Path(__file__).parents[1]
FIXTURES = sorted((ROOT / "tests" / "data" / "oracles").glob("llama_*.json"))


def script(path):
    """A file of tools/ as a module: that folder is no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


oracles = script(ROOT / "tools" / "record_oracles.py")


@pytest.fixture(params=FIXTURES, ids=lambda path: path.stem)
def recorded(request):
    return json.loads(request.param.read_text(encoding="utf-8"))


def model_of(recorded):
    config = GPTConfig.from_hf(recorded["config"])
    return params_from_tensors(oracles.draw_tensors(config, recorded["seed"]), config), config


def by_name(name):
    path = ROOT / "tests" / "data" / "oracles" / f"llama_{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def off(recorded, params, config):
    """max|Δ| against the recorded logits, one number a recorded position."""
    logits = forward(params, config, np.array(recorded["ids"]))
    return np.abs(logits[recorded["positions"]] - np.array(recorded["logits"])).max(axis=-1)


# --- recorded: transformers in float64, norm and rotary table in float64 too ---


def test_every_shape_of_the_script_has_a_fixture_and_no_other_exists():
    assert [path.stem for path in FIXTURES] == sorted(f"llama_{name}" for name in oracles.SHAPES)


def test_a_fixture_was_recorded_by_the_script_as_it_is_now(recorded):
    assert recorded["script_sha256"] == oracles.script_hash()
    assert recorded["versions"]["transformers"] and recorded["versions"]["torch"]


def test_logits_equal_those_of_transformers(recorded):
    assert off(recorded, *model_of(recorded)).max() < 1e-10


def test_greedy_tokens_with_a_cache_equal_those_of_transformers(recorded):
    generation = generate_cached(*model_of(recorded), recorded["ids"], oracles.N_NEW)
    assert generation.tokens == recorded["tokens"]
    assert np.abs(generation.logits[-1] - np.array(recorded["last_logits"])).max() < 1e-10


@pytest.mark.parametrize("name", sorted(set(oracles.SHAPES) - {"long"}))  # full prefix is for short texts
def test_greedy_tokens_of_the_full_prefix_equal_those_of_transformers(name):
    recorded = by_name(name)
    generation = generate_full_prefix(*model_of(recorded), recorded["ids"], oracles.N_NEW)
    assert generation.tokens == recorded["tokens"]
    assert np.abs(generation.logits[-1] - np.array(recorded["last_logits"])).max() < 1e-10


def test_the_weights_of_a_fixture_are_the_same_for_ever():
    config = GPTConfig.from_hf(oracles.SHAPES["gqa"][0])
    assert oracles.raw(1, 2).tolist() == [9441442522235856127, 17532960557476522086]
    assert float(oracles.draw_tensors(config, 1)["model.embed_tokens.weight"][0, 0]) == 0.040951309217711666


# --- traps: other conventions that give other numbers for the same weights ---


def rows_reordered(tensors, name, order):
    return tensors | {key: x[order] for key, x in tensors.items() if key.endswith(name)}


def test_trap_interleaved_rope_is_right_at_position_0_only():
    recorded = by_name("gqa")
    config = GPTConfig.from_hf(recorded["config"])
    tensors = oracles.draw_tensors(config, recorded["seed"])
    # Rotating pairs (2i, 2i + 1) in place equals half-split rotation of rows in the order 0 2 4 … 1 3 5 ….
    within = np.concatenate([np.arange(0, config.head_dim, 2), np.arange(1, config.head_dim, 2)])
    for name, heads in (("q_proj.weight", config.n_head), ("k_proj.weight", config.n_kv_head)):
        order = (np.arange(heads)[:, None] * config.head_dim + within).ravel()
        tensors = rows_reordered(tensors, name, order)
    first, middle, last = off(recorded, params_from_tensors(tensors, config), config)
    assert first < 1e-10 and middle > 0.01 and last > 0.01


def test_trap_query_head_h_reads_kv_head_h_floor_group_not_h_mod_kv_heads():
    recorded = by_name("gqa")
    config = GPTConfig.from_hf(recorded["config"])
    tensors = oracles.draw_tensors(config, recorded["seed"])
    # Query heads 0 1 2 3 read KV heads 0 0 1 1; with h % 2 they would read 0 1 0 1: heads reordered 0 2 1 3.
    order = (np.array([0, 2, 1, 3])[:, None] * config.head_dim + np.arange(config.head_dim)).ravel()
    tensors = rows_reordered(tensors, "q_proj.weight", order)
    tensors |= {key: x[:, order] for key, x in tensors.items() if key.endswith("o_proj.weight")}
    assert off(recorded, params_from_tensors(tensors, config), config).min() > 0.01


@pytest.mark.parametrize("name", ["mqa_tied", "mha_small_eps"])
def test_with_one_kv_head_or_one_query_head_each_every_grouping_rule_is_the_same(name):
    recorded = by_name(name)
    params, config = model_of(recorded)
    assert config.n_kv_head == 1 or config.group == 1
    assert off(recorded, params, config).max() < 1e-10


def test_trap_a_decode_position_off_by_one_changes_the_logits():
    recorded = by_name("gqa")
    params, config = model_of(recorded)
    cache = KVCache(config, 64)
    forward(params, config, np.array(recorded["ids"]), cache)
    token, held = np.array(recorded["tokens"][:1]), cache.seq_len
    wrong = forward(params, config, token, cache, positions=np.array([held + 1]), last_only=True)
    cache.truncate(held)
    right = forward(params, config, token, cache, last_only=True)
    assert np.abs(wrong - right).max() > 1e-3


def test_a_shift_of_all_positions_is_invisible_so_it_cannot_show_a_wrong_start():
    recorded = by_name("gqa")
    params, config = model_of(recorded)
    ids = np.array(recorded["ids"])
    shifted = forward(params, config, ids, positions=np.arange(len(ids)) + 7)
    assert np.abs(shifted[recorded["positions"]] - np.array(recorded["logits"])).max() < 1e-10


@pytest.mark.parametrize("key, value", [("rope_theta", 10_001.0), ("norm_eps", 1.1e-5)])
def test_the_fixtures_notice_a_setting_that_is_a_little_off(key, value):
    recorded = by_name("gqa")
    params, config = model_of(recorded)
    assert off(recorded, params, GPTConfig(**vars(config) | {key: value})).max() > 1e-8


# --- folders ---

SETTINGS = oracles.SHAPES["gqa"][0]


def safetensors_bytes(tensors):
    """The format by hand: length of the header, header, data.  tensors: name -> (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def stored(tensors, dtype="F64"):
    numpy_dtype = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype]
    return {name: (dtype, x.shape, x.astype(numpy_dtype).tobytes()) for name, x in tensors.items()}


def folder_of(path, settings=SETTINGS, tensors=None, seed=1):
    if tensors is None:
        tensors = stored(oracles.draw_tensors(GPTConfig.from_hf(settings), seed))
    (path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    (path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    return path


def shard(path, n_files=3):
    """Split model.safetensors of a folder into shards with an index, as large public models are."""
    config = GPTConfig.from_hf(json.loads((path / "config.json").read_text()))
    tensors = stored(oracles.draw_tensors(config, 1))
    files = [f"model-{i + 1:05}-of-{n_files:05}.safetensors" for i in range(n_files)]
    weight_map = {name: files[i % n_files] for i, name in enumerate(tensors)}
    for file in files:
        part = {name: x for name, x in tensors.items() if weight_map[name] == file}
        (path / file).write_bytes(safetensors_bytes(part))
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "model.safetensors").unlink()
    return weight_map


def assert_equal_params(left, right):
    flat = [(p["embed"], p["norm"], p.get("head", np.zeros(0)), *(x for y in p["layers"] for x in y.values()))
            for p in (left, right)]
    assert len(flat[0]) == len(flat[1]) and all(np.array_equal(a, b) for a, b in zip(*flat))


def test_a_folder_gives_the_recorded_logits_from_c_ordered_float64_matrices(tmp_path):
    recorded = by_name("gqa")
    params, config = load_hf(str(folder_of(tmp_path, recorded["config"], seed=recorded["seed"])))
    assert off(recorded, params, config).max() < 1e-10
    for x in (params["embed"], params["head"], *(x for layer in params["layers"] for x in layer.values())):
        assert x.dtype == np.float64 and x.flags.c_contiguous
    assert params["layers"][0]["qkv"].shape == (32, 64) and params["layers"][0]["gate_up"].shape == (32, 96)


def test_all_weights_lie_in_one_buffer_which_can_have_large_pages(tmp_path):
    params, _ = load_hf(folder_of(tmp_path))
    layers = [x for layer in params["layers"] for x in layer.values()]
    arrays = [params["embed"], params["norm"], params["head"], *layers]
    assert len({id(x.base) for x in arrays}) == 1 and arrays[0].base.size == sum(x.size for x in arrays)


def test_shards_are_the_same_model_as_one_file(tmp_path):
    whole = load_hf(folder_of(tmp_path))[0]
    shard(tmp_path)
    assert_equal_params(load_hf(tmp_path)[0], whole)


def test_a_tied_head_is_not_stored_twice_and_a_stored_copy_must_be_equal(tmp_path):
    settings = SETTINGS | {"tie_word_embeddings": True}
    tensors = oracles.draw_tensors(GPTConfig.from_hf(settings), 1)
    params = load_hf(folder_of(tmp_path, settings, stored(tensors)))[0]
    assert "head" not in params
    copy = tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]}
    assert_equal_params(load_hf(folder_of(tmp_path, settings, stored(copy)))[0], params)
    other = tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}
    with pytest.raises(ValueError, match="lm_head.weight"):
        load_hf(folder_of(tmp_path, settings, stored(other)))


@pytest.mark.parametrize("dtype, raw, values", [
    ("BF16", "803f 49c0 0000 0080 0100 7f7f", [1.0, -3.140625, 0.0, -0.0, 2.0**-133, 3.3895313892515355e38]),
    ("F16", "003c 013c 00c0 0100 ff7b", [1.0, 1.0009765625, -2.0, 2.0**-24, 65504.0]),
    ("F32", "0000803f cdcccc3d", [1.0, 0.10000000149011612]),
    ("F64", "000000000000f03f 9a9999999999b93f", [1.0, 0.1]),
])
def test_every_stored_float_widens_to_the_number_it_stands_for(tmp_path, dtype, raw, values):
    settings = SETTINGS | {"hidden_size": 4, "head_dim": 2, "vocab_size": 40}
    tensors = stored(oracles.draw_tensors(GPTConfig.from_hf(settings), 1))
    data = bytes.fromhex(raw)
    size = len(data) // len(values)
    tensors["model.embed_tokens.weight"] = (dtype, (40, 4), data + bytes(160 * size - len(data)))
    embed = load_hf(folder_of(tmp_path, settings, tensors))[0]["embed"].ravel()[: len(values)]
    assert embed.tolist() == values and np.signbit(embed).tolist() == np.signbit(values).tolist()


def test_the_rotary_frequencies_of_old_folders_are_passed_over(tmp_path):
    tensors = oracles.draw_tensors(GPTConfig.from_hf(SETTINGS), 1)
    old = tensors | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4)}
    assert_equal_params(load_hf(folder_of(tmp_path, SETTINGS, stored(old)))[0], params_from_tensors(
        tensors, GPTConfig.from_hf(SETTINGS)))


@pytest.mark.parametrize("change, words", [
    ({"model.layers.1.mlp.up_proj.weight": None}, "lack model.layers.1.mlp.up_proj.weight"),
    ({"lm_head.weight": None}, "lack lm_head.weight"),
    ({"model.layers.0.self_attn.q_proj.bias": ("F64", (1,), bytes(8))}, "beyond .*q_proj.bias"),
    ({"model.layers.2.input_layernorm.weight": ("F64", (1,), bytes(8))}, "beyond .*model.layers.2"),
    ({"model.norm.weight": ("F64", (31,), bytes(248))}, r"norm.weight .*\(32,\).*\(31,\)"),
    ({"lm_head.weight": ("F64", (32, 37), bytes(8 * 37 * 32))}, r"lm_head.*\(37, 32\).*\(32, 37\)"),
    ({"model.norm.weight": ("I8", (32,), bytes(32))}, "model.norm.weight .*BF16.* got I8"),
    ({name: None for name in tensor_shapes(GPTConfig.from_hf(SETTINGS))}, "and 17 more"),
])
def test_tensors_that_do_not_fit_config_json_are_named(tmp_path, change, words):
    tensors = stored(oracles.draw_tensors(GPTConfig.from_hf(SETTINGS), 1)) | change
    tensors = {name: x for name, x in tensors.items() if x is not None}
    with pytest.raises(ValueError, match=words):
        load_hf(folder_of(tmp_path, SETTINGS, tensors))


@pytest.mark.parametrize("more, words", [
    ({"attention_bias": True}, "attention_bias"), ({"hidden_act": "gelu"}, "hidden_act"),
    ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0}}, "rope type"),
    ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, "rope type"),
    ({"sliding_window": 16}, "sliding_window"),
    ({"model_type": "granite", "embedding_multiplier": 12.0}, "embedding_multiplier"),
    ({"attention_multiplier": 0.0078125}, "attention_multiplier"),
    ({"final_logit_softcapping": 30.0}, "softcapping"),
    ({"no_rope_layers": [1, 0]}, "no_rope_layers"), ({"model_type": "ernie4_5"}, "interleaved RoPE"),
    ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
    ({"num_key_value_heads": None}, "num_key_value_heads"), ({"num_key_value_heads": 3}, "n_kv_head"),
    ({"hidden_size": None}, "hidden_size"), ({"vocab_size": 37.0}, "vocab_size"),
])
def test_a_setting_that_the_model_does_not_compute_is_named(tmp_path, more, words):
    folder_of(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(SETTINGS | more))
    with pytest.raises(ValueError, match=words):
        load_hf(tmp_path)


def test_settings_that_change_nothing_are_let_through(tmp_path):
    plain = {"embedding_multiplier": 1.0, "logits_scaling": None, "no_rope_layers": [1, 1], "use_cache": True,
             "attention_bias": False, "final_logit_softcapping": None, "sliding_window": None,
             "model_type": "mistral"}
    assert_equal_params(load_hf(folder_of(tmp_path, SETTINGS | plain))[0], params_from_tensors(
        oracles.draw_tensors(GPTConfig.from_hf(SETTINGS), 1), GPTConfig.from_hf(SETTINGS)))


def test_a_folder_that_is_none_and_files_that_are_absent_are_named(tmp_path):
    with pytest.raises(ValueError, match="no config.json"):
        load_hf(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no config.json"):
        load_hf(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(SETTINGS))
    with pytest.raises(ValueError, match="neither"):
        load_hf(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")  # pickled weights are never opened
    with pytest.raises(ValueError, match="model.safetensors or model.safetensors.index.json"):
        load_hf(tmp_path)


@pytest.mark.parametrize("text, words", [
    ("{", "config.json is not JSON"), ("[1]", "JSON object"), ("\xff", "not JSON"),
])
def test_a_config_that_is_no_json_object_is_refused(tmp_path, text, words):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=words):
        load_hf(tmp_path)


@pytest.mark.parametrize("data", [b"", b"\x08\0\0\0\0\0\0\0{}", b"version https://git-lfs"])
def test_a_damaged_tensor_file_is_named(tmp_path, data):
    (folder_of(tmp_path) / "model.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match="model.safetensors is not a safetensors file"):
        load_hf(tmp_path)


def test_a_missing_shard_and_a_shard_outside_the_folder_are_named(tmp_path):
    weight_map = shard(folder_of(tmp_path))
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ValueError, match="model-00002-of-00003.safetensors"):
        load_hf(tmp_path)
    shard(folder_of(tmp_path))
    index = tmp_path / "model.safetensors.index.json"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other.safetensors").write_bytes(b"")  # exists, and is still not looked at
    weight_map["model.norm.weight"] = "sub/other.safetensors"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ValueError, match="lists sub/other.safetensors"):
        load_hf(tmp_path)
    index.write_text(json.dumps({"weight_map": {}}))
    with pytest.raises(ValueError, match="weight_map"):
        load_hf(tmp_path)


def test_without_the_safetensors_package_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"mgpt\[hf\]") as caught:
        load_hf(folder_of(tmp_path))
    assert isinstance(caught.value, MissingExtra) and isinstance(caught.value, ValueError)


def test_the_published_names_count_every_parameter_once():
    config = GPTConfig.from_hf(SETTINGS)
    shapes = tensor_shapes(config)
    assert len(shapes) == 2 * 9 + 3
    layer = 2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32 + 2 * 32  # q and o, k and v, the MLP, two norms
    assert sum(np.prod(shape) for shape in shapes.values()) == 2 * 37 * 32 + 2 * layer + 32
