"""The README's tree: every file with its purpose, read from the files themselves.

`python tools/tree.py --write` puts it into README.md; a test compares the two.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 128

# Purposes of what cannot say its own.
PURPOSES = {
    "README.md": "this map", "CONTRIBUTING.md": "where things live, and habits", "LICENSE": "of the code",
    "LICENSE-text": "of text and figures", "Makefile": "a thin face over the commands above",
    "pyproject.toml": "the package, its extras, tool settings", "requirements.lock": "everything pinned, with hashes",
    "_config.yml": "Jupyter Book settings; this folder is the source root", "_toc.yml": "the order of the pages",
    ".ci/run": "the same checks as at home", ".jupyter/": "JupyterLab's and the kernels' settings for this course",
    ".binder/": "the course on Binder: the same lock, the same settings",
    ".github/": "workflow that publishes the site",
    "book/": "chapters: MyST notebooks that import mgpt", "book/_ext/": "the site's own small Sphinx extensions",
    "book/_static/": "styles, scripts, KaTeX's stylesheet and fonts", "book/references.bib": "the bibliography",
    "solutions/": "the only source of every exercise", "exercises/": "generated from solutions/ by `mgpt release`",
    "mgpt/": "the engine (NumPy alone), and around it:", "mgpt/cli/": "the command line, one module a command",
    "mgpt/course/": "exercises, checks, grading", "mgpt/course/checks/": "the questions of each exercise, as data",
    "mgpt/course/grade/": "the instructor's grader", "mgpt/data/": "the checkpoint MG-2 and its card",
    "mgpt/widgets/": "figures and live controls", "tests/": "one file an idea, named like it",
    "tools/": "scripts for maintainers",
}
HIDDEN_SHOWN = (".binder", ".ci", ".jupyter", ".github")
FLAT = ("tests", "exercises", "mgpt/data", "book/_static", "book/_ext", ".binder", ".jupyter", ".github", "mgpt/course/checks")
SKIPPED = re.compile(r"(^|/)(_build|__pycache__|[\w.]+\.egg-info|__init__\.py|__main__\.py)$")


def purpose(path):
    """What a file or folder is for.  ValueError where nobody says."""
    name = str(path.relative_to(ROOT)) + ("/" if path.is_dir() else "")
    if name in PURPOSES:
        return PURPOSES[name]
    if path.suffix == ".py":
        words = ast.get_docstring(ast.parse(path.read_text())) or ""
        return re.split(r"(?<!\.)(?<!et al)\.(?:\s|$)|\n\n", words, maxsplit=1)[0].replace("\n", " ")
    if path.suffix == ".md":
        return re.search(r"^# (.+)$", path.read_text(), flags=re.M)[1]
    if path.suffix in (".sh", ".txt"):
        return next(line[2:] for line in path.read_text().splitlines() if line.startswith("# "))
    raise ValueError(f"{name} has no purpose in tools/tree.py")


def lines(folder=ROOT, depth=0):
    """The tree's lines, folders after files' order by name."""
    for path in sorted(folder.iterdir()):
        name = str(path.relative_to(ROOT))
        hidden = path.name.startswith(".") and path.name not in HIDDEN_SHOWN
        generated = path.suffix in (".json", ".ipynb", ".pyc")
        if hidden or generated or SKIPPED.search(name) or (path.is_dir() and not any(path.iterdir())):
            continue
        if path.name == ".ci":
            path = path / "run"
        label = "  " * depth + str(path.relative_to(folder)) + ("/" if path.is_dir() else "")
        text = f"{label:<30} {purpose(path)}"
        yield text if len(text) <= WIDTH else text[: WIDTH - 1].rsplit(" ", 1)[0] + " …"
        if path.is_dir() and name not in FLAT:
            yield from lines(path, depth + 1)


def readme_with_tree(text):
    """README's text with the tree's block as it should be."""
    block = "## The tree\n\n```\n" + "\n".join(lines()) + "\n```\n"
    return re.sub(r"## The tree\n\n```\n.*?```\n", lambda _match: block, text, flags=re.S)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    wanted = readme_with_tree(readme.read_text())
    if "--write" in sys.argv[1:]:
        readme.write_text(wanted)
    elif wanted != readme.read_text():
        sys.exit("README.md's tree is not the folders' tree: run `python tools/tree.py --write`")
