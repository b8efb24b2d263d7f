"""These tests compare with other tools, which have an environment of their own: `make oracles`."""

import importlib.util
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two threads of torch wait for each other on a busy machine
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

TOOLS = ("torch", "transformers", "onnx", "onnxruntime", "gguf")
missing = [name for name in TOOLS if importlib.util.find_spec(name) is None]
collect_ignore_glob = ["test_*.py"] if missing else []  # `pytest tests/oracles` then runs no test

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))


def pytest_report_header():
    return f"oracles: not installed: {', '.join(missing)}" if missing else "oracles: all tools installed"
