"""What equations imply, ready to be shown: sentences, exponents, dimensions, and the proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from lodekit.errors import AlgebraError, LodekitError
from lodekit.system.display import sections
from lodekit.system.mathml import equations_to_mathml
from lodekit.system.system import System

__all__ = ["Algebra", "Analysis", "analyse", "exponents_at", "prove"]

#: Blocks of the whole analysis that are shown elsewhere.
_ELSEWHERE = ("Equations", "What this means", "Notes")


@dataclass(frozen=True)
class Analysis:
    """What the equations imply, in plain words.

    Parameters
    ----------
    equations : tuple of str
        As MathML, one each.
    sentences : tuple of str
        The findings of `System.explain`, most important first.
    is_controllable : bool
    free_functions : int
    inputs : tuple of tuple of str
        Channels that can be chosen freely, together; empty where that was not determined.
    dimensions : dict of str to str
        Of each parameter, in terms of time and channels.
    notes : tuple of str
        How the text was read, where that is worth knowing.
    """

    equations: tuple[str, ...]
    sentences: tuple[str, ...]
    is_controllable: bool
    free_functions: int
    inputs: tuple[tuple[str, ...], ...]
    dimensions: Mapping[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Algebra:
    """The algebra in full, for those who want it.

    Parameters
    ----------
    text : str
        Operator matrix, Smith form, every solution.
    proved : tuple of str
        Exact identities that were checked by multiplication.
    trouble : str
        Why nothing was proved, where that is so.
    """

    text: str
    proved: tuple[str, ...]
    trouble: str = ""


@lru_cache(maxsize=64)
def analyse(system: System) -> Analysis:
    """Return what a system implies, in words.

    Examples
    --------
    >>> import lodekit as lk
    >>> found = analyse(lk.System("x' = -a*x + u", parameters=["a"]))
    >>> found.is_controllable, found.inputs, found.dimensions
    (True, (('x',), ('u',)), {'a': '1/t'})
    """
    dimensions = system.dimensions()
    shown = {n: "cannot be told" if n in dimensions.undetermined else dimensions.format(n) for n in dimensions}
    try:
        inputs = system.possible_inputs if system.free_functions else ()
    except AlgebraError:
        inputs = ()
    return Analysis(
        tuple(equations_to_mathml(system)),
        tuple(system.explain().splitlines()),
        system.is_controllable,
        system.free_functions,
        tuple(tuple(names) for names in inputs),
        shown,
        tuple(system.notes),
    )


@lru_cache(maxsize=64)
def prove(system: System) -> Algebra:
    """Return the Smith form and all solutions as text, with what was proved about them.

    Examples
    --------
    >>> import lodekit as lk
    >>> prove(lk.System("x' = v")).proved[0]
    'U A V = D'
    """
    shown = [block for block in sections(system) if block[0] not in _ELSEWHERE]
    text = "\n\n".join("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in shown)
    try:
        return Algebra(text, tuple(system.verify()))
    except LodekitError as problem:
        return Algebra(text, (), str(problem))


def exponents_at(system: System, known: Sequence[str], values: Mapping[str, float]) -> tuple[complex, ...]:
    """Return the exponents of what is left when some channels are known: the poles of the response to them.

    Parameters
    ----------
    system : System
    known : sequence of str
        Channels; none leaves the modes that nothing can influence.
    values : dict of str to float
        Of the parameters.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x'' + c*x' + k*x = u", parameters=["c", "k"])
    >>> exponents_at(system, ["u"], {"c": 2.0, "k": 5.0})
    ((-1-2j), (-1+2j))
    """
    rest = system.given(known) if known else system
    found = []
    for mode in rest.exponents:
        own = {name: value for name, value in values.items() if name in mode.ring.parameters}
        roots = mode.roots_at(own) if mode.depends_on_parameters else mode.roots
        found += [complex(root) for root in roots for _ in range(mode.multiplicity)]
    return tuple(found)
