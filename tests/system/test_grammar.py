"""The grammar reads what it documents, exactly, and says where and why it cannot read the rest."""

from fractions import Fraction

import pytest
import sympy

import lodekit as lk
from lodekit.errors import EquationError
from lodekit.system.grammar import check_name, parse_equations, parse_expression

d = sympy.Symbol("d")


def operator(text: str, channels: list[str], parameters: tuple[str, ...] = ()) -> list[sympy.Expr]:
    return list(lk.System(text, channels=channels, parameters=parameters).operator_matrix)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x'", d),
        ("x''", d**2),
        ("x'''", d**3),
        ("x^(4)", d**4),
        ("D(x)", d),
        ("D(x, 4)", d**4),
        ("diff(x, t)", d),
        ("diff(x, t, t)", d**2),
        ("diff(x, t, 3)", d**3),
        ("x(t)'", d),
        ("x'(t)", d),
        ("(x')'", d**2),
        ("(2*x' + x)''", 2 * d**3 + d**2),
        ("D(3*x, 2) - diff(x(t), t)", 3 * d**2 - d),
        ("x\u2032\u2032 \u2212 2\u00b7x", d**2 - 2),
        ("x\u2033", d**2),
        ("x\u2019", d),
        ("-x^(2)", -(d**2)),
        ("-2^2*x", -4),
        ("2^-1*x", sympy.Rational(1, 2)),
        ("2**3**2*x", 512),
        ("x/2/5", sympy.Rational(1, 10)),
        ("x*(1 - 2 - 3 + 4 + 1)", 1),
        ("x*2/3", sympy.Rational(2, 3)),
        ("+-+x", -1),
        ("9.81*x", sympy.Rational(981, 100)),
        ("1e-3*x", sympy.Rational(1, 1000)),
        (".5*x + 5.*x", sympy.Rational(11, 2)),
        ("1.5E2*x", 150),
        ("2/3*x", sympy.Rational(2, 3)),
    ],
)
def test_expressions_mean_what_they_say(text: str, expected: sympy.Expr) -> None:
    assert sympy.expand(operator(text, ["x"])[0] - expected) == 0


def test_sums_and_products_with_parameters_are_differentiated() -> None:
    a, b = sympy.symbols("a b")
    assert operator("(f1 - f2)'", ["f1", "f2"]) == [d, -d]
    row = operator("D(a*x + y, 2) = b*x/(a + b)", ["x", "y"], ("a", "b"))
    assert [sympy.cancel(entry) for entry in row] == [sympy.cancel(a * d**2 - b / (a + b)), d**2]


def test_equations_may_be_separated_by_newlines_semicolons_or_given_as_a_list() -> None:
    lines = ["x' = y", "y' = -x"]
    systems = [
        lk.System("x' = y; y' = -x"),
        lk.System("\n  x' = y   # velocity\n\n y' = -x\n# done\n"),
        lk.System(lines),
        lk.System(["x' = y; y' = -x"]),
    ]
    assert {system.equations for system in systems} == {tuple(lines)}


def test_an_expression_without_equals_is_meant_to_be_zero() -> None:
    assert operator("x' - 2*x", ["x"]) == [d - 2]


@pytest.mark.parametrize(
    "name",
    [
        *["I", "E", "S", "N", "Q", "beta", "gamma", "lambda", "zeta", "e", "re", "O", "C", "i", "j", "oo", "d", "nan"],
        *["α", "θ_1", "x₁", "ω", "Δx", "_private", "class", "import", "None", "x_", "ünïcödé"],
    ],
)
def test_any_identifier_may_name_a_channel_or_a_parameter(name: str) -> None:
    channel = lk.System(f"{name}' = -2*{name} + input")
    assert channel.channels == (name, "input")
    parameter = lk.System(f"x' = -{name}*x + v", parameters=[name])
    assert tuple(parameter.parameters) == (name,)
    assert sympy.Symbol(name) in parameter.operator_matrix.free_symbols
    assert parameter.verify()


def test_a_parameter_called_d_is_kept_apart_from_the_operator() -> None:
    system = lk.System("x'' + d*x' = u", parameters=["d"])
    assert str(system.d) == "D"
    assert system.operator_matrix[0] == sympy.Symbol("D") ** 2 + sympy.Symbol("d") * sympy.Symbol("D")


def test_the_micro_sign_is_the_greek_letter() -> None:
    assert lk.System("x' = \u00b5*x + \u03bc*u", parameters=["\u03bc"]).channels == ("x", "u")


