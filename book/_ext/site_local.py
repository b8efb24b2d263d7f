"""What the stock theme leaves to do: no script of another host, one search box, no output of another `mgpt`."""

import hashlib
import os
import shutil
from pathlib import Path

# Loaded by extensions that Jupyter Book always adds; this book uses none of them.  A widget's state is for a script
# that the page has not got (live figures have a client of their own), and has other random names at each build.
UNUSED_SCRIPTS = ("thebe", "THEBE_JS_URL", "mathjax", "jupyter.widget-state")


def drop_unused_scripts(app, pagename, templatename, context, doctree):
    def unused(script):
        text = f"{getattr(script, 'filename', None) or script} {getattr(script, 'attributes', '')}"
        return any(name in text for name in UNUSED_SCRIPTS)

    context["script_files"] = [script for script in context.get("script_files", []) if not unused(script)]
    context["css_files"] = [sheet for sheet in context.get("css_files", []) if not unused(sheet)]


KERNEL = ".jupyter/ipython/profile_default/ipython_kernel_config.py"


def package_digest(folder):
    """One hash over every file of the package that a chapter may run, its kernel's settings, and the language of figures."""
    digest = hashlib.sha256(os.environ.get("LANGUAGE", "").encode())
    kernel = Path(folder).parent / KERNEL
    for path in [*sorted(Path(folder).rglob("*")), *([kernel] if kernel.exists() else [])]:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(Path(folder).parent)).encode() + path.read_bytes())
    return digest.hexdigest()


def forget_outputs_of_other_code(app, env, added, changed, removed):
    """The execution cache knows a notebook's own cells only; an edit of mgpt must run the chapters again."""
    digest = package_digest(Path(app.srcdir) / "mgpt")
    known = Path(app.outdir).parent / ".mgpt-digest"
    cache = Path(app.outdir).parent / ".jupyter_cache"
    if known.exists() and known.read_text() == digest:
        return []
    shutil.rmtree(cache, ignore_errors=True)
    known.parent.mkdir(parents=True, exist_ok=True)
    known.write_text(digest)
    return [name for name in env.found_docs if name.startswith("book/")]


def silence_thebe(app, config):
    """Jupyter Book loads sphinx-thebe in any case, and the theme once more; its handlers put scripts into every page."""
    for event, listeners in app.events.listeners.items():
        app.events.listeners[event] = [item for item in listeners if not item.handler.__module__.startswith("sphinx_thebe")]


def theme_options(app, config):
    # Set here, since html_theme_options in _config.yml would replace the launch buttons that Jupyter Book derives.
    config.html_theme_options["navbar_persistent"] = []  # sphinx-book-theme 1.3 shows a second search box there
    config.html_theme_options["primary_sidebar_end"] = []
    config.html_context.setdefault("default_mode", "auto")  # an empty mode is an error in the reader's console


def setup(app):
    app.connect("config-inited", theme_options, priority=900)
    app.connect("config-inited", silence_thebe, priority=901)
    app.connect("html-page-context", drop_unused_scripts, priority=900)
    app.connect("env-get-outdated", forget_outputs_of_other_code)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
