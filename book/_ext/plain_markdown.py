"""A page's MyST as Markdown that every notebook shows: what the site draws itself is put into words and code.

Package code is put in where the page includes it, boxes become quotations, links to pages lead to their notebooks.
"""

import re
import textwrap
from pathlib import Path

from sphinx.pycode import ModuleAnalyzer
from sphinx.util import parselinenos

INCLUDE = re.compile(r"^```\{literalinclude\} (\S+)\n((?::[\w-]+: .*\n)+)```$", flags=re.M)
OPTION = re.compile(r"^:([\w-]+): (.*)$", flags=re.M)
BOX = re.compile(r"^:::\{admonition\} ([^\n]+)\n(?::\w+:[^\n]*\n)*(.*?)^:::$", flags=re.M | re.S)
LINK = re.compile(r"\{(doc|ref|eq|numref|term)\}`([^`<]*?) ?(?:<([^`>]*)>)?`")
CITED = re.compile(r"\{cite:[tp]\}`([^`]*)`")
EQUATION = re.compile(r"^\$\$ \([\w.-]+\)$", flags=re.M)  # the name of a formula
LABEL = re.compile(r"^\(([\w.-]+)\)=(?:\n|\Z)", flags=re.M)


def included(path, *, pyobject, lines="1-", start_at="", dedent=None):
    """The code that `literalinclude` shows with these options, without a common margin.

    KeyError: no such object in the file; StopIteration: no line of it holds `start_at`; TypeError: another option.
    """
    analyzer = ModuleAnalyzer.for_file(path, "")
    _kind, first, last = analyzer.find_tags()[pyobject]
    code = analyzer.code.splitlines()[first - 1 : last]
    code = [code[number] for number in parselinenos(lines, len(code))]
    code = code[next(number for number, line in enumerate(code) if start_at in line) :]
    return textwrap.dedent("\n".join(code)).rstrip()


def heading(text):
    """The first heading of a page's text, Markdown or a notebook's JSON; None if it has none."""
    found = re.search(r'^ *"?#+ (.+?)(?:\\n",?)?$', text, flags=re.M)
    return found and found[1]


def label_names(folder):
    """label -> the heading that stands behind it, in all pages of a folder."""
    named = re.compile(r"^\(([\w.-]+)\)=\n+#+ (.+)$", flags=re.M)
    return dict(pair for path in Path(folder).glob("*.md") for pair in named.findall(path.read_text(encoding="utf-8")))


def cited(bibliography):
    """key -> "Author 2023", "Author and Author 2023" or "Author et al. 2023" of a BibTeX file."""
    from pybtex.database import parse_file

    names = {}
    for key, entry in parse_file(bibliography).entries.items():
        last = [" ".join(person.last_names) for person in entry.persons.get("author", [])]
        who = " and ".join(last) if len(last) < 3 else f"{last[0]} et al."
        names[key] = f"{who} {entry.fields['year']}"
    return names


def plain(text, page, labels, works):
    """The MyST of one cell of the file `page` as plain Markdown."""
    def link(found):
        kind, words, target = found.groups()
        if kind != "doc":
            return words if target else labels.get(words, words)
        path = page.parent / (target or words)
        for suffix in (".md", ".ipynb"):
            file = path.with_name(path.name + suffix)
            if file.is_file():
                content = file.read_text(encoding="utf-8")
                title = words if target else heading(content)
                has_cells = suffix == ".ipynb" or "{code-cell}" in content
                return f"[{title}]({target or words}.ipynb)" if has_cells else title
        return words

    def box(found):
        return "\n".join(f"> {line}".rstrip() for line in [f"**{found[1]}**", "", *found[2].strip().splitlines()])

    def code(found):
        options = {name.replace("-", "_"): value for name, value in OPTION.findall(found[2])}
        return f"```python\n{included((page.parent / found[1]).resolve(), **options)}\n```"

    text = BOX.sub(box, LABEL.sub("", EQUATION.sub("$$", text)))
    text = CITED.sub(lambda found: works.get(found[1], found[1]), LINK.sub(link, text))
    return INCLUDE.sub(code, text)
