"""The equations applied to functions in closed form, with the derivatives that the model itself has for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.scalars import Scalar
from lodekit.prior.compile import ScalarTable, SignalTable
from lodekit.system.system import System

__all__ = ["EquationTerms", "equation_terms"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class EquationTerms:
    """The terms ``a_ijk(theta) f_j^(k)`` of all equations, ``sum_jk a_ijk f_j^(k) = b_i``.

    Parameters
    ----------
    system : System
    derivatives : list of (int, int)
        The channels and orders of derivatives that occur.
    terms : list of (int, int, Scalar)
        Equation, position in `derivatives`, coefficient.
    """

    system: System
    derivatives: list[tuple[int, int]]
    terms: list[tuple[int, int, Scalar]]

    @property
    def observables(self) -> list[str]:
        """The derivatives as expressions."""
        channels = self.system.channels
        return [f"D({channels[j]}, {k})" if k else channels[j] for j, k in self.derivatives]

    def residual(self, theta: Array, times: Array, values: Array, *, relative: bool) -> Array:
        """Return ``A(d) f - b`` from the values of all derivatives.

        Parameters
        ----------
        theta : array, shape (p,)
            Parameters of the system.
        times : array, shape (n,)
            In the user's unit.
        values : array, shape (s, n, derivatives)
        relative : bool
            Divide by the sum of the sizes of the terms.

        Returns
        -------
        array, shape (s, n, equations)
        """
        total, size = self._sums(theta, times, values)
        return total / np.where(size > 0, size, 1.0) if relative else total

    def sizes(self, theta: Array, times: Array, values: Array) -> Array:
        """Return the sums of the sizes of the terms, as `residual` divides by them, shape (s, n, equations).

        Parameters
        ----------
        theta, times, values
            As in `residual`.
        """
        return self._sums(theta, times, values)[1]

    @cached_property
    def _tables(self) -> tuple[ScalarTable, SignalTable]:
        """The coefficients and the right sides: made once, and asked at the parameters of each of many curves."""
        ring = self.system.operator.ring
        return ScalarTable(ring, [value for *_, value in self.terms]), SignalTable(ring, self.system.forcing)

    def _sums(self, theta: Array, times: Array, values: Array) -> tuple[Array, Array]:
        """Return ``A(d) f - b`` and the sum of the sizes of its terms, both of shape (s, n, equations)."""
        table, sides = self._tables
        coefficients, _ = table.evaluate(theta)
        total = np.zeros((*values.shape[:2], len(self.system.equations)))
        size = np.zeros_like(total)
        for (equation, position, _), coefficient in zip(self.terms, coefficients, strict=True):
            part = coefficient * values[:, :, position]
            total[:, :, equation] += part
            size[:, :, equation] += np.abs(part)
        for equation, side in enumerate(sides.evaluate(theta, times)):
            total[:, :, equation] -= side
            size[:, :, equation] += np.abs(side)
        return total, size


def equation_terms(system: System) -> EquationTerms:
    """Return the terms of the equations of a system."""
    operator = system.operator
    found = [(i, (j, k), value) for i, j, k, value in operator.terms()]
    derivatives = sorted({pair for _, pair, _ in found})
    return EquationTerms(system, derivatives, [(i, derivatives.index(pair), value) for i, pair, value in found])
