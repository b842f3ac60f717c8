"""Commands that use a fitted model: predict, sample, check, simulate and validate."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import lodekit as lk
from lodekit.cli import arguments
from lodekit.errors import LodekitError
from lodekit.support.files import write_atomically
from lodekit.support.html import replace_advice

if TYPE_CHECKING:
    from lodekit.support.arguments import Array

FromOption = Annotated[str | None, Option("--from", help="First time; the first measurement by default.")]
ToOption = Annotated[str | None, Option("--to", help="Last time, or last day; the last measurement by default.")]
CountOption = Annotated[int | None, Option("--n", min=1, max=2_000_000, help="Number of evenly spaced times.")]
AtOption = Annotated[Path | None, Option("--at", help="A file with times and, for predict, inputs after the record.")]
RecordOption = Annotated[str | None, Option("--record", help="The name of one record; all by default.")]
ObservableOption = Annotated[
    arguments.Names, Option("--observable", help='Linear differential expression, such as "f1\'"; may be repeated.')
]


def predict(
    model: arguments.ModelArgument,
    start: FromOption = None,
    stop: ToOption = None,
    count: CountOption = None,
    at: AtOption = None,
    observable: ObservableOption = None,
    record: RecordOption = None,
    ahead: Annotated[
        str | None,
        Option("--ahead", help="Predict this many rows, or a time such as '24 h', ahead, at the times of the record."),
    ] = None,
    mapping: arguments.MapOption = None,
    out: arguments.OutOption = None,
    as_json: arguments.JsonOption = False,
) -> None:
    """Print means and standard deviations at new times as CSV; they include parameter uncertainty.

    After the record, known inputs keep their last values, or follow the columns of FILE.
    Examples: lodekit predict log-fit --from 0 --to 600 --n 61 --observable "T1'"; lodekit predict log-fit --at plan.csv
    """
    from lodekit.workflow.pipeline import forecast_table, mean_std_table, prediction_table, read_model, to_csv

    gp = read_model(model)
    if ahead is not None:
        if start is not None or stop is not None or at is not None or count is not None:
            raise LodekitError("--ahead predicts at the times of the record; remove --from, --to, --n and --at")
        table = forecast_table(gp, arguments.parse_horizon(ahead), observable or None, record)
    else:
        columns = arguments.read_mapping(mapping, gp)
        times = arguments.prediction_times(gp, start, stop, count, at, record, columns=columns)
        if inputs := arguments.read_planned_inputs(gp, times, at, columns):
            record, names = arguments.choose_record(gp, record) or gp.records_[0], observable or gp.fit_.setup.channels
            mean, std = gp.simulate(times[record], inputs, "end", names, return_std=True, record=record, as_frame=False)
            table = mean_std_table(gp, times[record], names, mean, std)
        else:
            table = prediction_table(gp, times, observable or None)
    arguments.write_output(json.dumps(table) + "\n" if as_json else to_csv(table), out)


def sample(
    model: arguments.ModelArgument,
    start: FromOption = None,
    stop: ToOption = None,
    count: CountOption = None,
    at: AtOption = None,
    observable: ObservableOption = None,
    record: RecordOption = None,
    size: Annotated[int, Option("--size", min=1, help="Number of samples.")] = 1,
    seed: Annotated[int, Option("--seed", min=0, help="Random seed of the samples.")] = 0,
    out: arguments.OutOption = None,
) -> None:
    """Draw random solutions of the fitted model, each with its own parameters, and print them as CSV.

    They show what the curves may look like. They contain neither measurement noise nor, after the last measurement,
    the model error that widens the bands of predict.

    Example: lodekit sample log-fit --size 3 --seed 1
    """
    from lodekit.workflow.pipeline import read_model, sample_table, to_csv

    gp = read_model(model)
    times = arguments.prediction_times(gp, start, stop, count, at, record)
    if arguments.read_planned_inputs(gp, times, at):
        raise LodekitError(f"sample cannot use the inputs in {at}; remove their columns, or use lodekit predict")
    names = observable or gp.fit_.setup.channels
    total = size * len(names) * sum(map(len, times.values()))
    if total > 20_000_000:
        raise LodekitError(f"expected at most {20_000_000:,} numbers at once, got {total:,}")
    columns = sample_table(gp, times, names, size=size, seed=seed)
    arguments.write_output(to_csv(columns), out)


def check(
    model: arguments.ModelArgument,
    start: FromOption = None,
    stop: ToOption = None,
    count: CountOption = None,
    record: RecordOption = None,
    as_json: arguments.JsonOption = False,
) -> None:
    """Show that a model satisfies its equations: exact identities, and measured residuals of its curves.

    The exit code is 1 if the measured residuals exceed rounding errors.
    """
    from lodekit.results.certificate import join_certificates
    from lodekit.workflow.pipeline import read_model

    gp = read_model(model)
    times = arguments.prediction_times(gp, start, stop, count, None, record, 1000)
    found = join_certificates([gp.certificate(own, record=name) for name, own in times.items()])
    if as_json:
        content = {
            "identities": list(found.identities),
            "residual": found.residual,
            "uncertainty": found.uncertainty,
            "strict": found.is_strict,
            **({"sense": found.sense, "measured": found.mean.residuals.shape[1]} if found.sense else {}),
        }
        typer.echo(json.dumps(content, indent=2))
    else:
        typer.echo(str(found))
        is_measured = found.mean.residuals.shape[1]
        verdict = "The curves satisfy the equations." if is_measured else "What is proved holds for all curves."
        failure = "could not be measured" if found.is_inconclusive else "exceeds rounding errors"
        typer.echo(verdict if found.is_strict else f"The residual {failure}.")
    if not (found.is_strict or found.is_inconclusive):
        raise typer.Exit(1)


def simulate(
    source: Annotated[
        str, Argument(help="Name of a catalog example, system file (.toml), equations, or a fitted MODEL.")
    ],
    inputs: Annotated[Path | None, Argument(help="For a MODEL: a file with times and inputs.")] = None,
    start: Annotated[str | None, Option("--from", help="First time.")] = None,
    stop: Annotated[str | None, Option("--to", help="Last time, or last day.")] = None,
    count: CountOption = None,
    noise: Annotated[float, Option("--noise", help="Standard deviation of noise to add.")] = 0.0,
    values: Annotated[arguments.Names, Option("--set", help="Values of parameters: --set a=3,b=1.")] = None,
    lengthscale: Annotated[float | None, Option("--lengthscale", help="Lengthscale of the free functions.")] = None,
    seed: Annotated[int, Option("--seed", min=0, help="Random seed of samples and noise.")] = 0,
    param: arguments.ParamOption = None,
    state: Annotated[
        str, Option("--start", help="For a MODEL: rest, steady, begin or end (of the record), or values: y=20,x=1.")
    ] = "rest",
    record: Annotated[
        str | None,
        Option("--record", help="For a MODEL with several records: the one to start from; the last by default."),
    ] = None,
    mapping: arguments.MapOption = None,
    timezone: arguments.TimezoneOption = None,
    out: arguments.OutOption = None,
) -> None:
    """Simulate data as CSV: the solution of a catalog example, or a sample from the prior of a system.

    With a fitted MODEL and a file of inputs: the response to these inputs, with standard deviations.

    Examples: lodekit simulate heating --from -5 --to 5 --n 25 --noise 0.02 --out heating.csv;
    lodekit simulate log-fit inputs.csv --start y=20
    """
    import numpy as np

    from lodekit.data.time_reference import TimeReference
    from lodekit.workflow.new_data import read_inputs
    from lodekit.workflow.pipeline import merge_columns, read_model, to_csv

    if inputs is not None:
        if noise or values or lengthscale is not None or param:
            options = "--noise, --set, --lengthscale, --param"
            raise LodekitError(f"a fitted model has estimated values; expected no {options}")
        gp = read_model(source)
        signals = read_inputs(gp, inputs, arguments.read_mapping(mapping, gp), timezone)
        arguments.write_output(to_csv(_simulate_response(gp, signals, state, record, start, stop, count)), out)
        return
    if os.path.isdir(source) or Path(source).suffix == ".lodekit":  # equations may be longer than any name of a file
        raise LodekitError(
            f"expected a file of inputs beside the fitted model, such as lodekit simulate {source} inputs.csv, got none"
        )
    if not math.isfinite(noise) or noise < 0:
        raise LodekitError(f"expected --noise of zero or more, got {noise}")
    low = 0.0 if start is None else TimeReference().parse_time(start, "--from")
    times = np.linspace(*arguments.parse_range(TimeReference(), start, stop, (0.0, low + 10.0)), count or 100)
    generator, numbers = np.random.default_rng(seed), arguments.parse_numbers(values or [], "--set")
    example = lk.catalog.find_example(source)
    if example is None:
        system = arguments.read_system(source, arguments.parse_names(param), [])
        table = _sample_prior(system, times, numbers, lengthscale, seed)
    elif numbers or lengthscale is not None or param:
        raise LodekitError(f"{source} is a solution of the catalog at its own values; expected no --set, --lengthscale")
    else:
        system, table = example.system, example.solution_at(times)
    table = table + noise * generator.standard_normal(table.shape)
    columns: dict[str, Any] = {"t": times.tolist()}
    merge_columns(columns, ((name, table[:, k].tolist()) for k, name in enumerate(system.plain_channels)))
    arguments.write_output(to_csv(columns), out)


def _sample_prior(
    system: lk.System, times: Array, values: dict[str, float], lengthscale: float | None, seed: int
) -> Array:
    """Return a sample from the prior of a system, (n, channels)."""
    from lodekit.results.simulation import simulate as draw
    from lodekit.support.arguments import check_parameters

    check_parameters(system.parameters, values)
    for name, own in system.parameters.items():
        if name not in values and own.fixed is None and own.start is None:
            raise LodekitError(f"expected a value for the parameter {name!r}; try --set {name}=1")
    found: Array = draw(system, times, values, lengthscale=lengthscale, random_state=seed)[0]
    return found


def _simulate_response(
    gp: lk.LODEGP,
    signals: dict[str, tuple[Any, Any]],
    state: str,
    record: str | None,
    first: str | None,
    last: str | None,
    count: int | None,
) -> dict[str, Any]:
    """Return the response of a model to inputs as columns, at their times or between two times."""
    import numpy as np

    from lodekit.results.simulation import START_STATES
    from lodekit.workflow.pipeline import mean_std_table

    if "=" not in state and state not in START_STATES:
        known = ", ".join(START_STATES)
        raise LodekitError(f"expected --start as one of {known}, or values such as --start y=20, got {state!r}")
    if first is None and last is None and count is not None:
        raise LodekitError("the response is computed at the times of the file; --n needs --from or --to")
    record = arguments.choose_record(gp, record) if state in ("begin", "end") else record
    start: str | dict[str, float] = arguments.parse_numbers([state], "--start") if "=" in state else state
    if first is None and last is None:
        times = np.unique(np.concatenate([times for times, _ in signals.values()]))
    else:
        window = min(t[0] for t, _ in signals.values()), max(t[-1] for t, _ in signals.values())
        times = np.linspace(*arguments.parse_range(gp.fit_.clock, first, last, window), count or 100)
    names = gp.fit_.setup.channels
    mean, std = gp.simulate(times, signals, start, names, return_std=True, record=record, as_frame=False)
    for item in gp.fit_.record_fits[0].measurements.series if start == "rest" else ():
        name, low, high = item.observable, item.values.min(initial=np.inf), item.values.max(initial=-np.inf)
        value = mean[0, names.index(name)] if name in names else low
        if not 1.1 * low - 0.1 * high <= value <= 1.1 * high - 0.1 * low:
            arguments.print_message(
                f"from rest, {name} starts at {value:.4g}, far from the record; try --start end or steady"
            )
    if isinstance(start, dict):
        given = {*start, *signals, *gp.fit_.prior.disturbances}
        for name, value in zip(names, mean[0].tolist(), strict=True):
            # Rest, where another channel would be, may be 0 degC.
            if name not in given and _is_possible(gp, times, signals, {**start, name: value + abs(value) + 1.0}):
                raise LodekitError(
                    f"expected an initial value of {name} as well, which {', '.join(start)} leaves open: --start "
                    f"{state},{name}=VALUE; or try --start steady"
                )
    return mean_std_table(gp, times, names, mean, std, known_channels=signals)


def _is_possible(gp: lk.LODEGP, times: Array, signals: dict[str, tuple[Any, Any]], start: dict[str, float]) -> bool:
    """Return whether a system can have these initial values together."""
    try:
        gp.simulate(times[:1], signals, start, as_frame=False)
    except LodekitError:
        return False
    return True


def validate(
    model: arguments.ModelArgument,
    data: Annotated[
        list[str], Argument(help="CSV or Parquet files of records that were not used for the fit, one for each.")
    ],
    given: Annotated[
        arguments.Names,
        Option("--given", help="Channels to condition on over the whole record, if the fit has no known inputs."),
    ] = None,
    start: Annotated[
        str,
        Option(
            "--start",
            help="What determines the initial state: all rows, a number of first rows, or end, the state at the end of "
            "the fitted record; with disturbances or free functions, all uses end if this record continues the fitted "
            "one, otherwise the first 10 rows.",
        ),
    ] = "all",
    ahead: Annotated[
        str, Option("--ahead", help="Numbers of rows, or times such as '24 h', to predict ahead, separated by commas.")
    ] = "1,5,10",
    mapping: arguments.MapOption = None,
    dt: arguments.StepOption = None,
    split_gaps: arguments.SplitOption = False,
    first: arguments.FirstOption = None,
    last: arguments.LastOption = None,
    timezone: arguments.TimezoneOption = None,
    plot: Annotated[Path | None, Option("--plot", help="Write a PNG figure of the free run.")] = None,
    as_json: arguments.JsonOption = False,
) -> None:
    """Validate a model on records that were not used for the fit: free run, predictions ahead, coverage.

    The exit code is 1 if the model does not hold on all of them.

    Example: lodekit validate log-fit other.csv --plot free-run.png
    """
    from lodekit.plotting import to_png
    from lodekit.workflow.new_data import read_record
    from lodekit.workflow.pipeline import read_model

    if plot is not None and plot.suffix.lower() != ".png":
        raise LodekitError(f"expected a PNG file for --plot, such as {plot.with_suffix('.png')}, got {plot}")
    gp = read_model(model)
    found = gp.validate(
        read_record(gp, data, arguments.read_mapping(mapping, gp), dt, (first, last), timezone),
        given=arguments.parse_names(given) or None,
        start=int(start) if start.isdigit() else start,
        ahead=[arguments.parse_horizon(part) for part in map(str.strip, ahead.split(",")) if part],
        # By default, as in the fit.
        split_gaps=split_gaps or None,
    )
    if plot is not None:
        write_atomically(plot, to_png(found.plot()))
    content = replace_advice(found.to_dict() if as_json else repr(found), "cli_advice.txt")
    typer.echo(json.dumps(content, indent=2) if as_json else content)
    if not found.holds:
        reasons = ", ".join(item.failure for item in found.channels if item.failure)
        which = "this record" if len({item.record for item in found.channels}) == 1 else "all records"
        arguments.print_message(f"the model does not hold on {which}: {reasons}")
        raise typer.Exit(1)
