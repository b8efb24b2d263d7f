"""Validity: what of a cache a new text keeps, what the next turn keeps, where K/V differ, what a fingerprint covers."""

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.text import N_
from mgpt.validity import fingerprint, longest_common_prefix


# ---------------------------------------------------------------- 1: keep, forget, compute
def plan(cached, new, keep=None, **wrong):
    """The right dict, or one with another number kept (the rest follows) or another entry."""
    keep = min(longest_common_prefix(cached, new), len(new) - 1) if keep is None else keep
    return {"keep": keep, "forget": len(cached) - keep, "compute": len(new) - keep, **wrong}


def common_end(cached, new):
    return longest_common_prefix(cached[::-1], new[::-1])


def draw_texts(rng):
    """A cached list and a new one: changed inside, equal, longer, shorter, or of another start."""
    cached = [rng.randrange(40) for _ in range(rng.randrange(6, 20))]
    new, kind = list(cached), rng.randrange(6)
    if kind in (0, 1):  # one id changed, and perhaps some more text
        at = rng.randrange(1, len(new))
        new[at] = (new[at] + 1) % 40
        new += [rng.randrange(40) for _ in range(rng.randrange(3))]
    elif kind == 2:
        new += [rng.randrange(40) for _ in range(rng.randrange(1, 5))]
    elif kind == 3:
        new = new[: rng.randrange(1, len(new))]
    elif kind == 4:
        new[0] = (new[0] + 1) % 40
    return cached, new


Q1 = Question(
    "05_validity.q1", "reuse_plan", points=3, whole=True, reference=plan, draw=draw_texts, fresh=10,
    cases=(
        Case(([20, 3, 18, 4, 14, 13, 8, 0], [20, 3, 18, 4, 15, 13, 8, 0]), {"keep": 4, "forget": 4, "compute": 4}),
        Case(([5, 6, 7, 8], [5, 6, 7, 8]), {"keep": 3, "forget": 1, "compute": 1}),
        Case(([5, 6, 7], [5, 6, 7, 5, 6]), {"keep": 3, "forget": 0, "compute": 2}),
        Case(([9, 5, 6, 7, 7, 7], [5, 6, 7]), {"keep": 0, "forget": 6, "compute": 3}),
    ),
    mistakes=(
        Mistake("full hit keeps all", lambda c, n: plan(c, n, longest_common_prefix(c, n)),
                N_("a prompt that is found whole still needs its last position computed: a cache holds no logits")),
        Mistake("equal anywhere", lambda c, n: plan(c, n, min(sum(a == b for a, b in zip(c, n)), len(n) - 1)),
                N_("equal ids behind the first change do not count: their K/V have mixed the change in")),
        Mistake("equal as sets", lambda c, n: plan(c, n, min(len(set(c) & set(n)), len(n) - 1)),
                N_("the order decides: K/V of a position depend on all ids before it, not on which ids occur")),
        Mistake("common end", lambda c, n: plan(c, n, min(common_end(c, n), len(n) - 1)),
                N_("texts that end alike share nothing in the cache: what counts is how they begin")),
        Mistake("the changed one kept", lambda c, n: plan(c, n, min(longest_common_prefix(c, n) + 1, len(n) - 1)),
                N_("the first id that differs has other K/V itself: keep the ids before it only")),
        Mistake("one too few", lambda c, n: plan(c, n, max(0, longest_common_prefix(c, n) - 1)),
                N_("only a prompt that is found whole gives up its last position; elsewhere all equal ones are kept")),
        Mistake("length only", lambda c, n: plan(c, n, min(len(c), len(n) - 1)),
                N_("an equal length says nothing of the content: compare the ids")),
        Mistake("all or nothing", lambda c, n: plan(c, n, min(len(c), len(n) - 1) if n[: len(c)] == c else 0),
                N_("a change makes K/V invalid from its place on, not before it: the equal front is kept")),
        Mistake("forgotten counted in the new text", lambda c, n: plan(c, n, forget=plan(c, n)["compute"]),
                N_("what is forgotten are positions of the cache: its own length minus what is kept")),
        Mistake("computed counted in the cache", lambda c, n: plan(c, n, compute=plan(c, n)["forget"]),
                N_("what is computed are positions of the new text: its length minus what is kept")),
        Mistake("computed all", lambda c, n: plan(c, n, compute=len(n)),
                N_("kept positions are not computed again: that is what they are kept for")),
    ),
    hints=(
        N_("Walk along both lists from the start. Where do you have to stop?"),
        N_("Whatever is equal behind the first difference is lost too. And what gives the logits when all is found?"),
        N_("keep = min(number of equal leading ids, len(new_ids) − 1); forget = len(cached_ids) − keep; "
           "compute = len(new_ids) − keep."),
    ),
    stands_for=("mgpt.validity.longest_common_prefix",),
)
Q1_WHY = choice(
    "05_validity.q1_why", "q1_why", "d",
    {"a": N_("its RoPE position is the same in both texts: position 6"),
     "b": N_("the fingerprint covers weights and settings; those are equal here"),
     "c": N_("in layer 0 they are the same: there its own token and place alone decide them")},
    hints=(N_("Take figure 5.1: in which layer does position 6 differ, and in which not?"),
           N_("What goes into layer 1 at position 6?"),
           N_("Attention of layer 0 lets position 6 read positions 4 and 5; its output feeds layer 1.")),
)


