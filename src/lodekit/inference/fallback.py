"""Error-controlled fallback: if the rounding error of one engine is too large, another engine is used.

A dense covariance is nearly singular if noise is low or modes are diffuse: rounding errors then dominate the evidence,
and means are sums of huge weights that cancel. In Fourier features the same evidence is a regression with small
amplitudes. If the estimated errors of both engines are too large, the point is rejected: the log evidence is minus
infinity for a search, and the posterior raises an error. An error of more than 1e-6 nats is too large for the Kalman
engine; with other engines, the posterior has a warning.

Exact values that only set the initial state contain no information about the parameters, but their density grows
without limit as the prior narrows around them. So the evidence is that of all other measurements conditioned on these
values: its logarithm is that of all values minus that of the exact ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from lodekit.data.records import Measurements
from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.engine import BaseEngine, Engine, EngineTask, Evidence, Posterior, SearchLimits
from lodekit.inference.selection import ENGINES, EngineChoice, find_refusals
from lodekit.prior.compile import Coefficients
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array

#: Rounding error of a mean, relative to the data, that remains invisible in derivatives.
NEGLIGIBLE_MEAN_ERROR = 1e-11
#: The largest accepted error of the log evidence, relative to itself or to the number of measurements.
MAX_EVIDENCE_ERROR = 1e-7


@dataclass(frozen=True)
class FallbackPosterior:
    """A posterior that is computed by the fallback engine if its results are finite.

    primary: The posterior of the chosen engine; the log evidence is taken from it unless its error is larger.
    fallback: The same distribution in a form that loses fewer digits.
    warning: Appended to the warnings of the primary posterior; empty for none.
    log_density_of_conditions: The log density of exact values that the evidence is conditioned on.
    """

    primary: Posterior
    fallback: Posterior
    warning: str = ""
    log_density_of_conditions: float = 0.0

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        found = self.primary if self.primary.error <= self.fallback.error else self.fallback
        return found.value - self.log_density_of_conditions

    @property
    def error(self) -> float:
        """The estimated rounding error of the log evidence."""
        return min(self.primary.error, self.fallback.error)

    @property
    def mean_rounding_error(self) -> float:
        """The estimated rounding error of the mean, relative to the data."""
        return self.fallback.mean_rounding_error

    def warnings(self) -> list[str]:
        """Return warnings about the accuracy."""
        return [*self.primary.warnings(), *([self.warning] if self.warning else [])]

    def check_exact_values(self) -> None:
        """Raise if the posterior does not meet exact values."""
        self.fallback.check_exact_values()

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean of `observables` at `times`, in the user's units, shape (n, o)."""
        return self._query("mean", observables, times)

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        return self._query("variance", observables, times)

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        return self._query("covariance", observables, times)

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return samples of observables from the posterior, shape (size, n, o)."""
        return self._query("sample", observables, times, size, generator)

    def _query(self, method: str, *arguments: Any) -> Array:
        with suppress(LodekitError):
            result: Array = getattr(self.fallback, method)(*arguments)
            if np.isfinite(result).all():
                return result
        return np.asarray(getattr(self.primary, method)(*arguments))


@dataclass(frozen=True)
class FallbackEngine(BaseEngine):
    """An engine, and another one that is used if the first loses digits; points that neither can compute are rejected.

    primary: The chosen engine.
    choice: The kind of engine, and the reason for it.
    measurements: The data.
    task: The task that the engine was chosen for.
    conditions: The engine of exact values that the evidence is conditioned on.
    """

    primary: Engine
    choice: EngineChoice
    measurements: Measurements
    task: EngineTask
    conditions: Engine | None = None
    _imprecise_points: list[tuple[Array, ...]] = field(default_factory=list, compare=False, repr=False)

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.primary.prior

    @property
    def size(self) -> int:
        """The number of measurements, without exact values that the evidence is conditioned on."""
        return self.primary.size - (0 if self.conditions is None else self.conditions.size)

    @property
    def search_limits(self) -> SearchLimits:
        """The bounds of lengthscales and amplitudes in a search."""
        return self.primary.search_limits

    @property
    def benefits_from_threads(self) -> bool:
        """Whether its matrices are large enough to benefit from several threads."""
        return self.primary.benefits_from_threads

    @cached_property
    def fallback(self) -> Engine | None:
        """The engine that is used if the first one loses digits; None if there is none."""
        # With more measurements another engine would be too slow, or would have sums instead of exact values.
        if self.task.size > 4096:
            return None
        # All engines replace exact values by the same tiny noise, so that any of them can be the fallback.
        task, chosen = replace(self.task, has_exact_values=False), self.choice.factory
        refusals = find_refusals(task)
        others = [factory for name, factory in ENGINES.items() if factory is not chosen and not refusals[name]]
        return others[0].create(self.prior, self.measurements, task) if others else None

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity if no engine is accurate."""
        candidates: list[Evidence] = []
        for engine in self._engines_in_order(hyper):
            candidates.append(engine.evaluate(hyper))
            if self._needs_no_fallback(candidates[-1].value, candidates[-1].error):
                break
        best = self._most_accurate(hyper, candidates)
        if self.conditions is not None and np.isfinite(best.value):
            # The density of exact values may lose its digits first.
            best -= self.conditions.evaluate(hyper)
        return best if self._is_usable(best.value, best.error) else Evidence.infeasible(hyper)

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and its estimated rounding error."""
        candidates: list[Evidence] = []
        for engine in self._engines_in_order(hyper):
            value, error = engine.value_with_error(hyper)
            candidates.append(Evidence(value, hyper, error))
            if self._needs_no_fallback(value, error):
                break
        best = self._most_accurate(hyper, candidates)
        value, error = best.value, best.error
        if self.conditions is not None and np.isfinite(value):
            known, more = self.conditions.value_with_error(hyper)
            value, error = value - known, error + more
        return (value, error) if self._is_usable(value, error) else (-np.inf, 0.0)

    def _engines_in_order(self, hyper: Hyperparameters) -> Iterator[Engine]:
        """Yield the primary engine, then the fallback; in reverse order near a point where only the fallback worked."""
        if is_near := self._is_near_imprecise_point(hyper):
            yield cast(Engine, self.fallback)
        yield self.primary
        if not is_near and self.fallback is not None:
            yield self.fallback

    def _is_near_imprecise_point(self, hyper: Hyperparameters) -> bool:
        """Return whether hyperparameters are within 5 % of the last point at which only the fallback was precise."""
        return any(
            all((np.abs(new - old) <= 0.05 * np.abs(old)).all() for new, old in zip(hyper.arrays, point, strict=True))
            for point in self._imprecise_points
        )

    def _most_accurate(self, hyper: Hyperparameters, candidates: list[Evidence]) -> Evidence:
        """Return the most accurate of one or two results; store a point at which only the fallback is precise."""
        first, last = candidates[0], candidates[-1]
        if len(candidates) == 2:
            if self._is_near_imprecise_point(hyper):
                self._imprecise_points.clear()
            elif self._needs_no_fallback(last.value, last.error) and not self._is_usable(first.value, first.error):
                self._imprecise_points[:] = [hyper.arrays]
        return min(candidates, key=lambda each: each.error if np.isfinite(each.value) else np.inf)

    def posterior(self, hyper: Hyperparameters) -> Posterior:
        """Return the posterior at given hyperparameters, by another engine if the first one loses too many digits."""
        found = self._most_accurate_posterior(hyper)
        if np.isfinite(found.value) and not self._is_precise(found.value, found.error):
            message = f"the log evidence at these values, {found.value:.6g}, has an error of about {found.error:.1g}"
            if not self._is_usable(found.value, found.error):
                raise AccuracyError(f"{self._describe_precision_loss()}; {message}")
            both = (found.primary, found.fallback) if isinstance(found, FallbackPosterior) else (found, found)
            found = FallbackPosterior(*both, f"rounding: {message}")
        return found if self.conditions is None else FallbackPosterior(found, found, "", self.conditions.value(hyper))

    def _most_accurate_posterior(self, hyper: Hyperparameters) -> Posterior:
        try:
            first = self.primary.posterior(hyper)
        except AccuracyError:
            if self.fallback is None:
                raise
            return self.fallback.posterior(hyper)
        if not np.isfinite(first.value) and self.fallback is not None:
            # Out of reach for the primary engine, whose posterior would raise only when it is evaluated.
            with suppress(LodekitError):
                return self.fallback.posterior(hyper)
            return first
        if doubt := self._cross_check(hyper, first.value):
            return FallbackPosterior(first, first, doubt)
        is_fine = self._needs_no_fallback(first.value, first.error) and self._is_precise(first.value, first.error)
        if self.fallback is None or (is_fine and not first.mean_rounding_error > NEGLIGIBLE_MEAN_ERROR):
            return first
        try:
            with np.errstate(all="ignore"):
                second = self.fallback.posterior(hyper)
                # Averaging intervals begin before their times, where nothing was measured.
                back = self.prior.units.unscale_durations(self.prior.observables.longest_window)
                edges = np.asarray(self.measurements.window) + np.array([back, 0.0])
                at_data = second.mean(self.prior.observables, edges)
        except LodekitError:
            return first
        has_better_value = not is_fine and not second.error > first.error
        is_better = has_better_value or second.mean_rounding_error < first.mean_rounding_error
        return FallbackPosterior(first, second) if np.isfinite(at_data).all() and is_better else first

    def _cross_check(self, hyper: Hyperparameters, value: float) -> str:
        """Return a warning if a truncated channel prior disagrees with the exact one; checked if that is cheap."""
        is_truncated = self.task.channel_prior and self.choice.factory.approximates_channel_prior
        if not is_truncated or self.task.size > 400 or self.fallback is None or not np.isfinite(value):
            return ""
        with np.errstate(all="ignore"):
            other, error = self.fallback.value_with_error(hyper)
        if not np.isfinite(other) or abs(other - value) <= max(1e-3, 1e-6 * abs(value), error):
            return ""
        return (
            "Fourier features miss a part of the prior of the channels: the log evidence is "
            f"{value:.6g} with them and {other:.6g} with a matrix; fit with engine='dense'"
        )

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return the mean square of the data of each observable, (o,), and of each mode basis function, (r,)."""
        return self.primary.mean_squares(coefficients)

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return why the log evidence is not finite at given hyperparameters, as a sentence; empty if unknown."""
        if found := self.primary.explain_failure(hyper):
            return found
        several = [engine.value_with_error(hyper) for engine in (self.primary, self.fallback) if engine is not None]
        known = [each for each in several if np.isfinite(each[0])]
        return self._describe_precision_loss() if known and not any(self._is_usable(*each) for each in known) else ""

    def _describe_precision_loss(self) -> str:
        advice = "give noise_std if you know the noise" if self.prior.noise.n_levels else "give a larger noise_std"
        return (
            "rounding leaves too few digits, because the noise is very small against the data or their prior, or modes "
            "grow much across a gap, or roots almost coincide; "
            f"{advice}. Otherwise try noise='channel' or a smaller mode_deviation, or bounds at which no mode grows"
        )

    def _needs_no_fallback(self, value: float, error: float) -> bool:
        """Return whether a log evidence is finite and so precise that no other engine is needed."""
        return bool(np.isfinite(value) and error <= 1e-8 * max(self.size, abs(value)))

    def _is_precise(self, value: float, error: float) -> bool:
        """Return whether the error of a log evidence is below 1e-6 nats, or 1e-12 relative to its value or the size."""
        return error <= max(1e-6, 1e-12 * max(self.size, abs(value)))

    def _is_usable(self, value: float, error: float) -> bool:
        """Return whether a log evidence is finite and its error acceptable.

        An error of 0.001 nats is always accepted, or 1e-6 with a Kalman filter. With a relative criterion alone, points
        far below the optimum, with larger errors, would be accepted, and the optimum rejected.
        """
        # If data contradict the model, the evidence is so low that no engine computes it to this precision.
        if self.choice.factory.has_states and abs(value) <= 100.0 * self.size:
            return self._is_precise(value, error)
        return bool(np.isfinite(value) and error <= max(MAX_EVIDENCE_ERROR * max(self.size, abs(value)), 1e-3))
