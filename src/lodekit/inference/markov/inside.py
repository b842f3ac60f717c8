"""Inside blocks everything is dense: measurements given the state at the start of their block, and the way back.

At each place the state follows from that at the start (A), with a covariance of its own (S). Rows of observables then
give the covariance K of all measurements, and M with ``y = M x + noise``. All blocks of a chunk go together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse import csc_array

from lodekit.inference.markov.states import Space
from lodekit.inference.markov.steps import NoisySteps
from lodekit.inference.markov.stretches import Readings, Stretches, padded

__all__ = ["Inside", "InsideSlopes", "Motion", "Total", "add_to", "go_through", "invert_triangles"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]


class Motion:
    """A linear system over all different steps.

    Parameters
    ----------
    space : Space
    lengths : array, shape (k,)
        Of the steps, in scaled time.
    keeps : array, shape (k, c), optional
        One for each of the last states that noise drives which a step keeps, zero for those that begin anew with it.
    """

    def __init__(self, space: Space, lengths: Array, keeps: Array | None = None) -> None:
        self.space, self.lengths, self._keeps = space, lengths, None
        noisy, size = space.noisy, space.size
        self.noisy = NoisySteps(space.matrix[:noisy, :noisy], space.density, lengths)
        if keeps is not None:
            self._keeps = np.concatenate([np.ones((len(lengths), noisy - keeps.shape[1])), keeps], axis=1)[:, None]
            self.noisy.transitions = self.noisy.transitions * self._keeps
        quiet = size - noisy
        self.quiet = NoisySteps(space.matrix[noisy:, noisy:], np.zeros((quiet, quiet)), lengths)
        # Observables that are not measured somewhere have a row of zeros there.
        self.readings = np.concatenate([space.readings, np.zeros((1, size))])

    def pull(self, slopes: InsideSlopes) -> tuple[Array, Array]:
        """Return derivatives in F, shape (s, s), and in the density of the noise, (n, n).

        Parameters
        ----------
        slopes : InsideSlopes
        """
        n, size = self.space.noisy, self.space.size
        in_matrix = np.zeros((size, size))
        in_transitions = slopes.noisy if self._keeps is None else slopes.noisy * self._keeps
        in_matrix[:n, :n], in_density = self.noisy.pull(in_transitions, slopes.noises)
        if size > n:
            in_matrix[n:, n:], _ = self.quiet.pull(slopes.quiet, np.zeros_like(slopes.quiet))
        return in_matrix, in_density


@dataclass
class InsideSlopes:
    """Derivatives of a number in all that blocks are made of; they are summed up.

    Parameters
    ----------
    noisy, noises, quiet : arrays, shapes (k, n, n), (k, n, n) and (k, q, q)
        In the transitions of states that noise drives, in their noises, and in the transitions of the others.
    readings : array, shape (o + 1, s)
        In the rows of the observables, and in the row of zeros.
    """

    noisy: Array
    noises: Array
    quiet: Array
    readings: Array

    @classmethod
    def of(cls, motion: Motion) -> InsideSlopes:
        """Return zeros."""
        noisy, quiet = motion.noisy.transitions, motion.quiet.transitions
        return cls(np.zeros_like(noisy), np.zeros_like(noisy), np.zeros_like(quiet), np.zeros_like(motion.readings))


class Total:
    """Derivatives in the system itself, summed up over chunks.

    Parameters
    ----------
    space : Space
    """

    def __init__(self, space: Space) -> None:
        self.matrix, self.density = np.zeros_like(space.matrix), np.zeros_like(space.density)
        self.readings = np.zeros_like(space.readings)

    def add(self, motion: Motion, slopes: InsideSlopes) -> None:
        """Add those of a chunk.

        Parameters
        ----------
        motion : Motion
            Its steps.
        slopes : InsideSlopes
        """
        self.add_parts(*motion.pull(slopes), slopes.readings)

    def add_parts(self, in_matrix: Array, in_density: Array, in_readings: Array) -> None:
        """Add derivatives in F, in the density of the noise, and in the rows of observables and of nothing.

        Parameters
        ----------
        in_matrix, in_density : arrays, shapes (s, s) and (n, n)
        in_readings : array, shape (o + 1, s)
        """
        self.matrix += in_matrix
        self.density += in_density
        # The last row is that of nothing.
        self.readings += in_readings[:-1]


@dataclass(frozen=True)
class Inside:
    """Blocks of a chunk, without the noise of measurements.

    Parameters
    ----------
    motion : Motion
    steps : array of int, shape (u, p + 1)
        The numbers of the steps.
    observed : array of int, shape (u, p, w)
        The numbers of the observables; that of the row of zeros for none.
    noisy, others : Stretches
        How states follow from those at the start: those that noise drives, and the others.
    readings : Readings
        All that is read, given the state at the start.
    design : array, shape (u, p w, s)
        M.
    """

    motion: Motion
    steps: Numbers
    observed: Numbers
    noisy: Stretches
    others: Stretches
    readings: Readings
    design: Array

    @property
    def whole(self) -> Array:
        """How the states that noise drives follow from those at the start: A at each place, (u, p + 1, n, n)."""
        return self.noisy.whole[:, : self.steps.shape[1]]

    @property
    def quiet(self) -> Array:
        """A of the others, shape (u, p + 1, q, q)."""
        return self.others.whole[:, : self.steps.shape[1]]

    @property
    def own(self) -> Array:
        """S at each place, shape (u, p + 1, n, n)."""
        return self.noisy.own[:, : self.steps.shape[1]]

    @property
    def covariance(self) -> Array:
        """K, shape (u, p w, p w); the lower triangle, and blocks on the diagonal."""
        size = self.design.shape[1]
        return self.readings.covariance[:, :size, :size]

    @property
    def transition(self) -> Array:
        """From the start of a block to that of the next one, shape (u, s, s)."""
        n, size = self.own.shape[-1], self.motion.space.size
        found = np.zeros((len(self.own), size, size))
        found[:, :n, :n] = self.noisy.whole[:, -1]
        found[:, n:, n:] = self.others.whole[:, -1]
        return found

    @property
    def noise(self) -> Array:
        """Covariance of the state at the end, given that at the start, shape (u, n, n)."""
        return self.noisy.own[:, -1]

    @property
    def cross(self) -> Array:
        """Covariance of the state at the end with the measurements, shape (u, n, p w)."""
        return self.readings.cross[:, :, : self.design.shape[1]]

    @property
    def count(self) -> int:
        """About how many numbers it has."""
        return self.readings.covariance.size + sum(part.size for part in self.noisy.moves)

    def pull(
        self,
        total: InsideSlopes,
        in_covariance: Array,
        in_design: Array,
        in_transition: Array,
        in_noise: Array,
        in_cross: Array,
    ) -> None:
        """Add derivatives in steps and rows, from those in what blocks are made of.

        Parameters
        ----------
        total : InsideSlopes
            Grows.
        in_covariance : array, shape (u, p w, p w)
            Symmetric: each of two equal entries has half of the derivative.
        in_design, in_transition, in_noise, in_cross : arrays
            In what has the same name.
        """
        n, (count, places, width) = self.own.shape[-1], self.observed.shape
        more = self.readings.cross.shape[2] - in_cross.shape[2]
        if more:
            # Nothing depends on places that were added.
            in_cross = np.pad(in_cross, ((0, 0), (0, 0), (0, more)))
            in_covariance = np.pad(in_covariance, ((0, 0), (0, more), (0, more)))
        in_rows, in_moves, in_own = self.readings.pull(in_covariance, in_cross)
        H = self.motion.readings[self.observed]
        design = in_design.reshape(count, places, width, in_design.shape[-1])
        in_H = np.empty_like(H)
        in_H[..., :n] = in_rows[:, :places] + design[..., :n] @ self.whole[:, :-1].swapaxes(-1, -2)
        in_H[..., n:] = design[..., n:] @ self.quiet[:, :-1].swapaxes(-1, -2)
        turned = H.swapaxes(-1, -2)
        in_moves[-1][:, 0, :places] += turned[..., :n, :] @ design[..., :n]
        in_moves[-1][:, 0, -1] += in_transition[:, :n, :n]
        in_own[:, -1] += in_noise
        in_noisy, in_noises = self.noisy.pull(in_moves, in_own)
        in_others = [np.zeros_like(part) for part in self.others.moves]
        in_others[-1][:, 0, :places] += turned[..., n:, :] @ design[..., n:]
        in_others[-1][:, 0, -1] += in_transition[:, n:, n:]
        in_quiet, _ = self.others.pull(in_others)
        numbers = self.steps[:, 1:].ravel()
        for whole, part in ((total.noisy, in_noisy), (total.noises, in_noises), (total.quiet, in_quiet)):
            if whole.size:
                add_to(whole, numbers, part[:, :places].reshape(len(numbers), *part.shape[2:]))
        add_to(total.readings, self.observed.ravel(), in_H.reshape(self.observed.size, in_H.shape[-1]))


def go_through(motion: Motion, steps: Numbers, observed: Numbers) -> Inside:
    """Return blocks of a chunk.

    Parameters
    ----------
    motion : Motion
    steps : array of int, shape (u, p + 1)
        The numbers of the steps, that to the following block included.
    observed : array of int, shape (u, p, w)
        The numbers of the observables; -1 for none.
    """
    count, places, width = observed.shape
    n, size = motion.space.noisy, motion.space.size
    observed = np.where(observed >= 0, observed, len(motion.readings) - 1)
    H, following = motion.readings[observed], steps[:, 1:]
    # Places that are added do not move, and nothing is read there.
    noisy = Stretches(
        padded(motion.noisy.transitions[following], np.eye(n)), padded(motion.noisy.noises[following], 0.0)
    )
    others = Stretches(padded(motion.quiet.transitions[following], np.eye(size - n)))
    readings = Readings(noisy, padded(H[..., :n], 0.0))
    parts = H[..., :n] @ noisy.whole[:, :places], H[..., n:] @ others.whole[:, :places]
    design = np.concatenate(parts, axis=-1).reshape(count, places * width, size)
    return Inside(motion, steps, observed, noisy, others, readings, design)


def add_to(total: Array, numbers: Numbers, parts: Array) -> None:
    """Add parts to the rows that have their numbers; some may have the same.

    Parameters
    ----------
    total : array, shape (k, ...)
        Grows.
    numbers : array of int, shape (n,)
    parts : array, shape (n, ...)
    """
    # One entry a column: a product with it adds up rows, in their order.
    chosen = csc_array((np.ones(len(numbers)), numbers, np.arange(len(numbers) + 1)), shape=(len(total), len(numbers)))
    total += (chosen @ parts.reshape(len(numbers), -1)).reshape(total.shape)


def invert_triangles(L: Array) -> Array:
    """Return the inverses of lower triangular matrices, shape (u, n, n), in their place.

    Parameters
    ----------
    L : array, shape (u, n, n)

    Examples
    --------
    >>> invert_triangles(np.array([[[2.0, 0.0], [1.0, 4.0]]])).tolist()
    [[[0.5, 0.0], [-0.125, 0.25]]]
    """
    found = np.ascontiguousarray(L)
    for own in found:
        # In place: a row after the other is a column after the other of the transposed.
        lapack.dtrtri(own.T, lower=0, overwrite_c=1)
    return found
