"""Known functions of time: exponential polynomials, the class that is closed under sums, products and derivatives.

A signal is a sum of ``c t^k exp(r t) cos(w t)`` and ``c t^k exp(r t) sin(w t)`` with c, r, w in K. Constants are the
case k = r = w = 0. Equal signals have equal terms, so zero is recognised exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lodekit.algebra.operators import scalar_to_sympy
from lodekit.algebra.scalars import Scalar, ScalarRing, join_terms

if TYPE_CHECKING:
    import sympy

__all__ = ["Signal", "Wave"]


@dataclass(frozen=True)
class Wave:
    """``t^power exp(rate t) cos(frequency t)``, or the sine.

    Parameters
    ----------
    power : int
        Of t.
    rate, frequency : Scalar
        The frequency has a positive leading coefficient, or is zero.
    sine : bool
        Whether it is the sine.
    """

    power: int
    rate: Scalar
    frequency: Scalar
    sine: bool = False

    def sort_key(self) -> tuple[object, ...]:
        """Return a key that puts waves in the same order each time they are shown."""
        return (self.rate.key, self.frequency.key, self.sine, -self.power)

    def __str__(self) -> str:
        factors = []
        if self.power:
            factors.append("t" if self.power == 1 else f"t^{self.power}")
        if self.rate:
            factors.append(f"exp({self.rate.times('t')})")
        if self.frequency:
            factors.append(f"{'sin' if self.sine else 'cos'}({self.frequency.times('t')})")
        return "*".join(factors)


class Signal:
    """A known function of time.

    Parameters
    ----------
    ring : ScalarRing
        Of all coefficients, rates and frequencies.
    terms : dict of Wave to Scalar, optional
        Coefficients by the wave that they multiply; none for zero.

    Examples
    --------
    >>> ring = ScalarRing(("a",))
    >>> t = Signal.time(ring)
    >>> wave = Signal.wave(ring.rational(0), ring.rational(2))
    >>> print((t * wave).derivative())
    cos(2*t) - 2*t*sin(2*t)
    """

    __slots__ = ("ring", "terms")

    def __init__(self, ring: ScalarRing, terms: dict[Wave, Scalar] | None = None) -> None:
        self.ring = ring
        self.terms = {wave: value for wave, value in (terms or {}).items() if value}

    @classmethod
    def constant(cls, value: Scalar) -> Signal:
        """Return a signal that does not change."""
        zero = value.ring.rational(0)
        return cls(value.ring, {Wave(0, zero, zero): value})

    @classmethod
    def time(cls, ring: ScalarRing) -> Signal:
        """Return t itself."""
        zero = ring.rational(0)
        return cls(ring, {Wave(1, zero, zero): ring.rational(1)})

    @classmethod
    def wave(cls, rate: Scalar, frequency: Scalar, *, sine: bool = False) -> Signal:
        """Return ``exp(rate t)`` times the cosine of ``frequency t``, or its sine where `sine` is true."""
        ring = rate.ring
        sign = ring.rational(1)
        if frequency.is_negative():
            frequency = -frequency
            sign = ring.rational(-1) if sine else sign
        if not frequency and sine:
            return cls(ring)
        return cls(ring, {Wave(0, rate, frequency, sine): sign})

    def __add__(self, other: Signal) -> Signal:
        terms = dict(self.terms)
        for wave, value in other.terms.items():
            terms[wave] = terms[wave] + value if wave in terms else value
        return Signal(self.ring, terms)

    def scale(self, factor: Scalar) -> Signal:
        """Return the signal times a field element."""
        return Signal(self.ring, {wave: value * factor for wave, value in self.terms.items()})

    def __mul__(self, other: Signal) -> Signal:
        total = Signal(self.ring)
        for first, a in self.terms.items():
            for second, b in other.terms.items():
                total = total + _product(first, second).scale(a * b)
        return total

    def derivative(self, order: int = 1) -> Signal:
        """Return the derivative of the given order."""
        signal = self
        for _ in range(order):
            total = Signal(self.ring)
            for wave, value in signal.terms.items():
                total = total + _derivative(wave).scale(value)
            signal = total
        return signal

    def apply(self, coefficients: Sequence[Scalar]) -> Signal:
        """Return a differential operator, given by its coefficients, applied to the signal."""
        total, current = Signal(self.ring), self
        for power, value in enumerate(coefficients):
            current = current.derivative() if power else current
            total = total + current.scale(value)
        return total

    def as_scalar(self) -> Scalar | None:
        """Return the value of a constant signal, else None."""
        if not self.terms:
            return self.ring.rational(0)
        if len(self.terms) == 1:
            ((wave, value),) = self.terms.items()
            if not wave.power and not wave.rate and not wave.frequency:
                return value
        return None

    def as_line(self) -> tuple[Scalar, Scalar] | None:
        """Return slope and offset of a signal ``a t + c``, else None."""
        slope = offset = self.ring.rational(0)
        for wave, value in self.terms.items():
            if wave.rate or wave.frequency or wave.power > 1:
                return None
            if wave.power:
                slope = value
            else:
                offset = value
        return slope, offset

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signal) and self.terms == other.terms

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return join_terms(self.text_terms())

    def text_terms(self) -> list[tuple[Scalar, str]]:
        """Return coefficients and the waves they multiply as text, always in the same order."""
        return [(self.terms[wave], str(wave)) for wave in sorted(self.terms, key=Wave.sort_key)]

    def to_sympy(self) -> sympy.Expr:
        """Return the signal as a SymPy expression in the symbol t."""
        import sympy

        t = sympy.Symbol("t")
        total = sympy.S.Zero
        for wave, value in self.terms.items():
            angle = scalar_to_sympy(wave.frequency) * t
            shape = sympy.sin(angle) if wave.sine else sympy.cos(angle)
            total += scalar_to_sympy(value) * t**wave.power * sympy.exp(scalar_to_sympy(wave.rate) * t) * shape
        return total


def _product(first: Wave, second: Wave) -> Signal:
    """Return the product of two waves, by the formulas for products of sines and cosines."""
    ring = first.rate.ring
    rate = first.rate + second.rate
    half = ring.rational(1) / ring.rational(2)
    plus, minus = first.frequency + second.frequency, first.frequency - second.frequency
    if not first.frequency or not second.frequency:
        total = Signal.wave(rate, plus, sine=first.sine or second.sine)
    elif first.sine and second.sine:
        total = Signal.wave(rate, minus).scale(half) + Signal.wave(rate, plus).scale(-half)
    elif first.sine or second.sine:
        # sin A cos B = (sin(A + B) + sin(A - B)) / 2, with A the angle of the sine.
        apart = minus if first.sine else -minus
        total = (Signal.wave(rate, plus, sine=True) + Signal.wave(rate, apart, sine=True)).scale(half)
    else:
        total = (Signal.wave(rate, minus) + Signal.wave(rate, plus)).scale(half)
    power = first.power + second.power
    return Signal(ring, {Wave(power, w.rate, w.frequency, w.sine): v for w, v in total.terms.items()})


def _derivative(wave: Wave) -> Signal:
    ring = wave.rate.ring
    terms: dict[Wave, Scalar] = {}
    if wave.power:
        terms[Wave(wave.power - 1, wave.rate, wave.frequency, wave.sine)] = ring.rational(wave.power)
    if wave.rate:
        terms[wave] = wave.rate
    if wave.frequency:
        turned = Wave(wave.power, wave.rate, wave.frequency, not wave.sine)
        terms[turned] = wave.frequency if wave.sine else -wave.frequency
    return Signal(ring, terms)
