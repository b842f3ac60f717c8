"""Storage of fits as JSON and arrays in one archive, without pickle, written completely or not at all.

For a record larger than memory the last rows are saved, with filter checkpoints that summarise all earlier rows, at the
estimate and at the neighbouring points that determine how predictions depend on the estimates.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.data.inputs import InputGap, inputs_from_arrays, inputs_to_arrays
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements, RecordSet, Scaling
from lodekit.data.row_store import FilterCheckpoint, InputSampleStatistics, OutOfCoreRows, RowStore
from lodekit.data.statistics import Statistics
from lodekit.data.tables.cells import NumberFormat
from lodekit.data.tables.reader import TableData
from lodekit.diagnostics.diagnosis import Diagnosis
from lodekit.fitting.hessian import observed_information
from lodekit.fitting.lbfgs import Optimum
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup, subsample_times
from lodekit.inference.innovations import BatchedPosterior
from lodekit.results.fit import Fit, assemble_fit
from lodekit.support.files import MODEL_FILE, StorageError, check_types, read_archive, write_archive
from lodekit.support.labels import Labels
from lodekit.system.system import System
from lodekit.version import __version__

_CHECKPOINT_FIELDS = ("point", "mean", "root", "response")


def pack_final_state(fit: Fit) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the end of a record as plain values and arrays."""
    posterior, spooled, sums = fit.posterior, fit.measurements.stored_rows, fit.measurements.sufficient_statistics
    if not isinstance(posterior, BatchedPosterior) or spooled is None or sums is None:
        raise StorageError("expected a fit whose rows are on disk; fit again with the file")
    spool, first = spooled.store, posterior.find_tail(2000)
    first_row = posterior.first_row(first)
    arrays: dict[str, Any] = {**sums.arrays(), "tail_rows": spool.read_array(first_row, spool.n_rows)}
    arrays["tail_times"], arrays["tail_counts"] = subsample_times(fit.measurements)
    heads, whole = [], first == 0 and spooled.checkpoints is None
    for number, own in enumerate(() if whole else _posterior_and_neighbours(fit, posterior)):
        value, error, parts = own.summarize_before(first)
        heads.append([value, error])
        arrays |= {f"head_{number}_{name}": part for name, part in zip(_CHECKPOINT_FIELDS, parts, strict=True)}
    before = spooled.n_omitted
    for row in range(0, first_row, 100_000):
        before += sum(len(item.values) for item in spool.read_series(row, min(row + 100_000, first_row)))
    tail = {
        "names": list(spool.names),
        "columns": list(spool.columns),
        "noise": {name: float(own) for name, own in spool.known_noise.items()},
        "noisy": list(spool.noise_columns),
        "window": list(fit.measurements.window),
        "samples": {name: list(own[:4]) for name, own in spooled.input_statistics.items()},
        "moved": {name: list(own.gap) for name, own in spooled.input_statistics.items() if own.gap is not None},
        "size": before,
        "whole": whole,
        "heads": heads,
    }
    inputs, samples = inputs_to_arrays(fit.measurements.inputs)
    window = {"window": [sums.start, sums.stop], "cells": [list(key) for key in sums.cells]}
    return {"sums": window, "tail": tail, "inputs": inputs}, arrays | samples


def _posterior_and_neighbours(fit: Fit, posterior: BatchedPosterior) -> Iterator[BatchedPosterior]:
    """Yield the posterior, and those at neighbouring points for the Jacobian of predictions in the estimates."""
    yield posterior
    for _, above, below in fit.parameter_uncertainty.posterior_pairs:
        for own in (above, below):
            if isinstance(own, BatchedPosterior):
                yield own


