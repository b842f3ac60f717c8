"""Commands that lead to a fit: a system file from equations, a fit from a data file, a demonstration."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from lodekit.cli.app import ChannelsOption, JsonOption, OutOption, ParamOption, read_names
from lodekit.cli.inputs import MODEL, check_parameters, deliver, format_columns, prediction_columns, read_numbers
from lodekit.errors import LodekitError
from lodekit.files import check_folder, make_folder, write_file
from lodekit.progress import waiting
from lodekit.system import catalog as examples
from lodekit.system.files import SystemFile, format_system_file, read_system_file
from lodekit.system.parameters import Parameter
from lodekit.system.system import System

if TYPE_CHECKING:
    from lodekit.model import LODEGP

__all__ = ["demo", "fit", "init"]

#: Files beyond this are read in pieces, and only their sums are kept.
_LARGE = 200_000_000
#: What a fit may write.
_NAMES = {
    *("report.html", "predictions.csv", MODEL, "data.csv"),
    *("channels.png", "residual.png", "parameters.png", "modes.png"),
}
_GRID = 400


@dataclass(frozen=True)
class Product:
    """A fit with everything that its report says about where it comes from.

    Parameters
    ----------
    gp : LODEGP
    source, command : str
    notes : tuple of str
    """

    gp: LODEGP
    source: str
    command: str
    notes: tuple[str, ...] = ()


def init(
    equations: Annotated[str, typer.Argument(help="Equations as text, separated by ';'.")],
    param: ParamOption = None,
    channel: ChannelsOption = None,
    title: Annotated[str, typer.Option("--title", help="What the report is called.")] = "",
    out: OutOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented system file from equations, to be filled in.

    Example: lodekit init "tau*y' + y = K*u" --param tau,K --out plant.toml
    """
    text = format_system_file(equations, read_names(param), read_names(channel) or None, title=title)
    if out is not None and out.exists() and not force:
        raise LodekitError(f"{out} is there already; expected a new name, or --force")
    deliver(text, out)
    if out is not None:
        _say(f"wrote {out}; next: lodekit fit {shlex.quote(str(out))} DATA.csv")


