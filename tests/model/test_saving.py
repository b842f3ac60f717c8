"""Models in files: what comes back is what was saved, and damage is noticed."""

from __future__ import annotations

import copy
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lodekit as lk
from tests.model.heating import HEATING, TIMES, WALK, heating_data


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
        assert json.loads(archive.read("model.json"))["format"] == 5


def test_a_loaded_model_returns_frames_of_the_library_of_the_fit(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    gp = lk.LODEGP(WALK, random_state=0, restarts=1).fit(polars.DataFrame({"t": [0.0, 1, 2, 3], "x": [0.0, 0.9, 2, 3]}))
    gp.save(tmp_path / "walk.lodekit")
    assert isinstance(lk.LODEGP.load(tmp_path / "walk.lodekit").predict([0.5]), polars.DataFrame)


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


def test_files_that_were_cut_are_refused(walk: lk.LODEGP, tmp_path: Path) -> None:
    path = tmp_path / "model.lodekit"
    walk.save(path)
    whole = path.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 20).astype(int):
        path.write_bytes(whole[:length])
        with pytest.raises(lk.LodekitError):
            lk.LODEGP.load(path)


def test_files_with_a_wrong_bit_are_refused_or_say_what_they_said(walk: lk.LODEGP, tmp_path: Path) -> None:
    """Some bits of an archive are read by nobody; nothing but a LodekitError comes of any other."""
    path = tmp_path / "model.lodekit"
    walk.save(path)
    whole, generator, refused = path.read_bytes(), np.random.default_rng(0), 0
    for place in generator.integers(len(whole), size=40):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(generator.integers(8))
        path.write_bytes(damaged)
        try:
            found = lk.LODEGP.load(path).predict([0.5])
        except lk.LodekitError:
            refused += 1
        else:
            np.testing.assert_allclose(found, walk.predict([0.5]), rtol=1e-9)
    assert refused > 20


def test_numpy_numbers_are_fine_as_arguments_and_in_files(tmp_path: Path) -> None:
    gp = lk.LODEGP(HEATING.system, random_state=np.int64(3), restarts=np.int64(2))  # type: ignore[arg-type]
    gp.fit(TIMES, heating_data()).save(tmp_path / "model")
    assert lk.LODEGP.load(tmp_path / "model").log_evidence_ == pytest.approx(gp.log_evidence_)
    assert gp.sample(TIMES, np.int64(2)).shape == (2, 25, 3)  # type: ignore[arg-type]


def through_pickle(gp: lk.LODEGP) -> lk.LODEGP:
    found: lk.LODEGP = pickle.loads(pickle.dumps(gp))  # noqa: S301
    return found


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, through_pickle])
def test_a_fitted_model_can_be_copied_and_sent(heated: lk.LODEGP, copied: Callable[[lk.LODEGP], lk.LODEGP]) -> None:
    """Across processes: joblib and scikit-learn copy models."""
    # What was asked for before is copied with it.
    known = heated.log_evidence_
    again = copied(heated)
    assert again is not heated
    assert again.log_evidence_ == pytest.approx(known, rel=1e-12)
    np.testing.assert_allclose(again.predict([0.5, 9.0]), heated.predict([0.5, 9.0]), rtol=1e-12)
