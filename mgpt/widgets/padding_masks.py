"""Padding, positions and masks of chapter 09: unequal requests in one pass, pass by pass."""

from dataclasses import dataclass

import numpy as np

from mgpt.text import N_, _
from mgpt.widgets.batch_layout import last_real, looks, looks_packed, pack, pad, positions_of
from mgpt.widgets.control import Choice, Control, Text, View, walk
from mgpt.widgets.svg import Figure

MOST_ROWS, MOST_PROMPT, MOST_SUM, MOST_OUTPUTS = 4, 9, 24, 5
CELL, LEFT, TOP, LINE, PER_LINE, GAP = 22, 26, 40, 54, 15, 6
LAYOUTS = {"left": N_("padding on the left"), "right": N_("padding on the right"), "packed": N_("packed, no padding")}
NAMES = "ABCD"


@dataclass(frozen=True)
class Pass:
    """One pass of a batch.

    owner (R, S): the request of each slot kept and new, -1 for padding; R is B, or 1 when packed.
    positions (R, S).  mask (R, T, S): where the T slots of this pass look.
    read: request -> slot whose logits are read; outputs: request -> number of the output chosen from them.
    """

    packed: bool
    number: int
    owner: np.ndarray
    positions: np.ndarray
    mask: np.ndarray
    read: dict
    outputs: dict

    @property
    def first_new(self):
        """The first slot of this pass."""
        return self.owner.shape[1] - self.mask.shape[1]

    def row(self, request):
        """The row of the arrays that a request is in."""
        return 0 if self.packed else request

    def position_read(self, request):
        """The position of the token whose logits are read."""
        return int(self.positions[self.row(request), self.read[request]])


