"""LODEGP on many measurements: sums, files, updates, storage, engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lodekit as lk
from lodekit.data import sources
from lodekit.data.observations import parse_observations
from lodekit.data.records import Measurements
from lodekit.fitting.setup import build_setup
from lodekit.inference.engine import EngineTask
from lodekit.inference.selection import choose_engine
from lodekit.inference.spectral.engine import SpectralEngine
from lodekit.prior.kernels import Matern
from tests.inference.fitted import solution_table

HEATING = lk.catalog.heating()


def heating_data(count: int, seed: int = 0, low: float = -5.0, high: float = 5.0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    times = np.sort(generator.uniform(low, high, count))
    return times, solution_table(HEATING, times) + 0.02 * generator.standard_normal((count, 3))


@pytest.fixture(scope="module")
def many() -> lk.LODEGP:
    return lk.LODEGP(HEATING.system, random_state=0).fit(*heating_data(20_000))


def test_many_measurements_are_fitted_on_waves(many: lk.LODEGP) -> None:
    assert many.engine_ == "spectral: 60 000 measurements; more than 200"
    assert many.converged_
    for name, truth in (("a", 3.0), ("b", 1.0)):
        estimate = many.parameters_[name]
        assert abs(estimate.value - truth) < 4 * estimate.std_error
        assert estimate.std_error < 0.005
    assert list(many.noise_.values()) == pytest.approx([0.02] * 3, rel=0.03)
    assert many.warnings_ == []
    times = np.linspace(-5, 5, 50)
    mean, std = many.predict(times, return_std=True)
    error = np.abs(mean - solution_table(HEATING, times))
    assert error.max() < 0.01
    assert (error < 5 * std + 1e-3).all()
    assert many.certificate().residual < 1e-12


def test_both_engines_find_the_same() -> None:
    times, table = heating_data(120)
    dense, waves = (
        lk.LODEGP(HEATING.system, engine=engine, random_state=0, restarts=1).fit(times, table)
        for engine in ("dense", "spectral")
    )
    assert waves.log_evidence_ == pytest.approx(dense.log_evidence_, rel=1e-6)
    for name in "ab":
        assert waves.parameters_[name].value == pytest.approx(dense.parameters_[name].value, rel=1e-4)
        assert waves.parameters_[name].std_error == pytest.approx(dense.parameters_[name].std_error, rel=1e-2)
    new = np.linspace(-7, 7, 40)
    for a, b in zip(waves.predict(new, return_std=True), dense.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)
    assert waves.score(times, table) == pytest.approx(dense.score(times, table), abs=1e-4)


def test_prediction_far_from_the_data_is_the_prior(many: lk.LODEGP) -> None:
    far = np.array([-400.0, 900.0, 901.0])
    mean, cov = many.predict(far, return_cov=True)
    _, std = many.predict(far, return_std=True)
    np.testing.assert_allclose(mean, 0.0, atol=1e-9)
    np.testing.assert_allclose(np.einsum("ioio->io", cov), std**2, rtol=1e-9)
    # Neighbours far from the data know each other, not those on the other side.
    assert cov[1, 0, 2, 0] > 0.5 * cov[1, 0, 1, 0]
    assert abs(cov[0, 0, 1, 0]) < 1e-9 * cov[1, 0, 1, 0]
    with pytest.raises(lk.LodekitError, match="closer to the data: the spectral engine would need"):
        many.sample([1e6])


def test_mean_and_deviation_cross_into_the_far_without_a_step() -> None:
    times, table = heating_data(200)
    gp = lk.LODEGP(HEATING.system, engine="spectral", random_state=0, restarts=1).fit(times, table)
    engine = gp.fit_.setup.engine.primary  # type: ignore[attr-defined]
    assert isinstance(engine, SpectralEngine)
    _, _, frequencies = engine.solve_amplitudes(gp.fit_.hyperparameters)
    edge = times[-1] + gp.fit_.prior.units.unscale_durations(frequencies.correlation_range[0])
    near, far = edge * (1 - 1e-9), edge * (1 + 1e-9)
    mean, cov = gp.predict([near, far], return_cov=True)
    scale = np.sqrt(np.einsum("ioio->io", cov))
    np.testing.assert_allclose(mean[0], mean[1], atol=1e-7 * scale.max())
    np.testing.assert_allclose(scale[0], scale[1], rtol=1e-6)
    np.testing.assert_allclose(cov[0, :, 1], cov[0, :, 0], rtol=0, atol=1e-5 * scale.max() ** 2)


@pytest.mark.parametrize("count", [60, 3000])
def test_an_update_without_learning_is_the_posterior_of_everything(count: int) -> None:
    times, table = heating_data(2 * count)
    first = times < 1.0
    gp = lk.LODEGP(HEATING.system, random_state=0, restarts=1).fit(times[first], table[first])
    learned = {name: estimate.value for name, estimate in gp.parameters_.items()}
    hyper = gp.fit_.hyperparameters
    gp.update(times[~first], table[~first], relearn=False)
    assert {name: estimate.value for name, estimate in gp.parameters_.items()} == learned
    measurements = Measurements.from_observations(parse_observations(HEATING.system.channels, times, table))
    units = gp.fit_.prior.units
    scales = dict(zip(gp.fit_.measurements.names, units.scales.tolist(), strict=True))
    whole = build_setup(HEATING.system, gp.fit_.settings, measurements, time_units=units, scales=scales)
    assert gp.log_evidence_ == pytest.approx(whole.engine.value(hyper), rel=1e-9)


def test_an_update_learns_from_where_it_is(many: lk.LODEGP, tmp_path: Path) -> None:
    path = tmp_path / "many.lodekit"
    many.save(path)
    gp = lk.LODEGP.load(path)
    before = gp.parameters_["a"].std_error
    gp.update(*heating_data(40_000, seed=1, low=5.0, high=6.0))
    assert gp.fit_.setup.engine.size == 180_000
    assert gp.parameters_["a"].std_error < before
    assert abs(gp.parameters_["a"].value - 3.0) < 4 * gp.parameters_["a"].std_error
    assert gp.converged_


def test_an_update_may_bring_new_observables_and_engines() -> None:
    times, table = heating_data(40)
    gp = lk.LODEGP(HEATING.system, noise="channel", random_state=0, restarts=1)
    gp.fit(times, {"f1": table[:, 0], "f2": table[:, 1]})
    assert gp.engine_.startswith("dense")
    more, other = heating_data(400, seed=2, low=5.0, high=9.0)
    gp.update(more, {"f1": other[:, 0], "u": other[:, 2]})
    assert gp.engine_.startswith("spectral")
    assert set(gp.noise_) == {"f1", "f2", "u"}
    assert gp.noise_["u"] == pytest.approx(0.02, rel=0.3)
    with pytest.raises(lk.LodekitError, match="not been fitted"):
        lk.LODEGP(HEATING.system).update(times, table)


def test_files_of_measurements_are_fitted_saved_and_updated(
    many: lk.LODEGP, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    polars = pytest.importorskip("polars")
    monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", 10_000)
    times, table = heating_data(20_000)
    for k in range(4):
        part = slice(5000 * k, 5000 * (k + 1))
        columns = {"time": times[part], **{n: table[part, i] for i, n in enumerate(HEATING.system.channels)}}
        polars.DataFrame(columns).write_parquet(tmp_path / f"log_{k}.parquet")
    gp = lk.LODEGP(HEATING.system, random_state=0).fit(tmp_path / "log_*.parquet")
    assert gp.engine_ == "spectral: 60 000 measurements; more than 200"
    assert gp.log_evidence_ == pytest.approx(many.log_evidence_, rel=1e-9)
    assert gp.parameters_["a"].value == pytest.approx(many.parameters_["a"].value, rel=1e-4)
    gp.save(tmp_path / "streamed.lodekit")
    loaded = lk.LODEGP.load(tmp_path / "streamed.lodekit")
    new = np.linspace(-8, 8, 30)
    # What is not in the file is computed again, from the same numbers at other places in memory.
    for a, b in zip(loaded.predict(new, return_std=True), gp.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
    loaded.update([5.5, 5.6], solution_table(HEATING, np.array([5.5, 5.6])), noise_std=0.02)
    assert loaded.fit_.setup.engine.size == 60_006
    with pytest.raises(lk.LodekitError, match="the data are streamed"):
        lk.LODEGP(HEATING.system, engine="dense").fit(str(tmp_path / "log_*.parquet"))
    with pytest.raises(lk.LodekitError, match="alone"):
        lk.LODEGP(HEATING.system).fit(str(tmp_path / "log_*.parquet"), table)


def test_a_dask_dataframe_is_fitted(many: lk.LODEGP) -> None:
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    times, table = heating_data(20_000)
    columns = {"t": times, **{name: table[:, i] for i, name in enumerate(HEATING.system.channels)}}
    gp = lk.LODEGP(HEATING.system, random_state=0).fit(frames.from_pandas(pandas.DataFrame(columns), npartitions=5))
    assert gp.engine_ == "spectral: 60 000 measurements; more than 200"
    assert gp.log_evidence_ == pytest.approx(many.log_evidence_, rel=1e-9)


def test_sums_made_by_hand_are_fitted(many: lk.LODEGP) -> None:
    times, table = heating_data(20_000)
    total = lk.Statistics.empty(-5.0, 5.0)
    for part in np.array_split(np.arange(20_000), 7):
        chunk = lk.Observations()
        for i, name in enumerate(HEATING.system.channels):
            chunk = chunk.add(times[part], name, table[part, i])
        total += lk.Statistics.of(-5.0, 5.0, chunk)
    gp = lk.LODEGP(HEATING.system, random_state=0).fit(total)
    assert gp.log_evidence_ == pytest.approx(many.log_evidence_, rel=1e-8)
    with pytest.raises(lk.LodekitError, match="Statistics alone"):
        gp.fit(total, table)
    with pytest.raises(lk.LodekitError, match="sums are empty"):
        gp.fit(lk.Statistics.empty(0.0, 1.0))


def test_parameters_inside_modes_are_learned_from_sums_alone() -> None:
    """Though the modes, of which sums are taken elsewhere, change with them."""
    system = lk.System("x'' + c*x' + k*x = 0", parameters={n: lk.Parameter(positive=True) for n in "ck"})
    times = np.linspace(0.0, 10.0, 30_000)
    clean = np.exp(-0.2 * times) * np.cos(np.sqrt(3.96) * times)
    data = lk.Observations().add(times, "x", clean + 0.05 * np.random.default_rng(0).standard_normal(30_000))
    gp = lk.LODEGP(system, random_state=0).fit(lk.Statistics.of(0.0, 10.0, data))
    assert abs(gp.parameters_["k"].value - 4.0) < 4 * gp.parameters_["k"].std_error < 0.02
    assert abs(gp.parameters_["c"].value - 0.4) < 4 * gp.parameters_["c"].std_error < 0.02


def test_many_noise_free_measurements_are_met() -> None:
    times = np.linspace(-5, 5, 2000)
    table = solution_table(HEATING, times)
    gp = lk.LODEGP(HEATING.system, random_state=0, restarts=1).fit(times, table)
    assert gp.engine_.startswith("spectral")
    assert gp.parameters_["a"].value == pytest.approx(3.0, rel=1e-3)
    assert np.abs(gp.predict(times[::100]) - table[::100]).max() < 1e-4


@pytest.mark.parametrize("count", [300, 5000])
def test_low_noise_has_standard_errors(count: int) -> None:
    times = np.linspace(-5, 5, count)
    table = solution_table(HEATING, times) + 1e-4 * np.random.default_rng(0).standard_normal((count, 3))
    gp = lk.LODEGP(HEATING.system, engine="spectral", random_state=0, restarts=1).fit(times, table)
    estimate = gp.parameters_["a"]
    assert estimate.identified
    assert 0 < estimate.std_error < 2e-4
    assert abs(estimate.value - 3.0) < 4 * estimate.std_error


def test_a_large_offset_leaves_the_noise_visible() -> None:
    times = np.linspace(0.0, 10.0, 6000)
    values = 1e5 + np.sin(2 * times) + 1e-3 * np.random.default_rng(0).standard_normal(6000)
    gp = lk.LODEGP(lk.System("x' = v; v' = u"), random_state=0).fit(times, {"x": values})
    assert gp.noise_["x"] == pytest.approx(1e-3, rel=0.1)
    assert np.abs(gp.predict(times, "x") - 1e5 - np.sin(2 * times)).max() < 1e-3


def test_what_sums_do_not_resolve_is_refused() -> None:
    times = np.linspace(0.0, 1.0, 5000)
    fast = lk.System("x'' + w*x = 0", parameters={"w": lk.Parameter(fixed=1e9)})
    with pytest.raises(lk.LodekitError, match="half oscillations"):
        lk.LODEGP(fast, random_state=0).fit(times, np.cos(3e4 * times))
    forced = lk.System("x' + x = sin(20000*t)")
    with pytest.raises(lk.LodekitError, match="half oscillations"):
        lk.LODEGP(forced, random_state=0).fit(times, {"x": np.cos(times)})


def test_an_update_that_cannot_be_leaves_the_model_as_it_was(many: lk.LODEGP, tmp_path: Path) -> None:
    many.save(tmp_path / "many.lodekit")
    gp = lk.LODEGP.load(tmp_path / "many.lodekit")
    times, table = heating_data(100, low=1e6, high=1e6 + 1)
    with pytest.raises(lk.LodekitError, match="Fourier features"):
        gp.update(times, np.zeros_like(table), relearn=False)
    assert gp.log_evidence_ == pytest.approx(many.log_evidence_, rel=1e-9)
    np.testing.assert_allclose(gp.predict([0.0]), many.predict([0.0]), rtol=0, atol=1e-9)


def test_a_channel_of_noise_does_not_hide_the_others() -> None:
    generator = np.random.default_rng(0)
    times = np.linspace(0.0, 10.0, 300)
    data = {
        "x": np.exp(-0.005 * times) * np.cos(3 * times) + 0.02 * generator.standard_normal(300),
        "u": 0.01 * generator.standard_normal(300),
    }
    parameters = {"c": lk.Parameter(positive=True, start=0.01), "k": lk.Parameter(positive=True, start=9.0)}
    system = lk.System("x'' + c*x' + k*x = u", parameters=parameters)
    gp = lk.LODEGP(system, noise="channel", random_state=0).fit(times, data)
    assert gp.log_evidence_ > 1500
    assert gp.parameters_["k"].value == pytest.approx(9.0, abs=0.05)


def test_engines_that_cannot_be_used_say_why() -> None:
    times, table = heating_data(10)

    def message(noise_std: float | None = None, **options: object) -> str:
        with pytest.raises(lk.LodekitError) as caught:
            lk.LODEGP(HEATING.system, **options).fit(times, table, noise_std=noise_std)  # type: ignore[arg-type]
        return str(caught.value)

    assert "matern-7/2 has a spectrum too wide" in message(latent="matern-7/2", engine="spectral")
    assert "exact values need the dense engine" in message(noise_std=0.0, engine="spectral")
    assert "omit device=" in message(prior="channels", engine="dense", device="cpu")
    assert "use latent='se'" in message(prior="channels", latent="matern-7/2")
    assert "'latent' or 'channels'" in message(prior="paper")
    assert "'dense', 'spectral', 'modal' or 'markov'" in message(engine="fast")
    assert "tolerance" in message(tolerance=0.0)
    assert "tolerance" in message(tolerance=True)
    case = EngineTask(size=300, latents=(Matern(3),))
    assert str(choose_engine("auto", replace(case, size=30))) == "dense: 30 measurements; exact, and fast up to 200"
    assert (
        str(choose_engine("auto", case))
        == "dense: 300 measurements; matern-7/2 has a spectrum too wide for Fourier features"
    )
    many = replace(case, size=50_000)
    assert (
        str(choose_engine("auto", many))
        == "markov: 50 000 measurements; matern-7/2 has a spectrum too wide for Fourier features"
    )
    with pytest.raises(lk.LodekitError, match=r"dense not, because 50 000 measurements are too many .*; spectral not"):
        choose_engine("auto", replace(many, latents=(Matern(20),)))


def test_the_channel_prior_speaks_the_units_of_the_channels() -> None:
    times, table = heating_data(40)
    near = {"a": lk.Parameter(positive=True, start=3), "b": lk.Parameter(positive=True, start=1)}
    system = lk.System(list(HEATING.system.equations), parameters=near)
    gp = lk.LODEGP(system, prior="channels", random_state=0, restarts=1).fit(times, table)
    assert gp.engine_ == "dense: 120 measurements; exact, and fast up to 200"
    names = {text for name in system.channels for text in (f"lengthscale of {name}", f"amplitude of {name} (std)")}
    assert set(gp.hyperparameters_) == names
    assert gp.parameters_["a"].value == pytest.approx(3.0, abs=0.3)
    assert gp.certificate().residual < 1e-12
