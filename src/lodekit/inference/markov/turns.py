"""Measurements in their turn: what each adds to those before it, and predictions of it from some time before.

The state at the start of every block, given all blocks before, is known from the filter between them. So one filter
goes through all blocks at once, place by place. Inside a block the state is ``A x + a + noise`` given the state x at
its start and the measurements so far, as in `sweeping`; these tell of x itself, too, and a root of its covariance
follows them by Potter's formula, which never subtracts a covariance. Blocks that are alike and start from the same
covariance share all but means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.markov.evaluation import Solved
from lodekit.inference.markov.families import Chunk
from lodekit.inference.markov.filtering import Filter
from lodekit.inference.markov.inside import Motion
from lodekit.inference.markov.layout import Layout, MarkovData
from lodekit.inference.markov.sweeping import sweep
from lodekit.prior.responses.lengths import Lengths

__all__ = ["MarkovTurns"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: So many predictions are made at once: each may need a step of its own.
_TOGETHER = 20_000


@dataclass(frozen=True, eq=False)
class MarkovTurns:
    """Measurements one after the other, at some hyperparameters.

    Parameters
    ----------
    data : MarkovData
        Measurements with their prior.
    solved : Solved
        At these hyperparameters.
    """

    data: MarkovData
    solved: Solved

    @property
    def _layout(self) -> Layout:
        return self.solved.filter.layout

    @cached_property
    def _order(self) -> Numbers:
        """The numbers of the measurements, in their turn."""
        numbers = self._layout.numbers.ravel()
        return numbers[numbers >= 0]

    @cached_property
    def observables(self) -> Numbers:
        """The number of the observable of each, in their turn."""
        sizes = np.diff(self.data.edges)
        return np.repeat(np.arange(len(sizes)), sizes)[self._order]

    @cached_property
    def times(self) -> Array:
        """When they were made, in the user's units, in their turn."""
        return np.asarray(self.data.times[np.concatenate(self.data.index)][self._order])

    @cached_property
    def scales(self) -> Array:
        """The unit of each in the user's, in their turn."""
        return np.asarray(self.data.prior.units.scales)[self.observables]

    @cached_property
    def _both(self) -> tuple[Array, Array]:
        layout = self._layout
        errors, deviations = np.zeros((2, layout.blocks, layout.places, layout.observed.shape[2]))
        for walk in _walks(self.solved):
            for place in walk:
                errors[walk.blocks, place.number] = place.errors
                deviations[walk.blocks, place.number] = place.deviations
        there = layout.numbers >= 0
        return errors[there], deviations[there]

    @property
    def innovations(self) -> Array:
        """Each minus its prediction from those before, over the deviation of that, in their turn, shape (m,)."""
        return self._both[0] / self._both[1]

    @property
    def deviations(self) -> Array:
        """The deviation of each from that prediction, in the user's units, shape (m,)."""
        return np.asarray(self._both[1] * self.scales)

    def predict(self, places: Numbers, known: Numbers) -> tuple[Array, Array]:
        """Return some measurements minus predictions of them from the first ones, and the deviations of that.

        Both in the user's units, shape (k,).

        Parameters
        ----------
        places : array of int, shape (k,)
            Which, by their turn.
        known : array of int, shape (k,)
            How many are known for each; all that were made at the time of the last one, unless it is asked for itself.
        """
        if self.data.sums is not None:
            raise LodekitError(
                "means and totals over intervals are not predicted ahead where disturbances drive; leave out ahead=, "
                "or validate with ahead=()"
            )
        targets = _Targets.of(self, places, known)
        mean, variance = np.zeros((2, len(places)))
        readings, noise = targets.readings, targets.noise
        prior = np.flatnonzero(known == 0)
        root = self.solved.filter.space.root_at(float(self._layout.times[0, 0]))
        variance[prior] = np.sum((readings[prior] @ root) ** 2, axis=1)
        for walk in _walks(self.solved) if len(prior) < len(places) else ():
            for place, here in targets.within(walk):
                mean[here], variance[here] = place.project(walk.find(targets.blocks[here]), readings[here])
        order = self._order[places]
        own = np.sqrt(variance + noise + self.solved.filter.variance[order])
        return (self.solved.residual[order] - mean) * self.scales[places], own * self.scales[places]


