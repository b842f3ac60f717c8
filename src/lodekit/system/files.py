"""System files: TOML with equations, channels, parameters, units, and how the model reads and fits measurements."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lodekit.errors import EquationError, LodekitError, SystemFileError
from lodekit.intervals import find_interval
from lodekit.system.dimensions import check_units
from lodekit.system.parameters import LogNormal, Normal, Parameter
from lodekit.system.system import System

__all__ = ["SystemFile", "read_system_file"]

MAX_BYTES = 1_000_000
_KEYS = (
    *("equations", "channels", "basis", "parameters", "units", "title"),
    *("noise", "latent", "prior", "mode_deviation", "inputs", "disturbances", "columns", "records"),
)
_PARAMETER_KEYS = ("positive", "bounds", "fixed", "start", "prior")
_NOISES = ("channel", "shared")
_PRIORS = ("latent", "channels")
_INPUTS = ("hold", "linear", "auto")


@dataclass(frozen=True)
class SystemFile:
    """What a system file holds.

    Parameters
    ----------
    system : System
        Equations, channels and parameters.
    units : dict of str to str
        Units of channels, parameters and the time, for labels, and checked against the equations; empty ones are left
        out.
    title : str
        For the reader.
    noise : {"channel", "shared"} or dict of observable to float
        How noise is learned, or its known standard deviations.
    latent : str or tuple of str
        Covariance of the free functions, one for all or one each.
    prior : {"latent", "channels"}
        What is smooth: the free functions, or the channels.
    mode_deviation : float, str or None
        The prior deviation of every mode; None where it is learned.
    columns : dict of observable to column
        Where a measurement file has the channels, ``t`` for the time: a name or a number counted from one.
    inputs : dict of channel to {"hold", "linear", "auto"}
        Channels that are known for all times from their samples, and what they do between these.
    disturbances : dict of channel to str
        Channels that drive the equations and are unknown, and what kind of process each is.
    records : str
        The column that says which record a line of a measurement file belongs to; empty where none does.
    """

    system: System
    units: dict[str, str]
    title: str
    noise: str | dict[str, float] = "channel"
    latent: str | tuple[str, ...] = "se"
    prior: str = "latent"
    mode_deviation: float | str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    disturbances: dict[str, str] = field(default_factory=dict)
    records: str = ""


def read_system_file(path: str | Path) -> SystemFile:
    r"""Return what a system file holds.

    The file holds ``equations`` (a list of texts, or one text), and optionally ``title``, ``channels``, ``basis``, a
    table ``[parameters]`` with entries such as ``tau = { positive = true, start = 10 }``, a table ``[units]``, and for
    the fit ``noise``, ``latent``, ``prior``, ``mode_deviation``, ``records``, ``[inputs]``, ``[disturbances]`` and
    ``[columns]``.

    Parameters
    ----------
    path : str or Path
        Of a TOML file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "tank.toml"
    ...     size = path.write_text("title = 'A tank'\nequations = 'A*diff(h, t) = q'\nparameters = ['A']")
    ...     found = read_system_file(path)
    >>> found.title, found.system
    ('A tank', <System of 1 equation in h, q, parameters A>)
    """
    if not isinstance(path, str | Path):
        raise SystemFileError(f"expected the path of a system file, got {type(path).__name__}")
    place = Path(path)
    content = _read_toml(place)
    _check_keys(place, "", content, _KEYS)
    if "equations" not in content:
        raise SystemFileError(f"{place}: expected a key 'equations', such as equations = [\"x' = -a*x + u\"]")
    parameters = _read_parameters(place, content.get("parameters", {}))
    try:
        optional = {key: content.get(key) for key in ("channels", "basis")}
        system = System(content["equations"], parameters=parameters, **optional)
    except LodekitError as problem:
        raise type(problem)(f"{place}: {_in_words_of_files(str(problem))}") from None
    units = _read_units(place, content.get("units", {}), system)
    if not isinstance(title := content.get("title", ""), str):
        raise SystemFileError(f"{place}: expected title as text, got {title!r}")
    columns = _read_columns(place, content.get("columns", {}))
    return SystemFile(
        system,
        units,
        title,
        noise=_read_noise(place, content.get("noise", "channel"), (*system.plain_channels, *columns)),
        latent=_read_latent(place, content.get("latent", "se")),
        prior=_read_choice(place, "prior", content.get("prior", "latent"), _PRIORS),
        mode_deviation=_read_deviation(place, content.get("mode_deviation")),
        columns=columns,
        inputs=_read_inputs(place, content.get("inputs", {}), system.plain_channels),
        disturbances=_read_disturbances(place, content.get("disturbances", {}), system.plain_channels),
        records=_read_records(place, content.get("records", "")),
    )


def _in_words_of_files(advice: str) -> str:
    """Return what a system says to Python's users as it is written in a file."""

    def write(found: re.Match[str]) -> str:
        names = re.findall(r"\w+", found[1]) or ["NAME"]
        return f"{' and '.join(f'{name} = {{}}' for name in names)} in [parameters]"

    return re.sub(r"parameters=\[([^\]]*)\]", write, advice)


