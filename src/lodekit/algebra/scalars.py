"""Coefficient rings: integers with named constants and parameters, their fraction field, and prime fields.

All computations run over ``R = Z[constants, parameters]``, without fractions, on FLINT's integers and
sparse polynomials; `Scalar` is an element of the field ``K = Q(constants, parameters)``. Square roots of primes and
sines are reduced by ``s^2 = p`` and ``sin^2 = 1 - cos^2``, so that zero is recognised.

Zero is recognised only if the constants are algebraically independent. Square roots of distinct primes are. Two
exponentials (or angles) of rational numbers are always related; a pair with a simple ratio, such as exp(1) and
exp(1/2), is rejected. Multiples of pi are accepted if their cosine consists of square roots.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import lcm
from typing import Any

from flint import Ordering, arb, fmpq, fmpq_mpoly_ctx, fmpz, fmpz_mpoly, fmpz_mpoly_ctx, nmod

from lodekit.errors import AlgebraError, EquationError

#: An element of a coefficient ring: ``fmpz``, ``fmpz_mpoly`` or ``nmod``; FLINT ships no type hints.
Element = Any


class FiniteField:
    """The integers modulo a prime below 2^63, over which structure is tested at single points."""

    has_relations = False

    def __init__(self, prime: int) -> None:
        self.prime, self.zero, self.one = prime, nmod(0, prime), nmod(1, prime)

    def integer(self, value: int) -> Element:
        """Return an integer as an element of the field."""
        return nmod(value % self.prime, self.prime)

    def reduce(self, element: Element) -> Element:
        """Return the element: there are no relations."""
        return element

    def common_factor(self, first: Element, second: Element) -> Element:
        """Return `first`, whatever `second` is: in a field, an elimination subtracts quotients without scaling."""
        return first

    def content(self, elements: Iterable[Element]) -> Element:
        """Return one: in a field every element divides every other."""
        return self.one if any(elements) else self.zero

    def count_terms(self, elements: Iterable[Element]) -> int:
        """Return zero: there are no symbols."""
        return 0

    def divide(self, element: Element, divisor: Element) -> Element:
        """Return ``element / divisor``."""
        return element / divisor

    def canonical_multiplier(self, element: Element) -> Element:
        """Return the inverse."""
        return self.one / element


def format_rational(value: Fraction) -> str:
    """Return a short decimal if there is an exact one, else a fraction.

    Examples
    --------
    >>> format_rational(Fraction(981, 100)), format_rational(Fraction(2, 3)), format_rational(Fraction(1, 2**40))
    ('9.81', '2/3', '1/1099511627776')
    """
    rest, digits = value.denominator, 0
    # Each step adds one decimal place, the smallest possible number of them.
    while rest % 5 == 0 or rest % 2 == 0:
        rest //= 10 if rest % 10 == 0 else 5 if rest % 5 == 0 else 2
        digits += 1
    if rest != 1 or digits == 0 or digits > 12:
        # FLINT writes integers of any length; Python refuses long ones.
        top, bottom = str(fmpz(value.numerator)), str(fmpz(value.denominator))
        return top if bottom == "1" else f"{top}/{bottom}"
    text = str(fmpz(abs(value.numerator) * 10**digits // value.denominator)).zfill(digits + 1)
    return ("-" if value < 0 else "") + f"{text[:-digits]}.{text[-digits:]}"


@dataclass(frozen=True, order=True)
class NamedConstant:
    """An irrational number known by name: ``pi``, ``sqrt(2)``, ``exp(1)``, ``cos(0.3)``, ``sin(pi/5)``.

    argument: The rational argument (a prime for ``sqrt``); ignored for ``pi``.
    is_multiple_of_pi: Whether the argument is a multiple of pi.
    """

    kind: str
    argument: Fraction = Fraction(1)
    is_multiple_of_pi: bool = False

    @property
    def name(self) -> str:
        """The constant in the user's notation.

        Examples
        --------
        >>> NamedConstant("sqrt", Fraction(2)).name, NamedConstant("cos", Fraction(1, 5), is_multiple_of_pi=True).name
        ('sqrt(2)', 'cos(pi/5)')
        """
        if self.kind == "pi":
            return "pi"
        if not self.is_multiple_of_pi:
            return f"{self.kind}({self.argument})"
        top, bottom = self.argument.numerator, self.argument.denominator
        return f"{self.kind}({'' if top == 1 else f'{top}*'}pi{'' if bottom == 1 else f'/{bottom}'})"

    @property
    def cosine(self) -> NamedConstant:
        """The cosine of the same angle, which replaces the square of a sine."""
        return replace(self, kind="cos")

    def enclose(self) -> Any:
        """Return a ball (``arb``) that contains the value, at the current precision of FLINT."""
        if self.kind == "pi":
            return arb.pi()
        argument = arb(fmpq(self.argument.numerator, self.argument.denominator))
        if self.is_multiple_of_pi:
            argument *= arb.pi()
        return getattr(argument, self.kind)()


#: Largest number of terms of a multivariate polynomial that is factored.
MAX_FACTOR_TERMS = 4_000
#: Largest number of terms of a product before like terms are collected; a larger one aborts the computation. It takes
#: about a second, and is a hundred times as many as hand-written systems need.
MAX_PRODUCT_TERMS = 1_000_000


def _unpickle_element(names: list[str], terms: dict[tuple[int, ...], int]) -> Element:
    return fmpz_mpoly_ctx.get(names, Ordering.lex).from_dict(terms)


# FLINT does not pickle multivariate polynomials; modes and linear forms contain them.
copyreg.pickle(
    fmpz_mpoly,
    lambda element: (
        _unpickle_element,
        (list(element.context().names()), {tuple(map(int, e)): int(v) for e, v in element.to_dict().items()}),
    ),
)


@dataclass(frozen=True)
class ScalarRing:
    """``Z[constants, parameters]`` modulo the relations for squares of its square roots and sines.

    parameters: Names of the parameters; any text.
    constants: Named constants; a sine must follow its cosine.

    Examples
    --------
    >>> two = NamedConstant("sqrt", Fraction(2))
    >>> ring = ScalarRing(("a",), (two,))
    >>> root, a = ring.constant(two), ring.parameter("a")
    >>> print((root + a) * (root - a))
    -a^2 + 2
    """

    parameters: tuple[str, ...] = ()
    constants: tuple[NamedConstant, ...] = ()
    _context: Any = field(init=False, repr=False, compare=False)
    _squares: dict[int, Element] = field(init=False, repr=False, compare=False)
    zero: Element = field(init=False, repr=False, compare=False)
    one: Element = field(init=False, repr=False, compare=False)
    has_relations: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        count = len(self.constants) + len(self.parameters)
        # Neutral names inside FLINT, since users may choose any names.
        context: Any = fmpz_mpoly_ctx.get([f"s{i}" for i in range(count)], Ordering.lex) if count else None
        one = context.constant(1) if context else fmpz(1)
        squares: dict[int, Element] = {}
        for i, constant in enumerate(self.constants):
            if constant.kind == "sqrt":
                squares[i] = one * int(constant.argument)
            elif constant.kind == "sin":
                squares[i] = one - context.gen(self.constants.index(constant.cosine)) ** 2
        for name, value in {
            "_context": context,
            "_squares": squares,
            "zero": one * 0,
            "one": one,
            "has_relations": bool(squares),
        }.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return ScalarRing, (self.parameters, self.constants)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all symbols: constants first, then parameters."""
        return tuple(constant.name for constant in self.constants) + self.parameters

    def parameter(self, name: str) -> Scalar:
        """Return a parameter as a field element."""
        return Scalar(self, self._context.gen(len(self.constants) + self.parameters.index(name)))

    def constant(self, constant: NamedConstant) -> Scalar:
        """Return a named constant of the ring as a field element."""
        return Scalar(self, self._context.gen(self.constants.index(constant)))

    def integer(self, value: int) -> Element:
        """Return an integer as an element of the ring."""
        return self.one * value

    def rational(self, value: Fraction | int) -> Scalar:
        """Return an exact rational number as a field element."""
        exact = Fraction(value)
        return Scalar(self, self.one * exact.numerator, self.one * exact.denominator)

    def terms(self, element: Element) -> dict[tuple[int, ...], int]:
        """Return exponent vectors over `names` and their integer coefficients; lexicographically largest first."""
        if self._context is None:
            return {(): int(element)} if element else {}
        pairs = sorted(element.to_dict().items(), reverse=True)
        return {tuple(int(e) for e in exponents): int(value) for exponents, value in pairs}

    def from_terms(self, terms: Mapping[tuple[int, ...], int]) -> Element:
        """Return the ring element with these terms; the inverse of `terms`."""
        if self._context is None:
            return fmpz(sum(terms.values()))
        return self._context.from_dict(dict(terms))

    def reduce(self, element: Element) -> Element:
        """Return the element with the squares of square roots and sines replaced by equal expressions."""
        for index, square in self._squares.items():
            if element.degrees()[index] < 2:
                continue
            low: dict[int, dict[tuple[int, ...], int]] = {}
            for exponents, value in element.to_dict().items():
                half, rest = divmod(int(exponents[index]), 2)
                low.setdefault(half, {})[(*exponents[:index], rest, *exponents[index + 1 :])] = value
            element = self.zero
            for half, part in low.items():
                element = element + self._context.from_dict(part) * square**half
        return element

    def common_factor(self, first: Element, second: Element) -> Element:
        """Return a greatest common divisor of `first` and `second`, as polynomials in the symbols."""
        return first.gcd(second)

    def content(self, elements: Iterable[Element]) -> Element:
        """Return the greatest common divisor of all elements; zero for none."""
        divisor = self.zero
        for element in elements:
            if element:
                divisor = divisor.gcd(element)
                if divisor == 1:
                    break
        return divisor

    def count_terms(self, elements: Iterable[Element]) -> int:
        """Return the total number of terms of the elements; zero without symbols."""
        return 0 if self._context is None else sum(len(element) for element in elements)

    def common_multiple(self, elements: Iterable[Element]) -> Element:
        """Return the least common multiple; one for none."""
        total = self.one
        for element in elements:
            total = self.divide(total * element, total.gcd(element))
        return total

    def divide(self, element: Element, divisor: Element) -> Element:
        """Return the quotient of `element` by `divisor`, which divides it exactly."""
        return element // divisor

    def canonical_multiplier(self, element: Element) -> Element:
        """Return a nonzero multiplier that makes the element free of square roots and sines, and positive in sign."""
        conjugates = []
        # Rationalizing is less frequent than multiplication, so its products may be ten times as large.
        for index in self._squares:
            if not element.degrees()[index]:
                continue
            if len(element) ** 2 > 10 * MAX_PRODUCT_TERMS:
                raise expression_swell_error()
            conjugate = self.from_terms({e: -v if e[index] else v for e, v in self.terms(element).items()})
            conjugates.append(conjugate)
            element = self.reduce(element * conjugate)
        multiplier = self.one
        # The last conjugates contain the fewest roots, so products stay small for as long as possible.
        for conjugate in reversed(conjugates):
            if len(multiplier) * len(conjugate) > 10 * MAX_PRODUCT_TERMS:
                raise expression_swell_error()
            multiplier = self.reduce(multiplier * conjugate)
        leading = element if self._context is None else element.leading_coefficient()
        return multiplier if leading > 0 else -multiplier

    def parameter_factors(self, element: Element) -> list[Element]:
        """Return the distinct irreducible factors in which parameters occur, each with a positive leading term."""
        if not self.involves_parameters(element):
            return []
        factors = [factor for factor, _ in factor_multivariate(element) if self.involves_parameters(factor)]
        return [factor if factor.leading_coefficient() > 0 else -factor for factor in factors]

    def involves_parameters(self, element: Element) -> bool:
        """Return whether any parameter occurs in the element."""
        return self._context is not None and bool(element) and any(element.degrees()[len(self.constants) :])

    def involves_roots(self, element: Element) -> bool:
        """Return whether a square root or a sine occurs in the element."""
        return bool(element) and any(element.degrees()[index] for index in self._squares)

    def enclose(self, element: Element) -> Any:
        """Return a ball that contains an element without parameters, at the current precision of FLINT."""
        points = [constant.enclose() for constant in self.constants]
        terms = self.terms(element).items()
        return sum((multiply_powers(arb(fmpz(value)), points, exponents) for exponents, value in terms), arb(0))

    def format(self, element: Element, denominator: int = 1) -> str:
        """Return `element` over an integer `denominator` in the user's notation: ``-a^2 + 2*sqrt(2)*b``, ``9.81*a``."""
        text = ""
        for exponents, value in self.terms(element).items():
            pairs = zip(self.names, exponents, strict=True)
            factors = [name if power == 1 else f"{name}^{power}" for name, power in pairs if power]
            size = Fraction(abs(value), denominator)
            if size != 1 or not factors:
                factors.insert(0, format_rational(size))
            sign = ("-" if value < 0 else "") if not text else (" - " if value < 0 else " + ")
            text += sign + "*".join(factors)
        return text or "0"

    def map_to_finite_field(self, element: Element, target: FiniteField, points: Sequence[Element]) -> Element:
        """Return `element` in a finite field `target`, at `points` with one coordinate for each of `names`."""
        terms = self.terms(element).items()
        return sum(
            (multiply_powers(target.integer(value), points, exponents) for exponents, value in terms), target.zero
        )


