"""Fits side by side leave the threads of linear algebra as they were."""

from __future__ import annotations

import threading

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from lodekit.support.threads import single_threaded_blas
from tests.limits import PATIENCE

#: Without it there is no linear algebra to limit.
MATRIX = np.eye(2) @ np.eye(2)


def count() -> set[int]:
    return {item["num_threads"] for item in threadpool_info() if item["user_api"] == "blas"}


def count_in_a_thread() -> set[int]:
    found: list[set[int]] = []
    worker = threading.Thread(target=lambda: found.append(count()))
    worker.start()
    worker.join(20)
    return found[0]


def test_threads_that_overlap_give_back_what_the_first_one_found() -> None:
    with threadpool_limits(2, user_api="blas"):
        before, elsewhere = count(), count_in_a_thread()
        first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()
        seen: list[set[int]] = []

        def first() -> None:
            with single_threaded_blas():
                first_in.set()
                second_in.wait(PATIENCE)
            first_out.set()

        def second() -> None:
            first_in.wait(PATIENCE)
            with single_threaded_blas():
                second_in.set()
                first_out.wait(PATIENCE)
                seen.append(count())

        workers = [threading.Thread(target=work) for work in (first, second)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(20)
        # The second one is alone after the first is out: still one thread, and two again when both are out, here and
        # in threads to come.
        assert seen == [{1}]
        assert count() == before
        # Some libraries have a number for each thread: a new one begins with what the process began with.
        assert count_in_a_thread() == elsewhere


def test_an_error_inside_gives_them_back_as_well() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = count()
        try:
            with single_threaded_blas():
                assert count() == {1}
                raise KeyError
        except KeyError:
            pass
        assert count() == before
