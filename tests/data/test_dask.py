"""A Dask DataFrame gives the same sums as the same numbers in memory, also when a worker dies on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lodekit.data.sources import LoadedData, load_data
from lodekit.data.statistics import Statistics
from lodekit.data.tables.frames import is_dask_dataframe
from lodekit.errors import DataError
from tests.data.sums import assert_same, in_memory
from tests.limits import PATIENCE

dask = pytest.importorskip("dask")
pandas = pytest.importorskip("pandas")
frames = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

Array = NDArray[np.float64]
CHANNELS = ("x", "y")


def make_table(count: int = 3000, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    t = np.sort(random.uniform(2.0, 9.0, count))
    y = np.where(random.random(count) < 0.2, np.nan, random.standard_normal(count))
    return {"t": t, "x": np.cos(t), "y": y, "sx": random.uniform(0.5, 2.0, count)}


def make_frame(table: Mapping[str, Any], partitions: int) -> Any:
    return frames.from_pandas(pandas.DataFrame(table), npartitions=partitions, sort=False)


def read_sums(frame: Any, **options: Any) -> Statistics:
    found = load_data(frame, channels=CHANNELS, **options).measurements.sufficient_statistics
    assert found is not None
    return found


def test_no_cluster_is_needed_and_empty_partitions_do_no_harm() -> None:
    table = make_table()
    frame = make_frame({**table, "part": np.arange(3000) // 1000}, 6)
    frame = frame[frame["part"] != 1]
    kept = {name: values[np.arange(3000) // 1000 != 1] for name, values in table.items()}
    for scheduler in ("threads", "sync"):
        with dask.config.set(scheduler=scheduler):
            assert_same(read_sums(frame), in_memory(kept))


def test_a_dask_frame_is_one_and_its_columns_are_not() -> None:
    frame = make_frame(make_table(10), 2)
    assert is_dask_dataframe(frame)
    assert not is_dask_dataframe(frame["x"])
    assert not is_dask_dataframe(frame.compute())


def test_columns_dates_and_texts_are_read_by_the_rules_of_files() -> None:
    times = pandas.date_range("2026-03-01 12:00", periods=40, freq="90s")
    numbers = np.cos(np.arange(40.0)).round(3)
    columns = {"Time": times, "X [m]": [str(number).replace(".", ",") for number in numbers], "other": numbers}
    for table in (columns, {**columns, "Time": times.strftime("%d.%m.%Y %H:%M:%S")}):
        with dask.config.set(scheduler="sync"):
            found: LoadedData = load_data(make_frame(table, 3), channels=CHANNELS, columns={"y": "other"})
        assert found.measurements.sufficient_statistics is not None
        plain = {"t": 90.0 * np.arange(40), "x": numbers, "y": numbers}
        assert_same(found.measurements.sufficient_statistics, in_memory(plain))
        assert found.labels["origin"] == "2026-03-01T12:00:00"
        assert "x is in column X [m]" in found.notes


T = np.arange(6.0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"x": T}, "the Dask DataFrame: expected a column t or time"),
        ({"t": T, "z": T}, "the Dask DataFrame: expected a column for at least one of x, y"),
        ({"t": T, "x": T.astype("datetime64[s]")}, "expected numbers in column x, got dates"),
        ({"t": T, "x": list("abcdef")}, "Dask DataFrame: partition's row 1, column x: expected a number, got '[ad]'"),
        ({"t": np.where(T == 5, np.inf, T), "x": T}, "partition's row 3, column t: expected a finite number, got inf"),
        ({"t": np.where(T == 5, np.nan, T), "x": T}, "column t has none in partition's row 3"),
        ({"t": T, "x": np.where(T == 5, np.inf, T)}, "column x: expected a finite number, got inf"),
        ({"t": np.ones(6), "x": T}, r"different times \(column t\), all 6 rows have the same one, t = 1; check"),
        ({"t": T, "x": np.full(6, np.nan)}, "every cell is missing"),
    ],
)
def test_a_frame_that_cannot_be_used_says_why(table: Mapping[str, Any], message: str) -> None:
    with dask.config.set(scheduler="sync"), pytest.raises(DataError, match=message):
        read_sums(make_frame(table, 2))


def test_what_reads_tables_is_never_imported_for_arrays() -> None:
    lines = "import sys, lodekit.data.sources as s; s.load_data([0, 1], {'x': [1, 2]})"
    check = "sys.exit(any(name in sys.modules for name in ('dask', 'distributed', 'duckdb', 'polars', 'pyarrow')))"
    subprocess.run([sys.executable, "-c", f"{lines}; {check}"], check=True)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_cluster_gives_the_same_sums(client: Any) -> None:
    table = make_table()
    # More partitions than one knot of the tree joins.
    found = read_sums(make_frame(table, 20), noise_std={"x": "sx"})
    assert_same(found, in_memory(table, {"x": table["sx"]}))
    assert len(client.scheduler_info()["workers"]) == 2


def test_a_worker_that_is_killed_changes_nothing(client: Any, tmp_path: Path) -> None:
    tables = [make_table(300, seed) for seed in range(12)]
    tables = [{**table, "t": table["t"] + 7.0 * number} for number, table in enumerate(tables)]

    def load(number: int) -> Any:
        # A closure, so that it travels by value; the mark says who is at work now.
        (tmp_path / f"{number}-{os.getpid()}-{time.monotonic_ns()}").touch()
        time.sleep(0.1)
        return pandas.DataFrame(tables[number])

    frame = frames.from_map(load, range(12), meta=pandas.DataFrame(tables[0]).iloc[:0])
    before = set(client.run(os.getpid).values())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(read_sums, frame)
        while len(marks := sorted(tmp_path.iterdir(), key=lambda path: path.name.split("-")[2])) < 17:
            assert not running.done()
            time.sleep(0.01)
        victim = int(marks[-1].name.split("-")[1])
        os.kill(victim, signal.SIGKILL)
        assert not running.done()
        found = running.result(timeout=PATIENCE)
    assert victim in before
    assert victim not in client.run(os.getpid).values()
    whole = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    assert_same(found, in_memory(whole))
