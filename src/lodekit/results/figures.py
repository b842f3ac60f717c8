"""Figures of a fit, drawn by `lodekit.plotting`: curves, residuals, modes, spectra, responses, profile likelihood."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lodekit import plotting
from lodekit.diagnostics.profile_likelihood import ObjectiveSurface
from lodekit.diagnostics.residual_tests import cumulative_periodogram, cumulative_periodogram_band
from lodekit.errors import AlgebraError, LodekitError
from lodekit.prior.channel_prior.channel_spectrum import prior_spectral_density
from lodekit.results.certificate import compute_mean_residuals, pointwise_equations
from lodekit.results.fit import Fit, parse_units
from lodekit.results.prediction import predict, sample
from lodekit.results.profile_curves import trace_highest_profile
from lodekit.results.state_space import (
    FittedStateSpace,
    data_frequency_band,
    delta_method_std,
    frequency_grid,
    state_space,
    step_grid,
)
from lodekit.results.summary import describe_solution_sense
from lodekit.support.arguments import (
    Array,
    IndexArray,
    as_float_array,
    as_times,
    check_count,
    check_parameters,
    parse_parameter_values,
)
from lodekit.support.interval_means import observable_unit
from lodekit.support.plot_limits import describe_cut_band, typical_limits
from lodekit.support.progress import track_progress
from lodekit.support.text import format_quantity
from lodekit.uncertainty.estimates import NORMAL_QUANTILE_95

_N_TIMES = 400


def parse_time_grid(fit: Fit, t: ArrayLike | None) -> tuple[Array, IndexArray]:
    """Return ascending times, shape (n,), and their indices in the argument of the user.

    Shapes: t (n,).
    """
    if t is None:
        return np.linspace(*fit.setup.default_window, _N_TIMES), np.arange(_N_TIMES)
    times = fit.parse_times(t)
    order = np.argsort(times, kind="stable")
    if len(times) < 2 or times[order[0]] == times[order[-1]]:
        raise LodekitError(f"expected at least two different times to draw over, got {len(times)}; try np.linspace")
    return times[order], order


def parse_observable_names(fit: Fit, observable: str | Sequence[str] | None) -> list[str]:
    """Return the observables to show, as texts."""
    if observable is None:
        return list(dict.fromkeys((*fit.setup.channels, *fit.measurements.names)))
    names = parse_texts(observable, "observables")
    fit.setup.observable_compiler.parse(names)
    return names


def parse_texts(given: str | Sequence[str], what: str) -> list[str]:
    """Return one or several texts as a list."""
    found = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else []
    if not found or not all(isinstance(text, str) for text in found):
        raise LodekitError(f"expected {what} as a text or a list of texts, got {given!r}")
    return found


def select_records(fit: Fit, record: str | int | None) -> tuple[Fit, ...]:
    """Return the fits of the records that are drawn."""
    return fit.record_fits[:12] if record is None else (fit.for_record(record),)


def make_record_panels(
    axes: Any, names: Sequence[str], records: Sequence[str], **layout: Any
) -> tuple[Any, list[list[Any]], bool]:
    """Return the figure, the panels of each record, beside each other if these are few, and whether they are new."""
    count = len(names)
    if len(records) == 1:
        figure, panels, new = plotting.read_axes(axes, names, columns=1 if count <= 8 else 2, **layout)
        return figure, [panels], new
    titles = [f"{name} of record {record}" for record in records for name in names]
    beside = len(records) if axes is None and len(records) <= 3 else 1
    width = {"width": plotting.WIDTH * (1.0 if beside == 1 else 0.7 * beside)}
    # Times of different records are unrelated.
    share = False if beside == 1 else "col"
    figure, panels, new = plotting.read_axes(axes, titles, columns=beside, share=share, **width, **layout)
    if beside == 1:
        return figure, [panels[k * count : (k + 1) * count] for k in range(len(records))], new
    return figure, [panels[k::beside] for k in range(beside)], new


def parse_true_curves(
    fit: Fit, truth: Any, times: Array, order: IndexArray | None, names: Sequence[str]
) -> list[Array | None]:
    """Return the true values of each observable that is shown, shape (n,); None if unknown.

    Shapes: times (n,), order (n,).
    """
    if truth is None:
        return [None] * len(names)
    if isinstance(truth, Mapping):
        unknown = [name for name in truth if name not in names]
        if unknown:
            raise LodekitError(f"truth names {unknown[0]!r}, which is not shown; expected one of: {', '.join(names)}")
        return [parse_true_curves(fit, truth.get(name), times, order, [name])[0] for name in names]
    if not callable(truth) and order is None:
        raise LodekitError("expected times t with an array of true values; pass t, or truth as a function of times")
    try:
        values = np.asarray(truth(times) if callable(truth) else truth, dtype=float)
    except (TypeError, ValueError) as problem:
        raise LodekitError(f"expected truth as numbers, or as a function of an array of times: {problem}") from None
    values = values[:, None] if values.ndim == 1 else values
    channels = fit.setup.channels
    if values.ndim != 2 or len(values) != len(times) or values.shape[1] not in (len(names), len(channels)):
        raise LodekitError(f"expected true values of shape ({len(times)}, {len(names)}), got {values.shape}")
    if order is not None and not callable(truth):
        values = values[order]
    columns = dict(zip(names if values.shape[1] == len(names) else channels, values.T, strict=True))
    return [columns.get(name) for name in names]


def parse_parameter_pair(fit: Fit, first: str | None, second: str | None) -> list[str]:
    """Return the names of two different estimated parameters."""
    learned = [fit.layout.names[number] for number in fit.layout.free_parameters]
    given = [name for name in (first, second) if name is not None]
    check_parameters(fit.estimates, given)
    pair = list(dict.fromkeys([*given, *[name for name in learned if name not in given]]))[:2]
    if len(pair) < 2 or len(set(given)) < len(given) or not set(pair) <= set(learned):
        known = ", ".join(learned) or "none"
        raise LodekitError(f"expected two different learned parameters, got {first!r} and {second!r}; learned: {known}")
    return pair


def plot(
    fit: Fit,
    t: ArrayLike | None = None,
    *,
    observable: str | Sequence[str] | None = None,
    truth: Any = None,
    samples: int = 0,
    random_state: int | None = None,
    units: Mapping[str, str] | None = None,
    axes: Any = None,
    record: str | int | None = None,
) -> Any:
    """Plot mean, 95 % band and data, one panel for each observable and record; extrapolation is shaded.

    The mean and the data fill the panels; unusually wide parts of bands may be cut off.

    Parameters
    ----------
    t : array-like, shape (n,), optional
        Times of the curves, at least two; by default the window and 10 % more after it, and also before it if there are
        no known inputs or disturbances.
    observable : str or sequence of str, optional
        Observables to show; by default all channels and other measured observables.
    truth : function of times, array (n, channels) at the times `t`, or dict of these by name, optional
        True values to show.
    samples : int
        Number of posterior samples to show.
    random_state : int, optional
        Seed of the samples.
    units : dict of str to str, optional
        Units of observables, and of the time ``"t"``; by default those of `label`.
    axes : matplotlib axes, one for each panel, optional
        Axes to draw on; a new figure by default.
    record : str or int, optional
        The record, as in `predict`; by default all, at most twelve.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> len(gp.plot(units={"t": "s", "x": "m"}).axes)
    2
    """
    names, known, parts = parse_observable_names(fit, observable), parse_units(fit, units), select_records(fit, record)
    if isinstance(samples, bool) or samples != 0:
        check_count("samples", samples)
    figure, grid, new = make_record_panels(axes, names, [part.record_names[0] for part in parts])
    for part, own in zip(parts, grid, strict=True):
        times, order = parse_time_grid(part, t)
        truths = parse_true_curves(part, truth, times, None if t is None else order, names)
        drawn = np.asarray(sample(part, times, samples, random_state, names)) if samples else None
        mean, std = predict(part, times, names, return_std=True)
        if len(parts) > 1:
            own[0].set_title(f"record {part.record_names[0]}", fontsize="medium")
        for j, (name, panel) in enumerate(zip(names, own, strict=True)):
            curve, functions = (times, mean[:, j], std[:, j]), None if drawn is None else drawn[:, :, j]
            unit = observable_unit(known, name)
            _draw_observable(part, panel, name, unit, curve, truths[j], functions, is_chosen=t is not None)
    panels = [panel for own in grid for panel in own]
    plotting.label_time(panels, known.get("t", ""), fit.clock.axis_zone)
    plotting.add_legend(figure, panels, outside=new)
    if new:
        figure.align_ylabels(panels)
    return figure


def _draw_observable(
    fit: Fit,
    panel: Any,
    name: str,
    unit: str,
    curve: tuple[Array, Array, Array],
    truth: Array | None,
    samples: Array | None,
    *,
    is_chosen: bool,
) -> None:
    """Draw one observable; the part inside the window, or the mean at chosen times, fills the panel."""
    times, mean, std = curve
    same, (first, last) = fit.setup.observable_compiler.are_equivalent, fit.measurements.window
    # Averages of the measurements if only sums were kept.
    every = fit.measurements.plotted_series
    series = next((each for each in every if each.observable == name or same(each.observable, name)), None)
    signal = fit.measurements.inputs.get(name)
    if signal is not None and samples is None and truth is None:
        # Jumps are drawn as vertical lines, independently of the times of the curves.
        corners = signal.times[(signal.times > times.min()) & (signal.times < times.max())]
        times = np.unique(np.concatenate([times, corners, np.nextafter(corners, -np.inf)]))
        mean, std = signal.at(times), np.zeros(len(times))
    clock, outside = fit.clock, "extrapolation"
    if fit.calibrated_free_runs and times[-1] > last:
        outside += " (band with forecast errors)"
    plotting.draw_channel(
        panel,
        clock.axis_times(times),
        mean,
        std if signal is None else None,
        data=None if series is None else (clock.axis_times(series.times), series.values),
        truth=truth,
        samples=samples,
        window=tuple(clock.axis_times([first, last])),
        label=name,
        unit=unit,
        note="" if series else "(not measured)" if signal is None else "(known)",
        data_label="data" if fit.measurements.sufficient_statistics is None else "averages of the data",
        outside_label=outside,
        is_known=signal is not None,
    )
    shown = [mean] * is_chosen + ([] if truth is None else [truth])
    shown += [] if series is None else [series.values[(series.times >= times[0]) & (series.times <= times[-1])]]
    limits = typical_limits(times, mean, 2 * std, (first, last), *shown, has_process=fit.prior.has_process)
    plotting.frame(panel, [np.array(limits)])
    remark = describe_cut_band(NORMAL_QUANTILE_95 * std, limits)
    panel.set_title(remark, loc="right", fontsize=plotting.SMALL_FONT_SIZE, color=plotting.FAINT_GRAY)


def plot_residual(
    fit: Fit,
    t: ArrayLike | None = None,
    *,
    units: Mapping[str, str] | None = None,
    axes: Any = None,
    record: str | int | None = None,
) -> Any:
    """Plot the residual of each equation for the posterior mean, relative to the size of its terms, over time.

    The curve of `predict` is differentiated by Chebyshev polynomials and substituted into the equations. The extra line
    is the difference of two such computations: residuals below it cannot be resolved.

    Parameters
    ----------
    t, units, axes, record
        As in `plot`; one panel for each equation.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> len(gp.plot_residual().axes)
    1
    """
    known = parse_units(fit, units)
    equations = pointwise_equations(fit)
    if not equations:
        raise LodekitError(f"no equation can be drawn: {describe_solution_sense(fit, equations)}")
    names = [f"equation {i}" for i in range(1, len(equations) + 1)]
    parts = select_records(fit, record)
    figure, grid, new = make_record_panels(axes, names, [part.record_names[0] for part in parts], height_each=1.2)
    for part, panels in zip(parts, grid, strict=True):
        measured = compute_mean_residuals(part, parse_time_grid(part, t)[0])
        for j, panel in enumerate(panels):
            where = f"{part.record_names[0]}, " if len(parts) > 1 else ""
            plotting.draw_residual(
                panel,
                fit.clock.axis_times(measured.times),
                measured.residuals[:, j],
                visible=float(measured.max_errors[j]),
                window=tuple(fit.clock.axis_times(part.measurements.window)),
                label=f"{where}{names[j]}:  {equations[j].text}",
            )
    panels = [panel for column in grid for panel in column]
    plotting.label_time(panels, known.get("t", ""), fit.clock.axis_zone)
    plotting.add_legend(figure, panels, outside=new)
    return figure


def plot_modes(fit: Fit, *, units: Mapping[str, str] | None = None, axes: Any = None) -> Any:
    """Plot the exponents of the modes in the complex plane, at the estimates.

    Parameters
    ----------
    units, axes
        As in `plot`; a single panel.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> len(gp.plot_modes().axes)
    1
    """
    known = parse_units(fit, units)
    figure, panels, _ = plotting.read_axes(axes, ["the modes"], width=4.0, height_each=2.8, share=False)
    values = {name: float(value) for name, value in zip(fit.layout.names, fit.hyperparameters.theta, strict=True)}
    found: dict[complex, int] = {}
    system = fit.setup.reduced_system
    try:
        modes = system.modes
    except AlgebraError:
        modes = system.substitute(values).modes
    for mode in modes:
        for root in mode.roots_at({n: v for n, v in values.items() if n in mode.ring.parameters}):
            # Roots that differ by rounding errors only are the same.
            near = next((other for other in found if abs(other - root) <= 1e-9 * abs(root)), root)
            found[near] = found.get(near, 0) + mode.multiplicity
    if found:
        plotting.draw_modes(panels[0], list(found), list(found.values()), time_unit=known.get("t", ""))
    else:
        plotting.draw_note(panels[0], "no modes: the system is controllable")
    return figure


def plot_spectrum(
    fit: Fit, *, observable: str | Sequence[str] | None = None, units: Mapping[str, str] | None = None, axes: Any = None
) -> Any:
    """Plot the prior spectral density of each observable, at the estimates.

    It is one-sided, over cycles per unit of time; its area is the prior variance due to the free functions.

    Parameters
    ----------
    observable, units, axes
        As in `plot`; all channels by default.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> len(gp.plot_spectrum(observable="x").axes)
    1
    """
    names = fit.setup.channels if observable is None else parse_observable_names(fit, observable)
    known = parse_units(fit, units)
    frequencies, densities = prior_spectral_density(fit.prior, fit.hyperparameters, fit.observables(names))
    if not densities.any():
        instead = "try plot_modes, or plot_bode with known inputs"
        raise LodekitError(f"expected observables driven by a free function, got {', '.join(names)}; {instead}")
    figure, panels, new = plotting.read_axes(axes, names, columns=1 if len(names) <= 8 else 2)
    for name, panel, density in zip(names, panels, densities, strict=True):
        if not density.any():
            plotting.draw_note(panel, f"no spectrum: no free function drives {name}")
            continue
        unit = f"{known[name]}\u00b2 {known['t']}" if {name, "t"} <= set(known) else ""
        plotting.draw_spectrum(panel, frequencies, density, label=name, unit=unit)
    plotting.label_bottom(panels, f"frequency (cycles per {known.get('t', 'unit of time')})")
    if new:
        figure.align_ylabels(panels)
    return figure


def plot_residuals(
    fit: Fit, *, units: Mapping[str, str] | None = None, axes: Any = None, record: str | int | None = None
) -> Any:
    """Plot the residuals of each observable, their autocorrelation and cumulative periodogram; one row per record.

    With free functions, innovations, as in `diagnose`.

    Parameters
    ----------
    units : dict of str to str, optional
        As in `plot`.
    axes : sequence of matplotlib axes, optional
        Three for each observable; a new figure by default.
    record : str or int, optional
        As in `plot`.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.linspace(0, 10, 40)
    >>> system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    >>> gp = lk.LODEGP(system, random_state=0).fit(t, np.exp(-0.5 * t) + 0.01 * np.sin(9 * t))
    >>> len(gp.plot_residuals().axes)
    3
    """
    if fit.measurements.has_only_statistics:
        raise LodekitError("the measurements were summed and not kept, so there are no residuals to draw")
    known = parse_units(fit, units)
    time = known.get("t")
    rate = plotting.escape_mathtext(f"frequency (cycles per {time})" if time else "cycles per unit of time")
    parts = select_records(fit, record)
    rows = [
        (part, item, item.observable + (f" of record {part.record_names[0]}" if len(parts) > 1 else ""))
        for part in parts
        for item in part.measurements.series
    ]
    kinds = [f"{what} of {title}" for *_, title in rows for what in ("residuals", "correlations", "periodogram")]
    figure, panels, new = plotting.read_axes(axes, kinds, columns=3, height_each=1.7, share=False)
    for number, (part, item, title) in enumerate(rows):
        own, found = panels[3 * number : 3 * number + 3], part.fitted_record.residuals(item)
        check = next((each for each in part.diagnosis.checks if each.name == item.observable), None)
        last = number == len(rows) - 1
        word = "innovation" if found.are_innovations else "residual"
        times, label = fit.clock.axis_times(found.times), plotting.name_with_unit(f"{word} of {title} / std")
        plotting.draw_scatter(own[0], times, found.values, label=label.replace(" of record", "\nof record"))
        plotting.label_time(own[:1], known.get("t", ""), fit.clock.axis_zone)
        own[0].set_xlabel(own[0].get_xlabel() if last else "")
        if check is None or check.whiteness is None:
            for panel in own[1:]:
                plotting.draw_note(panel, "too few to tell")
            continue
        step = check.whiteness.step
        steps = plotting.name_with_unit("lag", f"steps of {format_quantity(step, known.get('t', ''), 3)}")
        plotting.draw_correlations(own[1], check.whiteness.lags, len(found.values), label=steps if last else "")
        own[1].set_title("autocorrelation", fontsize=9.0)
        frequencies, share = cumulative_periodogram(found.values)
        label = rate if last else ""
        plotting.draw_cumulated(own[2], frequencies / step, share, cumulative_periodogram_band(len(share)), label=label)
        own[2].set_title("cumulative periodogram", fontsize=9.0)
    plotting.add_legend(figure, panels, outside=new)
    return figure


def plot_bode(
    fit: Fit,
    output: str | Sequence[str] | None = None,
    input: str | None = None,
    *,
    frequencies: ArrayLike | None = None,
    inputs: Mapping[str, str] | Iterable[str] | None = None,
    units: Mapping[str, str] | None = None,
    axes: Any = None,
) -> Any:
    """Draw Bode plots of the responses of channels to inputs, with 95 % bands due to parameter uncertainty.

    Periods longer than the record, or shorter than two sampling intervals, are shaded.

    Parameters
    ----------
    output : str or sequence of str, optional
        Output channels; by default the measured ones.
    input : str, optional
        The input; all of them by default.
    frequencies : array-like, shape (n,), optional
        In radians per unit of time, above zero; around the poles by default.
    inputs : sequence of str, or dict of str to str, optional
        All inputs, as in `state_space`; those of the fit by default.
    units : dict of str to str, optional
        As in `plot`.
    axes : sequence of matplotlib axes, optional
        Two for each channel and input, as in `plot_step`; a new figure by default.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.linspace(0, 10, 60)
    >>> system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    >>> y = 3 * (1 - np.exp(-t / 2)) + 0.01 * np.sin(40 * t)
    >>> gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": np.ones(60)})
    >>> len(gp.plot_bode().axes)
    2
    """
    space, pairs = _parse_responses(fit, output, input, inputs)
    known = parse_units(fit, units)
    omega = frequency_grid(fit, space)
    if frequencies is not None:
        omega = np.sort(as_float_array("frequencies", frequencies), axis=None)
    if not len(omega) > 1 or not omega[0] > 0 or not np.isfinite(omega[-1]):
        raise LodekitError("expected two frequencies at least, all above zero and finite")
    names = [f"{part} of {name} / {entry}" for name, entry in pairs for part in ("magnitude", "phase")]
    figure, panels, new = plotting.read_axes(axes, names, columns=2, height_each=2.0, share=False)
    for number, (name, entry) in enumerate(pairs):
        magnitude, phase = panels[2 * number : 2 * number + 2]
        response, slopes = space.frequency_response(name, entry, omega)
        if not np.abs(response).max() > 0:
            for panel in (magnitude, phase):
                plotting.draw_note(panel, f"{name} does not respond to {entry}")
            continue
        errors = delta_method_std(slopes / response, space.covariance)
        plotting.draw_frequency_response(magnitude, phase, omega, response, errors, seen=data_frequency_band(fit))
        unit = f"{known[name]}/{known[entry]}" if {name, entry} <= set(known) else ""
        magnitude.set_ylabel(plotting.name_with_unit(f"|{name} / {entry}|", unit))
        phase.set_ylabel("phase (\u00b0)")
    unit = f"rad/{known['t']}" if "t" in known else "rad per unit of time"
    plotting.label_bottom(panels[-2:], plotting.name_with_unit("frequency", unit))
    plotting.add_legend(figure, panels, outside=new)
    return figure


def plot_step(
    fit: Fit,
    output: str | Sequence[str] | None = None,
    input: str | None = None,
    *,
    t: ArrayLike | None = None,
    inputs: Mapping[str, str] | Iterable[str] | None = None,
    units: Mapping[str, str] | None = None,
    axes: Any = None,
) -> Any:
    """Plot the response of channels to a unit step of each input, with 95 % bands due to parameter uncertainty.

    Parameters
    ----------
    output, inputs, units
        As in `plot_bode`.
    input : str, optional
        The input; all of them by default.
    t : array-like, shape (n,), optional
        Times after the step; by default six of the slowest time constants, or the length of the record, and delays.
    axes : sequence of matplotlib axes, optional
        One for each channel and input, the inputs of the first channel first; a new figure by default.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.linspace(0, 10, 60)
    >>> system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    >>> y = 3 * (1 - np.exp(-t / 2)) + 0.01 * np.sin(40 * t)
    >>> gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": np.ones(60)})
    >>> len(gp.plot_step().axes)
    1
    """
    space, pairs = _parse_responses(fit, output, input, inputs)
    known = parse_units(fit, units)
    times = step_grid(fit, space) if t is None else np.sort(as_times(t))
    layout = {"columns": min(len({each for _, each in pairs}), 3), "height_each": 2.0}
    figure, panels, new = plotting.read_axes(axes, [f"{name} to {each}" for name, each in pairs], **layout)
    for (name, each), panel in zip(pairs, panels, strict=True):
        values, errors = space.step_response(name, each, times)
        gain = space.gain(name, each)
        leads = bool(np.isfinite(gain.value)) and all(complex(pole.value).real < 0 for pole in space.poles)
        label = plotting.name_with_unit(name, known.get(name, ""))
        final = float(np.real(gain.value)) if leads else None
        plotting.draw_step(panel, times, values, errors, gain=final, label=label)
        panel.set_title(plotting.name_with_unit(f"{each} from 0 to 1 {known.get(each, '')}".rstrip()), fontsize=9.0)
    plotting.label_bottom(panels, plotting.name_with_unit("time since the step", known.get("t", "")))
    plotting.add_legend(figure, panels, outside=new)
    return figure


def _parse_responses(
    fit: Fit, output: str | Sequence[str] | None, input: str | None, inputs: Mapping[str, str] | Iterable[str] | None
) -> tuple[FittedStateSpace, list[tuple[str, str]]]:
    """Return the state space, and the pairs of outputs and inputs to draw."""
    if inputs is None and not fit.measurements.inputs and input is not None:
        inputs = [input]
    space = state_space(fit, inputs)
    if not space.exact.channels:
        raise LodekitError("expected an input to which channels respond, got none; specify the input channels")
    measured = [name for name in space.outputs if name in fit.measurements.names] or list(space.outputs)
    outputs = measured if output is None else parse_texts(output, "channels that respond")
    return space, list(product(outputs, dict.fromkeys(space.exact.channels) if input is None else [input]))


#: Descriptions in legends of how other parameters are treated.
_OTHER_PARAMETERS = {
    "following": "other parameters adjusted to first order",
    "fixed": "other parameters fixed at their estimates",
    "relearned": "other parameters re-estimated",
}
#: Where the interval of a parameter comes from, by the reason of its identifiability result.
_INTERVAL_SOURCES = {
    "normal": "interval from the normal approximation",
    "profile": "interval from the profile likelihood",
    "rival": "interval contains other optima",
    "bound": "interval from the profiles of other parameters",
}
#: Half-width of figures of the evidence, in standard errors.
_WIDTH_STD = 3.3


def plot_parameters(
    fit: Fit,
    names: str | Sequence[str] | None = None,
    *,
    truth: Mapping[str, float] | None = None,
    others: str | None = None,
    points: int = 31,
    units: Mapping[str, str] | None = None,
    axes: Any = None,
) -> Any:
    """Plot each parameter: estimate, 95 % interval, and the log evidence around it.

    The interval of `parameters_` ends where the normal approximation (dotted), or a profile likelihood if that is too
    inaccurate, falls to the drawn level; this is lower if correlated residuals widen intervals. The title names the
    source of the interval. Curves with the others fixed, or following to first order, are narrower.

    Parameters
    ----------
    names : str or sequence of str, optional
        Parameters of the system; all that were estimated by default.
    truth : dict of str to float, optional
        True values of parameters, if known.
    others : {"relearned", "following", "fixed"}, optional
        All other parameters and hyperparameters are estimated again at every point (the profile likelihood); follow
        their optimum to first order (a lower bound); or keep their estimates. By default they follow if the interval is
        a normal approximation, and are estimated again otherwise. A profile from which an interval was computed is
        drawn instead of the first two.
    points : int
        Points of each curve, at least five; more where it is steep.
    units, axes
        As in `plot`; units by the names of parameters, one panel for each of these.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x'' + c*x' + k*x = 0", parameters={n: lk.Parameter(positive=True) for n in "ck"})
    >>> t = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    >>> gp = lk.LODEGP(system, random_state=0).fit(t, [1.0, 0.5, -0.3, -0.7, -0.5, 0.1, 0.5])
    >>> len(gp.plot_parameters("k", others="following", points=5).axes)
    1
    """
    known, true = parse_units(fit, units), parse_parameter_values(fit.estimates, truth)
    # Only if all parameters are fixed do these have panels.
    shown = [name for name in fit.estimates if fit.layout.transform_of(name) is not None] or list(fit.estimates)
    if names is not None:
        shown = parse_texts(names, "parameters")
        check_parameters(fit.estimates, shown)
    _check_search("relearned" if others is None else others, points)
    columns, titles = 2 if len(shown) > 3 else 1, shown or ["the system"]
    figure, panels, new = plotting.read_axes(axes, titles, columns=columns, height_each=1.75, share=False)
    if not shown:
        plotting.draw_note(panels[0], "the system has no parameters")
    with track_progress("computing profile likelihoods", len(shown)) as advance:
        for name, panel in zip(shown, panels, strict=False):
            if fit.layout.transform_of(name) is None:
                plotting.draw_note(panel, f"{name} = {fit.estimates[name].value:.5g}, fixed")
            else:
                _draw_profile(fit, panel, name, others or "", points, truth=true.get(name), unit=known.get(name, ""))
            advance()
    plotting.add_legend(figure, panels, outside=new, place="lower")
    return figure


def _draw_profile(fit: Fit, panel: Any, name: str, others: str, points: int, *, truth: float | None, unit: str) -> None:
    """Draw the log evidence around one estimate, and the level at which its interval ends; `others` may be empty."""
    found, spread = fit.estimates[name], _search_std(fit, name)
    if not spread > 0.0:
        plotting.draw_note(panel, f"{name} = {found.value:.5g}; no curve, because it has no standard error")
        return
    # Standard errors include the degrees of freedom used up by estimation, which the evidence does not.
    reach, left = fit.interval_quantiles(0.95)[name], math.sqrt(fit.residual_dof_fraction)
    result, widening = fit.identifiability.get(name), fit.diagnosis.widening.get(name, 1.0)
    reason, approximation = "normal" if result is None else result.reason, None
    # Every point of a profile is a search.
    others = others or ("following" if reason == "normal" and found.identified else "relearned")
    if result and result.ladder and reason == "profile" and found.identified and others != "fixed":
        values, curve, others = *fit.profile_of_interval(name), "relearned"
    else:
        transform = fit.layout.transforms[fit.layout.names.index(name)]
        centre = float(fit.optimum.x[fit.layout.index_of(name)])
        ends = [end for end in found.interval if found.identified and transform.low < end < transform.high]
        width = max([_WIDTH_STD * spread, *(1.1 * abs(transform.inverse(end) - centre) for end in ends)])
        with fit.setup.limit_threads():
            surface = _objective_surface(fit, [name], others)
            optima = [each.point for each in fit.diagnosis.alternatives]
            if others == "relearned":
                known, heights = trace_highest_profile(surface, fit.layout.index_of(name), width, points, optima)
            else:
                known, heights = surface.profile_curve(width, points)
        # The approximation continues to the ends of a widened interval.
        grid = np.linspace(-width, width, 81)
        moves = np.union1d(known, grid[(grid < 1.001 * known[0]) | (grid > 1.001 * known[-1])])
        curve = np.interp(moves, known, heights, left=np.nan, right=np.nan)
        values = _parameter_values(fit, name, moves)
        if found.identified and reason != "profile":
            # Intervals of unbounded parameters are linear; the search scale is not.
            steps = (values - found.value) / transform.derivative(centre) if transform.is_unbounded else moves
            approximation = -0.5 * (steps / (left * spread)) ** 2
    if found.identified:
        # Far from an interval, values on the search scale may grow exponentially.
        shown = np.abs(values - np.mean(found.interval)) < 1.1 * np.ptp(found.interval)
        values, curve = values[shown], curve[shown]
        approximation = None if approximation is None else approximation[shown]
    widened = f", widened {widening:.2g} times: correlated residuals" * (widening > 1.05)
    note = _INTERVAL_SOURCES.get(reason, "") + widened if found.identified else found.note
    plotting.draw_parameter(
        panel,
        values,
        curve,
        estimate=found.value,
        interval=found.interval if found.identified else None,
        level=-0.5 * (reach / left if found.identified or (result and result.ladder) else NORMAL_QUANTILE_95) ** 2,
        approximation=approximation,
        truth=truth,
        curve_label=_OTHER_PARAMETERS[others],
        name=name,
        unit=unit,
        note=textwrap.fill(note, 40, max_lines=2, placeholder=" ..."),
        level_label="95 % level (widened)" if found.identified and widened else "95 % level",
    )
    panel.set_ylabel("log evidence,\nless its maximum")


@track_progress("computing the log evidence over two parameters")
def plot_evidence(
    fit: Fit,
    first: str | None = None,
    second: str | None = None,
    *,
    truth: Mapping[str, float] | None = None,
    others: str = "following",
    points: int = 25,
    units: Mapping[str, str] | None = None,
    axes: Any = None,
) -> Any:
    """Plot the log evidence over two parameters, with 50 % and 95 % regions around the estimate.

    Parameters
    ----------
    first, second : str, optional
        Two estimated parameters; by default the first two.
    truth, others, units, axes
        As in `plot_parameters`; a single panel.
    points : int
        Points along each side of the grid, at least five.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x'' + c*x' + k*x = 0", parameters={n: lk.Parameter(positive=True) for n in "ck"})
    >>> t = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    >>> gp = lk.LODEGP(system, random_state=0).fit(t, [1.0, 0.5, -0.3, -0.7, -0.5, 0.1, 0.5])
    >>> len(gp.plot_evidence("c", "k", points=5).axes)
    2
    """
    known, true = parse_units(fit, units), parse_parameter_values(fit.estimates, truth)
    pair = parse_parameter_pair(fit, first, second)
    _check_search(others, points)
    figure, panels, new = plotting.read_axes(axes, [" and ".join(pair)], width=4.6, height_each=3.1, share=False)
    if not all(_search_std(fit, name) > 0.0 for name in pair):
        plotting.draw_note(panels[0], "no evidence to draw, because a parameter has no standard error")
        return figure
    unknown = [name for name in pair if not fit.estimates[name].identified]
    if unknown and others != "relearned":
        raise LodekitError(
            f"the data do not identify {unknown[0]}, so the evidence around it needs re-estimated parameters; try "
            f'others="relearned", which takes minutes, other parameters, or plot_parameters("{unknown[0]}")'
        )
    moves = _sheared_grid(fit, pair, points)
    with fit.setup.limit_threads():
        heights = _objective_surface(fit, pair, others).evaluate_moves(moves)
    first_values, second_values = (_parameter_values(fit, n, column) for n, column in zip(pair, moves.T, strict=True))
    plotting.draw_evidence(
        panels[0],
        first_values.reshape(points, points),
        second_values.reshape(points, points),
        heights.reshape(points, points),
        estimate=[fit.estimates[name].value for name in pair],
        truth=[true[name] for name in pair] if set(pair) <= set(true) else None,
        labels=[plotting.name_with_unit(name, known.get(name, "")) for name in pair],
        bar_label="log evidence, less its maximum",
    )
    notes = [f"{name}: {fit.estimates[name].note}" for name in pair if fit.estimates[name].note]
    panels[0].set_title("\n".join([_OTHER_PARAMETERS[others], *notes]), fontsize="small", loc="left")
    plotting.add_legend(figure, panels, outside=new)
    return figure


def _sheared_grid(fit: Fit, pair: Sequence[str], points: int) -> Array:
    """Return offsets of two parameters on the search scale, shape (points^2, 2).

    A grid sheared by their correlation resolves narrow ridges.
    """
    u, v = (_WIDTH_STD * _search_std(fit, name) * np.linspace(-1, 1, points) for name in pair)
    lean, rest = 0.0, 1.0
    if all(fit.estimates[name].identified for name in pair):
        places = [fit.layout.index_of(name) for name in pair]
        (a, b), (_, c) = fit.covariance[np.ix_(places, places)]
        lean, rest = b / a, math.sqrt(max(1.0 - b * b / (a * c), 1e-8))
    return np.array([(x, lean * x + rest * y) for x, y in product(u, v)])


def _check_search(others: str, points: int) -> None:
    if not isinstance(others, str) or others not in _OTHER_PARAMETERS:
        raise LodekitError(f"expected others as one of {', '.join(map(repr, _OTHER_PARAMETERS))}, got {others!r}")
    check_count("points", points)
    if points < 5:
        raise LodekitError(f"expected at least 5 points, got {points}")


def _search_std(fit: Fit, name: str) -> float:
    """Return the standard error of a parameter on the search scale; one if it is not identified."""
    if not fit.estimates[name].identified:
        return 1.0
    position = fit.layout.index_of(name)
    return math.sqrt(fit.covariance[position, position])


def _parameter_values(fit: Fit, name: str, offsets: Array) -> Array:
    """Return the values of a parameter at `offsets` from the estimate on the search scale."""
    transform = fit.layout.transforms[fit.layout.names.index(name)]
    centre = float(fit.optimum.x[fit.layout.index_of(name)])
    return np.array([transform.forward(centre + float(step)) for step in offsets])


def _objective_surface(fit: Fit, names: Sequence[str], others: str) -> ObjectiveSurface:
    fit.require_full_record("evidences beside the optimum")
    places = [fit.layout.index_of(name) for name in names]
    return ObjectiveSurface(fit.setup.objective, fit.optimum, fit.observed_information, places, others)
