"""Fits in files: JSON and arrays in one archive, never pickle; written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.archive import StorageError, check_types, pack, unpack
from lodekit.data.inputs import pack_inputs, unpack_inputs
from lodekit.data.measurements import Measurements
from lodekit.data.observations import Observations
from lodekit.data.records import Pool, Record
from lodekit.data.statistics import Statistics
from lodekit.data.units import Units
from lodekit.files import MODEL
from lodekit.fitted import Fit
from lodekit.fitting import make_fit
from lodekit.labels import Labels
from lodekit.learning.curvature import curvature_at
from lodekit.learning.diagnosis.diagnosis import Diagnosis
from lodekit.learning.searches.search import Optimum
from lodekit.preparing import prepare
from lodekit.settings import Arguments
from lodekit.setup import Setup
from lodekit.system.system import System
from lodekit.tails import pack_tail, unpack_tail
from lodekit.version import __version__

__all__ = ["FORMAT", "StorageError", "load_fit", "save_fit"]

FORMAT = 7
#: Format 2 held the negative of the log evidence; format 3 had no checksum; format 4 had one record; format 5 had no
#: modes that are left open, and is written where there are none; format 6 held all rows, or none, and is written where
#: they are not on disk.
_READABLE = (2, 3, 4, 5, 6, FORMAT)
_CLOSED, _WHOLE = 5, 6
_UNCHECKED = (2, 3)
_MARK = "lodekit-model"
#: How far the objective may be from what was stored, relative to it or to the number of measurements: other processors
#: round otherwise, and near-singular matrices make more of that; any other number in the file moves it further.
_TOLERANCE = 1e-3


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
    data, arrays = _pack_records(fit)
    arrays |= {"x": optimum.x, "curvature": fit.curvature, "at_bound": optimum.at_bound}
    state = {
        "system": fit.system.definition(),
        # Models without inputs or disturbances stay readable for versions that know of none.
        "arguments": {k: v for k, v in fit.arguments.to_dict().items() if k not in ("inputs", "disturbances") or v},
        "labels": fit.labels.to_dict(),
        "scaling": [units.start, units.span],
        "scales": dict(zip(fit.measurements.names, units.scales.tolist(), strict=True)),
        "sizes": {fit.layout.names[number]: each.size for number, each in fit.layout.transforms.items()},
        "diagnosis": fit.diagnosis.to_dict(),
        "preference": {name: float(value) for name, value in fit.preference.items()},
        **({"needs": {name: float(value) for name, value in fit.needs.items()}} if fit.needs else {}),
        "optimum": [optimum.value, optimum.converged, optimum.message, optimum.evaluations],
    }
    number = FORMAT if fit.is_on_disk else _CLOSED if fit.layout.open_modes is None else _WHOLE
    pack(path, {"kind": _MARK, "format": number, "version": __version__, **state, **data}, arrays)


def load_fit(path: str | Path) -> Fit:
    """Return a fit that `save_fit` has written; nothing is learned again.

    Parameters
    ----------
    path : str or Path
        The file, of this format or one of the five before; or the folder of a fit, which holds it.
    """
    if isinstance(path, str | Path) and os.path.isfile(Path(path) / MODEL):
        path = Path(path) / MODEL
    state, arrays = _read_state(path)
    try:
        measurements, starts = _unpack_records(state, arrays)
        start, span = state["scaling"]
        arguments = Arguments(**state["arguments"])
        system = System.from_definition(state["system"])
        time, scales = Units(start, span, np.zeros(0)), state["scales"]
        sizes = _read_sizes(state, system, measurements)
        kept: dict[str, Any] = {"time": time, "scales": scales, "sizes": sizes, "starts": starts}
        setup = prepare(system, arguments, measurements, **kept)
        if state["format"] <= _CLOSED and setup.layout.open_modes is not None:
            setup = prepare(system, replace(arguments, mode_deviation="learned"), measurements, **kept)
        x, curvature, at_bound = (arrays[name] for name in ("x", "curvature", "at_bound"))
        size = setup.layout.size
        kinds = {array.dtype.kind for array in arrays.values()}
        shapes = (x.shape, curvature.shape, at_bound.shape)
        if shapes != ((size,), (size, size), (size,)) or not kinds <= set("fiub") or at_bound.dtype != bool:
            raise StorageError(f"{path} does not fit its own system; it was changed after it was saved")
        if size and not curvature.any():
            # Earlier versions left it out where no parameter of the system was learned.
            curvature = curvature_at(setup.objective, x)
        value, converged, message, evaluations = state["optimum"]
        # Format 2 held the negative, without the constants of priors.
        value = _checked_value(setup, x, None if state["format"] == 2 else value, state, path)
        optimum = Optimum(x, value, converged, message, evaluations, at_bound)
        fit = make_fit(setup, optimum, curvature, Labels.read(state.get("labels", {})))
        preference, needs = dict(state.get("preference", {})), dict(state.get("needs", {}))
        check_types((converged, message, evaluations), tuple[bool, str, int])
        check_types(preference, dict[str, float])
        check_types(needs, dict[str, float])
        fit = replace(fit, preference=preference, needs=needs)
        # Earlier versions did not save what was found out about a fit.
        if (known := state.get("diagnosis")) is None:
            return fit.diagnosed()
        diagnosis = Diagnosis.from_dict(known)
        check_types(diagnosis, Diagnosis)
        return replace(fit, diagnosis=diagnosis)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, ArithmeticError) as problem:
        raise StorageError(f"{path} is not a complete lodekit model: {problem}") from None


def _checked_value(setup: Setup, x: Any, stored: float | None, state: Mapping[str, Any], path: str | Path) -> float:
    """Return the objective at the optimum as it was stored, after computing it again; that alone where none was."""
    with setup.threads():
        found = float(setup.objective.value(x))
    if stored is None:
        return found
    if not abs(found - stored) <= _TOLERANCE * max(1.0, abs(stored), setup.engine.size):
        writer = state.get("version", "an earlier version")
        raise StorageError(
            f"{path} says that the optimum has {stored:.6g}, computed again it has {found:.6g}: it was changed, or "
            f"this version ({__version__}) computes otherwise than the one that wrote it ({writer}). Fit again"
        )
    return float(stored)


def _read_state(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return plain values and arrays of a saved model."""
    state, arrays, is_checked = unpack(path)
    if not isinstance(state, dict) or state.get("kind") != _MARK:
        raise StorageError(f"{path} is not a saved lodekit model")
    if state.get("format") not in _READABLE:
        known = ", ".join(map(str, _READABLE[:-1]))
        raise StorageError(
            f"{path} has format {state.get('format')}, and this version of lodekit reads formats {known} and {FORMAT}; "
            "load it with the version that wrote it"
        )
    if state["format"] not in _UNCHECKED and not is_checked:
        raise StorageError(f"{path} was changed after it was saved: its checksum is missing")
    return state, arrays


