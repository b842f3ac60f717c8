"""Formatting of numbers with their standard errors, counts, lists and sentences; suggestions for misspelled names."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from lodekit.errors import ArgumentError


def significant_digits(value: float, step: float, minimum: int = 4) -> int:
    """Return the number of significant digits that shows a step size with two digits.

    Examples
    --------
    >>> significant_digits(4.0, 0.000052, 4), significant_digits(4.0, 0.5, 4)
    (7, 4)
    """
    if not (step > 0 and value and math.isfinite(step) and math.isfinite(value)):
        return minimum
    return min(max(math.floor(math.log10(abs(value))) - math.floor(math.log10(step)) + 2, minimum), 17)


def format_uncertain(value: float, error: float) -> str:
    """Return a `value` with its `error` as text, rounded to two digits of the error.

    Examples
    --------
    >>> format_uncertain(2.97161, 0.0421), format_uncertain(1234567.0, 890.0), format_uncertain(1.5e-9, 2.1e-11)
    ('2.972 ± 0.042', '1234570 ± 890', '(1.500 ± 0.021)e-9')
    """
    largest = max(abs(value), error)
    if not (math.isfinite(largest) and error > 1e-12 * largest):
        return f"{value:.5g}"
    power = math.floor(math.log10(largest))
    power = power if not -4 <= power < 8 else 0
    places = 1 - math.floor(math.log10(error)) + power
    first, second = (round(number / 10.0**power, places) for number in (value, error))
    shown = f"{first:.{max(places, 0)}f} ± {second:.{max(places, 0)}f}"
    return f"({shown})e{power}" if power else shown


def format_number(value: float, error: float) -> str:
    """Return a `value` rounded to two digits of its `error`, with at least four digits.

    Examples
    --------
    >>> format_number(2.971612345, 0.0421), format_number(3.0, 0.0), format_number(1.00000123456, 6e-8)
    ('2.972', '3', '1.000001235')
    """
    return f"{value:.{significant_digits(value, error)}g}"


def round_to_error(value: float, error: float) -> str:
    """Return a `value` with two digits of its `error`, also if they are zero; with four digits if there is none.

    Examples
    --------
    >>> round_to_error(53.3982, 8.18), round_to_error(0.49995, 0.031), round_to_error(1.4587e-9, 2.1e-11)
    ('53.4', '0.500', '1.459e-09')
    >>> round_to_error(8532.4, 134.0), round_to_error(134.04, 134.0), round_to_error(2.5, 0.0)
    ('8532', '134', '2.5')
    """
    if not 0.0 < error < math.inf:
        return format_number(value, error)
    digits = significant_digits(value, error, 1)
    # Numbers below a million have no exponent.
    whole = len(str(int(abs(value)))) if abs(value) < 1e6 else 1
    return f"{value:#.{min(max(digits, whole), 10)}g}".rstrip(".")


def format_complex(value: complex) -> str:
    """Return a complex number with four digits.

    Examples
    --------
    >>> format_complex(-1 - 2j), format_complex(0.25 + 0j)
    ('-1 - 2i', '0.25')
    """
    if not value.imag:
        return f"{value.real:.4g}"
    return f"{value.real:.4g} {'-' if value.imag < 0 else '+'} {abs(value.imag):.4g}i"


def format_quantity(value: float, unit: str, digits: int = 2) -> str:
    """Return a rounded number with its unit, without an exponent if the number is short."""
    return f"{float(f'{value:.{digits}g}'):g} {unit}".rstrip()


def format_count(number: int, noun: str) -> str:
    """Return a `number` with a `noun` in singular or plural: "3 channels"; thousands are separated by a thin space."""
    return f"{number:,} {noun}{'s' * (number != 1)}".replace(",", "\u202f")


def join_list(items: Sequence[str], conjunction: str = "and") -> str:
    """Return a list of `items` in a sentence, with a `conjunction` before the last.

    Examples
    --------
    >>> join_list(["a", "b", "c"]), join_list(["a", "b"], "or")
    ('a, b and c', 'a or b')
    """
    return f" {conjunction} ".join(items) if len(items) < 3 else f"{', '.join(items[:-1])} {conjunction} {items[-1]}"


def as_sentence(text: str) -> str:
    """Return text that begins with a capital and ends with a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


#: A number that is not part of a name, or the number of a lag.
_NUMBER_PATTERN = re.compile(r"(?<![\w.+-])(?<!lag )(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.]\w)")


def merge_records(texts: Iterable[str], records: Sequence[str]) -> list[str]:
    """Return texts of which those that differ only in their record and in numbers are one, with ranges of numbers.

    Examples
    --------
    >>> merge_records([f"errors of T2 of record {k} are {k / 10} K" for k in (1, 2)], ["1", "2"])
    ['errors of T2 of records 1 and 2 are 0.1 to 0.2 K']
    """
    groups = dict[str, dict[str, list[str]]]()
    for text in texts:
        name = max(
            (name for name in records if re.search(rf"of record {re.escape(name)}(?!\w)", text)), key=len, default=""
        )
        parts = _NUMBER_PATTERN.split(text.replace(f"of record {name}", "of record\0") if name else text)
        groups.setdefault("\0".join(parts[::2]) if name else text, {})[name] = parts
    found = []
    for members in groups.values():
        columns = zip(*members.values(), strict=True)
        ends = ([min(own, key=float), max(own, key=float)] if k % 2 else own[:1] for k, own in enumerate(columns))
        text = "".join(" to ".join(dict.fromkeys(own)) for own in ends)
        names = join_list([*members]) if len(members) < 13 else f"{', '.join([*members][:12])}, ..."
        found.append(text.replace("record\0", f"record{'s' * (len(members) > 1)} {names}"))
    return found


