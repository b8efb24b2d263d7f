"""mgpt's quantizer beside onnx, ONNX Runtime, torch and gguf: equal where the rule is the same, and where it
is not, their answer and ours, both by value."""

import gguf
import ml_dtypes
import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch.ao.quantization import MinMaxObserver

from mgpt.memory import KVShape
from mgpt.quantize import (affine_params, dequantize, dequantize_affine, error_split, pack_int4, quantize,
                           quantize_affine, quantize_groups, symmetric_scale, unpack_int4)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

INT4, INT8, UINT4, UINT8 = TensorProto.INT4, TensorProto.INT8, TensorProto.UINT4, TensorProto.UINT8
RUNS = ("reference", "runtime")


def run_onnx(how, nodes, inputs, outputs):
    """Outputs of a small ONNX graph, by onnx's reference evaluator or by ONNX Runtime.

    inputs: name -> array; outputs: name -> type.
    """
    info = helper.make_tensor_value_info
    given = [info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in inputs.items()]
    asked = [info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph(nodes, "g", given, asked)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    if how == "reference":
        return ReferenceEvaluator(model).run(None, inputs)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers).run(None, inputs)


def onnx_quantize(how, x, scale, zero_point=0, kind=INT8):
    """QuantizeLinear's codes as int32, one scale for all of x."""
    zero = helper.make_node("Constant", [], ["z"], value=helper.make_tensor("z", kind, [], [zero_point]))
    nodes = [zero, helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
             helper.make_node("Cast", ["q"], ["y"], to=TensorProto.INT32)]
    inputs = {"x": np.asarray(x, np.float32), "s": np.array(scale, np.float32)}
    return run_onnx(how, nodes, inputs, {"y": TensorProto.INT32})[0]


