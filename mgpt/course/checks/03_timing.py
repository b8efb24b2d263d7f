"""Chapter 03: times of a stream, reports that drop nobody, goodput, percentiles, and another tool's figure."""

import math
import statistics

import numpy as np

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.text import N_
from mgpt.timing import RequestTrace, summarize


# ---------------------------------------------------------------- 1: the times of one request, from its chunks
def chunk_metrics(arrival, chunks, **wrong):
    """The right dict, or one with some entries replaced."""
    trace = RequestTrace(arrival, chunks=chunks)
    right = {"n": trace.n_tokens, "ttft": trace.ttft, "gaps": trace.gaps, "tpot": trace.tpot, "e2e": trace.e2e}
    return {**right, **wrong}


def kept(chunks):
    return [chunk for chunk in chunks if chunk[1]]


def other_tpot(value):
    """A mistake's function: TPOT replaced by value(arrival, times of kept chunks, n) where one exists."""
    def wrong(arrival, chunks):
        times, n = [t for t, _ in kept(chunks)], sum(k for _, k in chunks)
        return chunk_metrics(arrival, chunks, **({"tpot": value(arrival, times, n)} if n > 1 else {}))

    return wrong


def unless_failed(change):
    """A mistake's function: entries replaced by change(arrival, chunks), but not where no token came."""
    return lambda a, c: chunk_metrics(a, c, **(change(a, c) if kept(c) else {}))


def with_zeros(arrival, chunks):
    """Gaps that are 0 between the tokens of one chunk."""
    times = [t for t, k in chunks for _ in range(k)]
    return {"gaps": [b - a for a, b in zip(times, times[1:])]}


def draw_chunks(rng):
    """A stream, perhaps with a role-only chunk first or a usage chunk last; often one token a chunk, or none."""
    arrival = rng.randrange(0, 500)
    clock, chunks, several = arrival + rng.randrange(20, 200), [], rng.random() < 0.5
    if rng.random() < 0.5:
        chunks.append([clock, 0])
    for _ in range(rng.choice([0, 1, 1, 2, 3, 5])):
        clock += rng.randrange(5, 90)
        chunks.append([clock, rng.choice([1, 2, 3]) if several else 1])
    if rng.random() < 0.5:
        chunks.append([clock + rng.randrange(5, 60), 0])
    return arrival, chunks


