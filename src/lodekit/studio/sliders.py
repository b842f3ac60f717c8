"""Curves that follow sliders: an engine on the measurements, kept ready for any values of the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.records import parts_of
from lodekit.errors import LodekitError
from lodekit.learning.guesses.gather import Guess
from lodekit.learning.searches.starts import starting_points
from lodekit.preparing import prepare
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.settings import Arguments
from lodekit.setup import Setup
from lodekit.system.files import read_system_file
from lodekit.workflow import open_data

__all__ = ["Curve", "Warm", "warm_up"]

Array = NDArray[np.float64]
#: Times of a curve; enough for the eye while it moves.
_TIMES = 240
#: Beyond so many measurements a slider would lag behind.
MOST = 4000


@dataclass(frozen=True, eq=False)
class Curve:
    """The posterior mean at some values of the parameters.

    Parameters
    ----------
    names : tuple of str
        The channels.
    times : array, shape (n,)
    mean : array, shape (n, channels)
    log_evidence : float
        At these values.
    """

    names: tuple[str, ...]
    times: Array
    mean: Array
    log_evidence: float


@dataclass(frozen=True, eq=False)
class Warm:
    """An engine that answers for any values of the parameters, with all else as it is.

    Parameters
    ----------
    setup : Setup
    hyper : Hyperparameters
        Lengthscales, deviations and noise: a first guess.
    units : dict of str to str
        Of channels, and of ``t``.
    """

    setup: Setup
    hyper: Hyperparameters
    units: Mapping[str, str]

    def part(self, record: str = "") -> Setup:
        """Return what is settled for one record, by its name; for the first one where nothing has that name."""
        parts = self.setup.parts
        return parts.get(record, next(iter(parts.values()))) if parts else self.setup

    def points(self, record: str = "") -> dict[str, tuple[Array, Array]]:
        """Return the measurements of a record, by channel."""
        return {item.observable: (item.times, item.values) for item in self.part(record).measurements.shown}

    def curve(self, values: Mapping[str, float], record: str = "") -> Curve:
        """Return the posterior mean at some values, at times that are evenly spaced over the measurements.

        Parameters
        ----------
        values : dict of str to float
            Of the parameters; those that are missing are as in the first guess.
        record : str
            Which of several; the evidence is that of all.
        """
        setup, layout = self.part(record), self.setup.layout
        theta = np.array([values.get(n, own) for n, own in zip(layout.names, self.hyper.theta, strict=True)], float)
        modes = layout.fix_modes(self.hyper.mode_deviations, theta)
        hyper = replace(self.hyper, theta=theta, mode_deviations=modes)
        at = np.linspace(*setup.measurements.window, _TIMES)
        names = setup.system.plain_channels
        with setup.threads(), np.errstate(all="ignore"):
            mean = setup.posterior(hyper).mean(setup.reader.compile_plain(names, setup.prior.units), at)
            evidence = self.setup.engine.value(hyper) + layout.correction_at(theta)
        if not np.isfinite(mean).all():
            raise LodekitError("the curve is not finite at these values; move the sliders")
        return Curve(tuple(names), at, mean, float(evidence))


def warm_up(system: Path, data: Path, values: Mapping[str, float], **how: Any) -> Warm:
    """Return an engine on the measurements of a file, with a first guess of all that is not a parameter.

    Parameters
    ----------
    system : Path
        Of a system file.
    data : Path
    values : dict of str to float
        Of the parameters, for the first guess.
    **how
        As in `lodekit.workflow.open_data`.
    """
    file = read_system_file(system)
    gp, found = open_data(file, data, **how)
    if found.measurements.size > MOST:
        raise LodekitError(f"curves follow sliders up to {MOST} measurements; here are {found.measurements.size}")
    arguments = Arguments(**{item.name: getattr(gp, item.name) for item in fields(Arguments)})
    arguments.check()
    setup = prepare(file.system, arguments, found.measurements)
    objective, layout = setup.objective, setup.layout
    theta = np.array([values.get(name, 1.0) for name in layout.names], float)
    kept = setup.measurements
    scatter = kept.scatter()
    levels = None if scatter is None else setup.prior.noise.medians(scatter)
    generator = np.random.default_rng(0)
    with setup.threads():
        series = [item for part in parts_of(kept) for item in part.thumbnail()]
        starts = starting_points(objective, [Guess("given", theta)], series, 1, generator, levels)
    if not starts:
        raise LodekitError(
            "nothing can be computed at these values; move the sliders, or look at the units of the data"
        )
    hyper = layout.unpack(starts[0].x)
    return Warm(setup, hyper, {**found.units, **file.units})
