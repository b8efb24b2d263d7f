"""A public decoder's config.json, read strictly, and the kind of each of its layers.

Judged by the keys that are there, not by a list of model names; the one exception is Gemma-2, which slides
on every second layer without saying so.  A key that is null counts as absent, except the number of KV heads.
"""

from mgpt.validate import integer, one_of

# One thing under the names that public configs give it, the usual one first.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads",
         "attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "kv_n_heads",
            "num_attention_groups", "num_key_value_heads_per_layer", "multi_query_group_num")
HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed", "model_dim", "dim")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
WINDOW = ("sliding_window", "attention_window_size")
MARKS = {  # one number a layer -> what 0 and what 1 stands for
    "hybrid_layer_pattern": ("full_attention", "sliding_attention"),  # MiMo-V2
    "attn_type_list": ("linear_attention", "full_attention"),  # MiniMax-01
    "no_rope_layers": ("full_attention", "chunked_attention"),  # Llama 4
}
PER_LAYER = {*HEADS, *KV_HEADS, *HEAD_DIM, *MARKS}  # what may be a list, with an entry for each layer
KINDS = {  # what public configs call a layer -> what it caches; "any" slides where the config has a window
    **dict.fromkeys(("full_attention", "global_attention", "global", "deepseek_sparse_attention"), "full"),
    **dict.fromkeys(("sliding_attention", "local_attention", "local"), "sliding"),
    "chunked_attention": "chunked",
    **dict.fromkeys(("attention", "hybrid", "*"), "any"),
    **dict.fromkeys(("linear_attention", "mamba", "mamba2", "recurrent", "conv"), "none"),
    **dict.fromkeys(("mlp", "moe", "M", "-", "E"), "none"),
}


class Keys:
    """A config read strictly: spellings in, checked values out, and a list of what was needed but missing."""

    def __init__(self, config):
        self.config, self.missing, self.n_layer = config, [], None

    def read(self, *names, at_least=1):
        """The first of the names that is there and not null: an int, or a list of one a layer; else None."""
        for name in names:
            value = self.config.get(name)
            if isinstance(value, list) and name in PER_LAYER:
                if self.n_layer and len(value) != self.n_layer:
                    raise ValueError(f"{name} must have {self.n_layer} entries (layers), got {len(value)}")
                return [integer(f"{name}[{i}]", entry, at_least) for i, entry in enumerate(value)]
            if value is not None:
                return integer(name, value, at_least)
        return None

    def need(self, *names, at_least=1):
        """As `read`; what is not there is noted, for one error that names everything."""
        value = self.read(*names, at_least=at_least)
        if value is None:
            self.missing.append(names[0])
        return value

    def flag(self, name, default=False):
        """A setting that is true or false; `default` when it is absent or null."""
        value = self.config.get(name)
        if not isinstance(value, bool | None):
            raise ValueError(f"{name} must be true or false, got {value!r}")
        return default if value is None else value

    def listed(self, name, types=list):
        """A list (or a string, one letter a layer) as a list; empty when it is absent or null."""
        value = self.config.get(name)
        if value is not None and not isinstance(value, types):
            raise ValueError(f"{name} must be a list, got {value!r}")
        return list(value or ())

    def places(self, name, start=0):
        """Positions of layers, counted from `start`, as a set counted from 0."""
        return {integer(f"{name}[{i}]", place, start) - start for i, place in enumerate(self.listed(name))}


def decoder_part(config):
    """The dict that describes the language model: a nested one (of a multimodal config), or config itself."""
    if not isinstance(config, dict):
        raise ValueError(f"config must be a dict (the object of a config.json), got {type(config).__name__}")
    for name in ("text_config", "language_config", "llm_config", "thinker_config"):
        if isinstance(config.get(name), dict):
            inner = decoder_part(config[name])
            if any(inner.get(key) is not None for key in LAYERS + HEADS):
                return inner
    nested = config.get("attn_config")  # MPT, DBRX
    return {**nested, **config} if isinstance(nested, dict) else config


def named_layers(keys):
    """The layers as the config itself lists them, one name each; empty where it does not."""
    return (keys.listed("layer_types") or keys.listed("layers_block_type") or keys.listed("attention_layers")
            or keys.listed("hybrid_override_pattern", (list, str)))


def ruled_layers(keys, n, window):
    """The names of n layers by the rule that the config's keys state."""
    chunk, linear = keys.read("attention_chunk_size"), keys.config.get("linear_attn_config")
    if keys.read("state_size") and keys.read("num_attention_heads") is None:  # Mamba; its num_heads are others
        return ["mamba"] * n
    if every := keys.read("full_attention_interval"):  # Qwen3-Next
        return ["linear_attention" if (i + 1) % every else "full_attention" for i in range(n)]
    if every := keys.read("attn_layer_period"):  # Jamba
        offset = keys.need("attn_layer_offset", at_least=0)
        if offset is not None and offset >= every:
            raise ValueError(f"attn_layer_offset must be < attn_layer_period = {every}, got {offset}")
        return ["attention" if i % every == offset else "mamba" for i in range(n)]
    for name in ("attn_layer_indices", "full_attn_idxs", "hybrid_layer_ids"):  # Bamba, LFM2, Zamba2
        if places := keys.places(name):
            return ["attention" if i in places else "mamba" for i in range(n)]
    if places := isinstance(linear, dict) and Keys(linear).places("full_attn_layers", start=1):  # Kimi-Linear
        return ["full_attention" if i in places else "linear_attention" for i in range(n)]
    if cycle := keys.listed("block_types"):  # RecurrentGemma
        return [cycle[i % len(cycle)] for i in range(n)]
    for name, kinds in MARKS.items():
        if keys.listed(name) and (chunk or name != "no_rope_layers"):  # SmolLM3 has the list, but no chunks
            return [kinds[one_of(name, mark, (0, 1))] for mark in keys.read(name, at_least=0)]
    if chunk and not window:
        every = keys.read("no_rope_layer_interval") or 4
        return ["chunked_attention" if (i + 1) % every else "full_attention" for i in range(n)]
    return windowed_layers(keys, n, window)


def windowed_layers(keys, n, window):
    """Which of n attention layers slide where there is a window: all, unless a key or Gemma's name says."""
    pattern = keys.config.get("sliding_window_pattern")
    if keys.config.get("model_type") == "gemma2" and (window or "sliding_window" not in keys.config):
        return ["full_attention" if i % 2 else "sliding_attention" for i in range(n)]
    if window is None:
        return ["attention"] * n
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:  # EXAONE-4: local, global
        kinds = {"L": "sliding_attention", "G": "full_attention"}
        return [kinds[pattern[i % len(pattern)]] for i in range(n)]
    if places := keys.places("global_attn_idx"):  # Hymba
        return ["full_attention" if i in places else "sliding_attention" for i in range(n)]
    if every := keys.read("sliding_window_pattern", "_sliding_window_pattern"):  # Command R7B too
        return ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(n)]
    first = keys.read("max_window_layers", at_least=0) or 0  # Qwen2
    return ["full_attention" if i < first else "sliding_attention" for i in range(n)]
