"""Observables, from their texts to arrays: coefficients on the free functions, modes and means, in scaled units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.operators import OperatorMatrix
from lodekit.data.units import Units
from lodekit.prior.arrays import constant
from lodekit.prior.compile import CoefficientArrays, Coefficients, CompiledObservables, compile_observables
from lodekit.prior.modes import (
    ModeGroup,
    companion,
    companion_basis,
    companion_matrix,
    exponential_basis,
    fundamental_basis,
)
from lodekit.system.grammar import parse_expression
from lodekit.system.linear import Reader
from lodekit.system.signals import Signal
from lodekit.system.system import System

__all__ = ["ObservableReader", "Observables"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Observables:
    """Observables compiled and scaled: coefficients, basis functions of the modes and means at any parameters.

    Parameters
    ----------
    compiled : CompiledObservables
    units : Units
    """

    compiled: CompiledObservables
    units: Units

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.units.scales)

    def evaluate(self, theta: Array) -> Coefficients:
        """Return coefficient arrays in scaled time and units, with derivatives in the parameters."""
        values, slopes = self.compiled.table.evaluate(theta)
        return Coefficients(self.take_apart(np, values), self.take_apart(np, slopes), (values, slopes))

    def take_apart(self, xp: Any, table: Any) -> CoefficientArrays:
        """Return coefficient arrays in scaled time and units, from the values of the table or from their derivatives.

        Parameters
        ----------
        xp : module
            The array library of the table.
        table : array, shape (..., s)
        """
        raw = self.compiled.take_apart(xp, table)
        free, columns, factors = self._factors
        return CoefficientArrays(
            raw.free * constant(xp, free, table),
            [part * constant(xp, units, table) for part, units in zip(raw.columns, columns, strict=True)],
            [part * constant(xp, units, table) for part, units in zip(raw.factors, factors, strict=True)],
        )

    @cached_property
    def _factors(self) -> tuple[Array, list[Array], list[Array]]:
        """What coefficients are multiplied by: k derivatives in scaled time are span^k derivatives in the user's."""
        span = self.units.span

        def powers(length: int) -> Array:
            return span ** -np.arange(length, dtype=float)

        free = powers(self.compiled.free_shape[-1]) / self.units.scales[:, None, None]
        columns = [powers(length) / self.units.scales[:, None] for _, length in self.compiled.column_shapes]
        lengths = [factor.coefficients.stop - factor.coefficients.start for factor in self.compiled.factors]
        return free, columns, [np.ascontiguousarray(powers(length)[::-1] ** -1.0) for length in lengths]

    def mode_values(self, xp: Any, arrays: CoefficientArrays, groups: Sequence[ModeGroup], times: Any) -> Any:
        """Return the basis functions of the modes, seen through the observables, shape (..., o, n, r).

        Parameters
        ----------
        xp : module
            The array library of the arrays.
        arrays : CoefficientArrays
        groups : sequence of ModeGroup
        times : array, shape (..., n)
            Scaled times.
        """
        if not groups:
            shape = np.broadcast_shapes(tuple(times.shape[:-1]), tuple(arrays.free.shape[:-3]))
            return xp.zeros((*shape, self.count, times.shape[-1], 0), dtype=times.dtype, device=times.device)
        found = []
        for group in groups:
            factor = self.compiled.factors[group.factor]
            operators = arrays.columns[factor.column]
            if group.root is None:
                matrix = companion_matrix(xp, arrays.factors[group.factor], factor.multiplicity)
                found.append(fundamental_basis(xp, times, operators, matrix))
            else:
                root = group.root * self.units.span
                found.append(exponential_basis(xp, times, operators, root, factor.multiplicity))
        return xp.concat(found, -1)

    def mode_basis(
        self, values: Coefficients, groups: Sequence[ModeGroup], times: Array, *, slopes: bool
    ) -> tuple[list[Array], list[Array]]:
        """Return for each observable its basis functions, (n, r), and derivatives in the parameters, (p, n, r).

        Parameters
        ----------
        values : Coefficients
        groups : sequence of ModeGroup
        times : array, shape (n,)
            Scaled times.
        slopes : bool
            Whether the derivatives are wanted; they are zero otherwise.
        """
        width = len(values.table[1])
        if not groups:
            return [np.zeros((len(times), 0))] * self.count, [np.zeros((width, len(times), 0))] * self.count
        if not slopes:
            basis = self.mode_values(np, values.values, groups, times)
            return list(basis), list(np.zeros((self.count, width, *basis.shape[1:])))
        parts, d_parts = [], []
        for group in groups:
            factor = self.compiled.factors[group.factor]
            operators = values.values.columns[factor.column], values.slopes.columns[factor.column]
            if group.root is None:
                own = values.values.factors[group.factor], values.slopes.factors[group.factor]
                found, d_found = companion_basis(times, *operators, companion(*own, factor.multiplicity))
            else:
                root = group.root * self.units.span
                # Linear in the operators: their derivatives take their place.
                found, d_found = (exponential_basis(np, times, own, root, factor.multiplicity) for own in operators)
            parts.append(found)
            d_parts.append(d_found)
        return list(np.concat(parts, -1)), list(np.concat(d_parts, -1).swapaxes(0, 1))

    def exponents(self, values: Coefficients, groups: Sequence[ModeGroup]) -> NDArray[np.complex128]:
        """Return the exponents of all modes and particular solutions in scaled time.

        Parameters
        ----------
        values : Coefficients
        groups : sequence of ModeGroup
        """
        span = self.units.span
        found: list[complex] = []
        for group in groups:
            if group.root is not None:
                found.append(group.root * span)
            elif np.isfinite(values.factors[group.factor]).all():
                found += list(np.roots(values.factors[group.factor][::-1]))
            else:
                found.append(np.inf)
        for signal in self.compiled.signals:
            rates = values.table[0][signal.coefficients].reshape(-1, 3)[:, 1:] * span
            found += list(rates[:, 0] + 1j * rates[:, 1])
        return np.array(found, dtype=complex)

    @cached_property
    def has_mean(self) -> bool:
        """Whether any observable has a particular solution that is not zero."""
        return any(signal.count for signal in self.compiled.signals)

    def mean_values(self, xp: Any, table: Any, times: Any) -> Any:
        """Return the particular solution in scaled units, shape (..., o, n).

        Parameters
        ----------
        xp : module
            The array library of the arrays.
        table : array, shape (..., s)
        times : array, shape (..., n)
            In the user's unit.
        """
        signals = [signal.values(xp, times, table) for signal in self.compiled.signals]
        return xp.stack(signals, -2) / constant(xp, self.units.scales[:, None], table)

    def means(self, values: Coefficients, times: Array) -> tuple[list[Array], list[Array]]:
        """Return the particular solution in scaled units at the user's times, (n,), and derivatives, (p, n).

        Parameters
        ----------
        values : Coefficients
        times : array, shape (n,)
            In the user's unit.
        """
        if not self.has_mean:
            zero, flat = np.zeros(len(times)), np.zeros((len(values.d_free), len(times)))
            return [zero] * len(self.units.scales), [flat] * len(self.units.scales)
        found = [signal.evaluate(times, *values.table) for signal in self.compiled.signals]
        return [v / s for (v, _), s in zip(found, self.units.scales, strict=True)], [
            d / s for (_, d), s in zip(found, self.units.scales, strict=True)
        ]


