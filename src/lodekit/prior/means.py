"""Known functions of time: particular solutions, which are the mean of the prior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.scalars import Scalar
from lodekit.prior.averages import moments
from lodekit.system.signals import Signal

__all__ = ["CompiledSignal", "append_signal"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CompiledSignal:
    """A known function of time: terms ``c t^k exp(r t) cos or sin(w t)``.

    Parameters
    ----------
    powers : tuple of int
        k, for each term.
    sines : tuple of bool
        Whether a term is a sine.
    coefficients : slice
        Where c, r, w of all terms stand in the table, in this order.
    """

    powers: tuple[int, ...]
    sines: tuple[bool, ...]
    coefficients: slice

    def waves(self, xp: Any, times: Any, table: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Yield c, w, ``t^k exp(r t)`` and ``cos or sin(w t)`` of each term, shapes (..., 1) and (..., n).

        Parameters
        ----------
        xp : module
            The array library.
        times : array, shape (..., n)
            In the user's unit.
        table : array, shape (..., s)
        """
        own = table[..., self.coefficients]
        for i, (power, sine) in enumerate(zip(self.powers, self.sines, strict=True)):
            c, r, w = (own[..., 3 * i + k, None] for k in range(3))
            yield c, w, times**power * xp.exp(r * times), (xp.sin if sine else xp.cos)(w * times)

    def values(self, xp: Any, times: Any, table: Any) -> Any:
        """Return the signal, shape (..., n).

        Parameters
        ----------
        xp : module
            The array library.
        times : array, shape (..., n)
            In the user's unit.
        table : array, shape (..., s)
        """
        shape = np.broadcast_shapes(tuple(times.shape), (*table.shape[:-1], 1))
        total = xp.zeros(shape, dtype=table.dtype, device=table.device)
        for c, _, envelope, wave in self.waves(xp, times, table):
            total = total + c * envelope * wave
        return total

    def evaluate(self, times: Array, values: Array, derivatives: Array) -> tuple[Array, Array]:
        """Return the signal, shape (n,), and its derivatives in the parameters, shape (p, n).

        Parameters
        ----------
        times : array, shape (n,)
            In the user's unit.
        values, derivatives : arrays, shapes (s,) and (p, s)
            The table.
        """
        if not self.count:
            return np.zeros(len(times)), np.zeros((len(derivatives), len(times)))
        slopes = derivatives[:, self.coefficients]
        if self._is_constant(values, slopes):
            starts = slice(self.coefficients.start, self.coefficients.stop, 3)
            total = np.full(len(times), values[starts].sum())
            return total, np.repeat(derivatives[:, starts].sum(axis=1)[:, None], len(times), axis=1)
        total, gradient = np.zeros(len(times)), np.zeros((len(derivatives), len(times)))
        for i, (c, w, envelope, wave) in enumerate(self.waves(np, times, values)):
            total += c * envelope * wave
            if slopes[:, 3 * i : 3 * i + 3].any():
                dc, dr, dw = slopes[:, 3 * i], slopes[:, 3 * i + 1], slopes[:, 3 * i + 2]
                slope = np.cos(w * times) if self.sines[i] else -np.sin(w * times)
                gradient += np.outer(dc, envelope * wave) + np.outer(dr, c * times * envelope * wave)
                gradient += np.outer(dw, c * times * envelope * slope)
        return total, gradient

    def average(self, times: Array, values: Array, derivatives: Array, window: float) -> tuple[Array, Array]:
        """Return the mean of the signal over intervals, shape (n,), and its derivatives in the parameters, (p, n).

        With the complex rate ``l = r + i w`` it is a sum over the powers of ``v`` in ``(s + v)^k e^(l v)``, times
        ``e^(l s)``; one power more is the derivative in l.

        Parameters
        ----------
        times : array, shape (n,)
            When the intervals begin, in the user's unit.
        values, derivatives
            As in `evaluate`.
        window : float
            Their length.
        """
        own, slopes = values[self.coefficients], derivatives[:, self.coefficients]
        total, gradient = np.zeros(len(times)), np.zeros((len(derivatives), len(times)))
        for i, (power, sine) in enumerate(zip(self.powers, self.sines, strict=True)):
            c, rate = own[3 * i], complex(own[3 * i + 1], own[3 * i + 2])
            means, wave = moments(rate, window, power + 1), np.exp(rate * times)
            value, slope = (
                wave * sum(comb(k, j) * means[j] * times ** (k - j) for j in range(k + 1)) for k in (power, power + 1)
            )
            part, in_rate, in_turn = (v.imag if sine else v.real for v in (value, slope, 1j * slope))
            total += c * part
            dc, dr, dw = (slopes[:, 3 * i + k] for k in range(3))
            gradient += np.outer(dc, part) + np.outer(c * dr, in_rate) + np.outer(c * dw, in_turn)
        return total, gradient

    def _is_constant(self, values: Array, slopes: Array) -> bool:
        """Return whether all terms are constants, and stay so when parameters move."""
        own = values[self.coefficients].reshape(-1, 3)
        moving = slopes.reshape(len(slopes), self.count, 3)[:, :, 1:]
        return not (any(self.powers) or any(self.sines) or own[:, 1:].any() or moving.any())

    def pull(self, times: Array, values: Array, derivatives: Array, weights: Array) -> Array:
        """Return derivatives in the parameters of the sum of weights times the signal, shape (p,).

        Parameters
        ----------
        times, values, derivatives
            As in `evaluate`.
        weights : array, shape (n,)
        """
        if self._is_constant(values, derivatives[:, self.coefficients]):
            starts = slice(self.coefficients.start, self.coefficients.stop, 3)
            return np.asarray(derivatives[:, starts].sum(axis=1) * weights.sum())
        return np.asarray(self.evaluate(times, values, derivatives)[1] @ weights)

    @property
    def count(self) -> int:
        """Number of terms."""
        return len(self.powers)


def append_signal(signal: Signal, scalars: list[Scalar]) -> CompiledSignal:
    """Add the numbers of a signal to a list, and return where they stand.

    Parameters
    ----------
    signal : Signal
    scalars : list of Scalar
        Grows.
    """
    start = len(scalars)
    for wave, value in signal.terms.items():
        scalars.extend((value, wave.rate, wave.frequency))
    waves = list(signal.terms)
    return CompiledSignal(
        tuple(wave.power for wave in waves), tuple(wave.sine for wave in waves), slice(start, len(scalars))
    )
