"""Dimensional homogeneity: under ``t -> T t``, ``f -> s f`` all terms of an equation scale in the same way.

For the logarithms of the scales of time, channels and parameters this is a linear system over the rationals, with one
line for each pair of terms of an equation. The free unknowns are the base quantities; all other quantities are products
of powers of them (Buckingham).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING

from flint import arb, ctx as flint_context, fmpq, fmpq_mat

from lodekit.algebra.scalars import Element, Scalar, ScalarRing
from lodekit.errors import DataError, EquationError
from lodekit.support.units import UnitPowers, combine_powers, format_powers, is_known_unit, parse_unit
from lodekit.system.delays import undelayed_name
from lodekit.system.linear import format_derivative
from lodekit.system.signals import ExponentialPolynomial

if TYPE_CHECKING:
    from lodekit.system.system import System


@dataclass(frozen=True)
class Monomial:
    """A monomial of an equation: a number times powers of parameters, times a derivative of a channel or a power of t.

    powers: Exponents of parameters, of one channel and of t.
    number: The absolute value of the number; None if it is not rational.
    log_number: The logarithm of its absolute value.
    channel: Empty in known functions of time.
    order: The order of the derivative of the channel.
    text: The monomial without its number, in the user's notation.
    """

    powers: UnitPowers
    number: Fraction | None
    log_number: float
    channel: str
    order: int
    text: str

    @property
    def has_dimension(self) -> bool:
        """Whether it contains a channel or a parameter, which determine its dimension."""
        return bool(self.channel) or any(name != "t" for name in self.powers)

    def __str__(self) -> str:
        if self.number == 1:
            return self.text or "1"
        shown = "" if self.number is None else f"{float(self.number):g}"
        return "*".join(part for part in (shown, self.text) if part) or "a number"


@dataclass(frozen=True)
class HomogeneityGroup:
    """Terms that must scale in the same way.

    name: The name of their equation or function, for messages.
    is_dimensionless: Whether they must be dimensionless.
    """

    name: str
    monomials: tuple[Monomial, ...]
    is_dimensionless: bool = False


def find_homogeneity_groups(system: System) -> list[HomogeneityGroup]:
    """Return groups of terms that must scale in the same way: those of equations, and dimensionless arguments."""
    operator, found = system.operator, []
    for i, known in enumerate(system.forcing):
        row = [operator.coefficients(i, j) for j in range(operator.width)]
        monomials, inner = find_monomials(operator.ring, row, known, system.channels)
        found.append(HomogeneityGroup(f"equation {i + 1}", monomials))
        where = f"equation {i + 1}, inside a function of time"
        found += [HomogeneityGroup(where, part, is_dimensionless=True) for part in inner]
    for name in system.delayed_channels:
        if operator.ring.involves_parameters(name.time.numerator):
            bottom = name.time.denominator
            # A number added to parameters may have any unit.
            terms = _expand_monomials(operator.ring, name.time.numerator, bottom, {}, "", 0, "")
            times = [term for term in terms if term.powers]
            clock = _expand_monomials(operator.ring, bottom, bottom, {"t": Fraction(1)}, "", 0, "t")
            found.append(HomogeneityGroup(f"the time of {name}", (*times, *clock), is_dimensionless=True))
    return [balance for balance in found if len(balance.monomials) > 1]


def find_monomials(
    ring: ScalarRing, row: Sequence[Sequence[Scalar]], forcing: ExponentialPolynomial, channels: Sequence[str]
) -> tuple[tuple[Monomial, ...], list[tuple[Monomial, ...]]]:
    """Return the terms of ``sum C_c(d) c - known(t)``, and groups of terms that are dimensionless in known functions.

    Fractions are cleared first: all terms are multiplied by the common denominator.
    """
    entries = zip(channels, row, strict=True)
    factors = [(value, name, k, 0) for name, values in entries for k, value in enumerate(values)]
    factors += [(value, "", 0, wave.power) for wave, value in forcing.terms.items()]
    bottom = ring.common_multiple(value.denominator for value, *_ in factors if value)
    terms = []
    for value, name, order, power in factors:
        if value:
            whole = Scalar(ring, value.numerator * ring.divide(bottom, value.denominator)).numerator
            shape = format_derivative(name, order) if name else f"t^{power}" if power > 1 else "t" * power
            time, channel = Fraction(power - order), undelayed_name(name)
            terms += _expand_monomials(ring, whole, bottom, {channel: Fraction(1), "t": time}, channel, order, shape)
    inner = []
    for rate in {scalar for wave in forcing.terms for scalar in (wave.rate, wave.frequency) if scalar}:
        one = _expand_monomials(ring, rate.denominator, rate.denominator, {}, "", 0, "")
        times = _expand_monomials(ring, rate.numerator, rate.denominator, {"t": Fraction(1)}, "", 0, "t")
        inner.append((*times, *one))
    return tuple(terms), inner


def _expand_monomials(
    ring: ScalarRing, element: Element, bottom: Element, powers: UnitPowers, channel: str, order: int, shape: str
) -> list[Monomial]:
    """Return the terms of a coefficient, each times a given channel or function of time."""
    count = len(ring.constants)
    parts: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    for exponents, value in ring.terms(element).items():
        parts.setdefault(exponents[count:], {})[(*exponents[:count], *[0] * len(ring.parameters))] = value
    # A common integer factor of the denominator does not belong to its terms.
    content = gcd(*ring.terms(bottom).values())
    found = []
    for key, numbers in parts.items():
        own = {name: Fraction(e) for name, e in zip(ring.parameters, key, strict=True) if e}
        total = {name: power for name, power in {**powers, **own}.items() if power and name}
        plain = not any(any(exponents) for exponents in numbers)
        number = Fraction(abs(sum(numbers.values())), content) if plain else None
        with flint_context.workprec(128):  # more than the 53 bits of a float
            size = float((abs(ring.enclose(ring.from_terms(numbers))) / arb(content)).log().mid())
        names = [name if e == 1 else f"{name}^{e}" for name, e in zip(ring.parameters, key, strict=True) if e]
        found.append(Monomial(total, number, size, channel, order, "*".join([*names, *([shape] if shape else [])])))
    return found


@dataclass(eq=False, repr=False)
class Dimensions(Mapping[str, UnitPowers]):
    """The dimension of each parameter in terms of time, channels and, if necessary, other parameters.

    parameters, channels: Exponents by the names of base quantities; a base quantity is itself to the first power.
        Channels whose dimension follows from others are products of powers of these.
    numbers: Numbers, shown with their terms, that cannot be dimensionless: they relate otherwise independent scales.
    undetermined: Parameters that are base quantities, because time and channels do not determine their dimension.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("m*x'' + c*x' + k*x = b*u", parameters=["m", "c", "k", "b"])
    >>> found = system.dimensions()
    >>> print(found)
    m   undetermined
    c   m/t
    k   m/t^2
    b   x*m/(u*t^2)
    >>> found["k"] == {"m": 1, "t": -2}, found.undetermined
    (True, ('m',))
    """

    parameters: dict[str, UnitPowers]
    channels: dict[str, UnitPowers]
    numbers: dict[str, UnitPowers]
    undetermined: tuple[str, ...]

    def __getitem__(self, name: str) -> UnitPowers:
        return dict(self.parameters[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def format(self, name: str) -> str:
        """Return the dimension of a parameter or channel as text, such as ``1/t^2``."""
        return format_powers({**self.channels, **self.parameters}[name])

    def __str__(self) -> str:
        rows = [(n, "undetermined" if n in self.undetermined else self.format(n)) for n in self.parameters]
        rows += [(n, self.format(n)) for n, powers in self.channels.items() if powers != {n: 1}]
        rows += [(text, f"{format_powers(powers)}, the dimension of a number") for text, powers in self.numbers.items()]
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join(f"{name:<{width}}   {text}" for name, text in rows)

    def __repr__(self) -> str:
        shown = {name: self.format(name) for name in self.parameters}
        return f"<Dimensions {shown}>"


def find_dimensions(system: System) -> Dimensions:
    """Return the dimensions of parameters, channels and numbers that the equations imply.

    Small numbers, such as the 2 in ``2*z*w*x'``, are dimensionless as long as time and all channels can then have a
    dimension. If they cannot, as in ``x'' + 4*x = 0``, numbers other than one have a dimension; if that is not enough,
    as in ``x' = -x``, all have. Numbers such as 9.81, and known functions of time, may always have a dimension.
    """
    groups = find_homogeneity_groups(system)
    quantities = ["t", *system.plain_channels]
    for stage in range(3):
        marked, numbers = _mark_numbers(groups, stage)
        # Quantities further left are expressed in terms of those further right.
        names = [*numbers, *reversed(list(system.parameters)), *reversed(quantities)]
        lines = [combine_powers(g.monomials[0].powers, term.powers, -1) for g in marked for term in g.monomials[1:]]
        # Express each quantity as a product of base quantities such that all products in `lines` are dimensionless.
        solved = {name: {name: Fraction(1)} for name in names}
        for row in reduced_echelon_form(names, lines):
            first = next(iter(row))
            solved[first] = {name: -power for name, power in row.items() if name != first}
        if all(solved[name] for name in quantities):
            break
    order = {name: n for n, name in enumerate([*reversed(quantities[1:]), *system.parameters, "t"])}

    def sort(powers: UnitPowers) -> UnitPowers:
        return {key: powers[key] for key in sorted(powers, key=lambda name: order.get(name, -1))}

    return Dimensions(
        {name: sort(solved[name]) for name in system.parameters},
        {name: sort(solved[name]) for name in system.plain_channels},
        {text: sort(solved[mark]) for mark, text in numbers.items() if solved[mark] not in ({}, {mark: Fraction(1)})},
        tuple(name for name in system.parameters if solved[name] == {name: Fraction(1)}),
    )


def _mark_numbers(groups: Sequence[HomogeneityGroup], stage: int) -> tuple[list[HomogeneityGroup], dict[str, str]]:
    """Return groups in which some numbers are quantities, and the marks of these with a text for each.

    Stage 0: numbers that are not small; 1: those other than one; 2: those of all terms but the first of highest order.
    Equal numbers in an equation are one quantity, except in stage 2.
    """
    marks: dict[str, str] = {}
    found = []
    for n, group in enumerate(groups):
        reference = max(group.monomials, key=lambda term: (term.order, bool(term.channel)))
        terms = []
        for k, term in enumerate(group.monomials):
            # Small numbers and their quotients come from sums and derivatives, and are dimensionless.
            small = term.number is not None and max(term.number.numerator, term.number.denominator) <= 4
            pure = (small if not stage else term.number == 1) and (group.is_dimensionless or term.has_dimension)
            if pure and (stage < 2 or term is reference):
                terms.append(term)
                continue
            mark = f"#{n} {k if stage == 2 or term.number is None else term.number}"
            marks.setdefault(mark, f"{term} in {group.name}")
            terms.append(replace(term, powers={**term.powers, mark: Fraction(1)}))
        found.append(replace(group, monomials=tuple(terms)))
    return found, marks


def reduced_echelon_form(names: Sequence[str], lines: Sequence[UnitPowers]) -> list[UnitPowers]:
    """Return the nonzero entries of the reduced row echelon form of `lines`, in the order of `names`."""
    if not lines or not names:
        return []
    places = {name: k for k, name in enumerate(names)}
    matrix = fmpq_mat(len(lines), len(names))
    for i, line in enumerate(lines):
        for name, power in line.items():
            matrix[i, places[name]] = fmpq(power.numerator, power.denominator)
    echelon, rank = matrix.rref()
    return [
        {name: Fraction(int(v.p), int(v.q)) for name, v in zip(names, row, strict=True) if v}
        for row in echelon.tolist()[: int(rank)]
    ]


def check_units(system: System, units: Mapping[str, str]) -> None:
    """Raise if units of time, channels and parameters are inconsistent, for any choice of the units not given.

    Numbers other than one may have any unit, because they may be conversions; so may unknown units.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x' = v; m*v' = F", parameters=["m"])
    >>> check_units(system, {"t": "s", "x": "m", "v": "m/s", "F": "N", "m": "kg"})
    >>> check_units(system, {"t": "s", "x": "m", "v": "m"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    lodekit.errors.EquationError: the units of equation 1 do not agree: x' is in m/s, but v is in m; ...
    """
    known = {name: powers for name, text in units.items() if (powers := parse_unit(text)) is not None}
    lines, texts = [], []
    for group in find_homogeneity_groups(system):
        # Only use terms without a number, since a number may have a unit.
        trusted = [t for t in group.monomials if t.number == 1 and (group.is_dimensionless or t.has_dimension)]
        for term in trusted[1:]:
            lines.append(_substitute_units(combine_powers(trusted[0].powers, term.powers, -1), known))
            texts.append(f"{trusted[0]} and {term} in {group.name}")
        plain = [term for term in trusted if all(name in known for name in term.powers)]
        for term in plain[1:]:
            if not _are_consistent([_substitute_units(combine_powers(plain[0].powers, term.powers, -1), known)]):
                first, second = (f"{t} is in {_format_unit(t, units)}" for t in (plain[0], term))
                raise EquationError(
                    f"the units of {group.name} do not agree: {first}, but {second}; change a unit, or leave out those "
                    "that are not known"
                )
    if not _are_consistent(lines):
        # Reduce the lines to a minimal inconsistent set.
        kept = list(range(len(lines)))
        for k in range(len(lines)):
            rest = [i for i in kept if i != k]
            kept = kept if _are_consistent([lines[i] for i in rest]) else rest
        listed = "; ".join(texts[i] for i in kept)
        raise EquationError(f"no units of the other quantities make these terms agree: {listed}; check their units")


def derive_units(system: System, units: Mapping[str, str]) -> dict[str, str]:
    """Return the units of parameters that follow from those of time and channels.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("tau*y' + y - y0 = K*u", parameters=["tau", "y0", "K"])
    >>> derive_units(system, {"t": "s", "y": "degC", "u": "V"})
    {'tau': 's', 'y0': 'degC', 'K': 'degC/V'}
    """
    found: dict[str, str] = {}
    dimensions = find_dimensions(system)
    known = {name: unit.strip() for name, unit in units.items() if unit.strip()}
    for name, powers in dimensions.channels.items():
        # Unmeasured channels have the unit of measured ones with the same dimension.
        if name in known and len(powers) == 1 and next(iter(powers.values())) == 1:
            known.setdefault(next(iter(powers)), known[name])
    for name, powers in dimensions.items():
        if name in units or not powers or any(base not in known for base in powers):
            continue
        pieces: UnitPowers = {}
        for base, power in powers.items():
            text = known[base]
            unit = text if re.fullmatch(r"[^\W\d_]+|[%°]\w?", text) else f"({text})"
            pieces = combine_powers(pieces, {unit: power})
        found[name] = format_powers(pieces)
        if re.fullmatch(r"\([^()]*\)", found[name]):
            found[name] = found[name][1:-1]
    return {name: unit for name, unit in found.items() if unit != "1"}


def white_noise_unit(
    system: System | None, name: str, units: Mapping[str, str], measured: Sequence[str] = ()
) -> tuple[str, str]:
    """Return the unit of the intensity of white noise in short and in words: that of the noise times a root of time.

    The noise is not measured, so its unit follows from that of a channel in the same equations, if there is one.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x' = -a*x + K*u + w", parameters=["a", "K"])
    >>> white_noise_unit(system, "w", {"t": "s", "x": "degC"})
    ('degC/sqrt(s)', 'degC/sqrt(s)')
    >>> white_noise_unit(system, "w", {})
    ('x/sqrt(t)', 'the unit of x per root of time')
    >>> white_noise_unit(lk.System("tau*y' + y = K*u + w", parameters=["tau", "K"]), "w", {})
    ('y*sqrt(t)', 'the unit of y times the root of time')
    """
    known = {key: unit.strip() for key, unit in units.items() if unit.strip()}
    channels = {} if system is None else find_dimensions(system).channels
    tied = {each: combine_powers(channels[name], powers, -1) for each, powers in channels.items() if each != name}
    ranked = sorted(tied, key=lambda each: (each not in known, each not in measured))
    other = next((each for each in ranked if set(tied[each]) <= {"t"}), name) if name not in known else name
    power = tied.get(other, {}).get("t", Fraction(0)) + Fraction(1, 2)
    own, time = known.get(other, other), known.get("t", "t")
    own = own if re.fullmatch(r"[^\W\d]\w*|[%°]\w?", own) else f"({own})"
    sign, size = "*" if power > 0 else "/", abs(power)
    short = f"{own}{sign}{f'sqrt({time})' if size == Fraction(1, 2) else f'{time}^{float(size):g}'}"
    if other in known and "t" in known:
        return short, short
    root = "root of {0}" if size == Fraction(1, 2) else f"{{0}} to the power of {float(size):g}"
    how = ("times the " if power > 0 else "per ") + root.format(known.get("t", "time"))
    return short, f"{own if other in known else f'the unit of {other}'} {how}"


def check_column_units(system: System, declared: Mapping[str, str], from_columns: Mapping[str, str]) -> None:
    """Raise if units in the names of columns contradict the equations, given the declared units."""
    known = {name: unit for name, unit in from_columns.items() if is_known_unit(unit)}
    try:
        check_units(system, {**known, **declared})
    except EquationError as problem:
        shown = ", ".join(f"{name} in {unit}" for name, unit in known.items())
        raise DataError(f"the column names give {shown}, but {problem}") from None


def _substitute_units(powers: UnitPowers, known: Mapping[str, UnitPowers]) -> UnitPowers:
    """Return powers of quantities with known units substituted; other quantities keep their names, marked with "?"."""
    total: UnitPowers = {}
    for name, power in powers.items():
        total = combine_powers(total, known.get(name, {f"?{name}": Fraction(1)}), power)
    return total


def _are_consistent(lines: Sequence[UnitPowers]) -> bool:
    """Return whether some units of the unknowns (quoted or marked names) make all lines dimensionless."""
    unknown = sorted({base for line in lines for base in line if base[0] in "?'"})
    bases = sorted({base for line in lines for base in line} - set(unknown))
    # A line of the echelon form without unknowns would require a product of base units to be dimensionless.
    return not any(row.keys().isdisjoint(unknown) for row in reduced_echelon_form([*unknown, *bases], lines))


def _format_unit(term: Monomial, units: Mapping[str, str]) -> str:
    """Return the unit of a term in the user's notation."""
    pieces = {units[name] if units[name].isalnum() else f"({units[name]})": p for name, p in term.powers.items()}
    if len(pieces) == len(term.powers):
        text = format_powers(pieces)
        return text[1:-1] if len(pieces) == 1 and text[0] == "(" and text[-1] == ")" else text
    return format_powers({f"[{name}]": power for name, power in term.powers.items()})
