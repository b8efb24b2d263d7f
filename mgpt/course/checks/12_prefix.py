"""Chapter 12: what a prompt finds, who uses a block, what is evicted first, and when a block is copied."""

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.text import N_


# ---------------------------------------------------------------- 1: the hit
def equal_ids(entry, tokens):
    return entry["tokens"] == tokens


def hit(request, block_size, cached, cap=lambda p, size: (p - 1) // size, same=equal_ids, tenant=True, adapter=True,
        parent=True, early=lambda tick, now: tick < now, most=99, reused=None, computed=None):
    """What a prompt finds, right or with one thing changed.

    cap(P, size): whole blocks that may be found; same(entry, tokens): the ids agree; tenant, adapter, parent: whether they
    are compared; early(tick, now): computed early enough; most: blocks; reused, computed: other ways to count.
    """
    prompt, found = request["prompt"], []
    while len(found) < min(cap(len(prompt), block_size), most):
        start = len(found) * block_size
        tokens = prompt[start : start + block_size]
        before = found[-1]["block"] if found else None
        entry = next((e for e in cached if same(e, tokens) and (not parent or e["parent"] == before)
                      and (not tenant or e["tenant"] == request["tenant"])
                      and (not adapter or e["adapter"] == request["adapter"]) and early(e["tick"], request["tick"])), None)
        if entry is None:
            break
        found.append(entry)
    blocks = [entry["block"] for entry in found]
    n = len(blocks) * block_size if reused is None else reused(request, block_size, cached, blocks)
    left = len(prompt) - n if computed is None else computed(len(prompt), n)
    return {"blocks": blocks, "reused": n, "computed": left}


def into_the_next(request, block_size, cached, blocks):
    """Positions found, and those of a block behind them that begins alike."""
    n = len(blocks) * block_size
    rest = request["prompt"][n : len(request["prompt"]) - 1]
    before = blocks[-1] if blocks else None
    alike = [e["tokens"] for e in cached if e["parent"] == before and e["tenant"] == request["tenant"]
             and e["adapter"] == request["adapter"] and e["tick"] < request["tick"]]
    more = [next((i for i, (a, b) in enumerate(zip(rest, tokens)) if a != b), min(len(rest), block_size)) for tokens in alike]
    return n + max(more, default=0)


