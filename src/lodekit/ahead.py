"""Predictions of a fitted record some rows or some time ahead, from what was measured before."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.data.records import padded
from lodekit.errors import LodekitError
from lodekit.fitted import Fit
from lodekit.inference.innovations import is_filtered, take_turns
from lodekit.inference.turns import Lead
from lodekit.quantities import Conversion, find_conversion
from lodekit.spreads import Band, find_bands, predict_within

__all__ = ["answer_ahead", "predict_ahead", "read_ahead", "read_time_ahead"]

Array = NDArray[np.float64]
#: So many measurements are taken as a whole; of more, pieces of so many, each with as many before it.
_WHOLE, _PIECE = 1000, 500
_MOST = 20_000
_TIME = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+)\s*(?P<unit>\D.*?)?\s*")


def read_ahead(ahead: object, unit: str = "") -> Lead:
    """Return how far ahead predictions are: a number of rows, or a time as text; or raise.

    Parameters
    ----------
    ahead : int or str
        So many rows of each observable; or a time such as ``"24 h"``, or ``"24"`` in the unit of the time.
    unit : str
        That of the time, where it is known.

    Examples
    --------
    >>> read_ahead(5).steps, read_ahead("2 h", "min").time
    (5, 120.0)
    """
    if isinstance(ahead, str):
        return Lead(time=read_time_ahead(ahead, unit))
    if isinstance(ahead, bool) or not isinstance(ahead, int | np.integer) or ahead < 1:
        raise LodekitError(
            f"expected ahead as a number of rows from one on, or as a time in words such as '24 h', got {ahead!r}"
        )
    return Lead(int(ahead))


def read_time_ahead(text: str, unit: str) -> float:
    """Return a time ahead in the unit of the fit.

    Parameters
    ----------
    text : str
        Such as ``"24 h"``, or ``"24"`` in that unit.
    unit : str
        That of the time of the fit; empty where it is not known.
    """
    found = _TIME.fullmatch(text)
    conversion: Conversion | None = Conversion()
    if found is not None and found["unit"]:
        conversion = find_conversion(found["unit"], unit) if unit else None
    if conversion is None:
        known = f"the unit of the time is {unit}" if unit else "the unit of the time is not known: say label(units=)"
        raise LodekitError(f"expected a time ahead without a unit, or with one that fits, got {text!r}; {known}")
    time = 0.0 if found is None else float(found["number"]) * conversion.times / conversion.over
    if not 0.0 < time < math.inf:
        raise LodekitError(f"expected a time ahead such as '24 h' or '0.5', above zero, got {text!r}")
    return time


def answer_ahead(
    fit: Fit, texts: Sequence[str], ahead: object, uncertain: bool = True, *, single: bool, return_std: bool
) -> Any:
    """Return predictions as `predict` does: one array, or deviations as well.

    Parameters
    ----------
    fit : Fit
        Of one record.
    texts : sequence of str
        Observables that were measured.
    ahead : int or str
        How many rows, or a time; checked here.
    uncertain : bool
        Whether deviations count all that was learned, and how large errors were.
    single : bool
        Whether the only observable has no axis of its own.
    return_std : bool
        Whether deviations are asked for.
    """
    lead = read_ahead(ahead, fit.clock.unit)
    parts = predict_ahead(fit, texts, lead, uncertain=uncertain and return_std)[1:]
    mean, std = (part[:, 0] if single else part for part in parts)
    return (mean, std) if return_std else mean


def predict_ahead(fit: Fit, texts: Sequence[str], lead: Lead, *, uncertain: bool = True) -> tuple[Array, Array, Array]:
    """Return the times at which all observables were measured, (n,), predictions there, (n, o), and deviations, (n, o).

    Parameters
    ----------
    fit : Fit
        Of one record.
    texts : sequence of str
        Observables that were measured.
    lead : Lead
        Each is predicted from all that was measured up to the time of the row so many rows before, or up to so long
        before.
    uncertain : bool
        Whether deviations count the uncertainty of all that was learned, and how large errors so far ahead were;
        else they are those of the model at the learned values.
    """
    if fit.measurements.is_summed:
        raise LodekitError("the measurements were summed and not kept; expected fewer rows for predictions ahead")
    whole = is_filtered(fit.choice.name, fit.prior)
    if fit.measurements.size > _MOST and not whole:
        raise LodekitError(f"expected at most {_MOST} measurements for predictions ahead, got {fit.measurements.size}")
    every = padded(fit.measurements, fit.prior.noise.observables).series
    order = [item.observable for item in every]
    for name in texts:
        if name not in order or not len(every[order.index(name)].times):
            measured = ", ".join(item.observable for item in every if len(item.times))
            raise LodekitError(f"expected measured observables for predictions ahead, {measured}, got {name!r}")
    asked = list(dict.fromkeys(texts))
    bands = find_bands(fit.whole or fit, asked, [lead]) if uncertain else {}
    found: dict[str, list[tuple[Array, Array, Array]]] = {name: [] for name in asked}
    for piece, after in _pieces(every, whole=whole):
        again = partial(take_turns, fit.choice.name, fit.prior, piece)
        turns = again(fit.hyperparameters)
        if turns is None:
            raise LodekitError("rounding hides what single measurements add; expected more noise, or fewer rows")
        wanted = [(order.index(name), bands[name][0] if uncertain else Band(lead)) for name in asked]
        parts = predict_within(fit.uncertainty if uncertain else None, turns, again, wanted, fit.share_left)
        for name, (number, _), (errors, deviations) in zip(asked, wanted, parts, strict=True):
            item = piece[number]
            noise = item.noise_with(fit.typical_noise(name))
            std = np.sqrt(np.maximum(deviations**2 - noise**2, 0.0))
            new = item.times > after
            found[name].append((item.times[new], (item.values - errors)[new], std[new]))
    joined = {name: [np.concatenate(part) for part in zip(*parts, strict=True)] for name, parts in found.items()}
    times = joined[asked[0]][0]
    for name in asked[1:]:
        times = np.intersect1d(times, joined[name][0])
    chosen = {name: np.searchsorted(own[0], times) for name, own in joined.items()}
    mean, std = (np.stack([joined[name][part][chosen[name]] for name in texts], axis=1) for part in (1, 2))
    return times, mean, std


def _pieces(series: Sequence[Series], *, whole: bool) -> Iterator[tuple[list[Series], float]]:
    """Yield measurements in the order of time, whole or in pieces, and the time up to which a piece was seen before."""
    ordered = [item.take(np.argsort(item.times, kind="stable")) for item in series]
    times = np.sort(np.concatenate([item.times for item in ordered]))
    if whole or len(times) <= _WHOLE:
        yield ordered, -np.inf
        return
    after = -np.inf
    for first in range(0, len(times), _PIECE):
        last = float(times[min(first + _PIECE, len(times)) - 1])
        low = float(times[max(first - _PIECE, 0)])
        if last > after:
            yield [item.take((item.times >= low) & (item.times <= last)) for item in ordered], after
        after = last
