"""Searches end where one that starts at the truth ends, on plants whose truth and units they do not know."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import lodekit as lk
import lodekit.fitting.setup as fit_setup
import plants
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