#: Rings over which eliminations run.
CoefficientRing = ScalarRing | FiniteField


def multiply_powers(factor: Any, points: Iterable[Any], exponents: Iterable[int]) -> Any:
    """Return a `factor` times all `points` to the power of their `exponents`; surplus exponents are ignored."""
    for point, exponent in zip(points, exponents, strict=False):
        if exponent:
            factor = factor * point**exponent
    return factor


def expression_swell_error() -> AlgebraError:
    """Return the error of computations that are aborted because of the parameters in them."""
    return AlgebraError(
        "the symbolic expressions grow too large; give numbers for some of the parameters (System.substitute)"
    )


def factor_multivariate(element: Element) -> list[tuple[Element, int]]:
    """Return the primitive irreducible factors of a polynomial in several symbols, with multiplicities.

    Raise if it has so many terms that this could take minutes.
    """
    if len(element) > MAX_FACTOR_TERMS:
        raise AlgebraError("the symbolic expressions grow too large to be factored; give numbers for some parameters")
    context = element.context()
    # python-flint raises OverflowError if it sorts factors over the integers whose coefficients exceed 32 bits.
    rational = fmpq_mpoly_ctx.get(context.names(), context.ordering()).from_dict(element.to_dict())
    found = []
    for factor, count in rational.factor()[1]:
        terms, bottom = factor.to_dict(), lcm(*(int(value.q) for value in factor.coeffs()))
        whole = context.from_dict({exponents: int((value * bottom).p) for exponents, value in terms.items()})
        found.append((whole.primitive()[1], int(count)))
    return found


