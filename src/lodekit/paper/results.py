"""The results of all runs, and medians, errors and ratios of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from lodekit.paper.experiments import experiments, find_experiment, load_published_results
from lodekit.paper.metrics import ode_error
from lodekit.support.arguments import Array

#: The columns of the main table, in the order of the paper, and their titles.
COLUMNS = ("train_rmse", "eval_rmse", "loss", "ode_error")
COLUMN_TITLES = dict(zip(COLUMNS, ("training RMSE", "evaluation RMSE", "loss", "ODE error"), strict=True))
#: The published model that corresponds to each method.
PUBLISHED_MODELS = {"paper": "lodegp", "lodekit": "lodegp", "channels": "lodegp", "baseline": "gp"}
#: The titles of the methods.
METHOD_TITLES = {
    "paper": "LODE-GP, the paper's way",
    "lodekit": "LODE-GP, lodekit's way",
    "channels": "LODE-GP, lodekit, prior on channels",
    "baseline": "GP, trained here",
}
SYSTEM_TITLES = {"bipendulum": "Bipendulum", "heating": "Heating", "three_tank": "Three tank"}
#: Runs of the bipendulum with a larger training RMSE ended at a nearly constant zero function.
MAX_CONVERGED_RMSE = 0.05


@dataclass(frozen=True)
class MedianStd:
    """A median with a standard deviation, and the smallest and largest value if known."""

    median: float
    std: float
    low: float = np.nan
    high: float = np.nan

    @classmethod
    def of(cls, values: Array) -> MedianStd:
        """Return the statistics of some values."""
        return cls(float(np.median(values)), float(np.std(values)), float(values.min()), float(values.max()))

    def is_within(self, published: MedianStd) -> bool:
        """Return whether the median is within the published spread."""
        return abs(self.median - published.median) <= published.std

    def __str__(self) -> str:
        return f"{format_number(self.median)} ± {format_number(self.std, 2)}"


def format_number(value: float, digits: int = 3) -> str:
    """Return a `value` with the given number of `digits`, without an exponent if that is easy to read.

    Examples
    --------
    >>> format_number(0.0602), format_number(-1.6384), format_number(5.136e-07), format_number(0.0)
    ('0.0602', '-1.638', '5.14e-07', '0')
    """
    if value == 0:
        return "0"
    if 1 <= abs(value) < 1e4:
        before = len(str(int(abs(value))))
        return f"{value:.{max(digits, before + 3)}g}"
    if 1e-3 <= abs(value) < 1:
        return f"{value:.{digits}g}"
    return f"{value:.{digits - 1}e}"


@dataclass(frozen=True)
class RunResults:
    """The results of all runs as plain values."""

    rows: Sequence[dict[str, Any]]

    def select(self, topic: str, system: str = "", method: str = "", *, noisy: bool = True) -> list[dict[str, Any]]:
        """Return the runs of a `topic`, in the order of their data sets.

        Optionally, only those of a `system` and a `method`; they are either `noisy` or noise-free.
        """
        rows = [row for row in self.rows if row["topic"] == topic and row["noisy"] == noisy]
        rows = [row for row in rows if system in ("", row["system"]) and method in ("", row["method"])]
        return sorted(rows, key=lambda row: row["seed"])

    @property
    def systems(self) -> list[str]:
        """The systems of the main table that were run, in the order of the paper."""
        return [name for name in experiments() if self.select("main", name)]

    def methods(self, system: str) -> list[str]:
        """Return the methods that were run on noisy data of a `system`, in the order of the tables."""
        return [method for method in METHOD_TITLES if self.select("main", system, method)]

    def values(self, column: str, system: str, method: str) -> Array:
        """Return a `column` of the main table for a `system` and a `method`, one value for each noisy data set.

        ODE errors are averaged over equations.
        """
        return np.array([np.mean(row[column]) for row in self.select("main", system, method)], dtype=float)

    def median_std(self, column: str, system: str, method: str) -> MedianStd:
        """Return the median and the standard deviation of a `column` on noisy data, for a `system` and a `method`."""
        return MedianStd.of(self.values(column, system, method))

    def paired_values(self, column: str, system: str, method: str, other: str) -> tuple[Array, Array]:
        """Return a `column` for two methods on the noisy data sets of a `system` for which both were run."""
        runs = [self.select("main", system, way) for way in (method, other)]
        first, second = ({row["seed"]: float(np.mean(row[column])) for row in rows} for rows in runs)
        seeds = sorted(first.keys() & second.keys())
        return np.array([first[seed] for seed in seeds]), np.array([second[seed] for seed in seeds])

    def heating_errors(self, method: str, *, noisy: bool, max_runs: int | None = None) -> Array:
        """Return relative errors of the heating parameters, shape (runs, 2).

        They are those of the first `max_runs` (or all) `noisy` or noise-free runs of a `method`.
        """
        truth = find_experiment("heating").parameters
        rows = self.select("main", "heating", method, noisy=noisy)[:max_runs]
        return np.array([[abs(row["parameters"][name] / truth[name] - 1) for name in truth] for row in rows])

    def heating_coverage(self) -> tuple[int, int]:
        """Return how many 95 % intervals of lodekit cover the true values on noisy data, and their total number."""
        truth = find_experiment("heating").parameters
        inside = [
            row["intervals"][name][0] <= truth[name] <= row["intervals"][name][1]
            for row in self.select("main", "heating", "lodekit")
            for name in truth
        ]
        return sum(inside), len(inside)

    def speedup(self, system: str) -> float:
        """Return the median ratio of the training times of the paper's method and lodekit, over pairs of runs."""
        paper, own = self.paired_values("seconds", system, "paper", "lodekit")
        return float(np.median(paper / own))

    @property
    def jobs(self) -> int:
        """The largest number of simultaneous runs."""
        return max((int(row.get("jobs", 1)) for row in self.rows), default=1)


def published_median_std(system: str, method: str, column: str) -> MedianStd:
    """Return the published cell of the main table for a `system`, a `method` and a `column`."""
    figures, place = load_published_results()["table_main"][system][PUBLISHED_MODELS[method]], 2 * COLUMNS.index(column)
    return MedianStd(figures[place], figures[place + 1])


@cache
def ode_error_floor(system: str) -> float:
    """Return the ODE error of the exact solution, as measured in the paper."""
    experiment = find_experiment(system)
    return float(np.mean(ode_error(experiment, experiment.exact_solution)))
