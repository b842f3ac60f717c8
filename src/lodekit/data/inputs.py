"""Known inputs with zero-order hold or linear interpolation, and gaps in their logs during which they changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from lodekit.errors import DataError
from lodekit.support.arguments import Array, as_float_array

HoldType = Literal["hold", "linear"]


@dataclass(frozen=True, eq=False, init=False)
class InputSignal:
    """A function of time between samples: held until the next sample, or linear from sample to sample.

    Before the first sample it is constant at the first value, after the last one at the last value. A held signal has
    its new value at the time of the sample itself (it is continuous from the right). A sample without a value (NaN)
    leaves a held signal unchanged, and a linear one interpolates across it: in both cases it is dropped and counted in
    `missing`.

    times: Finite and strictly increasing; (k,).
    values: NaN if missing; at least one value is known; (k,).
    missing: The number of samples dropped before; those without a value are added to it.

    Examples
    --------
    >>> valve = InputSignal([0.0, 1.0, 2.0, 3.0], [5.0, 7.0, float("nan"), 6.0], "hold")
    >>> valve.at([-1.0, 0.5, 1.0, 2.5, 9.0]).tolist()
    [5.0, 5.0, 7.0, 7.0, 6.0]
    >>> valve.missing
    1
    >>> InputSignal([0.0, 2.0], [1.0, 5.0], "linear").delayed(0.5).at([0.5, 1.5]).tolist()
    [1.0, 3.0]
    """

    times: Array
    values: Array
    kind: HoldType
    missing: int

    def __init__(self, times: ArrayLike, values: ArrayLike, kind: HoldType, missing: int = 0) -> None:
        if kind not in get_args(HoldType):
            raise DataError(f"expected the kind of an input as 'hold' or 'linear', got {kind!r}")
        times, values = as_float_array("times of an input", times), as_float_array("values of an input", values)
        if times.ndim != 1 or times.shape != values.shape:
            raise DataError(f"expected one value per time of an input, got shapes {values.shape} and {times.shape}")
        if not np.isfinite(times).all():
            raise DataError("expected finite times of an input, got NaN or infinity; remove those samples")
        if np.isinf(values).any():
            raise DataError(f"expected finite values of an input, got infinity at t = {times[np.isinf(values)][0]:g}")
        wrong = np.flatnonzero(np.diff(times) <= 0)
        if wrong.size:
            before, after = times[wrong[0] : wrong[0] + 2]
            fault = "twice" if before == after else f"after t = {before:g}; sort the samples by time"
            raise DataError(f"expected ascending times of an input, each once, got t = {after:g} {fault}")
        known = ~np.isnan(values)
        if not known.any():
            raise DataError("expected an input with at least one known value, got none")
        times, values = times[known], values[known]
        for array in (times, values):
            array.flags.writeable = False
        n_missing = int(missing) + int((~known).sum())
        for name, value in (("times", times), ("values", values), ("kind", kind), ("missing", n_missing)):
            object.__setattr__(self, name, value)

    def at(self, times: ArrayLike) -> Array:
        """Return the signal at any times, in any order."""
        asked = np.asarray(times, dtype=float)
        if self.kind == "linear":
            return np.asarray(np.interp(asked, self.times, self.values))
        place = np.searchsorted(self.times, asked, side="right") - 1
        return np.asarray(self.values[np.maximum(place, 0)])

    def derivative_at(self, times: ArrayLike) -> Array:
        """Return the derivative from the right at any times: zero if the signal is held."""
        asked = np.asarray(times, dtype=float)
        if self.kind == "hold":
            return np.zeros(asked.shape)
        pieces = np.concatenate([[0.0], np.diff(self.values) / np.diff(self.times), [0.0]])
        return np.asarray(pieces[np.searchsorted(self.times, asked, side="right")])

    def changes(self, first: float, last: float) -> bool:
        """Return whether the signal changes between two times.

        Examples
        --------
        >>> valve = InputSignal([0.0, 5.0], [1.0, 2.0], "hold")
        >>> valve.changes(0.0, 4.0), valve.changes(0.0, 6.0), valve.changes(-9.0, -1.0)
        (False, True, False)
        """
        within = self.values[(self.times > first) & (self.times < last)]
        return bool(np.ptp(np.concatenate([self.at([first, last]), within])) > 0.0)

    def restricted_to(self, first: float, last: float) -> Self:
        """Return the signal with only the samples that define it between two times.

        Examples
        --------
        >>> InputSignal([0.0, 1.0, 2.0, 3.0, 4.0], [5.0, 7.0, 6.0, 5.0, 4.0], "hold").restricted_to(2.5, 2.6).times
        array([2., 3.])
        """
        start = max(int(np.searchsorted(self.times, first, side="right")) - 1, 0)
        stop = int(np.searchsorted(self.times, last, side="right")) + 1
        return type(self)(self.times[start:stop], self.values[start:stop], self.kind)

    def with_hold_type(self, kind: str) -> Self:
        """Return the same samples with another hold type."""
        return self if kind == self.kind else type(self)(self.times, self.values, kind, self.missing)  # type: ignore[arg-type]

    def delayed(self, delay: float) -> Self:
        """Return the signal after a dead time (delay): its value at t is the value of this one at ``t - delay``."""
        return type(self)(self.times + float(delay), self.values, self.kind, self.missing)


def inputs_to_arrays(inputs: Mapping[str, InputSignal]) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """Return inputs as plain values and arrays, for a file."""
    packed, arrays = [], dict[str, Array]()
    for number, (name, signal) in enumerate(inputs.items()):
        packed.append({"name": name, "kind": signal.kind, "missing": signal.missing})
        arrays |= {f"input_times_{number}": signal.times, f"input_values_{number}": signal.values}
    return packed, arrays


def inputs_from_arrays(definitions: Iterable[Mapping[str, Any]], arrays: Mapping[str, Any]) -> dict[str, InputSignal]:
    """Return inputs from the output of `inputs_to_arrays`.

    Examples
    --------
    >>> again = inputs_from_arrays(*inputs_to_arrays({"u": InputSignal([0.0, 1.0], [5.0, 7.0], "hold")}))
    >>> again["u"].kind, again["u"].at([0.5, 2.0]).tolist()
    ('hold', [5.0, 7.0])
    """
    inputs = {}
    for number, each in enumerate(definitions):
        times, values = arrays[f"input_times_{number}"], arrays[f"input_values_{number}"]
        inputs[each["name"]] = InputSignal(times, values, each["kind"], each["missing"])
    return inputs


#: Only the longest gaps are kept, up to this number.
_MAX_GAPS = 10_000


class InputGap(NamedTuple):
    """The gap in the log of an input across which it changed most.

    start, stop: The times of the samples before and after the gap.
    value_before, value_after: Their values.
    n_gaps: The number of gaps across which the input changed.
    """

    start: float
    stop: float
    value_before: float
    value_after: float
    n_gaps: int


def is_logged_every_row(n_times: int, n_logged: int) -> bool:
    """Return whether an input is logged at most measurement times, rather than only when it changes."""
    return n_logged >= 0.5 * n_times


@dataclass
class _QuantileSketch:
    """A streaming quantile sketch: counts by the leading bits of the numbers, accurate to a thousandth.

    Examples
    --------
    >>> sizes = _QuantileSketch()
    >>> sizes.update(np.array([1.0, 1.0, 1.0, 2.0]))
    >>> sizes.update(np.array([8.0, 0.0]))
    >>> [round(sizes.quantile(share), 2) for share in (0.1, 0.5, 0.75, 1.0)]
    [0.0, 1.0, 2.0, 8.01]
    """

    counts: dict[int, int] = field(default_factory=dict)
    dropped_bits = 42

    def update(self, values: Array) -> None:
        """Add nonnegative numbers to the counts."""
        keys, counts = np.unique(np.ascontiguousarray(values).view(np.int64) >> self.dropped_bits, return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            self.counts[key] = self.counts.get(key, 0) + count

    def quantile(self, level: float) -> float:
        """Return a quantile, accurate to a thousandth."""
        keys = np.array(sorted(self.counts), dtype=np.int64)
        total = np.cumsum([self.counts[key] for key in keys.tolist()])
        place = int(np.searchsorted(total, level * total[-1]))
        return float(((keys[place : place + 1] + 1) << self.dropped_bits).view(np.float64)[0])


#: A gap is longer than the upper quartile of the steps between samples by this factor.
GAP_RATIO = 6.0


@dataclass
class InputGapDetector:
    """Detects gaps in the samples of one input during which it changed, in one pass.

    A gap is six times as long as the upper quartile of the steps and three times as long as a neighbouring step, and
    the input changes across it by a tenth of its range. kind: Interpolation of the input.

    Examples
    --------
    >>> watch, times = InputGapDetector("hold"), np.array([0.0, 1.0, 2.0, 3.0, 30.0, 31.0, 32.0, 33.0, 34.0])
    >>> for first in range(0, 9, 2):
    ...     watch.update(times[first : first + 2], np.where(times < 5, 1.0, 4.0)[first : first + 2])
    >>> watch.largest_gap
    InputGap(start=3.0, stop=30.0, value_before=1.0, value_after=4.0, n_gaps=1)
    """

    kind: str
    _steps: _QuantileSketch = field(default_factory=_QuantileSketch)
    _slopes: _QuantileSketch = field(default_factory=_QuantileSketch)
    _low: float = np.inf
    _high: float = -np.inf
    #: Times and values of the last two samples, and the step before them.
    _last_samples: Array = field(default_factory=lambda: np.zeros((2, 0)))
    _previous_step: float = np.inf
    #: Times before and after gaps, and the values there, shape (4, k).
    _gaps: Array = field(default_factory=lambda: np.zeros((4, 0)))

    def update(self, times: Array, values: Array) -> None:
        """Add some samples.

        Shapes: times, values (n,).
        """
        if not len(times):
            return
        self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
        known = max(self._last_samples.shape[1] - 1, 0)
        every = np.concatenate([self._last_samples, [times, values]], axis=1)
        steps, changes = np.diff(every[0]), np.abs(np.diff(every[1]))
        self._steps.update(steps[known:])
        if self.kind == "linear":
            self._slopes.update((changes / steps)[known:])
        if len(steps) > 1:
            # The step after the last one is not known yet.
            beside = np.minimum(np.append(self._previous_step, steps[:-2]), steps[1:])
            self._gaps = self._candidate_gaps(every[:, :-1], beside)
            self._previous_step = float(steps[-2])
        self._last_samples = every[:, -2:].copy()

    def _candidate_gaps(self, samples: Array, neighbour_steps: Array) -> Array:
        """Return known and new gaps that are longer than the neighbouring steps and across which the values change."""
        new = np.concatenate([samples[:, :-1], samples[:, 1:]])[[0, 2, 1, 3]]
        new = new[:, new[1] - new[0] > 3.0 * neighbour_steps]
        every = np.concatenate([self._gaps, new], axis=1)
        every = every[:, np.abs(every[3] - every[2]) > 0.1 * (self._high - self._low)]
        if every.shape[1] <= _MAX_GAPS:
            return every
        return every[:, np.sort(np.argsort(every[1] - every[0])[-_MAX_GAPS:])]

    @property
    def largest_gap(self) -> InputGap | None:
        """The gap in which the input changed most; None if there is no gap."""
        if self._last_samples.shape[1] < 2 or not np.isfinite(self._previous_step):
            return None
        gaps = self._candidate_gaps(self._last_samples, np.array([self._previous_step]))
        steps, changes = gaps[1] - gaps[0], np.abs(gaps[3] - gaps[2])
        found = steps > GAP_RATIO * self._steps.quantile(0.75)
        if self.kind == "linear":
            found &= changes > 3.0 * self._slopes.quantile(0.5) * steps
        if not found.any():
            return None
        place = int(np.argmax(np.where(found, changes, -1.0)))
        start, stop, before, after = gaps[:, place].tolist()
        return InputGap(start, stop, before, after, int(found.sum()))
