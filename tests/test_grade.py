"""`mgpt grade` and `mgpt merge`: the same bytes however they were made, and nothing is lost on the way."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mgpt.cli import main
from mgpt.course.grade import batch, tree
from mgpt.course.grade.grading import Options
from mgpt.course.grade.roster import members
from mgpt.course.grade.layers import LAYERS, Limits
from mgpt.course.grade.write import read_manual, slug
from mgpt.course.grade.zygotes import Zygote
from mgpt.course.questions import stems
from submissions import ALL, BLANK, ROOT, SOLUTION, STEM, all_wrong, answer, blank, cell_of, data, extra, grade_id, solved

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
CLASS = ROOT / "tests" / "data" / "class"
RIGHT = {"ann": ALL, "ben": ALL - 3, "cleo": 0, "dora": ALL - 2, "emil": None}


def grade(*arguments):
    return main(["grade", *map(str, arguments)])


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file()}


def rows(out):
    with open(out / "gradebook.csv", newline="") as lines:
        return {row["submission"]: row for row in csv.DictReader(lines)}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    out = tmp_path_factory.mktemp("graded") / "out"
    assert grade(CLASS, "--out", out, "--jobs", 1) == 1
    return out


def test_the_class_gets_its_points_and_the_refused_member_its_reason(graded):
    found = rows(graded)
    assert {name: int(row["points"]) if row["points"] else None for name, row in found.items()} == RIGHT
    assert found["emil"]["status"] == "refused" and "merge conflict" in found["emil"]["reason"]
    assert all(row["max_points"] == str(ALL) for name, row in found.items() if name != "emil")


def test_a_second_run_gives_the_same_bytes_with_any_number_of_jobs(graded, tmp_path):
    assert grade(CLASS, "--out", tmp_path / "out", "--jobs", 3) == 1
    assert files(tmp_path / "out") == files(graded)


def test_the_class_folder_has_the_answers_that_its_script_writes(tmp_path):
    """Its text may be of an earlier release, as a learner's is."""
    def answers(folder):
        found = {}
        for path in sorted(folder.glob("*.ipynb")):
            text = path.read_text().replace("<<<<<<< HEAD\n", "")
            found[path.stem] = "<<<" in path.read_text(), {
                grade_id(cell): "".join(cell["source"]) for cell in json.loads(text)["cells"]
                if cell["metadata"].get("nbgrader", {}).get("solution")}
        return found

    subprocess.run([sys.executable, ROOT / "tests" / "data" / "make_class.py", tmp_path], check=True)
    assert answers(tmp_path) == answers(CLASS) and set(answers(CLASS)) == set(RIGHT)


def test_a_rerun_grades_nothing_again_and_an_edit_only_what_was_edited(graded, tmp_path, capsys):
    shutil.copytree(CLASS, tmp_path / "class")
    shutil.copytree(graded, tmp_path / "out")
    assert grade(tmp_path / "class", "--out", tmp_path / "out") == 1
    assert "0 graded now, 5 unchanged" in capsys.readouterr().out
    (tmp_path / "class" / "ben.ipynb").write_bytes(data(solved()))
    assert grade(tmp_path / "class", "--out", tmp_path / "out") == 1
    assert "1 graded now, 4 unchanged" in capsys.readouterr().out
    assert rows(tmp_path / "out")["ben"]["points"] == str(ALL)


def test_another_seed_grades_all_again(graded, tmp_path, capsys):
    shutil.copytree(graded, tmp_path / "out")
    assert grade(CLASS, "--out", tmp_path / "out", "--seed", "another") == 1
    assert "5 graded now" in capsys.readouterr().out


def test_a_killed_run_goes_on_to_the_same_bytes(graded, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "mgpt", "grade", str(CLASS), "--out", str(out), "--jobs", "1"]
    for _ in range(2):  # once before the first report, once after one
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        end = time.monotonic() + 60
        while time.monotonic() < end and running.poll() is None and not list(out.glob("instructor/*.json")):
            time.sleep(0.005)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
    (out / "instructor").mkdir(exist_ok=True, parents=True)
    (out / "instructor" / ".ann.json.part").write_text("half a rep")
    (out / "instructor" / "ben.json").write_text('{"submission": "ben", "sta')
    assert grade(CLASS, "--out", out) == 1
    assert files(out) == files(graded)


