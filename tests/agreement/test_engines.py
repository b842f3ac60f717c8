"""Every engine that is registered, a toy among them, says the same: evidence, gradient and posterior."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.records import Measurements
from lodekit.inference.engine import Engine, EngineTask
from lodekit.inference.selection import ENGINES, check_engine_name
from lodekit.prior.prior import Hyperparameters
from tests.inference.fitted import gradient_vector, make_case, series_of, shifted, witness_of
from tests.inference.textbook import TextbookFactory

TOY = TextbookFactory()
#: Free functions; modes with and without parameters inside; forcing; a growing mode.
CASES = ["heating", "free_decay", "two_room", "shaken_oscillator", "three_tank", "growth"]
TIMES = np.linspace(0.2, 4.4, 9)


@pytest.fixture(params=[*ENGINES, TOY.name])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an engine; the toy is registered for the test."""
    if request.param == TOY.name:
        monkeypatch.setitem(ENGINES, TOY.name, TOY)
    return str(request.param)


def make_engine(kind: str, name: str, count: int) -> tuple[Engine, Hyperparameters]:
    _, data, _, hyper = make_case(name, count=count, missing=count > 4)
    case = EngineTask(size=data.size, latents=data.prior.kernels)
    if why := ENGINES[kind].rejection_reason(case):
        pytest.skip(why)
    return ENGINES[kind].create(data.prior, Measurements(series_of(data)), case), hyper


@cache
def exact_evidence(name: str) -> float:
    """The log evidence of four rows, once for all engines."""
    _, data, _, hyper = make_case(name, count=4)
    return witness_of(name, data).evidence(hyper)


@pytest.mark.parametrize("name", CASES)
def test_evidence_is_that_of_fifty_digits(kind: str, name: str) -> None:
    """Tolerance: rounding times the condition number, below 1e5 with noise of 20 %."""
    engine, hyper = make_engine(kind, name, 4)
    expected = exact_evidence(name)
    assert engine.value(hyper) == pytest.approx(expected, rel=1e-8)
    assert engine.evaluate(hyper).value == pytest.approx(expected, rel=1e-8)
    assert engine.posterior(hyper).value == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_that_of_differences(kind: str, name: str) -> None:
    """Tolerance: central differences with steps of 1e-5 err by about 1e-6 of the largest entry."""
    engine, hyper = make_engine(kind, name, 8)
    found = gradient_vector(engine.evaluate(hyper))
    for k in range(len(found)):
        step = 1e-5 * (max(1.0, abs(hyper.theta[k])) if k < len(hyper.theta) else 1.0)
        ends = [engine.value(shifted(hyper, k, sign * step)) for sign in (1, -1)]
        assert found[k] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-5 * np.abs(found).max())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", list(ENGINES))
def test_posterior_is_that_of_the_textbook(kind: str, name: str) -> None:
    """Tolerance: all lose the condition number of the covariance, below 1e6 here, against the size of the data."""
    engine, hyper = make_engine(kind, name, 8)
    toy = TOY.create(
        engine.prior, Measurements(series_of(make_case(name, count=8, missing=True)[1])), EngineTask(1, ())
    )
    own, expected = engine.posterior(hyper), toy.posterior(hyper)
    observables = engine.prior.observables
    np.testing.assert_allclose(own.mean(observables, TIMES), expected.mean(observables, TIMES), rtol=0, atol=1e-6)
    first, second = own.covariance(observables, TIMES), expected.covariance(observables, TIMES)
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-6 * max(1.0, np.abs(second).max()))
    variance = own.variance(observables, TIMES)
    np.testing.assert_allclose(variance, np.einsum("ioio->io", first), rtol=0, atol=1e-6 * variance.max())
    drawn = own.sample(observables, TIMES, 4000, np.random.default_rng(0))
    # 4000 draws: the mean of a draw errs by 1/60 of its deviation, five times that is never seen.
    error = np.abs(drawn.mean(axis=0) - own.mean(observables, TIMES))
    assert (error <= 0.09 * np.sqrt(variance) + 1e-6).all()


@pytest.mark.parametrize("kind", list(ENGINES))
def test_no_times_are_no_values(kind: str) -> None:
    engine, hyper = make_engine(kind, "free_decay", 8)
    posterior, own, none = engine.posterior(hyper), engine.prior.observables, np.zeros(0)
    assert posterior.mean(own, none).shape == posterior.variance(own, none).shape == (0, own.count)
    assert posterior.covariance(own, none).shape == (0, own.count, 0, own.count)
    assert posterior.sample(own, none, 3, np.random.default_rng(0)).shape == (3, 0, own.count)


def test_the_toy_takes_part_in_fits_and_messages() -> None:
    times = np.linspace(0, 3, 7)
    table = {"x": np.exp(-times), "u": np.zeros(7)}
    system = lk.System("x' = -a*x + u", parameters={"a": lk.Parameter(positive=True, start=1)})
    with pytest.raises(
        lk.LodekitError, match="expected engine='auto', 'dense', 'spectral', 'modal' or 'markov', got 'textbook'"
    ):
        lk.LODEGP(system, engine="textbook").fit(times, table)
    with pytest.raises(lk.LodekitError, match="expected engine='auto'"):
        check_engine_name(np.zeros(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENGINES, TOY.name, TOY)
        gp = lk.LODEGP(system, engine="textbook", restarts=1, random_state=0).fit(times, table, noise_std=0.05)
        dense = lk.LODEGP(system, engine="dense", restarts=1, random_state=0).fit(times, table, noise_std=0.05)
        assert gp.engine_ == "textbook: 14 measurements; chosen by you"
        # The toy's gradients are good to 1e-6, so its search ends a little earlier.
        assert gp.log_evidence_ == pytest.approx(dense.log_evidence_, abs=1e-3)
        assert gp.parameters_["a"].value == pytest.approx(dense.parameters_["a"].value, rel=1e-2)
        # Nobody gets it unasked, and its name and its refusal stand in the messages.
        assert lk.LODEGP(system, restarts=1).fit(times, table, noise_std=0.05).engine_.startswith("dense")
        with pytest.raises(lk.LodekitError, match="'dense', 'spectral', 'modal', 'markov' or 'textbook', got 'cloud'"):
            lk.LODEGP(system, engine="cloud").fit(times, table)
        many = np.linspace(0, 3, 60)
        with pytest.raises(lk.LodekitError, match="engine='textbook' cannot be used: a textbook has few pages"):
            lk.LODEGP(system, engine="textbook").fit(many, {"x": np.exp(-many), "u": np.zeros(60)})
    assert "textbook" not in ENGINES
