"""Where K and V of two texts differ: a column a position, a row a layer, bottom to top."""

from mgpt.text import _
from mgpt.widgets.svg import Figure

CELL, X0, TOP = 28, 62, 42


def kv_difference(words, equal):
    """A Figure: equal[layer][position] says whether K/V are those of the other text; filled where they are."""
    layers = len(equal)
    data = "; ".join(_("layer {layer}: equal at positions {list}").format(
        layer=layer, list=", ".join(str(i) for i, same in enumerate(row) if same) or _("none"))
        for layer, row in enumerate(equal))
    figure = Figure("figure-kv-difference", X0 + len(words) * (CELL + 2) + 6, TOP + layers * (CELL + 12) + 20,
                    _("K and V that one changed number leaves as they were"), data)
    for layer, row in enumerate(equal):
        y = TOP + (layers - 1 - layer) * (CELL + 12)
        figure.text(X0 - 8, y + CELL / 2 + 5, _("layer {n}").format(n=layer), anchor="end", size=12)
        for index, same in enumerate(row):
            if same:
                figure.kv_cell(X0 + index * (CELL + 2), y, CELL)
            else:
                figure.rect(X0 + index * (CELL + 2), y, CELL, CELL, thick=True)
    for index, word in enumerate(words):
        x = X0 + index * (CELL + 2) + CELL / 2
        figure.text(x, TOP - 8, word, anchor="middle", size=10 if len(word) > 4 else 12)
        figure.text(x, TOP + layers * (CELL + 12) + 2, index, anchor="middle", size=10)
    return figure
