"""Optimal experiment design: expected standard errors of planned experiments, from the expected Fisher information."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lodekit.data.inputs import HoldType
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements, Scaling
from lodekit.errors import LodekitError, ParameterError
from lodekit.fitting.hessian import observed_information
from lodekit.fitting.settings import FitSettings, resolve_parameter_value
from lodekit.fitting.setup import FitSetup, build_record_setup, build_setup
from lodekit.prior.draws import sample_prior, unit_variance_hyperparameters
from lodekit.prior.observables import ObservableCompiler
from lodekit.prior.prior import Hyperparameters
from lodekit.results.fit import Fit
from lodekit.results.simulation import DeterministicResponse, parse_initial_values, parse_input
from lodekit.support.arguments import (
    Array,
    as_times,
    check_count,
    check_finite,
    check_parameters,
    check_positive,
    check_seed,
    parse_parameter_values,
)
from lodekit.support.html import html_paragraph, html_table, notebook_card
from lodekit.support.progress import track_progress
from lodekit.support.text import format_number, join_list
from lodekit.system.system import System
from lodekit.uncertainty.estimates import NOT_IDENTIFIED_MESSAGE, Estimate, estimate_parameters


@dataclass(frozen=True, repr=False)
class Experiment:
    """A planned experiment: the expected standard errors of the parameters.

    Parameters
    ----------
    estimates : dict of str to Estimate
        The parameters at their assumed values, with expected standard errors and intervals.
    observables : tuple of str
        The measured observables.
    window : (float, float)
        The first and the last time of a measurement.
    count : int
        Number of measurements.
    notes : tuple of str
        Remarks, for example that an input is not given.

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> decay = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    >>> found = lk.plan_experiment(decay, np.arange(0, 10, 0.5), {"a": 0.3}, noise={"x": 0.02}, start={"x": 1.0})
    >>> found
    Planned: x, 20 measurements, t from 0 to 9.5
                           value     std err    relative
    a                        0.3      0.0064        2.1 %
    """

    estimates: dict[str, Estimate]
    observables: tuple[str, ...]
    window: tuple[float, float]
    count: int
    _times: Mapping[str, Array] = field(repr=False, compare=False)
    _evaluate: Callable[..., tuple[dict[str, Estimate], Measurements]] = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()

    @property
    def std_errors(self) -> dict[str, float]:
        """Expected standard errors of the parameters by name; infinite if the data would not identify one."""
        return {name: each.std_error for name, each in self.estimates.items()}

    @property
    def relative(self) -> dict[str, float]:
        """Expected relative standard errors of the parameters by name: 0.01 is one percent."""
        return _relative_errors(self.estimates)

    def duration(self, target: float, parameters: Iterable[str] | None = None) -> float:
        """Return how long the experiment must last to reach a relative standard error.

        Parameters
        ----------
        target : float
            Required relative standard error: 0.01 for one percent.
        parameters : sequence of str, optional
            Parameters that must reach it; all by default.

        Returns
        -------
        float
            Time from the first measurement; infinite if all of the planned times are not enough.

        Examples
        --------
        >>> import numpy as np
        >>> import lodekit as lk
        >>> decay = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
        >>> found = lk.plan_experiment(decay, np.arange(0, 10, 0.1), {"a": 0.3}, noise={"x": 0.02}, start={"x": 1.0})
        >>> 2.0 < found.duration(0.03) < 6.0, found.duration(0.001)
        (True, inf)
        """
        check_positive("target", target)
        names = self._requested(parameters)
        times = np.unique(np.concatenate([self._times[name] for name in self.observables]))
        low, high = 0, len(times)
        if self._worst_relative_error(times[-1], names) > target:
            return math.inf
        while high - low > 1:
            middle = (low + high) // 2
            is_enough = self._worst_relative_error(times[middle - 1], names) <= target
            low, high = (low, middle) if is_enough else (middle, high)
        return float(times[high - 1] - times[0])

    def sensors(self) -> dict[tuple[str, ...], dict[str, float]]:
        """Return the relative standard errors with each subset of the planned sensors, smallest subsets first.

        With more than four sensors: with single ones, pairs, and all of them.

        Examples
        --------
        >>> import numpy as np
        >>> import lodekit as lk
        >>> tanks = lk.System("a' = -k*a + q; b' = k*a - m*b", parameters=["k", "m"])
        >>> assumed = dict(noise={"a": 0.01, "b": 0.01}, inputs={"q": 1.0})
        >>> found = lk.plan_experiment(tanks, np.arange(0, 20.0), {"k": 0.5, "m": 0.2}, **assumed).sensors()
        >>> [sensors for sensors, errors in found.items() if max(errors.values()) < 0.05]
        [('b',), ('a', 'b')]
        """
        every = self.observables
        sizes: Sequence[int] = range(1, len(every) + 1) if len(every) <= 4 else (1, 2, len(every))
        subsets = [subset for size in sizes for subset in combinations(every, size)]
        return {subset: _relative_errors(self._evaluate(subset)[0]) for subset in subsets}

    def records(self, target: float, parameters: Iterable[str] | None = None) -> float:
        """Return how many such experiments are needed to reach a relative standard error.

        Standard errors decrease with the square root of the number of records in one fit. The result is infinite if one
        record does not identify a parameter.

        Parameters
        ----------
        target, parameters
            As in `duration`.
        """
        check_positive("target", target)
        worst = max((self.relative[name] for name in self._requested(parameters)), default=0.0)
        return float(math.ceil(max(worst / target, 1.0) ** 2)) if math.isfinite(worst) else math.inf

    def _requested(self, parameters: Iterable[str] | None) -> list[str]:
        names = [name for name, each in self.estimates.items() if each.note != "fixed"]
        asked = names if parameters is None else [parameters] if isinstance(parameters, str) else list(parameters)
        check_parameters(names, asked)
        return asked

    def _worst_relative_error(self, last: float, names: Sequence[str]) -> float:
        errors = _relative_errors(self._evaluate(self.observables, last)[0])
        return max((errors[name] for name in names), default=0.0)

    def _table_rows(self) -> list[list[str]]:
        shares = [100.0 * share for share in self.relative.values()]
        return [
            [name, format_number(each.value, 0.0), f"{each.std_error:.2g}", f"{share:.2g} %", ""]
            if each.has_interval
            else [name, format_number(each.value, 0.0), "", "", each.note]
            for (name, each), share in zip(self.estimates.items(), shares, strict=True)
        ]

    def _title(self) -> str:
        first, last = self.window
        return f"{', '.join(self.observables)}, {self.count} measurements, t from {first:.6g} to {last:.6g}"

    def __repr__(self) -> str:
        lines = [f"Planned: {self._title()}", f"{'':<16}{'value':>12}{'std err':>12}{'relative':>12}"]
        for name, value, error, share, note in self._table_rows():
            lines.append(f"{name:<16}{value:>12}" + (f"  {note}" if note else f"{error:>12}{share:>12}"))
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        head = ["parameter", "value", "std error", "relative", "note"]
        table = html_table(head, self._table_rows(), text_columns=(4,))
        return notebook_card("Planned experiment", self._title(), [table, *map(html_paragraph, self.notes)])


def _relative_errors(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """Return relative standard errors by name."""
    items = estimates.items()
    return {name: each.std_error / abs(each.value) if each.value else math.inf for name, each in items}


def evaluate_design(
    reader: ObservableCompiler,
    settings: FitSettings,
    hyper: Hyperparameters,
    units: Scaling,
    noise: Mapping[str, float],
    times: Mapping[str, Array],
    curves: Sequence[Mapping[str, Array]],
    names: Sequence[str],
    last: float = math.inf,
) -> tuple[dict[str, Estimate], Measurements]:
    """Return the expected estimates from measurements of some observables up to a time, and these measurements.

    Curves are the measurements under the assumed values: one record without noise, or several random records with noise
    if motions are random.
    """
    records = []
    for curve in curves:
        data = Observations()
        for name in names:
            kept = times[name] <= last
            # A noise level cannot be estimated from a single curve without noise, so it is known then.
            known = None if len(curves) > 1 else noise[name]
            data = data.add(times[name][kept], name, curve[name][kept], known)
        records.append(replace(Measurements.from_observations(data), inputs=dict(reader.inputs)))
    scales = {item.observable: item.scale for item in records[0].observable_statistics if not item.is_zero}
    setup = build_setup(reader.system, settings, records[0], time_units=units, scales=scales)
    levels = np.array([noise[name] for name in setup.prior.noise.observables])
    x = setup.layout.pack(replace(hyper, noise_std=levels[: setup.prior.noise.n_levels]))
    information_matrices = []
    with setup.limit_threads(), np.errstate(all="ignore"):
        for number, record in enumerate(records):
            parts = reader.system, settings, record, setup.prior, setup.layout, setup.engine_task
            own_setup = build_record_setup(*parts) if number else setup
            information_matrices.append(observed_information(own_setup.objective, x))
    return _estimate_errors(setup, x, information_matrices), records[0]


def _estimate_errors(setup: FitSetup, x: Array, information_matrices: Sequence[Array]) -> dict[str, Estimate]:
    """Return the expected estimates, from the information matrices of one record or of several random ones."""
    layout, structure, held = setup.layout, setup.structural_identifiability, np.zeros(len(x), dtype=bool)
    # One parameter of each structurally unidentifiable direction is fixed, which does not affect the others.
    for direction in structure.unidentifiable_directions:
        involved = [i for i, k in enumerate(layout.free_parameters) if layout.names[k] in direction and not held[i]]
        held[involved[:1]] = True
    combined = estimate_parameters(layout, x, np.mean(information_matrices, axis=0), held)
    records = [estimate_parameters(layout, x, information, held) for information in information_matrices]
    estimates = {name: _combine_estimates(each, [own[name] for own in records]) for name, each in combined.items()}
    for name in structure.unidentifiable:
        limits = layout.transforms[layout.names.index(name)]
        unknown = math.inf, (limits.low, limits.high), False, NOT_IDENTIFIED_MESSAGE
        estimates[name] = Estimate(estimates[name].value, *unknown)
    return estimates


def _combine_estimates(whole: Estimate, estimates: Sequence[Estimate]) -> Estimate:
    """Return one estimate for several random motions; its standard error is the root mean square of theirs."""
    identified = [each for each in estimates if each.has_interval]
    if not whole.has_interval or 2 * len(identified) <= len(estimates):
        # A single random record may not have positive definite information at this point; their mean has.
        return whole
    error = float(np.sqrt(np.mean([each.std_error**2 for each in identified])))
    return replace(min(identified, key=lambda each: abs(each.std_error - error)), std_error=error)


def plan_experiment(
    system: System,
    t: ArrayLike | Mapping[str, ArrayLike],
    values: Mapping[str, float] | None = None,
    *,
    noise: Mapping[str, float],
    inputs: Mapping[str, Any] | None = None,
    start: Mapping[str, float] | None = None,
    latent: str = "se",
    lengthscale: float | None = None,
    amplitude: float = 1.0,
    draws: int = 31,
    random_state: int = 0,
) -> Experiment:
    """Return the expected standard errors of the parameters from a planned experiment.

    They follow from the Fisher information of such measurements at the assumed values. Initial states, and lengthscales
    and amplitudes of free functions, are treated as unknown. Estimates vary by these standard errors, and each fit will
    report about the same.

    Parameters
    ----------
    system : System
    t : array-like, shape (n,), or dict of observable to array-like
        Times of the measurements: the same for all observables, or separate ones for each.
    values : dict of str to float
        Assumed values of the parameters; fixed and start values of the system are used for missing ones.
    noise : dict of observable to float
        The measured observables, and the standard deviation of their noise.
    inputs : dict of channel to (times, values), values at the times `t`, number, or InputSignal, optional
        Known inputs, held between samples.
    start : dict of observable to float, optional
        Initial values at the first of all times; at rest by default. If they do not determine the initial state, other
        channels are at rest first, then derivatives.
    latent, lengthscale, amplitude : str, float, float
        For free functions: their kernel, their lengthscale (by default a fifth of the duration), and the approximate
        amplitude of the motion, in the units of the measurements.
    draws, random_state : int
        Number of random motions with free functions, and their seed; standard errors are root mean squares over them.

    Examples
    --------
    Heat for ten minutes and let it cool; is one thermometer enough to know the time constant to 1 %?

    >>> import numpy as np
    >>> import lodekit as lk
    >>> plant = lk.System("tau*T' + T - Ta = K*Q", parameters=["tau", "K", "Ta"])
    >>> assumed = {"tau": 80.0, "K": 0.5, "Ta": 20.0}
    >>> found = lk.plan_experiment(
    ...     plant, np.arange(0, 1200, 5.0), assumed, noise={"T": 0.2}, inputs={"Q": ([0, 60, 660], [0, 60, 0])}
    ... )
    >>> found.relative["tau"] < 0.01, found.duration(0.01, ["tau"]) < 1200
    (True, True)
    """
    if not isinstance(system, System):
        raise LodekitError(f"expected a System, got {type(system).__name__}")
    reader, times, levels = _parse_design(system, t, noise, inputs)
    arguments = FitSettings(latent, inputs={name: own.kind for name, own in reader.inputs.items()} or None)
    assumed = _parse_values(system, values)
    arguments.check()
    first = min(float(own.min()) for own in times.values())
    span = max(float(own.max()) for own in times.values()) - first or 1.0
    units = Scaling(first, span, np.ones(len(levels)))
    observables = reader.compile(list(levels), units)
    theta = np.array([resolve_parameter_value(system, name, assumed) for name in observables.compiled.parameters])
    length = span / 5 if lengthscale is None else check_positive("lengthscale", lengthscale)
    kernels = arguments.parse_kernels(reader.undriven_system)
    with np.errstate(all="ignore"):
        hyper = unit_variance_hyperparameters(observables, kernels, theta, length / span)
    size = check_positive("amplitude", amplitude)
    hyper = replace(hyper, amplitudes=size * hyper.amplitudes, mode_amplitudes=size * hyper.mode_amplitudes)
    return _design_experiment(reader, arguments, hyper, units, levels, times, start, draws, random_state)


def _parse_values(system: System, values: Mapping[str, float] | None) -> dict[str, float]:
    """Return the assumed values; raise if one violates the bounds or the fixed value of a parameter."""
    found = parse_parameter_values(system.parameters, values)
    for name, value in found.items():
        own = system.parameters[name]
        if limits := own.broken_limits(value):
            raise ParameterError(
                f"expected a value of {name} {limits}, as the system has it, got {value:g}; change values=, or "
                "the limits of the parameter"
            )
        if own.fixed is not None and own.fixed != value:
            raise ParameterError(
                f"{name} is fixed at {own.fixed:g} in the system, got {value:g}; leave it out of values=, or change "
                "fixed="
            )
    return found


def plan_next_experiment(
    fit: Fit,
    t: ArrayLike | Mapping[str, ArrayLike],
    *,
    noise: Mapping[str, float] | None = None,
    inputs: Mapping[str, Any] | None = None,
    start: Mapping[str, float] | None = None,
    draws: int = 31,
    random_state: int = 0,
) -> Experiment:
    """Return the expected standard errors of the parameters from another experiment alone, at the estimates.

    Parameters
    ----------
    t, inputs, start, draws, random_state
        As in `lodekit.plan_experiment`; inputs are those of the fit, with the same interpolation.
    noise : dict of observable to float, optional
        The measured observables and their noise; by default those of the fit, with the estimated noise.

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> decay = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    >>> t = np.arange(0.0, 10.0)
    >>> gp = lk.LODEGP(decay, random_state=0).fit(t, np.exp(-0.3 * t) + 0.01 * np.cos(9 * t))
    >>> denser = gp.plan_experiment(np.linspace(0, 9, 91), start={"x": 1.0})
    >>> denser.std_errors["a"] < 0.5 * gp.bse["a"]
    True
    """
    fit = fit.record_fits[0]
    if fit.prior.channels is not None or fit.prior.disturbances:
        raise LodekitError("plans need prior='latent' and no disturbances; try lk.plan_experiment(system, ...)")
    if missing := [name for name in fit.measurements.inputs if name not in (inputs or {})]:
        raise LodekitError(f"expected all inputs, {', '.join(missing)} is missing; add inputs={{'{missing[0]}': ...}}")
    known = {name: fit.typical_noise(name) for name in fit.measurements.names} if noise is None else noise
    kinds = {name: signal.kind for name, signal in fit.measurements.inputs.items()}
    reader, times, known = _parse_design(fit.system, t, known, inputs, kinds, fit.parse_times)
    units = replace(fit.prior.units.unscaled(len(known)), start=min(float(own.min()) for own in times.values()))
    hyper = fit.hyperparameters
    return _design_experiment(reader, fit.settings, hyper, units, known, times, start, draws, random_state)


def _parse_design(
    system: System,
    t: Any,
    noise: Any,
    inputs: Any,
    kinds: Mapping[str, HoldType] | None = None,
    parse_times_with: Callable[[Any], Array] = as_times,
) -> tuple[ObservableCompiler, dict[str, Array], dict[str, float]]:
    """Return an observable compiler with the inputs, and times and noise of each observable, from the arguments."""
    if not isinstance(noise, Mapping) or not noise:
        raise LodekitError(
            f"expected noise as a dict of what would be measured, such as noise={{'{system.plain_channels[0]}': 0.1}}, "
            f"got {noise!r}"
        )
    levels = {str(name): check_positive(f"the noise of {name}", level) for name, level in noise.items()}
    if isinstance(t, Mapping) and (missing := [name for name in levels if name not in t]):
        raise LodekitError(f"expected times for every name in noise=, got none for {', '.join(missing)}")
    times = {name: parse_times_with(t[name] if isinstance(t, Mapping) else t) for name in levels}
    if not all(len(own) for own in times.values()):
        raise LodekitError("expected at least one time, got none")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise LodekitError(f"expected inputs as a dict of channels to values, got {type(inputs).__name__}")
    at = None if isinstance(t, Mapping) else parse_times_with(t)
    holds: Mapping[str, HoldType] = kinds or {}
    items = (inputs or {}).items()
    signals = {name: parse_input(name, own, holds.get(name, "hold"), at, parse_times_with) for name, own in items}
    FitSettings(inputs={name: own.kind for name, own in signals.items()} or None).parse_inputs(system)
    return ObservableCompiler(system, signals), times, levels


@track_progress("planning the experiment")
def _design_experiment(
    reader: ObservableCompiler,
    arguments: FitSettings,
    hyper: Hyperparameters,
    units: Scaling,
    noise: Mapping[str, float],
    times: Mapping[str, Array],
    start: Mapping[str, float] | None,
    draws: int,
    random_state: int,
) -> Experiment:
    """Return an experiment with the given measurements."""
    check_count("draws", draws)
    check_seed(random_state)
    latents = arguments.parse_kernels(reader.undriven_system)
    every = np.unique(np.concatenate(list(times.values())))
    if not latents:
        # The data alone determine initial states, as in fits with known inputs.
        arguments = replace(arguments, mode_deviation="open")
        if not reader.inputs and not start:
            raise LodekitError("nothing moves from rest without inputs; expected start={'x': 1.0}, or inputs")
        values = {} if start is None else parse_initial_values(start)
        motion = DeterministicResponse.from_texts(reader, list(noise), every, values, units)
        # The prior standard deviations of unobservable modes are huge and must not affect the initial state.
        unit_modes = replace(hyper, mode_amplitudes=np.ones_like(hyper.mode_amplitudes))
        with np.errstate(all="ignore"):
            motion.check_initial_values(unit_modes)
            drawn = motion.mean(unit_modes)[None]
    elif start is not None:
        raise LodekitError("the equations leave functions of time free, so their start cannot be given; omit start=")
    else:
        generator = np.random.default_rng(random_state)
        observables = reader.compile_unscaled(list(noise), units)
        with np.errstate(all="ignore"):
            drawn = sample_prior(observables, latents, hyper, every, draws, generator)
        drawn = drawn + generator.standard_normal(drawn.shape) * np.array(list(noise.values()))
    check_finite(drawn.transpose(1, 0, 2), every)
    rows = {name: np.searchsorted(every, times[name]) for name in noise}
    curves = [{name: own[rows[name], place] for place, name in enumerate(noise)} for own in drawn]
    evaluate = partial(evaluate_design, reader, arguments, hyper, units, noise, times, curves)
    estimates, record = evaluate(list(noise))
    is_open = any(math.isinf(each.std_error) for each in estimates.values())
    notes = tuple(filter(None, [_describe_unmeasured_inputs(reader, noise)])) if is_open else ()
    return Experiment(estimates, tuple(noise), record.window, record.size, times, evaluate, notes)


def _describe_unmeasured_inputs(reader: ObservableCompiler, noise: Mapping[str, float]) -> str:
    """Return a remark on functions that are neither given nor measured; empty if there are none."""
    operators, _ = reader.parse(list(noise))
    channels, rest = reader.system.channels, reader.undriven_system
    seen = {name for j, name in enumerate(channels) if any(operators.coefficients(i, j) for i in range(len(noise)))}
    hidden = [names for names in rest.possible_inputs if not seen & {*names}]
    if not hidden:
        return ""
    # Channels that equations differentiate are usually responses, not inputs.
    names = min(hidden, key=lambda own: sum(rest.operator.degree(rest.channels.index(name)) for name in own))
    entries = ", ".join(f"{name!r}: ..." for name in names)
    start = f"{names[0]} is" if len(names) == 1 else f"{join_list(names)} are"
    return f"{start} neither known nor measured; add inputs={{{entries}}} if known, or noise={{{entries}}} if measured"
