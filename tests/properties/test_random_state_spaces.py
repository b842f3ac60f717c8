"""For every operator matrix and every choice of inputs: a state space that is right, or a reason that is true."""

from fractions import Fraction

import pytest
import sympy
from hypothesis import HealthCheck, given, settings, strategies as st
from sympy.polys.matrices import DomainMatrix

import lodekit as lk
from lodekit.errors import EquationError
from tests.properties.operator_strategies import RINGS, matrices, operators
from tests.system.transfer_witness import all_modes, at, responds, split_at

PROFILE = settings(
    deadline=None,
    derandomize=True,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
VALUES = {"a": Fraction(137, 11), "b": Fraction(-59, 7), "c": Fraction(83, 5)}
NAMES = ["f1", "f2", "f3", "f4", "f5"]
d = sympy.Symbol("d")
QUOTIENTS = sympy.QQ.frac_field(d)


def system_of(data: st.DataObject, *, square: bool = False) -> tuple[lk.System, dict[str, str]]:
    if square:
        ring = data.draw(st.sampled_from(RINGS[:2]))
        height, inputs = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
        operator = data.draw(matrices(height, height + inputs, ring))
    else:
        operator = data.draw(operators())
        inputs = data.draw(st.integers(0, operator.width - 1))
    names = NAMES[: operator.width]
    used = [str(symbol) for symbol in operator.sympy.free_symbols - {d}]
    system = lk.System.from_operator_matrix(operator.sympy, names, sorted(used), symbol=d)
    chosen = data.draw(st.permutations(names))[:inputs]
    return system, {name: data.draw(st.sampled_from(["hold", "linear"])) for name in chosen}


@PROFILE
@given(st.data())
def test_every_state_space_responds_as_the_equations_say(data: st.DataObject) -> None:
    system, inputs = system_of(data, square=data.draw(st.booleans()))
    try:
        plant = system.state_space(inputs)
    except EquationError as problem:
        text = str(problem)
        assert any(word in text for word in ("infinite where", "relate the inputs", "determine the input"))
        return
    assert responds(system, plant, VALUES, range(3))
    rest = system.given(inputs)
    P = at(system.operator_matrix, VALUES, Fraction(91, 17))[:, [system.channels.index(n) for n in plant.outputs]]
    assert rest.free_functions == P.cols - P.rank()
    if not rest.free_functions:
        assert rest.states == len(plant.states)
        if P.rows == P.cols:
            assert all_modes(system, plant, VALUES, range(len(plant.states) + 3))


@PROFILE
@given(st.data())
def test_refusals_of_square_systems_are_true(data: st.DataObject) -> None:
    """By SymPy: a column of P^-1 Q grows faster than its input allows exactly where the state space is refused."""
    system, inputs = system_of(data, square=True)
    A = at(system.operator_matrix, VALUES)
    outputs = [name for name in system.channels if name not in inputs]
    # Over the field of rational functions at once: expressions would be simplified again and again.
    P, Q = (
        DomainMatrix.from_Matrix(A[:, [system.channels.index(name) for name in names]]).convert_to(QUOTIENTS)
        for names in (outputs, inputs)
    )
    if P.rank() < len(outputs):
        return
    transfer = P.inv() * Q
    degrees = [
        max((n.numer.degree() - n.denom.degree() if n else -1) for n in transfer[:, j].to_list_flat())
        for j in range(len(inputs))
    ]
    proper = all(
        degree <= {"hold": 0, "linear": 1}[kind] for degree, kind in zip(degrees, inputs.values(), strict=True)
    )
    if proper:
        assert system.state_space(inputs).inputs == tuple(inputs)
    else:
        with pytest.raises(EquationError, match="infinite where"):
            system.state_space(inputs)


def test_the_witness_can_fail() -> None:
    system, other = (lk.System(f"x'' + {c}*x' + 2*x = u'' + u") for c in (3, 4))
    plant = other.state_space(["u"])
    assert not responds(system, plant, {}, range(3))
    assert not all_modes(system, plant, {}, range(4))
    P, Q = split_at(system, plant, {}, Fraction(2))
    assert (P[0, 0], Q[0, 0]) == (12, 5)
