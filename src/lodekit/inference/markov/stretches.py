"""Stretches of places, joined two by two until they are whole blocks; those that are alike are made once.

What a stretch has to say is all that is read at its places, and the state at its end: v. Given the state x at its
start, ``v = G x + noise`` with the covariance J of that noise. Two stretches that follow each other are one of twice
the length: what is read in the second one, and the state at its end, follow from the state at the end of the first, so
that B = diag(1, G of the second) makes ``B G`` and ``B J B'`` of the first, and J of the second is added. So the number
of joins is the logarithm of that of the places, and with regular steps each join is of one or two stretches. Nothing is
divided or subtracted. The way back is the adjoint of the same joins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Plan", "Stretches"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]


class Sums:
    """Sums of what has the same number; all numbers from zero on occur.

    Parameters
    ----------
    numbers : array of int, shape (k,)
    """

    def __init__(self, numbers: Numbers) -> None:
        self._order = np.argsort(numbers, kind="stable")
        self._starts = np.flatnonzero(np.diff(numbers[self._order], prepend=-1))

    def __call__(self, parts: Array) -> Array:
        return np.asarray(np.add.reduceat(parts[self._order], self._starts, axis=0))


class Join:
    """Stretches of which each is made of two of half its length.

    Parameters
    ----------
    first, second : arrays of int, shape (d,)
        The numbers of the two.
    """

    def __init__(self, first: Numbers, second: Numbers) -> None:
        self.first, self.second = first, second
        self._sums = Sums(np.concatenate([first, second]))

    def add_up(self, of_first: Array, of_second: Array) -> Array:
        """Return sums over all uses of each stretch of half the length.

        Parameters
        ----------
        of_first, of_second : arrays, shape (d, ...)
        """
        return self._sums(np.concatenate([of_first, of_second]))


@dataclass(frozen=True)
class Plan:
    """Which stretches of some blocks are alike.

    Parameters
    ----------
    blocks : array of int, shape (u,)
        The numbers of the blocks.
    lengths : array of int, shape (k,)
        The numbers of all different steps, ascending.
    steps : array of int, shape (d,)
        Of all different stretches of one place, which of these follows.
    observed : array of int, shape (d, w)
        The numbers of the observables that are read there; -1 for none.
    joins : tuple of Join
        Of stretches of two places, of four, and so on.
    which : array of int, shape (u,)
        The stretch that is each of the blocks.
    """

    blocks: Numbers
    lengths: Numbers
    steps: Numbers
    observed: Numbers
    joins: tuple[Join, ...]
    which: Numbers

    @cached_property
    def add_up(self) -> Sums:
        """Sums over all blocks that are the same stretch."""
        return Sums(self.which)

    @classmethod
    def of(cls, blocks: Numbers, steps: Numbers, observed: Numbers) -> Plan:
        """Return the stretches of some blocks, which are filled up with places where nothing moves or is read.

        Parameters
        ----------
        blocks : array of int, shape (u,)
        steps : array of int, shape (u, p)
            The numbers of the steps that follow each place; zero is no step at all.
        observed : array of int, shape (u, p, w)
        """
        count, places, width = observed.shape
        key = np.full((count, 1 << max(0, places - 1).bit_length(), 1 + width), -1, dtype=np.intp)
        key[:, :places, 0], key[:, places:, 0], key[:, :places, 1:] = steps, 0, observed
        different, which = np.unique(key.reshape(-1, 1 + width), axis=0, return_inverse=True)
        which, joins = which.reshape(count, -1), []
        while which.shape[1] > 1:
            pairs, number = np.unique(which.reshape(-1, 2), axis=0, return_inverse=True)
            joins.append(Join(pairs[:, 0], pairs[:, 1]))
            which = number.reshape(count, -1)
        lengths, steps = np.unique(different[:, 0], return_inverse=True)
        return cls(blocks, lengths, steps.reshape(-1), different[:, 1:], tuple(joins), which[:, 0])


class Stretches:
    """What is read in blocks, and the state at their ends, given the state at their starts.

    Parameters
    ----------
    plan : Plan
    rows : array, shape (d, w, s)
        What is read at the place of each different stretch of one place.
    transitions, noises : arrays, shapes (d, s, s)
        Of the steps that follow.

    Attributes
    ----------
    means : array, shape (u, m + s, s)
        G of all blocks.
    covariances : array, shape (u, m + s, m + s)
        J of all blocks; the lower triangle, and some more that is not meant.

    Examples
    --------
    >>> plan = Plan.of(np.array([0]), np.array([[1, 1, 1, 0]]), np.zeros((1, 4, 1), dtype=int))
    >>> [len(join.first) for join in plan.joins]
    [2, 1]
    >>> one = np.ones((2, 1, 1))
    >>> walk = Stretches(plan, one, one, np.array([0.0, 1.0]).reshape(2, 1, 1))
    >>> np.tril(walk.covariances[0]).diagonal().tolist()
    [0.0, 1.0, 2.0, 3.0, 3.0]
    """

    def __init__(self, plan: Plan, rows: Array, transitions: Array, noises: Array) -> None:
        count, width, size = rows.shape
        self._plan, self._width, self._size = plan, width, size
        G, J = np.concatenate([rows, transitions], axis=1), np.zeros((count, width + size, width + size))
        J[:, width:, width:] = noises
        self._levels = [(G, J)]
        for join in plan.joins:
            read, total = G.shape[1] - size, 2 * G.shape[1] - size
            first, second, known = G[join.first], G[join.second], J[join.first]
            G = np.empty((len(first), total, size))
            G[:, :read] = first[:, :read]
            np.matmul(second, first[:, read:], out=G[:, read:])
            own, J = J[join.second], np.zeros((len(first), total, total))
            J[:, :read, :read] = known[:, :read, :read]
            # Of the state between both, its covariances with all that was read before, and its own.
            moved = second @ known[:, read:]
            J[:, read:, :read] = moved[:, :, :read]
            np.matmul(moved[:, :, read:], second.swapaxes(-1, -2), out=J[:, read:, read:])
            J[:, read:, read:] += own
            self._levels.append((G, J))
        self.means, self.covariances = G[plan.which], J[plan.which]

    def pull(self, in_means: Array, in_covariances: Array) -> tuple[Array, Array, Array]:
        """Return derivatives in rows, transitions and noises.

        Parameters
        ----------
        in_means, in_covariances : arrays
            In those of all blocks. Those in covariances are symmetric: each of two equal entries has half of it.
        """
        size, width = self._size, self._width
        # Blocks that differ by their noise are the same stretch.
        in_G, in_J = self._plan.add_up(in_means), self._plan.add_up(in_covariances)
        for join, (G, J) in zip(reversed(self._plan.joins), reversed(self._levels[:-1]), strict=True):
            read = G.shape[1] - size
            first, second, known = G[join.first, read:], G[join.second], J[join.first, read:]
            slopes = np.concatenate([in_J[:, read:], in_G[:, read:]], axis=2)
            back = second.swapaxes(-1, -2) @ slopes
            G_first, J_first = in_G[:, : read + size].copy(), in_J[:, : read + size, : read + size].copy()
            G_first[:, read:] = back[:, :, -size:] if size else 0.0
            J_first[:, read:, :read] = back[:, :, :read]
            J_first[:, :read, read:] = back[:, :, :read].swapaxes(-1, -2)
            J_first[:, read:, read:] = back[:, :, read : 2 * read + size] @ second
            # What was read before, what comes behind, and the mean at the start.
            through = 2.0 * second @ known[:, :, read:]
            parts = 2.0 * known[:, :, :read].swapaxes(-1, -2), through, first.swapaxes(-1, -2)
            G_second = slopes @ np.concatenate(parts, axis=1)
            in_J = join.add_up(J_first, in_J[:, read:, read:])
            in_G = join.add_up(G_first, G_second)
        return in_G[:, :width], in_G[:, width:], in_J[:, width:, width:]
