"""Profiles: a parameter is moved far, all else follows, and the evidence falls, or does not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.diagnostics import profile_likelihood as profiles
from lodekit.diagnostics.identifiability import IdentifiabilityResult, find_flat_combinations
from lodekit.diagnostics.profile_likelihood import ProfileSide, profile_interval, profile_likelihood
from lodekit.fitting.global_search import GlobalSearch
from lodekit.fitting.lbfgs import Optimum
from lodekit.fitting.objective import Objective
from lodekit.fitting.parameter_vector import ParameterLayout, ParameterTransform
from lodekit.model import LODEGP
from lodekit.system.parameters import Parameter
from lodekit.system.system import System

Array = NDArray[np.float64]


class Made:
    """An objective that is a formula of the vector that is searched."""

    regression = None

    def __init__(self, value: Callable[[np.ndarray], float], transforms: list[ParameterTransform]) -> None:
        self.formula = value
        names = tuple("abc"[: len(transforms)])
        self.layout = ParameterLayout(names, np.full(len(names), np.nan), dict(enumerate(transforms)), 0, 0, 0)

    def value(self, x: np.ndarray) -> float:
        return self.formula(x)

    def evaluate(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        steps = 1e-6 * np.eye(len(x))
        slope = [(self.formula(x + h) - self.formula(x - h)) / 2e-6 for h in steps]
        return self.formula(x), np.array(slope)


def look(
    value: Callable[[np.ndarray], float], transforms: list[ParameterTransform], x: list[float], curvature: Any
) -> Any:
    made = Made(value, transforms)
    point = np.array(x)
    optimum = Optimum(point, value(point), True, "", 1, np.zeros(len(x), dtype=bool))
    (low, high), (below, above), _ = profile_likelihood(
        cast(Objective, made), optimum, np.array(curvature, dtype=float), 0
    )
    return SimpleNamespace(low=low, high=high, falls_below=below, falls_above=above, is_flat=not below and not above)


POSITIVE = ParameterTransform(0.0, math.inf, 0.01)
EITHER = ParameterTransform(-math.inf, math.inf, 0.01)


def test_of_a_product_neither_factor_is_told() -> None:
    def value(x: np.ndarray) -> float:
        return -50.0 * float(x[0] + x[1] - 1.0) ** 2

    found = look(value, [POSITIVE, POSITIVE], [0.5, 0.5], [[100.0, 100.0], [100.0, 100.0]])
    assert found.is_flat
    # The same with a curvature that is rounding: proof is in the evaluation.
    assert look(value, [POSITIVE, POSITIVE], [0.5, 0.5], [[100.0, -3.0], [-3.0, -7.0]]).is_flat


def test_a_valley_that_bends_is_followed() -> None:
    def value(x: np.ndarray) -> float:
        return -200.0 * float(x[1] - 0.3 * x[0] ** 2) ** 2

    assert look(value, [POSITIVE, POSITIVE], [0.0, 0.0], [[0.0, 0.0], [0.0, 400.0]]).is_flat


def test_a_parameter_that_is_told_gets_the_interval_that_the_evidence_has() -> None:
    def value(x: np.ndarray) -> float:
        return -0.5 * float(x[0] / 1e-5) ** 2 - 0.5 * float(x[1]) ** 2

    # The curvature says nothing of the kind.
    found = look(value, [POSITIVE, POSITIVE], [0.0, 0.0], [[-3.0, 0.0], [0.0, 1.0]])
    assert found.falls_below
    assert found.falls_above
    for edge in (1.0 - found.low, found.high - 1.0):
        # The truth is 1.96e-5; the place is looked for to a factor of two.
        assert 1.9e-5 < edge < 4.1e-5


def test_what_is_told_on_one_side_is_bounded_on_that_side() -> None:
    def value(x: np.ndarray) -> float:
        return -2.0 * math.exp(min(float(x[0]) - 1.0, 50.0))

    found = look(value, [POSITIVE], [-3.0], [[0.0]])
    assert not found.falls_below
    assert found.low == 0.0
    # exp(x - 1) = 0.96 + exp(-4), where the evidence has fallen by 1.92.
    assert found.high == pytest.approx(math.e * 0.98, rel=0.6)
    assert found.high > math.e * 0.95


def test_a_second_optimum_with_another_sign_makes_nothing_flat() -> None:
    def value(x: np.ndarray) -> float:
        w = 0.01 * math.sinh(float(x[0]))
        return -0.5 * ((w * w - 4.0) / 0.1) ** 2

    start = math.asinh(200.0)
    found = look(value, [EITHER], [start], [[(4.0 / 0.1 * 2.0) ** 2]])
    assert found.falls_below
    assert found.falls_above
    assert 1.8 < found.low < 2.0 < found.high < 2.2


def test_wide_intervals_at_other_levels_end_at_infinity_and_not_in_an_error() -> None:
    wide = IdentifiabilityResult(True, "", "profile", (1e-250, 1e250))
    low, high = wide.interval_at(1.0, 0.99) or (1.0, 1.0)
    assert 0.0 <= low < 1e-300
    assert high == math.inf
    half = wide.interval_at(1.0, 0.5) or (1.0, 1.0)
    assert math.log10(half[1]) == pytest.approx(86.0, abs=0.1)
    assert math.log10(half[0]) == pytest.approx(-86.0, abs=0.1)


def graded(
    value: Callable[[np.ndarray], float], x: list[float], curvature: Any, position: int = 0, root: float = 2.0
) -> tuple[ProfileSide, ProfileSide]:
    """Both sides of a profile of positive parameters."""
    point, matrix = np.array(x), np.array(curvature, dtype=float)
    optimum = Optimum(point, value(point), True, "", 1, np.zeros(len(x), dtype=bool))
    made = cast(Objective, Made(value, [POSITIVE] * len(x)))
    pace = math.sqrt(np.linalg.inv(matrix)[position, position])
    return profile_interval(made, optimum, matrix, position, pace, root)


def test_a_profile_gives_intervals_that_do_not_depend_on_the_scale_of_the_search() -> None:
    def value(x: np.ndarray) -> float:
        return -0.5 * ((math.exp(float(x[0])) - 1.0) / 0.4) ** 2

    # Normal in the parameter: so is its interval, though the search has its logarithm.
    below, above = graded(value, [0.0], [[1.0 / 0.4**2]])
    assert not below[1]
    assert not above[1]
    for root in (0.7, 1.6, 2.0):
        assert below[0](root) == pytest.approx(1.0 - 0.4 * root, abs=0.03)
        assert above[0](root) == pytest.approx(1.0 + 0.4 * root, abs=0.03)


@pytest.mark.parametrize("limit", [0.3, 1.0, 2.0])
def test_where_the_evidence_cannot_be_computed_it_is_not_known_to_fall(limit: float) -> None:
    def value(x: np.ndarray) -> float:
        return -0.5 * min(float(x[0]), 0.0) ** 2 if float(x[0]) < limit else -math.inf

    found = look(value, [POSITIVE], [0.0], [[1.0]])
    assert found.falls_below
    assert not found.falls_above
    assert found.high == math.inf
    below, above = graded(value, [0.0], [[1.0]])
    assert not below[1]
    assert above[1]
    # If it has fallen before, the interval ends there.
    assert look(lambda x: value(x) - 8.0 * (float(x[0]) / limit) ** 2, [POSITIVE], [0.0], [[1.0]]).falls_above


def test_a_flat_direction_among_the_others_does_not_end_a_profile() -> None:
    def value(x: np.ndarray) -> float:
        # Of two others that may have either sign, only the product is told, and has to follow.
        product = 1e-4 * math.prod(math.sinh(min(float(each), 300.0)) for each in x[1:])
        return -0.5 * ((float(x[0]) / 0.5) ** 2 + 1e4 * (product - 1.0 - float(x[0]) - 0.5 * float(x[0]) ** 2) ** 2)

    flat = 1e4 * np.outer([1.0, -1.0, -1.0], [1.0, -1.0, -1.0]) + np.diag([4.0, 1e-4, 1e-4])
    for end, is_open, _ in graded(value, [0.0, math.asinh(100.0), math.asinh(100.0)], flat):
        assert not is_open
        assert abs(math.log(end(2.0))) == pytest.approx(1.0, abs=0.05)


def test_what_is_compatible_with_nothing_is_open_below() -> None:
    def value(x: np.ndarray) -> float:
        return -0.5 * ((math.exp(float(x[0])) - 1.0) / 0.6) ** 2

    below, above = graded(value, [0.0], [[1.0 / 0.6**2]])
    assert below[1]
    assert below[0](2.0) == 0.0
    assert below[0](0.7) == pytest.approx(1.0 - 0.7 * 0.6, abs=0.03)
    assert above[0](2.0) == pytest.approx(2.2, abs=0.05)


def test_of_a_sum_that_is_known_both_parts_have_the_interval_that_the_other_leaves() -> None:
    """Masses of a cart and its pendulum: where chance has made the small one large, its curvature tells too much."""

    def value(x: np.ndarray) -> float:
        large, small = math.exp(min(float(x[0]), 50.0)), math.exp(min(float(x[1]), 50.0))
        share = small / (large + small)
        # The farther the share is from nothing, the better it is told.
        told = share**2 / 0.12
        return -0.5 * ((large + small - 1.4) / 0.02) ** 2 - 0.5 * ((told - 0.5**2 / 0.12) / 1.0) ** 2

    point = [math.log(0.7)] * 2
    steps = 1e-4 * np.eye(2)
    made = Made(value, [POSITIVE] * 2)
    curvature = [-(made.evaluate(point + h)[1] - made.evaluate(point - h)[1]) / 2e-4 for h in steps]
    below, above = graded(value, point, curvature, 1, 1.96)
    # share^2 = 0.25 -+ 1.96 * 0.12
    assert below[0](1.96) == pytest.approx(1.4 * math.sqrt(0.25 - 1.96 * 0.12), rel=0.06)
    assert above[0](1.96) == pytest.approx(1.4 * math.sqrt(0.25 + 1.96 * 0.12), rel=0.06)
    # The large one has what is left: there is a wall where the small one is nothing.
    below, above = graded(value, point, curvature, 0, 1.96)
    assert above[0](1.96) == pytest.approx(1.4 * (1.0 - math.sqrt(0.25 - 1.96 * 0.12)), rel=0.06)
    assert below[0](1.96) == pytest.approx(1.4 * (1.0 - math.sqrt(0.25 + 1.96 * 0.12)), rel=0.06)


def fit_line(ratio: float) -> tuple[LODEGP, float, float]:
    """A straight line whose positive slope is so many standard errors, that slope, and its standard error."""
    times, std = np.linspace(0.0, 1.0, 20), 0.1
    lever = times - times.mean()
    error = std / math.sqrt(float(lever @ lever))
    noise = std * np.random.default_rng(0).standard_normal(20)
    noise -= noise.mean() + lever * (lever @ noise) / (lever @ lever)
    system = System("y' = b", parameters={"b": Parameter(positive=True)})
    gp = LODEGP(system, random_state=0).fit(times, {"y": 2.0 + ratio * error * times + noise}, std)
    return gp, ratio * error, error


def test_the_interval_of_a_slope_is_that_of_a_regression_where_its_relative_error_is_large() -> None:
    gp, slope, error = fit_line(3.0)
    estimate = gp.parameters_["b"]
    assert estimate.identified
    assert estimate.value == pytest.approx(slope, rel=0.02)
    for share, deviate in ((0.95, 1.96), (0.5, 0.674)):
        ends = [(edge - slope) / error for edge in gp.intervals(share)["b"]]
        assert ends == pytest.approx([-deviate, deviate], abs=0.08)


def test_a_slope_that_may_as_well_be_nothing_is_bounded_on_one_side() -> None:
    gp, slope, error = fit_line(1.5)
    estimate = gp.parameters_["b"]
    assert not estimate.identified
    assert estimate.interval[0] == 0.0
    assert estimate.interval[1] == pytest.approx(slope + 1.96 * error, rel=0.02)
    assert estimate.note == f"at most {estimate.interval[1]:.3g} (95 %)"
    assert any("b is only bounded" in text for text in gp.warnings_)
    # An interval of 50 % has two ends all the same.
    assert gp.intervals(0.5)["b"][0] == pytest.approx(slope - 0.674 * error, rel=0.1)


def _held_response(force: Array, rate: float, step: float) -> Array:
    """Return x of ``x' = -rate*x + force`` from rest, with the force held over each step."""
    decay, x = math.exp(-rate * step), np.zeros(len(force))
    for k in range(len(force) - 1):
        x[k + 1] = decay * x[k] + (1.0 - decay) / rate * force[k]
    return x


