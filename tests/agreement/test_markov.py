"""The Markov engine says what the dense one says, and what a textbook filter says in fifty digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.observations import Observations, TimeSeries
from lodekit.data.records import Measurements
from lodekit.errors import AccuracyError, DataError, LodekitError
from lodekit.inference.dense.engine import DenseEngine
from lodekit.inference.dense.evidence import DenseData
from lodekit.inference.engine import Engine
from lodekit.inference.kalman import blocks, interval_means, posterior as looks
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.inference.kalman.irregular import build_frames
from lodekit.inference.kalman.state_space import build_state_space_model
from lodekit.prior.observables import EquationResiduals
from lodekit.prior.prior import Hyperparameters, Prior
from tests.agreement.kalman import matern
from tests.inference.fitted import EXAMPLES, EXTRA, gradient_vector, make_case, prior_of, series_of

Array = NDArray[np.float64]
#: In the data, between them, before and behind them, two almost at the same time, in no order.
TIMES = np.array([0.1, 0.55, 0.5500001, 2.0, 3.3, 4.6, 1.0])
#: Rough ones, and a smooth one where the observables need eight derivatives.
LATENTS = {"heating": "matern-5/2", "free_decay": "matern-1/2", "mass_chain": "matern-17/2"}


@pytest.fixture(autouse=True)
def _no_block_is_one_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that share nothing are filtered inside, as they are in long records."""
    monkeypatch.setattr(blocks, "_MAX_DENSE_IRREGULAR_BLOCKS", 0)


def compare(first: Engine, second: Engine, hyper: Hyperparameters, tolerance: float = 1e-9) -> None:
    """Evidence, gradient, mean, deviation and covariance, each relative to its largest entry."""
    one, other = first.evaluate(hyper), second.evaluate(hyper)
    assert other.value == pytest.approx(one.value, rel=tolerance, abs=tolerance)
    assert second.value(hyper) == pytest.approx(one.value, rel=tolerance, abs=tolerance)
    observables = first.prior.observables
    times = observables.units.unscale_times((TIMES - 0.5) / 3.5)
    posteriors = first.posterior(hyper), second.posterior(hyper)
    pairs = [(gradient_vector(one), gradient_vector(other))]
    pairs.append((posteriors[0].mean(observables, times), posteriors[1].mean(observables, times)))
    pairs.append((posteriors[0].variance(observables, times), posteriors[1].variance(observables, times)))
    pairs.append((posteriors[0].covariance(observables, times), posteriors[1].covariance(observables, times)))
    for a, b in pairs:
        np.testing.assert_allclose(b, a, rtol=0, atol=tolerance * np.abs(a).max())


def cut_blocks(prior: Prior, series: Sequence[TimeSeries], length: int | None) -> KalmanData:
    return replace(KalmanData.from_series(prior, series), block_length=length)


def both(prior: Prior, measurements: Measurements, length: int | None = None) -> tuple[DenseEngine, KalmanEngine]:
    dense = DenseEngine(DenseData.from_series(prior, measurements.series))
    return dense, KalmanEngine(cut_blocks(prior, measurements.series, length))


def hyper_of(prior: Prior, theta: tuple[float, ...], noise: float = 0.1) -> Hyperparameters:
    count, groups = len(prior.kernels), len(prior.groups)
    lengths, deviations = np.linspace(0.3, 0.5, count), np.linspace(0.8, 1.2, count)
    levels = noise * prior.noise.level_scales[: prior.noise.n_levels]
    return Hyperparameters(np.array(theta), lengths, deviations, np.linspace(0.7, 1.3, groups), levels)


