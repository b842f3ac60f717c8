"""What a System says about itself is right: inputs, modes, consistency, substitution, sentences, round trips."""

import json
import pickle
from itertools import combinations

import pytest
import sympy

import lodekit as lk
from lodekit.errors import EquationError, InconsistentSystemError, ParameterError
from lodekit.system.display import analysis_sections, choose_latent_names

t = sympy.Symbol("t")


def test_channels_come_in_order_of_appearance_or_as_told() -> None:
    text = "f1' = -a*(f1 - f2) + u; f2' = -b*(f2 - f1)"
    assert lk.System(text, parameters="a, b").channels == ("f1", "f2", "u")
    assert lk.System(text, parameters=("a", "b"), channels=["u", "f2", "f1"]).channels == ("u", "f2", "f1")


@pytest.mark.parametrize(
    ("channels", "match"),
    [
        (["x"], "unknown name 'u'"),
        (["x", "u", "x"], "listed twice"),
        (["x", "u", "a"], "both a channel and a parameter"),
        ([], "at least one channel"),
        (["x", "u", "t"], "reserved"),
        (["x", "u", 3], "as text"),
    ],
)
def test_bad_channel_lists_are_refused(channels: list[str], match: str) -> None:
    with pytest.raises(EquationError, match=match):
        lk.System("x' = a*u", parameters=["a"], channels=channels)


def test_a_channel_that_no_equation_mentions_is_free() -> None:
    system = lk.System("x' = -x", channels=["x", "w"])
    assert system.free_functions == 1
    assert system.possible_inputs == (("w",),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x' = u", {("x",), ("u",)}),
        ("x' = 0", set()),
        ("x = 0; y' = u", {("y",), ("u",)}),
        ("x' = u + v", {("x", "u"), ("x", "v"), ("u", "v")}),
        ("x' = u; y' = v", {("x", "y"), ("x", "v"), ("u", "y"), ("u", "v")}),
        ("x + y = 0; z' = w", {("x", "z"), ("x", "w"), ("y", "z"), ("y", "w")}),
    ],
)
def test_possible_inputs_are_the_independent_sets(text: str, expected: set[tuple[str, ...]]) -> None:
    system = lk.System(text)
    assert {tuple(names) for names in system.possible_inputs} == expected
    for names in system.possible_inputs:
        assert system.can_choose(*names)


def test_can_choose_agrees_with_ranks_by_sympy() -> None:
    system = lk.catalog.three_tank().system
    B = system.parametrization.free_columns
    for size in (1, 2, 3):
        for chosen in combinations(range(5), size):
            expected = sympy.Matrix(B[list(chosen), :]).rank() == size
            assert system.can_choose(*(system.channels[i] for i in chosen)) == expected
    with pytest.raises(EquationError, match="unknown channel"):
        system.can_choose("nothing")


def test_many_channels_do_not_make_possible_inputs_explode() -> None:
    # 20 channels are forced to zero and 20 free: naive enumeration would try 10^11 sets.
    lines = [f"x{i} = 0" for i in range(20)] + [f"y{i}' = 0*y{i} + w{i}" for i in range(10)]
    assert len(lk.System(lines).possible_inputs) == 100


@pytest.mark.parametrize(
    ("text", "combination", "total"),
    [
        ("x' = 1; x' = 2", "equation 1 - equation 2", "-1"),
        ("x' = y; x'' = y' + 3", r"\(equation 1\)' - equation 2", "-3"),
        ("x = sin(t); x' = sin(t)", r"\(equation 1\)' - equation 2", r"-sin\(t\) \+ cos\(t\)|cos\(t\) - sin\(t\)"),
        ("0*x = 5", "equation 1", "5"),
        ("x + y = 1; x + y = a", "equation 1 - equation 2", "-a \\+ 1|1 - a"),
        ("2*x' = 1; y' = 0; x' + y' = 2", "equation 1", "-3"),
    ],
)
def test_contradictions_name_the_combination_of_equations(text: str, combination: str, total: str) -> None:
    parameters = ["a"] if "= a" in text else []
    with pytest.raises(InconsistentSystemError, match=f"{combination}.* forces 0 = ({total})"):
        lk.System(text, parameters=parameters)


