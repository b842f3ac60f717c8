"""What a text says of a mean or a total over an interval."""

from __future__ import annotations

from fractions import Fraction

import pytest

import lodekit as lk
from lodekit.errors import EquationError
from lodekit.support.interval_means import (
    IntervalObservable,
    averaging_time,
    interval_from_column,
    observable_unit,
    parse_interval,
)

SYSTEM = lk.System("T' = -k*(T - 20)", parameters=["k"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mean(T, 300)", ("T", Fraction(300), False)),
        (" total ( D(Q, 2) - R' ,1.5e3)", ("D(Q, 2) - R'", Fraction(1500), True)),
        ("mean(T, .5)", ("T", Fraction(1, 2), False)),
        ("T", None),
        ("mean", None),
        ("mean(t)", None),
        ("mean*(T, 3)", None),
        ("meaning(T, 3)", None),
        ("mean(T, 3) - T", None),
    ],
)
def test_a_text_is_an_average_or_not(text: str, expected: IntervalObservable | None) -> None:
    assert parse_interval(text) == expected
    assert averaging_time(text) == (0.0 if expected is None else float(expected[1]))


@pytest.mark.parametrize("window", ["0", "-300", "inf", "nan", "k", "3*2", "1e400", "1e-200", ""])
def test_a_window_is_a_number_above_zero(window: str) -> None:
    with pytest.raises(EquationError, match="number above zero"):
        parse_interval(f"mean(T, {window})")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mean(T)", "such as mean\\(T, 300\\)"),
        ("mean(T, 3, 4)", "such as mean"),
        ("total(, 4)", "such as total"),
        ("mean(total(T, 3), 4)", "averages twice"),
        ("mean(Q, 3)", "unknown name 'Q'"),
        ("2*mean(T, 3)", "averages cannot appear"),
    ],
)
def test_other_texts_are_refused_in_words(text: str, words: str) -> None:
    gp = lk.LODEGP(SYSTEM)
    with pytest.raises(lk.LodekitError, match=words):
        gp.fit([0.0, 1.0, 2.0], {text: [1.0, 2.0, 3.0]})


def test_an_equation_has_no_average() -> None:
    with pytest.raises(EquationError, match="averages cannot appear"):
        lk.System("T' = mean(T, 3)")


def test_columns_of_others_are_not_ours() -> None:
    """A database calls its columns mean(T); channels of other plants are averaged, too."""
    found = [
        interval_from_column(column, ["T"]) for column in ("mean(T, 5) [K]", "mean(T)", "mean(Q, 5)", "mean (K)", "T")
    ]
    assert found == ["mean(T, 5)", "", "", "", ""]


def test_units_are_those_of_the_channel_and_of_time() -> None:
    units = {"Q": "kJ/s", "t": "h"}
    assert [observable_unit(units, name) for name in ("mean(Q, 1)", "total(Q, 1)")] == ["kJ/s", "(kJ/s)*h"]
    assert observable_unit({"Q": "kW"}, "total(Q, 1)") == ""
