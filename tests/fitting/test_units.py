"""Fits do not depend on the units of time and of the channels, and "not identified" is said of what is not."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.records import Measurements
from lodekit.fitting.newton import snap_to_bounds
from lodekit.fitting.parameter_vector import ParameterLayout, ParameterTransform
from lodekit.fitting.scaling import solve_balance_equations


@cache
def decay(factor: float, equations: str, names: str) -> lk.LODEGP:
    """Return a fit of a free oscillation, with time in another unit."""
    times = np.linspace(0, 60, 60)
    values = np.exp(-0.02 * times) * np.sin(2 * np.pi * times / 20)
    values += 0.01 * np.random.default_rng(0).standard_normal(60)
    system = lk.System(equations, parameters=list(names))
    return lk.LODEGP(system, random_state=0).fit(factor * times, {"x": values})


@pytest.mark.parametrize("factor", [86400.0, 1e4, 1e-6])
@pytest.mark.parametrize(("equations", "names"), [("x'' + c*x' + k*x = 0", "ck"), ("x'' + k*x = 0", "k")])
def test_another_unit_of_time_gives_the_same_fit(factor: float, equations: str, names: str) -> None:
    first, other = decay(1.0, equations, names), decay(factor, equations, names)
    assert other.log_evidence_ == pytest.approx(first.log_evidence_, abs=1e-6)
    for name, order in (("c", 1), ("k", 2)):
        if name in names:
            value = other.parameters_[name].value * factor**order
            assert value == pytest.approx(first.parameters_[name].value, rel=1e-6)
            assert other.parameters_[name].identified
    # The period is 20: that is what the data were made with.
    assert first.parameters_["k"].value == pytest.approx((2 * np.pi / 20) ** 2, rel=0.02)


def test_other_units_of_channels_give_the_same_fit() -> None:
    example, times = lk.catalog.coupled_tanks(), np.linspace(0, 8, 30)
    exact = example.solution_at(times)
    data = exact + 0.02 * exact.std(axis=0) * np.random.default_rng(1).standard_normal(exact.shape)
    scales = {"h1": 1e-6, "h2": 1e-6, "q": 1e5}
    own = np.array([scales[name] for name in example.system.channels])
    first, other = (
        lk.LODEGP(example.system, noise="channel", random_state=0).fit(times, data * factors)
        for factors in (np.ones(3), own)
    )
    # All four are flows over levels, two of them times time.
    for name in example.values:
        assert other.parameters_[name].value * 1e-6 / 1e5 == pytest.approx(first.parameters_[name].value, rel=1e-6)
    assert other.log_evidence_ + 30 * np.log(own).sum() == pytest.approx(first.log_evidence_, abs=1e-5)


def test_sizes_follow_from_equations_and_data() -> None:
    system = lk.System("y'' = K*u + c", parameters=["K", "c"])
    times = np.linspace(0, 80, 50)
    data = lk.Observations().add(times, "y", 1e3 * np.sin(times)).add(times, "u", 5.0 + 1e-2 * np.cos(times))
    summaries = Measurements.from_observations(data).observable_statistics
    found = solve_balance_equations(system, summaries, 80.0)
    K, c = found["K"], found["c"]
    y, u = (item.scale for item in summaries)
    assert pytest.approx(y / u / 100.0) == K
    # A constant balances the mean of the input, 5, and not its changes.
    assert c == pytest.approx(5.0 * K, rel=0.01)


def test_hidden_channels_get_the_size_that_the_equations_give_them() -> None:
    system = lk.System("x' = v; m*v' = F - c*v", parameters={"m": lk.Parameter(fixed=1e6), "c": lk.Parameter()})
    times = np.linspace(0, 8, 30)
    data = lk.Observations().add(times, "x", np.sin(times)).add(times, "F", 1e6 * np.cos(times))
    found = solve_balance_equations(system, Measurements.from_observations(data).observable_statistics, 8.0)
    m, c = found["m"], found["c"]
    # Sine and cosine differ a little in their spread here.
    assert m == pytest.approx(1e6)
    assert c == pytest.approx(1e6, rel=0.1)


def test_guesses_lie_around_the_size_to_expect() -> None:
    generator = np.random.default_rng(0)
    for transform in (ParameterTransform(0.0, np.inf, 1e-9), ParameterTransform(-np.inf, np.inf, 1e-9)):
        layout = ParameterLayout(("a",), np.array([np.nan]), {0: transform}, 0, 0, 0)
        found = [abs(layout.draw_starts([0], attempt, generator)[0]) for attempt in range(20)]
        assert 1e-8 < min(found) < max(found) < 1e-6


def oscillation(positive: bool) -> lk.System:
    return lk.System("x'' + c*x' + k*x = 0", parameters={n: lk.Parameter(positive=positive) for n in "ck"})


@pytest.mark.parametrize("positive", [False, True])
def test_data_without_noise_determine_their_parameters(positive: bool) -> None:
    times = np.linspace(0, 10, 40)
    values = np.exp(-0.25 * times) * np.cos(np.sqrt(4 - 0.0625) * times)
    gp = lk.LODEGP(oscillation(positive), random_state=0).fit(times, {"x": values})
    for name, truth in (("c", 0.5), ("k", 4.0)):
        estimate = gp.parameters_[name]
        assert estimate.identified
        assert estimate.interval[0] < truth < estimate.interval[1]
        assert estimate.std_error < 1e-4
    assert gp.converged_


def test_data_without_noise_determine_the_parameters_of_a_driven_system() -> None:
    example, times = lk.catalog.heating(), np.linspace(0, 10, 40)
    gp = lk.LODEGP(example.system, random_state=0).fit(times, example.solution_at(times))
    for name, truth in example.values.items():
        estimate = gp.parameters_[name]
        assert estimate.identified
        assert abs(estimate.value - float(truth)) < 5 * estimate.std_error < 1e-3


@pytest.mark.parametrize(
    ("times", "known"), [([1.0], None), ([1.0], 0.01), ([1.0, 1.0, 1.0], None)], ids=["once", "known", "thrice"]
)
def test_one_single_time_determines_no_rate(times: list[float], known: float | None) -> None:
    system = lk.System("x' = -a*x + u", parameters=["a"])
    data = {name: np.full(len(times), 2.0) for name in ("x", "u")}
    gp = lk.LODEGP(system, random_state=0).fit(times, data, noise_std=known)
    assert not gp.parameters_["a"].identified
    assert any("not identified" in warning for warning in gp.warnings_)


def test_channels_that_two_inputs_drive_are_not_forced_to_zero() -> None:
    """At equal values of all parameters b11*b22 - b12*b21 vanishes, and the inputs are forced; nowhere else."""
    system = lk.System(
        "y1' + p1*y1 = b11*u1 + b12*u2; y2' + p2*y2 = b21*u1 + b22*u2",
        parameters=["p1", "p2", "b11", "b12", "b21", "b22"],
    )
    t = np.linspace(0, 10, 30)
    y1, y2 = np.sin(t), np.cos(0.7 * t)
    r1, r2 = np.cos(t) + y1, -0.7 * np.sin(0.7 * t) + 0.5 * y2
    # Solved for the inputs, with p = (1, 0.5) and b = ((2, 0.5), (0.3, -1.2)).
    u1, u2 = np.linalg.solve(np.array([[2.0, 0.5], [0.3, -1.2]]), np.stack([r1, r2]))
    noise = 0.01 * np.random.default_rng(0).standard_normal((4, 30))
    data = dict(zip(("y1", "y2", "u1", "u2"), np.stack([y1, y2, u1 + 3.0, u2]) + noise, strict=True))
    gp = lk.LODEGP(system, random_state=0, restarts=1).fit(t, data)
    assert np.isfinite(gp.log_evidence_)


def test_what_is_best_at_its_bound_is_put_there_however_close_a_search_came() -> None:
    t = np.linspace(0.0, 6.0, 40)
    x = np.cos(2.0 * t) * np.exp(0.01 * t) + 0.01 * np.random.default_rng(0).standard_normal(40)
    positive = {"c": lk.Parameter(positive=True), "k": lk.Parameter(positive=True)}
    fit = lk.LODEGP(lk.System("x'' + c*x' + k*x = 0", parameters=positive), random_state=0).fit(t, {"x": x}).fit_
    objective, place = fit.setup.objective, fit.layout.index_of("c")
    size = fit.layout.transforms[0].expected_magnitude
    ends = []
    for share in (1e-15, 3e-11, 2e-8):
        point = fit.optimum.x.copy()
        point[place] = np.log(share * size)
        free = replace(fit.optimum, x=point, value=objective.value(point), at_bound=np.zeros(len(point), dtype=bool))
        ends.append(snap_to_bounds(objective, free))
    assert all(end.at_bound.tolist() == [k == place for k in range(len(end.x))] for end in ends)
    assert ends[0].x == pytest.approx(ends[1].x)
    assert ends[0].x == pytest.approx(ends[2].x)
    # The stiffness is needed: next to zero is no place for it, and nothing pretends that it is one.
    needed = fit.layout.index_of("k")
    point = fit.optimum.x.copy()
    point[needed] = np.log(1e-8 * fit.layout.transforms[1].expected_magnitude)
    steep = replace(fit.optimum, x=point, value=fit.optimum.value, at_bound=np.zeros(len(point), dtype=bool))
    assert not snap_to_bounds(objective, steep).at_bound[needed]


@pytest.mark.parametrize("factor", [1e-15, 1e15])
def test_dead_times_and_rates_of_known_functions_have_no_absolute_threshold(factor: float) -> None:
    times, late = np.linspace(0.0, 30.0, 61), 1.3
    u = np.where(np.sin(0.5 * times) + 0.3 * np.sin(1.7 * times) > 0, 1.0, 0.0)
    y = 1.5 * u[0] * np.where(times > late, 1.0 - np.exp(np.minimum(late - times, 0.0) / 2.0), 0.0)
    for start, step in zip(times[1:], np.diff(u), strict=True):
        y += 1.5 * step * (1.0 - np.exp(np.minimum(start + late - times, 0.0) / 2.0))
    y += 0.01 * np.random.default_rng(0).standard_normal(61)
    system = lk.System(
        "tau*y' + y = K*delay(u, T)", parameters={name: lk.Parameter(positive=True) for name in ("tau", "K", "T")}
    )
    first, other = (
        lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(unit * times, {"y": y, "u": u})
        for unit in (1.0, factor)
    )
    assert other.log_evidence_ == pytest.approx(first.log_evidence_, abs=1e-6)
    assert not other.warnings_
    for name, unit in (("tau", factor), ("K", 1.0), ("T", factor)):
        found, expected = other.parameters_[name], first.parameters_[name]
        assert found.value == pytest.approx(unit * expected.value, rel=1e-6)
        assert found.interval == pytest.approx([unit * limit for limit in expected.interval], rel=1e-3)
    summaries = Measurements.from_observations(lk.Observations().add(times, "y", y)).observable_statistics
    decaying = lk.System("y' = b*exp(-t/tau)", parameters=["b", "tau"])
    sizes = [solve_balance_equations(decaying, summaries, unit)["tau"] for unit in (1.0, factor)]
    assert sizes[1] == pytest.approx(factor * sizes[0], rel=1e-6)
