"""The last steps of a search: scales, valleys, bounds, and data with next to no noise."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm

import lodekit as lk
from lodekit.data.records import Measurements
from lodekit.fitting import search_options as options
from lodekit.fitting.hessian import observed_information
from lodekit.fitting.lbfgs import Optimum, maximize_lbfgs
from lodekit.fitting.newton import NewtonIteration, refine_newton
from lodekit.fitting.parameter_vector import ParameterLayout, ParameterTransform
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.inference.engine import SearchLimits
from lodekit.uncertainty.estimates import satterthwaite_dof

Array = NDArray[np.float64]
TANKS, DECAY = lk.catalog.coupled_tanks(), lk.catalog.free_decay()


def noisy(example: lk.catalog.Example, times: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    exact = example.solution_at(times)
    noise = share * exact.std(axis=0) * np.random.default_rng(seed).standard_normal(exact.shape)
    return np.asarray(exact + noise)


@pytest.fixture(scope="module")
def rooms() -> lk.LODEGP:
    """Three positive parameters, one of either sign, a free function and three levels of noise."""
    times = np.linspace(0.0, 40.0, 25)
    data = noisy(lk.catalog.two_room(), times, 0.02)
    return lk.LODEGP(lk.catalog.two_room().system, noise="channel", restarts=2, random_state=0).fit(times, data)


@pytest.fixture(scope="module")
def driven() -> lk.LODEGP:
    """Parameters that are positive, bounded and anything; noisy enough for differences to have many digits."""
    times, generator = np.linspace(0.0, 6.0, 25), np.random.default_rng(5)
    kinds = {"a": lk.Parameter(positive=True), "b": lk.Parameter(), "c": lk.Parameter(bounds=(-1.0, 2.0))}
    x, u = np.sin(times) + 0.5, np.cos(times) + np.sin(times)
    data = {"x": x + 0.1 * generator.standard_normal(25), "u": u + 0.1 * generator.standard_normal(25)}
    return lk.LODEGP(lk.System("x' + a*x = b*u + c", parameters=kinds), random_state=0).fit(times, data)


@cache
def fit_one_rhythm(name: str, factor: float = 1.0) -> lk.LODEGP:
    """Return a fit of an example of the catalog whose solution tells combinations of parameters only."""
    example, times = lk.catalog.find_example(name), np.linspace(0.1, 8.1, 30)
    assert example is not None
    return lk.LODEGP(example.system, noise="channel", random_state=0).fit(times, noisy(example, times, 0.002) * factor)


@pytest.mark.parametrize("linear", [True, False])
def test_scales_have_the_gradients_and_curvatures_of_the_objective(driven: lk.LODEGP, linear: bool) -> None:
    """Away from the optimum, where gradients count: by the chain rule, and by differences of gradients."""
    objective = driven.fit_.setup.objective
    size = objective.layout.size
    generator = np.random.default_rng(3)
    x = driven.fit_.optimum.x + 0.1 * generator.standard_normal(size)
    chart = NewtonIteration(objective, replace(driven.fit_.optimum, x=x), linear=linear)
    y = 0.1 * generator.standard_normal(size)
    value, slope = chart.evaluate(y)
    expected, gradient = objective.evaluate(chart.point(y))
    assert value == pytest.approx(expected, rel=1e-12)
    steps = 1e-6 * np.eye(size)
    jacobian = np.array([(chart.point(y + step) - chart.point(y - step)) / 2e-6 for step in steps])
    np.testing.assert_allclose(slope, jacobian @ gradient, rtol=1e-6, atol=1e-8 * np.abs(gradient).max())
    steps = 1e-4 * np.eye(size)
    own = np.array([(chart.evaluate(y - step)[1] - chart.evaluate(y + step)[1]) / 2e-4 for step in steps])
    of_search = observed_information(objective, chart.point(y))
    # After scaling, all entries are of order one; differences of gradients leave some thousandths.
    scale = 1.0 / np.sqrt(np.outer(np.abs(np.diag(own)), np.abs(np.diag(own))))
    np.testing.assert_allclose(chart.information_from_search(of_search, y, slope) * scale, own * scale, atol=0.01)
    np.testing.assert_allclose(chart.information_to_search(own, y, slope) * scale, of_search * scale, atol=0.01)


def test_moves_are_those_of_the_search_to_first_order(driven: lk.LODEGP) -> None:
    chart = NewtonIteration(driven.fit_.setup.objective, driven.fit_.optimum, linear=True)
    np.testing.assert_array_equal(chart.point(np.zeros(len(chart.x))), chart.x)
    for step in 1e-6 * np.eye(len(chart.x)):
        np.testing.assert_allclose(chart.point(step) - chart.x, step, rtol=1e-4, atol=1e-9)


def test_steps_lead_to_the_same_end_of_a_valley_from_either_side() -> None:
    """The solution of the catalog lets mass, damping and stiffness move together; the best damping is zero."""
    fit = fit_one_rhythm("spring_mass_damper").fit_
    objective, place = fit.setup.objective, fit.layout.index_of
    assert fit.optimum.at_bound[place("c")]
    assert fit.estimates["c"].note in ("tends to zero", "tends to infinity")
    # On the way there, m = 0.02 to 0.004 and c = 0.4 m + 0.0002 to 0.01 fit about as well.
    for m, c in ((0.02, 0.008), (0.004, 0.002)):
        x = fit.optimum.x.copy()
        x[place("m")], x[place("c")] = np.log(m), np.log(c)
        coarse = maximize_lbfgs(objective, x, tolerance=1e-2)
        start = Optimum(coarse.x, coarse.value, True, "", 0, np.zeros(len(x), dtype=bool))
        found, _ = refine_newton(objective, start, observed_information(objective, coarse.x))
        assert found.value == pytest.approx(fit.optimum.value, abs=1e-6)
        assert np.exp(found.x[place("k")]) == pytest.approx(fit.estimates["k"].value, rel=1e-6)


@pytest.mark.parametrize("name", ["spring_mass_damper", "rlc_circuit"])
def test_units_do_not_matter_where_data_tell_combinations_only(name: str) -> None:
    first, other, finer = fit_one_rhythm(name), fit_one_rhythm(name, 1e6), np.linspace(0.1, 8.1, 50)
    series = first.fit_.measurements.series
    shift = sum(len(each.values) for each in series) * np.log(1e6)
    assert other.log_evidence_ + shift == pytest.approx(first.log_evidence_, rel=1e-6)
    smallest = min(each.values.std() for each in series)
    np.testing.assert_allclose(other.predict(finer) / 1e6, first.predict(finer), atol=1e-6 * smallest)
    for key, estimate in first.parameters_.items():
        assert other.parameters_[key].identified == estimate.identified
        if estimate.identified:
            assert other.parameters_[key].value == pytest.approx(estimate.value, rel=1e-6)


@pytest.mark.parametrize("std", [1e-6, 0.0])
def test_known_noise_of_next_to_nothing_identifies_positive_parameters(std: float) -> None:
    times = np.linspace(0.0, 8.0, 30)
    data = DECAY.solution_at(times) + std * np.random.default_rng(0).standard_normal((30, 1))
    gp = lk.LODEGP(DECAY.system, random_state=0).fit(times, data, noise_std=std)
    for key, value in DECAY.values.items():
        assert gp.parameters_[key].identified
        assert gp.parameters_[key].value == pytest.approx(float(value), rel=1e-5)


@pytest.mark.parametrize("noise", ["channel", "shared"])
def test_exact_data_identify_what_they_determine(noise: str) -> None:
    """Rounding errors of the evidence exceed what hyperparameters change; parameters are told all the same."""
    times = np.linspace(0.1, 8.1, 30)
    gp = lk.LODEGP(TANKS.system, noise=noise, random_state=0).fit(times, TANKS.solution_at(times))
    for key, value in TANKS.values.items():
        estimate = gp.parameters_[key]
        assert estimate.identified
        assert estimate.value == pytest.approx(float(value), rel=1e-4)
        # The interval comes from a profile, or from the curvature; in any case it is next to nothing, and not nothing.
        assert 0 < estimate.std_error < 1e-3 * estimate.value


POSITIVE = ParameterTransform(0.0, np.inf)


def test_one_level_of_noise_has_the_textbook_degrees_of_freedom() -> None:
    """Thirty measurements; two numbers are modes, of which the evidence knows, and three bend the curve beside them."""
    times = np.linspace(0.0, 8.0, 30)
    fit = lk.LODEGP(DECAY.system, random_state=0).fit(times, noisy(DECAY, times, 0.05)).fit_
    found = satterthwaite_dof(fit.setup.objective, fit.optimum.x, fit.covariance)[0]
    np.testing.assert_allclose(found, 28 * 27 / 30, rtol=0.05)
    known = lk.LODEGP(DECAY.system, random_state=0).fit(times, noisy(DECAY, times, 0.05), noise_std=0.03).fit_
    many = satterthwaite_dof(known.setup.objective, known.optimum.x, known.covariance)[0]
    # The deviation of the modes is still an estimate, but matters next to nothing.
    assert (many > 1e3).all()


def test_a_factor_that_a_deviation_makes_up_for_costs_no_degrees_of_freedom() -> None:
    """Of n values with the mean m and the deviation b*s, b and s are not told apart; the mean has n of them."""
    count = 40

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        mean, size = x[0], np.exp(x[1] + x[2])
        pull = (1.0 + mean**2) / size**2
        return -0.5 * count * (2.0 * np.log(size) + pull), count * np.array([-mean / size**2, pull - 1.0, pull - 1.0])

    blocks = SimpleNamespace(theta=slice(0, 2))
    objective: Any = SimpleNamespace(
        evaluate=evaluate,
        layout=SimpleNamespace(
            slices=blocks, is_deterministic=False, transforms=[POSITIVE] * 2, free_parameters=[0, 1]
        ),
        engine=SimpleNamespace(size=count),
    )
    open_way = np.array([0.0, 1.0, -1.0])
    covariance = np.diag([1.0, 0.125, 0.125]) / count + 1e4 * np.outer(open_way, open_way)
    covariance[1, 2] += 0.125 / count
    covariance[2, 1] += 0.125 / count
    assert satterthwaite_dof(objective, np.zeros(3), covariance)[0][0] == pytest.approx(count, rel=0.05)


@pytest.mark.parametrize(
    ("cubic", "pull", "valley", "share", "expected"),
    [(0.05, 0.0, 0.3, 0.2, 0.2), (0.0, 0.3, 0.0, 0.36, 0.0), (0.05, 0.0, 3.0, 0.2, 0.2)],
)
def test_a_bend_is_the_share_by_which_a_profile_falls_less_than_a_parabola(
    cubic: float, pull: float, valley: float, share: float, expected: float
) -> None:
    """At two standard errors a parabola has fallen by 2; a valley that is only curved changes nothing of that.

    What an estimate of a variance changes is left to Student's t.
    """

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        a, b = x[0], x[1] - valley * x[0] ** 2
        value = -0.5 * a**2 + cubic * a**3 + pull * a**2 * x[1] - 0.5 * b**2
        slope = -a + 3.0 * cubic * a**2 + 2.0 * pull * a * x[1] + 2.0 * valley * a * b
        return float(value), np.array([slope, pull * a**2 - b])

    blocks = SimpleNamespace(theta=slice(0, 1))
    layout = SimpleNamespace(slices=blocks, transforms=[POSITIVE], free_parameters=[0])
    objective: Any = SimpleNamespace(evaluate=evaluate, layout=layout, engine=SimpleNamespace(size=9))
    found = satterthwaite_dof(objective, np.zeros(2), np.eye(2))[1]
    moves = np.linspace(-15.0, 15.0, 15001)
    exact = max(max(evaluate(np.array([end, move]))[0] for move in moves) for end in (-2.0, 2.0))
    assert (exact + 2.0) / 2.0 == pytest.approx(share, rel=0.1)
    assert found[0] == pytest.approx(expected, rel=0.1, abs=1e-3)


def test_degrees_of_freedom_follow_from_how_variances_move(rooms: lk.LODEGP) -> None:
    """Another way to the same, with many more evaluations: the inverse curvature at neighbouring hyperparameters."""
    fit = rooms.fit_
    objective, x, count = fit.setup.objective, fit.optimum.x, len(fit.layout.free_parameters)
    found = satterthwaite_dof(objective, x, fit.covariance)[0]
    slopes = np.zeros((len(x), count))
    for k in range(count, len(x)):
        step = 0.02 * np.eye(len(x))[k]
        above, below = (np.diag(np.linalg.inv(observed_information(objective, x + sign * step))) for sign in (1, -1))
        slopes[k] = (np.log(above) - np.log(below))[:count] / 0.04
    expected = 2.0 / np.einsum("kp,kl,lp->p", slopes, fit.covariance, slopes)
    # Half a standard error to either side is no derivative: third derivatives change a little on the way.
    np.testing.assert_allclose(found, expected, rtol=0.15)


def test_a_gradient_that_is_not_finite_ends_the_steps_where_they_began(
    driven: lk.LODEGP, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Next to what an engine refuses, only the objective may be finite; axes must not be sought then."""
    fit = driven.fit_
    nowhere = np.full(fit.layout.size, np.nan)
    monkeypatch.setattr(NewtonIteration, "evaluate", lambda self, y: (fit.optimum.value, nowhere))
    found, curvature = refine_newton(fit.setup.objective, fit.optimum, fit.observed_information)
    np.testing.assert_array_equal(found.x, fit.optimum.x)
    np.testing.assert_array_equal(curvature, fit.observed_information)


