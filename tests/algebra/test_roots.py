"""Constants stay what they are: in roots of modes, in SymPy, and where vectors vanish by their relations."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import sympy

import lodekit as lk
from lodekit.algebra.modes import isolate_roots
from lodekit.algebra.operators import sympy_symbols
from lodekit.algebra.scalars import NamedConstant, ScalarRing

ROOT2 = NamedConstant("sqrt", Fraction(2))


def test_a_real_part_far_below_rounding_is_not_taken_for_zero() -> None:
    """``N s^2 + sqrt(2) s + N`` has the roots ``-sqrt(2)/(2 N) +- i``, but for a share of 1/N^2."""
    ring, large = ScalarRing((), (ROOT2,)), 10**250
    found = isolate_roots(ring, [ring.integer(large), ring.constant(ROOT2).numerator, ring.integer(large)])
    assert [(root.imag, multiplicity) for root, multiplicity in found] == [(-1.0, 1), (1.0, 1)]
    for root, _ in found:
        assert root.real == pytest.approx(-(2**-0.5) * 1e-250, rel=1e-15, abs=0.0)
    # Without the term in the middle they are imaginary.
    found = isolate_roots(ring, [ring.constant(ROOT2).numerator, ring.zero, ring.constant(ROOT2).numerator])
    assert [root for root, _ in found] == [-1j, 1j]


def test_sympy_gets_constants_with_their_pi() -> None:
    ring = ScalarRing(
        (), (NamedConstant("exp", Fraction(2, 3), is_multiple_of_pi=True), NamedConstant("cos", Fraction(2, 3)))
    )
    assert sympy_symbols(ring) == [sympy.exp(2 * sympy.pi / 3), sympy.cos(sympy.Rational(2, 3))]
    (coefficient, _) = lk.System("x' = exp(2*pi/3)*x + u").operator_matrix.subs(sympy.Symbol("d"), 0)
    assert float(coefficient) == pytest.approx(-math.exp(2.0 * math.pi / 3.0), rel=1e-14)


def test_modes_beside_free_functions_with_square_roots_in_the_equations() -> None:
    """Multiples of free columns vanish modulo the mode: nothing is left whose leading coefficient could be cleared."""
    system = lk.System("x' = -sqrt(2)*x; y' = x + u")
    (mode,) = system.modes
    assert mode.observable == "x"
    assert [complex(root) for root in mode.roots] == [pytest.approx(-(2**0.5), rel=1e-15)]
    assert system.free_functions == 1
    assert system.verify()
