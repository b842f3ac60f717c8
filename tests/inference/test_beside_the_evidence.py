"""What engines say beside evidence and posterior: sizes of data, limits of searches, their reasons, and who answers."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import sympy
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements
from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.dense.engine import DenseEngine
from lodekit.inference.engine import EngineTask
from lodekit.inference.fallback import FallbackEngine, FallbackPosterior
from lodekit.inference.selection import ENGINES, EngineChoice, choose_engine
from lodekit.inference.spectral.engine import SpectralEngine
from lodekit.prior.prior import Hyperparameters
from tests.inference.fitted import make_case, prior_of, series_of, system_of, values_of

Array = NDArray[np.float64]


def particular_at(system: lk.System, theta: Array, times: Array) -> Array:
    """The particular solution by SymPy, shape (channels, n)."""
    values = dict(zip(map(sympy.Symbol, system.parameters), theta.tolist(), strict=True))
    functions = [signal.to_sympy().subs(values) for signal in system.particular_solution]
    columns = [[float(function.subs(sympy.Symbol("t"), time)) for time in times] for function in functions]
    return np.array(columns)


@pytest.mark.parametrize("name", ["shaken_oscillator", "two_room", "three_tank", "heating"])
@pytest.mark.parametrize("kind", list(ENGINES))
def test_powers_are_mean_squares(kind: str, name: str) -> None:
    """Searches start from them; no evidence would tell that they are wrong."""
    _, data, _, hyper = make_case(name, count=7)
    engine = ENGINES[kind].create(data.prior, Measurements(series_of(data)), EngineTask(data.size, data.prior.kernels))
    observables = data.observables
    coefficients = observables.evaluate(hyper.theta)
    target, modes = engine.mean_squares(coefficients)
    scales = observables.units.scales
    means = particular_at(system_of(name)[0], hyper.theta, data.times)
    expected = [np.mean(((y - m) / s) ** 2) for y, m, s in zip(values_of(data), means, scales, strict=True)]
    np.testing.assert_allclose(target, expected, rtol=1e-10)
    basis, _ = observables.mode_basis(coefficients, data.prior.groups, data.scaled_times, with_jacobian=False)
    assert len(modes) == sum(group.size for group in data.prior.groups)
    for k, found in enumerate(modes):
        assert found == pytest.approx(np.mean([part[:, k] ** 2 for part in basis]), rel=1e-10)


def test_powers_of_known_noise_are_those_of_the_data() -> None:
    """Weights are no part of a mean square where the noise is the same for all."""
    _, data, _, hyper = make_case("heating", count=7)
    known = [replace(item, std=np.full(len(item.values), 0.3)) for item in series_of(data)]
    coefficients = data.observables.evaluate(hyper.theta)
    found, _ = SpectralEngine(data.prior, Measurements(known), 1e-10).mean_squares(coefficients)
    np.testing.assert_allclose(found, DenseEngine(data).mean_squares(coefficients)[0], rtol=1e-10)


def test_lengthscales_stay_above_a_third_of_the_smallest_gap() -> None:
    _, data, *_ = make_case("heating", count=6)
    engine = DenseEngine(data)
    gap = np.diff(data.times).min() / (data.times[-1] - data.times[0])
    assert engine.search_limits.min_lengthscale == pytest.approx(0.3 * gap)
    # No lengthscale is dearer than another.
    assert engine.search_limits.max_shrink_factor == np.inf
    series = [TimeSeries("f1", np.array([2.0]), np.array([1.0]), np.array([np.nan]))]
    one = Measurements(series)
    prior = prior_of(system_of("heating")[0], one)
    assert ENGINES["dense"].create(
        prior, one, EngineTask(1, prior.kernels)
    ).search_limits.min_lengthscale == pytest.approx(1e-3)
    # Its logarithm is a bound of the search.
    assert ENGINES["spectral"].create(prior, one, EngineTask(1, prior.kernels)).search_limits.min_lengthscale > 0.0


@pytest.fixture(scope="module")
def summed() -> tuple[SpectralEngine, Hyperparameters]:
    """An engine on sums over many measurements, and hyperparameters where all is well."""
    times = np.linspace(0.0, 5.0, 6000)
    many = Measurements([TimeSeries(name, times, np.cos(times), np.full(6000, np.nan)) for name in ("f1", "f2", "u")])
    prior = prior_of(system_of("heating")[0], many)
    return SpectralEngine(prior, many, 1e-10), make_case("heating")[3]


def test_sums_resolve_the_shortest_lengthscale_and_not_much_less(
    summed: tuple[SpectralEngine, Hyperparameters],
) -> None:
    engine, hyper = summed
    shortest = engine.search_limits.min_lengthscale
    assert 0.001 < shortest < 0.05
    assert engine.explain_failure(replace(hyper, lengthscales=np.full(1, shortest))) == ""
    assert "half oscillations" in engine.explain_failure(replace(hyper, lengthscales=np.full(1, 0.3 * shortest)))


def test_waves_warn_of_noise_and_lengthscales_that_they_cannot_see(
    summed: tuple[SpectralEngine, Hyperparameters],
) -> None:
    engine, hyper = summed
    assert engine.posterior(hyper).warnings() == []
    quiet = replace(hyper, noise_std=1e-7 * engine.prior.noise.level_scales)
    assert [
        "below the rounding errors of sums over the data" in text for text in engine.posterior(quiet).warnings()
    ] == [True]
    short = replace(hyper, lengthscales=np.full(1, engine.search_limits.min_lengthscale))
    assert ["shortest one that the spectral" in text for text in engine.posterior(short).warnings()] == [True]
    # Noise counts in the units of the data, however large these are.
    times = np.linspace(0.0, 5.0, 6000)
    huge = Measurements([TimeSeries(n, times, 1e9 * np.cos(times), np.full(6000, np.nan)) for n in ("f1", "f2", "u")])
    own = SpectralEngine(prior_of(system_of("heating")[0], huge), huge, 1e-10)
    for level, warned in ((0.5e-6, True), (2e-6, False)):
        noisy = replace(hyper, noise_std=level * own.prior.noise.level_scales)
        assert bool(own.posterior(noisy).warnings()) == warned
    # Measurements themselves show any noise.
    _, data, *_ = make_case("heating")
    few = SpectralEngine(data.prior, Measurements(series_of(data)), 1e-10)
    assert few.posterior(quiet).warnings() == []


def test_what_an_engine_has_computed_does_not_travel() -> None:
    """Parallel searches send engines to other processes: products of waves are made anew there."""
    _, data, _, hyper = make_case("heating")
    engine = SpectralEngine(data.prior, Measurements(series_of(data)), 1e-10)
    # Short, so that there are hundreds of waves.
    hyper = replace(hyper, lengthscales=np.full(1, 0.02))
    before = len(pickle.dumps(engine))
    value = engine.value(hyper)
    sent = pickle.dumps(engine)
    assert len(sent) < before + 10_000
    assert pickle.loads(sent).value(hyper) == pytest.approx(value, rel=1e-12)  # noqa: S301


@pytest.mark.parametrize("example", ["heating", "free_decay"])
@pytest.mark.parametrize("kind", ["dense", "dense on cpu", "spectral"])
def test_where_nothing_is_finite_the_evidence_is_none_and_the_posterior_says_so(kind: str, example: str) -> None:
    _, data, _, hyper = make_case(example, count=5)
    name, _, device = kind.partition(" on ")
    if device:
        pytest.importorskip("torch")
    case = EngineTask(data.size, data.prior.kernels, device=device or None)
    engine = ENGINES[name].create(data.prior, Measurements(series_of(data)), case)
    endless = hyper.map(lambda part: np.full_like(part, np.inf))
    broken = replace(hyper, amplitudes=endless.amplitudes, mode_amplitudes=endless.mode_amplitudes)
    assert engine.value(broken) == -np.inf
    found = engine.evaluate(broken)
    assert found.value == -np.inf
    for part, own in zip(found.gradient.arrays, hyper.arrays, strict=True):
        np.testing.assert_array_equal(part, np.zeros(len(own)))
    with pytest.raises(LodekitError, match="not finite at these values"):
        engine.posterior(broken).mean(data.observables, data.times)


def test_a_matrix_that_is_singular_to_rounding_is_refused_and_nothing_is_added() -> None:
    _, data, _, hyper = make_case("heating", count=8)
    flat = replace(hyper, lengthscales=np.full(1, 50.0), noise_std=np.full(1, 1e-12))
    engine = DenseEngine(data)
    assert engine.value(flat) == -np.inf or engine.value_with_error(flat)[1] > 1.0
    near = replace(hyper, lengthscales=np.full(1, 50.0), noise_std=np.full(1, 1e-20))
    with pytest.raises(AccuracyError, match="singular to rounding"):
        engine.posterior(near)
    assert engine.value_with_error(hyper)[1] < 1e-9


def test_a_system_without_any_freedom_is_known_exactly() -> None:
    times = np.linspace(0.0, 3.0, 8)
    gp = lk.LODEGP(lk.System("x = sin(t)"), noise="shared", random_state=0)
    gp.fit(times, np.sin(times) + 0.01 * np.cos(9 * times))
    mean, covariance = gp.predict(times, return_cov=True)
    np.testing.assert_allclose(mean[:, 0], np.sin(times), rtol=0, atol=1e-14)
    np.testing.assert_array_equal(covariance, np.zeros((8, 1, 8, 1)))
    np.testing.assert_array_equal(gp.sample(times, 2, random_state=0), np.stack([mean, mean]))
    rms = np.sqrt(np.mean((0.01 * np.cos(9 * times)) ** 2))
    assert gp.noise_["shared"] == pytest.approx(rms, rel=1e-3)


def test_choices_speak_of_one_or_many_measurements() -> None:
    assert str(choose_engine("auto", EngineTask(size=1, latents=()))).startswith("dense: 1 measurement; ")
    assert str(choose_engine("auto", EngineTask(size=200, latents=()))).startswith("dense: 200 measurements; ")
    assert str(choose_engine("auto", EngineTask(size=201, latents=()))) == "spectral: 201 measurements; more than 200"
    assert str(choose_engine("dense", EngineTask(size=12_345, latents=(), device="cuda"))) == (
        "dense: 12 345 measurements on cuda; chosen by you"
    )
    # Only the dense engine goes where a device is named.
    assert "cuda" not in str(choose_engine("spectral", EngineTask(size=12_345, latents=(), device="cuda")))


def test_a_matrix_has_a_largest_size_which_a_device_lifts() -> None:
    assert choose_engine("dense", EngineTask(size=40_000, latents=())).name == "dense"
    with pytest.raises(LodekitError, match=r"40 001 measurements are too many .*, or use engine='auto' or 'spectral'"):
        choose_engine("dense", EngineTask(size=40_001, latents=()))
    assert choose_engine("dense", EngineTask(size=40_001, latents=(), device="cuda")).name == "dense"


@dataclass(frozen=True)
class Answer:
    """A posterior that says one number to everything."""

    number: float
    mean_rounding_error: float = 0.0
    refuses: bool = False
    error: float = 0.0

    @property
    def value(self) -> float:
        return self.number

    def warnings(self) -> list[str]:
        return [f"warned by {self.number}"]

    def check_exact_values(self) -> None:
        raise LodekitError(f"checked by {self.number}")

    def _say(self, *_: object) -> Array:
        if self.refuses:
            raise LodekitError("out of reach")
        return np.array([0.0, self.number])

    mean = variance = covariance = sample = _say


@pytest.mark.parametrize(
    ("second", "heard"),
    [(Answer(2.0, 0.5), 2.0), (Answer(np.nan, 0.5), 1.0), (Answer(np.inf, 0.5), 1.0), (Answer(2.0, 0.5, True), 1.0)],
)
def test_the_second_engine_answers_wherever_it_can(second: Answer, heard: float) -> None:
    both = FallbackPosterior(Answer(1.0, 0.7), second)
    _, data, *_ = make_case("heating", count=3)
    observables, times, generator = data.observables, data.times, np.random.default_rng(0)
    for found in (
        both.mean(observables, times),
        both.variance(observables, times),
        both.covariance(observables, times),
        both.sample(observables, times, 1, generator),
    ):
        assert found.tolist() == [0.0, heard]
    # The evidence and its warnings are those of the engine that was chosen, unless the other one errs less.
    assert (both.value, both.mean_rounding_error, both.warnings()) == (1.0, 0.5, ["warned by 1.0"])
    worse = FallbackPosterior(Answer(1.0, 0.7, error=0.1), second)
    np.testing.assert_equal((worse.value, worse.error), (second.number, 0.0))
    with pytest.raises(LodekitError, match="checked by"):
        both.check_exact_values()


@dataclass(frozen=True)
class Answering:
    """An engine, and its kind, that has one answer."""

    prior: Any
    answer: Answer
    name: str = "answering"
    size: int = 9

    def rejection_reason(self, _: EngineTask) -> str:
        return ""

    def create(self, *_: object) -> Answering:
        return self

    def posterior(self, _: Hyperparameters) -> Answer:
        return self.answer


def test_where_the_second_engine_does_not_answer_the_first_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    _, data, _, hyper = make_case("heating", count=3)
    measurements = Measurements(series_of(data))
    first = Answering(data.prior, Answer(1.0, mean_rounding_error=0.7))
    for second, refined in (
        (Answer(2.0, mean_rounding_error=0.5), True),
        (Answer(2.0, mean_rounding_error=0.9), False),
        (Answer(np.nan, mean_rounding_error=0.5), False),
        (Answer(2.0, mean_rounding_error=0.5, refuses=True), False),
    ):
        kinds: Any = {"first": first, "second": Answering(data.prior, second)}
        monkeypatch.setattr("lodekit.inference.fallback.ENGINES", kinds)
        monkeypatch.setattr(
            "lodekit.inference.fallback.find_refusals", lambda _: dict.fromkeys(("first", "second"), "")
        )
        engine: Any = first
        own = FallbackEngine(engine, EngineChoice(engine, ""), measurements, EngineTask(9, data.prior.kernels))
        assert own.posterior(hyper) == (FallbackPosterior(first.answer, second) if refined else first.answer)
