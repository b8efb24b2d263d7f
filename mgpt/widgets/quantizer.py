"""The quantizer of chapter 06: values on the number line, ties, walls, groups with their scales, and the bytes."""

import numpy as np

from mgpt.codes import unclipped_codes
from mgpt.quantize import Quantized, error_split, quantize, symmetric_scale
from mgpt.text import N_, _
from mgpt.widgets.control import Choice, Control, Number, Text, View
from mgpt.widgets.number_line import number_line, shown

RULES = {"given": N_("as given below"), "absmax": N_("the largest value of a group"),
         "percentile": N_("the 90th percentile of a group")}


def read_values(text):
    """1 to 12 numbers of a line of text, as float64."""
    try:
        values = np.array([float(word.replace("−", "-")) for word in text.replace(",", " ").split()])
    except ValueError:
        values = np.array([])
    if not 1 <= len(values) <= 12 or not (np.abs(values) <= 1e6).all():
        raise ValueError(_("values: 1 to 12 numbers between −1000000 and 1000000 are needed, apart by spaces"))
    return values


def scale_of(group, state):
    """The scale of one group by the rule of the state, as float32 stores it."""
    if state["rule"] == "given":
        return np.float32(state["scale"])
    percentile = {"percentile": 90} if state["rule"] == "percentile" else {}
    return np.float32(symmetric_scale(group, state["bits"], state["rule"], **percentile))


def quantized(values, state):
    """The values as a Quantized: groups of group_size, a short last one its own scale."""
    size = state["group"]
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    scales = np.array([scale_of(group, state) for group in groups], np.float32)
    codes = np.concatenate([quantize(group, scale, state["bits"]) for group, scale in zip(groups, scales)])
    return groups, Quantized(codes, scales, size, state["bits"], values.dtype)


def view(state):
    """The View of a line of values, a rule for scales, bits and a group size."""
    values = read_values(state["values"])
    groups, result = quantized(values, state)
    restored, drawn, rows, clip, rounding = result.dequantize(), [], [], 0.0, 0.0
    for number, (group, scale) in enumerate(zip(groups, result.scales)):
        split = error_split(group, scale, state["bits"])
        clip, rounding = clip + split.sum_sq_clip, rounding + split.sum_sq_round
        first = number * result.group_size
        lines = list(zip(group, result.codes[first:], restored[first:], split.clipped))
        drawn.append((float(scale), lines))
        nearest = unclipped_codes(group, scale)
        rows += [(shown(x), shown(scale), shown(x / float(scale)), shown(code), shown(back), shown(back - x),
                  cause(x / float(scale), near, clipped)) for (x, code, back, clipped), near in zip(lines, nearest)]
    header = (_("x"), _("scale s"), _("x/s"), _("code"), _("restored"), _("error"), _("cause"))
    figure = number_line("figure-quantizer", _("Values and what their codes stand for"), drawn, state["bits"])
    return View((figure,), header, tuple(rows), sentence(values, result, rounding, clip))


def cause(quotient, nearest, clipped):
    if clipped:
        return _("clipped")
    if quotient == nearest:
        return _("none")
    return _("tie, to even") if abs(quotient - nearest) == 0.5 else _("rounding")


def sentence(values, result, rounding, clip):
    codes = result.nbytes - result.scales.nbytes
    return _("Squared error: {rounding} by rounding, {clip} by clipping. Bytes: {codes} of codes and {scales} of scales "
             "make {all}; in FP32 the values take {full}.").format(
        rounding=shown(rounding), clip=shown(clip), codes=codes, scales=result.scales.nbytes, all=result.nbytes,
        full=4 * len(values))


CONTROL = Control(
    "quantizer", N_("Values, codes and bytes"),
    inputs=(
        Text("values", N_("Values, apart by spaces"), "-1.2 -0.2 0.7 1.8 0.75 5"),
        Choice("rule", N_("Scale"), "given", RULES),
        Number("scale", N_("Given scale"), 0.5, 0.01, 10, step=0.01),
        Number("bits", N_("Code"), 4, 2, 8, unit=N_("bits")),
        Number("group", N_("Group"), 12, 1, 12, unit=N_("values")),
    ),
    view=view,
)
