"""System files in TOML: reading them, and writing commented templates from equations and a data file."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import chain, count
from pathlib import Path
from string import Template
from typing import Any

from lodekit.errors import EquationError, LodekitError, SystemFileError
from lodekit.support.files import describe_read_error
from lodekit.support.interval_means import interval_from_column
from lodekit.support.text import describe_unknown
from lodekit.system.dimensions import check_units
from lodekit.system.parameters import LogNormal, Normal, Parameter
from lodekit.system.system import System

MAX_FILE_BYTES = 1_000_000
_FILE_KEYS = (
    *("equations", "channels", "basis", "parameters", "units", "title"),
    *("noise", "latent", "prior", "mode_deviation", "inputs", "disturbances", "columns", "records", "split_gaps", "dt"),
    *("timezone", "missing"),
)
_PARAMETER_KEYS = ("positive", "bounds", "fixed", "start", "prior")


@dataclass(frozen=True)
class SystemFile:
    """The contents of a system file.

    system: Equations, channels and parameters.
    units: Units of channels, parameters and the time, for labels, checked against the equations; no empty ones.
    title: Title of reports.
    noise: How noise is estimated, or known standard deviations.
    latent: Kernel of the free functions, one for all or one for each.
    prior: Whether the prior is on the free functions or on the channels.
    mode_deviation: Prior standard deviation of each mode, or None, as in `LODEGP`.
    columns: Columns of channels, and of the time ``t``, in a data file: a name, or a number counted from one.
    inputs: Known inputs, and their interpolation between samples.
    disturbances: Unmeasured channels that drive the equations, and the kind of process of each.
    records: The column of a data file that contains the record of each row; empty if there is none.
    split_gaps: Whether records are split where times are far apart.
    dt: Sampling interval of data files without a time column.
    timezone: The time zone of dates without one; empty if there is none.
    missing: Numbers that mark missing values in data files.
    name: The path of the file; empty if there is none.
    """

    system: System
    units: dict[str, str] = field(default_factory=dict)
    title: str = ""
    noise: str | dict[str, float] = "channel"
    latent: str | tuple[str, ...] = "se"
    prior: str = "latent"
    mode_deviation: float | str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    disturbances: dict[str, str] = field(default_factory=dict)
    records: str = ""
    split_gaps: bool = False
    dt: float | None = None
    timezone: str = ""
    missing: tuple[float, ...] = ()
    name: str = ""


def read_system_file(path: str | Path) -> SystemFile:
    r"""Read a system file.

    The file contains ``equations`` (a list of texts, or one text), and optionally ``title``, ``channels``, ``basis``, a
    table ``[parameters]`` with entries such as ``tau = { positive = true, start = 10 }``, a table ``[units]``, and for
    the fit ``noise``, ``latent``, ``prior``, ``mode_deviation``, ``records``, ``split_gaps``, ``dt``, ``timezone``,
    ``missing``, ``[inputs]``, ``[disturbances]`` and ``[columns]``.

    Parameters
    ----------
    path : str or Path
        A TOML file.

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
    _check_keys(place, "", content, _FILE_KEYS)
    if "equations" not in content:
        raise SystemFileError(f"{place}: expected a key 'equations', such as equations = [\"x' = -a*x + u\"]")
    parameters = _parse_parameter_table(place, content.get("parameters", {}))
    try:
        optional = {key: content.get(key) for key in ("channels", "basis")}
        system = System(content["equations"], parameters=parameters, **optional)
    except LodekitError as problem:
        tables = (content.get(key) for key in ("inputs", "disturbances"))
        external = [name for table in tables if isinstance(table, Mapping) for name in table]
        text = describe_nonlinear_product(problem, external) or _rewrite_advice_for_files(str(problem))
        raise type(problem)(f"{place}: {text}") from None
    units = _parse_units(place, content.get("units", {}), system)
    if not isinstance(title := content.get("title", ""), str):
        raise SystemFileError(f"{place}: expected title as text, got {title!r}")
    columns, records = _parse_columns(place, content.get("columns", {})), content.get("records", "")
    if isinstance(records, bool) or not isinstance(records, str | int):
        raise SystemFileError(f'{place}: expected records as a column, such as records = "run", got {records!r}')
    if not isinstance(split_gaps := content.get("split_gaps", False), bool):
        raise SystemFileError(f"{place}: expected split_gaps = true or false, got {split_gaps!r}")
    if not isinstance(timezone := content.get("timezone", ""), str):
        raise SystemFileError(f'{place}: expected timezone as text, such as "Europe/Berlin", got {timezone!r}')
    if not isinstance(missing := content.get("missing", []), list) or {*map(type, missing)} - {int, float}:
        raise SystemFileError(f"{place}: expected missing as numbers, such as [-999, 9999], got {missing!r}")
    return SystemFile(
        system,
        units,
        title,
        noise=_parse_noise(place, content.get("noise", "channel"), (*system.plain_channels, *columns)),
        latent=_parse_latent(place, content.get("latent", "se")),
        prior=_parse_option(place, "prior", content.get("prior", "latent"), ("latent", "channels")),
        mode_deviation=_parse_positive(place, "mode_deviation", content.get("mode_deviation"), ("open", "learned")),
        columns=columns,
        inputs=_parse_inputs(place, content.get("inputs", {}), system.plain_channels),
        disturbances=_parse_disturbances(place, content.get("disturbances", {}), system.plain_channels),
        records=str(records).strip(),
        split_gaps=split_gaps,
        dt=_parse_positive(place, "dt", content.get("dt")),
        timezone=timezone,
        missing=tuple(missing),
        name=str(place),
    )


