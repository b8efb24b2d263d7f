"""The byte counter: written answers, public configs, and the values that real tools got wrong."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.memory import DTYPES, KVShape, PagedBytes, format_bytes, kv_cache_bytes, paged_bytes, vector_bytes

CONFIGS = Path(__file__).parents[1] / "mgpt" / "data" / "configs"
LAWS = settings(deadline=None, derandomize=True, max_examples=60)
LAYERS, HEADS, KV, HIDDEN = "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size"
KEYS = sorted({key for path in CONFIGS.glob("*.json") for key in json.loads(path.read_text())} | {
    HIDDEN, "head_dim", "attn_config", "linear_attn_config", "full_attn_layers", "num_nextn_predict_layers",
    "use_mla", "block_types", "attention_layers", "window_size", "use_cla", "cla_share_factor",
    "cross_attention_layers",
    "no_rope_layers", "no_rope_layer_interval", "attn_type_list", "attn_layer_indices", "attention_k_eq_v",
    "num_global_key_value_heads", "global_head_dim", "layers_block_type", "compress_ratios", "attn_type"})
LLAMA = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
MLA = {"num_hidden_layers": 61, "num_attention_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64}


def shape(name):
    return KVShape.from_hf(json.loads((CONFIGS / f"{name}.json").read_text()))


def of(**keys):
    """A small model (4 layers, 4 query heads 8 wide: 128 bytes a token and layer at MHA) with these keys."""
    return KVShape.from_hf({"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 32, **keys})


def windows(kv_shape):
    return [layer and (layer.window or "all") for layer in kv_shape.layers]


# --- kv_cache_bytes

@pytest.mark.parametrize("n_layer, n_kv_head, head_dim, lengths, expected", [
    (2, 2, 4, 8, 512), (2, 2, 4, 9, 576), (2, 2, 4, 10, 640),
    (24, 8, 128, 4096, 402_653_184), (24, 8, 128, [4096, 4096], 805_306_368),
    (24, 4, 128, [4096] * 4, 805_306_368),  # exercise 3: half the KV heads, four requests
    (32, 8, 128, 1, 131_072), (32, 8, 128, [4096] * 4, 2_147_483_648),
    (32, 32, 128, 1, 524_288), (32, 1, 128, 1, 16_384),
    (2, 2, 4, [], 0), (2, 2, 4, 0, 0), (2, 2, 4, [3, 0, 5], 512)])
def test_the_formula_gives_the_written_answers(n_layer, n_kv_head, head_dim, lengths, expected):
    found = kv_cache_bytes(n_layer=n_layer, n_kv_head=n_kv_head, head_dim=head_dim, lengths=lengths)
    assert found == expected and type(found) is int


def test_an_estimate_over_the_hidden_size_is_eight_times_too_large():
    """jranaraki/vllm-fit#2 (kv-068): heads times hidden counts the heads twice; the tool printed 4194304."""
    assert 2 * 32 * 32 * 4096 * 4 // 8 == 4_194_304
    assert kv_cache_bytes(n_layer=32, n_kv_head=32, head_dim=128, lengths=1) == 524_288


def test_numpy_integers_do_not_overflow_and_do_not_leak():
    found = kv_cache_bytes(n_layer=np.int8(100), n_kv_head=np.int8(100), head_dim=np.int16(128),
                           lengths=np.array([30_000, 30_000], dtype=np.int16), bytes_per_value=np.uint8(8))
    assert found == 1_228_800_000_000 and type(found) is int
    assert kv_cache_bytes(n_layer=1, n_kv_head=1, head_dim=1, lengths=(n for n in (1, 2))) == 12


@pytest.mark.parametrize("change, named", [
    ({"n_layer": 0}, "n_layer"), ({"n_kv_head": -1}, "n_kv_head"), ({"head_dim": 4.0}, "head_dim"),
    ({"head_dim": True}, "head_dim"), ({"bytes_per_value": 0}, "bytes_per_value"),
    ({"bytes_per_value": 0.5}, "bytes_per_value"), ({"lengths": -1}, "lengths"),
    ({"lengths": [1, -1]}, r"lengths\[1\]"), ({"lengths": [1.0]}, r"lengths\[0\]"),
    ({"lengths": "8"}, "lengths"),
    ({"lengths": None}, "lengths"), ({"lengths": 2.5}, "lengths"), ({"lengths": True}, "lengths"),
    ({"lengths": np.array([1.5])}, r"lengths\[0\]"), ({"lengths": [[1]]}, r"lengths\[0\]")])
def test_a_bad_count_is_refused_by_name(change, named):
    with pytest.raises(ValueError, match=rf"^{named} must be an integer >= "):
        kv_cache_bytes(**{"n_layer": 2, "n_kv_head": 2, "head_dim": 4, "lengths": 8, **change})


# --- paged_bytes, format_bytes

@pytest.mark.parametrize("lengths, block_size, expected", [
    pytest.param([8, 9, 1], 4, PagedBytes(6, 24, 6, 1536), id="kv-055"),
    pytest.param([0], 4, PagedBytes(0, 0, 0, 0), id="kv-056"),
    pytest.param([16, 16], 16, PagedBytes(2, 32, 0, 2048), id="kv-057"),
    pytest.param([17], 16, PagedBytes(2, 32, 15, 2048), id="kv-058"),
    pytest.param(17, 1, PagedBytes(17, 17, 0, 1088), id="block of one"),
    pytest.param([], 4, PagedBytes(0, 0, 0, 0), id="no request")])
