"""The sections of a report on every channel, with mean and 95 % band, and on the standardized residuals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lodekit.data.inputs import InputSignal
from lodekit.data.observations import TimeSeries
from lodekit.diagnostics.messages import describe_check, outlier_warnings, residual_warnings
from lodekit.diagnostics.residual_tests import N_SEGMENTS, SEGMENT_ROWS, ResidualCheck
from lodekit.errors import LodekitError
from lodekit.report import panels as plotly
from lodekit.results.fit import Fit
from lodekit.support.arguments import Array
from lodekit.support.html import HtmlPage, escape_plotly
from lodekit.support.plot_limits import describe_cut_band, typical_limits
from lodekit.support.progress import track_progress
from lodekit.support.text import as_sentence, format_percent, format_quantity
from lodekit.uncertainty.estimates import NORMAL_QUANTILE_95


@track_progress("drawing curves")
def channels_figure(context: plotly.ReportContext) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return traces and layout of a plot of every observable: measurements, mean, 95 % band, truth."""
    mean, std = context.gp.predict(context.curve_times, context.observables, return_std=True, as_frame=False)
    panels = [
        _channel_panel(context, name, mean[:, i], NORMAL_QUANTILE_95 * std[:, i])
        for i, name in enumerate(context.observables)
    ]
    start, stop = context.fit.measurements.window
    shaded = [pair for pair in ((context.span[0], start), (stop, context.span[1])) if pair[0] < pair[1]]
    options: dict[str, Any] = {"time_label": context.time_label, "span": context.span, "shaded": shaded}
    return plotly.stack_panels(panels, height=190, clock=context.fit.clock, **options)


def channels_caption(context: plotly.ReportContext) -> str:
    """Return the caption of the plot of every observable."""
    caption = (
        "Posterior mean and 95 % band, without measurement noise; the band includes the uncertainty of all estimated "
        "quantities."
    )
    if max(context.fit.diagnosis.widening.values(), default=1.0) > 1:
        caption += " Residuals are correlated, so the band also includes model error and wider parameter uncertainty."
    start, stop = context.fit.measurements.window
    if context.span[0] < start or context.span[1] > stop:
        before = "before the first and " if context.span[0] < start else ""
        caption += f" Grey: {before}after the last measurement"
        caption += ", with inputs held constant." if context.fit.measurements.inputs else "."
        if context.fit.calibrated_free_runs and context.span[1] > stop:
            caption += " There the band widens at once: it includes the errors of forecasts within this record."
    if context.fit.measurements.sufficient_statistics is not None:
        caption += " Points are averages of neighbouring measurements, because only sums were kept."
    elif any(len(item.times) > plotly.MAX_PLOT_POINTS for item in context.series.values()):
        caption += f" Each channel shows {plotly.MAX_PLOT_POINTS} evenly spaced points; the fit used all of them."
    return f"{caption} Drag to zoom, double-click to reset."


def _channel_panel(context: plotly.ReportContext, name: str, mean: Array, band: Array) -> plotly.PlotlyPanel:
    """Return the panel of one observable, with the mean in front; `band` is its half-width."""
    signal = context.fit.measurements.inputs.get(name)
    if signal is not None:
        return _input_panel(context, name, signal)
    times, label = plotly.round_values(context.curve_times, 12), escape_plotly(name)
    unit, at = escape_plotly(context.unit_suffix(name)), context.hover_time_template
    traces = [plotly.band_trace(times, mean - band, mean + band)] if band.any() else []
    if name in context.series:
        traces.append(_measurement_trace(context, context.series[name]))
    true = context.truth.get(name)
    if callable(true):
        try:
            values = np.broadcast_to(np.asarray(true(context.curve_times), dtype=float), context.curve_times.shape)
        except (TypeError, ValueError) as problem:
            raise LodekitError(f"expected the truth of {name} as a function of an array of times: {problem}") from None
        y = [value if math.isfinite(value) else None for value in plotly.round_values(values)]
        hover = f"{label}, truth: %{{y:.6~g}}{unit}{at}"
        traces.append(plotly.line_trace("truth", times, y, plotly.PLOTLY_TRUTH_COLOR, hover, width=1.5, dash="dash"))
    hover = f"{label} = %{{y:.6~g}}{unit}, 95 % within ± %{{customdata:.2~g}}{at}"
    heights = plotly.round_values(mean)
    traces.append(plotly.line_trace("mean", times, heights, plotly.PLOTLY_MEAN_COLOR, hover, width=1.5, errors=band))
    title = f"<b>{label}</b>{' in' + unit if unit else ''}"
    limits = _visible_limits(context, name, mean, band)
    remarks = ["not measured"] * (name not in context.series) + [describe_cut_band(band, limits)]
    title += "".join(f' <span style="color:#5a6b7b">– {text}</span>' for text in remarks if text)
    return plotly.PlotlyPanel(title, traces, limits)


