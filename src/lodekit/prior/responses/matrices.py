"""State spaces in numbers: ``x' = F x + G v``, ``g = H x + D v + D1 v'``, and what observables make of them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import matrix_balance

__all__ = ["StateMatrices", "balance", "integrate", "observe"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StateMatrices:
    """The matrices of a state space with s states, m inputs and q observables, or derivatives of all of them.

    Parameters
    ----------
    F, G : arrays, shapes (..., s, s) and (..., s, m)
        ``x' = F x + G v``.
    H, D, D1 : arrays, shapes (..., q, s), (..., q, m) and (..., q, m)
        ``g = H x + D v + D1 v'``. Derivatives in p parameters have p in front of all shapes.
    """

    F: Array
    G: Array
    H: Array
    D: Array
    D1: Array

    @classmethod
    def of(
        cls, F: ArrayLike, G: ArrayLike, H: ArrayLike, D: ArrayLike | None = None, D1: ArrayLike | None = None
    ) -> Self:
        """Return matrices as floats; ``D`` and ``D1`` are zero where not given.

        Parameters
        ----------
        F, G, H, D, D1 : array-like
            As in the class.
        """
        first, second, third = (np.asarray(matrix, dtype=float) for matrix in (F, G, H))
        empty = np.zeros((*third.shape[:-1], second.shape[-1]))
        fourth, fifth = (empty if matrix is None else np.asarray(matrix, dtype=float) for matrix in (D, D1))
        return cls(first, second, third, fourth, fifth)

    def contract(self, slopes: StateMatrices) -> Array:
        """Return the sum over all entries of these times those of ``slopes``, shape (p,).

        Parameters
        ----------
        slopes : StateMatrices
            Derivatives in p parameters.
        """
        pairs = [(getattr(self, field.name), getattr(slopes, field.name)) for field in fields(self)]
        return np.asarray(sum(np.tensordot(slope, matrix, axes=2) for matrix, slope in pairs))

    @property
    def is_finite(self) -> bool:
        """Whether all entries are numbers."""
        return all(bool(np.isfinite(getattr(self, field.name)).all()) for field in fields(self))


@dataclass(frozen=True)
class _Sloped:
    """A matrix with its derivatives in the parameters."""

    value: Array
    slopes: Array

    def __matmul__(self, other: _Sloped) -> _Sloped:
        return _Sloped(self.value @ other.value, self.slopes @ other.value + self.value @ other.slopes)

    def __add__(self, other: _Sloped) -> _Sloped:
        return _Sloped(self.value + other.value, self.slopes + other.slopes)


def observe(
    matrices: StateMatrices,
    slopes: StateMatrices,
    weights: tuple[Array, Array],
    direct: tuple[Array, Array] | None = None,
) -> tuple[StateMatrices, StateMatrices]:
    """Return the state space of observables ``W(d) g + V(d) v``, with its derivatives in the parameters.

    Between jumps and kinks an input has no derivative beyond the first, so ``g'' = H F^2 x + H F G v + H G v'`` and so
    on, to any order.

    Parameters
    ----------
    matrices, slopes : StateMatrices
        Of the channels g, and their derivatives in p parameters.
    weights : pair of arrays, shapes (k, r, q) and (p, k, r, q)
        Coefficients W of the derivatives of order 0 to k - 1 of g in r observables, and their derivatives.
    direct : pair of arrays, shapes (k, r, m) and (p, k, r, m), optional
        V, the same for the inputs themselves; orders above one are zero between kinks.

    Examples
    --------
    >>> lag = StateMatrices.of([[-2.0]], [[3.0]], [[1.0]])
    >>> none = StateMatrices.of(np.zeros((0, 1, 1)), np.zeros((0, 1, 1)), np.zeros((0, 1, 1)))
    >>> velocity = np.array([[[0.0]], [[1.0]]])
    >>> found, _ = observe(lag, none, (velocity, np.zeros((0, 2, 1, 1))))
    >>> found.H.tolist(), found.D.tolist()
    ([[-2.0]], [[3.0]])
    """
    F, G, H, D, D1 = (_Sloped(getattr(matrices, name), getattr(slopes, name)) for name in ("F", "G", "H", "D", "D1"))
    zero = np.zeros((weights[0].shape[1], G.value.shape[-1]))
    none = np.zeros((len(G.slopes), *zero.shape))
    levels = [_Sloped(zero, none), _Sloped(zero, none)]
    states = None
    chain = H  # H F^k
    before: list[_Sloped] = [D, D1]  # factors of v and v' in the k-th derivative of g
    for order in range(len(weights[0])):
        W = _Sloped(weights[0][order], weights[1][:, order])
        states = W @ chain if states is None else states + W @ chain
        levels = [level + W @ part for level, part in zip(levels, before, strict=True)]
        before = [chain @ G, before[0]]
        chain = chain @ F
    if direct is not None:
        for order in range(min(2, len(direct[0]))):
            levels[order] += _Sloped(direct[0][order], direct[1][:, order])
    if states is None:
        states = _Sloped(np.zeros((len(zero), len(F.value))), np.zeros((len(none), len(zero), len(F.value))))
    return (
        StateMatrices(F.value, G.value, states.value, levels[0].value, levels[1].value),
        StateMatrices(F.slopes, G.slopes, states.slopes, levels[0].slopes, levels[1].slopes),
    )


def integrate(
    matrices: StateMatrices, slopes: StateMatrices, which: NDArray[np.intp]
) -> tuple[StateMatrices, StateMatrices]:
    """Return a state space with integrals from the start on in place of some observables, one more state for each.

    Parameters
    ----------
    matrices, slopes : StateMatrices
        Of the observables, and their derivatives in p parameters.
    which : array of int, shape (k,)
        Which of them.

    Examples
    --------
    >>> lag = StateMatrices.of([[-2.0]], [[3.0]], [[1.0]])
    >>> none = StateMatrices.of(np.zeros((0, 1, 1)), np.zeros((0, 1, 1)), np.zeros((0, 1, 1)))
    >>> found, _ = integrate(lag, none, np.array([0]))
    >>> found.F.tolist(), found.H.tolist()
    ([[-2.0, 0.0], [1.0, 0.0]], [[0.0, 1.0]])
    """
    found, more = [], len(which)
    for part, one in ((matrices, 1.0), (slopes, 0.0)):
        leading, states = part.F.shape[:-2], part.F.shape[-1]
        F = np.zeros((*leading, states + more, states + more))
        F[..., :states, :states], F[..., states:, :states] = part.F, part.H[..., which, :]
        H = np.concatenate([part.H, np.zeros((*part.H.shape[:-1], more))], axis=-1)
        H[..., which, :] = 0.0
        H[..., which, states + np.arange(more)] = one
        D, D1 = part.D.copy(), part.D1.copy()
        # The integral of an input's slope is the input.
        D[..., which, :], D1[..., which, :] = part.D1[..., which, :], 0.0
        G = np.concatenate([part.G, part.D[..., which, :]], axis=-2)
        found.append(StateMatrices(F, G, H, D, D1))
    return found[0], found[1]


def balance(F: Array) -> Array:
    """Return scales of the states, powers of two, in which F has rows and columns of like size, shape (s,).

    Parameters
    ----------
    F : array, shape (s, s)
    """
    if len(F) < 2:
        return np.ones(len(F))
    _, (scales, _) = matrix_balance(F, permute=False, separate=True)
    return np.asarray(scales, dtype=float)
