"""Dimensions from the equations themselves: under ``t -> T t``, ``f -> s f`` all terms of an equation scale alike.

For the logarithms of the scales of time, channels and parameters that is a linear system over the rationals: one line
for each two terms of an equation. What it leaves free are the base quantities; all else is a product of powers of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from flint import fmpq, fmpq_mat

from lodekit.errors import DataError, EquationError
from lodekit.quantities import Powers, format_powers, is_known, read_unit
from lodekit.system.facts import Facts
from lodekit.system.terms import Balance, Term, balances

__all__ = ["Dimensions", "check_units", "derive_units", "find_dimensions", "tell_intensity", "unit_check"]

#: Numbers up to this, and their quotients, are taken for pure: they come from sums and derivatives.
_SMALL = 4


class Dimensions(Mapping[str, Powers]):
    """The dimension of each parameter in terms of time, channels and, where these do not tell, other parameters.

    Parameters
    ----------
    parameters, channels : dict of str to dict
        Exponents by the names of base quantities; a base quantity is itself to the first power. Channels that the
        equations tie to others are products of these.
    numbers : dict of str to dict
        Numbers, shown with their terms, that cannot be pure: they tie scales that are independent otherwise.
    undetermined : tuple of str
        Parameters that are base quantities, because time and channels do not tell their dimension.

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

    def __init__(
        self,
        parameters: Mapping[str, Powers],
        channels: Mapping[str, Powers],
        numbers: Mapping[str, Powers],
        undetermined: Sequence[str] = (),
    ) -> None:
        self.parameters, self.channels, self.numbers = dict(parameters), dict(channels), dict(numbers)
        self.undetermined = tuple(undetermined)

    def __getitem__(self, name: str) -> Powers:
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


def find_dimensions(system: Facts) -> Dimensions:
    """Return the dimensions that the equations give to parameters, channels and numbers.

    Small numbers, such as the 2 in ``2*z*w*x'``, are pure as long as time and all channels can have a dimension then.
    Where they cannot, as in ``x'' + 4*x = 0``, numbers other than one have a dimension; where that is not enough, as in
    ``x' = -x``, all have. Numbers such as 9.81, and known functions of time, may have a dimension in any case.

    Parameters
    ----------
    system : Facts
    """
    groups = balances(system)
    quantities = ["t", *system.plain_channels]
    for stage in range(3):
        marked, numbers = _mark_numbers(groups, stage)
        # What stands further left is expressed in what stands further right.
        names = [*numbers, *reversed(list(system.parameters)), *reversed(quantities)]
        solved = _solve(names, [_difference(a, b) for g in marked for a, b in _pairs(g)])
        if all(solved[name] for name in quantities):
            break
    order = {name: n for n, name in enumerate([*reversed(quantities[1:]), *system.parameters, "t"])}

    def sort(powers: Powers) -> Powers:
        return {key: powers[key] for key in sorted(powers, key=lambda name: order.get(name, -1))}

    return Dimensions(
        {name: sort(solved[name]) for name in system.parameters},
        {name: sort(solved[name]) for name in system.plain_channels},
        {text: sort(solved[mark]) for mark, text in numbers.items() if solved[mark] not in ({}, {mark: Fraction(1)})},
        [name for name in system.parameters if solved[name] == {name: Fraction(1)}],
    )


def _mark_numbers(groups: Sequence[Balance], stage: int) -> tuple[list[Balance], dict[str, str]]:
    """Return balances in which numbers are quantities, and their marks with a text that shows them.

    Stage 0: those that are not small; 1: those other than one; 2: those of all terms but the first of highest order.
    Equal ones of an equation are one quantity, except in stage 2.
    """
    marks: dict[str, str] = {}
    found = []
    for n, group in enumerate(groups):
        reference = max(group.terms, key=lambda term: (term.order, bool(term.channel)))
        terms = []
        for k, term in enumerate(group.terms):
            pure = group.pure or term.is_bound
            pure &= _is_small(term.number) if not stage else term.number == 1
            if pure and (stage < 2 or term is reference):
                terms.append(term)
                continue
            mark = f"#{n} {k if stage == 2 or term.number is None else term.number}"
            marks.setdefault(mark, f"{term} in {group.name}")
            terms.append(replace(term, powers={**term.powers, mark: Fraction(1)}))
        found.append(replace(group, terms=tuple(terms)))
    return found, marks