def test_blocks_are_rounded_up_for_each_request_and_then_added(lengths, block_size, expected):
    """Rounding the sum instead would give 5 blocks in kv-055."""
    assert paged_bytes(lengths, block_size, 64) == expected


@pytest.mark.parametrize("arguments, named", [
    (([-1], 4, 64), r"lengths\[0\]"), (([8], 0, 64), "block_size"), (([8], 4, 0), "bytes_per_token"),
    (([8], 4, 1.5), "bytes_per_token"), (([8], 2.0, 64), "block_size")])
def test_bad_pages_are_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=f"^{named} must"):
        paged_bytes(*arguments)


@pytest.mark.parametrize("n, binary, decimal", [
    (0, "0 B", "0 B"), (1, "1 B", "1 B"), (999, "999 B", "999 B"), (1000, "1000 B", "1 kB"),
    (1023, "1023 B", "1.02 kB"), (1024, "1 KiB", "1.02 kB"), (1025, "1.00 KiB", "1.02 kB"),
    (131_072, "128 KiB", "131.07 kB"), (402_653_184, "384 MiB", "402.65 MB"), (10**6, "976.56 KiB", "1 MB"),
    (1_610_612_736, "1.50 GiB", "1.61 GB"), (1_073_741_824, "1 GiB", "1.07 GB"),  # kv-067
    (1_223_294_976, "1.14 GiB", "1.22 GB"), (2**30 - 1, "1024.00 MiB", "1.07 GB"),
    (3 * 2**40, "3 TiB", "3298.53 GB"), (2 * 10**12, "1.82 TiB", "2000 GB"),
    (np.int64(2048), "2 KiB", "2.05 kB")])
def test_sizes_print_in_the_largest_unit_and_without_decimals_when_exact(n, binary, decimal):
    assert (format_bytes(n), format_bytes(n, si=True)) == (binary, decimal)


@pytest.mark.parametrize("n", [-1, 1.0, 0.5, "8", None, True, float("nan")])
def test_only_whole_bytes_have_a_size(n):
    with pytest.raises(ValueError, match="^n must be an integer >= 0"):
        format_bytes(n)


# --- KVShape: public configs

@pytest.mark.parametrize("name, structure, a_token, of_32768", [
    ("llama-2-7b", "MHA", 524_288, 17_179_869_184),  # kv-001
    ("llama-3.1-8b", "GQA", 131_072, 4_294_967_296),
    ("llama-3.1-70b", "GQA", 327_680, 10_737_418_240),  # kv-003
    ("llama-3.1-405b", "GQA", 516_096, 16_911_433_728),  # kv-004
    ("llama-4-scout", "GQA", 196_608, 2_818_572_288),  # 12 layers hold all, 36 a chunk of 8192
    ("mistral-7b", "GQA", 131_072, 536_870_912),  # every layer holds 4096 positions
    ("mistral-nemo-12b", "GQA", 163_840, 5_368_709_120),  # kv-007
    ("mixtral-8x7b", "GQA", 131_072, 4_294_967_296),
    ("qwen2.5-7b", "GQA", 57_344, 1_879_048_192),  # kv-008
    ("qwen3-0.6b", "GQA", 114_688, 3_758_096_384),  # kv-009
    ("qwen3-8b", "GQA", 147_456, 4_831_838_208),  # kv-010
    ("qwen3-next-80b-a3b", "GQA", 24_576, 805_306_368),  # 12 of 48 layers
    ("qwen3.5-27b", "GQA", 65_536, 2_147_483_648),  # kv-034: 16 of 64 layers
    ("gemma-2-9b", "GQA", 344_064, 6_341_787_648),  # 21 layers hold 4096 positions, 21 all
    ("gemma-3-1b", "MQA", 26_624, 145_752_064),  # 22 layers hold 512 positions, 4 all
    ("gemma-3n-e4b", "GQA", 40_960, 285_212_672),  # 15 of 35 layers hold nothing
    ("falcon-7b", "MQA", 8_192, 268_435_456),
    ("falcon-40b", "GQA", 122_880, 4_026_531_840),
    ("gpt2", "MHA", 36_864, 1_207_959_552),
    ("gpt-oss-20b", "GQA", 49_152, 808_452_096),
    ("phi-3-mini-4k", "MHA", 393_216, 804_913_152),
    ("chatglm3-6b", "GQA", 28_672, 939_524_096),
    ("deepseek-v2-lite", "MLA", 31_104, 1_019_215_872),  # kv-029
    ("deepseek-v3", "MLA", 70_272, 2_302_672_896),  # kv-028
    ("kimi-k2", "MLA", 70_272, 2_302_672_896),
    ("nemotron-3-nano-30b", "GQA", 6_144, 201_326_592),  # kv-035: 6 of 52 layers
    ("jamba-v0.1", "GQA", 16_384, 536_870_912),  # 4 of 32 layers
    ("mimo-v2-flash", "GQA", 222_720, 780_533_760)])
def test_public_models_count_to_the_written_bytes(name, structure, a_token, of_32768):
    model = shape(name)
    assert model.structure == structure
    assert model.bytes_per_token() == a_token
    assert model.bytes(32_768) == of_32768
    assert type(model.bytes(np.int64(3))) is int


