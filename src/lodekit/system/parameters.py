"""Parameters with bounds and priors, and checks of the names of a system: channels, roles, unused parameters."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from numbers import Real
from typing import Any, cast

from lodekit.errors import EquationError, ParameterError
from lodekit.support.text import suggest_arguments
from lodekit.system import grammar

#: Exact arithmetic with more symbols takes minutes, and data cannot identify so many parameters.
MAX_PARAMETERS = 100
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Normal:
    """A normal prior on a parameter.

    Parameters
    ----------
    mean, std : float
        Mean and standard deviation.

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
            Value of the parameter.

        Examples
        --------
        >>> density, slope = Normal(5, 2).log_density(9)
        >>> round(density, 4), slope
        (-3.6121, -1.0)
        """
        z = (value - self.mean) / self.std
        return -(0.5 * z * z) - math.log(self.std) - _HALF_LOG_TWO_PI, -(z / self.std)

    def log_mass(self, low: float, high: float) -> float:
        """Return the logarithm of the probability between two values.

        Parameters
        ----------
        low, high : float
            The two values; may be infinite.

        Examples
        --------
        >>> round(Normal(0, 1).log_mass(0, float("inf")), 4)
        -0.6931
        """
        return _log_normal_probability((low - self.mean) / self.std, (high - self.mean) / self.std)


@dataclass(frozen=True)
class LogNormal:
    """A log-normal prior on a positive parameter.

    Parameters
    ----------
    median : float
        Median of the parameter; positive.
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
            Value of the parameter; if it is not positive, the log density is minus infinity.

        Examples
        --------
        >>> density, slope = LogNormal(1, 0.5).log_density(1)
        >>> round(density, 4), slope
        (-0.2258, -1.0)
        """
        if value <= 0:
            return -math.inf, 0.0
        z = self._standardized(value)
        constant = math.log(self.spread) + _HALF_LOG_TWO_PI
        return -(0.5 * z * z + math.log(value)) - constant, -(z / self.spread + 1.0) / value

    def log_mass(self, low: float, high: float) -> float:
        """Return the logarithm of the probability between two values.

        Parameters
        ----------
        low, high : float
            The two values; may be infinite.

        Examples
        --------
        >>> round(LogNormal(2, 0.7).log_mass(0, 2), 4)
        -0.6931
        """
        ends = [self._standardized(edge) if edge > 0 else -math.inf for edge in (low, high)]
        return _log_normal_probability(*ends)

    def _standardized(self, value: float) -> float:
        # The difference of two logarithms: a quotient could leave the range of floats.
        return (math.log(value) - math.log(self.median)) / self.spread


def _log_normal_probability(low: float, high: float) -> float:
    """Return the logarithm of the standard normal probability between two numbers, accurate in the tails."""
    if low > 0:
        low, high = -high, -low
    mass = 0.5 * (math.erfc(-high / math.sqrt(2.0)) - math.erfc(-low / math.sqrt(2.0)))
    return math.log(mass) if mass > 0 else -math.inf


def _check_prior(location: float, std: float) -> None:
    for value in (location, std):
        if not math.isfinite(_to_float("prior", value)):
            raise ParameterError(f"expected finite numbers for a prior, got {value!r}")
    if std <= 0:
        raise ParameterError(f"expected a prior with a spread above zero, got {std}")


@suggest_arguments
@dataclass(frozen=True)
class Parameter:
    """An unknown constant of a system.

    Parameters
    ----------
    positive : bool
        Whether the value must be above zero (masses, lengths, time constants).
    bounds : (float, float), optional
        Smallest and largest possible value; None, or an infinity, for no limit.
    fixed : float, optional
        The known value, if the parameter is not to be estimated.
    start : float, optional
        Start value of the search.
    prior : Normal or LogNormal, optional
        Prior distribution; the estimate is then maximum a posteriori.

    Examples
    --------
    >>> Parameter(positive=True, start=10)
    Parameter(positive=True, bounds=None, fixed=None, start=10.0, prior=None)
    """

    positive: bool = False
    bounds: tuple[float | None, float | None] | None = None
    fixed: float | None = None
    start: float | None = None
    prior: Normal | LogNormal | None = None

    def __post_init__(self) -> None:
        if self.prior is not None and not isinstance(self.prior, Normal | LogNormal):
            of_functions = "; a prior of functions of time goes with the model: LODEGP(system, prior='channels')"
            remedy = of_functions if isinstance(self.prior, str) and self.prior in ("latent", "channels") else ""
            raise ParameterError(f"expected prior=Normal(...) or LogNormal(...), got {self.prior!r}{remedy}")
        if not isinstance(self.positive, bool):
            advice = "fixed=2.0 for a known value, start=2.0 for a first guess"
            raise ParameterError(f"expected positive=True or positive=False, got {self.positive!r}; use {advice}")
        if self.bounds is not None:
            object.__setattr__(self, "bounds", self._parse_bounds(self.bounds))
        for role in ("fixed", "start"):
            value = getattr(self, role)
            if value is not None:
                object.__setattr__(self, role, self._parse_value(role, value))

    @property
    def interval(self) -> tuple[float, float]:
        """The smallest and largest value that `positive` and `bounds` allow; an end at zero is excluded."""
        # Missing limits have become infinities.
        low, high = cast("tuple[float, float]", self.bounds or (-math.inf, math.inf))
        return (max(low, 0.0) if self.positive else low), high

    def definition(self) -> dict[str, Any]:
        """Return the parameter as plain values for JSON; `from_definition` restores it.

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
        """Return the parameter with a given definition.

        Parameters
        ----------
        content : dict
            As returned by `definition`.

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

    def broken_limits(self, number: float) -> str:
        """Return the limits that a number violates, in words; empty if it violates none.

        Parameters
        ----------
        number : float
            The finite number.

        Examples
        --------
        >>> Parameter(positive=True).broken_limits(-5.0), Parameter(positive=True).broken_limits(5.0)
        ('above zero', '')
        """
        low, high = self.interval
        if low <= number <= high and not (self.positive and number <= 0):
            return ""
        within = "" if self.bounds is None else f"within {low:g} to {high:g}"
        above = "above zero" if self.positive else ""
        return " and ".join(part for part in (above, within) if part)

    def _parse_bounds(self, bounds: object) -> tuple[float, float]:
        if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
            raise ParameterError(f"expected bounds=(low, high), two numbers, got {bounds!r}")
        ends = zip(bounds, (-math.inf, math.inf), strict=True)
        low, high = (limit if value is None else _to_float("bounds", value) for value, limit in ends)
        if math.isnan(low) or math.isnan(high) or not low < high:
            advice = "exchange them" if low > high else "use fixed= for a known value"
            raise ParameterError(f"expected a lower bound below the upper one, got {low:g} and {high:g}; {advice}")
        if self.positive and high <= 0:
            raise ParameterError(f"positive=True contradicts bounds ({low}, {high}); remove one of them")
        return low, high

    def _parse_value(self, role: str, value: object) -> float:
        number = _to_float(role, value)
        if not math.isfinite(number):
            raise ParameterError(f"expected a finite number for {role}=, got {value!r}")
        if limits := self.broken_limits(number):
            raise ParameterError(f"{role}={number} must lie {limits}; change {role}= or the limits")
        return number


def _to_float(role: str, value: object) -> float:
    if isinstance(value, bool | str | bytes):
        remedy = "" if isinstance(value, bool) else "; write a number, without quotation marks"
        raise ParameterError(f"expected a number for {role}=, got {value!r}{remedy}")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ParameterError(f"expected a number for {role}=, got {type(value).__name__}") from None
    except OverflowError:
        raise ParameterError(f"expected a number for {role}= below 1.8e308, got a larger one") from None


def parse_parameters(parameters: Mapping[str, Parameter] | Iterable[str] | str) -> dict[str, Parameter]:
    """Return parameters by name, from a mapping, a list of names, or names in one text.

    Examples
    --------
    >>> list(parse_parameters("a, b"))
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
        key = grammar.check_name(name, "parameter")
        if key in found:
            raise ParameterError(f"parameter {key!r} is declared twice")
        if not isinstance(parameter, Parameter):
            remedy = "try lk.Parameter(), or with positive=True, start=..., fixed=..., bounds=..."
            if isinstance(parameter, Real) and not isinstance(parameter, bool):
                value = float(parameter)
                known, guess = f"lk.Parameter(fixed={value!r})", f"lk.Parameter(start={value!r})"
                remedy = f"try {known} if the value is known, or {guess} as a first guess"
            raise ParameterError(f"expected a Parameter for {key!r}, got {type(parameter).__name__}; {remedy}")
        found[key] = parameter
    return found