def test_nothing_is_searched_beyond_a_side_on_which_a_profile_does_not_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    """At rest only a/c is determined, so that both intervals are infinite: eight searches took most of the time."""
    generator, t = np.random.default_rng(0), 0.1 * np.arange(30)
    system = lk.System("x' = -c*x + a*u", parameters={name: lk.Parameter(positive=True) for name in "ac"})
    data = {"x": 2.0 + 0.05 * generator.standard_normal(30), "u": np.ones(30)}
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, data)
    monkeypatch.setattr(GlobalSearch, "find_points", None)
    assert not any(found.identified for found in gp.parameters_.values())


@pytest.mark.parametrize(("ratio", "positive"), [(-1.0, False), (-1.0, True), (2.0, True)])
def test_gains_of_proportional_inputs_are_not_identified(ratio: float, positive: bool) -> None:
    """The evidence is constant along one direction: no interval may exclude a point on it."""
    generator = np.random.default_rng(0)
    u = np.repeat(generator.standard_normal(20), 8)
    t, v = 0.1 * np.arange(len(u)), ratio * u
    x = _held_response(u + 0.5 * v, 0.8, 0.1) + 0.02 * generator.standard_normal(len(u))
    gain = lk.Parameter(positive=positive)
    system = lk.System("x' = -c*x + a*u + b*v", parameters={"a": gain, "b": gain, "c": lk.Parameter(positive=True)})
    gp = lk.LODEGP(system, inputs={"u": "hold", "v": "hold"}, random_state=0).fit(t, {"u": u, "v": v, "x": x})
    found = gp.parameters_
    assert not found["a"].identified
    assert not found["b"].identified
    assert found["c"].identified
    # Any a with the same a + ratio * b fits as well; positive gains with a positive ratio are bounded by their sum.
    total = found["a"].value + ratio * found["b"].value
    for share in (0.02, 0.98) if positive and ratio > 0.0 else (-20.0, 20.0) if not positive else (1.01, 30.0):
        a = share * total
        b = (total - a) / ratio
        assert found["a"].interval[0] <= a <= found["a"].interval[1]
        assert found["b"].interval[0] <= b <= found["b"].interval[1]
    combination = {1.0: "a + b", -1.0: "a - b", 2.0: "a + 2*b"}[ratio]
    assert any(f"only {combination} is determined" in text for text in gp.warnings_)


