"""Numbers that follow from estimated parameters, with standard errors to first order (the delta method)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.rounding import format_number

__all__ = ["Uncertain", "spreads"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Uncertain:
    """A number with its standard error.

    Parameters
    ----------
    value : float or complex
    std_error : float
        Of a complex number that of its real part; NaN where it has none, as repeated roots have.
    imaginary_error : float
        That of its imaginary part.

    Examples
    --------
    >>> Uncertain(4.0312, 0.0524)
    4.031 +- 0.052
    """

    value: complex
    std_error: float
    imaginary_error: float = 0.0

    def __repr__(self) -> str:
        number, errors = complex(self.value), (self.std_error, self.imaginary_error)
        if not number.imag:
            return f"{format_number(number.real, errors[0])} +- {errors[0]:.2g}"
        sign = "-" if number.imag < 0 else "+"
        real, imaginary = format_number(number.real, errors[0]), format_number(abs(number.imag), errors[1])
        return f"{real} {sign} {imaginary}j +- {errors[0]:.2g}, {errors[1]:.2g}j"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; what is not finite is None."""
        number = complex(self.value)
        found: dict[str, float | None] = {"value": number.real, "std_error": self.std_error}
        if number.imag:
            found |= {"imaginary": number.imag, "imaginary_error": self.imaginary_error}
        return {key: value if value is not None and math.isfinite(value) else None for key, value in found.items()}


def spreads(slopes: NDArray[Any], covariance: Array) -> tuple[Array, Array]:
    """Return standard errors of real and imaginary parts, each of the shape of the numbers.

    Parameters
    ----------
    slopes : array, shape (p, ...)
        Derivatives of the numbers in the parameters, real or complex.
    covariance : array, shape (p, p)
        Of the parameters.
    """
    both = []
    for part in (np.real(slopes), np.imag(slopes)):
        variance = np.einsum("p...,pq,q...->...", part, covariance, part)
        both.append(np.sqrt(np.maximum(variance, 0.0)))
    return both[0], both[1]
