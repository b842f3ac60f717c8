"""The Markov engine: log evidence and posterior in time that grows as the data do, for priors with finite states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.errors import AccuracyError
from lodekit.inference.engine import Case, Evidence, SearchLimits
from lodekit.inference.markov.evaluation import Solved, evaluate, residual_of, solve
from lodekit.inference.markov.layout import Layout, MarkovData, shorter_length
from lodekit.inference.markov.pieces import PiecesEngine
from lodekit.inference.markov.posterior import MarkovPosterior
from lodekit.inference.markov.turns import MarkovTurns
from lodekit.inference.measured import data_powers, mode_powers
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.latents import SMOOTHEST
from lodekit.prior.prior import Prior

__all__ = ["MarkovEngine", "MarkovKind"]

Array = NDArray[np.float64]
#: About how many operations an evaluation takes, for each measurement and in any case, as the dense engine counts them.
_EACH, _ALWAYS = 1.0e4, 1.2e8


@dataclass(frozen=True)
class MarkovEngine:
    """Log evidence and posterior by blocks.

    Parameters
    ----------
    data : MarkovData
        Measurements with their prior.
    """

    data: MarkovData
    _last: dict[str, int | None] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": {}}

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
        """How far a search may take lengthscales: not far below the smallest gap; all cost the same to evaluate."""
        gaps = np.diff(self.data.scaled_times)
        return SearchLimits(max(0.3 * float(gaps.min()) if len(gaps) else 1e-3, 1e-6))

    @property
    def is_threaded(self) -> bool:
        """Whether several threads pay: never, its matrices are small."""
        return False

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""
        while True:
            found = evaluate(self.data, hyper, self._layout())
            if not self._shorten(found.value, found.error):
                return found

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""
        return self.appraise(hyper)[0]

    def appraise(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""
        found = self._solve(hyper)
        return (-np.inf, 0.0) if found is None else (found.value, found.error)

    def posterior(self, hyper: Hyperparameters) -> MarkovPosterior:
        """Return the posterior at some hyperparameters; raise where it is not finite."""
        found = self._solve(hyper)
        if found is None:
            raise AccuracyError(
                "the states are not finite at these values, or their covariance is singular to rounding; check units "
                "and starting values, and give exact values a small noise_std"
            )
        return MarkovPosterior(self.data, hyper, found, self._last.get("length"))

    def turns(self, hyper: Hyperparameters) -> MarkovTurns | None:
        """Return measurements in their turn, with their innovations; None where something is not finite."""
        found = self._solve(hyper)
        return None if found is None else MarkovTurns(self.data, found)

    def powers(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares, scaled: of the data of each observable, (o,), and of the basis of the modes, (r,).

        Parameters
        ----------
        coefficients : Coefficients
            Of the measured observables, at some values of the parameters.
        """
        parts = np.split(residual_of(self.data, coefficients), self.data.edges[1:-1])
        return data_powers(parts), mode_powers(self.prior, coefficients, self.data.some_times)

    def trouble(self, hyper: Hyperparameters) -> str:
        """Return an empty text: states that are not finite have many causes."""
        return ""

    def _layout(self) -> Layout:
        return self.data.layout(self._last.get("length"))

    def _solve(self, hyper: Hyperparameters) -> Solved | None:
        while True:
            found = solve(self.data, hyper, self._layout())
            if found is None or not self._shorten(found.value, found.error):
                return found

    def _shorten(self, value: float, error: float) -> bool:
        """Cut blocks shorter where rounding inside them can be seen; return whether that was done."""
        length = shorter_length(self._layout(), self.size, value, error)
        if length is None:
            return False
        self._last["length"] = length
        return True


@dataclass(frozen=True)
class MarkovKind:
    """The kind of the Markov engine: free functions with finitely many states, any number of measurements.

    Parameters
    ----------
    name : str
        As users write it.
    uses_device : bool
        Whether it computes where ``device=`` says.
    """

    name: str = "markov"
    uses_device: bool = False

    def refuses(self, case: Case) -> str:
        """Return why it cannot take a case, and what to do; empty where it can."""
        if case.on_channels:
            return "a prior on the channels has no finite state; use prior='latent'"
        smooth = next((latent.name for latent in case.latents if latent.state_space(1.0) is None), None)
        if smooth:
            return f"{smooth} has no finite state; use latent='matern-7/2', or another one that is rough enough"
        finest = next((latent.name for latent in case.latents if latent.smoothness > SMOOTHEST), None)
        if finest:
            return f"{finest} has too many states; use latent='matern-{2 * SMOOTHEST + 1}/2' or rougher"
        if not case.in_memory and not case.on_disk:
            return "the data are streamed, and cannot be read again; give it a CSV or Parquet file"
        if not case.in_memory and case.averaged:
            return "means and totals over intervals need all rows in memory; take pieces of the record"
        return ""

    def cost(self, case: Case) -> float:
        """Return about how many operations an evaluation takes; modes alone are for those who ask."""
        return _ALWAYS + _EACH * case.size if case.latents or case.disturbed else np.inf

    def reason(self, case: Case) -> str:
        """Return what speaks for it, where others could have taken the case as well."""
        return "linear in time"

    def make(self, prior: Prior, measurements: Measurements, case: Case) -> MarkovEngine | PiecesEngine:
        """Return an engine on measurements in memory, or on rows that are read from disk piece by piece.

        Parameters
        ----------
        prior : Prior
            Of the measured observables.
        measurements : Measurements
            In memory, or with rows.
        case : Case
            The same in short.
        """
        if measurements.is_summed and measurements.spooled is not None:
            return PiecesEngine(prior, measurements.spooled.spool, left_out=measurements.spooled.left_out)
        return MarkovEngine(MarkovData.of(prior, measurements.series))
