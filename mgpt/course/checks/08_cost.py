"""Chapter 08: the cost of a mixed pass, the batch where weights stop dominating, the roofline bound, and the ridge."""

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.text import N_


# ---------------------------------------------------------------- 1: one pass over unequal requests
def pass_cost(model, requests, weight_bytes, kv_bytes, *, adds=2, kv_heads_read="kv_heads", heads_compared="heads",
              projected="kv_heads", columns=lambda new, kept: new * (kept + new), held=lambda new, kept: kept + new,
              heads_on=lambda new: 1, compared=2, weight_reads=lambda requests: 1, planes=2, embedding=0, inner=3,
              back=1, norms=2, last_norm=1, over=lambda weights, kv: weights + kv):
    """The right dict, or one with one thing counted otherwise.

    columns: pairs of positions in attention; held: positions of K and V; heads_on: positions with logits.
    """
    width, d, layers = model["width"], model["head_dim"], model["layers"]
    matrices = width * d * ((1 + back) * model["heads"] + 2 * model[projected]) + inner * width * model["inner"]
    head = width * model["vocab"]
    flops = adds * sum(layers * (new * matrices + compared * model[heads_compared] * d * columns(new, kept))
                       + heads_on(new) * head for new, kept in requests)
    weights = layers * (matrices + norms * width) + last_norm * width + (1 + embedding) * head
    weights *= weight_bytes * weight_reads(requests)
    kv = planes * sum(held(*pair) for pair in requests) * layers * model[kv_heads_read] * d * kv_bytes
    return {"flops": flops, "bytes_weights": weights, "bytes_kv": kv, "intensity": flops / over(weights, kv)}


def counted(**change):
    return lambda *args: pass_cost(*args, **change)


def no_head(model, *rest):
    right, none = pass_cost(model, *rest), pass_cost(model, *rest, heads_on=lambda new: 0)
    return {**none, "bytes_weights": right["bytes_weights"]}


def one_head(model, requests, *rest):
    right, none = pass_cost(model, requests, *rest), no_head(model, requests, *rest)
    flops = none["flops"] + (right["flops"] - none["flops"]) // len(requests)
    return {**right, "flops": flops, "intensity": flops / (right["bytes_weights"] + right["bytes_kv"])}


def draw_pass(rng):
    kv, width = rng.choice([1, 2, 4]), 16 * rng.randrange(2, 40)
    model = {"layers": rng.randrange(2, 33), "width": width, "inner": width * rng.randrange(2, 5), "kv_heads": kv,
             "heads": kv * rng.choice([2, 4]), "head_dim": rng.choice([8, 16, 32]), "vocab": 10 * rng.randrange(5, 900)}
    requests = [[1, rng.randrange(20, 3000)] for _ in range(rng.randrange(1, 6))]
    requests += [[rng.randrange(2, 300), rng.randrange(1, 900)], [rng.randrange(2, 300), 0]]
    rng.shuffle(requests)
    return model, requests, rng.choice([1, 4]), rng.choice([2, 8])


