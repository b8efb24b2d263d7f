"""The refusals that every module shares: one line that names the argument, what was given and what is allowed."""

import math
from fractions import Fraction

import numpy as np
import pytest

from mgpt.validate import array, finite, float_type, integer, one_of


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.int64(3)])
def test_whole_numbers_of_any_kind_become_python_ints(value):
    assert integer("n", value) == 3 and type(integer("n", value)) is int


@pytest.mark.parametrize("value",
    [3.0, np.float64(3), "3", None, True, np.True_, math.nan, [3], np.array([3]), 3 + 0j])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(ValueError, match="n must be an integer >= 0, got"):
        integer("n", value)


def test_the_bound_of_an_integer_is_inclusive_and_named():
    assert integer("n", 2, at_least=2) == 2 and integer("n", 0) == 0 and integer("n", 10**30) == 10**30
    for value, bound in ((1, 2), (-1, 0)):
        with pytest.raises(ValueError, match=f"n must be an integer >= {bound}, got {value}"):
            integer("n", value, at_least=bound)


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int16(2), Fraction(2)])
def test_real_numbers_of_any_kind_become_python_floats(value):
    assert finite("x", value) == 2.0 and type(finite("x", value)) is float


@pytest.mark.parametrize("value",
    [math.nan, math.inf, -math.inf, np.float32(np.inf), 10**400, "1", None, True, 1j, [1.0]])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(ValueError, match="x must be a finite number"):
        finite("x", value)


def test_at_least_includes_its_bound_and_above_does_not():
    assert finite("x", 0, at_least=0) == 0 and finite("x", 1e-300, above=0) > 0 and finite("x", -5) == -5
    with pytest.raises(ValueError, match="x must be a finite number > 0, got 0"):
        finite("x", 0, above=0)
    with pytest.raises(ValueError, match="x must be a finite number >= 0, got -0.1"):
        finite("x", -0.1, at_least=0)


def test_a_choice_outside_the_list_is_refused_with_the_list():
    assert one_of("policy", "static", ("static", "continuous")) == "static"
    for value in ("Static", "", None, 1, ["static"]):
        with pytest.raises(ValueError, match="policy must be one of static, continuous, got"):
            one_of("policy", value, ("static", "continuous"))


@pytest.mark.parametrize("value", ["int8", int, np.int64, "no type", None, 5, complex, [1]])
def test_what_is_no_float_type_is_refused(value):
    with pytest.raises(ValueError, match="dtype must be a float type of NumPy, got "):
        float_type("dtype", value)


def test_a_float_type_becomes_a_dtype():
    assert float_type("dtype", "float16") == float_type("dtype", np.float16) == np.dtype("f2")


@pytest.mark.parametrize("value", [[[1], [1, 2]], "12", ["1"], None, [True], iter([1])])
def test_what_is_no_array_of_numbers_is_refused_by_name(value):
    with pytest.raises(ValueError, match="^rows must be real numbers"):
        array("rows", value)


def test_the_shape_and_dtype_of_an_array_are_kept():
    kept = array("rows", np.zeros((2, 0), np.float16))
    assert (kept.shape, kept.dtype) == ((2, 0), np.float16)
