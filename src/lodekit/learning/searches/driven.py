"""The search where known inputs drive all that was measured: many cheap simulations, then steps towards the best.

Values of the parameters are drawn around the sizes to expect, delays from a grid; what enters linearly (gains, offsets,
initial states) is solved for at each of them. The most promising ones, on a thinned record, are followed by Levenberg's
steps; what these find is the start of a search of the evidence, on axes along which it changes alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from lodekit.data.observations import Series
from lodekit.inference.records import RecordsEngine
from lodekit.learning.guesses.delays import delay_grid, delay_parameters
from lodekit.learning.guesses.gather import Guess
from lodekit.learning.guesses.simulated import Fitted, Simulation
from lodekit.learning.objective import Objective
from lodekit.learning.searches.search import GROWN, HOPELESS, Optimum, is_idle
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.progress import reach, waiting
from lodekit.system.system import System

__all__ = ["learn_driven", "search_along"]

Array = NDArray[np.float64]
#: How many rows screening looks at, and the first steps; and the last steps.
_THIN, _FULL = 250, 2000
#: How many values are tried: so many, and so many for each parameter that is not linear, up to that.
_TRIED, _EACH, _MOST = 12, 12, 84
#: Where several delays are learned, each is so many places of the grid ahead of the last: they need not be equal.
_AHEAD = 7
#: How many of them are followed at first, and how many of these to the end.
_FOLLOWED, _CHOSEN = 6, 2
#: How many steps there are, on the thinned record and on the whole, and what a step has to gain there.
_FIRST_STEPS, _STEPS, _FIRST_GAIN, _GAIN = 12, 40, 0.3, 1e-2
#: Two that end this close to each other have met; so often new values are drawn where none have.
_MET, _ROUNDS = 0.2, 3
#: One that is this much worse may still have more evidence.
_CLOSE = 5.0
#: How far a gain may be changed at once, as a factor.
_LEAST, _LARGEST = 0.03, 30.0
#: Directions with less curvature than this, relative to the sharpest, are searched as if they had as much.
_FLAT = 1e-7
#: The curvature of the evidence in the logarithm of a deviation of modes, and how many steps a search takes.
_BEND, _SEARCH = 1.0, 100


def learn_driven(
    system: System,
    objective: Objective,
    records: Sequence[Sequence[Series]],
    guesses: Sequence[Guess],
    generator: np.random.Generator,
    tolerance: float,
    known: Array | None = None,
) -> Optimum | None:
    """Return the best optimum of the objective; None where no simulation is finite.

    Parameters
    ----------
    system : System
    objective : Objective
        Of an engine without free functions.
    records : sequence of sequences of Series
        Measurements of each record, or averages of them, one for each observable.
    guesses : sequence of Guess
        Of the parameters.
    generator : numpy.random.Generator
        For values that are drawn.
    tolerance : float
        What a step has to gain in the objective.
    known : array, shape (p,), optional
        Parameters of an earlier fit: they are followed first, and others only where they start out better than these
        end.
    """
    engine, layout = objective.engine, objective.layout
    priors = [part.prior for part in (engine.engines if isinstance(engine, RecordsEngine) else (engine,))]
    whole, thin = (Simulation.of(priors, layout, records, most) for most in (_FULL, _THIN))
    given = [guess.theta for guess in guesses if guess.family == "given"]
    if known is not None:
        found = _follow_known(system, thin, whole, known, guesses, generator)
    elif given:
        found = [end for theta in given if (end := whole.descend(whole.chart.inward(theta), _STEPS, _GAIN)) is not None]
    else:
        found = _follow_many(system, thin, whole, guesses, generator)
    if not found:
        return None
    best = _climb(objective, whole, found[0], tolerance)
    for rival in found[1:2]:
        # Amplitudes and levels may make up for what it lacks, unless it is the same optimum.
        if 2.0 * _MET < rival.merit - found[0].merit < _CLOSE:
            other = _climb(objective, whole, rival, tolerance)
            best = other if other is not None and (best is None or other.value > best.value) else best
    return best


def _follow_known(
    system: System,
    thin: Simulation,
    whole: Simulation,
    known: Array,
    guesses: Sequence[Guess],
    generator: np.random.Generator,
) -> list[Fitted]:
    """Return where an earlier fit leads, and where others do if they start out better; best first."""
    end = whole.descend(whole.chart.inward(known), _STEPS, _GAIN)
    here = None if end is None else thin.look(end.z, end.levels, slopes=False)
    starts = _screen(system, thin, guesses, generator, is_first=True)
    best = thin.look(starts[0], None if end is None else end.levels, slopes=False) if starts else None
    if end is not None and (best is None or (here is not None and here.merit <= best.merit)):
        return [end]
    others = _follow_many(system, thin, whole, guesses, generator)
    return sorted([*([] if end is None else [end]), *others], key=lambda item: item.merit)


def _follow_many(
    system: System, thin: Simulation, whole: Simulation, guesses: Sequence[Guess], generator: np.random.Generator
) -> list[Fitted]:
    """Return where the most promising values lead, best first; new ones are drawn until two have met."""
    ends: list[Fitted] = []
    with waiting("fitting, simulations") as advance:
        for number in range(_ROUNDS):
            advance(1, f"round {number + 1} of {_ROUNDS} at most")
            starts = _screen(system, thin, guesses, generator, is_first=number == 0)
            first: list[Fitted] = []
            for z in starts[:_FOLLOWED]:
                end = thin.descend(z, _FIRST_STEPS, _FIRST_GAIN)
                first = sorted([*first, *([] if end is None else [end])], key=lambda end: end.merit)
                if len(first) > _CHOSEN and first[1].merit < first[0].merit + _FIRST_GAIN:
                    break
            for start in first[:_CHOSEN]:
                # One that comes as far as another has met it.
                enough = min((end.merit + _MET for end in ends), default=-np.inf)
                end = whole.descend(start.z, _STEPS, _GAIN, enough)
                ends += [] if end is None else [end]
            ends.sort(key=lambda end: end.merit)
            if len(ends) > 1 and ends[1].merit < ends[0].merit + 2.0 * _MET:
                break
    return ends


def _screen(
    system: System, thin: Simulation, guesses: Sequence[Guess], generator: np.random.Generator, *, is_first: bool
) -> list[Array]:
    """Return coordinates of values to start from, the most promising first."""
    layout, chart = thin.chart.layout, thin.chart
    affine = _affine(thin, generator)
    count = min(_TRIED + _EACH * int(np.sum(~affine)), _MOST)
    lags = delay_parameters(system, layout)
    grid = delay_grid(thin.times) if lags else np.zeros(0)
    blind = next((guess.theta for guess in guesses if guess.family == "blind"), np.full(len(layout.names), np.nan))
    drawn = [guess.theta for guess in guesses if guess.family != "blind"] if is_first else []
    drawn += [blind] * count
    found = []
    for attempt, theta in enumerate(drawn):
        filled = np.where(np.isnan(layout.fixed), theta, layout.fixed)
        for n in layout.learned:
            if np.isnan(filled[n]) and n in lags and len(grid):
                filled[n] = grid[(attempt + lags.index(n) * _AHEAD) % len(grid)]
            elif np.isnan(filled[n]):
                # From the third on, guesses are random.
                filled[n] = layout.guess(n, attempt if is_first else 2, generator)
        seen = _solve_gains(thin, chart.inward(filled), affine)
        if seen is not None:
            found.append(seen)
    found.sort(key=lambda pair: pair[0])
    return [z for _, z in found]


def _affine(thin: Simulation, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Return which of the learned parameters move neither roots nor delays: gains and offsets."""
    layout, observables = thin.chart.layout, thin.observables
    theta = layout.fixed.copy()
    for n in layout.learned:
        theta[n] = layout.guess(n, 2, generator)
    values = observables.evaluate(theta)
    moves = np.zeros(len(theta), dtype=bool)
    for factor in values.slopes.factors:
        moves |= factor.reshape(len(theta), -1).any(axis=1)
    if observables.driven is not None and values.driven is not None:
        drive = observables.driven.drive
        moves |= drive.matrices(values.driven)[1].F.reshape(len(theta), -1).any(axis=1)
        moves |= drive.delays(values.driven)[1].any(axis=1)
    return ~moves[layout.learned]