def test_an_optimum_that_is_flat_to_the_third_order_is_reached() -> None:
    """Newton's steps are slow there: where they ended early, friction depended by 2 % on where they had begun."""
    example, times = lk.catalog.dc_motor(), np.linspace(0.1, 8.1, 30)
    data = noisy(example, times, 0.02)
    observations = lk.Observations()
    for name, column in zip(example.system.channels, data.T, strict=True):
        observations = observations.add(times, name, column)
    objective = build_setup(example.system, FitSettings(), Measurements.from_observations(observations)).objective
    x = np.array([-4.42, -2.11, -2.80, 0.0, -0.693, -1.44, 2.68, -5.29, -5.07, -5.93])
    start = Optimum(x, objective.value(x), True, "", 0, np.zeros(10, dtype=bool))
    found, curvature = refine_newton(objective, start, observed_information(objective, x))
    slope = objective.evaluate(found.x)[1]
    # What another step promises: a ten millionth is left where a slow one is the last.
    assert 0.5 * slope @ np.linalg.solve(curvature, slope) < 1e-10


class Plain:
    """An objective that grows for ever along a positive parameter, beside another one and a disturbance."""

    def __init__(self) -> None:
        anything = {number: ParameterTransform(0.0, np.inf, 1.0) for number in (0, 1)}
        self.layout = ParameterLayout(("a", "R"), np.full(2, np.nan), anything, 0, 0, 0, n_disturbances=1)
        noise = SimpleNamespace(min_levels=np.full(1, 1e-9), level_scales=np.ones(1))
        self.engine = SimpleNamespace(size=100, search_limits=SearchLimits(1e-3), prior=SimpleNamespace(noise=noise))
        self.calls, self.name = 0, "a slope"

    def value(self, x: Array) -> float:
        return self.evaluate(x)[0]

    def evaluate(self, x: Array) -> tuple[float, Array]:
        self.calls += 1
        left = np.exp(-x[1])
        bend = x[0] - 0.3 - 0.5 * left
        value = -5.0 * bend**2 - 0.2 * left - 0.5 * (x[2] + 1.0) ** 2
        return value, np.array([-10.0 * bend, -5.0 * bend * left + 0.2 * left, -(x[2] + 1.0)])