SMALL = {"layers": 2, "width": 8, "inner": 12, "heads": 4, "kv_heads": 2, "head_dim": 4, "vocab": 10}
EIGHT_B = {"layers": 32, "width": 4096, "inner": 14_336, "heads": 32, "kv_heads": 8, "head_dim": 128, "vocab": 128_256}
Q1 = Question(
    "08_cost.q1", "pass_cost", points=4, whole=True, reference=pass_cost, draw=draw_pass, fresh=10,
    cases=(
        Case((EIGHT_B, [[1, 2047]], 2, 2), {"flops": 16_083_058_688, "bytes_weights": 15_009_849_344,
                                            "bytes_kv": 268_435_456, "intensity": 16_083_058_688 / 15_278_284_800}),
        Case((SMALL, [[3, 0]], 8, 8), {"flops": 9376, "bytes_weights": 11_712, "bytes_kv": 768,
                                       "intensity": 9376 / 12_480}),
        Case((SMALL, [[1, 9], [4, 6], [2, 0]], 1, 2),
             {"flops": 26_208, "bytes_weights": 1464, "bytes_kv": 1408, "intensity": 26_208 / 2872}),
    ),
    mistakes=(
        Mistake("multiply-adds counted once", counted(adds=1),
                N_("a multiplication and an addition are two operations: a product takes 2·m·n·k")),
        Mistake("query heads in the KV bytes", counted(kv_heads_read="heads"),
                N_("K and V are kept for KV heads; query heads are no factor of the KV bytes")),
        Mistake("KV heads in attention", counted(heads_compared="kv_heads"),
                N_("each query head compares and mixes for itself: attention's operations go by the query heads")),
        Mistake("K and V as wide as Q", counted(projected="heads"),
                N_("the matrix of Q, K and V is heads + 2 · kv_heads heads wide, not three times the query heads")),
        Mistake("cached positions not compared", counted(columns=lambda new, kept: new * new),
                N_("a new position is compared with the kept ones too: kept + new columns")),
        Mistake("own positions not compared", counted(columns=lambda new, kept: new * kept),
                N_("a new position is compared with the new ones as well: kept + new columns")),
        Mistake("masked positions left out", counted(columns=lambda new, kept: new * kept + new * (new + 1) // 2),
                N_("that leaves out what the mask hides; here attention is counted over all positions, masked ones "
                   "too")),
        Mistake("half of the whole", counted(compared=1),
                N_("the attention is halved: the mask hides nothing of the kept positions, and here masked ones "
                   "count too")),
        Mistake("new positions not in the KV", counted(held=lambda new, kept: kept),
                N_("the new positions are in the cache when the pass is done: kept + new")),
        Mistake("kept positions not in the KV", counted(held=lambda new, kept: new),
                N_("the pass reads K and V of the kept positions too: kept + new")),
        Mistake("one cache for all", lambda *args: {
                    **(right := pass_cost(*args)), "bytes_kv": right["bytes_kv"] * max(map(sum, args[1])) // sum(
                        map(sum, args[1]))},
                N_("each request has K and V of its own: their positions add up")),
        Mistake("one comparison a request", counted(columns=lambda new, kept: kept + new),
                N_("each of the new positions is compared: new · (kept + new) pairs for a request")),
        Mistake("one head for all", one_head, N_("each request has a last position of its own, and the head on it")),
        Mistake("way back of the heads forgotten", counted(back=0),
                N_("one more matrix of attention takes the heads back to the residual stream: heads · head_dim by "
                   "width")),
        Mistake("head on every position", counted(heads_on=lambda new: new),
                N_("the head is computed for the last position of each request only")),
        Mistake("head forgotten", no_head, N_("the head is missing: width · vocab for the last position of each "
                                              "request")),
        Mistake("weights read for each request", counted(weight_reads=len),
                N_("the weights are read once for the whole pass; that is what a batch is for")),
        Mistake("K or V forgotten", counted(planes=1), N_("K and V are both read: a factor 2 in the KV bytes")),
        Mistake("embedding read", counted(embedding=1),
                N_("a separate embedding is looked up, a row a token: it is no part of the weights that are read")),
        Mistake("gate or up forgotten", counted(inner=2),
                N_("the feed-forward part has three matrices: gate, up, and the one back")),
        Mistake("last norm forgotten", counted(last_norm=0),
                N_("one more norm stands behind the layers: `width` values that are read too")),
        Mistake("one norm a layer", counted(norms=1), N_("a layer has two norms, before attention and before the "
                                                         "feed-forward part")),
        Mistake("norms forgotten", counted(norms=0, last_norm=0),
                N_("the norms' weights are read too: two of `width` values a layer, and one at the end")),
        Mistake("one width for both", lambda m, r, w, k: pass_cost(m, r, w, w),
                N_("values of K and V take kv_bytes, whatever a weight takes")),
        Mistake("intensity of the weights alone", counted(over=lambda weights, kv: weights),
                N_("the intensity divides by all bytes that are read, KV included")),
    ),
    hints=(
        N_("Take one request with n new positions that ends with s in its cache. Which operations go with n, which "
           "with n · s, and which happen once?"),
        N_("A layer's matrices: width·(heads + 2·kv_heads)·d, heads·d·width, 3·width·inner. Attention: 2·heads·d·s "
           "multiply-adds for each new position and layer."),
        N_("flops = 2 · Σ (new · layers · (matrices + 2·heads·d·(kept + new)) + width·vocab); weights = layers · "
           "(matrices + 2·width) + width + width·vocab; KV values = 2 · Σ (kept + new) · layers · kv_heads · d."),
    ),
    stands_for=("mgpt.cost.prefill_cost", "mgpt.cost.decode_cost", "mgpt.cost.weight_count"),
)