Q1 = Question(
    "03_timing.q1", "chunk_metrics", points=4, reference=chunk_metrics, draw=draw_chunks, fresh=12,
    cases=(
        Case((0, [[150, 1], [190, 1], [235, 1], [270, 1]]),
             {"n": 4, "ttft": 150, "gaps": [40, 45, 35], "tpot": 40.0, "e2e": 270}),
        Case((0, [[90, 0], [150, 3], [270, 1], [300, 0]]),
             {"n": 4, "ttft": 150, "gaps": None, "tpot": 40.0, "e2e": 270}),
        Case((10, [[110, 1]]), {"n": 1, "ttft": 100, "gaps": [], "tpot": None, "e2e": 100}),
        Case((5, [[40, 0]]), {"n": 0, "ttft": None, "gaps": None, "tpot": None, "e2e": None}),
        Case((20, [[140, 2]]), {"n": 2, "ttft": 120, "gaps": None, "tpot": 0.0, "e2e": 120}),
    ),
    mistakes=(
        Mistake("divided by n", other_tpot(lambda a, t, n: (t[-1] - t[0]) / n),
                N_("TPOT divides by n; after the first token there are n − 1")),
        Mistake("full latency over n", other_tpot(lambda a, t, n: (t[-1] - a) / n),
                N_("this TPOT is the full latency over n: the wait for the first token is inside it")),
        Mistake("wait counted in", other_tpot(lambda a, t, n: (t[-1] - a) / (n - 1)),
                N_("TPOT starts at the first token, not at the arrival")),
        Mistake("divided by chunks", other_tpot(lambda a, t, n: (t[-1] - t[0]) / (len(t) - 1 or 1)),
                N_("TPOT is by tokens, not by chunks: a chunk may carry several")),
        Mistake("zero for missing", lambda a, c: chunk_metrics(
                    a, c, **({"tpot": 0.0} if sum(k for _, k in c) == 1 else {})),
                N_("one token has no interval: its TPOT is missing (None), never 0")),
        Mistake("empty chunk as first token", unless_failed(lambda a, c: {"ttft": c[0][0] - a}),
                N_("a chunk without tokens is none: TTFT waits for the first chunk that carries some")),
        Mistake("empty chunk as the end", unless_failed(lambda a, c: {"e2e": c[-1][0] - a}),
                N_("a chunk without tokens (usage figures, for instance) does not move the end")),
        Mistake("chunk gaps as gaps", unless_failed(
                    lambda a, c: {"gaps": [y[0] - x[0] for x, y in zip(kept(c), kept(c)[1:])]}),
                N_("those are gaps of chunks; where one carries several tokens, gaps of tokens are unknown (None)")),
        Mistake("zeros inside a chunk", unless_failed(lambda a, c: with_zeros(a, c)),
                N_("tokens of one chunk have no times of their own: a gap of 0 was not measured, so gaps are None")),
        Mistake("clock time as TTFT", unless_failed(lambda a, c: {"ttft": kept(c)[0][0]}),
                N_("TTFT is a duration: the first emission minus the arrival")),
        Mistake("clock time as latency", unless_failed(lambda a, c: {"e2e": kept(c)[-1][0]}),
                N_("the full latency is a duration: the last emission minus the arrival")),
        Mistake("zeros for a failed request", lambda a, c: chunk_metrics(a, c) if kept(c) else {
                    "n": 0, "ttft": 0, "gaps": [], "tpot": 0, "e2e": 0},
                N_("without a token nothing was measured: every figure but n is None")),
        Mistake("chunks counted as tokens", unless_failed(lambda a, c: {"n": len(kept(c))}),
                N_("n counts tokens: the sum over the chunks, not their number")),
    ),
    hints=(
        N_("Which chunks carry tokens? Throw the others away first; then read off the first and the last."),
        N_("n is a sum. Gaps need a time for each token: when does each have its own? And what about a single token?"),
        N_("times = those with tokens > 0; n = Σ tokens; n = 0: all None; tpot = (last − first)/(n − 1) for n ≥ 2; "
           "gaps: [] for n = 1, differences if every chunk has one token, else None."),
    ),
    stands_for=("mgpt.timing.RequestTrace",),
)


# ---------------------------------------------------------------- 2: a report over many requests
def traces_of(requests):
    return [RequestTrace(r["arrival"], r["times"], error=r["error"]) for r in requests]


def average(samples):
    samples = list(samples)
    return math.fsum(samples) / len(samples) if samples else None


def report(requests, **wrong):
    """The right dict, or one with some entries replaced."""
    traces = traces_of(requests)
    whole = summarize(traces)
    right = {"n": whole.n, "failed": whole.n_errors, "ttft_mean": whole.ttft.mean, "tpot_mean": whole.tpot.mean,
             "tpot_count": whole.tpot.count, "partial_ttfts": [t.ttft for t in traces if t.failed and t.n_tokens]}
    return {**right, **wrong}


def as_if(change, requests):
    """The report of other requests: change(request) gives one or None (left out)."""
    return report([r for r in map(change, requests) if r])


def served(requests):
    return [t for t in traces_of(requests) if not t.failed]


def request(arrival, times, error=None):
    return {"arrival": arrival, "times": times, "error": error}


FIVE = [request(0, [150, 190, 235, 270]), request(0, [100], ""), request(0, []), request(0, [], "503"),
        request(0, [90, 130], "connection lost")]
THREE = [request(0, [100 + 100 * i for i in range(11)]), request(0, [120, 320], ""), request(0, [170, 230])]


def draw_request(rng):
    arrival = rng.randrange(0, 900)
    times, clock = [], arrival + rng.randrange(20, 400)
    for _ in range(rng.choice([0, 1, 1, 2, 3, 4, 6])):
        times.append(clock)
        clock += rng.randrange(5, 90)
    return request(arrival, times, rng.choice([None, None, "", "timeout"]))