def test_redundant_equations_with_a_fitting_right_side_are_fine() -> None:
    system = lk.System(
        "x' = sin(2*t + pi/6)*exp(-t); x'' = (sin(2*t + pi/6)*exp(-t))'; 2*x' = 2*exp(-t)*sin(2*t + pi/6)"
    )
    assert len(system.relations()) == 2
    assert "Two equations are redundant" in system.explain()


def test_the_affine_part_is_stored_and_shown_exactly() -> None:
    a, ambient = sympy.symbols("a Ta")
    system = lk.System("x' = -a*(x - Ta) + t^2*exp(-a*t)*sin(3*t)*cos(t) + 1", parameters=["a", "Ta"])
    expected = a * ambient + t**2 * sympy.exp(-a * t) * sympy.sin(3 * t) * sympy.cos(t) + 1
    assert sympy.simplify(system.right_hand_side[0] - expected) == 0
    assert not system.is_homogeneous
    assert "sin(4*t)" in str(system)


@pytest.mark.parametrize(
    "text",
    [
        "sin(t)^3",
        "t*exp(2*t)",
        "cos(t)*sin(t)",
        "exp(-t)*cos(3*t)*t^2",
        "sin(2*t - 1)",
        "cos(5 - t)",
        "(t^2 + exp(t))^2",
    ],
)
def test_derivatives_of_known_functions_agree_with_sympy(text: str) -> None:
    plain = lk.System(f"x = {text}").right_hand_side[0]
    derived = lk.System(f"x = D({text}, 3)").right_hand_side[0]
    assert sympy.simplify(sympy.expand(derived - plain.diff(t, 3), trig=True)) == 0


def test_substitution_takes_numbers_and_expressions() -> None:
    system = lk.System("x' = -a*x + b*u + a", parameters={"a": lk.Parameter(positive=True), "b": lk.Parameter()})
    halved = system.substitute({"a": "b/2"})
    assert tuple(halved.parameters) == ("b",)
    assert halved.right_hand_side[0] == sympy.Symbol("b") / 2
    floated = system.substitute({"b": 0.1})
    assert floated.operator_matrix[1] == -sympy.Rational(1, 10)
    assert any("shortest decimal" in note for note in floated.notes)
    assert system.substitute({"a": sympy.sqrt(2), "b": 1}).operator_matrix[0] == system.d + sympy.sqrt(2)
    with pytest.raises(ParameterError, match="unknown parameter"):
        system.substitute({"c": 1})
    with pytest.raises(ParameterError, match="not a parameter"):
        system.substitute({"a": "x"})


def test_modes_with_parameters_have_generic_multiplicities_and_roots_as_functions() -> None:
    system = lk.System("(x' + a*x)'' + 2*a*(x' + a*x)' + a^2*(x' + a*x) = 0", parameters=["a"])
    (mode,) = system.modes
    assert mode.multiplicity == 3
    assert mode.roots == (-sympy.Symbol("a"),)
    assert mode.roots_at({"a": 0.5}) == (-0.5 + 0j,)
    cubic = lk.System("x''' + a*x'' + b*x = 0", parameters=["a", "b"]).modes[0]
    with pytest.raises(ParameterError, match="roots_at"):
        _ = cubic.roots
    assert len(cubic.roots_at({"a": 1, "b": 2})) == 3
    with pytest.raises(lk.LodekitError, match="missing: b"):
        cubic.roots_at({"a": 1})
    with pytest.raises(ParameterError, match="unknown parameter"):
        cubic.roots_at({"z": 1})
    with pytest.raises(ParameterError, match="finite number"):
        cubic.roots_at({"a": float("inf"), "b": 1})
    for bad in (None, {"a": "1/0", "b": 1}, {"a": "x", "b": 1}):
        with pytest.raises(ParameterError):
            cubic.roots_at(bad)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="as a dict"):
        system.substitute(None)  # type: ignore[arg-type]


