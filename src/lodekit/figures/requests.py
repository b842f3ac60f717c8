"""Checks of what is asked of a figure: times, observables, units, true values, parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit import plotting
from lodekit.arguments import check_parameters
from lodekit.data.observations import Series
from lodekit.errors import LodekitError
from lodekit.fitted import Fit

__all__ = [
    "read_grid",
    "read_names",
    "read_pair",
    "read_panels",
    "read_parameters",
    "read_parts",
    "read_texts",
    "read_true_values",
    "read_truths",
    "read_units",
    "series_of",
]

Array = NDArray[np.float64]
_TIMES = 400
#: Up to so many records stand beside each other, and so many are drawn where nobody says which.
_BESIDE, _MOST = 3, 12


def read_grid(fit: Fit, t: ArrayLike | None) -> tuple[Array, NDArray[np.intp]]:
    """Return ascending times, shape (n,), and the places of these in what the user gave.

    Parameters
    ----------
    t : array-like, shape (n,), or None
        Times of the user; None for an even grid over the window and its surroundings.
    """
    if t is None:
        return np.linspace(*fit.setup.surroundings, _TIMES), np.arange(_TIMES)
    times = fit.times(t)
    order = np.argsort(times, kind="stable")
    if len(times) < 2 or times[order[0]] == times[order[-1]]:
        raise LodekitError(f"expected at least two different times to draw over, got {len(times)}; try np.linspace")
    return times[order], order


def read_names(fit: Fit, observable: str | Sequence[str] | None) -> list[str]:
    """Return the observables to show, as texts.

    Parameters
    ----------
    observable : str, sequence of str, or None
        What was asked for; None for all channels, and whatever else was measured.
    """
    if observable is None:
        return list(dict.fromkeys((*fit.setup.channels, *fit.measurements.names)))
    names = read_texts(observable, "observables")
    fit.setup.reader.read(names)
    return names


def read_texts(given: str | Sequence[str], what: str) -> list[str]:
    """Return one text or several, one at least, as a list.

    Parameters
    ----------
    given : str or sequence of str
        What the user gave.
    what : str
        What they are, for the message.
    """
    found = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else []
    if not found or not all(isinstance(text, str) for text in found):
        raise LodekitError(f"expected {what} as a text or a list of texts, got {given!r}")
    return found


def read_units(fit: Fit, units: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return units by name.

    Parameters
    ----------
    units : dict of str to str, or None
        Those that the user gave; None for those of the labels of the fit.
    """
    if units is None:
        units = fit.labels.units
    if not isinstance(units, Mapping) or not all(isinstance(text, str) for pair in units.items() for text in pair):
        raise LodekitError(f"expected units as a dict of names to texts, such as {{'t': 's'}}, got {units!r}")
    return units


def read_parts(fit: Fit, record: str | int | None) -> tuple[Fit, ...]:
    """Return the fit as each record sees it that is drawn.

    Parameters
    ----------
    record : str, int or None
        What was asked for; None for all records, or the first twelve.
    """
    return fit.parts[:_MOST] if record is None else (fit.part(record),)


def read_panels(
    axes: Any, names: Sequence[str], parts: Sequence[Fit], **layout: Any
) -> tuple[Any, list[list[Any]], bool]:
    """Return the figure, the panels of each record, and whether these are new.

    Parameters
    ----------
    axes : matplotlib axes, sequence of them, or None
        The user's; None for a fresh figure. Those of a record follow each other.
    names : sequence of str
        What is shown of each record.
    parts : sequence of Fit
        The fit as each record sees it.
    **layout
        As `lodekit.plotting.make_panels` takes it.
    """
    count = len(names)
    if len(parts) == 1:
        figure, panels, new = plotting.read_axes(axes, names, columns=1 if count <= 8 else 2, **layout)
        return figure, [panels], new
    titles = [f"{name} of record {part.records[0]}" for part in parts for name in names]
    beside = len(parts) if axes is None and len(parts) <= _BESIDE else 1
    width = {"width": plotting.WIDTH * (1.0 if beside == 1 else 0.7 * beside)}
    # Times of different records mean nothing to each other.
    share = False if beside == 1 else "col"
    figure, panels, new = plotting.read_axes(axes, titles, columns=beside, share=share, **width, **layout)
    if beside == 1:
        return figure, [panels[k * count : (k + 1) * count] for k in range(len(parts))], new
    return figure, [panels[k::beside] for k in range(beside)], new


