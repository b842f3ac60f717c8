"""Fits from measurements: an engine is chosen, and everything is learned, or taken as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lodekit.data.contradictions import check_later
from lodekit.data.measurements import Measurements
from lodekit.data.records import Pool, Record, find_record
from lodekit.errors import DataError, EquationError, FitError, LodekitError
from lodekit.fitted import Fit
from lodekit.labels import Labels
from lodekit.learning.curvature import curvature_at
from lodekit.learning.identifiability.verdicts import Verdict
from lodekit.learning.searches.search import Optimum
from lodekit.learning.searches.signs import choose_signs
from lodekit.preparing import prepare
from lodekit.progress import waiting
from lodekit.searching import find_optimum, look_across_kinks, take_rival
from lodekit.settings import Arguments
from lodekit.setup import Setup
from lodekit.system.system import System

__all__ = ["extend", "fit_measurements", "fit_record", "keep_point", "make_fit"]

Array = NDArray[np.float64]
#: A twin of an estimate takes its place where it is more likely by this, in nat.
_BETTER = 1e-2


def fit_record(system: System, arguments: Arguments, measurements: Measurements, labels: Labels | None = None) -> Fit:
    """Return a fit in which everything is learned, what inputs do between their samples included where that is open.

    Inputs whose kind is open are all held, or all straight lines, whatever is more likely; where there are several,
    each alone may then change.

    Parameters
    ----------
    system : System
    arguments : Arguments
        Checked already.
    measurements : Measurements
    labels : Labels, optional
        None stands for no labels.
    """
    kinds = arguments.known_inputs(system)
    opened = [name for name, kind in kinds.items() if kind == "auto"]
    if not opened:
        return fit_measurements(prepare(system, arguments, measurements), labels=labels)

    def attempt(chosen: Mapping[str, str]) -> Fit:
        own = measurements.given({**kinds, **chosen})
        return fit_measurements(prepare(system, arguments, own), labels=labels)

    both = [dict.fromkeys(opened, kind) for kind in ("linear", "hold")]
    found = [(attempt(both[0]), both[0])]
    try:
        found.append((attempt(both[1]), both[1]))
    except EquationError:
        # A jump would make some channel infinite: nothing is left to choose.
        return found[0][0]
    if len(opened) > 1:
        best = max(found, key=lambda item: item[0].log_evidence)[1]
        for name in opened:
            other = {**best, name: "hold" if best[name] == "linear" else "linear"}
            found.append((attempt(other), other))
    fit, chosen = max(found, key=lambda item: item[0].log_evidence)
    preference = {}
    for name in opened:
        rivals = [other.log_evidence for other, kind in found if kind[name] != chosen[name]]
        preference[name] = fit.log_evidence - max(rivals)
    return replace(fit, preference=preference)


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
    # Whatever was measured: where some channel does not exist, neither does the solution.
    for latent in () if setup.case.on_channels else setup.case.latents:
        latent.check_order(2 * max(setup.reduced.parametrization.degrees))
    with waiting("fitting") as advance:
        with setup.threads():
            optimum, curvature, needs = find_optimum(setup, known)
            if setup.layout.learned:
                optimum, curvature = choose_signs(setup.objective, optimum, curvature, setup.structure.symmetries)
        advance(1, "looking at what was learned")
        fit = replace(make_fit(setup, optimum, curvature, labels), needs=needs).diagnosed()
        # What behaves alike is not as likely where priors of parameters, or of states, prefer one.
        better = [rival for rival in fit.diagnosis.rivals if rival.is_twin and rival.below < -_BETTER]
        if not better:
            return fit
        with setup.threads():
            optimum, curvature = take_rival(setup, optimum, np.array(better[0].point))
        return replace(make_fit(setup, optimum, curvature, labels), needs=needs).diagnosed()


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
        curvature = look_across_kinks(setup, optimum, curvature_at(setup.objective, x))
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
        To be added to those of the fit; not among them in time, where an observable is the same.
    arguments : Arguments, optional
        How to go on; those of the fit by default.
    relearn : bool
        Whether everything is learned anew, or kept as it is.
    record : str, int or None
        The record that they belong to, or the name of a new one; None stands for the only one.
    """
    if fit.is_on_disk:
        raise LodekitError(
            "the rows of this fit are on disk, as they are too many for memory, and cannot be added to; fit again with "
            "all files, or give new rows to gp.stream()"
        )
    if arguments is not None and arguments.prior != fit.arguments.prior:
        raise LodekitError(
            f"the prior was changed from {fit.arguments.prior!r} to {arguments.prior!r} after the fit, and what was "
            "learned for one says nothing about the other; call fit with all measurements"
        )
    for role in ("inputs", "disturbances"):
        before, now = getattr(fit.arguments, role), getattr(arguments or fit.arguments, role)
        if (now or {}) != (before or {}):
            raise LodekitError(
                f"{role} were changed from {before} to {now} after the fit; call fit with all measurements"
            )
    kinds = {name: signal.kind for name, signal in fit.measurements.inputs.items()}
    new = new.given(kinds, required=False) if kinds else new
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
    return replace(keep_point(setup, x, fit.labels, fit.diagnosis.verdicts), needs=fit.needs)


def _add_to_record(fit: Fit, new: Measurements, record: object) -> Measurements:
    """Return the measurements of a fit and new ones, of a record that is there or of a new one."""
    if isinstance(new, Pool):
        raise DataError("expected the measurements of one record, got several; call update for each: record=NAME")
    records = [Record(name, part.measurements) for name, part in zip(fit.records, fit.parts, strict=True)]
    if isinstance(record, str) and record not in fit.records:
        return Pool.together([*records, Record(record, new)])
    place = find_record(fit.records, record)
    check_later(records[place].measurements, new)
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
    if not np.isfinite(fit.posterior.value):
        raise FitError("the evidence is not finite at the optimum; check units and starting values")
    posterior.check_exact_values()
    return fit
