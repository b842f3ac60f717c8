"""What is not linear is refused with the tangent to write instead, and that tangent is one."""

from __future__ import annotations

import re

import pytest
import sympy

import lodekit as lk
from lodekit.errors import DataError, EquationError


def refusal(equation: str, parameters: tuple[str, ...] = ()) -> str:
    with pytest.raises(EquationError) as found:
        lk.System(equation, parameters=parameters)
    return str(found.value).splitlines()[0]


@pytest.mark.parametrize(
    ("equation", "function", "name"),
    [
        ("theta'' = -9.81*sin(theta)", "sin(x)", "theta"),
        ("theta'' = cos(theta) + u", "cos(x)", "theta"),
        ("h' = -k*sqrt(h) + q", "sqrt(x)", "h"),
        ("v' = exp(v)", "exp(x)", "v"),
        ("h' = -h^3", "x**3", "h"),
        ("h' = -h^2", "x**2", "h"),
        ("h' = 1/h", "1/x", "h"),
    ],
)
def test_the_tangent_at_a_value_is_suggested(equation: str, function: str, name: str) -> None:
    message = refusal(equation, ("k",) if "k" in equation else ())
    written = re.search(r"(?:another value c,|value c,? write) (.+?)(?: for 1/h,)? with a number", message)
    assert written, message
    x, c = sympy.symbols(f"{name} c")
    known = {name: x, "c": c}
    tangent = sympy.sympify(written[1].replace("^", "**"), locals=known)
    curve = sympy.sympify(function, locals={"x": x})
    at = curve.subs(x, c) + curve.diff(x).subs(x, c) * (x - c)
    assert sympy.simplify(tangent - at) == 0
    lk.System(f"{name}' = {written[1].replace('c', '0.3').replace('0.3os', 'cos')}")


def test_small_angles_are_suggested_as_they_are_written() -> None:
    assert "write theta for sin(theta)" in refusal("theta'' = -sin(theta)")
    assert "write (a - b) for tanh(a - b)" in refusal("a' = tanh(a - b)")
    assert "Linearise" not in refusal("x' = abs(x)")
    assert "Linearise" not in refusal("x' = tan(t)")


def test_products_of_channels_have_a_tangent_where_nothing_is_a_constant() -> None:
    assert "write y_0*x + x_0*y - x_0*y_0" in refusal("x' = y; y' = x*y")
    assert "tangent" not in refusal("x' = y; y' = x'*y")
    assert "x_0" not in refusal("x' = y; y' = x'*y")
    assert "declare `k`" in (message := refusal("x' = -k*x"))
    assert "inearise" not in message


def test_a_factor_of_an_input_is_not_declared_together_with_it() -> None:
    for equation in ("tau*y' + y = K*u", "tau*y' = K*u - y", "y' = -(y - K*u)/tau"):
        message = refusal(equation)
        assert "'u']" not in message
    assert "parameters=['tau']; if 'K' or 'u' is constant, declare it as well" in refusal("tau*y' + y = K*u")
    assert "parameters=['m', 'c', 'k']" in refusal("m*x'' + c*x' + k*x = F")


def test_a_slip_in_a_name_is_noticed() -> None:
    gp = lk.LODEGP(lk.System("T1' = v; T2' = -v"), random_state=0)
    with pytest.raises(DataError, match=r"unknown name 'T3'.*Is it 'T[12]'\?"):
        gp.fit([0.0, 1.0], {"T3": [0.0, 1.0]})
    with pytest.raises(DataError, match=r"columns: unknown name 'TT'; expected a channel \(T1, v, T2\)"):
        gp.fit({"t": [0.0, 1.0], "x": [0.0, 1.0]}, columns={"TT": "x"})


@pytest.mark.parametrize(
    ("equation", "said"),
    [
        ("dx/dt = -x", "write a derivative as x' or D(x), not as dx/dt"),
        ("d2x/dt2 = -x", "write a derivative as x'' or D(x, 2), not as d2x/dt2"),
        ("d^2x/dt^2 = -x", "write a derivative as x'' or D(x, 2), not as d^2x/dt^2"),
        ("\u1e8d = -x", "write x''"),
        ("x_dot = -x", "write x' for the derivative, or add the equation x_dot = x'"),
        ("x'' = -y; yddot = x", "write y'' for the derivative, or add the equation yddot = y''"),
    ],
)
def test_other_notations_of_derivatives_are_told_ours(equation: str, said: str) -> None:
    assert said in refusal(equation)


def test_a_name_with_dots_is_fine_where_it_is_a_letter_or_tied_to_its_derivative() -> None:
    assert lk.System("h\u00f6he' = -h\u00f6he").channels == ("h\u00f6he",)
    assert lk.System("xdot = x'; xdot' = -x").channels == ("xdot", "x")
    assert lk.System("robot' = -rob; rob = 2*robot; spot' = 1").channels == ("robot", "rob", "spot")
