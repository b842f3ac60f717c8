"""The prior of the data: measured observables, free functions, modes and noise, in scaled units.

`Hyperparameters` holds all estimated numbers; `build_prior` returns the `Prior` of measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lodekit.data.inputs import InputSignal
from lodekit.data.noise import NoiseModel
from lodekit.data.records import Measurements, ObservableStatistics, Scaling
from lodekit.errors import DataError
from lodekit.prior.kernels import Kernel
from lodekit.prior.modes import ModeGroup
from lodekit.prior.observables import ObservableCompiler, Observables
from lodekit.support.arguments import Array


@dataclass(frozen=True)
class Hyperparameters:
    """All estimated numbers (not their logarithms), or derivatives with respect to them.

    theta: Parameters of the system, in the user's units; (p,).
    lengthscales, amplitudes: Of the free functions, or of the channels under the channel prior; lengthscales in scaled
        time, amplitudes in the user's units; (q,).
    mode_amplitudes: One for each group of modes; (g,).
    noise_std: Standard deviations of the noise levels, in the user's units.
    disturbance_lengthscales: Of the disturbances that have one, in scaled time.
    disturbance_amplitudes: Of all disturbances, in the user's units; for white noise the root of its spectral density.
    """

    theta: Array
    lengthscales: Array
    amplitudes: Array
    mode_amplitudes: Array
    noise_std: Array
    disturbance_lengthscales: Array = field(default_factory=lambda: np.zeros(0))
    disturbance_amplitudes: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All arrays, in the order of the fields."""
        return tuple(vars(self).values())

    def map(self, function: Callable[[Array], Array]) -> Hyperparameters:
        """Return the hyperparameters with a function applied to each array."""
        return Hyperparameters(*(function(part) for part in self.arrays))


@dataclass(frozen=True)
class Prior:
    """The prior of the data: observables, kernels of the free functions, modes and noise levels.

    observables: The measured observables.
    kernels: One for each free function.
    channels: All channels, for the channel prior; None for a prior on the free functions.
    """

    observables: Observables
    kernels: tuple[Kernel, ...]
    groups: tuple[ModeGroup, ...]
    noise: NoiseModel
    channels: Observables | None = None

    @property
    def units(self) -> Scaling:
        """The units of the scaled problem."""
        return self.observables.units

    @property
    def n_processes(self) -> int:
        """Number of lengthscales, and of amplitudes: one for each free function, or for each channel."""
        return len(self.kernels) if self.channels is None else self.channels.count

    @property
    def disturbances(self) -> dict[str, str]:
        """The kinds of disturbances, by name."""
        own = self.observables.disturbances
        return {} if own is None else dict(zip(own.names, own.kinds, strict=True))

    @property
    def has_process(self) -> bool:
        """Whether anything but initial states is random: free functions, channels or disturbances."""
        return bool(self.n_processes) or self.observables.disturbances is not None

    def with_time_origin(self, start: float, inputs: Mapping[str, InputSignal] | None = None) -> Prior:
        """Return the prior of another record, with its time zero and its inputs.

        Known functions of time keep their time axis; modes, and responses to inputs, begin at the new start.
        """
        channels = None if self.channels is None else self.channels.with_time_origin(start, inputs or {})
        return replace(self, observables=self.observables.with_time_origin(start, inputs or {}), channels=channels)

    def mode_std(self, amplitudes: Array) -> Array:
        """Return the prior standard deviation of each basis function of the modes."""
        return np.repeat(amplitudes, [group.size for group in self.groups])

    def mode_variance(self, amplitudes: Array) -> Array:
        """Return the prior variance of each basis function of the modes."""
        return self.mode_std(amplitudes) ** 2

    def sum_over_groups(self, values: Array) -> Array:
        """Return the sums over the basis functions of each group of modes."""
        starts = np.cumsum([0, *(group.size for group in self.groups)])[:-1]
        return np.add.reduceat(values, starts) if len(starts) else np.zeros(0)


def build_prior(
    measurements: Measurements,
    compiler: ObservableCompiler,
    latents: tuple[Kernel, ...],
    noise: str,
    *,
    channel_prior: bool = False,
    time: Scaling | None = None,
    scales: Mapping[str, float] | None = None,
) -> Prior:
    """Return the prior of the measured observables, in scaled units."""
    units = Scaling.from_measurements(measurements, time=time, scales=scales)
    observables = compiler.compile(measurements.names, units)
    names = compiler.undriven_system.channels
    channels = compiler.compile_unscaled(names, units) if channel_prior and latents else None
    model = NoiseModel.from_statistics(measurements.observable_statistics, units.scales, shared=noise == "shared")
    prior = Prior(observables, latents, observables.compiled.groups, model, channels)
    _check_determined_observables(prior, measurements.observable_statistics)
    return prior


def _check_determined_observables(prior: Prior, summaries: Sequence[ObservableStatistics]) -> None:
    """Raise if the equations force an observable to be zero and the data contradict this."""
    compiled = prior.observables.compiled
    # Checked exactly: special values of the parameters could be exceptions.
    values = compiled.split(np, compiled.table.nonzero_mask)
    for o, item in enumerate(summaries):
        known = compiled.signals[o].n_terms or prior.observables.input_response is not None
        known = known or prior.observables.disturbances is not None
        if values.free[o].any() or any(column[o].any() for column in values.mode_columns) or known:
            continue
        # Noise has a mean of zero up to its standard error, which two values do not determine.
        error = item.std / np.sqrt(item.count)
        if item.has_exact_values or (item.mean != 0 and (item.count < 3 or abs(item.mean) > 5.0 * error)):
            raise DataError(
                f"the equations force {item.observable} to be zero, but the data are not (mean {item.mean:.4g}); check "
                "the equations, or leave this observable out"
            )
