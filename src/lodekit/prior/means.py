"""Known functions of time: particular solutions, which are the mean of the prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.scalars import Scalar
from lodekit.system.signals import Signal

__all__ = ["CompiledSignal", "append_signal"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CompiledSignal:
    """A known function of time: terms ``c t^k exp(r t) cos or sin(w t)``; c, r, w stand in the table in this order."""

    powers: tuple[int, ...]
    sines: tuple[bool, ...]
    coefficients: slice

    def evaluate(self, times: Array, values: Array, derivatives: Array) -> tuple[Array, Array]:
        """Return the signal, shape (n,), and its derivatives in the parameters, shape (p, n)."""
        own, slopes = values[self.coefficients], derivatives[:, self.coefficients]
        total, gradient = np.zeros(len(times)), np.zeros((len(derivatives), len(times)))
        for i, (power, sine) in enumerate(zip(self.powers, self.sines, strict=True)):
            c, r, w = own[3 * i : 3 * i + 3]
            shape = times**power * np.exp(r * times)
            angle = w * times
            wave, slope = (np.sin(angle), np.cos(angle)) if sine else (np.cos(angle), -np.sin(angle))
            total += c * shape * wave
            dc, dr, dw = slopes[:, 3 * i], slopes[:, 3 * i + 1], slopes[:, 3 * i + 2]
            if slopes[:, 3 * i : 3 * i + 3].any():
                gradient += np.outer(dc, shape * wave) + np.outer(dr, c * times * shape * wave)
                gradient += np.outer(dw, c * times * shape * slope)
        return total, gradient

    @property
    def count(self) -> int:
        """Number of terms."""
        return len(self.powers)


def append_signal(signal: Signal, scalars: list[Scalar]) -> CompiledSignal:
    """Add the numbers of a signal to a list, and return where they stand."""
    start = len(scalars)
    for wave, value in signal.terms.items():
        scalars.extend((value, wave.rate, wave.frequency))
    waves = list(signal.terms)
    return CompiledSignal(
        tuple(wave.power for wave in waves), tuple(wave.sine for wave in waves), slice(start, len(scalars))
    )
