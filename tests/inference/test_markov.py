"""Parts of the Markov engine by themselves: steps of noisy systems, blocks that are alike, how long these are."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import lodekit as lk
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements
from lodekit.inference.kalman import blocks
from lodekit.inference.kalman.block_reduction import orthonormalize
from lodekit.inference.kalman.blocks import KalmanData, pad_to_cache_line, partition_times, reduce_block_length
from lodekit.inference.kalman.discretize import ProcessDiscretization
from lodekit.inference.kalman.irregular import IrregularBlocks, aligned_empty
from lodekit.inference.kalman.state_space import build_state_space_model
from lodekit.prior.prior import Hyperparameters
from tests.inference.fitted import prior_of
from tests.prior.input_response.exact import exponential

#: A fast and a slow state that are coupled, an integrator driven by both, complex roots.
F = np.array([[-40.0, 1.0, 0.0, 0.0], [0.5, -0.3, 2.0, 0.0], [0.0, -2.0, -0.1, 0.0], [1.0, 0.2, 0.0, 0.0]])
B = np.outer([1.0, 0.0, 0.5, 0.0], [1.0, 0.0, 0.5, 0.0])


def exact(length: float) -> tuple[np.ndarray, np.ndarray]:
    """Transition and noise by Van Loan's block exponential, in so many digits that nothing overflows."""
    size = len(F)
    with mpmath.workdps(300):
        block = mpmath.zeros(2 * size)
        for i in range(size):
            for j in range(size):
                block[i, j], block[size + i, size + j] = -mpmath.mpf(F[i, j]), mpmath.mpf(F[j, i])
                block[i, size + j] = mpmath.mpf(B[i, j])
        whole = exponential(block * mpmath.mpf(length))
        Phi = whole[size:, size:].T
        Q = Phi * whole[:size, size:]
        return tuple(np.array(part.tolist(), dtype=float) for part in (Phi, Q))  # type: ignore[return-value]


@pytest.mark.parametrize("length", [1e-6, 0.003, 0.7, 12.0])
def test_steps_are_those_of_many_digits(length: float) -> None:
    """Tolerance: every entry by itself for short steps, where the noise of an integrator begins with their cube."""
    steps = ProcessDiscretization(F, B, np.array([0.0, length]))
    Phi, Q = exact(length)
    sizes = np.sqrt(np.outer(np.diag(Q), np.diag(Q)))
    np.testing.assert_allclose(steps.Phi[1], Phi, rtol=1e-12, atol=1e-14)
    assert (np.abs(steps.Q[1] - Q) <= 3e-14 * sizes).all()
    np.testing.assert_array_equal(steps.Phi[0], np.eye(4))
    assert not steps.Q[0].any()


def test_derivatives_of_steps_are_those_of_differences() -> None:
    """Tolerance: central differences with steps of 1e-6 err by about 1e-9 of the largest entry."""
    generator, lengths = np.random.default_rng(0), np.array([0.01, 0.3, 4.0])
    weights, others = generator.standard_normal((2, 3, 4, 4))
    others = others + others.swapaxes(-1, -2)

    def value(matrix: np.ndarray, density: np.ndarray) -> float:
        found = ProcessDiscretization(matrix, density, lengths)
        return float(np.sum(weights * found.Phi) + np.sum(others * found.Q))

    in_F, in_B = ProcessDiscretization(F, B, lengths).vjp(weights, others)
    direction = generator.standard_normal((4, 4))
    symmetric = direction + direction.T
    by_F = (value(F + 1e-6 * direction, B) - value(F - 1e-6 * direction, B)) / 2e-6
    by_B = (value(F, B + 1e-6 * symmetric) - value(F, B - 1e-6 * symmetric)) / 2e-6
    assert np.sum(in_F * direction) == pytest.approx(by_F, rel=1e-7)
    assert np.sum(in_B * symmetric) == pytest.approx(by_B, rel=1e-7)


