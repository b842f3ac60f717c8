"""What somebody types becomes a system, or a message that says where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lodekit.errors import EquationError, LodekitError
from lodekit.system.grammar import parse_equations
from lodekit.system.parameters import MAX_PARAMETERS, Parameter
from lodekit.system.roles import coefficient_names, find_channels
from lodekit.system.system import System
from lodekit.system.tree import Equation, Name, Sum, walk_equation

__all__ = ["LONGEST", "Reading", "read_equations"]

#: Longer texts are no equations that somebody typed.
LONGEST = 20_000


@dataclass(frozen=True)
class Reading:
    """A system as far as it was understood.

    Parameters
    ----------
    system : System or None
        None where the text is no system.
    trouble : str
        What is wrong, with carets below the line where it is; empty where nothing is.
    taken : tuple of str
        Names that nobody declared, and that were taken for parameters because they stand before others.
    is_empty : bool
        Whether there is no text yet.
    """

    system: System | None
    trouble: str = ""
    taken: tuple[str, ...] = ()
    is_empty: bool = False


def read_equations(text: str, declared: str = "") -> Reading:
    """Return the system of a text; names that stand before others are taken for parameters.

    Parameters
    ----------
    text : str
        Equations, as somebody types them.
    declared : str
        Names of parameters, separated by commas or spaces. Those that the equations do not use wait until they do.

    Examples
    --------
    >>> found = read_equations("tau*y' + y = K*u")
    >>> found.system, found.taken
    (<System of 1 equation in y, u, parameters tau, K>, ('tau', 'K'))
    >>> print(read_equations("x' = -(x").trouble)
    unbalanced parentheses: this '(' is never closed; add a ')'
      in equation 1:
          x' = -(x
                ^
    """
    if not text.strip():
        return Reading(None, is_empty=True)
    if len(text) > LONGEST:
        return Reading(None, f"expected at most {LONGEST} characters of equations, got {len(text)}")
    try:
        parsed = parse_equations(text)
        used = {node.name for equation in parsed for node in walk_equation(equation) if isinstance(node, Name)}
        own = [name for name in dict.fromkeys(declared.replace(",", " ").split()) if name in used]
        taken: list[str] = []
        first: EquationError | None = None
        while True:
            try:
                system = System(text, parameters=dict.fromkeys((*own, *taken), Parameter()))
                return Reading(system, taken=tuple(taken))
            except EquationError as problem:
                first = first or problem
                new = _likely_parameter(parsed, (*own, *taken))
                if not new or len(taken) >= MAX_PARAMETERS:
                    raise first from None
                taken.append(new)
    except LodekitError as problem:
        return Reading(None, str(problem))
    except RecursionError:
        return Reading(None, "expected equations with fewer brackets inside each other")


def _likely_parameter(equations: Sequence[Equation], known: Sequence[str]) -> str:
    """Return a name that only ever multiplies others, and is no parameter yet; empty where there is none.

    The first factor of a product is the parameter more often; and what stands in a sum, as in ``(T2 - T1)/R``, is a
    channel more often.
    """
    found = coefficient_names(equations, find_channels(equations, known))
    sums = [node for equation in equations for node in walk_equation(equation) if isinstance(node, Sum)]
    summed = {term.name for node in sums for _, term in node.terms if isinstance(term, Name)}
    return min(found, key=lambda name: name in summed, default="")
