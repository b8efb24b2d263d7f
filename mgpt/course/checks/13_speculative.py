"""Chapter 13: the check of a round, what a rule really gives, rates from rounds, the best γ, and the rewind."""

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.text import N_


# ---------------------------------------------------------------- distributions
def ratio(a, b):
    return a / b if b else 1.0


def kept_if(q, p):
    return min(1.0, ratio(p, q))


def above(q, p):
    return [max(b - a, 0.0) for a, b in zip(q, p)]


def scaled(weights, otherwise):
    total = sum(weights)
    return [w / total for w in weights] if total > 0 else list(otherwise)


def rest(q, p):
    """The residual; p itself where nothing is left."""
    return scaled(above(q, p), p)


def distance(q, p):
    return scaled([abs(b - a) for a, b in zip(q, p)], p)


def pick(weights, u):
    """The first id at which the running sum exceeds u; the last id where none does."""
    total = 0.0
    for token, weight in enumerate(weights):
        total += weight
        if u < total:
            return token
    return len(weights) - 1


def largest(weights, _u):
    return max(range(len(weights)), key=lambda token: weights[token])


def sixteenths(rng, size, least=0):
    """A random distribution in sixteenths, each at least `least` of them."""
    parts = [least] * size
    for _ in range(16 - least * size):
        parts[rng.choice([0, rng.randrange(size), rng.randrange(size)])] += 1
    rng.shuffle(parts)
    return [part / 16 for part in parts]


# ---------------------------------------------------------------- 1: the check of a round
def checked(guesses, q, p, numbers, keep=lambda q, p, x: kept_if(q[x], p[x]), instead=rest, equal=False, choose=pick,
            bonus=lambda q, p: p[-1], row=0, number=lambda i, last: i + 1, with_rejected=False, go_on=False):
    """One round, right or with one thing changed.

    keep: probability of keeping; instead: what a rejected guess is replaced from; bonus(q, p): the last row; row: how
    far the target's row is shifted for the replacement; number(i, last): place of the number that it is drawn with;
    go_on: later guesses are tested behind a rejection.
    """
    kept, rejected = [], None
    for i, x in enumerate(guesses):
        chance = keep(q[i], p[i], x)
        if numbers[i] < chance or equal and numbers[i] == chance:
            kept.append(x)
            continue
        rejected = i if rejected is None else rejected
        if not go_on:
            break
    if rejected is not None:
        u = numbers[number(rejected, len(guesses))]
        following = choose(instead(q[rejected], p[rejected + row]), u)
        return {"kept": kept + [guesses[rejected]] if with_rejected else kept, "next": following}
    last = bonus(q, p)
    return {"kept": kept, "next": None if last is None else choose(last, numbers[len(guesses)])}


def draw_round(rng):
    """One to three guesses over three or four ids; numbers that lie on no threshold."""
    size, gamma = rng.choice([3, 3, 4]), rng.choice([1, 2, 2, 3])
    q, p = [sixteenths(rng, size) for _ in range(gamma)], [sixteenths(rng, size) for _ in range(gamma + 1)]
    guesses = []
    for a, b in zip(q, p):
        possible = [x for x in range(size) if a[x] > 0]
        doubtful = [x for x in possible if 0 < b[x] < a[x]]
        guesses.append(rng.choice(doubtful if doubtful and rng.random() < 0.7 else possible))
    return guesses, q, p, [(2 * rng.randrange(32) + 1) / 64 for _ in range(gamma + 1)]


