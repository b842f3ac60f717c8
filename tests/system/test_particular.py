"""Particular solutions satisfy their equations exactly, resonance and parameters included."""

import pytest
import sympy

import lodekit as lk
from lodekit.algebra.operators import scalar_to_sympy

t = sympy.Symbol("t")

SYSTEMS = [
    ("x' = -a*(x - Ta) + q", ["a", "Ta"]),
    ("x'' + c*x' + k*x = sin(3*t)", ["c", "k"]),
    ("x'' + 4*x = t*cos(2*t)", []),
    ("x'' + w^2*x = sin(w*t)", ["w"]),
    ("x' = 1", []),
    ("x''' = t^2 + exp(-t)", []),
    ("x' = x + t^2*exp(t)", []),
    ("x'' + 2*x' + 5*x = exp(-t)*sin(2*t)*t", []),
    ("x' = y + t*exp(a*t); y' = -x + 1", ["a"]),
    ("x' = exp(-a*t) - a*x", ["a"]),
    ("x' + y' = 1; x' - y' = t; 2*x' = 1 + t", []),
    ("x' = sqrt(2)*x + cos(sqrt(2)*t); u' = x", []),
]


@pytest.mark.parametrize(("text", "parameters"), SYSTEMS)
def test_the_particular_solution_satisfies_the_equations(text: str, parameters: list[str]) -> None:
    system = lk.System(text, parameters=parameters)
    functions = [signal.to_sympy() for signal in system.particular_solution]
    for i in range(len(system.equations)):
        total = sum(
            scalar_to_sympy(value) * functions[j].diff(t, k)
            for j in range(len(system.channels))
            for k, value in enumerate(system.operator.coefficients(i, j))
        )
        assert sympy.simplify(sympy.expand(total - system.right_hand_side[i])) == 0


def test_homogeneous_systems_have_the_zero_solution() -> None:
    assert not any(lk.catalog.heating().system.particular_solution)


def test_the_particular_solution_is_shown() -> None:
    assert "x~ = t" in str(lk.System("x' = 1"))
