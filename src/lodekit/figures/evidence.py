"""Figures of the log evidence around the estimate: along one parameter, and over two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit import plotting
from lodekit.arguments import check_count
from lodekit.errors import LodekitError
from lodekit.figures.requests import read_pair, read_parameters, read_true_values, read_units
from lodekit.fitted import Fit
from lodekit.learning.identifiability.landscape import Landscape

__all__ = ["plot_evidence", "plot_parameters"]

Array = NDArray[np.float64]
#: What the parameters that are not shown do, and how a legend says so.
_OTHERS = {
    "following": "all else following to first order (a lower bound)",
    "fixed": "all else as learned",
    "relearned": "all else learned anew",
}
#: How far figures of the evidence reach, in standard errors.
_WIDE = 3.3


def plot_parameters(
    fit: Fit,
    names: str | Sequence[str] | None = None,
    *,
    truth: Mapping[str, float] | None = None,
    others: str = "relearned",
    points: int = 31,
    units: Mapping[str, str] | None = None,
    axes: Any = None,
) -> Any:
    """Draw each parameter: estimate, 95 % interval, and how the log evidence falls off around it.

    The interval counts all else that was learned, and is the one to believe: it comes from a normal approximation at
    the estimate, on the scale where the parameter is unconstrained, or from a profile where that is too rough, and is
    widened where residuals are correlated. A curve with all else fixed, or following to first order, is narrower.

    Parameters
    ----------
    names : str or sequence of str, optional
        Parameters of the system; all of them by default.
    truth : dict of str to float, optional
        True values of parameters, where they are known.
    others : {"relearned", "following", "fixed"}
        What all other parameters and hyperparameters do along the curve: they are learned anew at every point, the
        profile proper; follow their optimum to first order, for one evaluation a point; or stay as learned.
    points : int
        Points of each curve, five at least; more are taken where it is steep.
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
    known, true, shown = read_units(fit, units), read_true_values(fit, truth), read_parameters(fit, names)
    _check_search(others, points)
    many = len(shown) > 3
    figure, panels, new = plotting.read_axes(
        axes, shown or ["the system"], columns=2 if many else 1, height_each=1.75, share=False
    )
    if not shown:
        plotting.draw_note(panels[0], "the system has no parameters")
    for name, panel in zip(shown, panels, strict=False):
        if fit.layout.transform(name) is None:
            plotting.draw_note(panel, f"{name} = {fit.estimates[name].value:.5g}, fixed")
            continue
        _draw_profile(fit, panel, name, others, points, truth=true.get(name), unit=known.get(name, ""))
    plotting.add_legend(figure, panels, outside=new)
    return figure


def _draw_profile(fit: Fit, panel: Any, name: str, others: str, points: int, *, truth: float | None, unit: str) -> None:
    """Draw how the log evidence falls off around one parameter."""
    found, spread, what = fit.estimates[name], _spread(fit, name), fit.setup.objective.name
    with fit.setup.threads():
        moves, curve = _landscape(fit, [name], others).curve(_WIDE * spread, points)
    plotting.draw_parameter(
        panel,
        _values(fit, name, moves),
        curve,
        estimate=found.value,
        interval=found.interval if found.identified else None,
        approximation=-0.5 * (moves / spread) ** 2 if found.identified else None,
        truth=truth,
        curve_label=f"{what}, {_OTHERS[others]}",
        name=name,
        unit=unit,
        note=found.note,
    )
    panel.set_ylabel(f"\u0394 {what.replace(' + ', chr(10) + '+ ')}")


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
    """Draw the log evidence over two parameters, with 50 % and 95 % regions around the estimate.

    Parameters
    ----------
    first, second : str, optional
        Two learned parameters; by default the first two.
    truth, others, units, axes
        As in `plot_parameters`; a single panel.
    points : int
        Points along each side of the grid, five at least.

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
    known, true = read_units(fit, units), read_true_values(fit, truth)
    pair = read_pair(fit, first, second)
    _check_search(others, points)
    figure, panels, new = plotting.read_axes(axes, [" and ".join(pair)], width=4.6, height_each=3.1, share=False)
    moves = _leaning_grid(fit, pair, points)
    with fit.setup.threads():
        heights = _landscape(fit, pair, others).surface(moves)
    grid = [_values(fit, name, column).reshape(points, points) for name, column in zip(pair, moves.T, strict=True)]
    plotting.draw_evidence(
        panels[0],
        grid[0],
        grid[1],
        heights.reshape(points, points),
        estimate=[fit.estimates[name].value for name in pair],
        truth=[true[name] for name in pair] if set(pair) <= set(true) else None,
        labels=[plotting.name_with_unit(name, known.get(name, "")) for name in pair],
        bar_label=f"{fit.setup.objective.name} less its maximum",
    )
    notes = [f"{name}: {fit.estimates[name].note}" for name in pair if fit.estimates[name].note]
    panels[0].set_title("\n".join([_OTHERS[others], *notes]), fontsize="small", loc="left")
    plotting.add_legend(figure, panels, outside=new)
    return figure


def _leaning_grid(fit: Fit, pair: Sequence[str], points: int) -> Array:
    """Return moves of two parameters on the scale of the search, shape (points^2, 2).

    The grid leans with their correlation, so that narrow ridges are met, too.
    """
    u, v = (_WIDE * _spread(fit, name) * np.linspace(-1, 1, points) for name in pair)
    lean, rest = 0.0, 1.0
    if all(fit.estimates[name].identified for name in pair):
        places = [fit.layout.position(name) for name in pair]
        (a, b), (_, c) = fit.covariance[np.ix_(places, places)]
        lean, rest = b / a, math.sqrt(max(1.0 - b * b / (a * c), 1e-8))
    return np.array([(x, lean * x + rest * y) for x, y in product(u, v)])


def _check_search(others: str, points: int) -> None:
    if not isinstance(others, str) or others not in _OTHERS:
        raise LodekitError(f"expected others as one of {', '.join(map(repr, _OTHERS))}, got {others!r}")
    check_count("points", points)
    if points < 5:
        raise LodekitError(f"expected at least 5 points, got {points}")


def _spread(fit: Fit, name: str) -> float:
    """Return the standard error of a parameter on the scale of the search; one where it is not identified."""
    if not fit.estimates[name].identified:
        return 1.0
    position = fit.layout.position(name)
    return math.sqrt(fit.covariance[position, position])


def _values(fit: Fit, name: str, offsets: Array) -> Array:
    """Return the values of a parameter at `offsets` from the estimate on the scale of the search."""
    transform = fit.layout.transforms[fit.layout.names.index(name)]
    centre = float(fit.optimum.x[fit.layout.position(name)])
    return np.array([transform.forward(centre + float(step)) for step in offsets])


def _landscape(fit: Fit, names: Sequence[str], others: str) -> Landscape:
    fit.need_whole_record("evidences beside the optimum")
    places = [fit.layout.position(name) for name in names]
    return Landscape(fit.setup.objective, fit.optimum, fit.curvature, places, others)
