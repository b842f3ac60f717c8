"""The state of a session as plain frozen values: entries and choices, and values that processes send to the page."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict

from lodekit.errors import AlgebraError, LodekitError, ParameterError
from lodekit.support.files import check_types
from lodekit.support.html import replace_advice
from lodekit.system.delays import undelayed_name
from lodekit.system.display import equations_to_mathml
from lodekit.system.parameters import LogNormal, Normal, Parameter
from lodekit.system.system import System


def user_message(error: Exception, folder: Path | None = None) -> str:
    """Return the message of an exception on the page: that of a LodekitError, or a general sentence for all others.

    Examples
    --------
    >>> user_message(LodekitError("expected two times, got one"))
    'expected two times, got one'
    >>> user_message(KeyError("x"))
    'Something unexpected went wrong here; nothing that you typed is lost.'
    >>> user_message(LodekitError("/tmp/a7f3/log.csv: expected columns"), Path("/tmp/a7f3"))
    'log.csv: expected columns'
    """
    if isinstance(error, LodekitError):
        text = str(error)
        # Show names of files without their folder.
        for place in () if folder is None else (folder, folder.resolve(), folder.parent, folder.parent.resolve()):
            text = text.replace(f"{place}{os.sep}", "").replace(str(place), "")
        return text
    if isinstance(error, MemoryError):
        return "There is not enough memory for this; use fewer lines or a shorter window."
    return "Something unexpected went wrong here; nothing that you typed is lost."


def to_page_advice(text: str) -> str:
    """Return a message with advice on controls of the page instead of arguments and options of the library.

    The patterns of both are in a file, one pair in each line.

    Examples
    --------
    >>> to_page_advice("u is stepped; try prior='channels'")
    "u is stepped; try 'Prior on: the channels' in the fit options"
    """
    return replace_advice(text, "studio_advice.txt")


PRIOR_PATTERN = re.compile(
    r"\s*(normal|lognormal)\s*\(?\s*([^\s,;()]+)\s*[,;\s]\s*([^\s,;()]+)\s*\)?\s*", re.IGNORECASE
)
BOUNDS_PATTERN = re.compile(r"\s*([^\s,;:]*)\s*(?:to|\.\.|…|:|,|;)\s*([^\s,;:]*)\s*", re.IGNORECASE)
#: Possible values of an assignment and of the choices of a fit.
PROPOSED_KIND = "proposed"
INPUT_KINDS = ("", "hold", "linear", "auto", PROPOSED_KIND)
DISTURBANCE_KINDS = ("white", "matern-1/2", "matern-3/2", "matern-5/2")
NOISE_MODELS, PRIOR_TYPES = ("channel", "shared"), ("latent", "channels")
LATENT_KERNELS = ("se", "matern-7/2", "matern-5/2", "matern-3/2")


@dataclass(frozen=True)
class ParameterEntry:
    """The options of a parameter, as typed.

    value: The value of its slider.
    is_fixed: Whether the value is known and not estimated.
    bounds: Such as ``0.1 to 10``; empty if there are none.
    prior: Such as ``normal(5, 1)`` or ``lognormal(5, 0.7)``; empty if there is none.
    """

    name: str
    value: float = 1.0
    is_fixed: bool = False
    is_positive: bool = False
    bounds: str = ""
    prior: str = ""

    def parameter(self, *, starts: bool = False) -> Parameter:
        """Return the entry as a parameter of a system.

        Examples
        --------
        >>> ParameterEntry("k", 2.0, is_positive=True, bounds="0.1 to 10").parameter(starts=True)
        Parameter(positive=True, bounds=(0.1, 10.0), fixed=None, start=2.0, prior=None)
        """
        try:
            return Parameter(
                positive=self.is_positive,
                bounds=_parse_bounds(self.bounds),
                fixed=self.value if self.is_fixed else None,
                start=self.value if starts and not self.is_fixed else None,
                prior=_parse_prior(self.prior),
            )
        except ParameterError as problem:
            raise ParameterError(f"{self.name}: {problem}") from None

    @classmethod
    def from_parameter(cls, name: str, parameter: Parameter, value: float | None = None) -> ParameterEntry:
        """Return the entry of a parameter."""
        known = next((v for v in (parameter.fixed, parameter.start, value) if v is not None), 1.0)
        bounds = "" if parameter.bounds is None else "{:.15g} to {:.15g}".format(*parameter.bounds)
        prior = ""
        if parameter.prior is not None:
            prior = "{}({:.15g}, {:.15g})".format(
                type(parameter.prior).__name__.lower(), *vars(parameter.prior).values()
            )
        return cls(name, float(known), parameter.fixed is not None, parameter.positive, bounds, prior)


def _parse_number(text: str, expected: str, default: float = math.nan) -> float:
    if not text and not math.isnan(default):
        return default
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if math.isnan(found):
        raise ParameterError(f"expected {expected}, got {text!r}")
    return found


def _parse_bounds(text: str) -> tuple[float, float] | None:
    if not text.strip():
        return None
    match = BOUNDS_PATTERN.fullmatch(text)
    if match is None:
        raise ParameterError(f"expected bounds such as '0.1 to 10', or '0 to' without an upper limit, got {text!r}")
    what = "a number on each side of bounds, such as 0.1 to 10"
    return _parse_number(match[1], what, -math.inf), _parse_number(match[2], what, math.inf)


def _parse_prior(text: str) -> Normal | LogNormal | None:
    if not text.strip():
        return None
    match = PRIOR_PATTERN.fullmatch(text)
    if match is None:
        raise ParameterError(f"expected a prior such as normal(5, 1) or lognormal(5, 0.7), got {text!r}")
    numbers = [_parse_number(part, "two numbers for a prior, such as normal(5, 1)") for part in match.groups()[1:]]
    return Normal(*numbers) if match[1].lower() == "normal" else LogNormal(*numbers)


@dataclass(frozen=True)
class ColumnAssignment:
    """The column of a channel, and its role.

    column: The column of the file; empty if the channel is not measured.
    kind: The interpolation of a known input between samples; without a column, the kind of a disturbance; empty for a
        measured channel; "proposed" for the role proposed for the column.
    """

    channel: str
    column: str = ""
    kind: str = ""


#: Default fit options: noise model, covariance of free functions, prior, and seed of the starting points.
DEFAULT_CHOICES: dict[str, Any] = {"noise": "channel", "latent": "se", "prior": "latent", "seed": 0}


def find_time_column(assignments: Sequence[ColumnAssignment]) -> str:
    """Return the time column that the user chose; empty if it was not chosen."""
    return next((item.column for item in assignments if item.channel == "t"), "")


@dataclass(frozen=True)
class StudioSession:
    """All entries and choices of the user.

    equations: As typed.
    declared: Names of parameters, as typed.
    example: The example of the catalog that it began with; empty if there was none.
    entries: Those of all parameters since the equations were replaced, so that none is lost while they are edited.
    file: The name of the data file; empty if there is none.
    is_simulated: Whether the data were simulated here.
    assignments: Those that the user changed; all other columns are matched by name.
    dt: The sampling interval of a file without times.
    split_gaps: Whether the log is split at gaps into several records.
    window: The window of the fit.
    held_out: The window of the validation.
    record: Which of several records is shown; empty for the first.
    given: Channels that are known in the validation window, if there are no inputs; chosen automatically if empty.
    truth: True parameters of simulated data.
    truth_of: The equations that they were simulated from.
    tray: The names of the fits, oldest first.
    revision: The number of replacements of data or parameters by other means than typing.
    """

    equations: str = ""
    declared: str = ""
    example: str = ""
    entries: tuple[ParameterEntry, ...] = ()
    file: str = ""
    is_simulated: bool = False
    assignments: tuple[ColumnAssignment, ...] = ()
    dt: float | None = None
    split_gaps: bool = False
    window: tuple[float | None, float | None] = (None, None)
    held_out: tuple[float, float] | None = None
    record: str = ""
    given: tuple[str, ...] = ()
    choices: Mapping[str, Any] = field(default_factory=DEFAULT_CHOICES.copy)
    truth: Mapping[str, float] = field(default_factory=dict)
    truth_of: str = ""
    tray: tuple[str, ...] = ()
    revision: int = 0

    def entry(self, name: str) -> ParameterEntry:
        """Return the entry of a parameter, by its name."""
        return next((entry for entry in self.entries if entry.name == name), ParameterEntry(name))

    def with_entry(self, entry: ParameterEntry) -> StudioSession:
        """Return the session with another entry for a parameter."""
        others = tuple(own for own in self.entries if own.name != entry.name)
        return replace(self, entries=(*others, entry))

    def with_equations(self, equations: str, declared: str) -> StudioSession:
        """Return the session with other equations.

        If less than half of the old names remain, parameters that the new one does not mention are removed.

        Examples
        --------
        >>> session = StudioSession("C*T' = (T_out - T)/R", "R, C")
        >>> session.with_equations("C*T' = (T_out - T)/(2*R)", "R, C").declared
        'R, C'
        >>> session.with_equations("x' = -R*x + u", "R, C").declared
        'R'
        """
        changed = replace(self, equations=equations, declared=declared)
        old, names = (set(re.findall(r"\w+", text)) for text in (self.equations, equations))
        if 2 * len(old & names) >= len(old):
            return changed
        declared = ", ".join(name for name in re.findall(r"\w+", declared) if name in names)
        entries = tuple(entry for entry in self.entries if entry.name in names)
        return replace(changed, declared=declared, entries=entries, example="")

    def with_assignment(self, assignment: ColumnAssignment) -> StudioSession:
        """Return the session with another assignment of a channel."""
        others = tuple(own for own in self.assignments if own.channel != assignment.channel)
        return replace(self, assignments=(*others, assignment))

    def system(self, base_system: System, *, starts: bool = False) -> System:
        """Return a system with the options of its parameters."""
        parameters = {name: self.entry(name).parameter(starts=starts) for name in base_system.parameters}
        return System(list(base_system.equations), parameters=parameters, channels=base_system.plain_channels)

    def values(self, names: Sequence[str]) -> dict[str, float]:
        """Return the slider values of some parameters, by `names`."""
        return {name: self.entry(name).value for name in names}

    @property
    def fit_options(self) -> dict[str, Any]:
        """Options for reading the data file and fitting the system, as arguments of `lodekit.fit_file`."""
        options = {"random_state" if name == "seed" else name: value for name, value in self.choices.items()}
        return {"dt": self.dt, "window": self.window, "split_gaps": self.split_gaps, **options}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `session_from_dict` restores the session."""
        return asdict(self)


