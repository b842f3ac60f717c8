"""Fits from measurements: an engine is chosen, and everything is learned, or taken as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.data.records import Pool, Record, find_record, padded, parts_of
from lodekit.data.units import Units
from lodekit.errors import DataError, FitError, LodekitError
from lodekit.fitted import Arguments, Fit, Setup
from lodekit.inference.accurate import AccurateEngine
from lodekit.inference.choice import choose
from lodekit.inference.engine import Case
from lodekit.inference.records import RecordsEngine
from lodekit.labels import Labels
from lodekit.learning.curvature import curvature_at
from lodekit.learning.learn import learn
from lodekit.learning.polish import polish
from lodekit.learning.search import Optimum
from lodekit.learning.signs import choose_signs
from lodekit.learning.sizes import parameter_sizes
from lodekit.learning.transforms import Layout, parameter_transforms
from lodekit.learning.verdicts import Verdict
from lodekit.prior.observables import ObservableReader
from lodekit.prior.prior import Prior, make_prior
from lodekit.system.system import System

__all__ = ["extend", "fit_measurements", "keep_point", "make_fit", "prepare", "prepare_record"]

Array = NDArray[np.float64]


def prepare(
    system: System,
    arguments: Arguments,
    measurements: Measurements,
    *,
    time: Units | None = None,
    scales: Mapping[str, float] | None = None,
    sizes: Array | None = None,
    starts: Mapping[str, float] | None = None,
) -> Setup:
    """Return everything that is settled before anything is learned: engine, prior and layout.

    Parameters
    ----------
    system : System
    arguments : Arguments
        Checked already.
    measurements : Measurements
    time : Units, optional
        Whose scaled time is kept, from an earlier fit; that of the data otherwise.
    scales : dict of str to float, optional
        The scales of observables that are kept, from an earlier fit; those of the data otherwise.
    sizes : array, shape (p,), optional
        The sizes to expect of parameters that are kept; those that data and equations suggest otherwise.
    starts : dict of str to float, optional
        Where there are several records, times zero of some that are kept, by the names of the records.
    """
    latents = arguments.latents(system)
    on_channels = arguments.prior == "channels" and bool(latents)
    case = Case(
        size=measurements.size,
        latents=latents,
        exact=measurements.has_exact_values,
        on_channels=on_channels,
        in_memory=not measurements.is_summed,
        tolerance=arguments.tolerance,
        device=arguments.device,
    )
    reader = ObservableReader(system)
    prior = make_prior(
        measurements, reader, latents, arguments.noise, on_channels=on_channels, time=time, scales=scales
    )
    names = prior.observables.compiled.parameters
    own = parameter_sizes(system, measurements.summaries, prior.units.span) if sizes is None else sizes
    fixed, transforms = parameter_transforms(names, system.parameters, own)
    counts = prior.processes, len(prior.groups), prior.noise.count
    deviation = None if arguments.mode_deviation is None else float(arguments.mode_deviation)
    layout = Layout(names, fixed, transforms, *counts, mode_deviation=deviation)
    if not isinstance(measurements, Pool):
        return prepare_record(system, arguments, measurements, prior, layout, case)
    return _prepare_records(system, arguments, measurements, prior, layout, case, starts or {})


def _prepare_records(
    system: System,
    arguments: Arguments,
    measurements: Pool,
    prior: Prior,
    layout: Layout,
    case: Case,
    starts: Mapping[str, float],
) -> Setup:
    """Return what is settled for several records together, and for each; each has a time zero of its own."""
    parts = {}
    for name, own in ((record.name, record.measurements) for record in measurements.records):
        shifted = prior.starting_at(starts.get(name, own.window[0]))
        task = replace(case, size=own.size, exact=own.has_exact_values, in_memory=not own.is_summed)
        parts[name] = prepare_record(system, arguments, own, shifted, layout, task)
    largest = max(parts.values(), key=lambda part: part.case.size)
    choice = replace(largest.choice, reason=f"{len(parts)} records; the largest has {largest.choice.reason}")
    engine = RecordsEngine(tuple(part.engine for part in parts.values()), tuple(parts), measurements.counts)
    return Setup(system, arguments, measurements, choice, engine, layout, case, parts)


def prepare_record(
    system: System, arguments: Arguments, measurements: Measurements, prior: Prior, layout: Layout, case: Case
) -> Setup:
    """Return what is settled for one record, where prior and layout are settled for all.

    Parameters
    ----------
    system : System
    arguments : Arguments
    measurements : Measurements
        Of one record.
    prior : Prior
        Of what was measured in any record; it starts where this one does.
    layout : Layout
    case : Case
        What an engine is wanted for.
    """
    choice = choose(arguments.engine, case)
    every = padded(measurements, prior.noise.observables)
    engine = AccurateEngine(choice.kind.make(prior, every, case), choice, every, case)
    return Setup(system, arguments, measurements, choice, engine, layout, case)


def fit_measurements(setup: Setup, known: Array | None = None, labels: Labels | None = None) -> Fit:
    """Return a fit in which everything is learned.

    Parameters
    ----------
    setup : Setup
    known : array, optional
        A vector of the layout from an earlier fit, to start from.
    labels : Labels, optional
        None stands for no labels.
    """
    arguments, measurements = setup.arguments, setup.measurements
    # Whatever was measured: where some channel does not exist, neither does the solution.
    for latent in () if setup.case.on_channels else setup.case.latents:
        latent.check_order(2 * max(setup.system.parametrization.degrees))
    scatter = measurements.scatter()
    with setup.threads():
        optimum = learn(
            setup.system,
            setup.objective,
            [part.thumbnail() for part in parts_of(measurements)],
            restarts=arguments.restarts,
            random_state=arguments.random_state,
            n_jobs=arguments.n_jobs,
            scatter=None if scatter is None else setup.prior.noise.medians(scatter),
            known=known,
        )
        curvature = curvature_at(setup.objective, optimum.x)
        optimum, curvature = polish(setup.objective, optimum, curvature)
        if setup.layout.learned:
            optimum, curvature = choose_signs(setup.objective, optimum, curvature, setup.structure.symmetries)
    return make_fit(setup, optimum, curvature, labels).diagnosed()


def keep_point(
    setup: Setup, x: Array, labels: Labels | None = None, verdicts: Mapping[str, Verdict] | None = None
) -> Fit:
    """Return a fit at a point that is taken as it is; nothing is learned.

    Parameters
    ----------
    setup : Setup
    x : array
        The point, a vector of the layout.
    labels : Labels, optional
        None stands for no labels.
    verdicts : dict of str to Verdict, optional
        About parameters, from the fit that the point comes from.
    """
    with setup.threads():
        optimum = Optimum(x, setup.objective.value(x), True, "kept", 1, np.zeros(setup.layout.size, dtype=bool))
        curvature = curvature_at(setup.objective, x)
    return make_fit(setup, optimum, curvature, labels).diagnosed(verdicts, is_searched=False)


def extend(
    fit: Fit,
    new: Measurements,
    arguments: Arguments | None = None,
    *,
    relearn: bool = True,
    record: object = None,
) -> Fit:
    """Return a fit to more measurements; what was learned so far is where the search starts.

    Parameters
    ----------
    fit : Fit
        What was learned so far; its scaled time and scales are kept.
    new : Measurements
        To be added to those of the fit.
    arguments : Arguments, optional
        How to go on; those of the fit by default.
    relearn : bool
        Whether everything is learned anew, or kept as it is.
    record : str, int or None
        The record that they belong to, or the name of a new one; None stands for the only one.
    """
    if arguments is not None and arguments.prior != fit.arguments.prior:
        raise LodekitError(
            f"the prior was changed from {fit.arguments.prior!r} to {arguments.prior!r} after the fit, and what was "
            "learned for one says nothing about the other; call fit with all measurements"
        )
    units = fit.prior.units
    scales = dict(zip(fit.measurements.names, units.scales.tolist(), strict=True))
    joined = _add_to_record(fit, new, record)
    starts = {name: part.prior.units.start for name, part in zip(fit.records, fit.parts, strict=True)}
    setup = prepare(fit.system, arguments or fit.arguments, joined, time=units, scales=scales, starts=starts)
    old = fit.hyperparameters
    hyper = replace(old, noise=setup.prior.noise.carried_over(fit.prior.noise, old.noise))
    x = setup.layout.pack(hyper)
    if not np.isfinite(setup.engine.value(setup.layout.unpack(x))):
        # The posterior says what is wrong.
        for part in setup.parts.values() or (setup,):
            posterior = part.engine.posterior(setup.layout.unpack(x))
            posterior.mean(part.prior.observables, np.array(part.measurements.window))
    if relearn and setup.layout.size:
        return fit_measurements(setup, x, fit.labels)
    return keep_point(setup, x, fit.labels, fit.diagnosis.verdicts)


def _add_to_record(fit: Fit, new: Measurements, record: object) -> Measurements:
    """Return the measurements of a fit and new ones, of a record that is there or of a new one."""
    if isinstance(new, Pool):
        raise DataError("expected the measurements of one record, got several; call update for each: record=NAME")
    records = [Record(name, part.measurements) for name, part in zip(fit.records, fit.parts, strict=True)]
    if isinstance(record, str) and record not in fit.records:
        return Pool.together([*records, Record(record, new)])
    place = find_record(fit.records, record)
    records[place] = replace(records[place], measurements=records[place].measurements + new)
    return Pool.together(records)


def make_fit(setup: Setup, optimum: Optimum, curvature: Array, labels: Labels | None = None) -> Fit:
    """Return a fit at an optimum; raise where the log evidence is not finite, or exact values are not met.

    Parameters
    ----------
    setup : Setup
    optimum : Optimum
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there.
    labels : Labels, optional
        None stands for no labels.
    """
    posterior = setup.posterior(setup.layout.unpack(optimum.x))
    fit = Fit(setup, optimum, curvature, posterior, labels or Labels())
    if not np.isfinite(fit.log_evidence):
        raise FitError("the evidence is not finite at the optimum; check units and starting values")
    posterior.check_exact_values()
    return fit
