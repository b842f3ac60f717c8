"""Other values that fit about as well are told: aliases, and places where other searches have ended."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import lodekit as lk
from lodekit.diagnostics.diagnosis import find_undersampled_parameters, is_noise_free, is_undersampled
from lodekit.diagnostics.equivalent_parameters import find_alternative_optima, find_common_sampling_step
from lodekit.fitting.starts.weak_form import build_delay_grid

STEP, SPEED = 1.0, 2.3


def ringing(count: int, step: float) -> lk.LODEGP:
    """Return a fit of a free oscillation, measured with little noise."""
    t = step * np.arange(count)
    x = np.cos(SPEED * t + 0.3) + 0.02 * np.random.default_rng(1).standard_normal(count)
    system = lk.System("x'' + k*x = 0", parameters={"k": lk.Parameter(positive=True)})
    return lk.LODEGP(system, random_state=0).fit(t, x)


@pytest.fixture(scope="module")
def coarse() -> lk.LODEGP:
    """Return one with fewer than three measurements in each period."""
    return ringing(6, STEP)


def test_an_oscillation_that_is_a_turn_faster_in_each_step_is_told(coarse: lk.LODEGP) -> None:
    (rival,) = coarse.fit_.diagnosis.alternatives
    estimate = coarse.parameters_["k"]
    # At multiples of the step both oscillations have the same values: their speeds add up to a whole turn.
    assert np.sqrt(estimate.value) + np.sqrt(rival.values["k"]) == pytest.approx(2 * np.pi / STEP, abs=0.05)
    assert not estimate.identified
    # Nor is any number of turns more in each step excluded.
    for turns in (0, 1, 2, 100):
        for speed in (turns * 2 * np.pi / STEP + SPEED, (turns + 1) * 2 * np.pi / STEP - SPEED):
            assert estimate.interval[0] < speed**2 < estimate.interval[1]
    assert any("multiples of one step" in text for text in coarse.warnings_)
    assert any(f"k = {rival.values['k']:.4g}" in text for text in coarse.warnings_)


def test_times_that_differ_by_rounding_are_one() -> None:
    """As those of three channels, of which one counts steps, one adds them up, and one divides the record."""
    counted = 0.1 * np.arange(30.0)
    every = np.concatenate([counted, np.cumsum(np.full(30, 0.1)) - 0.1, np.linspace(0.0, 2.9, 30)])
    assert np.median(np.diff(np.unique(every))) < 1e-9
    assert find_common_sampling_step([every]) == pytest.approx(0.1)
    np.testing.assert_allclose(build_delay_grid(every), build_delay_grid(counted))
    assert is_undersampled(np.array([0.14]), [every])


def test_bands_hold_the_curve_of_the_rival_where_it_is_another(coarse: lk.LODEGP) -> None:
    (rival,) = coarse.fit_.diagnosis.alternatives
    times = np.array([0.0, 0.5, 1.5])
    mean, std = coarse.predict(times, "x", return_std=True)
    posterior = coarse.fit_.setup.engine.posterior(coarse.fit_.layout.unpack(np.array(rival.point)))
    apart = np.abs(posterior.mean(coarse.fit_.observables(["x"]), times)[:, 0] - mean)
    _, fixed = coarse.predict(times, "x", return_std=True, parameters="fixed")
    # Two curves that are as likely as each other have half their distance, squared, for a variance, or a little more.
    assert (std[1:] > 0.6 * apart[1:]).all()
    assert (apart[1:] > 5 * fixed[1:]).all()
    assert apart[0] < 0.05
    assert std[0] < 0.05


def test_rivals_are_kept_in_a_file(coarse: lk.LODEGP, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("kept") / "fit.lodegp"
    coarse.save(path)
    again = lk.LODEGP.load(path)
    assert again.fit_.diagnosis.alternatives == coarse.fit_.diagnosis.alternatives
    assert again.parameters_["k"] == coarse.parameters_["k"]
    assert again.warnings_ == coarse.warnings_


def test_where_a_search_has_ended_elsewhere_and_as_high_is_a_rival(coarse: lk.LODEGP) -> None:
    fit = coarse.fit_
    (alias,) = fit.diagnosis.alternatives
    met = (fit.optimum.value - alias.below, np.array(alias.point))
    here = (fit.optimum.value, fit.optimum.x + 1e-3)
    low = (fit.optimum.value - 30.0, np.array(alias.point))
    for others, count in (((met, here), 1), ((here,), 0), ((low,), 0), ((met, met), 1)):
        # Without times there are no aliases.
        found = find_alternative_optima(
            fit.setup.objective, replace(fit.optimum, other_optima=others), fit.corrected_information, []
        )
        assert len(found) == count
        assert not any(rival.is_alias for rival in found)


def test_with_more_measurements_in_a_period_nobody_hears_of_faster_ones() -> None:
    dense = ringing(12, 0.7)
    assert dense.parameters_["k"].identified
    assert not dense.fit_.diagnosis.alternatives
    assert abs(np.sqrt(dense.parameters_["k"].value) - SPEED) < 0.05


def test_data_are_exact_and_unresolved_where_both_noise_and_lengthscale_are_small() -> None:
    t = np.arange(8.0)
    examined = lk.LODEGP(lk.System("x' = v"), random_state=0).fit(t, {"x": np.sin(t)}).fit_
    place = examined.layout.slices.lengthscales
    for length, level, expected in ((1.0, 1e-9, True), (1.0, 1e-2, False), (2.0, 1e-9, False)):
        x = examined.optimum.x.copy()
        x[place] = np.log(length / 7.0)
        moved = replace(examined.optimum, x=x)
        assert is_noise_free(examined.setup, moved, {"x": level}.__getitem__, [t]) is expected


def test_what_is_unresolved_depends_on_the_longest_lengthscale_and_on_what_is_measured() -> None:
    t = np.arange(10.0)
    assert is_undersampled(np.array([1.4, 0.1]), [t])
    assert not is_undersampled(np.array([1.4, 1.6]), [t])
    assert not is_undersampled(np.zeros(0), [t])
    assert not is_undersampled(np.array([0.1]), [])
    system = lk.System("x' = -a*x; y = b*x", parameters=["a", "b"])
    assert find_undersampled_parameters(system, ["x", "y"]) == ["a"]
    assert find_undersampled_parameters(system, ["x", "x'", "y"]) == []
    assert find_undersampled_parameters(system, ["x"]) == ["a", "b"]


def test_exchanged_values_lead_to_the_advice_to_bound_one_of_them() -> None:
    """Two lags in series describe the same plant if their names are exchanged."""
    t = np.arange(0.0, 60.0, 0.5)
    u = t // 8 % 2
    y = np.zeros(len(t))
    slow = fast = 0.0
    for k in range(len(t) - 1):
        # Each lag is exact for an input that is held; the second one averages the first one over the step.
        new = u[k] + (slow - u[k]) * np.exp(-0.1)
        fast += (0.5 * (slow + new) - fast) * (1.0 - np.exp(-0.25))
        slow, y[k + 1] = new, fast
    y += 0.01 * np.random.default_rng(0).standard_normal(len(t))
    free = lk.Parameter(positive=True)
    system = lk.System("p*q*y'' + (p + q)*y' + y = u", parameters={"p": free, "q": free})
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": u})
    (warning,) = (text for text in gp.warnings_ if "other values" in text or "exchange" in text)
    name = max(gp.parameters_, key=lambda each: gp.parameters_[each].value)
    match = re.fullmatch(rf"p and q can exchange .* bound one of them, for example {name} > (.*), to .*", warning)
    assert match is not None
    low, high = sorted(each.value for each in gp.parameters_.values())
    assert low < float(match[1]) < high
    system = lk.System(system.equations[0], parameters={name: lk.Parameter(bounds=(3.0, 1e3)), "pq".strip(name): free})
    bounded = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": u})
    assert not bounded.warnings_
    assert bounded.parameters_[name].interval[0] > float(match[1])
