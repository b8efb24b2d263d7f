"""Serving a trace in milliseconds: the Scheduler's ticks, each as long as a cost rule says.

Every rule of a tick is mgpt.scheduler's.  New is the clock: arrivals are milliseconds, and a request can be admitted
in the first tick that starts when it has arrived.  So all settings meet the same arrivals, however long their ticks
are; between requests the clock jumps.  Outputs are stamped at the end of their tick.
"""

import random
from collections import deque
from dataclasses import dataclass, replace

from mgpt.machine import (DRAFT, SERVED, TEACHING_MACHINE, Roofline, blocks_in, kv_bytes_per_position, kv_memory,
                          resident_weight_bytes)
from mgpt.scheduler import Scheduler
from mgpt.setting import Outcome, Setting
from mgpt.timing import RequestTrace

__all__ = ["Outcome", "Server", "Setting", "serve"]


@dataclass(frozen=True)
class Load:
    """The sums of a tick's row that are asked for here, named as in mgpt.timeline.Tick."""

    blocks_resident: int
    blocks_reserved: int
    blocks_after: int
    waste: int


class Server(Scheduler):
    """A Scheduler with a clock of ms.  Its rows are Loads: a line for each request and tick would be slow, and unread."""

    def __init__(self, requests, setting, rule, draft=None, **settings):
        requests = sorted(requests, key=lambda request: request.arrival)  # stable
        super().__init__([replace(request, arrival=0) for request in requests], **settings)
        self._clients, self._coming = self._coming, deque()
        self._arrivals = {request.id: request.arrival for request in requests}
        self.setting, self.rule, self.draft = setting, rule, draft
        self.now, self.ends, self.lost, self.peak_active = 0.0, [], 0, 0
        self._served, self._reserved = None, 0
        self._luck = {request.id: random.Random(f"guesses of {request.id}") for request in requests}

    @property
    def done(self):
        return not self._clients and super().done

    def step(self):
        """Run one tick, and let the clock go on by its length."""
        if super().done and self._clients:
            self.now = max(self.now, self._arrivals[self._clients[0].request.id])
        while self._clients and self._arrivals[self._clients[0].request.id] <= self.now:
            self._coming.append(self._clients.popleft())
        return super().step()

    @property
    def computed(self):
        """Positions that passed through the layers."""
        return self._computed

    @property
    def reused(self):
        """Positions that prefix hits saved."""
        return sum(run.reused for run in self._runs.values())

    def times(self, key):
        """ms of each output of a request: the ends of its ticks."""
        return [self.ends[t] for t in self._runs[key].outputs]

    def _process(self, t):
        decoding = {run.request.id: run for run in self.ledger.running if run.decodes}
        starts = super()._process(t)
        prefills = [(starts[run.request.id], run.cached - starts[run.request.id], int(run.outputs[-1:] == [t]))
                    for run in self.ledger.running if run.request.id in starts and run.request.id not in decoding]
        decodes = [self._decode(run, starts[key], t) for key, run in decoding.items() if key in starts]
        self.now += self.rule.ms(prefills + decodes)
        if self.draft is not None:  # the draft reads the prompts too, and guesses position by position
            steps = [(start, 1, 1) for start, _new, _rows in decodes]
            self.now += self.draft.ms(prefills) * bool(prefills) + self.setting.gamma * self.draft.ms(steps) * bool(steps)
        self.ends.append(self.now)
        self.peak_active = max(self.peak_active, len(self.ledger.running))
        return starts

    def _decode(self, run, start, t):
        """(first position, positions, head rows) of one request's decode; kept guesses become outputs of the tick."""
        if not self.setting.kv_cache:
            self._computed += start
            return 0, start + 1, 1
        guesses, kept = min(self.setting.gamma, run.request.output_len - len(run.outputs)), 0
        while kept < guesses and self._luck[run.request.id].random() < self.setting.alpha:
            kept += 1
        run.outputs += [t] * kept
        run.cached += kept
        self._computed += guesses
        self.lost += guesses - kept
        return start, 1 + guesses, 1 + guesses

    def _row(self, t, states, starts, preempted):
        ledger = self.ledger
        if states.keys() != self._served:  # a reservation is made at admission and ends with its request
            self._served, self._reserved = states.keys(), ledger.reserved()
        resident = ledger.resident()
        physical = sum(run.cached - ledger.block_size * len(run.shared) for run in ledger.running)
        physical += ledger.block_size * len(ledger.cache)
        return Load(resident, self._reserved, resident, resident * ledger.block_size - physical)


def serve(requests, setting, *, config=SERVED, machine=TEACHING_MACHINE, memory=None, draft=DRAFT):
    """Run the requests to their end under a Setting: an Outcome.

    requests: Requests of mgpt.scheduler whose arrival is in ms.  memory: bytes for KV blocks; None: what the machine
    has left beside reserve, weights, and the draft's weights where it is used.  A request that can never fit the pool
    is refused: it failed, and stays in the count.  ValueError: a bad setting, no room for one block.
    """
    requests = list(requests)
    if memory is None:
        memory = kv_memory(machine, config, setting.weights) - (resident_weight_bytes(draft) if setting.gamma else 0)
    block_size = config.max_seq_len if setting.block_size is None else setting.block_size
    pool = blocks_in(memory, config, block_size, setting.kv)
    if setting.kv_cache and pool < 1:
        raise ValueError(f"memory of {memory} bytes holds no block of {block_size} positions")
    settings = {"policy": setting.policy, "max_active": setting.max_active, "block_size": block_size,
                "token_budget": setting.token_budget, "sharing": setting.sharing,
                "pool_blocks": pool if setting.kv_cache else None}
    Scheduler([], **settings)  # a bad setting is refused here, and is no request's failure
    refused = {request.id: why for request in requests if (why := _refusal(request, settings, config))}
    server = Server([request for request in requests if request.id not in refused], setting,
                    Roofline(config, machine, setting.weights, setting.kv),
                    Roofline(draft, machine) if setting.gamma else None, **settings)
    peak_blocks = peak_reserved = peak_waste = 0
    while not server.done:
        row = server.step()
        peak_blocks, peak_reserved = max(peak_blocks, row.blocks_resident), max(peak_reserved, row.blocks_reserved)
        peak_waste = max(peak_waste, row.waste)
    kept = setting.kv_cache
    return Outcome(
        [_trace(request, server, refused) for request in sorted(requests, key=lambda request: request.arrival)],
        max(server.ends, default=0.0), len(server.ends), server.computed, server.reused, server.lost, server.peak_active,
        peak_blocks * kept, peak_reserved * kept, peak_waste * kept, server.ledger.resident() * kept, pool * kept,
        block_size, block_size * kv_bytes_per_position(config, setting.kv))


def _refusal(request, settings, config):
    """Why a request can never be served, or None."""
    longest = request.prompt_len + request.output_len - 1
    if longest > config.max_seq_len:
        return f"{longest} positions exceed max_seq_len {config.max_seq_len}"
    try:
        Scheduler([request], **settings)
    except ValueError as error:
        return str(error)
    return None


def _trace(request, server, refused):
    if request.id in refused:
        return RequestTrace(request.arrival, error=refused[request.id], request_id=request.id)
    times = server.times(request.id)
    if server.setting.gamma:  # several outputs of one tick come in one chunk
        return RequestTrace(request.arrival, chunks=[(t, times.count(t)) for t in dict.fromkeys(times)],
                            request_id=request.id)
    return RequestTrace(request.arrival, times, request_id=request.id)