EXPLANATIONS = {
    "f1' = u1; f2' = u1 + u2; f3' = u2": "not controllable: one constant mode, f1 - f2 + f3, cannot be influenced.",
    "x' = u": "The system is controllable: every motion can be reached by choosing the free function.",
    "x'' + 4*x = 0": "undamped oscillation (angular frequency 2, period 3.142)",
    "x'' + 2*x' + 5*x = 0": "damped oscillation (angular frequency 2, period 3.142, decay time 1)",
    "x' = 3*x": "growing mode (time constant 0.3333)",
    "x'' + 2*x' + x = 0": "decaying mode (time constant 1) with multiplicity 2",
    "x = 0": "The only solution is zero",
    "x = sin(t)": "exactly one solution",
    "x' = 0*x": "Nothing can be chosen freely: the motion is determined by one initial value.",
    "0*x = 0": "Every channel can be chosen freely: the equations restrict nothing.",
    "x = 0; y' = u": "x is forced to be zero.",
    "x = sin(t); y' = u": "x is determined completely by the known functions of time.",
    "x' = y; 2*x' = 2*y": "One equation is redundant: 2*equation 1 - equation 2 = 0.",
    "x1' = -x1 + u; x2' = -x2 + u": "one decaying mode (time constant 1), x1 - x2, cannot be influenced.",
}


@pytest.mark.parametrize("text", EXPLANATIONS)
def test_the_explanation_says_what_an_engineer_needs(text: str) -> None:
    assert EXPLANATIONS[text] in lk.System(text).explain()


def test_constant_terms_are_not_called_functions_of_time() -> None:
    system = lk.System("tau*y' + y - y0 = K*u; z' = -z + sin(t)", parameters=["tau", "y0", "K"])
    said = "Equation 1 contains a constant term (y0); equation 2 contains a known function of time; the equations are"
    assert said in system.explain()
    assert "with the particular solution y~ = 0, u~ = -y0/K, z~ = " in str(system)
    assert "consists of two exponential modes with exponents" in lk.System("x'' + 3.1*x' + x = 0").explain()


def test_explanations_mention_degenerate_parameters() -> None:
    assert "the structure changes if l1 - l2 = 0" in lk.catalog.bipendulum(parametric=True).system.explain()


@pytest.mark.parametrize("example", lk.catalog.examples(), ids=lambda e: e.name)
def test_every_example_prints_and_survives_json_latex_and_pickle(example: lk.catalog.Example) -> None:
    system = example.system
    assert system.explain() in str(system).replace("\n  ", "\n")
    assert json.loads(json.dumps(system.to_dict()))["channels"] == list(system.channels)
    latex = system.latex()
    assert latex.count("\\begin{aligned}") == latex.count("\\end{aligned}") == 2
    assert system._repr_latex_().startswith("$$")
    again = pickle.loads(pickle.dumps(system))  # noqa: S301
    assert again == system
    assert hash(again) == hash(system)
    assert str(again) == str(system)
    form = pickle.loads(pickle.dumps(system.smith_form))  # noqa: S301
    assert form.verify() == system.smith_form.verify()
    modes = pickle.loads(pickle.dumps(system.modes))  # noqa: S301
    assert [str(mode) for mode in modes] == [str(mode) for mode in system.modes]


def test_the_printed_solution_satisfies_the_equations() -> None:
    """The lines under "Every solution" are themselves equations: substituting them back must give zero."""
    system = lk.catalog.quarter_car().system
    lines = [line for line in dict(analysis_sections(system))["Every solution"] if line.startswith("z")]
    together = lk.System([*system.equations, *lines], parameters=dict(system.parameters))
    assert together.free_functions == system.free_functions
    assert together.is_controllable


