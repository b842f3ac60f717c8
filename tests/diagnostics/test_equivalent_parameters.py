"""Values of the parameters that give the same behaviour of all that was measured are found and told."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import sympy
from scipy.linalg import expm

import lodekit as lk
from lodekit.diagnostics.equivalent_parameters import (
    AlternativeOptimum,
    find_alternative_optima,
    find_equivalent_parameters,
)
from lodekit.fitting.hessian import invert_information, observed_information
from lodekit.fitting.parameter_vector import ParameterLayout, build_transforms
from lodekit.fitting.setup import StructuralIdentifiability

HEATER = "H' = a*(T - H) + c*u; T' = a*(H - T) - b*(T - Ta)"
TRUE = {"a": 0.1, "b": 0.04, "c": 0.5, "Ta": 5.0}


def twins_of(equations: str, measured: tuple[str, ...], values: dict[str, float], **bounds: lk.Parameter) -> np.ndarray:
    """Return the twins of some values, all of them positive but where other bounds are given, shape (n, p)."""
    parameters = {name: bounds.get(name, lk.Parameter(positive=True)) for name in values}
    return twins_in(lk.System(equations, parameters=parameters), measured, values)


def twins_in(system: lk.System, measured: tuple[str, ...], values: Mapping[str, float | Fraction]) -> np.ndarray:
    """Return the twins of some values of the parameters of a system, shape (n, p)."""
    names = tuple(system.parameters)
    layout = ParameterLayout(names, *build_transforms(names, system.parameters), 0, 0, 1)
    theta = np.array([float(values[name]) for name in names])
    found = find_equivalent_parameters(
        StructuralIdentifiability(system, (*measured, *system.delayed_channels)), layout, theta
    )
    return np.array([theta for theta, _ in found]).reshape(len(found), len(names))


def test_twins_are_all_solutions_that_sympy_finds_for_the_same_transfer_functions() -> None:
    s, a, b, c = sympy.symbols("s a b c", positive=True)
    states = sympy.Matrix([[-a, a], [a, -a - b]])
    # How T follows u and Ta: what was measured of T shows both, since Ta is constant and u is not.
    response = (sympy.eye(2) * s - states).inv()[1, :] * sympy.Matrix([[c, 0], [0, b]])
    here = response.subs({a: sympy.Rational(1, 10), b: sympy.Rational(1, 25), c: sympy.Rational(1, 2)})
    apart = [sympy.numer(sympy.together(one - other)) for one, other in zip(response, here, strict=True)]
    # Ta stands for itself only where b*a*Ta is all that is seen of it: its zero in s is not, as Ta does not change.
    equations = [*sympy.Poly(apart[0], s).coeffs(), apart[1].subs(s, 0)]
    solved = {tuple(float(each) for each in found) for found in sympy.solve(equations, [a, b, c])}
    found = {tuple(TRUE[name] for name in "abc"), *(tuple(row) for row in twins_of(HEATER, ("T", "u"), TRUE)[:, :3])}
    assert len(solved) == 2
    np.testing.assert_allclose(sorted(found), sorted(solved), rtol=1e-6)


def test_lags_in_a_row_change_places_in_every_way() -> None:
    values = {"p": 2.0, "q": 5.0, "r": 0.3, "k": 3.0}
    found = twins_of("p*h' = k*u - h; q*g' = h - g; r*y' = g - y", ("y", "u"), values)
    expected = [each for each in permutations((2.0, 5.0, 0.3)) if each != (2.0, 5.0, 0.3)]
    np.testing.assert_allclose(sorted(found.round(6).tolist()), sorted([*each, 3.0] for each in expected), rtol=1e-6)
    # What lies between them is measured, or the lags are the same: nothing to confuse.
    assert not len(twins_of("p*h' = u - h; q*y' = h - y", ("y", "h", "u"), {"p": 2.0, "q": 5.0}))
    assert not len(twins_of("p*h' = u - h; q*y' = h - y", ("y", "u"), {"p": 2.0, "q": 2.0}))


def test_names_that_change_places_in_the_equations_make_no_other_plant() -> None:
    values = {"p": 2.0, "q": 5.0, "k": 3.0}
    assert not len(twins_of("p*q*y'' + (p + q)*y' + y = k*delay(u, 0.5)", ("y", "u"), values))
    # A channel that nobody measured would tell the order.
    assert len(twins_of("p*q*y'' + (p + q)*y' + y = k*u; h = q*y' + y", ("y", "u"), values)) == 1


def test_bounds_and_fixed_values_leave_out_twins_and_signs_are_told_elsewhere() -> None:
    measured = ("T", "u")
    assert len(twins_of(HEATER, measured, TRUE)) == 1
    assert not len(twins_of(HEATER, measured, TRUE, a=lk.Parameter(bounds=(0.05, 1.0))))
    assert not len(twins_of(HEATER, measured, TRUE, b=lk.Parameter(fixed=0.04)))
    free = {name: lk.Parameter() for name in ("z", "w")}
    assert not len(twins_of("x'' + 2*z*w*x' + w^2*x = F", ("x", "F"), {"z": 0.2, "w": 3.0}, **free))


def test_delays_and_waves_count() -> None:
    # Two lags would change places, were it not for what only one of them delays, or shakes.
    assert len(twins_of("p*h' = delay(u, r) - h; q*y' = h - y", ("y", "u"), {"p": 2.0, "q": 5.0, "r": 1.0})) == 1
    assert not len(twins_of("p*h' = u - h; q*y' = h - y + sin(t)", ("y", "u"), {"p": 2.0, "q": 5.0}))


@pytest.mark.parametrize(
    ("name", "hidden", "swapped"), [("compartments", "blood", ("k10", "k21")), ("two_room", "T1", ("b", "c"))]
)
def test_twins_in_the_catalog_have_the_same_transfer_function(name: str, hidden: str, swapped: tuple[str, str]) -> None:
    example = getattr(lk.catalog, name)()
    *measured, given = (each for each in example.system.plain_channels if each != hidden)
    (found,) = twins_in(example.system, (*measured, given), example.values)
    expected = dict(example.values) | dict(zip(swapped, (example.values[each] for each in swapped[::-1]), strict=True))
    np.testing.assert_allclose(found, [float(expected[each]) for each in example.system.parameters], rtol=1e-7)
    ratio = example.system.state_space(inputs=[given]).transfer_function(measured[0], given)
    symbols = {str(each): each for each in ratio.free_symbols}
    here, there = (
        ratio.subs({symbols[each]: sympy.Rational(value) for each, value in values.items() if each in symbols})
        for values in (example.values, expected)
    )
    assert sympy.cancel(here - there) == 0


def test_nothing_in_the_catalog_has_twins_where_all_channels_are_measured() -> None:
    for example in lk.catalog.examples():
        if example.system.parameters:
            assert not len(twins_in(example.system, tuple(example.system.plain_channels), example.values)), example.name


def simulate(count: int, step: float, noise: float) -> dict[str, np.ndarray]:
    """Return measurements of T, exact at the samples but for noise, where u is held between them."""
    a, b, c, outside = TRUE.values()
    whole = np.zeros((4, 4))
    whole[:2, :2], whole[0, 2], whole[1, 3] = [[-a, a], [a, -a - b]], c, b * outside
    over, state = expm(step * whole), np.array([5.0, 5.0])
    times = step * np.arange(count)
    u, found = (times % 60.0 < 20.0).astype(float), np.empty(count)
    for k in range(count):
        found[k] = state[1]
        state = (over @ [*state, u[k], 1.0])[:2]
    return {"t": times, "u": u, "T": found + noise * np.random.default_rng(0).standard_normal(count)}


def fit_heater(**own: lk.Parameter) -> lk.LODEGP:
    """Return a fit of the heater, from start values near the true ones."""
    parameters = {name: lk.Parameter(positive=True, start=1.05 * TRUE[name]) for name in "abc"}
    parameters["Ta"] = lk.Parameter(fixed=TRUE["Ta"])
    data = simulate(60, 2.0, 0.05)
    gp = lk.LODEGP(lk.System(HEATER, parameters=parameters | own), inputs={"u": "hold"}, random_state=0)
    return gp.fit(data["t"], {"T": data["T"], "u": data["u"]})


@pytest.fixture(scope="module")
def heater() -> lk.LODEGP:
    """Return a fit in which T is measured, and two sets of values give the same T."""
    return fit_heater()


def other_values(a: float, b: float, c: float) -> tuple[float, float, float]:
    """Return the other values with the same 2 a + b, a b and a c: of a quadratic equation the other root."""
    other = b / 2.0
    return other, a * b / other, a * c / other


def test_a_twin_is_told_and_intervals_hold_both(heater: lk.LODEGP) -> None:
    (rival,) = heater.fit_.diagnosis.alternatives
    estimates = heater.parameters_
    expected = other_values(*(estimates[name].value for name in "abc"))
    assert rival.is_twin
    assert list(rival.values) == ["a", "b", "c"]
    np.testing.assert_allclose(list(rival.values.values()), expected, rtol=1e-6)
    # Equal responses are as likely as each other: what is open of the initial states follows the parameters.
    assert abs(rival.below) < 1e-6
    for name, value in rival.values.items():
        low, high = estimates[name].interval
        assert low < min(value, TRUE[name]) < max(value, TRUE[name]) < high
        assert not estimates[name].identified
        assert estimates[name].note == f"{value:.4g} fits equally well"
    (text,) = (text for text in heater.warnings_ if "may equally well be" in text)
    told = f"a, b and c may equally well be {expected[0]:.3g}, {expected[1]:.3g} and {expected[2]:.3g}, with exactly"
    assert text.startswith(told)
    assert "measure H" in text


def test_bands_of_hidden_states_count_twins_and_those_of_measured_ones_need_not(heater: lk.LODEGP) -> None:
    fit, times = heater.fit_, np.array([30.0, 90.0])
    (rival,) = fit.diagnosis.alternatives
    there = fit.setup.engine.posterior(fit.layout.unpack(np.array(rival.point)))
    for name, is_hidden in (("H", True), ("T", False)):
        mean, std = heater.predict(times, name, return_std=True)
        apart = np.abs(there.mean(fit.observables([name]), times)[:, 0] - mean)
        # Two curves as likely as each other have half their distance for a standard deviation.
        assert (std > 0.45 * apart).all() if is_hidden else (apart < 1e-6).all()
        assert (apart > 1.0).all() == is_hidden


def test_errors_at_a_twin_are_those_of_the_curvature_there(heater: lk.LODEGP) -> None:
    fit = heater.fit_
    (rival,) = fit.diagnosis.alternatives
    point = np.array(rival.point)
    covariance = invert_information(observed_information(fit.setup.objective, point), ~fit.optimum.at_bound)
    for name, error in rival.errors.items():
        assert error == pytest.approx(np.sqrt(covariance[(fit.layout.index_of(name),) * 2]), rel=0.1)


def test_errors_at_a_twin_do_not_depend_on_what_the_data_do_not_tell(heater: lk.LODEGP) -> None:
    setup, times = heater.fit_.setup, [heater.fit_.fitted_record.times]
    curvature = heater.fit_.corrected_information.copy()
    place = heater.fit_.layout.index_of("c")
    curvature[place], curvature[:, place] = 0.0, 0.0
    (rival,) = find_alternative_optima(
        setup.objective, heater.fit_.optimum, curvature, times, setup.structural_identifiability
    )
    assert list(rival.values) == ["a", "b"]
    assert 0.0 < max(rival.errors.values()) < 0.1


def test_twins_are_kept_in_a_file_and_older_files_have_none(heater: lk.LODEGP, tmp_path: Path) -> None:
    path = tmp_path / "heater.lodegp"
    heater.save(path)
    assert lk.LODEGP.load(path).fit_.diagnosis.alternatives == heater.fit_.diagnosis.alternatives
    state = {"point": [1.0], "below": 0.0, "is_alias": False, "values": {}, "errors": {}}
    assert not AlternativeOptimum.from_dict(state).is_twin


def test_a_prior_decides_and_the_likelier_twin_is_taken() -> None:
    # The search starts at one of both, and the prior says that it is the other.
    gp = fit_heater(c=lk.Parameter(positive=True, start=0.52, prior=lk.Normal(2.5, 0.3)))
    assert gp.parameters_["c"].value == pytest.approx(2.5, rel=0.1)
    assert gp.parameters_["a"].value == pytest.approx(0.02, rel=0.15)
    assert not gp.fit_.diagnosis.alternatives
