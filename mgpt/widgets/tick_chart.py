"""Figures over ticks: who is served when, and which KV blocks hold what, drawn from a scheduler's own rows."""

from mgpt.scheduler import Scheduler
from mgpt.text import N_, _
from mgpt.widgets.control import Table
from mgpt.widgets.svg import Figure

LEFT, RIGHT, TOP, ROW, BAR = 30, 470, 26, 34, 24
CELL, GAP, LINE, BLOCKS = 16, 8, 38, 64
NARROW = 22  # units below which a tick has no room for words
STATES = {"not arrived": N_("not arrived"), "waiting": N_("waiting"), "prefill": N_("prefill"), "decode": N_("decode"),
          "finished": N_("finished")}


def tick_table(caption, timeline, done=None):
    """The Table of every tick (or of the first `done`): the fields of its row that the conventions name."""
    header = (_("tick"), *timeline.requests, _("computed so far"), _("reused so far"), _("in use"), _("resident"),
              _("reserved"), _("wasted slots"))
    rows = tuple((row.tick, *map(cell, row.requests.values()), row.positions_computed, row.positions_reused,
                  row.blocks_in_use, row.blocks_resident, row.blocks_reserved, row.waste) for row in timeline.ticks[:done])
    return Table(caption, header, rows)


def cell(entry):
    """One request in one tick: state, positions processed, output sampled; (positions held/their KV blocks)."""
    if entry.state not in ("prefill", "decode"):
        return _(STATES[entry.state])
    work = f"{entry.start}:{entry.start + entry.inputs}" if entry.inputs else _("no turn")
    output = f" → #{entry.outputs}" if entry.sampled else ""
    return f"{_(STATES[entry.state])} {work}{output} ({entry.positions}/{entry.blocks})"


def runs_table(caption, runs):
    """The Table of whole runs: runs = {label: Timeline}; figures of several requests stand as A/B/C."""
    header = (_("policy"), _("output ticks {names}"), "TTFT", _("latency"), _("completion"), _("peak blocks"),
              _("peak reserved"), _("computed"), _("reused"))
    names = " / ".join(map(str, next(iter(runs.values())).requests))
    rows = []
    for label, timeline in runs.items():
        served = timeline.requests.values()
        ticks = " / ".join(f"{r.output_ticks[0]}–{r.output_ticks[-1]}" for r in served)
        times = ["/".join(str(getattr(r, field)) for r in served) for field in ("ttft", "latency", "completion")]
        rows.append((label, ticks, *times, timeline.peak_blocks, timeline.peak_reserved, timeline.positions_computed,
                     timeline.positions_reused))
    return Table(caption, tuple(word.format(names=names) for word in header), tuple(rows))


