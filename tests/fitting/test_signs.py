"""Of optima that differ in signs alone, the one with the most positive parameters is taken, with its curvature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lodekit as lk
from lodekit.fitting.escape import canonicalize_signs
from lodekit.fitting.hessian import observed_information


def test_the_negative_branch_is_turned_into_the_positive_one() -> None:
    times = np.linspace(0.0, 10.0, 40)
    x = np.exp(-0.2 * times) * np.cos(2 * times) + 0.01 * np.random.default_rng(0).standard_normal(40)
    gp = lk.LODEGP(lk.System("x'' + 2*z*w*x' + w^2*x = 0", parameters=["z", "w"]), random_state=0).fit(times, x)
    fit = gp.fit_
    objective, good = fit.setup.objective, fit.optimum
    flip = np.ones(fit.layout.size)
    flip[:2] = -1.0
    bad = replace(good, x=flip * good.x)
    assert objective.value(bad.x) == pytest.approx(good.value, rel=1e-9)
    found, curvature = canonicalize_signs(
        objective, bad, fit.observed_information * np.outer(flip, flip), [frozenset("zw")]
    )
    assert np.array_equal(found.x, good.x)
    # Differences of gradients are right to a few digits.
    assert np.allclose(
        curvature,
        observed_information(objective, good.x),
        rtol=1e-3,
        atol=1e-3 * np.abs(fit.observed_information).max(),
    )
    # What is no symmetry is not believed: the evidence decides.
    kept, _ = canonicalize_signs(objective, bad, fit.observed_information, [frozenset("z")])
    assert np.array_equal(kept.x, bad.x)