# ---------------------------------------------------------------- 2: the next turn
def turn(prompt, outputs, following, held=None, keep=None):
    """The right dict, or one with another list of ids in the cache (the rest follows) or another number kept."""
    held = prompt + outputs[:-1] if held is None else held
    return {"in_cache": len(held),
            "keep": min(longest_common_prefix(held, following), len(following) - 1) if keep is None else keep}


def draw_turn(rng):
    prompt = [rng.randrange(40) for _ in range(rng.randrange(3, 12))]
    outputs = [rng.randrange(40) for _ in range(rng.randrange(1, 6))]
    message = [rng.randrange(40) for _ in range(rng.randrange(1, 6))]
    kind = rng.randrange(5)
    if kind == 0:  # the first line was rewritten
        return prompt, outputs, [(prompt[0] + 1) % 40, *prompt[1:], *outputs, *message]
    if kind == 1:  # the same question again
        return prompt, outputs, list(prompt)
    if kind == 2:  # the answer was edited
        return prompt, outputs, [*prompt, (outputs[0] + 1) % 40, *outputs[1:], *message]
    return prompt, outputs, prompt + outputs + message


Q2 = Question(
    "05_validity.q2", "next_turn", points=3, whole=True, reference=turn, draw=draw_turn, fresh=10,
    cases=(
        Case(([20, 3, 18, 22], [15, 13, 8], [20, 3, 18, 22, 15, 13, 8, 0, 20]), {"in_cache": 6, "keep": 6}),
        Case(([20, 3, 18, 22], [15, 13, 8], [20, 3, 18, 22]), {"in_cache": 6, "keep": 3}),
        Case(([20, 3, 18, 22], [15, 13, 8], [20, 3, 19, 22, 15, 13, 8, 0]), {"in_cache": 6, "keep": 2}),
        Case(([7, 9], [4], [7, 9, 4, 1]), {"in_cache": 2, "keep": 2}),
        Case(([7, 9], [4, 4], [7, 9, 5, 4, 1]), {"in_cache": 3, "keep": 2}),
        Case(([7, 9], [4, 4], [7, 9, 4, 4, 1]), {"in_cache": 3, "keep": 3}),
    ),
    mistakes=(
        Mistake("last output in the cache", lambda p, o, f: turn(p, o, f, p + o),
                N_("the last output was chosen, and no pass has processed it: it has no K/V yet")),
        Mistake("prompt only", lambda p, o, f: turn(p, o, f, p),
                N_("each decode pass has kept the output that it processed")),
        Mistake("first output missing", lambda p, o, f: turn(p, o, f, p + o[1:]),
                N_("the output without K/V is the last one; the first was processed by the first decode pass")),
        Mistake("one too few in the cache", lambda p, o, f: turn(p, o, f, (p + o)[:-2]),
                N_("only one output is without K/V, the last; the cache holds P + G − 1 positions")),
        Mistake("outputs only", lambda p, o, f: turn(p, o, f, o),
                N_("the prompt's positions stand in the cache, before the outputs")),
        Mistake("all kept", lambda p, o, f: turn(p, o, f, keep=min(len(p + o) - 1, len(f) - 1)),
                N_("the next prompt may differ from what was said: compare the ids, up to the first difference")),
        Mistake("prompt kept", lambda p, o, f: turn(p, o, f, keep=min(longest_common_prefix(p, f), len(f) - 1)),
                N_("the outputs that were processed can be kept too, where the next prompt repeats them")),
        Mistake("full hit keeps all", lambda p, o, f: turn(p, o, f, keep=longest_common_prefix((p + o)[:-1], f)),
                N_("the last position of the next prompt is computed in any case: it gives the logits")),
        Mistake("equal anywhere", lambda p, o, f: turn(
                    p, o, f, keep=min(sum(a == b for a, b in zip((p + o)[:-1], f)), len(f) - 1)),
                N_("equal ids behind the first change do not count: their K/V have mixed the change in")),
        Mistake("one too few kept", lambda p, o, f: turn(p, o, f, keep=max(0, turn(p, o, f)["keep"] - 1)),
                N_("all positions before the first difference are valid; none of them has to be given up")),
    ),
    hints=(
        N_("First write down the ids whose K/V the cache holds at the end of a turn. Is the last output among them?"),
        N_("Then it is the question before: how far does the next prompt begin with these ids?"),
        N_("held = prompt_ids + output_ids[:-1]; in_cache = len(held); keep = min(equal leading ids, "
           "len(next_ids) − 1)."),
    ),
    stands_for=("mgpt.validity.longest_common_prefix",),
)


