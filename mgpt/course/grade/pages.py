"""HTML of the reports: one self-contained page a learner, one overview for the instructor.  No script, no request."""

from collections import Counter
from html import escape

from mgpt.course.questions import find
from mgpt.text import N_, _

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --paper: #fff; --soft: #f1f4f8; --line: #c9d1dc; --good: #176639;
  --bad: #9b1c1c; --bar: #2f6db5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --paper: #14181f; --soft: #1e2530; --line: #414c5c;
  --good: #7fd6a2; --bad: #ff9d9d; --bar: #7fb2ee; } }
body { color: var(--ink); background: var(--paper); font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; padding: .5rem 0; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } .wide { overflow-x: auto; }
article { border: 1px solid var(--line); border-radius: .4rem; padding: .1rem 1rem .6rem; margin: 1rem 0; }
.pass { color: var(--good); } .fail, .error { color: var(--bad); } code { background: var(--soft); }
svg text { fill: var(--ink); font: .8rem system-ui, sans-serif; } svg rect { fill: var(--bar); }
"""
MARK = {"pass": "✓", "fail": "✗", "not attempted": "·", "error": "!"}
STATUS = {"graded": N_("graded"), "refused": N_("refused"), "error": N_("error of the grader")}


def page(title, body):
    return (f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="viewport" '
            f'content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
            f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n"
            "</html>\n")


def report_page(report, instructor):
    """The page of one submission.  instructor: with the words about hidden cases and the free answers."""
    parts = [_head(report)]
    for entry in report["questions"]:
        message = entry["full_message"] if instructor else entry["message"]
        css = entry["status"].split()[0]
        parts.append(
            f'<article>\n<h2>{escape(entry["id"])}: {entry["points"]} / {entry["max_points"]}</h2>\n'
            f'<p class="{css}"><strong>{MARK[entry["status"]]} {escape(_(entry["status"]))}</strong></p>\n'
            f"<p>{escape(message)}</p>" + _misconception(entry) + _hints(entry) + "\n</article>")
    for mark in report["manual"]:
        flag = f' <strong class="fail">{escape(_("the answer has changed since"))}</strong>' if mark["changed"] else ""
        parts.append(f'<article>\n<h2>{escape(mark["question"])}: {mark["points"]} {escape(_("by a person"))}</h2>\n'
                     f'<p>{escape(mark["comment"])}{flag}</p>\n</article>')
    if instructor and report["free"]:
        parts += [f'<article>\n<h2>{escape(question)}: {escape(_("in their own words"))}</h2>\n'
                  f'<p>{escape(answer["text"])}</p>\n</article>' for question, answer in sorted(report["free"].items())]
    parts.append(f'<p><small>sha256: {report["sha256"]["submission"]} ({escape(_("submission"))}), '
                 f'{report["sha256"]["tests"]} ({escape(_("tests"))})</small></p>')
    return page(f'{report["submission"]} · {report["exercise"] or _(STATUS[report["status"]])}', "\n".join(parts))


def _head(report):
    if report["status"] != "graded":
        status = escape(_(STATUS[report["status"]]))
        return f'<p class="error"><strong>{status}.</strong> {escape(report["reason"])}</p>'
    total = f', {escape(_("with those given by a person"))}: <strong>{report["total"]}</strong>'
    lines = [f'<p><strong>{report["points"]} / {report["max_points"]}</strong> {escape(_("points"))}'
             + (total if report["manual"] else "")
             + f'. {escape(_("File"))}: {escape(report["file"])}</p>']
    if report["notes"]:
        lines.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in report["notes"]) + "</ul>")
    return "\n".join(lines)


def _misconception(entry):
    return f'\n<p>{escape(_("Known mistake"))}: {escape(entry["misconception"])}</p>' if entry["misconception"] else ""


def _hints(entry):
    if entry["status"] == "pass":
        return ""
    return "".join(f'\n<details><summary>{escape(_("Hint"))} {number}</summary><p>{escape(_(hint))}</p></details>'
                   for number, hint in enumerate(find(entry["id"]).hints, 1))


class Statistics:
    """What the instructor's overview counts, one report at a time."""

    def __init__(self):
        self.rows, self.questions, self.mistakes, self.scores = [], {}, Counter(), Counter()

    def add(self, report, base):
        self.rows.append((report["submission"], base, report["exercise"], report["status"], report["points"],
                          report["max_points"], report["total"], report["reason"]))
        for entry in report["questions"]:
            self.questions.setdefault(entry["id"], Counter())[entry["status"]] += 1
            if entry["misconception"]:
                self.mistakes[entry["id"], entry["misconception"]] += 1
        if report["max_points"]:
            self.scores[min(9, 10 * report["points"] // report["max_points"])] += 1

    def summary(self):
        """The same as data."""
        return {"statuses": dict(Counter(row[3] for row in self.rows)),
                "questions": {name: dict(counts) for name, counts in self.questions.items()},
                "misconceptions": [{"question": question, "misconception": mistake, "count": count}
                                   for (question, mistake), count in self._frequent()],
                "refused": {row[0]: row[7] for row in self.rows if row[3] != "graded"}}

    def _frequent(self):
        return sorted(self.mistakes.items(), key=lambda item: (-item[1], item[0]))

    def page(self):
        counts = Counter(row[3] for row in self.rows)
        body = [f'<p>{len(self.rows)} {escape(_("submissions"))}: ' + ", ".join(
            f"{counts[status]} {escape(_(words))}" for status, words in STATUS.items()) + "</p>"]
        refused = [row for row in self.rows if row[3] != "graded"]
        if refused:
            body.append(_table(_("Not graded, and why"), (_("submission"), _("status"), _("reason")), (
                (_link(row), escape(_(STATUS[row[3]])), escape(row[7])) for row in refused)))
        if self.scores:
            body += [f"<h2>{escape(_('Scores'))}</h2>", _bars(
                _("Submissions by share of the points"), [(f"{10 * tenth}–{10 * tenth + 10} %", self.scores[tenth])
                                                         for tenth in range(10)])]
        statuses = ("pass", "fail", "error", "not attempted")
        if self.questions:
            body.append(_table(_("Per question"), (_("question"), *map(_, statuses)), (
                (escape(name), *(counted[status] for status in statuses)) for name, counted in self.questions.items())))
        if self.mistakes:
            body += [f"<h2>{escape(_('Most frequent misconceptions'))}</h2>", _bars(
                _("Answers that show each known mistake"),
                [(f"{question.split('.')[-1]}: {mistake}", count)
                 for (question, mistake), count in self._frequent()[:12]])]
        body.append(_table(_("All submissions"), (_("submission"), _("exercise"), _("status"), _("points"), _("of"),
                                                  _("total")), (
            (_link(row), escape(row[2] or "–"), escape(_(STATUS[row[3]])), *("–" if n is None else n for n in row[4:7]))
            for row in self.rows)))
        words = _("The layers around the learners’ code, and all times, are in the log (--log).")
        body.append(f"<p>{escape(words)}</p>")
        return page(_("Overview"), "\n".join(body))


def _link(row):
    return f'<a href="instructor/{escape(row[1])}.html">{escape(row[0])}</a>'


def _table(caption, header, rows):
    """Cells are HTML already; numbers stand to the right."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = []
    for first, *rest in rows:
        cells = "".join(f'<td class="n">{cell}</td>' if isinstance(cell, (int, float)) else f"<td>{cell}</td>"
                        for cell in rest)
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return (f'<div class="wide"><table>\n<caption><strong>{escape(caption)}</strong></caption>\n<thead><tr>{head}</tr>'
            f"</thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody>\n</table></div>")


def _bars(title, pairs):
    """A bar chart as SVG, each bar with its number; the description says the same in words."""
    longest, height = max([count for _name, count in pairs] + [1]), 24 * len(pairs) + 8
    words = "; ".join(f"{name}: {count}" for name, count in pairs)
    bars = "".join(
        f'<text x="230" y="{24 * i + 20}" text-anchor="end">{escape(name[:38])}</text>'
        f'<rect x="240" y="{24 * i + 8}" width="{400 * count // longest}" height="16"></rect>'
        f'<text x="{246 + 400 * count // longest}" y="{24 * i + 20}">{count}</text>'
        for i, (name, count) in enumerate(pairs))
    return (f'<svg role="img" viewBox="0 0 700 {height}" width="100%"><title>{escape(title)}</title>'
            f"<desc>{escape(words)}</desc>{bars}</svg>")