Q0, P0, LAST = [0.75, 0.125, 0.125], [0.25, 0.25, 0.5], [0.125, 0.25, 0.625]
QS, PS = [[0.8, 0.2], [0.6, 0.4]], [[0.2, 0.8], [0.3, 0.7], [0, 1]]
Q1 = Question(
    "13_speculative.q1", "check_round", points=5, reference=checked, draw=draw_round, fresh=40, whole=True,
    cases=(
        Case(([0], [Q0], [P0, LAST], [0.3, 0.9]), {"kept": [0], "next": 2}),
        Case(([0], [Q0], [P0, LAST], [0.4, 0.2]), {"kept": [], "next": 1}),
        Case(([0, 0], QS, PS, [0, 0.5, 0]), {"kept": [0], "next": 1}),
        Case(([1, 1], QS, PS, [0.9, 0.9, 0]), {"kept": [1, 1], "next": 1}),
        Case(([0, 1], QS, PS, [0.9, 0, 0]), {"kept": [], "next": 1}),
        Case(([2], [Q0], [[0.5, 0.5, 0.0], LAST], [0.0, 0.7]), {"kept": [], "next": 1}),
    ),
    mistakes=(
        Mistake("every guess kept", lambda *a: checked(*a, keep=lambda q, p, x: 2.0),
                N_("a guess is kept only with probability min(1, p/q): else the draft writes the text")),
        Mistake("replaced from the target", lambda *a: checked(*a, instead=lambda q, p: p),
                N_("a rejected guess is replaced from max(p − q, 0), normalised, not from p: what was kept has been "
                   "given")),
        Mistake("replaced from the draft", lambda *a: checked(*a, instead=lambda q, p: q),
                N_("a replacement comes from what the target has more than the draft, never from the draft")),
        Mistake("not normalised", lambda *a: checked(*a, instead=above),
                N_("max(p − q, 0) must be divided by its sum before a token is drawn")),
        Mistake("distance for residual", lambda *a: checked(*a, instead=distance),
                N_("where q is above p nothing is missing: max(p − q, 0), not |p − q|")),
        Mistake("no bonus token", lambda *a: checked(*a, bonus=lambda q, p: None),
                N_("when all guesses are kept, one more token is drawn from the target's last row")),
        Mistake("bonus from the row before", lambda *a: checked(*a, bonus=lambda q, p: p[-2]),
                N_("the bonus token stands behind the last guess: it is drawn from row γ of the target, its last "
                   "one")),
        Mistake("bonus from the draft", lambda *a: checked(*a, bonus=lambda q, p: q[-1]),
                N_("nobody checks the bonus token: it must come from the target itself")),
        Mistake("ratio upside down", lambda *a: checked(*a, keep=lambda q, p, x: kept_if(p[x], q[x])),
                N_("the ratio is p/q, target over draft: a guess that the draft likes too much is kept less often")),
        Mistake("the draft's probability ignored", lambda *a: checked(*a, keep=lambda q, p, x: p[x]),
                N_("a guess is kept with probability min(1, p/q), not p: it was already guessed with probability q")),
        Mistake("only the favourite kept", lambda *a: checked(*a, keep=lambda q, p, x: 2.0 * (p[x] == max(p))),
                N_("a guess need not be the target's favourite: it is kept with probability min(1, p/q)")),
        Mistake("kept at equality", lambda *a: checked(*a, equal=True),
                N_("a guess is kept if its number is smaller than the probability: with probability 0 it is never "
                   "kept")),
        Mistake("guesses behind a rejection", lambda *a: checked(*a, go_on=True),
                N_("behind the first rejection nothing is kept: those guesses continue another text")),
        Mistake("rejected guess kept", lambda *a: checked(*a, with_rejected=True),
                N_("the rejected guess itself is not kept: the replacement stands in its place")),
        Mistake("number used twice", lambda *a: checked(*a, number=lambda i, last: i),
                N_("the number that rejected a guess is used up: the replacement is drawn with the next one")),
        Mistake("always the last number", lambda *a: checked(*a, number=lambda i, last: last),
                N_("numbers are used in order: behind a rejection the next one, not the last one")),
        Mistake("largest taken", lambda *a: checked(*a, choose=largest),
                N_("the token is drawn with its number, not the largest one taken")),
        Mistake("the next row", lambda *a: checked(*a, row=1),
                N_("guess i is judged and replaced by row i of both: the next row belongs to the next place")),
    ),
    hints=(
        N_("Go from guess to guess. What ends the walk, and from which row does the one further token come in each "
           "case?"),
        N_("Kept if u < min(1, p[i][x]/q[i][x]). Rejected: left = max(p[i] − q[i], 0) over its sum, drawn with the "
           "next number. All kept: draw from p[γ]."),
        N_("for i, x in enumerate(guesses): if numbers[i] < p[i][x]/q[i][x]: keep x, else return draw(left, "
           "numbers[i + 1]); after the loop draw(p[-1], numbers[γ])."),
    ),
    stands_for=("mgpt.speculative.verify", "mgpt.speculative.residual"),
)

