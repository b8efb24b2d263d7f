"""The grader's end of a zygote: start it, fork children, stop them, start it anew when it is lost."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mgpt.course.grade import tree
from mgpt.course.workbench import FOLDER, NurseryLost

START_SECONDS, STOP_SECONDS = 120, 30


@dataclass
class Zygote:
    """One warm process for one exercise (`stem`; None: nothing withheld).  A context manager.

    layers: name -> None where in force, else why not.  hides_files, hides_network: what a probe child found.
    spent: seconds of CPU used by children and the warm process since somebody set it to 0.
    """

    stem: str | None
    sandbox: bool
    limits: object
    layers: dict = field(default_factory=dict)
    hides_files: bool = False
    hides_network: bool = False
    spent: float = 0.0
    _own_cpu: float = 0.0
    _abandoned: bool = False
    _process: subprocess.Popen | None = None
    _control: socket.socket | None = None

    def __enter__(self):
        self._folder = tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-")
        os.chmod(self._folder, 0o711)
        self.tree = tree.build(Path(self._folder) / "course", self.stem)
        self.places = (self._folder,)
        self.start()
        return self

    def __exit__(self, *_):
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self):
        """A fresh warm process.  NurseryLost with its last words where it cannot start."""
        box, empty = Path(self._folder) / "box", Path(self._folder) / "root"
        for place in (box, empty):
            place.mkdir(exist_ok=True)
        readable, listable = tree.visible(self.tree)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(START_SECONDS)
        self._control = ours
        with theirs, tempfile.TemporaryFile() as words:
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-P", "-m", "mgpt.course.grade.zygote", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=words,
                env=environment(self.tree), cwd="/", start_new_session=True)
            theirs.close()
            told = {"box": str(box), "empty": str(empty), "readable": readable, "listable": listable,
                    "hidden": tree.hidden(), "limits": asdict(self.limits), "sandbox": self.sandbox}
            try:
                found = self._ask(told)
            except NurseryLost as lost:
                self.close()
                words.seek(0)
                last = words.read().decode(errors="replace").strip().splitlines()[-1:]
                raise NurseryLost(f"{lost}: {' '.join(last)}") from None
        self._own_cpu = found["own_cpu"]
        self.layers, self.hides_files = found["layers"], found["hides_files"]
        self.hides_network = found["hides_network"]

    def fork(self):
        """A socket to a new confined child, in which nothing of the last one is left."""
        if self._abandoned:
            raise NurseryLost("the run was stopped")
        if self._process is None:
            self.start()
        ours, theirs = socket.socketpair()
        with theirs:
            self._ask({"fork": True}, theirs.fileno())
        return ours

    def stop(self):
        """Kill the child and all that it started."""
        if self._process is not None:
            used = self._ask({"stop": True})
            self.spent += used["cpu"] + max(0.0, used["own_cpu"] - self._own_cpu)
            self._own_cpu = used["own_cpu"]

    def abandon(self):
        """End the warm process and its child from another thread; there will be no more."""
        self._abandoned = True
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)

    def close(self):
        """End the warm process; the next fork starts another."""
        if self._process is not None:
            self._control.close()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = self._control = None

    def _ask(self, request, descriptor=None):
        self._control.settimeout(START_SECONDS if "box" in request else STOP_SECONDS)
        try:
            data = json.dumps(request).encode()
            socket.send_fds(self._control, [data], [] if descriptor is None else [descriptor])
            reply = self._control.recv(1 << 20)
        except OSError as error:
            reply, why = b"", str(error)
        else:
            why = "it has ended"
        if not reply:
            if "box" not in request:
                self.close()
            raise NurseryLost(f"the warm process did not answer ({why})")
        return json.loads(reply)


def environment(tree_folder):
    """The few variables that a learner's process has; the same everywhere, so that the same code gives the same."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "TZ") if name in os.environ}
    return {**kept, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(tree_folder),
            "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1", "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "TERM": "dumb"}