def describe_nonlinear_product(
    problem: LodekitError, external_channels: Collection[str], kind: str = "an input or a disturbance"
) -> str:
    """Return advice if a known signal of some kind multiplies a channel: it is no undeclared parameter; or nothing."""
    undeclared = problem.undeclared if isinstance(problem, EquationError) else ()
    signals = [name for name in undeclared if name in external_channels]
    return (
        f"{signals[0]} is {kind} and multiplies a channel, so the equations are not linear; "
        "linearise the product, or declare a constant as a parameter instead"
        if signals
        else ""
    )


def _rewrite_advice_for_files(advice: str) -> str:
    """Return a message for Python users in the notation of system files."""

    def write(found: re.Match[str]) -> str:
        names = re.findall(r"\w+", found[1]) or ["NAME"]
        return f"{' and '.join(f'{name} = {{}}' for name in names)} in [parameters]"

    return re.sub(r"parameters=\[([^\]]*)\]", write, advice)


def _parse_units(place: Path, units: Any, system: System) -> dict[str, str]:
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
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as problem:
        raise SystemFileError(f"cannot read {place}: {describe_read_error(problem)}") from None
    if len(data) > MAX_FILE_BYTES:
        raise SystemFileError(f"{place}: expected a system file of at most {MAX_FILE_BYTES} bytes")
    try:
        # Windows editors write a byte order mark, which "utf-8-sig" removes.
        return tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise SystemFileError(f'{place} is not a TOML file: {problem}; text needs quotes, as in u = "hold"') from None


def _check_keys(place: Path, where: str, table: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    unknown = [key for key in table if key not in allowed]
    if unknown:
        raise SystemFileError(f"{place}: unknown key{where} {unknown[0]!r}; {describe_unknown(unknown[0], allowed)}")


def _parse_parameter_table(place: Path, table: Any) -> dict[str, Parameter] | list[str]:
    if isinstance(table, list) and all(isinstance(name, str) for name in table):
        return table
    parameters = {}
    for name, entry in _parse_table(place, "parameters", table, "tau = { positive = true }").items():
        if not isinstance(entry, Mapping):
            value = entry if isinstance(entry, int | float) else 1
            raise SystemFileError(
                f"{place}: expected a table for parameter {name!r}: {name} = {{ fixed = {value} }} if its value is "
                f"known, {name} = {{ start = {value} }} as a first guess, or {name} = {{}}"
            )
        _check_keys(place, f" for parameter {name!r}:", entry, _PARAMETER_KEYS)
        try:
            bounds = entry.get("bounds")
            options = {**entry, "bounds": tuple(bounds) if isinstance(bounds, list) else bounds}
            if "prior" in entry:
                options["prior"] = _parse_prior(entry["prior"])
            parameters[name] = Parameter(**options)
        except LodekitError as problem:
            raise type(problem)(f"{place}: parameter {name!r}: {problem}") from None
    return parameters


def _parse_prior(entry: Any) -> Normal | LogNormal:
    kind, numbers = next(iter(entry.items())) if isinstance(entry, Mapping) and len(entry) == 1 else ("", None)
    if kind not in ("normal", "lognormal") or not isinstance(numbers, list) or len(numbers) != 2:
        raise SystemFileError(
            f"expected prior = {{ normal = [mean, std] }} or {{ lognormal = [median, spread] }}, got {entry!r}"
        )
    return Normal(*numbers) if kind == "normal" else LogNormal(*numbers)


def _parse_table(place: Path, key: str, entry: Any, example: str) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping):
        raise SystemFileError(f"{place}: expected [{key}] as a table, such as {example}, got {entry!r}")
    return entry


