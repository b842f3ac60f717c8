"""All that is settled before anything is learned: engine, prior and layout, of one record or of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.data.measurements import Measurements
from lodekit.data.records import Pool, padded, parts_of
from lodekit.data.units import Units
from lodekit.errors import DataError, EquationError, LodekitError
from lodekit.inference.accurate import AccurateEngine
from lodekit.inference.choice import choose
from lodekit.inference.engine import Case
from lodekit.inference.records import RecordsEngine
from lodekit.intervals import window_of
from lodekit.learning.searches.starts import data_lengthscale
from lodekit.learning.sizes import expected_scales, parameter_sizes
from lodekit.learning.transforms import Layout, parameter_transforms
from lodekit.prior.latents import Latent
from lodekit.prior.observables import ObservableReader
from lodekit.prior.open_modes import OpenModes, some_of
from lodekit.prior.prior import Prior, make_prior
from lodekit.settings import Arguments
from lodekit.setup import Setup
from lodekit.system.system import System

__all__ = ["prepare", "prepare_record", "some_times"]

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
    kinds = arguments.known_inputs(system)
    settled = {name: _settled(kind, measurements.inputs.get(name)) for name, kind in kinds.items()}
    measurements = measurements.given(settled)
    disturbances = arguments.known_disturbances(system)
    _refuse_measured(measurements, disturbances)
    reader = ObservableReader(system, measurements.inputs, disturbances)
    latents = arguments.latents(_reduced(reader, settled))
    case = _case(arguments, measurements, latents, disturbed=bool(disturbances))
    start, stop = measurements.window
    known = [*measurements.summaries, *measurements.input_summaries]
    # What is zero throughout has the size that the equations give it.
    kept = expected_scales(system, known, stop - start or 1.0) | dict(scales or {})
    prior = make_prior(
        measurements, reader, latents, arguments.noise, on_channels=case.on_channels, time=time, scales=kept
    )
    # What inputs drive shows its pace; a record may be much longer than that.
    pace = _pace(measurements) if sizes is None and measurements.inputs else None
    own = parameter_sizes(system, known, prior.units.span, pace) if sizes is None else sizes
    names = prior.observables.compiled.parameters
    fixed, transforms = parameter_transforms(names, system.parameters, own)
    counts = prior.processes, len(prior.groups), prior.noise.count
    modes = _settle_modes(arguments.mode_deviation, case, measurements, prior, starts or {})
    disturbed = prior.observables.disturbed
    more = (0, 0) if disturbed is None else (len(disturbed.coloured), len(disturbed.names))
    layout = Layout(names, fixed, transforms, *counts, *modes, *more)
    if not isinstance(measurements, Pool):
        return prepare_record(system, arguments, measurements, prior, layout, case)
    return _prepare_records(system, arguments, measurements, prior, layout, case, starts or {})


def _reduced(reader: ObservableReader, kinds: Mapping[str, str]) -> System:
    """Return the system without inputs and disturbances; raise where equations tie these."""
    try:
        return reader.reduced
    except EquationError:
        if reader.disturbances:
            # That calls disturbances inputs; this raises the same of them by their own name.
            reader.system.state_space(kinds, disturbances=tuple(reader.disturbances))
        raise


def _case(arguments: Arguments, measurements: Measurements, latents: Sequence[Latent], *, disturbed: bool) -> Case:
    """Return what an engine is wanted for."""
    return Case(
        size=measurements.size,
        latents=latents,
        exact=measurements.has_exact_values,
        on_channels=arguments.prior == "channels" and bool(latents),
        in_memory=not measurements.is_summed,
        tolerance=arguments.tolerance,
        device=arguments.device,
        driven=bool(measurements.inputs),
        averaged=any(map(window_of, measurements.names)),
        disturbed=disturbed,
        on_disk=measurements.spooled is not None,
    )


def _refuse_measured(measurements: Measurements, disturbances: Mapping[str, str]) -> None:
    """Raise where something was measured that is said to be unknown."""
    for name in disturbances:
        if name in (*measurements.names, *measurements.inputs):
            raise DataError(
                f"there are measurements of {name}, which is a disturbance: those are never measured. Leave these out, "
                f"or leave {name} out of the disturbances"
            )


def _settle_modes(
    wanted: float | str | None, case: Case, measurements: Measurements, prior: Prior, starts: Mapping[str, float]
) -> tuple[float | None, OpenModes | None]:
    """Return the deviation of modes where it is fixed, and what it follows where they are left open.

    They are where inputs drive all that was measured, unless the user says otherwise.
    """
    if wanted == "open" and not case.in_memory and not case.on_disk:
        raise LodekitError("mode_deviation='open' needs measurements that are kept; give a number, or 'learned'")
    if wanted == "open" or (wanted is None and case.driven and not case.latents and not case.exact):
        return None, _open_modes(measurements, prior, starts)
    return (None if wanted is None or isinstance(wanted, str) else float(wanted)), None


def _open_modes(measurements: Measurements, prior: Prior, starts: Mapping[str, float]) -> OpenModes | None:
    """Return deviations of modes that follow the parameters; None where there are no modes."""
    if not prior.groups:
        return None
    names = [record.name for record in measurements.records] if isinstance(measurements, Pool) else [""]
    times, counts = [], []
    for name, own in zip(names, parts_of(measurements), strict=True):
        start = starts.get(name, own.window[0]) if name else prior.units.start
        some, stands = some_times(own)
        times.append((some - start) / prior.units.span)
        counts.append(stands)
    # Scales may be those of an earlier fit.
    sizes = np.array([item.scale for item in measurements.summaries]) / prior.units.scales
    return OpenModes.of(prior.observables, prior.groups, times, counts, np.where(sizes > 0.0, sizes, 1.0))


def some_times(measurements: Measurements) -> tuple[Array, Array]:
    """Return some times of a record, and for how many of all each stands.

    Parameters
    ----------
    measurements : Measurements
        Of one record, in memory or on disk.
    """
    if measurements.spooled is not None:
        spool, known = measurements.spooled.spool, measurements.spooled.left_out
        if known is not None:
            return known.times, known.counts
        places, stands = some_of(spool.count)
        return np.array([spool.time(place) for place in places.tolist()]), stands
    each = [np.unique(item.times, return_counts=True) for item in measurements.series]
    times = np.unique(np.concatenate([own for own, _ in each]))
    rows = np.zeros(len(times), dtype=np.intp)
    for own, count in each:
        # A time that stands twice in a channel has two rows, as it has on disk.
        place = np.searchsorted(times, own)
        rows[place] = np.maximum(rows[place], count)
    times = np.repeat(times, rows)
    places, stands = some_of(len(times))
    return times[places], stands


def _pace(measurements: Measurements) -> float:
    """Return how long what happens in the data takes; where there are several records, in the middle one of them."""
    return float(np.median([data_lengthscale(part.thumbnail()) for part in parts_of(measurements)]))


def _settled(kind: str, known: InputSignal | None) -> str:
    """Return what an input does between its samples, where the user leaves that open: as before, or held."""
    return kind if kind != "auto" else "hold" if known is None else known.kind


def _prepare_records(
    system: System,
    arguments: Arguments,
    measurements: Pool,
    prior: Prior,
    layout: Layout,
    case: Case,
    starts: Mapping[str, float],
) -> Setup:
    """Return what is settled for several records together, and for each; each has a time zero and inputs of its own."""
    parts = {}
    for name, own in ((record.name, record.measurements) for record in measurements.records):
        shifted = prior.starting_at(starts.get(name, own.window[0]), own.inputs)
        task = replace(case, size=own.size, exact=own.has_exact_values, in_memory=not own.is_summed)
        task = replace(task, on_disk=own.spooled is not None)
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
