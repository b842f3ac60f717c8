"""lodekit watch: rows from files that grow and from standard input, alarms, states that are kept."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.follow import follow_file
from tests.limits import PATIENCE

from .command import COMMAND, Done, run

TIMES = 0.5 * np.arange(40)
LAG = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(fixed=2.0) for n in ("tau", "K")})


def respond(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An input that is switched, and what it does, with a little noise."""
    u = np.where(np.sin(0.4 * times) > 0, 1.0, 0.0)
    y = np.zeros(len(times))
    for k in range(len(times) - 1):
        decay = np.exp(-0.25)
        y[k + 1] = decay * y[k] + (1 - decay) * 2.0 * u[k]
    return u, y + 0.05 * np.sin(50.0 * times)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of forty rows, and a log of eighty, the last ones of a sensor that is off by one."""
    place = tmp_path_factory.mktemp("watch")
    u, y = respond(TIMES)
    gp = lk.LODEGP(LAG, inputs={"u": "hold"}, random_state=0).fit(TIMES, {"y": y, "u": u}, 0.05)
    gp.save(place / "m.lodekit")
    more = 0.5 * np.arange(80)
    u, y = respond(more)
    y[60:] += 1.0
    lines = ["time;Y;U", *(f"{t};{a:.6f};{b}".replace(".", ",") for t, a, b in zip(more, y, u, strict=True))]
    (place / "log.csv").write_text("\n".join(lines) + "\n")
    return place


def watch(folder: Path, *arguments: str) -> tuple[Done, list[dict[str, str]]]:
    done = run("watch", "m.lodekit", *arguments, cwd=folder)
    return done, list(csv.DictReader(io.StringIO(done.stdout)))


def test_rows_that_the_fit_has_not_seen_are_predicted_and_a_fault_is_found(folder: Path) -> None:
    done, rows = watch(folder, "log.csv", "--once")
    assert done.returncode == 0, done.stderr
    assert [float(row["t"]) for row in rows] == [0.5 * k for k in range(40, 80)]
    alarms = [float(row["t"]) for row in rows if row["alarm"]]
    assert alarms[0] == 30.0
    assert all(row["alarm"] in ("", "high", "low") for row in rows)
    for row in rows[:20]:
        assert abs(float(row["score"])) < 4
        expected = (float(row["measured"]) - float(row["predicted"])) / float(row["std"])
        assert float(row["score"]) == pytest.approx(expected, rel=1e-6)
    assert f"40 rows, {len(alarms)} alarms" in done.stderr


def test_a_gap_is_named_before_its_alarms(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "log.csv").read_text().splitlines()
    (tmp_path / "gap.csv").write_text("\n".join([*lines[:45], *lines[57:60]]) + "\n")
    done, _ = watch(folder, str(tmp_path / "gap.csv"), "--once")
    assert "no rows for 6.5 before t = 28: inputs are assumed constant during the gap" in done.stderr
    assert "no rows for" not in watch(folder, "log.csv", "--once")[0].stderr
    # The first new row may be far from the end of the fit.
    (tmp_path / "later.csv").write_text("\n".join([lines[0], *lines[60:]]) + "\n")
    assert "no rows for 10 before t = 29.5" in watch(folder, str(tmp_path / "later.csv"), "--once")[0].stderr


def test_split_gaps_starts_a_new_record_after_each_gap(folder: Path, tmp_path: Path) -> None:
    """The input is switched in the gap: continued, the stream gives false alarms; a new record starts from the data."""
    times = np.concatenate([0.5 * np.arange(40, 60), 0.5 * np.arange(80, 120)])
    u, _ = respond(0.5 * np.arange(120))
    u[60:] = 1.0
    y = np.where(times < 30.0, respond(0.5 * np.arange(120))[1][np.round(2 * times).astype(int)], 4.0)
    y[times >= 40.0] = 2.0 + 2.0 * np.exp(-0.5 * (times[times >= 40.0] - 40.0))
    lines = ["t,y,u", *(f"{t},{a},{u[round(2 * t)]}" for t, a in zip(times, y, strict=True))]
    (tmp_path / "gap.csv").write_text("\n".join(lines) + "\n")
    done, rows = watch(folder, str(tmp_path / "gap.csv"), "--once")
    assert any(row["alarm"] for row in rows)
    assert "which may cause alarms; try --split-gaps" in done.stderr
    done, rows = watch(folder, str(tmp_path / "gap.csv"), "--once", "--split-gaps")
    assert not any(row["alarm"] for row in rows)
    assert "no rows for 10.5 before t = 40: a new record starts" in done.stderr
    assert "60 rows, 0 alarms" in done.stderr


def test_json_lines_and_predictions_ahead(folder: Path) -> None:
    done, _ = watch(folder, "log.csv", "--once", "--json", "--ahead", "0.5", "--false-alarms", "1e-6")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 40
    assert rows[0]["alarm"] is None
    for before, after in pairwise(rows[:19]):
        # Inputs are held ahead: the same as they were.
        assert before["ahead"] == pytest.approx(after["predicted"], rel=1e-9)
        # Both include noise.
        assert before["ahead_std"] == pytest.approx(after["std"], rel=1e-6)


def test_standard_input_goes_on_from_a_saved_state(folder: Path, tmp_path: Path) -> None:
    state = str(tmp_path / "now.stream")
    lines = (folder / "log.csv").read_bytes().splitlines(keepends=True)
    whole = watch(folder, "log.csv", "--once")[1]
    found = []
    for part, options in ((lines[:60], ()), ([lines[0], *lines[50:]], ("--resume", state))):
        with mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(b"".join(part)))):
            done, rows = watch(folder, "-", "--save", state, *options)
        assert done.returncode == 0, done.stderr
        found += rows
    assert [row["t"] for row in found] == [row["t"] for row in whole]
    assert [row["alarm"] for row in found] == [row["alarm"] for row in whole]
    assert np.allclose([float(row["score"]) for row in found], [float(row["score"]) for row in whole], rtol=1e-6)


def test_bad_lines_are_named_and_skipped(folder: Path, tmp_path: Path) -> None:
    text = "t,y,u\n20,0.5,0\n20.5,what,0\n21\n22,0.4,\n21.5,0.4,0\n23,,1\n24,0.6,1\n"
    (tmp_path / "bad.csv").write_text(text)
    done, rows = watch(folder, str(tmp_path / "bad.csv"), "--once")
    assert done.returncode == 0
    # A held input that is missing stays, a value that is missing is no value.
    assert [row["t"] for row in rows] == ["20.0", "22.0", "24.0"]
    for words in ("line 3", "what", "line 4", "line 6", "order of time"):
        assert words in done.stderr
    assert "line 5" not in done.stderr


def watch_pieces(folder: Path, *pieces: bytes) -> tuple[Done, list[dict[str, str]]]:
    """Return what comes of a pipe that delivers some bytes at a time."""
    delivered = iter((*pieces, b""))
    pipe = SimpleNamespace(read1=lambda _: next(delivered), read=None)
    with mock.patch("sys.stdin", SimpleNamespace(buffer=pipe)):
        return watch(folder, "-")


def test_zero_bytes_of_a_logger_that_lost_its_power_cost_one_line(folder: Path) -> None:
    head = b"t,y,u\n" + b"".join(b"%d,0.5,0\n" % k for k in range(20, 45))
    done, rows = watch_pieces(folder, head, b"45,0.4,0\n" + 9 * b"\0" + b"46,0.4,0\n47,0.3,0\n48,\xe4,0\n49,0.3,0\n")
    assert done.returncode == 0, done.stderr
    assert [float(row["t"]) for row in rows[-4:]] == [44.0, 45.0, 47.0, 49.0]
    assert "line 28: expected text, got zero bytes; skipped" in done.stderr
    assert "line 30" in done.stderr


def test_what_has_no_lines_is_not_kept_for_ever(folder: Path) -> None:
    done, _ = watch_pieces(folder, *(9 * [b"\0" * (2 << 20)]))
    assert done.returncode == 2
    assert "longer than 16 MB" in done.stderr
    done, _ = watch_pieces(folder, "t,y,u\n20,0.5,0\n".encode("utf-16"))
    assert "got UTF-16; try iconv" in done.stderr


def test_a_place_for_the_state_that_is_not_there_shows_before_the_first_row(folder: Path, tmp_path: Path) -> None:
    done, rows = watch(folder, "log.csv", "--once", "--save", str(tmp_path / "none" / "now.stream"))
    assert (done.returncode, rows) == (2, [])
    assert "cannot write" in done.stderr


def test_standard_input_that_is_closed_is_said_to_be(folder: Path) -> None:
    with mock.patch("sys.stdin", None):
        done, _ = watch(folder, "-")
    assert done.returncode == 2
    assert "standard input, which is closed" in done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are those of Unix")
def test_a_pipe_with_a_name_is_followed_as_it_delivers(tmp_path: Path) -> None:
    """Such as that of <(command): rows must not wait for a megabyte, and its end is the end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"t,y,u\n20,0.5,0\n")
    pieces = follow_file(pipe, once=False)
    assert next(pieces) == b"t,y,u\n20,0.5,0\n"
    os.write(writer, b"21,0.5,0\n")
    assert next(pieces) == b"21,0.5,0\n"
    os.close(writer)
    assert list(pieces) == []


