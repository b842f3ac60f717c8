"""System files are read as documented, and every mistake in them is named with the file."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import lodekit as lk
from lodekit.errors import LodekitError, SystemFileError
from lodekit.system.files import format_system_file

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


def test_a_complete_file_says_all_of_a_system(tmp_path: Path) -> None:
    path = tmp_path / "plate.toml"
    path.write_text(GOOD)
    content = lk.read_system_file(path)
    assert content.system.channels == ("u", "y")
    assert content.system.parameters["tau"] == lk.Parameter(positive=True, start=10)
    assert content.system.parameters["K"].bounds == (0, 100)
    assert content.units == {"y": "degC", "t": "s", "tau": "s"}
    assert content.title == "A heated plate"


def test_what_a_file_does_not_say_has_defaults(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('equations = ["x\' = u"]\n[units]\nx = ""\nu = "V"\n')
    content = lk.read_system_file(path)
    assert (content.noise, content.latent, content.prior, content.columns) == ("channel", "se", "latent", {})
    assert content.units == {"u": "V"}


def test_a_file_may_say_what_a_fit_needs(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        """
equations = ["x' = a*u + b"]
latent = ["se", "matern-7/2"]
prior = "channels"
[parameters]
a = { positive = true, prior = { lognormal = [5, 0.7] } }
b = { prior = { normal = [-1, 2.5] } }
[noise]
x = 0.1
u = 0
"x'" = 2
[columns]
t = "time [s]"
u = 2
"x'" = "speed"
"std(x)" = "error"
"""
    )
    content = lk.read_system_file(path)
    assert content.system.parameters["a"].prior == lk.LogNormal(5, 0.7)
    assert content.system.parameters["b"].prior == lk.Normal(-1, 2.5)
    assert content.noise == {"x": 0.1, "u": 0.0, "x'": 2.0}
    assert content.latent == ("se", "matern-7/2")
    assert content.prior == "channels"
    assert content.columns == {"t": "time [s]", "u": "2", "x'": "speed", "std(x)": "error"}
    path.write_text('equations = ["x\' = u"]\nnoise = "channel"\nlatent = "matern-5/2"\n')
    content = lk.read_system_file(path)
    assert (content.noise, content.latent) == ("channel", "matern-5/2")


def test_equations_may_be_one_text_and_parameters_a_list(tmp_path: Path) -> None:
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
        ('equations = ["x\'=u"]\nextra = 1', "unknown key 'extra'; expected one of equations"),
        ('equations = ["x\'=a*u"]\n[parameters]\na = 3', "expected a table for parameter 'a'"),
        ('equations = ["x\'=a*u"]\n[parameters]\na = { begin = 3 }', "unknown key for parameter 'a': 'begin'"),
        ('equations = ["x\'=a*u"]\n[parameters]\na = { start = "x" }', "parameter 'a': expected a number"),
        ('equations = ["x\'=u"]\n[units]\nz = "m"', "neither a channel"),
        ('equations = ["x\'=u"]\n[units]\nx = 3', "table of texts"),
        ('equations = ["x\'=u"]\nunits = 3', "table of texts"),
        ('equations = ["x\'=u"]\nparameters = 3', "as a table"),
        ('equations = ["x\'=u"]\nchannels = 3', "channel"),
        ('equations = ["x\'=u"]\ntitle = 3', "title"),
        ('equations = ["x\'=u"]\nnoise = 3', "expected noise = 'channel'"),
        ('equations = ["x\'=u"]\nnoise = "none"', "expected noise = 'channel' or 'shared', got 'none'"),
        ('equations = ["x\'=u"]\n[noise]\nz = 1', "names z; expected a channel"),
        ('equations = ["x\'=u"]\n[noise]\nx = -1', "zero \\(exact\\) or more for x, got -1"),
        ('equations = ["x\'=u"]\n[noise]\nx = true', "got True"),
        ('equations = ["x\'=u"]\n[noise]\nx = nan', "got nan"),
        ('equations = ["x\'=u"]\n[noise]\nx = inf', "got inf"),
        ('equations = ["x\'=u"]\n[noise]\nx = "0.1"', "got '0.1'"),
        ('equations = ["x\'=u"]\n[noise]\nt = 1\n[columns]\nt = 1', "names t; expected a channel"),
        ('equations = ["x\'=delay(u, 1)"]\n[inputs]\n"delay(u, 1)" = "hold"', "expected one of: x, u$"),
        ('equations = ["x\'=u"]\nlatent = 3', "expected latent = 'se'"),
        ('equations = ["x\'=u"]\nlatent = []', "expected latent = 'se'"),
        ('equations = ["x\'=u"]\nlatent = ["se", 3]', "expected latent = 'se'"),
        ('equations = ["x\'=u"]\nprior = "free"', "expected prior = 'latent' or 'channels', got 'free'"),
        ('equations = ["x\'=u"]\nprior = ["latent"]', "expected prior = 'latent' or 'channels'"),
        ('equations = ["x\'=u"]\ncolumns = 3', "expected .columns. as a table"),
        ('equations = ["x\'=u"]\n[columns]\nx = 0', "expected a column for 'x'"),
        ('equations = ["x\'=u"]\n[columns]\nx = true', "expected a column for 'x'"),
        ('equations = ["x\'=u"]\n[columns]\nx = " "', "expected a column for 'x'"),
        ('equations = ["x\'=u"]\n[columns]\n"" = "a"', "expected a column for ''"),
        ('equations = ["x\'=a*u"]\n[parameters]\na = { prior = 3 }', "parameter 'a': expected prior = { normal"),
        ('equations = ["x\'=a*u"]\n[parameters]\na = { prior = {} }', "expected prior = { normal"),
        ('equations = ["x\'=a*u"]\n[parameters]\na = { prior = { normal = 3 } }', "expected prior = { normal"),
        ('equations = ["x\'=a*u"]\n[parameters]\na = { prior = { uniform = [0, 1] } }', "expected prior = { normal"),
        (
            'equations = ["x\'=a*u"]\n[parameters]\na = { prior = { normal = [0, 1], lognormal = [1, 1] } }',
            "expected prior = { normal",
        ),
        (
            'equations = ["x\'=a*u"]\n[parameters]\na = { prior = { normal = [0, -1] } }',
            "parameter 'a': expected a prior with a spread above zero",
        ),
        ('equations = ["x\'=a*u"]\n[parameters]\na = { prior = { lognormal = [-1, 1] } }', "positive median"),
        ('equations = ["x\'=a*u"]\n[parameters]\na = { prior = { normal = ["0", 1] } }', "expected a number for prior"),
        ("equations = [", "not a TOML file"),
    ],
)
def test_mistakes_are_named_with_the_file(tmp_path: Path, content: str, match: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(content)
    with pytest.raises(LodekitError, match=match) as caught:
        lk.read_system_file(path)
    assert str(caught.value).count("bad.toml") == 1


@pytest.mark.parametrize("equation", ["y' + y = delay(u, L)", "y' = L*y"])
def test_advice_is_written_as_files_are(tmp_path: Path, equation: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f'equations = "{equation}"')
    with pytest.raises(LodekitError, match=r"parameter[,:] L = \{\} in \[parameters\]") as told:
        lk.read_system_file(path)
    assert "parameters=[" not in str(told.value)


def test_a_byte_order_mark_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    path.write_bytes(b'\xef\xbb\xbfequations = ["x\' = u"]\r\n')
    assert lk.read_system_file(path).system.channels == ("x", "u")


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemFileError, match=r"cannot read.*this folder is"):
        lk.read_system_file(tmp_path / "missing.toml")
    (tmp_path / "plant.toml").write_text("equations = ['x = u']")
    with pytest.raises(SystemFileError, match=r"did you mean .*plant\.toml\?"):
        lk.read_system_file(tmp_path / "palnt.toml")
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


def test_a_new_file_can_be_read_and_says_what_may_be_added(tmp_path: Path) -> None:
    text = format_system_file(
        "f1' = -a*(f1-f2)+u  # two rooms; heated\nf2' = -\u03b2*(f2-f1)", ["a", "\u03b2"], title="Rooms"
    )
    path = tmp_path / "rooms.toml"
    path.write_text(text, encoding="utf-8")
    content = lk.read_system_file(path)
    assert content.system == lk.System("f1' = -a*(f1-f2)+u; f2' = -\u03b2*(f2-f1)", parameters=["a", "\u03b2"])
    assert content.title == "Rooms"
    assert (content.units, content.noise, content.columns) == ({}, "channel", {})
    for word in (
        "positive",
        "bounds",
        "start",
        "fixed",
        "normal",
        "lognormal",
        "# [noise]",
        "# [columns]",
        "delay(u, T)",
        "y''",
    ):
        assert word in text
    assert set(tomllib.loads(text)["units"]) == {"t", "f1", "f2", "u"}


def test_every_suggestion_in_a_new_file_works(tmp_path: Path) -> None:
    lines = format_system_file("x' = -a*x + u", ["a"]).splitlines()
    keys = ("# noise", "# latent", "# prior", "# [columns]", '# t = "time', "# x = 2")
    path = tmp_path / "all.toml"
    path.write_text("\n".join(line[2:] if line.startswith(keys) else line for line in lines))
    content = lk.read_system_file(path)
    assert (content.noise, content.latent, content.prior) == ("shared", "matern-7/2", "channels")
    assert content.columns == {"t": "time [s]", "x": "2"}
    noise = ("# [noise]", "# x = 0.1")
    path.write_text("\n".join(line[2:] if line.startswith(noise) else line for line in lines))
    assert lk.read_system_file(path).noise == {"x": 0.1}


def test_a_new_file_never_suggests_to_rename_a_channel_to_itself() -> None:
    text = format_system_file("tau*T' + T = K*u", ["tau", "K"])
    assert "T for T" not in text
    assert "replace T in this file" in text


def test_a_new_file_keeps_the_order_of_channels_and_needs_no_parameters(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(format_system_file("x' = u", channels=["u", "x"]))
    assert lk.read_system_file(path).system.channels == ("u", "x")
    with pytest.raises(LodekitError, match="end of the line"):
        format_system_file("x' = ")


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8")))
def test_any_title_survives(title: str) -> None:
    assert tomllib.loads(format_system_file("x' = u", title=title))["title"] == title
