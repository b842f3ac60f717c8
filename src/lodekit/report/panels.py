"""Shared by all sections of a report: the fitted model with its units, and stacked Plotly panels over one time axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from lodekit.data.observations import TimeSeries
from lodekit.data.time_reference import TimeReference
from lodekit.errors import LodekitError
from lodekit.model import LODEGP
from lodekit.results.fit import Fit
from lodekit.results.validation import Validation
from lodekit.support.arguments import Array, IndexArray
from lodekit.support.html import escape_plotly
from lodekit.support.interval_means import observable_unit
from lodekit.support.text import significant_digits
from lodekit.uncertainty.estimates import NORMAL_QUANTILE_95

TruthByName = Mapping[str, float | Callable[[Array], Array]]
#: More points than this only slow down a plot.
MAX_PLOT_POINTS = 5000
# Okabe and Ito's colours, which colour-blind readers can distinguish.
PLOTLY_DATA_COLOR, PLOTLY_MEAN_COLOR, PLOTLY_TRUTH_COLOR = "#4a4a4a", "#0072b2", "#d55e00"
PLOTLY_BAND_COLOR = "rgba(0,114,178,0.2)"


@dataclass(frozen=True)
class ReportContext:
    """A fitted model with the options of a report.

    gp: The fitted model.
    units: Units of channels, parameters and the time ``t``, by name.
    source: The name of the data file; empty if it is unknown.
    truth: Known true values of parameters, and true channels as functions of time.
    span: The first and last time of the curves, in the user's units.
    record: The name of the record if there are several.
    """

    gp: LODEGP
    units: Mapping[str, str]
    source: str
    truth: TruthByName
    span: tuple[float, float]
    record: str = ""

    @property
    def fit(self) -> Fit:
        """The fit of the model."""
        return self.gp.fit_

    def heading(self, text: str) -> str:
        """Return the heading of a section, with the name of the record if there are several."""
        if not self.record:
            return text
        return f"{text} Record {self.record}" if text.endswith("?") else f"{text}, record {self.record}"

    def unit_suffix(self, name: str) -> str:
        """Return the unit of a channel, a parameter or ``t`` with a space before it; empty if none is known."""
        found = observable_unit(self.units, name).strip()
        return f" {found}" if found else ""

    @cached_property
    def series(self) -> dict[str, TimeSeries]:
        """The measurements by observable, or averages if only sums were kept."""
        return {item.observable: item for part in self.fit.record_fits for item in part.measurements.plotted_series}

    @property
    def observables(self) -> list[str]:
        """The channels, and all other measured observables."""
        channels = self.fit.setup.channels
        return [*channels, *(name for name in self.series if name not in channels)]

    @property
    def n_time_digits(self) -> int:
        """The number of digits that distinguish the times of a plot: ten for Unix times."""
        return significant_digits(max(map(abs, self.span)), (self.span[1] - self.span[0]) / 100, 6)

    @cached_property
    def curve_times(self) -> Array:
        """Times of the curves, dense enough for linear interpolation."""
        # Double the number of steps until linear interpolation is visually accurate.
        for steps in (400, 800, 1600, 3200):
            times = np.array(round_values(np.linspace(*self.span, steps + 1), 12))
            # Inputs that jump are drawn from their samples.
            known = self.fit.measurements.inputs
            mean = self.gp.predict(times, [name for name in self.observables if name not in known], as_frame=False)
            bend = np.abs(mean[1:-1:2] - (mean[:-2:2] + mean[2::2]) / 2).max(axis=0)
            if (bend <= 0.01 * np.ptp(mean, axis=0)).all():
                break
        return times

    @property
    def hover_time_template(self) -> str:
        """The time of a point, as part of a Plotly hover template."""
        if self.fit.clock.has_dates:
            return "<br>%{x}<extra></extra>"
        return f"<br>t = %{{x:.{self.n_time_digits}~g}}{escape_plotly(self.unit_suffix('t'))}<extra></extra>"

    @property
    def time_label(self) -> str:
        """The label of the time axis."""
        return time_axis_label(self.fit.clock, self.unit_suffix("t").strip())


def time_axis_label(clock: TimeReference, unit: str) -> str:
    """Return the label of a time axis with its unit, or with the time zone of dates."""
    if clock.has_dates:
        return escape_plotly(f"time ({clock.origin:%Z})") if clock.axis_zone else ""
    return escape_plotly(f"t in {unit}" if unit else "t")


def check_span(span: Sequence[float] | None, default_span: tuple[float, float]) -> tuple[float, float]:
    """Return the start and end of the curves; raise if these are not two finite, ascending numbers."""
    if span is None:
        return default_span
    try:
        start, stop = (float(value) for value in span)
    except (TypeError, ValueError):
        raise LodekitError(f"expected span=(from, to), two numbers, got {span!r}") from None
    if not (math.isfinite(start) and math.isfinite(stop) and start < stop):
        raise LodekitError(f"expected span=(from, to) with from < to, got ({start:g}, {stop:g})")
    return start, stop


def check_truth(truth: TruthByName | None) -> TruthByName:
    """Return true values and functions by name; raise if one is neither a number nor a function."""
    known = {} if truth is None else truth
    if not isinstance(known, Mapping) or not all(callable(each) or isinstance(each, Real) for each in known.values()):
        raise LodekitError(
            f"expected truth as a dict of names to numbers (parameters) or functions of times (channels), got {truth!r}"
        )
    return dict(known)


def check_validation(found: Validation | Mapping[str, Validation] | None) -> Mapping[str, Validation]:
    """Return results of validations by title; raise if one is none."""
    named = found if isinstance(found, Mapping) else {} if found is None else {"": found}
    if not all(isinstance(each, Validation) for each in named.values()):
        raise LodekitError(f"expected validation as a result of validate(), or a dict of titles to such, got {found!r}")
    return named


def round_values(values: Array, significant_digits: int = 10) -> list[float]:
    """Return floats that are short as text.

    Shapes: values (n,).
    """
    return [float(f"{value:.{significant_digits}g}") for value in values.tolist()]


def thinned_indices(count: int) -> IndexArray:
    """Return the indices of the points to draw: all, or `MAX_PLOT_POINTS` of them, evenly spaced."""
    return np.arange(count) if count <= MAX_PLOT_POINTS else np.linspace(0, count - 1, MAX_PLOT_POINTS).astype(np.intp)


PLOTLY_FONT = {"family": "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif", "size": 13, "color": "#1b2733"}
PLOTLY_AXIS_STYLE = {"gridcolor": "#e6ebef", "linecolor": "#c5ced6", "showline": True, "zeroline": False}
SHADED_RECTANGLE = {"type": "rect", "xref": "x", "y0": 0, "y1": 1, "line": {"width": 0}}
SHADE_COLOR = "rgba(120,130,140,0.13)"
REFERENCE_LINE = {"type": "line", "xref": "paper", "x0": 0, "x1": 1}
REFERENCE_LINE |= {"line": {"width": 1, "color": "#9aa7b3", "dash": "dot"}}


@dataclass(frozen=True)
class PlotlyPanel:
    """One plot in a stack of plots over the same time.

    title: A label, escaped by `escape_plotly`.
    traces: Plotly traces without axes; traces with the same name share a legend entry.
    limits: The smallest and largest value that are visible initially.
    reference_lines: Values with a dotted horizontal line; they are the tick labels unless `ticks` are given.
    ticks: Values of the tick labels.
    """

    title: str
    traces: Sequence[Mapping[str, Any]]
    limits: tuple[float, float]
    reference_lines: tuple[float, ...] = ()
    ticks: tuple[float, ...] = ()


def line_trace(
    name: str,
    x: Sequence[float | None],
    y: Sequence[float | None],
    color: str,
    hover: str = "",
    *,
    width: float = 2,
    errors: Array | None = None,
    **line: str,
) -> dict[str, Any]:
    """Return a curve as a trace, with a hover template and the errors that it shows."""
    custom = {} if errors is None else {"customdata": round_values(errors, 3)}
    style = {"mode": "lines", "line": {"color": color, "width": width, **line}}
    return {"name": name, "x": x, "y": y, **custom, **style, **({"hovertemplate": hover} if hover else {})}


def marker_trace(name: str, x: list[float], y: list[float], hover: str, size: int, opacity: float) -> dict[str, Any]:
    """Return points as a trace."""
    marker = {"color": PLOTLY_DATA_COLOR, "size": size, "opacity": opacity}
    trace = {"name": name, "x": x, "y": y, "mode": "markers", "marker": marker}
    return {**trace, **({"hovertemplate": hover} if hover else {})}


def band_trace(x: Sequence[float], low: Array, high: Array, name: str = "95 % band") -> dict[str, Any]:
    """Return a band around a curve as a trace.

    Shapes: low, high (n,).
    """
    trace = {"name": name, "x": [*x, *x[::-1]], "y": round_values(high) + round_values(low[::-1]), "mode": "lines"}
    return {**trace, "line": {"width": 0}, "fill": "toself", "fillcolor": PLOTLY_BAND_COLOR, "hoverinfo": "skip"}


def stack_panels(
    panels: Sequence[PlotlyPanel],
    *,
    height: int,
    time_label: str,
    span: tuple[float, float],
    shaded: Sequence[tuple[float, float]] | Mapping[tuple[float, float], str] = (),
    log_scale: bool = False,
    clock: TimeReference | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return traces and layout of panels above each other with one time axis; `shaded` intervals may have colours.

    With a clock that has dates, the time axis shows dates.
    """
    named = dict.fromkeys(str(trace["name"]) for panel in panels for trace in panel.traces)
    has_dates, place_times = (True, clock.wall_clock_times) if clock and clock.has_dates else (False, list)
    # The legend is below the plots, because the toolbar is above them; it has several rows of about 400 pixels.
    rows = 1 + sum(45 + 7 * len(name) for name in named) // 400 if len(named) > 1 else 0
    # Labels of dates have two lines.
    above, axis_height = 36, 68 if has_dates else 48
    below = axis_height + 6 * bool(rows) + 24 * rows
    gap = 38  # pixels between panels
    area = len(panels) * (height + gap) - gap
    layout: dict[str, Any] = {
        "height": area + above + below,
        "margin": {"l": 60, "r": 12, "t": above, "b": below},
        "font": PLOTLY_FONT,
        "paper_bgcolor": "#fff",
        "plot_bgcolor": "#fff",
        "hovermode": "closest",
        "showlegend": len(named) > 1,
        "legend": {"orientation": "h", "x": 0, "y": -(axis_height + 4) / area, "xanchor": "left", "yanchor": "top"},
        "xaxis": {
            **PLOTLY_AXIS_STYLE,
            "title": {"text": time_label, "font": {"size": 13}, "standoff": 14},
            "range": place_times(span),
            **({"type": "date"} if has_dates else {}),
            "exponentformat": "none",
            "anchor": f"y{len(panels)}" if len(panels) > 1 else "y",
        },
        "annotations": [],
        "shapes": [],
    }
    if log_scale:
        ends = [math.log10(edge) for edge in span]
        layout["xaxis"] |= {"type": "log", "range": ends, "exponentformat": "power", "dtick": 1}
    colors = shaded if isinstance(shaded, Mapping) else dict.fromkeys(shaded, SHADE_COLOR)
    traces: list[dict[str, Any]] = []
    for number, panel in enumerate(panels, 1):
        axis = "y" if number == 1 else f"y{number}"
        top = area - (number - 1) * (height + gap)
        layout[axis.replace("y", "yaxis")] = _vertical_axis(panel, height, top, area)
        title = {"text": panel.title, "x": 0, "y": 1, "xref": "paper", "yref": f"{axis} domain", "showarrow": False}
        layout["annotations"].append({**title, "xanchor": "left", "yanchor": "bottom", "align": "left"})
        rectangle = {**SHADED_RECTANGLE, "yref": f"{axis} domain", "layer": "below"}
        spans = [(place_times(ends), color) for ends, color in colors.items()]
        layout["shapes"] += [{**rectangle, "fillcolor": color, "x0": low, "x1": high} for (low, high), color in spans]
        layout["shapes"] += [
            {**REFERENCE_LINE, "y0": value, "y1": value, "yref": axis, "layer": "below"}
            for value in panel.reference_lines
        ]
        for trace in panel.traces:
            # The first trace of a name represents all others in the legend.
            is_first = all(trace["name"] != other["name"] for other in traces)
            place = {"type": "scatter", "xaxis": "x", "yaxis": axis, "legendgroup": str(trace["name"])}
            traces.append({**trace, **place, "x": place_times(trace["x"]), "showlegend": is_first})
    return traces, layout


