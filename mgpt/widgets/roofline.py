"""The roofline of chapter 08: where a prefill and decode passes stand, and the bytes a token by batch size."""

import math
from dataclasses import replace
from decimal import Decimal

from mgpt.config import GPTConfig
from mgpt.cost import decode_cost, prefill_cost
from mgpt.machine import Machine
from mgpt.memory import format_bytes
from mgpt.text import N_, _
from mgpt.widgets.control import Choice, Control, Number, View
from mgpt.widgets.machine import PRESETS
from mgpt.widgets.svg import Figure

LEFT, RIGHT, TOP, BASE = 52, 456, 40, 256
# The shape of Llama-3.1-8B, from its config.json; only sizes matter here.
EIGHT_B = GPTConfig(vocab_size=128_256, max_seq_len=131_072, n_layer=32, n_head=32, n_kv_head=8, head_dim=128,
                    n_embd=4096, n_inner=14_336, tie_embeddings=False)
MODELS = {
    "gqa": (N_("8B, GQA: 8 KV heads"), EIGHT_B),
    "mha": (N_("8B, MHA: 32 KV heads"), replace(EIGHT_B, n_kv_head=32)),
    "mqa": (N_("8B, MQA: 1 KV head"), replace(EIGHT_B, n_kv_head=1)),
    "gpt2s": (N_("GPT-2-sized, 12 layers"), GPTConfig(
        vocab_size=50_257, max_seq_len=1024, n_layer=12, n_head=12, n_kv_head=12, head_dim=64, n_embd=768,
        n_inner=2048)),
    "mg2": (N_("MG-2"), GPTConfig(vocab_size=40, max_seq_len=256, n_layer=2, n_head=4, n_kv_head=2, head_dim=16,
                                  n_embd=64, n_inner=128, tie_embeddings=False)),
}
MACHINES = {"a100": N_("A100 80 GB, bf16 (data sheet)"), "h100": N_("H100 SXM, bf16 (data sheet)"),
            "core": N_("the course's own core, float64"), "mine": N_("my machine")}
VALUES = {"1": N_("1 byte"), "2": N_("2 bytes"), "4": N_("4 bytes"), "8": N_("8 bytes")}
SIDES = {"compute": N_("operations"), "bandwidth": N_("bytes")}


def roofline(name, machines, points):
    """A Figure, both axes in powers of ten.

    machines: [(words, Machine)], each a dashed roof; points: [(words, intensity)], each a mark under the first roof.
    """
    at = [intensity for _words, intensity in points] + [machine.ridge for _words, machine in machines]
    low, high = math.floor(math.log10(min(at))), math.ceil(math.log10(max(at)))
    floor = math.floor(math.log10(min(machine.attainable(10**low) for _words, machine in machines)))
    top = math.log10(max(machine.peak for _words, machine in machines)) + 0.2
    marks = "; ".join(f"{words}: {three(intensity)} op/byte, {rate(machines[0][1].attainable(intensity))}"
                      for words, intensity in points)
    roofs = "; ".join(f"{words}: {rate(machine.peak)}, {machine.bandwidth / 1e9:g} GB/s, {three(machine.ridge)} op/byte"
                      for words, machine in machines)
    figure = Figure(name, 480, BASE + 42, _("Attainable operations a second against operations a byte"),
                    f"{roofs}. {marks}")

    def x(intensity):
        return LEFT + (math.log10(intensity) - low) * (RIGHT - LEFT) / (high - low)

    def y(speed):
        return BASE - (math.log10(speed) - floor) * (BASE - TOP) / (top - floor)

    unit, size = ("TFLOP/s", 1e12) if machines[0][1].peak >= 1e12 else ("GFLOP/s", 1e9)
    figure.line(LEFT, BASE, RIGHT, BASE)
    figure.line(LEFT, TOP, LEFT, BASE)
    for power in range(low, high + 1):
        figure.line(x(10**power), BASE, x(10**power), BASE + 4)
        figure.text(x(10**power), BASE + 17, f"{10.0**power:g}", anchor="middle", size=11)
    for power in range(floor, math.floor(top) + 1):
        figure.line(LEFT - 4, y(10.0**power), LEFT, y(10.0**power))
        figure.text(LEFT - 7, y(10.0**power) + 4, f"{10.0**power / size:g}", anchor="end", size=11)
    figure.text(8, TOP - 20, unit, size=11)
    figure.text(RIGHT, BASE + 34, _("operations a byte"), anchor="end", size=11)
    for words, machine in machines:
        corner = x(machine.ridge)
        figure.line(LEFT, y(machine.attainable(10.0**low)), corner, y(machine.peak), dashed=True)
        figure.line(corner, y(machine.peak), RIGHT, y(machine.peak), dashed=True)
        figure.text(RIGHT, y(machine.peak) - 8, words, anchor="end", size=11)
    middle, points = (LEFT + RIGHT) / 2, sorted(points, key=lambda point: point[1])
    left = [point for point in points if x(point[1]) <= middle]
    right = [point for point in points if x(point[1]) > middle]
    for number, (words, intensity) in enumerate(left + right[::-1]):  # no line crosses a label of its own half
        here, height, row = x(intensity), y(machines[0][1].attainable(intensity)), BASE - 10 - 17 * number
        figure.line(here, height, here, row, stroke="quiet")
        figure.rect(here - 4, height - 4, 8, 8, fill="k", stroke="none")
        end = here > middle
        figure.text(here - 6 if end else here + 6, row + 3, words, anchor="end" if end else "start", size=11)
    return figure


