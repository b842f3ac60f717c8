"""Residuals, measurements minus mean in units of the noise, and how much of the data the curves explain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series

__all__ = ["FEW", "RUN", "RUNS", "Check", "check_residuals", "join_words", "residual_doubts"]

Array = NDArray[np.float64]
#: Where there are more measurements, residuals are looked at in this many runs of neighbours, each of this length.
RUNS, RUN = 20, 1000
#: Fewer residuals say nothing about noise.
FEW = 10
#: A share of the variance below this is low.
_LOW = 0.5
#: A share of the variance below this is nothing.
_NOTHING = 1e-8


@dataclass(frozen=True)
class Check:
    """What the residuals of one observable say.

    Parameters
    ----------
    name : str
        The observable.
    count : int
        How many measurements there are.
    looked : int
        How many residuals with noise above zero were looked at.
    size : float
        Their root mean square in units of the noise: about one where the noise is as it was said.
    memory : float
        The correlation of neighbours: about zero where they are independent.
    explained : float
        One less the variance of the residuals over that of the data; NaN where the data do not change.
    expected : float
        The same with the known noise for the residuals, where all noise is known; NaN otherwise.
    record : str
        Where there are several records: which one.
    """

    name: str
    count: int
    looked: int
    size: float
    memory: float
    explained: float
    expected: float = math.nan
    record: str = ""

    @property
    def title(self) -> str:
        """The observable, with its record where there are several."""
        return f"{self.name} of record {self.record}" if self.record else self.name

    @property
    def has_memory(self) -> bool:
        """Whether neighbours resemble each other by more than chance, and enough to matter."""
        return self.memory > self._chance and self._matters

    @property
    def alternates(self) -> bool:
        """Whether neighbours differ from each other by more than chance, and enough to matter."""
        return self.memory < -max(self._chance, 0.4) and self._matters

    @property
    def _matters(self) -> bool:
        """Whether anything is left over that is worth a word: of data without noise, rounding is."""
        return not 1.0 - self.explained < _NOTHING

    @property
    def _chance(self) -> float:
        return max(2.6 / math.sqrt(max(self.looked, 1)), 0.1)

    @property
    def is_loud(self) -> bool:
        """Whether residuals are larger than the noise by more than chance, and enough to matter."""
        return self.size > 1 + max(0.25, 3 / math.sqrt(2 * max(self.looked, 1)))

    @property
    def is_low(self) -> bool:
        """Whether the curve explains little of the data, though more could be explained."""
        return self.count >= FEW and self.explained < _LOW and not self.expected < _LOW + 0.2


def check_residuals(item: Series, mean: Callable[[Array], Array], level: float) -> Check:
    """Return what the residuals of one observable say.

    Parameters
    ----------
    item : Series
        The measurements.
    mean : function
        From times to the fitted curve there, in the user's units.
    level : float
        The standard deviation of noise that was learned.
    """
    noise = np.where(item.learned, level, item.std)
    count = len(item.times)
    starts = np.linspace(0, max(count - RUN, 0), RUNS).astype(np.intp)
    rows = np.arange(count)[None] if count <= RUNS * RUN else starts[:, None] + np.arange(RUN)
    plain = item.values[rows] - mean(item.times[rows].ravel()).reshape(rows.shape)
    usable = noise[rows] > 0
    scaled = np.where(usable, plain / np.where(usable, noise[rows], 1.0), 0.0)
    power, looked = float(np.sum(scaled**2)), int(usable.sum())
    memory = float(np.sum(scaled[:, 1:] * scaled[:, :-1])) / power if power else 0.0
    variance = float(np.var(item.values[rows]))
    changes = variance > (1e-9 * float(np.max(np.abs(item.values)))) ** 2
    left = float(np.mean(plain**2))
    known = 1.0 - float(np.mean(noise[rows] ** 2)) / variance if changes and not item.learned.any() else math.nan
    explained = 1.0 - left / variance if changes and count > 1 else math.nan
    return Check(item.observable, count, looked, math.sqrt(power / max(looked, 1)), memory, explained, known)


def residual_doubts(checks: Sequence[Check], *, is_shared: bool) -> list[str]:
    """Return what speaks against a fit, in sentences that each say what to try; none where residuals look like noise.

    Parameters
    ----------
    checks : sequence of Check
        One for each observable.
    is_shared : bool
        Whether one level of noise was learned for all.
    """
    found = []
    slow = [check for check in checks if check.has_memory]
    if slow:
        listed = join_words([f"{check.title} (correlation {check.memory:.2f})" for check in slow])
        largest = min(max(check.memory for check in slow), 0.999)
        found.append(
            f"neighbouring residuals resemble each other in {listed}: errors are not independent, or the fit or the "
            "equations miss something; standard errors and intervals are then too narrow, as a rule of thumb by a "
            f"factor of up to {math.sqrt((1 + largest) / (1 - largest)):.1f}: look at the residuals for what is missing"
        )
    swinging = [f"{check.title} (correlation {check.memory:.2f})" for check in checks if check.alternates]
    if swinging:
        found.append(
            f"neighbouring residuals swing from one side to the other in {join_words(swinging)}: the measurements are "
            "not independent, or the curve follows their noise; where the noise is known, give noise_std"
        )
    loud = [f"{check.title} ({check.size:.1f} times)" for check in checks if check.is_loud]
    if loud and is_shared and len({check.name for check in checks}) > 1:
        found.append(
            f"residuals are larger than the shared noise in {join_words(loud)}: "
            'noise="channel" learns one level for each'
        )
    elif loud:
        found.append(
            f"residuals are larger than the noise in {join_words(loud)}: it is set too small, or the equations miss "
            "something; leave noise_std out to learn it"
        )
    low = [f"{max(check.explained, 0.0):.0%} of {check.title}" for check in checks if check.is_low]
    if low:
        found.append(
            f"the curves explain little of the variance of the data, {join_words(low)}; the rest counts as noise: "
            "where it is none, try start values, or other equations"
        )
    return found


def join_words(items: Sequence[str]) -> str:
    """Return a list in a sentence: ``a, b and c``."""
    return " and ".join(items) if len(items) < 3 else f"{', '.join(items[:-1])} and {items[-1]}"
