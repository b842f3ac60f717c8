"""A chosen basis of the free functions: proved, carried everywhere, and refused with a reason where it is none."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings, strategies as st

import lodekit as lk
from lodekit.algebra.operators import OperatorMatrix
from lodekit.diagnostics.messages import near_degenerate_warnings
from lodekit.errors import VerificationError
from lodekit.report.document import generate_python
from lodekit.system.files import read_system_file
from lodekit.workflow.pipeline import with_parameter_values
from tests.properties.operator_strategies import RINGS, unimodular
from tests.properties.test_random_systems import PROFILE

d = sympy.Symbol("d")
TANKS = lk.catalog.three_tank().system
#: V of the paper's three tanks: two units, the mode, the two free functions.
PAPER_V = sympy.Matrix([[0, 0, 0, -1, 0], [0, 0, 0, 0, -1], [0, 0, 1, 1, -1], [1, 0, 0, -d, 0], [0, 1, 0, d, -d]])
HEATING = lk.catalog.heating().system


def same_solutions(first: lk.System, second: lk.System) -> bool:
    """Whether each parametrization writes what the other one reaches: free columns, and modes modulo them."""

    def reaches(one: lk.System, other: lk.System) -> bool:
        p, q = one.parametrization, other.parametrization
        total = p.free @ p.free_observables
        for mode in p.modes:
            total = total + mode.column @ mode.observable
        return total @ q.free == q.free

    return reaches(first, second) and reaches(second, first)


def test_the_papers_free_functions_of_three_tanks() -> None:
    system = TANKS.with_basis(["f1", "f2"])
    assert system.parametrization.free_columns == -PAPER_V[:, 3:]
    assert system.parametrization.mode_columns == PAPER_V[:, 2:3]
    assert system.verify()[-2:] == (
        "the free columns are a chosen basis",
        "the free functions are the chosen expressions",
    )
    assert same_solutions(system, TANKS)
    assert system.parametrization.free_columns != TANKS.parametrization.free_columns


@pytest.mark.parametrize(
    "basis", [PAPER_V, PAPER_V[:, 3:], PAPER_V.tolist(), [[str(e) for e in row] for row in PAPER_V.tolist()]]
)
def test_the_papers_matrix_is_taken_as_it_is(basis: Any) -> None:
    system = TANKS.with_basis(basis)
    assert system.parametrization.free_columns == PAPER_V[:, 3:]
    assert system.parametrization.mode_columns == PAPER_V[:, 2:3]
    assert system.verify()[-1] == "the free columns are the chosen ones"
    assert same_solutions(system, TANKS)


def test_the_papers_heating() -> None:
    a, b = sympy.symbols("a b")
    V = sympy.Matrix([[1, 0, d + b], [0, 0, b], [0, -1 / b, d**2 + (a + b) * d]])
    for basis in (["f2/b"], V, V[:, 2:]):
        system = HEATING.with_basis(basis)
        assert (system.parametrization.free_columns - V[:, 2:]).applyfunc(sympy.expand).is_zero_matrix
        assert system.verify()


def test_modes_have_no_share_in_what_was_chosen() -> None:
    """Whatever is chosen: reading it off a mode gives zero, and off a free column the unit vector."""
    for basis in (["f2", "f3"], ["f1 + 2*u2", "f3"], ["f3", "f1 - 5*f3'"]):
        system = TANKS.with_basis(basis)
        assert system.verify()
        rows, found = system.choice, system.parametrization
        assert rows is not None
        assert rows.matrix @ found.free == OperatorMatrix.identity(found.free.ring, 2)
        assert not (rows.matrix @ found.modes[0].column).is_nonzero()


def test_a_mode_that_oscillates_goes_along() -> None:
    system = lk.System("x'' + 4*x = 0; y' = x + u", basis=["y + 3*x'"])
    assert system.verify()
    mode = system.parametrization.modes[0]
    applied = sympy.rem((sympy.Matrix([[3 * d, 1, 0]]) * mode.column.sympy)[0], d**2 + 4, d)
    assert applied == 0


@settings(PROFILE, max_examples=30)
@given(st.data())
def test_any_unimodular_change_is_a_basis_and_any_other_is_none(data: st.DataObject) -> None:
    ring = data.draw(st.sampled_from(RINGS[:2]))
    parameters = list(ring.parameters)
    text = "x' = y + u; y' = -x + v; w'' + w = 0" if not parameters else "x' = a*y + u; y' = -x + v; w'' + a*w = 0"
    plain = lk.System(text, parameters=parameters)
    weights = data.draw(unimodular(2, ring))
    columns = plain.parametrization.free @ weights
    system = plain.with_basis(columns.sympy)
    assert system.parametrization.free == columns
    assert len(system.verify()) == 8
    assert same_solutions(system, plain)
    rows = weights @ plain.parametrization.free_observables
    text_rows = [
        " + ".join(
            f"({entry})*D({name}, {k})" for j, name in enumerate(plain.channels) for k, entry in terms(rows, i, j)
        )
        for i in range(2)
    ]
    chosen = plain.with_basis(text_rows)
    assert len(chosen.verify()) == 8
    assert same_solutions(chosen, plain)
    # One more derivative in one column is one solution too few.
    stretch = sympy.diag(1, d + 1)
    with pytest.raises(lk.LodekitError, match="do not reach all solutions"):
        plain.with_basis(columns.sympy * stretch)


def terms(matrix: OperatorMatrix, i: int, j: int) -> list[tuple[int, str]]:
    return [(k, str(value)) for k, value in enumerate(matrix.coefficients(i, j)) if value] or [(0, "0")]


@pytest.mark.parametrize(
    ("basis", "message"),
    [
        (["f1"], r'expected 2 expressions .* got 1: f1\. Possible choices .* \["f1", "f2"\] or \["f1", "f3"\]'),
        (["u1", "u2"], "only up to 2 constants of integration: solutions of z' = 0"),
        (["f1", "u2'' + 4*u2"], "only up to 3 constants of integration: solutions of z''' \\+ 4\\*z' = 0"),
        (["f1", "f1'"], "depend on each other"),
        (["f1", "f1 - f2 + f3"], "depend on each other"),
        (["f1", "level"], "unknown name 'level'"),
        (["f1", "f2 + sin(t)"], "known function of time"),
        (["f1", "f1*f2"], "not linear"),
        (["f1", "f2 = 0"], "expected"),
        ([], "at least one expression"),
        ({"f1": "f2"}, "list of expressions or a matrix"),
        (7, "as a matrix"),
        (PAPER_V[:, 2:], "expected a basis matrix with 2 columns"),
        (PAPER_V[:, 2:4], "A B = 0 does not hold"),
        (PAPER_V[:, 3:] * sympy.diag(1, d), "do not reach all solutions"),
        (PAPER_V[:3, 3:], "shape 5 x any"),
        (PAPER_V * sympy.diag(1, 1, 1, 1, d), "unimodular"),
        (PAPER_V * sympy.Matrix(5, 5, lambda i, j: 1 if i == j or (i, j) == (0, 2) else 0), "no unimodular U"),
        (PAPER_V.applyfunc(sympy.sin), "polynomials in d as entries of the basis"),
    ],
)
def test_what_is_no_basis_is_refused(basis: Any, message: str) -> None:
    with pytest.raises(lk.LodekitError, match=message):
        TANKS.with_basis(basis)


def test_without_free_functions_there_is_no_basis() -> None:
    with pytest.raises(lk.LodekitError, match="have no free functions"):
        lk.System("x' = -x", basis=["x"])


def test_a_damaged_choice_is_noticed() -> None:
    system = TANKS.with_basis(["f1", "f2"])
    assert system.choice is not None
    with pytest.raises(VerificationError, match="chosen expressions"):
        system.choice.verify(TANKS.parametrization)
    columns = TANKS.with_basis(PAPER_V).choice
    assert columns is not None
    with pytest.raises(VerificationError, match="chosen ones"):
        columns.verify(system.parametrization)
    broken = replace(system.parametrization, free=TANKS.parametrization.free)
    with pytest.raises(VerificationError, match="X B = I"):
        broken.verify()


@pytest.mark.parametrize("basis", [["f2/b"], ["f2*sqrt(2) + 0*u"], [["d + b"], ["b"], ["d^2 + (a + b)*d"]]])
def test_a_basis_is_carried_everywhere(basis: Any) -> None:
    system = HEATING.with_basis(basis)
    for again in (
        lk.System.from_definition(system.definition()),
        pickle.loads(pickle.dumps(system)),  # noqa: S301
        copy.deepcopy(system),
        HEATING.with_basis(system.basis),
    ):
        assert again == system
        assert hash(again) == hash(system)
        assert again.basis == system.basis
        assert again.parametrization.free_columns == system.parametrization.free_columns
    assert system != HEATING
    assert HEATING.basis is None
    assert "basis" not in HEATING.definition()
    assert system.with_basis(None) == HEATING
    assert system.to_dict()["basis"] == system.basis
    assert HEATING.to_dict()["basis"] is None
    assert "The free function was chosen" in system.explain()
    assert "was chosen" not in HEATING.explain()
    if isinstance(basis[0], str):
        assert f"where z = {system.basis[0]} is any smooth function" in str(system)  # type: ignore[index]
    special = system.substitute({"b": 2})
    rest = special.parametrization.free_columns - system.parametrization.free_columns.subs("b", 2)
    assert rest.applyfunc(sympy.simplify).is_zero_matrix
    assert special.verify()
    assert lk.System.from_definition(special.definition()).basis == special.basis


def test_other_ways_to_a_system_take_a_basis() -> None:
    s, k = sympy.symbols("s k")
    matrix = lk.System.from_operator_matrix(
        sympy.Matrix([[s**2 + k, -1]]), ["x", "u"], ["k"], symbol=s, basis=sympy.Matrix([2, 2 * s**2 + 2 * k])
    )
    assert matrix.basis == [["2"], ["2*d^2 + 2*k"]]
    assert matrix.verify()
    space = lk.System.from_state_space([[0, 1], [-2, -0.5]], [[0], [1]], basis=["0.5*x1"])
    assert space.parametrization.free_columns == 2 * sympy.Matrix([1, d, d**2 + d / 2 + 2])
    floats = lk.System("x' = v", basis=[[0.5], ["0.5*d"]])
    assert "shortest decimal form" in floats.notes[0]


#: At a = 3 the two expressions are the same, at a = 1 the two columns are.
FAILING = [(["x", "(a - 3)*y + x"], "3"), ([["1", "1"], ["1", "2 - a"], ["d", "(2 - a)*d"], ["0", "(a - 1)*d"]], "1")]


@pytest.mark.parametrize(("basis", "value"), FAILING)
def test_parameter_values_at_which_a_basis_fails_are_known(basis: list[Any], value: str) -> None:
    equations, channels = "x' = u + v; y' = u; 0 = a*(x - x)", ["x", "y", "u", "v"]
    system = lk.System(equations, parameters=["a"], channels=channels)
    chosen = lk.System(equations, parameters=["a"], channels=channels, basis=basis)
    (factor,) = chosen.unsuitable_elements
    assert chosen.operator.ring.format(factor) == f"a - {value}"
    assert system.degeneracies == chosen.degeneracies == ()
    assert f"is invalid if a - {value} = 0" in chosen.explain()
    assert chosen.to_dict()["unsuitable"] == [f"a - {value}"]
    with pytest.raises(lk.LodekitError, match=r"depend on each other|do not reach all"):
        chosen.substitute({"a": value})
    assert chosen.substitute({"a": 17}).verify()
    assert near_degenerate_warnings(chosen, np.array([float(value) + 1e-9]))
    assert not near_degenerate_warnings(chosen, np.array([17.0]))
    assert not near_degenerate_warnings(system, np.array([float(value)]))


def test_a_basis_that_never_fails_says_so_and_one_that_fails_is_not_substituted() -> None:
    system = lk.System("x' = a*u + v; y' = u", parameters=["a"], basis=["y", "x - 2*a*y"])
    assert system.unsuitable_elements == TANKS.with_basis(["f1", "f2"]).unsuitable_elements == ()
    pinned = HEATING.with_basis(["f2"])
    with pytest.raises(lk.LodekitError, match=r"(?s)invalid at these values: f2 cannot.*with_basis\(None\)"):
        pinned.substitute({"b": 0})
    assert pinned.with_basis(None).substitute({"b": 0}).verify()


def test_files_hold_a_basis(tmp_path: Path) -> None:
    path = tmp_path / "tanks.toml"
    text = 'equations = ["A*h\' = q"]\nbasis = BASIS\n[parameters]\nA = { positive = true }\n'
    for basis, expected in (('["h"]', ["h"]), ('"q + h"', None), ('[[1], ["A*d"]]', [["1"], ["A*d"]])):
        path.write_text(text.replace("BASIS", basis))
        if expected is None:
            with pytest.raises(lk.LodekitError, match=r"tanks\.toml: q \+ h determines the free function only up to"):
                read_system_file(path)
            continue
        file = read_system_file(path)
        assert file.system.basis == expected
        # Values from the command line make another system, with the same basis.
        assert with_parameter_values(file, {"A": 2.0}, {}).system.basis == expected


def test_the_recipe_of_a_report_has_the_basis() -> None:
    gp = lk.LODEGP(lk.System("x' = v", basis=["x"]), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    scope: dict[str, Any] = {}
    exec(generate_python(gp).split("# t:")[0], scope)  # noqa: S102
    assert scope["system"] == gp.system
    assert scope["system"].basis == ["x"]


@pytest.mark.parametrize("basis", [None, ["y"]])
def test_a_parameter_that_is_exactly_zero_is_reported_like_one_that_cancels(basis: list[str] | None) -> None:
    system = lk.System("x' = a*y + u; y' = -b*y + c*x", parameters=["a", "b", "c"], basis=basis)
    (found,) = near_degenerate_warnings(system, np.array([1.0, 2.0, 0.0]))
    assert "c = 0, as here" in found
    assert not near_degenerate_warnings(system, np.array([1.0, 2.0, 1e-3]))
