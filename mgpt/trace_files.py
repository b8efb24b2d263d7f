"""Files of traces -> RequestTraces.

CSV     a header, then a line a request: request_id, arrival, started, error, token_times (separated by ";").
        The columns arrival and token_times must be there; an empty cell is a missing value.
JSONL   one object of RequestTrace's arguments a line, or a list of such objects.
Result files of vLLM, SGLang, AIPerf, GenAI-Perf and guidellm: `mgpt.bench_files` says what each can tell.

The content of a file decides how it is read, not its name.
"""

import csv
import io
import json
from pathlib import Path

from mgpt.bench_files import READERS
from mgpt.trace import RequestTrace

COLUMNS = ("request_id", "arrival", "started", "error", "token_times")
ARGUMENTS = ("arrival", "token_times", "chunks", "span", "started", "error", "request_id", "unit")


def load_traces(path):
    """RequestTraces of a CSV, JSONL or result file, failed requests included.

    Times are in ms, those of a result file from its earliest arrival on, those of CSV and JSONL as given.
    ValueError names file, line or request, and what is wrong; OSError where the file cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    if not text.strip():
        raise ValueError(f"{path} is empty")
    traces = []
    try:
        for place, arguments in _json(text) if text.lstrip()[0] in "[{" else _csv(text):
            try:
                traces.append(RequestTrace(**arguments))
            except ValueError as error:
                raise ValueError(f"{place}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}, {error}") from None
    except (OverflowError, RecursionError):
        raise ValueError(f"{path} holds numbers too large, or lists too deep, for a file of traces") from None
    return traces


def _csv(text):
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    limit = csv.field_size_limit(len(text))  # a cell holds all times of a request; the default is 128 KiB
    try:
        header = [name.strip() for name in next(rows)]
        if not {"arrival", "token_times"} <= set(header) <= set(COLUMNS) or len(set(header)) < len(header):
            raise ValueError(f"line 1: the columns must be {','.join(COLUMNS)}, got {','.join(header)}")
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            place = f"line {rows.line_num}"
            if len(row) != len(header):
                raise ValueError(f"{place}: {len(header)} fields are needed, got {len(row)}")
            cells = {name: cell.strip() for name, cell in zip(header, row)}
            arguments = {"request_id": cells.get("request_id") or None, "error": cells.get("error") or None}
            arguments["arrival"] = _number(f"{place}: arrival", cells["arrival"])
            if cells.get("started"):
                arguments["started"] = _number(f"{place}: started", cells["started"])
            times = cells["token_times"].split(";") if cells["token_times"] else []
            arguments["token_times"] = [_number(f"{place}: token_times[{i}]", t) for i, t in enumerate(times)]
            yield place, arguments
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num}: {error}") from None
    finally:
        csv.field_size_limit(limit)


def _number(name, text):
    """An int where the text is one, else a float.  NaN passes: RequestTrace names it."""
    for kind in (int, float):
        try:
            if "_" not in text:  # Python's own 1_000 is no number of a file
                return kind(text)
        except ValueError:
            pass
    raise ValueError(f"{name} must be a number, got {text!r}")


def _json(text):
    """(place, arguments) of one document, or of a document a line."""
    documents, seen = list(_documents(text)), []
    for place, document in documents:
        if not isinstance(document, dict):
            raise ValueError(f"{place}: an object is needed, got {json.dumps(document)[:60]}")
        reader = next((READERS[key] for key in READERS if key in document), None)
        if reader is not None:
            seen += [(f"{place}, {inner}", request) for inner, request in _read(reader, place, document)]
        elif "arrival" in document:
            unknown = sorted(set(document) - set(ARGUMENTS))
            if unknown:
                raise ValueError(f"{place}: unknown {', '.join(unknown)}; allowed are {', '.join(ARGUMENTS)}")
            yield place, {key: v for key, v in document.items() if v is not None or key == "arrival"}
        else:
            raise ValueError(f"{place}: no trace (arrival is missing) and no result file with each request"
                             " (vLLM --save-detailed, SGLang --output-details, AIPerf profile_export.jsonl);"
                             f" its keys are {', '.join(list(document)[:8]) or 'none'}")
    origin = min((request.start for _, request in seen if request.start is not None), default=0)
    for place, request in seen:
        yield place, request.arguments(origin)


def _documents(text):
    """(place, parsed JSON): the items of a list, the one document, or a document a line."""
    lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        if len(lines) == 1 or not _parses(lines[0][1]):
            raise ValueError(f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    else:
        if isinstance(whole, list):
            return [(f"item {i}", item) for i, item in enumerate(whole)]
        return [(f"line {lines[0][0]}", whole)]
    documents = []
    for i, line in lines:
        try:
            documents.append((f"line {i}", json.loads(line)))
        except json.JSONDecodeError as error:
            raise ValueError(f"line {i}, column {error.colno}: not JSON: {error.msg}") from None
    return documents


def _parses(line):
    try:
        return json.loads(line) is not None
    except json.JSONDecodeError:
        return False


def _read(reader, place, document):
    """The pairs of a reader; a document of another shape becomes a ValueError that says what is missing."""
    try:
        return list(reader(document))
    except KeyError as error:
        raise ValueError(f"{place}: a result of {reader.__name__} with {error} missing") from None
    except (AttributeError, IndexError, TypeError) as error:
        raise ValueError(f"{place}: not the shape of a result of {reader.__name__}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
