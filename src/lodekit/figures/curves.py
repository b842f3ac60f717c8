"""Figures over time, of modes and of spectra: values of a fit, drawn by `lodekit.plotting`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit import plotting
from lodekit.answers import predict, sample
from lodekit.arguments import check_count
from lodekit.certificate.certify import measure_mean
from lodekit.certificate.sense import equations_with_values, sense_of
from lodekit.errors import LodekitError
from lodekit.figures.requests import read_grid, read_names, read_panels, read_parts, read_truths, read_units, series_of
from lodekit.fitted import Fit
from lodekit.intervals import unit_of_observable
from lodekit.prior.densities import prior_density

__all__ = ["plot", "plot_modes", "plot_residual", "plot_spectrum"]

Array = NDArray[np.float64]


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
    """Draw mean, 95 % band and data, one panel for each observable of each record; shaded is what is extrapolated.

    Parameters
    ----------
    t : array-like, shape (n,), optional
        Times to draw over, two different ones at least; by default the window, and a tenth more on either side.
    observable : str or sequence of str, optional
        What to show; by default all channels, and whatever else was measured.
    truth : function of times, array (n, channels) at the times `t`, or dict of these by name, optional
        True values to draw beside the mean.
    samples : int
        How many functions drawn from the posterior to show.
    random_state : int, optional
        Seed of the samples.
    units : dict of str to str, optional
        Units for the labels, by the names of observables; ``"t"`` is that of time. Those of `label` by default.
    axes : matplotlib axes, one for each panel, optional
        Where to draw; on a new figure by default.
    record : str or int, optional
        Which record, as in `predict`; all of them by default, twelve at most.

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
    names, known, parts = read_names(fit, observable), read_units(fit, units), read_parts(fit, record)
    if isinstance(samples, bool) or samples != 0:
        check_count("samples", samples)
    figure, grid, new = read_panels(axes, names, parts)
    for part, own in zip(parts, grid, strict=True):
        times, order = read_grid(part, t)
        truths = read_truths(part, truth, times, None if t is None else order, names)
        drawn = sample(part, times, samples, random_state, names) if samples else None
        title = part.records[0] if len(parts) > 1 else ""
        _draw_record(part, own, names, known, times, truths, drawn, framed=t is None, title=title)
    panels = [panel for own in grid for panel in own]
    plotting.label_bottom(panels, plotting.name_with_unit("t", known.get("t", "")))
    plotting.add_legend(figure, panels, outside=new)
    if new:
        figure.align_ylabels(panels)
    return figure


def _draw_record(
    fit: Fit,
    panels: Sequence[Any],
    names: Sequence[str],
    units: Mapping[str, str],
    times: Array,
    truths: Sequence[Array | None],
    samples: Array | None,
    *,
    framed: bool,
    title: str,
) -> None:
    """Draw all observables of one record, below its name where there are several."""
    if title:
        panels[0].set_title(title, fontsize="medium")
    mean, std = predict(fit, times, names, return_std=True)
    for j, (name, panel) in enumerate(zip(names, panels, strict=True)):
        own = None if samples is None else samples[:, :, j]
        unit = unit_of_observable(units, name)
        _draw(fit, panel, name, unit, (times, mean[:, j], std[:, j]), truths[j], own, framed=framed)


def _draw(
    fit: Fit,
    panel: Any,
    name: str,
    unit: str,
    curve: tuple[Array, Array, Array],
    truth: Array | None,
    samples: Array | None,
    *,
    framed: bool,
) -> None:
    """Draw one observable; where it is `framed`, what lies inside the window fills the panel."""
    times, mean, std = curve
    series, (first, last) = series_of(fit, name), fit.measurements.window
    signal = fit.measurements.inputs.get(name)
    if signal is not None and samples is None and truth is None:
        # A jump is upright, whatever the times of the curves are.
        corners = signal.times[(signal.times > times.min()) & (signal.times < times.max())]
        times = np.unique(np.concatenate([times, corners, np.nextafter(corners, -np.inf)]))
        mean, std = signal.at(times), np.zeros(len(times))
    plotting.draw_channel(
        panel,
        times,
        mean,
        std if signal is None else None,
        data=None if series is None else (series.times, series.values),
        truth=truth,
        samples=samples,
        window=(first, last),
        label=name,
        unit=unit,
        note="" if series else "(not measured)" if signal is None else "(known)",
        data_label="data" if fit.measurements.sums is None else "averages of the data",
        is_known=signal is not None,
    )
    if framed:
        inside = (times >= first) & (times <= last)
        reach = 2 * std[inside]
        shown = [mean[inside] - reach, mean[inside] + reach, *([] if series is None else [series.values])]
        shown += [] if truth is None else [np.asarray(truth)]
        shown += [] if samples is None else [samples[:, inside].ravel()]
        plotting.frame(panel, shown)