def test_headers_within_a_log_are_known_again_or_end_it(folder: Path, tmp_path: Path) -> None:
    """A logger that starts again writes its header once more; one with other columns would be read wrongly."""
    log, state = tmp_path / "log.csv", tmp_path / "now.stream"
    log.write_text("t,y,u\n20,0.5,0\n20.5,0.4,0\nT,Y,U\n21,0.4,0\n")
    done, rows = watch(folder, str(log), "--once")
    assert (done.returncode, len(rows)) == (0, 3)
    assert "skipped" not in done.stderr
    log.write_text("t,y,u\n20,0.5,0\n20.5,0.4,0\nt,u,y\n21,0,0.4\n")
    done, rows = watch(folder, str(log), "--once", "--save", str(state))
    assert done.returncode == 2
    assert "line 4: the columns change there, from t, y, u to t, u, y" in done.stderr.replace("\n", " ")
    # What came before is kept.
    assert len(rows) == 2
    assert lk.LODEGP.load(folder / "m.lodekit").stream(resume=state).rows == 2


def test_dates_are_counted_as_in_the_fit(tmp_path: Path) -> None:
    u, y = respond(TIMES)
    days = [f"2026-03-01T12:{k:02d}:00" for k in range(40)]
    lines = ["date,y,u", *(f"{d},{a:.6f},{b}" for d, a, b in zip(days, y, u, strict=True))]
    (tmp_path / "log.csv").write_text("\n".join(lines[:21]) + "\n")
    gp = lk.LODEGP(LAG, inputs={"u": "hold"}, random_state=0).fit(tmp_path / "log.csv", noise_std=0.05)
    gp.save(tmp_path / "m.lodekit")
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    done, rows = watch(tmp_path, "log.csv", "--once", "--ahead", "1 min", "--false-alarms", "1e-9")
    # Dates are counted in seconds, and inputs are held ahead.
    both = [(row["ahead"], after["predicted"]) for row, after in pairwise(rows) if float(row["t"]) < 1300.0]
    later, expected = np.array(both, dtype=float).T
    assert np.allclose(later, expected, rtol=1e-4)
    assert done.stderr.startswith("20 rows, ")
    assert [row["date"] for row in rows] == days[20:]
    assert [float(row["t"]) for row in rows] == [60.0 * k for k in range(20, 40)]
    found = gp.stream().push(datetime.fromisoformat(days[20]), {"y": y[20], "u": u[20]})["y"]
    assert found.predicted == pytest.approx(float(rows[0]["predicted"]), rel=1e-5)


