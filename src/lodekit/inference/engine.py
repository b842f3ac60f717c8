"""The protocols of engines: the log evidence with its gradient, and the posterior, at any hyperparameters.

A new engine is a folder beside `dense` and `spectral` with a `Kind`, and one word in `choice.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.latents import Latent
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Prior

__all__ = [
    "CROSSOVER",
    "DISTURBED",
    "Case",
    "Engine",
    "Evidence",
    "Kind",
    "Posterior",
    "SearchLimits",
    "channel_limits",
]

Array = NDArray[np.float64]
#: Up to this many measurements a dense matrix is the fastest way: where engines for few and for many meet.
CROSSOVER = 200
#: Why engines without states refuse disturbances.
DISTURBED = "disturbances are processes with states; use engine='markov'"


@dataclass(frozen=True)
class Evidence:
    """The log evidence in the user's units, and its gradient.

    Parameters
    ----------
    value : float
        The log evidence; minus infinity where nothing finite can be said.
    gradient : Hyperparameters
        Derivatives in the parameters, and in the logarithms of all else.
    error : float
        About how large an error rounding makes in the value.
    """

    value: float
    gradient: Hyperparameters
    error: float = 0.0

    @classmethod
    def impossible(cls, hyper: Hyperparameters) -> Evidence:
        """Return a log evidence of minus infinity with a gradient of zeros, for points where nothing is finite.

        Parameters
        ----------
        hyper : Hyperparameters
            Gives the gradient its shapes.
        """
        return cls(-np.inf, hyper.map(np.zeros_like))


@dataclass(frozen=True)
class SearchLimits:
    """How far a search may take lengthscales and deviations, and when it has found something new.

    Parameters
    ----------
    shortest : float
        The shortest lengthscale that can be learned, in scaled time.
    stride : float
        By what factor a lengthscale may shrink in one search; infinite where that makes no evaluation dearer.
    longest : float
        The longest lengthscale, in scaled time.
    deviations : float
        How far the logarithms of deviations of processes may get from their start, which matches the data.
    agree : float
        Two searches that end this close to each other in evidence have found the same optimum.
    """

    shortest: float
    stride: float = np.inf
    longest: float = 100.0
    deviations: float = 30.0
    agree: float = 1e-2


def channel_limits(shortest: float, stride: float = np.inf) -> SearchLimits:
    """Return how far a search may take the hyperparameters of the channel prior.

    A channel's deviation has a unit, that of its data. Where other channels bind it, a larger one changes nothing any
    more, and the evidence is all but flat to infinity: a search ends at a hundred times what suits the data, and where
    what it finds differs by less than half a unit of log evidence.

    Parameters
    ----------
    shortest, stride : float
        As in `SearchLimits`.
    """
    return SearchLimits(shortest, stride, longest=20.0, deviations=float(np.log(1e2)), agree=0.5)


class Posterior(Protocol):
    """The posterior at given hyperparameters: means, variances, covariances and samples of any observables."""

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""

    @property
    def error(self) -> float:
        """About how large an error rounding makes in the log evidence."""

    @property
    def rounding(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data."""

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy; none where nothing is wrong."""

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met."""

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Parameters
        ----------
        observables : Observables
            Compiled, o of them; their units are those of the answer.
        times : array, shape (n,)
            In the user's units.
        """

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o).

        Parameters
        ----------
        observables, times
            As in `mean`.
        size : int
            How many functions.
        generator : numpy.random.Generator
        """


class Engine(Protocol):
    """The log evidence and the posterior of a prior with data, at any hyperparameters."""

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""

    @property
    def size(self) -> int:
        """The number of measurements."""

    @property
    def limits(self) -> SearchLimits:
        """How far a search may take lengthscales and deviations."""

    @property
    def is_threaded(self) -> bool:
        """Whether its matrices are so large that several threads pay."""

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""

    def appraise(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""

    def posterior(self, hyper: Hyperparameters) -> Posterior:
        """Return the posterior at some hyperparameters; raise where it is not finite."""

    def powers(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return the mean square of the data of each observable, (o,), and of each basis function of the modes, (r,).

        In scaled units, the particular solution taken off.

        Parameters
        ----------
        coefficients : Coefficients
            Of the measured observables, at some values of the parameters.
        """

    def trouble(self, hyper: Hyperparameters) -> str:
        """Return why nothing finite can be said at some hyperparameters, as a sentence; empty where it is not known."""


@dataclass(frozen=True)
class Case:
    """A task for an engine: all that decides which kind can take it, and at what cost.

    Parameters
    ----------
    size : int
        Number of measurements.
    latents : sequence of Latent
        One for each free function.
    exact : bool
        Whether some values have no noise at all.
    on_channels : bool
        Whether the prior stands on the channels.
    in_memory : bool
        Whether the measurements themselves are there, or only sums over them.
    tolerance : float
        The largest error of the covariance, relative to itself and to the noise, for engines that have one.
    device : str, optional
        Where PyTorch computes, for engines that use it.
    driven : bool
        Whether inputs are known: the response to them is part of the mean, and not smooth.
    averaged : bool
        Whether some observable is a mean or a total over an interval.
    disturbed : bool
        Whether disturbances drive the equations: they are states of a process, from rest at the start of a record.
    on_disk : bool
        Whether measurements that are not in memory can be read again, piece by piece.
    """

    size: int
    latents: Sequence[Latent]
    exact: bool = False
    on_channels: bool = False
    in_memory: bool = True
    tolerance: float = 1e-10
    device: str | None = None
    driven: bool = False
    averaged: bool = False
    disturbed: bool = False
    on_disk: bool = False


class Kind(Protocol):
    """A kind of engine: what it can take, what it costs, how it is made."""

    @property
    def name(self) -> str:
        """Its name, as users write it: ``engine="dense"``."""

    @property
    def uses_device(self) -> bool:
        """Whether it computes where ``device=`` says."""

    def refuses(self, case: Case) -> str:
        """Return why it cannot take a case, and what to do; empty where it can."""

    def cost(self, case: Case) -> float:
        """Return about how many operations an evaluation takes; infinite where only those who ask get this engine."""

    def reason(self, case: Case) -> str:
        """Return what speaks for it, where others could have taken the case as well."""

    def make(self, prior: Prior, measurements: Measurements, case: Case) -> Engine:
        """Return an engine on measurements.

        Parameters
        ----------
        prior : Prior
            Of the measured observables.
        measurements : Measurements
            In memory, or sums over them.
        case : Case
            The same in short; it was not refused.
        """
