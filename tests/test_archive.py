"""Saved models: what is damaged, changed or out of proportion is refused before it costs anything."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.support.files import StorageError, check_types, read_archive, write_archive
from tests.limits import ask_bounded


@pytest.fixture(scope="module")
def walk() -> lk.LODEGP:
    return lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3, 4], {"x": [0.0, 0.9, 2.1, 3.0, 4.2]})


def repack(source: Path, target: Path, **members: bytes) -> None:
    """Write an archive again, with some members replaced, and none where they are empty."""
    with zipfile.ZipFile(source) as archive:
        held = {name: archive.read(name) for name in archive.namelist()} | members
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in held.items():
            if content:
                archive.writestr(name, content)


def resave(source: Path, target: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Write a saved model again with other numbers and a right checksum, as somebody would who means it."""
    values, arrays, _ = read_archive(source)
    change(values, arrays)
    write_archive(target, values, arrays)


def test_values_and_arrays_come_back(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "f": np.asfortranarray(np.eye(3)), "n": np.array(3), "e": np.zeros(0)}
    write_archive(tmp_path / "a", {"text": "ä", "number": np.int64(3)}, arrays)
    values, found, is_checked = read_archive(tmp_path / "a")
    assert values == {"text": "ä", "number": 3}
    assert is_checked
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].shape == array.shape
        assert found[name].flags.writeable


def test_a_model_that_was_changed_after_it_was_saved_is_refused(walk: lk.LODEGP, tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    walk.save(path)
    with zipfile.ZipFile(path) as archive:
        content = archive.read("model.json")
    assert content.count(b"x' = v") == 1
    repack(path, other, **{"model.json": content.replace(b"x' = v", b"x' = w")})
    with pytest.raises(StorageError, match="checksum is another one"):
        lk.LODEGP.load(other)
    repack(path, other, sha256=b"")
    with pytest.raises(StorageError, match="checksum is missing"):
        lk.LODEGP.load(other)
    repack(path, other)
    assert lk.LODEGP.load(other).log_evidence_ == pytest.approx(walk.log_evidence_, rel=1e-9)


def test_the_stored_optimum_is_compared_with_the_one_that_is_computed_again(walk: lk.LODEGP, tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    walk.save(path)

    def claim_more(values: dict[str, Any], _: dict[str, Any]) -> None:
        values["optimum"][0] += 1.0

    def move(_: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays["x"] += 0.5

    def measure_otherwise(_: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays["values_0"][2] += 1.0

    for change in (claim_more, move, measure_otherwise):
        resave(path, other, change)
        with pytest.raises(StorageError, match="computed again it is"):
            lk.LODEGP.load(other)

    def round_otherwise(values: dict[str, Any], _: dict[str, Any]) -> None:
        values["optimum"][0] *= 1 + 1e-6

    resave(path, other, round_otherwise)
    assert lk.LODEGP.load(other).log_evidence_ == pytest.approx(walk.log_evidence_, rel=1e-9)


def array_header(shape: str, kind: str = "<f8") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (63 - (len(text) + 10) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def arrays_with(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return packed.getvalue()


def add_zeros(archive: zipfile.ZipFile, name: str, megabytes: int) -> None:
    """Add a member that unpacks to zeros, a thousand times as large as it is; nobody has to pack them for that."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    once = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    item = zipfile.ZipInfo(name)
    archive.writestr(item, once * megabytes + packer.flush(), zipfile.ZIP_STORED)
    item.compress_type, item.file_size = zipfile.ZIP_DEFLATED, megabytes << 20


def write_zeros(path: Path, megabytes: int, name: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for other in {"model.json", "arrays.npz"} - {name}:
            archive.writestr(other, b"{}")
        add_zeros(archive, name, megabytes)


def test_archives_that_unpack_to_more_than_fits_are_refused_in_little_memory(walk: lk.LODEGP, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    walk.save(whole)
    write_zeros(tmp_path / "numbers", 1500, "arrays.npz")
    write_zeros(tmp_path / "text", 600, "model.json")
    nested = io.BytesIO()
    with zipfile.ZipFile(nested, "w") as archive:
        add_zeros(archive, "x.npy", 600)
    repack(whole, tmp_path / "nested", **{"arrays.npz": nested.getvalue()}, sha256=b"")
    for name, shape in (
        ("claims", "(1000000000000000000,)"),
        ("wraps", "(4294967296, 4294967296, 2)"),
        ("less", "(-1,)"),
    ):
        broken = arrays_with(x=array_header(shape))
        repack(whole, tmp_path / name, **{"arrays.npz": broken}, sha256=b"")
    objects = arrays_with(x=array_header("(1,)", "|O") + bytes(8))
    repack(whole, tmp_path / "objects", **{"arrays.npz": objects}, sha256=b"")
    names = ["numbers", "text", "nested", "claims", "wraps", "less", "objects"]
    assert (tmp_path / "numbers").stat().st_size < 2e6
    answers = ask_bounded(
        f"for name in {names!r}: ask(name, lambda: lk.LODEGP.load({str(tmp_path)!r} + '/' + name))\n"
        f"ask('whole', lambda: lk.LODEGP.load({str(whole)!r}).log_evidence_)",
        megabytes=300,
    )
    for name in ("numbers", "text", "nested"):
        assert answers[name].startswith("StorageError"), name
        assert "out of proportion" in answers[name], name
    for name in ("claims", "wraps", "less", "objects"):
        assert answers[name].startswith("StorageError"), name
        assert "does not have the numbers that it claims" in answers[name], name
    assert float(answers["whole"]) == pytest.approx(walk.log_evidence_, rel=1e-9)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(StorageError, match="expected a file"):
            lk.LODEGP.load(place)


def test_a_model_of_the_format_before_loads(walk: lk.LODEGP, tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    walk.save(path)
    with zipfile.ZipFile(path) as archive:
        values = json.loads(archive.read("model.json"))
    assert values.pop("version") == lk.__version__
    repack(path, other, **{"model.json": json.dumps(values | {"format": 3}).encode()}, sha256=b"")
    assert lk.LODEGP.load(other).log_evidence_ == pytest.approx(walk.log_evidence_, rel=1e-9)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("diagnosis", "trouble"), [[]]),
        (("diagnosis", "checks", 0, "count"), "1"),
        (("diagnosis", "checks", 0, "explained"), {}),
        (("diagnosis", "checks", 0, "size"), 10**30),
        (("preference",), {"a": "1"}),
        (("optimum", 1), "yes"),
    ],
)
def test_what_a_file_says_about_a_fit_has_its_types(
    walk: lk.LODEGP, tmp_path: Path, path: tuple[Any, ...], value: Any
) -> None:
    def change(values: dict[str, Any], _: dict[str, Any]) -> None:
        for key in path[:-1]:
            values = values[key]
        assert path[-1] in values or path[-1] == 1
        values[path[-1]] = value

    walk.save(tmp_path / "a")
    resave(tmp_path / "a", tmp_path / "b", change)
    with pytest.raises(StorageError, match=r"not a complete lodekit model: expected"):
        lk.LODEGP.load(tmp_path / "b")


def test_values_of_dataclasses_are_checked_all_the_way_down() -> None:
    check_types({"a": (1.0, None)}, dict[str, tuple[float, str | None]])
    for value, hint in (((1.0,), tuple[float, float]), (True, float), (1.5, int), ({1: 1.0}, dict[str, float])):
        with pytest.raises(TypeError, match="expected"):
            check_types(value, hint)
