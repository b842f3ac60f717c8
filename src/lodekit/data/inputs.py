"""Known inputs: functions of time that somebody set, known for all times from their samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.arguments import read_numbers
from lodekit.errors import DataError

__all__ = ["InputKind", "InputSignal", "pack_inputs", "unpack_inputs"]

Array = NDArray[np.float64]
InputKind = Literal["hold", "linear"]


@dataclass(frozen=True, eq=False, init=False)
class InputSignal:
    """A function of time between samples: held until the next sample, or linear from sample to sample.

    Before the first sample it is constant at the first value, after the last one at the last value. A held signal has
    its new value at the time of the sample itself (it is continuous from the right). A sample without a value (NaN)
    leaves a held signal unchanged and is bridged by a linear one: in both cases it is dropped, and counted in
    `missing`.

    Parameters
    ----------
    times : array-like, shape (k,)
        Finite, ascending, no time twice.
    values : array-like, shape (k,)
        NaN where missing; one value at least is known.
    kind : {"hold", "linear"}
    missing : int
        Samples that were dropped before; those without a value are added to it.

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
    kind: InputKind
    missing: int

    def __init__(self, times: ArrayLike, values: ArrayLike, kind: InputKind, missing: int = 0) -> None:
        if kind not in get_args(InputKind):
            raise DataError(f"expected the kind of an input as 'hold' or 'linear', got {kind!r}")
        times, values = read_numbers("times of an input", times), read_numbers("values of an input", values)
        if times.ndim != 1 or times.shape != values.shape:
            raise DataError(
                f"expected one value for each time of an input, got shapes {values.shape} and {times.shape}"
            )
        if not np.isfinite(times).all():
            raise DataError("expected finite times of an input, got NaN or infinity; leave those samples out")
        if np.isinf(values).any():
            raise DataError(f"expected finite values of an input, got infinity at t = {times[np.isinf(values)][0]:g}")
        wrong = np.flatnonzero(np.diff(times) <= 0)
        if wrong.size:
            before, after = times[wrong[0] : wrong[0] + 2]
            fault = "twice" if before == after else f"after t = {before:g}; sort the samples by time"
            raise DataError(f"expected ascending times of an input, each once, got t = {after:g} {fault}")
        known = ~np.isnan(values)
        if not known.any():
            raise DataError("expected an input with one known value at least, got none")
        times, values = times[known], values[known]
        for array in (times, values):
            array.flags.writeable = False
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "missing", int(missing) + int((~known).sum()))

    def at(self, times: ArrayLike) -> Array:
        """Return the signal at any times, in any order.

        Parameters
        ----------
        times : array-like
        """
        asked = np.asarray(times, dtype=float)
        if self.kind == "linear":
            return np.asarray(np.interp(asked, self.times, self.values))
        place = np.searchsorted(self.times, asked, side="right") - 1
        return np.asarray(self.values[np.maximum(place, 0)])

    def slopes_at(self, times: ArrayLike) -> Array:
        """Return the derivative from the right at any times: zero where the signal is held.

        Parameters
        ----------
        times : array-like
        """
        asked = np.asarray(times, dtype=float)
        if self.kind == "hold":
            return np.zeros(asked.shape)
        pieces = np.concatenate([[0.0], np.diff(self.values) / np.diff(self.times), [0.0]])
        return np.asarray(pieces[np.searchsorted(self.times, asked, side="right")])

    def changes(self, first: float, last: float) -> bool:
        """Return whether the signal changes between two times.

        Parameters
        ----------
        first, last : float

        Examples
        --------
        >>> valve = InputSignal([0.0, 5.0], [1.0, 2.0], "hold")
        >>> valve.changes(0.0, 4.0), valve.changes(0.0, 6.0), valve.changes(-9.0, -1.0)
        (False, True, False)
        """
        within = self.values[(self.times > first) & (self.times < last)]
        return bool(np.ptp(np.concatenate([self.at([first, last]), within])) > 0.0)

    def between(self, first: float, last: float) -> Self:
        """Return the signal with the samples that matter between two times.

        Parameters
        ----------
        first, last : float

        Examples
        --------
        >>> InputSignal([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 7.0, 6.0, 5.0, 4.0, 3.0], "hold").between(2.5, 2.6).times
        array([2., 3.])
        """
        start = max(int(np.searchsorted(self.times, first, side="right")) - 1, 0)
        stop = int(np.searchsorted(self.times, last, side="right")) + 1
        return type(self)(self.times[start:stop], self.values[start:stop], self.kind)

    def taken_as(self, kind: str) -> Self:
        """Return the same samples with something else between them.

        Parameters
        ----------
        kind : {"hold", "linear"}
        """
        return self if kind == self.kind else type(self)(self.times, self.values, kind, self.missing)  # type: ignore[arg-type]

    def delayed(self, delay: float) -> Self:
        """Return the same signal so much later: its value at t is that of this one at ``t - delay``.

        Parameters
        ----------
        delay : float
            In the unit of the times; negative for earlier.
        """
        return type(self)(self.times + float(delay), self.values, self.kind, self.missing)


def pack_inputs(inputs: Mapping[str, InputSignal]) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """Return inputs as plain values and arrays, for a file.

    Parameters
    ----------
    inputs : dict of str to InputSignal
    """
    packed, arrays = [], dict[str, Array]()
    for number, (name, signal) in enumerate(inputs.items()):
        packed.append({"name": name, "kind": signal.kind, "missing": signal.missing})
        arrays |= {f"input_times_{number}": signal.times, f"input_values_{number}": signal.values}
    return packed, arrays


def unpack_inputs(packed: Iterable[Mapping[str, Any]], arrays: Mapping[str, Any]) -> dict[str, InputSignal]:
    """Return what `pack_inputs` took apart.

    Parameters
    ----------
    packed : iterable of dict
        Plain values.
    arrays : dict of str to array
        These and others.

    Examples
    --------
    >>> again = unpack_inputs(*pack_inputs({"u": InputSignal([0.0, 1.0], [5.0, 7.0], "hold")}))
    >>> again["u"].kind, again["u"].at([0.5, 2.0]).tolist()
    ('hold', [5.0, 7.0])
    """
    return {
        each["name"]: InputSignal(
            arrays[f"input_times_{number}"], arrays[f"input_values_{number}"], each["kind"], each["missing"]
        )
        for number, each in enumerate(packed)
    }
