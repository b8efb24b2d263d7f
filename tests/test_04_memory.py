"""The checks of chapter 04 are worth their points, and its calculator and figures show what `mgpt` counts.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from exercise_lists import install, spoil

from mgpt.course.questions import find
from mgpt.memory import KVShape, format_bytes
from mgpt.widgets import load, respond
from mgpt.widgets.head_sharing import head_sharing
from mgpt.widgets.kv_calculator import NAMES, PRESETS, model_name, public_config, shape_of
from mgpt.widgets.kv_growth import kv_growth

STEM = "04_memory"
L, H, KV, D, W = "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size"


# ------------------------------------------------------------------ right answers, written differently
def q1_step_by_step(config, lengths, bytes_per_value):
    kv = config[KV] if KV in config else config[H]
    width = config[D] if config.get(D) is not None else config[W] // config[H]
    token = 0
    for _layer in range(config[L]):
        token += kv * width * bytes_per_value    # K
        token += kv * width * bytes_per_value    # V
    each = []
    for length in lengths:
        each.append(token * length)
    return {"total": sum(each), "per_request": each, "per_token": token}


def q1_with_numpy(config, lengths, bytes_per_value):
    width = config.get(D) or config[W] // config[H]
    token = np.prod([2, config[L], config.get(KV, config[H]), width, bytes_per_value], dtype=np.int64)
    each = token * np.array(lengths, dtype=np.int64)
    return {"per_token": token, "per_request": each, "total": each.sum()}


def q1_from_the_total(config, lengths, bytes_per_value):
    token = 2 * bytes_per_value * config[L] * config.get(KV, config[H]) * (config.get(D) or config[W] // config[H])
    return dict(per_token=token, per_request=tuple(token * n for n in lengths), total=token * sum(lengths))


def q2_with_numpy(windows, lengths, bytes_per_layer_token):
    limits = np.array([2**60 if w is None else w for w in windows])
    return np.minimum(np.array(lengths)[:, None], limits).sum(axis=1) * bytes_per_layer_token


def q2_layer_by_layer(windows, lengths, bytes_per_layer_token):
    total = [0] * len(lengths)
    for window in windows:
        for i, length in enumerate(lengths):
            if window is None or length < window:
                total[i] += length * bytes_per_layer_token
            else:
                total[i] += window * bytes_per_layer_token
    return total


def q2_by_kinds(windows, lengths, b):
    full = windows.count(None)
    return [b * (full * n + sum(min(n, w) for w in windows if w)) for n in lengths]


def q3_in_blocks(budget_gib, taken_gib, tokens, bytes_per_token, block_size):
    block = block_size * bytes_per_token
    blocks = math.ceil(tokens / block_size)
    free = (budget_gib - taken_gib) << 30
    return {"bytes_per_request": blocks * block, "requests": free // (blocks * block), "left": free % (blocks * block)}


def q3_one_by_one(budget_gib, taken_gib, tokens, bytes_per_token, block_size):
    left, n = budget_gib * 1024**3 - taken_gib * 1024**3, 0
    padded = tokens + -tokens % block_size
    while left >= padded * bytes_per_token:
        left, n = left - padded * bytes_per_token, n + 1
    return {"left": left, "requests": n, "bytes_per_request": padded * bytes_per_token}


def q3_with_numpy(budget_gib, taken_gib, tokens, bytes_per_token, block_size):
    each = np.int64((tokens + block_size - 1) // block_size) * block_size * bytes_per_token
    free = np.int64(budget_gib - taken_gib) * 2**30
    return {"bytes_per_request": each, "requests": free // each, "left": free - free // each * each}


def q4_by_cases(n):
    if n >= 2**30:
        size, unit = 2**30, "GiB"
    elif n >= 2**20:
        size, unit = 2**20, "MiB"
    elif n >= 2**10:
        size, unit = 2**10, "KiB"
    else:
        size, unit = 1, "B"
    binary = f"{n // size} {unit}" if n % size == 0 else f"{n / size:.2f} {unit}"
    size, unit = next((s, u) for s, u in ((10**9, "GB"), (10**6, "MB"), (1000, "kB"), (0, "B")) if n >= s)
    size = size or 1
    return {"binary": binary, "decimal": (f"{n / size:.2f}" if n % size else f"{n // size}") + " " + unit}


def q4_by_division(n):
    def text(base, units):
        value, unit = Fraction(n), 0
        while value >= base and unit < 3:
            value, unit = value / base, unit + 1
        return f"{value} {units[unit]}" if value.denominator == 1 else f"{float(value):.2f} {units[unit]}"

    return {"decimal": text(1000, "B kB MB GB".split()), "binary": text(1024, "B KiB MiB GiB".split())}


def q4_by_rounding(n):
    result = {}
    for key, base, units in (("binary", 1024, ["B", "KiB", "MiB", "GiB"]), ("decimal", 1000, ["B", "kB", "MB", "GB"])):
        power = sum(n >= base**i for i in (1, 2, 3))
        number = str(n // base**power) if n % base**power == 0 else format(round(n / base**power, 2), ".2f")
        result[key] = number + " " + units[power]
    return result


RIGHT = {
    "q1": [q1_step_by_step, q1_with_numpy, q1_from_the_total],
    "q2": [q2_layer_by_layer, q2_with_numpy, q2_by_kinds],
    "q3": [q3_in_blocks, q3_one_by_one, q3_with_numpy],
    "q4": [q4_by_cases, q4_by_division, q4_by_rounding],
}


# ------------------------------------------------------------------ wrong answers: name of the mistake -> code
def q1_of(layers=lambda c: c[L], heads=lambda c: c.get(KV, c[H]), width=lambda c: c.get(D) or c[W] // c[H], two=2,
          value=lambda b: b):
    def answer(config, lengths, bytes_per_value):
        token = two * layers(config) * heads(config) * width(config) * value(bytes_per_value)
        return {"per_token": token, "per_request": [token * n for n in lengths], "total": token * sum(lengths)}

    return answer


def positions(rule):
    return lambda windows, lengths, b: [b * sum(rule(n, w) for w in windows) for n in lengths]


def smaller(n, w):
    return n if w is None else min(n, w)


def q3_of(gib=2**30, free=lambda b, t: b - t, tokens=lambda n, size: n + -n % size, more=0):
    def answer(budget, taken, length, token, size):
        each, have = tokens(length, size) * token, free(budget, taken) * gib
        return {"bytes_per_request": each, "requests": have // each + more, "left": have - (have // each + more) * each}

    return answer


def q4_of(**change):
    return lambda n: {**q4_by_cases(n), **{key: wrong(n) for key, wrong in change.items()}}


BINARY, DECIMAL = ["B", "KiB", "MiB", "GiB"], ["B", "kB", "MB", "GB"]


def renamed(text, *pairs):
    """A size with its unit written otherwise."""
    for old, new in pairs:
        text = text.replace(old, new)
    return text


AS_BINARY, AS_DECIMAL = (("kB", "KiB"), ("MB", "MiB"), ("GB", "GiB")), (("KiB", "kB"), ("iB", "B"))


def exact_or(text):
    """Both sizes, with text(value) where the size is not exact."""
    def size(n, base, units):
        power = sum(n >= base**i for i in (1, 2, 3))
        return f"{n // base**power if n % base**power == 0 else text(n / base**power)} {units[power]}"

    return lambda n: {"binary": size(n, 1024, BINARY), "decimal": size(n, 1000, DECIMAL)}


def plain_mega(n, size, unit):
    return f"{n // size} {unit}" if n % size == 0 else f"{n / size:.2f} {unit}"


def from_two(n, base, units):
    power = sum(n >= 2 * base**i for i in (1, 2, 3))
    return plain_mega(n, base**power, units[power])


def rounded(n, base, units):
    while n >= base and len(units) > 1:
        n, units = n / base, units[1:]
    return f"{round(float(n), 2)} {units[0]}"


WRONG = {
    "q1": {
        "query heads counted": q1_of(heads=lambda c: c[H]),
        "head width from the hidden size": q1_of(width=lambda c: c[W] // c[H]),
        "hidden size as width": q1_of(width=lambda c: c[W]),
        "width over the KV heads": q1_of(width=lambda c: c.get(D) or c[W] // c.get(KV, c[H])),
        "one KV head where none is named": q1_of(heads=lambda c: c.get(KV, 1)),
        "K or V forgotten": q1_of(two=1),
        "layers forgotten": q1_of(layers=lambda c: 1),
        "bytes a value forgotten": q1_of(value=lambda b: 1),
        "bits for bytes": q1_of(value=lambda b: 8 * b),
        "padded to the longest": spoil(q1_of(), total=lambda r, c, ns, b: (
            r["per_token"] * max(ns, default=0) * len(ns))),
        "one request only": spoil(q1_of(), total=lambda r, c, ns, b: r["per_request"][0] if ns else 0),
        "per request forgotten lengths": spoil(q1_of(), per_request=lambda r, c, ns, b: [r["per_token"]] * len(ns)),
    },
    "q2": {
        "windows overlooked": positions(lambda n, w: n if w is None or w > 0 else 0),
        "windows reserved whole": positions(lambda n, w: n if w is None else w),
        "sliding layers left out": positions(lambda n, w: n if w is None else 0),
        "growing layers for those that do not": positions(lambda n, w: n if not w else min(n, w)),
        "one window fewer": positions(lambda n, w: smaller(n, w if not w else w - 1)),
        "smallest window for all": lambda ws, ns, b: [
            len(ws) * b * (min(n, min(w for w in ws if w)) if any(ws) else n) for n in ns],
        "windows shared by the requests": lambda ws, ns, b: [
            b * sum(smaller(n, None if w is None else w // len(ns)) for w in ws) for n in ns],
        "K and V counted again": lambda ws, ns, b: q2_by_kinds(ws, ns, 2 * b),
        "running totals": lambda ws, ns, b: [int(n) for n in np.cumsum(q2_by_kinds(ws, ns, b))],
        "layers overlooked": lambda ws, ns, b: [n // len(ws) for n in q2_by_kinds(ws, ns, b)],
    },
    "q3": {
        "GB for GiB": q3_of(gib=10**9),
        "everything free": q3_of(free=lambda b, t: b),
        "blocks overlooked": q3_of(tokens=lambda n, size: n),
        "last block dropped": q3_of(tokens=lambda n, size: max(size, n - n % size)),
        "one block more": q3_of(tokens=lambda n, size: n - n % size + size),
        "rounded up": q3_of(more=1),
        "one fewer": q3_of(more=-1),
        "waste not in the bytes": spoil(q3_in_blocks, bytes_per_request=lambda r, b, t, n, token, size: n * token),
        "left of the whole budget": spoil(q3_in_blocks, left=lambda r, b, t, n, token, size: r["left"] + t * 2**30),
        "blocks as bytes": spoil(q3_in_blocks, bytes_per_request=lambda r, b, t, n, token, size: (
            r["bytes_per_request"] // size)),
    },
    "q4": {
        "MB for MiB": q4_of(binary=lambda n: renamed(q4_by_cases(n)["decimal"], *AS_BINARY)),
        "MiB for MB": q4_of(decimal=lambda n: renamed(q4_by_cases(n)["binary"], *AS_DECIMAL)),
        "binary number, decimal name": q4_of(binary=lambda n: renamed(q4_by_cases(n)["binary"], *AS_DECIMAL)),
        "decimals always": lambda n: {key: (lambda number, unit: f"{float(number):.2f} {unit}")(*text.split())
                                      for key, text in q4_by_cases(n).items()},
        "decimals never": exact_or(lambda value: f"{value:.0f}"),
        "one decimal": exact_or(lambda value: f"{value:.1f}"),
        "round() without a format": lambda n: {"binary": rounded(n, 1024, BINARY), "decimal": rounded(n, 1000, DECIMAL)},
        "cut off, not rounded": exact_or(lambda value: f"{math.floor(value * 100) / 100:.2f}"),
        "always MiB and MB": lambda n: {"binary": plain_mega(n, 2**20, "MiB"), "decimal": plain_mega(n, 10**6, "MB")},
        "only from 2 on": lambda n: {"binary": from_two(n, 1024, BINARY), "decimal": from_two(n, 1000, DECIMAL)},
        "capital K in kB": q4_of(decimal=lambda n: q4_by_cases(n)["decimal"].replace("kB", "KB")),
        "bits": lambda n: q4_by_cases(8 * n),
    },
}

install(globals(), STEM, RIGHT, WRONG)


def test_the_numbers_of_the_text_are_visible_cases():
    case = find(f"{STEM}.q1").cases[0]
    assert case.expected == {"per_token": 131_072, "per_request": [512 * 2**20] * 2, "total": 2**30}
    assert find(f"{STEM}.q4").cases[0].expected == {"binary": "384 MiB", "decimal": "402.65 MB"}


# ------------------------------------------------------------------ the calculator and the figures
def view(**state):
    control = load("kv_calculator")
    return control.view(control.read(state))


def test_the_presets_are_one_model_in_three_versions():
    assert [shape_of(name).bytes_per_token() for name in ("mha", "gqa", "mqa")] == [524_288, 131_072, 16_384]
    assert [shape_of(name).structure for name in PRESETS] == ["MHA", "GQA", "MQA"]


def test_the_calculator_starts_with_four_requests_of_the_larger_model():
    shown = view()
    assert shown.rows == (("as it is", "128 KiB", "512 MiB", "2 GiB", 48), ("as MHA", "512 KiB", "2 GiB", "8 GiB", 12))
    assert shown.sentence == ("GQA: 128 KiB for the first token, 512 MiB a request, 2 GiB for 4 requests; "
                              "24 GiB hold 48 such requests, and nothing else.")


@pytest.mark.parametrize("name", [*PRESETS, *NAMES])
@pytest.mark.parametrize("tokens, dtype", [(1, "f16"), (8192, "int8"), (131_072, "f32")])
def test_the_calculator_shows_what_the_counter_counts(name, tokens, dtype):
    model = shape_of(name)
    row = view(model=name, tokens=tokens, dtype=dtype, requests=3, budget=40).rows[0]
    each = model.bytes(tokens, dtype)
    sizes = map(format_bytes, (model.bytes(1, dtype), each, 3 * each))
    assert row == ("as it is", *sizes, 40 * 2**30 // each)


def test_windows_and_heads_get_a_row_of_their_own_only_where_they_change_the_count():
    expected = {"mha": ["as it is"], "gqa": ["as it is", "as MHA"], "deepseek-v3": ["as it is", "as MHA"],
                "phi-3-mini-4k": ["as it is", "without windows"],
                "gpt-oss-20b": ["as it is", "without windows", "as MHA"]}
    for name, rows in expected.items():
        assert [row[0] for row in view(model=name).rows] == rows
    rows = {row[0]: row for row in view(model="gpt-oss-20b", tokens=131_072).rows}
    assert rows["as it is"][2] == "3.00 GiB" and rows["without windows"][2] == "6 GiB"


def test_every_public_config_is_a_choice_and_names_its_publisher():
    options = load("kv_calculator").inputs[0].options
    assert len(NAMES) >= 12 and set(NAMES) < set(options)
    assert model_name("llama-3.1-8b") == "meta-llama/Llama-3.1-8B" and options["llama-3.1-8b"] == "Llama-3.1-8B"
    assert max(map(len, options.values())) <= 32
    assert all("/" in model_name(name) and KVShape.from_hf(public_config(name)).layers for name in NAMES)


def test_a_budget_smaller_than_a_request_holds_none():
    assert view(model="mha", tokens=1_048_576, budget=0.1).rows[0][-1] == 0
    assert 'role="alert"' in respond("kv_calculator", {"budget": "all"})["html"]


def test_heads_are_drawn_to_the_kv_head_that_they_read():
    figure = head_sharing(8, [("MHA", 8), ("GQA", 2), ("MQA", 1)], 32, 128)
    assert figure.description == ("MHA: 8 query heads on 8 KV heads; GQA: 8 query heads on 2 KV heads; "
                                  "MQA: 8 query heads on 1 KV heads")
    svg = figure.svg()
    ends = [line.split('x2="')[1].split('"')[0] for line in svg.split("<line ")[1:] if 'y1="48"' in line]
    assert len(ends) == 24 and [len(set(ends[i : i + 8])) for i in (0, 8, 16)] == [8, 2, 1]
    assert ends[8:12] == ends[8:9] * 4 and ends[12:16] == ends[12:13] * 4  # neighbours share: h // group
    assert all(f"{size} a token" in svg for size in ("128 KiB", "32 KiB", "16 KiB"))


def test_the_growth_figure_ends_at_the_counted_bytes_and_draws_a_limit_in_sight_only():
    curves = [(name, shape_of(name).bytes) for name in ("llama-3.1-8b", "mistral-7b")]
    figure = kv_growth("figure-test", curves, 131_072, limit=(2**33, "budget"))
    assert figure.description == "at 131072 tokens: llama-3.1-8b: 16 GiB; mistral-7b: 512 MiB"
    assert "budget 8 GiB" in figure.svg()
    assert "budget" not in kv_growth("figure-test", curves, 131_072, limit=(2**35, "budget")).svg()