def unpack_final_state(state: Mapping[str, Any], arrays: Mapping[str, Any]) -> Measurements:
    """Return measurements from the result of `pack_final_state`."""
    tail, rows = state["tail"], arrays["tail_rows"]
    columns, noisy, names = tail["columns"], tail["noisy"], tail["names"]
    if rows.ndim != 2 or rows.shape[1] != 1 + len(columns) + len(noisy) or not set(names) <= set(columns):
        raise ValueError(f"expected rows of {1 + len(columns) + len(noisy)} numbers, got {rows.shape}")
    values = dict(zip(columns, rows[:, 1 : 1 + len(columns)].T, strict=True))
    noise = dict(zip(noisy, rows[:, 1 + len(columns) :].T, strict=True))
    block = TableData(rows[:, 0], {name: values[name] for name in names}, noise, NumberFormat())
    kept = tuple(name for name in noisy if name in names)
    spool = RowStore.write(names, [block], tail["noise"], kept)
    heads: list[FilterCheckpoint] = []
    for number, (value, error) in enumerate(tail["heads"]):
        point, mean, root, response = (arrays[f"head_{number}_{name}"] for name in _CHECKPOINT_FIELDS)
        heads.append((float(value), float(error), (point, mean, root, response)))
    first, last = map(float, tail["window"])
    gaps = tail.get("moved", {})
    spooled = OutOfCoreRows(
        tuple(names),
        tail["noise"],
        kept,
        # No local function: models are pickled.
        partial(iter, [block]),
        existing_store=spool,
        window=(first, last),
        input_statistics={n: _unpack_input_summary(own, gaps.get(n)) for n, own in tail["samples"].items()},
        checkpoints=None if tail["whole"] else tuple(heads),
        n_omitted=int(tail["size"]),
        sampled_times=None if tail["whole"] else (arrays["tail_times"], arrays["tail_counts"]),
    )
    inputs = inputs_from_arrays(state["inputs"], arrays)
    sums = Statistics.from_arrays(state["sums"]["window"], state["sums"]["cells"], arrays)
    return Measurements(sufficient_statistics=sums, inputs=inputs, stored_rows=spooled)


def _unpack_input_summary(packed: Sequence[Any], gap: Sequence[Any] | None) -> InputSampleStatistics:
    """Return the statistics of the samples of an input; models of earlier versions contain no gaps."""
    count, mean, spread, largest = packed
    moved = None
    if gap is not None:
        first, last, before, after, gaps = gap
        moved = InputGap(float(first), float(last), float(before), float(after), int(gaps))
    return InputSampleStatistics(int(count), float(mean), float(spread), float(largest), moved)


FORMAT_VERSION = 7
#: Format 2 contained the negative of the log evidence; format 3 had no checksum; format 4 had one record; format 5 had
#: no diffuse modes, and is written if there are none; format 6 contained all rows, or none, and is written if they are
#: not on disk.
_READABLE_FORMATS = (2, 3, 4, 5, 6, FORMAT_VERSION)
_FORMAT_WITHOUT_DIFFUSE_MODES = 5
_FILE_KIND = "lodekit-model"


