"""Inputs without values are warned of where nothing lies before to go by, much is missing, or they moved meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

import lodekit as lk
from lodekit.data import inputs, row_store
from lodekit.data.inputs import HoldType
from lodekit.data.records import Measurements
from lodekit.data.row_store import OutOfCoreRows
from lodekit.data.statistics import Statistics
from lodekit.data.tables.cells import NumberFormat
from lodekit.data.tables.reader import TableData
from lodekit.data.time_reference import TimeReference
from lodekit.diagnostics.messages import input_gap_warnings

_T, _CLOCK = np.arange(0.0, 100.0), TimeReference(unit="s")


def _warned(kind: HoldType, missing: object) -> list[str]:
    u = np.sin(_T)
    u[missing] = np.nan
    observations = lk.Observations().add(_T, "y", np.cos(_T)).add(_T, "u", u)
    return input_gap_warnings(Measurements.from_observations(observations).with_known_inputs({"u": kind}), _CLOCK)


@pytest.mark.parametrize("kind", ["hold", "linear"])
def test_a_hole_at_the_beginning_and_a_long_one_are_told(kind: HoldType) -> None:
    """Which times, and what is done about it."""
    (text,) = _warned(kind, slice(0, 3))
    assert text.startswith("input u has no value before t = 3 s,")
    (text,) = _warned(kind, slice(40, 60))
    assert text.startswith("input u has no value between t = 39 and 60 s, 21 % of the record")


@pytest.mark.parametrize(
    ("kind", "missing"),
    [("hold", slice(0, 0)), ("linear", slice(40, 44)), ("linear", _T % 4 != 0), ("hold", ~np.isin(_T, [0, 1, 2, 50]))],
)
def test_short_holes_and_slower_clocks_are_not_told(kind: HoldType, missing: object) -> None:
    """Short ones, those of a slower clock, and inputs that are written where they change only."""
    assert not _warned(kind, missing)


_STEPS = np.repeat([80.0, 80.0, 50.0, 50.0, 20.0], 20)


def _of_rows(kind: HoldType, t: np.ndarray, u: np.ndarray, y: np.ndarray | None = None) -> list[str]:
    """Return what is said of rows in memory, and see that as much is said of rows on disk, however these are cut."""
    y = t if y is None else y
    kept = Measurements.from_observations(lk.Observations().add(t, "y", y).add(t, "u", u))
    said = input_gap_warnings(kept.with_known_inputs({"u": kind}), _CLOCK)
    for length in (3, 40, 1000):
        assert _of_rows_on_disk(kind, t, u, y, length) == said
    return said


def _of_rows_on_disk(kind: HoldType, t: np.ndarray, u: np.ndarray, y: np.ndarray, length: int) -> list[str]:
    """Return what is said where rows are on disk, and so many are read at a time."""
    block = TableData(t, {"y": y, "u": u}, {}, NumberFormat())
    kept = Measurements.from_observations(lk.Observations().add(t, "y", y).add(t, "u", u))
    sums = Statistics.of(t[0], t[-1], kept.series, 8)
    summed = Measurements(
        sufficient_statistics=sums, stored_rows=OutOfCoreRows(("y", "u"), {}, (), lambda: iter([block]))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_store, "_CHUNK_ROWS", length)
        return input_gap_warnings(summed.with_known_inputs({"u": kind}), _CLOCK)


@pytest.mark.parametrize("kind", ["hold", "linear"])
@pytest.mark.parametrize("way", ["absent rows", "empty rows", "empty cells"])
def test_an_input_that_moved_in_a_gap_is_told(kind: HoldType, way: str) -> None:
    """Whether rows are absent, or empty, or the input alone is not there: who knows when it moved?"""
    gap = (_T >= 36) & (_T < 44)
    u, y = np.where(gap, np.nan, _STEPS), np.where(gap & (way == "empty rows"), np.nan, _T)
    kept = ~gap if way == "absent rows" else np.full(len(_T), True)
    (text,) = _of_rows(kind, _T[kept], u[kept], y[kept])
    assert text.startswith(
        "input u changed from 80 to 50 during a gap of 9 s (between t = 35 and 44 s), at an unknown time: split"
    )


def test_gaps_are_counted_and_rows_about_the_change_close_them() -> None:
    """One sentence for an input; the cure that it names is one."""
    kept = ~(((_T >= 36) & (_T < 44)) | ((_T >= 75) & (_T < 85)))
    (text,) = _of_rows("hold", _T[kept], _STEPS[kept])
    assert "during a gap of 11 s" not in text
    assert "(between t = 35 and 44 s), and in 1 more, at an unknown time" in text
    kept[[39, 40, 79, 80]] = True
    assert not _of_rows("hold", _T[kept], _STEPS[kept])


def test_gaps_are_not_told_in_which_nothing_moved_or_that_are_none() -> None:
    """An input at rest, or that hardly moves; few absent rows; rows that become rarer; slow drifts between lines."""
    beside, few, within = (
        np.less(_T, low) | np.greater_equal(_T, high) for low, high in ((22, 36), (37, 42), (36, 44))
    )
    assert not _of_rows("hold", _T[beside], _STEPS[beside])
    assert not _of_rows("hold", _T[few], _STEPS[few])
    assert not _of_rows("hold", _T[within], np.where(_T < 90, 80.0, 20.0)[within] + 0.1 * np.sin(_T[within]))
    assert not _of_rows("hold", np.geomspace(1e-3, 1e3, 100), np.where(_T < 98, 80.0, 20.0))
    assert not _of_rows("linear", _T[within], np.sin(0.1 * _T[within]))


def test_inputs_that_are_written_where_they_change_have_no_gaps() -> None:
    """Neither where measurements go on meanwhile, nor where these pause as well."""
    times = np.append(np.arange(0.0, 40.0, 2.0), 70.0)
    for measured in (_T, _T[(_T < 40) | (_T > 60)] + 0.5):
        changes = lk.Observations().add(measured, "y", measured).add(times, "u", np.arange(21.0) % 2 + times / 50)
        assert not input_gap_warnings(Measurements.from_observations(changes).with_known_inputs({"u": "hold"}), _CLOCK)
        # On disk, each in a row of its own.
        every = np.concatenate([measured, times])
        order, is_input = np.argsort(every, kind="stable"), np.arange(len(every)) >= len(measured)
        u = np.concatenate([np.full(len(measured), np.nan), np.arange(21.0) % 2 + times / 50])
        y = np.where(is_input, np.nan, every)
        assert not _of_rows_on_disk("hold", every[order], u[order], y[order], 1000)


def test_an_input_on_disk_may_stand_in_rows_of_its_own() -> None:
    """It is logged row by row as well, where each time has two rows: one for what was measured, one for the input."""
    kept = (_T < 36) | (_T >= 44)
    t, u = np.repeat(_T[kept], 2), np.repeat(_STEPS[kept], 2)
    is_input = np.arange(len(t)) % 2 == 1
    (text,) = _of_rows_on_disk("hold", t, np.where(is_input, u, np.nan), np.where(is_input, np.nan, t), 51)
    assert "during a gap of 9 s (between t = 35 and 44 s)" in text


def test_of_more_gaps_than_are_kept_the_longest_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with the number of gaps, and what is said of the largest is right."""
    monkeypatch.setattr(inputs, "_MAX_GAPS", 2)
    watch = inputs.InputGapDetector("hold")
    lengths = np.ones(400)
    lengths[50::50] = 20.0 + np.arange(7.0)
    times, values = np.concatenate([[0.0], np.cumsum(lengths)]), np.cumsum(np.append(0.0, lengths > 1))
    for first in range(0, 401, 30):
        watch.update(times[first : first + 30], values[first : first + 30])
    assert watch.largest_gap is not None
    assert watch.largest_gap.n_gaps == 2
    assert watch.largest_gap.stop - watch.largest_gap.start >= 25.0


