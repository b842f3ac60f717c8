"""The objective: one function for searches, curvatures and samplers, with gradients and normalised priors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

import lodekit as lk
from lodekit.data.observations import parse_observations
from lodekit.data.records import Measurements
from lodekit.fitting.hessian import observed_information
from lodekit.fitting.objective import Objective
from lodekit.fitting.parameter_vector import ParameterTransform
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup

TIMES = np.linspace(0, 4, 15)
VALUES = np.exp(-0.3 * TIMES) * np.cos(1.4 * TIMES) + 0.05 * np.random.default_rng(0).standard_normal(15)
#: A prior cut by a bound, one within bounds, none at all.
PARAMETERS = {
    "c": lk.Parameter(positive=True, prior=lk.Normal(0.2, 0.4)),
    "k": lk.Parameter(bounds=(0.5, 4.0), prior=lk.LogNormal(2.0, 0.5)),
    "b": lk.Parameter(),
}


@pytest.fixture(scope="module")
def fitted() -> lk.LODEGP:
    system = lk.System("x'' + c*x' + k*x = b", parameters=PARAMETERS)
    return lk.LODEGP(system, noise="shared", random_state=0).fit(TIMES, VALUES)


@pytest.fixture(scope="module")
def objective(fitted: lk.LODEGP) -> Objective:
    return fitted.fit_.setup.objective


def points(fitted: lk.LODEGP) -> list[np.ndarray]:
    optimum = fitted.fit_.optimum.x
    generator = np.random.default_rng(1)
    return [optimum + 0.1 * generator.standard_normal(len(optimum)) for _ in range(3)]


def test_gradients_are_those_of_differences(fitted: lk.LODEGP, objective: Objective) -> None:
    """Tolerance: central differences with steps of 1e-5 err by about 1e-6 of the largest slope."""
    function = objective.evaluate
    for x in points(fitted):
        _, gradient = function(x)
        for k in range(len(x)):
            step = 1e-5 * np.eye(len(x))[k]
            difference = (function(x + step)[0] - function(x - step)[0]) / 2e-5
            assert gradient[k] == pytest.approx(difference, rel=1e-5, abs=1e-5 * np.abs(gradient).max())


def test_the_value_is_evidence_plus_priors(fitted: lk.LODEGP, objective: Objective) -> None:
    for x in points(fitted):
        hyper = objective.layout.unpack(x)
        assert objective.value(x) == pytest.approx(objective.engine.value(hyper) + objective.log_prior(x)[0], rel=1e-12)
        assert objective.evaluate(x)[0] == pytest.approx(objective.value(x), rel=1e-12)
    assert objective.name == "log evidence + log prior"
    assert fitted.fit_.optimum.value == pytest.approx(objective.value(fitted.fit_.optimum.x), rel=1e-9)


@pytest.mark.parametrize("name", ["c", "k"])
def test_priors_are_normalised_over_their_bounds(name: str) -> None:
    own = PARAMETERS[name]
    assert own.prior is not None
    prior, (low, high) = own.prior, own.interval
    mass, _ = quad(lambda value: math.exp(prior.log_density(value)[0] - prior.log_mass(low, high)), low, high)
    assert mass == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("limits", [(-math.inf, math.inf), (0.0, math.inf), (-math.inf, 3.0), (-1.0, 2.0)])
def test_the_slope_of_a_transform_has_a_slope(limits: tuple[float, float]) -> None:
    transform = ParameterTransform(*limits, 0.01)
    for x in (-2.0, 0.1, 1.7):
        above, below = (math.log(transform.derivative(x + step)) for step in (1e-6, -1e-6))
        difference = (above - below) / 2e-6
        assert transform.log_jacobian_gradient(x) == pytest.approx(difference, abs=1e-8)


def test_curvature_is_minus_the_second_difference(fitted: lk.LODEGP, objective: Objective) -> None:
    """Tolerance: second differences of values with steps of 1e-3 err by about 1e-5 of the largest curvature."""
    x = fitted.fit_.optimum.x
    found = observed_information(objective, x)
    for k in range(len(x)):
        step = 1e-3 * np.eye(len(x))[k]
        second = (objective.value(x + step) - 2 * objective.value(x) + objective.value(x - step)) / 1e-6
        assert found[k, k] == pytest.approx(-second, rel=1e-3, abs=1e-4 * np.abs(found).max())


DRIVEN, DRIVEN_TIMES = lk.System("x' = -x + u"), np.linspace(0, 3, 12)
DRIVEN_TABLE = np.stack([np.sin(DRIVEN_TIMES), np.cos(DRIVEN_TIMES) + np.sin(DRIVEN_TIMES)], axis=1)


def settle(units: Any = 1.0, noise: str = "channel", noise_std: Any = None) -> Objective:
    """Return the objective that a fit of a driven lag would search; nothing is learned."""
    data = parse_observations(DRIVEN.channels, DRIVEN_TIMES, DRIVEN_TABLE * units, noise_std)
    return build_setup(DRIVEN, FitSettings(noise=noise), Measurements.from_observations(data)).objective


def test_levels_of_noise_have_a_weak_prior_that_knows_no_units() -> None:
    """Values by hand: flat in the level, normal in how far the logarithms of relative levels are apart."""
    objectives = [settle(), settle(np.array([1e3, 1e-3]))]
    found = []
    for objective in objectives:
        units = objective.engine.prior.noise.level_scales
        x = np.zeros(objective.layout.size)
        x[objective.layout.slices.noise] = np.log(units * np.array([0.1, 0.4]))
        value, gradient = objective.log_prior(x)
        found.append(value)
        half = 0.5 * math.log(4.0)
        assert value == pytest.approx(math.log(0.1 * 0.4) - half**2, rel=1e-12)
        assert gradient[objective.layout.slices.noise] == pytest.approx([1.0 + half, 1.0 - half], rel=1e-12)
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_an_objective_says_which_priors_it_contains() -> None:
    several, shared = settle(), settle(noise="shared")
    assert (several.name, shared.name) == ("log evidence + log prior", "log evidence")
    assert several.description == "the evidence, combined with a weak prior on the noise levels"
    assert shared.description == "the evidence"
    assert shared.log_prior(np.ones(shared.layout.size))[0] == 0.0


def test_noise_that_is_known_is_not_pooled_with_what_is_learned() -> None:
    objective = settle(noise_std={"u": 1e-3})
    _, gradient = objective.log_prior(np.ones(objective.layout.size))
    assert gradient[objective.layout.slices.noise].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("seed", range(4))
def test_no_level_of_noise_collapses_where_measurements_are_few(seed: int) -> None:
    """The evidence alone finds a channel without noise in three of these four data sets, bands of zero with it."""
    example, times = lk.catalog.spring_mass_damper(), np.linspace(1, 6, 6)
    truth = example.solution_at(times)
    noise = 0.05 * truth.std(axis=0)
    table = truth + noise * np.random.default_rng(seed).standard_normal(truth.shape)
    gp = lk.LODEGP(example.system, random_state=0).fit(times, table)
    assert (np.array(list(gp.noise_.values())) > 0.05 * noise).all()
