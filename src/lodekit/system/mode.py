"""A mode: an exponent of the autonomous part, with its exact multiplicity and what it means to an engineer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Rational
from typing import TYPE_CHECKING

from lodekit.algebra.modes import enclose_roots, mode_factors
from lodekit.algebra.operators import OperatorMatrix, polynomial_to_sympy
from lodekit.algebra.parametrization import Parametrization
from lodekit.algebra.polynomials import Polynomial, format_polynomial
from lodekit.algebra.scalars import Scalar, ScalarRing
from lodekit.errors import ParameterError
from lodekit.system.writing import format_observable

if TYPE_CHECKING:
    import sympy

__all__ = ["Mode", "find_modes"]


@dataclass(frozen=True)
class Mode:
    """One factor of the autonomous part: its roots are exponents that no input can influence.

    Parameters
    ----------
    ring : ScalarRing
    polynomial : polynomial
        The factor; irreducible over Q(parameters), or square-free where square roots occur.
    multiplicity : int
        How often it divides its invariant factor; exact (with parameters: generically).
    observable : str
        The combination of channels in which the mode can be seen alone.
    column : int
        Which mode column of the parametrization it belongs to, counted from zero.
    variable : str
        What d is called.

    Examples
    --------
    >>> import lodekit as lk
    >>> mode, = lk.System("x'' + c*x' + k*x = 0", parameters=["c", "k"]).modes
    >>> mode.factor
    c*d + d**2 + k
    >>> mode.roots_at({"c": 2, "k": 5})
    ((-1-2j), (-1+2j))
    """

    ring: ScalarRing
    polynomial: Polynomial
    multiplicity: int
    observable: str
    column: int
    variable: str = "d"

    @cached_property
    def factor(self) -> sympy.Expr:
        """The monic factor as a SymPy expression."""
        return polynomial_to_sympy(self._monic(), self.variable)

    @property
    def depends_on_parameters(self) -> bool:
        """Whether parameters stand inside the roots."""
        return any(self.ring.involves_parameters(value) for value in self.polynomial)

    @cached_property
    def roots(self) -> tuple[complex, ...] | tuple[sympy.Expr, ...]:
        """The exponents, each once: floats, or expressions where parameters stand inside.

        With parameters and a degree above two there is no useful closed form; use `roots_at`.
        """
        if not self.depends_on_parameters:
            return tuple(root for root, _ in enclose_roots(self.ring, self.polynomial))
        import sympy

        if len(self.polynomial) > 3:
            raise ParameterError(
                f"the roots of {self} have no useful closed form; use roots_at({{...}}) with values for the parameters"
            )
        return tuple(sympy.roots(self.factor, sympy.Symbol(self.variable), multiple=True))

    def roots_at(self, values: Mapping[str, float]) -> tuple[complex, ...]:
        """Return the exponents at given parameter values, to full float accuracy; equal roots are repeated."""
        if not isinstance(values, Mapping):
            raise ParameterError(f"expected values as a dict of names to numbers, got {type(values).__name__}")
        exact = {}
        for name, value in values.items():
            if name not in self.ring.parameters:
                known = ", ".join(self.ring.parameters) or "none"
                raise ParameterError(f"unknown parameter {name!r}; known are {known}")
            try:
                exact[name] = Fraction(value) if isinstance(value, Rational) else Fraction(float(value))
            except (TypeError, ValueError, OverflowError):
                raise ParameterError(f"expected a finite number for {name!r}, got {value!r}") from None
        found = enclose_roots(self.ring, self.polynomial, exact)
        return tuple(root for root, count in found for _ in range(count))

    def describe(self, time_unit: str = "") -> str:
        """Return a short noun phrase: ``constant mode``, ``decaying mode (time constant 2)``.

        Parameters
        ----------
        time_unit : str
            Written behind times, where it is known.
        """
        unit = f" {time_unit}" if time_unit else ""
        size = len(self.polynomial) - 1
        if self.depends_on_parameters:
            if size == 1:
                return f"exponential mode exp({(-self._monic()[0]).times('t')})"
            return f"{'second-order mode' if size == 2 else f'mode of order {size}'} with {self} = 0"
        roots = [complex(root) for root in self.roots]
        if size > 2:
            return f"mode of order {size} with exponents {', '.join(_format_complex(root) for root in roots)}"
        if size == 2 and roots[0].imag == 0:
            return "pair of exponential modes with exponents " + " and ".join(_format_complex(root) for root in roots)
        root = roots[-1]
        if root.imag:
            speed = f"angular frequency {root.imag:.4g}, period {2 * math.pi / root.imag:.4g}{unit}"
            if root.real == 0:
                return f"undamped oscillation ({speed})"
            word, verb = ("damped", "decay") if root.real < 0 else ("growing", "growth")
            return f"{word} oscillation ({speed}, {verb} time {1 / abs(root.real):.4g}{unit})"
        if root.real == 0:
            return "constant mode"
        word = "decaying" if root.real < 0 else "growing"
        return f"{word} mode (time constant {1 / abs(root.real):.4g}{unit})"

    def _monic(self) -> list[Scalar]:
        return [Scalar(self.ring, value, self.polynomial[-1]) for value in self.polynomial]

    def __str__(self) -> str:
        return format_polynomial(self._monic(), self.variable)


def find_modes(operator: OperatorMatrix, parametrization: Parametrization, channels: Sequence[str]) -> tuple[Mode, ...]:
    """Return the modes of a system, in the order of its mode columns.

    Parameters
    ----------
    operator : OperatorMatrix
        A of ``A(d) f = b(t)``.
    parametrization : Parametrization
        All its solutions.
    channels : sequence of str
        The names that the observables of the modes are written with.
    """
    ring, modes = operator.ring, []
    annihilators = [column.annihilator for column in parametrization.modes]
    for part in mode_factors(ring, annihilators):
        row = parametrization.observable_of(part.mode, part.cofactor(ring, annihilators[part.mode]))
        observable = format_observable(ring, row, channels)
        modes.append(Mode(ring, part.polynomial, part.multiplicity, observable, part.mode, operator.variable))
    return tuple(modes)


def _format_complex(root: complex) -> str:
    if root.imag == 0:
        return f"{root.real:.4g}"
    sign = "-" if root.imag < 0 else "+"
    return f"{root.real:.4g} {sign} {abs(root.imag):.4g}i"
