"""Which engine for which data, and why; and the dense one as an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.errors import LodekitError
from lodekit.inference.dense import Factorization, evaluate, factorize
from lodekit.inference.dense_posterior import DensePosterior
from lodekit.inference.device import evaluate_on, factorize_on, find_device
from lodekit.inference.engine import Evidence
from lodekit.inference.problem import Hyperparameters, Prior, Problem
from lodekit.inference.spectral import SpectralEngine
from lodekit.inference.views import RawData, SpectralData, SummedData
from lodekit.prior.compile import RowValues
from lodekit.prior.latents import Latent, SquaredExponential

__all__ = ["Choice", "DenseEngine", "choose", "make_spectral"]

Array = NDArray[np.float64]
#: Up to this many rows the dense engine is the faster one.
DENSE_ROWS = 200
#: Beyond, a dense covariance with its inverse asks for tens of gigabytes.
MOST_DENSE_ROWS = 40_000
#: Up to this many measurements every one is a node of its own; sums over them would be no shorter.
_RAW_ROWS = 4096


@dataclass(frozen=True)
class DenseEngine:
    """Evidence and posterior by Cholesky.

    Parameters
    ----------
    problem : Problem
    device : str, optional
        Where PyTorch computes; NumPy does otherwise.
    """

    problem: Problem
    device: str | None = None

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.problem.prior

    @property
    def size(self) -> int:
        """Number of measurements."""
        return self.problem.size

    @property
    def shortest(self) -> float:
        """The shortest lengthscale: less than the smallest gap says nothing."""
        gaps = np.diff(self.problem.scaled_times)
        return max(0.3 * float(gaps.min()) if len(gaps) else 1e-3, 1e-6)

    @property
    def stride(self) -> float:
        """No limit: an evaluation costs the same at every lengthscale."""
        return np.inf

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the negative log evidence and its gradient; infinite where it is not finite."""
        if self.device is None:
            return evaluate(self.problem, hyper)
        return evaluate_on(self.problem, hyper, find_device(self.device))

    def _factorize(self, hyper: Hyperparameters) -> Factorization | None:
        if self.device is None:
            return factorize(self.problem, hyper)
        return factorize_on(self.problem, hyper, find_device(self.device))

    def value(self, hyper: Hyperparameters) -> float:
        """Return the negative log evidence alone."""
        state = self._factorize(hyper)
        return np.inf if state is None else state.value - self.problem.jacobian

    def posterior(self, hyper: Hyperparameters) -> DensePosterior:
        """Return the posterior; raise where it is not finite."""
        state = self._factorize(hyper)
        if state is None:
            raise LodekitError(
                "the covariance of the data is not finite at these values; check units and starting values"
            )
        return DensePosterior(self.problem, hyper, state)

    def powers(self, values: RowValues) -> tuple[Array, Array]:
        """Return mean squares of data and mode functions at the times of the data."""
        problem, rows = self.problem, self.problem.rows
        means, _ = rows.means(values, problem.times)
        target = np.array(
            [
                np.mean((y / s - m[i]) ** 2) or 1.0
                for y, s, m, i in zip(problem.values, rows.scales, means, problem.index, strict=True)
            ]
        )
        basis, _ = rows.mode_basis(values, problem.groups, problem.scaled_times, slopes=False)
        power = np.mean([np.mean(part**2, axis=0) for part in basis], axis=0) if problem.groups else np.zeros(0)
        return target, power

    def trouble(self, hyper: Hyperparameters) -> str:
        """Return nothing: a covariance that is not finite has many causes."""
        return ""


@dataclass(frozen=True)
class Choice:
    """The engine that is used, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def choose(
    engine: str,
    *,
    size: int,
    latents: Sequence[Latent],
    exact: bool,
    on_channels: bool,
    in_memory: bool,
    device: str | None = None,
) -> Choice:
    """Return the engine for some data; raise where the one that was asked for cannot take them.

    Parameters
    ----------
    engine : {"auto", "dense", "spectral"}
    size : int
        Number of measurements.
    exact : bool
        Whether some values have no noise at all.
    on_channels : bool
        Whether the prior stands on the channels.
    in_memory : bool
    device : str, optional
        Where the dense engine computes.
    """
    rough = next((latent.name for latent in latents if not isinstance(latent, SquaredExponential)), None)
    only_dense = (
        f"{rough} has a spectrum too wide for waves"
        if rough
        else "exact values need the dense engine"
        if exact
        else None
    )
    only_spectral = (
        "the channel prior lives on waves" if on_channels else None if in_memory else "the data are streamed"
    )
    rows = f"{size:,} rows".replace(",", " ")
    if only_dense and only_spectral:
        advice = "use latent='se'" if rough else "give exact values a small noise_std"
        raise LodekitError(f"{only_dense}, but {only_spectral}; {advice}")
    if engine == "dense" and only_spectral:
        raise LodekitError(f"engine='dense' cannot be used: {only_spectral}; use engine='auto' or 'spectral'")
    if engine == "spectral" and only_dense:
        raise LodekitError(f"engine='spectral' cannot be used: {only_dense}; use engine='auto' or 'dense'")
    if engine == "dense" or only_dense or (engine == "auto" and not only_spectral and size <= DENSE_ROWS):
        if size > MOST_DENSE_ROWS and device is None:
            why = only_dense or "engine='dense' was asked for"
            raise LodekitError(
                f"{rows} are too many for the dense engine (at most {MOST_DENSE_ROWS}), and {why}; take every k-th "
                "measurement, or use what the spectral engine takes: latent='se', noise above zero"
            )
        why = only_dense or (f"exact, and fast up to {DENSE_ROWS} rows" if size <= DENSE_ROWS else "asked for")
        where = "" if device is None else f" on {device}"
        return Choice("dense", f"{rows}{where}; {why}")
    why = only_spectral or (f"more than {DENSE_ROWS} rows" if size > DENSE_ROWS else "asked for")
    return Choice("spectral", f"{rows}; {why}")


def make_spectral(prior: Prior, measurements: Measurements, tolerance: float) -> SpectralEngine:
    """Return a spectral engine on measurements in memory, or on sums over them."""
    rows, names = prior.rows, measurements.names
    start, stop = measurements.window
    found: SpectralData
    if measurements.sums is None and (measurements.size <= _RAW_ROWS or start == stop):
        found = RawData(measurements.series, rows)
    else:
        found = SummedData(measurements.statistics, rows, names)
    counts = [item.count for item in measurements.summaries]
    jacobian = -sum(count * float(np.log(scale)) for count, scale in zip(counts, rows.scales, strict=True))
    return SpectralEngine(prior, found, measurements.size, jacobian, tolerance)
