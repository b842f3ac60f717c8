"""What is said of channels that nobody measured and that stand once only: slips of the pen, or undeclared constants."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lodekit.system.remedies import find_alike
from lodekit.system.roles import lonely_names, single_names
from lodekit.system.system import System

__all__ = ["find_slips"]


def find_slips(system: System, known: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return warnings of channels that look like a slip of what was measured, and notes on other lonely ones.

    The latter may be constants that nobody declared, or meant as they are.

    Parameters
    ----------
    system : System
    known : sequence of str
        What was measured, and channels that were declared to be something else.

    Examples
    --------
    >>> import lodekit as lk
    >>> (warning,), notes = find_slips(lk.System("tau*level' + levle = K*Q", parameters=["tau", "K"]), ["level", "Q"])
    >>> print(warning.partition(". ")[2])
    Is level meant? If it is a constant, declare it as a parameter
    >>> warnings, (note,) = find_slips(lk.System("tau*T1' + T1 - T2 = K*Q", parameters=["tau", "K"]), ["T1", "Q"])
    >>> print(note.partition(". ")[2])
    Is T1 meant? If it is a constant, declare it as a parameter
    """
    words = list(dict.fromkeys(word for text in known for word in re.findall(r"[^\W\d]\w*", text)))
    slips = _alike(system, words)
    others = [name for name in lonely_names(system.written, system.plain_channels) if name not in (*words, *slips)]
    names = (*system.plain_channels, *system.parameters)
    warnings = [_sentence(name, alike) for name, alike in slips.items()]
    return warnings, [_sentence(name, find_alike(name, names)) for name in others]


def _alike(system: System, words: Sequence[str]) -> dict[str, str]:
    """Return channels that stand once only and look like a slip of something known, and what each is alike."""
    found = {name: find_alike(name, words) for name in single_names(system.written, system.plain_channels)}
    # T2 beside T1 is another one of the same kind, as a rule.
    shapes = {name: re.sub(r"\d+", "0", name) for name in (*found, *words)}
    return {
        name: alike for name, alike in found.items() if alike and name not in words and shapes[name] != shapes[alike]
    }


def _sentence(name: str, alike: str) -> str:
    return (
        f"{name} was not measured and stands once only in the equations: it is taken for an unknown function of time. "
        f"{f'Is {alike} meant? ' if alike else ''}If it is a constant, declare it as a parameter"
    )
