"""The plant as control engineers know it: gains, time constants, poles, step responses and Bode plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.learning.estimates import NORMAL_95
from lodekit.page import Page, plot_text
from lodekit.plant import FittedStateSpace, Uncertain, find_band, frequency_grid, state_space, step_grid
from lodekit.plant.uncertain import spreads
from lodekit.report.panels import Panel, band_trace, stack
from lodekit.report.subject import MEAN_COLOUR, Subject, plain
from lodekit.rounding import format_uncertain

__all__ = ["add_plant"]

Array = NDArray[np.float64]
#: So many pairs of an output and an input are shown at most.
_MOST = 6


def add_plant(page: Page, subject: Subject) -> None:
    """Add what measured channels do under known inputs: numbers, step responses, frequency responses.

    Parameters
    ----------
    page : Page
        What is added to.
    subject : Subject
        The fitted model, and what the user said about it; nothing is added without known inputs.
    """
    fit = subject.gp.fit_
    if not fit.measurements.inputs:
        return
    space = state_space(fit)
    entries = list(dict.fromkeys(space.exact.channels))
    outputs = [name for name in space.outputs if name in fit.measurements.names] or list(space.outputs)
    pairs = [(output, entry) for output in outputs for entry in entries][:_MOST]
    page.section("The plant")
    head = ["response", "static gain", "time constants", "dead time", "poles", "zeros"]
    page.table(head, [_describe(subject, space, *pair) for pair in pairs], text=range(1, len(head)))
    if len(outputs) * len(entries) > _MOST:
        page.paragraph(f"The first {_MOST} of {len(outputs) * len(entries)} responses are shown.", "note")
    if fit.prior.latents:
        page.paragraph("What free functions add to the channels is not in these responses.", "note")
    _add_steps(page, subject, space, pairs)
    _add_bode(page, subject, space, pairs)


def _ratio(subject: Subject, output: str, entry: str) -> str:
    over = [subject.unit(name).strip() for name in (output, entry)]
    return "/".join(over) if all(over) else ""


def _describe(subject: Subject, space: FittedStateSpace, output: str, entry: str) -> list[str]:
    """Return gain, time constants, dead time, complex poles and zeros of one response; empty where there is none."""
    title, unit = f"{entry} → {output}", subject.unit("t").strip()
    ratio, rate = _ratio(subject, output, entry), f"1/{unit}" if unit else ""
    try:
        found = space.transfer_function(output, entry)
    except LodekitError:
        # Several dead times make no ratio of polynomials.
        return [title, _list([space.gain(output, entry)], ratio), "", "", "", ""]
    # Real poles are told by their time constants.
    poles = [pole for pole in found.poles if complex(pole.value).imag]
    late = [found.delay] if found.delay.value else []
    parts = ([found.gain], ratio), (found.time_constants, unit), (late, unit), (poles, rate), (found.zeros, rate)
    return [title, *(_list(numbers, own) for numbers, own in parts)]


def _list(numbers: Sequence[Uncertain], unit: str) -> str:
    shown = ", ".join(map(_show, numbers))
    return f"{shown} {unit}".strip() if shown else ""


def _show(number: Uncertain) -> str:
    value = complex(number.value)
    if not np.isfinite(value):
        return "infinite"
    if value.imag:
        return repr(number).replace("+-", "±")
    return format_uncertain(value.real, number.std_error)


def _curve(x: Sequence[float], y: Array, band: Array, hover: str) -> dict[str, Any]:
    return {
        "name": "learned",
        "x": list(x),
        "y": plain(y),
        "customdata": plain(band, 3),
        "mode": "lines",
        "line": {"color": MEAN_COLOUR, "width": 2},
        "hovertemplate": f"{hover}<extra></extra>",
    }


def _add_steps(page: Page, subject: Subject, space: FittedStateSpace, pairs: Sequence[tuple[str, str]]) -> None:
    """Add responses to unit steps, one panel each."""
    times = step_grid(subject.gp.fit_, space)
    x, panels = plain(times, 12), []
    for output, entry in pairs:
        try:
            values, errors = space.step_response(output, entry, times)
        except LodekitError:
            # What follows the slope of an input jumps to infinity at a step.
            continue
        band = NORMAL_95 * errors
        unit, at = subject.unit(output), subject.unit("t")
        hover = f"{plot_text(output)} = %{{y:.4~g}}{plot_text(unit)} ± %{{customdata:.2~g}}"
        hover += f"<br>%{{x:.4~g}}{plot_text(at)} after the step"
        title = f"<b>{plot_text(output)}</b>{' in' + plot_text(unit) if unit else ''}"
        title += f" after {plot_text(entry)} went from 0 to 1{plot_text(subject.unit(entry))}"
        traces = [band_trace(x, values - band, values + band), _curve(x, values, band, hover)]
        limits = min(0.0, float((values - band).min())), max(0.0, float((values + band).max()))
        panels.append(Panel(title, traces, limits))
    if panels:
        unit = subject.unit("t")
        label = plot_text(f"time after the step{' in' + unit if unit else ''}")
        caption = "Step responses from rest; bands come from the standard errors of the parameters."
        page.plot(*stack(panels, height=150, label=label, span=(0.0, float(times[-1]))), caption)


def _add_bode(page: Page, subject: Subject, space: FittedStateSpace, pairs: Sequence[tuple[str, str]]) -> None:
    """Add magnitudes and phases over frequency, two panels for each response."""
    fit = subject.gp.fit_
    omega = frequency_grid(fit, space)
    x, panels = plain(omega, 6), []
    for output, entry in pairs:
        response, slopes = space.frequency_response(output, entry, omega)
        if not np.abs(response).min() > 0:
            continue
        relative, angle = spreads(slopes / response, space.covariance)
        size, wide = 20 * np.log10(np.abs(response)), 20 / np.log(10) * NORMAL_95 * relative
        phase, turn = np.degrees(np.unwrap(np.angle(response))), np.degrees(NORMAL_95 * angle)
        unit = _ratio(subject, output, entry)
        where = f"<br>at %{{x:.3~g}} rad{'/' + plot_text(subject.unit('t').strip()) if subject.unit('t') else ''}"
        ratio = f"<b>{plot_text(output)} / {plot_text(entry)}</b>"
        traces = [
            band_trace(x, size - wide, size + wide),
            _curve(x, size, wide, f"%{{y:.1f}} ± %{{customdata:.2~g}} dB{where}"),
        ]
        title = f"{ratio}, magnitude in dB{' of 1 ' + plot_text(unit) if unit else ''}"
        panels.append(Panel(title, traces, (float((size - wide).min()), float((size + wide).max()))))
        traces = [
            band_trace(x, phase - turn, phase + turn),
            _curve(x, phase, turn, f"%{{y:.1f}} ± %{{customdata:.2~g}}°{where}"),
        ]
        limits = float((phase - turn).min()), float((phase + turn).max())
        panels.append(Panel(f"{ratio}, phase in °", traces, limits, ticks=_degrees(*limits)))
    if not panels:
        return
    unit = subject.unit("t").strip()
    label = plot_text(f"frequency in rad{'/' + unit if unit else ' per unit of time'}")
    low, high = find_band(fit)
    first, last = float(omega[0]), float(omega[-1])
    shaded = [pair for pair in ((first, min(low, last)), (max(high, first), last)) if pair[0] < pair[1]]
    caption = "Frequency responses with 95 % bands."
    caption += " Grey: slower than the record is long, or faster than two rows show." if shaded else ""
    page.plot(*stack(panels, height=130, label=label, span=(first, last), shaded=shaded, log=True), caption)


def _degrees(low: float, high: float) -> tuple[float, ...]:
    """Return multiples of 45 degrees, or of more, within limits and one beyond."""
    step = 45.0 * max(1, round((high - low) / 250))
    return tuple(step * k for k in range(int(np.floor(low / step)), int(np.ceil(high / step)) + 1))
