"""An nbgrader course folder from the same checks: `python -m mgpt.course.grade.nbgrader_course FOLDER [--seed S]`.

source/STEM/STEM.ipynb is the instructor's version: the marked solution, and hidden tests with numbers drawn from the
seed, which `nbgrader generate_assignment` takes out and `nbgrader autograde` puts back.
"""

import argparse
import json
from pathlib import Path

from mgpt.course.questions import questions
from mgpt.course.release import released, root

CONFIG = '''"""Written by `python -m mgpt.course.grade.nbgrader_course`; each setting avoids a loss."""

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "mgpt"
c.CourseDirectory.root = {root!r}
# An endless loop is interrupted and costs its own cell.
c.Execute.timeout = 30
c.Execute.interrupt_on_timeout = True
# A cell that floods its output does not end the notebook.
c.Execute.raise_on_iopub_timeout = False
c.LimitOutput.max_lines = 1000
# A learner whom nobody has entered is graded all the same.
c.Autograde.create_student = True
# Feedback of an earlier run is replaced.
c.GenerateFeedback.force = True
# The same stub as in the released exercises.
c.ClearSolutions.code_stub = {{"python": 'raise NotImplementedError("replace this line by your answer")'}}
'''


def main(argv=None):
    parser = argparse.ArgumentParser(prog="mgpt.course.grade.nbgrader_course", description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--seed", default="grade", help="what the hidden numbers are drawn from; keep it secret")
    args = parser.parse_args(argv)
    for path in write_course(args.folder, args.seed):
        print(f"wrote {path}")


def write_course(folder, seed):
    """Write the course folder; give back the paths written."""
    folder, written = Path(folder).resolve(), []
    for path, text in released().items():
        target = folder / "source" / path.stem / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source_notebook(path.stem, text, seed), encoding="utf-8")
        written.append(target)
    config = folder / "nbgrader_config.py"
    config.write_text(CONFIG.format(root=str(folder)), encoding="utf-8")
    return [*written, config]


def source_notebook(stem, text, seed):
    """The instructor's notebook of one exercise: solutions in their marks, hidden tests in the test cells."""
    import jupytext

    notebook = json.loads(text)
    known = {question.grade_id: question for question in questions(stem).values()}
    marked = {cell.metadata["nbgrader"]["grade_id"]: cell.source
              for cell in jupytext.read(root() / "solutions" / f"{stem}.md").cells if cell.metadata.get("nbgrader")}
    for cell in notebook["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            cell["source"] = marked[grade_id]
        elif grade_id.removesuffix("-test") in known:
            question = known[grade_id.removesuffix("-test")]
            cell["source"] = "".join(cell["source"]) + hidden_tests(question, seed)
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def hidden_tests(question, seed):
    """The fresh cases of a seed as assertions between nbgrader's marks; nothing for a choice, nor where
    many answers are right: there the check itself, which stands above, judges fresh cases too."""
    cases = question.fresh_cases(seed)
    if not cases or question.verdict is not None:
        return ""
    options = f", tolerance={question.tolerance!r}, whole={question.whole!r}"
    lines = [f"assert agrees({question.asks_for}(*{case.args!r}), {case.expected!r}{options})" for case in cases]
    return "\n".join(["", "### BEGIN HIDDEN TESTS", *lines, "### END HIDDEN TESTS"])


if __name__ == "__main__":
    main()
