"""The recipes of the instructor's page are commands that exist: scripts parse, manifests load, shards cover all."""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml

from mgpt.cli import grade, load, main, merge
from submissions import ROOT
from test_grade import CLASS, files

PAGE = (ROOT / "book" / "instructor.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.M | re.S)


def commands():
    """The arguments of every `mgpt` command line of the page."""
    texts = [*blocks("bash"), *(text for text in blocks("yaml")), *re.findall(r"`(python -m mgpt [^`]+)`", PAGE)]
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            found = re.search(r"python3? -m mgpt (.*)", line)
            if found:
                yield shlex.split(found[1].replace("`", ""), comments=True)


@pytest.mark.parametrize("script", blocks("bash"))
def test_a_script_is_a_script(script):
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True).stderr == ""


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_a_command_line_has_only_options_that_exist(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    load(words[0]).arguments(parser)
    parser.parse_args([word for word in words[1:] if word != "..."])


def test_the_page_has_the_recipes():
    assert len(list(commands())) >= 8 and grade.HELP and merge.HELP
    kinds = [yaml.safe_load(text) for text in blocks("yaml")]
    job = next(kind for kind in kinds if kind.get("kind") == "Job")
    assert job["spec"]["completionMode"] == "Indexed" and len(kinds) == 2


def test_the_indexed_job_grades_everybody_once(tmp_path):
    """Its own command, with three completions: indices 0, 1, 2."""
    job = next(kind for kind in map(yaml.safe_load, blocks("yaml")) if kind.get("kind") == "Job")
    [container] = job["spec"]["template"]["spec"]["containers"]
    total = str(job["spec"]["completions"])
    script = container["args"][0].replace("/course", str(tmp_path)).replace(f"INDEX/{total}", "INDEX/3")
    script = script.replace("python -m", "$PYTHON -m").replace("landlock,seccomp,rlimits", "rlimits")
    shutil.copytree(CLASS, tmp_path / "submitted")
    for index in range(3):
        environment = {**os.environ, "JOB_COMPLETION_INDEX": str(index), "SECRET": "grade", "PYTHON": sys.executable}
        done = subprocess.run([*container["command"], script], cwd=ROOT, env=environment, capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stderr
    shards = sorted(str(path) for path in (tmp_path / "shards").iterdir())
    assert main(["merge", *shards, "--out", str(tmp_path / "all")]) == 1
    assert main(["grade", str(CLASS), "--out", str(tmp_path / "once")]) == 1
    assert files(tmp_path / "all") == files(tmp_path / "once")


def test_gradescopes_script_leaves_the_form_it_reads(tmp_path):
    script = next(text for text in blocks("bash") if "run_autograder" in text or "/autograder" in text)
    (tmp_path / "results").mkdir()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "seed").write_text("grade\n")
    (tmp_path / "submission").mkdir()
    shutil.copy(CLASS / "ben.ipynb", tmp_path / "submission" / "30_8_exercises.ipynb")
    script = script.replace("/autograder", str(tmp_path)).replace("python3 -m", "$PYTHON -m")
    subprocess.run(["bash", "-c", script], check=True, capture_output=True,
                   env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)})
    form = json.loads((tmp_path / "results" / "results.json").read_text())
    assert form["score"] == 19 and len(form["tests"]) == 12