def ordinary(seed, n=4096):
    """float32 values with many ties among them (multiples of 1/8), none far outside the codes' range."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(0, 40, n), rng.integers(-900, 900, n) / 8]).astype(np.float32)


# --- the same rule ---


@pytest.mark.parametrize("how", RUNS)
@pytest.mark.parametrize("scale", [1.0, 0.5, 0.25, 0.3, 1 / 7, 3.7])
def test_symmetric_codes_are_quantize_linears_within_the_symmetric_range(how, scale):
    x = ordinary(1)
    assert np.array_equal(quantize(x, scale, 8), np.clip(onnx_quantize(how, x, scale, kind=INT8), -127, 127))
    assert np.array_equal(quantize(x, scale, 4), np.clip(onnx_quantize(how, x, scale, kind=INT4), -7, 7))


@pytest.mark.parametrize("how", RUNS)
@pytest.mark.parametrize("kind, bits, signed, zero", [
    (UINT8, 8, False, 0), (UINT8, 8, False, 131), (UINT8, 8, False, 255), (INT8, 8, True, 0),
    (INT8, 8, True, -128), (INT8, 8, True, 3), (UINT4, 4, False, 9), (INT4, 4, True, -5),
])
@pytest.mark.parametrize("scale", [0.5, 0.3, 3.7])
def test_affine_codes_are_quantize_linears(how, kind, bits, signed, zero, scale):
    x = ordinary(2)
    codes = quantize_affine(x, scale, zero, bits, signed)
    assert np.array_equal(codes, onnx_quantize(how, x, scale, zero, kind))


@pytest.mark.parametrize("how", RUNS)
def test_the_affine_parameters_are_dynamic_quantize_linears(how):
    rng = np.random.default_rng(3)
    for i in range(40):
        x = rng.normal(rng.normal(0, 3), 1 + i / 8, 50).astype(np.float32)
        nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])]
        kinds = {"y": UINT8, "s": TensorProto.FLOAT, "z": UINT8}
        codes, s, z = run_onnx(how, nodes, {"x": x}, kinds)
        scale, zero_point = affine_params(x.min(), x.max())
        assert np.isclose(scale, s, rtol=3e-7, atol=0) and zero_point == z
        assert np.array_equal(quantize_affine(x, float(s), zero_point), codes)


@pytest.mark.parametrize("how", RUNS)
def test_what_codes_stand_for_is_dequantize_linears(how):
    codes, scale = np.arange(256, dtype=np.uint8), np.array(0.3, np.float32)
    nodes = [helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    inputs = {"q": codes, "s": scale, "z": np.array(131, np.uint8)}
    assert np.array_equal(dequantize_affine(codes, scale, 131),
                          run_onnx(how, nodes, inputs, {"y": TensorProto.FLOAT})[0])


@pytest.mark.parametrize("n", [1, 2, 5, 8, 33])
def test_nibbles_are_packed_as_onnx_packs_int4(n):
    codes = np.random.default_rng(n).integers(-8, 8, n)
    raw = numpy_helper.from_array(codes.astype(ml_dtypes.int4)).raw_data
    assert pack_int4(codes).tobytes() == raw
    tensor = TensorProto(dims=[n], data_type=INT4, raw_data=raw)
    read = numpy_helper.to_array(tensor).astype(np.int8)
    assert np.array_equal(unpack_int4(np.frombuffer(raw, np.uint8), n), read)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("scale", [2.0, 0.5, 0.125])
def test_torch_fake_quantize_is_the_same_where_the_reciprocal_is_exact(bits, scale):
    x, qmax = ordinary(4), 2 ** (bits - 1) - 1
    theirs = torch.fake_quantize_per_tensor_affine(torch.tensor(x), scale, 0, -qmax, qmax).numpy()
    assert np.array_equal(dequantize(quantize(x, scale, bits), np.float32(scale)), theirs)
    affine = torch.fake_quantize_per_tensor_affine(torch.tensor(x), scale, 3, 0, 2**bits - 1)
    codes = quantize_affine(x, scale, 3, bits)
    assert np.array_equal(dequantize_affine(codes, np.float32(scale), 3), affine.numpy())


def test_torchs_observer_chooses_the_same_affine_parameters():
    rng = np.random.default_rng(5)
    for i in range(40):
        x = torch.tensor(rng.normal(rng.normal(0, 3), 1 + i / 8, 50))
        observer = MinMaxObserver(dtype=torch.quint8, qscheme=torch.per_tensor_affine)
        observer(x.float())
        s, z = observer.calculate_qparams()
        scale, zero_point = affine_params(float(x.min()), float(x.max()))
        assert np.isclose(scale, float(s), rtol=3e-7, atol=0) and zero_point == int(z)


def test_gguf_q8_0_is_the_same_where_its_scale_is_exact_and_nothing_is_a_tie():
    """Then neither its half-away rounding nor its reciprocal of the unrounded scale can show."""
    codes = np.random.default_rng(6).integers(-127, 128, (5, 32))
    codes[:, 0] = 127
    x = (codes * 0.25).astype(np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    raw = gguf.quants.quantize(x, kind)
    ours = quantize_groups(x, 32, bits=8, scale_dtype=np.float16)
    assert np.array_equal(raw[:, :2].copy().view(np.float16), ours.scales)
    assert np.array_equal(raw[:, 2:].view(np.int8), ours.codes) and ours.nbytes == raw.nbytes == 5 * 34
    assert np.array_equal(gguf.quants.dequantize(raw, kind), ours.dequantize())


@pytest.mark.parametrize("name", ["q8_0", "q5_1", "q5_0", "q4_1", "q4_0"])
def test_the_bytes_of_a_block_are_ggufs(name):
    shape = KVShape.from_hf({"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 32})
    values, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]]
    assert values == 32 and shape.bytes_per_token(dtype=name) == 2 * nbytes


# --- other rules, named ---


def test_onnx_uses_the_code_that_symmetric_codes_leave_out():
    x = [-8.0, 8.0, -128.0, 128.0]
    for how in RUNS:
        assert onnx_quantize(how, x, 1.0, kind=INT4).tolist() == [-8, 7, -8, 7]
        assert onnx_quantize(how, x, 1.0, kind=INT8).tolist() == [-8, 8, -128, 127]
    assert quantize(x, 1.0, 4).tolist() == [-7, 7, -7, 7]
    assert quantize(x, 1.0, 8).tolist() == [-8, 8, -127, 127]


def test_onnxs_reference_casts_to_int32_before_it_clips_and_the_runtime_saturates():
    with np.errstate(invalid="ignore"):
        assert onnx_quantize("reference", [1e30, -1e30], 1.0).tolist() == [-128, -128]
        assert onnx_quantize("reference", [1e30, -1e30], 1.0, kind=INT4).tolist() == [-8, -8]
    assert onnx_quantize("runtime", [1e30, -1e30], 1.0).tolist() == [127, -128]
    assert quantize([1e30, -1e30], 1.0, 8).tolist() == [127, -127] and quantize([1e30], 1.0).tolist() == [7]


def test_what_nan_becomes_differs_from_tool_to_tool_so_it_is_refused():
    x = torch.tensor([float("nan")])
    assert onnx_quantize("runtime", [np.nan], 1.0).tolist() == [-128]
    assert torch.fake_quantize_per_tensor_affine(x, 1.0, 0, -7, 7).tolist() == [-7.0]
    assert torch.quantize_per_tensor(x, 1.0, 0, torch.qint8).int_repr().tolist() == [127]
    with pytest.raises(ValueError, match="finite"):
        quantize([np.nan], 1.0)


def test_torch_quantize_per_tensor_adds_the_zero_point_before_it_rounds():
    """pytorch/pytorch#37188."""
    x = [0.5, 1.5, 2.5, -0.5]
    tensor = torch.tensor(x)
    assert torch.quantize_per_tensor(tensor, 1.0, 1, torch.quint8).int_repr().tolist() == [2, 2, 4, 0]
    assert torch.fake_quantize_per_tensor_affine(tensor, 1.0, 1, 0, 255).tolist() == [0.0, 2.0, 2.0, 0.0]
    assert quantize_affine(x, 1.0, 1).tolist() == [1, 3, 3, 1]
    for how in RUNS:
        assert onnx_quantize(how, x, 1.0, 1, UINT8).tolist() == [1, 3, 3, 1]


