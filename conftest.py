"""Every notebook of the course is a test: book/ strictly, solutions/ and exercises/ without comparing outputs.

A chapter's stored outputs are those that the site shows (the build keeps them in _build/jupyter_execute): each cell
runs again, its assertions hold, and it must print the same.  Solutions run whole; exercises run blank, where only the
test cells, which are tagged, may raise.
"""

from pathlib import Path

import jupytext
import nbformat
import pytest
from nbval.plugin import IPyNbFile

ROOT = Path(__file__).parent


def pytest_configure(config):
    config.option.nbval_current_env = True  # the kernel is this Python, whatever kernels are installed


def pytest_collect_file(file_path, parent):
    folder = file_path.relative_to(ROOT).parts[0] if file_path.is_relative_to(ROOT) else ""
    if folder == "exercises" and file_path.suffix == ".ipynb":
        return _notebook(parent, file_path, strict=False)
    if folder in ("book", "solutions") and file_path.suffix == ".md" and "{code-cell}" in file_path.read_text():
        make = executed_chapter if folder == "book" else converted_solution
        return _notebook(parent, make(file_path), strict=folder == "book")


def _notebook(parent, path, strict):
    collector = IPyNbFile.from_parent(parent, path=path, name=str(path.relative_to(ROOT)))
    collector.compare_outputs = strict
    return collector


def executed_chapter(source):
    """The notebook that the last build ran.  A usage error where it is missing or of another text."""
    executed = ROOT / "_build" / "jupyter_execute" / source.relative_to(ROOT).with_suffix(".ipynb")
    notebook = nbformat.read(executed, 4) if executed.exists() else None
    if notebook is None or _code(notebook) != _code(jupytext.read(source)):
        raise pytest.UsageError(f"{source.relative_to(ROOT)} has not been built as it is: run `make book` first")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _in_one_piece(cell.outputs)
    return _kept(notebook, source)


def _in_one_piece(outputs):
    """Outputs with all text of a stream in one, as nbval compares it; on a busy machine a cell's text comes in pieces.

    The build's nb_merge_streams has put all of it into the first piece, and leaves the others behind it.
    """
    pieces, kept = {}, []
    for output in outputs:
        if output.output_type != "stream":
            kept.append(output)
        elif output.name in pieces:
            pieces[output.name].append(output.text)
        else:
            pieces[output.name] = []
            kept.append(output)
    for output in kept:
        rest = "".join(pieces.get(output.get("name"), ()))
        if output.output_type == "stream" and not output.text.endswith(rest):
            output.text += rest
    return kept


def converted_solution(source):
    """The solution as .ipynb, which is what nbval reads."""
    return _kept(jupytext.read(source), source)


def _kept(notebook, source):
    target = ROOT / "_build" / "nbval" / source.relative_to(ROOT).with_suffix(".ipynb")
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, target)
    return target


def _code(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]
