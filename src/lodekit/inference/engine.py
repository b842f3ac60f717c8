"""Protocols of engines, which compute the log evidence with its gradient, and the posterior, at given hyperparameters.

To add an engine, write a package like `dense`, and add its factory to `ENGINES` in `selection.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from lodekit.data.records import Measurements
from lodekit.errors import LodekitError
from lodekit.prior.compile import Coefficients
from lodekit.prior.kernels import Kernel
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array

#: Up to this many measurements a dense matrix is the fastest way: where engines for few and for many meet.
DENSE_CROSSOVER = 200


@dataclass(frozen=True)
class Evidence:
    """The log evidence in the user's units, and its gradient.

    value: The log evidence; minus infinity where nothing finite can be said.
    gradient: Derivatives in the parameters, and in the logarithms of all else.
    error: About how large an error rounding makes in the value.
    """

    value: float
    gradient: Hyperparameters
    error: float = 0.0

    @classmethod
    def infeasible(cls, hyper: Hyperparameters) -> Evidence:
        """Return a log evidence of minus infinity with a gradient of zeros, for points where nothing is finite."""
        return cls(-np.inf, hyper.map(np.zeros_like))

    def __sub__(self, other: Evidence) -> Evidence:
        """Return the log evidence of some measurements, conditioned on others of which the other one is."""
        gradient = type(self.gradient)(*map(np.subtract, self.gradient.arrays, other.gradient.arrays))
        return Evidence(self.value - other.value, gradient, self.error + other.error)


@dataclass(frozen=True)
class SearchLimits:
    """How far a search may take lengthscales and deviations, and when it has found something new.

    min_lengthscale: The shortest lengthscale that can be learned, in scaled time.
    max_shrink_factor: By what factor a lengthscale may shrink in one search; infinite where that makes no evaluation
        dearer.
    max_lengthscale: The longest lengthscale, in scaled time.
    max_log_std_change: How far the logarithms of deviations of processes may get from their start, which matches the
        data.
    evidence_tolerance: Two searches that end this close to each other in evidence have found the same optimum.
    """

    min_lengthscale: float
    max_shrink_factor: float = np.inf
    max_lengthscale: float = 100.0
    max_log_std_change: float = 30.0
    evidence_tolerance: float = 1e-2


def channel_search_limits(min_lengthscale: float, max_shrink_factor: float = np.inf) -> SearchLimits:
    """Return how far a search may take the hyperparameters of the channel prior.

    A channel's deviation has a unit, that of its data. Where other channels bind it, a larger one changes nothing any
    more, and the evidence is all but flat to infinity: a search ends at a hundred times what suits the data, and where
    what it finds differs by less than half a unit of log evidence.
    """
    return SearchLimits(
        min_lengthscale,
        max_shrink_factor,
        max_lengthscale=20.0,
        max_log_std_change=float(np.log(1e2)),
        evidence_tolerance=0.5,
    )


class Posterior(Protocol):
    """The posterior at given hyperparameters: means, variances, covariances and samples of any observables."""

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""

    @property
    def error(self) -> float:
        """About how large an error rounding makes in the log evidence."""

    @property
    def mean_rounding_error(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data."""

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy; none where nothing is wrong."""

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met."""

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Shapes: times (n,).
        """

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o)."""


class BasePosterior:
    """What most posteriors have in common: states and amplitudes do not cancel."""

    @property
    def mean_rounding_error(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data."""
        return float(np.finfo(float).eps)

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy: none."""
        return []


class Engine(Protocol):
    """The log evidence and the posterior of a prior with data, at any hyperparameters."""

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""

    @property
    def size(self) -> int:
        """The number of measurements."""

    @property
    def search_limits(self) -> SearchLimits:
        """How far a search may take lengthscales and deviations."""

    @property
    def benefits_from_threads(self) -> bool:
        """Whether its matrices are so large that several threads pay."""

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""

    def posterior(self, hyper: Hyperparameters) -> Posterior:
        """Return the posterior at some hyperparameters; raise where it is not finite."""

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return the mean square of the data of each observable, (o,), and of each basis function of the modes, (r,).

        In scaled units, the particular solution taken off.
        """

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return why nothing finite can be said at some hyperparameters, as a sentence; empty where it is not known."""


class BaseEngine:
    """What most engines have in common."""

    uses_device: ClassVar[bool] = False
    has_states: ClassVar[bool] = False
    approximates_channel_prior: ClassVar[bool] = False

    def value(self: Engine, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""
        return self.value_with_error(hyper)[0]

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return an empty text: states, modes or covariances that are not finite have many causes."""
        return ""


@dataclass(frozen=True)
class EngineTask:
    """A task for an engine: all that decides which kind can take it, and at what cost.

    size: Number of measurements.
    latents: One for each free function.
    has_exact_values: Whether some values have no noise at all.
    channel_prior: Whether the prior stands on the channels.
    in_memory: Whether the measurements themselves are there, or only sums over them.
    tolerance: The largest error of the covariance, relative to itself and to the noise, for engines that have one.
    device: Where PyTorch computes, for engines that use it.
    has_inputs: Whether inputs are known: the response to them is part of the mean, and not smooth.
    has_interval_means: Whether some observable is a mean or a total over an interval.
    has_disturbances: Whether disturbances drive the equations: they are states of a process, from rest at the start
        of a record.
    on_disk: Whether measurements that are not in memory can be read again, piece by piece.
    """

    size: int
    latents: Sequence[Kernel]
    has_exact_values: bool = False
    channel_prior: bool = False
    in_memory: bool = True
    tolerance: float = 1e-10
    device: str | None = None
    has_inputs: bool = False
    has_interval_means: bool = False
    has_disturbances: bool = False
    on_disk: bool = False


class EngineFactory(Protocol):
    """A kind of engine: what it can take, what it costs, how it is made."""

    @property
    def name(self) -> str:
        """Its name, as users write it: ``engine="dense"``."""

    @property
    def uses_device(self) -> bool:
        """Whether the engine computes on the device given by ``device=``."""

    @property
    def has_states(self) -> bool:
        """Whether the engine filters states: it takes disturbances and rows on disk, in linear time."""

    @property
    def approximates_channel_prior(self) -> bool:
        """Whether the channel prior is truncated, so that another engine should confirm the evidence."""

    def rejection_reason(self, task: EngineTask) -> str:
        """Return why it cannot take a case, and what to do; empty where it can."""

    def cost(self, task: EngineTask) -> float:
        """Return about how many operations an evaluation takes; infinite where only those who ask get this engine."""

    def selection_reason(self, task: EngineTask) -> str:
        """Return what speaks for it, where others could have taken the case as well."""

    def create(self, prior: Prior, measurements: Measurements, task: EngineTask) -> Engine:
        """Return an engine on measurements."""


def find_torch_device(name: str) -> Any:
    """Return a PyTorch device; raise where it is not there, or has no double precision."""
    try:
        import torch
    except ImportError:
        raise LodekitError(f"device={name!r} needs PyTorch; try: pip install 'lodekit[gpytorch]'") from None
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise LodekitError(f"expected a device such as 'cuda', 'cuda:1' or 'cpu', got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LodekitError(f"device={name!r} was asked for, but PyTorch sees no CUDA device here")
    if device.type not in ("cuda", "cpu"):
        raise LodekitError(f"device={name!r} has no double precision; expected 'cuda' or 'cpu'")
    return device