def test_pi_is_a_constant_unless_it_is_declared() -> None:
    assert operator("x' + pi*x", ["x"]) == [d + sympy.pi]
    assert lk.System("pi' = u", channels=["pi", "u"]).channels == ("pi", "u")
    assert "pi" in lk.System("x' = pi*u", parameters=["pi"]).parameters


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sqrt(2)*sqrt(2)*x", 2),
        ("sqrt(12)*x", 2 * sympy.sqrt(3)),
        ("sqrt(2)*sqrt(3)*x - sqrt(6)*x + x", 1),
        ("sqrt(2/3)*x", sympy.sqrt(sympy.Rational(2, 3))),
        ("sqrt(0)*x + x", 1),
        ("sqrt(9/4)*x", sympy.Rational(3, 2)),
        ("exp(1)^2*x", sympy.exp(2)),
        ("exp(-1)*x", sympy.exp(-1)),
        ("exp(1/2)*x", sympy.exp(sympy.Rational(1, 2))),
        ("cos(pi/3)*x", sympy.Rational(1, 2)),
        ("sin(pi/4)*x", sympy.sqrt(2) / 2),
        ("cos(2*pi/3)*x", -sympy.Rational(1, 2)),
        ("sin(7*pi/6)*x", -sympy.Rational(1, 2)),
        ("cos(0)*x", 1),
        ("(sin(1)^2 + cos(1)^2)*x", 1),
        ("sin(pi/12)*x", (sympy.sqrt(6) - sympy.sqrt(2)) / 4),
        ("cos(pi/5)*x", (1 + sympy.sqrt(5)) / 4),
        ("(4*cos(pi/5) - sqrt(5))*x", 1),
        ("sin(-1)*x", -sympy.sin(1)),
        ("exp(pi)*x", sympy.exp(sympy.pi)),
    ],
)
def test_irrational_constants_are_exact(text: str, expected: sympy.Expr) -> None:
    entry = operator(text, ["x"])[0]
    assert sympy.simplify(entry - expected) == 0


ERRORS = {
    "x*y = 1": "product of channels 'x' and 'y': the equation is not linear",
    "x' = x*x": r"channel 'x' with itself.*write c\^2 \+ 2\*c\*\(x - c\) with a number for c",
    "x' = 1/x": "appears in a denominator",
    "x' = sin(x)": "appears inside sin",
    "t*x' = 1": "time-varying",
    "x' = sin(t)*x": "time-varying",
    "x' = -a*x": "declare `a` as a parameter",
    "m*x'' + c*x' + k*x = F": r"parameters=\['m', 'c', 'k'\]",
    "x' = exp(a*t)": r"If 'a' is a constant, declare it as a parameter: parameters=\['a'\]",
    "x^2 = 1": "write x''",
    "x^(1/2) = 1": "power of channel",
    "x^1 = u": "write x for the channel itself, or x' for its derivative",
    "": "empty text",
    " \n # only a comment \n ;; ": "empty text",
    "(x + 1": "never closed",
    "x) = 1": "closes nothing",
    "x' = (a + (b)": "never closed",
    "sin(x": "never closed",
    "x == 1": "single '='",
    "x = y = z": "one '='",
    "x' = 2x": "write a product with '*'",
    "x' = a b": "write a product with '*'",
    "x' = a(b + c)": "is not a function",
    "x' = -max(x, 0)": "'max' is not one of the known functions",
    "x' = -x(t - 1)": "delays of other channels are not supported",
    "x(0) = 1": "give it as a measurement",
    "x' = ": "got the end of the line",
    "x' = + ": "got the end of the line",
    "= x": "expected a name, a number",
    "x' = 3 *": "got the end of the line",
    "x' = () + 1": "before '\\)'",
    "x' = $": "unexpected character",
    "x' = [1]": "use parentheses",
    'x" = 1': "two single quotes",
    "x' < 1": "inequalities",
    "x² = 1": "x''",
    "\u1e8b = 1": "write x'",
    "x' = tan(t)": "not one of the known functions",
    "x' = Exp(t)": "not one of the known functions",
    "x' = x(t - 1)": "write delay",
    "x'(0) = 1": r"x'\(0\) is a value",
    "dx/dt = -x": "write a derivative as",
    "x^2.5 = u": r"not linear\n",
    "D = 1": "reserved",
    "sin = 1": "reserved",
    "D(x, y) = 1": "order of a derivative",
    "D(x, 1.5) = 1": "order of a derivative",
    "D(x, 1, 2) = 1": "expected D",
    "diff(x) = 1": "expected diff",
    "diff(x, y) = 1": "in t only",
    "sin(x, t) = 1": "expected one argument",
    "x' = sin(t^2)": "linear argument",
    "x' = 1/t": "in a denominator",
    "x' = sqrt(t)": "not an exponential polynomial",
    "x' = sqrt(-1)*x": "no exact value",
    "x' = sqrt(10^40)*x": "no exact value",
    "x' = exp(1000)*x": "no exact value",
    "x' = exp(sqrt(2))*x": "no exact value",
    "x' = cos(pi/7)*x": "multiple of pi/12",
    "x' = exp(1)*x + exp(1/2)*u": r"exp\(1\) and exp\(1/2\) are related",
    "x' = cos(0.6)*x + sin(0.3)*u": "are related",
    "x/0 = 1": "division by zero",
    "x/(1 - 1) = 1": "division by zero",
    "x' = 2^0.5*x": r"sqrt\(2\)",
    "x' = 0,5*x": "use a decimal point: 0.5",
    "x' = 2^t": "whole number as exponent",
    "x' = 2^x": "whole number as exponent",
    "x' = 2^99999999999*x": "exponent of at most",
    "x' = 1e99999999999*x": "decimal exponent",
    "x' = 1" + "0" * 500 + "*x": "digits",
    "x^(101) = 0": "order",
    "x" + "'" * 101 + " = 0": "order",
    "(x^(60))^(60) = 0": "order",
    "5' = x": "a number is differentiated",
    "x' = " + "(" * 100 + "x" + ")" * 100: "nesting",
    "x' = " + "-" * 100 + "x": "nesting",
    "x' = " + "2^" * 100 + "2*x": "nesting",
    "x = " + "+".join(f"y{i}" for i in range(600)): "channels",
    "x' = (((2^64)^64)^64)^64*x": "too large",
    "1 = 1": "at least one channel",
    "x = " + " + ".join(f"sqrt({p})*x" for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)): "constants",
}