def draw_requests(rng):
    return ([draw_request(rng) for _ in range(rng.randrange(2, 9))],)


Q2 = Question(
    "03_timing.q2", "report", points=4, reference=report, draw=draw_requests, fresh=10,
    cases=(
        Case((FIVE,), {"n": 5, "failed": 3, "ttft_mean": 125.0, "tpot_mean": 40.0, "tpot_count": 1,
                       "partial_ttfts": [90]}),
        Case((THREE,), {"n": 3, "failed": 0, "ttft_mean": 130.0, "tpot_mean": 120.0, "tpot_count": 3,
                        "partial_ttfts": []}),
        Case(([request(0, [], "503")],),
             {"n": 1, "failed": 1, "ttft_mean": None, "tpot_mean": None, "tpot_count": 0, "partial_ttfts": []}),
        Case(([],), {"n": 0, "failed": 0, "ttft_mean": None, "tpot_mean": None, "tpot_count": 0, "partial_ttfts": []}),
    ),
    mistakes=(
        Mistake("failed ones dropped", lambda rs: report(rs, n=len(served(rs))),
                N_("n counts everybody, failed requests too; dropping them hides a server that refuses load")),
        Mistake("silent ones served", lambda rs: report(rs, failed=sum(bool(r["error"]) for r in rs)),
                N_("a request without an output failed, also when it carries no error")),
        Mistake("broken ones served", lambda rs: as_if(lambda r: {**r, "error": None}, rs),
                N_("a request that broke off after some outputs failed: it leaves the means; its TTFT is kept apart")),
        Mistake("empty error text as failure", lambda rs: as_if(
                    lambda r: {**r, "error": None if r["error"] is None else "error"}, rs),
                N_("an empty error text is no error")),
        Mistake("zero for a missing TPOT", lambda rs: report(
                    rs, tpot_mean=average(t.tpot or 0 for t in served(rs)), tpot_count=len(served(rs))),
                N_("a request of one output has no TPOT: it is left out of the mean, not put in as 0")),
        Mistake("mean over gaps", lambda rs: report(rs, tpot_mean=average(g for t in served(rs) for g in t.gaps)),
                N_("that is the mean gap, where long answers weigh more; the mean TPOT gives each request one vote")),
        Mistake("partial TTFTs averaged in", lambda rs: report(
                    rs, ttft_mean=average(t.ttft for t in traces_of(rs) if t.n_tokens)),
                N_("failed requests stay out of the TTFT mean; what they showed is listed in partial_ttfts")),
        Mistake("failed ones as 0 ms", lambda rs: report(
                    rs, ttft_mean=average(0 if t.failed else t.ttft for t in traces_of(rs))),
                N_("a failed request is no fast one: it leaves the mean, it does not enter it as 0")),
        Mistake("zero without samples", lambda rs: {
                    key: 0 if value is None else value for key, value in report(rs).items()},
                N_("where no request has the figure its mean does not exist: None, not 0")),
        Mistake("median for mean", lambda rs: report(
                    rs, tpot_mean=statistics.median([t.tpot for t in served(rs) if t.tpot is not None] or [0]) if any(
                        t.tpot is not None for t in served(rs)) else None,
                    ttft_mean=statistics.median(t.ttft for t in served(rs)) if served(rs) else None),
                N_("that is the median; the mean is asked for")),
        Mistake("partial TTFTs lost", lambda rs: report(rs, partial_ttfts=[]),
                N_("a request that failed after its first output had a TTFT: keep it apart, in partial_ttfts")),
    ),
    hints=(
        N_("Sort the requests into two heaps first: served and failed. Which of the two does each entry look at?"),
        N_("Failed: an error text that is not empty, or no output. Means are over served ones that have the figure."),
        N_("n = all; failed = the second heap; ttft_mean over the first heap; tpot_mean over those with two outputs or "
           "more, their number in tpot_count; partial_ttfts = TTFT of failed ones with an output. No sample: None."),
    ),
    stands_for=("mgpt.timing.summarize",),
)
Q2_WHY = choice(
    "03_timing.q2_why", "q2_why", "c",
    {"a": N_("their times are often very short, and that is the danger: a refusal takes a millisecond"),
     "b": N_("they can be timed: a refusal has an arrival and an end. The question is what its time means"),
     "d": N_("users do notice a failure; that is why the report shows the count beside the latencies")},
    hints=(N_("A refused request ends after 1 ms. What would it do to a mean? And what if it is not counted at all?"),
           N_("Two ways to flatter a server: average refusals in, or leave them out. Which rule stops both?"),
           N_("A time of a failure is no time of an answer; a report that hides failures praises refusing.")),
)


