"""The scheduler's accounts: how many KV blocks the running requests hold, share and have been promised.

It counts blocks and moves no K/V (`mgpt.blocks` and `mgpt.prefix` do that, and a test keeps both in step).
P prompt positions, N outputs asked for, G outputs sampled so far.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile

from mgpt.timeline import Request


@dataclass(eq=False)
class Run:
    """A request on its way: what the scheduler changes from tick to tick."""

    request: Request
    cached: int = 0  # positions that hold K/V
    goal: int = 0  # where the prefill of this admission ends: P, or P + G - 1 after a preemption
    need: int = 0  # blocks reserved, shared ones included
    shared: list = field(default_factory=list)  # keys of those of its blocks that the prefix cache knows
    outputs: list = field(default_factory=list)  # their ticks
    admitted: int | None = None
    started: int | None = None
    reused: int = 0
    preemptions: int = 0

    @property
    def decodes(self):
        return self.cached >= self.goal

    @property
    def finished(self):
        return len(self.outputs) == self.request.output_len

    def give_up_blocks(self):
        self.cached, self.need, self.shared = 0, 0, []


class Ledger:
    """Blocks of `running`, a list of Runs in the order of admission, and of a prefix cache.

    A key (prefix_key, i) names block i of a prefix.  `cache` maps the keys that can be hit to their last use,
    in events; who uses a block is read from the runs, so a reference is never lost nor given back twice.
    """

    def __init__(self, block_size, pool_blocks, sharing):
        self.block_size = block_size
        self.limit = float("inf") if pool_blocks is None else pool_blocks
        self.sharing = sharing
        self.running, self.cache, self._events = [], {}, 0

    def prewarm(self, requests):
        """Put each whole prefix block of these requests into the cache."""
        self.cache = {key: 0 for request in requests for key in self.prefix(request, request.prompt_len)}

    def blocks(self, positions):
        """Blocks that hold so many positions."""
        return -(-positions // self.block_size)

    def prefix(self, request, end):
        """Keys of the whole blocks of a request's prefix that lie before position `end`."""
        return [(request.prefix_key, i) for i in range(min(request.prefix_len, end) // self.block_size)]

    def hit(self, request):
        """Keys of its longest cached prefix, P - 1 positions at most: the last must run to give logits."""
        return list(takewhile(self.cache.__contains__, self.prefix(request, request.prompt_len - 1)))

    def users(self, runs=None):
        """Reference count of each shared block that has a user."""
        return Counter(key for run in (self.running if runs is None else runs) for key in run.shared)

    def reserved(self, *newcomers):
        """Blocks set aside, a shared one once; a pre-warmed one always, a dynamic one while it has a user."""
        runs = [*self.running, *newcomers]
        shared = self.cache if self.sharing == "prewarmed" else self.users(runs)
        return sum(run.need - len(run.shared) for run in runs) + len(shared)

    def resident(self):
        """Blocks that hold K/V, cached ones without a user included."""
        return sum(self.blocks(run.cached) - len(run.shared) for run in self.running) + len(self.cache)

    def evict(self):
        """Take blocks without a user from the cache for those who have taken more than was free.

        The least recently used goes first, of a prefix the deepest.  One exists: in use <= reserved <= limit.
        """
        over = self.resident() - self.limit
        if over > 0:
            users = self.users()
            idle = [key for key in self.cache if not users[key]]
            # Where a block behind it is in use, its user files its own copy of this one at the end of the tick.
            for key in sorted(idle, key=lambda key: (self.cache[key], -key[1]))[:over]:
                del self.cache[key]

    def remember(self):
        """File full prefix blocks, to be hit from the next tick on; the first of equal ones is kept."""
        for run in self.running if self.sharing == "dynamic" else ():
            self._events += 1
            keys = self.prefix(run.request, run.cached)
            run.shared += [key for key in keys if key not in self.cache]
            self.cache.update((key, self._events) for key in keys)

    def release(self):
        """Finished requests give up their blocks; what the cache knows stays resident."""
        for run in self.running:
            if run.finished:
                run.give_up_blocks()
        self.running = [run for run in self.running if not run.finished]
