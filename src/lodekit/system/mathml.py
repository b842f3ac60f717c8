"""Equations as MathML, which browsers show without any script."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from decimal import Decimal, localcontext
from fractions import Fraction
from html import escape

from lodekit.system.display import GREEK, split_name
from lodekit.system.facts import Facts
from lodekit.system.grammar import parse_equations
from lodekit.system.tree import Call, Derivative, Expression, Name, Negative, Number, Power, Product, Sum, walk

__all__ = ["equations_to_mathml", "name_to_mathml"]

_PRIMES = {1: "′", 2: "″", 3: "‴"}
_GAP = '<mspace width="0.16em"></mspace>'
_TIMES = "<mo>·</mo>"
_MINUS = "<mo>−</mo>"


def equations_to_mathml(system: Facts) -> list[str]:
    """Return the equations of a system as MathML, one each, as the user has written them.

    Channels and parameters carry these words as their class, so that a style can tell them apart.

    Parameters
    ----------
    system : System

    Examples
    --------
    >>> import lodekit as lk
    >>> equations_to_mathml(lk.System("tau*x' = u", parameters=["tau"]))[0].count('class="parameter"')
    1
    """
    writer = _Writer(system.channels, system.parameters)
    lines = []
    for equation in parse_equations(system.equations):
        right = "<mn>0</mn>" if equation.right is None else writer.write(equation.right)
        lines.append(f'<math display="block">{writer.write(equation.left)}<mo>=</mo>{right}</math>')
    return lines


def name_to_mathml(name: str, role: str = "") -> str:
    """Return a name as MathML: Greek letters by name; digits at its end, and what follows an underscore, as subscript.

    Parameters
    ----------
    name : str
        Of a channel, a parameter or a function.
    role : str
        Becomes the class of its letters; none where empty.

    Examples
    --------
    >>> name_to_mathml("TH1")
    '<msub><mi class="word">TH</mi><mn>1</mn></msub>'
    >>> name_to_mathml("tau", "parameter")
    '<mi class="parameter">τ</mi>'
    """
    head, below = split_name(name)
    shown = GREEK.get(head, head) or "_"
    classes = " ".join(part for part in (role, "word" if len(shown) > 1 else "") if part)
    base = f'<mi class="{classes}">{escape(shown)}</mi>' if classes else f"<mi>{escape(shown)}</mi>"
    if not below:
        return base
    parts = [f"<mn>{part}</mn>" if part.isdecimal() else f"<mtext>{escape(part)}</mtext>" for part in below]
    subscript = _row("<mo>,</mo>".join(parts)) if len(parts) > 1 else parts[0]
    return f"<msub>{base}{subscript}</msub>"


def _row(content: str) -> str:
    return f"<mrow>{content}</mrow>"


def _bracket(content: str) -> str:
    return f"<mrow><mo>(</mo>{content}<mo>)</mo></mrow>"


def _number(value: Fraction) -> str:
    """Return an exact number: a decimal, a decimal times a power of ten, or a fraction."""
    with localcontext() as context:
        # More than the grammar reads, digits and exponent together.
        context.prec = 1000
        digits = (Decimal(value.numerator) / Decimal(value.denominator)).normalize()
        power = digits.adjusted()
        mantissa = digits.scaleb(-power)
    if Fraction(digits) != value:
        return f"<mfrac><mn>{value.numerator}</mn><mn>{value.denominator}</mn></mfrac>"
    if value and not -5 <= power <= 6:
        first = "" if mantissa == 1 else f"<mn>{mantissa:f}</mn><mo>·</mo>"
        exponent = f"<mn>{power}</mn>" if power > 0 else f"<mrow><mo>−</mo><mn>{-power}</mn></mrow>"
        return _row(f"{first}<msup><mn>10</mn>{exponent}</msup>")
    return f"<mn>{digits:f}</mn>"


def _split_sign(node: Expression) -> tuple[bool, Expression]:
    """Return whether an expression begins with a minus, and the expression without it."""
    if isinstance(node, Negative):
        inner, rest = _split_sign(node.operand)
        return not inner, rest
    if isinstance(node, Product):
        (operator, first), *others = node.factors
        negative, rest = _split_sign(first)
        return negative, Product(node.place, ((operator, rest), *others))
    return False, node


class _Writer:
    """Expression trees to MathML; knows which names are channels."""

    def __init__(self, channels: Collection[str], parameters: Iterable[str]) -> None:
        self._channels = set(channels)
        self._roles = {**dict.fromkeys(channels, "channel"), **dict.fromkeys(parameters, "parameter")}

    def write(self, node: Expression) -> str:
        """Return MathML elements that belong in one row."""
        negative, rest = _split_sign(node)
        if negative:
            return _MINUS + self._factor(rest, whole=isinstance(rest, Product))
        match node:
            case Number():
                return _number(node.value)
            case Name():
                return name_to_mathml(node.name, self._roles.get(node.name, ""))
            case Sum():
                return self._sum(node)
            case Product():
                return self._product(node)
            case Power():
                return self._power(node)
            case Derivative():
                return self._derivative(node.operand, node.order)
            case Call():
                return self._call(node)
            case Negative():  # two signs that cancel
                return self.write(rest)

    def _factor(self, node: Expression, *, whole: bool = False) -> str:
        """Return an expression in brackets where it would fall apart beside others."""
        text = self.write(node)
        loose = isinstance(node, Sum | Negative) or (isinstance(node, Product) and _split_sign(node)[0])
        return _bracket(text) if loose and not whole else text

    def _sum(self, node: Sum) -> str:
        text = ""
        for sign, term in node.terms:
            negative, rest = _split_sign(term)
            minus = (sign == "-") != negative
            text += (_MINUS if minus else "<mo>+</mo>" if text else "") + self._factor(rest)
        return text

    def _product(self, node: Product) -> str:
        """Return factors side by side; what is divided becomes a fraction with everything since the last fraction."""
        groups: list[tuple[list[Expression], list[Expression]]] = []
        for operator, factor in node.factors:
            if operator == "/" and groups:
                groups[-1][1].append(factor)
            elif groups and not groups[-1][1]:
                groups[-1][0].append(factor)
            else:
                groups.append(([factor], []))
        text = ""
        for above, below in groups:
            shown = self._beside(above, alone=bool(below))
            if below:
                shown = f"<mfrac>{_row(shown)}{_row(self._beside(below, alone=True))}</mfrac>"
            text += (_TIMES if text and self._starts_with_number(above[0]) else _GAP if text else "") + shown
        return text

    def _beside(self, factors: list[Expression], *, alone: bool) -> str:
        """Return factors without divisions; one that stands alone over or under a line needs no brackets."""
        if alone and len(factors) == 1:
            return self.write(factors[0])
        text = ""
        for factor in factors:
            between = _TIMES if self._starts_with_number(factor) else _GAP
            text += (between if text else "") + self._factor(factor)
        return text

    def _starts_with_number(self, node: Expression) -> bool:
        if isinstance(node, Power):
            return self._starts_with_number(node.base)
        if isinstance(node, Product):
            return self._starts_with_number(node.factors[0][1])
        return isinstance(node, Number)

    def _power(self, node: Power) -> str:
        if node.grouped and isinstance(node.exponent, Number) and self._mentions_channel(node.base):
            return self._derivative(node.base, int(node.exponent.value))
        base = self.write(node.base)
        simple = isinstance(node.base, Name) or (isinstance(node.base, Number) and node.base.value.denominator == 1)
        return f"<msup>{_row(base) if simple else _bracket(base)}{_row(self.write(node.exponent))}</msup>"

    def _mentions_channel(self, node: Expression) -> bool:
        return any(isinstance(part, Name) and part.name in self._channels for part in walk(node))

    def _derivative(self, operand: Expression, order: int) -> str:
        if not order:
            return self._factor(operand)
        if isinstance(operand, Call) and operand.function == "delay":
            return self._delayed(self._derivative(operand.arguments[0], order), operand)
        base = self.write(operand) if isinstance(operand, Name) else _bracket(self.write(operand))
        if order in _PRIMES:
            # Primes are raised in every font; as a superscript they would be raised, and made small, twice.
            return _row(f'{base}<mo lspace="0" rspace="0">{_PRIMES[order]}</mo>')
        return f"<msup>{base}<mrow><mo>(</mo><mn>{order}</mn><mo>)</mo></mrow></msup>"

    def _call(self, node: Call) -> str:
        first, *rest = node.arguments
        if node.function == "D":
            order = rest[0].value if rest and isinstance(rest[0], Number) else 1
            return self._derivative(first, int(order))
        if node.function == "diff":
            # A number counts the t before it anew: diff(x, t, 2).
            orders = [int(part.value) - 1 if isinstance(part, Number) else 1 for part in rest]
            return self._derivative(first, sum(orders))
        if node.function == "delay":
            return self._delayed(self._factor(first), node)
        argument = self.write(first)
        if node.function == "sqrt":
            return f"<msqrt>{argument}</msqrt>"
        if node.function == "exp":
            return f"<msup><mi>e</mi>{_row(argument)}</msup>"
        return f"<mi>{escape(node.function)}</mi><mo>&#x2061;</mo>{_bracket(argument)}"

    def _delayed(self, content: str, node: Call) -> str:
        """Return something at an earlier time, as a function of t."""
        later = node.arguments[1]
        shown = _bracket(self.write(later)) if isinstance(later, Sum | Negative) else self.write(later)
        return f"{content}<mo>&#x2061;</mo>{_bracket(f'<mi>t</mi>{_MINUS}{shown}')}"
