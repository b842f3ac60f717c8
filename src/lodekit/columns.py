"""What a fit answers as columns of a table, and columns as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from lodekit.errors import LodekitError
from lodekit.progress import waiting
from lodekit.quantities import find_conversion

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lodekit.model import LODEGP

__all__ = [
    "add_columns",
    "ahead_columns",
    "date_column",
    "format_columns",
    "predict_columns",
    "sample_columns",
    "simulate_columns",
]

#: How many times are predicted at once.
_BLOCK = 5000


def predict_columns(
    gp: LODEGP,
    times: NDArray[np.float64] | Mapping[str, NDArray[np.float64]],
    names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return times, dates where there are any, and means with standard deviations, as columns.

    Where there are several records, the first column names them.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    times : array, shape (n,), or dict of str to array
        Of the only record, or by the name of a record.
    names : sequence of str, optional
        Observables; the channels by default.
    """
    if isinstance(times, Mapping):
        parts = [(record, _predict(gp, own, names, record)) for record, own in times.items()]
        return _stack_records(parts) if len(gp.records_) > 1 else parts[0][1]
    return _predict(gp, times, names, None)


def ahead_columns(
    gp: LODEGP, ahead: int | str, names: Sequence[str] | None = None, record: str | None = None
) -> dict[str, Any]:
    """Return predictions some rows or time ahead at the times of each record, with standard deviations, as columns.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    ahead : int or str
        How many rows, or a time.
    names : sequence of str, optional
        Observables that were measured; all of them by default.
    record : str, optional
        The record that is asked for; all of them by default.
    """
    from lodekit.ahead import predict_ahead, read_ahead

    parts = []
    for own in gp.records_ if record is None else gp.fit_.part(record).records:
        fit = gp.fit_.part(own)
        texts = list(names or fit.measurements.names)
        times, mean, std = predict_ahead(fit, texts, read_ahead(ahead, fit.clock.unit))
        parts.append((own, _curve_columns(gp, times, texts, mean, std)))
    return _stack_records(parts) if len(gp.records_) > 1 else parts[0][1]


