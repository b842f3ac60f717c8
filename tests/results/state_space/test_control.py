"""Plants for python-control."""

from __future__ import annotations

import sys
from typing import Any

import control
import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.results.state_space import FittedStateSpace
from tests.results.state_space.test_space import make

Array = NDArray[np.float64]
OMEGA = np.array([0.05, 0.3, 2.0])


def make_at(equations: str, values: dict[str, float], inputs: dict[str, str]) -> FittedStateSpace:
    return make(equations, values, inputs)(np.array(list(values.values())))


TANKS = make_at("p*h' = u - h; q*y' = h - y + r*w", {"p": 2.0, "q": 5.0, "r": 0.3}, {"u": "hold", "w": "hold"})
LATE = make_at("q*y' = K*delay(u, T) - y", {"q": 5.0, "K": 3.0, "T": 1.7}, {"u": "hold"})


def check(module: Any) -> None:
    """Frequency responses are those of lodekit, with the names of the channels."""
    found = TANKS.to_control()
    assert isinstance(found, module.StateSpace)
    assert list(found.input_labels) == ["u", "w"]
    assert list(found.output_labels) == list(TANKS.outputs)
    for omega in OMEGA:
        for column, entry in enumerate(("u", "w")):
            expected = TANKS.frequency_response("y", entry, [omega])[0][0]
            assert complex(found(1j * omega)[TANKS.outputs.index("y"), column]) == pytest.approx(expected)
    one = TANKS.transfer_function("y", "u").to_control()
    assert isinstance(one, module.TransferFunction)
    assert (list(one.input_labels), list(one.output_labels)) == (["u"], ["y"])
    late = LATE.transfer_function("y", "u")
    for omega in OMEGA:
        assert complex(one(1j * omega)) == pytest.approx(TANKS.transfer_function("y", "u").at([omega])[0])
        assert complex(late.to_control(order=6)(1j * omega)) == pytest.approx(late.at([omega])[0], rel=1e-5)


def test_the_library_itself() -> None:
    check(control)
    space = TANKS.to_control()
    for own, theirs in zip((TANKS.A, TANKS.B, TANKS.C, TANKS.D), (space.A, space.B, space.C, space.D), strict=True):
        assert np.allclose(own, theirs)
    with pytest.raises(lk.LodekitError, match="a state space of python-control has no dead time"):
        LATE.to_control()
    with pytest.raises(lk.LodekitError, match="which a rational transfer function cannot represent; pass order=3"):
        LATE.transfer_function("y", "u").to_control()


def test_where_it_is_missing_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "control", None)
    for plant in (TANKS, TANKS.transfer_function("y", "u")):
        with pytest.raises(lk.LodekitError, match=r"pip install control, or use to_scipy\(\)"):
            plant.to_control()
