"""A recursive-descent parser for linear ODE systems, its expression trees, and suggestions for error messages.

Nothing is ever evaluated as code.

::

    system      = equation { (newline | ";") equation }          # starts a comment
    equation    = sum [ "=" sum ]
    sum         = product { ("+" | "-") product }
    product     = signed { ("*" | "/") signed }
    signed      = ("+" | "-") signed | power
    power       = derivative [ ("^" | "**") signed ]
    derivative  = atom [ "(t)" ] { "'" } [ "(t)" ]
    atom        = number | name | name "(" sum { "," sum } ")" | "(" sum ")"

What a tree means (derivatives, linearity, known functions of time) is decided in `linear`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from lodekit.errors import EquationError, Place


@dataclass(frozen=True)
class Number:
    """An exact rational `value`; `place` is its position in the user's text, as for all expressions."""

    place: Place
    value: Fraction


@dataclass(frozen=True)
class Name:
    """The `name` of a channel, a parameter, a constant or the time, at its `place`."""

    place: Place
    name: str


@dataclass(frozen=True)
class Sum:
    """`terms` with their signs, ``+`` or ``-``, at their `place`; a single term has ``-``."""

    place: Place
    terms: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Product:
    """`factors` with their operators, ``*`` or ``/``, at their `place`; the first has ``*``."""

    place: Place
    factors: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Power:
    """``base^exponent`` at its `place`; `has_parentheses` distinguishes ``x^(4)`` from ``x^4``."""

    place: Place
    base: Expression
    exponent: Expression
    has_parentheses: bool


@dataclass(frozen=True)
class Call:
    """A reserved `function` applied to `arguments`, at its `place`; ``x''`` is ``D(x, 2)``."""

    place: Place
    function: str
    arguments: tuple[Expression, ...]


Expression = Number | Name | Sum | Product | Power | Call