def _read_units(place: Path, units: Any, system: System) -> dict[str, str]:
    if not isinstance(units, Mapping) or not all(isinstance(unit, str) for unit in units.values()):
        raise SystemFileError(f'{place}: expected [units] as a table of texts, such as T1 = "degC"')
    unknown = [name for name in units if name not in (*system.plain_channels, *system.parameters, "t")]
    if unknown:
        raise SystemFileError(f"{place}: [units] names {', '.join(unknown)}, neither a channel nor a parameter nor t")
    try:
        check_units(system, units)
    except EquationError as problem:
        raise SystemFileError(f"{place}: [units]: {problem}") from None
    return {name: unit for name, unit in units.items() if unit.strip()}


def _read_toml(place: Path) -> dict[str, Any]:
    try:
        with place.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as problem:
        raise SystemFileError(f"cannot read {place}: {getattr(problem, 'strerror', None) or problem}") from None
    if len(data) > MAX_BYTES:
        raise SystemFileError(f"{place}: expected a system file of at most {MAX_BYTES} bytes")
    try:
        # Windows editors put a mark before the text; "utf-8-sig" takes it away.
        return tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise SystemFileError(f"{place} is not a TOML file: {problem}") from None


def _check_keys(place: Path, where: str, table: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    unknown = [key for key in table if key not in allowed]
    if unknown:
        raise SystemFileError(
            f"{place}: unknown key{where} {', '.join(unknown)}; expected some of {', '.join(allowed)}"
        )


def _read_parameters(place: Path, table: Any) -> dict[str, Parameter] | list[str]:
    if isinstance(table, list) and all(isinstance(name, str) for name in table):
        return table
    if not isinstance(table, Mapping):
        raise SystemFileError(f"{place}: expected [parameters] as a table, such as tau = {{ positive = true }}")
    parameters = {}
    for name, entry in table.items():
        if not isinstance(entry, Mapping):
            raise SystemFileError(f"{place}: expected a table for parameter {name!r}, such as {name} = {{ start = 1 }}")
        _check_keys(place, f" for parameter {name!r}:", entry, _PARAMETER_KEYS)
        try:
            bounds = entry.get("bounds")
            options = {**entry, "bounds": tuple(bounds) if isinstance(bounds, list) else bounds}
            if "prior" in entry:
                options["prior"] = _read_prior(entry["prior"])
            parameters[name] = Parameter(**options)
        except LodekitError as problem:
            raise type(problem)(f"{place}: parameter {name!r}: {problem}") from None
    return parameters


def _read_prior(entry: Any) -> Normal | LogNormal:
    kind, numbers = next(iter(entry.items())) if isinstance(entry, Mapping) and len(entry) == 1 else ("", None)
    if kind not in ("normal", "lognormal") or not isinstance(numbers, list) or len(numbers) != 2:
        raise SystemFileError(
            f"expected prior = {{ normal = [mean, std] }} or {{ lognormal = [median, spread] }}, got {entry!r}"
        )
    return Normal(*numbers) if kind == "normal" else LogNormal(*numbers)


def _read_choice(place: Path, key: str, value: Any, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise SystemFileError(f"{place}: expected {key} = {' or '.join(map(repr, allowed))}, got {value!r}")
    return value


def _read_noise(place: Path, entry: Any, observables: Sequence[str]) -> str | dict[str, float]:
    if not isinstance(entry, Mapping):
        if isinstance(entry, str):
            return _read_choice(place, "noise", entry, _NOISES)
        raise SystemFileError(
            f"{place}: expected noise = 'channel' or 'shared', or a table [noise] such as T1 = 0.1, got {entry!r}"
        )
    for name, std in entry.items():
        if (name not in observables and not find_interval(name, observables)) or name == "t":
            raise SystemFileError(f"{place}: [noise] names {name}; expected a channel, or what [columns] names")
        number = isinstance(std, float | int) and not isinstance(std, bool)
        if not number or not 0 <= std < math.inf:
            raise SystemFileError(
                f"{place}: [noise]: expected a standard deviation of zero (exact) or more for {name}, got {std!r}"
            )
    return {name: float(std) for name, std in entry.items()}


def _read_deviation(place: Path, entry: Any) -> float | str | None:
    if entry is None:
        return None
    if entry in ("open", "learned"):
        return str(entry)
    if isinstance(entry, bool) or not isinstance(entry, float | int) or not 0 < entry < math.inf:
        raise SystemFileError(
            f"{place}: expected mode_deviation as a positive number, 'open' or 'learned', got {entry!r}"
        )
    return float(entry)


def _read_latent(place: Path, entry: Any) -> str | tuple[str, ...]:
    # Which names there are is known further down, where the covariances are.
    if isinstance(entry, str) and entry.strip():
        return entry
    if isinstance(entry, list) and entry and all(isinstance(name, str) and name.strip() for name in entry):
        return tuple(entry)
    raise SystemFileError(f"{place}: expected latent = 'se' or 'matern-5/2', or a list of them, got {entry!r}")


def _read_inputs(place: Path, entry: Any, channels: Sequence[str]) -> dict[str, str]:
    if not isinstance(entry, Mapping):
        raise SystemFileError(f'{place}: expected [inputs] as a table, such as u = "hold", got {entry!r}')
    for name, kind in entry.items():
        if name not in channels:
            raise SystemFileError(f"{place}: [inputs] names {name}; expected some of {', '.join(channels)}")
        _read_choice(place, f"[inputs] {name}", kind, _INPUTS)
    return dict(entry)


def _read_disturbances(place: Path, entry: Any, channels: Sequence[str]) -> dict[str, str]:
    if not isinstance(entry, Mapping):
        raise SystemFileError(f'{place}: expected [disturbances] as a table, such as w = "white", got {entry!r}')
    for name, kind in entry.items():
        if name not in channels:
            raise SystemFileError(
                f"{place}: [disturbances] names {name}, which stands in no equation; expected it where it acts, "
                f"such as on a right-hand side: ... + {name}"
            )
        # Which kinds there are is known further down, where the covariances are.
        if not isinstance(kind, str):
            raise SystemFileError(f"{place}: expected [disturbances] {name} = 'white' or 'matern-3/2', got {kind!r}")
    return dict(entry)


def _read_columns(place: Path, entry: Any) -> dict[str, str]:
    if not isinstance(entry, Mapping):
        raise SystemFileError(f'{place}: expected [columns] as a table, such as T1 = "temperature 1", got {entry!r}')
    columns = {}
    for name, column in entry.items():
        numbered = isinstance(column, int) and not isinstance(column, bool) and column > 0
        if not name.strip() or not (numbered or (isinstance(column, str) and column.strip())):
            raise SystemFileError(
                f"{place}: [columns]: expected a column for {name!r}, by name or number from one, got {column!r}"
            )
        columns[name.strip()] = str(column).strip()
    return columns


def _read_records(place: Path, entry: Any) -> str:
    if isinstance(entry, bool) or not isinstance(entry, str | int):
        raise SystemFileError(f'{place}: expected records as a column, such as records = "run", got {entry!r}')
    return str(entry).strip()
