"""Inputs without values are warned of where nothing lies before to go by, or where much is missing."""

from __future__ import annotations

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.inputs import InputKind
from lodekit.data.measurements import Measurements
from lodekit.learning.messages.scarcity import warn_of_holes

_T = np.arange(0.0, 100.0)


def _warned(kind: InputKind, missing: object) -> list[str]:
    u = np.sin(_T)
    u[missing] = np.nan
    observations = lk.Observations().add(_T, "y", np.cos(_T)).add(_T, "u", u)
    return warn_of_holes(Measurements.of(observations).given({"u": kind}), "s")


@pytest.mark.parametrize("kind", ["hold", "linear"])
def test_a_hole_at_the_beginning_and_a_long_one_are_told(kind: InputKind) -> None:
    """Which times, and what is done about it."""
    (text,) = _warned(kind, slice(0, 3))
    assert text.startswith("u has no value before t = 3 s,")
    (text,) = _warned(kind, slice(40, 60))
    assert text.startswith("u has no value between t = 39 and 60 s, 21% of the record")


@pytest.mark.parametrize(
    ("kind", "missing"),
    [("hold", slice(0, 0)), ("linear", slice(40, 44)), ("linear", _T % 4 != 0), ("hold", ~np.isin(_T, [0, 1, 2, 50]))],
)
def test_short_holes_and_slower_clocks_are_not_told(kind: InputKind, missing: object) -> None:
    """Short ones, those of a slower clock, and inputs that are written where they change only."""
    assert not _warned(kind, missing)


def test_a_hole_is_the_first_warning_of_a_fit() -> None:
    """As all else may follow from it."""
    t, u = np.arange(0.0, 20.0), np.repeat([np.nan, 1.0, 0.0, 2.0], 5)
    system = lk.System("y' = a*(u - y)", parameters={"a": lk.Parameter(fixed=0.5)})
    y = np.repeat([3.0, 1.0, 0.0, 2.0], 5)
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0, restarts=1).fit(t, {"y": y, "u": u}, noise_std=1.0)
    assert gp.warnings_[0].startswith("u has no value before t = 5,")
