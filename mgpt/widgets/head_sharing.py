"""Figure 4.1: which query heads read which KV head, in MHA, GQA and MQA."""

from mgpt.memory import format_bytes, kv_cache_bytes
from mgpt.text import _
from mgpt.widgets.svg import Figure

PANEL, HEAD = 156, 14


def head_sharing(n_head, versions, n_layer, head_dim):
    """A Figure, a panel a version: lines of query heads converge on the KV head that they share.

    versions: [(name, KV heads)]; n_layer, head_dim: for the bytes a token that stand below, at 2 bytes a value.
    """
    data = "; ".join(_("{name}: {n} query heads on {kv} KV heads").format(name=name, n=n_head, kv=kv)
                     for name, kv in versions)
    figure = Figure("figure-4-1", PANEL * len(versions) + 12, 168, _("Query heads and the KV heads they read"), data)
    for panel, (name, n_kv_head) in enumerate(versions):
        left, width, group = 12 + PANEL * panel, PANEL - 20, n_head // n_kv_head

        def x(index, of, left=left, width=width):
            return left + (index + 0.5) * width / of

        figure.text(left + width / 2, 16, name, anchor="middle", bold=True)
        for head in range(n_head):
            kv = head // group
            figure.line(x(head, n_head), 48, x(kv, n_kv_head), 96, stroke="quiet", width=1.2)
            figure.rect(x(head, n_head) - HEAD / 2, 34, HEAD, HEAD)
        for kv in range(n_kv_head):
            figure.kv_cell(x(kv, n_kv_head) - HEAD / 2 - 1, 96, HEAD + 2)
        nbytes = kv_cache_bytes(n_layer=n_layer, n_kv_head=n_kv_head, head_dim=head_dim, lengths=1)
        figure.text(left + width / 2, 132, _("KV heads: {n}").format(n=n_kv_head), anchor="middle", size=12)
        words = _("{size} a token").format(size=format_bytes(nbytes))
        figure.text(left + width / 2, 150, words, anchor="middle", size=12)
    return figure
