"""The whole search: starts from the user, from the data and blind; one after the other or in parallel; best wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.errors import FitError
from lodekit.inference.engine import Engine
from lodekit.learning.matching import match_derivatives
from lodekit.learning.search import AGREE, Optimum, search, starting_points, trouble
from lodekit.learning.transforms import Layout
from lodekit.progress import waiting
from lodekit.system.parameters import Parameter
from lodekit.system.system import System

__all__ = ["Penalty", "learn"]

Array = NDArray[np.float64]
#: What a step has to gain in log evidence, on the first search and on those that only look where they lead.
_FINE, _COARSE = 1e-7, 1e-4


class Penalty:
    """The priors of the parameters as a penalty on the vector that is optimised.

    Parameters
    ----------
    layout : Layout
    parameters : dict of str to Parameter
    """

    def __init__(self, layout: Layout, parameters: Mapping[str, Parameter]) -> None:
        self._layout = layout
        self._priors = [
            (position, number, parameters[layout.names[number]].prior)
            for position, number in enumerate(layout.free)
            if parameters[layout.names[number]].prior is not None
        ]

    def __bool__(self) -> bool:
        return bool(self._priors)

    def __call__(self, x: Array) -> tuple[float, Array]:
        """Return the negative log density of the priors and its gradient."""
        total, gradient = 0.0, np.zeros_like(x)
        for position, number, prior in self._priors:
            transform = self._layout.transforms[number]
            point = float(x[position])
            if prior is not None:
                value, slope = prior.penalty(transform.forward(point))
                total += value
                gradient[position] += slope * transform.slope(point)
        return total, gradient


def learn(
    system: System,
    engine: Engine,
    layout: Layout,
    series: list[Series],
    *,
    restarts: int,
    random_state: int | None,
    n_jobs: int | None,
    scatter: Array | None = None,
    known: Array | None = None,
) -> Optimum:
    """Return the best optimum of the evidence, or of the posterior where parameters have priors.

    Parameters
    ----------
    scatter : array, optional
        What neighbouring measurements suggest for each noise parameter.
    known : array, optional
        A point from an earlier fit: it is followed first, and others only where they start out better than it ends.
    """
    if layout.size == 0:
        return _nothing_to_learn(engine, layout)
    generator = np.random.default_rng(random_state)
    starts = np.array(
        [np.nan if system.parameters[n].start is None else system.parameters[n].start for n in layout.names]
    )
    guesses, trusted = [starts], False
    if len(layout.free) and np.isnan(starts[layout.free]).any():
        matched = match_derivatives(system, series, layout, 2, generator)
        # What the user says comes before what the data suggest; the blind guess is the last resort.
        guesses = [np.where(np.isnan(starts), guess, starts) for guess in matched]
        if not guesses or not set(system.channels) <= {item.observable for item in series}:
            # Elimination of hidden channels takes derivatives of noise: its guess may be poor.
            guesses.append(starts)
        trusted = not any(np.isnan(guess[layout.free]).any() for guess in guesses)
    ranked = starting_points(engine, layout, guesses, restarts, generator, scatter)
    if not ranked and known is None:
        reason = trouble(engine, layout, guesses[0], generator)
        raise FitError(
            "no start gives a finite evidence; "
            + (reason or "give start= values near the truth, or check the units of the data")
        )
    penalty = Penalty(layout, system.parameters)
    extra: Callable[[Array], tuple[float, Array]] | None = penalty if penalty else None
    if known is not None:
        found = search(engine, layout, known, penalty=extra)
        better = [point for value, point in ranked if value + (extra(point)[0] if extra else 0.0) < found.value]
        return _best([found, *([_one_by_one(engine, layout, better, extra, trusted=trusted)] if better else [])])
    points = [point for _, point in ranked]
    if n_jobs not in (None, 1):
        from joblib import Parallel, delayed

        several = Parallel(n_jobs=n_jobs)(
            delayed(search)(engine, layout, point, penalty=extra, trusted=trusted) for point in points
        )
        return _best(list(several))
    return _one_by_one(engine, layout, points, extra, trusted=trusted)


def _one_by_one(
    engine: Engine,
    layout: Layout,
    points: list[Array],
    penalty: Callable[[Array], tuple[float, Array]] | None,
    *,
    trusted: bool,
) -> Optimum:
    """Follow the starts in turn, until two agree on the best; show progress where it takes long."""
    found: list[Optimum] = []
    with waiting("fitting", len(points)) as advance:
        for point in points:
            # After the first, a coarse search is enough to see whether a start leads to the same place.
            tolerance, rival = (_COARSE, _best(found)) if found else (_FINE, None)
            optimum = search(engine, layout, point, penalty=penalty, tolerance=tolerance, rival=rival, trusted=trusted)
            if rival is not None and optimum.value < rival.value:
                optimum = search(engine, layout, optimum.x, penalty=penalty, tolerance=_FINE, trusted=trusted)
            found.append(optimum)
            best = _best(found)
            if sum(1 for optimum in found if optimum.value < best.value + AGREE) >= 2:
                break
            advance(1, f"log evidence {-best.value:.3f}")
    return _best(found)


def _best(found: list[Optimum]) -> Optimum:
    return min(found, key=lambda optimum: optimum.value)


def _nothing_to_learn(engine: Engine, layout: Layout) -> Optimum:
    value = engine.value(layout.unpack(np.zeros(0)))
    if not np.isfinite(value):
        raise FitError("the covariance of the data is not finite; check units and fixed values")
    empty = np.zeros(0)
    return Optimum(empty, value, True, "nothing to learn", 1, empty.astype(bool))
