"""Derivatives from values alone: right to what they claim, for smooth, fast and broken curves."""

from __future__ import annotations

import numpy as np
import pytest

from lodekit.results.equation_residuals import EquationEvaluator, compute_curve_residuals, split_time_axis
from lodekit.system.grammar import parse_equations


@pytest.mark.parametrize("length", [3.0, 1.0, 0.25])
def test_derivatives_of_a_wave(length: float) -> None:
    times = np.linspace(-2.0, 5.0, 23)
    pieces = split_time_axis(times, length)
    values = np.stack([np.sin(3 * pieces.nodes), np.cos(pieces.nodes)], axis=-1)[None]
    rough, fine = pieces.derivatives(values, 3)
    exact = [
        np.stack([3**k * np.sin(3 * times + 0.5 * np.pi * k), np.cos(times + 0.5 * np.pi * k)], axis=-1)
        for k in range(4)
    ]
    for k in range(4):
        # Each order costs a few times the degree over the length; values and nodes round at some 1e-15.
        bound = 2e-14 * (100.0 / length) ** k
        assert np.abs(fine[k, 0] - exact[k]).max() < bound
        # On the longest pieces a degree of 20 is too low, which must show beside the other.
        missed = np.abs(rough[k, 0] - exact[k]).max()
        assert 1e-7 < missed < 1e-2 if length == 3.0 else missed < bound


def test_the_difference_of_both_shows_the_error() -> None:
    """A curve that is too fast for the pieces, and one that is noisy: the two polynomials disagree as they err."""
    times, generator = np.linspace(0.0, 1.0, 11), np.random.default_rng(0)
    for speed, noise in ((120.0, 0.0), (3.0, 1e-7)):
        pieces = split_time_axis(times, 0.5)
        values = np.sin(speed * pieces.nodes) + noise * generator.standard_normal(len(pieces.nodes))
        rough, fine = pieces.derivatives(values[None, :, None], 1)
        error = np.abs(fine[1, 0, :, 0] - speed * np.cos(speed * times)).max()
        apart = np.abs(fine - rough)[1].max()
        assert 0.1 * error < apart < 30 * error


def test_no_piece_crosses_a_break() -> None:
    """The absolute value has exact derivatives on both sides of its kink."""
    times = np.array([-1.0, -0.3, -1e-3, 1e-3, 0.5, 2.0])
    pieces = split_time_axis(times, 0.7, [0.0, 1.0])
    assert not ((pieces.low < 0.0) & (pieces.high > 0.0)).any()
    assert ((pieces.low[pieces.piece_index] <= times) & (times <= pieces.high[pieces.piece_index])).all()
    _, fine = pieces.derivatives(np.abs(pieces.nodes)[None, :, None], 1)
    np.testing.assert_allclose(fine[1, 0, :, 0], np.sign(times), rtol=0, atol=1e-11)


def test_the_two_sets_of_nodes_share_no_time() -> None:
    nodes = split_time_axis(np.array([0.0, 1.0]), 2.0).nodes
    assert np.diff(np.sort(nodes)).min() > 1e-6


def test_pieces_that_breaks_make_are_asked_for_once() -> None:
    """Halves of a length that is longer than them are the same pieces; the last ones, behind all breaks, are not."""
    written = EquationEvaluator(parse_equations("x' = v"), ["x", "v"], {})
    times, breaks, asked = np.linspace(0.0, 1.2, 50), np.linspace(0.0, 1.0, 21), list[np.ndarray]()

    def curve(at: np.ndarray) -> np.ndarray:
        asked.append(at)
        return np.stack([np.sin(7 * at), 7 * np.cos(7 * at) + 0.1 * np.sin(3 * at)], axis=1)

    found = compute_curve_residuals(written, curve, times, 8.0, breaks)
    # Values of pieces that were known are at their places: what is left over is what was added.
    slope = 7 * np.cos(7 * times)
    left = np.abs(0.1 * np.sin(3 * times))
    scale = np.max(np.abs(slope) + np.abs(slope + 0.1 * np.sin(3 * times)))
    np.testing.assert_allclose(found.residuals[:, 0], left / scale, atol=1e-9)
    first, *others = asked
    assert len(others) > 6
    assert max(map(len, others[:5])) < 0.5 * len(first)


def test_pieces_are_halved_until_rounding_errors_dominate() -> None:
    """Shorter pieces are not tried after that: they are the most, and the curve is evaluated at all of their nodes."""
    written = EquationEvaluator(parse_equations("x' = v"), ["x", "v"], {})
    sizes = list[int]()

    def curve(at: np.ndarray) -> np.ndarray:
        sizes.append(len(at))
        return np.stack([np.sin(at), np.cos(at)], axis=1)

    times = np.linspace(0.0, 20.0, 201)
    found = compute_curve_residuals(written, curve, times, 16.0, np.zeros(0))
    assert found.uncertainty < 1e-12
    # The best length is found after about four halvings; errors grow by two with each further one.
    assert 4 <= len(sizes) <= 11
