"""The direction of imports: top imports bottom only, in no circle, and the engine needs NumPy alone.

Every check is a function over a folder, and runs twice: over the package, where it finds nothing, and over a small
broken copy, where it must find the fault.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Who may stand on whom: a module imports from its own floor or from lower ones.
FLOORS = [
    {"validate", "text"},
    {"config", "sampling", "memory", "kv_layers", "kv_config", "codes", "quantize", "tokenizer"},
    {"model", "cache"},
    {"trace", "trace_files", "bench_files", "timing", "validity", "paged_attention", "paged_cache", "blocks",
     "prefix", "generate", "quantized_cache", "quantized_blocks", "cost", "hf", "checkpoint", "policy", "policy_eval",
     "quality"},
    {"timeline", "ledger", "scheduler", "speculative", "machine", "setting", "serving", "workloads"},
    {"widgets", "course"},
    {"cli", "__main__"},
]
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}
ENGINE = set().union(*FLOORS[:5])
OPTIONAL = {"safetensors"}  # the extra `hf`: inside a function only
NOT_FOR_THE_ENGINE = ("ipywidgets", "matplotlib", "IPython", "safetensors", "torch")


def imports(path, package):
    """(module, line, inside a function) of every import of a file; relative ones as absolute names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lazy = {node for outer in ast.walk(tree) if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            for node in ast.walk(outer)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "mgpt" else [base]
        else:
            continue
        yield from ((name, node.lineno, node in lazy) for name in names)


def modules(folder):
    """(stem, file) of everything under mgpt/; a file of a subpackage counts under the subpackage's name."""
    for path in sorted((folder / "mgpt").rglob("*.py")):
        parts = path.relative_to(folder / "mgpt").with_suffix("").parts
        if parts != ("__init__",):
            yield parts[0], path


def edges(folder):
    for stem, path in modules(folder):
        package = ".".join(path.parent.relative_to(folder).parts)
        for name, line, lazy in imports(path, package):
            yield stem, name, f"{path.relative_to(folder)}:{line}", lazy


def unplaced(folder):
    return sorted({stem for stem, _ in modules(folder)} - set(FLOOR))


def upward(folder):
    """Imports that go from a lower floor to a higher one."""
    return [f"{where} imports {name}" for stem, name, where, _ in edges(folder)
            if name.startswith("mgpt.") and FLOOR.get(name.split(".")[1], 0) > FLOOR.get(stem, 0)]


def circles(folder):
    """Modules that reach themselves, by imports at any place."""
    graph = {}
    for stem, name, _, _ in edges(folder):
        if name.startswith("mgpt.") and name.split(".")[1] != stem:
            graph.setdefault(stem, set()).add(name.split(".")[1])

    def reached(start):
        seen, todo = set(), [start]
        while todo:
            todo += graph.get(todo.pop(), set()) - seen
            seen |= set(todo)
        return seen

    return sorted(stem for stem in graph if stem in reached(stem))


def foreign(folder):
    """What an engine module imports beside the standard library, NumPy and its own package."""
    own = {"mgpt", "numpy", *sys.stdlib_module_names}
    return [f"{where} imports {name}" for stem, name, where, lazy in edges(folder)
            if stem in ENGINE and name.split(".")[0] not in own and not (lazy and name.split(".")[0] in OPTIONAL)]


def by_name(folder):
    """Engine modules that import by a string, which the other checks cannot see."""
    return [f"{path.relative_to(folder)}:{node.lineno}" for stem, path in modules(folder) if stem in ENGINE
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", None)) in ("__import__", "import_module")]


def exported(folder):
    """Names of the package root that a module could be mistaken for."""
    tree = ast.parse((folder / "mgpt" / "__init__.py").read_text(encoding="utf-8"))
    return [ast.unparse(node) for node in tree.body if not isinstance(node, ast.Expr)
            and not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("__"))]


def loaded(folder):
    """Packages of notebooks and pictures that are loaded once the root and every engine module are imported."""
    stems = ["mgpt", *(f"mgpt.{stem}" for stem, _ in modules(folder) if stem in ENGINE)]
    code = (f"import sys\nsys.path.insert(0, {str(folder)!r})\n" + "".join(f"import {stem}\n" for stem in stems)
            + f"print(*[name for name in {NOT_FOR_THE_ENGINE} if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


CHECKS = (unplaced, upward, circles, foreign, by_name, exported, loaded)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_package_keeps_the_rule(check):
    assert check(ROOT) == []


def test_the_checks_read_every_file_of_the_package():
    stems = {stem for stem, _ in modules(ROOT)}
    assert {"model", "cache", "generate", "config", "cli", "course"} <= stems
    names = {(stem, name) for stem, name, _, _ in edges(ROOT)}
    assert {("generate", "mgpt.model"), ("model", "numpy"), ("__main__", "mgpt.cli")} <= names


@pytest.mark.parametrize("check, files, found", [
    (unplaced, {"teleport.py": ""}, "teleport"),
    (upward, {"cache.py": "from mgpt.generate import prefill"}, "mgpt/cache.py:1 imports mgpt.generate"),
    (upward, {"cache.py": "def f():\n    from mgpt import scheduler"}, "mgpt/cache.py:2 imports mgpt.scheduler"),
    (upward, {"model.py": "from .widgets import cache_view"}, "mgpt/model.py:1 imports mgpt.widgets"),
    (upward, {"model.py": "from . import course"}, "mgpt/model.py:1 imports mgpt.course"),
    (upward, {"scheduler.py": "import mgpt.cli.kv"}, "mgpt/scheduler.py:1 imports mgpt.cli.kv"),
    (upward, {"widgets/cache.py": "from ..cli import table"}, "mgpt/widgets/cache.py:1 imports mgpt.cli"),
    (circles, {"model.py": "from mgpt.cache import KVCache", "cache.py": "def f():\n    import mgpt.model"}, "cache"),
    (foreign, {"model.py": "import scipy.linalg"}, "mgpt/model.py:1 imports scipy.linalg"),
    (foreign, {"hf.py": "import safetensors"}, "mgpt/hf.py:1 imports safetensors"),
    (foreign, {"hf.py": "def load():\n    import torch"}, "mgpt/hf.py:2 imports torch"),
    (by_name, {"model.py": "import importlib\nimportlib.import_module('scipy')"}, "mgpt/model.py:2"),
    (exported, {"__init__.py": "from mgpt.quantize import quantize"}, "from mgpt.quantize import quantize"),
    (loaded, {"model.py": "import helper", "../helper.py": "import IPython", "../IPython.py": ""}, "IPython"),
])
def test_a_broken_copy_is_found(check, files, found, tmp_path):
    for name, text in {"__init__.py": "", **files}.items():
        path = tmp_path / "mgpt" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text, encoding="utf-8")
    assert found in check(tmp_path)


def test_an_optional_package_may_be_imported_inside_a_function(tmp_path):
    (tmp_path / "mgpt").mkdir()
    (tmp_path / "mgpt" / "hf.py").write_text("def load():\n    import safetensors", encoding="utf-8")
    assert foreign(tmp_path) == []
