"""Plans of experiments: from what is assumed, or was learned, to the errors that parameters will have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.arguments import check_count, check_finite, check_positive, check_seed, read_parameter_values, read_times
from lodekit.data.inputs import InputKind
from lodekit.data.units import Units
from lodekit.errors import LodekitError, ParameterError
from lodekit.experiment import Assumed, Experiment
from lodekit.fitted import Fit
from lodekit.motions import Motion, read_signal, read_start
from lodekit.prior.draws import draw_solutions, natural_hyperparameters
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import ObservableReader
from lodekit.settings import Arguments, find_value
from lodekit.system.system import System
from lodekit.wording import join_words

__all__ = ["plan_experiment", "plan_next"]

Array = NDArray[np.float64]


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
    """Return how well parameters will be known from measurements that nobody has made yet.

    The standard errors are those of the information in such measurements at the assumed values, with initial states,
    and lengthscales and deviations of free functions, unknown: how fits will scatter, and about what each will say.

    Parameters
    ----------
    system : System
    t : array-like, shape (n,), or dict of observable to array-like
        When measurements would be made: all at the same times, or each observable at its own.
    values : dict of str to float
        The parameters, as far as they can be guessed; fixed and start values of the system stand in for others.
    noise : dict of observable to float
        What would be measured, and the standard deviation of its noise.
    inputs : dict of channel to (times, values), values at the times `t`, number, or InputSignal, optional
        What would be set, and held between samples.
    start : dict of observable to float, optional
        Where the system starts, at the first of all times; from rest by default. What these values leave open is as
        at rest: other channels first, then derivatives.
    latent, lengthscale, amplitude : str, float, float
        Where functions of time remain free: their covariance, how long they take to change (a fifth of the whole time
        by default), and about how large motions are, in the units of what is measured.
    draws, random_state : int
        How many such motions are looked at, with which seed; errors are what fits to all of them would scatter by.

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
    reader, times, levels = _read_question(system, t, noise, inputs)
    arguments = Arguments(latent, inputs={name: own.kind for name, own in reader.inputs.items()} or None)
    assumed = _read_values(system, values)
    units, hyper = _assume_values(reader, arguments, assumed, times, levels, lengthscale, amplitude)
    return _plan(reader, arguments, hyper, units, levels, times, start, draws, random_state)


def _read_values(system: System, values: Mapping[str, float] | None) -> dict[str, float]:
    """Return the values that are assumed; raise where a fit could never find one."""
    found = read_parameter_values(system.parameters, values)
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


def _assume_values(
    reader: ObservableReader,
    arguments: Arguments,
    values: Mapping[str, float],
    times: Mapping[str, Array],
    noise: Mapping[str, float],
    lengthscale: float | None,
    amplitude: float,
) -> tuple[Units, Hyperparameters]:
    """Return the unit of time, and all values that are assumed."""
    arguments.check()
    first = min(float(own.min()) for own in times.values())
    span = max(float(own.max()) for own in times.values()) - first or 1.0
    units = Units(first, span, np.ones(len(noise)))
    observables = reader.compile(list(noise), units)
    theta = np.array([find_value(reader.system, name, values) for name in observables.compiled.parameters])
    length = span / 5 if lengthscale is None else check_positive("lengthscale", lengthscale)
    with np.errstate(all="ignore"):
        hyper = natural_hyperparameters(observables, arguments.latents(reader.reduced), theta, length / span)
    size = check_positive("amplitude", amplitude)
    return units, replace(hyper, deviations=size * hyper.deviations, mode_deviations=size * hyper.mode_deviations)


