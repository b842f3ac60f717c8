"""Units as users write them, such as ``kg*m/s^2``: parsing into powers of base units, and conversion factors."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from lodekit.support.text import format_quantity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Exponents by base unit; unknown words are quoted, so that they cannot be mistaken for units.
UnitPowers = dict[str, Fraction]

#: Units in terms of others, with numbers as factors; a degree Celsius has the size of a kelvin.
_UNITS = {
    "g": "", "m": "", "s": "", "A": "", "K": "", "mol": "", "cd": "", "rad": "1", "sr": "1",
    "N": "kg*m/s^2", "J": "N*m", "W": "J/s", "Pa": "N/m^2", "Hz": "1/s", "C": "A*s", "V": "W/A", "Ohm": "V/A",
    "ohm": "V/A", "Ω": "V/A", "F": "C/V", "H": "V*s/A", "S": "A/V", "T": "V*s/m^2", "Wb": "V*s", "L": "1/1000*m^3",
    "l": "1/1000*m^3", "bar": "100000*Pa", "eV": "", "min": "60*s", "h": "3600*s", "d": "86400*s", "day": "86400*s",
    "degC": "K", "°C": "K", "deg": "1/180*pi", "°": "1/180*pi", "%": "1/100", "rpm": "1/30*pi/s", "pi": "",
    "degF": "5/9*K", "°F": "5/9*K", "Wh": "3600*J", "sec": "s", "second": "s", "seconds": "s",
    "minute": "min", "minutes": "min", "hr": "h", "hour": "h", "hours": "h", "days": "d",
}  # fmt: skip
_PREFIXES = {
    "T": 12, "G": 9, "M": 6, "k": 3, "h": 2, "d": -1, "c": -2, "m": -3, "u": -6, "µ": -6, "μ": -6, "n": -9, "p": -12,
}  # fmt: skip
#: Units without prefixes: minutes, days, angles and dimensionless units.
_UNITS_WITHOUT_PREFIX = {
    "min", "h", "d", "day", "degC", "°C", "deg", "°", "%", "rpm", "pi", "rad", "sr", "degF", "°F",
    "second", "seconds", "minute", "minutes", "hr", "hour", "hours", "days",
}  # fmt: skip
#: The zero of temperature scales, in kelvins.
_TEMPERATURE_OFFSETS = {"K": Fraction(0), "degC": Fraction("273.15"), "degF": Fraction("459.67") * 5 / 9}
_TEMPERATURE_OFFSETS |= {"°C": _TEMPERATURE_OFFSETS["degC"], "°F": _TEMPERATURE_OFFSETS["degF"]}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_TOKEN_PATTERN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<word>[^\W\d_]+|[%°][A-Za-z]?)|(?P<power>\^|\*\*)|(?P<sign>[-*/()·⋅]))"
)


def parse_unit(text: str) -> UnitPowers | None:
    """Return a unit as exponents by base; None if the text is not a product of powers.

    Examples
    --------
    >>> parse_unit("N") == parse_unit("kg*m/s^2"), parse_unit("mm") == parse_unit("m")
    (True, False)
    >>> format_powers(parse_unit("pigs/m^2"))
    "'pigs'/m^2"
    """
    tokens: _Tokens = []
    place, text = 0, re.sub(r"([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)", r"^\1", text).translate(_SUPERSCRIPTS).strip()
    while place < len(text):
        found = _TOKEN_PATTERN.match(text, place)
        if found is None:
            return None
        tokens.append((str(found.lastgroup), str(found[found.lastgroup or 0])))
        place = found.end()
    try:
        powers = _parse_product(tokens)
    except (RecursionError, ValueError, ZeroDivisionError):  # the first if brackets are nested too deeply
        return None
    return powers if not tokens else None


def format_powers(powers: UnitPowers) -> str:
    """Return a product of powers as text: ``u*t/x``, ``1/t^2``; ``1`` without powers.

    Examples
    --------
    >>> format_powers({"u": Fraction(1), "t": Fraction(-2), "x": Fraction(-1, 2)})
    'u/(t^2*x^(1/2))'
    """

    def product(sign: int) -> str:
        sizes = {name: sign * power for name, power in powers.items() if sign * power > 0}
        shown = {name: f"{size}" if size.denominator == 1 else f"({size})" for name, size in sizes.items()}
        return "*".join(name if sizes[name] == 1 else f"{name}^{size}" for name, size in shown.items())

    above, below = product(1) or "1", product(-1)
    return above if not below else f"{above}/({below})" if "*" in below else f"{above}/{below}"


def combine_powers(first: UnitPowers, second: UnitPowers, power: Fraction | int = 1) -> UnitPowers:
    """Return the product of `first` and of `second` to a `power`, without exponents that are zero."""
    total = {name: first.get(name, Fraction(0)) + power * second.get(name, 0) for name in {**first, **second}}
    return {name: exponent for name, exponent in total.items() if exponent}


@dataclass(frozen=True)
class UnitConversion:
    """An affine unit conversion: ``value * factor / divisor + offset``.

    factor, divisor: Separate, so that milliseconds become seconds with one rounding.
    offset: Nonzero between temperatures only.

    Examples
    --------
    >>> import numpy as np
    >>> find_unit_conversion("ms", "s").convert(np.array([1500.0])).tolist()
    [1.5]
    """

    factor: float = 1.0
    divisor: float = 1.0
    offset: float = 0.0

    @property
    def is_identity(self) -> bool:
        """Whether values are unchanged."""
        return self == UnitConversion()

    def convert(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values in the other unit."""
        return self.convert_difference(values) + self.offset if self.offset else self.convert_difference(values)

    def convert_difference(self, differences: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return differences of values, such as standard deviations, in the other unit."""
        if self.factor != 1.0:
            differences = differences * self.factor
        return differences / self.divisor if self.divisor != 1.0 else differences


def is_known_unit(unit: str) -> bool:
    """Return whether a text is a unit composed of known units.

    Examples
    --------
    >>> is_known_unit("m/s"), is_known_unit("filtered"), is_known_unit("3")
    (True, False, False)
    """
    powers = parse_unit(unit)
    return powers is not None and bool(re.search(r"[^\W\d_]|[%°]", unit)) and not any(base[0] == "'" for base in powers)


def find_unit_conversion(unit: str, target: str) -> UnitConversion | None:
    """Return the conversion from one unit to another; None if they are incompatible.

    Examples
    --------
    >>> find_unit_conversion("degC", "K").offset, find_unit_conversion("m", "s")
    (273.15, None)
    """
    unit, target = unit.strip(), target.strip()
    if unit == target:
        return UnitConversion()
    first, second = parse_unit(unit), parse_unit(target)
    if first is None or second is None:
        return None
    ratio = combine_powers(first, second, -1)
    if any(base != "pi" and not base.isdigit() for base in ratio):
        return None
    times = over = 1.0
    try:
        for base, power in ratio.items():
            size = (math.pi if base == "pi" else float(base)) ** float(abs(power))
            times, over = (times * size, over) if power > 0 else (times, over * size)
    except OverflowError:
        return None
    if not math.isfinite(times + over):
        return None
    zeros = [_TEMPERATURE_OFFSETS.get(each) for each in (unit, target)]
    shift = zeros[0] - zeros[1] if zeros[0] is not None and zeros[1] is not None else Fraction(0)
    return UnitConversion(times, over, float(shift / (Fraction(5, 9) if target in ("degF", "°F") else 1)))


def format_duration(duration: float, unit: str, digits: int = 2) -> str:
    """Return a duration with its unit; in days, hours or minutes if the number is large.

    Examples
    --------
    >>> format_duration(207000.0, "s"), format_duration(90.0, "s"), format_duration(5000.0, "")
    ('2.4 d', '90 s', '5000')
    """
    for own in ("d", "h", "min") if duration >= 1000.0 and unit else ():
        found = find_unit_conversion(unit, own)
        if found and duration * found.factor >= found.divisor:
            return format_quantity(duration * found.factor / found.divisor, own, digits)
    return format_quantity(duration, unit, digits)


def unix_time_unit(time: float, unit: str) -> str:
    """Return the unit of a time since 1970 that cannot be in the given unit; empty for other times.

    Examples
    --------
    >>> unix_time_unit(1.7e9, "h"), unix_time_unit(1.7e12, "s"), unix_time_unit(1.7e9, "s"), unix_time_unit(1e5, "h")
    ('s', 'ms', '', '')
    """
    conversion = find_unit_conversion(unit, "s")
    given = conversion.factor / conversion.divisor if conversion else 0.0
    sizes = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    # The years 2001 to 2096.
    return next((own for own, size in sizes.items() if 1e9 <= time * size < 4e9 and given > 1.5 * size), "")


_Tokens = list[tuple[str, str]]  # kinds and texts; the parsers below remove what they read


def _take(tokens: _Tokens, *texts: str) -> str:
    return tokens.pop(0)[1] if tokens and tokens[0][1] in texts else ""


def _parse_product(tokens: _Tokens) -> UnitPowers:
    total = _parse_factor(tokens)
    while tokens and tokens[0][1] != ")":
        sign = -1 if _take(tokens, "*", "·", "⋅", "/") == "/" else 1
        total = combine_powers(total, _parse_factor(tokens), sign)
    return total


def _parse_factor(tokens: _Tokens) -> UnitPowers:
    if _take(tokens, "("):
        inner = _parse_product(tokens)
        if not _take(tokens, ")"):
            raise ValueError("a bracket is missing")
    else:
        kind, text = tokens.pop(0) if tokens else ("", "")
        if kind not in ("number", "word"):
            raise ValueError("expected a unit or a number")
        inner = _prime_factors(Fraction(text)) if kind == "number" else _unit_powers(text)
    # m2 and s-1 are powers, too.
    follows = bool(tokens) and (tokens[0][0] == "number" or tokens[0][1] == "-")
    if not _take(tokens, "^", "**") and not follows:
        return inner
    power = _parse_exponent(tokens)
    return {base: value * power for base, value in inner.items()}


def _parse_exponent(tokens: _Tokens) -> Fraction:
    bracket, sign = _take(tokens, "("), -1 if _take(tokens, "-") else 1
    kind, text = tokens.pop(0) if tokens else ("", "")
    if kind != "number":
        raise ValueError("expected an exponent")
    value = sign * Fraction(text)
    if bracket and _take(tokens, "/"):
        value /= Fraction(tokens.pop(0)[1] if tokens else "0")
    if bracket and not _take(tokens, ")"):
        raise ValueError("a bracket is missing")
    return value


def _unit_powers(word: str) -> UnitPowers:
    """Return the powers of a word: a known unit, a unit with a prefix, or a new base."""
    if word in _UNITS:
        return (parse_unit(_UNITS[word]) or {}) if _UNITS[word] else {word: Fraction(1)}
    prefix, unit = word[:1], word[1:]
    if prefix in _PREFIXES and unit in _UNITS and unit not in _UNITS_WITHOUT_PREFIX:
        return combine_powers(_unit_powers(unit), dict.fromkeys(("2", "5"), Fraction(_PREFIXES[prefix])))
    return {f"'{word}'": Fraction(1)}


def _prime_factors(value: Fraction) -> UnitPowers:
    """Return the prime factorization of a positive number."""
    if value <= 0:
        raise ValueError("expected a positive number")
    powers: UnitPowers = {}
    for number, sign in ((value.numerator, 1), (value.denominator, -1)):
        remainder, prime = number, 2
        while remainder > 1:
            while remainder % prime == 0:
                powers[str(prime)] = powers.get(str(prime), Fraction(0)) + sign
                remainder //= prime
            prime += 1
            if prime > 1000:
                raise ValueError("expected a number with small factors")
    return powers
