"""Generating by hand: the loop over a growing text, its work, and the choice of a token."""

import numpy as np

from mgpt import sampling
from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.text import N_


# ---------------------------------------------------------------- 1: the loop
def generated(table, prompt, n_outputs, stop_ids, *, choose=sampling.greedy, seen=lambda text, prompt: text,
              count=lambda text, n: len(text), after_stop=0, extra=0):
    """The right dict, or one with another choice, text seen, count of a pass, end, or with passes too many.

    after_stop: outputs behind the stop id (-1: it is dropped itself; None: it does not stop).
    extra: passes behind the last one, which choose nothing.
    """
    text, tokens, processed = list(prompt), [], 0
    while len(tokens) < n_outputs:
        logits = np.array(table)[seen(text, prompt)].sum(axis=0)
        processed += count(text, len(tokens))
        tokens.append(int(choose(logits)))
        text.append(tokens[-1])
        hits = [n for n, token in enumerate(tokens) if token in stop_ids]
        if hits and after_stop is not None and len(tokens) > hits[0] + after_stop:
            tokens = tokens[: hits[0] + 1 + after_stop]
            break
    processed += sum(len(text) + n for n in range(extra))
    return {"tokens": tokens, "positions_processed": processed}


def last_of_equals(logits):
    return len(logits) - 1 - np.argmax(logits[::-1])


def one_at_least(table, prompt, n_outputs, stop_ids):
    return generated(table, prompt, max(n_outputs, 1), stop_ids)


def draw_loop(rng):
    """Small whole numbers, so that equal logits are common; some texts stop early, some have no outputs."""
    n = rng.randrange(3, 6)
    table = [[rng.randrange(-1, 2) for _ in range(n)] for _ in range(n)]
    prompt = [rng.randrange(n) for _ in range(rng.randrange(1, 7))]
    return table, prompt, rng.choice([0, 1, 3, 5, 8]), rng.choice([[], [rng.randrange(n)], [0, n - 1]])


def with_prompt(table, prompt, n_outputs, stop_ids):
    right = generated(table, prompt, n_outputs, stop_ids)
    return {**right, "tokens": [*prompt, *right["tokens"]]}


CIRCLE = [[0, 2, 1], [1, 0, 3], [2, 1, 0]]
Q1 = Question(
    "01_generate.q1", "generate", points=3, whole=True, reference=generated, draw=draw_loop, fresh=12,
    cases=(
        Case((CIRCLE, [0], 4, []), {"tokens": [1, 2, 2, 0], "positions_processed": 10}),
        Case(([[0, 1, 1], [1, 0, 0], [0, 1, 0]], [0], 2, []), {"tokens": [1, 0], "positions_processed": 3}),
        Case((CIRCLE, [0, 1], 5, [0]), {"tokens": [2, 2, 0], "positions_processed": 9}),
        Case((CIRCLE, [2, 0], 0, []), {"tokens": [], "positions_processed": 0}),
    ),
    mistakes=(
        Mistake("last of equals", lambda *a: generated(*a, choose=last_of_equals),
                N_("of equal logits the first is taken; this takes the last")),
        Mistake("newest id only", lambda *a: generated(*a, seen=lambda text, prompt: text[-1:]),
                N_("the logits come from the whole text, prompt and outputs; this looks at the newest id alone")),
        Mistake("never appended", lambda *a: generated(*a, seen=lambda text, prompt: prompt),
                N_("the chosen id belongs to the text of the next pass: append it")),
        Mistake("outputs only", lambda *a: generated(*a, seen=lambda text, prompt: text[len(prompt):] or text),
                N_("later passes see the prompt as well, not the outputs alone")),
        Mistake("smallest", lambda *a: generated(*a, choose=np.argmin),
                N_("greedy takes the largest logit; this takes the smallest")),
        Mistake("stop id dropped", lambda *a: generated(*a, after_stop=-1),
                N_("a stop id ends the text and is kept as its last output")),
        Mistake("stop id ignored", lambda *a: generated(*a, after_stop=None),
                N_("an id of stop_ids ends the text, though fewer than n_outputs have been chosen")),
        Mistake("stops one later", lambda *a: generated(*a, after_stop=1),
                N_("no pass follows a stop id; this makes one more")),
        Mistake("prompt among the outputs", with_prompt,
                N_("\"tokens\" holds the outputs alone; the prompt was given")),
        Mistake("a pass counted as one position", lambda *a: generated(*a, count=lambda text, n: 1),
                N_("that counts passes; a pass of this generator runs the whole text, position by position")),
        Mistake("as if kept", lambda *a: generated(*a, count=lambda text, n: 1 if n else len(text)),
                N_("this generator keeps nothing: each pass processes the prompt and all outputs so far once "
                   "more")),
        Mistake("counted after appending", lambda *a: generated(*a, count=lambda text, n: len(text) + 1),
                N_("a pass runs the text as it is before its output is appended: count first, append then")),
        Mistake("prompt in every pass", lambda table, prompt, *a: generated(
                    table, prompt, *a, count=lambda text, n: len(prompt)),
                N_("the text grows: pass 2 also processes output 1")),
        Mistake("one pass too many", lambda *a: generated(*a, extra=1),
                N_("the last output is chosen and never processed: no pass follows it, and none is made for 0 "
                   "outputs")),
        Mistake("a pass for no output", one_at_least,
                N_("0 outputs take no pass: test the number before the pass, not after it")),
    ),
    hints=(
        N_("Three things happen for an output: a pass over the text, a choice, an append. In which order are "
           "they counted?"),
        N_("Work on a copy: text = list(prompt). logits.index(max(logits)) is the first of equals."),
        N_("As long as fewer than n_outputs are chosen: add len(text) to the count, choose from "
           "next_logits(table, text), append to text and tokens, and leave the loop when the token is one of "
           "stop_ids."),
    ),
)