def not_aligned(request, block_size, cached):
    """Every whole block is found, and one position is taken off the count."""
    right = hit(request, block_size, cached, cap=lambda p, size: p // size)
    reused = min(right["reused"], len(request["prompt"]) - 1)
    return {**right, "reused": reused, "computed": len(request["prompt"]) - reused}


def draw_hit(rng):
    """A table with other tenants, adapters, prefixes, equal sums and fresh ticks; a prompt that meets some of them."""
    size, now = rng.choice([2, 3, 4]), rng.randrange(6, 12)
    base = [rng.randrange(1, 5) for _ in range(size * rng.randrange(2, 5))]
    ids, cached = rng.sample(range(40), 40), []

    def file(tokens, tenant, adapter, ticks):
        before = None
        for start in range(0, len(tokens) - size + 1, size):
            own = tokens[start : start + size]
            known = next((e for e in cached if (e["parent"], e["tokens"], e["tenant"], e["adapter"]) == (
                before, own, tenant, adapter)), None)
            if known is None:
                known = {"block": ids.pop(), "parent": before, "tokens": own, "tenant": tenant, "adapter": adapter,
                         "sum": sum(own), "tick": rng.choice(ticks)}
                cached.append(known)
            before = known["block"]

    def nudged(tokens, at):
        """Another text with the same sums: one id more, its neighbour in the block one less."""
        i = at * size
        return [*tokens[:i], tokens[i] + 1, tokens[i + 1] - 1, *tokens[i + 2 :]]

    old = range(1, now - 1)
    mine, others = rng.choice([("red", None), ("red", "law"), ("blue", None)]), [("red", None), ("red", "law"), ("blue", None)]
    depth = rng.randrange(len(base) // size + 1)
    file(base[: depth * size], *mine, old)
    file(base, *rng.choice([one for one in others if one != mine]), old)
    file(nudged(base, rng.randrange(len(base) // size)), *mine, old)
    file([5] * size + base[size:], *mine, old)
    if rng.random() < 0.5:
        file(base, *mine, [now, now, now - 1])
    rng.shuffle(cached)
    end = rng.choice([len(base), len(base), len(base) - 1, len(base) + 1, len(base) + size + 1])
    prompt = (base + [rng.randrange(1, 5) for _ in range(size + 1)])[:end]
    if rng.random() < 0.3:
        prompt[rng.randrange(len(prompt))] += 1
    return {"prompt": prompt, "tenant": mine[0], "adapter": mine[1], "tick": now}, size, cached


def request(prompt, tenant="red", adapter=None, tick=5):
    return {"prompt": prompt, "tenant": tenant, "adapter": adapter, "tick": tick}


def entry(block, parent, tokens, tenant="red", adapter=None, tick=1):
    return {"block": block, "parent": parent, "tokens": tokens, "tenant": tenant, "adapter": adapter, "sum": sum(tokens),
            "tick": tick}


def result(blocks, reused, computed):
    return {"blocks": blocks, "reused": reused, "computed": computed}


CHAIN = [entry(7, None, [1, 2]), entry(4, 7, [3, 4])]
TWO_TENANTS = [entry(7, None, [1, 2]), entry(2, None, [1, 2], tenant="blue")]
EQUAL_SUMS = [entry(7, None, [1, 2]), entry(6, None, [2, 1])]
Q1 = Question(
    "12_prefix.q1", "match_prefix", points=4, reference=hit, draw=draw_hit, fresh=60,
    cases=(
        Case((request([1, 2, 3, 4, 5]), 2, CHAIN), result([7, 4], 4, 1)),
        Case((request([1, 2, 3, 4]), 2, CHAIN), result([7], 2, 2)),
        Case((request([3, 4, 1, 2, 9]), 2, CHAIN), result([], 0, 5)),
        Case((request([1, 2, 3, 4, 5], tick=1), 2, CHAIN), result([], 0, 5)),
        Case((request([1, 2, 3, 4, 5], "red", "law"), 2, CHAIN), result([], 0, 5)),
        Case((request([1, 2, 3], "blue"), 2, TWO_TENANTS), result([2], 2, 1)),
        Case((request([2, 1, 3], "red"), 2, EQUAL_SUMS), result([6], 2, 1)),
    ),
    mistakes=(
        Mistake("a full hit", lambda *a: hit(*a, cap=lambda p, size: p // size),
                N_("at most P − 1 positions: the last one must be processed, or there are no logits to choose output 1 from")),
        Mistake("P − 1 positions", not_aligned,
                N_("a hit is whole blocks: P − 1 is cut down to a multiple of block_size")),
        Mistake("a block too few", lambda *a: hit(*a, cap=lambda p, size: p // size - 1),
                N_("only a prompt that ends with a block gives its last block up; otherwise all whole blocks may be found")),
        Mistake("part of a block", lambda *a: hit(*a, reused=into_the_next),
                N_("a block whose ids agree only at its start is not found: whole blocks only")),
        Mistake("the parent ignored", lambda *a: hit(*a, parent=False),
                N_("a block computed behind another prefix has other K/V: its parent must be the block found before it")),
        Mistake("the tenant ignored", lambda *a: hit(*a, tenant=False),
                N_("another tenant's block is no hit, however equal it is")),
        Mistake("the adapter ignored", lambda *a: hit(*a, adapter=False),
                N_("another adapter gives other K and V: it is part of the key")),
        Mistake("blocks of this tick", lambda *a: hit(*a, early=lambda tick, now: tick <= now),
                N_("only blocks computed in an earlier tick can be found: this tick's are still empty at the lookup")),
        Mistake("the sum trusted", lambda *a: hit(*a, same=lambda e, tokens: e["sum"] == sum(tokens)),
                N_("equal sums do not make equal blocks: a sum, like any hash, says perhaps, and the token ids decide")),
        Mistake("the first block only", lambda *a: hit(*a, most=1),
                N_("the search goes on: the child of a block that was found may be there, too")),
        Mistake("blocks for positions", lambda *a: hit(*a, reused=lambda r, size, c, blocks: len(blocks)),
                N_("reused counts positions: blocks times block_size")),
        Mistake("the whole prompt computed", lambda *a: hit(*a, computed=lambda p, n: p),
                N_("what is found is not computed again: computed = P − reused")),
    ),
    hints=(
        N_("Start at the root: parent None. What must agree before you may go one block deeper, and when must you stop?"),
        N_("At most (P − 1) // block_size blocks. An entry fits if parent, tokens, tenant and adapter are equal and its tick is "
           "smaller than the request's."),
        N_("before = None; for each whole block of prompt[:P − 1]: find the entry that fits; none: stop; else note its id and "
           "set before to it. reused = blocks · block_size."),
    ),
    stands_for=("mgpt.prefix.PrefixCache",),
)

Q1_WHY = choice(
    "12_prefix.q1_why", "q1_why", "c",
    {"a": N_("same weights, same ids, same positions: the numbers would be equal to the last bit"),
     "b": N_("a reference count does not ask who the users are; it would count them all the same"),
     "d": N_("blocks of one pool have one size, whoever uses them")},
    (N_("The numbers are not the reason. What can blue observe?"),
     N_("Blue sends a guess at red's prompt, and looks at the clock."),
     N_("Look at the trap 'another tenant's prefix': TTFT 1 for the right guess, 4 for a wrong one.")),
)


# ---------------------------------------------------------------- 2: users
def state_of(block):
    return "in use" if block["users"] else "cached" if block["filed"] else "free"


def live(blocks, events, refuse=None, after_release=None, share=None, free=None, forget=True, stop=False, first=0,
         listed=True):
    """A pool after some events, right or with one thing changed.

    refuse: what -> (block -> whether it is refused), in place of the right rule; after_release(block): the count, and what
    else changes; share(block): the count; free(block): allocate may take it; forget: eviction ends the filing; stop: nothing
    happens after a refusal; first: the number of the first event; listed: refusals are told.
    """
    rules = {"share": lambda b: state_of(b) == "free", "release": lambda b: not b["users"],
             "evict": lambda b: state_of(b) != "cached"} | (refuse or {})
    now, refused = [dict(block) for block in blocks], []
    for number, (what, *which) in enumerate(events, first):
        if what == "allocate":
            block = next((b for b in now if (free(b) if free else state_of(b) == "free")), None)
        else:
            block = now[which[0]]
        if block is None or what != "allocate" and rules[what](block):
            refused.append(number)
            if stop:
                break
        elif what == "allocate":
            block["users"] = 1
        elif what == "share":
            block["users"] = share(block) if share else block["users"] + 1
        elif what == "release":
            block["users"] -= 1
            if after_release:
                after_release(block)
        else:
            block["users"] = 0
            block["filed"] = not forget
    return {"users": [b["users"] for b in now], "states": [state_of(b) for b in now], "refused": refused if listed else []}


def unfiled(block):
    block["filed"] = block["filed"] and block["users"] > 0


def emptied(block):
    block["users"] = 0


def draw_events(rng):
    """A pool in every state, and events of which several are refused."""
    blocks = [{"users": rng.choice([0, 0, 1, 1, 2, 3]), "filed": rng.random() < 0.5} for _ in range(rng.randrange(3, 6))]
    return blocks, [["allocate"] if what == "allocate" else [what, rng.randrange(len(blocks))]
                    for what in rng.choices(["share", "release", "release", "evict", "allocate"], k=rng.randrange(6, 13))]


def pool(*rows):
    return [{"users": users, "filed": filed} for users, filed in rows]


def alive(users, states, refused):
    words = {"u": "in use", "c": "cached", "f": "free"}
    return {"users": users, "states": [words[letter] for letter in states], "refused": refused}


Q2 = Question(
    "12_prefix.q2", "play", points=4, reference=live, draw=draw_events, fresh=40, whole=True,
    cases=(
        Case((pool((1, True), (0, False)), [["share", 0], ["release", 0], ["release", 0]]), alive([0, 0], "cf", [])),
        Case((pool((1, True), (2, False)), [["release", 0], ["release", 0], ["release", 1]]), alive([0, 1], "cu", [1])),
        Case((pool((0, True), (1, True)), [["evict", 1], ["evict", 0], ["share", 0]]), alive([0, 1], "fu", [0, 2])),
        Case((pool((0, True), (1, False)), [["allocate"], ["evict", 0], ["allocate"], ["release", 0]]), alive([0, 1], "fu", [0])),
        Case((pool((0, True), (0, False)), [["share", 0], ["evict", 1], ["allocate"], ["share", 1]]), alive([1, 2], "uu", [1])),
    ),
    mistakes=(
        Mistake("below zero", lambda *a: live(*a, refuse={"release": lambda b: False}),
                N_("a release of a block that nobody uses is refused and changes nothing: a count never goes below 0")),
        Mistake("releasing evicts", lambda *a: live(*a, after_release=unfiled),
                N_("a filed block whose last user leaves stays resident: releasing and evicting are two steps")),
        Mistake("a release empties", lambda *a: live(*a, after_release=emptied),
                N_("a release gives back one reference, the others still use the block")),
        Mistake("evicted in use", lambda *a: live(*a, refuse={"evict": lambda b: not b["filed"]}),
                N_("a block in use is never evicted: somebody reads it")),
        Mistake("a free block evicted", lambda *a: live(*a, refuse={"evict": lambda b: b["users"] > 0}),
                N_("only a cached block can be evicted: a free one is not filed, and there is nothing to forget")),
        Mistake("a free block shared", lambda *a: live(*a, refuse={"share": lambda b: False}),
                N_("a free block cannot be shared: what is in it belongs to nobody")),
        Mistake("cached not shared", lambda *a: live(*a, refuse={"share": lambda b: not b["users"]}),
                N_("a cached block can be shared: that is what it is kept for")),
        Mistake("one user for all", lambda *a: live(*a, share=lambda b: 1),
                N_("users are counted: a second one makes 2")),
        Mistake("cached handed out", lambda *a: live(*a, free=lambda b: not b["users"]),
                N_("allocate takes free blocks only: a cached one has to be evicted first")),
        Mistake("the key kept", lambda *a: live(*a, forget=False),
                N_("an evicted block is no longer filed, or its old key would answer for its next content")),
        Mistake("stopped at a refusal", lambda *a: live(*a, stop=True),
                N_("a refused event changes nothing, and the next events happen all the same")),
        Mistake("counted from 1", lambda *a: live(*a, first=1), N_("events are counted from 0")),
        Mistake("refusals not told", lambda *a: live(*a, listed=False),
                N_("the numbers of the refused events belong in the answer")),
    ),
    hints=(
        N_("Three states follow from two facts, users and filed. Which events does each state allow?"),
        N_("share: not when free. release: not at 0 users. evict: only when cached. allocate: only when some block is free."),
        N_("For each event look at the state first; refused: note its number and go on. share +1; release −1; evict: filed = "
           "False; allocate: the first free block gets 1 user."),
    ),
    stands_for=("mgpt.blocks.BlockPool",),
)


# ---------------------------------------------------------------- 3: the order of eviction
def depth_of(entry, cached):
    by_id = {e["block"]: e for e in cached}
    return 0 if entry["parent"] is None else 1 + depth_of(by_id[entry["parent"]], cached)


def order(cached, n, key=lambda e, depth: (e["last_used"], -depth), idle=lambda e: not e["users"], short=None):
    """Ids in the order of eviction, right or with one thing changed: the sort key, who can go, how many."""
    ranked = sorted(filter(idle, cached), key=lambda e: key(e, depth_of(e, cached)))
    return [e["block"] for e in ranked][: n if short is None else short(n, cached)]


def counted_along(cached, n):
    """The first n of all; those in use among them are left out at the end."""
    users = {e["block"]: e["users"] for e in cached}
    return [b for b in order(cached, n, idle=lambda e: True) if not users[b]]


def whole_chains(cached, n):
    """All idle blocks of a chain that were used last together go at once."""
    right = order(cached, len(cached))
    when = {e["block"]: e["last_used"] for e in cached}
    return [b for b in right if when[b] in {when[one] for one in right[:n]}]


def draw_tree(rng):
    """Chains and branches: a use of a block is a use of all before it."""
    ids, cached, now = rng.sample(range(50), 20), [], 0
    for _ in range(rng.randrange(2, 4)):
        parent = None
        for _ in range(rng.randrange(1, 5)):
            cached.append({"block": ids.pop(), "parent": parent, "users": 0, "last_used": 0})
            parent = cached[-1]["block"]
    for _ in range(rng.randrange(0, 3)):
        cached.append({"block": ids.pop(), "parent": rng.choice(cached)["block"], "users": 0, "last_used": 0})
    by_id = {e["block"]: e for e in cached}
    leaves = [e for e in cached if e["block"] not in {x["parent"] for x in cached}]

    def path(e):
        return [e] if e["parent"] is None else [*path(by_id[e["parent"]]), e]

    for leaf in rng.sample(leaves, len(leaves)):
        now += rng.randrange(1, 4)
        for e in path(leaf):
            e["last_used"] = now
    for _ in range(rng.randrange(0, 3)):
        chain = path(rng.choice(leaves))
        for e in chain[: rng.randrange(1, len(chain) + 1)]:
            e["users"] += 1
    rng.shuffle(cached)
    return cached, rng.randrange(1, 6)


def tree(*rows):
    return [dict(zip(("block", "parent", "users", "last_used"), row)) for row in rows]


LINE = tree((1, None, 0, 4), (2, 1, 0, 4), (3, 2, 0, 4))
FOREST = tree((8, None, 1, 9), (5, 8, 0, 6), (6, None, 0, 8), (9, 6, 0, 8))
MIXED = tree((7, 4, 0, 5), (4, None, 0, 5), (1, 7, 0, 5), (2, None, 0, 1))
Q3 = Question(
    "12_prefix.q3", "evict", points=4, reference=order, draw=draw_tree, fresh=30, whole=True,
    cases=(
        Case((LINE, 1), [3]),
        Case((LINE, 5), [3, 2, 1]),
        Case((FOREST, 2), [5, 9]),
        Case((FOREST, 9), [5, 9, 6]),
        Case((tree((4, None, 2, 7), (7, 4, 1, 7)), 2), []),
        Case((MIXED, 2), [2, 1]),
    ),
    mistakes=(
        Mistake("evicted in use", lambda c, n: order(c, n, idle=lambda e: True),
                N_("a block with users is never evicted, however long ago it was looked up")),
        Mistake("in use counted", counted_along,
                N_("n blocks without a user are wanted: those in use are left out before, not after")),
        Mistake("the newest first", lambda c, n: order(c, n, key=lambda e, d: (-e["last_used"], -d)),
                N_("the least recently used goes first: the smallest last_used")),
        Mistake("the parent first", lambda c, n: order(c, n, key=lambda e, d: (e["last_used"], d)),
                N_("of blocks used at one moment the deepest goes first: without its parent a block cannot be found any more")),
        Mistake("depth before use", lambda c, n: order(c, n, key=lambda e, d: (-d, e["last_used"])),
                N_("last_used decides first; depth only among equals")),
        Mistake("ties by id", lambda c, n: order(c, n, key=lambda e, d: (e["last_used"], e["block"])),
                N_("an id says nothing about depth: follow the parents to the root and count")),
        Mistake("ties by the largest id", lambda c, n: order(c, n, key=lambda e, d: (e["last_used"], -e["block"])),
                N_("the largest id need not be the deepest block: follow the parents and count")),
        Mistake("ties by place in the list", lambda c, n: order(c, n, key=lambda e, d: e["last_used"]),
                N_("the list is in no order: among equals the depth decides")),
        Mistake("depth alone", lambda c, n: order(c, n, key=lambda e, d: -d),
                N_("the least recently used goes first; depth decides only among equals")),
        Mistake("n ignored", lambda c, n: order(c, n, short=lambda n, c: len(c)),
                N_("no more than n blocks go: the others may still be found")),
        Mistake("whole chains", whole_chains,
                N_("a chain is evicted block by block from its end, not all at once")),
        Mistake("one too few", lambda c, n: order(c, n, short=lambda n, c: n - 1),
                N_("n blocks go, if so many have no user")),
    ),
    hints=(
        N_("Who can go at all? And of those, which first? There are two criteria, one after the other."),
        N_("Only users == 0. Sort by last_used, smallest first; of equals the largest depth first. A root has depth 0."),
        N_("by_id = {e['block']: e for e in cached}; count parents up to None; sorted(idle, key=(last_used, −depth))[:n]."),
    ),
    stands_for=("mgpt.prefix.PrefixCache",),
)


# ---------------------------------------------------------------- 4: copy on write
def protected(users, filed, block):
    return users[block] > 1 or block in filed


def made_room(table, held, new, block_size, users, filed, free, first=lambda held, size: held // size, guard=protected,
              reach=None, length=lambda held, new, size: -(-(held + new) // size), give_back=True, whole=True, copies_first=True,
              count=lambda users, old: 1):
    """Block table and counts before a write, right or with one thing changed.

    first, reach: the touched entries of the table begin and end there; guard: must be copied; length: blocks of the new table;
    give_back: the writer leaves the original; whole: all or nothing; copies_first; count: users of a copy.
    """
    table, users, free = list(table), list(users), list(free)
    end = len(table) if reach is None else reach(table)
    want = length(held, new, block_size)
    copy = [i for i in range(max(first(held, block_size), 0), min(end, len(table))) if guard(users, filed, table[i])]
    more = max(want - len(table), 0)
    if whole and len(copy) + more > len(free):
        return {"table": table, "copied": [], "users": users}
    if not copies_first:
        free = free[more : more + len(copy)] + free[:more] + free[more + len(copy) :]
    copied = []
    for i in copy:
        if free:
            old, table[i] = table[i], free.pop(0)
            users[table[i]] = count(users, old)
            users[old] -= give_back
            copied.append([old, table[i]])
    for _ in range(more):
        if free:
            table.append(free.pop(0))
            users[table[-1]] = 1
    return {"table": table, "copied": copied, "users": users}


def draw_write(rng):
    """A table whose last block is private, shared or filed, full or not; a pool that is sometimes too small."""
    size, n = rng.choice([2, 3, 4]), rng.randrange(2, 5)
    ids = rng.sample(range(12), 12)
    table, free = ids[:n], ids[n : n + rng.choice([0, 1, 2, 3, 4])]
    held = n * size - rng.choice([0, *range(size), *range(1, size)])
    users = [0 if b in free else rng.randrange(1, 3) for b in range(12)]
    for b in table[:-1]:
        users[b] = rng.choice([1, 2, 2, 3])
    users[table[-1]] = rng.choice([1, 1, 2, 3])
    filed = [b for b in table[:-1] if rng.random() < 0.8] + [b for b in table[-1:] if rng.random() < 0.35]
    return table, held, rng.randrange(1, 2 * size + 1), size, users, filed, free


def room(table, copied, users):
    return {"table": table, "copied": copied, "users": users}


Q4 = Question(
    "12_prefix.q4", "make_room", points=4, reference=made_room, draw=draw_write, fresh=60, whole=True,
    cases=(
        Case(([0, 1], 6, 1, 4, [2, 2, 0, 0], [0], [2, 3]), room([0, 2], [[1, 2]], [2, 1, 1, 0])),
        Case(([0, 1], 6, 1, 4, [2, 1, 0, 0], [0], [2, 3]), room([0, 1], [], [2, 1, 0, 0])),
        Case(([0, 1], 6, 3, 4, [2, 2, 0, 0], [0], [2, 3]), room([0, 2, 3], [[1, 2]], [2, 1, 1, 1])),
        Case(([0, 1], 8, 1, 4, [2, 2, 0, 0], [0, 1], [3, 2]), room([0, 1, 3], [], [2, 2, 0, 1])),
        Case(([0, 1], 6, 2, 4, [1, 1, 0, 0], [0, 1], [3, 2]), room([0, 3], [[1, 3]], [1, 0, 0, 1])),
        Case(([0, 1], 6, 3, 4, [2, 2, 0, 1], [0], [2]), room([0, 1], [], [2, 2, 0, 1])),
    ),
    mistakes=(
        Mistake("shared and written", lambda *a: made_room(*a, guard=lambda users, filed, b: False),
                N_("a block with other users, or a filed one, is copied before it is written: they read it")),
        Mistake("filed and written", lambda *a: made_room(*a, guard=lambda users, filed, b: users[b] > 1),
                N_("a filed block is copied even by its only user: the cache has promised its content to the next one")),
        Mistake("shared blocks written", lambda *a: made_room(*a, guard=lambda users, filed, b: b in filed),
                N_("a block with a second user is copied, filed or not")),
        Mistake("always copied", lambda *a: made_room(*a, guard=lambda users, filed, b: True),
                N_("the only user of a block that is not filed writes in place")),
        Mistake("the whole table copied", lambda *a: made_room(*a, first=lambda held, size: 0),
                N_("only a block that is written into is copied; full shared blocks are read, and stay")),
        Mistake("a full block copied", lambda *a: made_room(*a, first=lambda held, size: (held - 1) // size),
                N_("where the last block is full, nothing is written into it: the new positions go to a new block")),
        Mistake("the original kept", lambda *a: made_room(*a, give_back=False),
                N_("the writer leaves the original: it has one user less")),
        Mistake("the users copied", lambda *a: made_room(*a, count=lambda users, old: users[old]),
                N_("a copy is private: it has one user, the writer")),
        Mistake("as far as it goes", lambda *a: made_room(*a, whole=False),
                N_("all or nothing: with too few free blocks nothing is copied and nothing is taken")),
        Mistake("new blocks before copies", lambda *a: made_room(*a, copies_first=False),
                N_("the copy takes the first free block, the new blocks those behind it")),
        Mistake("a position too many", lambda *a: made_room(*a, length=lambda held, new, size: -(-(held + new + 1) // size)),
                N_("held + new positions need ceil((held + new) / block_size) blocks")),
        Mistake("no new blocks", lambda *a: made_room(*a, length=lambda held, new, size: 0),
                N_("positions that do not fit the last block need new blocks")),
        Mistake("new positions in blocks of their own", lambda *a: made_room(
                    *a, length=lambda held, new, size: -(-held // size) + -(-new // size)),
                N_("the new positions first fill the free slots of the last block")),
    ),
    hints=(
        N_("Which blocks of the table does the write touch? And which of these may not be written?"),
        N_("The first touched entry is held // block_size. It must be copied if it has more than 1 user or is filed. Blocks needed "
           "in all: ceil((held + new) / block_size)."),
        N_("need = copies + missing blocks; more than free: return everything as it was. Else take from the front of free: for the "
           "copy first (old −1, copy 1 user), then the new blocks (1 user each)."),
    ),
    stands_for=("mgpt.blocks.PagedKVCache",),
)

QUESTIONS = (Q1, Q1_WHY, Q2, Q3, Q4)
