"""Counts, lists, sentences and shares as people write them; numbers with their errors are those of `rounding`."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["amount", "count", "join_words", "sentence", "show_below", "show_chance", "show_share"]


def amount(value: float, unit: str) -> str:
    """Return a number with its unit, rounded to two digits, without an exponent where that is short.

    Parameters
    ----------
    value : float
    unit : str
        Empty where it is not known.
    """
    return f"{float(f'{value:.2g}'):g} {unit}".rstrip()


def count(number: int, noun: str) -> str:
    """Return a `number` with a `noun`, in the plural unless it is one: "3 channels"; thousands stand apart."""
    return f"{number:,} {noun}{'s' * (number != 1)}".replace(",", "\u202f")


def join_words(items: Sequence[str], word: str = "and") -> str:
    """Return a list of `items` in a sentence, with a `word` before the last.

    Examples
    --------
    >>> join_words(["a", "b", "c"]), join_words(["a", "b"], "or")
    ('a, b and c', 'a or b')
    """
    return f" {word} ".join(items) if len(items) < 3 else f"{', '.join(items[:-1])} {word} {items[-1]}"


def sentence(text: str) -> str:
    """Return text that begins with a capital and ends with a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def show_below(share: float, least: float) -> tuple[str, str]:
    """Return a `share` and the `least` that it should be, with as many digits as tell them apart.

    Examples
    --------
    >>> show_below(0.853, 0.9), show_below(0.8997, 0.9)
    (('85.3 %', '90.0 %'), ('89.97 %', '90.00 %'))
    """
    for places in range(1, 6):
        first, second = (f"{100 * each:.{places}f} %" for each in (share, least))
        if first != second:
            break
    return first, second


def show_chance(chance: float) -> str:
    """Return a probability: what is next to nothing is told by a bound, as rounding may have made a zero of it.

    Examples
    --------
    >>> show_chance(0.0321), show_chance(4.7e-11), show_chance(0.0)
    ('p = 0.032', 'p = 4.7e-11', 'p < 1e-12')
    """
    return "p < 1e-12" if chance < 1e-12 else f"p = {chance:.2g}"


def show_share(share: float) -> str:
    """Return a share as text: "98.4 %"; empty where it is not known."""
    return "" if math.isnan(share) else f"{100 * max(share, 0.0):.1f} %"
