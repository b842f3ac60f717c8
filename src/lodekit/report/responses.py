"""The section on the plant: gains, time constants, poles, step responses and Bode plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lodekit.errors import LodekitError
from lodekit.report.panels import (
    PLOTLY_MEAN_COLOR,
    PlotlyPanel,
    ReportContext,
    band_trace,
    line_trace,
    round_values,
    stack_panels,
)
from lodekit.results.state_space import (
    FittedStateSpace,
    Uncertain,
    data_frequency_band,
    delta_method_std,
    frequency_grid,
    state_space,
    step_grid,
)
from lodekit.support.arguments import Array
from lodekit.support.html import HtmlPage, escape_plotly
from lodekit.support.text import format_uncertain
from lodekit.uncertainty.estimates import NORMAL_QUANTILE_95


def add_input_responses(page: HtmlPage, context: ReportContext, max_responses: int = 6) -> None:
    """Add the responses of measured channels to known inputs: numbers, step responses, Bode plots."""
    fit = context.fit
    if not fit.measurements.inputs:
        return
    space = state_space(fit)
    entries = list(dict.fromkeys(space.exact.channels))
    outputs = [name for name in space.outputs if name in fit.measurements.names] or list(space.outputs)
    pairs = [(output, entry) for output in outputs for entry in entries][:max_responses]
    page.add_section("Input responses")
    head = ["response", "static gain", "time constants", "natural frequency", "damping ratio", "dead time", "zeros"]
    rows = [_response_table_row(context, space, *pair) for pair in pairs]
    page.add_table(head, rows, text_columns=range(1, len(head)))
    if len(outputs) * len(entries) > max_responses:
        page.add_paragraph(f"The first {max_responses} of {len(outputs) * len(entries)} responses are shown.", "note")
    if fit.prior.kernels:
        page.add_paragraph("These responses do not include the contribution of free functions.", "note")
    _add_step_responses(page, context, space, pairs)
    _add_bode_plots(page, context, space, pairs)


def _unit_ratio(context: ReportContext, output: str, input_name: str) -> str:
    over = [context.unit_suffix(name).strip() for name in (output, input_name)]
    return "/".join(over) if all(over) else ""


def _response_table_row(context: ReportContext, space: FittedStateSpace, output: str, input_name: str) -> list[str]:
    """Return gain, time constants, oscillations, dead time and zeros of one response; empty if there is none."""
    title, unit = f"{input_name} → {output}", context.unit_suffix("t").strip()
    ratio, rate = _unit_ratio(context, output, input_name), f"1/{unit}" if unit else ""
    try:
        found = space.transfer_function(output, input_name)
    except LodekitError:
        # With several dead times there is no rational transfer function.
        return [title, _format_estimates([space.gain(output, input_name)], ratio), "", "", "", "", ""]
    late = [found.delay] if found.delay.value else []
    speeds = found.natural_frequencies, f"rad/{unit}" if unit else ""
    parts = [([found.gain], ratio), (found.time_constants, unit), speeds, (found.damping_ratios, "")]
    return [title, *(_format_estimates(numbers, own) for numbers, own in [*parts, (late, unit), (found.zeros, rate)])]


def _format_estimates(numbers: Sequence[Uncertain], unit: str) -> str:
    """Return numbers with their errors and a unit; empty if there are none."""
    texts = []
    for number in numbers:
        value = complex(number.value)
        text = repr(number).replace("+-", "±") if value.imag else format_uncertain(value.real, number.std_error)
        texts.append(text if np.isfinite(value) else "infinite")
    return f"{', '.join(texts)} {unit}".strip() if texts else ""


def _response_panel(
    title: str,
    x: list[float],
    values: Array,
    band: Array,
    hover: str,
    limits: tuple[float, float] | None = None,
    **options: Any,
) -> PlotlyPanel:
    """Return the panel of a response with its 95 % band; the limits are those of the band by default."""
    low, high = values - band, values + band
    y = round_values(values)
    curve = line_trace("estimate", list(x), y, PLOTLY_MEAN_COLOR, f"{hover}<extra></extra>", errors=band)
    return PlotlyPanel(
        title, [band_trace(x, low, high), curve], limits or (float(low.min()), float(high.max())), **options
    )


def _add_step_responses(
    page: HtmlPage, context: ReportContext, space: FittedStateSpace, pairs: Sequence[tuple[str, str]]
) -> None:
    """Add responses to unit steps, one panel each."""
    times = step_grid(context.fit, space)
    x, panels = round_values(times, 12), []
    for output, entry in pairs:
        try:
            values, errors = space.step_response(output, entry, times)
        except LodekitError:
            # An output that depends on the derivative of an input has no step response.
            continue
        band = NORMAL_QUANTILE_95 * errors
        unit, at = context.unit_suffix(output), context.unit_suffix("t")
        hover = f"{escape_plotly(output)} = %{{y:.4~g}}{escape_plotly(unit)} ± %{{customdata:.2~g}}"
        hover += f"<br>%{{x:.4~g}}{escape_plotly(at)} after the step"
        title = f"<b>{escape_plotly(output)}</b>{' in' + escape_plotly(unit) if unit else ''}"
        title += f" after {escape_plotly(entry)} steps from 0 to 1{escape_plotly(context.unit_suffix(entry))}"
        limits = min(0.0, float((values - band).min())), max(0.0, float((values + band).max()))
        panels.append(_response_panel(title, x, values, band, hover, limits))
    if panels:
        unit = context.unit_suffix("t")
        label = escape_plotly(f"time after the step{' in' + unit if unit else ''}")
        caption = "Step responses from rest; bands come from the standard errors of the parameters."
        page.add_plot(*stack_panels(panels, height=150, time_label=label, span=(0.0, float(times[-1]))), caption)


def _add_bode_plots(
    page: HtmlPage, context: ReportContext, space: FittedStateSpace, pairs: Sequence[tuple[str, str]]
) -> None:
    """Add magnitudes and phases over frequency, two panels for each response."""
    fit = context.fit
    omega = frequency_grid(fit, space)
    x, panels = round_values(omega, 6), []
    for output, entry in pairs:
        response, slopes = space.frequency_response(output, entry, omega)
        if not np.abs(response).min() > 0:
            continue
        relative, angle = delta_method_std(slopes / response, space.covariance)
        size, wide = 20 * np.log10(np.abs(response)), 20 / np.log(10) * NORMAL_QUANTILE_95 * relative
        phase, turn = np.degrees(np.unwrap(np.angle(response))), np.degrees(NORMAL_QUANTILE_95 * angle)
        unit = _unit_ratio(context, output, entry)
        time_unit = escape_plotly(context.unit_suffix("t").strip())
        where = f"<br>at %{{x:.3~g}} rad{'/' + time_unit if time_unit else ''}"
        ratio = f"<b>{escape_plotly(output)} / {escape_plotly(entry)}</b>"
        title = f"{ratio}, magnitude (dB{' re 1 ' + escape_plotly(unit) if unit else ''})"
        hover = f"%{{y:.1f}} ± %{{customdata:.2~g}} dB{where}"
        panels.append(_response_panel(title, x, size, wide, hover))
        ticks = _phase_ticks(float((phase - turn).min()), float((phase + turn).max()))
        hover = f"%{{y:.1f}} ± %{{customdata:.2~g}}°{where}"
        panels.append(_response_panel(f"{ratio}, phase in °", x, phase, turn, hover, ticks=ticks))
    if not panels:
        return
    unit = context.unit_suffix("t").strip()
    label = escape_plotly(f"frequency in rad{'/' + unit if unit else ' per unit of time'}")
    low, high = data_frequency_band(fit)
    first, last = float(omega[0]), float(omega[-1])
    shaded = [pair for pair in ((first, min(low, last)), (max(high, first), last)) if pair[0] < pair[1]]
    caption = "Frequency responses with 95 % bands."
    caption += " Grey: periods longer than the record, or shorter than two sampling intervals." if shaded else ""
    options: dict[str, Any] = {"time_label": label, "span": (first, last), "shaded": shaded, "log_scale": True}
    page.add_plot(*stack_panels(panels, height=130, **options), caption)


def _phase_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return multiples of 45 degrees, or of a larger step, that enclose the limits."""
    step = 45.0 * max(1, round((high - low) / 250))
    return tuple(step * k for k in range(int(np.floor(low / step)), int(np.ceil(high / step)) + 1))
