"""What a fitted model can show of itself: its values, computed here and drawn by `lodekit.plotting`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit import plotting
from lodekit.data.measurements import Measurements
from lodekit.data.observations import Series
from lodekit.errors import LodekitError
from lodekit.inference.checks import check_count, read_times
from lodekit.inference.densities import prior_density
from lodekit.inference.engine import Engine
from lodekit.inference.problem import Hyperparameters
from lodekit.inference.reading import ObservableReader
from lodekit.learning.fit import Penalty
from lodekit.learning.landscape import Landscape
from lodekit.learning.result import Estimate, covariance_from_hessian
from lodekit.learning.search import Optimum
from lodekit.learning.transforms import Layout
from lodekit.system.system import System

__all__ = ["Figures"]

Array = NDArray[np.float64]
#: What the parameters that are not shown do, and how a legend says so.
_OTHERS = {
    "following": "all else following to first order",
    "fixed": "all else as learned",
    "relearned": "all else learned anew",
}
#: How far figures of the evidence reach, in standard errors.
_WIDE = 3.3
_TIMES = 400


class Fitted(Protocol):
    """What figures need of a fitted model."""

    system: System
    parameters_: dict[str, Estimate]
    labels_: dict[str, Any]
    _measurements: Measurements
    _engine: Engine
    _layout: Layout
    _optimum: Optimum
    _curvature: Array
    _hyper: Hyperparameters
    _choice: Any

    @property
    def _reader(self) -> ObservableReader: ...
    @property
    def _require_fitted(self) -> Any: ...
    @property
    def _threads(self) -> Any: ...
    @property
    def predict(self) -> Any: ...
    @property
    def sample(self) -> Any: ...
    @property
    def residual(self) -> Any: ...


class Figures:
    """The figures of a fitted model; each is returned, and drawn on ``axes`` where these are given."""

    def plot(
        self: Fitted,
        t: ArrayLike | None = None,
        *,
        observable: str | Sequence[str] | None = None,
        truth: Any = None,
        samples: int = 0,
        random_state: int | None = None,
        units: Mapping[str, str] | None = None,
        axes: Any = None,
    ) -> Any:
        """Draw mean, 95 % band and data, one panel for each channel; extrapolation is shaded.

        Parameters
        ----------
        t : array-like, shape (n,), optional
            By default the time of the measurements, and a tenth more on either side.
        observable : str or sequence of str, optional
            What to show; by default all channels, and whatever else was measured.
        truth : function of times, array (n, channels) at the times t, or dict of these by name, optional
        samples : int
            How many samples to draw.
        units : dict of str to str, optional
            By the names of channels; ``"t"`` is that of time.
        axes : matplotlib axes, one for each panel, optional

        Returns
        -------
        matplotlib.figure.Figure
        """
        self._require_fitted()
        names, known = _names(self, observable), _units(self, units)
        times, order = _times(self, t)
        truths = _truths(self, truth, times, None if t is None else order, names)
        if isinstance(samples, bool) or samples != 0:
            check_count("samples", samples)
        mean, std = self.predict(times, names, return_std=True)
        drawn = self.sample(times, samples, random_state, names) if samples else None
        columns = 1 if len(names) <= 8 else 2
        figure, panels, new = plotting.read_axes(axes, names, columns=columns)
        word = "data" if self._measurements.sums is None else "averages of the data"
        for j, (name, panel) in enumerate(zip(names, panels, strict=True)):
            series = _series_of(self, name)
            plotting.draw_channel(
                panel,
                times,
                mean[:, j],
                std[:, j],
                data=None if series is None else (series.times, series.values),
                truth=truths[j],
                samples=None if drawn is None else drawn[:, :, j],
                window=self._measurements.window,
                label=plotting.name_with_unit(name, known.get(name, "")) + ("" if series else "\n(not measured)"),
                data_label=word,
            )
            if t is None:
                inside = (times >= self._measurements.window[0]) & (times <= self._measurements.window[1])
                reach = 2 * std[inside, j]
                shown = [mean[inside, j] - reach, mean[inside, j] + reach, *([] if series is None else [series.values])]
                shown += [] if truths[j] is None else [np.asarray(truths[j])]
                shown += [] if drawn is None else [drawn[:, inside, j].ravel()]
                plotting.frame(panel, shown)
        plotting.label_bottom(panels, plotting.name_with_unit("t", known.get("t", "")))
        plotting.add_legend(figure, panels, outside=new)
        if new:
            figure.align_ylabels(panels)
        return figure

    def plot_parameters(
        self: Fitted,
        names: str | Sequence[str] | None = None,
        *,
        truth: Mapping[str, float] | None = None,
        others: str = "relearned",
        points: int = 31,
        units: Mapping[str, str] | None = None,
        axes: Any = None,
    ) -> Any:
        """Draw each parameter: estimate, 95 % interval, and how the evidence falls off around it.

        The interval comes from a normal approximation at the estimate, on the scale where the parameter is
        unconstrained; where the curve of the evidence leaves the approximation, do not trust it.

        Parameters
        ----------
        names : str or sequence of str, optional
            All parameters by default.
        truth : dict of str to float, optional
        others : {"relearned", "following", "fixed"}
            What all other parameters and hyperparameters do along the curve: they are learned anew at every point, the
            profile proper; follow their optimum to first order, for one evaluation a point; or stay as learned.
        points : int
            Points of each curve, or more where it is steep.
        units, axes
            As in `plot`.
        """
        self._require_fitted()
        known, true, shown = _units(self, units), _true_values(self, truth), _parameters(self, names)
        _check_search(others, points)
        many = len(shown) > 3
        figure, panels, new = plotting.read_axes(
            axes, shown or ["the system"], columns=2 if many else 1, height_each=1.75, share=False
        )
        if not shown:
            plotting.draw_note(panels[0], "the system has no parameters")
        what = _what(self)
        for name, panel in zip(shown, panels, strict=False):
            found, number = self.parameters_[name], self._layout.names.index(name)
            if number not in self._layout.transforms:
                plotting.draw_note(panel, f"{name} = {found.value:.5g}, fixed")
                continue
            spread = _spread(self, name)
            with self._threads(self._choice, self._engine):
                moves, curve = _landscape(self, [name], others).curve(_WIDE * spread, points)
            normal = -0.5 * (moves / spread) ** 2 if found.identified else None
            plotting.draw_parameter(
                panel,
                _values(self, name, moves),
                curve,
                estimate=found.value,
                interval=found.interval if found.identified else None,
                approximation=normal,
                truth=true.get(name),
                curve_label=f"{what}, {_OTHERS[others]}",
                name=name,
                unit=known.get(name, ""),
                note=found.note,
            )
            panel.set_ylabel(f"\u0394 {what.replace(' + ', chr(10) + '+ ')}")
        plotting.add_legend(figure, panels, outside=new)
        return figure

    def plot_residual(
        self: Fitted, t: ArrayLike | None = None, *, units: Mapping[str, str] | None = None, axes: Any = None
    ) -> Any:
        """Draw how far the posterior mean is from solving each equation, relative to its terms.

        The equations are applied in closed form, without finite differences: what is left is rounding.

        Parameters
        ----------
        t, units, axes
            As in `plot`; one panel for each equation.
        """
        self._require_fitted()
        known, (times, _) = _units(self, units), _times(self, t)
        residual = self.residual(times, relative=True)
        names = [f"equation {i}" for i in range(1, len(self.system.equations) + 1)]
        columns = 1 if len(names) <= 8 else 2
        figure, panels, new = plotting.read_axes(axes, names, columns=columns, height_each=1.2)
        for j, panel in enumerate(panels):
            text = f"{names[j]}:  {self.system.equations[j]}"
            plotting.draw_residual(panel, times, residual[:, j], window=self._measurements.window, label=text)
        plotting.label_bottom(panels, plotting.name_with_unit("t", known.get("t", "")))
        plotting.add_legend(figure, panels, outside=new)
        return figure

    def plot_evidence(
        self: Fitted,
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
            As in `plot_parameters`.
        points : int
            Along each side of the grid.
        """
        self._require_fitted()
        known, true = _units(self, units), _true_values(self, truth)
        pair = _learned_pair(self, first, second)
        _check_search(others, points)
        figure, panels, new = plotting.read_axes(axes, [" and ".join(pair)], width=4.6, height_each=3.1, share=False)
        u, v = (_WIDE * _spread(self, name) * np.linspace(-1, 1, points) for name in pair)
        # The grid leans with the correlation, so that narrow ridges are met, too.
        lean, rest = 0.0, 1.0
        if all(self.parameters_[name].identified for name in pair):
            places = [_position(self, name) for name in pair]
            (a, b), (_, c) = _covariance(self)[np.ix_(places, places)]
            lean, rest = b / a, math.sqrt(max(1.0 - b * b / (a * c), 1e-8))
        moves = np.array([(x, lean * x + rest * y) for x, y in product(u, v)])
        with self._threads(self._choice, self._engine):
            heights = _landscape(self, pair, others).surface(moves)
        grid = [_values(self, name, column).reshape(points, points) for name, column in zip(pair, moves.T, strict=True)]
        plotting.draw_evidence(
            panels[0],
            grid[0],
            grid[1],
            heights.reshape(points, points),
            estimate=[self.parameters_[name].value for name in pair],
            truth=[true[name] for name in pair] if set(pair) <= set(true) else None,
            labels=[plotting.name_with_unit(name, known.get(name, "")) for name in pair],
            bar_label=f"{_what(self)} less its maximum",
        )
        notes = [f"{name}: {self.parameters_[name].note}" for name in pair if self.parameters_[name].note]
        panels[0].set_title("\n".join([_OTHERS[others], *notes]), fontsize="small", loc="left")
        plotting.add_legend(figure, panels, outside=new)
        return figure

    def plot_modes(self: Fitted, *, units: Mapping[str, str] | None = None, axes: Any = None) -> Any:
        """Draw the exponents of the modes in the complex plane, at the learned parameter values.

        Parameters
        ----------
        units, axes
            As in `plot`.
        """
        self._require_fitted()
        known = _units(self, units)
        figure, panels, _ = plotting.read_axes(axes, ["the modes"], width=4.0, height_each=2.8, share=False)
        values = {name: float(value) for name, value in zip(self._layout.names, self._hyper.theta, strict=True)}
        found: dict[complex, int] = {}
        for mode in self.system.modes:
            for root in mode.roots_at({n: v for n, v in values.items() if n in mode.ring.parameters}):
                near = next((other for other in found if abs(other - root) <= 1e-9 * (1e-9 + abs(root))), root)
                found[near] = found.get(near, 0) + mode.multiplicity
        if found:
            plotting.draw_modes(panels[0], list(found), list(found.values()), time_unit=known.get("t", ""))
        else:
            plotting.draw_note(panels[0], "no modes: the system is controllable")
        return figure

    def plot_spectrum(
        self: Fitted,
        *,
        observable: str | Sequence[str] | None = None,
        units: Mapping[str, str] | None = None,
        axes: Any = None,
    ) -> Any:
        """Draw the spectral density that the prior gives each channel, at the learned hyperparameters.

        One-sided, over cycles per unit of time: the area below is the prior variance of the channel's free part.

        Parameters
        ----------
        observable, units, axes
            As in `plot`; all channels by default.
        """
        self._require_fitted()
        names = list(self.system.channels) if observable is None else _names(self, observable)
        known = _units(self, units)
        rows = self._reader.rows(names, self._engine.prior.rows.scaling, np.ones(len(names)))
        frequencies, densities = prior_density(self._engine.prior, self._hyper, rows)
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


