"""Measures `mgpt grade`: CPU and wall a submission, peak memory, beside nbclient and nbgrader in one run.

    python tools/bench_grade.py [--counts 20,100,1000] [--hostile 10] [--json FILE]

Each class is 30_8 with ordinary answers, told apart by a comment so that nothing is kept from another; of a class of a
thousand ten are hostile.  CPU counts every process: the grader's, the warm processes' and their children's.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from submissions import ALL, STEM, WRONG, all_wrong, answer, blank, data, extra, functions, solved  # noqa: E402

OTHERS = 5  # submissions given to nbclient and to nbgrader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--counts", default="20,100,1000")
    parser.add_argument("--hostile", type=int, default=10, help="hostile submissions in a class of 1,000 or more")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    counts, lines = [int(number) for number in args.counts.split(",")], []
    for count in counts:
        lines.append(graded(count, args.hostile if count >= 1000 else 0))
        print(show(lines[-1]), flush=True)
    for measure in (nbclient, nbgrader):
        lines.append(measure())
        print(show(lines[-1]), flush=True)
    ours = next(line for line in lines if line["submissions"] >= min(100, max(counts)))
    for line in lines[len(counts):]:
        times = line["cpu_ms"] / ours["cpu_ms"]
        print(f"{line['what']}: {times:.0f} times the CPU of mgpt grade at {ours['submissions']}")
    if args.json:
        Path(args.json).write_text(json.dumps(lines, indent=1) + "\n")


def show(line):
    extra_words = f"  {line['words']}" if line.get("words") else ""
    return (f"{line['what']:<12} {line['submissions']:>5} submissions  {line['cpu_ms']:>7.1f} ms CPU  "
            f"{line['wall_ms']:>7.1f} ms wall each  peak {line['peak_mib']:.0f} MiB{extra_words}")


def measured(what, count, command, **options):
    """Run a command; its CPU (all descendants), wall time and largest process."""
    began = time.perf_counter()
    reading, writing = os.pipe()
    # In a process of its own, whose RUSAGE_CHILDREN is this command's alone.
    code = ("import json, os, resource, subprocess, sys\n"
            "done = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)\n"
            "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
            "os.write(int(sys.argv[1]), json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss, done.returncode,"
            " done.stderr[-500:]]).encode())")
    subprocess.run([sys.executable, "-c", code, str(writing), *map(str, command)], pass_fds=[writing], check=True,
                   **options)
    wall = time.perf_counter() - began
    os.close(writing)
    with os.fdopen(reading) as pipe:
        cpu, peak, status, words = json.loads(pipe.read())
    if status not in (0, 1):
        raise SystemExit(f"{what}: exit status {status}: {words}")
    return {"what": what, "submissions": count, "cpu_ms": 1000 * cpu / count, "wall_ms": 1000 * wall / count,
            "peak_mib": peak / 1024}


def ordinary(number):
    """(notebook, right points) of one of five kinds."""
    kinds = ((solved(), ALL), (answer(solved(), q1=WRONG["q1"]), ALL - 3), (blank(), 0), (all_wrong(), 0),
             (answer(solved(), q2="def cached_positions(p, g):\n    return {1: 10, 2: 11}.get(g, 10)"), ALL - 2))
    notebook, points = kinds[number % len(kinds)]
    return extra(notebook, f"# learner {number}"), points


HOSTILE = (
    (lambda: answer(solved(), q1="while True:\n    pass"), ALL - 3),
    (lambda: answer(solved(), q1="import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"), ALL - 3),
    (lambda: answer(solved(), q5="import os\ndef honest_report(a, t):\n    os._exit(0)"), ALL - 2),
    (lambda: answer(solved(), q1="hold = []\ndef request_metrics(a, t):\n"
                                 "    while True: hold.append(bytearray(2**28))"), ALL - 3),
    (lambda: extra(solved(), "import os\nos.fork()", 2), ALL),
    (lambda: extra(all_wrong(), "get_ipython().input_transformers_cleanup.append(lambda lines: [])", 1), 0),
    (lambda: functions(solved(), "import os; os._exit(0)"), ALL - sum((3, 2, 3, 3, 2, 3))),
    (lambda: answer(solved(), q2="def cached_positions(p, g):\n    return 'x' * 10**7"), ALL - 2),
    (lambda: answer(solved(), q1="import sys\nsys.setrecursionlimit(10**9)\ndef request_metrics(a, t):\n"
                                 "    f = lambda: sorted([0, 1], key=lambda _: f())\n    return f()"), ALL - 3),
    (lambda: extra(solved(), "import os\nfor _ in range(64):\n    try:\n        if os.fork() == 0:\n"
                             "            os.pause()\n    except (OSError, AttributeError): pass", 2), ALL))


def graded(count, hostile):
    with tempfile.TemporaryDirectory() as folder:
        course, right = Path(folder) / "class", {}
        course.mkdir()
        for number in range(count):
            bad = hostile and number % max(1, count // hostile) == 1
            if bad:
                make, points = HOSTILE[number // max(1, count // hostile) % len(HOSTILE)]
                notebook = extra(make(), f"# learner {number}")
            else:
                notebook, points = ordinary(number)
            (course / f"learner{number:04}.ipynb").write_bytes(data(notebook))
            right[f"learner{number:04}"] = points
        out = Path(folder) / "out"
        log = Path(folder) / "log"
        layers = "all" if os.getuid() == 0 else "session,rlimits,pid,net,ipc,mount,landlock,seccomp"
        line = measured("mgpt grade", count, [sys.executable, "-m", "mgpt", "grade", course, "--out", out, "--log", log,
                                              "--require-sandbox", layers], cwd=ROOT)
        line["peak_mib"] = json.loads(log.read_text().splitlines()[-1])["peak_mib"]  # of the grader itself
        found = {path.stem: json.loads(path.read_text())["points"] for path in (out / "learners").glob("*.json")}
        wrong = {name: (found.get(name), points) for name, points in right.items() if found.get(name) != points}
        line["words"] = (f"{count - len(wrong)} right scores" + (f", {hostile} hostile among them" if hostile else "")
                         + (f"; NOT RIGHT: {wrong}" if wrong else ""))
        return line


def nbclient():
    """A kernel a notebook, as nbconvert and nbclient have it; nothing is graded."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number in range(OTHERS):
            paths.append(Path(folder) / f"{number}.ipynb")
            paths[-1].write_bytes(data(ordinary(number)[0]))
        code = ("import sys, nbformat\nfrom nbclient import NotebookClient\nfor path in sys.argv[1:]:\n"
                "    NotebookClient(nbformat.read(path, 4), allow_errors=True).execute()")
        return measured("nbclient", OTHERS, [sys.executable, "-c", code, *paths], cwd=folder)


def nbgrader():
    """`nbgrader autograde` on the same kinds of submissions."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        subprocess.run([sys.executable, "-m", "mgpt.course.grade.nbgrader_course", folder], check=True, cwd=ROOT,
                       stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-m", "nbgrader", "generate_assignment", STEM], check=True, cwd=folder,
                       env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for number in range(OTHERS):
            place = Path(folder) / "submitted" / f"learner{number}" / STEM
            place.mkdir(parents=True)
            (place / f"{STEM}.ipynb").write_bytes(data(ordinary(number)[0]))
        return measured("nbgrader", OTHERS, [sys.executable, "-m", "nbgrader", "autograde", STEM], cwd=folder,
                        env=environment)


if __name__ == "__main__":
    main()
