"""Modes of the autonomous part, and the symbolic prior covariance of two observables.

A free function with covariance ``k(t1 - t2)`` gives ``sum_ab (-1)^b W_a V_b k^(a+b)(t1 - t2)`` for observables with
operators W and V on it; a mode gives the same derivatives of its covariance. `lodekit.prior` computes this in floats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Rational
from typing import TYPE_CHECKING, Any

from lodekit.algebra.modes import factor_annihilators, isolate_roots
from lodekit.algebra.operators import OperatorMatrix, polynomial_to_sympy, scalar_to_sympy
from lodekit.algebra.parametrization import Parametrization
from lodekit.algebra.polynomials import Polynomial, divide_exactly, format_polynomial, primitive_part
from lodekit.algebra.scalars import Scalar, ScalarRing
from lodekit.errors import EquationError, ParameterError
from lodekit.support.text import format_complex
from lodekit.system.linear import format_observable

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True)
class Mode:
    """One factor of the autonomous part: its roots are exponents that no input can influence.

    polynomial: The factor; irreducible over Q(parameters), or square-free if square roots occur.
    multiplicity: The exponent of the factor in its invariant factor; exact (with parameters: generically).
    observable: A combination of channels that contains only this mode.
    column: The index of its mode column in the parametrization.
    variable: Name of the operator d.

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
        """Whether the roots depend on parameters."""
        return any(self.ring.involves_parameters(value) for value in self.polynomial)

    @cached_property
    def roots(self) -> tuple[complex, ...] | tuple[sympy.Expr, ...]:
        """The exponents, each once: floats, or expressions if they depend on parameters.

        With parameters and a degree above two there is no useful closed form; use `roots_at`.
        """
        if not self.depends_on_parameters:
            return tuple(root for root, _ in isolate_roots(self.ring, self.polynomial))
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
        found = isolate_roots(self.ring, self.polynomial, exact)
        return tuple(root for root, count in found for _ in range(count))

    def describe(self, time_unit: str = "") -> str:
        """Return a short noun phrase: ``constant mode``, ``decaying mode (time constant 2)``."""
        unit, size = f" {time_unit}" if time_unit else "", len(self.polynomial) - 1
        if self.depends_on_parameters:
            if size == 1:
                return f"exponential mode exp({(-self._monic()[0]).format_product('t')})"
            kind = "second-order mode" if size == 2 else f"mode of order {size}"
            return f"{kind} with characteristic equation {self} = 0"
        roots = [complex(root) for root in self.roots]
        if size > 2:
            per = f" 1/{time_unit}" if time_unit else ""
            return f"mode of order {size} with exponents {', '.join(format_complex(root) for root in roots)}{per}"
        if size == 2 and roots[0].imag == 0:
            return "two exponential modes with exponents " + " and ".join(format_complex(root) for root in roots)
        root = roots[-1]
        time = f"{1 / abs(root.real):.4g}{unit}" if root.real else ""
        if root.imag:
            speed = f"angular frequency {root.imag:.4g}, period {2 * math.pi / root.imag:.4g}{unit}"
            if not time:
                return f"undamped oscillation ({speed})"
            word, verb = ("damped", "decay") if root.real < 0 else ("growing", "growth")
            return f"{word} oscillation ({speed}, {verb} time {time})"
        word = "decaying" if root.real < 0 else "growing"
        return f"{word} mode (time constant {time})" if time else "constant mode"

    def _monic(self) -> list[Scalar]:
        return [Scalar(self.ring, value, self.polynomial[-1]) for value in self.polynomial]

    def __str__(self) -> str:
        return format_polynomial(self._monic(), self.variable)


def find_modes(operator: OperatorMatrix, parametrization: Parametrization, channels: Sequence[str]) -> tuple[Mode, ...]:
    """Return the modes of a system, in the order of its mode columns."""
    ring, modes = operator.ring, []
    annihilators = [column.annihilator for column in parametrization.modes]
    for polynomial, multiplicity, column in factor_annihilators(ring, annihilators):
        cofactor = annihilators[column]
        for _ in range(multiplicity):
            cofactor = primitive_part(ring, divide_exactly(ring, cofactor, polynomial)[1])
        row = parametrization.reduced_mode_observable(column, cofactor)
        observable = format_observable([[Scalar(ring, value) for value in entry] for entry in row], channels)
        modes.append(Mode(ring, polynomial, multiplicity, observable, column, operator.variable))
    return tuple(modes)


