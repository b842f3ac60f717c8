"""Engines know their own error: right against many digits, or refused, where noise is low and channels differ much.

`benchmarks/trust_numerics.py` has the long form of these checks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.errors import AccuracyError
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup
from lodekit.inference.fallback import MAX_EVIDENCE_ERROR
from lodekit.prior.prior import Hyperparameters
from lodekit.results.simulation import simulate
from tests.witness import Witness
from trust_numerics import check_evidence, compare_engines, is_right, torture

CHAIN = lk.catalog.mass_chain()
TIMES = np.linspace(0, 0.5, 10)


def chain_data(seed: int) -> Any:
    """Five channels between 1e-6 and 1e6, each with noise of 1 %."""
    table = simulate(CHAIN.system, TIMES, {}, lengthscale=0.1, random_state=seed)[0]
    return table + 0.01 * table.std(axis=0) * np.random.default_rng(seed).standard_normal(table.shape)


@pytest.fixture(scope="module")
def chain() -> tuple[FitSetup, Hyperparameters]:
    """The dense engine on a few of these data, and where a fit has ended."""
    gp = lk.LODEGP(CHAIN.system, engine="dense", restarts=1, random_state=0).fit(TIMES[::2], chain_data(0)[::2])
    return gp.fit_.setup, gp.fit_.hyperparameters


@pytest.mark.parametrize(("engine", "seed"), [("dense", 0), ("spectral", 1)])
def test_one_noise_for_channels_that_differ_by_decades(engine: str, seed: int) -> None:
    """The mean was off by millions of deviations here, and dense evidence by whole units, without a word."""
    table = chain_data(seed)
    gp = lk.LODEGP(CHAIN.system, noise="shared", engine=engine, restarts=2, random_state=0).fit(TIMES, table)
    setup = gp.fit_.setup
    expected, mean = Witness(CHAIN.system, setup.prior, setup.measurements).evidence_and_mean(
        gp.fit_.hyperparameters, 90
    )
    assert gp.log_evidence_ == pytest.approx(expected, rel=1e-6)
    found, std = gp.predict(TIMES, return_std=True, parameters="fixed")
    apart = np.abs(found.T - mean.reshape(5, 10))
    assert (apart < 1e-6 * table.std(axis=0)[:, None] + 1e-2 * std.T).all()


def test_random_hyperparameters_against_many_digits() -> None:
    """Two engines, with and without gradient, each at eight points."""
    total = Counter(found.split(":")[0] for seed in range(8) for found in check_evidence(seed))
    assert set(total) <= {"right", "refused"}
    assert total["right"] >= 26


def test_engines_agree_where_fits_end() -> None:
    total = Counter(found.split(":")[0] for seed in (1, 8) for found in compare_engines(seed))
    assert set(total) <= {"agree", "refused", "the other engine refuses"}
    assert total["agree"] >= 3


@pytest.mark.parametrize(
    "name", ["stiff modes", "noise of 1e-6", "no noise, exact", "Unix times in nanoseconds", "diffuse modes"]
)
def test_extreme_systems_and_data_are_right(name: str) -> None:
    assert torture(name) == "right"


def test_a_point_that_nobody_can_evaluate_is_refused(chain: tuple[FitSetup, Hyperparameters]) -> None:
    """Noise far below the last digit of the data."""
    setup, hyper = chain
    wild = replace(hyper, noise_std=1e-18 * setup.prior.noise.level_scales)
    for engine in (setup.engine, build_setup(CHAIN.system, FitSettings(engine="spectral"), setup.measurements).engine):
        assert engine.value(wild) == -np.inf
        assert engine.evaluate(wild).value == -np.inf
        with pytest.raises(AccuracyError, match="rounding leaves too few digits"):
            engine.posterior(wild)
    assert np.isfinite(setup.engine.value(hyper))


@pytest.mark.parametrize("engine", ["dense", "spectral"])
def test_the_stated_error_is_not_far_from_the_true_one(engine: str, chain: tuple[FitSetup, Hyperparameters]) -> None:
    """The estimate may be pessimistic; an estimate of zero, or of a thousandth of the error, would trust anything."""
    setup, hyper = chain
    own = setup if engine == "dense" else build_setup(CHAIN.system, FitSettings(engine="spectral"), setup.measurements)
    witness = Witness(CHAIN.system, setup.prior, setup.measurements)
    checked = 0
    for power in (0, -2, -4, -10):
        moved = replace(hyper, noise_std=hyper.noise_std * 10.0**power)
        exact = witness.evidence(moved, 90)
        value, error = own.engine.primary.value_with_error(moved)  # type: ignore[attr-defined]
        if not np.isfinite(value):
            continue
        checked += 1
        assert abs(value - exact) <= 3.0 * error + 1e-13 * abs(exact)
        assert own.engine.value(moved) == -np.inf or is_right(own.engine.value(moved), exact, setup.engine.size)
        assert power < 0 or error < MAX_EVIDENCE_ERROR * setup.engine.size
    assert checked >= (1 if engine == "dense" else 3)
