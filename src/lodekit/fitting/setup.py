"""The setup of a fit, built before the search: engine, prior and parameter vector, for one record or several.

Structural identifiability of the parameters from the measured channels is computed by exact algebra.

Unmeasured channels that appear only once in the equations are reported: typing errors or undeclared constants.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from lodekit.data.observations import TimeSeries
from lodekit.data.records import DEFAULT_RECORD_NAME, Measurements, Scaling, with_empty_series
from lodekit.errors import DataError, EquationError, LodekitError
from lodekit.fitting import search_options as options
from lodekit.fitting.objective import Objective
from lodekit.fitting.output_error import VariableProjection, simulated_records
from lodekit.fitting.parameter_vector import ParameterLayout, build_transforms
from lodekit.fitting.scaling import estimate_channel_scales, solve_balance_equations
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.starts.candidates import StartPoint, collect_guesses, median_correlation_time
from lodekit.inference.engine import Engine, EngineTask
from lodekit.inference.fallback import FallbackEngine
from lodekit.inference.multi_record import combine_engines
from lodekit.inference.selection import EngineChoice, choose_engine
from lodekit.prior.compile import ScalarFunctions
from lodekit.prior.diffuse_modes import DiffuseModes, subsample_rows
from lodekit.prior.disturbances import find_channels_without_values
from lodekit.prior.kernels import Kernel
from lodekit.prior.observables import ObservableCompiler
from lodekit.prior.prior import Hyperparameters, Prior, build_prior
from lodekit.support.arguments import Array
from lodekit.support.interval_means import averaging_time
from lodekit.support.text import find_closest_name
from lodekit.support.threads import single_threaded_blas
from lodekit.system.parameters import find_single_use_inputs, find_single_use_names
from lodekit.system.structural_identifiability import (
    IdentifiabilityProblem,
    find_identifiable_combinations,
    find_scale_symmetries,
    find_sign_symmetries,
    find_unidentifiable_directions,
    input_output_coefficients,
)
from lodekit.system.system import System


@dataclass(frozen=True)
class StructuralIdentifiability:
    """Structural identifiability: what the equations and the measured channels determine, whatever the data are.

    measured: The measured observables, and the known inputs.
    disturbances: Channels whose process is known except for its standard deviation.
    """

    system: System
    measured: tuple[str, ...]
    disturbances: tuple[str, ...] = ()

    def without_disturbances(self, names: Sequence[str]) -> StructuralIdentifiability:
        """Return the same with some disturbances set to zero; more parameter values may be equivalent then."""
        if not names:
            return self
        rest = tuple(name for name in self.disturbances if name not in names)
        return replace(self, system=self.system.given(names, are_all=False), disturbances=rest)

    @cached_property
    def _measured_system(self) -> IdentifiabilityProblem:
        """The identifiability problem of the measured channels, with disturbances treated as known signals."""
        return self._compile_measured((*self.measured, *self.disturbances))

    def _compile_measured(self, measured: tuple[str, ...]) -> IdentifiabilityProblem:
        operator, known = ObservableCompiler(self.system).parse(measured)
        # A prior determines a parameter, too.
        unknown = (n for n, each in self.system.parameters.items() if each.fixed is None and each.prior is None)
        # In alphabetical order, so that directions do not depend on the order of declaration.
        return IdentifiabilityProblem(self.system, operator, known, tuple(sorted(unknown)))

    @cached_property
    def unidentifiable_directions(self) -> list[dict[str, Fraction | None]]:
        """Directions in which parameters can change without changing the measured behaviour."""
        with suppress(LodekitError):
            return find_unidentifiable_directions(self._measured_system) or []
        return []

    @cached_property
    def input_output_coefficients(self) -> ScalarFunctions | None:
        """Functions of the parameters that determine the behaviour of the measured channels; None if not computed."""
        return self._coefficients((*self.measured, *self.disturbances))

    @cached_property
    def all_channel_coefficients(self) -> ScalarFunctions | None:
        """Functions of the parameters that determine the behaviour of all channels, measured or not; None as above."""
        return self._coefficients(tuple(self.system.channels))

    def _coefficients(self, measured: tuple[str, ...]) -> ScalarFunctions | None:
        with suppress(LodekitError):
            problem = self._compile_measured(measured)
            return ScalarFunctions(self.system.operator.ring, input_output_coefficients(problem))
        return None

    @property
    def unidentifiable(self) -> list[str]:
        """Parameters that measurements of these channels cannot identify, in order."""
        return [name for name in self.system.parameters if any(name in way for way in self.unidentifiable_directions)]

    @property
    def pivots(self) -> set[str]:
        """One parameter of each direction; fixing these makes the others identifiable."""
        return {min(way) for way in self.unidentifiable_directions}

    @cached_property
    def scale_confounded(self) -> list[str]:
        """Parameters that are confounded with the standard deviation of a disturbance, in order: b in ``b*w``."""
        ways = []
        with suppress(LodekitError):
            ways = find_scale_symmetries(self._compile_measured(self.measured)) if self.disturbances else []
        either = [name for name in self.system.parameters if any(name in way for way in ways)]
        return [name for name in either if name not in self.unidentifiable]

    @cached_property
    def identifiable_combinations(self) -> list[str]:
        """Identifiable combinations of unidentifiable parameters, such as ``k/m``, if they are simple."""
        if not self.unidentifiable_directions:
            return []
        return find_identifiable_combinations(self._measured_system, self.unidentifiable_directions) or []

    @cached_property
    def sign_symmetry_groups(self) -> list[frozenset[str]]:
        """Groups of parameters whose signs can change together, without groups of unidentifiable parameters."""
        either = [
            name for name, each in self.system.parameters.items()
            if each.fixed is None and each.prior is None and all(map(math.isinf, each.interval))
        ]  # fmt: skip
        found = []
        with suppress(LodekitError):
            found = find_sign_symmetries(self._measured_system, either) if either else []
        return [names for names in found if not names <= {*self.unidentifiable, *self.scale_confounded}]


@dataclass(frozen=True, eq=False)
class FitSetup:
    """Everything that is determined before the search.

    system: The system that is fitted.
    settings: The arguments of the fit.
    measurements: The data.
    engine_choice: The kind of engine, and the reason for choosing it.
    engine: Computes the log evidence and the posterior; it holds the prior.
    layout: The layout of the parameter vector of the search.
    engine_task: The properties of the data and the model that the engine was chosen for.
    record_name: The name of the record, if there is one.
    parts: The setup of each of several records, by name; the layout is the same for all.
    """

    system: System
    settings: FitSettings
    measurements: Measurements
    engine_choice: EngineChoice
    engine: Engine
    layout: ParameterLayout
    engine_task: EngineTask
    record_name: str = DEFAULT_RECORD_NAME
    parts: Mapping[str, FitSetup] = field(default_factory=dict)

    @property
    def record_setups(self) -> Mapping[str, FitSetup]:
        """The setup of each record, by name; for a single record, this setup itself."""
        return self.parts or {self.record_name: self}

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.engine.prior

    @cached_property
    def objective(self) -> Objective:
        """The function that is maximised: the log evidence plus the log prior of parameters that have priors."""
        regression, records = None, self.simulated_records
        if records and sum(len(item.values) for record in records for item in record) == self.measurements.size:
            priors = [part.prior for part in self.record_setups.values()]
            regression = VariableProjection.from_records(priors, self.layout, records, options.SEARCH.simulation_rows)
        return Objective(self.engine, self.layout, dict(self.system.parameters), regression)

    @cached_property
    def simulated_records(self) -> list[list[TimeSeries]]:
        """The measurements that the output-error method simulates; empty if it does not apply."""
        return simulated_records(self.measurements, self.layout, self.prior.noise.observables)

    @cached_property
    def _guesses(self) -> tuple[list[StartPoint], np.random.Generator]:
        """Guesses of the parameters, and the random generator after them."""
        generator, parts = np.random.default_rng(self.settings.random_state), self.measurements.records.values()
        records, inputs = [part.decimated_series() for part in parts], [part.inputs for part in parts]
        return collect_guesses(self.system, self.objective, records, generator, inputs), generator

    def collect_guesses(self) -> tuple[list[StartPoint], np.random.Generator]:
        """Return guesses of the parameters, which are computed once, and a random generator for more of them."""
        guesses, generator = self._guesses
        return guesses, copy.deepcopy(generator)

    @cached_property
    def observable_compiler(self) -> ObservableCompiler:
        """Parses and compiles observables of the system."""
        return ObservableCompiler(self.system, self.measurements.inputs, self.settings.parse_disturbances(self.system))

    @property
    def reduced_system(self) -> System:
        """The system without known inputs and disturbances: the prior is a prior on its solutions."""
        return self.observable_compiler.undriven_system

    @cached_property
    def channels_without_values(self) -> list[str]:
        """The channels without point values: white noise, and channels that contain it."""
        known = tuple(self.measurements.inputs)
        system = self.system.given(known) if known else self.system
        disturbances = self.observable_compiler.disturbances
        return find_channels_without_values(system, disturbances) if disturbances else []

    @property
    def scaling(self) -> dict[str, Any]:
        """The units of the fit, as keyword arguments of `build_setup` for another fit in the same units."""
        units = self.prior.units
        return {
            "time_units": units,
            "scales": dict(zip(self.measurements.names, units.scales.tolist(), strict=True)),
            "record_starts": {name: part.prior.units.start for name, part in self.record_setups.items()},
        }

    @property
    def noise_estimate(self) -> Array | None:
        """Noise levels estimated from differences of neighbouring measurements; None if these are unavailable."""
        scatter = self.measurements.difference_noise_std()
        return None if scatter is None else self.prior.noise.level_medians(scatter)

    @property
    def channels(self) -> list[str]:
        """The channels that have point values."""
        return [name for name in self.system.plain_channels if name not in self.channels_without_values]

    @property
    def default_window(self) -> tuple[float, float]:
        """The default time window of plots and predictions: the window of the data, extended by a tenth on either side.

        With disturbances it begins with the record, or after the first averaging interval.
        """
        first, last = self.measurements.extended_window
        if not self.prior.disturbances:
            return first, last
        units, longest = self.prior.units, self.prior.observables.longest_window
        return self.measurements.available_window[0] + units.unscale_durations(longest), last

    @cached_property
    def structural_identifiability(self) -> StructuralIdentifiability:
        """Structural identifiability of the parameters from the measured and known channels."""
        known = (*self.measurements.inputs, *self.system.delayed_channels)
        return StructuralIdentifiability(
            self.system, (*self.measurements.names, *known), tuple(self.observable_compiler.disturbances)
        )

    @property
    def unmeasured_name_notes(self) -> list[str]:
        """Notes on unmeasured channels that appear only once in the equations and may be undeclared constants."""
        return self._unmeasured_names[1]

    @property
    def unmeasured_name_warnings(self) -> list[str]:
        """Warnings of unmeasured channels whose name looks like a misspelt measured channel."""
        return self._unmeasured_names[0]

    @cached_property
    def _unmeasured_names(self) -> tuple[list[str], list[str]]:
        known = (*self.measurements.names, *self.measurements.inputs, *self.observable_compiler.disturbances)
        return find_unmeasured_names(self.system, known)

    def evidence_of(self, measurements: Measurements, hyper: Hyperparameters) -> float:
        """Return the log evidence of a small set of other measurements of the same observables."""
        return _build_small_engine(self.prior, measurements, self.engine_task).value(hyper)

    def limit_threads(self) -> AbstractContextManager[None]:
        """Return a context in which linear algebra uses one thread, or all threads if matrices are large.

        For small matrices, synchronising threads takes longer than it saves, above all on a busy machine.
        """
        return nullcontext() if self.engine.benefits_from_threads else single_threaded_blas()


def build_setup(
    system: System,
    settings: FitSettings,
    measurements: Measurements,
    *,
    time_units: Scaling | None = None,
    scales: Mapping[str, float] | None = None,
    parameter_magnitudes: Array | None = None,
    record_starts: Mapping[str, float] | None = None,
) -> FitSetup:
    """Return everything that is determined before the search: engine, prior and layout.

    Shapes: parameter_magnitudes (p,).
    """
    kinds = settings.parse_inputs(system)
    # Interpolation "auto": as before, or zero-order hold.
    before = {name: signal.kind for name, signal in measurements.inputs.items()}
    settled = {name: before.get(name, "hold") if kind == "auto" else kind for name, kind in kinds.items()}
    measurements, disturbances = measurements.with_known_inputs(settled), settings.parse_disturbances(system)
    for name in disturbances:
        if name in (*measurements.names, *measurements.inputs):
            raise DataError(
                f"there are measurements of {name}, but disturbances are unmeasured channels. Omit these measurements, "
                f"or remove {name} from the disturbances"
            )
    reader = ObservableCompiler(system, measurements.inputs, disturbances)
    latents = settings.parse_kernels(_reduce_system(reader, settled))
    case = _build_engine_task(settings, measurements, latents, has_disturbances=bool(disturbances))
    start, stop = measurements.window
    known = [*measurements.observable_statistics, *measurements.input_statistics]
    # The scale of a channel that is zero throughout follows from the equations.
    kept = estimate_channel_scales(system, known, stop - start or 1.0) | dict(scales or {})
    prior = build_prior(
        measurements, reader, latents, settings.noise, channel_prior=case.channel_prior, time=time_units, scales=kept
    )
    if parameter_magnitudes is None:
        # The response to inputs shows the time constants; a record may be much longer than these.
        pace = median_correlation_time(measurements.records.values()) if measurements.inputs else None
        magnitudes = solve_balance_equations(system, known, prior.units.time_scale, pace)
        parameter_magnitudes = np.array([magnitudes[name] for name in system.operator.ring.parameters])
    names = prior.observables.compiled.parameters
    fixed, transforms = build_transforms(names, system.parameters, parameter_magnitudes)
    counts = prior.n_processes, len(prior.groups), prior.noise.n_levels
    starts = {name: part.window[0] for name, part in measurements.records.items()} | dict(record_starts or {})
    starts[next(iter(starts))] = prior.units.start
    modes = _resolve_mode_prior(settings.mode_deviation, case, measurements, prior, starts)
    disturbed = prior.observables.disturbances
    more = (0, 0) if disturbed is None else (len(disturbed.coloured_index), len(disturbed.names))
    layout = ParameterLayout(names, fixed, transforms, *counts, *modes, *more)
    return _combine_record_setups(system, settings, measurements, prior, layout, case, starts)


def _reduce_system(reader: ObservableCompiler, holds: Mapping[str, str]) -> System:
    """Return the system without inputs and disturbances; raise if the equations constrain these."""
    try:
        return reader.undriven_system
    except EquationError:
        if reader.disturbances:
            # The message above calls disturbances inputs; this raises an error that names them as disturbances.
            reader.system.state_space(holds, disturbances=tuple(reader.disturbances))
        raise


def _build_engine_task(
    settings: FitSettings, measurements: Measurements, latents: Sequence[Kernel], *, has_disturbances: bool
) -> EngineTask:
    """Return the properties of the data and the model that determine the choice of the engine."""
    return EngineTask(
        size=measurements.size,
        latents=latents,
        has_exact_values=measurements.has_exact_values,
        channel_prior=settings.prior == "channels" and bool(latents),
        in_memory=not measurements.has_only_statistics,
        tolerance=settings.tolerance,
        device=settings.device,
        has_inputs=bool(measurements.inputs),
        has_interval_means=any(map(averaging_time, measurements.names)),
        has_disturbances=has_disturbances,
        on_disk=measurements.stored_rows is not None,
    )


def _resolve_mode_prior(
    mode_deviation: float | str | None,
    engine_task: EngineTask,
    measurements: Measurements,
    prior: Prior,
    record_starts: Mapping[str, float],
) -> tuple[float | None, DiffuseModes | None]:
    """Return the standard deviation of modes if it is fixed, and the diffuse prior of modes if they have one.

    By default modes are diffuse if there are no free functions, and known inputs or exact values that only set the
    initial state.
    """
    if mode_deviation == "open" and not engine_task.in_memory and not engine_task.on_disk:
        raise LodekitError("mode_deviation='open' needs all measurements in memory; give a number, or 'learned'")
    with_exact = [part for part in measurements.records.values() if part.has_exact_values]
    states = [select_exact_state(part, prior) for part in with_exact]
    is_open = not engine_task.latents and (engine_task.has_inputs or bool(states)) and None not in states
    if mode_deviation != "open" and (mode_deviation is not None or not is_open):
        return (None if mode_deviation is None or isinstance(mode_deviation, str) else float(mode_deviation)), None
    if not prior.groups:
        return None, None
    times, counts = [], []
    for name, own in measurements.records.items():
        some, stands = subsample_times(own)
        times.append((some - record_starts[name]) / prior.units.time_scale)
        counts.append(stands)
    # The units may be those of an earlier fit.
    sizes = np.array([item.scale for item in measurements.observable_statistics]) / prior.units.scales
    sizes, total = np.where(sizes > 0.0, sizes, 1.0), len(times) * sum(group.size for group in prior.groups)
    share = 1.0 - sum(state.size for state in states if state is not None) / total
    return None, DiffuseModes(prior.observables, prior.groups, tuple(times), tuple(counts), sizes, share)


def subsample_times(measurements: Measurements) -> tuple[Array, Array]:
    """Return a subsample of the times of a record, and the number of rows that each represents."""
    if measurements.stored_rows is not None:
        spool, sampled = measurements.stored_rows.store, measurements.stored_rows.sampled_times
        if sampled is not None:
            return sampled
        places, stands = subsample_rows(spool.n_rows)
        return np.array([spool.time_of_row(place) for place in places.tolist()]), stands
    each = [np.unique(item.times, return_counts=True) for item in measurements.series]
    times = np.unique(np.concatenate([own for own, _ in each]))
    rows = np.zeros(len(times), dtype=np.intp)
    for own, count in each:
        # A time that occurs twice in a channel has two rows, as it has on disk.
        place = np.searchsorted(times, own)
        rows[place] = np.maximum(rows[place], count)
    times = np.repeat(times, rows)
    places, stands = subsample_rows(len(times))
    return times[places], stands


def _combine_record_setups(
    system: System,
    settings: FitSettings,
    measurements: Measurements,
    prior: Prior,
    layout: ParameterLayout,
    engine_task: EngineTask,
    record_starts: Mapping[str, float],
) -> FitSetup:
    """Return the setup of all records; each record has its own time zero, inputs and engine."""
    parts = {}
    for name, own in measurements.records.items():
        shifted = prior.with_time_origin(record_starts[name], own.inputs)
        task = replace(engine_task, size=own.size, has_exact_values=own.has_exact_values)
        task = replace(task, in_memory=not own.has_only_statistics, on_disk=own.stored_rows is not None)
        parts[name] = build_record_setup(system, settings, own, shifted, layout, task, name)
    largest = max(parts.values(), key=lambda part: part.engine_task.size)
    if len(parts) == 1:
        return largest
    reason = f"{len(parts)} records; the largest has {largest.engine_choice.reason}"
    choice = replace(largest.engine_choice, reason=reason)
    engine = combine_engines({name: part.engine for name, part in parts.items()}, measurements)
    return FitSetup(system, settings, measurements, choice, engine, layout, engine_task, parts=parts)


def build_record_setup(
    system: System,
    settings: FitSettings,
    measurements: Measurements,
    prior: Prior,
    layout: ParameterLayout,
    engine_task: EngineTask,
    record_name: str = DEFAULT_RECORD_NAME,
) -> FitSetup:
    """Return the setup of one record, given the prior and the layout of all records."""
    choice = choose_engine(settings.engine, engine_task)
    every = with_empty_series(measurements, prior.noise.observables)
    exact = select_exact_state(measurements, prior) if layout.diffuse_modes is not None else None
    conditions = None if exact is None else _build_small_engine(prior, exact, engine_task)
    engine = FallbackEngine(choice.factory.create(prior, every, engine_task), choice, every, engine_task, conditions)
    return FitSetup(system, settings, measurements, choice, engine, layout, engine_task, record_name)


def _build_small_engine(prior: Prior, measurements: Measurements, engine_task: EngineTask) -> Engine:
    """Return an engine for a few measurements of the observables of a prior."""
    task = replace(engine_task, size=measurements.size, in_memory=True, on_disk=False, device=None)
    every = with_empty_series(measurements, prior.noise.observables)
    return choose_engine("markov" if task.has_disturbances else "dense", task).factory.create(prior, every, task)


def select_exact_state(measurements: Measurements, prior: Prior) -> Measurements | None:
    """Return exact values that only set the initial state: at most as many as modes, and no process in the prior.

    None if there are no such values, or no other measurements.
    """
    exact = [item.select(np.flatnonzero(item.is_exact)) for item in measurements.series if item.is_exact.any()]
    count = sum(len(item.times) for item in exact)
    if not 0 < count < measurements.size or prior.has_process or count > sum(group.size for group in prior.groups):
        return None
    return Measurements(exact)


def find_unmeasured_names(system: System, known: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return warnings of channels that look like a misspelt known name, and notes on others that appear only once.

    The latter may be undeclared constants, or intended.
    """
    words = list(dict.fromkeys(word for text in known for word in re.findall(r"[^\W\d]\w*", text)))
    slips, lonely = _similar_names(system, words), find_single_use_inputs(system.written, system.plain_channels)
    others = [name for name in lonely if name not in (*words, *slips)]
    names = (*system.plain_channels, *system.parameters)
    warnings = [_unmeasured_name_message(name, alike) for name, alike in slips.items()]
    return warnings, [_unmeasured_name_message(name, find_closest_name(name, names)) for name in others]


def _similar_names(system: System, words: Sequence[str]) -> dict[str, str]:
    """Return channels that appear only once and look like a misspelt known name, with the name each resembles."""
    single = find_single_use_names(system.written, system.plain_channels)
    pairs = [(name, find_closest_name(name, words)) for name in single if name not in words]
    # T2 and T1 are usually two channels of the same kind.
    shapes = {name: re.sub(r"\d+", "0", name) for name in (*single, *words)}
    return {name: alike for name, alike in pairs if alike and shapes[name] != shapes[alike]}


def _unmeasured_name_message(name: str, alike: str) -> str:
    return (
        f"{name} was not measured and appears only once in the equations: it is treated as an unknown function of "
        f"time. {f'Did you mean {alike}? ' if alike else ''}If it is a constant, declare it as a parameter"
    )
