"""The dense evidence through PyTorch agrees with NumPy."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.inference.dense import torch_evidence
from lodekit.inference.dense.engine import DenseEngine
from lodekit.inference.engine import find_torch_device
from tests.inference.fitted import EXAMPLES, EXTRA, gradient_vector, make_case, solution_table

torch = pytest.importorskip("torch")
CASES = [*EXAMPLES, *EXTRA]


@pytest.mark.parametrize("name", CASES)
def test_the_dense_evidence_through_pytorch_agrees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small leaves, so that the recursions are taken.
    monkeypatch.setattr(torch_evidence, "_MAX_LEAF_SIZE", 8)
    monkeypatch.setattr(torch_evidence, "_BLOCK_MULTIPLE", 4)
    for latent, missing in (("se", True), ("matern-41/2", False)):
        _, data, _, hyper = make_case(name, count=14, latent=latent, missing=missing)
        a, b = DenseEngine(data).evaluate(hyper), torch_evidence.evaluate_on_device(data, hyper, torch.device("cpu"))
        assert b.value == pytest.approx(a.value, rel=1e-9)
        scale = np.abs(gradient_vector(a)).max()
        np.testing.assert_allclose(gradient_vector(b), gradient_vector(a), rtol=0, atol=1e-8 * scale)


def test_only_the_factor_is_in_memory_while_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solving copies the factor, so that a third matrix would decide how many rows fit."""
    _, data, _, hyper = make_case("heating", count=14, latent="se", missing=False)
    solve, alive = torch.cholesky_solve, list[int]()

    def count(residual: Any, factor: Any) -> Any:
        tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor and each.numel()]
        alive.append(len({each.untyped_storage().data_ptr() for each in tensors if each.shape == factor.shape}))
        return solve(residual, factor)

    monkeypatch.setattr(torch, "cholesky_solve", count)
    torch_evidence.evaluate_on_device(data, hyper, torch.device("cpu"))
    assert alive == [1]


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
        find_torch_device("gpu of my friend")
    with pytest.raises(lk.LodekitError, match="double precision"):
        find_torch_device("mps")
    if not torch.cuda.is_available():
        model = lk.LODEGP(lk.catalog.heating().system, device="cuda")
        with pytest.raises(lk.LodekitError, match="no CUDA device"):
            model.fit([0.0, 1.0], np.zeros((2, 3)))
