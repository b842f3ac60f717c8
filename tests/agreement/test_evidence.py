"""Evidence and gradient agree with mpmath at 50 digits and with finite differences, on every catalog system."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from lodekit.inference.dense.engine import DenseEngine, factorize_covariance
from tests.inference.fitted import EXAMPLES, EXTRA, gradient_vector, make_case, shifted, witness_of

CASES = [*EXAMPLES, *EXTRA]


@pytest.mark.parametrize("name", CASES)
def test_evidence_agrees_with_fifty_digits(name: str) -> None:
    """Tolerance: rounding 2e-16 times the condition number of K (noise of 20 % keeps it below 1e5), times the size."""
    _, data, _, hyper = make_case(name, count=4)
    found = factorize_covariance(data, hyper)
    assert found is not None
    expected = witness_of(name, data).evidence(hyper)
    assert found.value + data.log_jacobian == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_gradient_agrees_with_finite_differences_where_values_are_missing(name: str) -> None:
    """Tolerance: central differences of fourth order with step 1e-3 err by about 1e-10 in rounding and truncation,
    relative to the largest entry; systems with eighth derivatives lose three digits more."""
    _, data, _, hyper = make_case(name, missing=True)
    found = gradient_vector(DenseEngine(data).evaluate(hyper))
    expected = np.zeros_like(found)
    for k in range(len(found)):
        size = 1e-3 * (abs(hyper.theta[k]) if k < len(hyper.theta) else 1.0)
        values = [DenseEngine(data).evaluate(shifted(hyper, k, f * size)).value for f in (-2, -1, 1, 2)]
        expected[k] = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * size)
    weights = np.concatenate([np.maximum(np.abs(hyper.theta), 1e-9), np.ones(len(found) - len(hyper.theta))])
    np.testing.assert_allclose(
        found * weights, expected * weights, rtol=1e-6, atol=1e-7 * np.abs(found * weights).max()
    )


@pytest.mark.parametrize("latent", ["matern-9/2", "matern-21/2"])
@pytest.mark.parametrize("name", ["heating", "rlc_circuit", "three_tank"])
def test_matern_gradients_agree_with_finite_differences(name: str, latent: str) -> None:
    _, data, _, hyper = make_case(name, latent=latent, noise="channel")
    found = gradient_vector(DenseEngine(data).evaluate(hyper))
    for k in range(len(found)):
        values = [DenseEngine(data).evaluate(shifted(hyper, k, f * 1e-3)).value for f in (-2, -1, 1, 2)]
        expected = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / 12e-3
        assert found[k] == pytest.approx(expected, rel=1e-6, abs=1e-6 * np.abs(found).max())


@pytest.mark.parametrize("name", CASES)
def test_gradient_agrees_with_fifty_digits(name: str) -> None:
    """Differences of the witness over a step of 1e-6, at 50 digits: no cancellation, truncation about 1e-11.

    The particular solution enters in floats, which adds rounding over the step, about 1e-9.
    """
    _, data, _, hyper = make_case(name, count=2)
    found, witness = gradient_vector(DenseEngine(data).evaluate(hyper)), witness_of(name, data)
    expected, weights = np.zeros_like(found), np.ones_like(found)
    for k in range(len(found)):
        is_parameter = k < len(hyper.theta)
        size = 1e-6 * (abs(hyper.theta[k]) if is_parameter else 1.0)
        ends = [shifted(hyper, k, size), shifted(hyper, k, -size)]
        # The step as floats have it: parameters move plainly, all else in logarithm.
        high, low = (mpmath.mpf(np.concatenate(end.arrays)[k]) for end in ends)
        with mpmath.workdps(50):
            width = high - low if is_parameter else mpmath.log(high / low)
            expected[k] = float((witness.exact_evidence(ends[0]) - witness.exact_evidence(ends[1])) / width)
        if is_parameter:
            weights[k] = max(abs(hyper.theta[k]), 1e-9)
    np.testing.assert_allclose(
        found * weights, expected * weights, rtol=1e-7, atol=1e-8 * np.abs(found * weights).max()
    )
