"""Codes, scales, packing and bytes against written answers; wrong rules of real tools as traps.

The answers come from other tools run on the same input, from public bug reports (named in the test ids) and
from hand derivation.  A trap test shows that a wrong rule gives the reported value, and that ours does not.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.config import GPTConfig
from mgpt.model import init_params
from mgpt.quantize import (affine_params, dequantize, dequantize_affine, error_split, pack_int4, quantize,
                           quantize_affine, quantize_groups, quantize_params, symmetric_scale, unpack_int4)

pytestmark = pytest.mark.filterwarnings("error")
laws = settings(deadline=None, derandomize=True, max_examples=100)
NAN, INF = float("nan"), float("inf")

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
vectors = st.lists(numbers, min_size=1, max_size=24).map(np.array)
scales = st.floats(1e-3, 1e3)
bit_widths = st.integers(2, 8)


def exact_code(x, scale, bits):
    """The symmetric code of two floats in exact arithmetic: Fraction rounds half to even."""
    qmax = 2 ** (bits - 1) - 1
    return min(max(round(Fraction(x) / Fraction(scale)), -qmax), qmax)


# --- codes for a given scale

CODES = [
    # source, dtype, x, scale, bits, codes
    ("qnt-001 ties", "f4", [.5, -.5, 1.5, -1.5, 2.5, -2.5, 3.5, -3.5, 4.5, -4.5, 5.5, 6.5, -6.5], 1.0, 4,
     [0, 0, 2, -2, 2, -2, 4, -4, 4, -4, 6, 6, -6]),
    ("qnt-002 near the clip", "f4",
     [6.499999523162842, 6.5, 6.500000476837158, 7, 7.5, 8, -7.499999523162842, -7.5, -8, -8.5, 128, -129],
     1.0, 4, [6, 6, 7, 7, 7, 7, -7, -7, -7, -7, 7, -7]),
    ("qnt-004 just under half", "f4",
     [0.4999999701976776, 0.5000000596046448, 1.4999998807907104, 1.5000001192092896, 2.499999761581421,
      2.500000238418579, -0.4999999701976776], 1.0, 4, [0, 1, 1, 2, 2, 3, 0]),
    ("qnt-007 subnormal scale", "f4",
     [9.99994610111476e-41, 2.999997843319071e-40, -2.999997843319071e-40, 6.5000070046785235e-40,
      1.0000002153053333e-39, 0, 1.0000000031710769e-30], 1e-40, 4, [1, 3, -3, 7, 7, 0, 7]),
    ("qnt-008 smallest subnormal scale", "f4",
     [1.401298464324817e-45, 2.802596928649634e-45, -9.80908925027372e-45, 1.401298464324817e-44, 0],
     1.401298464324817e-45, 4, [1, 2, -7, 7, 0]),
    ("qnt-010 quotient overflows", "f4",
     [1.0000000150474662e30, -1.0000000150474662e30, 3.0000000095132306e-30], 1e-30, 4, [7, -7, 3]),
    ("qnt-015 beyond int32", "f8", [1e30, -1e30], 1.0, 4, [7, -7]),
    ("qnt-053 intel/torch-xpu-ops#5349", "f8", [0.5, -0.5, 1.5, -1.5, 2.5, -2.5], 1, 4, [0, 0, 2, -2, 2, -2]),
    ("qnt-054 floor(x + 0.5)", "f4", [0.49999997], 1.0, 4, [0]),
    ("qnt-056 onnx/onnx#7868", "f8", [300], 1.0, 8, [127]),
    ("float64 quotient overflows", "f8", [1e308, -1e308], 1e-308, 8, [127, -127]),
    ("float32 divides in float32", "f4", [1.75], 0.7, 4, [2]),  # these two floats, divided in float64, give 3
    ("float16 divides in float16", "f2", [1.0, -0.25, 65504], 0.1, 8, [10, -2, 127]),  # in float64, -3
    ("float64 keeps float64", "f8", [1.75 + 1e-9], 0.7, 4, [3]),
    ("Table 30.2", "f8", [-1.2, -0.2, 0.7, 1.8, 8], 0.5, 4, [-2, 0, 1, 4, 7]),
    ("exercise 30.8.4", "f8", [0.75, -0.75, 5], 0.5, 4, [2, -2, 7]),
    ("two bits", "f8", [-9, -0.5, 0.5, 0.6, 9], 1.0, 2, [-1, 0, 0, 1, 1]),
]


@pytest.mark.parametrize(("dtype", "x", "scale", "bits", "codes"), [c[1:] for c in CODES],
                         ids=[c[0] for c in CODES])
def test_codes_are_round_half_even_of_the_true_quotient_then_clip(dtype, x, scale, bits, codes):
    got = quantize(np.array(x, dtype), scale, bits)
    assert got.tolist() == codes
    assert got.dtype == np.int8


@laws
@given(vectors, scales, bit_widths)
def test_float64_codes_are_those_of_exact_arithmetic_to_one_rounding_of_the_quotient(x, scale, bits):
    for value, code in zip(x.tolist(), quantize(x, scale, bits).tolist(), strict=True):
        assert code in {exact_code(value * (1 + step), scale, bits) for step in (-2**-52, 0, 2**-52)}


@laws
@given(vectors, scales, bit_widths)
def test_quantizing_what_codes_stand_for_gives_the_codes_again_and_signs_mirror(x, scale, bits):
    codes = quantize(x, scale, bits)
    assert (quantize(dequantize(codes, scale), scale, bits) == codes).all()
    assert (quantize(-x, scale, bits) == -codes).all()


@laws
@given(vectors, scales, bit_widths)
def test_a_code_inside_the_range_is_off_by_half_a_scale_at_the_most(x, scale, bits):
    clipped = error_split(x, scale, bits).clipped
    error = np.abs(x - dequantize(quantize(x, scale, bits), scale))
    assert (error[~clipped] <= scale / 2 * (1 + 1e-12)).all()
    assert (error[clipped] >= scale / 2 * (1 - 1e-12)).all()


def test_a_scale_of_its_own_for_each_row():
    codes = quantize([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], np.array([[1.0], [0.5]]))
    assert codes.tolist() == [[1, 2, 3], [2, 4, 6]]
    assert dequantize(codes, np.array([[1.0], [0.5]])).tolist() == [[1, 2, 3], [1, 2, 3]]


def test_a_single_number_is_an_array_without_axes():
    code = quantize(8, 0.5)
    assert isinstance(code, np.ndarray) and code.shape == () and code == 7
    assert dequantize(code, 0.5) == 3.5


@pytest.mark.parametrize(("scale", "dtype"), [
    (0.5, "f8"), (1, "f8"), (np.float32(0.5), "f4"), (np.float16(0.5), "f2"), (np.array([0.5], "f4"), "f4")])
def test_dequantize_returns_the_float_dtype_of_the_scale(scale, dtype):
    assert dequantize(np.array([3], np.int8), scale).dtype == dtype
    assert dequantize_affine(np.array([3], np.uint8), scale, 1).dtype == dtype


def test_a_product_past_the_range_of_the_scale_s_dtype_is_infinite():
    assert dequantize([7, -7], np.float32(3e38)).tolist() == [INF, -INF]
    assert dequantize([7], 3e38).tolist() == [7 * 3e38]


def test_integers_are_divided_as_float64():
    assert quantize(np.array([3, -5, 100], np.int64), 2.0, 8).tolist() == [2, -2, 50]


@pytest.mark.parametrize("scale", [0, -0.5, NAN, INF, -INF, None, "1", True, 1j, [1.0, NAN, 1.0], [1.0, 1.0],
                                   [[1.0, 1.0, 1.0]] * 2])
def test_an_unusable_scale_is_refused(scale):
    """qnt-012: torch.fake_quantize gives NaN for an infinite scale."""
    x = [1.0, -1.0, 0.0]
    codes = [1, 2, 3]
    for call in (lambda: quantize(x, scale), lambda: dequantize(codes, scale), lambda: error_split(x, scale),
                 lambda: quantize_affine(x, scale, 0), lambda: dequantize_affine(codes, scale, 0)):
        with pytest.raises(ValueError, match="scale"):
            call()


@pytest.mark.parametrize(("dtype", "scale"), [("f4", 1e-46), ("f4", 1e39), ("f2", 1e-9), ("f2", 1e6)])
def test_a_scale_that_the_dtype_of_x_turns_into_zero_or_infinity_is_refused(dtype, scale):
    with pytest.raises(ValueError, match="scale.*becomes"):
        quantize(np.ones(2, dtype), scale)


@pytest.mark.parametrize("x", [[NAN], [1.0, INF], [-INF, 0.0], [], np.zeros((0, 3)), NAN, ["1"], [None],
                               [True], [1j], [[1.0], [1.0, 2.0]]])
def test_values_that_are_no_finite_numbers_or_none_at_all_are_refused(x):
    """qnt-013: for NaN, ONNX Runtime says -128, torch -7 or 127, torchao 0."""
    for call in (lambda: quantize(x, 1.0), lambda: quantize_affine(x, 1.0, 0), lambda: symmetric_scale(x),
                 lambda: quantize_groups(x, 2), lambda: error_split(x, 1.0)):
        with pytest.raises(ValueError, match="x must"):
            call()


@pytest.mark.parametrize("bits", [1, 9, 0, -4, 4.0, True, "4", None])
def test_bits_are_whole_numbers_from_2_to_8(bits):
    for call in (lambda: quantize([1.0], 1.0, bits), lambda: quantize_affine([1.0], 1.0, 0, bits),
                 lambda: affine_params(0, 1, bits), lambda: symmetric_scale([1.0], bits),
                 lambda: quantize_groups([1.0], 1, bits), lambda: error_split([1.0], 1.0, bits),
                 lambda: quantize_params({"w": np.ones(2)}, bits)):
        with pytest.raises(ValueError, match="bits must be"):
            call()


def test_numpy_integers_are_integers():
    four = np.int64(4)
    assert quantize([9.0], np.int32(1), four) == 7
    assert quantize_groups([1.0, 2.0], np.uint8(1), four).nbytes == 2 * 1 + 2 * 4
    assert affine_params(np.float32(0), np.int8(15), four) == (1.0, 0)
    assert unpack_int4(pack_int4([1, 2]), np.int16(2)).tolist() == [1, 2]


@pytest.mark.parametrize("codes", [[1.0], [True], ["1"]])
def test_codes_are_integers(codes):
    for call in (lambda: dequantize(codes, 1.0), lambda: dequantize_affine(codes, 1.0, 0),
                 lambda: pack_int4(codes), lambda: unpack_int4(codes, 1)):
        with pytest.raises(ValueError, match="must be integers"):
            call()


# --- traps: rules of real tools that give other codes

HALF_AWAY = [0.5, -0.5, 1.5, -1.5, 2.5, -2.5]


def test_trap_half_away_from_zero():
    """qnt-001, qnt-053; tenstorrent/tt-metal#56525, microsoft/onnxruntime#25045 and others: std::round."""
    away = [math.copysign(math.floor(abs(x) + 0.5), x) for x in HALF_AWAY]
    assert away == [1, -1, 2, -2, 3, -3]
    assert quantize(HALF_AWAY, 1).tolist() == [0, 0, 2, -2, 2, -2]


