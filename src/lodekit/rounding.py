"""Numbers as people write them: as many digits as their error tells."""

from __future__ import annotations

import math

__all__ = ["digits", "format_like", "format_number", "format_uncertain"]

#: Digits of a number whose error says nothing.
_LEAST = 4


def digits(value: float, step: float, least: int) -> int:
    """Return how many significant digits of a value show steps with two digits.

    Parameters
    ----------
    value : float
    step : float
        The size of a step, such as a standard error.
    least : int
        How many digits are shown at least.

    Examples
    --------
    >>> digits(4.0, 0.000052, 4), digits(4.0, 0.5, 4)
    (7, 4)
    """
    if not (step > 0 and value and math.isfinite(step) and math.isfinite(value)):
        return least
    return min(max(math.floor(math.log10(abs(value))) - math.floor(math.log10(step)) + 2, least), 17)


def format_uncertain(value: float, error: float) -> str:
    """Return a `value` with its `error` as text, rounded to two digits of the error.

    Examples
    --------
    >>> format_uncertain(2.97161, 0.0421), format_uncertain(1234567.0, 890.0), format_uncertain(1.5e-9, 2.1e-11)
    ('2.972 ± 0.042', '1234570 ± 890', '(1.500 ± 0.021)e-9')
    """
    largest = max(abs(value), error)
    if not (math.isfinite(largest) and error > 0):
        return f"{value:.5g}"
    power = math.floor(math.log10(largest))
    power = power if not -4 <= power < 8 else 0
    places = 1 - math.floor(math.log10(error)) + power
    first, second = (round(number / 10.0**power, places) for number in (value, error))
    shown = f"{first:.{max(places, 0)}f} ± {second:.{max(places, 0)}f}"
    return f"({shown})e{power}" if power else shown


def format_like(value: float, error: float) -> str:
    """Return a `value` as far as two digits of an `error` reach, such as the end of an interval.

    Examples
    --------
    >>> format_like(53.3982, 8.18), format_like(2.8891, 0.0421), format_like(1.4587e-9, 2.1e-11)
    ('53.4', '2.889', '1.459e-09')
    """
    return f"{value:.{digits(value, error, 1 if 0.0 < error < math.inf else _LEAST)}g}"


def format_number(value: float, error: float) -> str:
    """Return a value with as many digits as show its error with two, and four at least.

    Parameters
    ----------
    value : float
    error : float
        Zero or infinite where none is known.

    Examples
    --------
    >>> format_number(2.971612345, 0.0421), format_number(3.0, 0.0), format_number(1.00000123456, 6e-8)
    ('2.972', '3', '1.000001235')
    """
    return f"{value:.{digits(value, error, _LEAST)}g}"
