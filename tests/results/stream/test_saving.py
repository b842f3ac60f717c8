"""Streams are saved and resumed; files that are damaged, or belong to another model, are refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import lodekit as lk
from lodekit.support.files import read_archive, write_archive

TIMES = 0.5 * np.arange(20)
LATER = lk.System("tau*y' + y = K*delay(u, 2)", parameters={n: lk.Parameter(fixed=2.0) for n in ("tau", "K")})


@pytest.fixture(scope="module")
def model() -> lk.LODEGP:
    values = {"y": np.sin(TIMES), "u": np.cos(TIMES)}
    return lk.LODEGP(LATER, inputs={"u": "linear"}, random_state=0).fit(TIMES, values, 0.1)


@pytest.fixture
def saved(model: lk.LODEGP, tmp_path: Path) -> Path:
    stream = model.stream(false_alarms=1e-3, shift=2.0)
    for k in range(20):
        stream.push(10.0 + 0.3 * k, {"y": 3.0}, {"u": np.cos(k)})
    stream.save(tmp_path / "now.stream")
    return tmp_path / "now.stream"


def test_a_resumed_stream_goes_on_as_if_nothing_had_happened(model: lk.LODEGP, saved: Path, tmp_path: Path) -> None:
    first, second = model.stream(resume=saved), model.stream(resume=saved)
    assert (first.rows, first.false_alarms, first.shift) == (20, 1e-3, 2.0)
    assert first.alarms > 1
    assert repr(first).endswith(f"20 rows, t = 15.7, {first.alarms} alarms)")
    whole = model.stream(false_alarms=1e-3, shift=2.0)
    assert "0 rows" in repr(whole)
    for k in range(30):
        row = 10.0 + 0.3 * k, {"y": 3.0}, {"u": np.cos(k)}
        found = whole.push(*row)
        if k >= 20:
            # Lengths of steps are remembered, and forgotten when a stream is saved: rounding may differ.
            assert first.push(*row)["y"].score == pytest.approx(found["y"].score, rel=1e-9)
            # Saved between any two rows.
            second.push(*row)
            second.save(tmp_path / "again.stream")
            second = model.stream(resume=tmp_path / "again.stream")
    for other in (first, second):
        assert np.allclose(other.covariance, whole.covariance, rtol=1e-9)
        assert np.allclose(other.sums["y"], whole.sums["y"], rtol=1e-9)
        assert other.alarms == whole.alarms
    assert model.stream(resume=saved, false_alarms=0.01).threshold < first.threshold


def test_a_stream_of_a_loaded_model_is_the_same(model: lk.LODEGP, saved: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "m.lodekit")
    again = lk.LODEGP.load(tmp_path / "m.lodekit").stream(resume=saved)
    assert again.rows == 20


def test_the_size_of_a_file_does_not_grow(model: lk.LODEGP, saved: Path, tmp_path: Path) -> None:
    stream = model.stream(resume=saved)
    for k in range(20, 400):
        stream.push(10.0 + 0.3 * k, {"y": 3.0}, {"u": np.cos(k)})
    stream.save(tmp_path / "late.stream")
    paths = (saved, tmp_path / "late.stream")
    sizes = [{name: array.shape for name, array in read_archive(path)[1].items()} for path in paths]
    assert sizes[0] == sizes[1]


def test_damage_is_noticed(model: lk.LODEGP, saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    for place in range(40, len(whole), 97):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            found = model.stream(resume=saved)
        except lk.LodekitError:
            continue
        # Bytes that say nothing, such as the time of the file.
        assert found.rows == 20
    saved.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(lk.LodekitError, match="is not the saved state of a lodekit stream"):
        model.stream(resume=saved)
    with pytest.raises(lk.LodekitError, match="cannot read"):
        model.stream(resume=tmp_path / "nothing.stream")


def test_states_that_do_not_belong_together_are_refused(model: lk.LODEGP, saved: Path, tmp_path: Path) -> None:
    values = {"y": np.sin(TIMES), "u": np.sin(TIMES)}
    other = lk.LODEGP(LATER, inputs={"u": "hold"}, random_state=0).fit(TIMES, values, 0.1)
    with pytest.raises(lk.LodekitError, match="another model"):
        other.stream(resume=saved)
    model.save(tmp_path / "m.lodekit")
    with pytest.raises(lk.LodekitError, match="not the saved state"):
        model.stream(resume=tmp_path / "m.lodekit")
    with pytest.raises(lk.LodekitError, match="no fresh="):
        model.stream(resume=saved, fresh=True)
    state, arrays, _ = read_archive(saved)
    for name in ("mean", "root", "sums", "input_0"):
        write_archive(saved, state, arrays | {name: arrays[name] * np.nan})
        with pytest.raises(lk.LodekitError, match="not a complete state"):
            model.stream(resume=saved)
    for wrong in ({"rows": math.inf}, {"time": 10**400}, {"settings": {"false_alarms": 10**400, "shift": 1.0}}):
        write_archive(saved, state | wrong, arrays)
        with pytest.raises(lk.LodekitError, match="not a complete state"):
            model.stream(resume=saved)
    write_archive(saved, state | {"format": 99}, arrays)
    with pytest.raises(lk.LodekitError, match="format 99"):
        model.stream(resume=saved)
