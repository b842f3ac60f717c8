"""Online filtering: a square-root Kalman filter at the estimated parameters, with CUSUM alarms, at constant cost.

A stream starts at the end of the fitted record, with a new record, or from a saved state.

The state of a stream is stored as JSON and arrays in one file, without pickle.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from lodekit.data.noise import EXACT_NOISE_RATIO
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements, with_empty_series
from lodekit.errors import DataError, LodekitError
from lodekit.inference.kalman.discretize import DiscreteStep, StepDiscretizer
from lodekit.inference.kalman.state_space import StateSpaceModel, build_state_space_model
from lodekit.inference.kalman.step_filter import compute_final_state, predict_and_update
from lodekit.inference.selection import state_space_rejection
from lodekit.prior.compile import Coefficients, CompiledSignal
from lodekit.prior.observables import Observables
from lodekit.results.fit import Fit
from lodekit.results.prediction import format_prediction, parse_observables
from lodekit.results.stream.cusum import MAX_CALIBRATION_ROWS, calibrate_threshold, check_alarm_options, update_cusum
from lodekit.results.stream.input_response import InputBuffer, StreamInputResponse, TimeStepCache, clock_resolution
from lodekit.support.arguments import Array
from lodekit.support.files import StorageError, read_archive, write_archive
from lodekit.support.text import format_count, to_json_values
from lodekit.version import __version__


class Innovation(NamedTuple):
    """A measurement and its one-step prediction.

    Parameters
    ----------
    measured : float
    predicted : float
        Prediction from all earlier rows.
    std : float
        Standard deviation of the prediction error, including noise.
    score : float
        The error divided by `std`: standard normal if the model holds.
    alarm : str
        ``"high"`` or ``"low"`` if the cumulative sum of scores crossed its threshold in this row, otherwise empty.
    """

    measured: float
    predicted: float
    std: float
    score: float
    alarm: str


@dataclass(slots=True)
class StreamState:
    """The state of a stream.

    time: Time of the last row; None before the first.
    mean, covariance_root: Mean of the states, and square root of their covariance; (s,) and (s, s).
    input_state: The states of the response to known inputs; (q,).
    input_buffers: The last samples of inputs.
    cusum: Cumulative sums of the scores of each observable.
    time_offsets: Time offsets of states and response, due to rounding of steps.
    n_rows, n_alarms: Number of rows and alarms so far.
    rows_at_time: Number of rows at this time; infinite if the record of the fit ended there.
    last_innovations: Innovations of the last row.
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
    rows_at_time: float = math.inf


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
        "rows_at_time": to_json_values(state.rows_at_time),
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
    """Return the state of a stream and the settings of its alarms from a file of `save_stream_state`."""
    values, arrays, is_checked = read_archive(path, _DESCRIPTION)
    if not isinstance(values, dict) or values.get("kind") != _FILE_KIND or not is_checked:
        is_model = isinstance(values, dict) and values.get("kind") == "lodekit-model"
        hint = "; it is a saved model; pass it as MODEL" if is_model else ""
        raise StorageError(f"{path} is not {_DESCRIPTION}{hint}")
    if values.get("format") != _FORMAT_VERSION:
        raise StorageError(
            f"{path} has format {values.get('format')}, and this version of lodekit reads format {_FORMAT_VERSION} of "
            "streams"
        )
    if values.get("model") != _model_fingerprint(fit):
        raise StorageError(f"{path} belongs to a stream of another model; expected the one that it was saved with")
    try:
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
        # States saved by versions without `rows_at_time` have one row at their time.
        known = values.get("rows_at_time", 1)
        ties = math.inf if known is None else float(known)
        return StreamState(time, *own, int(values["rows"]), int(values["alarms"]), rows_at_time=ties), settings
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as problem:
        raise StorageError(f"{path} is not a complete state of a stream: {problem}") from None


