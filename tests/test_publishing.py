"""What publishes the site and opens it elsewhere says the same as the course itself: the Pages workflow, Binder's files."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/pages.yml").read_text())
STEPS = WORKFLOW["jobs"]["site"]["steps"]
# Majors that go together: deploy-pages@v4 takes the artifacts of upload-pages-artifact@v3.
ACTIONS = {"actions/checkout": "v4", "actions/setup-python": "v5", "actions/configure-pages": "v5", "actions/cache": "v4",
           "actions/upload-artifact": "v4", "actions/upload-pages-artifact": "v3", "actions/deploy-pages": "v4"}
INPUTS = {"actions/setup-python": {"python-version"}, "actions/cache": {"path", "key"},
          "actions/upload-artifact": {"name", "path", "if-no-files-found"}, "actions/upload-pages-artifact": {"path"}}


def test_the_workflow_has_only_keys_that_workflows_know():
    assert set(WORKFLOW) == {"name", True, "permissions", "concurrency", "jobs"}  # YAML reads `on` as true
    assert WORKFLOW[True] == {"push": {"branches": ["main"]}, "workflow_dispatch": None}
    assert set(WORKFLOW["jobs"]["site"]) == {"runs-on", "environment", "steps"}
    for step in STEPS:
        assert set(step) <= {"id", "if", "uses", "with", "run", "env"} and ("uses" in step) != ("run" in step)


def test_actions_are_github_s_own_in_versions_that_go_together_and_get_their_inputs():
    used = [step["uses"].split("@") for step in STEPS if "uses" in step]
    assert dict(used) == ACTIONS
    for step in STEPS:
        if "uses" in step:
            assert set(step.get("with", {})) <= INPUTS.get(step["uses"].split("@")[0], set())


def test_the_workflow_may_publish_and_nothing_else_and_a_deployment_is_not_cut_off():
    assert WORKFLOW["permissions"] == {"contents": "read", "pages": "write", "id-token": "write"}
    assert WORKFLOW["concurrency"] == {"group": "pages", "cancel-in-progress": False}
    assert WORKFLOW["jobs"]["site"]["environment"]["name"] == "github-pages"


def test_what_is_published_was_tested_and_knows_its_address():
    """The site is built once: each command sees the same settings, and nothing changes it before its upload."""
    names = [step.get("run") or step["uses"].split("@")[0] for step in STEPS]
    order = ["actions/checkout", "actions/setup-python", "actions/configure-pages", "make test", "make test-browser",
             "actions/upload-pages-artifact", "actions/deploy-pages"]
    assert [name for name in names if name in order] == order
    settings = {"SITE_URL": "${{ steps.pages.outputs.base_url }}",
                "SITE_REPOSITORY": "${{ github.server_url }}/${{ github.repository }}"}
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    for step in STEPS:
        if "run" in step:
            assert step["env"] == settings and step["run"].split()[1] in targets
    assert {step["id"] for step in STEPS if "id" in step} == {"pages", "publish"}
    upload = next(step for step in STEPS if step.get("uses", "").startswith("actions/upload-pages-artifact"))
    assert upload["with"]["path"] == "_build/html" and "if" not in upload


def test_the_workflow_s_cache_is_named_for_what_it_holds():
    found = next(step for step in STEPS if step.get("uses", "").startswith("actions/cache"))["with"]
    files = re.findall(r"'([^']+)'", found["key"])
    assert found["path"] == "_build/cache" and files and all((ROOT / name).is_file() for name in files)


def test_workflow_and_binder_run_a_python_that_the_course_allows():
    lowest = re.search(r'requires-python = ">=3\.(\d+)"', (ROOT / "pyproject.toml").read_text())[1]
    setup = next(step for step in STEPS if step.get("uses", "").startswith("actions/setup-python"))
    binder = re.fullmatch(r"python-3\.(\d+)\n", (ROOT / ".binder/runtime.txt").read_text())[1]
    assert setup["with"]["python-version"] == f"3.{binder}" and int(binder) >= int(lowest)


def test_binder_installs_the_lock_and_then_the_course_alone():
    lines = [line for line in (ROOT / ".binder/requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines == ["-r ../requirements.lock"] and (ROOT / ".binder" / lines[0][3:]).resolve() == ROOT / "requirements.lock"
    assert "--no-deps --no-build-isolation -e ." in (ROOT / ".binder/postBuild").read_text()
    locked = (ROOT / "requirements.lock").read_text()
    assert all(re.search(rf"^{name}==", locked, flags=re.M) for name in ("jupyterlab", "jupytext", "setuptools", "numpy"))


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_binder_s_scripts_are_executable_and_are_shell(name):
    path = ROOT / ".binder" / name
    assert path.stat().st_mode & 0o111
    assert subprocess.run(["sh", "-n", str(path)]).returncode == 0


def test_binder_starts_with_the_settings_of_make_lab():
    """A chapter's .md opens as a notebook there too, which Binder's links rely on."""
    told = subprocess.run([ROOT / ".binder/start", shutil.which("sh"), "-c", "echo $JUPYTER_CONFIG_DIR $IPYTHONDIR"], cwd=ROOT,
                          capture_output=True, text=True).stdout.split()
    assert told == [str(ROOT / ".jupyter"), str(ROOT / ".jupyter/ipython")]
    assert "JUPYTER_CONFIG_DIR=.jupyter" in (ROOT / "Makefile").read_text()
    assert (ROOT / ".jupyter/labconfig/default_setting_overrides.json").is_file()
