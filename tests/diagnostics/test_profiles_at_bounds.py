"""A parameter at its bound does not make others more certain than they are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

import lodekit as lk
from lodekit.results.fit import Fit

T = np.linspace(0.0, 4.0, 25)


@pytest.fixture(scope="module")
def fit() -> Fit:
    """Return a fit in which x and u look alike: a + b is known well, each by itself is not, and a ends at zero."""

    def push(t: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(-t) * (1.0 + 0.5 * np.sin(3.0 * t)))

    path = solve_ivp(lambda t, x: -0.7 * x - 0.3 * push(t), (0.0, 4.0), [1.0], t_eval=T, rtol=1e-9, atol=1e-12).y[0]
    generator = np.random.default_rng(9)
    data = {"x": path + 0.05 * generator.standard_normal(25), "u": push(T) + 0.05 * generator.standard_normal(25)}
    positive = {name: lk.Parameter(positive=True) for name in "ab"}
    return lk.LODEGP(lk.System("x' + a*x + b*u = 0", parameters=positive), random_state=0).fit(T, data).fit_


def best_with(fit: Fit, a: float) -> tuple[float, float]:
    """Return how far the objective falls where a has a given value and all else is learned anew, and b there."""
    objective, start = fit.setup.objective, fit.optimum.x.copy()
    start[0] = np.log(a)

    def descend(rest: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = objective.evaluate(np.append(start[:1], rest))
        return -value, -slope[1:]

    found = minimize(descend, start[1:], jac=True, method="L-BFGS-B")
    return fit.optimum.value + float(found.fun), float(np.exp(found.x[0]))


def test_intervals_hold_what_goes_with_other_values_of_a_parameter_at_its_bound(fit: Fit) -> None:
    assert fit.estimates["a"].note == "tends to zero"
    low, high = fit.estimates["b"].interval
    falls = {a: best_with(fit, a) for a in (0.1, 0.3, 0.4, 0.7)}
    for fall, b in falls.values():
        # An interval of 95 % ends where the objective has fallen by 1.92; 0.3 is what stepping to that place may miss.
        if fall < 1.62:
            assert low < b < high
        if fall > 2.22:
            assert not low < b < high
    assert min(fall for fall, _ in falls.values()) < 1.62
    assert max(fall for fall, _ in falls.values()) > 2.22


def test_at_the_bound_itself_the_curvature_says_less_than_that(fit: Fit) -> None:
    error = float(np.sqrt(fit.covariance[1, 1]))
    low, high = fit.estimates["b"].interval
    assert np.log(high / low) > 2 * (2 * 1.96 * error)


def test_an_interval_that_was_widened_is_kept_in_a_file(fit: Fit, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("kept") / "fit.lodegp"
    lk.LODEGP.from_fit(fit).save(path)
    assert lk.LODEGP.load(path).parameters_["b"].interval == pytest.approx(fit.estimates["b"].interval)


def test_other_levels_end_where_the_evidence_has_fallen_as_much_less_or_more(fit: Fit) -> None:
    falls = [best_with(fit, a) for a in (0.05, 0.2, 0.45, 0.8)]
    for share, most in ((0.5, 0.227), (0.9, 1.353), (0.99, 3.317)):
        low, high = fit.estimates_at(share)["b"].interval
        # Between two points of the path where the evidence falls it is interpolated: a tenth of the fall, and a little.
        for fall, b in falls:
            if fall < 0.8 * most - 0.05:
                assert low < b < high
            if fall > 1.3 * most + 0.3:
                assert not low < b < high
    widths = [np.ptp(fit.estimates_at(share)["b"].interval) for share in (0.5, 0.8, 0.9, 0.95, 0.97, 0.99, 0.9999)]
    assert (np.diff(widths) > 0).all()


def test_a_share_that_is_none_is_refused(fit: Fit) -> None:
    model = lk.LODEGP.from_fit(fit)
    assert model.intervals()["b"] == fit.estimates["b"].interval
    for share in (0.0, 1.0, "most", 95):
        with pytest.raises(lk.LodekitError, match="between zero and one"):
            model.intervals(share)  # type: ignore[arg-type]