def _is_small(number: Fraction | None) -> bool:
    return number is not None and max(number.numerator, number.denominator) <= _SMALL


def _pairs(group: Balance) -> list[tuple[Term, Term]]:
    return [(group.terms[0], term) for term in group.terms[1:]]


def _difference(first: Term, second: Term) -> Powers:
    return _quotient(first.powers, second.powers)


def _quotient(first: Powers, second: Powers) -> Powers:
    found = {name: first.get(name, Fraction(0)) - second.get(name, Fraction(0)) for name in {**first, **second}}
    return {name: power for name, power in found.items() if power}


def _solve(names: Sequence[str], lines: Sequence[Powers]) -> dict[str, Powers]:
    """Return each quantity as a product of base quantities, where all products of powers in `lines` are pure."""
    solved = {name: {name: Fraction(1)} for name in names}
    for row in _reduced(names, lines):
        first = next(iter(row))
        solved[first] = {name: -power for name, power in row.items() if name != first}
    return solved


def _reduced(names: Sequence[str], lines: Sequence[Powers]) -> list[Powers]:
    """Return the reduced echelon form of lines, without what is zero; in each, names stand in their given order."""
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


def check_units(system: Facts, units: Mapping[str, str]) -> None:
    """Raise where units of time, channels and parameters cannot all be right, whatever the units that are not given.

    Numbers other than one may have any unit: they may be conversions. So may words that are no known unit.

    Parameters
    ----------
    system : Facts
    units : dict of str to str
        By name; those that cannot be read are left out.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x' = v; m*v' = F", parameters=["m"])
    >>> check_units(system, {"t": "s", "x": "m", "v": "m/s", "F": "N", "m": "kg"})
    >>> check_units(system, {"t": "s", "x": "m", "v": "m"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    lodekit.errors.EquationError: the units of equation 1 do not agree: x' is in m/s, but v is in m; ...
    """
    known = {name: powers for name, text in units.items() if (powers := read_unit(text)) is not None}
    groups = balances(system)
    for group in groups:
        trusted = _trusted(group)
        plain = [(term, _insert(term.powers, known)) for term in trusted if all(name in known for name in term.powers)]
        for term, powers in plain[1:]:
            if not _agree([_quotient(plain[0][1], powers)]):
                first, second = ((t, _shown(t, units)) for t in (plain[0][0], term))
                raise EquationError(
                    f"the units of {group.name} do not agree: {first[0]} is in {first[1]}, but {second[0]} is in "
                    f"{second[1]}; change a unit, or leave out those that are not known"
                )
    lines, texts = [], []
    for group in groups:
        trusted = _trusted(group)
        for term in trusted[1:]:
            lines.append(_insert(_difference(trusted[0], term), known))
            texts.append(f"{trusted[0]} and {term} in {group.name}")
    if not _agree(lines):
        raise EquationError(
            f"no units of the rest make these terms agree: {_culprits(lines, texts)}; check their units"
        )