def format_sum(terms: Iterable[tuple[Scalar, str]]) -> str:
    """Return a sum of products of coefficients and names: ``-2*x1 + (a + b)*x2'``.

    Examples
    --------
    >>> ring = ScalarRing(("a", "b"))
    >>> format_sum([(ring.rational(-2), "x"), (ring.parameter("a") + ring.parameter("b"), "y"), (ring.rational(1), "")])
    '-2*x + (a + b)*y + 1'
    """
    text = ""
    for coefficient, base in terms:
        term = coefficient.format_product(base)
        text += term if not text else f" - {term[1:]}" if term.startswith("-") else f" + {term}"
    return text or "0"


class Scalar:
    """An element of the field K, as a fraction in lowest terms with a positive, root-free denominator.

    ring: The ring of numerators and denominators.
    numerator, denominator: Any elements of the ring; a denominator of None is one.

    Examples
    --------
    >>> ring = ScalarRing(("a", "b"))
    >>> a, b = ring.parameter("a"), ring.parameter("b")
    >>> print((a * a - b * b) / (a + b) / b)
    (a - b)/b
    """

    __slots__ = ("denominator", "numerator", "ring")

    def __init__(self, ring: ScalarRing, numerator: Element, denominator: Element | None = None) -> None:
        bottom = ring.one if denominator is None else denominator
        if not bottom:
            raise AlgebraError("division by zero; expected a non-zero denominator")
        top = numerator
        if ring.has_relations:
            top, bottom = ring.reduce(top), ring.reduce(bottom)
        multiplier = ring.canonical_multiplier(bottom)
        if multiplier != 1:
            top, bottom = top * multiplier, bottom * multiplier
            if ring.has_relations:
                top, bottom = ring.reduce(top), ring.reduce(bottom)
        divisor = top.gcd(bottom)
        if divisor != 1:
            top, bottom = ring.divide(top, divisor), ring.divide(bottom, divisor)
        self.ring, self.numerator, self.denominator = ring, top, bottom

    def __add__(self, other: Scalar) -> Scalar:
        if self.denominator == other.denominator:
            return Scalar(self.ring, self.numerator + other.numerator, self.denominator)
        top = self.numerator * other.denominator + other.numerator * self.denominator
        return Scalar(self.ring, top, self.denominator * other.denominator)

    def __sub__(self, other: Scalar) -> Scalar:
        return self + (-other)

    def __neg__(self) -> Scalar:
        return Scalar(self.ring, -self.numerator, self.denominator)

    def __mul__(self, other: Scalar) -> Scalar:
        return Scalar(self.ring, self.numerator * other.numerator, self.denominator * other.denominator)

    def __truediv__(self, other: Scalar) -> Scalar:
        return Scalar(self.ring, self.numerator * other.denominator, self.denominator * other.numerator)

    def __pow__(self, exponent: int) -> Scalar:
        if exponent < 0:
            return Scalar(self.ring, self.denominator**-exponent, self.numerator**-exponent)
        return Scalar(self.ring, self.numerator**exponent, self.denominator**exponent)

    def __bool__(self) -> bool:
        return bool(self.numerator)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scalar):
            return NotImplemented
        return bool(self.numerator == other.numerator and self.denominator == other.denominator)

    def __hash__(self) -> int:
        return hash(self.sort_key)

    @property
    def sort_key(self) -> tuple[tuple[tuple[tuple[int, ...], int], ...], ...]:
        """The value as a tuple that can be hashed and sorted."""
        return tuple(tuple(self.ring.terms(part).items()) for part in (self.numerator, self.denominator))

    def is_negative(self) -> bool:
        """Return whether the leading term has a minus sign; this holds for one of a nonzero value and its negative."""
        return next(iter(self.ring.terms(self.numerator).values()), 0) < 0

    def involves_parameters(self) -> bool:
        """Return whether any parameter occurs in the value."""
        return any(self.ring.involves_parameters(part) for part in (self.numerator, self.denominator))

    def as_fraction(self) -> Fraction | None:
        """Return the value if it is a rational number, else None."""
        parts = [self.ring.terms(part) for part in (self.numerator, self.denominator)]
        if any(any(exponents) for part in parts for exponents in part):
            return None
        return Fraction(sum(parts[0].values()), sum(parts[1].values()))

    def __str__(self) -> str:
        if self._has_integer_denominator():
            return self.ring.format(self.numerator, sum(self.ring.terms(self.denominator).values()))
        top, bottom = self.ring.format(self.numerator), self.ring.format(self.denominator)
        if len(self.ring.terms(self.numerator)) > 1:
            top = f"({top})"
        if "*" in bottom or " " in bottom:
            bottom = f"({bottom})"
        return f"{top}/{bottom}"

    def _has_integer_denominator(self) -> bool:
        return not any(any(exponents) for exponents in self.ring.terms(self.denominator))

    def format_product(self, base: str) -> str:
        """Return the product of the value and a name as text: ``-x``, ``2*x``, ``(a + b)*x``, ``(a + b)/c*x``."""
        text = str(self)
        if not base:
            return text
        if self._has_integer_denominator() and len(self.ring.terms(self.numerator)) > 1:
            text = f"({text})"
        return {"1": base, "-1": f"-{base}"}.get(text, f"{text}*{base}")

    def __repr__(self) -> str:
        return f"Scalar({self})"


