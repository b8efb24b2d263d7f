"""The chain of keys: each block's key is made from the key before it and the block's own token ids."""

from mgpt.text import _
from mgpt.widgets.svg import Figure

WIDTH, BOX, HIGH, PITCH, LEVEL = 480, 62, 40, 80, 62


def hash_chain(name, root, chains, block_size):
    """A Figure: chains = {label: keys of its whole blocks, hex strings}; equal beginnings stand once.

    root: what the first key begins with.  A box holds the positions of its block and the first digits of its key.
    """
    data = "; ".join(f"{label}: " + " ".join(key[:4] for key in keys) for label, keys in chains.items())
    figure = Figure(name, WIDTH, 34 + LEVEL * len(chains), _("Each key is made from the key before it"), f"{root}; {data}")
    figure.text(6, 16, root)
    places, used = {}, 0  # key -> (x, y) of its box
    for label, keys in chains.items():
        fresh = [key for key in keys if key not in places]
        y = 26 + LEVEL * used
        used += bool(fresh)
        for depth, key in enumerate(keys):
            x = 6 + PITCH * depth
            if key in places:
                continue
            places[key] = (x, y)
            if depth:
                before_x, before_y = places[keys[depth - 1]]
                _arrow(figure, before_x + BOX, before_y + HIGH / 2, x, y + HIGH / 2)
            figure.rect(x, y, BOX, HIGH)
            figure.text(x + BOX / 2, y + 16, f"{depth * block_size}–{(depth + 1) * block_size - 1}", anchor="middle")
            figure.text(x + BOX / 2, y + 33, key[:4], anchor="middle", size=12)
        if fresh:
            figure.text(6 + PITCH * len(keys), y + HIGH / 2 + 4, label, bold=True)
    return figure


def _arrow(figure, x1, y1, x2, y2):
    if y1 != y2:
        middle = x1 + (x2 - x1) / 2
        figure.line(x1, y1, middle, y1)
        figure.line(middle, y1, middle, y2)
        x1 = middle
    figure.line(x1, y2, x2, y2)
    figure.line(x2 - 5, y2 - 4, x2, y2)
    figure.line(x2 - 5, y2 + 4, x2, y2)
