"""Quality: a choice before and after, what rounding can turn, a fair comparison, a scale chosen on other data."""

import math

import numpy as np

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.quality import decisions, lead, margin
from mgpt.quantize import dequantize, error_split, quantize
from mgpt.sampling import greedy
from mgpt.text import N_

CITIES = ("Paris", "Lyon", "Rome", "Oslo", "Bern", "Turin", "Genoa", "Milan", "Porto", "Ghent")


# ---------------------------------------------------------------- 1: a choice, before and after
def compared(names, before, after, **wrong):
    """The right dict, or one with some entries replaced."""
    decision, = decisions([before], [after])
    return {"chosen": names[decision.token], "margin": decision.margin, "chosen_after": names[decision.token_after],
            "lead_after": decision.lead_after, **wrong}


def last_of_equals(row):
    return len(row) - 1 - greedy(row[::-1])


def by_name(names, row):
    return min(name for name, logit in zip(names, row) if logit == max(row))


def second_distinct(row):
    values = sorted(set(row))
    return values[-1] - values[-2] if len(values) > 1 else 0.0


def old_runner_up(before, after):
    """The old choice against the old second alone."""
    first = greedy(before)
    second = greedy([-math.inf if i == first else logit for i, logit in enumerate(before)])
    return after[first] - after[second]


def probability_lead(row):
    weights = [math.exp(logit - max(row)) for logit in row]
    ordered = sorted(weights)
    return (ordered[-1] - ordered[-2]) / sum(weights)


def draw_choice(rng):
    """Logits in eighths and what rounding with a scale makes of them: ties are common, before and after."""
    n = rng.randrange(2, 6)
    before = [rng.randrange(0, 25) / 8 for _ in range(n)]
    if rng.randrange(4) == 0:
        before[rng.randrange(n)] = max(before)
    after = [logit + rng.randrange(-4, 5) / 8 for logit in before]
    if rng.randrange(2):
        scale = rng.choice([0.5, 1.0])
        after = dequantize(quantize(before, scale, bits=8), scale).tolist()
    return rng.sample(CITIES, n), before, after


