"""The state space of a system with known inputs: exact, complete, and refused in words where there is none."""

import pickle
import random
from fractions import Fraction

import numpy as np
import pytest
import sympy

import lodekit as lk
from lodekit.errors import EquationError
from tests.system.transfer_witness import all_modes, responds

LAMP = lk.System("tau*y' + y - y0 = K*u", parameters="tau y0 K")
TCLAB = lk.System(
    """
    tau*TH1' + (TH1 - Ta) = K1*Q1 + K3*(TH2 - TH1)
    tau*TH2' + (TH2 - Ta) = K2*Q2 + K3*(TH1 - TH2)
    s*T1' + T1 = TH1
    s*T2' + T2 = TH2
    """,
    parameters="tau Ta K1 K2 K3 s",
)
SCHOOL = lk.System(
    """
    Ci*Ti' = (Te - Ti)/Rie + (Ta - Ti)/Ria + (Th - Ti)/Rih
    Ce*Te' = (Ti - Te)/Rie + (Ta - Te)/Rea
    Ch*Th' = (Ti - Th)/Rih + Ph
    """,
    parameters="Ci Ce Ch Rie Ria Rih Rea",
)
PLANTS = {
    "lamp": (LAMP, {"u": "hold"}, 1),
    "tclab": (TCLAB, {"Q1": "hold", "Q2": "linear"}, 4),
    "school": (SCHOOL, {"Ta": "linear", "Ph": "hold"}, 3),
    "mass": (lk.catalog.spring_mass_damper().system, {"F": "hold"}, 2),
    "car": (lk.catalog.quarter_car().system, None, None),
    "motor": (lk.catalog.dc_motor().system, None, None),
    "circuit": (lk.catalog.rlc_circuit().system, None, None),
    "rooms": (lk.catalog.two_room().system, None, None),
    "tanks": (lk.catalog.three_tank().system, {"u1": "hold", "u2": "hold"}, 3),
    "pendulums": (lk.catalog.bipendulum(1, 1).system, {"u": "hold"}, 4),
    "chain": (lk.catalog.mass_chain(3, parametric=True).system, {"F": "hold"}, 6),
    "feedthrough": (lk.System("x' + b*x = u' + a*u", parameters="a b"), {"u": "hold"}, 1),
    "slope": (lk.System("x'' + b*x' + x = u''' + a*u", parameters="a b"), {"u": "linear"}, 2),
    "algebraic": (lk.System("x = a*u' + u + y; y' = c*x + u", parameters="a c"), {"u": "linear"}, 1),
    "signals": (lk.System("x'' + c*x = b*u + sin(3*t)", parameters="c b"), {"u": "hold"}, 2),
    "root": (lk.System("x' = -sqrt(2)*x + exp(1)*u"), {"u": "hold"}, 1),
    "redundant": (lk.System("x' = v; v' = u; x'' = u"), {"u": "hold"}, 2),
}


def values_of(system: lk.System) -> dict[str, Fraction]:
    return {name: Fraction(3 + 2 * number, 5) for number, name in enumerate(system.parameters)}


def inputs_of(system: lk.System, inputs: dict[str, str] | None) -> dict[str, str]:
    """Return the inputs, or the last set that can be chosen freely: the outside of the catalog's systems."""
    return inputs if inputs is not None else dict.fromkeys(system.possible_inputs[-1], "linear")


@pytest.mark.parametrize("name", PLANTS)
def test_the_transfer_function_is_that_of_the_equations(name: str) -> None:
    system, inputs, states = PLANTS[name]
    plant = system.state_space(inputs_of(system, inputs))
    assert states is None or len(plant.states) == states
    assert responds(system, plant, values_of(system), range(5))
    if len(plant.outputs) == len(system.equations):
        assert all_modes(system, plant, values_of(system), range(len(plant.states) + 3))