def series_of(fit: Fit, name: str) -> Series | None:
    """Return the measurements of an observable, averages where only sums were kept; None where it was not measured.

    Parameters
    ----------
    name : str
        The observable, written in any way that means the same.
    """
    for series in fit.measurements.shown:
        if series.observable == name or fit.setup.reader.are_same(series.observable, name):
            return series
    return None


def read_truths(
    fit: Fit, truth: Any, times: Array, order: NDArray[np.intp] | None, names: Sequence[str]
) -> list[Array | None]:
    """Return the true values of each observable that is shown, shape (n,); None where they are not known.

    Parameters
    ----------
    truth : function of times, array (n, channels) or (n, observables), dict of these by name, or None
        What the user gave.
    times : array, shape (n,)
        Ascending, in the user's units.
    order : array of int, shape (n,), or None
        The places of `times` in what the user gave; None where no times were given.
    names : sequence of str
        The observables that are shown.
    """
    if truth is None:
        return [None] * len(names)
    if isinstance(truth, Mapping):
        unknown = [name for name in truth if name not in names]
        if unknown:
            raise LodekitError(f"truth names {unknown[0]!r}, which is not shown; expected some of {', '.join(names)}")
        return [read_truths(fit, truth[name], times, order, [name])[0] if name in truth else None for name in names]
    if not callable(truth) and order is None:
        raise LodekitError("expected times t beside an array of true values; or give truth as a function of times")
    try:
        values = np.asarray(truth(times) if callable(truth) else truth, dtype=float)
    except (TypeError, ValueError) as problem:
        raise LodekitError(f"expected truth as numbers, or as a function of an array of times: {problem}") from None
    values = values[:, None] if values.ndim == 1 else values
    channels = fit.setup.channels
    if values.ndim != 2 or len(values) != len(times) or values.shape[1] not in (len(names), len(channels)):
        raise LodekitError(f"expected true values of shape ({len(times)}, {len(names)}), got {values.shape}")
    if order is not None and not callable(truth):
        values = values[order]
    columns = dict(zip(names if values.shape[1] == len(names) else channels, values.T, strict=True))
    return [columns.get(name) for name in names]


def read_parameters(fit: Fit, names: str | Sequence[str] | None) -> list[str]:
    """Return the names of the parameters to show.

    Parameters
    ----------
    names : str, sequence of str, or None
        What was asked for; None for all parameters of the system.
    """
    return list(fit.estimates) if names is None else _known(fit, read_texts(names, "parameters"))


def _known(fit: Fit, names: Sequence[str]) -> list[str]:
    """Return names of parameters; raise where the system has none called so."""
    known = list(fit.estimates)
    check_parameters(known, names)
    return list(names)


def read_true_values(fit: Fit, truth: Mapping[str, float] | None) -> Mapping[str, float]:
    """Return true values of parameters by name.

    Parameters
    ----------
    truth : dict of str to float, or None
        What the user gave; None where nothing is known.
    """
    if truth is None:
        return {}
    if not isinstance(truth, Mapping):
        raise LodekitError(f"expected truth as a dict of parameter names to numbers, got {type(truth).__name__}")
    try:
        return {name: float(truth[name]) for name in _known(fit, list(truth))}
    except (TypeError, ValueError):
        raise LodekitError(f"expected truth as a dict of parameter names to numbers, got {truth!r}") from None


def read_pair(fit: Fit, first: str | None, second: str | None) -> list[str]:
    """Return the names of two different learned parameters.

    Parameters
    ----------
    first, second : str or None
        What was asked for; None is filled with the first learned parameter that is left.
    """
    learned = [fit.layout.names[number] for number in fit.layout.learned]
    given = _known(fit, [name for name in (first, second) if name is not None])
    pair = list(dict.fromkeys([*given, *[name for name in learned if name not in given]]))[:2]
    if len(pair) < 2 or len(set(given)) < len(given) or not set(pair) <= set(learned):
        known = ", ".join(learned) or "none"
        raise LodekitError(f"expected two different learned parameters, got {first!r} and {second!r}; learned: {known}")
    return pair