@dataclass(frozen=True)
class _Targets:
    """Measurements that are predicted, each from the state at the place of the last one that is known.

    Parameters
    ----------
    blocks, places : arrays of int, shape (k,)
        Where that is; the first place for none.
    readings : array, shape (k, s)
        What they see of that state.
    noise : array, shape (k,)
        The variance of what happens in between, as they see it.
    known : array of int, shape (k,)
        How many are known.
    """

    blocks: Numbers
    places: Numbers
    readings: Array
    noise: Array
    known: Numbers

    @classmethod
    def of(cls, turns: MarkovTurns, places: Numbers, known: Numbers) -> _Targets:
        """Return the way from the last measurements that are known to those that are asked for.

        Parameters
        ----------
        turns : MarkovTurns
        places, known
            As in `MarkovTurns.predict`.
        """
        layout, space = turns.solved.filter.layout, turns.solved.filter.space
        where = np.flatnonzero((layout.numbers >= 0).ravel()) // layout.observed.shape[2]
        last = np.where(known > 0, where[np.maximum(known - 1, 0)], 0)
        times = layout.times.ravel()
        spans = Lengths.of(np.maximum(times[where[places]] - times[last], 0.0), turns.data.resolution)
        readings, noise = np.zeros((len(places), space.size)), np.zeros(len(places))
        n, seen = space.noisy, turns.observables[places]
        order = np.argsort(spans.which, kind="stable")
        for start in range(0, len(places), _TOGETHER):
            some = order[start : start + _TOGETHER]
            lengths, which = np.unique(spans.which[some], return_inverse=True)
            motion = Motion(space, spans.distinct[lengths])
            H = motion.readings[seen[some]]
            readings[some, :n] = np.einsum("ki,kij->kj", H[:, :n], motion.noisy.transitions[which])
            readings[some, n:] = np.einsum("ki,kij->kj", H[:, n:], motion.quiet.transitions[which])
            noise[some] = np.einsum("ki,kij,kj->k", H[:, :n], motion.noisy.noises[which], H[:, :n])
        return cls(*np.divmod(last, layout.places), readings, np.maximum(noise, 0.0), known)

    def within(self, walk: _Walk) -> Iterator[tuple[_Place, Numbers]]:
        """Yield places of some blocks, and which are predicted from there."""
        own = np.flatnonzero(np.isin(self.blocks, walk.blocks) & (self.known > 0))
        if not len(own):
            return
        own = own[np.argsort(self.places[own], kind="stable")]
        edges = np.searchsorted(self.places[own], np.arange(walk.places + 1))
        for place in walk:
            here = own[edges[place.number] : edges[place.number + 1]]
            if len(here):
                yield place, here


def _walks(solved: Solved) -> Iterator[_Walk]:
    """Yield all blocks, chunk after chunk."""
    own = solved.filter
    values = own.layout.spread(solved.residual[:, None], 0.0)[:, :, 0]
    # The mean that a block starts from is what it makes of it, less what it adds.
    means = (solved.smoothed.updated - own.carried.gain @ solved.smoothed.seen)[:, :, 0]
    roots = own.carried.root
    changed = np.ones(len(roots), dtype=bool)
    changed[1:] = (roots[1:] != roots[:-1]).any(axis=(1, 2))
    groups = np.cumsum(changed)
    for family in own.layout.families:
        for chunk in family.chunks:
            yield _Walk(own, chunk.alone if family.is_alone else chunk, values, means, groups)


@dataclass(frozen=True)
class _Place:
    """A place of some blocks that are alike, after its measurements.

    Parameters
    ----------
    number : int
    errors, deviations : arrays, shape (u, k, w)
        Measurements minus predictions from all before, and their deviations, scaled.
    A : array, shape (u, s, s)
        How the state follows from that at the start of the block.
    rest : array, shape (u, k, n)
        What measurements add to it.
    S : array, shape (u, n, n)
        Its covariance, given these and the start.
    means, roots : arrays, shapes (u, k, s) and (g, s, s)
        Of the state at the start.
    groups : array of int, shape (u, k)
        Which root.
    """

    number: int
    errors: Array
    deviations: Array
    A: Array
    rest: Array
    S: Array
    means: Array
    roots: Array
    groups: Numbers

    def project(self, where: tuple[Numbers, Numbers], readings: Array) -> tuple[Array, Array]:
        """Return means and variances of rows of numbers for the state, shape (t,) each.

        Parameters
        ----------
        where : tuple of two int arrays, shape (t,)
            Which blocks.
        readings : array, shape (t, s)
        """
        u, n = where[0], self.rest.shape[-1]
        back = np.einsum("ti,tij->tj", readings, self.A[u])
        mean = np.sum(back * self.means[where], axis=1) + np.sum(readings[:, :n] * self.rest[where], axis=1)
        spread = np.einsum("tj,tjk->tk", back, self.roots[self.groups[where]])
        own = np.einsum("ti,tij,tj->t", readings[:, :n], self.S[u], readings[:, :n])
        return mean, np.sum(spread**2, axis=1) + np.maximum(own, 0.0)