def _times(model: Fitted, t: ArrayLike | None) -> tuple[Array, NDArray[np.intp]]:
    """Return ascending times, and where they stood."""
    if t is None:
        return np.linspace(*model._measurements.surroundings, _TIMES), np.arange(_TIMES)
    times = read_times(t)
    order = np.argsort(times, kind="stable")
    if len(times) < 2 or times[order[0]] == times[order[-1]]:
        raise LodekitError(f"expected at least two different times to draw over, got {len(times)}; try np.linspace")
    return times[order], order


def _names(model: Fitted, observable: str | Sequence[str] | None) -> list[str]:
    """Return what to show: channels, what else was measured, or what was asked for."""
    if observable is None:
        return list(dict.fromkeys((*model.system.channels, *model._measurements.names)))
    names = [observable] if isinstance(observable, str) else observable
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise LodekitError(f'expected observables as a text or a list of texts, such as "f1\'", got {observable!r}')
    model._reader.read(names)
    return list(names)


def _units(model: Fitted, units: Mapping[str, str] | None) -> Mapping[str, str]:
    if units is None:
        units = model.labels_.get("units", {})
    if not isinstance(units, Mapping) or not all(isinstance(text, str) for pair in units.items() for text in pair):
        raise LodekitError(f"expected units as a dict of names to texts, such as {{'t': 's'}}, got {units!r}")
    return units


