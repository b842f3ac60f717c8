"""From files to results: read a system and its measurements, fit, and compute everything that a fit writes.

The command line prints what these functions return; a web page can show it. Nothing is printed here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lodekit.arguments import check_parameters
from lodekit.columns import format_columns, predict_columns
from lodekit.errors import LodekitError
from lodekit.files import MODEL, make_folder, write_file
from lodekit.progress import waiting
from lodekit.summary import plain_values
from lodekit.system.files import SystemFile
from lodekit.system.parameters import Parameter
from lodekit.system.system import System

if TYPE_CHECKING:
    from lodekit.data.sources import Source
    from lodekit.model import LODEGP

__all__ = [
    "MODEL",
    "RESULTS",
    "Product",
    "Results",
    "compute_results",
    "describe_fit",
    "fit_file",
    "open_data",
    "read_model",
    "set_parameters",
    "write_results",
]

#: What a fit may write; a file of measurements beside it is never taken for one of these.
RESULTS = {
    *("report.html", "predictions.csv", MODEL),
    *("channels.png", "equations.png", "parameters.png", "modes.png"),
    *("residuals.png", "bode.png", "step.png"),
}
#: How many times the table of predictions has.
_GRID = 400


@dataclass(frozen=True)
class Product:
    """A fit with everything that its report says about where it comes from.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    source : str
        What the data are called.
    command : str
        The command that makes it again; empty where there is none.
    notes : tuple of str
        What was found out about the data, in words.
    """

    gp: LODEGP
    source: str
    command: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Results:
    """Everything that a fit writes but the model itself.

    Parameters
    ----------
    contents : dict of str to str or bytes
        By the name of the file.
    remarks : tuple of str
        What is not there, and why.
    """

    contents: dict[str, str | bytes]
    remarks: tuple[str, ...] = ()


def fit_file(
    file: SystemFile,
    data: str | Path | Sequence[str | Path],
    *,
    columns: Mapping[str, Any] | None = None,
    header: bool | None = None,
    dt: float | None = None,
    window: tuple[Any, Any] = (None, None),
    records: str | None = None,
    command: str = "",
    **arguments: Any,
) -> Product:
    r"""Fit the system of a system file to measurements in files.

    Parameters
    ----------
    file : SystemFile
        As `lodekit.read_system_file` returns it.
    data : str or Path, or a sequence of them
        A CSV or Parquet file, or a pattern such as ``logs/*.parquet``; each of several is a record of its own.
    columns, header, dt, window, records
        How files are read, as in `lodekit.data.planning.Request`; columns and records go before what the system file
        says.
    command : str
        The command that makes it again, for the report; messages speak of its options then.
    **arguments
        Of `LODEGP`, such as ``engine`` and ``random_state``; what is None, or not there, is as the system file says.

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
    from lodekit.labels import Labels

    how: dict[str, Any] = {"columns": columns, "header": header, "dt": dt, "window": window, "records": records}
    gp, source = open_data(file, data, in_shell=bool(command), **how, **arguments)
    labels = gp.fit(source).labels_
    known = {**file.columns, **(columns or {})}
    units, places = {**labels["units"], **file.units}, {name: str(column) for name, column in known.items()}
    gp.fit_ = replace(gp.fit_, labels=Labels(file.title, units, labels["origin"], places))
    named = ", ".join(Path(path).name if os.path.exists(path) else str(path) for path in _list_paths(data))
    return Product(gp, named, command, source.notes)


def open_data(
    file: SystemFile,
    data: str | Path | Sequence[str | Path],
    *,
    columns: Mapping[str, Any] | None = None,
    header: bool | None = None,
    dt: float | None = None,
    window: tuple[Any, Any] = (None, None),
    records: str | None = None,
    in_shell: bool = False,
    **arguments: Any,
) -> tuple[LODEGP, Source]:
    """Return the estimator of a system file, not fitted yet, and the measurements that it would be fitted to.

    Parameters
    ----------
    file : SystemFile
    data, columns, header, dt, window, records
        As in `fit_file`.
    in_shell : bool
        Whether messages speak of options of the command line.
    **arguments
        Of `LODEGP`; what is None, or not there, is as the system file says.
    """
    from lodekit.model import LODEGP

    given = {name: value for name, value in arguments.items() if value is not None}
    gp = LODEGP(file.system, **{**_settings(file), **given})
    known, paths = {**file.columns, **(columns or {})}, _list_paths(data)
    how: dict[str, Any] = {"header": header, "dt": dt, "window": window, "records": records or file.records or None}
    never = tuple(gp.disturbances) if isinstance(gp.disturbances, Mapping) else ()
    return gp, _read_data(
        file, paths[0] if len(paths) == 1 else paths, columns=known, in_shell=in_shell, never=never, **how
    )


def _list_paths(data: str | Path | Sequence[str | Path]) -> list[str | Path]:
    return [data] if isinstance(data, str | Path) else list(data)


def _read_data(file: SystemFile, data: Any, **how: Any) -> Source:
    """Return the measurements of a system file: in its units, with the noise that it says."""
    from lodekit.data.sources import read_source
    from lodekit.reading import column_checks

    return read_source(
        data,
        channels=file.system.plain_channels,
        noise_std=file.noise if isinstance(file.noise, dict) else None,
        units={name: unit for name, unit in file.units.items() if name in (*file.system.plain_channels, "t")},
        **column_checks(file.system, file.units),
        **how,
    )


def _settings(file: SystemFile) -> dict[str, Any]:
    """Return the arguments of `LODEGP` that a system file holds."""
    return {
        "noise": file.noise if isinstance(file.noise, str) else "channel",
        "latent": file.latent if isinstance(file.latent, str) else list(file.latent),
        "prior": file.prior,
        "mode_deviation": file.mode_deviation,
        "inputs": dict(file.inputs) or None,
        "disturbances": dict(file.disturbances) or None,
    }


def set_parameters(file: SystemFile, known: Mapping[str, float], starts: Mapping[str, float]) -> SystemFile:
    """Return a system file in which some parameters are known, or start somewhere.

    Parameters
    ----------
    file : SystemFile
    known : dict of str to float
        Parameters that are fixed.
    starts : dict of str to float
        Where the search for others starts.
    """
    system = file.system
    if not known and not starts:
        return file
    parameters = dict(system.parameters)
    for role, values in (("fixed", known), ("start", starts)):
        check_parameters(system.parameters, values)
        for name, value in values.items():
            try:
                parameters[name] = Parameter.from_definition(parameters[name].definition() | {role: value})
            except LodekitError as problem:
                raise LodekitError(f"{role} {name} = {value:g}: {problem}") from None
    equations, channels, basis = list(system.equations), system.plain_channels, system.basis
    return replace(file, system=System(equations, parameters=parameters, channels=channels, basis=basis))


def read_model(path: str | Path) -> LODEGP:
    """Return a saved model; a folder that a fit has written is as good as the model in it.

    Parameters
    ----------
    path : str or Path
        The model, or the folder.
    """
    from lodekit.model import LODEGP

    place = Path(path)
    if place.suffix.lower() == ".toml":
        raise LodekitError(
            f"expected a fitted model, or the folder that lodekit fit has written, got the system file {place}; "
            f"lodekit inspect {place} shows what its equations imply, lodekit fit {place} DATA makes a model"
        )
    if os.path.isdir(place) and not (place / MODEL).exists():
        raise LodekitError(f"expected a folder that lodekit fit has written, {place} has no {MODEL} in it")
    return LODEGP.load(place)


def compute_results(product: Product, *, figures: bool = True, data: Mapping[str, Any] | None = None) -> Results:
    """Compute report, predictions and figures of a fit; nothing is written yet.

    Parameters
    ----------
    product : Product
    figures : bool
        Whether figures are drawn, as PNG; they need matplotlib.
    data : dict of str to sequence, optional
        Columns for ``data.csv``, where the data are not in a file already.
    """
    import numpy as np

    from lodekit.report import make_report

    gp, remarks = product.gp, list[str]()
    if gp.fit_.is_on_disk:
        remarks.append(
            f"{MODEL} holds the end of the rows alone, as they are too many for memory: it predicts from there on, and "
            "goes on as a stream"
        )
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
        parts = zip(gp.records_, gp.fit_.parts, strict=True)
        times = {record: np.linspace(*part.setup.surroundings, _GRID) for record, part in parts}
        contents["predictions.csv"] = format_columns(predict_columns(gp, times))
        if figures:
            advance(1, "figures")
            drawn, remark = _draw_figures(gp)
            contents |= drawn
            remarks += [remark] if remark else []
        if data is not None:
            contents["data.csv"] = format_columns(data)
    return Results(contents, tuple(remarks))


def write_results(product: Product, results: Results, folder: str | Path) -> dict[str, Path]:
    """Write a model and its results to a folder, and return the paths by name.

    Everything was computed before, so that an interruption leaves no half of anything; what an earlier fit has left
    in the folder, and this one has not, is removed.

    Parameters
    ----------
    product : Product
    results : Results
    folder : str or Path
        Made where it is not there.
    """
    place = make_folder(folder)
    product.gp.save(place / MODEL)
    for name, content in results.contents.items():
        write_file(place / name, content)
    for name in RESULTS - {MODEL, *results.contents}:
        # It would be taken for a part of this fit.
        (place / name).unlink(missing_ok=True)
    return {name: place / name for name in (*results.contents, MODEL)}


def _draw_figures(gp: LODEGP) -> tuple[dict[str, bytes], str]:
    """Return figures as PNG by name, or why there are none."""
    from lodekit.plotting import import_matplotlib, to_png

    try:
        import_matplotlib()
    except LodekitError:
        return {}, "no figures: matplotlib is missing; try: pip install 'lodekit[plot]'"
    drawn: dict[str, Callable[[], Any]] = {"channels.png": gp.plot, "equations.png": gp.plot_residual}
    if not gp.certificate(samples=0).mean.left.shape[1]:
        # White noise drives every equation: values of curves cannot be put into any.
        del drawn["equations.png"]
    if any(estimate.note != "fixed" for estimate in gp.parameters_.values()):
        drawn["parameters.png"] = lambda: gp.plot_parameters(others="following")
    if gp.fit_.setup.reduced.modes:
        drawn["modes.png"] = gp.plot_modes
    if not gp.fit_.measurements.is_summed:
        drawn["residuals.png"] = gp.plot_residuals
    if gp.fit_.measurements.inputs:
        drawn["bode.png"] = gp.plot_bode
        if not gp.state_space().D1.any():
            drawn["step.png"] = gp.plot_step
    return {name: to_png(draw()) for name, draw in drawn.items()}, ""


def describe_fit(product: Product, paths: Mapping[str, Path] | None = None) -> dict[str, Any]:
    """Return a fit as plain values, for JSON.

    Parameters
    ----------
    product : Product
    paths : dict of str to Path, optional
        Where results were written.
    """
    return {
        **plain_values(product.gp.fit_),
        "notes": list(product.notes),
        "files": {name: str(path) for name, path in (paths or {}).items()},
    }
