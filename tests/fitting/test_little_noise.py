"""Known noise that is next to nothing, or nothing: fits find what the data determine, or say that they did not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import least_squares

import lodekit as lk


def decay(t: np.ndarray) -> np.ndarray:
    found: np.ndarray = lk.catalog.free_decay().solution_at(t)[:, 0]
    return found


def standard_errors(t: np.ndarray, std: float) -> np.ndarray:
    """Return the standard errors of c and k by linear regression around the truth, with amplitude and phase free."""

    def model(p: np.ndarray) -> np.ndarray:
        rate, speed = p[0] / 2, np.sqrt(p[1] - p[0] ** 2 / 4)
        return np.asarray(np.exp(-rate * t) * (p[2] * np.cos(speed * t) + p[3] * np.sin(speed * t)))

    truth = np.array([0.4, 4.0, 1.0, 0.5])
    slopes = least_squares(lambda p: model(p) - model(truth), truth, max_nfev=1, jac="3-point").jac
    return np.asarray(std * np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))[:2])


@pytest.mark.parametrize(("count", "stop", "std"), [(43, 2.45, 1e-10), (63, 7.4, 1e-9), (30, 8.1, 1e-8)])
def test_a_free_decay_with_next_to_no_known_noise_is_found(count: int, stop: float, std: float) -> None:
    t = np.linspace(0.1, stop, count)
    x = decay(t) + std * np.random.default_rng(0).standard_normal(count)
    gp = lk.LODEGP(lk.catalog.free_decay().system, random_state=0).fit(t, x[:, None], noise_std=std)
    errors = standard_errors(t, std)
    found = [gp.parameters_[name] for name in "ck"]
    # Rounding may hide the very top, which is then told; what was found is right all the same.
    assert gp.converged_ or any("noise_std" in warning for warning in gp.warnings_)
    assert all(each.identified for each in found)
    # Five standard errors are never exceeded by chance. Rounding makes those of the fit too large rather than small.
    for each, truth, error in zip(found, (0.4, 4.0), errors, strict=True):
        assert abs(each.value - truth) < 5 * error
        assert 0.5 * error < each.std_error < 20 * error


def test_where_rounding_hides_the_best_values_intervals_hold_the_truth_or_a_fit_is_refused() -> None:
    t = np.linspace(0.1, 2.45, 43)
    x = decay(t) + 1e-12 * np.random.default_rng(0).standard_normal(43)
    try:
        gp = lk.LODEGP(lk.catalog.free_decay().system, random_state=0).fit(t, x[:, None], noise_std=1e-12)
    except lk.LodekitError:
        return
    for name, truth in (("c", 0.4), ("k", 4.0)):
        low, high = gp.parameters_[name].interval
        assert low <= truth <= high
    assert gp.converged_ or any("noise_std" in warning for warning in gp.warnings_)


def test_residuals_far_above_known_noise_are_a_search_that_failed() -> None:
    t = np.linspace(0.0, 10.0, 40)
    x = np.abs(np.sin(t)) + 0.3 * np.cos(5.0 * t)  # no decay at all
    gp = lk.LODEGP(lk.System("x'' + c*x' + k*x = 0", parameters=["c", "k"]), random_state=0).fit(
        t, {"x": x}, noise_std=1e-8
    )
    assert not gp.converged_
    assert all(not each.identified and math.isinf(each.std_error) for each in gp.parameters_.values())


def test_exact_values_of_a_circuit_can_be_fitted() -> None:
    example = lk.catalog.rlc_circuit()
    t = np.linspace(0.1, 8.1, 12)
    gp = lk.LODEGP(example.system, random_state=0).fit(t, example.solution_at(t), noise_std=0.0)
    # Two exponentials are solutions for many values; nothing may be said to be known that is not.
    for name, each in gp.parameters_.items():
        assert each.interval[0] <= float(example.values[name]) <= each.interval[1]
