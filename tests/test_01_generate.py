"""The checks of chapter 01's exercise are worth their points, and its control shows what `mgpt.sampling` gives.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import itertools
import math
import random

import numpy as np
import pytest
from exercise_lists import install

from mgpt import sampling
from mgpt.config import GPTConfig
from mgpt.course.questions import find
from mgpt.generate import generate_full_prefix
from mgpt.model import init_params
from mgpt.widgets import load, respond

STEM = "01_generate"


def next_logits(table, text):
    return [sum(column) for column in zip(*(table[i] for i in text))]


# ------------------------------------------------------------------ right answers, written differently
def q1_with_a_for(table, prompt, n_outputs, stop_ids):
    text, work = tuple(prompt), 0
    for _ in range(n_outputs):
        work += len(text)
        logits = next_logits(table, text)
        best = 0
        for i in range(1, len(logits)):
            if logits[i] > logits[best]:
                best = i
        text += (best,)
        if best in stop_ids:
            break
    return {"positions_processed": work, "tokens": list(text[len(prompt):])}


def q1_recursive(table, prompt, n_outputs, stop_ids):
    if n_outputs == 0:
        return {"tokens": [], "positions_processed": 0}
    token = int(np.argmax(next_logits(table, prompt)))
    if token in stop_ids:
        return {"tokens": [token], "positions_processed": len(prompt)}
    rest = q1_recursive(table, prompt + [token], n_outputs - 1, stop_ids)
    return {"tokens": [token] + rest["tokens"], "positions_processed": len(prompt) + rest["positions_processed"]}


def q1_with_running_sums(table, prompt, n_outputs, stop_ids):
    logits = np.array(table)[prompt].sum(axis=0)
    tokens = []
    while len(tokens) < n_outputs and not (tokens and tokens[-1] in stop_ids):
        tokens.append(logits.argmax())
        logits = logits + np.array(table)[tokens[-1]]
    p, n = len(prompt), len(tokens)
    return {"tokens": np.array(tokens, dtype=int), "positions_processed": np.int64(p * n + n * (n - 1) // 2)}


def q2_simulated(prompt_len, n_outputs):
    computed, again = set(), 0
    for n in range(n_outputs):
        for position in range(prompt_len + n):
            again += position in computed
            computed.add(position)
    return {"processed": len(computed) + again, "first_time": len(computed), "again": again}


def q2_closed(p, n):
    if n == 0:
        return {"processed": 0, "first_time": 0, "again": 0}
    total = n * (2 * p + n - 1) // 2
    return {"processed": total, "first_time": p + n - 1, "again": total - p - n + 1}


def q2_with_numpy(p, n):
    lengths = np.arange(p, p + n)
    return {"processed": lengths.sum(), "first_time": lengths.max(initial=0), "again": lengths[:-1].sum()}


def q3_with_numpy(logits, temperature, top_k, top_p):
    x = np.array(logits) / temperature
    w = np.exp(x - x.max())
    order = np.argsort(-x, kind="stable")
    if top_k is not None:
        order = order[:top_k]
    if top_p is not None:
        share = np.cumsum(w[order] / w[order].sum())
        order = order[: np.searchsorted(share, top_p) + 1]
    out = np.zeros(len(x))
    out[order] = w[order] / w[order].sum()
    return out


def q3_by_crossing_out(logits, temperature, top_k, top_p):
    alive = {i: x / temperature for i, x in enumerate(logits)}
    while top_k is not None and len(alive) > top_k:
        least = min(alive.values())
        del alive[max(i for i, x in alive.items() if x == least)]
    high = max(alive.values())
    share = {i: math.exp(x - high) for i, x in alive.items()}
    share = {i: w / sum(share.values()) for i, w in share.items()}
    if top_p is not None:
        kept, total = {}, 0.0
        while total < top_p and share:
            best = max(share.values())
            i = min(i for i, p in share.items() if p == best)
            kept[i] = share.pop(i)
            total += kept[i]
        share = kept
    return [share.get(i, 0.0) / sum(share.values()) for i in range(len(logits))]


def q3_as_pairs(logits, temperature, top_k, top_p):
    high = max(logits)
    pairs = sorted(((-x, i) for i, x in enumerate(logits)))[: top_k or None]
    weights = [(i, math.exp((-x - high) / temperature)) for x, i in pairs]
    if top_p is not None:
        total = sum(w for _, w in weights)
        sums = list(itertools.accumulate(w / total for _, w in weights))
        weights = weights[: 1 + next((n for n, s in enumerate(sums) if s >= top_p), len(sums))]
    total = sum(w for _, w in weights)
    result = [0.0] * len(logits)
    for i, w in weights:
        result[i] = w / total
    return tuple(result)


def q4_with_numpy(weights, u):
    return np.searchsorted(np.cumsum(weights), u * np.sum(weights), side="right")


def q4_by_subtracting(weights, u):
    point = u * sum(weights)
    for i, weight in enumerate(weights):
        if point < weight:
            return i
        point -= weight


def q4_with_shares(weights, u):
    total = sum(weights)
    edges = [0.0, *itertools.accumulate(w / total for w in weights)]
    return max(i for i in range(len(weights)) if edges[i] <= u < edges[i + 1])


RIGHT = {
    "q1": [q1_with_a_for, q1_recursive, q1_with_running_sums],
    "q2": [q2_simulated, q2_closed, q2_with_numpy],
    "q3": [q3_by_crossing_out, q3_with_numpy, q3_as_pairs],
    "q4": [q4_by_subtracting, q4_with_numpy, q4_with_shares],
}


# ------------------------------------------------------------------ wrong answers: name of the mistake -> code
def first(logits):
    return logits.index(max(logits))


def loop(choose=first, seen=lambda text, p: text, count=lambda text, p, n: len(text), stop="keep", before=0, behind=0,
         at_least=0):
    """The learner's loop with one of its lines written otherwise."""
    def answer(table, prompt, n_outputs, stop_ids):
        text, tokens, work, over = list(prompt), [], 0, None
        while len(tokens) < max(n_outputs, at_least):
            token = choose(next_logits(table, seen(text, len(prompt))))
            work += count(text, len(prompt), len(tokens)) + before
            if stop == "drop" and token in stop_ids:
                break
            tokens.append(token)
            text.append(token)
            if over or (stop == "keep" and token in stop_ids):
                break
            over = stop == "later" and token in stop_ids
        return {"tokens": tokens, "positions_processed": work + behind * len(text)}
    return answer


