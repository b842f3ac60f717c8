"""The worked cases of the paper: the same diagonal forms, and its free column up to a constant."""

import pytest
import sympy

import lodekit as lk

d = sympy.Symbol("d")
g = sympy.Rational(981, 100)
a, b = sympy.symbols("a b")

CASES = {
    "bipendulum, lengths 1 and 2": (lk.catalog.bipendulum(), [1, 1]),
    "bipendulum, equal lengths": (lk.catalog.bipendulum(1, 1), [1, d**2 + g]),
    "heating": (lk.catalog.heating(), [1, 1]),
    # The paper has -d, which differs by a unit; ours is monic.
    "three tank": (lk.catalog.three_tank(), [1, 1, d]),
}
OPERATORS = {
    "bipendulum, lengths 1 and 2": [[d**2 + g, 0, -1], [0, d**2 + g / 2, -sympy.Rational(1, 2)]],
    "bipendulum, equal lengths": [[d**2 + g, 0, -1], [0, d**2 + g, -1]],
    "heating": [[d + a, -a, -1], [-b, d + b, 0]],
    "three tank": [[-d, 0, 0, 1, 0], [0, -d, 0, 1, 1], [0, 0, -d, 0, 1]],
}
FREE_COLUMNS = {
    "bipendulum, lengths 1 and 2": [(2 * d**2 + g) / 2, (d**2 + g) / 2, (d**2 + g / 2) * (d**2 + g)],
    "bipendulum, equal lengths": [1, 1, d**2 + g],
    "heating": [d + b, b, d**2 + (a + b) * d],
}


@pytest.mark.parametrize("case", CASES)
def test_operator_matrix_is_the_papers(case: str) -> None:
    system = CASES[case][0].system
    assert sympy.expand(system.operator_matrix - sympy.Matrix(OPERATORS[case])).is_zero_matrix


@pytest.mark.parametrize("case", CASES)
def test_diagonal_form_is_the_papers(case: str) -> None:
    example, expected = CASES[case]
    D = example.system.smith_form.D
    assert [sympy.expand(D[i, i] - value) for i, value in enumerate(expected)] == [0] * len(expected)


@pytest.mark.parametrize("case", FREE_COLUMNS)
def test_free_column_is_the_papers_up_to_a_constant(case: str) -> None:
    column = CASES[case][0].system.parametrization.free_columns
    ratio = sympy.cancel(column[0] / FREE_COLUMNS[case][0])
    assert d not in ratio.free_symbols
    assert ratio != 0
    for ours, theirs in zip(column, FREE_COLUMNS[case], strict=True):
        assert sympy.expand(ours - ratio * theirs) == 0


@pytest.mark.parametrize("case", CASES)
def test_smith_identity_holds_in_sympys_arithmetic(case: str) -> None:
    form = CASES[case][0].system.smith_form
    A = CASES[case][0].system.operator_matrix
    assert sympy.simplify(form.U * A * form.V - form.D).is_zero_matrix
    for matrix in (form.U, form.V):
        determinant = sympy.cancel(sympy.Matrix(matrix).det())
        assert determinant != 0
        assert d not in determinant.free_symbols
    assert len(form.verify()) == 3


def test_three_tank_names_its_conserved_balance() -> None:
    (mode,) = lk.catalog.three_tank().system.modes
    assert (mode.observable, mode.roots, mode.multiplicity) == ("f1 - f2 + f3", (0j,), 1)


def test_equal_lengths_leave_the_difference_swinging_by_itself() -> None:
    system = lk.catalog.bipendulum(1, 1).system
    (mode,) = system.modes
    assert mode.observable == "f1 - f2"
    assert [abs(complex(root)) for root in mode.roots] == pytest.approx([9.81**0.5] * 2, rel=1e-15)
