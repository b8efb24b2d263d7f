"""What can be chosen for serving, a Setting, and what it gave on a trace, an Outcome."""

from dataclasses import dataclass

from mgpt.validate import finite, integer, one_of


@dataclass(frozen=True)
class Setting:
    """What can be chosen.

    block_size None: contiguous storage, every request reserves the longest context at once.
    weights, kv: "f16", "int8", "int4".  kv_cache=False: each output takes a pass over the whole growing prefix.
    gamma: guesses a round of speculative decoding, each kept with the assumed probability alpha; 0: none.
    Other names: as in Scheduler.
    """

    policy: str = "continuous"
    max_active: int = 16
    block_size: int | None = 16
    token_budget: int | None = None
    sharing: str | None = None
    weights: str = "f16"
    kv: str = "f16"
    kv_cache: bool = True
    gamma: int = 0
    alpha: float = 0.0

    def __post_init__(self):
        one_of("kv_cache", self.kv_cache, (True, False))
        if not 0 <= finite("alpha", self.alpha) <= 1:
            raise ValueError(f"alpha must be in 0 .. 1, got {self.alpha!r}")
        if integer("gamma", self.gamma) and (self.token_budget is not None or not self.kv_cache):
            raise ValueError("gamma needs a KV cache and no token_budget (its guesses are not scheduled by one)")
        if not self.kv_cache and self.sharing is not None:
            raise ValueError("sharing needs a KV cache")


@dataclass(frozen=True)
class Outcome:
    """What one setting gave on one trace: times in ms, blocks and bytes of the same run."""

    traces: list  # a RequestTrace for each request, in order of arrival; a refused one failed
    makespan: float  # the last completion, counted from 0
    passes: int  # ticks that were run
    positions_computed: int
    positions_reused: int
    guesses_lost: int  # positions that were verified and cut off again
    peak_active: int
    peak_blocks: int
    peak_reserved: int
    peak_waste: int  # the most slots of resident blocks without a position
    idle_blocks: int  # resident at the end, without a user
    pool_blocks: int
    block_size: int
    block_bytes: int

    @property
    def throughput(self):
        """Outputs a second, from 0 to the last completion; 0.0 where nothing was served."""
        return 1000 * sum(trace.n_tokens for trace in self.traces) / self.makespan if self.makespan else 0.0

    @property
    def longest_gap(self):
        """The longest time between two emissions of one request, in ms; 0.0 where there is none."""
        return max((gap for trace in self.traces for gap in trace.chunk_gaps or trace.gaps or ()), default=0.0)

    @property
    def peak_kv_bytes(self):
        """Bytes of the most blocks reserved at once."""
        return self.peak_reserved * self.block_bytes
