"""Commands about systems: analysis of their solutions, and examples."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

import lodekit as lk
from lodekit.cli import arguments
from lodekit.errors import AlgebraError, LodekitError


def inspect(
    source: Annotated[str, Argument(help="Equations as text, separated by ';', or the path of a system file (.toml).")],
    param: arguments.ParamOption = None,
    positive: arguments.PositiveOption = None,
    channel: arguments.ChannelsOption = None,
    basis: arguments.BasisOption = None,
    as_json: arguments.JsonOption = False,
    as_latex: Annotated[bool, Option("--latex", help="Print LaTeX.")] = False,
) -> None:
    """Describe the solutions of a system by exact algebra, with a proof.

    Example: lodekit inspect "f1' = -a*(f1-f2)+u; f2' = -b*(f2-f1)" --param a,b
    """
    if as_json and as_latex:
        raise LodekitError("expected --json or --latex, got both; choose one")
    system = arguments.read_system(
        source,
        arguments.parse_parameter_options(source, param, positive),
        arguments.parse_names(channel),
        arguments.parse_names(basis),
    )
    file = lk.read_system_file(source) if arguments.is_system_file(source) else None
    inputs, disturbances = (dict(file.inputs), dict(file.disturbances)) if file else ({}, {})
    if as_json:
        typer.echo(json.dumps(system.to_dict(), indent=2, ensure_ascii=False))
    elif as_latex:
        typer.echo(system.latex())
    else:
        console = Console()
        _print_system(console, system)
        if names := [*inputs, *disturbances]:
            kinds = {name: "linear" if kind == "linear" else "hold" for name, kind in inputs.items()}
            console.print()
            console.print(Text(f"Given {', '.join(names)}", "bold"))
            # Channels that contain white noise would be rejected here, so another kind represents it.
            space = system.state_space(kinds, dict.fromkeys(disturbances, "matern-3/2"))
            for line in (*str(space).splitlines(), "", *system.given(names).explain().splitlines()):
                console.print(Text(f"  {line}"), soft_wrap=True)


def catalog(
    name: Annotated[str | None, Argument(help="Show the details of this example.")] = None,
    as_json: arguments.JsonOption = False,
) -> None:
    """List the examples of the catalog, or show the details of one."""
    everything = {example.name: example for example in lk.catalog.examples()}
    console = Console()
    if name is not None:
        example = lk.catalog.find_example(name)
        if example is None:
            raise LodekitError(f"no example is called {name!r}; expected one of {', '.join(everything)}")
        if as_json:
            typer.echo(json.dumps({"name": example.name, "story": example.story, **example.system.to_dict()}, indent=2))
            return
        console.rule(Text(example.name, "bold cyan"), align="left")
        console.print(Text(example.story, "italic"))
        console.print()
        _print_system(console, example.system)
    elif as_json:
        rows = []
        for e in everything.values():
            system, values = e.system, {key: float(value) for key, value in e.values.items()}
            contents = {"equations": list(system.equations), "channels": list(system.channels), "parameters": values}
            rows.append({"name": e.name, "story": e.story, **contents})
        typer.echo(json.dumps(rows, indent=2))
    else:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for e in everything.values():
            table.add_row(Text(e.name, "bold cyan"), e.story)
            names = f"channels {', '.join(e.system.channels)}"
            if e.system.parameters:
                names += f"; parameters {', '.join(e.system.parameters)}"
            table.add_row("", Text(names, "dim"))
        console.print(table)
        console.print("\nShow one in full: lodekit catalog NAME", highlight=False)


def _print_system(console: Console, system: lk.System) -> None:
    from lodekit.system.display import analysis_sections

    sections = [(title, lines, "") for title, lines in analysis_sections(system)]
    try:
        sections.append(("Proved exactly", list(system.verify()), "green"))
    except AlgebraError as problem:
        sections.append(("Not proved", [str(problem)], "yellow"))
    for number, (title, lines, color) in enumerate(sections):
        console.print(Text(f"\n{title}" if number else title, f"bold {color}"))
        for line in lines:
            console.print(Text(f"  {line}", color), soft_wrap=True)
