"""The shape of a model, given by hand or read from a Llama-family config.json."""

import dataclasses

import numpy as np
import pytest

from mgpt.config import GPTConfig

SHAPE = dict(vocab_size=100, max_seq_len=64, n_layer=2, n_head=8, n_kv_head=2, head_dim=16, n_embd=96, n_inner=200)
COUNTS = sorted(SHAPE)
LLAMA_3_8B = {  # the keys of the public config.json that decide the shape
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": 128000, "hidden_act": "silu",
    "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 8192, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
    "rope_scaling": None, "rope_theta": 500000.0, "tie_word_embeddings": False, "vocab_size": 128256,
}
SMALL = {"vocab_size": 100, "max_position_embeddings": 64, "num_hidden_layers": 2, "num_attention_heads": 8,
         "hidden_size": 96, "intermediate_size": 200}


def test_a_config_is_frozen_and_comparable():
    c = GPTConfig(**SHAPE)
    assert c == GPTConfig(**SHAPE) and hash(c) == hash(GPTConfig(**SHAPE)) and c != GPTConfig(**{**SHAPE, "n_layer": 3})
    with pytest.raises(dataclasses.FrozenInstanceError):
        c.n_layer = 3


def test_defaults_and_the_group_of_query_heads():
    c = GPTConfig(**SHAPE)
    assert (c.rope_theta, c.norm_eps, c.tie_embeddings, c.group) == (10_000.0, 1e-5, True, 4)
    assert GPTConfig(**{**SHAPE, "n_kv_head": 8}).group == 1 and GPTConfig(**{**SHAPE, "n_kv_head": 1}).group == 8


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 2.0, "2", None, True])
def test_every_count_is_an_integer_of_at_least_one(name, value):
    with pytest.raises(ValueError, match=f"{name} must be an integer >= 1, got"):
        GPTConfig(**{**SHAPE, name: value})


