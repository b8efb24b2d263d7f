"""`mgpt check NOTEBOOK`: a learner's last look before submitting."""

from mgpt.cli import print_json
from mgpt.course.judge import PASS
from mgpt.course.submission import read
from mgpt.course.workbench import judge_submission

HELP = "run a notebook's answers in a fresh process and print points per question"


def arguments(parser):
    parser.add_argument("notebook", metavar="NOTEBOOK")
    parser.add_argument("--timeout", type=float, default=20.0, metavar="SECONDS", help="limit for one cell or call")


def run(args):
    if not 0 < args.timeout < 1e6:
        raise ValueError(f"--timeout must be > 0 seconds, got {args.timeout:g}")
    submission = read(args.notebook)
    results = judge_submission(submission, args.timeout)
    points, total = sum(r.points for r in results), sum(r.max_points for r in results)
    if args.json:
        print_json({
            "points": points, "max_points": total, "notes": list(submission.notes),
            "questions": [{"id": r.id, "points": r.points, "max_points": r.max_points, "status": r.status,
                           "message": r.message} for r in results],
        })
        return 0
    for note in submission.notes:
        print(f"note: {note}")
    for result in results:
        print(f"{result.points}/{result.max_points}  {result}")
    print(f"{points} of {total} points, {sum(r.status == PASS for r in results)} of {len(results)} questions right")
    return 0