def test_trap_floor_of_x_plus_a_half():
    """qnt-054."""
    x = np.float32(0.49999997)
    assert np.floor(x + np.float32(0.5)) == 1
    assert quantize(x, 1.0) == 0


def test_trap_multiplying_by_the_reciprocal_of_a_subnormal_scale():
    """qnt-007: 1/s is infinite, so torch.fake_quantize saturates every value."""
    x, scale = np.array([9.99994610111476e-41, 2.999997843319071e-40], "f4"), np.float32(1e-40)
    with np.errstate(all="ignore"):
        assert np.clip(np.rint(x * (np.float32(1) / scale)), -7, 7).tolist() == [7, 7]
    assert quantize(x, scale).tolist() == [1, 3]


def test_trap_the_code_minus_eight():
    """qnt-002, qnt-040, IntelLabs/distiller#463: the range -8 .. 7 is not the symmetric one."""
    x = [-7.500000476837158, -8.0, -9.0]
    assert np.clip(np.rint(x), -8, 7).tolist() == [-8, -8, -8]
    assert quantize(x, 1.0).tolist() == [-7, -7, -7]


def test_trap_a_scale_for_fifteen_steps_over_codes_that_have_fourteen():
    """qnt-040, torchao: absmax / 7.5 sends -7 to -8, which has no code; qnt-047, torch divides by 127.5."""
    x = [-7, 7, 3.5, 0]
    assert symmetric_scale(x) == 1.0
    assert quantize(x, symmetric_scale(x)).tolist() == [-7, 7, 4, 0]
    assert np.rint(np.array(x) / (7 / 7.5)).tolist() == [-8, 8, 4, 0]
    assert symmetric_scale([-127, 127], 8) == 1.0
    assert 127 / 127.5 == pytest.approx(0.9960784316062927, rel=1e-7)
    assert quantize([-127, 127], 1.0, 8).tolist() == [-127, 127]  # qnt-045 microsoft/onnxruntime#10170


