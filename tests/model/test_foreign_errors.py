"""What used to end in the errors of other libraries, or in a silent surprise, is answered or refused in words."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import lodekit as lk
from lodekit.data.statistics import Statistics
from lodekit.results.simulation import simulate
from lodekit.support import arguments
from tests.model.heating import WALK

DECAY = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})


@pytest.mark.parametrize("engine", ["dense", "spectral"])
def test_no_times_are_answered_by_no_values(engine: str) -> None:
    gp = lk.LODEGP(WALK, random_state=0, restarts=1, engine=engine).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    assert gp.predict([]).shape == (0, 2)
    assert [part.shape for part in gp.predict([], "x", return_std=True, return_cov=True)] == [(0,), (0,), (0, 0)]
    assert gp.sample([], size=3).shape == (3, 0, 2)
    assert gp.sample([], 2, observable="x").shape == (2, 0)
    assert gp.residual([]).shape == (0, 1)


def test_a_covariance_that_does_not_fit_into_memory_is_refused(walk: lk.LODEGP) -> None:
    with pytest.raises(lk.LodekitError, match=r"the covariance of 3000000 values would take .* GB of memory, and this"):
        walk.predict(np.linspace(0, 3, 3_000_000), "x", return_cov=True, parameters="fixed")
    arguments.check_memory(10, "a few numbers")


def test_a_view_of_more_numbers_than_there_is_memory_is_refused(walk: lk.LODEGP) -> None:
    many = np.broadcast_to(np.float64(1.0), (10**13,))
    for ask in (walk.predict, walk.sample, lambda times: walk.fit(times, {"x": times})):
        with pytest.raises(lk.LodekitError, match=r"a copy of .* would take 8e\+04 GB of memory"):
            ask(many)


@pytest.mark.parametrize("times", [[10**400], [[0], [1, 2]], [1j], ["2026-03-01"], [None]])
def test_times_that_are_none_are_refused(walk: lk.LODEGP, times: Any) -> None:
    for ask in (walk.predict, walk.sample):
        with pytest.raises(lk.LodekitError):
            ask(times)


def test_times_in_a_column_are_times(walk: lk.LODEGP) -> None:
    np.testing.assert_array_equal(walk.predict([[0.5], [1.5]]), walk.predict([0.5, 1.5]))


def test_a_prior_that_was_changed_needs_a_new_fit(walk: lk.LODEGP) -> None:
    gp = lk.LODEGP.from_fit(walk.fit_)
    with pytest.raises(lk.LodekitError, match="the prior was changed from 'latent' to 'channels' after the fit"):
        gp.set_params(prior="channels").update([4], {"x": [4.0]})
    gp.set_params(prior="latent", noise="channel", latent="matern-5/2").update([4], {"x": [4.0]})
    assert gp.fit_.measurements.size == 5


def test_one_measurement_beside_a_hidden_channel_is_drawn() -> None:
    pytest.importorskip("matplotlib")
    gp = lk.LODEGP(WALK, random_state=0, restarts=1).fit([0.0], {"x": [1.0]}, noise_std=0.1)
    assert len(gp.plot().axes) == 2


def test_sums_of_numbers_that_cannot_be_squared_are_refused() -> None:
    t = np.linspace(0, 6, 20)
    for data in (
        lk.Observations().add(t, "x", 1e300 * np.sin(t)),
        lk.Observations().add(t, "x", np.sin(t), std=1e-200),
    ):
        with pytest.raises(lk.LodekitError, match="whose squares are finite floats; change their units"):
            Statistics.of(0.0, 6.0, data)


def test_whole_numbers_as_times_do_not_make_the_covariance_whole() -> None:
    torch = pytest.importorskip("torch")
    from lodekit.integrations.gpytorch import LODEKernel, LODEMean

    kernel = LODEKernel(lk.System("x' = -x/3 + u"))
    whole = torch.arange(4)[:, None]
    with torch.no_grad():
        for x in (whole, whole.to(torch.int32)):
            expected = kernel(whole.double()).to_dense()
            assert expected.frac().abs().max() > 0.1
            torch.testing.assert_close(kernel(x).to_dense(), expected)
            torch.testing.assert_close(LODEMean(kernel)(x), LODEMean(kernel)(whole.double()))


def warned(gp: lk.LODEGP, text: str) -> bool:
    return any(text in warning for warning in gp.warnings_)


def test_noise_from_one_value_and_constant_data_draw_a_warning(walk: lk.LODEGP) -> None:
    one = lk.LODEGP(DECAY, random_state=0, restarts=1).fit([1.0], [2.0])
    assert warned(one, "the noise of x cannot be estimated from a single value")
    assert warned(
        lk.LODEGP(DECAY, random_state=0, restarts=1).fit(np.arange(6.0), np.full(6, 5.0)), "all 6 values of x"
    )
    assert not warned(walk, "single value")
    assert not warned(walk, "values of x")
    own = lk.LODEGP(WALK, noise="channel", random_state=0, restarts=1)
    own.fit(lk.Observations([(0.0, "v", 1.0)]).add([0, 1, 2, 3], "x", [0.0, 0.9, 2.1, 3.0]))
    assert warned(own, "the noise of v cannot be estimated from a single value")
    beside = lk.LODEGP(WALK, random_state=0, restarts=1)
    beside.fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]}, {"x": [0.0, 0.0, np.nan, 0.1]})
    assert warned(beside, "the noise of x cannot be estimated from a single value")
    known = lk.LODEGP(WALK, random_state=0, restarts=1).fit([0.0], {"x": [1.0]}, noise_std=0.1)
    assert not warned(known, "single value")


def test_fits_side_by_side_leave_the_threads_as_they_were() -> None:
    def threads() -> set[int]:
        return {item["num_threads"] for item in threadpool_info() if item["user_api"] == "blas"}

    def work() -> None:
        lk.LODEGP(WALK, random_state=0, restarts=1).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})

    with threadpool_limits(2, user_api="blas"):
        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert threads() == {2}


def test_a_file_is_written_without_a_change_of_the_mask(
    walk: lk.LODEGP, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(mask: int) -> int:
        raise AssertionError("the mask belongs to the whole process")

    monkeypatch.setattr(os, "umask", refuse)
    walk.save(tmp_path / "walk.lodekit")
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert (tmp_path / "walk.lodekit").stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"values": {"b": 1.0}}, "unknown parameter 'b'; expected one of: a"),
        ({"values": {"a": "one"}}, "expected a finite number for 'a', got 'one'"),
        ({"values": [1.0]}, "expected values as a dict"),
        ({"values": {"a": 1.0}, "lengthscale": "long"}, "expected lengthscale as a positive finite number"),
    ],
)
def test_solutions_are_drawn_at_values_of_the_parameters_alone(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(lk.LodekitError, match=message):
        simulate(DECAY, [0.0, 1.0], **wrong)


def test_one_observable_is_drawn_by_its_text() -> None:
    assert simulate(DECAY, [0.0, 1.0], {"a": 1.0}, observable="x'", random_state=0).shape == (1, 2, 1)
