"""`mgpt grade SUBMISSIONS… --out DIR`: what an instructor runs."""

import json
import re
import sys
import time
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None

from mgpt.cli import print_json
from mgpt.course.grade import batch
from mgpt.course.grade.grading import Options, read_member
from mgpt.course.grade.roster import members
from mgpt.course.grade.layers import LAYERS, Limits
from mgpt.course.grade.write import read_manual, statuses, write_all
from mgpt.course.questions import stems

HELP = "grade submissions in a sandbox and write reports and a gradebook"


def arguments(parser):
    parser.add_argument("submissions", nargs="+", metavar="SUBMISSIONS", help="notebooks, or folders of notebooks")
    parser.add_argument("--out", required=True, metavar="DIR", help="where the reports go; a rerun goes on there")
    parser.add_argument("--jobs", type=int, metavar="N", help="submissions at a time (all cores)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="send submissions to a Dask cluster")
    parser.add_argument("--shard", metavar="I/N",
                        help="grade each N-th submission only, from the I-th; then `mgpt merge`")
    parser.add_argument("--seed", default=Options.seed, help="what the hidden numbers are drawn from; keep it secret")
    parser.add_argument("--individual", action="store_true", help="other hidden numbers for each learner")
    parser.add_argument("--require-sandbox", metavar="LAYERS",
                        help=f"fail where one is missing: {','.join(LAYERS)} or all")
    parser.add_argument("--allow-unsandboxed", action="store_true",
                        help="grade also where a learner's code can reach files or the network")
    parser.add_argument("--manual", metavar="FILE", help="points given by a person (DIR/manual.csv)")
    parser.add_argument("--timeout", type=float, default=Options.timeout, metavar="SECONDS",
                        help="limit for one cell or call (%(default)g)")
    parser.add_argument("--memory", type=int, default=Limits.memory, metavar="MIB", help="memory limit (%(default)d)")
    parser.add_argument("--log", metavar="FILE", help="layers in force and times, as JSON lines")


def run(args):
    options = Options(args.seed, args.individual, args.timeout, Limits(memory=args.memory))
    walls = batch.Walls(_layers(args.require_sandbox), args.allow_unsandboxed)
    if not 0 < args.timeout < 1e6:
        raise ValueError(f"--timeout must be > 0 seconds, got {args.timeout:g}")
    if args.memory < 64:
        raise ValueError(f"--memory must be at least 64 MiB, got {args.memory}")
    if args.jobs is not None and args.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {args.jobs}")
    everybody = members(args.submissions)
    chosen = everybody if args.shard is None else _shard(everybody, args.shard)
    manual = args.manual or (Path(args.out) / "manual.csv")
    marks = read_manual(manual) if args.manual or Path(manual).is_file() else {}
    Path(args.out).mkdir(parents=True, exist_ok=True)
    batch.sweep_temporary()
    log = _Log(args.log)
    names = {member.name for member in chosen}
    try:
        todo = _Counted(batch.outstanding(chosen, options, args.out, everybody))
        for report, seconds, cpu in _results(args, todo, options, walls, log, chosen):
            batch.keep(report, args.out)
            log.write(submission=report["submission"], status=report["status"], seconds=seconds, cpu=cpu)
            _progress(len(chosen), todo, log)
    except KeyboardInterrupt:
        print("\nstopped; what is graded is kept, and the same command goes on", file=sys.stderr)
        return 130
    finally:
        log.close()
    return finish(args, names, marks, f"{log.count} graded now, {len(chosen) - log.count} unchanged")


def finish(args, names, marks, words):
    """Write everything, say what came of it, and give the exit status."""
    unknown = sorted({name for name, _ in marks} - set(names))
    if unknown:
        print(f"manual marks for nobody here: {', '.join(unknown)}", file=sys.stderr)
    counts = write_all(args.out, names, marks)
    graded, others = statuses(counts)
    if args.json:
        print_json({"out": args.out, "submissions": len(names), "graded": graded, "refused": counts.get("refused", 0),
                    "failed": counts.get("error", 0)})
    else:
        print(f"{len(names)} submissions: {graded} graded, {counts.get('refused', 0)} refused, "
              f"{counts.get('error', 0)} failed; {words}; see {Path(args.out) / 'overview.html'}")
    return 1 if others else 0


def _results(args, todo, options, walls, log, chosen):
    if args.scheduler:
        from mgpt.course.grade import cluster

        yield from cluster.results(args.scheduler, todo, options, walls, log.layers)
        return
    with batch.Nurseries(options, walls) as first:
        nursery = first.of(_first_stem(chosen))
        log.layers("here", batch.layers_text(nursery))
        yield from batch.locally(todo, options, walls, first, args.jobs or batch.default_jobs())


def _first_stem(chosen):
    for member in chosen:
        submission = read_member(member.load())
        if submission is not None and not isinstance(submission, str):
            return submission.stem
    return stems()[0]


def _layers(text):
    if text is None:
        return ()
    asked = [name.strip() for name in text.split(",") if name.strip()]
    asked = list(LAYERS) if asked == ["all"] else asked
    unknown = sorted(set(asked) - set(LAYERS))
    if unknown or not asked:
        raise ValueError(f"--require-sandbox: no layer {', '.join(unknown) or 'named'}; there are {', '.join(LAYERS)}")
    return tuple(asked)


def _shard(everybody, text):
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    number, total = map(int, match.groups()) if match else (1, 0)
    if not 0 <= number <= total or total < 1:
        raise ValueError(f"--shard must be I/N with I from 1 to N (0 is taken for N), got {text!r}")
    return everybody[number % total::total]


class _Counted:
    """An iterator that knows how many it gave."""

    def __init__(self, items):
        self._items, self.given = iter(items), 0

    def __iter__(self):
        return self

    def __next__(self):
        item = next(self._items)
        self.given += 1
        return item


class _Log:
    def __init__(self, path):
        self._file = open(path, "a", encoding="utf-8") if path else None
        self.count, self.began = 0, time.monotonic()

    def write(self, **event):
        self.count += 1
        self._line(event)

    def layers(self, where, words):
        print(f"sandbox ({where}): {words}", file=sys.stderr)
        self._line({"where": where, "layers": words})

    def _line(self, event):
        if self._file:
            self._file.write(json.dumps({"time": time.time(), **event}) + "\n")
            self._file.flush()

    def close(self):
        if self._file:
            self._line({"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024} if resource else {})
            self._file.close()


def _progress(total, todo, log):
    """A bar with an ETA, on a terminal only."""
    if not sys.stderr.isatty():
        return
    left = total - log.count
    pace = (time.monotonic() - log.began) / log.count
    filled = 30 * log.count // total
    print(f"\r{'█' * filled}{'░' * (30 - filled)} {log.count}/{total}, at most {pace * left:.0f} s left ", end="",
          file=sys.stderr, flush=True)
