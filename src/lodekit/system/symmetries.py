"""Changes of scales and of signs that leave the equations, and all that was measured, as they are; found exactly.

Under ``c -> s_c c`` for channels that are not measured and ``p -> s_p p`` for parameters, all terms of an equation must
scale alike: a linear system over the rationals for the logarithms of the scales. The same system modulo two tells which
signs can change together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction

from flint import fmpq, fmpq_mat, nmod_mat

from lodekit.algebra.scalars import Scalar, ScalarRing
from lodekit.quantities import format_powers
from lodekit.system.delays import Delayed, channel_of
from lodekit.system.identification import Measured
from lodekit.system.signals import Signal

__all__ = ["determined_combinations", "scale_symmetries", "sign_symmetries"]

#: The exponents of one term: of symbols by name, of a channel, and of the scale of its whole equation.
Exponents = dict[str, int]


def _terms(ring: ScalarRing, values: Sequence[tuple[Scalar, Exponents]]) -> Iterator[Exponents]:
    """Yield the exponents of all monomials of coefficients, cleared of fractions, each beside its own others."""
    bottom = ring.common_multiple(value.denominator for value, _ in values if value)
    for value, beside in values:
        if not value:
            continue
        whole = Scalar(ring, value.numerator * ring.divide(bottom, value.denominator)).numerator
        for exponents in ring.terms(whole):
            found = dict(beside)
            for name, power in zip(ring.parameters, exponents[len(ring.constants) :], strict=True):
                if power:
                    found[name] = found.get(name, 0) + power
            yield found


def _lines(measured: Measured) -> tuple[list[Exponents], list[Exponents]]:
    """Return the terms of all equations and observables, and those of rates, frequencies and delays.

    All must keep their scale: the former beside that of their equation, the latter for themselves.
    """
    system, ring = measured.system, measured.system.operator.ring
    lines: list[Exponents] = []
    inside: list[Exponents] = []
    rows = [(system.operator, system.forcing, True), (measured.observables, measured.known, False)]
    for operator, signals, free in rows:
        for i, signal in enumerate(signals):
            if not free and measured.plain[i] is not None:
                continue
            values = [
                (value, {channel_of(name): 1})
                for j, name in enumerate(system.channels)
                for value in operator.coefficients(i, j)
            ]
            own, more = _signal_terms(ring, signal)
            inside += more
            # The scale of a whole equation does not matter; that of a measured observable is one.
            scale = {f"equation {i}": -1} if free else {}
            lines += [{**term, **scale} for term in _terms(ring, [*values, *own])]
    # Like a rate, a delay may not change at all.
    inside += _terms(ring, [(name.time, {}) for name in system.channels if isinstance(name, Delayed)])
    return lines, inside


def _signal_terms(ring: ScalarRing, signal: Signal) -> tuple[list[tuple[Scalar, Exponents]], list[Exponents]]:
    """Return the coefficients of a known function of time, and what may not change inside of it.

    A rate may not change at all; nor may a frequency, except for its sign: the sine changes with it, as if it had a
    factor more.
    """
    values: list[tuple[Scalar, Exponents]] = []
    inside: list[Exponents] = []
    for wave, value in signal.terms.items():
        mark: Exponents = {}
        inside += _terms(ring, [(wave.rate, {})])
        if wave.frequency:
            own = f"frequency {wave.frequency}"
            inside += [{**term, own: -1} for term in _terms(ring, [(wave.frequency, {})])]
            mark = {own: 1} if wave.sine else {}
        values.append((value, mark))
    return values, inside


def scale_symmetries(measured: Measured) -> list[dict[str, Fraction]]:
    """Return by which powers of one number unknown parameters can be multiplied without any change of what is measured.

    Parameters
    ----------
    measured : Measured

    Examples
    --------
    >>> import lodekit as lk
    >>> from lodekit.prior.observables import ObservableReader
    >>> system = lk.System("m*x'' + c*x' + k*x = F; F' = -a*F", parameters=["m", "c", "k", "a"])
    >>> operator, known = ObservableReader(system).read(["x"])
    >>> [way] = scale_symmetries(Measured(system, operator, known, ("m", "c", "k", "a")))
    >>> {name: str(power) for name, power in sorted(way.items())}
    {'c': '1', 'k': '1', 'm': '1'}
    """
    lines, inside = _lines(measured)
    # Frequencies and rates keep their size: the marks of frequencies count as pure numbers here.
    lines = [{n: p for n, p in line.items() if not n.startswith("frequency ")} for line in (*lines, *inside)]
    equations = sorted({name for line in lines for name in line if name.startswith("equation ")})
    names = [*equations, *measured.hidden, *measured.unknown]
    return [
        {name: power for name, power in way.items() if name in measured.unknown}
        for way in _null_space(names, lines)
        if any(name in measured.unknown for name in way)
    ]


def _null_space(names: Sequence[str], lines: Sequence[Mapping[str, int]]) -> list[dict[str, Fraction]]:
    """Return a basis of the exponents that all lines annihilate; names that are not listed have none."""
    if not names:
        return []
    rows = [[fmpq(line.get(name, 0)) for name in names] for line in lines] or [[fmpq(0)] * len(names)]
    echelon, rank = fmpq_mat(rows).rref()
    table = [[Fraction(int(v.p), int(v.q)) for v in row] for row in echelon.tolist()[: int(rank)]]
    pivots = [next(k for k, value in enumerate(row) if value) for row in table]
    found = []
    for free in sorted(set(range(len(names))) - set(pivots)):
        way = {names[free]: Fraction(1)}
        way |= {names[k]: -row[free] for k, row in zip(pivots, table, strict=True) if row[free]}
        found.append(way)
    return found


def sign_symmetries(measured: Measured, flippable: Collection[str]) -> list[frozenset[str]]:
    """Return sets of parameters whose signs can change together without any change of what is measured.

    They generate all such changes. Channels that are not measured may change their signs, too.

    Parameters
    ----------
    measured : Measured
    flippable : collection of str
        Parameters that may be negative as well as positive.

    Examples
    --------
    >>> import lodekit as lk
    >>> from lodekit.prior.observables import ObservableReader
    >>> system = lk.System("x'' + 2*z*w*x' + w^2*x = 0", parameters=["z", "w"])
    >>> operator, known = ObservableReader(system).read(["x"])
    >>> [sorted(names) for names in sign_symmetries(Measured(system, operator, known, ("z", "w")), ["z", "w"])]
    [['w', 'z']]
    """
    lines, inside = _lines(measured)
    lines = [*lines, *inside]
    marks = sorted({name for line in lines for name in line if name.startswith(("equation ", "frequency "))})
    own = [name for name in measured.unknown if name in flippable]
    names = [*marks, *measured.hidden, *own]
    if not own:
        return []
    entries = [line.get(name, 0) % 2 for line in lines for name in names]
    space, nullity = nmod_mat(max(len(lines), 1), len(names), entries or [0] * len(names), 2).nullspace()
    offset = len(names) - len(own)
    rows = [[int(space[offset + k, n]) for k in range(len(own))] for n in range(int(nullity))]
    if not rows:
        return []
    echelon, rank = nmod_mat(len(rows), len(own), [value for row in rows for value in row], 2).rref()
    return [
        frozenset(name for name, value in zip(own, row, strict=True) if int(value))
        for row in echelon.tolist()[: int(rank)]
    ]


def determined_combinations(
    measured: Measured, directions: Sequence[Mapping[str, Fraction | None]]
) -> list[str] | None:
    """Return what is determined of parameters that are not, as texts such as ``k/m``; None where that is not simple.

    Parameters
    ----------
    measured : Measured
    directions : sequence of dict
        From `undetermined_directions`.

    Examples
    --------
    >>> import lodekit as lk
    >>> from lodekit.prior.observables import ObservableReader
    >>> from lodekit.system.identification import undetermined_directions
    >>> system = lk.System("m*x'' + c*x' + k*x = 0", parameters=["m", "c", "k"])
    >>> operator, known = ObservableReader(system).read(["x"])
    >>> measured = Measured(system, operator, known, ("m", "c", "k"))
    >>> determined_combinations(measured, undetermined_directions(measured))
    ['c/m', 'k/m']
    """
    alone = {name for way in directions if len(way) == 1 for name in way}
    rest = [way for way in directions if len(way) > 1]
    names = [name for name in measured.unknown if any(name in way for way in rest)]
    if not rest:
        return []
    if all(value is not None for way in rest for value in way.values()):
        return [_sum(way, names) for way in _null_space(names, _whole(rest))]
    scalings = [{n: p for n, p in way.items() if n not in alone} for way in scale_symmetries(measured)]
    scalings = _independent(names, [way for way in scalings if way])
    if len(scalings) != len(rest):
        return None
    return [format_powers(_integers(way, names)) for way in _null_space(names, _whole(scalings))]


def _whole(ways: Sequence[Mapping[str, Fraction | None]]) -> list[dict[str, int]]:
    """Return directions with whole numbers."""
    found = []
    for way in ways:
        bottom = 1
        for value in way.values():
            bottom *= (value or Fraction(0)).denominator
        found.append({name: int((value or Fraction(0)) * bottom) for name, value in way.items()})
    return found


def _independent(names: Sequence[str], ways: Sequence[Mapping[str, Fraction]]) -> list[dict[str, Fraction]]:
    """Return as many of the directions as are independent."""
    kept: list[dict[str, Fraction]] = []
    for way in ways:
        rows = [
            [fmpq(int(v.numerator), int(v.denominator)) for v in (w.get(n, Fraction(0)) for n in names)]
            for w in [*kept, way]
        ]
        if int(fmpq_mat(rows).rank()) == len(rows):
            kept.append(dict(way))
    return kept


def _integers(way: Mapping[str, Fraction], names: Sequence[str]) -> dict[str, Fraction]:
    """Return exponents as whole numbers, in the order of the names; what stands first in the numerator leads."""
    [whole] = _whole([way])
    return {name: Fraction(whole[name]) for name in sorted(whole, key=lambda n: (whole[n] < 0, names.index(n)))}


def _sum(way: Mapping[str, Fraction], names: Sequence[str]) -> str:
    """Return a sum of parameters as text, in the order of the names."""
    [whole] = _whole([way])
    text = ""
    for name, value in sorted(whole.items(), key=lambda item: names.index(item[0])):
        size = name if abs(value) == 1 else f"{abs(value)}*{name}"
        text += (" - " if value < 0 else " + ") + size if text else ("-" if value < 0 else "") + size
    return text
