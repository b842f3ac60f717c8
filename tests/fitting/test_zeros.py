"""A channel that is zero throughout, such as an input that was never switched on, does no harm."""

from __future__ import annotations

import numpy as np
import pytest

import lodekit as lk

T = np.linspace(0.0, 10.0, 60)


def ring_down(scale: float = 1.0) -> dict[str, np.ndarray]:
    noise = np.random.default_rng(0).standard_normal(60)
    x = np.exp(-0.2 * T) * np.cos(np.sqrt(3.96) * T) + 0.02 * noise
    return {"x": scale * x, "u": np.zeros(60)}


def fit(data: dict[str, np.ndarray]) -> lk.LODEGP:
    system = lk.System("x'' + c*x' + k*x = u", parameters=["c", "k"])
    return lk.LODEGP(system, random_state=0).fit(T, data)


@pytest.fixture(scope="module")
def found() -> lk.LODEGP:
    return fit(ring_down())


def test_an_input_that_is_zero_throughout_does_not_turn_the_rest_into_noise(found: lk.LODEGP) -> None:
    assert found.converged_
    assert found.noise_["x"] < 0.03
    for name, truth in (("c", 0.4), ("k", 4.0)):
        low, high = found.parameters_[name].interval
        assert low < truth < high
        assert high - low < 0.1 * truth


def test_zeros_are_measured_against_what_the_equations_make_of_the_rest(found: lk.LODEGP) -> None:
    other = fit(ring_down(scale=1e-6))
    assert other.noise_["u"] == pytest.approx(1e-6 * found.noise_["u"], rel=1e-6)
    for name in "ck":
        assert other.parameters_[name].value == pytest.approx(found.parameters_[name].value, rel=1e-6)


def test_it_is_said_that_zeros_do_not_tell_their_noise(found: lk.LODEGP) -> None:
    said = [warning for warning in found.warnings_ if "60 values of u are 0" in warning]
    assert said
    assert "at least 1 %" in said[0]
    assert not any("at the limit of its search" in warning for warning in found.warnings_)
