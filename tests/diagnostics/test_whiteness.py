"""Tests of independence against simulation and formulas from textbooks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lfilter, lsim
from scipy.stats import chi2

import lodekit as lk
from lodekit.data.inputs import HoldType, InputSignal
from lodekit.diagnostics.messages import Findings, describe_check
from lodekit.diagnostics.residual_tests import (
    InputCorrelation,
    ResidualCheck,
    WhitenessTest,
    autocorrelation_at_lags,
    can_detect_correlation,
    cumulative_periodogram,
    cumulative_periodogram_band,
    ljung_box_test,
)
from lodekit.report import make_report

Array = NDArray[np.float64]


def judged(times: Array, values: Array, **options: object) -> WhitenessTest:
    found = ljung_box_test(times, values, **options)  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize("irregular", [False, True])
def test_independent_residuals_are_called_so_in_about_95_of_100_cases(irregular: bool) -> None:
    generator, called = np.random.default_rng(1), 0
    for _ in range(400):
        times = np.sort(generator.uniform(0.0, 150.0, 150)) if irregular else np.arange(150.0)
        called += judged(times, generator.standard_normal(150)).is_correlated
    # Twenty to be expected at most, with a deviation of 4.4.
    assert 2 <= called <= 33


def test_an_autoregression_is_called_correlated_and_told_to_be_slow() -> None:
    generator, called = np.random.default_rng(2), 0
    for _ in range(100):
        errors = lfilter([1.0], [1.0, -0.5], generator.standard_normal(250))[100:]
        found = judged(np.arange(150.0), errors)
        called += found.is_correlated
        assert found.excursion > 0
    assert called >= 97
    swinging = judged(np.arange(150.0), lfilter([1.0], [1.0, 0.6], generator.standard_normal(150)))
    assert swinging.is_correlated
    assert swinging.excursion < 0
    assert swinging.lags[0] < -0.3


def test_the_statistic_is_that_of_ljung_and_box() -> None:
    values = lfilter([1.0], [1.0, -0.3], np.random.default_rng(3).standard_normal(2000))
    found, size = judged(np.arange(2000.0), values), 2000
    r = np.array([values[k:] @ values[:-k] for k in range(1, 11)]) / (values @ values)
    expected = size * (size + 2) * np.sum(r**2 / (size - np.arange(1, 11)))
    # Correlations of neighbours are divided by the sizes of both ends, the textbook's by that of all.
    assert found.ljung_box == pytest.approx(expected, rel=0.02)
    assert found.p_value == pytest.approx(chi2.sf(found.ljung_box, 10), rel=1e-6)


def test_the_band_of_the_cumulated_periodogram_holds_95_of_100_independent_series() -> None:
    generator, inside = np.random.default_rng(4), 0
    for _ in range(1000):
        _, share = cumulative_periodogram(generator.standard_normal(101))
        line = np.arange(1, len(share) + 1) / len(share)
        inside += np.abs(share - line).max() <= cumulative_periodogram_band(len(share))
    assert 930 <= inside <= 985


def test_a_wave_below_the_noise_is_told_with_its_period() -> None:
    times = np.linspace(0.0, 199.5, 400)
    wave = np.sin(2 * np.pi * times / 20.0)
    found = judged(times, wave + np.random.default_rng(5).standard_normal(400))
    assert found.is_correlated
    assert found.period == pytest.approx(20.0, rel=0.15)


def test_pairs_across_a_gap_do_not_count() -> None:
    times = np.concatenate([np.arange(20.0), 100.0 + np.arange(20.0)])
    _, pairs = autocorrelation_at_lags(times, np.ones(40), 3)
    assert pairs.tolist() == [38, 36, 34]


def test_an_input_that_acts_later_than_the_equations_say_is_found() -> None:
    generator, times = np.random.default_rng(6), np.arange(300.0)
    u = InputSignal(times, generator.integers(0, 2, 300).astype(float), "hold")
    late = judged(times, 1.5 * (u.at(times - 3.0) - 0.5) + generator.standard_normal(300), inputs={"u": u})
    assert late.correlated_inputs == ["u"]
    assert late.links["u"].delay == 3.0
    assert late.links["u"].correlation == pytest.approx(0.6, abs=0.1)
    found = sum(
        bool(judged(times, generator.standard_normal(300), inputs={"u": u}).correlated_inputs) for _ in range(100)
    )
    assert found <= 10


@pytest.mark.parametrize(("kind", "each", "is_told"), [("hold", 1, True), ("linear", 1, False), ("hold", 10, False)])
def test_what_to_try_with_an_input_is_told(kind: HoldType, each: int, is_told: bool) -> None:
    """Straight lines are no cure for what is held for a while, or has them already."""
    generator, times = np.random.default_rng(6), np.arange(300.0)
    u = InputSignal(times, generator.standard_normal(300 // each).repeat(each), kind)
    late = judged(times, u.at(times - 3.0) + generator.standard_normal(300), inputs={"u": u})
    text = describe_check(ResidualCheck("y", 300, 300, 1.0, late.lags[0], 0.5, whiteness=late))
    assert "try a dead time delay(u, Td)" in text
    assert ("inputs={'u': 'auto'}" in text) is is_told


def test_a_dead_time_is_not_suggested_if_the_equations_have_one() -> None:
    """The plant has two lags, the equations one of them and the dead time."""
    t = np.arange(0.0, 60.0, 0.5)
    u = np.where(t % 11 < 4, 1.0, 0.0)
    _, y, _ = lsim(([2.0], np.polymul([4.0, 1.0], [1.5, 1.0])), np.roll(u, 2) * (t >= 1.0), t, interp=False)
    data = {"y": y + 0.01 * np.random.default_rng(1).standard_normal(len(t)), "u": u}
    for late, is_told in (("u", True), ("delay(u, 1)", False)):
        parameters = {name: lk.Parameter(positive=True) for name in ("tau", "K")}
        system = lk.System(f"tau*y' + y = K*{late}", parameters=parameters)
        gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, data)
        told = [*gp.warnings_, *gp.diagnose().sentences]
        assert any("; try " in text for text in told)
        assert any("a dead time" in text for text in told) is is_told


def test_few_residuals_say_nothing() -> None:
    assert ljung_box_test(np.arange(9.0), np.ones(9)) is None
    assert ljung_box_test(np.arange(30.0), np.zeros(30)) is None


@pytest.mark.parametrize("irregular", [False, True])
def test_residuals_look_independent_only_if_the_tests_would_detect_correlated_ones(irregular: bool) -> None:
    """At the smallest conclusive size, tests detect an autoregression of 0.7 in three of four series."""
    generator, detected, sizes = np.random.default_rng(4), 0, []
    for _ in range(60):
        steps = generator.exponential(1.0, 80) if irregular else np.ones(80)
        times = np.cumsum(steps)
        size = next(n for n in range(10, 80) if can_detect_correlation(times[:n]))
        decay, errors = (
            0.7 ** (np.diff(times[:size]) / np.median(np.diff(times[:size]))),
            generator.standard_normal(size),
        )
        for k in range(1, size):
            errors[k] = decay[k - 1] * errors[k - 1] + math.sqrt(1.0 - decay[k - 1] ** 2) * errors[k]
        detected += judged(times[:size], errors).is_correlated
        sizes.append(size)
    assert 36 <= detected <= 57
    assert min(sizes) > 16
    few = judged(times[:12], generator.standard_normal(12))
    assert not few.is_conclusive
    check = ResidualCheck("x", 12, 12, 1.0, 0.0, 0.9, whiteness=few)
    assert "too few to tell whether they are independent" in describe_check(check)


def test_residuals_that_nobody_saw_are_not_called_few() -> None:
    """Of sums there are no residuals, however many measurements there were."""
    assert "only sums of them were kept" in describe_check(ResidualCheck("y", 3000, 0, math.nan, math.nan, math.nan))
    assert "too few" in describe_check(ResidualCheck("y", 3, 3, 1.0, 0.0, 0.9))


def test_correlations_with_a_held_input_do_not_depend_on_the_unit_of_time() -> None:
    generator, found = np.random.default_rng(6), []
    levels, residuals = generator.standard_normal((2, 40))
    for unit in (1.0, 3600.0, 1e6):
        # Multiples of 0.2 less a few steps are other multiples but for rounding.
        times = unit * (0.2 * np.arange(40.0))
        link = judged(times, residuals, inputs={"u": InputSignal(times, levels, "hold")}).links["u"]
        found.append((link.correlation, link.delay / unit))
    assert found[1] == pytest.approx(found[0])
    assert found[2] == pytest.approx(found[0])


def test_correlated_residuals_far_below_an_estimated_noise_are_not_called_independent() -> None:
    """An outlier in another record increases the noise that all records share."""
    times = np.arange(100.0)
    check = ResidualCheck("x", 100, 100, 0.19, 0.9, 0.9, whiteness=judged(times, np.sin(times / 5)), record="2")
    assert (check.verdict, check.is_correlated, check.has_inflated_noise) == ("below noise", False, True)
    assert "far smaller than the noise (0.2 of it), and correlated (lag 1: 0.98)" in describe_check(check)
    assert not ResidualCheck("x", 100, 100, 0.19, 0.9, 0.9, expected=0.9, whiteness=check.whiteness).has_inflated_noise


def test_few_residuals_are_not_called_independent() -> None:
    """Twelve rows are enough to compute the tests, but not to detect a correlation; eight are not."""
    system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    for count in (12, 8):
        times = np.arange(float(count))
        values = np.exp(-0.3 * times) + 0.01 * np.random.default_rng(0).standard_normal(count)
        gp = lk.LODEGP(system, random_state=0).fit(times, values)
        assert "\nresiduals of x                 too few to test\n" in gp.summary()
        assert gp.diagnose().verdict == "too few to test"
        page = make_report(gp)
        assert "The search converged; there are too few measurements to test all residuals." in page
        assert "Residuals of x are too few to tell whether they are independent" in page


def test_the_verdict_names_the_most_important_result() -> None:
    few, own = ResidualCheck("y", 3, 3, 1.0, 0.0, 0.9), judged(np.arange(100.0), np.sin(np.arange(100.0)))
    correlated, untested = ResidualCheck("x", 100, 100, 1.0, 0.9, 0.9, whiteness=own), ResidualCheck("z", 9, 0, 1, 0, 1)
    assert Findings((few, correlated, untested), {}).verdict == "correlated"
    assert Findings((few, untested), {}).verdict == "too few to test"
    assert Findings((untested,), {}).verdict == Findings((), {}).verdict == "not tested"
    white = judged(np.arange(200.0), np.random.default_rng(2).standard_normal(200))
    check = ResidualCheck("x", 200, 200, 1.0, 0.0, 0.9, whiteness=white)
    assert check.verdict == "independent"
    white = replace(white, links={"u": InputCorrelation(0.9, 0.0, 1e-9)})
    assert replace(check, whiteness=white).verdict == "correlated"
