"""The built site stands on its own, and its chapters have all their parts.  `make test` builds it first."""

import ast
import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import jupytext
import pytest
import sphinxcontrib.katex

ROOT = Path(__file__).parents[1]
HTML = ROOT / "_build" / "html"
PAGES = ["index", "book/index", "book/01_generate", "book/02_cache", "book/conventions", "book/glossary",
         "exercises/30_8_exercises"]
CHAPTERS = sorted(path for path in (ROOT / "book").glob("[0-9]*.md"))


class Requests(HTMLParser):
    """Addresses that a browser fetches by itself when it opens a page (links to follow are none)."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        fetching_link = tag == "link" and given.get("rel") not in ("canonical", "next", "prev", "index", "search", "author")
        if fetching_link:
            self.found.append(given.get("href", ""))
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed", "track", "input"):
            self.found += [given.get("src") or "", given.get("srcset") or ""]
        if tag == "object":
            self.found.append(given.get("data") or "")
        self.found += re.findall(r"url\(([^)]*)\)", given.get("style") or "")


def off_host(text):
    """Addresses of other hosts that a page's own text makes a browser fetch."""
    parser = Requests()
    parser.feed(text)
    styles = re.findall(r"<style.*?</style>", text, flags=re.S)
    return [url for url in parser.found + css_urls("".join(styles)) if re.match(r"\s*['\"]?(https?:)?//", url)]


def css_urls(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.findall(r"url\(([^)]*)\)", text) + re.findall(r"@import\s+['\"]([^'\"]+)", text)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_was_built(page):
    assert (HTML / f"{page}.html").is_file(), "run `make book` first"


def test_no_page_and_no_stylesheet_asks_another_host_for_anything():
    pages = list(HTML.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    for path in pages:
        assert off_host(path.read_text()) == [], path
    for path in HTML.rglob("*.css"):
        assert [u for u in css_urls(path.read_text()) if re.match(r"['\"]?(https?:)?//", u)] == [], path


@pytest.mark.parametrize("fetch", [
    '<script src="https://cdn.example/x.js"></script>', '<link rel="stylesheet" href="//cdn.example/x.css">',
    '<img src="http://example.org/x.png">', '<div style="background: url(https://example.org/x.png)">',
    "<style>@import 'https://example.org/x.css';</style>", '<link rel="icon" href="https://example.org/i.png">',
])
def test_the_search_for_other_hosts_finds_each_way_of_asking_one(fetch):
    assert off_host(f"<html><body>{fetch}</body></html>")
    assert not off_host('<a href="https://example.org">a link to follow</a>')


def test_no_page_loads_the_scripts_that_this_book_does_not_use():
    for page in PAGES[1:]:
        scripts = re.findall(r"<script[^>]*>", (HTML / f"{page}.html").read_text())
        assert not [tag for tag in scripts if re.search("thebe|mathjax|require", tag, flags=re.I)], page


def test_math_is_in_the_page_itself_as_html_and_as_mathml():
    page = (HTML / "book" / "conventions.html").read_text()
    assert page.count("<math ") >= 5 and 'class="katex-html"' in page
    body = re.sub(r"<annotation.*?</annotation>", "", page, flags=re.S)
    assert r"\[" not in body and r"\frac" not in body and "katex-error" not in body
    assert "vendor/katex/katex.min.css" in page


def test_stylesheet_fonts_and_katex_are_of_one_version():
    css = (ROOT / "book/_static/vendor/katex/katex.min.css").read_text()
    engine = Path(sphinxcontrib.katex.__file__).with_name("katex.min.js").read_text()
    version = re.search(r'\.katex-version:after\{content:"([\d.]+)"\}', css.replace("::", ":"))[1]
    assert f'"{version}"' in engine
    fonts = re.findall(r"url\(fonts/([^)]+)\)", css)
    assert fonts and all((ROOT / "book/_static/vendor/katex/fonts" / name).is_file() for name in fonts)


def sphinx_build(folder, text):
    (folder / "index.md").write_text(text)
    (folder / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'book' / '_ext')!r})\n"
        "extensions = ['myst_parser', 'site_math']\nhtml_math_renderer = 'katex_static'\n"
        "myst_enable_extensions = ['dollarmath']\n")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", ".", "out"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_good_tex_builds_and_bad_tex_fails_the_build_with_file_and_line(tmp_path):
    assert sphinx_build(tmp_path, "# T\n\nGood $x^2$ and\n\n$$\ny\n$$ (eq)\n").returncode == 0
    bad = sphinx_build(tmp_path, "# T\n\nGood $x^2$.\n\n$$\n\\frac{1}{\n$$\n")
    assert bad.returncode != 0 and "index.md:5" in bad.stderr and "bad TeX" in bad.stderr
    unknown = sphinx_build(tmp_path, "# T\n\n$\\nosuchmacro$\n")
    assert unknown.returncode != 0 and "index.md:3" in unknown.stderr