def find_channel_names(equations: Iterable[grammar.Equation], parameters: Sequence[str]) -> list[str]:
    """Return the names in `equations` that are not `parameters`, t or pi, in the order of their first appearance."""
    names = dict.fromkeys(name for equation in equations for name in equation.names)
    return [name for name in names if name not in ("t", "pi", *parameters)]


def find_single_use_inputs(equations: Iterable[grammar.Equation], channels: Sequence[str]) -> list[str]:
    """Return the `channels` that appear only once in the `equations`, there undifferentiated and next to a derivative.

    The name may be misspelled, or an undeclared parameter; it may also be meant as an unknown input.
    """
    uses, beside = Counter[str](), set[str]()
    for equation in equations:
        uses.update(equation.names)
        derivatives = [node for node in grammar.walk_equation(equation) if _is_derivative(node)]
        if derivatives:
            beside |= set(equation.names).difference(*map(grammar.find_names, derivatives))
    return [name for name in channels if uses[name] == 1 and name in beside]


def find_single_use_names(equations: Iterable[grammar.Equation], channels: Sequence[str]) -> list[str]:
    """Return the `channels` that appear only once in the `equations`, and not alone on one side of an equation.

    A channel that is alone on one side, such as y in y = x + w, is defined there.
    """
    sides = [side for equation in equations for side in equation.sides]
    defined = {side.name for side in sides if isinstance(side, grammar.Name)}
    uses = Counter(name for side in sides for name in grammar.find_names(side))
    return [name for name in channels if uses[name] == 1 and name not in defined]


