"""No interval, bound or verdict excludes values within 1.92 of the maximum of the log evidence.

`benchmarks/identification.py --part equivalent` checks the same rule on hundreds of random systems.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from interval_rule import DROP, RestrictedLikelihood, Watched, draw_cases, find_excluded, reported, search_globally
from invariance import draw_invariance_cases
from lodekit.results.fit import Fit


@cache
def searched(name: str, seed: int) -> tuple[Fit, Watched]:
    """Return a fit of a random case, and the points of a global search for the cheapest one."""
    case = next(case for case in draw_cases(seed, name) if case.name.split(", positive")[0] == name)
    fit = case.fit()
    likelihood = RestrictedLikelihood(case, fit) if case.plant and case.plant.is_determined else None
    return fit, search_globally(fit, seed, likelihood) if name == "square" else Watched(fit, likelihood)


@pytest.mark.parametrize(
    ("name", "seed", "parameter"),
    [
        # A sign that makes no difference.
        ("square", 0, "a"),
        # A profile that is no parabola, of a parameter with a small error.
        ("slow", 2, "a"),
        # Along a flat line one parameter moves much less than another, but moves.
        ("one sine, measured", 3, "a"),
        # A narrow valley that is straight in the parameters, and bent in their logarithms.
        ("constant", 6, "b"),
        # Another optimum beyond a barrier, at which this parameter is not far away.
        ("exchange", 2, "a"),
        # A valley that bends so much that half a standard error along a straight line leaves it.
        ("exchange", 106, "a"),
        # A time constant may be infinite, and then as well negative.
        ("slow", 108, "b"),
        # A parameter relative to one that tends to infinity: its interval ended at the limit of the search.
        ("slow", 540, "b"),
        # Another optimum inside the interval, beyond which its end is further away.
        ("exchange", 552, "c"),
        # The other one of two parameters in a sum was best at zero, far below the magnitude of the data.
        ("constant", 601, "c"),
        # A narrow parabola at the estimate, but profiles of other parameters lead out of it, to another branch.
        ("exchange", 611, "b"),
        # A part of a valley to which no profile leads.
        ("one sine", 621, "b"),
        # Another optimum, at which one of the other parameters is infinite: the Hessian gave no step from there.
        ("exchange", 749, "c"),
        # Another optimum 1.82 nats lower, whose deviance is more than two nats higher.
        ("exchange", 761, "a"),
        # A profile that falls by 11 % less than a parabola on one side, of which its derivatives show 7 %.
        ("fast", 794, "a"),
    ],
)
def test_no_interval_excludes_what_a_global_search_finds(name: str, seed: int, parameter: str) -> None:
    fit, watched = searched(name, seed)
    assert not find_excluded(fit, watched, {parameter: reported(fit)[parameter]})


def test_of_an_oscillation_and_its_alias_the_slower_one_is_the_estimate() -> None:
    """The alias, which is faster by a full turn in each step, has a log evidence that is higher by 1.4."""
    fit, watched = searched("oscillator", 622)
    (alias,) = fit.diagnosis.alternatives
    assert alias.is_alias
    assert watched.is_alias(np.array(alias.point))
    assert not watched.is_alias(fit.optimum.x)
    assert reported(fit)["b"][1] > alias.values["b"]
    assert alias.below < -1.0
    assert fit.estimates["b"].value < 2.0
    assert alias.values["b"] > 20.0
    assert not fit.estimates["b"].identified


def test_a_better_optimum_is_adopted_although_errors_at_the_estimate_are_large() -> None:
    """It was taken for one that was known already, in units of errors at an estimate where two lags cancel."""
    case = next(case for case in draw_invariance_cases(10, "three lags"))
    assert abs(case.fit().estimates["c"].value) < 100.0


def test_an_interval_holds_values_where_a_profile_rises_again() -> None:
    """Beyond a = 1.7 the profile has fallen by 1.92, but at a = 25 it is higher again."""
    fit, watched = searched("exchange", 5)
    point = np.array([np.log(25.0), 1.13, -0.02, fit.optimum.x[3]])
    assert watched.climb(point, np.eye(4)[:, 1:]) > fit.optimum.value - DROP
    assert reported(fit)["a"][0] < 25.0 < reported(fit)["a"][1]


def test_rates_that_are_best_if_they_are_equal_have_intervals() -> None:
    """Where two modes coincide, gradients of the evidence are rounding: the interval was (0.654, 0.665)."""
    fit, watched = searched("hidden gain", 102)
    place, other = fit.layout.index_of("a"), fit.layout.index_of("c")
    for rate in (0.6, 0.75):
        point = fit.optimum.x.copy()
        point[place] = fit.layout.transforms[place].inverse(rate)
        point[other] += fit.optimum.x[place] - point[place]
        assert watched.climb(point, np.delete(np.eye(len(point)), place, axis=1)) > fit.optimum.value - DROP
        assert reported(fit)["a"][0] < rate < reported(fit)["a"][1]


def test_a_search_ends_where_the_kalman_filter_has_digits() -> None:
    """The search ended at a mode that grows so fast that the evidence had an error of 0.001: the fit was refused."""
    fit, _ = searched("disturbed", 205)
    assert fit.converged
    assert fit.setup.engine.value_with_error(fit.hyperparameters)[1] < 1e-6


def test_one_lag_is_determined_if_another_one_vanishes() -> None:
    """An optimum at which they are exchanged made the interval of the lag (5e-203, 3e51)."""
    fit = next(draw_invariance_cases(3, "vanishing lag")).fit()
    assert fit.optimum.at_bound[fit.layout.index_of("b")]
    low, high = reported(fit)["a"]
    assert 0.8 < low < high < 1.1


def test_an_interval_reaches_beyond_optima_next_to_the_estimate() -> None:
    """It ended at one of these, although values beyond it were 0.7 nats below the maximum at most."""
    fit, watched = searched("one sine, measured", 523)
    place = fit.layout.index_of("a")
    point = np.array(max(fit.diagnosis.alternatives, key=lambda each: each.point[place]).point)
    point[place] = fit.layout.transforms[place].inverse(0.416)
    assert watched.climb(point, np.delete(np.eye(len(point)), place, axis=1)) > fit.optimum.value - 1.0
    assert reported(fit)["a"][1] > 0.416


@pytest.mark.parametrize(
    ("name", "seed", "side", "values"),
    [
        # Elsewhere along a line of a and c that the data do not show, b has another estimate; it ended at 0.7435.
        ("one sine, measured", 531, 1, {"a": -0.556, "b": 0.7485, "c": 0.2533}),
        # Next to such a line the valley is curved; it was taken from the curvature and ended at 0.4212.
        ("one sine, measured", 534, 0, {"a": 1.22, "b": 0.4141, "c": 2.07}),
        # It was interpolated between points far apart and ended at 0.349, where the log evidence has fallen by 1.4.
        ("swapped lags", 535, 0, {"a": 5.21, "b": 0.32, "c": 1.04}),
    ],
)
def test_the_interval_of_b_reaches_a_value_that_fits(name: str, seed: int, side: int, values: dict[str, float]) -> None:
    fit, watched = searched(name, seed)
    point, place = fit.optimum.x.copy(), fit.layout.index_of("b")
    for parameter, value in values.items():
        number = fit.layout.index_of(parameter)
        point[number] = fit.layout.transforms[number].inverse(value)
    assert watched.climb(point, np.delete(np.eye(len(point)), place, axis=1)) > fit.optimum.value - DROP
    end = reported(fit)["b"][side]
    assert end > values["b"] if side else end < values["b"]


def test_lags_that_can_be_exchanged_have_the_same_interval() -> None:
    """Their curvature is wrong, as two are almost equal: the intervals were (0.004, 223), (0.002, 308), (0.25, 1.3)."""
    fit = next(draw_invariance_cases(3, "three lags")).fit()
    intervals = np.log([reported(fit)[name] for name in "abc"])
    # Ends of intervals are located to about 5 % of their length.
    assert np.ptp(intervals, axis=0).max() < 0.15 * np.diff(intervals).min()


def test_other_parameters_follow_one_that_is_moved_to_a_higher_optimum() -> None:
    """The log evidence was 1.7 lower."""
    fit = next(draw_invariance_cases(3, "exchange")).fit()
    point = fit.layout.pack(replace(fit.hyperparameters, theta=np.array([7.2, 0.885, 0.971])))
    assert fit.layout.names == ("a", "c", "b")
    assert fit.optimum.value > Watched(fit).climb(point, np.eye(4)) - 0.1


def test_other_values_behave_alike_if_a_disturbance_is_best_at_zero() -> None:
    """Only what the disturbance adds would tell a = 0.775, b = 0.676 from b/2 and 2*a."""
    fit, _ = searched("disturbed", 102)
    (twin,) = fit.diagnosis.alternatives
    values = {name: fit.estimates[name].value for name in "ab"}
    assert twin.is_twin
    assert twin.values["a"] == pytest.approx(values["b"] / 2.0, rel=1e-3)
    assert twin.values["b"] == pytest.approx(2.0 * values["a"], rel=1e-3)
    assert reported(fit)["a"][0] < twin.values["a"]
    assert reported(fit)["b"][1] > twin.values["b"]


def test_another_optimum_is_found_if_a_parameter_is_held_at_the_other_sign() -> None:
    """A search that may move all parameters from there returns to the estimate."""
    fit, watched = searched("exchange", 111)
    point = np.array([4.0, 4.3, -5.2, fit.optimum.x[3]])
    assert watched.climb(point, np.eye(4)) > fit.optimum.value - DROP
    assert any(abs(rival.values.get("b", 0.0) + 2.3) < 0.1 for rival in fit.diagnosis.alternatives)
    assert reported(fit)["b"][0] < -2.3


@pytest.mark.parametrize("name", ["square", "slow", "exchange"])
def test_the_likelihood_of_the_global_search_is_that_of_the_fit(name: str) -> None:
    """It uses a regression on free decays; the fit uses modes with a diffuse prior and a free noise level."""
    fit, watched = searched(name, {"square": 0, "slow": 2, "exchange": 106}[name])
    assert watched.likelihood is not None
    count = len(fit.layout.free_parameters)
    points = fit.optimum.x[:count] + 0.1 * np.random.default_rng(3).standard_normal((4, count))
    best = [watched.climb(np.append(point, fit.optimum.x[count:]), np.eye(count + 1)[:, count:]) for point in points]
    heights = watched.likelihood.heights(points)
    assert np.ptp(heights) > 1.0
    assert np.array(best) - best[0] == pytest.approx(heights - heights[0], abs=1e-4)


def test_the_check_fails_if_an_interval_is_too_short() -> None:
    fit, watched = searched("slow", 2)
    for name, (low, high) in reported(fit).items():
        value = fit.estimates[name].value
        for share in (0.7, 0.0):
            short = {name: (value - share * (value - low), value + share * (high - value))}
            assert find_excluded(fit, watched, short).keys() == {name}


def test_the_check_fails_if_a_bound_is_invented() -> None:
    fit, watched = searched("constant", 6)
    # Only the sum of an offset and of the response to a constant input is known.
    assert reported(fit)["b"][0] == 0.0
    for low, high in ((0.5, np.inf), (0.0, 1.5)):
        value = fit.estimates["b"].value
        assert find_excluded(fit, watched, {"b": (low * value, high * value)})