def site_local():
    spec = importlib.util.spec_from_file_location("site_local", ROOT / "book/_ext/site_local.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_edit_of_the_package_makes_stored_outputs_stale(tmp_path):
    digest = site_local().package_digest
    (tmp_path / "a.py").write_text("x = 1\n")
    before = digest(tmp_path)
    assert digest(tmp_path) == before
    (tmp_path / "a.py").write_text("x = 2\n")
    assert digest(tmp_path) != before
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"1")
    (tmp_path / "a.py").write_text("x = 1\n")
    assert digest(tmp_path) == before


# ------------------------------------------------------------------ chapters
PARTS = [r"^# .+\?$", r"^\*Reading: about \d+ minutes\.", r"^\*\*The question\.\*\*", r"^Afterwards you can",
         r"^## Predict first", r"^\*Figure \d+\.\d+: ", r"^## Traps", r":class: warning", r"^## Summary",
         r"^:::\{admonition\} Definition", r"^Words: \{doc\}`glossary`.*\{ref\}`conv-.*\{doc\}`\.\./exercises/"]


def missing_parts(text):
    """The first part that does not follow the one before, or None."""
    place = 0
    for part in PARTS:
        match = re.compile(part, flags=re.M).search(text, place)
        if match is None:
            return part
        place = match.end()
    return None


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_its_parts_in_order(chapter):
    assert missing_parts(chapter.read_text()) is None
    assert "literalinclude" in chapter.read_text()


def test_a_chapter_without_a_part_is_noticed():
    text = CHAPTERS[0].read_text()
    assert missing_parts(text.replace("## Traps", "## Pitfalls")) == r"^## Traps"
    assert missing_parts(text.replace("*Reading: about", "*About")) is not None


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_code_cells_are_short_enough_to_be_read_without_scrolling(chapter):
    for cell in jupytext.read(chapter).cells:
        if cell.cell_type == "code":
            lines = cell.source.splitlines()
            assert len(lines) <= 16 and max(map(len, lines)) <= 88, cell.source


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_every_trap_is_shown_failing_by_an_assertion(chapter):
    traps = chapter.read_text().split("## Traps")[1].split("## Summary")[0]
    parts = traps.split(":::{admonition} Trap: ")[1:]
    assert len(parts) >= 3
    assert all("```{code-cell}" in part and "assert " in part for part in parts)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_every_figure_names_itself_and_describes_its_data(chapter):
    page = (HTML / "book" / f"{chapter.stem}.html").read_text()
    figures = re.findall(r'<svg class="mgpt-figure".*?</svg>', page, flags=re.S)
    of_controls = sum(part.count('<svg class="mgpt-figure"')
                      for part in re.findall(r'<section class="mgpt-control".*?</section>', page, flags=re.S))
    assert len(figures) - of_controls == len(re.findall(r"^\*Figure ", chapter.read_text(), flags=re.M)) >= 1
    for figure in figures:
        title, description = re.findall(r"<(?:title|desc) id=[^>]*>([^<]+)<", figure)
        assert 'role="img"' in figure and len(title) > 10 and len(description) > 40


