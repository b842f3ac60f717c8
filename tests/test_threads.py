"""Limits on threads hold as long as somebody needs them, and leave nothing behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

import lodekit as lk
from lodekit.threads import one_thread


def threads_of(library: str) -> set[int]:
    return {item["num_threads"] for item in threadpool_info() if item["user_api"] == library}


def test_limits_that_overlap_are_taken_away_by_the_last_to_leave() -> None:
    """In the order of threads: the first to come is the first to leave, and would put back its own."""
    with threadpool_limits(2, user_api="blas"):
        before = threads_of("blas")
        assert before == {2}
        stacks = [ExitStack() for _ in range(3)]
        for stack in stacks:
            stack.enter_context(one_thread())
            assert threads_of("blas") == {1}
        for stack in stacks[:-1]:
            stack.close()
            assert threads_of("blas") == {1}
        stacks[-1].close()
        assert threads_of("blas") == before


def test_fits_in_threads_leave_the_threads_of_the_process_as_they_were() -> None:
    times = np.linspace(0.0, 1.0, 8)

    def fit(seed: int) -> float:
        values = np.sin(3 * times) + 0.01 * np.random.default_rng(seed).standard_normal(8)
        return lk.LODEGP(lk.System("x' = v"), random_state=seed, restarts=1).fit(times, {"x": values}).log_evidence_

    with threadpool_limits(2, user_api="blas"):
        alone = [fit(seed) for seed in range(3)]
        with ThreadPoolExecutor(3) as pool:
            together = list(pool.map(fit, range(3)))
        assert threads_of("blas") == {2}
    np.testing.assert_allclose(together, alone, rtol=1e-6)
