"""Predictions and posterior samples of a fit, the log evidence, and the log predictive density of new data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.data.sources import load_arrays, load_data
from lodekit.data.tables.frames import make_frame
from lodekit.data.time_reference import TimeReference
from lodekit.errors import DataError, LodekitError
from lodekit.prior.observables import table_checks
from lodekit.results.fit import Fit
from lodekit.results.forecast import forecast_observables, parse_horizon, widen_free_run
from lodekit.support import arguments
from lodekit.support.arguments import Array
from lodekit.support.progress import track_progress


def predict(
    fit: Fit,
    t: ArrayLike | None = None,
    observable: str | Sequence[str] | None = None,
    return_std: bool = False,
    return_cov: bool = False,
    *,
    parameters: str = "uncertain",
    record: str | int | None = None,
    ahead: int | str | None = None,
    as_frame: bool | str | None = None,
) -> Any:
    """Return the posterior mean and, on request, standard deviations or covariances.

    All refer to the observables without measurement noise, in the user's units. Standard deviations include the
    uncertainty of all estimates: its effect on the mean is added to the posterior covariance. Beyond the data they also
    include model error, as large as in the record.

    Parameters
    ----------
    t : array-like, shape (n,)
        Times, in any order; dates if the fit had dates. None with `ahead`.
    observable : str or sequence of str, optional
        Linear differential expressions of the channels, such as ``"f1'"``, ``"f1 - f2"``; by default all channels,
        or with `ahead` all measured observables.
    return_std, return_cov : bool
        Whether to return standard deviations or covariances, too.
    parameters : {"uncertain", "fixed"}
        Whether standard deviations include the uncertainty of all estimates, or take these as exact.
    record : str or int, optional
        The record, by name or by number counted from zero; required if there are several.
    ahead : int or str, optional
        Predict this many rows ahead, at the times of the record at which all these observables were measured, in
        order: each row from the measurements up to that many rows before it, at the estimates; the first ones from the
        prior. A text is a time: ``"24 h"``, or ``"24"`` in the unit of the record. The Markov engine uses all earlier
        measurements; others use at least 500 if there are more than 1000. Standard deviations adapt to the size of
        earlier errors, unless parameters are fixed.
    as_frame : bool or str, optional
        Whether to return one DataFrame with times (dates if the fit had dates), means and, on request, standard
        deviations, but not covariances; a text is its library, such as ``"polars"``. By default if DataFrames were
        passed to `fit`.

    Returns
    -------
    mean : array, shape (n, channels), or (n,) for an observable given as text
    std : array of the same shape, if requested
    cov : array, shape (n, channels, n, channels), or (n, n), if requested

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> gp.predict([0.5, 1.5]).shape
    (2, 2)
    >>> speed, std = gp.predict([0.5, 1.5], "x'", return_std=True)
    >>> speed.shape, std.shape
    ((2,), (2,))
    """
    fit = fit.for_record(record)
    if ahead is not None:
        if t is not None or return_cov:
            raise LodekitError("predictions ahead are at the times of the record; expected no t, and no return_cov")
        texts, single = parse_observables(fit, fit.measurements.names if observable is None else observable)
        horizon, uncertain = parse_horizon(ahead, fit.clock.unit), arguments.includes_parameter_uncertainty(parameters)
        times, *parts = forecast_observables(fit, texts, horizon, include_uncertainty=uncertain and return_std)
        return format_prediction(parts[: 1 + return_std], times, single=single, frame=(fit.clock, texts, as_frame))
    if t is None:
        raise LodekitError("expected times to predict at, such as predict([0.5, 1.5]), or ahead=")
    include_uncertainty = arguments.includes_parameter_uncertainty(parameters)
    texts, single = parse_observables(fit, observable)
    times, observables = fit.parse_times(t), fit.observables(texts)
    if not len(times):
        shape = 0, len(texts)
        parts = [np.zeros(part) for part in (shape, *[shape] * return_std, *[shape * 2] * return_cov)]
        return format_prediction(parts, times, single=single, frame=(fit.clock, texts, as_frame))
    with np.errstate(all="ignore"):
        mean = fit.posterior.mean(observables, times)
        parts, shifts, dof_fraction, unexplained = [mean], np.zeros((0, *mean.shape)), 1.0, np.zeros(len(texts))
        if include_uncertainty:
            dof_fraction = fit.residual_dof_fraction
            unexplained = np.array([fit.unexplained_std.get(text, 0.0) for text in texts])
            if return_std or return_cov:
                shifts = fit.inflate_shifts(fit.parameter_uncertainty.mean_shifts(observables, times))
        if return_std:
            variance = fit.posterior.variance(observables, times) / dof_fraction + np.sum(shifts**2, axis=0)
            if include_uncertainty and (elapsed := times - fit.measurements.window[1]).max() > 0.0:
                variance = widen_free_run(fit, texts, np.maximum(elapsed, 0.0), variance)
            parts.append(np.sqrt(variance + unexplained**2))
        if return_cov:
            # The unexplained part of an observable is added as if it were independent at each time.
            arguments.check_memory(3.0 * mean.size**2, f"the covariance of {mean.size} values")
            covariance = fit.posterior.covariance(observables, times) / dof_fraction
            covariance += np.tensordot(shifts, shifts, (0, 0))
            # A writable view of the diagonal, for any memory order of the covariance.
            np.einsum("ijij->ij", covariance)[...] += unexplained**2
            parts.append(covariance)
    return format_prediction(parts, times, single=single, frame=(fit.clock, texts, as_frame))


def format_prediction(
    parts: Sequence[Array],
    times: Array,
    *,
    single: bool,
    frame: tuple[TimeReference, Sequence[str], bool | str | None] | None = None,
) -> Any:
    """Return the requested arrays, one or several, or a DataFrame of them; raise if one is not finite.

    A DataFrame needs a clock, the names of the observables, and its library, if one is requested.

    Shapes: parts (n, o), times (n,).
    """
    for part in parts:
        arguments.check_finite(part, times)
    if frame is not None and frame[2] and all(part.ndim == 2 for part in parts):
        clock, texts, library = frame
        names = [name.format(text) for text in texts for name in ("{}", "std({})")[: len(parts)]]
        values = np.stack(parts, axis=-1).reshape(len(times), len(names)).T
        return make_frame({"t": clock.to_dates(times) or times, **dict(zip(names, values, strict=True))}, library)
    shown = [(part[:, 0, :, 0] if part.ndim == 4 else part[:, 0]) if single else part for part in parts]
    return shown[0] if len(shown) == 1 else tuple(shown)


@track_progress("drawing from the posterior")
def sample(
    fit: Fit,
    t: ArrayLike,
    size: int = 1,
    random_state: int | None = None,
    observable: str | Sequence[str] | None = None,
    *,
    parameters: str = "uncertain",
    return_parameters: bool = False,
    record: str | int | None = None,
) -> Any:
    """Draw functions from the posterior, without measurement noise and in the user's units.

    Each one has its own parameters and hyperparameters, drawn from their approximate posterior, and solves the
    equations at these parameters. If residuals are correlated, parameters vary as much as their widened intervals.
    Unlike the bands of `predict`, functions beyond the data do not include model error.

    Parameters
    ----------
    t : array-like, shape (n,)
        Times, in any order.
    size : int
        Number of functions.
    random_state : int, optional
        Random seed.
    observable : str or sequence of str, optional
        As in `predict`.
    parameters : {"uncertain", "fixed"}
        Whether each function has its own parameters, or all have the estimated ones. The former computes a posterior
        for each function.
    return_parameters : bool
        Whether to return the parameters of the system for each function, too.
    record : str or int, optional
        As in `predict`. With the same seed, functions of different records have the same parameters.

    Returns
    -------
    drawn : array, shape (size, n, channels), or (size, n) for an observable given as text
    parameters : dict of str to array, shape (size,), if requested

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    >>> gp = lk.LODEGP(system, random_state=0).fit([0.0, 1.0, 2.0, 3.0], [1.0, 0.37, 0.13, 0.05])
    >>> drawn, own = gp.sample([0.0, 1.0, 2.0], size=5, random_state=0, return_parameters=True)
    >>> drawn.shape, own["a"].shape
    ((5, 3, 1), (5,))
    """
    fit = fit.for_record(record)
    texts, single = parse_observables(fit, observable)
    times, observables = fit.parse_times(t), fit.observables(texts)
    uncertain = arguments.includes_parameter_uncertainty(parameters)
    arguments.check_count("size", size)
    size = int(size)
    arguments.check_seed(random_state)
    arguments.check_memory(2.0 * size * len(times) * len(texts), f"{size} functions at {len(times)} times")
    generator = np.random.default_rng(random_state)
    theta, drawn = np.tile(fit.hyperparameters.theta, (size, 1)), np.zeros((size, 0, observables.count))
    with np.errstate(all="ignore"), fit.setup.limit_threads():
        if len(times) and uncertain and fit.layout.size:
            fit.require_full_record("functions at other parameters (use parameters='fixed')")
            # Every function has its own generator, so that it does not depend on the times of the others.
            generators = generator.spawn(size)
            drawn = np.zeros((size, len(times), observables.count))
            wider = fit.joint_fit.inflation_root if fit.diagnosis.widening else None
            for k, (point, posterior) in enumerate(fit.parameter_uncertainty.sample_posteriors(size, generator, wider)):
                theta[k] = fit.layout.unpack(point).theta
                mean = posterior.mean(observables, times)
                deviation = posterior.sample(observables, times, 1, generators[k])[0] - mean
                drawn[k] = mean + deviation / np.sqrt(fit.residual_dof_fraction)
        elif len(times):
            drawn = fit.posterior.sample(observables, times, size, generator)
    arguments.check_finite(drawn.transpose(1, 0, 2), times)
    found = drawn[:, :, 0] if single else drawn
    return (found, dict(zip(fit.layout.names, theta.T, strict=True))) if return_parameters else found


def log_evidence(fit: Fit, values: Mapping[str, float] | None = None, *, return_gradient: bool = False) -> Any:
    """Return the log evidence at the estimated hyperparameters, with some parameters changed, and its gradient.

    Parameters
    ----------
    values : dict of str to float, optional
        Parameters of the system to change; all others keep their estimates.
    return_gradient : bool
        Whether to return the derivatives by the parameters of the system, too, as a dict of str to float.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    >>> gp = lk.LODEGP(system, random_state=0).fit([0.0, 1.0, 2.0, 3.0], [1.0, 0.37, 0.13, 0.05])
    >>> gp.log_evidence() > gp.log_evidence({"a": 2.0})
    True
    """
    names, theta = fit.layout.names, fit.hyperparameters.theta.copy()
    for name, value in arguments.parse_parameter_values(names, values).items():
        theta[names.index(name)] = value
    fit.require_full_record("log evidences")
    found = fit.setup.engine.evaluate(replace(fit.hyperparameters, theta=theta))
    # The correction for diffuse modes is the same at all values.
    value = found.value + fit.restricted_likelihood_correction
    if return_gradient:
        return value, {n: float(g) for n, g in zip(names, found.gradient.theta, strict=True)}
    return value


def score(
    fit: Fit, t: ArrayLike | Observations, Y: Any = None, noise_std: Any = None, *, record: str | int | None = None
) -> float:
    """Return the mean log predictive density of new measurements, with noise and parameter uncertainty.

    Parameters
    ----------
    t : array-like, shape (n,), Observations, path or DataFrame
        Times, or a table with times and values in columns, as in `fit`.
    Y : array (n, channels), dict of observable to array, or DataFrame
        Measurements in the user's units, NaN if missing; omitted if `t` contains them. Samples of known inputs are
        added to those of the fit.
    noise_std : number, array or dict, optional
        Standard deviations of their noise; by default the estimated level, or the typical known noise of the fitted
        data.
    record : str or int, optional
        The record of the measurements, as in `predict`.

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> gp.score([1.5], {"x": [1.5]}) > gp.score([1.5], {"x": [9.0]})
    True
    """
    fit = fit.for_record(record)
    total, count = 0.0, 0
    if Y is None and not isinstance(t, Observations):
        options = {"since": fit.clock.origin, **fit.labels.read_options, **table_checks(fit.system)}
        source = load_data(t, None, fit.system.plain_channels, noise_std=noise_std, **options)
        fit.clock.check_origin(source.origin)
        new, *more = source.measurements.records.values()
        if more or new.sufficient_statistics is not None:
            raise DataError("expected one record that fits into memory, got several, or a larger one")
    else:
        new = Measurements.from_observations(load_arrays(fit.system.plain_channels, t, Y, noise_std, fit.clock)[0])
    reader = fit.setup.observable_compiler
    if fit.measurements.inputs:
        # New samples of an input are added to those of the fit.
        new = new.with_known_inputs({name: signal.kind for name, signal in reader.inputs.items()}, required=False)
        reader = replace(reader, inputs=fit.measurements.merge_inputs(new))
    if not any(len(series.times) for series in new.series):
        raise DataError("expected measurements beside those of known inputs, got none")
    for series in new.series:
        observables = reader.compile_unscaled([series.observable], fit.prior.units)
        mean = fit.posterior.mean(observables, series.times)[:, 0]
        noise = series.noise_std_for_level(fit.typical_noise(series.observable))
        slopes = fit.inflate_shifts(fit.parameter_uncertainty.mean_shifts(observables, series.times))[:, :, 0]
        variance = fit.posterior.variance(observables, series.times)[:, 0] / fit.residual_dof_fraction
        variance += np.sum(slopes**2, axis=0) + noise**2
        if not (variance > 0).all():
            raise DataError("the predictive density is infinite without noise; give noise_std= for the new data")
        total += float(np.sum(-0.5 * (series.values - mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)))
        count += len(mean)
    return total / count


def parse_observables(fit: Fit, observable: str | Sequence[str] | None) -> tuple[list[str], bool]:
    """Return observables as texts, and whether a single one was requested."""
    if observable is None:
        return fit.setup.channels, False
    if isinstance(observable, str):
        return [observable], True
    if not isinstance(observable, Iterable):
        raise LodekitError(f"expected an observable as text, or a list of texts, got {type(observable).__name__}")
    texts = [str(text) for text in observable]
    if not texts:
        raise LodekitError("expected at least one observable, got an empty list")
    return texts, False
