"""Chapter 10: one tick of a scheduler, who is admitted, work conservation, and a whole run."""

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.scheduler import Request, simulate
from mgpt.text import N_


# ---------------------------------------------------------------- 1: one tick
def decodes(request):
    return request["outputs"] > 0


def rest(request):
    """Positions that an active request could process now."""
    return 1 if decodes(request) else request["prompt"] - request["cached"]


def entry(request, inputs, sampled):
    return {"id": request["id"], "inputs": inputs, "sampled": sampled}


def serve(active, budget, order=lambda request: not decodes(request), want=rest, free=lambda request: False,
          refill=False, whole=False, sampled=lambda request, inputs: inputs == rest(request), least=1, most=999):
    """The tick of a scheduler, right or with one thing changed.

    order: sort key; want(request): positions wanted; free(request): outside the budget; refill: each has its own budget;
    whole: prompts are not cut; least: entries below are left out; most: prefills served in one tick.
    """
    limit = sum(request["prompt"] + 1 for request in active) if budget is None else budget
    left, result, prefills = limit, [], 0
    for request in sorted(active, key=order):
        inputs = want(request) if free(request) else min(want(request), left)
        prefills += not decodes(request)
        if whole and inputs < want(request) or not decodes(request) and prefills > most:
            inputs = 0
        if inputs >= least:
            result.append(entry(request, inputs, sampled(request, inputs)))
        if not refill and not free(request):
            left -= inputs
    return result


def also_decode(active, budget):
    """A prefill that ends goes on to decode in the same tick."""
    result = serve(active, budget)
    room = None if budget is None else budget - sum(line["inputs"] for line in result)
    by_id = {request["id"]: request for request in active}
    for line in list(result):
        if line["sampled"] and not decodes(by_id[line["id"]]) and (room is None or room > 0):
            result.append({"id": line["id"], "inputs": 1, "sampled": True})
            room = None if room is None else room - 1
    return result


def draw_active(rng):
    """Decoding and prefilling requests in any order of admission; a budget that often cuts a prompt."""
    active = []
    for name in "ABCDEF"[: rng.randrange(3, 7)]:
        prompt = rng.randrange(2, 13)
        outputs = rng.choice([0, 0, rng.randrange(1, 6)])
        cached = prompt + outputs - 1 if outputs else rng.choice([0, rng.randrange(prompt)])
        active.append({"id": name, "prompt": prompt, "cached": cached, "outputs": outputs})
    return active, rng.choice([None, 2, 4, 5, 6, 8, 10, 14])


def active(*rows):
    return [dict(zip(("id", "prompt", "cached", "outputs"), row)) for row in rows]


