"""The search: transforms invert each other, progress is shown only to people who wait, priors have right slopes."""

import math

import numpy as np
import pytest

import lodekit as lk
from lodekit.fitting.parameter_vector import ParameterTransform

LIMITS = [(-math.inf, math.inf), (0.0, math.inf), (-math.inf, 3.0), (-1.0, 2.0)]


@pytest.mark.parametrize(("low", "high"), LIMITS)
def test_transforms_have_inverses_and_slopes(low: float, high: float) -> None:
    transform = ParameterTransform(low, high, 0.01)
    for x in (-3.0, -0.2, 0.0, 1.5):
        value = transform.forward(x)
        assert low < value < high
        assert transform.inverse(value) == pytest.approx(x, abs=1e-9)
        difference = (transform.forward(x + 1e-6) - transform.forward(x - 1e-6)) / 2e-6
        assert transform.derivative(x) == pytest.approx(difference, rel=1e-6)


@pytest.mark.parametrize("prior", [lk.Normal(2.0, 0.5), lk.LogNormal(2.0, 0.7)])
def test_priors_have_right_slopes(prior: lk.Normal | lk.LogNormal) -> None:
    for value in (0.5, 2.0, 3.7):
        difference = (prior.log_density(value + 1e-6)[0] - prior.log_density(value - 1e-6)[0]) / 2e-6
        assert prior.log_density(value)[1] == pytest.approx(difference, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("wrong", [(1.0, 0.0), (math.nan, 1.0), (1.0, -2.0), ("x", 1.0)])
def test_impossible_priors_are_refused(wrong: tuple[float, float]) -> None:
    with pytest.raises(lk.LodekitError):
        lk.Normal(*wrong)
    with pytest.raises(lk.LodekitError):
        lk.Parameter(prior=3)  # type: ignore[arg-type]


def test_hidden_channels_are_eliminated_for_the_first_guess() -> None:
    example = lk.catalog.two_room()
    times = np.linspace(0, 10, 80)
    table = example.solution_at(times) + 0.05 * np.random.default_rng(0).standard_normal((80, 3))
    table[:, 1] = np.nan
    truth = {
        name: lk.Parameter(positive=own.positive, start=float(example.values[name]))
        for name, own in example.system.parameters.items()
    }
    system = lk.System(list(example.system.equations), parameters=truth, channels=example.system.channels)
    informed = lk.LODEGP(system, random_state=0).fit(times, table)
    blind = lk.LODEGP(example.system, random_state=0).fit(times, table)
    assert blind.log_evidence_ > informed.log_evidence_ - 0.1
    assert list(blind.noise_.values()) == pytest.approx([0.05] * 2, rel=0.25)


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e-5, 1e4])
@pytest.mark.parametrize("start", [1.0, None])
def test_unbounded_parameters_find_their_sign_in_any_unit(unit: float, start: float | None) -> None:
    times = np.linspace(0, 10, 60)
    generator = np.random.default_rng(0)
    u = np.sin(times)
    x = (np.exp(-0.4 * times) + (0.4 * np.sin(times) - np.cos(times)) / 1.16) * unit
    data = {
        "x": x + 0.01 * unit * generator.standard_normal(60),
        "u": unit * (u + 0.01 * generator.standard_normal(60)),
    }
    system = lk.System("x' = k*x + u", parameters={"k": lk.Parameter(start=start)})
    gp = lk.LODEGP(system, random_state=0).fit(times, data)
    found = gp.parameters_["k"]
    assert found.identified
    assert found.value == pytest.approx(-0.4, abs=4 * found.std_error)
    assert found.std_error < 0.05


@pytest.mark.parametrize("size", [1e20, 1.38e-23])
def test_starts_may_be_of_any_size(size: float) -> None:
    times = np.linspace(0, 5, 40)
    data = np.exp(-times) + 0.001 * np.random.default_rng(0).standard_normal(40)
    system = lk.System(
        "m*x' + k*x = 0", parameters={"m": lk.Parameter(fixed=size), "k": lk.Parameter(positive=True, start=3 * size)}
    )
    gp = lk.LODEGP(system, random_state=0).fit(times, data)
    assert gp.parameters_["k"].value == pytest.approx(size, rel=0.02)


def test_intervals_of_unbounded_parameters_do_not_know_zero() -> None:
    times = np.linspace(0, 6, 40)
    data = 3.0 + np.exp(-times) + 0.05 * np.random.default_rng(0).standard_normal(40)
    for shift in (0.0, -3.0):
        gp = lk.LODEGP(lk.System("x' + x = c", parameters="c"), random_state=0).fit(times, data + shift)
        found = gp.parameters_["c"]
        low, high = found.interval
        assert low + high == pytest.approx(2 * found.value, abs=1e-9)
        # Forty measurements, one level of noise, two numbers that bend the curve: Student's quantile is 2.02.
        assert high - low == pytest.approx(2 * 2.02 * found.std_error, rel=0.01)
        assert low < 3.0 + shift < high