Q1_WHY = choice(
    "13_speculative.q1_why", "q1_why", "c",
    {"a": N_("it is true that the rejected token does not come again, but a draw from p without that token is wrong, "
             "too"),
     "b": N_("a draw from the residual costs as much as one from p: the reason is the distribution"),
     "d": N_("the opposite: where the draft had more than the target the residual is 0")},
    (N_("How much of each token do the kept guesses alone give?"),
     N_("Kept guesses give min(p, q) of each token. What must be added so that p comes out?"),
     N_("p − min(p, q) is missing of each token: that is max(p − q, 0), and its total is the probability of a "
        "rejection.")),
)


# ---------------------------------------------------------------- 2: what a rule really gives
def comes_out(drawn, q, p, guess=None, lost=None, instead=rest, keep=kept_if):
    """The first token's distribution; guess: what weighs the kept part; lost(drawn, kept): the mass replaced."""
    kept = [keep(a, b) for a, b in zip(q, p)]
    given = [a * k for a, k in zip(drawn if guess is None else guess, kept)]
    again = 1 - sum(a * k for a, k in zip(drawn if lost is None else lost, kept))
    return [a + again * b for a, b in zip(given, instead(q, p))]


def draw_rules(rng):
    """q positive, drawn and p perhaps not; now and then q = p."""
    size = rng.choice([2, 3, 3, 4])
    q = sixteenths(rng, size, least=1)
    drawn = sixteenths(rng, size)
    p = q if rng.random() < 0.15 else sixteenths(rng, size)
    return drawn, q, p


def by_drawn(drawn, q, p):
    kept = [kept_if(a, b) for a, b in zip(drawn, p)]
    again = 1 - sum(a * k for a, k in zip(drawn, kept))
    return [a * k + again * r for a, k, r in zip(drawn, kept, rest(q, p))]


Q2 = Question(
    "13_speculative.q2", "comes_out", points=4, reference=comes_out, draw=draw_rules, fresh=14,
    cases=(
        Case((Q0, Q0, P0), [0.25, 0.25, 0.5]),
        Case(([1.0, 0.0, 0.0], Q0, P0), [1 / 3, 1 / 6, 0.5]),
        Case(([0.125, 0.125, 0.75], [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]), [0.0625, 0.125, 0.8125]),
        Case(([0.75, 0.25], [0.5, 0.5], [0.5, 0.5]), [0.75, 0.25]),
    ),
    mistakes=(
        Mistake("the theorem alone", lambda drawn, q, p: list(p),
                N_("p comes out only if the guesses were drawn from the q that judges them: add up the paths")),
        Mistake("guessed by q", lambda drawn, q, p: comes_out(drawn, q, p, guess=q),
                N_("a token is guessed with the probability with which it is drawn; q only judges it")),
        Mistake("rejected by q", lambda drawn, q, p: comes_out(drawn, q, p, lost=q),
                N_("the chance of a rejection is a sum over the guesses really drawn, not over q")),
        Mistake("every guess kept", lambda drawn, q, p: list(drawn),
                N_("guesses are kept with probability min(1, p/q) and else replaced")),
        Mistake("judged by drawn", by_drawn,
                N_("the rule knows only q: it keeps a guess with probability min(1, p/q)")),
        Mistake("residual of drawn", lambda drawn, q, p: comes_out(drawn, q, p, instead=lambda a, b: rest(drawn, b)),
                N_("the rule replaces from max(p − q, 0) with its own q, not with what was drawn")),
        Mistake("replaced from the target", lambda *a: comes_out(*a, instead=lambda q, p: p),
                N_("a rejected guess is replaced from max(p − q, 0), normalised, not from p")),
        Mistake("replaced from the draft", lambda *a: comes_out(*a, instead=lambda q, p: q),
                N_("a rejected guess is replaced from what p has more than q, not from q")),
        Mistake("not normalised", lambda *a: comes_out(*a, instead=above),
                N_("max(p − q, 0) must be divided by its sum: the result has to sum to 1")),
        Mistake("distance for residual", lambda *a: comes_out(*a, instead=distance),
                N_("where q is above p nothing is replaced: max(p − q, 0), not |p − q|")),
        Mistake("kept part alone", lambda *a: comes_out(*a, instead=lambda q, p: [0.0] * len(p)),
                N_("that is what comes out as kept guesses; the replacements must be added")),
        Mistake("kept part scaled up", lambda *a: scaled(
                    comes_out(*a, instead=lambda q, p: [0.0] * len(p)), a[2]),
                N_("a rejected round is not tried again: its token comes from the residual")),
        Mistake("ratio upside down", lambda *a: comes_out(*a, keep=lambda q, p: kept_if(p, q)),
                N_("the ratio is p/q, target over draft")),
    ),
    hints=(
        N_("Two kinds of paths end in token y: y was guessed and kept; any token was guessed, rejected, and replaced "
           "by y."),
        N_("The first kind has drawn[y] · min(1, p[y]/q[y]). All rejections together have 1 minus the sum of the "
           "first kind."),
        N_("out[y] = given[y] + (1 − Σ given) · left[y], with given[y] = drawn[y] · min(1, p[y]/q[y]) and left = "
           "max(p − q, 0) over its sum. Where that sum is 0, take care."),
    ),
    stands_for=("mgpt.speculative.exact_distribution",),
)


