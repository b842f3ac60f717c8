"""Several records: their evidence against single records, and against joint covariances written down by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

import lodekit as lk
from lodekit.data.records import Measurements, RecordSet
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup
from lodekit.prior.prior import Hyperparameters

Array = NDArray[np.float64]
FIRST, SECOND = np.linspace(0.0, 6.0, 14), np.linspace(2.5, 6.5, 11)
LAG = lk.System("x' + a*x = u", parameters={"a": lk.Parameter(positive=True)})
RINGING = lk.System("x'' + c*x' + k*x = u", parameters={name: lk.Parameter(positive=True) for name in "ck"})


def measure(times: Array, names: str, seed: int) -> Measurements:
    """Return made-up measurements of some channels; nothing depends on them being likely."""
    generator, found = np.random.default_rng(seed), lk.Observations()
    for name in names:
        wave = np.sin((1.0 + 0.3 * seed) * times + seed) + (0.4 if name == "u" else 0.0)
        found = found.add(times, name, wave + 0.05 * generator.standard_normal(len(times)))
    return Measurements.from_observations(found)


def make_pool(*parts: Measurements) -> Measurements:
    return RecordSet.from_records({f"run {number}": part for number, part in enumerate(parts)})


def some_point(setup: FitSetup, lengthscale: float = 0.2) -> Hyperparameters:
    """Return hyperparameters that are typical of nothing."""
    layout = setup.layout
    hyper = layout.unpack(np.zeros(layout.size))
    return replace(
        hyper,
        theta=np.linspace(0.7, 2.1, len(hyper.theta)),
        lengthscales=np.full(layout.n_processes, lengthscale),
        amplitudes=np.full(layout.n_processes, 1.3),
        mode_amplitudes=np.full(len(hyper.mode_amplitudes), 0.8),
        noise_std=np.linspace(0.1, 0.2, layout.n_noise_levels),
    )


@pytest.mark.parametrize("prior", ["latent", "channels"])
@pytest.mark.parametrize("names", ["xu", "x", "u"])
def test_log_evidences_of_records_add(names: str, prior: str) -> None:
    parts = [measure(FIRST, "xu", 1), measure(SECOND + 100.0, names, 2)]
    arguments = FitSettings(prior=prior)
    setup = build_setup(RINGING, arguments, make_pool(*parts))
    units, hyper = setup.prior.units, some_point(setup)
    scales = dict(zip(setup.measurements.names, units.scales.tolist(), strict=True))
    alone = 0.0
    for part in parts:
        time = replace(units, start=part.window[0])
        single = build_setup(RINGING, arguments, part, time_units=time, scales=scales)
        levels = dict(zip(setup.measurements.names, hyper.noise_std, strict=True))
        alone += single.engine.value(replace(hyper, noise_std=np.array([levels[name] for name in part.names])))
    # The same operations in the same units, but for rows that are not there: equal to rounding.
    assert setup.engine.value(hyper) == pytest.approx(alone, abs=1e-9)
    posteriors = [part.engine.posterior(hyper) for part in setup.record_setups.values()]
    assert sum(posterior.value for posterior in posteriors) == pytest.approx(alone, abs=1e-9)


@pytest.mark.parametrize("engine", ["dense", "spectral", "markov"])
def test_the_gradient_of_several_records_is_that_of_the_sum(engine: str) -> None:
    pool = make_pool(measure(FIRST, "xu", 1), measure(SECOND - 40.0, "x", 2), measure(SECOND, "u", 3))
    latent = "matern-5/2" if engine == "markov" else "se"
    setup = build_setup(RINGING, FitSettings(engine=engine, latent=latent), pool)
    x = setup.layout.pack(some_point(setup))
    value, gradient = setup.objective.evaluate(x)
    assert value == pytest.approx(setup.objective.value(x), abs=1e-8)
    for place in range(len(x)):
        step = 1e-5 * np.eye(len(x))[place]
        slope = (setup.objective.value(x + step) - setup.objective.value(x - step)) / 2e-5
        # Differences of numbers of the size of a hundred, that are good to 1e-10, over 1e-5.
        assert gradient[place] == pytest.approx(slope, rel=1e-4, abs=1e-4)


def test_engines_agree_about_several_records() -> None:
    pool = make_pool(measure(FIRST, "xu", 1), measure(SECOND - 40.0, "x", 2))
    dense, spectral = (build_setup(RINGING, FitSettings(engine=engine), pool) for engine in ("dense", "spectral"))
    hyper = some_point(dense)
    assert spectral.engine.value(hyper) == pytest.approx(dense.engine.value(hyper), abs=1e-6)
    coefficients = dense.prior.observables.evaluate(hyper.theta)
    values = [
        np.concatenate(
            [item.values for part in pool.records.values() for item in part.series if item.observable == name]
        )
        for name in pool.names
    ]
    sizes = [np.mean((own / scale) ** 2) for own, scale in zip(values, dense.prior.units.scales, strict=True)]
    np.testing.assert_allclose(dense.engine.mean_squares(coefficients)[0], sizes)
    for first, second in zip(
        dense.engine.mean_squares(coefficients), spectral.engine.mean_squares(coefficients), strict=True
    ):
        # Means over all measurements of all records: a record without a channel says nothing about its size.
        np.testing.assert_allclose(first, second, rtol=1e-9)


def lag_covariance(times: dict[str, Array], a: float, length: float, deviation: float, noise: float) -> Array:
    """Return the covariance of x and u = x' + a x at times, for a squared exponential x, and of noise."""
    blocks = []
    for first, t in times.items():
        line = []
        for second, s in times.items():
            r = t[:, None] - s[None, :]
            k = deviation**2 * np.exp(-0.5 * (r / length) ** 2)
            factor = {
                ("x", "x"): np.ones_like(r),
                ("u", "x"): a - r / length**2,
                ("x", "u"): a + r / length**2,
                ("u", "u"): a**2 + length**-2.0 - r**2 / length**4,
            }
            line.append(factor[first, second] * k)
        blocks.append(line)
    return np.asarray(np.block(blocks)) + noise**2 * np.eye(sum(map(len, times.values())))