# ---------------------------------------------------------------- 3: where K/V differ
def first_difference(old_k, old_v, new_k, new_v, tolerance, differs=None, pick=min):
    """The right dict, or one by another rule; differs(position, dk, dv): dk[layer][position] and dv are new − old."""
    n = len(old_k[0])
    dk, dv = ([[y - x for x, y in zip(a, b)] for a, b in zip(old, new)] for old, new in ((old_k, new_k), (old_v, new_v)))
    differs = differs or any_layer
    found = [i for i in range(n) if differs(i, dk, dv, tolerance)]
    return {"first": pick(found) if found else None, "keep": pick(found) if found else n}


def any_layer(i, dk, dv, tolerance):
    return any(abs(row[i]) > tolerance for row in dk + dv)


def by(differs=None, **options):
    """A mistake's function with another rule."""
    return lambda *args: first_difference(*args, differs=differs, **options)


def entries(**change):
    """A mistake's function that changes entries of the right dict; each gets (dict, number of positions)."""
    return lambda *args: (right := first_difference(*args)) | {
        key: value(right, len(args[0][0])) for key, value in change.items()}


def draw_kv(rng):
    """Three layers with differences of several sizes and signs; noise below the tolerance stands before them."""
    n = rng.randrange(5, 9)
    old = [[[rng.randrange(-9, 10) for _ in range(n)] for _ in range(3)] for _ in "kv"]
    new = [[list(row) for row in array] for array in old]
    if rng.random() < 0.85:
        start = rng.randrange(1, n)
        new[rng.randrange(2)][rng.randrange(3)][start] += rng.choice([-3, -2, 2, 3])
        for _ in range(3):
            new[rng.randrange(2)][rng.randrange(3)][rng.randrange(start, n)] += rng.choice([-3, 2])
        new[rng.randrange(2)][rng.randrange(3)][rng.randrange(start)] += 0.125
    return old[0], old[1], new[0], new[1], 0.5