# ---------------------------------------------------------------- 3: rates from rounds
def tested_in(guessed, kept):
    return min(kept + 1, guessed)


def rates(rounds, tokens=lambda g, k: k + 1, top=lambda g, k: k, below=tested_in, nothing=None,
          reached=lambda g, k, i: i < g and k >= i, hit=lambda g, k, i: k > i):
    """Tokens a pass, α and the rates of the places; each count can be changed."""
    tests = sum(below(g, k) for g, k in rounds)
    places = []
    for i in range(max((tested_in(g, k) for g, k in rounds), default=0)):
        there = [(g, k) for g, k in rounds if reached(g, k, i)]
        places.append(sum(hit(g, k, i) for g, k in there) / len(there))
    return {"tokens_a_pass": sum(tokens(g, k) for g, k in rounds) / len(rounds),
            "alpha": sum(top(g, k) for g, k in rounds) / tests if tests else nothing, "places": places}


def mean_of_rounds(rounds):
    each = [k / g for g, k in rounds if g]
    return {**rates(rounds), "alpha": sum(each) / len(each) if each else None}


def mean_of_places(rounds):
    right = rates(rounds)
    return {**right, "alpha": sum(right["places"]) / len(right["places"]) if right["places"] else None}


def draw_rounds(rng):
    """Six to twelve rounds of one γ; the last ones are shorter, one may have no guess."""
    gamma, easy = rng.randrange(2, 6), rng.choice([0.4, 0.6, 0.8])
    rounds = []
    for guessed in [gamma] * rng.randrange(5, 9) + [rng.randrange(gamma), rng.choice([0, 1])]:
        kept = 0
        while kept < guessed and rng.random() < easy:
            kept += 1
        rounds.append([guessed, kept])
    return (rounds,)


