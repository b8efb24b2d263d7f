"""Who owns a shared block: requests come, branch, write and leave, event by event, over one real pool.

A token is a letter here, and the K and V of its position hold the letter's number.  So what the picture shows in a block is
what the pool's storage holds, copies included.  Pool, prefix cache and block tables are `mgpt`'s own.
"""

import functools
import re

import numpy as np

from mgpt.blocks import BlockPool, OutOfBlocks, PagedKVCache
from mgpt.config import GPTConfig
from mgpt.prefix import PrefixCache
from mgpt.text import N_, _
from mgpt.widgets.block_owners import look, owners
from mgpt.widgets.control import Control, Number, Table, Text, View, walk

MOST_EVENTS, ALL = 24, 99
CONFIG = GPTConfig(vocab_size=128, max_seq_len=256, n_layer=1, n_head=1, n_kv_head=1, head_dim=2, n_embd=2, n_inner=2)
EVENTS = re.compile(r"(?P<who>\w{1,2}) (?P<verb>asks|adds|branches|leaves)(?: (?P<text>[!-:<-~]{1,24}))?(?: as (?P<tenant>\w{1,8}))?"
                    r"|evict (?P<n>\d{1,2})")
STORIES = {
    "share": (N_("Share"), "A asks HOTEL600h?; B asks HOTEL600t?; A leaves; C asks HOTEL750h?; B leaves; C leaves; "
                           "D asks HOTEL600h?"),
    "branch": (N_("Branch"), "A asks HOTEL600h?; A branches B; B adds 6; A adds 7; B adds 0; A branches C; B leaves; "
                             "C adds !; A leaves; C leaves"),
    "evict": (N_("Evict"), "A asks HOTEL600h?; A leaves; B asks TRAIN430t?; evict 9; B leaves; evict 1; C asks TRAIN430t?; "
                           "D asks TRAIN430t?"),
    "tenants": (N_("Tenants"), "A asks HOTEL600h? as red; B asks HOTEL600h? as blue; A leaves; B leaves; "
                               "C asks HOTEL600h? as blue"),
}
START = ("A asks HOTEL600h?; B asks HOTEL600t?; B branches C; C adds 4; B adds 1; A leaves; B leaves; C leaves; evict 1; "
         "D asks HOTEL600h?")


def read_events(text):
    """[match] of "A asks letters; A branches B; …".  ValueError says which cannot be read."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not 1 <= len(parts) <= MOST_EVENTS:
        raise ValueError(_("Events: 1 to {most} are shown, not {n}").format(most=MOST_EVENTS, n=len(parts)))
    events = [EVENTS.fullmatch(part) for part in parts]
    for part, event in zip(parts, events):
        bare = event and event["verb"] == "leaves"
        tenant_fits = event and (event["tenant"] is None or event["verb"] == "asks")
        if event is None or not tenant_fits or event["verb"] and bare == bool(event["text"]):
            raise ValueError(_("Event {part} is none of: A asks letters, A asks letters as tenant, A adds letters, "
                               "A branches B, A leaves, evict 1").format(part=repr(part)))
    return events


class Stage:
    """A pool, a prefix cache and the requests at work; `play` does one event and says in a sentence what it did."""

    def __init__(self, num_blocks, block_size):
        self.pool = BlockPool(num_blocks, block_size)
        self.prefixes = PrefixCache(self.pool, model_key="letters")
        PagedKVCache(CONFIG, self.pool)  # makes the storage
        self.caches, self.texts, self.tenants, self.work = {}, {}, {}, {}  # by name; work: [computed, reused]
        self.computed = self.reused = 0
        self.new = set()

    def play(self, event):
        """Do one event.  What cannot be done is refused in words, and nothing changes."""
        self.new = set()
        verb, who = event["verb"] or "evict", event["who"]
        if verb in ("adds", "branches", "leaves") and who not in self.caches:
            return _("Refused: {who} is not at work.").format(who=who)
        newcomer = {"asks": who, "branches": event["text"]}.get(verb)
        if newcomer in self.caches:
            return _("Refused: {who} is at work already.").format(who=newcomer)
        try:
            return getattr(self, f"_{verb}")(event)
        except OutOfBlocks as error:
            return _("Refused, and nothing changes: {error}.").format(error=error)

    def _asks(self, event):
        who, ids = event["who"], [ord(letter) for letter in event["text"]]
        found, n = self.prefixes.match(ids, tenant=event["tenant"])
        cache = PagedKVCache(CONFIG, self.pool, prefix_cache=self.prefixes)
        cache.attach(found, n)
        try:
            self._write(cache, ids[n:])
        except OutOfBlocks:
            cache.release()
            raise
        self.caches[who], self.texts[who], self.tenants[who] = cache, ids, event["tenant"]
        self.work[who] = [len(ids) - n, n]
        self.reused += n
        self._file(who)
        hit = _("{n} found in {blocks}").format(n=n, blocks=named(found)) if n else _("nothing found")
        return _("{who} asks {size} positions: {hit}, {rest} computed.").format(
            who=who, size=len(ids), hit=hit, rest=len(ids) - n)

    def _adds(self, event):
        who, ids = event["who"], [ord(letter) for letter in event["text"]]
        cache, before = self.caches[who], self.caches[who].block_table
        self._write(cache, ids)
        self.texts[who] = self.texts[who] + ids
        self.work[who][0] += len(ids)
        self._file(who)
        copied = [(old, now) for old, now in zip(before, cache.block_table) if old != now]
        where = named(sorted({block for block, _slot in self.new}))
        if copied:
            (old, now), = copied
            return _("{who} wants to write, and block {old} has another user: it is copied to block {now} first. Written: "
                     "{where}.").format(who=who, old=old, now=now, where=where)
        return _("{who} writes into {where}, which nobody else uses: nothing is copied.").format(who=who, where=where)

    def _branches(self, event):
        who, twin = event["who"], event["text"]
        cache = self.caches[twin] = self.caches[who].fork()
        self.texts[twin], self.tenants[twin], self.work[twin] = list(self.texts[who]), self.tenants[who], [0, cache.seq_len]
        self.reused += cache.seq_len
        return _("{twin} stands in the same blocks as {who}: each counts one user more, and nothing is copied or computed.").format(
            twin=twin, who=who)

    def _leaves(self, event):
        who = event["who"]
        table = self.caches.pop(who).block_table
        for block_id in reversed(table):
            self.pool.release(block_id)
        states = {state: [b for b in table if self.pool.block(b).state == state] for state in ("in use", "cached", "free")}
        words = {"in use": _("{blocks} still in use by others"), "cached": _("{blocks} resident without a user"),
                 "free": _("{blocks} free")}
        said = [words[state].format(blocks=named(ids)) for state, ids in states.items() if ids]
        return _("{who} gives back its references: {states}.").format(who=who, states="; ".join(said))

    def _evict(self, event):
        gone = self.prefixes.evict(int(event["n"]))
        if not gone:
            return _("Nothing is evicted: no filed block is without a user.")
        return _("Evicted, in this order: {blocks}. What is in use stays.").format(blocks=named(gone))

    def _write(self, cache, ids):
        rows = np.repeat(np.array(ids, float)[None, :, None], CONFIG.head_dim, axis=2)  # (1, T, D)
        cache.append(0, rows, rows)
        cache.advance(len(ids))
        self.computed += len(ids)
        size = self.pool.block_size
        self.new = {(cache.block_table[p // size], p % size) for p in range(cache.seq_len - len(ids), cache.seq_len)}

    def _file(self, who):
        self.prefixes.insert(self.texts[who], self.caches[who].block_table, tenant=self.tenants[who])

    def letters(self):
        """(block id, slot) -> the letter that the pool's storage holds there, for every position held."""
        stored = self.pool.storage.k[0, 0, :, :, 0]  # (N, P)
        return {(seen.block.id, slot): chr(int(stored[seen.block.id, slot]))
                for seen in look(self.pool, self.caches) for slot in range(seen.held)}