@pytest.mark.parametrize("name", ["rope_theta", "norm_eps"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "1", None, True])
def test_theta_and_epsilon_are_finite_and_positive(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a finite number > 0, got"):
        GPTConfig(**SHAPE, **{name: value})


@pytest.mark.parametrize("change, word", [
    (dict(n_kv_head=3), "n_kv_head must divide n_head = 8, got 3"), (dict(n_kv_head=16), "n_kv_head must divide"),
    (dict(head_dim=15), "head_dim must be even"),
])
def test_heads_that_do_not_fit_each_other_are_refused(change, word):
    with pytest.raises(ValueError, match=word):
        GPTConfig(**{**SHAPE, **change})


def test_numpy_numbers_are_accepted_and_kept_as_python_numbers():
    c = GPTConfig(**{name: np.int32(value) for name, value in SHAPE.items()}, rope_theta=np.float32(500),
                  norm_eps=np.float64(1e-6))
    assert c == GPTConfig(**SHAPE, rope_theta=500.0, norm_eps=1e-6)
    assert all(type(getattr(c, name)) is int for name in COUNTS)
    assert type(c.rope_theta) is type(c.norm_eps) is float and "np." not in repr(c)


# --- config.json ----------------------------------------------------------------------------------

def test_llama_3_8b_is_read():
    assert GPTConfig.from_hf(LLAMA_3_8B) == GPTConfig(
        vocab_size=128256, max_seq_len=8192, n_layer=32, n_head=32, n_kv_head=8, head_dim=128, n_embd=4096,
        n_inner=14336, rope_theta=500000.0, norm_eps=1e-5, tie_embeddings=False)


def test_absent_keys_take_the_family_s_defaults():
    c = GPTConfig.from_hf(SMALL)
    assert (c.n_kv_head, c.head_dim, c.rope_theta, c.norm_eps, c.tie_embeddings) == (8, 12, 10_000.0, 1e-6, False)


@pytest.mark.parametrize("change, name, value", [
    (dict(head_dim=32), "head_dim", 32), (dict(head_dim=None), "head_dim", 12),
    (dict(num_key_value_heads=2), "n_kv_head", 2),
    (dict(tie_word_embeddings=True), "tie_embeddings", True), (dict(rope_theta=1000), "rope_theta", 1000.0),
    (dict(rope_theta=None), "rope_theta", 10_000.0),
    (dict(rope_parameters={"rope_type": "default", "rope_theta": 5e5}), "rope_theta", 5e5),
    (dict(rope_scaling=None), "rope_theta", 10_000.0), (dict(hidden_act="swish"), "n_inner", 200),
    (dict(sliding_window=None), "n_layer", 2), (dict(sliding_window=4096, use_sliding_window=False), "n_layer", 2),
    (dict(layer_types=["full_attention"] * 2), "n_layer", 2), (dict(num_local_experts=0), "n_layer", 2),
    (dict(model_type="mistral"), "n_layer", 2),
])
def test_what_a_key_says_is_read(change, name, value):
    assert getattr(GPTConfig.from_hf({**SMALL, **change}), name) == value


@pytest.mark.parametrize("change, word", [
    (dict(rope_scaling={"rope_type": "llama3", "factor": 8.0}), "rope type"),
    (dict(rope_scaling={"type": "linear", "factor": 2.0}), "rope type"),
    (dict(rope_parameters={"rope_type": "yarn"}), "rope type"),
    (dict(rope_parameters={"rope_type": "default"}, rope_scaling={"type": "linear", "factor": 2.0}), "rope type"),
    (dict(rope_parameters={"rope_type": "yarn"}, rope_scaling={"rope_type": "default"}), "rope type"),
    (dict(attention_bias=True), "attention_bias"), (dict(mlp_bias=True), "mlp_bias"),
    (dict(hidden_act="gelu"), "hidden_act"),
    (dict(sliding_window=4096), "sliding_window"),
    (dict(sliding_window=4096, use_sliding_window=True), "sliding_window"),
    (dict(layer_types=["full_attention", "sliding_attention"]), "layer_types"),
    (dict(partial_rotary_factor=0.5), "partial_rotary_factor"), (dict(num_local_experts=8), "num_local_experts"),
    (dict(n_routed_experts=64), "n_routed_experts"), (dict(num_experts=128), "num_experts"),
    (dict(kv_lora_rank=512), "kv_lora_rank"), (dict(embedding_multiplier=12.0), "embedding_multiplier"),
    (dict(logits_scaling=8.0), "logits_scaling"),
])
def test_a_setting_that_this_model_does_not_compute_is_refused_by_name(change, word):
    with pytest.raises(ValueError, match=f"config.json asks for .*{word}"):
        GPTConfig.from_hf({**SMALL, **change})


@pytest.mark.parametrize("key", sorted(SMALL))
@pytest.mark.parametrize("absent", [True, False])
def test_a_key_that_is_absent_or_null_is_named(key, absent):
    given = {name: value for name, value in SMALL.items() if name != key}
    with pytest.raises(ValueError, match=f"config.json lacks {key},"):
        GPTConfig.from_hf(given if absent else {**given, key: None})


def test_all_missing_keys_are_named_at_once():
    with pytest.raises(ValueError, match="lacks vocab_size, max_position_embeddings, .*intermediate_size"):
        GPTConfig.from_hf({})


@pytest.mark.parametrize("change, word", [
    (dict(num_key_value_heads=None), "num_key_value_heads is null"),
    (dict(num_key_value_heads=3), "n_kv_head must divide"),
    (dict(hidden_size=100), "hidden_size = 100 is not a multiple of num_attention_heads = 8"),
    (dict(num_attention_heads=0), "num_attention_heads"), (dict(num_attention_heads="8"), "num_attention_heads"),
    (dict(hidden_size=96.0), "hidden_size"), (dict(vocab_size=-1), "vocab_size"),
    (dict(rms_norm_eps=None), "norm_eps"), (dict(tie_word_embeddings="false"), "tie_embeddings"),
    (dict(rope_theta="big"), "rope_theta"), (dict(rope_scaling="linear"), "rope_scaling"),
])
def test_a_value_that_makes_no_sense_is_refused(change, word):
    with pytest.raises(ValueError, match=word):
        GPTConfig.from_hf({**SMALL, **change})


@pytest.mark.parametrize("given", [None, [], "config.json", 5])
def test_what_is_no_dict_is_refused(given):
    with pytest.raises(ValueError, match="config must be a dict"):
        GPTConfig.from_hf(given)


def test_tied_or_not_is_a_truth_value_and_no_text_counts_as_true():
    shape = dict(vocab_size=8, max_seq_len=8, n_layer=1, n_head=1, n_kv_head=1, head_dim=2, n_embd=2, n_inner=2)
    for value in ("no", None, 2):
        with pytest.raises(ValueError, match=f"tie_embeddings must be one of True, False, got {value!r}"):
            GPTConfig(**shape, tie_embeddings=value)
    assert GPTConfig(**shape, tie_embeddings=0).tie_embeddings is False
    assert GPTConfig.from_hf({**SMALL, "tie_word_embeddings": None}).tie_embeddings is False