def plan_next(
    fit: Fit,
    t: ArrayLike | Mapping[str, ArrayLike],
    *,
    noise: Mapping[str, float] | None = None,
    inputs: Mapping[str, Any] | None = None,
    start: Mapping[str, float] | None = None,
    draws: int = 31,
    random_state: int = 0,
) -> Experiment:
    """Return how well parameters will be known from one more experiment alone, if all is as this fit has learned it.

    Parameters
    ----------
    t, inputs, start, draws, random_state
        As in `lodekit.plan_experiment`; what was an input is one again, and does between samples what it did.
    noise : dict of observable to float, optional
        What would be measured, and its noise; by default what was measured, with the noise that was learned.

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
    fit = fit.parts[0]
    if fit.prior.channels is not None or fit.prior.disturbances:
        raise LodekitError("plans need prior='latent' and no disturbances; try lk.plan_experiment(system, ...)")
    if missing := [name for name in fit.measurements.inputs if name not in (inputs or {})]:
        raise LodekitError(f"expected all inputs, {', '.join(missing)} is missing; add inputs={{'{missing[0]}': ...}}")
    known = {name: fit.typical_noise(name) for name in fit.measurements.names} if noise is None else noise
    kinds = {name: signal.kind for name, signal in fit.measurements.inputs.items()}
    reader, times, known = _read_question(fit.system, t, known, inputs, kinds, fit.times)
    units = replace(fit.prior.units.plain(len(known)), start=min(float(own.min()) for own in times.values()))
    return _plan(reader, fit.arguments, fit.hyperparameters, units, known, times, start, draws, random_state)


def _read_question(
    system: System,
    t: Any,
    noise: Any,
    inputs: Any,
    kinds: Mapping[str, InputKind] | None = None,
    read: Callable[[Any], Array] = read_times,
) -> tuple[ObservableReader, dict[str, Array], dict[str, float]]:
    """Return a reader that knows the inputs, times and noise of each observable, from what the user gave."""
    if not isinstance(noise, Mapping) or not noise:
        raise LodekitError(
            f"expected noise as a dict of what would be measured, such as noise={{'{system.plain_channels[0]}': 0.1}}, "
            f"got {noise!r}"
        )
    levels = {str(name): check_positive(f"the noise of {name}", level) for name, level in noise.items()}
    if isinstance(t, Mapping) and (missing := [name for name in levels if name not in t]):
        raise LodekitError(f"expected times for all that has noise, got none for {', '.join(missing)}")
    times = {name: read(t[name] if isinstance(t, Mapping) else t) for name in levels}
    if not all(len(own) for own in times.values()):
        raise LodekitError("expected at least one time, got none")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise LodekitError(f"expected inputs as a dict of channels to values, got {type(inputs).__name__}")
    at = None if isinstance(t, Mapping) else read(t)
    signals = {
        name: read_signal(name, given, (kinds or {}).get(name, "hold"), at, read)
        for name, given in (inputs or {}).items()
    }
    Arguments(inputs={name: own.kind for name, own in signals.items()} or None).known_inputs(system)
    return ObservableReader(system, signals), times, levels


def _plan(
    reader: ObservableReader,
    arguments: Arguments,
    hyper: Hyperparameters,
    units: Units,
    noise: Mapping[str, float],
    times: Mapping[str, Array],
    start: Mapping[str, float] | None,
    draws: int,
    random_state: int,
) -> Experiment:
    """Return an experiment, once it is known what would be measured in it."""
    check_count("draws", draws)
    check_seed(random_state)
    latents = arguments.latents(reader.reduced)
    every = np.unique(np.concatenate(list(times.values())))
    if not latents:
        # Initial states are told by the data alone, as in fits to known inputs.
        arguments = replace(arguments, mode_deviation="open")
        drawn = _follow(reader, list(noise), hyper, units, every, start)[None]
    elif start is not None:
        raise LodekitError("functions of time remain free here, and their start with them; leave start out")
    else:
        generator = np.random.default_rng(random_state)
        observables = reader.compile_plain(list(noise), units)
        with np.errstate(all="ignore"):
            drawn = draw_solutions(observables, latents, hyper, every, draws, generator)
        drawn = drawn + generator.standard_normal(drawn.shape) * np.array(list(noise.values()))
    check_finite(drawn.transpose(1, 0, 2), every)
    curves = [
        {name: own[np.searchsorted(every, times[name]), place] for place, name in enumerate(noise)} for own in drawn
    ]
    hidden = _name_hidden(reader, noise)
    assumed = Assumed(reader.system, arguments, reader.inputs, hyper, units, noise, times, curves, hidden)
    return assumed.look(list(noise))


def _name_hidden(reader: ObservableReader, noise: Mapping[str, float]) -> str:
    """Return what is said of functions that nobody sets or measures; an empty text where there are none."""
    operators, _ = reader.read(list(noise))
    channels, rest = reader.system.channels, reader.reduced
    seen = {name for j, name in enumerate(channels) if any(operators.coefficients(i, j) for i in range(len(noise)))}
    hidden = [names for names in rest.possible_inputs if not seen & {*names}]
    if not hidden:
        return ""
    # What equations differentiate is moved by others; an input most often is not.
    names = min(hidden, key=lambda own: sum(rest.operator.degree(rest.channels.index(name)) for name in own))
    entries = ", ".join(f"{name!r}: ..." for name in names)
    start = f"{names[0]} is" if len(names) == 1 else f"{join_words(names)} are"
    return (
        f"{start} neither given nor measured, and may be anything; add inputs={{{entries}}} for what would be set, or "
        f"noise={{{entries}}} for what would be measured"
    )


def _follow(
    reader: ObservableReader,
    names: Sequence[str],
    hyper: Hyperparameters,
    units: Units,
    times: Array,
    start: Mapping[str, float] | None,
) -> Array:
    """Return what observables do from rest, or from values at the start, shape (n, o)."""
    if not reader.inputs and not start:
        raise LodekitError("nothing moves from rest without inputs; expected start={'x': 1.0}, or inputs")
    motion = Motion.of(reader, names, times, {} if start is None else read_start(start), units)
    # Deviations of modes that nobody would see are huge, and say nothing of where a system starts.
    alike = replace(hyper, mode_deviations=np.ones_like(hyper.mode_deviations))
    with np.errstate(all="ignore"):
        motion.check_start(alike)
        return motion.mean(alike)
