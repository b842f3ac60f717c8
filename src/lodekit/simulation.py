"""Random solutions of a system, drawn from its prior, to try things on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.arguments import check_count, check_finite, check_positive, check_seed, read_parameter_values, read_times
from lodekit.data.units import Units
from lodekit.errors import LodekitError
from lodekit.prior.draws import draw_solutions, natural_hyperparameters
from lodekit.prior.families import read_latent
from lodekit.prior.observables import ObservableReader
from lodekit.settings import find_value
from lodekit.system.system import System

__all__ = ["simulate"]

Array = NDArray[np.float64]


def simulate(
    system: System,
    t: ArrayLike,
    values: Mapping[str, float] | None = None,
    *,
    observable: str | Sequence[str] | None = None,
    latent: str = "se",
    lengthscale: float | None = None,
    size: int = 1,
    random_state: int | None = None,
) -> Array:
    """Return random solutions of a system, shape (size, n, channels); what is random in them varies by about one.

    Parameters
    ----------
    system : System
    t : array-like, shape (n,)
        Times, in any order.
    values : dict of str to float, optional
        Values of the parameters; fixed and start values of the system stand in for those that are missing.
    observable : str or sequence of str, optional
        Observables to return instead of the channels; the last axis stays where there is one.
    latent : str
        Covariance of all free functions: ``"se"``, or ``"matern-p/2"`` with odd p.
    lengthscale : float, optional
        Of the free functions, in the user's unit of time; a fifth of the time from first to last by default.
    size : int
        How many solutions.
    random_state : int, optional
        Seed of the draws.

    Examples
    --------
    >>> import lodekit as lk
    >>> drawn = simulate(lk.System("x' = v"), [0.0, 1.0, 2.0], size=4, random_state=0)
    >>> drawn.shape
    (4, 3, 2)
    """
    times = read_times(t)
    if not len(times):
        raise LodekitError("expected at least one time, got none")
    check_count("size", size)
    check_seed(random_state)
    span = float(np.ptp(times)) or 1.0
    length = span / 5 if lengthscale is None else check_positive("lengthscale", lengthscale)
    known = read_parameter_values(system.parameters, values)
    names = [observable] if isinstance(observable, str) else list(observable or system.plain_channels)
    units = Units(float(times.min()), span, np.ones(len(names)))
    observables = ObservableReader(system).compile(names, units)
    theta = np.array([find_value(system, name, known) for name in observables.compiled.parameters])
    latents = (read_latent(latent),) * system.free_functions
    with np.errstate(all="ignore"):
        hyper = natural_hyperparameters(observables, latents, theta, length / span)
        drawn = draw_solutions(observables, latents, hyper, times, int(size), np.random.default_rng(random_state))
    check_finite(drawn.transpose(1, 0, 2), times)
    return drawn
