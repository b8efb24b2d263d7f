"""`mgpt simulate`: requests over ticks, as a table of every tick and a table of every request."""

import html
import re
import textwrap
from collections import Counter
from dataclasses import asdict, fields
from pathlib import Path

from mgpt.cli import print_json, read_json, table
from mgpt.scheduler import CLOCK_RULE, Request, simulate

HELP = "run requests through the scheduler and print what every tick does"
NEEDED = ("id", "arrival", "prompt_len", "output_len")
ACTIVE = ("prefill", "decode")
WIDE = 6  # more requests than this share one column of the text table
CELL = "A cell: state, positions processed [from:to), #output sampled, live KV positions/KV blocks."
COLUMNS = (  # header, field of a Tick
    ("computed", "positions_computed"), ("reused", "positions_reused"), ("logical", "logical_positions"),
    ("physical", "physical_positions"), ("in use", "blocks_in_use"), ("resident", "blocks_resident"),
    ("reserved", "blocks_reserved"), ("waste", "waste"),
)
NOTE = ("computed, reused: positions so far; logical, physical: positions held, counted for each request and "
        "counted once; in use, resident, reserved: KV blocks; waste: slots of resident blocks that hold no "
        "position.")
STYLE = """
:root { color-scheme: light dark; --line: #767676; --quiet: #8881; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 1rem; }
p { max-width: 75ch; }
div { overflow-x: auto; }
div:focus-visible { outline: 3px solid #0072b2; }
table { border-collapse: collapse; margin-block: 1rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: bold; padding-block: .5rem; }
th, td { border: 1px solid var(--line); padding: .25rem .5rem; text-align: right; white-space: nowrap; }
td.request, th[scope=colgroup] { text-align: left; }
td.prefill { border-left: .4rem double; }
td.decode { border-left: .4rem solid; }
td.rest { background: var(--quiet); }
"""


def arguments(parser):
    parser.add_argument("requests", metavar="REQUESTS.json", help="a list of objects with " + ", ".join(
        field.name for field in fields(Request)) + " (the last two may be left out)")
    parser.add_argument("--policy", default="continuous", help="continuous (default) or static")
    parser.add_argument("--max-active", required=True, metavar="N", help="requests active at once")
    parser.add_argument("--block-size", required=True, metavar="N", help="positions in a KV block")
    parser.add_argument("--token-budget", metavar="N", help="positions a tick, decode tokens included")
    parser.add_argument("--pool-blocks", metavar="N", help="KV blocks there are")
    parser.add_argument("--sharing", metavar="S", help="prewarmed or dynamic (default: none)")
    parser.add_argument("--no-chunked", action="store_true", help="schedule a prompt only whole")
    parser.add_argument("--reserve", default="full", metavar="R", help="full (default) or prompt")
    parser.add_argument("--html", metavar="FILE", help="write the tables to FILE instead of printing them")


def run(args):
    settings = {
        "policy": args.policy, "max_active": _whole("--max-active", args.max_active),
        "block_size": _whole("--block-size", args.block_size),
        "token_budget": _whole("--token-budget", args.token_budget), "chunked": not args.no_chunked,
        "pool_blocks": _whole("--pool-blocks", args.pool_blocks),
        "sharing": None if args.sharing == "none" else args.sharing, "reserve": args.reserve,
    }
    timeline = simulate(read_requests(args.requests), **settings)
    if args.html:
        Path(args.html).write_text(as_html(timeline, settings), encoding="utf-8")
    if args.json:
        print_json(as_json(timeline, settings))
    elif args.html:
        print(f"{args.html}: {len(timeline.ticks)} ticks of {len(timeline.requests)} requests")
    else:
        print(as_text(timeline, settings))


