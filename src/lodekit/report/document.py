"""The report on a fit, section by section, as one HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lodekit.certificate.certify import Certificate
from lodekit.certificate.sense import equations_with_values
from lodekit.errors import AlgebraError, LodekitError
from lodekit.figures.requests import read_units
from lodekit.learning.diagnosis.residuals import FEW
from lodekit.learning.estimates import NOT_IDENTIFIED, Estimate
from lodekit.model import LODEGP
from lodekit.page import Page, escape
from lodekit.prior.disturbed import WHITE
from lodekit.report.curves import add_curves
from lodekit.report.plant import add_plant
from lodekit.report.recipe import add_recipe
from lodekit.report.residuals import add_residuals
from lodekit.report.subject import Subject, Truth, read_span, read_truth
from lodekit.rounding import digits, format_like, format_uncertain
from lodekit.summary import shown_values
from lodekit.system.dimensions import derive_units, tell_intensity
from lodekit.system.display import sections
from lodekit.system.mathml import equations_to_mathml
from lodekit.wording import count, join_words, sentence, show_share

__all__ = ["make_report"]

#: So many records have sections of their own at most.
_MOST = 12
#: A note of so many characters stands in the place of an interval.
_SHORT = 12


def make_report(
    gp: LODEGP,
    *,
    title: str = "",
    units: Mapping[str, str] | None = None,
    source: str = "",
    command: str = "",
    notes: Iterable[str] = (),
    truth: Truth | None = None,
    span: tuple[float, float] | None = None,
) -> str:
    """Return a report on a fitted model as one HTML page that needs no network.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    title : str
        Of the page; by default that of `label`, or one that names the data file.
    units : dict of str to str, optional
        Units of channels, parameters and the time ``t``, by name; those of `label` by default.
    source : str
        The name of the data file.
    command : str
        The shell command that made the report.
    notes : iterable of str
        What is worth knowing about the data, in sentences.
    truth : dict, optional
        True values of parameters (numbers) and true channels (functions of an array of times), where they are known.
    span : (float, float), optional
        From when to when the curves are drawn; by default 10 % beyond the data on each side.

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
    known = read_units(gp.fit_, units)
    every = {**derive_units(gp.system, known), **known}
    subject = Subject(gp, every, str(source), read_truth(truth), read_span(span, gp.fit_.setup.surroundings))
    named = f"Fit to {source}" if source else "Fit of a linear ODE system"
    page = Page(title or gp.fit_.labels.title or named, _lead(subject))
    _add_warnings(page, subject)
    _add_result(page, subject, notes)
    _add_equations(page, subject)
    _add_tables(page, subject)
    add_plant(page, subject)
    _add_records(page, subject, span)
    add_recipe(page, subject, command)
    return page.text()


def _add_records(page: Page, subject: Subject, span: tuple[float, float] | None) -> None:
    """Add curves, certificate and residuals of every record."""
    fit = subject.gp.fit_
    parts = [subject]
    if len(fit.records) > 1:
        parts = [
            replace(
                subject,
                gp=LODEGP.from_fit(part),
                span=read_span(span, part.setup.surroundings),
                record=part.records[0],
            )
            for part in fit.parts[:_MOST]
        ]
    if len(fit.records) > _MOST:
        page.paragraph(f"Of {len(fit.records)} records the first {_MOST} are shown below; the fit used all.", "note")
    for part in parts:
        add_curves(page, part)
        _add_certificate(page, part)
        add_residuals(page, part)