def test_what_runs_away_beside_disturbances_is_not_followed_for_long() -> None:
    """Steps that gain less than a thousandth are not worth their evaluations there."""
    objective: Any = Plain()
    x = np.array([0.5, 0.2, -0.8])
    start = Optimum(x, objective.value(x), True, "", 0, np.zeros(3, dtype=bool))
    found, _ = refine_newton(objective, start, observed_information(objective, x))
    assert found.value > -5e-3
    assert found.x == pytest.approx([0.3, found.x[1], -1.0], abs=1e-2)
    objective.layout = replace(objective.layout, n_disturbances=0, n_noise_levels=1)
    used, objective.calls = objective.calls, 0
    refine_newton(objective, start, observed_information(objective, x))
    assert objective.calls > 1.5 * used


def test_the_hessian_next_to_two_equal_modes_does_not_depend_on_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Absorption and distribution with almost the same rate: with some seeds, bands were ten times too wide."""
    t = np.array([0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 10, 12, 16, 24, 30, 36.0])
    A = np.array([[-1.3, 0.0, 0.0], [1.3 / 31, -0.56, 0.18], [0.0, 0.35, -0.18]])
    c = np.array([(expm(A * time) @ [250.0, 0.0, 0.0])[1] for time in t])
    c += 0.06 * np.random.default_rng(5).standard_normal(16)
    system = lk.System(
        "G' = -ka*G; c' = ka*G/V - (ke+k12)*c + k21*p; p' = k12*c - k21*p",
        parameters={name: lk.Parameter(positive=True) for name in ("ka", "ke", "k12", "k21", "V")},
    )
    data = lk.Observations([(0.0, "G", 250.0, 0.0), (0.0, "c", 0.0, 0.0), (0.0, "p", 0.0, 0.0)]).add(t, "c", c)
    fit = lk.LODEGP(system, random_state=0).fit(data).fit_
    objective, count, least = fit.setup.objective, fit.layout.slices.theta.stop, []
    flat = np.linalg.eigh(observed_information(objective, fit.optimum.x, 1e-3)[:count, :count])[1][:, 0]
    # Without steps, so that the search does not leave the points.
    monkeypatch.setattr(options, "SEARCH", replace(options.SEARCH, newton_rounds=0))
    for distance in (-4e-5, -3e-5, 0.0, 3e-5):
        start = replace(fit.optimum, x=fit.optimum.x.copy())
        start.x[:count] += distance * flat
        found = refine_newton(objective, start, observed_information(objective, start.x))[1]
        least.append(np.linalg.eigvalsh(found[:count, :count])[0])
    np.testing.assert_allclose(least, np.median(least), rtol=0.2)
