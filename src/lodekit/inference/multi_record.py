"""Joint likelihood of several records: each record has its own engine, and log evidences add.

Records share parameters, hyperparameters and noise. Given these they are independent, so the log evidence, its
gradient and the bound on its error are sums; each record has its own posterior.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import methodcaller
from typing import Any, NoReturn

import numpy as np

from lodekit.data.records import Measurements
from lodekit.errors import LodekitError
from lodekit.inference.engine import BaseEngine, Engine, Evidence, SearchLimits
from lodekit.prior.compile import Coefficients
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array


@dataclass(frozen=True)
class MultiRecordEngine(BaseEngine):
    """The log evidence of several records; each record has its own posterior.

    engines: One for each record, by name; their priors differ only in inputs and in the time at which they start.
    counts: Number of measurements of each observable in each record; (records, o).
    """

    engines: Mapping[str, Engine]
    counts: Array

    @property
    def prior(self) -> Prior:
        """The compiled prior of the first record."""
        return next(iter(self.engines.values())).prior

    @property
    def size(self) -> int:
        """The number of measurements."""
        return sum(engine.size for engine in self.engines.values())

    @property
    def search_limits(self) -> SearchLimits:
        """The bounds of lengthscales and amplitudes in a search.

        The shortest lengthscale is the largest of those that engines cannot go below, if there are any, or that of the
        record with the smallest sampling interval.
        """
        every = [engine.search_limits for engine in self.engines.values()]
        firm = max((limits.min_lengthscale for limits in every if np.isfinite(limits.max_shrink_factor)), default=0.0)
        return SearchLimits(
            max(firm, min(limits.min_lengthscale for limits in every)),
            max_shrink_factor=min(limits.max_shrink_factor for limits in every),
            max_lengthscale=min(limits.max_lengthscale for limits in every),
            max_log_std_change=min(limits.max_log_std_change for limits in every),
            evidence_tolerance=max(limits.evidence_tolerance for limits in every),
        )

    @property
    def benefits_from_threads(self) -> bool:
        """Whether some matrices are large enough to benefit from several threads."""
        return any(engine.benefits_from_threads for engine in self.engines.values())

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity if it is not finite."""
        found = []
        for each in self._query_all("evaluate", hyper):
            found.append(each)
            if not np.isfinite(each.value):
                return Evidence.infeasible(hyper)
        columns = zip(*(each.gradient.arrays for each in found), strict=True)
        gradient = Hyperparameters(*(reduce(np.add, parts) for parts in columns))
        return Evidence(float(sum(each.value for each in found)), gradient, float(sum(each.error for each in found)))

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and its estimated rounding error."""
        value = error = 0.0
        for own_value, own_error in self._query_all("value_with_error", hyper):
            if not np.isfinite(own_value):
                return -np.inf, 0.0
            value, error = value + own_value, error + own_error
        return value, error

    def _query_all(self, method: str, hyper: Hyperparameters) -> Iterator[Any]:
        """Yield the results of all engines, sequentially or in parallel if a joblib backend is configured.

        For a cluster, use ``joblib.parallel_config(backend="dask")``.
        """
        joblib, query = sys.modules.get("joblib"), methodcaller(method, hyper)
        if joblib is None or joblib.effective_n_jobs(None) == 1:
            yield from map(query, self.engines.values())
        else:
            yield from joblib.Parallel()(map(joblib.delayed(query), self.engines.values()))

    def posterior(self, hyper: Hyperparameters) -> NoReturn:
        """Raise an error: each record has its own posterior."""
        raise LodekitError("expected one record: this posterior is that of several; specify record=")

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares over all records: of the data of each observable, (o,), and of the mode basis, (r,)."""
        targets, powers = zip(*(engine.mean_squares(coefficients) for engine in self.engines.values()), strict=True)
        return np.average(targets, axis=0, weights=self.counts), np.average(powers, axis=0, weights=self.counts.sum(1))

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return why the log evidence is not finite at given hyperparameters, as a sentence; empty if unknown."""
        for name, engine in self.engines.items():
            if found := engine.explain_failure(hyper):
                return f"record {name}: {found}"
        return ""


def combine_engines(engines: Mapping[str, Engine], measurements: Measurements) -> Engine:
    """Return one engine for all records, given the engine of each by name; the engine itself if there is one."""
    if len(engines) == 1:
        return next(iter(engines.values()))
    return MultiRecordEngine(engines, measurements.counts_by_record)
