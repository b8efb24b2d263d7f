"""Chapter 04: bytes from a config, windows, how many requests fit in blocks of a budget, and sizes in both units."""

from mgpt.course.questions import Case, Mistake, Question, choice
from mgpt.memory import KVShape, format_bytes, kv_cache_bytes, paged_bytes
from mgpt.text import N_

LAYERS, HEADS, KV = "num_hidden_layers", "num_attention_heads", "num_key_value_heads"
DIM, HIDDEN = "head_dim", "hidden_size"


# ---------------------------------------------------------------- 1: bytes from the keys of a config
def config_bytes(config, lengths, bytes_per_value, *, times=1, total=sum, **keys):
    """The right dict, or one of a config with other keys, times a factor, with another total."""
    config = {**config, **keys}
    width = config.get(DIM) or config[HIDDEN] // config[HEADS]
    token = times * kv_cache_bytes(n_layer=config[LAYERS], n_kv_head=config.get(KV, config[HEADS]), head_dim=width,
                                   lengths=1, bytes_per_value=bytes_per_value)
    each = [token * length for length in lengths]
    return {"per_token": token, "per_request": each, "total": total(each) if each else 0}


def in_config(change):
    """A mistake's function: the bytes of a config with the keys that change(config) gives."""
    return lambda c, lengths, b: config_bytes(c, lengths, b, **change(c))


