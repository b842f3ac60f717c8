"""What a fitted model answers: predictions, samples, residuals, the evidence and scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.data.measurements import Measurements, merge, typical_noise
from lodekit.data.observations import Observations, read_observations
from lodekit.errors import DataError, LodekitError
from lodekit.inference.checks import check_count, check_finite, check_seed, read_times
from lodekit.inference.engine import Engine, Posterior
from lodekit.inference.problem import Hyperparameters, Rows
from lodekit.inference.reading import ObservableReader
from lodekit.inference.residuals import equation_terms
from lodekit.learning.transforms import Layout
from lodekit.system.system import System

__all__ = ["ROUNDING", "Answers", "Certificate", "NotFittedError"]

Array = NDArray[np.float64]
#: A relative residual above this is more than rounding.
ROUNDING = 1e-6


class NotFittedError(LodekitError):
    """The estimator has not seen any data yet."""


@dataclass(frozen=True)
class Certificate:
    """The proof that the posterior satisfies the equations.

    Parameters
    ----------
    identities : tuple of str
        What the algebra proved exactly.
    residual : float
        The largest relative residual of the posterior mean over the times that were asked for, in floats.
    """

    identities: tuple[str, ...]
    residual: float

    @property
    def is_strict(self) -> bool:
        """Whether the residual is no more than rounding."""
        return self.residual < ROUNDING

    def __str__(self) -> str:
        lines = ["Proved exactly:", *(f"  {line}" for line in self.identities)]
        return "\n".join([*lines, f"Largest relative residual in floats: {self.residual:.2g}"])


class Answers:
    """The questions that a fitted model answers; `lodekit.LODEGP` adds how it comes to be fitted."""

    system: System
    noise: str
    noise_: dict[str, float]
    _measurements: Measurements
    _engine: Engine
    _layout: Layout
    _hyper: Hyperparameters
    _posterior: Posterior

    @property
    def _reader(self) -> ObservableReader:
        return ObservableReader(self.system)

    def _require_fitted(self) -> Posterior:
        if not hasattr(self, "_posterior"):
            raise NotFittedError("this LODEGP has not been fitted yet; call fit(t, Y) first")
        return self._posterior

    def predict(
        self,
        t: ArrayLike,
        observable: str | Sequence[str] | None = None,
        return_std: bool = False,
        return_cov: bool = False,
    ) -> Any:
        """Return the posterior mean, and its standard deviation or covariance on request.

        Parameters
        ----------
        t : array-like, shape (n,)
        observable : str or sequence of str, optional
            Linear differential expressions of the channels, such as ``"f1'"``, ``"f1 - f2"``; all channels by default.
        return_std, return_cov : bool

        Returns
        -------
        mean : array, shape (n, channels), or (n,) for a single observable
        std : array of the same shape
        cov : array, shape (n, o, n, o), or (n, n) for a single observable
        """
        posterior, times, rows, single = self._prepare(t, observable)
        with np.errstate(all="ignore"):
            mean = posterior.mean(rows, times)
            found: list[Array] = [mean[:, 0] if single else mean]
            if return_std:
                std = np.sqrt(posterior.variance(rows, times))
                found.append(std[:, 0] if single else std)
            if return_cov:
                covariance = posterior.covariance(rows, times)
                found.append(covariance[:, 0, :, 0] if single else covariance)
        for part in found:
            check_finite(part, times)
        return found[0] if len(found) == 1 else tuple(found)

    def sample(
        self,
        t: ArrayLike,
        size: int = 1,
        random_state: int | None = None,
        observable: str | Sequence[str] | None = None,
    ) -> Array:
        """Return functions drawn from the posterior, shape (size, n, channels), or (size, n) for one observable."""
        posterior, times, rows, single = self._prepare(t, observable)
        check_count("size", size)
        check_seed(random_state)
        with np.errstate(all="ignore"):
            drawn = posterior.sample(rows, times, int(size), np.random.default_rng(random_state))
        check_finite(drawn.transpose(1, 0, 2), times)
        return drawn[:, :, 0] if single else drawn

    def residual(
        self, t: ArrayLike, *, samples: int = 0, random_state: int | None = None, relative: bool = False
    ) -> Array:
        """Apply A(d) in closed form to the posterior mean, or to samples, and subtract b(t).

        Parameters
        ----------
        t : array-like, shape (n,)
        samples : int
            How many samples to take instead of the mean.
        relative : bool
            Divide by the sum of the sizes of the terms of each equation.

        Returns
        -------
        array, shape (n, equations), or (samples, n, equations)
        """
        self._require_fitted()
        equations, times = equation_terms(self.system), read_times(t)
        if samples:
            values = self.sample(times, samples, random_state, equations.observables)
        else:
            values = np.asarray(self.predict(times, equations.observables))[None]
        found = equations.residual(self._hyper.theta, times, values, relative=relative)
        return found if samples else found[0]

    def certificate(self, t: ArrayLike | None = None) -> Certificate:
        """Return the exact identities of the algebra and the largest numerical residual, in one printable object."""
        self._require_fitted()
        times = self._measurements.times() if t is None else read_times(t)
        residual = self.residual(times, relative=True)
        return Certificate(self.system.verify(), float(np.max(np.abs(residual), initial=0.0)))

    def log_evidence(self, values: Mapping[str, float] | None = None, *, return_gradient: bool = False) -> Any:
        """Return the log evidence at the learned hyperparameters, with some parameters changed, and its gradient.

        Parameters
        ----------
        values : dict of str to float, optional
            Parameters of the system to change.
        return_gradient : bool
            Also return the derivatives in the parameters of the system, as a dict.
        """
        self._require_fitted()
        theta = self._hyper.theta.copy()
        if values is not None and not isinstance(values, Mapping):
            raise LodekitError(f"expected values as a dict of names to numbers, got {type(values).__name__}")
        for name, value in (values or {}).items():
            if name not in self._layout.names:
                known = ", ".join(self._layout.names) or "none"
                raise LodekitError(f"unknown parameter {name!r}; expected some of: {known}")
            if not isinstance(value, Real) or not np.isfinite(value):
                raise LodekitError(f"expected a finite number for {name!r}, got {value!r}")
            theta[self._layout.names.index(name)] = float(value)
        hyper = Hyperparameters(
            theta, self._hyper.lengthscales, self._hyper.deviations, self._hyper.mode_deviations, self._hyper.noise
        )
        found = self._engine.evaluate(hyper)
        if return_gradient:
            return -found.value, {n: -float(g) for n, g in zip(self._layout.names, found.theta, strict=True)}
        return -found.value

    def score(self, t: ArrayLike | Observations, Y: Any = None, noise_std: Any = None) -> float:
        """Return the mean log predictive density of measurements, noise included.

        Where `noise_std` is not given, the noise is the learned one, or the typical known one of the training data.
        """
        posterior = self._require_fitted()
        total, count = 0.0, 0
        for series in merge(read_observations(self.system.channels, t, Y, noise_std)):
            rows = self._reader.rows([series.observable], self._engine.prior.rows.scaling, np.ones(1))
            mean = posterior.mean(rows, series.times)[:, 0]
            noise = np.where(np.isnan(series.std), self._typical_noise(series.observable), series.std)
            variance = posterior.variance(rows, series.times)[:, 0] + noise**2
            if not (variance > 0).all():
                raise DataError("the predictive density is infinite without noise; give noise_std= for the new data")
            total += float(np.sum(-0.5 * (series.values - mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)))
            count += len(mean)
        return total / count

    def _typical_noise(self, observable: str) -> float:
        """Return the standard deviation of the noise of one more measurement of an observable."""
        if self.noise == "shared" and self.noise_:
            return self.noise_["shared"]
        if observable in self.noise_:
            return self.noise_[observable]
        known = typical_noise(self._measurements.summaries, observable)
        return known if not np.isnan(known) else max(self.noise_.values(), default=0.0)

    def _prepare(self, t: ArrayLike, observable: str | Sequence[str] | None) -> tuple[Posterior, Array, Rows, bool]:
        posterior, times = self._require_fitted(), read_times(t)
        single = isinstance(observable, str)
        if observable is None:
            texts = list(self.system.channels)
        elif isinstance(observable, str):
            texts = [observable]
        elif isinstance(observable, Iterable):
            texts = [str(text) for text in observable]
        else:
            raise LodekitError(f"expected an observable as text, or a list of texts, got {type(observable).__name__}")
        if not texts:
            raise LodekitError("expected at least one observable, got an empty list")
        rows = self._reader.rows(texts, self._engine.prior.rows.scaling, np.ones(len(texts)))
        return posterior, times, rows, single
