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

#: Up to this many measurements the dense engine is the fastest one.
DENSE_CROSSOVER = 200


@dataclass(frozen=True)
class Evidence:
    """The log evidence in the user's units, and its gradient.

    value: The log evidence; minus infinity if it is not finite.
    gradient: Derivatives in the parameters, and in the logarithms of hyperparameters and noise levels.
    error: The estimated rounding error of the value.
    """

    value: float
    gradient: Hyperparameters
    error: float = 0.0

    @classmethod
    def infeasible(cls, hyper: Hyperparameters) -> Evidence:
        """Return a log evidence of minus infinity with a gradient of zeros."""
        return cls(-np.inf, hyper.map(np.zeros_like))

    def __sub__(self, other: Evidence) -> Evidence:
        """Return a conditional log evidence: `other` is that of the measurements that are conditioned on."""
        gradient = type(self.gradient)(*map(np.subtract, self.gradient.arrays, other.gradient.arrays))
        return Evidence(self.value - other.value, gradient, self.error + other.error)


@dataclass(frozen=True)
class SearchLimits:
    """Bounds of lengthscales and amplitudes in a search, and the tolerance for distinct optima.

    min_lengthscale: The shortest lengthscale, in scaled time.
    max_shrink_factor: The largest factor by which one search may shorten a lengthscale; infinite if short ones are not
        more expensive.
    max_lengthscale: The longest lengthscale, in scaled time.
    max_log_std_change: The largest change of a log amplitude of a process from its start, which matches the variance
        of the data.
    evidence_tolerance: Searches with a smaller difference in log evidence have found the same optimum.
    """

    min_lengthscale: float
    max_shrink_factor: float = np.inf
    max_lengthscale: float = 100.0
    max_log_std_change: float = 30.0
    evidence_tolerance: float = 1e-2


def channel_search_limits(min_lengthscale: float, max_shrink_factor: float = np.inf) -> SearchLimits:
    """Return the search limits of the channel prior.

    If the equations bind a channel to others, a larger amplitude of this channel hardly changes the log evidence: a
    search is limited to a hundred times the start value, and optima within half a nat are the same.
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
        """The estimated rounding error of the log evidence."""

    @property
    def mean_rounding_error(self) -> float:
        """The estimated rounding error of the mean, relative to the data."""

    def warnings(self) -> list[str]:
        """Return warnings about the accuracy; empty if there are none."""

    def check_exact_values(self) -> None:
        """Raise if the posterior does not meet exact values."""

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Shapes: times (n,).
        """

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return samples of observables from the posterior, shape (size, n, o)."""


class BasePosterior:
    """Defaults of a posterior whose mean is a sum without cancellation."""

    @property
    def mean_rounding_error(self) -> float:
        """The estimated rounding error of the mean, relative to the data: the machine precision."""
        return float(np.finfo(float).eps)

    def warnings(self) -> list[str]:
        """Return an empty list: there are no warnings about the accuracy."""
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
        """The bounds of lengthscales and amplitudes in a search."""

    @property
    def benefits_from_threads(self) -> bool:
        """Whether its matrices are large enough to benefit from several threads."""

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity if it is not finite."""

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units; minus infinity if it is not finite."""

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and its estimated rounding error."""

    def posterior(self, hyper: Hyperparameters) -> Posterior:
        """Return the posterior at given hyperparameters; raise if it is not finite."""

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return the mean square of the data of each observable, (o,), and of each basis function of the modes, (r,).

        In scaled units, the data minus the particular solution.
        """

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return why the log evidence is not finite at given hyperparameters, as a sentence; empty if unknown."""


class BaseEngine:
    """Defaults of an engine."""

    uses_device: ClassVar[bool] = False
    has_states: ClassVar[bool] = False
    approximates_channel_prior: ClassVar[bool] = False

    def value(self: Engine, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units; minus infinity if it is not finite."""
        return self.value_with_error(hyper)[0]

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return an empty text: the cause is unknown."""
        return ""


@dataclass(frozen=True)
class EngineTask:
    """A task for an engine: the properties of data and model that determine which engines can be used, and their cost.

    size: Number of measurements.
    latents: The kernel of each free function.
    has_exact_values: Whether some values have no noise.
    channel_prior: Whether the prior is on the channels.
    in_memory: Whether the measurements are in memory; otherwise only sums over them are.
    tolerance: The largest error of the covariance, relative to itself and to the noise, for engines that have one.
    device: The PyTorch device, for engines that use it.
    has_inputs: Whether there are known inputs; the response to them is part of the mean, and not smooth.
    has_interval_means: Whether some observable is a mean or a total over an interval.
    has_disturbances: Whether disturbances drive the equations, with states that are at rest at the start of a record.
    on_disk: Whether measurements that are not in memory can be read from disk in batches.
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
    """A kind of engine: which tasks it accepts, at what cost, and how it is created."""

    @property
    def name(self) -> str:
        """The name of the engine, as users write it: ``engine="dense"``."""

    @property
    def uses_device(self) -> bool:
        """Whether the engine computes on the device given by ``device=``."""

    @property
    def has_states(self) -> bool:
        """Whether the engine filters states: it accepts disturbances and rows on disk, in linear time."""

    @property
    def approximates_channel_prior(self) -> bool:
        """Whether the channel prior is truncated, so that another engine should confirm the evidence."""

    def rejection_reason(self, task: EngineTask) -> str:
        """Return why the engine cannot be used for a task, and what to do; empty if it can."""

    def cost(self, task: EngineTask) -> float:
        """Return the approximate number of operations of an evaluation; infinite if never chosen automatically."""

    def selection_reason(self, task: EngineTask) -> str:
        """Return the reason for choosing this engine if others could be used as well."""

    def create(self, prior: Prior, measurements: Measurements, task: EngineTask) -> Engine:
        """Return an engine for some measurements."""


def find_torch_device(name: str) -> Any:
    """Return a PyTorch device; raise if it is unavailable or has no double precision."""
    try:
        import torch
    except ImportError:
        raise LodekitError(f"device={name!r} needs PyTorch; try: pip install 'lodekit[gpytorch]'") from None
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise LodekitError(f"expected a device such as 'cuda', 'cuda:1' or 'cpu', got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LodekitError(f"device={name!r} was requested, but PyTorch finds no CUDA device")
    if device.type not in ("cuda", "cpu"):
        raise LodekitError(f"device={name!r} has no double precision; expected 'cuda' or 'cpu'")
    return device