# ---------------------------------------------------------------- 2: its work
def sums(prompt_len, n_outputs, **wrong):
    """The right dict, or one with some entries replaced; "again" follows unless it is given."""
    processed = sum(prompt_len + n for n in range(n_outputs))
    first = prompt_len + n_outputs - 1 if n_outputs else 0
    right = {"processed": processed, "first_time": first} | wrong
    return {"again": right["processed"] - right["first_time"]} | right


Q2 = Question(
    "01_generate.q2", "work", points=2, whole=True, reference=sums,
    draw=lambda rng: (rng.randrange(2, 3000), rng.randrange(2, 600)),
    cases=(
        Case((8, 4), {"processed": 38, "first_time": 11, "again": 27}),
        Case((2000, 500), {"processed": 1_124_750, "first_time": 2499, "again": 1_122_251}),
        Case((5, 1), {"processed": 5, "first_time": 5, "again": 0}),
        Case((5, 0), {"processed": 0, "first_time": 0, "again": 0}),
    ),
    mistakes=(
        Mistake("prompt in every pass", lambda p, n: sums(p, n, processed=max(p * n, sums(p, n)["first_time"])),
                N_("the text grows by a position a pass: P + (P + 1) + …, not P each time")),
        Mistake("one position later", lambda p, n: sums(p, n, processed=sums(p, n)["processed"] + n),
                N_("pass 1 runs P positions, not P + 1: output 1 does not exist yet")),
        Mistake("longest pass each time", lambda p, n: sums(p, n, processed=n * (p + n - 1)),
                N_("only the last pass is that long: 0 + 1 + … + (N − 1) is N(N − 1)/2, not N(N − 1)")),
        Mistake("one pass more", lambda p, n: sums(p, n, processed=sums(p, n + 1)["processed"]),
                N_("N outputs take N passes; the last output is never processed")),
        Mistake("one pass fewer", lambda p, n: sums(p, n, processed=sums(p, max(n - 1, 0))["processed"]),
                N_("N outputs take N passes: the first pass counts too, it chooses output 1")),
        Mistake("last output counted", lambda p, n: sums(p, n, first_time=p + n),
                N_("the last output is chosen and never processed: P + N − 1 positions are met for a first time")),
        Mistake("prompt only", lambda p, n: sums(p, n, first_time=p if n else 0),
                N_("an output that is processed is met for a first time too")),
        Mistake("something for no output", lambda p, n: sums(p, n, first_time=p + n - 1),
                N_("P + N − 1 holds for N ≥ 1; 0 outputs take no pass, so nothing is processed at all")),
        Mistake("outputs only", lambda p, n: sums(p, n, first_time=n),
                N_("the prompt's positions are met for a first time as well, in pass 1")),
        Mistake("again is everything behind pass 1", lambda p, n: sums(
                    p, n, again=sums(p, n)["processed"] - p * (n > 0)),
                N_("each pass behind the first has one position that is new: the output just chosen")),
        Mistake("again is the prompt", lambda p, n: sums(p, n, again=p * max(n - 1, 0)),
                N_("outputs are processed again as well, not the prompt alone")),
    ),
    hints=(
        N_("Draw figure 1.1 for P = 3 and N = 3. How many cells, how many hatched?"),
        N_("Row n of the figure has P + n − 1 cells. One cell of each row but the first is not hatched."),
        N_("processed = N·P + N(N − 1)/2; first_time = P + N − 1, or 0 when N is 0; again = processed − "
           "first_time."),
    ),
)
Q2_WHY = choice(
    "01_generate.q2_why", "q2_why", "b",
    {"a": N_("a pass takes any number of known positions together; the prefill takes the whole prompt"),
     "c": N_("layers can be split and are not what makes a pass wait for the one before"),
     "d": N_("the repetition costs work; without it there would still be 500 passes, one after another")},
    hints=(N_("What must be known before a pass can start?"),
           N_("The prompt is known at the start. When is output 7 known?"),
           N_("The input of pass 8 holds output 7, and that one is chosen at the end of pass 7.")),
)


