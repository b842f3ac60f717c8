"""Products of waves: operators turn them as complex numbers do, and what was made once is used again."""

from __future__ import annotations

import numpy as np

from lodekit.inference.spectral.nodes import NodeStatistics
from lodekit.inference.spectral.regression import apply_operator, compute_gram_matrices, to_fourier_amplitudes
from lodekit.prior.spectra import FourierFrequencies
from tests.inference.fitted import make_case


def test_waves_are_turned_by_complex_numbers() -> None:
    """``W(d) exp(i w t) = (a + i b) exp(i w t)``, and back by the conjugate; at frequency zero b is zero, too."""
    generator = np.random.default_rng(0)
    C, S = generator.standard_normal((2, 4, 3))
    a, b = generator.standard_normal((2, 4))
    b[0] = 0.0
    turned, back = ((a + sign * 1j * b)[:, None] * (C + 1j * S) for sign in (1.0, -1.0))
    rows = np.concatenate([C, S])
    np.testing.assert_allclose(apply_operator(rows.T, a, b).T, np.concatenate([turned.real, turned.imag]), rtol=1e-14)
    np.testing.assert_allclose(to_fourier_amplitudes(rows, a, b), np.concatenate([back.real, back.imag]), rtol=1e-14)


def test_sums_share_waves_on_the_same_nodes_and_products_with_the_same_weights() -> None:
    generator = np.random.default_rng(0)
    early, late, weights = (generator.uniform(0.1, 1.0, 5) for _ in range(3))
    data = generator.standard_normal((4, 5))
    # Other nodes with the same weights, then the first ones again, written anew; and with other weights.
    parts = [(early, weights), (1.0 + late, weights), (early.copy(), weights.copy()), (early, 2.0 * weights)]
    sums = [NodeStatistics(i, True, 5, 0.0, 1.0, nodes, w, data[i]) for i, (nodes, w) in enumerate(parts)]
    grams = compute_gram_matrices(FourierFrequencies((0.7,), (3,), (1.0,)), sums)
    assert [place for _, place, *_ in grams] == [0, 1, 0, 0]
    assert (len({id(basis) for _, _, basis, *_ in grams}), len({id(product) for *_, product, _ in grams})) == (2, 3)
    assert grams[2][3] is grams[0][3]
    for item, (_, _, basis, product, on_waves) in zip(sums, grams, strict=True):
        angles = [[0.7 * k * t for k in range(3)] for t in item.nodes]
        waves = np.array([[*np.cos(row), *np.sin(row)] for row in angles])
        np.testing.assert_allclose(basis, waves, rtol=1e-13)
        expected = sum(w * np.outer(row, row) for w, row in zip(item.weights, waves, strict=True))
        np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(
            on_waves, sum(y * row for y, row in zip(item.weighted_values, waves, strict=True)), rtol=1e-12
        )


def test_the_last_design_is_kept() -> None:
    _, data, _, hyper = make_case("three_tank", count=4)
    first = data.evaluate_design(hyper.theta, with_gradient=False)
    assert data.evaluate_design(hyper.theta.copy(), with_gradient=False) is first
    assert data.evaluate_design(hyper.theta, with_gradient=True) is not first
    _, data, _, hyper = make_case("heating", count=4)
    first = data.evaluate_design(hyper.theta, with_gradient=False)
    moved = data.evaluate_design(2.0 * hyper.theta, with_gradient=False)
    np.testing.assert_array_equal(moved[0].free, data.observables.evaluate(2.0 * hyper.theta).free)
    assert (moved[0].free != first[0].free).any()
