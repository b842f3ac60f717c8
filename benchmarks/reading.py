"""How many nanoseconds tables take to be read, for each cell; polars reads the same files beside it.

Processor times, of the second of two runs each.

    python benchmarks/reading.py [--rows N]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from lodekit.data.tables.columns import resolve_columns
from lodekit.data.tables.reader import TableSchema, detect_dates, detect_decimal_mark, open_table, read_block


def read(path: Path) -> int:
    """Return the number of records, all of which became arrays."""
    table = open_table(path)
    columns = resolve_columns(table.names, ["x", "u"])
    plan, origin = detect_dates(table, TableSchema(str(path), columns, table.separator))
    plan = detect_decimal_mark(table, replace(plan, origin=origin))
    return sum(len(read_block(block, plan).times) for block in table.blocks(columns.used))


def write(folder: Path, count: int) -> dict[str, Callable[[], object]]:
    """Write files, and return how polars reads each."""
    generator = np.random.default_rng(0)
    times = np.arange(count) * 0.01
    frame = pl.DataFrame(
        {"t": times, "x": np.round(np.sin(times) + generator.normal(size=count), 6), "u": np.cos(times)}
    )
    missing = pl.when(pl.int_range(count) % 50 == 0).then(None).otherwise(pl.col("x"))
    start = pl.datetime(2026, 3, 1)
    frame.write_csv(folder / "numbers.csv")
    frame.with_columns(x=missing).write_csv(folder / "missing.csv", null_value="NA")
    dated = frame.with_columns(t=(start + pl.duration(seconds=pl.int_range(count))).dt.strftime("%Y-%m-%d %H:%M:%S"))
    dated.write_csv(folder / "dates.csv")
    frame.with_columns(**{f"z{k}": generator.normal(size=count) for k in range(8)}).write_parquet(
        folder / "wide.parquet"
    )
    floats = {"t": pl.Float64, "x": pl.Float64, "u": pl.Float64}
    return {
        "numbers.csv": lambda: pl.read_csv(folder / "numbers.csv", schema=floats),
        "missing.csv": lambda: pl.read_csv(folder / "missing.csv", schema=floats, null_values="NA"),
        "dates.csv": lambda: pl.read_csv(folder / "dates.csv", try_parse_dates=True),
        "wide.parquet": lambda: pl.read_parquet(folder / "wide.parquet", columns=["t", "x", "u"]),
    }


def main() -> None:
    """Print nanoseconds of processor time for each cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'ns a cell':14}  lodekit   polars")
        for name, other in write(Path(folder), options.rows).items():
            found = []
            for job in (lambda name=name: read(Path(folder, name)), other):
                job()
                before = time.process_time()
                job()
                found.append((time.process_time() - before) / options.rows / 3 * 1e9)
            print(f"{name:14} {found[0]:8.0f} {found[1]:8.0f}")


if __name__ == "__main__":
    main()
