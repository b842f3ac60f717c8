"""The report on a fit as one HTML page, section by section."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from lodekit.errors import AlgebraError, LodekitError
from lodekit.model import LODEGP
from lodekit.prior.disturbances import WHITE_NOISE
from lodekit.report.panels import (
    PLOTLY_MEAN_COLOR,
    PlotlyPanel,
    ReportContext,
    TruthByName,
    band_trace,
    check_span,
    check_truth,
    check_validation,
    line_trace,
    round_values,
    stack_panels,
    validation_figure,
)
from lodekit.report.time_series import add_residuals_section, channels_caption, channels_figure
from lodekit.results.certificate import Certificate, pointwise_equations
from lodekit.results.fit import parse_units
from lodekit.results.state_space import (
    FittedStateSpace,
    Uncertain,
    data_frequency_band,
    delta_method_std,
    frequency_grid,
    state_space,
    step_grid,
)
from lodekit.results.summary import CONVERGENCE_IN_WORDS, displayed_hyperparameters
from lodekit.results.validation import Validation
from lodekit.support.arguments import Array
from lodekit.support.html import HtmlPage, escape_plotly, glossary_html, html_paragraph
from lodekit.support.progress import track_progress
from lodekit.support.text import (
    as_sentence,
    format_count,
    format_percent,
    format_uncertain,
    join_list,
    round_to_error,
    with_suggestions,
)
from lodekit.system.dimensions import white_noise_unit
from lodekit.system.display import equations_to_mathml, format_analysis
from lodekit.system.system import System
from lodekit.uncertainty.estimates import AT_BOUND_MESSAGES, NORMAL_QUANTILE_95, NOT_IDENTIFIED_MESSAGE, Estimate
from lodekit.version import __version__


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
        text = repr(number) if value.imag else format_uncertain(value.real, number.std_error)
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
    bands = [band_trace(x, low, high)] if band.any() else []
    return PlotlyPanel(title, [*bands, curve], limits or (float(low.min()), float(high.max())), **options)


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


#: The largest number of records with their own curves and residuals in a report.
MAX_SHOWN_RECORDS = 12


def add_reproduction_section(page: HtmlPage, context: ReportContext, command: str, code: str) -> None:
    """Add the command and the code that reproduce the report."""
    page.add_section("How to reproduce this report")
    if command:
        page.add_paragraph("On the command line:")
        page.add_code(command)
    page.add_paragraph("In Python:")
    page.add_code(code or generate_python(context.gp, context.source, context.units))
    seed = context.fit.settings.random_state
    seeded = f"random seed {seed}" if seed is not None else "no random seed: starting points differ between runs"
    page.add_paragraph(f"Created by lodekit {__version__}, {seeded}.", "note")


def generate_system_code(system: System) -> list[str]:
    """Return lines of Python code that define a system."""
    lines = ["system = lk.System(", '    """', *(f"    {text}" for text in system.equations), '    """,']
    if system.parameters:
        lines.append("    parameters={")
        for name, parameter in system.parameters.items():
            options = ((key, getattr(parameter, key)) for key in ("positive", "bounds", "fixed", "start", "prior"))
            given = [f"{key}={_to_python_literal(value)}" for key, value in options if value not in (None, False)]
            lines.append(f'        "{name}": lk.Parameter({", ".join(given)}),')
        lines.append("    },")
    chosen = [] if system.basis is None else [f"    basis={_to_python_literal(system.basis)},"]
    return [*lines, f"    channels={_to_python_literal(system.plain_channels)},", *chosen, ")"]


def generate_python(gp: LODEGP, source: str = "", units: Mapping[str, str] | None = None) -> str:
    """Return Python code that defines and fits the same model."""
    kept, lines = gp.fit_.measurements, ["import lodekit as lk", "", *generate_system_code(gp.system)]
    defaults = {key: option.default for key, option in inspect.signature(LODEGP).parameters.items()}
    arguments = [f"{k}={_to_python_literal(v)}" for k, v in gp.fit_.settings.to_dict().items() if v != defaults[k]]
    model = f"lk.LODEGP({', '.join(['system', *arguments])})"
    if kept.has_only_statistics:
        lines.append(f"gp = {model}.fit({_to_python_literal(source or 'data.parquet')})")
    elif len(gp.records_) > 1:
        lines.append(f"# one file, DataFrame, or (t, Y) for each record, containing some of {', '.join(kept.names)}")
        names = gp.records_ if len(gp.records_) <= 12 else (*gp.records_[:12], "...")
        lines.append(f"gp = {model}.fit({_to_python_literal(names)})")
    else:
        where = f", from {' '.join(source.splitlines())}" if source else ""
        is_known = any(not item.n_unknown_noise for item in kept.observable_statistics)
        noise = "; noise_std: the known standard deviations of the noise" * is_known
        lines.append(f"# t: times; Y: a dict or table of {', '.join((*kept.names, *kept.inputs))}{where}{noise}")
        told = {name: unit for name, unit in (units or {}).items() if name in ("t", *gp.system.plain_channels)}
        more = ", noise_std=noise_std" * is_known + f", units={told!r}" * bool(told)
        lines.append(f"gp = {model}.fit(t, Y{more})")
    return "\n".join([*lines, "print(gp.summary())"])


def _to_python_literal(value: object) -> str:
    """Return a value as Python code."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(_to_python_literal(part) for part in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and math.isinf(value):
        return f'float("{value}")'
    return f"lk.{value!r}" if type(value).__module__.startswith("lodekit") else repr(value)


