"""The six exercises of 30.8.  The answers of 30.9 are the visible cases; fresh numbers come from the references."""

import math

import numpy as np

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.text import N_
from mgpt.memory import kv_cache_bytes
from mgpt.quantize import dequantize, quantize
from mgpt.timing import RequestTrace

MIB = 2**20


# ---------------------------------------------------------------- 1: the times of one request
def metrics(arrival, times, **wrong):
    """The right dict, or one with some entries replaced."""
    trace = RequestTrace(arrival, times)
    right = {"ttft": trace.ttft, "gaps": trace.gaps, "tpot": trace.tpot, "e2e": trace.e2e}
    return {**right, **wrong}


def spread(times):
    return times[-1] - times[0]


def tpot_or_none(times, value):
    return value if len(times) > 1 else None


def draw_times(rng):
    """An arrival and one to six emissions; single outputs are common, since they decide about missing values."""
    arrival = rng.randrange(0, 500)
    times, clock = [], arrival + rng.randrange(20, 400)
    for _ in range(rng.choice([1, 2, 3, 4, 5, 6])):
        times.append(clock)
        clock += rng.randrange(5, 90)
    return arrival, times


Q1 = Question(
    "30_8_exercises.q1", "request_metrics", points=3, reference=metrics, draw=draw_times, fresh=8,
    cases=(
        Case((10, [110, 160, 220]), {"ttft": 100, "gaps": [50, 60], "tpot": 55.0, "e2e": 210}),
        Case((0, [30]), {"ttft": 30, "gaps": [], "tpot": None, "e2e": 30}),
    ),
    mistakes=(
        Mistake("divided by n", lambda a, t: metrics(a, t, tpot=tpot_or_none(t, spread(t) / len(t))),
                N_("TPOT divides by n; between n outputs there are only n − 1 intervals")),
        Mistake("full latency over n", lambda a, t: metrics(a, t, tpot=tpot_or_none(t, (t[-1] - a) / len(t))),
                N_("this TPOT is the full latency over n: the wait for the first output is inside it")),
        Mistake("wait counted in", lambda a, t: metrics(a, t, tpot=tpot_or_none(t, (t[-1] - a) / (len(t) - 1 or 1))),
                N_("TPOT starts at the first output, not at the arrival")),
        Mistake("zero for missing", lambda a, t: metrics(a, t, tpot=spread(t) / (len(t) - 1) if t[1:] else 0.0),
                N_("one output has no interval: its TPOT is missing (None); 0 would claim that outputs came at once")),
        Mistake("TTFT for missing", lambda a, t: metrics(a, t, tpot=spread(t) / (len(t) - 1) if t[1:] else t[0] - a),
                N_("one output has no interval: its TPOT is missing (None), and TTFT is no stand-in for it")),
        Mistake("clock time as TTFT", lambda a, t: metrics(a, t, ttft=t[0]),
                N_("TTFT is a duration: the first emission minus the arrival")),
        Mistake("clock time as latency", lambda a, t: metrics(a, t, e2e=t[-1]),
                N_("the full latency is a duration: the last emission minus the arrival")),
        Mistake("latency without the wait", lambda a, t: metrics(a, t, e2e=spread(t)),
                N_("the full latency starts at the arrival; this one leaves out the queue and the prefill")),
        Mistake("wait among the gaps", lambda a, t: metrics(a, t, gaps=[t[0] - a, *np.diff(t).tolist()]),
                N_("gaps lie between outputs: n outputs have n − 1 of them; the first wait is TTFT")),
        Mistake("gaps from the first", lambda a, t: metrics(a, t, gaps=[x - t[0] for x in t[1:]]),
                N_("each gap is measured from the output just before, not from the first one")),
        Mistake("last gap as TPOT", lambda a, t: metrics(a, t, tpot=float(t[-1] - t[-2]) if t[1:] else None),
                N_("TPOT is the mean over all gaps, not the last gap")),
    ),
    hints=(
        N_("Draw the time line: arrival, then one mark for each output. Which distances does each figure name?"),
        N_("n outputs leave n − 1 gaps, and the gaps add up to last minus first. What if n is 1?"),
        N_("ttft = first − arrival; gaps = consecutive differences; tpot = (last − first)/(n − 1), None for n = 1; "
           "e2e = last − arrival."),
    ),
    stands_for=("mgpt.timing.RequestTrace",),
)
Q1_WHY = choice(
    "30_8_exercises.q1_why", "q1_why", "b",
    {"a": N_("TTFT is the initial wait itself"),
     "c": N_("the full latency begins at the arrival, so the initial wait is inside it"),
     "d": N_("this average divides the full latency, initial wait included, by n")},
    hints=(N_("For each figure ask: at which moment does its clock start?"),
           N_("Move the arrival 100 ms earlier and leave the outputs where they are. Which figure stays the same?"),
           N_("Only one of them starts at the first output instead of the arrival.")),
)


