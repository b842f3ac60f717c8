"""Figures of the studio: Plotly figures in light and dark colours, and SVG for poles and for curves under sliders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import cycle
from typing import Any

import numpy as np

from lodekit.data.time_reference import TimeReference
from lodekit.report.panels import (
    PLOTLY_BAND_COLOR,
    PLOTLY_DATA_COLOR,
    PLOTLY_MEAN_COLOR,
    PLOTLY_TRUTH_COLOR,
    PlotlyPanel,
    band_trace,
    line_trace,
    marker_trace,
    round_values,
    stack_panels,
    thinned_indices,
    time_axis_label,
)
from lodekit.results.validation import Validation
from lodekit.support.arguments import Array
from lodekit.support.html import escape_plotly
from lodekit.support.text import format_complex
from lodekit.uncertainty.estimates import NORMAL_QUANTILE_95

PlotlyFigure = dict[str, Any]
#: Colours of posterior samples, fits, and windows of fit and validation.
SAMPLE_TRACE_COLOR = "rgba(0,158,115,0.55)"
FIT_COLORS = (PLOTLY_MEAN_COLOR, "#009e73", "#cc79a7", "#8c6d31", "#7f7f7f")
FIT_WINDOW_COLOR, VALIDATION_WINDOW_COLOR = "rgba(0,114,178,0.10)", "rgba(213,94,0,0.12)"
#: The same colours for a dark page.
DARK_COLORS = {
    PLOTLY_DATA_COLOR: "#c9d1d9",
    PLOTLY_MEAN_COLOR: "#56b4e9",
    PLOTLY_BAND_COLOR: "rgba(86,180,233,0.25)",
    PLOTLY_TRUTH_COLOR: "#e69f00",
    SAMPLE_TRACE_COLOR: "rgba(0,200,150,0.55)",
    FIT_WINDOW_COLOR: "rgba(86,180,233,0.14)",
    VALIDATION_WINDOW_COLOR: "rgba(230,159,0,0.16)",
    # Text, grid, axes and dotted lines of the report; white areas of the report become transparent.
    "#1b2733": "#e6edf3",
    "#e6ebef": "#2d343c",
    "#c5ced6": "#4a545f",
    "#9aa7b3": "#6b7783",
    "#fff": "rgba(0,0,0,0)",
}
LIGHT_COLORS = {"#fff": "rgba(0,0,0,0)"}


def apply_theme(figure: Mapping[str, Any], *, dark: bool) -> PlotlyFigure:
    """Return a figure in the colours of a light or a dark page."""
    colours = DARK_COLORS if dark else LIGHT_COLORS

    def change(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: each if key in ("x", "y", "customdata") else change(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [change(each) for each in value]
        if isinstance(value, str):
            for old, new in colours.items():
                value = new if value == old else value.replace(f"color:{old}", f"color:{new}")
        return value

    changed: PlotlyFigure = change(figure)
    changed["layout"]["margin"] = {**changed["layout"].get("margin", {}), "l": 52, "r": 8}
    active = colours.get(PLOTLY_MEAN_COLOR, PLOTLY_MEAN_COLOR)
    changed["layout"]["modebar"] = {"bgcolor": "rgba(0,0,0,0)", "color": "#8a97a3", "activecolor": active}
    return changed


def _measurement_trace(name: str, times: Array, values: Array) -> dict[str, Any]:
    chosen = thinned_indices(len(times))
    x, y = round_values(times[chosen], 12), round_values(values[chosen])
    return marker_trace(name, x, y, "", (5, 3), (0.8, 0.45), many=len(chosen) > 300)


def _finite_limits(*parts: Array) -> tuple[float, float]:
    values = np.concatenate([part[np.isfinite(part)] for part in parts])
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def record_figure(
    panels: Mapping[str, tuple[Array, Array]],
    *,
    titles: Mapping[str, str],
    held_inputs: Sequence[str] = (),
    window: tuple[float, float],
    fitted: tuple[float, float] | None = None,
    held_out: tuple[float, float] | None = None,
    clock: TimeReference,
) -> PlotlyFigure:
    """Return a plot of a record, one panel for each column, with coloured windows of fit and validation."""
    made = []
    for name, (times, values) in panels.items():
        trace = _measurement_trace("measurements", times, values)
        if name in held_inputs:
            line = {"color": PLOTLY_MEAN_COLOR, "width": 1.5, "shape": "hv"}
            trace |= {"name": "known input", "mode": "lines", "line": line}
        head, dash, tail = titles.get(name, name).partition(" – ")
        title = f"<b>{escape_plotly(head)}</b>{escape_plotly(dash + tail)}"
        made.append(PlotlyPanel(title, [trace], _finite_limits(values)))
    windows = ((FIT_WINDOW_COLOR, fitted), (VALIDATION_WINDOW_COLOR, held_out))
    data, layout = stack_panels(
        made,
        height=150 if len(made) < 6 else 90,
        time_label=time_axis_label(clock, clock.unit),
        span=window,
        clock=clock,
        shaded={window: colour for colour, window in windows if window is not None},
    )
    return {"data": data, "layout": {**layout, "dragmode": "select", "selectdirection": "h"}}


def add_sample_traces(
    data: Sequence[Mapping[str, Any]], panels: Sequence[str], names: Sequence[str], x: Sequence[float], drawn: Array
) -> list[dict[str, Any]]:
    """Return traces with posterior samples behind them.

    Shapes: x (n,), drawn (s, n, names).
    """
    made: list[dict[str, Any]] = []
    for number, name in enumerate(panels, 1):
        place = {"type": "scatter", "xaxis": "x", "yaxis": "y" if number == 1 else f"y{number}"}
        for one in drawn[:, :, names.index(name)] if name in names else ():
            trace = line_trace("samples", x, round_values(one, 6), SAMPLE_TRACE_COLOR, width=1)
            made.append({**trace, "hoverinfo": "skip", **place, "legendgroup": "samples", "showlegend": not made})
    return [*made, *(dict(trace) for trace in data)]


def validation_figure(found: Validation, units: Mapping[str, str]) -> PlotlyFigure:
    """Return a plot of a free run over the measurements of a held-out record."""
    panels = []
    for item in found.channels:
        low, high = item.mean - NORMAL_QUANTILE_95 * item.std, item.mean + NORMAL_QUANTILE_95 * item.std
        times = round_values(item.times, 12)
        band = band_trace(times, low, high, "95 % band of a measurement")
        mean = line_trace("free run", times, round_values(item.mean), PLOTLY_MEAN_COLOR)
        unit = f" in {units[item.name]}" if units.get(item.name) else ""
        title = f"<b>{escape_plotly(item.title)}</b>{escape_plotly(unit)}"
        title += "" if math.isnan(item.fit_percent) else f" – fit {item.fit_percent:.1f} %"
        traces = [band, _measurement_trace("held-out measurements", item.times, item.values), mean]
        panels.append(PlotlyPanel(title, traces, _finite_limits(low, high, item.values)))
    every = np.concatenate([item.times for item in found.channels])
    span = float(every.min()), float(every.max())
    clock = TimeReference.from_labels(found.origin, units.get("t"))
    data, layout = stack_panels(
        panels, height=150, time_label=time_axis_label(clock, clock.unit), span=span, clock=clock
    )
    return {"data": data, "layout": layout}


def comparison_figure(figures: Mapping[str, Sequence[PlotlyFigure]]) -> PlotlyFigure:
    """Return the means of several fits in one figure, each in its own window, with the measurements of all.

    figures: The curves of each fit, by its name, in one or several records, each with the names of its panels.
    """
    *_, (last, *_) = figures.values()
    axes = {name: f"y{number if number > 1 else ''}" for number, name in enumerate(last["panels"], 1)}
    layout = {**last["layout"], "shapes": []}
    traces: list[dict[str, Any]] = []
    drawn = set[tuple[object, ...]]()
    colors = dict(zip(figures, cycle(FIT_COLORS), strict=False))
    for fit, figure in [(fit, figure) for fit, records in figures.items() for figure in records]:
        first, end = figure.get("window", figure["layout"]["xaxis"]["range"])
        _widen(layout, "xaxis", (first, end), is_new=not traces)
        for trace in figure["data"]:
            name = figure["panels"][int(trace["yaxis"][1:] or 1) - 1]
            if name not in axes or trace["name"] not in ("mean", "measurements", "averages", "known"):
                continue
            _widen(layout, f"yaxis{axes[name][1:]}", figure["layout"][f"yaxis{trace['yaxis'][1:]}"]["range"])
            points = [(name, *point) for point in zip(trace["x"], trace["y"], strict=True)]
            if trace["name"] == "mean":
                kept = [k for k, (_, x, _) in enumerate(points) if first <= x <= end]
                own = {"name": fit, "legendgroup": fit, "line": {"color": colors[fit], "width": 2}}
            else:
                # Measurements of several fits are drawn once.
                kept, own = [k for k, point in enumerate(points) if point not in drawn], {"name": trace["name"]}
                drawn |= set(points)
            own |= {key: [trace[key][k] for k in kept] for key in ("x", "y", "customdata") if key in trace}
            is_first = all(other["name"] != own["name"] for other in traces)
            traces += [{**trace, **own, "yaxis": axes[name], "showlegend": is_first}] * bool(kept)
    # The curves are in front.
    return {"data": sorted(traces, key=lambda trace: trace["name"] in figures), "layout": layout}


def _widen(layout: PlotlyFigure, axis: str, ends: Sequence[Any], *, is_new: bool = False) -> None:
    """Widen the range of an axis; replace it if it is new."""
    low, high = ends if is_new else layout[axis]["range"]
    layout[axis] = {**layout[axis], "range": [min(low, ends[0]), max(high, ends[1])]}


def pole_plot_svg(poles: Sequence[complex], modes: Sequence[complex] = ()) -> str:
    """Return the complex plane with poles and modes as SVG, in the colour of the text around it."""
    every = [complex(root) for root in (*poles, *modes)]
    size = 1.25 * max([abs(part) for root in every for part in (root.real, root.imag)] or [1.0]) or 1.0

    def place(root: complex) -> tuple[float, float]:
        return 130 + 105 * root.real / size, 130 - 105 * root.imag / size

    words = describe_poles(poles, modes)
    marks = []
    for root in poles:
        x, y = place(root)
        cross = f"M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12"
        marks.append(f'<path d="{cross}" stroke="{PLOTLY_MEAN_COLOR}" stroke-width="3" fill="none"/>')
    for root in modes:
        x, y = place(root)
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{PLOTLY_TRUTH_COLOR}"/>')
    tick = f'<text x="138" y="50">{size / 1.25:.3g} i</text>'
    tick += f'<text x="46" y="148" text-anchor="middle">−{size / 1.25:.3g}</text>'
    return (
        f'<svg viewBox="0 0 260 260" role="img" aria-label="{escape(words)}" class="plane">'
        '<rect x="12" y="12" width="118" height="236" fill="currentColor" opacity="0.05"/>'
        '<g stroke="currentColor" opacity="0.45"><path d="M12 130H248M130 12V248"/>'
        f'<path d="M46 126v8M126 46h8"/></g><g font-size="11" fill="currentColor" opacity="0.7">{tick}</g>'
        f"{''.join(marks)}</svg>"
    )


def describe_poles(poles: Sequence[complex], modes: Sequence[complex] = ()) -> str:
    """Return the positions of exponents in the complex plane, in words.

    Examples
    --------
    >>> describe_poles([-1 - 2j, -1 + 2j])
    'Complex plane with poles at -1 - 2i, -1 + 2i'
    """
    parts = []
    for what, own in (("poles", poles), ("uncontrollable modes", modes)):
        if own:
            parts.append(f"{what} at {', '.join(format_complex(complex(root)) for root in own)}")
    return f"Complex plane with {' and '.join(parts)}" if parts else "Complex plane without exponents"


#: Width of the drawing, height of a panel, and margins for labels at the left, above a panel and at the bottom.
SVG_WIDTH, SVG_PANEL_HEIGHT, SVG_LEFT_MARGIN, SVG_TOP_MARGIN, SVG_BOTTOM_MARGIN = 640.0, 132.0, 52.0, 30.0, 40.0


def choose_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return about `count` round numbers between two numbers.

    Examples
    --------
    >>> choose_ticks(0.0, 10.0), choose_ticks(-0.52, 0.93)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [-0.5, 0.0, 0.5])
    >>> choose_ticks(0.0, 4e-13)
    [0.0, 1e-13, 2e-13, 3e-13, 4e-13]
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        return [low]
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((factor * power for factor in (1, 2, 5, 10)), key=lambda size: abs(math.log(size / rough)))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    # Twelve digits: a multiple of 0.1 is shown without rounding errors.
    return [float(f"{number * step:.12g}") + 0.0 for number in range(first, last + 1)]


def curves_svg(
    names: Sequence[str],
    times: Array,
    mean: Array,
    points: Mapping[str, tuple[Array, Array]],
    *,
    units: Mapping[str, str],
    alt_text: str,
    held_inputs: Sequence[str] = (),
    known_inputs: Sequence[str] = (),
) -> str:
    """Return curves over measurements as SVG, one panel for each channel.

    Shapes: times (n,), mean (n, channels).
    """
    span = float(times[0]), float(times[-1])
    parts, top = [], 0.0
    for number, name in enumerate(names):
        note = " – known" if name in known_inputs else "" if name in points else " – not measured"
        unit = f" in {units[name]}" if units.get(name) else ""
        title = f'<tspan font-weight="700">{escape(name)}</tspan>{escape(unit)}<tspan opacity="0.65">{note}</tspan>'
        own = None if name in known_inputs else points.get(name)
        parts.append(_svg_panel(top, title, span, times, mean[:, number], own, is_held=name in held_inputs))
        top += SVG_TOP_MARGIN + SVG_PANEL_HEIGHT
    label = f"t in {units['t']}" if units.get("t") else "t"
    ticks = "".join(
        f'<text x="{_x_position(tick, span):.1f}" y="{top + 16:.1f}" text-anchor="middle">{tick:.6g}</text>'
        for tick in choose_ticks(*span, 6)
    )
    middle = (SVG_LEFT_MARGIN + SVG_WIDTH) / 2
    ticks += f'<text x="{middle:.1f}" y="{top + 34:.1f}" text-anchor="middle">{escape(label)}</text>'
    return (
        f'<svg class="lk-curves" role="img" aria-label="{escape(alt_text)}" '
        f'viewBox="0 0 {SVG_WIDTH:.0f} {top + SVG_BOTTOM_MARGIN:.0f}" '
        f'font-size="12.5" fill="currentColor">{"".join(parts)}{ticks}</svg>'
    )


def _x_position(time: float, span: tuple[float, float]) -> float:
    return SVG_LEFT_MARGIN + (SVG_WIDTH - SVG_LEFT_MARGIN - 8) * (time - span[0]) / ((span[1] - span[0]) or 1.0)


def _svg_panel(
    top: float,
    title: str,
    span: tuple[float, float],
    times: Array,
    curve: Array,
    points: tuple[Array, Array] | None,
    *,
    is_held: bool,
) -> str:
    """Return one panel with its upper edge at `top`; curves far beyond the measurements are clipped."""
    values = curve if points is None or not len(points[1]) else points[1]
    low, high = float(values.min()), float(values.max())
    reach = 0.6 * (high - low) or 1.0
    low, high = max(min(low, float(curve.min())), low - reach), min(max(high, float(curve.max())), high + reach)
    margin = 0.06 * (high - low) or 0.5
    low, high = low - margin, high + margin
    upper = top + SVG_TOP_MARGIN

    def down(value: float) -> float:
        return upper + SVG_PANEL_HEIGHT * (1.0 - (value - low) / (high - low))

    lines, labels = [], []
    for tick in choose_ticks(low, high, 3):
        y = down(tick)
        lines.append(f"M{SVG_LEFT_MARGIN:.0f} {y:.1f}H{SVG_WIDTH - 8:.0f}")
        labels.append(f'<text x="{SVG_LEFT_MARGIN - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{tick:.6g}</text>')
    lines += [f"M{_x_position(tick, span):.1f} {upper:.1f}v{SVG_PANEL_HEIGHT:.0f}" for tick in choose_ticks(*span, 6)]
    grid = f'<path d="{"".join(lines)}" stroke="currentColor" opacity="0.12" fill="none"/>'
    edge = f"M{SVG_LEFT_MARGIN:.0f} {upper:.1f}v{SVG_PANEL_HEIGHT:.0f}H{SVG_WIDTH - 8:.0f}"
    frame = f'<path d="{edge}" stroke="currentColor" opacity="0.3" fill="none"/>'
    dots = ""
    if points is not None:
        chosen = slice(None, None, max(len(points[0]) // 300, 1))
        places = zip(points[0][chosen].tolist(), points[1][chosen].tolist(), strict=True)
        marks = "".join(f"M{_x_position(t, span):.1f} {down(y):.1f}h0" for t, y in places)
        dots = f'<path d="{marks}" stroke="currentColor" stroke-width="5" stroke-linecap="round" opacity="0.6"/>'
    clipped = np.clip(curve, low - 10 * (high - low), high + 10 * (high - low)).tolist()
    xs = [_x_position(t, span) for t in times.tolist()]
    ys = [down(value) for value in clipped]
    path = f"M{xs[0]:.1f} {ys[0]:.1f}" + "".join(
        f"H{x:.1f}V{y:.1f}" if is_held else f"L{x:.1f} {y:.1f}" for x, y in zip(xs[1:], ys[1:], strict=True)
    )
    name = f"clip{top:.0f}"
    size = f'width="{SVG_WIDTH - SVG_LEFT_MARGIN}" height="{SVG_PANEL_HEIGHT}"'
    box = f'<clipPath id="{name}"><rect x="{SVG_LEFT_MARGIN}" y="{upper:.1f}" {size}/></clipPath>'
    look = f'stroke="var(--accent)" stroke-width="2" fill="none" clip-path="url(#{name})"'
    line = f'<path class="lk-curve" d="{path}" {look}/>'
    head = f'<text x="{SVG_LEFT_MARGIN:.0f}" y="{upper - 8:.1f}" font-size="13">{title}</text>'
    return f"{box}{grid}{frame}{''.join(labels)}{head}{dots}{line}"
