"""The modal engine: log evidence and posterior where no free function remains, in time that grows as the data do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.errors import AccuracyError
from lodekit.inference.engine import DISTURBED, Case, Evidence, SearchLimits
from lodekit.inference.measured import data_powers, mode_powers
from lodekit.inference.modal.data import ModalData
from lodekit.inference.modal.evaluation import evaluate, solve
from lodekit.inference.modal.posterior import ModalPosterior
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.prior import Prior

__all__ = ["ModalEngine", "ModalKind"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ModalEngine:
    """Log evidence and posterior of modes beside known functions.

    Parameters
    ----------
    data : ModalData
        Measurements with their prior.
    """

    data: ModalData

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.data.prior

    @property
    def size(self) -> int:
        """The number of measurements."""
        return len(self.data.values)

    @property
    def limits(self) -> SearchLimits:
        """How far a search may take lengthscales; there are none."""
        return SearchLimits(1e-3)

    @property
    def is_threaded(self) -> bool:
        """Whether several threads pay: never, its matrices are small."""
        return False

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""
        return evaluate(self.data, hyper)

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""
        return self.appraise(hyper)[0]

    def appraise(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""
        found = solve(self.data, hyper)
        return (-np.inf, 0.0) if found is None else (found.value, found.error)

    def posterior(self, hyper: Hyperparameters) -> ModalPosterior:
        """Return the posterior at some hyperparameters; raise where it is not finite."""
        found = solve(self.data, hyper)
        if found is None:
            raise AccuracyError("the modes are not finite at these values; check units and starting values")
        return ModalPosterior(self.data, hyper, found)

    def powers(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares, scaled: of the data of each observable, (o,), and of the basis of the modes, (r,).

        Parameters
        ----------
        coefficients : Coefficients
            Of the measured observables, at some values of the parameters.
        """
        data = self.data
        means, _ = self.prior.observables.means(coefficients, data.times, slopes=False)
        left = [data.values[rows] - part for rows, part in zip(data.places, data.pick(means), strict=True)]
        return data_powers(left), mode_powers(self.prior, coefficients, data.some_times)

    def trouble(self, hyper: Hyperparameters) -> str:
        """Return an empty text: a prior that is not finite has many causes."""
        return ""


@dataclass(frozen=True)
class ModalKind:
    """The kind of the modal engine: systems without free functions, measurements in memory, noise above zero.

    Parameters
    ----------
    name : str
        As users write it.
    uses_device : bool
        Whether it computes where ``device=`` says.
    """

    name: str = "modal"
    uses_device: bool = False

    def refuses(self, case: Case) -> str:
        """Return why it cannot take a case, and what to do; empty where it can."""
        if case.disturbed:
            return DISTURBED
        if case.latents:
            return "free functions remain, and it has modes alone"
        if not case.in_memory:
            return "the data are streamed"
        if case.exact:
            return "exact values need the dense engine; give exact values a small noise_std"
        return ""

    def cost(self, case: Case) -> float:
        """Return about how many operations an evaluation takes; without known inputs only those who ask get it."""
        return float(case.size) if case.driven else np.inf

    def reason(self, case: Case) -> str:
        """Return what speaks for it, where others could have taken the case as well."""
        return "inputs are known, and no free function remains"

    def make(self, prior: Prior, measurements: Measurements, case: Case) -> ModalEngine:
        """Return an engine on measurements in memory.

        Parameters
        ----------
        prior : Prior
            Of the measured observables.
        measurements : Measurements
            In memory.
        case : Case
            The same in short.
        """
        return ModalEngine(ModalData.of(prior, measurements.series))