def save_fit(fit: Fit, path: str | Path) -> None:
    """Save the model to a file (JSON and arrays), completely or not at all.

    Parameters
    ----------
    path : str or Path
        The file; an existing one is replaced.

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
    arrays |= {"x": optimum.x, "curvature": fit.observed_information, "at_bound": optimum.at_bound}
    state = {
        "system": fit.system.definition(),
        # Models without inputs or disturbances can still be read by versions that do not support these.
        "arguments": {k: v for k, v in fit.settings.to_dict().items() if k not in ("inputs", "disturbances") or v},
        "labels": fit.labels.to_dict(),
        **({"frame_library": fit.frame_library} if fit.frame_library else {}),
        "scaling": [units.start, units.time_scale],
        "scales": dict(zip(fit.measurements.names, units.scales.tolist(), strict=True)),
        "sizes": {fit.layout.names[number]: each.expected_magnitude for number, each in fit.layout.transforms.items()},
        "diagnosis": fit.full_diagnosis.to_dict(),
        "preference": {name: float(value) for name, value in fit.hold_preference.items()},
        **({"needs": {n: float(v) for n, v in fit.disturbance_gains.items()}} if fit.disturbance_gains else {}),
        "optimum": [optimum.value, optimum.converged, optimum.message, optimum.n_evaluations],
    }
    version = _FORMAT_WITHOUT_DIFFUSE_MODES if fit.layout.diffuse_modes is None else 6
    version = FORMAT_VERSION if fit.is_on_disk else version
    write_archive(path, {"kind": _FILE_KIND, "format": version, "version": __version__, **state, **data}, arrays)


def load_fit(path: str | Path) -> Fit:
    """Return a fit that was written by `save_fit`; nothing is estimated again."""
    if isinstance(path, str | Path) and os.path.isfile(Path(path) / MODEL_FILE):
        path = Path(path) / MODEL_FILE
    state, arrays = _read_state(path)
    try:
        measurements, starts = _unpack_records(state, arrays)
        start, span = state["scaling"]
        arguments = FitSettings(**state["arguments"])
        system = System.from_definition(state["system"])
        time, scales = Scaling(start, span, np.zeros(0)), state["scales"]
        sizes = _read_parameter_scales(state, system, measurements)
        kept: dict[str, Any] = {"time_units": time, "scales": scales, "parameter_magnitudes": sizes}
        kept["record_starts"] = starts
        setup = build_setup(system, arguments, measurements, **kept)
        if state["format"] <= _FORMAT_WITHOUT_DIFFUSE_MODES and setup.layout.diffuse_modes is not None:
            setup = build_setup(system, replace(arguments, mode_deviation="learned"), measurements, **kept)
        x, curvature, at_bound = (arrays[name] for name in ("x", "curvature", "at_bound"))
        size = setup.layout.size
        kinds = {array.dtype.kind for array in arrays.values()}
        shapes = (x.shape, curvature.shape, at_bound.shape)
        if shapes != ((size,), (size, size), (size,)) or not kinds <= set("fiub") or at_bound.dtype != bool:
            raise StorageError(f"{path} does not match its own system; it was changed after it was saved")
        if size and not curvature.any():
            # Earlier versions did not save it if no parameter of the system was estimated.
            curvature = observed_information(setup.objective, x)
        value, converged, message, evaluations = state["optimum"]
        # Format 2 contained the negative value, without the constants of priors.
        value = _verify_objective(setup, x, None if state["format"] == 2 else value, state, path)
        optimum = Optimum(x, value, converged, message, evaluations, at_bound)
        fit = assemble_fit(setup, optimum, curvature, Labels.from_dict(state.get("labels", {})))
        preference, needs = dict(state.get("preference", {})), dict(state.get("needs", {}))
        check_types((converged, message, evaluations), tuple[bool, str, int])
        check_types(preference, dict[str, float])
        check_types(needs, dict[str, float])
        check_types(library := state.get("frame_library", ""), str)
        fit = replace(fit, hold_preference=preference, disturbance_gains=needs, frame_library=library)
        # Earlier versions did not save the diagnosis of a fit.
        if (known := state.get("diagnosis")) is None:
            return fit.with_diagnosis()
        diagnosis = Diagnosis.from_dict(known)
        check_types(diagnosis, Diagnosis)
        return replace(fit, diagnosis=diagnosis)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, ArithmeticError) as problem:
        raise StorageError(f"{path} is not a complete lodekit model: {problem}") from None


def _verify_objective(
    setup: FitSetup, x: Any, stored: float | None, state: Mapping[str, Any], path: str | Path
) -> float:
    """Return the stored objective after comparing it with a new computation, which is returned if none was stored."""
    with setup.limit_threads():
        found = float(setup.objective.value(x))
    if stored is None:
        return found
    if not abs(found - stored) <= 1e-3 * max(1.0, abs(stored), setup.engine.size):
        writer = state.get("version", "an earlier version")
        raise StorageError(
            f"the log evidence in {path} is {stored:.6g}, computed again it is {found:.6g}: the file was changed, or "
            f"this version ({__version__}) computes it differently from the one that wrote it ({writer}). Fit again"
        )
    return float(stored)


def _read_state(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return plain values and arrays of a saved model."""
    state, arrays, is_checked = read_archive(path)
    if not isinstance(state, dict) or state.get("kind") != _FILE_KIND:
        raise StorageError(f"{path} is not a saved lodekit model")
    if state.get("format") not in _READABLE_FORMATS:
        known = ", ".join(map(str, _READABLE_FORMATS[:-1]))
        raise StorageError(
            f"{path} has format {state.get('format')}, and this version of lodekit reads formats {known} and "
            f"{FORMAT_VERSION}; load it with the version that wrote it"
        )
    if state["format"] not in (2, 3) and not is_checked:
        raise StorageError(f"{path} was changed after it was saved: its checksum is missing")
    return state, arrays


