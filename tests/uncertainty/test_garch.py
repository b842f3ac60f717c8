"""Errors whose size changes: found where they do, followed as time goes on, and bands that hold what they say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from lodekit.uncertainty.forecast_errors import CONSTANT_VARIANCE, GarchVariance, calibrate_error_scale, fit_garch

Array = NDArray[np.float64]
T = np.arange(300.0)
#: Quiet nights, loud days.
LOUD = T // 12 % 2 == 0


def draw(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(len(T))


@pytest.fixture(scope="module")
def by_day() -> tuple[Array, GarchVariance]:
    z = draw(1) * np.where(LOUD, 1.35, 0.42)
    return z, fit_garch([T], [z])


def test_steady_errors_are_called_steady_even_with_heavy_tails() -> None:
    """At most one of a hundred is expected: three of forty are most unlikely."""
    heavy = np.random.default_rng(0).standard_t(6, (25, len(T)))
    found = [fit_garch([T], [z]) is CONSTANT_VARIANCE for z in (*heavy, *(draw(seed) for seed in range(15)))]
    assert sum(found) > 37
    assert fit_garch([T[:20]], [5.0 * draw(0)[:20]]) is CONSTANT_VARIANCE


def test_days_and_nights_are_followed(by_day: tuple[Array, GarchVariance]) -> None:
    z, found = by_day
    assert found.log_likelihood_gain > 20.0
    assert found.memory_time < 50.0
    before = np.concatenate([[1.0], found.filter_variance(T, z)[:-1]])
    # In the middle of a day the size is that of days, in the middle of a night that of nights.
    middle = (T % 12 > 6) & (T % 12 < 11)
    assert np.median(before[LOUD & middle]) > 2.0 * np.median(before[~LOUD & middle])


def test_sizes_follow_by_the_formula_at_any_times() -> None:
    t, z = np.array([0.0, 0.5, 3.0]), np.array([2.0, 0.0, 1.0])
    found = GarchVariance(gain=0.4, memory_time=2.0, mean_square=4.0).filter_variance(t, z)
    first = 1.0 + 0.4 * (1.0 - 1.0)
    second = (1.0 - 0.4) * (1.0 + np.exp(-0.25) * (first - 1.0))
    expected = 1.0 + np.exp(-1.25) * (second - 1.0)
    expected += 0.4 * (0.25 - expected)
    assert found.tolist() == pytest.approx([first, second, expected])


def test_bands_that_follow_hold_what_they_say_by_day(by_day: tuple[Array, GarchVariance]) -> None:
    """Learned from one record, tried on the next ones: by day a band of one size holds far too few."""
    z, found = by_day

    def sizes(values: Array) -> Array:
        return np.concatenate([[1.0], found.filter_variance(T, values)[:-1]])

    spread = calibrate_error_scale([z], [sizes(z)])
    assert spread.persistence > 0.5
    later = [draw(seed) * np.where(LOUD, 1.35, 0.42) for seed in range(10, 20)]
    inside = np.array([np.abs(own) <= 1.96 * spread.forecast_std(sizes(own), np.ones(len(T))) for own in later])
    fixed = np.array([np.abs(own) <= 1.96 for own in later])
    assert 0.92 < inside.mean() < 0.98
    assert inside[:, LOUD].mean() > fixed[:, LOUD].mean() + 0.02


def scale(errors: Array, ahead: int = 1) -> float:
    """Return by how much bands are scaled after errors of one size."""
    spread = calibrate_error_scale([errors], [np.ones(len(errors))], horizon_rows=ahead)
    assert spread.persistence == 0.0
    return spread.scale


def test_bands_are_scaled_to_what_errors_were_in_both_directions() -> None:
    """Nineteen of twenty are inside, but for the half of a per cent that 300 errors leave open."""
    for size in (0.4, 1.5, 4.0):
        own = size * draw(2)
        reach = np.sort(np.abs(own))[int(np.ceil(0.95 * (len(T) + 1))) - 1]
        assert scale(own) == pytest.approx(reach / 1.96, rel=0.02)
    # A factor that chance makes as well counts half at most.
    quantile = np.sort(np.abs(draw(5)))[int(np.ceil(0.95 * (len(T) + 1))) - 1] / 1.96
    assert abs(np.log(scale(draw(5) / quantile * 1.03))) < 0.6 * np.log(1.03)


def test_few_errors_tell_nothing_of_bands() -> None:
    assert scale(9.0 * draw(2)[:20]) == 1.0
    assert scale(np.where(T < 290, np.nan, 9.0)) == 1.0


def test_bands_are_no_narrower_than_the_deviation_of_errors() -> None:
    """Many small errors and a few huge ones: 95 % are within little, but their mean square is not small."""
    heavy = np.where(T % 30 == 0, 5.0, 0.2) * np.sign(draw(3))
    assert scale(0.5 * heavy) == pytest.approx(0.5 * np.sqrt(np.mean(heavy**2)), rel=0.05)
    assert scale(1.2 * heavy) == pytest.approx(1.0, abs=0.01)


def test_errors_of_predictions_that_overlap_tell_less() -> None:
    """Of sums over 30 rows about 14 are independent: how much wider they are is shrunk, and then Student's."""
    sums = 3.0 * np.convolve(draw(6), np.ones(30) / np.sqrt(30.0), "valid")
    own = np.correlate(sums, sums, "full")[len(sums) - 1 :] / (sums @ sums)
    told = len(sums) / (1.0 + 2.0 * np.sum(own[1:30] ** 2))
    assert 8.0 < told < 25.0
    # In two records nothing goes on from the first to the second.
    for records in (1, 2):
        size = records * len(sums)
        log = np.log(np.sort(np.abs(np.tile(sums, records)))[int(np.ceil(0.95 * (size + 1))) - 1] / 1.96)
        shrunk = np.exp(log**3 / (log**2 + 0.905 / (records * told)))
        found = calibrate_error_scale([sums] * records, [np.ones(len(sums))] * records, horizon_rows=30)
        assert found.scale == pytest.approx(shrunk * stats.t.ppf(0.975, records * told) / 1.96, rel=1e-3)


def test_what_parameters_have_taken_from_fitted_errors_is_given_back() -> None:
    """A line through 60 points a hundred times, by least squares: errors of the fit are less by what they add later."""
    t = np.linspace(-1.0, 1.0, 60)
    basis = np.linalg.qr(np.vander(t, 12))[0]
    own, later = np.random.default_rng(8).standard_normal((2, 100, len(t)))
    fitted = own @ basis @ basis.T
    moved = np.sum(basis**2, axis=1)
    inside = {}
    for name, taken in (("counted", moved), ("left out", np.zeros(len(t)))):
        found = [calibrate_error_scale([each], [np.ones(len(t))], [taken]) for each in own - fitted]
        bands = np.array([each.forecast_std(np.ones(len(t)), np.ones(len(t)), moved) for each in found])
        inside[name] = float(np.mean(np.abs(later - fitted) <= 1.96 * bands))
    assert inside["counted"] == pytest.approx(0.95, abs=0.012)
    assert inside["left out"] < inside["counted"] - 0.015


def test_far_ahead_the_size_of_today_says_nothing(by_day: tuple[Array, GarchVariance]) -> None:
    z, found = by_day
    assert (
        calibrate_error_scale(
            [draw(3)], [np.random.default_rng(4).permutation(found.filter_variance(T, z))]
        ).persistence
        < 0.3
    )
