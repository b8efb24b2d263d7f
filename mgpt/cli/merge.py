"""`mgpt merge DIR… --out DIR`: the reports of several runs (`mgpt grade --shard`) as if they were one."""

import json
from pathlib import Path

from mgpt.cli import grade
from mgpt.course.grade import batch
from mgpt.course.grade.grading import FAILED
from mgpt.course.grade.write import read_manual

HELP = "put the results of several `mgpt grade --shard` runs together"


def arguments(parser):
    parser.add_argument("folders", nargs="+", metavar="DIR", help="--out folders of the shards")
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--manual", metavar="FILE", help="points given by a person (DIR/manual.csv)")


def run(args):
    found, manual = {}, args.manual or (Path(args.out) / "manual.csv")
    marks = read_manual(manual) if args.manual or Path(manual).is_file() else {}
    for folder in args.folders:
        if not (Path(folder) / "instructor").is_dir():
            raise ValueError(f"{folder} has no instructor/: give the --out folders of `mgpt grade`")
        for path in sorted((Path(folder) / "instructor").glob("*.json")):
            try:
                report = json.loads(path.read_text(encoding="utf-8"))
                name, status, key = report["submission"], report["status"], report["key"]
            except (ValueError, KeyError, TypeError):
                raise ValueError(f"{path} is no report of `mgpt grade`; grade that shard again") from None
            other = found.get(name)
            if other and FAILED not in (status, other["status"]) and key != other["key"]:
                raise ValueError(f"{name} is in two shards that were graded differently: {path}; "
                                 "use one --seed for all")
            if other is None or other["status"] == FAILED:
                found[name] = report
    for report in found.values():
        batch.keep({name: value for name, value in report.items() if name not in ("manual", "total")}, args.out)
    return grade.finish(args, set(found), marks, f"from {len(args.folders)} folders")
