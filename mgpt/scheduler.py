"""The scheduler: who is served in which tick, and who waits for whom.

P prompt positions, N outputs asked for, G outputs sampled so far: after G >= 1 of them P + G - 1 positions
are cached.  Static waves and continuous batching are the request-level and the iteration-level scheduling of
Yu et al. 2022 (Orca); decodes first, then chunks of prompts within a budget, is Agrawal et al. 2024
(Sarathi-Serve); preemption by recomputation is Kwon et al. 2023 (PagedAttention, section 4.5).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from mgpt.ledger import Ledger, Run
from mgpt.timeline import CLOCK_RULE, Request, RequestTick, Served, Tick, Timeline
from mgpt.validate import integer, one_of

__all__ = ["CLOCK_RULE", "Request", "RequestTick", "Scheduler", "Served", "Tick", "Timeline", "simulate"]


class Scheduler:
    """Requests over ticks: `step()` runs one tick and returns its row, a Tick; `done` says when to stop.

    policy        "continuous" admits in each tick; "static" only when nothing is active, in waves.
    max_active    requests that can be active at once.
    block_size    positions in a KV block.
    token_budget  positions processed in one tick, decode tokens included; None: no limit.  A prompt that does
                  not fit is cut into chunks; with chunked=False it waits until it fits whole, and holds back
                  those behind it.
    pool_blocks   KV blocks there are; None: no limit.
    sharing       None; "prewarmed": each prefix was computed beforehand and stays to the end; "dynamic": a
                  prefix block can be hit from the tick after the one that computed it, and stays without a
                  user until the pool needs it.
    reserve       "full": a request is admitted when blocks for all its P + N - 1 positions can be set aside,
                  so that the pool never runs out; "prompt": when those for P + G can, so that a later decode
                  token may find no block: then the last of the running is preempted, until there is one.
    ValueError: a bad argument, an id given twice, a request that can never fit the pool or be scheduled.
    """

    def __init__(self, requests, *, policy="continuous", max_active, block_size, token_budget=None,
                 chunked=True, pool_blocks=None, sharing=None, reserve="full"):
        self.policy = one_of("policy", policy, ("continuous", "static"))
        self.max_active = integer("max_active", max_active, 1)
        self.token_budget = None if token_budget is None else integer("token_budget", token_budget, 1)
        self.chunked = one_of("chunked", chunked, (True, False))
        self.pool_blocks = None if pool_blocks is None else integer("pool_blocks", pool_blocks, 1)
        self.sharing = one_of("sharing", sharing, (None, "prewarmed", "dynamic"))
        self.reserve = one_of("reserve", reserve, ("full", "prompt"))
        self.ledger = Ledger(integer("block_size", block_size, 1), self.pool_blocks, self.sharing)
        if not isinstance(requests, Iterable):
            raise ValueError(f"requests must be a list of Request objects, got {requests!r}")
        self._runs = {}
        for request in requests:
            if not isinstance(request, Request):
                raise ValueError(f"requests must hold Request objects, got {request!r}")
            if request.id in self._runs:
                raise ValueError(f"the id of a request must be its own, got {request.id!r} twice")
            self._runs[request.id] = Run(request)
        if self.sharing == "prewarmed":
            self.ledger.prewarm(run.request for run in self._runs.values())
        todo = [run for run in self._runs.values() if not run.finished]  # no outputs: no pass, no block
        for run in todo:
            self._refuse_the_impossible(run.request)
        # sorted() is stable: equal arrivals keep the order of the list.
        self._coming = deque(sorted(todo, key=lambda run: run.request.arrival))
        self._waiting = deque()
        self._computed, self._rows = 0, []

    @property
    def done(self):
        """Whether each request has all its outputs."""
        return not (self._coming or self._waiting or self.ledger.running)

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
        states = {run.request.id: "decode" if run.decodes else "prefill"
                  for run in self.ledger.running}
        starts = self._process(t)
        self.ledger.evict()
        row = self._row(t, states, starts, preempted)
        self.ledger.remember()
        self.ledger.release()
        self._rows.append(replace(row, blocks_after=self.ledger.resident()))
        return self._rows[-1]

    def timeline(self):
        """The Timeline of the ticks run so far."""
        return Timeline(list(self._rows), {key: Served(
            key, run.request.arrival, run.request.output_len, list(run.outputs), admitted=run.admitted,
            started=run.started, positions_reused=run.reused, preemptions=run.preemptions)
            for key, run in self._runs.items()})

    def _make_room(self):
        """Set aside the blocks that this tick's decode tokens write into; ids of those preempted for it."""
        ledger, preempted = self.ledger, []
        # All of them will decode: each began with a prefill inside the budget, so they never outnumber it.
        for run in [run for run in ledger.running if run.decodes]:
            while run in ledger.running and ledger.blocks(run.cached + 1) > run.need:
                if ledger.reserved() < ledger.limit:
                    run.need += 1
                else:
                    last = ledger.running.pop()
                    last.give_up_blocks()
                    last.preemptions += 1
                    self._waiting.appendleft(last)
                    preempted.append(last.request.id)
        return preempted

    def _admit(self, t):
        ledger = self.ledger
        if self.policy == "static" and ledger.running:
            return
        while self._waiting and len(ledger.running) < self.max_active:
            run, request = self._waiting[0], self._waiting[0].request
            run.shared = ledger.hit(request)
            run.goal = request.prompt_len + max(len(run.outputs) - 1, 0)
            outputs = request.output_len - 1 if self.reserve == "full" else len(run.outputs)
            run.need = ledger.blocks(request.prompt_len + outputs)
            if ledger.reserved(run) > ledger.limit:
                return  # nobody overtakes the head
            run.cached = len(run.shared) * ledger.block_size
            if run.admitted is None:
                run.admitted, run.reused = t, run.cached
            ledger.running.append(self._waiting.popleft())

    def _process(self, t):
        """Decodes, then prefills, in order of admission; id -> first position processed."""
        left = float("inf") if self.token_budget is None else self.token_budget
        starts = {}
        for run in sorted(self.ledger.running, key=lambda run: not run.decodes):  # stable
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

    def _refuse_the_impossible(self, request):
        ledger, p, n = self.ledger, request.prompt_len, request.output_len
        hit = len(ledger.hit(request))  # of pre-warmed blocks, thus certain
        need = ledger.blocks(p + n - 1) - hit
        if need + len(ledger.cache) > ledger.limit:
            beside = f" beside the {len(ledger.cache)} pre-warmed" if ledger.cache else ""
            raise ValueError(f"request {request.id!r} can never fit: prompt_len {p} and output_len {n} need "
                             f"{need} blocks of {ledger.block_size} positions{beside}, pool_blocks is "
                             f"{self.pool_blocks}")
        longest = p - hit * ledger.block_size
        if self.reserve == "prompt" and self.pool_blocks is not None:
            longest += max(n - 2, 0)  # the most that a preemption can leave to compute again
        if self.token_budget is not None and not self.chunked and longest > self.token_budget:
            raise ValueError(f"request {request.id!r} can never be scheduled: with chunked=False {longest} "
                             f"positions of prefill must fit one tick, token_budget is {self.token_budget}")

    def _row(self, t, states, starts, preempted):
        requests, ledger = {}, self.ledger
        for key, run in self._runs.items():
            resting = "finished" if run.finished else "waiting"
            requests[key] = RequestTick(
                state=states.get(key, resting if run.request.arrival <= t else "not arrived"),
                start=starts.get(key), inputs=run.cached - starts.get(key, run.cached),
                sampled=run.outputs[-1:] == [t], outputs=len(run.outputs), positions=run.cached,
                blocks=ledger.blocks(run.cached))
        users, resident = ledger.users(), ledger.resident()
        logical = sum(run.cached for run in ledger.running)
        physical = logical + ledger.block_size * (len(ledger.cache) - users.total())
        return Tick(
            tick=t, requests=requests, positions_computed=self._computed,
            positions_reused=sum(run.reused for run in self._runs.values()),
            blocks_in_use=resident - len(ledger.cache) + len(users), blocks_resident=resident,
            blocks_reserved=ledger.reserved(), blocks_after=resident, logical_positions=logical,
            physical_positions=physical, waste=resident * ledger.block_size - physical,
            shared_users={key: users[key] for key in ledger.cache}, preempted=preempted)


def simulate(requests, *, policy="continuous", max_active, block_size, token_budget=None, chunked=True,
             pool_blocks=None, sharing=None, reserve="full"):
    """Run the requests to their end: a Timeline.  Arguments and errors are Scheduler's."""
    scheduler = Scheduler(
        requests, policy=policy, max_active=max_active, block_size=block_size, token_budget=token_budget,
        chunked=chunked, pool_blocks=pool_blocks, sharing=sharing, reserve=reserve)
    while not scheduler.done:
        scheduler.step()
    return scheduler.timeline()