def _model_fingerprint(fit: Fit) -> str:
    """Return a fingerprint of a model: equations, arguments, units and all estimates."""
    units, arguments = fit.prior.units, ("latent", "prior", "inputs", "disturbances")
    definition = {
        "system": fit.system.definition(),
        "arguments": {name: own for name, own in fit.settings.to_dict().items() if name in arguments},
        "observables": list(fit.prior.noise.observables),
        "numbers": [number.hex() for number in (*fit.optimum.x.tolist(), units.time_scale, *units.scales.tolist())],
    }
    return hashlib.sha256(json.dumps(definition, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class StreamMeasurementModel:
    """Matrices of observables at the estimated parameters.

    observation_matrix: The matrix of the states; (o, s).
    response_matrix, feedthrough, derivative_feedthrough: The matrices of the states of the response to known inputs, of
        these inputs, and of their derivatives; (o, q), (o, m) and (o, m).
    """

    observation_matrix: Array
    response_matrix: Array
    feedthrough: Array
    derivative_feedthrough: Array
    input_response: StreamInputResponse | None
    observables: Observables
    coefficients: Coefficients

    @classmethod
    def from_texts(
        cls, fit: Fit, state_space: StateSpaceModel, input_response: StreamInputResponse | None, texts: Sequence[str]
    ) -> Self:
        """Return observables from their texts."""
        observables = fit.observables(texts)
        if observables.intervals is not None:
            raise LodekitError("a stream has no means or totals over intervals; request the observable itself")
        values = observables.evaluate(fit.hyperparameters.theta)
        rows = np.ascontiguousarray(state_space.build_observation_matrix(observables, values))
        none = np.zeros((len(texts), 0))
        if input_response is None or observables.input_response is None or values.input_response_table is None:
            return cls(rows, none, none, none, None, observables, values)
        own = observables.input_response.compiled.matrices(values.input_response_table)[0]
        return cls(rows, own.H * input_response.scales, own.D, own.D1, input_response, observables, values)

    def check_measured(self, names: Sequence[str]) -> None:
        """Raise if a measurement depends on the slope of an input that is known only with the next row."""
        own = self.input_response
        for column, (name, delay) in enumerate(zip(own.inputs, own.delays, strict=True) if own else ()):
            rows = np.flatnonzero(self.derivative_feedthrough[:, column])
            if len(rows) and own and own.input_kinds[name] == "linear" and delay == 0:
                raise LodekitError(
                    f"{names[rows[0]]} depends on the derivative of the linear input {name}, which is known one row "
                    "later only; expected inputs that are held, or another observable"
                )

    @cached_property
    def _known_signals(self) -> list[tuple[int, CompiledSignal]]:
        """The known functions of time, and their observables."""
        return [(k, signal) for k, signal in enumerate(self.observables.compiled.signals) if signal.n_terms]

    def known_part(self, input_state: Array, input_buffers: Mapping[str, InputBuffer], time: float) -> Array | None:
        """Return the known part of the observables, without the states, shape (o,); None if there is none.

        Shapes: input_state (q,).
        """
        if self.input_response is None and not self._known_signals:
            return None
        values_known = np.zeros(len(self.observation_matrix))
        if self.input_response is not None:
            values, slopes = self.input_response.input_values(input_buffers, time)
            values_known = self.response_matrix @ input_state + self.feedthrough @ values
            if self._has_derivative_feedthrough:
                values_known += self.derivative_feedthrough @ slopes
        table = self.coefficients.table[0], self.coefficients.table[1][:0]
        for number, signal in self._known_signals:
            values_known[number] += float(signal.evaluate(np.array([time]), *table)[0][0])
        return values_known

    @cached_property
    def _has_derivative_feedthrough(self) -> bool:
        return bool(self.derivative_feedthrough.any())


class Stream:
    """A Kalman filter at the estimated parameters, created by `LODEGP.stream`.

    Parameters
    ----------
    fit : Fit
        The fit of one record.
    state_space : StateSpaceModel
        The prior as a linear system.
    input_response : StreamInputResponse or None
        The response to known inputs, if there are any.
    filter_state : StreamState
        The initial state.
    false_alarms : float
        False alarms per row if the model holds.
    shift : float
        The shift of the scores that is detected fastest.
    threshold : float
        Alarm threshold of the cumulative sums.
    """

    def __init__(
        self,
        fit: Fit,
        state_space: StateSpaceModel,
        input_response: StreamInputResponse | None,
        filter_state: StreamState,
        *,
        false_alarms: float,
        shift: float,
        threshold: float,
    ) -> None:
        self.fit, self.filter_state = fit, filter_state
        self.state_space, self.input_response = state_space, input_response
        self.false_alarms, self.shift, self.threshold = float(false_alarms), float(shift), threshold
        self.observables = fit.prior.noise.observables
        compile_model = partial(StreamMeasurementModel.from_texts, fit, state_space, input_response)
        self._compile = lru_cache(maxsize=16)(compile_model)
        self._measurement_model = compile_model(self.observables)
        self._measurement_model.check_measured(self.observables)
        self._index = {name: number for number, name in enumerate(self.observables)}
        self._kinds = {} if input_response is None else input_response.input_kinds
        scales = fit.prior.units.scales
        self._exact = [EXACT_NOISE_RATIO * float(scale) for scale in scales]
        self._noise = [max(fit.typical_noise(n), e) for n, e in zip(self.observables, self._exact, strict=True)]
        leaps, span = StepDiscretizer(state_space.F, state_space.noise_intensity), fit.prior.units.time_scale
        self._transitions: TimeStepCache[DiscreteStep] = TimeStepCache(lambda length: leaps.discretize(length / span))

    def __repr__(self) -> str:
        rows, alarms = format_count(self.rows, "row"), format_count(self.alarms, "alarm")
        time = None if self.time is None else float(f"{self.time:.6g}")
        return f"Stream({', '.join(self.observables)}; {rows}, t = {time}, {alarms})"

    @property
    def time(self) -> float | None:
        """The time of the last row; None before the first row of a new record."""
        return self.filter_state.time

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return self.filter_state.n_rows

    @property
    def alarms(self) -> int:
        """Number of alarms so far."""
        return self.filter_state.n_alarms

    @property
    def innovations(self) -> dict[str, Innovation]:
        """The innovations of the last row by observable: measurements with their predictions."""
        return dict(self.filter_state.last_innovations)

    @property
    def sums(self) -> dict[str, tuple[float, float]]:
        """The cumulative sums of scores, upward and downward, by observable; above `threshold` there is an alarm."""
        return dict(zip(self.observables, self.filter_state.cusum, strict=True))

    @property
    def state(self) -> Array:
        """The mean of the states (free functions and their derivatives, then modes) in scaled units, shape (s,)."""
        return self.filter_state.mean.copy()

    @property
    def covariance(self) -> Array:
        """The covariance of the states, shape (s, s)."""
        return self.filter_state.covariance_root @ self.filter_state.covariance_root.T

    def push(
        self, t: Any, y: Mapping[str, Any] | None = None, inputs: Mapping[str, Any] | None = None, *, std: Any = None
    ) -> dict[str, Innovation]:
        """Filter one more row; return its innovations by observable.

        A refused row does not change the state.

        Parameters
        ----------
        t : float or date
            The time of the row, not before the last one.
        y : dict of str to float
            Measurements by observable of the fit; missing ones are omitted, None or NaN. Inputs may be given here as
            well.
        inputs : dict of str to float
            All known inputs at this time. A held input that is None or NaN keeps its value.
        std : float or dict of str to float, optional
            Known noise of these values, zero if they are exact; by default as in the fit.

        Examples
        --------
        >>> import lodekit as lk
        >>> gp = lk.LODEGP(lk.System("x' = -x"), random_state=0).fit([0.0, 1.0, 2.0, 3.0], [1.0, 0.37, 0.13, 0.05])
        >>> stream = gp.stream()
        >>> found = stream.push(4.0, {"x": 0.02})
        >>> abs(found["x"].predicted - 0.018) < 0.01
        True
        """
        before = self.filter_state
        time = self._parse_time(t)
        values, given = self._parse_row(y, inputs)
        noise = self._noise if std is None else self._parse_std(std)
        undo = {name: before.input_buffers[name].add(time, value) for name, value in given.items()}
        try:
            with np.errstate(all="ignore"):
                found, after = self._update(before, time, values, noise)
        except Exception:
            for name, old in undo.items():
                before.input_buffers[name].undo_add(old)
            raise
        if self.input_response is not None:
            self.input_response.drop_old_samples(after.input_buffers, time)
        self.filter_state = after
        return found

    def _update(
        self, before: StreamState, time: float, values: list[tuple[int, float]], noise: Sequence[float]
    ) -> tuple[dict[str, Innovation], StreamState]:
        """Return the innovations of a row, and the state after it."""
        step, response, leads = self._propagate(before, time)
        model, numbers = self._measurement_model, [number for number, _ in values]
        is_complete = len(numbers) == len(model.observation_matrix)
        rows = model.observation_matrix if is_complete else model.observation_matrix[numbers]
        noise_std = np.array([noise[number] for number in numbers])
        update = predict_and_update(step, before.mean, before.covariance_root, rows, noise_std)
        known = model.known_part(response, before.input_buffers, time)
        expected = rows @ update.predicted_mean
        if known is not None:
            expected += known if is_complete else known[numbers]
        measured = np.array([value for _, value in values])
        spread = np.sqrt(np.square(update.S_root).sum(axis=0))
        innovations, sums, alarms, reference = {}, list(before.cusum), before.n_alarms, 0.5 * self.shift
        parts = (numbers, measured.tolist(), expected.tolist(), spread.tolist())
        for number, value, mean, deviation in zip(*parts, strict=True):
            score = (value - mean) / deviation
            high, low, alarm = update_cusum(sums[number], score, reference, self.threshold)
            sums[number] = high, low
            alarms += bool(alarm)
            innovations[self.observables[number]] = Innovation(value, mean, deviation, score, alarm)
        if not all(math.isfinite(item.score) for item in innovations.values()):
            raise DataError(f"the solution overflows at t = {time:g}; expected a new stream, gp.stream(fresh=True)")
        state = time, update.update_mean(measured - expected), update.P_root, response, before.input_buffers, sums
        ties = before.rows_at_time + 1 if time == before.time else 1
        return innovations, StreamState(*state, leads, before.n_rows + 1, alarms, innovations, ties)

    def _propagate(self, before: StreamState, time: float) -> tuple[DiscreteStep | None, Array, tuple[float, float]]:
        """Return the step of the states to a later time, the response there, and the time offsets of both."""
        response, (lead, own_lead) = before.input_state, before.time_offsets
        if before.time is None:
            return None, response, before.time_offsets
        elapsed, resolution = (time - before.time) - lead, clock_resolution(time)
        if elapsed <= resolution:
            step, lead = None, -elapsed
        else:
            length, step = self._transitions.get(elapsed, resolution)
            lead = length - elapsed
        if self.input_response is not None:
            buffers = before.input_buffers
            response, own_lead = self.input_response.advance(response, buffers, before.time, time, own_lead)
        return step, response, (lead, own_lead)

    def _parse_time(self, t: Any) -> float:
        # Most times are plain numbers, which need no arrays.
        if isinstance(t, float):
            time = t
        else:
            times = self.fit.parse_times([t] if np.ndim(t) == 0 else t)
            if times.shape != (1,):
                raise DataError(f"expected the time of one row, got {len(times)} times")
            time = float(times[0])
        if not math.isfinite(time):
            raise DataError(f"expected a finite time, got {time}")
        last = self.filter_state.time
        if last is not None and time < last:
            raise DataError(f"expected rows in the order of time, got t = {time:g} after t = {last:g}")
        return time

    def _parse_row(self, y: Any, inputs: Any) -> tuple[list[tuple[int, float]], dict[str, float]]:
        """Return measurements by index, and samples of inputs by name."""
        for what, part in (("y", y), ("inputs", inputs)):
            if part is not None and not isinstance(part, Mapping):
                raise LodekitError(f"expected {what} as a dict of names to numbers, got {type(part).__name__}")
        values, given = [], dict(inputs) if inputs else {}
        for name, value in (y or {}).items():
            number = self._index.get(name)
            if number is None:
                if name not in self._kinds:
                    raise self._unknown_name_error(name)
                if name in given:
                    raise DataError(f"the input {name} is given in y and in inputs; expected only one of them")
                given[name] = value
                continue
            found = _parse_value(name, value)
            if found is not None:
                values.append((number, found))
        return values, self._parse_inputs(given) if given or self._kinds else {}

    def _parse_inputs(self, given: Mapping[str, Any]) -> dict[str, float]:
        found = {}
        for name, value in given.items():
            if name not in self._kinds:
                raise self._unknown_name_error(name)
            number = _parse_value(name, value)
            if number is not None:
                found[name] = number
        for name, kind in self._kinds.items():
            if name in found:
                continue
            if name not in given:
                raise DataError(f"expected the known input {name} in every row, inputs={{'{name}': ...}}, got none")
            if kind == "linear":
                raise DataError(
                    f"expected a value of {name} in every row, because it is linear between samples, got none"
                )
            if not self.filter_state.input_buffers[name].times:
                raise DataError(f"expected a value of {name} in the first row of a record, got none")
        return found

    def _unknown_name_error(self, name: object) -> LodekitError:
        known = ", ".join(self.observables)
        inputs = f", and the inputs {', '.join(self._kinds)}" if self._kinds else ""
        return LodekitError(f"expected the channels measured in the fit, {known}{inputs}, got {name!r}")

    def _parse_std(self, std: Any) -> list[float]:
        given = std if isinstance(std, Mapping) else dict.fromkeys(self.observables, std)
        found = list(self._noise)
        for name, value in given.items():
            if name not in self._index:
                raise self._unknown_name_error(name)
            number, place = _parse_value(f"the noise of {name}", value), self._index[name]
            if number is not None and number < 0:
                raise DataError(f"expected a standard deviation of zero or more for {name}, got {number:g}")
            found[place] = found[place] if number is None else max(number, self._exact[place])
        return found

    def predict(
        self, t: ArrayLike | None = None, observable: str | Sequence[str] | None = None, return_std: bool = False
    ) -> Any:
        """Return means of observables now or later, without noise, and on request standard deviations.

        Parameters are the estimates. All inputs, held or linear, keep their last value.

        Parameters
        ----------
        t : array-like, shape (n,), or a number
            Times, not before the last row; by default that of the last row.
        observable : str or sequence of str, optional
            As in `LODEGP.predict`: linear differential expressions of the channels, all channels by default.
        return_std : bool
            Whether to return standard deviations, too.

        Returns
        -------
        mean : array, shape (n, channels), or (n,) for an observable given as text
        std : array of the same shape, if requested

        Examples
        --------
        >>> import lodekit as lk
        >>> gp = lk.LODEGP(lk.System("x' = -x"), random_state=0).fit([0.0, 1.0, 2.0, 3.0], [1.0, 0.37, 0.13, 0.05])
        >>> mean, std = gp.stream().predict([3.0, 4.0], "x", return_std=True)
        >>> mean.shape, bool(mean[1] < mean[0])
        ((2,), True)
        """
        now = self.filter_state
        if now.time is None:
            raise LodekitError("a new record has not begun yet; expected a row first, push(t, y)")
        texts, single = parse_observables(self.fit, observable)
        view = self._compile(tuple(texts))
        times = np.array([now.time]) if t is None else self.fit.parse_times(t)
        if len(times) and float(times.min()) < now.time:
            raise DataError(f"expected times from t = {now.time:g} on, that of the last row, got t = {times.min():g}")
        mean, std = np.zeros((2, len(times), len(texts)))
        with np.errstate(all="ignore"):
            for place, time in enumerate(times.tolist()):
                leap, response, _ = self._propagate(now, time)
                nothing = np.zeros((0, len(now.mean))), np.zeros(0)
                ahead = predict_and_update(leap, now.mean, now.covariance_root, *nothing)
                known = view.known_part(response, now.input_buffers, time)
                mean[place] = view.observation_matrix @ ahead.predicted_mean + (0.0 if known is None else known)
                std[place] = np.sqrt(np.sum((view.observation_matrix @ ahead.P_root) ** 2, axis=1))
        return format_prediction([mean, std] if return_std else [mean], times, single=single)

    def start_record(self) -> None:
        """Start a new record with the next row, for example after a gap; the numbers of rows and alarms continue."""
        before, fresh = self.filter_state, _initial_state(self.fit, self.state_space, self.input_response)
        self.filter_state = replace(fresh, n_rows=before.n_rows, n_alarms=before.n_alarms)

    def save(self, path: str | Path) -> None:
        """Save the state to a file (JSON and arrays), completely or not at all; ``gp.stream(resume=path)`` resumes it.

        The size of the file does not depend on the number of rows.

        Parameters
        ----------
        path : str or Path
            The file; an existing one is replaced.
        """
        save_stream_state(self.fit, self.filter_state, path, {"false_alarms": self.false_alarms, "shift": self.shift})


def _parse_value(name: str, value: Any) -> float | None:
    """Return a number, or None if it is missing."""
    if value is None:
        return None
    if isinstance(value, bool | str | bytes):
        raise DataError(f"expected a number for {name}, got {value!r}")
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        raise DataError(f"expected a number for {name}, got {type(value).__name__}") from None
    if math.isnan(number):
        return None
    if math.isinf(number):
        raise DataError(f"expected a finite number for {name}, got {number}")
    return number


def start_stream(
    fit: Fit,
    *,
    fresh: bool = False,
    resume: str | Path | None = None,
    record: str | int | None = None,
    false_alarms: float | None = None,
    shift: float | None = None,
) -> Stream:
    """Return a Kalman filter at the estimated parameters for rows as they arrive, at a constant cost per row.

    It has the state with its covariance, the standardised innovations (scores) of each row, and CUSUM alarms:
    cumulative sums of scores, upward and downward, which restart after each alarm.

    Parameters
    ----------
    fresh : bool
        Whether the first row begins a new record, instead of continuing that of the fit.
    resume : str or Path, optional
        A file written by `Stream.save`, to resume from.
    record : str or int, optional
        The record to continue; required if there are several.
    false_alarms : float, optional
        False alarms per row in which everything is measured, if the model holds; by default 1e-4, or that of the
        resumed stream.
    shift : float, optional
        The lasting shift of the scores that is detected fastest; by default 1, or that of the resumed stream.

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.arange(40.0)
    >>> u = np.where(t < 10, 0.0, 1.0)
    >>> y = np.where(t < 10, 0.0, 1 - np.exp(-(t - 10) / 5)) + 0.01 * np.sin(7 * t)
    >>> system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    >>> gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": u})
    >>> stream = gp.stream()
    >>> found = stream.push(40.0, {"y": 1.0}, inputs={"u": 0.0})
    >>> abs(found["y"].score) < 3, bool(abs(stream.predict(45.0, "y")[0] - np.exp(-1)) < 0.02)
    (True, True)
    """
    if resume is not None and (fresh or record is not None):
        raise LodekitError("a resumed stream continues from its own state; expected no fresh= and no record=")
    given = {name: value for name, value in (("false_alarms", false_alarms), ("shift", shift)) if value is not None}
    alarms = {"false_alarms": 1e-4, "shift": 1.0, **given}
    check_alarm_options(**alarms)
    # All records share the estimates.
    fit = fit.record_fits[0] if record is None and (fresh or resume is not None) else fit.for_record(record)
    if reason := state_space_rejection(replace(fit.setup.engine_task, in_memory=True)):
        raise LodekitError(f"a stream needs a model with finitely many states: {reason}")
    prior, hyper = fit.prior, fit.hyperparameters
    space = build_state_space_model(prior, hyper, prior.observables.evaluate(hyper.theta))
    input_response = _make_input_response(fit)
    if resume is not None:
        sizes = space.size, 0 if input_response is None else input_response.size, len(prior.noise.observables)
        state, saved_alarms = load_stream_state(fit, resume, sizes, input_response)
        alarms = {**saved_alarms, **given}
        check_alarm_options(**alarms)
    else:
        state = _initial_state(fit, space, input_response) if fresh else _final_state(fit, input_response)
    if not all(np.isfinite(part).all() for part in (state.mean, state.covariance_root, state.input_state)):
        raise LodekitError("the states are not finite where the stream begins; expected modes that grow more slowly")
    threshold = calibrate_threshold(fit, _measured_rows(fit), **alarms)
    return Stream(fit, space, input_response, state, **alarms, threshold=threshold)


def _measured_rows(fit: Fit) -> list[TimeSeries]:
    """Return the measurements of a record in memory, or the last ones on disk; none if only sums are kept."""
    names, spooled = fit.prior.noise.observables, fit.measurements.stored_rows
    if not fit.measurements.has_only_statistics:
        return list(with_empty_series(fit.measurements, names).series)
    if spooled is None:
        return []
    store = spooled.store
    last = store.read_series(max(0, store.n_rows - MAX_CALIBRATION_ROWS), store.n_rows)
    return list(with_empty_series(Measurements([item for item in last if len(item.times)]), names).series)


def _make_input_response(fit: Fit) -> StreamInputResponse | None:
    """Return the response to known inputs; None without inputs."""
    driven, values = fit.prior.observables.input_response, fit.prior.observables.evaluate(fit.hyperparameters.theta)
    if driven is None or values.input_response_table is None:
        return None
    kinds = {name: signal.kind for name, signal in fit.measurements.inputs.items()}
    compiled, table = driven.compiled, values.input_response_table
    return StreamInputResponse(compiled.matrices(table)[0], compiled.delays(table)[0], compiled.inputs, kinds)


def _initial_state(fit: Fit, space: StateSpaceModel, input_response: StreamInputResponse | None) -> StreamState:
    """Return the initial state of a record: the prior, and rest."""
    kinds, size = ({}, 0) if input_response is None else (input_response.input_kinds, input_response.size)
    samples = {name: InputBuffer(kind) for name, kind in kinds.items()}
    cusum = [(0.0, 0.0)] * len(fit.prior.noise.observables)
    return StreamState(None, np.zeros(space.size), space.prior_P_root(0.0), np.zeros(size), samples, cusum)


def _final_state(fit: Fit, input_response: StreamInputResponse | None) -> StreamState:
    """Return the state at the end of the record of the fit."""
    if fit.measurements.has_only_statistics and fit.measurements.stored_rows is None:
        raise LodekitError(
            "the measurements were summed and not kept, so the end of the record is not known; expected fresh=True"
        )
    names = fit.prior.noise.observables
    measurements = with_empty_series(fit.measurements, names)
    with fit.setup.limit_threads():
        time, mean, P_root = compute_final_state(fit.prior, measurements, fit.hyperparameters, fit.posterior)
    samples: dict[str, InputBuffer] = {}
    response = np.zeros(0)
    if input_response is not None:
        response, samples = input_response.start(fit.measurements.inputs, fit.prior.units.start, time)
    return StreamState(time, mean, P_root, response, samples, [(0.0, 0.0)] * len(names))
