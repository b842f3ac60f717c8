"""Steps of many lengths: equal ones are made once; where many are different, they are interpolated in the length."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.chebyshev import chebyshev_basis, chebyshev_transform
from lodekit.prior.responses.transitions import Steps

__all__ = ["Lengths", "Table"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: Up to so many different lengths each has an exponential of its own.
_FEW = 48
#: Nodes of Chebyshev's interpolation on one panel of lengths.
_NODES = 24
#: A length that occurs so often is not interpolated: errors of a step that is repeated add up.
_OFTEN = 64
#: The last two coefficients on a panel, against the largest value; the ones that are cut off are smaller still.
_TOLERANCE = 2e-15
#: So many coefficients are kept beyond those that can be told from rounding.
_MORE = 3
#: The nodes on [-1, 1], and the matrix from values there to coefficients.
_POINTS, _COEFFICIENTS = chebyshev_transform(_NODES)


@dataclass(frozen=True, eq=False)
class Lengths:
    """Lengths of steps, where those that differ by rounding only are the same.

    Parameters
    ----------
    distinct : array, shape (u,)
    which : array, shape (n,)
        The number of each step's length.
    """

    distinct: Array
    which: Numbers

    @classmethod
    def of(cls, lengths: Array, tolerance: float) -> Self:
        """Return the different ones among lengths; those within a tolerance become their mean.

        Parameters
        ----------
        lengths : array, shape (n,)
        tolerance : float
            What the clock resolves: differences of times have errors of this size.

        Examples
        --------
        >>> Lengths.of(np.diff([0.0, 0.1, 0.2, 0.30000000000000004, 0.5]), 1e-15).which.tolist()
        [0, 0, 0, 1]
        """
        if not lengths.size:
            return cls(np.zeros(0), np.zeros(0, dtype=np.intp))
        # Equal steps are the usual case, and need no sorting.
        if np.ptp(lengths) <= 4.0 * tolerance:
            return cls(np.array([lengths.mean()]), np.zeros(len(lengths), dtype=np.intp))
        order = np.argsort(lengths, kind="stable")
        ascending = lengths[order]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(ascending) > tolerance) + 1])
        ends = np.concatenate([starts[1:], [len(lengths)]])
        widest = (ascending[ends - 1] - ascending[starts]).max()
        if 2 * len(starts) > len(lengths) or widest > 8.0 * tolerance:  # hardly any twice, or a chain of neighbours
            return cls(lengths, np.arange(len(lengths)))
        numbers = np.repeat(np.arange(len(starts)), ends - starts)
        which = np.empty(len(lengths), dtype=np.intp)
        which[order] = numbers
        return cls(np.add.reduceat(ascending, starts) / (ends - starts), which)

    @cached_property
    def counts(self) -> Numbers:
        """How often each length occurs."""
        return np.bincount(self.which, minlength=len(self.distinct))

    @property
    def are_all_different(self) -> bool:
        """Whether each step has a length of its own."""
        return len(self.distinct) == len(self.which)

    @cached_property
    def _members(self) -> list[Numbers]:
        order = np.argsort(self.which, kind="stable")
        return np.split(order, np.cumsum(self.counts)[:-1])

    def apply(self, matrices: Array, vectors: Array) -> Array:
        """Return each step's matrix times its vector, shape (..., n, a).

        Parameters
        ----------
        matrices : array, shape (..., u, a, b)
            For each different length.
        vectors : array, shape (n, b)
        """
        if len(self.distinct) == 1:
            return np.asarray(vectors @ matrices[..., 0, :, :].swapaxes(-1, -2))
        if self.are_all_different:
            return np.asarray(np.einsum("...nij,nj->...ni", matrices, vectors))
        found = np.empty((*matrices.shape[:-3], len(self.which), matrices.shape[-2]))
        if len(self.distinct) <= _FEW:
            for number, members in enumerate(self._members):
                found[..., members, :] = vectors[members] @ matrices[..., number, :, :].swapaxes(-1, -2)
            return found
        np.einsum("...nij,nj->...ni", matrices[..., self.which, :, :], vectors, out=found)
        return found

    def collect(self, left: Array, right: Array) -> Array:
        """Return the sums of ``left right^T`` over the steps of each length, shape (u, a, b).

        Parameters
        ----------
        left, right : arrays, shapes (n, a) and (n, b)
        """
        if len(self.distinct) == 1:
            return np.asarray(left.T @ right)[None]
        if self.are_all_different:
            # Steps come last in memory, here and in tables: so products are of long vectors.
            return np.asarray(np.ascontiguousarray(left.T)[:, None] * np.ascontiguousarray(right.T)).transpose(2, 0, 1)
        return np.stack([left[members].T @ right[members] for members in self._members])


@dataclass(frozen=True, eq=False)
class _Panel:
    """An interval of lengths on which steps are interpolated: which ones, their weights, and where its nodes stand."""

    members: Numbers | slice
    weights: Array
    nodes: slice


class Table:
    """Steps of all lengths at one value of the parameters.

    Parameters
    ----------
    steps : Steps
    lengths : Lengths
    """

    def __init__(self, steps: Steps, lengths: Lengths) -> None:
        self.steps, self.lengths = steps, lengths
        distinct = lengths.distinct
        #: Lengths with an exponential of their own, and the panels of the others.
        self._exact: Numbers = np.arange(len(distinct))
        self._panels: list[_Panel] = []
        self._nodes = distinct
        found = self._interpolate() if len(distinct) > _FEW and steps.states else steps.at(distinct)[0]
        #: Each step as a matrix, shape (u, s, width).
        self.matrices = self._spread(found[None])[0]

    def slopes(self, d_F: Array, d_G: Array) -> Array:
        """Return the derivatives of all steps, shape (p, u, s, width).

        Parameters
        ----------
        d_F, d_G : arrays, shapes (p, s, s) and (p, s, m)
        """
        return self._spread(self.steps.at(self._nodes, (d_F, d_G))[1])

    def pull_back(self, weights: Array) -> tuple[Array, Array]:
        """Return the derivatives of ``sum weights * matrices`` in F and G.

        Parameters
        ----------
        weights : array, shape (u, s, width)
        """
        at_nodes = np.zeros((len(self._nodes), *weights.shape[1:]))
        at_nodes[: len(self._exact)] = weights[self._exact]
        for panel in self._panels:
            flat = weights[panel.members].transpose(1, 2, 0).reshape(-1, panel.weights.shape[1])
            coefficients = _COEFFICIENTS[: len(panel.weights)]
            at_nodes[panel.nodes] = (flat @ panel.weights.T @ coefficients).T.reshape(_NODES, *weights.shape[1:])
        return self.steps.pull_back(self._nodes, at_nodes)

    def _spread(self, at_nodes: Array) -> Array:
        """Return steps of all lengths from those at the nodes, shape (p, u, s, width)."""
        if not self._panels:
            return at_nodes
        many, shape = len(at_nodes), at_nodes.shape[2:]
        found = np.empty((many, *shape, len(self.lengths.distinct)))
        found[..., self._exact] = np.moveaxis(at_nodes[:, : len(self._exact)], 1, -1)
        for panel in self._panels:
            flat = at_nodes[:, panel.nodes].reshape(many, _NODES, -1)
            coefficients = (_COEFFICIENTS[: len(panel.weights)] @ flat).swapaxes(1, 2)
            values = coefficients @ panel.weights
            found[..., panel.members] = values.reshape(many, *shape, -1)
        return np.moveaxis(found, -1, 1)

    def _interpolate(self) -> Array:
        """Cut the lengths into panels until all are interpolated to rounding; return the steps at all nodes."""
        distinct = self.lengths.distinct
        often = self.lengths.counts >= _OFTEN
        exact, rest = [np.flatnonzero(often)], np.flatnonzero(~often)
        pending = [(distinct[rest].min(), distinct[rest].max(), rest)] if rest.size else []
        accepted: list[tuple[Numbers, Array, Array, Array]] = []
        while pending:
            exact += [members for _, _, members in pending if len(members) <= _NODES]
            pending = [panel for panel in pending if len(panel[2]) > _NODES]
            nodes = np.array([0.5 * (low + high) + 0.5 * (high - low) * _POINTS for low, high, _ in pending])
            found = self.steps.at(nodes.ravel())[0] if pending else np.zeros((0, 0, 0))
            halves = []
            for number, (low, high, members) in enumerate(pending):
                values = found[number * _NODES : (number + 1) * _NODES]
                middle = 0.5 * (low + high)
                needed = self._count_needed(values)
                if needed or not low < middle < high:
                    points = np.clip((distinct[members] - middle) / max(0.5 * (high - low), 1e-300), -1.0, 1.0)
                    accepted.append((members, chebyshev_basis(points, needed or _NODES), nodes[number], values))
                else:
                    below = distinct[members] <= middle
                    halves += [(low, middle, members[below]), (middle, high, members[~below])]
            pending = [panel for panel in halves if len(panel[2])]
        self._exact = np.concatenate(exact)
        first = len(self._exact)
        for number, (members, weights, _, _) in enumerate(accepted):
            start = first + number * _NODES
            place = slice(None) if len(members) == len(distinct) else members
            self._panels.append(_Panel(place, weights, slice(start, start + _NODES)))
        self._nodes = np.concatenate([distinct[self._exact], *(nodes for _, _, nodes, _ in accepted)])
        return np.concatenate([self.steps.at(distinct[self._exact])[0], *(values for _, _, _, values in accepted)])

    def _count_needed(self, values: Array) -> int:
        """Return how many coefficients steps at nodes, (nodes, s, width), have above rounding; zero for too many."""
        sizes = np.abs(np.tensordot(_COEFFICIENTS, values, axes=1)).max(axis=1)
        largest = np.abs(values).max(axis=(0, 1))
        s, m = self.steps.states, self.steps.inputs
        blocks = [slice(0, s), *(slice(s + k * m, s + (k + 1) * m) for k in range(self.steps.orders))]
        limits = [_TOLERANCE * largest[block].max(initial=0.0) for block in blocks]
        pairs = list(zip(blocks, limits, strict=True))
        if any(sizes[-2:, block].max(initial=0.0) > limit for block, limit in pairs):
            return 0
        needed = [np.flatnonzero(sizes[:, block].max(axis=1, initial=0.0) > 0.1 * limit) for block, limit in pairs]
        # Derivatives in the parameters fall a little later.
        return min(_NODES, max((int(each[-1]) for each in needed if len(each)), default=0) + 1 + _MORE)