def prompt_too(table, prompt, n_outputs, stop_ids):
    right = loop()(table, prompt, n_outputs, stop_ids)
    return right | {"tokens": prompt + right["tokens"]}


def worked(**change):
    """A right answer with one entry from change(p, n, right dict); "again" is the rest unless it is named."""
    def answer(p, n):
        right = q2_closed(p, n)
        new = right | {key: int(value(p, n, right)) for key, value in change.items()}
        return new if "again" in change else new | {"again": new["processed"] - new["first_time"]}
    return answer


def soft(values):
    weights = [math.exp(v - max(values)) for v in values]
    return [w / sum(weights) for w in weights]


def dist(divide=lambda x, t: x / t, key=lambda i: i, k_cut=None, p_cut=None, p_heat=None, end=None):
    """The learner's four steps with one of them written otherwise."""
    def answer(logits, temperature, top_k, top_p):
        x = [divide(v, temperature) for v in logits]
        order = sorted(range(len(x)), key=lambda i: (-x[i], key(i)))
        if top_k is not None:
            order = k_cut(order, x, top_k) if k_cut else order[:top_k]
        if top_p is not None:
            heated = x if p_heat is None else [v / p_heat for v in logits]
            shares = soft([heated[i] for i in order])
            if p_cut == "all":
                shares = [soft(x)[i] for i in order]
            sums = list(itertools.accumulate(shares))
            n = sum(s < top_p for s in sums) + 1
            if p_cut == "more":
                n = sum(s <= top_p for s in sums) + 1
            if p_cut == "less":
                n = max(n - 1, 1)
            if p_cut == "each":
                n = max(sum(s >= top_p for s in shares), 1)
            order = order[:n]
        shares = soft([x[i] for i in order])
        full = [dict(zip(order, shares)).get(i, 0.0) for i in range(len(x))]
        return end(full, order, x) if end else full
    return answer


def equals_too(order, x, k):
    return [i for i in order if x[i] >= x[order[min(k, len(order)) - 1]]]


