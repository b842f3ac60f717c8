"""Whether the motion that was measured can tell parameters apart: curves may solve the equations for other values, too.

``m x'' + c x' + k x = F`` holds for a damped sine with many m, c and k: x, x' and x'' depend on each other then.
The evidence prefers one of them all the same, for the prior finds some forces simpler than others; so its curvature
says nothing about that. What the data say is in the curves: a direction v of the parameters is open where
``(dA/dv) c - df/dv``, with the posterior of the curves c put in, cannot be told from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from lodekit.algebra.operators import OperatorMatrix
from lodekit.errors import LodekitError
from lodekit.inference.engine import Posterior
from lodekit.prior.compile import ScalarTable, SignalTable
from lodekit.prior.observables import ObservableReader
from lodekit.prior.prior import Prior
from lodekit.system.elimination import implied_equations
from lodekit.system.signals import Signal
from lodekit.system.system import System

__all__ = ["Curves", "open_directions"]

Array = NDArray[np.float64]
#: How many times are looked at; they follow each other like multiples of the golden ratio, which miss no rhythm.
_TIMES, _GOLDEN = 24, 0.6180339887498949
#: A direction is open where the square of what it changes is less than so many times its variance.
_CLEAR = 12.0


@dataclass(frozen=True)
class Curves:
    """Fitted curves, and what they were fitted to.

    Parameters
    ----------
    system : System
    prior : Prior
        Whose units the posterior has.
    posterior : Posterior
    theta : array, shape (p,)
        Values of all parameters.
    window : (float, float)
        The first and the last time.
    measured : sequence of str
        What was measured.
    """

    system: System
    prior: Prior
    posterior: Posterior
    theta: Array
    window: tuple[float, float]
    measured: Sequence[str]

    @property
    def times(self) -> Array:
        """Some times, in the user's units."""
        start, stop = self.window
        return np.asarray(start + (stop - start) * np.sort((0.5 + _GOLDEN * np.arange(_TIMES)) % 1.0))

    def together(self, times: Array) -> Array:
        """Return all curves that the prior knows at some times, in the user's units, (n, o); once for the same times.

        Parameters
        ----------
        times : array, shape (n,)
        """
        key = times.tobytes()
        if key not in self._known:
            self._known[key] = self.posterior.mean(self.prior.observables, times) * self.prior.units.scales
        return self._known[key]

    @cached_property
    def _known(self) -> dict[bytes, Array]:
        """Curves by their times."""
        return {}

    def derivatives(self, pairs: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
        """Return the posterior means of derivatives at `times`, (n, o), and their covariances there, (n, o, o).

        Parameters
        ----------
        pairs : sequence of (int, int)
            Channel and order of each.
        """
        names = self.system.channels
        texts = [f"D({names[j]}, {k})" if k else names[j] for j, k in pairs]
        compiled = ObservableReader(self.system).compile_plain(texts, self.prior.units)
        times = self.times
        whole = self.posterior.covariance(compiled, times)
        return self.posterior.mean(compiled, times), whole[np.arange(len(times)), :, np.arange(len(times)), :]


def open_directions(records: Sequence[Curves], numbers: Sequence[int], sizes: Array) -> Array:
    """Return directions in which parameters can move while the fitted curves still solve the equations, shape (k, n).

    Channels that were not measured are eliminated first. What the curves of one record leave open, those of another
    may tell.

    Parameters
    ----------
    records : sequence of Curves
        Of one system, of each record.
    numbers : sequence of int
        Which parameters may move, n of them.
    sizes : array, shape (n,)
        How large each is; directions are in these units, and their largest entry is one.
    """
    nothing = np.zeros((0, len(numbers)))
    if any(curves.prior.observables.driven is not None or curves.prior.disturbances for curves in records):
        # What happens at the jumps of an input is not in the curves between them, and disturbances have their own laws.
        return nothing
    signal, noise = np.zeros((2, len(numbers), len(numbers)))
    looked = False
    try:
        with np.errstate(all="ignore"):
            for curves in records if len(numbers) else ():
                channels = [name for name in curves.system.channels if name in curves.measured]
                if channels and curves.window[1] > curves.window[0]:
                    equations = implied_equations(curves.system, channels)
                    more = _moments(curves, *equations, list(numbers), sizes)
                    signal, noise, looked = signal + more[0], noise + more[1], True
            if not looked:
                return nothing
            scale = 1.0 / np.sqrt(np.diag(signal) + np.diag(noise) + 1e-300)
            signal, noise = (part * np.outer(scale, scale) for part in (signal, noise))
            # As a share of the whole, so that what is known exactly needs no division by zero.
            shares, vectors = eigh(signal, signal + noise + 1e-9 * np.eye(len(numbers)))
    except (LodekitError, np.linalg.LinAlgError, ValueError):
        # Too large to be eliminated, or nothing finite: then nothing is said here.
        return nothing
    found = (scale[:, None] * vectors[:, shares < _CLEAR / (1.0 + _CLEAR)]).T
    return np.asarray(found / np.max(np.abs(found), axis=1, keepdims=True, initial=1e-300))


def _moments(
    curves: Curves, operator: OperatorMatrix, known: Sequence[Signal], numbers: list[int], sizes: Array
) -> tuple[Array, Array]:
    """Return the squares of what moves of the parameters change in the equations, and their variances, (n, n) each."""
    terms = [(i, (j, k), value) for i, j, k, value in operator.terms()]
    pairs = sorted({pair for _, pair, _ in terms})
    signal, noise = np.zeros((2, len(numbers), len(numbers)))
    if not pairs:
        return signal, noise
    mean, covariance = curves.derivatives(pairs)
    _, slopes = ScalarTable(operator.ring, [value for *_, value in terms]).evaluate(curves.theta)
    sides = SignalTable(operator.ring, known).evaluate_slopes(curves.theta, curves.times)
    for i, (_, side_slopes) in enumerate(sides):
        weights = np.zeros((len(numbers), len(pairs)))
        for (equation, pair, _), slope in zip(terms, slopes.T, strict=True):
            if equation == i:
                weights[:, pairs.index(pair)] += slope[numbers] * sizes
        change = mean @ weights.T - (side_slopes[numbers] * sizes[:, None]).T
        squares, variances = change.T @ change, np.einsum("po,noq,rq->pr", weights, covariance, weights)
        # Each equation counts as much as it is known.
        unit = float(np.trace(variances) + 1e-9 * np.trace(squares)) or 1.0
        signal += squares / unit
        noise += variances / unit
    return signal, noise
