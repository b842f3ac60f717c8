"""What LODEGP learns: parameters, noise and their errors, whatever the units and the starts."""

from __future__ import annotations

import numpy as np
import pytest

import lodekit as lk
from tests.inference.fitted import EXAMPLES, solution_table
from tests.model.heating import HEATING, SHORT, TIMES, WIGGLE, heating_data


def test_parameters_are_learned_without_start_values(heated: lk.LODEGP) -> None:
    assert heated.converged_
    assert heated.parameters_["a"].value == pytest.approx(3, rel=0.05)
    assert heated.parameters_["b"].value == pytest.approx(1, rel=0.05)
    for estimate, truth in ((heated.parameters_["a"], 3), (heated.parameters_["b"], 1)):
        assert estimate.interval[0] < truth < estimate.interval[1]
    assert set(heated.noise_) == {"f1", "f2", "u"}
    assert np.mean(list(heated.noise_.values())) == pytest.approx(0.02, rel=0.3)


def test_bipendulum_reaches_the_good_optimum() -> None:
    """The paper's optimiser stops at a training RMSE of 0.06 in the median; the good optimum is near 0.005."""
    example, times = EXAMPLES["bipendulum"], np.linspace(1, 6, 25)
    truth = solution_table(example, times)
    for seed in range(3):
        table = truth + 0.012 * np.random.default_rng(seed).standard_normal(truth.shape)
        gp = lk.LODEGP(example.system, random_state=0).fit(times, table)
        assert -gp.log_evidence_ / table.size < -2.0
        assert np.sqrt(np.mean((gp.predict(times) - truth) ** 2)) < 0.012


def test_free_decay_learns_damping_and_stiffness_inside_the_roots() -> None:
    example, times = EXAMPLES["free_decay"], np.linspace(0, 8, 40)
    table = solution_table(example, times) + 0.02 * np.random.default_rng(1).standard_normal((40, 1))
    gp = lk.LODEGP(example.system, random_state=0).fit(times, table)
    for name, truth in example.values.items():
        low, high = gp.parameters_[name].interval
        assert low < float(truth) < high
        # An interval of everything would hold the truth, too.
        assert high - low < 0.1 * float(truth)


def test_two_room_learns_the_ambient_temperature_with_one_room_unobserved() -> None:
    example, times = EXAMPLES["two_room"], np.linspace(0, 60, 80)
    table = solution_table(example, times)
    generator = np.random.default_rng(2)
    data = {
        "T1": table[:, 0] + 0.05 * generator.standard_normal(80),
        "q": table[:, 2] + 0.05 * generator.standard_normal(80),
    }
    known = {"a": lk.Parameter(positive=True, start=0.2), "b": lk.Parameter(fixed=0.1), "c": lk.Parameter(fixed=0.2)}
    system = lk.System(
        list(example.system.equations), parameters={**known, "Ta": lk.Parameter()}, channels=("T1", "T2", "q")
    )
    gp = lk.LODEGP(system, random_state=0).fit(times, data)
    ambient = gp.parameters_["Ta"]
    assert ambient.interval[0] < 8.0 < ambient.interval[1]
    assert ambient.std_error < 2.0
    # The band holds at the learned parameters; their own error comes on top of it.
    assert np.abs(gp.predict(times, "T2") - table[:, 1]).max() < 0.3


def test_exact_initial_values_are_met() -> None:
    system = lk.System("x'' + x = u")
    data = lk.Observations([(0.0, "x", 1.0, 0.0), (0.0, "x'", -2.0, 0.0)])
    data = data.add(
        np.linspace(0.5, 5, 12), "x", np.cos(np.linspace(0.5, 5, 12)) - 2 * np.sin(np.linspace(0.5, 5, 12)), 0.05
    )
    gp = lk.LODEGP(system, random_state=0).fit(data)
    assert gp.predict([0.0], "x")[0] == pytest.approx(1.0, abs=1e-5)
    assert gp.predict([0.0], "x'")[0] == pytest.approx(-2.0, abs=1e-5)
    _, std = gp.predict([0.0], "x", return_std=True)
    assert std[0] < 1e-3


def test_known_noise_is_used_point_by_point() -> None:
    table = heating_data()
    known = np.full(table.shape, 0.02)
    known[10] = 1e3
    outlier = table.copy()
    outlier[10] += 50.0
    parameters = {"a": lk.Parameter(positive=True, start=3), "b": lk.Parameter(positive=True, start=1)}
    system = lk.System(list(HEATING.system.equations), parameters=parameters)
    gp = lk.LODEGP(system, random_state=0).fit(TIMES, outlier, noise_std=known)
    assert gp.noise_ == {}
    assert np.abs(gp.predict(TIMES) - solution_table(HEATING, TIMES)).max() < 0.1


