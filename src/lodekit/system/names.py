"""Checks on the names of a system: channels in order, no clash, every parameter used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

from lodekit.errors import EquationError
from lodekit.system.grammar import check_name
from lodekit.system.parameters import Parameter
from lodekit.system.remedies import find_dotted
from lodekit.system.roles import find_channels
from lodekit.system.tree import Call, Derivative, Equation, Name, walk, walk_equation

__all__ = ["check_all_used", "check_channels", "list_names", "order_channels", "spare_names"]

MAX_CHANNELS = 500


def list_names(names: object, role: str) -> list[str]:
    """Return `names`, a list or one text with commas, in normal form; `role` says in errors what they name."""
    if isinstance(names, str):
        names = names.replace(",", " ").split()
    if not isinstance(names, Iterable) or isinstance(names, Mapping | bytes | set):
        raise EquationError(f"expected the {role} names as a list, got {type(names).__name__}")
    found = list(names)
    if len(found) > MAX_CHANNELS:
        raise EquationError(f"expected at most {MAX_CHANNELS} {role} names, got {len(found)}; split the system")
    return [check_name(name, role) for name in found]


def spare_names(*wanted: str) -> Iterator[str]:
    """Yield the names that are wanted, and then the last of them with more and more underscores, without end.

    Whoever needs a name that is not taken yet will find one among them.

    Examples
    --------
    >>> next(name for name in spare_names("s", "S") if name not in ("s", "S", "S_"))
    'S__'
    """
    yield from wanted
    for size in count(1):
        yield wanted[-1] + "_" * size


def check_channels(channels: Sequence[str], parameters: Mapping[str, Parameter]) -> list[str]:
    """Return `channels` in normal form, or say what is wrong with them: repeated, among the `parameters`, or none."""
    names = list_names(channels, "channel")
    for position, name in enumerate(names):
        if name in names[:position]:
            raise EquationError(f"channel {name!r} is listed twice")
        if name in parameters:
            raise EquationError(f"{name!r} is both a channel and a parameter; remove it from one of the lists")
    if not names:
        raise EquationError("expected at least one channel")
    return names


def order_channels(
    equations: Sequence[Equation], parameters: Mapping[str, Parameter], channels: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the channels in the given order, or in that of their first appearance.

    Parameters
    ----------
    equations : sequence of Equation
        Where the names are looked for.
    parameters : dict of str to Parameter
        Names that are no channels.
    channels : sequence of str, optional
        The order.
    """
    if channels is None:
        found = find_channels(equations, tuple(parameters))
        if not found:
            raise EquationError("expected at least one channel: every name is a parameter or a known function of time")
    else:
        found = check_channels(channels, parameters)
    if len(found) > MAX_CHANNELS:
        raise EquationError(f"expected at most {MAX_CHANNELS} channels, got {len(found)}; split the system")
    if channels is None:
        _refuse_dotted(equations, found)
    return tuple(found)


def _refuse_dotted(equations: Sequence[Equation], channels: Sequence[str]) -> None:
    """Raise where a channel is called like the derivative of another, and nothing says that it is one."""
    dotted = find_dotted(channels)
    if dotted is None:
        return
    name, base, order = dotted
    moved = (node for equation in equations for node in walk_equation(equation) if isinstance(node, Derivative | Call))
    if any(isinstance(part, Name) and part.name == base for node in moved for part in walk(node)):
        return
    derivative = base + "'" * order
    raise EquationError(
        f"{name} is a name of its own, and nothing ties it to {base}; write {derivative} for the derivative, or add "
        f"the equation {name} = {derivative}"
    )


def check_all_used(equations: Sequence[Equation], parameters: Mapping[str, Parameter], channels: Sequence[str]) -> None:
    """Raise where one of the `parameters` is not in the `equations`; the message lists the `channels`."""
    mentioned = {node.name for equation in equations for node in walk_equation(equation) if isinstance(node, Name)}
    unused = [name for name in parameters if name not in mentioned]
    if unused:
        plural, pronoun = ("s are", "them") if len(unused) > 1 else (" is", "it")
        names = ", ".join(repr(name) for name in unused)
        raise EquationError(
            f"parameter{plural} declared but never used: {names}; remove {pronoun} or check the spelling. "
            f"Channels are {', '.join(channels)}"
        )
