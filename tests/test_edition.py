"""A translated edition needs catalogues and nothing else: every kind of sentence on a page comes out of gettext.

The trial edition marks each sentence with a sign.  A sentence without it could not be translated.
"""

import ast
import html
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parents[1]
SIGN = "¤"
CHAPTER = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
myst:
  html_meta:
    description: What a page says of itself.
---

# A chapter: its question?

A sentence of the page.

```{code-cell} ipython3
from mgpt.widgets.tick_chart import tick_table
from mgpt.scheduler import Request, simulate

tick_table("A caption in a cell", simulate([Request("A", 0, 2, 2)], max_active=1, block_size=2))
```

```{control} decode_stepper
```
"""


def tool():
    spec = importlib.util.spec_from_file_location("catalogue", ROOT / "tools/catalogue.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def collected():
    return tool().collect()


def test_sentences_of_the_package_of_the_site_and_of_drawing_cells_are_collected(collected):
    for sentence in ("Undo", "Run in this browser", "Static waves, unit-tick rule"):
        assert sentence in collected
    assert {place.split("/")[0] for message in collected for place, _line in message.locations} == {"mgpt", "book"}


@pytest.mark.parametrize("code", ['_(f"{n} blocks")', 'N_(f"{n} blocks")', '_("{n} blocks".format(n=n))', "N_(words)",
                                  '_("%d blocks" % n)', '_("a" + name)'])
def test_a_sentence_that_is_computed_before_it_is_looked_up_cannot_be_translated_and_is_refused(code):
    with pytest.raises(ValueError, match="line 1: .* cannot be collected"):
        list(tool().marked(ast.parse(code)))


def test_two_pieces_of_one_sentence_are_one_and_stored_sentences_may_be_looked_up():
    code = '_("One sentence "\n  "in two pieces.")\n_(LABELS[key])\n_(self.title)\n_(str(cell))\nN_("later")'
    assert list(tool().marked(ast.parse(code))) == [(1, "One sentence in two pieces."), (6, "later")]


def translated(template, target):
    """Every sentence of a template, with the sign behind it, as a catalogue in use."""
    with template.open("rb") as file:
        source = read_po(file)
    catalog = Catalog(locale="zh_CN")
    for message in source:
        if message.id:
            catalog.add(message.id, message.id + SIGN)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        write_mo(file, catalog)


@pytest.fixture(scope="module")
def edition(tmp_path_factory):
    """The built pages of a small book with the course's own settings and extensions, all of it translated."""
    root = tmp_path_factory.mktemp("edition")
    for folder in ("book/_ext", "book/_static", "mgpt", ".jupyter"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", "locale"))
    (root / "book/chapter.md").write_text(CHAPTER, encoding="utf-8")
    (root / "book/index.md").write_text("# The book's name\n\nThe first page.\n", encoding="utf-8")
    (root / "book/references.bib").touch()
    (root / "_toc.yml").write_text("format: jb-book\nroot: book/index\nparts:\n  - caption: The name of a part\n"
                                   "    chapters:\n      - file: book/chapter\n", encoding="utf-8")
    settings = (ROOT / "_config.yml").read_text(encoding="utf-8")
    settings = re.sub(r"^title: .*", "title: The book's name", settings, flags=re.M)
    (root / "_config.yml").write_text(settings, encoding="utf-8")
    (root / "_config.zh_CN.yml").write_text(settings.replace("\n  config:\n", "\n  config:\n    language: zh_CN\n"),
                                            encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(root), "MGPT_PYODIDE": str(root / "nowhere"),
                                "IPYTHONDIR": str(root / ".jupyter/ipython")}

    def build(*more):
        command = [str(Path(sys.executable).with_name("jupyter-book")), "build", ".", "-W", "--keep-going", "--quiet", *more]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    build()
    for name in ("Makefile", "tools"):
        (root / name).symlink_to(ROOT / name)
    (root / ".venv").symlink_to(sys.prefix)
    make = ["make", "-o", "env", "gettext"]  # beside the site that stands there already
    done = subprocess.run(make, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("book/index", "book/chapter"):
        translated(root / "_build/gettext" / f"{page}.pot", root / "locale/zh_CN/LC_MESSAGES" / f"{page}.mo")
    subprocess.run([sys.executable, str(ROOT / "tools/catalogue.py"), str(root / "all.pot")], check=True, capture_output=True)
    with (root / "all.pot").open("rb") as file:
        package = read_po(file)
    package.add("A caption in a cell")  # the trial chapter is not among the course's
    with (root / "package.pot").open("wb") as file:
        write_po(file, package)
    translated(root / "package.pot", root / "mgpt/locale/zh_CN/LC_MESSAGES/mgpt.mo")
    build("--config", "_config.zh_CN.yml", "--path-output", "zh_CN")
    return root / "zh_CN/_build/html"


def test_every_kind_of_sentence_on_a_page_is_translated(edition):
    page = re.sub(r"<pre>.*?</pre>", "", (edition / "book/chapter.html").read_text(encoding="utf-8"), flags=re.S)
    page = html.unescape(page)
    assert '<html lang="zh-CN"' in page
    for words in ("A sentence of the page.", "A chapter: its question?", "The name of a part", "The book's name",
                  "What a page says of itself.", "A caption in a cell", "Undo", "Run this page", "The cache, pass by pass"):
        found = re.findall(re.escape(words) + r"(.?)", page)
        assert found and set(found) == {SIGN}, words
    sentence = re.search(r'class="mgpt-sentence" role="status">([^<]*)<', page)[1]
    assert sentence.endswith(SIGN)


def test_a_page_in_english_has_no_trace_of_the_edition():
    page = (ROOT / "_build/html/book/10_scheduler.html").read_text(encoding="utf-8")
    assert SIGN not in page and '<html lang="en"' in page
