"""Traces and layout for Plotly: panels above each other over one time axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.report.subject import BAND_COLOUR, plain

__all__ = ["Panel", "band_trace", "stack"]

Array = NDArray[np.float64]
_FONT = {"family": "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif", "size": 13, "color": "#1b2733"}
_GRID = {"gridcolor": "#e6ebef", "linecolor": "#c5ced6", "showline": True, "zeroline": False}
_SHADE = {"type": "rect", "xref": "x", "y0": 0, "y1": 1, "line": {"width": 0}, "fillcolor": "rgba(120,130,140,0.13)"}
_LINE = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"width": 1, "color": "#9aa7b3", "dash": "dot"}}
#: Pixels between panels.
_GAP = 38


@dataclass(frozen=True)
class Panel:
    """One plot in a stack of plots over the same time.

    Parameters
    ----------
    title : str
        A label, made with `plot_text`.
    traces : list of dict
        As Plotly wants them, without axes; traces of one name are one entry of the legend.
    limits : (float, float)
        The smallest and the largest value to be seen at first.
    lines : tuple of float
        Values at which a dotted line goes across; the only ones that are named on the axis.
    ticks : tuple of float
        Values that are named on the axis instead.
    """

    title: str
    traces: Sequence[Mapping[str, Any]]
    limits: tuple[float, float]
    lines: tuple[float, ...] = ()
    ticks: tuple[float, ...] = ()


def band_trace(x: Sequence[float], low: Array, high: Array) -> dict[str, Any]:
    """Return a band of 95 % around a curve as a trace.

    Parameters
    ----------
    x : sequence of float
        Times or frequencies, ascending.
    low, high : arrays, shape (n,)
        Where the band begins and ends there.
    """
    return {
        "name": "95 % band",
        "x": [*x, *x[::-1]],
        "y": plain(high) + plain(low[::-1]),
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": BAND_COLOUR,
        "hoverinfo": "skip",
    }


def stack(
    panels: Sequence[Panel],
    *,
    height: int,
    label: str,
    span: tuple[float, float],
    shaded: Sequence[tuple[float, float]] = (),
    log: bool = False,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return traces and layout of panels above each other with one time axis.

    Parameters
    ----------
    panels : sequence of Panel
        From top to bottom.
    height : int
        Of one panel, in pixels.
    label : str
        Of the time axis, made with `plot_text`.
    span : (float, float)
        The times to be seen at first.
    shaded : sequence of (float, float)
        Times on a grey ground.
    log : bool
        Whether the axis is one of frequencies, which are seen in powers of ten.
    """
    named = dict.fromkeys(str(trace["name"]) for panel in panels for trace in panel.traces)
    above, below = 66 if len(named) > 1 else 36, 48
    area = len(panels) * (height + _GAP) - _GAP
    layout: dict[str, Any] = {
        "height": area + above + below,
        "margin": {"l": 60, "r": 12, "t": above, "b": below},
        "font": _FONT,
        "paper_bgcolor": "#fff",
        "plot_bgcolor": "#fff",
        "hovermode": "closest",
        "showlegend": len(named) > 1,
        "legend": {"orientation": "h", "x": 0, "y": 1 + 30 / area, "xanchor": "left", "yanchor": "bottom"},
        "xaxis": {
            **_GRID,
            "title": {"text": label, "font": {"size": 13}},
            "range": list(span),
            "exponentformat": "none",
            "anchor": f"y{len(panels)}" if len(panels) > 1 else "y",
        },
        "annotations": [],
        "shapes": [],
    }
    if log:
        ends = [math.log10(edge) for edge in span]
        layout["xaxis"] |= {"type": "log", "range": ends, "exponentformat": "power", "dtick": 1}
    for number, panel in enumerate(panels, 1):
        axis = _axis_name(number)
        layout[axis.replace("y", "yaxis")] = _vertical_axis(panel, height, area - (number - 1) * (height + _GAP), area)
        layout["annotations"].append(_title(panel, axis))
        layout["shapes"] += _shapes(panel, axis, shaded)
    return _place_traces(panels), layout


def _axis_name(number: int) -> str:
    """Return what Plotly calls the vertical axis of a panel, counted from one."""
    return "y" if number == 1 else f"y{number}"


def _vertical_axis(panel: Panel, height: int, top: int, area: int) -> dict[str, Any]:
    """Return the vertical axis of a panel whose upper edge lies at `top` pixels of `area`."""
    low, high = panel.limits
    named = panel.ticks or panel.lines
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return {
        **_GRID,
        "domain": [max(top - height, 0) / area, top / area],
        "range": [low - margin, high + margin],
        "anchor": "x",
        "exponentformat": "power",
        **({"tickvals": list(named)} if named else {"nticks": max(height // 32, 3)}),
    }


def _title(panel: Panel, axis: str) -> dict[str, Any]:
    title = {"text": panel.title, "x": 0, "y": 1, "xref": "paper", "yref": f"{axis} domain", "showarrow": False}
    return {**title, "xanchor": "left", "yanchor": "bottom", "align": "left"}


def _shapes(panel: Panel, axis: str, shaded: Sequence[tuple[float, float]]) -> list[dict[str, Any]]:
    """Return the grey grounds and the dotted lines of a panel."""
    grounds = [
        {**_SHADE, "x0": start, "x1": stop, "yref": f"{axis} domain", "layer": "below"} for start, stop in shaded
    ]
    return grounds + [{**_LINE, "y0": value, "y1": value, "yref": axis, "layer": "below"} for value in panel.lines]


def _place_traces(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Return the traces with their axes; the first of a name stands for all of them in the legend."""
    placed: list[dict[str, Any]] = []
    seen: set[str] = set()
    for number, panel in enumerate(panels, 1):
        for trace in panel.traces:
            name = str(trace["name"])
            place = {"type": "scatter", "xaxis": "x", "yaxis": _axis_name(number), "legendgroup": name}
            placed.append({**trace, **place, "showlegend": name not in seen})
            seen.add(name)
    return placed