def _stack_records(parts: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the tables of several records as one, below each other, with a column of their names.

    Cells of a column that a record does not have are None, and empty in CSV.
    """
    columns: dict[str, Any] = {"record": [record for record, own in parts for _ in own["t"]]}
    for name in dict.fromkeys(name for _, own in parts for name in own):
        lists = (own.get(name, [None] * len(own["t"])) for _, own in parts)
        add_columns(columns, {name: [cell for cells in lists for cell in cells]})
    return columns


def _predict(gp: LODEGP, times: NDArray[np.float64], names: Sequence[str] | None, record: str | None) -> dict[str, Any]:
    """Return the predictions of one record as columns."""
    import numpy as np

    names = gp.fit_.setup.channels if names is None else names
    # In blocks, so that memory does not grow with the number of times.
    blocks = np.split(times, range(_BLOCK, len(times), _BLOCK))
    with waiting("predicting", len(blocks)) as advance:
        parts = []
        for block in blocks:
            parts.append(gp.predict(block, names, return_std=True, record=record))
            advance()
    mean, std = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _curve_columns(gp, times, names, mean, std)


def _curve_columns(
    gp: LODEGP,
    times: NDArray[np.float64],
    names: Sequence[str],
    mean: NDArray[np.float64],
    std: NDArray[np.float64],
    known: Collection[str] = (),
) -> dict[str, Any]:
    """Return times, dates where there are any, means and standard deviations, as columns; what is known has no std."""
    columns: dict[str, Any] = {"t": times.tolist(), **date_column(gp.labels_, times)}
    for number, name in enumerate(names):
        own = {name: mean[:, number].tolist()}
        add_columns(columns, own if name in known else {**own, f"std({name})": std[:, number].tolist()})
    return columns


def sample_columns(
    gp: LODEGP,
    times: NDArray[np.float64] | Mapping[str, NDArray[np.float64]],
    names: Sequence[str] | None = None,
    *,
    size: int = 1,
    seed: int = 0,
) -> dict[str, Any]:
    """Return functions drawn from the posterior as columns: a number for each, times, dates, channels, and parameters.

    Each function solves the equations at parameters of its own; those that were learned are columns, too.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    times : array, shape (n,), or dict of str to array
        Of the only record, or by the name of a record.
    names : sequence of str, optional
        Observables; the channels by default.
    size : int
        How many functions.
    seed : int
        Of the draws.
    """
    if isinstance(times, Mapping):
        parts = [(record, _sample(gp, own, names, size, seed, record)) for record, own in times.items()]
        return _stack_records(parts) if len(gp.records_) > 1 else parts[0][1]
    return _sample(gp, times, names, size, seed, None)


def _sample(
    gp: LODEGP,
    times: NDArray[np.float64],
    names: Sequence[str] | None,
    size: int,
    seed: int,
    record: str | None,
) -> dict[str, Any]:
    """Return functions of one record as columns."""
    names = gp.fit_.setup.channels if names is None else names
    drawn, own = gp.sample(times, size, seed, names, return_parameters=True, record=record)
    columns: dict[str, Any] = {"sample": [k for k in range(1, size + 1) for _ in times], "t": times.tolist() * size}
    dates = date_column(gp.labels_, times)
    columns |= {name: values * size for name, values in dates.items()}
    for number, name in enumerate(names):
        add_columns(columns, {name: drawn[:, :, number].ravel().tolist()})
    learned = [gp.fit_.layout.names[number] for number in gp.fit_.layout.learned]
    add_columns(columns, {name: own[name].repeat(len(times)).tolist() for name in learned})
    return columns


def simulate_columns(
    gp: LODEGP,
    times: NDArray[np.float64],
    inputs: Mapping[str, Any],
    start: str | Mapping[str, float] = "rest",
    record: str | None = None,
) -> dict[str, Any]:
    """Return how a model responds to new inputs, with standard deviations, as columns.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    times : array, shape (n,)
    inputs, start, record
        As in `LODEGP.simulate`.
    """
    names = gp.fit_.setup.channels
    mean, std = gp.simulate(times, inputs, start, names, return_std=True, record=record)
    return _curve_columns(gp, times, names, mean, std, known=inputs)


def date_column(labels: Mapping[str, Any], times: Iterable[float]) -> dict[str, list[str]]:
    """Return a column of dates for times that are counted since an origin; nothing where there is none.

    Parameters
    ----------
    labels : dict
        Of a fit: the origin as a date in ISO form, or nothing, and the unit of the times among the units.
    times : iterable of float

    Examples
    --------
    >>> date_column({"origin": "2026-03-01T12:00:00", "units": {"t": "min"}}, [0.0, 1.5])
    {'date': ['2026-03-01T12:00:00', '2026-03-01T12:01:30']}
    """
    if not labels.get("origin"):
        return {}
    start = datetime.fromisoformat(labels["origin"])
    unit = labels["units"].get("t", "s")
    conversion = find_conversion(unit, "s")
    if conversion is None:
        raise LodekitError(f"expected a unit of time for the dates of this fit, got {unit!r}; label(units=) changes it")
    seconds = conversion.times / conversion.over
    try:
        return {"date": [(start + timedelta(seconds=float(t) * seconds)).isoformat() for t in times]}
    except OverflowError:
        raise LodekitError("expected times whose dates lie between the years 1 and 9999, got others") from None


def add_columns(columns: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add columns to a table; two of one name are refused.

    Parameters
    ----------
    columns : dict of str to sequence
        Changed in place.
    more : dict of str to sequence
    """
    for name, values in more.items():
        if name in columns:
            raise LodekitError(
                f"two columns would be called {name!r}; ask for each observable once, and rename channels"
            )
        columns[name] = values


def format_columns(columns: Mapping[str, Sequence[Any]]) -> str:
    r"""Return columns as CSV; numbers in full precision.

    Parameters
    ----------
    columns : dict of str to sequence

    Examples
    --------
    >>> format_columns({"t": [0.0, 0.1], "x": [1.0, 2.5]})
    't,x\n0.0,1.0\n0.1,2.5\n'
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([repr(float(cell)) if isinstance(cell, float) else cell for cell in row])
    return target.getvalue()
