"""Start values from the data: each way finds what it is made for, whatever the units."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

import lodekit as lk
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements, merge_observations
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup
from lodekit.fitting.starts.candidates import collect_guesses, estimate_correlation_time
from lodekit.fitting.starts.input_output import derive_input_output_equations
from lodekit.fitting.starts.undriven import find_damped_oscillations, fit_oscillations
from lodekit.fitting.starts.weak_form import bump_quadrature, fit_weak_form

SEED = 0
PUSHED = lk.System("y'' = K*u + c", parameters=["K", "c"])


def set_up(system: lk.System, data: lk.Observations) -> tuple[FitSetup, list[TimeSeries]]:
    measurements = Measurements(merge_observations(data))
    return build_setup(system, FitSettings(), measurements), measurements.decimated_series()


def pushed_mass(time: float = 1.0, place: float = 1.0) -> lk.Observations:
    """Return y'' = 4 u - 1 with a stepped u whose mean cancels the constant, 2 % noise."""
    generator = np.random.default_rng(SEED)
    t = np.linspace(0.0, 40.0, 400)
    u = 0.25 + np.repeat(generator.uniform(-1, 1, 20), 20)
    y = np.cumsum(np.cumsum(4.0 * u - 1.0)) * (t[1] - t[0]) ** 2
    y, u = (values + 0.02 * values.std() * generator.standard_normal(400) for values in (y, u))
    return lk.Observations().add(t * time, "y", y * place).add(t * time, "u", u)


@pytest.mark.parametrize(("time", "place"), [(1.0, 1.0), (86400.0, 1e-6), (1e-9, 1e3)])
def test_the_weak_form_tells_a_double_integrator_in_any_unit(time: float, place: float) -> None:
    setup, series = set_up(PUSHED, pushed_mass(time, place))
    equations = derive_input_output_equations(setup.system, [series], setup.layout)
    best = fit_weak_form(equations, setup.layout, np.random.default_rng(SEED))[0]
    assert best / (place / time**2) == pytest.approx([4.0, -1.0], rel=0.2)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_integrals_over_bumps_are_those_of_straight_lines_between_values(order: int) -> None:
    generator = np.random.default_rng(SEED)
    times, values = np.sort(generator.uniform(0, 10, 25)), generator.standard_normal(25)
    centre, width, power = 5.0, 3.0, 5
    bump = np.polynomial.Polynomial([1.0, 0.0, -1.0]) ** power
    shape = bump.deriv(order) if order else bump

    def integrand(t: float) -> float:
        return float(np.interp(t, times, values) * shape((t - centre) / width) / width**order)

    corners = [t for t in times if abs(t - centre) < width]
    edges = [centre - width, *corners, centre + width]
    expected = sum(quad(integrand, a, b)[0] for a, b in pairwise(edges))
    found = bump_quadrature(times, np.array([centre]), width, power, order) @ values
    assert found[0] == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_hidden_channels_and_measured_derivatives_are_eliminated() -> None:
    t = np.linspace(0, 5, 40)
    circuit = lk.System("L*i' + R*i + v = u; C*v' = i", parameters=["L", "R", "C"])
    data = lk.Observations().add(t, "i", np.sin(t)).add(t, "u", np.cos(t))
    setup, series = set_up(circuit, data)
    (equations,) = derive_input_output_equations(circuit, [series], setup.layout)
    assert equations.n_equations == 1
    assert sorted(item.observable for item in equations.series) == ["i", "u"]
    assert [setup.layout.names[k] for k in equations.parameter_indices] == list(setup.layout.names)
    ringing = lk.System("x'' + c*x' + k*x = 0", parameters=["c", "k"])
    setup, series = set_up(ringing, lk.Observations().add(t, "x''", np.sin(t)).add([0.0], "x", [0.0], 0.1))
    (equations,) = derive_input_output_equations(ringing, [series], setup.layout)
    assert [item.observable for item in equations.series] == ["x''"]
    assert equations.max_order(0) == 2


def test_a_record_whose_series_share_no_time_takes_nothing_from_others() -> None:
    early, late = np.linspace(0.0, 1.0, 8), np.linspace(2.0, 3.0, 8)
    system = lk.System("x' = a*y", parameters=["a"])
    setup, _ = set_up(system, lk.Observations().add(early, "x", early).add(early, "y", np.ones(8)))
    x, y = (TimeSeries(name, early, early, np.full(8, np.nan)) for name in ("x", "y"))
    apart = TimeSeries("y", late, late, np.full(8, np.nan))
    (found,) = derive_input_output_equations(system, [[x, apart], [x, y]], setup.layout)
    assert found.window == (0.0, 1.0)


@pytest.mark.parametrize(("periods", "points"), [(11, 40), (22, 120), (100, 350)])
@pytest.mark.parametrize("regular", [True, False])
def test_oscillations_are_found_over_many_periods(periods: int, points: int, regular: bool) -> None:
    generator = np.random.default_rng(periods)
    t = np.linspace(0, periods, points) if regular else np.sort(generator.uniform(0, periods, points))
    x = np.exp(-t / periods) * np.sin(2 * np.pi * t + 1.0)
    x += 0.05 * x.std() * generator.standard_normal(points)
    (rate,) = find_damped_oscillations(TimeSeries("x", t, x, np.full(points, np.nan)), 1)
    assert rate.imag == pytest.approx(2 * np.pi, abs=0.3 / periods)
    assert rate.real == pytest.approx(-1.0 / periods, abs=0.5 / periods)
    setup, series = set_up(lk.System("x'' + c*x' + k*x = 0", parameters=["c", "k"]), lk.Observations().add(t, "x", x))
    guess = fit_oscillations(setup.prior, series, setup.layout, np.random.default_rng(SEED))[0]
    assert guess[list(setup.layout.names).index("k")] == pytest.approx((2 * np.pi) ** 2, rel=0.5 / periods)


def test_two_oscillations_of_two_masses_tell_both_springs_up_to_another_pair() -> None:
    text = "m1*x1'' = -k1*x1 + k2*(x2 - x1); m2*x2'' = -k2*(x2 - x1)"
    fixed = {"m1": lk.Parameter(fixed=1.0), "m2": lk.Parameter(fixed=1.0)}
    system = lk.System(text, parameters={**fixed, "k1": lk.Parameter(positive=True), "k2": lk.Parameter(positive=True)})
    t = np.linspace(0, 30, 200)
    values, vectors = np.linalg.eigh(np.array([[7.0, -2.0], [-2.0, 2.0]]))
    x = np.cos(np.sqrt(values) * t[:, None]) @ (vectors * vectors[0]).T
    setup, series = set_up(system, lk.Observations().add(t, "x1", x[:, 0]).add(t, "x2", x[:, 1]))
    found = fit_oscillations(setup.prior, series, setup.layout, np.random.default_rng(SEED))
    # Squares of frequencies have the product k1 k2 and the sum k1 + 2 k2: springs of 5 and 2, or of 4 and 2.5.
    springs = [guess[2:] for guess in found]
    assert any(np.allclose([k1 * k2, k1 + 2 * k2], [10.0, 9.0], rtol=0.02) for k1, k2 in springs)


def test_driven_systems_have_no_oscillations_of_their_own_to_look_for() -> None:
    setup, series = set_up(PUSHED, pushed_mass())
    assert fit_oscillations(setup.prior, series, setup.layout, np.random.default_rng(SEED)) == []


def test_blind_guesses_are_always_there_and_what_users_say_is_kept() -> None:
    system = lk.System("y'' = K*u + c", parameters={"K": lk.Parameter(), "c": lk.Parameter(start=7.0)})
    setup, series = set_up(system, pushed_mass())
    guesses = collect_guesses(system, setup.objective, [series], np.random.default_rng(SEED))
    assert {guess.family for guess in guesses} == {"weak", "smoothed", "blind"}
    assert all(guess.theta[list(setup.layout.names).index("c")] == 7.0 for guess in guesses)


def test_a_guess_that_does_nothing_has_a_sensible_one_beside_it() -> None:
    # Too light to be seen: least squares say that it weighs nothing, where no search finds back.
    t = np.linspace(0, 8, 60)
    system = lk.System("m*x'' + c*x' + x = u", parameters=dict.fromkeys("mc", lk.Parameter(positive=True)))
    x = np.sin(t)
    setup, series = set_up(system, lk.Observations().add(t, "x", x).add(t, "u", x + 0.5 * np.cos(t)))
    guesses = collect_guesses(system, setup.objective, [series], np.random.default_rng(SEED))
    far = {
        guess.family: min(
            max(abs(each.inverse(other.theta[n]) - each.centre) for n, each in setup.layout.transforms.items())
            for other in guesses
            if other.family == guess.family
        )
        for guess in guesses[:-1]
    }
    assert max(far.values()) < 5.01


def test_fast_changes_are_seen() -> None:
    t = np.linspace(0, 100, 2000)
    fast = TimeSeries("y", t, np.sin(2 * np.pi * 2.0 * t), np.full(2000, np.nan))
    assert estimate_correlation_time([fast]) == pytest.approx(0.92 / (4 * np.pi), rel=0.1)
    assert estimate_correlation_time([]) == np.inf


@pytest.mark.parametrize("period", [12.0, 100.0, 4000.0])
def test_fast_and_slow_changes_of_long_records_are_seen(period: float) -> None:
    t, none = np.arange(210_000.0), np.full(210_000, np.nan)
    long = TimeSeries("y", t, np.sin(2 * np.pi / period * t), none)
    assert estimate_correlation_time([long]) == pytest.approx(0.92 * period / (2 * np.pi), rel=0.1)
