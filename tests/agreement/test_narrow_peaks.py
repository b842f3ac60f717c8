"""Narrow peaks of the channel prior: engines agree with extended precision there, below and above 400 measurements."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.records import Measurements
from lodekit.errors import LodekitError
from lodekit.inference.dense.engine import DenseEngine
from lodekit.inference.dense.evidence import DenseData
from lodekit.inference.fallback import MAX_EVIDENCE_ERROR
from lodekit.inference.spectral.engine import SpectralEngine, SpectralEvaluation
from lodekit.prior.channel_prior import quadrature
from lodekit.prior.channel_prior.channel_spectrum import ChannelSpectrum
from lodekit.prior.channel_prior.spectral_density import ConditionedDensity
from lodekit.prior.prior import Hyperparameters
from lodekit.prior.spectra import SpectralPoint
from tests.channel_witness import channel_evidence, has_extended_precision
from tests.inference.fitted import EXAMPLES, gradient_vector, prior_of, shifted

witnessed = pytest.mark.skipif(not has_extended_precision(), reason="no extended precision here")


@cache
def engines(name: str, count: int) -> tuple[DenseEngine, SpectralEngine, Measurements, Hyperparameters]:
    """Both engines on noisy data, and hyperparameters whose inputs hardly reach the resonances."""
    example, generator = EXAMPLES[name], np.random.default_rng(count)
    times = np.sort(generator.uniform(0.0, 5.0, count))
    table = example.solution_at(times)
    table = table + 0.02 * table.std(axis=0) * generator.standard_normal(table.shape)
    observations = lk.Observations()
    for channel, column in zip(example.system.channels, table.T, strict=True):
        observations = observations.add(times, channel, column)
    measurements = Measurements.from_observations(observations)
    prior = prior_of(example.system, measurements, channels=True, noise="channel")
    own = len(example.system.channels)
    hyper = Hyperparameters(
        np.array([float(value) for value in example.values.values()]),
        # Inputs come last in these systems: the longest lengthscale is theirs.
        np.geomspace(0.12, 0.6, own),
        np.ones(own),
        np.ones(len(prior.groups)),
        0.02 * prior.noise.level_scales,
    )
    dense = DenseEngine(DenseData.from_series(prior, measurements.series))
    return dense, SpectralEngine(prior, measurements, 1e-10), measurements, hyper


def drawn(hyper: Hyperparameters, seed: int) -> Hyperparameters:
    generator = np.random.default_rng(seed)
    return Hyperparameters(
        hyper.theta * np.exp(0.2 * generator.standard_normal(len(hyper.theta))),
        hyper.lengthscales * 10.0 ** generator.uniform(-0.3, 0.5, len(hyper.lengthscales)),
        hyper.amplitudes * 10.0 ** generator.uniform(-1.0, 1.0, len(hyper.amplitudes)),
        hyper.mode_amplitudes,
        hyper.noise_std * 10.0 ** generator.uniform(-1.0, 0.5, len(hyper.noise_std)),
    )


@witnessed
@pytest.mark.parametrize("name", ["rlc_circuit", "cart_pendulum"])
def test_evidences_at_narrow_peaks_are_those_of_extended_precision(name: str) -> None:
    """Tolerance: a tenth of what makes a search refuse a point."""
    dense, spectral, measurements, hyper = engines(name, 5)
    moved = drawn(hyper, 1)
    exact = channel_evidence(dense.prior, measurements, moved)
    scale = max(measurements.size, abs(exact))
    value, error = spectral.value_with_error(moved)
    assert error < MAX_EVIDENCE_ERROR * scale
    assert abs(value - exact) < 0.1 * MAX_EVIDENCE_ERROR * scale
    other, doubt = dense.value_with_error(moved)
    assert abs(other - exact) < 3.0 * doubt + 0.1 * MAX_EVIDENCE_ERROR * scale


@pytest.mark.parametrize(("name", "count"), [("two_mass", 15), ("bipendulum", 20), ("two_mass", 150)])
def test_both_engines_agree_below_and_above_400_measurements(name: str, count: int) -> None:
    dense, spectral, _, hyper = engines(name, count)
    assert (dense.size > 400) == (count > 100)
    for seed in range(1 if count > 100 else 3):
        moved = drawn(hyper, seed)
        (a, first), (b, second) = dense.value_with_error(moved), spectral.value_with_error(moved)
        assert abs(a - b) < 3.0 * (first + second) + 1e-9 * max(dense.size, abs(b))
        assert second < MAX_EVIDENCE_ERROR * max(dense.size, abs(b))


@pytest.mark.parametrize("name", ["two_mass", "three_tank"])
def test_the_gradient_on_a_gauss_rule_is_that_of_the_evidence(name: str) -> None:
    """One and two free functions; against central differences, good to about 1e-7."""
    _, spectral, _, hyper = engines(name, 8)
    hyper = drawn(hyper, 2)
    waves, _ = SpectralEvaluation(spectral, hyper).choose_resolution()
    assert waves.gauss_rule is not None
    gradient = gradient_vector(spectral.evaluate(hyper))
    for k in range(0, len(gradient), 3):
        step = 1e-5 * max(1.0, abs(hyper.theta[k])) if k < len(hyper.theta) else 1e-5
        difference = (spectral.value(shifted(hyper, k, step)) - spectral.value(shifted(hyper, k, -step))) / (2 * step)
        assert gradient[k] == pytest.approx(difference, abs=2e-6 * np.abs(gradient).max())


@pytest.mark.parametrize(("name", "is_forgotten"), [("rlc_circuit", True), ("two_mass", False)])
def test_far_beyond_the_data_waves_say_what_a_matrix_says(
    name: str, is_forgotten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that forgets has its prior there; one that does not is refused in words, where it asks for too much."""
    dense, spectral, _, hyper = engines(name, 25)
    hyper = drawn(hyper, 2)
    observables, times = dense.prior.observables, np.array([-3.0, 6.0, 15.0] + [400.0, 1e5] * is_forgotten)
    first, second = dense.posterior(hyper), spectral.posterior(hyper)
    for time in times:
        expected = first.variance(observables, np.array([time]))
        np.testing.assert_allclose(second.variance(observables, np.array([time])), expected, rtol=1e-7)
        apart = second.mean(observables, np.array([time])) - first.mean(observables, np.array([time]))
        assert np.abs(apart / np.sqrt(expected)).max() < 1e-5
    if not is_forgotten:
        monkeypatch.setattr("lodekit.prior.channel_prior.channel_spectrum.MAX_GAUSS_WAVES", 100)
        with pytest.raises(LodekitError, match="expected times closer to the data"):
            second.mean(observables, np.array([1e5]))


