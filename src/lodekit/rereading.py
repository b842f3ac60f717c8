"""Files for a model that is fitted: records to hold it against, and inputs to try, laid out like those of its fit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lodekit.data.sources import Source, read_source
from lodekit.data.tables.columns import recall_names as recall_known
from lodekit.data.tables.reading import open_table
from lodekit.errors import LodekitError
from lodekit.model import LODEGP
from lodekit.reading import column_checks

__all__ = ["file_options", "read_inputs", "read_record", "recall_columns", "recall_names"]


def recall_columns(gp: LODEGP, path: str | Path) -> dict[str, str]:
    """Return where a file has the channels of a model, as that of its fit had them; nothing where it looks different.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    path : str or Path
        Of a file that may be laid out like that of the fit.
    """
    if not gp.fit_.labels.columns or not os.path.isfile(path):
        return {}
    return recall_names(gp, open_table(path).names)


def recall_names(gp: LODEGP, names: Sequence[str]) -> dict[str, str]:
    """Return which of some columns hold the channels of a model, as in the file of its fit; nothing where none does.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    names : sequence of str
        Of the columns of a file.
    """
    return recall_known(gp.fit_.labels.columns, names)


def file_options(gp: LODEGP) -> dict[str, Any]:
    """Return how files for a model are read: from when times are counted, and in which units."""
    return {"since": gp.fit_.clock.origin, "units": gp.fit_.labels.units, "in_shell": True}


def read_record(
    gp: LODEGP,
    path: str | Path,
    columns: Mapping[str, Any] | None = None,
    dt: float | None = None,
    window: tuple[Any, Any] = (None, None),
) -> Source:
    """Return a record from a file, counted and measured in the units of a fit; messages speak of options.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    path : str or Path
        A CSV or Parquet file.
    columns : dict of observable to column, optional
        Where they differ from those of the fit.
    dt : float, optional
        The time between two rows of a file without times.
    window : (first, last)
        Times, as numbers or dates; others are left out.
    """
    system = gp.system
    how = {"columns": {**recall_columns(gp, path), **(columns or {})} or None, "dt": dt, "window": window}
    return read_source(str(path), channels=system.plain_channels, **how, **column_checks(system), **file_options(gp))


def read_inputs(gp: LODEGP, path: str | Path) -> dict[str, tuple[Any, Any]]:
    """Return times and values of the inputs of a model from a file, counted as those of its fit.

    Parameters
    ----------
    gp : LODEGP
        Fitted, with known inputs.
    path : str or Path
        A CSV or Parquet file.
    """
    known = list(gp.fit_.measurements.inputs)
    if not known:
        raise LodekitError("this model has no known inputs; expected one that was fitted with --input u=hold")
    columns = {name: column for name, column in recall_columns(gp, path).items() if name in (*known, "t")}
    found = read_source(str(path), channels=known, columns=columns or None, **file_options(gp)).measurements
    if found.sums is not None:
        raise LodekitError(f"{path} has too many rows to be kept; expected fewer")
    return {item.observable: (item.times, item.values) for item in found.series if item.observable in known}
