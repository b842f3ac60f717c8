"""What the paper measured on: three systems, their exact solutions, intervals and noise."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.system import catalog
from lodekit.system.system import System

__all__ = ["Experiment", "experiments", "find_experiment", "published"]

Array = NDArray[np.float64]


@cache
def published() -> dict[str, Any]:
    """Return the figures of the paper."""
    found: dict[str, Any] = json.loads(files("lodekit.paper").joinpath("published.json").read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class Experiment:
    """A system with the data that the paper trains and evaluates on.

    Parameters
    ----------
    name : str
    system : System
    truth : function
        The solution that the paper prints, from times to an array (n, channels).
    train, evaluate : (float, float)
        Intervals.
    noise_std : float
    parameters : dict of str to float
        True values of what is learned.
    """

    name: str
    system: System
    truth: Callable[[Array], Array]
    train: tuple[float, float]
    evaluate: tuple[float, float]
    noise_std: float
    parameters: dict[str, float]

    @property
    def times(self) -> Array:
        """The times of the training data."""
        return np.linspace(*self.train, int(published()["protocol"]["train_points"]))

    def data(self, seed: int, *, noisy: bool = True) -> Array:
        """Return the training data of a `seed`, `noisy` or exact, shape (n, channels)."""
        exact = self.truth(self.times)
        return exact + (self.noise_std if noisy else 0.0) * np.random.default_rng(seed).standard_normal(exact.shape)


def _bipendulum(t: Array) -> Array:
    """The printed solution; its second equation holds to 4e-4 only, because one coefficient is rounded."""
    s, c, r = np.sin(3 * t), np.cos(3 * t), 1.0 / (t + 1)
    f1 = -41 / 100 * s * r - 3 / 5 * c * r**2 + 1 / 5 * s * r**3
    f2 = 81 / 2000 * s * r - 3 / 10 * c * r**2 + 1 / 10 * s * r**3
    # u = f1'' + 9.81 f1, by the product rule.
    u = _second(t, (-41 / 100, 0.0, 1 / 5), (0.0, -3 / 5, 0.0)) + 9.81 * f1
    return np.stack([f1, f2, u], axis=1)


def _second(t: Array, sines: tuple[float, ...], cosines: tuple[float, ...]) -> Array:
    """The second derivative of ``sum_k (a_k sin 3t + b_k cos 3t) / (t + 1)^(k+1)``."""
    s, c, r = np.sin(3 * t), np.cos(3 * t), 1.0 / (t + 1)
    total = np.zeros_like(t)
    for k, (a, b) in enumerate(zip(sines, cosines, strict=True), 1):
        wave, slope = a * s + b * c, 3 * (a * c - b * s)
        total += -9 * wave * r**k - 2 * k * slope * r ** (k + 1) + k * (k + 1) * wave * r ** (k + 2)
    return total


@cache
def experiments() -> dict[str, Experiment]:
    """Return the three experiments by name."""
    examples = {
        "bipendulum": catalog.bipendulum(),
        "heating": catalog.heating(),
        "three_tank": catalog.three_tank(),
    }
    found = {}
    for name, example in examples.items():
        own = published()["protocol"][name]
        truth = _bipendulum if name == "bipendulum" else example.solution_at
        values = {key: float(value) for key, value in example.values.items() if key in example.system.parameters}
        found[name] = Experiment(
            name, example.system, truth, tuple(own["train"]), tuple(own["evaluate"]), float(own["noise_std"]), values
        )
    return found


def find_experiment(name: str) -> Experiment:
    """Return an experiment by its name."""
    known = experiments()
    key = name.replace("-", "_")
    if key not in known:
        raise LodekitError(f"expected one of {', '.join(known)}, got {name!r}")
    return known[key]
