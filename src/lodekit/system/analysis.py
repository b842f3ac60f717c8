"""A mode: an exponent of the autonomous part, with its exact multiplicity and what it means to an engineer.

The prior covariance of two observables as a formula, by applying the exact operators to base covariances.

A free function with ``k(t1 - t2)`` gives ``sum_ab (-1)^b W_a V_b k^(a+b)(t1 - t2)`` for observables with operators W
and V on it; a mode gives the same derivatives of its own covariance. This is what `lodekit.prior` computes in floats.

Facts: what the algebra proves about ``A(d) f = b(t)``, each found when it is first asked for.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Rational
from typing import TYPE_CHECKING, Any

from lodekit.algebra.modes import (
    count_states,
    elementary_divisors,
    factor_annihilators,
    find_zero_channels,
    isolate_roots,
)
from lodekit.algebra.operators import (
    OperatorMatrix,
    element_to_sympy,
    polynomial_to_sympy,
    scalar_to_sympy,
    sympy_symbols,
)
from lodekit.algebra.parametrization import Parametrization, degenerate_factors, exceptional_factors, parametrize
from lodekit.algebra.polynomials import Polynomial, format_polynomial
from lodekit.algebra.scalars import Element, Scalar, ScalarRing
from lodekit.algebra.smith import PopovDecomposition, SmithForm, smith_form
from lodekit.errors import AlgebraError, EquationError, InconsistentSystemError, ParameterError
from lodekit.support.progress import track_progress
from lodekit.system.delays import DelayedChannel
from lodekit.system.grammar import parse_expression
from lodekit.system.linear import LinearFormBuilder, format_combination, format_observable
from lodekit.system.matrices import FreeFunctionBasis
from lodekit.system.parameters import Parameter
from lodekit.system.signals import ExponentialPolynomial, find_particular_solution
from lodekit.system.state_space import StateSpace, realize_state_space

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True)
class Mode:
    """One factor of the autonomous part: its roots are exponents that no input can influence.

    polynomial: The factor; irreducible over Q(parameters), or square-free where square roots occur.
    multiplicity: How often it divides its invariant factor; exact (with parameters: generically).
    observable: The combination of channels in which the mode can be seen alone.
    column: Which mode column of the parametrization it belongs to, counted from zero.
    variable: What d is called.

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
        unit = f" {time_unit}" if time_unit else ""
        size = len(self.polynomial) - 1
        if self.depends_on_parameters:
            if size == 1:
                return f"exponential mode exp({(-self._monic()[0]).format_product('t')})"
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
    """Return the modes of a system, in the order of its mode columns."""
    ring, modes = operator.ring, []
    annihilators = [column.annihilator for column in parametrization.modes]
    for part in factor_annihilators(ring, annihilators):
        row = parametrization.reduced_mode_observable(
            part.mode_index, part.cofactor(ring, annihilators[part.mode_index])
        )
        observable = format_observable(ring, row, channels)
        modes.append(Mode(ring, part.polynomial, part.multiplicity, observable, part.mode_index, operator.variable))
    return tuple(modes)


def _format_complex(root: complex) -> str:
    if root.imag == 0:
        return f"{root.real:.4g}"
    sign = "-" if root.imag < 0 else "+"
    return f"{root.real:.4g} {sign} {abs(root.imag):.4g}i"


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
    symbols = _KernelSymbols.from_parametrization(parametrization)
    total = symbols.zero
    free = [_sympy_coefficients(row @ parametrization.free) for row in (first, second)]
    for number, name in enumerate(names):
        total += _free_function_covariance(symbols, number, _find_kernel(name), free[0][number], free[1][number])
    for number, (column, base) in enumerate(_mode_covariances(parametrization, symbols)):
        operators = [_sympy_coefficients(row @ parametrization.modes[column].column)[0] for row in (first, second)]
        total += symbols.numbered("sigma_p", number) ** 2 * _apply_operators(symbols, base, *operators)
    return total


