"""Parameters replaced by numbers, or by expressions in other parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lodekit.errors import ParameterError
from lodekit.system.matrices import EntryReader
from lodekit.system.parameters import Parameter
from lodekit.system.tree import Equation, Expression, Name, replace_names, walk, walk_equation

__all__ = ["substitute"]


def substitute(
    equations: Sequence[Equation],
    parameters: Mapping[str, Parameter],
    values: Mapping[str, Any],
    others: Sequence[Equation] = (),
) -> tuple[list[Equation], dict[str, Parameter], tuple[str, ...], list[Equation]]:
    """Return the equations with values in place of parameters, the parameters left, notes, and others treated alike.

    Parameters
    ----------
    equations : sequence of Equation
        Their texts are left out of what comes back.
    parameters : dict of str to Parameter
        All parameters of the equations.
    values : dict of str to number, text or SymPy expression
        What replaces some of the parameters.
    others : sequence of Equation
        Rows that are replaced in as well, but in which no parameter is looked for.
    """
    if not isinstance(values, Mapping):
        raise ParameterError(f"expected values as a dict of names to numbers, got {type(values).__name__}")
    reader = EntryReader()
    replacements: dict[str, Expression] = {}
    for name, value in values.items():
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise ParameterError(f"unknown parameter {name!r}; expected one of: {known}")
        replacements[name] = reader.read(value)
        for node in walk(replacements[name]):
            if isinstance(node, Name) and node.name not in parameters and node.name != "pi":
                raise ParameterError(f"the value of {name!r} mentions {node.name!r}, which is not a parameter")
    replaced, others = ([_replace(row, replacements) for row in rows] for rows in (equations, others))
    mentioned = {node.name for equation in replaced for node in walk_equation(equation) if isinstance(node, Name)}
    rest = {name: parameter for name, parameter in parameters.items() if name in mentioned or name not in values}
    return replaced, rest, reader.notes, others


def _replace(equation: Equation, values: Mapping[str, Expression]) -> Equation:
    right = None if equation.right is None else replace_names(equation.right, values)
    return Equation(replace_names(equation.left, values), right, "")
