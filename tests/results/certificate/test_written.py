"""Equations evaluated from their text agree with exact derivatives of known functions, and with the algebra."""

from __future__ import annotations

import re

import numpy as np
import pytest

import lodekit as lk
from lodekit.prior.observables import EquationResiduals
from lodekit.results.equation_residuals import EquationEvaluator, compute_derivative_residuals
from lodekit.system.grammar import parse_equations

TIMES = np.linspace(-1.0, 2.0, 7)


def waves(order: int, count: int) -> np.ndarray:
    """Return derivatives of sin(w t + 1) with another w for each channel, shape (order + 1, 1, n, channels)."""
    speeds = 0.7 + 0.4 * np.arange(count)
    return np.stack(
        [np.sin(TIMES[:, None] * speeds + 1.0 + 0.5 * np.pi * k)[None] * speeds**k for k in range(order + 1)]
    )


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("x' = v", 1),
        ("x'' + c*x' + k*x = u", 2),
        ("x^(4) - D(u, 3) + diff(v, t, t) = 0", 4),
        ("(c*x - k*(u - v)')'' = 2*v/3", 3),
        ("D(D(x, 2) + u) = -(-v)", 3),
        ("x' + u/(k*(1 + c)^2) = c^(-1)*v", 1),
        ("x' - u = v + sin(3*t + 0.5)*exp(-c*t) - t^2*cos(k*t)", 1),
        ("(t*exp(2*t)*sin(t))'' + x' + u + v = sqrt(2)*pi + exp(1)", 2),
        ("x(t)' = diff(u + v, t, 2) + cos(pi/5)", 2),
    ],
)
def test_text_and_algebra_agree(text: str, order: int) -> None:
    system = lk.System(text, parameters=[name for name in ("c", "k") if re.search(rf"\b{name}\b", text)])
    values = {"c": 0.8, "k": 1.7}
    written = EquationEvaluator(system.written, system.channels, {n: values[n] for n in system.parameters})
    assert written.order == order
    curves = waves(order, len(system.channels))
    left, sizes = written.evaluate(TIMES, curves)
    terms = EquationResiduals(system)
    features = np.stack([curves[k][..., j] for j, k in terms.derivatives], axis=-1)
    theta = np.array([values[name] for name in system.operator.ring.parameters])
    expected = terms.residual(theta, TIMES, features, relative=False)
    # The size is at least that of the sum; rounding is relative to it.
    assert (sizes >= 0.999 * np.abs(left)).all()
    assert (np.abs(left[0] - expected[..., 0]) <= 1e-13 * sizes[0]).all()


def test_sizes_add_where_terms_cancel() -> None:
    system = lk.System("2*(x - u) = 0")
    written = EquationEvaluator(system.written, system.channels, {})
    curves = np.full((1, 1, 1, 2), 5.0)
    left, sizes = written.evaluate(np.zeros(1), curves)
    assert (left.item(), sizes.item()) == (0.0, 20.0)


def test_an_equation_without_time_or_channels_in_a_term() -> None:
    system = lk.System("x' = 1; y' + 3 = x")
    written = EquationEvaluator(system.written, system.channels, {})
    curves = np.zeros((2, 2, 3, 2))
    left, _ = written.evaluate(np.zeros(3), curves)
    assert left.shape == (2, 2, 3)
    assert left[:, 0, 0].tolist() == [-1.0, 3.0]


def test_derivatives_that_are_known_are_put_into_the_equations() -> None:
    """A decay leaves nothing of its own equation, and its rate is seen; what is not there must not be asked for."""
    times = np.linspace(0.0, 3.0, 7)
    curves = np.stack([np.exp(-times), -np.exp(-times), np.full(7, np.nan)])[:, None, :, None]
    equations = parse_equations("x' = -a*x")
    own, other = (EquationEvaluator(equations, ["x"], {"a": value}) for value in (1.0, 1.2))
    found = compute_derivative_residuals([own], times, curves)
    assert found.residual < 1e-15
    assert found.uncertainty == 0.0
    assert compute_derivative_residuals([other], times, curves).residual == pytest.approx(0.2 / 2.2)
    with pytest.raises(lk.LodekitError, match="do not exist"):
        compute_derivative_residuals([own], times, curves * np.array([1.0, np.nan, 1.0])[:, None, None, None])