@dataclass(frozen=True)
class _KernelSymbols:
    """The symbols of a formula: plain ones, so that ``subs`` finds them by name; none is that of a parameter."""

    reserved_names: frozenset[str]

    @classmethod
    def from_parametrization(cls, parametrization: Parametrization) -> _KernelSymbols:
        return cls(frozenset(parametrization.operator.ring.parameters))

    @property
    def zero(self) -> sympy.Expr:
        import sympy

        return sympy.S.Zero

    def plain(self, name: str) -> sympy.Symbol:
        import sympy

        while name in self.reserved_names:
            name += "_"
        return sympy.Symbol(name)

    def numbered(self, name: str, number: int) -> sympy.Symbol:
        """Return the symbol of a name with a number behind it, counted from one."""
        return self.plain(f"{name}{number + 1}")

    @property
    def times(self) -> tuple[sympy.Symbol, sympy.Symbol]:
        return self.plain("t1"), self.plain("t2")


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

    # Hermite's polynomials, by h_(m+1) = h_m' - lag/ell^2 h_m.
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


def _free_function_covariance(
    symbols: _KernelSymbols,
    number: int,
    kernel: _KernelDerivative,
    first: Sequence[sympy.Expr],
    second: Sequence[sympy.Expr],
) -> sympy.Expr:
    import sympy

    lag, ell, sigma = sympy.Dummy("lag"), symbols.numbered("ell_", number), symbols.numbered("sigma_", number)
    total, decay = sympy.S.Zero, sympy.S.Zero
    for a, left in enumerate(first):
        for b, right in enumerate(second):
            if left != 0 and right != 0:
                part, decay = kernel(lag, ell, a + b)
                total += (-1) ** b * left * right * part
    t1, t2 = symbols.times
    return (sigma**2 * decay * sympy.collect(sympy.expand(total), ell)).subs(lag, t1 - t2)


def _apply_operators(
    symbols: _KernelSymbols, base: sympy.Expr, first: Sequence[sympy.Expr], second: Sequence[sympy.Expr]
) -> sympy.Expr:
    """Return operators in both times, applied to the covariance of a mode."""
    import sympy

    t1, t2 = symbols.times
    inner = sympy.Add(*(value * base.diff(t2, order) for order, value in enumerate(second)))
    return sympy.Add(*(value * inner.diff(t1, order) for order, value in enumerate(first)))


def _mode_covariances(parametrization: Parametrization, symbols: _KernelSymbols) -> Iterable[tuple[int, sympy.Expr]]:
    """Yield for each group of modes its column and its covariance at unit deviation, in the order of the prior."""
    import sympy

    ring, variable = parametrization.operator.ring, parametrization.operator.variable
    (t1, t2), start, span = symbols.times, symbols.plain("t_0"), symbols.plain("T")
    for part in factor_annihilators(ring, [mode.annihilator for mode in parametrization.modes]):
        if any(ring.involves_parameters(value) for value in part.polynomial):
            yield part.mode_index, _companion_covariance(symbols, part.polynomial, part.multiplicity, parametrization)
            continue
        monic = polynomial_to_sympy([Scalar(ring, v, part.polynomial[-1]) for v in part.polynomial], variable)
        exact = _exact_roots(monic, sympy.Symbol(variable))
        for value in (root for root, _ in isolate_roots(ring, part.polynomial) if root.imag >= 0):
            root = min(exact, key=lambda candidate: abs(complex(candidate) - value), default=sympy.sympify(value))
            real, imaginary = root.as_real_imag()
            # Growing modes count from the end of the window.
            s1, s2 = (t - (start + span if value.real > 0 else start) for t in (t1, t2))
            powers = sympy.Add(*((s1 * s2 / span**2) ** k for k in range(part.multiplicity)))
            yield part.mode_index, powers * sympy.exp(real * (s1 + s2)) * sympy.cos(imaginary * (t1 - t2))


def _exact_roots(polynomial: sympy.Expr, variable: sympy.Symbol) -> list[sympy.Expr]:
    """Return the roots in closed form where there is a short one, else none."""
    import sympy

    return list(sympy.roots(polynomial, variable)) if sympy.degree(polynomial, variable) <= 2 else []