def _is_derivative(node: grammar.Expression) -> bool:
    if isinstance(node, grammar.Power):
        return node.has_parentheses and isinstance(node.exponent, grammar.Number)
    return isinstance(node, grammar.Call) and node.function in ("D", "diff")


def find_likely_parameters(equations: Sequence[grammar.Equation], channels: Sequence[str]) -> list[str]:
    """Return the `channels` that look like undeclared parameters.

    Throughout the `equations` they are never differentiated and only multiply, divide or enter functions.
    """
    plain: set[str] = set()
    for equation in equations:
        for side in equation.sides:
            _collect_noncoefficients(side, plain, set(channels), as_coefficient=False)
    # The terms of a sum have one unit: in (Ta - T)/R, Ta is a channel as T is.
    for node in (node for equation in equations for node in grammar.walk_equation(equation)):
        if isinstance(node, grammar.Sum):
            terms = {term.name for _, term in node.terms if isinstance(term, grammar.Name)}
            plain |= set() if plain.isdisjoint(terms) else terms
    return [name for name in channels if name not in plain]


def _collect_noncoefficients(
    node: grammar.Expression, noncoefficients: set[str], channels: set[str], *, as_coefficient: bool
) -> None:
    """Collect the channels that occur as a separate term, or differentiated."""
    if isinstance(node, grammar.Name) and not as_coefficient:
        noncoefficients.add(node.name)
    parts = grammar.children(node)
    match node:
        case grammar.Product():
            mentioned = [not channels.isdisjoint(grammar.find_names(part)) for part in parts]
            divided = [operator == "/" for operator, _ in node.factors]
            inside = [as_coefficient or d or sum(mentioned) > m for d, m in zip(divided, mentioned, strict=True)]
        case grammar.Power():
            inside = [not _is_derivative(node), True]
        case grammar.Call():
            plain = node.function in ("D", "diff")
            inside = [not plain and (node.function != "delay" or k > 0) for k in range(len(parts))]
        case _:
            inside = [as_coefficient] * len(parts)
    for part, is_coefficient in zip(parts, inside, strict=True):
        _collect_noncoefficients(part, noncoefficients, channels, as_coefficient=is_coefficient)


def find_ambiguous_parameters(equations: Sequence[grammar.Equation], likely: Sequence[str]) -> list[str]:
    """Return the `likely` parameters that only multiply each other, as in ``K*u``: one may be an input."""
    products = [names for equation in equations for side in equation.sides for names in _find_products(side)]
    certain = set[str]().union(*(names for names in products if not names <= {*likely}))
    return [name for name in likely if name not in certain]


