"""What measurements can tell at all: exact algebra against elimination by hand, and against another elimination."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import lodekit as lk
from lodekit.prior.compile import ScalarFunctions
from lodekit.prior.observables import ObservableCompiler
from lodekit.system.structural_identifiability import (
    IdentifiabilityProblem,
    find_identifiable_combinations,
    find_implied_equations,
    find_scale_symmetries,
    find_sign_symmetries,
    find_unidentifiable_directions,
)


def measured(system: lk.System, observables: Sequence[str]) -> IdentifiabilityProblem:
    operator, known = ObservableCompiler(system).parse(observables)
    unknown = tuple(name for name, each in system.parameters.items() if each.fixed is None)
    return IdentifiabilityProblem(system, operator, known, unknown)


def undetermined(system: lk.System, observables: Sequence[str]) -> set[str]:
    found = find_unidentifiable_directions(measured(system, observables))
    assert found is not None
    return {name for way in found for name in way}


@pytest.mark.parametrize(
    ("equations", "parameters", "observables", "expected", "combinations"),
    [
        ("m*x'' + c*x' + k*x = F", "m c k", "x F", "", []),
        ("m*x'' + c*x' + k*x = F", "m c k", "x", "m c k", []),
        ("m*x'' + c*x' + k*x = 0", "m c k", "x", "m c k", ["c/m", "k/m"]),
        ("m*x'' + c*x' + k*x = A*sin(w*t)", "m c k A w", "x", "m c k A", ["c/m", "k/m", "A/m"]),
        ("x'' + c*x' + k*x = A*exp(-r*t)", "c k A r", "x", "", []),
        ("(M + m)*x'' + c*x' = F", "M m c", "x F", "M m", ["M + m"]),
        ("x' = a*y; y' = -b*x", "a b", "x", "a b", ["a*b"]),
        ("x' = a*y; y' = -b*x", "a b", "x y", "", []),
        # Of two hidden stages in a row only the product of their gains shows.
        ("y' = -p*y + a*z; z' = -q*z + b*u", "p q a b", "y u", "a b", ["a*b"]),
        # An accelerometer alone sees what a position would, but not a constant force.
        ("x'' + c*x' + k*x = 0", "c k", "x''", "", []),
        ("x'' = g", "g", "x'", "", []),
        ("J*w' + b*w = K*i; L*i' + R*i = V - K*w", "J b K R L", "i V", "J b K", ["b/J", "K^2/J"]),
    ],
)
def test_what_is_open_is_what_elimination_by_hand_leaves_open(
    equations: str, parameters: str, observables: str, expected: str, combinations: list[str]
) -> None:
    system = lk.System(equations, parameters=parameters.split())
    case = measured(system, observables.split())
    directions = find_unidentifiable_directions(case)
    assert directions is not None
    assert {name for way in directions for name in way} == set(expected.split())
    assert find_identifiable_combinations(case, directions) == combinations


def test_a_known_value_settles_the_rest() -> None:
    fixed = {"m": lk.Parameter(fixed=2.0), "c": lk.Parameter(), "k": lk.Parameter()}
    assert undetermined(lk.System("m*x'' + c*x' + k*x = 0", parameters=fixed), ["x"]) == set()


def rank_of_implied(system: lk.System, channels: Sequence[str]) -> int:
    """How many combinations of the parameters the only implied equation shows, by differences of its coefficients."""
    operator, known = find_implied_equations(system, channels)
    rows = [i for i, row in enumerate(operator.rows) if any(any(entry) for entry in row)]
    assert len(rows) == 1
    assert not known[rows[0]]
    values = [v for j in range(operator.width) for v in operator.coefficients(rows[0], j) if v]
    table = ScalarFunctions(operator.ring, values)

    def shown(theta: np.ndarray) -> np.ndarray:
        found = table.evaluate(theta)[0]
        return np.asarray(found / found[-1])

    theta = np.random.default_rng(1).uniform(0.5, 2.0, len(system.parameters))
    slopes = [(shown(theta * (1 + h)) - shown(theta * (1 - h))) / 2e-6 for h in 1e-6 * np.eye(len(theta))]
    sizes = np.linalg.svd(np.stack(slopes), compute_uv=False)
    # Central differences are right to nine digits here.
    return int(np.sum(sizes > 1e-6 * sizes[0]))


@pytest.mark.parametrize(
    ("name", "channels"),
    [
        ("spring_mass_damper", "x F"),
        ("heating", "f1 f2"),
        ("heating", "f2 u"),
        ("coupled_tanks", "h2 q"),
        ("coupled_tanks", "h1 q"),
        ("two_mass", "x1 F"),
        ("two_mass", "x1 x2"),
        ("quarter_car", "zs zr"),
        ("compartments", "tissue dose"),
        ("dc_motor", "w V"),
        ("dc_motor", "i V"),
    ],
)
def test_as_many_directions_are_open_as_another_elimination_does_not_show(name: str, channels: str) -> None:
    example = lk.catalog.find_example(name)
    assert example is not None
    found = find_unidentifiable_directions(measured(example.system, channels.split()))
    assert found is not None
    assert len(example.values) - len(found) == rank_of_implied(example.system, channels.split())


@pytest.mark.parametrize(
    ("equations", "parameters", "observables", "expected"),
    [
        ("x'' + 2*z*w*x' + w^2*x = 0", "z w", "x", [{"z", "w"}]),
        ("x'' + 2*z*w*x' + w*x = 0", "z w", "x", []),
        ("x'' + c*x' + k*x = b*u", "c k b", "x u", []),
        ("x'' + c*x' + k*x = b*u", "c k b", "x", [{"b"}]),
        ("x' = -k*x + A*sin(w*t)", "k A w", "x", [{"A", "w"}]),
        ("x' = -k*x + A*cos(w*t)", "k A w", "x", [{"w"}]),
        ("x' = -k*x + A*exp(-r*t)", "k A r", "x", []),
        ("x' = a*y; y' = -b*x", "a b", "x", [{"a", "b"}]),
        ("x' = a*y; y' = -b*x", "a b", "x y", []),
    ],
)
def test_signs_that_can_change_together(
    equations: str, parameters: str, observables: str, expected: list[set[str]]
) -> None:
    case = measured(lk.System(equations, parameters=parameters.split()), observables.split())
    assert [set(names) for names in find_sign_symmetries(case, parameters.split())] == expected
    assert not find_sign_symmetries(case, [])


def test_scales_that_can_change_together_are_those_of_an_unmeasured_channel() -> None:
    system = lk.System("y' = -p*y + a*z; z' = -q*z + b*u", parameters=["p", "q", "a", "b"])
    [way] = find_scale_symmetries(measured(system, ["y", "u"]))
    assert {name: float(power) for name, power in way.items()} in ({"a": -1.0, "b": 1.0}, {"a": 1.0, "b": -1.0})
    assert find_scale_symmetries(measured(system, ["y", "z", "u"])) == []
