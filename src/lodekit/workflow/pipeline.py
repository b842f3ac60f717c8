"""From files to results: reading a system and its measurements, fitting, tables, figures and a report.

Nothing is printed here; the command line and the studio show what these functions return.
"""

from __future__ import annotations

import csv
import inspect
import io
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lodekit.data.time_reference import TimeReference
from lodekit.errors import LodekitError
from lodekit.results.summary import summary_dict
from lodekit.support.arguments import Array, check_parameters
from lodekit.support.files import MODEL_FILE, make_folder, write_atomically
from lodekit.support.progress import track_progress
from lodekit.support.text import describe_unknown
from lodekit.system.files import SystemFile, read_system_file
from lodekit.system.parameters import Parameter
from lodekit.system.system import System

if TYPE_CHECKING:
    from lodekit.data.sources import LoadedData
    from lodekit.model import LODEGP
    from lodekit.results.validation import Validation


def prediction_table(
    gp: LODEGP, times: Mapping[str, Array], observables: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return times by record, dates if there are any, and means with standard deviations, as columns.

    With several records, the first column contains their names.

    Shapes: times (n,).
    """
    names, parts = gp.fit_.setup.channels if observables is None else observables, []
    for record, record_times in times.items():
        # Predict in blocks of rows, so that memory does not grow with the number of times.
        blocks = np.split(record_times, range(5000, len(record_times), 5000))
        with track_progress("predicting", len(blocks)) as advance:
            moments = []
            for block in blocks:
                moments.append(gp.predict(block, names, return_std=True, record=record, as_frame=False))
                advance()
        mean, std = (np.concatenate(part) for part in zip(*moments, strict=True))
        parts.append((record, mean_std_table(gp, record_times, names, mean, std)))
    return _concatenate_records(gp, parts)


def forecast_table(
    gp: LODEGP, horizon: int | str, observables: Sequence[str] | None = None, record: str | None = None
) -> dict[str, Any]:
    """Return predictions a number of rows or a time ahead at the times of each record, with standard deviations."""
    from lodekit.results.forecast import forecast_observables, parse_horizon

    parts = []
    for own in gp.records_ if record is None else gp.fit_.for_record(record).record_names:
        fit = gp.fit_.for_record(own)
        texts = list(observables or fit.measurements.names)
        ahead = parse_horizon(horizon, fit.clock.unit)
        times, *found = forecast_observables(fit, texts, ahead)
        # The first rows are predicted from none.
        is_known = ahead.count_known(times, times)[:, None] > 0
        mean, std = (np.where(is_known, each, np.array(None)) for each in found)
        parts.append((own, mean_std_table(gp, times, texts, mean, std)))
    return _concatenate_records(gp, parts)


def _concatenate_records(gp: LODEGP, parts: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the tables of all records of a model as one, with a column of record names; None for missing cells."""
    if len(gp.records_) == 1:
        return parts[0][1]
    columns: dict[str, Any] = {"record": [record for record, own in parts for _ in own["t"]]}
    for name in dict.fromkeys(name for _, own in parts for name in own):
        lists = (own.get(name, [None] * len(own["t"])) for _, own in parts)
        merge_columns(columns, [(name, [cell for cells in lists for cell in cells])])
    return columns


def mean_std_table(
    gp: LODEGP, times: Array, observables: Sequence[str], mean: Array, std: Array, known_channels: Collection[str] = ()
) -> dict[str, Any]:
    """Return times, dates if there are any, means and standard deviations as columns; known channels have no std."""
    columns: dict[str, Any] = {"t": times.tolist(), **date_column(gp.labels_, times)}
    for number, name in enumerate(observables):
        merge_columns(columns, [(name, mean[:, number].tolist())])
        if name not in known_channels:
            merge_columns(columns, [(f"std({name})", std[:, number].tolist())])
    return columns


def sample_table(
    gp: LODEGP, times: Mapping[str, Array], observables: Sequence[str] | None = None, *, size: int = 1, seed: int = 0
) -> dict[str, Any]:
    """Return samples of the posterior as columns: sample number, times, dates, channels, and parameters.

    Each sample solves the equations at its own parameter values; estimated parameters are columns as well.

    Shapes: times (n,).
    """
    names = gp.fit_.setup.channels if observables is None else observables
    estimated = [gp.fit_.layout.names[number] for number in gp.fit_.layout.free_parameters]
    parts = []
    for record, own in times.items():
        samples, parameters = gp.sample(own, size, seed, names, return_parameters=True, record=record)
        columns: dict[str, Any] = {"sample": [k for k in range(1, size + 1) for _ in own], "t": own.tolist() * size}
        columns |= {name: values * size for name, values in date_column(gp.labels_, own).items()}
        merge_columns(columns, ((name, samples[:, :, k].ravel().tolist()) for k, name in enumerate(names)))
        merge_columns(columns, ((name, parameters[name].repeat(len(own)).tolist()) for name in estimated))
        parts.append((record, columns))
    return _concatenate_records(gp, parts)


def date_column(labels: Mapping[str, Any], times: Iterable[float]) -> dict[str, list[str]]:
    """Return a column of dates for times since an origin; empty if times are numbers.

    Examples
    --------
    >>> date_column({"origin": "2026-03-01T12:00:00", "units": {"t": "min"}}, [0.0, 1.5])
    {'date': ['2026-03-01T12:00:00', '2026-03-01T12:01:30']}
    """
    clock = TimeReference.from_labels(labels.get("origin", ""), labels.get("units", {}).get("t"))
    return {"date": [date.isoformat() for date in clock.to_dates(times)]} if clock.origin else {}


def merge_columns(columns: dict[str, Any], new_columns: Iterable[tuple[str, Any]]) -> None:
    """Add columns to a table; raise if two have the same name."""
    for name, values in new_columns:
        if name in columns:
            message = f"two columns would be called {name!r}; request each observable once, and rename channels"
            raise LodekitError(message)
        columns[name] = values


def to_csv(columns: Mapping[str, Sequence[Any]]) -> str:
    r"""Return columns as CSV; numbers in full precision, and an apostrophe before texts that look like formulas.

    Examples
    --------
    >>> to_csv({"t": [0.0, 0.1], "-x": [-1.0, 2.5]})
    "t,'-x\n0.0,-1.0\n0.1,2.5\n"
    """

    def format_cell(cell: Any) -> Any:
        # A spreadsheet would evaluate these texts.
        if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")):
            return f"'{cell}"
        return repr(float(cell)) if isinstance(cell, float) else cell

    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    for row in (columns, *zip(*columns.values(), strict=True)):
        writer.writerow(map(format_cell, row))
    return target.getvalue()


#: Files that a fit may write; data files are never mistaken for them.
RESULT_FILES = {
    *("report.html", "predictions.csv", MODEL_FILE),
    *("channels.png", "equations.png", "parameters.png", "modes.png"),
    *("residuals.png", "bode.png", "step.png"),
}


@dataclass(frozen=True)
class FitRun:
    """A fit with its origin, for the report.

    gp: The fitted model.
    source: The name of the data.
    command: The command that reproduces it; empty if there is none.
    notes: Notes about the data, for users.
    code: Python code that repeats the fit; empty if it is unknown.
    validation: Results of validations for the report, by titles.
    """

    gp: LODEGP
    source: str
    command: str = ""
    notes: tuple[str, ...] = ()
    code: str = ""
    validation: Mapping[str, Validation] = field(default_factory=dict)

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write model, report, predictions and figures to a folder, as ``lodekit fit`` does; return the paths by name.

        Parameters
        ----------
        folder : path
            It is created if it does not exist.
        """
        return write_results(self, compute_results(self)[0], folder)


def fit_file(
    file: SystemFile | str | Path,
    data: str | Path | Sequence[str | Path],
    *,
    columns: Mapping[str, Any] | None = None,
    command: str = "",
    **arguments: Any,
) -> FitRun:
    r"""Fit the system of a system file to measurements in files, as ``lodekit fit`` does.

    Parameters
    ----------
    file : path or SystemFile
        The system file.
    data : path, or sequence of paths
        The measurements; each of several files is a record.
    columns : dict of str to str, optional
        Columns of channels, beside those in the system file.
    command : str
        The shell command, for the report.
    **arguments
        ``header``, ``dt``, ``window`` (first and last time), ``records``, ``split_gaps``, ``timezone`` and ``missing``
        for reading; all others are arguments of `LODEGP`.

    Returns
    -------
    FitRun
        With the fitted model ``gp``, and ``notes`` about the data.

    Examples
    --------
    >>> import tempfile
    >>> import lodekit as lk
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "room.toml").write_text("equations = [\"T' = -k*T\"]\nparameters = ['k']")
    ...     rows = (f"{t};{20 * 0.9 ** t:.4f}".replace(".", ",") for t in range(20))
    ...     _ = Path(folder, "log.csv").write_text("\n".join(["time [h];T [K]", *rows]))
    ...     product = fit_file(lk.read_system_file(Path(folder, "room.toml")), Path(folder, "log.csv"), random_state=0)
    >>> product.notes
    ("separator ';', decimal comma", 'T is in column T [K]')
    >>> round(product.gp.parameters_["k"].value, 3)
    0.105
    """
    file = read_system_file(file) if isinstance(file, str | Path) else file
    if not isinstance(file, SystemFile):
        raise LodekitError(f"expected the path of a system file, or a SystemFile, got {type(file).__name__}")
    if columns is not None and not isinstance(columns, Mapping):
        raise LodekitError(f"expected columns as a dict of channels to columns, got {columns!r}")
    if not isinstance(arguments.get("window", ()), tuple | list):
        raise LodekitError(f"expected window as (first, last), got {arguments['window']!r}")
    gp, source = prepare_fit(file, data, columns=columns, in_shell=bool(command), **arguments)
    labels = gp.fit(source).fit_.labels
    known = {**file.columns, **(columns or {})}
    units, places = {**labels.units, **file.units}, {name: str(column) for name, column in known.items()}
    gp.fit_ = replace(gp.fit_, labels=replace(labels, title=file.title, units=units, columns=places))
    names = [Path(path).name if os.path.exists(path) else str(path) for path in _list_paths(data)]
    given = {**({"columns": dict(columns)} if columns else {}), **arguments}
    return FitRun(gp, ", ".join(names), command, source.plain_notes, _generate_code(file, _list_paths(data), given))


def _generate_code(file: SystemFile, data: Sequence[str | Path], arguments: Mapping[str, Any]) -> str:
    """Return Python code that repeats a fit; without the name of a system file, the code contains its contents."""
    from lodekit.model import LODEGP
    from lodekit.report.document import generate_system_code

    defaults = {name: option.default for name, option in inspect.signature(LODEGP).parameters.items()}
    defaults |= {"split_gaps": False, "window": (None, None)}
    changed = {name: value for name, value in arguments.items() if value is not None}
    # A default value is needed if the system file contains another one.
    options = [
        f"{name}={value!r}"
        for name, value in changed.items()
        if not value == defaults.get(name) == getattr(file, name, value)
    ]
    paths, lines = [str(path) for path in data], ["import lodekit as lk", ""]
    if not file.name:
        contents = ((own.name, getattr(file, own.name), own.default) for own in fields(file) if own.name != "system")
        listed = [f"{name}={value!r}" for name, value, default in contents if value and value != default]
        lines[1:1] = ["from lodekit.system.files import SystemFile"]
        lines += [*generate_system_code(file.system), f"file = SystemFile({', '.join(['system', *listed])})"]
    called = [repr(file.name) if file.name else "file", repr(paths if paths[1:] else paths[0]), *options]
    return "\n".join([*lines, f"gp = lk.fit_file({', '.join(called)}).gp", "print(gp.summary())"])


def prepare_fit(
    file: SystemFile,
    data: str | Path | Sequence[str | Path],
    *,
    columns: Mapping[str, Any] | None = None,
    header: bool | None = None,
    dt: float | None = None,
    window: tuple[Any, Any] = (None, None),
    records: str | None = None,
    split_gaps: bool | None = None,
    timezone: str | None = None,
    missing: Sequence[float] | None = None,
    in_shell: bool = False,
    **arguments: Any,
) -> tuple[LODEGP, LoadedData]:
    """Return the unfitted estimator of a system file, and its measurements."""
    from lodekit.data.sources import load_data
    from lodekit.model import LODEGP
    from lodekit.prior.observables import table_checks

    readers = set(inspect.signature(prepare_fit).parameters) - {"file", "data", "in_shell", "arguments"}
    known = sorted(readers | set(inspect.signature(LODEGP).parameters) - {"system"})
    for name in set(arguments) - set(known):
        raise LodekitError(f"fit_file() has no argument {name!r}; {describe_unknown(name, known)}")
    options: dict[str, Any] = {
        "noise": file.noise if isinstance(file.noise, str) else "channel",
        "latent": file.latent if isinstance(file.latent, str) else list(file.latent),
        "prior": file.prior,
        "mode_deviation": file.mode_deviation,
        "inputs": dict(file.inputs) or None,
        "disturbances": dict(file.disturbances) or None,
    }
    gp = LODEGP(file.system, **options | {name: value for name, value in arguments.items() if value is not None})
    paths, channels = _list_paths(data), file.system.plain_channels
    return gp, load_data(
        paths[0] if len(paths) == 1 else paths,
        channels=channels,
        noise_std=file.noise if isinstance(file.noise, dict) else None,
        units={name: unit for name, unit in file.units.items() if name in (*channels, "t")},
        **table_checks(file.system, file.units),
        columns={**file.columns, **(columns or {})},
        in_shell=in_shell,
        never=tuple(gp.disturbances) if isinstance(gp.disturbances, Mapping) else (),
        header=header,
        dt=dt,
        default_dt=file.dt,
        window=window,
        records=records or file.records or None,
        split_gaps=file.split_gaps if split_gaps is None else split_gaps,
        timezone=timezone or file.timezone,
        missing=missing or file.missing or None,
        inputs=tuple(gp.inputs or ()),
    )


def _list_paths(data: str | Path | Sequence[str | Path]) -> list[str | Path]:
    paths = [data] if isinstance(data, str | Path) else list(data) if isinstance(data, list | tuple) else []
    if not paths or not all(isinstance(path, str | Path) for path in paths):
        got = f"{data!r}" if isinstance(data, list | tuple) else type(data).__name__
        raise LodekitError(f"expected the path of a data file, or a list of paths, got {got}; LODEGP.fit takes tables")
    return paths


def with_parameter_values(file: SystemFile, fixed: Mapping[str, float], starts: Mapping[str, float]) -> SystemFile:
    """Return a system file with known values or start values for some parameters."""
    system = file.system
    if not fixed and not starts:
        return file
    parameters = dict(system.parameters)
    for role, values in (("fixed", fixed), ("start", starts)):
        check_parameters(system.parameters, values)
        for name, value in values.items():
            try:
                parameters[name] = Parameter.from_definition(parameters[name].definition() | {role: value})
            except LodekitError as problem:
                raise LodekitError(f"{role} {name} = {value:g}: {problem}") from None
    equations, channels, basis = list(system.equations), system.plain_channels, system.basis
    return replace(file, system=System(equations, parameters=parameters, channels=channels, basis=basis))


def read_model(path: str | Path) -> LODEGP:
    """Return a saved model, from its file or from the folder of its fit."""
    from lodekit.model import LODEGP

    place = Path(path)
    if place.suffix.lower() == ".toml":
        raise LodekitError(
            f"expected a fitted model, or the folder that lodekit fit has written, got the system file {place}; "
            f"lodekit inspect {place} shows what its equations imply, lodekit fit {place} DATA makes a model"
        )
    folder = Path(f"{place}-fit")
    if not place.exists() and (folder / MODEL_FILE).exists():
        raise LodekitError(f"{place} was not found; did you mean {folder}, which lodekit fit has written?")
    if os.path.isdir(place) and not (place / MODEL_FILE).exists():
        raise LodekitError(f"expected a folder that lodekit fit has written, {place} has no {MODEL_FILE} in it")
    return LODEGP.load(place)


def compute_results(
    fit_run: FitRun, *, figures: bool = True, data: Mapping[str, Any] | None = None, n_times: int = 400
) -> tuple[dict[str, str | bytes], list[str]]:
    """Return the contents of all files that a fit writes except the model, by name, and what is missing and why.

    They are a report, predictions at `n_times` times, and figures if matplotlib is installed; nothing is written.
    """
    from lodekit.report import make_report

    gp = fit_run.gp
    contents, reasons = dict[str, str | bytes](), list[str]()
    if gp.fit_.is_on_disk:
        reasons.append(
            f"{MODEL_FILE} contains only the last rows, because there are too many for memory: it predicts from there "
            "on, and continues as a stream"
        )
    with track_progress("writing") as advance:
        advance(1, "report")
        texts = {"title": gp.labels_["title"], "source": fit_run.source}
        texts |= {"command": fit_run.command, "code": fit_run.code}
        more: dict[str, Any] = {"notes": fit_run.notes, "validation": fit_run.validation}
        contents["report.html"] = make_report(gp, units=gp.labels_["units"], **more, **texts)
        advance(1, "predictions")
        parts = zip(gp.records_, gp.fit_.record_fits, strict=True)
        times = {record: np.linspace(*part.setup.default_window, n_times) for record, part in parts}
        contents["predictions.csv"] = to_csv(prediction_table(gp, times))
        if figures:
            advance(1, "figures")
            drawn, failed = draw_figures(gp)
            contents.update(drawn)
            reasons += failed
        if data is not None:
            contents["data.csv"] = to_csv(data)
    return contents, reasons


def write_results(fit_run: FitRun, contents: Mapping[str, str | bytes], folder: str | Path) -> dict[str, Path]:
    """Write a model and its results to a folder, and return the paths by name.

    Results are computed before, so that an interruption leaves no incomplete files; files of an earlier fit that this
    one does not have are removed.
    """
    place = make_folder(folder)
    fit_run.gp.save(place / MODEL_FILE)
    for name, content in contents.items():
        write_atomically(place / name, content)
    for name in RESULT_FILES - {MODEL_FILE, *contents}:
        # Otherwise it would seem to belong to this fit.
        (place / name).unlink(missing_ok=True)
    return {name: place / name for name in (*contents, MODEL_FILE)}


def draw_figures(gp: LODEGP) -> tuple[dict[str, bytes], list[str]]:
    """Return figures as PNG by name, and why others are missing."""
    from lodekit.plotting import import_matplotlib, to_png
    from lodekit.results.certificate import pointwise_equations

    try:
        import_matplotlib()
    except LodekitError:
        return {}, ["no figures: matplotlib is missing; try: pip install 'lodekit[plot]'"]
    drawn: dict[str, Callable[[], Any]] = {"channels.png": gp.plot}
    # If white noise drives every equation, curves cannot be substituted into any.
    if pointwise_equations(gp.fit_):
        drawn["equations.png"] = gp.plot_residual
    if any(estimate.note != "fixed" for estimate in gp.parameters_.values()):
        drawn["parameters.png"] = lambda: gp.plot_parameters(others="following")
    if not gp.fit_.setup.reduced_system.is_controllable:
        drawn["modes.png"] = gp.plot_modes
    if not gp.fit_.measurements.has_only_statistics:
        drawn["residuals.png"] = gp.plot_residuals
    if gp.fit_.measurements.inputs:
        drawn["bode.png"] = gp.plot_bode
        if not gp.state_space().D1.any():
            drawn["step.png"] = gp.plot_step
    contents, reasons = dict[str, bytes](), list[str]()
    for name, draw in drawn.items():
        try:
            contents[name] = to_png(draw())
        except Exception as problem:  # a fit is worth more than a figure
            reasons.append(f"{name} cannot be drawn: {problem}")
    return contents, reasons


def fit_to_dict(fit_run: FitRun, paths: Mapping[str, Path] | None = None) -> dict[str, Any]:
    """Return a fit as plain values, for JSON."""
    files = {name: str(path) for name, path in (paths or {}).items()}
    return {**summary_dict(fit_run.gp.fit_), "notes": list(fit_run.notes), "files": files}
