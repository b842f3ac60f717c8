"""Figures of what a fit leaves over, and of how channels respond to inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit import plotting
from lodekit.arguments import read_numbers, read_times
from lodekit.data.observations import Series
from lodekit.errors import LodekitError
from lodekit.figures.requests import read_parts, read_texts, read_units
from lodekit.fitted import Fit
from lodekit.learning.diagnosis.whiteness import cumulated_periodogram, periodogram_band
from lodekit.plant import FittedStateSpace, find_band, frequency_grid, state_space, step_grid
from lodekit.plant.uncertain import spreads

__all__ = ["plot_bode", "plot_residuals", "plot_step"]

Array = NDArray[np.float64]


def plot_residuals(
    fit: Fit, *, units: Mapping[str, str] | None = None, axes: Any = None, record: str | int | None = None
) -> Any:
    """Draw residuals of each observable over time, their correlations and cumulated periodogram; a row for each record.

    Where free functions remain, these are innovations, as in `diagnose`.

    Parameters
    ----------
    units : dict of str to str, optional
        As in `plot`.
    axes : sequence of matplotlib axes, optional
        Three for each observable; on a new figure by default.
    record : str or int, optional
        Which record, as in `predict`; all of them by default, twelve at most.

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
    if fit.measurements.is_summed:
        raise LodekitError("the measurements were summed and not kept, so there are no residuals to draw")
    known = read_units(fit, units)
    time = plotting.name_with_unit("t", known.get("t", ""))
    rate = _rate(known.get("t", ""))
    parts = read_parts(fit, record)
    rows = [(part, item, _title(part, item, parts)) for part in parts for item in part.measurements.series]
    kinds = [f"{what} of {title}" for *_, title in rows for what in ("residuals", "correlations", "periodogram")]
    figure, panels, new = plotting.read_axes(axes, kinds, columns=3, height_each=1.7, share=False)
    for number, (part, item, title) in enumerate(rows):
        own, found = panels[3 * number : 3 * number + 3], part.examined.remainder(item)
        check = next((each for each in part.diagnosis.checks if each.name == item.observable), None)
        last = number == len(rows) - 1
        word = "innovation" if found.innovations else "residual"
        plotting.draw_scatter(own[0], found.times, found.values, label=plotting.name_with_unit(f"{word} of {title}"))
        own[0].set_xlabel(time if last else "")
        if check is None or check.whiteness is None:
            for panel in own[1:]:
                plotting.draw_note(panel, "too few to tell")
            continue
        step = check.whiteness.step
        steps = plotting.name_with_unit("lag", f"steps of {step:.3g}{' ' + known['t'] if 't' in known else ''}")
        plotting.draw_correlations(own[1], check.whiteness.lags, len(found.values), label=steps if last else "")
        own[1].set_title("correlation", fontsize=9.0)
        frequencies, share = cumulated_periodogram(found.values)
        label = rate if last else ""
        plotting.draw_cumulated(own[2], frequencies / step, share, periodogram_band(len(share)), label=label)
        own[2].set_title("cumulated periodogram", fontsize=9.0)
    plotting.add_legend(figure, panels, outside=new)
    return figure


def _rate(unit: str) -> str:
    """Return the label of frequencies; a panel is a third of the figure wide, so that long words stand alone."""
    return plotting.name_with_unit("frequency", f"cycles per {unit}") if unit else "cycles per unit of time"


