"""Bands and samples count that everything was estimated; at fixed parameters they are those of the posterior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import lodekit as lk
from lodekit.uncertainty.laplace import UNIDENTIFIED_STD, regularized_covariance_root
from tests.inference.fitted import EXAMPLES, solution_table

DECAY = EXAMPLES["free_decay"]
TIMES = np.linspace(0.0, 8.0, 30)
GRID = np.linspace(0.0, 12.0, 9)
NOISE = 0.03


def decay_data(seed: int = 0) -> np.ndarray:
    return solution_table(DECAY, TIMES) + NOISE * np.random.default_rng(seed).standard_normal((30, 1))


@pytest.fixture(scope="module")
def decay() -> lk.LODEGP:
    return lk.LODEGP(DECAY.system, random_state=0).fit(TIMES, decay_data(), noise_std=NOISE)


def test_bands_are_those_of_nonlinear_least_squares(decay: lk.LODEGP) -> None:
    """A decay has two free numbers beside c and k; all four by textbook least squares, without any Gaussian process."""
    c, k = (decay.parameters_[name].value for name in "ck")

    def curve(t: np.ndarray, c: float, k: float, a: float, b: float) -> np.ndarray:
        speed = np.sqrt(k - c * c / 4)
        return np.asarray(np.exp(-c * t / 2) * (a * np.cos(speed * t) + b * np.sin(speed * t)))

    def design(t: np.ndarray, point: np.ndarray) -> np.ndarray:
        steps = 1e-6 * np.eye(4)
        return np.stack([(curve(t, *(point + s)) - curve(t, *(point - s))) / 2e-6 for s in steps], axis=1)

    waves = np.stack([curve(TIMES, c, k, 1.0, 0.0), curve(TIMES, c, k, 0.0, 1.0)], axis=1)
    point = np.array([c, k, *np.linalg.lstsq(waves, decay_data()[:, 0], rcond=None)[0]])
    covariance = NOISE**2 * np.linalg.inv(design(TIMES, point).T @ design(TIMES, point))
    expected = design(GRID, point) @ covariance @ design(GRID, point).T
    mean, std, found = decay.predict(GRID, "x", return_std=True, return_cov=True)
    # The prior of the modes draws towards zero a little, and the curvature is not that of squares alone.
    np.testing.assert_allclose(mean, curve(GRID, *point), atol=0.1 * np.sqrt(np.diag(expected)).min())
    np.testing.assert_allclose(std, np.sqrt(np.diag(expected)), rtol=0.05)
    np.testing.assert_allclose(found, expected, atol=0.1 * np.diag(expected).max())
    # What is left out otherwise is no small part of it.
    _, alone = decay.predict(GRID, "x", return_std=True, parameters="fixed")
    assert (alone[-3:] < 0.5 * std[-3:]).all()


def test_the_added_variance_is_that_of_means_at_drawn_parameters(decay: lk.LODEGP) -> None:
    fit = decay.fit_
    generator = np.random.default_rng(1)
    points = generator.multivariate_normal(fit.optimum.x, np.linalg.inv(fit.observed_information), 400)
    observables = fit.observables(["x", "x'"])
    means = [fit.setup.engine.posterior(fit.layout.unpack(point)).mean(observables, GRID) for point in points]
    _, wide = decay.predict(GRID, ["x", "x'"], return_std=True)
    _, narrow = decay.predict(GRID, ["x", "x'"], return_std=True, parameters="fixed")
    # A variance from 400 draws is known to 7 %; four times that.
    np.testing.assert_allclose(np.var(means, axis=0), wide**2 - narrow**2, rtol=0.28, atol=1e-3 * (wide**2).max())


def test_fixed_parameters_give_the_posterior_itself(decay: lk.LODEGP) -> None:
    observables = decay.fit_.observables(["x"])
    mean, std, cov = decay.predict(GRID, return_std=True, return_cov=True, parameters="fixed")
    np.testing.assert_array_equal(mean, decay.predict(GRID))
    np.testing.assert_allclose(std**2, decay.fit_.posterior.variance(observables, GRID))
    np.testing.assert_allclose(cov, decay.fit_.posterior.covariance(observables, GRID))
    drawn = decay.sample(GRID, 3, 5, parameters="fixed")
    again = decay.fit_.posterior.sample(observables, GRID, 3, np.random.default_rng(5))
    np.testing.assert_allclose(drawn, again)
    _, own = decay.sample(GRID, 3, 5, parameters="fixed", return_parameters=True)
    np.testing.assert_array_equal(own["c"], [decay.parameters_["c"].value] * 3)


def test_samples_spread_as_the_bands_do(decay: lk.LODEGP) -> None:
    drawn, own = decay.sample(GRID, 300, 0, "x", return_parameters=True)
    mean, cov = decay.predict(GRID, "x", return_cov=True)
    std = np.sqrt(np.diag(cov))
    # 300 draws: means within five standard errors, deviations (known to 4 %) within four.
    assert np.abs((drawn.mean(axis=0) - mean) / std).max() < 5 / np.sqrt(300)
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.16)
    np.testing.assert_allclose(np.cov(drawn.T), cov, atol=0.2 * np.diag(cov).max())
    for name in "ck":
        estimate = decay.parameters_[name]
        assert own[name].std() == pytest.approx(estimate.std_error, rel=0.16)


def test_every_sample_solves_the_equations_at_its_own_parameters(decay: lk.LODEGP) -> None:
    drawn, own = decay.sample(GRID, 4, 0, ["x", "x'", "x''"], return_parameters=True)
    c, k = own["c"][:, None], own["k"][:, None]
    size = np.abs(drawn[:, :, 2]).max()
    assert np.abs(drawn[:, :, 2] + c * drawn[:, :, 1] + k * drawn[:, :, 0]).max() < 1e-12 * size
    learned = [decay.parameters_[name].value for name in "ck"]
    assert np.abs(drawn[:, :, 2] + learned[0] * drawn[:, :, 1] + learned[1] * drawn[:, :, 0]).max() > 1e-4 * size
    assert np.abs(decay.residual(GRID, samples=4, random_state=0, relative=True)).max() < 1e-12
    assert decay.residual(GRID, samples=4).shape == (4, 9, 1)
    found = decay.certificate(samples=2)
    assert found.is_strict
    assert found.own
    assert "with the parameters that were drawn with it" in str(found)
    # A function has its parameters whatever the times it is asked for.
    _, again = decay.sample(GRID[:2], 4, 0, return_parameters=True)
    np.testing.assert_array_equal(again["c"], own["c"])


@pytest.fixture(scope="module")
def learned() -> lk.LODEGP:
    """The same with noise that is learned."""
    return lk.LODEGP(DECAY.system, random_state=0).fit(TIMES, decay_data())


def test_bands_do_not_depend_on_units(learned: lk.LODEGP) -> None:
    hour, metre = 3600.0, 1e-3
    second = lk.LODEGP(
        lk.System(
            DECAY.system.equations[0],
            parameters={
                "c": lk.Parameter(positive=True, start=0.5 / hour),
                "k": lk.Parameter(positive=True, start=4.5 / hour**2),
            },
        ),
        random_state=0,
    ).fit(hour * TIMES, metre * decay_data())
    _, std = learned.predict(GRID, return_std=True)
    _, other = second.predict(hour * GRID, return_std=True)
    np.testing.assert_allclose(other, metre * std, rtol=1e-2)


def test_what_cannot_be_told_apart_does_no_harm() -> None:
    """Only a + b matters: the evidence is flat along a line, and the bands are those of the sum."""
    data = np.exp(-0.5 * TIMES) + 0.02 * np.random.default_rng(0).standard_normal(30)
    positive = lk.Parameter(positive=True)
    one = lk.LODEGP(lk.System("x' = -s*x", parameters={"s": positive}), random_state=0).fit(TIMES, data)
    two = lk.LODEGP(lk.System("x' = -(a + b)*x", parameters={"a": positive, "b": positive}), random_state=0)
    two.fit(TIMES, data)
    _, std = one.predict(GRID, "x", return_std=True)
    _, other = two.predict(GRID, "x", return_std=True)
    np.testing.assert_allclose(other, std, rtol=0.05)
    drawn = two.sample(GRID, 50, 0, "x")
    assert np.abs(drawn - two.predict(GRID, "x")).max() < 6 * std.max()


def test_parameters_of_either_sign_are_drawn_around_their_estimate() -> None:
    system = lk.System("T' = -k*(T - Ta)", parameters={"k": lk.Parameter(positive=True), "Ta": lk.Parameter()})
    data = np.exp(-TIMES) + 0.2 * np.random.default_rng(0).standard_normal(30)
    gp = lk.LODEGP(system, random_state=0).fit(TIMES, data)
    _, own = gp.sample(GRID, 300, 0, return_parameters=True)
    estimate = gp.parameters_["Ta"]
    # With slow decays lower values are likely, too: the upper end of the interval is that of the curvature.
    error = (estimate.interval[1] - estimate.value) / 2.03
    assert own["Ta"].mean() == pytest.approx(estimate.value, abs=4 * error / np.sqrt(300))
    # The estimate is so close to zero that the scale of the search bends within its error.
    assert own["Ta"].std() == pytest.approx(error, rel=0.2)
    assert np.mean(np.abs(own["Ta"] - estimate.value) < error) == pytest.approx(0.68, abs=0.1)


def test_hyperparameters_count_without_parameters_too(tmp_path: Path) -> None:
    times = np.linspace(1.0, 6.0, 12)
    tank = EXAMPLES["three_tank"]
    table = solution_table(tank, times) + 0.05 * np.random.default_rng(0).standard_normal((12, 5))
    gp = lk.LODEGP(tank.system, random_state=0, restarts=1).fit(times, table)
    _, std = gp.predict([3.0, 9.0], return_std=True)
    _, alone = gp.predict([3.0, 9.0], return_std=True, parameters="fixed")
    assert (std > alone).all()
    assert (std < 3 * alone).all()
    # Files of earlier versions have no curvature there.
    lk.LODEGP.from_fit(replace(gp.fit_, observed_information=np.zeros_like(gp.fit_.observed_information))).save(
        tmp_path / "old.lodekit"
    )
    loaded = lk.LODEGP.load(tmp_path / "old.lodekit")
    # It is measured again, along other directions: its differences agree to some 1e-5.
    np.testing.assert_allclose(loaded.predict([3.0, 9.0], return_std=True)[1], std, rtol=1e-4)


def test_the_score_is_the_density_under_the_bands(decay: lk.LODEGP) -> None:
    new = decay_data(7)[:5, 0]
    mean, std = decay.predict(TIMES[:5], "x", return_std=True)
    expected = norm.logpdf(new, mean, np.hypot(std, NOISE)).mean()
    assert decay.score(TIMES[:5], {"x": new}) == pytest.approx(expected, rel=1e-12)


def test_no_times_and_nothing_that_can_move(decay: lk.LODEGP) -> None:
    assert [part.shape for part in decay.predict([], return_std=True)] == [(0, 1), (0, 1)]
    mean, cov = decay.predict([], "x", return_cov=True)
    assert (mean.shape, cov.shape) == ((0,), (0, 0))
    # What sits at a limit of the search stays there.
    fixed = replace(
        decay.fit_, optimum=replace(decay.fit_.optimum, at_bound=np.ones(decay.fit_.layout.size, dtype=bool))
    )
    kept = lk.LODEGP.from_fit(fixed)
    np.testing.assert_allclose(
        kept.predict(GRID, return_std=True)[1], decay.predict(GRID, return_std=True, parameters="fixed")[1]
    )
    _, own = kept.sample(GRID, 2, 0, return_parameters=True)
    np.testing.assert_allclose(own["k"], decay.parameters_["k"].value)


def test_unknown_words_for_parameters_are_refused(decay: lk.LODEGP) -> None:
    request: Callable[[], object]
    for request in (lambda: decay.predict(GRID, parameters="learned"), lambda: decay.sample(GRID, parameters="all")):
        with pytest.raises(lk.LodekitError, match="expected parameters='uncertain' or 'fixed'"):
            request()


def test_errors_count_that_noise_was_learned_from_the_same_data(decay: lk.LODEGP, learned: lk.LODEGP) -> None:
    """Three numbers bend the curve to 30 measurements: c, k and the deviation of the modes."""
    fit = learned.fit_
    assert fit.layout.size == 4
    np.testing.assert_allclose(fit.corrected_information, fit.observed_information * 27 / 30)
    spread = np.sqrt(np.linalg.inv(fit.observed_information)[0, 0] * 30 / 27)
    assert fit.estimates["c"].std_error == pytest.approx(fit.estimates["c"].value * spread, rel=1e-6)
    np.testing.assert_array_equal(decay.fit_.corrected_information, decay.fit_.observed_information)


def test_roots_of_covariances_are_finite_whatever_the_curvature() -> None:
    inside = np.ones(3, dtype=bool)
    curvature = np.array([[1e12, 0.0, 0.0], [0.0, 50.0, 10.0], [0.0, 10.0, 4.0]])
    root = regularized_covariance_root(curvature, inside, np.full(3, 1e6))
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(curvature), rtol=1e-6, atol=1e-18)
    # A saddle, a bound and something that is not finite.
    saddle = np.diag([1.0, -4.0, np.nan])
    root = regularized_covariance_root(saddle, np.array([False, True, True]), np.full(3, UNIDENTIFIED_STD))
    np.testing.assert_allclose(root @ root.T, np.diag([0.0, UNIDENTIFIED_STD**2, 0.0]), atol=1e-12)
    assert regularized_covariance_root(saddle, ~inside, np.full(3, UNIDENTIFIED_STD)).shape == (3, 0)
