"""The log evidence around its optimum: profiles of parameters, and surfaces over two of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from lodekit.learning.objective import Objective
from lodekit.learning.searches.search import HOPELESS, Optimum

__all__ = ["Landscape"]

Array = NDArray[np.float64]
#: Below this nothing of the evidence is shown; a larger fall between two points than this asks for more of them.
_DEEP, _CLIFF = -7.0, 3.0


class Landscape:
    """The log evidence (and log prior) less that at the estimate, as some parameters move from there.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
        The estimate.
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there.
    places : sequence of int
        Which entries of the vector that is searched move.
    others : {"following", "fixed", "relearned"}
        What all else does: follow to first order, stay, or be learned anew.
    """

    def __init__(
        self, objective: Objective, optimum: Optimum, curvature: Array, places: Sequence[int], others: str
    ) -> None:
        self.objective, self.centre, self.anew = objective, optimum.x, others == "relearned"
        moving = list(places)
        self.rest = np.setdiff1d(np.flatnonzero(~optimum.at_bound), moving)
        self.along = np.zeros((objective.layout.size, len(moving)))
        self.along[moving] = np.eye(len(moving))
        H = np.where(np.isfinite(curvature), curvature, 0.0)
        scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(H)[self.rest]), 1e-12))
        curvatures, vectors = np.linalg.eigh(H[np.ix_(self.rest, self.rest)] * np.outer(scale, scale))
        # Steps by these columns change the evidence alike, or not at all. Where it seems to grow, that is rounding as a
        # rule, and its size is about right.
        sizes = np.abs(curvatures)
        self.root = scale[:, None] * vectors / np.sqrt(np.maximum(sizes, 1e-8 * sizes.max(initial=1e-300)))
        if others != "fixed":
            # Where the quadratic approximation has its optimum, given these parameters.
            self.along[self.rest] = -self.root @ (self.root.T @ H[self.rest][:, moving])
        self.top = self.objective.value(self.centre)

    def height(self, x: Array) -> float:
        """Return the objective at a point less that at the estimate; minus infinity where it is not finite.

        Parameters
        ----------
        x : array, shape (n,)
            On the scale of the search.
        """
        value = self.objective.value(x)
        return value - self.top if np.isfinite(value) else -np.inf

    def settle(self, x: Array) -> Array:
        """Return a point with all else learned anew, where that was asked for; the point itself otherwise.

        Parameters
        ----------
        x : array, shape (n,)
            On the scale of the search; what moves is kept.
        """
        if not self.anew or not len(self.rest):
            return x

        def descend(z: Array) -> tuple[float, Array]:
            full = x.copy()
            full[self.rest] += self.root @ z
            value, slope = self.objective.evaluate(full)
            gradient = self.root.T @ slope[self.rest]
            finite = np.isfinite(value) and np.isfinite(gradient).all()
            return (-value, -gradient) if finite else (-HOPELESS, np.zeros(len(z)))

        # Beside a cliff, looking along a line takes most evaluations, and finds nothing.
        options = {"maxiter": 25, "maxfun": 60, "maxls": 10, "ftol": 1e-8}
        best = x.copy()
        found = minimize(descend, np.zeros(len(self.rest)), jac=True, method="L-BFGS-B", options=options)
        best[self.rest] += self.root @ found.x
        return best

    def surface(self, moves: Array) -> Array:
        """Return heights at many moves of all parameters that move, shape (m,).

        Parameters
        ----------
        moves : array, shape (m, places)
            Steps from the estimate, on the scale of the search.
        """
        with np.errstate(all="ignore"):
            return np.array([self.height(self.settle(self.centre + self.along @ move)) for move in moves])

    def curve(self, reach: float, points: int) -> tuple[Array, Array]:
        """Return moves of one parameter to either side, ascending, and the heights there.

        Each point starts where the last one ended; a curve ends early where the height is far below the estimate.

        Parameters
        ----------
        reach : float
            How far to go, on the scale of the search.
        points : int
            How many there are at least.
        """
        longest = 2.0 * reach / (points - 1)
        found = {0.0: 0.0}
        with np.errstate(all="ignore"):
            for sign in (-1.0, 1.0):
                x, at, height, step = self.centre, 0.0, 0.0, longest
                while at < reach * (1.0 - 1e-9) and height > _DEEP:
                    step = min(step, reach - at)
                    trial = self.settle(x + sign * step * self.along[:, 0])
                    new = self.height(trial)
                    # A cliff is approached in small steps, so that the figure shows where it is.
                    if height - new > _CLIFF and step > longest / 12:
                        step /= 2.0
                        continue
                    x, at, height, step = trial, at + step, new, min(2.0 * step, longest)
                    found[sign * at] = height
        moves = np.array(sorted(found))
        return moves, np.array([found[move] for move in moves.tolist()])