def fit(
    system: Annotated[Path, typer.Argument(help="System file (.toml); lodekit init writes one.")],
    data: Annotated[str, typer.Argument(help="CSV or Parquet file, or a pattern such as 'logs/*.parquet'.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of results; by default DATA-fit.")] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", "-m", help="Which column is what: T1=temp_1, t=1 (a number), std(T1)=error."),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="Whether the first line names the columns; found out otherwise."),
    ] = None,
    values: Annotated[list[str] | None, typer.Option("--set", help="A known parameter: --set tau=10.")] = None,
    start: Annotated[list[str] | None, typer.Option("--start", help="Where the search starts: --start tau=10.")] = None,
    noise: Annotated[
        str | None, typer.Option("--noise", help="One level for all (shared), or for each (channel).")
    ] = None,
    latent: Annotated[str | None, typer.Option("--latent", help="Prior of free functions: se, matern-5/2, ...")] = None,
    prior: Annotated[str | None, typer.Option("--prior", help="latent, or channels.")] = None,
    engine: Annotated[str, typer.Option("--engine", help="auto, dense or spectral.")] = "auto",
    restarts: Annotated[int, typer.Option("--restarts", min=1, help="How many starts are followed at most.")] = 6,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the starts.")] = 0,
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="Whether PNG figures are written.")] = True,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Fit a system to measurements: summary, model, predictions, figures and a report.

    Example: lodekit fit plant.toml log.csv --map y=temperature --set K=2
    """
    if as_json and quiet:
        raise LodekitError("expected --json or --quiet, got both; choose one")
    if out is not None and out == Path():
        raise LodekitError("expected a folder after --out, got nothing; --out ./results is one")
    file = read_system_file(system)
    options: dict[str, Any] = {
        "noise": noise or (file.noise if isinstance(file.noise, str) else "shared"),
        "latent": latent or (file.latent if isinstance(file.latent, str) else list(file.latent)),
        "prior": prior or file.prior,
        "engine": engine,
        "restarts": restarts,
        "random_state": seed,
    }
    known = read_numbers(values or [], "--set")
    file = replace(file, system=_with_values(file.system, known, read_numbers(start or [], "--start")))
    folder = _folder(data) if out is None else out
    check_folder(folder)
    product = _fit_file(file, data, options, mapping or [], header, quiet=quiet)
    paths = _write(product, folder, figures=figures)
    if as_json:
        typer.echo(json.dumps(_as_plain(product, paths), indent=2, ensure_ascii=False))
    elif not quiet:
        _show(product, paths)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of results.")] = Path("demo"),
) -> None:
    """Fit the heating system of the paper to 25 noisy measurements, and write a report."""
    import numpy as np

    from lodekit.model import LODEGP

    example = examples.heating()
    console = Console()
    console.print(Text("A heating element u warms f1, which warms f2; a and b are unknown.", "italic"))
    console.print()
    for line in (*example.system.equations, "", *example.system.explain().splitlines(), ""):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    times = np.linspace(-5, 5, 25)
    table = example.solution_at(times) + 0.02 * np.random.default_rng(0).standard_normal((25, 3))
    gp = LODEGP(example.system, random_state=0).fit(times, table)
    truth = ", ".join(f"{name} = {float(value):g}" for name, value in example.values.items())
    notes = (f"Simulated data: the paper's solution at 25 times with noise of 0.02. The truth is {truth}.",)
    product = Product(gp.label(title="The heating system of the paper"), "built-in data", "lodekit demo", notes)
    paths = _write(
        product, out, figures=True, columns={"t": times, **dict(zip(gp.system.channels, table.T, strict=True))}
    )
    _show(product, paths)
    console.print(notes[0], soft_wrap=True, highlight=False)


def _folder(data: str) -> Path:
    """Return the folder of the results of a data file: its name without its ending."""
    name = re.sub(r"(?i)(\.(csv|tsv|txt|dat|parquet|pq))?(\.gz)?$", "", Path(data).name)
    plain = re.sub(r"[*?\[\]]", "", name).strip(". -_")
    return Path(f"{plain or 'data'}-fit")


def _fit_file(
    file: SystemFile, data: str, options: Mapping[str, Any], mapping: list[str], header: bool | None, *, quiet: bool
) -> Product:
    from lodekit.data.tables import read_mapping, read_table
    from lodekit.model import LODEGP

    gp, columns = LODEGP(file.system, **options), {**file.columns, **read_mapping(mapping)}
    known = dict(file.noise) if isinstance(file.noise, dict) else {}
    command = shlex.join(["lodekit", *sys.argv[1:]])
    if (any(mark in data for mark in "*?[") and not Path(data).is_file()) or _is_large(data):
        if any(key != "t" for key in columns) or header is not None:
            raise LodekitError(
                "files that are read in pieces must name their columns as the channels are named; expected no --map "
                "but t=, and no --header"
            )
        gp.fit(data, noise_std=known or None, time=columns.get("t"))
        gp.label(title=file.title, units=file.units)
        notes = ["read in pieces; only sums were kept"]
        absent = [name for name in file.system.channels if name not in gp.fit_.measurements.names]
        notes += [f"no column for {', '.join(absent)}: not measured"] if absent else []
        if not quiet:
            _say(f"{data}: {'; '.join(notes)}")
        return Product(gp, data, command, tuple(notes))
    table = read_table(data, file.system.channels, mapping=columns, header=header)
    noise = {**{key: value for key, value in known.items() if key in table.values}, **table.noise}
    origin = "" if table.origin is None else table.origin.isoformat()
    units = {**file.units, **({"t": "s"} if origin else {})}
    if origin and file.units.get("t", "s") != "s":
        raise LodekitError(
            f'times are dates, and dates become seconds; expected t = "s" in [units], got {file.units["t"]!r}'
        )
    gp.fit(table.times, table.values, noise_std=noise or None)
    gp.label(title=file.title, units=units, origin=origin)
    if table.notes and not quiet:
        _say(f"{Path(data).name}: {'; '.join(table.notes)}")
    return Product(gp, Path(data).name, command, table.notes)


def _is_large(path: str) -> bool:
    try:
        return Path(path).stat().st_size > _LARGE and path.lower().endswith((".parquet", ".csv", ".csv.gz"))
    except OSError:
        return False


def _with_values(system: System, known: Mapping[str, float], starts: Mapping[str, float]) -> System:
    """Return a system in which some parameters are known, or start somewhere."""
    if not known and not starts:
        return system
    parameters = dict(system.parameters)
    for role, values in (("fixed", known), ("start", starts)):
        check_parameters(system, values)
        for name, value in values.items():
            own = parameters[name].definition() | {role: value}
            try:
                parameters[name] = Parameter.from_definition(own)
            except LodekitError as problem:
                option = "--set" if role == "fixed" else "--start"
                raise LodekitError(f"{option} {name}={value:g}: {problem}") from None
    return System(list(system.equations), parameters=parameters, channels=system.channels)


def _write(
    product: Product, folder: Path, *, figures: bool, columns: Mapping[str, Any] | None = None
) -> dict[str, Path]:
    """Compute everything first, then write it: an interruption leaves no half of anything."""
    from lodekit.report import make_report

    gp = product.gp
    contents: dict[str, bytes | str] = {}
    with waiting("writing") as advance:
        advance(1, "report")
        contents["report.html"] = make_report(
            gp,
            title=gp.labels_["title"],
            units=gp.labels_["units"],
            source=product.source,
            command=product.command,
            notes=product.notes,
        )
        advance(1, "predictions")
        contents["predictions.csv"] = _predictions(gp)
        if figures:
            advance(1, "figures")
            contents |= _figures(gp)
        if columns is not None:
            contents["data.csv"] = format_columns(columns)
    make_folder(folder)
    gp.save(folder / MODEL)
    for name, content in contents.items():
        write_file(folder / name, content)
    for name in _NAMES - {MODEL, *contents}:
        # What an earlier fit has left here would be taken for a part of this one.
        (folder / name).unlink(missing_ok=True)
    return {name: folder / name for name in (*contents, MODEL)}


def _predictions(gp: LODEGP) -> str:
    import numpy as np

    times = np.linspace(*gp.fit_.measurements.surroundings, _GRID)
    return format_columns(prediction_columns(gp, times, list(gp.system.channels)))


def _figures(gp: LODEGP) -> dict[str, bytes]:
    from lodekit.plotting import import_matplotlib, to_png

    try:
        import_matplotlib()
    except LodekitError:
        _say("no figures: matplotlib is missing; try: pip install 'lodekit[plot]'")
        return {}
    drawn: dict[str, Callable[[], Any]] = {"channels.png": gp.plot, "residual.png": gp.plot_residual}
    if any(estimate.note != "fixed" for estimate in gp.parameters_.values()):
        drawn["parameters.png"] = lambda: gp.plot_parameters(others="following")
    if gp.system.modes:
        drawn["modes.png"] = gp.plot_modes
    return {name: to_png(draw()) for name, draw in drawn.items()}


def _show(product: Product, paths: Mapping[str, Path]) -> None:
    typer.echo(product.gp.summary())
    typer.echo(f"\nReport: {paths['report.html']}")
    others = ", ".join(name for name in paths if name != "report.html")
    typer.echo(f"Beside it: {others}")


def _as_plain(product: Product, paths: Mapping[str, Path]) -> dict[str, Any]:
    gp = product.gp

    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return {
        "parameters": {
            name: {
                "value": estimate.value,
                "std_error": finite(estimate.std_error),
                "interval": [finite(edge) for edge in estimate.interval],
                "identified": estimate.identified,
                "note": estimate.note,
            }
            for name, estimate in gp.parameters_.items()
        },
        "noise": dict(gp.noise_),
        "hyperparameters": dict(gp.hyperparameters_),
        "log_evidence": float(gp.log_evidence_),
        "observations": int(gp.fit_.setup.engine.size),
        "converged": bool(gp.converged_),
        "engine": gp.engine_,
        "warnings": list(gp.warnings_),
        "notes": list(product.notes),
        "files": {name: str(path) for name, path in paths.items()},
    }


def _say(text: str) -> None:
    Console(stderr=True).print(text, soft_wrap=True, highlight=False, markup=False)