def _input_panel(context: plotly.ReportContext, name: str, signal: InputSignal) -> plotly.PlotlyPanel:
    """Return the panel of a known input, from its samples, thinned if there are many."""
    label, unit = escape_plotly(name), escape_plotly(context.unit_suffix(name))
    inside = signal.times[(signal.times > context.span[0]) & (signal.times < context.span[1])]
    times = np.concatenate([[context.span[0]], inside[plotly.thinned_indices(len(inside))], [context.span[1]]])
    values = signal.at(times)
    hover = f"{label} = %{{y:.6~g}}{unit}{context.hover_time_template}"
    shape = "hv" if signal.kind == "hold" else "linear"
    x, y = plotly.round_values(times, 12), plotly.round_values(values)
    trace = plotly.line_trace("known input", x, y, plotly.PLOTLY_TRUTH_COLOR, hover, shape=shape)
    kind = "held" if signal.kind == "hold" else "linear"
    title = f'<b>{label}</b>{" in" + unit if unit else ""} <span style="color:#5a6b7b">– known, {kind}</span>'
    # Values before and after the measurements do not affect the axis limits.
    seen = signal.at(np.clip(times, *context.fit.measurements.window))
    return plotly.PlotlyPanel(title, [trace], (float(seen.min()), float(seen.max())))


def _measurement_trace(context: plotly.ReportContext, item: TimeSeries) -> dict[str, Any]:
    """Return the measurements of an observable as a trace, thinned if there are many."""
    chosen = plotly.thinned_indices(len(item.times))
    unit = escape_plotly(context.unit_suffix(item.observable))
    name = "averages" if context.fit.measurements.sufficient_statistics is not None else "measurements"
    hover = f"{escape_plotly(item.observable)} measured: %{{y:.6~g}}{unit}{context.hover_time_template}"
    x, y = item.times[chosen].tolist(), item.values[chosen].tolist()
    style = plotly.marker_style(len(chosen))
    return plotly.marker_trace(name, x, y, hover, *style)


def _visible_limits(context: plotly.ReportContext, name: str, mean: Array, band: Array) -> tuple[float, float]:
    """Return the limits of the vertical axis: curves that grow outside the window must not flatten the others."""
    data = [context.series[name].values] if name in context.series else []
    window, has_process = context.fit.measurements.window, context.fit.prior.has_process
    bottom, top = typical_limits(context.curve_times, mean, band, window, *data, has_process=has_process)
    reach, low, high = 0.6 * (top - bottom), float((mean - band).min()), float((mean + band).max())
    return min(bottom, max(low, bottom - reach)), max(top, min(high, top + reach))


#: For each observable: the check, and the times and standardized values of the residuals that are drawn.
Residuals = list[tuple[ResidualCheck, Array, Array]]
#: Traces, layout and caption of a plot.
CaptionedPlot = tuple[list[dict[str, Any]], dict[str, Any], str]


