"""State of a stream, and its storage as JSON and arrays in one file, without pickle."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lodekit.results.fit import Fit
from lodekit.results.stream.input_response import InputBuffer, StreamInputResponse
from lodekit.support.files import StorageError, read_archive, write_archive
from lodekit.version import __version__

Array = NDArray[np.float64]


class Innovation(NamedTuple):
    """One value of a row, and what was expected of it before the row came.

    Parameters
    ----------
    measured : float
    predicted : float
        From all rows before.
    std : float
        The deviation of what is measured from what is predicted: that of the prediction, and noise.
    score : float
        The difference in deviations: standard normal where the model holds.
    alarm : str
        ``"high"`` or ``"low"`` where the cumulative sum of scores has crossed its threshold in this row, else empty.
    """

    measured: float
    predicted: float
    std: float
    score: float
    alarm: str


@dataclass(slots=True)
class StreamState:
    """All that changes while rows come.

    time: Of the last row; None before the first.
    mean, covariance_root: Of the states, and of their covariance; (s,) and (s, s).
    input_state: The states of the response to known inputs; (q,).
    input_buffers: The last samples of inputs.
    cusum: The cumulative sums of each observable.
    time_offsets: By how much states and response are ahead of the time, which is rounding.
    n_rows, n_alarms: How many there were.
    last_innovations: What the last row said.
    """

    time: float | None
    mean: Array
    covariance_root: Array
    input_state: Array
    input_buffers: dict[str, InputBuffer]
    cusum: list[tuple[float, float]]
    time_offsets: tuple[float, float] = (0.0, 0.0)
    n_rows: int = 0
    n_alarms: int = 0
    last_innovations: dict[str, Innovation] = field(default_factory=dict)


_FILE_KIND, _FORMAT_VERSION = "lodekit-stream", 1
_DESCRIPTION = "the saved state of a lodekit stream"


def save_stream_state(fit: Fit, state: StreamState, path: str | Path, settings: Mapping[str, float]) -> None:
    """Write the state of a stream to a file."""
    values = {
        "kind": _FILE_KIND,
        "format": _FORMAT_VERSION,
        "version": __version__,
        "model": _model_fingerprint(fit),
        "time": state.time,
        "leads": list(state.time_offsets),
        "rows": state.n_rows,
        "alarms": state.n_alarms,
        "settings": dict(settings),
        "inputs": {name: own.kind for name, own in state.input_buffers.items()},
    }
    arrays: dict[str, Any] = {
        "mean": state.mean,
        "root": state.covariance_root,
        "response": state.input_state,
        "sums": np.array(state.cusum).reshape(-1, 2),
    }
    for number, own in enumerate(state.input_buffers.values()):
        arrays[f"input_{number}"] = np.array([own.times, own.values])
    write_archive(path, values, arrays)


def load_stream_state(
    fit: Fit, path: str | Path, sizes: Sequence[int], input_response: StreamInputResponse | None
) -> tuple[StreamState, dict[str, float]]:
    """Return the state of a stream that `save_stream_state` has written, and the settings of its alarms."""
    values, arrays, is_checked = read_archive(path, _DESCRIPTION)
    if not isinstance(values, dict) or values.get("kind") != _FILE_KIND or not is_checked:
        is_model = isinstance(values, dict) and values.get("kind") == "lodekit-model"
        hint = "; it is a saved model, which goes in the place of MODEL" if is_model else ""
        raise StorageError(f"{path} is not {_DESCRIPTION}{hint}")
    if values.get("format") != _FORMAT_VERSION:
        raise StorageError(
            f"{path} has format {values.get('format')}, and this version of lodekit reads format {_FORMAT_VERSION} of "
            "streams"
        )
    if values.get("model") != _model_fingerprint(fit):
        raise StorageError(f"{path} belongs to a stream of another model; expected the one that it was saved with")
    try:
        return _state_from_arrays(values, arrays, sizes, input_response)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as problem:
        raise StorageError(f"{path} is not a complete state of a stream: {problem}") from None


def _state_from_arrays(
    values: Mapping[str, Any],
    arrays: Mapping[str, Any],
    sizes: Sequence[int],
    input_response: StreamInputResponse | None,
) -> tuple[StreamState, dict[str, float]]:
    size, responses, observables = sizes
    shapes = {"mean": (size,), "root": (size, size), "response": (responses,), "sums": (observables, 2)}
    for name, shape in shapes.items():
        if arrays[name].shape != shape or arrays[name].dtype != float or not np.isfinite(arrays[name]).all():
            raise ValueError(f"expected {name} as finite numbers of shape {shape}")
    kinds = {} if input_response is None else input_response.input_kinds
    if values["inputs"] != kinds:
        raise ValueError(f"expected the inputs {kinds}, got {values['inputs']}")
    samples = {}
    for number, (name, kind) in enumerate(kinds.items()):
        times, numbers = arrays[f"input_{number}"]
        if not (np.isfinite(times).all() and np.isfinite(numbers).all() and (np.diff(times) > 0).all()):
            raise ValueError(f"expected finite samples of {name} in the order of time")
        samples[name] = InputBuffer(kind, times.tolist(), numbers.tolist())
    time = None if values["time"] is None else float(values["time"])
    leads = float(values["leads"][0]), float(values["leads"][1])
    settings = {name: float(values["settings"][name]) for name in ("false_alarms", "shift")}
    if not all(map(math.isfinite, (time or 0.0, *leads))):
        raise ValueError("expected finite times")
    sums = [(float(high), float(low)) for high, low in arrays["sums"]]
    own = (arrays["mean"], arrays["root"], arrays["response"], samples, sums, leads)
    return StreamState(time, *own, int(values["rows"]), int(values["alarms"])), settings


def _model_fingerprint(fit: Fit) -> str:
    """Return a number that tells models apart: equations, arguments, units and all that was learned."""
    units, arguments = fit.prior.units, ("latent", "prior", "inputs", "disturbances")
    told = {
        "system": fit.system.definition(),
        "arguments": {name: own for name, own in fit.settings.to_dict().items() if name in arguments},
        "observables": list(fit.prior.noise.observables),
        "numbers": [number.hex() for number in (*fit.optimum.x.tolist(), units.time_scale, *units.scales.tolist())],
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()
