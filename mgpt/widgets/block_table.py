"""The block table of chapter 11: requests append, rewind and finish; which physical blocks hold which positions."""

import functools
import re
from dataclasses import dataclass

import numpy as np

from mgpt.blocks import BlockPool, OutOfBlocks, PagedKVCache
from mgpt.config import GPTConfig
from mgpt.text import N_, _
from mgpt.widgets.control import Choice, Control, Number, View
from mgpt.widgets.svg import Figure

NAMES = ("A", "B", "C")
MOST_STEPS, MOST_SLOTS = 60, 48
START = "A+3 B+6 A+6 B=0 C+9"  # a step: a request, then + positions appended, or = positions kept
STEP = re.compile(r"([ABC])([+=])(\d{1,3})")
CELL, GAP, LEFT, WIDTH, LINE, NARROWEST = 14, 6, 24, 400, 48, 34
SHAPE = GPTConfig(vocab_size=2, max_seq_len=MOST_SLOTS, n_layer=1, n_head=1, n_kv_head=1, head_dim=2, n_embd=2, n_inner=2)


@dataclass(frozen=True)
class Moment:
    """A pool and its caches after some steps; positions the last step wrote, by request; why it was refused, or ""."""

    pool: BlockPool
    caches: dict
    new: dict
    refused: str


@functools.lru_cache(maxsize=32)
def after(steps, block_size, num_blocks):
    """The Moment after `steps` ("A+6 B=0 …") on real caches.  A step that finds too few blocks changes nothing."""
    pool = BlockPool(num_blocks, block_size)
    caches = {name: PagedKVCache(SHAPE, pool) for name in NAMES}
    new, refused = {}, ""
    for step in steps.split():
        match = STEP.fullmatch(step)
        if match is None:
            raise ValueError(_("step {step} cannot be read: a request, + or =, and a number are needed").format(
                step=repr(step)))
        cache, n = caches[match[1]], int(match[3])
        new, refused = {}, ""
        if match[2] == "=":
            cache.truncate(min(n, cache.seq_len))
        else:
            refused = _append(cache, n)
            new = {} if refused else {match[1]: range(cache.seq_len - n, cache.seq_len)}
    return Moment(pool, caches, new, refused)


def _append(cache, n):
    """Append n positions of zeros, as one pass does; "" or the words of the refusal."""
    rows = np.zeros((SHAPE.n_kv_head, n, SHAPE.head_dim))
    try:
        cache.append(0, rows, rows)
    except OutOfBlocks as error:
        return str(error)
    cache.advance(n)
    return ""


