"""A name that looks like a slip of what was measured is told first; one that may be meant is not."""

from __future__ import annotations

import numpy as np
import pytest

import lodekit as lk
from lodekit.fitting.setup import find_unmeasured_names

_CIRCUIT = "L*i' = V - R*i - {}\nC*v' = i - v/100"


def _system(equations: str) -> lk.System:
    return lk.System(equations, parameters=[name for name in ("R", "L", "C", "tau", "K") if f"{name}*" in equations])


@pytest.mark.parametrize(
    ("equations", "known", "alike"),
    [
        (_CIRCUIT.format("vc"), ["v", "V"], "v"),
        ("tau*Temp_Tank1' + Temp_Tank_1 = K*u", ["Temp_Tank_1", "u"], "Temp_Tank_1"),
    ],
)
def test_a_slip_is_a_warning(equations: str, known: list[str], alike: str) -> None:
    """Whether it is differentiated or not; a note does not say it again."""
    system = _system(equations)
    (text,), notes = find_unmeasured_names(system, known)
    assert f"Did you mean {alike}?" in text
    assert not notes


@pytest.mark.parametrize(
    ("equations", "known"),
    [
        (_CIRCUIT.format("v"), ["v", "V"]),
        ("L*i' = V - R*i - vc\nC*vc' = i", ["v", "V"]),
        ("dth = th'", ["th"]),
        ("x1' = x2", ["x1"]),
        ("tau*T' + T = K*u", ["T"]),
    ],
)
def test_a_name_that_may_be_meant_is_no_slip(equations: str, known: list[str]) -> None:
    """What stands twice, is defined, or has another number than what was measured."""
    warnings, _ = find_unmeasured_names(_system(equations), known)
    assert not warnings


def test_a_slip_is_told_before_what_follows_from_it() -> None:
    """As what was not measured makes parameters undetermined, and measuring it would be no cure."""
    t = np.linspace(0.0, 3.0, 5)
    system = lk.System("level' = -a*levle", parameters=["a"])
    gp = lk.LODEGP(system, random_state=0, restarts=1).fit(t, {"level": np.exp(-t)}, noise_std=0.1)
    assert "Did you mean level?" in gp.warnings_[0]
    assert len(gp.warnings_) > 1
