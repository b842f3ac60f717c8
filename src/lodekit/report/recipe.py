"""The last section of a report: the command, the version and the seed that made it, and the same in Python."""

from __future__ import annotations

import inspect
import json
import math

from lodekit.model import LODEGP
from lodekit.page import Page
from lodekit.report.subject import Subject
from lodekit.version import __version__

__all__ = ["add_recipe", "write_code"]


def add_recipe(page: Page, subject: Subject, command: str) -> None:
    """Add what it takes to get the same report again.

    Parameters
    ----------
    page : Page
        What is added to.
    subject : Subject
        The fitted model, and what the user said about it.
    command : str
        The shell command that made the report; empty where there was none.
    """
    page.section("How to get this again")
    if command:
        page.paragraph("On the command line:")
        page.code(command)
    page.paragraph("In Python:")
    page.code(write_code(subject.gp, subject.source))
    seed = subject.gp.fit_.arguments.random_state
    seeded = f"random seed {seed}" if seed is not None else "no random seed: each run draws its own starts"
    page.paragraph(f"Made by lodekit {__version__}, {seeded}.", "note")


def write_code(gp: LODEGP, source: str = "") -> str:
    """Return Python code that makes and fits the same model.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    source : str
        The name of the data file; empty where it is not known.
    """
    system, kept = gp.system, gp.fit_.measurements
    lines = ["import lodekit as lk", "", "system = lk.System(", '    """']
    lines += [*(f"    {text}" for text in system.equations), '    """,']
    if system.parameters:
        lines.append("    parameters={")
        for name, parameter in system.parameters.items():
            options = [(key, getattr(parameter, key)) for key in ("positive", "bounds", "fixed", "start", "prior")]
            given = [f"{key}={_code(value)}" for key, value in options if value is not None and value is not False]
            lines.append(f'        "{name}": lk.Parameter({", ".join(given)}),')
        lines.append("    },")
    listed = ", ".join(f'"{name}"' for name in system.plain_channels)
    chosen = [] if system.basis is None else [f"    basis={_code(system.basis)},"]
    lines += [f"    channels=[{listed}],", *chosen, ")"]
    defaults = {key: option.default for key, option in inspect.signature(LODEGP).parameters.items()}
    arguments = [f"{k}={_code(v)}" for k, v in gp.fit_.arguments.to_dict().items() if v != defaults[k]]
    model = f"lk.LODEGP({', '.join(['system', *arguments])})"
    if kept.is_summed:
        lines.append(f"gp = {model}.fit({_code(source or 'data.parquet')})")
    elif len(gp.records_) > 1:
        lines.append(f"# one file, DataFrame, or (t, Y) for each record, with some of {', '.join(kept.names)}")
        names = gp.records_ if len(gp.records_) <= 12 else (*gp.records_[:12], "...")
        lines.append(f"gp = {model}.fit({_code(list(names))})")
    else:
        where = f", from {' '.join(source.splitlines())}" if source else ""
        noise = ", noise_std=noise_std" if any(not item.learned for item in kept.summaries) else ""
        lines.append(f"# t: times; Y: a dict or table of {', '.join((*kept.names, *kept.inputs))}{where}")
        lines.append(f"gp = {model}.fit(t, Y{noise})")
    return "\n".join([*lines, "print(gp.summary())"])


def _code(value: object) -> str:
    """Return a value as Python code."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(_code(part) for part in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and math.isinf(value):
        return f'float("{value}")'
    return f"lk.{value!r}" if type(value).__module__.startswith("lodekit") else repr(value)
