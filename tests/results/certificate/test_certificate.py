"""The certificate passes on what is right, in every shape of fit, and says what it measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.inference.fallback import NEGLIGIBLE_MEAN_ERROR, FallbackPosterior
from lodekit.results import certificate
from lodekit.results.certificate import compute_mean_residuals
from lodekit.results.prediction import predict
from tests.inference.fitted import EXAMPLES, keep_model

CATALOG = [example.name for example in lk.catalog.examples()]


def fit(name: str, noise: float, **options: object) -> lk.LODEGP:
    example, times = EXAMPLES[name], np.linspace(1.0, 6.0, 25)
    table = example.solution_at(times)
    table = table + noise * table.std(axis=0) * np.random.default_rng(0).standard_normal(table.shape)
    return lk.LODEGP(example.system, noise="channel", random_state=0, restarts=1, **options).fit(times, table)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CATALOG)
def test_curves_without_noise_keep_their_digits(name: str) -> None:
    """Weights over nearly noise-free data are huge and cancel: 4e-5 of the terms was left, by rounding alone."""
    gp = keep_model(EXAMPLES[name], np.linspace(1.0, 6.0, 25), 0.0, level=1e-7)
    found = gp.certificate(np.linspace(1.0, 6.0, 60))
    assert found.is_strict
    assert found.residual < 1e-8
    assert found.uncertainty < 1e-8


def test_a_fit_to_data_without_noise_keeps_its_digits() -> None:
    found = fit("bipendulum", 0.0).certificate(np.linspace(1.0, 6.0, 60))
    assert found.is_strict
    # Where the search for a vanishing noise ends, and so how smooth the samples are, depends on rounding.
    assert found.residual < max(1e-8, found.uncertainty) < 1e-7


def test_little_noise_is_answered_on_waves() -> None:
    # Given hyperparameters: whether the dense matrix still factorises at a fitted optimum depends on the BLAS kernels.
    gp = keep_model(EXAMPLES["bipendulum"], np.linspace(1.0, 6.0, 25), 1e-4, level=1e-5)
    assert isinstance(gp.fit_.posterior, FallbackPosterior)
    first, second = gp.fit_.posterior.primary, gp.fit_.posterior.fallback
    assert second.mean_rounding_error < NEGLIGIBLE_MEAN_ERROR < first.mean_rounding_error
    observables, times = gp.fit_.observables(["f1", "u"]), np.linspace(0.5, 6.5, 50)
    scale = np.abs(first.mean(observables, times)).max(axis=0)
    # The dense mean is the same up to the rounding that it expects of itself, more of it at the ends of the data.
    apart = np.abs(first.mean(observables, times) - second.mean(observables, times)) / scale
    assert apart.max() < 1000 * first.mean_rounding_error
    assert np.median(apart) < 10 * first.mean_rounding_error
    assert gp.log_evidence_ in (first.value, second.value)
    # The dense evidence is off by what it says of itself.
    assert abs(first.value - second.value) < 10.0 * first.error + 1e-6 * abs(second.value)
    noisy = keep_model(EXAMPLES["bipendulum"], np.linspace(1.0, 6.0, 25), 0.3, level=0.3)
    assert not isinstance(noisy.fit_.posterior, FallbackPosterior)


def test_where_waves_cannot_reach_the_matrix_answers() -> None:
    gp = keep_model(EXAMPLES["heating"], np.linspace(1.0, 6.0, 25), 0.0, level=1e-5)
    posterior, observables, far = gp.fit_.posterior, gp.fit_.observables(["f1"]), np.array([1.0, 3000.0])
    assert isinstance(posterior, FallbackPosterior)
    with pytest.raises(lk.LodekitError, match="Fourier features"):
        posterior.fallback.sample(observables, far, 1, np.random.default_rng(0))
    expected = posterior.primary.sample(observables, far, 1, np.random.default_rng(0))
    np.testing.assert_allclose(gp.sample(far, 1, 0, ["f1"], parameters="fixed"), expected)


@pytest.mark.parametrize("latent", ["matern-9/2", "matern-13/2"])
def test_rough_priors_are_measured_between_the_data(latent: str) -> None:
    found = keep_model(EXAMPLES["heating"], np.linspace(1.0, 6.0, 25), 0.02, level=0.02, latent=latent).certificate()
    assert found.is_strict
    assert found.mean.residual < 1e-7
    assert found.samples is not None


@pytest.fixture(scope="module")
def heated() -> lk.LODEGP:
    return fit("heating", 0.02)


def test_what_is_printed(heated: lk.LODEGP) -> None:
    text = str(heated.certificate(samples=1))
    assert "U A V = D" in text
    assert "Measured on the returned curves, at 201 times" in text
    assert "numerical differentiation error" in text
    assert "1 sample " in text


def test_any_times_in_any_order_and_number(heated: lk.LODEGP) -> None:
    assert heated.certificate([3.0], samples=1).is_strict
    assert heated.certificate(np.array([9.0, -2.0, 4.0]), samples=1).is_strict
    many = np.random.default_rng(0).uniform(0, 7, 5000)
    assert len(compute_mean_residuals(heated.fit_, many).times) == 2000
    with pytest.raises(lk.LodekitError, match="samples"):
        heated.certificate(samples=-1)
    with pytest.raises(lk.LodekitError, match="at least one time"):
        heated.certificate([])


def test_far_from_time_zero() -> None:
    """Seconds since 1970: nodes are rounded to a ten-millionth of a second, and polynomials must know."""
    example, times = EXAMPLES["bipendulum"], np.linspace(1.0, 6.0, 25)
    table = example.solution_at(times) + 1e-3 * np.random.default_rng(0).standard_normal((25, 3))
    gp = lk.LODEGP(example.system, random_state=0, restarts=1).fit(times + 1.7e9, table)
    assert gp.certificate().residual < 1e-9


def test_times_that_floats_cannot_tell_apart() -> None:
    times = 1.7e9 + 1e-5 * np.arange(5)
    gp = lk.LODEGP(lk.System("x' = v"), random_state=0, restarts=1).fit(times, {"x": [0.0, 0.9, 2.1, 3.0, 4.0]})
    with pytest.raises(lk.LodekitError, match="subtract their origin"):
        gp.certificate()


def test_one_time_only_and_fast_modes() -> None:
    one = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([2.0], {"x": [1.0]})
    assert one.certificate().is_strict
    system = lk.System("x' = -400*x + u; u' = 30*u")
    times = np.linspace(0.0, 1.0, 30)
    u = np.exp(30 * (times - 1))
    gp = lk.LODEGP(system, random_state=0, noise="channel").fit(times, {"x": u / 430, "u": u})
    assert gp.certificate().is_strict


@pytest.mark.parametrize("equations", ["x' = v", "x'' + 2*x' + 5*x = u", "x1' = -x1 + x2; x2' = -2*x2 + u"])
def test_a_smooth_perturbation_of_one_millionth_is_noticed(equations: str, monkeypatch: pytest.MonkeyPatch) -> None:
    times = np.linspace(0.0, 6.0, 25)
    system = lk.System(equations)
    noise = 0.02 * np.random.default_rng(0).standard_normal(25)
    gp = lk.LODEGP(system, random_state=0).fit(times, {system.plain_channels[0]: np.sin(times) + noise})
    assert gp.certificate(samples=0).is_strict

    def perturbed(fit: Any, at: Any, names: Any) -> Any:
        curves = predict(fit, at, names)
        curves[:, 0] += 3e-7 * np.sin(1.3 * np.asarray(at))
        return curves

    monkeypatch.setattr(certificate, "predict", perturbed)
    assert not gp.certificate(samples=0).is_strict


def test_a_residual_below_the_error_of_differentiation_is_inconclusive() -> None:
    """Curves under disturbances have kinks, at which polynomials have larger errors than any residual."""
    gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0.0, 1.0, 2.0], {"x": [1.0, 1.5, 1.2]})
    found = gp.certificate(samples=0)
    assert found.is_strict
    assert not found.is_inconclusive
    rough = replace(found.mean, residuals=found.mean.residuals + 2e-5, errors=found.mean.errors + 3e-5)
    hidden = replace(found, mean=rough)
    assert (hidden.is_strict, hidden.is_inconclusive) == (False, True)
    wrong = replace(found, mean=replace(rough, errors=found.mean.errors + 1e-9))
    assert (wrong.is_strict, wrong.is_inconclusive) == (False, False)