@with_suggestions
@track_progress("writing the report")
def make_report(
    gp: LODEGP,
    *,
    title: str = "",
    units: Mapping[str, str] | None = None,
    source: str = "",
    command: str = "",
    code: str = "",
    notes: Iterable[str] = (),
    validation: Validation | Mapping[str, Validation] | None = None,
    truth: TruthByName | None = None,
    span: tuple[float, float] | None = None,
) -> str:
    """Return a report on a fitted model as one HTML page that needs no network.

    Parameters
    ----------
    gp : LODEGP
        A fitted model.
    title : str
        Title of the page; by default that of `label`, or one with the name of the data file.
    units : dict of str to str, optional
        Units of channels, parameters and the time ``t``, by name; those of `label` by default.
    source : str
        The name of the data file.
    command : str
        The shell command that made the report.
    code : str
        Python code that makes the same fit; generated by default.
    notes : iterable of str
        Remarks on the data, in sentences.
    validation : Validation or dict, optional
        A result of `validate`, or several by titles, such as the names of their files; each has a section.
    truth : dict, optional
        True values of parameters (numbers) and true channels (functions of an array of times), if they are known.
    span : (float, float), optional
        Start and end of the curves; by default 10 % beyond the data on each side.

    Returns
    -------
    str
        The same bytes for the same model.

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> "<h1>A walk</h1>" in make_report(gp, title="A walk")
    True
    """
    if not isinstance(gp, LODEGP):
        raise LodekitError(f"expected a fitted model, LODEGP(system).fit(t, Y), got {type(gp).__name__}")
    every = parse_units(gp.fit_, units)
    subject = ReportContext(gp, every, str(source), check_truth(truth), check_span(span, gp.fit_.setup.default_window))
    named = f"Fit to {source}" if source else "Fit of a linear ODE system"
    advice = "cli_advice.txt" if command else ""
    page = HtmlPage(title or gp.fit_.labels.title or named, _lead_sentence(subject), advice=advice)
    page.add_section("Verdict")
    _add_warnings(page, subject)
    _add_estimates_in_words(page, subject, notes)
    names, parts = gp.fit_.record_names, [subject]
    if len(names) > 1:
        parts = [
            replace(subject, gp=LODEGP.from_fit(part), span=check_span(span, part.setup.default_window), record=name)
            for name, part in zip(names[:MAX_SHOWN_RECORDS], gp.fit_.record_fits, strict=False)
        ]
    if len(names) > MAX_SHOWN_RECORDS:
        page.add_paragraph(
            f"The first {MAX_SHOWN_RECORDS} of {len(names)} records are shown below; the fit used all of them.", "note"
        )
    for part in parts:
        page.add_section(part.heading("Channels"))
        page.add_plot(*channels_figure(part), channels_caption(part))
    _add_estimate_tables(page, subject)
    for part in parts:
        add_residuals_section(page, part)
    for name, found in check_validation(validation).items():
        page.add_section(f"Validation: {name}" if name else "Validation")
        page.add_code(page.adapt(repr(found)))
        figure = validation_figure(found, every)
        caption = "Free run with its 95 % band, and measurements that the fit did not use. Drag to zoom."
        page.add_plot(figure["data"], figure["layout"], caption)
    add_input_responses(page, subject)
    _add_equations(page, subject)
    for part in parts:
        _add_certificate(page, part)
    page.add_html(glossary_html())
    add_reproduction_section(page, subject, command, code)
    page.insert_contents(2)
    return page.to_html()


