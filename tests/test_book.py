"""`make book` builds again after any change, does nothing without one, and never takes a failed build for a good one."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("book", ROOT / "tools/book.py")
book = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(book)

FILES = ["_config.yml", "_toc.yml", "requirements.lock", "pyproject.toml", "book/01.md", "book/_ext/page.py",
         "book/_static/course.css", "book/_static/vendor/font.woff2", "book/references.bib", "exercises/01.ipynb",
         "mgpt/model.py", "mgpt/data/mg2.npz", "mgpt/locale/de/mgpt.mo", book.KERNEL]
EVERYWHERE = FILES[:3] + ["book/_ext/page.py"]
# Stands for Jupyter Book: leaves a page and a note of each call; fails where a chapter says so.
BUILDER = """
import pathlib
root = pathlib.Path(".")
html = root / "_build/html/book"
with open("_build/calls", "a") as calls:
    calls.write("anew\\n" if not (root / "_build/.doctrees").exists() else "on\\n")
(root / "_build/.doctrees").mkdir(exist_ok=True)
for folder in (html, root / "_build/jupyter_execute"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "01.html").write_text((root / "book/01.md").read_text())
meanwhile = root / "_build/meanwhile"
if meanwhile.exists():
    meanwhile.rename(root / "mgpt/late.py")
raise SystemExit("wrong" in (root / "book/01.md").read_text())
"""


class Course:
    """A small working copy, built once."""

    def __init__(self, root):
        self.root = root
        for name in FILES:
            self.write(name, "first")
        (root / "_build").mkdir()

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def build(self):
        """(exit status, what the builder was asked to do: None, "on" or "anew")."""
        calls = self.root / "_build/calls"
        calls.write_text("")
        status = book.main(self.root, (sys.executable, "-c", BUILDER))
        return status, calls.read_text().strip() or None


@pytest.fixture
def course(tmp_path):
    made = Course(tmp_path)
    assert made.build() == (0, "anew")
    return made


def test_without_a_change_nothing_is_built(course):
    assert course.build() == (0, None) and course.build() == (0, None)


@pytest.mark.parametrize("name", FILES)
def test_an_edit_of_any_input_builds_and_of_a_setting_everything(course, name):
    course.write(name, "second")
    assert course.build() == (0, "anew" if name in EVERYWHERE else "on")
    assert course.build() == (0, None)


@pytest.mark.parametrize("name", [name for name in FILES if name != book.KERNEL])
def test_a_removed_input_and_a_new_one_build_too(course, name):
    if name != "book/01.md":
        (course.root / name).unlink()
        assert course.build()[1]
    course.write(str(Path(name).with_name("new.md")), "first")
    assert course.build()[1] and course.build() == (0, None)


@pytest.mark.parametrize("name", [".git/index", "_build/cache/x", "mgpt/__pycache__/model.pyc", "mgpt.egg-info/PKG-INFO",
                                  ".jupyter/ipython/profile_default/history.sqlite", "_quick/x.html"])
def test_caches_are_no_inputs(course, name):
    course.write(name, "second")
    assert course.build() == (0, None)


@pytest.mark.parametrize("variable", book.VARIABLES)
def test_another_setting_in_the_environment_builds_everything(course, variable, monkeypatch):
    monkeypatch.setenv(variable, "https://example.org/course/")
    assert course.build() == (0, "anew")


def test_other_packages_build_everything(course, monkeypatch, tmp_path):
    (tmp_path / "_build/site-packages/sphinx-9.0.dist-info").mkdir(parents=True)
    monkeypatch.setattr(book.sysconfig, "get_path", lambda _name: str(tmp_path / "_build/site-packages"))
    assert course.build() == (0, "anew")


def test_a_failed_build_is_tried_again_from_the_start_until_it_is_good(course):
    course.write("book/01.md", "wrong")
    assert course.build() == (1, "on")
    assert course.build() == (1, "anew")  # the page's warning is given again
    course.write("book/01.md", "first")  # as at the last good build, but that is not what stands there
    assert course.build() == (0, "anew") and course.build() == (0, None)
    assert (course.root / "_build/html/book/01.html").read_text() == "first"


@pytest.mark.parametrize("name", ["_build/html/book/01.html", "_build/jupyter_execute/01.html"])
def test_what_was_deleted_or_changed_in_the_site_is_built_again(course, name):
    (course.root / name).unlink()
    assert course.build() == (0, "anew") and (course.root / name).exists()
    (course.root / name).write_text("by hand")
    assert course.build() == (0, "anew") and (course.root / name).read_text() == "first"


def test_a_file_that_does_not_belong_to_the_site_is_removed(course):
    course.write("_build/html/lite/old.html", "old")
    assert course.build() == (0, "anew") and not (course.root / "_build/html/lite/old.html").exists()


def test_an_edit_during_a_build_is_seen_by_the_next(course):
    course.write("_build/meanwhile", "x = 1")
    course.write("book/01.md", "second")
    assert course.build() == (0, "on")
    assert course.build()[1] and course.build() == (0, None)


def test_a_site_without_python_for_the_browser_asks_for_it_again(course):
    course.write("_build/cache/pyodide/failed.txt", "no network")
    assert course.build() == (0, "on")
    (course.root / "_build/cache/pyodide/failed.txt").unlink()
    assert course.build() == (0, None)


def test_the_command_is_the_strict_one():
    assert Path(book.COMMAND[0]).name == "jupyter-book" and {"-W", "--keep-going"} <= set(book.COMMAND)
    makefile = (ROOT / "Makefile").read_text()
    assert "book: env\n\t$(PY) tools/book.py\n" in makefile
