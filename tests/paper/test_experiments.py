"""The paper's data, what is measured on models, and three ways to learn."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import dblquad

import lodekit as lk
from lodekit.paper import latent_force, measures
from lodekit.paper.experiments import experiments, find_experiment, published
from lodekit.paper.measures import count_eigenvalues, measure, ode_error
from lodekit.paper.methods import train

# GPyTorch's own notices are not ours.
quiet = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*jitter.*")


def test_data_are_those_of_the_paper() -> None:
    assert set(experiments()) == {"bipendulum", "heating", "three_tank"}
    for name, experiment in experiments().items():
        assert experiment.times.shape == (25,)
        assert (experiment.times[0], experiment.times[-1]) == tuple(published()["protocol"][name]["train"])
        exact, noisy = experiment.data(0, noisy=False), experiment.data(0)
        assert np.std(noisy - exact) == pytest.approx(experiment.noise_std, rel=0.3)
    assert find_experiment("three-tank").system.channels == ("f1", "f2", "f3", "u1", "u2")
    assert find_experiment("heating").parameters == {"a": 3.0, "b": 1.0}
    with pytest.raises(lk.LodekitError, match="expected one of bipendulum"):
        find_experiment("four-tank")
    with pytest.raises(lk.LodekitError, match="expected one of paper"):
        train(find_experiment("heating"), "guess", 0)


def test_published_figures_agree_with_each_other() -> None:
    heating = published()["heating_parameters"]
    for runs, key in (
        ("noisy", "max_relative_error_noisy"),
        ("noise_free", "max_relative_error_noise_free"),
    ):
        largest = np.max(np.abs(np.array(heating[runs]) / [3.0, 1.0] - 1))
        assert largest == pytest.approx(heating[key], abs=1e-4)
        assert len(heating[runs]) == heating["runs"]
    for system in experiments():
        for model, kind in (("lodegp", "noisy"), ("gp", "exact")):
            for median, _, low, high in published()["hyperparameters"][system][model][kind].values():
                assert low <= median <= high


@pytest.mark.parametrize(
    ("name", "limits"),
    [("bipendulum", (1.2e-3, 4e-4)), ("heating", (1e-4, 1e-4)), ("three_tank", (2e-5, 1e-5, 1e-5))],
)
def test_differences_of_the_exact_solution_leave_their_own_error(name: str, limits: tuple[float, ...]) -> None:
    experiment = find_experiment(name)
    found = ode_error(experiment, experiment.truth)
    # Not smaller, either: this is what forward differences can see at best.
    assert all(0.5 * limit < error < limit for error, limit in zip(found, limits, strict=True))


def test_ode_error_sees_a_curve_that_does_not_satisfy_the_equations() -> None:
    experiment = find_experiment("heating")

    def shifted(times: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(experiment.truth(times) + np.array([0.0, 0.0, 0.5]))

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
    found = latent_force.integrated_covariance(times, times)
    for i, first in enumerate(times):
        for j, second in enumerate(times):
            wanted, _ = dblquad(lambda x, y: np.exp(-((x - y) ** 2)), 0, second, 0, first)
            assert found[i, j] == pytest.approx(wanted, rel=1e-10)


@quiet
def test_latent_force_comparison_has_the_order_of_the_paper() -> None:
    pytest.importorskip("gpytorch")
    errors = latent_force.compare(0, noisy=False)
    means = [np.mean(errors[model]) for model in latent_force.MODELS]
    assert means[0] > means[1] > 100 * means[2]
    figures = published()["latent_force_comparison_three_tank"]
    assert means[2] == pytest.approx(np.mean(figures["full_lodegp"]), rel=0.5)
    assert means[0] < np.mean(figures["lfm"])


def test_closed_form_error_is_none_without_a_closed_form() -> None:
    experiment = find_experiment("heating")
    trained = train(experiment, "lodekit", 0)
    assert measures.closed_form_errors(experiment, trained)[0] is not None
    object.__setattr__(trained, "gp", None)
    assert measures.closed_form_errors(experiment, trained) == (None, None)


@quiet
def test_the_papers_way_and_the_baseline_land_where_the_paper_did() -> None:
    pytest.importorskip("gpytorch")
    experiment, figures = find_experiment("heating"), published()["table_main"]["heating"]
    paper, baseline, native = (measure(experiment, method, 0) for method in ("paper", "baseline", "lodekit"))
    for outcome, row in ((paper, figures["lodegp"]), (baseline, figures["gp"])):
        assert outcome.train_rmse < row[0] + 3 * row[1]
        assert outcome.loss < row[4] + 3 * row[5]
    assert abs(paper.parameters["a"] / 3.0 - 1) < 0.1
    assert paper.strict_error is not None
    assert native.strict_error is not None
    assert max(paper.strict_error, native.strict_error) < 1e-9
    # The constraint is what makes the difference.
    assert np.mean(paper.ode_error) < 0.1 * np.mean(baseline.ode_error)
    assert native.loss < paper.loss + 1e-3
    assert native.loss < baseline.loss
    eigenvalues = published()["eigenvalues_above_1e-6"]["heating"]
    assert paper.eigenvalues == pytest.approx(eigenvalues["lodegp"], abs=2)
    assert baseline.eigenvalues == pytest.approx(eigenvalues["gp"], abs=4)