def _lead_sentence(context: ReportContext) -> str:
    """Return a summary of system and data in one sentence."""
    system, kept = context.gp.system, context.fit.measurements
    channels = f" ({', '.join(system.plain_channels)})" if len(system.plain_channels) <= 8 else ""
    parts = [
        f"{format_count(len(system.equations), 'equation')}, {format_count(len(system.plain_channels), 'channel')}"
    ]
    parts[0] += channels
    if system.parameters:
        parts.append(format_count(len(system.parameters), "parameter"))
    source = f" from {context.source}" if context.source else ""
    start, stop = kept.window
    window = f"t from {start:.{context.n_time_digits}g} to {stop:.{context.n_time_digits}g}{context.unit_suffix('t')}"
    if context.fit.clock.has_dates:
        window = "from {:%Y-%m-%d %H:%M} to {:%Y-%m-%d %H:%M}".format(*context.fit.clock.to_dates((start, stop)))
    if len(context.gp.records_) > 1:
        longest = f"{stop - start:.{context.n_time_digits}g}{context.unit_suffix('t')}"
        window = f"{format_count(len(context.gp.records_), 'record')}, the longest {longest} long"
    return f"{', '.join(parts)}; fitted to {format_count(kept.size, 'measurement')}{source}, {window}."


#: The result of a fit without warnings, by the verdict on its residuals.
_RESULTS_WITHOUT_WARNINGS = {
    "independent": "You can use the model: no problems were found, the search converged, and the residuals are "
    "consistent with independent noise.",
    "below noise": "The search converged; some residuals are far smaller than the noise.",
    "too few to test": "The search converged; there are too few measurements to test all residuals.",
    "not tested": "The search converged; there are no residuals to test.",
}


def _add_warnings(page: HtmlPage, context: ReportContext) -> None:
    """Add the warnings, or a statement that there are none."""
    messages = [as_sentence(text) for text in context.gp.warnings_]
    estimated = {name: each for name, each in context.gp.parameters_.items() if each.note != "fixed"}
    if messages:
        search = as_sentence(CONVERGENCE_IN_WORDS[context.fit.convergence]).removesuffix(".")
        unknown = [name for name, each in estimated.items() if not each.identified]
        n_identified = len(estimated) - len(unknown)
        is_known = estimated and context.gp.converged_
        parameters = f"{n_identified} of {format_count(len(estimated), 'parameter')} identified; " if is_known else ""
        advice = "Read the warnings before you use the estimates"
        if unknown or not context.gp.converged_:
            values = f"the values of {join_list(unknown)}" if context.gp.converged_ else "these estimates"
            advice = f"Do not use {values}: begin with the first warning, which may cause others"
        page.add_paragraph(f"{advice}. {search}; {parameters}{format_count(len(messages), 'warning')}:")
    if len(messages) == 1:
        page.add_paragraph(messages[0], "warning")
    elif messages:
        page.add_list(messages, "warning")
    if not messages and context.gp.converged_:
        verdict = context.gp.diagnose().verdict
        page.add_paragraph(_RESULTS_WITHOUT_WARNINGS[verdict], "good" if verdict == "independent" else "")