def test_alarms_alone_and_new_records(folder: Path) -> None:
    _, rows = watch(folder, "log.csv", "--once", "--alarms")
    assert rows
    assert all(row["alarm"] for row in rows)
    done, rows = watch(folder, "log.csv", "--once", "--fresh")
    assert len(rows) == 80
    (folder / "old.csv").write_text("t,y,u\n1,0,0\n2,0,0\n")
    done, rows = watch(folder, "old.csv", "--once")
    assert not rows
    assert "2 rows up to t = 19.5 were seen before" in done.stderr


def test_what_cannot_be_watched_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "short.csv").write_text("t,y\n20,0.5\n")
    (folder / "empty.csv").write_text("")
    cases = {
        ("short.csv", "--once"): "known input u",
        ("empty.csv", "--once"): "the file is empty",
        ("nothing.csv",): "nothing.csv was not found",
        ("log.csv", "--once", "--false-alarms", "2"): "expected false_alarms",
        ("log.csv", "--once", "--ahead", "-1"): "expected a time ahead such as '24 h'",
        ("log.csv", "--once", "--ahead", "5 s"): "the unit of time is not known",
        ("log.csv", "--once", "--resume", "log.csv"): "log.csv is not the saved state of a lodekit stream",
        ("log.csv", "--once", "--resume", "m.lodekit"): "it is a saved model",
        ("log.csv", "--once", "--resume", str(tmp_path / "none")): "cannot read",
        ("log.csv", "--once", "--resume", "s", "--record", "1"): "expected no --fresh and no --record",
        ("m.lodekit", "--once"): "expected text that grows",
    }
    for arguments, words in cases.items():
        done, _ = watch(folder, *arguments)
        assert done.returncode == 2, arguments
        assert words in done.stderr.replace("\n", " "), (words, done.stderr)


