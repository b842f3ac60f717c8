"""The section of residuals, measurements minus mean in units of the noise, and what they mean for intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.page import Page, plot_text
from lodekit.report.panels import Panel, stack
from lodekit.report.subject import DATA_COLOUR, DRAWN, Subject, plain, thin
from lodekit.report.wording import join

__all__ = ["Check", "add_residuals", "find_checks"]

Array = NDArray[np.float64]
#: Where there are more measurements, residuals are looked at in this many runs of neighbours, each of this length.
_RUNS, _RUN = 20, 1000
#: Fewer residuals say nothing about noise.
_FEW = 10


@dataclass(frozen=True)
class Check:
    """Residuals of one observable, in units of the noise.

    Parameters
    ----------
    name : str
        The observable.
    count : int
        How many measurements with noise above zero there are.
    values : array, shape (runs, n)
        Residuals in runs of neighbours: all of them, or some where there are many.
    times, drawn : arrays, shape (p,)
        The residuals that are drawn, and their times in the user's units.
    """

    name: str
    count: int
    values: Array
    times: Array
    drawn: Array

    @property
    def size(self) -> float:
        """The root mean square of the residuals: about one where the noise is as it was said."""
        return float(np.sqrt(np.mean(self.values**2)))

    @property
    def memory(self) -> float:
        """The correlation of neighbouring residuals: about zero where they are independent."""
        power = float(np.sum(self.values**2))
        return float(np.sum(self.values[:, 1:] * self.values[:, :-1])) / power if power else 0.0

    @property
    def has_memory(self) -> bool:
        """Whether neighbours resemble each other by more than chance, and enough to matter."""
        return self.memory > self._chance

    @property
    def alternates(self) -> bool:
        """Whether neighbours differ from each other by more than chance, and enough to matter."""
        return self.memory < -max(self._chance, 0.4)

    @property
    def _chance(self) -> float:
        return max(2.6 / math.sqrt(self.values.size), 0.1)

    @property
    def is_loud(self) -> bool:
        """Whether residuals are larger than the noise by more than chance, and enough to matter."""
        return self.size > 1 + max(0.25, 3 / math.sqrt(2 * self.values.size))


def find_checks(subject: Subject) -> list[Check]:
    """Return the residuals of every observable; none where only sums over the measurements were kept.

    Parameters
    ----------
    subject : Subject
        The fitted model, and what the user said about it.
    """
    if subject.gp.fit_.measurements.sums is not None:
        return []
    found = []
    for name, item in subject.series.items():
        noise = np.where(item.learned, subject.gp.fit_.typical_noise(name), item.std)
        usable = np.flatnonzero(noise > 0)
        if not len(usable):
            continue

        def residuals(chosen: NDArray[np.intp], item: Series = item, noise: Array = noise) -> Array:
            mean = subject.gp.predict(item.times[chosen].ravel(), item.observable).reshape(chosen.shape)
            return np.asarray((item.values[chosen] - mean) / noise[chosen])

        runs = usable[None]
        if len(usable) > _RUNS * _RUN:
            starts = np.linspace(0, len(usable) - _RUN, _RUNS).astype(np.intp)
            runs = usable[starts[:, None] + np.arange(_RUN)]
        shown = usable[thin(len(usable))]
        found.append(Check(name, len(usable), residuals(runs), item.times[shown], residuals(shown)))
    return found


def add_residuals(page: Page, subject: Subject, checks: Sequence[Check]) -> None:
    """Add a table and a plot of residuals in units of the noise, and what they say about the intervals.

    Parameters
    ----------
    page : Page
        What is added to.
    subject : Subject
        The fitted model, and what the user said about it.
    checks : sequence of Check
        One for each observable, from `find_checks`.
    """
    page.section("Residuals")
    if not checks:
        summed = subject.gp.fit_.measurements.sums is not None
        reason = "The measurements were summed and not kept" if summed else "The measurements have no noise"
        page.paragraph(f"{reason}, so there are no residuals to look at.")
        return
    doubts = _doubts(subject, checks)
    if doubts:
        page.items(doubts, "warning")
    elif max(check.count for check in checks) < _FEW:
        page.paragraph("There are too few measurements to tell whether they scatter as independent noise does.")
    else:
        page.paragraph("Measurements scatter about the mean as independent noise does.", "good")
    rows = [[check.name, str(check.count), f"{check.size:.2f}", f"{check.memory:.2f}"] for check in checks]
    page.table(["", "points", "RMS / noise", "correlation of neighbours"], rows)
    panels = []
    for check in checks:
        hover = f"{plot_text(check.name)}: %{{y:.2f}} times the noise{subject.hover_time}"
        trace = {
            "name": "residual",
            "x": check.times.tolist(),
            "y": plain(check.drawn, 4),
            "mode": "markers",
            "marker": {
                "color": DATA_COLOUR,
                "size": 5 if check.count < 1000 else 3,
                "opacity": 0.7 if check.count < 1000 else 0.3,
            },
            "hovertemplate": hover,
        }
        reach = max(3.0, float(np.abs(check.drawn).max()))
        panels.append(Panel(f"<b>{plot_text(check.name)}</b>", [trace], (-reach, reach), (-2.0, 0.0, 2.0)))
    caption = (
        "Measurement minus mean, divided by the noise; about 95 % of independent noise lies between the outer lines."
    )
    if any(check.count > check.values.size for check in checks):
        caption += f" The numbers in the table come from {_RUNS} runs of {_RUN} neighbours."
    if any(check.count > DRAWN for check in checks):
        caption += f" Of each channel {DRAWN} points are shown, evenly chosen."
    start, stop = subject.gp.fit_.measurements.window
    margin = 0.02 * (stop - start) or 0.5
    page.plot(*stack(panels, height=90, label=subject.time_label, span=(start - margin, stop + margin)), caption)


def _doubts(subject: Subject, checks: Sequence[Check]) -> list[str]:
    """Return what speaks against the fit, in sentences; none where residuals look like noise."""
    found = []
    slow = [check for check in checks if check.has_memory]
    if slow:
        listed = join([f"{check.name} (correlation {check.memory:.2f})" for check in slow])
        largest = max(check.memory for check in slow)
        found.append(
            f"Neighbouring residuals resemble each other in {listed}: errors are not independent, or the fit or the "
            "equations miss something. Standard errors and intervals are then too narrow, as a rule of thumb by a "
            f"factor of up to {math.sqrt((1 + largest) / (1 - largest)):.1f}."
        )
    swinging = [f"{check.name} (correlation {check.memory:.2f})" for check in checks if check.alternates]
    if swinging:
        found.append(
            f"Neighbouring residuals swing from one side to the other in {join(swinging)}: the measurements are not "
            "independent, or the curve follows their noise."
        )
    loud = [f"{check.name} ({check.size:.1f} times)" for check in checks if check.is_loud]
    if loud and subject.gp.fit_.arguments.noise == "shared" and subject.gp.noise_ and len(checks) > 1:
        found.append(
            f'Residuals are larger than the shared noise in {join(loud)}; noise="channel" learns one for each.'
        )
    elif loud:
        found.append(
            f"Residuals are larger than the noise in {join(loud)}: it is set too small, or the equations are wrong."
        )
    return found