Q1 = Question(
    "07_quality.q1", "compare_choice", points=3, reference=compared, draw=draw_choice, fresh=12,
    cases=(
        Case((["Paris", "Lyon"], [0.6, 0.7], [0.5, 0.5]),
             {"chosen": "Lyon", "margin": 0.1, "chosen_after": "Paris", "lead_after": 0.0}),
        Case((["Rome", "Oslo", "Bern"], [2.0, 3.0, 1.5], [2.75, 2.5, 3.0]),
             {"chosen": "Oslo", "margin": 1.0, "chosen_after": "Bern", "lead_after": -0.5}),
        Case((["Turin", "Genoa", "Milan"], [1.5, 1.5, 0.5], [1.0, 2.0, 0.5]),
             {"chosen": "Turin", "margin": 0.0, "chosen_after": "Genoa", "lead_after": -1.0}),
    ),
    mistakes=(
        Mistake("last of equals", lambda n, b, a: compared(
            n, b, a, chosen=n[last_of_equals(b)], chosen_after=n[last_of_equals(a)],
            lead_after=lead(a, last_of_equals(b))),
                N_("greedy takes the first of equal logits, not the last")),
        Mistake("tie by name", lambda n, b, a: compared(
            n, b, a, chosen=by_name(n, b), chosen_after=by_name(n, a), lead_after=lead(a, n.index(by_name(n, b)))),
                N_("a tie goes to the first in the given order; the alphabet decides nothing")),
        Mistake("lead of the new choice", lambda n, b, a: compared(n, b, a, lead_after=margin(a)),
                N_("lead_after belongs to the token chosen before: it is negative where another one leads")),
        Mistake("lead without its sign", lambda n, b, a: compared(
            n, b, a, lead_after=abs(compared(n, b, a)["lead_after"])),
                N_("the sign is the message: a negative lead says that another token leads")),
        Mistake("old runner-up alone", lambda n, b, a: compared(n, b, a, lead_after=old_runner_up(b, a)),
                N_("any token may overtake the old choice, not only the one that was second before")),
        Mistake("change of the logit", lambda n, b, a: compared(
            n, b, a, lead_after=a[greedy(b)] - b[greedy(b)]),
                N_("that is how far the chosen logit moved; a lead compares it with the others of the same row")),
        Mistake("distance to the smallest", lambda n, b, a: compared(n, b, a, margin=max(b) - min(b)),
                N_("the margin is the distance to the second largest logit; the smallest decides nothing")),
        Mistake("equal logits taken as one", lambda n, b, a: compared(n, b, a, margin=second_distinct(b)),
                N_("two equal largest logits are a tie: the second largest is as large as the first, margin 0")),
        Mistake("margin in probabilities", lambda n, b, a: compared(n, b, a, margin=probability_lead(b)),
                N_("the margin is asked in logits; no softmax is needed")),
        Mistake("not chosen again", lambda n, b, a: compared(n, b, a, chosen_after=n[greedy(b)]),
                N_("after the change greedy chooses anew, from the new logits")),
        Mistake("smallest chosen", lambda n, b, a: compared(
            n, b, a, chosen=n[b.index(min(b))], chosen_after=n[a.index(min(a))]),
                N_("greedy takes the largest logit")),
    ),
    hints=(
        N_("Which index holds the largest logit, and which rule decides where two are equal?"),
        N_("A lead is: this logit minus the largest of all others. Before, it is the margin; after, maybe negative."),
        N_("first = before.index(max(before)); margin = before[first] − the largest of the others before; "
           "lead_after = after[first] − the largest of the others after."),
    ),
    stands_for=("mgpt.quality.decisions", "mgpt.quality.lead", "mgpt.quality.margin"),
)


# ---------------------------------------------------------------- 2: which choices rounding can turn
def unprotected(rows, scale):
    return [i for i, row in enumerate(rows) if not margin(row) > scale]


def those(test):
    """rows, scale -> indices of the rows that a test(row, scale) holds for."""
    return lambda rows, scale: [i for i, row in enumerate(rows) if test(row, scale)]


def any_pair(row, scale):
    ordered = sorted(row)
    return any(b - a <= scale for a, b in zip(ordered, ordered[1:]))


def draw_rows(rng):
    scale = rng.choice([0.25, 0.5, 1.0])
    rows = []
    for _ in range(rng.randrange(6, 10)):
        top = rng.randrange(8, 40) / 8
        near = top - rng.choice([0.0, 0.5, 0.75, 1.0, 1.25, 1.75, 2.0, 2.5]) * scale
        row = [top, near, *(near - rng.randrange(0, 9) / 8 for _ in range(rng.randrange(0, 3)))]
        rng.shuffle(row)
        rows.append(row)
    return rows, scale