@pytest.mark.parametrize("name", PLANTS)
def test_states_are_what_their_names_say(name: str) -> None:
    """For functions exp(r t): x from the name of a state, and x from r x = F x + G v."""
    system, inputs, _ = PLANTS[name]
    plant = system.state_space(inputs_of(system, inputs))
    values = {sympy.Symbol(k): sympy.Rational(v.numerator, v.denominator) for k, v in values_of(system).items()}
    r = sympy.Rational(7, 3)
    F, G, H, D, D1 = (sympy.Matrix(getattr(plant, key)).subs(values) for key in ("A", "B", "C", "D", "D1"))
    v = sympy.Matrix([sympy.Rational(2 * i + 1, 2) for i in range(len(plant.inputs))])
    x = (r * sympy.eye(len(plant.states)) - F).LUsolve(G * v)
    g = H * x + D * v + r * D1 * v
    waves = dict(zip((*plant.outputs, *plant.inputs), (*g, *v), strict=True))
    for text, expected in zip(plant.states, x, strict=True):
        named = lk.System(f"state_ = {text}", parameters=[n for n in system.parameters if n in text])
        row = sympy.Matrix(named.operator_matrix).subs({sympy.Symbol("d"): r, **values})
        # The row is a multiple of state - (...), so the state follows by division.
        others = sum(row[0, j] * waves[c] for j, c in enumerate(named.channels) if c != "state_")
        found = -others / row[0, named.channels.index("state_")]
        assert sympy.nsimplify(sympy.simplify(found - expected)) == 0


def test_first_order_equations_have_the_channels_as_states() -> None:
    assert TCLAB.state_space(["Q1", "Q2"]).states == ("TH1", "TH2", "T1", "T2")
    assert str(LAMP.state_space("u")) == "x1 = y\nx1' = -1/tau*x1 + K/tau*u\ny = x1"


def test_state_spaces_can_be_pickled() -> None:
    plant = lk.System("y' = -sqrt(2)*y + K*delay(u, T)", parameters="K T").state_space(["u"])
    restored = pickle.loads(pickle.dumps(plant))  # noqa: S301
    assert restored == plant
    assert restored.channels == ("u", "u")
    assert restored.delays == plant.delays


def test_where_functions_stay_free_one_channel_each_is_zero() -> None:
    system = lk.System("x' = -a*x + u + w; y = x + z", parameters="a")
    plant = system.state_space(["u"])
    zero = [name for i, name in enumerate(plant.outputs) if not any((*plant.exact["C"][i], *plant.exact["D"][i]))]
    assert zero == ["w", "z"]
    assert responds(system, plant, values_of(system), range(4))
    assert system.given(["u"]).free_functions == 2


def test_disturbances_are_further_columns() -> None:
    system = lk.System("x' = -a*x + u + w", parameters="a")
    plant = system.state_space(["u"], disturbances=["w"])
    assert (plant.inputs, plant.kinds, plant.outputs) == (("u", "w"), ("hold", "white"), ("x",))
    assert list(plant.B) == [1, 1]


