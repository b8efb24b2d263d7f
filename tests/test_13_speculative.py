"""The checks of chapter 13 are worth their points; its tree and its figures show what `mgpt` says.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import math
import re
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from exercise_lists import install, spoil
from scripted import Scripted

from mgpt.blocks import BlockPool
from mgpt.cache import KVCache
from mgpt.config import GPTConfig
from mgpt.course.questions import find
from mgpt.model import init_params
from mgpt.paged_cache import PagedKVCache
from mgpt.speculative import acceptance_rate, exact_distribution, expected_speedup, residual, speculative_generate, verify
from mgpt.widgets import load, respond
from mgpt.widgets.speculative_figures import acceptance_line, overlap, rewind_map, speedup_chart
from mgpt.widgets.speculative_tree import exact, paths, tree

STEM = "13_speculative"


# ------------------------------------------------------------------ right answers, written differently
def q1_bisect(guesses, q, p, numbers):
    def draw(weights, u):
        return bisect_right([x / sum(weights) for x in accumulate(weights)], u)

    n = 0
    while n < len(guesses) and numbers[n] * q[n][guesses[n]] < p[n][guesses[n]]:
        n += 1
    if n == len(guesses):
        return {"kept": guesses[:], "next": draw(p[n], numbers[n])}
    return {"kept": guesses[:n], "next": draw([max(b - a, 0.0) for a, b in zip(q[n], p[n])], numbers[n + 1])}


def q1_numpy(guesses, q, p, numbers):
    q, p, kept = np.array(q), np.array(p), []
    numbers = iter(numbers)
    for row_q, row_p, x in zip(q, p, guesses):
        if next(numbers) >= row_p[x] / row_q[x]:
            row = np.clip(row_p - row_q, 0, None)
            break
        kept.append(x)
    else:
        row = p[-1]
    return {"kept": kept, "next": int(np.argmax(np.cumsum(row / row.sum()) > next(numbers)))}


def q1_recursive(guesses, q, p, numbers):
    def draw(weights, u):
        total = 0
        for token, weight in enumerate(weights):
            total += Fraction(weight)
            if total > Fraction(u) * sum(map(Fraction, weights)):
                return token

    if not guesses:
        return {"kept": [], "next": draw(p[0], numbers[0])}
    x = guesses[0]
    if numbers[0] < p[0][x] / q[0][x]:
        later = q1_recursive(guesses[1:], q[1:], p[1:], numbers[1:])
        return {"kept": [x, *later["kept"]], "next": later["next"]}
    return {"kept": [], "next": draw([b - a if b > a else 0 for a, b in zip(q[0], p[0])], numbers[1])}


def q2_paths(drawn, q, p):
    """Path by path."""
    n = len(p)
    gap = [max(p[y] - q[y], 0) for y in range(n)]
    out = [0.0] * n
    for x in range(n):
        keep = min(1, p[x] / q[x])
        out[x] += drawn[x] * keep
        if keep < 1:
            for y in range(n):
                out[y] += drawn[x] * (1 - keep) * gap[y] / sum(gap)
    return out


def q2_numpy(drawn, q, p):
    drawn, q, p = map(np.array, (drawn, q, p))
    given = drawn * np.minimum(1, p / q)
    return given + (1 - given.sum()) * residual(q, p)


def q2_fractions(drawn, q, p):
    drawn, q, p = ([Fraction(x) for x in row] for row in (drawn, q, p))
    kept = [d * (b / a if b < a else 1) for d, a, b in zip(drawn, q, p)]
    if q == p:
        return [float(x) for x in kept]
    total = sum(b - a for a, b in zip(q, p) if b > a)
    return [float(k + (1 - sum(kept)) * max(b - a, 0) / total) for k, a, b in zip(kept, q, p)]


def q3_lists(rounds):
    trials = [[1] * k + [0] * (k < g) for g, k in rounds]
    flat = [x for row in trials for x in row]
    depth = max(map(len, trials))
    columns = [[row[i] for row in trials if len(row) > i] for i in range(depth)]
    return {"tokens_a_pass": sum(k for _, k in rounds) / len(rounds) + 1,
            "alpha": sum(flat) / len(flat) if flat else None, "places": [sum(c) / len(c) for c in columns]}


def q3_counts(rounds):
    kept = sum(k for g, k in rounds)
    rejected = sum(1 for g, k in rounds if k < g)
    places, i = [], 0
    while True:
        tested = [k for g, k in rounds if g > i and k >= i]
        if not tested:
            break
        places.append(sum(k > i for k in tested) / len(tested))
        i += 1
    return {"tokens_a_pass": (kept + len(rounds)) / len(rounds),
            "alpha": kept / (kept + rejected) if kept + rejected else None, "places": places}


def q3_dicts(rounds):
    yes, no = {}, {}
    for guessed, kept in rounds:
        for i in range(kept):
            yes[i] = yes.get(i, 0) + 1
        if kept != guessed:
            no[kept] = no.get(kept, 0) + 1
    n = len(set(yes) | set(no))
    total = sum(yes.values()) + sum(no.values())
    return {"tokens_a_pass": sum(k + 1 for _, k in rounds) / len(rounds),
            "alpha": None if total == 0 else sum(yes.values()) / total,
            "places": [yes.get(i, 0) / (yes.get(i, 0) + no.get(i, 0)) for i in range(n)]}


def q4_closed(alpha, cost, room, most):
    best = (1.0, 0)
    for g in range(1, most + 1):
        tokens = g + 1 if alpha == 1 else (1 - alpha ** (g + 1)) / (1 - alpha)
        best = max(best, (tokens / (g * cost + max(1, (g + 1) / room)), -g))
    return {"gamma": -best[1], "speedup": best[0]}


def q4_table(alpha, cost, room, most):
    speeds = [math.fsum(alpha**i for i in range(g + 1)) / (g * cost + (1 if g + 1 <= room else (g + 1) / room))
              for g in range(most + 1)]
    return {"gamma": speeds.index(max(speeds)), "speedup": max(speeds)}


def q4_mgpt(alpha, cost, room, most):
    def speed(g):
        time = g * cost + 1
        return expected_speedup(alpha, g, cost) * time / (time - 1 + max(1, (g + 1) / room))

    best = max(range(most + 1), key=speed)
    return {"gamma": best, "speedup": speed(best)}


def q5_sets(prompt, outputs, guessed, kept, block_size):
    """Which positions are there, and in which blocks do they stand?"""
    full = range(prompt + outputs + guessed)
    left = [x for x in full if x < prompt + outputs + kept]
    draft = [x for x in range(prompt + outputs - 1 + guessed) if x in left]
    gone = {x // block_size for x in full} - {x // block_size for x in left}
    return {"during": len(full), "after": len(left), "draft": len(draft), "blocks_back": len(gone)}


def q5_rejected(prompt, outputs, guessed, kept, block_size):
    during, rejected = prompt + outputs - 1 + guessed + 1, guessed - kept
    after = during - rejected
    return {"during": during, "after": after, "draft": during - 1 - max(rejected - 1, 0),
            "blocks_back": math.ceil(during / block_size) - math.ceil(after / block_size)}


def q5_pool(prompt, outputs, guessed, kept, block_size):
    """With a real cache of one value a position."""
    config = GPTConfig(2, 200, 1, 1, 1, 2, 2, 2)
    pool = BlockPool(200, block_size)
    caches = PagedKVCache(config, pool), KVCache(config, 200)
    for cache, n in zip(caches, (prompt + outputs + guessed, prompt + outputs + guessed - 1)):
        cache.append(0, np.zeros((1, n, 2)), np.zeros((1, n, 2)))
        cache.advance(n)
    during, free = caches[0].seq_len, pool.num_free
    for cache in caches:
        cache.truncate(min(cache.seq_len, prompt + outputs + kept))
    return {"during": during, "after": caches[0].seq_len, "draft": caches[1].seq_len, "blocks_back": pool.num_free - free}


RIGHT = {"q1": [q1_bisect, q1_numpy, q1_recursive], "q2": [q2_paths, q2_numpy, q2_fractions],
         "q3": [q3_lists, q3_counts, q3_dicts], "q4": [q4_closed, q4_table, q4_mgpt], "q5": [q5_sets, q5_rejected, q5_pool]}


# ------------------------------------------------------------------ wrong answers, one for each mistake
def drawn_from(weights, u):
    sums = list(accumulate(weights))
    return next((i for i, total in enumerate(sums) if total > u), len(weights) - 1)


def left_over(a, b):
    gap = [max(y - x, 0) for x, y in zip(a, b)]
    return [x / sum(gap) for x in gap] if any(gap) else list(b)


def absolute(a, b):
    gap = [abs(y - x) for x, y in zip(a, b)]
    return [x / sum(gap) for x in gap] if any(gap) else list(b)


def q1_like(kept=lambda u, q, p, x: u < p[x] / q[x], replace=left_over, bonus=lambda q, p: p[-1], pick=drawn_from):
    def check_round(guesses, q, p, numbers):
        for i, x in enumerate(guesses):
            if not kept(numbers[i], q[i], p[i], x):
                return {"kept": guesses[:i], "next": pick(replace(q[i], p[i]), numbers[i + 1])}
        row = bonus(q, p)
        return {"kept": guesses, "next": None if row is None else pick(row, numbers[-1])}

    return check_round


def q1_rejecting(change):
    """Right until a guess i is rejected; then change(i, guesses, q, p, numbers)."""
    def check_round(guesses, q, p, numbers):
        right = q1_numpy(guesses, q, p, numbers)
        n = len(right["kept"])
        return right if n == len(guesses) else change(n, guesses, q, p, numbers)

    return check_round


def q1_go_on(n, guesses, q, p, numbers):
    later = [x for i, x in enumerate(guesses) if i > n and numbers[i] < p[i][x] / q[i][x]]
    return {"kept": guesses[:n] + later, "next": drawn_from(left_over(q[n], p[n]), numbers[n + 1])}


def replaced(row=0, number=lambda i, numbers: numbers[i + 1], extra=0):
    return q1_rejecting(lambda n, guesses, q, p, numbers: {
        "kept": guesses[:n + extra], "next": drawn_from(left_over(q[n], p[n + row]), number(n, numbers))})


def q2_like(guess=lambda d, q: d, mass=lambda d, q: d, replace=left_over, keep=lambda q, p: min(1, p / q)):
    def comes_out(drawn, q, p):
        kept = [keep(a, b) for a, b in zip(q, p)]
        rejected = 1 - sum(m * k for m, k in zip(mass(drawn, q), kept))
        return [g * k + rejected * r for g, k, r in zip(guess(drawn, q), kept, replace(q, p))]

    return comes_out


def q2_judged_by_drawn(drawn, q, p):
    kept = [d * min(1, b / d) if d else 0.0 for d, b in zip(drawn, p)]
    return [k + (1 - sum(kept)) * r for k, r in zip(kept, left_over(q, p))]


def q2_own_residual(drawn, q, p):
    kept = [d * min(1, b / a) for d, a, b in zip(drawn, q, p)]
    return [k + (1 - sum(kept)) * r for k, r in zip(kept, left_over(drawn, p))]


def q2_scaled(drawn, q, p):
    kept = [d * min(1, b / a) for d, a, b in zip(drawn, q, p)]
    return [k / sum(kept) for k in kept] if any(kept) else p


def q3_with(**changes):
    return spoil(q3_lists, **{name: (lambda change: lambda result, rounds: change(rounds))(change)
                              for name, change in changes.items()})


def over(top, below):
    return top / below if below else None


def looked_at(rounds):
    return sum(k + (k < g) for g, k in rounds)


def places_like(there):
    def places(rounds):
        depth = len(q3_lists(rounds)["places"])
        return [sum(k > i for _, k in rounds) / sum(there(g, k, i) for g, k in rounds) for i in range(depth)]

    return places


def mean(numbers):
    numbers = list(numbers)
    return sum(numbers) / len(numbers) if numbers else None


def q4_like(tokens=lambda a, g: sum(a**i for i in range(g + 1)), time=lambda c, g, room: g * c + max(1, (g + 1) / room),
            start=0, best=lambda speeds: speeds.index(max(speeds)), value=lambda tokens, time: tokens / time):
    def best_gamma(alpha, cost, room, most):
        gammas = list(range(start, most + 1))
        pairs = [(tokens(alpha, g), time(cost, g, room)) for g in gammas]
        i = best([a / b for a, b in pairs])
        return {"gamma": gammas[i], "speedup": value(*pairs[i])}

    return best_gamma


def q4_most(alpha, cost, room, most):
    tokens = [sum(alpha**i for i in range(g + 1)) for g in range(most + 1)]
    g = tokens.index(max(tokens))
    return {"gamma": g, "speedup": tokens[g] / (g * cost + max(1, (g + 1) / room))}


def q5_with(**changes):
    return spoil(q5_sets, **changes)


WRONG = {
    "q1": {
        "every guess kept": q1_like(kept=lambda u, q, p, x: True),
        "replaced from the target": q1_like(replace=lambda q, p: p),
        "replaced from the draft": q1_like(replace=lambda q, p: q),
        "not normalised": q1_like(replace=lambda q, p: [max(b - a, 0) for a, b in zip(q, p)]),
        "distance for residual": q1_like(replace=absolute),
        "no bonus token": q1_like(bonus=lambda q, p: None),
        "bonus from the row before": q1_like(bonus=lambda q, p: p[len(q) - 1]),
        "bonus from the draft": q1_like(bonus=lambda q, p: q[-1]),
        "ratio upside down": q1_like(kept=lambda u, q, p, x: u * p[x] < q[x]),
        "the draft's probability ignored": q1_like(kept=lambda u, q, p, x: u < p[x]),
        "only the favourite kept": q1_like(kept=lambda u, q, p, x: p[x] >= max(p)),
        "kept at equality": q1_like(kept=lambda u, q, p, x: u <= p[x] / q[x]),
        "guesses behind a rejection": q1_rejecting(q1_go_on),
        "rejected guess kept": replaced(extra=1),
        "number used twice": replaced(number=lambda i, numbers: numbers[i]),
        "always the last number": replaced(number=lambda i, numbers: numbers[-1]),
        "largest taken": q1_like(pick=lambda weights, u: weights.index(max(weights))),
        "the next row": replaced(row=1),
    },
    "q2": {
        "the theorem alone": lambda drawn, q, p: p,
        "guessed by q": q2_like(guess=lambda d, q: q),
        "rejected by q": q2_like(mass=lambda d, q: q),
        "every guess kept": lambda drawn, q, p: drawn,
        "judged by drawn": q2_judged_by_drawn,
        "residual of drawn": q2_own_residual,
        "replaced from the target": q2_like(replace=lambda q, p: p),
        "replaced from the draft": q2_like(replace=lambda q, p: q),
        "not normalised": q2_like(replace=lambda q, p: [max(b - a, 0) for a, b in zip(q, p)]),
        "distance for residual": q2_like(replace=absolute),
        "kept part alone": q2_like(replace=lambda q, p: [0] * len(p)),
        "kept part scaled up": q2_scaled,
        "ratio upside down": q2_like(keep=lambda q, p: min(1, q / p) if p else 1),
    },
    "q3": {
        "kept of guessed": q3_with(alpha=lambda r: over(sum(k for _, k in r), sum(g for g, _ in r))),
        "mean of the rounds": q3_with(alpha=lambda r: mean(k / g for g, k in r if g)),
        "mean of the places": q3_with(alpha=lambda r: mean(q3_lists(r)["places"])),
        "a rejection in every round": q3_with(alpha=lambda r: over(sum(k for _, k in r), sum(k + 1 for _, k in r))),
        "kept over rejected": q3_with(alpha=lambda r: over(sum(k for _, k in r), sum(k < g for g, k in r))),
        "rejected for kept": q3_with(alpha=lambda r: over(sum(k < g for g, k in r), looked_at(r))),
        "without the further token": q3_with(tokens_a_pass=lambda r: mean(k for _, k in r)),
        "no bonus token": q3_with(tokens_a_pass=lambda r: mean(k + (k < g) for g, k in r)),
        "tokens as if all were kept": q3_with(tokens_a_pass=lambda r: mean(g + 1 for g, _ in r)),
        "places of all rounds": q3_with(places=places_like(lambda g, k, i: True)),
        "places of long rounds": q3_with(places=places_like(lambda g, k, i: g > i)),
        "short rounds as rejections": q3_with(places=places_like(lambda g, k, i: k >= i)),
        "nothing tested is 0": q3_with(alpha=lambda r: over(sum(k for _, k in r), looked_at(r)) or 0.0),
    },
    "q4": {
        "no bonus token": q4_like(tokens=lambda a, g: sum(a**i for i in range(g)) if g else 1),
        "kept guesses alone": q4_like(tokens=lambda a, g: sum(a**i for i in range(g + 1)) - 1),
        "guesses independent": q4_like(tokens=lambda a, g: g * a + 1),
        "all kept or none": q4_like(tokens=lambda a, g: a**g * (g + 1) + (1 - a**g)),
        "draft for free": q4_like(time=lambda c, g, room: max(1, (g + 1) / room)),
        "one draft pass too many": q4_like(time=lambda c, g, room: (g + 1) * c + max(1, (g + 1) / room)),
        "one draft pass a round": q4_like(time=lambda c, g, room: (c if g else 0) + max(1, (g + 1) / room)),
        "no room asked": q4_like(time=lambda c, g, room: 1 + g * c),
        "below one pass": q4_like(time=lambda c, g, room: g * c + (g + 1) / room),
        "positions short of one": q4_like(time=lambda c, g, room: g * c + max(1, g / room)),
        "must speculate": q4_like(start=1),
        "last of equals": q4_like(best=lambda speeds: len(speeds) - 1 - speeds[::-1].index(max(speeds))),
        "most tokens": q4_most,
        "tokens for the speed-up": q4_like(value=lambda tokens, time: tokens),
        "gain for the speed-up": q4_like(value=lambda tokens, time: tokens / time - 1),
    },
    "q5": {
        "last output not processed": q5_with(
            during=lambda r, *a: r["during"] - 1,
            blocks_back=lambda r, p, o, g, k, b: math.ceil((r["during"] - 1) / b) - math.ceil(r["after"] / b)),
        "further token processed": q5_with(
            during=lambda r, *a: r["during"] + 1,
            blocks_back=lambda r, p, o, g, k, b: math.ceil((r["during"] + 1) / b) - math.ceil(r["after"] / b)),
        "new token counted": q5_with(
            after=lambda r, *a: r["after"] + 1, draft=lambda r, p, o, g, k, b: min(p + o + g - 1, r["after"] + 1),
            blocks_back=lambda r, p, o, g, k, b: math.ceil(r["during"] / b) - math.ceil((r["after"] + 1) / b)),
        "one position too few": q5_with(
            after=lambda r, *a: r["after"] - 1, draft=lambda r, p, o, g, k, b: min(p + o + g - 1, r["after"] - 1),
            blocks_back=lambda r, p, o, g, k, b: math.ceil(r["during"] / b) - math.ceil((r["after"] - 1) / b)),
        "not cut": q5_with(after=lambda r, *a: r["during"], blocks_back=lambda r, *a: 0),
        "cut to the round's start": q5_with(
            after=lambda r, p, o, *a: p + o - 1, draft=lambda r, p, o, *a: p + o - 1,
            blocks_back=lambda r, p, o, g, k, b: math.ceil(r["during"] / b) - math.ceil((p + o - 1) / b)),
        "draft like the target": q5_with(draft=lambda r, *a: r["after"]),
        "draft cut by the rejected": q5_with(draft=lambda r, p, o, g, k, b: p + o + g - 1 - (g - k)),
        "draft not cut": q5_with(draft=lambda r, p, o, g, k, b: p + o + g - 1),
        "draft cut too far": q5_with(draft=lambda r, p, o, g, k, b: p + o + g - 1 - (g - k + 1)),
        "blocks of the rejected": q5_with(blocks_back=lambda r, p, o, g, k, b: math.ceil((g - k) / b)),
        "blocks cut off": q5_with(blocks_back=lambda r, p, o, g, k, b: r["during"] // b - r["after"] // b),
        "blocks that are left": q5_with(blocks_back=lambda r, p, o, g, k, b: math.ceil(r["after"] / b)),
    },
}

install(globals(), STEM, RIGHT, WRONG)


# ------------------------------------------------------------------ what is asked for is what mgpt does
@pytest.mark.parametrize("seed", range(4))
def test_the_round_that_is_asked_for_is_the_engines_own(seed):
    question = find(f"{STEM}.q1")
    for case in question.fresh_cases(seed):
        guesses, q, p, numbers = case.args
        kept, following = verify(guesses, q, p, Scripted(*numbers))
        assert case.expected == {"kept": kept, "next": following}


@pytest.mark.parametrize("seed", range(4))
def test_a_rule_with_its_own_q_gives_the_target(seed):
    for case in find(f"{STEM}.q2").fresh_cases(seed):
        _drawn, q, p = case.args
        assert np.allclose(find(f"{STEM}.q2").reference(q, q, p), exact_distribution(q, p), rtol=0, atol=1e-12)


def test_the_caches_behind_a_round_are_the_engines_own():
    """The counts of exercise 5, round by round, against a real cache that notes its cuts."""
    config = GPTConfig(12, 60, 1, 2, 1, 4, 8, 12, tie_embeddings=False)
    params = init_params(config, np.random.default_rng(0))
    noise = np.random.default_rng(1).normal(size=params["head"].shape)
    cuts, pool = [], BlockPool(30, 2)

    class Noted(PagedKVCache):
        def truncate(self, n):
            full = self.seq_len, len(self.block_table)
            super().truncate(n)
            cuts.append((full[0], self.seq_len, full[1] - len(self.block_table)))

    run = speculative_generate((params, config), ({**params, "head": params["head"] + 0.3 * noise}, config), [3, 1, 4], 25,
                               gamma=4, cache=Noted(config, pool))
    outputs, expected = 1, []
    assert run.tokens
    for r in run.rounds:
        answer = find(f"{STEM}.q5").reference(3, outputs, r.drafted, r.accepted, 2)
        expected.append((answer["during"], answer["after"], answer["blocks_back"]))
        outputs += r.accepted + 1
    assert cuts == expected and any(back for _full, _left, back in cuts)


# ------------------------------------------------------------------ the tree
def view(**state):
    control = load("speculative_tree")
    return control.view(control.read(state))


PAIRS = [("3/4, 1/8, 1/8", "1/4, 1/4, 1/2"), ("1, 0, 0", "0, 1/2, 1/2"), ("0.5 0.5", "0.5 0.5"), ("0.3, 0.7", "0.7 0.3"),
         ("7/10, 1/10, 1/10, 1/10", "1/4 1/4 3/10 1/5"), ("0.333, 0.667", "1/7, 6/7"), ("0, 1", "1/3, 2/3")]


@pytest.mark.parametrize("q, p", PAIRS)
def test_every_column_of_the_table_is_exact_and_sums_to_what_it_must(q, p):
    a, b = ([Fraction(x) for x in re.split(r"[, ]+", text)] for text in (q, p))
    lines = paths(a, b)
    floats = [float(x) for x in a], [float(x) for x in b]
    assert np.allclose([kept + again for _g, _k, kept, _l, again in lines], floats[1], rtol=0, atol=1e-15)
    assert abs(sum(line[2] for line in lines) - acceptance_rate(*floats)) < 1e-15
    assert abs(sum(line[3] for line in lines) - sum(line[4] for line in lines)) < 1e-15
    shown = view(q=q, p=p)
    assert [row[6] for row in shown.rows] == [exact(float(x)) for x in b] == [row[2] for row in shown.rows]
    assert "equals p" in shown.sentence


def test_the_books_example_is_the_first_thing_to_see():
    shown = view()
    assert shown.rows == (("a", "3/4", "1/4", "1/3", "1/4", "0", "1/4"), ("b", "1/8", "1/4", "1", "1/8", "1/8", "1/4"),
                          ("c", "1/8", "1/2", "1", "1/8", "3/8", "1/2"))
    assert "a 1/4, b 1/4, c 1/2" in shown.sentence and "1/2, and a round gives 3/2 tokens" in shown.sentence
    assert shown.more[0].rows == ((1, "1/2"), (2, "1/2"))


def test_two_guesses_have_three_lengths_and_the_mean_of_the_formula():
    shown = view(guesses="2")
    assert shown.more[0].rows == ((1, "1/2"), (2, "1/4"), (3, "1/4")) and "7/4 tokens" in shown.sentence


@pytest.mark.parametrize("q, p", PAIRS)
@pytest.mark.parametrize("gamma", [1, 2])
def test_the_tree_draws_each_path_once_with_its_probability(q, p, gamma):
    a, b = ([Fraction(x) for x in re.split(r"[, ]+", text)] for text in (q, p))
    lines = paths(a, b)
    alpha = acceptance_rate([float(x) for x in a], [float(x) for x in b])
    svg = tree("abcd"[: len(a)], a, b, gamma).svg()
    places = gamma if alpha else 1
    assert svg.count("✓") == places * sum(line[2] > 0 for line in lines)
    assert svg.count("✗ ×") == places * sum(line[3] > 1e-12 for line in lines)
    assert svg.count("in all<") == places * (1 - alpha > 1e-12)
    rejecting = sum(line[3] > 1e-12 for line in lines)
    replacing = sum(line[4] > 1e-12 for line in lines)
    assert svg.count("stroke-dasharray") == places * (2 * rejecting + 2 * replacing)  # branch, join, way out, bar
    assert ("one more token" in svg) == bool(alpha)


def test_fractions_stand_for_floats_only_where_they_do():
    assert [exact(x) for x in (0.0, 1.0, 0.75, 1 / 3, 0.1 + 0.2)] == ["0", "1", "3/4", "1/3", "3/10"]
    assert exact(0.1234567) == "0.1235" and exact(2**-0.5) == "0.7071"


@pytest.mark.parametrize("state, words", [
    ({"q": "1/2, 1/3"}, "sum to 1"), ({"q": "1"}, "2 to 4"), ({"p": "3/2, -1/2"}, "Target p"), ({"q": "a, b"}, "Draft q"),
    ({"q": "1/0, 1"}, "Draft q"), ({"q": "0.2 0.2 0.2 0.2 0.2"}, "2 to 4"), ({"q": "1/2, 1/2"}, "as many numbers"),
    ({"q": "1/100003, 100002/100003"}, "Draft q"), ({"q": ""}, "Draft q"), ({"q": "nan, 1"}, "Draft q"),
    ({"q": "inf, 1"}, "Draft q"), ({"guesses": "3"}, "Guesses")])
def test_what_is_no_distribution_is_said(state, words):
    page = respond("speculative_tree", state)["html"]
    assert 'role="alert"' in page and words in page


# ------------------------------------------------------------------ the figures
def test_the_overlap_lists_what_both_have():
    svg = overlap("figure-test", [0.75, 0.125, 0.125], [0.25, 0.25, 0.5])
    assert "a: q 0.75, p 0.25, both 0.25" in svg.description
    drawn = svg.svg()
    assert drawn.count('fill="var(--mgpt-quiet)"') == 6
    assert drawn.count("stroke-dasharray") == 1 and drawn.count('stroke-width="2.2"') == 2


def test_the_acceptance_line_has_a_bar_for_every_token():
    figure = acceptance_line("figure-test", ["7", "5", "0"], [("int4", [1.0, 0.5, 0.25]), ("cut", [0.0, 0.1, 0.9])])
    assert figure.description == "int4: 1.00 0.50 0.25; cut: 0.00 0.10 0.90"
    assert figure.svg().count('fill="var(--mgpt-quiet)"') == 6


def test_the_rewind_map_draws_each_position_and_each_block_from_the_first_on():
    figure = rewind_map("figure-test", 4, [("before", 46, tuple(range(12)), None), ("pass", 51, tuple(range(13)), 46),
                                           ("cut", 47, tuple(range(12)), None)], first=10)
    svg = figure.svg()
    assert svg.count('fill="var(--mgpt-k)"') == 6 + 11 + 7
    assert svg.count('stroke-width="2.2"') == 5 and svg.count("·") == 2 + 1 + 1
    assert figure.description.startswith("before: 46 positions in blocks 0 1 2")


def test_the_speed_up_chart_marks_the_best_of_each_curve():
    figure = speedup_chart("figure-test", 0.2, (0.2, 0.8))
    assert "α 0.2: 1.00 1.00 0.89" in figure.description and "α 0.8: 1.00 1.50 1.74 1.85 1.87 1.84" in figure.description
    squares = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="8"', figure.svg())
    assert squares == ["32", "176"]  # γ = 0 and γ = 4 on an axis from 36 in steps of 36