# ---------------------------------------------------------------- 3: the distribution
def kept(logits, temperature, top_k, top_p, **how):
    """The right list, or one with another step (see `steps`)."""
    if how:
        return steps(logits, temperature, top_k, top_p, **how)
    return sampling.probabilities(logits, temperature, top_k, top_p).tolist()


def softmax(logits):
    weights = np.exp(np.array(logits) - np.max(logits))
    return weights / weights.sum()


def adding_up(probs, order, scaled):
    return probs / probs.sum()


def kept_only(probs, order, scaled):
    return adding_up(probs, order, scaled)[sorted(order)]


def steps(logits, temperature, top_k, top_p, *, heat=lambda x, t: x / t, whole=False, strict=False, short=False,
          ties=False, last=False, floor=False, nucleus_heat=None, finish=adding_up):
    """Step by step as `sampling.probabilities` does it, with one step after another that can be done otherwise.

    whole: top_p measured before top_k.  strict: more than top_p.  short: the one that reaches top_p left out.
    ties: all equals of the k-th kept.  last: last of equals.  floor: top_p as a least probability.
    nucleus_heat: temperature for top_p alone.  finish: from the probabilities (dropped ones 0) to the answer.
    """
    scaled = heat(np.array(logits, float), temperature)
    order = sorted(range(len(scaled)), key=lambda i: (-scaled[i], -i if last else i))
    if top_k is not None:
        least = scaled[order[: top_k][-1]]
        order = [i for i in order if scaled[i] >= least] if ties else order[:top_k]
    if top_p is not None:
        source = heat(np.array(logits, float), nucleus_heat) if nucleus_heat else scaled
        measured = softmax(source)[order] if whole else softmax(source[order])
        total, keep = 0.0, 0
        while keep < len(order) and (total <= top_p if strict else total < top_p):
            total += measured[keep]
            keep += 1
        if floor:
            keep = sum(measured >= top_p)
        order = order[: max(keep - short, 1)]
    probs = np.zeros(len(scaled))
    probs[order] = softmax(scaled)[order]
    return np.asarray(finish(probs, order, scaled)).tolist()


def zero_logits(probs, order, scaled):
    return softmax([scaled[i] if i in order else 0.0 for i in range(len(scaled))])


def draw_logits(rng):
    """One decimal, so that equals occur; a top_p that no sum of equal probabilities meets by rounding alone."""
    logits = [rng.randrange(-30, 31) / 10 for _ in range(rng.randrange(4, 9))]
    logits[rng.randrange(4)] = logits[rng.randrange(4)]
    return (logits, rng.choice([0.5, 0.7, 1.0, 1.5, 2.0]), rng.choice([None, 1, 2, 3, 20]),
            rng.choice([None, rng.randrange(207, 958, 10) / 1000]))