def _add_estimates_in_words(page: HtmlPage, context: ReportContext, notes: Iterable[str]) -> None:
    """Add the estimates in words."""
    page.add_section("Results in words")
    estimates = context.gp.parameters_
    lines = [_parameter_sentence(context, name, estimate) for name, estimate in estimates.items()]
    lines = lines or ["The equations contain no unknown parameters."]
    shares = context.fit.diagnosis.explained_variance
    listed = [f"{format_percent(share)} of {name}" for name, share in shares.items()]
    least = " (the lowest share of all records)" if len(context.gp.records_) > 1 else ""
    explained = [f"Variance explained by the curves{least}: {join_list(listed)}."] if listed else []
    page.add_list([*lines, _noise_sentence(context), *explained])
    roles = dict.fromkeys(context.gp.disturbances_, "Disturbance")
    inputs = [f"{roles.get(text.partition(':')[0], 'Channel')} {text}" for text in context.fit.input_notes]
    for note in (*inputs, *context.fit.remarks):
        page.add_paragraph(as_sentence(note), "note")
    if about := "; ".join(str(note).rstrip(".") for note in notes):
        page.add_paragraph(as_sentence(f"the data: {about}"), "note")


def _parameter_sentence(context: ReportContext, name: str, estimate: Estimate) -> str:
    """Return the estimate of a parameter in one sentence."""
    unit, value = context.unit_suffix(name), f"{estimate.value:.5g}{context.unit_suffix(name)}"
    if estimate.note == "fixed":
        return f"{name} was fixed at {value}."
    if not context.gp.converged_:
        return f"{name} has no estimate; the search ended at {value}."
    if estimate.note in AT_BOUND_MESSAGES:
        verb = "" if estimate.note.startswith("tends") else "is "
        return f"{name} {verb}{estimate.note}: the search ended at {value}, and there is no interval."
    if estimate.note.endswith("fits equally well"):
        return f"{name} is {value}, but {estimate.note}."
    if not estimate.identified and estimate.note != NOT_IDENTIFIED_MESSAGE:
        return f"{name} is {estimate.note}: the search ended at {value}."
    if not estimate.identified:
        return f"{name} is {estimate.note}: the search ended at {value}, and many other values fit equally well."
    low, high = estimate.interval
    value = format_uncertain(estimate.value, estimate.std_error)
    edges = " to ".join(round_to_error(edge, estimate.std_error) for edge in (low, high))
    return f"{name} is {value}{unit} (95 % interval: {edges}{unit})."


def _noise_sentence(context: ReportContext) -> str:
    """Return the noise level in one sentence."""
    noise = context.gp.noise_
    if not noise:
        return "The noise was given, not estimated."
    if context.fit.settings.noise == "shared":
        unit = _shared_unit(context)
        where = "" if unit or len(context.series) == 1 else ", in the unit of each channel"
        return f"The measurement noise has a standard deviation of {noise['shared']:.3g}{unit}{where}."
    whose = f" of {next(iter(noise))}" if len(noise) == 1 else ""
    listed = [f"{std:.3g}{context.unit_suffix(name)}{'' if whose else f' in {name}'}" for name, std in noise.items()]
    return f"The measurement noise{whose} has a standard deviation of {join_list(listed)}."


def _shared_unit(context: ReportContext) -> str:
    """Return the common unit of all measurements; empty if units differ."""
    found = {context.unit_suffix(name) for name in context.series}
    return found.pop() if len(found) == 1 else ""