def test_priors_pull_and_fixed_values_stay() -> None:
    pulled = {"a": lk.Parameter(positive=True, prior=lk.LogNormal(4.0, 0.001)), "b": lk.Parameter(fixed=1.0)}
    gp = lk.LODEGP(lk.System(list(HEATING.system.equations), parameters=pulled), random_state=0).fit(
        TIMES, heating_data()
    )
    assert gp.parameters_["a"].value == pytest.approx(4.0, rel=0.01)
    assert gp.parameters_["b"].value == 1.0
    assert gp.parameters_["b"].note == "fixed"


def test_negative_parameters_are_found_where_they_are_not_excluded() -> None:
    times = np.linspace(0, 3, 30)
    noisy = np.exp(-0.8 * times) + 0.01 * np.random.default_rng(0).standard_normal(30)
    gp = lk.LODEGP(lk.System("x' = a*x", parameters=["a"]), random_state=0).fit(times, noisy)
    assert gp.parameters_["a"].value == pytest.approx(-0.8, abs=0.05)


def test_a_parameter_that_the_data_say_nothing_about_is_reported() -> None:
    times = np.linspace(0, 5, 20)
    system = lk.System("x' = -x + u; y' = -c*y + v", parameters={"c": lk.Parameter(positive=True)})
    gp = lk.LODEGP(system, random_state=0).fit(times, {"x": np.sin(times), "u": np.sin(times) + np.cos(times)})
    assert not gp.parameters_["c"].identified
    assert "not identified by these data" in gp.summary()
    assert any("not identified" in warning for warning in gp.warnings_)


def test_an_estimate_near_a_degeneracy_is_reported() -> None:
    example = lk.catalog.bipendulum(1, 1)
    times = np.linspace(0, 6, 40)
    table = solution_table(example, times)
    table[:, 1] = table[:, 0]
    table = table + 1e-3 * np.random.default_rng(0).standard_normal((40, 3))
    parameters = {"l1": lk.Parameter(positive=True, start=1.0), "l2": lk.Parameter(positive=True, start=1.0001)}
    system = lk.System(
        "f1'' + 9.81/l1*f1 - u/l1 = 0; f2'' + 9.81/l2*f2 - u/l2 = 0", parameters=parameters, channels=["f1", "f2", "u"]
    )
    gp = lk.LODEGP(system, random_state=0, restarts=1).fit(times, table)
    assert any("l1 - l2 = 0" in warning for warning in gp.warnings_)


def test_results_do_not_depend_on_how_starts_are_followed(heated: lk.LODEGP) -> None:
    parallel = lk.LODEGP(HEATING.system, random_state=0, n_jobs=2, restarts=2).fit(TIMES, heating_data())
    assert parallel.log_evidence_ == pytest.approx(heated.log_evidence_, abs=1e-3)
    again = lk.LODEGP(HEATING.system, random_state=0).fit(TIMES, heating_data())
    # Searches whose numbers differ by rounding end within 1e-6 of each other, where the evidence is flat.
    assert again.log_evidence_ == pytest.approx(heated.log_evidence_, abs=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_unbounded_parameters_do_not_depend_on_the_unit_of_the_data(scale: float) -> None:
    system = lk.System("x'' = a*x", parameters=["a"])
    gp = lk.LODEGP(system, random_state=0).fit(SHORT, scale * (np.cos(10 * SHORT) + 0.01 * WIGGLE))
    assert gp.parameters_["a"].value == pytest.approx(-100, rel=0.01)
    assert gp.parameters_["a"].identified


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_huge_and_tiny_units_give_the_same_answer(scale: float) -> None:
    times = np.linspace(0, 6, 25)
    table = np.stack([np.cos(2 * times), -3 * np.cos(2 * times)], axis=1) + 0.01 * WIGGLE[:50].reshape(25, 2)
    plain = lk.LODEGP(lk.System("x'' + x = u"), random_state=0).fit(times, table)
    scaled = lk.LODEGP(lk.System("x'' + x = u"), random_state=0).fit(times, scale * table)
    for name, level in plain.noise_.items():
        assert scaled.noise_[name] / scale == pytest.approx(level, rel=1e-3)
    np.testing.assert_allclose(scaled.predict(times) / scale, plain.predict(times), atol=1e-5)


def test_exact_values_that_fit_the_equations_are_kept() -> None:
    gp = lk.LODEGP(lk.System("x' = -x"), random_state=0).fit(SHORT, np.exp(-SHORT), noise_std=0)
    assert gp.predict([2.5])[0, 0] == pytest.approx(np.exp(-2.5), rel=1e-6)


def test_a_measured_input_of_zero_is_informative() -> None:
    times = np.linspace(0, 6, 25)
    parameters = {"c": lk.Parameter(positive=True), "k": lk.Parameter(positive=True)}
    system = lk.System("x'' + c*x' + k*x = u", parameters=parameters)
    data = {"x": np.cos(2 * times) + 0.01 * WIGGLE[:25], "u": np.zeros(25)}
    assert lk.LODEGP(system, noise="shared", random_state=0).fit(times, data).parameters_["k"].value == pytest.approx(
        4, rel=0.02
    )