def _read_sizes(state: Mapping[str, Any], system: System, measurements: Measurements) -> Any:
    """Return the sizes to expect of parameters, which the vector of the search counts in, shape (p,)."""
    known = state.get("sizes")
    if known is None:
        # Before sizes came from the equations, and were saved: a start value, or the size of the data, up to one.
        unit = float(np.median([np.hypot(item.mean, item.spread) for item in measurements.summaries])) or 1.0
        known = {name: abs(each.start or 0.0) or min(unit, 1.0) for name, each in system.parameters.items()}
    return np.array([known.get(name, 1.0) for name in system.operator.ring.parameters])


def _pack_records(fit: Fit) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the measurements of all records as plain values and arrays; one alone as earlier formats have it."""
    if len(fit.parts) == 1:
        return _pack_measurements(fit)
    packed: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for number, (name, part) in enumerate(zip(fit.records, fit.parts, strict=True)):
        data, own = _pack_measurements(part)
        packed.append({"name": name, "start": part.prior.units.start, **data})
        arrays |= {f"record_{number}_{key}": array for key, array in own.items()}
    return {"records": packed}, arrays


def _unpack_records(state: Mapping[str, Any], arrays: Mapping[str, Any]) -> tuple[Measurements, dict[str, float]]:
    """Return what `_pack_records` took apart, and when each of several records starts."""
    if "records" not in state:
        return _unpack_measurements(state, arrays), {}
    records, starts = [], {}
    for number, data in enumerate(state["records"]):
        prefix = f"record_{number}_"
        own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
        records.append(Record(str(data["name"]), _unpack_measurements(data, own)))
        starts[str(data["name"])] = float(data["start"])
    return Pool.together(records), starts


def _pack_measurements(fit: Fit) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the measurements of a record, sums over them, or the end of them, as plain values and arrays."""
    if fit.is_on_disk:
        return pack_tail(fit)
    measurements = fit.measurements
    sums = measurements.sums
    if sums is not None:
        return {"sums": {"window": [sums.start, sums.stop], "cells": [list(key) for key in sums.cells]}}, sums.arrays()
    arrays: dict[str, Any] = {}
    for i, item in enumerate(measurements.series):
        arrays |= {f"times_{i}": item.times, f"values_{i}": item.values, f"std_{i}": item.std}
    inputs, samples = pack_inputs(measurements.inputs)
    return {"observables": list(measurements.names)} | ({"inputs": inputs} if inputs else {}), arrays | samples


def _unpack_measurements(state: Mapping[str, Any], arrays: Mapping[str, Any]) -> Measurements:
    """Return what `_pack_measurements` took apart."""
    if "tail" in state:
        return unpack_tail(state, arrays)
    if "sums" in state:
        return Measurements(sums=Statistics.from_arrays(state["sums"]["window"], state["sums"]["cells"], arrays))
    data = Observations()
    for i, name in enumerate(state["observables"]):
        data = data.add(arrays[f"times_{i}"], name, arrays[f"values_{i}"], arrays[f"std_{i}"])
    return replace(Measurements.of(data), inputs=unpack_inputs(state.get("inputs", ()), arrays))