def _title(part: Fit, item: Series, parts: Sequence[Fit]) -> str:
    """Return an observable with its record where there are several."""
    return item.observable if len(parts) == 1 else f"{item.observable} of record {part.records[0]}"


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
    """Draw magnitude and phase of how channels respond to an input, with 95 % bands from the errors of parameters.

    Frequencies are shaded that measurements show little of: periods longer than the record or shorter than two steps.

    Parameters
    ----------
    output : str or sequence of str, optional
        Channels that respond, one row for each; those that were measured by default.
    input : str, optional
        The input; the first one by default.
    frequencies : array-like, shape (n,), optional
        In radians per unit of time, above zero; around the poles by default.
    inputs : sequence of str, or dict of str to str, optional
        All inputs, as in `state_space`; those of the fit by default.
    units : dict of str to str, optional
        As in `plot`.
    axes : sequence of matplotlib axes, optional
        Two for each channel; on a new figure by default.

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
    space, outputs, entry = _read(fit, output, input, inputs)
    known = read_units(fit, units)
    omega = frequency_grid(fit, space)
    if frequencies is not None:
        omega = np.sort(read_numbers("frequencies", frequencies), axis=None)
    if not len(omega) > 1 or not omega[0] > 0 or not np.isfinite(omega[-1]):
        raise LodekitError("expected two frequencies at least, all above zero and finite")
    names = [f"{part} of {name}" for name in outputs for part in ("magnitude", "phase")]
    figure, panels, new = plotting.read_axes(axes, names, columns=2, height_each=2.0, share=False)
    for number, name in enumerate(outputs):
        _draw_bode(fit, space, (name, entry), omega, panels[2 * number : 2 * number + 2], known)
    for panel in panels[-2:]:
        panel.set_xlabel(plotting.name_with_unit("frequency", f"rad per {known.get('t', 'unit of time')}"))
    plotting.add_legend(figure, panels, outside=new)
    return figure


def _draw_bode(
    fit: Fit, space: FittedStateSpace, pair: tuple[str, str], omega: Array, panels: list[Any], known: Mapping[str, str]
) -> None:
    """Draw magnitude and phase of one channel over one input."""
    name, entry = pair
    response, slopes = space.frequency_response(name, entry, omega)
    if not np.abs(response).max() > 0:
        for panel in panels:
            plotting.draw_note(panel, f"{name} does not respond to {entry}")
        return
    errors = spreads(slopes / response, space.covariance)
    plotting.draw_frequency_response(panels[0], panels[1], omega, response, errors, seen=find_band(fit))
    unit = f"{known[name]}/{known[entry]}" if {name, entry} <= set(known) else ""
    panels[0].set_ylabel(plotting.name_with_unit(f"|{name} / {entry}|", unit))
    panels[1].set_ylabel("phase (\u00b0)")


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
    """Draw how channels respond to a unit step of an input, with 95 % bands from the errors of parameters.

    Parameters
    ----------
    output, input, inputs, units
        As in `plot_bode`.
    t : array-like, shape (n,), optional
        Times after the step; five of the slowest time constants by default.
    axes : sequence of matplotlib axes, optional
        One for each channel; on a new figure by default.

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
    space, outputs, entry = _read(fit, output, input, inputs)
    known = read_units(fit, units)
    times = step_grid(fit, space) if t is None else np.sort(read_times(t))
    figure, panels, new = plotting.read_axes(axes, outputs, height_each=2.0)
    for name, panel in zip(outputs, panels, strict=True):
        values, errors = space.step_response(name, entry, times)
        gain = space.gain(name, entry)
        leads = bool(np.isfinite(gain.value)) and all(complex(pole.value).real < 0 for pole in space.poles)
        label = plotting.name_with_unit(name, known.get(name, ""))
        plotting.draw_step(
            panel, times, values, errors, gain=float(np.real(gain.value)) if leads else None, label=label
        )
    unit = f" {known[entry]}" if entry in known else ""
    since = plotting.name_with_unit(f"time since {entry} stepped from 0 to 1{unit}", known.get("t", ""))
    plotting.label_bottom(panels, since)
    plotting.add_legend(figure, panels, outside=new)
    return figure


def _read(
    fit: Fit, output: str | Sequence[str] | None, input: str | None, inputs: Mapping[str, str] | Iterable[str] | None
) -> tuple[FittedStateSpace, list[str], str]:
    """Return the state space, the channels to draw, and the input."""
    if inputs is None and not fit.measurements.inputs and input is not None:
        inputs = [input]
    space = state_space(fit, inputs)
    if not space.exact.channels:
        raise LodekitError("expected an input to which channels respond, got none; say which channels are inputs")
    entry = space.exact.channels[0] if input is None else input
    if output is None:
        measured = [name for name in space.outputs if name in fit.measurements.names]
        return space, measured or list(space.outputs), entry
    return space, read_texts(output, "channels that respond"), entry