# ---------------------------------------------------------------- 3: goodput
def goodput(requests, limits, *, strict=False, all_of=all, missing=True, failed=False, over=None, none=None):
    """The right dict, or one by another rule."""
    traces = traces_of(requests)
    counted = [t for t in traces if failed and t.n_tokens or not t.failed]

    def keeps(trace, key):
        value = getattr(trace, key)
        if value is None:
            return missing
        return value < limits[key] if strict else value <= limits[key]

    good = sum(bool(all_of(keeps(t, key) for key in limits)) for t in counted)
    of = len(traces) if over is None else over(traces)
    return {"goodput": good / of if of and limits else none,
            "without_tpot": sum(t.n_tokens == 1 for t in traces if not t.failed)}


def scaled(factor):
    def wrong(requests, limits):
        right = goodput(requests, limits)
        return right if right["goodput"] is None else {**right, "goodput": right["goodput"] * factor(requests)}

    return wrong


def draw_goodput(rng):
    requests = draw_requests(rng)[0]
    limits = {"ttft": rng.randrange(50, 450), "tpot": rng.randrange(5, 90), "e2e": rng.randrange(100, 900)}
    return requests, {key: limits[key] for key in rng.sample(sorted(limits), rng.choice([1, 2, 3]))}


Q3 = Question(
    "03_timing.q3", "goodput", points=3, reference=goodput, draw=draw_goodput, fresh=10,
    cases=(
        Case((FIVE, {"ttft": 200, "tpot": 50}), {"goodput": 0.4, "without_tpot": 1}),
        Case((FIVE, {"ttft": 150, "tpot": 40, "e2e": 270}), {"goodput": 0.4, "without_tpot": 1}),
        Case((FIVE, {"tpot": 39}), {"goodput": 0.2, "without_tpot": 1}),
        Case((FIVE, {}), {"goodput": None, "without_tpot": 1}),
        Case(([], {"ttft": 200}), {"goodput": None, "without_tpot": 0}),
        Case((THREE, {"ttft": 110, "e2e": 400}), {"goodput": 0.0, "without_tpot": 0}),
    ),
    mistakes=(
        Mistake("over those served", lambda r, s: goodput(r, s, over=lambda ts: sum(not t.failed for t in ts)),
                N_("the share is of all requests: failed ones count in the denominator")),
        Mistake("strict limits", lambda r, s: goodput(r, s, strict=True),
                N_("limits are inclusive: a value that equals its limit keeps it")),
        Mistake("one output not good", lambda r, s: goodput(r, s, missing=False),
                N_("a TPOT limit does not apply to a request of one output; its other limits decide")),
        Mistake("one limit is enough", lambda r, s: goodput(r, s, all_of=any),
                N_("a good request keeps all limits, not just one")),
        Mistake("broken ones good", lambda r, s: goodput(r, s, failed=True),
                N_("a failed request is never good, however quick its first outputs were")),
        Mistake("zero without limits", lambda r, s: goodput(r, s, none=0.0),
                N_("without limits, or without requests, there is no goodput: None, not 0")),
        Mistake("everything good without limits", lambda r, s: goodput(r, s or {"ttft": 10**9}),
                N_("without limits nothing says what good means: goodput is None")),
        Mistake("a share in per cent", scaled(lambda r: 100),
                N_("a share lies between 0 and 1; this one is in per cent")),
        Mistake("a number of requests", scaled(len),
                N_("that is how many are good; goodput is their share of all requests")),
        Mistake("failed ones without TPOT", lambda r, s: {
                    **goodput(r, s), "without_tpot": sum(t.n_tokens < 2 for t in traces_of(r))},
                N_("without_tpot counts requests of one output that did not fail; failed ones are counted elsewhere")),
        Mistake("only the first limit looked at", lambda r, s: goodput(r, dict(list(s.items())[:1])),
                N_("every limit that is given has to hold, not only the first one of the dict")),
    ),
    hints=(
        N_("What makes a request good? Write that as a function of one request first, with failures in mind."),
        N_("A failed request is never good. A missing TPOT breaks no limit. A value equal to its limit keeps it."),
        N_("good = not failed and all(value is None or value <= limit); goodput = good / len(requests), None without "
           "limits or requests; without_tpot = served requests of one output."),
    ),
    stands_for=("mgpt.timing.summarize",),
)