@pytest.mark.parametrize("ratio", [1.0, 1.37])
def test_combinations_are_told_if_they_are_simple_and_the_evidence_is_constant(ratio: float) -> None:
    def value(x: np.ndarray) -> float:
        return -50.0 * (float(x[0] + ratio * x[1]) - 1.0) ** 2 - 50.0 * float(x[2]) ** 2

    def shifted(x: np.ndarray) -> float:
        return value(x) - 20.0 * min(abs(float(x[0] - x[1])), 0.5) ** 2

    x = np.array([0.6, 0.4 / ratio, 0.0])
    optimum = Optimum(x, 0.0, True, "", 1, np.zeros(3, dtype=bool))
    curvature = np.diag([0.0, 0.0, 100.0]) + 100.0 * np.outer([1.0, ratio, 0.0], [1.0, ratio, 0.0])
    found = find_flat_combinations(cast(Objective, Made(value, [POSITIVE] * 3)), optimum, curvature)
    # The logarithms have a constant sum; the third parameter is known, and is not mentioned.
    assert found == ({"a": ("a*b",), "b": ("a*b",)} if ratio == 1.0 else {})
    assert not find_flat_combinations(cast(Objective, Made(shifted, [POSITIVE] * 3)), optimum, curvature)


def test_combinations_are_kept_in_a_file() -> None:
    result = IdentifiabilityResult(False, "", "flat", combinations=("a + b",))
    assert IdentifiabilityResult.from_dict(json.loads(json.dumps(asdict(result)))) == result


