"""Known functions of time: exponential polynomials, which are closed under sums, products and derivatives.

A signal is a sum of ``c t^k exp(r t) cos(w t)`` and ``c t^k exp(r t) sin(w t)`` with c, r, w in K. Constants are the
case k = r = w = 0. Equal signals have equal terms, so zero is recognised exactly. A linear form is a sum of operators
on channels plus such a signal.

A particular solution of A(d) f = b(t) follows from the method of undetermined coefficients on decoupled equations:
``U b`` on the right of ``D p = U b`` gives scalar equations d_i p_i = (U b)_i. On ``t^k exp(l t)`` with complex l, a
polynomial operator acts as ``P(d) t^k e^(l t) = sum_q binom(k, q) P^(q)(l) t^(k-q) e^(l t)``, a triangular system:
solve it from the highest power down. A root l of P (resonance) raises the power by its multiplicity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from math import comb, perm
from typing import TYPE_CHECKING

from flint import fmpz

from lodekit.algebra.operators import OperatorMatrix, scalar_to_sympy
from lodekit.algebra.scalars import Element, Scalar, ScalarRing, evaluate_constant_function, format_sum
from lodekit.algebra.smith import PopovDecomposition, build_transformation_matrices
from lodekit.errors import EquationError, Place
from lodekit.system.grammar import Call

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True)
class ExponentialTerm:
    """``t^power exp(rate t) cos(frequency t)``, or the sine.

    power: The power of t.
    rate, frequency: The frequency has a positive leading coefficient, or is zero.
    sine: Whether it is the sine.
    """

    power: int
    rate: Scalar
    frequency: Scalar
    sine: bool = False

    def sort_key(self) -> tuple[object, ...]:
        """Return a key that sorts waves in the same order for every display."""
        return (self.rate.sort_key, self.frequency.sort_key, self.sine, -self.power)

    def __str__(self) -> str:
        factors = []
        if self.power:
            factors.append("t" if self.power == 1 else f"t^{self.power}")
        if self.rate:
            factors.append(f"exp({self.rate.format_product('t')})")
        if self.frequency:
            factors.append(f"{'sin' if self.sine else 'cos'}({self.frequency.format_product('t')})")
        return "*".join(factors)


class ExponentialPolynomial:
    """A known function of time.

    ring: The ring of all coefficients, rates and frequencies.
    terms: Coefficients by the wave that they multiply; empty for zero.

    Examples
    --------
    >>> ring = ScalarRing(("a",))
    >>> t = ExponentialPolynomial.time(ring)
    >>> wave = ExponentialPolynomial.exponential(ring.rational(0), ring.rational(2))
    >>> print((t * wave).derivative())
    cos(2*t) - 2*t*sin(2*t)
    """

    __slots__ = ("ring", "terms")

    def __init__(self, ring: ScalarRing, terms: dict[ExponentialTerm, Scalar] | None = None) -> None:
        self.ring = ring
        self.terms = {wave: value for wave, value in (terms or {}).items() if value}

    @classmethod
    def constant(cls, value: Scalar) -> ExponentialPolynomial:
        """Return a constant signal."""
        zero = value.ring.rational(0)
        return cls(value.ring, {ExponentialTerm(0, zero, zero): value})

    @classmethod
    def time(cls, ring: ScalarRing) -> ExponentialPolynomial:
        """Return the signal t."""
        zero = ring.rational(0)
        return cls(ring, {ExponentialTerm(1, zero, zero): ring.rational(1)})

    @classmethod
    def exponential(cls, rate: Scalar, frequency: Scalar, *, sine: bool = False) -> ExponentialPolynomial:
        """Return ``exp(rate t)`` times the cosine of ``frequency t``, or with `sine` its sine."""
        sign = rate.ring.rational(-1 if sine and frequency.is_negative() else 1 if frequency or not sine else 0)
        frequency = -frequency if frequency.is_negative() else frequency
        return cls(rate.ring, {ExponentialTerm(0, rate, frequency, sine): sign})

    def __add__(self, other: ExponentialPolynomial) -> ExponentialPolynomial:
        terms = dict(self.terms)
        for wave, value in other.terms.items():
            terms[wave] = terms[wave] + value if wave in terms else value
        return ExponentialPolynomial(self.ring, terms)

    def scale(self, factor: Scalar) -> ExponentialPolynomial:
        """Return the signal times a field element."""
        return ExponentialPolynomial(self.ring, {wave: value * factor for wave, value in self.terms.items()})

    def __mul__(self, other: ExponentialPolynomial) -> ExponentialPolynomial:
        pairs = product(self.terms.items(), other.terms.items())
        return sum((_multiply_terms(v, w).scale(a * b) for (v, a), (w, b) in pairs), ExponentialPolynomial(self.ring))

    def derivative(self) -> ExponentialPolynomial:
        """Return the derivative."""
        parts = (_differentiate_term(wave).scale(value) for wave, value in self.terms.items())
        return sum(parts, ExponentialPolynomial(self.ring))

    def apply_operator(self, coefficients: Sequence[Scalar]) -> ExponentialPolynomial:
        """Return a differential operator, given by its coefficients, applied to the signal."""
        total, current = ExponentialPolynomial(self.ring), self
        for power, value in enumerate(coefficients):
            current = current.derivative() if power else current
            total = total + current.scale(value)
        return total

    def as_scalar(self) -> Scalar | None:
        """Return the value of a constant signal, else None."""
        if not self.terms:
            return self.ring.rational(0)
        ((wave, value), *others) = self.terms.items()
        return None if others or wave.power or wave.rate or wave.frequency else value

    def as_linear_function(self) -> tuple[Scalar, Scalar] | None:
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
        return isinstance(other, ExponentialPolynomial) and self.terms == other.terms

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return format_sum(self.format_terms())

    def format_terms(self) -> list[tuple[Scalar, str]]:
        """Return coefficients and the waves that they multiply as text, in a fixed order."""
        return [(self.terms[wave], str(wave)) for wave in sorted(self.terms, key=ExponentialTerm.sort_key)]

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


def combine_signals(
    ring: ScalarRing, operators: Iterable[Sequence[Scalar]], signals: Iterable[ExponentialPolynomial]
) -> ExponentialPolynomial:
    """Return a sum of signals, each with its differential operator applied."""
    pairs = zip(operators, signals, strict=True)
    return sum((signal.apply_operator(operator) for operator, signal in pairs), ExponentialPolynomial(ring))


def _multiply_terms(first: ExponentialTerm, second: ExponentialTerm) -> ExponentialPolynomial:
    """Return the product of two waves, by the formulas for products of sines and cosines."""
    ring = first.rate.ring
    rate = first.rate + second.rate
    half = ring.rational(1) / ring.rational(2)
    plus, minus = first.frequency + second.frequency, first.frequency - second.frequency
    if not first.frequency or not second.frequency:
        total = ExponentialPolynomial.exponential(rate, plus, sine=first.sine or second.sine)
    else:
        # sin A cos B = (sin(A + B) + sin(A - B)) / 2, with A the angle of the sine; a product of sines is
        # (cos(A - B) - cos(A + B)) / 2, and one of cosines the sum.
        mixed = first.sine != second.sine
        apart = -minus if mixed and second.sine else minus
        waves = [ExponentialPolynomial.exponential(rate, angle, sine=mixed) for angle in (apart, plus)]
        total = waves[0].scale(half) + waves[1].scale(-half if first.sine and second.sine else half)
    power = first.power + second.power
    return ExponentialPolynomial(ring, {replace(wave, power=power): value for wave, value in total.terms.items()})


def _differentiate_term(wave: ExponentialTerm) -> ExponentialPolynomial:
    ring = wave.rate.ring
    terms: dict[ExponentialTerm, Scalar] = {}
    if wave.power:
        terms[replace(wave, power=wave.power - 1)] = ring.rational(wave.power)
    if wave.rate:
        terms[wave] = wave.rate
    if wave.frequency:
        terms[replace(wave, sine=not wave.sine)] = wave.frequency if wave.sine else -wave.frequency
    return ExponentialPolynomial(ring, terms)


#: Largest number of terms of a known function of time.
MAX_SIGNAL_TERMS = 200


@dataclass(frozen=True)
class LinearForm:
    """``sum_c C_c(d) c + known(t)``: operators on channels plus a known function of time.

    channels: Coefficients of the operator on each channel, lowest power of d first.
    """

    channels: dict[str, list[Scalar]]
    affine_term: ExponentialPolynomial

    def __add__(self, other: LinearForm) -> LinearForm:
        channels = {name: list(values) for name, values in self.channels.items()}
        for name, values in other.channels.items():
            pairs = zip_longest(channels.get(name, []), values, fillvalue=self.affine_term.ring.rational(0))
            channels[name] = [a + b for a, b in pairs]
        return LinearForm(channels, self.affine_term + other.affine_term)

    def scale(self, factor: Scalar) -> LinearForm:
        """Return the form times a field element."""
        channels = {name: [value * factor for value in values] for name, values in self.channels.items()}
        return LinearForm(channels, self.affine_term.scale(factor))

    def derivative(self) -> LinearForm:
        """Return the derivative."""
        zero = self.affine_term.ring.rational(0)
        channels = {name: [zero, *values] for name, values in self.channels.items()}
        return LinearForm(channels, self.affine_term.derivative())


def check_product_size(place: Place, *forms: LinearForm) -> None:
    """Raise if the product of some forms would have too large coefficients."""
    terms, degree, bits = 1, 0, 0
    for form in forms:
        sizes = [max(part) for part in zip(*_form_sizes(place, form), strict=True)]
        terms, degree, bits = terms * sizes[0], degree + sizes[1], bits + sizes[2]
    _check_limits(place, terms, degree, bits)


def check_sum_size(place: Place, first: LinearForm, second: LinearForm) -> None:
    """Raise if the sum of two forms over a common denominator would have too large coefficients."""
    (top, bottom), (other, under) = _form_sizes(place, first), _form_sizes(place, second)
    products = ((top, under), (other, bottom), (bottom, under))
    terms = max(top[0] * under[0] + other[0] * bottom[0], bottom[0] * under[0])
    _check_limits(place, terms, max(a[1] + b[1] for a, b in products), max(a[2] + b[2] for a, b in products))


def _check_limits(place: Place, terms: int, degree: int, bits: int) -> None:
    # Limits on the size of a coefficient, so that exact arithmetic takes seconds for any text.
    if terms > 4_000 or degree > 200 or bits > 12_000:
        raise EquationError("a coefficient grows too large; simplify the expression or use fewer digits", place)


def _form_sizes(place: Place, form: LinearForm) -> list[tuple[int, ...]]:
    """Return the largest sizes of numerators and of denominators."""
    if len(form.affine_term.terms) > MAX_SIGNAL_TERMS:
        raise EquationError("a function of time has too many terms; simplify it", place)
    values = [*form.affine_term.terms.values(), *(v for part in form.channels.values() for v in part)]
    parts = ([value.numerator for value in values], [value.denominator for value in values])
    sizes = ([_element_size(element) for element in elements] or [(1, 0, 0)] for elements in parts)
    return [tuple(max(column) for column in zip(*rows, strict=True)) for rows in sizes]


def _element_size(element: Element) -> tuple[int, int, int]:
    """Return the number of terms, the degree and the bits of the largest integer of a ring element."""
    if isinstance(element, fmpz):  # a ring without symbols
        return 1, 0, int(abs(element)).bit_length()
    coefficients = element.coeffs()
    bits = max((int(abs(c)).bit_length() for c in coefficients), default=0)
    return len(coefficients), max(0, int(element.total_degree())), bits


def evaluate_constant_call(call: Call, argument: Scalar) -> Scalar:
    """Return the exact value of exp, sin, cos or sqrt of a constant."""
    if argument.involves_parameters():
        raise EquationError(
            f"{call.function} of a parameter is not a rational coefficient; if its argument is constant, declare a new "
            f"parameter for {call.function}(...); if it is a signal, the equation is not linear, so linearise it",
            call.place,
        )
    try:
        value = evaluate_constant_function(argument.ring, call.function, argument)
    except EquationError as related:
        raise EquationError(str(related), call.place) from None
    if value is None:
        allowed = {"sqrt": "a positive number", "exp": "a number or a multiple of pi"}
        raise EquationError(
            f"no exact value for {call.function}({argument}); expected "
            f"{allowed.get(call.function, 'a number or a multiple of pi/12')} of moderate size. "
            "Write the value as a decimal number",
            call.place,
        )
    return value


def evaluate_time_call(call: Call, slope: Scalar, offset: Scalar) -> ExponentialPolynomial:
    """Return exp, sin or cos of ``slope t + offset``, the offset expanded into constants."""
    ring = slope.ring
    zero = ring.rational(0)
    if call.function == "sqrt":
        raise EquationError("sqrt of a function of time is not an exponential polynomial", call.place)
    if call.function == "exp":
        wave = ExponentialPolynomial.exponential(slope, zero)
        return wave if not offset else wave.scale(evaluate_constant_call(call, offset))
    cosine, sine = (ExponentialPolynomial.exponential(zero, slope, sine=odd) for odd in (False, True))
    if not offset:
        return cosine if call.function == "cos" else sine
    if offset.involves_parameters():
        raise EquationError(
            "a parameter occurs in a phase; write A*sin(w*t) + B*cos(w*t) with two parameters A and B instead",
            call.place,
        )
    parts = [evaluate_constant_call(Call(call.place, name, call.arguments), offset) for name in ("cos", "sin")]
    if call.function == "cos":
        return cosine.scale(parts[0]) + sine.scale(-parts[1])
    return sine.scale(parts[0]) + cosine.scale(parts[1])


_ComplexScalar = tuple[Scalar, Scalar]


def find_particular_solution(
    operator: OperatorMatrix, decomposition: PopovDecomposition, forcing: Sequence[ExponentialPolynomial]
) -> tuple[ExponentialPolynomial, ...]:
    """Return one solution of ``A(d) f = b(t)``, a signal for each channel; the equations must be consistent."""
    ring, width = operator.ring, operator.width
    if not any(forcing):
        return tuple(ExponentialPolynomial(ring) for _ in range(width))
    left, diagonal, right = build_transformation_matrices(operator, decomposition.diagonal_form)
    sides = [combine_signals(ring, row, forcing) for row in left.entries()[: decomposition.rank]]
    decoupled = [solve_scalar_ode(diagonal.coefficients(i, i), side) for i, side in enumerate(sides)]
    return tuple(combine_signals(ring, row[: decomposition.rank], decoupled) for row in right.entries())


def solve_scalar_ode(operator: Sequence[Scalar], forcing: ExponentialPolynomial) -> ExponentialPolynomial:
    """Return one solution of ``P(d) p = forcing``, by the method of undetermined coefficients."""
    ring = forcing.ring
    groups: dict[tuple[Scalar, Scalar], dict[int, _ComplexScalar]] = {}
    zero = ring.rational(0)
    for wave, value in forcing.terms.items():
        powers = groups.setdefault((wave.rate, wave.frequency), {})
        real, imaginary = powers.get(wave.power, (zero, zero))
        # c cos = Re(c e^(iwt)) and c sin = Re(-i c e^(iwt)).
        powers[wave.power] = (real, imaginary - value) if wave.sine else (real + value, imaginary)
    parts = (_solve_for_exponent(operator, *exponent, powers) for exponent, powers in groups.items())
    return sum(parts, ExponentialPolynomial(ring))


def _solve_for_exponent(
    operator: Sequence[Scalar], rate: Scalar, frequency: Scalar, powers: dict[int, _ComplexScalar]
) -> ExponentialPolynomial:
    ring = rate.ring
    zero = ring.rational(0)
    highest = max(powers)
    derivatives = [_derivative_at(operator, q, (rate, frequency)) for q in range(len(operator))]
    order = next(q for q, value in enumerate(derivatives) if value[0] or value[1])
    found: dict[int, _ComplexScalar] = {}
    for k in range(highest, -1, -1):
        rest = powers.get(k, (zero, zero))
        for j, value in found.items():
            if j - k < len(derivatives):
                weight = ring.rational(comb(j, j - k))
                product = _multiply_complex(value, derivatives[j - k])
                rest = (rest[0] - weight * product[0], rest[1] - weight * product[1])
        a, b = (ring.rational(comb(k + order, order)) * part for part in derivatives[order])
        size = a * a + b * b
        found[k + order] = _multiply_complex(rest, (a / size, -b / size))
    terms: dict[ExponentialTerm, Scalar] = {}
    for k, (real, imaginary) in found.items():
        terms[ExponentialTerm(k, rate, frequency, sine=False)] = real
        if frequency:
            terms[ExponentialTerm(k, rate, frequency, sine=True)] = -imaginary
    return ExponentialPolynomial(ring, terms)


def _derivative_at(operator: Sequence[Scalar], order: int, point: _ComplexScalar) -> _ComplexScalar:
    """Return the derivative of a polynomial at a complex point, by Horner's rule."""
    ring = point[0].ring
    total: _ComplexScalar = (ring.rational(0), ring.rational(0))
    for k in range(len(operator) - 1, order - 1, -1):
        real, imaginary = _multiply_complex(total, point)
        total = (real + ring.rational(perm(k, order)) * operator[k], imaginary)
    return total


def _multiply_complex(first: _ComplexScalar, second: _ComplexScalar) -> _ComplexScalar:
    return (first[0] * second[0] - first[1] * second[1], first[0] * second[1] + first[1] * second[0])