def _standardized_residuals(context: plotly.ReportContext) -> Residuals:
    """Return the residuals of every observable with noise, in units of the noise; none if only sums were kept."""
    fit = context.fit
    if fit.measurements.sufficient_statistics is not None:
        return []
    checks = {check.name: check for check in fit.diagnosis.checks}
    residuals = []
    for name, item in context.series.items():
        noise = item.noise_std_for_level(fit.typical_noise(name))
        usable = np.flatnonzero(noise > 0)
        if len(usable) and name in checks:
            shown = usable[plotly.thinned_indices(len(usable))]
            mean = context.gp.predict(item.times[shown], item.observable, as_frame=False)
            residuals.append((checks[name], item.times[shown], (item.values[shown] - mean) / noise[shown]))
    return residuals


def add_residuals_section(page: HtmlPage, context: plotly.ReportContext) -> None:
    """Add a table and a plot of standardized residuals, and the warnings that follow from them."""
    page.add_section(context.heading("Residuals"))
    fit, residuals = context.fit, _standardized_residuals(context)
    checks, is_summed = _tested_observables(fit, residuals), fit.measurements.sufficient_statistics is not None
    if not checks:
        reason = "Only sums over the measurements were kept" if is_summed else "The measurements have no noise"
        page.add_paragraph(f"{reason}, so there are no residuals.")
        return
    widening = max(fit.diagnosis.widening.values(), default=math.nan)
    doubts = outlier_warnings({check.title: check.outliers for check in checks}, fit.clock)
    doubts += residual_warnings(checks, fit.prior.noise, fit.clock, widening=widening)
    if doubts and not context.record and set(doubts) <= set(context.gp.warnings_):
        page.add_paragraph("The residuals differ from independent noise: see the verdict.", "warning")
    elif doubts:
        page.add_list([as_sentence(text) for text in doubts], "warning")
    elif all(check.verdict == "independent" for check in checks):
        page.add_paragraph("The residuals are consistent with independent noise.", "good")
    else:
        page.add_list([as_sentence(describe_check(check, fit.clock.unit)) for check in checks])
    tests = ["RMS / noise", "lag-1 autocorrelation", "Ljung-Box p", "periodogram / band", "variance explained"]
    links = [f"correlation with {name}" for name in fit.measurements.inputs]
    page.add_table(["", "points", *tests, *links], [_residual_table_row(check, fit) for check in checks])
    if not residuals:
        looked = max(check.looked for check in checks)
        text = f"There are too many rows to keep all of them in memory; the numbers come from the last {looked}."
        page.add_paragraph(f"{text}{_innovations_caption(checks)}", "note")
    for plot in residual_plots(context, residuals).values():
        page.add_plot(*plot)


def _tested_observables(fit: Fit, residuals: Residuals) -> list[ResidualCheck]:
    """Return the checks to show; rows on disk are not drawn, but the last of them are checked."""
    if fit.measurements.sufficient_statistics is not None:
        return [check for check in fit.diagnosis.checks if check.looked]
    return [check for check, _, _ in residuals]


def residual_plots(context: plotly.ReportContext, residuals: Residuals | None = None) -> dict[str, CaptionedPlot]:
    """Return the available plots by name: residuals over time, and their autocorrelations."""
    residuals = _standardized_residuals(context) if residuals is None else residuals
    plots = {"Residuals": _scatter_plot(context, residuals)} if residuals else {}
    correlations = _autocorrelation_plot(context, _tested_observables(context.fit, residuals))
    return plots if correlations is None else {**plots, "Autocorrelation": correlations}


def _scatter_plot(context: plotly.ReportContext, residuals: Residuals) -> CaptionedPlot:
    """Return a plot of residuals over time, one panel for each observable."""
    checks = [check for check, _, _ in residuals]
    caption = "Measurement minus mean, divided by the noise; 95 % of independent noise is between the outer lines."
    if any(check.count > check.looked for check in checks):
        caption += f" The numbers in the table come from {N_SEGMENTS} runs of {SEGMENT_ROWS} consecutive measurements."
    caption += _innovations_caption(checks)
    if any(check.count > plotly.MAX_PLOT_POINTS for check in checks):
        caption += f" Each channel shows {plotly.MAX_PLOT_POINTS} evenly spaced points."
    start, stop = context.fit.measurements.window
    margin = 0.02 * (stop - start) or 0.5
    span = (start - margin, stop + margin)
    panels = _residual_panels(context, residuals)
    options: dict[str, Any] = {"time_label": context.time_label, "span": span, "clock": context.fit.clock}
    return *plotly.stack_panels(panels, height=90, **options), caption