def _add_equations(page: HtmlPage, context: ReportContext) -> None:
    """Add the equations and what they imply."""
    system = context.gp.system
    page.add_section("Equations")
    numbered = enumerate(equations_to_mathml(system), 1)
    rows = "".join(f'<div><span class="number">{number}</span>{text}</div>' for number, text in numbered)
    page.add_html(f'<div class="equations">{rows}</div>')
    blue = "Blue: parameters. Black: channels, functions of time. " if system.parameters else ""
    page.add_paragraph(f"{blue}A prime denotes a time derivative.", "note")
    for note in system.notes:
        page.add_paragraph(note, "note")
    page.add_section("What the equations imply")
    reduced = context.fit.setup.reduced_system
    if reduced is not system:
        given = [*context.fit.measurements.inputs, *context.gp.disturbances_]
        page.add_paragraph(f"With {join_list(given)} given, the remaining channels have the following properties:")
    lines = reduced.explain().splitlines()
    long = [line for line in lines if "characteristic equation" in line and len(line) > 120]
    page.add_list([*(line for line in lines if line not in long), *_modes_at_estimate(context)])
    for line in long:
        page.add_details("Characteristic equation of the modes", html_paragraph(line))
    text = format_analysis(system, omitted=("Equations", "What this means", "Notes"))
    page.add_details("Details of the algebra", f"<pre>{escape(text)}</pre>")


def _modes_at_estimate(context: ReportContext) -> list[str]:
    """Return the modes whose exponents depend on parameters, at the estimates."""
    system = context.fit.setup.reduced_system
    values = {name: float(f"{found.value:.6g}") for name, found in context.gp.parameters_.items()}
    try:
        if not any(mode.depends_on_parameters for mode in system.exponents):
            return []
        modes = [mode.describe(context.unit_suffix("t").strip()) for mode in system.substitute(values).modes]
    except LodekitError:
        return []
    return [f"At the estimates: {join_list(modes)}."] if modes else []


def _add_estimate_tables(page: HtmlPage, context: ReportContext) -> None:
    """Add all estimates as tables."""
    page.add_section("Estimates")
    if context.gp.parameters_:
        _add_parameter_table(page, context)
    rows = [
        [name, value if isinstance(value, str) else f"{value:.3g}", _unit_of_hyperparameter(context, name)]
        for name, value in displayed_hyperparameters(context.fit).items()
    ]
    for name, value in context.gp.noise_.items():
        unit = context.unit_suffix(name) if name in context.series else _shared_unit(context)
        rows.append([f"noise ({name})", f"{value:.3g}", unit.strip()])
    rows.append(["log evidence", f"{context.gp.log_evidence_:.3f}", ""])
    page.add_table(["quantity", "value", "unit"], rows, text_columns=(2,))
    page.add_paragraph(
        f"{as_sentence(CONVERGENCE_IN_WORDS[context.fit.convergence])} Engine: {context.gp.engine_}.", "note"
    )


def _add_parameter_table(page: HtmlPage, context: ReportContext) -> None:
    """Add a table of the parameters, with true values if these are known."""
    known = {name: value for name, value in context.truth.items() if not callable(value)}
    head = ["parameter", "estimate", "std error", "95 % interval", "unit", *["truth"] * bool(known), "note"]
    rows = []
    for name, found in context.gp.parameters_.items():
        learned = found.identified and found.note != "fixed" and context.gp.converged_
        true = [f"{float(known[name]):.6g}" if name in known else ""] if known else []
        numbers = (found.value, found.std_error, *found.interval)
        value, error, low, high = (round_to_error(number, found.std_error) for number in numbers)
        # On narrow screens an interval takes two lines; a short note replaces the interval.
        row = [value, error, f"{low} to\u00a0{high}"]
        is_short = len(found.note) <= 12
        row = row if learned else [row[0], "–", (found.note if is_short else "") or "–"]
        rows.append([name, *row, context.unit_suffix(name).strip(), *true, "" if is_short else found.note])
    page.add_table(head, rows, text_columns=[head.index("unit"), head.index("note")])
    what = context.fit.setup.objective.description
    wider = max(context.fit.diagnosis.widening.values(), default=1.0) > 1
    errors = "standard errors come from its curvature there" + (
        ", and are widened because residuals are correlated" if wider else ""
    )
    page.add_paragraph(f"The estimates maximise {what}; {errors}.", "note")


