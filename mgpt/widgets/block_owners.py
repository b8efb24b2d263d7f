"""Who owns which KV block of a pool: a frame for each, with its id and its reference count at the corners."""

from dataclasses import dataclass

from mgpt.text import _
from mgpt.widgets.svg import Figure

LEFT, GAP, TITLE = 6, 14, 24


@dataclass(frozen=True)
class Seen:
    """One block at one moment: the pool's Block, how many of its positions hold K/V, the names of its users."""

    block: object
    held: int
    names: tuple


def look(pool, caches):
    """A Seen for every block of a pool, in the order of ids.  caches: name -> PagedKVCache of a request at work."""
    held, names = {}, {}
    for name, cache in caches.items():
        for index, block_id in enumerate(cache.block_table):
            filled = min(pool.block_size, cache.seq_len - index * pool.block_size)
            held[block_id] = max(held.get(block_id, 0), filled)
            names.setdefault(block_id, []).append(name)
    seen = []
    for block_id in range(pool.num_blocks):
        block = pool.block(block_id)
        filled = pool.block_size if block.filed else held.get(block_id, 0)
        seen.append(Seen(block, filled, tuple(names.get(block_id, ()))))
    return tuple(seen)


def describe(seen, block_size):
    """A block in words, for those who do not see the picture."""
    if seen.block.state == "free":
        return _("block {id} free").format(id=seen.block.id)
    return _("block {id} {held} of {size} positions, {users} users {names}").format(
        id=seen.block.id, held=seen.held, size=block_size, users=seen.block.users, names=" ".join(seen.names)).strip()


def owners(name, panels, block_size, texts=None, new=(), width=480):
    """A Figure of pools below each other: panels = [(label, the Seen of each block)].

    texts: (block id, slot) -> what stands below that cell.  new: the (block id, slot) computed last.
    """
    cell = 22 if block_size <= 4 else 12
    pitch = block_size * cell + GAP
    each = max(1, (width - LEFT) // pitch)
    row = 16 + cell + (14 if texts else 0) + 16 + 8
    height = sum((TITLE if label else 4) + row * -(-len(blocks) // each) for label, blocks in panels)
    data = "; ".join(f"{label}: " * bool(label) + ", ".join(describe(seen, block_size) for seen in blocks)
                     for label, blocks in panels)
    figure = Figure(name, width, height, _("KV blocks, their users and their reference counts"), data)
    top = 0
    for label, blocks in panels:
        if label:
            figure.text(LEFT, top + 16, label, bold=True)
        top += TITLE if label else 4
        for number, seen in enumerate(blocks):
            _frame(figure, LEFT + number % each * pitch, top + number // each * row, cell, seen, block_size, texts or {},
                   new)
        top += row * -(-len(blocks) // each)
    return figure


def _frame(figure, x, y, cell, seen, block_size, texts, new):
    block, width = seen.block, block_size * cell
    figure.text(x, y + 11, block.id, size=11)
    if block.state != "free":
        figure.text(x + width, y + 11, block.users, anchor="end", size=12, bold=True)
    y += 16
    for slot in range(seen.held if block.state != "free" else 0):
        figure.kv_cell(x + slot * cell, y, cell - 1, new=(block.id, slot) in new)
        if (block.id, slot) in texts:
            figure.text(x + (slot + 0.5) * cell, y + cell + 12, texts[block.id, slot], anchor="middle", size=11)
    for slot in range(seen.held, block_size if block.state != "free" else 0):
        figure.text(x + (slot + 0.5) * cell, y + cell / 2 + 4, "·", anchor="middle")
    figure.rect(x - 2, y - 2, width + 3, cell + 3, stroke="currentColor" if block.users else "quiet",
                dashed=block.state == "cached")
    below = y + cell + (26 if texts else 13)
    figure.text(x, below, " ".join(seen.names), size=11)