def test_a_hole_is_the_first_warning_of_a_fit() -> None:
    """As all else may follow from it."""
    t, u = np.arange(0.0, 20.0), np.repeat([np.nan, 1.0, 0.0, 2.0], 5)
    system = lk.System("y' = a*(u - y)", parameters={"a": lk.Parameter(fixed=0.5)})
    y = np.repeat([3.0, 1.0, 0.0, 2.0], 5)
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0, restarts=1).fit(t, {"y": y, "u": u}, noise_std=1.0)
    assert gp.warnings_[0].startswith("input u has no value before t = 5,")


def test_a_gap_in_which_an_input_changed_and_came_back_is_told_if_the_fit_is_poor() -> None:
    """The input is 3 in the gap and 1 on both sides of it, so that only the residuals show that it changed."""
    t = np.arange(120.0)
    u = np.where((t >= 50) & (t < 60), 3.0, (t >= 40) & (t < 70)) + (t < 20)
    y = np.zeros(120)
    for k in range(119):
        y[k + 1] = y[k] + (1 - np.exp(-1 / 8)) * (2 * u[k] - y[k])
    data = {"y": y + 0.02 * np.random.default_rng(0).standard_normal(120), "u": u}
    kept = (t < 50) | (t >= 60)
    system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    told = "the record has a gap of 11 (between t = 49 and 60), in which inputs may have changed: split the record at"
    rest = {name: values[kept] for name, values in data.items()}
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t[kept], rest)
    assert any(text.startswith(told) for text in gp.warnings_)
    gp.fit(t[kept], rest, split_gaps=True)
    assert not gp.warnings_
    # A validation reports it as well; without such errors, it is no reason for a warning.
    assert any(text.startswith(told) for text in gp.validate(t[kept], rest, split_gaps=False).warnings)
    y = gp.simulate(t[kept], {"u": (t[kept], rest["u"])}, observable="y")
    noise = 0.02 * np.random.default_rng(1).standard_normal(len(y))
    assert not gp.validate(t[kept], {"y": y + noise, "u": rest["u"]}, split_gaps=False).warnings
