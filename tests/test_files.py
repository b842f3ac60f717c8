"""Files are written whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lodekit as lk
from lodekit.support.files import check_folder, make_folder, write_atomically
from tests.limits import PATIENCE


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "first")
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_results_have_the_rights_of_any_new_file_and_the_mask_of_the_process_stays(tmp_path: Path) -> None:
    """In a process of its own: the mask belongs to all threads, so nobody may touch it, not even to read it."""
    code = f"""
import os
os.umask(0o027)
def forbidden(mask): raise AssertionError("the mask was changed")
os.umask = forbidden
from lodekit.support.files import write_atomically
write_atomically({str(tmp_path / "a")!r}, "new")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_what_is_written_is_on_the_disk_before_it_replaces_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, steps = tmp_path / "a.txt", list[tuple[str, int]]()
    write_atomically(path, "first")
    sync, replace = os.fsync, Path.replace

    def noted_sync(handle: int) -> None:
        steps.append(("sync", os.fstat(handle).st_ino))
        sync(handle)

    def noted_replace(part: Path, target: Path) -> Path:
        steps.append(("replace", part.stat().st_ino))
        assert part.read_text() == "second"
        return replace(part, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_atomically(path, "second")
    number = path.stat().st_ino
    assert steps == [("sync", number), ("replace", number), ("sync", tmp_path.stat().st_ino)]


KILLED = """
import os, signal, sys
from lodekit.support import files
def die(handle): os.kill(os.getpid(), signal.SIGKILL)
os.fsync = die
files.write_atomically(sys.argv[1], "half")
"""


def test_leftovers_of_killed_writes_are_removed_by_the_next_one(tmp_path: Path) -> None:
    path, other = tmp_path / "a.txt", tmp_path / "b.txt"
    write_atomically(path, "first")
    for target in (path, path, other):
        done = subprocess.run([sys.executable, "-c", KILLED, target], check=False, timeout=PATIENCE)
        assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "first"
    # What only looks like one is somebody else's.
    (tmp_path / ".a.txt.my notes.part").write_text("mine")
    (tmp_path / ".a.txt.part").write_text("mine")
    # Of the two killed writes to one file, the second has removed what the first had left.
    assert len(list(tmp_path.iterdir())) == 5
    write_atomically(path, "second")
    left = sorted(item.name for item in tmp_path.iterdir())
    assert left[:2] == [".a.txt.my notes.part", ".a.txt.part"]
    assert [name for name in left[2:] if not name.startswith(".b.txt.")] == ["a.txt"]
    write_atomically(other, "first")
    assert sorted(item.name for item in tmp_path.iterdir())[2:] == ["a.txt", "b.txt"]


def test_a_file_that_is_being_written_is_no_leftover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writers of one file at a time: each finishes, and the last one stays."""
    path, sync, inside = tmp_path / "a.txt", os.fsync, list[int]()

    def write_in_between(handle: int) -> None:
        sync(handle)
        if not inside:
            inside.append(handle)
            write_atomically(path, "inner")
            assert path.read_text() == "inner"
            assert len(list(tmp_path.iterdir())) == 2

    monkeypatch.setattr(os, "fsync", write_in_between)
    write_atomically(path, "outer")
    assert inside
    assert path.read_text() == "outer"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "first")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "second")
    assert path.read_text() == "first"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(lk.LodekitError, match="cannot write"):
        write_atomically(tmp_path / "no" / "a.txt", "")
    with pytest.raises(lk.LodekitError, match="cannot write"):
        write_atomically(tmp_path, "")
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


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"])
def test_names_that_no_file_can_have_are_errors_of_ours(tmp_path: Path, name: str) -> None:
    for use in (lambda path: write_atomically(path, "new"), lk.LODEGP.load, make_folder):
        with pytest.raises(lk.LodekitError, match=r"cannot|is not a saved"):
            use(tmp_path / name)
    with pytest.raises(lk.LodekitError, match="cannot write to"):
        check_folder(tmp_path / ("b" * 300))
    with pytest.raises(lk.LodekitError, match="cannot write"):
        write_atomically(tmp_path / "a", "half of a character: \ud800")
    assert not list(tmp_path.iterdir())