def test_every_stored_config_has_a_written_answer_and_a_source():
    names = {path.stem for path in CONFIGS.glob("*.json")}
    written = test_public_models_count_to_the_written_bytes.pytestmark[0].args[1]
    assert names == {row[0] for row in written}
    assert all(json.loads((CONFIGS / f"{name}.json").read_text())["_source"] for name in names)


@pytest.mark.parametrize("keys, expected, wrong", [
    pytest.param({LAYERS: 48, HEADS: 64, KV: 8, HIDDEN: 8192},
                 196_608, 1_572_864, id="kv-005 CodeLlama-34B, not 64 heads"),
    pytest.param({LAYERS: 64, HEADS: 64, KV: 8, HIDDEN: 5120, "head_dim": 128},
                 262_144, 163_840, id="kv-012 Qwen3-32B, not hidden/heads = 80"),
    pytest.param({LAYERS: 28, HEADS: 16, KV: 16, HIDDEN: 3072, "head_dim": 256},
                 458_752, 344_064, id="kv-016 UbiquitousLearning/mllm Gemma-7B"),
    pytest.param({LAYERS: 18, HEADS: 8, KV: 1, HIDDEN: 2048, "head_dim": 256},
                 18_432, 147_456, id="kv-017 UbiquitousLearning/mllm Gemma-2B"),
    pytest.param({LAYERS: 1, HEADS: 16, KV: 8, HIDDEN: 3584, "head_dim": 256},
                 8_192, 7_168, id="kv-071 ai-dynamo/dynamo#14431")])
def test_the_keys_decide_and_not_a_guess(keys, expected, wrong):
    assert KVShape.from_hf(keys).bytes_per_token() == expected != wrong


def test_a_window_counts_min_of_length_and_window_for_each_request():
    """alvarobartt/hf-mem#60, #70 (kv-022, 024, 025, 027): sliding layers were left out, or reserved whole."""
    oss = shape("gpt-oss-20b")
    assert oss.bytes(128) == 6_291_456 and oss.bytes(1) == 49_152  # left out: 3145728
    assert oss.bytes([8192] * 32) == 6_543_114_240  # reserved whole: 12884901888
    assert oss.bytes([100, 8192]) == oss.bytes(100) + oss.bytes(8192) == 4_915_200 + 204_472_320
    large = KVShape.from_hf({"num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
                             "head_dim": 64, "hidden_size": 2880, "sliding_window": 128,
                             "layer_types": ["sliding_attention", "full_attention"] * 18})
    assert (large.bytes(1), large.bytes(128)) == (73_728, 9_437_184)


def test_a_window_of_four_holds_four_positions():
    """kv-064, kv-065: min(T, W); transformers keeps W - 1 = 3 between passes, and 10 alive in storage."""
    one = KVShape.from_hf({LAYERS: 1, HEADS: 2, "head_dim": 16, "sliding_window": 4})
    assert one.bytes(10) == 2 * 256 and one.bytes(10) not in (2 * 192, 2 * 640)


def test_k_and_v_widths_and_heads_may_differ_between_layers():
    """kv-036, MiMo-V2-Flash: 2 * 192 for K and V gives 257163264; uniform and unwindowed 1006632960."""
    assert shape("mimo-v2-flash").bytes(8192) == 214_302_720


