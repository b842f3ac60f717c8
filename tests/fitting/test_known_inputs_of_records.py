"""Driven searches over several records, and over one that grows: the optimum of a search that starts at the truth."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm

import lodekit as lk
from greybox_plants import SAME, steps
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements, RecordSet
from lodekit.fitting.multistart import build_noise_continuation
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup

Array = NDArray[np.float64]
STEP, FINE, NOISE = 0.4, 20, 0.03
#: A heater that is not seen, late, warms what is seen; neither is at rest.
EQUATIONS = ["h' = k*delay(u, T) - a*h", "y' = b*(h - y)"]
TRUTH = {"a": 0.3, "b": 1.6, "k": 1.2, "T": 0.82}


def heater(*, starts: bool = False) -> lk.System:
    made = {n: lk.Parameter(positive=True, start=value if starts else None) for n, value in TRUTH.items()}
    # A delay needs no word about its sign.
    made["T"] = lk.Parameter(start=TRUTH["T"] if starts else None)
    return lk.System(EQUATIONS, parameters=made)


def make_record(seed: int, rows: int) -> tuple[Array, dict[str, Array]]:
    """Return a record by small steps, with matrix exponentials."""
    generator = np.random.default_rng(seed)
    a, b, k, T = TRUTH.values()
    u = steps(generator, rows, 4, 20)
    late = np.concatenate([np.full(round(T / STEP * FINE), u[0]), np.repeat(u, FINE)])[: rows * FINE]
    block = np.zeros((3, 3))
    block[:2] = [[-a, 0.0, k], [b, -b, 0.0]]
    whole, x, y = expm(STEP / FINE * block), generator.standard_normal(2), []
    for number, held in enumerate(late):
        y += [x[1]] if number % FINE == 0 else []
        x = whole[:2, :2] @ x + whole[:2, 2] * held
    noisy = np.array(y) + NOISE * float(np.std(y)) * generator.standard_normal(rows)
    return STEP * np.arange(float(rows)), {"y": noisy, "u": u}


RECORDS = [make_record(0, 70), make_record(1, 50)]


def fit(system: lk.System, data: object, **options: object) -> lk.LODEGP:
    arguments = {"inputs": {"u": "hold"}, "random_state": 0, **options}
    return lk.LODEGP(system, **arguments).fit(data)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found() -> lk.LODEGP:
    return fit(heater(), RECORDS)


def test_records_with_dead_time_and_a_hidden_state_are_found_from_nothing(found: lk.LODEGP) -> None:
    """The lags may change places: then the heater is the fast one."""
    best = fit(heater(starts=True), RECORDS)
    assert found.log_evidence_ > best.log_evidence_ - SAME
    values = {name: each.value for name, each in found.parameters_.items()}
    assert values["T"] == pytest.approx(TRUTH["T"], abs=0.15)
    assert sorted([values["a"], values["b"]]) == pytest.approx([TRUTH["a"], TRUTH["b"]], rel=0.2)
    assert values["k"] / values["a"] == pytest.approx(TRUTH["k"] / TRUTH["a"], rel=0.05)


def make_lag(generator: np.random.Generator, rows: int, *, held: bool) -> tuple[Array, dict[str, Array]]:
    """Return a record of one lag by small steps, 0.2 late."""
    t, fine = np.arange(float(rows)), np.arange(0.0, rows, 0.01)
    u, places = generator.standard_normal(rows), np.maximum(fine - 0.2, 0.0)
    late = u[places.astype(int)] if held else np.interp(places, t, u)
    y = np.zeros(len(fine))
    for n in range(len(fine) - 1):
        y[n + 1] = y[n] + 0.01 * (0.5 * (late[n] + late[n + 1]) - 0.5 * y[n])
    return t, {"y": y[::100] + 0.02 * generator.standard_normal(rows), "u": u}


LAG = lk.System("y' = K*delay(u, 1/5) - a*y", parameters={"a": lk.Parameter(positive=True), "K": lk.Parameter()})


def test_a_record_that_grows_is_searched_as_a_whole_one_is() -> None:
    """Of five rows next to nothing was known."""
    times, data = make_lag(np.random.default_rng(0), 40, held=True)
    gp = lk.LODEGP(LAG, inputs={"u": "hold"}, random_state=0)
    gp.fit(times[:5], {name: values[:5] for name, values in data.items()})
    gp.update(times[5:], {name: values[5:] for name, values in data.items()})
    whole = lk.LODEGP(LAG, inputs={"u": "hold"}, random_state=0).fit(times, data)
    assert gp.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-4)
    for name in ("a", "K"):
        assert gp.parameters_[name].value == pytest.approx(whole.parameters_[name].value, rel=1e-4)


def test_the_evidence_of_all_records_tells_held_from_straight() -> None:
    generator = np.random.default_rng(0)
    gp = fit(LAG, [make_lag(generator, rows, held=False) for rows in (40, 30)], inputs={"u": "auto"})
    assert gp.fit_.measurements.inputs["u"].kind == "linear"
    assert gp.fit_.hold_preference["u"] > 10.0
    assert gp.parameters_["a"].value == pytest.approx(0.5, rel=0.1)


def test_little_known_noise_of_several_records_is_approached_from_more() -> None:
    """The first search sees a hundredth of the scale of each observable as its noise."""

    def settle(noise: float) -> FitSetup:
        made = [make_lag(np.random.default_rng(seed), 12, held=True) for seed in (0, 1)]
        series = [Observations().add(t, "y", data["y"], noise).add(t, "u", data["u"]) for t, data in made]
        pool = RecordSet.from_records({str(k): Measurements.from_observations(each) for k, each in enumerate(series)})
        return build_setup(LAG, FitSettings(inputs={"u": "hold"}), pool)

    tight = settle(1e-9)
    first, *others = build_noise_continuation(tight)
    x = np.zeros(tight.layout.size)
    same = settle(1e-2 * float(tight.prior.noise.scales[0])).objective.value(x)
    assert first.value(x) == pytest.approx(same, abs=1e-8)
    assert len(others) == 2
    assert np.diff([each.value(x) for each in (first, *others)]).max() < 0.0
