"""Verdicts with margin: paired tests, binomial intervals and bounds that do not depend on the machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Claim", "Paired", "Verdict", "bound", "compare_pairs", "coverage_interval", "decide"]

Array = NDArray[np.float64]
#: yes, no, tie (the data sets do not tell the two apart), open (too few data sets to tell anything).
Verdict = str
_LEVEL = 0.05
#: With fewer pairs not even a clean sweep is significant.
_FEWEST = 6


@dataclass(frozen=True)
class Claim:
    """A statement about the results.

    Parameters
    ----------
    text : str
    verdict : {"yes", "no", "tie", "open"}
    evidence : str
    """

    text: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Paired:
    """How two ways compare, data set by data set; less is better.

    Parameters
    ----------
    verdict : {"yes", "no", "tie", "open"}
        Whether the first is better.
    wins, ties, count : int
    probability : float
        Of a difference as large as this one without a cause.
    """

    verdict: Verdict
    wins: int
    ties: int
    count: int
    probability: float

    def __str__(self) -> str:
        equal = f" and {self.ties} ties" if self.ties else ""
        shown = "p < 0.001" if self.probability < 1e-3 else f"p = {self.probability:.2g}"
        return f"{self.wins} wins{equal} of {self.count}, {shown}"


def decide(holds: bool) -> Verdict:
    """Return a verdict on something that is so or is not.

    Examples
    --------
    >>> decide(2 > 1)
    'yes'
    """
    return "yes" if holds else "no"


def compare_pairs(ours: Array, theirs: Array) -> Paired:
    """Return whether values are smaller than others, pair by pair, by Wilcoxon's signed-rank test at 5 %.

    Parameters
    ----------
    ours, theirs : arrays, shape (n,)
        Differences below a ten-thousandth are ties: where both end in the same optimum, rounding decides.

    Examples
    --------
    >>> print(compare_pairs(np.arange(10.0), np.arange(10.0) + 1))
    10 wins of 10, p = 0.002
    >>> compare_pairs(np.arange(4.0), np.arange(4.0) + 1).verdict
    'open'
    """
    from scipy.stats import wilcoxon

    apart = ours - theirs
    apart = np.where(np.abs(apart) <= 1e-4 * np.maximum(np.abs(ours), np.abs(theirs)) + 1e-12, 0.0, apart)
    left = apart[apart != 0]
    probability = float(wilcoxon(left).pvalue) if len(left) else 1.0
    if len(ours) < _FEWEST:
        verdict = "open"
    elif probability < _LEVEL:
        verdict = "yes" if float(np.median(left)) < 0 else "no"
    else:
        verdict = "tie"
    return Paired(verdict, int(np.sum(apart < 0)), int(np.sum(apart == 0)), len(ours), probability)


def coverage_interval(inside: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval (Clopper and Pearson) of a share of which `inside` of `count` were seen.

    Examples
    --------
    >>> tuple(round(end, 3) for end in coverage_interval(35, 40))
    (0.732, 0.958)
    """
    from scipy.stats import binomtest

    found = binomtest(inside, count).proportion_ci(0.95)
    return float(found.low), float(found.high)


def bound(value: float) -> float:
    """Return a bound for a `value` that other machines share: an even power of ten, ten times as large at least.

    Examples
    --------
    >>> bound(3e-8), bound(2e-7)
    (1e-06, 0.0001)
    """
    return float(f"1e{2 * int(np.ceil((np.log10(max(value, 1e-17)) + 1) / 2))}")