def _parse_option(place: Path, key: str, value: Any, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise SystemFileError(f"{place}: expected {key} = {' or '.join(map(repr, allowed))}, got {value!r}")
    return value


def _parse_noise(place: Path, entry: Any, observables: Sequence[str]) -> str | dict[str, float]:
    if not isinstance(entry, Mapping):
        if isinstance(entry, str):
            return _parse_option(place, "noise", entry, ("channel", "shared"))
        raise SystemFileError(
            f"{place}: expected noise = 'channel' or 'shared', or a table [noise] such as T1 = 0.1, got {entry!r}"
        )
    for name, std in entry.items():
        if (name not in observables and not interval_from_column(name, observables)) or name == "t":
            raise SystemFileError(f"{place}: [noise] names {name}; expected a channel, or what [columns] names")
        number = isinstance(std, float | int) and not isinstance(std, bool)
        if not number or not 0 <= std < math.inf:
            raise SystemFileError(
                f"{place}: [noise]: expected a standard deviation of zero (exact) or more for {name}, got {std!r}"
            )
    return {name: float(std) for name, std in entry.items()}


def _parse_positive(place: Path, key: str, entry: Any, words: tuple[str, ...] = ()) -> Any:
    """Return a positive number, one of some words, or None if there is no entry."""
    if entry is None or entry in words:
        return entry
    if isinstance(entry, bool) or not isinstance(entry, float | int) or not 0 < entry < math.inf:
        others = f", {' or '.join(map(repr, words))}" if words else ""
        raise SystemFileError(f"{place}: expected {key} as a positive number{others}, got {entry!r}")
    return float(entry)


def _parse_latent(place: Path, entry: Any) -> str | tuple[str, ...]:
    # The names of covariances are checked by the package prior.
    if isinstance(entry, str) and entry.strip():
        return entry
    if isinstance(entry, list) and entry and all(isinstance(name, str) and name.strip() for name in entry):
        return tuple(entry)
    raise SystemFileError(f"{place}: expected latent = 'se' or 'matern-5/2', or a list of them, got {entry!r}")


def _parse_inputs(place: Path, entry: Any, channels: Sequence[str]) -> dict[str, str]:
    for name, kind in _parse_table(place, "inputs", entry, 'u = "hold"').items():
        if name not in channels:
            raise SystemFileError(f"{place}: [inputs] names {name}; expected one of: {', '.join(channels)}")
        _parse_option(place, f"[inputs] {name}", kind, ("hold", "linear", "auto"))
    return dict(entry)


def _parse_disturbances(place: Path, entry: Any, channels: Sequence[str]) -> dict[str, str]:
    for name, kind in _parse_table(place, "disturbances", entry, 'w = "white"').items():
        if name not in channels:
            raise SystemFileError(
                f"{place}: [disturbances] names {name}, which appears in no equation; expected it where it acts, "
                f"such as on a right-hand side: ... + {name}"
            )
        # The kinds of disturbances are checked by the package prior.
        if not isinstance(kind, str):
            raise SystemFileError(f"{place}: expected [disturbances] {name} = 'white' or 'matern-3/2', got {kind!r}")
    return dict(entry)


def _parse_columns(place: Path, entry: Any) -> dict[str, str]:
    columns = {}
    for name, column in _parse_table(place, "columns", entry, 'T1 = "temperature 1"').items():
        numbered = isinstance(column, int) and not isinstance(column, bool) and column > 0
        if not name.strip() or not (numbered or (isinstance(column, str) and column.strip())):
            raise SystemFileError(
                f"{place}: [columns]: expected a column for {name!r}, by name or number from one, got {column!r}"
            )
        columns[name.strip()] = str(column).strip()
    return columns


#: An equation for a file that has none yet.
_EXAMPLE_EQUATION = "tau*y' + y = K*u"


@dataclass(frozen=True)
class SystemFileHints:
    """Information about a system from a data file.

    units: Units of channels and of the time ``t``.
    inputs: Known inputs, with the interpolation and a reason in words.
    disturbances: Unmeasured channels that drive the equations, and the kind of process of each.
    columns: Columns of channels and ``t`` that are not recognised by name.
    records: The column that distinguishes records; empty if there is none.
    split_gaps: Whether records are split where times are far apart.
    dt: Sampling interval, if there is no time column.
    timezone: The time zone of dates without one; empty if there is none.
    missing: Numbers that mark missing values.
    parameter_options: Options of parameters in TOML, such as ``positive = true``.
    comment: A comment about the equations.
    """

    units: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    disturbances: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, int | str] = field(default_factory=dict)
    records: str = ""
    split_gaps: bool = False
    dt: float | None = None
    timezone: str = ""
    missing: Sequence[float] = ()
    parameter_options: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""


