"""Named parameters: what is known of them before any data are seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lodekit.errors import ParameterError
from lodekit.system.grammar import check_name

__all__ = ["LogNormal", "Normal", "Parameter", "read_parameters"]

#: Exact arithmetic in more symbols takes minutes, and no data tell so many apart.
MAX_PARAMETERS = 100
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Normal:
    """A normal prior on a parameter.

    Parameters
    ----------
    mean, std : float
        Where the parameter is expected, give or take this much.

    Examples
    --------
    >>> import lodekit as lk
    >>> lk.Parameter(prior=lk.Normal(5, 1)).prior
    Normal(mean=5, std=1)
    """

    mean: float
    std: float

    def __post_init__(self) -> None:
        _check_prior(self.mean, self.std)

    def log_density(self, value: float) -> tuple[float, float]:
        """Return the log density at a value, and its derivative.

        Parameters
        ----------
        value : float
            Of the parameter.

        Examples
        --------
        >>> density, slope = Normal(5, 2).log_density(9)
        >>> round(density, 4), slope
        (-3.6121, -1.0)
        """
        z = (value - self.mean) / self.std
        return -(0.5 * z * z) - math.log(self.std) - _HALF_LOG_TAU, -(z / self.std)

    def log_mass(self, low: float, high: float) -> float:
        """Return the logarithm of the probability between two values.

        Parameters
        ----------
        low, high : float
            May be infinite.

        Examples
        --------
        >>> round(Normal(0, 1).log_mass(0, float("inf")), 4)
        -0.6931
        """
        return _log_normal_mass((low - self.mean) / self.std, (high - self.mean) / self.std)


@dataclass(frozen=True)
class LogNormal:
    """A log-normal prior on a positive parameter.

    Parameters
    ----------
    median : float
        Above and below which the parameter is equally likely; positive.
    spread : float
        Standard deviation of the logarithm: 0.7 is about a factor of two.

    Examples
    --------
    >>> import lodekit as lk
    >>> lk.Parameter(positive=True, prior=lk.LogNormal(5, 0.7)).prior
    LogNormal(median=5, spread=0.7)
    """

    median: float
    spread: float

    def __post_init__(self) -> None:
        _check_prior(self.median, self.spread)
        if self.median <= 0:
            raise ParameterError(f"expected a positive median for LogNormal, got {self.median}")

    def log_density(self, value: float) -> tuple[float, float]:
        """Return the log density at a value, and its derivative.

        Parameters
        ----------
        value : float
            Of the parameter; where it is not positive, the log density is minus infinity.

        Examples
        --------
        >>> density, slope = LogNormal(1, 0.5).log_density(1)
        >>> round(density, 4), slope
        (-0.2258, -1.0)
        """
        if value <= 0:
            return -math.inf, 0.0
        z = self._standardized(value)
        constant = math.log(self.spread) + _HALF_LOG_TAU
        return -(0.5 * z * z + math.log(value)) - constant, -(z / self.spread + 1.0) / value

    def log_mass(self, low: float, high: float) -> float:
        """Return the logarithm of the probability between two values.

        Parameters
        ----------
        low, high : float
            May be infinite.

        Examples
        --------
        >>> round(LogNormal(2, 0.7).log_mass(0, 2), 4)
        -0.6931
        """
        ends = [self._standardized(edge) if edge > 0 else -math.inf for edge in (low, high)]
        return _log_normal_mass(*ends)

    def _standardized(self, value: float) -> float:
        # Two logarithms: a quotient could leave the range of floats.
        return (math.log(value) - math.log(self.median)) / self.spread


def _log_normal_mass(low: float, high: float) -> float:
    """Return the logarithm of the standard normal probability between two numbers, also far out in one tail."""
    if low > 0:
        low, high = -high, -low
    mass = 0.5 * (math.erfc(-high / math.sqrt(2.0)) - math.erfc(-low / math.sqrt(2.0)))
    return math.log(mass) if mass > 0 else -math.inf


def _check_prior(centre: float, spread: float) -> None:
    for value in (centre, spread):
        if not math.isfinite(_to_float("prior", value)):
            raise ParameterError(f"expected finite numbers for a prior, got {value!r}")
    if spread <= 0:
        raise ParameterError(f"expected a prior with a spread above zero, got {spread}")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An unknown constant of a system.

    Parameters
    ----------
    positive : bool
        Whether only values above zero make sense (masses, lengths, time constants).
    bounds : (float, float), optional
        Smallest and largest possible value; infinities are allowed.
    fixed : float, optional
        The value, where it is known and not to be learned.
    start : float, optional
        Where the search starts.
    prior : Normal or LogNormal, optional
        What is known beforehand; learning is then maximum a posteriori.

    Examples
    --------
    >>> Parameter(positive=True, start=10)
    Parameter(positive=True, bounds=None, fixed=None, start=10.0, prior=None)
    """

    positive: bool = False
    bounds: tuple[float, float] | None = None
    fixed: float | None = None
    start: float | None = None
    prior: Normal | LogNormal | None = None

    def __post_init__(self) -> None:
        if self.prior is not None and not isinstance(self.prior, Normal | LogNormal):
            of_functions = "; a prior of functions of time goes with the model: LODEGP(system, prior='channels')"
            remedy = of_functions if isinstance(self.prior, str) and self.prior in ("latent", "channels") else ""
            raise ParameterError(f"expected prior=Normal(...) or LogNormal(...), got {self.prior!r}{remedy}")
        if not isinstance(self.positive, bool):
            raise ParameterError(f"expected positive=True or positive=False, got {self.positive!r}")
        if self.bounds is not None:
            object.__setattr__(self, "bounds", self._read_bounds(self.bounds))
        for role in ("fixed", "start"):
            value = getattr(self, role)
            if value is not None:
                object.__setattr__(self, role, self._read_value(role, value))

    @property
    def interval(self) -> tuple[float, float]:
        """The smallest and largest value that `positive` and `bounds` leave; an end at zero is excluded."""
        low, high = self.bounds or (-math.inf, math.inf)
        return (max(low, 0.0) if self.positive else low), high

    def definition(self) -> dict[str, Any]:
        """Return the parameter as plain values, for JSON; `from_definition` makes it again.

        Examples
        --------
        >>> Parameter(fixed=9.81).definition()
        {'positive': False, 'bounds': None, 'fixed': 9.81, 'start': None}
        """
        content = {key: getattr(self, key) for key in ("positive", "bounds", "fixed", "start")}
        if self.prior is not None:
            content["prior"] = {"kind": type(self.prior).__name__, **vars(self.prior)}
        return content

    @classmethod
    def from_definition(cls, content: Mapping[str, Any]) -> Parameter:
        """Return the parameter that `definition` has described.

        Parameters
        ----------
        content : dict
            As `definition` returns it.

        Examples
        --------
        >>> Parameter.from_definition({"positive": True, "start": 2})
        Parameter(positive=True, bounds=None, fixed=None, start=2.0, prior=None)
        """
        options = dict(content)
        prior = options.pop("prior", None)
        if prior is not None:
            kind = Normal if prior["kind"] == "Normal" else LogNormal
            options["prior"] = kind(**{key: value for key, value in prior.items() if key != "kind"})
        return cls(**options)

    @property
    def excludes_zero(self) -> bool:
        """Whether the value is known to be above zero."""
        return self.positive or self.interval[0] > 0

    def broken_limits(self, value: float) -> str:
        """Return where a value has to lie, in words, if it does not lie there; an empty text if it does.

        Parameters
        ----------
        value : float
            Finite.

        Examples
        --------
        >>> Parameter(positive=True).broken_limits(-5.0), Parameter(positive=True).broken_limits(5.0)
        ('above zero', '')
        """
        low, high = self.interval
        if low <= value <= high and not (self.positive and value <= 0):
            return ""
        within = "" if self.bounds is None else f"within {low:g} to {high:g}"
        above = "above zero" if self.positive else ""
        return " and ".join(part for part in (above, within) if part)

    def _read_bounds(self, bounds: object) -> tuple[float, float]:
        if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
            raise ParameterError(f"expected bounds=(low, high), two numbers, got {bounds!r}")
        low, high = (_to_float("bounds", value) for value in bounds)
        if math.isnan(low) or math.isnan(high) or not low < high:
            raise ParameterError(f"expected bounds with low < high, got ({low}, {high}); use fixed= for a known value")
        if self.positive and high <= 0:
            raise ParameterError(f"positive=True contradicts bounds ({low}, {high}); remove one of them")
        return low, high

    def _read_value(self, role: str, value: object) -> float:
        number = _to_float(role, value)
        if not math.isfinite(number):
            raise ParameterError(f"expected a finite number for {role}=, got {value!r}")
        if limits := self.broken_limits(number):
            raise ParameterError(f"{role}={number} must lie {limits}; change {role}= or the limits")
        return number


