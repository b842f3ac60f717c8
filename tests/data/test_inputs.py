"""Known inputs are functions of all times, and what is no function is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lodekit.data.inputs import InputSignal
from lodekit.errors import DataError

ASKED = np.array([3.0, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0])


def test_held_and_linear_signals_are_known_at_all_times() -> None:
    times, values = [0.0, 1.0, 2.0], [5.0, 7.0, 4.0]
    held, linear = InputSignal(times, values, "hold"), InputSignal(times, values, "linear")
    assert held.at(ASKED).tolist() == [4.0, 5.0, 5.0, 5.0, 7.0, 7.0, 4.0]
    assert linear.at(ASKED).tolist() == [4.0, 5.0, 5.0, 6.0, 7.0, 5.5, 4.0]
    assert held.derivative_at(ASKED).tolist() == [0.0] * 7
    assert linear.derivative_at(ASKED).tolist() == [0.0, 0.0, 2.0, 2.0, -3.0, -3.0, 0.0]
    for each in (held, linear):
        assert each.delayed(0.5).at(ASKED + 0.5).tolist() == each.at(ASKED).tolist()


@pytest.mark.parametrize("kind", ["hold", "linear"])
def test_missing_samples_are_counted_and_do_not_change_the_signal(kind: Any) -> None:
    found = InputSignal([-1.0, 0.0, 0.5, 1.0, 2.0, 9.0], [np.nan, 5.0, np.nan, 7.0, 4.0, np.nan], kind)
    assert found.missing == 3
    assert found.delayed(1.0).missing == 3
    assert found.at(ASKED).tolist() == InputSignal([0.0, 1.0, 2.0], [5.0, 7.0, 4.0], kind).at(ASKED).tolist()


def test_a_single_sample_is_a_constant_and_arrays_are_kept_from_changes() -> None:
    times = np.array([2.0])
    found = InputSignal(times, np.array([3.0]), "linear")
    times[0] = 9.0
    assert found.times.tolist() == [2.0]
    assert found.at([0.0, 5.0]).tolist() == [3.0, 3.0]
    assert found.derivative_at([0.0, 2.0, 5.0]).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="read-only"):
        found.values[0] = 1.0


@pytest.mark.parametrize(
    ("times", "values", "kind", "message"),
    [
        ([0.0, 1.0], [1.0, 2.0], "cubic", "'hold' or 'linear'"),
        ([0.0, 1.0], [1.0], "hold", "one value per time"),
        ([0.0, np.nan], [1.0, 2.0], "hold", "finite times"),
        ([0.0, 1.0], [1.0, np.inf], "hold", "infinity at t = 1"),
        ([0.0, 1.0, 1.0], [1.0, 2.0, 3.0], "hold", "t = 1 twice"),
        ([0.0, 2.0, 1.0], [1.0, 2.0, 3.0], "hold", "t = 1 after t = 2; sort"),
        ([0.0, 1.0], [np.nan, np.nan], "hold", "one known value"),
        ([], [], "hold", "one known value"),
        ([0.0], ["on"], "hold", "expected numbers"),
    ],
)
def test_what_is_no_function_is_refused_in_words(times: Any, values: Any, kind: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        InputSignal(times, values, kind)
