"""What if: the learned system under inputs that were never applied, from rest or from where the record was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.answers import read_observables
from lodekit.arguments import check_finite, is_uncertain
from lodekit.data.inputs import InputSignal
from lodekit.errors import DataError, LodekitError
from lodekit.fitted import Fit
from lodekit.inference.markov.disturbed import response_variance
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import ObservableReader, Observables

__all__ = ["simulate_inputs"]

Array = NDArray[np.float64]
#: Means are differenced between points so many standard deviations to either side of the estimate.
_STEP = 0.1
#: Relative to the largest, what given values say about modes below this is rounding.
_ROUNDING = 1e-12
#: Relative to its size, a value at the start that is missed by more is contradicted.
_MISSED = 1e-6
#: Singular values of rows of length one below this are rounding.
_SEEN = 1e-9


def simulate_inputs(
    fit: Fit,
    t: ArrayLike,
    inputs: Mapping[str, Any] | None = None,
    start: str | Mapping[str, float] = "rest",
    observable: str | Sequence[str] | None = None,
    return_std: bool = False,
    *,
    parameters: str = "uncertain",
    record: str | int | None = None,
) -> Any:
    """Return how the learned system responds to new inputs, and standard deviations on request.

    Parameters
    ----------
    t : array-like, shape (n,)
        Times, in any order; dates where the fit had dates.
    inputs : dict of str to (times, values), values at the times `t`, number, or InputSignal
        New inputs, by channel. They do between samples what the fitted ones do.
    start : {"rest", "begin", "end"} or dict of str to float
        Where the system starts. ``"rest"``: with all modes and free functions zero before the first of all times, and
        inputs that begin there. A dict of observables to values, such as ``{"y": 20.0}``: from these values at the
        first of all times; what they leave open is as at rest: other channels first, then derivatives, which are zero
        unless an input sets them off at that very time. ``"begin"``: as the record began, with these inputs in the
        place of the old ones. ``"end"``: as the record ended; new inputs follow the old ones.
    observable : str or sequence of str, optional
        As in `predict`.
    return_std : bool
        Whether standard deviations are wanted as well.
    parameters : {"uncertain", "fixed"}
        Whether deviations count the uncertainty of all that was learned.
    record : str or int, optional
        As in `predict`; needed where there are several and the system starts as one of them began or ended.

    Returns
    -------
    mean : array, shape (n, channels), or (n,) for an observable given as text
    std : array of the same shape, where it is asked for

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.arange(40.0)
    >>> u = np.where(t < 10, 0.0, 1.0)
    >>> y = np.where(t < 10, 0.0, 1 - np.exp(-(t - 10) / 5)) + 0.01 * np.sin(7 * t)
    >>> system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    >>> gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": u})
    >>> y = gp.simulate([0.0, 50.0], inputs={"u": 3.0}, observable="y")
    >>> bool(abs(y[0]) < 0.01 and abs(y[1] - 3) < 0.1)
    True
    """
    if not fit.measurements.inputs:
        raise LodekitError("this fit has no known inputs; expected one that was made with inputs={'u': 'hold'}")
    # All records share what was learned.
    fit = fit.part(record) if record is not None or start in ("begin", "end") else fit.parts[0]
    texts, single = read_observables(fit, observable)
    times, uncertain = fit.times(t), is_uncertain(parameters)
    mean, variance = _simulate(fit, texts, times, _read_inputs(fit, inputs, times), start, uncertain=uncertain)
    return _deliver([mean, np.sqrt(variance)] if return_std else [mean], times, single=single)


def _deliver(found: Sequence[Array], times: Array, *, single: bool) -> Any:
    """Return one array or several, checked; of a single observable without its axis."""
    for part in found:
        check_finite(part, times)
    shown = [part[:, 0] if single else part for part in found]
    return tuple(shown) if len(shown) > 1 else shown[0]


def _simulate(
    fit: Fit, texts: Sequence[str], times: Array, new: Mapping[str, InputSignal], start: Any, *, uncertain: bool
) -> tuple[Array, Array]:
    """Return means and variances, (n, o), from wherever the system starts."""
    if not len(times):
        return np.zeros((0, len(texts))), np.zeros((0, len(texts)))
    with np.errstate(all="ignore"):
        if isinstance(start, str) and start in ("begin", "end"):
            return _go_on(fit, texts, times, new, start, uncertain=uncertain)
        return _start_anew(fit, texts, times, new, start, uncertain=uncertain)


def _go_on(
    fit: Fit, texts: Sequence[str], times: Array, new: Mapping[str, InputSignal], start: str, *, uncertain: bool
) -> tuple[Array, Array]:
    """Return means and variances, (n, o), of a system that starts as the record began, or ended."""
    signals = {name: _spliced(fit, name, signal, new.get(name), start) for name, signal in _old(fit).items()}
    observables = replace(fit.setup.reader, inputs=signals).compile_plain(texts, fit.prior.units)
    mean, variance = fit.posterior.mean(observables, times), fit.posterior.variance(observables, times)
    if uncertain:
        variance = variance / fit.share_left + np.sum(fit.uncertainty.moves(observables, times) ** 2, axis=0)
    return mean, variance


def _start_anew(
    fit: Fit, texts: Sequence[str], times: Array, new: Mapping[str, InputSignal], start: Any, *, uncertain: bool
) -> tuple[Array, Array]:
    """Return means and variances, (n, o), of a system that starts from rest, or from values."""
    missing = [name for name in _old(fit) if name not in new]
    if missing:
        raise LodekitError(f"expected all inputs, {', '.join(missing)} is missing; add inputs={{'{missing[0]}': ...}}")
    # A constant has one sample, of all times.
    first = min(
        float(times.min()), *(float(signal.times[0]) for signal in new.values() if len(signal.times) > 1), np.inf
    )
    units = replace(fit.prior.units, start=first)
    reader = replace(fit.setup.reader, inputs=new)
    given = _read_start(reader, {} if start == "rest" else start, units)
    anew = _Anew(fit, reader.compile_plain(texts, units), times, first, *given, _open(fit, reader, units, start))
    if not anew.meets_start():
        wanted = ", ".join(f"{name} = {value:g}" for name, value in start.items())
        raise LodekitError(
            f"the equations and the inputs do not let the system start at {wanted}; expected values of what they leave "
            "open there: leave some out"
        )
    mean = anew.mean(fit.hyperparameters)
    variance = anew.spread() if uncertain else np.zeros_like(mean)
    if fit.prior.disturbances:
        # They go on as they were, from rest at the start.
        variance += response_variance(anew.observables, fit.hyperparameters, units.scaled_times(times))
    return mean, variance


def _read_inputs(fit: Fit, inputs: Any, times: Array) -> dict[str, InputSignal]:
    """Return new inputs by name, from what the user gave."""
    if not isinstance(inputs, Mapping):
        got = "none" if inputs is None else type(inputs).__name__
        raise LodekitError(
            f"expected inputs as a dict of channels, such as inputs={{'{next(iter(_old(fit)))}': 1.0}}, got {got}"
        )
    return {name: _signal(fit, name, given, times) for name, given in inputs.items()}


def _old(fit: Fit) -> Mapping[str, InputSignal]:
    return fit.measurements.inputs


def _is_number(given: Any) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool)


def _signal(fit: Fit, name: str, given: Any, asked: Array) -> InputSignal:
    """Return a new input from what the user gave."""
    if name not in _old(fit):
        raise LodekitError(f"{name!r} is no input of this fit; expected some of {', '.join(_old(fit))}")
    kind = _old(fit)[name].kind
    if isinstance(given, InputSignal):
        return given
    if _is_number(given):
        return InputSignal([fit.measurements.window[0]], [float(given)], kind)
    if isinstance(given, np.ndarray | list) and np.ndim(given) == 1 and len(given) == len(asked) > 2:
        order = np.argsort(asked, kind="stable")
        return InputSignal(asked[order], np.asarray(given)[order], kind)
    # Two numbers would be a time and a value, where two values may be meant.
    if not isinstance(given, Sequence) or len(given) != 2 or any(np.ndim(part) != 1 for part in given):
        values = isinstance(given, list | tuple | np.ndarray)
        got = "a function; take its values, (times, u(times))" if callable(given) else type(given).__name__
        got = f"{len(given)} values without times, for {len(asked)} times" if values else got
        raise LodekitError(
            f"expected (times, values), values at the times t, or a number for the input {name}, got {got}"
        )
    return InputSignal(fit.times(given[0]), given[1], kind)


def _spliced(fit: Fit, name: str, old: InputSignal, new: InputSignal | None, start: str) -> InputSignal:
    """Return an input that is the old one, the new one, or the old one up to the end of the record."""
    if new is None or start == "begin":
        return old if new is None else new
    end = fit.measurements.window[1]
    kept, later = old.times <= end, new.times > end
    if len(new.times) == 1 and not later.any():
        # A number: from the end of the record on.
        times, values = np.array([np.nextafter(end, np.inf)]), new.values
    else:
        times, values = new.times[later], new.values[later]
    if not len(times):
        raise DataError(f"expected samples of {name} after the end of the record, t = {end:g}")
    return InputSignal(np.append(old.times[kept], times), np.append(old.values[kept], values), old.kind)


def _read_start(reader: ObservableReader, start: Any, units: Any) -> tuple[Observables | None, Array]:
    """Return the observables that are given at the start, compiled, and their values."""
    if not isinstance(start, Mapping):
        raise LodekitError(f"expected start='rest', 'begin', 'end' or a dict of values, got {start!r}")
    for name, value in start.items():
        if not _is_number(value) or not np.isfinite(value):
            raise LodekitError(f"expected a finite number for the start of {name}, got {value!r}")
    values = np.array([float(value) for value in start.values()])
    return (reader.compile_plain(list(start), units) if start else None), values


def _open(fit: Fit, reader: ObservableReader, units: Any, start: Any) -> tuple[Observables, ...]:
    """Return what stays as it is at rest where given values leave it open: other channels first, then derivatives."""
    driven = {*fit.measurements.inputs, *fit.prior.disturbances}
    names = [name for name in fit.system.plain_channels if name not in driven]
    if start == "rest" or not names:
        return ()
    count = sum(group.size for group in fit.prior.groups)
    others = [name for name in names if name not in start]
    levels = [others, *([name + "'" * order for name in names] for order in range(1, count))]
    return tuple(reader.compile_plain(level, units) for level in levels if level)


@dataclass(frozen=True)
class _Anew:
    """A system that starts from rest, or from given values, at a time."""

    fit: Fit
    observables: Observables
    times: Array
    first: float
    given: Observables | None
    values: Array
    rest: tuple[Observables, ...] = ()

    def mean(self, hyper: Hyperparameters) -> Array:
        """Return the observables at all times, shape (n, o)."""
        own, groups = self.observables.evaluate(hyper.theta), self.fit.prior.groups
        means, _ = self.observables.means(own, self.times, slopes=False)
        mean = np.stack(means, axis=1)
        if self.given is None or not groups:
            return mean
        weights, _ = self._begin(self.given, hyper)
        scaled = self.observables.units.scaled_times(self.times)
        modes, _ = self.observables.mode_basis(own, groups, scaled, slopes=False)
        return np.asarray(mean + np.stack([part @ weights for part in modes], axis=1))

    def meets_start(self) -> bool:
        """Return whether the given values can all be met."""
        return self.given is None or not self._begin(self.given, self.fit.hyperparameters)[1].any()

    def _begin(self, given: Observables, hyper: Hyperparameters) -> tuple[Array, NDArray[np.bool_]]:
        """Return the weights of the modes that bring the given values about, and which values they miss."""
        at, roots = np.array([self.first]), self.fit.prior.mode_roots(hyper.mode_deviations)
        known = np.concatenate(given.means(given.evaluate(hyper.theta), at, slopes=False)[0])
        design = self._modes(given, hyper) * roots
        wanted = self.values - known
        # The smallest modes, in units of their deviations, that bring the values about.
        weights = np.linalg.pinv(design, rcond=_ROUNDING) @ wanted
        size = np.abs(self.values) + np.abs(known) + np.linalg.norm(design, axis=1) * np.linalg.norm(weights)
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
        own, at = observables.evaluate(hyper.theta), observables.units.scaled_times(np.array([self.first]))
        return np.concatenate(observables.mode_basis(own, self.fit.prior.groups, at, slopes=False)[0])

    def spread(self) -> Array:
        """Return the variance that the uncertainty of all that was learned gives to the mean, shape (n, o)."""
        uncertainty, layout = self.fit.uncertainty, self.fit.layout
        total = np.zeros((len(self.times), self.observables.count))
        for column in uncertainty.roots.T:
            for step in (_STEP, 0.1 * _STEP):
                above, below = (
                    self.mean(layout.unpack(uncertainty.moved(sign * step * column))) for sign in (1.0, -1.0)
                )
                slope = (above - below) / (2.0 * step)
                if np.isfinite(slope).all():
                    total += slope**2
                    break
        return total


def _even(rows: Array) -> Array:
    """Return rows of length one; those of nothing stay."""
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(size > 0, size, 1.0))


def _null_space(rows: Array) -> Array:
    """Return an orthonormal basis of what rows do not see, as columns."""
    _, sizes, right = np.linalg.svd(rows)
    seen = int(np.sum(sizes > _SEEN * max(float(sizes.max(initial=0.0)), 1.0)))
    return np.asarray(right[seen:].T)
