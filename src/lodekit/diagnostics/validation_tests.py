"""Tests of prediction errors on a validation record: coverage, autocorrelation, correlation with inputs.

A fit attributes unmodelled effects to noise, so its band is wide and covers every record. A wrong model shows in
errors that are correlated with each other, or with a known input, more than parameter uncertainty explains.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import fdtr

from lodekit.data.inputs import InputSignal
from lodekit.diagnostics.messages import (
    autocorrelation_failures,
    describe_input_correlation,
    input_failures,
    low_coverage_failures,
)
from lodekit.diagnostics.residual_tests import (
    MIN_CORRELATION,
    SIGNIFICANCE_LEVEL,
    ResidualCheck,
    autocorrelation_at_lags,
    can_detect_correlation,
    chance_correlation,
    correlate,
    ljung_box_test,
)
from lodekit.support.arguments import Array
from lodekit.support.units import format_duration
from lodekit.uncertainty.estimates import NORMAL_QUANTILE_95
from lodekit.uncertainty.forecast_errors import effective_sample_size, median_step

#: The nominal coverage of a 95 % band.
_NOMINAL_COVERAGE = 0.95


@dataclass(frozen=True, eq=False)
class ValidationErrors:
    """Prediction errors of one observable of a validation record, in the order of time.

    name: The observable.
    times, values, deviations: Times, measurements minus predictions, and their standard deviations without parameter
        uncertainty: of the noise, or of an innovation; (n,).
    mean_jacobian: Change of the predictions per standard deviation of each combination of estimates; (k, n).
    are_innovations: Whether each measurement was predicted from all before it.
    n_fitted_rows: Number of measurements that the noise level was estimated from; zero if it is known.
    adaptation: Factors by which the band is wider because of earlier errors; (n,), or a number.
    """

    name: str
    times: Array
    values: Array
    deviations: Array
    mean_jacobian: Array
    are_innovations: bool = False
    n_fitted_rows: int = 0
    adaptation: Array | float = 1.0

    @cached_property
    def _nominal_std(self) -> Array:
        """Standard deviations of the errors, without the adaptation to earlier ones."""
        return np.asarray(np.sqrt(self.deviations**2 + np.sum(self.mean_jacobian**2, axis=0)))

    @cached_property
    def _total_std(self) -> Array:
        return np.asarray(self.adaptation * self._nominal_std)

    @property
    def coverage(self) -> float:
        """The share of measurements in the 95 % band."""
        return float(np.mean(np.abs(self.values) <= NORMAL_QUANTILE_95 * self._total_std))

    @property
    def excess_width(self) -> float:
        """How many times as wide as the errors require the band is, if significantly and at least twice; otherwise one.

        The mean square of n independent standardised errors is chi-squared with n degrees of freedom, or F-distributed
        if the noise level is estimated. If errors have correlation r, their squares have correlation r^2; both the
        correlations of the model and those of the errors reduce n.
        """
        scaled = self.values / self._total_std
        mean_square = float(np.mean(scaled**2))
        count = min(self.effective_sample_size, effective_sample_size([scaled], len(scaled)))
        chance = float(fdtr(count, self.n_fitted_rows or 1e9, mean_square))
        # The correlation of slow errors is underestimated in short records; this level allows for it.
        return 1.0 / math.sqrt(mean_square) if 0.0 < mean_square <= 0.25 and chance < 0.001 else 1.0

    @property
    def effective_sample_size(self) -> float:
        """The number of independent errors with the same information about the coverage."""
        scaled = self.mean_jacobian / self._nominal_std
        # If errors have correlation r, the events of being inside the band have correlation of about r^2.
        alike = float(np.sum((scaled @ scaled.T) ** 2))
        own = float(np.sum(1.0 - np.sum(scaled**2, axis=0) ** 2))
        return len(self.values) ** 2 / (alike + own)

    @property
    def min_coverage(self) -> float:
        """The smallest coverage that is compatible with the nominal one."""
        variance = _NOMINAL_COVERAGE * (1.0 - _NOMINAL_COVERAGE) / self.effective_sample_size
        if self.n_fitted_rows:
            # A standard deviation estimated from n values has a relative error of 1 / sqrt(2 n), which moves the edges
            # of the band. 0.058 is the standard normal density at the 97.5 % quantile.
            variance += (2.0 * NORMAL_QUANTILE_95 * 0.05844507) ** 2 / (2.0 * self.n_fitted_rows)
        return _NOMINAL_COVERAGE - max(0.05, 3.0 * math.sqrt(variance))

    @property
    def is_calibrated(self) -> bool:
        """Whether the band contains as many measurements as it should, up to chance."""
        return self.coverage >= self.min_coverage

    def verdicts(self, n_series: int) -> dict[str, Any]:
        """Return the fields of a validation that these errors determine, if this is one of so many tested series."""
        is_conclusive = can_detect_correlation(self.times, SIGNIFICANCE_LEVEL / (2 * n_series))
        return {"calibrated": self.is_calibrated, "excess_width": self.excess_width, "conclusive": is_conclusive}


def concatenate_errors(parts: Sequence[ValidationErrors]) -> ValidationErrors:
    """Return the concatenated errors of several runs; only combinations common to all runs are kept."""
    count = min(len(part.mean_jacobian) for part in parts)
    slopes, names = [part.mean_jacobian[:count] for part in parts], ("times", "values", "deviations", "adaptation")
    joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return replace(parts[0], **joined, mean_jacobian=np.concatenate(slopes, axis=1))


def find_validation_failures(
    errors: Sequence[ValidationErrors],
    inputs: Mapping[str, InputSignal],
    delayed_inputs: Collection[str] = (),
    time_unit: str = "",
    white_disturbances: Sequence[str] = (),
    n_records: int = 1,
    unexpected: Collection[str] = (),
) -> dict[str, tuple[str, ...]]:
    """Return failures of the validation tests in words, by observable; one in twenty correct models has a failure.

    unexpected: Observables of which even the free run is poor, on measurements that the fit did not use.
    """
    # Tests of autocorrelation and of correlation with inputs, of all observables and records, share the level.
    level, found = SIGNIFICANCE_LEVEL / (2 * max(len(errors), 1) * n_records), {}
    for own, left in zip(errors, _remove_parameter_uncertainty(errors), strict=True):
        kind = own.are_innovations
        whiteness = ljung_box_test(own.times, left, innovations=kind, inputs=inputs, significance=level)
        memory, white = 0.0 if whiteness is None else whiteness.lags[0], tuple(white_disturbances)
        check = ResidualCheck(own.name, len(left), len(left), 1.0, memory, 0.0, whiteness=whiteness, white=white)
        linked = _find_correlated_inputs(check, inputs, own.times, left, time_unit)
        found[own.name] = (
            *low_coverage_failures(
                own.coverage, own.min_coverage, are_innovations=kind, may_differ=own.name in unexpected
            ),
            *autocorrelation_failures(check, time_unit, is_linked=bool(linked)),
            *input_failures(linked, delayed_inputs),
        )
    return found


def _remove_parameter_uncertainty(errors: Sequence[ValidationErrors]) -> list[Array]:
    """Return errors divided by their standard deviations, minus the part that parameter uncertainty explains.

    Small estimation errors correlate a free run with the input, even if the model is correct: the distribution of the
    estimates is the prior of a regression of the errors on `mean_jacobian`, whose fit is subtracted.
    """
    scaled = [(own.values / own.deviations, own.mean_jacobian / own.deviations) for own in errors]
    count = len(errors[0].mean_jacobian) if errors else 0
    if not count:
        return [values for values, _ in scaled]
    inner = np.eye(count) + sum(slopes @ slopes.T for _, slopes in scaled)
    moved = np.linalg.solve(inner, sum(slopes @ values for values, slopes in scaled))
    return [values - moved @ slopes for values, slopes in scaled]


def _find_correlated_inputs(
    check: ResidualCheck, inputs: Mapping[str, InputSignal], times: Array, residuals: Array, time_unit: str
) -> dict[str, str]:
    """Return the inputs that errors are correlated with, and a description of each correlation."""
    if check.whiteness is None:
        return {}
    found = {name: describe_input_correlation(check, name, time_unit) for name in check.whiteness.correlated_inputs}
    for name, signal in inputs.items() if check.is_correlated else ():
        change, window = _correlate_with_changes(times, residuals, signal)
        if abs(change) > (abs(check.whiteness.links[name].correlation) if name in found else MIN_CORRELATION):
            how = f"changes of {name} over {format_duration(window, time_unit)} ({change:.2f})"
            found[name] = f"with {how}: the equations do not describe its effect correctly"
    return found


def _correlate_with_changes(times: Array, residuals: Array, signal: InputSignal) -> tuple[float, float]:
    """Return the strongest significant correlation with changes of an input over a window, and the window; or zeros.

    A missing dead time or lag causes transient errors after each step; the fit has absorbed errors that are
    proportional to the input itself.
    """
    step, best = median_step(times), (0.0, 0.0)
    own, windows = residuals - residuals.mean(), step * 2.0 ** np.arange(10)
    for window in windows[4.0 * windows <= times[-1] - times[0]].tolist():
        moves = signal.at(times) - signal.at(times - window)
        found = correlate(own, moves)
        count = max(1, min(len(times) // 4, int(2 * window / step), 200))
        first, second = (autocorrelation_at_lags(times, each - each.mean(), count)[0] for each in (own, moves))
        if abs(found) > max(abs(best[0]), 3.5 * chance_correlation(first, second, len(times))):
            best = found, window
    return best
