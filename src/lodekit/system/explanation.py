"""What the algebra found, in sentences for an engineer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lodekit.algebra.scalars import Scalar, join_terms
from lodekit.errors import AlgebraError
from lodekit.system.writing import primes

if TYPE_CHECKING:
    from lodekit.system.mode import Mode
    from lodekit.system.system import System

__all__ = ["format_combination", "sentences"]

_COUNT = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}


def sentences(system: System) -> list[str]:
    """Return the findings, most important first."""
    lines = [_freedom(system), *_modes(system)]
    lines += _forced(system)
    relations = system.relations()
    if relations:
        noun = "equation is" if len(relations) == 1 else "equations are"
        lines.append(
            f"{_count(len(relations)).capitalize()} {noun} redundant: {'; '.join(f'{r} = 0' for r in relations)}."
        )
    if not system.is_homogeneous:
        known = [str(number) for number, signal in enumerate(system.forcing, 1) if signal]
        noun = "Equation" if len(known) == 1 else "Equations"
        verb = "holds" if len(known) == 1 else "hold"
        lines.append(f"{noun} {_join(known)} {verb} known functions of time; the equations are consistent.")
    return lines + _degeneracies(system)


def _degeneracies(system: System) -> list[str]:
    ring = system.operator.ring
    try:
        zeros = [f"{ring.format(factor)} = 0" for factor in system.degenerate_elements]
    except AlgebraError:
        return [
            "This is so for almost all parameter values; where it changes was not determined, because the expressions "
            "grow too large."
        ]
    if not zeros:
        return []
    return [f"This is so for almost all parameter values; the structure changes where {_join(zeros, 'or')}."]


def _freedom(system: System) -> str:
    free, dimension = system.free_functions, sum(len(m.annihilator) - 1 for m in system.parametrization.modes)
    if not free:
        if not dimension:
            if system.is_homogeneous:
                return "The only solution is zero: the equations leave no freedom at all."
            return "There is exactly one solution: the equations leave no freedom at all."
        noun = "number" if dimension == 1 else "numbers"
        return f"Nothing can be chosen freely: the motion is determined by {_count(dimension)} initial {noun}."
    inputs = system.possible_inputs
    noun = "function of time can be chosen freely" if free == 1 else "functions of time can be chosen freely"
    count = _count(free).capitalize() if free == 1 else str(free)
    if free == len(system.channels):
        return "Every channel can be chosen freely: the equations restrict nothing."
    if free == 1 and len(inputs) > 1:
        word = "either" if len(inputs) == 2 else "any one of"
        return f"{count} {noun}: {word} {_join([names[0] for names in inputs], 'or')}."
    chosen = inputs[0]
    example = "for example " if len(inputs) > 1 else "namely "
    return f"{count} {noun}, {example}{_join(list(chosen))}."


def _modes(system: System) -> list[str]:
    modes = system.modes
    if not modes:
        if system.free_functions:
            noun = "function" if system.free_functions == 1 else "functions"
            return [f"The system is controllable: every motion can be reached by choosing the free {noun}."]
        return []
    phrases = [_mode_phrase(mode, system) for mode in modes]
    if system.free_functions:
        return [f"The system is not controllable: {_join(phrases)}, cannot be influenced."]
    return [f"The motion is made of {_join(phrases)}."]


def _mode_phrase(mode: Mode, system: System) -> str:
    text = mode.describe()
    article = "one" if not text.startswith("mode of order") else "a"
    if mode.multiplicity > 1:
        text += f" with multiplicity {mode.multiplicity}"
    if system.free_functions:
        text += f", {mode.observable}"
    return f"{article} {text}"


def _forced(system: System) -> list[str]:
    parametrization = system.parametrization
    zero = [
        name
        for i, name in enumerate(system.channels)
        if not any(parametrization.free.rows[i]) and not any(mode.column.rows[i][0] for mode in parametrization.modes)
    ]
    if not zero or len(zero) == len(system.channels):
        return []
    if system.is_homogeneous:
        return [f"{_join(zero)} {'is' if len(zero) == 1 else 'are'} forced to be zero."]
    return [f"{_join(zero)} {'is' if len(zero) == 1 else 'are'} determined completely by the known functions of time."]


def format_combination(weights: Sequence[Sequence[Scalar]]) -> str:
    """Return a combination of equations as text: ``equation 1 + (equation 2)' - 2*equation 3``."""
    terms = []
    for number, coefficients in enumerate(weights, 1):
        for order in range(len(coefficients) - 1, -1, -1):
            if coefficients[order]:
                name = f"equation {number}" if order == 0 else primes(f"(equation {number})", order)
                terms.append((coefficients[order], name))
    return join_terms(terms)


def _count(number: int) -> str:
    return _COUNT.get(number, str(number))


def _join(items: Sequence[str], word: str = "and") -> str:
    if len(items) < 3:
        return f" {word} ".join(items)
    return f"{', '.join(items[:-1])} {word} {items[-1]}"