def test_a_constant_input_does_not_bound_its_gain() -> None:
    t, generator = np.linspace(0.0, 20.0, 100), np.random.default_rng(0)
    generator.standard_normal(100)
    y = 1.5 - 0.5 * np.exp(-t / 3.0) + 0.01 * generator.standard_normal(100)
    parameters = {"tau": lk.Parameter(positive=True), "K": lk.Parameter(positive=True), "y0": lk.Parameter()}
    gp = lk.LODEGP(lk.System("tau*y' + y - y0 = K*u", parameters=parameters), inputs={"u": "hold"}, random_state=0)
    gp.fit(t, {"u": np.ones(100), "y": y})
    assert gp.parameters_["tau"].identified
    assert gp.parameters_["K"].interval[1] == math.inf
    assert gp.parameters_["y0"].interval[0] == -math.inf


def test_an_interval_of_a_profile_is_widened_at_every_level() -> None:
    """Correlated residuals multiply the quantile; the usual 95 % is no exception."""
    ladder = tuple((q, 2.0 * math.exp(-0.2 * q), 2.0 * math.exp(0.2 * q)) for q in (0.7, 1.65, 1.96, 2.6, 3.3))
    verdict = IdentifiabilityResult(True, "", "profile", ladder[2][1:], ladder)
    assert verdict.interval_at(2.0, 0.95) == ladder[2][1:]
    wider = 2.0 * math.exp(-1.4), 2.0 * math.exp(1.4)
    assert verdict.interval_at(2.0, 0.95, 7.0) == pytest.approx(wider)
    assert verdict.interval_at(2.0, 0.9, 7.0) == pytest.approx(wider)


