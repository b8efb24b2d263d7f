"""The checks of 07 are worth their points; the chapter's control and figures show what `mgpt` computes."""

import math
import re

import numpy as np
import pytest
from exercise_lists import install, spoil

from mgpt.checkpoint import load_mg2
from mgpt.course.questions import find
from mgpt.generate import generate_cached
from mgpt.policy import TRAVEL_PROMPT, questions
from mgpt.policy_eval import Evaluation
from mgpt.quality import margin
from mgpt.quantize import quantize_params
from mgpt.quantized_cache import QuantizedKVCache
from mgpt.widgets import load, respond
from mgpt.widgets.margin_line import margin_line
from mgpt.widgets.margins import margins

STEM = "07_quality"


# ------------------------------------------------------------------ right answers, written differently
def q1_with_loops(names, before, after):
    def winner(row):
        best = 0
        for i in range(1, len(row)):
            if row[i] > row[best]:
                best = i
        return best

    first, second = winner(before), winner(after)
    others = [i for i in range(len(names)) if i != first]
    return {"chosen": names[first], "chosen_after": names[second],
            "margin": min(before[first] - before[i] for i in others),
            "lead_after": min(after[first] - after[i] for i in others)}


def q1_with_numpy(names, before, after):
    first = int(np.argmax(before))
    return dict(chosen=names[first], margin=np.diff(np.sort(before))[-1], chosen_after=names[np.argmax(after)],
                lead_after=np.float64(after[first]) - np.max(np.delete(after, first)))


def q1_with_sorting(names, before, after):
    order = sorted(range(len(names)), key=lambda i: (-before[i], i))
    later = sorted(range(len(names)), key=lambda i: (-after[i], i))
    rival = later[0] if later[0] != order[0] else later[1]
    return {"chosen": names[order[0]], "margin": before[order[0]] - before[order[1]], "chosen_after": names[later[0]],
            "lead_after": after[order[0]] - after[rival]}


def q2_by_pairs(rows, scale):
    result = []
    for index in range(len(rows)):
        row = list(rows[index])
        top = max(row)
        row.remove(top)
        if not top - max(row) > scale:
            result += [index]
    return result


def q2_with_numpy(rows, scale):
    return np.array([i for i, row in enumerate(rows) if np.subtract(*np.sort(row)[[-1, -2]]) <= scale], dtype=int)


def q3_with_lists(asked, before, after):
    both = [(q, before.get(q["prompt"]), after.get(q["prompt"])) for q in asked]
    right = lambda q, given: given is not None and given == q["answer"]  # noqa: E731
    return {
        "n": len(asked), "right_before": len([1 for q, x, y in both if right(q, x)]),
        "right_after": len([1 for q, x, y in both if right(q, y)]), "changed": len([1 for q, x, y in both if x != y]),
        "broken": len([1 for q, x, y in both if right(q, x) and not right(q, y)]),
        "mended": len([1 for q, x, y in both if right(q, y) and not right(q, x)]),
        "stale": len([1 for q, x, y in both if y in q["superseded"]]),
        "missing": len([1 for q, x, y in both if y is None]),
    }


def q3_with_sets(asked, before, after):
    prompts = {q["prompt"] for q in asked}
    old = {q["prompt"] for q in asked if before.get(q["prompt"], "") == q["answer"]}
    new = {q["prompt"] for q in asked if after.get(q["prompt"], "") == q["answer"]}
    return {"n": len(prompts), "right_before": len(old), "right_after": len(new), "broken": len(old - new),
            "mended": len(new - old), "changed": sum(before.get(p, "-") != after.get(p, "-") for p in prompts),
            "stale": sum(after.get(q["prompt"]) in set(q["superseded"]) for q in asked),
            "missing": len(prompts - set(after))}