Q2 = Question(
    "07_quality.q2", "unprotected", points=2, whole=True, reference=unprotected, draw=draw_rows, fresh=8,
    cases=(
        Case(([[0.6, 0.7], [0.1, 1.4], [2.0, 1.5], [3.0, 0.0, 2.75], [1.75, 2.5, 1.5], [1.0, 1.0, 0.0],
               [0.25, 0.0, 1.5]], 0.5), [0, 2, 3, 5]),
        Case(([[4.0, 2.75], [4.0, 3.5, 3.5]], 1.0), [1]),
    ),
    mistakes=(
        Mistake("half the scale", those(lambda row, s: margin(row) <= s / 2),
                N_("each logit moves by up to s/2, and two can move towards each other: together s")),
        Mistake("twice the scale", those(lambda row, s: margin(row) <= 2 * s),
                N_("s is already the sum of both movements, s/2 each: 2s would ask for checks that are not needed")),
        Mistake("equality called safe", those(lambda row, s: margin(row) < s),
                N_("a margin equal to s can shrink to a tie, which the order decides: only more than s is safe")),
        Mistake("those that do change", those(
            lambda row, s: greedy(dequantize(quantize(row, s, bits=8), s)) != greedy(row)),
                N_("that lists choices which changed in this rounding; asked is which the bound does not protect")),
        Mistake("the safe ones", those(lambda row, s: margin(row) > s),
                N_("these are the protected decisions; the others are asked for")),
        Mistake("largest minus smallest", those(lambda row, s: max(row) - min(row) <= s),
                N_("the second largest logit is the rival, not the smallest")),
        Mistake("equal logits taken as one", those(lambda row, s: second_distinct(row) <= s and margin(row) > 0),
                N_("two equal largest logits have margin 0: a tie is the least protected of all")),
        Mistake("any two logits", those(any_pair),
                N_("only the distance between the two largest counts; close logits further down decide nothing")),
        Mistake("margin as a share", those(lambda row, s: margin(row) <= s * max(row)),
                N_("the bound is a distance in logits; it is not measured against the size of the logit")),
        Mistake("counted from 1", lambda rows, s: [i + 1 for i in unprotected(rows, s)],
                N_("indices count from 0")),
    ),
    hints=(
        N_("How far can rounding move one logit? And two of them, towards each other?"),
        N_("Compare each row's margin with that distance. What if both are equal?"),
        N_("A row is protected if its largest minus its second largest logit is more than the scale; list the others."),
    ),
    stands_for=("mgpt.quality.decisions", "mgpt.quality.lead", "mgpt.quality.margin"),
)


# ---------------------------------------------------------------- 3: a fair comparison
def harness(questions, before, after, **wrong):
    """The right dict, or one with entries replaced: each is a sum over a function of (question, old, new answer)."""
    rules = {
        "n": lambda q, old, new: True,
        "right_before": lambda q, old, new: old == q["answer"],
        "right_after": lambda q, old, new: new == q["answer"],
        "changed": lambda q, old, new: old != new,
        "broken": lambda q, old, new: old == q["answer"] != new,
        "mended": lambda q, old, new: old != q["answer"] == new,
        "stale": lambda q, old, new: new in q["superseded"],
        "missing": lambda q, old, new: new is None,
        **wrong,
    }
    return {key: sum(bool(rule(q, before.get(q["prompt"]), after.get(q["prompt"]))) for q in questions)
            for key, rule in rules.items()}


def replaced(change):
    """The right dict with entries computed from it: change(right, questions, before, after)."""
    def wrong(questions, before, after):
        right = harness(questions, before, after)
        return right | change(right, questions, before, after)

    return wrong


def draw_runs(rng):
    """Six to ten questions; runs with right, stale, other and missing answers, and prompts that nobody asked for."""
    questions, before, after = [], {}, {}
    for number in range(rng.randrange(6, 11)):
        right, old, other = (str(value) for value in rng.sample(range(100, 1000), 3))
        superseded = [old] if rng.randrange(3) else []
        questions.append({"prompt": f"question {number}", "answer": right, "superseded": superseded})
        for run, weights in ((before, (6, 1, 1, 1)), (after, (4, 2, 2, 1))):
            answer, = rng.choices([right, old, other, None], weights)
            if answer is not None:
                run[f"question {number}"] = answer
    for run in (before, after):
        if rng.randrange(2):
            run["question of another set"] = str(rng.randrange(100, 1000))
    order = list(after)
    rng.shuffle(order)
    return questions, before, {prompt: after[prompt] for prompt in order}


def asked_of(*answers):
    return [{"prompt": prompt, "answer": right, "superseded": superseded} for prompt, right, superseded in answers]