def test_trap_q4_0_gives_one_extreme_of_a_pair_away():
    """qnt-041: gguf's Q4_0 divides by the signed extreme / -8, and -7 comes back as -6.125."""
    d = 7 / -8
    assert [d * (min(15, int(x / d + 8.5)) - 8) for x in (7, -7)] == [7.0, -6.125]
    groups = quantize_groups([7, -7], 2)
    assert groups.dequantize().tolist() == [7, -7]


def test_trap_casting_before_the_clip():
    """qnt-015, qnt-056: an integer that is too narrow wraps around; 300 becomes 44."""
    assert np.array(300).astype(np.int8) == 44
    assert quantize(300, 1.0, 8) == 127


def test_trap_the_value_test_for_clipping():
    """qnt-020: the float32 quotient absmax / (absmax / 7) is 7 or a neighbour, but always the code 7."""
    x = np.abs(np.random.default_rng(0).normal(size=20_000)).astype(np.float32)
    quotients = x / (x / np.float32(7))
    assert quotients.min() == np.float32(6.999999523162842)
    assert quotients.max() == np.float32(7.000000476837158)
    assert (quantize(x, x / np.float32(7)) == 7).all()
    value = np.float32(1.2654215)
    scale = value / np.float32(7)
    assert value / scale > 7  # the value test calls the largest value clipped
    split = error_split([value], scale)
    assert not split.clipped.any() and split.sum_sq_clip == 0


# --- affine

