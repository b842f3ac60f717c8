"""What a fit leaves of its measurements, and what follows: the verdict of residuals."""

from __future__ import annotations

from lodekit.fitted import Fit
from lodekit.learning.findings import Findings

__all__ = ["diagnose"]


def diagnose(fit: Fit) -> Findings:
    """Return what residuals say about the fit: one sentence for each observable, with the numbers behind it.

    Without free functions these are the residuals of the fitted curve; with them innovations, each measurement against
    its prediction from those before, because a curve that bends to the data leaves less than the noise, and correlated.

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.linspace(0, 10, 80)
    >>> system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    >>> x = np.exp(-0.5 * t) + 0.01 * np.random.default_rng(0).standard_normal(80)
    >>> found = lk.LODEGP(system, random_state=0).fit(t, x).diagnose()
    >>> found.is_independent, found.sentences[0][:43]
    (True, 'residuals of x look like independent noise ')
    """
    return Findings.of(fit.diagnosis, fit.labels.units.get("t", ""))