@dataclass(frozen=True)
class Equation:
    """``left = right``, or ``left = 0`` if `right` is None; `text` is the equation as written."""

    left: Expression
    right: Expression | None
    text: str

    @property
    def sides(self) -> tuple[Expression, ...]:
        """Both sides, or the only side."""
        return (self.left,) if self.right is None else (self.left, self.right)

    @property
    def names(self) -> list[str]:
        """The names on both sides, in order, with repetitions."""
        return [name for side in self.sides for name in find_names(side)]

    def mentions(self, names: Collection[str]) -> bool:
        """Return whether one of some names occurs in the equation."""
        return not set(names).isdisjoint(self.names)


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the direct subexpressions of an expression."""
    if isinstance(expression, Sum):
        return tuple(term for _, term in expression.terms)
    if isinstance(expression, Product):
        return tuple(factor for _, factor in expression.factors)
    if isinstance(expression, Power):
        return (expression.base, expression.exponent)
    return expression.arguments if isinstance(expression, Call) else ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all its subexpressions."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def find_names(expression: Expression) -> list[str]:
    """Return the names in an expression, in order, with repetitions."""
    return [node.name for node in walk(expression) if isinstance(node, Name)]


def walk_equation(equation: Equation) -> Iterator[Expression]:
    """Yield all expressions on both sides of an equation."""
    for side in equation.sides:
        yield from walk(side)


def _with_children(expression: Expression, parts: Sequence[Expression]) -> Expression:
    """Return an expression with new `children`, as many as it has."""
    match expression:
        case Sum():
            signs = (sign for sign, _ in expression.terms)
            return replace(expression, terms=tuple(zip(signs, parts, strict=True)))
        case Product():
            operators = (operator for operator, _ in expression.factors)
            return replace(expression, factors=tuple(zip(operators, parts, strict=True)))
        case Power():
            return replace(expression, base=parts[0], exponent=parts[1])
        case Call():
            return replace(expression, arguments=tuple(parts))
        case _:
            return expression


def replace_names(expression: Expression, replacements: Mapping[str, Expression]) -> Expression:
    """Return an `expression` with the `replacements` substituted for names."""
    if isinstance(expression, Name):
        return replacements.get(expression.name, expression)
    return _with_children(expression, [replace_names(child, replacements) for child in children(expression)])


def drop_names(expression: Expression, names: Collection[str]) -> Expression | None:
    """Return the rest of an `expression` if the functions with some `names` are zero; None if nothing remains.

    The expression must be linear in these functions.
    """
    if isinstance(expression, Name):
        return None if expression.name in names else expression
    parts = [drop_names(child, names) for child in children(expression)]
    remaining = [part for part in parts if part is not None]
    if isinstance(expression, Sum):
        terms = [(sign, part) for (sign, _), part in zip(expression.terms, parts, strict=True) if part is not None]
        return replace(expression, terms=tuple(terms)) if terms else None
    return _with_children(expression, remaining) if len(remaining) == len(parts) else None


#: Linear approximations of functions for small arguments.
_SMALL_ARGUMENT_FORMS = {
    **dict.fromkeys(("sin", "tan", "asin", "atan", "arcsin", "arctan", "sinh", "tanh"), "{0}"),
    **dict.fromkeys(("cos", "cosh"), "1"),
    "exp": "1 + {0}",
}
#: Tangents at c.
_TANGENT_FORMS = {
    "sin": "sin(c) + cos(c)*({0} - c)",
    "cos": "cos(c) - sin(c)*({0} - c)",
    "exp": "exp(c) + exp(c)*({0} - c)",
    "sqrt": "sqrt(c) + ({0} - c)/(2*sqrt(c))",
}
LINEARIZATION_HINT = "with a number for c"


def suggest_linearization(function: str, argument: str) -> str:
    """Return how to linearise a function of a channel, as a sentence with a leading blank.

    Examples
    --------
    >>> print(suggest_linearization("sin", "theta"))  # doctest: +ELLIPSIS
     Linearise it: where theta stays small, write theta for sin(theta); near another value c, ...
    >>> print(suggest_linearization("sqrt", "h"))
     Linearise it: near a value c, write sqrt(c) + (h - c)/(2*sqrt(c)) with a number for c
    """
    name, inner = function.lower(), argument.strip()
    if re.search(r"\bt\b", inner):
        # A function of time needs no linearisation.
        return ""
    plain = inner if re.fullmatch(r"\w+", inner) else f"({inner})"
    ways = []
    if name in _SMALL_ARGUMENT_FORMS:
        small = _SMALL_ARGUMENT_FORMS[name].format(plain)
        ways.append(f"where {inner} stays small, write {small} for {function}({inner})")
    if name in _TANGENT_FORMS:
        near = "near another value c," if ways else "near a value c, write"
        ways.append(f"{near} {_TANGENT_FORMS[name].format(inner)} {LINEARIZATION_HINT}")
    return f" Linearise it: {'; '.join(ways)}" if ways else ""


def suggest_character(character: str) -> str:
    """Return the message for a character that is not allowed in equations.

    Examples
    --------
    >>> suggest_character("[")
    "unexpected character '['; use parentheses ( )"
    """
    hints = {
        '"': "write two single quotes, x'', for a second derivative",
        **dict.fromkeys("[]{}", "use parentheses ( )"),
        **dict.fromkeys("<>", "an equation needs '='; inequalities are not supported"),
        **dict.fromkeys(":!", "an equation needs a plain '='"),
        "²": "write x^2 for a power, x'' for a derivative",
        "³": "write x^3 for a power, x''' for a derivative",
    }
    hint = hints.get(character, "allowed are names, numbers, + - * / ^ ' ( ) , = and #")
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    return f"unexpected character {shown!r}; {hint}"


def suggest_derivative(line: str) -> str:
    """Return advice on a derivative in Leibniz notation, ``d^2x/dt^2``; empty if there is none.

    Examples
    --------
    >>> suggest_derivative("m*d^2x/dt^2 = F"), suggest_derivative("2x = 1")
    ("write a derivative as x'' or D(x, 2), not as d^2x/dt^2", '')
    """
    found = re.search(r"\bd\^?(\d?)\s*\(?(\w*)\)?\s*/\s*\(?d\w+(?:\^\d)?\)?", line)
    if found is None:
        return ""
    order, name = int(found[1] or 1), re.sub(r"^\d", "", found[2]) or "x"
    plain = f"{name}' or D({name})" if order == 1 else f"{name}{chr(39) * order} or D({name}, {order})"
    return f"write a derivative as {plain}, not as {found[0]}"


FUNCTIONS = ("sqrt", "exp", "sin", "cos")
RESERVED = ("t", "D", "diff", *FUNCTIONS)

#: Limits on the input, far beyond practical equations, so that parsing always ends soon. Floats have exponents up to
#: 324; nesting is limited because functions that process a tree are recursive.
MAX_CHARACTERS = 200_000
MAX_EQUATIONS = 1_000
MAX_DIGITS = 400
MAX_DERIVATIVE_ORDER = 100


@dataclass(frozen=True)
class _Token:
    kind: str  # "number", "name", "prime", "end" or the symbol itself
    text: str
    start: int
    stop: int


_NUMBER_PATTERN = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PRIME_ORDERS = {"'": 1, "\u2019": 1, "\u2032": 1, "\u2033": 2, "\u2034": 3}
_SYMBOL_ALIASES = {"\u2212": "-", "\u00b7": "*", "\u00d7": "*", "\u22c5": "*"}
#: Function names that users may expect; a channel with such a name may not be written with "(t)".
_UNSUPPORTED_FUNCTIONS = {
    *("tan", "cot", "sec", "csc", "asin", "acos", "atan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh"),
    *("log", "ln", "log10", "log2", "abs", "sign", "sgn", "heaviside", "step", "dirac", "floor", "ceil", "erf"),
    *("min", "max", *FUNCTIONS),
}
_SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉"


def parse_equations(equations: str | Sequence[str]) -> list[Equation]:
    """Return the equations of a system from text (separated by newlines or semicolons) or from a list of texts.

    Examples
    --------
    >>> [equation.text for equation in parse_equations("x' = v; v' = -x  # a spring")]
    ["x' = v", "v' = -x"]
    """
    if isinstance(equations, bytes | Mapping | set) or not isinstance(equations, Iterable):
        raise EquationError(f"expected equations as text or a list of texts, got {type(equations).__name__}")
    lines = [equations] if isinstance(equations, str) else list(equations)
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise EquationError(
                f"expected equations as text or a list of texts; entry {number} is {type(line).__name__}. "
                "For matrices use System.from_operator_matrix or System.from_state_space."
            )
    size = sum(len(line) for line in lines)
    if size > MAX_CHARACTERS:
        raise EquationError(f"expected at most {MAX_CHARACTERS} characters of equations, got {size}; split the system")
    parsed: list[Equation] = []
    statements = (part for text in lines for line in text.splitlines() for part in line.split("#", 1)[0].split(";"))
    for line in filter(None, map(str.strip, statements)):
        if len(parsed) == MAX_EQUATIONS:
            raise EquationError(f"expected at most {MAX_EQUATIONS} equations; split the system")
        parsed.append(_Parser(line, len(parsed) + 1).equation())
    if not parsed:
        raise EquationError('expected at least one equation, got empty text; try "x\' = -a*x + u"')
    return parsed


def parse_expression(text: str) -> Expression:
    """Return a single expression, such as an observable ``f1 - f2'`` or a value ``2*l1``, as a tree."""
    if not isinstance(text, str):
        raise EquationError(f"expected an expression as text, got {type(text).__name__}")
    if len(text) > MAX_CHARACTERS:
        raise EquationError(f"expected at most {MAX_CHARACTERS} characters, got {len(text)}")
    line = text.split("#", 1)[0].strip()
    if not line:
        raise EquationError("expected an expression, got empty text")
    parser = _Parser(line, 0)
    expression = parser.sum()
    parser.expect_end()
    return expression