def _solve_gains(thin: Simulation, z: Array, affine: NDArray[np.bool_]) -> tuple[float, Array] | None:
    """Return how well a simulation does with the best gains and offsets, and its coordinates with these."""
    here = thin.look(z, slopes=bool(affine.any()))
    if here is None or not here.jacobian.size:
        return None if here is None else (here.merit, z)
    J, rest = here.jacobian[:, affine], thin.weigh(here)
    step = -np.linalg.lstsq(J, rest, rcond=1e-9)[0]
    transforms = list(thin.chart.layout.transforms.values())
    moved = z.copy()
    for place, change in zip(np.flatnonzero(affine), step.tolist(), strict=True):
        # What is positive is searched by its logarithm: the change of the value itself is what is linear.
        limited = np.log(np.clip(1.0 + change, _LEAST, _LARGEST))
        moved[place] += change if transforms[place].is_unbounded else limited
    there = thin.look(moved, here.levels, slopes=False)
    return (here.merit, z) if there is None or here.merit < there.merit else (there.merit, moved)


def _climb(objective: Objective, whole: Simulation, found: Fitted, tolerance: float) -> Optimum | None:
    """Return where a search of the objective ends that starts at a simulation, on axes made from its derivatives."""
    prior, layout = objective.engine.prior, objective.layout
    ends = np.cumsum([group.size for group in prior.groups])[:-1]
    pieces = np.split(found.amplitudes, ends, axis=1) if prior.groups else []
    modes = np.array([max(float(np.sqrt(np.mean(piece**2))), 1e-6) for piece in pieces])
    levels = found.levels * prior.units.scales
    groups = np.array(prior.noise.groups)
    noise = np.array([float(np.sqrt(np.mean(levels[groups == g] ** 2))) for g in range(layout.noise_levels)])
    theta = whole.chart.outward(found.z)
    hyper = Hyperparameters(theta, np.zeros(0), np.zeros(0), layout.fix_modes(modes, theta), noise)
    x0 = layout.pack(hyper)
    if not np.isfinite(objective.value(x0)):
        return None
    blocks, curvature = layout.blocks, np.zeros(layout.size)
    curvature[blocks.mode_deviations] = _BEND
    counts = whole.counts
    curvature[blocks.noise] = [2.0 * max(int(counts[groups == g].sum()), 1) for g in range(layout.noise_levels)]
    H = np.diag(curvature)
    slopes = np.array([layout.transforms[n].slope(float(x0[i])) for i, n in enumerate(layout.learned)])
    J = found.jacobian * (slopes / whole.chart.slopes(found.z))
    # Of averages over many measurements, each counts as many.
    H[blocks.theta, blocks.theta] = J.T @ J * max(objective.engine.size / len(whole.values), 1.0)
    return search_along(objective, x0, H, tolerance)


