"""Inside blocks everything is dense: measurements given the state at the start of their block, and the way back.

From place to place the transition carries what is known of the state: how it follows from the state at the start (A),
its covariance with all measurements before it, and its own covariance (S). Rows of observables then give the
covariance K of all measurements, and M with ``y = M x + noise``. All blocks of a chunk go together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse import csc_array

from lodekit.inference.markov.states import Space
from lodekit.inference.markov.steps import NoisySteps

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
    carried : array, shape (u, p + 1, n, n + p w)
        At each place, ``[A, covariance with all measurements before it]`` of the states that noise drives.
    quiet : array, shape (u, p + 1, q, q)
        A of the others.
    own : array, shape (u, p + 1, n, n)
        S.
    design : array, shape (u, p w, s)
        M.
    covariance : array, shape (u, p w, p w)
        K; the lower triangle, and some more that is not meant.
    """

    motion: Motion
    steps: Numbers
    observed: Numbers
    carried: Array
    quiet: Array
    own: Array
    design: Array
    covariance: Array

    @property
    def transition(self) -> Array:
        """From the start of a block to that of the next one, shape (u, s, s)."""
        n, size = self.own.shape[-1], self.motion.space.size
        found = np.zeros((len(self.own), size, size))
        found[:, :n, :n] = self.carried[:, -1, :, :n]
        found[:, n:, n:] = self.quiet[:, -1]
        return found

    @property
    def noise(self) -> Array:
        """Covariance of the state at the end, given that at the start, shape (u, n, n)."""
        return self.own[:, -1]

    @property
    def cross(self) -> Array:
        """Covariance of the state at the end with the measurements, shape (u, n, p w)."""
        return self.carried[:, -1, :, self.own.shape[-1] :]

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
        motion, n = self.motion, self.own.shape[-1]
        count, places, width = self.observed.shape
        H = motion.readings[self.observed]
        noisy, quiet = H[..., :n], H[..., n:]
        # Blocks on the diagonal are symmetric, those below count twice.
        K = in_covariance.reshape(count, places, width, places, width)
        every = np.arange(places)
        diagonal = K[:, every, :, every].swapaxes(0, 1)
        below = 2.0 * K * (every[:, None] > every)[:, None, :, None]
        design = in_design.reshape(count, places, width, in_design.shape[-1])
        rows = np.concatenate([design[..., :n], below.reshape(count, places, width, places * width)], axis=-1)
        in_H = np.zeros_like(H)
        in_H[..., :n] = rows @ self.carried[:, :-1].swapaxes(-1, -2) + 2.0 * diagonal @ noisy @ self.own[:, :-1]
        in_H[..., n:] = design[..., n:] @ self.quiet[:, :-1].swapaxes(-1, -2)
        from_rows = noisy.swapaxes(-1, -2) @ rows
        from_diagonal = noisy.swapaxes(-1, -2) @ diagonal @ noisy
        in_carried = np.concatenate([in_transition[:, :n, :n], in_cross], axis=-1)
        in_own, in_quiet = in_noise, in_transition[:, n:, n:]
        from_quiet = quiet.swapaxes(-1, -2) @ design[..., n:]
        in_steps = np.zeros((2, count, places, n, n))
        in_others = np.zeros((count, places, *in_quiet.shape[1:]))
        for i in range(places, 0, -1):
            step = self.steps[:, i]
            Phi, S, used = motion.noisy.transitions[step], self.own[:, i - 1], n + (i - 1) * width
            before = np.concatenate([self.carried[:, i - 1, :, :used], S @ noisy[:, i - 1].swapaxes(-1, -2)], axis=-1)
            in_carried = in_carried[..., : used + width]
            in_steps[0, :, i - 1] = in_carried @ before.swapaxes(-1, -2) + 2.0 * in_own @ Phi @ S
            in_steps[1, :, i - 1] = in_own
            turned = Phi.swapaxes(-1, -2)
            in_before = turned @ in_carried
            last = in_before[..., used:]
            mixed = last @ noisy[:, i - 1]
            in_own = turned @ in_own @ Phi + 0.5 * (mixed + mixed.swapaxes(-1, -2)) + from_diagonal[:, i - 1]
            in_H[:, i - 1, :, :n] += last.swapaxes(-1, -2) @ S
            in_carried = in_before[..., :used] + from_rows[:, i - 1, :, :used]
            if quiet.shape[-1]:
                in_others[:, i - 1] = in_quiet @ self.quiet[:, i - 1].swapaxes(-1, -2)
                moved = motion.quiet.transitions[step].swapaxes(-1, -2)
                in_quiet = moved @ in_quiet + from_quiet[:, i - 1]
        self._add(total, in_steps, in_others, in_H)

    def _add(self, total: InsideSlopes, in_steps: Array, in_others: Array, in_H: Array) -> None:
        numbers = self.steps[:, 1:].ravel()
        for whole, part in ((total.noisy, in_steps[0]), (total.noises, in_steps[1]), (total.quiet, in_others)):
            add_to(whole, numbers, part.reshape(len(numbers), *part.shape[2:]))
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
    n, q = motion.space.noisy, motion.space.size - motion.space.noisy
    observed = np.where(observed >= 0, observed, len(motion.readings) - 1)
    H = motion.readings[observed]
    noisy = H[..., :n]
    carried = np.zeros((count, places + 1, n, n + places * width))
    own, quiet = np.zeros((count, places + 1, n, n)), np.zeros((count, places + 1, q, q))
    carried[:, 0, :, :n], quiet[:, 0] = np.eye(n), np.eye(q)
    for i in range(1, places + 1):
        step = steps[:, i]
        Phi, S, used = motion.noisy.transitions[step], own[:, i - 1], n + (i - 1) * width
        carried[:, i, :, :used] = Phi @ carried[:, i - 1, :, :used]
        carried[:, i, :, used : used + width] = Phi @ (S @ noisy[:, i - 1].swapaxes(-1, -2))
        own[:, i] = Phi @ S @ Phi.swapaxes(-1, -2) + motion.noisy.noises[step]
        if q:
            quiet[:, i] = motion.quiet.transitions[step] @ quiet[:, i - 1]
    rows = noisy @ carried[:, :-1]
    design = np.concatenate([rows[..., :n], H[..., n:] @ quiet[:, :-1]], axis=-1)
    K = rows[..., n:].reshape(count, places, width, places, width)
    every = np.arange(places)
    K[:, every, :, every] = (noisy @ own[:, :-1] @ noisy.swapaxes(-1, -2)).swapaxes(0, 1)
    size = places * width
    return Inside(
        motion,
        steps,
        observed,
        carried,
        quiet,
        own,
        design.reshape(count, size, design.shape[-1]),
        K.reshape(count, size, size),
    )


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
