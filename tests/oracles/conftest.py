"""These tests compare with other tools, which have an environment of their own: `make oracles`."""

import importlib.util
import sys
from pathlib import Path

TOOLS = ("torch", "transformers", "onnx", "onnxruntime", "gguf")
missing = [name for name in TOOLS if importlib.util.find_spec(name) is None]
collect_ignore_glob = ["test_*.py"] if missing else []  # then `pytest tests/oracles` alone ends with "no tests"

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))


def pytest_report_header():
    return f"oracles: not installed: {', '.join(missing)}" if missing else "oracles: all tools installed"
