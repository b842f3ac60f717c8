"""All that somebody has typed and chosen, as one frozen value: whatever goes wrong elsewhere, it is still there."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from lodekit.errors import LodekitError, ParameterError
from lodekit.system.parameters import LogNormal, Normal, Parameter
from lodekit.system.system import System

__all__ = ["LATENTS", "NOISES", "PRIORS", "Assignment", "Choices", "Entry", "Session", "read_session"]

_PRIOR = re.compile(r"\s*(normal|lognormal)\s*\(?\s*([^\s,;()]+)\s*[,;\s]\s*([^\s,;()]+)\s*\)?\s*", re.IGNORECASE)
_BOUNDS = re.compile(r"\s*([^\s,;:]*)\s*(?:to|\.\.|…|:|,|;)\s*([^\s,;:]*)\s*", re.IGNORECASE)
#: What an assignment and the choices of a fit may say.
KINDS = ("", "hold", "linear", "auto")
NOISES, PRIORS = ("channel", "shared"), ("latent", "channels")
LATENTS = ("se", "matern-7/2", "matern-5/2", "matern-3/2")


@dataclass(frozen=True)
class Entry:
    """What is known of a parameter, as it was typed.

    Parameters
    ----------
    name : str
    value : float
        Where its slider stands.
    is_fixed : bool
        Whether the value is known, and not learned.
    is_positive : bool
    bounds : str
        Such as ``0.1 to 10``; empty where there are none.
    prior : str
        Such as ``normal(5, 1)`` or ``lognormal(5, 0.7)``; empty where there is none.
    """

    name: str
    value: float = 1.0
    is_fixed: bool = False
    is_positive: bool = False
    bounds: str = ""
    prior: str = ""

    def parameter(self, *, starts: bool = False) -> Parameter:
        """Return what was typed as a parameter of a system.

        Parameters
        ----------
        starts : bool
            Whether a search begins at the value, where it is not fixed.

        Examples
        --------
        >>> Entry("k", 2.0, is_positive=True, bounds="0.1 to 10").parameter(starts=True)
        Parameter(positive=True, bounds=(0.1, 10.0), fixed=None, start=2.0, prior=None)
        """
        try:
            return Parameter(
                positive=self.is_positive,
                bounds=_read_bounds(self.bounds),
                fixed=self.value if self.is_fixed else None,
                start=self.value if starts and not self.is_fixed else None,
                prior=_read_prior(self.prior),
            )
        except ParameterError as problem:
            raise ParameterError(f"{self.name}: {problem}") from None

    @classmethod
    def of(cls, name: str, parameter: Parameter, value: float | None = None) -> Entry:
        """Return the entry of a parameter.

        Parameters
        ----------
        name : str
        parameter : Parameter
        value : float, optional
            Where neither a fixed one nor a start is known.
        """
        known = next((v for v in (parameter.fixed, parameter.start, value) if v is not None), 1.0)
        bounds = "" if parameter.bounds is None else "{:.15g} to {:.15g}".format(*parameter.bounds)
        prior = "" if parameter.prior is None else _write_prior(parameter.prior)
        return cls(name, float(known), parameter.fixed is not None, parameter.positive, bounds, prior)


def _number(text: str, what: str, empty: float = math.nan) -> float:
    if not text and not math.isnan(empty):
        return empty
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if math.isnan(found):
        raise ParameterError(f"expected {what}, got {text!r}")
    return found


def _read_bounds(text: str) -> tuple[float, float] | None:
    if not text.strip():
        return None
    match = _BOUNDS.fullmatch(text)
    if match is None:
        raise ParameterError(f"expected bounds such as 0.1 to 10, or 0 to, got {text!r}")
    what = "a number on each side of bounds, such as 0.1 to 10"
    return _number(match[1], what, -math.inf), _number(match[2], what, math.inf)


def _read_prior(text: str) -> Normal | LogNormal | None:
    if not text.strip():
        return None
    match = _PRIOR.fullmatch(text)
    if match is None:
        raise ParameterError(f"expected a prior such as normal(5, 1) or lognormal(5, 0.7), got {text!r}")
    numbers = [_number(part, "two numbers for a prior, such as normal(5, 1)") for part in match.groups()[1:]]
    return Normal(*numbers) if match[1].lower() == "normal" else LogNormal(*numbers)


def _write_prior(prior: Normal | LogNormal) -> str:
    first, second = vars(prior).values()
    return f"{type(prior).__name__.lower()}({first:.15g}, {second:.15g})"


@dataclass(frozen=True)
class Assignment:
    """Where the measurements of a channel are, and what they are taken for.

    Parameters
    ----------
    channel : str
    column : str
        Of the file; empty where the channel is not measured.
    kind : {"", "hold", "linear", "auto"}
        Of a known input, what it does between samples; empty for what was measured.
    """

    channel: str
    column: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Choices:
    """How a system is fitted.

    Parameters
    ----------
    noise : {"channel", "shared"}
    latent : str
        The covariance of free functions.
    prior : {"latent", "channels"}
    seed : int
        Of the starts.
    """

    noise: str = "channel"
    latent: str = "se"
    prior: str = "latent"
    seed: int = 0


@dataclass(frozen=True)
class Session:
    """All that somebody has typed and chosen.

    Parameters
    ----------
    equations : str
        As typed.
    declared : str
        Names of parameters, as typed.
    example : str
        The example of the catalog that it began with; empty where there was none.
    entries : tuple of Entry
        Of all parameters that were ever there, so that none is lost while equations are edited.
    file : str
        The name of the data file; empty where there is none.
    is_simulated : bool
        Whether the data were made here.
    assignments : tuple of Assignment
        As changed; columns that nobody touched are matched by name.
    dt : float or None
        The time between two lines of a file without times.
    window : (float or None, float or None)
        What is fitted to.
    held_out : (float, float) or None
        What is kept for validation.
    record : str
        Which of several records is shown; empty for the first.
    given : tuple of str
        Channels that are known over what is held out, where there are no inputs; found out where empty.
    choices : Choices
    truth : dict of str to float
        True parameters of simulated data.
    truth_of : str
        The equations that they were simulated from.
    tray : tuple of str
        The fits, by their names, oldest first.
    edition : int
        Counts how often the equations were replaced by some that nobody typed.
    revision : int
        Counts how often anything else was.
    """

    equations: str = ""
    declared: str = ""
    example: str = ""
    entries: tuple[Entry, ...] = ()
    file: str = ""
    is_simulated: bool = False
    assignments: tuple[Assignment, ...] = ()
    dt: float | None = None
    window: tuple[float | None, float | None] = (None, None)
    held_out: tuple[float, float] | None = None
    record: str = ""
    given: tuple[str, ...] = ()
    choices: Choices = field(default_factory=Choices)
    truth: Mapping[str, float] = field(default_factory=dict)
    truth_of: str = ""
    tray: tuple[str, ...] = ()
    edition: int = 0
    revision: int = 0

    def entry(self, name: str) -> Entry:
        """Return what is known of a parameter, by its name."""
        return next((entry for entry in self.entries if entry.name == name), Entry(name))

    def with_entry(self, entry: Entry) -> Session:
        """Return the session with another entry for a parameter."""
        others = tuple(own for own in self.entries if own.name != entry.name)
        return replace(self, entries=(*others, entry))

    def with_assignment(self, assignment: Assignment) -> Session:
        """Return the session with another assignment of a channel."""
        others = tuple(own for own in self.assignments if own.channel != assignment.channel)
        return replace(self, assignments=(*others, assignment))

    def system(self, bare: System, *, starts: bool = False) -> System:
        """Return a system with what is known of its parameters.

        Parameters
        ----------
        bare : System
            As it was read from the equations, with nothing known of its parameters.
        starts : bool
            Whether a search begins where the sliders stand.
        """
        parameters = {name: self.entry(name).parameter(starts=starts) for name in bare.parameters}
        return System(list(bare.equations), parameters=parameters, channels=bare.plain_channels)

    def values(self, names: Sequence[str]) -> dict[str, float]:
        """Return where the sliders of some parameters stand, by `names`."""
        return {name: self.entry(name).value for name in names}

    @property
    def how(self) -> dict[str, Any]:
        """How the data file is read and the system fitted, as `lodekit.workflow.open_data` takes it."""
        own = self.choices
        return {"dt": self.dt, "window": self.window, "noise": own.noise, "latent": own.latent, "prior": own.prior}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; `read_session` makes the session again."""
        return asdict(self)