def check_name(name: object, role: str) -> str:
    """Return a `name` in its normal form; raise if it cannot name a channel or parameter, its `role`."""
    if not isinstance(name, str):
        raise EquationError(f"expected the name of a {role} as text, got {type(name).__name__} {name!r}")
    stripped = name.strip()
    try:
        tokens = list(_tokenize(stripped, 0)) if stripped else []
    except EquationError:
        tokens = []
    if len(tokens) != 2 or tokens[0].kind != "name" or tokens[0].stop != len(stripped):
        raise EquationError(
            f"{name!r} cannot name a {role}: expected letters, digits and underscores, starting with a letter"
        )
    if tokens[0].text in RESERVED:
        raise EquationError(f"{name!r} is reserved and cannot name a {role}; reserved are {', '.join(RESERVED)}")
    return tokens[0].text


def _tokenize(line: str, equation: int) -> Iterator[_Token]:
    position = 0
    while position < len(line):
        character = line[position]
        if character.isspace():
            position += 1
            continue
        start = position
        if number := _NUMBER_PATTERN.match(line, position):
            position = number.end()
            yield _Token("number", number.group(), start, position)
        elif character.isalpha() or character == "_":
            while position < len(line) and _continues_name(line[position]):
                position += 1
            yield _Token("name", _normalize_name(line, start, position, equation), start, position)
        elif character in _PRIME_ORDERS:
            position += 1
            yield _Token("prime", character, start, position)
        elif line.startswith("**", position):
            position += 2
            yield _Token("^", "**", start, position)
        elif line.startswith("==", position):
            message = "expected a single '=' between the two sides, got '=='"
            raise EquationError(message, Place(line, start, start + 2, equation))
        elif _SYMBOL_ALIASES.get(character, character) in "+-*/^=(),":
            position += 1
            yield _Token(_SYMBOL_ALIASES.get(character, character), character, start, position)
        else:
            raise EquationError(suggest_character(character), Place(line, start, start + 1, equation))
    yield _Token("end", "", len(line), len(line) + 1)