Q3 = Question(
    "07_quality.q3", "compare_runs", points=3, whole=True, reference=harness, draw=draw_runs, fresh=12,
    cases=(
        Case((asked_of(("hotel?", "750", ["600"]), ("train?", "430", []), ("taxi?", "150", [])),
              {"hotel?": "750", "train?": "430", "taxi?": "150"},
              {"taxi?": "150", "hotel?": "600", "train?": "430"}),
             {"n": 3, "right_before": 3, "right_after": 2, "changed": 1, "broken": 1, "mended": 0, "stale": 1,
              "missing": 0}),
        Case((asked_of(("hotel?", "750", ["600"]), ("train?", "430", []), ("taxi?", "150", ["120", "135"]),
                       ("meal?", "212", []), ("visa?", "388", ["301"]), ("bus?", "105", []), ("car?", "640", []),
                       ("tram?", "111", ["118"]), ("gift?", "222", [])),
              {"hotel?": "755", "train?": "430", "taxi?": "120", "meal?": "213", "visa?": "388", "bus?": "105",
               "ferry?": "900", "tram?": "111"},
              {"visa?": "301", "train?": "430", "hotel?": "750", "taxi?": "135", "ferry?": "905", "tram?": "116",
               "gift?": "222"}),
             {"n": 9, "right_before": 4, "right_after": 3, "changed": 7, "broken": 3, "mended": 2, "stale": 2,
              "missing": 3}),
    ),
    mistakes=(
        Mistake("answered ones only", replaced(lambda r, q, b, a: {"n": r["n"] - r["missing"]}),
                N_("a question without an answer stays in the count: leaving it out makes the run look better")),
        Mistake("other prompts counted", replaced(lambda r, q, b, a: {"n": len(set(a) | {x["prompt"] for x in q})}),
                N_("only the given questions count; an answer to another prompt has nothing to be compared with")),
        Mistake("changed means wrong", replaced(lambda r, q, b, a: {"changed": r["n"] - r["right_after"]}),
                N_("changed and wrong are two things: an answer that was wrong before and stayed so has not changed")),
        Mistake("changed as a difference of counts", replaced(
            lambda r, q, b, a: {"changed": abs(r["right_before"] - r["right_after"])}),
                N_("two runs with equal accuracy can differ in many answers: compare answer by answer")),
        Mistake("wrong to wrong not seen", replaced(lambda r, q, b, a: {"changed": r["broken"] + r["mended"]}),
                N_("one wrong answer that became another wrong answer has changed too")),
        Mistake("missing is no change", lambda q, b, a: harness(
            q, b, a, changed=lambda _q, old, new: old is not None and new is not None and old != new),
                N_("an answer that went missing, or that came, is a change")),
        Mistake("missing twice is a change", lambda q, b, a: harness(
            q, b, a, changed=lambda _q, old, new: old != new or old is None),
                N_("a question that neither run answered has not changed")),
        Mistake("every wrong one is stale", replaced(lambda r, q, b, a: {"stale": r["n"] - r["right_after"]}),
                N_("stale is only an answer that was superseded; most wrong answers may be something else")),
        Mistake("stale before", lambda q, b, a: harness(q, b, a, stale=lambda x, old, new: old in x["superseded"]),
                N_("stale answers are asked of the run after the change")),
        Mistake("first superseded only", lambda q, b, a: harness(
            q, b, a, stale=lambda x, old, new: new in x["superseded"][:1]),
                N_("any superseded value is stale, not only the first of them")),
        Mistake("broken means wrong", replaced(lambda r, q, b, a: {"broken": r["n"] - r["right_after"]}),
                N_("broken is what was right before: an answer that was wrong already is not broken by the change")),
        Mistake("broken as a net figure", replaced(
            lambda r, q, b, a: {"broken": max(0, r["right_before"] - r["right_after"]),
                                "mended": max(0, r["right_after"] - r["right_before"])}),
                N_("broken and mended are counted apart; their difference hides both")),
        Mistake("missing before", lambda q, b, a: harness(q, b, a, missing=lambda _q, old, new: old is None),
                N_("missing answers are asked of the run after the change")),
        Mistake("missing in either", lambda q, b, a: harness(
            q, b, a, missing=lambda _q, old, new: None in (old, new)),
                N_("missing answers are asked of the run after the change; those of the run before do not belong")),
    ),
    hints=(
        N_("Go through the questions one by one. What are the old and the new answer to this prompt, if any?"),
        N_("dict.get(prompt) gives None for a missing answer, and None is never right. Count each figure apart."),
        N_("changed: old != new. broken: old right, new not. mended: old not right, new right. "
           "stale: new in question[\"superseded\"]. missing: new is None."),
    ),
)
Q3_WHY = choice(
    "07_quality.q3_why", "q3_why", "c",
    {"a": N_("a count of 1 among 47 shows that superseded values hardly occur here; the sentence says the opposite"),
     "b": N_("97 % of what, and good enough for what? The sentence names neither format nor questions nor a need"),
     "d": N_("one checkpoint and one format were measured; nothing was seen of other models")},
    hints=(N_("Which of the sentences could be checked against the table, word by word?"),
           N_("Who was measured, in which format, on which questions?"),
           N_("Three sentences say more than was measured; one says exactly that.")),
)


