"""All blocks at some hyperparameters: measurements whitened inside blocks, and the filter between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.markov.between import Carried, carry
from lodekit.inference.markov.inside import Inside, Motion, go_through, invert_triangles
from lodekit.inference.markov.layout import Chunk, Layout
from lodekit.inference.markov.states import Space
from lodekit.inference.markov.sweeping import Swept, sweep

__all__ = ["Alone", "Filter", "Projected", "White", "apart", "make_filter", "roots_of", "together"]

Array = NDArray[np.float64]
#: Numbers of blocks that are kept for the way back; others are made again.
_KEPT = 4_000_000


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


def _basis_of(design: Array) -> tuple[Array, Array]:
    """Return orthonormal columns that span those of designs, with rows of zeros added where these are more; and R."""
    count, rows, size = design.shape
    padded = np.zeros((count, max(rows, size), size))
    padded[:, :rows] = design
    return np.linalg.qr(padded) if size else (padded, np.zeros((count, 0, 0)))  # type: ignore[return-value]


@dataclass(frozen=True)
class Alone:
    """Blocks that share nothing, with their measurements whitened one after the other.

    Parameters
    ----------
    swept : Swept
    basis, told : arrays, shapes (u, m, s) and (u, s, s)
        As in `White`.
    z, said, left : arrays, shapes (u, m, 1), (u, s, 1) and (u, m, 1)
        Whitened measurements, these in the basis, and what is left of them.
    """

    swept: Swept
    basis: Array
    told: Array
    z: Array
    said: Array
    left: Array

    @classmethod
    def of(cls, motion: Motion, layout: Layout, chunk: Chunk, variance: Array, values: Array, *, keep: bool) -> Alone:
        """Return the blocks of a chunk.

        Parameters
        ----------
        motion : Motion
        layout : Layout
        chunk : Chunk
        variance : array, shape (n,)
            Of the noise of each measurement.
        values : array, shape (b, m, 1)
            Of all measurements, in blocks.
        keep : bool
            Whether derivatives will be wanted.
        """
        blocks = chunk.blocks.ravel()
        observed = layout.observed[blocks]
        own = np.append(variance, 1.0)[layout.rows[blocks]]
        swept = sweep(motion, layout.steps[blocks], observed, values[blocks].reshape(observed.shape), own, keep=keep)
        white = swept.white.transpose(3, 0, 1, 2).reshape(len(blocks), -1, swept.white.shape[2])
        basis, told = _basis_of(white[..., :-1])
        z = white[..., -1:]
        return cls(swept, basis, told, z, *_project(basis, z))


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

    def project(self, values: Array) -> Projected:
        """Return what values of all measurements say of states.

        Parameters
        ----------
        values : array, shape (b, m, k)
            In blocks.
        """
        found = Projected.empty(values, self.space.size)
        for number, chunk in enumerate(self.layout.chunks):
            found.add(chunk, self.white(number), values)
        return found


@dataclass
class Projected:
    """What values of all measurements say of states, in each block and for k sets of values.

    Parameters
    ----------
    said, added : arrays, shape (b, s, k)
        Of the state at the start of a block, and what they add to it until the next one.
    rest : array, shape (b, k)
        What is left of whitened values, squared and summed up.
    doubt, lost : float
        What relative errors of covariances inside blocks do to the log evidence, and those of what is left, squared.
    """

    said: Array
    added: Array
    rest: Array
    doubt: float = 0.0
    lost: float = 0.0

    @classmethod
    def empty(cls, values: Array, size: int) -> Projected:
        """Return zeros.

        Parameters
        ----------
        values : array, shape (b, m, k)
        size : int
            How many states there are.
        """
        blocks, _, count = values.shape
        said, added = np.zeros((2, blocks, size, count))
        return cls(said, added, np.zeros((blocks, count)))

    def add_alone(self, chunk: Chunk, own: Alone) -> None:
        """Add blocks that share nothing.

        Parameters
        ----------
        chunk : Chunk
        own : Alone
            Its blocks.
        """
        blocks = chunk.blocks.ravel()
        self.said[blocks] = own.said
        self.added[blocks, : len(own.swept.last)] = -own.swept.last[:, -1].T[:, :, None]
        self.rest[blocks] = np.sum(own.left**2, axis=1)
        self.lost += float(np.sum((own.left[:, : own.z.shape[1]] * own.z) ** 2))
        self.doubt += own.swept.doubt

    def add(self, chunk: Chunk, white: White, values: Array) -> None:
        """Add the blocks of a chunk.

        Parameters
        ----------
        chunk : Chunk
        white : White
            Its blocks.
        values : array, shape (b, m, k)
            Of all blocks.
        """
        z = white.inverse @ together(values, chunk)
        own, left = white.project(z)
        self.said[chunk.blocks] = apart(own, chunk)
        self.added[chunk.blocks, : white.gain.shape[1]] = apart(white.gain @ z, chunk)
        self.rest[chunk.blocks] = apart(np.sum(left**2, axis=1, keepdims=True), chunk)[:, :, 0]
        self.lost += float(np.sum((left[:, : z.shape[1]] * z) ** 2))
        # Entries of a covariance err in proportion to the variances.
        sizes = np.einsum("uii->ui", white.inside.covariance)
        alpha = white.inverse.swapaxes(-1, -2) @ left[:, : z.shape[1]]
        inverse = chunk.blocks.shape[1] * np.sum(white.inverse**2, axis=1)
        self.doubt += 0.5 * float(np.sum(sizes * (np.sum(alpha**2, axis=2) + inverse)))


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
    half_log = np.log(np.einsum("uii->ui", L)).sum(axis=1)
    inverse = invert_triangles(L)
    design = inverse @ inside.design
    gain = inside.cross @ inverse.swapaxes(-1, -2)
    count, size, n = len(first), motion.space.size, motion.space.noisy
    basis, told = _basis_of(design)
    moved = inside.transition
    moved[:, :n] -= gain @ design
    noise = np.zeros((count, size, size))
    noise[:, :n, :n] = roots_of(inside.noise - gain @ gain.swapaxes(-1, -2))
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


def make_filter(
    space: Space, layout: Layout, variance: Array, values: Array, *, swept: bool = False
) -> tuple[Filter, Projected] | None:
    """Return the filter through all blocks, and what values say; None where something is not finite or not positive.

    Parameters
    ----------
    space : Space
    layout : Layout
    variance : array, shape (m,)
        Of the noise of each measurement.
    values : array, shape (b, m, k)
        Of all measurements, in blocks.
    swept : bool
        Whether blocks that share nothing are filtered inside, too; k is one then.
    """
    if not (space.is_finite and np.isfinite(variance).all() and (variance > 0).all()):
        return None
    start = space.root_at(float(layout.times[0, 0]))
    if not np.isfinite(start).all():
        return None
    motion = Motion(space, layout.lengths)
    count = int(layout.patterns.max()) + 1
    told, moved, noise = np.zeros((3, count, space.size, space.size))
    half_logs, kept, used = np.zeros(count), {}, 0
    projected = Projected.empty(values, space.size)
    for number, chunk in enumerate(layout.chunks):
        if swept and chunk.is_rare:
            own = Alone.of(motion, layout, chunk, variance, values, keep=False)
            first = chunk.alone.patterns
            told[first], moved[first] = own.told, own.swept.transition
            noise[first, : space.noisy, : space.noisy] = roots_of(own.swept.noise.transpose(2, 0, 1))
            half_logs[first] = np.log(own.swept.deviations).sum(axis=(0, 1))
            projected.add_alone(chunk, own)
            continue
        try:
            white = _whiten(motion, layout, chunk, variance)
        except np.linalg.LinAlgError:
            return None
        told[chunk.patterns], moved[chunk.patterns], noise[chunk.patterns] = white.told, white.moved, white.noise
        half_logs[chunk.patterns] = white.half_log
        projected.add(chunk, white, values)
        used += white.inside.carried.size + 2 * white.inverse.size
        if used <= _KEPT:
            kept[number] = white
    if not all(np.isfinite(part).all() for part in (told, moved, noise, half_logs)):
        return None
    carried = carry(start, layout.patterns, told, moved, noise)
    return Filter(space, motion, layout, variance, told, moved, half_logs, carried, kept), projected