def _lead(subject: Subject) -> str:
    """Return what was fitted to what, in one sentence."""
    system, kept = subject.gp.system, subject.gp.fit_.measurements
    channels = f" ({', '.join(system.plain_channels)})" if len(system.plain_channels) <= 8 else ""
    parts = [count(len(system.equations), "equation"), count(len(system.plain_channels), "channel") + channels]
    if system.parameters:
        parts.append(count(len(system.parameters), "parameter"))
    source = f" from {subject.source}" if subject.source else ""
    start, stop = kept.window
    window = f"t from {start:.{subject.time_digits}g} to {stop:.{subject.time_digits}g}{subject.unit('t')}"
    if len(subject.gp.records_) > 1:
        longest = f"{stop - start:.{subject.time_digits}g}{subject.unit('t')}"
        window = f"{count(len(subject.gp.records_), 'record')}, the longest {longest} long"
    return f"{', '.join(parts)}; fitted to {count(kept.size, 'measurement')}{source}, {window}."


def _add_warnings(page: Page, subject: Subject) -> None:
    """Add what users should know before they believe anything."""
    found = [sentence(text) for text in subject.gp.warnings_]
    if len(found) == 1:
        page.paragraph(found[0], "warning")
    elif found:
        page.items(found, "warning")
    elif _is_sound(subject):
        page.paragraph(
            "Nothing speaks against this fit: the search converged, and what the curves leave over scatters as "
            "independent noise does.",
            "good",
        )


def _is_sound(subject: Subject) -> bool:
    """Return whether residuals are many enough to tell, and tell of nothing."""
    checks = subject.gp.fit_.diagnosis.checks
    return subject.gp.converged_ and bool(checks) and all(check.looked >= FEW for check in checks)


def _add_result(page: Page, subject: Subject, notes: Iterable[str]) -> None:
    """Add the estimates in words."""
    page.section("In words")
    estimates = subject.gp.parameters_
    lines = [_estimate_line(subject, name, estimate) for name, estimate in estimates.items()]
    lines = lines or ["The equations hold no unknown parameters."]
    page.items([*lines, _noise_line(subject), *_explained_line(subject)])
    roles = dict.fromkeys(subject.gp.disturbances_, "Disturbance")
    inputs = [f"{roles.get(text.partition(':')[0], 'Input')} {text}" for text in subject.gp.fit_.input_notes]
    for note in map(sentence, (*inputs, *subject.gp.fit_.diagnosis.notes, *subject.gp.fit_.setup.name_notes)):
        page.paragraph(note, "note")
    if about := "; ".join(str(note).rstrip(".") for note in notes):
        page.paragraph(sentence(f"the data: {about}"), "note")


def _explained_line(subject: Subject) -> list[str]:
    """Return how much of the data the curves explain, in one sentence; none where that is not known."""
    shares = subject.gp.fit_.diagnosis.explained
    listed = [f"{show_share(share)} of {name}" for name, share in shares.items()]
    least = "at least " if len(subject.gp.records_) > 1 else ""
    return [f"Of the variance of the data the curves explain {least}{join_words(listed)}."] if listed else []


def _estimate_line(subject: Subject, name: str, estimate: Estimate) -> str:
    """Return what is known of a parameter, in one sentence."""
    unit, value = subject.unit(name), f"{estimate.value:.5g}{subject.unit(name)}"
    if estimate.note == "fixed":
        return f"{name} was fixed at {value}."
    if estimate.note == "at its bound":
        return f"{name} is at its bound: the search ended at {value}, as far as it may go, and there is no interval."
    if not estimate.identified and estimate.note != NOT_IDENTIFIED:
        return f"{name} is {estimate.note}: the search ended at {value}."
    if not estimate.identified:
        return f"{name} is {estimate.note}: the search ended at {value}, and many other values would do as well."
    low, high = estimate.interval
    value = format_uncertain(estimate.value, estimate.std_error)
    edges = " to ".join(format_like(edge, estimate.std_error) for edge in (low, high))
    return f"{name} is {value}{unit} (95 % interval: {edges}{unit})."