@pytest.mark.parametrize("name", [*EXAMPLES, *EXTRA])
def test_every_system_is_as_the_dense_engine_says(name: str) -> None:
    """Irregular times, a quarter of the values missing, blocks of a few measurements.

    Tolerance: rounding times the condition of the covariance, below 1e6 with noise of 20 %.
    """
    latent = LATENTS.get(name, "matern-9/2")
    _, data, _, hyper = make_case(name, count=9, missing=True, latent=latent, noise="channel")
    compare(DenseEngine(data), KalmanEngine(cut_blocks(data.prior, series_of(data), 7)), hyper)


def test_the_length_of_blocks_changes_nothing() -> None:
    """Tolerance: rounding times the condition inside blocks, below 1e5."""
    _, data, _, hyper = make_case("two_room", count=16, missing=True, latent="matern-5/2")
    engines = [KalmanEngine(cut_blocks(data.prior, series_of(data), length)) for length in (500, 1, 8)]
    for engine in engines[1:]:
        compare(engines[0], engine, hyper, 1e-10)


@pytest.mark.parametrize(
    "equations",
    [
        "x'' = u",
        "x' = 0.9*x + u",
        "x'' + 2*a*x' + a^2*x = 0; y' = x + u",
        "x'' + a*x' + 9*x = 0; y' = -y + x + u",
        "x'' + 0.2*x' + 9*x = 0; y' = -y + x + u",
        "x'' - a*x' = 0; y' = x + u",
    ],
)
def test_several_rates_and_repeated_values(equations: str) -> None:
    """Integrators, unstable systems, repeated and complex roots; one channel is rare, one value stands twice."""
    system = lk.System(equations, parameters=["a"] if "a" in equations else [])
    generator = np.random.default_rng(4)
    fast, slow = np.arange(24) * 0.13, np.arange(5) * 0.61 + 0.05
    data = Observations().add(fast, "x", generator.standard_normal(24)).add(slow, "u", generator.standard_normal(5))
    data = data.add([fast[3], fast[4]], "x", [0.2, 0.3], 0.2).add([0.0], "x'", [0.4], 0.05)
    measurements = Measurements.from_observations(data)
    prior = prior_of(system, measurements, latent="matern-5/2", noise="channel")
    hyper = hyper_of(prior, (0.7,) if "a" in equations else ())
    for length in (None, 4):
        compare(*both(prior, measurements, length), hyper)


def test_exact_initial_values_are_met() -> None:
    """In units of their noise such values are 1e7; what is computed from them has all digits still."""
    system = lk.System("x'' + a*x' + 9*x = u", parameters=["a"])
    times = np.arange(1, 25) * 0.13
    data = Observations().add([0.0], "x", [1.0], 0.0).add([0.0], "x'", [0.4], 0.0)
    measurements = Measurements.from_observations(data.add(times, "x", np.cos(3.0 * times)))
    prior = prior_of(system, measurements, latent="matern-7/2", noise="channel")
    hyper = hyper_of(prior, (0.7,))
    dense, markov = both(prior, measurements)
    compare(dense, markov, hyper)
    compare(dense, both(prior, measurements, 5)[1], hyper)
    posterior = markov.posterior(hyper)
    posterior.check_exact_values()
    found = posterior.mean(prior.observables, np.zeros(1)) * prior.units.scales
    np.testing.assert_allclose(found, [[1.0, 0.4]], atol=1e-6)
    wrong = Measurements.from_observations(data.add([0.0], "x", [2.0], 0.0).add(times, "x", np.cos(3.0 * times)))
    with pytest.raises(DataError, match="contradict"):
        KalmanEngine(KalmanData.from_series(prior, wrong.series)).posterior(hyper).check_exact_values()


def test_regular_blocks_share_one_factorization() -> None:
    """The same numbers where only three different blocks are factorized, and each of them."""
    times, generator = np.arange(300) * 0.1, np.random.default_rng(0)
    data = Observations().add(times, "x", np.sin(times)).add(times, "u", generator.standard_normal(300))
    measurements = Measurements.from_observations(data)
    prior = prior_of(lk.System("x' = -a*x + u", parameters=["a"]), measurements, latent="matern-3/2")
    hyper = replace(hyper_of(prior, (0.6,)), lengthscales=np.array([0.05]))
    dense, markov = both(prior, measurements, 40)
    own = markov.data.layout()
    assert (own.n_blocks, len(np.unique(own.patterns))) == (15, 2)
    compare(dense, markov, hyper)