def _find_products(node: grammar.Expression) -> list[set[str]]:
    """Return the names in each term of an expression, with sums in products expanded."""
    if isinstance(node, grammar.Sum):
        return [names for _, term in node.terms for names in _find_products(term)]
    factors = [factor for _, factor in node.factors] if isinstance(node, grammar.Product) else [node]
    sums = [factor for factor in factors if isinstance(factor, grammar.Sum)]
    common = set[str]().union(*(grammar.find_names(part) for part in factors if not isinstance(part, grammar.Sum)))
    return [common | names for factor in sums for names in _find_products(factor)] or [common]


MAX_CHANNELS = 500


def parse_names(names: object, role: str) -> list[str]:
    """Return `names`, a list or one text with commas, in normal form; `role` describes them in errors."""
    if isinstance(names, str):
        names = names.replace(",", " ").split()
    if not isinstance(names, Iterable) or isinstance(names, Mapping | bytes | set):
        raise EquationError(f"expected the {role} names as a list, got {type(names).__name__}")
    found = list(names)
    if len(found) > MAX_CHANNELS:
        raise EquationError(f"expected at most {MAX_CHANNELS} {role} names, got {len(found)}; split the system")
    return [grammar.check_name(name, role) for name in found]


def candidate_names(*preferred: str) -> Iterator[str]:
    """Yield the preferred names, then the last of them with more and more underscores, without end.

    The caller takes the first unused one.

    Examples
    --------
    >>> next(name for name in candidate_names("s", "S") if name not in ("s", "S", "S_"))
    'S__'
    """
    yield from preferred
    for size in count(1):
        yield preferred[-1] + "_" * size


def check_channels(channels: Sequence[str], parameters: Mapping[str, Parameter]) -> list[str]:
    """Return `channels` in normal form; raise if they are repeated, among the `parameters`, or none."""
    names = parse_names(channels, "channel")
    for position, name in enumerate(names):
        if name in names[:position]:
            raise EquationError(f"channel {name!r} is listed twice")
        if name in parameters:
            raise EquationError(f"{name!r} is both a channel and a parameter; remove it from one of the lists")
    if not names:
        raise EquationError("expected at least one channel")
    return names


def order_channels(
    equations: Sequence[grammar.Equation], parameters: Mapping[str, Parameter], channels: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the channels in the given order, or in that of their first appearance."""
    if channels is not None:
        return tuple(check_channels(channels, parameters))
    found = find_channel_names(equations, tuple(parameters))
    if not found:
        raise EquationError("expected at least one channel: every name is a parameter or a known function of time")
    if len(found) > MAX_CHANNELS:
        raise EquationError(f"expected at most {MAX_CHANNELS} channels, got {len(found)}; split the system")
    _check_derivative_names(equations, found)
    return tuple(found)


def _check_derivative_names(equations: Sequence[grammar.Equation], channels: Sequence[str]) -> None:
    """Raise if a channel has the name of another channel's derivative, and no derivative of that one occurs."""
    # The names x_dot, xddot and the like.
    dotted = [found for name in channels if (found := re.fullmatch(r"(\w+?)_?(d{1,3})ot", name))]
    found = next((match for match in dotted if match[1] in channels), None)
    if found is None:
        return
    name, base, derivative = found[0], found[1], found[1] + "'" * len(found[2])
    moved = (node for each in equations for node in grammar.walk_equation(each) if isinstance(node, grammar.Call))
    if any(base in grammar.find_names(node) for node in moved):
        return
    raise EquationError(
        f"{name} is a separate channel without a relation to {base}; write {derivative} for the derivative, or add "
        f"the equation {name} = {derivative}"
    )


def check_parameters_used(
    equations: Sequence[grammar.Equation], parameters: Mapping[str, Parameter], channels: Sequence[str]
) -> None:
    """Raise if one of the `parameters` is not in the `equations`; the message lists the `channels`."""
    for name in (name for equation in equations for name in re.findall(r"(\w+)\s*\(\s*t\s*\)", equation.text)):
        if name in parameters:
            raise EquationError(
                f"parameter {name!r} is written as a function of time; expected constant coefficients: write {name}"
            )
    mentioned = {name for equation in equations for name in equation.names}
    unused = [name for name in parameters if name not in mentioned]
    if unused:
        plural, pronoun = ("s are", "them") if len(unused) > 1 else (" is", "it")
        names = ", ".join(repr(name) for name in unused)
        raise EquationError(
            f"parameter{plural} declared but never used: {names}; remove {pronoun} or check the spelling. "
            f"Channels are {', '.join(channels)}"
        )
