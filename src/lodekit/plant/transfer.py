"""Transfer functions of a fitted state space: poles, zeros, static gain, time constants and dead time with errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.errors import LodekitError
from lodekit.plant.uncertain import Uncertain

__all__ = ["TransferFunction", "control_module", "pade", "signal_module"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TransferFunction:
    """How one channel responds to one input: ``numerator(s) / denominator(s) * exp(-delay s)``, at learned values.

    Parameters
    ----------
    output, input : str
        Channels.
    numerator, denominator : arrays
        Coefficients, highest power of s first; the denominator begins with one. What cancels is left out.
    poles, zeros : tuple of Uncertain
        The roots of both, in the order of their distance from zero.
    time_constants : tuple of Uncertain
        ``-1/p`` for each real pole p, and ``1/|p|`` for pairs of complex ones; slowest first, infinite at zero.
    gain : Uncertain
        The static gain, where a constant input leads to; infinite where it leads away (an integrator).
    delay : Uncertain
        The dead time; zero where there is none.
    time_unit : str
        Of the time, where it is known.
    """

    output: str
    input: str
    numerator: Array
    denominator: Array
    poles: tuple[Uncertain, ...]
    zeros: tuple[Uncertain, ...]
    time_constants: tuple[Uncertain, ...]
    gain: Uncertain
    delay: Uncertain
    time_unit: str = ""

    def at(self, frequencies: ArrayLike) -> NDArray[np.complex128]:
        """Return the frequency response, dead time included; infinite on a pole.

        Parameters
        ----------
        frequencies : array-like
            In radians per unit of time.
        """
        s = 1j * np.asarray(frequencies, dtype=float)
        below = np.polyval(self.denominator, s)
        is_pole = below == 0
        found = np.polyval(self.numerator, s) / np.where(is_pole, 1.0, below) * np.exp(-s * self.delay.value)
        return np.where(is_pole, np.inf, found)

    def to_scipy(self, *, order: int | None = None) -> Any:
        """Return a ``scipy.signal.TransferFunction``, without the dead time, or with it approximated.

        Parameters
        ----------
        order : int, optional
            Of the approximation of the dead time by Pade; needed where there is one, because SciPy knows none.
        """
        numerator, denominator = self._rational(order)
        return signal_module().TransferFunction(numerator, denominator)

    def to_control(self, *, order: int | None = None) -> Any:
        """Return a ``control.TransferFunction`` of python-control, which must be installed.

        Parameters
        ----------
        order : int, optional
            As in `to_scipy`.
        """
        numerator, denominator = self._rational(order)
        return control_module().TransferFunction(numerator, denominator)

    def _rational(self, order: int | None) -> tuple[Array, Array]:
        delay = float(np.real(self.delay.value))
        if not delay:
            return self.numerator, self.denominator
        if order is None:
            raise LodekitError(
                f"{self.input} acts on {self.output} after {delay:.4g}, and a rational function has no dead time; "
                "expected order= of its approximation by Pade, such as order=3, or zero to leave it out"
            )
        top, bottom = pade(delay, order)
        return np.convolve(self.numerator, top), np.convolve(self.denominator, bottom)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "output": self.output,
            "input": self.input,
            "numerator": self.numerator.tolist(),
            "denominator": self.denominator.tolist(),
            "poles": [each.to_dict() for each in self.poles],
            "zeros": [each.to_dict() for each in self.zeros],
            "gain": self.gain.to_dict(),
            "time_constants": [each.to_dict() for each in self.time_constants],
            "delay": self.delay.to_dict(),
        }

    def __repr__(self) -> str:
        unit = f" {self.time_unit}" if self.time_unit else ""
        late = f" exp(-{np.real(self.delay.value):.4g} s)" if self.delay.value else ""
        ratio = f"({_polynomial(self.numerator)}) / ({_polynomial(self.denominator)})"
        lines = [f"{self.output} = {ratio}{late} {self.input}", f"  static gain    {self.gain!r}"]
        lines += [f"  time constant  {each!r}{unit}" for each in self.time_constants]
        lines += [f"  dead time      {self.delay!r}{unit}"] if self.delay.value else []
        lines += [f"  pole           {each!r}" for each in self.poles]
        lines += [f"  zero           {each!r}" for each in self.zeros]
        return "\n".join(lines)


def _polynomial(coefficients: Array) -> str:
    order = len(coefficients) - 1
    parts = []
    for k, value in enumerate(coefficients):
        power = order - k
        if value or (order == 0):
            unit = "" if power == 0 else "s" if power == 1 else f"s^{power}"
            number = "" if value == 1.0 and unit else f"{value:.4g}"
            parts.append(" ".join(part for part in (number, unit) if part))
    return " + ".join(parts).replace("+ -", "- ")


def pade(delay: float, order: int) -> tuple[Array, Array]:
    """Return numerator and denominator of Pade's approximation of ``exp(-delay s)``, highest power first.

    Parameters
    ----------
    delay : float
    order : int
        Of both; zero for one over one.

    Examples
    --------
    >>> [part.tolist() for part in pade(2.0, 1)]
    [[-1.0, 1.0], [1.0, 1.0]]
    """
    if isinstance(order, bool) or not isinstance(order, int) or not 0 <= order <= 20:
        raise LodekitError(f"expected order as a whole number from 0 to 20, got {order!r}")
    powers = [
        math.comb(order, k) * math.factorial(2 * order - k) / math.factorial(2 * order) * delay**k
        for k in range(order + 1)
    ]
    bottom = np.array(powers[::-1])
    return bottom * (-1.0) ** np.arange(order, -1, -1), bottom


def signal_module() -> Any:
    """Return ``scipy.signal``, which is not loaded before somebody needs it."""
    from scipy import signal

    return signal


def control_module() -> Any:
    """Return python-control, or say that it is missing."""
    try:
        return import_module("control")
    except ImportError:
        raise LodekitError("python-control is not installed; try: pip install control, or use to_scipy()") from None
