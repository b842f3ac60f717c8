"""The posterior of the amplitudes of modes, and of any observable anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.modal.data import ModalData
from lodekit.inference.modal.evaluation import Regression
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import Observables

__all__ = ["ModalPosterior"]

Array = NDArray[np.float64]
#: So many times at once, so that modes at all of them need not fit into memory.
_BLOCK = 8192


@dataclass(frozen=True)
class ModalPosterior:
    """The posterior at given hyperparameters, as a normal distribution of the amplitudes of modes.

    Parameters
    ----------
    data : ModalData
        Measurements with their prior.
    hyper : Hyperparameters
    solved : Regression
        At these hyperparameters.
    """

    data: ModalData
    hyper: Hyperparameters
    solved: Regression

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        return self.solved.value

    @property
    def error(self) -> float:
        """About how large an error rounding makes in the log evidence."""
        return self.solved.error

    @property
    def rounding(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data: amplitudes do not cancel."""
        return float(np.finfo(float).eps)

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy: none."""
        return []

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met; there are none."""

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Parameters
        ----------
        observables : Observables
            Compiled, o of them; their units are those of the answer.
        times : array, shape (n,)
            In the user's units.
        """
        values = observables.evaluate(self.hyper.theta)
        return self._combine(observables, values, times, self.solved.mean[:, None])[:, :, 0]

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        inverse = self.solved.inverse_root
        found = [np.sum((part @ inverse) ** 2, axis=2) for part in self._modes(observables, times)]
        return np.concatenate(found) if found else np.zeros((0, observables.count))

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        inverse, count = self.solved.inverse_root, observables.count
        parts = [part @ inverse for part in self._modes(observables, times)]
        reduced = np.concatenate([np.zeros((0, count, len(inverse))), *parts]).reshape(len(times) * count, len(inverse))
        return np.asarray((reduced @ reduced.T).reshape(len(times), count, len(times), count))

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o).

        Parameters
        ----------
        observables, times
            As in `mean`.
        size : int
            How many functions.
        generator : numpy.random.Generator
        """
        mean, values = self.solved.mean, observables.evaluate(self.hyper.theta)
        drawn = mean[:, None] + self.solved.inverse_root @ generator.standard_normal((len(mean), size))
        return self._combine(observables, values, times, drawn).transpose(2, 0, 1)

    def _combine(self, observables: Observables, values: Coefficients, times: Array, amplitudes: Array) -> Array:
        """Return observables of functions in their units, all that is known added, shape (n, o, s)."""
        means, _ = observables.means(values, times, slopes=False)
        parts = [part @ amplitudes for part in self._modes(observables, times)]
        total = np.concatenate(parts) if parts else np.zeros((0, observables.count, amplitudes.shape[1]))
        return total + np.stack(means, axis=1)[:, :, None]

    def _modes(self, observables: Observables, times: Array) -> Iterator[Array]:
        """Yield the modes times their prior deviations, seen through the observables, shape (n, o, r), in blocks."""
        prior = self.data.prior
        values, roots = observables.evaluate(self.hyper.theta), prior.mode_roots(self.hyper.mode_deviations)
        for start in range(0, len(times), _BLOCK):
            scaled = observables.units.scaled_times(times[start : start + _BLOCK])
            basis, _ = observables.mode_basis(values, prior.groups, scaled, slopes=False)
            yield np.stack(basis, axis=1) * roots