def _innovations_caption(checks: Sequence[ResidualCheck]) -> str:
    """Return an explanation of innovations; empty if there are none."""
    if not any(check.whiteness is not None and check.whiteness.innovations for check in checks):
        return ""
    return (
        " Correlations and tests use innovations, each measurement minus its prediction from all earlier ones, because "
        "free functions and disturbances adapt to the data: residuals are then smaller than the noise, and correlated."
    )


def _autocorrelation_plot(context: plotly.ReportContext, checks: Sequence[ResidualCheck]) -> CaptionedPlot | None:
    """Return a plot of the autocorrelations of residuals, one panel for each observable; None without any."""
    panels, steps, unit = [], set(), context.unit_suffix("t").strip()
    for check in checks:
        if check.whiteness is None:
            continue
        lags, band = np.asarray(check.whiteness.lags), NORMAL_QUANTILE_95 / np.sqrt(check.looked)
        steps.add(format_quantity(check.whiteness.step, unit, 3))
        x = [lag if k < 2 else None for lag in range(1, len(lags) + 1) for k in range(3)]
        stems = [height for value in plotly.round_values(lags, 4) for height in (0.0, value, None)]
        hover = f"{escape_plotly(check.name)}: %{{y:.2f}} at lag %{{x:d}}<extra></extra>"
        trace = plotly.line_trace("correlation", x, stems, plotly.PLOTLY_MEAN_COLOR, hover, width=4)
        low, high = math.floor(10 * min(-band, lags.min())) / 10, math.ceil(10 * max(band, lags.max())) / 10
        title = f"<b>{escape_plotly(check.name)}</b>, autocorrelation of residuals"
        panels.append(plotly.PlotlyPanel(title, [trace], (low, high), (-band, 0.0, band), (low, 0.0, high)))
    if not panels:
        return None
    label = f"lag in steps of {steps.pop()}" if len(steps) == 1 else "lag in steps"
    caption = "For independent noise, 95 % of the autocorrelations are between the outer lines."
    span = (0.5, max(len(check.whiteness.lags) for check in checks if check.whiteness is not None) + 0.5)
    return *plotly.stack_panels(panels, height=90, time_label=escape_plotly(label), span=span), caption


def _residual_table_row(check: ResidualCheck, fit: Fit) -> list[str]:
    """Return the residual statistics of one observable as a table row."""
    found = check.whiteness
    tests, links = ["", ""], [""] * len(fit.measurements.inputs)
    if found is not None:
        p_value = f"{found.p_value:.2f}" if found.p_value >= 0.01 else f"{found.p_value:.0e}"
        tests = [p_value if found.p_value > 1e-12 else "< 1e-12", f"{abs(found.excursion) / found.band:.2f}"]
        links = [f"{found.links[n].correlation:.2f}" if n in found.links else "" for n in fit.measurements.inputs]
    size, memory = f"{check.size:.2f}", f"{check.memory:.2f}" if check.memory < 0.995 else f"{check.memory:.4f}"
    return [check.name, str(check.count), size, memory, *tests, format_percent(check.explained), *links]


def _residual_panels(context: plotly.ReportContext, residuals: Residuals) -> list[plotly.PlotlyPanel]:
    """Return one panel of residuals over time for each observable."""
    panels = []
    for check, times, values in residuals:
        hover = f"{escape_plotly(check.name)}: %{{y:.2f}} times the noise{context.hover_time_template}"
        x, y = times.tolist(), plotly.round_values(values, 4)
        style = (3, 0.3) if check.count >= 1000 else (5, 0.7)
        trace = plotly.marker_trace("residual", x, y, hover, *style)
        reach = max(3.0, float(np.abs(values).max()))
        title = f"<b>{escape_plotly(check.name)}</b>"
        panels.append(plotly.PlotlyPanel(title, [trace], (-reach, reach), (-2.0, 0.0, 2.0)))
    return panels