# ---------------------------------------------------------------- 4: a percentile by hand
def percentile(samples, p):
    return float(np.percentile(samples, p, method="linear"))


def at(place, samples):
    """The value of sorted samples at a place counted from 0, held within them; linear in between."""
    ordered = sorted(samples)
    place = min(max(place, 0), len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))


def place_of(samples, p):
    return (len(samples) - 1) * p / 100


def not_sorted(samples, p):
    place = place_of(samples, p)
    low = math.floor(place)
    high = min(low + 1, len(samples) - 1)
    return float(samples[low] + (place - low) * (samples[high] - samples[low]))


def other_way(samples, p):
    place = place_of(samples, p)
    low = math.floor(place)
    return at(low, samples) if place == low else at(low + 1 - (place - low), samples)


TEN = [7, 1, 10, 2, 9, 3, 8, 4, 6, 5]
WAITS = [110, 112, 115, 118, 120, 121, 124, 126, 130, 133, 135, 140, 150, 155, 160, 240, 480, 100]
Q4 = Question(
    "03_timing.q4", "percentile", points=3, reference=percentile, fresh=8,
    draw=lambda rng: (rng.sample(range(10, 900), rng.randrange(2, 30)), rng.choice([10, 25, 50, 90, 95, 99])),
    cases=(
        Case((TEN, 99), 9.91), Case((TEN, 50), 5.5), Case((WAITS, 95), 276.0), Case(([30, 10], 25), 15.0),
        Case(([7], 99), 7.0),
    ),
    mistakes=(
        Mistake("not sorted", not_sorted, N_("the samples come in order of arrival: sort them first")),
        Mistake("nearest rank", lambda s, p: at(math.ceil(len(s) * p / 100) - 1, s),
                N_("that is the nearest-rank rule, which takes a sample; the linear rule goes between two of them")),
        Mistake("place n·p", lambda s, p: at(int(len(s) * p / 100), s),
                N_("sorted[int(n·p/100)] is another tool's rule; the linear rule's place is (n − 1)·p/100, uncut")),
        Mistake("n for n − 1", lambda s, p: at(len(s) * p / 100, s),
                N_("the place is (n − 1)·p/100: n samples leave n − 1 intervals")),
        Mistake("fraction cut off", lambda s, p: at(math.floor(place_of(s, p)), s),
                N_("the fraction of the place is cut off: between two samples the value goes on in proportion")),
        Mistake("fraction rounded up", lambda s, p: at(math.ceil(place_of(s, p)), s),
                N_("the place is rounded up to a sample: between two samples the value goes on in proportion")),
        Mistake("middle of the neighbours", lambda s, p: (
                    at(math.floor(place_of(s, p)), s) + at(math.ceil(place_of(s, p)), s)) / 2,
                N_("half-way between two samples is right only where the fraction is a half")),
        Mistake("fraction the other way", other_way,
                N_("the fraction weighs the upper neighbour; 1 minus it weighs the lower one")),
        Mistake("counted from 1", lambda s, p: at((len(s) + 1) * p / 100 - 1, s),
                N_("that is the (n + 1)·p/100 rule, counted from 1; the linear rule is (n − 1)·p/100, counted from 0")),
        Mistake("largest", lambda s, p: float(max(s)), N_("that is the largest sample, whatever p is")),
        Mistake("from the top", lambda s, p: percentile(s, 100 - p),
                N_("p counts from the smallest sample: p99 is near the largest one")),
    ),
    hints=(
        N_("Sort. Where does p50 of two samples lie, and p25? Draw them on a line."),
        N_("n samples leave n − 1 intervals; p marks the place (n − 1)·p/100 on them, counted from 0."),
        N_("place = (n − 1)·p/100; low = floor(place); value = s[low] + (place − low)·(s[low + 1] − s[low]), where "
           "s is sorted; at the last sample there is no low + 1."),
    ),
)


