"""What engines say beside evidence and posterior: sizes of data, limits of searches, their reasons, and who answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import sympy
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.measurements import Measurements
from lodekit.data.observations import Series
from lodekit.errors import LodekitError
from lodekit.inference.accurate import RefinedPosterior
from lodekit.inference.choice import KINDS, choose
from lodekit.inference.dense.engine import DenseEngine
from lodekit.inference.engine import Case
from lodekit.inference.spectral.engine import SpectralEngine
from tests.inference.fitted import make_case, prior_of, series_of, system_of

Array = NDArray[np.float64]


def particular_at(system: lk.System, theta: Array, times: Array) -> Array:
    """The particular solution by SymPy, shape (channels, n)."""
    values = dict(zip(map(sympy.Symbol, system.parameters), theta.tolist(), strict=True))
    functions = [signal.to_sympy().subs(values) for signal in system.particular_solution]
    columns = [[float(function.subs(sympy.Symbol("t"), time)) for time in times] for function in functions]
    return np.array(columns)


@pytest.mark.parametrize("name", ["shaken_oscillator", "two_room", "three_tank", "heating"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_powers_are_mean_squares(kind: str, name: str) -> None:
    """Searches start from them; no evidence would tell that they are wrong."""
    _, data, _, hyper = make_case(name, count=7)
    engine = KINDS[kind].make(data.prior, Measurements(series_of(data)), Case(data.size, data.latents))
    observables = data.observables
    coefficients = observables.evaluate(hyper.theta)
    target, modes = engine.powers(coefficients)
    scales = observables.units.scales
    means = particular_at(system_of(name)[0], hyper.theta, data.times)
    expected = [np.mean(((y - m) / s) ** 2) for y, m, s in zip(data.values, means, scales, strict=True)]
    np.testing.assert_allclose(target, expected, rtol=1e-10)
    basis, _ = observables.mode_basis(coefficients, data.groups, data.scaled_times, slopes=False)
    assert len(modes) == sum(group.size for group in data.groups)
    for k, found in enumerate(modes):
        assert found == pytest.approx(np.mean([part[:, k] ** 2 for part in basis]), rel=1e-10)


def test_powers_of_known_noise_are_those_of_the_data() -> None:
    """Weights are no part of a mean square where the noise is the same for all."""
    _, data, _, hyper = make_case("heating", count=7)
    known = [replace(item, std=np.full(len(item.values), 0.3)) for item in series_of(data)]
    coefficients = data.observables.evaluate(hyper.theta)
    found, _ = SpectralEngine.of(data.prior, Measurements(known), 1e-10).powers(coefficients)
    np.testing.assert_allclose(found, DenseEngine(data).powers(coefficients)[0], rtol=1e-10)


def test_lengthscales_stay_above_a_third_of_the_smallest_gap() -> None:
    _, data, *_ = make_case("heating", count=6)
    engine = DenseEngine(data)
    gap = np.diff(data.times).min() / (data.times[-1] - data.times[0])
    assert engine.limits.shortest == pytest.approx(0.3 * gap)
    # No lengthscale is dearer than another.
    assert engine.limits.stride == np.inf
    series = [Series("f1", np.array([2.0]), np.array([1.0]), np.array([np.nan]))]
    one = Measurements(series)
    prior = prior_of(system_of("heating")[0], one)
    assert KINDS["dense"].make(prior, one, Case(1, prior.latents)).limits.shortest == pytest.approx(1e-3)


def test_sums_resolve_the_shortest_lengthscale_and_not_much_less() -> None:
    times = np.linspace(0.0, 5.0, 6000)
    series = [Series(name, times, np.cos(times), np.full(6000, np.nan)) for name in ("f1", "f2", "u")]
    many = Measurements(series)
    prior = prior_of(system_of("heating")[0], many)
    engine = SpectralEngine.of(prior, many, 1e-10)
    _, _, _, hyper = make_case("heating")
    shortest = engine.limits.shortest
    assert 0.001 < shortest < 0.05
    assert engine.trouble(replace(hyper, lengthscales=np.full(1, shortest))) == ""
    assert "half oscillations" in engine.trouble(replace(hyper, lengthscales=np.full(1, 0.3 * shortest)))


def test_choices_speak_of_one_or_many_measurements() -> None:
    assert str(choose("auto", Case(size=1, latents=()))).startswith("dense: 1 measurement; ")
    assert str(choose("auto", Case(size=200, latents=()))).startswith("dense: 200 measurements; ")
    assert str(choose("auto", Case(size=201, latents=()))) == "spectral: 201 measurements; more than 200"
    assert str(choose("dense", Case(size=12_345, latents=(), device="cuda"))) == (
        "dense: 12 345 measurements on cuda; asked for"
    )
    # Only the dense engine goes where a device is named.
    assert "cuda" not in str(choose("spectral", Case(size=12_345, latents=(), device="cuda")))


def test_a_matrix_has_a_largest_size_which_a_device_lifts() -> None:
    assert choose("dense", Case(size=40_000, latents=())).name == "dense"
    with pytest.raises(LodekitError, match=r"40 001 measurements are too many .* use engine='auto' or 'spectral'"):
        choose("dense", Case(size=40_001, latents=()))
    assert choose("dense", Case(size=40_001, latents=(), device="cuda")).name == "dense"


@dataclass(frozen=True)
class Answer:
    """A posterior that says one number to everything."""

    number: float
    rounding: float = 0.0
    refuses: bool = False

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
    both = RefinedPosterior(Answer(1.0, 0.7), second)
    _, data, *_ = make_case("heating", count=3)
    observables, times, generator = data.observables, data.times, np.random.default_rng(0)
    for found in (
        both.mean(observables, times),
        both.variance(observables, times),
        both.covariance(observables, times),
        both.sample(observables, times, 1, generator),
    ):
        assert found.tolist() == [0.0, heard]
    # The evidence, its warnings and exact values are those of the engine that was chosen.
    assert (both.value, both.rounding, both.warnings()) == (1.0, 0.5, ["warned by 1.0"])
    with pytest.raises(LodekitError, match=r"checked by 1\.0"):
        both.check_exact_values()