ROUNDS = [[4, 4], [4, 0], [4, 2], [3, 3], [1, 0], [0, 0]]
Q3 = Question(
    "13_speculative.q3", "rates", points=4, reference=rates, draw=draw_rounds, fresh=14,
    cases=(
        Case(([[4, 4], [4, 0]],), {"tokens_a_pass": 3.0, "alpha": 0.8, "places": [0.5, 1.0, 1.0, 1.0]}),
        Case((ROUNDS,), {"tokens_a_pass": 2.5, "alpha": 0.75, "places": [0.6, 1.0, 2 / 3, 1.0]}),
        Case(([[8, 1], [8, 0], [8, 0], [2, 2]],),
             {"tokens_a_pass": 1.75, "alpha": 0.5, "places": [0.5, 0.5]}),
        Case(([[0, 0]],), {"tokens_a_pass": 1.0, "alpha": None, "places": []}),
    ),
    mistakes=(
        Mistake("kept of guessed", lambda r: rates(r, below=lambda g, k: g),
                N_("α asks how often a guess that was tested is kept: those behind a rejection were not tested")),
        Mistake("mean of the rounds", mean_of_rounds,
                N_("α is one ratio over all rounds, not the mean of the rounds' ratios")),
        Mistake("mean of the places", mean_of_places,
                N_("α weighs each tested guess alike: kept over tested, not the mean over the places")),
        Mistake("a rejection in every round", lambda r: rates(r, below=lambda g, k: k + 1),
                N_("a round in which all guesses were kept tested no rejected one: it tested as many as it kept")),
        Mistake("kept over rejected", lambda r: rates(r, below=lambda g, k: int(k < g)),
                N_("a rate is kept over tested, and the kept ones are tested, too")),
        Mistake("rejected for kept", lambda r: rates(r, top=lambda g, k: int(k < g)),
                N_("that is the rate of rejection, 1 − α")),
        Mistake("without the further token", lambda r: rates(r, tokens=lambda g, k: k),
                N_("each pass gives one token more than it kept: the replacement or the bonus token")),
        Mistake("no bonus token", lambda r: rates(r, tokens=lambda g, k: k + (k < g)),
                N_("a pass that kept all its guesses gives a bonus token, one with no guesses too")),
        Mistake("tokens as if all were kept", lambda r: rates(r, tokens=lambda g, k: g + 1),
                N_("rejected guesses give no tokens: a pass gives kept + 1")),
        Mistake("places of all rounds", lambda r: rates(r, reached=lambda g, k, i: True),
                N_("a place is tested only in rounds that kept every guess before it and guessed that far")),
        Mistake("places of long rounds", lambda r: rates(r, reached=lambda g, k, i: g > i),
                N_("a place behind a rejection was guessed but not tested: it does not count in the rate of its "
                   "place")),
        Mistake("short rounds as rejections", lambda r: rates(r, reached=lambda g, k, i: k >= i),
                N_("a round that made no further guess did not test the next place")),
        Mistake("nothing tested is 0", lambda r: rates(r, nothing=0.0),
                N_("without a tested guess there is no rate: None, not 0")),
    ),
    hints=(
        N_("Which guesses did the target look at? Those that were kept, and at most one more in a round."),
        N_("Tested in a round: min(kept + 1, guessed). Place i (from 0) is tested if guessed > i and kept ≥ i, and "
           "kept there if kept > i."),
        N_("alpha = Σ kept / Σ min(kept + 1, guessed), or None; tokens_a_pass = Σ (kept + 1) / rounds; places: go on "
           "as long as some round tested the place."),
    ),
)


# ---------------------------------------------------------------- 4: the best number of guesses
def curve(alpha, cost, room, most, tokens=lambda a, g: sum(a**i for i in range(g + 1)),
          draft=lambda c, g: c * g, check=lambda g, room: max(1.0, (g + 1) / room), least=0, last=False,
          key=lambda tokens, time: tokens / time, value=lambda tokens, time: tokens / time):
    """The γ from `least` to `most` with the largest key; the first of equals, or the last."""
    found = None
    for gamma in range(least, most + 1):
        both = tokens(alpha, gamma), draft(cost, gamma) + check(gamma, room)
        better = found is None or key(*both) > key(*found[1]) or last and key(*both) == key(*found[1])
        found = (gamma, both) if better else found
    return {"gamma": found[0], "speedup": value(*found[1])}


def draw_costs(rng):
    """Drafts good and bad; no second γ that is nearly as good as the best."""
    while True:
        alpha, cost = rng.choice([0.15, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95]), rng.choice([0.02, 0.06, 0.13, 0.24, 0.45])
        room, most = rng.choice([1.5, 2.5, 4.5, 6.5, 50.0]), rng.randrange(4, 13)
        speeds = sorted(curve(alpha, cost, room, g, least=g)["speedup"] for g in range(most + 1))
        if speeds[-1] - speeds[-2] > 1e-4:
            return alpha, cost, room, most


