"""Grading on a Dask cluster over loopback: the same bytes, also when a worker dies on the way."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mgpt.cli import main
from submissions import ROOT, WRONG, answer, data, solved
from test_grade import CLASS, files

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")


@contextlib.contextmanager
def process(*arguments):
    env = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": "1.0"}
    command = [sys.executable, "-m", f"distributed.cli.{arguments[0]}", *map(str, arguments[1:])]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env,
                               start_new_session=True)
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@pytest.fixture
def cluster(tmp_path):
    """(address, the two worker processes)"""
    told = tmp_path / "scheduler.json"
    with process("dask_scheduler", "--host", "127.0.0.1", "--port", 0, "--no-dashboard", "--no-show",
                 "--scheduler-file", told):
        wait(told.exists)
        address = json.loads(told.read_text())["address"]
        options = (address, "--nthreads", 1, "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
        with process("dask_worker", *options) as one, process("dask_worker", *options) as two:
            with distributed.Client(address, set_as_default=False) as client:
                client.wait_for_workers(2, timeout=60)
            yield address, (one, two)


def wait(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_cluster_gives_the_same_bytes_and_a_worker_that_dies_loses_nothing(cluster, tmp_path):
    address, (one, two) = cluster
    folder, here, there = tmp_path / "class", tmp_path / "here", tmp_path / "there"
    folder.mkdir()
    for number in range(12):
        slow = f"def cached_positions(p, g):\n    import time\n    time.sleep(0.03)\n    return p + g - {number % 2}"
        notebook = answer(solved(), q1=WRONG["q1"], q2=slow)
        (folder / f"learner{number}.ipynb").write_bytes(data(notebook))
    (folder / "refused.ipynb").write_bytes(b"")
    assert main(["grade", str(folder), "--out", str(here)]) == 1
    command = [sys.executable, "-m", "mgpt", "grade", str(folder), "--out", str(there), "--scheduler", address]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait(lambda: running.poll() is not None or len(list(there.glob("instructor/*.json"))) >= 2)
    done = len(list(there.glob("instructor/*.json")))
    one.kill()
    assert running.wait(timeout=120) == 1, running.stderr.read()
    assert done < 13 and two.poll() is None
    assert files(there) == files(here)


def test_an_address_where_nobody_answers_is_one_line_and_status_2(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("distributed.Client", refused)
    assert main(["grade", str(CLASS), "--out", str(tmp_path / "out"), "--scheduler", "tcp://127.0.0.1:9"]) == 2
    assert "no Dask scheduler answers" in capsys.readouterr().err


def refused(*arguments, **options):
    raise OSError("nobody")
