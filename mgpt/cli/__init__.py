"""The command line: `mgpt COMMAND`, also `python -m mgpt COMMAND`.

One module a command, named like it, with `HELP`, `arguments(parser)` and `run(args) -> exit status`.
Bad input (ValueError, OSError) becomes one line on stderr and exit status 2; a bug keeps its traceback.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path

COMMANDS = ("kv", "trace", "simulate", "generate", "evaluate", "check", "grade", "merge", "release")


def load(command):
    """The module of a command, or None where it is not built yet."""
    if not (Path(__file__).parent / f"{command}.py").exists():
        return None
    return importlib.import_module(f"mgpt.cli.{command}")


def read_json(path):
    """The parsed JSON of a file.  ValueError naming file and place when it is not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not JSON: it is not UTF-8 text") from None
    except RecursionError:
        raise ValueError(f"{path} is JSON nested too deep to be read") from None


def print_json(value):
    """One JSON document on stdout; NaN is never written."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def table(rows, header):
    """Rows as aligned text, numbers to the right; None is shown as a dash."""
    cells = [list(header)] + [["-" if c is None else str(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    right = [all(isinstance(row[i], (int, float, type(None))) for row in rows) for i in range(len(header))]
    lines = []
    for row in cells:
        lines.append("  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right)).rstrip())
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(lines)


class _Parser(argparse.ArgumentParser):
    """Refuses arguments as everything else is refused, in one line: --help has the usage."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {' '.join(message.split())} (see {self.prog} --help)\n")


def main(argv=None):
    """Run one command; the exit status is 0, 1 where a command says so, or 2 for bad input."""
    parser = _Parser(prog="mgpt", description="Mini GPT: count, time, simulate, generate, check.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = load(name)
        if module is not None:
            sub = commands.add_parser(name, help=module.HELP, description=module.HELP)
            sub.add_argument("--json", action="store_true", help="print JSON instead of text")
            module.arguments(sub)
            sub.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    try:
        return args.run(args) or 0
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"mgpt {args.command}: {where}{error.strerror or error}", file=sys.stderr)
    except ValueError as error:
        print(f"mgpt {args.command}: {' '.join(str(error).split())}", file=sys.stderr)
    return 2
