"""One search for an optimum of the objective: quasi-Newton steps from one start."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from lodekit.learning.objective import Objective
from lodekit.learning.transforms import Layout
from lodekit.progress import reach

__all__ = ["GROWN", "HOPELESS", "UNKNOWN_AHEAD", "Optimum", "is_idle", "limits_around", "search"]

Array = NDArray[np.float64]

#: What another stride has to gain in evidence.
_GAIN = 1e-2
#: A point this close to an optimum on the scale of the search, and as likely, leads there.
_NEAR = 0.3
#: How far parameters may get from their start, and how far one search may take them, on the scale of the search.
_FAR, _STRIDE = 40.0, 2.0
#: How far below its start the logarithm of the deviation of a disturbance may get: next to nothing.
_FAINT = 20.0
#: How far from its start the logarithm of a deviation of modes may get: those that data do without shrink for ever.
_MODES_FAR = 30.0
#: So many times the spread of the data is more noise than there can be.
_LOUDEST = 1e2
#: This close to a limit, an entry sits there; this close to the longest lengthscale, as a share, that one does.
_AT, _AT_LONGEST = 1e-6, 0.99
#: Below this, relative to the objective, a gain cannot be told from rounding errors.
_ROUNDING = 1e-13
#: A search that ends where no slope is larger than this, relative to the objective, has converged.
_FLAT = 1e-3
#: What a search is told of a point where nothing finite can be said.
HOPELESS = -1e12
#: Why a search ended that has come to its end.
GROWN = "the evidence does not grow any more"
#: Why a search ended that could have gone on, had the evidence been known there.
UNKNOWN_AHEAD = "the evidence grows where it is not known"


@dataclass(frozen=True, eq=False)
class Optimum:
    """Where a search ended.

    Parameters
    ----------
    x : array, shape (n,)
        The vector of the layout.
    value : float
        The log evidence there, plus the log prior where parameters have priors.
    converged : bool
    message : str
        Why the search ended.
    evaluations : int
        How often the objective was evaluated.
    at_bound : array of bool, shape (n,)
        What sits at a limit of the search.
    others : tuple of (float, array)
        Where searches from other starts have ended that came about as far, with the objective there.
    """

    x: Array
    value: float
    converged: bool
    message: str
    evaluations: int
    at_bound: NDArray[np.bool_]
    others: tuple[tuple[float, Array], ...] = ()

    def is_met(self, x: Array, value: float, layout: Layout, agree: float) -> bool:
        """Return whether a search that has come to a point is on its last steps to this optimum.

        Deviations do not count: that of a free function or a mode which the data do without goes on shrinking for ever.

        Parameters
        ----------
        x : array, shape (n,)
            Where the search is.
        value : float
            The objective there.
        layout : Layout
            Which entries of `x` are deviations.
        agree : float
            How close the objective must be.
        """
        apart = np.abs(x - self.x)
        apart[layout.blocks.deviations] = apart[layout.blocks.mode_deviations] = 0.0
        apart[layout.blocks.disturbance_deviations] = 0.0
        return bool(abs(value - self.value) < agree and np.max(apart, initial=0.0) < _NEAR)


def _bounds(objective: Objective, x0: Array, centre: Array) -> list[tuple[float, float]]:
    """Return limits for a search: wide enough for every sensible answer, narrow enough for floats.

    Deviations have no unit of their own: their limits lie around the start, which matches the data. Parameters move in
    strides, because a first step that is too long ends on a plateau where they mean nothing; what may be negative can
    always change its sign.

    Parameters
    ----------
    objective : Objective
    x0, centre : array, shape (n,)
        Where this search starts, and where the first one did.
    """
    layout, engine = objective.layout, objective.engine
    blocks, reach = layout.blocks, engine.limits
    limits = []
    for number, x, middle in zip(layout.learned, x0[blocks.theta], centre[blocks.theta], strict=True):
        low, high = float(x) - _STRIDE, float(x) + _STRIDE
        if layout.transforms[number].is_unbounded:
            # Around zero the scale of the search is fine: from there to the size to expect may be many strides.
            transform = layout.transforms[number]
            far = max(abs(float(x)), abs(transform.inverse(transform.size)))
            low, high = min(low, -far), max(high, far)
        limits.append((max(float(middle) - _FAR, low), min(float(middle) + _FAR, high)))
    floors = np.maximum(np.log(reach.shortest), x0[blocks.lengthscales] - np.log(reach.stride))
    limits += [(float(floor), float(np.log(reach.longest))) for floor in floors]
    limits += [(float(x) - reach.deviations, float(x) + reach.deviations) for x in centre[blocks.deviations]]
    limits += [(float(x) - _MODES_FAR, float(x) + _MODES_FAR) for x in x0[blocks.mode_deviations]]
    noise = engine.prior.noise
    for floor, unit in zip(noise.floors[: layout.noise_levels], noise.units, strict=False):
        limits.append((float(np.log(floor)), float(np.log(_LOUDEST * unit))))
    limits += [(float(np.log(reach.shortest)), float(np.log(reach.longest)))] * layout.coloured
    limits += [(float(x) - _FAINT, float(x) + _FAR) for x in centre[blocks.disturbance_deviations]]
    return limits


def is_idle(before: float, after: float, tolerance: float) -> bool:
    """Return whether a step has gained too little for another one.

    The gain counts in the unit of the evidence, not relative to it, down to its rounding errors.

    Parameters
    ----------
    before, after : float
        The objective before the step and after it.
    tolerance : float
        What a step has to gain.
    """
    return after - before < max(tolerance, _ROUNDING * abs(after))


def limits_around(objective: Objective, x: Array) -> tuple[Array, Array]:
    """Return lower and upper limits of a search that starts at a point, each of shape (n,).

    Parameters
    ----------
    objective : Objective
    x : array, shape (n,)
    """
    limits = np.array(_bounds(objective, x, x)).reshape(len(x), 2)
    return limits[:, 0], limits[:, 1]


def search(
    objective: Objective,
    x0: Array,
    *,
    iterations: int = 500,
    tolerance: float = 1e-7,
    rival: Optimum | None = None,
    agree: float | None = None,
    trusted: bool = False,
) -> Optimum:
    """Return where L-BFGS ends from one start: where a step gains less than the tolerance, or a rival is met.

    Parameters that start near the truth, because the data suggested them, are trusted: steps change them less than the
    rest, and half as many steps are needed.

    Parameters, and lengthscales where short ones make evaluations dear, are reached in strides: a search that ends at
    the limit of its stride goes on from there, as long as that gains something.

    Parameters
    ----------
    objective : Objective
    x0 : array, shape (n,)
        The start, a vector of the layout.
    iterations : int
        How many steps of one stride at most.
    tolerance : float
        What a step has to gain in the objective.
    rival : Optimum, optional
        An optimum that was found before: a search that meets it ends.
    agree : float, optional
        How close their objectives are then; what the engine says by default.
    trusted : bool
        Whether the parameters start near the truth.
    """
    scale = _scales(objective.layout, trusted=trusted)
    agree = objective.engine.limits.agree if agree is None else agree
    found, is_steep = _search(objective, x0, x0, iterations, tolerance, rival, scale, agree)
    evaluations = found.evaluations
    while is_steep or _stuck(objective, found, x0).any():
        following, is_steep = _search(objective, found.x, x0, iterations, tolerance, rival, scale, agree)
        evaluations += following.evaluations
        gain, before, found = following.value - found.value, found, following
        if gain < _GAIN:
            # Had it come to an end before, it has now: where a line leads nowhere, nothing new was learned.
            ended = before if before.converged else found
            at_bound = found.at_bound & ~_stuck(objective, found, x0)
            found = replace(found, at_bound=at_bound, converged=ended.converged, message=ended.message)
            break
    return replace(found, evaluations=evaluations)


def _stuck(objective: Objective, found: Optimum, centre: Array) -> NDArray[np.bool_]:
    """Return which entries ended at the limit of their stride, and could go farther, shape (n,)."""
    blocks = objective.layout.blocks
    inner = np.zeros(objective.layout.size, dtype=bool)
    inner[blocks.theta] = np.abs(found.x[blocks.theta] - centre[blocks.theta]) < _FAR - _AT
    lengthscales = found.x[blocks.lengthscales]
    reach = objective.engine.limits
    shortest, longest = float(np.log(reach.shortest)) + _AT, float(np.log(_AT_LONGEST * reach.longest))
    inner[blocks.lengthscales] = (lengthscales > shortest) & (lengthscales < longest)
    return found.at_bound & inner


def _search(
    objective: Objective,
    x0: Array,
    centre: Array,
    iterations: int,
    tolerance: float,
    rival: Optimum | None,
    scale: Array,
    agree: float,
) -> tuple[Optimum, bool]:
    """Return where one stride of a search ends, and whether it is steep there; steps are measured in units of `scale`.

    A step that gains nothing where it is steep has lost its way: so it goes along walls of narrow valleys.
    """
    limits = _bounds(objective, x0, centre)
    low, high = np.array(limits).T if limits else (np.zeros(0), np.zeros(0))
    start = np.clip(x0, low, high)

    def evaluate(x: Array) -> tuple[float, Array]:
        value, gradient = objective.evaluate(x)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            value, gradient = HOPELESS, np.zeros_like(x)
        return value, scale * gradient

    first = evaluate(start)
    # The first step of L-BFGS-B is as long as the gradient, up to the limits of the search, from where many a search
    # does not find back: in this unit it is one.
    unit = max(1.0, float(np.linalg.norm(first[1])))

    def descend(z: Array) -> tuple[float, Array]:
        value, gradient = evaluate(start + scale * z) if z.any() else first
        return -value / unit, -gradient / unit

    values: list[float] = []

    def watch(intermediate_result: OptimizeResult) -> None:
        x, value = start + scale * intermediate_result.x, -unit * float(intermediate_result.fun)
        values.append(value)
        reach(objective, objective.name, value)
        if len(values) > 1 and is_idle(values[-2], value, tolerance):
            raise StopIteration
        if rival is not None and rival.is_met(x, value, objective.layout, agree):
            raise StopIteration

    box = np.stack([(low - start) / scale, (high - start) / scale], axis=1)
    options = {"maxiter": iterations, "maxcor": 20, "ftol": 0.0, "gtol": 1e-5 / unit, "maxls": 15}
    found = minimize(
        descend, np.zeros_like(start), jac=True, method="L-BFGS-B", bounds=box, options=options, callback=watch
    )
    x, value = np.clip(start + scale * found.x, low, high), -unit * float(found.fun)
    at_bound = (x <= low + _AT) | (x >= high - _AT)
    gradient = np.where(at_bound, 0.0, unit * found.jac / scale)
    flat = float(np.max(np.abs(gradient), initial=0.0)) < _FLAT * max(1.0, abs(value))
    message = GROWN if "StopIteration" in str(found.message) else str(found.message)
    converged = bool(found.success or flat or "StopIteration" in str(found.message))
    # One that looks where a start leads need not go on.
    is_steep = not flat and rival is None and found.nit < iterations
    return Optimum(x, value, converged, message, int(found.nfev), at_bound), is_steep


def _scales(layout: Layout, *, trusted: bool) -> Array:
    """Return how far a step may well go in each entry of the vector, shape (n,)."""
    found, blocks = np.ones(layout.size), layout.blocks
    found[blocks.theta] = 0.1 if trusted else 1.0
    found[blocks.lengthscales] = found[blocks.noise] = 0.5
    return found
