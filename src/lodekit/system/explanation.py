"""What the algebra found, in sentences for an engineer."""

from __future__ import annotations

from lodekit.errors import AlgebraError
from lodekit.system.delays import Delayed, need_inputs
from lodekit.system.facts import Facts
from lodekit.system.mode import Mode
from lodekit.wording import join_words

__all__ = ["sentences"]

_COUNT = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}


def sentences(facts: Facts) -> list[str]:
    """Return the findings, most important first."""
    lines = [_freedom(facts), *_modes(facts), *_chosen(facts)]
    lines += _forced(facts)
    lines += [_delayed(facts, name) for name in need_inputs(facts.channels)]
    relations = facts.relations()
    if relations:
        noun = "equation is" if len(relations) == 1 else "equations are"
        lines.append(
            f"{_count(len(relations)).capitalize()} {noun} redundant: {'; '.join(f'{r} = 0' for r in relations)}."
        )
    if not facts.is_homogeneous:
        known = [str(number) for number, signal in enumerate(facts.forcing, 1) if signal]
        noun = "Equation" if len(known) == 1 else "Equations"
        verb = "holds" if len(known) == 1 else "hold"
        lines.append(f"{noun} {join_words(known)} {verb} known functions of time; the equations are consistent.")
    return lines + _degeneracies(facts)


def _delayed(facts: Facts, channel: str) -> str:
    shown = [name for name in facts.channels if isinstance(name, Delayed) and name.channel == channel]
    verb = "counts as a function of its own" if len(shown) == 1 else "count as functions of their own"
    return (
        f"{channel} is delayed, so a fit needs it as a known input; until it is one, {join_words(shown)} {verb} here."
    )


def _chosen(facts: Facts) -> list[str]:
    if facts.choice is None:
        return []
    noun = "function was" if facts.free_functions == 1 else "functions were"
    what = f"to be {join_words(facts.choice.texts)}" if facts.choice.texts else "by a matrix"
    zeros = [f"{facts.operator.ring.format(factor)} = 0" for factor in facts.unsuitable_elements]
    unless = f"; this will not do where {join_words(zeros, 'or')}" if zeros else ""
    return [f"The free {noun} chosen {what}{unless}."]


def _degeneracies(facts: Facts) -> list[str]:
    ring = facts.operator.ring
    try:
        zeros = [f"{ring.format(factor)} = 0" for factor in facts.degenerate_elements]
    except AlgebraError:
        return [
            "This is so for almost all parameter values; where it changes was not determined, because the expressions "
            "grow too large."
        ]
    if not zeros:
        return []
    return [f"This is so for almost all parameter values; the structure changes where {join_words(zeros, 'or')}."]


def _freedom(facts: Facts) -> str:
    free = facts.free_functions
    if not free:
        dimension = facts.states
        if not dimension:
            if facts.is_homogeneous:
                return "The only solution is zero: the equations leave no freedom at all."
            return "There is exactly one solution: the equations leave no freedom at all."
        noun = "number" if dimension == 1 else "numbers"
        return f"Nothing can be chosen freely: the motion is determined by {_count(dimension)} initial {noun}."
    noun = "function of time can be chosen freely" if free == 1 else "functions of time can be chosen freely"
    count = _count(free).capitalize() if free == 1 else str(free)
    if free == len(facts.channels):
        return "Every channel can be chosen freely: the equations restrict nothing."
    try:
        inputs = facts.possible_inputs
    except AlgebraError:
        return f"{count} {noun}; which ones was not determined, because the expressions grow too large."
    if free == 1 and len(inputs) > 1:
        word = "either" if len(inputs) == 2 else "any one of"
        return f"{count} {noun}: {word} {join_words([names[0] for names in inputs], 'or')}."
    chosen = inputs[0]
    example = "for example " if len(inputs) > 1 else "namely "
    return f"{count} {noun}, {example}{join_words(list(chosen))}."


def _modes(facts: Facts) -> list[str]:
    try:
        modes = facts.exponents
    except AlgebraError:
        what = "What cannot be influenced" if facts.free_functions else "What the motion is made of"
        return [f"{what} was not determined, because the expressions grow too large."]
    if not modes:
        if facts.free_functions:
            noun = "function" if facts.free_functions == 1 else "functions"
            return [f"The system is controllable: every motion can be reached by choosing the free {noun}."]
        return []
    phrases = [_mode_phrase(mode, facts) for mode in modes]
    if facts.free_functions:
        return [f"The system is not controllable: {join_words(phrases)}, cannot be influenced."]
    return [f"The motion is made of {join_words(phrases)}."]


def _mode_phrase(mode: Mode, facts: Facts) -> str:
    text = mode.describe()
    article = "one" if not text.startswith("mode of order") else "a"
    if mode.multiplicity > 1:
        text += f" with multiplicity {mode.multiplicity}"
    if facts.free_functions:
        text += f", {mode.observable}"
    return f"{article} {text}"


def _forced(facts: Facts) -> list[str]:
    zero = facts.forced
    if not zero or len(zero) == len(facts.channels):
        return []
    if facts.is_homogeneous:
        return [f"{join_words(zero)} {'is' if len(zero) == 1 else 'are'} forced to be zero."]
    return [
        f"{join_words(zero)} {'is' if len(zero) == 1 else 'are'} determined completely by the known functions of time."
    ]


def _count(number: int) -> str:
    return _COUNT.get(number, str(number))