# ---------------------------------------------------------------- 2: positions in the cache
Q2 = Question(
    "30_8_exercises.q2", "cached_positions", points=2, whole=True,
    reference=lambda prompt, outputs: prompt + outputs - 1,
    draw=lambda rng: (rng.randrange(2, 4000), rng.randrange(1, 500)),
    cases=(Case((10, 1), 10), Case((10, 2), 11)),
    mistakes=(
        Mistake("chosen counted as cached", lambda p, g: p + g,
                N_("the last output has been chosen, but no pass has processed it: it has no K/V yet")),
        Mistake("prompt only", lambda p, g: p,
                N_("each decode pass adds the position of the output that it processes")),
        Mistake("one too few", lambda p, g: p + g - 2,
                N_("the prefill keeps all prompt positions, its last one too: that one gives the logits of output 1")),
        Mistake("outputs only", lambda p, g: g,
                N_("the prompt's positions are in the cache as well; the prefill put them there")),
        Mistake("decode passes only", lambda p, g: g - 1,
                N_("that counts the decode passes; the prefill's positions are in the cache as well")),
        Mistake("K and V counted apart", lambda p, g: 2 * (p + g - 1),
                N_("a position holds one K and one V; that doubles the bytes, not the positions")),
        Mistake("work of the full prefix", lambda p, g: p * g + g * (g - 1) // 2,
                N_("that is the work of a generator without a cache: positions processed over all passes")),
        Mistake("always one more", lambda p, g: p + 1,
                N_("the count grows with every pass, and the first output needed no pass beyond the prefill")),
        Mistake("prompt kept once an output", lambda p, g: p * g,
                N_("the prompt is processed once; later passes only read its K/V")),
    ),
    hints=(
        N_("Which pass writes a position's K/V: the one that chooses the token, or the one that processes it?"),
        N_("Make a line for each pass: prefill, then decode, decode … and count positions after each."),
        N_("The prefill leaves P positions and lets us choose output 1; each further output took one decode pass, "
           "which added one position."),
    ),
)
Q2_WHY = choice(
    "30_8_exercises.q2_why", "q2_why", "c",
    {"a": N_("the prefill processes and keeps every prompt position, the last one too"),
     "b": N_("the decode pass that processes an output does keep its K/V; the cache grows past the prompt"),
     "d": N_("nothing is overwritten: a new position is appended behind the others")},
    hints=(N_("What has to happen before a token has keys and values?"),
           N_("Sampling looks at logits. Do keys and values appear in that step?"),
           N_("K/V are computed by the layers, and the chosen token has not been through them yet.")),
)


# ---------------------------------------------------------------- 3: bytes of the cache
def cache_report(n_layer, n_head, n_kv_head, head_dim, lengths, bytes_per_value, *, heads=None, unit=MIB, times=1,
                 total=None):
    """The right dict, or one with another head count, unit, factor or total."""
    each = [times * kv_cache_bytes(n_layer=n_layer, n_kv_head=heads or n_kv_head, head_dim=head_dim, lengths=length,
                                   bytes_per_value=bytes_per_value) for length in lengths]
    total = sum(each) if total is None else total(each)
    return {"per_request": each, "total": total, "total_mib": total / unit}


def draw_shape(rng):
    n_kv_head = rng.choice([1, 2, 4, 8])
    lengths = [rng.randrange(1, 9000) for _ in range(rng.randrange(2, 5))]
    return (rng.randrange(2, 81), n_kv_head * rng.choice([2, 4, 8]), n_kv_head, rng.choice([64, 80, 128]), lengths,
            rng.choice([1, 2, 4]))