def derive_units(system: Facts, units: Mapping[str, str]) -> dict[str, str]:
    """Return units of parameters that follow from those of time and channels; without those that need more.

    Parameters
    ----------
    system : Facts
    units : dict of str to str
        Of the time ``t``, channels and parameters, by name.

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
        # Channels that were not measured have the unit of others that are of their kind.
        if name in known and len(powers) == 1 and next(iter(powers.values())) == 1:
            known.setdefault(next(iter(powers)), known[name])
    for name, powers in dimensions.items():
        if name in units or not powers or any(base not in known for base in powers):
            continue
        pieces: Powers = {}
        for base, power in powers.items():
            text = known[base]
            unit = text if re.fullmatch(r"[^\W\d_]+|[%°]\w?", text) else f"({text})"
            pieces[unit] = pieces.get(unit, Fraction(0)) + power
        found[name] = format_powers({unit: power for unit, power in pieces.items() if power})
        if re.fullmatch(r"\([^()]*\)", found[name]):
            found[name] = found[name][1:-1]
    return {name: unit for name, unit in found.items() if unit != "1"}


def tell_intensity(
    system: Facts | None, name: str, units: Mapping[str, str], measured: Sequence[str] = ()
) -> tuple[str, str]:
    """Return the unit of the intensity of white noise in short and in words: that of the noise times a root of time.

    Nobody measures it. So its own unit is told by that of a channel that the equations tie it to, where there is one.

    Parameters
    ----------
    system : Facts or None
        The equations; without them its own unit is spoken of.
    name : str
        The channel that is white noise.
    units : dict of str to str
        Of the time ``t`` and channels, by name, as far as they are known.
    measured : sequence of str
        Channels that are rather spoken of than others.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x' = -a*x + K*u + w", parameters=["a", "K"])
    >>> tell_intensity(system, "w", {"t": "s", "x": "degC"})
    ('degC/sqrt(s)', 'degC/sqrt(s)')
    >>> tell_intensity(system, "w", {})
    ('x/sqrt(t)', 'the unit of x per root of time')
    >>> tell_intensity(lk.System("tau*y' + y = K*u + w", parameters=["tau", "K"]), "w", {})
    ('y*sqrt(t)', 'the unit of y times the root of time')
    """
    known = {key: unit.strip() for key, unit in units.items() if unit.strip()}
    channels = {} if system is None else find_dimensions(system).channels
    tied = {each: _quotient(channels[name], powers) for each, powers in channels.items() if each != name}
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


def unit_check(system: Facts, declared: Mapping[str, str] | None = None) -> Callable[[Mapping[str, str]], None]:
    """Return a check of units that measurements tell, together with those that are declared.

    Parameters
    ----------
    system : Facts
    declared : dict of str to str, optional
        Units by name; they are known to agree with each other.
    """

    def check(told: Mapping[str, str]) -> None:
        known = {name: unit for name, unit in told.items() if is_known(unit)}
        try:
            check_units(system, {**known, **(declared or {})})
        except EquationError as problem:
            shown = ", ".join(f"{name} in {unit}" for name, unit in known.items())
            raise DataError(f"the names of the columns say {shown}, but {problem}") from None

    return check


def _trusted(group: Balance) -> list[Term]:
    """Return the terms whose unit is that of their channels and parameters: no number beside them can have one."""
    return [term for term in group.terms if term.number == 1 and (group.pure or term.is_bound)]


def _insert(powers: Powers, known: Mapping[str, Powers]) -> Powers:
    """Return powers of quantities with known units put in; quantities without one keep their names, marked."""
    total: Powers = {}
    for name, power in powers.items():
        for base, inner in known.get(name, {f"?{name}": Fraction(1)}).items():
            total[base] = total.get(base, Fraction(0)) + power * inner
    return {base: power for base, power in total.items() if power}


def _agree(lines: Sequence[Powers]) -> bool:
    """Return whether some values of what is unknown, quoted words and marked names, make all lines pure numbers."""
    unknown = sorted({base for line in lines for base in line if base[0] in "?'"})
    bases = sorted({base for line in lines for base in line} - set(unknown))
    # A line of the echelon form without unknowns says that a product of base units is a number.
    return not any(row.keys().isdisjoint(unknown) for row in _reduced([*unknown, *bases], lines))


def _culprits(lines: list[Powers], texts: list[str]) -> str:
    """Return a smallest set of lines that do not agree, as text."""
    kept = list(range(len(lines)))
    for k in range(len(lines)):
        rest = [i for i in kept if i != k]
        if not _agree([lines[i] for i in rest]):
            kept = rest
    return "; ".join(texts[i] for i in kept)


def _shown(term: Term, units: Mapping[str, str]) -> str:
    """Return the unit of a term in the user's own words."""
    pieces = {units[name] if units[name].isalnum() else f"({units[name]})": p for name, p in term.powers.items()}
    if len(pieces) == len(term.powers):
        text = format_powers(pieces)
        return text[1:-1] if len(pieces) == 1 and text[0] == "(" and text[-1] == ")" else text
    return format_powers({f"[{name}]": power for name, power in term.powers.items()})
