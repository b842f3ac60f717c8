"""All blocks at some hyperparameters: measurements whitened inside blocks, and the filter between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.markov.between import Carried, carry
from lodekit.inference.markov.inside import Inside, Motion, go_through, invert_triangles
from lodekit.inference.markov.layout import Chunk, Layout
from lodekit.inference.markov.states import Space

__all__ = ["Filter", "White", "apart", "make_filter", "roots_of", "together"]

Array = NDArray[np.float64]
#: Chunks are kept for the way back where they are no more than this; more are made again.
_KEPT = 2


@dataclass(frozen=True)
class White:
    """Blocks of a chunk with their measurements whitened, given the state at the start of each.

    Parameters
    ----------
    inside : Inside
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
    inverse: Array
    half_log: Array
    design: Array
    gain: Array
    basis: Array
    told: Array
    moved: Array
    noise: Array

    def project(self, z: Array) -> tuple[Array, Array]:
        """Return whitened values in the basis of the design, (u, s, k), and what is left of them, (u, m, k).

        Parameters
        ----------
        z : array, shape (u, m, k)
        """
        missing = self.basis.shape[1] - z.shape[1]
        if missing:
            z = np.concatenate([z, np.zeros((len(z), missing, z.shape[2]))], axis=1)
        own = self.basis.swapaxes(-1, -2) @ z
        return own, z - self.basis @ own


@dataclass(frozen=True)
class Filter:
    """All blocks at some hyperparameters, without the values of measurements.

    Parameters
    ----------
    space : Space
    motion : Motion
    layout : Layout
    variance : array, shape (m,)
        Of the noise of each measurement.
    told, moved : arrays, shapes (u, s, s)
        As in `White`, of all patterns.
    half_logs : array, shape (u,)
    carried : Carried
    kept : dict of int to White
        Chunks that were kept, where they are few.
    """

    space: Space
    motion: Motion
    layout: Layout
    variance: Array
    told: Array
    moved: Array
    half_logs: Array
    carried: Carried
    kept: dict[int, White]

    def white(self, number: int) -> White:
        """Return the whitened blocks of a chunk."""
        found = self.kept.get(number)
        return found or self.make(self.layout.chunks[number])

    def make(self, chunk: Chunk) -> White:
        """Return the whitened blocks of any chunk."""
        return _whiten(self.motion, self.layout, chunk, self.variance)

    def project(
        self, values: Array, use: Callable[[Chunk, White, Array], None] | None = None
    ) -> tuple[Array, Array, Array]:
        """Return what values say of states and add to them, (b, s, k) each, and what is left, squared, (b, k).

        Parameters
        ----------
        values : array, shape (b, m, k)
            Of all measurements, in blocks.
        use : function, optional
            Gets each chunk, its blocks and what is left of their values, (u, m, often k).
        """
        blocks, _, count = values.shape
        said, added = np.zeros((2, blocks, self.space.size, count))
        rest, n = np.zeros((blocks, count)), self.space.noisy
        for number, chunk in enumerate(self.layout.chunks):
            white = self.white(number)
            z = white.inverse @ together(values, chunk)
            own, left = white.project(z)
            said[chunk.blocks] = apart(own, chunk)
            added[chunk.blocks, :n] = apart(white.gain @ z, chunk)
            rest[chunk.blocks] = apart(np.sum(left**2, axis=1, keepdims=True), chunk)[:, :, 0]
            if use is not None:
                use(chunk, white, left[:, : z.shape[1]])
        return said, added, rest


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


def _whiten(motion: Motion, layout: Layout, chunk: Chunk, variance: Array) -> White:
    first = chunk.blocks[:, 0]
    inside = go_through(motion, layout.steps[first], layout.observed[first])
    K = inside.covariance.copy()
    np.einsum("uii->ui", K)[:] += np.append(variance, 1.0)[layout.rows[first].reshape(len(first), -1)]
    L = np.linalg.cholesky(K)
    inverse = invert_triangles(L)
    design = inverse @ inside.design
    gain = inside.cross @ inverse.swapaxes(-1, -2)
    count, size, n = len(first), motion.space.size, motion.space.noisy
    padded = np.zeros((count, max(design.shape[1], size), size))
    padded[:, : design.shape[1]] = design
    basis, told = np.linalg.qr(padded) if size else (padded, np.zeros((count, 0, 0)))
    moved = inside.transition
    moved[:, :n] -= gain @ design
    noise = np.zeros((count, size, size))
    noise[:, :n, :n] = roots_of(inside.noise - gain @ gain.swapaxes(-1, -2))
    half_log = np.log(np.einsum("uii->ui", L)).sum(axis=1)
    return White(inside, inverse, half_log, design, gain, basis, told, moved, noise)


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


def make_filter(space: Space, layout: Layout, variance: Array) -> Filter | None:
    """Return all blocks and the filter between them; None where something is not finite or not positive.

    Parameters
    ----------
    space : Space
    layout : Layout
    variance : array, shape (m,)
        Of the noise of each measurement.
    """
    if not (space.is_finite and np.isfinite(variance).all() and (variance > 0).all()):
        return None
    start = space.root_at(float(layout.times[0, 0]))
    if not np.isfinite(start).all():
        return None
    motion = Motion(space, layout.lengths)
    count = int(layout.patterns.max()) + 1
    told, moved, noise = np.zeros((3, count, space.size, space.size))
    half_logs, kept = np.zeros(count), {}
    for number, chunk in enumerate(layout.chunks):
        try:
            white = _whiten(motion, layout, chunk, variance)
        except np.linalg.LinAlgError:
            return None
        told[chunk.patterns], moved[chunk.patterns], noise[chunk.patterns] = white.told, white.moved, white.noise
        half_logs[chunk.patterns] = white.half_log
        if number < _KEPT:
            kept[number] = white
    if not all(np.isfinite(part).all() for part in (told, moved, noise)):
        return None
    carried = carry(start, layout.patterns, told, moved, noise)
    return Filter(space, motion, layout, variance, told, moved, half_logs, carried, kept)
