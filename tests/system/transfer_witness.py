"""The transfer function of a state space against the equations, in exact numbers at points; no elimination is used."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy

import lodekit as lk
from lodekit.system.state_space import StateSpace


def rational(value: Fraction | int) -> sympy.Rational:
    exact = Fraction(value)
    return sympy.Rational(exact.numerator, exact.denominator)


def at(matrix: Any, values: Mapping[str, Fraction], point: Fraction | None = None) -> sympy.Matrix:
    """Return a matrix in parameters and, where a point is given, d, as numbers."""
    numbers = {sympy.Symbol(name): rational(value) for name, value in values.items()}
    if point is not None:
        numbers[sympy.Symbol("d")] = rational(point)
    return sympy.Matrix(matrix).subs(numbers)


def transfer_at(plant: StateSpace, values: Mapping[str, Fraction], point: Fraction) -> sympy.Matrix:
    """Return H (s I - F)^-1 G + D + s D1 at a point that is no exponent."""
    F, G, H, D, D1 = (at(getattr(plant, name), values) for name in ("A", "B", "C", "D", "D1"))
    shifted = rational(point) * sympy.eye(len(plant.states)) - F
    inner = H * shifted.LUsolve(G) if plant.states else sympy.zeros(*D.shape)
    return sympy.Matrix(inner + D + rational(point) * D1)


def split_at(
    system: lk.System, plant: StateSpace, values: Mapping[str, Fraction], point: Fraction
) -> tuple[sympy.Matrix, sympy.Matrix]:
    """Return P and Q of ``P g = Q v`` at a point, from the operator matrix as it was read."""
    A = at(system.operator_matrix, values, point)
    columns = [[system.channels.index(name) for name in names] for names in (plant.outputs, plant.inputs)]
    return A[:, columns[0]], -A[:, columns[1]]


def responds(system: lk.System, plant: StateSpace, values: Mapping[str, Fraction], points: range) -> bool:
    """Return whether ``P T = Q`` at all points that are no exponents, T the transfer function."""
    checked = 0
    for number in points:
        point = Fraction(2 * number + 1, 3)
        F = at(plant.A, values)
        if plant.states and (rational(point) * sympy.eye(len(plant.states)) - F).det() == 0:
            continue
        P, Q = split_at(system, plant, values, point)
        if P * transfer_at(plant, values, point) != Q:
            return False
        checked += 1
    return checked > 0


def all_modes(system: lk.System, plant: StateSpace, values: Mapping[str, Fraction], points: range) -> bool:
    """Return whether ``det P = c det(s I - F)``, c constant: no exponent is lost or made up."""
    ratios = set()
    for number in points:
        point = Fraction(2 * number + 1, 3)
        P, _ = split_at(system, plant, values, point)
        F = at(plant.A, values)
        bottom = (rational(point) * sympy.eye(len(plant.states)) - F).det() if plant.states else sympy.S.One
        if bottom:
            ratios.add(P.det() / bottom)
    return len(ratios) == 1 and 0 not in ratios