def narrow(width: float) -> SpectralPoint:
    """An undamped oscillator over a background: the peak lies between the nodes of every panel of the first round."""
    channels = np.array([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], [[81.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    channels = np.concatenate([channels, [[[0.0, 0.0, 0.0], [1.0, 0.3, 0.0]]]])
    return SpectralPoint(channels, channels, np.array([0.1, 0.1, 0.1]), np.array([1.0, width, 0.3]))


@pytest.mark.parametrize("width", [1e-2, 1e-5, 1e-8])
def test_a_peak_on_a_background_is_found_by_the_determinant(width: float) -> None:
    """Its flanks are far below the background; the panels become as narrow as the peak all the same."""
    found = quadrature.build_frequency_panels(narrow(width), 1.0)
    assert found is not None
    assert float(np.min(found.highs - found.lows)) < 10.0 * width


@pytest.mark.parametrize("longest", [20.0, 5e3, 5e7])
def test_a_channel_that_hardly_changes_keeps_its_variance(longest: float) -> None:
    """Its density is a peak at zero that no other frequency shows; against the same integral over the logarithm."""
    channels = np.array([[[14.0, 0.0, 0.0]], [[0.0, 0.6, 0.0]], [[13.0, 0.7, 0.015]]])
    point = SpectralPoint(channels, channels, np.array([0.1, 0.12, longest]), np.array([0.02, 9.0, 9.0]))
    found = quadrature.build_frequency_panels(point, 1.0)
    assert found is not None
    u = np.linspace(np.log(1e-10 / longest), np.log(300.0), 4001)
    expected = (
        np.sum(ConditionedDensity(np.exp(u), point).observable_density * np.exp(u), axis=1) * (u[1] - u[0]) / np.pi
    )
    np.testing.assert_allclose(
        ConditionedDensity(found.frequencies, point).observable_density @ found.weights, expected, rtol=1e-8
    )
    before = quadrature.build_frequency_panels(replace(point, lengthscales=np.array([0.1, 0.12, 1.0])), 1.0)
    assert before is not None
    assert not before.is_accurate(
        ConditionedDensity(before.frequencies, point), quadrature.QuadratureTolerance(np.ones(3))
    )


def test_coarser_panels_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels that are not halved as far as a peak asks for say what they may miss."""
    point, noise = narrow(1e-5), np.full(3, 1e-4)
    right = ChannelSpectrum().frequencies(point, noise, 1.0)
    assert right.gauss_rule is not None
    assert right.truncation_error < 1e-9
    monkeypatch.setattr(quadrature, "MIN_RELATIVE_PANEL_WIDTH", 1e-2)
    coarse = ChannelSpectrum().frequencies(point, noise, 1.0)
    assert coarse.truncation_error > 1e-6


def test_a_rule_of_too_few_waves_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process ends early, the evidence has an error that nobody trusts."""
    _, spectral, measurements, hyper = engines("two_mass", 15)
    hyper = drawn(hyper, 1)
    right = spectral.value(hyper)
    for name in ("GRADIENT_WAVE_TOLERANCE", "CHANNEL_WAVE_TOLERANCE"):
        monkeypatch.setattr(f"lodekit.prior.channel_prior.quadrature.{name}", 1.0)
    value, error = SpectralEngine(spectral.prior, measurements, 1e2).value_with_error(hyper)
    assert abs(value - right) > 1e-3
    assert error > MAX_EVIDENCE_ERROR * max(spectral.size, abs(value))
