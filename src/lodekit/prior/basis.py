"""The basis functions of all modes together, seen through observables or averages of these, with derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.compile import CoefficientArrays, Coefficients, CompiledFactor
from lodekit.prior.modes import (
    ModeGroup,
    companion,
    companion_basis,
    companion_matrix,
    exponential_basis,
    fundamental_basis,
    pull_companion,
)

__all__ = ["ModeBasis"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ModeBasis:
    """The basis functions of groups of modes.

    Parameters
    ----------
    factors : sequence of CompiledFactor
        Of the annihilators, to which the groups refer.
    span : float
        The unit of scaled time, in the user's.
    """

    factors: Sequence[CompiledFactor]
    span: float

    def values(
        self, xp: Any, arrays: CoefficientArrays, groups: Sequence[ModeGroup], times: Any, window: float = 0.0
    ) -> Any:
        """Return the basis functions, shape (..., o, n, r).

        Parameters
        ----------
        xp : module
            The array library of the arrays.
        arrays : CoefficientArrays
        groups : sequence of ModeGroup
        times : array, shape (..., n)
            Scaled times.
        window : float
            The interval over which all observables are averaged, which begins at the times.
        """
        if not groups:
            shape = np.broadcast_shapes(tuple(times.shape[:-1]), tuple(arrays.free.shape[:-3]))
            count = arrays.free.shape[-3]
            return xp.zeros((*shape, count, times.shape[-1], 0), dtype=times.dtype, device=times.device)
        found = []
        for group in groups:
            factor = self.factors[group.factor]
            operators = arrays.columns[factor.column]
            if group.root is None:
                matrix = companion_matrix(xp, arrays.factors[group.factor], factor.multiplicity)
                found.append(fundamental_basis(xp, times, operators, matrix, window))
            else:
                root = group.root * self.span
                found.append(exponential_basis(xp, times, operators, root, factor.multiplicity, window))
        return xp.concat(found, -1)

    def both(
        self, values: Coefficients, groups: Sequence[ModeGroup], times: Array, window: float = 0.0, *, slopes: bool
    ) -> tuple[list[Array], list[Array]]:
        """Return for each observable its basis functions, (n, r), and derivatives in the parameters, (p, n, r).

        Parameters
        ----------
        values : Coefficients
        groups, times, window
            As in `values`.
        slopes : bool
            Whether the derivatives are wanted; they are zero otherwise.
        """
        width, count = len(values.table[1]), len(values.free)
        if not groups:
            return [np.zeros((len(times), 0))] * count, [np.zeros((width, len(times), 0))] * count
        if not slopes:
            basis = self.values(np, values.values, groups, times, window)
            return list(basis), list(np.zeros((count, width, *basis.shape[1:])))
        parts, d_parts = [], []
        for group in groups:
            factor = self.factors[group.factor]
            operators = values.values.columns[factor.column], values.slopes.columns[factor.column]
            if group.root is None:
                own = values.values.factors[group.factor], values.slopes.factors[group.factor]
                found, d_found = companion_basis(times, *operators, companion(*own, factor.multiplicity), window)
            else:
                root = group.root * self.span
                # Linear in the operators: their derivatives take their place.
                found, d_found = (
                    exponential_basis(np, times, own, root, factor.multiplicity, window) for own in operators
                )
            parts.append(found)
            d_parts.append(d_found)
        return list(np.concat(parts, -1)), list(np.concat(d_parts, -1).swapaxes(0, 1))

    def pull(
        self,
        values: Coefficients,
        groups: Sequence[ModeGroup],
        times: Array,
        weights: Sequence[Array],
        window: float = 0.0,
    ) -> Array:
        """Return derivatives in the parameters of a weighted sum of the basis functions, shape (p,).

        Parameters
        ----------
        values, groups, times, window
            As in `both`.
        weights : sequence of arrays, shape (n, r)
            One for each observable.
        """
        total, start = np.zeros(len(values.table[1])), 0
        for group in groups:
            factor, own = self.factors[group.factor], slice(start, start + group.size)
            operators = values.values.columns[factor.column], values.slopes.columns[factor.column]
            slopes = np.stack([part[:, own] for part in weights])
            if group.root is None:
                parts = values.values.factors[group.factor], values.slopes.factors[group.factor]
                total += pull_companion(times, *operators, companion(*parts, factor.multiplicity), slopes, window)
            else:
                root = group.root * self.span
                changes = exponential_basis(np, times, operators[1], root, factor.multiplicity, window)
                total += np.tensordot(changes, slopes, 3)
            start += group.size
        return total