def q3_one_by_one(asked, before, after):
    n = len(asked)
    total = dict(n=n, right_before=0, right_after=0, changed=0, broken=0, mended=0, stale=0, missing=0)
    for q in asked:
        p = q["prompt"]
        if p in before and before[p] == q["answer"]:
            total["right_before"] += 1
            if p not in after or after[p] != q["answer"]:
                total["broken"] += 1
        elif p in after and after[p] == q["answer"]:
            total["mended"] += 1
        if p in after:
            total["right_after"] += int(after[p] == q["answer"])
            total["stale"] += int(any(after[p] == stale for stale in q["superseded"]))
            total["changed"] += int(p not in before or before[p] != after[p])
        else:
            total["missing"] += 1
            total["changed"] += int(p in before)
    return total


def q4_with_loops(calibration, evaluation, scales, code_of=None):
    code_of = code_of or (lambda x, s: min(7, max(-7, round(x / s))))
    best, best_error = None, math.inf
    for scale in sorted(scales):
        error = 0.0
        for x in calibration:
            error += (x - code_of(x, scale) * scale) ** 2
        if error <= best_error:
            best, best_error = scale, error
    squares = [(x - code_of(x, best) * best) ** 2 for x in evaluation]
    return {"scale": best, "error": sum(squares) / len(squares),
            "clipped": len([x for x in evaluation if not -7 <= round(x / best) <= 7])}


def q4_with_numpy(calibration, evaluation, scales):
    def stored(x, s):
        return s * np.clip(np.rint(np.array(x) / s), -7, 7)

    errors = {s: np.square(calibration - stored(calibration, s)).sum() for s in scales}
    scale = max(s for s, error in errors.items() if error == min(errors.values()))
    return {"clipped": np.count_nonzero(np.abs(np.rint(np.array(evaluation) / scale)) > 7), "scale": scale,
            "error": np.mean((evaluation - stored(evaluation, scale)) ** 2)}


def q4_by_sorting(calibration, evaluation, scales):
    def cost(values, s):
        return sum((x - s * max(-7, min(7, round(x / s)))) ** 2 for x in values)

    scale = sorted(scales, key=lambda s: (cost(calibration, s), -s))[0]
    return {"scale": scale, "error": cost(evaluation, scale) / len(evaluation),
            "clipped": sum(1 for x in evaluation if abs(x / scale) >= 7.5)}


RIGHT = {
    "q1": [q1_with_loops, q1_with_numpy, q1_with_sorting],
    "q2": [q2_by_pairs, q2_with_numpy,
           lambda rows, s: [i for i in range(len(rows)) if max(rows[i]) - sorted(rows[i])[-2] <= s]],
    "q3": [q3_with_lists, q3_with_sets, q3_one_by_one],
    "q4": [q4_with_loops, q4_with_numpy, q4_by_sorting],
}


# ------------------------------------------------------------------ wrong answers: name of the mistake -> code
def q1_by(index_of):
    """q1 with another way to find the winner."""
    def answer(names, before, after):
        first, second = index_of(names, before), index_of(names, after)
        ordered = sorted(before)
        return {"chosen": names[first], "margin": ordered[-1] - ordered[-2], "chosen_after": names[second],
                "lead_after": after[first] - max(after[:first] + after[first + 1:])}

    return answer


def top(row):
    return row.index(max(row))


def softmax_margin(r, n, b, a):
    p = np.exp(np.array(b)) / np.exp(np.array(b)).sum()
    return float(np.sort(p)[-1] - np.sort(p)[-2])


def distinct(row):
    return (sorted(set(row))[-1] - sorted(set(row))[-2]) if len(set(row)) > 1 else 0.0


def rows_where(test):
    return lambda rows, s: [i for i, row in enumerate(rows) if test(sorted(row), s)]


def rounded(row, s):
    return [round(x / s) * s for x in row]


def q4_on(choose_from, judged=None, pick=None):
    """q4 with another list to choose from, or another rule to pick by."""
    def answer(c, e, scales):
        scale = pick(c, scales) if pick else q4_by_sorting(choose_from(c, e), e, scales)["scale"]
        return q4_by_sorting(c, e, [scale])

    return answer


def worst(values, s):
    return max(abs(x - s * max(-7, min(7, round(x / s)))) for x in values)


def mean_square(values, s):
    return sum((x - s * max(-7, min(7, round(x / s)))) ** 2 for x in values) / len(values)


