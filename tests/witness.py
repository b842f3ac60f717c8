"""The log evidence and the mean at the data with as many digits as one likes: exact algebra, closed formulas, mpmath.

Nothing of the engines is used: coefficients come from the exact parametrization, covariances from Hermite polynomials,
modes from roots that are polished on their exact polynomial or from the exponential of a matrix in ball arithmetic.
"""

from __future__ import annotations

from math import comb
from typing import Any

import mpmath
import numpy as np
from flint import ctx as flint_context
from numpy.typing import NDArray

from lodekit.algebra.scalars import Scalar
from lodekit.data.noise import EXACT_NOISE_RATIO
from lodekit.data.records import Measurements
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.system.system import System
from tests.prior.input_response.exact import exponential

Number = Any


class Witness:
    """A system with measurements of its channels, under independent squared exponentials."""

    def __init__(self, system: System, prior: Prior, measurements: Measurements) -> None:
        self.system, self.prior, self.series = system, prior, measurements.series

    def evidence(self, hyper: Hyperparameters, digits: int = 50) -> float:
        """Return the log evidence in the user's units."""
        return self.evidence_and_mean(hyper, digits)[0]

    def exact_evidence(self, hyper: Hyperparameters, digits: int = 50) -> Number:
        """Return the log evidence with all its digits, for differences."""
        with mpmath.workdps(digits), flint_context.workprec(int(digits * 3.4) + 20):
            return self._solve(hyper)[0]

    def evidence_and_mean(self, hyper: Hyperparameters, digits: int = 50) -> tuple[float, NDArray[np.float64]]:
        """Return the log evidence, and the posterior mean of all measurements, observable after observable."""
        with mpmath.workdps(digits), flint_context.workprec(int(digits * 3.4) + 20):
            evidence, mean = self._solve(hyper)
        return float(evidence), mean

    def predict(
        self, hyper: Hyperparameters, times: NDArray[np.float64], digits: int = 100
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return posterior means and deviations of the only observable, whose noise is known and which has no mean."""
        item = self.series[0]
        with mpmath.workdps(digits), flint_context.workprec(int(digits * 3.4) + 20):
            n, theta = len(item.times), [mpmath.mpf(float(v)) for v in hyper.theta]
            K = self._covariance(hyper, theta, [(0, mpmath.mpf(float(t))) for t in [*item.times, *times]])
            for k, std in enumerate(item.std.tolist()):
                K[k, k] += mpmath.mpf(std) ** 2
            L = mpmath.cholesky(K[:n, :n])
            y = _forward(L, mpmath.matrix(item.values.tolist()))
            found = []
            for j in range(n, K.rows):
                gain = _forward(L, K[:n, j])
                found.append((mpmath.fdot(gain, y), mpmath.sqrt(K[j, j] - mpmath.fdot(gain, gain))))
        return np.array([float(m) for m, _ in found]), np.array([float(s) for _, s in found])

    def _solve(self, hyper: Hyperparameters) -> tuple[Number, NDArray[np.float64]]:
        units = self.prior.units
        theta = [mpmath.mpf(float(v)) for v in hyper.theta]
        rows = [
            (o, mpmath.mpf(float(time)), mpmath.mpf(float(value)), float(std))
            for o, item in enumerate(self.series)
            for time, value, std in zip(item.times, item.values, item.std, strict=True)
        ]
        scales = [mpmath.mpf(float(s)) for s in units.scales]
        K = self._covariance(hyper, theta, [(o, t) for o, t, *_ in rows])
        noises, means = [], self._means(theta)
        for k, (o, _, _, std) in enumerate(rows):
            learned, exact = np.isnan(std), std == 0
            level = float(hyper.noise_std[self.prior.noise.level_indices[o]]) if learned else std
            noises.append((mpmath.mpf(EXACT_NOISE_RATIO) * scales[o]) ** 2 if exact else mpmath.mpf(level) ** 2)
            K[k, k] += noises[k]
        L = mpmath.cholesky(K)
        rest = mpmath.matrix([value - means(o, time) for o, time, value, _ in rows])
        z = _forward(L, rest)
        alpha = _backward(L, z)
        half_log = sum(mpmath.log(L[k, k]) for k in range(len(rows)))
        evidence = -sum(v * v for v in z) / 2 - half_log - len(rows) * mpmath.log(2 * mpmath.pi) / 2
        mean = [float(value - noises[k] * alpha[k]) for k, (_, _, value, _) in enumerate(rows)]
        return evidence, np.array(mean)

    def _number(self, scalar: Any, theta: list[Number]) -> Number:
        ring = self.system.operator.ring
        constants = [
            mpmath.mpf(value.enclose().mid().str(int(mpmath.mp.dps), radius=False)) for value in ring.constants
        ]
        parts = []
        for element in (scalar.numerator, scalar.denominator):
            total = mpmath.mpf(0)
            for exponents, coefficient in ring.terms(element).items():
                term = mpmath.mpf(int(coefficient))
                for value, exponent in zip([*constants, *theta], exponents, strict=True):
                    term *= value**exponent
                total += term
            parts.append(total)
        return parts[0] / parts[1]

    def _covariance(self, hyper: Hyperparameters, theta: list[Number], points: list[tuple[int, Number]]) -> Any:
        parametrization, names = self.system.parametrization, self.prior.noise.observables
        places = [self.system.channels.index(name) for name in names]
        span = mpmath.mpf(float(self.prior.units.time_scale))
        free = [
            [
                [self._number(c, theta) for c in parametrization.free.coefficients(i, q)]
                for q in range(len(self.prior.kernels))
            ]
            for i in places
        ]
        basis = self._modes(hyper, theta, points, places)
        K = mpmath.matrix(len(points), len(points))
        for a, (i, t1) in enumerate(points):
            for b, (j, t2) in enumerate(points[: a + 1]):
                total = sum((x * y for x, y in zip(basis[a], basis[b], strict=True)), mpmath.mpf(0))
                for q in range(len(self.prior.kernels)):
                    first, second = free[i][q], free[j][q]
                    if first and second:
                        ell = mpmath.mpf(float(hyper.lengthscales[q])) * span
                        stack = _stack((t1 - t2) / ell, len(first) + len(second) - 2)
                        own = sum(
                            (-1) ** n * c * d * stack[m + n] / ell ** (m + n)
                            for m, c in enumerate(first)
                            for n, d in enumerate(second)
                        )
                        total += mpmath.mpf(float(hyper.amplitudes[q])) ** 2 * own
                K[a, b] = K[b, a] = total
        return K

    def _modes(
        self, hyper: Hyperparameters, theta: list[Number], points: list[tuple[int, Number]], places: list[int]
    ) -> list[list[Number]]:
        """Return the basis functions of the modes at every measurement, times their deviations, in the user's units."""
        ring = self.system.operator.ring
        start, span = mpmath.mpf(float(self.prior.units.start)), mpmath.mpf(float(self.prior.units.time_scale))
        columns = [
            [[self._number(c, theta) for c in mode.column.coefficients(i, 0)] for i in places]
            for mode in self.system.parametrization.modes
        ]
        basis: list[list[Number]] = [[] for _ in points]
        for g, group in enumerate(self.prior.groups):
            deviation = mpmath.mpf(float(hyper.mode_amplitudes[g]))
            polynomial = self.system.modes[group.factor].polynomial
            monic = [self._number(Scalar(ring, c, polynomial[-1]), theta) for c in polynomial]
            scaled = [c * span ** (len(monic) - 1 - k) for k, c in enumerate(monic)]
            root = None if group.root is None else _polish(scaled, mpmath.mpc(group.root) * span)
            for row, (o, time) in enumerate(points):
                operator = [c * span ** (-k) for k, c in enumerate(columns[group.column][o])]
                s = (time - start) / span
                if root is None:
                    found = companion_modes(scaled, group.multiplicity, operator, s)
                else:
                    found = _exponential(root, bool(group.root and group.root.imag), group.multiplicity, operator, s)
                basis[row] += [deviation * value for value in found]
        return basis

    def _means(self, theta: list[Number]) -> Any:
        """Return the particular solution as a function of observable and time; it has an exact test of its own."""
        observables = self.prior.observables
        coefficients = observables.evaluate(np.array([float(v) for v in theta]))

        def mean(observable: int, time: Number) -> Number:
            if not observables.has_mean:
                return mpmath.mpf(0)
            found, _ = observables.means(coefficients, np.array([float(time)]))
            return mpmath.mpf(float(found[observable][0])) * mpmath.mpf(float(self.prior.units.scales[observable]))

        return mean


def _stack(u: Number, order: int) -> list[Number]:
    """Return the derivatives of exp(-u^2/2), by the recursion of the probabilists' Hermite polynomials."""
    values = [mpmath.exp(-u * u / 2)]
    values.append(-u * values[0])
    for m in range(1, order):
        values.append(-u * values[m] - m * values[m - 1])
    return values[: order + 1]


def _polish(polynomial: list[Number], root: Number) -> Number:
    """Return a simple root of a polynomial, lowest power first, from a guess."""
    highest_first = polynomial[::-1]
    for _ in range(12):
        value, slope = mpmath.polyval(highest_first, root, derivative=True)
        if slope == 0:
            break
        root = root - value / slope
    return root


def _exponential(root: Number, is_complex: bool, multiplicity: int, operator: list[Number], s: Number) -> list[Number]:
    """Return ``W(d) s^k e^(l s)``, real and imaginary parts; s counts from the end where it grows."""
    s = s - (0 if root.real <= 0 else 1)
    wave, values = mpmath.exp(root * s), []
    for k in range(multiplicity):
        total = mpmath.mpc(0)
        for q in range(k + 1):
            slope = sum(
                (c * mpmath.ff(n, q) * root ** (n - q) for n, c in enumerate(operator) if n >= q), mpmath.mpc(0)
            )
            total += comb(k, q) * slope * s ** (k - q)
        total *= wave
        values += [total.real, total.imag] if is_complex else [total.real]
    return values


def companion_modes(factor: list[Number], multiplicity: int, operator: list[Number], s: Number) -> list[Number]:
    """Return the fundamental system of the companion matrix, seen through an operator, balanced as the model's is."""
    full = [mpmath.mpf(1)]
    for _ in range(multiplicity):
        full = [
            sum((full[i] * factor[k - i] for i in range(len(full)) if 0 <= k - i < len(factor)), mpmath.mpf(0))
            for k in range(len(full) + len(factor) - 1)
        ]
    size, degree = len(full) - 1, len(factor) - 1
    omega = (1 + factor[0] ** 2) ** (mpmath.mpf(1) / (2 * degree))
    F = mpmath.matrix(size, size)
    for k in range(size - 1):
        F[k, k + 1] = 1
    for k in range(size):
        F[size - 1, k] -= full[k]
    row, power = mpmath.matrix(1, size), mpmath.eye(size)
    for c in operator:
        row += c * power[0, :]
        power = power * F
    flow = row * exponential(F * s)
    return [flow[0, k] * omega**k for k in range(size)]


def _forward(L: Any, right: Any) -> list[Number]:
    found: list[Number] = []
    for i in range(L.rows):
        found.append((right[i] - mpmath.fdot((L[i, j], found[j]) for j in range(i))) / L[i, i])
    return found


def _backward(L: Any, right: list[Number]) -> list[Number]:
    found = list(right)
    for i in reversed(range(L.rows)):
        found[i] = (right[i] - mpmath.fdot((L[j, i], found[j]) for j in range(i + 1, L.rows))) / L[i, i]
    return found
