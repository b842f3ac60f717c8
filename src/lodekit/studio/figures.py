"""Figures of the studio for Plotly, in light and dark colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from lodekit.data.time_reference import TimeReference
from lodekit.report import panels as plotly
from lodekit.support.arguments import Array
from lodekit.support.text import format_complex

PlotlyFigure = dict[str, Any]
Curves = Mapping[str, Sequence[Array]]
Texts = Mapping[str, str]
#: Colours of posterior samples, fits, and windows of fit and validation.
SAMPLE_TRACE_COLOR = "rgba(0,158,115,0.55)"
FIT_COLORS = (plotly.PLOTLY_MEAN_COLOR, "#009e73", "#cc79a7", "#8c6d31", "#7f7f7f")
FIT_WINDOW_COLOR, VALIDATION_WINDOW_COLOR = "rgba(0,114,178,0.10)", "rgba(213,94,0,0.12)"
#: The same colours for a dark page.
DARK_COLORS = {
    plotly.PLOTLY_DATA_COLOR: "#c9d1d9",
    plotly.PLOTLY_MEAN_COLOR: "#56b4e9",
    plotly.PLOTLY_BAND_COLOR: "rgba(86,180,233,0.25)",
    plotly.PLOTLY_TRUTH_COLOR: "#e69f00",
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
    active = colours.get(plotly.PLOTLY_MEAN_COLOR, plotly.PLOTLY_MEAN_COLOR)
    changed["layout"]["modebar"] = {"bgcolor": "rgba(0,0,0,0)", "color": "#8a97a3", "activecolor": active}
    return changed


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
        trace = plotly.points_trace("measurements", times, values)
        if name in held_inputs:
            x, y = trace["x"], trace["y"]
            trace = plotly.line_trace("known input", x, y, plotly.PLOTLY_TRUTH_COLOR, width=1.5, shape="hv")
        made.append(
            plotly.PlotlyPanel(plotly.format_title(titles.get(name, name)), [trace], plotly.finite_limits(values))
        )
    windows = ((FIT_WINDOW_COLOR, fitted), (VALIDATION_WINDOW_COLOR, held_out))
    shaded = {window: colour for colour, window in windows if window is not None}
    figure = plotly.stack_curves(made, clock, height=150 if len(made) < 6 else 90, span=window, shaded=shaded)
    figure["layout"] |= {"dragmode": "select", "selectdirection": "h"}
    return figure


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
            trace = plotly.line_trace("samples", x, plotly.round_values(one, 6), SAMPLE_TRACE_COLOR, width=1)
            made.append({**trace, "hoverinfo": "skip", **place, "legendgroup": "samples", "showlegend": not made})
    return [*made, *(dict(trace) for trace in data)]


def curves_figure(
    curves: Curves, clock: TimeReference, kinds: Texts, units: Texts, points: Curves | None = None, label: str = "mean"
) -> PlotlyFigure:
    """Return a figure of channels with their measurements; `kinds` are the interpolations of known inputs."""
    panels = []
    for name, curve in curves.items():
        kind, own = kinds.get(name, ""), () if points is None else points.get(name, ())
        title = f"{name} in {units[name]}" if units.get(name) else name
        title += " – known" if kind else "" if own or points is None else " – not measured"
        panels.append(plotly.curve_panel(title, curve, () if kind else own, label=label, kind=kind))
    return plotly.stack_curves(panels, clock)


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
            if name not in axes or trace["name"] not in ("mean", "measurements", "averages", "known input"):
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


def pole_figure(poles: Sequence[complex], modes: Sequence[complex] = ()) -> PlotlyFigure:
    """Return the complex plane with poles and modes."""
    size = 1.25 * max([abs(part) for root in (*poles, *modes) for part in (root.real, root.imag)] or [1.0]) or 1.0
    traces = []
    groups = ("pole", "x", plotly.PLOTLY_MEAN_COLOR, poles), ("mode", "circle", plotly.PLOTLY_TRUTH_COLOR, modes)
    for name, symbol, color, roots in groups:
        marker = {"symbol": symbol, "color": color, "size": 11}
        x, y, text = [root.real for root in roots], [root.imag for root in roots], [*map(format_complex, roots)]
        trace = {"type": "scatter", "mode": "markers", "name": name, "x": x, "y": y, "marker": marker}
        traces.append({**trace, "text": text, "hovertemplate": "%{text}"})
    axis = {**plotly.PLOTLY_AXIS_STYLE, "range": [-size, size], "nticks": 5}
    axis |= {"zeroline": True, "zerolinecolor": "#9aa7b3"}
    layout = {"font": plotly.PLOTLY_FONT, "paper_bgcolor": "#fff", "plot_bgcolor": "#fff", "height": 240}
    layout |= {"showlegend": False, "margin": {"t": 30, "b": 30}, "xaxis": axis, "yaxis": axis, "hovermode": "closest"}
    return {"data": traces, "layout": layout}


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
