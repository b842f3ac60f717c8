"""The state of a stream in a file: JSON and arrays, never pickle; written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.archive import StorageError, pack, unpack
from lodekit.fitted import Fit
from lodekit.online.known import Plant, Samples
from lodekit.online.moment import Moment
from lodekit.version import __version__

__all__ = ["load_moment", "save_moment"]

_MARK, _FORMAT = "lodekit-stream", 1
_WHAT = "the saved state of a lodekit stream"
#: Arguments that say what the states are.
_ARGUMENTS = ("latent", "prior", "inputs", "disturbances")


def save_moment(fit: Fit, moment: Moment, path: str | Path, settings: Mapping[str, float]) -> None:
    """Write the state of a stream to a file.

    Parameters
    ----------
    fit : Fit
        The model, of which only a mark is kept.
    moment : Moment
    path : str or Path
        The file; an old one is replaced.
    settings : dict of str to float
        Of its alarms.
    """
    values = {
        "kind": _MARK,
        "format": _FORMAT,
        "version": __version__,
        "model": _mark(fit),
        "time": moment.time,
        "leads": list(moment.leads),
        "rows": moment.rows,
        "alarms": moment.alarms,
        "settings": dict(settings),
        "inputs": {name: own.kind for name, own in moment.samples.items()},
    }
    arrays: dict[str, Any] = {
        "mean": moment.mean,
        "root": moment.root,
        "response": moment.response,
        "sums": np.array(moment.sums).reshape(-1, 2),
    }
    for number, own in enumerate(moment.samples.values()):
        arrays[f"input_{number}"] = np.array([own.times, own.values])
    pack(path, values, arrays)


def load_moment(
    fit: Fit, path: str | Path, sizes: Sequence[int], plant: Plant | None
) -> tuple[Moment, dict[str, float]]:
    """Return the state of a stream that `save_moment` has written, and the settings of its alarms.

    Parameters
    ----------
    fit : Fit
        The model that the stream belongs to.
    path : str or Path
        The file.
    sizes : sequence of int
        How many states there are, those of the response to inputs, and observables.
    plant : Plant or None
        The response to known inputs.
    """
    values, arrays, is_checked = unpack(path, _WHAT)
    if not isinstance(values, dict) or values.get("kind") != _MARK or not is_checked:
        is_model = isinstance(values, dict) and values.get("kind") == "lodekit-model"
        hint = "; it is a saved model, which goes in the place of MODEL" if is_model else ""
        raise StorageError(f"{path} is not {_WHAT}{hint}")
    if values.get("format") != _FORMAT:
        raise StorageError(
            f"{path} has format {values.get('format')}, and this version of lodekit reads format {_FORMAT} of streams"
        )
    if values.get("model") != _mark(fit):
        raise StorageError(f"{path} belongs to a stream of another model; expected the one that it was saved with")
    try:
        return _read(values, arrays, sizes, plant)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as problem:
        raise StorageError(f"{path} is not a complete state of a stream: {problem}") from None


def _read(
    values: Mapping[str, Any], arrays: Mapping[str, Any], sizes: Sequence[int], plant: Plant | None
) -> tuple[Moment, dict[str, float]]:
    size, responses, observables = sizes
    shapes = {"mean": (size,), "root": (size, size), "response": (responses,), "sums": (observables, 2)}
    for name, shape in shapes.items():
        if arrays[name].shape != shape or arrays[name].dtype != float or not np.isfinite(arrays[name]).all():
            raise ValueError(f"expected {name} as finite numbers of shape {shape}")
    kinds = {} if plant is None else plant.kinds
    if values["inputs"] != kinds:
        raise ValueError(f"expected the inputs {kinds}, got {values['inputs']}")
    samples = {}
    for number, (name, kind) in enumerate(kinds.items()):
        times, numbers = arrays[f"input_{number}"]
        if not (np.isfinite(times).all() and np.isfinite(numbers).all() and (np.diff(times) > 0).all()):
            raise ValueError(f"expected finite samples of {name} in the order of time")
        samples[name] = Samples(kind, times.tolist(), numbers.tolist())
    time = None if values["time"] is None else float(values["time"])
    leads = float(values["leads"][0]), float(values["leads"][1])
    settings = {name: float(values["settings"][name]) for name in ("false_alarms", "shift")}
    if not all(map(math.isfinite, (time or 0.0, *leads))):
        raise ValueError("expected finite times")
    sums = [(float(high), float(low)) for high, low in arrays["sums"]]
    own = (arrays["mean"], arrays["root"], arrays["response"], samples, sums, leads)
    return Moment(time, *own, int(values["rows"]), int(values["alarms"])), settings


def _mark(fit: Fit) -> str:
    """Return a number that tells models apart: equations, arguments, units and all that was learned."""
    units = fit.prior.units
    told = {
        "system": fit.system.definition(),
        "arguments": {name: own for name, own in fit.arguments.to_dict().items() if name in _ARGUMENTS},
        "observables": list(fit.prior.noise.observables),
        "numbers": [number.hex() for number in (*fit.optimum.x.tolist(), units.span, *units.scales.tolist())],
    }
    text = json.dumps(told, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
