"""Labels, origins of dates and changed systems: what was said stays said, and what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.errors import NotFittedError
from lodekit.prior.kernels import KERNEL_FAMILIES
from lodekit.support.files import read_archive, write_archive
from tests.model.heating import WALK
from tests.prior.ringing import Ringing

pandas = pytest.importorskip("pandas")
START = datetime(2026, 3, 1, 12)


def frame(first: int, last: int) -> Any:
    hours = range(first, last)
    dates = [START + timedelta(hours=hour) for hour in hours]
    return pandas.DataFrame({"date": dates, "x": np.sin(0.3 * np.arange(first, last))})


def test_a_title_does_not_take_the_origin_of_dates_away() -> None:
    gp = lk.LODEGP(WALK, random_state=0, restarts=1).fit(frame(0, 12))
    gp.label(title="A walk", units={"x": "m"})
    assert gp.labels_ == {"title": "A walk", "units": {"t": "s", "x": "m"}, "origin": "2026-03-01T12:00:00"}
    gp.update(frame(12, 15))
    assert gp.fit_.measurements.window == (0.0, 14 * 3600.0)


def test_labels_that_are_not_given_are_unchanged() -> None:
    table = {"t [ms]": [0.0, 1, 2, 3], "x [m]": [0.0, 0.9, 2.1, 3]}
    gp = lk.LODEGP(WALK, random_state=0, restarts=1).fit(table)
    assert gp.label(title="A walk").labels_["units"] == {"t": "ms", "x": "m"}
    assert gp.label(units={"v": "m/ms"}).labels_["title"] == "A walk"
    assert gp.labels_["units"] == {"t": "ms", "x": "m", "v": "m/ms"}


def test_local_dates_with_a_time_zone_are_counted_in_hours() -> None:
    dates = pandas.date_range("2024-10-26 22:00", periods=12, freq="h", tz="Europe/Berlin").tz_localize(None)
    table = pandas.DataFrame({"date": dates, "x": np.sin(0.3 * np.arange(12))})
    gp = lk.LODEGP(WALK, random_state=0, restarts=1)
    with pytest.raises(lk.LodekitError, match="timezone='Europe/Berlin'"):
        gp.fit(table)
    gp.fit(table, timezone="Europe/Berlin", units={"t": "h"})
    assert gp.fit_.measurements.window == (0.0, 11.0)
    assert gp.labels_["units"] == {"t": "h"}
    assert gp.fit(dates[:3], table["x"][:3].to_numpy()[:, None] * [1, 0], units={"t": "h"}).fit_.clock.unit == "h"
    with pytest.raises(lk.LodekitError, match="expected times as numbers, like those of the fit, got dates"):
        gp.fit([0.0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3]}, units={"t": "h"}).update(table[:3])
    with pytest.raises(lk.LodekitError, match="expected times as numbers, like those of the fit, got dates"):
        gp.validate(table[:3])
    with pytest.raises(lk.LodekitError, match="unknown name 'z' in units"):
        gp.fit(table, units={"z": "h"})


@pytest.mark.parametrize("wrong", [{"origin": "yesterday"}, {"units": {"t": 1}}, {"title": 3}, {"units": 5}])
def test_labels_that_are_none_are_refused_at_once(walk: lk.LODEGP, wrong: dict[str, Any]) -> None:
    gp = lk.LODEGP.from_fit(walk.fit_).label(title="as it was")
    with pytest.raises(lk.LodekitError, match="expected labels as texts"):
        gp.label(**wrong)
    assert gp.labels_["title"] == "as it was"


def test_an_update_needs_the_system_of_the_fit(walk: lk.LODEGP) -> None:
    gp = lk.LODEGP.from_fit(walk.fit_).set_params(system=lk.System("x' = -x + v"))
    with pytest.raises(lk.LodekitError, match="the system was changed after the fit"):
        gp.update([4], {"x": [4.0]})


def test_a_file_with_a_short_array_is_refused(walk: lk.LODEGP, tmp_path: Path) -> None:
    walk.save(tmp_path / "walk.lodekit")
    state, arrays, _ = read_archive(tmp_path / "walk.lodekit")
    write_archive(tmp_path / "cut.lodekit", state, {**arrays, "at_bound": arrays["at_bound"][:-1]})
    with pytest.raises(lk.LodekitError, match="does not match its own system"):
        lk.LODEGP.load(tmp_path / "cut.lodekit")


def test_an_error_inside_a_fitted_model_is_not_called_unfitted(walk: lk.LODEGP) -> None:
    gp = lk.LODEGP.from_fit(replace(walk.fit_))
    object.__setattr__(gp.fit_, "optimum", None)
    with pytest.raises(AttributeError) as caught:
        _ = gp.converged_
    assert not isinstance(caught.value, NotFittedError)
    with pytest.raises(NotFittedError):
        _ = lk.LODEGP(WALK).converged_


def test_a_fit_is_itself_and_has_a_place_in_sets(walk: lk.LODEGP) -> None:
    first, second = walk.fit_, replace(walk.fit_)
    assert first != second
    assert len({first, second}) == 2


def test_the_device_is_named_only_where_it_is_used() -> None:
    pytest.importorskip("torch")
    times = np.linspace(0, 9, 150)
    data = {"x": np.sin(times), "v": np.cos(times)}
    many = lk.LODEGP(WALK, device="cpu", random_state=0, restarts=1).fit(times, data)
    assert many.engine_ == "spectral: 300 measurements; more than 200"
    few = lk.LODEGP(WALK, device="cpu", random_state=0, restarts=1).fit(times[:9], {"x": np.sin(times[:9])})
    assert few.engine_ == "dense: 9 measurements on cpu; exact, and fast up to 200"


def test_the_channel_prior_refuses_covariances_that_it_would_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNEL_FAMILIES, "'toy'", lambda name: Ringing() if name == "toy" else None)
    with pytest.raises(lk.LodekitError, match="prior='channels' has its own covariance; use latent='se'"):
        lk.LODEGP(WALK, prior="channels", latent="toy").fit([0, 1, 2], {"x": [0.0, 1.0, 2.0]})


def test_what_was_found_out_about_a_file_stands_in_the_summary(walk: lk.LODEGP, tmp_path: Path) -> None:
    """A number that may be thousands is not read without a word."""
    lines = ["t;x", *(f"{t};{12.345 + 0.01 * t:.3f}".replace(".", ",") for t in range(6))]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    gp = lk.LODEGP(WALK, random_state=0, restarts=1).fit(tmp_path / "log.csv")
    assert "Note: '12,345' in column x is read as 12.345" in gp.summary()
    assert "Note: no column for v: not measured" in gp.summary()
    notes = [line for line in walk.summary().splitlines() if line.startswith("Note")]
    assert [line.partition(" was not measured")[0] for line in notes] == [
        "Note: v",
        "Note: free function 1: an unknown function of time that drives x and v",
    ]


def test_one_file_by_two_names_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("t,x\n0,0.0\n1,0.9\n2,2.1\n3,3.0\n")
    (tmp_path / "link.csv").symlink_to(path)
    gp = lk.LODEGP(WALK, random_state=0, restarts=1).fit([[path, f"{tmp_path}/./log.csv", tmp_path / "link.csv"]])
    assert gp.fit_.measurements.size == 4
    with pytest.raises(lk.LodekitError, match="name too long"):
        lk.LODEGP(WALK).fit("t,x\n" + "0,0.0\n" * 900)
    assert lk.LODEGP(WALK, random_state=0).fit(path, time=1).predict([]).shape == (0, 2)  # type: ignore[arg-type]


def test_units_of_unknown_names_are_refused() -> None:
    gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    with pytest.raises(lk.LodekitError, match="unknown name 'z' in units; expected one of t, "):
        gp.label(units={"z": "m"})