def symbolic_covariance(
    parametrization: Parametrization, first: OperatorMatrix, second: OperatorMatrix, latent: Any
) -> Any:
    """Return the prior covariance of two observables as a SymPy expression."""
    count = parametrization.free.width
    if not isinstance(latent, Sequence):
        raise EquationError(f"expected a covariance such as 'se', or a list of them, got {type(latent).__name__}")
    names = [latent] * count if isinstance(latent, str) else list(latent)
    if len(names) != count:
        raise EquationError(f"expected one covariance for each of the {count} free functions, got {len(names)}")
    import sympy

    def symbol(name: str) -> sympy.Symbol:
        """Return a plain symbol, which ``subs`` finds by name; its name differs from those of parameters."""
        while name in parametrization.operator.ring.parameters:
            name += "_"
        return sympy.Symbol(name)

    total = sympy.S.Zero
    free = [_sympy_coefficients(row @ parametrization.free) for row in (first, second)]
    for number, name in enumerate(names):
        lag, ell, sigma = sympy.Dummy("lag"), symbol(f"ell_{number + 1}"), symbol(f"sigma_{number + 1}")
        kernel, part, decay = _find_kernel(name), sympy.S.Zero, sympy.S.Zero
        for a, left in enumerate(free[0][number]):
            for b, right in enumerate(free[1][number]):
                if left != 0 and right != 0:
                    derivative, decay = kernel(lag, ell, a + b)
                    part += (-1) ** b * left * right * derivative
        collected = sigma**2 * decay * sympy.collect(sympy.expand(part), ell)
        total += collected.subs(lag, symbol("t1") - symbol("t2"))
    for number, (column, base) in enumerate(_mode_covariances(parametrization, symbol), 1):
        left, right = (_sympy_coefficients(row @ parametrization.modes[column].column)[0] for row in (first, second))
        inner = sympy.Add(*(value * base.diff(symbol("t2"), order) for order, value in enumerate(right)))
        outer = sympy.Add(*(value * inner.diff(symbol("t1"), order) for order, value in enumerate(left)))
        total += symbol(f"sigma_p{number}") ** 2 * outer
    return total


_SymbolFactory = Callable[[str], Any]


def _sympy_coefficients(row: OperatorMatrix) -> list[list[sympy.Expr]]:
    """Return the coefficients of each entry of a row, lowest power of d first."""
    return [[scalar_to_sympy(value) for value in row.coefficients(0, j)] for j in range(row.width)]


#: A covariance of unit variance: its m-th derivative as polynomial and decay, in the symbols of lag and lengthscale.
_KernelDerivative = Callable[[Any, Any, int], tuple[Any, Any]]


