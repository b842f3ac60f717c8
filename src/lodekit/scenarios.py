"""What if: the learned system under inputs that were never applied, from rest or from where the record was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.answers import deliver_curves, read_observables
from lodekit.arguments import is_uncertain
from lodekit.data.inputs import InputSignal
from lodekit.errors import DataError, LodekitError
from lodekit.fitted import Fit
from lodekit.inference.markov.disturbed import response_variance
from lodekit.motions import Motion, read_signal, read_start

__all__ = ["simulate_inputs"]

Array = NDArray[np.float64]
_STARTS = ("rest", "begin", "end")
#: Means are differenced between points so many standard deviations to either side of the estimate.
_STEP = 0.1


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
    fit = fit.parts[0] if _starts_anew(start) and record is None else fit.part(record)
    texts, single = read_observables(fit, observable)
    times, uncertain = fit.times(t), is_uncertain(parameters)
    mean, variance = _simulate(fit, texts, times, _read_inputs(fit, inputs, times), start, uncertain=uncertain)
    return deliver_curves([mean, np.sqrt(variance)] if return_std else [mean], times, single=single)


def _starts_anew(start: object) -> bool:
    """Return whether the system starts from rest or from values, and not where the record was; or raise."""
    if isinstance(start, Mapping):
        return True
    if not isinstance(start, str) or start not in _STARTS:
        raise LodekitError(f"expected start='rest', 'begin', 'end' or a dict of values, got {start!r}")
    return start == "rest"


def _simulate(
    fit: Fit, texts: Sequence[str], times: Array, new: Mapping[str, InputSignal], start: Any, *, uncertain: bool
) -> tuple[Array, Array]:
    """Return means and variances, (n, o), from wherever the system starts."""
    if not len(times):
        return np.zeros((0, len(texts))), np.zeros((0, len(texts)))
    with np.errstate(all="ignore"):
        follow = _start_anew if _starts_anew(start) else _go_on
        return follow(fit, texts, times, new, start, uncertain=uncertain)


def _go_on(
    fit: Fit, texts: Sequence[str], times: Array, new: Mapping[str, InputSignal], start: str, *, uncertain: bool
) -> tuple[Array, Array]:
    """Return means and variances, (n, o), of a system that starts as the record began, or ended."""
    signals = {
        name: _spliced(fit, name, signal, new.get(name), start) for name, signal in fit.measurements.inputs.items()
    }
    observables = replace(fit.setup.reader, inputs=signals).compile_plain(texts, fit.prior.units)
    mean, variance = fit.posterior.mean(observables, times), fit.posterior.variance(observables, times)
    if uncertain:
        variance = variance / fit.share_left + np.sum(fit.uncertainty.moves(observables, times) ** 2, axis=0)
    return mean, variance


def _start_anew(
    fit: Fit, texts: Sequence[str], times: Array, new: Mapping[str, InputSignal], start: Any, *, uncertain: bool
) -> tuple[Array, Array]:
    """Return means and variances, (n, o), of a system that starts from rest, or from values."""
    missing = [name for name in fit.measurements.inputs if name not in new]
    if missing:
        raise LodekitError(f"expected all inputs, {', '.join(missing)} is missing; add inputs={{'{missing[0]}': ...}}")
    # A constant has one sample, of all times.
    first = min(
        float(times.min()), *(float(signal.times[0]) for signal in new.values() if len(signal.times) > 1), np.inf
    )
    units = replace(fit.prior.units, start=first)
    reader = replace(fit.setup.reader, inputs=new)
    motion = Motion.of(reader, texts, times, {} if start == "rest" else read_start(start), units)
    motion.check_start(fit.hyperparameters)
    mean = motion.mean(fit.hyperparameters)
    variance = _spread(fit, motion) if uncertain else np.zeros_like(mean)
    if fit.prior.disturbances:
        # They go on as they were, from rest at the start.
        variance += response_variance(motion.observables, fit.hyperparameters, units.scaled_times(times))
    return mean, variance


def _read_inputs(fit: Fit, inputs: Any, times: Array) -> dict[str, InputSignal]:
    """Return new inputs by name, from what the user gave."""
    known = fit.measurements.inputs
    if not isinstance(inputs, Mapping):
        got = "none" if inputs is None else type(inputs).__name__
        raise LodekitError(
            f"expected inputs as a dict of channels, such as inputs={{'{next(iter(known))}': 1.0}}, got {got}"
        )
    found = {}
    for name, given in inputs.items():
        if name not in known:
            raise LodekitError(f"{name!r} is no input of this fit; expected some of {', '.join(known)}")
        found[name] = read_signal(name, given, known[name].kind, times, fit.times, fit.measurements.window[0])
    return found


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


def _spread(fit: Fit, motion: Motion) -> Array:
    """Return the variance that the uncertainty of all that was learned gives to a motion, shape (n, o).

    No measurement holds a motion that starts anew, so parameters are as uncertain as is said of them: where standard
    errors were widened for correlated residuals, so is this.
    """
    uncertainty = fit.uncertainty
    total = np.zeros((len(motion.times), motion.observables.count))
    for column in uncertainty.widened_roots(fit.diagnosis.widening).T:
        for step in (_STEP, 0.1 * _STEP):
            above, below = (
                motion.mean(fit.layout.unpack(uncertainty.moved(sign * step * column))) for sign in (1.0, -1.0)
            )
            slope = (above - below) / (2.0 * step)
            if np.isfinite(slope).all():
                total += slope**2
                break
    return total
