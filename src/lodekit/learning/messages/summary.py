"""The result of a fit as a table in the style of statistics packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lodekit.learning.estimates import Estimate
from lodekit.rounding import digits

__all__ = ["format_summary"]

#: A column has room for so many digits; so many are shown in any case.
_MOST, _LEAST = 10, 5


def format_summary(
    title: Sequence[tuple[str, str]],
    parameters: Mapping[str, Estimate],
    others: Mapping[str, float | str],
    warnings: Sequence[str],
) -> str:
    """Return the result as a table in the style of statistics packages.

    Parameters
    ----------
    title : sequence of (str, str)
        Names and values above the table.
    parameters : dict of str to Estimate
        Of the system, by name.
    others : dict of str to float or str
        What else was learned or is to be known, by name, in the user's units.
    warnings : sequence of str
        Sentences below the table.
    """
    width = 78
    rule, line = "=" * width, "-" * width
    lines = ["LODE-GP Results".center(width).rstrip(), rule]
    half = (len(title) + 1) // 2
    for left, right in zip(title[:half], [*title[half:], ("", "")][:half], strict=True):
        first = f"{left[0] + ':':<18}{left[1]:>20}"
        second = f"{right[0] + ':' if right[0] else '':<18}{right[1]:>20}"
        lines.append(f"{first}  {second}".rstrip())
    lines.append(rule)
    if parameters:
        lines += [f"{'':<18}{'coef':>12}{'std err':>12}{'[0.025':>14}{'0.975]':>14}", line]
        for name, estimate in parameters.items():
            if estimate.note:
                lines.append(f"{name:<18}{estimate.value:>12.5g}   {estimate.note}")
            else:
                numbers = (estimate.value, *estimate.interval)
                kept = (min(digits(number, estimate.std_error, _LEAST), _MOST) for number in numbers)
                value, low, high = (f"{number:.{places}g}" for number, places in zip(numbers, kept, strict=True))
                lines.append(f"{name:<18}{value:>12}{estimate.std_error:>12.3g}{low:>14}{high:>14}")
        lines.append(line)
    for name, each in others.items():
        lines.append(f"{name:<34}{each:>12}" if isinstance(each, str) else f"{name:<34}{each:>12.5g}")
    lines.append(rule)
    lines += [f"Warning: {warning}" for warning in warnings]
    return "\n".join(lines)