def test_a_bound_on_one_side_is_stated_as_it_is_widened_for_correlated_residuals() -> None:
    generator, times = np.random.default_rng(2), 0.1 * np.arange(60)
    u, y, error = (times % 2.0 > 1.0) * 1.0, np.zeros(60), np.zeros(60)
    rate, decay = 0.02, math.exp(-0.002)
    for k in range(59):
        y[k + 1] = decay * y[k] + (1.0 - decay) / rate * u[k]
        error[k + 1] = 0.8 * error[k] + 0.05 * generator.standard_normal()
    system = System("y' = -a*y + c*u", parameters={"a": Parameter(positive=True), "c": Parameter()})
    gp = LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(times, {"y": y + error, "u": u})
    found = gp.parameters_["a"]
    assert gp.fit_.diagnosis.widening["a"] > 1.5
    assert found.note == f"at most {found.interval[1]:.3g} (95 %)"
    assert any(found.note in text for text in gp.warnings_)


def test_a_profile_that_falls_like_a_cliff_ends_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No point near the end of the interval may be found; then the path would seem to have no end."""
    surface = SimpleNamespace(optimum_point=np.zeros(1), relative_value=lambda x: -1.6 if x[0] < 0.15 else -100.0)
    monkeypatch.setattr(profiles, "profile_point", lambda _, x, position, target, path, retry: np.array([target]))
    path: list[Any] = [(surface.optimum_point, 0.0)]
    found = profiles.trace_profile(surface, 0, lambda move: move, 0.1, 2.0, 3.0, path)  # type: ignore[arg-type]
    assert found[-1][0] == 2.0
    assert 0.14 < found[-2][1] < 0.15 < found[-1][1] < 0.16
    assert path[-1][1] == -100.0
    assert path[-1][0][0] == found[-1][1]