# ---------------------------------------------------------------- 4: a scale from the calibration split
def squares(values, scale, rounding=None):
    """Squared errors of 4-bit codes; `rounding(x, scale)` gives other codes."""
    codes = quantize(values, scale) if rounding is None else np.array([rounding(x, scale) for x in values])
    return np.square(np.array(values) - scale * codes.astype(float))


def best(values, scales, cost, among_equals=max):
    costs = [cost(values, scale) for scale in scales]
    return among_equals(scale for scale, value in zip(scales, costs) if value == min(costs))


def total_error(values, scale):
    return float(squares(values, scale).sum())


def picked(calibration, evaluation, scales, scale=None, **wrong):
    """The right dict, or one with another scale (the rest follows) or other entries."""
    scale = best(calibration, scales, total_error) if scale is None else scale
    return {"scale": scale, "error": total_error(evaluation, scale) / len(evaluation),
            "clipped": int(error_split(evaluation, scale).clipped.sum()), **wrong}


def rounded_otherwise(rounding):
    def wrong(calibration, evaluation, scales):
        scale = best(calibration, scales, lambda values, s: float(squares(values, s, rounding).sum()))
        return picked(calibration, evaluation, scales, scale,
                      error=float(squares(evaluation, scale, rounding).sum()) / len(evaluation))

    return wrong


def with_entry(key, value):
    """The right dict with one entry from value(right, calibration, evaluation)."""
    def wrong(calibration, evaluation, scales):
        right = picked(calibration, evaluation, scales)
        return right | {key: value(right, calibration, evaluation)}

    return wrong


def clip(code, low=-7, high=7):
    return max(low, min(high, code))


def draw_splits(rng):
    """Values in sixteenths, most of them small and a few far out, differently in the two splits."""
    def values(spread, n_far):
        near = [rng.randrange(-spread, spread + 1) / 16 for _ in range(rng.randrange(8, 14))]
        far = [rng.choice([-1, 1]) * rng.randrange(40, 120) / 16 for _ in range(n_far)]
        return near + far

    first, second = rng.sample([12, 16, 24, 32], 2)
    scales = sorted(rng.sample([0.125, 0.1875, 0.25, 0.375, 0.5, 0.75, 1.0, 1.5], 6))
    return values(first, rng.randrange(0, 3)), values(second, rng.randrange(0, 3)), scales


