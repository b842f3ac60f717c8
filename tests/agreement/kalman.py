"""A Kalman filter and a smoother of Rauch, Tung and Striebel, as in textbooks, in as many digits as mpmath works with.

Rows are taken one by one, noises of steps come from the exponential of Van Loan, and covariances are differences: all
that the Markov engine avoids, and none of its code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mpmath
import numpy as np
from numpy.typing import NDArray

from lodekit.fitting.setup import FitSetup
from lodekit.inference.kalman.state_space import build_state_space_model
from lodekit.prior.prior import Hyperparameters
from tests.prior.input_response.exact import exponential

__all__ = ["Driven", "Filtered", "filter_exactly", "matern"]

Array = NDArray[np.float64]
Moments = tuple[mpmath.matrix, mpmath.matrix]


@dataclass(frozen=True)
class Driven:
    """States that white noise drives: ``x' = F x + noise`` of some density, and their covariance at the start."""

    F: mpmath.matrix
    density: mpmath.matrix
    start: mpmath.matrix

    def step(self, length: mpmath.mpf) -> Moments:
        """Return the transition over some time, and the covariance of the noise."""
        s = self.F.rows
        block = mpmath.zeros(2 * s)
        block[:s, :s], block[:s, s:], block[s:, s:] = -self.F * length, self.density * length, self.F.T * length
        whole = exponential(block)
        Phi = whole[s:, s:].T
        return Phi, Phi * whole[:s, s:]

    def filter(
        self, times: Sequence[float], rows: Sequence[mpmath.matrix], seen: Sequence[Sequence[tuple[int, float, float]]]
    ) -> Filtered:
        """Take what was seen at each time: the number of a row, a value, and the deviation of its noise."""
        found = Filtered(self, rows, mpmath.mpf(0), [], [], [], [], [])
        m, P = mpmath.zeros(self.F.rows, 1), self.start
        for i, t in enumerate(times):
            Phi, Q = self.step(mpmath.mpf(t) - mpmath.mpf(times[i - 1] if i else t))
            m, P = Phi * m, Phi * P * Phi.T + Q
            found.before.append((m, P))
            for o, y, deviation in seen[i]:
                H = rows[o]
                S = (H * P * H.T)[0] + mpmath.mpf(deviation) ** 2
                rest = mpmath.mpf(y) - (H * m)[0]
                found.value -= (rest**2 / S + mpmath.log(2 * mpmath.pi * S)) / 2
                found.innovations.append(float(rest / mpmath.sqrt(S)))
                found.deviations.append(float(mpmath.sqrt(S)))
                gain = P * H.T / S
                m, P = m + gain * rest, P - gain * H * P
            found.after.append((m, P))
            found.steps.append(Phi)
        return found


@dataclass
class Filtered:
    """What is known at each time before and after its measurements, and what each of these adds."""

    plant: Driven
    rows: Sequence[mpmath.matrix]
    value: mpmath.mpf
    innovations: list[float]
    deviations: list[float]
    before: list[Moments]
    after: list[Moments]
    steps: list[mpmath.matrix]

    def smooth(self) -> tuple[Array, Array]:
        """Return means and deviations of all rows at all times, given everything, shape (n, o) each."""
        found = [self.after[-1]]
        for i in range(len(self.after) - 2, -1, -1):
            (m, P), (mean, covariance) = self.after[i], self.before[i + 1]
            C = P * self.steps[i + 1].T * covariance**-1
            found.insert(0, (m + C * (found[0][0] - mean), P + C * (found[0][1] - covariance) * C.T))
        means = [[float((H * m)[0]) for H in self.rows] for m, _ in found]
        deviations = [[float(mpmath.sqrt((H * P * H.T)[0])) for H in self.rows] for _, P in found]
        return np.array(means), np.array(deviations)

    def ahead(self, place: int, length: mpmath.mpf, number: int, deviation: float) -> tuple[float, float]:
        """Return mean and deviation of a measurement some time after a place, from all up to there."""
        (m, P), H = self.after[place], self.rows[number]
        Phi, Q = self.plant.step(length)
        spread = (H * (Phi * P * Phi.T + Q) * H.T)[0] + mpmath.mpf(deviation) ** 2
        return float((H * Phi * m)[0]), float(mpmath.sqrt(spread))


def matern(order: int, lengthscale: float, deviation: float) -> Driven:
    """Return a Matern process of smoothness 3/2 (order 1) or 5/2 (order 2) with its derivatives."""
    rate, k = mpmath.sqrt(2 * order + 1) / mpmath.mpf(lengthscale), mpmath.mpf(deviation) ** 2
    if order == 1:
        F, start = mpmath.matrix([[0, 1], [-(rate**2), -2 * rate]]), k * mpmath.matrix([[1, 0], [0, rate**2]])
    else:
        F = mpmath.matrix([[0, 1, 0], [0, 0, 1], [-(rate**3), -3 * rate**2, -3 * rate]])
        third = rate**2 / 3
        start = k * mpmath.matrix([[1, 0, -third], [0, third, 0], [-third, 0, rate**4]])
    # At rest nothing changes: what the equations take away noise brings.
    return Driven(F, -(F * start + start * F.T), start)


def filter_exactly(
    setup: FitSetup, hyper: Hyperparameters, noise: float, asked: Array | None = None
) -> tuple[float, Array, Array]:
    """Return the log evidence of one observable in one hundred digits, and means and deviations at some times, (n,).

    The state-space model is the one of the Kalman engine, the filter is not.
    """
    prior, item = setup.prior, setup.measurements.series[0]
    model = build_state_space_model(prior, hyper, prior.observables.evaluate(hyper.theta))
    every = item.times if asked is None else np.concatenate([item.times, asked])
    order, n = np.argsort(every, kind="stable"), model.n_stochastic
    times = prior.units.scale_times(every)[order]
    seen = [[(0, float(item.values[k]), noise)] if k < len(item.times) else [] for k in order.tolist()]
    with mpmath.workdps(100):
        F, intensity, H, root = (
            mpmath.matrix(np.asarray(part, dtype=float).tolist())
            for part in (model.F, model.noise_intensity, model.H, model.prior_P_root(float(times[0])))
        )
        density = mpmath.zeros(model.size)
        density[:n, :n] = intensity
        rows = [H * mpmath.mpf(float(prior.units.scales[0]))]
        filtered = Driven(F, density, root * root.T).filter(times.tolist(), rows, seen)
        if asked is None:
            return float(filtered.value), np.zeros(0), np.zeros(0)
        mean, deviation = (part[np.argsort(order)[len(item.times) :], 0] for part in filtered.smooth())
        return float(filtered.value), mean, deviation
