"""The posterior agrees with the textbook formula, with dropped rows, and across units; mean and samples are strict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.observations import TimeSeries
from lodekit.inference.dense.engine import factorize_covariance
from lodekit.inference.dense.evidence import DenseData, assemble_covariance
from lodekit.inference.dense.posterior import DensePosterior
from tests.inference.fitted import EXAMPLES, EXTRA, keep_model, make_case, solution_table

CASES = [*EXAMPLES, *EXTRA]


def textbook(name: str, new: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Condition the joint normal distribution of data and predictions directly, with a general solver."""
    _, data, _, hyper = make_case(name, count=6)
    state = factorize_covariance(data, hyper)
    assert state is not None
    posterior = DensePosterior(data, hyper, state)
    observables = data.observables
    mean, covariance = posterior.mean(observables, new), posterior.covariance(observables, new)
    variance = posterior.variance(observables, new)
    # The joint covariance of old and new times comes from the assembly of the data covariance, an independent path.
    both = np.concatenate([data.times, new])
    order = np.argsort(both)
    unknown = np.full(len(both), np.nan)
    names = data.prior.noise.observables
    joint = DenseData.from_series(data.prior, [TimeSeries(name, both, np.zeros(len(both)), unknown) for name in names])
    joint = replace(joint, times=both[order], index=[np.argsort(order)] * len(names))
    wide = factorize_covariance(joint, hyper)
    assert wide is not None
    K = assemble_covariance(joint, wide.kernel_derivatives, wide.terms)
    K = np.tril(K) + np.tril(K, -1).T
    n, total, count = len(data.times), len(both), len(data.index)
    old = np.concatenate([np.arange(n) + o * total for o in range(count)])
    fresh = np.concatenate([np.arange(n, total) + o * total for o in range(count)])
    noise = data.noise.variance(hyper.noise_std)
    gain = np.linalg.solve(K[np.ix_(old, old)] + np.diag(noise), K[np.ix_(old, fresh)]).T
    means, _ = observables.means(observables.evaluate(hyper.theta), new)
    expected_mean = (gain @ state.terms.residual).reshape(count, -1).T + np.stack(means, axis=1)
    expected_cov = K[np.ix_(fresh, fresh)] - gain @ K[np.ix_(old, fresh)]
    shaped = expected_cov.reshape(count, len(new), count, len(new)).transpose(1, 0, 3, 2)
    np.testing.assert_allclose(np.einsum("ioio->io", covariance), variance, atol=1e-8)
    return mean, covariance, expected_mean, shaped


@pytest.mark.parametrize("name", CASES)
def test_posterior_is_the_textbook_formula(name: str) -> None:
    """Tolerance: both ways lose the condition number of K + noise, below 1e6 here, against the prior's size."""
    new = np.array([0.2, 1.1, 2.345, 5.0])
    mean, covariance, expected_mean, expected_cov = textbook(name, new)
    scale = np.abs(expected_mean).max() + np.sqrt(np.abs(expected_cov).max())
    np.testing.assert_allclose(mean, expected_mean, atol=1e-8 * scale)
    np.testing.assert_allclose(covariance, expected_cov, atol=1e-8 * scale**2)


def fitted(example: lk.catalog.Example, **options: object) -> tuple[lk.LODEGP, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    times = np.linspace(0.5, 5.0, 16)
    table = solution_table(example, times)
    table = table + 0.03 * (table.std(axis=0) + 1e-3) * generator.standard_normal(table.shape)
    parameters = {
        name: lk.Parameter(positive=p.positive, start=float(example.values[name]))
        for name, p in example.system.parameters.items()
    }
    system = lk.System(list(example.system.equations), parameters=parameters, channels=example.system.channels)
    return lk.LODEGP(system, random_state=0, restarts=2, **options).fit(times, table), times, table  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EXAMPLES)
def test_mean_and_samples_satisfy_the_equations_in_and_out_of_the_data(name: str) -> None:
    """By their own derivatives and by a measurement of the curves; by construction a few units of rounding."""
    gp = keep_model(EXAMPLES[name], np.linspace(0.5, 5.0, 16), 0.03, level=0.03)
    everywhere = np.linspace(-1.5, 9.0, 40)
    assert np.abs(gp.residual(everywhere, relative=True)).max() < 1e-9
    assert np.abs(gp.residual(everywhere, samples=3, random_state=1, relative=True)).max() < 1e-9
    certificate = gp.certificate(everywhere)
    assert certificate.residual < 1e-9
    assert "U A V = D" in str(certificate)


@pytest.fixture(scope="module")
def heated() -> tuple[lk.LODEGP, np.ndarray, np.ndarray]:
    return fitted(EXAMPLES["heating"])


def test_the_derivative_of_the_mean_is_its_finite_difference(heated: tuple[lk.LODEGP, np.ndarray, np.ndarray]) -> None:
    """Closed-form derivatives are those of the predicted curve itself: the residual hides nothing."""
    gp, times, _ = heated
    step = 1e-4
    for observable in ("f1", "u"):
        slope = gp.predict(times, f"{observable}'")
        curves = [gp.predict(times + h, observable) for h in (-2 * step, -step, step, 2 * step)]
        difference = (curves[0] - 8 * curves[1] + 8 * curves[2] - curves[3]) / (12 * step)
        np.testing.assert_allclose(slope, difference, atol=1e-7)


