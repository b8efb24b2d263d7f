"""What a learner's process may see: a copy of the course without checks and without the functions asked for."""

import ast
import importlib
import inspect
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import mgpt
from mgpt.course.grade.layers import SYSTEM
from mgpt.course.questions import questions
from mgpt.text import N_

PACKAGE = Path(mgpt.__file__).resolve().parent
LEFT_OUT = ("checks", "__pycache__", "release.py")
WITHHELD = N_("{name} is what this exercise asks you to write; a call of it is no answer")


def build(folder, stem):
    """Copy the package into `folder`/mgpt for the learners of one exercise; give back the folder.

    `stem` None: nothing is withheld but the checks.
    """
    target = Path(folder) / "mgpt"
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns(*LEFT_OUT), copy_function=shutil.copyfile)
    withheld = [name for question in (questions(stem).values() if stem else ()) for name in question.stands_for]
    for name in dict.fromkeys(withheld):
        module, path = _home(name)
        file = target / Path(*module.split(".")[1:]).with_suffix(".py")
        file = file if file.exists() else file.with_suffix("") / "__init__.py"
        file.write_text(without(file.read_text(encoding="utf-8"), path, WITHHELD.format(name=name)), encoding="utf-8")
    for place in (folder, *target.rglob("*")):
        os.chmod(place, 0o755 if Path(place).is_dir() else 0o644)
    return Path(folder)


def _home(name):
    """(module, names within it) of where a dotted name is defined, however it was imported."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        owner = value
        for part in parts[cut:]:
            owner, value = value, getattr(value, part)
        if inspect.isclass(owner):  # a method: where its class is
            return owner.__module__, [*owner.__qualname__.split("."), parts[-1]]
        return value.__module__, value.__qualname__.split(".")
    raise ValueError(f"stands_for names {name!r}, which is not there")


def without(source, path, message):
    """`source` with one function, method or class replaced by one that refuses."""
    body = ast.parse(source).body
    for part in path:
        node = next(n for n in body if getattr(n, "name", None) == part)
        body = node.body
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    indent = " " * node.col_offset
    refuse = f"raise RuntimeError({message!r})"
    if isinstance(node, ast.ClassDef):
        stub = [f"class {node.name}:", "    def __new__(cls, *args, **kwargs):", f"        {refuse}"]
        methods = [n.name for n in node.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
        for name in methods:
            stub += ["", "    @classmethod", f"    def {name}(cls, *args, **kwargs):", f"        {refuse}"]
    else:
        stub = [f"def {node.name}(*args, **kwargs):", f"    {refuse}"]
    lines = source.splitlines()
    lines[first:node.end_lineno] = [f"{indent}{line}" if line else "" for line in stub]
    return "\n".join(lines) + "\n"


def visible(tree):
    """(readable, listable) paths for a child: the system, this Python and `tree`; nothing of the installed course."""
    prefixes = [sys.base_prefix, sys.prefix, sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"),
                sysconfig.get_path("platlib"), sysconfig.get_config_var("LIBDIR") or "/usr/lib"]
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    wanted = {str(Path(path)) for path in (*SYSTEM, *prefixes, *packages, str(tree)) if os.path.exists(path)}
    readable, listable = [], []
    for path in sorted(wanted):
        _carve(path, hidden(), readable, listable)
    return readable, listable


def hidden():
    """What must stay out of reach: the course as the instructor has it."""
    checkout = PACKAGE.parent
    places = [PACKAGE, *(checkout / name for name in ("solutions", "tests", "exercises", "_build", ".git"))]
    return [str(place) for place in places if place.exists()]


def _carve(path, hide, readable, listable):
    """Allow `path`, or, where something to hide lies under it, the rest of it piece by piece."""
    real = os.path.realpath(path)
    if any(real == place or real.startswith(place + os.sep) for place in hide):
        return
    if not any(place.startswith(real + os.sep) for place in hide):
        readable.append(path)
        return
    listable.append(path)
    for entry in sorted(os.listdir(path)):
        _carve(os.path.join(path, entry), hide, readable, listable)
