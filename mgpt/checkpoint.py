"""Checkpoints: MG-2, which the course ships, and the two files it is kept in.

mg2.npz holds one float32 array a parameter and no pickled objects; mg2.json is its card: the shape, the
vocabulary, and how it was trained.  `load_hf` reads a public Llama-family folder instead.
"""

import dataclasses
import importlib.resources
import json
from pathlib import Path

import numpy as np

from mgpt.config import GPTConfig
from mgpt.hf import load_hf
from mgpt.model import layer_shapes
from mgpt.tokenizer import Tokenizer

__all__ = ["cast", "load_hf", "load_mg2", "mg2_card", "read_arrays", "save_checkpoint"]


def load_mg2():
    """MG-2 as (params, config, tokenizer): float64 parameters, exactly the float32 values of the file.

    A fresh copy at each call; needs NumPy alone.
    """
    card = mg2_card()
    config = GPTConfig(**card["config"])
    with (_data() / "mg2.npz").open("rb") as file:
        return read_arrays(file, config), config, Tokenizer(card["vocabulary"])


def mg2_card():
    """The card of MG-2, a dict: its data, recipe, seed, measured figures and licence."""
    return json.loads((_data() / "mg2.json").read_text(encoding="utf-8"))


def read_arrays(file, config, dtype=np.float64):
    """The params of an .npz file (a path or an open binary file), for a model of the shape `config`.

    ValueError: arrays missing, not foreseen, of another shape, no floats, not finite; pickled objects.
    """
    with np.load(file, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    shapes = _shapes(config)
    if arrays.keys() != shapes.keys():
        raise ValueError(f"the file must hold the arrays of the config; missing or not foreseen: "
                         f"{', '.join(sorted(arrays.keys() ^ shapes.keys()))}")
    for name, array in arrays.items():
        if array.shape != shapes[name] or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite floats of shape {shapes[name]}, "
                             f"got {array.dtype} {array.shape}")
    params = {name: array.astype(dtype) for name, array in arrays.items() if "." not in name}
    params["layers"] = [
        {name: arrays[f"layers.{layer}.{name}"].astype(dtype) for name in layer_shapes(config)}
        for layer in range(config.n_layer)
    ]
    return params


def cast(params, dtype):
    """A copy of nested params (dicts and lists of arrays) in another float dtype."""
    if isinstance(params, dict):
        return {name: cast(value, dtype) for name, value in params.items()}
    return [cast(value, dtype) for value in params] if isinstance(params, list) else params.astype(dtype)


def save_checkpoint(folder, name, params, config, vocabulary, card):
    """Write folder/name.npz (float32) and folder/name.json, the card with config and vocabulary added."""
    arrays = {key: array for key, array in params.items() if key != "layers"}
    for layer, p in enumerate(params["layers"]):
        arrays.update({f"layers.{layer}.{key}": array for key, array in p.items()})
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}.npz", **{key: np.asarray(arrays[key], "<f4") for key in sorted(arrays)})
    card = {**card, "config": dataclasses.asdict(config), "vocabulary": list(vocabulary)}
    text = json.dumps(card, indent=2, ensure_ascii=False)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def _shapes(config):
    """Name in the file -> shape."""
    shapes = {"embed": (config.vocab_size, config.n_embd), "norm": (config.n_embd,)}
    if not config.tie_embeddings:
        shapes["head"] = (config.n_embd, config.vocab_size)
    for layer in range(config.n_layer):
        shapes.update({f"layers.{layer}.{name}": shape for name, shape in layer_shapes(config).items()})
    return shapes


def _data():
    return importlib.resources.files("mgpt") / "data"
