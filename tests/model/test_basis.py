"""Models on a chosen basis: another latent prior, the same channel prior, and the choice goes where the model goes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.inference.dense.engine import DenseEngine
from lodekit.inference.dense.evidence import DenseData
from lodekit.inference.engine import Evidence
from lodekit.inference.spectral.engine import SpectralEngine
from lodekit.prior.prior import Hyperparameters
from tests.inference.fitted import gradient_vector, prior_of, shifted

TANKS = lk.catalog.three_tank()
HEATING = lk.catalog.heating()
TIMES = np.linspace(1.0, 6.0, 9)


def measure(example: lk.catalog.Example) -> Measurements:
    table = example.solution_at(TIMES)
    data = Observations()
    for name, column in zip(example.system.channels, table.T, strict=True):
        data = data.add(TIMES, name, column + 0.01 * np.random.default_rng(len(name)).standard_normal(len(column)))
    return Measurements.from_observations(data)


def evidence(example: lk.catalog.Example, basis: list[str] | None, *, channels: bool, shift: int = -1) -> Evidence:
    """Return the evidence at the same hyperparameters, whatever the basis; one of them moved by a little."""
    system, measurements = example.system.with_basis(basis), measure(example)
    prior = prior_of(system, measurements, channels=channels)
    count = prior.n_processes
    hyper = Hyperparameters(
        np.array([float(value) for value in example.values.values()]),
        np.linspace(0.5, 0.9, count),
        np.linspace(1.0, 2.0, count),
        np.ones(len(prior.groups)),
        0.05 * np.ones(prior.noise.n_levels),
    )
    hyper = hyper if shift < 0 else shifted(hyper, shift, 1e-5)
    if channels:
        engine: DenseEngine | SpectralEngine = SpectralEngine(prior, measurements, 1e-10)
    else:
        engine = DenseEngine(DenseData.from_series(prior, measurements.series))
    found = engine.evaluate(hyper)
    assert found is not None
    return found


CASES = [(TANKS, ["f1", "f2"]), (HEATING, ["2*f2"]), (HEATING, ["3*f2/b + f1 - f2 - f2'/b"])]


@pytest.mark.parametrize(("example", "basis"), CASES)
def test_the_latent_prior_depends_on_the_basis_and_the_channel_prior_does_not(
    example: lk.catalog.Example, basis: list[str]
) -> None:
    plain, chosen = (evidence(example, choice, channels=False).value for choice in (None, basis))
    assert abs(plain - chosen) > 0.1
    plain, chosen = (evidence(example, choice, channels=True).value for choice in (None, basis))
    assert abs(plain - chosen) < 1e-5 * abs(plain)


@pytest.mark.parametrize("channels", [False, True])
def test_the_gradient_sees_the_parameters_inside_a_basis(channels: bool) -> None:
    basis = ["f2/(a + b)"]
    slope = gradient_vector(evidence(HEATING, basis, channels=channels))
    here = evidence(HEATING, basis, channels=channels).value
    for index in range(len(slope)):
        there = evidence(HEATING, basis, channels=channels, shift=index).value
        assert abs((there - here) / 1e-5 - slope[index]) < 2e-3 * max(1.0, abs(slope[index]))


def test_a_saved_model_keeps_its_basis(tmp_path: Path) -> None:
    system = TANKS.system.with_basis(["f1", "f2"])
    gp = lk.LODEGP(system, random_state=0, restarts=1).fit(TIMES, TANKS.solution_at(TIMES), noise_std=0.05)
    gp.save(tmp_path / "tanks.lodekit")
    again = lk.LODEGP.load(tmp_path / "tanks.lodekit")
    assert again.system == system
    assert again.system.basis == ["f1", "f2"]
    np.testing.assert_allclose(again.predict(TIMES + 0.3), gp.predict(TIMES + 0.3), rtol=0, atol=1e-9)


def test_gpytorch_has_the_same_basis() -> None:
    pytest.importorskip("gpytorch")
    import torch

    from lodekit.integrations.gpytorch import LODEKernel

    system = TANKS.system.with_basis(["f1", "f2"])
    found = []
    for choice in (system, TANKS.system):
        kernel = LODEKernel(choice, window=(1.0, 6.0)).double()
        kernel.set_value("lengthscales", np.array([1.0, 2.0]))
        kernel.set_value("deviations", np.array([1.0, 3.0]))
        kernel.set_value("mode_deviations", np.array([0.5]))
        found.append(np.asarray(kernel(torch.zeros(1, 1, dtype=torch.float64)).to_dense().detach()))
    # Variances at one time: f1, f2 themselves, and f3 = f2 - f1 + mode.
    np.testing.assert_allclose(np.diag(found[0])[:3], [1.0, 9.0, 10.25], rtol=1e-9)
    assert abs(np.diag(found[1])[:3] - [1.0, 9.0, 10.25]).max() > 0.1
