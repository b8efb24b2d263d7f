"""Runs the chapters that changed side by side before Sphinx reads them one by one: a process a core.

It fills jupyter-cache as myst-nb would do itself; what fails here is left to myst-nb, which runs it again and tells why.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.read import create_nb_reader


def not_in_cache(env, docnames, cache):
    """(path, notebook) of each page with cells to run whose outputs are not known."""
    settings = env.mystnb_config
    for name in docnames:
        path = Path(env.doc2path(name))
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".md" or "{code-cell}" not in text:
            continue
        notebook = create_nb_reader(str(path), env.myst_config, settings, text).read(text)
        try:
            cache.match_cache_notebook(notebook)
        except KeyError:
            yield path, notebook


def run_side_by_side(app, env, docnames):
    settings, cores = env.mystnb_config, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if app.builder.name not in ("html", "gettext") or settings.execution_mode != "cache" or cores < 2:
        return
    cache = get_cache(settings.execution_cache_path)
    waiting = list(not_in_cache(env, docnames, cache))

    def run(job):
        path, notebook = job
        return path, notebook, single_nb_execution(notebook, cwd=str(path.parent), timeout=settings.execution_timeout,
                                                   allow_errors=settings.execution_allow_errors, meta_override=True)

    with ThreadPoolExecutor(min(cores, 4)) as pool:  # threads that wait for kernels
        for path, notebook, result in pool.map(run, waiting):
            if result.err is None:
                bundle = CacheBundleIn(notebook, str(path), data={"execution_seconds": result.time})
                cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def setup(app):
    app.connect("env-before-read-docs", run_side_by_side)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
