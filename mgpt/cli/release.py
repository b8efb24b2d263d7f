"""`mgpt release [--check]`: solutions/ -> exercises/."""

from mgpt.cli import print_json
from mgpt.course.release import released, root

HELP = "write exercises/ from solutions/, or check that they are fresh"


def arguments(parser):
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 where a file is not fresh")


def run(args):
    wanted = released()
    folder = root() / "exercises"
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_bytes() != text.encode()]
    orphans = sorted(set(folder.glob("*.ipynb")) - set(wanted))
    if not args.check:
        folder.mkdir(exist_ok=True)
        for path in stale:
            path.write_bytes(wanted[path].encode())
        for path in orphans:
            path.unlink()
    changed = [str(path.relative_to(root())) for path in stale + orphans]
    if args.json:
        print_json({"notebooks": len(wanted), "stale" if args.check else "written": changed})
    elif args.check:
        for name in changed:
            print(f"{name} is not what solutions/ gives: run `python -m mgpt release`")
        print(f"{len(wanted) - len(stale)} of {len(wanted)} exercise notebooks are fresh")
    else:
        print("\n".join(f"wrote {name}" for name in changed) or f"{len(wanted)} exercise notebooks were fresh already")
    return 1 if args.check and changed else 0
