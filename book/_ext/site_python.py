"""Puts Python for the browser into the built site: for the live figures, and JupyterLite with the exercises.

Where it cannot be had the site is built all the same, the build says what is missing, and the pages say it too.
"""

import shutil
import sys
from pathlib import Path

import browser_python
import lite


def say(words):
    """Seen in a quiet build too, and no warning, which would end a strict one."""
    print(words, file=sys.stderr)


def look_for_python(app, config):
    """Before any page is written: may figures and launch links promise a Python in the browser?"""
    missing = browser_python.fetch(Path(app.outdir).parent / "cache" / "pyodide")
    config.site_python = missing is None
    config.site_lite = missing is None and lite.installed()
    if missing:
        say(f"No Python in the browser: {missing}\nThe site is built without it: figures stay still, exercises run in "
            "JupyterLab only.  MGPT_PYODIDE may name a folder or an address that has the files.")
    elif not config.site_lite:
        say("No JupyterLite: the packages of the extra `lite` are not installed here.")


def add_python(app, exception):
    if exception or app.builder.format != "html":
        return
    root, html = Path(app.srcdir), Path(app.outdir)
    for name, promised in (("pyodide", app.config.site_python), ("lite", app.config.site_lite)):
        if not promised:  # an older build's, of an older course
            shutil.rmtree(html / name, ignore_errors=True)
    if not app.config.site_python:
        return
    browser_python.write_folder(html / "pyodide", html.parent / "cache" / "pyodide", root)
    if app.config.site_lite:
        lite.build(html / "lite", html.parent / "cache" / "lite", root, sorted(app.env.found_docs))


def setup(app):
    app.add_config_value("site_python", False, "html")
    app.add_config_value("site_lite", False, "html")
    app.connect("config-inited", look_for_python, priority=950)
    app.connect("build-finished", add_python)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