def format_below(share: float, bound: float) -> tuple[str, str]:
    """Return a `share` and its `bound` as percentages with enough digits to differ.

    Examples
    --------
    >>> format_below(0.853, 0.9), format_below(0.8997, 0.9)
    (('85.3 %', '90.0 %'), ('89.97 %', '90.00 %'))
    """
    for places in range(1, 6):
        first, second = (f"{100 * each:.{places}f} %" for each in (share, bound))
        if first != second:
            break
    return first, second


def format_probability(probability: float) -> str:
    """Return a p-value as text; tiny values are given as a bound because of rounding.

    Examples
    --------
    >>> format_probability(0.0321), format_probability(4.7e-11), format_probability(0.0)
    ('p = 0.032', 'p = 4.7e-11', 'p < 1e-12')
    """
    return "p < 1e-12" if probability < 1e-12 else f"p = {probability:.2g}"


def format_percent(share: float) -> str:
    """Return a fraction as a percentage, "98.4 %", of which only one is rounded to 100; empty for NaN."""
    return "" if math.isnan(share) else f"{100 * max(share if share >= 1 else min(share, 0.999), 0.0):.1f} %"


def to_json_values(value: Any) -> Any:
    """Return values that JSON supports: lists for tuples, None for infinity and NaN, in nested dicts and lists too."""
    if isinstance(value, dict):
        return {key: to_json_values(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json_values(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def find_closest_name(name: str, others: Iterable[str]) -> str:
    """Return the one of `others` that `name` may misspell; an empty text if none is similar.

    Examples
    --------
    >>> find_closest_name("temprature", ["pressure", "temperature"]), find_closest_name("T2", ["T1", "Q"])
    ('temperature', 'T1')
    """
    known = [other for other in others if other != name]
    matches = [other for other in known if other.casefold() == name.casefold()]
    if not matches and len(name) > 1:
        # Imported here, since most programs contain no misspelled names.
        from difflib import get_close_matches

        # Of two letters, one has to match.
        matches = get_close_matches(name, known, n=1, cutoff=0.5 if len(name) == 2 else 0.7)
    return matches[0] if matches else ""


def describe_unknown(name: str, known: Collection[str]) -> str:
    """Return a suggestion for an unknown name, or the list of known names.

    Examples
    --------
    >>> describe_unknown("restart", ["noise", "restarts"]), describe_unknown("depth", ["noise", "restarts"])
    ("did you mean 'restarts'?", 'expected one of noise, restarts')
    """
    closest = find_closest_name(name, known)
    return f"did you mean {closest!r}?" if closest else f"expected one of {', '.join(known)}"


#: Names that other libraries use for arguments, and ours.
_SYNONYMS = dict.fromkeys(("lower", "upper", "min", "max", "low", "high", "limits"), "bounds")
#: Arguments that belong to the equations.
_OF_SYSTEM = ("parameters", "channels")
_Class = TypeVar("_Class")
P = ParamSpec("P")
R = TypeVar("R")


def with_suggestions(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that raises an error with a suggestion if an argument is misspelled, missing or has no name."""

    @functools.wraps(function)
    def checked(*values: P.args, **arguments: P.kwargs) -> R:
        try:
            return function(*values, **arguments)
        except TypeError:
            reject_invalid_call(function, values, arguments)
            raise

    return checked


def suggest_arguments(cls: type[_Class]) -> type[_Class]:
    """Make the constructor of a class raise an error with a suggestion if its arguments are invalid."""
    setattr(cls, "__init__", with_suggestions(vars(cls)["__init__"]))  # noqa: B010 - mypy does not allow the assignment
    return cls


def reject_invalid_call(function: Callable[..., Any], values: Sequence[Any], arguments: Mapping[str, Any]) -> None:
    """Raise an error with a suggestion if a function cannot be called with these arguments."""
    signature, title = inspect.signature(function), function.__name__
    names, methods = [key for key in signature.parameters if key not in ("self", "cls")], dict[str, Any]()
    if "self" in signature.parameters:
        classes = reversed(type(values[0]).__mro__)
        methods = {key: own for cls in classes for key, own in vars(cls).items() if inspect.isfunction(own)}
        title = next(key for key, own in methods.items() if inspect.unwrap(own) is inspect.unwrap(function))
        title = type(values[0]).__name__ if title == "__init__" else title
    unknown = [] if "**" in str(signature) else [name for name in arguments if name not in names]
    if unknown:
        hint = _suggest_argument(unknown[0], names, methods)
        raise ArgumentError(f"{title}() has no argument {unknown[0]!r}; {hint}") from None
    try:
        signature.bind(*values, **arguments)
    except TypeError as problem:
        known = inspect.Signature(
            [signature.parameters[name].replace(annotation=inspect.Signature.empty) for name in names]
        )
        raise ArgumentError(f"{title}(): {problem}; expected {title}{known}") from None


def _suggest_argument(name: str, names: Sequence[str], methods: Mapping[str, Callable[..., Any]]) -> str:
    """Return what to try instead of an unknown argument: another name, or another method."""
    takers = [key for key, own in methods.items() if key[0] != "_" and name in inspect.signature(own).parameters]
    if longer := [key for key in names if key.startswith(name) or key == _SYNONYMS.get(name)]:
        return f"did you mean {longer[0]!r}?"
    if "system" in names and name in _OF_SYSTEM:
        return f"pass it to System(): System(equations, {name}=...)"
    if takers and abs(len(find_closest_name(name, names)) - len(name)) > 2:
        return f"pass it to {takers[0]}()"
    # "nosie" resembles the first word of noise_std.
    words = {key.partition("_")[0]: key for key in reversed(names)}
    if start := find_closest_name(name, words):
        return f"did you mean {words[start]!r}?"
    return describe_unknown(name, names) if names else "it takes none"