def tick_chart(name, runs, done=None):
    """A Figure: runs = [(label, Timeline)] below each other on one axis of ticks.

    done: how many ticks are shown; the axis is as long as the longest run all the same.
    A waiting request is a dashed line; a prefill has a thick outline and its positions, a decode a thin one; a
    filled foot says that the tick sampled an output.
    """
    last = max(len(timeline.ticks) for _label, timeline in runs)
    data = "; ".join(f"{label}: " + ", ".join(
        _("{key} arrives at {arrival}, outputs in ticks {ticks}").format(
            key=served.id, arrival=served.arrival, ticks=" ".join(map(str, served.output_ticks)) or _("none"))
        for served in timeline.requests.values()) for label, timeline in runs)
    height = sum(TOP + ROW * len(timeline.requests) for _label, timeline in runs) + 34
    figure = Figure(name, 480, height, _("Who is served in which tick"), data)
    width = (RIGHT - LEFT) / max(last, 1)
    y = 0
    for label, timeline in runs:
        figure.text(LEFT, y + 17, label, bold=True)
        for number, key in enumerate(timeline.requests):
            _request(figure, timeline, key, y + TOP + ROW * number, width, done)
        y += TOP + ROW * len(timeline.requests)
    figure.line(LEFT, y, RIGHT, y)
    every = max(1, -(-NARROW // int(width or 1)))
    for tick in range(0, last + 1, every):
        figure.line(LEFT + tick * width, y, LEFT + tick * width, y + 5)
        figure.text(LEFT + tick * width, y + 18, tick, anchor="middle", size=11)
    figure.text(RIGHT, y + 32, _("start of tick"), anchor="end", size=11)
    return figure


def _request(figure, timeline, key, y, width, done):
    figure.text(8, y + 17, key, bold=True)
    for row in timeline.ticks[:done]:
        entry, x = row.requests[key], LEFT + row.tick * width
        if entry.state == "waiting" or entry.state in ("prefill", "decode") and not entry.inputs:
            figure.line(x, y + BAR / 2, x + width, y + BAR / 2, dashed=True, stroke="quiet")
        if not entry.inputs:
            continue
        prefill = entry.state == "prefill"
        if entry.sampled:
            figure.rect(x + 2, y + BAR - 5, width - 4, 5, fill="k", stroke="none")
        figure.rect(x + 2, y, width - 4, BAR, thick=prefill)
        if width >= NARROW:
            figure.text(x + width / 2, y + 14, f"+{entry.inputs}" if prefill else f"#{entry.outputs}",
                        anchor="middle", size=11)


class Watched(Scheduler):
    """A Scheduler that notes, tick by tick, which of a request's blocks are the prefix cache's."""

    def __init__(self, *args, **settings):
        self.shared = []  # a tick: id -> keys (prefix_key, index)
        super().__init__(*args, **settings)

    def _row(self, *args):
        self.shared.append({run.request.id: list(run.shared) for run in self.ledger.running})
        return super()._row(*args)


def block_map(name, row, shared, block_size):
    """A Figure of one Tick, before its releases: each resident KV block as a frame of its positions.

    shared: id -> keys of the blocks that it takes from the prefix cache, as `Watched` notes them.  Those stand
    in a line of their own with the number of their users; a private block has one.
    """
    lines = [(_("shared"), [((key, i), block_size, 0, users) for (key, i), users in row.shared_users.items()])]
    for key, entry in row.requests.items():
        if key in shared:
            new = entry.inputs and entry.start
            theirs = {i for _prefix, i in shared[key]}
            lines.append((str(key), [
                (None, min(block_size, entry.positions - i * block_size),
                 max(0, (i + 1) * block_size - max(new, i * block_size)) if entry.inputs else 0, 1)
                for i in range(entry.blocks) if i not in theirs]))
    lines = [line for line in lines if line[1]]
    places, y = [], 44
    for label, blocks in lines:
        x, placed = BLOCKS, []
        for block in blocks:
            if x + block_size * CELL > RIGHT and x > BLOCKS:
                x, y = BLOCKS, y + LINE
            placed.append((x, y, block))
            x += block_size * CELL + GAP
        places.append((label, placed))
        y += LINE
    data = "; ".join(_("{who}: {blocks}").format(who=label, blocks=", ".join(
        _("{held} of {size} positions, {users} users").format(held=held, size=block_size, users=users)
        for _key, held, _new, users in blocks)) for label, blocks in lines) or _("no block is resident")
    title = _("KV blocks in tick {tick}, before its releases").format(tick=row.tick)
    figure = Figure(name, 480, y - 8, title, data)
    figure.text(8, 17, title)
    for label, placed in places:
        figure.text(8, placed[0][1] + 12, label, bold=True, size=12)
        for x, top, block in placed:
            _block(figure, x, top, block, block_size)
    return figure


def _block(figure, x, y, block, block_size):
    _key, held, new, users = block
    for slot in range(block_size):
        if slot < held:
            figure.kv_cell(x + slot * CELL, y, CELL - 1, new=slot >= block_size - new)
        else:
            figure.text(x + slot * CELL + CELL / 2, y + 12, "·", anchor="middle")
    width = block_size * CELL + 1
    figure.rect(x - 2, y - 2, width + 2, CELL + 3, stroke="currentColor" if users else "quiet", dashed=not users)
    figure.text(x + width, y - 5, users, anchor="end", size=11)
