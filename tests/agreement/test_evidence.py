"""Evidence and gradient agree with mpmath at 50 digits and with finite differences, on every catalog system."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from lodekit.inference.dense.data import DenseData
from lodekit.inference.dense.evidence import evaluate, factorize
from lodekit.prior.hyperparameters import Hyperparameters
from tests.inference.fitted import EXAMPLES, EXTRA, gradient_vector, make_case, shifted, system_of
from tests.witness import companion_modes

CASES = [*EXAMPLES, *EXTRA]


def hermite_stack(u: Any, order: int) -> list[Any]:
    """The derivatives of exp(-u^2/2), by the probabilists' Hermite polynomials of mpmath."""
    base = mpmath.exp(-u * u / 2)
    return [
        (-1) ** m * mpmath.hermite(m, u / mpmath.sqrt(2)) * mpmath.mpf(2) ** (-mpmath.mpf(m) / 2) * base
        for m in range(order + 1)
    ]


def exact_rows(name: str, theta: list[Any]) -> Any:
    """Evaluate free columns, mode columns, factors and particular solution from the exact algebra, in mpmath."""
    system, _ = system_of(name)
    ring, parametrization = system.operator.ring, system.parametrization

    def number(scalar: Any) -> Any:
        parts = []
        for element in (scalar.numerator, scalar.denominator):
            total = mpmath.mpf(0)
            for exponents, coefficient in ring.terms(element).items():
                term = mpmath.mpf(coefficient)
                for value, exponent in zip(theta, exponents, strict=True):
                    term *= value**exponent
                total += term
            parts.append(total)
        return parts[0] / parts[1]

    width = len(system.channels)
    free = [
        [[number(c) for c in parametrization.free.coefficients(i, j)] for j in range(parametrization.free.width)]
        for i in range(width)
    ]
    columns = [
        [[number(c) for c in mode.column.coefficients(i, 0)] for i in range(width)] for mode in parametrization.modes
    ]
    return free, columns, number


def reference_evidence(name: str, data: DenseData, hyper: Hyperparameters) -> Any:
    """The log evidence from scratch: covariance entry by entry and a Cholesky factorization, at 50 digits.

    Modes with parameters inside use mpmath's matrix exponential of the companion matrix, others exp and powers.
    """
    system, _ = system_of(name)
    theta = [mpmath.mpf(float(v)) for v in hyper.theta]
    free, columns, number = exact_rows(name, theta)
    start, span = mpmath.mpf(data.observables.units.start), mpmath.mpf(data.observables.units.span)
    points = [(o, mpmath.mpf(float(data.times[i]))) for o, index in enumerate(data.index) for i in index]
    scales = [mpmath.mpf(float(s)) for s in data.observables.units.scales]
    noise = [mpmath.mpf(float(v)) for v in data.noise.variance(hyper.noise)]
    basis = [[] for _ in points]  # type: list[list[Any]]
    for g, group in enumerate(data.groups):
        factor = data.observables.compiled.factors[group.factor]
        deviation = mpmath.mpf(float(hyper.mode_deviations[g]))
        annihilator = system.modes[group.factor].polynomial
        monic = [
            number_of(c, annihilator[-1], system, number) * span ** (len(annihilator) - 1 - k)
            for k, c in enumerate(annihilator)
        ]
        for row, (o, time) in enumerate(points):
            s = (time - start) / span
            operator = [c * span ** (-k) / scales[o] for k, c in enumerate(columns[factor.column][o])]
            basis[row] += [
                deviation * v for v in mode_values(monic, factor.multiplicity, group.root, span, operator, s)
            ]
    size = len(points)
    K = mpmath.matrix(size, size)
    for a, (i, t1) in enumerate(points):
        for b, (j, t2) in enumerate(points[: a + 1]):
            total = sum((x * y for x, y in zip(basis[a], basis[b], strict=True)), mpmath.mpf(0))
            for q in range(len(data.latents)):
                ell = mpmath.mpf(float(hyper.lengthscales[q])) * span
                sigma = mpmath.mpf(float(hyper.deviations[q]))
                first, second = free[i][q], free[j][q]
                if first and second:
                    stack = hermite_stack((t1 - t2) / ell, len(first) + len(second) - 2)
                    for m, c1 in enumerate(first):
                        for n, c2 in enumerate(second):
                            total += (
                                sigma**2 * (-1) ** n * c1 * c2 * stack[m + n] / ell ** (m + n) / scales[i] / scales[j]
                            )
            K[a, b] = K[b, a] = total
        K[a, a] += noise[a]
    L = mpmath.cholesky(K)
    residual = mpmath.matrix([mpmath.mpf(float(v)) for v in reference_residual(data, hyper)])
    z = mpmath.lu_solve(L, residual)
    half_log = sum(mpmath.log(L[k, k]) for k in range(size))
    scaled = -(z.T * z)[0] / 2 - half_log - size * mpmath.log(2 * mpmath.pi) / 2
    return scaled - sum(len(i) * mpmath.log(s) for i, s in zip(data.index, scales, strict=True))


def number_of(element: Any, leading: Any, system: Any, number: Any) -> Any:
    from lodekit.algebra.scalars import Scalar

    return number(Scalar(system.operator.ring, element, leading))