class _Walk:
    """A filter through all blocks of a chunk at once.

    Parameters
    ----------
    own : Filter
    chunk : Chunk
    values : array, shape (b, m)
        Of all measurements, in blocks.
    means : array, shape (b, s)
        Of the states at the start of all blocks, given those before.
    groups : array of int, shape (b,)
        Equal for neighbouring blocks whose covariances at the start are.
    """

    def __init__(self, own: Filter, chunk: Chunk, values: Array, means: Array, groups: Numbers) -> None:
        layout, first = own.layout, chunk.blocks[:, 0]
        self.blocks, self.places = chunk.blocks, layout.places
        count, often = chunk.blocks.shape
        numbers, which = np.unique(layout.steps[first], return_inverse=True)
        self._motion, self._steps = layout.motion(own.space, numbers), which.reshape(count, -1)
        observed = layout.observed[first]
        self._observed = np.where(observed >= 0, observed, len(self._motion.readings) - 1)
        self._variance = np.append(own.variance, 1.0)[layout.numbers[first]]
        self._values = values[chunk.blocks].reshape(count, often, layout.places, -1)
        self._means = means[chunk.blocks]
        pairs = np.stack([np.repeat(np.arange(count), often), groups[chunk.blocks].ravel()], axis=1)
        _, one, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        self._groups, self._patterns = inverse.reshape(count, often), one // often
        self._roots = own.carried.root[chunk.blocks.ravel()[one]]

    def find(self, blocks: Numbers) -> tuple[Numbers, Numbers]:
        """Return where blocks stand in the chunk: the numbers of their patterns, and which of these they are."""
        flat = self.blocks.ravel()
        order = np.argsort(flat)
        found = order[np.searchsorted(flat, blocks, sorter=order)]
        return found // self.blocks.shape[1], found % self.blocks.shape[1]

    def __iter__(self) -> Iterator[_Place]:
        n, size = self._motion.space.noisy, self._motion.space.size
        count, often, _, width = self._values.shape
        H = self._motion.readings[self._observed][..., :n]
        means, roots = self._means.copy(), self._roots.copy()
        rest, A = np.zeros((count, often, n)), np.zeros((count, size, size))
        for i, swept in enumerate(sweep(self._motion, self._steps, self._observed, self._variance)):
            if i:
                rest = rest @ self._motion.noisy.transitions[self._steps[:, i]].swapaxes(-1, -2)
            errors, deviations = np.zeros((2, count, often, width))
            for j in range(width):
                white, sigma = swept.white[j].T, swept.deviations[j]
                W, add = white[:, :size], white[:, size:]
                z = (self._values[:, :, i, j] - np.einsum("ukn,un->uk", rest, H[:, i, j])) / sigma[:, None]
                rest = rest + z[:, :, None] * add[:, None]
                # What is left of it tells of the state at the start.
                e = z - np.einsum("uks,us->uk", means, W)
                seen = np.einsum("gsk,gs->gk", roots, W[self._patterns])
                square = 1.0 + np.sum(seen**2, axis=1)
                size_of = np.sqrt(square)
                gain = np.einsum("gsk,gk->gs", roots, seen)
                means = means + (e[:, :, None] / square[self._groups][:, :, None]) * gain[self._groups]
                roots = roots - gain[:, :, None] * (seen / (square + size_of)[:, None])[:, None]
                errors[:, :, j] = e * sigma[:, None]
                deviations[:, :, j] = size_of[self._groups] * sigma[:, None]
            known = swept.known.transpose(2, 0, 1)
            A[:, :n], A[:, n:, n:] = known[:, :, :size], swept.quiet.transpose(2, 0, 1)
            yield _Place(i, errors, deviations, A, rest, known[:, :, size:], means, roots, self._groups)