#: cos(pi r) for values r with square roots only: r -> [(rational factor, radicand), ...].
_COSINES_IN_RADICALS = {
    Fraction(0): [(Fraction(1), 1)],
    Fraction(1, 12): [(Fraction(1, 4), 6), (Fraction(1, 4), 2)],
    Fraction(1, 6): [(Fraction(1, 2), 3)],
    Fraction(1, 5): [(Fraction(1, 4), 1), (Fraction(1, 4), 5)],
    Fraction(1, 4): [(Fraction(1, 2), 2)],
    Fraction(1, 3): [(Fraction(1, 2), 1)],
    Fraction(2, 5): [(Fraction(-1, 4), 1), (Fraction(1, 4), 5)],
    Fraction(5, 12): [(Fraction(1, 4), 6), (Fraction(-1, 4), 2)],
    Fraction(1, 2): [(Fraction(0), 1)],
}


class MissingConstantError(Exception):
    """The ring lacks constants of a value; the caller extends the ring and starts again."""

    def __init__(self, *constants: NamedConstant) -> None:
        super().__init__(*constants)
        self.constants = constants


def evaluate_constant_function(ring: ScalarRing, function: str, argument: Scalar) -> Scalar | None:
    """Return a `function` at a number, the `argument`, in `ring`; None if its value has no name.

    Numbers are rational, or rational multiples of pi (not for ``sqrt``).
    """
    rational = argument.as_fraction()
    if function == "sqrt":
        return None if rational is None else _evaluate_square_root(ring, rational)
    times_pi, pi = rational is None, NamedConstant("pi")
    if times_pi and pi in ring.constants:
        rational = (argument / _constant_symbol(ring, pi)).as_fraction()
    if rational is None:
        return None
    if function == "exp":
        return _evaluate_exponential(ring, rational, times_pi)
    if times_pi or rational == 0:
        return _evaluate_cosine_of_pi(ring, rational if function == "cos" else Fraction(1, 2) - rational)
    value = _constant_symbol(ring, NamedConstant(function, abs(rational)))
    return -value if function == "sin" and rational < 0 else value