AFFINE = [
    # source, x, bits, signed, scale, zero point, codes
    ("qnt-048 openvinotoolkit/nncf#4074", [5, 6, 7, 8], 4, False, 0.5333333333333333, 0, [9, 11, 13, 15]),
    ("qnt-049 openvinotoolkit/nncf#4074", [-22, -21, -20, -19, -18, -17, -16, -15], 8, False,
     0.08627450980392157, 255, [0, 12, 23, 35, 46, 58, 70, 81]),
    ("two-sided", [-1.0, 0.0, 2.0], 2, False, 1.0, 1, [0, 1, 3]),
    ("two-sided, signed", [-1.0, 0.0, 2.0], 2, True, 1.0, -1, [-2, -1, 1]),
    ("one-sided, signed", [0.0, 255.0], 8, True, 1.0, -128, [-128, 127]),
    ("all zero", [0.0, 0.0], 8, False, 1.0, 0, [0, 0]),
    ("all zero, signed", [0.0], 4, True, 1.0, 0, [0]),
    ("a half-even zero point", [-2.5, 12.5], 4, False, 1.0, 2, [0, 14]),
    ("a zero point to clip", [-382 * 5e-324, 0.0], 8, False, 5e-324, 255, [0, 255]),  # 1.498 steps
]


@pytest.mark.parametrize(("x", "bits", "signed", "scale", "zero", "codes"), [c[1:] for c in AFFINE],
                         ids=[c[0] for c in AFFINE])
def test_the_affine_range_includes_zero(x, bits, signed, scale, zero, codes):
    params = affine_params(min(x), max(x), bits, signed)
    assert params == (pytest.approx(scale, rel=1e-15), zero)
    assert [type(value) for value in params] == [float, int]
    got = quantize_affine(x, *params, bits, signed)
    assert got.tolist() == codes
    assert got.dtype == (np.int8 if signed else np.uint8)


@pytest.mark.parametrize(("x", "bits"), [([5, 6, 7, 8], 4), ([-22, -15], 8)])
def test_trap_an_affine_range_without_zero_collapses_the_group(x, bits):
    """qnt-048, qnt-049: the clamped zero point leaves one value for all."""
    top = 2**bits - 1
    scale = (max(x) - min(x)) / top
    zero = min(max(round(-min(x) / scale), 0), top)
    collapsed = {min(max(round(value / scale) + zero, 0), top) for value in x}
    assert len(collapsed) == 1
    assert len(set(quantize_affine(x, *affine_params(min(x), max(x), bits), bits).tolist())) == len(x)


def test_trap_adding_the_zero_point_before_rounding():
    """qnt-021, pytorch/pytorch#37188: torch.quantize_per_tensor."""
    x = np.array([0.5, 1.5, 2.5, -0.5])
    assert np.rint(x / 1.0 + 1).tolist() == [2, 2, 4, 0]
    assert quantize_affine(x, 1.0, 1).tolist() == [1, 3, 3, 1]


def test_trap_truncating_the_zero_point():
    """qnt-052, qualcomm/aimet#276: a zero point computed as -7.9999999 is -8."""
    scale, zero = affine_params(-5e-8, 15.0, 4, signed=True)
    exact = -8 + 5e-8 / scale
    assert (int(exact), zero) == (-7, -8)


@pytest.mark.parametrize(("zero", "bits", "signed"), [
    (8, 4, True), (-1, 4, False), (16, 4, False), (-129, 8, True), (1.0, 8, False), (None, 8, False),
    ([0, 1], 8, False)])
def test_a_zero_point_outside_its_range_is_refused(zero, bits, signed):
    """qnt-051, intel/auto-round#2273: an unsigned zero point, a signed clamp, and all levels above 7 clip."""
    with pytest.raises(ValueError, match="zero_point"):
        quantize_affine([1.0, 2.0, 3.0], 1.0, zero, bits, signed)


@pytest.mark.parametrize(("lo", "hi"), [(1, 0), (NAN, 1), (0, INF), (None, 1), (0, "1"), (-1.7e308, 1.7e308),
                                        (0, 5e-324), (False, 1)])
def test_an_affine_range_without_a_usable_scale_is_refused(lo, hi):
    with pytest.raises(ValueError, match="lo|hi"):
        affine_params(lo, hi)


def test_affine_quotients_that_overflow_clip():
    assert quantize_affine(np.array([1e30, -1e30], "f4"), 1e-30, 7).tolist() == [255, 0]


@laws
@given(numbers, numbers, bit_widths, st.booleans())
def test_affine_keeps_zero_exact_and_its_ends_to_half_a_step(a, b, bits, signed):
    lo, hi = min(a, b), max(a, b)
    try:
        scale, zero = affine_params(lo, hi, bits, signed)
    except ValueError:
        assert 0 < max(hi, 0) - min(lo, 0) < 1e-300
        return
    codes = quantize_affine([0.0, lo, hi], scale, zero, bits, signed)
    back = dequantize_affine(codes, scale, zero)
    assert back[0] == 0
    assert np.abs(back - [0, lo, hi]).max() <= scale * (1 + 1e-9)  # half for the code, half for zero's


