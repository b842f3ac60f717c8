"""States through the places of blocks, all places at once: stretches of them are joined two by two.

Of a stretch is known how the state at each of its places, and at its end, follows from that at its start (A), with
which noise (S), and the covariance of the state at its end with all that is read inside (E). Two that follow each
other make one of twice the length, so that the number of joins is the logarithm of that of the places. Nothing is
divided, and noises are only added. The way back is the adjoint of the same joins.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Readings", "Stretches", "padded"]

Array = NDArray[np.float64]


def padded(values: Array, rest: Array | float) -> Array:
    """Return something of each place, (u, p, ...), with more places up to a power of two.

    Parameters
    ----------
    values : array, shape (u, p, ...)
    rest : array or float
        What the places have that are added.
    """
    count, places = values.shape[:2]
    more = (1 << max(0, places - 1).bit_length()) - places
    if not more:
        return values
    return np.concatenate([values, np.broadcast_to(rest, (count, more, *values.shape[2:]))], axis=1)


class Stretches:
    """How states follow from those at the start of their block, and with which noise.

    Parameters
    ----------
    transitions : array, shape (u, p, n, n)
        Of the step that follows each place; p is a power of two.
    noises : array, shape (u, p, n, n), optional
        Of that step; none where nobody says.

    Attributes
    ----------
    moves : list of arrays, shapes (u, p / l, l + 1, n, n)
        A, for stretches of l = 1, 2, 4 ... places.
    own : array, shape (u, p + 1, n, n)
        S, for the whole of a block.

    Examples
    --------
    >>> steps = np.array([2.0, 3.0, 5.0, 7.0]).reshape(1, 4, 1, 1)
    >>> Stretches(steps).whole.ravel().tolist()
    [1.0, 2.0, 6.0, 30.0, 210.0]
    """

    def __init__(self, transitions: Array, noises: Array | None = None) -> None:
        count, places, n, _ = transitions.shape
        if not n:
            self.moves, self._ends, self.own = [np.zeros((count, 1, places + 1, 0, 0))], [], np.zeros((count, 0, 0, 0))
            return
        moves = np.empty((count, places, 2, n, n))
        moves[:, :, 0], moves[:, :, 1] = np.eye(n), transitions
        self.moves, self._ends = [moves], []
        own = None
        if noises is not None:
            own = np.zeros((count, places, 2, n, n))
            own[:, :, 1] = noises
        while moves.shape[1] > 1:
            left, right = moves[:, ::2], moves[:, 1::2]
            behind = _flat(right)
            if own is not None:
                end = own[:, ::2, -1]
                self._ends.append(end)
                grown = (behind @ end).reshape(right.shape) @ right.swapaxes(-1, -2)
                own = np.concatenate([own[:, ::2, :-1], own[:, 1::2] + grown], axis=2)
            moved = (behind @ left[:, :, -1]).reshape(right.shape)
            moves = np.concatenate([left[:, :, :-1], moved], axis=2)
            self.moves.append(moves)
        self.own = np.zeros((count, places + 1, n, n)) if own is None else own[:, 0]

    @property
    def whole(self) -> Array:
        """A for the whole of a block, shape (u, p + 1, n, n)."""
        return self.moves[-1][:, 0]

    def pull(self, in_moves: list[Array], in_own: Array | None = None) -> tuple[Array, Array]:
        """Return derivatives in transitions and noises, shape (u, p, n, n) each; the latter are zeros without noise.

        Parameters
        ----------
        in_moves : list of arrays
            Those in all `moves`; they are changed.
        in_own : array, shape (u, p + 1, n, n), optional
            In `own`, symmetric.
        """
        in_S = None if in_own is None else in_own[:, None]
        for level in range(len(self.moves) - 2, -1, -1):
            above, below, half = in_moves[level + 1], in_moves[level], 1 << level
            left, right = self.moves[level][:, ::2], self.moves[level][:, 1::2]
            below[:, ::2, :half] += above[:, :, :half]
            behind, slopes = _flat(right), _flat(above[:, :, half:])
            in_right = slopes @ left[:, :, -1].swapaxes(-1, -2)
            if in_S is not None:
                mixed = _flat(in_S[:, :, half:] @ right)
                in_right += 2.0 * mixed @ self._ends[level]
                in_end = behind.swapaxes(-1, -2) @ mixed
                parts = np.concatenate([in_S[:, :, :half], in_end[:, :, None]], axis=2), in_S[:, :, half:]
                in_S = np.stack(parts, axis=2).reshape(below.shape)
            below[:, ::2, half] += behind.swapaxes(-1, -2) @ slopes
            below[:, 1::2] += in_right.reshape(right.shape)
        in_steps = in_moves[0][:, :, 1]
        return in_steps, np.zeros_like(in_steps) if in_S is None else in_S[:, :, 1]


class Readings:
    """Covariances of all that is read at the places of blocks, given the state at the start.

    Parameters
    ----------
    stretches : Stretches
        Of the states that noise drives.
    rows : array, shape (u, p, w, n)
        What is read at each place.

    Attributes
    ----------
    covariance : array, shape (u, p w, p w)
        K: the lower triangle, and blocks on the diagonal; zeros above.
    cross : array, shape (u, n, p w)
        The covariance of the state at the end with all that is read.

    Examples
    --------
    >>> ones = np.ones((1, 4, 1, 1))
    >>> Readings(Stretches(ones, ones), ones).covariance[0, :, :2].tolist()
    [[0.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    """

    def __init__(self, stretches: Stretches, rows: Array) -> None:
        count, places, width, n = rows.shape
        self._stretches, self._rows = stretches, rows
        #: What is read, times the noise of its place.
        self._mixed = stretches.own[:, :-1] @ rows.swapaxes(-1, -2)
        self.covariance = np.zeros((count, places * width, places * width))
        _on_diagonal(self.covariance, places)[:] = rows @ self._mixed
        now = stretches.moves[0][:, :, 1] @ self._mixed
        self._left, self._behind = [], []
        for moves in stretches.moves[:-1]:
            right, own = moves[:, 1::2], rows.reshape(count, moves.shape[1], -1, width, n)[:, 1::2]
            read = (own @ right[:, :, :-1]).reshape(*right.shape[:2], -1, n)
            # What is read behind, and the state at the end, follow from that at the end of the left one.
            behind, left = np.concatenate([read, right[:, :, -1]], axis=2), now[:, ::2]
            both, size = behind @ left, left.shape[-1]
            _below_diagonal(self.covariance, moves.shape[1] // 2)[:] = both[:, :, :size]
            now = np.concatenate([both[:, :, size:], now[:, 1::2]], axis=3)
            self._left.append(left)
            self._behind.append(behind)
        self.cross = now[:, 0]

    def pull(self, in_covariance: Array, in_cross: Array) -> tuple[Array, list[Array], Array]:
        """Return derivatives in the rows, in all `moves` of the stretches, and in S, shape (u, p + 1, n, n).

        Parameters
        ----------
        in_covariance : array, shape (u, p w, p w)
            Symmetric: each of two equal entries has half of the derivative.
        in_cross : array, shape (u, n, p w)
        """
        rows, moves = self._rows, self._stretches.moves
        count, places, width, n = rows.shape
        diagonal = _on_diagonal(in_covariance, places)
        in_rows, in_own = 2.0 * diagonal @ self._mixed.swapaxes(-1, -2), np.zeros_like(self._stretches.own)
        in_own[:, :-1] = rows.swapaxes(-1, -2) @ diagonal @ rows
        in_moves, now = [np.zeros_like(own) for own in moves], in_cross[:, None]
        for level in range(len(moves) - 2, -1, -1):
            left, behind, right = self._left[level], self._behind[level], moves[level][:, 1::2, :-1]
            size, shape = left.shape[-1], (*right.shape[:3], width, n)
            # Entries below the diagonal count twice.
            in_both = np.concatenate([2.0 * _below_diagonal(in_covariance, left.shape[1]), now[..., :size]], axis=2)
            in_behind = in_both @ left.swapaxes(-1, -2)
            in_left = behind.swapaxes(-1, -2) @ in_both
            now = np.stack([in_left, now[..., size:]], axis=2).reshape(count, -1, n, size)
            in_read = in_behind[:, :, :size].reshape(shape)
            own = rows.reshape(count, moves[level].shape[1], -1, width, n)[:, 1::2]
            in_rows.reshape(count, -1, *shape[2:])[:, 1::2] += in_read @ right.swapaxes(-1, -2)
            in_moves[level][:, 1::2, :-1] += own.swapaxes(-1, -2) @ in_read
            in_moves[level][:, 1::2, -1] += in_behind[:, :, size:]
        in_moves[0][:, :, 1] += now @ self._mixed.swapaxes(-1, -2)
        in_mixed = moves[0][:, :, 1].swapaxes(-1, -2) @ now
        in_rows += in_mixed.swapaxes(-1, -2) @ self._stretches.own[:, :-1]
        both = in_mixed @ rows
        in_own[:, :-1] += 0.5 * (both + both.swapaxes(-1, -2))
        return in_rows, in_moves, in_own


def _flat(values: Array) -> Array:
    """Return the matrices of all places of a stretch below each other."""
    count, stretches, places, n, _ = values.shape
    return values.reshape(count, stretches, places * n, n)


def _on_diagonal(K: Array, places: int) -> Array:
    """Return the blocks on the diagonal, shape (u, p, w, w), to be read or written."""
    count, size, _ = K.shape
    width = size // places
    return np.einsum("upapb->upab", K.reshape(count, places, width, places, width))


def _below_diagonal(K: Array, pairs: int) -> Array:
    """Return, for each of some pairs of stretches, the right one with the left one, to be read or written."""
    count, size, _ = K.shape
    half = size // (2 * pairs)
    return np.einsum("uqaqb->uqab", K.reshape(count, pairs, 2, half, pairs, 2, half)[:, :, 1, :, :, 0])