# ---------------------------------------------------------------- 5: another tool's figure
def translate(n, ttft, time_per_output, **wrong):
    e2e = n * time_per_output
    return {"e2e": e2e, "tpot": (e2e - ttft) / (n - 1) if n > 1 else None, **wrong}


def if_many(value):
    """A mistake's function: TPOT replaced where it exists."""
    return lambda n, ttft, x: translate(n, ttft, x, **({"tpot": value(n, ttft, x)} if n > 1 else {}))


def draw_translate(rng):
    n, ttft, gap = rng.choice([1, 2, 3, 8, 20]), rng.randrange(20, 400), rng.randrange(5, 90)
    return n, ttft, (ttft + (n - 1) * gap) / n


Q5 = Question(
    "03_timing.q5", "translate", points=2, reference=translate, draw=draw_translate, fresh=8,
    cases=(
        Case((4, 150, 67.5), {"e2e": 270.0, "tpot": 40.0}),
        Case((1, 100, 100.0), {"e2e": 100.0, "tpot": None}),
        Case((2, 100, 80.0), {"e2e": 160.0, "tpot": 60.0}),
    ),
    mistakes=(
        Mistake("taken as TPOT", if_many(lambda n, t, x: x),
                N_("the tool's figure contains the wait for the first token: it is no TPOT, whatever its name")),
        Mistake("taken as TPOT throughout", lambda n, t, x: translate(
                    n, t, x, e2e=t + (n - 1) * x, **({"tpot": x} if n > 1 else {})),
                N_("this takes the tool's figure for a TPOT; it is the full latency over n, with the first wait inside")),
        Mistake("divided by n", if_many(lambda n, t, x: (n * x - t) / n),
                N_("n outputs leave n − 1 intervals after the first token")),
        Mistake("wait left in", if_many(lambda n, t, x: n * x / (n - 1)),
                N_("the divisor is right, but the wait for the first token is still inside")),
        Mistake("wait taken from each", if_many(lambda n, t, x: x - t),
                N_("the wait happened once, not with every output: take it from the full latency, not from the mean")),
        Mistake("wait added again", lambda n, t, x: translate(n, t, x, e2e=t + n * x),
                N_("the full latency is n times the mean; the wait for the first token is inside it already")),
        Mistake("mean taken for gaps", lambda n, t, x: translate(n, t, x, e2e=t + (n - 1) * x),
                N_("this reads the mean as a gap; it is the full latency over n, so n times it is the full latency")),
        Mistake("latency without the wait", lambda n, t, x: translate(n, t, x, e2e=n * x - t),
                N_("the full latency begins at the arrival: the wait for the first token belongs to it")),
        Mistake("zero for missing", lambda n, t, x: translate(n, t, x, **({} if n > 1 else {"tpot": 0.0})),
                N_("one output has no TPOT: None, never 0")),
        Mistake("mean for missing", lambda n, t, x: translate(n, t, x, **({} if n > 1 else {"tpot": x})),
                N_("one output has no TPOT (None), also where the tool prints a figure for it")),
        Mistake("outputs a second", if_many(lambda n, t, x: 1000 * (n - 1) / (n * x - t)),
                N_("that is outputs a second; TPOT is milliseconds an output")),
    ),
    hints=(
        N_("The tool divided something by n. What was it, and how do you get it back?"),
        N_("The full latency is TTFT + (n − 1) · TPOT. Two of its three parts are known now."),
        N_("e2e = n · time_per_output; tpot = (e2e − ttft)/(n − 1), None for n = 1."),
    ),
)

QUESTIONS = (Q1, Q2, Q2_WHY, Q3, Q4, Q5)
