"""What a System says about itself is right: inputs, modes, consistency, substitution, sentences, round trips."""

import json
import pickle

import pytest
import sympy

import lodekit as lk
from lodekit.errors import EquationError, InconsistentSystemError, ParameterError

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
    from itertools import combinations

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


EXPLANATIONS = {
    "f1' = u1; f2' = u1 + u2; f3' = u2": "not controllable: one constant mode, f1 - f2 + f3, cannot be influenced.",
    "x' = u": "The system is controllable: every motion can be reached by choosing the free function.",
    "x'' + 4*x = 0": "undamped oscillation (angular frequency 2, period 3.142)",
    "x'' + 2*x' + 5*x = 0": "damped oscillation (angular frequency 2, period 3.142, decay time 1)",
    "x' = 3*x": "growing mode (time constant 0.3333)",
    "x'' + 2*x' + x = 0": "decaying mode (time constant 1) with multiplicity 2",
    "x = 0": "The only solution is zero",
    "x = sin(t)": "exactly one solution",
    "x' = 0*x": "Nothing can be chosen freely: the motion is determined by one initial number.",
    "0*x = 0": "Every channel can be chosen freely: the equations restrict nothing.",
    "x = 0; y' = u": "x is forced to be zero.",
    "x = sin(t); y' = u": "x is determined completely by the known functions of time.",
    "x' = y; 2*x' = 2*y": "One equation is redundant: 2*equation 1 - equation 2 = 0.",
    "x1' = -x1 + u; x2' = -x2 + u": "one decaying mode (time constant 1), x1 - x2, cannot be influenced.",
}


@pytest.mark.parametrize("text", EXPLANATIONS)
def test_the_explanation_says_what_an_engineer_needs(text: str) -> None:
    assert EXPLANATIONS[text] in lk.System(text).explain()


def test_explanations_mention_degenerate_parameters() -> None:
    assert "the structure changes where l1 - l2 = 0" in lk.catalog.bipendulum(parametric=True).system.explain()


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


def test_the_printed_solution_satisfies_the_equations() -> None:
    """The lines under "Every solution" are themselves equations: substituting them back must give zero."""
    system = lk.catalog.quarter_car().system
    lines = [line for line in dict(lk.system.display.sections(system))["Every solution"] if line.startswith("z")]
    together = lk.System([*system.equations, *lines], parameters=dict(system.parameters))
    assert together.free_functions == system.free_functions
    assert together.is_controllable


def test_latent_names_do_not_collide_with_channels() -> None:
    text = str(lk.System("z' = p; w' = q + z"))
    assert "is any smooth function" in text or "are any smooth functions" in text
    assert "z  = z" not in text


def test_equal_systems_are_equal_and_others_are_not() -> None:
    assert lk.System("x' = u") == lk.System("x' = u")
    assert lk.System("x' = u") != lk.System("x' = 2*u")
    assert lk.System("x' = a*u", parameters=["a"]) != lk.System(
        "x' = a*u", parameters={"a": lk.Parameter(positive=True)}
    )
    assert lk.System("x' = u") != "x' = u"
    assert repr(lk.System("x' = a*u", parameters=["a"])) == "<System of 1 equation in x, u, parameters a>"