Q4 = Question(
    "07_quality.q4", "pick_scale", points=3, reference=picked, draw=draw_splits, fresh=10,
    cases=(
        Case(([-0.5625, 0.4375, 1.0, -1.25], [-0.375, -1.1875, 1.1875, -4.9375], [0.125, 0.375, 0.5, 0.75]),
             {"scale": 0.5, "error": 0.5380859375, "clipped": 1}),
        Case(([-1.375, 0.0, -0.375], [0.75, -0.5, -1.125, 2.75], [0.125, 0.25, 0.375, 0.5]),
             {"scale": 0.375, "error": 0.0078125, "clipped": 0}),
    ),
    mistakes=(
        Mistake("chosen on the evaluation set", lambda c, e, s: picked(c, e, s, best(e, s, total_error)),
                N_("this scale was chosen on the evaluation values: its error promises what new data will not get")),
        Mistake("chosen on both splits", lambda c, e, s: picked(c, e, s, best(c + e, s, total_error)),
                N_("the evaluation values took part in the choice: choose on the calibration values alone")),
        Mistake("error on the calibration split", with_entry(
            "error", lambda r, c, e: total_error(c, r["scale"]) / len(c)),
                N_("the error is reported on the evaluation values; on those it was chosen by, it looks too good")),
        Mistake("sum for mean", with_entry("error", lambda r, c, e: total_error(e, r["scale"])),
                N_("the mean squared error is asked for: divide by the number of evaluation values")),
        Mistake("clipped on the calibration split", with_entry(
            "clipped", lambda r, c, e: int(error_split(c, r["scale"]).clipped.sum())),
                N_("clipped values are counted in the evaluation set")),
        Mistake("clipped by the value", with_entry("clipped", lambda r, c, e: sum(abs(x) > 7 * r["scale"] for x in e)),
                N_("clipped is judged by the code: a quotient of 7.3 rounds to 7 and is not clipped")),
        Mistake("clipped counts the edge", with_entry(
            "clipped", lambda r, c, e: sum(abs(int(code)) == 7 for code in quantize(e, r["scale"]))),
                N_("a value whose own code is 7 is not clipped; only codes beyond 7 are")),
        Mistake("nothing clipped", lambda c, e, s: picked(c, e, s, max(s)),
                N_("the widest scale clips least and rounds coarsest: the smallest error decides, not the range")),
        Mistake("finest scale", lambda c, e, s: picked(c, e, s, min(s)),
                N_("the finest scale rounds best and clips most: the smallest error over all values decides")),
        Mistake("smallest of equals", lambda c, e, s: picked(c, e, s, best(c, s, total_error, min)),
                N_("among scales of equal error the largest is taken")),
        Mistake("chosen by the largest error", lambda c, e, s: picked(
            c, e, s, best(c, s, lambda v, scale: float(squares(v, scale).max()))),
                N_("the sum of the squared errors decides, not the single largest one")),
        Mistake("not clipped", rounded_otherwise(lambda x, s: round(x / s)),
                N_("codes end at −7 and 7; without clipping the finest scale always seems best")),
        Mistake("code −8 used", rounded_otherwise(lambda x, s: clip(round(x / s), -8)),
                N_("the symmetric range is −7 … 7; the code −8 stays unused")),
    ),
    hints=(
        N_("Two steps, two lists: one list chooses the scale, the other only measures it."),
        N_("For each scale: codes of the calibration values (round, clip to −7 … 7), restored values, squared errors."),
        N_("scale = the largest of those with the smallest sum on calibration; then, with it, the mean of the squared "
           "errors and the number of |round(x / scale)| > 7 on evaluation."),
    ),
    stands_for=("mgpt.quantize.error_split", "mgpt.quantize.symmetric_scale"),
)
Q4_WHY = choice(
    "07_quality.q4_why", "q4_why", "a",
    {"b": N_("both splits take the same time; that is not the reason"),
     "c": N_("the range may differ in either direction; what matters is that new data took no part in the choice"),
     "d": N_("the formula does not care which values it gets; the meaning of the reported number does")},
    hints=(N_("Whom is the reported error for?"),
           N_("Of many candidates one fits a given list best, partly by luck. What is that luck worth elsewhere?"),
           N_("Values of tomorrow take no part in today's choice. Which split is in the same position?")),
)

QUESTIONS = (Q1, Q2, Q3, Q3_WHY, Q4, Q4_WHY)
