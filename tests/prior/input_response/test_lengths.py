"""Equal steps are made once, different ones are interpolated, and both are exponentials with their derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm, expm_frechet as frechet_derivative

from lodekit.prior.expm import expm_frechet
from lodekit.prior.input_response.hold import HoldDiscretization, StepTable, UniqueSteps


def test_exponentials_and_their_derivatives_agree_with_scipy() -> None:
    generator = np.random.default_rng(0)
    matrices = generator.standard_normal((5, 4, 4)) * np.array([0.0, 1e-6, 0.1, 1.0, 4.0])[:, None, None]
    slopes = generator.standard_normal((2, 5, 4, 4))
    found, changes = expm_frechet(matrices, slopes)
    for k, matrix in enumerate(matrices):
        expected = expm(matrix)
        np.testing.assert_allclose(found[k], expected, rtol=0, atol=1e-12 * np.abs(expected).max())
        for p in range(2):
            change = frechet_derivative(matrix, slopes[p, k], compute_expm=False)
            np.testing.assert_allclose(changes[p, k], change, rtol=0, atol=1e-12 * np.abs(change).max())


@pytest.mark.parametrize("fast", [0.5, 50.0, 1e6])
@pytest.mark.parametrize("count", [5, 49, 60, 100, 300, 4000])
def test_steps_of_many_lengths_are_exact_and_so_are_their_derivatives(fast: float, count: int) -> None:
    generator = np.random.default_rng(1)
    F, G = np.array([[-fast, 1.0], [-1.0, -0.1]]), generator.standard_normal((2, 1))
    d_F, d_G = generator.standard_normal((2, 2, 2)), generator.standard_normal((2, 2, 1))
    lengths = UniqueSteps.from_steps(generator.uniform(0.0, 3.0, count), 1e-16)
    steps = HoldDiscretization(F, G, 2)
    table = StepTable(steps, lengths)
    exact, changes = steps.discretize(lengths.distinct, (d_F, d_G))
    tolerance = 1e-13 * max(1.0, fast / 50)
    np.testing.assert_allclose(table.matrices, exact, rtol=0, atol=tolerance)
    np.testing.assert_allclose(table.jacobian(d_F, d_G), changes, rtol=0, atol=30 * tolerance)
    weights = generator.standard_normal(exact.shape)
    of_F, of_G = table.vjp(weights)
    expected = np.einsum("uij,puij->p", weights, changes)
    found = np.tensordot(d_F, of_F, axes=2) + np.tensordot(d_G, of_G, axes=2)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_lengths_that_differ_by_rounding_are_one() -> None:
    times = 0.1 * np.arange(1000)
    assert len(UniqueSteps.from_steps(np.diff(times), 1e-13).distinct) == 1
    with_gaps = np.delete(times, [10, 500, 501])
    found = UniqueSteps.from_steps(np.diff(with_gaps), 1e-13)
    np.testing.assert_allclose(found.distinct, [0.1, 0.2, 0.3], rtol=1e-12)
    np.testing.assert_allclose(found.distinct[found.index], np.diff(with_gaps), atol=1e-13)
    assert UniqueSteps.from_steps(np.linspace(0.0, 1.0, 100), 0.05).all_distinct


@pytest.mark.parametrize("kinds", [1, 4, 90, 500])
def test_products_and_sums_over_steps_are_those_of_a_loop(kinds: int) -> None:
    generator = np.random.default_rng(0)
    which = np.arange(500) if kinds == 500 else generator.permutation(np.arange(500) % kinds)
    lengths = UniqueSteps(np.arange(kinds, dtype=float), which)
    matrices, left, right = (generator.standard_normal(shape) for shape in ((2, kinds, 3, 2), (500, 3), (500, 2)))
    expected = np.stack([[each[which[i]] @ right[i] for i in range(500)] for each in matrices])
    np.testing.assert_allclose(lengths.apply(matrices, right), expected, atol=1e-13)
    sums = np.zeros((kinds, 3, 2))
    for i in range(500):
        sums[which[i]] += np.outer(left[i], right[i])
    np.testing.assert_allclose(lengths.sum_outer_products(left, right), sums, atol=1e-12)