Q4 = Question(
    "13_speculative.q4", "best_gamma", points=3, reference=curve, draw=draw_costs, fresh=24,
    cases=(
        Case((0.8, 0.2, 100.0, 10), {"gamma": 4, "speedup": 1.8675555555555556}),
        Case((0.8, 0.1, 3.0, 10), {"gamma": 2, "speedup": 2.0333333333333334}),
        Case((0.5, 0.5, 100.0, 8), {"gamma": 0, "speedup": 1.0}),
        Case((1.0, 0.25, 100.0, 6), {"gamma": 6, "speedup": 2.8}),
        Case((0.9, 0.1, 1.5, 8), {"gamma": 1, "speedup": 1.9 / (0.1 + 2 / 1.5)}),
    ),
    mistakes=(
        Mistake("no bonus token", lambda *a: curve(*a, tokens=lambda al, g: sum(al**i for i in range(max(g, 1)))),
                N_("a round of γ guesses gives up to γ + 1 tokens: 1 + α + … + α^γ")),
        Mistake("kept guesses alone", lambda *a: curve(*a, tokens=lambda al, g: sum(al**i for i in range(1, g + 1))),
                N_("each round gives one token more than it keeps: the sum begins with 1")),
        Mistake("guesses independent", lambda *a: curve(*a, tokens=lambda al, g: 1 + al * g),
                N_("a guess counts only if all before it were kept: place i has α^i, not α")),
        Mistake("all kept or none", lambda *a: curve(*a, tokens=lambda al, g: 1 + g * al**g),
                N_("a round keeps guesses up to the first rejection, not all or none")),
        Mistake("draft for free", lambda *a: curve(*a, draft=lambda c, g: 0.0),
                N_("each guess takes a pass of the draft: γ · cost")),
        Mistake("one draft pass too many", lambda *a: curve(*a, draft=lambda c, g: c * (g + 1)),
                N_("γ guesses take γ passes of the draft")),
        Mistake("one draft pass a round", lambda *a: curve(*a, draft=lambda c, g: c * (g > 0)),
                N_("the draft guesses one token a pass: γ passes a round")),
        Mistake("no room asked", lambda *a: curve(*a, check=lambda g, room: 1.0),
                N_("a verify pass over more positions than there is room for takes longer: max(1, (γ + 1)/room)")),
        Mistake("below one pass", lambda *a: curve(*a, check=lambda g, room: (g + 1) / room),
                N_("a verify pass never takes less than a decode pass, however much room there is")),
        Mistake("positions short of one", lambda *a: curve(*a, check=lambda g, room: max(1.0, g / room)),
                N_("the verify pass has γ + 1 positions: the guesses and the last chosen token")),
        Mistake("must speculate", lambda *a: curve(*a, least=1),
                N_("γ = 0 is allowed, and best where no guess pays")),
        Mistake("last of equals", lambda *a: curve(*a, last=True),
                N_("of equal speed-ups the smallest γ is asked for")),
        Mistake("most tokens", lambda *a: curve(*a, key=lambda tokens, time: tokens),
                N_("more tokens a round are not more tokens a unit of time")),
        Mistake("tokens for the speed-up", lambda *a: curve(*a, value=lambda tokens, time: tokens),
                N_("the speed-up is the tokens of a round divided by its time")),
        Mistake("gain for the speed-up", lambda *a: curve(*a, value=lambda tokens, time: tokens / time - 1),
                N_("a speed-up of 1 means as fast as plain decoding")),
    ),
    hints=(
        N_("Write down the tokens of a round and its time, both for one γ. Which γ stands for plain decoding?"),
        N_("Tokens: 1 + α + … + α^γ. Time: γ · cost + max(1, (γ + 1)/room). γ = 0 gives 1/1."),
        N_("for γ from 0 to most: speed = tokens/time; replace the best only if speed is larger. Beware of 1 − α at "
           "α = 1."),
    ),
    stands_for=("mgpt.speculative.expected_speedup", "mgpt.speculative.expected_tokens"),
)


