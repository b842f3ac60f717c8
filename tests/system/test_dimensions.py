"""Dimensions that equations give to parameters, and units that contradict them."""

from fractions import Fraction
from pathlib import Path

import pytest

import lodekit as lk
from lodekit.errors import DataError
from lodekit.support.units import format_powers, parse_unit
from lodekit.system.dimensions import check_column_units, check_units
from lodekit.system.files import read_system_file


def dimensions(equations: str, parameters: str = "") -> dict[str, str]:
    found = lk.System(equations, parameters=parameters).dimensions()
    return {name: found.format(name) for name in found}


@pytest.mark.parametrize(
    ("equations", "parameters", "expected"),
    [
        ("x'' + c*x' + k*x = 0", "c k", {"c": "1/t", "k": "1/t^2"}),
        ("q' = i; L*i' + R*i + q/C = V", "R L C", {"R": "V*t/q", "L": "V*t^2/q", "C": "q/V"}),
        ("x'' + 2*z*w*x' + w^2*x = 0", "z w", {"z": "1", "w": "1/t"}),
        ("T' = -a*(T - Ta)", "a Ta", {"a": "1/t", "Ta": "T"}),
        ("x' = -a*x + b*t^2 + A*sin(w*t)", "a b A w", {"a": "1/t", "b": "x/t^3", "A": "x/t", "w": "1/t"}),
        ("x' = x/(r*c)", "r c", {"r": "undetermined", "c": "t/r"}),
    ],
)
def test_dimensions_are_those_of_physics(equations: str, parameters: str, expected: dict[str, str]) -> None:
    found = lk.System(equations, parameters=parameters).dimensions()
    shown = {name: "undetermined" if name in found.undetermined else found.format(name) for name in found}
    assert shown == expected


def test_numbers_that_tie_scales_have_a_dimension_themselves() -> None:
    found = lk.System("x'' + c*x' + 4*x = 0", parameters=["c"]).dimensions()
    assert found["c"] == {"t": -1}
    assert found.numbers == {"4*x in equation 1": {"t": Fraction(-2)}}
    assert "4*x in equation 1   1/t^2" in str(found)
    one = lk.System("x' = -x").dimensions()
    assert list(one.numbers.values()) == [{"t": Fraction(-1)}]


def test_scaling_by_dimensions_leaves_the_equations_of_the_catalog_as_they_are() -> None:
    """The definition itself: with t, channels and parameters scaled, all terms of an equation get one factor."""
    for example in lk.catalog.examples():
        system = example.system
        found = system.dimensions()
        if found.numbers:
            continue
        bases = {name: Fraction(k + 2) for k, name in enumerate(["t", *system.channels, *system.parameters])}

        def factor(powers: dict[str, Fraction], bases: dict[str, Fraction] = bases) -> Fraction:
            total = Fraction(1)
            for name, power in powers.items():
                total *= bases[name] ** int(power)
            return total

        values = {name: factor(found[name]) for name in found}
        channels = {name: factor(found.channels[name]) for name in system.channels}
        for i in range(len(system.equations)):
            factors = set()
            for j, name in enumerate(system.channels):
                for order, scalar in enumerate(system.operator.coefficients(i, j)):
                    ring = scalar.ring
                    tops, bottoms = (
                        [
                            factor({n: Fraction(e) for n, e in zip(ring.parameters, exponents, strict=True)}, values)
                            for exponents in ring.terms(part)
                        ]
                        for part in (scalar.numerator, scalar.denominator)
                    )
                    factors |= {a / b * channels[name] / bases["t"] ** order for a in tops for b in bottoms}
            assert len(factors) == 1, (example.name, i)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("N", "kg*m/s^2"),
        ("V/A", "Ohm"),
        ("W/(m^2*K)", "kg s-3 K-1"),
        ("m²", "m^2"),
        ("kJ", "1000*J"),
        ("1/min", "1/(60*s)"),
        ("degC", "K"),
        ("rad/s", "Hz"),
        ("l", "dm^3"),
    ],
)
def test_units_that_mean_the_same_are_the_same(first: str, second: str) -> None:
    assert parse_unit(first) == parse_unit(second)


def test_units_that_differ_are_not_the_same_and_words_are_bases_of_their_own() -> None:
    texts = ["m", "mm", "s", "min", "m/s", "N", "J", "pigs", "1"]
    found = [parse_unit(text) for text in texts]
    assert all(found[i] != found[j] for i in range(len(texts)) for j in range(i))
    assert format_powers(parse_unit("pigs/s") or {}) == "'pigs'/s"
    assert [parse_unit(text) for text in ("", "m//s", "m^", "(m", "-", "(" * 5000)] == [None] * 6


@pytest.mark.parametrize(
    ("equations", "parameters", "units", "match"),
    [
        ("x' = v", "", {"t": "s", "x": "m", "v": "m"}, "x' is in m/s, but v is in m"),
        ("x' = v", "", {"t": "s", "x": "mm", "v": "m/s"}, "x' is in mm/s, but v is in m/s"),
        ("x' = -a*x + u", "a", {"t": "s", "x": "pigs", "u": "pigs/min"}, "x' is in pigs/s"),
        ("x'' + k*x = A*sin(w*t)", "k w A", {"t": "s", "w": "rpm"}, "inside a function of time"),
        ("x' = a*x; y' = b*x; b*z' = y", "a b", {"t": "s", "x": "m", "y": "V", "z": "m"}, "b\\*x and y' in equation 2"),
    ],
)
def test_units_that_cannot_be_right_are_named(
    equations: str, parameters: str, units: dict[str, str], match: str
) -> None:
    with pytest.raises(lk.errors.EquationError, match=match):
        check_units(lk.System(equations, parameters=parameters), units)


@pytest.mark.parametrize(
    ("equations", "parameters", "units"),
    [
        ("x' = v", "", {"x": "m", "v": "m/h"}),
        ("x' = 0.001*v", "", {"t": "s", "x": "m", "v": "mm/s"}),
        ("x'' + 4*x = 0", "", {"t": "s", "x": "m"}),
        ("x' = v", "", {"t": "s", "x": "whatever this is", "v": "m/s"}),
        ("x'' + k*x = sin(w*t)", "k w", {"t": "s", "w": "rad/s", "x": "m"}),
        (
            "T' = -(T - Ta)/tau + q/C",
            "tau Ta C",
            {"t": "s", "T": "degC", "Ta": "K", "q": "kW", "C": "kJ/K", "tau": "s"},
        ),
    ],
)
def test_units_that_may_be_right_are_accepted(equations: str, parameters: str, units: dict[str, str]) -> None:
    check_units(lk.System(equations, parameters=parameters), units)


def test_a_system_file_with_a_wrong_unit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cart.toml"
    text = 'equations = ["x\' = v"]\n[units]\nt = "s"\nx = "m"\nv = "{}"\n'
    path.write_text(text.format("m/s"))
    assert read_system_file(path).units["v"] == "m/s"
    path.write_text(text.format("m/s^2"))
    with pytest.raises(lk.errors.SystemFileError, match=r"\[units\].*x' is in m/s, but v is in m/s\^2"):
        read_system_file(path)


def test_units_of_columns_are_checked_together_with_declared_ones() -> None:
    system, declared = lk.System("x' = v"), {"t": "s", "x": "m"}
    check_column_units(system, declared, {"v": "m/s"})
    with pytest.raises(DataError, match="the column names give v in kg, but the units of equation 1 do not agree"):
        check_column_units(system, declared, {"v": "kg"})
