"""The Smith form and Groebner bases agree on what the solutions are; a wrong parametrization is seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import sympy

import lodekit as lk
from lodekit.paper.experiments import experiments, find_experiment
from lodekit.paper.metrics import compare_parametrizations
from lodekit.paper.model_comparison import TRUE_SYSTEM, alternative_systems, compare_systems

EXAMPLES = {
    "bipendulum": lk.catalog.bipendulum(),
    "equal lengths": lk.catalog.bipendulum(1, 1),
    "unknown lengths": lk.catalog.bipendulum(parametric=True),
    "heating": lk.catalog.heating(),
    "three tanks": lk.catalog.three_tank(),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_image_is_that_of_the_syzygies(name: str) -> None:
    system = EXAMPLES[name].system
    assert compare_parametrizations(system) == (True, system.is_controllable, system.free_functions)


def test_any_basis_has_the_same_image() -> None:
    for experiment in experiments().values():
        assert compare_parametrizations(experiment.paper_system)[0]


@pytest.mark.parametrize("factor", ["d", "d + 1", "2*d**2 + 3"])
def test_a_smaller_image_is_seen(factor: str) -> None:
    system = EXAMPLES["heating"].system
    columns = system.parametrization.free_columns
    d = next(symbol for symbol in columns.free_symbols if str(symbol) == "d")
    assert not compare_parametrizations(_with_columns(system, columns * sympy.sympify(factor, {"d": d})))[0]
    # A number is a unit: the image stays what it is.
    assert compare_parametrizations(_with_columns(system, 7 * columns))[0]


def _with_columns(system: lk.System, columns: Any) -> Any:
    return SimpleNamespace(operator=system.operator, parametrization=SimpleNamespace(free_columns=columns))


def test_nothing_free() -> None:
    assert compare_parametrizations(lk.System("x' = -x")) == (True, False, 0)


def test_the_evidence_prefers_the_right_system() -> None:
    experiment = find_experiment("heating")
    found = compare_systems(experiment, 0)
    assert set(found) == {TRUE_SYSTEM, *alternative_systems(experiment)}
    assert all(found[TRUE_SYSTEM] > value + 5 for name, value in found.items() if name != TRUE_SYSTEM)


def test_rivals_are_other_systems_of_the_same_channels() -> None:
    for experiment in experiments().values():
        for name, system in alternative_systems(experiment).items():
            assert system.channels == experiment.system.channels, name
            residual = system.operator.sympy.shape[0] < experiment.system.operator.sympy.shape[0]
            assert residual == name.startswith("no equation")
