"""When K/V may be used again: the common beginning of ids, and a fingerprint that misses nothing."""

import dataclasses

import numpy as np
import pytest

from mgpt.config import GPTConfig
from mgpt.model import init_params
from mgpt.prefix import fingerprint, longest_common_prefix

CONFIG = GPTConfig(vocab_size=7, max_seq_len=16, n_layer=2, n_head=4, n_kv_head=2, head_dim=2, n_embd=4, n_inner=6,
                   tie_embeddings=False)
VOCABULARY = ["hotel", "limit", "7", "5", "0", ".", "?"]


def params():
    return init_params(CONFIG, np.random.default_rng(0))


def print_of(**changes):
    parts = dict(params=params(), config=CONFIG, adapter="travel", vocabulary=VOCABULARY, settings={"window": None})
    return fingerprint(**{**parts, **changes})


@pytest.mark.parametrize("a, b, n", [([], [], 0), ([1], [], 0), ([1, 2, 3], [1, 2, 3], 3), ([1, 2], [1, 2, 3], 2),
                                     ([1, 600, 3], [1, 750, 3], 1), ([9, 2], [1, 2], 0),
                                     (np.array([1, 2]), range(1, 9), 2)])
def test_the_common_prefix_ends_at_the_first_difference(a, b, n):
    assert longest_common_prefix(a, b) == longest_common_prefix(b, a) == n
    assert type(longest_common_prefix(a, b)) is int


def test_equal_text_is_no_prefix_only_ids_are():
    with pytest.raises(ValueError, match="b must be a flat sequence of integers"):
        longest_common_prefix([1], "text")


def test_the_fingerprint_of_equal_things_is_equal():
    turned = {name: value for name, value in reversed(params().items())}
    turned["embed"] = np.asfortranarray(turned["embed"])
    assert print_of() == print_of(params=turned) == print_of(vocabulary=tuple(VOCABULARY))
    assert len(print_of()) == 64 and set(print_of()) <= set("0123456789abcdef")


def test_the_fingerprint_of_today_is_the_one_of_tomorrow():
    """A literal (the bytes put together with `struct`): no process, byte order or version of NumPy changes it."""
    values = {"b": np.arange(3, dtype=">f8"), "a": [1, 2.5, True, None, "é", b"x"]}
    assert fingerprint(values, None) == fingerprint({**values, "b": np.arange(3.0)}, None) == (
        "ec15574aa14910f2f3545bfa428c631c9e1bee35217ce86dfa0d4bef0b851696")


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(GPTConfig)])
def test_no_field_of_the_config_is_missed(name):
    other = {"n_head": 8, "tie_embeddings": True, "head_dim": 4, "n_kv_head": 1}.get(name, getattr(CONFIG, name) * 2)
    assert print_of(config=dataclasses.replace(CONFIG, **{name: other})) != print_of()


@pytest.mark.parametrize("name", ["attn_norm", "qkv", "attn_out", "mlp_norm", "gate_up", "mlp_out"])
@pytest.mark.parametrize("layer", [0, 1])
def test_no_array_of_a_layer_is_missed(layer, name):
    changed = params()
    flat = changed["layers"][layer][name].reshape(-1)
    flat[-1] = np.nextafter(flat[-1], np.inf)
    assert print_of(params=changed) != print_of()


@pytest.mark.parametrize("name", ["embed", "norm", "head"])
def test_no_other_array_is_missed(name):
    changed = params()
    changed[name].reshape(-1)[0] += 1
    assert print_of(params=changed) != print_of()


def test_layers_that_change_places_are_other_weights():
    changed = params()
    changed["layers"].reverse()
    assert print_of(params=changed) != print_of()


@pytest.mark.parametrize("changes", [
    dict(adapter=None), dict(adapter="hotels"), dict(adapter={"lora": np.ones(2)}),
    dict(vocabulary=None), dict(vocabulary=VOCABULARY[::-1]), dict(vocabulary=VOCABULARY[:-1]),
    dict(vocabulary=["hotellimit", *VOCABULARY[2:]]), dict(vocabulary={word: i for i, word in enumerate(VOCABULARY)}),
    dict(settings=None), dict(settings={"window": 4}), dict(settings={"window": None, "positions": "learned"}),
], ids=repr)
def test_no_adapter_vocabulary_or_setting_is_missed(changes):
    assert print_of(**changes) != print_of()


def test_values_of_different_kinds_never_look_alike():
    values = [None, "None", True, 1, "1", b"1", 1.5, "1.5", [], {}, "", [1], [[1]], ["1"], {"1": 1}, {1: 1}, ["a", "b"],
              ["ab"], np.array([1]), np.array([1.0]), np.array([1], np.int8), np.array([[1]]), np.array(1)]
    assert len({fingerprint(value, None) for value in values}) == len(values)


def test_numbers_that_are_equal_are_one_setting():
    same = (10_000, 10_000.0, np.float64(10_000), np.int32(10_000))
    assert len({fingerprint(None, value) for value in same}) == 1
    assert fingerprint(None, 10**400) != fingerprint(None, 10**401)


def test_a_lower_precision_of_equal_values_is_another_model():
    ones = {"w": np.ones(3)}
    assert fingerprint(ones, None) != fingerprint({"w": np.ones(3, np.float32)}, None)


@pytest.mark.parametrize("bad", [object(), {1, 2}, np.array(["a"]), lambda: 0, GPTConfig])
def test_what_has_no_fixed_content_is_refused(bad):
    with pytest.raises(ValueError, match="a fingerprint covers .* got (object|set|ndarray|function|type)"):
        fingerprint({"x": [bad]}, None)
