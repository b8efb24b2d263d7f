"""What each layer of a decoder caches: KV heads, widths and window, from a public config.json."""

from dataclasses import dataclass

from mgpt.kv_config import (HEAD_DIM, HEADS, HIDDEN, KINDS, KV_HEADS, LAYERS, WINDOW, Keys, decoder_part,
                            named_layers, ruled_layers)

SPECIAL = {  # heads, KV heads, K and V width where one kind of layer has its own: MiMo-V2; Gemma-4
    "sliding": (("swa_num_attention_heads",), ("swa_num_key_value_heads",), ("swa_head_dim",),
                ("swa_v_head_dim", "v_head_dim")),
    "full": ((), ("num_global_key_value_heads",), ("global_head_dim",), ("v_head_dim",)),
}


@dataclass(frozen=True)
class KVLayer:
    """What a layer caches of each of the last `window` tokens: K (n_kv_head, k_dim) and V (n_kv_head, v_dim).

    n_head query heads read it.  MLA's latent is one vector for all of them: n_kv_head = 1, v_dim = 0, and
    `expanded` = the (k_dim, v_dim) of a head once unpacked, None where the config does not say.
    """

    n_head: int | None
    n_kv_head: int
    k_dim: int
    v_dim: int
    window: int | None = None
    expanded: tuple | None = None

    @property
    def structure(self):
        """"MHA", "GQA", "MQA" or "MLA"."""
        if not self.v_dim:
            return "MLA"
        return "MHA" if self.n_kv_head == self.n_head else "MQA" if self.n_kv_head == 1 else "GQA"


def kv_heads(keys, n_head):
    """KV heads of a layer, an int or a list with one a layer: n_head where no key says."""
    config, mqa = keys.config, ("multiquery_attention", "multiquery")
    if keys.flag("multi_query") and not keys.flag("new_decoder_architecture"):  # Falcon-7B, StarCoder
        return 1
    if config.get("attn_type") in mqa or config.get("attention_head_type") in mqa:  # MPT, SantaCoder
        return 1
    grouped = keys.flag("multi_query_attention", default=True)  # ChatGLM: false voids its group number
    names = [name for name in KV_HEADS if name in config and (grouped or name != "multi_query_group_num")]
    value = keys.read(*names)
    if names and value is None:
        raise ValueError(f"{names[0]} is null: this model sets its KV heads layer by layer, in other keys")
    return value or (1 if keys.flag("multi_query_attention") else n_head)


def cached_values(keys, kind):
    """(query heads, KV heads, K width, V width, expanded widths) of a kind of layers; each may be a list."""
    use_mla = keys.flag("use_mla", default=True)
    if use_mla and (rank := keys.read("kv_lora_rank")):
        rope, nope = keys.need("qk_rope_head_dim") or 0, keys.read("qk_nope_head_dim")
        v_dim = keys.read("v_head_dim")
        return keys.read(*HEADS), 1, rank + rope, 0, (nope + rope, v_dim) if nope and v_dim else None
    own = SPECIAL.get(kind, ((), (), (), ("v_head_dim",) if use_mla else ()))
    usual_heads = keys.need(*HEADS)
    heads = keys.read(*own[0]) or usual_heads
    special = kind == "sliding" or keys.flag("attention_k_eq_v")  # Gemma-4 uses its global KV heads only then
    kv = keys.read(*own[1]) if special else None
    width = keys.read(*own[2], *HEAD_DIM)
    if width is None:
        hidden = keys.need(*(HEAD_DIM if isinstance(usual_heads, list) else HIDDEN))
        if usual_heads and hidden:
            if hidden % usual_heads:
                why = f"hidden_size = {hidden} is not a multiple of num_attention_heads = {usual_heads}"
                raise ValueError(f"{why}, and there is no head_dim")
            width = hidden // usual_heads
    return heads, kv or kv_heads(keys, heads), width, keys.read(*own[3]) or width, None


def reusing_layers(keys, n):
    """Which of n layers hold nothing of their own that grows: they read another layer's KV, or an image's."""
    shared = keys.read("num_kv_shared_layers", at_least=0) or 0  # Gemma-3n: the last ones
    if shared > n:
        raise ValueError(f"num_kv_shared_layers must be <= the {n} layers, got {shared}")
    every = keys.need("cla_share_factor") if keys.flag("use_cla") else 1  # Hunyuan: all but a group's first
    across = keys.places("cross_attention_layers")  # Llama-3.2-Vision
    groups = [Keys({"kv_reuse_group": group}).places("kv_reuse_group") for group in keys.listed("kv_reuse_group")]
    later = {i for group in groups for i in group - {min(group, default=None)}}  # Hymba: all but a group's first
    return {i for i in range(n) if i >= n - shared or i in across | later or (every and i % every)}


def read_layers(config):
    """A KVLayer for each layer, in a tuple; None where no KV grows, or another layer's is reused."""
    keys = Keys(decoder_part(config))
    if keys.config.get("compress_ratios") is not None:  # DeepSeek-V4
        raise ValueError("compress_ratios: KV that is compressed along the sequence is not counted here")
    names = named_layers(keys)
    n = keys.read(*LAYERS) or len(names) or keys.need(*LAYERS)
    drafting = keys.read("num_nextn_predict_layers", at_least=0)  # layers that some lists name too
    if names and len(names) - n not in (0, drafting):
        raise ValueError(f"the list of layer kinds must name each of {n} layers, got {len(names)}")
    keys.n_layer, slides = n, keys.flag("use_sliding_window", default=True)
    local = ("window_size",) if "attention_layers" in keys.config else ()  # GPT-Neo
    window = keys.read(*WINDOW, *local) if slides else None
    names = (names or ruled_layers(keys, n or 1, window))[:n]
    for i, name in enumerate(names):
        if not isinstance(name, str) or name not in KINDS:
            raise ValueError(f"layer {i} must be one of {', '.join(KINDS)}, got {name!r}")
    kinds = [KINDS[name] for name in names]
    if "sliding" in kinds and slides and window is None:
        keys.need(*WINDOW)
    windows = {"any": window, "sliding": window, "chunked": None, "full": None}
    if "chunked" in kinds:
        windows["chunked"] = keys.need("attention_chunk_size")
    kinds_held = [kind for kind in dict.fromkeys(kinds) if kind != "none"] if n else ["any"]
    values = {kind: cached_values(keys, kind) for kind in kinds_held}
    empty = reusing_layers(keys, n) if n else ()
    if keys.missing:
        lacking = ", ".join(dict.fromkeys(keys.missing))
        raise ValueError(f"config.json lacks {lacking}, which the count of KV bytes needs")
    layers = []
    for i, kind in enumerate(kinds):
        if kind == "none" or i in empty:
            layers.append(None)
            continue
        n_head, n_kv_head, *widths, expanded = (v[i] if isinstance(v, list) else v for v in values[kind])
        if n_head is not None and n_head % n_kv_head:
            raise ValueError(f"num_key_value_heads = {n_kv_head} must divide num_attention_heads = {n_head}")
        layers.append(KVLayer(n_head, n_kv_head, *widths, windows[kind], expanded))
    return tuple(layers)