Q1 = Question(
    "10_scheduler.q1", "tick", points=4, reference=serve, draw=draw_active, fresh=14,
    cases=(
        Case((active(("A", 8, 8, 1), ("B", 8, 0, 0)), None), [
            {"id": "A", "inputs": 1, "sampled": True}, {"id": "B", "inputs": 8, "sampled": True}]),
        Case((active(("A", 8, 8, 1), ("B", 8, 0, 0)), 4), [
            {"id": "A", "inputs": 1, "sampled": True}, {"id": "B", "inputs": 3, "sampled": False}]),
        Case((active(("A", 8, 6, 0), ("B", 4, 5, 2), ("C", 9, 0, 0), ("D", 5, 0, 0)), 6), [
            {"id": "B", "inputs": 1, "sampled": True}, {"id": "A", "inputs": 2, "sampled": True},
            {"id": "C", "inputs": 3, "sampled": False}]),
        Case((active(("A", 3, 3, 1), ("B", 2, 4, 3), ("C", 7, 2, 0)), 2), [
            {"id": "A", "inputs": 1, "sampled": True}, {"id": "B", "inputs": 1, "sampled": True}]),
        Case(([], 8), []),
    ),
    mistakes=(
        Mistake("prefill first", lambda a, b: serve(a, b, order=decodes),
                N_("prompts are served before decodes here: requests that are answering must get their token first")),
        Mistake("order of admission alone", lambda a, b: serve(a, b, order=lambda request: 0),
                N_("the order of admission holds within the decodes and within the prefills; all decodes come first")),
        Mistake("decodes outside the budget", lambda a, b: serve(a, b, free=decodes),
                N_("decode tokens count: prefill gets only what they leave of the budget")),
        Mistake("a budget for each", lambda a, b: serve(a, b, refill=True),
                N_("the budget is for the whole tick, not for each request")),
        Mistake("prompts not cut", lambda a, b: serve(a, b, whole=True),
                N_("a prompt that does not fit is cut: it takes what is left of the budget")),
        Mistake("from the start again", lambda a, b: serve(
                    a, b, want=lambda r: 1 if decodes(r) else r["prompt"],
                    sampled=lambda r, n: decodes(r) or n == r["prompt"]),
                N_("the positions that are cached already are not processed again")),
        Mistake("every chunk samples", lambda a, b: serve(a, b, sampled=lambda r, n: True),
                N_("a chunk that does not end the prompt samples nothing")),
        Mistake("the last chunk samples nothing", lambda a, b: serve(a, b, sampled=lambda r, n: decodes(r)),
                N_("the pass that ends a prompt samples output 1")),
        Mistake("decodes after its own prefill", also_decode,
                N_("a prefill that ends in a tick does not also decode in it: output 1 has only just been chosen")),
        Mistake("prompt and output 1 in one", lambda a, b: serve(
                    a, b, want=lambda r: rest(r) + (not decodes(r)),
                    sampled=lambda r, n: n >= rest(r)),
                N_("a prefill processes what is left of the prompt; output 1 itself is processed in a later tick")),
        Mistake("one prefill a tick", lambda a, b: serve(a, b, most=1),
                N_("what one prefill leaves of the budget goes to the next one")),
        Mistake("listed without a turn", lambda a, b: serve(
                    a, b, least=0, sampled=lambda r, n: n > 0 and n == rest(r)),
                N_("who gets no position is not in the list")),
        Mistake("budget ignored", lambda a, b: serve(a, None),
                N_("the tick may process no more positions than the budget")),
    ),
    hints=(
        N_("Two groups, each in order of admission. Which goes first, and what do both draw on?"),
        N_("A decode wants 1 position, a prefill wants prompt − cached. Each gets the smaller of that and what is left."),
        N_("left = budget; for request in decodes, then prefills: n = min(wants, left); if n > 0: note it, left −= n; sampled "
           "is n == wants."),
    ),
    stands_for=("mgpt.scheduler.Scheduler",),
)

Q1_WHY = choice(
    "10_scheduler.q1_why", "q1_why", "b",
    {"a": N_("in one pass a position costs the same whoever it belongs to: it is a question of who waits, not of cost"),
     "c": N_("decodes and prefills run in one tick; the budget is shared between them"),
     "d": N_("order does not change the total: each request still takes P + N − 1 positions")},
    (N_("Think of a long prompt that arrives while somebody reads an answer as it appears."),
     N_("With prefill first and a budget of 4, a prompt of 16 positions takes four ticks alone. What do the others get?"),
     N_("Look at the trap 'prefill first': A has outputs in ticks 0, 5, 6, 7.")),
)


# ---------------------------------------------------------------- 2: admission
def positions(request):
    return request["prompt"] + request["wanted"] - 1


