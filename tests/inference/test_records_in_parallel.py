"""Several records are evaluated at the same time where joblib was told to; their evidences add as ever."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import current_thread

import joblib
import numpy as np
import pytest

from lodekit.inference.engine import Evidence
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.inference.multi_record import MultiRecordEngine
from lodekit.prior.prior import Hyperparameters
from tests.inference.fitted import gradient_vector, make_case, series_of


@dataclass(frozen=True)
class Watched(KalmanEngine):
    """Remembers the threads that it was evaluated in."""

    threads: list[str] = field(default_factory=list)

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        self.threads.append(current_thread().name)
        return super().evaluate(hyper)


def test_records_are_evaluated_in_parallel_where_joblib_is_told_to() -> None:
    _, data, _, hyper = make_case("heating", count=9, latent="matern-5/2")
    engines = tuple(Watched(KalmanData.from_series(data.prior, series_of(data))) for _ in range(3))
    records = MultiRecordEngine(dict(zip("abc", engines, strict=True)), np.full((3, len(data.index)), 9.0))
    alone = records.evaluate(hyper)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        together = records.evaluate(hyper)
        value = records.value(hyper)
    for engine in engines:
        first, second = engine.threads
        assert first == current_thread().name
        assert second != first
    expected = pytest.approx(3.0 * engines[0].evaluate(hyper).value, rel=1e-12)
    for found in (together.value, value, alone.value):
        assert found == expected
    np.testing.assert_allclose(gradient_vector(together), gradient_vector(alone), rtol=1e-12)


def test_records_are_evaluated_on_a_cluster() -> None:
    """As ``joblib.parallel_config(backend="dask")`` says; one task for each record and question."""
    distributed = pytest.importorskip("distributed")
    _, data, _, hyper = make_case("heating", count=9, latent="matern-5/2")
    engines = tuple(KalmanEngine(KalmanData.from_series(data.prior, series_of(data))) for _ in range(3))
    records = MultiRecordEngine(dict(zip("abc", engines, strict=True)), np.full((3, len(data.index)), 9.0))
    alone = records.evaluate(hyper)
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        together = records.evaluate(hyper)
        value = records.value(hyper)
        done = sum(sum(prefix.state_counts.values()) for prefix in cluster.scheduler.task_prefixes.values())
    assert done >= 6
    assert together.value == pytest.approx(alone.value, rel=1e-12)
    assert value == pytest.approx(alone.value, rel=1e-12)
    np.testing.assert_allclose(gradient_vector(together), gradient_vector(alone), rtol=1e-12)
