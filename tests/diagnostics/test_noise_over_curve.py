"""Noise whose size depends on the signal: the level of the test, its power, and what is said."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import lodekit as lk
from lodekit.diagnostics.residual_tests import SIGNIFICANCE_LEVEL, constant_noise_test


@pytest.mark.parametrize("tails", [3, 1000])
def test_the_test_rejects_one_in_twenty_whatever_the_tails_of_the_noise_are(tails: int) -> None:
    generator, curve = np.random.default_rng(0), np.exp(-np.linspace(0.0, 3.0, 120))
    chances = [constant_noise_test(curve, generator.standard_t(tails, 120))[0] for _ in range(2000)]
    # Five standard deviations of chance.
    assert np.mean(np.array(chances) < 0.05) == pytest.approx(0.05, abs=0.025)


def test_the_test_finds_noise_that_is_proportional_to_the_signal_in_either_direction() -> None:
    generator, times = np.random.default_rng(1), np.linspace(0.0, 20.0, 150)
    for curve in (np.exp(-times / 8.0), np.sin(times)):
        noise = 0.1 + np.abs(curve)
        chances = [constant_noise_test(curve, noise * generator.standard_normal(150))[0] for _ in range(200)]
        assert np.mean(np.array(chances) < 0.05) > 0.95


def test_few_residuals_and_constant_curves_tell_nothing() -> None:
    assert math.isnan(constant_noise_test(np.arange(20.0), np.ones(20))[0])
    assert math.isnan(constant_noise_test(np.full(50, 3.0), np.ones(50))[0])


def test_a_fit_says_that_its_noise_depends_on_the_signal(tmp_path: Path) -> None:
    generator, times = np.random.default_rng(2), np.linspace(0.0, 10.0, 200)
    curve = 3.0 * np.exp(-0.3 * times)
    system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    noise = generator.standard_normal(200)
    gp = lk.LODEGP(system, random_state=0).fit(times, curve + 0.1 * curve * noise)
    [check] = gp.fit_.diagnosis.checks
    assert check.has_dependent_noise
    assert "the noise depends on the value of x: it differs by a factor of" in gp.diagnose().sentences[0]
    assert any("give noise_std for each row" in text for text in gp.warnings_)
    gp.save(tmp_path / "x.lodekit")
    assert lk.LODEGP.load(tmp_path / "x.lodekit").diagnose().to_dict() == gp.diagnose().to_dict()
    known = lk.LODEGP(system, random_state=0).fit(times, curve + 0.1 * curve * noise, noise_std=0.1 * curve)
    assert not known.fit_.diagnosis.checks[0].has_dependent_noise
    plain = lk.LODEGP(system, random_state=0).fit(times, curve + 0.1 * noise)
    assert not plain.fit_.diagnosis.checks[0].has_dependent_noise


def test_an_outlier_is_no_noise_that_depends_on_the_signal() -> None:
    generator, times = np.random.default_rng(2), np.linspace(0.0, 10.0, 200)
    curve = 3.0 * np.exp(-0.3 * times)
    data = curve + 0.1 * curve * generator.standard_normal(200)
    data[100] += 8.0
    system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    [check] = lk.LODEGP(system, random_state=0).fit(times, data).fit_.diagnosis.checks
    assert check.outliers
    assert not check.has_dependent_noise


def test_series_of_exact_values_do_not_share_the_level_of_residual_tests() -> None:
    times = np.linspace(0.0, 10.0, 60)
    noise = 0.01 * np.random.default_rng(3).standard_normal(60)
    system = lk.System("x' = -a*x; y' = a*x", parameters={"a": lk.Parameter(positive=True)})
    data = lk.Observations([(0.0, "x", 1.0, 0.0), (0.0, "y", 0.0, 0.0)]).add(
        times[1:], "y", (1 - np.exp(-times / 3) + noise)[1:]
    )
    whiteness = lk.LODEGP(system, random_state=0).fit(data).diagnose().checks[-1].whiteness
    assert whiteness is not None
    assert whiteness.level == SIGNIFICANCE_LEVEL
