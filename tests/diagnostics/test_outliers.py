"""Values far from the curve, all alone, are named; heavy tails, missed stretches and rounding are not."""

import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.time_reference import TimeReference
from lodekit.diagnostics.diagnosis import Diagnosis
from lodekit.diagnostics.messages import outlier_warnings
from lodekit.diagnostics.residual_tests import find_outliers

T = np.arange(60.0)
U = np.repeat([0.0, 2.0, 1.0, 3.0, 0.0, 2.0], 10)


def plant() -> np.ndarray:
    """Return what a first-order lag of 5 with a gain of 2 measures under U, with noise of 0.05."""
    y = np.zeros(len(T))
    for k in range(len(T) - 1):
        y[k + 1] = y[k] + (1 - np.exp(-0.2)) * (2 * U[k] - y[k])
    return y + 0.05 * np.random.default_rng(0).standard_normal(len(T))


def look(residuals: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Return what is found among residuals of a signal that goes from 0 to 10."""
    n = len(residuals)
    return find_outliers(np.arange(float(n)), np.linspace(0.0, 10.0, n), residuals, np.ones(n))


@pytest.fixture(scope="module")
def off() -> lk.LODEGP:
    """Return a fit of a record with one value that is off by 60 deviations."""
    system = lk.System("tau*y' + y = K*u", parameters={name: lk.Parameter(positive=True) for name in ("tau", "K")})
    y = plant()
    y[33] += 3.0
    return lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(T, {"y": y, "u": U})


def test_a_fit_names_the_one_value_that_is_off(off: lk.LODEGP) -> None:
    said = [text for text in off.warnings_ if "standard deviations away from" in text]
    assert len(said) == 1
    assert said[0].startswith("the value of y at t = 33 is ")
    assert off.warnings_[0] == said[0]


def test_what_was_found_is_still_known_when_a_model_is_read(off: lk.LODEGP) -> None:
    found = off.fit_.diagnosis
    again = Diagnosis.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.checks[0].outliers == found.checks[0].outliers != ()


def test_the_same_record_without_it_is_not_blamed() -> None:
    assert look(np.random.default_rng(0).standard_normal(60)) == ()


def test_distances_do_not_know_what_is_off() -> None:
    rng = np.random.default_rng(1)
    residuals = rng.standard_normal(2000)
    residuals[[5, 700, 701]] = 30.0, -999.0, -999.0
    found = dict(look(residuals))
    assert sorted(found) == [5.0, 700.0, 701.0]
    assert found[5.0] == pytest.approx(30.0, rel=0.1)
    assert found[700.0] == pytest.approx(999.0, rel=0.1)


@pytest.mark.parametrize("freedom", [5, 30])
def test_mildly_heavy_tails_are_noise(freedom: int) -> None:
    rng = np.random.default_rng(2)
    alarms = sum(bool(look(rng.standard_t(freedom, 200))) for _ in range(300))
    assert alarms <= 9


def test_a_stretch_that_the_curve_misses_is_no_slip() -> None:
    noise = np.random.default_rng(3).standard_normal(300)
    t = np.arange(300.0)
    assert look(noise + 40.0 * np.exp(-np.maximum(t - 100.0, 0.0) / 4.0) * (t >= 100)) == ()


def test_rounding_is_too_small_to_matter() -> None:
    residuals = 1e-12 * np.random.default_rng(4).standard_normal(100)
    residuals[50] = 1e-9
    assert look(residuals) == ()
    residuals[50] = 1.0
    assert len(look(residuals)) == 1


@pytest.mark.parametrize("count", [0, 1, 5])
def test_few_residuals_have_no_scale(count: int) -> None:
    assert look(np.r_[np.zeros(count), 1.0][:count]) == ()


def test_residuals_that_are_all_zero_but_one_have_no_scale() -> None:
    assert look(np.r_[np.zeros(50), 1.0]) == ()


def test_many_are_counted_and_not_all_named() -> None:
    far = [(4.0, 90.0), (9.0, 80.0), (1.0, 70.0), (2.0, 60.0), (3.0, 50.0)]
    (text,) = outlier_warnings({"x": (), "y": far}, TimeReference(unit="s"))
    assert text.startswith("the values of y at t = 1, 4 and 9 s (and at 2 more times) are 50 to 90 standard deviations")
    assert "leave them out" in text
    (text,) = outlier_warnings({"y": far[:1]}, TimeReference(datetime(2026, 3, 1, 12), "h"))
    assert text.startswith("the value of y at 2026-03-01 16:00 is 90 standard deviations")


def test_numbers_that_mark_failures_are_no_outliers(tmp_path: Path) -> None:
    rows = [f"{t},{u},{-999 if t in (13, 14, 40) else y}" for t, u, y in zip(T, U, plant(), strict=True)]
    (tmp_path / "log.csv").write_text("\n".join(["t,u,y", *rows]))
    gp = lk.LODEGP(lk.System("y' + y = 2*u"), inputs={"u": "hold"}, random_state=0).fit(tmp_path / "log.csv")
    assert gp.warnings_[0].startswith("the channel y is -999 in 3 rows, as if a sensor failed")
    assert not any("implausible" in text for text in gp.warnings_)
