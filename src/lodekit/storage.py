"""Fits in files: JSON and arrays in one archive, never pickle; written whole or not at all."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.data.measurements import Measurements
from lodekit.data.observations import Observations
from lodekit.data.statistics import Statistics
from lodekit.data.units import Units
from lodekit.errors import LodekitError
from lodekit.files import write_file
from lodekit.fitted import Arguments, Fit
from lodekit.fitting import make_fit, prepare
from lodekit.labels import Labels
from lodekit.learning.curvature import curvature_at
from lodekit.learning.diagnosis import Diagnosis
from lodekit.learning.search import Optimum
from lodekit.system.system import System

__all__ = ["FORMAT", "StorageError", "load_fit", "save_fit"]

FORMAT = 3
#: Format 2 held the negative of the log evidence.
_READABLE = (2, FORMAT)
_MARK = "lodekit-model"


class StorageError(LodekitError):
    """A file that cannot be written, or is not a saved model."""


def save_fit(fit: Fit, path: str | Path) -> None:
    """Write a fit to a file: JSON and arrays, whole or not at all.

    Parameters
    ----------
    path : str or Path
        The file; an old one is replaced.

    Examples
    --------
    >>> import tempfile
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     gp.save(f"{folder}/walk.lodekit")
    ...     again = lk.LODEGP.load(f"{folder}/walk.lodekit")
    >>> bool(abs(again.log_evidence_ - gp.log_evidence_) < 1e-9)
    True
    """
    units, optimum = fit.prior.units, fit.optimum
    data, arrays = _pack_measurements(fit.measurements)
    arrays |= {"x": optimum.x, "curvature": fit.curvature, "at_bound": optimum.at_bound}
    state = {
        "system": fit.system.definition(),
        "arguments": fit.arguments.to_dict(),
        "labels": fit.labels.to_dict(),
        "scaling": [units.start, units.span],
        "scales": dict(zip(fit.measurements.names, units.scales.tolist(), strict=True)),
        "sizes": {fit.layout.names[number]: each.size for number, each in fit.layout.transforms.items()},
        "diagnosis": fit.diagnosis.to_dict(),
        "optimum": [optimum.value, optimum.converged, optimum.message, optimum.evaluations],
    }
    _write_state(path, state | data, arrays)


def load_fit(path: str | Path) -> Fit:
    """Return a fit that `save_fit` has written; nothing is learned again.

    Parameters
    ----------
    path : str or Path
        The file, of this format or the one before.
    """
    state, arrays = _read_state(path)
    try:
        measurements = _unpack_measurements(state, arrays)
        start, span = state["scaling"]
        arguments = Arguments(**state["arguments"])
        system = System.from_definition(state["system"])
        time, scales = Units(start, span, np.zeros(0)), state["scales"]
        sizes = _read_sizes(state, system, measurements)
        setup = prepare(system, arguments, measurements, time=time, scales=scales, sizes=sizes)
        x, curvature, at_bound = (arrays[name] for name in ("x", "curvature", "at_bound"))
        size = setup.layout.size
        if (x.shape, curvature.shape, at_bound.shape) != ((size,), (size, size), (size,)):
            raise StorageError(f"{path} does not fit its own system; it was changed after it was saved")
        if size and not curvature.any():
            # Earlier versions left it out where no parameter of the system was learned.
            curvature = curvature_at(setup.objective, x)
        value, converged, message, evaluations = state["optimum"]
        # Format 2 held the negative, without the constants of priors.
        value = setup.objective.value(x) if state["format"] == 2 else value
        optimum = Optimum(x, value, converged, message, evaluations, at_bound)
        fit = make_fit(setup, optimum, curvature, Labels.read(state.get("labels", {})))
        # Earlier versions did not save what was found out about a fit.
        known = state.get("diagnosis")
        return fit.diagnosed() if known is None else replace(fit, diagnosis=Diagnosis.from_dict(known))
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as problem:
        raise StorageError(f"{path} is not a complete lodekit model: {problem}") from None


def _read_sizes(state: Mapping[str, Any], system: System, measurements: Measurements) -> Any:
    """Return the sizes to expect of parameters, which the vector of the search counts in, shape (p,)."""
    known = state.get("sizes")
    if known is None:
        # Before sizes came from the equations, and were saved: a start value, or the size of the data, up to one.
        unit = float(np.median([np.hypot(item.mean, item.spread) for item in measurements.summaries])) or 1.0
        known = {name: abs(each.start or 0.0) or min(unit, 1.0) for name, each in system.parameters.items()}
    return np.array([known.get(name, 1.0) for name in system.operator.ring.parameters])


def _pack_measurements(measurements: Measurements) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return measurements, or sums over them, as plain values and arrays."""
    sums = measurements.sums
    if sums is not None:
        return {"sums": {"window": [sums.start, sums.stop], "cells": [list(key) for key in sums.cells]}}, sums.arrays()
    arrays: dict[str, Any] = {}
    for i, item in enumerate(measurements.series):
        arrays |= {f"times_{i}": item.times, f"values_{i}": item.values, f"std_{i}": item.std}
    return {"observables": list(measurements.names)}, arrays


def _unpack_measurements(state: Mapping[str, Any], arrays: Mapping[str, Any]) -> Measurements:
    """Return what `_pack_measurements` took apart."""
    if "sums" in state:
        return Measurements(sums=Statistics.from_arrays(state["sums"]["window"], state["sums"]["cells"], arrays))
    data = Observations()
    for i, name in enumerate(state["observables"]):
        data = data.add(arrays[f"times_{i}"], name, arrays[f"values_{i}"], arrays[f"std_{i}"])
    return Measurements.of(data)


def _write_state(path: str | Path, state: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
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


def _read_state(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
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
    if state.get("format") not in _READABLE:
        known = " and ".join(map(str, _READABLE))
        raise StorageError(
            f"{source} has format {state.get('format')}, and this version of lodekit reads formats {known}; "
            "load it with the version that wrote it"
        )
    return state, loaded
