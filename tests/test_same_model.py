"""The same rows give the same model: by path, on the command line, as a DataFrame, as arrays."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.data import sources
from lodekit.system.files import read_system_file
from tests.cli.command import run

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

COUNT = 30
START = datetime(2026, 3, 1, 12, 0, 0, 500000)
SECONDS = np.round(np.cumsum(np.random.default_rng(0).uniform(20.0, 80.0, COUNT)), 3)
VALUES = np.round(20.0 + 5.0 * np.exp(-SECONDS / 600.0) + 0.01 * np.random.default_rng(1).standard_normal(COUNT), 5)
SYSTEM = 'equations = ["tau*T\' + T = Ta"]\n[parameters]\ntau = { positive = true, start = 500 }\nTa = {}\n'
DATES = [START + timedelta(microseconds=round(1e6 * (second - SECONDS[0]))) for second in SECONDS]


def write_files(folder: Path, *, dates: bool) -> Path:
    """Write a table with semicolons and decimal commas, and its system."""
    (folder / "room.toml").write_text(SYSTEM)
    lines = ["Zeit;Temperatur [K];Bemerkung"]
    for date, second, value in zip(DATES, SECONDS, VALUES, strict=True):
        time = date.strftime("%d.%m.%Y %H:%M:%S,%f") if dates else f"{second}".replace(".", ",")
        lines.append(f'{time};{f"{value}".replace(".", ",")};"gut; sehr gut"')
    path = folder / "log.csv"
    path.write_text("\n".join(lines), encoding="latin-1")
    return path


def assert_same(found: lk.LODEGP, expected: lk.LODEGP) -> None:
    """Assert that two models saw the same measurements, to the last bit, and learned the same from them.

    Tolerance: the same computation on the same numbers may still round otherwise, where these lie elsewhere in memory.
    """
    for one, two in zip(found.fit_.measurements.series, expected.fit_.measurements.series, strict=True):
        assert one.observable == two.observable
        for name in ("times", "values", "std"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert found.engine_ == expected.engine_
    np.testing.assert_allclose(numbers_of(found), numbers_of(expected), rtol=1e-9)


def numbers_of(gp: lk.LODEGP) -> list[float]:
    """Return everything that was learned."""
    estimates = [number for item in gp.parameters_.values() for number in (item.value, item.std_error, *item.interval)]
    mean, std = gp.predict(np.linspace(0.0, 900.0, 7), return_std=True, as_frame=False)
    learned = [*gp.noise_.values(), *gp.hyperparameters_.values(), gp.log_evidence_]
    return [*estimates, *learned, *mean.ravel(), *std.ravel()]


@pytest.mark.parametrize("dates", [False, True])
def test_path_command_line_and_data_frames_agree(tmp_path: Path, dates: bool) -> None:
    path = write_files(tmp_path, dates=dates)
    system, columns = read_system_file(tmp_path / "room.toml").system, {"T": "Temperatur"}

    def fit(*data: Any, **options: Any) -> lk.LODEGP:
        return lk.LODEGP(system, random_state=0).fit(*data, **options)

    by_path = fit(path, columns=columns)
    table = {"Zeit": DATES if dates else SECONDS, "Temperatur [K]": VALUES}
    assert_same(fit(pandas.DataFrame(table), columns=columns), by_path)
    assert_same(fit(polars.DataFrame(table), columns=columns), by_path)
    if not dates:
        assert_same(fit(pandas.DataFrame(table)["Zeit"], pandas.DataFrame({"T": VALUES})), by_path)
        assert_same(fit(SECONDS, VALUES), by_path)
    done = run("fit", "room.toml", "log.csv", "--map", "T=Temperatur", "--json", "--no-figures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    by_command = lk.LODEGP.load(tmp_path / "log-fit" / "model.lodekit")
    assert_same(by_command, by_path)
    printed, estimate = json.loads(done.stdout)["parameters"]["tau"], by_path.parameters_["tau"]
    assert [printed["value"], printed["std_error"]] == pytest.approx([estimate.value, estimate.std_error], rel=1e-9)
    origin = {"origin": "2026-03-01T12:00:00.500000", "units": {"t": "s", "T": "K"}} if dates else {}
    for gp in (by_path, by_command):
        assert {name: gp.labels_.get(name) for name in origin} == origin
    assert bool(by_path.labels_.get("origin")) is dates


def test_small_files_are_measurements_with_every_prior_and_exact_values(tmp_path: Path) -> None:
    path = write_files(tmp_path, dates=False)
    system = lk.System("T' = u", parameters=())
    gp = lk.LODEGP(system, latent="matern-7/2", random_state=0).fit(path, columns={"T": 2}, noise_std=0.01)
    assert gp.engine_.startswith("dense")
    exact = lk.LODEGP(system, random_state=0).fit(path, columns={"T": 2}, noise_std={"T": 0})
    np.testing.assert_allclose(exact.predict(SECONDS[:3], "T").ravel(), VALUES[:3], atol=1e-6)


def test_large_files_give_the_model_of_their_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_files(tmp_path, dates=True)
    system = read_system_file(tmp_path / "room.toml").system
    small = lk.LODEGP(system, engine="spectral", random_state=0).fit(path, columns={"T": "Temperatur"})
    monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", COUNT - 1)
    large = lk.LODEGP(system, random_state=0).fit(path, columns={"T": "Temperatur"})
    assert large.labels_ == small.labels_
    assert large.parameters_["tau"].value == pytest.approx(small.parameters_["tau"].value, rel=1e-3)
    # The sums are the same to rounding; the searches start elsewhere, and end where the evidence is flat to 1e-3.
    assert large.log_evidence_ == pytest.approx(small.log_evidence_, abs=1e-2)


def test_an_update_counts_dates_from_the_same_origin() -> None:
    system = lk.System(
        "tau*T' + T = Ta", parameters={"tau": lk.Parameter(positive=True, start=500), "Ta": lk.Parameter()}
    )
    frame = pandas.DataFrame({"date": DATES, "T": VALUES})
    whole = lk.LODEGP(system, random_state=0).fit(frame)
    gp = lk.LODEGP(system, random_state=0).fit(frame[:20])
    gp.update(frame[20:])
    assert gp.labels_["origin"] == whole.labels_["origin"]
    assert gp.parameters_["tau"].value == pytest.approx(whole.parameters_["tau"].value, rel=1e-3)
    numbers = lk.LODEGP(system, random_state=0).fit(SECONDS, VALUES)
    with pytest.raises(lk.LodekitError, match="expected times as numbers, like those of the fit, got dates"):
        numbers.update(frame)
