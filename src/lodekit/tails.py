"""The end of a record that is larger than memory, with what all rows before it say: all that a saved model keeps of it.

Predictions from there on, and streams, need nothing else. They do need what was learned to be as it is: so much is kept
for this, and for the points beside it that tell how predictions move with what was learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.archive import StorageError
from lodekit.data.inputs import pack_inputs, unpack_inputs
from lodekit.data.measurements import Measurements
from lodekit.data.moves import Moved
from lodekit.data.spool import Head, LeftOut, Spool, Spooled, Spread
from lodekit.data.statistics import Statistics
from lodekit.data.tables.cells import Numerals
from lodekit.data.tables.table import Records
from lodekit.fitted import Fit
from lodekit.inference.markov.pieces import PiecesEngine
from lodekit.inference.markov.piecewise import PiecesPosterior
from lodekit.preparing import some_times

__all__ = ["pack_tail", "unpack_tail"]

Array = NDArray[np.float64]
#: Rows that are kept at least, where there are as many.
_LEAST = 2000
_PARTS = ("point", "mean", "root", "response")


def pack_tail(fit: Fit) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the end of a record as plain values and arrays.

    Parameters
    ----------
    fit : Fit
        Of one record whose rows are on disk.
    """
    posterior, spooled, sums = fit.posterior, fit.measurements.spooled, fit.measurements.sums
    if not isinstance(posterior, PiecesPosterior) or spooled is None or sums is None:
        raise StorageError("expected a fit whose rows are on disk; fit again with the file")
    engine = PiecesEngine(fit.prior, spooled.spool, left_out=spooled.left_out)
    spool, last = engine.spool, len(engine.starts) - 1
    first = last - 1 if last and spool.count - last * engine.most < _LEAST else last
    arrays: dict[str, Any] = dict(sums.arrays()) | {"tail_rows": spool.table(first * engine.most, spool.count)}
    arrays["tail_times"], arrays["tail_counts"] = some_times(fit.measurements)
    heads, whole = [], first == 0 and spooled.left_out is None
    for number, own in enumerate(() if whole else _posteriors(fit, posterior)):
        value, error, border, response = engine.tail(own, first)
        heads.append([value, error])
        parts = (np.concatenate(own.hyper.parts), border.mean, border.root, response)
        arrays |= {f"head_{number}_{name}": part for name, part in zip(_PARTS, parts, strict=True)}
    before = spooled.left_out.size if spooled.left_out else 0
    tail = {
        "names": list(spool.names),
        "columns": list(spool.columns),
        "noise": {name: float(own) for name, own in spool.noise.items()},
        "noisy": list(spool.noisy),
        "window": list(fit.measurements.window),
        "samples": {name: list(own[:4]) for name, own in spooled.samples.items()},
        "moved": {name: list(own.moved) for name, own in spooled.samples.items() if own.moved is not None},
        "size": before + _count(spool, 0, first * engine.most),
        "whole": whole,
        "heads": heads,
    }
    inputs, samples = pack_inputs(fit.measurements.inputs)
    window = {"window": [sums.start, sums.stop], "cells": [list(key) for key in sums.cells]}
    return {"sums": window, "tail": tail, "inputs": inputs}, arrays | samples


def _posteriors(fit: Fit, posterior: PiecesPosterior) -> Iterator[PiecesPosterior]:
    """Yield the posterior, and those beside it that tell how predictions move with what was learned."""
    yield posterior
    for _, above, below in fit.uncertainty.pairs:
        for own in (above, below):
            if isinstance(own, PiecesPosterior):
                yield own


def _count(spool: Spool, first: int, last: int) -> int:
    step = 100_000
    return sum(len(item.values) for row in range(first, last, step) for item in spool.read(row, min(row + step, last)))


def unpack_tail(state: Mapping[str, Any], arrays: Mapping[str, Any]) -> Measurements:
    """Return what `pack_tail` took apart.

    Parameters
    ----------
    state : dict
        Plain values.
    arrays : dict of str to array
    """
    tail, rows = state["tail"], arrays["tail_rows"]
    columns, noisy, names = tail["columns"], tail["noisy"], tail["names"]
    if rows.ndim != 2 or rows.shape[1] != 1 + len(columns) + len(noisy) or not set(names) <= set(columns):
        raise ValueError(f"expected rows of {1 + len(columns) + len(noisy)} numbers, got {rows.shape}")
    values = dict(zip(columns, rows[:, 1 : 1 + len(columns)].T, strict=True))
    noise = dict(zip(noisy, rows[:, 1 + len(columns) :].T, strict=True))
    block = Records(rows[:, 0], {name: values[name] for name in names}, noise, Numerals())
    kept = tuple(name for name in noisy if name in names)
    spool = Spool.write(names, [block], tail["noise"], kept)
    heads = tuple(
        Head(
            arrays[f"head_{number}_point"],
            float(value),
            float(error),
            *(arrays[f"head_{number}_{name}"] for name in _PARTS[1:]),
        )
        for number, (value, error) in enumerate(tail["heads"])
    )
    left_out = LeftOut(int(tail["size"]), arrays["tail_times"], arrays["tail_counts"], heads)
    first, last = map(float, tail["window"])
    spooled = Spooled(
        tuple(names),
        tail["noise"],
        kept,
        # No function of its own here: models are pickled.
        partial(iter, [block]),
        ready=spool,
        window=(first, last),
        samples={name: _unpack_spread(own, tail.get("moved", {}).get(name)) for name, own in tail["samples"].items()},
        left_out=None if tail["whole"] else left_out,
    )
    inputs = unpack_inputs(state["inputs"], arrays)
    sums = Statistics.from_arrays(state["sums"]["window"], state["sums"]["cells"], arrays)
    return Measurements(sums=sums, inputs=inputs, spooled=spooled)


def _unpack_spread(packed: Sequence[Any], gap: Sequence[Any] | None) -> Spread:
    """Return what is known of the samples of an input; models of earlier versions say nothing of gaps."""
    count, mean, spread, largest = packed
    moved = None
    if gap is not None:
        first, last, before, after, gaps = gap
        moved = Moved(float(first), float(last), float(before), float(after), int(gaps))
    return Spread(int(count), float(mean), float(spread), float(largest), moved)