@laws
@given(numbers.filter(lambda c: abs(c) > 1e-300), bit_widths, st.booleans())
def test_an_affine_constant_survives(constant, bits, signed):
    scale, zero = affine_params(constant, constant, bits, signed)
    back = dequantize_affine(quantize_affine([constant], scale, zero, bits, signed), scale, zero)
    assert back[0] == pytest.approx(constant, rel=1e-15)


def test_affine_scales_and_zero_points_of_rows():
    scale, zero = np.array([[1.0], [0.5]], "f4"), np.array([[0], [3]])
    codes = quantize_affine(np.array([[1, 2], [1, 2]], "f4"), scale, zero)
    assert codes.tolist() == [[1, 2], [5, 7]]
    assert dequantize_affine(codes, scale, zero).tolist() == [[1, 2], [1, 2]]


# --- packing

PACKED = [("qnt-022", [-7, 7], [0x79]), ("qnt-023", [7, -7, 3], [0x97, 0x03]), ("one", [-1], [0x0F]),
          ("qnt-024", [-8, 7, 1, -2, 5], [0x78, 0xE1, 0x05]), ("Table 30.2", [-2, 0, 1, 4], [0x0E, 0x41]),
          ("none", [], [])]


@pytest.mark.parametrize(("codes", "packed"), [c[1:] for c in PACKED], ids=[c[0] for c in PACKED])
def test_the_first_code_is_in_the_low_nibble_and_an_odd_end_is_padded_with_zero(codes, packed):
    got = pack_int4(codes)
    assert got.tolist() == packed and got.dtype == np.uint8
    back = unpack_int4(np.array(packed, np.uint8), len(codes))
    assert back.tolist() == codes and back.dtype == np.int8


def test_trap_other_orders_and_a_lost_sign():
    """qnt-022, qnt-025, amd/Quark#30: bitsandbytes puts the first code high; without a sign 9 stays 9."""
    codes = [-7, 7]
    assert (codes[0] & 15) << 4 | codes[1] & 15 == 0x97
    assert [0x79 & 15, 0x79 >> 4] == [9, 7]
    assert pack_int4(codes).tolist() == [0x79] and unpack_int4([0x79], 2).tolist() == codes


