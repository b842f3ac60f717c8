"""The paper's heating system with noisy data, a short window with noise of its own, and the smallest system of all."""

from __future__ import annotations

import numpy as np

import lodekit as lk
from tests.inference.fitted import EXAMPLES, solution_table

HEATING = EXAMPLES["heating"]
TIMES = np.linspace(-5, 5, 25)
SHORT = np.linspace(0, 3, 60)
WALK = lk.System("x' = v")
WIGGLE = np.random.default_rng(0).standard_normal(60)


def heating_data(seed: int = 0, noise: float = 0.02) -> np.ndarray:
    return solution_table(HEATING, TIMES) + noise * np.random.default_rng(seed).standard_normal((25, 3))
