"""The dense evidence through PyTorch, and batches of the spectral one, agree with NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.measurements import Measurements
from lodekit.inference.dense import device
from lodekit.inference.dense.evidence import evaluate
from lodekit.inference.devices import find_device
from lodekit.inference.spectral.batch import evaluate_batch
from lodekit.inference.spectral.engine import SpectralEngine
from tests.inference.fitted import EXAMPLES, EXTRA, gradient_vector, make_case, series_of, solution_table

torch = pytest.importorskip("torch")
CASES = [*EXAMPLES, *EXTRA]


@pytest.mark.parametrize("name", CASES)
def test_the_dense_evidence_through_pytorch_agrees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small leaves, so that the recursions are taken.
    monkeypatch.setattr(device, "_LEAF", 8)
    monkeypatch.setattr(device, "_UNIT", 4)
    for latent, missing in (("se", True), ("matern-41/2", False)):
        _, data, _, hyper = make_case(name, count=14, latent=latent, missing=missing)
        a, b = evaluate(data, hyper), device.evaluate_on(data, hyper, torch.device("cpu"))
        assert b.value == pytest.approx(a.value, rel=1e-9)
        scale = np.abs(gradient_vector(a)).max()
        np.testing.assert_allclose(gradient_vector(b), gradient_vector(a), rtol=0, atol=1e-8 * scale)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_is_many_single_evaluations(name: str) -> None:
    _, data, _, hyper = make_case(name, count=40, missing=True)
    engine = SpectralEngine.of(data.prior, Measurements(series_of(data)), 1e-10)
    generator = np.random.default_rng(0)
    hypers = []
    for _ in range(4):
        moved = [
            part * np.exp(0.3 * generator.standard_normal(len(part))) for part in (hyper.theta, hyper.lengthscales)
        ]
        hypers.append(replace(hyper, theta=moved[0], lengthscales=moved[1]))
    hypers.append(replace(hyper, noise=np.array([np.nan])))
    together = evaluate_batch(engine, hypers)
    for own, found in zip(hypers[:-1], together[:-1], strict=True):
        alone = engine.evaluate(own)
        assert found.value == pytest.approx(alone.value, rel=1e-8)
        scale = np.abs(gradient_vector(alone)).max()
        np.testing.assert_allclose(gradient_vector(found), gradient_vector(alone), rtol=0, atol=1e-6 * scale)
    assert together[-1].value == -np.inf
    assert [found.value for found in evaluate_batch(engine, hypers[-1:])] == [-np.inf]


def test_a_batch_leaves_what_would_lose_digits_to_single_evaluations() -> None:
    _, data, _, hyper = make_case("heating", count=40)
    engine = SpectralEngine.of(data.prior, Measurements(series_of(data)), 1e-10)
    quiet = replace(hyper, noise=1e-6 * hyper.noise)
    loud, found, last = evaluate_batch(engine, [hyper, quiet, hyper])
    alone = engine.evaluate(quiet)
    # The same computation, where normal equations would leave about eight digits.
    assert found.value == pytest.approx(alone.value, rel=1e-13)
    np.testing.assert_allclose(gradient_vector(found), gradient_vector(alone), rtol=1e-12)
    # Those before and after it stay in the batch.
    for other in (loud, last):
        assert other.value == pytest.approx(engine.value(hyper), rel=1e-8)


def test_a_fleet_of_data_sets_in_one_batch() -> None:
    cases = [make_case("heating", count=30, seed=seed) for seed in range(3)]
    engines = [SpectralEngine.of(data.prior, Measurements(series_of(data)), 1e-10) for _, data, *_ in cases]
    found = evaluate_batch(engines, [hyper for *_, hyper in cases])
    for engine, (*_, hyper), own in zip(engines, cases, found, strict=True):
        assert own.value == pytest.approx(engine.value(hyper), rel=1e-9)
    with pytest.raises(lk.LodekitError, match="one engine, or one for each"):
        evaluate_batch(engines[:2], [hyper for *_, hyper in cases])
    other = make_case("heating", count=12)
    odd = SpectralEngine.of(other[1].prior, Measurements(series_of(other[1])), 1e-10)
    with pytest.raises(lk.LodekitError, match="data sets of one shape"):
        evaluate_batch([engines[0], odd], [cases[0][-1], other[-1]])


def test_a_fit_through_pytorch_is_the_same_fit() -> None:
    example = lk.catalog.heating()
    times = np.linspace(-5, 5, 25)
    table = solution_table(example, times) + 0.02 * np.random.default_rng(0).standard_normal((25, 3))
    plain = lk.LODEGP(example.system, random_state=0, restarts=1).fit(times, table)
    other = lk.LODEGP(example.system, random_state=0, restarts=1, device="cpu").fit(times, table)
    assert "on cpu" in other.engine_
    assert other.parameters_["a"].value == pytest.approx(plain.parameters_["a"].value, rel=1e-5)
    np.testing.assert_allclose(other.predict(times), plain.predict(times), atol=1e-5)


def test_devices_that_are_not_there_are_named() -> None:
    with pytest.raises(lk.LodekitError, match="expected a device"):
        find_device("gpu of my friend")
    with pytest.raises(lk.LodekitError, match="double precision"):
        find_device("mps")
    if not torch.cuda.is_available():
        model = lk.LODEGP(lk.catalog.heating().system, device="cuda")
        with pytest.raises(lk.LodekitError, match="no CUDA device"):
            model.fit([0.0, 1.0], np.zeros((2, 3)))