def batch_bytes(name, bars, marked=None):
    """A Figure: a bar a batch size, the bytes read for one token: its KV below, its share of the weights above.

    bars: [(batch, bytes of weights, bytes of KV of the whole pass)]; marked: a batch with a thick outline.
    """
    shares = [(batch, weights / batch, kv / batch) for batch, weights, kv in bars]
    most = max(weights + kv for _batch, weights, kv in shares)
    size, unit = max((pair for pair in ((1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")) if pair[0] <= most))
    data = "; ".join(_("{batch} requests: {weights} of weights and {kv} of KV").format(
        batch=batch, weights=format_bytes(round(weights), si=True), kv=format_bytes(round(kv), si=True))
        for batch, weights, kv in shares)
    figure = Figure(name, 480, BASE + 42, _("Bytes read for one token against the batch size"), data)
    width = (RIGHT - LEFT) / len(shares)

    def height(nbytes):
        return nbytes * (BASE - TOP) / most

    for number, (batch, weights, kv) in enumerate(shares):
        left = LEFT + width * number + 3
        thick = batch == marked
        figure.rect(left, BASE - height(kv), width - 6, height(kv), fill="k", stroke="none")
        figure.rect(left, BASE - height(kv + weights), width - 6, height(weights), fill="time", stroke="none")
        if thick:
            figure.rect(left, BASE - height(kv + weights), width - 6, height(kv + weights), thick=True)
        figure.text(left + width / 2 - 3, BASE - height(kv + weights) - 5, f"{(weights + kv) / size:.3g}",
                    anchor="middle", size=11, bold=thick)
        figure.text(left + width / 2 - 3, BASE + 17, batch, anchor="middle", size=11, bold=thick)
    figure.line(LEFT, BASE, RIGHT, BASE)
    floor = BASE - height(shares[0][2])
    figure.line(LEFT, floor, RIGHT, floor, dashed=True)
    figure.text(8, TOP - 24, _("{unit} a token").format(unit=unit), size=11)
    figure.text(LEFT - 5, floor + 4, "KV", anchor="end", size=11)
    figure.text(RIGHT, BASE + 34, _("requests in the batch"), anchor="end", size=11)
    return figure


def batches(config, context, most=256, also=(), bytes_per_value=2, kv_bytes_per_value=None):
    """Bars of `batch_bytes`: batch sizes 1, 2, 4, … up to `most`, and those of `also`."""
    sizes = sorted({2**power for power in range(most.bit_length())} | set(also))
    costs = [(n, decode_cost(config, context, n, bytes_per_value, kv_bytes_per_value)) for n in sizes]
    return [(n, cost.bytes_weights, cost.bytes_kv) for n, cost in costs]


def three(number):
    """A number in words, three digits, without powers of ten."""
    return f"{number:,.0f}" if number >= 100 else f"{Decimal(f'{number:.3g}'):f}"


def rate(speed):
    """Operations a second in words, three digits."""
    size, unit = (1e12, "TFLOP/s") if speed >= 1e12 else (1e9, "GFLOP/s")
    return f"{three(speed / size)} {unit}"


def many(number):
    """A number of operations in words, three digits."""
    power = max(power for power in range(7) if 1000**power <= number)
    return f"{number / 1000**power:.4g} {' kMGTPE'[power]}".strip()


def machine_of(state):
    """The Machine that a state names."""
    if state["machine"] == "mine":
        return Machine(state["bandwidth"] * 1e9, state["peak"] * 1e9)
    return PRESETS[state["machine"]]


def view(state):
    """The View of a state: model, machine (bandwidth and peak of my own), bytes a value, context, batch."""
    config, machine = MODELS[state["model"]][1], machine_of(state)
    context, batch = state["context"], state["batch"]
    weights, kv = int(state["weights"]), int(state["kv"])
    alone = decode_cost(config, context, 1, weights, kv)
    together = decode_cost(config, context, batch, weights, kv)
    prefill = prefill_cost(config, context, weights)
    read = prefill.bytes_weights + alone.bytes_kv  # a prefill writes what the first decode pass behind it reads
    prefill = replace(prefill, bytes_kv=alone.bytes_kv, intensity=prefill.flops / read)
    passes = [(_("prefill of {n}").format(n=context), prefill, context), (_("decode, 1 request"), alone, 1)]
    if batch > 1:
        passes.append((_("decode, {n} requests").format(n=batch), together, batch))
    header = (_("pass"), *(words for words, _cost, _tokens in passes))  # a column a pass: eight columns would not fit
    labels = (_("operations"), _("weights read"), "KV", _("operations a byte"), _("limit"), _("time at least"),
              _("bytes a token"))
    columns = [(many(cost.flops), format_bytes(cost.bytes_weights, si=True), format_bytes(cost.bytes_kv, si=True),
                three(cost.intensity), _(SIDES[machine.side(cost.intensity)]),
                f"{three(machine.least_seconds(cost) * 1e3)} ms",
                format_bytes(round((cost.bytes_weights + cost.bytes_kv) / tokens), si=True))
               for _words, cost, tokens in passes]
    rows = tuple(zip(labels, *columns))
    named = f"{machine.bandwidth / 1e9:g} GB/s, {rate(machine.peak)}"
    points = [(words, cost.intensity) for words, cost, _n in passes]
    pictures = (roofline("figure-roofline", [(named, machine)], points),
                batch_bytes("figure-roofline-batch", batches(config, context, 128, (batch,), weights, kv), batch))
    return View(pictures, header, rows, sentence(machine, together, alone, batch),
                note=_("Rule: the time is the larger of operations / peak and bytes / bandwidth, a bound and no "
                       "forecast."))


def sentence(machine, together, alone, batch):
    side, ceiling = machine.side(together.intensity), alone.flops / alone.bytes_kv
    least = three(machine.least_seconds(together) * 1e3)
    first = {
        "compute": _("The decode pass does {intensity} operations a byte, and the ridge is at {ridge}: the operations "
                     "decide, and it takes at least {ms} ms."),
        "bandwidth": _("The decode pass does {intensity} operations a byte, and the ridge is at {ridge}: the bytes "
                       "decide, and it takes at least {ms} ms."),
    }[side].format(intensity=three(together.intensity), ridge=three(machine.ridge), ms=least)
    overtakes = together.bytes_weights // alone.bytes_kv + 1
    second = _("KV bytes overtake the weights at a batch of {n}.").format(n=overtakes)
    third = "" if side == "compute" or ceiling > machine.ridge else " " + _(
        "No batch size brings it to the ridge: the KV alone allows {ceiling}.").format(ceiling=three(ceiling))
    return f"{first} {second}{third}"


CONTROL = Control(
    "roofline", N_("Where a pass stands under the roofline"),
    inputs=(
        Choice("model", N_("Model"), "gqa", {key: words for key, (words, _config) in MODELS.items()}),
        Choice("machine", N_("Machine"), "a100", MACHINES),
        Number("bandwidth", N_("Bandwidth of my machine"), 22.5, 0.1, 100_000, step=0.1, unit="GB/s"),
        Number("peak", N_("Peak of my machine"), 53.0, 0.1, 10_000_000, step=0.1, unit="GFLOP/s"),
        Choice("weights", N_("Stored weight"), "2", VALUES),
        Choice("kv", N_("Stored KV value"), "2", VALUES),
        Number("context", N_("Positions"), 8192, 1, 1_000_000),
        Number("batch", N_("Requests in the batch"), 32, 1, 100_000),
    ),
    view=view,
)
