"""Motions that nobody has measured: inputs and starts as users write them, and what a system does then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputKind, InputSignal
from lodekit.data.units import Units
from lodekit.errors import LodekitError
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.modes import ModeGroup, group_of_each, mode_groups
from lodekit.prior.observables import ObservableReader, Observables

__all__ = ["Motion", "read_signal", "read_start"]

Array = NDArray[np.float64]
#: Relative to the largest, what given values say about modes below this is rounding.
_ROUNDING = 1e-12
#: Relative to its size, a value at the start that is missed by more is contradicted.
_MISSED = 1e-6
#: Singular values of rows of length one below this are rounding.
_SEEN = 1e-9


def read_signal(
    name: str, given: Any, kind: InputKind, asked: Array | None, read_times: Callable[[Any], Array], since: float = 0.0
) -> InputSignal:
    """Return an input from what the user gave.

    Parameters
    ----------
    name : str
        Of the input, for messages.
    given : (times, values), values at the times that are asked for, number, or InputSignal
    kind : {"hold", "linear"}
        What it does between samples.
    asked : array, shape (n,), optional
        The times that are asked for, in any order, where they are the same for all.
    read_times : function
        From times of the user to an array.
    since : float
        When the only sample of a constant is.

    Examples
    --------
    >>> read_signal("u", [1.0, 2.0, 3.0], "hold", np.array([2.0, 0.0, 1.0]), np.asarray).values.tolist()
    [2.0, 3.0, 1.0]
    """
    if isinstance(given, InputSignal):
        return given
    if _is_number(given):
        return InputSignal([since], [float(given)], kind)
    count = 0 if asked is None else len(asked)
    # Two numbers would be a time and a value, where two values may be meant.
    if asked is not None and isinstance(given, np.ndarray | list) and np.ndim(given) == 1 and len(given) == count > 2:
        order = np.argsort(asked, kind="stable")
        return InputSignal(asked[order], np.asarray(given)[order], kind)
    if not isinstance(given, Sequence) or len(given) != 2 or any(np.ndim(part) != 1 for part in given):
        got = "a function; take its values, (times, u(times))" if callable(given) else type(given).__name__
        if isinstance(given, list | tuple | np.ndarray):
            got = f"{len(given)} values without times" + (f", for {count} times" if count else "")
        raise LodekitError(
            f"expected (times, values), values at the times t, or a number for the input {name}, got {got}"
        )
    return InputSignal(read_times(given[0]), given[1], kind)


def read_start(start: Any) -> dict[str, float]:
    """Return values at the start by observable, from what the user gave; raise where they are none.

    Parameters
    ----------
    start : dict of str to float
    """
    if not isinstance(start, Mapping):
        raise LodekitError(f"expected start as a dict of observables to values, such as {{'x': 1.0}}, got {start!r}")
    for name, value in start.items():
        if not _is_number(value) or not np.isfinite(value):
            raise LodekitError(f"expected a finite number for the start of {name}, got {value!r}")
    return {name: float(value) for name, value in start.items()}


def _is_number(given: Any) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool)


@dataclass(frozen=True)
class Motion:
    """What a system does after a time at which it starts, from rest or from given values, where nothing is random.

    Parameters
    ----------
    observables : Observables
        What is asked for; their time begins at the start.
    times : array, shape (n,)
        When it is asked for.
    start : dict of str to float
        Values at the start, by observable; none from rest.
    given : Observables or None
        The observables that have these values.
    rest : tuple of Observables
        What is as at rest as far as the values leave it open, what comes first before what comes later.
    """

    observables: Observables
    times: Array
    start: Mapping[str, float]
    given: Observables | None = None
    rest: tuple[Observables, ...] = ()

    @classmethod
    def of(
        cls, reader: ObservableReader, texts: Sequence[str], times: Array, start: Mapping[str, float], units: Units
    ) -> Self:
        """Return the motion of a system.

        What given values leave open is as at rest: other channels first, then derivatives.

        Parameters
        ----------
        reader : ObservableReader
            Of the system, with its inputs and disturbances.
        texts : sequence of str
            The observables that are asked for.
        times : array, shape (n,)
        start : dict of str to float
        units : Units
            Of time; it begins at the start.
        """
        observables = reader.compile_plain(texts, units)
        if not start:
            return cls(observables, times, start)
        names = [name for name in reader.system.plain_channels if name not in (*reader.inputs, *reader.disturbances)]
        count = len(group_of_each(mode_groups(observables.compiled)))
        others = [name for name in names if name not in start]
        levels = [others, *([name + "'" * order for name in names] for order in range(1, count))]
        rest = tuple(reader.compile_plain(level, units) for level in levels if level)
        return cls(observables, times, start, reader.compile_plain(list(start), units), rest)

    @property
    def groups(self) -> tuple[ModeGroup, ...]:
        """The modes of the system."""
        return mode_groups(self.observables.compiled)

    def mean(self, hyper: Hyperparameters) -> Array:
        """Return the observables at all times, shape (n, o)."""
        own, groups = self.observables.evaluate(hyper.theta), self.groups
        means, _ = self.observables.means(own, self.times, slopes=False)
        mean = np.stack(means, axis=1)
        if self.given is None or not groups:
            return mean
        weights, _ = self._begin(self.given, hyper)
        scaled = self.observables.units.scaled_times(self.times)
        modes, _ = self.observables.mode_basis(own, groups, scaled, slopes=False)
        return np.asarray(mean + np.stack([part @ weights for part in modes], axis=1))

    def check_start(self, hyper: Hyperparameters) -> None:
        """Raise where equations and inputs contradict the values at the start."""
        if self.given is not None and self._begin(self.given, hyper)[1].any():
            wanted = ", ".join(f"{name} = {value:g}" for name, value in self.start.items())
            raise LodekitError(
                f"the equations and the inputs do not let the system start at {wanted}; expected values of what they "
                "leave open there: leave some out"
            )

    def _begin(self, given: Observables, hyper: Hyperparameters) -> tuple[Array, NDArray[np.bool_]]:
        """Return the weights of the modes that bring the given values about, and which values they miss."""
        at, roots = np.array([given.units.start]), hyper.mode_deviations[group_of_each(self.groups)]
        values = np.array(list(self.start.values()))
        known = np.concatenate(given.means(given.evaluate(hyper.theta), at, slopes=False)[0])
        design = self._modes(given, hyper) * roots
        wanted = values - known
        # The smallest modes, in units of their deviations, that bring the values about.
        weights = np.linalg.pinv(design, rcond=_ROUNDING) @ wanted
        size = np.abs(values) + np.abs(known) + np.linalg.norm(design, axis=1) * np.linalg.norm(weights)
        missed = np.abs(design @ weights - wanted) > _MISSED * size
        free = _null_space(_even(design))
        for level in self.rest:
            # At rest no mode moves anything: what the values leave open is told by that, one level after the other.
            rows = _even(self._modes(level, hyper) * roots)
            left, sizes, right = np.linalg.svd(rows @ free, full_matrices=False)
            usable = sizes > _SEEN
            told = (left[:, usable].T @ (rows @ weights)) / sizes[usable]
            weights = weights - free @ (right[usable].T @ told)
            free = free @ _null_space(rows @ free)
        return roots * weights, missed

    def _modes(self, observables: Observables, hyper: Hyperparameters) -> Array:
        """Return what each mode adds to observables at the start, shape (o, modes)."""
        own = observables.evaluate(hyper.theta)
        return np.concatenate(observables.mode_basis(own, self.groups, np.zeros(1), slopes=False)[0])


def _even(rows: Array) -> Array:
    """Return rows of length one; those of nothing stay."""
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(size > 0, size, 1.0))


def _null_space(rows: Array) -> Array:
    """Return an orthonormal basis of what rows do not see, as columns."""
    _, sizes, right = np.linalg.svd(rows)
    seen = int(np.sum(sizes > _SEEN * max(float(sizes.max(initial=0.0)), 1.0)))
    return np.asarray(right[seen:].T)