def _constant_symbol(ring: ScalarRing, constant: NamedConstant) -> Scalar:
    if constant in ring.constants:
        return ring.constant(constant)
    family = {"cos": ("cos", "sin"), "sin": ("cos", "sin"), "exp": ("exp",)}.get(constant.kind, ())
    for other in ring.constants:
        if other.kind in family and other.is_multiple_of_pi == constant.is_multiple_of_pi:
            ratio = constant.argument / other.argument
            if ratio != 1 and max(ratio.numerator, ratio.denominator) <= 64:
                raise EquationError(
                    f"{other.name} and {constant.name} are related in a way that exact arithmetic would miss; expected "
                    "one of them. Write the other as a power or a polynomial of it, or as a decimal number"
                )
    raise MissingConstantError(*([constant.cosine] if constant.kind == "sin" else []), constant)


def _evaluate_square_root(ring: ScalarRing, value: Fraction) -> Scalar | None:
    if value < 0 or max(value.numerator, value.denominator) > 10**12:  # larger radicands take long to factor
        return None
    if not value:
        return ring.rational(0)
    # sqrt(p/q) = sqrt(p q)/q; distinct primes have independent square roots.
    result = ring.rational(Fraction(1, value.denominator))
    for prime, exponent in fmpz(value.numerator * value.denominator).factor():
        result = result * ring.rational(int(prime) ** (int(exponent) // 2))
        if exponent % 2:
            result = result * _constant_symbol(ring, NamedConstant("sqrt", Fraction(int(prime))))
    return result


def _evaluate_exponential(ring: ScalarRing, value: Fraction, times_pi: bool) -> Scalar | None:
    if not value:
        return ring.rational(1)
    if value.denominator == 1:
        one = NamedConstant("exp", Fraction(1), times_pi)
        return _constant_symbol(ring, one) ** int(value) if abs(value) <= 64 else None
    base = _constant_symbol(ring, NamedConstant("exp", abs(value), times_pi))
    return base if value > 0 else ring.rational(1) / base


def _evaluate_cosine_of_pi(ring: ScalarRing, half_turns: Fraction) -> Scalar | None:
    """Return cos(pi half_turns), reduced to an angle between 0 and pi/2."""
    half_turns = abs(half_turns) % 2
    half_turns = 2 - half_turns if half_turns > 1 else half_turns
    negative = half_turns > Fraction(1, 2)
    half_turns = 1 - half_turns if negative else half_turns
    total = ring.rational(0)
    for factor, radicand in _COSINES_IN_RADICALS.get(half_turns, ()):
        root = _evaluate_square_root(ring, Fraction(radicand))
        if root is not None:
            total = total + ring.rational(-factor if negative else factor) * root
    return total if half_turns in _COSINES_IN_RADICALS else None
