"""Inside blocks everything is dense: measurements given the state at the start of their block, and the way back.

Given the state x at the start of a block its measurements are ``y = M x + noise``, with the covariance K of that noise,
which has covariances with the state at the end, too. All of these come from joining `stretches`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse import csc_array

from lodekit.inference.markov.states import Space
from lodekit.inference.markov.steps import NoisySteps
from lodekit.inference.markov.stretches import Plan, Stretches

__all__ = ["Inside", "InsideSlopes", "Motion", "Total", "add_to", "go_through", "invert_roots"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: So few parts are added up one by one.
_FEW = 32


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
    """Some blocks, without the noise of measurements.

    Parameters
    ----------
    motion : Motion
        Over the different steps of all blocks.
    numbers : array of int, shape (d,)
        Of all different stretches of one place, the number of the step that follows, in `motion`.
    observed : array of int, shape (d, w)
        The numbers of the observables that are read there; that of the row of zeros for none.
    stretches : Stretches
    size : int
        The number of places times that of measurements at each.
    """

    motion: Motion
    numbers: Numbers
    observed: Numbers
    stretches: Stretches
    size: int

    @property
    def design(self) -> Array:
        """M, shape (u, p w, s)."""
        return self.stretches.means[:, : self.size]

    @property
    def covariance(self) -> Array:
        """K, shape (u, p w, p w); the lower triangle, and some more that is not meant."""
        return self.stretches.covariances[:, : self.size, : self.size]

    @property
    def transition(self) -> Array:
        """From the start of a block to that of the next one, shape (u, s, s)."""
        return self.stretches.means[:, -self.motion.space.size :] if self.motion.space.size else self.design[:, :0]

    @property
    def noise(self) -> Array:
        """Covariance of the state at the end, given that at the start, shape (u, n, n)."""
        end = self._end
        return self.stretches.covariances[:, end, end]

    @property
    def cross(self) -> Array:
        """Covariance of the state at the end with the measurements, shape (u, n, p w)."""
        return self.stretches.covariances[:, self._end, : self.size]

    @property
    def _end(self) -> slice:
        """Where the states that noise drives stand behind all that is read."""
        start = self.stretches.means.shape[1] - self.motion.space.size
        return slice(start, start + self.motion.space.noisy)

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
        space, end = self.motion.space, self._end
        n, rest = space.noisy, self.stretches.means.shape[1] - space.size
        in_means, in_covariances = np.zeros_like(self.stretches.means), np.zeros_like(self.stretches.covariances)
        in_means[:, : self.size], in_means[:, rest:] = in_design, in_transition
        in_covariances[:, : self.size, : self.size], in_covariances[:, end, end] = in_covariance, in_noise
        in_covariances[:, end, : self.size] = 0.5 * in_cross
        in_covariances[:, : self.size, end] = 0.5 * in_cross.swapaxes(-1, -2)
        in_rows, in_steps, in_noises = self.stretches.pull(in_means, in_covariances)
        add_to(total.noisy, self.numbers, in_steps[:, :n, :n])
        add_to(total.noises, self.numbers, in_noises[:, :n, :n])
        add_to(total.quiet, self.numbers, in_steps[:, n:, n:])
        add_to(total.readings, self.observed.ravel(), in_rows.reshape(self.observed.size, space.size))


def go_through(motion: Motion, plan: Plan, size: int) -> Inside:
    """Return some blocks.

    Parameters
    ----------
    motion : Motion
        Over the different steps of the plan.
    plan : Plan
    size : int
        The number of places times that of measurements at each.
    """
    observed = np.where(plan.observed >= 0, plan.observed, len(motion.readings) - 1)
    n, whole, numbers = motion.space.noisy, motion.space.size, plan.steps
    transitions, noises = np.zeros((2, len(numbers), whole, whole))
    transitions[:, :n, :n] = motion.noisy.transitions[numbers]
    transitions[:, n:, n:] = motion.quiet.transitions[numbers]
    noises[:, :n, :n] = motion.noisy.noises[numbers]
    return Inside(motion, numbers, observed, Stretches(plan, motion.readings[observed], transitions, noises), size)


def add_to(total: Array, numbers: Numbers, parts: Array) -> None:
    """Add parts to the rows that have their numbers; some may have the same.

    Parameters
    ----------
    total : array, shape (k, ...)
        Grows.
    numbers : array of int, shape (n,)
    parts : array, shape (n, ...)
    """
    if len(numbers) <= _FEW:
        np.add.at(total, numbers, parts)
        return
    # One entry a column: a product with it adds up rows, in their order.
    chosen = csc_array((np.ones(len(numbers)), numbers, np.arange(len(numbers) + 1)), shape=(len(total), len(numbers)))
    total += (chosen @ parts.reshape(len(numbers), -1)).reshape(total.shape)


def invert_roots(K: Array, ends: Numbers) -> Array:
    """Return the inverses of the Cholesky factors of matrices, shape (u, n, n).

    Parameters
    ----------
    K : array, shape (u, n, n)
        Of which the lower triangles count.
    ends : array of int, shape (u,)
        Where the rows and columns begin that are those of the unit.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where one is not positive.

    Examples
    --------
    >>> invert_roots(np.array([[[4.0, 0.0], [2.0, 17.0]]]), np.array([2])).tolist()
    [[[0.5, 0.0], [-0.125, 0.25]]]
    """
    found = np.zeros_like(K)
    for own, inverse, end in zip(K, found, ends.tolist(), strict=True):
        # A row after the other is a column after the other of the transposed.
        root, info = lapack.dpotrf(own[:end, :end].T, lower=0)
        if info:
            raise np.linalg.LinAlgError("expected positive matrices")
        inverse[:end, :end] = lapack.dtrtri(root, lower=0, overwrite_c=1)[0].T
        np.einsum("ii->i", inverse)[end:] = 1.0
    return found