def q4_smallest_equal(c, scales):
    return min(scales, key=lambda s: (mean_square(c, s), s))


def q4_codes(low, high):
    def answer(c, e, scales):
        code_of = lambda x, s: min(high, max(low, round(x / s)))  # noqa: E731
        found = q4_with_loops(c, e, scales, code_of)
        return {**found, "clipped": sum(abs(round(x / found["scale"])) > 7 for x in e)}

    return answer


q1, q3, q4 = q1_with_loops, q3_with_lists, q4_by_sorting
WRONG = {
    "q1": {
        "last of equals": q1_by(lambda n, row: max(range(len(row)), key=lambda i: (row[i], i))),
        "tie by name": q1_by(lambda n, row: min(range(len(row)), key=lambda i: (-row[i], n[i]))),
        "lead of the new choice": spoil(q1, lead_after=lambda r, n, b, a: sorted(a)[-1] - sorted(a)[-2]),
        "lead without its sign": spoil(q1, lead_after=lambda r, n, b, a: abs(r["lead_after"])),
        "old runner-up alone": spoil(q1, lead_after=lambda r, n, b, a: a[top(b)] - a[
            max((i for i in range(len(b)) if i != top(b)), key=lambda i: (b[i], -i))]),
        "change of the logit": spoil(q1, lead_after=lambda r, n, b, a: a[top(b)] - b[top(b)]),
        "distance to the smallest": spoil(q1, margin=lambda r, n, b, a: max(b) - min(b)),
        "equal logits taken as one": spoil(q1, margin=lambda r, n, b, a: distinct(b)),
        "margin in probabilities": spoil(q1, margin=softmax_margin),
        "not chosen again": spoil(q1, chosen_after=lambda r, n, b, a: r["chosen"]),
        "smallest chosen": spoil(q1, chosen=lambda r, n, b, a: n[b.index(min(b))],
                                 chosen_after=lambda r, n, b, a: n[a.index(min(a))]),
    },
    "q2": {
        "half the scale": rows_where(lambda row, s: row[-1] - row[-2] <= s / 2),
        "twice the scale": rows_where(lambda row, s: row[-1] - row[-2] <= s + s),
        "equality called safe": rows_where(lambda row, s: row[-1] - row[-2] < s),
        "those that do change": lambda rows, s: [i for i, row in enumerate(rows) if top(rounded(row, s)) != top(row)],
        "the safe ones": rows_where(lambda row, s: row[-1] - row[-2] > s),
        "largest minus smallest": rows_where(lambda row, s: row[-1] - row[0] <= s),
        "equal logits taken as one": rows_where(lambda row, s: row[-1] != row[-2] and row[-1] - row[-2] <= s),
        "any two logits": rows_where(lambda row, s: min(np.diff(row)) <= s),
        "margin as a share": rows_where(lambda row, s: row[-1] - row[-2] <= row[-1] * s),
        "counted from 1": lambda rows, s: [i + 1 for i in q2_by_pairs(rows, s)],
    },
    "q3": {
        "answered ones only": spoil(q3, n=lambda r, q, b, a: sum(x["prompt"] in a for x in q)),
        "other prompts counted": spoil(q3, n=lambda r, q, b, a: len({x["prompt"] for x in q} | a.keys())),
        "changed means wrong": spoil(q3, changed=lambda r, q, b, a: r["n"] - r["right_after"]),
        "changed as a difference of counts": spoil(
            q3, changed=lambda r, q, b, a: abs(r["right_after"] - r["right_before"])),
        "wrong to wrong not seen": spoil(q3, changed=lambda r, q, b, a: r["mended"] + r["broken"]),
        "missing is no change": spoil(q3, changed=lambda r, q, b, a: sum(
            b[x["prompt"]] != a[x["prompt"]] for x in q if x["prompt"] in b and x["prompt"] in a)),
        "missing twice is a change": spoil(q3, changed=lambda r, q, b, a: sum(
            not (x["prompt"] in b and x["prompt"] in a and b[x["prompt"]] == a[x["prompt"]]) for x in q)),
        "every wrong one is stale": spoil(q3, stale=lambda r, q, b, a: r["n"] - r["right_after"]),
        "stale before": spoil(q3, stale=lambda r, q, b, a: sum(b.get(x["prompt"]) in x["superseded"] for x in q)),
        "first superseded only": spoil(q3, stale=lambda r, q, b, a: sum(
            bool(x["superseded"]) and a.get(x["prompt"]) == x["superseded"][0] for x in q)),
        "broken means wrong": spoil(q3, broken=lambda r, q, b, a: r["n"] - r["right_after"]),
        "broken as a net figure": spoil(q3, broken=lambda r, q, b, a: max(r["broken"] - r["mended"], 0),
                                        mended=lambda r, q, b, a: max(r["mended"] - r["broken"], 0)),
        "missing before": spoil(q3, missing=lambda r, q, b, a: sum(x["prompt"] not in b for x in q)),
        "missing in either": spoil(q3, missing=lambda r, q, b, a: sum(
            x["prompt"] not in b or x["prompt"] not in a for x in q)),
    },
    "q4": {
        "chosen on the evaluation set": q4_on(lambda c, e: e),
        "chosen on both splits": q4_on(lambda c, e: c + e),
        "error on the calibration split": spoil(q4, error=lambda r, c, e, s: mean_square(c, r["scale"])),
        "sum for mean": spoil(q4, error=lambda r, c, e, s: r["error"] * len(e)),
        "clipped on the calibration split": spoil(q4, clipped=lambda r, c, e, s: sum(
            abs(round(x / r["scale"])) > 7 for x in c)),
        "clipped by the value": spoil(q4, clipped=lambda r, c, e, s: sum(abs(x / r["scale"]) > 7 for x in e)),
        "clipped counts the edge": spoil(q4, clipped=lambda r, c, e, s: sum(
            abs(round(x / r["scale"])) >= 7 for x in e)),
        "nothing clipped": q4_on(None, pick=lambda c, s: max(s)),
        "finest scale": q4_on(None, pick=lambda c, s: min(s)),
        "smallest of equals": q4_on(None, pick=q4_smallest_equal),
        "chosen by the largest error": q4_on(None, pick=lambda c, s: min(s, key=lambda x: (worst(c, x), -x))),
        "not clipped": q4_codes(-10**9, 10**9),
        "code −8 used": q4_codes(-8, 7),
    },
}


