"""Tests of prediction errors on a validation record: coverage, autocorrelation, correlation with inputs.

A fit that misses something treats it as noise, so its band is wide and covers every record. A wrong model shows in
errors that depend on each other, or on a known input, by more than the parameter uncertainty explains.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lodekit.data.inputs import InputSignal
from lodekit.diagnostics.messages import (
    autocorrelation_failures,
    describe_change_correlation,
    describe_input_correlation,
    input_failures,
    low_coverage_failures,
)
from lodekit.diagnostics.residual_tests import (
    MIN_CORRELATION,
    SIGNIFICANCE_LEVEL,
    ResidualCheck,
    autocorrelation_at_lags,
    chance_correlation,
    correlate,
    ljung_box_test,
)
from lodekit.support.arguments import Array
from lodekit.support.text import format_quantity
from lodekit.uncertainty.estimates import NORMAL_QUANTILE_95
from lodekit.uncertainty.forecast_errors import median_step

#: What a 95 % band should hold, and by how much it may miss that in any case.
_NOMINAL_COVERAGE = 0.95


@dataclass(frozen=True, eq=False)
class ValidationErrors:
    """What a model missed of one observable of a record that was not used, in the order of time.

    name: The observable.
    times, values, deviations: Measurements minus predictions, and what is expected of each by itself: noise, or the
        deviation of an innovation; (n,).
    mean_jacobian: By how much predictions move with a deviation of each combination of all that was learned; (k, n).
    are_innovations: Whether each was predicted from all before it.
    n_fitted_rows: How many measurements have told how large noise is; zero where that is known.
    """

    name: str
    times: Array
    values: Array
    deviations: Array
    mean_jacobian: Array
    are_innovations: bool = False
    n_fitted_rows: int = 0

    @property
    def coverage(self) -> float:
        """The share of measurements in the 95 % band."""
        wide = np.sqrt(self.deviations**2 + np.sum(self.mean_jacobian**2, axis=0))
        return float(np.mean(np.abs(self.values) <= NORMAL_QUANTILE_95 * wide))

    @property
    def effective_sample_size(self) -> float:
        """As many independent errors tell as much about a share: those of the parameters leave a band in a body."""
        wide = self.deviations**2 + np.sum(self.mean_jacobian**2, axis=0)
        scaled = self.mean_jacobian / np.sqrt(wide)
        # If errors have correlation r, the events of being inside the band have correlation of about r^2.
        alike = float(np.sum((scaled @ scaled.T) ** 2))
        own = float(np.sum(1.0 - np.sum(scaled**2, axis=0) ** 2))
        return len(self.values) ** 2 / (alike + own)

    @property
    def min_coverage(self) -> float:
        """The share that a band should hold at least, by chance."""
        variance = _NOMINAL_COVERAGE * (1.0 - _NOMINAL_COVERAGE) / self.effective_sample_size
        if self.n_fitted_rows:
            # A deviation that is told by n values is off by one over the root of 2 n, and moves the edges of the band.
            # 0.058 is the standard normal density at the 97.5 % quantile.
            variance += (2.0 * NORMAL_QUANTILE_95 * 0.05844507) ** 2 / (2.0 * self.n_fitted_rows)
        return _NOMINAL_COVERAGE - max(0.05, 3.0 * math.sqrt(variance))

    @property
    def is_calibrated(self) -> bool:
        """Whether the band holds as many measurements as it should, up to chance."""
        return self.coverage >= self.min_coverage


def concatenate_errors(parts: Sequence[ValidationErrors]) -> ValidationErrors:
    """Return runs of one observable as one; combinations that only some of them know are left out."""
    count = min(len(part.mean_jacobian) for part in parts)
    times, values, deviations = (
        np.concatenate([getattr(part, field) for part in parts]) for field in ("times", "values", "deviations")
    )
    slopes = np.concatenate([part.mean_jacobian[:count] for part in parts], axis=1)
    return replace(parts[0], times=times, values=values, deviations=deviations, mean_jacobian=slopes)


def find_validation_failures(
    errors: Sequence[ValidationErrors],
    inputs: Mapping[str, InputSignal],
    delayed_inputs: Collection[str] = (),
    time_unit: str = "",
    white_disturbances: Sequence[str] = (),
    n_records: int = 1,
) -> dict[str, tuple[str, ...]]:
    """Return what speaks against a model, in words, by observable; of true models, one in twenty has anything."""
    # Both kinds of tests, of correlation and of links with inputs, share the level, in all records.
    level = SIGNIFICANCE_LEVEL / (2 * max(len(errors), 1) * n_records)
    found = {}
    for own, left in zip(errors, _remove_parameter_uncertainty(errors), strict=True):
        kind = own.are_innovations
        whiteness = ljung_box_test(own.times, left, innovations=kind, inputs=inputs, significance=level)
        memory, white = 0.0 if whiteness is None else whiteness.lags[0], tuple(white_disturbances)
        check = ResidualCheck(own.name, len(left), len(left), 1.0, memory, 0.0, whiteness=whiteness, white=white)
        linked = _find_correlated_inputs(check, inputs, own.times, left, time_unit)
        found[own.name] = (
            *low_coverage_failures(own.coverage, own.min_coverage, are_innovations=kind),
            *autocorrelation_failures(check, time_unit, is_linked=bool(linked)),
            *input_failures(linked, delayed_inputs),
        )
    return found


def _remove_parameter_uncertainty(errors: Sequence[ValidationErrors]) -> list[Array]:
    """Return errors over their deviations, less what the uncertainty of all that was learned makes of them.

    Estimates that are a little off move a free run with the input, in a true model as well: what was learned is taken
    as a prior, and the combination of its deviations that explains the errors best is taken out.
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
    """Return the inputs that errors go with, and how, in words."""
    if check.whiteness is None:
        return {}
    found = {name: describe_input_correlation(check, name, time_unit) for name in check.whiteness.correlated_inputs}
    for name, signal in inputs.items() if check.is_correlated else ():
        change, window = _correlate_with_changes(times, residuals, signal)
        if abs(change) > (abs(check.whiteness.links[name].correlation) if name in found else MIN_CORRELATION):
            found[name] = describe_change_correlation(name, change, format_quantity(window, time_unit))
    return found


def _correlate_with_changes(times: Array, residuals: Array, signal: InputSignal) -> tuple[float, float]:
    """Return the strongest correlation with changes of an input over some time, and over which; zero for chance.

    A dead time or a lag that is missing makes errors after each step, which pass: what was learned has taken all that
    goes with the input itself.
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
