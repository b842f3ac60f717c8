"""Noise, known and learned: variances, their derivatives, and levels by the names that users know."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from lodekit.data.noise import MeasurementNoise, NoiseModel
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements

Array = NDArray[np.float64]
SCALES = np.array([2.0, 0.5])
#: Learned, known and exact values of x; learned values of y.
SERIES = [
    TimeSeries("x", np.arange(4.0), np.array([1.0, 2.0, 0.0, 3.0]), np.array([np.nan, 0.4, 0.0, np.nan])),
    TimeSeries("y", np.arange(2.0), np.array([1.0, 2.0]), np.array([np.nan, np.nan])),
]


def make(*, shared: bool) -> NoiseModel:
    return NoiseModel.from_statistics(Measurements(SERIES).observable_statistics, SCALES, shared=shared)


@pytest.mark.parametrize("shared", [False, True])
def test_variances_are_in_the_units_of_the_observables(shared: bool) -> None:
    noise = make(shared=shared)
    levels = np.array([0.3]) if shared else np.array([0.3, 0.1])
    other = levels[-1]
    # What is exact has a deviation of 1e-7 of the spread: no digits are lost, and no matrix is singular.
    expected = [0.3**2 / 4.0, 0.4**2 / 4.0, 1e-14, 0.3**2 / 4.0, other**2 / 0.25, other**2 / 0.25]
    own = MeasurementNoise.from_series(noise, SERIES)
    np.testing.assert_allclose(own.variance(levels), expected, rtol=1e-14)
    assert own.exact.tolist() == [False, False, True, False, False, False]
    assert noise.n_levels == len(levels)
    assert noise.variance(1, levels) == pytest.approx(other**2 / 0.25)
    assert noise.precision(1, levels, learned=True) == pytest.approx(0.25 / other**2)
    assert noise.precision(0, levels, learned=False) == 1.0
    assert [noise.level_index(1, learned=learned) for learned in (True, False)] == [0 if shared else 1, -1]


@pytest.mark.parametrize("shared", [False, True])
def test_the_pull_is_the_derivative_in_the_logarithms_of_the_levels(shared: bool) -> None:
    own = MeasurementNoise.from_series(make(shared=shared), SERIES)
    levels = np.array([0.3]) if shared else np.array([0.3, 0.1])
    slopes = np.random.default_rng(0).standard_normal(6)
    found = own.level_gradient(slopes, levels)
    assert found.shape == levels.shape
    for number in range(len(levels)):
        step = np.zeros(len(levels))
        step[number] = 1e-6
        above, below = (slopes @ own.variance(levels * np.exp(sign * step)) for sign in (1, -1))
        assert found[number] == pytest.approx((above - below) / 2e-6, rel=1e-7)


def test_where_all_noise_is_known_nothing_is_learned() -> None:
    series = [TimeSeries("x", np.arange(2.0), np.ones(2), np.array([0.2, 0.4]))]
    noise = NoiseModel.from_statistics(Measurements(series).observable_statistics, np.array([2.0]), shared=True)
    own = MeasurementNoise.from_series(noise, series)
    nothing = np.zeros(0)
    assert noise.n_levels == 0
    np.testing.assert_allclose(own.variance(nothing), [0.01, 0.04])
    assert own.level_gradient(np.ones(2), nothing).shape == (0,)
    assert noise.levels_by_name(nothing) == {}
    assert noise.transfer_levels(make(shared=True), np.array([0.3])).shape == (0,)


def test_levels_have_names() -> None:
    assert make(shared=True).levels_by_name(np.array([0.3])) == {"shared": 0.3}
    assert make(shared=False).levels_by_name(np.array([0.3, 0.1])) == {"x": 0.3, "y": 0.1}
    known = NoiseModel(False, ("x", "y"), (True, False), SCALES)
    assert known.levels_by_name(np.array([0.3, 0.1])) == {"x": 0.3}


def test_units_and_medians_are_those_of_each_level() -> None:
    assert make(shared=True).level_scales.tolist() == [0.5]
    assert make(shared=False).level_scales.tolist() == [2.0, 0.5]
    values = np.array([3.0, 1.0])
    assert make(shared=True).level_medians(values).tolist() == [2.0]
    assert make(shared=False).level_medians(values).tolist() == [3.0, 1.0]


def test_levels_are_carried_over_by_name_and_new_ones_start_at_a_tenth() -> None:
    old = NoiseModel(False, ("y", "x"), (True, True), np.ones(2))
    new = NoiseModel(False, ("x", "z", "y"), (True, True, True), np.array([2.0, 3.0, 0.5]))
    assert new.transfer_levels(old, np.array([0.7, 0.2])).tolist() == pytest.approx([0.2, 0.3, 0.7])
    shared = NoiseModel(True, ("x", "z"), (True, True), np.array([2.0, 3.0]))
    assert shared.transfer_levels(old, np.array([0.7, 0.2])).tolist() == [0.2]


def test_some_of_the_observables_keep_what_is_known_of_their_noise() -> None:
    some = NoiseModel(False, ("x", "y", "z"), (True, False, True), np.array([2.0, 3.0, 0.5]), ("z",)).restricted_to(
        ["z", "x"]
    )
    assert (some.observables, some.learned, some.scales.tolist()) == (("z", "x"), (True, True), [0.5, 2.0])
    # What is zero throughout is not searched for levels below a hundredth.
    assert some.min_levels.tolist() == pytest.approx([0.5e-2, 2e-6])