Q3 = Question(
    "01_generate.q3", "probabilities", points=3, reference=kept, draw=draw_logits, fresh=24,
    cases=(
        Case(([2.0, 1.0, 0.0], 1.0, None, None), [0.6652409557748219, 0.24472847105479767, 0.09003057317038046]),
        Case(([2.0, 1.0, 0.0], 0.5, None, None), [0.8668133321973349, 0.11731042782619838, 0.015876239976466765]),
        Case(([1.0, 3.0, 3.0, 2.0], 1.0, 1, None), [0.0, 1.0, 0.0, 0.0]),
        Case(([0.0, 1.0, 2.0], 1.0, 2, None), [0.0, 0.2689414213699951, 0.7310585786300049]),
        Case(([0.0, 0.0, 0.0, 0.0], 1.0, None, 0.5), [0.5, 0.5, 0.0, 0.0]),
        Case(([0.0, 0.0, 0.0, 0.0], 1.0, 2, 0.5), [1.0, 0.0, 0.0, 0.0]),
        Case(([2.0, 1.0, 0.0], 2.0, None, 0.6), [0.6224593312018546, 0.37754066879814546, 0.0]),
        Case(([1000.0, 999.0, -1000.0], 0.5, None, None), [0.8807970779778824, 0.11920292202211755, 0.0]),
    ),
    mistakes=(
        Mistake("multiplied by the temperature", lambda *a: kept(*a, heat=lambda x, t: x * t),
                N_("logits are divided by the temperature: above 1 it flattens the distribution")),
        Mistake("temperature forgotten", lambda *a: kept(*a, heat=lambda x, t: x),
                N_("the logits are to be divided by the temperature first")),
        Mistake("top-p without temperature", lambda *a: kept(*a, nucleus_heat=1.0),
                N_("top_p measures the probabilities at this temperature, not at 1")),
        Mistake("top-p of all ids", lambda *a: kept(*a, whole=True),
                N_("top_p looks at what top_k has kept: make those probabilities add up to 1 again, then measure")),
        Mistake("more than top_p", lambda *a: kept(*a, strict=True),
                N_("reaching top_p is enough; this goes on until it is exceeded")),
        Mistake("less than top_p", lambda *a: kept(*a, short=True),
                N_("the id that reaches top_p is kept too; without it the kept ones do not reach it")),
        Mistake("top_p as a least probability", lambda *a: kept(*a, floor=True),
                N_("top_p is a sum to be reached, not a limit for each id")),
        Mistake("all equals of the k-th", lambda *a: kept(*a, ties=True),
                N_("top_k keeps k ids at most: of equal logits the first ones")),
        Mistake("last of equals", lambda *a: kept(*a, last=True),
                N_("of equal logits the first is kept; this keeps the last. Sort stably, largest first")),
        Mistake("not made to add up", lambda *a: kept(*a, finish=lambda probs, order, scaled: probs),
                N_("the probabilities of the kept ids have to add up to 1 again")),
        Mistake("dropped means logit 0", lambda *a: kept(*a, finish=zero_logits),
                N_("a dropped id has probability 0; a logit of 0 still gives it exp(0)")),
        Mistake("sorted", lambda *a: kept(*a, finish=lambda probs, order, scaled: np.sort(probs / probs.sum())[::-1]),
                N_("entry i belongs to id i; this list is in order of size")),
        Mistake("kept ones only", lambda *a: kept(*a, finish=kept_only),
                N_("the list has an entry for every id, 0.0 for a dropped one")),
    ),
    hints=(
        N_("Do it in four steps: divide, cut to top_k, cut to top_p, make the rest add up to 1."),
        N_("Sort the ids, largest logit first: order = sorted(range(n), key=lambda i: -scaled[i]) leaves equals "
           "in their order. Subtract the largest logit before exp(): the ratios stay, and nothing overflows."),
        N_("weights = exp(scaled − largest) of the ids in order[:top_k]; add weight/sum up, one id at a time, "
           "and stop with the id at which the total is ≥ top_p; then write weight/sum of the kept ids into a "
           "list of zeros."),
    ),
    stands_for=("mgpt.sampling.probabilities",),
)


# ---------------------------------------------------------------- 4: one draw
def inverse(weights, u):
    """The id in whose interval u · sum lies: the first whose running sum is larger."""
    return first_above(np.cumsum(weights), u * sum(weights))


