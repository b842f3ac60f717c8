"""Units in the names of columns are converted to those of the model, or refused; never ignored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import lodekit as lk
from lodekit.data import sources
from lodekit.data.preview import preview_table
from lodekit.data.sources import LoadedData, load_data
from lodekit.data.tables.columns import unit_from_name
from lodekit.errors import DataError
from lodekit.support.units import find_unit_conversion, is_known_unit
from lodekit.workflow import pipeline
from lodekit.workflow.pipeline import date_column

T = np.arange(10.0)


def read(table: dict[str, Any], units: dict[str, str], **options: Any) -> LoadedData:
    return load_data(pl.DataFrame(table), channels=["x", "y"], units=units, **options)


@pytest.mark.parametrize(
    ("unit", "target", "value", "expected"),
    [
        ("ms", "s", 1500.0, 1.5),
        ("s", "ms", 1.5, 1500.0),
        ("deg", "rad", 180.0, np.pi),
        ("°", "rad", 90.0, np.pi / 2),
        ("degC", "K", 20.0, 293.15),
        ("K", "°C", 293.15, 20.0),
        ("degF", "degC", 212.0, 100.0),
        ("degC", "degF", -40.0, -40.0),
        ("km/h", "m/s", 36.0, 10.0),
        ("%", "1", 50.0, 0.5),
        ("rpm", "1/s", 60.0, 2 * np.pi),
        ("hours", "min", 2.0, 120.0),
        ("kN*mm", "J", 3.0, 3.0),
    ],
)
def test_units_are_converted_and_back(unit: str, target: str, value: float, expected: float) -> None:
    conversion = find_unit_conversion(unit, target)
    assert conversion is not None
    assert conversion.convert(np.array([value]))[0] == pytest.approx(expected, rel=1e-14)
    back = find_unit_conversion(target, unit)
    assert back is not None
    assert back.convert(conversion.convert(np.array([value])))[0] == pytest.approx(value, rel=1e-13)
    # A difference has no zero.
    assert conversion.convert_difference(np.zeros(1))[0] == 0.0


def test_other_quantities_and_words_are_not_converted() -> None:
    for pair in (("m", "s"), ("pigs", "m"), ("C", "degC"), ("rad/", "s"), ("10^999*m", "m"), ("m", "10^99999999999*m")):
        assert find_unit_conversion(*pair) is None
    assert find_unit_conversion("pigs", "pigs") is not None
    assert [is_known_unit(text) for text in ("m/s^2", "%", "filtered", "3", "", "a.u.")] == [True, True, *[False] * 4]


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("angle [deg]", "deg"),
        ("T (degC)", "degC"),
        ("x (filtered)", ""),
        ("x [a.u.]", "a.u."),
        ("x [-]", ""),
        ("x [1]", ""),
        ("x []", ""),
        ("x_ms", ""),
        ("Ta / K", "K"),
        ("Ta in °C", "°C"),
        ("v in m / s", "m / s"),
        ("a / b", ""),
        ("valve in use", ""),
        ("m/s", ""),
        ("P/kW", "kW"),
        ("T/°C", "°C"),
        ("T1/K", "K"),
        ("T1/T2", ""),
        ("speed km/h", ""),
    ],
)
def test_units_stand_in_brackets_and_other_words_are_none(column: str, unit: str) -> None:
    assert unit_from_name(column) == unit


def test_units_after_the_name_are_converted() -> None:
    found = read({"t / s": T, "x / K": T + 273.15, "y in degF": T}, {"x": "degC", "y": "degF"})
    assert "x is converted from K to degC" in found.notes
    assert found.measurements.series[0].values == pytest.approx(T)


@pytest.mark.parametrize("column", ["time_ms", "t / ms", "Time, ms", "time in ms", "t (ms)", "Zeit [ms]"])
def test_the_unit_of_a_time_needs_no_brackets(column: str) -> None:
    assert unit_from_name(column, is_time=True) == "ms"
    found = read({column: 1000 * T, "x": T}, {"t": "s"})
    assert found.measurements.series[0].times.tolist() == T.tolist()
    assert "t is converted from ms to s" in found.notes


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_every_table_is_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, large: bool) -> None:
    frame = pl.DataFrame({"time [ms]": 1000 * T, "x [deg]": T, "err (deg)": np.full(10, 2.0), "slope [deg/ms]": T})
    source: Any = tmp_path / f"a.{ending}"
    if ending == "csv":
        frame.write_csv(source)
    elif ending == "parquet":
        frame.write_parquet(source)
    else:
        source = frame
    monkeypatch.setattr(sources, "MAX_ROWS_IN_MEMORY", 0 if large else 10**6)
    columns = {"x'": "slope", "std(x)": "err"}
    found = load_data(source, channels=["x"], units={"t": "s", "x": "rad"}, columns=columns).measurements
    assert found.window == (0.0, 9.0)
    by_name = {item.observable: item for item in found.observable_statistics}
    assert by_name["x"].mean == pytest.approx(np.pi / 180 * 4.5)
    assert by_name["x"].known_noise == pytest.approx(np.pi / 90)
    assert by_name["x'"].mean == pytest.approx(1000 * np.pi / 180 * 4.5)


def test_noise_without_a_unit_has_that_of_its_values() -> None:
    (series,) = read({"t": T, "x [mm]": T, "e": T + 1.0}, {"x": "m"}, columns={"std(x)": "e"}).measurements.series
    np.testing.assert_allclose(series.std, (T + 1.0) / 1000)
    (series,) = read({"t": T, "x [mm]": T}, {"x": "m"}, noise_std=0.5).measurements.series
    assert series.std.tolist() == [0.5] * 10


@pytest.mark.parametrize(
    ("columns", "units", "options", "match"),
    [
        ({"t": T, "x [m]": T}, {"x": "rad"}, {}, r"column x \[m\] is in m, according to its name, but x is in rad"),
        ({"t": T, "x [grad]": T}, {"x": "rad"}, {}, "in grad, according to its name, but x is in rad"),
        ({"time [m]": T, "x": T}, {"t": "s"}, {}, r"column time \[m\] is in m, according to its name, but t is in s"),
        ({"time_s": T, "x": T}, {"t": "m"}, {}, "column time_s is in s, according to its name, but t is in m"),
        ({"t": T, "d [mm]": T}, {"x": "m", "t": "s"}, {"columns": {"x - y": "d"}}, "that of x - y is not known"),
        (
            {"t": [datetime(2026, 1, 1 + k) for k in range(10)], "x": T},
            {"t": "m"},
            {},
            "dates .* are seconds, but t is",
        ),
    ],
)
def test_what_cannot_be_converted_is_refused(
    columns: dict[str, Any], units: dict[str, str], options: dict[str, Any], match: str
) -> None:
    with pytest.raises(DataError, match=match):
        read(columns, units, **options)


def test_without_declared_units_the_columns_tell_them(tmp_path: Path) -> None:
    found = read({"time [h]": T, "x [mm]": T, "y (left)": T}, {})
    assert found.labels["units"] == {"t": "h", "x": "mm"}
    assert found.measurements.window == (0.0, 9.0)
    # Of several files, the first tells.
    (tmp_path / "a.csv").write_text("t [s],x [m]\n0,1\n1,2\n")
    (tmp_path / "b.csv").write_text("t [ms],x [mm]\n2000,1500\n3000,2500\n")
    (series,) = load_data(str(tmp_path / "*.csv"), channels=["x"]).measurements.series
    assert (series.times.tolist(), series.values.tolist()) == ([0, 1, 2, 3], [1, 2, 1.5, 2.5])


def test_units_of_columns_that_contradict_the_equations_are_refused() -> None:
    frame = pl.DataFrame({"t [s]": T, "x [mm]": T, "v [m/s]": np.ones(10)})
    with pytest.raises(DataError, match=r"the column names give .*the units of equation 1 do not agree"):
        lk.LODEGP(lk.System("x' = v")).fit(frame)


PENDULUM = """
equations = ["L*phi'' + 9.81*phi = 0"]
[parameters]
L = { positive = true }
[units]
t = "s"
phi = "rad"
L = "m"
"""


def test_a_pendulum_in_milliseconds_and_degrees_has_its_length(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PENDULUM)
    t = np.linspace(0, 6, 60)
    phi = 10 * np.cos(np.sqrt(9.81 / 0.8) * t) + 0.01 * np.cos(50 * t)
    rows = [f"{1000 * a:.0f};{b:.5f};{b:.1f}" for a, b in zip(t, phi, strict=True)]
    (tmp_path / "log.csv").write_text("\n".join(["time [ms];phi [deg];acc", *rows]))
    product = pipeline.fit_file(lk.read_system_file(tmp_path / "p.toml"), tmp_path / "log.csv", random_state=0)
    assert product.gp.parameters_["L"].value == pytest.approx(0.8, rel=1e-3)
    assert product.gp.labels_["units"] == {"t": "s", "phi": "rad", "L": "m"}
    assert product.notes[-1] == "columns not used: acc"
    # An update is converted to the same units.
    start = product.gp.fit_.measurements.size
    (tmp_path / "later.csv").write_text("time [ms];phi [deg]\n6100;-4.1\n6200;-6.9\n")
    product.gp.update(tmp_path / "later.csv", relearn=False)
    assert product.gp.fit_.measurements.size == start + 2
    assert product.gp.fit_.measurements.window == (0.0, 6.2)
    with pytest.raises(lk.LodekitError, match="phi was measured before between t = 0 and 6"):
        product.gp.update(tmp_path / "log.csv", relearn=False)


def test_dates_are_counted_in_the_declared_unit(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("equations = [\"T' = -k*T\"]\nparameters = ['k']\n[units]\nt = 'min'\n")
    rows = [f"2026-03-01 12:{m:02d},{5 * np.exp(-0.05 * m):.5f}" for m in range(0, 40, 2)]
    (tmp_path / "log.csv").write_text("\n".join(["date,T", *rows]))
    gp = pipeline.fit_file(lk.read_system_file(tmp_path / "p.toml"), tmp_path / "log.csv", random_state=0).gp
    assert gp.parameters_["k"].value == pytest.approx(0.05, rel=1e-2)
    assert gp.labels_ == {"title": "", "units": {"t": "min"}, "origin": "2026-03-01T12:00:00"}
    dates = np.array(["2026-03-01T12:30"], dtype="datetime64[m]")
    assert gp.predict(dates)[0, 0] == gp.predict([30.0])[0, 0]
    assert gp.predict(np.array([timedelta(minutes=30)]))[0, 0] == gp.predict([30.0])[0, 0]
    assert date_column(gp.labels_, [30.0]) == {"date": ["2026-03-01T12:30:00"]}
    gp.update(dates, {"T": [1.1]}, relearn=False)
    assert gp.fit_.measurements.window == (0.0, 38.0)
    assert np.isfinite(gp.score(dates, {"T": [1.1]}))
    with pytest.raises(
        lk.LodekitError, match=r"counted in min since 2026-03-01T12:00:00.* refit with fit\(\.\.\., units={'t': 'h'}\)"
    ):
        gp.label(units={"t": "h"})
    with pytest.raises(lk.LodekitError, match="like those of the fit, got dates with one"):
        gp.predict(pl.Series([datetime.fromisoformat("2026-03-01T12:30+00:00")]))


def test_unix_times_are_dates_in_utc(tmp_path: Path) -> None:
    rows = [f"{1_710_000_000 + 60 * k}{{}},{k}" for k in range(5)]
    start, path = datetime(2024, 3, 9, 16, tzinfo=UTC), tmp_path / "log.csv"
    for zeros, name, unit in (("", "time", "s"), ("000", "time", "ms"), ("000", "time_ms", "ms")):
        path.write_text("\n".join([f"{name},x", *rows]).format(*[zeros] * 5))
        found = load_data(path, channels=["x"], units={"t": "h"})
        assert found.measurements.series[0].times == pytest.approx(np.arange(5) / 60.0, abs=1e-9)
        assert found.origin == start
        notes = (f"times are counted in h since {start}", f"times in column {name} are Unix times in {unit}")
        assert found.notes[:2] == notes
        assert load_data(path, channels=["x"], timezone="Europe/Berlin").origin == start
        later = load_data(path, channels=["x"], since=start - timedelta(hours=1), is_dated=True, units={"t": "h"})
        assert later.measurements.series[0].times[0] == pytest.approx(1.0, abs=1e-9)
        cropped = load_data(path, channels=["x"], window=("2024-03-09 16:02", None))
        assert len(cropped.measurements.series[0].times) == 3
    assert preview_table(path).time.unit == "h"  # type: ignore[union-attr]
    with pytest.raises(
        lk.LodekitError, match="got Unix times, which are dates in UTC; give the time zone of the dates"
    ):
        load_data(path, channels=["x"], since=datetime(2024, 3, 9), is_dated=True)
    with pytest.raises(lk.LodekitError, match="expected times as numbers, like those of the fit, got Unix times in ms"):
        load_data(path, channels=["x"], is_dated=False, units={"t": "h"})
    path.write_text("time,x\n2024-03-09 16:00,1\n")
    with pytest.raises(lk.LodekitError, match="expected times as numbers, like those of the fit, got dates"):
        load_data(path, channels=["x"], is_dated=False, units={"t": "h"})
    # A unit in the header, or small numbers, are not questioned.
    (tmp_path / "log.csv").write_text("\n".join(["time [h],x", *rows]).format(*[""] * 5))
    assert not load_data(tmp_path / "log.csv", channels=["x"], units={"t": "h"}).notes[1:]
    times = 1.71e9 + 60 * np.arange(5)
    [note] = load_data(times, {"x": np.arange(5.0)}, ["x"], units={"t": "h"}).notes
    assert note.startswith("times such as 1710000240 look like Unix times in s, but are read in h; pass t as dates")
    assert not load_data(times, {"x": np.arange(5.0)}, ["x"], units={"t": "s"}).notes