def read_numbers(text, label, low, high):
    """The whole numbers of a text.  ValueError says how many, and of which size, are allowed."""
    try:
        numbers = [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= MOST_ROWS or not all(low <= n <= high for n in numbers):
        raise ValueError(_("{label}: 1 to {most} whole numbers from {low} to {high} are needed, not {text}").format(
            label=label, most=MOST_ROWS, low=low, high=high, text=repr(text)))
    return numbers


def read_batch(state):
    """(lengths, outputs) of the requests."""
    lengths = read_numbers(state["lengths"], _("Prompts"), 1, MOST_PROMPT)
    outputs = read_numbers(state["outputs"], _("Outputs"), 1, MOST_OUTPUTS)
    if len(lengths) != len(outputs):
        raise ValueError(_("Outputs: one number for each of the {n} prompts is needed").format(n=len(lengths)))
    if sum(lengths) > MOST_SUM:
        raise ValueError(_("Prompts: together at most {most} tokens are shown, not {n}").format(
            most=MOST_SUM, n=sum(lengths)))
    return lengths, outputs


def pass_of(lengths, outputs, layout, number):
    """The Pass of a batch: 0 is the prefill; pass n processes output n of each request that wants more."""
    served = [[i for i, n in enumerate(outputs) if n > decode] for decode in range(1, number + 1)]
    prompts = [[i] * length for i, length in enumerate(lengths)]
    chosen = {i: number + 1 for i, n in enumerate(outputs) if n > number}
    if layout == "packed":
        owner = pack(prompts + served)[0]  # what is new stands behind all that is kept
        positions = looks_packed(owner, len(owner)).sum(axis=-1) - 1  # all that a slot looks at, but itself
        mask = looks_packed(owner, len(served[-1]) if served else len(owner))
        read = {i: int(np.flatnonzero(owner == i)[-1]) for i in chosen}
        return Pass(True, number, owner[None], positions[None], mask[None], read, chosen)
    owner, real = pad(prompts, layout, filler=-1)
    names = np.arange(len(lengths))[:, None]
    for running in served:
        column = np.isin(names, running)
        owner, real = np.hstack([owner, np.where(column, names, -1)]), np.hstack([real, column])
    mask = looks(real, 1 if served else real.shape[1])
    read = {i: int(last_real(real)[i]) for i in chosen}
    return Pass(False, number, owner, positions_of(real), mask, read, chosen)


def view(state):
    """The View of a state: lengths, outputs wanted, layout, and how many decode passes are done."""
    lengths, outputs = read_batch(state)
    now = pass_of(lengths, outputs, state["layout"], min(state["passes"], max(outputs) - 1))
    rows = []
    for i, length in enumerate(lengths):
        real = int((now.owner == i).sum())
        padding = 0 if now.packed else now.owner.shape[1] - real
        reads = (now.read[i] - now.first_new, now.position_read(i), now.outputs[i]) if i in now.read else (None,) * 3
        rows.append((NAMES[i], length, real, padding, *reads))
    header = (_("request"), _("prompt"), _("real slots"), _("padding slots"), _("row of logits read"),
              _("position there"), _("output chosen"))
    return View((cells(now, max(lengths)), grid(now)), header, tuple(rows), sentence(now))


def sentence(now):
    slots = now.owner.shape[0] * now.mask.shape[1]
    real = int((now.owner[:, now.first_new :] >= 0).sum())
    places = ", ".join(f"{NAMES[i]} {slot - now.first_new}" for i, slot in now.read.items())
    at = ", ".join(f"{NAMES[i]} {now.position_read(i)}" for i in now.read)
    kind = _("Prefill") if now.number == 0 else _("Decode pass {n}").format(n=now.number)
    return _("{kind}: {slots} slots, {real} real and {waste} padding. Read the logits of these slots, "
             "counted from 0 in this pass: {places}. Their positions: {at}.").format(
        kind=kind, slots=slots, real=real, waste=slots - real, places=places, at=at)


def cells(now, width, name="figure-padding-masks"):
    """A Figure of all slots, kept and new, the position of each token below it.  width: slots of a padded prompt."""
    n_slots = now.owner.shape[1]
    lines = [range(start, min(start + PER_LINE, n_slots)) for start in range(0, n_slots, PER_LINE)]
    lines = [(0, line) for line in lines] if now.packed else [(i, range(n_slots)) for i in range(len(now.owner))]
    words = "; ".join(_("{name}: positions {positions}").format(
        name=NAMES[i], positions=" ".join(str(p) for p in now.positions[now.owner == i]))
        for i in range(now.owner.max() + 1))
    figure = Figure(name, 480, TOP + LINE * len(lines), _("Slots and positions of a batch"), words)
    figure.text(6, 16, _("thick: this pass · dot: padding · bar: logits read · dashed: output chosen"), size=11)
    for number, (row, line) in enumerate(lines):
        y = TOP + LINE * number
        if not now.packed:
            figure.text(6, y + 16, NAMES[row], bold=True)
        for slot in line:
            gap = 0 if now.packed or slot < width else GAP
            _slot(figure, now, row, slot, LEFT + (slot - line[0]) * (CELL + 1) + gap, y)
        here = set(now.outputs) & {row} if not now.packed else now.outputs if number == len(lines) - 1 else ()
        for place, i in enumerate(here):
            x = LEFT + (len(line) + place) * (CELL + 1) + 2 * GAP
            figure.rect(x, y, CELL, CELL, dashed=True)
            figure.text(x + CELL / 2, y + 15, f"#{now.outputs[i]}", anchor="middle", size=11)
            if now.packed:
                figure.text(x + CELL / 2, y - 4, NAMES[i], anchor="middle", size=10)
    return figure


def _slot(figure, now, row, slot, x, y):
    owner = now.owner[row, slot]
    if owner < 0:
        figure.text(x + CELL / 2, y + 15, "·", anchor="middle")
        figure.rect(x, y, CELL, CELL, stroke="quiet", thick=slot >= now.first_new)
        return
    figure.kv_cell(x, y, CELL, new=slot >= now.first_new)
    figure.text(x + CELL / 2, y + CELL + 11, now.positions[row, slot], anchor="middle", size=10)
    if now.packed:
        figure.text(x + CELL / 2, y - 4, NAMES[owner], anchor="middle", size=10)
    if now.read.get(int(owner)) == slot:
        figure.line(x + 2, y + CELL + 15, x + CELL - 2, y + CELL + 15, width=2.5)


def grid(now, name="figure-padding-masks-grid"):
    """A Figure of the mask: a line a query of this pass, a column a slot kept or new; filled where the query looks."""
    n_rows, n_new, n_slots = now.mask.shape
    room = (480 - 8) // n_rows - GAP
    size = min(14, room // n_slots)
    counts = "; ".join(f"{_('packed') if now.packed else NAMES[i]}: {' '.join(map(str, mask.sum(axis=-1)))}"
                       for i, mask in enumerate(now.mask))
    top = 26 if now.packed else 40
    figure = Figure(name, 480, top + 2 + n_new * size, _("Where each query looks"),
                    _("slots seen by each query of this pass: {counts}").format(counts=counts))
    figure.text(6, 16, _("lines: queries of this pass · columns: keys"), size=11)
    for i, mask in enumerate(now.mask):
        x0 = 6 + i * (room + GAP)
        if not now.packed:
            figure.text(x0, 34, NAMES[i], bold=True)
        for line in range(n_new):
            for column in range(n_slots):
                x, y = x0 + column * size, top + line * size
                padding = now.owner[i, column] < 0 or now.owner[i, now.first_new + line] < 0
                figure.rect(x, y, size - 1, size - 1, fill="k" if mask[line, column] else "none", stroke="quiet")
                if padding:
                    figure.text(x + size / 2 - 0.5, y + size / 2 + 3, "·", anchor="middle", size=10)
    return figure


to_pass = walk("passes", lambda state: max(read_batch(state)[1]) - 1)
CONTROL = Control(
    "padding_masks", N_("A batch of unequal requests, pass by pass"),
    inputs=(
        Text("lengths", N_("Prompts"), "5 3 2", unit=N_("(tokens of each)"), limit=40),
        Text("outputs", N_("Outputs"), "3 1 2", unit=N_("(wanted of each)"), limit=40),
        Choice("layout", N_("Layout"), "left", LAYOUTS),
    ),
    view=view,
    actions={"back": (N_("Pass back"), to_pass(lambda done, last: max(done - 1, 0))),
             "step": (N_("Next pass"), to_pass(lambda done, last: min(done + 1, last)))},
    hidden={"passes": 0},
)
