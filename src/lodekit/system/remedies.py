"""What to write instead: of what is not linear the tangent, of other notations ours, of a slip what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "find_alike",
    "find_dotted",
    "suggest_character",
    "suggest_derivative",
    "suggest_inverse",
    "suggest_power",
    "suggest_product",
    "suggest_tangent",
]

#: What small angles and small numbers leave of a function.
_SMALL = {
    **dict.fromkeys(("sin", "tan", "asin", "atan", "arcsin", "arctan", "sinh", "tanh"), "{0}"),
    **dict.fromkeys(("cos", "cosh"), "1"),
    "exp": "1 + {0}",
}
#: The tangent at c.
_TANGENTS = {
    "sin": "sin(c) + cos(c)*({0} - c)",
    "cos": "cos(c) - sin(c)*({0} - c)",
    "exp": "exp(c) + exp(c)*({0} - c)",
    "sqrt": "sqrt(c) + ({0} - c)/(2*sqrt(c))",
}
_HOW = "with a number for c"


def suggest_tangent(function: str, argument: str) -> str:
    """Return what to write for a function of a channel, in a sentence with a blank before it.

    Parameters
    ----------
    function : str
        Such as ``sin``; of functions that have no tangent everywhere, nothing is suggested.
    argument : str
        What it is taken of, as it was written.

    Examples
    --------
    >>> print(suggest_tangent("sin", "theta"))  # doctest: +ELLIPSIS
     Linearise it: where theta stays small, write theta for sin(theta); near another value c, ...
    >>> print(suggest_tangent("sqrt", "h"))
     Linearise it: near a value c, write sqrt(c) + (h - c)/(2*sqrt(c)) with a number for c
    """
    name, inner = function.lower(), argument.strip()
    if re.search(r"\bt\b", inner):
        # A function of time has nothing to be linearised in.
        return ""
    plain = inner if re.fullmatch(r"\w+", inner) else f"({inner})"
    ways = []
    if name in _SMALL:
        ways.append(f"where {inner} stays small, write {_SMALL[name].format(plain)} for {function}({inner})")
    if name in _TANGENTS:
        near = "near another value c," if ways else "near a value c, write"
        ways.append(f"{near} {_TANGENTS[name].format(inner)} {_HOW}")
    return f" Linearise it: {'; '.join(ways)}" if ways else ""


def suggest_product(first: str, second: str) -> str:
    """Return what to write for a product of two channels.

    Parameters
    ----------
    first, second : str
        The channels.

    Examples
    --------
    >>> print(suggest_product("x", "y"))
     Otherwise linearise it: near x = a and y = b write b*x + a*y - a*b, with numbers for a and b
    """
    near = f"near {first} = a and {second} = b write b*{first} + a*{second} - a*b"
    return f" Otherwise linearise it: {near}, with numbers for a and b"


def suggest_power(name: str, exponent: int) -> str:
    """Return what to write for a power of a channel.

    Parameters
    ----------
    name : str
        The channel.
    exponent : int
        Above one.

    Examples
    --------
    >>> print(suggest_power("x", 2))
    ; or linearise it: near a value c write c^2 + 2*c*(x - c) with a number for c
    """
    slope = f"*c^{exponent - 1}" if exponent > 2 else "*c"
    return f"; or linearise it: near a value c write c^{exponent} + {exponent}{slope}*({name} - c) {_HOW}"


def suggest_inverse(name: str) -> str:
    """Return what to write for one over a channel.

    Examples
    --------
    >>> print(suggest_inverse("x"))
     Linearise it: near a value c write 1/c - (x - c)/c^2 for 1/x, with a number for c
    """
    return f" Linearise it: near a value c write 1/c - ({name} - c)/c^2 for 1/{name}, {_HOW}"


def find_alike(name: str, others: Iterable[str]) -> str:
    """Return the one of `others` that a `name` may be a slip of; nothing where none is alike.

    Examples
    --------
    >>> find_alike("temprature", ["pressure", "temperature"]), find_alike("T2", ["T1", "Q"]), find_alike("u", ["x"])
    ('temperature', 'T1', '')
    """
    known = [other for other in others if other != name]
    same = [other for other in known if other.casefold() == name.casefold()]
    # A single letter is like every other; of two, one has to stay.
    found = same or (
        get_close_matches(name, known, n=1, cutoff=0.5 if len(name) == 2 else 0.7) if len(name) > 1 else []
    )
    return found[0] if found else ""


def suggest_character(character: str) -> str:
    """Return what to write for a character that equations do not have.

    Examples
    --------
    >>> suggest_character("[")
    "unexpected character '['; use parentheses ( )"
    """
    hints = {
        '"': "write two single quotes, x'', for a second derivative",
        "[": "use parentheses ( )",
        "]": "use parentheses ( )",
        "{": "use parentheses ( )",
        "}": "use parentheses ( )",
        "<": "an equation needs '='; inequalities are not supported",
        ">": "an equation needs '='; inequalities are not supported",
        ":": "an equation needs a plain '='",
        "!": "an equation needs a plain '='",
        "²": "write x^2 for a power, x'' for a derivative",
        "³": "write x^3 for a power, x''' for a derivative",
    }
    hint = hints.get(character, "allowed are names, numbers, + - * / ^ ' ( ) , = and #")
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    return f"unexpected character {shown!r}; {hint}"


def suggest_derivative(line: str) -> str:
    """Return what to write for a derivative in the notation of Leibniz, ``d^2x/dt^2``; nothing where there is none.

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


def find_dotted(channels: Iterable[str]) -> tuple[str, str, int] | None:
    """Return a channel that is called like the derivative of another, ``x_dot``, that one, and the order; or None.

    Examples
    --------
    >>> find_dotted(["x", "x_ddot"]), find_dotted(["x", "spot"])
    (('x_ddot', 'x', 2), None)
    """
    known = list(channels)
    for name in known:
        found = re.fullmatch(r"(\w+?)_?(d{1,3})ot", name)
        if found and found[1] in known:
            return name, found[1], len(found[2])
    return None
