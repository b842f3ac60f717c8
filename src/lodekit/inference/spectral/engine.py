"""The spectral engine: exact to a tolerance, at a cost that does not depend on the number of measurements.

Waves and nodes are chosen from the tolerance and the hyperparameters; products of waves over the data are kept, so
that most evaluations of a search touch small matrices only. Where noise is so low that normal equations would lose the
digits, the same regression is done on a QR factorization of the design.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.inference.engine import CROSSOVER, DISTURBED, Case, Evidence, SearchLimits
from lodekit.inference.spectral.evaluation import Evaluation, evaluate, log_evidence
from lodekit.inference.spectral.nodes import RawData, SpectralData, SummedData
from lodekit.inference.spectral.posterior import SpectralPosterior
from lodekit.inference.spectral.workspace import OutOfReachError, Workspace
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.latents import CHANNEL_LATENT
from lodekit.prior.prior import Prior

__all__ = ["SpectralEngine", "SpectralKind"]

Array = NDArray[np.float64]
#: Up to this many measurements every one is a node of its own; sums over them would be no shorter.
_RAW = 4096
#: Under known inputs all are: the response is no sum of waves, so every evaluation passes over them.
_DRIVEN = 100_000


@dataclass(frozen=True)
class SpectralEngine:
    """Log evidence and posterior on waves.

    Parameters
    ----------
    workspace : Workspace
        Prior and data.
    """

    workspace: Workspace

    @classmethod
    def of(cls, prior: Prior, measurements: Measurements, tolerance: float) -> SpectralEngine:
        """Return an engine on measurements in memory, or on sums over them.

        Parameters
        ----------
        prior : Prior
            Of the measured observables.
        measurements : Measurements
            Few in memory are nodes of their own; all others are summed.
        tolerance : float
            The largest error of the covariance, relative to itself and to the noise.
        """
        units = prior.units
        start, stop = measurements.window
        data: SpectralData
        few = measurements.size <= (_DRIVEN if measurements.inputs else _RAW)
        if measurements.sums is None and (few or start == stop):
            data = RawData(measurements.series, units)
        else:
            data = SummedData(measurements.statistics, units, prior.noise.observables)
        counts = {item.observable: item.count for item in measurements.summaries}
        jacobian = units.log_jacobian([counts.get(name, 0) for name in prior.noise.observables])
        return cls(Workspace(prior, data, measurements.size, jacobian, tolerance))

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.workspace.prior

    @property
    def size(self) -> int:
        """The number of measurements."""
        return self.workspace.size

    @property
    def limits(self) -> SearchLimits:
        """How far a search may take lengthscales."""
        return self.workspace.limits

    @property
    def is_threaded(self) -> bool:
        """Whether several threads pay: never, its matrices are small."""
        return False

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""
        return evaluate(self.workspace, hyper)

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""
        return log_evidence(self.workspace, hyper)[0]

    def appraise(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""
        return log_evidence(self.workspace, hyper)

    def posterior(self, hyper: Hyperparameters) -> SpectralPosterior:
        """Return the posterior at some hyperparameters; it raises at the first question where it is not finite."""
        return SpectralPosterior(self.workspace, hyper)

    def powers(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares, scaled: of the data of each observable, (o,), and of the basis of the modes, (r,).

        Parameters
        ----------
        coefficients : Coefficients
            Of the measured observables, at some values of the parameters.
        """
        prior, observables = self.prior, self.prior.observables
        total, weight = np.zeros(observables.count), np.zeros(observables.count)
        modes: dict[int, Array] = {}
        try:
            nodes = self.workspace.nodes(coefficients, 0.0)
        except OutOfReachError:
            # Rough sizes are enough here, and so are nodes that do not resolve everything.
            nodes = 1024
        for item in self.workspace.data.node_sums(nodes):
            times = prior.units.user_times(item.nodes) if item.times is None else item.times
            means, _ = observables.means(coefficients, times, slopes=False)
            m = means[item.observable]
            total[item.observable] += item.square - 2.0 * float(item.values @ m) + float(item.weights @ m**2)
            weight[item.observable] += float(item.weights.sum())
            basis, _ = observables.mode_basis(coefficients, prior.groups, item.nodes, slopes=False)
            modes[item.observable] = np.mean(basis[item.observable] ** 2, axis=0)
        target = np.maximum(total, 0.0) / np.where(weight > 0, weight, 1.0)
        power = np.mean(list(modes.values()), axis=0) if prior.groups else np.zeros(0)
        return np.where(target > 0, target, 1.0), power

    def trouble(self, hyper: Hyperparameters) -> str:
        """Return why some hyperparameters are out of reach, as a sentence; empty where they are not."""
        try:
            with np.errstate(all="ignore"):
                Evaluation(self.workspace, hyper).prepare()
        except OutOfReachError as problem:
            return str(problem)
        return ""


@dataclass(frozen=True)
class SpectralKind:
    """The kind of the spectral engine: any number of measurements, smooth covariances, noise above zero.

    Parameters
    ----------
    name : str
        As users write it.
    uses_device : bool
        Whether it computes where ``device=`` says.
    """

    name: str = "spectral"
    uses_device: bool = False

    def refuses(self, case: Case) -> str:
        """Return why it cannot take a case, and what to do; empty where it can."""
        if case.disturbed:
            return DISTURBED
        if case.on_channels and any(latent != CHANNEL_LATENT for latent in case.latents):
            return f"the channels have a covariance of their own; use latent={CHANNEL_LATENT.name!r}"
        rough = next((latent.name for latent in case.latents if not latent.has_band), None)
        if rough:
            return f"{rough} has a spectrum too wide for waves; use latent='se'"
        if case.driven and not case.in_memory:
            return "responses to known inputs are no sums of waves, and need all rows in memory"
        if case.driven and case.size > _DRIVEN:
            count = f"{case.size:,}".replace(",", " ")
            return (
                f"responses to known inputs are no sums of waves, so all {count} measurements would be in memory (at "
                f"most {_DRIVEN}); take engine='auto', which is the modal engine where no free function remains, or "
                "every k-th measurement, or a piece of the record"
            )
        if case.exact:
            return "exact values need the dense engine; give exact values a small noise_std"
        return ""

    def cost(self, case: Case) -> float:
        """Return about how many operations an evaluation takes: the same for any number of measurements."""
        return (CROSSOVER + 0.5) ** 3

    def reason(self, case: Case) -> str:
        """Return what speaks for it, where others could have taken the case as well."""
        return f"more than {CROSSOVER}"

    def make(self, prior: Prior, measurements: Measurements, case: Case) -> SpectralEngine:
        """Return an engine on measurements in memory, or on sums over them.

        Parameters
        ----------
        prior : Prior
            Of the measured observables.
        measurements : Measurements
        case : Case
            Says how accurate the covariance should be.
        """
        return SpectralEngine.of(prior, measurements, case.tolerance)
