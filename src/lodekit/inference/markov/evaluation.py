"""The log evidence by blocks, and its gradient in closed form: the adjoint of the same recursions.

With r the derivative in the mean of the state at the end of a block, N the information of all that follows, P and m
covariance and mean at its start given the block itself, and everything whitened, the derivative of the log evidence in
the joint covariance of measurements and state at the end is half of ``q q' - I``, where ``q = (z - W x - G'r, r)``, x
the mean of the state at the start given everything, and I the information of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.engine import Evidence
from lodekit.inference.markov.between import Border, Smoothed
from lodekit.inference.markov.families import Chunk
from lodekit.inference.markov.filtering import Filter, make_filter
from lodekit.inference.markov.inside import InsideSlopes, Total
from lodekit.inference.markov.layout import Layout, MarkovData
from lodekit.inference.markov.states import Slopes, make_space
from lodekit.inference.markov.sums import sum_up
from lodekit.inference.markov.whitening import Alone, White, apart, together
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters

__all__ = ["Pulled", "Solved", "evaluate", "pull_start", "residual_of", "solve"]

Array = NDArray[np.float64]
#: The relative error of an entry of a covariance and of its factorization, in practice.
_ROUNDING = 2e-15


@dataclass(frozen=True)
class Solved:
    """The log evidence at some hyperparameters, and what it was made of.

    Parameters
    ----------
    filter : Filter
    coefficients : Coefficients
        Of the measured observables.
    residual : array, shape (m,)
        The measurements without all that is known, scaled.
    smoothed : Smoothed
    value : float
        The log evidence in the user's units.
    error : float
        About how large an error rounding makes in it.
    """

    filter: Filter
    coefficients: Coefficients
    residual: Array
    smoothed: Smoothed
    value: float
    error: float


def residual_of(data: MarkovData, coefficients: Coefficients) -> Array:
    """Return the measurements without all that is known, scaled, shape (m,).

    Parameters
    ----------
    data : MarkovData
    coefficients : Coefficients
        Of the measured observables.
    """
    observables = data.prior.observables
    if not observables.has_mean:
        return data.values
    means, _ = observables.means(coefficients, data.times, slopes=False)
    return np.asarray(data.values - np.concatenate([m[i] for m, i in zip(means, data.index, strict=True)]))


def solve(
    data: MarkovData, hyper: Hyperparameters, layout: Layout, border: Border | None = None, *, keep: bool = False
) -> Solved | None:
    """Return the log evidence; None where something is not finite.

    Parameters
    ----------
    data : MarkovData
    hyper : Hyperparameters
    layout : Layout
        The measurements in blocks.
    border : Border, optional
        What is said at both ends, where they are a piece of a record.
    keep : bool
        Whether the gradient is asked for as well.
    """
    with np.errstate(all="ignore"):
        return _solve(data, hyper, layout, border, keep=keep)


def _solve(
    data: MarkovData, hyper: Hyperparameters, layout: Layout, border: Border | None, *, keep: bool
) -> Solved | None:
    values = data.prior.observables.evaluate(hyper.theta)
    space = sum_up(make_space(data.prior, hyper, values), data.sums)
    residual = residual_of(data, values)
    if not np.isfinite(residual).all():
        return None
    y = layout.spread(residual, 0.0)[:, :, None]
    made = make_filter(space, layout, data.noise.variance(hyper.noise), y, keep=keep, border=border)
    if made is None:
        return None
    found, projected = made
    said = projected.said
    smoothed = found.smooth(projected)
    told = found.carried.unseen.swapaxes(-1, -2) @ smoothed.seen
    half_log = float((found.half_logs[layout.patterns] + found.carried.half_log).sum())
    square = float(projected.rest.sum()) + float(np.sum(told**2))
    value = -(0.5 * square + half_log + 0.5 * data.size * float(np.log(2.0 * np.pi))) + data.log_jacobian
    if not np.isfinite(value):
        return None
    # Whitened values err in proportion to themselves: what that does, through their derivatives.
    lost = float(np.sqrt(projected.lost) + np.linalg.norm(smoothed.told * said))
    error = _ROUNDING * (projected.doubt + lost + data.size)
    return Solved(found, values, residual, smoothed, value, error if np.isfinite(error) else np.inf)


def evaluate(data: MarkovData, hyper: Hyperparameters, layout: Layout) -> Evidence:
    """Return the log evidence and its gradient; minus infinity where something is not finite.

    Parameters
    ----------
    data : MarkovData
    hyper : Hyperparameters
    layout : Layout
        The measurements in blocks.
    """
    with np.errstate(all="ignore"):
        solved = _solve(data, hyper, layout, None, keep=True)
        if solved is None:
            return Evidence.impossible(hyper)
        pulled = Pulled.of(data, hyper, solved, Total(solved.filter.space))
        gradient = pull_start(solved.filter, pulled)
    if not all(np.isfinite(part).all() for part in gradient.parts):
        return Evidence.impossible(hyper)
    return Evidence(solved.value, gradient, solved.error)


@dataclass(frozen=True)
class Pulled:
    """Derivatives of the log evidence, but for what goes through the system itself and its start.

    Parameters
    ----------
    total : Total
        In the system; those of several pieces of a record add up in it.
    noise, theta : arrays
        In the noise, and in the parameters of what is known.
    score : array, shape (s, 1)
        In the mean of the state at the start.
    information : array, shape (s, s)
        What all data know of that state.
    """

    total: Total
    noise: Array
    theta: Array
    score: Array
    information: Array

    @classmethod
    def of(cls, data: MarkovData, hyper: Hyperparameters, solved: Solved, total: Total) -> Pulled:
        """Return the derivatives; those in the system are added to what is there.

        Parameters
        ----------
        data : MarkovData
        hyper : Hyperparameters
        solved : Solved
            At these.
        total : Total
        """
        own, layout = solved.filter, solved.filter.layout
        information = own.inform()
        y = layout.spread(solved.residual, 0.0)[:, :, None]
        alpha, in_noise = np.zeros(y.shape), np.zeros(y.shape[:2])
        for number, family in enumerate(layout.families):
            if family.is_alone:
                blocks = family.chunks[0].blocks.ravel()
                alpha[blocks], in_noise[blocks] = _pull_alone(solved, number, y, information, total)
                continue
            white, slopes = own.white(number), []
            for chunk, where in zip(family.chunks, family.places, strict=True):
                scores, parts = _pull_shared(solved, chunk, white.part(where), together(y, chunk), information)
                alpha[chunk.blocks] = apart(scores, chunk)
                slopes.append(parts)
            both = [np.concatenate(parts) for parts in zip(*slopes, strict=True)]
            inner = InsideSlopes.of(white.inside.motion)
            white.inside.pull(inner, *both)
            total.add(white.inside.motion, inner)
            # All blocks of a pattern have the same noise: the first one stands for all.
            in_noise[family.first] = np.einsum("uii->ui", both[0])
        noise = data.noise.pull(layout.gather(in_noise[:, :, None], data.size)[:, 0], hyper.noise)
        theta = np.zeros(len(hyper.theta))
        if len(theta) and data.prior.observables.has_mean:
            flat = layout.gather(alpha, data.size)[:, 0]
            weights = [
                np.asarray(np.bincount(index, part, minlength=len(data.times)), dtype=float)
                for index, part in zip(data.index, np.split(flat, data.edges[1:-1]), strict=True)
            ]
            theta = data.prior.observables.pull_means(solved.coefficients, data.times, weights)
        return cls(total, noise, theta, solved.smoothed.scores[0], information[0])


def pull_start(own: Filter, pulled: Pulled) -> Hyperparameters:
    """Return the gradient, from what was pulled back to the start of a record.

    Parameters
    ----------
    own : Filter
        Of the record, or of its first piece.
    pulled : Pulled
    """
    in_start = 0.5 * (pulled.score @ pulled.score.T - pulled.information)
    total = pulled.total
    slopes = Slopes(total.matrix, total.density, total.readings, in_start)
    found = own.space.pull(slopes, float(own.layout.times[0, 0]))
    return replace(found, theta=found.theta + pulled.theta, noise=pulled.noise)


@dataclass(frozen=True)
class _Small:
    """Small matrices of a chunk, summed up over all blocks of a pattern.

    Parameters
    ----------
    x, r, told : arrays, shape (u, s, often)
        Means of the states at the start; derivatives in those at the end, and in what is said of those at the start.
    after : array, shape (u, s, s)
        The information that later blocks have of the state at the end.
    across, ahead : arrays, shape (u, s, s)
        That times how the state at the start moves and is uncertain: in states, and in the basis of the design.
    design, twice : arrays, shape (u, s, s)
        Minus the design times the covariance of the state at the start given everything, and that times the design.
    """

    x: Array
    r: Array
    told: Array
    after: Array
    across: Array
    ahead: Array
    design: Array
    twice: Array

    @classmethod
    def of(cls, solved: Solved, chunk: Chunk, information: Array) -> _Small:
        """Return the matrices of a chunk.

        Parameters
        ----------
        solved : Solved
        chunk : Chunk
        information : array, shape (b + 1, s, s)
        """
        blocks, carried = chunk.blocks, solved.filter.carried
        after, later, share = information[blocks + 1], carried.later[blocks], carried.share[blocks]
        moved = solved.filter.moved[chunk.patterns][:, None] @ later
        ahead = after @ moved
        inner = moved.swapaxes(-1, -2) @ ahead - np.eye(later.shape[-1])
        # What the design times a covariance is: in the basis of the design, where nothing is large.
        back_later, back_share = later.swapaxes(-1, -2), share.swapaxes(-1, -2)
        return cls(
            together(solved.smoothed.means, chunk),
            together(solved.smoothed.scores, Chunk(chunk.patterns, blocks + 1)),
            together(solved.smoothed.told, chunk),
            after.sum(axis=1),
            (ahead @ back_later).sum(axis=1),
            (ahead @ back_share).sum(axis=1),
            (share @ inner @ back_later).sum(axis=1),
            (share @ inner @ back_share).sum(axis=1),
        )


def _pull_shared(
    solved: Solved, chunk: Chunk, white: White, y: Array, information: Array
) -> tuple[Array, tuple[Array, ...]]:
    """Return derivatives in the values, (u, m, k), and in what the blocks of a chunk are made of, as `Inside` has them.

    Sums over all blocks of a pattern are those of small matrices.
    """
    small, n = _Small.of(solved, chunk, information), white.gain.shape[1]
    x, r, after, ahead = small.x, small.r, small.after[:, :n, :n], small.ahead[:, :n]
    back = white.inverse.swapaxes(-1, -2)
    alpha = back @ white.scores(y, small.told, r)
    # What is known of whitened measurements is the unit, but for a few directions: of the design, and of the gain.
    few = back @ np.concatenate([white.basis[:, : y.shape[1]], white.gain.swapaxes(-1, -2)], axis=2)
    ends = np.concatenate([ahead, after], axis=2)
    known = np.concatenate([np.concatenate([small.twice, ahead.swapaxes(-1, -2)], axis=2), ends], axis=1)
    in_covariance = alpha @ alpha.swapaxes(-1, -2) - few @ known @ few.swapaxes(-1, -2)
    in_covariance -= chunk.blocks.shape[1] * (back @ white.inverse)
    in_covariance *= 0.5
    in_cross = r[:, :n] @ alpha.swapaxes(-1, -2) + ends @ few.swapaxes(-1, -2)
    in_design = alpha @ x.swapaxes(-1, -2) + few @ np.concatenate([small.design, small.across[:, :n]], axis=1)
    in_transition = r @ x.swapaxes(-1, -2) - small.across
    in_noise = 0.5 * (r[:, :n] @ r[:, :n].swapaxes(-1, -2) - after)
    return alpha, (in_covariance, in_design, in_transition, in_noise, in_cross)


def _pull_alone(solved: Solved, number: int, y: Array, information: Array, total: Total) -> tuple[Array, Array]:
    """Add what blocks that share nothing have to say; return derivatives in values, (u, m, 1), and noise, (u, m)."""
    own = solved.filter
    chunk = own.layout.families[number].chunks[0].alone
    small, n = _Small.of(solved, chunk, information), own.space.noisy
    blocks = own.alone.pop(number, None) or Alone.of(own.space, own.layout, number, own.variance, y)
    in_transition = small.r @ small.x.swapaxes(-1, -2) - small.across
    in_noise = 0.5 * (small.r @ small.r.swapaxes(-1, -2) - small.after)[:, :n, :n]
    in_last = np.concatenate([in_transition[:, :n], -small.r[:, :n], in_noise], axis=2)
    swept, scores = blocks.swept, blocks.scores(small.x, small.told, small.design)
    # The basis has done its work, and the way back needs room.
    del blocks
    in_design = swept.put_side_by_side(scores)
    del scores
    found = swept.pull(total, in_design, in_last, in_transition[:, n:, n:])
    scores, in_variance = found.transpose(0, 3, 1, 2).reshape(2, len(chunk.patterns), -1)
    return -scores[:, :, None], in_variance