def _continues_name(character: str) -> bool:
    plain = character.isalpha() or character.isdecimal() or character in f"_{_SUBSCRIPTS}"
    return plain or unicodedata.category(character) == "Mn"


def _normalize_name(line: str, start: int, stop: int, equation: int) -> str:
    # NFC does not unify the micro sign with the Greek letter.
    name = unicodedata.normalize("NFC", line[start:stop]).replace("\u00b5", "\u03bc")
    # Vowels with two dots are letters of several languages, not derivatives.
    if dots := re.search("\u0307|(?<![aeiouyAEIOUY])\u0308", letters := unicodedata.normalize("NFD", name)):
        plain, primes = letters.replace(dots[0], ""), "'" if dots[0] == "\u0307" else "''"
        message = f"dots over a letter are not read as a derivative; write {plain}{primes}"
        raise EquationError(message, Place(line, start, stop, equation))
    return name


class _Parser:
    """Recursive descent over one line."""

    def __init__(self, line: str, equation: int) -> None:
        self._line = line
        self._equation_number = equation
        self._tokens = list(_tokenize(line, equation))
        self._position = 0
        self._depth = 0

    @property
    def _token(self) -> _Token:
        return self._tokens[self._position]

    def _next(self) -> _Token:
        token = self._token
        self._position += 1
        return token

    def _place(self, start: int) -> Place:
        return Place(self._line, start, self._tokens[self._position - 1].stop, self._equation_number)

    def _error(self, message: str, token: _Token) -> EquationError:
        return EquationError(message, Place(self._line, token.start, token.stop, self._equation_number))

    def equation(self) -> Equation:
        left = self.sum()
        right = None
        if self._token.kind == "=":
            self._next()
            right = self.sum()
            if self._token.kind == "=":
                message = "expected one '=' in an equation; write a second equation for the second"
                raise self._error(message, self._token)
        self.expect_end()
        return Equation(left, right, self._line)

    def expect_end(self) -> None:
        token = self._token
        if token.kind == "end":
            return
        if token.kind == ")":
            raise self._error("unbalanced parentheses: this ')' closes nothing; remove it or add a '('", token)
        if token.kind in ("name", "number", "("):
            before = self._tokens[self._position - 1].text
            hint = suggest_derivative(self._line) or "write a product with '*'"
            raise self._error(f"expected an operator after {before!r}; {hint}", token)
        around = self._tokens[self._position - 1].kind, token.kind, self._tokens[self._position + 1].kind
        advice = "; use a decimal point: 0.5" if around == ("number", ",", "number") else ""
        raise self._error(f"expected the end of the equation, got {token.text!r}{advice}", token)

    def sum(self) -> Expression:
        # Each level of parentheses, signs or powers passes here or through `_signed`; both are bounded.
        self._enter_level()
        start = self._token.start
        terms = [("+", self._product())]
        while self._token.kind in ("+", "-"):
            terms.append((self._next().kind, self._product()))
        self._depth -= 1
        return terms[0][1] if len(terms) == 1 else Sum(self._place(start), tuple(terms))

    def _enter_level(self) -> None:
        self._depth += 1
        if self._depth > 60:
            raise self._error("expected at most 60 levels of nesting; simplify the expression", self._token)

    def _product(self) -> Expression:
        start = self._token.start
        factors = [("*", self._signed())]
        while self._token.kind in ("*", "/"):
            factors.append((self._next().kind, self._signed()))
        return factors[0][1] if len(factors) == 1 else Product(self._place(start), tuple(factors))

    def _signed(self) -> Expression:
        if self._token.kind not in ("+", "-"):
            return self._power()
        self._enter_level()
        sign = self._next()
        operand = self._signed()
        self._depth -= 1
        return operand if sign.kind == "+" else Sum(self._place(sign.start), (("-", operand),))

    def _power(self) -> Expression:
        start = self._token.start
        base = self._derivative()
        if self._token.kind != "^":
            return base
        self._next()
        grouped = self._token.kind == "("
        self._enter_level()
        exponent = self._signed()
        self._depth -= 1
        return Power(self._place(start), base, exponent, grouped)

    def _derivative(self) -> Expression:
        start = self._token.start
        base = self._atom()
        if isinstance(base, Name):
            self._time_argument(base)
        order = 0
        while self._token.kind == "prime":
            order += _PRIME_ORDERS[self._next().text]
        if order > MAX_DERIVATIVE_ORDER:
            message = f"expected derivatives of order at most {MAX_DERIVATIVE_ORDER}, got {order}"
            raise EquationError(message, self._place(start))
        if order and isinstance(base, Name):
            self._time_argument(base)
        place = self._place(start)
        return Call(place, "D", (base, Number(place, Fraction(order)))) if order else base

    def _time_argument(self, base: Name) -> None:
        """Read the ``(t)`` of ``x(t)``, if any; raise for other content of these parentheses."""
        if self._token.kind != "(":
            return
        opening = self._next()
        content = self._tokens[self._position : self._position + 2]
        if base.name.lower() in _UNSUPPORTED_FUNCTIONS:
            tangent = suggest_linearization(base.name, self._line[opening.stop :].partition(")")[0])
            known = f"one of the known functions {', '.join(FUNCTIONS)}"
            message = f"{base.name!r} is not {known}; rename it if it is a channel"
            raise self._error(f"{message}.{tangent}" if tangent else message, opening)
        if [token.text for token in content] == ["t", ")"]:
            self._position += 2
            return
        if content[0].kind == "number" and len(content) > 1 and content[1].kind == ")":
            written = self._line[base.place.start : content[1].stop]
            raise self._error(f"{written} is a value at one time, not an equation; give it as a measurement", opening)
        if content[0].text == "t" and len(content) > 1 and content[1].kind in ("+", "-"):
            message = f"{base.name!r} is taken at another time; write delay({base.name}, ...) if it is a known input"
            raise self._error(f"{message}; delays of other channels are not supported", opening)
        hint = f"write {base.name}*(...) for a product. Known functions are {', '.join(FUNCTIONS)}, D, diff and delay"
        if base.name in ("mean", "total"):
            hint = "averages cannot appear in equations, only as names of columns and predictions: mean(T1 - T2, 300)"
        raise self._error(f"{base.name!r} is not a function; {hint}", opening)

    def _atom(self) -> Expression:
        token = self._next()
        if token.kind == "number":
            return Number(self._place(token.start), self._number_value(token))
        if token.kind == "name":
            if (token.text in RESERVED and token.text != "t") or self._opens_delay(token):
                return self._call(token)
            return Name(self._place(token.start), token.text)
        if token.kind == "(":
            inner = self.sum()
            self._close(token)
            return inner
        self._position -= 1
        if token.kind == "end":
            before = self._tokens[self._position - 1].text if self._position else ""
            where = f"after {before!r}" if before else "here"
            raise self._error(f"expected an expression {where}, got the end of the line", token)
        if token.kind == ")":
            raise self._error("expected an expression before ')'; check the parentheses", token)
        raise self._error(f"expected a name, a number or '(', got {token.text!r}", token)

    def _opens_delay(self, token: _Token) -> bool:
        """Return whether a token starts ``delay(u, T)`` rather than a channel or parameter of that name."""
        following = [part.text for part in self._tokens[self._position : self._position + 3]]
        return token.text == "delay" and following[0] == "(" and following[1:] != ["t", ")"]

    def _close(self, opening: _Token) -> None:
        if self._token.kind == ")":
            self._next()
        elif self._token.kind in ("end", "="):
            raise self._error("unbalanced parentheses: this '(' is never closed; add a ')'", opening)
        else:
            self.expect_end()

    def _call(self, function: _Token) -> Expression:
        name = function.text
        if self._token.kind != "(":
            kind = "derivative" if name in ("D", "diff") else "function"
            message = f"{name!r} is reserved for the {kind} {name}(...); choose another name"
            raise self._error(message, function)
        opening = self._next()
        arguments = [self.sum()]
        while self._token.kind == ",":
            self._next()
            arguments.append(self.sum())
        self._close(opening)
        return Call(self._place(function.start), name, tuple(arguments))

    def _number_value(self, token: _Token) -> Fraction:
        mantissa, _, exponent = token.text.lower().partition("e")
        if len(mantissa) > MAX_DIGITS:
            raise self._error(f"expected a number of at most {MAX_DIGITS} digits", token)
        if exponent and (len(exponent) > 8 or abs(int(exponent)) > MAX_DIGITS):
            raise self._error(f"expected a decimal exponent of at most {MAX_DIGITS}", token)
        return Fraction(mantissa) * Fraction(10) ** int(exponent or 0)
