"""Square roots and sines: what is zero only by their relations is zero."""

from __future__ import annotations

import pytest
import sympy

import lodekit as lk

DEPENDENT = [
    ("x + sqrt(2)*y = 0; sqrt(2)*x + 2*y = 0", 1),
    ("x' + sqrt(2)*y = 0; sqrt(2)*x' + 2*y = 0", 1),
    ("x' + sqrt(2)*y + z = 0; sqrt(2)*x' + 2*y + w = 0; (1 + sqrt(2))*x' + (2 + sqrt(2))*y + z + w = 0", 2),
    ("sin(0.3)*x' + cos(0.3)*y = u; cos(0.3)*x' - sin(0.3)*y = v; x' - sin(0.3)*u - cos(0.3)*v = 0", 2),
    ("(sqrt(6) - sqrt(2))*x + y = 0; 4*x + (sqrt(6) + sqrt(2))*y = 0", 1),
    # Nearly, but not.
    ("(sqrt(6) - sqrt(2))*x + y = 0; 4*x + (sqrt(6) + sqrt(3))*y = 0", 2),
]


@pytest.mark.parametrize(("text", "rank"), DEPENDENT)
def test_equations_that_depend_on_each_other_through_roots_are_counted_once(text: str, rank: int) -> None:
    system = lk.System(text)
    # SymPy's rank at a number in place of d, where zero is what simplifies to it.
    numbers = system.operator_matrix.subs(system.d, sympy.Rational(7, 3))
    assert numbers.rank(iszerofunc=lambda value: sympy.simplify(value) == 0) == rank
    assert system.smith_form.rank == rank
    assert system.free_functions == len(system.channels) - rank
    assert system.verify()
