"""The channels: measurements, mean and band, one panel each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.data.observations import Series
from lodekit.errors import LodekitError
from lodekit.learning.estimates import NORMAL_95
from lodekit.page import Page, plot_text
from lodekit.report.panels import Panel, band_trace, stack
from lodekit.report.subject import DATA_COLOUR, DRAWN, MEAN_COLOUR, TRUTH_COLOUR, Subject, plain, thin

__all__ = ["add_curves", "draw_curves"]

Array = NDArray[np.float64]
#: So many points are drawn small and pale.
_MANY = 300


def add_curves(page: Page, subject: Subject) -> None:
    """Add a plot of every observable: measurements, mean and 95 % band, and the truth where it is known.

    Parameters
    ----------
    page : Page
        What is added to.
    subject : Subject
        The fitted model, and what the user said about it.
    """
    page.section(subject.heading("The channels"))
    page.plot(*draw_curves(subject), f"{_describe(subject)} Drag to zoom, double-click to go back.")


def draw_curves(subject: Subject) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return traces and layout of a plot of every observable, as `add_curves` shows it.

    Parameters
    ----------
    subject : Subject
        The fitted model, and what the user said about it.
    """
    mean, std = subject.gp.predict(subject.times, subject.names, return_std=True)
    panels = [_panel(subject, name, mean[:, i], NORMAL_95 * std[:, i]) for i, name in enumerate(subject.names)]
    start, stop = subject.gp.fit_.measurements.window
    shaded = [pair for pair in ((subject.span[0], start), (stop, subject.span[1])) if pair[0] < pair[1]]
    return stack(panels, height=190, label=subject.time_label, span=subject.span, shaded=shaded)


def _describe(subject: Subject) -> str:
    """Return what a plot of the observables shows, in words."""
    caption = (
        "The mean of all curves that fit, and the band in which 95 % of them lie, without noise; all that was learned "
        "counts as uncertain."
    )
    if max(subject.gp.fit_.diagnosis.widening.values(), default=1.0) > 1:
        caption += " Correlated residuals widen the intervals of parameters, not this band, which is too narrow then."
    start, stop = subject.gp.fit_.measurements.window
    if subject.span[0] < start or subject.span[1] > stop:
        before = "before the first and " if subject.span[0] < start else ""
        caption += f" Grey: {before}after the last measurement"
        caption += ", inputs as they were then." if subject.gp.fit_.measurements.inputs else "."
    if subject.gp.fit_.measurements.sums is not None:
        caption += " Points are averages of neighbouring measurements, which were summed and not kept."
    elif any(len(item.times) > DRAWN for item in subject.series.values()):
        caption += f" Of each channel {DRAWN} points are shown, evenly chosen; the fit used all."
    return caption


def _panel(subject: Subject, name: str, mean: Array, band: Array) -> Panel:
    """Return the panel of one observable, the mean on top of everything; `band` is half its width."""
    signal = subject.gp.fit_.measurements.inputs.get(name)
    if signal is not None:
        return _input_panel(subject, name, signal)
    times, label, unit = plain(subject.times, 12), plot_text(name), plot_text(subject.unit(name))
    low, high = mean - band, mean + band
    traces = [band_trace(times, low, high)]
    if name in subject.series:
        traces.append(_points(subject, subject.series[name]))
    true = subject.truth.get(name)
    if callable(true):
        try:
            values = np.broadcast_to(np.asarray(true(subject.times), dtype=float), subject.times.shape)
        except (TypeError, ValueError) as problem:
            raise LodekitError(f"expected the truth of {name} as a function of an array of times: {problem}") from None
        traces.append(
            {
                "name": "truth",
                "x": times,
                "y": [value if math.isfinite(value) else None for value in plain(values)],
                "mode": "lines",
                "line": {"color": TRUTH_COLOUR, "width": 1.5, "dash": "dash"},
                "hovertemplate": f"{label} in truth: %{{y:.6~g}}{unit}{subject.hover_time}",
            }
        )
    traces.append(
        {
            "name": "mean",
            "x": times,
            "y": plain(mean),
            "customdata": plain(band, 3),
            "mode": "lines",
            "line": {"color": MEAN_COLOUR, "width": 2},
            "hovertemplate": f"{label} = %{{y:.6~g}}{unit}, 95 % within ± %{{customdata:.2~g}}{subject.hover_time}",
        }
    )
    title = f"<b>{label}</b>{' in' + unit if unit else ''}"
    title += "" if name in subject.series else ' <span style="color:#5a6b7b">– not measured</span>'
    return Panel(title, traces, _limits(subject, name, low, high))


def _input_panel(subject: Subject, name: str, signal: InputSignal) -> Panel:
    """Return the panel of a known input, from its samples, thinned where there are many."""
    label, unit = plot_text(name), plot_text(subject.unit(name))
    inside = signal.times[(signal.times > subject.span[0]) & (signal.times < subject.span[1])]
    times = np.concatenate([[subject.span[0]], inside[thin(len(inside))], [subject.span[1]]])
    values = signal.at(times)
    trace = {
        "name": "known",
        "x": plain(times, 12),
        "y": plain(values),
        "mode": "lines",
        "line": {"color": TRUTH_COLOUR, "width": 2, "shape": "hv" if signal.kind == "hold" else "linear"},
        "hovertemplate": f"{label} = %{{y:.6~g}}{unit}{subject.hover_time}",
    }
    kind = "held between samples" if signal.kind == "hold" else "straight between samples"
    title = f'<b>{label}</b>{" in" + unit if unit else ""} <span style="color:#5a6b7b">– known, {kind}</span>'
    return Panel(title, [trace], (float(values.min()), float(values.max())))


def _points(subject: Subject, item: Series) -> dict[str, Any]:
    """Return the measurements of an observable as a trace, thinned where there are many."""
    chosen = thin(len(item.times))
    many = len(chosen) > _MANY
    unit = plot_text(subject.unit(item.observable))
    return {
        "name": "averages" if subject.gp.fit_.measurements.sums is not None else "measurements",
        "x": item.times[chosen].tolist(),
        "y": item.values[chosen].tolist(),
        "mode": "markers",
        "marker": {"color": DATA_COLOUR, "size": 3 if many else 6, "opacity": 0.4 if many else 0.75},
        "hovertemplate": f"{plot_text(item.observable)} measured: %{{y:.6~g}}{unit}{subject.hover_time}",
    }


def _limits(subject: Subject, name: str, low: Array, high: Array) -> tuple[float, float]:
    """Return the smallest and largest value to be seen: what grows outside the window must not flatten the rest."""
    start, stop = subject.gp.fit_.measurements.window
    inside = (subject.times >= start) & (subject.times <= stop)
    values = [low[inside], high[inside]] if inside.any() else [low, high]
    if name in subject.series:
        values.append(subject.series[name].values)
    bottom, top = min(float(part.min()) for part in values), max(float(part.max()) for part in values)
    reach = 0.6 * (top - bottom)
    return min(bottom, max(float(low.min()), bottom - reach)), max(top, min(float(high.max()), top + reach))