def plot_residual(
    fit: Fit,
    t: ArrayLike | None = None,
    *,
    units: Mapping[str, str] | None = None,
    axes: Any = None,
    record: str | int | None = None,
) -> Any:
    """Draw what the posterior mean leaves of each equation over time, relative to the size of its terms.

    The curve that `predict` returns is differentiated by Chebyshev polynomials and put into the equations as they are
    written; two ways to do so disagree by the line that is drawn beside, so nothing below it can be seen.

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
    known = read_units(fit, units)
    equations = [equation.text for equation in equations_with_values(fit)]
    if not equations:
        raise LodekitError(f"no equation can be drawn: {sense_of(fit)}")
    names = [f"equation {i}" for i in range(1, len(equations) + 1)]
    parts = read_parts(fit, record)
    figure, grid, new = read_panels(axes, names, parts, height_each=1.2)
    for part, panels in zip(parts, grid, strict=True):
        measured = measure_mean(part, read_grid(part, t)[0])
        for j, panel in enumerate(panels):
            where = f"{part.records[0]}, " if len(parts) > 1 else ""
            plotting.draw_residual(
                panel,
                measured.times,
                measured.left[:, j],
                visible=float(measured.uncertainties[j]),
                window=part.measurements.window,
                label=f"{where}{names[j]}:  {equations[j]}",
            )
    panels = [panel for column in grid for panel in column]
    plotting.label_bottom(panels, plotting.name_with_unit("t", known.get("t", "")))
    plotting.add_legend(figure, panels, outside=new)
    return figure


def plot_modes(fit: Fit, *, units: Mapping[str, str] | None = None, axes: Any = None) -> Any:
    """Draw the exponents of the modes in the complex plane, at the learned parameter values.

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
    known = read_units(fit, units)
    figure, panels, _ = plotting.read_axes(axes, ["the modes"], width=4.0, height_each=2.8, share=False)
    values = {name: float(value) for name, value in zip(fit.layout.names, fit.hyperparameters.theta, strict=True)}
    found: dict[complex, int] = {}
    for mode in fit.setup.reduced.modes:
        for root in mode.roots_at({n: v for n, v in values.items() if n in mode.ring.parameters}):
            # Roots that differ by rounding alone are one.
            near = next((other for other in found if abs(other - root) <= 1e-9 * (1e-9 + abs(root))), root)
            found[near] = found.get(near, 0) + mode.multiplicity
    if found:
        plotting.draw_modes(panels[0], list(found), list(found.values()), time_unit=known.get("t", ""))
    else:
        plotting.draw_note(panels[0], "no modes: the system is controllable")
    return figure


def plot_spectrum(
    fit: Fit,
    *,
    observable: str | Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
    axes: Any = None,
) -> Any:
    """Draw the spectral density that the prior gives each observable, at the learned hyperparameters.

    One-sided, over cycles per unit of time: the area below is the prior variance that the free functions bring.

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
    names = fit.setup.channels if observable is None else read_names(fit, observable)
    known = read_units(fit, units)
    frequencies, densities = prior_density(fit.prior, fit.hyperparameters, fit.observables(names))
    figure, panels, new = plotting.read_axes(axes, names, columns=1 if len(names) <= 8 else 2)
    for name, panel, density in zip(names, panels, densities, strict=True):
        if not density.any():
            plotting.draw_note(panel, f"no spectrum: no free function moves {name}")
            continue
        unit = f"{known[name]}\u00b2 {known['t']}" if {name, "t"} <= set(known) else ""
        plotting.draw_spectrum(panel, frequencies, density, label=name, unit=unit)
    time = known.get("t", "unit of time")
    if densities.any():
        plotting.label_bottom(panels, f"frequency (cycles per {time})")
    if new:
        figure.align_ylabels(panels)
    return figure