def test_samples_have_the_posterior_mean_and_deviation() -> None:
    """4000 draws: means within 5 standard errors, standard deviations within 8 % (3.5 standard errors)."""
    for latent in ("se", "matern-9/2"):
        gp, times, _ = fitted(EXAMPLES["three_tank"], latent=latent)
        draws = gp.sample(times[::3], 4000, random_state=0, parameters="fixed")
        mean, std = gp.predict(times[::3], return_std=True, parameters="fixed")
        assert np.abs((draws.mean(axis=0) - mean) / std * np.sqrt(4000)).max() < 5
        assert np.abs(draws.std(axis=0) / std - 1).max() < 0.08


def test_samples_are_stable_where_the_covariance_is_nearly_singular(
    heated: tuple[lk.LODEGP, np.ndarray, np.ndarray],
) -> None:
    gp, times, _ = heated
    close = times[0] + np.linspace(0, 1e-6, 50)
    draws = gp.sample(close, 5, random_state=0)
    assert np.isfinite(draws).all()
    assert np.abs(np.diff(draws, axis=1)).max() < 1e-4


def test_missing_values_are_the_same_as_dropped_rows() -> None:
    system = EXAMPLES["heating"].system
    generator = np.random.default_rng(0)
    times = np.linspace(0, 5, 20)
    table = solution_table(EXAMPLES["heating"], times) + 0.02 * generator.standard_normal((20, 3))
    holes = generator.random(table.shape) < 0.3
    punched = np.where(holes, np.nan, table)
    data = lk.Observations()
    for j, channel in enumerate(system.channels):
        data = data.add(times[~holes[:, j]], channel, table[~holes[:, j], j])
    first = lk.LODEGP(system, random_state=0).fit(times, punched)
    second = lk.LODEGP(system, random_state=0).fit(data)
    new = np.linspace(-1, 7, 15)
    # Searches whose numbers differ by rounding end within 1e-6 of each other.
    for a, b in zip(first.predict(new, return_std=True), second.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
    assert first.log_evidence_ == pytest.approx(second.log_evidence_, abs=1e-6)


def test_the_order_of_rows_does_not_matter(heated: tuple[lk.LODEGP, np.ndarray, np.ndarray]) -> None:
    gp, times, table = heated
    order = np.random.default_rng(1).permutation(len(times))
    again = lk.LODEGP(gp.system, random_state=0, restarts=2).fit(times[order], table[order])
    # Searches whose numbers differ by rounding end within 1e-6 of each other.
    np.testing.assert_allclose(again.predict(times), gp.predict(times), rtol=0, atol=1e-5)


def test_unix_seconds_give_the_same_as_hours_from_the_start() -> None:
    """The equations change units with the time; everything else follows. Tolerance: the optimiser's, 1e-5 relative."""
    example = EXAMPLES["heating"]
    hours = np.linspace(0, 5, 20)
    table = solution_table(example, hours) + 0.02 * np.random.default_rng(0).standard_normal((20, 3))
    near = {n: lk.Parameter(positive=True, start=float(v)) for n, v in example.values.items()}
    slow = lk.LODEGP(lk.System(list(example.system.equations), parameters=near), random_state=0).fit(hours, table)
    text = "3600*f1' = -a*(f1 - f2) + u; 3600*f2' = -b*(f2 - f1)"
    unix = 1.7e9 + 3600 * hours
    fast = lk.LODEGP(lk.System(text, parameters=near, channels=example.system.channels), random_state=0).fit(
        unix, table
    )
    for name in near:
        assert fast.parameters_[name].value == pytest.approx(slow.parameters_[name].value, rel=1e-4)
        assert fast.parameters_[name].std_error == pytest.approx(slow.parameters_[name].std_error, rel=1e-2)
    assert fast.log_evidence_ == pytest.approx(slow.log_evidence_, abs=1e-4)
    for a, b in zip(fast.predict(unix, return_std=True), slow.predict(hours, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_a_channel_in_micro_units_gives_the_same_as_in_units() -> None:
    """With its own noise, a channel may be measured in any unit; predictions and errors scale with it."""
    example = EXAMPLES["heating"]
    times = np.linspace(0, 5, 20)
    table = solution_table(example, times) + 0.02 * np.random.default_rng(0).standard_normal((20, 3))
    near = {n: lk.Parameter(positive=True, start=float(v)) for n, v in example.values.items()}
    plain = lk.LODEGP(lk.System(list(example.system.equations), parameters=near), noise="channel", random_state=0)
    plain.fit(times, table)
    text = "f1' = -a*(f1 - f2) + u/1000000; f2' = -b*(f2 - f1)"
    micro = lk.LODEGP(
        lk.System(text, parameters=near, channels=example.system.channels), noise="channel", random_state=0
    )
    micro.fit(times, table * [1, 1, 1e6])
    for name in near:
        assert micro.parameters_[name].value == pytest.approx(plain.parameters_[name].value, rel=1e-4)
    np.testing.assert_allclose(micro.predict(times) / [1, 1, 1e6], plain.predict(times), atol=1e-4)
    assert micro.log_evidence_ == pytest.approx(plain.log_evidence_ - 20 * np.log(1e6), abs=1e-3)
