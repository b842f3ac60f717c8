"""System files: TOML with equations, channels, parameters and units."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lodekit.errors import LodekitError, SystemFileError
from lodekit.system.parameters import Parameter
from lodekit.system.system import System

__all__ = ["SystemFile", "read_system_file"]

MAX_BYTES = 1_000_000
_KEYS = ("equations", "channels", "parameters", "units", "title")
_PARAMETER_KEYS = ("positive", "bounds", "fixed", "start")


@dataclass(frozen=True)
class SystemFile:
    """What a system file holds.

    Parameters
    ----------
    system : System
    units : dict of str to str
        Units of channels and parameters, for labels.
    title : str
    """

    system: System
    units: dict[str, str]
    title: str


def read_system_file(path: str | Path) -> SystemFile:
    """Read a system file.

    The file holds ``equations`` (a list of texts, or one text), and optionally ``title``, ``channels``, a table
    ``[parameters]`` with entries such as ``tau = { positive = true, start = 10 }``, and a table ``[units]``.
    """
    if not isinstance(path, str | Path):
        raise SystemFileError(f"expected the path of a system file, got {type(path).__name__}")
    place = Path(path)
    try:
        with place.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as problem:
        raise SystemFileError(f"cannot read {place}: {getattr(problem, 'strerror', None) or problem}") from None
    if len(data) > MAX_BYTES:
        raise SystemFileError(f"{place}: expected a system file of at most {MAX_BYTES} bytes")
    try:
        # Windows editors put a mark before the text; "utf-8-sig" takes it away.
        content = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise SystemFileError(f"{place} is not a TOML file: {problem}") from None
    _check_keys(place, "", content, _KEYS)
    if "equations" not in content:
        raise SystemFileError(f"{place}: expected a key 'equations', such as equations = [\"x' = -a*x + u\"]")
    parameters = _read_parameters(place, content.get("parameters", {}))
    try:
        system = System(content["equations"], parameters=parameters, channels=content.get("channels"))
    except LodekitError as problem:
        raise type(problem)(f"{place}: {problem}") from None
    units = content.get("units", {})
    if not isinstance(units, Mapping) or not all(isinstance(unit, str) for unit in units.values()):
        raise SystemFileError(f'{place}: expected [units] as a table of texts, such as T1 = "degC"')
    title = content.get("title", "")
    if not isinstance(title, str):
        raise SystemFileError(f"{place}: expected title as text, got {title!r}")
    unknown = [name for name in units if name not in (*system.channels, *system.parameters, "t")]
    if unknown:
        raise SystemFileError(f"{place}: [units] names {', '.join(unknown)}, neither a channel nor a parameter nor t")
    return SystemFile(system, dict(units), title)


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
            parameters[name] = Parameter(**options)
        except LodekitError as problem:
            raise type(problem)(f"{place}: parameter {name!r}: {problem}") from None
    return parameters