def test_the_last_of_several_records_is_continued(folder: Path) -> None:
    u, y = respond(TIMES)
    record = (TIMES, {"y": y, "u": u}, 0.05)
    lk.LODEGP(LAG, inputs={"u": "hold"}, random_state=0).fit([record, record]).save(folder / "two.lodekit")
    done = run("watch", "two.lodekit", "log.csv", "--once", cwd=folder)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 41)
    assert "starting from the last record, 1; --record chooses another" in done.stderr
    for option, count in ((("--record", "1"), 40), (("--fresh",), 80)):
        done = run("watch", "two.lodekit", "log.csv", "--once", *option, cwd=folder)
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 1 + count)


def test_a_growing_file_is_followed_until_an_interruption(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "log.csv").read_text().splitlines(keepends=True)
    log, state = tmp_path / "grows.csv", tmp_path / "now.stream"
    log.write_text("".join(lines[:50]))
    command = [str(COMMAND), "watch", str(folder / "m.lodekit"), str(log), "--save", str(state), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = [json.loads(process.stdout.readline()) for _ in range(9)]
        with log.open("a") as file:
            file.write("".join(lines[50:55]) + lines[55][:4])
        found += [json.loads(process.stdout.readline()) for _ in range(5)]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert out == ""
    assert [row["t"] for row in found] == [0.5 * k for k in range(40, 54)]
    assert "14 rows" in err
    assert lk.LODEGP.load(folder / "m.lodekit").stream(resume=state).rows == 14


def test_a_log_that_is_put_aside_is_not_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("t;y")
    pieces = follow_file(log, once=False)
    assert [next(pieces), next(pieces)] == [b"t;y", b""]
    log.rename(tmp_path / "log.1.csv")
    with pytest.raises(lk.LodekitError, match="it was replaced or removed"):
        list(pieces)


def test_a_resumed_stream_reads_every_row_at_the_saved_time_once(folder: Path, tmp_path: Path) -> None:
    log, state = tmp_path / "log.csv", str(tmp_path / "now.stream")
    lines = ["t,y,u\n", "20,0.5,0\n", "20.5,0.51,0\n", "20.5,0.52,0\n", "20.5,0.53,0\n", "21,0.5,0\n"]
    found: list[str] = []
    for count in (3, 4, 6):
        log.write_text("".join(lines[:count]))
        options = ("--resume", state) if found else ()
        done, rows = watch(folder, str(log), "--once", "--save", state, *options)
        assert done.returncode == 0, done.stderr
        found += [row["measured"] for row in rows]
    assert found == ["0.5", "0.51", "0.52", "0.53", "0.5"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_last_line_without_its_end_is_read_when_it_is_complete(folder: Path, tmp_path: Path, end: str) -> None:
    log, state = tmp_path / "log.csv", str(tmp_path / "now.stream")
    lines = ["t,y,u", "20,0.5,0", "20.5,0.25,0", "21,0.1"]
    log.write_bytes(end.join(lines).encode())
    done, rows = watch(folder, str(log), "--once", "--save", state)
    assert [row["measured"] for row in rows] == ["0.5", "0.25"]
    assert "line 4: expected a line break at its end" in done.stderr
    log.write_bytes((end.join(lines) + "25,0" + end).encode())
    _, rows = watch(folder, str(log), "--once", "--resume", state)
    assert [row["measured"] for row in rows] == ["0.125"]


def test_names_that_look_like_formulas_are_quoted(tmp_path: Path) -> None:
    _, y = respond(TIMES)
    data = lk.Observations().add(TIMES, "-y", -y, 0.05)
    lk.LODEGP(lk.System("y'' = 0"), random_state=0).fit(data).save(tmp_path / "m.lodekit")
    (tmp_path / "log.csv").write_text("t,level\n20,-0.5\n20.5,-0.4\n")
    done, rows = watch(tmp_path, "log.csv", "--once", "--map", "-y=level")
    assert done.returncode == 0, done.stderr
    assert [(row["observable"], row["measured"]) for row in rows] == [("'-y", "-0.5"), ("'-y", "-0.4")]
