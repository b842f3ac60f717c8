"""Constants stay what they are: in roots of modes, in SymPy, and where vectors vanish by their relations."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import sympy

import lodekit as lk
from lodekit.algebra.modes import isolate_roots
from lodekit.algebra.operators import sympy_symbols
from lodekit.algebra.scalars import NamedConstant, ScalarRing, factor_multivariate

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


@pytest.mark.parametrize("digits", [6, 12, 25])
def test_polynomials_with_long_decimals_are_factored(digits: int) -> None:
    """Two oscillators in a row have two irreducible factors, whatever the number of digits of their coefficients."""
    c, k, d, m = (f"{value:.{digits}f}" for value in (0.123456789012345, 1.234567890123456, 0.987654321098765, 2.5))
    system = lk.System([f"x'' + {c}*a*x' + {k}*x = 0", f"y'' + {d}*a*y' + {m}*y = {k}*x"], parameters=["a"])
    modes = system.modes
    assert [(len(mode.roots_at({"a": 1.0})), mode.multiplicity) for mode in modes] == [(2, 1), (2, 1)]
    found = sorted(root.real for mode in modes for root in mode.roots_at({"a": 1.0}))
    expected = sorted(-0.5 * float(value) for value in (c, c, d, d))
    assert found == pytest.approx(expected, rel=1e-12)


def test_factors_are_primitive_and_multiply_to_the_polynomial() -> None:
    ring = ScalarRing(("a", "b"))
    a, b = (ring.parameter(name).numerator for name in "ab")
    parts = [10**12 * a + 123456789013, 987654321097 * a * b - 10**11 * b + 7, 3 * b + 10**13]
    product = 6 * parts[0] ** 2 * parts[1] * parts[2]
    found = factor_multivariate(product)
    assert sorted(count for _, count in found) == [1, 1, 2]
    total = ring.integer(6)
    for factor, count in found:
        total = total * factor**count
    assert total in (product, -product)
