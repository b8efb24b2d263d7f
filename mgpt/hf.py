"""A Llama-family folder (config.json + safetensors, as Hugging Face publishes them) -> params and config.

Shapes: H query heads, K KV heads, D head_dim, E n_embd, F n_inner, V vocab_size.  Public matrices are stored
[out, in]; `forward` wants C-ordered [in, out], with Q, K, V in one matrix and gate, up in another.
"""

import json
from pathlib import Path

import numpy as np

from mgpt.config import GPTConfig

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}  # safetensors' name -> NumPy's; BF16 is widened by hand

# Same tensor names as Llama, other arithmetic: settings that scale, cap or store something otherwise, and the
# value that changes nothing, and models whose config.json does not say that their RoPE pairs 2i with 2i + 1.
OTHER_ARITHMETIC = {
    "embedding_multiplier": 1, "residual_multiplier": 1, "logits_scaling": 1, "logit_scale": 1,
    "attention_multiplier": None, "attn_logit_softcapping": None, "final_logit_softcapping": None,
    "scale_emb": 1, "scale_depth": None, "clip_qkv": None, "quantization_config": None,
}
INTERLEAVED_ROPE = ("ernie4_5", "helium")


class MissingExtra(ImportError, ValueError):
    """An optional package is not installed.  Also a ValueError: the command line says it in one line."""


def load_hf(folder):
    """(params, config) of a Llama-family folder, every weight widened to float64 (bf16, f16 and f32 exactly).

    folder: holds config.json and model.safetensors, or model.safetensors.index.json and the shards it lists.
    params is what `mgpt.model.forward` takes; with a tied head it has no "head".
    ValueError names what is absent, unexpected (biases, say) or of another shape than config.json says, and
    settings that this model does not compute.  MissingExtra, an ImportError: no safetensors (extra mgpt[hf]).
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise ValueError(f"folder must hold config.json and safetensors files: {folder} has no config.json")
    settings = _read_json_object(folder / "config.json")
    config = GPTConfig.from_hf(settings)
    wrong = [key for key, plain in OTHER_ARITHMETIC.items() if settings.get(key, plain) not in (plain, None)]
    if 0 in (settings.get("no_rope_layers") or ()):
        wrong.append("no_rope_layers")
    if settings.get("model_type") in INTERLEAVED_ROPE:
        wrong.append(f"model_type {settings['model_type']} (interleaved RoPE)")
    if wrong:
        raise ValueError(f"config.json asks for {', '.join(wrong)}, which this model does not compute")
    return params_from_tensors(_read_tensors(folder), config), config


def tensor_shapes(config):
    """Public tensor name -> shape as published, [out, in] (names of `LlamaForCausalLM`)."""
    embd, inner = config.n_embd, config.n_inner
    q, kv = config.n_head * config.head_dim, config.n_kv_head * config.head_dim
    layer = {
        "input_layernorm": (embd,), "self_attn.q_proj": (q, embd), "self_attn.k_proj": (kv, embd),
        "self_attn.v_proj": (kv, embd), "self_attn.o_proj": (embd, q), "post_attention_layernorm": (embd,),
        "mlp.gate_proj": (inner, embd), "mlp.up_proj": (inner, embd), "mlp.down_proj": (embd, inner),
    }
    shapes = {"model.embed_tokens.weight": (config.vocab_size, embd)}
    for i in range(config.n_layer):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (embd,)
    if not config.tie_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, embd)
    return shapes


def params_from_tensors(tensors, config):
    """The params of `forward` from a dict of public tensor names -> float64 arrays.

    ValueError names tensors that are absent, unexpected or of the wrong shape.
    """
    # Old folders carry RoPE's frequencies, which follow from theta.
    tensors = {name: x for name, x in tensors.items() if not name.endswith("rotary_emb.inv_freq")}
    shapes = tensor_shapes(config)
    if config.tie_embeddings and "lm_head.weight" in tensors:
        if not np.array_equal(tensors.pop("lm_head.weight"), tensors.get("model.embed_tokens.weight")):
            raise ValueError("config.json ties the head to the embedding, but lm_head.weight differs")
    absent, unexpected = sorted(shapes.keys() - tensors.keys()), sorted(tensors.keys() - shapes.keys())
    if absent or unexpected:
        names = absent or unexpected
        some = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        raise ValueError(f"the tensors {'lack' if absent else 'have, beyond this config.json,'} {some}")
    for name, shape in shapes.items():
        if tensors[name].shape != shape:
            raise ValueError(f"{name} must have shape {shape} by config.json, got {tensors[name].shape}")

    # One buffer for all: systems give large pages to large arrays only, and a decode step that reads
    # many smaller ones spends a tenth of its time on finding pages.
    buffer, used = np.empty(sum(x.size for x in tensors.values())), 0

    def kept(x):
        nonlocal used
        place = buffer[used : used + x.size].reshape(x.shape)
        place[...], used = x, used + x.size
        return place

    def fused(prefix, *names):  # side by side: [out, in] parts -> one [in, sum of out]
        return kept(np.concatenate([tensors[f"{prefix}{name}.weight"] for name in names]).T)

    def layer(prefix):
        return {
            "attn_norm": kept(tensors[prefix + "input_layernorm.weight"]),
            "qkv": fused(prefix + "self_attn.", "q_proj", "k_proj", "v_proj"),  # (E, (H + 2K)·D)
            "attn_out": fused(prefix + "self_attn.", "o_proj"),  # (H·D, E)
            "mlp_norm": kept(tensors[prefix + "post_attention_layernorm.weight"]),
            "gate_up": fused(prefix + "mlp.", "gate_proj", "up_proj"),  # (E, 2F)
            "mlp_out": fused(prefix + "mlp.", "down_proj"),  # (F, E)
        }

    params = {
        "embed": kept(tensors["model.embed_tokens.weight"]),
        "layers": [layer(f"model.layers.{i}.") for i in range(config.n_layer)],
        "norm": kept(tensors["model.norm.weight"]),
    }
    if not config.tie_embeddings:
        params["head"] = fused("", "lm_head")  # (E, V)
    return params


def _read_tensors(folder):
    """Public tensor name -> float64 array, over one file or all shards of the index."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        files = [single.name]
    elif index.is_file():
        weight_map = _read_json_object(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ValueError(f"{index} has no weight_map from tensor names to files")
        files = sorted(set(map(str, weight_map.values())))
    else:
        raise ValueError(f"folder must hold {single.name} or {index.name}: {folder} has neither")
    for name in files:
        if Path(name).name != name or not (folder / name).is_file():
            raise ValueError(f"{index.name} lists {name}, which is no file of {folder}")
    tensors = {}
    for name in files:
        tensors |= _read_safetensors(folder / name)
    return tensors


def _read_safetensors(path):
    try:
        import safetensors
    except ImportError:
        raise MissingExtra("load_hf needs the safetensors package: install the extra mgpt[hf]") from None
    try:
        entries = safetensors.deserialize(path.read_bytes())
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None
    return {name: _float64(name, entry).reshape(entry["shape"]) for name, entry in entries}


def _float64(name, entry):
    if entry["dtype"] == "BF16":  # the upper half of a float32
        return (np.frombuffer(entry["data"], "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"{name} must be stored as BF16, F16, F32 or F64, got {entry['dtype']}")
    return np.frombuffer(entry["data"], DTYPES[entry["dtype"]]).astype(np.float64)


def _read_json_object(path):
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:  # not JSON, or not UTF-8
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value
