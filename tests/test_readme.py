"""The README's tree is the folders' tree, and its commands exist."""

import importlib.util
import re
from pathlib import Path

import pytest

from mgpt.cli import COMMANDS, load

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def tree_tool():
    spec = importlib.util.spec_from_file_location("tree", ROOT / "tools" / "tree.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tree_of_the_readme_is_the_folders_tree():
    assert tree_tool().readme_with_tree(README) == README, "run `python tools/tree.py --write`"


def test_a_file_more_or_less_and_a_file_without_purpose_are_noticed(tmp_path, monkeypatch):
    tool = tree_tool()
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    (tmp_path / "Makefile").write_text("")
    (tmp_path / "mgpt").mkdir()
    (tmp_path / "mgpt" / "cash.py").write_text('"""Money in blocks.  And more."""')
    assert [line.split()[0] for line in tool.lines(tmp_path)] == ["Makefile", "mgpt/", "cash.py"]
    assert list(tool.lines(tmp_path))[-1].endswith(" Money in blocks")
    (tmp_path / "mystery.bin").write_text("")
    with pytest.raises(ValueError, match="mystery.bin has no purpose"):
        list(tool.lines(tmp_path))


def test_the_commands_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", README, flags=re.M):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target
    named = set(re.findall(r"bin/mgpt (\w+)", README))
    assert named and all(name in COMMANDS and load(name) for name in named)
