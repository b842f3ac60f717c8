"""How well standard errors themselves are known: degrees of freedom of the intervals of parameters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.objective import Objective

__all__ = ["degrees_of_freedom"]

Array = NDArray[np.float64]
#: How far the objective is looked at to either side, in standard errors.
_STEP = 0.5
#: A standard error beyond this, on the scale of the search, says that nothing is known.
_FAR = 30.0
#: Fewer degrees of freedom than this say no more than that the standard error is hardly known.
_FEWEST = 3.0
#: With so many measurements and no free function, about as many degrees of freedom are left: as good as known.
_PLENTY = 100_000


def degrees_of_freedom(objective: Objective, x: Array, covariance: Array) -> Array:
    """Return the degrees of freedom of each learned parameter's standard error, shape (p,); infinite where it is known.

    The standard error depends on noise, lengthscales and deviations, which are estimates as well. With the variance V
    of a parameter, its slopes d in all of these, and their covariance C, the variance of V is ``d^T C d``; that of an
    estimate from n independent normal errors is ``2 V^2 / n``. So n is what an interval's quantile of Student's
    distribution takes: the approximation of Satterthwaite. For a single level of noise it is the textbook's.

    V is an entry of the inverse curvature, and its slopes are third derivatives of the objective, twice along one
    direction: a second difference of its gradient gives all of them, with two evaluations for each parameter.

    Parameters
    ----------
    objective : Objective
    x : array, shape (n,)
        The optimum.
    covariance : array, shape (n, n)
        Of everything learned, on the scale of the search; infinite on the diagonal where nothing is known.
    """
    blocks = objective.layout.blocks
    count, rest = blocks.theta.stop, slice(blocks.theta.stop, len(x))
    found = np.full(count, np.inf)
    known = np.isfinite(np.diag(covariance)) & (np.diag(covariance) > 0.0)
    finite = _given_unknown(np.where(np.outer(known, known), covariance, 0.0), count)
    if not known[rest].any() or not known[:count].any():
        return found
    if objective.engine.size >= _PLENTY and objective.layout.is_driven:
        return found
    with np.errstate(all="ignore"):
        centre = objective.evaluate(x)[1]
        # Powers of ten away nothing is finite, and to find that out takes long.
        for k in np.flatnonzero(known[:count] & (np.diag(finite)[:count] < _FAR**2)).tolist():
            along = _STEP * finite[k] / np.sqrt(finite[k, k])
            above, below = (objective.evaluate(x + sign * along)[1] for sign in (1.0, -1.0))
            # The curvature along this direction, times the square of its length, and the slopes of V relative to V.
            curvature = 0.5 * float(along @ (below - above))
            slopes = (above + below - 2.0 * centre)[rest] / curvature
            spread = float(slopes @ finite[rest, rest] @ slopes)
            if np.isfinite(spread) and spread > 0.0 and curvature > 0.0:
                found[k] = max(2.0 / spread, _FEWEST)
    return found


def _given_unknown(covariance: Array, count: int) -> Array:
    """Return the covariance where parameters of which nothing is known, among the first so many, are held.

    What makes up for them, as the deviation of a disturbance does for a factor before it, is open, too; with such a
    parameter held it is known, and no standard error depends on where.
    """
    lost = np.flatnonzero(np.diag(covariance)[:count] >= _FAR**2)
    if not len(lost):
        return covariance
    beside = covariance[:, lost]
    found: Array = covariance - beside @ np.linalg.pinv(covariance[np.ix_(lost, lost)], hermitian=True) @ beside.T
    # Differences of large numbers: what is left of rounding is no variance.
    sizes = np.diag(covariance)
    gone = np.diag(found) <= 1e-10 * sizes
    found[gone], found[:, gone] = 0.0, 0.0
    found[lost, lost] = sizes[lost]
    return found
