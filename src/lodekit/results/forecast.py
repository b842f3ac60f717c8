"""Predictions some rows or time ahead from earlier measurements (k-step prediction), with calibrated bands."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lodekit.data.observations import TimeSeries
from lodekit.data.records import with_empty_series
from lodekit.errors import LodekitError
from lodekit.inference.innovations import (
    Horizon,
    InnovationSequence,
    create_filter,
    forecast_errors,
    split_into_segments,
    uses_kalman_filter,
)
from lodekit.inference.selection import ENGINES
from lodekit.prior.prior import Hyperparameters
from lodekit.results.fit import Fit
from lodekit.support.arguments import Array
from lodekit.support.units import UnitConversion, find_unit_conversion
from lodekit.uncertainty.forecast_errors import (
    CONSTANT_VARIANCE,
    NOMINAL_SCALE,
    ForecastErrorScale,
    GarchVariance,
    calibrate_error_scale,
    fit_garch,
    median_step,
    rolling_origin_scale,
)
from lodekit.uncertainty.laplace import LaplaceApproximation
from lodekit.uncertainty.sandwich import estimate_from_first_rows

#: Number of rows that determine the initial state; earlier rows are not predicted.
BURN_IN_ROWS = 10
#: Number of horizons at which free runs are calibrated, from one row to a quarter of the record.
_N_HORIZONS = 5
#: Number of origins in the second half of a record, from whose earlier rows parameters are estimated again.
_N_ORIGINS = 8
#: Function from hyperparameters to innovations; None if rounding errors dominate.
_FilterFunction = Callable[[Hyperparameters], InnovationSequence | None]
_Segment = tuple[InnovationSequence, _FilterFunction, LaplaceApproximation | None]


@dataclass(frozen=True)
class ForecastBand:
    """A band of predictions of one observable that adapts to earlier errors.

    horizon: The horizon of the predictions.
    variance_model: Variance model of the innovations.
    error_scale: The part of a change of variance that persists over the horizon, and the scale of errors.
    """

    horizon: Horizon
    variance_model: GarchVariance = CONSTANT_VARIANCE
    error_scale: ForecastErrorScale = NOMINAL_SCALE

    def forecast_std(
        self, innovations: InnovationSequence, observable: int, variances: Array, parameter_variances: Array
    ) -> Array:
        """Return the standard deviations of errors, given those of the model and of parameters; all of shape (n,)."""
        ratios = _variance_ratios(self.variance_model, self.horizon, innovations, observable)
        return self.error_scale.forecast_std(ratios, variances, parameter_variances)


def calibrate_bands(fit: Fit, names: Sequence[str], horizons: Sequence[Horizon]) -> dict[str, list[ForecastBand]]:
    """Return bands of predictions ahead that are calibrated on the errors of the fitted records, by observable."""
    every = [segment for part in fit.record_fits for segment in _filter_segments(part)]
    order = fit.prior.noise.observables
    requested = [(order.index(name), horizon) for name in names if name in order for horizon in horizons]
    # For each segment, by observable and horizon: standardised errors, NaN if too few rows were known, and the
    # variances that parameter uncertainty adds to errors of another record, in the same unit.
    standardized: list[dict[tuple[int, Horizon], tuple[Array, Array]]] = []
    for innovations, filter_at, laplace in every:
        slopes = None if laplace is None else error_shifts(laplace, innovations, filter_at, requested)[1]
        standardized.append({})
        for k, (errors, deviations) in enumerate(forecast_errors(innovations, requested)):
            observable, horizon = requested[k]
            own = _measured_times(innovations, observable)
            variance = np.zeros(len(own)) if slopes is None else np.sum(slopes[k] ** 2, axis=0)
            is_known = (horizon.count_known(own, own) > BURN_IN_ROWS) & (deviations > 0.0)
            # Variances are corrected for the degrees of freedom that the fit has used.
            std = np.where(is_known, deviations, 1.0) / np.sqrt(fit.residual_dof_fraction)
            standardized[-1][observable, horizon] = np.where(is_known, errors / std, np.nan), variance / std**2
    bands: dict[str, list[ForecastBand]] = {}
    free_runs = calibrate_free_run(fit)
    for name in names:
        # Other records may have observables that are not in the fit.
        number, segments = (order.index(name), every) if name in order else (0, [])
        times = [_measured_times(innovations, number) for innovations, *_ in segments]
        garch = fit_garch(times, [_clip_innovations(innovations, number) for innovations, *_ in segments])
        bands[name] = []
        for horizon in horizons:
            ratios = [_variance_ratios(garch, horizon, innovations, number) for innovations, *_ in segments]
            pairs = [each[number, horizon] for each in standardized] if segments else []
            scaled, variances = ([each[part] for each in pairs] for part in (0, 1))
            behind = (np.arange(len(each)) - horizon.count_known(each, each) for each in times if len(each))
            rows = max((max(1, int(np.median(each)) + 1) for each in behind), default=1)
            scale = calibrate_error_scale(scaled, ratios, variances, rows)
            if name in free_runs and fit.diagnosis.widening:
                # Correlated innovations: errors due to parameters that the record has not determined yet are larger.
                time = horizon.time or horizon.steps * median_step(max(times, key=len))
                scale = replace(scale, scale=max(scale.scale, float(np.interp(time, *free_runs[name]))))
            bands[name].append(ForecastBand(horizon, garch, scale))
    return bands


def forecast_with_bands(
    innovations: InnovationSequence,
    requested: Sequence[tuple[int, ForecastBand]],
    slopes: Sequence[Array],
    dof_fraction: float = 1.0,
    n_given: int = 0,
) -> list[tuple[Array, Array]]:
    """Return measurements minus predictions ahead, and their standard deviations, for observables and bands.

    `slopes` are changes of the errors due to parameter uncertainty, as from `error_shifts`.
    """
    with_bands = []
    forecasts = forecast_errors(innovations, [(number, band.horizon) for number, band in requested], n_given)
    for (errors, deviations), (number, band), own in zip(forecasts, requested, slopes, strict=True):
        std = band.forecast_std(innovations, number, deviations**2 / dof_fraction, np.sum(own**2, axis=0))
        with_bands.append((errors, std))
    return with_bands


def error_shifts(
    laplace: LaplaceApproximation,
    innovations: InnovationSequence,
    filter_at: _FilterFunction,
    requested: Sequence[tuple[int, Horizon]],
    n_given: int = 0,
) -> tuple[Array, list[Array]]:
    """Return changes of innovations due to parameter uncertainty, (k, n), and of each requested prediction error.

    Both follow from one pass of the filter at each neighbouring point.
    """

    def errors_at(hyper: Hyperparameters) -> Array | None:
        found = filter_at(hyper)
        if found is None:
            return None
        ahead = (errors for errors, _ in forecast_errors(found, requested, n_given))
        # Innovations of exact values are not finite.
        return np.concatenate([np.nan_to_num(found.standardized * found.std, posinf=0.0, neginf=0.0), *ahead])

    count = len(innovations.times)
    sizes = [int(np.sum(innovations.observables == number)) for number, _ in requested]
    shifts = laplace.shifts_of(errors_at).reshape(-1, count + sum(sizes))
    return shifts[:, :count], np.split(shifts[:, count:], np.cumsum(sizes)[:-1], axis=1) if sizes else []


def widen_free_run(fit: Fit, texts: Sequence[str], elapsed: Array, variance: Array) -> Array:
    """Return variances of a free run that include model error, as large as it was in the fitted records; (n, o).

    Observables that were not measured have the largest factor of the measured ones.

    Shapes: elapsed (n,), the time since the start of the run; variance (n, o).
    """
    known = calibrate_free_run(fit.joint_fit)
    if not known:
        return variance
    found = []
    for text, own in zip(texts, variance.T, strict=True):
        chosen = [known[text]] if text in known else list(known.values())
        # The model error is zero at the start of the run.
        factors = [np.interp(elapsed, np.append(0.0, times), np.append(1.0, scales)) for times, scales in chosen]
        total = own + (fit.typical_noise(text) ** 2 if text in known else 0.0)
        found.append(own + (np.max(factors, axis=0) ** 2 - 1.0) * total)
    return np.stack(found, axis=1)


def calibrate_free_run(fit: Fit) -> dict[str, tuple[Array, Array]]:
    """Return horizons, and the ratios of actual to predicted errors of free runs at these, by observable.

    A rolling origin: every row of the fitted records is predicted from rows that are at least the horizon before it,
    with parameters that are estimated from these rows alone. Model error of any kind (a missing lag, slow disturbances,
    nonlinearity) shows in these errors, as it will in the next free run. There is no result without disturbances if
    residuals are independent, and with free functions.
    """
    known, order = fit.calibrated_free_runs, fit.prior.noise.observables
    if known or fit.prior.n_processes or not (fit.prior.disturbances or fit.diagnosis.widening):
        return known
    every = [segment for part in fit.record_fits for segment in _filter_segments(part) if len(segment[0].times)]
    longest = max((float(np.ptp(innovations.times)) for innovations, *_ in every), default=0.0) / 4.0
    shortest = min((median_step(np.unique(innovations.times)) for innovations, *_ in every), default=0.0)
    if not 0.0 < shortest < longest:
        return known
    horizons = np.geomspace(shortest, longest, _N_HORIZONS)
    requested = [(number, Horizon(time=time)) for number in range(len(order)) for time in horizons.tolist()]
    with np.errstate(all="ignore"):
        errors = [_rolling_origin_errors(*segment, requested) for segment in every]
    for name, numbers in zip(order, np.split(np.arange(len(requested)), len(order)), strict=True):
        scales = [rolling_origin_scale([each[number] for each in errors]) for number in numbers]
        known[name] = horizons, np.array(scales)
    return known


def _rolling_origin_errors(
    innovations: InnovationSequence,
    filter_at: _FilterFunction,
    laplace: LaplaceApproximation | None,
    requested: Sequence[tuple[int, Horizon]],
) -> list[Array]:
    """Return standardised errors of predictions with parameters from earlier rows, NaN if these are too few."""
    if laplace is None:
        return [np.zeros(0)] * len(requested)
    shifts, own = error_shifts(laplace, innovations, filter_at, requested)
    usable = np.isfinite(innovations.standardized)
    # Innovations of exact values are not finite.
    residuals, shifts = (np.where(usable, part, 0.0) for part in (innovations.standardized, shifts / innovations.std))
    # Half of the rows determine the first estimates.
    origins = np.linspace(len(residuals) // 2, len(residuals), _N_ORIGINS, endpoint=False).astype(int)
    estimates = [estimate_from_first_rows(shifts, residuals, innovations.observables, int(k)) for k in origins]
    moves, covariances, levels = (np.stack(each) for each in zip(*estimates, strict=True))
    found = []
    ahead = forecast_errors(innovations, requested)
    for (number, horizon), slopes, (errors, deviations) in zip(requested, own, ahead, strict=True):
        times = _measured_times(innovations, number)
        places = np.searchsorted(origins, horizon.count_known(innovations.times, times), side="right") - 1
        added = np.einsum("kn,nkl,ln->n", slopes, covariances[places], slopes)
        # Residuals may be larger than known noise.
        variance = levels[places] / np.mean(residuals**2) * (deviations**2 + added)
        standardized = (errors + np.sum(slopes.T * moves[places], axis=1)) / np.sqrt(variance)
        found.append(np.where((places >= 0) & (variance > 0.0), standardized, np.nan))
    return found


def _measured_times(innovations: InnovationSequence, observable: int) -> Array:
    return np.asarray(innovations.times[innovations.observables == observable])


def _filter_segments(fit: Fit) -> list[_Segment]:
    """Return innovations, the filter and the parameter uncertainty of a record, or of segments of it."""
    if fit.measurements.has_only_statistics:
        return []
    series, factory = with_empty_series(fit.measurements, fit.prior.noise.observables).series, fit.engine_choice.factory
    # Alternative optima are left out: they describe no errors that the fit has absorbed.
    uncertainty = replace(fit.parameter_uncertainty, alternatives=()) if fit.measurements.size <= 20_000 else None
    segments: list[_Segment] = []
    # Without free functions, all models have finitely many states.
    factory = factory if fit.prior.n_processes else ENGINES["markov"]
    for part in [series] if uses_kalman_filter(factory, fit.prior) else split_into_segments(series):
        filter_at = create_filter(factory, fit.prior, part)
        innovations = filter_at(fit.hyperparameters)
        if innovations is not None:
            segments.append((innovations, filter_at, uncertainty))
    return segments


def _clip_innovations(innovations: InnovationSequence, observable: int) -> Array:
    """Return standardised innovations of an observable; zero for exact values, and clipped to one in the first rows."""
    found = innovations.standardized[innovations.observables == observable]
    found = np.where(np.isfinite(found), found, 0.0)
    found[:BURN_IN_ROWS] = np.clip(found[:BURN_IN_ROWS], -1.0, 1.0)
    return found


def _variance_ratios(
    variance_model: GarchVariance, horizon: Horizon, innovations: InnovationSequence, observable: int
) -> Array:
    """Return relative variances of innovations at the times when rows of an observable were predicted, shape (n,)."""
    times = _measured_times(innovations, observable)
    after = np.append(variance_model.filter_variance(times, _clip_innovations(innovations, observable)), 1.0)
    return after[horizon.count_known(times, times) - 1]


#: Up to the first number of measurements are filtered as a whole; more in chunks of the second number, each after as
#: many earlier ones.
_MAX_UNSPLIT_ROWS, _CHUNK_ROWS = 1000, 500
_TIME_PATTERN = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+)\s*(?P<unit>\D.*?)?\s*")


def parse_horizon(ahead: object, unit: str = "") -> Horizon:
    """Return the horizon of predictions from a number of rows, or a time as text; or raise.

    Examples
    --------
    >>> parse_horizon(5).steps, parse_horizon("2 h", "min").time
    (5, 120.0)
    """
    if isinstance(ahead, str):
        return Horizon(time=parse_time_horizon(ahead, unit))
    if isinstance(ahead, bool) or not isinstance(ahead, int | np.integer) or ahead < 1:
        raise LodekitError(
            f"expected ahead as a number of rows from one on, or as a time in words such as '24 h', got {ahead!r}"
        )
    return Horizon(int(ahead))


def parse_time_horizon(text: str, unit: str) -> float:
    """Return a time ahead in the unit of the fit."""
    found = _TIME_PATTERN.fullmatch(text)
    conversion: UnitConversion | None = UnitConversion()
    if found is not None and found["unit"]:
        conversion = find_unit_conversion(found["unit"], unit) if unit else None
    if conversion is None:
        known = "the unit of time is not known; set it with label()"
        if unit:
            others = "; others are s, min, h and d" * (find_unit_conversion(unit, "s") is not None)
            known = f"the unit of time is {unit}, for example '24 {unit}'{others}"
        raise LodekitError(f"unknown unit in {text!r}; {known}")
    time = 0.0 if found is None else float(found["number"]) * conversion.factor / conversion.divisor
    if not 0.0 < time < math.inf:
        raise LodekitError(f"expected a time ahead such as '24 h' or '0.5', above zero, got {text!r}")
    return time


def forecast_observables(
    fit: Fit, texts: Sequence[str], horizon: Horizon, *, include_uncertainty: bool = True
) -> tuple[Array, Array, Array]:
    """Return the times at which all observables were measured, (n,), predictions and standard deviations, (n, o)."""
    if fit.measurements.has_only_statistics:
        raise LodekitError("the measurements were summed and not kept; expected fewer rows for predictions ahead")
    whole = uses_kalman_filter(fit.engine_choice.factory, fit.prior)
    if fit.measurements.size > 20_000 and not whole:
        raise LodekitError(f"expected at most 20000 measurements for predictions ahead, got {fit.measurements.size}")
    series = with_empty_series(fit.measurements, fit.prior.noise.observables).series
    order = [item.observable for item in series]
    for name in texts:
        if name not in order or not len(series[order.index(name)].times):
            measured = ", ".join(item.observable for item in series if len(item.times))
            raise LodekitError(f"expected measured observables for predictions ahead, {measured}, got {name!r}")
    names = list(dict.fromkeys(texts))
    bands = calibrate_bands(fit.joint_fit, names, [horizon]) if include_uncertainty else {}
    pieces: dict[str, list[tuple[Array, Array, Array]]] = {name: [] for name in names}
    for chunk, after in _split_chunks(series, whole=whole):
        filter_at = create_filter(fit.engine_choice.factory, fit.prior, chunk)
        innovations = filter_at(fit.hyperparameters)
        if innovations is None:
            raise LodekitError(
                "rounding errors exceed the information of single measurements; expected more noise, or fewer rows"
            )
        numbers = [order.index(name) for name in names]
        requested = [(number, horizon) for number in numbers]
        if include_uncertainty:
            _, slopes = error_shifts(fit.parameter_uncertainty, innovations, filter_at, requested)
            own_bands = [(number, bands[name][0]) for name, number in zip(names, numbers, strict=True)]
            parts = forecast_with_bands(innovations, own_bands, slopes, fit.residual_dof_fraction)
        else:
            parts = forecast_errors(innovations, requested)
        for name, number, (errors, deviations) in zip(names, numbers, parts, strict=True):
            item = chunk[number]
            noise = item.noise_std_for_level(fit.typical_noise(name))
            std = np.sqrt(np.maximum(deviations**2 - noise**2, 0.0))
            new = item.times > after
            pieces[name].append((item.times[new], (item.values - errors)[new], std[new]))
    joined = {name: [np.concatenate(part) for part in zip(*parts, strict=True)] for name, parts in pieces.items()}
    times = joined[names[0]][0]
    for name in names[1:]:
        times = np.intersect1d(times, joined[name][0])
    chosen = {name: np.searchsorted(own[0], times) for name, own in joined.items()}
    mean, std = (np.stack([joined[name][part][chosen[name]] for name in texts], axis=1) for part in (1, 2))
    return times, mean, std


def _split_chunks(series: Sequence[TimeSeries], *, whole: bool) -> Iterator[tuple[list[TimeSeries], float]]:
    """Yield measurements in the order of time, whole or in chunks, and the time after which rows of a chunk are new."""
    ordered = [item.select(np.argsort(item.times, kind="stable")) for item in series]
    times = np.sort(np.concatenate([item.times for item in ordered]))
    if whole or len(times) <= _MAX_UNSPLIT_ROWS:
        yield ordered, -np.inf
        return
    after = -np.inf
    for first in range(0, len(times), _CHUNK_ROWS):
        last = float(times[min(first + _CHUNK_ROWS, len(times)) - 1])
        low = float(times[max(first - _CHUNK_ROWS, 0)])
        if last > after:
            yield [item.select((item.times >= low) & (item.times <= last)) for item in ordered], after
        after = last
