"""The sentences that stand in code, for translators: mgpt.pot, beside the catalogues that Sphinx makes of the pages.

    .venv/bin/python tools/catalogue.py FILE

Collected are the arguments of `_` and `N_` in the package and in the site's extensions, and in chapters the text in
cells that draw: labels and captions, which the figures and tables look up when they are shown.
"""

import ast
import sys
from pathlib import Path

import jupytext
from babel.messages.catalog import Catalog
from babel.messages.pofile import write_po

ROOT = Path(__file__).parents[1]
LOOKED_UP = (ast.Name, ast.Attribute, ast.Subscript)  # `_` of something that N_ has marked elsewhere


def marked(tree):
    """(line, sentence) of every `_("…")` and `N_("…")`.  ValueError where the argument is computed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("_", "N_"):
            (argument,) = node.args
            if isinstance(argument, ast.Call) and ast.unparse(argument.func) == "str":
                (argument,) = argument.args
            if isinstance(argument, ast.Constant):
                yield node.lineno, argument.value
            elif node.func.id == "N_" or not isinstance(argument, LOOKED_UP):
                raise ValueError(f"line {node.lineno}: {ast.unparse(node)} cannot be collected; a plain string is needed")


def labels(source):
    """Strings of a cell that hold words, without its docstrings and f-strings."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
            and id(node) not in inside and any(letter.isalpha() for letter in node.value)]


def drawn(chapter):
    """Labels in the cells of a chapter that use mgpt.widgets, or a name that an earlier cell imported from it."""
    names = set()
    text = chapter.read_text(encoding="utf-8")
    for cell in jupytext.reads(text, fmt="md:myst").cells if "{code-cell}" in text else []:
        if cell.cell_type != "code":
            continue
        tree = ast.parse(cell.source)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mgpt.widgets"):
                names |= {alias.asname or alias.name for alias in node.names}
        if names & {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}:
            yield from labels(cell.source)


def collect(root=ROOT):
    """The Catalog of everything in the package, the extensions and the chapters under `root`."""
    catalog = Catalog(project="mgpt", charset="utf-8")
    for folder in ("mgpt", "book/_ext"):
        for path in sorted((root / folder).rglob("*.py")):
            try:
                for line, sentence in marked(ast.parse(path.read_text(encoding="utf-8"))):
                    catalog.add(sentence, locations=[(path.relative_to(root).as_posix(), line)])
            except ValueError as error:
                raise ValueError(f"{path.relative_to(root)}, {error}") from None
    for chapter in sorted((root / "book").glob("*.md")):
        for label in drawn(chapter):
            catalog.add(label, locations=[(chapter.relative_to(root).as_posix(), None)])
    return catalog


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tools/catalogue.py FILE")
    try:
        found = collect()
    except ValueError as error:
        sys.exit(f"catalogue: {error}")
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        write_po(file, found, omit_header=False)
    print(f"{target}: {len(found)} sentences")