def _noise_line(subject: Subject) -> str:
    """Return what is known of the noise, in one sentence."""
    noise = subject.gp.noise_
    if not noise:
        return "The noise was given, not learned."
    if subject.gp.fit_.arguments.noise == "shared":
        unit = _shared_unit(subject)
        where = "" if unit or len(subject.series) == 1 else ", in the unit of each channel"
        return f"The noise of one measurement has a standard deviation of {noise['shared']:.3g}{unit}{where}."
    listed = [f"{value:.3g}{subject.unit(name)} in {name}" for name, value in noise.items()]
    return f"The noise of one measurement has a standard deviation of {join_words(listed)}."


def _shared_unit(subject: Subject) -> str:
    """Return the unit of everything that was measured, or nothing where units differ."""
    found = {subject.unit(name) for name in subject.series}
    return found.pop() if len(found) == 1 else ""


def _add_equations(page: Page, subject: Subject) -> None:
    """Add the equations, and what they imply."""
    system = subject.gp.system
    page.section("The equations")
    rows = (
        f'<div><span class="number">{number}</span>{text}</div>'
        for number, text in enumerate(equations_to_mathml(system), 1)
    )
    page.html(f'<div class="equations">{"".join(rows)}</div>')
    blue = "Blue: parameters. Black: channels, functions of time. " if system.parameters else ""
    page.paragraph(f"{blue}A prime is a derivative in time.", "note")
    for note in system.notes:
        page.paragraph(note, "note")
    page.section("What the equations imply")
    reduced = subject.gp.fit_.setup.reduced
    if reduced is not system:
        given = [*subject.gp.fit_.measurements.inputs, *subject.gp.disturbances_]
        page.paragraph(f"Given {join_words(given)}, of what responds:")
    page.items([*reduced.explain().splitlines(), *_modes_at_estimate(subject)])
    shown = [block for block in sections(system) if block[0] not in ("Equations", "What this means", "Notes")]
    text = "\n\n".join("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in shown)
    page.details("The algebra in full", f"<pre>{escape(text)}</pre>")


def _modes_at_estimate(subject: Subject) -> list[str]:
    """Return what modes with parameters inside look like at the estimate."""
    system = subject.gp.fit_.setup.reduced
    if not any(mode.depends_on_parameters for mode in system.modes):
        return []
    values = {name: float(f"{found.value:.6g}") for name, found in subject.gp.parameters_.items()}
    try:
        modes = [mode.describe(subject.unit("t").strip()) for mode in system.substitute(values).modes]
    except LodekitError:
        return []
    return [f"At the estimate: {join_words(modes)}."] if modes else []


def _add_tables(page: Page, subject: Subject) -> None:
    """Add everything that was learned, as tables."""
    page.section("The fit")
    if subject.gp.parameters_:
        _add_estimates(page, subject)
    rows = [
        [name, value if isinstance(value, str) else f"{value:.5g}", _unit_of(subject, name)]
        for name, value in shown_values(subject.gp.fit_).items()
    ]
    for name, value in subject.gp.noise_.items():
        unit = subject.unit(name) if name in subject.series else _shared_unit(subject)
        rows.append([f"noise ({name})", f"{value:.5g}", unit.strip()])
    rows.append(["log evidence", f"{subject.gp.log_evidence_:.3f}", ""])
    page.table(["quantity", "value", "unit"], rows, text=(2,))
    failed = "The search failed" if subject.gp.fit_.optimum.converged else "The search did not converge"
    converged = "The search converged" if subject.gp.converged_ else failed
    page.paragraph(f"{converged}. Engine: {subject.gp.engine_}.", "note")


def _add_estimates(page: Page, subject: Subject) -> None:
    """Add a table of the parameters, beside their true values where these are known."""
    known = {name: value for name, value in subject.truth.items() if not callable(value)}
    head = ["parameter", "estimate", "std error", "95 % interval", "unit", *["truth"] * bool(known), "note"]
    rows = []
    for name, found in subject.gp.parameters_.items():
        learned = found.identified and found.note != "fixed"
        low, high = found.interval
        true = [f"{float(known[name]):.6g}" if name in known else ""] if known else []
        shown = digits(found.value, found.std_error, 5)
        # Where there is little room, an interval takes two lines, and a short note no column of its own.
        row = [f"{found.value:.{shown}g}", f"{found.std_error:.3g}", f"{low:.{shown}g} to\u00a0{high:.{shown}g}"]
        is_short = len(found.note) <= _SHORT
        row = row if learned else [row[0], "–", (found.note if is_short else "") or "–"]
        rows.append([name, *row, subject.unit(name).strip(), *true, "" if is_short else found.note])
    page.table(head, rows, text=[head.index("unit"), head.index("note")])
    what = subject.gp.fit_.setup.objective.described
    wider = max(subject.gp.fit_.diagnosis.widening.values(), default=1.0) > 1
    errors = "standard errors come from its curvature there" + (
        ", and are widened because residuals are correlated" if wider else ""
    )
    page.paragraph(f"Estimates maximise {what}; {errors}.", "note")


def _unit_of(subject: Subject, hyperparameter: str) -> str:
    """Return the unit of a lengthscale or a deviation by its name; empty where none is known."""
    kind, _, name = hyperparameter.partition(" of ")
    if kind == "deviation" and subject.gp.fit_.prior.disturbances.get(name) == WHITE:
        fit = subject.gp.fit_
        return tell_intensity(fit.system, name, subject.units, fit.measurements.names)[1].removeprefix("the ")
    return subject.unit("t" if kind == "lengthscale" else name).strip()


def _add_certificate(page: Page, subject: Subject) -> None:
    """Add the proof that all solutions satisfy the equations, and what was measured on the curves of this page."""
    page.section(subject.heading("Do the curves satisfy the equations?"))
    try:
        found = subject.gp.certificate(subject.times)
    except AlgebraError as problem:
        page.paragraph(f"The algebra could not check itself: {problem}.", "warning")
        return
    page.paragraph(
        "Proved, by exact algebra: every curve of this model is a solution, and every solution is one of its curves."
    )
    if found.sense:
        page.paragraph(sentence(found.sense), "note")
    equations = [equation.text for equation in equations_with_values(subject.gp.fit_)]
    if equations:
        _add_measured(page, subject, found, equations)
    if found.identities:
        listed = "".join(f"<li>{escape(line)}</li>" for line in found.identities)
        words = (
            "A is the operator matrix, B holds the free columns and C the modes; each line was checked by exact "
            "multiplication."
        )
        page.details("What was proved", f"<ul>{listed}</ul><p>{words}</p>")


def _add_measured(page: Page, subject: Subject, found: Certificate, equations: Sequence[str]) -> None:
    """Add what the curves leave of equations."""
    subjects = "the mean" if found.samples is None else f"the mean and {count(found.size, 'sample')}"
    subjects += " (each at the parameters drawn with it)" if found.own else ""
    text = (
        f"at the {len(found.mean.times)} times of the plot, {subjects} leave over at most {found.residual:.1g} of the "
        f"size of the terms of an equation. The measurement itself can be wrong by {found.uncertainty:.1g}: it "
        "differentiates the plotted curves by polynomials, and knows nothing of the model."
    )
    if found.is_strict:
        page.paragraph(f"Yes. Measured, in floating-point numbers: {text}", "good")
        page.paragraph("That the equations describe what was measured is another question; see Residuals.", "note")
        if subject.gp.fit_.diagnosis.failed:
            page.paragraph("Here they do not, or the search failed: see the top of this page.", "warning")
    else:
        page.paragraph(
            f"Not to rounding: {text} Terms may grow so large beside their sum that floats lose it; look at the "
            "units and the plotted range.",
            "warning",
        )
    rows = [
        [str(number), equation, f"{left:.1e}", f"{apart:.1e}"]
        for number, (equation, left, apart) in enumerate(
            zip(equations, found.mean.equations, found.mean.uncertainties, strict=True), 1
        )
    ]
    page.table(["", "equation", "measured, relative", "uncertain by"], rows, text=(1,))