def _find_kernel(name: Any) -> _KernelDerivative:
    if name == "se":
        return _squared_exponential_derivative
    found = re.fullmatch(r"matern-(\d+)/2", name) if isinstance(name, str) else None
    if not found or not int(found[1]) % 2:
        raise EquationError(f"no formula for the covariance {name!r}; expected 'se', or 'matern-7/2' and the like")
    return _matern_derivative((int(found[1]) - 1) // 2)


def _squared_exponential_derivative(lag: sympy.Symbol, ell: sympy.Symbol, order: int) -> tuple[sympy.Expr, sympy.Expr]:
    import sympy

    # Hermite polynomials by the recurrence h_(m+1) = h_m' - lag/ell^2 h_m.
    total = sympy.S.One
    for _ in range(order):
        total = sympy.expand(total.diff(lag) - lag * total / ell**2)
    return total, sympy.exp(-(lag**2) / (2 * ell**2))


def _matern_derivative(degree: int) -> _KernelDerivative:
    """Return the covariance of smoothness degree + 1/2: a polynomial in |lag| times an exponential."""

    def derivative(lag: sympy.Symbol, ell: sympy.Symbol, order: int) -> tuple[sympy.Expr, sympy.Expr]:
        import sympy

        if order > 2 * degree:
            raise EquationError(
                f"the observables need {order} derivatives of the covariance, and matern-{2 * degree + 1}/2 has "
                f"{2 * degree}; use a smoother one"
            )
        rate, r = sympy.sqrt(2 * degree + 1) / ell, sympy.Dummy("r")
        weights = [
            sympy.Rational(math.factorial(degree) * math.factorial(degree + i), math.factorial(2 * degree))
            / (math.factorial(i) * math.factorial(degree - i))
            for i in range(degree + 1)
        ]
        total = sympy.Add(*(w * (2 * rate * r) ** (degree - i) for i, w in enumerate(weights)))
        for _ in range(order):
            total = sympy.expand(total.diff(r) - rate * total)
        sign = sympy.sign(lag) if order % 2 else sympy.S.One
        return sign * total.subs(r, sympy.Abs(lag)), sympy.exp(-rate * sympy.Abs(lag))

    return derivative


def _mode_covariances(parametrization: Parametrization, symbol: _SymbolFactory) -> Iterable[tuple[int, sympy.Expr]]:
    """Yield the column and the covariance with unit amplitude of each group of modes, in the order of the prior."""
    import sympy

    ring, variable = parametrization.operator.ring, parametrization.operator.variable
    t1, t2, start, span = map(symbol, ("t1", "t2", "t_0", "T"))
    for polynomial, multiplicity, column in factor_annihilators(ring, [m.annihilator for m in parametrization.modes]):
        if any(ring.involves_parameters(value) for value in polynomial):
            yield column, _companion_covariance(symbol, ring, polynomial, multiplicity)
            continue
        monic = polynomial_to_sympy([Scalar(ring, v, polynomial[-1]) for v in polynomial], variable)
        # Closed forms of higher degree are too long to be useful.
        exact = list(sympy.roots(monic, sympy.Symbol(variable))) if len(polynomial) <= 3 else []
        for value in (root for root, _ in isolate_roots(ring, polynomial) if root.imag >= 0):
            root = min(exact, key=lambda candidate: abs(complex(candidate) - value), default=sympy.sympify(value))
            real, imaginary = root.as_real_imag()
            # For growing modes, time is measured from the end of the window.
            s1, s2 = (t - (start + span if value.real > 0 else start) for t in (t1, t2))
            powers = sympy.Add(*((s1 * s2 / span**2) ** k for k in range(multiplicity)))
            yield column, powers * sympy.exp(real * (s1 + s2)) * sympy.cos(imaginary * (t1 - t2))


def _companion_covariance(
    symbol: _SymbolFactory, ring: ScalarRing, factor: Polynomial, multiplicity: int
) -> sympy.Expr:
    """Return the covariance of a mode whose roots depend on parameters: p and p'/omega are independent at the start."""
    import sympy

    degree = len(factor) - 1
    if degree * multiplicity > 2:
        raise EquationError(
            f"a mode of order {degree * multiplicity} with parameters inside its roots has no useful formula; give "
            "numbers for its parameters (System.substitute)"
        )
    monic = [scalar_to_sympy(Scalar(ring, value, factor[-1])) for value in factor]
    span, lags = symbol("T"), [symbol(t) - symbol("t_0") for t in ("t1", "t2")]
    if degree * multiplicity == 1:
        return sympy.exp(-monic[0] * (lags[0] + lags[1]))
    omega = sympy.root(1 + (monic[0] * span**degree) ** 2, 2 * degree) / span
    if multiplicity == 2:
        functions = [(sympy.exp(-monic[0] * s) * (1 + monic[0] * s), sympy.exp(-monic[0] * s) * s) for s in lags]
    else:
        half = monic[1] / 2
        q = sympy.sqrt(half**2 - monic[0])
        waves = [(sympy.exp(-half * s), sympy.cosh(q * s), sympy.sinh(q * s) / q) for s in lags]
        functions = [(decay * (even + half * odd), decay * odd) for decay, even, odd in waves]
    return functions[0][0] * functions[1][0] + omega**2 * functions[0][1] * functions[1][1]
