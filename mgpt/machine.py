"""A stated machine and the roofline rule: how long a pass takes, from counted operations and bytes.

Roofline rule: ms of a pass = overhead + 1000 * max(FLOPs / peak, bytes / bandwidth).  FLOPs and bytes are those of
`mgpt.cost`: the weights once a pass, K and V once for each request in it.  Attention is counted as by a kernel that
leaves out what the causal mask hides, so a prompt costs the same in one piece and in chunks.  Dequantizing and
activations cost nothing here, and every product reaches the peak: what a format gains is what a perfect kernel would.
"""

from dataclasses import dataclass
from math import prod

from mgpt.config import GPTConfig
from mgpt.cost import decode_cost, weight_count
from mgpt.kv_layers import KVLayer
from mgpt.memory import KVShape
from mgpt.model import layer_shapes
from mgpt.validate import finite, integer, one_of

GIB = 2**30
CODE_BITS = {"int8": 8, "int4": 4}
FORMATS = ("f16", *CODE_BITS)
GROUP = 32  # weights: values that share one float32 scale


@dataclass(frozen=True)
class Machine:
    """peak: FLOPs a second.  bandwidth: bytes a second.  memory, and reserve (activations, workspace): bytes.
    overhead: ms a pass, whatever it does."""

    peak: float
    bandwidth: float
    memory: int
    reserve: int
    overhead: float

    def __post_init__(self):
        for name in ("peak", "bandwidth"):
            finite(name, getattr(self, name), above=0)
        for name in ("memory", "reserve"):
            integer(name, getattr(self, name))
        finite("overhead", self.overhead, at_least=0)


# Assumed round figures of no real product, and the model shape of chapter 4 with its 128 KiB of K/V a position.
TEACHING_MACHINE = Machine(peak=100e12, bandwidth=1e12, memory=16 * GIB, reserve=GIB, overhead=1.0)
SERVED = GPTConfig(vocab_size=32_000, max_seq_len=16_384, n_layer=32, n_head=32, n_kv_head=8, head_dim=128,
                   n_embd=4096, n_inner=11_008, tie_embeddings=False)
DRAFT = GPTConfig(vocab_size=32_000, max_seq_len=16_384, n_layer=4, n_head=8, n_kv_head=2, head_dim=128,
                  n_embd=1024, n_inner=2816, tie_embeddings=False)


def weight_bytes(config, weights="f16"):
    """Bytes of the weights that every pass reads.

    weights: "f16", or "int8" or "int4" codes in groups of 32 with a float32 scale each, for the matrices of the
    layers; head and norms stay in 2 bytes.
    """
    one_of("weights", weights, FORMATS)
    if weights == "f16":
        return 2 * weight_count(config)
    shapes = [shape for shape in layer_shapes(config).values() if len(shape) == 2]
    values = config.n_layer * sum(map(prod, shapes))
    bits = CODE_BITS[weights]
    codes = sum(rows * (columns // GROUP * (GROUP * bits // 8) + -(-(columns % GROUP) * bits // 8))
                for rows, columns in shapes)
    scales = sum(rows * -(-columns // GROUP) for rows, columns in shapes)
    return 2 * (weight_count(config) - values) + config.n_layer * (codes + 4 * scales)


def resident_weight_bytes(config, weights="f16"):
    """What the memory holds: `weight_bytes` and a separate embedding, of which a pass reads only a row a token."""
    return weight_bytes(config, weights) + (0 if config.tie_embeddings else 2 * config.vocab_size * config.n_embd)


def kv_bytes_per_position(config, kv="f16"):
    """Bytes of K and V of one position in all layers; "int8" and "int4" have a float32 scale a vector."""
    layer = KVLayer(config.n_head, config.n_kv_head, config.head_dim, config.head_dim)
    return KVShape((layer,) * config.n_layer).bytes_per_token(one_of("kv", kv, FORMATS))


def kv_memory(machine, config, weights="f16"):
    """Bytes left for KV blocks: memory - reserve - weights.  ValueError where nothing is left."""
    left = machine.memory - machine.reserve - resident_weight_bytes(config, weights)
    if left <= 0:
        raise ValueError(f"machine has {machine.memory} bytes, but weights and reserve need {machine.memory - left}")
    return left


def blocks_in(nbytes, config, block_size, kv="f16"):
    """Whole KV blocks that fit into so many bytes; what is less than a block is lost."""
    return integer("nbytes", nbytes) // (integer("block_size", block_size, 1) * kv_bytes_per_position(config, kv))


class Roofline:
    """The time of a pass of `config` on `machine`; passes: (first new position, new positions, head rows) of each
    request that is served in it."""

    def __init__(self, config, machine=TEACHING_MACHINE, weights="f16", kv="f16"):
        one, two = decode_cost(config, 1).flops, decode_cost(config, 2).flops
        self.machine, self.per_seen, self.head = machine, two - one, 2 * config.n_embd * config.vocab_size
        self.per_position = one - self.per_seen - self.head
        self.weights, self.kv = weight_bytes(config, weights), kv_bytes_per_position(config, kv)

    def work(self, passes):
        """(FLOPs, bytes), ints: each new position through the weights, and over the positions that it sees."""
        flops, read = 0, 0
        for start, new, rows in passes:
            seen = new * start + new * (new + 1) // 2
            flops += new * self.per_position + seen * self.per_seen + rows * self.head
            read += start + new
        return flops, self.weights + self.kv * read

    def ms(self, passes):
        """overhead + the longer of computing and reading."""
        flops, nbytes = self.work(passes)
        return self.machine.overhead + 1000 * max(flops / self.machine.peak, nbytes / self.machine.bandwidth)
