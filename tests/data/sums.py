"""Sums over measurements, compared with the same measurements in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lodekit.data.observations import TimeSeries
from lodekit.data.statistics import Statistics

Array = NDArray[np.float64]
CHANNELS = ("x", "y", "u")


def make_table(count: int, seed: int = 0) -> dict[str, Array]:
    """Return columns of numbers, the times in order and irregular."""
    random = np.random.default_rng(seed)
    t = np.sort(random.uniform(-3.0, 8.0, count))
    return {"t": t, "x": np.sin(t), "y": random.standard_normal(count), "u": random.standard_normal(count)}


def make_missing(table: Mapping[str, Array], *names: str) -> dict[str, Array]:
    """Return the columns with a third of some of them missing."""
    random = np.random.default_rng(1)
    return {
        name: np.where(random.random(len(values)) < 0.3, np.nan, values) if name in names else values
        for name, values in table.items()
    }


def write(path: Path, table: Mapping[str, Any]) -> Path:
    """Write columns to a Parquet or CSV file."""
    frame = pl.DataFrame({name: pl.Series(values, strict=False) for name, values in table.items()})
    frame = frame.with_columns(pl.col(pl.Float64).fill_nan(None))
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    else:
        frame.write_csv(path)
    return path


def in_memory(table: Mapping[str, Array], noise: Mapping[str, Any] | None = None) -> Statistics:
    """Return sums over the measurements in columns."""
    series = []
    for name in CHANNELS:
        if name in table:
            kept = ~np.isnan(table[name])
            std = np.broadcast_to((noise or {}).get(name, np.nan), kept.shape).astype(float)
            series.append(TimeSeries(name, table["t"][kept], table[name][kept], std[kept]))
    return Statistics.of(float(table["t"].min()), float(table["t"].max()), series)


def assert_same(found: Statistics | None, expected: Statistics, tolerance: float = 1e-10) -> None:
    """Assert that sums agree, to rounding."""
    assert found is not None
    assert (found.start, found.stop) == (expected.start, expected.stop)
    assert set(found.cells) == set(expected.cells)
    for key, cell in expected.cells.items():
        other = found.cells[key].with_reference(cell.reference)
        assert other.count == cell.count
        # The transforms are exact to about 1e-14 of the weight of all measurements, whatever the pieces.
        scale = tolerance * max(cell.count, float(cell.weight_moments[0]))
        np.testing.assert_allclose(other.weight_moments, cell.weight_moments, rtol=0, atol=scale)
        np.testing.assert_allclose(other.value_moments, cell.value_moments, rtol=0, atol=scale)
        for name in ("log_weight_sum", "sum_of_squares", "bins"):
            np.testing.assert_allclose(getattr(other, name), getattr(cell, name), rtol=tolerance, atol=scale)
