"""Submissions of 30.8 as a learner might hand them in: the released notebook with answers put into it."""

import functools
import json
from pathlib import Path

import jupytext

ROOT = Path(__file__).parents[1]
STEM = "30_8_exercises"
BLANK = ROOT / "exercises" / f"{STEM}.ipynb"
SOLUTION = ROOT / "solutions" / f"{STEM}.md"
POINTS = {"q1": 3, "q1_why": 1, "q2": 2, "q2_why": 1, "q3": 3, "q3_why": 1, "q4": 3, "q4_why": 1, "q5": 2, "q5_why": 1,
          "q6": 3, "q6_why": 1}
ALL = sum(POINTS.values())

WRONG = {  # each looks like an answer and is none; q2's passes the second visible case
    "q1": "def request_metrics(arrival, token_times):\n    n = len(token_times)\n"
          "    first, last = token_times[0], token_times[-1]\n"
          "    gaps = [b - a for a, b in zip(token_times, token_times[1:])]\n"
          "    return {'ttft': first - arrival, 'gaps': gaps, 'tpot': (last - first) / n, 'e2e': last - arrival}",
    "q2": "def cached_positions(prompt_len, outputs_chosen):\n    return prompt_len + 1",
    "q3": "def kv_report(n_layer, n_head, n_kv_head, head_dim, lengths, bytes_per_value):\n"
          "    each = [2 * n_layer * n * n_head * head_dim * bytes_per_value for n in lengths]\n"
          "    return {'per_request': each, 'total': sum(each), 'total_mib': sum(each) / 2**20}",
    "q4": "import math\n\ndef quantize_value(x, scale):\n    code = math.floor(x / scale + 0.5)\n"
          "    return {'code': code, 'restored': code * scale, 'error': code * scale - x}",
    "q5": "def honest_report(arrival, token_times):\n    return {}",
    "q6": "def bytes_after(*args):\n    return {}"}


def grade_id(cell):
    return cell["metadata"].get("nbgrader", {}).get("grade_id", "")


def blank(stem=STEM):
    return json.loads((BLANK.parent / f"{stem}.ipynb").read_text(encoding="utf-8"))


def solved(stem=STEM):
    """The exercise with all right answers."""
    return json.loads(solved_text(stem))


@functools.cache
def solved_text(stem):
    notebook = blank(stem)
    cells = jupytext.read(SOLUTION.parent / f"{stem}.md").cells
    answers = {cell.metadata["nbgrader"]["grade_id"]: cell.source for cell in cells
               if cell.metadata.get("nbgrader", {}).get("solution")}
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            cell["source"] = answers[grade_id(cell)]
    return json.dumps(notebook)


def cell_of(notebook, name):
    """The cell of question `name` ("q3"), or "q3-test"."""
    return next(cell for cell in notebook["cells"] if grade_id(cell) == f"{STEM}-{name}")


def answer(notebook, **sources):
    for name, source in sources.items():
        cell_of(notebook, name)["source"] = source
    return notebook


def before(notebook, name, lines):
    cell = cell_of(notebook, name)
    return answer(notebook, **{name: lines + "\n" + "".join(cell["source"])})


def extra(notebook, source, index=None):
    """Put a cell of the learner's at a place (None: at the end)."""
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source}
    notebook["cells"].insert(len(notebook["cells"]) if index is None else index, cell)
    return notebook


def all_wrong(notebook=None):
    notebook = answer(notebook or solved(), **WRONG)
    return answer(notebook, **{name: f'{name} = "z"' for name in POINTS if name.endswith("_why")})


def data(notebook):
    return notebook if isinstance(notebook, bytes) else json.dumps(notebook).encode()


def functions(notebook, body):
    """Every function asked for gets this body."""
    for name in WRONG:
        lines = "".join(cell_of(solved(), name)["source"]).splitlines()
        first = next(line for line in lines if line.startswith("def "))
        answer(notebook, **{name: f"{first}\n    {body}"})
    return notebook
