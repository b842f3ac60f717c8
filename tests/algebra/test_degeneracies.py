"""The reported parameter factors are exactly those at whose zeros the structure changes, tested by substituting."""

import random

import pytest
import sympy

import lodekit as lk
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.parametrization import exceptional_factors, singular_basis_factors
from lodekit.algebra.scalars import ScalarRing


def test_bipendulum_reports_equal_lengths_and_substituting_them_gives_the_uncontrollable_form() -> None:
    system = lk.catalog.bipendulum(parametric=True).system
    l1, l2 = sympy.symbols("l1 l2")
    assert system.is_controllable
    assert system.degeneracies == (l1 - l2,)
    equal = system.substitute({"l2": "l1"})
    assert not equal.is_controllable
    assert sympy.expand(equal.smith_form.D[1, 1] - (sympy.Symbol("d") ** 2 + sympy.Rational(981, 100) / l1)) == 0


SYSTEMS = [
    ("x' = a*u", ["a"], ["a"]),
    ("x'' + c*x' + k*x = b*u", ["c", "k", "b"], ["b"]),
    ("a*x + b*y + c*z = 0", ["a", "b", "c"], []),
    ("x1' = a*x1 + u; x2' = b*x2 + u", ["a", "b"], ["a - b"]),
    ("x1' = a*x1 + u; x2' = (a^2 - 2)*x2 + u", ["a"], ["a + 1", "a - 2"]),
    ("(x'' + a*x' + 1*x) + (b*u + c*u') = 0", ["a", "b", "c"], ["a*b*c - b**2 - c**2"]),
    ("x' = x/a + u", ["a"], []),
    ("x1' = (a^2 + b^2)*x2; x2' = u", ["a", "b"], ["a**2 + b**2"]),
    # A vanishing leading coefficient takes a mode away.
    ("m*x'' + c*x' + k*x = 0", ["m", "c", "k"], ["m"]),
    ("x' = y; a*y' = -y - x", ["a"], ["a"]),
    # Over an extension by a square root only one branch of a^2 - 2 matters, whichever it is.
    ("x1' = -sqrt(2)*x1 + u; x2' = a*x2 + u", ["a"], ["a**2 - 2"]),
    ("x1' = sqrt(2)*x1 + u; x2' = a*x2 + u", ["a"], ["a**2 - 2"]),
    # A sine has a cosine beside it, and their squares make one.
    ("x1' = -sin(0.3)*x1 + u; x2' = a*x2 + u", ["a"], ["a**2 - 1 + cos(3/10)**2"]),
    # A constant in a denominator is no parameter.
    ("pi*x' + x = 0; y' = a*u", ["a"], ["a"]),
    ("pi*x' + x = 0; a*y' = y", ["a"], ["a", "a + pi"]),
    # Many square roots must not make harmless factors look harmful.
    ("x' = sqrt(2)*sqrt(3)*sqrt(5)*sqrt(7)*u; x + u + a*v + b*w = 0", ["a", "b"], []),
    ("x1' = x2 + a*u; x2' = -x1 + u", ["a"], []),
]


@pytest.mark.parametrize(("equations", "parameters", "expected"), SYSTEMS)
def test_the_factors_are_found(equations: str, parameters: list[str], expected: list[str]) -> None:
    system = lk.System(equations, parameters=parameters)
    assert sorted(str(factor) for factor in system.degeneracies) == sorted(expected)


@pytest.mark.parametrize(("equations", "parameters", "expected"), SYSTEMS)
def test_substituting_a_zero_changes_the_structure_and_any_other_value_does_not(
    equations: str, parameters: list[str], expected: list[str]
) -> None:
    system = lk.System(equations, parameters=parameters)
    generic = system.substitute({name: 7 + 13 * i for i, name in enumerate(parameters)})
    assert [len(p) for p in generic.smith_form.invariants] == [len(p) for p in system.smith_form.invariants]
    for factor in system.degeneracies:
        symbols = sorted(factor.free_symbols, key=str)
        for zero in sympy.solve(factor, symbols[0]):
            if zero.is_Rational or (zero.is_Symbol and str(zero) in parameters):
                special = system.substitute({str(symbols[0]): zero})
                assert [len(p) for p in special.smith_form.invariants] != [
                    len(p) for p in system.smith_form.invariants
                ] or special.smith_form.rank != system.smith_form.rank