def halved(report):
    return {"per_request": [n // 2 for n in report["per_request"]], "total": report["total"] // 2,
            "total_mib": report["total_mib"] / 2}


Q3 = Question(
    "30_8_exercises.q3", "kv_report", points=3, whole=True, reference=cache_report, draw=draw_shape,
    cases=(
        Case((24, 32, 4, 128, [4096] * 4, 2),
             {"per_request": [201_326_592] * 4, "total": 805_306_368, "total_mib": 768.0}),
        Case((2, 4, 2, 4, [8, 9, 10], 2), {"per_request": [512, 576, 640], "total": 1728, "total_mib": 1728 / 1048576}),
    ),
    mistakes=(
        Mistake("query heads counted", lambda *s: cache_report(*s, heads=s[1]),
                N_("query heads are no factor: only K and V are kept, and only the KV heads have them")),
        Mistake("all heads counted", lambda *s: cache_report(*s, heads=s[1] + s[2]),
                N_("query heads are no factor: add nothing for them, the KV heads are all that is kept")),
        Mistake("MB for MiB", lambda *s: cache_report(*s, unit=10**6),
                N_("that is megabytes (10^6 bytes); a MiB has 2^20 = 1,048,576")),
        Mistake("KiB for MiB", lambda *s: cache_report(*s, unit=1024),
                N_("that is KiB; a MiB has 1,048,576 bytes")),
        Mistake("GiB for MiB", lambda *s: cache_report(*s, unit=2**30),
                N_("that is GiB; a MiB has 1,048,576 bytes")),
        Mistake("K or V forgotten", lambda *s: halved(cache_report(*s)),
                N_("the factor 2 is missing: K and V are both kept")),
        Mistake("layers forgotten", lambda *s: cache_report(1, *s[1:]),
                N_("every layer keeps its own K and V: n_layer is a factor")),
        Mistake("one request only", lambda *s: cache_report(*s, total=lambda each: each[0]),
                N_("the total is the sum over all requests, not one of them")),
        Mistake("padded to the longest", lambda *s: cache_report(*s, total=lambda each: max(each) * len(each)),
                N_("unequal lengths add up; batch times the longest length counts padding that nobody processed")),
        Mistake("bits for bytes", lambda *s: cache_report(*s, times=8),
                N_("that is bits: bytes_per_value is in bytes already")),
        Mistake("bytes a value forgotten", lambda *s: cache_report(*s[:-1], 1),
                N_("each value takes bytes_per_value bytes: that counts values")),
    ),
    hints=(
        N_("Count the numbers that are kept for one position first: which arrays, in how many layers, how wide?"),
        N_("One position keeps K and V, in each layer, for each KV head, head_dim values each."),
        N_("per request: 2 · n_layer · length · n_kv_head · head_dim · bytes_per_value; total: their sum; "
           "MiB: total / 2**20."),
    ),
    stands_for=("mgpt.memory.kv_cache_bytes", "mgpt.memory.KVShape"),
)
Q3_WHY = choice(
    "30_8_exercises.q3_why", "q3_why", "a",
    {"b": N_("query heads are not averaged away; a query is used in its own pass and then not kept"),
     "c": N_("bytes a value are the same for all; what matters is that queries are not kept at all"),
     "d": N_("there are more query heads than KV heads here, and they still do not count")},
    hints=(N_("What does a later pass read of an earlier position?"),
           N_("The new query is compared with the kept keys. Is an old query ever needed again?"),
           N_("Q of a position serves that position's own pass only; K and V serve all later ones.")),
)


# ---------------------------------------------------------------- 4: four bits by hand
def rounded(x, scale, code=None, restored=None, error=None):
    """The right dict for one value, or one with another code (the rest follows) or another entry."""
    code = int(quantize(np.float64(x), scale)) if code is None else int(code)
    restored = float(dequantize(code, scale)) if restored is None else restored
    return {"code": code, "restored": restored, "error": restored - x if error is None else error}


def clip(value, low=-7, high=7):
    return max(low, min(high, value))


def half_away(ratio):
    return math.copysign(math.floor(abs(ratio) + 0.5), ratio)


Q4 = Question(
    "30_8_exercises.q4", "quantize_value", points=3, reference=rounded, fresh=24, whole=True,
    draw=lambda rng: ((scale := rng.choice([0.25, 0.5, 2.0])) * rng.randrange(-44, 45) / 4, scale),
    cases=(
        Case((0.75, 0.5), {"code": 2, "restored": 1.0, "error": 0.25}),
        Case((-0.75, 0.5), {"code": -2, "restored": -1.0, "error": -0.25}),
        Case((5.0, 0.5), {"code": 7, "restored": 3.5, "error": -1.5}),
        Case((1.25, 0.5), {"code": 2, "restored": 1.0, "error": -0.25}),
        Case((-5.0, 0.5), {"code": -7, "restored": -3.5, "error": 1.5}),
    ),
    mistakes=(
        Mistake("half up", lambda x, s: rounded(x, s, clip(math.floor(x / s + 0.5))),
                N_("floor(x/s + 0.5) rounds half up; ties go to the even neighbour")),
        Mistake("half away from zero", lambda x, s: rounded(x, s, clip(half_away(x / s))),
                N_("ties go to the even neighbour: 1.5 becomes 2 and 2.5 becomes 2 as well")),
        Mistake("truncated", lambda x, s: rounded(x, s, clip(int(x / s))),
                N_("int() cuts towards zero; the nearest code is wanted")),
        Mistake("floored", lambda x, s: rounded(x, s, clip(math.floor(x / s))),
                N_("floor goes down always; the nearest code is wanted")),
        Mistake("not clipped", lambda x, s: rounded(x, s, round(x / s)),
                N_("four signed bits end at 7: a larger quotient is clipped, and that is where the error comes from")),
        Mistake("code −8 used", lambda x, s: rounded(x, s, clip(round(x / s), -8)),
                N_("the symmetric map uses −7 … 7; the extra code −8 stays unused")),
        Mistake("unsigned codes", lambda x, s: rounded(x, s, clip(round(x / s), 0, 15)),
                N_("the codes are signed: −7 … 7, with 0 for zero")),
        Mistake("clipped before dividing", lambda x, s: rounded(x, s, clip(round(clip(x) / s), -127, 127)),
                N_("the limits −7 and 7 hold for codes, not for x: divide and round first, then clip")),
        Mistake("multiplied by the scale", lambda x, s: rounded(x, s, clip(round(x * s))),
                N_("x is divided by the scale on the way in, and the code is multiplied on the way out")),
        Mistake("error the other way", lambda x, s: rounded(x, s, error=x - rounded(x, s)["restored"]),
                N_("the error is restored − x: what the code stands for, minus the true value")),
        Mistake("code as value", lambda x, s: rounded(x, s, restored=float(rounded(x, s)["code"])),
                N_("the code alone is no value: it stands for code · scale")),
        Mistake("clipping called rounding", lambda x, s: rounded(x, s, error=clip(rounded(x, s)["error"], -s / 2, s / 2)),
                N_("scale/2 bounds the error of rounding only; a clipped value is farther off, and its error says so")),
    ),
    hints=(
        N_("Divide by the scale first. Between which two codes does the quotient lie?"),
        N_("Python's round() takes ties to the even neighbour. After it, keep the code within −7 … 7."),
        N_("code = clip(round(x / scale), −7, 7); restored = code · scale; error = restored − x."),
    ),
    stands_for=("mgpt.quantize.quantize",),
)
Q4_WHY = choice(
    "30_8_exercises.q4_why", "q4_why", "d",
    {"a": N_("the quotient 10 is a whole number: rounding changed nothing"),
     "b": N_("a tie lies half-way between two codes; 10 is a whole number"),
     "c": N_("the scale's metadata costs bytes, not precision of this value")},
    hints=(N_("Compute 5/0.5. How far is the nearest code that exists?"),
           N_("Rounding errors are at most scale/2 = 0.25 here. Is 1.5 within that?"),
           N_("The quotient is 10 and the largest code is 7.")),
)


# ---------------------------------------------------------------- 5: a report's wrong name
def report(arrival, times, **wrong):
    trace = RequestTrace(arrival, times)
    return {"tpot": trace.tpot, "mean_time_per_output": trace.mean_time_per_output, **wrong}


Q5 = Question(
    "30_8_exercises.q5", "honest_report", points=2, reference=report, draw=draw_times, fresh=8,
    cases=(
        Case((0, [150, 190, 235, 270]), {"tpot": 40.0, "mean_time_per_output": 67.5}),
        Case((10, [110, 160, 220]), {"tpot": 55.0, "mean_time_per_output": 70.0}),
        Case((5, [45]), {"tpot": None, "mean_time_per_output": 40.0}),
    ),
    mistakes=(
        Mistake("the report's own", lambda a, t: report(a, t, tpot=(t[-1] - a) / len(t)),
                N_("that is the full average under the name TPOT: the very mistake of the report")),
        Mistake("the report's own, guarded", lambda a, t: report(a, t, tpot=tpot_or_none(t, (t[-1] - a) / len(t))),
                N_("that is the full average under the name TPOT, for n ≥ 2: the very mistake of the report")),
        Mistake("divided by n", lambda a, t: report(a, t, tpot=tpot_or_none(t, spread(t) / len(t))),
                N_("n outputs leave n − 1 intervals after the first token: divide by n − 1")),
        Mistake("wait counted in", lambda a, t: report(a, t, tpot=tpot_or_none(t, (t[-1] - a) / (len(t) - 1 or 1))),
                N_("after the first token means from the first emission on, not from the arrival")),
        Mistake("zero for missing", lambda a, t: report(a, t, tpot=spread(t) / (len(t) - 1) if t[1:] else 0.0),
                N_("with one output there is nothing after the first token: TPOT is missing (None), never 0")),
        Mistake("latency for missing", lambda a, t: report(a, t, tpot=spread(t) / (len(t) - 1) if t[1:] else t[0] - a),
                N_("with one output there is nothing after the first token: TPOT is missing (None), not the latency")),
        Mistake("names swapped", lambda a, t: dict(zip(("mean_time_per_output", "tpot"), report(a, t).values())),
                N_("the two names are swapped")),
        Mistake("full average without the wait", lambda a, t: report(a, t, mean_time_per_output=spread(t) / len(t)),
                N_("the full average divides the full latency, which begins at the arrival")),
        Mistake("full average over n − 1", lambda a, t: report(
                    a, t, mean_time_per_output=(t[-1] - a) / (len(t) - 1 or 1)),
                N_("the full average is over all n outputs, the first one too")),
        Mistake("clock time averaged", lambda a, t: report(a, t, mean_time_per_output=t[-1] / len(t)),
                N_("the arrival is not subtracted: that is a clock time, not a latency")),
        Mistake("tokens a second", lambda a, t: report(
                    a, t, tpot=tpot_or_none(t, 1000 * (len(t) - 1) / (spread(t) or 1))),
                N_("that is output tokens a second; TPOT is milliseconds an output")),
    ),
    hints=(
        N_("Which outputs come after the first token, and how many are there?"),
        N_("TPOT needs two outputs at least. The full average needs one."),
        N_("tpot = (last − first)/(n − 1), None for n = 1; mean_time_per_output = (last − arrival)/n."),
    ),
    stands_for=("mgpt.timing.RequestTrace",),
)
Q5_WHY = choice(
    "30_8_exercises.q5_why", "q5_why", "b",
    {"a": N_("the unit is not what is wrong; both are milliseconds"),
     "c": N_("n − 1 alone does not mend it: the wait for the first token would still be inside"),
     "d": N_("rounding is not what is wrong: the two averages answer different questions")},
    hints=(N_("Put the example in: 270/4 against 120/3. Where do the extra milliseconds come from?"),
           N_("The report's numerator begins at the arrival. What lies between arrival and first token?"),
           N_("Queue and prefill are counted in, and there is one interval fewer than outputs.")),
)


# ---------------------------------------------------------------- 6: fewer bits for the weights
def after(n_weights, group_size, kv_bytes, *, scale_bytes=4, code_bytes=lambda n: (n + 1) // 2, groups=None, kv=None):
    """The right dict, or one with another size of scales, codes or KV, or other groups."""
    if groups is None:
        full, rest = divmod(n_weights, group_size)
        groups = [group_size] * full + [rest] * (rest > 0)
    return {"weight_bytes": sum(code_bytes(n) + scale_bytes for n in groups), "kv_bytes": kv_bytes if kv is None else kv}


def whole_groups(n, size):
    return [size] * (n // size)


Q6 = Question(
    "30_8_exercises.q6", "bytes_after", points=3, whole=True, reference=after,
    draw=lambda rng: (rng.randrange(40, 100_000), rng.choice([3, 7, 16, 32, 33]), 64 * rng.randrange(8, 10_000)),
    cases=(
        Case((4, 4, 512), {"weight_bytes": 6, "kv_bytes": 512}),
        Case((1000, 32, 805_306_368), {"weight_bytes": 628, "kv_bytes": 805_306_368}),
        Case((9, 3, 640), {"weight_bytes": 18, "kv_bytes": 640}),
    ),
    mistakes=(
        Mistake("KV quartered", lambda n, g, kv: after(n, g, kv, kv=kv // 4),
                N_("the weights were quantized, the KV cache was not: its bytes do not change")),
        Mistake("KV halved", lambda n, g, kv: after(n, g, kv, kv=kv // 2),
                N_("K and V are other arrays than the weights: their bytes do not change")),
        Mistake("scales forgotten", lambda n, g, kv: after(n, g, kv, scale_bytes=0),
                N_("each group also stores its scale, four bytes: codes alone cannot be read back")),
        Mistake("one scale for all", lambda n, g, kv: after(n, g, kv, groups=[n]),
                N_("each group has a scale of its own, the short last one too")),
        Mistake("tail forgotten", lambda n, g, kv: after(n, g, kv, groups=whole_groups(n, g)),
                N_("n // group_size forgets the short last group: its codes and its scale")),
        Mistake("tail padded", lambda n, g, kv: after(n, g, kv, groups=[g] * math.ceil(n / g)),
                N_("the last group is packed as short as it is; it is not filled up to group_size")),
        Mistake("not packed", lambda n, g, kv: after(n, g, kv, code_bytes=lambda k: k),
                N_("two 4-bit codes share a byte")),
        Mistake("bits for bytes", lambda n, g, kv: after(n, g, kv, code_bytes=lambda k: 4 * k),
                N_("4 is the number of bits of a code: eight bits make a byte")),
        Mistake("scale of two bytes", lambda n, g, kv: after(n, g, kv, scale_bytes=2),
                N_("a scale is FP32 here: four bytes")),
        Mistake("odd code lost", lambda n, g, kv: after(n, g, kv, code_bytes=lambda k: k // 2),
                N_("an odd number of codes needs one byte more: the last one is half filled")),
        Mistake("packed across groups", lambda n, g, kv: after(n, g, kv, groups=[n], scale_bytes=4 * math.ceil(n / g)),
                N_("each group is packed by itself: an odd group ends in a half-filled byte")),
    ),
    hints=(
        N_("Which arrays did the change touch, and which not?"),
        N_("Count group by group: ceil(codes/2) bytes and one scale of four bytes. The last group may be short."),
        N_("full, rest = divmod(n_weights, group_size): full · (ceil(group_size/2) + 4), and for rest > 0 "
           "ceil(rest/2) + 4 more; kv_bytes stays as it is."),
    ),
)
Q6_WHY = choice(
    "30_8_exercises.q6_why", "q6_why", "c",
    {"a": N_("fewer stored bits do not make every operation faster, and speed says nothing of the answers"),
     "b": N_("the KV bytes did not change; nothing about them has to be measured again for this"),
     "d": N_("approximate weights do not bring an old policy back; they may change any close decision")},
    hints=(N_("What goes into a logit, and which part of it is approximate now?"),
           N_("A small change of two close logits can change which one is larger."),
           N_("The questions whose answers matter (is it 750?) have to be asked again of the changed model.")),
)

QUESTIONS = (Q1, Q1_WHY, Q2, Q2_WHY, Q3, Q3_WHY, Q4, Q4_WHY, Q5, Q5_WHY, Q6, Q6_WHY)
