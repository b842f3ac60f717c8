"""Measurements inside blocks, whitened given the state at the start of their block: by a matrix, or one by one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.inference.markov.families import Chunk
from lodekit.inference.markov.framed import Framed
from lodekit.inference.markov.inside import Inside, go_through, invert_roots
from lodekit.inference.markov.layout import Layout
from lodekit.inference.markov.states import Space
from lodekit.inference.markov.stretches import Plan
from lodekit.inference.markov.taking import sweep_framed

__all__ = ["Alone", "White", "apart", "basis_of", "roots_of", "together", "whiten"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: So many rows are turned around at the same time: what is read and what is written both stay in the cache.
_NEAR = 128
#: Of so many places one tells how large measurements are.
_SOME = 4
#: States that are told by less than this share of what is said of them together with others are not told.
_UNTOLD = 1e-13
#: Where some rows are so many times as large as one of the first, they come first.
_UNEVEN = 100.0


@dataclass(frozen=True)
class White:
    """Blocks of different patterns with their measurements whitened, given the state at the start of each.

    Parameters
    ----------
    inside : Inside
    variances : array, shape (u, m)
        Of the measurements without their noise.
    inverse : array, shape (u, m, m)
        The inverse of the Cholesky factor of the covariance with noise.
    half_log : array, shape (u,)
        Half the logarithm of its determinant.
    design : array, shape (u, m, s)
        What measurements say of the state at the start.
    gain : array, shape (u, n, m)
        What measurements say of the noise that states have at the end.
    basis : array, shape (u, m, s)
        Orthonormal columns that span those of the design; rows of zeros are added where these are more.
    told, moved, noise : arrays, shape (u, s, s)
        The design in that basis; how the state moves to the next block, given the measurements; a root of the noise of
        that.
    """

    inside: Inside
    variances: Array
    inverse: Array
    half_log: Array
    design: Array
    gain: Array
    basis: Array
    told: Array
    moved: Array
    noise: Array

    def part(self, where: slice) -> White:
        """Return some of the patterns; what is inside stays that of all.

        Parameters
        ----------
        where : slice
        """
        own = {name: value[where] for name, value in vars(self).items() if name != "inside"}
        return White(self.inside, **own)

    def scores(self, y: Array, told: Array, r: Array) -> Array:
        """Return derivatives of the log evidence in the means of whitened measurements, shape (u, m, k).

        Parameters
        ----------
        y : array, shape (u, m, k)
            The measurements.
        told : array, shape (u, s, k)
            Derivatives in the means of what they say of the state at the start.
        r : array, shape (u, s, k)
            Derivatives in the mean of the state at the end.
        """
        m = y.shape[1]
        _, left = self.project(self.inverse @ y)
        return (left + self.basis @ told)[:, :m] - self.gain.swapaxes(-1, -2) @ r[:, : self.gain.shape[1]]

    def project(self, z: Array) -> tuple[Array, Array]:
        """Return whitened values in the basis of the design, (u, s, k), and what is left of them, (u, m, k).

        Parameters
        ----------
        z : array, shape (u, m, k)
        """
        return _project(self.basis, z)


def _project(basis: Array, z: Array) -> tuple[Array, Array]:
    missing = basis.shape[1] - z.shape[1]
    if missing:
        z = np.concatenate([z, np.zeros((len(z), missing, z.shape[2]))], axis=1)
    turned = basis.swapaxes(-1, -2)
    own = turned @ z
    left = z - basis @ own
    # Once more: exact values are huge in units of their noise, and rounding would leave some of them.
    more = turned @ left
    return own + more, left - basis @ more


def _length(rows: int, size: int) -> int:
    """Return how many rows a basis has: one more than columns at least, for what is left of values."""
    return max(rows, size + 1)


def basis_of(design: Array) -> tuple[Array, Array]:
    """Return orthonormal columns that span those of designs, with rows of zeros added where these are more; and R.

    Parameters
    ----------
    design : array, shape (u, m, s)
    """
    count, rows, size = design.shape
    padded = np.zeros((count, _length(rows, size), size))
    padded[:, :rows] = design
    if not size:
        return padded, np.zeros((count, 0, 0))
    R, order = np.zeros((count, size, size)), _largest_first(padded.swapaxes(1, 2))
    if order is not None:
        padded = np.take_along_axis(padded, order[:, :, None], axis=1)
    for own, inner in zip(padded, R, strict=True):
        factor, tau, _, _ = lapack.dgeqrf(own)
        inner[:] = factor[:size]
        own[:] = lapack.dorgqr(factor, tau, overwrite_a=1)[0]
    if order is not None:
        np.put_along_axis(padded, order[:, :, None], padded.copy(), axis=1)
    return padded, R * np.triu(np.ones((size, size)))


def _largest_first(columns: Array) -> Numbers | None:
    """Return the order in which rows should come, (u, m); None where they are of similar size, and any order will do.

    Exact values, and modes that grow, make rows that are large beside others; reflections that begin with a small one
    lose its digits.

    Parameters
    ----------
    columns : array, shape (u, s, m)
    """
    sizes = np.abs(columns).max(axis=1, initial=0.0)
    first = sizes[:, : columns.shape[1]]
    # Rows of zeros have no digits to lose.
    smallest = np.where(first > 0, first, np.inf).min(axis=1, initial=np.inf)
    if (sizes.max(axis=1, initial=0.0) <= _UNEVEN * smallest).all():
        return None
    return np.argsort(-sizes, axis=1, kind="stable")


@dataclass(frozen=True)
class Alone:
    """Blocks that share nothing, with their measurements whitened one after the other.

    Parameters
    ----------
    swept : Framed
    R : array, shape (u, s + 1, s + 1)
        Upper triangles: designs, and the measurements behind them, are Q times these.
    reflections : array, shape (u, s + 1, m)
        What Q is made of, with R.
    factors : array, shape (u, s + 1)
    order : array of int, shape (u, m), optional
        In which measurements were taken for that, where they are not of similar size.
    """

    swept: Framed
    R: Array
    reflections: Array
    factors: Array
    order: Numbers | None = None

    @classmethod
    def of(cls, space: Space, layout: Layout, number: int, variance: Array, values: Array) -> Alone:
        """Return the blocks of a family.

        Parameters
        ----------
        space : Space
        layout : Layout
        number : int
            Of the family.
        variance : array, shape (n,)
            Of the noise of each measurement.
        values : array, shape (b, m, 1)
            Of all measurements, in blocks.
        """
        own = values[layout.families[number].chunks[0].blocks.ravel()]
        swept = sweep_framed(space, layout.side_by_side(number), own.reshape(len(own), layout.places, -1), variance)
        reflections, factors, order = _reflect(swept.design)
        R = np.triu(reflections[:, :, : space.size + 1].swapaxes(1, 2))
        return cls(swept, R, reflections, factors, order)

    @cached_property
    def Q(self) -> Array:
        """Orthonormal columns, with rows of zeros where columns are more, shape (u, m, s + 1)."""
        for own, factors in zip(self.reflections, self.factors, strict=True):
            # In place: nobody needs the reflections any more.
            lapack.dorgqr(own.T, factors, overwrite_a=1)
        if self.order is not None:
            np.put_along_axis(self.reflections, self.order[:, None], self.reflections.copy(), axis=2)
        return self.reflections.swapaxes(1, 2)

    @property
    def basis(self) -> Array:
        """As in `White`, shape (u, m, s)."""
        return self.Q[:, :, :-1]

    @property
    def told(self) -> Array:
        """As in `White`, shape (u, s, s)."""
        return self.R[:, :-1, :-1]

    @property
    def said(self) -> Array:
        """Whitened measurements in the basis, shape (u, s, 1)."""
        return self.R[:, :-1, -1:]

    @property
    def rest(self) -> Array:
        """What is left of them, squared and summed up, shape (u, 1)."""
        return self.R[:, -1, -1:] ** 2

    @property
    def lost(self) -> float:
        """What relative errors of measurements do to the log evidence, squared; about, as some of them tell."""
        own = self.swept.design[::_SOME]
        design, z = own[:, :, :-1], own[:, :, -1]
        left = z - np.einsum("pwsu,su->pwu", design, _solve_upper(self.told, self.said[:, :, 0]).T)
        return _SOME * float(np.sum((left * z) ** 2))

    @property
    def count(self) -> int:
        """About how many numbers it has."""
        return self.reflections.size + self.swept.count

    def scores(self, x: Array, told: Array, design: Array) -> Array:
        """Return derivatives in designs and in the measurements behind them, shape (u, m, s + 1).

        Parameters
        ----------
        x : array, shape (u, s, 1)
            Means of the states at the start.
        told : array, shape (u, s, 1)
            Derivatives of the log evidence in the means of what measurements say of that state.
        design : array, shape (u, s, s)
            Derivatives in designs that go through covariances, in the basis.
        """
        # All of them are e x', e, and what goes through covariances, where e is what is left and the basis times told.
        e = np.concatenate([told, self.R[:, -1:, -1:]], axis=1)
        parts = np.concatenate([e * x.swapaxes(-1, -2), -e], axis=2)
        parts[:, :-1, :-1] += design
        return np.asarray(self.Q @ parts)


def _reflect(white: Array) -> tuple[Array, Array, Numbers | None]:
    """Return reflections that make triangles of designs and measurements, factors and order, as `Alone` has them.

    Parameters
    ----------
    white : array, shape (p, w, s + 1, u)
    """
    places, width, size, count = white.shape
    rows = places * width
    length = _length(rows, size - 1)
    # Columns that are a power of two apart would push each other out of the cache.
    own = np.zeros((count, size * length + 9))[:, : size * length].reshape(count, size, length)
    flat, factors = white.reshape(rows, size, count), np.zeros((count, size))
    for start in range(0, rows, _NEAR):
        part = slice(start, min(start + _NEAR, rows))
        own[:, :, part] = flat[part].transpose(2, 1, 0)
    order = _largest_first(own[:, :-1])
    if order is not None:
        own[:] = np.take_along_axis(own, order[:, None], axis=2)
    for number, found in enumerate(own):
        factors[number] = lapack.dgeqrf(found.T, overwrite_a=1)[1]
    return own, factors, order


def _solve_upper(R: Array, c: Array) -> Array:
    """Return x with R x = c, shape (u, s), for upper triangles; zero for what is not told.

    Parameters
    ----------
    R, c : arrays, shapes (u, s, s) and (u, s)
    """
    found = np.zeros_like(c)
    for i in range(c.shape[1] - 1, -1, -1):
        pivot = R[:, i, i]
        left = c[:, i] - np.einsum("us,us->u", R[:, i, i + 1 :], found[:, i + 1 :])
        is_told = np.abs(pivot) > _UNTOLD * np.abs(R[:, :, i]).max(axis=1, initial=0.0)
        np.divide(left, pivot, out=found[:, i], where=is_told)
    return found


def together(values: Array, chunk: Chunk) -> Array:
    """Return something of each block, (b, m, k), with the blocks of a pattern as columns: (u, m, often k).

    Parameters
    ----------
    values : array, shape (b, m, k)
    chunk : Chunk
    """
    own = values[chunk.blocks].swapaxes(1, 2)
    return own.reshape(*own.shape[:2], own.shape[2] * own.shape[3])


def apart(values: Array, chunk: Chunk) -> Array:
    """Return the way back from `together`, shape (u, often, m, k).

    Parameters
    ----------
    values : array, shape (u, m, often k)
    chunk : Chunk
    """
    count, size, width = values.shape
    often = chunk.blocks.shape[1]
    return values.reshape(count, size, often, width // often).swapaxes(1, 2)


def whiten(space: Space, layout: Layout, plan: Plan, variance: Array) -> White:
    """Return some blocks by their matrices.

    Parameters
    ----------
    space : Space
    layout : Layout
    plan : Plan
        A block of each pattern.
    variance : array, shape (n,)
        Of the noise of each measurement.
    """
    blocks = plan.blocks
    inside = go_through(layout.motion(space, plan.lengths), plan, layout.observed[0].size)
    K = inside.covariance.copy()
    diagonal = np.einsum("uii->ui", K)
    variances = diagonal.copy()
    numbers = layout.numbers[blocks].reshape(len(blocks), -1)
    diagonal += np.where(numbers >= 0, variance[numbers], 1.0)
    # The last block of a record is shorter: nothing is there behind its last measurement.
    inverse = invert_roots(K, numbers.shape[1] - np.argmax(numbers[:, ::-1] >= 0, axis=1))
    half_log = -np.log(np.einsum("uii->ui", inverse)).sum(axis=1)
    design = inverse @ inside.design
    gain = inside.cross @ inverse.swapaxes(-1, -2)
    count, size, n = len(blocks), space.size, space.noisy
    basis, told = basis_of(design)
    moved = inside.transition.copy()
    moved[:, :n] -= gain @ design
    noise = np.zeros((count, size, size))
    noise[:, :n, :n] = roots_of(inside.noise - gain @ gain.swapaxes(-1, -2))
    return White(inside, variances, inverse, half_log, design, gain, basis, told, moved, noise)


def roots_of(V: Array) -> Array:
    """Return roots of covariances that may be singular, shape (u, n, n); states have units of their own.

    Parameters
    ----------
    V : array, shape (u, n, n)
    """
    scales = np.sqrt(np.maximum(np.einsum("uii->ui", V), 0.0))
    safe = np.where(scales > 0, scales, 1.0)
    values, vectors = np.linalg.eigh(V / (safe[:, :, None] * safe[:, None, :]))
    return np.asarray(scales[:, :, None] * vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :])