def _series_of(model: Fitted, name: str) -> Series | None:
    """Return the measurements of an observable, however it was written; averages where there are only sums."""
    for series in model._measurements.shown:
        if series.observable == name or model._reader.read([series.observable]) == model._reader.read([name]):
            return series
    return None


def _truths(
    model: Fitted, truth: Any, times: Array, order: NDArray[np.intp] | None, names: Sequence[str]
) -> list[Array | None]:
    """Return the true values of each observable that is shown, where they are known; order is None without times."""
    if truth is None:
        return [None] * len(names)
    if isinstance(truth, Mapping):
        unknown = [name for name in truth if name not in names]
        if unknown:
            raise LodekitError(f"truth names {unknown[0]!r}, which is not shown; expected some of {', '.join(names)}")
        return [_truths(model, truth[name], times, order, [name])[0] if name in truth else None for name in names]
    if not callable(truth) and order is None:
        raise LodekitError("expected times t beside an array of true values; or give truth as a function of times")
    try:
        values = np.asarray(truth(times) if callable(truth) else truth, dtype=float)
    except (TypeError, ValueError) as problem:
        raise LodekitError(f"expected truth as numbers, or as a function of an array of times: {problem}") from None
    values = values[:, None] if values.ndim == 1 else values
    channels = model.system.channels
    if values.ndim != 2 or len(values) != len(times) or values.shape[1] not in (len(names), len(channels)):
        raise LodekitError(f"expected true values of shape ({len(times)}, {len(names)}), got {values.shape}")
    if order is not None and not callable(truth):
        values = values[order]
    columns = dict(zip(names if values.shape[1] == len(names) else channels, values.T, strict=True))
    return [columns.get(name) for name in names]