@pytest.mark.parametrize("few", [0, 100])
def test_many_rows_within_a_lengthscale(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """States that hardly move from row to row are seen from frames that many rows share; or blocks are dense.

    Two free functions, an oscillator that nothing drives, values missing, one value that is exact, a gap.
    """
    monkeypatch.setattr(blocks, "_MAX_DENSE_IRREGULAR_BLOCKS", few)
    generator = np.random.default_rng(5)
    times = np.sort(generator.uniform(0.0, 1.0, 120))
    times[60:] += 2.0
    system = lk.System("x'' + a*x' + 9*x = 0; y' = -a*y + x + u; z' = -z + v", parameters=["a"])
    data = Observations().add([0.0], "x", [1.0], 0.0)
    for name in "xyz":
        values = generator.standard_normal(120)
        values[generator.random(120) < 0.1] = np.nan
        data = data.add(times, name, values)
    measurements = Measurements.from_observations(data)
    prior = prior_of(system, measurements, latent="matern-5/2", noise="channel")
    hyper = hyper_of(prior, (0.7,))
    dense, markov = both(prior, measurements, 45)
    own, space = markov.data.layout(), build_state_space_model(prior, hyper, prior.observables.evaluate(hyper.theta))
    times = np.cumsum(own.step_lengths[own.step_index], axis=1).T
    every = (np.arange(prior.observables.count),) * own.observable_index.shape[2]
    _, _, changes, offsets = build_frames(space, times, every, np.full(prior.observables.count, 0.01))
    # All blocks change to their first frame and from their last one, and few places lie in between.
    count = sum(len(changing) for changing, _ in changes) - 2 * offsets.shape[1]
    assert 0 < count < 0.5 * offsets.size
    compare(dense, markov, hyper)


@pytest.mark.parametrize(
    ("equations", "length"), [("x' = -a*x + u", None), ("x'' + a*x' + 9*x = 0; y' = -a*y + x + u", 6)]
)
def test_means_and_totals_over_intervals(equations: str, length: int | None) -> None:
    """Intervals that touch, that overlap, with gaps between them, of several lengths, at several rates; and modes."""
    system = lk.System(equations, parameters=["a"])
    generator = np.random.default_rng(6)
    regular, odd = 0.25 * np.arange(1, 17), np.sort(generator.uniform(0.8, 4.0, 9))
    data = Observations().add(regular, "mean(x, 0.25)", generator.standard_normal(16))
    data = data.add(odd, "mean(x, 0.7)", generator.standard_normal(9)).add(odd, "x", generator.standard_normal(9))
    data = data.add(odd[::2], "total(u, 0.1)", generator.standard_normal(5))
    measurements = Measurements.from_observations(data)
    prior = prior_of(system, measurements, latent="matern-5/2", noise="channel")
    compare(*both(prior, measurements, length), hyper_of(prior, (0.7,)))


def test_intervals_that_overlap_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means and variances come in several passes; what needs all intervals at once is refused, and so are such data."""
    times: Array = np.linspace(0.1, 3.0, 30)
    data = Observations().add(times, "mean(x, 0.5)", np.sin(times)).add(times, "u", np.cos(times))
    measurements = Measurements.from_observations(data)
    prior = prior_of(lk.System("x' = -x + u"), measurements, latent="matern-3/2")
    engine, hyper = KalmanEngine(KalmanData.from_series(prior, measurements.series)), hyper_of(prior, ())
    assert engine.data.averaging is not None
    assert len(engine.data.averaging) == 5
    observables, asked = prior.observables, times[::-1] + 0.03
    whole = engine.posterior(hyper)
    expected = whole.mean(observables, asked), whole.variance(observables, asked)
    monkeypatch.setattr(looks, "_MAX_OPEN_INTERVALS", 2)
    split = engine.posterior(hyper)
    np.testing.assert_allclose(split.mean(observables, asked), expected[0], atol=1e-11)
    np.testing.assert_allclose(split.variance(observables, asked), expected[1], atol=1e-11)
    with pytest.raises(LodekitError, match="overlap"):
        split.covariance(observables, asked)
    monkeypatch.setattr(interval_means, "_MAX_OPEN_INTERVALS", 4)
    with pytest.raises(LodekitError, match="at most 4 are open at the same time, got 5"):
        KalmanEngine(KalmanData.from_series(prior, measurements.series)).value(hyper)


def expected_of(
    prior: Prior, noise: float, every: list[float], times: list[float], values: tuple[Array, Array]
) -> tuple[tuple[float, Array], Array]:
    """Return log evidence, means and deviations: x is measured at all times, u at every second one."""
    free = prior.observables.evaluate(np.zeros(0)).free[:, 0]
    free = np.pad(free, ((0, 0), (0, 3 - free.shape[1])))
    seen = [
        [
            (o, row[times.index(t)], noise)
            for o, row in enumerate(values)
            if t in times and (o == 0 or times.index(t) % 2 == 0)
        ]
        for t in every
    ]
    with mpmath.workdps(50):
        rows = [mpmath.matrix([[mpmath.mpf(float(c)) for c in row]]) for row in free]
        filtered = matern(2, 0.4, 1.3).filter(every, rows, seen)
        means, deviations = filtered.smooth()
    return (float(filtered.value), means), deviations


@pytest.mark.parametrize("noise", [0.1, 1e-3, 1e-6])
def test_a_textbook_filter_in_fifty_digits_says_the_same(noise: float) -> None:
    """Tolerance: rounding times the condition inside blocks, which are cut shorter where noise is small.

    Deviations of a millionth of the signal have as many digits as large ones.
    """
    times, asked = [0.0, 0.07, 0.2, 0.21, 0.5, 0.77, 1.0], [0.33, 0.9]
    generator = np.random.default_rng(2)
    x, u = generator.standard_normal((2, 7))
    data = Observations().add(times, "x", x).add(times[::2], "u", u[::2])
    measurements = Measurements.from_observations(data)
    prior = prior_of(lk.System("x' = -2*x + u"), measurements, latent="matern-5/2")
    hyper = Hyperparameters(np.zeros(0), np.array([0.4]), np.array([1.3]), np.zeros(0), np.array([noise]))
    # In the user's own units, so that nothing but time is scaled, and that is not either.
    plain = replace(prior.observables, units=replace(prior.units, scales=np.ones(2)))
    prior = replace(prior, observables=plain, noise=replace(prior.noise, scales=np.ones(2)))
    every = sorted([*times, *asked])
    values, deviations = expected_of(prior, noise, every, times, (x, u))
    for length in (None, 1):
        posterior = KalmanEngine(cut_blocks(prior, measurements.series, length)).posterior(hyper)
        assert posterior.value == pytest.approx(values[0], rel=1e-10)
        found = posterior.mean(prior.observables, np.array(every))
        np.testing.assert_allclose(found, values[1], rtol=0, atol=1e-10 * np.abs(values[1]).max())
        found = np.sqrt(posterior.variance(prior.observables, np.array(every)))
        np.testing.assert_allclose(found, deviations, rtol=1e-9)
        found = np.sqrt(np.einsum("aoao->ao", posterior.covariance(prior.observables, np.array(every))))
        np.testing.assert_allclose(found, deviations, rtol=1e-9)


def test_many_times_far_from_all_measurements() -> None:
    """Blocks of them have nothing to say, and those that are alike are filtered by themselves.

    Tolerance: rounding times the condition of the covariance, below 1e5.
    """
    times = np.arange(24) * 0.13
    measurements = Measurements.from_observations(Observations().add(times, "x", np.sin(times)))
    prior = prior_of(lk.System("x' = -0.5*x + u"), measurements, latent="matern-5/2", noise="channel")
    engines, hyper = both(prior, measurements), hyper_of(prior, (), 0.3)
    steps = np.random.default_rng(2).integers(1, 9, 480) / 512
    times = 4.0 + np.cumsum(np.tile(steps, 2))
    found = [engine.posterior(hyper) for engine in engines]
    for question in ("mean", "variance"):
        expected, other = (getattr(own, question)(prior.observables, times) for own in found)
        np.testing.assert_allclose(other, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def test_curves_solve_the_equations() -> None:
    """Means and samples with the derivatives that they come with: all terms cancel to rounding, at any time."""
    reader, data, _, hyper = make_case("two_room", count=12, latent="matern-7/2")
    posterior = KalmanEngine(KalmanData.from_series(data.prior, series_of(data))).posterior(hyper)
    terms, times = EquationResiduals(reader.system), np.linspace(0.0, 5.0, 30)
    observables = reader.compile_unscaled(terms.observables, data.prior.units)
    drawn = posterior.sample(observables, times, 3, np.random.default_rng(0))
    for curves in (posterior.mean(observables, times)[None], drawn):
        assert np.abs(terms.residual(hyper.theta, times, curves, relative=True)).max() <= 1e-12


def test_samples_have_the_mean_and_the_covariance() -> None:
    """4000 draws: a mean errs by 1/60 of its deviation, a correlation by 1/60; five times that is never seen."""
    _, data, _, hyper = make_case("growth", count=8, missing=True, latent="matern-3/2")
    posterior = KalmanEngine(cut_blocks(data.prior, series_of(data), 5)).posterior(hyper)
    observables = data.prior.observables
    drawn = posterior.sample(observables, TIMES, 4000, np.random.default_rng(0)).reshape(4000, -1)
    expected = posterior.covariance(observables, TIMES).reshape(drawn.shape[1], -1)
    deviations = np.sqrt(np.diag(expected))
    assert np.abs((drawn.mean(axis=0) - posterior.mean(observables, TIMES).ravel()) / deviations).max() < 0.09
    found = np.cov(drawn.T)
    assert np.abs((found - expected) / np.outer(deviations, deviations)).max() < 0.12


@pytest.mark.parametrize("regular", [True, False])
def test_absurd_values_are_impossible_and_no_accident(regular: bool) -> None:
    """A search tries such values: noise that floats do not see beside the signal, rates that overflow."""
    times = np.arange(200) * 0.1 if regular else np.sort(np.random.default_rng(0).uniform(0.0, 20.0, 200))
    measurements = Measurements.from_observations(
        Observations().add(times, "x", np.sin(times)).add(times, "u", np.cos(times))
    )
    prior = prior_of(lk.System("x' = -a*x + u", parameters=["a"]), measurements, latent="matern-5/2")
    engine = KalmanEngine(cut_blocks(prior, measurements.series, 40))
    hyper = hyper_of(prior, (0.6,))
    for changes in (
        {"lengthscales": 1e-6, "amplitudes": 1e14, "noise_std": 1e-9},
        {"theta": np.inf},
        {"amplitudes": 1e300},
    ):
        absurd = replace(hyper, **{name: np.array([value]) for name, value in changes.items()})
        found = engine.evaluate(absurd)
        assert not np.isnan(found.value)
        assert all(np.isfinite(part).all() for part in found.gradient.arrays)
        assert engine.value(absurd) == found.value or np.isneginf(found.value)
    with pytest.raises(AccuracyError, match="not finite"):
        engine.posterior(replace(hyper, theta=np.array([np.inf])))
