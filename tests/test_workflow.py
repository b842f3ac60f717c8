"""From files to results without a command line: values come back, files are written whole, nothing is printed."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.support.files import MODEL_FILE
from lodekit.workflow import pipeline
from lodekit.workflow.new_data import columns_of_fit, read_record
from lodekit.workflow.pipeline import FitRun, prediction_table, sample_table

SYSTEM = """
title = "A room"
equations = ["tau*T' + T = Ta"]
noise = { T = 0.05 }
[parameters]
tau = { positive = true, start = 20 }
Ta = {}
[units]
T = "K"
[columns]
T = "temp"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a system and its measurements."""
    place = tmp_path_factory.mktemp("room")
    (place / "room.toml").write_text(SYSTEM)
    noise = np.random.default_rng(0).standard_normal(25)
    rows = [f"{t};{20 + 5 * np.exp(-t / 30) + 0.05 * noise[t]:.4f};{t}" for t in range(25)]
    (place / "log.csv").write_text("\n".join(["t;temp;other", *rows]).replace(".", ","))
    return place


@pytest.fixture(scope="module")
def product(folder: Path) -> FitRun:
    """A fit of that."""
    return pipeline.fit_file(lk.read_system_file(folder / "room.toml"), folder / "log.csv", random_state=0)


def test_a_system_file_says_how_data_are_read_and_called(product: FitRun, folder: Path) -> None:
    assert product.source == "log.csv"
    assert product.notes == ("separator ';', decimal comma", "T is in column temp", "columns not used: other")
    labels = {"title": "A room", "units": {"T": "K"}, "origin": "", "columns": {"T": "temp"}}
    assert product.gp.labels_ == labels
    assert product.gp.label(title="A room", units={"T": "K"}).labels_ == labels
    # Another file of the same layout needs no mapping; one that looks different is read by its own names.
    assert columns_of_fit(product.gp, folder / "log.csv") == {"T": "temp"}
    (folder / "other.csv").write_text("t,T\n0,1\n1,2\n")
    assert columns_of_fit(product.gp, folder / "other.csv") == {}
    assert product.gp.fit_.measurements.series[0].std.tolist() == [0.05] * 25
    file = lk.read_system_file(folder / "room.toml")
    _, other = pipeline.prepare_fit(file, folder / "log.csv", columns={"T": "other"})
    assert other.measurements.series[0].values[-1] == 24


def test_names_that_make_no_sense_are_told_before_data_are_read(folder: Path) -> None:
    file = lk.read_system_file(folder / "room.toml")
    with pytest.raises(lk.LodekitError, match="T9"):
        pipeline.fit_file(file, folder / "log.csv", columns={"T9": "other"})


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([], {}, r"expected the path of a data file, or a list of paths, got \[\]"),
        ({"t": [0.0]}, {}, "got dict; LODEGP.fit takes tables"),
        ("log.csv", {"split_gap": True}, r"fit_file\(\) has no argument 'split_gap'; did you mean 'split_gaps'"),
    ],
)
def test_what_fit_file_cannot_use_is_refused(folder: Path, data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(lk.LodekitError, match=message):
        lk.fit_file(folder / "room.toml", data, **options)


def test_results_are_computed_first_and_written_whole(
    product: FitRun, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    results, _ = pipeline.compute_results(product, figures=False, data={"t": [0.0], "T": [25.0]})
    assert set(results) == {"report.html", "predictions.csv", "data.csv"}
    assert results["data.csv"] == "t,T\n0.0,25.0\n"
    (tmp_path / "modes.png").write_text("of an earlier fit")
    (tmp_path / "mine.txt").write_text("mine")
    paths = pipeline.write_results(product, results, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*results, MODEL_FILE, "mine.txt"}
    plain = pipeline.fit_to_dict(product, paths)
    assert json.loads(json.dumps(plain)) == plain
    assert plain["observations"] == 25
    assert plain["files"]["data.csv"] == str(tmp_path / "data.csv")
    again = pipeline.read_model(tmp_path)
    assert again.parameters_["tau"].value == product.gp.parameters_["tau"].value
    assert capfd.readouterr() == ("", "")


def test_without_matplotlib_a_remark_says_so(product: FitRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    results, remarks = pipeline.compute_results(product)
    assert not any(name.endswith(".png") for name in results)
    assert "matplotlib is missing" in remarks[0]


def test_a_figure_that_fails_leaves_the_other_results(product: FitRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no scale")

    monkeypatch.setattr("lodekit.plotting.draw_channel", fail)
    results, remarks = pipeline.compute_results(product)
    assert remarks == ["channels.png cannot be drawn: no scale"]
    assert {"report.html", "predictions.csv", "residuals.png"} <= set(results)


def test_records_at_different_times_with_a_disturbance_have_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lodekit.plotting.to_png", lambda figure: b"")

    def record(times: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        return times, {"y": np.cos(times / 3.0) + 0.1 * np.cos(7.0 * times)}

    gp = lk.LODEGP(lk.System("y' + y = w"), disturbances={"w": "matern-1/2"}, restarts=1, random_state=0)
    gp.fit([record(np.arange(12.0)), record(np.arange(30.0, 42.0))])
    drawn, failed = pipeline.draw_figures(gp)
    assert not failed
    assert "equations.png" in drawn


def test_predictions_and_samples_are_columns(product: FitRun) -> None:
    times = np.linspace(0.0, 24.0, 5)
    by_record = {product.gp.records_[0]: times}
    table = prediction_table(product.gp, by_record, ["T", "T'"])
    assert list(table) == ["t", "T", "std(T)", "T'", "std(T')"]
    np.testing.assert_allclose(table["T"], product.gp.predict(times, "T").ravel())
    drawn = sample_table(product.gp, by_record, size=2, seed=1)
    learned = [product.gp.fit_.layout.names[number] for number in product.gp.fit_.layout.free_parameters]
    assert list(drawn) == ["sample", "t", "T", *learned]
    assert len(set(drawn[learned[0]][:5])) == 1 < len(set(drawn[learned[0]]))
    assert drawn["sample"] == [1] * 5 + [2] * 5
    with pytest.raises(lk.LodekitError, match="two columns would be called 'T'"):
        prediction_table(product.gp, by_record, ["T", "T"])


@pytest.mark.parametrize(
    ("known", "starts", "message"),
    [({"x": 1.0}, {}, "unknown parameter 'x'"), ({"tau": -1.0}, {}, "tau = -1"), ({}, {"tau": -1.0}, "tau = -1")],
)
def test_parameters_are_set_or_refused(
    folder: Path, known: Mapping[str, float], starts: Mapping[str, Any], message: str
) -> None:
    file = lk.read_system_file(folder / "room.toml")
    with pytest.raises(lk.LodekitError, match=message):
        pipeline.with_parameter_values(file, known, starts)
    assert pipeline.with_parameter_values(file, {}, {}) is file
    changed = pipeline.with_parameter_values(file, {"Ta": 19.0}, {"tau": 7.0}).system.parameters
    assert (changed["Ta"].fixed, changed["tau"].start) == (19.0, 7.0)


def test_unknown_modules_are_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("lodekit.nothing")


def test_no_cell_of_a_table_is_a_formula() -> None:
    texts = ["=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1)", "\t=1", "run 1", "2026-03-01", None]
    table: dict[str, list[Any]] = {"record": texts, "-x": [-1.5] * 8, "=y": np.full(8, -2.0).tolist(), "n": [-1] * 8}
    header, *rows = csv.reader(pipeline.to_csv(table).splitlines())
    assert header == ["record", "'-x", "'=y", "n"]
    assert [row[0] for row in rows] == [*(f"'{text}" for text in texts[:5]), "run 1", "2026-03-01", ""]
    assert all(row[1:] == ["-1.5", "-2.0", "-1"] for row in rows)


@pytest.mark.parametrize(
    ("fixed", "options"),
    [({}, {"window": ("4", None), "noise": "channel", "latent": None}), ({"tau": 30.0}, {"columns": {"T": "2"}})],
)
def test_python_code_in_the_report_repeats_the_fit(
    folder: Path, fixed: dict[str, float], options: dict[str, Any]
) -> None:
    place = folder / "shared.toml"
    place.write_text(SYSTEM.replace("noise = { T = 0.05 }", 'noise = "shared"'))
    file = pipeline.with_parameter_values(lk.read_system_file(place), fixed, {})
    # The command line removes the name if the system differs from that of the file.
    file = replace(file, name="") if fixed else file
    found, scope = pipeline.fit_file(file, folder / "log.csv", random_state=0, **options), dict[str, Any]()
    exec(found.code, scope)  # noqa: S102
    assert scope["gp"].fit_.settings == found.gp.fit_.settings
    assert scope["gp"].log_evidence_ == pytest.approx(found.gp.log_evidence_)
    assert scope["gp"].labels_ == found.gp.labels_
    assert "None" not in found.code.replace("('4', None)", "")


def test_models_remember_how_their_files_were_read(tmp_path: Path) -> None:
    rows = [f"{5 * np.exp(-t / 3) + 0.01 * (-1) ** t:.4f}" for t in range(15)]
    rows[4] = rows[9] = "-999"
    (tmp_path / "log.csv").write_text("\n".join(["T", *rows]))
    text = 'equations = ["tau*T\' + T = 0"]\nmissing = [-999]\ndt = 0.5\n[parameters]\ntau = {positive = true}\n'
    (tmp_path / "room.toml").write_text(text)
    found = pipeline.fit_file(tmp_path / "room.toml", tmp_path / "log.csv", restarts=1, random_state=0)
    assert found.gp.parameters_["tau"].value == pytest.approx(1.5, rel=0.05)
    found.gp.save(tmp_path / "room.lodekit")
    gp = lk.LODEGP.load(tmp_path / "room.lodekit")
    assert gp.labels_["reading"] == {"default_dt": 0.5, "missing": [-999.0]}
    series = read_record(gp, tmp_path / "log.csv").measurements.series[0]
    assert (len(series.times), series.times[-1]) == (13, 7.0)
    by_options = gp.validate(read_record(gp, tmp_path / "log.csv"))
    assert [len(own.channels[0].times) for own in (gp.validate(str(tmp_path / "log.csv")), by_options)] == [13, 13]
    assert len(gp.validate(series.times, {"T": series.values}).channels[0].times) == 13
    (tmp_path / "invalid.toml").write_text("missing = 'off'\nequations = [\"x' = v\"]")
    with pytest.raises(lk.LodekitError, match=r"expected missing as numbers, such as \[-999, 9999\], got 'off'"):
        lk.read_system_file(tmp_path / "invalid.toml")
