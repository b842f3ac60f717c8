"""Conversion of expression trees to linear forms and of these to text; errors explain why equations are not linear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lodekit.algebra.scalars import MissingConstantError, NamedConstant, Scalar, ScalarRing, format_sum
from lodekit.errors import EquationError
from lodekit.support.text import find_closest_name, join_list
from lodekit.system import grammar, signals
from lodekit.system.delays import apply_delay
from lodekit.system.parameters import find_ambiguous_parameters, find_likely_parameters

_Result = TypeVar("_Result")


def build_linear_system(
    equations: Sequence[grammar.Equation],
    channels: Sequence[str],
    parameters: Sequence[str],
    *,
    basis: Sequence[grammar.Equation] = (),
    columns: Sequence[str] = (),
) -> tuple[ScalarRing, list[signals.LinearForm], list[signals.LinearForm]]:
    """Return the coefficient ring, the equations as rows of ``A(d) f + affine_term = 0``, and the rows of a basis."""
    likely = find_likely_parameters(equations, channels)
    ambiguous = find_ambiguous_parameters(equations, likely) if likely else []

    def attempt(ring: ScalarRing) -> tuple[list[signals.LinearForm], list[signals.LinearForm]]:
        reader = LinearFormBuilder(ring, channels, likely, ambiguous)
        other = LinearFormBuilder(ring, columns or channels)
        return [reader.equation(equation) for equation in equations], [other.equation(row) for row in basis]

    ring, forms = extend_ring_by_constants(parameters, attempt)
    return ring, *forms


def extend_ring_by_constants(
    parameters: Sequence[str], build: Callable[[ScalarRing], _Result]
) -> tuple[ScalarRing, _Result]:
    """Return the smallest ring over `parameters` with all constants that `build` needs, and the result of `build`."""
    constants: set[NamedConstant] = set()
    while True:
        ring = ScalarRing(tuple(parameters), tuple(sorted(constants)))
        try:
            return ring, build(ring)
        except MissingConstantError as missing:
            constants.update(missing.constants)
            roots = sum(1 for constant in constants if constant.kind in ("sqrt", "sin"))
            if roots > 6:
                raise EquationError(
                    f"expected at most 6 constants that are square roots (of primes) or sines, got {roots} or "
                    "more; each doubles the size of exact numbers. Write some as decimal numbers"
                ) from None
            if len(constants) > 12:
                raise EquationError(
                    "expected at most 12 different irrational constants; write some as decimal numbers"
                ) from None


@dataclass(frozen=True)
class LinearFormBuilder:
    """Converts expression trees to linear forms over a given ring.

    likely_parameters: Channels that are only used as coefficients: most likely parameters that were not
        declared.
    ambiguous_parameters: Those of them that only multiply each other, so that one may be an input.
    """

    ring: ScalarRing
    channels: Sequence[str]
    likely_parameters: Sequence[str] = ()
    ambiguous_parameters: Sequence[str] = ()

    def equation(self, equation: grammar.Equation) -> signals.LinearForm:
        """Return ``left - right``."""
        form = self.form(equation.left)
        if equation.right is not None:
            form = form + self.form(equation.right).scale(self.ring.rational(-1))
        return form

    def form(self, node: grammar.Expression) -> signals.LinearForm:
        """Return the linear form of an expression."""
        match node:
            case grammar.Number():
                return self._constant(self.ring.rational(node.value))
            case grammar.Name():
                return self._name(node)
            case grammar.Sum():
                return self._sum(node)
            case grammar.Product():
                return self._product(node)
            case grammar.Power():
                return self._power(node)
            case grammar.Call():
                return self._call(node)

    def operators(self, form: signals.LinearForm) -> list[list[Scalar]]:
        """Return the operators of a form on all channels; raise if it contains other channels."""
        for name in form.channels:
            if name not in self.channels:
                raise EquationError(f"{name} does not occur in the equations; expected {', '.join(self.channels)}")
        return [form.channels.get(name, []) for name in self.channels]

    def scalar(self, node: grammar.Expression, role: str) -> Scalar:
        """Return the value of an expression `node` without channels and time; `role` describes it in errors."""
        form = self.form(node)
        value = form.affine_term.as_scalar()
        if form.channels or value is None:
            hint = self._suggest_declaration(list(form.channels)[:1]) if form.channels else ""
            got = "".join([f", got the channel {name}" for name in form.channels][:1])
            got += "; use another name" * bool(got and not hint)
            raise EquationError(f"expected {role} made of numbers and parameters only{got}.{hint}", node.place)
        return value

    def _constant(self, value: Scalar) -> signals.LinearForm:
        return signals.LinearForm({}, signals.ExponentialPolynomial.constant(value))

    def _name(self, node: grammar.Name) -> signals.LinearForm:
        if node.name == "t":
            return signals.LinearForm({}, signals.ExponentialPolynomial.time(self.ring))
        if node.name in self.ring.parameters:
            return self._constant(self.ring.parameter(node.name))
        if node.name in self.channels:
            return signals.LinearForm({node.name: [self.ring.rational(1)]}, signals.ExponentialPolynomial(self.ring))
        if node.name == "pi":
            if NamedConstant("pi") not in self.ring.constants:
                raise MissingConstantError(NamedConstant("pi"))
            return self._constant(self.ring.constant(NamedConstant("pi")))
        alike = find_closest_name(node.name, (*self.channels, *self.ring.parameters))
        raise EquationError(
            f"unknown name {node.name!r}; expected a channel ({', '.join(self.channels) or 'none'}) "
            f"or a parameter ({', '.join(self.ring.parameters) or 'none'}){f'. Is it {alike!r}?' if alike else ''}",
            node.place,
        )

    def _sum(self, node: grammar.Sum) -> signals.LinearForm:
        """Return a sum, added pairwise, so that long sums are not copied once for each of their terms."""
        forms = []
        for sign, term in node.terms:
            form = self.form(term)
            forms.append(form if sign == "+" else form.scale(self.ring.rational(-1)))
        while len(forms) > 1:
            for first, second in zip(forms[::2], forms[1::2], strict=False):
                signals.check_sum_size(node.place, first, second)
            pairs = [first + second for first, second in zip(forms[::2], forms[1::2], strict=False)]
            forms = pairs + forms[2 * len(pairs) :]
        return forms[0]

    def _product(self, node: grammar.Product) -> signals.LinearForm:
        total = self.form(node.factors[0][1])
        for operator, factor in node.factors[1:]:
            form = self.form(factor)
            if operator == "/":
                form = self._constant(self.ring.rational(1) / self._parse_divisor(form, factor))
            signals.check_product_size(node.place, total, form)
            total = self._multiply(node, total, form)
        return total

    def _parse_divisor(self, form: signals.LinearForm, node: grammar.Expression) -> Scalar:
        if form.channels:
            name = next(iter(form.channels))
            if name in ("dt", "dt2", "dt3"):
                written = "write a derivative as x' or D(x), not as dx/dt"
                raise EquationError(grammar.suggest_derivative(node.place.line) or written, node.place)
            remedy = self._suggest_declaration([name])
            if not remedy and isinstance(node, grammar.Name):
                tangent = f"near a value c write 1/c - ({name} - c)/c^2 for 1/{name}"
                remedy = f" Linearise it: {tangent}, {grammar.LINEARIZATION_HINT}"
            message = f"channel {name!r} appears in a denominator: the equation is not linear.{remedy}"
            raise EquationError(message, node.place)
        value = form.affine_term.as_scalar()
        if value is None:
            raise EquationError(
                "a function of time is in a denominator; write exp(-...) for 1/exp(...). Known functions of time "
                "are polynomials, exp, sin, cos of linear arguments, and their products",
                node.place,
            )
        if not value:
            raise EquationError("division by zero; the denominator must not vanish", node.place)
        return value

    def _multiply(
        self, node: grammar.Expression, first: signals.LinearForm, second: signals.LinearForm
    ) -> signals.LinearForm:
        if first.channels and second.channels:
            a, b = next(iter(first.channels)), next(iter(second.channels))
            names = f"channels {a!r} and {b!r}" if a != b else f"channel {a!r} with itself"
            both = [*first.channels, *second.channels]
            undeclared = self._find_undeclared(both)
            plain = all(list(map(len, form.channels.values())) == [1] for form in (first, second))
            remedy = self._suggest_declaration(both)
            if plain and a == b:
                near = f"near a value c write c^2 + 2*c*({a} - c) {grammar.LINEARIZATION_HINT}"
                remedy += f"{'. Otherwise linearise' if remedy else ' Linearise'} it: {near}"
            elif plain and not undeclared:
                near = f"near {a} = {a}_0 and {b} = {b}_0 write {b}_0*{a} + {a}_0*{b} - {a}_0*{b}_0"
                remedy += f". Otherwise linearise it: {near}, with numbers for {a}_0 and {b}_0"
                remedy += "; if both are known inputs, add a column with their product to the data, as one input"
            raise EquationError(f"product of {names}: the equation is not linear.{remedy}", node.place, undeclared)
        if not first.channels and not second.channels:
            if len(first.affine_term.terms) * len(second.affine_term.terms) > signals.MAX_SIGNAL_TERMS:
                raise EquationError("a product of functions of time is too large; expand or simplify it", node.place)
            return signals.LinearForm({}, first.affine_term * second.affine_term)
        form, factor = (first, second.affine_term) if first.channels else (second, first.affine_term)
        value = factor.as_scalar()
        if value is None:
            name = next(iter(form.channels))
            remedy = self._suggest_declaration([name])
            raise EquationError(
                f"a function of time multiplies channel {name!r}: the equation is time-varying, and lodekit needs "
                f"constant coefficients. Known functions of time may only be added, as inputs.{remedy}",
                node.place,
            )
        return form.scale(value)

    def _find_undeclared(self, names: Sequence[str]) -> list[str]:
        """Return the likely parameters among the names, followed by all others of the system."""
        suspects = [name for name in dict.fromkeys(names) if name in self.likely_parameters]
        if not suspects or len(suspects) == len(set(names)):
            return []
        others = [name for name in self.likely_parameters if name not in self.ambiguous_parameters]
        return list(dict.fromkeys([*suspects, *others]))

    def _suggest_declaration(self, names: Sequence[str]) -> str:
        suspects = [name for name in dict.fromkeys(names) if name in self.likely_parameters]
        if len(set(names)) == 1:
            remedy = f" If {names[0]!r} is a constant, declare it as a parameter: parameters=['{names[0]}']"
            return remedy if names[0] in self.likely_parameters else ""
        undeclared = self._find_undeclared(names)
        if not undeclared:
            return " If one of them is a constant, declare it as a parameter: parameters=[...]"
        quoted = ", ".join(f"'{name}'" for name in undeclared)
        verb = "is only used as a coefficient" if len(undeclared) == 1 else "are only used as coefficients"
        listed = join_list([f"`{name}`" for name in suspects])
        noun = "a parameter" if len(suspects) == 1 else "parameters"
        rest = [f"'{name}'" for name in self.ambiguous_parameters if name not in undeclared]
        more = f"; if {join_list(rest, 'or')} is constant, declare it as well" if rest else ""
        return f" {quoted} {verb}: declare {listed} as {noun}, parameters=[{quoted}]{more}"

    def _power(self, node: grammar.Power) -> signals.LinearForm:
        base = self.form(node.base)
        exponent = self.form(node.exponent)
        value = exponent.affine_term.as_scalar()
        number = None if exponent.channels or value is None else value.as_fraction()
        if base.channels:
            is_derivative = node.has_parentheses and isinstance(node.exponent, grammar.Number)
            if is_derivative and number is not None and number.denominator == 1:
                return self._differentiate(node, node.base, int(number), base)
            name = next(iter(base.channels))
            if number == 1:
                ways = f"write {name} for the channel itself, or {name}' for its derivative"
                raise EquationError(f"a channel to the power of one can be read in two ways; {ways}", node.place)
            hint = ""
            if number is not None and number > 0 and number.denominator == 1:
                slope = f"*c^{number - 1}" if number > 2 else "*c"
                tangent = f"c^{number} + {number}{slope}*({name} - c) {grammar.LINEARIZATION_HINT}"
                derivative = name + "'" * int(number) if number < 4 else f"{name}^({number})"
                hint = f"; for a derivative write {derivative}; or linearise it: near a value c write {tangent}"
            raise EquationError(f"power of channel {name!r}: the equation is not linear{hint}", node.place)
        if number is None or number.denominator != 1:
            raise EquationError(
                "expected a whole number as exponent; write sqrt(2) for 2^(1/2), and a new parameter for other powers",
                node.exponent.place,
            )
        power = int(number)
        if abs(power) > grammar.MAX_DERIVATIVE_ORDER:
            message = f"expected an exponent of at most {grammar.MAX_DERIVATIVE_ORDER}, got {power}"
            raise EquationError(message, node.exponent.place)
        if power < 0:
            base, power = self._constant(self.ring.rational(1) / self._parse_divisor(base, node.base)), -power
        total = self._constant(self.ring.rational(1))
        for _ in range(power):
            signals.check_product_size(node.place, total, base)
            total = self._multiply(node, total, base)
        return total

    def _differentiate(
        self, node: grammar.Expression, operand: grammar.Expression, order: int, form: signals.LinearForm | None = None
    ) -> signals.LinearForm:
        if not 0 <= order <= grammar.MAX_DERIVATIVE_ORDER:
            raise EquationError(
                f"expected a derivative of order 0 to {grammar.MAX_DERIVATIVE_ORDER}, got {order}", node.place
            )
        form = self.form(operand) if form is None else form
        mentioned = grammar.find_names(operand)
        if not any(name == "t" or name in self.channels for name in mentioned):
            names = [name for name in mentioned if name in self.ring.parameters]
            message = "a number is differentiated; its derivative is zero, leave it out"
            if names:
                remedy = f"Remove {names[0]!r} from the parameters to make it a channel"
                message = f"parameter {names[0]!r} is differentiated; parameters are constant. {remedy}"
            raise EquationError(message, node.place)
        degree = max((len(values) for values in form.channels.values()), default=1) - 1 + order
        if degree > grammar.MAX_DERIVATIVE_ORDER:
            message = f"expected derivatives of order at most {grammar.MAX_DERIVATIVE_ORDER}, got {degree}"
            raise EquationError(message, node.place)
        for _ in range(order):
            form = form.derivative()
            signals.check_product_size(node.place, form)
        return form

    def _call(self, node: grammar.Call) -> signals.LinearForm:
        if node.function == "D":
            if len(node.arguments) > 2:
                raise EquationError("expected D(expression) or D(expression, order)", node.place)
            order = self._parse_order(node.arguments[1]) if len(node.arguments) == 2 else 1
            return self._differentiate(node, node.arguments[0], order)
        if node.function == "diff":
            return self._diff(node)
        if node.function == "delay":
            if len(node.arguments) != 2:
                raise EquationError("expected delay(channel, time), such as delay(u, T)", node.place)
            return apply_delay(node, self.form(node.arguments[0]), self.scalar(node.arguments[1], "a delay"))
        if len(node.arguments) != 1:
            raise EquationError(f"expected one argument for {node.function}, got {len(node.arguments)}", node.place)
        argument = self.form(node.arguments[0])
        if argument.channels:
            name = next(iter(argument.channels))
            inner = node.arguments[0].place
            tangent = grammar.suggest_linearization(node.function, inner.line[inner.start : inner.stop])
            remedy = self._suggest_declaration([name]) or tangent
            message = f"channel {name!r} appears inside {node.function}: the equation is not linear.{remedy}"
            raise EquationError(message, node.place)
        line = argument.affine_term.as_linear_function()
        if line is None:
            message = f"expected a linear argument a*t + c for {node.function}, got {argument.affine_term}"
            raise EquationError(message, node.place)
        slope, offset = line
        if not slope:
            return self._constant(signals.evaluate_constant_call(node, offset))
        return signals.LinearForm({}, signals.evaluate_time_call(node, slope, offset))

    def _diff(self, node: grammar.Call) -> signals.LinearForm:
        usage = "expected diff(expression, t), diff(expression, t, t) or diff(expression, t, 2)"
        order, rest = 0, list(node.arguments[1:])
        while rest:
            variable = rest.pop(0)
            if not isinstance(variable, grammar.Name) or variable.name != "t":
                raise EquationError(f"{usage}; derivatives are in t only", variable.place)
            if rest and isinstance(rest[0], grammar.Number):
                order += self._parse_order(rest.pop(0))
            else:
                order += 1
        if not order and len(node.arguments) < 2:
            raise EquationError(usage, node.place)
        return self._differentiate(node, node.arguments[0], order)

    def _parse_order(self, node: grammar.Expression) -> int:
        if isinstance(node, grammar.Number) and node.value.denominator == 1:
            return int(node.value)
        raise EquationError("expected the order of a derivative as a whole number", node.place)


def format_derivative(name: str, order: int) -> str:
    """Return the derivative of a `name` of some `order` in the user's notation: ``x''``, ``x^(4)``."""
    return f"{name}{chr(39) * order}" if order < 4 else f"{name}^({order})"