def mode_values(
    factor: list[Any], multiplicity: int, root: complex | None, span: Any, operator: list[Any], s: Any
) -> list[Any]:
    """W(d) applied to the basis functions at scaled time s, by differentiating Taylor coefficients with mpmath."""
    if root is not None:
        # The float root is the model's own; accuracy of roots has tests of its own.
        exponent = mpmath.mpc(root) * span
        origin = 0 if exponent.real <= 0 else 1
        values = []
        for k in range(multiplicity):

            def function(x: Any, k: int = k) -> Any:
                return (x - origin) ** k * mpmath.exp(exponent * (x - origin))

            derivatives = [mpmath.diff(function, s, n) for n in range(len(operator))]
            total = sum((c * v for c, v in zip(operator, derivatives, strict=True)), mpmath.mpc(0))
            values += [total.real] + ([total.imag] if root.imag else [])
        return values
    return companion_modes(factor, multiplicity, operator, s)


def reference_residual(data: DenseData, hyper: Hyperparameters) -> list[float]:
    """Data minus particular solution; the solution itself is tested exactly elsewhere."""
    rows = data.observables.evaluate(hyper.theta)
    means, _ = data.observables.means(rows, data.times)
    return [
        float(v - m[i])
        for values, m, index in zip(np.split(data.values, data.edges[1:-1]), means, data.index, strict=True)
        for v, i in zip(values, index, strict=True)
    ]


@pytest.mark.parametrize("name", CASES)
def test_evidence_agrees_with_fifty_digits(name: str) -> None:
    """Tolerance: rounding 2e-16 times the condition number of K (noise of 20 % keeps it below 1e5), times the size."""
    _, data, _, hyper = make_case(name, count=4)
    with mpmath.workdps(50):
        expected = float(reference_evidence(name, data, hyper))
    found = factorize(data, hyper)
    assert found is not None
    assert found.value + data.log_jacobian == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gradient_agrees_with_finite_differences(name: str, missing: bool) -> None:
    """Tolerance: central differences of fourth order with step 1e-3 err by about 1e-10 in rounding and truncation,
    relative to the largest entry; systems with eighth derivatives lose three digits more."""
    _, data, _, hyper = make_case(name, missing=missing)
    found = gradient_vector(evaluate(data, hyper))
    expected = np.zeros_like(found)
    for k in range(len(found)):
        size = 1e-3 * (abs(hyper.theta[k]) if k < len(hyper.theta) else 1.0)
        values = [evaluate(data, shifted(hyper, k, f * size)).value for f in (-2, -1, 1, 2)]
        expected[k] = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * size)
    weights = np.concatenate([np.maximum(np.abs(hyper.theta), 1e-9), np.ones(len(found) - len(hyper.theta))])
    np.testing.assert_allclose(
        found * weights, expected * weights, rtol=1e-6, atol=1e-7 * np.abs(found * weights).max()
    )


@pytest.mark.parametrize("latent", ["matern-9/2", "matern-21/2"])
@pytest.mark.parametrize("name", ["heating", "rlc_circuit", "three_tank"])
def test_matern_gradients_agree_with_finite_differences(name: str, latent: str) -> None:
    _, data, _, hyper = make_case(name, latent=latent, noise="channel")
    found = gradient_vector(evaluate(data, hyper))
    for k in range(len(found)):
        values = [evaluate(data, shifted(hyper, k, f * 1e-3)).value for f in (-2, -1, 1, 2)]
        expected = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / 12e-3
        assert found[k] == pytest.approx(expected, rel=1e-6, abs=1e-6 * np.abs(found).max())


@pytest.mark.parametrize("name", CASES)
def test_gradient_agrees_with_fifty_digits(name: str) -> None:
    """Differences of the reference over a step of 1e-6, at 50 digits: no cancellation, truncation about 1e-11.

    The particular solution enters in floats, which adds rounding over the step, about 1e-9.
    """
    _, data, _, hyper = make_case(name, count=2)
    found = gradient_vector(evaluate(data, hyper))
    expected = np.zeros_like(found)
    flat = np.concatenate([hyper.theta, hyper.lengthscales, hyper.deviations, hyper.mode_deviations, hyper.noise])
    for k in range(len(found)):
        size = 1e-6 * (abs(hyper.theta[k]) if k < len(hyper.theta) else 1.0)
        above, below = shifted(hyper, k, size), shifted(hyper, k, -size)
        with mpmath.workdps(50):
            ends = [
                np.concatenate([h.theta, h.lengthscales, h.deviations, h.mode_deviations, h.noise])[k]
                for h in (above, below)
            ]
            width = mpmath.mpf(ends[0]) - ends[1] if k < len(hyper.theta) else mpmath.log(mpmath.mpf(ends[0]) / ends[1])
            rise = reference_evidence(name, data, above) - reference_evidence(name, data, below)
            expected[k] = float(rise / width)
    weights = np.where(np.arange(len(found)) < len(hyper.theta), np.maximum(np.abs(flat), 1e-9), 1.0)
    np.testing.assert_allclose(
        found * weights, expected * weights, rtol=1e-7, atol=1e-8 * np.abs(found * weights).max()
    )
