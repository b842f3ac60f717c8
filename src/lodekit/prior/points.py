"""What a prior in frequency depends on at one point of a search, and derivatives in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.averages import wave_factors
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters

__all__ = ["Point", "Pulled", "powers_of"]

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]


@dataclass(frozen=True)
class Pulled:
    """Derivatives of a number in all that a spectrum depends on.

    Parameters
    ----------
    free, channels : arrays, shapes (o, q, k) and (c, q, k)
        In the coefficients of the observables, and in those of the channels.
    log_lengthscales, log_deviations : arrays, shape (q,) or (c,)
        In the logarithms of the hyperparameters.
    """

    free: Array
    channels: Array
    log_lengthscales: Array
    log_deviations: Array


@dataclass(frozen=True)
class Point:
    """Operators and hyperparameters: all that a spectrum depends on.

    Parameters
    ----------
    free : array, shape (o, q, k)
        Coefficients of the observables on the free functions.
    channels : array, shape (c, q, k)
        The same for all channels, where the prior stands on these; empty otherwise.
    lengthscales, deviations : arrays
        Of the free functions, or of the channels.
    windows : array, shape (o,), optional
        The intervals over which the observables are averaged; None where none is.
    """

    free: Array
    channels: Array
    lengthscales: Array
    deviations: Array
    windows: Array | None = None
    #: Roots of densities: made once for coefficients and for derivatives.
    roots: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def at(cls, coefficients: Coefficients, channels: Coefficients | None, hyper: Hyperparameters) -> Point:
        """Return what a spectrum depends on, for some observables.

        Parameters
        ----------
        coefficients : Coefficients
            Of the observables.
        channels : Coefficients or None
            Of all channels, where the prior stands on these.
        hyper : Hyperparameters
        """
        own = np.zeros((0, 0, 0)) if channels is None else channels.free
        return cls(coefficients.free, own, hyper.lengthscales, hyper.deviations, coefficients.windows)

    def averages(self, frequencies: Array) -> ComplexArray | float:
        """Return what the averages of the observables make of waves at some frequencies, shape (o, f); or one."""
        return 1.0 if self.windows is None else wave_factors(self.windows, frequencies)


def powers_of(frequencies: Array, length: int) -> ComplexArray:
    """Return ``(i w)^k``, shape (length, f): by products, so that even powers are real and odd ones imaginary.

    Parameters
    ----------
    frequencies : array, shape (f,)
    length : int
        How many powers, the zeroth included.

    Examples
    --------
    >>> powers_of(np.array([0.0, 3.0]), 3).tolist()
    [[(1+0j), (1+0j)], [0j, 3j], [0j, (-9+0j)]]
    """
    found = np.ones((length, len(frequencies)), dtype=complex)
    for k in range(1, length):
        np.multiply(found[k - 1], 1j * frequencies, out=found[k])
    return found
