"""State spaces in numbers against SciPy, their derivatives against differences, and what needs words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal

import lodekit as lk
from lodekit.results.state_space import FittedStateSpace, TransferFunction, pade_approximation, sort_roots

Array = NDArray[np.float64]
Case = tuple[str, dict[str, float], dict[str, str]]


def make(equations: str, values: dict[str, float], inputs: dict[str, str]) -> Callable[[Array], FittedStateSpace]:
    """Return the state space as a function of the values of the parameters, with a covariance that correlates them."""
    system = lk.System(equations, parameters=list(values))
    exact = system.state_space(inputs)
    root = np.random.default_rng(5).standard_normal((len(values), len(values)))
    covariance = 1e-4 * root @ root.T
    return lambda theta: FittedStateSpace(exact, tuple(values), theta, covariance)


MASS = ("m*x'' + c*x' + k*x = F; y = x + b*x'", {"m": 1.3, "c": 0.4, "k": 5.0, "b": 0.7}, {"F": "hold"})
TANKS = ("p*h' = u - h; q*y' = h - y + r*u", {"p": 2.0, "q": 5.0, "r": 0.3}, {"u": "hold"})
LATE = ("p*h' = delay(u, T) - h; q*y' = K*h - y", {"p": 2.0, "q": 5.0, "K": 3.0, "T": 1.7}, {"u": "hold"})
CASES = [(MASS, "y", "F"), (MASS, "x", "F"), (TANKS, "y", "u"), (LATE, "y", "u")]


def error_by_differences(
    space: Callable[[Array], FittedStateSpace], theta: Array, take: Callable[..., complex]
) -> float:
    """Return the standard error of a real number by central differences."""
    slopes = []
    for k in range(len(theta)):
        step = np.zeros(len(theta))
        step[k] = 1e-5
        slopes.append((take(space(theta + step)) - take(space(theta - step))) / 2e-5)
    gradient = np.real(np.array(slopes))
    return float(np.sqrt(gradient @ space(theta).covariance @ gradient))


# SciPy goes by polynomials, and warns of leading coefficients that are zero.
@pytest.mark.filterwarnings("ignore::scipy.signal.BadCoefficients")
@pytest.mark.parametrize(("case", "output", "source"), CASES)
def test_poles_zeros_and_responses_are_those_of_scipy(case: Case, output: str, source: str) -> None:
    theta = np.array(list(case[1].values()))
    space = make(*case)(theta)
    found = space.transfer_function(output, source)
    row = space.outputs.index(output)
    acting = np.flatnonzero(space.B.any(axis=0) | space.D.any(axis=0))
    witness = signal.StateSpace(space.A, space.B[:, acting], space.C[row : row + 1], space.D[row : row + 1][:, acting])
    zpk = witness.to_zpk()
    assert np.allclose(np.poly([each.value for each in space.poles]), np.poly(zpk.poles))
    assert np.allclose([each.value for each in found.zeros], zpk.zeros[np.abs(zpk.zeros) < 1e6])
    omega = np.geomspace(0.01, 20.0, 30)
    _, expected = signal.freqresp(witness, omega)
    delay = float(space.delays[acting][0])
    assert np.allclose(found.at(omega), expected * np.exp(-1j * omega * delay), rtol=1e-9)
    assert np.allclose(space.frequency_response(output, source, omega)[0], found.at(omega), rtol=1e-9)
    times = np.linspace(0.0, 30.0, 301)
    _, expected = signal.step(witness, T=times)
    stepped, _ = space.step_response(output, source, times + delay)
    assert np.allclose(stepped, expected, atol=1e-9)
    assert found.gain.value == pytest.approx(float(np.real(found.at([0.0])[0])), rel=1e-9)


@pytest.mark.parametrize(("case", "output", "source"), CASES)
def test_standard_errors_are_those_of_differences(case: Case, output: str, source: str) -> None:
    theta, space = np.array(list(case[1].values())), make(*case)
    found = space(theta).transfer_function(output, source)

    def close(error: float, take: Callable[..., complex]) -> None:
        assert error == pytest.approx(error_by_differences(space, theta, take), rel=1e-5, abs=1e-12)

    def transfer(each: FittedStateSpace) -> TransferFunction:
        return each.transfer_function(output, source)

    close(found.gain.std_error, lambda each: transfer(each).gain.value)
    close(found.delay.std_error, lambda each: transfer(each).delay.value)
    for name in ("poles", "zeros", "time_constants"):
        for k, each in enumerate(getattr(found, name)):
            close(each.std_error, lambda space, k=k, name=name: getattr(transfer(space), name)[k].value)
            if complex(each.value).imag:
                close(each.imaginary_error, lambda space, k=k, name=name: -1j * getattr(transfer(space), name)[k].value)
    times = np.array([0.3, 2.0, 9.0])
    errors = space(theta).step_response(output, source, times)[1]
    for k, error in enumerate(errors):
        close(error, lambda each, k=k: each.step_response(output, source, times)[0][k])
    omega = np.array([0.1, 1.0, 4.0])
    slopes = space(theta).frequency_response(output, source, omega)[1]
    for k in range(len(theta)):
        step = np.zeros(len(theta))
        step[k] = 1e-5
        sides = [space(theta + sign * step).frequency_response(output, source, omega)[0] for sign in (1, -1)]
        assert np.allclose(slopes[k], (sides[0] - sides[1]) / 2e-5, rtol=1e-6, atol=1e-8)


def test_complex_poles_have_a_natural_frequency_and_a_damping_ratio() -> None:
    values = {"w": 2.0, "z": 0.1, "T": 5.0}
    theta = np.array(list(values.values()))
    space = make("y'' + 2*z*w*y' + w**2*y = x; T*x' + x = u", values, {"u": "hold"})
    found = space(theta).transfer_function("y", "u")
    assert [each.value for each in found.time_constants] == pytest.approx([5.0])
    for name, expected in (("natural_frequencies", 2.0), ("damping_ratios", 0.1)):
        (own,) = getattr(found, name)
        assert own.value == pytest.approx(expected)
        error = error_by_differences(
            space, theta, lambda at, name=name: getattr(at.transfer_function("y", "u"), name)[0].value
        )
        assert own.std_error == pytest.approx(error, rel=1e-5)
    shown = repr(found)
    # A pair has one line each for its oscillation and its poles.
    assert [line.split()[0] for line in shown.splitlines()[2:]] == ["time", "natural", "pole", "pole"]
    assert ", damping ratio" in shown
    assert " ± 1.99j (" in shown
    assert found.to_dict()["damping_ratios"][0]["value"] == pytest.approx(0.1)


def test_what_cancels_is_left_out_of_a_transfer_function_and_stays_in_the_state_space() -> None:
    # Two tanks beside each other: y knows nothing of the second.
    case = ("p*y' + y = u; q*z' + z = u", {"p": 2.0, "q": 5.0}, {"u": "hold"})
    space = make(*case)(np.array([2.0, 5.0]))
    found = space.transfer_function("y", "u")
    assert len(space.poles) == 2
    assert [each.value for each in found.poles] == pytest.approx([-0.5])
    assert found.denominator == pytest.approx([1.0, 0.5])
    assert found.numerator == pytest.approx([0.5])


def test_an_integrator_has_no_static_gain_and_a_repeated_pole_no_standard_error() -> None:
    space = make("y'' = a*u", {"a": 2.0}, {"u": "hold"})(np.array([2.0]))
    found = space.transfer_function("y", "u")
    assert np.isinf(found.gain.value.real)
    assert all(np.isnan(each.std_error) for each in found.poles)
    assert "inf" in repr(found)


def test_what_others_have_no_word_for_is_said() -> None:
    late = make(*LATE)(np.array(list(LATE[1].values())))
    with pytest.raises(lk.LodekitError, match="no dead time"):
        late.to_scipy()
    with pytest.raises(lk.LodekitError, match="pass order=3"):
        late.transfer_function("y", "u").to_scipy()
    approximated = late.transfer_function("y", "u").to_scipy(order=6)
    omega = np.array([0.05, 0.3, 1.0])
    assert np.allclose(signal.freqresp(approximated, omega)[1], late.transfer_function("y", "u").at(omega), rtol=1e-6)
    with pytest.raises(lk.LodekitError, match="unknown output 'z'; expected one of"):
        late.transfer_function("z", "u")
    with pytest.raises(lk.LodekitError, match="unknown input 'z'; expected one of u"):
        late.transfer_function("y", "z")
    slope = make("y = a*u'", {"a": 2.0}, {"u": "linear"})(np.array([2.0]))
    with pytest.raises(lk.LodekitError, match="slope"):
        slope.step_response("y", "u", [0.0, 1.0])
    assert slope.transfer_function("y", "u").at([3.0]) == pytest.approx([6j])


def test_pade_is_exact_to_twice_its_order() -> None:
    top, bottom = pade_approximation(0.1, 3)
    s = 0.5j
    assert abs(np.polyval(top, s) / np.polyval(bottom, s) - np.exp(-0.1 * s)) < 1e-13
    with pytest.raises(lk.LodekitError, match="whole number"):
        pade_approximation(1.0, -1)


def test_a_fit_gives_its_state_space_with_the_errors_of_its_parameters() -> None:
    times = np.linspace(0.0, 20.0, 120)
    u = (np.arange(120) // 15 % 2).astype(float)
    decay = np.exp(-(times[1] - times[0]) / 2.5)
    y = np.zeros(120)
    for k in range(119):
        y[k + 1] = decay * y[k] + 3.0 * (1 - decay) * u[k]
    y += 0.02 * np.random.default_rng(3).standard_normal(120)
    system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(times, {"y": y, "u": u})
    found = gp.transfer_function("y", "u")
    for name, each in (("tau", found.time_constants[0]), ("K", found.gain)):
        assert each.value == pytest.approx(gp.parameters_[name].value, rel=1e-9)
        assert each.std_error == pytest.approx(gp.parameters_[name].std_error, rel=1e-3)
    assert pytest.approx(gp.state_space().A) == gp.state_space(inputs=("u",)).A
    assert found.to_dict()["gain"]["value"] == pytest.approx(found.gain.value)
    assert pytest.approx(np.array([[-1 / gp.parameters_["tau"].value]])) == gp.state_space().to_scipy().A
    free = lk.LODEGP(system, random_state=0).fit(times, {"y": y, "u": u + 0.01 * np.sin(times)})
    with pytest.raises(lk.LodekitError, match=r"expected inputs=.*channels are y, u"):
        free.state_space()
    assert free.transfer_function("y", "u").gain.value == pytest.approx(free.parameters_["K"].value)


def test_poles_are_in_order_in_any_unit_of_time() -> None:
    """Rounding to so many places, and not digits, once left those of slow systems in any order."""
    found = sort_roots(np.array([-3e-14, -1e-14 - 2e-14j, -1e-14 + 2e-14j]), np.zeros((1, 3), dtype=complex), np.eye(1))
    assert [each.value for each in found] == [-1e-14 + 2e-14j, -1e-14 - 2e-14j, -3e-14]


def test_on_a_pole_the_response_is_infinite() -> None:
    space = make("x' = k*u", {"k": 2.0}, {"u": "hold"})(np.array([2.0]))
    assert space.transfer_function("x", "u").at([0.0, 1.0]) == pytest.approx([np.inf, -2j])
    assert space.frequency_response("x", "u", 1.0)[0] == pytest.approx([-2j])
    for wrong, said in (([0.0], "a pole lies on"), (["low"], "expected numbers for frequencies")):
        with pytest.raises(lk.LodekitError, match=said):
            space.frequency_response("x", "u", wrong)
    with pytest.raises(lk.LodekitError, match="unknown matrix 'E'; expected one of A"):
        space.slopes("E")
