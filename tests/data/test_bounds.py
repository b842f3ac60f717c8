"""Files and pipes that could exhaust a machine: each is read in bounded memory, or refused."""

from __future__ import annotations

import gzip
import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import lodekit as lk
from lodekit.data.sources import load_data
from lodekit.data.tables import text, text as text_module
from tests.limits import ask_bounded


def write_packed(path: Path, head: bytes, piece: bytes, count: int, tail: bytes = b"") -> None:
    """Write a gzip file with a piece many times in it; it is packed once."""
    packed = gzip.compress(piece)
    path.write_bytes(gzip.compress(head) + packed * count + gzip.compress(tail))


def test_packed_bytes_without_line_ends_are_refused_in_little_memory(tmp_path: Path) -> None:
    write_packed(tmp_path / "digits.csv.gz", b"t,x\n0,1\n", b"1" * (1 << 20), 3000)
    write_packed(tmp_path / "zeros.csv.gz", b"t,x\n0,1\n", bytes(1 << 20), 3000)
    write_packed(tmp_path / "head.csv.gz", b"t,x", b",x" * (1 << 19), 3000)
    write_packed(tmp_path / "log.parquet.gz", b"PAR1", bytes(1 << 20), 200)
    assert sum(item.stat().st_size for item in tmp_path.iterdir()) < 13e6
    answers = ask_bounded(
        "import os\n"
        "for name in ('digits.csv.gz', 'zeros.csv.gz', 'head.csv.gz', 'log.parquet.gz', '/dev/zero'):\n"
        f"    ask(name, lambda: load_data(os.path.join({str(tmp_path)!r}, name), channels=['x']))\n"
    )
    assert "more than 200 times as large" in answers["digits.csv.gz"]
    assert "more than 200 times as large" in answers["zeros.csv.gz"]
    assert "more than 200 times as large" in answers["head.csv.gz"]
    assert "at most 128 MB of Parquet inside gzip" in answers["log.parquet.gz"]
    assert "got a device" in answers["/dev/zero"]


def test_a_packed_log_of_long_lines_is_read_in_pieces_in_bounded_memory(tmp_path: Path) -> None:
    """Few records, but much text: 160 MB in lines of a kilobyte each; all in memory at once, they take over 400 MB."""
    remark = b"x" * 1000
    with gzip.open(tmp_path / "log.csv.gz", "wb", 1) as file:
        file.write(b"t,x,remark\n")
        for first in range(0, 160_000, 1000):
            file.write(b"".join(b"%d,%d.5,%s\n" % (i, i % 7, remark) for i in range(first, first + 1000)))
    answers = ask_bounded(
        f"ask('log', lambda: load_data({str(tmp_path / 'log.csv.gz')!r}, channels=['x']).measurements.size)",
        megabytes=350,
    )
    assert answers["log"] == "160000"


def test_long_lines_count_as_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.csv"
    path.write_text("t,x\n" + "".join(f"{i},{i % 7}.5\n" for i in range(100)))
    assert load_data(path, channels=["x"]).measurements.sufficient_statistics is None
    monkeypatch.setattr(text, "MAX_BYTES_IN_MEMORY", 200)
    found = load_data(path, channels=["x"])
    assert found.measurements.sufficient_statistics is not None
    assert found.measurements.size == 100


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "_PIPE_TIMEOUT_SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(lk.LodekitError, match="no process writes to it"):
        load_data(tmp_path / "pipe", channels=["x"])


def feed(path: Path, content: bytes) -> threading.Thread:
    """Write to a pipe as soon as somebody reads it; the reader may leave early."""

    def write() -> None:
        with suppress(BrokenPipeError):
            path.write_bytes(content)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


def test_a_pipe_is_read_to_its_end_or_to_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    rows = b"t,x\n" + b"".join(b"%d,%d.5\n" % (i, i % 7) for i in range(50_000))
    monkeypatch.setattr(text_module, "_PIPE_TIMEOUT_SECONDS", 60.0)
    thread = feed(path, rows)
    assert load_data(path, channels=["x"]).measurements.size == 50_000
    thread.join(60)
    monkeypatch.setattr(text_module, "_MAX_PIPE_BYTES", 100_000)
    thread = feed(path, rows)
    with pytest.raises(lk.LodekitError, match="from a pipe; save the data in a file"):
        load_data(path, channels=["x"])
    thread.join(60)


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(lk.LodekitError, match="folder"):
        load_data(tmp_path, channels=["x"])


@pytest.mark.parametrize("head", [b"", b"# log\n", b"t,x\n0,1\n1,2\n"])
@pytest.mark.parametrize("piece", [b"\n", b"#\n"])
def test_packed_empty_lines_and_comments_are_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, piece: bytes
) -> None:
    """The limit is lower here, so that the test is fast; the number of lines that are looked at is bounded by it."""
    monkeypatch.setattr(text, "MAX_LINE_BYTES", 1 << 20)
    write_packed(tmp_path / "log.csv.gz", head, piece * (1 << 19), 4)
    with pytest.raises(lk.LodekitError, match="more than 200 times as large, such as empty lines; unpack the file"):
        load_data(str(tmp_path / "log.csv.gz"), channels=["x"])
    (tmp_path / "log.csv").write_bytes(b"\n" * (3 << 20) + b"t,x\n0,1\n1,2\n")
    with pytest.raises(lk.LodekitError, match="the first 1 MB are empty lines and comments"):
        load_data(str(tmp_path / "log.csv"), channels=["x"])


def test_packed_tables_with_many_equal_cells_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_LINE_BYTES", 1 << 20)
    rows = b"".join(b"%d%s\n" % (k, b",0" * 60) for k in range(20_000))
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(b"t,x%s\n" % b"".join(b",c%d" % k for k in range(59)) + rows))
    measurements = load_data(str(tmp_path / "log.csv.gz"), channels=["x"]).measurements
    assert len(measurements.series[0].times) == 20_000