def _unit_of_hyperparameter(context: ReportContext, hyperparameter: str) -> str:
    """Return the unit of a lengthscale or an amplitude by its name; empty if none is known."""
    kind, _, name = hyperparameter.removesuffix(" (std)").partition(" of ")
    if kind == "amplitude" and context.fit.prior.disturbances.get(name) == WHITE_NOISE:
        fit = context.fit
        return white_noise_unit(fit.system, name, context.units, fit.measurements.names)[1].removeprefix("the ")
    return context.unit_suffix("t" if kind == "lengthscale" else name).strip()


def _add_certificate(page: HtmlPage, context: ReportContext) -> None:
    """Add the proof that all curves satisfy the equations, and the measured residuals of the plotted curves."""
    page.add_section(context.heading("Do the curves satisfy the equations?"))
    try:
        found = context.gp.certificate(context.curve_times)
    except AlgebraError as problem:
        page.add_paragraph(f"The algebra could not be verified: {problem}.", "warning")
        return
    page.add_paragraph(
        "Proved by exact algebra: every curve of this model is a solution, and every solution is one of its curves."
    )
    if found.sense:
        page.add_paragraph(as_sentence(found.sense), "note")
    equations = [equation.text for equation in pointwise_equations(context.fit)]
    if equations:
        _add_equation_residuals(page, context, found, equations)
    if found.identities:
        listed = "".join(f"<li>{escape(line)}</li>" for line in found.identities)
        words = (
            "A is the operator matrix, B contains the columns of the free functions and C those of the modes; each "
            "line was checked by exact multiplication."
        )
        page.add_details("Proved identities", f"<ul>{listed}</ul><p>{words}</p>")


def _add_equation_residuals(
    page: HtmlPage, context: ReportContext, certificate: Certificate, equations: Sequence[str]
) -> None:
    """Add the residuals of the equations for the plotted curves."""
    subjects = "the mean" if certificate.samples is None else f"the mean and {format_count(certificate.size, 'sample')}"
    subjects += " (each at the parameters drawn with it)" if certificate.own else ""
    text = (
        f"at the {len(certificate.mean.times)} times of the plot, the residuals of {subjects} are at most "
        f"{certificate.residual:.1g} of the size of the terms of an equation, with an error of up to "
        f"{certificate.uncertainty:.1g}. They are computed from polynomials through the plotted curves, independently "
        "of the model."
    )
    if certificate.is_strict:
        page.add_paragraph(f"Yes. Measured in floating-point arithmetic: {text}", "good")
        page.add_paragraph("Whether the equations describe the data is a separate question; see Residuals.", "note")
        if context.fit.diagnosis.failed:
            page.add_paragraph(
                "Here they do not, or the search did not find the best values: see the top of this page.", "warning"
            )
    elif certificate.is_inconclusive:
        page.add_paragraph(
            f"This could not be measured: {text} Curves under disturbances have kinks, which numerical differentiation "
            "does not resolve.",
            "note",
        )
    else:
        page.add_paragraph(
            f"Not to rounding accuracy: {text} If terms are much larger than their sum, floating-point numbers lose "
            "its digits; check the units and the plotted range.",
            "warning",
        )
    numbers = range(1, len(equations) + 1)
    columns = zip(numbers, equations, certificate.mean.max_residuals, certificate.mean.max_errors, strict=True)
    rows = [[str(number), equation, f"{left:.1e}", f"{apart:.1e}"] for number, equation, left, apart in columns]
    page.add_table(["", "equation", "relative residual", "uncertainty"], rows, text_columns=(1,))
