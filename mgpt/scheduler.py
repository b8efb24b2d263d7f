"""The scheduler: who is served in which tick, who waits for whom, and how many KV blocks that takes.

P prompt positions, N outputs asked for, G outputs sampled so far: after G >= 1 of them P + G - 1 positions are cached.
Static waves and continuous batching are the request-level and the iteration-level scheduling of Yu et al. 2022 (Orca);
decodes first, then chunks of prompts within a token budget, is Agrawal et al. 2024 (Sarathi-Serve).
"""

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from itertools import takewhile

from mgpt.timeline import CLOCK_RULE, Request, RequestTick, Served, Tick, Timeline  # noqa: F401 (all public here)
from mgpt.validate import integer, one_of


@dataclass(eq=False)
class _Run:
    """What the scheduler knows of one request."""

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


class Scheduler:
    """Requests over ticks: `step()` runs one tick and returns its row, a Tick; `done` says when to stop.

    policy        "continuous" admits in each tick; "static" only when nothing is active, in waves.
    max_active    requests that can be active at once.            block_size  positions in a KV block.
    token_budget  positions processed in one tick, decode tokens included; None: no limit.  A prompt that does not fit
                  is cut into chunks; with chunked=False it waits until it fits whole, and holds back those behind it.
    pool_blocks   KV blocks there are; None: no limit.
    sharing       None; "prewarmed": each prefix was computed beforehand and stays to the end; "dynamic": a prefix block
                  can be hit from the tick after the one that computed it; without a user it stays until the pool
                  needs it (least recently used first, the deepest of a prefix first).
    reserve       "full": a request is admitted when blocks for all its P + N - 1 positions can be set aside, so that
                  the pool never runs out; "prompt": when those of its prefill can, so that a decode token may find
                  no block: then the last of the running is preempted until there is one.
    ValueError: a bad argument, an id given twice, a request that could never fit the pool or never be scheduled.
    """

    def __init__(self, requests, *, policy="continuous", max_active, block_size, token_budget=None, chunked=True,
                 pool_blocks=None, sharing=None, reserve="full"):
        self.policy = one_of("policy", policy, ("continuous", "static"))
        self.max_active = integer("max_active", max_active, at_least=1)
        self.block_size = integer("block_size", block_size, at_least=1)
        self.token_budget = None if token_budget is None else integer("token_budget", token_budget, at_least=1)
        self.chunked = one_of("chunked", chunked, (True, False))
        self.pool_blocks = None if pool_blocks is None else integer("pool_blocks", pool_blocks, at_least=1)
        self.sharing = one_of("sharing", sharing, (None, "prewarmed", "dynamic"))
        self.reserve = one_of("reserve", reserve, ("full", "prompt"))
        self._runs = {}
        for request in requests:
            if not isinstance(request, Request):
                raise ValueError(f"requests must hold Request objects, got {request!r}")
            if request.id in self._runs:
                raise ValueError(f"the id of a request must be its own, got {request.id!r} twice")
            self._runs[request.id] = _Run(request)
        runs = self._runs.values()
        self._cache = {}  # key of a prefix block: (prefix_key, index in the prefix) -> tick of its last use
        if self.sharing == "prewarmed":
            self._cache = {key: 0 for run in runs for key in self._prefix(run.request, run.request.prompt_len)}
        for run in runs:
            self._refuse_the_impossible(run.request)
        todo = [run for run in runs if not run.finished]  # a request for 0 outputs needs no pass
        self._coming = deque(sorted(todo, key=lambda run: run.request.arrival))  # stable: ties keep the list's order
        self._waiting, self._running = deque(), []  # running: in the order of admission
        self._computed, self._rows = 0, []

    def step(self):
        """Run one tick; its row.  RuntimeError when every request is done."""
        if self.done:
            raise RuntimeError("there is no tick left to run: every request is done")
        t = len(self._rows)
        while self._coming and self._coming[0].request.arrival <= t:
            self._waiting.append(self._coming.popleft())
        preempted = self._make_room()
        if not preempted:
            self._admit(t)
        states = {run.request.id: "decode" if run.decodes else "prefill" for run in self._running}
        starts = self._process(t)
        self._evict()
        row = self._row(t, states, starts, preempted)
        self._remember(t)
        self._release()
        self._rows.append(replace(row, blocks_after=self._resident()))
        return self._rows[-1]

    @property
    def done(self):
        """Whether each request has all its outputs."""
        return not (self._coming or self._waiting or self._running)

    def timeline(self):
        """The Timeline of the ticks run so far."""
        return Timeline(list(self._rows), {key: Served(
            key, run.request.arrival, run.request.output_len, list(run.outputs), run.admitted, run.started, run.reused,
            run.preemptions) for key, run in self._runs.items()})

    def _make_room(self):
        """Set aside the blocks that this tick's decode tokens write into; ids of those preempted for it."""
        preempted = []
        for run in [run for run in self._running if run.decodes][: self.token_budget]:
            while run in self._running and self._blocks(run.cached + 1) > run.need:
                if self._reserved(self._running) + 1 <= self._limit():
                    run.need += 1
                else:
                    last = self._running.pop()
                    last.cached, last.need, last.shared, last.preemptions = 0, 0, [], last.preemptions + 1
                    self._waiting.appendleft(last)
                    preempted.append(last.request.id)
        return preempted

    def _admit(self, t):
        if self.policy == "static" and self._running:
            return
        while self._waiting and len(self._running) < self.max_active:
            run, request = self._waiting[0], self._waiting[0].request
            run.shared = self._hit(request)
            run.goal = request.prompt_len + max(len(run.outputs) - 1, 0)
            end = request.prompt_len + request.output_len - 1 if self.reserve == "full" else run.goal
            run.need = self._blocks(end)
            if self._reserved([*self._running, run]) > self._limit():
                return  # nobody overtakes the head
            run.cached = len(run.shared) * self.block_size
            if run.admitted is None:
                run.admitted, run.reused = t, run.cached
            self._running.append(self._waiting.popleft())

    def _process(self, t):
        """Decode tokens, then prefill, both in the order of admission; id -> first position processed."""
        left = float("inf") if self.token_budget is None else self.token_budget
        starts = {}
        for run in sorted(self._running, key=lambda run: not run.decodes):  # stable
            n = 1 if run.decodes else run.goal - run.cached
            if left == 0 or n > left and not self.chunked:
                break
            n = min(n, left)
            left -= n
            starts[run.request.id] = run.cached
            run.started = t if run.started is None else run.started
            run.cached += n
            self._computed += n
            # A prefill after a preemption ends without a sample: the outputs were kept.
            if run.cached > run.goal or run.cached == run.goal and not run.outputs:
                run.outputs.append(t)
        return starts

    def _evict(self):
        """Give the blocks without a user to those who took more than was free."""
        users = self._users(self._running)
        while self._resident() > self._limit():
            idle = [key for key in self._cache if not users[key]]
            del self._cache[min(idle, key=lambda key: (self._cache[key], -key[1]))]

    def _remember(self, t):
        """Full prefix blocks of this tick can be hit from the next one on; of two equal ones the first is kept."""
        for run in self._running:
            if self.sharing == "dynamic":
                new = [key for key in self._prefix(run.request, run.cached) if key not in self._cache]
                run.shared.extend(new)
            self._cache.update((key, t) for key in run.shared)

    def _release(self):
        for run in self._running:
            if run.finished:
                run.cached, run.need, run.shared = 0, 0, []
        self._running = [run for run in self._running if not run.finished]

    def _blocks(self, positions):
        return -(-positions // self.block_size)

    def _limit(self):
        return float("inf") if self.pool_blocks is None else self.pool_blocks

    def _prefix(self, request, end):
        """Keys of the whole blocks of a request's prefix that lie before position `end`."""
        return [(request.prefix_key, i) for i in range(min(request.prefix_len, end) // self.block_size)]

    def _hit(self, request):
        """Keys of the longest cached prefix: P - 1 positions at most, since the last one must run to give logits."""
        return list(takewhile(self._cache.__contains__, self._prefix(request, request.prompt_len - 1)))

    def _users(self, runs):
        return Counter(key for run in runs for key in run.shared)

    def _reserved(self, runs):
        """Blocks set aside for these runs, a shared one once; the pre-warmed ones always."""
        shared = self._cache if self.sharing == "prewarmed" else self._users(runs)
        return sum(run.need - len(run.shared) for run in runs) + len(shared)

    def _resident(self):
        return sum(self._blocks(run.cached) - len(run.shared) for run in self._running) + len(self._cache)

    def _refuse_the_impossible(self, request):
        p, n = request.prompt_len, request.output_len
        hit = len(self._hit(request))  # of pre-warmed blocks, thus certain
        need = self._blocks(p + n - 1) - hit
        if n and need + len(self._cache) > self._limit():
            beside = f" beside the {len(self._cache)} pre-warmed" if self._cache else ""
            raise ValueError(f"request {request.id!r} can never fit: prompt_len {p} and output_len {n} need {need} "
                             f"blocks of {self.block_size} positions{beside}, pool_blocks is {self.pool_blocks}")
        longest = p - hit * self.block_size
        if self.reserve == "prompt" and self.pool_blocks is not None:
            longest += max(n - 2, 0)  # the most that a preemption can leave to compute again
        if n and self.token_budget is not None and not self.chunked and longest > self.token_budget:
            raise ValueError(f"request {request.id!r} can never be scheduled: with chunked=False {longest} positions "
                             f"of prefill have to fit one tick, token_budget is {self.token_budget}")

    def _row(self, t, states, starts, preempted):
        requests = {}
        for key, run in self._runs.items():
            resting = "finished" if run.finished else "waiting"
            state = states.get(key, resting if run.request.arrival <= t else "not arrived")
            inputs = run.cached - starts[key] if key in starts else 0
            requests[key] = RequestTick(state, starts.get(key), inputs, run.outputs[-1:] == [t], len(run.outputs),
                                        run.cached, self._blocks(run.cached))
        users, resident = self._users(self._running), self._resident()
        logical = sum(run.cached for run in self._running)
        physical = logical + self.block_size * (len(self._cache) - users.total())
        return Tick(
            tick=t, requests=requests, positions_computed=self._computed,
            positions_reused=sum(run.reused for run in self._runs.values()),
            blocks_in_use=resident - len(self._cache) + len(users), blocks_resident=resident,
            blocks_reserved=self._reserved(self._running), blocks_after=resident, logical_positions=logical,
            physical_positions=physical, waste=resident * self.block_size - physical,
            shared_users={key: users[key] for key in self._cache}, preempted=preempted)


def simulate(requests, *, policy="continuous", max_active, block_size, token_budget=None, chunked=True,
             pool_blocks=None, sharing=None, reserve="full"):
    """Run the requests to their end: a Timeline.  Arguments and errors are Scheduler's."""
    scheduler = Scheduler(requests, policy=policy, max_active=max_active, block_size=block_size,
                          token_budget=token_budget, chunked=chunked, pool_blocks=pool_blocks, sharing=sharing,
                          reserve=reserve)
    while not scheduler.done:
        scheduler.step()
    return scheduler.timeline()