def session_from_dict(content: Any) -> StudioSession:
    """Return the session from the result of `StudioSession.to_dict`; raise if it is invalid.

    Examples
    --------
    >>> session = StudioSession("x' = -a*x", entries=(ParameterEntry("a", 2.0),), held_out=(1.0, 2.0))
    >>> session_from_dict(session.to_dict()) == session
    True
    """
    try:
        plain = dict(content)
        plain["entries"] = tuple(ParameterEntry(**item) for item in plain["entries"])
        plain["assignments"] = tuple(ColumnAssignment(**item) for item in plain["assignments"])
        plain["choices"] = {**DEFAULT_CHOICES, **plain["choices"]}
        plain |= {name: tuple(plain[name]) for name in ("tray", "given", "window")}
        plain["held_out"] = plain["held_out"] and tuple(plain["held_out"])
        session = StudioSession(**plain)
        check_types(session, StudioSession)
        check_types(session.choices["seed"], int)
    except (KeyError, TypeError, ValueError) as problem:
        raise LodekitError(f"expected a session of the studio, got something else: {problem}") from None
    if any(item.kind not in (INPUT_KINDS if item.column else ("", *DISTURBANCE_KINDS)) for item in session.assignments):
        raise LodekitError("expected a session with valid roles of channels, got others")
    offered = {"noise": NOISE_MODELS, "prior": PRIOR_TYPES, "latent": LATENT_KERNELS}
    unknown = session.choices.keys() - DEFAULT_CHOICES.keys()
    if unknown or any(session.choices[name] not in options for name, options in offered.items()):
        raise LodekitError("expected a session with valid fit options, got others")
    return session