def test_brute_force_finds_no_other_value_at_which_the_structure_changes() -> None:
    """Random systems with one parameter, substituted at small integers: each change is a zero of a listed factor."""
    generator = random.Random(5)
    changed = 0
    for _ in range(40):
        entries = [
            " + ".join(
                f"({generator.randint(-2, 2)} + {generator.randint(-2, 2)}*a)*D({name}, {generator.randint(0, 2)})"
                for name in ("x", "y", "u", "x")
            )
            for _ in range(2)
        ]
        system = lk.System(entries, parameters=["a"], channels=["x", "y", "u"])
        generic = [len(entry) for entry in system.invariants]
        for value in range(-3, 4):
            special = [len(entry) for entry in system.substitute({"a": value}).invariants]
            listed = any(factor.subs(sympy.Symbol("a"), value) == 0 for factor in system.degeneracies)
            assert listed == (special != generic)
            changed += listed
    assert changed > 20


def test_the_parametrization_knows_where_it_must_be_computed_anew() -> None:
    """At a = 0 the structure stays, but this basis collapses: the factor is exceptional without being degenerate."""
    system = lk.System("x + u1 + a*u2 = 0", parameters=["a"])
    assert system.degeneracies == ()
    assert [system.operator.ring.format(factor) for factor in system.exceptional_elements] == ["a"]
    assert system.substitute({"a": 0}).parametrization.verify()


def test_factors_that_cannot_vanish_for_positive_parameters_are_left_out() -> None:
    free = lk.System("x' = (a + b)*u", parameters=["a", "b"])
    assert [str(f) for f in free.degeneracies] == ["a + b"]
    positive = lk.System("x' = (a + b)*u", parameters={n: lk.Parameter(positive=True) for n in "ab"})
    assert positive.degeneracies == ()


def test_a_vanishing_leading_coefficient_is_exceptional() -> None:
    """Of ``m x'' + c x' + k x = 0`` nothing but d_1 knows m."""
    system = lk.System("m*x'' + c*x' + k*x = 0", parameters=["m", "c", "k"])
    assert [system.operator.ring.format(factor) for factor in exceptional_factors(system.parametrization)] == ["m"]


def columns_and_inverse() -> tuple[OperatorMatrix, OperatorMatrix]:
    """Return ``(d + a, d + 1)`` as a column, and its left inverse ``(1, -1) / (a - 1)``."""
    ring = ScalarRing(("a",), ())
    one, a = ring.rational(1), ring.parameter("a")
    column = OperatorMatrix.from_scalars(ring, [[[a, one]], [[one, one]]], 1)
    inverse = OperatorMatrix.from_scalars(ring, [[[one / (a - one)], [one / (one - a)]]], 2)
    assert inverse @ column == OperatorMatrix.identity(ring, 1)
    return column, inverse


def test_columns_with_a_common_factor_are_no_basis() -> None:
    """At a = 1 both entries are d + 1: the rank stays, but d + 1 cannot be undone."""
    column, inverse = columns_and_inverse()
    assert [column.ring.format(factor) for factor in singular_basis_factors(column, [inverse])] == ["a - 1"]


def test_a_factor_whose_zeros_are_not_found_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    column, inverse = columns_and_inverse()
    harmless = OperatorMatrix.identity(column.ring, 1)
    assert singular_basis_factors(harmless, [inverse]) == []
    monkeypatch.setattr("lodekit.algebra.parametrization.sample_zeros", lambda *_: iter(()))
    assert [column.ring.format(factor) for factor in singular_basis_factors(harmless, [inverse])] == ["a - 1"]
