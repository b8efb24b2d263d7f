"""The built site stands on its own, and its chapters have all their parts.  `make test` builds it first."""

import ast
import functools
import gzip
import importlib.util
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import jupytext
import nbclient
import nbformat
import pytest
import sphinxcontrib.katex
import yaml

ROOT = Path(__file__).parents[1]
HTML = ROOT / "_build" / "html"
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
PARTS_OF_COURSE = {part["caption"]: [chapter["file"] for chapter in part["chapters"]] for part in TOC["parts"]}
PAGES = ["index", TOC["root"], *(page for pages in PARTS_OF_COURSE.values() for page in pages)]
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


def test_the_list_of_pages_has_every_chapter_and_exercise_and_nothing_twice():
    there = {f"{path.parent.name}/{path.stem}" for path in [*CHAPTERS, *(ROOT / "exercises").glob("*.ipynb")]}
    assert there <= set(PAGES) and len(set(PAGES)) == len(PAGES)


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


def extension(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"book/_ext/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_edit_of_the_package_makes_stored_outputs_stale(tmp_path):
    digest = extension("site_local").package_digest
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
def test_shown_package_code_fits_the_page_without_scrolling(chapter):
    plain = extension("plain_markdown")
    for name, lines in plain.INCLUDE.findall(chapter.read_text()):
        path = (chapter.parent / name).resolve()
        options = {option.replace("-", "_"): value for option, value in plain.OPTION.findall(lines)}
        shown = plain.included(path, **options).splitlines()
        start = plain.ModuleAnalyzer.for_file(path, "").find_tags()[options["pyobject"]][1]
        first = next(line for line in path.read_text().splitlines()[start - 1 :] if line.endswith(shown[0]))
        margin = len(first) - len(shown[0]) - int(options.get("dedent", 0))  # which the page shows before a method
        for line in shown:
            assert margin + len(line) <= 88, line


def test_what_a_cell_prints_is_one_output_however_slow_the_machine(monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(ROOT / ".jupyter/ipython"))
    cell = "import time\nprint('a', end='')\ntime.sleep(0.6)\nprint(' b')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    nbclient.NotebookClient(notebook, kernel_name="python3").execute()
    assert [output.text for output in notebook.cells[0].outputs] == ["a b\n"]


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


def empty_outputs(page):
    return re.findall(r"<pre>(?:<span></span>)?\s*</pre>", page)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_no_output_of_a_cell_is_an_empty_box(chapter):
    assert empty_outputs((HTML / "book" / f"{chapter.stem}.html").read_text()) == []
    assert empty_outputs("<pre><span></span>[1]\n</pre><pre><span></span>\n</pre>") == ["<pre><span></span>\n</pre>"]


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
    "08_cost": [
        r"by_hand == decode\.flops", r"\(round\(prefill\.intensity\), round\(decode\.intensity, 2\)\) == \(2015, 1\.05\)",
        r'side\(prefill\.intensity\) == "compute"', r'side\(decode\.intensity\) == "bandwidth"',
        r"prefill_exponents == \[1\.02, 1\.14, 2\.0\]", r"exponent\(kv, n\)\.round\(9\) == 1", r"meet == 26_624",
        r"second_difference == 2 \* \(4 \* L \* H \* d\)", r"kv\(n\) == 2 \* n \* L \* model\.n_kv_head \* d \* 2",
        r"e2e == trace\.ttft \+ \(trace\.n_tokens - 1\) \* trace\.tpot == 270", r"ttft == trace\.queue_time \+ 120",
        r"== \[\[0\.5, 1\.0\], \[1\.0, 0\.5\], \[2\.14, 1\.02\], \[1\.0, 0\.51\]\]",
        r"gigabytes == \[16\.08, 8\.58, 2\.95, 2\.15, 1\.54, 1\.13\]", r"overtakes == \{2048: 56, 8192: 14",
        r"last == 768", r'"MHA": \(2\*\*32, 4, 1\), "GQA": \(2\*\*30, 14, 4\), "MQA": \(2\*\*27, 109, 32\)',
        r"== 8 \* \(1 - 0\.75\*\*2\) == 3\.5", r"2 \* router / work < 1e-4",
        r"\(round\(wrong, 2\), round\(right, 2\)\) == \(6\.86, 7\.36\)", r"2 \* multiply_adds == prefill\.flops",
        r"round\(decode_ms / wrong\) == 156", r"\(round\(wrong\), round\(cost\.intensity\)\) == \(164, 44\)",
        r"\(round\(forgotten, 2\), round\(twice, 2\)\) == \(2\.0, 0\.5\)", r"wrong == 4 \* kv\(8192\)",
        r"factors == \[1\.87, 1\.33, 1\.10, 1\.05\]", r"gains == \[1\.87, 1\.18, 1\.10\]"],
    "09_batching": [
        r"\(120, 84, 36\)", r'last_real\(pad\(prompts, "right"\)\[1\]\)\.tolist\(\) == \[39, 29, 13\]',
        r"\[:, -1\]\.tolist\(\) == \[40, 30, 14\]", r"mask\.sum\(axis=-1\) - 1\)\[real\], at\[real\]", r"worst <= 1e-12",
        r"mine == one\.tokens\[:n\]", r"apart\(a, b\) <= 1e-12", r"== answers", r"\(33, 20, 13\)",
        r"\(1024 \* 104, 1024 \* 153\)", r"== \[180, 44, 18\]", r"apart\(logits\[ends\], first\) <= 1e-12",
        r'"seen": 1390, "padded": 4800, "packed": 7056', r"apart\(logits\[14\], alone\[2\]\.logits\[0\]\) <= 1e-12",
        r'texts\[1:\] == \["60\. limit", "1\. limit for"\]', r"needed\[1\] == 31 and columns\[1\] == 257",
        r"\[True, False, False\]", r'texts == \["750\.", "6000", "1553"\]',
        r"guessed\)\.sum\(axis=1\)\.tolist\(\) == \[4, 3, 1\]",
        r'digits == \["7", "7", "1"\]', r"== \[0, 30, 14\]", r"isfinite\(sound\)", r'== "750\. limit for museum"',
        r"shared != mine and own == mine", r"means\[0\]\[1\] == means\[1\]\[1\]"],
    # 10
    "11_blocks": [
        r"reserved\.capacity_nbytes == 256 \* 1024", r"first_fit\(pieces\.values\(\), 12, memory\) is None",
        r'caches\["E"\]\.block_table == \(1, 0, 7\)', r"== \(8, 32, 6\)", r"c\.block_table == \(5, 2, 1\)",
        r"stored\[:, :, block, slot\], keys_of_c\[:, :, p\]", r"\(block, slot\) == \(1, 0\)",
        r"\(4, 1\), \(5, 2\), \(6, 2\), \(7, 2\), \(8, 2\), \(9, 3\)", r"waste_tokens <= block_size - 1",
        r"pool\.num_free == 8 and \(cache\.seq_len, cache\.block_table\) == \(0, \(\)\)", r"\(9, 3, 5\), \(8, 2, 6\)",
        r"\(1\.5, 16\), \(1\.875, 8\), \(2, 10\)", r"\[0, 0\.25, 1\]", r"ledger\[2\] / ledger\[1\] - 5\) <= 1e-12",
        r"np\.isnan\(naive\) and np\.isnan\(of_first_block\)", r"off <= 1e-12 \* np\.abs\(expected\)",
        r"run\.tokens == plain\.tokens", r"np\.abs\(x - y\)\.max\(\) <= 1e-12", r"\[0, 148, 748, 3180, 13100\]",
        r"\(cut_off, pooled\) == \(4, 5\)", r"one_too_many == 3", r"off_by\(8, sorted\) < 1e-12 and off_by\(9, sorted\) > 1e-3",
        r"users == \[1, 0, 0\]", r"found == \[4, 5, 6, 7\] and pool\.num_in_use == 4", r"read, theirs\[:, :, :4\]",
        r"== \(7\.04, 11\)", r"wrong == \[4\.706, 11\.6\]", r"right == \[1, 2, 3, 4, 8, 12\]", r"== \(4096, 3814, 4512\)"],
    "12_prefix": [
        r"\(34, 40, 36\)", r"\[5, 4, 3\]", r"tenant blue", r"adapter travel", r"same_keys\(hotel\[1:\]\)",
        r"computed == \[40 \+ 2, 8 \+ 2, 8 \+ 2, 8 \+ 2\]", r"most\(40, 8\)", r"off\(run, ids\) <= 1e-12",
        r"run\.tokens == generate_cached\(", r"counts == \[4, 4, 4, 4, 1", r'== "cached"\] == \[0, 1, 2, 3, 4, 6, 8\]',
        r"gone == \[6, 8, 4, 3\]", r"evict\(99\) == \[2, 1\]", r"a\.block_table == \(0, 1, 2, 3, 5, 6\)",
        r"not pool\.writable\(5\)", r"\(computed, reused, right\) == \(152, 576, 7\)",
        r"in shared\.requests\.values\(\)\] == \[4, 1, 1, 1, 1, 1, 1\]", r"\(none\.peak_blocks, shared\.peak_blocks\) == ",
        r"tight\.positions_reused\) == \(4 \* 96, 0\)",
        r"off\(again, hotel\) > 1e-2", r"off\(run, train\) > 1e-2", r'wrong != "600" and off\(run, old\) > 1e-2',
        r'wrong != "750" and off\(run, hotel\) > 1e-2', r"shared_by_all == \(1, 4\) and apart == \(4, 4\)",
        r'adapter="travel"\) == \(\[\], 0\)', r'wrong == "600" and found', r"polynomial\(honest\) == polynomial\(forged\)",
        r"pool\.num_free == 8 and b\.block_table", r"\(right, wrong\) == \(152, 728\)",
        r"not set\(taken\) & set\(a\.block_table\)", r"\(left_after\(0\), left_after\(3\)\) == \(0, 24\)"],
    "13_speculative": [
        r"assert out == plain\.tokens", r"all\(run\.tokens == plain\.tokens for run in runs\)", r"emitted\(q, p\) == p",
        r"found\[a, b, c, d\] == P\[0\]\[a\] \* P\[a\]\[b\]", r"\.max\(\) <= 1e-15", r"alpha == 1 - distance",
        r"expected_tokens\(0\.5, 2\) == 1\.75", r"mixed == 3", r"high\[0\] > high\[1\]", r"pool\.num_blocks - pool\.num_free ==",
        r"paged\.seq_len == 40 \+ 21 - 1", r"expected_speedup\(c, gamma, c\) <= 1", r"speed\[128\] < 1",
        r"list\(text\) for text in zip\(\*beside\)\] == alone",
        r"wrong == q == ", r"wrong == \[F\(3, 8\), F\(1, 4\), F\(3, 8\)\]", r"sum\(raw\) == F\(3, 4\)",
        r"emitted\(q, p, drawn=drawn\) == gives != p", r"kept == F\(9, 32\)", r"wrong == \[F\(37, 48\)",
        r"without_bonus\(1, 1\) == 1", r"first == 19", r"== \(14, 29\)", r"== \(36, 24, 59\)",
        r"cache\.seq_len == 40 \+ 4 - 1"],
    "14_kv_quantization": [
        r"abs\(got - law\)\.max\(\) <= 1e-12", r"counts\.values\(\)\) == \[0, 0, 0, 2, 24, 33, 1\]",
        r'== 32 and vector_bytes\(16, "int4"\) == 8 \+ 4 == 12', r"131_072, 65_536, 67_584, 69_632, 34_816, 36_864",
        r"fixed\.nbytes == 60 \* 8 \* 8 \+ 2 \* 2 \* 2 \* 16 \* 4", r"error <= delta \+ np\.expm1\(2 \* epsilon\) \* largest",
        r'hard\["K int4 per vector, V float64"\] == 18', r'hard\["K float64, V int4 per vector"\] == 0',
        r"k_alone < 0\.7 \* v_alone", r'max\(means\["int4"\]\[1:\]\) < 1\.2 \* min', r"n == 184 and right == 10",
        r"abs\(got - alone\)\.max\(\) <= 1e-12", r"pool\.ref_count\(block_ids\[0\]\) == 2 and pool\.num_resident == 6",
        r'runs == \{"f16": \(256, 3, 121, 160\), "int8": \(496, 7, 41, 80\), "int4": \(963, 12, 1, 40\)\}',
        r"== \(0\.88, 7\.89, 102\)", r"== \[3\.76, 2\.67\]", r"values_nbytes == 9_600 \+ 102_400",
        r'fit == \{"f16": \[24, 22\], "int4": \[90, 84\]\}', r'moved\["ExactNewRows"\] > 0\.1', r"== \(2, 6, 182\)",
        r"wrong\) == \(0, 94\)", r'1 < steps\["coded anew"\] < steps\["old codes"\]', r'read\["B"\] > 2',
        r"clips == \(34, 0\)", r"sizes\[0\] == sizes\[1\] == 40_960", r"context \* values == 536_870_912"],
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


# ------------------------------------------------------------------ the landing page
MAP_ROW = re.compile(r"^\| \{doc\}`([^`]+)` \| ([^|]+\?) \| (?:(\d+) min)? ?\| (?:\{doc\}`(\d+) min <([^>]+)>`|(\d+) min) \|$", flags=re.M)


def test_the_landing_page_maps_every_chapter_of_each_part_with_its_minutes():
    text = (ROOT / "book/index.md").read_text()
    courses = [caption for caption in PARTS_OF_COURSE if caption.startswith("Part ")]
    assert courses == ["Part I · One request", "Part II · Many requests"]
    for caption in courses:
        rows = MAP_ROW.findall(text.split(f"### {caption}\n")[1].split("\n#")[0])
        named = [str(Path("book", page)) if "/" not in page else page.removeprefix("../") for page, *_rest in rows]
        own_exercise = {f"exercises/{Path(page).name}" for page in named if page.startswith("book/")}
        assert named == [page for page in PARTS_OF_COURSE[caption] if page not in own_exercise]
        for page, (_name, _question, reading, minutes, exercise, alone) in zip(named, rows):
            if page.startswith("book/"):
                told = re.search(r"Reading: about (\d+) minutes\. Exercise: about (\d+) minutes",
                                 (ROOT / f"{page}.md").read_text())
                assert (reading, minutes) == told.groups() and exercise == f"../exercises/{Path(page).name}", page
            else:
                assert f"**About {alone} minutes.**" in (ROOT / f"{page}.ipynb").read_text(), page


def test_the_landing_page_has_a_sentence_a_live_figure_and_three_doors_before_anything_else():
    page = (HTML / "book/index.html").read_text().split("<article")[1]
    first = page.split("<h2>")[0]
    assert first.count('class="mgpt-control"') == 1 and first.index("<p>") < first.index("mgpt-control") < first.index("site-doors")
    doors = re.findall(r'<a class="[^"]*"[^>]*href="([^"]+)"', first.split("site-doors")[1])
    assert len(doors) == 3 and all((HTML / "book" / door).resolve().is_file() for door in doors)


# ------------------------------------------------------------------ weight
BUDGET = 250_000  # bytes of a first visit, compressed as web servers do
FACE = re.compile(r"@font-face\s*\{([^}]*)\}")
RULE = re.compile(r"([^{}]+)\{([^{}]*KaTeX_[^{}]*)\}")
ICON_FONTS = {"fa-solid-900": ("fas", "fa-solid"), "fa-regular-400": ("far", "fa-regular"), "fa-brands-400": ("fab", "fa-brands")}


def font(declarations):
    """(family, style, weight) of a rule or of a @font-face."""
    family = re.search(r"(KaTeX_\w+)", declarations)[1]
    style = re.search(r"font-style:(\w+)", declarations)
    weight = re.search(r"font-weight:(\w+)", declarations)
    return family, style[1] if style else "normal", weight[1] if weight else "400"


def fonts(page):
    """The font files that a page's text needs: KaTeX's by the classes of its elements, the icons' by theirs."""
    classes = [set(found.split()) for found in re.findall(r'class="([^"]*)"', page)]
    names = [f"_static/vendor/fontawesome/webfonts/{name}.woff2" for name, marks in ICON_FONTS.items()
             if any(found & set(marks) for found in classes)]
    if "vendor/katex/katex.min.css" in page:
        css = (HTML / "_static/vendor/katex/katex.min.css").read_text()
        files = {font(face): re.search(r"url\(([^)]+)\)", face)[1] for face in FACE.findall(css)}
        for selectors, declarations in RULE.findall(FACE.sub("", css)):
            for selector in selectors.split(","):
                wanted = set(re.findall(r"\.([\w-]+)", selector.split(" ")[-1].split(">")[0]))
                if any(wanted <= found for found in classes):
                    names.append(f"_static/vendor/katex/{files[font(declarations)]}")
    return set(names)


def weight(page):
    """{file: bytes} of all that a browser fetches to show a page for the first time."""
    path = HTML / f"{page}.html"
    parser = Requests()
    parser.feed(path.read_text())
    found = {(path.parent / url.split("?")[0]).resolve() for url in parser.found if url and not url.startswith("data:")}
    for sheet in [file for file in found if file.suffix == ".css"]:
        urls = [url.strip("'\"").split("?")[0] for url in css_urls(FACE.sub("", sheet.read_text()))]
        found |= {(sheet.parent / url).resolve() for url in urls if not url.startswith(("data:", "#", "%23"))}
    found |= {(HTML / name).resolve() for name in fonts(path.read_text())} | {path}
    return {str(file.relative_to(HTML)): size(file) for file in found}


@functools.cache
def size(file):
    content = file.read_bytes()
    return len(content) if file.suffix in (".woff2", ".png") else len(gzip.compress(content, 6))


def test_a_first_visit_to_any_page_is_small():
    weights = {page: weight(page) for page in PAGES}
    totals = dict(sorted(((page, sum(files.values())) for page, files in weights.items()), key=lambda pair: -pair[1]))
    (ROOT / "_build/artefacts").mkdir(parents=True, exist_ok=True)
    (ROOT / "_build/artefacts/weights.json").write_text(json.dumps(totals, indent=1))
    largest = next(iter(totals))
    parts = sorted(weights[largest].items(), key=lambda pair: -pair[1])[:6]
    assert 100_000 < totals[largest] <= BUDGET, f"{largest}: {totals[largest]:,} bytes; its largest files: {parts}"


def test_the_weight_of_a_page_counts_all_that_it_loads():
    files = weight("book/conventions")
    assert {"book/conventions.html", "_static/course.css", "_static/scripts/bootstrap.js", "_static/styles/theme.css",
            "_static/vendor/katex/fonts/KaTeX_Main-Regular.woff2", "_static/vendor/katex/fonts/KaTeX_Math-Italic.woff2",
            "_static/vendor/fontawesome/webfonts/fa-solid-900.woff2"} <= set(files)
    assert "_static/vendor/katex/fonts/KaTeX_Fraktur-Regular.woff2" not in files
    assert "_static/live.js" in weight("book/02_cache") and "_static/live.js" not in files