FLAT = [[1, 2, 3, 4], [5, 6, 7, 8]]
Q3 = Question(
    "05_validity.q3", "first_difference", points=3, whole=True, reference=first_difference, draw=draw_kv, fresh=14,
    cases=(
        Case((FLAT, FLAT, [[1, 2, 3, 4], [5, 4, 7, 9]], [[1, 2, 0, 4], [5, 6, 7, 8]], 0.5), {"first": 1, "keep": 1}),
        Case((FLAT, FLAT, [[1, 2, 5, 4], [5, 6, 7, 8]], [[1, 0, 3, 4], [5, 6, 7, 8]], 0.5), {"first": 1, "keep": 1}),
        Case((FLAT, FLAT, [[1.25, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 3, 4], [5, 6, 7, 1]], 0.5), {"first": 3, "keep": 3}),
        Case((FLAT, FLAT, [[9, 9, 9, 9], [5, 6, 7, 8]], FLAT, 0.5), {"first": 0, "keep": 0}),
        Case((FLAT, FLAT, [[1, 2, 3, 4.25], [5, 6, 7, 8]], FLAT, 0.5), {"first": None, "keep": 4}),
    ),
    mistakes=(
        Mistake("first layer only", by(lambda i, dk, dv, t: any_layer(i, dk[:1], dv[:1], t)),
                N_("layer 0 sees only its own token: look into the deeper layers as well")),
        Mistake("last layer only", by(lambda i, dk, dv, t: any_layer(i, dk[-1:], dv[-1:], t)),
                N_("every layer's K/V are read by later passes: a difference in any of them counts")),
        Mistake("all layers at once", by(lambda i, dk, dv, t: all(
                    any_layer(i, [a], [b], t) for a, b in zip(dk, dv))),
                N_("one layer that differs is enough; not all of them have to")),
        Mistake("K only", by(lambda i, dk, dv, t: any_layer(i, dk, [], t)),
                N_("V is kept as well: a position whose V differ is as invalid")),
        Mistake("V only", by(lambda i, dk, dv, t: any_layer(i, [], dv, t)),
                N_("K is kept as well: a position whose K differ is as invalid")),
        Mistake("K and V both", by(lambda i, dk, dv, t: any_layer(i, dk, [], t) and any_layer(i, [], dv, t)),
                N_("K or V is enough: a position differs if either of them does")),
        Mistake("no tolerance", by(lambda i, dk, dv, t: any_layer(i, dk, dv, 0)),
                N_("differences up to the tolerance are rounding: another order of additions gives them")),
        Mistake("sign kept", by(lambda i, dk, dv, t: any(row[i] > t for row in dk + dv)),
                N_("a negative difference is a difference too: take its absolute value")),
        Mistake("old minus new", by(lambda i, dk, dv, t: any(-row[i] > t for row in dk + dv)),
                N_("a value that grew differs too: take the absolute value of the difference")),
        Mistake("last difference", by(pick=max),
                N_("the first position that differs is asked for; everything behind it is invalid anyway")),
        Mistake("counted from one", entries(first=lambda r, n: r["first"] and r["first"] + 1 if r["first"] else (
                    1 if r["first"] == 0 else None)),
                N_("positions are counted from 0")),
        Mistake("zero for none", entries(first=lambda r, n: r["first"] or 0),
                N_("where nothing differs there is no first position: None; 0 would say that nothing may be kept")),
        Mistake("length for none", entries(first=lambda r, n: n if r["first"] is None else r["first"]),
                N_("where nothing differs there is no first position: None")),
        Mistake("one too many kept", entries(keep=lambda r, n: min(r["keep"] + 1, n)),
                N_("the first position that differs is invalid itself: keep those before it")),
        Mistake("nothing kept without a difference", entries(keep=lambda r, n: r["first"] or 0),
                N_("where nothing differs all positions may be kept")),
    ),
    hints=(
        N_("A position is valid if K and V are unchanged there, in all layers. When is it not?"),
        N_("Go through the positions from the left; at each, look at both arrays and all layers, with abs()."),
        N_("first = the smallest i with abs(new[layer][i] − old[layer][i]) > tolerance for some layer of K or V, "
           "else None; keep = first, or the number of positions."),
    ),
)


# ---------------------------------------------------------------- 4: a fingerprint that misses nothing
DECIDES = ("weights", "adapter", "words", "offset", "window")


def classes(setups, key=None):
    """For each setup the index of the first with an equal key."""
    keys = [(key or kv_key)(setup) for setup in setups]
    return [keys.index(one) for one in keys]


def kv_key(setup):
    return fingerprint([setup[name] for name in DECIDES], None)


def keyed(skip=(), also=(), **change):
    """A mistake's function: classes by a key without some entries, with others, or with entries changed."""
    def key(setup):
        given = {name: setup[name] for name in (*DECIDES, *also) if name not in skip}
        return repr({name: change[name](value) if name in change else value for name, value in given.items()})

    return lambda setups: classes(setups, key)


def setup(weights=(3, 1, 2), adapter=None, words=("ab", "c"), offset=0, window=None, temperature=1.0, outputs=64):
    return {"weights": list(weights), "adapter": adapter, "words": list(words), "offset": offset, "window": window,
            "temperature": temperature, "outputs": outputs}