def _to_float(role: str, value: object) -> float:
    if isinstance(value, bool | str | bytes):
        raise ParameterError(f"expected a number for {role}=, got {value!r}")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"expected a number for {role}= that fits a float, got {type(value).__name__}") from None


def read_parameters(parameters: Mapping[str, Parameter] | Iterable[str] | str) -> dict[str, Parameter]:
    """Return parameters by name, from a mapping, a list of names, or names in one text.

    Examples
    --------
    >>> list(read_parameters("a, b"))
    ['a', 'b']
    """
    if isinstance(parameters, str):
        parameters = [name for name in parameters.replace(",", " ").split() if name]
    if isinstance(parameters, Mapping):
        pairs = list(parameters.items())
    else:
        try:
            pairs = [(name, Parameter()) for name in parameters]
        except TypeError:
            raise ParameterError(
                f"expected parameters as names or as a dict of names to Parameter, got {type(parameters).__name__}"
            ) from None
    if len(pairs) > MAX_PARAMETERS:
        raise ParameterError(
            f"expected at most {MAX_PARAMETERS} parameters, got {len(pairs)}; write numbers for those that are known"
        )
    found: dict[str, Parameter] = {}
    for name, parameter in pairs:
        key = check_name(name, "parameter")
        if key in found:
            raise ParameterError(f"parameter {key!r} is declared twice")
        if not isinstance(parameter, Parameter):
            raise ParameterError(
                f"expected a Parameter for {key!r}, got {type(parameter).__name__}; "
                "try lk.Parameter(), or with positive=True, start=..., fixed=..., bounds=..."
            )
        found[key] = parameter
    return found
