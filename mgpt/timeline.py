"""What goes into the scheduler and what comes out: requests, one row a tick, and the times of each request.

Ticks are logical time.  P prompt positions, N outputs asked for; K/V of an output are written by the pass
that processes it, so a request that runs to its end has P + N - 1 positions.
"""

from dataclasses import dataclass

from mgpt.timing import RequestTrace
from mgpt.validate import integer

CLOCK_RULE = ("Clock: tick t is [t, t+1), logical time and not milliseconds. Events are stamped at the end "
              "of their tick: TTFT = tick of the first output + 1 - arrival; completion = tick of the last "
              "output + 1; latency = completion - arrival.")


@dataclass(frozen=True)
class Request:
    """One request, in numbers of tokens.

    id: any hashable value.  arrival: the first tick in which it can be admitted.  prompt_len >= 1.
    output_len: outputs to sample; a request for 0 needs no pass and no block.
    prefix_key, prefix_len: requests of one key have the same first prefix_len token ids (each its own number
    of them), computed by the same model and for the same tenant.
    ValueError: no whole number, or out of range; a prefix longer than the prompt, or without a key.
    """

    id: object
    arrival: int
    prompt_len: int
    output_len: int
    prefix_key: object = None
    prefix_len: int = 0

    def __post_init__(self):
        for name in ("id", "prefix_key"):
            try:
                hash(getattr(self, name))
            except TypeError:
                raise ValueError(f"{name} must be hashable, got {getattr(self, name)!r}") from None
        if self.id is None:
            raise ValueError("id must be a value of its own for each request, got None")
        for name, least in (("arrival", 0), ("prompt_len", 1), ("output_len", 0), ("prefix_len", 0)):
            value = integer(f"{name} of request {self.id!r}", getattr(self, name), least)
            object.__setattr__(self, name, value)
        most = 0 if self.prefix_key is None else self.prompt_len
        if self.prefix_len > most:
            why = "without a prefix_key" if self.prefix_key is None else "its prompt_len"
            raise ValueError(f"prefix_len of request {self.id!r} must be <= {most} ({why}), "
                             f"got {self.prefix_len}")


@dataclass(frozen=True)
class RequestTick:
    """One request inside one tick."""

    state: str  # "not arrived", "waiting", "prefill", "decode" or "finished"
    start: int | None  # first position processed in this tick; None where none was
    inputs: int  # positions processed in this tick
    sampled: bool  # whether this tick sampled an output
    outputs: int  # outputs sampled so far
    positions: int  # live KV positions
    blocks: int  # KV blocks that hold them, shared ones included


@dataclass(frozen=True)
class Tick:
    """One tick, seen after its work and before its releases."""

    tick: int
    requests: dict  # id -> RequestTick, in the order of the list
    positions_computed: int  # so far; what a preemption makes to be computed again counts again
    positions_reused: int  # so far; prefix hits, those of first admissions
    blocks_in_use: int  # blocks with a user, each counted once
    blocks_resident: int  # these and the cached blocks without a user
    blocks_reserved: int  # promised to the running: they may not have been taken yet
    blocks_after: int  # resident after the releases
    logical_positions: int  # sum over the requests
    physical_positions: int  # held in resident blocks, a shared one counted once
    waste: int  # slots of resident blocks that hold no position
    shared_users: dict  # (prefix_key, index in the prefix) of each cached block -> its users, 0 included
    preempted: list  # ids, in the order in which they gave up their blocks


@dataclass(frozen=True)
class Served:
    """One request's ticks.  ttft, completion and latency are None as long as no tick stamps them."""

    id: object
    arrival: int
    output_len: int
    output_ticks: list
    admitted: int | None  # tick of the first admission
    started: int | None  # first tick that processed one of its positions
    positions_reused: int
    preemptions: int

    @property
    def ttft(self):
        """Wait for the first output: its tick + 1 - arrival."""
        return self.output_ticks[0] + 1 - self.arrival if self.output_ticks else None

    @property
    def completion(self):
        """The end of the tick of the last output."""
        ended = self.output_ticks and len(self.output_ticks) == self.output_len
        return self.output_ticks[-1] + 1 if ended else None

    @property
    def latency(self):
        """completion - arrival."""
        return None if self.completion is None else self.completion - self.arrival


@dataclass(frozen=True)
class Timeline:
    """ticks: one Tick for each tick from 0 on.  requests: id -> Served, in the order of the list."""

    ticks: list
    requests: dict

    @property
    def makespan(self):
        """The last completion, counted from tick 0."""
        return len(self.ticks)

    @property
    def positions_computed(self):
        """Positions that passed through the layers, those computed again after a preemption included."""
        return self.ticks[-1].positions_computed if self.ticks else 0

    @property
    def positions_reused(self):
        """Positions that a prefix hit saved, counted at first admissions."""
        return self.ticks[-1].positions_reused if self.ticks else 0

    @property
    def peak_blocks(self):
        """The most blocks resident inside a tick, those without a user included."""
        return max((row.blocks_resident for row in self.ticks), default=0)

    @property
    def peak_reserved(self):
        """The most blocks reserved inside a tick."""
        return max((row.blocks_reserved for row in self.ticks), default=0)

    def to_traces(self):
        """A RequestTrace with unit "tick" for each request, in the order of the list."""
        return [RequestTrace(r.arrival, [t + 1 for t in r.output_ticks], started=r.started, request_id=r.id,
                             unit="tick") for r in self.requests.values()]
