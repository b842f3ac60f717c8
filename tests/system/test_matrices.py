"""Operator matrices and state spaces, from SymPy, NumPy and lists, give the same systems as text."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import sympy

import lodekit as lk
from lodekit.errors import EquationError

s, a, b = sympy.symbols("s a b")


def test_every_example_is_found_again_from_its_operator_matrix() -> None:
    for example in lk.catalog.examples():
        system = example.system
        if not system.is_homogeneous:
            continue
        again = lk.System.from_operator_matrix(system.operator_matrix, system.channels, system.parameters)
        assert again.operator == system.operator
        assert again.parameters == system.parameters


def test_the_operator_symbol_is_found_or_named() -> None:
    matrix = sympy.Matrix([[s**2 + a * s, -1]])
    system = lk.System.from_operator_matrix(matrix, ["x", "u"], ["a"])
    assert system.equations == ("x'' + a*x' - u = 0",)
    named = lk.System.from_operator_matrix(matrix, ["x", "u"], ["s"], symbol=a)
    assert named.equations == ("s*x' + s^2*x - u = 0",)
    with pytest.raises(EquationError, match="one symbol for d/dt"):
        lk.System.from_operator_matrix(matrix, ["x", "u"])


def test_constants_and_rational_coefficients_of_sympy_are_exact() -> None:
    matrix = sympy.Matrix([[sympy.sqrt(2) * s + sympy.pi / a, sympy.E, sympy.cos(1) / (a + 1), sympy.Rational(1, 3)]])
    system = lk.System.from_operator_matrix(matrix, ["x", "y", "z", "w"], ["a"])
    difference = system.operator_matrix.subs(system.d, s) - matrix
    assert sympy.simplify(difference).is_zero_matrix


@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        (sympy.Matrix([[1 / s]]), "polynomials in s"),
        (sympy.Matrix([[sympy.exp(s)]]), "polynomials in s"),
        (sympy.Matrix([[sympy.sqrt(s)]]), "polynomials in s"),
        (sympy.Matrix([[s**101]]), "at most 100"),
        (sympy.Matrix([[s * sympy.I]]), "cannot read I"),
        (sympy.Matrix([[s * sympy.oo]]), "cannot read|finite|polynomials"),
        (sympy.Matrix([[s, 1]]), "one channel for each"),
        (sympy.Matrix(0, 1, []), "at least one row"),
        ("nonsense", "as a matrix"),
        ([["print(1)"]], "value at one time"),
        (np.zeros((1, 1, 1)), "as a matrix"),
        (sympy.MatrixSymbol("M", 2, 2), "as a matrix"),
        ([[sympy.Eq(s, 1)]], "cannot read"),
        ([[None]], "expected a finite real number"),
        (sympy.Matrix([[(s + a) ** 3000]]), "exponent|one symbol"),
        (sympy.Matrix([[s ** (10**9)]]), "exponent"),
    ],
)
def test_bad_operator_matrices_are_refused(matrix: object, match: str) -> None:
    with pytest.raises(EquationError, match=match):
        lk.System.from_operator_matrix(matrix, ["x"])


def test_state_space_from_numpy_reads_floats_by_their_shortest_form_and_says_so() -> None:
    system = lk.System.from_state_space(np.array([[0.1, 1], [-2.5, 0]]), np.array([[0.0], [1.0]]))
    assert system.equations == ("x1' = 0.1*x1 + x2", "x2' = -2.5*x1 + u1")
    assert system.operator_matrix[0, 0] == system.d - sympy.Rational(1, 10)
    assert any("shortest decimal" in note for note in system.notes)
    assert "shortest decimal" in str(system)


def test_a_data_frame_is_the_matrix_that_it_shows() -> None:
    pandas = pytest.importorskip("pandas")
    entries = [[0, 1], [-2, -3]]
    frame = pandas.DataFrame(entries, columns=["position", "speed"], index=["a", "b"])
    assert lk.System.from_state_space(frame) == lk.System.from_state_space(entries)


def test_float32_and_other_number_types_are_read_as_meant() -> None:
    rows = [[np.float32(0.1), Fraction(1, 3)], [Decimal("0.25"), np.int64(4)]]
    system = lk.System.from_state_space(rows)
    expected = [sympy.Rational(1, 10), sympy.Rational(1, 3), sympy.Rational(1, 4), 4]
    got = -(system.operator_matrix - system.d * sympy.eye(2))
    assert list(got) == expected


def test_a_float_beside_exact_numbers_does_not_touch_them() -> None:
    matrix = sympy.Matrix([[s**2 + sympy.Rational(1, 3) * s + 0.5, 10**20 + 1]])
    system = lk.System.from_operator_matrix(matrix, ["x", "u"])
    d = system.d
    assert list(system.operator_matrix) == [d**2 + d / 3 + sympy.Rational(1, 2), 10**20 + 1]


def test_names_of_states_are_normalised_and_may_come_as_one_text() -> None:
    system = lk.System.from_state_space([[1, 2], [3, 4]], states="\u00b5, v")
    assert system.channels == ("\u03bc", "v")


def test_symbols_with_assumptions_are_known_by_their_names() -> None:
    d = sympy.Symbol("d", positive=True)
    assert lk.System.from_operator_matrix([[d + 1, -1]], ["x", "u"], symbol="d").equations == ("x' = -x + u",)


def test_integers_make_no_note() -> None:
    assert lk.System.from_state_space(np.array([[0, 1], [-1, 0]])).notes == ()


def test_outputs_are_channels_with_equations_of_their_own() -> None:
    system = lk.System.from_state_space(
        sympy.Matrix([[-a, a], [b, -b]]),
        sympy.Matrix([[1], [0]]),
        [[1, 0]],
        states=["hot", "cold"],
        inputs=["heat"],
        outputs=["reading"],
        parameters=["a", "b"],
    )
    assert system.channels == ("hot", "cold", "heat", "reading")
    assert system.equations[2] == "hot - reading = 0" or system.equations[2] == "-hot + reading = 0"
    assert system.free_functions == 1
    feedthrough = lk.System.from_state_space([[-1]], [["a/2"]], D=[[3]], parameters=["a"])
    assert feedthrough.channels == ("x1", "u1", "y1")
    assert "a/2" in feedthrough.equations[0] or "0.5*a" in feedthrough.equations[0]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (([[1, 2]],), "shape 1 x 1"),
        (([[1, 2], [3]],), "equal length"),
        ((np.array([[np.nan]]),), "finite"),
        ((np.array([[1j]]),), "finite real"),
        (([[True]],), "expected a number"),
        (([[object()]],), "expected a finite real number"),
        (([],), "at least one state"),
        ((3,), "as a matrix"),
        ((np.array([1.0, 2.0]),), "as a matrix"),
        (([[1]], [[1], [2]]), "expected B of shape 1 x any"),
        (([[1]], [[1]], [[1, 2]]), "expected C"),
        (([[1]], [[1]], [[1]], [[1, 2]]), "expected D"),
        (([["x1"]],), "not a parameter"),
        (([[10**5000]],), "digits"),
        (([["q"]],), "mentions 'q'"),
    ],
)
def test_bad_state_spaces_are_refused(arguments: tuple[object, ...], match: str) -> None:
    with pytest.raises(EquationError, match=match):
        lk.System.from_state_space(*arguments)


def test_wrong_numbers_of_names_are_refused() -> None:
    with pytest.raises(EquationError, match="expected 1 state name, got 2"):
        lk.System.from_state_space([[1]], states=["x", "y"])