def read_session(content: Any) -> Session:
    """Return the session that `Session.to_dict` has described; raise where it describes none.

    Examples
    --------
    >>> session = Session("x' = -a*x", entries=(Entry("a", 2.0),), held_out=(1.0, 2.0))
    >>> read_session(session.to_dict()) == session
    True
    """
    try:
        plain = dict(content)
        plain["entries"] = tuple(_make(Entry, item) for item in plain["entries"])
        plain["assignments"] = tuple(_make(Assignment, item) for item in plain["assignments"])
        plain["choices"] = _make(Choices, plain["choices"])
        plain["truth"] = {str(name): float(value) for name, value in dict(plain["truth"]).items()}
        for name in ("tray", "given"):
            plain[name] = tuple(str(each) for each in plain[name])
        first, last = plain["window"]
        plain["window"] = (_edge(first), _edge(last))
        held = plain["held_out"]
        plain["held_out"] = None if held is None else (float(held[0]), float(held[1]))
        plain["dt"] = None if plain["dt"] is None else float(plain["dt"])
        session: Session = _make(Session, plain)
    except (KeyError, TypeError, ValueError, IndexError) as problem:
        raise LodekitError(f"expected a session of the studio, got something else: {problem}") from None
    if any(item.kind not in KINDS for item in session.assignments):
        raise LodekitError("expected inputs that are held, linear or auto in a session, got something else")
    own = session.choices
    if own.noise not in NOISES or own.prior not in PRIORS or own.latent not in LATENTS:
        raise LodekitError("expected a session with choices that the page offers, got others")
    return session


def _edge(value: Any) -> float | None:
    return None if value is None else float(value)


def _make(kind: type[Any], content: Mapping[str, Any]) -> Any:
    """Return a frozen value from plain ones whose types are those of its defaults."""
    made = kind(**content)
    for item in fields(kind):
        value = getattr(made, item.name)
        # Names have no default.
        default = "" if item.name in ("name", "channel") else item.default
        if isinstance(default, str | bool | int) and type(value) is not type(default):
            raise TypeError(f"{item.name} is no {type(default).__name__}")
        if isinstance(default, float) and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TypeError(f"{item.name} is no number")
    return made