install(globals(), STEM, RIGHT, WRONG)


def test_paris_and_lyon_are_a_visible_case():
    case = find(f"{STEM}.q1").cases[0]
    assert case.args == (["Paris", "Lyon"], [0.6, 0.7], [0.5, 0.5])
    assert case.expected == {"chosen": "Lyon", "margin": 0.1, "chosen_after": "Paris", "lead_after": 0.0}


# ------------------------------------------------------------------ the control
@pytest.mark.parametrize("question, weights, kv", [
    (0, "float64", "float64"), (0, "8-row", "4"), (1, "4-tensor", "k4"), (151, "4-tensor", "float64"),
    (151, "4-32", "v4"), (225, "3-32", "8"), (256, "float64", "k4"),
])
def test_the_explorer_shows_what_the_engine_computes(question, weights, kv):
    params, config, tokenizer = load_mg2()
    if weights != "float64":
        bits, per = weights.split("-")
        params, _ = quantize_params(params, int(bits), {"32": 32}.get(per, per), include_embeddings=True)
    prompt = questions()[question - 1].prompt if question else TRAVEL_PROMPT
    ids = tokenizer.encode(prompt)
    bits = {"8": 8, "4": 4, "k4": (4, None), "v4": (None, 4), "float64": None}[kv]
    cache = None if bits is None else QuantizedKVCache(config, len(ids) + 2, bits)
    after = generate_cached(params, config, ids, 3, cache=cache)
    before = generate_cached(load_mg2()[0], config, ids, 3)
    view = load("quality_explorer").view({"question": question, "weights": weights, "kv": kv})
    old, new = tokenizer.decode(before.tokens), tokenizer.decode(after.tokens)
    assert f"float64 answers {old}; as stored here the answer is {new}: " in view.sentence
    assert len(view.rows) == 3 and view.rows[0][1:3] == (old[0], round(margin(before.logits[0]), 2))
    for n, (row, a, b) in enumerate(zip(view.rows, old, new)):
        assert row[1] == a
        if row[3] is None:  # behind the first digit that changed
            assert old[:n] != new[:n] and row[2] is row[4] is None
        else:
            assert old[:n] == new[:n] and row[3] == b and (row[4] > 0) == (a == b)