@pytest.mark.parametrize(
    ("text", "inputs", "words"),
    [
        ("x = u'", ["u"], ["'x' responds to 'u' with the term u'", "infinite where a held input jumps", "'linear'"]),
        ("x' + y = u; x' - y = 2*u''", ["u"], ["'y'", "the term -u''", "from the inputs"]),
        ("x = 3*u''", {"u": "hold"}, ["the term 3*u''", "remove 'u' from the inputs"]),
        ("x = 3*u''", {"u": "linear"}, ["the term 3*u''", "has a corner"]),
        ("x' = u; u' = w + 2*u", ["u", "w"], ["relate the inputs to each other", "u' - 2*u - w = 0,"]),
        ("x' = u; x'' = w + t^2", ["u", "w"], ["relate the inputs to each other", "u' - w = t^2,"]),
        ("x' = u; u' = 2*u", ["u"], ["determine the input 'u'", "u' - 2*u = 0,", "remove 'u' from"]),
        ("x' = u; 3*x'' = 6*u; y = w", ["u", "w"], ["determine the input 'u'", "u' - 2*u = 0,"]),
        ("x' = u", ["u", "x"], ["every channel is an input"]),
        ("x' = u", ["w"], ["unknown input 'w'", "x, u"]),
        ("x' = u", {"u": "step"}, ["'hold' or 'linear'", "'step'"]),
        ("x' = u", 3, ["as names", "int"]),
        ("x' = u", [["u"]], ["unknown input ['u']", "x, u"]),
        ("x' = u", {"u": ["hold"]}, ["'hold' or 'linear'", "got ['hold']"]),
    ],
)
def test_refusals_name_what_is_wrong_and_what_to_do(text: str, inputs: object, words: list[str]) -> None:
    with pytest.raises(EquationError) as caught:
        lk.System(text).state_space(inputs)  # type: ignore[arg-type]
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("text", ["0", "3 - k", "sqrt(2)"])
def test_the_transfer_function_of_many_states_is_that_of_the_matrices(text: str) -> None:
    generator = random.Random(1)
    rows = [[str(generator.randint(-9, 9)) for _ in range(8)] for _ in range(8)]
    rows[3][4] = text
    system = lk.System.from_state_space(rows, [["1"]] * 8, parameters=["k"] if "k" in text else [])
    plant = system.state_space({"u1": "linear"})
    numbers = {"k": sympy.Rational(2, 7), "s": sympy.Rational(3, 2)}
    F, G = (np.array(matrix.subs(numbers), dtype=float) for matrix in (plant.A, plant.B))
    expected = np.linalg.solve(1.5 * np.eye(8) - F, G)[2, 0]
    # Digits are lost where the matrix is close to a singular one; this one is not.
    assert complex(plant.transfer_function("x3", "u1").subs(numbers)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("y' + y = 2*u' + 5*u", "(2*s + 5)/(s + 1)"),
        ("y' + a*y = 3*u'' + u", "(3*s**2 + 1)/(a + s)"),
        ("y = 3*u' - u/2", "3*s - 1/2"),
        ("2*y' + 2*y = u' + u", "1/2"),
        ("y' = w; w' = -w", "0"),
    ],
)
def test_transfer_functions_hold_what_passes_at_once_and_are_in_lowest_terms(text: str, shown: str) -> None:
    system = lk.System(text, channels=["y", "w", "u"] if "w" in text else None, parameters=["a"] if "a" in text else [])
    found = system.state_space({"u": "linear"}).transfer_function("y", "u")
    assert sympy.simplify(found - sympy.sympify(shown)) == 0
    below = [sympy.fraction(sympy.together(each))[1] for each in (found, sympy.sympify(shown))]
    assert below[0] == below[1]


def test_names_of_states_and_of_s_are_found_whatever_is_taken() -> None:
    plant = lk.System("x' = q; q' = state_a - x").state_space(["state_a"])
    assert str(plant).splitlines()[0] == "state__1 = x"
    plant = lk.System("y' = -s*y + S*s_*u", parameters=["s", "S", "s_"]).state_space(["u"])
    assert str(plant.transfer_function()) == "S*s_/(s + s__)"


def test_hold_refused_for_a_second_derivative_does_not_offer_linear() -> None:
    with pytest.raises(EquationError) as caught:
        lk.System("x = 3*u''").state_space(["u"])
    assert "linear" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "channel", "order", "factor"),
    [
        ("x' + y = u; x' - y = 2*u''", "y", 2, -1),
        ("x' + 2*y = u'; y' + x = 3*u''", "y", 1, 3),
        ("x = y'; y = 4*u", "x", 1, 4),
    ],
)
def test_the_named_term_begins_the_transfer_function(text: str, channel: str, order: int, factor: int) -> None:
    """By SymPy: the channel over d^order, at infinity, has the factor that the message names."""
    system = lk.System(text)
    A = sympy.Matrix(system.operator_matrix)
    transfer = A[:, :2].inv() * -A[:, 2:]
    d = sympy.Symbol("d")
    assert sympy.limit(sympy.cancel(transfer[system.channels.index(channel), 0] / d**order), d, sympy.oo) == factor
    term = {1: "", -1: "-"}.get(factor, f"{factor}*") + "u" + "'" * order
    with pytest.raises(EquationError, match=f"'{channel}' responds to 'u' with the term {term},".replace("*", r"\*")):
        system.state_space(["u"])


