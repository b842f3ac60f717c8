"""Errors whose size changes: found where they do, followed as time goes on, and bands that hold what they say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from lodekit.learning.bands.unsteadiness import STEADY, Unsteadiness, find_spread, find_unsteadiness

Array = NDArray[np.float64]
T = np.arange(300.0)
#: Quiet nights, loud days.
LOUD = T // 12 % 2 == 0


def draw(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(len(T))


@pytest.fixture(scope="module")
def by_day() -> tuple[Array, Unsteadiness]:
    z = draw(1) * np.where(LOUD, 1.35, 0.42)
    return z, find_unsteadiness([T], [z])


def test_steady_errors_are_called_steady_even_with_heavy_tails() -> None:
    """At most one of a hundred is expected: three of forty are most unlikely."""
    heavy = np.random.default_rng(0).standard_t(6, (25, len(T)))
    found = [find_unsteadiness([T], [z]) is STEADY for z in (*heavy, *(draw(seed) for seed in range(15)))]
    assert sum(found) > 37
    assert find_unsteadiness([T[:20]], [5.0 * draw(0)[:20]]) is STEADY


def test_days_and_nights_are_followed(by_day: tuple[Array, Unsteadiness]) -> None:
    z, found = by_day
    assert found.gained > 20.0
    assert found.memory < 50.0
    before = np.concatenate([[1.0], found.follow(T, z)[:-1]])
    # In the middle of a day the size is that of days, in the middle of a night that of nights.
    middle = (T % 12 > 6) & (T % 12 < 11)
    assert np.median(before[LOUD & middle]) > 2.0 * np.median(before[~LOUD & middle])


def test_sizes_follow_by_the_formula_at_any_times() -> None:
    t, z = np.array([0.0, 0.5, 3.0]), np.array([2.0, 0.0, 1.0])
    found = Unsteadiness(gain=0.4, memory=2.0, level=4.0).follow(t, z)
    first = 1.0 + 0.4 * (1.0 - 1.0)
    second = (1.0 - 0.4) * (1.0 + np.exp(-0.25) * (first - 1.0))
    expected = 1.0 + np.exp(-1.25) * (second - 1.0)
    expected += 0.4 * (0.25 - expected)
    assert found.tolist() == pytest.approx([first, second, expected])


def test_bands_that_follow_hold_what_they_say_by_day(by_day: tuple[Array, Unsteadiness]) -> None:
    """Learned from one record, tried on the next ones: by day a band of one size holds far too few."""
    z, found = by_day

    def sizes(values: Array) -> Array:
        return np.concatenate([[1.0], found.follow(T, values)[:-1]])

    spread = find_spread(z, sizes(z))
    assert spread.carried > 0.5
    later = [draw(seed) * np.where(LOUD, 1.35, 0.42) for seed in range(10, 20)]
    inside = np.array([np.abs(own) <= 1.96 * spread.factors(sizes(own)) for own in later])
    fixed = np.array([np.abs(own) <= 1.96 for own in later])
    assert 0.92 < inside.mean() < 0.98
    assert inside[:, LOUD].mean() > fixed[:, LOUD].mean() + 0.02


def test_bands_are_widened_to_hold_what_they_held_too_little_of() -> None:
    """Nineteen of twenty are inside, as in conformal prediction; nothing is made narrower, or told by few."""
    heavy = 1.3 * draw(2)
    spread = find_spread(heavy, np.ones(len(T)))
    assert spread.carried == 0.0
    assert np.sum(np.abs(heavy) <= 1.96 * spread.widening * (1 + 1e-9)) == np.ceil(0.95 * (len(T) + 1))
    assert find_spread(0.5 * heavy, np.ones(len(T))).widening == 1.0
    assert find_spread(9.0 * heavy[:20], np.ones(20)).widening == 1.0
    assert find_spread(np.where(T < 290, np.nan, 9.0), np.ones(len(T))).widening == 1.0


def test_far_ahead_the_size_of_today_says_nothing(by_day: tuple[Array, Unsteadiness]) -> None:
    z, found = by_day
    assert find_spread(draw(3), np.random.default_rng(4).permutation(found.follow(T, z))).carried < 0.3
