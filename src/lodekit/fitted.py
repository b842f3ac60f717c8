"""A fit as one frozen value: its setup, the optimum with its curvature, and everything that follows from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from lodekit.arguments import check_count, check_positive, check_seed
from lodekit.data.measurements import Measurements, typical_noise
from lodekit.errors import LodekitError
from lodekit.inference.choice import Choice, check_engine
from lodekit.inference.devices import find_device
from lodekit.inference.engine import Case, Engine, Posterior
from lodekit.labels import Labels
from lodekit.learning.curvature import covariance_from_curvature, reduced_curvature
from lodekit.learning.diagnosis import describe_hyperparameters, find_warnings
from lodekit.learning.estimates import Estimate, estimate_parameters
from lodekit.learning.objective import Objective
from lodekit.learning.search import Optimum
from lodekit.learning.steps import warn_of_steps
from lodekit.learning.transforms import Layout
from lodekit.learning.uncertainty import Uncertainty
from lodekit.prior.families import read_latent
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.latents import Latent
from lodekit.prior.observables import ObservableReader, Observables
from lodekit.prior.prior import Prior
from lodekit.system.system import System

__all__ = ["Arguments", "Fit", "Labels", "Setup"]

Array = NDArray[np.float64]
_NOISES = ("channel", "shared")
_PRIORS = ("latent", "channels")


@dataclass(frozen=True)
class Arguments:
    """How a system is fitted: the arguments of `lodekit.LODEGP` beside the system, where they are described.

    Parameters
    ----------
    latent : str or sequence of str
        Covariance of the free functions.
    prior : {"latent", "channels"}
        Whether the processes are the free functions or the channels.
    noise : {"channel", "shared"}
        One learned level of noise for each observable, or one for all.
    engine : str
        ``"auto"``, or the name of an engine.
    tolerance : float
        The largest error of the covariance, for engines that have one.
    restarts : int
        How many starts are followed at most.
    random_state : int, optional
        Seed of the starts.
    n_jobs : int, optional
        How many starts are followed at the same time.
    device : str, optional
        Where PyTorch computes; NumPy does otherwise.
    mode_deviation : float, optional
        Of all modes, where it is not learned.
    """

    latent: str | Sequence[str] = "se"
    prior: str = "latent"
    noise: str = "channel"
    engine: str = "auto"
    tolerance: float = 1e-10
    restarts: int = 6
    random_state: int | None = None
    n_jobs: int | None = None
    device: str | None = None
    mode_deviation: float | None = None

    def check(self) -> None:
        """Raise where an argument is not what it should be."""
        if self.noise not in _NOISES:
            raise LodekitError(f"expected noise='channel' or 'shared', got {self.noise!r}")
        if self.prior not in _PRIORS:
            raise LodekitError(f"expected prior='latent' or 'channels', got {self.prior!r}")
        check_engine(self.engine)
        if isinstance(self.tolerance, bool) or not isinstance(self.tolerance, Real) or not 0 < self.tolerance <= 0.1:
            raise LodekitError(f"expected a tolerance above zero and at most 0.1, got {self.tolerance!r}")
        if self.mode_deviation is not None:
            check_positive("mode_deviation", self.mode_deviation)
        if self.device is not None:
            find_device(self.device)
        check_count("restarts", self.restarts)
        check_seed(self.random_state)
        if self.n_jobs is not None and (not isinstance(self.n_jobs, Integral) or self.n_jobs == 0):
            raise LodekitError(f"expected n_jobs as a whole number other than zero, or None, got {self.n_jobs!r}")

    def latents(self, system: System) -> tuple[Latent, ...]:
        """Return the covariance of each free function of a system, in order; raise where their number is wrong.

        Parameters
        ----------
        system : System
        """
        count = system.free_functions
        if not isinstance(self.latent, str | Sequence):
            raise LodekitError(f"expected latent as a text or a list of texts, got {type(self.latent).__name__}")
        names = [self.latent] * count if isinstance(self.latent, str) else list(self.latent)
        if len(names) != count:
            raise LodekitError(f"expected one latent for each of the {count} free functions, got {len(names)}")
        return tuple(read_latent(name) for name in names)

    def to_dict(self) -> dict[str, Any]:
        """Return all arguments by name."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything that is settled before anything is learned.

    Parameters
    ----------
    system : System
        What is fitted.
    arguments : Arguments
        How it is fitted.
    measurements : Measurements
        What it is fitted to.
    choice : Choice
        The kind of the engine, and why it was taken.
    engine : Engine
        Computes the log evidence and the posterior; it holds the prior.
    layout : Layout
        Where everything that is learned stands in the vector that is searched.
    case : Case
        What the engine was chosen for.
    """

    system: System
    arguments: Arguments
    measurements: Measurements
    choice: Choice
    engine: Engine
    layout: Layout
    case: Case

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.engine.prior

    @cached_property
    def objective(self) -> Objective:
        """The function that is maximised: the log evidence, plus the log prior where parameters have priors."""
        return Objective(self.engine, self.layout, dict(self.system.parameters))

    @cached_property
    def reader(self) -> ObservableReader:
        """The reader of observables of the system."""
        return ObservableReader(self.system)

    def posterior(self, hyper: Hyperparameters) -> Posterior:
        """Return the posterior at some hyperparameters, in the form that keeps its digits."""
        return self.engine.posterior(hyper)

    def threads(self) -> AbstractContextManager[Any]:
        """Return a context in which linear algebra uses one thread, or all where matrices are large.

        Threads that wait for each other make small matrices slower, much slower on a busy machine.
        """
        limits: AbstractContextManager[Any] = threadpool_limits(None if self.engine.is_threaded else 1, user_api="blas")
        return limits


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model: its setup, the optimum, the curvature there, and all that follows from them.

    Parameters
    ----------
    setup : Setup
        Everything that was settled before anything was learned.
    optimum : Optimum
        Where the search ended.
    curvature : array, shape (n, n)
        Minus the Hessian of the objective at the optimum, on the scale of the search.
    posterior : Posterior
        At the optimum.
    labels : Labels
        The words that figures, reports and files use.
    notes : tuple of str
        What was found out about the files or the DataFrame that were read.

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> gp.fit_.measurements.size, gp.fit_.choice.name
    (4, 'dense')
    """

    setup: Setup
    optimum: Optimum
    curvature: Array
    posterior: Posterior
    labels: Labels = field(default_factory=Labels)
    notes: tuple[str, ...] = ()

    @property
    def system(self) -> System:
        """The system that was fitted."""
        return self.setup.system

    @property
    def arguments(self) -> Arguments:
        """The arguments that it was fitted with."""
        return self.setup.arguments

    @property
    def measurements(self) -> Measurements:
        """The measurements that it was fitted to."""
        return self.setup.measurements

    @property
    def choice(self) -> Choice:
        """The kind of engine that was used, and why."""
        return self.setup.choice

    @property
    def layout(self) -> Layout:
        """Where everything stands in the vector that was searched."""
        return self.setup.layout

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.setup.prior

    @cached_property
    def hyperparameters(self) -> Hyperparameters:
        """Everything that was learned: lengthscales in scaled time, parameters and levels in the user's units."""
        return self.layout.unpack(self.optimum.x)

    @cached_property
    def log_evidence(self) -> float:
        """The log evidence at the optimum, in the user's units."""
        return self.posterior.value

    @cached_property
    def information(self) -> Array:
        """The curvature, less the share of the measurements that learning has used up; errors come from it."""
        return reduced_curvature(self.curvature, self.layout, self.setup.engine.size, self.optimum.at_bound)

    @cached_property
    def covariance(self) -> Array:
        """The covariance of everything learned, on the scale of the search, shape (n, n)."""
        return covariance_from_curvature(self.information, ~self.optimum.at_bound)

    @cached_property
    def uncertainty(self) -> Uncertainty:
        """What everything learned could be as well, and what that does to predictions."""
        return Uncertainty(self.setup.objective, self.optimum, self.information, self.setup.posterior)

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """The parameters of the system with standard errors and intervals, by name."""
        points = self.measurements.distinct
        return estimate_parameters(self.layout, self.optimum.x, self.information, self.optimum.at_bound, points)

    @cached_property
    def noise(self) -> dict[str, float]:
        """Learned levels of noise by name, in the user's units."""
        return self.prior.noise.describe(self.hyperparameters.noise)

    @cached_property
    def described(self) -> dict[str, float]:
        """Lengthscales and deviations by name, in the user's units."""
        return describe_hyperparameters(self.prior, self.hyperparameters, self.system.channels)

    @cached_property
    def warnings(self) -> list[str]:
        """Sentences that users should read before they believe the fit; none where nothing is wrong."""
        found = find_warnings(self.system, self.posterior, self.layout, self.optimum, self.estimates)
        if self.measurements.sums is None and self.prior.latents:
            found += warn_of_steps(self.measurements.series, self.noise, self.system.channels)
        return found

    def observables(self, names: Sequence[str]) -> Observables:
        """Return observables, compiled in the user's units.

        Parameters
        ----------
        names : sequence of str
            Linear differential expressions of the channels.
        """
        return self.setup.reader.compile_plain(names, self.prior.units)

    def typical_noise(self, observable: str) -> float:
        """Return the standard deviation of the noise of one more measurement, in the user's units.

        It is the learned level of the observable; else the root mean square of known noise, its own or that of all
        observables; else the highest level.

        Parameters
        ----------
        observable : str
        """
        if self.prior.noise.shared and self.noise:
            return self.noise["shared"]
        if observable in self.noise:
            return self.noise[observable]
        known = typical_noise(self.measurements.summaries, observable)
        return known if not np.isnan(known) else max(self.noise.values(), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, ready for JSON; what is infinite is None."""

        def finite(value: float) -> float | None:
            return value if math.isfinite(value) else None

        return {
            "parameters": {
                name: {
                    "value": estimate.value,
                    "std_error": finite(estimate.std_error),
                    "interval": [finite(edge) for edge in estimate.interval],
                    "identified": estimate.identified,
                    "note": estimate.note,
                }
                for name, estimate in self.estimates.items()
            },
            "noise": dict(self.noise),
            "hyperparameters": dict(self.described),
            "log_evidence": float(self.log_evidence),
            "observations": int(self.setup.engine.size),
            "converged": bool(self.optimum.converged),
            "engine": str(self.choice),
            "warnings": list(self.warnings),
        }
