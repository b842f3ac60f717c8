"""Columns that somebody set are told from what sensors show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lodekit.data.preview import describe_off_periods, describe_steps, preview_table
from tests.real_records import RECORDS, needs

TIMES = np.linspace(0, 10, 200)
GENERATOR = np.random.default_rng(0)
NOISE = GENERATOR.standard_normal(200)
SMOOTH = np.sin(TIMES) + 0.3 * np.cos(2.7 * TIMES)
RANDOM = GENERATOR.integers(0, 2, 200).astype(float)


def respond(u: np.ndarray, tau: float) -> np.ndarray:
    """The response of a lag with a time constant of so many rows."""
    y, decay = np.zeros(len(u)), np.exp(-1 / tau)
    for k in range(len(u) - 1):
        y[k + 1] = decay * y[k] + (1 - decay) * u[k]
    return y


@pytest.mark.parametrize(
    "values",
    [
        np.repeat([0.0, 5.0, 2.0, 8.0], 50),
        np.repeat([0.0, 5.0, 2.0, 8.0], 50) + 0.05 * NOISE,
        np.tile(np.repeat([0.0, 1.0], 10), 10),
        1e6 + np.repeat([0.0, 5.0], 100),
        # Pseudo-random: from row to row, every third row, shifted, noisy, of several levels.
        RANDOM,
        np.repeat(RANDOM[:67], 3),
        3 - 0.2 * RANDOM,
        RANDOM + 0.02 * NOISE,
        np.repeat(GENERATOR.uniform(0, 100, 50), 4),
        np.repeat(GENERATOR.integers(0, 3, 40), 5) * 10.0,
        # A staircase, and a single step.
        np.repeat(np.arange(5.0), 40),
        np.where(np.arange(200) < 120, 20.0, 35.0),
    ],
)
def test_steps_are_seen(values: np.ndarray) -> None:
    assert describe_steps(values)


@pytest.mark.parametrize(
    "values",
    [
        SMOOTH,
        SMOOTH + 0.1 * NOISE,
        NOISE,
        np.cumsum(NOISE),
        np.round(SMOOTH * 10) / 10,
        np.full(200, 3.0),
        np.zeros(200),
        np.where(np.arange(200) == 70, 9.0, SMOOTH),
        np.arange(200.0),
        np.exp(TIMES),
        np.array([0.0, 1.0]),
        # Sensors with a coarse display, with and without flicker; one that is slower than its log; quick responses.
        np.round(respond(np.repeat(RANDOM[:10], 20), 8.0), 1),
        np.round(20 * respond(np.repeat(RANDOM[:10], 20), 8.0) + 0.5 * NOISE),
        np.round(50 * respond(np.repeat(RANDOM[:10], 20), 3.0)),
        np.repeat(SMOOTH[::2], 2),
        np.round(0.4 * NOISE),
        np.array([]),
    ],
)
def test_what_sensors_show_is_not_called_stepped(values: np.ndarray) -> None:
    assert not describe_steps(values)


def test_what_is_often_off_is_told_from_what_comes_to_rest() -> None:
    power = np.where(np.sin(TIMES) > 0.3, np.random.default_rng(1).uniform(10, 80, 200), 0.0)
    assert "zero in 50 % of the rows" in describe_off_periods(power)
    assert not describe_steps(power)
    for other in (
        SMOOTH,
        np.zeros(200),
        np.maximum(SMOOTH - 1.2, 0),
        np.exp(-TIMES) * (TIMES > 8),
        np.where(power > 0, NOISE, 0),
    ):
        assert not describe_off_periods(other)


REAL = {
    "daisy_heating_system.dat": (["2"], ["3"]),
    "tclab_siso_step.csv": (["2"], ["3"]),
    "tclab_mimo_random_steps.csv": (["Heater 1", "Heater 2"], ["Temperature 1", "Temperature 2"]),
    "school_heating.csv": (["Ph"], ["Ti", "Ta", "Th"]),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in REAL])
def test_inputs_of_real_records_are_told_from_quantised_temperatures(name: str) -> None:
    set_by_somebody, measured = REAL[name]
    look = preview_table(RECORDS / name)
    assert [column.name for column in look.columns if column.input_evidence] == set_by_somebody
    assert [column.name for column in look.columns if not column.input_evidence] == measured
    assert look.time is not None
    assert look.time.number == 1


@pytest.mark.parametrize(("step", "unit"), [(1800, "h"), (30, "s")])
def test_dates_a_minute_or_more_apart_are_counted_in_hours(tmp_path: Path, step: int, unit: str) -> None:
    dates = np.datetime64("2024-01-01T00:00", "s") + step * np.arange(9)
    rows = "".join(f"{date},{0.5 * number}\n" for number, date in enumerate(dates))
    (tmp_path / "log.csv").write_text(f"time,x\n{rows}")
    found = preview_table(tmp_path / "log.csv").time
    assert found is not None
    assert found.unit == unit