def running(compare, scale=True, order=None, shift=0):
    def answer(weights, u):
        ids = list(range(len(weights))) if order is None else order(weights)
        point, total = u * (sum(weights) if scale else 1), 0
        for place, i in enumerate(ids):
            total += weights[i]
            if compare(total, point):
                return ids[min(max(place + shift, 0), len(ids) - 1)]
        return ids[-1]
    return answer


def above(total, point):
    return total > point


def each_weight(weights, u):
    for i, w in enumerate(weights):
        if w > u * sum(weights):
            return i
    return len(weights) - 1


def counted_among_kept(weights, u):
    return q4_by_subtracting([w for w in weights if w], u)


WRONG = {
    "q1": {
        "last of equals": loop(choose=lambda x: max(range(len(x)), key=lambda i: (x[i], i))),
        "newest id only": loop(seen=lambda text, p: text[-1:]),
        "never appended": loop(seen=lambda text, p: text[:p]),
        "outputs only": loop(seen=lambda text, p: text[p:] or text),
        "smallest": loop(choose=lambda x: x.index(min(x))),
        "stop id dropped": loop(stop="drop"),
        "stop id ignored": loop(stop="ignore"),
        "stops one later": loop(stop="later"),
        "prompt among the outputs": prompt_too,
        "a pass counted as one position": loop(count=lambda text, p, n: 1),
        "as if kept": loop(count=lambda text, p, n: 1 if n else p),
        "counted after appending": loop(before=1),
        "prompt in every pass": loop(count=lambda text, p, n: p),
        "one pass too many": loop(behind=1),
        "a pass for no output": loop(at_least=1),
    },
    "q2": {
        "prompt in every pass": worked(processed=lambda p, n, r: p * n if n > 1 else r["processed"]),
        "one position later": worked(processed=lambda p, n, r: sum(range(p + 1, p + n + 1))),
        "longest pass each time": worked(processed=lambda p, n, r: n * (p + n - 1)),
        "one pass more": worked(processed=lambda p, n, r: sum(range(p, p + n + 1))),
        "one pass fewer": worked(processed=lambda p, n, r: sum(range(p, p + n - 1))),
        "last output counted": worked(first_time=lambda p, n, r: p + n),
        "prompt only": worked(first_time=lambda p, n, r: p if n else 0),
        "something for no output": worked(first_time=lambda p, n, r: p + n - 1),
        "outputs only": worked(first_time=lambda p, n, r: n),
        "again is everything behind pass 1": worked(again=lambda p, n, r: sum(range(p + 1, p + n))),
        "again is the prompt": worked(again=lambda p, n, r: p * (n - 1) if n else 0),
    },
    "q3": {
        "multiplied by the temperature": dist(divide=lambda x, t: x * t),
        "temperature forgotten": dist(divide=lambda x, t: x),
        "top-p without temperature": dist(p_heat=1.0),
        "top-p of all ids": dist(p_cut="all"),
        "more than top_p": dist(p_cut="more"),
        "less than top_p": dist(p_cut="less"),
        "top_p as a least probability": dist(p_cut="each"),
        "all equals of the k-th": dist(k_cut=equals_too),
        "last of equals": dist(key=lambda i: -i),
        "not made to add up": dist(end=lambda full, order, x: [
            s if i in order else 0.0 for i, s in enumerate(soft(x))]),
        "dropped means logit 0": dist(end=lambda full, order, x: soft([
            v if i in order else 0.0 for i, v in enumerate(x)])),
        "sorted": dist(end=lambda full, order, x: sorted(full, reverse=True)),
        "kept ones only": dist(end=lambda full, order, x: [full[i] for i in sorted(order)]),
    },
    "q4": {
        "edge belongs to the one before": running(lambda total, point: total >= point),
        "not scaled": running(above, scale=False),
        "largest first": running(above, order=lambda w: sorted(range(len(w)), key=lambda i: -w[i])),
        "from the end": running(above, order=lambda w: list(range(len(w)))[::-1]),
        "most likely": lambda w, u: int(np.argmax(w)),
        "equal intervals": lambda w, u: math.floor(u * len(w)),
        "index among the kept": counted_among_kept,
        "one too far": running(above, shift=1),
        "last edge below": running(above, shift=-1),
        "weight above u": each_weight,
    },
}