@pytest.mark.parametrize("shards", [("1/2", "2/2"), ("0/3", "1/3", "2/3")])
def test_merged_shards_are_the_same_bytes_as_one_run(graded, tmp_path, shards):
    for number, shard in enumerate(shards):
        assert grade(CLASS, "--out", tmp_path / str(number), "--shard", shard) in (0, 1)
    parts = [str(tmp_path / str(number)) for number in range(len(shards))]
    assert main(["merge", *parts, "--out", str(tmp_path / "all")]) == 1
    assert files(tmp_path / "all") == files(graded)


def test_an_interrupt_ends_at_once_keeps_what_is_graded_and_the_next_run_goes_on(graded, tmp_path):
    out, folder = tmp_path / "out", Path(shutil.copytree(CLASS, tmp_path / "class"))
    (folder / "zoe.ipynb").write_bytes(data(answer(solved(), q1="while True:\n    pass")))
    command = [sys.executable, "-m", "mgpt", "grade", str(folder), "--out", str(out), "--jobs", "1", "--timeout", "300"]
    running = subprocess.Popen(  # a shell starts what runs in its background with interrupts ignored
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    end = time.monotonic() + 60
    while time.monotonic() < end and not (out / "instructor" / "emil.json").exists():
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    assert "stopped" in running.communicate(timeout=60)[1] and running.returncode == 130
    assert len(list(out.glob("instructor/*.json"))) == 5
    (folder / "zoe.ipynb").unlink()
    assert grade(folder, "--out", out) == 1
    assert files(out) == files(graded)


def test_shards_of_two_seeds_are_not_merged(graded, tmp_path, capsys):
    assert grade(CLASS / "ann.ipynb", "--out", tmp_path / "a", "--seed", "other") == 0
    assert main(["merge", str(tmp_path / "a"), str(graded), "--out", str(tmp_path / "all")]) == 2
    assert "graded differently" in capsys.readouterr().err


def test_a_report_of_a_submission_that_is_gone_goes_too(graded, tmp_path):
    shutil.copytree(graded, tmp_path / "out")
    assert grade(CLASS / "ann.ipynb", "--out", tmp_path / "out") == 0
    assert sorted(path.name for path in (tmp_path / "out" / "learners").iterdir()) == ["ann.html", "ann.json"]


def test_a_failed_regrade_shows_an_error_and_no_old_points(graded, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    shutil.copytree(graded, out)
    monkeypatch.setattr("mgpt.course.grade.grading._judge", lambda *args: 1 / 0)
    assert grade(CLASS, "--out", out, "--seed", "other") == 1
    assert {row["status"] for row in rows(out).values()} == {"error", "refused"}
    assert all(row["points"] == row["total"] == "" for row in rows(out).values())
    monkeypatch.undo()
    assert grade(CLASS, "--out", out, "--seed", "other") == 1  # an error is tried again, the same submission or not
    assert {row["status"] for row in rows(out).values()} == {"graded", "refused"}
    assert grade(CLASS, "--out", out) == 1
    assert files(out) == files(graded)


def test_json_tells_the_counts_and_all_graded_is_status_0(tmp_path, capsys):
    assert grade(CLASS / "ann.ipynb", "--out", tmp_path / "out", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(tmp_path / "out"), "submissions": 1, "graded": 1,
                                                   "refused": 0, "failed": 0}


@pytest.mark.parametrize("arguments, words", [
    (["no such folder"], "not there"), ([CLASS, "--jobs", "0"], "--jobs"), ([CLASS, "--timeout", "0"], "--timeout"),
    ([CLASS, "--timeout", "nan"], "--timeout"), ([CLASS, "--shard", "3/2"], "--shard"),
    ([CLASS, "--shard", "x"], "--shard"), ([CLASS, "--shard", "0/0"], "--shard"),
    ([CLASS, "--require-sandbox", "moat"], "moat"),
    ([CLASS, "--require-sandbox", ","], "named"), ([CLASS, "--memory", "1"], "--memory"),
    ([CLASS, "--manual", "no such file"], "no such file"), ([ROOT / "solutions"], "no notebook"),
])
def test_bad_arguments_are_one_line_and_status_2(tmp_path, capsys, arguments, words):
    assert grade(*arguments, "--out", tmp_path / "out") == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err


def test_in_the_sandbox_every_exercise_gives_its_solution_all_points_and_its_stubs_none(tmp_path):
    for name, make in (("blank", blank), ("solved", solved)):
        for stem in stems():
            path = tmp_path / "class" / name / f"{stem}.ipynb"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data(make(stem)))
    assert grade(tmp_path / "class", "--out", tmp_path / "out") == 0
    for name, row in rows(tmp_path / "out").items():
        wanted = row["max_points"] if name.startswith("solved/") else "0"
        assert row["points"] == wanted and int(row["max_points"]) > 0, row


# ------------------------------------------------------------------ the sandbox
def test_the_layers_are_printed_and_logged_and_the_log_lies_outside(tmp_path, capsys):
    assert grade(CLASS / "ann.ipynb", "--out", tmp_path / "out", "--log", tmp_path / "log.jsonl") == 0
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert "in force: " in events[0]["layers"] and events[0]["layers"] in capsys.readouterr().err
    assert events[1]["submission"] == "ann" and events[1]["cpu"] > 0


def test_a_required_layer_that_is_missing_stops_everything(tmp_path, capsys, monkeypatch):
    start = Zygote.start

    def without_landlock(self):
        start(self)
        self.layers = {**self.layers, "landlock": "this kernel has none"}

    monkeypatch.setattr(Zygote, "start", without_landlock)
    assert grade(CLASS, "--out", tmp_path / "out", "--require-sandbox", "pid,landlock") == 2
    assert "landlock (this kernel has none)" in capsys.readouterr().err
    assert not (tmp_path / "out" / "gradebook.csv").exists()


@pytest.mark.parametrize("open_side", ["hides_files", "hides_network"])
def test_where_nothing_hides_files_or_network_grading_asks(tmp_path, capsys, monkeypatch, open_side):
    start = Zygote.start

    def exposed(self):
        start(self)
        setattr(self, open_side, False)

    monkeypatch.setattr(Zygote, "start", exposed)
    assert grade(CLASS / "ann.ipynb", "--out", tmp_path / "out") == 2
    assert "--allow-unsandboxed" in capsys.readouterr().err
    assert grade(CLASS / "ann.ipynb", "--out", tmp_path / "out", "--allow-unsandboxed") == 0


def test_without_any_sandbox_the_probe_sees_that_files_are_open():
    with Zygote(STEM, False, Limits()) as zygote:
        assert not zygote.hides_files and zygote.layers["landlock"] == "not asked for"
        assert zygote.layers["session"] is None and set(zygote.layers) == set(LAYERS)


AS_NOBODY = """
import os, sys
from mgpt.course.grade import syscalls as s
s.unshare(s.CLONE_NEWNS)
s.mount(None, "/", None, s.MS_REC | s.MS_PRIVATE)
parents = [sys.base_prefix[:i] for i, c in enumerate(sys.base_prefix) if c == "/" and i]
above = [p for p in parents if not os.stat(p).st_mode & 1]
if above:  # this Python lies in a folder of root's: show it, and nothing else of that folder
    python = os.open(sys.base_prefix, os.O_PATH)
    s.mount("tmpfs", above[0], "tmpfs", 0, "mode=755")
    os.makedirs(sys.base_prefix)
    s.mount(f"/proc/self/fd/{python}", sys.base_prefix, None, s.MS_BIND | s.MS_REC)
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
os.chdir("/")
os.execv(sys.executable, [sys.executable, "-m", "mgpt", *sys.argv[1:]])
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_an_unprivileged_user_gets_the_same_points(graded, tmp_path):
    """Namespaces by way of a user namespace, or what else this kernel allows; the uid layer needs root."""
    out, course = tmp_path / "out", Path(shutil.copytree(CLASS, tmp_path / "class"))
    for folder in [tmp_path, *tmp_path.parents][:-1]:
        os.chmod(folder, os.stat(folder).st_mode | 0o11)
    os.chown(tmp_path, 65534, 65534)
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, "grade", str(course), "--out", str(out), "--jobs", "1"],
                          capture_output=True, text=True, cwd=ROOT, env={**os.environ, "HOME": "/"})
    assert done.returncode == 1, done.stderr
    assert "uid (not started as root" in done.stderr
    assert files(out) == files(graded)


NO_NAMESPACES = """
import os, sys
from mgpt.course.grade import syscalls as s
s.prctl(s.PR_SET_NO_NEW_PRIVS, 1)
s.seccomp(s.seccomp_program(1))  # as in a container: unshare and mount are refused
os.execv(sys.executable, [sys.executable, "-m", "mgpt", *sys.argv[1:]])
"""


def test_a_container_without_namespaces_gives_the_same_points_behind_landlock_and_seccomp(graded, tmp_path):
    arguments = ["grade", str(CLASS), "--out", str(tmp_path / "out"), "--jobs", "1", "--require-sandbox",
                 "landlock,seccomp,rlimits,session"]
    done = subprocess.run([sys.executable, "-c", NO_NAMESPACES, *arguments], capture_output=True, text=True, cwd=ROOT)
    if "landlock (" in done.stderr and done.returncode == 2:
        pytest.skip("this kernel has no Landlock")
    assert done.returncode == 1, done.stderr
    assert "pid (unshare: Operation not permitted)" in done.stderr
    assert files(tmp_path / "out") == files(graded)


def test_landlock_and_seccomp_alone_hide_files_and_network(tmp_path):
    """And the sweep after a submission finds its processes without a PID namespace."""
    folder = tmp_path / "class"
    folder.mkdir()
    for name, attempt in (("file", f"open({str(SOLUTION)!r})"), ("net", "__import__('socket').socket()"),
                          ("power", "__import__('os').setgroups([])")):
        body = f"def request_metrics(arrival, token_times):\n    {attempt}\n    raise RuntimeError('reached')"
        (folder / f"{name}.ipynb").write_bytes(data(answer(solved(), q1=body)))
    leaves = f"import subprocess\nsubprocess.Popen(['sleep', '86399.5'], start_new_session=True)\nx = {os.getpid()}"
    (folder / "leaves.ipynb").write_bytes(data(extra(solved(), leaves, 2)))
    arguments = ["grade", str(folder), "--out", str(tmp_path / "out"), "--jobs", "1"]
    done = subprocess.run([sys.executable, "-c", NO_NAMESPACES, *arguments], capture_output=True, text=True, cwd=ROOT)
    if done.returncode == 2:
        pytest.skip("this kernel has no Landlock")
    assert done.returncode == 0, done.stderr
    for name in ("file", "net", "power"):
        report = json.loads((tmp_path / "out" / "learners" / f"{name}.json").read_text())
        assert report["points"] == ALL - 3
        assert "PermissionError" in report["questions"][0]["message"], report["questions"][0]["message"]
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(b"86399.5" in words and b"sleep" in words.split(b"\0")[0] for words in running)


@pytest.mark.parametrize("name", ["mgpt.timing.RequestTrace", "mgpt.memory.kv_cache_bytes", "mgpt.quantize.quantize",
                                  "mgpt.memory.KVShape.from_hf"])
def test_a_function_that_is_asked_for_is_gone_from_the_copy_where_it_is_defined(name):
    module, path = tree._home(name)
    source = (ROOT / Path(*module.split("."))).with_suffix(".py").read_text()
    left = tree.without(source, path, "not here")
    space = {"__name__": module}
    exec(compile(left, module, "exec"), space)
    value = space[path[0]]
    for part in path[1:]:
        value = getattr(value, part)
    with pytest.raises(RuntimeError, match="not here"):
        value()


def test_the_copy_has_no_checks_and_what_is_visible_is_nothing_of_the_checkout(tmp_path):
    copy = tree.build(tmp_path / "course", STEM)
    assert not list(copy.rglob("*checks*")) and (copy / "mgpt" / "memory.py").is_file()
    readable, listable = tree.visible(copy)
    for secret in (SOLUTION, BLANK, ROOT / "mgpt" / "course" / "checks", ROOT / "README.md", ROOT / ".git"):
        assert not any(secret.is_relative_to(path) for path in readable)


def test_an_installed_course_is_carved_out_of_its_folder(tmp_path):
    for name in ("mgpt/memory.py", "numpy/core.py", "deep/mgpt/x.py", "deep/y.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    readable, listable = [], []
    tree._carve(str(tmp_path), [str(tmp_path / "mgpt"), str(tmp_path / "deep" / "mgpt")], readable, listable)
    assert readable == [str(tmp_path / "deep" / "y.py"), str(tmp_path / "numpy")]
    assert listable == [str(tmp_path), str(tmp_path / "deep")]


# ------------------------------------------------------------------ who is there
def test_names_and_learners_come_from_paths(tmp_path):
    for name in ("ann.ipynb", f"bob/{STEM}.ipynb", f"cy/{STEM}/{STEM}.ipynb", "dee/final (2).ipynb", "dee/other.IPYNB",
                 ".ipynb_checkpoints/ann-checkpoint.ipynb", "notes.csv", "eve/.ipynb_checkpoints/x.ipynb",
                 "eve/essay.pdf"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = {member.name: member.learner for member in members([tmp_path])}
    assert found == {"ann": "ann", f"bob/{STEM}": "bob", f"cy/{STEM}/{STEM}": "cy", "dee/final (2)": "dee",
                     "dee/other": "dee", "eve": "eve"}


@pytest.mark.parametrize("make, words", [
    (lambda path: os.mkfifo(path), "no ordinary file"), (lambda path: path.mkdir(), "is a folder"),
    (lambda path: path.symlink_to("nowhere"), "cannot be read"),
])
def test_what_cannot_be_read_is_refused_with_a_reason(tmp_path, make, words):
    make(tmp_path / "a.ipynb")
    [member] = members([tmp_path])
    assert words in member.load().refusal


@pytest.mark.parametrize("name", ["ann", "b-1.x"])
def test_a_plain_name_is_its_own_file_name(name):
    assert slug(name) == name


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "a_b c", "ä", "", "." * 300, "x" * 300, "..", "日本"])
def test_other_names_become_plain_ones_that_stay_apart(name):
    made = slug(name)
    assert made != name and "/" not in made and made.isascii() and len(made) < 100 and not made.startswith(".")
    assert slug(name + "x") != made


# ------------------------------------------------------------------ what people read
class Reads(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, text):
        self.text.append(text)


def page(path):
    reader = Reads()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def test_pages_are_whole_and_ask_nobody_for_anything(graded):
    for path in graded.rglob("*.html"):
        tags = page(path).tags
        names = [tag for tag, _ in tags]
        assert names.count("h1") == names.count("title") - names.count("svg") == names.count("main") == 1
        assert dict(tags)["html"]["lang"] == "en"
        assert not {"script", "img", "iframe", "link", "object"} & set(names)
        assert all(attributes.get("scope") for tag, attributes in tags if tag == "th")


def test_a_learners_page_says_what_was_expected_and_got_and_opens_three_hints(graded):
    text = " ".join(page(graded / "learners" / "ben.html").text)
    assert "expected" in text and "19 / 22" in text and "TPOT divides by n" in text
    assert page(graded / "learners" / "ben.html").tags.count(("details", {})) == 3


def test_the_overview_names_misconceptions_refusals_and_questions(graded):
    text = " ".join(page(graded / "overview.html").text)
    assert "divided by n" in text and "merge conflict" in text and f"{STEM}.q6_why" in text
    summary = json.loads((graded / "summary.json").read_text())
    assert {"question": f"{STEM}.q1", "misconception": "divided by n", "count": 1} in summary["misconceptions"]
    assert summary["questions"][f"{STEM}.q1"] == {"pass": 2, "fail": 1, "not attempted": 1}


def test_the_forms_for_other_systems_give_no_grade_where_there_is_none(graded):
    canvas = list(csv.reader((graded / "canvas.csv").open(newline="")))
    assert canvas[0][-1] == STEM and canvas[1][-1] == str(ALL) and ["emil", "", "", "emil", "", ""] in canvas
    moodle = list(csv.DictReader((graded / "moodle.csv").open(newline="")))
    assert {row["username"]: row["grade"] for row in moodle} == {
        name: "" if points is None else str(points) for name, points in RIGHT.items()}
    scope = json.loads((graded / "gradescope" / "ben.json").read_text())
    assert scope["score"] == ALL - 3 == sum(test["score"] for test in scope["tests"])
    assert sum(test["max_score"] for test in scope["tests"]) == ALL
    assert "score" not in json.loads((graded / "gradescope" / "emil.json").read_text())


def test_cells_that_a_spreadsheet_takes_for_formulas_are_quoted(tmp_path):
    folder = tmp_path / "class"
    folder.mkdir()
    for name in ("=1+1", "+x", "-y", "@z", "plain"):
        (folder / f"{name}.ipynb").write_bytes(b"{}")
    assert grade(folder, "--out", tmp_path / "out") == 1
    for table in ("gradebook.csv", "moodle.csv", "canvas.csv"):
        for line in csv.reader((tmp_path / "out" / table).open(newline="")):
            assert not any(cell[:1] in "=+-@" for cell in line if cell)
    assert "'=1+1" in rows(tmp_path / "out")


def test_html_in_names_and_values_is_text(tmp_path):
    folder = tmp_path / "class"
    folder.mkdir()
    bad = answer(solved(), q2="def cached_positions(p, g):\n    return '<script>alert(1)</script>'")
    (folder / "<b>x.ipynb").write_bytes(data(bad))
    assert grade(folder, "--out", tmp_path / "out") == 0
    for path in (tmp_path / "out").rglob("*.html"):
        assert not {"script", "b"} & {tag for tag, _ in page(path).tags}


# ------------------------------------------------------------------ points given by a person
def with_words(words):
    notebook = all_wrong()
    cell_of(notebook, "q1_why-free")["source"] = words
    return data(notebook)


def test_manual_points_survive_a_regrade_and_are_flagged_when_the_answer_changed(tmp_path, capsys):
    folder, out = tmp_path / "class", tmp_path / "out"
    folder.mkdir()
    (folder / "ann.ipynb").write_bytes(with_words("TPOT leaves the wait out."))
    assert grade(folder, "--out", out) == 0
    todo, *others = csv.DictReader((out / "manual_todo.csv").open(newline=""))
    assert (todo["submission"], todo["question"], todo["points"]) == ("ann", f"{STEM}.q1_why", "")
    (out / "manual.csv").write_text("submission,question,points,comment,answer_sha256\n"
                                    f"ann,{todo['question']},0.5,half a reason,{todo['answer_sha256']}\n")
    assert grade(folder, "--out", out, "--seed", "again") == 0
    report = json.loads((out / "learners" / "ann.json").read_text())
    assert report["points"] == 0 and report["total"] == 0.5
    assert report["manual"] == [{"question": f"{STEM}.q1_why", "points": 0.5, "comment": "half a reason",
                                 "changed": False}]
    left = list(csv.DictReader((out / "manual_todo.csv").open(newline="")))
    assert left == others
    (folder / "ann.ipynb").write_bytes(with_words("Something else."))
    assert grade(folder, "--out", out, "--seed", "again") == 0
    report = json.loads((out / "learners" / "ann.json").read_text())
    assert report["total"] == 0.5 and report["manual"][0]["changed"] is True
    assert "changed" in " ".join(page(out / "learners" / "ann.html").text)
    again = next(csv.DictReader((out / "manual_todo.csv").open(newline="")))
    assert again["question"] == todo["question"] and again["answer_sha256"] != todo["answer_sha256"]
    assert (out / "manual.csv").read_text().count("half a reason") == 1


@pytest.mark.parametrize("text, words", [
    ("a,b\n", "first line"), ("submission,question,points\na,q,x\n", "line 2"),
    ("submission,question,points\na,q,-1\n", "line 2"), ("submission,question,points\na,q,nan\n", "line 2"),
    ("submission,question,points\na,q,1\na,q,2\n", "second mark"),
])
def test_a_bad_file_of_marks_is_refused_by_line(tmp_path, text, words):
    path = tmp_path / "manual.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_manual(path)


def test_nothing_of_a_seed_is_in_what_a_learner_gets(graded):
    for path in (graded / "learners").iterdir():
        assert "full_message" not in path.read_text() and '"key"' not in path.read_text()
    assert Options(seed="a").seed_of("x") == "a" and batch.default_jobs() >= 1