def test_torch_multiplies_by_a_rounded_reciprocal_and_so_misses_true_division_near_ties():
    scale = np.float32(0.3)
    x = ((np.arange(-127, 127) + np.float32(0.5)) * scale).astype(np.float32)  # the ties, as float32 has them
    ours = quantize(x, scale, 8).astype(np.float32) * scale
    theirs = torch.fake_quantize_per_tensor_affine(torch.tensor(x), float(scale), 0, -127, 127).numpy()
    wrong = ours != theirs
    reciprocal = np.clip(np.rint(x * (np.float32(1) / scale)), -127, 127) * scale
    assert 0 < wrong.sum() < len(x) and np.array_equal(theirs, reciprocal.astype(np.float32))
    assert np.array_equal(quantize(x, scale, 8), np.clip(onnx_quantize("runtime", x, scale), -127, 127))


def test_torchs_reciprocal_of_a_subnormal_scale_is_infinite():
    tiny = np.array([1e-40, 3e-40, -3e-40], np.float32)
    theirs = torch.quantize_per_tensor(torch.tensor(tiny), 1e-40, 0, torch.qint8).int_repr().tolist()
    assert theirs == [127, 127, -128]
    assert quantize(tiny, np.float32(1e-40)).tolist() == [1, 3, -3]


def test_torchs_symmetric_observer_divides_by_127_and_a_half():
    observer = MinMaxObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
    observer(torch.tensor([-127.0, 127.0]))
    assert float(observer.calculate_qparams()[0]) == 0.9960784316062927
    assert symmetric_scale([-127.0, 127.0], 8) == 1.0


def q4_0(values):
    """scale, codes and dequantized values of one Q4_0 block of 32; the rest of it is 0."""
    block = np.zeros((1, 32), np.float32)
    block[0, : len(values)] = values
    raw = gguf.quants.quantize(block, gguf.GGMLQuantizationType.Q4_0)
    codes = np.concatenate([raw[0, 2:] & 15, raw[0, 2:] >> 4]).astype(int) - 8
    read = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q4_0)[0]
    n, scale = len(values), float(raw[0, :2].copy().view(np.float16)[0])
    return scale, codes[:n].tolist(), read[:n].tolist()


def test_gguf_q4_0_maps_the_signed_extreme_to_minus_8_and_clips_the_other():
    assert q4_0([7.0, -7.0]) == (-0.875, [-8, 7], [7.0, -6.125])
    ours = quantize_groups([7.0, -7.0], 32)
    assert ours.codes.tolist() == [7, -7] and ours.dequantize().tolist() == [7.0, -7.0]
    assert q4_0([-7.0, 7.0, 3.5, 0.0])[:2] == (0.875, [-8, 7, 4, 0])  # IntelLabs/distiller#463
    assert quantize([-7.0, 7.0, 3.5, 0.0], 1.0).tolist() == [-7, 7, 4, 0]


def test_gguf_q4_0_pairs_element_i_with_i_plus_16_and_adds_8():
    x = np.zeros((1, 32), np.float32)
    x[0, 0], x[0, 1], x[0, 16] = -8.0, 3.0, 5.0
    raw = gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q4_0)[0, 2:]
    assert raw[:2].tolist() == [0xD0, 0x8B]  # 5 + 8 high, -8 + 8 low; 0 + 8 high, 3 + 8 low
    assert pack_int4(quantize(x[0], 1.0))[:1].tolist() == [0x39]  # -7 low, its neighbour 3 high


def test_gguf_q8_0_rounds_half_away_from_zero():
    x = np.zeros((1, 32), np.float32)
    x[0, :6] = [127.0, 0.5, -0.5, 2.5, -2.5, 1.5]
    raw = gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0)
    assert raw[0, 2:8].view(np.int8).tolist() == [127, 1, -1, 3, -3, 2]
    assert quantize_groups(x, 32, 8, np.float16).codes[0, :6].tolist() == [127, 0, 0, 2, -2, 2]


def test_gguf_q8_0_lets_a_small_scale_become_0_where_mgpt_refuses():
    x = np.full((1, 32), 1e-6, np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    assert gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind).max() == 0.0
    with pytest.raises(ValueError, match="scale"):
        quantize_groups(x, 32, 8, np.float16)


def test_the_value_test_of_clipping_calls_an_absmax_element_clipped():
    """float32: max|x| / 7 · 7 may fall below max|x|; the code is 7 all the same."""
    peaks = np.abs(np.random.default_rng(7).normal(size=2000)).astype(np.float32)
    scales = peaks / np.float32(7)
    by_value = peaks > np.float32(7) * scales
    assert by_value.any()
    for peak, scale in zip(peaks[by_value], scales[by_value]):
        assert not error_split(np.array([peak]), scale).clipped.any() and quantize(peak, scale) == 7
