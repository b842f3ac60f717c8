"""Figures for Plotly in the colours of the report, on light and on dark ground, with words that say what they show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.estimates import NORMAL_95
from lodekit.page import plot_text
from lodekit.report.panels import Panel, stack
from lodekit.report.subject import BAND_COLOUR, DATA_COLOUR, MEAN_COLOUR, TRUTH_COLOUR, plain, thin
from lodekit.validated import Validation

__all__ = [
    "add_samples",
    "describe_exponents",
    "draw_exponents",
    "draw_record",
    "draw_validation",
    "on_ground",
]

Array = NDArray[np.float64]
Figure = dict[str, Any]
#: What is drawn from the posterior, and windows of fit and validation.
SAMPLE_COLOUR, FIT_GROUND, HELD_GROUND = "rgba(0,158,115,0.55)", "rgba(0,114,178,0.10)", "rgba(213,94,0,0.12)"
#: The same colours where the ground is dark.
_DARK = {
    DATA_COLOUR: "#c9d1d9",
    MEAN_COLOUR: "#56b4e9",
    BAND_COLOUR: "rgba(86,180,233,0.25)",
    TRUTH_COLOUR: "#e69f00",
    SAMPLE_COLOUR: "rgba(0,200,150,0.55)",
    FIT_GROUND: "rgba(86,180,233,0.14)",
    HELD_GROUND: "rgba(230,159,0,0.16)",
    # Text, grid, axes and dotted lines of the report; the page shines through where the report is white.
    "#1b2733": "#e6edf3",
    "#e6ebef": "#2d343c",
    "#c5ced6": "#4a545f",
    "#9aa7b3": "#6b7783",
    "#fff": "rgba(0,0,0,0)",
}
_LIGHT = {"#fff": "rgba(0,0,0,0)"}
#: Height of a panel; and how many points are drawn small and pale, so that they can be told apart.
_PANEL, _MANY = 150, 300


def on_ground(figure: Mapping[str, Any], *, dark: bool) -> Figure:
    """Return a figure in the colours of a light or a dark page.

    Parameters
    ----------
    figure : dict
        With data and layout, in the colours of the report.
    dark : bool
    """
    colours = _DARK if dark else _LIGHT

    def change(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: each if key in ("x", "y", "customdata") else change(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [change(each) for each in value]
        if isinstance(value, str):
            for old, new in colours.items():
                value = new if value == old else value.replace(f"color:{old}", f"color:{new}")
        return value

    changed: Figure = change(figure)
    changed["layout"] = {**changed["layout"], "margin": {**changed["layout"].get("margin", {}), "l": 52, "r": 8}}
    return changed


def _points(name: str, times: Array, values: Array) -> dict[str, Any]:
    chosen = thin(len(times))
    many = len(chosen) > _MANY
    return {
        "name": name,
        "x": plain(times[chosen], 12),
        "y": plain(values[chosen]),
        "mode": "markers",
        "marker": {"color": DATA_COLOUR, "size": 3 if many else 5, "opacity": 0.45 if many else 0.8},
    }


def _limits(*parts: Array) -> tuple[float, float]:
    values = np.concatenate([part[np.isfinite(part)] for part in parts])
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def _time_label(unit: str, origin: str = "") -> str:
    text = f"t in {unit}" if unit else "t"
    return plot_text(f"{text} since {origin}" if origin else text)


def draw_record(
    panels: Mapping[str, tuple[Array, Array]],
    *,
    titles: Mapping[str, str],
    held: Sequence[str] = (),
    window: tuple[float, float],
    fitted: tuple[float, float] | None = None,
    held_out: tuple[float, float] | None = None,
    time_unit: str = "",
    origin: str = "",
) -> Figure:
    """Return a plot of a record as it is: one panel for each column, windows of fit and validation on coloured ground.

    Parameters
    ----------
    panels : dict of str to (times, values)
    titles : dict of str to str
        What stands above a panel.
    held : sequence of str
        Panels of what is held between samples, which are drawn as steps.
    window : (float, float)
        The first and the last time.
    fitted, held_out : (float, float), optional
        The windows of fit and validation.
    time_unit, origin : str
        Of the time, where they are known.
    """
    made = []
    for name, (times, values) in panels.items():
        trace = _points("measurements", times, values)
        if name in held:
            line = {"color": MEAN_COLOUR, "width": 1.5, "shape": "hv"}
            trace |= {"name": "known input", "mode": "lines", "line": line}
        head, dash, rest = titles.get(name, name).partition(" – ")
        made.append(Panel(f"<b>{plot_text(head)}</b>{plot_text(dash + rest)}", [trace], _limits(values)))
    data, layout = stack(
        made, height=_PANEL if len(made) < 6 else 90, label=_time_label(time_unit, origin), span=window
    )
    grounds = [(colour, part) for colour, part in ((FIT_GROUND, fitted), (HELD_GROUND, held_out)) if part is not None]
    for colour, (first, last) in grounds:
        for number in range(1, len(made) + 1):
            axis = "y domain" if number == 1 else f"y{number} domain"
            ground = {
                "type": "rect",
                "xref": "x",
                "yref": axis,
                "y0": 0,
                "y1": 1,
                "layer": "below",
                "line": {"width": 0},
            }
            layout["shapes"].append({**ground, "x0": first, "x1": last, "fillcolor": colour})
    layout["dragmode"] = "select"
    layout["selectdirection"] = "h"
    return {"data": data, "layout": layout}


def add_samples(
    data: Sequence[Mapping[str, Any]], panels: Sequence[str], names: Sequence[str], times: Array, drawn: Array
) -> list[dict[str, Any]]:
    """Return traces with functions drawn from the posterior behind them.

    Parameters
    ----------
    data : sequence of dict
        Traces of a stack of panels.
    panels, names : sequence of str
        What the panels show, from top to bottom, and what was drawn.
    times : array, shape (n,)
    drawn : array, shape (s, n, names)
    """
    made: list[dict[str, Any]] = []
    for number, name in enumerate(panels, 1):
        for one in drawn[:, :, names.index(name)] if name in names else ():
            made.append(
                {
                    "name": "samples",
                    "x": plain(times, 12),
                    "y": plain(one, 6),
                    "mode": "lines",
                    "line": {"color": SAMPLE_COLOUR, "width": 1},
                    "hoverinfo": "skip",
                    "type": "scatter",
                    "xaxis": "x",
                    "yaxis": "y" if number == 1 else f"y{number}",
                    "legendgroup": "samples",
                    "showlegend": not made,
                }
            )
    return [*made, *(dict(trace) for trace in data)]


def draw_validation(found: Validation, units: Mapping[str, str]) -> Figure:
    """Return a plot of a free run over the measurements of a record that was not used.

    Parameters
    ----------
    found : Validation
    units : dict of str to str
        Of channels, and of ``t``.
    """
    panels = []
    for item in found.channels:
        low, high = item.mean - NORMAL_95 * item.std, item.mean + NORMAL_95 * item.std
        times = plain(item.times, 12)
        band = {
            "name": "95 % band of a measurement",
            "x": times + times[::-1],
            "y": plain(high) + plain(low[::-1]),
            "mode": "lines",
            "line": {"width": 0},
            "fill": "toself",
            "fillcolor": BAND_COLOUR,
            "hoverinfo": "skip",
        }
        line = {"color": MEAN_COLOUR, "width": 2}
        mean = {"name": "free run", "x": times, "y": plain(item.mean), "mode": "lines", "line": line}
        unit = f" in {units[item.name]}" if units.get(item.name) else ""
        title = f"<b>{plot_text(item.name)}</b>{plot_text(unit)}"
        title += "" if math.isnan(item.fit_percent) else f" – fit {item.fit_percent:.1f} %"
        traces = [band, _points("held-out measurements", item.times, item.values), mean]
        panels.append(Panel(title, traces, _limits(low, high, item.values)))
    every = np.concatenate([item.times for item in found.channels])
    span = float(every.min()), float(every.max())
    data, layout = stack(panels, height=_PANEL, label=_time_label(units.get("t", "")), span=span)
    return {"data": data, "layout": layout}


def draw_exponents(roots: Sequence[complex], fixed: Sequence[complex] = ()) -> str:
    """Return the complex plane with exponents in it as SVG, in the colour of the text around it.

    Parameters
    ----------
    roots : sequence of complex
        Poles of the response: crosses.
    fixed : sequence of complex
        Modes that nothing can influence: filled circles.
    """
    every = [complex(root) for root in (*roots, *fixed)]
    size = 1.25 * max([abs(part) for root in every for part in (root.real, root.imag)] or [1.0]) or 1.0

    def place(root: complex) -> tuple[float, float]:
        return 130 + 105 * root.real / size, 130 - 105 * root.imag / size

    words = describe_exponents(roots, fixed)
    marks = []
    for root in roots:
        x, y = place(root)
        cross = f"M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12"
        marks.append(f'<path d="{cross}" stroke="{MEAN_COLOUR}" stroke-width="3" fill="none"/>')
    for root in fixed:
        x, y = place(root)
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{TRUTH_COLOUR}"/>')
    tick = f'<text x="138" y="50">{size / 1.25:.3g} i</text>'
    tick += f'<text x="46" y="148" text-anchor="middle">−{size / 1.25:.3g}</text>'
    return (
        f'<svg viewBox="0 0 260 260" role="img" aria-label="{escape(words)}" class="plane">'
        '<rect x="12" y="12" width="118" height="236" fill="currentColor" opacity="0.05"/>'
        '<g stroke="currentColor" opacity="0.45"><path d="M12 130H248M130 12V248"/>'
        f'<path d="M46 126v8M126 46h8"/></g><g font-size="11" fill="currentColor" opacity="0.7">{tick}</g>'
        f"{''.join(marks)}</svg>"
    )


def describe_exponents(roots: Sequence[complex], fixed: Sequence[complex] = ()) -> str:
    """Return where exponents lie in the complex plane, in words.

    Parameters
    ----------
    roots : sequence of complex
        Poles of the response.
    fixed : sequence of complex
        Modes that nothing can influence.

    Examples
    --------
    >>> describe_exponents([-1 - 2j, -1 + 2j])
    'Complex plane with poles at -1 - 2i, -1 + 2i'
    """
    parts = []
    for what, own in (("poles", roots), ("modes that nothing can influence", fixed)):
        if own:
            parts.append(f"{what} at {', '.join(_shown(complex(root)) for root in own)}")
    return f"Complex plane with {' and '.join(parts)}" if parts else "Complex plane without exponents"


def _shown(root: complex) -> str:
    if not root.imag:
        return f"{root.real:.4g}"
    return f"{root.real:.4g} {'-' if root.imag < 0 else '+'} {abs(root.imag):.4g}i"