install(globals(), STEM, RIGHT, WRONG)


def test_the_numbers_of_the_chapter_are_visible_cases():
    """The travelling numbers of chapter 01, typed here once more and by hand."""
    case = find(f"{STEM}.q2").cases
    assert (case[0].args, case[0].expected) == ((8, 4), {"processed": 8 + 9 + 10 + 11, "first_time": 11, "again": 27})
    assert case[1].args == (2000, 500) and case[1].expected["processed"] == 500 * 2000 + 500 * 499 // 2


@pytest.mark.parametrize("prompt_len, n_outputs", [(8, 4), (1, 1), (3, 0), (5, 7)])
def test_the_counts_asked_for_are_those_of_the_slow_generator(prompt_len, n_outputs):
    config = GPTConfig(vocab_size=3, max_seq_len=20, n_layer=1, n_head=1, n_kv_head=1, head_dim=2, n_embd=2, n_inner=2)
    params = init_params(config, np.random.default_rng(0))
    generation = generate_full_prefix(params, config, [1] * prompt_len, n_outputs)
    assert find(f"{STEM}.q2").reference(prompt_len, n_outputs)["processed"] == generation.positions_processed
    table = [[0, 1], [1, 0]]
    loop_count = find(f"{STEM}.q1").reference(table, [1] * prompt_len, n_outputs, [])["positions_processed"]
    assert loop_count == generation.positions_processed


def test_one_draw_of_the_exercise_is_one_draw_of_the_package():
    rng = random.Random(0)
    for seed in range(40):
        weights = [rng.choice([0.0, 1.0, 2.5]) for _ in range(5)] + [1.0]
        u = np.random.default_rng(seed).random()
        assert find(f"{STEM}.q4").reference(weights, u) == sampling.draw(weights, np.random.default_rng(seed))


# ------------------------------------------------------------------ the sampler control
@pytest.mark.parametrize("state", [
    {}, {"temperature": 0.1}, {"top_k": 1}, {"top_p": 0.05}, {"top_k": 3, "top_p": 0.7, "temperature": 2.0, "seed": 7},
    {"logits": "-20 20; 20"}, {"logits": "1"},
])
def test_the_sampler_shows_what_the_package_samples_from(state):
    control = load("sampler")
    full = control.read(state)
    logits = np.array([float(x) for x in full["logits"].replace(",", " ").replace(";", " ").split()])
    settings = full["temperature"], full["top_k"], full["top_p"]
    probs = sampling.probabilities(logits, *settings)
    view = control.view(full)
    assert [row[4] for row in view.rows] == [f"{p:.3f}" for p in probs]
    assert [row[3] == "yes" for row in view.rows] == (probs > 0).tolist()
    token = sampling.sample(logits, np.random.default_rng(full["seed"]), *settings)
    assert view.sentence.startswith(f"Greedy takes id {sampling.greedy(logits)}. ")
    assert view.sentence.endswith(f"the draw takes id {token}.")


@pytest.mark.parametrize("text", ["", "a", "1 2 x", "nan", "inf", "21", "0 " * 13])
def test_logits_that_the_sampler_cannot_show_give_a_sentence(text):
    page = respond("sampler", {"logits": text})["html"]
    assert 'role="alert"' in page and "1 to 12 numbers from −20 to 20" in page


# ------------------------------------------------------------------ the work explorer
def test_the_work_explorer_shows_figure_1_1_and_its_sums():
    view = load("prefix_work").view({"prompt": 8, "outputs": 4})
    assert view.rows == ((1, 8, 0, 8, 8), (2, 9, 8, 17, 9), (3, 10, 9, 27, 10), (4, 11, 10, 38, 11))
    assert sum(row[2] for row in view.rows) == 27
    assert "All passes together run 38" in view.sentence and "it would be 11, so 3.5 times fewer" in view.sentence


@pytest.mark.parametrize("prompt_len, n_outputs", [(1, 1), (40, 40), (3, 17)])
def test_the_work_explorer_counts_as_the_exercise_does(prompt_len, n_outputs):
    last = load("prefix_work").view({"prompt": prompt_len, "outputs": n_outputs}).rows[-1]
    work = find(f"{STEM}.q2").reference(prompt_len, n_outputs)
    assert last[3:] == (work["processed"], work["first_time"])
