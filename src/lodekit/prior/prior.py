"""The prior of the data: what was measured, the free functions, the modes and the noise, in scaled units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.data.measurements import Measurements, Summary
from lodekit.data.noise import Noise
from lodekit.data.units import Units
from lodekit.errors import DataError
from lodekit.prior.latents import Latent
from lodekit.prior.modes import ModeGroup, mode_groups
from lodekit.prior.observables import ObservableReader, Observables

__all__ = ["Prior", "make_prior"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Prior:
    """The prior of the data: what was observed, the free functions, the modes, and which noise belongs to what.

    Parameters
    ----------
    observables : Observables
        What was measured.
    latents : tuple of Latent
        One for each free function.
    groups : tuple of ModeGroup
    noise : Noise
    channels : Observables or None
        All channels, where the prior stands on these and not on the free functions.
    """

    observables: Observables
    latents: tuple[Latent, ...]
    groups: tuple[ModeGroup, ...]
    noise: Noise
    channels: Observables | None = None

    @property
    def units(self) -> Units:
        """The units of the scaled problem."""
        return self.observables.units

    @property
    def processes(self) -> int:
        """Number of lengthscales, and of deviations: one for each free function, or for each channel."""
        return len(self.latents) if self.channels is None else self.channels.count

    @property
    def disturbances(self) -> dict[str, str]:
        """The kinds of disturbances, by name."""
        own = self.observables.disturbed
        return {} if own is None else dict(zip(own.names, own.kinds, strict=True))

    @property
    def is_random(self) -> bool:
        """Whether anything but initial states is random: free functions, channels or disturbances."""
        return bool(self.processes) or self.observables.disturbed is not None

    def starting_at(self, start: float, inputs: Mapping[str, InputSignal] | None = None) -> Prior:
        """Return the same prior with another time zero, and with other inputs: that of another record.

        Known functions of time stay where they are; modes, and responses to inputs, begin at the new start.

        Parameters
        ----------
        start : float
            In the user's time.
        inputs : dict of str to InputSignal, optional
            What is known in that record; the same channels.
        """
        channels = None if self.channels is None else self.channels.starting_at(start, inputs or {})
        return replace(self, observables=self.observables.starting_at(start, inputs or {}), channels=channels)

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


def make_prior(
    measurements: Measurements,
    reader: ObservableReader,
    latents: tuple[Latent, ...],
    noise: str,
    *,
    on_channels: bool = False,
    time: Units | None = None,
    scales: Mapping[str, float] | None = None,
) -> Prior:
    """Return the prior of the measured observables, in scaled units.

    Parameters
    ----------
    measurements : Measurements
    reader : ObservableReader
        Of the system, with the inputs that are known.
    latents : tuple of Latent
        One for each free function.
    noise : {"shared", "channel"}
    on_channels : bool
        Whether the prior stands on the channels, and not on the free functions.
    time, scales : optional
        Units to keep, from an earlier prior; those of the data otherwise.
    """
    units = Units.of(measurements, time=time, scales=scales)
    observables = reader.compile(measurements.names, units)
    channels = reader.compile_plain(reader.reduced.channels, units) if on_channels and latents else None
    own = Noise.of(measurements.summaries, units.scales, shared=noise == "shared")
    prior = Prior(observables, latents, mode_groups(observables.compiled), own, channels)
    _check_forced_values(prior, measurements.summaries)
    return prior


def _check_forced_values(prior: Prior, summaries: Sequence[Summary]) -> None:
    """Raise where the equations determine an observable completely and the data say otherwise."""
    compiled = prior.observables.compiled
    # Exactly, and not at some values of the parameters: others might be the exception.
    values = compiled.take_apart(np, compiled.table.occurring)
    for o, item in enumerate(summaries):
        known = compiled.signals[o].count or prior.observables.driven is not None
        known = known or prior.observables.disturbed is not None
        if values.free[o].any() or any(column[o].any() for column in values.columns) or known:
            continue
        # Noise alone has a mean of zero, give or take its error, which two values do not tell.
        error = item.spread / np.sqrt(item.count)
        if item.exact or (item.mean != 0 and (item.count < 3 or abs(item.mean) > 5.0 * error)):
            raise DataError(
                f"the equations force {item.observable} to be zero, but the data are not (mean {item.mean:.4g}); check "
                "the equations, or leave this observable out"
            )