def moment_of(state):
    if not isinstance(state["steps"], str) or len(state["steps"].split()) > MOST_STEPS:
        raise ValueError(_("At most {most} steps are kept").format(most=MOST_STEPS))
    size = int(state["block_size"])
    return after(state["steps"], size, state["memory"] // size)


def view(state):
    """The View of a state: settings, and the steps done so far."""
    moment = moment_of(state)
    picture = block_table("figure-block-table", moment.caches, moment.pool, moment.new)
    header = (_("request"), _("logical block"), _("positions"), _("physical block"), _("users"), _("slots filled"),
              _("slots empty"))
    note = _("Position p stands in physical block table[p // {size}], slot p % {size}.").format(size=moment.pool.block_size)
    return View((picture,), header, table_rows(moment.caches, moment.pool), sentence(state, moment), note=note)


def table_rows(caches, pool):
    """(request, logical block, positions, physical block, users, slots filled, slots empty) of every table entry."""
    rows = []
    for name, cache in caches.items():
        for index, block_id in enumerate(cache.block_table):
            first, end = index * pool.block_size, min((index + 1) * pool.block_size, cache.seq_len)
            rows.append((name, index, f"{first}–{end - 1}" if end - first > 1 else str(first), block_id,
                         pool.ref_count(block_id), end - first, pool.block_size - (end - first)))
    return tuple(rows)


def sentence(state, moment):
    pool, cache = moment.pool, moment.caches[state["request"]]
    words = _("The last step was refused, and nothing changed: {error}. ").format(error=moment.refused) if moment.refused else ""
    if cache.seq_len:
        block, slot = divmod(cache.seq_len - 1, pool.block_size)
        words += _("{name} holds {n} positions in blocks {blocks}: its last one, position {last}, stands in block {block}, slot "
                   "{slot}.").format(name=state["request"], n=cache.seq_len, blocks=" ".join(map(str, cache.block_table)),
                                     last=cache.seq_len - 1, block=cache.block_table[block], slot=slot)
    else:
        words += _("{name} holds no position and no block.").format(name=state["request"])
    held = sum(cache.seq_len for cache in moment.caches.values())
    words += " " + _("In the pool {use} of {all} blocks are in use; they hold {held} positions, and {empty} of their slots are "
                     "empty.").format(use=pool.num_in_use, all=pool.num_blocks, held=held,
                                      empty=pool.num_in_use * pool.block_size - held)
    full = len(state["steps"].split()) >= MOST_STEPS
    return words + (" " + _("No more steps are kept: reset to go on.") if full else "")


def block_table(name, caches, pool, new=None):
    """A Figure: each request's blocks in logical order, and below the whole pool in physical order.

    caches: letter -> PagedKVCache over `pool`; new: letter -> positions just written (thick).  On every frame stand
    the physical id (left) and the number of users (right); below a frame of the pool, whose logical block it is.
    """
    size, new = pool.block_size, new or {}
    owner = {block_id: (key, index) for key, cache in caches.items() for index, block_id in enumerate(cache.block_table)}
    places, y = [], 40  # (letter, y) or (block id, x, y, footer)
    for key, cache in caches.items():
        places.append((key, y + 12))
        y = y + 32 if not cache.block_table else _row(places, [(block_id, None) for block_id in cache.block_table], y, size)
    pool_at = y + 2
    y = _row(places, [(i, f"{owner[i][0]} {owner[i][1]}" if i in owner else _("free")) for i in range(pool.num_blocks)],
             y + 28, size)
    data = "; ".join(_("{who}: {n} positions in physical blocks {blocks}").format(
        who=key, n=cache.seq_len, blocks=", ".join(map(str, cache.block_table)) or _("none"))
        for key, cache in caches.items())
    figure = Figure(name, WIDTH, y - 16, _("Logical blocks of each request, and the physical pool"), data)
    figure.text(4, 12, _("in logical order"), size=12)
    figure.text(4, pool_at, _("the pool in physical order (id left, users right)"), size=12)
    for place in places:
        if len(place) == 2:
            figure.text(6, place[1], place[0], bold=True)
            if not caches[place[0]].block_table:
                figure.text(LEFT, place[1], _("no block"), size=11)
            continue
        block_id, x, top, footer = place
        key, index = owner.get(block_id, (None, 0))
        held = min(size, caches[key].seq_len - index * size) if key else 0
        _block(figure, x, top, block_id, pool.ref_count(block_id), size, held,
               [p - index * size for p in new.get(key, ())])
        if footer is not None:
            figure.text(x + size * CELL / 2, top + CELL + 13, footer, anchor="middle", size=10)
        else:
            for slot in range(held):
                figure.text(x + slot * CELL + CELL / 2, top + CELL + 12, index * size + slot, anchor="middle", size=9)
    return figure


def _row(places, blocks, y, size):
    """Place blocks (id, footer) from left to right, as many lines as needed; the y below them."""
    x = LEFT
    for block_id, footer in blocks:
        if x + size * CELL > WIDTH - 4:
            x, y = LEFT, y + LINE
        places.append((block_id, x, y, footer))
        x += max(size * CELL, NARROWEST if size < 2 else 0) + GAP
    return y + LINE


def _block(figure, x, y, block_id, users, size, held, new):
    for slot in range(size):
        if slot < held:
            figure.kv_cell(x + slot * CELL, y, CELL - 1, new=slot in new)
        else:
            figure.text(x + slot * CELL + CELL / 2, y + 12, "·", anchor="middle")
    width = size * CELL + 1
    figure.rect(x - 2, y - 2, width + 2, CELL + 3, stroke="currentColor" if users else "quiet", dashed=not users)
    figure.text(x - 2, y - 5, block_id, size=11, bold=True)
    figure.text(max(x + width, x + 22), y - 5, users, anchor="end", size=10)


def memory_lines(name, lines, slots):
    """A Figure of one memory of `slots` slots in several lines.

    lines: [(label, [(letter, first slot, slots taken, slots filled)])].  Filled: K and V; a dot: taken and empty; no
    frame: free.
    """
    width = 468 / slots
    data = "; ".join(_("{label}: {pieces}").format(label=label, pieces=", ".join(
        _("{who} takes {n} slots from {start} and fills {held}").format(who=who, n=n, start=start, held=held)
        for who, start, n, held in pieces)) for label, pieces in lines)
    figure = Figure(name, 480, 58 * len(lines) + 18, _("One memory of {slots} slots, divided in several ways").format(
        slots=slots), data)
    for number, (label, pieces) in enumerate(lines):
        y = 58 * number + 14
        figure.text(4, y, label, bold=True, size=12)
        y += 22
        figure.rect(4, y, slots * width, CELL, stroke="quiet", dashed=True)
        for who, start, n, held in pieces:
            x = 4 + start * width
            figure.rect(x, y, held * width, CELL / 2, fill="k", stroke="none")
            figure.rect(x, y + CELL / 2, held * width, CELL / 2, fill="v", stroke="none")
            for slot in range(held, n):
                figure.text(x + (slot + 0.5) * width, y + 12, "·", anchor="middle")
            figure.rect(x, y, n * width, CELL)
            figure.text(x + 1, y - 4, who, size=11, bold=True)
    y = 58 * len(lines) - 6
    for slot in range(0, slots + 1, 8):
        figure.text(4 + slot * width, y + 16, slot, anchor="start" if slot == 0 else "end" if slot == slots else "middle",
                    size=11)
    return figure


def step(sign):
    """An action that adds a step of the chosen request to the record."""
    def change(state):
        try:
            cache = moment_of(state).caches[state["request"]]
        except ValueError:  # a wrong record is said by the view
            return state
        n = {"+": state["positions"], "<": max(cache.seq_len - state["positions"], 0), "-": 0}[sign]
        steps = [*state["steps"].split(), f"{state['request']}{'+' if sign == '+' else '='}{n}"]
        return state if len(steps) > MOST_STEPS else state | {"steps": " ".join(steps)}

    return change


CONTROL = Control(
    "block_table", N_("Blocks, taken and given back"),
    inputs=(
        Choice("request", N_("Request"), "C", {name: name for name in NAMES}),
        Number("positions", N_("Positions"), 1, 1, 16, unit=N_("(to append or to rewind)")),
        Choice("block_size", N_("Block size"), "4", {str(size): str(size) for size in (1, 2, 4, 8)},
               unit=N_("(positions)")),
        Number("memory", N_("Memory"), 24, 8, MOST_SLOTS, unit=N_("(positions, in whole blocks)")),
    ),
    view=view,
    actions={
        "append": (N_("Append"), step("+")),
        "rewind": (N_("Rewind"), step("<")),
        "finish": (N_("Finish"), step("-")),
        "empty": (N_("Empty the pool"), lambda state: state | {"steps": ""}),
    },
    hidden={"steps": START},
)
