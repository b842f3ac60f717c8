"""A disturbance that lasts and is taken for white noise: innovations tell, and what to try makes the fit better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.inputs import InputSignal
from lodekit.diagnostics.messages import describe_check
from lodekit.diagnostics.residual_tests import ResidualCheck, ljung_box_test
from lodekit.diagnostics.validation_tests import ValidationErrors, find_validation_failures
from tests.cli.command import run

Array = NDArray[np.float64]
SYSTEM = lk.System("tau*y' + y = K*u + w", parameters={name: lk.Parameter(positive=True) for name in ("tau", "K")})
ADVICE = 'try "matern-1/2" (correlated in time) instead of "white" for w'


def plant(lasting: float, seed: int, count: int = 200) -> dict[str, Array]:
    """tau = 10, K = 2; w lasts for a time, or not at all: 20 small steps for each row."""
    generator, small = np.random.default_rng(seed), 0.05
    u = np.repeat(generator.standard_normal(count // 15 + 1), 15)[:count]
    x, w, rows = 0.0, 0.6 * generator.standard_normal(), []
    for k in range(count):
        rows.append(x)
        for push in generator.standard_normal(20).tolist():
            white = 0.0 if lasting else 0.8 * push / np.sqrt(small)
            x += small / 10.0 * (2.0 * u[k] + (w if lasting else white) - x)
            w += -small / lasting * w + 0.6 * np.sqrt(2.0 * small / lasting) * push if lasting else 0.0
    return {"t": np.arange(float(count)), "u": u, "y": np.array(rows) + 0.05 * generator.standard_normal(count)}


def fit(table: dict[str, Array], kind: str) -> lk.LODEGP:
    gp = lk.LODEGP(SYSTEM, inputs={"u": "hold"}, disturbances={"w": kind}, restarts=1, random_state=0)
    return gp.fit(table["t"], {"y": table["y"], "u": table["u"]})


@pytest.fixture(scope="module")
def slow() -> dict[str, Array]:
    return plant(20.0, 0)


@pytest.fixture(scope="module")
def white(slow: dict[str, Array]) -> lk.LODEGP:
    return fit(slow, "white")


def autoregression(carried: float, seed: int = 0, count: int = 300) -> Array:
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(count)
    for k in range(1, count):
        values[k] += carried * values[k - 1]
    return values


def check(values: Array, inputs: dict[str, InputSignal] | None = None) -> ResidualCheck:
    found = ljung_box_test(np.arange(float(len(values))), values, innovations=True, inputs=inputs or {})
    assert found is not None
    return ResidualCheck("y", len(values), len(values), 1.0, found.lags[0], 0.8, whiteness=found, white=("w",))


def test_what_is_tried_is_better_and_leaves_nothing(slow: dict[str, Array], white: lk.LODEGP) -> None:
    """The evidence gains 30 to 60 nats on such plants: ten are no chance."""
    (said,) = white.diagnose().sentences
    assert ADVICE in said
    assert "the fit with the larger log evidence; it can be compared only between fits of the same measurements" in said
    assert ADVICE in white.summary()
    cured = fit(slow, "matern-1/2")
    assert cured.log_evidence_ > white.log_evidence_ + 10.0
    assert cured.diagnose().is_independent
    assert "try" not in cured.diagnose().sentences[0]


def test_intervals_are_widened_by_all_lags(white: lk.LODEGP) -> None:
    """Neighbours are the least alike here: 95 % intervals that went by them held the truth in half of such plants."""
    (found,) = white.diagnose().checks
    assert found.whiteness is not None
    factor = np.sqrt(1.0 + 2.0 * sum(found.whiteness.lags))
    assert factor > 1.8 > np.sqrt((1.0 + found.memory) / (1.0 - found.memory))
    assert white.diagnose().widening == pytest.approx({"tau": factor, "K": factor})
    assert f"parameter intervals are widened to allow for this, by factors of up to {factor:.1f}" in white.summary()
    for name, truth in (("tau", 10.0), ("K", 2.0)):
        low, high = white.parameters_[name].interval
        assert low < truth < high


def test_a_model_that_is_right_gets_no_advice() -> None:
    gp = fit(plant(0.0, 1), "white")
    assert gp.disturbances_["w"].needed
    assert gp.diagnose().is_independent
    assert ADVICE not in gp.summary()


def test_saved_models_and_other_records_say_it_too(white: lk.LODEGP, tmp_path: Path) -> None:
    white.save(tmp_path / "model.lodekit")
    assert lk.LODEGP.load(tmp_path / "model.lodekit").diagnose().sentences == white.diagnose().sentences
    other = plant(20.0, 1)
    lines = [",".join(other), *(",".join(f"{value:.6g}" for value in row) for row in zip(*other.values(), strict=True))]
    (tmp_path / "other.csv").write_text("\n".join(lines))
    done = run("validate", "model.lodekit", "other.csv", "--ahead", "1", "--start", "all", cwd=tmp_path)
    assert "first 10 rows, which are not counted; estimating it from all rows would also estimate w, and" in done.stdout
    asked = run("validate", "model.lodekit", "other.csv", "--ahead", "1", "--start", "20", cwd=tmp_path)
    assert "from the first 20 rows, which are not counted.\n" in asked.stdout
    first, second, *_ = done.stdout.splitlines()
    assert f"not independent; {ADVICE}, or a higher order" in first
    assert ADVICE in second
    assert "p < 1e-12" in repr(white.diagnose())


@pytest.mark.parametrize(("carried", "is_told"), [(0.5, True), (-0.5, False), (0.0, False)])
def test_only_what_stays_on_one_side_lasts(carried: float, is_told: bool) -> None:
    found = check(autoregression(carried))
    assert bool(found.suggests_coloured_noise) == (ADVICE in describe_check(found)) == is_told


def test_a_late_correlation_is_nothing_that_lasts() -> None:
    """A wave of seven rows has neighbours on either side, and is no reason for a slower disturbance."""
    values = autoregression(0.0) + 0.7 * np.cos(2 * np.pi * np.arange(300) / 7)
    assert check(values).is_autocorrelated
    assert not check(values).suggests_coloured_noise


def test_what_lasts_is_not_called_fast() -> None:
    """As on plants with a very slow disturbance: lags above zero, and too much power from row to row."""
    found = check(autoregression(0.5))
    assert found.whiteness is not None
    odd = replace(found.whiteness, excursion=-0.15, periodogram_p_value=2e-3, period=3.6)
    found = replace(found, whiteness=odd)
    assert "miss dynamics on time scales longer than the sampling interval" in describe_check(found)
    assert "miss dynamics with periods below 3.6 (in units of t)" in describe_check(replace(found, white=()))


def test_no_intervals_are_called_sound_where_only_neighbours_were_asked() -> None:
    values = autoregression(0.0)
    values[5:] += 0.6 * values[:-5]
    found = replace(check(values), memory=0.01, white=())
    assert (found.is_autocorrelated, found.std_error_inflation < 1.05) == (True, True)
    assert "; intervals of parameters may be too narrow" in describe_check(found, "", 1.02)
    assert found.whiteness is not None
    curve = replace(found, whiteness=replace(found.whiteness, innovations=False))
    assert "; parameter intervals need not be widened" in describe_check(curve, "", 1.02)
    assert "intervals" not in describe_check(curve), "there are none without parameters"


def test_without_white_noise_or_with_an_input_to_blame_nothing_is_said() -> None:
    found = check(autoregression(0.5))
    assert not replace(found, white=()).suggests_coloured_noise
    assert not replace(found, copied=True).suggests_coloured_noise
    both = replace(found, white=("w", "v"))
    assert 'instead of "white" for w or v' in describe_check(both)
    u = np.repeat(np.random.default_rng(1).standard_normal(30), 10)
    linked = check(autoregression(0.5) + 2 * u, {"u": InputSignal(np.arange(300.0), u, "hold")})
    assert linked.whiteness is not None
    assert linked.whiteness.correlated_inputs
    assert not linked.suggests_coloured_noise
    assert "try a dead time" in describe_check(linked)


def test_without_a_disturbance_one_is_proposed() -> None:
    values, times = autoregression(0.5), np.arange(300.0)
    errors = [ValidationErrors("y", times, values, np.ones(300), np.zeros((0, 300)))]
    (said,) = find_validation_failures(errors, {})["y"]
    assert said.endswith("not independent; try a disturbance, or a higher order")
    (said,) = find_validation_failures(errors, {}, white_disturbances=["w"])["y"]
    assert said.endswith(f"not independent; {ADVICE}, or a higher order")
