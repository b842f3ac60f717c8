"""Save and load plain state: JSON and arrays in one file, never pickle; written whole or not at all."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.data.measurements import Measurements
from lodekit.data.observations import Observations
from lodekit.data.statistics import Statistics
from lodekit.errors import LodekitError
from lodekit.files import write_file

__all__ = ["FORMAT", "StorageError", "pack_measurements", "read_state", "unpack_measurements", "write_state"]

FORMAT = 2
_MARK = "lodekit-model"


class StorageError(LodekitError):
    """A file that cannot be written, or is not a saved model."""


def pack_measurements(measurements: Measurements) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return measurements, or sums over them, as plain values and arrays."""
    sums = measurements.sums
    if sums is not None:
        return {"sums": {"window": [sums.start, sums.stop], "cells": [list(key) for key in sums.cells]}}, sums.arrays()
    arrays: dict[str, Any] = {}
    for i, item in enumerate(measurements.series):
        arrays |= {f"times_{i}": item.times, f"values_{i}": item.values, f"std_{i}": item.std}
    return {"observables": list(measurements.names)}, arrays


def unpack_measurements(state: Mapping[str, Any], arrays: Mapping[str, Any]) -> Measurements:
    """Return what `pack_measurements` took apart."""
    if "sums" in state:
        return Measurements(sums=Statistics.from_arrays(state["sums"]["window"], state["sums"]["cells"], arrays))
    data = Observations()
    for i, name in enumerate(state["observables"]):
        data = data.add(arrays[f"times_{i}"], name, arrays[f"values_{i}"], arrays[f"std_{i}"])
    return Measurements.of(data)


def write_state(path: str | Path, state: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write plain values and arrays to one file; an interrupted write leaves the old file as it was."""
    target = _as_path(path)
    try:
        content = json.dumps(
            {"kind": _MARK, "format": FORMAT, **state}, indent=1, ensure_ascii=False, default=lambda value: value.item()
        )
    except (AttributeError, TypeError, ValueError) as problem:
        raise StorageError(f"cannot save the arguments of this model: {problem}; use plain numbers and texts") from None
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **{name: np.asarray(array) for name, array in arrays.items()})
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.json", content)
        archive.writestr("arrays.npz", packed.getvalue())
    write_file(target, whole.getvalue(), StorageError)


def _as_path(path: str | Path) -> Path:
    if not isinstance(path, str | Path):
        raise StorageError(f"expected the path of a file, got {type(path).__name__}")
    return Path(path)


def read_state(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return plain values and arrays of a saved model."""
    source = _as_path(path)
    try:
        with zipfile.ZipFile(source) as archive:
            state = json.loads(archive.read("model.json"))
            with np.load(io.BytesIO(archive.read("arrays.npz")), allow_pickle=False) as arrays:
                loaded = {name: arrays[name] for name in arrays.files}
    except OSError as problem:
        raise StorageError(f"cannot read {source}: {problem.strerror or problem}") from None
    except (
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        ValueError,
        EOFError,
        NotImplementedError,
        RuntimeError,
    ) as problem:
        raise StorageError(f"{source} is not a saved lodekit model: {problem}") from None
    if not isinstance(state, dict) or state.get("kind") != _MARK:
        raise StorageError(f"{source} is not a saved lodekit model")
    if state.get("format") != FORMAT:
        raise StorageError(
            f"{source} has format {state.get('format')}, and this version of lodekit reads format {FORMAT}; "
            "load it with the version that wrote it"
        )
    return state, loaded