def test_parameters_of_two_records_are_those_of_one_joint_covariance() -> None:
    parts = [measure(FIRST, "xu", 1), measure(SECOND - 40.0, "xu", 2)]
    gp = lk.LODEGP(LAG, noise="shared", random_state=0)
    gp.fit([lk.Observations([(t, i.observable, y) for i in part.series for t, y in zip(i.times, i.values, strict=True)])
            for part in parts])  # fmt: skip
    data = np.concatenate([item.values for part in parts for item in part.series])

    def height(logs: Array) -> float:
        own = [lag_covariance({item.observable: item.times for item in part.series}, *np.exp(logs)) for part in parts]
        return float(multivariate_normal.logpdf(data, np.zeros(len(data)), block_diag(*own)))

    length, deviation = gp.hyperparameters_.values()
    found = np.log([gp.parameters_["a"].value, length, deviation, gp.noise_["shared"]])
    assert height(found) == pytest.approx(gp.log_evidence_, abs=1e-7)
    best = minimize(lambda logs: -height(logs), found, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    assert np.exp(best.x[0]) == pytest.approx(gp.parameters_["a"].value, rel=1e-3)
    # One record alone tells another value: both were used.
    other = lk.LODEGP(LAG, noise="shared", random_state=0).fit(FIRST, {s.observable: s.values for s in parts[0].series})
    assert abs(other.parameters_["a"].value / gp.parameters_["a"].value - 1.0) > 1e-2


def test_every_record_has_an_initial_state_of_its_own_at_its_own_start() -> None:
    decay = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    generator = np.random.default_rng(0)
    records = [
        (start + FIRST, state * np.exp(-0.5 * FIRST) + 0.02 * generator.standard_normal(len(FIRST)))
        for start, state in ((0.0, 3.0), (70.0, -1.0), (-9.0, 0.5))
    ]
    gp = lk.LODEGP(decay, random_state=0).fit(records)
    a, deviation, noise = gp.parameters_["a"].value, *gp.hyperparameters_.values(), *gp.noise_.values()
    assert a == pytest.approx(0.5, rel=0.05)
    expected = 0.0
    for times, values in records:
        state = np.exp(-a * (times - times[0]))
        own = deviation**2 * np.outer(state, state) + noise**2 * np.eye(len(times))
        expected += float(multivariate_normal.logpdf(values, np.zeros(len(values)), own))
    assert gp.log_evidence_ == pytest.approx(expected, abs=1e-7)
    for number, state in enumerate((3.0, -1.0, 0.5)):
        assert gp.predict([records[number][0][0]], "x", record=number) == pytest.approx(state, abs=0.05)


def test_a_record_with_a_wide_gap_is_as_good_as_two() -> None:
    parts = [measure(FIRST, "xu", 1), measure(SECOND + 500.0, "xu", 2)]
    both, one = build_setup(LAG, FitSettings(), make_pool(*parts)), build_setup(LAG, FitSettings(), parts[0] + parts[1])
    hyper = some_point(both, lengthscale=0.2)
    length = 0.2 * both.prior.units.time_scale / one.prior.units.time_scale
    # Without modes, what is hundreds of lengthscales apart is independent.
    assert one.engine.value(replace(hyper, lengthscales=np.array([length]))) == pytest.approx(
        both.engine.value(hyper), abs=1e-7
    )


def test_known_functions_of_time_stay_where_they_are() -> None:
    driven = lk.System("x' = -a*x + sin(t)", parameters={"a": lk.Parameter(positive=True)})
    generator = np.random.default_rng(0)

    def solution(times: Array, state: float) -> Array:
        steady = (0.5 * np.sin(times) - np.cos(times)) / 1.25
        return np.asarray(steady + (state - steady[0]) * np.exp(-0.5 * (times - times[0])))

    starts, states = (0.0, 11.0, 23.5), (2.0, -1.0, 0.0)
    truths = [(start + FIRST, solution(start + FIRST, state)) for start, state in zip(starts, states, strict=True)]
    gp = lk.LODEGP(driven, random_state=0).fit([(t, x + 0.01 * generator.standard_normal(len(t))) for t, x in truths])
    assert gp.parameters_["a"].value == pytest.approx(0.5, abs=4 * gp.parameters_["a"].std_error)
    assert gp.noise_["x"] == pytest.approx(0.01, rel=0.5)
    for number, (t, x) in enumerate(truths):
        mean, std = gp.predict(t, "x", return_std=True, record=number)
        assert (np.abs(mean - x) < 5.0 * std + 1e-6).all()
        assert np.abs(gp.residual(t, record=number, relative=True)).max() < 1e-9
