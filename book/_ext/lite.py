"""JupyterLite with the course: exercises and chapters as notebooks, run by the Python that the site brings along."""

import hashlib
import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import plain_markdown
from site_local import package_digest

# The kernel leaves out what is named here when it installs its own needs one by one at its start.
PRELOADED = ["micropip", "piplite", "ssl", "sqlite3", "ipykernel", "comm", "pyodide_kernel", "jedi", "ipython", "numpy",
             "mgpt", "ipywidgets"]
RUNTIME = {
    "jupyter-lite-schema-version": 0,
    "jupyter-config-data": {
        "appName": "How a Language Model Runs",
        "exposeAppInBrowser": True,  # for FOLDED
        "litePluginSettings": {"@jupyterlite/pyodide-kernel-extension:kernel": {
            "pyodideUrl": "./../pyodide/pyodide.js", "disablePyPIFallback": True,
            "loadPyodideOptions": {"packages": PRELOADED},
        }},
    },
}
# All cells are in the page at once, for those who search in it or have it read to them; no news from other hosts.
OVERRIDES = {"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
             "@jupyterlab/apputils-extension:notification": {"checkForUpdates": False, "fetchNews": "false"}}
# A phone has no room for the list of files beside a notebook: it stays folded until the reader touches anything, and its
# tab opens it.  JupyterLab itself unfolds it more than once while it starts.
FOLDED = """<script>
  if (matchMedia("(max-width: 700px)").matches) {
    const fold = setInterval(() => {
      const shell = window.jupyterapp?.shell;
      if (shell && !shell.leftCollapsed) shell.collapseLeft();
    }, 100);
    for (const touch of ["pointerdown", "keydown"]) {
      addEventListener(touch, () => clearInterval(fold), { once: true, capture: true });
    }
  }
</script>"""
# Only these of the front ends installed here: the others talk to a server.
FRONT_ENDS = ("@jupyterlite/pyodide-kernel-extension", "@jupyter-widgets/jupyterlab-manager")
BUILD = {"LiteBuildConfig": {
    "apps": ["lab"], "no_sourcemaps": True, "no_unused_shared_packages": True,
    "ignore_sys_prefix": ["federated_extensions"],
    "federated_extensions": [f"{sys.prefix}/share/jupyter/labextensions/{name}" for name in FRONT_ENDS],
}}


PACKAGES = ("jupyterlite-core", "jupyterlite-pyodide-kernel", "jupyterlab-widgets")
VERSIONS = {name: importlib.metadata.version(name) for name in PACKAGES
            if importlib.util.find_spec(name.replace("-", "_"))}


def installed():
    """Are the packages of the extra `lite` here?"""
    return len(VERSIONS) == len(PACKAGES)


def sources(root, pages):
    """{page: its source} of all pages with code."""
    found = {}
    for page in pages:
        for suffix in (".ipynb", ".md"):
            path = root / (page + suffix)
            if path.is_file() and (suffix == ".ipynb" or "{code-cell}" in path.read_text(encoding="utf-8")):
                found[page] = path
    return found


def notebook(source, labels, works):
    """Text of a page's notebook in JupyterLite, whose Markdown knows nothing of MyST."""
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".ipynb":
        return text
    import jupytext  # only here: a build without changes has no need of it
    import nbformat

    result = jupytext.reads(text, fmt="md:myst")
    result.metadata["language_info"] = {"name": "python"}  # or JupyterLite asks which kernel is meant
    for number, cell in enumerate(result.cells):
        cell.id = f"cell-{number}"  # jupytext's are random
        if cell.cell_type == "markdown":
            cell.source = plain_markdown.plain(cell.source, source, labels, works)
    return nbformat.writes(result) + "\n"


def finished(page, place):
    """A page of JupyterLite, `place` in its folder, with the course's name and an icon: else browsers ask the host for one."""
    icon = f'<link rel="icon" href="{"../" * len(place.parts)}_static/favicon.svg" />'
    page = page.replace("<title>JupyterLite</title>", f"<title>{RUNTIME['jupyter-config-data']['appName']}</title>")
    return page.replace("</head>", f"{icon}\n{FOLDED if place.parts[0] == 'lab' else ''}\n</head>", 1)


def build(target, cache, root, pages):
    """Build JupyterLite into the folder `target`; nothing is done where nothing changed."""
    found = sources(root, pages)
    config = {name: json.dumps(value, indent=1) for name, value in {
        "jupyter-lite.json": RUNTIME, "jupyter_lite_config.json": BUILD, "overrides.json": OVERRIDES}.items()}
    made_of = [{page: path.read_text(encoding="utf-8") for page, path in found.items()}, config, VERSIONS,
               package_digest(root / "mgpt"), (root / "book/references.bib").read_text(encoding="utf-8"),
               *(Path(module.__file__).read_text(encoding="utf-8") for module in (plain_markdown, sys.modules[__name__]))]
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    stamp = cache / "built"
    if target.is_dir() and stamp.is_file() and stamp.read_text() == digest:
        return
    with tempfile.TemporaryDirectory() as folder:
        labels = plain_markdown.label_names(root / "book")
        works = plain_markdown.cited(root / "book/references.bib")
        notebooks = {f"files/{page}.ipynb": notebook(source, labels, works) for page, source in found.items()}
        for name, text in (config | notebooks).items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, "-m", "jupyterlite_core.app", "build", "--output-dir", "out"],
                              cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"JupyterLite could not be built:\n{done.stdout}{done.stderr}")
        for path in (Path(folder) / "out").rglob("index.html"):
            page = path.read_text(encoding="utf-8")
            path.write_text(finished(page, path.relative_to(Path(folder) / "out")), encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(Path(folder) / "out", target)
    cache.mkdir(parents=True, exist_ok=True)
    stamp.write_text(digest)