@pytest.mark.parametrize("state, words", [
    ({"question": 0, "weights": "4-tensor"}, "750: right"),
    ({"question": 151, "weights": "4-tensor"}, "676: wrong, and no earlier value"),
    ({"question": 151, "weights": "float64", "kv": "k4"}, "796: wrong, a superseded value"),
])
def test_the_explorer_says_which_kind_of_wrong_a_wrong_answer_is(state, words):
    assert words in respond("quality_explorer", state)["html"]


def test_the_explorer_names_bytes_with_their_scales():
    page = respond("quality_explorer", {"question": 1, "weights": "4-row", "kv": "4"})["html"]
    assert "Weights take 44,960 bytes" in page and "the cache of this request 5,760" in page


# ------------------------------------------------------------------ the figures
def marks(svg):
    """(dots, strokes of crosses) of a figure of margins."""
    return len(re.findall(r'<rect [^>]*width="3"', svg)), len(re.findall(r'<line [^>]*stroke-width="2"', svg))


def test_every_question_is_a_dot_or_a_cross():
    asked = tuple(questions()[:4])
    before = Evaluation(asked, ("100", "200", "300", "400"), (1.0, 2.0, 3.0, 4.5))
    after = Evaluation(asked, ("100", "201", "300", "400"), (1.5, 0.5, 2.0, 9.0))
    figure = margins(before, {"as it was": before, "changed": after})
    assert marks(figure.svg()) == (4 + 3, 2)
    assert "changed: 1 of 4 answers changed, smallest margin 0.500" in figure.description
    with pytest.raises(ValueError, match="one or two"):
        margins(before, {})


def test_a_dot_stands_at_both_margins_and_a_changed_answer_below_zero():
    asked = tuple(questions()[:3])
    before = Evaluation(asked, ("100", "200", "300"), (1.0, 2.0, 7.5))
    after = Evaluation(asked, ("100", "200", "301"), (1.0, 4.0, 3.0))
    svg = margins(before, {"after": after}).svg()
    dashed = [tuple(map(float, found)) for found in re.findall(
        r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"[^>]*stroke-dasharray', svg)]
    (_x, zero, _right, _zero), (x1, y1, x2, y2) = dashed
    dots = [(float(x) + 1.5, float(y) + 1.5) for x, y in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="3"', svg)]
    assert len(dots) == 2
    for (x, y), old, new in zip(dots, (1.0, 2.0), (1.0, 4.0)):
        assert (x - x1) / (x2 - x1) == pytest.approx(old / 8, abs=0.001)
        assert (y - y1) / (y2 - y1) == pytest.approx(new / 8, abs=0.001)
    strokes = re.findall(r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"[^>]*stroke-width="2"', svg)
    centre = [(float(a) + float(c)) / 2 for a, _b, c, _d in strokes], [(float(b) + float(d)) / 2 for _a, b, _c, d in strokes]
    assert centre[0][0] == pytest.approx(x1 + (x2 - x1) * 7.5 / 8, abs=0.1)
    assert centre[1][0] - zero == pytest.approx((y1 - y2) * 3 / 8, abs=0.1) and y1 == zero


def test_a_line_of_margins_has_a_cross_where_another_token_is_chosen():
    rows = [("kept", 2.0, 1.0, False), ("kept too", 2.0, 2.5, False), ("turned", 0.5, -1.0, True)]
    figure = margin_line("figure-x", "Three decisions", rows)
    assert figure.svg().count('stroke-width="2.4"') == 2 and "−1.00" in figure.svg()
    assert figure.description.endswith("kept too: before 2.00, after 2.50; turned: before 0.50, after -1.00")
