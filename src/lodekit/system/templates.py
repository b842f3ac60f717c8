"""System files to start from: equations, what a data file tells, and comments that explain what may be added."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count

from lodekit.system.system import System

__all__ = ["Contents", "format_system_file"]

#: What a file to start from says about the model, about parameters, and about data; {0} is a channel.
_MODEL_LINES = (
    '# noise = "shared"        # learn one level of noise for all channels; without this line, one for each',
    '# latent = "matern-7/2"   # rougher than "se", the default',
    '# basis = ["x"]           # what the free functions are: expressions in the channels, one each',
    '# prior = "channels"      # smooth channels, instead of smooth free functions as in the paper',
    '# mode_deviation = 1.0    # the prior deviation of every mode, or "open", or "learned"; see the documentation',
    '# records = "run"         # the column that says which record a line of the measurement file belongs to',
)
#: An equation, where a file has none yet.
_EXAMPLE = "tau*y' + y = K*u"
_PARAMETER_LINES = (
    "# What you know of each parameter goes between its braces, separated by commas:",
    "#   positive = true                  only values above zero make sense",
    "#   bounds = [0.1, 10]               smallest and largest value",
    "#   start = 2                        where the search starts",
    "#   fixed = 9.81                     known, not learned",
    "#   prior = { normal = [5, 1] }      about 5, give or take 1",
    "#   prior = { lognormal = [5, 0.7] } about 5, give or take a factor of two",
)
_INPUT_LINE = (
    '# Channels that somebody set: known from their samples, and held until the next one, or "linear", or "auto".'
)
#: The same about disturbances; {0} is one, and {1} an equation that it stands in.
_DISTURBANCE_LINES = (
    "",
    '# Channels that drive the equations and are never measured: "white" noise, or "matern-1/2", which lasts a while.',
    "# Each has to stand in an equation above, where it acts, as {0} does in {1}",
    "# [disturbances]",
    '# {0} = "white"',
)
_NOISE_LINES = (
    "",
    "# Known standard deviations of the noise; zero is exact. Then remove the line noise = above.",
    "# [noise]",
    "# {0} = 0.1",
    "",
    "# Columns of the measurement file, where their names differ: a name, or a number from one.",
    '# For shorter names, write T for {0} throughout this file, and here: T = "NAME OF ITS COLUMN".',
)


@dataclass(frozen=True)
class Contents:
    """What a data file tells about a system.

    Parameters
    ----------
    units : dict of str to str
        Of channels, and of the time ``t``.
    inputs : dict of channel to (kind, reason)
        Channels that are known, and in words what makes them so.
    columns : dict of str to (int or str)
        Where channels and ``t`` are, as far as their names do not tell.
    records : str
        The column that tells records apart; empty where none does.
    about : dict of str to str
        What parameters are known to be, in TOML: ``positive = true``.
    remark : str
        About the equations, for a comment.
    """

    units: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    columns: Mapping[str, int | str] = field(default_factory=dict)
    records: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""


def format_system_file(
    equations: str,
    parameters: Sequence[str] = (),
    channels: Sequence[str] | None = None,
    *,
    title: str = "",
    contents: Contents | None = None,
) -> str:
    """Return the text of a system file to start from, with comments that explain what may be added.

    Parameters
    ----------
    equations : str
        One a line, or separated by ``;``. Without any, the file has a place for them, and cannot be read before.
    parameters : sequence of str
        Names of the unknown constants.
    channels : sequence of str, optional
        The order of the channels; that of their first appearance by default. Expected where there are no equations.
    title : str
        For the reader.
    contents : Contents, optional
        What a data file tells.

    Examples
    --------
    >>> for line in format_system_file("x' = -a*x + u", ["a"], title="A tank").splitlines()[:7]:
    ...     print(line)
    # Show what the equations imply: lodekit inspect THIS_FILE
    # Fit them to measurements:      lodekit fit THIS_FILE data.csv
    title = "A tank"
    <BLANKLINE>
    # x' is the derivative in time; a name that is no parameter is a channel.
    # With a dead time: tau*y' + y = K*delay(u, T); of second order: tau1*tau2*y'' + (tau1 + tau2)*y' + y = K*u.
    equations = [
    """
    own = contents or Contents()
    written: tuple[str, ...] = ()
    names = tuple(channels or ())
    if equations or not names:
        system = System(equations, parameters=list(parameters), channels=channels)
        written, names, parameters = system.equations, system.plain_channels, list(system.parameters)
    lines = [
        "# Show what the equations imply: lodekit inspect THIS_FILE",
        "# Fit them to measurements:      lodekit fit THIS_FILE data.csv",
        f"title = {_quote(title)}",
        "",
        *_describe_equations(own, written, names if channels is not None else ()),
        "",
        *_PARAMETER_LINES,
        "[parameters]",
        *(_describe_parameter(name, own.about.get(name, "")) for name in parameters),
        *([] if written else ["# tau = { positive = true }"]),
        "",
        '# For labels, such as t = "s"; where all are given, they are checked against the equations.',
        "[units]",
        *(f"{_key(name)} = {_quote(own.units.get(name, ''))}" for name in ("t", *names)),
        "",
        *_describe_data(own, names, _disturb(written, {*names, *parameters})),
    ]
    return "\n".join(lines) + "\n"


def _describe_equations(own: Contents, equations: Sequence[str], channels: Sequence[str]) -> list[str]:
    """Return lines about equations, channels in their order where there is one, and the model."""
    order = f"channels = [{', '.join(map(_quote, channels))}]" if channels else ""
    return [
        *([f"# {own.remark}"] if own.remark else []),
        "# x' is the derivative in time; a name that is no parameter is a channel.",
        "# With a dead time: tau*y' + y = K*delay(u, T); of second order: tau1*tau2*y'' + (tau1 + tau2)*y' + y = K*u.",
        "equations = [",
        *(f"  {_quote(equation)}," for equation in equations),
        *([] if equations else [f"  # {_quote(_EXAMPLE)},"]),
        "]",
        order if equations else f"# {order}",
        *_MODEL_LINES,
        *([f"records = {_quote(own.records)}"] if own.records else []),
    ]


def _describe_parameter(name: str, known: str) -> str:
    return f"{_key(name)} = {{ {known} }}" if known else f"{_key(name)} = {{}}  # any value; or {{ positive = true }}"


def _disturb(equations: Sequence[str], taken: Collection[str]) -> tuple[str, str]:
    """Return a new name for a disturbance, and an equation with it, in TOML."""
    name = next(name for name in chain(("w", "d"), (f"w{n}" for n in count(1))) if name not in taken)
    return name, _quote(f"{equations[0] if equations else _EXAMPLE} + {name}")


def _describe_data(own: Contents, names: Sequence[str], disturbed: tuple[str, str]) -> list[str]:
    """Return lines about inputs, noise and columns: what is known of them, or how it would be said."""
    first, last = _key(names[0]), _key(names[-1])
    lines = [_INPUT_LINE]
    if own.inputs:
        lines += ["[inputs]", *(f"{_key(n)} = {_quote(kind)}  # it {why}" for n, (kind, why) in own.inputs.items())]
    else:
        lines += ["# [inputs]", f'# {last} = "hold"']
    lines += [line.format(*disturbed) for line in _DISTURBANCE_LINES]
    lines += [line.format(first) for line in _NOISE_LINES]
    if own.columns:
        places = {n: str(c) if isinstance(c, int) else _quote(c) for n, c in own.columns.items()}
        return [*lines, "[columns]", *(f"{_key(name)} = {place}" for name, place in places.items())]
    return [*lines, "# [columns]", '# t = "time [s]"', f"# {first} = 2"]


def _quote(text: str) -> str:
    """Return a text as a TOML string."""
    short = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    escaped = "".join(short.get(character, character) for character in text)
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04x}", escaped) + '"'


def _key(name: str) -> str:
    """Return a name as a TOML key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quote(name)
