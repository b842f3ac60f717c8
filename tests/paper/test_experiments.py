"""The paper's data, what is measured on models, and four ways to learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import dblquad

import lodekit as lk
from lodekit.paper import model_comparison
from lodekit.paper.experiments import experiments, find_experiment, load_published_results
from lodekit.paper.methods import TrainedModel, train, train_batch
from lodekit.paper.metrics import count_eigenvalues, curve_residual, ode_error

Array = NDArray[np.float64]

# GPyTorch's own notices are not ours.
quiet = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*jitter.*")


def test_data_are_those_of_the_paper() -> None:
    assert set(experiments()) == {"bipendulum", "heating", "three_tank"}
    for name, experiment in experiments().items():
        assert experiment.times.shape == (25,)
        assert (experiment.times[0], experiment.times[-1]) == tuple(load_published_results()["protocol"][name]["train"])
        exact, noisy = experiment.data(0, noisy=False), experiment.data(0)
        assert np.std(noisy - exact) == pytest.approx(experiment.noise_std, rel=0.3)
    assert find_experiment("three-tank").system.channels == ("f1", "f2", "f3", "u1", "u2")
    assert find_experiment("heating").parameters == {"a": 3.0, "b": 1.0}
    with pytest.raises(lk.LodekitError, match="expected one of bipendulum"):
        find_experiment("four-tank")
    with pytest.raises(lk.LodekitError, match="expected one of paper"):
        train(find_experiment("heating"), "guess", 0)
    with pytest.raises(lk.LodekitError, match="one data set at least"):
        train_batch(find_experiment("heating"), "lodekit", ())


def test_published_figures_agree_with_each_other() -> None:
    heating = load_published_results()["heating_parameters"]
    for runs, key in (("noisy", "max_relative_error_noisy"), ("noise_free", "max_relative_error_noise_free")):
        largest = np.max(np.abs(np.array(heating[runs]) / [3.0, 1.0] - 1))
        # Two last digits were wrong once: 3.15 and 3.12 %.
        assert largest == pytest.approx(heating[key], abs=5e-5)
        assert len(heating[runs]) == heating["runs"]
    for system in experiments():
        for model, kind in (("lodegp", "noisy"), ("gp", "exact")):
            for median, _, low, high in load_published_results()["hyperparameters"][system][model][kind].values():
                assert low <= median <= high
    for box in load_published_results()["bipendulum_ode_boxplot"].values():
        assert box["low"] <= box["q1"] <= box["median"] <= box["q3"] <= box["high"]
    figures = load_published_results()["hyperparameters"]
    trained = [figures[system][model]["exact"]["noise"][2] for system in experiments() for model in ("lodegp", "gp")]
    # The bound that the text gives is above what was trained.
    assert 1e-10 > min(trained) > load_published_results()["protocol"]["noise_bound"]


@pytest.mark.parametrize(
    ("name", "limits"), [("bipendulum", (3e-7, 7e-8)), ("heating", (1e-4, 1e-4)), ("three_tank", (2e-5, 1e-5, 1e-5))]
)
def test_differences_of_the_exact_solution_leave_their_own_error(name: str, limits: tuple[float, ...]) -> None:
    experiment = find_experiment(name)
    found = ode_error(experiment, experiment.exact_solution)
    # Not smaller, either: this is what forward differences can see at best.
    assert all(0.5 * limit < error < limit for error, limit in zip(found, limits, strict=True))


def printed_bipendulum(times: Array) -> Array:
    """The solution as the paper prints it, with a rounded coefficient."""
    s, c, r = np.sin(3 * times), np.cos(3 * times), 1 / (times + 1)
    f1 = -41 / 100 * s * r - 3 / 5 * c * r**2 + 1 / 5 * s * r**3
    f2 = 81 / 2000 * s * r - 3 / 10 * c * r**2 + 1 / 10 * s * r**3
    u = -3321 / 10000 * s * r + 987 / 500 * c * r**2 - 3929 / 500 * s * r**3 - 36 / 5 * c * r**4 + 12 / 5 * s * r**5
    return np.stack([f1, f2, u], axis=1)


def test_exact_solution_of_the_bipendulum_has_the_published_error() -> None:
    experiment, wanted = find_experiment("bipendulum"), load_published_results()["symbolic_solution_ode_error"]
    found = ode_error(experiment, experiment.exact_solution)
    assert np.mean(found) == pytest.approx(wanted, rel=0.01)
    # By hand, at each of the three points: it is the one in the middle.
    step, times = 1e-3, np.linspace(*experiment.evaluation_interval, 333)
    curves = [experiment.exact_solution(times + k * step) for k in range(3)]
    second = (curves[2] - 2 * curves[1] + curves[0]) / step**2
    errors = []
    for f1, f2, u in (curve.T for curve in curves):
        left = (second[:, 0] + 9.81 * f1 - u, second[:, 1] + 9.81 / 2 * f2 - u / 2)
        errors.append([float(np.mean(np.abs(part))) for part in left])
    assert found == pytest.approx(errors[1], rel=1e-3)
    assert min(np.mean(errors[0]), np.mean(errors[2])) > 1000 * wanted
    # And it is not the printed solution, which has a rounded coefficient.
    assert np.mean(ode_error(experiment, printed_bipendulum)) > 100 * wanted
    assert 1e-4 < np.abs(printed_bipendulum(times) - curves[0]).max() < 1e-3


def test_measured_error_looks_at_the_curve_itself() -> None:
    for experiment in experiments().values():
        exact = TrainedModel(experiment.exact_solution, experiment.exact_solution, None, 0.0, 0.0, {})
        assert curve_residual(experiment, exact) < 1e-11
        scale = np.ones(len(experiment.system.channels))
        scale[0] = 1.0 + 1e-5

        def wrong(
            times: Array, truth: Callable[[Array], Array] = experiment.exact_solution, by: Array = scale
        ) -> Array:
            return np.asarray(truth(times) * by)

        assert 1e-7 < curve_residual(experiment, TrainedModel(wrong, wrong, None, 0.0, 0.0, {})) < 1e-4


def test_ode_error_sees_a_curve_that_does_not_satisfy_the_equations() -> None:
    experiment = find_experiment("heating")

    def shifted(times: Array) -> Array:
        return np.asarray(experiment.exact_solution(times) + np.array([0.0, 0.0, 0.5]))

    first, second = ode_error(experiment, shifted)
    assert first == pytest.approx(0.5, rel=1e-3)
    assert second < 1e-4


def test_eigenvalues_are_counted_as_a_full_decomposition_counts_them() -> None:
    generator = np.random.default_rng(0)
    times = np.sort(generator.uniform(0, 10, 300))
    for length in (0.3, 1.0, 4.0):
        K = np.exp(-0.5 * (times[:, None] - times[None, :]) ** 2 / length**2)
        for threshold in (1e-6, 1e-2):
            assert count_eigenvalues(K, threshold) == int(np.sum(np.linalg.eigvalsh(K) > threshold))


def test_integrated_covariance_is_the_integral() -> None:
    times = np.array([0.7, 2.0, 5.0])
    found = model_comparison.integrated_covariance(times, times)
    for i, first in enumerate(times):
        for j, second in enumerate(times):
            wanted, _ = dblquad(lambda x, y: np.exp(-((x - y) ** 2)), 0, second, 0, first)
            assert found[i, j] == pytest.approx(wanted, rel=1e-10)


@quiet
def test_latent_force_comparison_has_the_order_of_the_paper() -> None:
    pytest.importorskip("gpytorch")
    errors = model_comparison.compare_latent_force(0, noisy=False)
    means = [np.mean(errors[model]) for model in ("lfm", "marginalized_lodegp", "full_lodegp")]
    assert means[0] > means[1] > 100 * means[2]
    figures = load_published_results()["latent_force_comparison_three_tank"]
    assert means[2] == pytest.approx(np.mean(figures["full_lodegp"]), rel=0.5)
    assert means[0] < np.mean(figures["lfm"])


@quiet
@pytest.mark.parametrize("method", ["paper", "baseline"])
def test_means_are_those_of_gpytorch(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpytorch, torch = pytest.importorskip("gpytorch"), pytest.importorskip("torch")
    models: list[Any] = []
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood

    def kept(likelihood: Any, model: Any) -> Any:
        models.append(model)
        return evidence(likelihood, model)

    monkeypatch.setattr(gpytorch.mlls, "ExactMarginalLogLikelihood", kept)
    # Of any model: this one need not be a good one.
    monkeypatch.setitem(load_published_results()["protocol"], "iterations", 5)
    experiment = find_experiment("three_tank")
    trained, times = train(experiment, method, 0), np.linspace(*experiment.evaluation_interval, 20)
    with torch.no_grad():
        own = models[0](torch.as_tensor(times)[:, None]).mean.numpy()
    np.testing.assert_allclose(trained.mean(times), own, rtol=0, atol=1e-9)


@quiet
@pytest.mark.parametrize("method", ["paper", "baseline"])
@pytest.mark.parametrize("name", ["heating", "three_tank"])
def test_trained_together_is_trained_alone(method: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gpytorch")
    # Long enough for steps of different data sets to differ, and too short for rounding to grow.
    monkeypatch.setitem(load_published_results()["protocol"], "iterations", 8)
    experiment = find_experiment(name)
    times = np.linspace(*experiment.evaluation_interval, 20)
    alone = [train(experiment, method, seed) for seed in (2, 0, 5)]
    together = train_batch(experiment, method, (2, 0, 5))
    assert np.ptp([model.loss for model in alone]) > 1e-2
    for one, other in zip(alone, together, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-9)
        assert other.hyperparameters == pytest.approx(one.hyperparameters, rel=1e-9)
        assert other.parameters == pytest.approx(one.parameters, rel=1e-9)
        np.testing.assert_allclose(other.mean(times), one.mean(times), rtol=0, atol=1e-8)
        np.testing.assert_allclose(other.std(times), one.std(times), rtol=0, atol=1e-8)
