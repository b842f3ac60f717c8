"""The global search of the output-error method: simulations at many points are those at single ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.fitting.global_search import GlobalSearch
from lodekit.results.fit import Fit

POSITIVE = lk.Parameter(positive=True)
GENERATOR = np.random.default_rng(0)
REGULAR, IRREGULAR = 0.25 * np.arange(30.0), np.cumsum(GENERATOR.uniform(0.05, 0.5, 30))


def noisy(curve: Any) -> Any:
    return curve + 0.02 * np.random.default_rng(1).standard_normal(np.shape(curve))


def lag(times: Any, rate: float = 0.7) -> Any:
    return 1.0 - np.exp(-rate * times)


def fit(text: str, names: str, times: Any, data: Any = None, **options: Any) -> Fit:
    parameters: dict[str, Any] = dict.fromkeys(names.split(), POSITIVE)
    return lk.LODEGP(lk.System(text, parameters=parameters), random_state=0, **options).fit(times, data).fit_


def two_outputs() -> Fit:
    """Two channels with different noise, an input that jumps between irregular rows, and an offset."""
    data = lk.Observations().add(IRREGULAR, "x", noisy(lag(IRREGULAR))).add(IRREGULAR, "y", noisy(0.5 * lag(IRREGULAR)))
    data = data.add(np.array([-1.0, 0.3, 2.05, 4.0]), "u", np.array([0.0, 1.0, -0.5, 0.7]))
    return fit("x' = -a*x + b*u; y' = c*(x - y) - d", "a b c d", data, inputs={"u": "hold"})


def linear_input() -> Fit:
    """A second-order system, of which a derivative is measured, with a straight input between regular rows."""
    decay = np.exp(-0.2 * REGULAR)
    data = {"x": noisy(decay * np.sin(REGULAR)), "x'": noisy(decay * np.cos(REGULAR)), "u": np.cos(0.5 * REGULAR)}
    return fit("x'' + a*x' + b*x = b*u", "a b", REGULAR, data, inputs={"u": "linear"})


def frequent_input() -> Fit:
    """An input with many samples between rows, at which the response has rows of its own, and more rows than are used.

    The search thins a record of 300 rows to 150.
    """
    times = 0.1 * np.arange(300.0)
    data = lk.Observations().add(times, "x", noisy(lag(times)))
    data = data.add(0.017 * np.arange(1800.0), "u", 1.0 + 0.1 * np.sin(np.arange(1800.0)))
    return fit("x' = -a*x + b*u", "a b", data, inputs={"u": "hold"})


def integrator() -> Fit:
    """A root that does not depend on parameters, and a known dead time."""
    late = np.maximum(REGULAR - 1.4, 0.0)
    data = {"x": noisy(late - lag(late) / 0.7), "u": (REGULAR > 0.99) * 1.0}
    return fit("x'' + a*x' = b*delay(u, 0.4)", "a b", REGULAR, data, inputs={"u": "hold"})


def exact_values() -> Fit:
    """No input; the initial state is known exactly."""
    data = lk.Observations([(0.0, "A", 2.0, 0.0), (0.0, "C", 0.0, 0.0)])
    times = np.array([0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0])
    curve = 2.0 * 1.5 / (1.5 - 0.3) * (np.exp(-0.3 * times) - np.exp(-1.5 * times))
    return fit("A' = -a*A; V*C' = a*A - c*C", "a V c", data.add(times, "C", noisy(curve)))


def two_records() -> Fit:
    """Two records with inputs of their own."""
    parameters: dict[str, Any] = dict.fromkeys("ab", POSITIVE)
    gp = lk.LODEGP(lk.System("x' = -a*x + b*u", parameters=parameters), inputs={"u": "hold"}, random_state=0)
    records = [(REGULAR, {"x": noisy(size * lag(REGULAR)), "u": np.full(30, size)}) for size in (1.0, 3.0)]
    return gp.fit(records).fit_


@pytest.mark.parametrize("draw", [two_outputs, linear_input, frequent_input, integrator, exact_values, two_records])
def test_simulations_at_many_points_are_those_at_single_points(draw: Any) -> None:
    done = draw()
    objective, count = done.setup.objective, len(done.layout.free_parameters)
    search = GlobalSearch.around(objective, done.optimum.x)
    assert search is not None
    regression = search.regression
    points = done.optimum.x[:count] + 0.3 * np.random.default_rng(2).standard_normal((12, count))
    levels = np.abs(np.random.default_rng(3).normal(0.1, 0.05, (12, regression.observables.count)))
    residuals, _, deviances = search.evaluate(points, levels)
    for x, own, level, deviance in zip(points, residuals, levels, deviances, strict=True):
        z = regression.from_parameters(done.layout.parameter_values(x, done.layout.free_parameters))
        single = regression.evaluate(z, level, with_jacobian=False)
        assert single is not None
        assert np.abs(own - single.residuals).max() < 1e-8 * np.abs(single.residuals).max()
        assert deviance == pytest.approx(single.deviance, rel=1e-9, abs=1e-9)
    # The optimum of the fit is found, and nothing better; the objective has priors of noise levels beside the deviance.
    ends, best = search.descend(search.draw_points(done.optimum.x[:count], 0.2))
    assert abs(best[0] - search.evaluate(done.optimum.x[None, :count])[2][0]) < 0.5
    held, _ = search.descend(points, [0])
    assert set(held[:, 0]) <= set(points[:, 0].clip(search.low[0], search.high[0]))
    assert ends.shape[1] == count


def test_there_is_no_global_search_for_dead_times_and_averages() -> None:
    data = {"x": noisy(lag(REGULAR)), "u": (REGULAR > 1.0) * 1.0}
    delayed = fit("x' = -a*x + b*delay(u, T)", "a b T", REGULAR, data, inputs={"u": "hold"})
    averaged = fit(
        "x' = -a*x + b*u", "a b", REGULAR, {"mean(x, 0.25)": data["x"], "u": data["u"]}, inputs={"u": "hold"}
    )
    free = fit("x' = -a*x + f", "a", REGULAR, {"x": data["x"], "f": data["u"]})
    for done in (delayed, averaged, free):
        assert GlobalSearch.around(done.setup.objective, done.optimum.x) is None
