"""Fits from measurements: an engine is chosen, and everything is learned, or taken as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lodekit.data.excerpts import decimate, liveliest
from lodekit.data.inputs import InputSignal
from lodekit.data.measurements import Measurements
from lodekit.data.units import Units
from lodekit.errors import EquationError, FitError, LodekitError
from lodekit.fitted import Arguments, Fit, Setup
from lodekit.inference.accurate import AccurateEngine
from lodekit.inference.choice import choose
from lodekit.inference.engine import Case
from lodekit.labels import Labels
from lodekit.learning.curvature import curvature_at
from lodekit.learning.learn import learn
from lodekit.learning.polish import polish
from lodekit.learning.search import Optimum, search
from lodekit.learning.signs import choose_signs
from lodekit.learning.sizes import parameter_sizes
from lodekit.learning.starts import data_lengthscale
from lodekit.learning.transforms import Layout, parameter_transforms
from lodekit.learning.verdicts import Verdict
from lodekit.prior.observables import ObservableReader
from lodekit.prior.prior import make_prior
from lodekit.system.system import System

__all__ = ["extend", "fit_measurements", "fit_record", "keep_point", "make_fit", "prepare"]

Array = NDArray[np.float64]
#: Of more measurements that inputs drive, shorter records are learned from first; so many rows of them.
_LONG, _SHORT = 40_000, 6_000


def prepare(
    system: System,
    arguments: Arguments,
    measurements: Measurements,
    *,
    time: Units | None = None,
    scales: Mapping[str, float] | None = None,
    sizes: Array | None = None,
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
    """
    kinds = arguments.known_inputs(system)
    settled = {name: _settled(kind, measurements.inputs.get(name)) for name, kind in kinds.items()}
    measurements = measurements.given(settled)
    reader = ObservableReader(system, measurements.inputs)
    latents = arguments.latents(reader.reduced)
    on_channels = arguments.prior == "channels" and bool(latents)
    case = Case(
        size=measurements.size,
        latents=latents,
        exact=measurements.has_exact_values,
        on_channels=on_channels,
        in_memory=measurements.sums is None,
        tolerance=arguments.tolerance,
        device=arguments.device,
        driven=bool(measurements.inputs),
    )
    choice = choose(arguments.engine, case)
    prior = make_prior(
        measurements, reader, latents, arguments.noise, on_channels=on_channels, time=time, scales=scales
    )
    engine = AccurateEngine(choice.kind.make(prior, measurements, case), choice, measurements, case)
    names = prior.observables.compiled.parameters
    known = [*measurements.summaries, *measurements.input_summaries]
    # What inputs drive shows its pace; a record may be much longer than that.
    pace = data_lengthscale(measurements.thumbnail()) if sizes is None and measurements.inputs else None
    own = parameter_sizes(system, known, prior.units.span, pace) if sizes is None else sizes
    fixed, transforms = parameter_transforms(names, system.parameters, own)
    counts = prior.processes, len(prior.groups), prior.noise.count
    deviation = None if arguments.mode_deviation is None else float(arguments.mode_deviation)
    layout = Layout(names, fixed, transforms, *counts, mode_deviation=deviation)
    return Setup(system, arguments, measurements, choice, engine, layout, case)


def _settled(kind: str, known: InputSignal | None) -> str:
    """Return what an input does between its samples, where the user leaves that open: as before, or held."""
    return kind if kind != "auto" else "hold" if known is None else known.kind


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
    measurements = setup.measurements
    # Whatever was measured: where some channel does not exist, neither does the solution.
    for latent in () if setup.case.on_channels else setup.case.latents:
        latent.check_order(2 * max(setup.reduced.parametrization.degrees))
    is_long = setup.case.driven and measurements.size > _LONG and known is None
    with setup.threads():
        optimum = _learn_long(setup) if is_long else _learn(setup, known)
        curvature = curvature_at(setup.objective, optimum.x)
        optimum, curvature = polish(setup.objective, optimum, curvature)
        if setup.layout.learned:
            optimum, curvature = choose_signs(setup.objective, optimum, curvature, setup.structure.symmetries)
    return make_fit(setup, optimum, curvature, labels).diagnosed()


def _learn(setup: Setup, known: Array | None) -> Optimum:
    """Return the best optimum from all starts; from `known` where that is a point."""
    arguments, measurements = setup.arguments, setup.measurements
    scatter = measurements.scatter()
    return learn(
        setup.system,
        setup.objective,
        measurements.thumbnail(),
        inputs=measurements.inputs,
        record=None if measurements.sums is not None else measurements.series,
        restarts=arguments.restarts,
        random_state=arguments.random_state,
        n_jobs=arguments.n_jobs,
        scatter=None if scatter is None else setup.prior.noise.medians(scatter),
        known=known,
    )


def _learn_long(setup: Setup) -> Optimum:
    """Return an optimum for a long record, from the better one of those for two shorter records made of it."""
    units, names = setup.prior.units, setup.measurements.names
    scales = dict(zip(names, units.scales.tolist(), strict=True))
    known = setup.layout.transforms
    sizes = np.array([known[n].size if n in known else 1.0 for n in range(len(setup.layout.names))])
    found: list[tuple[float, Array]] = []
    for shorten in (decimate, liveliest):
        short = shorten(setup.measurements, _SHORT)
        if short.names != names:
            continue
        try:
            # Modes, and the response, begin where a piece does.
            time = replace(units, start=short.window[0])
            own = prepare(setup.system, setup.arguments, short, time=time, scales=scales, sizes=sizes)
            x = _learn(own, None).x
        except FitError:
            continue
        found.append((setup.objective.value(x), x))
    best = max(found, key=lambda item: item[0], default=None)
    if best is None or not np.isfinite(best[0]):
        return _learn(setup, None)
    return search(setup.objective, best[1], trusted=True)


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


def extend(fit: Fit, new: Measurements, arguments: Arguments | None = None, *, relearn: bool = True) -> Fit:
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
    """
    if arguments is not None and arguments.prior != fit.arguments.prior:
        raise LodekitError(
            f"the prior was changed from {fit.arguments.prior!r} to {arguments.prior!r} after the fit, and what was "
            "learned for one says nothing about the other; call fit with all measurements"
        )
    if arguments is not None and (arguments.inputs or {}) != (fit.arguments.inputs or {}):
        raise LodekitError(
            f"inputs were changed from {fit.arguments.inputs} to {arguments.inputs} after the fit; call fit with all "
            "measurements"
        )
    kinds = {name: signal.kind for name, signal in fit.measurements.inputs.items()}
    new = new.given(kinds, required=False) if kinds else new
    units = fit.prior.units
    scales = dict(zip(fit.measurements.names, units.scales.tolist(), strict=True))
    setup = prepare(fit.system, arguments or fit.arguments, fit.measurements + new, time=units, scales=scales)
    old = fit.hyperparameters
    hyper = replace(old, noise=setup.prior.noise.carried_over(fit.prior.noise, old.noise))
    x = setup.layout.pack(hyper)
    if not np.isfinite(setup.engine.value(setup.layout.unpack(x))):
        # The posterior says what is wrong.
        posterior = setup.engine.posterior(setup.layout.unpack(x))
        posterior.mean(setup.prior.observables, np.array(setup.measurements.window))
    if relearn and setup.layout.size:
        return fit_measurements(setup, x, fit.labels)
    return keep_point(setup, x, fit.labels, fit.diagnosis.verdicts)


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
