"""Text to expression trees: a recursive-descent parser for linear ODE systems. Nothing is ever evaluated as code.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lodekit.errors import EquationError, Place
from lodekit.system.remedies import suggest_character, suggest_derivative, suggest_tangent
from lodekit.system.tree import Call, Derivative, Equation, Expression, Name, Negative, Number, Power, Product, Sum

__all__ = [
    "FUNCTIONS",
    "MAX_DECIMAL_EXPONENT",
    "MAX_DIGITS",
    "MAX_ORDER",
    "RESERVED",
    "check_name",
    "parse_equations",
    "parse_expression",
]

FUNCTIONS = ("sqrt", "exp", "sin", "cos")
RESERVED = ("t", "D", "diff", *FUNCTIONS)

#: Bounds on what is read, far beyond what people write, so that no text can make the reading run away. Floats have
#: exponents up to 324; nesting is bounded because all that reads a tree calls itself.
MAX_CHARACTERS = 200_000
MAX_EQUATIONS = 1_000
MAX_DEPTH = 60
MAX_DIGITS = 400
MAX_DECIMAL_EXPONENT = 400
MAX_ORDER = 100


@dataclass(frozen=True)
class _Token:
    kind: str  # "number", "name", "prime", "end" or the symbol itself
    text: str
    start: int
    stop: int


_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PRIMES = {"'": 1, "\u2019": 1, "\u2032": 1, "\u2033": 2, "\u2034": 3}
_SAME = {"\u2212": "-", "\u00b7": "*", "\u00d7": "*", "\u22c5": "*"}
#: Functions that people may expect; a channel of that name may not be written with "(t)".
_OTHER_FUNCTIONS = {
    *("tan", "cot", "sec", "csc", "asin", "acos", "atan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh"),
    *("log", "ln", "log10", "log2", "abs", "sign", "sgn", "heaviside", "step", "dirac", "floor", "ceil", "erf"),
    *FUNCTIONS,
}
_SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉"


def parse_equations(equations: str | Sequence[str]) -> list[Equation]:
    """Return the equations of a system, given as text (newlines or semicolons between them) or as a list of texts.

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
    for line in _statements(lines):
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
    """Return a `name` in its normal form, or say why it cannot name a channel or parameter, its `role`."""
    if not isinstance(name, str):
        raise EquationError(f"expected the name of a {role} as text, got {type(name).__name__} {name!r}")
    stripped = name.strip()
    try:
        tokens = list(_tokens(stripped, 0)) if stripped else []
    except EquationError:
        tokens = []
    if len(tokens) != 2 or tokens[0].kind != "name" or tokens[0].stop != len(stripped):
        raise EquationError(
            f"{name!r} cannot name a {role}: expected letters, digits and underscores, starting with a letter"
        )
    if tokens[0].text in RESERVED:
        raise EquationError(f"{name!r} is reserved and cannot name a {role}; reserved are {', '.join(RESERVED)}")
    return tokens[0].text


def _statements(lines: Sequence[str]) -> Iterator[str]:
    for text in lines:
        for line in text.splitlines():
            for part in line.split("#", 1)[0].split(";"):
                if part.strip():
                    yield part.strip()


def _tokens(line: str, equation: int) -> Iterator[_Token]:
    position = 0
    while position < len(line):
        character = line[position]
        if character.isspace():
            position += 1
            continue
        start = position
        if number := _NUMBER.match(line, position):
            position = number.end()
            yield _Token("number", number.group(), start, position)
        elif character.isalpha() or character == "_":
            while position < len(line) and _continues_name(line[position]):
                position += 1
            yield _Token("name", _normal_name(line, start, position, equation), start, position)
        elif character in _PRIMES:
            position += 1
            yield _Token("prime", character, start, position)
        elif line.startswith("**", position):
            position += 2
            yield _Token("^", "**", start, position)
        elif line.startswith("==", position):
            raise EquationError(
                "expected a single '=' between the two sides, got '=='", Place(line, start, start + 2, equation)
            )
        elif _SAME.get(character, character) in "+-*/^=(),":
            position += 1
            yield _Token(_SAME.get(character, character), character, start, position)
        else:
            raise EquationError(suggest_character(character), Place(line, start, start + 1, equation))
    yield _Token("end", "", len(line), len(line) + 1)


def _continues_name(character: str) -> bool:
    return (
        character.isalpha()
        or character == "_"
        or character in _SUBSCRIPTS
        or character.isdecimal()
        or unicodedata.category(character) == "Mn"
    )


def _normal_name(line: str, start: int, stop: int, equation: int) -> str:
    # The micro sign looks like the Greek letter; NFC leaves them apart.
    name = unicodedata.normalize("NFC", line[start:stop]).replace("\u00b5", "\u03bc")
    # Vowels with two dots are letters of several languages.
    if dots := re.search("\u0307|(?<![aeiouyAEIOUY])\u0308", letters := unicodedata.normalize("NFD", name)):
        plain, primes = letters.replace(dots[0], ""), "'" if dots[0] == "\u0307" else "''"
        message = f"dots over a letter are not read as a derivative; write {plain}{primes}"
        raise EquationError(message, Place(line, start, stop, equation))
    return name


