"""States at any times, given all measurements: means, covariances and draws.

Times that are asked for are places without measurements, in blocks like all others. Given the state x at the start of
its block and the measurements y there, the state at a place is ``B x + C y + noise``; what later blocks know comes back
through its covariance with the state at the end of the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.inference.markov.between import Border, Smoothed
from lodekit.inference.markov.filtering import Filter, Projected
from lodekit.inference.markov.whitening import White, roots_of

__all__ = ["Look", "Seen"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: Noise of less than this, in units of states, is rounding.
_NOTHING = 1e-15
#: Numbers that covariances of states in blocks which are worked on together may have.
_TOGETHER = 2_000_000


@dataclass(frozen=True)
class Seen:
    """States at places of one block, given all measurements.

    Parameters
    ----------
    block : int
    asked : array of int, shape (a,)
        Which of the times that were asked for.
    start : array, shape (a, s, s)
        How they follow from the state at the start of the block, given its measurements.
    end : array, shape (a, s, s)
        Their covariance with the state at its end, given these and all before.
    roots : array, shape (a, s, r)
        Of their covariance given everything, but for what noise between the ends of the block does.
    rest : array, shape (a, n, a, n)
        The covariance that this adds, given both ends and the measurements.
    """

    block: int
    asked: Numbers
    start: Array
    end: Array
    roots: Array
    rest: Array

    def covariance(self, readings: Array) -> Array:
        """Return the covariance of rows of numbers, given everything, shape (a, o, a, o).

        Parameters
        ----------
        readings : array, shape (a, o, s)
            At each place.
        """
        own, noisy = readings @ self.roots, readings[..., : self.rest.shape[1]]
        found = np.einsum("aor,bpr->aobp", own, own)
        return np.asarray(found + np.einsum("aoi,aibj,bpj->aobp", noisy, self.rest, noisy))

    def variance(self, readings: Array) -> Array:
        """Return the variance of rows of numbers, given everything, shape (a, o): rows come first, squares last.

        Parameters
        ----------
        readings : array, shape (a, o, s)
            At each place.
        """
        noisy = readings[..., : self.rest.shape[1]]
        rest = np.einsum("aoi,aiaj,aoj->ao", noisy, self.rest, noisy)
        return np.asarray(np.sum((readings @ self.roots) ** 2, axis=2) + np.maximum(rest, 0.0))


@dataclass(frozen=True)
class Look:
    """Places at which states are asked for, among all blocks.

    Parameters
    ----------
    filter : Filter
        On a layout with these places.
    places : array of int, shape (a,)
        Their numbers.
    values : array, shape (n, 1)
        The measurements without all that is known.
    projected : Projected
        What these say of states.
    """

    filter: Filter
    places: Numbers
    values: Array
    projected: Projected

    @cached_property
    def information(self) -> Array:
        """What all later data know of the state at the start of each block, shape (b + 1, s, s)."""
        return self.filter.inform()

    @cached_property
    def later(self) -> Array:
        """Roots of what each block and all after it say of the state at its start, shape (b + 1, s, s)."""
        return self.filter.look_back()

    @cached_property
    def _asked(self) -> list[tuple[Numbers, list[Numbers], list[Numbers]]]:
        """Blocks with places that are asked for, some at once; which places, and which of those asked for."""
        layout = self.filter.layout
        blocks, inner = np.divmod(self.places, layout.places)
        order = np.argsort(blocks, kind="stable")
        different, starts = np.unique(blocks[order], return_index=True)
        members = np.split(order, starts[1:])
        width = layout.places * max(layout.observed.shape[2], self.filter.space.noisy, 1)
        most = max(1, _TOGETHER // (3 * width * width))
        found = []
        for start in range(0, len(different), most):
            own = members[start : start + most]
            found.append((different[start : start + most], [inner[part] for part in own], own))
        return found

    def _groups(self) -> Iterator[tuple[Numbers, list[Numbers], list[Numbers], White]]:
        for blocks, inner, asked in self._asked:
            yield blocks, inner, asked, self.filter.make(self.filter.layout.plan(blocks))

    def smooth(self, values: Array, border: Border | None = None) -> tuple[Array, Smoothed]:
        """Return values in blocks, (b, m, k), and what they say of states.

        Parameters
        ----------
        values : array, shape (n, k)
            Of all measurements.
        border : Border, optional
            What is said at both ends, where these are not the measurements.
        """
        own = self.filter
        y = own.layout.spread(values, 0.0)
        found = self.projected if values is self.values else own.project(y)
        return y, own.smooth(found, border)

    def means(self, values: Array) -> Array:
        """Return the means of the states that were asked for, given values of all measurements, shape (a, s, k).

        Parameters
        ----------
        values : array, shape (n, k)
            Of all measurements.
        """
        return self.follow(*self.smooth(values))

    def follow(self, y: Array, smoothed: Smoothed) -> Array:
        """Return the means of the states that were asked for, from what `smooth` returns, shape (a, s, k).

        Parameters
        ----------
        y : array, shape (b, m, k)
        smoothed : Smoothed
        """
        own, n = self.filter, self.filter.space.noisy
        found = np.zeros((len(self.places), own.space.size, y.shape[2]))
        for blocks, inner, asked, white in self._groups():
            x, r = smoothed.means[blocks], smoothed.scores[blocks + 1]
            scores = white.inverse.swapaxes(-1, -2) @ white.scores(y[blocks], smoothed.told[blocks], r)
            states = self._states(_Walk.of(own, blocks), x, scores, r[:, :n])
            for row, (here, which) in enumerate(zip(inner, asked, strict=True)):
                found[which] = states[row, here]
        return found

    def _states(self, walk: _Walk, x: Array, scores: Array, r: Array) -> Array:
        """Return the means of the states at all places of some blocks, shape (u, p, s, k).

        Parameters
        ----------
        walk : _Walk
        x : array, shape (u, s, k)
            Means of the states at the start.
        scores : array, shape (u, m, k)
            Derivatives of the log evidence in the means of the measurements.
        r : array, shape (u, n, k)
            Those in the means of the states at the end.
        """
        n, (count, places, width) = walk.rows.shape[-1], walk.rows.shape[:3]
        from_rows = walk.rows.swapaxes(-1, -2) @ scores.reshape(count, places, width, -1)
        found = np.zeros((count, places, x.shape[1], x.shape[2]))
        found[:, :, n:] = walk.whole[:, :-1, n:, n:] @ x[:, None, n:]
        # The start and what was measured before go forward from place to place.
        earlier = x[:, :n]
        for i in range(places):
            found[:, i, :n] = earlier
            earlier = walk.steps[:, i] @ (earlier + walk.own[:, i] @ from_rows[:, i])
        # What was measured later goes backward.
        later = r
        for i in range(places - 1, -1, -1):
            later = walk.steps[:, i].swapaxes(-1, -2) @ later + from_rows[:, i]
            found[:, i, :n] += walk.own[:, i] @ later
        return found

    def covariances(self) -> Iterator[Seen]:
        """Yield covariances of the states that were asked for, block after block."""
        own, n, size = self.filter, self.filter.space.noisy, self.filter.space.size
        for blocks, inner, asked, white in self._groups():
            walk = _Walk.of(own, blocks)
            joint, (count, places, width) = walk.joint(), walk.rows.shape[:3]
            # Of the states at all places, and at the end, with all measurements: whitened.
            before = joint[..., :-1, :].reshape(count, (places + 1) * n, places, n)
            with_y = np.einsum("uajb,ujwb->uajw", before, walk.rows)
            cross = with_y.reshape(count, places + 1, n, places * width) @ white.inverse[:, None].swapaxes(-1, -2)
            later = own.carried.later[blocks]
            moved, V = white.moved @ later, white.noise[:, :, :n]
            # What later blocks say of the state at the start, and of the noise at the end.
            said = self.later[blocks + 1] @ np.concatenate([moved, V], axis=2)
            unit = np.broadcast_to(np.eye(size + n), (count, size + n, size + n))
            U = np.linalg.qr(np.concatenate([said, unit], axis=1), mode="r") if size else unit
            back = _invert(V[:, :n])
            for row, (block, here, which) in enumerate(zip(blocks.tolist(), inner, asked, strict=True)):
                C, start = cross[row, here], walk.whole[row, here]
                start[:, :n] -= C @ white.design[row]
                roots = np.zeros((len(here), size, size + n))
                roots[:, :, :size] = start @ later[row]
                end = roots[:, :, :size] @ moved[row].T
                with_end = joint[row, here][:, :, -1] - C @ white.gain[row].T
                end[:, :n, :n] += with_end
                rest = joint[row, here][:, :, here] - np.einsum("aim,bjm->aibj", C, C)
                if rest.any():
                    roots[:, :n, size:] = with_end @ back[row].T
                    rest -= np.einsum("aim,bjm->aibj", roots[:, :n, size:], roots[:, :n, size:])
                if size:
                    flat = roots.reshape(-1, size + n).T
                    roots = lapack.dtrtrs(U[row], flat, trans=1)[0].T.reshape(roots.shape)
                yield Seen(block, which, start, end, roots, rest)

    def between(self, first: int, last: int) -> Array:
        """Return what takes covariances with the start of one block to the start of a later one, shape (s, s).

        Parameters
        ----------
        first, last : int
            Numbers of blocks.
        """
        found = np.eye(self.filter.space.size)
        for b in range(first, last):
            found = found @ self.filter.carried.closed[b].T
        return found

    def draw(self, size: int, generator: np.random.Generator, start: Array | None = None) -> tuple[Array, Array, Array]:
        """Return draws from the prior.

        Measurements without noise, (n, k); states that are asked for, (a, s, k), and after the last block, (s, k).

        Parameters
        ----------
        size : int
            k.
        generator : numpy.random.Generator
        start : array, shape (s, k), optional
            The states at the start; drawn where nobody says.
        """
        own, layout, n, s = self.filter, self.filter.layout, self.filter.space.noisy, self.filter.space.size
        motion = layout.motion(own.space)
        roots = roots_of(motion.noisy.noises)
        count, places = layout.blocks, layout.places
        path = np.zeros((count, places + 1, s, size))
        for i in range(1, places + 1):
            steps = layout.steps[:, i]
            path[:, i, :n] = motion.noisy.transitions[steps] @ path[:, i - 1, :n]
            path[:, i, :n] += roots[steps] @ generator.standard_normal((count, n, size))
        whole = np.zeros((len(own.told), s, s))
        for number, family in enumerate(layout.families):
            whole[family.patterns] = own.white(number).inside.transition
        if start is None:
            start = own.space.root_at(float(layout.times[0, 0])) @ generator.standard_normal((s, size))
        now = np.zeros((count, s, size))
        for b, u in enumerate(layout.patterns.tolist()):
            now[b] = start
            start = whole[u] @ start + path[b, -1]
        # Noise begins anew in each block; what its start brings is added.
        for i in range(places):
            if i:
                steps = layout.steps[:, i]
                moved = (
                    motion.noisy.transitions[steps] @ now[:, :n],
                    motion.quiet.transitions[steps] @ now[:, n:],
                )
                now = np.concatenate(moved, axis=1)
            path[:, i] += now
        observed = np.where(layout.observed >= 0, layout.observed, len(motion.readings) - 1)
        seen = (motion.readings[observed] @ path[:, :-1]).reshape(count, -1, size)
        flat = path[:, :-1].reshape(count * places, s, size)
        return layout.gather(seen, len(own.variance)), flat[self.places], start


@dataclass(frozen=True)
class _Walk:
    """Some blocks from place to place.

    Parameters
    ----------
    steps : array, shape (u, p, n, n)
        Transitions from each place to the next one, of the states that noise drives.
    rows : array, shape (u, p, w, n)
        What is read of these at each place.
    whole : array, shape (u, p + 1, s, s)
        How the states at each place, and at the end, follow from those at the start.
    own : array, shape (u, p + 1, n, n)
        Covariances of the states that noise drives, given those at the start.
    """

    steps: Array
    rows: Array
    whole: Array
    own: Array

    @classmethod
    def of(cls, own: Filter, blocks: Numbers) -> _Walk:
        """Return some blocks."""
        n, size, numbers = own.space.noisy, own.space.size, own.layout.steps[blocks, 1:]
        different, which = np.unique(numbers, return_inverse=True)
        motion, which = own.layout.motion(own.space, different), which.reshape(numbers.shape)
        Phi, Q, moved = motion.noisy.transitions[which], motion.noisy.noises[which], motion.quiet.transitions[which]
        observed = own.layout.observed[blocks]
        rows = motion.readings[np.where(observed >= 0, observed, len(motion.readings) - 1)]
        count, places = numbers.shape
        whole, noise = np.zeros((count, places + 1, size, size)), np.zeros((count, places + 1, n, n))
        whole[:, 0] = np.eye(size)
        for i in range(places):
            whole[:, i + 1, :n, :n] = Phi[:, i] @ whole[:, i, :n, :n]
            whole[:, i + 1, n:, n:] = moved[:, i] @ whole[:, i, n:, n:]
            noise[:, i + 1] = Phi[:, i] @ noise[:, i] @ Phi[:, i].swapaxes(-1, -2) + Q[:, i]
        return cls(Phi, rows[..., :n], whole, noise)

    def joint(self) -> Array:
        """Return the covariance of states at all places and the end, given the start, (u, p + 1, n, p + 1, n)."""
        count, places, n, _ = self.steps.shape
        found = np.zeros((count, places + 1, n, places + 1, n))
        for i in range(1, places + 1):
            moved = self.steps[:, i - 1] @ found[:, i - 1, :, :i].reshape(count, n, i * n)
            found[:, i, :, :i] = moved.reshape(count, n, i, n)
            found[:, :i, :, i] = found[:, i, :, :i].transpose(0, 2, 3, 1)
            found[:, i, :, i] = self.own[:, i]
        return found


def _invert(roots: Array) -> Array:
    """Return inverses of roots as `roots_of` makes them, shape (u, n, n); directions without noise stay without.

    Parameters
    ----------
    roots : array, shape (u, n, n)
    """
    scales = np.sqrt(np.sum(roots**2, axis=2, keepdims=True))
    safe = np.where(scales > 0, scales, 1.0)
    # Columns are orthogonal in units of the states.
    own = roots / safe
    values = np.sum(own**2, axis=1)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > _NOTHING)
    return np.asarray(inverse[:, :, None] * (own / safe).swapaxes(-1, -2))
