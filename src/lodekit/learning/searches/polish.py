"""The last digits of an optimum: Newton steps with the curvature that standard errors need anyway."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.curvature import curvature_at
from lodekit.learning.objective import Objective
from lodekit.learning.searches.charts import Linear, LocalChart, Logarithmic, put_at_walls
from lodekit.learning.searches.search import GROWN, UNKNOWN_AHEAD, Optimum
from lodekit.progress import reach

__all__ = ["polish"]

Array = NDArray[np.float64]
#: How many steps there are at most on one scale, and how long each may be there; and how many while each gains that.
_STEPS, _LONGEST, _MOST_STEPS, _FAST = 12, 1.0, 20, 1e-2
#: Where no parameter is learned, valleys are wide, and one scale and so many steps are enough.
_FEW_STEPS = 6
#: A step that gains less than this share of what it has promised leads nowhere; so many of them are enough.
_IDLE, _PATIENCE = 1e-4, 3
#: How often the scale is changed, and what makes another round worth while.
_ROUNDS, _WORTH = 3, 1e-13
#: How many more rounds there are while each gains that much: slow ways to a bound end there, in any unit. What gains
#: more has next to no noise, and no end.
_MORE_ROUNDS, _SLOW = 6, (1e-7, 0.1)
#: Newton's steps end soon, or something is on its way to zero or beyond all bounds: where less than this is left to
#: gain, and a step promises more than that share of what the one before did, others are not worth their time. They
#: are where there are fewer measurements than these: an optimum that is flat to the third order is found slowly, too,
#: and how much of a parameter the data tell is not seen before it is reached.
_TAIL, _SLOWLY, _LONG = 1e-6, 0.1, 2000
#: What moves by more than this in one round is running away, and is tried so much farther.
_RUNS, _FURTHER = 1.0, (12.0, 8.0, 4.0)
#: A step that promises less than this in the objective, relative to its size or not, is the last one.
_GAIN, _ROUNDING = 1e-15, 1e-18
#: A search has converged where nothing promises more than this.
_SETTLED = 1e-3
#: It has not where the last step promises more than this share of the objective and leads nowhere, beside what rounding
#: errors of the gradient promise, which count up to so many standard errors.
_STEEP, _LOUDEST = 0.1, 1e3
#: What the objective may lose, relative to its size, where its gradient says that a step gains; or how many times the
#: rounding error that was seen, up to that.
_DIGITS, _SEEN, _MOST_LOST = 1e-9, 10.0, 1e-3
#: Where rounding errors of the gradient are more than so many standard errors, small gains are worth no more steps.
_BLIND = 0.1
#: What the curvature along any direction is at least, in what it would be were all entries independent, where rounding
#: errors make it negative.
_LEAST = 1e-2
#: Gains above this, relative to the size of the objective, are clear of its rounding errors.
_CLEAR = 1e-10
#: A step of more standard errors than this asks for the curvature where it ends.
_FAR = 0.03
#: Curvatures that differ by more than this, after each entry was scaled, are measured again in their own directions.
_NARROW = 1e-2
#: How often it is measured in its own axes where gradients have few digits, before anything else is.
_AXES = 3
#: Differences go so far in standard errors, and no farther than that on the scale of the search.
_SHARE, _REACH = 0.03, 3e-4
#: Rounding errors of the gradient that ask for wider differences: so many times wider, up to that on the scale of the
#: search. They show in a step of so many standard errors.
_QUIET, _CLEAR_OF, _WIDEST, _NEXT = 1e-5, 100.0, 0.3, 1e-7
#: Directions with less curvature than this, relative to the sharpest, cannot be told from flat ones.
_FLAT = 1e-9


def polish(objective: Objective, optimum: Optimum, curvature: Array) -> tuple[Optimum, Array]:
    """Return an optimum with more digits, and minus the Hessian of the objective there, shape (n, n).

    A search ends where a step gains next to nothing. In a narrow valley that may be far from the end of it; and where
    it is not, rounding decides about the last digits. Newton's steps end where the gradient vanishes.

    Equations are linear in most of their parameters. Where data tell combinations of them only, the valley is straight
    in the parameters themselves, and bends on the logarithmic scale of the search: steps are taken in the former, and
    in the latter where that leads nowhere. A positive parameter that is best at zero gets there, and sits at its bound.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
        Where a search ended.
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there.
    """
    best, tail = _run_out(objective, optimum), _tail(objective)
    if best is not optimum:
        curvature = curvature_at(objective, best.x)
    for number in range(_ROUNDS + _MORE_ROUNDS if objective.layout.learned else 1):
        best = put_at_walls(objective, best)
        if best.at_bound.all() or not np.isfinite(curvature[np.ix_(~best.at_bound, ~best.at_bound)]).all():
            break
        chart: LocalChart = Linear(objective, best.x) if number % 2 == 0 else Logarithmic(objective, best.x)
        with np.errstate(all="ignore"):
            climber = _Climber(chart, best)
            # Next to what the engine refuses, a gradient may not be finite where the objective is.
            if not climber.is_known(curvature):
                break
            found, curvature, promise = climber.polish(curvature)
        gain, best = found.value - best.value, _run_out(objective, found, best.x)
        reach(objective, objective.name, best.value)
        if best is not found:
            # The curvature is that of the way there.
            curvature = curvature_at(objective, best.x)
            continue
        if not promise > _WORTH or (number and (gain < _WORTH or max(gain, promise) < tail)):
            break
        if number >= _ROUNDS - 1 and not _SLOW[0] < gain < _SLOW[1]:
            break
    return put_at_walls(objective, best), curvature


def _run_out(objective: Objective, optimum: Optimum, start: Array | None = None) -> Optimum:
    """Return an optimum in which a parameter that runs away along a plain is as far as it would get.

    Steps would take it there a little at a time. Where disturbances make each of them dear, that is tried at once.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
        Where a search, or steps, ended.
    start : array, shape (n,), optional
        Where steps began: what has moved far is tried, the way it went; else all, either way.
    """
    layout, best = objective.layout, optimum
    for place, number in enumerate(layout.learned if layout.disturbances else ()):
        if layout.transforms[number].is_unbounded or optimum.at_bound[place]:
            continue
        moved = 0.0 if start is None else float(optimum.x[place] - start[place])
        ways = [sign * _FURTHER[0] for sign in (1.0, -1.0)] if start is None else np.sign(moved) * np.array(_FURTHER)
        # The farthest comes first: it is the end of a plain.
        for way in ways if start is None or abs(moved) > _RUNS else ():
            x = best.x.copy()
            x[place] = optimum.x[place] + way
            with np.errstate(all="ignore"):
                value = objective.value(x)
            if value > best.value + _SLOW[0]:
                best = replace(best, x=x, value=value, evaluations=best.evaluations + 1)
                break
    return best


def _tail(objective: Objective) -> float:
    """Return what is not worth more steps where they are slow: nothing as long as they cost little."""
    return _TAIL if objective.engine.size >= _LONG or objective.layout.disturbances else 0.0


def _axes(part: Array) -> tuple[Array, bool]:
    """Return directions that change the objective alike, as columns, and whether some are hard to tell from flat."""
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(part)), 1e-12))
    eigenvalues, vectors = np.linalg.eigh(part * np.outer(scale, scale))
    largest = max(float(eigenvalues.max()), 1e-300)
    sizes = np.maximum(np.abs(eigenvalues), _FLAT * largest)
    return scale[:, None] * vectors / np.sqrt(sizes), float(eigenvalues.min()) < _NARROW * largest


def _consistent(part: Array, parameters: int) -> Array:
    """Return a curvature that can be one: rounding errors may make entries too large for those on the diagonal.

    They are reduced, all by the same share, until no direction has less than a hundredth of what the diagonal says. A
    lengthscale, deviation or level about which only rounding errors are left says nothing of parameters, which come
    first.
    """
    diagonal = np.diag(part)
    if not (diagonal[:parameters] > 0.0).all() or not (diagonal > 0.0).any():
        return part
    lost = diagonal <= 0.0
    found = np.where(lost[:, None] | lost, np.diag(diagonal), part)
    scale = 1.0 / np.sqrt(np.where(lost, 1.0, diagonal))
    lowest = float(np.linalg.eigvalsh((found * np.outer(scale, scale))[np.ix_(~lost, ~lost)]).min())
    share = min(1.0, (1.0 - _LEAST) / max(1.0 - lowest, 1e-300))
    return found if lowest > 0.0 else np.asarray(share * found + (1.0 - share) * np.diag(diagonal))


class _Climber:
    """Newton's steps on one scale; vectors have the length of what sits at no limit."""

    def __init__(self, chart: LocalChart, best: Optimum) -> None:
        self.chart, self.best, self.blur = chart, best, 0.0
        self.parameters, self.tail = chart.objective.layout.blocks.theta.stop, _tail(chart.objective)
        self.y = np.zeros(len(best.x))
        self.slope = chart.evaluate(self.y)[1]
        self.free(~best.at_bound)

    def free(self, inner: NDArray[np.bool_]) -> None:
        """Go on with these entries only."""
        self.inner = np.flatnonzero(inner)
        self.low, self.high = (limit[self.inner] for limit in self.chart.limits)

    def moved(self, move: Array) -> Array:
        """Return the whole move where these entries are moved farther, within their limits."""
        y = self.y.copy()
        y[self.inner] = np.clip(y[self.inner] + move, self.low, self.high)
        return y

    def is_known(self, curvature: Array) -> bool:
        """Return whether the curvature is finite on this scale, which takes the gradient."""
        whole = self.chart.from_search(curvature, self.y, self.slope)
        return bool(np.isfinite(whole[np.ix_(self.inner, self.inner)]).all())

    def polish(self, curvature: Array) -> tuple[Optimum, Array, float]:
        """Return the optimum, minus the Hessian there, and what another step promises to gain."""
        whole = self.chart.from_search(curvature, self.y, self.slope)
        part = whole[np.ix_(self.inner, self.inner)]
        roots, is_narrow = _axes(part)
        noise = self.noise(roots)
        for _ in range(_AXES if noise > _QUIET else int(is_narrow)):
            # Where gradients have few digits, the first curvature may be far off, and so are axes made from it.
            old, (part, roots) = roots, self.measure(part, roots, noise)
            if np.allclose(old.T @ part @ old, np.eye(len(roots)), atol=0.2):
                break
            noise = self.noise(roots)
        idle, last = 0, np.inf
        for number in range(_MOST_STEPS if self.parameters else _FEW_STEPS):
            z = roots.T @ self.slope[self.inner]
            promise = 0.5 * float(z @ z)
            least = max(_GAIN, _ROUNDING * abs(self.best.value), 0.1 * min(noise, _LOUDEST) ** 2)
            if not np.isfinite(promise) or promise < least or _SLOWLY * last < promise < self.tail:
                break
            before, last = self.best.value, promise
            if not self.climb(z, roots):
                break
            # Where a step does not gain what it has promised, the curvature has changed.
            gain = self.best.value - before
            is_clear = promise > max(_CLEAR * (1.0 + abs(before)), _SEEN * self.blur)
            surprise = abs(gain - promise) > 0.3 * promise and promise > _CLEAR * (1.0 + abs(before))
            idle = idle + 1 if is_clear and gain < _IDLE * promise else 0
            if gain < _FAST and (number >= _STEPS or noise > _BLIND or idle == _PATIENCE):
                break
            kept = self.leave_bounds()
            if not len(self.inner):
                part = part[:0, :0]
                break
            if not kept.all():
                whole[np.ix_(self.inner, self.inner)] = part = part[np.ix_(kept, kept)]
                roots = _axes(part)[0]
            if surprise or float(np.max(np.abs(z))) > _FAR or not kept.all():
                part, roots = self.measure(part, roots, noise)
        if noise > _QUIET and len(part):
            part = _consistent(part, int(np.sum(self.inner < self.parameters)))
            roots = _axes(part)[0]
            noise = max(noise, self.noise(roots))
        whole[np.ix_(self.inner, self.inner)] = part
        z = roots.T @ self.slope[self.inner] if len(self.inner) else np.zeros(0)
        promise, blind = 0.5 * float(z @ z), 10.0 * len(z) * min(noise, _LOUDEST) ** 2
        if not self.best.converged and promise < _SETTLED + blind:
            # Next to no noise makes gradients large that a search takes for a sign that it has not ended.
            self.best = replace(self.best, converged=True, message=GROWN)
        elif self._is_lost(promise, blind, noise):
            # Uphill nothing is known: rounding leaves too few digits there.
            self.best = replace(self.best, converged=False, message=UNKNOWN_AHEAD)
        return self.best, self.chart.to_search(whole, self.y, self.slope), promise

    def _is_lost(self, promise: float, blind: float, noise: float) -> bool:
        """Return whether steps should gain much and lead nowhere, or a search broke off in rounding of gradients."""
        is_steep = np.isfinite(promise) and promise > _STEEP * (100.0 + abs(self.best.value)) + blind
        return bool(is_steep or (noise > _LOUDEST and not self.best.converged))

    def leave_bounds(self) -> NDArray[np.bool_]:
        """Return which entries are still inside; go on without those that a step has taken to their bounds."""
        walls = self.chart.walls(self.y, self.slope)
        kept = ~walls[self.inner]
        if not kept.all():
            at_bound = self.best.at_bound.copy()
            at_bound[self.inner[~kept]] = True
            self.best = replace(self.best, at_bound=at_bound)
            self.free(~at_bound)
        return np.asarray(kept)

    def noise(self, roots: Array) -> float:
        """Return how much rounding errors change the gradient along axes, in which standard errors have length one."""
        value, slope = self.chart.evaluate(self.moved(_NEXT * roots.sum(axis=1)))
        self.blur = max(self.blur, abs(value - self.best.value)) if np.isfinite(value) else self.blur
        change = np.abs(roots.T @ (slope - self.slope)[self.inner])
        return max(0.0, float(np.max(change)) - 10.0 * _NEXT) if np.isfinite(change).all() else 0.0

    def measure(self, part: Array, roots: Array, noise: float) -> tuple[Array, Array]:
        """Return minus the Hessian at a point, and its axes; what was known before where it is not finite.

        Differences are taken along given directions, in which it is about the identity: so the curvature along a narrow
        valley is measured along it, and is no difference of large numbers. Where the data have next to no noise,
        gradients have few digits, and differences are wide enough to be clear of that.
        """
        count = roots.shape[1]
        found, widths = np.zeros((count, count)), np.zeros(count)
        room = np.minimum(self.y[self.inner] - self.low, self.high - self.y[self.inner])
        for k in range(count):
            size = float(np.max(np.abs(roots[:, k])))
            width = min(max(min(_SHARE, _REACH / size), _CLEAR_OF * noise), max(_SHARE, _WIDEST / size))
            width = min(width, 0.5 * float(np.min(room / np.maximum(np.abs(roots[:, k]), 1e-300))))
            sides = [
                roots.T @ self.chart.evaluate(self.moved(sign * width * roots[:, k]))[1][self.inner]
                for sign in (1.0, -1.0)
            ]
            found[k], widths[k] = (sides[1] - sides[0]) / (2.0 * width), width
        if not np.isfinite(found).all():
            return part, roots
        # Each entry was measured twice; rounding errors are smaller in the wider difference.
        shares = widths[:, None] ** 2 / (widths[:, None] ** 2 + widths**2)
        try:
            back = np.linalg.inv(roots)
        except np.linalg.LinAlgError:
            return part, roots
        new = np.asarray(back.T @ (shares * found + shares.T * found.T) @ back)
        return (new, _axes(new)[0]) if np.isfinite(new).all() else (part, roots)

    def climb(self, z: Array, roots: Array) -> bool:
        """Take a step uphill, shortened where it must be; return whether there was one.

        A long step along a valley that bends ends beside it: a second one leads back, across the first.
        """
        best = self.best
        share = min(1.0, _LONGEST / max(float(np.max(np.abs(roots @ z))), 1e-300))
        evaluations, along = best.evaluations, z / max(float(np.linalg.norm(z)), 1e-300)
        # A gain may be too small for the digits of the objective: those of its gradient are better.
        least = best.value - max(_DIGITS * (1.0 + abs(best.value)), min(_SEEN * self.blur, _MOST_LOST))
        start = self.y
        # The last one ends where the first entry meets its limit: beside the others, that one need not move at all.
        shares = [*(share * 0.25**k for k in range(6)), min(share, self.feasible(roots @ z))]
        for share in shares:
            step, trials = share * z, []
            for _ in range(3):
                y = self.moved(roots @ step)
                value, slope = self.chart.evaluate(y)
                evaluations += 1
                if not np.isfinite(slope).all():
                    break
                trials.append((value, y, slope))
                self.y = y
                step = roots.T @ slope[self.inner]
                step -= along * float(along @ step)
                if float(np.max(np.abs(step))) < _FAR:
                    break
            self.y = start
            value, y, slope = max(trials, key=lambda item: item[0], default=(-np.inf, start, self.slope))
            flatter = np.linalg.norm(roots.T @ slope[self.inner]) < np.linalg.norm(z)
            if value >= best.value or (value >= least and flatter):
                self.y, self.slope = y, slope
                self.best = replace(best, x=self.chart.point(y), value=value, evaluations=evaluations)
                return True
        return False

    def feasible(self, move: Array) -> float:
        """Return the share of a move after which the first entry meets its limit."""
        here = self.y[self.inner]
        room = np.where(move > 0.0, self.high - here, here - self.low) / np.maximum(np.abs(move), 1e-300)
        return (1.0 + 1e-12) * float(np.min(room))