def draw_setups(rng):
    """One setup and every single change of it, shuffled: each entry that is missed or needless shows."""
    weights = [rng.randrange(1, 90) for _ in range(3)]
    weights[1] = weights[0] + 1 + weights[1]  # so that another order is another list
    base = dict(weights=weights, words=("ab", "c"), offset=rng.randrange(5), window=rng.choice([None, 16]),
                temperature=rng.choice([0.5, 1.0]), outputs=rng.randrange(8, 99))
    changes = [{}, {"weights": [weights[1], weights[0], weights[2]]}, {"weights": [weights[0], weights[1], weights[2] + 1]},
               {"weights": [weights[0] - 1, weights[1] + 1, weights[2]]}, {"weights": [*weights, 5]},
               {"adapter": "travel"}, {"words": ("c", "ab")}, {"words": ("a", "bc")}, {"offset": base["offset"] + 7},
               {"window": 8}, {"temperature": 0.0}, {"outputs": 100}]
    rng.shuffle(changes)
    return ([setup(**base | change) for change in changes],)


Q4 = Question(
    "05_validity.q4", "kv_classes", points=4, whole=True, reference=classes, draw=draw_setups, fresh=4,
    cases=(
        Case(([setup(), setup(temperature=0.5, outputs=8), setup(weights=(3, 2, 1))],), [0, 0, 2]),
        Case(([setup(), setup(words=("c", "ab")), setup(adapter="travel"), setup()],), [0, 1, 2, 0]),
        Case(([setup(offset=7), setup(), setup(window=8), setup(offset=7, temperature=0.0)],), [0, 1, 2, 0]),
    ),
    mistakes=(
        Mistake("weights left out", keyed(skip=("weights",)),
                N_("other weights give other K/V: the key has to cover every number of them")),
        Mistake("weights added up", keyed(weights=sum),
                N_("weights with the same sum can be other weights: cover every number at its place")),
        Mistake("weights sorted", keyed(weights=sorted),
                N_("the same numbers at other places are other weights: their order decides")),
        Mistake("shape only", keyed(weights=len),
                N_("a model that was trained further has the same shape and other numbers")),
        Mistake("adapter left out", keyed(skip=("adapter",)),
                N_("an adapter changes the weights that make K/V")),
        Mistake("words left out", keyed(skip=("words",)),
                N_("under another tokenizer the same ids mean other words: its entries belong to the key")),
        Mistake("words as a set", keyed(words=sorted),
                N_("the same words in another order have other ids")),
        Mistake("words run together", keyed(words="".join),
                N_("'ab', 'c' and 'a', 'bc' run together to the same text: keep the entries apart")),
        Mistake("offset left out", keyed(skip=("offset",)),
                N_("kept keys are turned by their positions: other positions, other K")),
        Mistake("window left out", keyed(skip=("window",)),
                N_("another attention rule gives deeper layers another input, and so other K/V")),
        Mistake("temperature included", keyed(also=("temperature",)),
                N_("a temperature serves the choice of a token; no K and no V depends on it, so this refuses reuse for nothing")),
        Mistake("outputs included", keyed(also=("outputs",)),
                N_("a limit of outputs changes no K and no V; this refuses reuse for nothing")),
        Mistake("everything included", keyed(also=("temperature", "outputs")),
                N_("what only serves the choice of tokens does not belong here: it changes no K and no V")),
    ),
    hints=(
        N_("For each entry ask: does any layer read it while it makes K and V?"),
        N_("Build one key a setup, from the entries that K/V depend on, each whole and in order. Then compare keys."),
        N_("key = (weights, adapter, words, offset, window), as tuples or through json.dumps; for each key its first "
           "index in the list of keys."),
    ),
    stands_for=("mgpt.validity.fingerprint",),
)
Q4_WHY = choice(
    "05_validity.q4_why", "q4_why", "c",
    {"a": N_("K/V were made by the old weights: the fingerprint is another"),
     "b": N_("kept answers are those of the old model; whether the new one says the same is not known"),
     "d": N_("that fingerprint names the old weights: no cache of the new model carries it")},
    hints=(N_("Which of the four was made without looking at the weights?"),
           N_("K/V and answers come out of the weights. What went in?"),
           N_("Text stays text; it only has to be processed again.")),
)

QUESTIONS = (Q1, Q1_WHY, Q2, Q3, Q4, Q4_WHY)
