"""Observables, from their texts to arrays: coefficients on the free functions, modes and means, in scaled units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.operators import OperatorMatrix
from lodekit.data.units import Units
from lodekit.prior.compile import Coefficients, CompiledObservables, compile_observables
from lodekit.prior.modes import ModeGroup, companion, companion_basis, exponential_basis
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
        """Return coefficient arrays in scaled time and units."""
        raw = self.compiled.evaluate(theta)
        free, columns, factors = self._factors
        return Coefficients(
            raw.free * free,
            raw.d_free * free,
            [c * unit for c, unit in zip(raw.columns, columns, strict=True)],
            [c * unit for c, unit in zip(raw.d_columns, columns, strict=True)],
            [f * unit for f, unit in zip(raw.factors, factors, strict=True)],
            [f * unit for f, unit in zip(raw.d_factors, factors, strict=True)],
            raw.table,
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
        return free, columns, [powers(length)[::-1] ** -1.0 for length in lengths]

    def mode_basis(
        self, values: Coefficients, groups: Sequence[ModeGroup], times: Array, *, slopes: bool
    ) -> tuple[list[Array], list[Array]]:
        """Return for each observable its basis functions, (n, r), and derivatives in the parameters, (p, n, r)."""
        count, width = values.free.shape[0], len(values.d_free)
        parts: list[list[Array]] = [[] for _ in range(count)]
        d_parts: list[list[Array]] = [[] for _ in range(count)]
        for group in groups:
            factor = self.compiled.factors[group.factor]
            operators, d_operators = values.columns[factor.column], values.d_columns[factor.column]
            if group.root is None:
                system = companion(values.factors[group.factor], values.d_factors[group.factor], factor.multiplicity)
                found, d_found = companion_basis(
                    times, list(operators), [d_operators[:, o] for o in range(count)], system
                )
            else:
                root = group.root * self.units.span
                found = [exponential_basis(times, operator, root, factor.multiplicity) for operator in operators]
                d_found = [
                    np.stack(
                        [exponential_basis(times, d_operators[p, o], root, factor.multiplicity) for p in range(width)]
                    )
                    if width and slopes
                    else np.zeros((width, len(times), group.size))
                    for o in range(count)
                ]
            for o in range(count):
                parts[o].append(found[o])
                d_parts[o].append(d_found[o])
        if not groups:
            return [np.zeros((len(times), 0))] * count, [np.zeros((width, len(times), 0))] * count
        return [np.concatenate(p, axis=1) for p in parts], [np.concatenate(p, axis=2) for p in d_parts]

    def exponents(self, values: Coefficients, groups: Sequence[ModeGroup]) -> NDArray[np.complex128]:
        """Return the exponents of all modes and particular solutions in scaled time."""
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

    def means(self, values: Coefficients, times: Array) -> tuple[list[Array], list[Array]]:
        """Return the particular solution in scaled units at the user's times, (n,), and derivatives, (p, n)."""
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
            entries.append([form.channels.get(name, []) for name in self.system.channels])
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
        """Return observables in the user's own units, over the time of other units."""
        return self.compile(observables, units.plain(len(observables)))