@pytest.mark.parametrize(
    ("text", "free", "modes"),
    [
        ("x' = u; y' = -y", ["z"], ["p"]),
        ("z' = p; y' = -y", ["w"], ["q"]),
        ("z' = w; v' = p; y1' = q - m; y2' = -y2; y3' = y3", ["z1", "z2", "z3", "z4"], ["p1", "p2"]),
        ("z + w + z1 = v; v_ + p + q + m + m_ = 0; y' = -y", ["w1", "w2", "w3", "w4", "w5", "w6", "w7"], ["m__"]),
        ("z' = w; v' = -v", ["v_"], ["p"]),
    ],
)
def test_latent_names_do_not_collide_with_channels(text: str, free: list[str], modes: list[str]) -> None:
    assert choose_latent_names(lk.System(text)) == (free, modes)


def test_equal_systems_are_equal_and_others_are_not() -> None:
    assert lk.System("x' = u") == lk.System("x' = u")
    assert lk.System("x' = u") != lk.System("x' = 2*u")
    assert lk.System("x' = a*u", parameters=["a"]) != lk.System(
        "x' = a*u", parameters={"a": lk.Parameter(positive=True)}
    )
    assert lk.System("x' = u") != "x' = u"
    assert repr(lk.System("x' = a*u", parameters=["a"])) == "<System of 1 equation in x, u, parameters a>"


def test_a_mode_without_the_parameter_is_described_in_numbers() -> None:
    text = lk.System("x' = 0; w'' = -w; y' = a*y + u", parameters="a").explain()
    assert "one constant mode, x" in text
    assert "one undamped oscillation (angular frequency 1, period 6.283), w" in text


def test_every_mode_is_shown_alone_in_its_observable() -> None:
    system = lk.System("x' = -x; y' = -2*y; w' = x + y + u")
    assert [(str(mode), mode.observable) for mode in system.modes] == [("d + 1", "x"), ("d + 2", "y")]
    mixed = lk.System("x'' + 3*x' + 2*x = 0; w' = x + u")
    assert {(str(mode), mode.observable) for mode in mixed.modes} == {("d + 1", "x' + 2*x"), ("d + 2", "x' + x")}


@pytest.mark.parametrize(
    "text",
    [
        "x = cos(sqrt(2)*t); x = cos(-sqrt(2)*t)",
        "x = cos(t)*cos(sqrt(2)*t); x = cos(sqrt(2)*t)*cos(t)",
        "x = sin(sqrt(2)*t)*cos(sqrt(3)*t) + cos(sqrt(2)*t)*sin(sqrt(3)*t); x = sin((sqrt(2) + sqrt(3))*t)",
        "x = sin(t + pi/12)^2 + cos(t + pi/12)^2; x = 1",
    ],
)
def test_equal_functions_of_time_are_recognised(text: str) -> None:
    assert lk.System(text).relations()


def test_sums_of_square_roots_are_written_with_parentheses() -> None:
    system = lk.System("x'' + (sqrt(2) + sqrt(3))*x' = (sqrt(2) + sqrt(3))*t + exp((pi + sqrt(2))*t)")
    assert system.operator.format_entry(0, 0) == "d^2 + (sqrt(2) + sqrt(3))*d"
    assert lk.System(f"x = {system.forcing[0]}").forcing == system.forcing


def test_tiny_damping_is_not_called_undamped() -> None:
    assert "damped oscillation" in lk.System("x'' + 1e-40*x' + x = 0").explain()
    assert "undamped" not in lk.System("x'' + 1e-40*pi*x' + x = 0").explain()
    assert "undamped" in lk.System("x'' + pi*x = 0").explain()
    with pytest.raises(lk.LodekitError, match="too large or too small"):
        lk.System("x' = -1e400*x").explain()