def read_requests(path):
    """The Requests of a file: a JSON list of Request's arguments.  ValueError names file and entry."""
    entries = read_json(path)
    if not isinstance(entries, list):
        raise ValueError(f"{path} must hold a list of requests, got {type(entries).__name__}")
    allowed = [field.name for field in fields(Request)]
    requests = []
    for i, entry in enumerate(entries):
        where = f"{path}, request {i}"
        if not isinstance(entry, dict):
            raise ValueError(f"{where}: must be an object with {', '.join(NEEDED)}, got {entry!r}")
        missing, unknown = [k for k in NEEDED if k not in entry], [k for k in entry if k not in allowed]
        if missing or unknown:
            fault = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(map(repr, unknown))}"
            raise ValueError(f"{where}: {fault}; allowed are {', '.join(allowed)}")
        try:
            requests.append(Request(**entry))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    twice = [name for name, count in Counter(str(r.id) for r in requests).items() if count > 1]
    if twice:
        raise ValueError(f"{path}: the id of a request must be its own, got {twice[0]!r} twice")
    return requests


def as_json(timeline, settings):
    """A Timeline as plain data, under the names of its fields."""
    ticks = []
    for row in timeline.ticks:
        shared = [{"prefix_key": key, "block": i, "users": n} for (key, i), n in row.shared_users.items()]
        ticks.append({**asdict(row), "shared_users": shared})
    names = ("makespan", "positions_computed", "positions_reused", "peak_blocks", "peak_reserved")
    return {
        "clock": CLOCK_RULE, "settings": settings, **{name: getattr(timeline, name) for name in names},
        "requests": {str(r.id): {
            **asdict(r), "ttft": r.ttft, "latency": r.latency, "completion": r.completion,
        } for r in timeline.requests.values()},
        "ticks": ticks,
    }


def as_text(timeline, settings):
    parts = [*map(_fill, (_settings(settings), CLOCK_RULE)), ""]
    if timeline.ticks:
        names = list(timeline.requests)
        wide = len(names) > WIDE
        header = ["tick", *(["active", "waiting"] if wide else map(str, names)), *dict(COLUMNS)]
        extra = [name for name, used in (("shared users", any(row.shared_users for row in timeline.ticks)),
                                         ("preempted", any(row.preempted for row in timeline.ticks))) if used]
        rows = []
        for row in timeline.ticks:
            cells = {name: _cell(entry) for name, entry in row.requests.items()}
            if wide:
                active = [f"{n} {c}" for n, c in cells.items() if row.requests[n].state in ACTIVE]
                requests = ["; ".join(active), sum(r.state == "waiting" for r in row.requests.values())]
            else:
                requests = list(cells.values())
            more = {"shared users": _shared(row), "preempted": _names(row.preempted)}
            rows.append([row.tick, *requests, *(getattr(row, field) for _, field in COLUMNS),
                         *(more[name] for name in extra)])
        parts += [_fill(CELL), _fill(NOTE), "", table(rows, header + extra), ""]
    parts += [table(_request_rows(timeline), REQUEST_HEADER), "", _summary(timeline)]
    return "\n".join(parts)


REQUEST_HEADER = ("request", "arrival", "output ticks", "TTFT", "TPOT", "latency", "completion", "reused",
                  "preempted")


def _request_rows(timeline):
    tpots = [trace.tpot if trace.tpot is None else round(trace.tpot, 2) for trace in timeline.to_traces()]
    return [[str(r.id), r.arrival, spans(r.output_ticks), r.ttft, tpot, r.latency, r.completion,
             r.positions_reused, r.preemptions] for r, tpot in zip(timeline.requests.values(), tpots)]


