"""Profiles: a parameter is moved far, all else follows, and the evidence falls, or does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from lodekit.learning.objective import Objective
from lodekit.learning.profiles import profile
from lodekit.learning.search import Optimum
from lodekit.learning.transforms import Layout, Transform
from lodekit.learning.verdicts import Verdict


class Made:
    """An objective that is a formula of the vector that is searched."""

    def __init__(self, value: Callable[[np.ndarray], float], transforms: list[Transform]) -> None:
        self.formula = value
        names = tuple("abc"[: len(transforms)])
        self.layout = Layout(names, np.full(len(names), np.nan), dict(enumerate(transforms)), 0, 0, 0)

    def value(self, x: np.ndarray) -> float:
        return self.formula(x)

    def evaluate(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        steps = 1e-6 * np.eye(len(x))
        slope = [(self.formula(x + h) - self.formula(x - h)) / 2e-6 for h in steps]
        return self.formula(x), np.array(slope)


def look(value: Callable[[np.ndarray], float], transforms: list[Transform], x: list[float], curvature: Any) -> Any:
    made = Made(value, transforms)
    point = np.array(x)
    optimum = Optimum(point, value(point), True, "", 1, np.zeros(len(x), dtype=bool))
    return profile(cast(Objective, made), optimum, np.array(curvature, dtype=float), 0)


POSITIVE = Transform(0.0, math.inf, 0.01)
EITHER = Transform(-math.inf, math.inf, 0.01)


def test_of_a_product_neither_factor_is_told() -> None:
    def value(x: np.ndarray) -> float:
        return -50.0 * float(x[0] + x[1] - 1.0) ** 2

    found = look(value, [POSITIVE, POSITIVE], [0.5, 0.5], [[100.0, 100.0], [100.0, 100.0]])
    assert found.is_flat
    # The same with a curvature that is rounding: proof is in the evaluation.
    assert look(value, [POSITIVE, POSITIVE], [0.5, 0.5], [[100.0, -3.0], [-3.0, -7.0]]).is_flat


def test_a_valley_that_bends_is_followed() -> None:
    def value(x: np.ndarray) -> float:
        return -200.0 * float(x[1] - 0.3 * x[0] ** 2) ** 2

    assert look(value, [POSITIVE, POSITIVE], [0.0, 0.0], [[0.0, 0.0], [0.0, 400.0]]).is_flat


def test_a_parameter_that_is_told_gets_the_interval_that_the_evidence_has() -> None:
    def value(x: np.ndarray) -> float:
        return -0.5 * float(x[0] / 1e-5) ** 2 - 0.5 * float(x[1]) ** 2

    # The curvature says nothing of the kind.
    found = look(value, [POSITIVE, POSITIVE], [0.0, 0.0], [[-3.0, 0.0], [0.0, 1.0]])
    assert found.below
    assert found.above
    for edge in (1.0 - found.low, found.high - 1.0):
        # The truth is 1.96e-5; the place is looked for to a factor of two.
        assert 1.9e-5 < edge < 4.1e-5


def test_what_is_told_on_one_side_is_bounded_on_that_side() -> None:
    def value(x: np.ndarray) -> float:
        return -2.0 * math.exp(min(float(x[0]) - 1.0, 50.0))

    found = look(value, [POSITIVE], [-3.0], [[0.0]])
    assert not found.below
    assert found.low == 0.0
    # exp(x - 1) = 0.96 + exp(-4), where the evidence has fallen by 1.92.
    assert found.high == pytest.approx(math.e * 0.98, rel=0.6)
    assert found.high > math.e * 0.95


def test_a_second_optimum_with_another_sign_makes_nothing_flat() -> None:
    def value(x: np.ndarray) -> float:
        w = 0.01 * math.sinh(float(x[0]))
        return -0.5 * ((w * w - 4.0) / 0.1) ** 2

    start = math.asinh(200.0)
    found = look(value, [EITHER], [start], [[(4.0 / 0.1 * 2.0) ** 2]])
    assert found.below
    assert found.above
    assert 1.8 < found.low < 2.0 < found.high < 2.2


def test_wide_intervals_at_other_levels_end_at_infinity_and_not_in_an_error() -> None:
    wide = Verdict(True, "", "profile", (1e-250, 1e250))
    low, high = wide.interval_at(1.0, 0.99) or (1.0, 1.0)
    assert 0.0 <= low < 1e-300
    assert high == math.inf
    half = wide.interval_at(1.0, 0.5) or (1.0, 1.0)
    assert math.log10(half[1]) == pytest.approx(86.0, abs=0.1)
    assert math.log10(half[0]) == pytest.approx(-86.0, abs=0.1)
