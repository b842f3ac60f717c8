"""Advice about noise_std fits what the user gave: nobody leaves out what is not there."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.time_reference import TimeReference
from lodekit.diagnostics.messages import convergence_failures, outlier_warnings
from lodekit.errors import AccuracyError
from lodekit.fitting.lbfgs import UNDEFINED_MESSAGE


@pytest.mark.parametrize("given", [False, True])
def test_residuals_above_the_noise(given: bool) -> None:
    """One of two records is much noisier than the other."""
    times, generator = np.linspace(0.0, 4.0, 60), np.random.default_rng(0)
    records = [
        (times, {"x": np.exp(-times) + std * generator.standard_normal(60)}, *([0.01] if given else []))
        for std in (0.01, 0.1)
    ]
    gp = lk.LODEGP(lk.System("x' = -c*x", parameters=["c"]), random_state=0).fit(records)
    (found,) = [text for text in gp.warnings_ if "larger than the noise" in text]
    assert ("leave noise_std out" in found) == given
    assert ("it is not the same everywhere" in found) != given


@pytest.mark.parametrize("given", [False, True])
def test_too_little_noise(given: bool) -> None:
    times = np.linspace(0.0, 1.0, 30)
    data = (times, {"x": np.exp(-times)}, *([1e-6] if given else []))
    fit = lk.LODEGP(lk.System("x' = -x"), random_state=0).fit(*data).fit_
    engine = fit.setup.engine
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_is_precise", "_is_usable"):
            patch.setattr(type(engine), name, lambda *_: False)
        layout = SimpleNamespace(n_noise_levels=0 if given else 1, free_parameters=[])
        optimum = SimpleNamespace(message=UNDEFINED_MESSAGE, converged=False)
        texts = convergence_failures(layout, optimum)  # type: ignore[arg-type]
        with pytest.raises(AccuracyError) as caught:
            engine.posterior(fit.hyperparameters)
    for text in (*texts, str(caught.value)):
        assert ("a larger noise_std" in text) == given
        assert ("give noise_std if you know the noise" in text) != given
    assert "a larger noise_std" in outlier_warnings({"x": [(1.0, 9.0)]}, TimeReference())[0]