def list_operator_terms(coefficients: Sequence[Scalar], name: str) -> list[tuple[Scalar, str]]:
    """Return the terms of an operator with these `coefficients` on the function `name`, highest derivative first."""
    orders = range(len(coefficients) - 1, -1, -1)
    return [(coefficients[order], format_derivative(name, order)) for order in orders if coefficients[order]]


def format_equation(form: signals.LinearForm, channels: Sequence[str]) -> str:
    """Return a `form` ``sum C_c(d) c + known`` in `channels` as an equation, ``x' = ...`` for a state equation."""
    ring = form.affine_term.ring
    left = ""
    differentiated = [name for name, values in form.channels.items() if any(values[1:])]
    if len(differentiated) == 1:
        (name,) = differentiated
        values = form.channels[name]
        if values[1] == ring.rational(1) and not any(values[2:]):
            left = format_derivative(name, 1)
            form = signals.LinearForm({**form.channels, name: values[:1]}, form.affine_term).scale(ring.rational(-1))
    terms = [term for name in channels for term in list_operator_terms(form.channels.get(name, []), name)]
    terms += form.affine_term.format_terms()
    return f"{left or format_sum(terms)} = {format_sum(terms) if left else 0}"


def format_observable(row: Sequence[Sequence[Scalar]], channels: Sequence[str]) -> str:
    """Return a `row` of operators as an expression in the `channels`: ``f1 - f2' + f3``."""
    pairs = zip(row, channels, strict=True)
    return format_sum(term for coefficients, name in pairs for term in list_operator_terms(coefficients, name))


def format_combination(weights: Sequence[Sequence[Scalar]]) -> str:
    """Return a combination of equations as text: ``equation 1 + (equation 2)' - 2*equation 3``."""
    terms = []
    for number, coefficients in enumerate(weights, 1):
        name = f"(equation {number})"
        terms += [(v, name[1:-1] if text == name else text) for v, text in list_operator_terms(coefficients, name)]
    return format_sum(terms)