@pytest.mark.parametrize("text", ERRORS)
def test_mistakes_are_named_with_a_remedy(text: str) -> None:
    with pytest.raises(EquationError, match=ERRORS[text]):
        lk.System(text)


def test_parameters_are_checked_against_the_equations() -> None:
    for text, match in (
        ("x' = u", "never used: 'a'"),
        ("a' = x", "parameter 'a' is differentiated"),
        ("D(a*a, 2) = x", "parameter 'a' is differentiated"),
        ("x' = sqrt(a)*x", "declare a new parameter"),
        ("x' = sin(t + a)", "two parameters A and B"),
        ("x' = a^101*x", "exponent of at most"),
        ("x' = a^a*x", "whole number as exponent"),
    ):
        with pytest.raises(EquationError, match=match):
            lk.System(text, parameters=["a"])


def test_a_growing_coefficient_is_stopped_not_computed() -> None:
    names = [f"p{i}" for i in range(12)]
    with pytest.raises(EquationError, match="too large"):
        lk.System(f"x' = ({' + '.join(names)})^40*x", parameters=names)


def test_the_caret_points_at_the_mistake() -> None:
    with pytest.raises(EquationError) as caught:
        lk.System("x' = y\ny' = -k*x*y + 3")
    place = caught.value.place
    assert place is not None
    assert place.equation == 2
    assert place.line[place.start : place.stop] == "-k*x*y"
    lines = str(caught.value).splitlines()
    assert lines[-2].index("-k*x*y") == lines[-1].index("^")
    assert lines[-1].strip() == "^" * 6


def test_the_size_of_the_text_is_limited() -> None:
    with pytest.raises(EquationError, match="characters"):
        lk.System("x' = " + "x + " * 100_000 + "x")
    with pytest.raises(EquationError, match="equations"):
        lk.System("x' = x\n" * 1001)


def test_long_sums_are_read_without_recursion() -> None:
    assert operator("x' = " + " + ".join(["x"] * 20_000), ["x"]) == [d - 20_000]


@pytest.mark.parametrize("value", [3, None, [1, 2], [None], b"x' = 1"])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(lk.LodekitError):
        lk.System(value)  # type: ignore[arg-type]


def test_names_are_trimmed_and_what_is_no_name_is_refused() -> None:
    assert check_name(" θ_1 ", "channel") == "θ_1"
    for bad in ("", "1x", "x y", "x'", "t", "D", "sin", 3, "a+b"):
        with pytest.raises(EquationError):
            check_name(bad, "channel")


def test_single_expressions_are_parsed_for_observables() -> None:
    assert parse_expression("f1 - f2'").place.line == "f1 - f2'"
    for bad in ("", "x = 1", "x +", 3):
        with pytest.raises(EquationError):
            parse_expression(bad)  # type: ignore[arg-type]


def test_numbers_are_exact_rationals() -> None:
    (equation,) = parse_equations("0.1")
    assert getattr(equation.left, "value", None) == Fraction(1, 10)


def test_a_parameter_is_not_a_function_of_time() -> None:
    with pytest.raises(EquationError, match="parameter 'k' is written as a function of time; expected constant"):
        lk.System("x' = -k(t)*x(t)", parameters=["k"])