class _Parser:
    """Recursive descent over one line."""

    def __init__(self, line: str, equation: int) -> None:
        self._line = line
        self._number = equation
        self._tokens = list(_tokens(line, equation))
        self._position = 0
        self._depth = 0

    @property
    def _token(self) -> _Token:
        return self._tokens[self._position]

    def _next(self) -> _Token:
        token = self._token
        self._position += 1
        return token

    def _place(self, start: int, stop: int | None = None) -> Place:
        end = self._tokens[self._position - 1].stop if stop is None else stop
        return Place(self._line, start, end, self._number)

    def _error(self, message: str, token: _Token) -> EquationError:
        return EquationError(message, Place(self._line, token.start, token.stop, self._number))

    def equation(self) -> Equation:
        left = self.sum()
        right = None
        if self._token.kind == "=":
            self._next()
            right = self.sum()
            if self._token.kind == "=":
                raise self._error(
                    "expected one '=' in an equation; write a second equation for the second", self._token
                )
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
        raise self._error(f"expected the end of the equation, got {token.text!r}", token)

    def sum(self) -> Expression:
        # Each level of parentheses, signs or powers passes here or through `_signed`; both are bounded.
        self._deeper()
        start = self._token.start
        terms = [("+", self._product())]
        while self._token.kind in ("+", "-"):
            terms.append((self._next().kind, self._product()))
        self._depth -= 1
        return terms[0][1] if len(terms) == 1 else Sum(self._place(start), tuple(terms))

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"expected at most {MAX_DEPTH} levels of nesting; simplify the expression", self._token)

    def _product(self) -> Expression:
        start = self._token.start
        factors = [("*", self._signed())]
        while self._token.kind in ("*", "/"):
            factors.append((self._next().kind, self._signed()))
        return factors[0][1] if len(factors) == 1 else Product(self._place(start), tuple(factors))

    def _signed(self) -> Expression:
        if self._token.kind not in ("+", "-"):
            return self._power()
        self._deeper()
        sign = self._next()
        operand = self._signed()
        self._depth -= 1
        return operand if sign.kind == "+" else Negative(self._place(sign.start), operand)

    def _power(self) -> Expression:
        start = self._token.start
        base = self._derivative()
        if self._token.kind != "^":
            return base
        self._next()
        grouped = self._token.kind == "("
        self._deeper()
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
            order += _PRIMES[self._next().text]
        if order > MAX_ORDER:
            raise EquationError(f"expected derivatives of order at most {MAX_ORDER}, got {order}", self._place(start))
        if order and isinstance(base, Name):
            self._time_argument(base)
        return base if order == 0 else Derivative(self._place(start), base, order)

    def _time_argument(self, base: Name) -> None:
        """Read the ``(t)`` of ``x(t)``, if any; anything else in those parentheses is a mistake that can be named."""
        if self._token.kind != "(":
            return
        opening = self._next()
        content = self._tokens[self._position : self._position + 2]
        if base.name.lower() in _OTHER_FUNCTIONS:
            tangent = suggest_tangent(base.name, self._line[opening.stop :].partition(")")[0])
            what = (
                f"{base.name!r} is not one of the known functions {', '.join(FUNCTIONS)}; rename it if it is a channel"
            )
            raise self._error(f"{what}.{tangent}" if tangent else what, opening)
        if [token.text for token in content] == ["t", ")"]:
            self._position += 2
            return
        if content[0].kind == "number" and len(content) > 1 and content[1].kind == ")":
            written = self._line[base.place.start : content[1].stop]
            raise self._error(f"{written} is a value at one time, not an equation; give it as a measurement", opening)
        if content[0].text == "t" and len(content) > 1 and content[1].kind in ("+", "-"):
            raise self._error(f"{base.name!r} is taken at another time; write delay({base.name}, ...)", opening)
        hint = f"write {base.name}*(...) for a product. Known functions are {', '.join(FUNCTIONS)}, D, diff and delay"
        if base.name in ("mean", "total"):
            hint = "averages stand alone, as names of columns and of what is predicted: mean(T1 - T2, 300)"
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
        """Tell ``delay(u, T)`` from a channel or parameter of that name, which is not reserved."""
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
            raise self._error(
                f"{name!r} is reserved for the function; write {name}(...) or choose another name", function
            )
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
        if exponent and (len(exponent) > 8 or abs(int(exponent)) > MAX_DECIMAL_EXPONENT):
            raise self._error(f"expected a decimal exponent of at most {MAX_DECIMAL_EXPONENT}", token)
        return Fraction(mantissa) * Fraction(10) ** int(exponent or 0)
