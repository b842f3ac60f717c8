"""The prior covariance of two observables as a formula, by applying the exact operators to base covariances.

A free function with ``k(t1 - t2)`` gives ``sum_ab (-1)^b W_a V_b k^(a+b)(t1 - t2)`` for observables with operators W
and V on it; a mode gives the same derivatives of its own covariance. This is what `lodekit.prior` computes in floats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lodekit.algebra.modes import enclose_roots, mode_factors
from lodekit.algebra.operators import OperatorMatrix, polynomial_to_sympy, scalar_to_sympy
from lodekit.algebra.parametrization import Parametrization
from lodekit.algebra.polynomials import Polynomial
from lodekit.algebra.scalars import Scalar
from lodekit.errors import EquationError

if TYPE_CHECKING:
    import sympy

__all__ = ["covariance"]


def covariance(parametrization: Parametrization, first: OperatorMatrix, second: OperatorMatrix, latent: Any) -> Any:
    """Return the prior covariance of two observables as a SymPy expression.

    Parameters
    ----------
    parametrization : Parametrization
        Of the system.
    first, second : OperatorMatrix
        Each one row of operators on the channels.
    latent : str or sequence of str
        ``"se"`` or ``"matern-7/2"`` and the like, for all free functions or for each.
    """
    count = parametrization.free.width
    if not isinstance(latent, Sequence):
        raise EquationError(f"expected a covariance such as 'se', or a list of them, got {type(latent).__name__}")
    names = [latent] * count if isinstance(latent, str) else list(latent)
    if len(names) != count:
        raise EquationError(f"expected one covariance for each of the {count} free functions, got {len(names)}")
    symbols = _Symbols.of(parametrization)
    total = symbols.zero
    free = [_coefficients(row @ parametrization.free) for row in (first, second)]
    for number, name in enumerate(names):
        total += _free_term(symbols, number, _shape_of(name), free[0][number], free[1][number])
    for number, (column, base) in enumerate(_mode_bases(parametrization, symbols)):
        operators = [_coefficients(row @ parametrization.modes[column].column)[0] for row in (first, second)]
        total += symbols.numbered("sigma_p", number) ** 2 * _apply(symbols, base, *operators)
    return total


@dataclass(frozen=True)
class _Symbols:
    """The symbols of a formula: plain ones, so that ``subs`` finds them by name; none is that of a parameter."""

    taken: frozenset[str]

    @classmethod
    def of(cls, parametrization: Parametrization) -> _Symbols:
        return cls(frozenset(parametrization.operator.ring.parameters))

    @property
    def zero(self) -> sympy.Expr:
        import sympy

        return sympy.S.Zero

    def plain(self, name: str) -> sympy.Symbol:
        import sympy

        while name in self.taken:
            name += "_"
        return sympy.Symbol(name)

    def numbered(self, name: str, number: int) -> sympy.Symbol:
        """Return the symbol of a name with a number behind it, counted from one."""
        return self.plain(f"{name}{number + 1}")

    @property
    def times(self) -> tuple[sympy.Symbol, sympy.Symbol]:
        return self.plain("t1"), self.plain("t2")


def _coefficients(row: OperatorMatrix) -> list[list[sympy.Expr]]:
    """Return the coefficients of each entry of a row, lowest power of d first."""
    return [[scalar_to_sympy(value) for value in row.coefficients(0, j)] for j in range(row.width)]


#: A covariance of unit variance: its m-th derivative as polynomial and decay, in the symbols of lag and lengthscale.
_Shape = Callable[[Any, Any, int], tuple[Any, Any]]


def _shape_of(name: Any) -> _Shape:
    if name == "se":
        return _squared_exponential
    found = re.fullmatch(r"matern-(\d+)/2", name) if isinstance(name, str) else None
    if not found or not int(found[1]) % 2:
        raise EquationError(f"no formula for the covariance {name!r}; expected 'se', or 'matern-7/2' and the like")
    return _matern((int(found[1]) - 1) // 2)


def _squared_exponential(lag: sympy.Symbol, ell: sympy.Symbol, order: int) -> tuple[sympy.Expr, sympy.Expr]:
    import sympy

    # Hermite's polynomials, by h_(m+1) = h_m' - lag/ell^2 h_m.
    total = sympy.S.One
    for _ in range(order):
        total = sympy.expand(total.diff(lag) - lag * total / ell**2)
    return total, sympy.exp(-(lag**2) / (2 * ell**2))


def _matern(degree: int) -> _Shape:
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


def _free_term(
    symbols: _Symbols, number: int, shape: _Shape, first: Sequence[sympy.Expr], second: Sequence[sympy.Expr]
) -> sympy.Expr:
    import sympy

    lag, ell, sigma = sympy.Dummy("lag"), symbols.numbered("ell_", number), symbols.numbered("sigma_", number)
    total, decay = sympy.S.Zero, sympy.S.Zero
    for a, left in enumerate(first):
        for b, right in enumerate(second):
            if left != 0 and right != 0:
                part, decay = shape(lag, ell, a + b)
                total += (-1) ** b * left * right * part
    t1, t2 = symbols.times
    return (sigma**2 * decay * sympy.collect(sympy.expand(total), ell)).subs(lag, t1 - t2)


def _apply(
    symbols: _Symbols, base: sympy.Expr, first: Sequence[sympy.Expr], second: Sequence[sympy.Expr]
) -> sympy.Expr:
    """Return operators in both times, applied to the covariance of a mode."""
    import sympy

    t1, t2 = symbols.times
    inner = sympy.Add(*(value * base.diff(t2, order) for order, value in enumerate(second)))
    return sympy.Add(*(value * inner.diff(t1, order) for order, value in enumerate(first)))


def _mode_bases(parametrization: Parametrization, symbols: _Symbols) -> Iterable[tuple[int, sympy.Expr]]:
    """Yield for each group of modes its column and its covariance at unit deviation, in the order of the prior."""
    import sympy

    ring, variable = parametrization.operator.ring, parametrization.operator.variable
    (t1, t2), start, span = symbols.times, symbols.plain("t_0"), symbols.plain("T")
    for part in mode_factors(ring, [mode.annihilator for mode in parametrization.modes]):
        if any(ring.involves_parameters(value) for value in part.polynomial):
            yield part.mode, _companion_covariance(symbols, part.polynomial, part.multiplicity, parametrization)
            continue
        monic = polynomial_to_sympy([Scalar(ring, v, part.polynomial[-1]) for v in part.polynomial], variable)
        exact = _exact_roots(monic, sympy.Symbol(variable))
        for value in (root for root, _ in enclose_roots(ring, part.polynomial) if root.imag >= 0):
            root = min(exact, key=lambda candidate: abs(complex(candidate) - value), default=sympy.sympify(value))
            real, imaginary = root.as_real_imag()
            # Growing modes count from the end of the window.
            s1, s2 = (t - (start + span if value.real > 0 else start) for t in (t1, t2))
            powers = sympy.Add(*((s1 * s2 / span**2) ** k for k in range(part.multiplicity)))
            yield part.mode, powers * sympy.exp(real * (s1 + s2)) * sympy.cos(imaginary * (t1 - t2))


def _exact_roots(polynomial: sympy.Expr, variable: sympy.Symbol) -> list[sympy.Expr]:
    """Return the roots in closed form where there is a short one, else none."""
    import sympy

    return list(sympy.roots(polynomial, variable)) if sympy.degree(polynomial, variable) <= 2 else []


def _companion_covariance(
    symbols: _Symbols, factor: Polynomial, multiplicity: int, parametrization: Parametrization
) -> sympy.Expr:
    """Return the covariance of a mode with parameters inside its roots: p and p'/omega are independent at the start."""
    import sympy

    ring = parametrization.operator.ring
    degree = len(factor) - 1
    if degree * multiplicity > 2:
        raise EquationError(
            f"a mode of order {degree * multiplicity} with parameters inside its roots has no useful formula; give "
            "numbers for its parameters (System.substitute)"
        )
    monic = [scalar_to_sympy(Scalar(ring, value, factor[-1])) for value in factor]
    start, span = symbols.plain("t_0"), symbols.plain("T")
    lags = [t - start for t in symbols.times]
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
