"""The experiments of the paper: three systems, their exact solutions, intervals and noise."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from lodekit.errors import LodekitError
from lodekit.support.arguments import Array
from lodekit.system import catalog
from lodekit.system.system import System


@cache
def load_published_results() -> dict[str, Any]:
    """Return the numbers published in the paper."""
    found: dict[str, Any] = json.loads(files("lodekit.paper").joinpath("published.json").read_text(encoding="utf-8"))
    return found


@cache
def load_report_texts() -> dict[str, Any]:
    """Return the texts of the report, and the equations of alternative systems."""
    return tomllib.loads(files("lodekit.paper").joinpath("report.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class PaperExperiment:
    """A system with the data on which the paper trains and evaluates.

    system, paper_system: The system for lodekit, and with the free functions chosen in the paper.
    exact_solution: The solution behind the data, from times to an array (n, channels). The paper prints that of the
        bipendulum with a rounded coefficient, 41/100, with which it is not a solution; this one has 4.095/10, and its
        ODE error is the published one.
    train_interval, evaluation_interval: Intervals of time.
    parameters: True values of the estimated parameters.
    """

    name: str
    system: System
    paper_system: System
    exact_solution: Callable[[Array], Array]
    train_interval: tuple[float, float]
    evaluation_interval: tuple[float, float]
    noise_std: float
    parameters: dict[str, float]

    @property
    def times(self) -> Array:
        """The times of the training data."""
        return np.linspace(*self.train_interval, int(load_published_results()["protocol"]["train_points"]))

    def data(self, seed: int, *, noisy: bool = True) -> Array:
        """Return the training data of a `seed`, `noisy` or exact, shape (n, channels)."""
        exact = self.exact_solution(self.times)
        return exact + (self.noise_std if noisy else 0.0) * np.random.default_rng(seed).standard_normal(exact.shape)


@cache
def experiments() -> dict[str, PaperExperiment]:
    """Return the three experiments by name."""
    found, protocol = {}, load_published_results()["protocol"]
    for example in catalog.examples():
        if (own := protocol.get(example.name)) is None:
            continue
        values = {key: float(value) for key, value in example.values.items() if key in example.system.parameters}
        found[example.name] = PaperExperiment(
            example.name,
            example.system,
            example.system.with_basis(own["free_functions"]) if "free_functions" in own else example.system,
            example.solution_at,
            tuple(own["train"]),
            tuple(own["evaluate"]),
            float(own["noise_std"]),
            values,
        )
    return found


def find_experiment(name: str) -> PaperExperiment:
    """Return an experiment by its name."""
    known = experiments()
    key = name.replace("-", "_")
    if key not in known:
        raise LodekitError(f"expected one of {', '.join(known)}, got {name!r}")
    return known[key]