@laws
@given(st.lists(st.tuples(*[st.integers(-8, 7)] * 5), min_size=1, max_size=4), st.integers(1, 5))
def test_rows_are_packed_each_by_itself_and_come_back(rows, width):
    codes = np.array(rows, np.int8)[:, :width]
    packed = pack_int4(codes)
    assert packed.shape == (len(rows), (width + 1) // 2)
    for row, line in zip(packed.tolist(), codes.tolist(), strict=True):
        number = sum(code % 16 * 16**i for i, code in enumerate(line))  # digits, the lowest first
        assert number == int.from_bytes(row, "little")
    assert (unpack_int4(packed, width) == codes).all()


@pytest.mark.parametrize(("call", "match"), [
    (lambda: pack_int4([8]), "codes must be in -8 .. 7"),
    (lambda: pack_int4([-9, 0]), "codes must be in -8 .. 7"),
    (lambda: pack_int4(np.array([15], np.uint8)), "codes must be in -8 .. 7"),
    (lambda: pack_int4(3), "codes must have an axis"),
    (lambda: unpack_int4([1, 2], 2), "n = 2"), (lambda: unpack_int4([1, 2], 5), "n = 5"),
    (lambda: unpack_int4([1], -1), "n must be"), (lambda: unpack_int4([1], 1.0), "n must be"),
    (lambda: unpack_int4([256], 1), "packed must be in"), (lambda: unpack_int4([-1], 1), "packed must be in"),
])
def test_what_cannot_be_packed_or_unpacked_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()


# --- choosing scales

def test_absmax_percentile_and_mse_of_a_row_with_an_outlier():
    x = np.array([1, -2, 3, -4, 100, 1, 1, 1])
    assert symmetric_scale(x) == 100 / 7
    assert symmetric_scale(x, 8) == 100 / 127
    assert symmetric_scale(x, 4, "percentile", percentile=100) == 100 / 7
    assert symmetric_scale(x, 4, "percentile", percentile=50) == 1.5 / 7  # between 1 and 2, halfway
    assert symmetric_scale(x, 4, "percentile", percentile=75) == 3.25 / 7  # place 5.25, between 3 and 4


def test_mse_tries_two_hundred_thresholds_and_takes_the_largest_of_equals():
    """Two bits, codes -1 0 1: (200 - t)^2 + (101 - t)^2 is 50^2 + 49^2 at both t = 150 and t = 151."""
    assert symmetric_scale([200.0, 101.0], 2, "mse") == 151.0
    assert symmetric_scale([200.0, -100.0], 2, "mse") == 150.0  # 50^2 + 50^2, alone
    assert symmetric_scale([7.0, -3.0, 1.0], 4, "mse") == 1.0  # absmax has no error here


@settings(laws, max_examples=20)
@given(vectors.filter(lambda x: np.abs(x).max() > 1e-3), bit_widths)
def test_mse_is_the_best_of_its_thresholds(x, bits):
    def error(scale):
        return float(np.sum((x - dequantize(quantize(x, scale, bits), scale)) ** 2))

    qmax, best = 2 ** (bits - 1) - 1, symmetric_scale(x, bits, "mse")
    peak = float(np.abs(x).max())
    errors = [error(peak * i / 200 / qmax) for i in range(1, 201)]
    assert error(best) <= min(errors) * (1 + 1e-12)
    assert symmetric_scale(x * 2.0**-400, bits, "mse") == best * 2.0**-400
    assert symmetric_scale(x * 2.0**600, bits, "mse") == best * 2.0**600  # where the squares overflow


def test_mse_leaves_an_outlier_out_that_absmax_follows():
    x = np.array([20.0] + [-1.0, 1.0] * 200)
    best = symmetric_scale(x, 4, "mse")
    assert best < symmetric_scale(x, 4) / 2
    assert error_split(x, best).clipped.tolist() == [True] + [False] * 400


@pytest.mark.parametrize("method", ["absmax", "percentile", "mse"])
@pytest.mark.parametrize("x", [[0.0], [0, 0, 0], np.zeros((2, 2), "f4"), 0.0])
def test_all_zero_gets_the_scale_one(method, x):
    assert symmetric_scale(x, 4, method) == 1.0
    assert (quantize(x, 1.0) == 0).all()


@pytest.mark.parametrize("method", ["absmax", "percentile", "mse"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
def test_a_scale_is_a_python_float_whatever_the_input(method, dtype):
    assert type(symmetric_scale(np.array([3, -7, 2], dtype), 4, method)) is float
    assert symmetric_scale(np.array([3, -7, 2], dtype), 4) == 1.0


@pytest.mark.parametrize(("call", "match"), [
    (lambda: symmetric_scale([0, 0, 0, 5.0], 4, "percentile", percentile=50), "percentile"),
    (lambda: symmetric_scale([1.0], 4, "percentile", percentile=100.1), "percentile"),
    (lambda: symmetric_scale([1.0], 4, "percentile", percentile=-1), "percentile"),
    (lambda: symmetric_scale([1.0], 4, "percentile", percentile=NAN), "percentile"),
    (lambda: symmetric_scale([1.0], 4, "minmax"), "method must be one of absmax, percentile, mse"),
    (lambda: symmetric_scale([5e-324]), "scale"),
])
def test_a_scale_that_cannot_be_chosen_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()


# --- groups

@pytest.mark.parametrize(("group_size", "sse", "nbytes"), [
    (8, 33.0, 4 + 4), (4, 3.1224489795918364, 4 + 8), (2, 1.0408163265306123, 4 + 16), (5, None, 3 + 2 + 8),
    (3, None, 2 + 2 + 1 + 12), (100, 33.0, 4 + 4)])
def test_smaller_groups_isolate_an_outlier_at_more_bytes(group_size, sse, nbytes):
    """qnt-032."""
    w = np.array([1, -2, 3, -4, 100, 1, 1, 1])
    groups = quantize_groups(w, group_size)
    assert groups.nbytes == nbytes
    if sse is not None:
        exact = quantize_groups(w, group_size, scale_dtype=np.float64)
        assert np.sum((w - exact.dequantize()) ** 2) == pytest.approx(sse, rel=1e-14)
        assert np.sum((w - groups.dequantize()) ** 2) == pytest.approx(sse, rel=1e-6)  # scales in float32


def test_four_codes_and_a_float32_scale_are_six_bytes_where_four_float32_are_sixteen():
    groups = quantize_groups(np.array([-1.2, -0.2, 0.7, 1.8], "f4"), 4)
    assert groups.nbytes == 6 and np.zeros(4, "f4").nbytes == 16


@pytest.mark.parametrize(("shape", "group", "bits", "scale_dtype", "nbytes"), [
    ((96,), 64, 4, "f2", 52),  # kv-053: two groups, the short one has a scale too
    ((5,), 5, 4, "f4", 3 + 4),  # kv-054: ceil(5 * 4 / 8)
    ((3, 5), 5, 4, "f2", 3 * (3 + 2)),
    ((2, 7), 3, 3, "f4", 2 * (2 + 2 + 1 + 3 * 4)),
    ((2, 3, 4), 4, 8, "f8", 2 * 3 * (4 + 8)),
])
def test_bytes_are_ceil_of_each_group_and_every_scale(shape, group, bits, scale_dtype, nbytes):
    groups = quantize_groups(np.ones(shape), group, bits, scale_dtype)
    assert groups.nbytes == nbytes and type(groups.nbytes) is int
    assert groups.codes.shape == groups.shape == shape
    assert groups.scales.shape == (*shape[:-1], -(-shape[-1] // group))
    assert (groups.group_size, groups.bits, groups.scales.dtype) == (group, bits, scale_dtype)


def test_codes_are_made_with_the_scale_as_stored():
    """1.9 / 7 in float16 is a little larger, 0.271484375, so 0.95 is 3.4993 steps of it instead of 3.5."""
    x = [1.9, 0.95]
    assert quantize(x, 1.9 / 7).tolist() == [7, 4]
    groups = quantize_groups(x, 2, scale_dtype=np.float16)
    assert groups.scales.tolist() == [0.271484375]
    assert groups.codes.tolist() == [7, 3]
    assert groups.dequantize().tolist() == [7 * 0.271484375, 3 * 0.271484375]


@pytest.mark.parametrize("x", [1e-6, 1e7])
def test_a_scale_that_its_storage_turns_into_zero_or_infinity_is_refused(x):
    """qnt-043: gguf's Q8_0 silently gives 0 for a block of 1e-6, and an infinite scale for 1e7."""
    assert np.float16(1e-6 / 127) == 0
    with pytest.raises(ValueError, match="scale.*float16"):
        quantize_groups([x, x / 2], 2, 8, np.float16)
    assert quantize_groups([x, x / 2], 2, 8).dequantize()[0] == pytest.approx(x, rel=1e-6)


def test_a_float32_scale_times_a_code_is_exact_in_float64():
    """7 · 0.04285714402794838 is 0.30000001192092896 when the product is rounded to float32."""
    groups = quantize_groups([0.3], 1)
    assert groups.scales.tolist() == [0.04285714402794838]
    assert groups.dequantize().tolist() == [0.30000000819563866]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_dequantize_returns_the_shape_and_dtype_of_the_input(dtype):
    back = quantize_groups(np.array([[1, 2, 3], [0, 0, 0]], dtype), 2).dequantize()
    assert back.dtype == dtype and back.shape == (2, 3)
    assert (back[1] == 0).all()
    assert quantize_groups([[1, 2, 3]], 2).dequantize().dtype == np.float64


@laws
@given(st.lists(st.tuples(*[numbers] * 7), min_size=1, max_size=3), st.integers(1, 9), bit_widths)
def test_each_group_stands_alone(rows, group_size, bits):
    x = np.array(rows)
    x[np.abs(x) < 1e-30] = 0  # a scale in float32
    whole = quantize_groups(x, group_size, bits)
    for r, row in enumerate(x):
        for g, start in enumerate(range(0, 7, group_size)):
            part = row[start : start + group_size]
            scale = np.float32(np.abs(part).max() / (2 ** (bits - 1) - 1) if part.any() else 1)
            assert whole.scales[r, g] == scale
            assert (whole.codes[r, start : start + group_size] == quantize(part, scale, bits)).all()
            error = np.abs(part - whole.dequantize()[r, start : start + group_size])
            assert (error <= float(scale) / 2 * (1 + 1e-6)).all()


@pytest.mark.parametrize(("args", "match"), [
    (([1.0], 0), "group_size"), (([1.0], 2.0), "group_size"), (([1.0], True), "group_size"),
    ((1.0, 1), "axis"), (([1.0], 1, 4, np.int8), "scale_dtype must be a float type"),
    (([1.0], 1, 4, None), "scale_dtype must be a float type"),
    (([1.0], 1, 4, "no type"), "scale_dtype must be a float type")])
def test_groups_that_cannot_be_formed_are_refused(args, match):
    with pytest.raises(ValueError, match=match):
        quantize_groups(*args)


# --- the split of the error

def test_the_whole_error_of_a_clipped_value_is_clipping_error():
    split = error_split([-1.2, -0.2, 0.7, 1.8, 8.0], 0.5)
    assert split.clipped.tolist() == [False, False, False, False, True]
    assert split.sum_sq_round == pytest.approx(4 * 0.2**2, rel=1e-12)
    assert split.sum_sq_clip == 4.5**2
    assert [type(value) for value in (split.sum_sq_round, split.sum_sq_clip)] == [float, float]


@pytest.mark.parametrize(("x", "clipped"), [
    (7.0, False), (7.49, False), (7.5, True), (7.51, True), (-7.49, False), (-7.5, True), (1e308, True)])
def test_clipped_is_judged_by_the_unclipped_code(x, clipped):
    """7.5 rounds half to even to 8, a code outside; 7.49 is above 7 and is not clipped."""
    assert error_split(x, 1.0).clipped.tolist() is clipped


@laws
@given(vectors, scales, bit_widths)
def test_the_two_sums_add_up_to_the_total_without_a_cross_term(x, scale, bits):
    split = error_split(x, scale, bits)
    total = np.sum((x - dequantize(quantize(x, scale, bits), scale)) ** 2)
    assert split.sum_sq_round + split.sum_sq_clip == pytest.approx(total, rel=1e-12, abs=1e-300)
    assert split.clipped.dtype == bool and split.clipped.shape == x.shape


# --- a model's parameters

SHAPE = GPTConfig(vocab_size=11, max_seq_len=16, n_layer=2, n_head=2, n_kv_head=1, head_dim=4, n_embd=6,
                  n_inner=5, tie_embeddings=False)
# Matrices of a layer: qkv 6 x 16, attn_out 8 x 6, gate_up 6 x 10, mlp_out 5 x 6.  Norms of 6, embed 11 x 6.
NORMS, EMBEDDINGS = (2 * 12 + 6) * 8, (11 * 6 + 6 * 11) * 8


@pytest.mark.parametrize(("bits", "per", "embeddings", "nbytes"), [
    (4, "tensor", False, 2 * ((48 + 24 + 30 + 15) + 4 * 4) + NORMS + EMBEDDINGS),
    (8, "tensor", False, 2 * ((96 + 48 + 60 + 30) + 4 * 4) + NORMS + EMBEDDINGS),
    (3, "tensor", False, 2 * ((36 + 18 + 23 + 12) + 4 * 4) + NORMS + EMBEDDINGS),
    (4, "row", False, 2 * (6 * (8 + 4) + 8 * (3 + 4) + 6 * (5 + 4) + 5 * (3 + 4)) + NORMS + EMBEDDINGS),
    (3, "row", False, 2 * (6 * (6 + 4) + 8 * (3 + 4) + 6 * (4 + 4) + 5 * (3 + 4)) + NORMS + EMBEDDINGS),
    (4, 4, False, 2 * (6 * 4 * 6 + 8 * (6 + 5) + 6 * (6 + 6 + 5) + 5 * (6 + 5)) + NORMS + EMBEDDINGS),
    (4, "tensor", True, 2 * ((48 + 24 + 30 + 15) + 4 * 4) + NORMS + 33 + 33 + 2 * 4),
    (8, "row", True, 2 * (6 * 20 + 8 * 10 + 6 * 14 + 5 * 10) + NORMS + 11 * 10 + 6 * 15),
])
def test_bytes_of_a_model_count_codes_scales_and_what_stays(bits, per, embeddings, nbytes):
    params = init_params(SHAPE, np.random.default_rng(0))
    _, got = quantize_params(params, bits, per, include_embeddings=embeddings)
    assert got == nbytes and type(got) is int


@pytest.mark.parametrize(("per", "rows"), [
    ("tensor", [[0, 14], [98, -70]]), ("row", [[1, 12], [98, -70]]), (1, [[1, 12], [98, -67]])])
def test_what_shares_a_scale(per, rows):
    """Four bits: one scale 14 for [[1, 12], [98, -67]], a scale 12/7 and 14 a row, or each value its own."""
    weights = np.array([[1.0, 12.0], [98.0, -67.0]])
    expected = {"tensor": rows, "row": [[12 / 7, 12], rows[1]], 1: rows}[per]
    back, _ = quantize_params({"w": weights}, 4, per)
    np.testing.assert_allclose(back["w"], expected, rtol=1e-7)


def test_only_matrices_change_dtypes_stay_and_the_input_is_not_touched():
    params = init_params(SHAPE, np.random.default_rng(0))
    params["layers"][1]["qkv"] = params["layers"][1]["qkv"].astype(np.float32)
    params["positions"] = np.arange(6).reshape(2, 3)
    before = [params["layers"][1]["qkv"].copy(), params["embed"].copy()]
    out, _ = quantize_params(params, 4)
    assert out.keys() == params.keys() and isinstance(out["layers"], list)
    for name in ("embed", "head", "norm", "positions"):
        assert (out[name] == params[name]).all() and not np.shares_memory(out[name], params[name])
    layer = out["layers"][1]
    assert layer.keys() == params["layers"][1].keys()
    assert layer["qkv"].dtype == np.float32 and out["layers"][0]["qkv"].dtype == np.float64
    assert (layer["attn_norm"] == 1).all()
    assert len(np.unique(np.abs(layer["qkv"]))) <= 8 and len(np.unique(np.abs(layer["mlp_out"]))) <= 8
    assert (params["layers"][1]["qkv"] == before[0]).all() and (params["embed"] == before[1]).all()
    changed, _ = quantize_params(params, 4, include_embeddings=True)
    assert (changed["embed"] != params["embed"]).any() and (changed["head"] != params["head"]).any()


@pytest.mark.parametrize(("params", "per", "match"), [
    ({"w": np.ones((2, 2))}, "column", "per"), ({"w": np.ones((2, 2))}, 0, "per"),
    ({"w": np.ones((2, 2))}, 2.0, "per"), ({"w": np.ones((2, 2))}, None, "per"),
    ({"layers": [{"w": 1.0}]}, "row", r"params\['layers', 0, 'w'\] must be an array"),
    ({"w": np.array([[1, NAN]])}, "row", r"params\['w'\]: x must be finite"),
    ({"w": np.zeros((2, 0))}, "tensor", r"params\['w'\]: x must hold"),
])
def test_parameters_that_cannot_be_quantized_are_named(params, per, match):
    with pytest.raises(ValueError, match=match):
        quantize_params(params, 4, per)


def test_a_small_error_can_change_a_discrete_choice():
    """30.6: Paris, Lyon with logits 0.6, 0.7 become a tie at s = 0.5, and the first of equals wins."""
    logits = np.array([0.6, 0.7])
    back = dequantize(quantize(logits, 0.5), 0.5)
    assert back.tolist() == [0.5, 0.5]
    assert (logits.argmax(), back.argmax()) == (1, 0)
