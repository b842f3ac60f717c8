"""LODEGP as people use it: data of all kinds, learning, errors, files, and scikit-learn."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

import lodekit as lk
from tests.inference.fitted import EXAMPLES, solution_table

HEATING = EXAMPLES["heating"]
TIMES = np.linspace(-5, 5, 25)


def heating_data(seed: int = 0, noise: float = 0.02) -> np.ndarray:
    return solution_table(HEATING, TIMES) + noise * np.random.default_rng(seed).standard_normal((25, 3))


@pytest.fixture(scope="module")
def heated() -> lk.LODEGP:
    return lk.LODEGP(HEATING.system, random_state=0).fit(TIMES, heating_data())


def test_parameters_are_learned_without_start_values(heated: lk.LODEGP) -> None:
    assert heated.converged_
    assert heated.parameters_["a"].value == pytest.approx(3, rel=0.05)
    assert heated.parameters_["b"].value == pytest.approx(1, rel=0.05)
    for estimate, truth in ((heated.parameters_["a"], 3), (heated.parameters_["b"], 1)):
        assert estimate.interval[0] < truth < estimate.interval[1]
    assert heated.noise_["shared"] == pytest.approx(0.02, rel=0.3)


def test_arrays_dicts_frames_and_observations_are_the_same(heated: lk.LODEGP) -> None:
    table = heating_data()
    columns = {name: table[:, j] for j, name in enumerate(HEATING.system.channels)}
    data = lk.Observations()
    for name, column in columns.items():
        data = data.add(TIMES, name, column)
    records = lk.Observations(
        (t, name, v) for name, column in columns.items() for t, v in zip(TIMES, column, strict=True)
    )
    model = lk.LODEGP(HEATING.system, random_state=0)
    for forms in ((TIMES, columns), (TIMES, pl.DataFrame(columns)), (data,), (records,)):
        # Searches whose numbers differ by rounding end within 1e-6 of each other, where the evidence is flat.
        assert model.fit(*forms).log_evidence_ == pytest.approx(heated.log_evidence_, abs=1e-6)


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


def test_log_evidence_has_a_gradient(heated: lk.LODEGP) -> None:
    value, gradient = heated.log_evidence({"a": 2.8}, return_gradient=True)
    step = 1e-5
    difference = (heated.log_evidence({"a": 2.8 + step}) - heated.log_evidence({"a": 2.8 - step})) / (2 * step)
    assert gradient["a"] == pytest.approx(difference, rel=1e-6)
    assert value < heated.log_evidence() == pytest.approx(heated.log_evidence_)
    with pytest.raises(lk.LodekitError, match="unknown parameter"):
        heated.log_evidence({"z": 1})


def test_results_do_not_depend_on_how_starts_are_followed(heated: lk.LODEGP) -> None:
    parallel = lk.LODEGP(HEATING.system, random_state=0, n_jobs=2, restarts=2).fit(TIMES, heating_data())
    assert parallel.log_evidence_ == pytest.approx(heated.log_evidence_, abs=1e-3)
    again = lk.LODEGP(HEATING.system, random_state=0).fit(TIMES, heating_data())
    # Searches whose numbers differ by rounding end within 1e-6 of each other, where the evidence is flat.
    assert again.log_evidence_ == pytest.approx(heated.log_evidence_, abs=1e-6)


def test_save_and_load_give_the_same_model(heated: lk.LODEGP, tmp_path: Path) -> None:
    path = tmp_path / "heating.lodekit"
    heated.save(path)
    loaded = lk.LODEGP.load(path)
    new = np.linspace(-6, 7, 11)
    # What is not in the file is computed again, from the same numbers at other places in memory.
    for a, b in zip(loaded.predict(new, return_std=True), heated.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
    assert loaded.parameters_ == heated.parameters_
    assert loaded.summary() == heated.summary()
    assert [item.name for item in tmp_path.iterdir()] == ["heating.lodekit"]
    with zipfile.ZipFile(path) as archive:
        assert json.loads(archive.read("model.json"))["format"] == 2


def test_files_that_are_no_models_are_refused(heated: lk.LODEGP, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.lodekit"
    wrong.write_text("hello")
    with pytest.raises(lk.LodekitError, match="not a saved lodekit model"):
        lk.LODEGP.load(wrong)
    with pytest.raises(lk.LodekitError, match="cannot read"):
        lk.LODEGP.load(tmp_path / "missing")
    with pytest.raises(lk.LodekitError, match="cannot write"):
        heated.save(tmp_path / "no" / "folder.lodekit")
    path = tmp_path / "future.lodekit"
    heated.save(path)
    with zipfile.ZipFile(path) as archive:
        content = json.loads(archive.read("model.json"))
        arrays = archive.read("arrays.npz")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.json", json.dumps({**content, "format": 99}))
        archive.writestr("arrays.npz", arrays)
    with pytest.raises(lk.LodekitError, match="format 99"):
        lk.LODEGP.load(path)


def test_scikit_learn_can_clone_cross_validate_and_search() -> None:
    model = lk.LODEGP(HEATING.system, random_state=0, restarts=2)
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    table = heating_data()
    folds = KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(model, TIMES, table, cv=folds)
    assert (scores > 1.0).all()
    grid = GridSearchCV(model, {"noise": ["shared", "channel"]}, cv=folds).fit(TIMES, table)
    assert grid.best_params_["noise"] in ("shared", "channel")
    with pytest.raises(lk.LodekitError, match="unknown argument"):
        model.set_params(colour="red")


def test_summary_is_a_table_that_fits_the_page(heated: lk.LODEGP) -> None:
    text = heated.summary()
    assert max(len(line) for line in text.splitlines()) <= 80
    for word in ("coef", "std err", "[0.025", "0.975]", "Log evidence", "Converged", "noise (shared)"):
        assert word in text


BAD_DATA: dict[str, tuple[Any, Any, str]] = {
    "wrong shape": (TIMES, np.zeros((25, 2)), "one column for each channel"),
    "wrong length": (TIMES, np.zeros((24, 3)), "as many values"),
    "unknown channel": (TIMES, {"zz": np.zeros(25)}, "unknown name 'zz'"),
    "infinity": (TIMES, np.full((25, 3), np.inf), "expected finite values"),
    "all missing": (TIMES, np.full((25, 3), np.nan), "every value is missing"),
    "no points": ([], np.zeros((0, 3)), "at least one measurement"),
    "infinite time": (np.full(25, np.inf), np.zeros((25, 3)), "finite times"),
    "text": (TIMES, "hello", "expected Y as an array"),
    "text in an array": (TIMES, [["a", "b", "c"]] * 25, "expected Y as an array"),
    "nonlinear observable": (TIMES, {"f1*f2": np.zeros(25)}, "not linear"),
    "nested times": (np.zeros((5, 5)), np.zeros((25, 3)), "one row of numbers"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_are_refused_with_a_reason(name: str) -> None:
    times, table, match = BAD_DATA[name]
    with pytest.raises(lk.LodekitError, match=match):
        lk.LODEGP(HEATING.system).fit(times, table)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"noise": "pink"}, "noise='shared'"),
        ({"latent": "cubic"}, "latent='se'"),
        ({"latent": "matern-4/2"}, "odd p"),
        ({"latent": ["se", "se"]}, "one latent for each of the 1"),
        ({"restarts": 0}, "at least 1"),
    ],
)
def test_bad_arguments_are_refused_when_fitting(arguments: dict[str, object], match: str) -> None:
    with pytest.raises(lk.LodekitError, match=match):
        lk.LODEGP(HEATING.system, **arguments).fit(TIMES, heating_data())  # type: ignore[arg-type]


def test_an_unfitted_model_says_so() -> None:
    with pytest.raises(lk.LodekitError, match="call fit"):
        lk.LODEGP(HEATING.system).predict([0.0])
    with pytest.raises(lk.LodekitError, match="expected a System"):
        lk.LODEGP("x' = u").fit([0.0], [[1.0]])  # type: ignore[arg-type]


def test_contradicting_exact_values_are_refused() -> None:
    data = lk.Observations([(0.0, "x", 1.0, 0.0), (0.0, "x", 2.0, 0.0)])
    with pytest.raises(lk.LodekitError, match="two different exact values"):
        lk.LODEGP(lk.System("x' = u")).fit(data)


def test_a_channel_that_the_equations_force_to_zero_is_refused_where_the_data_are_not() -> None:
    system = lk.System("x = 0*y; y' = -y + u", channels=["x", "y", "u"])
    times = np.linspace(0, 3, 10)
    with pytest.raises(lk.LodekitError, match="force x to be zero"):
        lk.LODEGP(system).fit(times, {"x": np.ones(10), "y": np.exp(-times)})
    gp = lk.LODEGP(system, random_state=0).fit(times, {"x": 0.01 * np.sin(99 * times), "y": np.exp(-times)})
    assert np.abs(gp.predict(times, "x")).max() == 0.0


@pytest.mark.parametrize(
    ("times", "values"),
    [
        ([1.0], [[0.3]]),
        ([1.0, 1.0], [[0.3], [0.31]]),
        ([0.0, 1.0, 2.0], [[2.0], [2.0], [2.0]]),
        ([0.0, 1.0], [[0.0], [0.0]]),
    ],
)
def test_one_point_repeated_times_and_constant_channels_give_finite_answers(
    times: list[float], values: list[list[float]]
) -> None:
    gp = lk.LODEGP(lk.System("x' = -x + u", channels=["x", "u"]), random_state=0).fit(times, {"x": np.ravel(values)})
    mean, std = gp.predict([0.5, 1.5], return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()


def test_bad_prediction_requests_are_refused(heated: lk.LODEGP) -> None:
    for request, match in (
        (lambda: heated.predict([np.nan]), "finite times"),
        (lambda: heated.predict("soon"), "times as numbers"),
        (lambda: heated.predict([0.0], "f1*f1"), "not linear"),
        (lambda: heated.predict([0.0], "zz"), "unknown name"),
        (lambda: heated.sample([0.0], 0), "at least 1"),
    ):
        with pytest.raises(lk.LodekitError, match=match):
            request()


def test_observables_may_be_any_linear_expression(heated: lk.LODEGP) -> None:
    mean = heated.predict(TIMES)
    np.testing.assert_allclose(heated.predict(TIMES, "f1 - 2*f2"), mean[:, 0] - 2 * mean[:, 1], atol=1e-12)
    balance = heated.predict(TIMES, "f1' + a*(f1 - f2) - u")
    assert np.abs(balance).max() < 1e-9
    _, covariance = heated.predict(TIMES, "f1", return_cov=True)
    assert covariance.shape == (25, 25)


SHORT = np.linspace(0, 3, 60)
WIGGLE = np.random.default_rng(0).standard_normal(60)


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
    assert scaled.noise_["shared"] / scale == pytest.approx(plain.noise_["shared"], rel=1e-3)
    np.testing.assert_allclose(scaled.predict(times) / scale, plain.predict(times), atol=1e-5)


def test_sizes_that_floats_cannot_square_are_refused() -> None:
    for factor in (1e200, 1e-150):
        with pytest.raises(lk.LodekitError, match="change their units"):
            lk.LODEGP(lk.System("x'' + x = u")).fit(TIMES, {"x": factor * np.cos(TIMES)})


@pytest.mark.parametrize(
    ("system", "data"),
    [
        ("x'' + x = u", lk.Observations([(0.0, "x", 1.0, 0.0), (0.0, "2*x", 7.0, 0.0)])),
        ("x' = -x", lk.Observations().add(SHORT, "x", np.sin(SHORT), 0.0)),
    ],
)
def test_exact_values_that_contradict_the_equations_are_refused(system: str, data: lk.Observations) -> None:
    with pytest.raises(lk.LodekitError, match="contradict"):
        lk.LODEGP(lk.System(system), random_state=0).fit(data)


def test_exact_values_that_fit_the_equations_are_kept() -> None:
    gp = lk.LODEGP(lk.System("x' = -x"), random_state=0).fit(SHORT, np.exp(-SHORT), noise_std=0)
    assert gp.predict([2.5])[0, 0] == pytest.approx(np.exp(-2.5), rel=1e-6)


def test_predictions_that_overflow_are_refused() -> None:
    times = np.linspace(0, 200, 20)
    gp = lk.LODEGP(lk.System("x' = -5*x"), random_state=0).fit(times, np.exp(-times))
    with pytest.raises(lk.LodekitError, match="overflows at t = -200"):
        gp.predict([-200.0], return_std=True)


def test_score_uses_known_noise(heated: lk.LODEGP) -> None:
    table = heating_data()
    known = lk.LODEGP(HEATING.system, random_state=0).fit(TIMES, table, noise_std=0.02)
    assert known.score(TIMES, table) == pytest.approx(heated.score(TIMES, table), abs=0.1)
    assert known.score(TIMES, table, noise_std=0.5) < known.score(TIMES, table)
    exact = lk.LODEGP(lk.System("x' = -x"), random_state=0).fit(SHORT, np.exp(-SHORT), noise_std=0)
    assert np.isfinite(exact.score(SHORT, np.exp(-SHORT), noise_std=0.1))


def test_derivatives_that_a_matern_process_does_not_have_are_refused() -> None:
    gp = lk.LODEGP(lk.System("x' = -x + u"), latent="matern-5/2", random_state=0)
    gp.fit(SHORT, {"x": np.sin(SHORT) + 0.01 * WIGGLE})
    for request in (lambda: gp.predict(SHORT, "D(x, 5)"), lambda: gp.sample(SHORT, 1, 0, "D(x, 5)")):
        with pytest.raises(lk.LodekitError, match="too rough"):
            request()


def test_a_measured_input_of_zero_is_informative() -> None:
    times = np.linspace(0, 6, 25)
    parameters = {"c": lk.Parameter(positive=True), "k": lk.Parameter(positive=True)}
    system = lk.System("x'' + c*x' + k*x = u", parameters=parameters)
    data = {"x": np.cos(2 * times) + 0.01 * WIGGLE[:25], "u": np.zeros(25)}
    assert lk.LODEGP(system, random_state=0).fit(times, data).parameters_["k"].value == pytest.approx(4, rel=0.02)


def test_more_bad_input_is_refused(heated: lk.LODEGP, tmp_path: Path) -> None:
    table = heating_data()
    requests: list[tuple[Any, str]] = [
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES, table, noise_std=[0.1, 0.1]), "one noise_std for f1"),
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES, table, noise_std=np.ones((25, 1))), "noise_std of shape"),
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES, table, noise_std=-1), "zero or more"),
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES.astype("datetime64[s]"), table), "got dates"),
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES, table + 1j), "complex"),
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES, {"f1": table[:, 0], "zz": np.full(25, np.nan)}), "unknown name"),
        (lambda: lk.LODEGP(HEATING.system, latent=5).fit(TIMES, table), "latent as a text"),  # type: ignore[arg-type]
        (lambda: lk.LODEGP(HEATING.system, latent="matern-999/2").fit(TIMES, table), "odd p up to"),
        (lambda: lk.LODEGP(HEATING.system, random_state=-1).fit(TIMES, table), "random_state"),
        (lambda: lk.LODEGP(HEATING.system, n_jobs=0).fit(TIMES, table), "n_jobs"),
        (lambda: lk.LODEGP(HEATING.system, engine="fast").fit(TIMES, table), "engine='auto'"),
        (lambda: lk.Observations([3]), "record 1"),  # type: ignore[list-item]
        (lambda: lk.Observations(None), "expected records"),  # type: ignore[arg-type]
        (lambda: heated.predict(TIMES, 5), "observable as text"),  # type: ignore[arg-type]
        (lambda: heated.predict(TIMES, []), "at least one observable"),
        (lambda: heated.log_evidence({"a": np.nan}), "finite number"),
        (lambda: heated.log_evidence(["a"]), "as a dict"),  # type: ignore[arg-type]
        (lambda: heated.sample(TIMES, True), "whole number"),
        (lambda: heated.sample([1e9], 1), "too many waves"),
        (lambda: heated.save(None), "path of a file"),  # type: ignore[arg-type]
        (lambda: lk.LODEGP.load(None), "path of a file"),  # type: ignore[arg-type]
    ]
    for request, match in requests:
        with pytest.raises(lk.LodekitError, match=match):
            request()


def test_damaged_files_are_refused(heated: lk.LODEGP, tmp_path: Path) -> None:
    path = tmp_path / "model.lodekit"
    heated.save(path)
    whole = path.read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(40):
        damaged = bytearray(whole)
        damaged[int(generator.integers(len(whole)))] ^= 0xFF
        path.write_bytes(bytes(damaged[: int(generator.integers(len(whole) // 2, len(whole)))]))
        with pytest.raises(lk.LodekitError):
            lk.LODEGP.load(path)


def test_numpy_numbers_are_fine_as_arguments_and_in_files(tmp_path: Path) -> None:
    gp = lk.LODEGP(HEATING.system, random_state=np.int64(3), restarts=np.int64(2))  # type: ignore[arg-type]
    gp.fit(TIMES, heating_data()).save(tmp_path / "model")
    assert lk.LODEGP.load(tmp_path / "model").log_evidence_ == pytest.approx(gp.log_evidence_)
    assert gp.sample(TIMES, np.int64(2)).shape == (2, 25, 3)  # type: ignore[arg-type]