# ---------------------------------------------------------------- 2: where the weights stop dominating
def batching(weights, per_position, context, memory_gib, *, gib=2**30, held=1, whole_up=0,
             overtakes=lambda w, k: w // k + 1, share=lambda w, k, n: w / n + k, gain=lambda w, k, n, a: (w + k) / a):
    """The right dict, or one by another rule."""
    kv = per_position * context
    fits = max(1, (memory_gib * gib - held * weights) // kv + whole_up)
    each = share(weights, kv, fits)
    return {"overtakes": overtakes(weights, kv), "fits": fits, "bytes_a_token": each,
            "gain": gain(weights, kv, fits, each)}


def ruled(**change):
    return lambda *args: batching(*args, **change)


def weights_in_each(weights, per_position, context, memory_gib):
    kv = per_position * context
    fits = max(1, memory_gib * 2**30 // (weights + kv))
    return {**batching(weights, per_position, context, memory_gib), "fits": fits, "bytes_a_token": weights / fits + kv,
            "gain": (weights + kv) / (weights / fits + kv)}


def where_kv_overtakes(weights, per_position, context, memory_gib):
    right, kv = batching(weights, per_position, context, memory_gib), per_position * context
    each = weights / right["overtakes"] + kv
    return {**right, "bytes_a_token": each, "gain": (weights + kv) / each}


def overtaking_that_fits(*args):
    right = batching(*args)
    return {**right, "overtakes": min(right["overtakes"], right["fits"])}


def draw_batching(rng):
    per_position, context = 1024 * rng.randrange(8, 200), rng.randrange(500, 5000)
    memory = rng.choice([24, 40, 80])
    weights = rng.choice([per_position * context * rng.randrange(3, 20), rng.randrange(4, 16) * 10**9])
    return min(weights, (memory - 6) * 2**30), per_position, context, memory


Q2 = Question(
    "08_cost.q2", "batching", points=4, whole=True, reference=batching, draw=draw_batching, fresh=10,
    cases=(
        Case((15_009_849_344, 131_072, 8192, 80), {
            "overtakes": 14, "fits": 66, "bytes_a_token": 15_009_849_344 / 66 + 2**30,
            "gain": 16_083_591_168 / (15_009_849_344 / 66 + 2**30)}),
        Case((4_096_000_000, 100_000, 4096, 16), {
            "overtakes": 11, "fits": 31, "bytes_a_token": 4_096_000_000 / 31 + 409_600_000,
            "gain": 4_505_600_000 / (4_096_000_000 / 31 + 409_600_000)}),
        Case((2**32, 2**16, 2**12, 24), {
            "overtakes": 17, "fits": 80, "bytes_a_token": 322_122_547.2, "gain": 2**28 * 17 / 322_122_547.2}),
        Case((12_000_000_000, 20_000, 1000, 16), {
            "overtakes": 601, "fits": 258, "bytes_a_token": 12_000_000_000 / 258 + 20_000_000,
            "gain": 12_020_000_000 / (12_000_000_000 / 258 + 20_000_000)}),
    ),
    mistakes=(
        Mistake("equal counted as more", ruled(overtakes=lambda w, k: -(-w // k)),
                N_("where W is a multiple of the KV of a request, that batch reads as much KV as weights, not more")),
        Mistake("the last that does not", ruled(overtakes=lambda w, k: w // k),
                N_("with W // k requests the weights are still at least as much; the next batch overtakes them")),
        Mistake("context forgotten", lambda w, p, c, m: {**batching(w, p, c, m), "overtakes": w // p + 1},
                N_("each request reads K and V of its whole context, not of one position")),
        Mistake("GB for GiB", ruled(gib=10**9), N_("the memory is in GiB, 2**30 bytes each; 10**9 is a GB")),
        Mistake("weights not in the memory", ruled(held=0), N_("the weights take their part of the memory first")),
        Mistake("weights for each request in the memory", weights_in_each,
                N_("the weights lie in the memory once, however many requests share them")),
        Mistake("the batch that overtakes", where_kv_overtakes,
                N_("bytes_a_token and gain are asked for the batch that fits, not for the one that overtakes")),
        Mistake("overtaking only where it fits", overtaking_that_fits,
                N_("overtakes is asked whether that batch fits or not")),
        Mistake("rounded up", ruled(whole_up=1), N_("the last request does not fit whole: the number that fits is "
                                                    "rounded down")),
        Mistake("one fewer fits", ruled(whole_up=-1), N_("as many fit as the quotient has whole parts: none is kept "
                                                         "back")),
        Mistake("the whole pass", ruled(share=lambda w, k, n: w + n * k, gain=lambda w, k, n, a: (w + k) * n / a),
                N_("that is what the whole pass reads; a token has its part of it")),
        Mistake("KV shared too", ruled(share=lambda w, k, n: (w + k) / n),
                N_("the batch shares the weights; K and V are each request's own, and do not become less")),
        Mistake("nothing shared", ruled(share=lambda w, k, n: w + k),
                N_("the weights are read once for the batch: a token has 1 / batch of them")),
        Mistake("weights alone", ruled(share=lambda w, k, n: w / n),
                N_("each token also reads the KV of its own request")),
        Mistake("gain by the number of requests", ruled(gain=lambda w, k, n, a: float(n)),
                N_("a batch of n does not save a factor n: the KV of each request stays")),
        Mistake("gain upside down", ruled(gain=lambda w, k, n, a: a / (w + k)),
                N_("the gain is the bytes alone divided by the bytes in the batch, a number above 1")),
        Mistake("gain over the weights", ruled(gain=lambda w, k, n, a: w / a),
                N_("alone, a token reads the weights and its KV")),
        Mistake("the limit for the gain", ruled(gain=lambda w, k, n, a: (w + k) / k),
                N_("that is the limit that no batch reaches; the gain asked for is that of the batch that fits")),
    ),
    hints=(
        N_("Let k be the KV bytes of one request. What does a pass with B requests read, and which part of it "
           "belongs to one token?"),
        N_("A pass: W + B·k. A token: W/B + k. KV overtakes when B·k > W, and B requests fit when W + B·k is at most "
           "the memory."),
        N_("overtakes = W // k + 1; fits = (memory · 2**30 − W) // k; bytes_a_token = W/fits + k; gain = (W + k) / "
           "bytes_a_token."),
    ),
    stands_for=("mgpt.cost.decode_cost",),
)


# ---------------------------------------------------------------- 3: under the roof
def under_the_roof(bandwidth, peak, passes, *, giga=1e9, tera=1e12, milli=1e3, least=max,
                   side=lambda computing, reading: computing >= reading, share=lambda c, r: min(1.0, c / r)):
    """The right list, or one by another rule."""
    result = []
    for one in passes:
        computing, reading = one["flops"] / (peak * tera), one["bytes"] / (bandwidth * giga)
        result.append({"side": "compute" if side(computing, reading) else "bandwidth",
                       "ms": least(computing, reading) * milli, "share": share(computing, reading)})
    return result


def roofed(**change):
    return lambda *args: under_the_roof(*args, **change)


def speeds(bandwidth, peak, passes):
    return [{**one, "share": one["share"] * peak * 1e12} for one in under_the_roof(bandwidth, peak, passes)]


def draw_roof(rng):
    bandwidth, ridge = rng.randrange(50, 4000), rng.choice([2, 20, 150, 300])
    peak = bandwidth * ridge / 1000
    passes = []
    for side in ("compute", "bandwidth", "compute", "bandwidth", "ridge"):
        nbytes = rng.randrange(1, 900) * 10**8
        factor = {"compute": rng.uniform(1.3, 40), "bandwidth": rng.uniform(0.005, 0.8), "ridge": 1}[side]
        passes.append({"flops": int(nbytes * ridge * factor), "bytes": nbytes})
    passes = [one for one in passes if agreed(bandwidth, peak, one)]
    rng.shuffle(passes)
    return bandwidth, peak, passes


def agreed(bandwidth, peak, one):
    """False for a pass so near the ridge that the two ways to compare give two sides by rounding."""
    computing, reading = one["flops"] / (peak * 1e12), one["bytes"] / (bandwidth * 1e9)
    intensity, ridge = one["flops"] / one["bytes"], peak * 1e12 / (bandwidth * 1e9)
    return abs(computing - reading) > 1e-6 * reading or (computing == reading and intensity == ridge)


def passes_of(*pairs):
    return [{"flops": flops, "bytes": nbytes} for flops, nbytes in pairs]


Q3 = Question(
    "08_cost.q3", "under_the_roof", points=3, reference=under_the_roof, draw=draw_roof, fresh=8,
    cases=(
        Case((2000, 300, passes_of((30 * 10**12, 15 * 10**9), (15 * 10**9, 15 * 10**9))), [
            {"side": "compute", "ms": 100.0, "share": 1.0}, {"side": "bandwidth", "ms": 7.5, "share": 1 / 150}]),
        Case((2000, 300, passes_of((300 * 10**9, 2 * 10**9), (600 * 10**9, 16 * 10**9))), [
            {"side": "compute", "ms": 1.0, "share": 1.0}, {"side": "bandwidth", "ms": 8.0, "share": 0.25}]),
    ),
    mistakes=(
        Mistake("both times added", roofed(least=lambda c, r: c + r),
                N_("the bound lets both go on at once: the longer of the two times, not their sum")),
        Mistake("the shorter time", roofed(least=min), N_("a pass has to do both: the longer of the two times "
                                                          "decides")),
        Mistake("operations alone", roofed(least=lambda c, r: c, share=lambda c, r: 1.0),
                N_("that is the time of the operations; a pass also waits for its bytes")),
        Mistake("bytes alone", roofed(least=lambda c, r: r),
                N_("that is the time of the bytes; on the other side the operations decide")),
        Mistake("sides exchanged", roofed(side=lambda c, r: c < r),
                N_("above the ridge the operations take longer, and the pass is on the compute side")),
        Mistake("the ridge on the bandwidth side", roofed(side=lambda c, r: c > r),
                N_("a pass that lies exactly at the ridge counts as compute")),
        Mistake("always compute", roofed(side=lambda c, r: True),
                N_("a pass of few operations for each byte is on the bandwidth side")),
        Mistake("above the roof", roofed(share=lambda c, r: c / r),
                N_("no pass gets more than the peak: the share is at most 1")),
        Mistake("share of the bandwidth", roofed(share=lambda c, r: min(1.0, r / c)),
                N_("that is the share of the bandwidth; the share of the peak is intensity over ridge, at most 1")),
        Mistake("operations a second", speeds,
                N_("that is operations a second; the share is their part of the peak, at most 1")),
        Mistake("per cent", roofed(share=lambda c, r: 100 * min(1.0, c / r)),
                N_("that is in per cent; the share is a part of 1")),
        Mistake("no powers of ten", roofed(giga=1.0, tera=1.0),
                N_("bandwidth is in GB/s and peak in TFLOP/s: 10**9 bytes and 10**12 operations a second")),
        Mistake("GiB for GB", roofed(giga=2**30), N_("bandwidth is in GB/s, powers of ten: 10**9 bytes a second")),
        Mistake("TFLOP/s taken as GFLOP/s", roofed(tera=1e9), N_("T is 10**12 operations a second, G is 10**9")),
        Mistake("seconds", roofed(milli=1.0), N_("that is seconds; milliseconds are asked for")),
        Mistake("microseconds", roofed(milli=1e6), N_("that is microseconds; milliseconds are asked for")),
    ),
    hints=(
        N_("Work out two times for each pass: one as if only operations counted, one as if only bytes did."),
        N_("The longer one is the bound, and says the side. The share of the peak is the time of the operations in "
           "that bound."),
        N_("computing = flops / (peak · 10**12); reading = bytes / (bandwidth · 10**9); ms = 1000 · max of both; "
           "share = computing / max of both."),
    ),
)


# ---------------------------------------------------------------- 4: does a batch reach the ridge?
def reach(fixed, per_position, kv_position, weights, ridge, context, *, at=None, kv_at=None,
          rounding=lambda a, b: -(-a // b), none=None, limit=lambda fixed, loss: (fixed - 1) // loss,
          endless=None, kept=lambda p: p, adds=1, own=False):
    """The right dict, or one by another rule.

    at, kv_at: the context that the operations, or the KV, are taken at; own: weights read for each request.
    """
    flops = adds * (fixed + per_position * (context if at is None else at))
    surplus = flops - ridge * kv_position * (context if kv_at is None else kv_at)
    loss = ridge * kv_position - adds * kept(per_position)
    batch = rounding(ridge * weights, surplus) if surplus > 0 else none
    if own:
        batch = 1 if surplus >= ridge * weights else none
    return {"batch": batch, "last_context": limit(adds * fixed, loss) if loss > 0 else endless}


def reached(**change):
    return lambda *args: reach(*args, **change)


def whatever_the_sign(fixed, per_position, kv_position, weights, ridge, context):
    right = reach(fixed, per_position, kv_position, weights, ridge, context)
    surplus = fixed + per_position * context - ridge * kv_position * context
    return {**right, "batch": -(-ridge * weights // surplus) if surplus else 0}


def whatever_the_loss(fixed, per_position, kv_position, weights, ridge, context):
    right = reach(fixed, per_position, kv_position, weights, ridge, context)
    loss = ridge * kv_position - per_position
    return {**right, "last_context": (fixed - 1) // loss if loss else 0}


def overtaking(fixed, per_position, kv_position, weights, ridge, context):
    return {**reach(fixed, per_position, kv_position, weights, ridge, context),
            "batch": weights // (kv_position * context) + 1}


def search_that_stops(*args):
    right = reach(*args)
    return {**right, "batch": right["batch"] if (right["batch"] or 0) <= 1000 else None}


def none_for_none(*args):
    right = reach(*args)
    return {**right, "last_context": right["last_context"] or None}


def equal_as_loss(fixed, per_position, kv_position, weights, ridge, context):
    right = reach(fixed, per_position, kv_position, weights, ridge, context)
    return {**right, "last_context": 0} if per_position == ridge * kv_position else right


def draw_reach(rng):
    kv, ridge = rng.randrange(2, 60), rng.randrange(3, 40)
    kind = rng.choice(["reached", "reached", "reached", "beyond", "at the last", "one more", "endless"])
    per_position = kv * ridge + rng.randrange(1, 50) if kind == "endless" else rng.randrange(1, kv * ridge)
    loss = kv * ridge - per_position
    last = rng.randrange(40, 900)
    fixed = abs(loss) * last + rng.randrange(1, abs(loss) + 1)
    context = {"reached": rng.randrange(2, last), "beyond": rng.randrange(last + 2, 4 * last), "at the last": last,
               "one more": last + 1, "endless": rng.randrange(2, last)}[kind]
    surplus, weights = fixed - loss * context, rng.randrange(2000, 90_000)
    if kind == "reached" and rng.random() < 0.5:  # exactly at the ridge with a whole batch
        weights = surplus * rng.randrange(1, 5)
    return fixed, per_position, kv, weights, ridge, context


Q4 = Question(
    "08_cost.q4", "reach", points=4, whole=True, reference=reach, draw=draw_reach, fresh=18,
    cases=(
        Case((15_009_316_864, 524_288, 131_072, 15_009_849_344, 153, 512), {"batch": 459, "last_context": 768}),
        Case((15_009_316_864, 524_288, 131_072, 15_009_849_344, 153, 2048), {"batch": None, "last_context": 768}),
        Case((15_009_316_864, 524_288, 131_072, 15_009_849_344, 153, 768), {"batch": 219_012, "last_context": 768}),
        Case((1000, 4, 1, 700, 5, 300), {"batch": 5, "last_context": 999}),
        Case((1000, 4, 1, 700, 5, 1000), {"batch": None, "last_context": 999}),
        Case((500, 9, 4, 600, 2, 100), {"batch": 2, "last_context": None}),
        Case((500, 8, 4, 600, 2, 100), {"batch": 3, "last_context": None}),
        Case((3, 1, 2, 50, 2, 1), {"batch": None, "last_context": 0}),
    ),
    mistakes=(
        Mistake("a search that stops", search_that_stops,
                N_("a batch as large as that is not found by trying some: solve for it")),
        Mistake("None for no context", none_for_none,
                N_("where no context has a batch, last_context is 0; None is for where every context has one")),
        Mistake("a position that pays exactly", equal_as_loss,
                N_("where a position pays exactly for its KV, the fixed operations remain for the weights: every "
                   "context has a batch")),
        Mistake("KV forgotten", reached(kv_at=0),
                N_("each request also brings its KV bytes: the pass reads weights + batch · KV")),
        Mistake("KV of one position", reached(kv_at=1), N_("a request reads K and V of its whole context, not of one "
                                                           "position")),
        Mistake("attention's operations forgotten", reached(at=0),
                N_("a request also does flops_per_position operations for each position of its context")),
        Mistake("weights for each request", reached(own=True),
                N_("the weights are read once for the batch: that is why a larger batch has more operations a byte")),
        Mistake("rounded down", reached(rounding=lambda a, b: a // b),
                N_("the batch below does not reach the ridge: round up, except where the quotient is whole")),
        Mistake("one more than needed", reached(rounding=lambda a, b: a // b + 1),
                N_("at the ridge a pass is compute-bound: where the quotient is whole, that batch is enough")),
        Mistake("0 for no batch", reached(none=0), N_("where no batch is compute-bound, the answer is None")),
        Mistake("a batch below zero", whatever_the_sign,
                N_("where a request's operations do not pay for its own KV at the ridge, no batch helps: None")),
        Mistake("the batch where KV overtakes", overtaking,
                N_("that is the batch with more KV than weights; the ridge is about operations a byte")),
        Mistake("multiply-adds", reached(adds=2), N_("the operations are given as operations: no further factor 2")),
        Mistake("the equal context counted", reached(limit=lambda fixed, loss: fixed // loss),
                N_("where the operations only just equal ridge · KV, the weights remain: the ridge is approached and "
                   "never reached")),
        Mistake("attention left out of the last context", reached(kept=lambda p: 0),
                N_("the operations grow with the context too: compare flops_per_position with ridge · "
                   "kv_per_position")),
        Mistake("a last context below zero", whatever_the_loss,
                N_("where a position's operations pay for its KV at the ridge, every context has a batch: None")),
        Mistake("0 for every context", reached(endless=0),
                N_("where every context has a batch, last_context is None, not 0")),
    ),
    hints=(
        N_("Write the intensity of a pass with B requests as a fraction. What happens to it when B grows without end?"),
        N_("B · flops ≥ ridge · (weights + B · KV). Bring what has B to one side. When can no B fulfil it?"),
        N_("surplus = flops − ridge · KV of one request. batch = ceil(ridge · weights / surplus) if surplus > 0, "
           "else None. As a function of the context the surplus falls by ridge · kv_per_position − flops_per_position "
           "a position: find its last positive value."),
    ),
    stands_for=("mgpt.cost.decode_cost",),
)

# ---------------------------------------------------------------- 5: a gain that stays away
Q5_WHY = choice(
    "08_cost.q5_why", "q5_why", "c",
    {"a": N_("at 8,192 positions the KV alone allows this model 18 operations a byte, far below the ridges of the "
             "chapter"),
     "b": N_("the weights are read once for the whole batch, and those bytes did become half"),
     "d": N_("turning codes into numbers takes operations and no bytes from memory; the counts here hold without it")},
    hints=(N_("Split the bytes of a pass into two parts. Which part did the change touch?"),
           N_("64 requests with 1.07 GB of KV each stand beside 15 GB of weights."),
           N_("68.7 GB of KV stay; 15 GB of weights become 7.5.")),
)

QUESTIONS = (Q1, Q2, Q3, Q4, Q5_WHY)
