"""Verdicts depend neither on the order in which a system is written nor on units.

`benchmarks/identification.py --part invariance` checks this on 100 random systems.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from interval_rule import OpenCase
from invariance import compare, draw_invariance_cases, in_units, reorder, summarize
from lodekit.diagnostics.identifiability import find_flat_combinations
from lodekit.fitting.lbfgs import Optimum
from lodekit.fitting.parameter_vector import ParameterLayout, build_transforms
from lodekit.prior.prior import Hyperparameters
from lodekit.results.fit import Fit


def both_orders(case: OpenCase) -> tuple[Fit, Fit]:
    """Return fits with the parameters in two orders."""
    return case.fit(), reorder(case, "parameters", np.random.default_rng(1)).fit()


def values_of(fit: Fit) -> dict[str, float]:
    """Return the values of the parameters at the optimum."""
    return dict(zip(fit.layout.names, fit.hyperparameters.theta.tolist(), strict=True))


def test_values_that_the_equations_leave_open_lead_to_the_same_warnings_in_other_units() -> None:
    case = next(draw_invariance_cases(0, "ratio"))
    other, factors = in_units(case, np.random.default_rng(1))
    assert not compare(summarize(case), summarize(other), factors, len(case.times))


def test_of_the_optima_on_a_ridge_the_same_one_is_found_in_every_order() -> None:
    # The data determine the sum of an offset and of the response to a constant input.
    first, second = map(values_of, both_orders(next(draw_invariance_cases(1, "constant"))))
    # The pull towards the expected magnitudes is weak: places along the ridge are found to 1e-5.
    assert first == pytest.approx(second, rel=1e-3)


def test_correlations_of_innovations_do_not_depend_on_the_order_of_channels() -> None:
    case = next(draw_invariance_cases(3, "one sine, measured"))

    def correlations_of(own: OpenCase) -> dict[str, float]:
        """Return the correlation of neighbouring innovations of each channel."""
        checks = own.fit().diagnosis.checks
        assert all(check.whiteness is not None and check.whiteness.innovations for check in checks)
        return {check.name: check.memory for check in checks}

    other = reorder(case, "channels", np.random.default_rng(1))
    assert correlations_of(other) == pytest.approx(correlations_of(case), abs=1e-3)


def drop(rows: np.ndarray, layout: ParameterLayout, x: np.ndarray) -> float:
    """Return a log likelihood that is zero if all parameters are one."""
    return -0.5 * float(np.sum((rows @ (layout.unpack(x).theta - 1.0)) ** 2))


def test_the_same_sums_of_parameters_are_determined_in_every_order() -> None:
    parameters = {name: lk.Parameter() for name in "abd"}
    weights = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, 1.0]])

    def combinations_of(names: str) -> dict[str, tuple[str, ...]]:
        """Return what data that know a - d and b + d determine."""
        layout = ParameterLayout(tuple(names), *build_transforms(tuple(names), parameters), 0, 0, 0)
        rows = 10.0 * weights[:, ["abd".index(name) for name in names]]
        value = partial(drop, rows, layout)
        x = layout.pack(Hyperparameters(np.ones(3), *[np.zeros(0)] * 6))
        # All parameters have one unit.
        slopes = rows * layout.transforms[0].derivative(float(x[0]))
        optimum = Optimum(x, 0.0, True, "", 1, np.zeros(3, dtype=bool))
        objective: Any = SimpleNamespace(layout=layout, value=value)
        return find_flat_combinations(objective, optimum, slopes.T @ slopes)

    assert combinations_of("abd") == combinations_of("dba") == dict.fromkeys("abd", ("a + b", "a - d"))


def lag_case(order: str) -> OpenCase:
    """Return two lags, of which the data need one, with their parameters in an order."""
    generator, times = np.random.default_rng(2), np.arange(50.0)
    u, y = (times % 27 > 10) * 1.0, np.zeros(50)
    for k in range(49):
        y[k + 1] = y[k] + (1 - np.exp(-1 / 5)) * (2 * u[k] - y[k])
    system = lk.System("p*h' + h = K*u; q*y' + y = h", parameters=list(order))
    data: dict[str, Any] = {"y": y + 0.02 * generator.standard_normal(50), "u": u}
    return OpenCase("two lags", system, times, data, {"inputs": {"u": "hold"}})


def test_of_two_lags_without_bounds_the_same_one_vanishes_in_every_order_and_the_other_is_identified() -> None:
    fits = [lag_case(order).fit() for order in ("pqK", "Kqp")]
    first, second = map(values_of, fits)
    assert first == pytest.approx(second, rel=1e-4)
    # The true lag and gain, within four standard errors.
    assert first == pytest.approx({"p": 5.0, "q": 0.0, "K": 2.0}, rel=0.1, abs=1e-6)
    assert all(fit.optimum.at_bound[fit.layout.index_of("q")] and fit.converged for fit in fits)
    identified = {name: each.identified for name, each in fits[0].estimates.items()}
    assert identified == {"p": True, "q": False, "K": True}


def test_random_starts_do_not_depend_on_the_order_of_parameters() -> None:
    parameters = {"b": lk.Parameter(), "a": lk.Parameter(positive=True), "c": lk.Parameter(fixed=2.0)}

    def draw(names: tuple[str, ...], attempt: int) -> dict[str, float]:
        layout = ParameterLayout(names, *build_transforms(names, parameters), 0, 0, 0)
        values = layout.draw_starts(layout.free_parameters, attempt, np.random.default_rng(0))
        return {names[number]: value for number, value in zip(layout.free_parameters, values.tolist(), strict=True)}

    for attempt in range(4):
        assert draw(("b", "a", "c"), attempt) == draw(("c", "a", "b"), attempt)