def test_roots_at_special_values_with_constants_are_exact() -> None:
    (mode,) = lk.System("x'' + 2*pi*a*x' + pi^2*b*x = 0", parameters=["a", "b"]).modes
    assert list(mode.roots_at({"a": 1, "b": 1})) == pytest.approx([-3.141592653589793] * 2, rel=1e-15)
    assert mode.roots_at({"a": 0, "b": 0}) == (0j, 0j)
    (first,) = lk.System("(a - 1)*pi*x' + x = 0", parameters=["a"]).modes
    assert first.roots_at({"a": 1}) == ()
    (tiny,) = lk.System("x' + 1e-30*pi*x = 0").modes
    assert tiny.roots[0] == pytest.approx(-3.141592653589793e-30, rel=1e-15)
    (leading,) = lk.System("m*x'' + c*x' + k*x = 0", parameters=["m", "c", "k"]).modes
    with pytest.raises(lk.LodekitError, match="every coefficient vanishes"):
        leading.roots_at({"m": 0, "c": 0, "k": 0})


HALF_CAR = """
ms*zc'' = -k1*(zc - a*th - u1) - c1*(zc' - a*th' - u1') - k2*(zc + b*th - u2) - c2*(zc' + b*th' - u2')
J*th'' = a*(k1*(zc - a*th - u1) + c1*(zc' - a*th' - u1')) - b*(k2*(zc + b*th - u2) + c2*(zc' + b*th' - u2'))
m1*u1'' = k1*(zc - a*th - u1) + c1*(zc' - a*th' - u1') - t1*(u1 - w)
m2*u2'' = k2*(zc + b*th - u2) + c2*(zc' + b*th' - u2') - t2*(u2 - w)
"""


def test_a_dozen_symbolic_parameters_do_not_stop_the_analysis() -> None:
    """Bezout coefficients are out of reach here; the parametrization does not need them, and the rest says so."""
    names = ["ms", "J", "m1", "m2", "k1", "k2", "c1", "c2", "t1", "t2", "a", "b"]
    system = lk.System(HALF_CAR, parameters={name: lk.Parameter(positive=True) for name in names})
    assert system.is_controllable
    assert system.parametrization.degrees == (8,)
    assert not (system.operator @ system.parametrization.free).is_nonzero()
    with pytest.raises(lk.LodekitError, match="grow too large"):
        system.verify()


def test_decoupled_modes_stay_decoupled() -> None:
    system = lk.System([f"x{i}' = -{i + 1}*x{i}" for i in range(20)])
    assert system.parametrization.mode_columns == sympy.eye(20)
    assert len(system.verify()) == 7
    parametric = lk.System([f"x{i}' = -a{i}*x{i}" for i in range(6)], parameters=[f"a{i}" for i in range(6)])
    assert parametric.modes[0].describe() == "exponential mode exp(-a0*t)"


def test_nested_derivatives_are_read_in_linear_time() -> None:
    text = "x"
    for _ in range(25):
        text = f"({text})^(1)"
    assert lk.System(f"{text} = u").operator_matrix[0] == lk.System("x = u").d ** 25


def test_derivatives_of_known_functions_are_bounded() -> None:
    names = list("abcefghk")
    with pytest.raises(EquationError, match="too large"):
        lk.System(f"x' = D(exp(({' + '.join(names)})*t), 100)", parameters=names)


def test_the_derivative_of_a_vanishing_function_of_time_is_zero() -> None:
    system = lk.System("x' = D(a*t) + x", parameters=["a"]).substitute({"a": 0})
    assert system.is_homogeneous


def test_forced_systems_show_their_particular_part() -> None:
    system = lk.System("x' = -x + t; y = 1", channels=["x", "y"])
    assert "x = p + x~" in str(system)
    assert "y = y~" in str(system)
    assert "x &= p + \\tilde{x}" in system.latex()


def test_infinite_bounds_are_valid_json() -> None:
    system = lk.System("x' = a*u", parameters={"a": lk.Parameter(bounds=(0, float("inf")))})
    content = json.loads(json.dumps(system.to_dict(), allow_nan=False))
    assert content["parameters"]["a"]["bounds"] == [0.0, None]