def test_given_inputs_leave_the_system_of_the_rest() -> None:
    rest = TCLAB.given({"Q1": "hold", "Q2": "linear"})
    assert rest.channels == ("TH1", "TH2", "T1", "T2")
    assert list(rest.parameters) == list(TCLAB.parameters)
    assert rest.operator_matrix == TCLAB.operator_matrix[:, [TCLAB.channels.index(name) for name in rest.channels]]
    assert rest.right_hand_side == TCLAB.right_hand_side
    assert rest.states == len(TCLAB.state_space(["Q1", "Q2"]).states)
    restored = pickle.loads(pickle.dumps(rest))  # noqa: S301
    for other in (restored, lk.System.from_definition(rest.definition())):
        assert (other.equations, other.channels, other.parameters) == (rest.equations, rest.channels, rest.parameters)
    assert list(rest.substitute({"tau": 3}).parameters) == ["Ta", "K1", "K2", "K3", "s"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("0 = -x'' + D(u, 2) + 3*(u - x) + diff(u*2, t) + sin(t)", ("x'' + 3*x - sin(t) = 0",)),
        ("u = -x - (u)^(2)", ("x = 0",)),
        ("x' = v; v' = -x + (u)/2", ("x' = v", "v' = -x")),
        ("x' = y; -u = y - 3", ("x' = y", "-y + 3 = 0")),
    ],
)
def test_what_is_left_reads_as_equations(text: str, left: tuple[str, ...]) -> None:
    assert lk.System(text).given("u").equations == left


def test_a_chosen_basis_loses_its_inputs() -> None:
    system = lk.System("x' = u + w + q; y = u", basis=["u", "x", "q"])
    assert system.given(["u"]).basis == ["x", "q"]
    assert lk.System("x' = u", basis=["x"]).given(["u"]).basis is None
    with pytest.raises(EquationError, match="with_basis"):
        lk.System("x' = u + w", basis=[[1, 0], ["d", -1], [0, 1]]).given(["u"])


def test_given_refuses_inputs_that_are_tied() -> None:
    with pytest.raises(EquationError, match="relate the inputs"):
        lk.System("x' = u; u' = w").given(["u", "w"])


def test_the_exact_transfer_function_is_the_operator_matrix_solved_for_the_channel() -> None:
    system = lk.System("m*x'' + c*x' + s*x = F + b*F'", parameters=["m", "c", "s", "b"])
    found = system.state_space(inputs={"F": "linear"}).transfer_function()
    letter = sympy.Symbol("S")  # s is a parameter
    m, c, s, b = sympy.symbols("m c s b")
    assert sympy.simplify(found - (1 + b * letter) / (m * letter**2 + c * letter + s)) == 0
    rooms = lk.System("T1' = T2 - T1 + u; T2' = T1 - T2 + 2*delay(u, 3)").state_space(inputs=["u"])
    p = sympy.Symbol("s")
    whole = sympy.Matrix([[p + 1, -1], [-1, p + 1]]).inv() * sympy.Matrix([1, 2 * sympy.exp(-3 * p)])
    assert sympy.simplify(rooms.transfer_function("T2", "u") - whole[1]) == 0
    with pytest.raises(EquationError, match="expected an output, one of T1, T2, got None"):
        rooms.transfer_function()
