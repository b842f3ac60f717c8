"""Sums over the data: they add, move to other windows, and stand for the data themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import lodekit as lk
from lodekit.data.observations import TimeSeries, concatenate_series
from lodekit.data.statistics import Statistics, chebyshev_nodes, cosine_transform, quadrature_from_moments
from tests.data.sums import assert_same


def make_series(
    name: str, count: int, seed: int, low: float = 2.0, high: float = 5.0, *, known: bool = False
) -> TimeSeries:
    generator = np.random.default_rng(seed)
    std = generator.uniform(0.1, 2.0, count) if known else np.full(count, np.nan)
    return TimeSeries(name, generator.uniform(low, high, count), generator.standard_normal(count), std)


@pytest.mark.parametrize("count", [30, 5000])
def test_cosine_sums_are_the_sums_of_cosines(count: int) -> None:
    generator = np.random.default_rng(0)
    angles, strengths = generator.uniform(0, np.pi, count), generator.standard_normal((3, count))
    direct = np.cos(np.outer(np.arange(101), angles)) @ strengths.T
    np.testing.assert_allclose(cosine_transform(angles, list(strengths), 100), direct.T, rtol=0, atol=1e-12 * count)


@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 10))
@settings(max_examples=25, deadline=None)
def test_parts_add_to_the_whole(first: int, second: int, seed: int) -> None:
    parts = [make_series("x", first, seed), make_series("x", second, seed + 100)]
    whole = Statistics.of(2.0, 5.0, [concatenate_series(parts)], degree=64)
    total = Statistics.of(2.0, 5.0, parts[:1], degree=64) + Statistics.of(2.0, 5.0, parts[1:], degree=64)
    assert_same(total, whole, 1e-12)
    assert_same(whole + Statistics.empty(2.0, 5.0), whole, 1e-12)
    other = Statistics.of(2.0, 5.0, parts[1:], degree=64) + Statistics.of(2.0, 5.0, parts[:1], degree=64)
    assert_same(total, other, 1e-12)


def test_channels_that_share_times_are_summed_as_one_by_one() -> None:
    one = make_series("x", 900, 0)
    two = TimeSeries("y", one.times, np.sin(one.times), one.std)
    three = TimeSeries("z", one.times, np.cos(one.times), np.where(one.values > 0, 0.3, np.nan))
    together = Statistics.of(2.0, 5.0, [one, two, three])
    assert set(together.cells) == {("x", False), ("y", False), ("z", False), ("z", True)}
    assert together.size == 2700
    for item in (one, two, three):
        alone = Statistics.of(2.0, 5.0, [item])
        own = {key: cell for key, cell in together.cells.items() if key[0] == item.observable}
        assert_same(Statistics(2.0, 5.0, own), alone, 1e-12)


def test_a_wider_window_keeps_every_polynomial() -> None:
    part = make_series("x", 700, 1, known=True)
    direct = Statistics.of(0.0, 9.0, [part], degree=80)
    moved = Statistics.of(2.0, 5.0, [part], degree=80).over(0.0, 9.0)
    for key, cell in direct.cells.items():
        size = float(cell.weight_moments[0])
        np.testing.assert_allclose(moved.cells[key].weight_moments, cell.weight_moments, rtol=0, atol=1e-11 * size)
        np.testing.assert_allclose(
            moved.cells[key].with_reference(cell.reference).value_moments, cell.value_moments, rtol=0, atol=1e-11 * size
        )
    with pytest.raises(lk.LodekitError, match="window around"):
        direct.over(1.0, 9.0)


def test_parts_of_different_windows_add() -> None:
    early, late = make_series("x", 600, 2, 0.0, 1.0), make_series("x", 500, 3, 0.5, 4.0)
    total = Statistics.of(0.0, 1.0, [early]) + Statistics.of(0.5, 4.0, [late])
    assert (total.start, total.stop) == (0.0, 4.0)
    whole = Statistics.of(0.0, 4.0, [concatenate_series([early, late])])
    for name in ("weight_moments", "value_moments"):
        a, b = (getattr(item.cells["x", False].with_reference(0.0), name) for item in (total, whole))
        # What the short window resolves, the long one does: half the degree is beyond doubt.
        np.testing.assert_allclose(a[:500], b[:500], rtol=0, atol=1e-9)


def test_nodes_stand_for_the_data() -> None:
    part = make_series("x", 3000, 4)
    cell = Statistics.of(2.0, 5.0, [part]).cells["x", False]
    x = (part.times - 2.0) / 1.5 - 1.0

    def wave(x: np.ndarray) -> np.ndarray:
        return np.exp(-2.0 * x) * np.cos(150.0 * x + 0.3)

    nodes, weights = quadrature_from_moments(cell.weight_moments, 300)
    assert weights @ wave(nodes) == pytest.approx(np.sum(wave(x)), abs=1e-9)
    nodes, weights = quadrature_from_moments(cell.with_reference(0.0).value_moments, 300)
    assert weights @ wave(nodes) == pytest.approx(np.sum(part.values * wave(x)), abs=1e-9)
    np.testing.assert_allclose(np.cos(3 * np.arccos(chebyshev_nodes(3))), 0.0, atol=1e-12)


def test_a_large_offset_costs_no_digits() -> None:
    part = make_series("x", 3000, 7)
    moved = TimeSeries("x", part.times, part.values + 1e9, part.std)
    plain, far = (Statistics.of(2.0, 5.0, [item]).cells["x", False] for item in (part, moved))
    assert far.with_reference(far.reference).sum_of_squares == pytest.approx(
        plain.with_reference(far.reference - 1e9).sum_of_squares, rel=1e-6
    )
    np.testing.assert_allclose(
        far.value_moments, plain.with_reference(far.reference - 1e9).value_moments, rtol=0, atol=1e-3
    )


def test_a_thumbnail_averages_neighbours() -> None:
    times = np.linspace(0.0, 1.0, 200_001)
    found = Statistics.of(
        0.0, 1.0, [TimeSeries("x", times, np.sin(5 * times), np.full(len(times), np.nan))]
    ).thumbnail()
    assert len(found) == 1
    assert 400 < len(found[0].times) <= 512
    np.testing.assert_allclose(found[0].values, np.sin(5 * found[0].times), atol=1e-4)


def test_arrays_hold_everything() -> None:
    sums = Statistics.of(2.0, 5.0, [make_series("x", 50, 5), make_series("y'", 40, 6, known=True)])
    again = Statistics.from_arrays([sums.start, sums.stop], [list(key) for key in sums.cells], sums.arrays())
    assert_same(again, sums, 0.0)


def test_what_cannot_be_summed_is_refused() -> None:
    part = make_series("x", 10, 0)
    with pytest.raises(lk.LodekitError, match="expected times between"):
        Statistics.of(2.5, 3.0, [part])
    with pytest.raises(lk.LodekitError, match="start < stop"):
        Statistics.of(2.5, 2.5, [part])
    with pytest.raises(lk.LodekitError, match="above zero"):
        Statistics.of(2.0, 5.0, [TimeSeries("x", part.times, part.values, np.zeros(10))])
    with pytest.raises(lk.LodekitError, match="polynomials of one degree, got 64 and 32"):
        Statistics.of(2.0, 5.0, [part], degree=64) + Statistics.of(2.0, 5.0, [part], degree=32)
    with pytest.raises(lk.LodekitError, match="expected degree as a whole number"):
        Statistics.of(2.0, 5.0, [part], degree=0)
    for wrong in ({"x": part}, 7.0):
        with pytest.raises(lk.LodekitError, match=r"expected Observations, or series of measurements, got (str|float)"):
            Statistics.of(2.0, 5.0, wrong)  # type: ignore[arg-type]
