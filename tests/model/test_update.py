"""An update adds what is new: later values, other channels, gaps; not the same record again, nor another one."""

from __future__ import annotations

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.records import Measurements, check_no_overlap
from lodekit.data.statistics import Statistics

WALK = lk.System("x' = v")
TIMES, PLACES = np.array([0.0, 1.0, 2.0, 5.0]), np.array([0.0, 0.9, 2.1, 5.0])


@pytest.fixture(scope="module")
def walk() -> lk.LODEGP:
    return lk.LODEGP(WALK, random_state=0, restarts=1).fit(TIMES, {"x": PLACES})


def again(walk: lk.LODEGP) -> lk.LODEGP:
    return lk.LODEGP.from_fit(walk.fit_)


@pytest.mark.parametrize(
    ("times", "values"),
    [
        ([6.0, 7.0], {"x": [6.1, 7.0]}),
        ([-2.0, -1.0], {"x": [-2.1, -1.0]}),
        ([5.0, 6.0], {"x": [5.1, 6.0]}),
        ([3.0, 4.0], {"x": [3.0, 4.1]}),
        ([2.0], {"x": [2.0]}),
        (TIMES, {"v": [1.0, 1.1, 0.9, 1.0]}),
    ],
    ids=["later", "earlier", "from the last time on", "in a gap", "one time once more", "another channel"],
)
def test_new_measurements_are_added(walk: lk.LODEGP, times: list[float], values: dict[str, list[float]]) -> None:
    gp = again(walk).update(times, values, relearn=False)
    assert gp.fit_.measurements.size == len(TIMES) + len(times)


@pytest.mark.parametrize(
    ("times", "values", "words"),
    [
        (TIMES, {"x": PLACES}, "with the same value"),
        ([5.0], {"x": [5.0]}, "for example at t = 5, with the same value"),
        (TIMES + 0.01, {"x": PLACES}, "between t = 0.01 and 5.01, for example at t = 1"),
        ([0.0, 3.0, 9.0], {"x": [1.0, 1.0, 1.0], "v": [1.0, 1.0, 1.0]}, "another record, whose time starts again"),
    ],
    ids=["the same data", "the last value", "in between", "another record"],
)
def test_what_lies_among_old_measurements_is_refused(
    walk: lk.LODEGP, times: list[float], values: dict[str, list[float]], words: str
) -> None:
    gp = again(walk)
    with pytest.raises(lk.LodekitError, match="x was measured before") as caught:
        gp.update(times, values, relearn=False)
    assert words in str(caught.value)
    assert gp.fit_ is walk.fit_


def test_sums_know_when_they_were_measured() -> None:
    def summed(first: float, last: float) -> Measurements:
        times = np.linspace(first, last, 3000)
        return Measurements(
            sufficient_statistics=Statistics.of(first, last, lk.Observations().add(times, "x", np.sin(times)))
        )

    check_no_overlap(summed(0.0, 5.0), summed(5.0, 9.0))
    for new in (summed(4.0, 6.0), summed(-1.0, 9.0), summed(0.0, 5.0)):
        with pytest.raises(lk.LodekitError, match="x was measured before"):
            check_no_overlap(summed(0.0, 5.0), new)