# What each chapter must show by running, one pattern or more for each fact: found in an assert statement.
MUST_SHOW = {
    "01_generate": [
        r'answer\(TRAVEL_PROMPT\) == "750"', r'answer\(TRAVEL_PROMPT_BEFORE\) == "600"',
        r"positions_processed == 8 \+ 9 \+ 10 \+ 11", r"difference <= 1e-12"],
    "02_cache": [
        r"table\] == \[\(8, 1\), \(9, 2\), \(10, 3\)\]", r"cache_len == 8 \+ n_outputs - 1",
        r"fast\.tokens == slow\.tokens",
        r"abs\(a - b\)\.max\(\) <= 1e-12", r"abs\(right - off_by_one\)\.max\(\) > ",
        r"\(8, 512\), \(9, 576\), \(10, 640\), \(11, 704\)", r"gaps == \[40, 45, 35\]"],
    "03_timing": [
        r"\(trace\.ttft, trace\.gaps, trace\.tpot\) == \(150, \[40, 45, 35\], 40\)", r"1000 / trace\.tpot == 25",
        r"mean_time_per_output == 67\.5", r"one\.tpot is None", r"silent\.failed", r"ttft\.p50 == 128", r"ttft\.p95",
        r"ttft\.p99", r"goodput == 16 / 20",
        r"means == \{(?=.*vllm)(?=.*sglang)(?=.*aiperf)(?=.*guidellm)(?=.*llmperf)(?=.*tgi)"],
    "04_memory": [
        r"held == \[\(8, 512, 512\), \(9, 576, 576\), \(10, 640, 640\)\]", r'"384 MiB"', r'"768 MiB"',
        r"mha == 4 \* gqa and gqa == 8 \* mqa", r'"615\.75 MiB", "2 GiB"', r"len\(NAMES\) == 20", r"// each"],
    "05_validity": [
        r"keep == 4", r"differ\[0\] == \[4, 5\]", r"differ\[1\] == list\(range\(4, 30\)\)",
        r"list\(found\.values\(\)\) == \[0, 0, 0, 0, 8\]", r"len\(\{base, \*others\}\) == 6",
        r'answers\["limit for hotel\?"\] == "600"'],
    "06_quantize": [
        r"q\.tolist\(\) == \[-2, 0, 1, 4\]", r"codes\.tolist\(\) == \[-2, -2, 0, 0, 2, 2\]", r"eight\[0\] - 8 == -4\.5",
        r"sum_sq_clip == 20\.25", r"unpack_int4\(packed, 4\)\.tolist\(\) == q", r"group\.nbytes == 6", r"nbytes == 16",
        r"nbytes == \(2 \+ 4\) \+ \(2 \+ 4\) \+ \(1 \+ 4\)", r"\(s_affine, z\) == ", r"results\[0\] == \(0\.587",
        r"errors == \[8\.41, 8\.33, 7\.4\]", r"found == \[\(61, 0\), \(41, 30\), \(31, 0\)\]"],
    "07_quality": [
        r'names\[greedy\(logits\)\] == "Lyon"', r'names\[greedy\(stored\)\] == "Paris"',
        r"reference\.right == len\(asked\) == 256",
        r"changed == \[0, 0, 0, 7, 1, 2\]", r"e\.right for e in results", r"smallest == \[",
        r"in cached\] == \[0, 2, 3, 0\]",
        r'split_of\(\*pair\) for pair in pairs\} == \{"calibration"\}', r"not pairs & "],
    # 08
    # 09
    # 10
    # 11
    # 12
    # 13
    # 14
    "15_choosing": [
        r"times == \[12\.74, 14\.70, 117\.04\]", r"balance == 103", r"\(131072, 505\)", r"abs\(whole - trace\.e2e\)",
        r'chat\["KV cache"\] == \(0\.0, 0\.70\)', r'batch\["continuous batching"\] == \[254, 412\]',
        r'documents\["prefix cache"\] == \(0\.475, 1\.0\)', r"len\(refused\) == 35", r"len\(set\(best\.values\(\)\)\) == 3",
        r"kept\.makespan == none\.makespan", r"round\(share, 4\) == 0\.0011", r"int8\.ms\(prompt\) == rule\.ms\(prompt\)",
        r"few == \[16, 16\]", r"paged\.peak_blocks, whole\.peak_blocks", r"waves\.makespan == serve", r"waits == \[1076, 1141, 1642\]",
        r"shared\.positions_reused == 0", r"rates == \[507, 550, 457\]", r"chunked \+ cached - base, 2\) == 1\.20",
        r"slow\.positions_computed > fast", r"results == \[\(0\.99, 9\), \(0\.91, 12\)\]",
        r"passes\[0\] < passes\[1\] and good\[0\] < good\[1\]", r'pace\["static"\] < pace', r"\(wrong, right\) == \(131_072, 32_320\)",
        r"gib - gb == 65_536 - 61_035", r"broken > promised", r"many\.throughput > ", r"goodput\[0\] >= 0\.97 > goodput\[1\]",
        r"promise > 1 >= both"],
}


def not_asserted(text, patterns):
    """The patterns that no assert statement of a chapter's code cells holds."""
    cells = [cell.source for cell in jupytext.reads(text, fmt="md:myst").cells if cell.cell_type == "code"]
    asserts = [" ".join(ast.get_source_segment(source, node).split())
               for source in cells for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]
    return [pattern for pattern in patterns if not any(re.search(pattern, one) for one in asserts)]


@pytest.mark.parametrize("stem", MUST_SHOW)
def test_a_chapter_asserts_what_it_must_show(stem):
    assert not_asserted((ROOT / "book" / f"{stem}.md").read_text(), MUST_SHOW[stem]) == []


def test_a_fact_that_is_only_printed_or_told_is_noticed():
    text = (ROOT / "book/06_quantize.md").read_text()
    pattern = r"q\.tolist\(\) == \[-2, 0, 1, 4\]"
    assert not_asserted(text.replace("assert q.tolist() ==", "told = q.tolist() =="), [pattern]) == [pattern]
    assert not_asserted("x\n\nassert 1 == 1\n\n```{code-cell} ipython3\nprint(1 == 1)\n```\n", ["1 == 1"]) == ["1 == 1"]


def test_an_exercise_page_shows_the_exercise_without_outputs():
    page = (HTML / "exercises" / "30_8_exercises.html").read_text()
    assert "NotImplementedError" in page and "Traceback" not in page and "cell_output" not in page
    assert "BEGIN SOLUTION" not in page
