"""A fit of the studio in files and lines: a system file, a command of the shell, and Python that does the same."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from lodekit.data.looking import Look
from lodekit.proposal import Guess, propose_file
from lodekit.studio.session import Choices, Session
from lodekit.system.parameters import Parameter
from lodekit.system.system import System
from lodekit.system.templates import Contents, format_system_file

__all__ = ["SYSTEM", "write_command", "write_python", "write_shell", "write_system_file"]

#: What the system file of a fit is called.
SYSTEM = "system.toml"
#: Where results go in what is taken away.
_FOLDER = "log-fit"


def write_system_file(
    session: Session,
    bare: System,
    look: Look | None = None,
    guesses: Sequence[Guess] = (),
    *,
    mapping: Mapping[str, str] | None = None,
    starts: bool = False,
) -> str:
    """Return the text of a system file with all that was typed and chosen.

    Parameters
    ----------
    session : Session
    bare : System
        As it was read from the equations, with nothing known of its parameters.
    look : Look, optional
        At the data; None where there are none.
    guesses : sequence of Guess
        What columns are taken for.
    mapping : dict of channel to column, optional
        Channels that are left out.
    starts : bool
        Whether a search begins where the sliders stand.
    """
    system = session.system(bare, starts=starts)
    known = {name: _toml(parameter) for name, parameter in system.parameters.items()}
    names, equations = list(system.parameters), "\n".join(system.equations)
    if look is None:
        return format_system_file(equations, names, title=session.example, contents=Contents(about=known))
    return propose_file(look, guesses, equations, names, mapping=mapping, title=session.example, known=known)


def _toml(parameter: Parameter) -> str:
    """Return what is known of a parameter, as the inside of a table in TOML."""
    parts = ["positive = true"] if parameter.positive else []
    if parameter.bounds is not None:
        parts.append(f"bounds = [{', '.join(_number(edge) for edge in parameter.bounds)}]")
    parts += [f"{role} = {_number(v)}" for role in ("fixed", "start") if (v := getattr(parameter, role)) is not None]
    if parameter.prior is not None:
        kind = type(parameter.prior).__name__.lower()
        parts.append(f"prior = {{ {kind} = [{', '.join(_number(part) for part in vars(parameter.prior).values())}] }}")
    return ", ".join(parts)


def _number(value: float) -> str:
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


def _options(choices: Choices) -> dict[str, Any]:
    """Return the arguments of a fit that are not as they are by default."""
    default = Choices()
    named = {"noise": choices.noise, "latent": choices.latent, "prior": choices.prior}
    return {name: value for name, value in named.items() if value != getattr(default, name)}


def write_command(session: Session) -> str:
    """Return the command that makes the same fit, with results where it puts them by itself."""
    words = ["lodekit", "fit", SYSTEM, session.file]
    words += [] if session.dt is None else ["--dt", repr(session.dt)]
    words += _edges(session.window)
    for name, value in _options(session.choices).items():
        words += [f"--{name}", value]
    return shlex.join([*words, "--seed", str(session.choices.seed)])


def write_shell(session: Session) -> str:
    """Return the commands that make the same fit, its report and its validation.

    Parameters
    ----------
    session : Session

    Examples
    --------
    >>> print(write_shell(Session(file="log.csv", window=(0.0, 5.0), held_out=(5.0, 9.0))))
    lodekit fit system.toml log.csv --from 0.0 --to 5.0 --seed 0 --out log-fit
    lodekit validate log-fit log.csv --from 5.0 --to 9.0
    """
    lines = [f"{write_command(session)} --out {_FOLDER}"]
    if session.held_out is not None:
        more = [] if session.dt is None else ["--dt", repr(session.dt)]
        more += ["--given", ",".join(session.given)] if session.given else []
        lines.append(shlex.join(["lodekit", "validate", _FOLDER, session.file, *more, *_edges(session.held_out)]))
    return "\n".join(lines)


def _edges(window: tuple[float | None, float | None]) -> list[str]:
    named = zip(("--from", "--to"), window, strict=True)
    return [word for option, edge in named if edge is not None for word in (option, repr(edge))]


def write_python(session: Session) -> str:
    """Return Python that makes the same fit, its report and its validation.

    Parameters
    ----------
    session : Session
    """
    file = json.dumps(session.file, ensure_ascii=False)
    options = {**_options(session.choices), "random_state": session.choices.seed}
    if session.dt is not None:
        options["dt"] = session.dt
    if session.window != (None, None):
        options["window"] = session.window
    written = "".join(f", {name}={value!r}" for name, value in options.items())
    lines = [
        "import lodekit as lk",
        "from lodekit.workflow import compute_results, fit_file, write_results",
        "",
        f'system = lk.read_system_file("{SYSTEM}")',
        f"product = fit_file(system, {file}{written})",
        "gp = product.gp",
        "print(gp.summary())",
        f'write_results(product, compute_results(product), "{_FOLDER}")  # model, predictions, figures, report',
    ]
    if session.held_out is not None:
        step = "" if session.dt is None else f", dt={session.dt!r}"
        given = f", given={list(session.given)!r}" if session.given else ""
        lines += [
            "",
            "from lodekit.rereading import read_record",
            "",
            f"print(gp.validate(read_record(gp, {file}{step}, window={session.held_out!r}){given}))",
        ]
    return "\n".join(lines) + "\n"
