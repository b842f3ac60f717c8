"""Modes whose deviation is fixed: the search leaves it alone, it goes where the model goes, and is said to be fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.records import Measurements
from lodekit.fitting.hessian import observed_information
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from tests.inference.textbook import prior_covariance

DECAY = lk.System("x' = -a*x; y' = x + u", parameters={"a": lk.Parameter(positive=True, start=0.5)})
TIMES = np.linspace(0.0, 4.0, 12)


def table() -> dict[str, Any]:
    noise = 0.01 * np.random.default_rng(0).standard_normal((2, len(TIMES)))
    return {"x": 3.0 * np.exp(-0.6 * TIMES) + noise[0], "y": np.sin(TIMES) + noise[1]}


@pytest.fixture(scope="module")
def fixed() -> lk.LODEGP:
    return lk.LODEGP(DECAY, mode_deviation=1.0, random_state=0, restarts=2).fit(TIMES, table())


def test_the_search_does_not_move_it(fixed: lk.LODEGP) -> None:
    learned = lk.LODEGP(DECAY, random_state=0, restarts=2).fit(TIMES, table())
    assert fixed.fit_.hyperparameters.mode_amplitudes.tolist() == [1.0]
    assert abs(learned.fit_.hyperparameters.mode_amplitudes[0] - 1.0) > 0.2
    assert learned.log_evidence_ > fixed.log_evidence_
    # One number less is searched, and counts in standard errors.
    assert fixed.fit_.layout.size == learned.fit_.layout.size - 1
    assert fixed.fit_.observed_information.shape == (fixed.fit_.layout.size,) * 2
    assert "amplitude of mode 1 (std) (fixed)" in fixed.summary()
    assert "(fixed)" not in learned.summary()


def test_the_gradient_and_the_curvature_are_those_of_what_is_left(fixed: lk.LODEGP) -> None:
    setup, x = fixed.fit_.setup, fixed.fit_.optimum.x + 0.1
    _, gradient = setup.objective.evaluate(x)
    assert gradient.shape == x.shape
    for i, step in enumerate(1e-5 * np.eye(len(x))):
        slope = (setup.objective.value(x + step) - setup.objective.value(x - step)) / 2e-5
        assert abs(slope - gradient[i]) < 1e-4 * max(1.0, abs(slope))
    again = setup.layout.pack(setup.layout.unpack(x))
    np.testing.assert_allclose(again, x, rtol=0, atol=1e-12)
    assert np.isfinite(observed_information(setup.objective, x)).all()


def test_it_is_saved_and_updated(fixed: lk.LODEGP, tmp_path: Path) -> None:
    fixed.save(tmp_path / "decay.lodekit")
    again = lk.LODEGP.load(tmp_path / "decay.lodekit")
    assert again.mode_deviation == 1.0
    assert again.get_params()["mode_deviation"] == 1.0
    np.testing.assert_allclose(again.predict(TIMES), fixed.predict(TIMES), rtol=0, atol=1e-9)
    assert again.update([5.0], {"x": [0.15]}).fit_.hyperparameters.mode_amplitudes.tolist() == [1.0]


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan, True, "1"])
def test_what_is_no_deviation_is_refused(value: object) -> None:
    with pytest.raises(lk.LodekitError, match="mode_deviation as a positive finite number"):
        lk.LODEGP(DECAY, mode_deviation=value).fit(TIMES, table())  # type: ignore[arg-type]


def test_the_papers_three_tanks() -> None:
    """f1, f2 and f3 = f2 - f1 + p, the paper's prior: the mode adds exactly one to the variance of f3."""
    tanks = lk.catalog.three_tank()
    system, times = tanks.system.with_basis(["f1", "f2"]), np.linspace(1.0, 6.0, 9)
    data = lk.Observations()
    for name, column in zip(system.channels, tanks.solution_at(times).T, strict=True):
        data = data.add(times, name, column)
    setup = build_setup(system, FitSettings(mode_deviation=1.0), Measurements.from_observations(data))
    hyper = setup.layout.unpack(np.full(setup.layout.size, 0.3))
    asked = setup.observable_compiler.compile_unscaled(["f1", "f2", "f3"], setup.prior.units)
    at = np.array([2.5])
    one, two, three = np.diag(prior_covariance(setup.prior, hyper, asked, at, asked, at))
    assert three == pytest.approx(one + two + 1.0, rel=1e-12)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_gpytorch_does_not_train_it(fixed: lk.LODEGP) -> None:
    pytest.importorskip("gpytorch")
    from lodekit.integrations.gpytorch import from_gpytorch, to_gpytorch

    model, _ = to_gpytorch(fixed)
    assert not model.covar_module.raw_mode_deviations.requires_grad
    assert model.covar_module.raw_lengthscales.requires_grad
    back = from_gpytorch(model)
    assert back.mode_deviation == pytest.approx(1.0, rel=1e-12)
    assert abs(back.log_evidence_ - fixed.log_evidence_) < 1e-6 * abs(fixed.log_evidence_)
    learned, _ = to_gpytorch(lk.LODEGP(DECAY, random_state=0, restarts=1).fit(TIMES, table()))
    assert learned.covar_module.raw_mode_deviations.requires_grad
    assert from_gpytorch(learned).mode_deviation is None


def test_diffuse_modes_cost_no_digits() -> None:
    """Beyond a deviation of some thousand the evidence falls by its logarithm, and nothing else changes."""
    system, times = lk.System("x' = -x + u; y' = -2*y"), np.linspace(0, 10, 25)
    data = {"x": np.sin(times), "y": 5 * np.exp(-2 * times)}
    fits = [
        lk.LODEGP(system, mode_deviation=deviation, random_state=0).fit(times, data, 0.01) for deviation in (1e5, 1e9)
    ]
    assert all(not gp.warnings_ for gp in fits)
    fall = fits[0].log_evidence_ - fits[1].log_evidence_
    assert fall == pytest.approx(np.log(1e4), rel=1e-3)
    means = [gp.predict(times, ["x", "y"], parameters="fixed") for gp in fits]
    np.testing.assert_allclose(means[0], means[1], rtol=0, atol=1e-5)