def let_in(waiting, running, policy, max_active, block_size, pool, held=positions, up=True, overtake=False, once=False,
           strict=False, busy=None, slots=None, gate=True):
    """Admission, right or with one thing changed.

    held(request): positions reserved; up: whole blocks; overtake: the next may pass a head that does not fit; once: one a
    tick; strict: less than the pool; busy: whose blocks count; slots: running requests that count; gate: static waits.
    """
    def blocks(request):
        return -(-held(request) // block_size) if up else held(request) // block_size

    if gate and policy == "static" and running:
        return []
    admitted, reserved = [], sum(map(blocks, running if busy is None else busy))
    active_now = len(running) if slots is None else slots
    for request in waiting:
        together = reserved + blocks(request)
        if active_now + len(admitted) >= max_active or once and admitted:
            break
        if pool is not None and (together >= pool if strict else together > pool):
            if overtake:
                continue
            break
        reserved = together
        admitted.append(request["id"])
    return admitted


def pooled(waiting, running, policy, max_active, block_size, pool):
    """Positions of all are added up before they are divided into blocks."""
    if policy == "static" and running:
        return []
    admitted, held = [], sum(map(positions, running))
    for request in waiting:
        held += positions(request)
        if len(running) + len(admitted) >= max_active or pool is not None and -(-held // block_size) > pool:
            break
        admitted.append(request["id"])
    return admitted


def draw_queue(rng):
    """A queue, some of it too large for the pool that is left."""
    size = rng.choice([2, 4, 4, 8])

    def some(names):
        return [{"id": name, "prompt": rng.randrange(1, 14), "wanted": rng.randrange(1, 8)} for name in names]

    running = some("RS"[: rng.choice([0, 0, 1, 2])])
    waiting = some("ABCDE"[: rng.randrange(2, 6)])
    free = rng.choice([1, 2, 3, 4, 6, 8])
    pool = rng.choice([None, *[sum(-(-positions(r) // size) for r in running) + free] * 4])
    return waiting, running, rng.choice(["continuous", "continuous", "static"]), rng.randrange(2, 6), size, pool


def queue(*rows):
    return [dict(zip(("id", "prompt", "wanted"), row)) for row in rows]


A, B, C = ("A", 8, 4), ("B", 8, 3), ("C", 4, 2)
Q2 = Question(
    "10_scheduler.q2", "admit", points=4, reference=let_in, draw=draw_queue, fresh=30,
    cases=(
        Case((queue(B, C), queue(A), "continuous", 2, 4, None), ["B"]),
        Case((queue(B, C), queue(A), "static", 2, 4, None), []),
        Case((queue(B, C), [], "static", 2, 4, 5), ["B", "C"]),
        Case((queue(B, C), queue(A), "continuous", 3, 4, 5), []),
        Case((queue(("D", 5, 4), ("E", 4, 1), ("F", 1, 1)), queue(("G", 6, 1)), "continuous", 4, 4, 5), ["D", "E"]),
        Case((queue(("D", 4, 1), ("E", 9, 4), ("F", 1, 1)), queue(("G", 4, 1)), "continuous", 4, 4, 4), ["D"]),
        Case((queue(("D", 2, 2), ("E", 9, 1)), [], "continuous", 4, 4, 4), ["D", "E"]),
    ),
    mistakes=(
        Mistake("the head overtaken", lambda *a: let_in(*a, overtake=True),
                N_("nobody overtakes a head that does not fit: admission stops there, however small the next one is")),
        Mistake("one output too many", lambda *a: let_in(*a, held=lambda r: r["prompt"] + r["wanted"]),
                N_("the last output is never processed: a request holds P + N − 1 positions, not P + N")),
        Mistake("the prompt alone", lambda *a: let_in(*a, held=lambda r: r["prompt"]),
                N_("the blocks of the decode tokens must be reserved too: P + N − 1 positions in all")),
        Mistake("blocks cut off", lambda *a: let_in(*a, up=False),
                N_("a block that is begun is a whole block: round up")),
        Mistake("rounded up apart", lambda w, r, p, m, size, pool: let_in(
                    w, r, p, m, size, pool, held=lambda x: size * (-(-x["prompt"] // size) - (1 - x["wanted"]) // size)),
                N_("the first outputs fill the prompt's last block: add prompt and outputs before rounding up, once")),
        Mistake("positions against blocks", lambda w, r, p, m, size, pool: let_in(w, r, p, m, 1, pool),
                N_("the pool is a number of blocks: turn positions into blocks of block_size first")),
        Mistake("positions pooled", pooled,
                N_("a block belongs to one request: round up for each, then add")),
        Mistake("running blocks forgotten", lambda *a: let_in(*a, busy=[]),
                N_("the running requests have blocks reserved already; only the rest of the pool is free")),
        Mistake("a block kept free", lambda *a: let_in(*a, strict=True),
                N_("a reservation that fills the pool exactly does fit")),
        Mistake("a wave refilled", lambda *a: let_in(*a, gate=False),
                N_("static waves admit only when nothing runs, even if a place is free")),
        Mistake("one a tick", lambda *a: let_in(*a, once=True),
                N_("as many are admitted at the start of a tick as there are places and blocks for")),
        Mistake("running slots forgotten", lambda *a: let_in(*a, slots=0),
                N_("max_active counts those that run already, too")),
        Mistake("max_active ignored", lambda *a: let_in(*a[:3], 999, *a[4:]),
                N_("no more than max_active requests are active at once")),
        Mistake("the pool ignored", lambda *a: let_in(*a[:5], None),
                N_("a request is admitted only if its reservation fits the pool")),
    ),
    hints=(
        N_("There are three reasons to stop: the policy, the places, the blocks. Does any of them let you skip somebody?"),
        N_("A request reserves ceil((P + N − 1)/block_size). Those that run have done so, too."),
        N_("static and running: []. Otherwise go along the queue; stop at the first for whom place or blocks are missing; add "
           "its blocks to what is reserved."),
    ),
    stands_for=("mgpt.scheduler.Scheduler",),
)


# ---------------------------------------------------------------- 3: work conservation
def could(line, whole=False, many=False, states=("prefill", "decode")):
    """Positions that a line of the log could have used."""
    if line["state"] not in states:
        return 0
    if line["state"] == "decode":
        return line["prompt"] if many else 1
    return line["prompt"] - (0 if whole else line["cached"])


def gaps(log, budget, first=0, every=False, of=could, limit=min, used=lambda line: line["inputs"], show=None):
    """The ticks that were not work-conserving, or what a changed rule takes for them."""
    found = []
    for number, lines in enumerate(log, first):
        most = sum(map(of, lines))
        most = most if budget is None else limit(most, budget)
        short = most - sum(map(used, lines))
        if short > 0 or every:
            found.append({"tick": number, "positions": short if show is None else show(most, lines)})
    return found


def draw_log(rng):
    """Ticks of two to five requests; some leave budget unused, some not."""
    budget, log = rng.choice([None, 4, 6, 8, 12]), []
    for _ in range(rng.randrange(3, 7)):
        lines, left = [], rng.choice([1, 4, 6, 99]) if budget is None else budget - rng.choice([0, 0, 1, 2])
        for _ in range(rng.randrange(2, 6)):
            prompt, state = rng.randrange(2, 10), rng.choice(["waiting", "prefill", "prefill", "decode", "decode"])
            cached = {"waiting": 0, "prefill": rng.randrange(prompt), "decode": prompt + rng.randrange(4)}[state]
            line = {"state": state, "prompt": prompt, "cached": cached, "inputs": 0}
            line["inputs"] = min(could(line), left) if rng.random() < 0.85 else 0
            left -= line["inputs"]
            lines.append(line)
        log.append(lines)
    return log, budget


def line(state, prompt, cached, inputs):
    return {"state": state, "prompt": prompt, "cached": cached, "inputs": inputs}


LOG = [
    [line("prefill", 8, 0, 4)],
    [line("prefill", 8, 4, 3), line("waiting", 8, 0, 0)],
    [line("prefill", 8, 7, 1), line("waiting", 8, 0, 0)],
    [line("decode", 8, 8, 1), line("prefill", 8, 0, 3)],
    [line("decode", 8, 9, 0), line("prefill", 8, 3, 2), line("waiting", 4, 0, 0)],
]
Q3 = Question(
    "10_scheduler.q3", "unused", points=3, reference=gaps, draw=draw_log, fresh=14, whole=True,
    cases=(
        Case((LOG, 4), [{"tick": 1, "positions": 1}, {"tick": 4, "positions": 2}]),
        Case(([[line("waiting", 6, 0, 0)], []], 8), []),
        Case((LOG[1:2], None), [{"tick": 0, "positions": 1}]),
        Case(([[line("prefill", 6, 2, 4), line("decode", 5, 7, 1)], [line("decode", 5, 8, 0), line("decode", 6, 6, 1)]], 6),
             [{"tick": 1, "positions": 1}]),
    ),
    mistakes=(
        Mistake("the waiting counted", lambda log, b: gaps(
                    log, b, of=lambda x: could(x, states=("prefill", "decode", "waiting"))),
                N_("a request that is not admitted cannot use the budget: admission is another question")),
        Mistake("idle budget as waste", lambda log, b: gaps(log, b, limit=lambda most, budget: budget),
                N_("a budget that nobody could use is not wasted: compare with the smaller of budget and open work")),
        Mistake("budget ignored", lambda log, b: gaps(log, None),
                N_("a tick cannot process more than its budget, however much work is open")),
        Mistake("whole prompts open", lambda log, b: gaps(log, b, of=lambda x: could(x, whole=True)),
                N_("of a prompt only the part without K/V is open: prompt − cached")),
        Mistake("prefill alone", lambda log, b: gaps(log, b, of=lambda x: could(x, states=("prefill",))),
                N_("each request that decodes could use 1 position, and counts in what was open")),
        Mistake("decodes left out", lambda log, b: gaps(
                    log, b, of=lambda x: could(x, states=("prefill",)),
                    used=lambda x: x["inputs"] * (x["state"] != "decode")),
                N_("decode tokens are positions as well: they count in what was open and in what was processed")),
        Mistake("cached after the tick", lambda log, b: gaps(
                    log, b, of=lambda x: could(x) - x["inputs"] * (x["state"] == "prefill")),
                N_("`cached` is counted before the tick: what the tick processes of a prompt was still open then")),
        Mistake("no budget, no verdict", lambda log, b: [] if b is None else gaps(log, b),
                N_("without a budget a tick could have processed all that was open")),
        Mistake("decodes alone", lambda log, b: gaps(log, b, of=lambda x: could(x, states=("decode",))),
                N_("the open part of prompts could use the budget, too")),
        Mistake("counted from 1", lambda log, b: gaps(log, b, first=1), N_("ticks are counted from 0")),
        Mistake("every tick listed", lambda log, b: gaps(log, b, every=True),
                N_("only the ticks that left something unused are listed")),
        Mistake("what could be done", lambda log, b: gaps(log, b, show=lambda most, lines: most),
                N_("that is all that the tick could have processed; what was processed must be taken away")),
        Mistake("what was done", lambda log, b: gaps(log, b, show=lambda m, lines: sum(x["inputs"] for x in lines)),
                N_("that is what the tick processed; the answer is how much more it could have")),
        Mistake("requests idle", lambda log, b: gaps(
                    log, b, used=lambda x: 0 if x["state"] == "waiting" else could(x) if x["inputs"] else 0),
                N_("a request that got some positions may still have wanted more: count positions, not requests")),
    ),
    hints=(
        N_("Two numbers limit a tick: the budget, and what the active requests have open. Which of them bites?"),
        N_("Open: 1 for each that decodes, prompt − cached for each in prefill, nothing for those that wait."),
        N_("could = min(budget, Σ open), or Σ open without a budget; used = Σ inputs; list the ticks with used < could."),
    ),
)


# ---------------------------------------------------------------- 4: a whole run
def whole_run(requests, policy, max_active, budget, **wrong):
    """Output ticks, TTFT and latency by `mgpt.scheduler`; `wrong`: functions (request, Served) -> value."""
    made = [Request(r["id"], r["arrival"], r["prompt"], r["wanted"]) for r in requests]
    served = simulate(made, policy=policy, max_active=max_active, block_size=1, token_budget=budget).requests
    return {key: {"outputs": s.output_ticks, "ttft": s.ttft, "latency": s.latency,
                  **{name: change(s) for name, change in wrong.items()}} for key, s in served.items()}


def by_hand(requests, policy, max_active, budget, tick=serve, room=None, order=lambda r: r["arrival"], delay=0,
            same_tick=False, gate=True):
    """A run with one thing changed: its ticks, its slots, its order of arrival, or its gate."""
    coming = sorted(requests, key=order)
    waiting, running, now, ticks = [], [], 0, {r["id"]: [] for r in requests}
    while coming or waiting or running:
        while coming and coming[0]["arrival"] + delay <= now:
            waiting.append({**coming.pop(0), "cached": 0, "outputs": 0})
        if not gate or policy == "continuous" or not running:
            while waiting and len(running) < max_active:
                running.append(waiting.pop(0))
        left = budget
        while True:
            turn = [r for r in running if r.get("turn") != now]
            for row in tick(turn, left):
                request = next(r for r in running if r["id"] == row["id"])
                request["cached"] += row["inputs"]
                left = None if left is None else left - row["inputs"]
                if row["sampled"]:
                    request["outputs"] += 1
                    ticks[request["id"]].append(now)
            for request in turn:
                request["turn"] = now
            ended = [r for r in running if r["outputs"] >= r["wanted"]]
            running = [r for r in running if r["outputs"] < r["wanted"]]
            joined = same_tick and ended and waiting and (policy == "continuous" or not running) and left != 0
            if not joined:
                break
            while waiting and len(running) < max_active:
                running.append(waiting.pop(0))
        now += 1
    return {r["id"]: {"outputs": (t := ticks[r["id"]][: r["wanted"]]), "ttft": t[0] + 1 - r["arrival"],
                      "latency": t[-1] + 1 - r["arrival"]} for r in requests}


def draw_run(rng):
    """Three to six requests, not always in order of arrival."""
    requests = [{"id": name, "arrival": rng.randrange(0, 6), "prompt": rng.randrange(1, 12), "wanted": rng.randrange(1, 6)}
                for name in "ABCDEF"[: rng.randrange(3, 7)]]
    return requests, rng.choice(["static", "continuous"]), rng.randrange(1, 4), rng.choice([None, 3, 4, 6, 8])


def trace(*rows):
    return [dict(zip(("id", "arrival", "prompt", "wanted"), row)) for row in rows]


def answer(requests, *ticks):
    return {r["id"]: {"outputs": list(t), "ttft": t[0] + 1 - r["arrival"], "latency": t[-1] + 1 - r["arrival"]}
            for r, t in zip(requests, ticks)}


ABC = trace(("A", 0, 8, 4), ("B", 1, 8, 3), ("C", 2, 4, 2))
MIXED = trace(("D", 4, 3, 2), ("E", 0, 5, 3), ("F", 0, 2, 1))
Q4 = Question(
    "10_scheduler.q4", "run", points=5, reference=whole_run, draw=draw_run, fresh=12, whole=True,
    cases=(
        Case((ABC, "static", 2, None), answer(ABC, (0, 1, 2, 3), (4, 5, 6), (4, 5))),
        Case((ABC, "continuous", 2, None), answer(ABC, (0, 1, 2, 3), (1, 2, 3), (4, 5))),
        Case((ABC, "continuous", 2, 4), answer(ABC, (1, 2, 3, 4), (4, 5, 6), (6, 7))),
        Case((ABC, "static", 2, 8), answer(ABC, (0, 1, 2, 3), (4, 5, 6), (5, 6))),
        Case((MIXED, "continuous", 1, None), answer(MIXED, (4, 5), (0, 1, 2), (3,))),
    ),
    mistakes=(
        Mistake("stamped at the start", lambda *a: whole_run(
                    *a, ttft=lambda s: s.ttft - 1, latency=lambda s: s.latency - 1),
                N_("events are stamped at the end of their tick: + 1")),
        Mistake("clock time for duration", lambda *a: whole_run(
                    *a, ttft=lambda s: s.output_ticks[0] + 1, latency=lambda s: s.completion),
                N_("TTFT and latency count from the arrival, not from tick 0")),
        Mistake("counted from admission", lambda *a: whole_run(
                    *a, ttft=lambda s: s.output_ticks[0] + 1 - s.admitted, latency=lambda s: s.completion - s.admitted),
                N_("the wait in the queue belongs to TTFT and latency: count from the arrival, not from the admission")),
        Mistake("latency from tick 0", lambda *a: whole_run(*a, latency=lambda s: s.completion),
                N_("latency counts from the arrival as TTFT does; counted from tick 0 it is the completion")),
        Mistake("latency from the first output", lambda *a: whole_run(
                    *a, latency=lambda s: s.completion - s.output_ticks[0] - 1),
                N_("latency counts from the arrival, so the wait for the first output is inside it")),
        Mistake("ticks counted from 1", lambda *a: whole_run(*a, outputs=lambda s: [t + 1 for t in s.output_ticks]),
                N_("outputs are named by their tick, and the first tick is 0")),
        Mistake("one output too many", lambda requests, *a: whole_run(
                    [r | {"wanted": r["wanted"] + 1} for r in requests], *a),
                N_("a request that wants n outputs leaves at the end of the tick that samples output n")),
        Mistake("the shortest first", lambda *a: by_hand(*a, order=lambda r: (r["arrival"], r["prompt"])),
                N_("of equal arrivals the first in the list comes first")),
        Mistake("order of the list", lambda *a: by_hand(*a, order=lambda r: 0),
                N_("the queue is in order of arrival; the list need not be")),
        Mistake("admitted a tick late", lambda *a: by_hand(*a, delay=1),
                N_("a request that arrives at a can be admitted in tick a")),
        Mistake("slot reused in its tick", lambda *a: by_hand(*a, same_tick=True),
                N_("a place released at the end of tick t can be used from t + 1")),
        Mistake("static waves refilled", lambda *a: by_hand(*a, gate=False),
                N_("static waves admit only when nothing runs")),
        Mistake("waves always", lambda requests, policy, *a: whole_run(requests, "static", *a),
                N_("continuous batching admits in every tick, also while others run")),
        Mistake("every chunk samples", lambda *a: by_hand(
                    *a, tick=lambda r, b: serve(r, b, sampled=lambda request, n: True)),
                N_("a chunk that does not end the prompt samples nothing, and its request does not decode next")),
        Mistake("prefill first", lambda *a: by_hand(*a, tick=lambda r, b: serve(r, b, order=decodes)),
                N_("within the budget the decodes come first")),
        Mistake("decodes outside the budget", lambda *a: by_hand(*a, tick=lambda r, b: serve(r, b, free=decodes)),
                N_("decode tokens count in the budget")),
        Mistake("budget ignored", lambda requests, policy, most, b: by_hand(requests, policy, most, None),
                N_("no tick may process more positions than the budget")),
        Mistake("one at a time", lambda requests, policy, most, b: by_hand(requests, policy, 1, b),
                N_("up to max_active requests run at once")),
    ),
    hints=(
        N_("A loop over ticks with three lists: still to come, waiting, running. What is the order of events inside one tick?"),
        N_("Arrivals join the queue, admit moves the head of it to running, tick serves, those with all outputs leave. The "
           "places they leave are used in the next tick."),
        N_("while anything is left: move arrivals ≤ now; admit; for each served: cached += inputs, and if sampled note now; "
           "drop the finished; now += 1. ttft = first + 1 − arrival, latency = last + 1 − arrival."),
    ),
    stands_for=("mgpt.scheduler.Scheduler", "mgpt.scheduler.simulate"),
)

QUESTIONS = (Q1, Q1_WHY, Q2, Q3, Q4)
