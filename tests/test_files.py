"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lodekit as lk
from lodekit.files import make_folder, write_file


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_file(path, "first")
    write_file(path, b"second")
    assert path.read_bytes() == b"second"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_file(path, "first")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(path, "second")
    assert path.read_text() == "first"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(lk.LodekitError, match="cannot write"):
        write_file(tmp_path / "no" / "a.txt", "")
    with pytest.raises(lk.LodekitError, match="cannot write"):
        write_file(tmp_path, "")
    (tmp_path / "file").write_text("")
    with pytest.raises(lk.LodekitError, match="cannot write to"):
        make_folder(tmp_path / "file" / "folder")
    assert make_folder(tmp_path / "a" / "b").is_dir()


def test_labels_are_saved_with_a_model(tmp_path: Path) -> None:
    gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    assert gp.labels_ == {"title": "", "units": {}, "origin": ""}
    gp.label(title="A walk", units={"x": "m"}, origin="2026-03-01T00:00:00").save(tmp_path / "walk.lodekit")
    found = lk.LODEGP.load(tmp_path / "walk.lodekit")
    # Where time has an origin, it is in seconds.
    units = {"t": "s", "x": "m"}
    assert found.labels_ == {"title": "A walk", "units": units, "origin": "2026-03-01T00:00:00"}
    found.fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    assert found.labels_ == {"title": "", "units": {}, "origin": ""}
    with pytest.raises(lk.LodekitError, match="not been fitted"):
        lk.LODEGP(lk.System("x' = v")).label(title="too early")
