"""The checkers are real: every kind of damage to a form or a parametrization is noticed and named."""

from dataclasses import replace
from typing import Any

import pytest

import lodekit as lk
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.parametrization import parametrize
from lodekit.errors import VerificationError

SYSTEM = lk.catalog.three_tank().system
RING = SYSTEM.operator.ring


def damage(matrix: OperatorMatrix, i: int, j: int, *coefficients: int) -> OperatorMatrix:
    rows = [list(row) for row in matrix.rows]
    rows[i][j] = [RING.integer(value) for value in coefficients]
    return OperatorMatrix(matrix.ring, rows, matrix.denominators, matrix.width, matrix.variable)


@pytest.mark.parametrize("field", ["left", "right", "diagonal"])
def test_a_changed_entry_breaks_the_smith_identity(field: str) -> None:
    form = SYSTEM.smith_form
    changed: dict[str, Any] = {field: damage(getattr(form, field), 0, 0, 5, 1)}
    broken = replace(form, **changed)
    with pytest.raises(VerificationError, match="U A V = D"):
        broken.verify()


def test_a_transformation_that_is_not_unimodular_is_refused() -> None:
    system = lk.System("x' = 0; y' = 0")
    form = system.smith_form
    # diag(1, d) A diag(1, 1) = diag(d, d^2) is an identity with a diagonal in order, but its left factor has the
    # determinant d: its inverse, which the check makes from the rest, is no matrix of polynomials.
    left = damage(form.left, 1, 1, 0, 1)
    diagonal = damage(form.diagonal, 1, 1, 0, 0, 1)
    broken = replace(form, left=left, diagonal=diagonal)
    with pytest.raises(VerificationError, match="divisible by its invariant factor"):
        broken.verify()


def test_a_wrong_order_of_the_diagonal_is_refused() -> None:
    system = lk.System("x' = 0; y = 0")
    form = system.smith_form
    identity = OperatorMatrix.identity(RING, 2)
    # A is diagonal already, with d before 1.
    broken = replace(form, left=identity, right=identity, diagonal=system.operator)
    with pytest.raises(VerificationError, match="divides the next"):
        broken.verify()


def test_a_missing_mode_is_noticed() -> None:
    broken = replace(SYSTEM.parametrization, modes=())
    with pytest.raises(VerificationError, match="for every solution"):
        broken.verify()


def test_equations_that_do_not_follow_from_the_system_are_noticed() -> None:
    wrong = OperatorMatrix.identity(RING, 5)
    broken = replace(SYSTEM.parametrization, equations=wrong, modes=())
    with pytest.raises(VerificationError, match="W A"):
        broken.verify()


def test_a_mode_that_is_counted_twice_is_noticed() -> None:
    (mode,) = SYSTEM.parametrization.modes
    half = OperatorMatrix.diagonal(RING, [RING.rational(1) / RING.rational(2)])
    twin = replace(mode, observable=half @ mode.observable)
    broken = replace(SYSTEM.parametrization, modes=(twin, twin))
    with pytest.raises(VerificationError, match="g_1 C_1 p is p"):
        broken.verify()


def test_a_wrong_rank_is_noticed() -> None:
    with pytest.raises(VerificationError, match="rank"):
        replace(SYSTEM.smith_form, rank=2).verify()


def test_a_column_that_is_no_solution_is_noticed() -> None:
    parametrization = SYSTEM.parametrization
    broken = replace(parametrization, free=damage(parametrization.free, 0, 0, 1, 1))
    with pytest.raises(VerificationError, match="A B = 0"):
        broken.verify()


def test_a_basis_that_is_not_minimal_is_noticed() -> None:
    parametrization = lk.System("x1' = u1; x2' = u2").parametrization
    ring = parametrization.operator.ring
    # Adding the second derivative of one column to the other keeps all solutions but not the minimality.
    twist = [[[ring.one], []], [[ring.zero, ring.zero, ring.one], [ring.one]]]
    back = [[[ring.one], []], [[ring.zero, ring.zero, -ring.one], [ring.one]]]
    broken = replace(parametrization, free=parametrization.free @ OperatorMatrix.from_vectors(ring, twist, 2))
    rows = OperatorMatrix.from_vectors(ring, back, 2) @ parametrization.free_observables
    object.__setattr__(broken, "free_observables", rows)
    with pytest.raises(VerificationError, match="column-reduced"):
        broken.verify()


def test_the_undamaged_ones_pass() -> None:
    assert len(SYSTEM.verify()) == 7
    assert parametrize(SYSTEM.operator).verify() == SYSTEM.parametrization.verify()
