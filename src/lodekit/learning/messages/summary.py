"""The result of a fit as a table in the style of statistics packages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from lodekit.learning.estimates import Estimate

__all__ = ["format_summary"]


def _digits(value: float, error: float) -> str:
    """Return a number with as many digits as its error allows to be told apart, five at least.

    Examples
    --------
    >>> _digits(2.97161234, 0.04), _digits(1.0, 6e-6), _digits(0.999988, 6e-6)
    ('2.9716', '1', '0.999988')
    """
    size = math.log10(abs(value) / error) if value and error > 0 and math.isfinite(error) else 0.0
    return f"{value:.{min(max(5, math.ceil(size) + 1), 10)}g}"


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
                low, high = (_digits(edge, estimate.std_error) for edge in estimate.interval)
                value = _digits(estimate.value, estimate.std_error)
                lines.append(f"{name:<18}{value:>12}{estimate.std_error:>12.3g}{low:>14}{high:>14}")
        lines.append(line)
    for name, each in others.items():
        lines.append(f"{name:<34}{each:>12}" if isinstance(each, str) else f"{name:<34}{each:>12.5g}")
    lines.append(rule)
    lines += [f"Warning: {warning}" for warning in warnings]
    return "\n".join(lines)
