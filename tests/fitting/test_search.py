"""Searches end where one that starts at the truth ends, on plants whose truth and units they do not know."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import buildings
import lodekit as lk
import lodekit.fitting.multistart as fit_multistart
import lodekit.fitting.setup as fit_setup
import plants
from lodekit.fitting.lbfgs import Optimum, search_bounds
from lodekit.fitting.starts.candidates import StartPoint

#: These ended in poor optima before, each for a reason of its own; the first of a kind and some that were hardest.
PLANTS = [
    ("quarter_car", 58),
    ("quarter_car", 101),
    ("rlc", 75),
    ("rlc", 119),
    ("rlc", 196),
    ("two_room", 1),
    ("decay", 5),
    ("decay", 0),
    ("accelerometer", 2),
]


def end(plant: plants.Plant, *, told: bool) -> float:
    gp = lk.LODEGP(plant.system(told=told), random_state=0).fit(plant.observations())
    return float(gp.fit_.optimum.value)


@cache
def end_from_truth(name: str, seed: int) -> float:
    return end(plants.make(name, seed), told=True)


def shorten(plant: plants.Plant, rows: int) -> plants.Plant:
    """Return a plant with its first rows alone."""
    return replace(plant, data=[(t[:rows], key, y[:rows], std) for t, key, y, std in plant.data])


@pytest.mark.parametrize(("name", "seed"), PLANTS)
def test_a_search_finds_what_one_from_the_truth_finds(name: str, seed: int) -> None:
    assert end(plants.make(name, seed), told=False) > end_from_truth(name, seed) - 0.1


def test_without_guesses_from_the_data_a_long_decay_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(system: lk.System, objective: Any, *_: Any) -> list[StartPoint]:
        return [StartPoint("blind", np.full(len(objective.layout.names), np.nan))]

    best = end_from_truth("decay", 5)
    monkeypatch.setattr(fit_setup, "collect_guesses", blind)
    assert end(plants.make("decay", 5), told=False) < best - 100.0


@pytest.mark.parametrize(("name", "rows", "gain"), [("double_integrator", 250, "K"), ("binary_plant", 200, "b")])
def test_plants_with_stepped_inputs_are_found_without_starts(name: str, rows: int, gain: str) -> None:
    plant = shorten(plants.make(name, 1), rows)
    gp = lk.LODEGP(plant.system(), random_state=0).fit(plant.observations())
    assert gp.parameters_[gain].value == pytest.approx(plant.truth[gain], rel=0.25)
    assert gp.fit_.optimum.value > end(plant, told=True) - 0.1


def test_fast_oscillations_are_no_noise() -> None:
    plant = shorten(plants.make("fast", 1), 100)
    gp = lk.LODEGP(plant.system(), random_state=0).fit(plant.observations())
    assert gp.parameters_["a0"].value == pytest.approx(plant.truth["a0"], rel=0.1)
    spread = {key: float(np.std(values)) for _, key, values, _ in plant.data}
    assert gp.noise_["y"] < 0.3 * spread["y"]


def test_a_state_that_the_data_do_not_need_stays_where_the_evidence_is_sure() -> None:
    """A heater without capacity: 1e12 times farther, rounding made the same curves more likely by two nats."""
    building = buildings.make_building(3, 0, rows=300)
    gp = lk.LODEGP(building.system, **building.options).fit(building.times, building.data)
    fit, objective = gp.fit_, gp.fit_.setup.objective
    for position, transform in enumerate(fit.layout.transforms.values()):
        assert abs(fit.optimum.x[position] - transform.centre) < 16.1 or fit.optimum.at_bound[position]
    for move in (2.0, 4.0):
        x = fit.optimum.x.copy()
        x[fit.layout.index_of("Ch")] -= move
        x[fit.layout.index_of("Rih")] += move
        assert objective.value(x) < fit.optimum.value + 0.01


def test_random_starts_with_disturbances_are_followed_until_two_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    heights, followed = {0.0: 1.0, 1.0: 50.0, 2.0: 49.0, 3.0: 90.0}, []

    def search(objective: Any, x: Any, **limits: Any) -> Optimum:
        followed.append(float(x[0]))
        return Optimum(x, heights[float(x[0])], True, "", 1, np.zeros(1, dtype=bool))

    monkeypatch.setattr(fit_multistart, "maximize_lbfgs", search)
    monkeypatch.setattr(fit_multistart, "rank_disturbance_starts", lambda *_: [np.zeros(1), np.zeros(1)])
    objective: Any = None
    found = fit_multistart.multistart_disturbances(objective, (), None, [np.full(1, k) for k in (1.0, 2.0, 3.0)])
    assert found is not None
    assert found.value == 50.0
    assert followed == [0.0, 1.0, 2.0]


def test_bounds_hold_where_a_start_has_a_lengthscale_beyond_them() -> None:
    """A start from a profile had one, and the fit ended with a ValueError of SciPy."""
    t = np.arange(12.0)
    objective = (
        lk.LODEGP(lk.System("x' = v"), engine="spectral", random_state=0).fit(t, {"x": np.sin(t)}).fit_.setup.objective
    )
    x = np.zeros(objective.layout.size)
    x[objective.layout.slices.lengthscales] = 100.0
    low, high = search_bounds(objective, x, x)
    assert (low <= high).all()