def _read_parameter_scales(state: Mapping[str, Any], system: System, measurements: Measurements) -> Any:
    """Return the expected magnitudes of parameters, the units of the search vector, shape (p,)."""
    known = state.get("sizes")
    if known is None:
        # In earlier versions: the start value, or the size of the data, at most one.
        unit = float(np.median([np.hypot(item.mean, item.std) for item in measurements.observable_statistics])) or 1.0
        known = {name: abs(each.start or 0.0) or min(unit, 1.0) for name, each in system.parameters.items()}
    return np.array([known.get(name, 1.0) for name in system.operator.ring.parameters])


def _pack_records(fit: Fit) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the measurements of all records as plain values and arrays; a single record as in earlier formats."""
    if len(fit.record_fits) == 1:
        return _pack_measurements(fit)
    packed: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for number, (name, part) in enumerate(zip(fit.record_names, fit.record_fits, strict=True)):
        data, own = _pack_measurements(part)
        packed.append({"name": name, "start": part.prior.units.start, **data})
        arrays |= {f"record_{number}_{key}": array for key, array in own.items()}
    return {"records": packed}, arrays


def _unpack_records(state: Mapping[str, Any], arrays: Mapping[str, Any]) -> tuple[Measurements, dict[str, float]]:
    """Return measurements from the result of `_pack_records`, and the start of each of several records."""
    if "records" not in state:
        return _unpack_measurements(state, arrays), {}
    records, starts = {}, {}
    for number, data in enumerate(state["records"]):
        prefix = f"record_{number}_"
        own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
        records[str(data["name"])] = _unpack_measurements(data, own)
        starts[str(data["name"])] = float(data["start"])
    return RecordSet.from_records(records), starts


def _pack_measurements(fit: Fit) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the measurements of a record, sums over them, or the end of them, as plain values and arrays."""
    if fit.is_on_disk:
        return pack_final_state(fit)
    measurements = fit.measurements
    sums = measurements.sufficient_statistics
    if sums is not None:
        return {"sums": {"window": [sums.start, sums.stop], "cells": [list(key) for key in sums.cells]}}, sums.arrays()
    arrays: dict[str, Any] = {}
    for i, item in enumerate(measurements.series):
        arrays |= {f"times_{i}": item.times, f"values_{i}": item.values, f"std_{i}": item.std}
    inputs, samples = inputs_to_arrays(measurements.inputs)
    return {"observables": list(measurements.names)} | ({"inputs": inputs} if inputs else {}), arrays | samples


def _unpack_measurements(state: Mapping[str, Any], arrays: Mapping[str, Any]) -> Measurements:
    """Return measurements from the result of `_pack_measurements`."""
    if "tail" in state:
        return unpack_final_state(state, arrays)
    if "sums" in state:
        sums = Statistics.from_arrays(state["sums"]["window"], state["sums"]["cells"], arrays)
        return Measurements(sufficient_statistics=sums)
    data = Observations()
    for i, name in enumerate(state["observables"]):
        data = data.add(arrays[f"times_{i}"], name, arrays[f"values_{i}"], arrays[f"std_{i}"])
    return replace(Measurements.from_observations(data), inputs=inputs_from_arrays(state.get("inputs", ()), arrays))