def listed(ids):
    return " ".join(map(str, ids))


def named(ids):
    """The ids with their noun."""
    return (_("block {ids}") if len(ids) == 1 else _("blocks {ids}")).format(ids=listed(ids))


@functools.lru_cache(maxsize=32)
def stage_after(text, num_blocks, block_size, done):
    """(Stage, sentence) after the first `done` events."""
    stage, said = Stage(num_blocks, block_size), _("Nothing has happened: every block is free.")
    for event in read_events(text)[:done]:
        said = stage.play(event)
    return stage, said


def view(state):
    """The View of a state: the events, and how many of them are done."""
    events = read_events(state["events"])
    done = min(state["done"], len(events))
    stage, said = stage_after(state["events"], state["blocks"], state["block_size"], done)
    seen = look(stage.pool, stage.caches)
    parts = [part.strip() for part in state["events"].split(";") if part.strip()]
    label = _("{done} of {n}: {event}").format(done=done, n=len(events), event=parts[done - 1] if done else "–")
    picture = owners("figure-prefix-ownership", [(label, seen)], state["block_size"], stage.letters(), stage.new,
                     width=340)
    rows = tuple((s.block.id, _(STATES[s.block.state]), s.block.users, " ".join(s.names) or None,
                  "".join(stage.letters()[s.block.id, slot] for slot in range(s.held)) or None,
                  _("yes") if s.block.filed else _("no")) for s in seen)
    requests = tuple((who, stage.tenants[who], cache.seq_len, listed(cache.block_table), *stage.work[who])
                     for who, cache in stage.caches.items()) or ((None,) * 6,)
    more = Table(_("Requests at work"), (_("request"), _("tenant"), _("positions"), _("block table"), _("computed"),
                                         _("reused")), requests)
    total = _(" Positions so far: {computed} computed, {reused} reused.").format(
        computed=stage.computed, reused=stage.reused)
    header = (_("block"), _("state"), _("users"), _("used by"), _("holds"), _("can be found"))
    return View((picture,), header, rows, said + total, more=(more,), note=_(RULE))


to_event = walk("done", lambda state: len(read_events(state["events"])))


def story(events):
    """An action that begins another story after its first event."""
    return lambda state: state | {"events": events, "done": 1}


STATES = {"in use": N_("in use"), "cached": N_("cached"), "free": N_("free")}
RULE = N_("Each event is a tick of its own. A full block can be found from the event after the one that filled it. At the corners of a "
          "frame: its id, and how many use it.")
CONTROL = Control(
    "prefix_ownership", N_("Who owns a shared block"),
    inputs=(
        Text("events", N_("Events"), START, unit=N_("(A asks letters; A adds letters; A branches B; A leaves; evict 1)")),
        Number("block_size", N_("Block size"), 4, 1, 8, unit=N_("(positions)")),
        Number("blocks", N_("Pool"), 8, 1, 16, unit=N_("(KV blocks)")),
    ),
    view=view,
    actions={
        "first": (N_("Before the first"), to_event(lambda done, last: 0)),
        "back": (N_("Event back"), to_event(lambda done, last: max(done - 1, 0))),
        "step": (N_("Next event"), to_event(lambda done, last: min(done + 1, last))),
        "last": (N_("To the end"), to_event(lambda done, last: ALL)),
        **{name: (label, story(events)) for name, (label, events) in STORIES.items()},
    },
    hidden={"done": 2},
    play="step", rewind="first",
)
