"""Evidence and posterior that know their own error: another engine answers where one loses digits, or nobody does.

A dense covariance is nearly singular where noise is low or modes are diffuse: rounding then makes evidence that does
not exist, and means that are sums of huge weights which cancel. On waves the same evidence is a regression with small
amplitudes. So where the error that an engine states is too large, and another engine can take the case, that one
answers; where both are too inaccurate the point is refused: minus infinity for a search, an error in words for people.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.choice import KINDS, Choice
from lodekit.inference.engine import Case, Engine, Evidence, Posterior, SearchLimits
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Prior

__all__ = ["ACCURATE", "TRUSTED", "AccurateEngine", "RefinedPosterior"]

Array = NDArray[np.float64]
_Answer = TypeVar("_Answer")
_Stated = tuple[float, float]
#: Rounding in a mean, relative to the data, that no derivative in an equation makes visible.
ACCURATE = 1e-11
#: An error of the log evidence, relative to itself or to the number of measurements: with the first one nobody else is
#: asked, beyond the second one the point is refused.
_FINE, TRUSTED = 1e-8, 1e-7
#: Where the first engine cannot be trusted and the second one is fine, the second one is asked first this near,
#: relatively.
_NEAR = 0.05
#: An error of the log evidence, in nats, that changes no answer however small the value is that it belongs to. Without
#: it, values far below the best would be trusted, whose errors are larger, and the best would be refused.
_HARMLESS = 1e-3
_LOST = (
    "rounding leaves too few digits, because the noise is very small against the data or their prior; give every "
    "channel a level of its own (noise='channel'), a larger noise_std, or a smaller mode_deviation"
)
#: With more measurements a second engine would be too dear, or would see sums in place of exact values.
_MOST = 4096
#: Up to so many measurements, what waves make of the channel prior is held against a matrix; and how far apart, in nats
#: or relative to the log evidence, the two may be.
_FEW, _APART = 400, (1e-3, 1e-6)


@dataclass(frozen=True)
class RefinedPosterior:
    """A posterior whose questions are answered by another engine, wherever that one can.

    Parameters
    ----------
    first : Posterior
        Of the engine that was chosen; the log evidence is its own where its error is not larger.
    second : Posterior
        The same distribution in a form that loses fewer digits.
    doubt : str
        A sentence that is told after the warnings of the first; empty for none.
    """

    first: Posterior
    second: Posterior
    doubt: str = ""

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        return self.first.value if self.first.error <= self.second.error else self.second.value

    @property
    def error(self) -> float:
        """About how large an error rounding makes in the log evidence."""
        return min(self.first.error, self.second.error)

    @property
    def rounding(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data."""
        return self.second.rounding

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy; none where nothing is wrong."""
        return [*self.first.warnings(), *([self.doubt] if self.doubt else [])]

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met."""
        self.second.check_exact_values()

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean of `observables` at `times`, in the user's units, shape (n, o)."""
        return self._ask(lambda posterior: posterior.mean(observables, times))

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        return self._ask(lambda posterior: posterior.variance(observables, times))

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        return self._ask(lambda posterior: posterior.covariance(observables, times))

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o).

        Parameters
        ----------
        observables, times
            As in `mean`.
        size : int
            How many functions.
        generator : numpy.random.Generator
        """
        return self._ask(lambda posterior: posterior.sample(observables, times, size, generator))

    def _ask(self, question: Callable[[Posterior], Array]) -> Array:
        try:
            found = question(self.second)
        except LodekitError:
            return question(self.first)
        return found if np.isfinite(found).all() else question(self.first)


@dataclass(frozen=True)
class AccurateEngine:
    """An engine, and another one for where it loses digits; what neither can say is refused.

    Parameters
    ----------
    first : Engine
        The one that was chosen.
    choice : Choice
        Its kind.
    measurements : Measurements
        What it was made on.
    case : Case
        What it was chosen for.
    """

    first: Engine
    choice: Choice
    measurements: Measurements
    case: Case
    _lost: list[Hyperparameters] = field(default_factory=list, compare=False, repr=False)

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.first.prior

    @property
    def size(self) -> int:
        """The number of measurements."""
        return self.first.size

    @property
    def limits(self) -> SearchLimits:
        """How far a search may take lengthscales."""
        return self.first.limits

    @property
    def is_threaded(self) -> bool:
        """Whether its matrices are so large that several threads pay."""
        return self.first.is_threaded

    @cached_property
    def second(self) -> Engine | None:
        """The engine that is asked where the first one loses digits; None where there is none."""
        if self.case.size > _MOST:
            return None
        # All engines have the same tiny noise in the place of none: those that leave exact values to others can answer.
        case = replace(self.case, exact=False)
        others = [kind for kind in KINDS.values() if kind is not self.choice.kind and not kind.refuses(case)]
        return others[0].make(self.prior, self.measurements, case) if others else None

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not known."""
        best = self._best(hyper, lambda engine: engine.evaluate(hyper), lambda each: (each.value, each.error))
        return best if self._is_trusted(best.value, best.error) else Evidence.impossible(hyper)

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not known."""
        return self.appraise(hyper)[0]

    def appraise(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""
        best = self._best(hyper, lambda engine: engine.appraise(hyper), lambda each: each)
        return best if self._is_trusted(*best) else (-np.inf, 0.0)

    def _best(
        self, hyper: Hyperparameters, question: Callable[[Engine], _Answer], stated: Callable[[_Answer], _Stated]
    ) -> _Answer:
        """Return an answer that is fine, or the better one of two.

        The first engine is asked first, except near a point where it was not to be trusted and the second one was fine.

        Parameters
        ----------
        hyper : Hyperparameters
        question : function
            From an engine to its answer.
        stated : function
            From an answer to the log evidence and its error.
        """
        pairs = [pair for old in self._lost for pair in zip(hyper.parts, old.parts, strict=True)]
        is_lost = bool(pairs) and all((np.abs(own - old) <= _NEAR * np.abs(old)).all() for own, old in pairs)
        found = question(self.second if is_lost and self.second is not None else self.first)
        if self._is_fine(*stated(found)):
            return found
        other = self.first if is_lost else self.second
        if other is None:
            return found
        another = question(other)
        if is_lost:
            self._lost.clear()
        elif self._is_fine(*stated(another)) and not self._is_trusted(*stated(found)):
            self._lost[:] = [hyper]
        several = [(stated(each), each) for each in (found, another)]
        return min(several, key=lambda each: each[0][1] if np.isfinite(each[0][0]) else np.inf)[1]

    def posterior(self, hyper: Hyperparameters) -> Posterior:
        """Return the posterior at some hyperparameters, by another engine where the first one loses too many digits."""
        found = self._posterior(hyper)
        if np.isfinite(found.value) and not self._is_trusted(found.value, found.error):
            raise AccuracyError(
                f"{_LOST}; the log evidence at these values, {found.value:.6g}, has an error of about {found.error:.1g}"
            )
        return found

    def _posterior(self, hyper: Hyperparameters) -> Posterior:
        try:
            first = self.first.posterior(hyper)
        except AccuracyError:
            if self.second is None:
                raise
            return self.second.posterior(hyper)
        if not np.isfinite(first.value) and self.second is not None:
            # Out of reach for the first one, which would say so only when it is asked for curves.
            try:
                return self.second.posterior(hyper)
            except LodekitError:
                return first
        if doubt := self._doubt(hyper, first.value):
            return RefinedPosterior(first, first, doubt)
        is_fine = self._is_fine(first.value, first.error)
        if self.second is None or (is_fine and not first.rounding > ACCURATE):
            return first
        try:
            with np.errstate(all="ignore"):
                second = self.second.posterior(hyper)
                # Averages begin before their times, where nothing was measured.
                back = self.prior.units.user_lengths(self.prior.observables.longest_window)
                edges = np.asarray(self.measurements.window) + np.array([back, 0.0])
                at_data = second.mean(self.prior.observables, edges)
        except LodekitError:
            return first
        is_better = second.rounding < first.rounding or not (is_fine or second.error > first.error)
        return RefinedPosterior(first, second) if np.isfinite(at_data).all() and is_better else first

    def _doubt(self, hyper: Hyperparameters, value: float) -> str:
        """Return that waves miss a part of the channel prior, as a sentence; empty where a matrix says the same.

        Waves say themselves what they miss; this is a second witness, where it is cheap.
        """
        is_on_waves = self.case.on_channels and self.choice.kind.name == "spectral"
        if not is_on_waves or self.case.size > _FEW or self.second is None or not np.isfinite(value):
            return ""
        with np.errstate(all="ignore"):
            other, error = self.second.appraise(hyper)
        if not np.isfinite(other) or abs(other - value) <= max(_APART[0], _APART[1] * abs(value), error):
            return ""
        return (
            f"waves miss a part of the prior of the channels: the log evidence is {value:.6g} by them and {other:.6g} "
            "by a matrix; fit with engine='dense'"
        )

    def powers(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return the mean square of the data of each observable, (o,), and of each basis function of the modes, (r,).

        Parameters
        ----------
        coefficients : Coefficients
            Of the measured observables, at some values of the parameters.
        """
        return self.first.powers(coefficients)

    def trouble(self, hyper: Hyperparameters) -> str:
        """Return why nothing finite can be said at some hyperparameters, as a sentence; empty where it is not known."""
        if found := self.first.trouble(hyper):
            return found
        several = [engine.appraise(hyper) for engine in (self.first, self.second) if engine is not None]
        known = [each for each in several if np.isfinite(each[0])]
        return _LOST if known and not any(self._is_trusted(*each) for each in known) else ""

    def _is_fine(self, value: float, error: float) -> bool:
        """Return whether a log evidence is finite and its error so small that nobody else has to be asked."""
        return bool(np.isfinite(value) and error <= _FINE * max(self.size, abs(value)))

    def _is_trusted(self, value: float, error: float) -> bool:
        """Return whether a log evidence is finite and its error changes no answer."""
        return bool(np.isfinite(value) and error <= max(TRUSTED * max(self.size, abs(value)), _HARMLESS))
