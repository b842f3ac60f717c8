"""Predictions of a fitted record some rows ahead, from what was measured before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.data.records import padded
from lodekit.errors import LodekitError
from lodekit.fitted import Fit
from lodekit.inference.dense.data import DenseData
from lodekit.inference.dense.innovations import take_in_turn

__all__ = ["answer_ahead", "predict_ahead", "read_ahead"]

Array = NDArray[np.float64]
#: So many measurements are taken as a whole; of more, pieces of so many, each with as many before it.
_WHOLE, _PIECE = 1000, 500
_MOST = 20_000


def read_ahead(ahead: object) -> int:
    """Return a number of rows, or raise."""
    if isinstance(ahead, bool) or not isinstance(ahead, int | np.integer) or ahead < 1:
        raise LodekitError(f"expected ahead as a number of rows from one on, got {ahead!r}")
    return int(ahead)


def answer_ahead(fit: Fit, texts: Sequence[str], ahead: object, *, single: bool, return_std: bool) -> Any:
    """Return predictions as `predict` does: one array, or deviations as well.

    Parameters
    ----------
    fit : Fit
        Of one record.
    texts : sequence of str
        Observables that were measured.
    ahead : int
        How many rows; checked here.
    single : bool
        Whether the only observable has no axis of its own.
    return_std : bool
        Whether deviations are asked for.
    """
    parts = predict_ahead(fit, texts, read_ahead(ahead))[1:]
    mean, std = (part[:, 0] if single else part for part in parts)
    return (mean, std) if return_std else mean


def predict_ahead(fit: Fit, texts: Sequence[str], step: int) -> tuple[Array, Array, Array]:
    """Return the times at which all observables were measured, (n,), predictions there, (n, o), and deviations, (n, o).

    Parameters
    ----------
    fit : Fit
        Of one record.
    texts : sequence of str
        Observables that were measured.
    step : int
        Each is predicted from all that was measured up to the time of the row so many rows before.
    """
    if fit.measurements.is_summed:
        raise LodekitError("the measurements were summed and not kept; expected fewer rows for predictions ahead")
    if fit.measurements.size > _MOST:
        raise LodekitError(f"expected at most {_MOST} measurements for predictions ahead, got {fit.measurements.size}")
    every = padded(fit.measurements, fit.prior.noise.observables).series
    order = [item.observable for item in every]
    for name in texts:
        if name not in order or not len(every[order.index(name)].times):
            measured = ", ".join(item.observable for item in every if len(item.times))
            raise LodekitError(f"expected measured observables for predictions ahead, {measured}, got {name!r}")
    found: dict[str, list[tuple[Array, Array, Array]]] = {name: [] for name in texts}
    for piece, after in _pieces(every):
        turns = take_in_turn(DenseData.of(fit.prior, piece), fit.hyperparameters)
        if turns is None:
            raise LodekitError("rounding hides what single measurements add; expected more noise, or fewer rows")
        for name in texts:
            item = piece[order.index(name)]
            errors, deviations = turns.errors_ahead(order.index(name), step)
            noise = np.where(item.learned, fit.typical_noise(name), item.std)
            std = np.sqrt(np.maximum(deviations**2 - noise**2, 0.0))
            new = item.times > after
            found[name].append((item.times[new], (item.values - errors)[new], std[new]))
    joined = {name: [np.concatenate(part) for part in zip(*parts, strict=True)] for name, parts in found.items()}
    times = joined[texts[0]][0]
    for name in texts[1:]:
        times = np.intersect1d(times, joined[name][0])
    chosen = {name: np.searchsorted(own[0], times) for name, own in joined.items()}
    mean, std = (
        np.stack([own[part][chosen[name]] for name, own in joined.items()], axis=1).reshape(len(times), len(texts))
        for part in (1, 2)
    )
    return times, mean, std


def _pieces(series: Sequence[Series]) -> Iterator[tuple[list[Series], float]]:
    """Yield measurements in the order of time, whole or in pieces, and the time up to which a piece was seen before."""
    ordered = [item.take(np.argsort(item.times, kind="stable")) for item in series]
    times = np.sort(np.concatenate([item.times for item in ordered]))
    if len(times) <= _WHOLE:
        yield ordered, -np.inf
        return
    after = -np.inf
    for first in range(0, len(times), _PIECE):
        last = float(times[min(first + _PIECE, len(times)) - 1])
        low = float(times[max(first - _PIECE, 0)])
        if last > after:
            yield [item.take((item.times >= low) & (item.times <= last)) for item in ordered], after
        after = last