@dataclass(frozen=True)
class ObservableReader:
    """Reads linear differential expressions in the channels of a system.

    Parameters
    ----------
    system : System
    """

    system: System

    def read(self, observables: Sequence[str]) -> tuple[OperatorMatrix, list[Signal]]:
        """Return the operators on the channels, and the known functions of time beside them."""
        operator = self.system.operator
        reader = Reader(operator.ring, self.system.channels)
        entries, known = [], []
        for text in observables:
            form = reader.form(parse_expression(text))
            entries.append(reader.operators(form))
            known.append(form.known)
        return OperatorMatrix.from_scalars(operator.ring, entries, operator.width, operator.variable), known

    def compile(self, observables: Sequence[str], units: Units) -> Observables:
        """Return observables compiled and scaled.

        Parameters
        ----------
        observables : sequence of str
            Linear differential expressions in the channels.
        units : Units
            Of time, and of each observable.
        """
        matrix, known = self.read(observables)
        return Observables(compile_observables(self.system, matrix, known), units)

    def compile_plain(self, observables: Sequence[str], units: Units) -> Observables:
        """Return observables in the user's own units, over the time of other units.

        Parameters
        ----------
        observables : sequence of str
            Linear differential expressions in the channels.
        units : Units
            Of which only that of time is taken.
        """
        return self.compile(observables, units.plain(len(observables)))
