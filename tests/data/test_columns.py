"""Columns are found by name, or by what the user says; what is in doubt is refused."""

from __future__ import annotations

import numpy as np
import pytest

from lodekit.data.observations import parse_observations
from lodekit.data.sources import load_data
from lodekit.data.tables import parse_mapping
from lodekit.data.tables.columns import resolve_columns_of_tables, reuse_columns
from lodekit.errors import DataError
from tests.data.table_files import Reader, nan, same


def test_columns_are_found_by_name_case_and_unit(read: Reader) -> None:
    table = read("TIME (s); T1 [degC] ;t2;Q;remark\n0;1;2;3;a\n", "T1", "T2", "TH")
    same(table, [0], T1=[1], T2=[2])
    assert table.notes == (
        "separator ';', decimal point",
        "T1 is in column T1 [degC]",
        "T2 is in column t2",
        "no column for TH: not measured (columns not used: Q, remark)",
    )
    # An exact name wins over similar ones; a capital T is no time.
    same(read("t,T,t [K],T [K]\n0,1,2,3\n", "T", mapping={"t": "t"}), [0], T=[1])
    same(read("time,T\n0,1\n", "T"), [0], T=[1])
    same(read("t [s],T (K)\n0,1\n", "T"), [0], T=[1])


def test_a_mapping_names_columns_derivatives_and_noise(read: Reader) -> None:
    content = "clock,a,b,c,sigma\n0,1,2,3,0.1\n1,2,3,4,\n"
    mapping = {"t": "clock", "x": "b", "x'": "3", "y": "A", "std(x)": "sigma"}
    with pytest.raises(DataError, match="column b is mapped to x and to x'"):
        read(content, mapping=mapping)
    table = read(content, mapping=mapping | {"x'": "4"})
    derivative: dict[str, list[float]] = {"x'": [3, 4]}
    same(table, [0, 1], x=[2, 3], y=[1, 2], **derivative)
    np.testing.assert_array_equal(table.noise["x"], [0.1, nan])
    assert not any("not used" in note for note in table.notes)
    assert len(parse_observations(("x", "y"), table.times, table.values, table.noise)) == 6
    with pytest.raises(DataError, match="line 2, column c: expected a standard deviation of zero or more, got -3"):
        read(content.replace("3,0.1", "-3,0.1"), mapping={"t": "1", "x": "a", "std(x)": "c"})
    with pytest.raises(DataError, match="y itself has no column"):
        read(content, mapping={"t": "1", "x": "a", "std(y)": "c"})


@pytest.mark.parametrize(
    ("header", "mapping", "time", "match"),
    [
        ("a,x,y", {}, None, "got the columns a, x, y; .* interval, dt=STEP; otherwise columns=.'t': 'COLUMN'."),
        ("t,time,x", {}, None, "the time may be in any of the columns t, time; try columns=.'t': 't'."),
        ("t,a,b", {}, None, "at least one of x, y, got the columns t, a, b; try columns=.'CHANNEL': 'COLUMN'."),
        ("t,x [m],x [km]", {}, None, "channel x may be in any of the columns x .m., x .km.; try columns=.'x': 'x .m.'"),
        ("t,X,X [m]", {}, None, "channel x may be in any of the columns X, X .m."),
        ("t,x,x", {}, None, "expected different names of columns, got x more than once"),
        ("t,x,y", {"x": "z"}, None, "expected a column z .for x., got the columns t, x, y"),
        ("t,x,y", {"x": "4"}, None, "expected a column 1 to 3 for x, got 4"),
        ("t,x,y", {"x": "0"}, None, "expected a column 1 to 3 for x, got 0"),
        ("t,a [m],a (m)", {"x": "a"}, None, "a .for x. may be any of the columns a .m., a .m.; write its full name"),
        ("t,x,y", {"x": "y", "y": "y"}, None, "column y is mapped to x and to y"),
        ("t,x,y", {"t": "x"}, "t", "the time is assigned to column t and to column x"),
        ("t,x,y", {}, "w", "expected a column w .for t."),
        ("t,x,y", {"": "x"}, None, "expected a channel and its column"),
        ("t,x,y", {"x": ""}, None, "expected a channel and its column"),
    ],
)
def test_doubtful_columns_are_refused(
    read: Reader, header: str, mapping: dict[str, str], time: str | None, match: str
) -> None:
    with pytest.raises(DataError, match=match) as caught:
        read(f"{header}\n0,1,2\n", mapping=mapping, time=time)
    assert str(caught.value).count("data.csv") == 1


def test_a_reversed_mapping_is_recognised() -> None:
    for in_shell, remedy in ((False, "columns={'y': 'speed'}"), (True, "--map y=speed")):
        with pytest.raises(DataError, match="got channel y for column speed") as found:
            load_data({"t": [0, 1], "speed": [1, 2]}, channels=["y"], columns={"speed": "y"}, in_shell=in_shell)
        assert str(found.value).endswith(f"try {remedy}")


def test_a_column_for_two_channels_is_refused(read: Reader) -> None:
    with pytest.raises(DataError, match="column TH may be any of the channels Th, tH"):
        read("t,TH\n0,1\n", "Th", "tH")
    same(read("t,T1 [K]\n0,1\n", "t1", "T1"), [0], T1=[1])


def test_options_of_the_command_line_name_a_channel_and_its_column() -> None:
    assert parse_mapping(["T1=temperature 1", " t = 1 ", "f1'=a=b"]) == {"T1": "temperature 1", "t": "1", "f1'": "a=b"}
    assert parse_mapping([]) == {}
    for wrong in ("T1", "T1=", "=a", "", "="):
        with pytest.raises(DataError, match="expected --map CHANNEL=COLUMN"):
            parse_mapping([wrong])
    with pytest.raises(DataError, match="names x twice, for a and b"):
        parse_mapping(["x=a", "x=b"])


def test_several_tables_may_measure_different_channels() -> None:
    tables = {"a": ["t", "x", "sx"], "b": ["t", "temp"]}
    one, two = resolve_columns_of_tables(tables, ["x", "y"], {"y": "temp", "std(x)": "sx"})
    assert (one.values, one.noise) == ({"x": "x"}, {"x": "sx"})
    assert (two.values, two.noise) == ({"y": "temp"}, {})
    with pytest.raises(
        DataError, match=r"expected a column tmp \(for y\) in some table, got the columns t, x, sx, temp"
    ):
        resolve_columns_of_tables(tables, ["x", "y"], {"y": "tmp", "x": "x"})
    with pytest.raises(DataError, match="b: expected a column for at least one of x, got the columns t, temp"):
        resolve_columns_of_tables(tables, ["x"])
    with pytest.raises(DataError, match=r"b: expected a column clock \(for t\)"):
        resolve_columns_of_tables({"a": ["clock", "x"], "b": ["t", "x"]}, ["x"], {"t": "clock"})


def test_where_columns_are_called_by_numbers_each_table_is_asked_for_its_own() -> None:
    """The second column of a table that has none called 2 is something else."""
    names = {"a": ["0", "1", "2"], "b": ["0", "1"]}
    one, two = resolve_columns_of_tables(names, ["x", "y"], {"t": "0", "x": "1", "y": "2"}, allow_numbers=False)
    assert (one.values, two.values) == ({"x": "1", "y": "2"}, {"x": "1"})


def test_columns_are_found_again_without_their_units() -> None:
    assert reuse_columns({"y": "Messung", "u": "2"}, ["t", "Messung [V]", "Ventil [V]"]) == {"y": "Messung"}