@dataclass(frozen=True)
class ParsedEquations:
    """Parsed equations, and what they imply.

    error: The error, with carets below its position; empty if there is none.
    is_empty: Whether there is no text yet.
    equations, parameters, channels: Those of the system; no equations if the text is not a valid system.
    inferred_parameters: Undeclared names that were recognised as parameters.
    undifferentiated: Channels without derivatives; a constant may be one of them by mistake.
    mathml: The equations as MathML.
    sentences: The findings of `System.explain`, most important first.
    inputs: Sets of channels that can be chosen freely together; empty if they were not determined.
    dimensions: The dimension of each parameter, in terms of time and channels.
    notes: Notes on how the text was parsed.
    """

    error: str = ""
    is_empty: bool = False
    equations: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    inferred_parameters: tuple[str, ...] = ()
    undifferentiated: tuple[str, ...] = ()
    mathml: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    is_controllable: bool = False
    free_functions: int = 0
    inputs: tuple[tuple[str, ...], ...] = ()
    dimensions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def analyze_system(system: System, inferred_parameters: tuple[str, ...] = ()) -> ParsedEquations:
    """Return a system and its properties, in words.

    Examples
    --------
    >>> import lodekit as lk
    >>> found = analyze_system(lk.System("x' = -a*x + u", parameters=["a"]))
    >>> found.is_controllable, found.inputs, found.dimensions
    (True, (('x',), ('u',)), {'a': '1/t'})
    """
    dimensions = system.dimensions()
    shown = {n: "undetermined" if n in dimensions.undetermined else dimensions.format(n) for n in dimensions}
    try:
        inputs = [tuple(dict.fromkeys(map(undelayed_name, names))) for names in system.possible_inputs]
    except AlgebraError:
        inputs = []
    return ParsedEquations(
        equations=tuple(system.equations),
        parameters=tuple(system.parameters),
        channels=tuple(system.plain_channels),
        inferred_parameters=inferred_parameters,
        undifferentiated=tuple(
            n for k, n in enumerate(system.channels) if not system.operator_matrix[:, k].has(system.d)
        ),
        mathml=tuple(equations_to_mathml(system)),
        sentences=tuple(system.explain().splitlines()),
        is_controllable=system.is_controllable,
        free_functions=system.free_functions,
        inputs=tuple(inputs),
        dimensions=shown,
        notes=tuple(system.notes),
    )


def modes_at(system: System, given: Sequence[str], values: Mapping[str, float]) -> tuple[complex, ...]:
    """Return the exponents of the other channels if some are known: the poles of the response to these.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x'' + c*x' + k*x = u", parameters=["c", "k"])
    >>> modes_at(system, ["u"], {"c": 2.0, "k": 5.0})
    ((-1-2j), (-1+2j))
    """
    rest = system.given(given) if given else system
    found = []
    for mode in rest.exponents:
        own = {name: value for name, value in values.items() if name in mode.ring.parameters}
        roots = mode.roots_at(own) if mode.depends_on_parameters else mode.roots
        found += [complex(root) for root in roots for _ in range(mode.multiplicity)]
    return tuple(found)


#: Equations and declared parameters, as typed.
EquationText = tuple[str, str]
#: The message if a system is needed and there is none yet.
NO_EQUATIONS_MESSAGE = "expected equations first, such as x' = -a*x + u"


class CatalogEntry(TypedDict):
    """An example of the catalog: its story in one line, its equations, and its parameters with their true values."""

    story: str
    equations: tuple[str, ...]
    parameters: dict[str, Parameter]
    values: dict[str, float]
