"""The shape of a model: everything that `forward` needs to know and that no parameter array says."""

from collections.abc import Mapping
from dataclasses import dataclass

from mgpt.validate import finite, integer, one_of


@dataclass(frozen=True)
class GPTConfig:
    """A Llama-shaped decoder.

    n_head query heads share n_kv_head key/value heads (MHA: equal; MQA: 1; GQA: between), each `head_dim` wide.
    The residual stream is n_embd wide, the SwiGLU layer n_inner.  Positions run from 0 to max_seq_len - 1.
    """

    vocab_size: int
    max_seq_len: int
    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    n_embd: int
    n_inner: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = True

    def __post_init__(self):
        # Kept as Python numbers: a NumPy int32 overflows in a product, a float64 scalar widens float32 arrays.
        for name in ("vocab_size", "max_seq_len", "n_layer", "n_head", "n_kv_head", "head_dim", "n_embd", "n_inner"):
            object.__setattr__(self, name, integer(name, getattr(self, name), at_least=1))
        object.__setattr__(self, "tie_embeddings", bool(one_of("tie_embeddings", self.tie_embeddings, (True, False))))
        for name in ("rope_theta", "norm_eps"):
            object.__setattr__(self, name, finite(name, getattr(self, name), above=0))
        if self.n_head % self.n_kv_head:
            raise ValueError(f"n_kv_head must divide n_head = {self.n_head}, got {self.n_kv_head}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even (RoPE turns pairs), got {self.head_dim}")

    @property
    def group(self):
        """Query heads that share one KV head."""
        return self.n_head // self.n_kv_head

    @classmethod
    def from_hf(cls, config):
        """A GPTConfig from the dict of a Llama-family config.json.

        ValueError names a missing key, or a setting that this model does not compute (scaled RoPE, biases,
        an activation other than SiLU, sliding windows that are in use, experts, MLA, scaled embeddings or logits).
        """
        if not isinstance(config, Mapping):
            raise ValueError(f"config must be a dict (a parsed config.json), got {type(config).__name__}")
        need = ("vocab_size", "max_position_embeddings", "num_hidden_layers", "num_attention_heads", "hidden_size",
                "intermediate_size")
        missing = [key for key in need if config.get(key) is None]
        if missing:
            raise ValueError(f"config.json lacks {', '.join(missing)}, which a Llama-family model needs")
        rope, rope_types = {}, set()
        for key in ("rope_parameters", "rope_scaling"):
            if not isinstance(config.get(key) or {}, Mapping):
                raise ValueError(f"{key} must be a dict or null, got {config[key]!r}")
            rope |= config.get(key) or {}
            rope_types |= {rope.get("rope_type"), rope.get("type")}
        unsupported = {
            "rope type": bool(rope_types - {None, "default"}),
            "attention_bias": bool(config.get("attention_bias")),
            "mlp_bias": bool(config.get("mlp_bias")),
            "hidden_act": config.get("hidden_act", "silu") not in ("silu", "swish"),
            "sliding_window": config.get("sliding_window") is not None and config.get("use_sliding_window", True),
            "layer_types": any(kind != "full_attention" for kind in config.get("layer_types") or ()),
            **{key: config.get(key) not in (None, 1) for key in ("partial_rotary_factor", "embedding_multiplier",
                                                            "residual_multiplier", "logits_scaling")},
            **{key: bool(config.get(key)) for key in ("num_local_experts", "num_experts", "n_routed_experts",
                                                      "kv_lora_rank")},
        }
        wrong = [name for name, found in unsupported.items() if found]
        if wrong:
            raise ValueError(f"config.json asks for {', '.join(wrong)}, which this Llama-shaped model does not compute")
        if "num_key_value_heads" in config and config["num_key_value_heads"] is None:
            raise ValueError("num_key_value_heads is null: this model sets it per layer, which is not supported")
        n_head, hidden = config["num_attention_heads"], config["hidden_size"]
        head_dim = config.get("head_dim")
        if head_dim is None:
            integer("num_attention_heads", n_head, at_least=1)
            if integer("hidden_size", hidden, at_least=1) % n_head:
                raise ValueError(f"hidden_size = {hidden} is not a multiple of num_attention_heads = {n_head}")
            head_dim = hidden // n_head
        tied = config.get("tie_word_embeddings")
        theta = config.get("rope_theta")
        theta = rope.get("rope_theta", 10_000.0) if theta is None else theta
        return cls(
            vocab_size=config["vocab_size"], max_seq_len=config["max_position_embeddings"],
            n_layer=config["num_hidden_layers"], n_head=n_head, n_kv_head=config.get("num_key_value_heads", n_head),
            head_dim=head_dim, n_embd=hidden, n_inner=config["intermediate_size"], rope_theta=theta,
            norm_eps=config.get("rms_norm_eps", 1e-6), tie_embeddings=False if tied is None else tied,
        )