def test_blocks_that_are_alike_have_one_pattern() -> None:
    """A gap and a missing value make patterns of their own; other noise, too; what follows is regular again."""
    times = np.delete(np.arange(101) * 0.01, 37)
    observed = np.zeros((100, 1), dtype=np.intp)
    rows, kinds = np.arange(100)[:, None], np.zeros((100, 1), dtype=np.intp)
    observed[52], rows[52], kinds[71] = -1, -1, 1
    layout = partition_times(times, observed, rows, kinds, 10, 1e-15)
    shared = np.bincount(layout.patterns).max()
    # Blocks 3, 5 and 7 are special, and the last one ends nowhere.
    assert (layout.n_blocks, shared, len(np.unique(layout.patterns))) == (10, 6, 5)
    assert (layout.measurement_index >= 0).sum(axis=(1, 2)).tolist() == [10, 10, 10, 10, 10, 9, 10, 10, 10, 10]
    values = np.random.default_rng(0).standard_normal(100)
    values[52] = 0.0
    np.testing.assert_array_equal(layout.from_blocks(layout.to_blocks(values[:, None], 0.0), 100)[:, 0], values)


def test_shorter_blocks_are_shorter_where_usual_ones_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where blocks share nothing they are some times as long; a fourth of that is no name for them."""
    monkeypatch.setattr(blocks, "_MIN_IRREGULAR_BLOCKS", 2)
    monkeypatch.setattr(blocks, "_MAX_BLOCK_LENGTHENING", 4)
    times = np.sort(np.random.default_rng(0).uniform(0.0, 1.0, 400))
    series = [TimeSeries(name, times, np.sin(times), np.full(400, 0.1)) for name in "xu"]
    data = KalmanData.from_series(prior_of(lk.System("x' + x = u"), Measurements(series), latent="matern-5/2"), series)
    own, places = data.layout(), []
    for _ in range(4):
        places.append(own.rows_per_block)
        own = data.layout(reduce_block_length(own, data.size, 1.0, 1.0))
    assert places == [48, 12, 3, 1]


def test_blocks_side_by_side_begin_with_lines_of_the_cache() -> None:
    """Whatever else is in memory: 64 bytes, and so does each row, as there are so many blocks."""
    found = [aligned_empty(3, len(pad_to_cache_line(np.zeros(count)))) for count in (1, 8, 13, 781)]
    assert [part.shape[1] for part in found] == [8, 8, 16, 784]
    addresses = [row.__array_interface__["data"][0] for part in found for row in part]
    assert not any(address % 64 for address in addresses)


@pytest.mark.parametrize("exact_at", [None, 16, 17])
def test_what_rounding_does_to_values_is_known_without_a_basis(exact_at: int | None) -> None:
    """The log evidence alone has none. An exact value is huge in units of its noise, what is left of it is not.

    Tolerance: some places stand for all, and four times an exact value for itself.
    """
    times = np.sort(np.random.default_rng(0).uniform(0.0, 3.0, 1600))
    values = np.sin(times) + 0.1 * np.random.default_rng(1).standard_normal(1600)
    noise = np.full(1600, 0.1)
    if exact_at is not None:
        noise[exact_at] = 1e-7
    series = [TimeSeries("x", times, values, noise)]
    prior = prior_of(lk.System("x' = u"), Measurements(series), latent="matern-3/2")
    hyper = Hyperparameters(
        np.zeros(0), np.full(1, 0.3), np.ones(1), np.ones(len(prior.groups)), np.zeros(prior.noise.n_levels)
    )
    data = KalmanData.from_series(prior, series)
    space, layout = build_state_space_model(prior, hyper, prior.observables.evaluate(hyper.theta)), data.layout(20)
    y = layout.to_blocks(data.values, 0.0)[:, :, None]
    alone = IrregularBlocks(space, layout, 0, data.noise.variance(hyper.noise_std), y)
    estimate, rest = alone.residual_error, alone.residual_ss[:, 0]
    z = alone.whitened_H_and_z[:, :, -1].reshape(-1, len(rest)).T
    left = (alone.orthogonal_factor[:, :, -1] * alone.triangular_factor[:, -1:, -1])[:, : z.shape[1]]
    np.testing.assert_allclose(np.sum(left**2, axis=1), rest, rtol=1e-12)
    assert 0.3 < estimate / np.sum((left * z) ** 2) < 4.5


@pytest.mark.parametrize("place", [0, 1, 7, 29])
def test_a_large_row_takes_no_digits_from_small_ones(place: int) -> None:
    """Exact values are rows that are a thousand million times as large as others, wherever they stand.

    Tolerance: rounding, of each row by itself; 1e-7 and more where reflections begin with a small row.
    """
    design = np.random.default_rng(place).standard_normal((1, 30, 4))
    design[0, place] *= 1e9
    basis, told = orthonormalize(design)
    errors = np.abs(basis @ told - design)[0].max(axis=1) / np.abs(design)[0].max(axis=1)
    assert errors.max() < 1e-13
