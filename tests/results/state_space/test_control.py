"""Plants for python-control: against a stand-in with the same two constructors, and the library itself where it is."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

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


class StandIn(ModuleType):
    """What python-control has: constructors, and responses of what they make to waves, by plain linear algebra."""

    class StateSpace:
        def __init__(self, *matrices: Array, inputs: list[str], outputs: list[str]) -> None:
            self.A, self.B, self.C, self.D = matrices
            self.input_labels, self.output_labels = inputs, outputs

        def __call__(self, s: complex) -> Array:
            states = np.linalg.solve(s * np.eye(len(self.A)) - self.A, self.B)
            return np.asarray(self.C @ states + self.D)

    class TransferFunction:
        def __init__(self, numerator: Array, denominator: Array) -> None:
            self.parts = numerator, denominator

        def __call__(self, s: complex) -> complex:
            return complex(np.polyval(self.parts[0], s) / np.polyval(self.parts[1], s))


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
    late = LATE.transfer_function("y", "u")
    for omega in OMEGA:
        assert complex(one(1j * omega)) == pytest.approx(TANKS.transfer_function("y", "u").at([omega])[0])
        assert complex(late.to_control(order=6)(1j * omega)) == pytest.approx(late.at([omega])[0], rel=1e-5)


def test_a_stand_in_gets_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = StandIn("control")
    monkeypatch.setitem(sys.modules, "control", module)
    check(module)
    with pytest.raises(lk.LodekitError, match="a state space of python-control has no dead time"):
        LATE.to_control()
    with pytest.raises(lk.LodekitError, match="expected order="):
        LATE.transfer_function("y", "u").to_control()


def test_the_library_itself() -> None:
    check(pytest.importorskip("control"))


def test_where_it_is_missing_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "control", None)
    for plant in (TANKS, TANKS.transfer_function("y", "u")):
        with pytest.raises(lk.LodekitError, match=r"pip install control, or use to_scipy\(\)"):
            plant.to_control()