def format_system_file(
    equations: str,
    parameters: Sequence[str] = (),
    channels: Sequence[str] | None = None,
    *,
    title: str = "",
    hints: SystemFileHints | None = None,
) -> str:
    """Return the text of a new system file, with comments that explain the options.

    Examples
    --------
    >>> for line in format_system_file("x' = -a*x + u", ["a"], title="A tank").splitlines()[:7]:
    ...     print(line)
    # Show what the equations imply: lodekit inspect THIS_FILE
    # Fit them to measurements:      lodekit fit THIS_FILE data.csv
    title = "A tank"
    <BLANKLINE>
    # x' is the time derivative of x; every name that is not a parameter is a channel.
    # With a dead time: tau*y' + y = K*delay(u, T); second order: tau1*tau2*y'' + (tau1 + tau2)*y' + y = K*u.
    equations = [
    """
    known = hints or SystemFileHints()
    written: tuple[str, ...] = ()
    names = tuple(channels or ())
    if equations or not names:
        system = System(equations, parameters=list(parameters), channels=channels)
        written, names, parameters = system.equations, system.plain_channels, list(system.parameters)
    any_value = "{}  # any value; or { positive = true }"
    options = {name: f"{{ {text} }}" for name, text in known.parameter_options.items() if text}
    example = next(n for n in chain(("w", "d"), (f"w{k}" for k in count(1))) if n not in {*names, *parameters})
    order = "" if channels is None else f"channels = [{', '.join(map(_toml_string, names))}]"
    first, last = _toml_key(names[0]), _toml_key(names[-1])
    inputs = [f"{_toml_key(n)} = {_toml_string(kind)}  # it {why}" for n, (kind, why) in known.inputs.items()]
    disturbances = [f"{_toml_key(name)} = {_toml_string(kind)}" for name, kind in known.disturbances.items()]
    places = {n: str(c) if isinstance(c, int) else _toml_string(c) for n, c in known.columns.items()}
    columns = [f"{_toml_key(name)} = {place}" for name, place in places.items()]
    template = files("lodekit.system").joinpath("template.txt").read_text(encoding="utf-8").rstrip("\n")
    return Template(template).substitute(
        title=_toml_string(title),
        comment=_join_lines([f"# {known.comment}"] if known.comment else []),
        equations=_join_lines(
            [f"  {_toml_string(equation)}," for equation in written] or [f"  # {_toml_string(_EXAMPLE_EQUATION)},"]
        ),
        channels=order if written else f"# {order}",
        records=_join_lines(
            ([f"records = {_toml_string(known.records)}"] if known.records else [])
            + ["split_gaps = true"] * known.split_gaps
            + ([] if known.dt is None else [f"dt = {known.dt!r}"])
            + ([f"timezone = {_toml_string(known.timezone)}"] if known.timezone else [])
            + ([f"missing = {list(known.missing)!r}"] if known.missing else [])
        ),
        parameters=_join_lines(
            [f"{_toml_key(name)} = {options.get(name, any_value)}" for name in parameters]
            + ([] if written else ["# tau = { positive = true }"])
        ),
        units=_join_lines(f"{_toml_key(n)} = {_toml_string(known.units.get(n, ''))}" for n in ("t", *names)),
        inputs=_format_table("inputs", inputs, f'{last} = "hold"'),
        disturbance=example,
        disturbances=_format_table("disturbances", disturbances, f'{example} = "white"'),
        disturbed=_toml_string(f"{written[0] if written else _EXAMPLE_EQUATION} + {example}"),
        first=first,
        columns=_format_table("columns", columns, 't = "time [s]"', f"{first} = 2"),
    )


def _format_table(name: str, lines: Sequence[str], *examples: str) -> str:
    """Return a TOML table; examples in comments if it is empty."""
    return _join_lines([f"[{name}]", *lines] if lines else [f"# [{name}]", *(f"# {each}" for each in examples)])


def _join_lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _toml_string(text: str) -> str:
    """Return a text as a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(name: str) -> str:
    """Return a name as a TOML key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml_string(name)