def as_html(timeline, settings):
    """One page that needs nothing else: both tables with captions and header cells, and their rules."""
    text = html.escape
    names = [str(name) for name in timeline.requests]
    groups = ((1, "time"), (len(names), "requests"), (4, "positions"), (3, "KV blocks"), (1, "slots"),
              (2, "notes"))
    header = ["tick", *names, *dict(COLUMNS), "shared users", "preempted"]
    body = []
    for row in timeline.ticks:
        cells = []
        for entry in row.requests.values():
            kind = entry.state if entry.state in ACTIVE else "rest"
            cells.append(f'<td class="request {kind}">{text(_words(entry))}</td>')
        cells += [f"<td>{getattr(row, field)}</td>" for _, field in COLUMNS]
        cells += [f"<td>{text(_shared(row) or '-')}</td>", f"<td>{text(_names(row.preempted) or '-')}</td>"]
        body.append(f'<tr><th scope="row">{row.tick}</th>{"".join(cells)}</tr>')
    heads = "".join(f'<th scope="colgroup" colspan="{n}">{text(name)}</th>' for n, name in groups if n)
    ticks = f"<tr>{heads}</tr><tr>{_head(header)}</tr>"
    requests = [f'<tr><th scope="row">{text(name)}</th>' + "".join(
        f"<td>{'-' if cell is None else text(str(cell))}</td>" for cell in cells) + "</tr>"
        for name, *cells in _request_rows(timeline)]
    title = f"Scheduler ticks: {_settings(settings)}"
    return "\n".join([
        '<!DOCTYPE html>', '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{text(title)}</title>", f"<style>{STYLE}</style>", "</head>", "<body>", "<main>",
        "<h1>Scheduler ticks</h1>", f"<p>{text(_settings(settings))}</p>", f"<p>{text(CLOCK_RULE)}</p>",
        f"<p>{text(_summary(timeline))}</p>", f"<p>{text(NOTE)}</p>",
        _region("Every tick", ticks, body),
        _region("Every request, in ticks", f"<tr>{_head(REQUEST_HEADER)}</tr>", requests),
        "</main>", "</body>", "</html>", ""])


def _region(caption, head, rows):
    """A table that scrolls by itself, and by the keyboard."""
    return (f'<div role="region" tabindex="0" aria-label="{html.escape(caption)}"><table>'
            f"<caption>{html.escape(caption)}</caption><thead>{head}</thead><tbody>\n" + "\n".join(rows)
            + "\n</tbody></table></div>")


def _head(names):
    return "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)


def _fill(text):
    return textwrap.fill(text, 100)


def _cell(entry):
    if entry.state not in ACTIVE:
        return entry.state
    work = f"{entry.start}:{entry.start + entry.inputs}" if entry.inputs else "-"
    sampled = f" #{entry.outputs}" if entry.sampled else ""
    return f"{entry.state} {work}{sampled} {entry.positions}/{entry.blocks}"


def _words(entry):
    if entry.state not in ACTIVE:
        return entry.state
    work = f"{entry.start}:{entry.start + entry.inputs}" if entry.inputs else "nothing yet"
    sampled = f", output {entry.outputs}" if entry.sampled else ""
    return f"{entry.state} {work}{sampled}; positions {entry.positions}, KV blocks {entry.blocks}"


def _shared(row):
    return ", ".join(f"{key}[{i}]: {users}" for (key, i), users in row.shared_users.items())


def _names(ids):
    return ", ".join(map(str, ids))


def _settings(settings):
    return ", ".join(f"{name} {'none' if value is None else value}" for name, value in settings.items())


def _summary(timeline):
    return (f"makespan {timeline.makespan}; positions computed {timeline.positions_computed}, reused "
            f"{timeline.positions_reused}; peak blocks {timeline.peak_blocks}, peak reserved "
            f"{timeline.peak_reserved}")


def spans(ticks):
    """Ticks as runs: [1, 2, 3, 5] -> "1–3, 5"; None without ticks."""
    runs = []
    for t in ticks:
        if runs and t == runs[-1][1] + 1:
            runs[-1][1] = t
        else:
            runs.append([t, t])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs) or None


def _whole(option, text):
    if text is not None and not re.fullmatch(r"[+-]?[0-9]+", text):  # int() takes 1_0 and other scripts too
        raise ValueError(f"{option} must be a whole number, got {text!r}")
    return None if text is None else int(text)
