"""Many submissions: what is graded already is kept, the rest is graded by threads that each own a zygote.

A report is written as soon as it is there, so that a run which is stopped at any moment loses nothing and the next one
goes on; tables and pages are made from the reports at the end (`write.py`).
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import os
import queue
import shutil
import tempfile
import threading
import time
from pathlib import Path

from mgpt.course.grade.grading import FAILED, grade
from mgpt.course.grade.roster import common_exercise, tells_nothing
from mgpt.course.grade.layers import LAYERS
from mgpt.course.grade.write import report_path, write_json
from mgpt.course.workbench import FOLDER, open_nursery

KEPT_WARM = 4  # zygotes of different exercises in one thread


class NotContained(ValueError):
    """This machine offers less protection than was asked for."""


@dataclasses.dataclass(frozen=True)
class Walls:
    """required: layers that must be in force.  unsandboxed: grade even where files or network are open."""

    required: tuple[str, ...] = ()
    unsandboxed: bool = False

    def check(self, nursery):
        """NotContained where a nursery lacks a required layer, or hides no files or no network and may not."""
        missing = [f"{layer} ({nursery.layers.get(layer, 'not on this platform')})" for layer in self.required
                   if nursery.layers.get(layer, "missing") is not None]
        if missing:
            raise NotContained(f"--require-sandbox: not in force here: {', '.join(missing)}")
        open_sides = [what for what, shut in (("files", nursery.hides_files), ("network", nursery.hides_network))
                      if not shut]
        if open_sides and not self.unsandboxed:
            raise NotContained(f"nothing here hides {' and '.join(open_sides)} from a learner's code; start as root or "
                               "on a kernel with Landlock, or accept that with --allow-unsandboxed")


class Nurseries:
    """The warm processes of one thread, by exercise.  A context manager; `of(stem)` opens what is missing."""

    def __init__(self, options, walls):
        self._options, self._walls, self._open = options, walls, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _, stack in self._open.values():
            stack.close()
        self._open = {}

    def abandon(self):
        """End what runs in them, from another thread; what it came to is not wanted."""
        for nursery, _ in self._open.values():
            nursery.abandon()

    def of(self, stem):
        if stem not in self._open:
            while len(self._open) >= KEPT_WARM:
                self._open.pop(next(iter(self._open)))[1].close()
            with contextlib.ExitStack() as stack:
                nursery = stack.enter_context(open_nursery(stem, limits=self._options.limits))
                self._walls.check(nursery)
                self._open[stem] = nursery, stack.pop_all()
        return self._open[stem][0]


def outstanding(members, options, out, everybody):
    """Loaded members whose report is not in `out` yet, or is another's, or is an error; one at a time.

    everybody: the members of all shards, of which a notebook that tells nothing is taken to share the exercise.
    """
    common = functools.lru_cache(1)(lambda: common_exercise(everybody))
    for member in members:
        loaded = member.load()
        if not loaded.refusal and tells_nothing(loaded):
            loaded = dataclasses.replace(loaded, exercise=common())
        if kept_report(out, loaded.name).get("key") != loaded.key(options):
            yield loaded


def kept_report(out, name):
    """The report that `out` holds of a submission, if it is whole and no error; else {}."""
    try:
        report = json.loads(report_path(out, name).read_text(encoding="utf-8"))
        return report if report["status"] != FAILED else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def locally(todo, options, walls, first, jobs):
    """(report, seconds, CPU seconds) of each member, as they are done.  first: Nurseries that are open already."""
    free, every, stopped = queue.SimpleQueue(), [first], threading.Event()
    free.put(first)

    def one(member):
        if stopped.is_set():
            return None
        try:
            nurseries = free.get_nowait()
        except queue.Empty:
            nurseries = Nurseries(options, walls)
            every.append(nurseries)
        try:
            return timed(member, options, nurseries)
        finally:
            free.put(nurseries)

    pool, finished = concurrent.futures.ThreadPoolExecutor(jobs), False
    try:
        waiting = set()
        for member in todo:
            waiting.add(pool.submit(one, member))
            if len(waiting) >= 2 * jobs:
                done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in concurrent.futures.as_completed(waiting))
        finished = True
    finally:
        stopped.set()
        for nurseries in () if finished else every:
            nurseries.abandon()  # what runs now is not waited for
        pool.shutdown(cancel_futures=True)
        for nurseries in every[1:]:
            nurseries.__exit__()


def timed(member, options, nurseries):
    """(report, seconds, CPU seconds) of one loaded member."""
    began, cpu, spent = time.monotonic(), time.thread_time(), [0.0]

    def nursery_of(stem):
        nursery = nurseries.of(stem)
        nursery.spent = 0.0
        spent.append(nursery)
        return nursery

    report = grade(member, options, nursery_of)
    used = time.thread_time() - cpu + (spent[-1].spent if len(spent) > 1 else 0.0)
    return report, time.monotonic() - began, used


def keep(report, out):
    """Write one report, at once and whole."""
    write_json(report_path(out, report["submission"]), report)


def sweep_temporary():
    """Remove what a grader that was killed left in the temporary folder."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        owner = folder.name[len(FOLDER):].split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)


def default_jobs():
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def layers_text(nursery):
    """One line: what is in force, and what is not and why."""
    force = [layer for layer in LAYERS if nursery.layers.get(layer, "missing") is None]
    missing = [f"{layer} ({nursery.layers.get(layer, 'not on this platform')})" for layer in LAYERS
               if layer not in force]
    return f"in force: {', '.join(force) or 'none'}" + (f"; missing: {', '.join(missing)}" if missing else "")