def _companion_covariance(
    symbols: _KernelSymbols, factor: Polynomial, multiplicity: int, parametrization: Parametrization
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


_MAX_INPUT_SETS = 100
#: Beyond so many states, the exponents of a system in which nothing is free come from its characteristic polynomial.
_MAX_DECOMPOSED_STATES = 24
_PROGRESS_MESSAGE = "analysing the equations"


class StructuralAnalysis(ABC):
    """Everything that can be proved about the solutions of ``A(d) f = b(t)``.

    What was said about a system is abstract here and stated by `System`, which overrides nothing else; `Shown` stands
    between the two. Whatever shows a system (text, LaTeX, sentences) asks for facts and knows no more of it.
    """

    @property
    @abstractmethod
    def equations(self) -> tuple[str, ...]:
        """The equations as text, one each."""

    @property
    @abstractmethod
    def channels(self) -> tuple[str, ...]:
        """The names of the functions of time."""

    @property
    def plain_channels(self) -> tuple[str, ...]:
        """The channels without delayed ones, which follow from them."""
        return tuple(name for name in self.channels if not isinstance(name, DelayedChannel))

    @property
    def delayed_channels(self) -> tuple[DelayedChannel, ...]:
        """The delayed channels, such as ``delay(u, T)``."""
        return tuple(name for name in self.channels if isinstance(name, DelayedChannel))

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters by name."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """How the input was read, where that is worth knowing."""

    @property
    @abstractmethod
    def operator(self) -> OperatorMatrix:
        """A, as an exact operator matrix."""

    @property
    @abstractmethod
    def forcing(self) -> tuple[ExponentialPolynomial, ...]:
        """b(t) of ``A(d) f = b(t)``: one known function of time for each equation."""

    @property
    @abstractmethod
    def choice(self) -> FreeFunctionBasis | None:
        """What the free functions were chosen to be; None for the minimal basis."""

    @property
    def is_homogeneous(self) -> bool:
        """Whether b(t) is zero."""
        return not any(self.forcing)

    @property
    def d(self) -> sympy.Symbol:
        """The SymPy symbol for d/dt in all matrices: d, or D where a parameter is called d."""
        import sympy

        return sympy.Symbol(self.operator.variable)

    @property
    def operator_matrix(self) -> sympy.ImmutableMatrix:
        """A, m x n, as a SymPy matrix in `d` and the parameters."""
        return self.operator.sympy

    @cached_property
    def right_hand_side(self) -> sympy.ImmutableMatrix:
        """b(t), m x 1, as a SymPy matrix in t and the parameters."""
        import sympy

        return sympy.ImmutableMatrix(len(self.forcing), 1, [signal.to_sympy() for signal in self.forcing])

    @cached_property
    def smith_form(self) -> SmithForm:
        """The Smith form U A V = D, with ``verify()``."""
        with track_progress(_PROGRESS_MESSAGE):
            return smith_form(self.operator, self._decomposition)

    @cached_property
    def _decomposition(self) -> PopovDecomposition:
        return PopovDecomposition(self.operator.ring, self.operator.rows, self.operator.width)

    @property
    def invariants(self) -> list[Polynomial]:
        """The non-zero diagonal entries of D, as exact polynomials; cheaper than the whole Smith form."""
        with track_progress(_PROGRESS_MESSAGE):
            return self._decomposition.invariants

    @cached_property
    def parametrization(self) -> Parametrization:
        """Every solution as free functions and modes, with ``verify()``."""
        with track_progress(_PROGRESS_MESSAGE):
            minimal = parametrize(self.operator, self._decomposition)
            return minimal if self.choice is None else self.choice.apply(minimal, self.channels)

    @cached_property
    def particular_solution(self) -> tuple[ExponentialPolynomial, ...]:
        """One exact solution of ``A(d) f = b(t)``, a known function of time for each channel; zero where b is."""
        return find_particular_solution(self.operator, self._decomposition, self.forcing)

    @property
    def free_functions(self) -> int:
        """How many functions of time can be chosen freely."""
        return len(self.channels) - self._decomposition.rank

    @cached_property
    def is_controllable(self) -> bool:
        """Whether every solution comes from the free functions alone: no mode is out of reach."""
        with track_progress(_PROGRESS_MESSAGE):
            return self._decomposition.is_controllable

    @cached_property
    def modes(self) -> tuple[Mode, ...]:
        """The exponents of the autonomous part with their exact multiplicities."""
        if self.is_controllable:
            return ()
        with track_progress(_PROGRESS_MESSAGE):
            return find_modes(self.operator, self.parametrization, self.channels)

    @cached_property
    def exponents(self) -> tuple[Mode, ...]:
        """The modes, for sentences: as `modes`, or without their observables where those are out of reach.

        Where nothing is free and there are many states, or large expressions, they are found without columns and
        observables; what belongs to one column of the parametrization is not known then.
        """
        if self.is_controllable:
            return ()
        if self.free_functions or self.states <= _MAX_DECOMPOSED_STATES or self.operator.ring.has_relations:
            try:
                return self.modes
            except AlgebraError:
                if self.free_functions:
                    raise
        ring, variable = self.operator.ring, self.operator.variable
        with track_progress(_PROGRESS_MESSAGE):
            found = elementary_divisors(ring, self._decomposition.equations)
        return tuple(Mode(ring, part, count, "", 0, variable) for part, count in found)

    @property
    def states(self) -> int:
        """How many initial numbers the motion is determined by, where nothing is free."""
        return count_states(self._decomposition.equations)

    @cached_property
    def forced(self) -> tuple[str, ...]:
        """The channels that the equations without b(t) force to be zero."""
        return tuple(self.channels[i] for i in find_zero_channels(self._decomposition.equations))

    @cached_property
    def degeneracies(self) -> tuple[sympy.Expr, ...]:
        """Parameter expressions at whose zeros the structure changes, as SymPy expressions.

        Each was tested by substituting a zero of it. Expressions that cannot vanish for positive parameters are left
        out. Exceptions that need two expressions to vanish at once are not listed.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.catalog.bipendulum(parametric=True).system.degeneracies
        (l1 - l2,)
        """
        ring = self.operator.ring
        symbols = sympy_symbols(ring)
        return tuple(element_to_sympy(ring, factor, symbols) for factor in self.degenerate_elements)

    @cached_property
    def degenerate_elements(self) -> tuple[Element, ...]:
        """The degeneracies as ring elements."""
        if not self.parameters:
            return ()
        return tuple(f for f in degenerate_factors(self.smith_form) if self._can_vanish(f))

    @cached_property
    def exceptional_elements(self) -> tuple[Element, ...]:
        """Parameter factors at whose zeros the parametrization must be computed anew: substitute the values first."""
        if not self.parameters:
            return ()
        return tuple(f for f in exceptional_factors(self.parametrization) if self._can_vanish(f))

    @cached_property
    def unsuitable_elements(self) -> tuple[Element, ...]:
        """Parameter factors at whose zeros the chosen basis is none; empty for the minimal basis.

        The solutions may well be the same there: another basis, or none, describes them.
        """
        if not self.parameters or self.choice is None:
            return ()
        return tuple(f for f in self.choice.singular_factors(self.parametrization) if self._can_vanish(f))

    def _can_vanish(self, factor: Element) -> bool:
        """Return False where all terms have one sign, because parameters are positive or squared."""
        ring = self.operator.ring
        terms = ring.terms(factor)
        names = ring.names[len(ring.constants) :]
        used = {n for e in terms for n, k in zip(names, e[len(ring.constants) :], strict=True) if k}
        one_sign = len({value > 0 for value in terms.values()}) == 1
        plain = not any(any(exponents[: len(ring.constants)]) for exponents in terms)
        squares = all(k % 2 == 0 for exponents in terms for k in exponents) and tuple([0] * len(ring.names)) in terms
        return not (plain and one_sign and (squares or all(self.parameters[name].excludes_zero for name in used)))

    @cached_property
    def possible_inputs(self) -> tuple[tuple[str, ...], ...]:
        """The sets of channels that can be chosen freely, at most 100 of them; empty where nothing is free.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = u + v").possible_inputs
        (('x', 'u'), ('x', 'v'), ('u', 'v'))
        """
        found = self._decomposition.input_output_partitions.input_sets(_MAX_INPUT_SETS) if self.free_functions else ()
        return tuple(tuple(self.channels[i] for i in chosen) for chosen in found)

    def can_choose(self, *channels: str) -> bool:
        """Return whether these channels can be prescribed freely, all at once.

        Parameters
        ----------
        *channels : str
            Some names.

        Examples
        --------
        >>> import lodekit as lk
        >>> system = lk.System("x' = v; v' = F - c*v", parameters=["c"])
        >>> system.can_choose("x"), system.can_choose("x", "F")
        (True, False)
        """
        for name in channels:
            if name not in self.channels:
                raise EquationError(f"unknown channel {name!r}; expected some of {', '.join(self.channels)}")
        return self.parametrization.can_choose([self.channels.index(name) for name in channels])

    def covariance(self, first: str, second: str | None = None, *, latent: str | Sequence[str] = "se") -> sympy.Expr:
        """Return the prior covariance of two observables as a formula.

        Parameters
        ----------
        first, second : str
            Linear differential expressions in the channels, at the times t1 and t2; one for both by default.
        latent : str or sequence of str
            Covariance of the free functions, one for all or one each: ``"se"``, or ``"matern-7/2"`` and the like.

        Returns
        -------
        sympy.Expr
            In the symbols t1, t2, the parameters, sigma_1, ell_1, ... (deviation and lengthscale of each free function)
            and sigma_p1, ... (deviation of each group of modes). Modes are counted from the start t_0 of the data, or
            from their end t_0 + T where they grow.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = v").covariance("x", "v")
        sigma_1**2*(t1 - t2)*exp(-(t1 - t2)**2/(2*ell_1**2))/ell_1**2
        """
        reader = LinearFormBuilder(self.operator.ring, self.channels)
        rows = []
        for text in (first, first if second is None else second):
            form = reader.form(parse_expression(text))
            rows.append(OperatorMatrix.from_scalars(self.operator.ring, [reader.operators(form)], self.operator.width))
        return symbolic_covariance(self.parametrization, rows[0], rows[1], latent)

    def state_space(
        self, inputs: Mapping[str, str] | Iterable[str], disturbances: Mapping[str, str] | Iterable[str] = ()
    ) -> StateSpace:
        """Return how the other channels respond to known inputs, as an exact state space.

        Known functions of time in the equations have no part in it; they stay with the particular solution.

        Parameters
        ----------
        inputs : sequence of str, or dict of str to str
            Channels that are known. ``"hold"`` for those that keep each sample until the next, as by default, or
            ``"linear"`` for those that run straight from sample to sample.
        disturbances : sequence of str, or dict of str to str
            Channels that are random by themselves: ``"white"``, as by default, ``"matern-1/2"`` and so on, or ``"se"``.

        Examples
        --------
        >>> import lodekit as lk
        >>> plant = lk.catalog.spring_mass_damper().system.state_space(["F"])
        >>> plant.states, plant.F
        (('x', "x' + c/m*x"), Matrix([
        [-c/m, 1],
        [-k/m, 0]]))
        """
        return realize_state_space(self.operator, self.forcing, self.channels, inputs, disturbances)

    def verify(self) -> tuple[str, ...]:
        """Return what was proved, after checking exactly, by multiplication, everything the analysis rests on.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = v").verify()[0]
        'U A V = D'
        """
        chosen = () if self.choice is None else (self.choice.verify(self.parametrization),)
        return (*self.smith_form.verify(), *self.parametrization.verify(), *chosen)

    def relations(self) -> tuple[str, ...]:
        """Return, as text, the combinations of equations that vanish: one for each redundant equation.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = v; 2*x' = 2*v").relations()
        ('2*equation 1 - equation 2',)
        """
        return tuple(format_combination(weights) for weights in self._relation_weights())

    def _relation_weights(self) -> list[list[list[Scalar]]]:
        ring, bottoms = self.operator.ring, self.operator.denominators
        return [
            [[Scalar(ring, c * a) for c in weight] for weight, a in zip(relation, bottoms, strict=True)]
            for relation in self._decomposition.relations
        ]

    def _check_consistency(self) -> None:
        """Raise where a combination of the equations forces zero to equal something else."""
        for weights in self._relation_weights():
            total = ExponentialPolynomial(self.operator.ring)
            for weight, signal in zip(weights, self.forcing, strict=True):
                total = total + signal.apply_operator(weight)
            if not total:
                continue
            combination = format_combination(weights)
            raise InconsistentSystemError(
                f"the equations contradict each other: {combination} forces 0 = {total}. "
                "Check the right-hand sides of these equations, or remove one of them"
            )
