"""The drawing board of every figure: SVG with text as text, in the page's font, for light and dark pages.

Colours are Okabe and Ito's set, each with a light and a dark value, and never the only carrier of a meaning.
A figure names itself (`<title>`) and lists its data (`<desc>`) for those who do not see it.  Its words, and those of a
table, are looked up in the catalogue as they are written, so a chapter may give them as they are.
"""

import html

from mgpt.text import _

# name -> (on light pages, on dark pages); text keeps the page's own colour.
COLOURS = {
    "k": ("#0072b2", "#56b4e9"), "v": ("#7fb8d8", "#2a6f97"),  # K and V: two tones of one hue
    "time": ("#b35900", "#e69f00"), "quiet": ("#767676", "#9a9a9a"),
}
STYLE = """
.mgpt-figure { max-width: 100%; height: auto; color: inherit; font-family: inherit; font-size: 13px; display: block;
 font-variant-numeric: tabular-nums; }
.mgpt-figure text { fill: currentColor; }
.mgpt-figure .line { stroke: currentColor; fill: none; }
"""


def style():
    light = " ".join(f"--mgpt-{name}: {pair[0]};" for name, pair in COLOURS.items())
    dark = " ".join(f"--mgpt-{name}: {pair[1]};" for name, pair in COLOURS.items())
    on_dark = 'html[data-theme="dark"] .mgpt-figure, body[data-jp-theme-light="false"] .mgpt-figure'
    rules = f".mgpt-figure {{ {light} }}\n{on_dark} {{ {dark} }}{STYLE}"
    return f"<style>{rules}</style>"


class Figure:
    """A picture of `width` x `height` units with a title and a description; show it as a cell's last value."""

    def __init__(self, name, width, height, title, description):
        self.name, self.width, self.height = name, width, height
        self.title, self.description = title, description
        self._marks = []

    def rect(self, x, y, width, height, *, fill="none", stroke="currentColor", thick=False, dashed=False):
        """A rectangle; `fill` and `stroke` are names of COLOURS, "hatch", "none" or a CSS colour."""
        extra = ' stroke-dasharray="3 2"' if dashed else ""
        weight = 2.2 if thick else 0.8
        self._marks.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{self._paint(fill)}" '
                           f'stroke="{self._paint(stroke)}" stroke-width="{weight}"{extra}/>')

    def line(self, x1, y1, x2, y2, *, stroke="currentColor", dashed=False, width=1):
        extra = ' stroke-dasharray="3 2"' if dashed else ""
        self._marks.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{self._paint(stroke)}" '
                           f'stroke-width="{width:g}"{extra}/>')

    def text(self, x, y, words, *, anchor="start", size=13, bold=False):
        extra = ' font-weight="600"' if bold else ""
        self._marks.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}"{extra}>'
                           f"{html.escape(_(str(words)))}</text>")

    def kv_cell(self, x, y, size, *, new=False):
        """One kept position: K above V, with a thick outline where this pass computed it."""
        self.rect(x, y, size, size / 2, fill="k", stroke="none")
        self.rect(x, y + size / 2, size, size / 2, fill="v", stroke="none")
        self.rect(x, y, size, size, thick=new)

    def _paint(self, name):
        if name == "hatch":
            return f"url(#{self.name}-hatch)"
        return f"var(--mgpt-{name})" if name in COLOURS else name

    def svg(self, styled=True):
        """The picture as one string of SVG; without its styles where the page has them already."""
        ids = f"{self.name}-title {self.name}-desc"
        hatch = (f'<defs><pattern id="{self.name}-hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
                 'patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="5" stroke="currentColor" '
                 'stroke-width="1.3"/></pattern></defs>')
        return (f'<svg class="mgpt-figure" role="img" aria-labelledby="{ids}" xmlns="http://www.w3.org/2000/svg" '
                f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}">'
                f'<title id="{self.name}-title">{html.escape(_(self.title))}</title>'
                f'<desc id="{self.name}-desc">{html.escape(_(self.description))}</desc>'
                f"{style() if styled else ''}{hatch}{''.join(self._marks)}</svg>")

    def _repr_html_(self):
        return self.svg()

    def __repr__(self):
        return f"<figure: {self.title}>"