def first_above(running, point):
    """Index of the first running sum above `point`, of the last one where none is."""
    above = [i for i, total in enumerate(running) if total > point]
    return above[0] if above else len(running) - 1


def largest_first(weights, u):
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    return order[inverse([weights[i] for i in order], u)]


def among_kept(weights, u):
    return inverse([w for w in weights if w > 0], u)


def draw_weights(rng):
    """Weights with zeros whose sum is a power of two, and a u in 64ths: running sums are met exactly, and often."""
    cuts = sorted(rng.randrange(17) for _ in range(rng.randrange(2, 6)))
    size = rng.choice([0.0625, 0.5, 1.0])
    weights = [size * (b - a) for a, b in zip([0, *cuts], [*cuts, 16])]
    return weights, rng.randrange(64) / 64


Q4 = Question(
    "01_generate.q4", "draw", points=2, whole=True, reference=inverse, draw=draw_weights, fresh=24,
    cases=(
        Case(([0.25, 0.25, 0.5], 0.6), 2),
        Case(([0.25, 0.0, 0.25, 0.5], 0.25), 2),
        Case(([0.0, 0.5, 0.5], 0.0), 1),
        Case(([1.0, 0.0, 3.0], 0.2), 0),
        Case(([3.0, 2.0, 3.0, 0.0], 0.5), 1),
        Case(([3.0, 2.0, 3.0, 0.0], 0.984375), 2),
        Case(([1.0] * 7 + [0.0, 1.0], 0.8125), 6),
    ),
    mistakes=(
        Mistake("edge belongs to the one before", lambda w, u: int(np.argmax(np.cumsum(w) >= u * sum(w))),
                N_("a piece holds its lower end: at an edge the next id begins. So no id of weight 0 is "
                   "ever drawn")),
        Mistake("not scaled", lambda w, u: first_above(np.cumsum(w), u),
                N_("the weights need not add up to 1: compare with u times their sum")),
        Mistake("largest first", largest_first,
                N_("the intervals lie side by side in the order of the ids; this lays them in order of size")),
        Mistake("from the end", lambda w, u: len(w) - 1 - inverse(w[::-1], u),
                N_("the intervals begin with id 0; this begins with the last id")),
        Mistake("most likely", lambda w, u: w.index(max(w)),
                N_("that is the greedy choice: u plays no part in it")),
        Mistake("equal intervals", lambda w, u: int(u * len(w)),
                N_("each id's interval is as long as its weight; this gives all ids the same")),
        Mistake("index among the kept", among_kept,
                N_("ids of weight 0 keep their numbers: this counts the others only")),
        Mistake("one too far", lambda w, u: min(inverse(w, u) + 1, len(w) - 1),
                N_("the id is the first whose running sum is above the point, not the one behind it")),
        Mistake("last edge below", lambda w, u: max(inverse(w, u) - 1, 0),
                N_("a running sum ends an interval: the last sum that is not above the point belongs to the id "
                   "before")),
        Mistake("weight above u", lambda w, u: next((i for i, x in enumerate(w) if x > u * sum(w)), len(w) - 1),
                N_("it is the running sum that is compared, not each weight by itself")),
    ),
    hints=(
        N_("Lay the weights side by side on a line, id 0 first. In whose piece does the point u · sum lie?"),
        N_("Keep a running sum. Is a point at the very end of a piece in that piece, or in the next one?"),
        N_("point = u * sum(weights); add the weights up one by one and return the first id whose running sum "
           "is > point."),
    ),
    stands_for=("mgpt.sampling.draw",),
)
Q4_WHY = choice(
    "01_generate.q4_why", "q4_why", "a",
    {"b": N_("the request's own text alone decides its logits, whoever else is served"),
     "c": N_("each request has a temperature of its own, and it did not change"),
     "d": N_("the seed was set once, and the generator ran on from there in both runs; nothing was set anew")},
    hints=(N_("List the numbers that the generator gives, one after another. Who takes which?"),
           N_("Alone, the request takes numbers 1, 2, 3, … What does it take when another request draws in "
              "between?"),
           N_("With one stream for all, each draw of another request moves this one's draws along.")),
)

QUESTIONS = (Q1, Q2, Q2_WHY, Q3, Q4, Q4_WHY)
