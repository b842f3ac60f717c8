"""The commands ``fit``, from a system file and data files to results, and ``demo``."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer import Argument, Option

import lodekit as lk
from lodekit.cli import arguments
from lodekit.errors import EquationError, LodekitError
from lodekit.support.files import back_up_files, check_folder
from lodekit.support.html import replace_advice
from lodekit.support.progress import hide_progress

if TYPE_CHECKING:
    from lodekit.system.files import SystemFile
    from lodekit.workflow.pipeline import FitRun

SystemArgument = Annotated[str, Argument(help="System file (.toml, see lodekit init), or equations separated by ';'.")]
DataArgument = Annotated[
    list[str], Argument(help="CSV or Parquet file, or a quoted pattern; each of several is a separate record.")
]
EngineOption = Annotated[
    str, Option("--engine", help="auto, or the name of an engine: dense, spectral, modal, markov.")
]
FolderOption = Annotated[Path | None, Option("--out", "-o", help="Folder of results; by default DATA-fit.")]
NoisyMapOption = Annotated[
    arguments.Names,
    Option("--map", "-m", help="The column of a channel, by name or number: T1=temp_1, t=1, std(T1)=error."),
]
RecordsOption = Annotated[str | None, Option("--records", help="The column that identifies the record of each row.")]
NoiseOption = Annotated[str | None, Option("--noise", help="One noise level for all (shared), or for each (channel).")]
InputOption = Annotated[arguments.Names, Option("--input", help="A known input: --input u=hold (or linear, or auto).")]
DisturbanceOption = Annotated[
    arguments.Names,
    Option("--disturbance", help="Unmeasured channel that drives others: --disturbance w=white (or matern-3/2)."),
]
DeviationOption = Annotated[
    str | None, Option("--mode-deviation", help="Prior standard deviation of every mode: a number, open, or learned.")
]

#: Extensions of data files.
DATA_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".parquet", ".pq", ".gz")


def _parse_mode_deviation(text: str | None) -> float | str | None:
    """Return a number if the text is one; otherwise the word, which is checked later."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def fit(
    system: SystemArgument,
    data: DataArgument,
    out: FolderOption = None,
    param: arguments.ParamOption = None,
    positive: arguments.PositiveOption = None,
    mapping: NoisyMapOption = None,
    header: arguments.HeaderOption = None,
    dt: arguments.StepOption = None,
    first: arguments.FirstOption = None,
    last: arguments.LastOption = None,
    records: RecordsOption = None,
    split_gaps: arguments.SplitOption = False,
    timezone: arguments.TimezoneOption = None,
    missing: Annotated[list[float] | None, Option("--missing", help="A number that marks missing values.")] = None,
    values: Annotated[arguments.Names, Option("--set", "--fixed", help="A known parameter: --set tau=10.")] = None,
    start: Annotated[arguments.Names, Option("--start", help="Start value of a parameter: --start tau=10.")] = None,
    noise: NoiseOption = None,
    latent: Annotated[str | None, Option("--latent", help="Kernel of the free functions: se, matern-5/2, ...")] = None,
    prior: Annotated[str | None, Option("--prior", help="Prior on free functions (latent), or on channels.")] = None,
    basis: arguments.BasisOption = None,
    deviation: DeviationOption = None,
    given: InputOption = None,
    disturbance: DisturbanceOption = None,
    engine: EngineOption = "auto",
    restarts: Annotated[int, Option("--restarts", min=1, help="The maximum number of starting points.")] = 6,
    seed: Annotated[int, Option("--seed", min=0, help="Random seed for the starting points of the search.")] = 0,
    figures: Annotated[bool, Option("--figures/--no-figures", help="Whether to write PNG figures.")] = True,
    force: arguments.ForceOption = False,
    as_json: arguments.JsonOption = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Fit a system to measurements: summary, model, predictions, figures and a report.

    Results of an earlier fit in the same folder are kept, in a folder earlier-1 inside, unless --force is given.
    Examples: lodekit fit plant.toml log.csv --map y=temperature --set K=2;
    lodekit fit "tau*y' + y = K*u" log.csv --positive tau --param K --input u=hold
    """
    from lodekit.results.summary import CONVERGENCE_IN_WORDS
    from lodekit.workflow import pipeline

    if as_json and quiet:
        raise LodekitError("expected --json or --quiet, got both; choose one")
    if out is not None and out == Path():
        raise LodekitError("expected a folder after --out, got nothing; --out ./results is one")
    with hide_progress() if quiet else nullcontext():
        # Options take precedence over the system file.
        inputs = arguments.parse_pairs(given or [], "--input", "CHANNEL=hold, or =linear, or =auto")
        kinds = "CHANNEL=white, or =matern-3/2 and the like"
        disturbances = arguments.parse_pairs(disturbance or [], "--disturbance", kinds)
        file = _read_equations(system, data, param, positive, [*inputs, *disturbances])
        inputs, disturbances = {**file.inputs, **inputs}, {**file.disturbances, **disturbances}
        file = replace(file, inputs=inputs, disturbances=disturbances)
        fixed = arguments.parse_numbers(values or [], "--set")
        file = pipeline.with_parameter_values(file, fixed, arguments.parse_numbers(start or [], "--start"))
        if basis:
            file = replace(file, system=file.system.with_basis(arguments.parse_names(basis)))
        if given or disturbance or values or start or basis:
            # The system differs from that of the file.
            file = replace(file, name="")
        check_folder(folder := _default_folder(data[0]) if out is None else out)
        product = pipeline.fit_file(
            file,
            data,
            columns=arguments.read_mapping(mapping),
            header=header,
            dt=dt,
            window=(first, last),
            records=records,
            split_gaps=split_gaps or None,
            timezone=timezone,
            missing=missing,
            command=shlex.join(["lodekit", *sys.argv[1:]]),
            noise=noise,
            latent=latent,
            prior=prior,
            mode_deviation=_parse_mode_deviation(deviation),
            engine=engine,
            restarts=restarts,
            random_state=seed,
        )
        paths = _write_results(product, folder, figures=figures, notes=not quiet, force=force, quiet=quiet)
    if as_json:
        content = replace_advice(pipeline.fit_to_dict(product, paths), "cli_advice.txt")
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
    elif not quiet:
        _print_summary(product, paths)
    if not product.gp.converged_:
        arguments.print_message(f"{CONVERGENCE_IN_WORDS[product.gp.fit_.convergence]}; see the warnings")
        raise typer.Exit(1)


def _read_equations(
    source: str, data: list[str], param: list[str] | None, positive: list[str] | None, external_channels: Sequence[str]
) -> SystemFile:
    """Return a system file, or one with the given equations; external channels are not suggested as parameters."""
    from lodekit.system.files import SystemFile, describe_nonlinear_product

    if Path(source).suffix.lower() in DATA_SUFFIXES and (data[0].lower().endswith(".toml") or "=" in data[0]):
        raise LodekitError(f"expected the system before the data; try: lodekit fit {shlex.join([data[0], source])}")
    if arguments.is_system_file(source):
        if param or positive:
            raise LodekitError("a system file names its own parameters; remove --param and --positive")
        return lk.read_system_file(source)
    if re.fullmatch(r"[\w./\\:~ -]+", source):
        what = 'a system file (.toml) or equations such as "tau*y\' + y = K*u"'
        raise LodekitError(f"expected {what}, got {source!r}, and there is no such file")
    try:
        return SystemFile(lk.System(source, arguments.parse_parameter_options(source, param, positive)))
    except EquationError as problem:
        if not problem.undeclared:
            raise
        guessed = _guess_parameters(source, data[0])
        columns = [name for name in problem.undeclared if name not in guessed]
        if text := describe_nonlinear_product(problem, external_channels) or describe_nonlinear_product(
            problem, columns, "a column of the data"
        ):
            raise LodekitError(text) from None
        known = (*external_channels, *arguments.parse_names(param), *arguments.parse_names(positive))
        constants = [name for name in guessed if name not in known]
        raise EquationError(str(problem), undeclared=constants) from None


def _guess_parameters(equations: str, data: str) -> list[str]:
    """Return the names that equations never differentiate, and that are not columns of a data file."""
    from lodekit.data.preview import preview_table
    from lodekit.data.tables.columns import resolve_columns
    from lodekit.system.grammar import parse_equations
    from lodekit.system.parameters import find_channel_names

    parsed = parse_equations(equations)
    every = find_channel_names(parsed, ())
    try:
        look = preview_table(Path(data))
        measured = resolve_columns(look.names, every, time=look.time.name if look.time else None).values
    except LodekitError:
        measured = {}
    moved = {name for name in every if re.search(rf"\b{name}\s*(?:'|\(t\)\s*')|\b(?:D|diff)\(\s*{name}\b", equations)}
    return [name for name in every if name not in moved and name not in measured]


def demo(
    out: Annotated[Path, Option("--out", "-o", help="Folder of results.")] = Path("demo"),
    force: arguments.ForceOption = False,
) -> None:
    """Fit the heating system of the paper to 25 noisy measurements, and write a report."""
    import numpy as np

    from lodekit.workflow.pipeline import FitRun

    example = lk.catalog.heating()
    console = Console()
    console.print(Text("A heating element u warms f1, which warms f2; a and b are unknown.", "italic"))
    console.print()
    for line in (*example.system.equations, "", *example.system.explain().splitlines(), ""):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    times = np.linspace(-5, 5, 25)
    table = example.solution_at(times) + 0.02 * np.random.default_rng(0).standard_normal((25, 3))
    gp = lk.LODEGP(example.system, random_state=0).fit(times, table)
    truth = ", ".join(f"{name} = {float(value):g}" for name, value in example.values.items())
    notes = (f"Simulated data: the paper's solution at 25 times with noise of 0.02. The truth is {truth}.",)
    product = FitRun(gp.label(title="The heating system of the paper"), "built-in data", "lodekit demo", notes)
    data = {"t": times, **dict(zip(gp.system.channels, table.T, strict=True))}
    paths = _write_results(product, out, data=data, force=force)
    _print_summary(product, paths)
    console.print(notes[0], soft_wrap=True, highlight=False)


def _default_folder(data: str) -> Path:
    """Return the default output folder of a data file, from its name without the extension."""
    name = re.sub(r"(?i)(\.(csv|tsv|txt|dat|parquet|pq))?(\.gz)?$", "", Path(data).name)
    plain = re.sub(r"[*?\[\]]", "", name).strip(". -_")
    return Path(f"{plain or 'data'}-fit")


def _write_results(
    fit_run: FitRun,
    folder: Path,
    *,
    figures: bool = True,
    notes: bool = False,
    data: Mapping[str, Any] | None = None,
    force: bool = False,
    quiet: bool = False,
) -> dict[str, Path]:
    from lodekit.workflow import pipeline

    if notes and fit_run.notes:
        arguments.print_message("\n  ".join([f"{fit_run.source}:", *fit_run.notes]))
    contents, remarks = pipeline.compute_results(fit_run, figures=figures, data=data)
    for remark in remarks:
        arguments.print_message(remark)
    aside = None if force else back_up_files(folder, contents, pipeline.RESULT_FILES)
    if aside is not None and not quiet:
        arguments.print_message(
            f"{folder} had earlier results, which are now in {aside}; use --force to overwrite instead"
        )
    return pipeline.write_results(fit_run, contents, folder)


def _print_summary(fit_run: FitRun, paths: Mapping[str, Path]) -> None:
    typer.echo(replace_advice(fit_run.gp.summary(), "cli_advice.txt"))
    typer.echo(f"\nReport: {paths['report.html']}")
    others = ", ".join(name for name in paths if name != "report.html")
    typer.echo(f"In the same folder: {others}")