def _axes(H: Array) -> Array:
    """Return directions as columns, along which a quadratic form changes alike; flat ones are not followed far."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(H), 1e-2))
    if not np.isfinite(H).all():
        return np.diag(np.where(np.isfinite(scale) & (scale > 0.0), scale, 1.0))
    sizes, vectors = np.linalg.eigh(H * np.outer(scale, scale))
    return np.asarray(scale[:, None] * vectors / np.sqrt(np.maximum(sizes, _FLAT * max(float(sizes.max()), 1e-300))))


def search_along(objective: Objective, x0: Array, curvature: Array, tolerance: float) -> Optimum:
    """Return where quasi-Newton steps end from a start, on axes along which the objective changes alike.

    Parameters
    ----------
    objective : Objective
    x0 : array, shape (n,)
        The start, a vector of the layout.
    curvature : array, shape (n, n)
        About minus the Hessian of the objective there.
    tolerance : float
        What a step has to gain in the objective.
    """
    axes = _axes(curvature)

    def descend(z: Array) -> tuple[float, Array]:
        value, gradient = objective.evaluate(x0 + axes @ z)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return -HOPELESS, np.zeros_like(z)
        return -value, -(axes.T @ gradient)

    values: list[float] = []

    def watch(intermediate_result: OptimizeResult) -> None:
        values.append(-float(intermediate_result.fun))
        reach(objective, objective.name, values[-1])
        if len(values) > 1 and is_idle(values[-2], values[-1], tolerance):
            raise StopIteration

    options = {"maxiter": _SEARCH, "maxcor": 30, "ftol": 0.0, "gtol": 1e-6}
    found = minimize(descend, np.zeros(len(x0)), jac=True, method="L-BFGS-B", options=options, callback=watch)
    settled = bool(found.success or "StopIteration" in str(found.message))
    message = GROWN if settled else str(found.message)
    inner = np.zeros(len(x0), dtype=bool)
    return Optimum(x0 + axes @ found.x, -float(found.fun), settled, message, int(found.nfev), inner)