def test_mla_holds_one_latent_without_heads_or_a_factor_two():
    """kv-028, kv-066 (LMCache#694, llama.cpp#11397, hf-mem): 124928, 62464, 4997120, 1748992 were printed."""
    v3 = shape("deepseek-v3")
    assert v3.bytes_per_token() == 70_272
    assert v3.as_mha().bytes_per_token() == 4_997_120  # what a cache of unpacked heads takes
    assert v3.bytes(32_768, "q8_0") == 1_223_294_976  # ikawrakow/ik_llama.cpp#259 (kv-031): 1166.62 MiB
    assert v3.bytes_per_token("int8") == 61 * (576 + 4) and v3.bytes_per_token("int4") == 61 * (288 + 4)
    assert [v3.bytes_per_token(tp=tp) for tp in (1, 8, 128)] == [70_272] * 3  # whole on every rank
    bare = KVShape.from_hf({"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64})
    assert bare.bytes_per_token() == 70_272 and bare.as_mha() is None


def test_the_mha_of_a_model_has_a_kv_head_for_each_query_head():
    assert shape("llama-3.1-8b").as_mha().bytes_per_token() == 524_288
    assert shape("falcon-7b").as_mha().bytes_per_token() == 581_632
    assert shape("gpt-oss-20b").as_mha().bytes(8192) == 8 * 204_472_320  # windows stay
    assert KVShape.from_hf(MLA).as_mha() is None


# --- KVShape: one law a key

def test_missing_kv_heads_are_query_heads_and_null_ones_are_refused():
    assert of().bytes_per_token() == 512
    for name in ("num_key_value_heads", "num_kv_heads", "n_head_kv"):
        with pytest.raises(ValueError, match=f"{name} is null"):
            of(**{name: None})
    assert of(num_key_value_heads=2, num_kv_heads=None).bytes_per_token() == 256


@pytest.mark.parametrize("keys, heads", [
    ({"multi_query": True}, 1), ({"multi_query": True, "num_kv_heads": 4}, 1), ({"multi_query": False}, 4),
    ({"multi_query": True, "num_key_value_heads": None}, 1),
    ({"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 2}, 2),
    ({"multi_query": True, "new_decoder_architecture": True}, 4), ({"new_decoder_architecture": True}, 4),
    ({"multi_query": None, "n_head_kv": 2}, 2), ({"n_kv_heads": 2}, 2), ({"num_attention_groups": 2}, 2),
    ({"multi_query_attention": True, "multi_query_group_num": 2}, 2), ({"multi_query_attention": True}, 1),
    ({"multi_query_attention": False, "multi_query_group_num": 2}, 4), ({"multi_query_group_num": 2}, 2),
    ({"attn_config": {"kv_n_heads": 2}}, 2), ({"attn_config": {"attn_type": "multiquery_attention"}}, 1),
    ({"attn_config": {"attn_type": "multihead_attention"}}, 4), ({"attention_head_type": "multiquery"}, 1)])
def test_kv_heads_under_every_public_spelling(keys, heads):
    assert of(**keys).bytes_per_token() == 128 * heads


@pytest.mark.parametrize("keys", [
    {"n_layer": 4, "n_head": 4, "n_embd": 32}, {"n_layers": 4, "n_heads": 4, "d_model": 32},
    {"num_layers": 4, "num_heads": 4, "hidden_size": 32},
    {"num_hidden_layers": 4, "n_head": 4, "n_embed": 32},
    {"num_layers": 4, "num_attention_heads": 4, "hidden_size": 999, "kv_channels": 8},
    {"n_layers": 4, "n_heads": 4, "dim": 32, "head_dim": None},
    {"num_hidden_layers": 4, "num_attention_heads": 4, "attention_head_dim": 8}])
def test_the_same_model_under_other_names(keys):
    assert KVShape.from_hf(keys) == of()


@pytest.mark.parametrize("outer", ["text_config", "language_config", "llm_config", "thinker_config"])
def test_the_language_part_of_a_multimodal_config_is_the_one_counted(outer):
    vision = {"num_hidden_layers": 9, "num_attention_heads": 9, "hidden_size": 9}
    nested = {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 32}
    assert KVShape.from_hf({outer: nested, "vision_config": vision, "hidden_size": 7}) == of()
    assert KVShape.from_hf({outer: {"text_config": nested}}) == of()
    assert KVShape.from_hf({**nested, outer: {"model_type": "llama"}}) == of()  # says nothing
    assert KVShape.from_hf({**nested, outer: None}) == of()


@pytest.mark.parametrize("keys, expected", [
    ({}, ["all"] * 4), ({"sliding_window": 3}, [3] * 4), ({"sliding_window": None}, ["all"] * 4),
    ({"sliding_window": 3, "use_sliding_window": False}, ["all"] * 4),
    ({"sliding_window": 3, "use_sliding_window": True}, [3] * 4),
    ({"sliding_window": 3, "use_sliding_window": True, "max_window_layers": 3}, ["all"] * 3 + [3]),
    ({"sliding_window": 3, "use_sliding_window": True, "max_window_layers": 4}, ["all"] * 4),
    ({"sliding_window": 3, "use_sliding_window": False, "max_window_layers": 0}, ["all"] * 4),
    ({"sliding_window": 3, "sliding_window_pattern": 2}, [3, "all"] * 2),
    ({"sliding_window": 3, "sliding_window_pattern": 4}, [3, 3, 3, "all"]),
    ({"sliding_window": 3, "sliding_window_pattern": "LG"}, [3, "all"] * 2),
    ({"sliding_window": None, "sliding_window_pattern": 2}, ["all"] * 4),
    ({"sliding_window": 3, "model_type": "gemma2"}, [3, "all"] * 2),
    ({"sliding_window": None, "model_type": "gemma2"}, ["all"] * 4),
    ({"sliding_window": 3, "model_type": "gemma2", "layer_types": ["full_attention"] * 4}, ["all"] * 4),
    ({"sliding_window": 3, "model_type": "gemma"}, [3] * 4),
    ({"sliding_window": 3, "_sliding_window_pattern": 2}, [3, "all"] * 2),
    ({"sliding_window": 3, "model_type": "gemma3_text", "sliding_window_pattern": 2}, [3, "all"] * 2),
    ({"sliding_window": None, "model_type": "gemma3_text"}, ["all"] * 4),
    ({"sliding_window": 3, "global_attn_idx": [0, 3]}, ["all", 3, 3, "all"]),
    ({"sliding_window": None, "global_attn_idx": [0, 3]}, ["all"] * 4),
    ({"kv_reuse_group": [[1, 2, 3]]}, ["all", "all", None, None]),
    ({"kv_reuse_group": [[1, 0], []]}, ["all", None, "all", "all"]),
    ({"kv_reuse_group": None}, ["all"] * 4),
    ({"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"] * 2}, [3, "all"] * 2),
    ({"sliding_window": 3, "layer_types": ["full_attention"] * 4}, ["all"] * 4),
    ({"sliding_window": 3, "use_sliding_window": False, "layer_types": ["sliding_attention"] * 4},
     ["all"] * 4),
    ({"layer_types": ["sliding_attention"] * 4, "use_sliding_window": False}, ["all"] * 4),
    ({"layer_types": None, "sliding_window": 3}, [3] * 4),
    ({"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, [None] * 3 + ["all"]),
    ({"layer_types": ["mamba", "attention"] * 2, "sliding_window": 3}, [None, 3] * 2),
    ({"layer_types": ["conv", "full_attention"] * 2, "sliding_window": 3}, [None, "all"] * 2),
    ({"layer_types": ["chunked_attention", "full_attention"] * 2, "attention_chunk_size": 5}, [5, "all"] * 2),
    ({"layer_types": ["full_attention"] * 6, "num_nextn_predict_layers": 2}, ["all"] * 4),
    ({"layers_block_type": ["mamba", "hybrid"] * 2}, [None, "all"] * 2),
    ({"attention_chunk_size": 5}, [5, 5, 5, "all"]),
    ({"attention_chunk_size": 5, "sliding_window": 3}, [3] * 4),
    ({"attention_chunk_size": 5, "no_rope_layers": []}, [5, 5, 5, "all"]),
    ({"attention_chunk_size": 5, "no_rope_layers": [1, 0, 1, 0]}, [5, "all"] * 2),
    ({"no_rope_layers": [1, 0, 1, 0]}, ["all"] * 4),  # SmolLM3 has the list, and no chunks
    ({"hybrid_override_pattern": "M*-E"}, [None, "all", None, None]),
    ({"hybrid_override_pattern": "M*-*", "sliding_window": 3}, [None, 3, None, 3]),
    ({"full_attention_interval": 2}, [None, "all"] * 2), ({"full_attention_interval": 1}, ["all"] * 4),
    ({"full_attention_interval": 3}, [None, None, "all", None]),
    ({"attn_layer_period": 2, "attn_layer_offset": 0}, ["all", None] * 2),
    ({"attn_layer_period": 4, "attn_layer_offset": 2}, [None, None, "all", None]),
    ({"attn_layer_indices": [1, 3]}, [None, "all"] * 2),
    ({"attn_type_list": [0, 0, 0, 1]}, [None] * 3 + ["all"]),
    ({"hybrid_layer_pattern": [0, 1, 1, 0], "sliding_window": 3}, ["all", 3, 3, "all"]),
    ({"linear_attn_config": {"full_attn_layers": [1, 4]}}, ["all", None, None, "all"]),
    ({"block_types": ["recurrent", "recurrent", "attention"], "attention_window_size": 3},
     [None, None, 3, None]),
    ({"attention_layers": ["global", "local"] * 2, "window_size": 3}, ["all", 3] * 2),
    ({"num_kv_shared_layers": 1}, ["all"] * 3 + [None]), ({"num_kv_shared_layers": 0}, ["all"] * 4),
    ({"num_kv_shared_layers": 4}, [None] * 4), ({"num_kv_shared_layers": None}, ["all"] * 4),
    ({"use_cla": True, "cla_share_factor": 2}, ["all", None] * 2),
    ({"use_cla": False, "cla_share_factor": 2}, ["all"] * 4),
    ({"cross_attention_layers": [2]}, ["all", "all", None, "all"])])
def test_what_each_layer_holds_is_read_from_the_keys(keys, expected):
    assert windows(of(**keys)) == expected


def test_widths_and_heads_of_single_layers_are_read_where_keys_say_so():
    assert of(head_dim=16).bytes_per_token() == 1024  # read, not 32 / 4
    assert of(v_head_dim=4).bytes_per_token() == 4 * 4 * (8 + 4) * 2
    sliding = {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 3}
    assert of(**sliding, swa_num_key_value_heads=2).bytes_per_token() == 2 * 64 + 2 * 128
    assert of(**sliding, swa_head_dim=4).bytes_per_token() == 2 * 64 + 2 * 128
    assert of(**sliding, swa_head_dim=4, swa_v_head_dim=8).bytes_per_token() == 2 * 96 + 2 * 128
    more = {"swa_num_attention_heads": 8, "swa_num_key_value_heads": 8}
    assert of(**sliding, **more).bytes_per_token() == 2 * 256 + 2 * 128
    assert of(**sliding, global_head_dim=16).bytes_per_token() == 2 * 128 + 2 * 256
    global_heads = {**sliding, "num_global_key_value_heads": 1}
    assert of(**global_heads, attention_k_eq_v=True).bytes_per_token() == 2 * 128 + 2 * 32
    assert of(**global_heads, attention_k_eq_v=False).bytes_per_token() == 4 * 128
    openelm = {"num_transformer_layers": 2, "num_query_heads": [4, 8], "num_kv_heads": [2, 4], "head_dim": 8}
    assert KVShape.from_hf(openelm).bytes_per_token() == (2 + 4) * 2 * 8 * 2


def test_use_mla_false_leaves_the_latent_keys_alone():
    """DeepSeek-OCR's language_config writes the MLA keys as zero and null."""
    zeros = {"qk_rope_head_dim": 0, "qk_nope_head_dim": 0, "v_head_dim": 0}
    assert of(use_mla=False, kv_lora_rank=None, **zeros) == of()


def test_only_gemma_2_is_known_by_its_name():
    """google/gemma-3-27b-it as first published: a window, and neither layer_types nor a pattern.

    By its keys every layer slides, and that is what is counted; the model itself keeps every sixth layer whole, which
    its later files say.  A name is no key: the difference is a limit of such a file, not a rule for one model.
    """
    config = {"model_type": "gemma3_text", "head_dim": 128, "num_attention_heads": 32, "num_key_value_heads": 16,
              "num_hidden_layers": 62, "hidden_size": 5376, "sliding_window": 1024}
    by_keys = 62 * 1024 * 2 * 16 * 128 * 2
    assert KVShape.from_hf({"model_type": "gemma3", "text_config": config}).bytes(131_072) == by_keys
    told = config | {"sliding_window_pattern": 6}
    assert KVShape.from_hf({"model_type": "gemma3", "text_config": told}).bytes(131_072) == 11_173_625_856


def test_the_heads_of_a_mamba_model_are_no_attention_heads():
    """Codestral Mamba's config.json: num_heads and head_dim are those of its state."""
    mamba = {"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64,
             "state_size": 128, "conv_kernel": 4, "n_groups": 8}
    assert KVShape.from_hf(mamba).layers == (None,) * 64
    assert KVShape.from_hf({"hidden_size": 768, "num_hidden_layers": 24, "state_size": 16}).bytes(1000, tp=4) == 0


def test_a_model_without_attention_holds_nothing_that_grows():
    none = KVShape.from_hf({"num_hidden_layers": 2, "layer_types": ["mamba", "linear_attention"]})
    assert none.bytes([10, 20]) == none.bytes_per_token("q8_0", tp=3) == 0 and none.structure == "none"


def test_layers_are_counted_from_the_list_where_only_the_list_is_there():
    only = KVShape.from_hf({"hybrid_override_pattern": "M*-*", "num_attention_heads": 2, "head_dim": 4})
    assert windows(only) == [None, "all", None, "all"]


def test_structures_that_differ_between_layers_are_all_named():
    mixed = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": [4, 1], "head_dim": 8}
    assert KVShape.from_hf(mixed).structure == "MHA+MQA"
    assert KVShape.from_hf({LAYERS: 1, HEADS: 1, "head_dim": 8}).structure == "MHA"


# --- refusals

@pytest.mark.parametrize("config, named", [
    ({}, ["num_hidden_layers", "num_attention_heads", "hidden_size"]),
    ({"_source": "x"}, ["num_hidden_layers", "num_attention_heads", "hidden_size"]),
    ({"num_hidden_layers": 2}, ["num_attention_heads", "hidden_size"]),
    ({"num_attention_heads": 2, "head_dim": 4}, ["num_hidden_layers"]),
    ({"num_hidden_layers": 2, "hidden_size": 8}, ["num_attention_heads"]),
    ({"num_hidden_layers": 2, "num_attention_heads": 2}, ["hidden_size"]),
    ({"num_hidden_layers": None, "num_attention_heads": None, "hidden_size": None},
     ["num_hidden_layers", "num_attention_heads", "hidden_size"]),
    ({"num_hidden_layers": 2, "kv_lora_rank": 8}, ["qk_rope_head_dim"]), ({"kv_lora_rank": 8},
     ["num_hidden_layers", "qk_rope_head_dim"]),
    ({"full_attention_interval": 4}, ["num_hidden_layers", "num_attention_heads", "hidden_size"]),
    ({"num_kv_shared_layers": 2}, ["num_hidden_layers", "num_attention_heads", "hidden_size"]),
    ({**LLAMA, "layer_types": ["sliding_attention"] * 32}, ["sliding_window"]),
    ({**LLAMA, "layer_types": ["chunked_attention"] * 32}, ["attention_chunk_size"]),
    ({**LLAMA, "model_type": "gemma2"}, ["sliding_window"]),
    ({**LLAMA, "use_cla": True}, ["cla_share_factor"]),
    ({**LLAMA, "attn_layer_period": 8}, ["attn_layer_offset"]),
    ({"text_config": {"num_hidden_layers": 34}}, ["num_attention_heads", "hidden_size"])])
def test_a_config_without_needed_keys_is_refused_and_all_of_them_are_named(config, named):
    with pytest.raises(ValueError, match="lacks") as caught:
        KVShape.from_hf(config)
    assert str(caught.value) == f"config.json lacks {', '.join(named)}, which the count of KV bytes needs"


@pytest.mark.parametrize("key", [LAYERS, HEADS, KV, HIDDEN, "head_dim", "sliding_window"])
@pytest.mark.parametrize("value", ["8", 8.0, 0, -8, True, {}, float("nan")])
def test_a_count_of_a_wrong_type_is_refused_by_its_key(key, value):
    with pytest.raises(ValueError, match=f"^{key} must be an integer >= 1"):
        KVShape.from_hf({**LLAMA, key: value})


@pytest.mark.parametrize("key", [LAYERS, HIDDEN, "sliding_window", "kv_lora_rank", "v_head_dim",
                                 "full_attention_interval", "attn_layer_period", "attention_chunk_size",
                                 "num_kv_shared_layers"])
def test_a_count_that_is_no_list_is_refused_as_one(key):
    with pytest.raises(ValueError, match=f"^{key} must be an integer >= .* got \\[4"):
        KVShape.from_hf({**LLAMA, key: [4] * 32})


@pytest.mark.parametrize("config, words", [
    ([], "must be a dict"), (None, "must be a dict"), ("{}", "must be a dict"), ([LLAMA], "must be a dict"),
    ({**LLAMA, "num_key_value_heads": 5}, "num_key_value_heads = 5 must divide num_attention_heads = 32"),
    ({**LLAMA, "num_key_value_heads": 64}, "num_key_value_heads = 64 must divide"),
    ({**LLAMA, "hidden_size": 4100}, "hidden_size = 4100 is not a multiple of num_attention_heads = 32"),
    ({**LLAMA, "use_sliding_window": "false"}, "use_sliding_window must be true or false"),
    ({**LLAMA, "multi_query": 1}, "multi_query must be true or false"),
    ({**LLAMA, "layer_types": "full_attention"}, "layer_types must be a list"),
    ({**LLAMA, "layer_types": ["full_attention"] * 31}, "name each of 32 layers, got 31"),
    ({**LLAMA, "layer_types": ["full_attention"] * 33}, "name each of 32 layers, got 33"),
    ({**LLAMA, "layer_types": ["full_attention"] * 31 + ["novel"]}, "layer 31 must be one of .*'novel'"),
    ({**LLAMA, "layer_types": [1] * 32}, "layer 0 must be one of .* got 1"),
    ({**LLAMA, "hybrid_override_pattern": "M" * 31 + "X"}, "layer 31 must be one of .* got 'X'"),
    ({**LLAMA, "full_attention_interval": 0}, "full_attention_interval must be an integer >= 1"),
    ({**LLAMA, "num_kv_shared_layers": 33}, "num_kv_shared_layers must be <= the 32 layers"),
    ({**LLAMA, "num_key_value_heads": [8] * 31}, "num_key_value_heads must have 32 entries"),
    ({**LLAMA, "attn_layer_period": 8, "attn_layer_offset": 8}, "attn_layer_offset must be < attn_layer_per"),
    ({**LLAMA, "attn_layer_indices": ["9"]}, r"attn_layer_indices\[0\] must be an integer"),
    ({**LLAMA, "cross_attention_layers": [3, 8.0]}, r"cross_attention_layers\[1\] must be an integer"),
    ({**LLAMA, "linear_attn_config": {"full_attn_layers": [0]}}, r"full_attn_layers\[0\] must be an int"),
    ({**LLAMA, "hybrid_layer_pattern": [0, 2] * 16}, "hybrid_layer_pattern must be one of 0, 1, got 2"),
    ({**LLAMA, "sliding_window": 8, "sliding_window_pattern": "LX"}, "sliding_window_pattern must be"),
    ({**MLA, "kv_lora_rank": "512"}, "kv_lora_rank must be"),
    ({**LLAMA, "kv_reuse_group": [1, 2]}, "kv_reuse_group must be a list"),
    ({**MLA, "qk_rope_head_dim": 6.4}, "qk_rope_head_dim must be"),
    ({**LLAMA, "compress_ratios": [0, 4]}, "compress_ratios")])
def test_what_cannot_be_meant_is_refused_with_its_reason(config, words):
    with pytest.raises(ValueError, match=words):
        KVShape.from_hf(config)


# --- types of the cached values

@pytest.mark.parametrize("dtype, expected", [
    ("f32", 262_144), ("f16", 131_072), ("bf16", 131_072), ("fp8", 65_536), ("int8", 67_584),
    ("int4", 34_816),
    ("q8_0", 69_632), ("q5_1", 49_152), ("q5_0", 45_056), ("q4_1", 40_960), ("q4_0", 36_864)])
def test_llama_3_8b_in_every_type(dtype, expected):
    """kv-042, 043, 044 (vLLM's per-token-head and per-tensor kinds): codes alone would be 65536, 32768."""
    assert shape("llama-3.1-8b").bytes_per_token(dtype) == expected


def test_32_values_of_q4_0_take_18_bytes_and_not_18_bytes_each():
    """kv-046, ggml-org/llama.cpp#11200, node-llama-cpp#608: Qwen2.5-Coder-32B; 77309411328 was printed."""
    coder = KVShape.from_hf({"num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
                             "hidden_size": 5120})
    assert coder.bytes(32_768, "q4_0") == 2_415_919_104
    assert coder.bytes(32_768, "q8_0") == 2 * 2176 * 2**20


def test_each_vector_is_packed_by_itself_and_has_its_own_scale():
    """kv-054: five 4-bit codes take 3 bytes, not 2.5."""
    assert [vector_bytes(5, dtype) for dtype in ("int4", "int8", "fp8")] == [3 + 4, 5 + 4, 5]
    assert of(num_key_value_heads=2, head_dim=5).bytes_per_token("int4") == 4 * 2 * 2 * 7
    assert [vector_bytes(0, dtype) for dtype in DTYPES] == [0] * len(DTYPES)


@pytest.mark.parametrize("dtype", ["q8_0", "q5_1", "q5_0", "q4_1", "q4_0"])
def test_a_width_that_is_no_multiple_of_32_cannot_be_packed_in_thirty_twos(dtype):
    with pytest.raises(ValueError, match="multiples of 32, got 8"):
        of().bytes(0, dtype)
    with pytest.raises(ValueError, match="multiples of 32, got 48"):
        of(head_dim=32, v_head_dim=48).bytes_per_token(dtype)


@pytest.mark.parametrize("dtype", ["fp16", "F16", "", None, 2, [], "q8_1"])
def test_an_unknown_type_is_refused_with_the_list(dtype):
    with pytest.raises(ValueError, match="dtype must be one of f32, f16, bf16, fp8, int8, int4, q8_0"):
        of().bytes_per_token(dtype)


# --- tensor parallelism

@pytest.mark.parametrize("tp, heads", [(1, 8), (2, 4), (4, 2), (8, 1), (16, 1), (32, 1)])
def test_ranks_split_kv_heads_and_copy_them_when_there_are_more_ranks(tp, heads):
    """kv-040, vLLM's get_num_kv_heads: max(1, heads // tp)."""
    assert shape("llama-3.1-8b").bytes_per_token(tp=tp) == 131_072 // 8 * heads


@pytest.mark.parametrize("keys, tp, words", [
    (LLAMA, 3, "tp must divide the query heads"), (LLAMA, 64, "tp must divide the query heads"),
    ({**LLAMA, HEADS: 24, KV: 6, "head_dim": 8}, 4, "multiple of, the 6 KV heads"),
    (MLA, 3, "tp must divide the query heads"),
    ({"num_hidden_layers": 1, "kv_lora_rank": 8, "qk_rope_head_dim": 8}, 2, "num_attention_heads is missing"),
    (LLAMA, 0, "tp must be an integer >= 1"), (LLAMA, 2.0, "tp must be an integer >= 1"),
    (LLAMA, "2", "tp must be an integer >= 1"), (LLAMA, True, "tp must be an integer >= 1")])
def test_ranks_that_cannot_share_the_heads_are_refused(keys, tp, words):
    with pytest.raises(ValueError, match=words):
        KVShape.from_hf(keys).bytes(1, tp=tp)


# --- laws

names = st.sampled_from(sorted(path.stem for path in CONFIGS.glob("*.json")))
dtypes = st.sampled_from(["f32", "f16", "bf16", "fp8", "int8", "int4"])


json_values = st.recursive(
    st.sampled_from([None, True, False, -1, 0, 1, 2, 4, 8, 2.0, float("nan"), "", "L", "M*-E", "global"]),
    lambda inner: (st.lists(inner, min_size=4, max_size=4)
                   | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)), max_leaves=5)


@settings(LAWS, max_examples=150)
@given(st.sampled_from([{}, LLAMA, MLA, {LAYERS: 4, HEADS: 4, HIDDEN: 32}]),
       st.dictionaries(st.sampled_from(KEYS), json_values, max_size=4))
def test_any_json_is_counted_or_refused_and_never_a_crash(base, keys):
    try:
        model = KVShape.from_hf({**base, **keys})
    except ValueError:
        return
    assert 0 <= model.bytes_per_token() <= model.bytes(7) <= 7 * model.bytes_per_token()


@LAWS
@given(names, dtypes, st.lists(st.integers(0, 50_000), max_size=5))
def test_requests_add_up_and_none_takes_more_than_its_tokens(name, dtype, lengths):
    model = shape(name)
    total = model.bytes(lengths, dtype)
    assert total == sum(model.bytes(length, dtype) for length in lengths)
    assert total <= sum(lengths) * model.bytes_per_token(dtype)


@LAWS
@given(names, dtypes, st.integers(0, 50_000))
def test_a_further_token_adds_at_least_nothing_and_at_most_the_first(name, dtype, length):
    model = shape(name)
    assert 0 <= model.bytes(length + 1, dtype) - model.bytes(length, dtype) <= model.bytes_per_token(dtype)


@LAWS
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 5), st.integers(1, 300),
       st.lists(st.integers(0, 10_000), max_size=5))
def test_a_plain_model_counts_to_the_plain_formula(n_layer, n_kv_head, group, head_dim, lengths):
    plain = KVShape.from_hf({"num_hidden_layers": n_layer, "num_attention_heads": n_kv_head * group,
                             "num_key_value_heads": n_kv_head, "head_dim": head_dim})
    formula = {"n_layer": n_layer, "n_kv_head": n_kv_head, "head_dim": head_dim, "lengths": lengths}
    assert plain.bytes(lengths) == kv_cache_bytes(**formula)
    assert plain.bytes(lengths, "f32") == kv_cache_bytes(**formula, bytes_per_value=4)
    for tp in (1, n_kv_head, n_kv_head * group):
        assert plain.bytes(lengths, tp=tp) * tp == plain.bytes(lengths) * max(1, tp // n_kv_head)


@LAWS
@given(st.lists(st.integers(0, 500), max_size=8), st.integers(1, 64), st.integers(1, 1000))
def test_pages_hold_every_token_and_waste_less_than_a_block_a_request(lengths, block_size, bytes_per_token):
    pages = paged_bytes(lengths, block_size, bytes_per_token)
    assert pages.slots == pages.blocks * block_size == sum(lengths) + pages.waste_tokens
    assert 0 <= pages.waste_tokens <= len(lengths) * (block_size - 1)
    assert pages.nbytes == pages.slots * bytes_per_token


@LAWS
@given(st.integers(0, 2**70))
def test_a_printed_size_is_the_size(n):
    number, unit = format_bytes(n).split()
    size = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(unit)
    assert abs(float(number) * size - n) <= 0.00501 * size + n * 1e-15
    assert ("." in number) == (n % size != 0)


@pytest.mark.parametrize("n, text", [
    (1024**6 * 10**400, f"{10**400} EiB"), (1024**6 * 10**400 + 1, f"{10**400}.00 EiB"),
    (2**53 + 2**13, "8.00 PiB"), (1024**6 * (2**53 + 1) + 1024**6 // 4, f"{2**53 + 1}.25 EiB")])
def test_sizes_past_the_floats_are_written_exactly(n, text):
    assert format_bytes(n) == text
