"""A machine as two numbers, and the roofline rule: how long a pass takes, from counted operations and bytes.

Roofline rule: ms of a pass = overhead + 1000 * max(FLOPs / peak, bytes / bandwidth).  FLOPs and bytes are
those of `mgpt.cost`: the weights once a pass, K and V once for each request in it.  Attention is counted as
by a kernel that leaves out what the causal mask hides, so a prompt costs the same in one piece and in chunks.
Dequantizing and activations cost nothing here, and every product reaches the peak: what a format gains is
what a perfect kernel would gain.
"""

from dataclasses import dataclass
from math import prod

from mgpt.codes import packed_nbytes
from mgpt.config import GPTConfig
from mgpt.cost import decode_cost, weight_count
from mgpt.kv_layers import KVLayer
from mgpt.memory import CODE_BITS, KVShape
from mgpt.model import layer_shapes
from mgpt.validate import finite, integer, one_of

GIB = 2**30
FORMATS = ("f16", *CODE_BITS)
GROUP = 32  # weights: values that share one float32 scale


@dataclass(frozen=True)
class Machine:
    """bandwidth in bytes a second, peak in operations a second."""

    bandwidth: float
    peak: float

    def __post_init__(self):
        finite("bandwidth", self.bandwidth, above=0)
        finite("peak", self.peak, above=0)

    @property
    def ridge(self):
        """Operations a byte from which on the peak is the limit."""
        return self.peak / self.bandwidth

    def attainable(self, intensity):
        """Operations a second at most, at an arithmetic intensity."""
        return min(self.peak, intensity * self.bandwidth)

    def side(self, intensity):
        """Which of the two is the limit."""
        return "compute" if intensity >= self.ridge else "bandwidth"

    def seconds(self, flops, nbytes):
        """Time at least: of the operations, or of the bytes."""
        return max(flops / self.peak, nbytes / self.bandwidth)

    def least_seconds(self, cost):
        """Time of a pass at least, of a Cost of mgpt.cost."""
        return self.seconds(cost.flops, cost.bytes_weights + cost.bytes_kv)


@dataclass(frozen=True)
class Accelerator(Machine):
    """A machine with a memory.  memory, and reserve (activations, workspace): bytes.  overhead: ms a pass,
    whatever it does."""

    memory: int
    reserve: int
    overhead: float

    def __post_init__(self):
        super().__post_init__()
        integer("memory", self.memory)
        integer("reserve", self.reserve)
        finite("overhead", self.overhead, at_least=0)


# Assumed round figures of no real product, and the model shape of chapter 4: 128 KiB of K/V a position.
TEACHING_MACHINE = Accelerator(bandwidth=1e12, peak=100e12, memory=16 * GIB, reserve=GIB, overhead=1.0)
SERVED = GPTConfig(vocab_size=32_000, max_seq_len=16_384, n_layer=32, n_head=32, n_kv_head=8, head_dim=128,
                   n_embd=4096, n_inner=11_008, tie_embeddings=False)
DRAFT = GPTConfig(vocab_size=32_000, max_seq_len=16_384, n_layer=4, n_head=8, n_kv_head=2, head_dim=128,
                  n_embd=1024, n_inner=2816, tie_embeddings=False)


def weight_bytes(config, weights="f16"):
    """Bytes of the weights that every pass reads.

    weights: "f16"; or "int8", "int4": codes in groups of 32, each with a float32 scale, for the matrices of
    the layers.  Head and norms stay in 2 bytes.
    """
    one_of("weights", weights, FORMATS)
    if weights == "f16":
        return 2 * weight_count(config)
    shapes = [shape for shape in layer_shapes(config).values() if len(shape) == 2]
    values = config.n_layer * sum(map(prod, shapes))
    codes = sum(rows * packed_nbytes(columns, CODE_BITS[weights], GROUP) for rows, columns in shapes)
    scales = sum(rows * -(-columns // GROUP) for rows, columns in shapes)
    return 2 * (weight_count(config) - values) + config.n_layer * (codes + 4 * scales)


def resident_weight_bytes(config, weights="f16"):
    """What the memory holds: `weight_bytes` and a separate embedding, of which a pass reads single rows."""
    embedding = 0 if config.tie_embeddings else 2 * config.vocab_size * config.n_embd
    return weight_bytes(config, weights) + embedding


def kv_bytes_per_position(config, kv="f16"):
    """Bytes of K and V of one position in all layers; "int8" and "int4" have a float32 scale a vector."""
    layer = KVLayer(config.n_head, config.n_kv_head, config.head_dim, config.head_dim)
    return KVShape((layer,) * config.n_layer).bytes_per_token(one_of("kv", kv, FORMATS))


def kv_memory(machine, config, weights="f16"):
    """Bytes for KV blocks: memory - reserve - weights.  ValueError: nothing is left."""
    need = machine.reserve + resident_weight_bytes(config, weights)
    if need >= machine.memory:
        raise ValueError(f"memory is {machine.memory}, weights and reserve take {need}")
    return machine.memory - need


def blocks_in(nbytes, config, block_size, kv="f16"):
    """Whole KV blocks that fit into so many bytes; what is less than a block is lost."""
    block = integer("block_size", block_size, 1) * kv_bytes_per_position(config, kv)
    return integer("nbytes", nbytes) // block


class Roofline:
    """The time of a pass of `config` on `machine`.

    passes: (first new position, new positions, rows of the head) of each request that is served in it.
    """

    def __init__(self, config, machine=TEACHING_MACHINE, weights="f16", kv="f16"):
        one, two = decode_cost(config, 1).flops, decode_cost(config, 2).flops
        self.machine, self.per_seen = machine, two - one
        self.head = 2 * config.n_embd * config.vocab_size
        self.per_position = one - self.per_seen - self.head
        self.weights, self.kv = weight_bytes(config, weights), kv_bytes_per_position(config, kv)

    def work(self, passes):
        """(FLOPs, bytes): new positions through the weights,
        and over all that they see.
        """
        flops, read = 0, 0
        for start, new, rows in passes:
            seen = new * start + new * (new + 1) // 2
            flops += new * self.per_position + seen * self.per_seen
            flops += rows * self.head
            read += start + new
        return flops, self.weights + self.kv * read

    def ms(self, passes):
        """overhead + the longer of computing and reading."""
        flops, nbytes = self.work(passes)
        return self.machine.overhead + 1000 * self.machine.seconds(flops, nbytes)
