"""What the engines work on: data and prior in scaled units, and the layout of what is learned.

Time is shifted to the start of the data and divided by their span, every observable by its own scale; results go back
to the user's units here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.compile import CompiledRows, RowValues
from lodekit.prior.latents import Latent
from lodekit.prior.modes import companion, companion_basis, exponential_basis

__all__ = ["Hyperparameters", "ModeGroup", "Prior", "Problem", "Rows", "Scaling", "mode_groups"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scaling:
    """Start and span of time."""

    start: float
    span: float

    def time(self, times: Array) -> Array:
        """Return scaled times."""
        return (times - self.start) / self.span


@dataclass(frozen=True)
class Hyperparameters:
    """Everything that is learned, in natural units of the scaled problem.

    Parameters
    ----------
    theta : array, shape (p,)
        Parameters of the system, in the user's units.
    lengthscales, deviations : arrays, shape (q,)
        Of the free functions, or of the channels where the prior stands on these; lengthscales in scaled time.
    mode_deviations : array, shape (g,)
    noise : array
        Standard deviations of the noise groups, in the user's units.
    """

    theta: Array
    lengthscales: Array
    deviations: Array
    mode_deviations: Array
    noise: Array


@dataclass(frozen=True)
class ModeGroup:
    """Basis functions that share a signal variance: a primary factor of the autonomous part.

    Parameters
    ----------
    factor : int
        Which compiled factor.
    root : complex or None
        In the user's time; None where parameters stand inside.
    size : int
        Number of basis functions.
    """

    factor: int
    root: complex | None
    size: int


def mode_groups(compiled: CompiledRows) -> tuple[ModeGroup, ...]:
    """Return the groups in order."""
    groups = []
    for index, factor in enumerate(compiled.factors):
        if factor.roots is None:
            degree = factor.coefficients.stop - factor.coefficients.start - 1
            groups.append(ModeGroup(index, None, degree * factor.multiplicity))
        else:
            groups += [ModeGroup(index, root, factor.multiplicity * (2 if root.imag else 1)) for root in factor.roots]
    return tuple(groups)


@dataclass(frozen=True)
class Rows:
    """Observables, compiled and scaled: what turns hyperparameters into coefficient arrays and basis functions.

    Parameters
    ----------
    compiled : CompiledRows
    scaling : Scaling
    scales : array, shape (o,)
        Units of the observables.
    """

    compiled: CompiledRows
    scaling: Scaling
    scales: Array

    def evaluate(self, theta: Array) -> RowValues:
        """Return coefficient arrays in scaled time and units."""
        raw = self.compiled.evaluate(theta)
        free, columns, factors = self._units
        return RowValues(
            raw.free * free,
            raw.d_free * free,
            [c * unit for c, unit in zip(raw.columns, columns, strict=True)],
            [c * unit for c, unit in zip(raw.d_columns, columns, strict=True)],
            [f * unit for f, unit in zip(raw.factors, factors, strict=True)],
            [f * unit for f, unit in zip(raw.d_factors, factors, strict=True)],
            raw.table,
        )

    @cached_property
    def _units(self) -> tuple[Array, list[Array], list[Array]]:
        """What coefficients are multiplied by: k derivatives in scaled time are span^k derivatives in the user's."""
        span = self.scaling.span

        def powers(length: int) -> Array:
            return span ** -np.arange(length, dtype=float)

        free = powers(self.compiled.free_shape[-1]) / self.scales[:, None, None]
        columns = [powers(length) / self.scales[:, None] for _, length in self.compiled.column_shapes]
        lengths = [factor.coefficients.stop - factor.coefficients.start for factor in self.compiled.factors]
        return free, columns, [powers(length)[::-1] ** -1.0 for length in lengths]

    def mode_basis(
        self, values: RowValues, groups: Sequence[ModeGroup], times: Array, *, slopes: bool
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
                root = group.root * self.scaling.span
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

    def exponents(self, values: RowValues, groups: Sequence[ModeGroup]) -> NDArray[np.complex128]:
        """Return the exponents of all modes and particular solutions in scaled time."""
        span = self.scaling.span
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

    def means(self, values: RowValues, times: Array) -> tuple[list[Array], list[Array]]:
        """Return the particular solution in scaled units at the user's times, (n,), and derivatives, (p, n)."""
        if not self.has_mean:
            zero, flat = np.zeros(len(times)), np.zeros((len(values.d_free), len(times)))
            return [zero] * len(self.scales), [flat] * len(self.scales)
        found = [signal.evaluate(times, *values.table) for signal in self.compiled.signals]
        return [v / s for (v, _), s in zip(found, self.scales, strict=True)], [
            d / s for (_, d), s in zip(found, self.scales, strict=True)
        ]


@dataclass(frozen=True)
class Prior:
    """The prior of the data: what was observed, the free functions, the modes, and which noise belongs to what.

    Parameters
    ----------
    rows : Rows
        The observed observables.
    latents : tuple of Latent
        One for each free function.
    groups : tuple of ModeGroup
    noise_group : tuple of int
        Which noise parameter belongs to each observable.
    channels : Rows or None
        All channels, where the prior stands on these and not on the free functions.
    """

    rows: Rows
    latents: tuple[Latent, ...]
    groups: tuple[ModeGroup, ...]
    noise_group: tuple[int, ...]
    channels: Rows | None = None

    @property
    def sources(self) -> int:
        """Number of lengthscales, and of deviations."""
        return len(self.latents) if self.channels is None else len(self.channels.scales)

    def mode_roots(self, deviations: Array) -> Array:
        """Return the prior deviation of every basis function of the modes."""
        return np.repeat(deviations, [group.size for group in self.groups])

    def mode_variance(self, deviations: Array) -> Array:
        """Return the prior variance of every basis function of the modes."""
        return self.mode_roots(deviations) ** 2

    def sum_groups(self, values: Array) -> Array:
        """Return the sums over the basis functions of each group of modes."""
        starts = np.cumsum([0, *(group.size for group in self.groups)])[:-1]
        return np.add.reduceat(values, starts) if len(starts) else np.zeros(0)

    @cached_property
    def noise_units(self) -> Array:
        """A unit for each noise parameter: the smallest scale among the observables that share it."""
        units = np.full(max(self.noise_group, default=-1) + 1, np.inf)
        np.minimum.at(units, np.array(self.noise_group, dtype=np.intp), self.rows.scales)
        return units


#: Coefficients; basis functions of the modes and means, each with derivatives in the parameters.
Design = tuple[RowValues, tuple[list[Array], list[Array]], tuple[list[Array], list[Array]]]


@dataclass(frozen=True)
class Problem:
    """Data in memory, and the prior.

    Parameters
    ----------
    prior : Prior
    times : array, shape (n,)
        All different times, in the user's units, ascending.
    index : list of int arrays
        For each observable, which times it was observed at; repeated observations repeat an index.
    values : list of arrays
        For each observable, in the user's units.
    known_noise : list of arrays
        Standard deviations where they are known, NaN where they are learned.
    """

    prior: Prior
    times: Array
    index: list[NDArray[np.intp]]
    values: list[Array]
    known_noise: list[Array]

    @property
    def rows(self) -> Rows:
        """The observed observables."""
        return self.prior.rows

    @property
    def latents(self) -> tuple[Latent, ...]:
        """The covariances of the free functions."""
        return self.prior.latents

    @property
    def groups(self) -> tuple[ModeGroup, ...]:
        """Basis functions of the modes that share a variance."""
        return self.prior.groups

    @cached_property
    def offsets(self) -> NDArray[np.intp]:
        """Where the observations of each observable begin, and the end."""
        return np.concatenate([[0], np.cumsum([len(values) for values in self.values])]).astype(np.intp)

    @cached_property
    def is_full(self) -> bool:
        """Whether every observable was observed exactly once at every time."""
        every = np.arange(len(self.times))
        return all(np.array_equal(index, every) for index in self.index)

    @cached_property
    def scaled_times(self) -> Array:
        """All different times, scaled."""
        return self.rows.scaling.time(self.times)

    @cached_property
    def lag(self) -> Array:
        """Differences of scaled times, shape (n, n)."""
        return self.scaled_times[:, None] - self.scaled_times[None, :]

    @cached_property
    def scaled_values(self) -> Array:
        """All observations in scaled units, observable after observable."""
        return np.concatenate([v / s for v, s in zip(self.values, self.rows.scales, strict=True)])

    @property
    def size(self) -> int:
        """Number of observations."""
        return sum(len(values) for values in self.values)

    def design(self, theta: Array, *, slopes: bool) -> Design:
        """Return coefficients, basis functions of the modes, and means at all times, with derivatives in theta.

        The last one is kept: many evaluations in a row change hyperparameters only, and some systems have nothing else.
        """
        key = (theta.tobytes(), slopes)
        kept = self._kept.get("last")
        if kept is None or kept[0] != key:
            rows = self.rows.evaluate(theta)
            basis = self.rows.mode_basis(rows, self.groups, self.scaled_times, slopes=slopes)
            kept = self._kept["last"] = (key, (rows, basis, self.rows.means(rows, self.times)))
        return kept[1]

    @cached_property
    def _kept(self) -> dict[str, tuple[tuple[bytes, bool], Design]]:
        return {}

    @cached_property
    def row_noise_group(self) -> NDArray[np.intp]:
        """Which noise parameter belongs to each observation."""
        return np.repeat(np.array(self.prior.noise_group, dtype=np.intp), np.diff(self.offsets))

    @cached_property
    def row_learns_noise(self) -> NDArray[np.bool_]:
        """Whether the noise of each observation is learned."""
        return np.isnan(np.concatenate(self.known_noise))

    @cached_property
    def _row_noise(self) -> tuple[Array, Array]:
        """Known noise variance of each observation in scaled units (zero where learned), and the square of its unit."""
        units = np.repeat(self.rows.scales, np.diff(self.offsets)) ** 2
        return np.where(self.row_learns_noise, 0.0, np.concatenate(self.known_noise)) ** 2 / units, units

    def noise_variance(self, noise: Array) -> Array:
        """Return the noise variance of every observation in scaled units."""
        known, units = self._row_noise
        if not len(noise):
            return known
        return known + self.row_learns_noise * noise[self.row_noise_group] ** 2 / units

    @cached_property
    def jacobian(self) -> float:
        """The logarithm that turns a density in scaled units into one in the user's units."""
        return -sum(len(v) * float(np.log(s)) for v, s in zip(self.values, self.rows.scales, strict=True))