# ---------------------------------------------------------------- 5: the rewind
def blocks(positions, size):
    return -(-positions // size)


def rewound(prompt, outputs, guessed, kept, block_size, during=0, after=0, draft=None, back=None):
    """The caches behind a round; during, after: positions too many; draft, back: changed rules."""
    full = prompt + outputs + guessed + during
    left = prompt + outputs + kept + after
    own = prompt + outputs + guessed - 1
    return {"during": full, "after": left,
            "draft": min(own, left) if draft is None else draft(own, left, guessed - kept),
            "blocks_back": blocks(full, block_size) - blocks(left, block_size) if back is None
            else back(full, left, block_size)}


def draw_rewind(rng):
    guessed = rng.randrange(1, 9)
    return (rng.randrange(1, 40), rng.randrange(1, 20), guessed, rng.choice([guessed, rng.randrange(guessed + 1)]),
            rng.choice([1, 2, 3, 4, 8]))


Q5 = Question(
    "13_speculative.q5", "after_round", points=3, reference=rewound, draw=draw_rewind, fresh=24, whole=True,
    cases=(
        Case((40, 7, 4, 0, 4), {"during": 51, "after": 47, "draft": 47, "blocks_back": 1}),
        Case((8, 1, 2, 2, 4), {"during": 11, "after": 11, "draft": 10, "blocks_back": 0}),
        Case((8, 1, 6, 1, 2), {"during": 15, "after": 10, "draft": 10, "blocks_back": 3}),
        Case((5, 2, 3, 2, 16), {"during": 10, "after": 9, "draft": 9, "blocks_back": 0}),
    ),
    mistakes=(
        Mistake("last output not processed", lambda *a: rewound(*a, during=-1),
                N_("the verify pass processes the last chosen output, too: γ + 1 positions")),
        Mistake("further token processed", lambda *a: rewound(*a, during=1),
                N_("the token that a round adds behind its guesses is chosen in the pass, not processed in it")),
        Mistake("new token counted", lambda *a: rewound(*a, after=1),
                N_("after P prompt positions and G outputs P + G − 1 are cached: the last output has been chosen "
                   "only")),
        Mistake("one position too few", lambda *a: rewound(*a, after=-1),
                N_("all outputs but the last one keep their position: P + G − 1 with the outputs of this round")),
        Mistake("not cut", lambda p, o, g, k, b: {**rewound(p, o, g, k, b), "after": p + o + g, "blocks_back": 0},
                N_("the positions of rejected guesses are cut off: they belong to no text")),
        Mistake("cut to the round's start", lambda p, o, g, k, b: rewound(p, o, g, k, b, after=-k - 1),
                N_("what was kept stays in the cache: only the rejected guesses are cut off")),
        Mistake("draft like the target", lambda *a: rewound(*a, draft=lambda own, left, no: left),
                N_("the draft never processes its own last guess: when all are kept, it holds one position less")),
        Mistake("draft not cut", lambda *a: rewound(*a, draft=lambda own, left, no: own),
                N_("the draft's cache must be cut as well: it holds rejected guesses")),
        Mistake("draft cut too far", lambda *a: rewound(*a, draft=lambda own, left, no: own - no - 1),
                N_("the draft's cache is cut by rejected − 1 positions, not more: it never held its last guess")),
        Mistake("draft cut by the rejected", lambda *a: rewound(*a, draft=lambda own, left, no: own - no),
                N_("the draft's last guess was never in its cache, so one position less has to be cut off")),
        Mistake("blocks of the rejected", lambda *a: rewound(*a, back=lambda full, left, b: blocks(full - left, b)),
                N_("a block goes back only if none of its positions is left: compare whole blocks before and after")),
        Mistake("blocks cut off", lambda *a: rewound(*a, back=lambda full, left, b: full // b - left // b),
                N_("a block that is begun is a whole block: round up")),
        Mistake("blocks that are left", lambda *a: rewound(*a, back=lambda full, left, b: blocks(left, b)),
                N_("that is the number of blocks the cache keeps; the question is how many go back to the pool")),
    ),
    hints=(
        N_("Before the round the cache holds P + G − 1 positions. Which positions does the pass add, and which of "
           "them stay?"),
        N_("During: γ + 1 more. After: P + G′ − 1 with G′ = G + kept + 1. The draft processed the last output and "
           "all its guesses but the last."),
        N_("during = P + G + γ, after = P + G + kept, draft = min(P + G + γ − 1, after), blocks_back = "
           "ceil(during/b) − ceil(after/b)."),
    ),
)

QUESTIONS = (Q1, Q1_WHY, Q2, Q3, Q4, Q5)
