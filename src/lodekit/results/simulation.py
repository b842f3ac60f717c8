"""Simulation: random solutions of a system from its prior, and responses of a fitted system to new inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from lodekit.data.inputs import HoldType, InputSignal
from lodekit.data.records import Scaling
from lodekit.data.sources import load_data
from lodekit.data.tables.frames import is_dataframe, is_time_index
from lodekit.errors import DataError, LodekitError
from lodekit.fitting.settings import resolve_parameter_value
from lodekit.inference.kalman.state_space import disturbance_response_variance
from lodekit.prior.draws import sample_prior, unit_variance_hyperparameters
from lodekit.prior.kernels import parse_kernel
from lodekit.prior.modes import ModeGroup, mode_group_index
from lodekit.prior.observables import ObservableCompiler, Observables
from lodekit.prior.prior import Hyperparameters
from lodekit.results.fit import Fit
from lodekit.results.forecast import widen_free_run
from lodekit.results.prediction import format_prediction, parse_observables
from lodekit.results.state_space import state_space
from lodekit.support import arguments
from lodekit.support.arguments import Array, Mask
from lodekit.system.system import System

__all__ = ["START_STATES", "parse_initial_values", "parse_input", "simulate", "simulate_response"]

#: Names of initial states of `simulate_response`.
START_STATES = ("rest", "steady", "begin", "end")
#: Singular values of normalised rows below this are rounding errors.
_RANK_TOLERANCE = 1e-9


def parse_input(
    name: str,
    given: Any,
    kind: HoldType,
    requested_times: Array | None,
    read_times: Callable[[Any], Array],
    start_time: float = 0.0,
) -> InputSignal:
    """Return an input from the forms that users can give.

    Parameters
    ----------
    name : str
        Name of the input, for messages.
    given : (times, values), values at the requested times, number, or InputSignal
    kind : {"hold", "linear"}
        Interpolation between samples.
    requested_times : array, shape (n,), optional
        The requested times, in any order, if they are the same for all.
    read_times : function
        Converts the user's times to an array.
    start_time : float
        Time of the only sample of a constant.

    Examples
    --------
    >>> parse_input("u", [1.0, 2.0, 3.0], "hold", np.array([2.0, 0.0, 1.0]), np.asarray).values.tolist()
    [2.0, 3.0, 1.0]
    """
    if isinstance(given, InputSignal):
        return given
    if _is_number(given):
        return InputSignal([start_time], [float(given)], kind)
    if hasattr(given, "to_numpy"):
        # A Series is (times, values) if its index holds times.
        index = getattr(given, "index", None)
        given = given.to_numpy() if index is None or not is_time_index(index) else (index, given.to_numpy())
    count = 0 if requested_times is None else len(requested_times)
    # Two numbers are ambiguous: a time and a value, or two values.
    is_column = isinstance(given, np.ndarray | list) and np.ndim(given) == 1
    if requested_times is not None and is_column and len(given) == count > 2:
        order = np.argsort(requested_times, kind="stable")
        return InputSignal(requested_times[order], np.asarray(given)[order], kind)
    if not isinstance(given, Sequence) or len(given) != 2 or any(np.ndim(part) != 1 for part in given):
        got = "a function; take its values, (times, u(times))" if callable(given) else type(given).__name__
        if isinstance(given, list | tuple | np.ndarray):
            got = f"{len(given)} values" + (f" for {count} times t" if count else " without times")
        raise LodekitError(f"input {name}: expected a number, one value for each time t, or (times, values), got {got}")
    return InputSignal(read_times(given[0]), given[1], kind)


def parse_initial_values(initial_values: Any) -> dict[str, float]:
    """Return initial values by observable; raise if they are invalid.

    Parameters
    ----------
    initial_values : dict of str to float
    """
    if not isinstance(initial_values, Mapping):
        raise LodekitError(
            f"expected start as a dict of observables to values, such as {{'x': 1.0}}, got {initial_values!r}"
        )
    for name, value in initial_values.items():
        if not _is_number(value) or not np.isfinite(value):
            raise LodekitError(f"expected a finite number for the start of {name}, got {value!r}")
    return {name: float(value) for name, value in initial_values.items()}


def _is_number(given: Any) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool)


@dataclass(frozen=True)
class DeterministicResponse:
    """The response of a system without free functions, from rest or from given initial values.

    Parameters
    ----------
    observables : Observables
        The requested observables; their time begins at the start.
    times : array, shape (n,)
        The requested times.
    initial_values : dict of str to float
        Initial values by observable; empty for rest.
    initial_observables : Observables or None
        The observables that have these values.
    rest_observables : tuple of Observables
        Observables that are at rest as far as the initial values permit, in order of priority.
    """

    observables: Observables
    times: Array
    initial_values: Mapping[str, float]
    initial_observables: Observables | None = None
    rest_observables: tuple[Observables, ...] = ()

    @classmethod
    def from_texts(
        cls,
        reader: ObservableCompiler,
        texts: Sequence[str],
        times: Array,
        initial_values: Mapping[str, float],
        units: Scaling,
    ) -> Self:
        """Return the response of a system.

        If initial values do not determine the state, other channels are at rest first, then derivatives.

        Parameters
        ----------
        reader : ObservableCompiler
            The compiler of the system, with its inputs and disturbances.
        texts : sequence of str
            The requested observables.
        times : array, shape (n,)
        initial_values : dict of str to float
        units : Scaling
            Units of time, which begins at the start.
        """
        observables = reader.compile_unscaled(texts, units)
        if not initial_values:
            return cls(observables, times, initial_values)
        names = [name for name in reader.system.plain_channels if name not in (*reader.inputs, *reader.disturbances)]
        count = len(mode_group_index(observables.compiled.groups))
        others = [name for name in names if name not in initial_values]
        levels = [others, *([name + "'" * order for name in names] for order in range(1, count))]
        rest = tuple(reader.compile_unscaled(level, units) for level in levels if level)
        return cls(observables, times, initial_values, reader.compile_unscaled(list(initial_values), units), rest)

    @property
    def groups(self) -> tuple[ModeGroup, ...]:
        """The modes of the system."""
        return self.observables.compiled.groups

    def mean(self, hyper: Hyperparameters) -> Array:
        """Return the observables at all times, shape (n, o)."""
        own, groups = self.observables.evaluate(hyper.theta), self.groups
        means, _ = self.observables.means(own, self.times, with_jacobian=False)
        mean = np.stack(means, axis=1)
        if self.initial_observables is None or not groups:
            return mean
        weights, _ = self._solve_mode_weights(self.initial_observables, hyper)
        scaled = self.observables.units.scale_times(self.times)
        modes, _ = self.observables.mode_basis(own, groups, scaled, with_jacobian=False)
        return np.asarray(mean + np.stack([part @ weights for part in modes], axis=1))

    def check_initial_values(self, hyper: Hyperparameters) -> None:
        """Raise if equations and inputs contradict the initial values."""
        if self.initial_observables is not None and self._solve_mode_weights(self.initial_observables, hyper)[1].any():
            wanted = ", ".join(f"{name} = {value:g}" for name, value in self.initial_values.items())
            raise LodekitError(
                f"the start {wanted} contradicts the equations and the inputs; expected fewer start values"
            )

    def _solve_mode_weights(self, initial_observables: Observables, hyper: Hyperparameters) -> tuple[Array, Mask]:
        """Return the weights of the modes that give the initial values, and which values they miss."""
        at, roots = np.array([initial_observables.units.start]), hyper.mode_amplitudes[mode_group_index(self.groups)]
        values = np.array(list(self.initial_values.values()))
        coefficients = initial_observables.evaluate(hyper.theta)
        known = np.concatenate(initial_observables.means(coefficients, at, with_jacobian=False)[0])
        design = self._mode_matrix(initial_observables, hyper) * roots
        wanted = values - known
        # The smallest mode weights, in units of their standard deviations, that give the values.
        weights = np.linalg.pinv(design, rcond=1e-12) @ wanted
        size = np.abs(values) + np.abs(known) + np.linalg.norm(design, axis=1) * np.linalg.norm(weights)
        missed = np.abs(design @ weights - wanted) > 1e-6 * size
        free = _null_space(_normalize_rows(design))
        for level in self.rest_observables:
            # The modes do not move observables at rest: this determines the remaining weights, level by level.
            rows = _normalize_rows(self._mode_matrix(level, hyper) * roots)
            left, sizes, right = np.linalg.svd(rows @ free, full_matrices=False)
            usable = sizes > _RANK_TOLERANCE
            corrections = (left[:, usable].T @ (rows @ weights)) / sizes[usable]
            weights = weights - free @ (right[usable].T @ corrections)
            free = free @ _null_space(rows @ free)
        return roots * weights, missed

    def _mode_matrix(self, observables: Observables, hyper: Hyperparameters) -> Array:
        """Return the contribution of each mode to the observables at the start, shape (o, modes)."""
        own = observables.evaluate(hyper.theta)
        return np.concatenate(observables.mode_basis(own, self.groups, np.zeros(1), with_jacobian=False)[0])


def _normalize_rows(rows: Array) -> Array:
    """Return rows of length one; zero rows are not changed."""
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(size > 0, size, 1.0))


def _null_space(rows: Array) -> Array:
    """Return an orthonormal basis of the null space of rows, as columns."""
    _, sizes, right = np.linalg.svd(rows)
    seen = int(np.sum(sizes > _RANK_TOLERANCE * max(float(sizes.max(initial=0.0)), 1.0)))
    return np.asarray(right[seen:].T)


def simulate(
    system: System,
    t: ArrayLike,
    values: Mapping[str, float] | None = None,
    *,
    observable: str | Sequence[str] | None = None,
    latent: str = "se",
    lengthscale: float | None = None,
    size: int = 1,
    random_state: int | None = None,
) -> Array:
    """Draw random solutions of a system from its prior, shape (size, n, channels); their random part is about one.

    Parameters
    ----------
    system : System
    t : array-like, shape (n,)
        Times, in any order.
    values : dict of str to float, optional
        Values of the parameters; fixed and start values of the system are used for missing ones.
    observable : str or sequence of str, optional
        Observables to return instead of the channels; a single one keeps the last axis.
    latent : str
        Kernel of all free functions: ``"se"``, or ``"matern-p/2"`` with odd p.
    lengthscale : float, optional
        Lengthscale of the free functions, in the user's unit of time; by default a fifth of the time span.
    size : int
        Number of solutions.
    random_state : int, optional
        Random seed.

    Examples
    --------
    >>> import lodekit as lk
    >>> drawn = simulate(lk.System("x' = v"), [0.0, 1.0, 2.0], size=4, random_state=0)
    >>> drawn.shape
    (4, 3, 2)
    """
    times = arguments.as_times(t)
    if not len(times):
        raise LodekitError("expected at least one time, got none")
    arguments.check_count("size", size)
    arguments.check_seed(random_state)
    span = float(np.ptp(times)) or 1.0
    length = span / 5 if lengthscale is None else arguments.check_positive("lengthscale", lengthscale)
    known = arguments.parse_parameter_values(system.parameters, values)
    names = [observable] if isinstance(observable, str) else list(observable or system.plain_channels)
    units = Scaling(float(times.min()), span, np.ones(len(names)))
    observables = ObservableCompiler(system).compile(names, units)
    theta = np.array([resolve_parameter_value(system, name, known) for name in observables.compiled.parameters])
    latents = (parse_kernel(latent),) * system.free_functions
    with np.errstate(all="ignore"):
        hyper = unit_variance_hyperparameters(observables, latents, theta, length / span)
        drawn = sample_prior(observables, latents, hyper, times, int(size), np.random.default_rng(random_state))
    arguments.check_finite(drawn.transpose(1, 0, 2), times)
    return drawn


def simulate_response(
    fit: Fit,
    t: ArrayLike,
    inputs: Mapping[str, Any] | None = None,
    start: str | Mapping[str, float] = "rest",
    observable: str | Sequence[str] | None = None,
    return_std: bool = False,
    *,
    parameters: str = "uncertain",
    record: str | int | None = None,
    as_frame: bool | str | None = None,
) -> Any:
    """Return the response of the fitted system to new inputs and, on request, its standard deviation.

    Parameters
    ----------
    t : array-like, shape (n,), or DataFrame
        Times, in any order; dates if the fit had dates. Or, without `inputs`, a table with times and inputs in columns.
    inputs : dict of str to (times, values), values at the times `t`, number, or InputSignal
        New inputs by channel, with the interpolation of the fitted ones.
    start : {"rest", "steady", "begin", "end"} or dict of str to float
        Initial state. ``"rest"``: all modes and free functions are zero before the first of all times, and inputs begin
        there, as in ``forced_response`` of python-control: a building that is driven by the outdoor temperature starts
        at zero degrees. ``"steady"``: the steady state of the first values of the inputs. A dict of observables to
        values, such as ``{"y": 20.0}``: these values at the first of all times. If they do not determine the state,
        other channels are at rest first, then derivatives, which are zero unless an input changes them at that time.
        ``"begin"``: the state at the beginning of the record, with the new inputs instead of the old ones. ``"end"``:
        the state at the end of the record; the old inputs apply until its last measurement, or until the new ones
        begin, if that is later.
    observable : str or sequence of str, optional
        As in `predict`.
    return_std : bool
        Whether to return standard deviations, too.
    parameters : {"uncertain", "fixed"}
        Whether standard deviations include the uncertainty of all estimates, and model error as large as in the fitted
        records.
    record : str or int, optional
        As in `predict`; required for ``"begin"`` and ``"end"`` if there are several.
    as_frame : bool or str, optional
        Whether to return a DataFrame, as in `predict`.

    Returns
    -------
    mean : array, shape (n, channels), or (n,) for an observable given as text
    std : array of the same shape, if requested

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.arange(40.0)
    >>> u = np.where(t < 10, 0.0, 1.0)
    >>> y = np.where(t < 10, 0.0, 1 - np.exp(-(t - 10) / 5)) + 0.01 * np.sin(7 * t)
    >>> system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    >>> gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": u})
    >>> y = gp.simulate([0.0, 50.0], inputs={"u": 3.0}, observable="y")
    >>> bool(abs(y[0]) < 0.01 and abs(y[1] - 3) < 0.1)
    True
    """
    if not fit.measurements.inputs:
        raise LodekitError(
            "this fit has no known inputs to simulate with; use predict() for its curves, also beyond the data, or fit "
            "with inputs={'u': 'hold'}"
        )
    # All records share the estimates.
    fit = fit.record_fits[0] if _is_new_start(start) and record is None else fit.for_record(record)
    texts, single = parse_observables(fit, observable)
    if inputs is None and is_dataframe(t):
        t, inputs = _read_inputs(fit, t)
    times, uncertain = fit.parse_times(t), arguments.includes_parameter_uncertainty(parameters)
    signals = _parse_inputs(fit, inputs, times)
    mean, variance = np.zeros((2, 0, len(texts)))
    with np.errstate(all="ignore"):
        is_new = _is_new_start(start)
        _check_inputs(fit, signals, np.inf if is_new else float(times.max(initial=-np.inf)) if signals else -np.inf)
        if len(times) and is_new:
            # A constant has one sample, at any time.
            starts = [float(signal.times[0]) for signal in signals.values() if len(signal.times) > 1]
            begin = min([float(times.min()), *starts])
            settling = _settling_time(fit) if start == "steady" else 0.0
            # Before their first samples, inputs have the first values.
            units = replace(fit.prior.units, start=begin - settling)
            reader = replace(fit.setup.observable_compiler, inputs=signals)
            values = parse_initial_values(start) if isinstance(start, Mapping) else {}
            if constants := [name for name in values if name in fit.system.parameters]:
                raise LodekitError(f"expected start values of channels, got {constants[0]}, which is a parameter")
            motion = DeterministicResponse.from_texts(reader, texts, times, values, units)
            motion.check_initial_values(fit.hyperparameters)
            mean = motion.mean(fit.hyperparameters)
            variance = np.zeros_like(mean)
            if uncertain:
                variance += np.sum(fit.inflate_shifts(fit.parameter_uncertainty.shifts_of(motion.mean)) ** 2, axis=0)
            if fit.prior.disturbances:
                # Disturbances continue with their estimated amplitudes; the system is at rest at the start.
                scaled = units.scale_times(times)
                variance += disturbance_response_variance(motion.observables, fit.hyperparameters, scaled)
            variance = _add_model_error(fit, texts, times - begin, variance) if uncertain else variance
        elif len(times):
            observables = compile_from_record(fit, texts, signals, start)
            mean, variance = fit.posterior.mean(observables, times), fit.posterior.variance(observables, times)
            if uncertain:
                begin = fit.measurements.window[start == "end"]
                shifts = fit.inflate_shifts(fit.parameter_uncertainty.mean_shifts(observables, times))
                variance = variance / fit.residual_dof_fraction + np.sum(shifts**2, axis=0)
                variance = _add_model_error(fit, texts, times - begin, variance)
    parts = [mean, np.sqrt(variance)] if return_std else [mean]
    return format_prediction(parts, times, single=single, frame=(fit.clock, texts, as_frame))


def _is_new_start(start: object) -> bool:
    """Return whether the system starts from rest, a steady state or given values, not from the record; or raise."""
    if isinstance(start, Mapping):
        return True
    if not isinstance(start, str) or start not in START_STATES:
        known = ", ".join(map(repr, START_STATES))
        raise LodekitError(f"expected start as one of {known}, or as a dict of values, got {start!r}")
    return start in ("rest", "steady")


def _settling_time(fit: Fit) -> float:
    """Return a time after which constant inputs have led to a steady state; raise if they do not."""
    rates = [-pole.value.real for pole in state_space(fit).poles]
    slowest = min(rates, default=np.inf)
    # A rate at the level of rounding errors belongs to an integrator.
    if slowest <= _RANK_TOLERANCE * max(map(abs, rates), default=0.0):
        raise LodekitError(
            "start='steady' needs a system that settles, but this one integrates or grows (see state_space().poles); "
            "give values, such as start={'y': 20.0}"
        )
    # After this time, the effect of the initial state is below 1e-17.
    return float(40.0 / slowest)


def _add_model_error(fit: Fit, texts: Sequence[str], elapsed: Array, variance: Array) -> Array:
    """Return variances of a free run including model error, (n, o), given the time since its start."""
    unexplained = np.array([fit.unexplained_std.get(text, 0.0) for text in texts])
    return np.asarray(widen_free_run(fit, texts, elapsed, variance) + unexplained**2)


def _read_inputs(fit: Fit, table: Any) -> tuple[Array, dict[str, tuple[Array, Array]]]:
    """Return the times in a table, shape (n,), and the inputs with their times."""
    options = {"since": fit.clock.origin, **fit.labels.read_options}
    series = load_data(table, channels=tuple(fit.measurements.inputs), **options).measurements.series
    times = np.unique(np.concatenate([item.times for item in series]))
    return times, {item.observable: (item.times, item.values) for item in series}


def _parse_inputs(fit: Fit, inputs: Any, times: Array) -> dict[str, InputSignal]:
    """Return new inputs by name from the argument of the user."""
    known = fit.measurements.inputs
    if not isinstance(inputs, Mapping):
        got = "none" if inputs is None else type(inputs).__name__
        raise LodekitError(
            f"expected inputs as a dict of channels, such as inputs={{'{next(iter(known))}': 1.0}}, got {got}"
        )
    found = {}
    for name, given in inputs.items():
        if name not in known:
            raise LodekitError(f"{name!r} is not an input of this fit; expected one of: {', '.join(known)}")
        found[name] = parse_input(name, given, known[name].kind, times, fit.parse_times, fit.measurements.window[0])
    return found


def _check_inputs(fit: Fit, signals: Mapping[str, InputSignal], stop: float) -> None:
    """Raise if an input is neither given nor known from the record until a time; infinite if all must be given."""
    last, missing = fit.measurements.window[1], list[str]()
    for name, old in fit.measurements.inputs.items():
        # A constant has one sample, at any time.
        end = max(last, float(old.times[-1])) if len(old.times) > 1 else np.finfo(float).max
        missing += [name] if name not in signals and stop > end else []
    if missing:
        value = fit.measurements.inputs[missing[0]].at(last)
        advice = f"add it to the inputs, as samples or as a number: '{missing[0]}': {value:.4g}"
        raise LodekitError(f"expected all inputs, {', '.join(missing)} is missing; {advice}")


def compile_from_record(fit: Fit, texts: Sequence[str], new: Mapping[str, InputSignal], start: object) -> Observables:
    """Return observables under new inputs, starting from the state at the beginning or the end of the record."""
    old = fit.measurements.inputs.items()
    spliced = {name: _splice_input(fit, name, signal, new.get(name), start) for name, signal in old}
    return replace(fit.setup.observable_compiler, inputs=spliced).compile_unscaled(texts, fit.prior.units)


def _splice_input(fit: Fit, name: str, old: InputSignal, new: InputSignal | None, start: object) -> InputSignal:
    """Return an input that is the old one, the new one, or the old one until the new one begins after the record."""
    if new is None or start == "begin":
        return old if new is None else new
    end = fit.measurements.window[1]
    if len(new.times) > 1 and new.times[-1] < end:
        raise DataError(f"expected samples of {name} from the end of the record on, {fit.clock.format_times(end)}")
    switch = max(end, float(new.times[0]))
    before, after, first = old.times < switch, new.times > switch, [(switch, float(new.at(switch)))]
    if old.kind == "linear" and switch == end and old.at(end) != new.at(end):
        # A jump, after which the new input begins.
        first = [(end, float(old.at(end))), (float(np.nextafter(end, np.inf)), float(new.at(end)))]
    times, values = zip(*first, strict=True)
    return InputSignal(
        np.concatenate([old.times[before], times, new.times[after]]),
        np.concatenate([old.values[before], values, new.values[after]]),
        old.kind,
    )
