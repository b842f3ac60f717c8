"""From expression trees to operator rows; errors say why an equation is not linear with constant coefficients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lodekit.algebra.constants import Constant
from lodekit.algebra.scalars import Scalar, ScalarRing
from lodekit.errors import EquationError
from lodekit.system.constants import MissingConstantError
from lodekit.system.delays import delay_form
from lodekit.system.forms import MAX_WAVES, LinearForm, check_size, check_sum
from lodekit.system.functions import constant_of, wave_of
from lodekit.system.grammar import MAX_ORDER
from lodekit.system.remedies import (
    find_alike,
    suggest_derivative,
    suggest_inverse,
    suggest_power,
    suggest_product,
    suggest_tangent,
)
from lodekit.system.roles import coefficient_names
from lodekit.system.signals import Signal
from lodekit.system.tree import (
    Call,
    Derivative,
    Equation,
    Expression,
    Name,
    Negative,
    Number,
    Power,
    Product,
    Sum,
    walk,
)

__all__ = ["LinearSystem", "Reader", "read_system", "with_constants"]

T = TypeVar("T")

#: Bounds on exponents and on irrational constants, so that exact arithmetic does not run away.
MAX_EXPONENT = MAX_ORDER
MAX_CONSTANTS = 12
#: Each square root, and each sine, doubles the size of exact numbers.
MAX_ROOTS = 6


@dataclass(frozen=True)
class LinearSystem:
    """``A(d) f = b(t)``, read from equations: `rows`, and those of a `basis`, as linear forms over one `ring`."""

    ring: ScalarRing
    rows: list[LinearForm]
    basis: list[LinearForm]


def read_system(
    equations: Sequence[Equation],
    channels: Sequence[str],
    parameters: Sequence[str],
    *,
    basis: Sequence[Equation] = (),
    columns: Sequence[str] = (),
) -> LinearSystem:
    """Return equations as rows of ``A(d) f + known = 0``.

    The named constants that occur are found on the way: the ring is extended and the reading starts again.

    Parameters
    ----------
    equations : sequence of Equation
        What is read.
    channels, parameters : sequence of str
        All names in the equations, except t and pi.
    basis : sequence of Equation
        The rows of a chosen basis, which share the constants of the equations.
    columns : sequence of str
        What the basis is written in, where that is not the channels.
    """
    coefficients = coefficient_names(equations, channels)

    def attempt(ring: ScalarRing) -> tuple[list[LinearForm], list[LinearForm]]:
        reader, other = Reader(ring, channels, coefficients), Reader(ring, columns or channels)
        return [reader.equation(equation) for equation in equations], [other.equation(row) for row in basis]

    ring, (rows, read) = with_constants(parameters, attempt)
    return LinearSystem(ring, rows, read)


def with_constants(parameters: Sequence[str], attempt: Callable[[ScalarRing], T]) -> tuple[ScalarRing, T]:
    """Return the smallest ring over `parameters` that has all constants which an `attempt` asks for, and its result."""
    constants: set[Constant] = set()
    while True:
        ring = ScalarRing(tuple(parameters), tuple(sorted(constants)))
        try:
            return ring, attempt(ring)
        except MissingConstantError as missing:
            constants.update(missing.constants)
            roots = sum(1 for constant in constants if constant.kind in ("sqrt", "sin"))
            if roots > MAX_ROOTS:
                raise EquationError(
                    f"expected at most {MAX_ROOTS} constants that are square roots (of primes) or sines, got {roots} "
                    "or more; each doubles the size of exact numbers. Write some as decimal numbers"
                ) from None
            if len(constants) > MAX_CONSTANTS:
                raise EquationError(
                    f"expected at most {MAX_CONSTANTS} different irrational constants; write some as decimal numbers"
                ) from None


@dataclass(frozen=True)
class Reader:
    """Turns expression trees into linear forms over a given ring.

    Parameters
    ----------
    ring : ScalarRing
    channels : sequence of str
    coefficients : sequence of str
        Channels that are only ever used as coefficients: most likely parameters that were not declared.
    """

    ring: ScalarRing
    channels: Sequence[str]
    coefficients: Sequence[str] = field(default=())

    def equation(self, equation: Equation) -> LinearForm:
        """Return ``left - right``."""
        form = self.form(equation.left)
        if equation.right is not None:
            form = form + self.form(equation.right).scale(self.ring.rational(-1))
        return form

    def form(self, node: Expression) -> LinearForm:
        """Return the linear form of an expression."""
        match node:
            case Number():
                return self._constant(self.ring.rational(node.value))
            case Name():
                return self._name(node)
            case Negative():
                return self.form(node.operand).scale(self.ring.rational(-1))
            case Sum():
                return self._sum(node)
            case Product():
                return self._product(node)
            case Power():
                return self._power(node)
            case Derivative():
                return self._differentiate(node, node.operand, node.order)
            case Call():
                return self._call(node)

    def operators(self, form: LinearForm) -> list[list[Scalar]]:
        """Return the operators of a form on all channels, where these are all that it has."""
        for name in form.channels:
            if name not in self.channels:
                raise EquationError(f"{name} does not occur in the equations; expected {', '.join(self.channels)}")
        return [form.channels.get(name, []) for name in self.channels]

    def scalar(self, node: Expression, role: str) -> Scalar:
        """Return the value of an expression `node` without channels and time; `role` says in errors what it is for."""
        form = self.form(node)
        value = form.known.as_scalar()
        if form.channels or value is None:
            hint = self._declare(list(form.channels)[:1]) if form.channels else ""
            raise EquationError(f"expected {role} made of numbers and parameters only.{hint}", node.place)
        return value

    def _constant(self, value: Scalar) -> LinearForm:
        return LinearForm({}, Signal.constant(value))

    def _name(self, node: Name) -> LinearForm:
        if node.name == "t":
            return LinearForm({}, Signal.time(self.ring))
        if node.name in self.ring.parameters:
            return self._constant(self.ring.parameter(node.name))
        if node.name in self.channels:
            return LinearForm({node.name: [self.ring.rational(1)]}, Signal(self.ring))
        if node.name == "pi":
            if Constant("pi") not in self.ring.constants:
                raise MissingConstantError(Constant("pi"))
            return self._constant(self.ring.constant(Constant("pi")))
        alike = find_alike(node.name, (*self.channels, *self.ring.parameters))
        raise EquationError(
            f"unknown name {node.name!r}; expected a channel ({', '.join(self.channels) or 'none'}) "
            f"or a parameter ({', '.join(self.ring.parameters) or 'none'}){f'. Is it {alike!r}?' if alike else ''}",
            node.place,
        )

    def _sum(self, node: Sum) -> LinearForm:
        """Return a sum: halves of it first, so that long ones are not copied once for each of their terms."""
        forms = []
        for sign, term in node.terms:
            form = self.form(term)
            forms.append(form if sign == "+" else form.scale(self.ring.rational(-1)))
        while len(forms) > 1:
            for first, second in zip(forms[::2], forms[1::2], strict=False):
                check_sum(node.place, first, second)
            pairs = [first + second for first, second in zip(forms[::2], forms[1::2], strict=False)]
            forms = pairs + forms[2 * len(pairs) :]
        return forms[0]

    def _product(self, node: Product) -> LinearForm:
        total = self.form(node.factors[0][1])
        for operator, factor in node.factors[1:]:
            form = self.form(factor)
            if operator == "/":
                form = self._constant(self.ring.rational(1) / self._divisor(form, factor))
            check_size(node.place, total, form)
            total = self._times(node, total, form)
        return total

    def _divisor(self, form: LinearForm, node: Expression) -> Scalar:
        if form.channels:
            name = next(iter(form.channels))
            if name in ("dt", "dt2", "dt3"):
                written = suggest_derivative(node.place.line) or "write a derivative as x' or D(x), not as dx/dt"
                raise EquationError(written, node.place)
            remedy = self._declare([name]) or (suggest_inverse(name) if isinstance(node, Name) else "")
            raise EquationError(
                f"channel {name!r} stands in a denominator: the equation is not linear.{remedy}", node.place
            )
        value = form.known.as_scalar()
        if value is None:
            raise EquationError(
                "a function of time stands in a denominator; write exp(-...) for 1/exp(...). Known functions of time "
                "are polynomials, exp, sin, cos of linear arguments, and their products",
                node.place,
            )
        if not value:
            raise EquationError("division by zero; the denominator must not vanish", node.place)
        return value

    def _times(self, node: Expression, first: LinearForm, second: LinearForm) -> LinearForm:
        if first.channels and second.channels:
            a, b = next(iter(first.channels)), next(iter(second.channels))
            names = f"channels {a!r} and {b!r}" if a != b else f"channel {a!r} with itself"
            both = [*first.channels, *second.channels]
            undeclared = self._undeclared(both)
            plain = a != b and all(list(map(len, form.channels.values())) == [1] for form in (first, second))
            remedy = self._declare(both) + (f".{suggest_product(a, b)}" if plain and not undeclared else "")
            raise EquationError(f"product of {names}: the equation is not linear.{remedy}", node.place, undeclared)
        if not first.channels and not second.channels:
            if len(first.known.terms) * len(second.known.terms) > MAX_WAVES:
                raise EquationError("a product of functions of time is too large; expand or simplify it", node.place)
            return LinearForm({}, first.known * second.known)
        form, factor = (first, second.known) if first.channels else (second, first.known)
        value = factor.as_scalar()
        if value is None:
            name = next(iter(form.channels))
            raise EquationError(
                f"a function of time multiplies channel {name!r}: the equation is time-varying, and lodekit needs "
                f"constant coefficients. Known functions of time may stand alone, as inputs.{self._declare([name])}",
                node.place,
            )
        return form.scale(value)

    def _undeclared(self, names: Sequence[str]) -> list[str]:
        """Return the likely parameters among the names, and with them all others of the system."""
        suspects = [name for name in dict.fromkeys(names) if name in self.coefficients]
        if not suspects or len(suspects) == len(set(names)):
            return []
        return suspects + [name for name in self.coefficients if name not in suspects]

    def _declare(self, names: Sequence[str]) -> str:
        suspects = [name for name in dict.fromkeys(names) if name in self.coefficients]
        if len(set(names)) == 1:
            known = names[0] not in self.coefficients
            return (
                "" if known else f" If {names[0]!r} is a constant, declare it as a parameter: parameters=['{names[0]}']"
            )
        undeclared = self._undeclared(names)
        if not undeclared:
            return " If one of them is a constant, declare it as a parameter: parameters=[...]"
        quoted = ", ".join(f"'{name}'" for name in undeclared)
        verb = "is only used as a coefficient" if len(undeclared) == 1 else "are only used as coefficients"
        listed = " and ".join(f"`{name}`" for name in suspects)
        noun = "a parameter" if len(suspects) == 1 else "parameters"
        return f" {quoted} {verb}: declare {listed} as {noun}, parameters=[{quoted}]"

    def _power(self, node: Power) -> LinearForm:
        base = self.form(node.base)
        exponent = self.form(node.exponent)
        value = exponent.known.as_scalar()
        number = None if exponent.channels or value is None else value.as_fraction()
        if base.channels:
            if node.grouped and isinstance(node.exponent, Number) and number is not None and number.denominator == 1:
                return self._differentiate(node, node.base, int(number), base)
            name = next(iter(base.channels))
            if number == 1:
                ways = f"write {name} for the channel itself, or {name}' for its derivative"
                raise EquationError(f"a channel to the power of one can be read in two ways; {ways}", node.place)
            whole = number is not None and number > 0 and number.denominator == 1
            hint = f"; for a derivative write {name}^({number}){suggest_power(name, int(number or 0))}" if whole else ""
            raise EquationError(f"power of channel {name!r}: the equation is not linear{hint}", node.place)
        if number is None or number.denominator != 1:
            raise EquationError(
                "expected a whole number as exponent; write sqrt(2) for 2^(1/2), and a new parameter for other powers",
                node.exponent.place,
            )
        power = int(number)
        if abs(power) > MAX_EXPONENT:
            raise EquationError(f"expected an exponent of at most {MAX_EXPONENT}, got {power}", node.exponent.place)
        if power < 0:
            base, power = self._constant(self.ring.rational(1) / self._divisor(base, node.base)), -power
        total = self._constant(self.ring.rational(1))
        for _ in range(power):
            check_size(node.place, total, base)
            total = self._times(node, total, base)
        return total

    def _differentiate(
        self, node: Expression, operand: Expression, order: int, read: LinearForm | None = None
    ) -> LinearForm:
        if not 0 <= order <= MAX_ORDER:
            raise EquationError(f"expected a derivative of order 0 to {MAX_ORDER}, got {order}", node.place)
        form = self.form(operand) if read is None else read
        mentioned = [part.name for part in walk(operand) if isinstance(part, Name)]
        if not any(name == "t" or name in self.channels for name in mentioned):
            names = [name for name in mentioned if name in self.ring.parameters]
            what = f"parameter {names[0]!r}" if names else "a number"
            remedy = (
                f"; parameters are constant. Remove {names[0]!r} from the parameters to make it a channel"
                if names
                else "; its derivative is zero, leave it out"
            )
            raise EquationError(f"{what} is differentiated{remedy}", node.place)
        degree = max((len(values) for values in form.channels.values()), default=1) - 1 + order
        if degree > MAX_ORDER:
            raise EquationError(f"expected derivatives of order at most {MAX_ORDER}, got {degree}", node.place)
        for _ in range(order):
            form = form.differentiate(1)
            check_size(node.place, form)
        return form

    def _call(self, node: Call) -> LinearForm:
        if node.function == "D":
            return self._operator(node)
        if node.function == "diff":
            return self._diff(node)
        if node.function == "delay":
            if len(node.arguments) != 2:
                raise EquationError("expected delay(channel, time), such as delay(u, T)", node.place)
            return delay_form(node, self.form(node.arguments[0]), self.scalar(node.arguments[1], "a delay"))
        if len(node.arguments) != 1:
            raise EquationError(f"expected one argument for {node.function}, got {len(node.arguments)}", node.place)
        argument = self.form(node.arguments[0])
        if argument.channels:
            name = next(iter(argument.channels))
            inner = node.arguments[0].place
            remedy = self._declare([name]) or suggest_tangent(node.function, inner.line[inner.start : inner.stop])
            raise EquationError(
                f"channel {name!r} stands inside {node.function}: the equation is not linear.{remedy}", node.place
            )
        line = argument.known.as_line()
        if line is None:
            raise EquationError(
                f"expected a linear argument a*t + c for {node.function}, got {argument.known}", node.place
            )
        slope, offset = line
        if not slope:
            return self._constant(constant_of(node, offset))
        return LinearForm({}, wave_of(node, slope, offset))

    def _operator(self, node: Call) -> LinearForm:
        if len(node.arguments) > 2:
            raise EquationError("expected D(expression) or D(expression, order)", node.place)
        order = self._order(node.arguments[1]) if len(node.arguments) == 2 else 1
        return self._differentiate(node, node.arguments[0], order)

    def _diff(self, node: Call) -> LinearForm:
        usage = "expected diff(expression, t), diff(expression, t, t) or diff(expression, t, 2)"
        order, rest = 0, list(node.arguments[1:])
        while rest:
            variable = rest.pop(0)
            if not isinstance(variable, Name) or variable.name != "t":
                raise EquationError(f"{usage}; derivatives are in t only", variable.place)
            if rest and isinstance(rest[0], Number):
                order += self._order(rest.pop(0))
            else:
                order += 1
        if not order and len(node.arguments) < 2:
            raise EquationError(usage, node.place)
        return self._differentiate(node, node.arguments[0], order)

    def _order(self, node: Expression) -> int:
        if isinstance(node, Number) and node.value.denominator == 1:
            return int(node.value)
        raise EquationError("expected the order of a derivative as a whole number", node.place)