def _vertical_axis(panel: PlotlyPanel, height: int, top: int, area: int) -> dict[str, Any]:
    """Return the vertical axis of a panel whose upper edge is at `top` pixels of `area`."""
    low, high = panel.limits
    named = panel.ticks or panel.reference_lines
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return {
        **PLOTLY_AXIS_STYLE,
        "domain": [max(top - height, 0) / area, top / area],
        "range": [low - margin, high + margin],
        "anchor": "x",
        "exponentformat": "power",
        **({"tickvals": list(named)} if named else {"nticks": max(height // 32, 3)}),
    }


def marker_style(count: int) -> tuple[int, float]:
    """Return size and opacity of measurements, which must remain visible beside the line of a curve."""
    return (6, 0.75) if count <= 300 else (5, 0.7) if count <= 1500 else (3, 0.45)


def points_trace(name: str, times: Array, values: Array) -> dict[str, Any]:
    """Return measurements as a trace without hover text, thinned if there are many."""
    chosen = thinned_indices(len(times))
    x, y = round_values(times[chosen], 12), round_values(values[chosen])
    # Markers at the ends of an axis are drawn in full.
    return marker_trace(name, x, y, "", *marker_style(len(chosen))) | {"cliponaxis": False}


def finite_limits(*parts: Array) -> tuple[float, float]:
    """Return the smallest and the largest finite value; 0 and 1 if there is none."""
    values = np.concatenate([part[np.isfinite(part)] for part in parts])
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def format_title(text: str) -> str:
    """Return the title of a panel, in bold up to a dash."""
    head, dash, tail = text.partition(" – ")
    return f"<b>{escape_plotly(head)}</b>{escape_plotly(dash + tail)}"


def curve_panel(
    title: str, curve: Sequence[Array], points: Sequence[Array] = (), *, label: str = "mean", kind: str = ""
) -> PlotlyPanel:
    """Return a panel with a curve, its 95 % band and measurements; curves far beyond the measurements are clipped.

    curve: Times, values and, for a band, standard deviations.
    points: Times and values of measurements, if there are any.
    label: The name of the curve in the legend.
    kind: The interpolation of a known input; empty for a computed curve.
    """
    times, values, *std = curve[:2] if kind else curve
    band = NORMAL_QUANTILE_95 * std[0] if std else np.zeros_like(values)
    low, high = finite_limits(points[1] if points else values)
    reach = 0.6 * (high - low) if high > low else np.inf
    # Plotly cannot draw lines to points that are too far away.
    edges = [values - band, values, values + band]
    lower, middle, upper = edges = np.clip(edges, low - 10 * reach, high + 10 * reach)
    x, shape = round_values(times, 12), "hv" if kind == "hold" else "linear"
    traces = [band_trace(x, lower, upper)] if band.any() else []
    traces += [points_trace("measurements", points[0], points[1])] if points else []
    name, color = ("known input", PLOTLY_TRUTH_COLOR) if kind else (label, PLOTLY_MEAN_COLOR)
    traces.append(line_trace(name, x, round_values(middle), color, width=1.5, shape=shape))
    limits = finite_limits(np.clip(edges, low - reach, high + reach).ravel(), *points[1:])
    return PlotlyPanel(format_title(title), traces, limits)


def stack_curves(panels: Sequence[PlotlyPanel], clock: TimeReference, **options: Any) -> dict[str, Any]:
    """Return a figure of panels over one time axis, which contains all of their points unless `span` is given."""
    every = [time for panel in panels for trace in panel.traces for time in trace["x"]]
    own: dict[str, Any] = {"height": 150, "span": (min(every), max(every)), **options}
    data, layout = stack_panels(panels, time_label=time_axis_label(clock, clock.unit), clock=clock, **own)
    return {"data": data, "layout": layout}


def validation_figure(found: Validation, units: Mapping[str, str]) -> dict[str, Any]:
    """Return a plot of a free run over measurements that the fit did not use."""
    panels = []
    for item in found.channels:
        title = f"{item.title} in {units[item.name]}" if units.get(item.name) else item.title
        title += "" if math.isnan(item.fit_percent) else f" – fit {item.fit_percent:.1f} %"
        curve = item.curve or (item.times, item.mean, item.std)
        panels.append(curve_panel(title, curve, (item.times, item.values), label="free run"))
    return stack_curves(panels, TimeReference.from_labels(found.origin, units.get("t")))
