"""From files to results without a command line: values come back, files are written whole, nothing is printed."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.support.files import MODEL_FILE
from lodekit.workflow import pipeline
from lodekit.workflow.new_data import columns_of_fit
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
    results = pipeline.compute_results(product, figures=False, data={"t": [0.0], "T": [25.0]})
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
    results = pipeline.compute_results(product)
    assert not any(name.endswith(".png") for name in results)
    assert "matplotlib is missing" in pipeline.explain_missing_results(product.gp)[0]


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


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("lodekit.progress", "lodekit.support.progress", "listening"),
        ("lodekit.rereading", "lodekit.workflow.new_data", "read_record"),
        ("lodekit.simulation", "lodekit.results.simulation", "simulate"),
        ("lodekit.workflow", "lodekit.workflow.new_data", "read_record"),
        ("lodekit.workflow", "lodekit.workflow.pipeline", "fit_file"),
        ("lodekit.workflow", "lodekit.workflow.pipeline", "compute_results"),
        ("lodekit.workflow", "lodekit.workflow.pipeline", "write_results"),
    ],
)
def test_import_paths_of_earlier_versions_still_work(old: str, new: str, name: str) -> None:
    """Scripts that earlier versions of the studio exported use them."""
    assert getattr(import_module(old), name) is getattr(import_module(new), name)


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
