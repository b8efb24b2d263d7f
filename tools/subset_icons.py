"""Cut the theme's icon font down to the icons that its pages can show: 156 KB become a few.

Usage: uv run --with fonttools --with brotli tools/subset_icons.py   (after a new version of the theme, or a new icon)

The result lies where the theme has the whole font, so Sphinx puts ours in its place.
"""

import re
from pathlib import Path

from fontTools import subset

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "book/_static/vendor/fontawesome/webfonts/fa-solid-900.woff2"
ICONS = """angle-left angle-right arrow-up bars circle-half-stroke chevron-down code download ellipsis expand file file-pdf
fullscreen lightbulb link list magnifying-glass moon rocket sun xmark""".split()


def main():
    theme = next(ROOT.glob(".venv/lib/python3*/site-packages/pydata_sphinx_theme/theme/pydata_sphinx_theme/static"))
    css = (theme / "styles/pydata-sphinx-theme.css").read_text()
    codes = {int(code, 16) for name in ICONS for code in re.findall(r"\.fa-%s(?=[,{:])[^}]*?[\"']\\([0-9a-f]{4})" % name, css)}
    # Icons of admonitions, of links to other hosts and the like stand as characters in rules of the themes' own.
    codes |= {ord(char) for char in css if 0xE000 <= ord(char) <= 0xF8FF} | {0xF107}
    options = subset.Options(flavor="woff2", layout_features=[], desubroutinize=True)
    font = subset.load_font(theme / "vendor/fontawesome/webfonts/fa-solid-900.woff2", options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=codes)
    subsetter.subset(font)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    subset.save_font(font, TARGET, options)
    print(f"{len(codes)} icons, {TARGET.stat().st_size} bytes -> {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
