"""The intensity of white noise in units that people know, and how likely it is that there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lodekit as lk
from lodekit.report import make_report
from lodekit.system.dimensions import white_noise_unit


@pytest.fixture(scope="module")
def gp() -> lk.LODEGP:
    """A lag of 1 / 0.3 with pushes of 0.4, and another behind it."""
    generator, x, y, rows = np.random.default_rng(1), 0.0, 0.0, []
    for _ in range(50):
        rows.append([x, y])
        for push in generator.standard_normal(20).tolist():
            x, y = x - 0.3 * 0.025 * x + 0.4 * np.sqrt(0.025) * push, y + 0.025 * (x - 0.5 * y)
    table = np.array(rows) + 0.1 * generator.standard_normal((50, 2))
    system = lk.System("x' = -a*x + w; y' = -b*y + x", parameters=["a", "b"])
    model = lk.LODEGP(system, disturbances={"w": "white"}, restarts=1, random_state=0)
    return model.fit(0.5 * np.arange(50), {"x": table[:, 0], "y": table[:, 1]})


def test_summaries_tell_the_unit(gp: lk.LODEGP) -> None:
    learned = gp.disturbances_["w"].deviation
    said = "w: white noise of intensity {0:.4g} in units of x/sqrt(t) (std of its integral over one unit of time); "
    assert said.format(learned) in gp.summary()
    assert f"{'amplitude of w (std)':<34}{learned:>12.3g}" in gp.summary().splitlines()
    assert "amplitude of w (std)" in gp.hyperparameters_


def test_units_of_intensities_follow_from_those_that_are_known(gp: lk.LODEGP) -> None:
    labelled = replace(gp.fit_, labels=replace(gp.fit_.labels, units={"t": "h", "y": "degC*h", "x": "degC"}))
    (note,) = (note for note in labelled.input_notes if note.startswith("w:"))
    deviation = f"{gp.disturbances_['w'].deviation:.4g}"
    assert note.startswith(f"w: white noise of intensity {deviation} degC/sqrt(h) (std of its integral over 1 h)")
    page = make_report(gp, units={"t": "h", "y": "degC*h", "x": "degC"})
    assert "<td>amplitude of w (std)</td>" in page
    assert '<td class="text">degC/sqrt(h)</td>' in page
    assert '<td class="text">unit of x per root of time</td>' in make_report(gp)


def test_chances_next_to_nothing_are_told_by_a_bound(gp: lk.LODEGP) -> None:
    sure = replace(gp.disturbances_["w"], p_value=0.0)
    assert sure.sentence({}, gp.system).endswith("needed (p < 1e-12)")
    unsure = replace(sure, p_value=0.0321, needed=False)
    assert unsure.sentence({}, gp.system).endswith("not needed (p = 0.032)")


@pytest.mark.parametrize(
    ("equations", "units", "short", "words"),
    [
        ("tau*y' + y = w", {}, "y*sqrt(t)", "the unit of y times the root of time"),
        ("w = tau*y' + y", {"y": "K"}, "K*sqrt(t)", "K times the root of time"),
        ("y'' = w", {"t": "s"}, "y/s^1.5", "the unit of y per s to the power of 1.5"),
        ("tau*y' + y = w", {"w": "m/s", "t": "s"}, "(m/s)*sqrt(s)", "(m/s)*sqrt(s)"),
        ("y' = tau*w", {"y": "K", "t": "s"}, "w*sqrt(s)", "the unit of w times the root of s"),
        ("y' = w; z' = w", {"z": "K", "t": "s"}, "K/sqrt(s)", "K/sqrt(s)"),
    ],
)
def test_units_are_those_of_channels_that_the_equations_tie(
    equations: str, units: dict[str, str], short: str, words: str
) -> None:
    system = lk.System(equations, parameters=["tau"] if "tau" in equations else [])
    assert white_noise_unit(system, "w", units) == (short, words)


def test_what_was_measured_is_spoken_of() -> None:
    system = lk.System("tau*x' = -x; y = x + v; v' = w", parameters=["tau"])
    assert white_noise_unit(system, "w", {}, ["y"])[1].startswith("the unit of y")
    assert white_noise_unit(None, "w", {})[1] == "the unit of w times the root of time"