def without_two(c, lengths, b):
    right = config_bytes(c, lengths, b)
    return {"per_token": right["per_token"] // 2, "per_request": [n // 2 for n in right["per_request"]],
            "total": right["total"] // 2}


def draw_config(rng):
    kv, group, width = rng.choice([1, 2, 4, 8]), rng.choice([2, 3, 4]), rng.choice([64, 80, 96, 128])
    config = {LAYERS: rng.randrange(2, 81), HEADS: kv * group, HIDDEN: kv * group * width}
    if rng.random() < 0.75:
        config[KV] = kv
    if rng.random() < 0.7:
        config[DIM] = rng.choice([None, 48, 112, 256])
    return config, [rng.randrange(1, 9000) for _ in range(rng.randrange(1, 5))], rng.choice([1, 2, 4])


LLAMA = {LAYERS: 32, HEADS: 32, KV: 8, HIDDEN: 4096}
QWEN = {LAYERS: 28, HEADS: 16, KV: 8, HIDDEN: 1024, DIM: 128}
PHI = {LAYERS: 32, HEADS: 32, HIDDEN: 3072, DIM: None}
Q1 = Question(
    "04_memory.q1", "config_bytes", points=4, whole=True, reference=config_bytes, draw=draw_config, fresh=10,
    cases=(
        Case((LLAMA, [4096, 4096], 2),
             {"per_token": 131_072, "per_request": [536_870_912, 536_870_912], "total": 1_073_741_824}),
        Case((QWEN, [1000, 24], 2),
             {"per_token": 114_688, "per_request": [114_688_000, 2_752_512], "total": 117_440_512}),
        Case((PHI, [10], 4), {"per_token": 786_432, "per_request": [7_864_320], "total": 7_864_320}),
        Case((LLAMA, [], 2), {"per_token": 131_072, "per_request": [], "total": 0}),
    ),
    mistakes=(
        Mistake("query heads counted", in_config(lambda c: {KV: c[HEADS]}),
                N_("query heads are no factor: where num_key_value_heads is given, it counts")),
        Mistake("head width from the hidden size", in_config(lambda c: {DIM: None}),
                N_("head_dim is given and differs from hidden_size / heads: what is given counts")),
        Mistake("hidden size as width", lambda c, t, b: config_bytes(c, t, b, **{DIM: c[HIDDEN]}),
                N_("hidden_size is the width of all query heads together, not of one head")),
        Mistake("width over the KV heads", in_config(lambda c: {DIM: c.get(DIM) or c[HIDDEN] // c.get(KV, c[HEADS])}),
                N_("a head's width is hidden_size over the query heads: hidden_size belongs to the queries")),
        Mistake("one KV head where none is named", in_config(lambda c: {KV: c.get(KV, 1)}),
                N_("a config without num_key_value_heads is of a model with as many KV heads as query heads")),
        Mistake("K or V forgotten", without_two, N_("the factor 2 is missing: K and V are both kept")),
        Mistake("layers forgotten", in_config(lambda c: {LAYERS: 1}),
                N_("every layer keeps its own K and V: the number of layers is a factor")),
        Mistake("bytes a value forgotten", lambda c, t, b: config_bytes(c, t, 1),
                N_("that counts values; each takes bytes_per_value bytes")),
        Mistake("bits for bytes", lambda c, t, b: config_bytes(c, t, b, times=8),
                N_("that is bits: bytes_per_value is in bytes already")),
        Mistake("padded to the longest", lambda c, t, b: config_bytes(
                    c, t, b, total=lambda each: max(each) * len(each)),
                N_("unequal lengths add up; the longest times the number counts padding that nobody processed")),
        Mistake("one request only", lambda c, t, b: config_bytes(c, t, b, total=lambda each: each[0]),
                N_("the total is the sum over all requests, not one of them")),
        Mistake("per request forgotten lengths", lambda c, t, b: {
                    **(right := config_bytes(c, t, b)), "per_request": [right["per_token"] for _ in t]},
                N_("a request holds every position that it has processed: bytes a token times its length")),
    ),
    hints=(
        N_("Which four numbers of the config decide the bytes of one token? Two of them may be absent."),
        N_("head_dim: absent or None means hidden_size / num_attention_heads. num_key_value_heads: absent means "
           "as many as query heads."),
        N_("per_token = 2 · layers · KV heads · width · bytes_per_value; each request: times its length; "
           "total: their sum."),
    ),
    stands_for=("mgpt.memory.kv_cache_bytes", "mgpt.memory.KVShape"),
)
Q1_WHY = choice(
    "04_memory.q1_why", "q1_why", "b",
    {"a": N_("fewer parameters do not mean fewer bytes of KV: compare Llama-2-7B with Llama-3.1-405B"),
     "c": N_("the tokenizer decides how many tokens a text has, not what a token keeps"),
     "d": N_("both count 2 bytes a value here; the dtype is a factor, but it is not what differs")},
    hints=(N_("Write down the factors of the bytes a token for both. Which factor differs most?"),
           N_("The large model has four times the layers and the same width of a head. What else is in the product?"),
           N_("32 layers with 32 KV heads against 126 layers with 8.")),
)


# ---------------------------------------------------------------- 2: layers with windows
def windowed_bytes(windows, lengths, bytes_per_layer_token):
    """Bytes of each request; windows: one entry a layer, W or None (every position) or 0 (nothing that grows)."""
    return [bytes_per_layer_token * sum(n if w is None else min(n, w) for w in windows) for n in lengths]


def by_layer(rule):
    return lambda windows, lengths, b: [b * sum(rule(n, w) for w in windows) for n in lengths]


def draw_windows(rng):
    window = rng.choice([4, 128, 512, 4096])
    windows = [rng.choice([None, window, window, 0]) for _ in range(rng.randrange(2, 40))]
    return windows, [rng.randrange(1, 9000) for _ in range(rng.randrange(1, 5))], rng.choice([512, 2048, 4096])


MIXED = [128, None] * 2 + [0]
Q2 = Question(
    "04_memory.q2", "windowed_bytes", points=3, whole=True, reference=windowed_bytes, draw=draw_windows, fresh=8,
    cases=(
        Case((MIXED, [100, 128, 8192], 2048), [819_200, 1_048_576, 34_078_720]),
        Case(([4, 4], [3, 4, 10], 256), [1536, 2048, 2048]),
        Case(([None] * 3, [10, 7], 100), [3000, 2100]),
        Case(([0, 0, 512], [600], 64), [32_768]),
    ),
    mistakes=(
        Mistake("windows overlooked", by_layer(lambda n, w: 0 if w == 0 else n),
                N_("a sliding layer keeps at most W positions: min(T, W)")),
        Mistake("windows reserved whole", by_layer(lambda n, w: n if w is None else w),
                N_("a request shorter than the window fills a part of it only: min(T, W), not W")),
        Mistake("sliding layers left out", by_layer(lambda n, w: n if w is None else 0),
                N_("a sliding layer keeps its last W positions: it is not left out")),
        Mistake("growing layers for those that do not", by_layer(lambda n, w: min(n, w) if w else n),
                N_("0 marks a layer that keeps nothing that grows; None marks one that keeps every position")),
        Mistake("one window fewer", by_layer(lambda n, w: n if w is None else min(n, max(0, w - 1))),
                N_("the window holds W positions, not W − 1")),
        Mistake("smallest window for all", lambda ws, ls, b: [
                    b * len(ws) * min([n, *(w for w in ws if w)]) for n in ls],
                N_("each layer has its own window: sum over the layers")),
        Mistake("windows shared by the requests", lambda ws, ls, b: [
                    b * sum(n if w is None else min(n, w // len(ls)) for w in ws) for n in ls],
                N_("each request has its own window in each layer; requests do not share one")),
        Mistake("K and V counted again", lambda ws, ls, b: [2 * n for n in windowed_bytes(ws, ls, b)],
                N_("bytes_per_layer_token holds K and V already")),
        Mistake("running totals", lambda ws, ls, b: [sum(windowed_bytes(ws, ls, b)[: i + 1]) for i in range(len(ls))],
                N_("each entry is one request alone; these are running totals")),
        Mistake("layers overlooked", lambda ws, ls, b: [n // len(ws) for n in windowed_bytes(ws, ls, b)],
                N_("that is an average layer; a request keeps the sum of all layers")),
    ),
    hints=(
        N_("Take one request and go through the layers. How many positions does each keep?"),
        N_("None: all T. A window W: the smaller of T and W. 0: nothing."),
        N_("for each length n: bytes_per_layer_token · Σ over layers of (n if w is None else min(n, w))."),
    ),
    stands_for=("mgpt.memory.KVShape",),
)


# ---------------------------------------------------------------- 3: how many requests fit
def capacity(budget_gib, taken_gib, tokens, bytes_per_token, block_size, *, gib=2**30, taken=True, blocks=True,
             off_by=0):
    """The right dict, or one by another rule."""
    free = int((budget_gib - taken_gib * taken) * gib)
    each = paged_bytes(tokens, block_size if blocks else 1, bytes_per_token).nbytes
    requests = free // each + off_by
    return {"bytes_per_request": each, "requests": requests, "left": free - requests * each}


def rounded_up(*args):
    right = capacity(*args)
    return {**right, "requests": right["requests"] + 1, "left": right["left"] - right["bytes_per_request"]}


def floor_blocks(budget_gib, taken_gib, tokens, bytes_per_token, block_size):
    each = max(1, tokens // block_size) * block_size * bytes_per_token
    free = (budget_gib - taken_gib) * 2**30
    return {"bytes_per_request": each, "requests": free // each, "left": free % each}


def one_block_more(budget_gib, taken_gib, tokens, bytes_per_token, block_size):
    each = (tokens // block_size + 1) * block_size * bytes_per_token
    free = (budget_gib - taken_gib) * 2**30
    return {"bytes_per_request": each, "requests": free // each, "left": free % each}


def draw_capacity(rng):
    budget = rng.choice([16, 24, 40, 80])
    return (budget, rng.randrange(1, budget - 4), rng.randrange(200, 9000),
            rng.choice([57_344, 114_688, 131_072, 147_456]), rng.choice([16, 32, 64, 256]))


Q3 = Question(
    "04_memory.q3", "capacity", points=3, whole=True, reference=capacity, draw=draw_capacity, fresh=8,
    cases=(
        Case((24, 16, 8192, 131_072, 16), {"bytes_per_request": 1_073_741_824, "requests": 8, "left": 0}),
        Case((24, 15, 1000, 131_072, 256), {"bytes_per_request": 134_217_728, "requests": 72, "left": 0}),
        Case((80, 20, 5001, 147_456, 16), {"bytes_per_request": 738_459_648, "requests": 87, "left": 178_520_064}),
    ),
    mistakes=(
        Mistake("GB for GiB", lambda *a: capacity(*a, gib=10**9),
                N_("the budget is in GiB, 2**30 bytes each; 10**9 is a GB")),
        Mistake("everything free", lambda *a: capacity(*a, taken=False),
                N_("weights and workspace come off the budget first")),
        Mistake("blocks overlooked", lambda *a: capacity(*a, blocks=False),
                N_("a request takes whole blocks: its last, partly filled block counts whole")),
        Mistake("last block dropped", floor_blocks,
                N_("tokens // block_size drops the last, partly filled block: round up")),
        Mistake("one block more", one_block_more,
                N_("a length that fills its blocks exactly needs no further block: round up, do not add one")),
        Mistake("rounded up", rounded_up,
                N_("the last request does not fit whole: the number is rounded down")),
        Mistake("one fewer", lambda *a: capacity(*a, off_by=-1),
                N_("a request that fits exactly fits: the number is the whole part of the quotient")),
        Mistake("waste not in the bytes", lambda *a: {
                    **capacity(*a), "bytes_per_request": a[2] * a[3]},
                N_("bytes_per_request counts the whole blocks that the request takes, waste included")),
        Mistake("left of the whole budget", lambda *a: {
                    **(right := capacity(*a)), "left": a[0] * 2**30 - right["requests"] * right["bytes_per_request"]},
                N_("what is left is left of the part that was free for KV")),
        Mistake("blocks as bytes", lambda *a: {**capacity(*a), "bytes_per_request": -(-a[2] // a[4]) * a[3]},
                N_("a block has block_size positions, each of bytes_per_token bytes")),
    ),
    hints=(
        N_("Three steps: bytes that are free, bytes that a request takes, and a division. Which of them rounds, "
           "and which way?"),
        N_("Blocks of a request: rounded up. Requests in the budget: rounded down. A GiB: 2**30."),
        N_("free = (budget − taken) · 2**30; each = ceil(tokens / block_size) · block_size · bytes_per_token; "
           "requests = free // each; left = free − requests · each."),
    ),
    stands_for=("mgpt.memory.paged_bytes",),
)


# ---------------------------------------------------------------- 4: sizes in both units
def sizes(n):
    return {"binary": format_bytes(n), "decimal": format_bytes(n, si=True)}


def spelled(n, base, units, *, places=2, always=False, cut=False, least=1, shown=None):
    """A size by another rule."""
    power = max((i for i in range(len(units)) if n >= least * base**i), default=0)
    value = n / base**power
    if shown:
        return f"{shown(value)} {units[power]}"
    if n % base**power == 0 and not always:
        return f"{n // base**power} {units[power]}"
    if cut:
        return f"{n * 100 // base**power / 100:.2f} {units[power]}"
    return f"{value:.{places}f} {units[power]}"


def in_unit(n, size, unit):
    return f"{n // size} {unit}" if n % size == 0 else f"{n / size:.2f} {unit}"


BINARY, DECIMAL = ("B", "KiB", "MiB", "GiB"), ("B", "kB", "MB", "GB")


def both(**change):
    return lambda n: {"binary": spelled(n, 1024, BINARY, **change), "decimal": spelled(n, 1000, DECIMAL, **change)}


def draw_size(rng):
    unit = rng.choice([1, 1000, 1024, 10**6, 2**20, 10**9, 2**30])
    n = rng.choice([unit * rng.randrange(1, 900), rng.randrange(1, 900 * unit + 1), unit, 3 * unit // 2])
    while is_tie(n, 1000) or is_tie(n, 1024):
        n += 1
    return (n,)


def is_tie(n, base):
    """True where n lies half-way between two sizes of two decimals: rounding such ones is not asked here."""
    size = max(base**i for i in range(4) if n >= base**i)
    return 200 * n % size == 0 and 100 * n % size != 0


Q4 = Question(
    "04_memory.q4", "sizes", points=3, reference=sizes, draw=draw_size, fresh=20,
    cases=(
        Case((402_653_184,), {"binary": "384 MiB", "decimal": "402.65 MB"}),
        Case((1_610_612_736,), {"binary": "1.50 GiB", "decimal": "1.61 GB"}),
        Case((24_000_000_000,), {"binary": "22.35 GiB", "decimal": "24 GB"}),
        Case((640,), {"binary": "640 B", "decimal": "640 B"}),
        Case((1010,), {"binary": "1010 B", "decimal": "1.01 kB"}),
        Case((1024,), {"binary": "1 KiB", "decimal": "1.02 kB"}),
        Case((1_048_575,), {"binary": "1024.00 KiB", "decimal": "1.05 MB"}),
    ),
    mistakes=(
        Mistake("MB for MiB", lambda n: {**sizes(n), "binary": spelled(n, 1000, BINARY)},
                N_("a MiB is 2**20 bytes; dividing by 10**6 gives MB, whatever is written behind it")),
        Mistake("MiB for MB", lambda n: {**sizes(n), "decimal": spelled(n, 1024, DECIMAL)},
                N_("a MB is 10**6 bytes; dividing by 2**20 gives MiB, whatever is written behind it")),
        Mistake("binary number, decimal name", lambda n: {**sizes(n), "binary": spelled(n, 1024, DECIMAL)},
                N_("powers of 1024 are written with an i: KiB, MiB, GiB")),
        Mistake("decimals always", both(always=True), N_("a size that is exact in its unit has no decimals")),
        Mistake("decimals never", both(places=0), N_("a size that is not exact in its unit has two decimals")),
        Mistake("one decimal", both(places=1), N_("a size that is not exact in its unit has two decimals, not one")),
        Mistake("round() without a format", both(shown=lambda value: round(value, 2)),
                N_("round() leaves 384.0 and 1.5, where 384 and 1.50 are asked for: the two decimals are a matter of format")),
        Mistake("cut off, not rounded", both(cut=True), N_("the second decimal is rounded, not cut off")),
        Mistake("always MiB and MB", lambda n: {
                    "binary": in_unit(n, 2**20, "MiB"), "decimal": in_unit(n, 10**6, "MB")},
                N_("the unit is the largest that gives at least 1, not always the same one")),
        Mistake("only from 2 on", both(least=2),
                N_("the largest unit that gives at least 1: 1024 bytes are 1 KiB already")),
        Mistake("capital K in kB", lambda n: {**sizes(n), "decimal": sizes(n)["decimal"].replace("kB", "KB")},
                N_("the prefix for 1000 is a small k: kB")),
        Mistake("bits", lambda n: sizes(8 * n), N_("that is bits; sizes are in bytes")),
    ),
    hints=(
        N_("Go up the units as long as the number stays at least 1. Then ask: does it divide without a rest?"),
        N_("Binary: powers of 1024, B KiB MiB GiB. Decimal: powers of 1000, B kB MB GB. An exact size is printed "
           "as a whole number."),
        N_("for unit in units: if n < base · size of the unit, stop; f\"{n // size}\" if n % size == 0 "
           "else f\"{n / size:.2f}\"."),
    ),
    stands_for=("mgpt.memory.format_bytes",),
)

QUESTIONS = (Q1, Q1_WHY, Q2, Q3, Q4)
