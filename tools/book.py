"""Builds the site strictly, or finds at once that nothing has changed since the last good build: `make book`.

Sphinx needs seconds to see that, and trusts pages that it once read with warnings.  Here a build is good only if it ended
without any; it is remembered by what it was made of (every file of the working copy but caches, the installed packages,
the settings) and by what it left (every file's size and time).  Any difference builds again: pages alone where only
their sources changed, everything where the settings did or where what was left is no longer there.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMAND = (str(Path(sys.executable).with_name("jupyter-book")), "build", ".", "-W", "--keep-going", "--quiet")
# What concerns every page: another one of these, and Sphinx begins anew.
SETTINGS = ("_config.yml", "_toc.yml", "requirements.lock", "book/_ext")
VARIABLES = ("SITE_URL", "SITE_REPOSITORY", "MGPT_PYODIDE", "SOURCE_DATE_EPOCH", "PYTHONPATH", "PYTHONWARNINGS")
KERNEL = ".jupyter/ipython/profile_default/ipython_kernel_config.py"
OWN = ("lite", "pyodide")  # folders of the site that know by their own hashes whether they are new enough


def tree(folder):
    """Files below a folder, without caches: what begins with a dot, `_…` at the top, compiled files."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] != "." and name != "__pycache__" and not name.endswith(".egg-info")
                      and not (place == str(folder) and name[0] == "_")]
        yield from (Path(place, name) for name in names if not name.endswith(".pyc") and name[0] != ".")


def inputs(root):
    """(hash of what concerns every page, hash of all the rest that a build may read)."""
    everywhere, rest = hashlib.sha256(), hashlib.sha256()
    for path in sorted([*tree(root), root / KERNEL]):
        name = path.relative_to(root).as_posix()
        chosen = everywhere if name.startswith(SETTINGS) else rest
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        chosen.update(f"{name} {content}\n".encode())
    packages = sorted(name for name in os.listdir(sysconfig.get_path("purelib")) if name.endswith(".dist-info"))
    everywhere.update(json.dumps([sys.version, packages, {name: os.environ.get(name) for name in VARIABLES}]).encode())
    return [everywhere.hexdigest(), rest.hexdigest()]


def outputs(build):
    """Hash of the names, sizes and times of all that a build leaves for readers and for tests."""
    found = []
    for folder in ("html", "jupyter_execute"):
        for place, _folders, names in os.walk(build / folder):
            for name in names:
                status = os.stat(os.path.join(place, name))
                found.append((place, name, status.st_size, status.st_mtime_ns))
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()


def forget(build, *, kept=()):
    """Remove the pages, and what Sphinx knows of them.  Outputs of notebooks stay in their own cache."""
    shutil.rmtree(build / ".doctrees", ignore_errors=True)
    html = build / "html"
    for path in html.iterdir() if html.is_dir() else ():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def main(root=ROOT, command=COMMAND):
    """Exit status: 0 where the site stands as it should."""
    build, stamp = root / "_build", root / "_build" / "book.json"
    made_of = inputs(root)
    before = json.loads(stamp.read_text()) if stamp.is_file() else None
    left = before is not None and before["left"] == outputs(build)
    incomplete = (build / "cache" / "pyodide" / "failed.txt").exists()  # a file to be had from outside was not there
    if left and before["made_of"] == made_of and not incomplete:
        print("The site is as the last build left it, and nothing has changed: _build/html/index.html")
        return 0
    stamp.unlink(missing_ok=True)
    if before is None or before["made_of"][0] != made_of[0] or not left:
        forget(build, kept=OWN if before is None or left else ())
    status = subprocess.run(command, cwd=root).returncode
    if status:
        shutil.rmtree(build / ".doctrees", ignore_errors=True)  # or the next build would not read, and warn, again
    elif inputs(root) == made_of:  # no file was edited meanwhile
        stamp.write_text(json.dumps({"made_of": made_of, "left": outputs(build)}))
    return status


if __name__ == "__main__":
    sys.exit(main())
