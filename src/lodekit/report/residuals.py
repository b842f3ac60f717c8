"""The section of residuals, measurements minus mean in units of the noise, and what they mean for intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.fitted import Fit
from lodekit.learning.diagnosis.remainder import RUN, RUNS
from lodekit.learning.diagnosis.residuals import FEW, Check, residual_doubts
from lodekit.learning.estimates import NORMAL_95
from lodekit.page import Page, plot_text
from lodekit.report.panels import Panel, stack
from lodekit.report.subject import DATA_COLOUR, DRAWN, MEAN_COLOUR, Subject, plain, thin
from lodekit.wording import sentence, show_share

__all__ = ["add_residuals"]

Array = NDArray[np.float64]
#: So many points are drawn small and pale.
_MANY = 1000
#: What is told of each observable.
_HEADINGS = [
    "",
    "points",
    "RMS / noise",
    "correlation of neighbours",
    "Ljung-Box p",
    "periodogram / its band",
    "variance explained",
]


@dataclass(frozen=True)
class _Residuals:
    """Residuals of one observable, in units of the noise.

    Parameters
    ----------
    check : Check
        What they say.
    times, drawn : arrays, shape (p,)
        The residuals that are drawn, and their times in the user's units.
    """

    check: Check
    times: Array
    drawn: Array


def _find_residuals(subject: Subject) -> list[_Residuals]:
    """Return the residuals of every observable that has some noise; none where only sums were kept."""
    fit = subject.gp.fit_
    if fit.measurements.sums is not None:
        return []
    checks = {check.name: check for check in fit.diagnosis.checks}
    found = []
    for name, item in subject.series.items():
        noise = item.noise_with(fit.typical_noise(name))
        usable = np.flatnonzero(noise > 0)
        if not len(usable) or name not in checks:
            continue
        shown = usable[thin(len(usable))]
        mean = subject.gp.predict(item.times[shown], item.observable)
        found.append(_Residuals(checks[name], item.times[shown], (item.values[shown] - mean) / noise[shown]))
    return found


def add_residuals(page: Page, subject: Subject) -> None:
    """Add a table and a plot of residuals in units of the noise, and what they say about the intervals.

    Parameters
    ----------
    page : Page
        What is added to.
    subject : Subject
        The fitted model, and what the user said about it.
    """
    page.section(subject.heading("Residuals"))
    fit, residuals = subject.gp.fit_, _find_residuals(subject)
    # Rows on disk are not drawn, but the last of them were looked at.
    is_summed = fit.measurements.sums is not None
    looked_at = [check for check in fit.diagnosis.checks if check.looked]
    checks = looked_at if is_summed else [item.check for item in residuals]
    if not checks:
        reason = "The measurements were summed and not kept" if is_summed else "The measurements have no noise"
        page.paragraph(f"{reason}, so there are no residuals to look at.")
        return
    doubts = residual_doubts(
        checks,
        is_shared=fit.layout.noise_levels == 1,
        time_unit=fit.clock.unit,
        widening=max(fit.diagnosis.widening.values(), default=math.nan),
    )
    if doubts:
        page.items([sentence(text) for text in doubts], "warning")
    elif max(check.count for check in checks) < FEW:
        page.paragraph("There are too few measurements to tell whether they scatter as independent noise does.")
    else:
        page.paragraph("Measurements scatter about the mean as independent noise does.", "good")
    page.table(
        [*_HEADINGS, *(f"with {name}" for name in fit.measurements.inputs)], [_row(check, fit) for check in checks]
    )
    if residuals:
        _add_scatter(page, subject, residuals)
    else:
        looked = max(check.looked for check in checks)
        text = f"There are too many rows to keep all of them in memory; the numbers come from the last {looked}."
        page.paragraph(f"{text}{_tell_innovations(checks)}", "note")
    _add_correlations(page, subject, checks)


def _add_scatter(page: Page, subject: Subject, residuals: Sequence[_Residuals]) -> None:
    """Add a plot of residuals over time, one panel for each observable."""
    checks = [item.check for item in residuals]
    caption = (
        "Measurement minus mean, divided by the noise; about 95 % of independent noise lies between the outer lines."
    )
    if any(check.count > check.looked for check in checks):
        caption += f" The numbers in the table come from {RUNS} runs of {RUN} neighbours."
    caption += _tell_innovations(checks)
    if any(check.count > DRAWN for check in checks):
        caption += f" Of each channel {DRAWN} points are shown, evenly chosen."
    start, stop = subject.gp.fit_.measurements.window
    margin = 0.02 * (stop - start) or 0.5
    span = (start - margin, stop + margin)
    page.plot(*stack(_panels(subject, residuals), height=90, label=subject.time_label, span=span), caption)


def _tell_innovations(checks: Sequence[Check]) -> str:
    """Return what innovations are, where there are some."""
    if not any(check.whiteness is not None and check.whiteness.innovations for check in checks):
        return ""
    return (
        " Correlations and tests are those of innovations, each measurement against its prediction from those "
        "before: a curve that free functions bend leaves less than the noise, and correlated."
    )


def _add_correlations(page: Page, subject: Subject, checks: Sequence[Check]) -> None:
    """Add a plot of how residuals go with those before them, one panel for each observable."""
    panels, steps = [], set()
    for check in checks:
        if check.whiteness is None:
            continue
        lags, band = np.asarray(check.whiteness.lags), NORMAL_95 / np.sqrt(check.looked)
        steps.add(f"{check.whiteness.step:.3g}")
        stems: list[float | None] = []
        for value in plain(lags, 4):
            stems += [0.0, value, None]
        trace = {
            "name": "correlation",
            "x": [lag if k < 2 else None for lag in range(1, len(lags) + 1) for k in range(3)],
            "y": stems,
            "mode": "lines",
            "line": {"color": MEAN_COLOUR, "width": 4},
            "hovertemplate": f"{plot_text(check.name)}: %{{y:.2f}} at lag %{{x:d}}<extra></extra>",
        }
        low, high = min(-0.2, float(lags.min())), max(1.0, float(lags.max()))
        ticks = tuple(tick for tick in (-1.0, -0.5, 0.0, 0.5, 1.0) if low <= tick <= high)
        title = f"<b>{plot_text(check.name)}</b>, correlation with earlier residuals"
        panels.append(Panel(title, [trace], (low, high), (-band, 0.0, band), ticks))
    if panels:
        unit = subject.unit("t")
        label = f"lag in steps of {steps.pop()}{unit}" if len(steps) == 1 else "lag in steps"
        caption = "Of independent noise, 95 % of the correlations lie between the outer lines."
        span = (0.5, max(len(check.whiteness.lags) for check in checks if check.whiteness is not None) + 0.5)
        page.plot(*stack(panels, height=90, label=plot_text(label), span=span), caption)


def _row(check: Check, fit: Fit) -> list[str]:
    """Return what the residuals of one observable say, in numbers."""
    found = check.whiteness
    tests, links = ["", ""], [""] * len(fit.measurements.inputs)
    if found is not None:
        ratio = abs(found.excursion) / found.band
        tests = [_chance(found.p_value), f"{ratio:.2f}"]
        links = [f"{found.links[n].correlation:.2f}" if n in found.links else "" for n in fit.measurements.inputs]
    size, memory = f"{check.size:.2f}", f"{check.memory:.2f}" if check.memory < 0.995 else f"{check.memory:.4f}"
    return [check.name, str(check.count), size, memory, *tests, show_share(check.explained), *links]


def _chance(value: float) -> str:
    """Return a probability as text."""
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}" if value > 1e-12 else "< 1e-12"


def _panels(subject: Subject, residuals: Sequence[_Residuals]) -> list[Panel]:
    """Return one panel of residuals over time for each observable."""
    panels = []
    for item in residuals:
        check, many = item.check, item.check.count >= _MANY
        hover = f"{plot_text(check.name)}: %{{y:.2f}} times the noise{subject.hover_time}"
        trace = {
            "name": "residual",
            "x": item.times.tolist(),
            "y": plain(item.drawn, 4),
            "mode": "markers",
            "marker": {"color": DATA_COLOUR, "size": 3 if many else 5, "opacity": 0.3 if many else 0.7},
            "hovertemplate": hover,
        }
        reach = max(3.0, float(np.abs(item.drawn).max()))
        panels.append(Panel(f"<b>{plot_text(check.name)}</b>", [trace], (-reach, reach), (-2.0, 0.0, 2.0)))
    return panels
