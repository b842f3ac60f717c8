"""The dense engine: log evidence and posterior by Cholesky, for data in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.errors import AccuracyError
from lodekit.inference.dense.channels import ChannelPosterior
from lodekit.inference.dense.data import DenseData
from lodekit.inference.dense.device import evaluate_on, factorize_on
from lodekit.inference.dense.evidence import Factorization, evaluate, factorize, prepare
from lodekit.inference.dense.posterior import DensePosterior
from lodekit.inference.devices import find_device
from lodekit.inference.engine import CROSSOVER, DISTURBED, Case, Evidence, SearchLimits, channel_limits
from lodekit.inference.measured import data_powers
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.latents import CHANNEL_LATENT
from lodekit.prior.prior import Prior

__all__ = ["DenseEngine", "DenseKind"]

Array = NDArray[np.float64]
#: Beyond, a dense covariance with its inverse asks for tens of gigabytes.
_MOST = 40_000
#: The shortest lengthscale of a channel, in scaled time: it takes some thousand waves.
_SHORTEST = 0.005
#: Below this many measurements one thread is enough.
_SMALL = 1000
_TOO_LARGE = (
    "the channel prior takes more waves here than fit into memory, or its density is not finite: the window is very "
    "long against the lengthscales, or there are very many free functions; take a shorter window, or prior='latent'"
)


@dataclass(frozen=True)
class DenseEngine:
    """Log evidence and posterior by Cholesky.

    Parameters
    ----------
    data : DenseData
        Measurements with their prior.
    device : str, optional
        Where PyTorch computes; NumPy does otherwise.
    """

    data: DenseData
    device: str | None = None

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.data.prior

    @property
    def size(self) -> int:
        """The number of measurements."""
        return self.data.size

    @property
    def limits(self) -> SearchLimits:
        """How far a search may take lengthscales: not far below the smallest gap; all cost the same to evaluate.

        Waves cost the more the shorter a lengthscale is; one below the distance of the data is noise to them, and
        ends a search of the channel prior.
        """
        gaps = np.diff(self.data.scaled_times)
        shortest = max(0.3 * float(gaps.min()) if len(gaps) else 1e-3, 1e-6)
        if self.prior.channels is None:
            return SearchLimits(shortest)
        return channel_limits(max(shortest, _SHORTEST, 1.0 / len(self.data.times)))

    @property
    def is_threaded(self) -> bool:
        """Whether its matrices are so large that several threads pay."""
        return self.size >= _SMALL

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""
        if self.device is None:
            return evaluate(self.data, hyper)
        return evaluate_on(self.data, hyper, find_device(self.device))

    def _factorize(self, hyper: Hyperparameters) -> Factorization | None:
        """Return the factorized covariance of the data; None where it is not finite."""
        if self.device is None:
            return factorize(self.data, hyper)
        return factorize_on(self.data, hyper, find_device(self.device))

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""
        return self.appraise(hyper)[0]

    def appraise(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""
        state = self._factorize(hyper)
        return (-np.inf, 0.0) if state is None else (state.value + self.data.log_jacobian, state.error)

    def posterior(self, hyper: Hyperparameters) -> DensePosterior:
        """Return the posterior at some hyperparameters; raise where it is not finite."""
        state = self._factorize(hyper)
        if state is None:
            raise AccuracyError(
                "the covariance of the data is not finite at these values, or singular to rounding; check units and "
                "starting values, and give exact values a small noise_std"
            )
        kind = DensePosterior if self.prior.channels is None else ChannelPosterior
        return kind(self.data, hyper, state)

    def powers(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares, scaled: of the data of each observable, (o,), and of the basis of the modes, (r,).

        Parameters
        ----------
        coefficients : Coefficients
            Of the measured observables, at some values of the parameters.
        """
        data, observables = self.data, self.data.observables
        means, _ = observables.means(coefficients, data.times, slopes=False)
        rest = np.split(data.values - data.pick(means), data.edges[1:-1])
        basis, _ = observables.mode_basis(coefficients, data.groups, data.scaled_times, slopes=False)
        measured = [part[index] if len(index) else part for part, index in zip(basis, data.index, strict=True)]
        power = np.mean([np.mean(part**2, axis=0) for part in measured], axis=0) if data.groups else np.zeros(0)
        return data_powers(rest), power

    def trouble(self, hyper: Hyperparameters) -> str:
        """Return whether the channel prior takes too much memory, as a sentence; other trouble has many causes."""
        if self.prior.channels is None:
            return ""
        with np.errstate(all="ignore"):
            prepared = prepare(self.data, hyper, slopes=False)
            if prepared is None or self.data.lag_covariance(prepared.coefficients, hyper, prepared.noise) is not None:
                return ""
        return _TOO_LARGE


@dataclass(frozen=True)
class DenseKind:
    """The kind of the dense engine: any covariance, exact values, but no more measurements than fit into a matrix.

    Parameters
    ----------
    name : str
        As users write it.
    uses_device : bool
        Whether it computes where ``device=`` says.
    """

    name: str = "dense"
    uses_device: bool = True

    def refuses(self, case: Case) -> str:
        """Return why it cannot take a case, and what to do; empty where it can."""
        if case.disturbed:
            return DISTURBED
        if case.on_channels and any(latent != CHANNEL_LATENT for latent in case.latents):
            return f"the channels have a covariance of their own; use latent={CHANNEL_LATENT.name!r}"
        if case.on_channels and case.device is not None:
            return "the channel prior is not made for devices; leave out device="
        if case.averaged and case.device is not None:
            return "means and totals over intervals are not made for devices; leave out device="
        if not case.in_memory:
            return "the data are streamed"
        if case.size > _MOST and case.device is None:
            count = f"{case.size:,}".replace(",", " ")
            return f"{count} measurements are too many for a matrix (at most {_MOST}); take every k-th one"
        return ""

    def cost(self, case: Case) -> float:
        """Return about how many operations an evaluation takes: the cube of the number of measurements."""
        return float(case.size) ** 3

    def reason(self, case: Case) -> str:
        """Return what speaks for it, where others could have taken the case as well."""
        return f"exact, and fast up to {CROSSOVER}"

    def make(self, prior: Prior, measurements: Measurements, case: Case) -> DenseEngine:
        """Return an engine on measurements in memory.

        Parameters
        ----------
        prior : Prior
            Of the measured observables.
        measurements : Measurements
            In memory.
        case : Case
            Says on which device to compute.
        """
        return DenseEngine(DenseData.of(prior, measurements.series), case.device)
