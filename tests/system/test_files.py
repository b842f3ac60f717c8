"""System files are read as documented, and every mistake in them is named with the file."""

from pathlib import Path

import pytest

import lodekit as lk
from lodekit.errors import LodekitError, SystemFileError

GOOD = """
title = "A heated plate"
equations = ["tau*y' + y - y0 = K*u"]
channels = ["u", "y"]
[parameters]
tau = { positive = true, start = 10 }
K = { bounds = [0, 100] }
y0 = {}
[units]
y = "degC"
t = "s"
tau = "s"
"""


def test_a_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "plate.toml"
    path.write_text(GOOD)
    content = lk.read_system_file(path)
    assert content.system.channels == ("u", "y")
    assert content.system.parameters["tau"] == lk.Parameter(positive=True, start=10)
    assert content.system.parameters["K"].bounds == (0, 100)
    assert content.units == {"y": "degC", "t": "s", "tau": "s"}
    assert content.title == "A heated plate"


def test_equations_as_one_text_and_parameters_as_a_list(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('equations = """\nx\' = a*u\ny\' = x\n"""\nparameters = ["a"]\n')
    assert lk.read_system_file(str(path)).system.channels == ("x", "u", "y")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", "expected a key 'equations'"),
        ("equations = 3", "expected equations as text"),
        ("equations = [3]", "entry 1 is int"),
        ('equations = ["x = "]', "end of the line"),
        ('equations = ["x\'=u"]\nextra = 1', "unknown key extra"),
        ('equations = ["x\'=a*u"]\n[parameters]\na = 3', "expected a table for parameter 'a'"),
        ('equations = ["x\'=a*u"]\n[parameters]\na = { begin = 3 }', "unknown key for parameter 'a': begin"),
        ('equations = ["x\'=a*u"]\n[parameters]\na = { start = "x" }', "parameter 'a': expected a number"),
        ('equations = ["x\'=u"]\n[units]\nz = "m"', "neither a channel"),
        ('equations = ["x\'=u"]\n[units]\nx = 3', "table of texts"),
        ('equations = ["x\'=u"]\nunits = 3', "table of texts"),
        ('equations = ["x\'=u"]\nparameters = 3', "as a table"),
        ('equations = ["x\'=u"]\nchannels = 3', "channel"),
        ('equations = ["x\'=u"]\ntitle = 3', "title"),
        ("equations = [", "not a TOML file"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, content: str, match: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(content)
    with pytest.raises(LodekitError, match=match) as caught:
        lk.read_system_file(path)
    assert str(caught.value).count("bad.toml") == 1


def test_a_byte_order_mark_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    path.write_bytes(b'\xef\xbb\xbfequations = ["x\' = u"]\r\n')
    assert lk.read_system_file(path).system.channels == ("x", "u")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(SystemFileError, match="cannot read"):
        lk.read_system_file(tmp_path / "missing.toml")
    with pytest.raises(SystemFileError, match="cannot read"):
        lk.read_system_file(tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SystemFileError, match="not a TOML file"):
        lk.read_system_file(binary)
    for odd in (None, 5, b"x.toml", "a\0b"):
        with pytest.raises(SystemFileError):
            lk.read_system_file(odd)  # type: ignore[arg-type]
    deep = tmp_path / "deep.toml"
    deep.write_text("x = " + "[" * 5000)
    with pytest.raises(SystemFileError, match="not a TOML file"):
        lk.read_system_file(deep)
    huge = tmp_path / "huge.toml"
    huge.write_text("# " + "x" * 2_000_000)
    with pytest.raises(SystemFileError, match="at most"):
        lk.read_system_file(huge)