def _parameters(model: Fitted, names: str | Sequence[str] | None) -> list[str]:
    known = list(model.parameters_)
    found = known if names is None else [names] if isinstance(names, str) else list(names)
    for name in found:
        if name not in known:
            raise LodekitError(f"unknown parameter {name!r}; expected some of: {', '.join(known) or 'none'}")
    return found


def _true_values(model: Fitted, truth: Mapping[str, float] | None) -> Mapping[str, float]:
    if truth is None:
        return {}
    if not isinstance(truth, Mapping):
        raise LodekitError(f"expected truth as a dict of parameter names to numbers, got {type(truth).__name__}")
    try:
        return {name: float(truth[name]) for name in _parameters(model, list(truth))}
    except (TypeError, ValueError):
        raise LodekitError(f"expected truth as a dict of parameter names to numbers, got {truth!r}") from None


def _learned_pair(model: Fitted, first: str | None, second: str | None) -> list[str]:
    """Return two parameters that were learned."""
    learned = [model._layout.names[number] for number in model._layout.free]
    given = _parameters(model, [name for name in (first, second) if name is not None])
    pair = list(dict.fromkeys([*given, *[name for name in learned if name not in given]]))[:2]
    if len(pair) < 2 or len(set(given)) < len(given) or not set(pair) <= set(learned):
        known = ", ".join(learned) or "none"
        raise LodekitError(f"expected two different learned parameters, got {first!r} and {second!r}; learned: {known}")
    return pair


def _check_search(others: str, points: int) -> None:
    if others not in _OTHERS:
        raise LodekitError(f"expected others as one of {', '.join(map(repr, _OTHERS))}, got {others!r}")
    check_count("points", points)
    if points < 5:
        raise LodekitError(f"expected at least 5 points, got {points}")


def _position(model: Fitted, name: str) -> int:
    return model._layout.free.index(model._layout.names.index(name))


def _covariance(model: Fitted) -> Array:
    """Return the covariance of everything learned, where it is unconstrained."""
    return covariance_from_hessian(model._curvature, ~model._optimum.at_bound)


def _spread(model: Fitted, name: str) -> float:
    """Return the standard error of a parameter, where it is unconstrained; one where it is not identified."""
    if not model.parameters_[name].identified:
        return 1.0
    position = _position(model, name)
    return math.sqrt(_covariance(model)[position, position])


def _values(model: Fitted, name: str, offsets: Array) -> Array:
    """Return parameter values at steps from the estimate."""
    transform = model._layout.transforms[model._layout.names.index(name)]
    centre = float(model._optimum.x[_position(model, name)])
    return np.array([transform.forward(centre + float(step)) for step in offsets])


def _what(model: Fitted) -> str:
    priors = any(model.system.parameters[name].prior is not None for name in model._layout.names)
    return "log evidence + log prior" if priors else "log evidence"


def _landscape(model: Fitted, names: Sequence[str], others: str) -> Landscape:
    penalty = Penalty(model._layout, model.system.parameters)
    places = [_position(model, name) for name in names]
    return Landscape(model._engine, model._layout, model._optimum, model._curvature, penalty, places, others)
