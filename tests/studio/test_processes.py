"""The processes beside the page, and how long sessions are kept: companions, the workshop and the shelf."""

from __future__ import annotations

import json
import shutil
import time
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

import lodekit as lk
from lodekit.cli.programs import studio
from lodekit.errors import DataError, LodekitError
from lodekit.studio.app import streamlit_options
from lodekit.studio.controller import StudioServer
from lodekit.studio.data_files import open_data_file
from lodekit.studio.server import PROCESS_ENDED_MESSAGE, ComputeProcess
from lodekit.studio.session import StudioSession, user_message
from lodekit.studio.session_files import safe_name
from lodekit.studio.worker import RESULT_FILE, run_task
from lodekit.support.files import MODEL_FILE
from tests.studio.present import Present


def test_a_companion_says_in_words_what_goes_wrong_and_is_ended_where_it_takes_too_long() -> None:
    companion = ComputeProcess()
    try:
        assert companion.call("understand", ("x' = -a*x + u", "")).parameters == ("a",)
        with pytest.raises(LodekitError, match="expected equations first"):
            companion.call("show_proof", ("", ""))
        with pytest.raises(LodekitError, match="longer than 0 seconds"):
            companion.call("show_proof", ("x' = v", ""), timeout=0.0)
        assert companion.pid is None
    finally:
        companion.close()
    with pytest.raises(LodekitError, match="shutting down"):
        companion.call("list_samples")


def test_whoever_was_asked_last_is_asked_again_unless_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lodekit.studio.controller.ComputeProcess", Present)
    company = StudioServer(max_processes=2)
    first = company.choose()
    assert company.choose(first) is first
    first.is_free = False  # type: ignore[misc]
    # Another one begins, and is asked by whoever comes next.
    assert company.choose(first) is first
    second = company.choose(first)
    assert second is not first
    second.is_free = False  # type: ignore[misc]
    assert company.choose(second) is second
    company.close()
    assert (first.is_closed, second.is_closed) == (True, True)


def test_a_question_that_ends_every_companion_is_answered_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lodekit.studio.server.sys.executable", shutil.which("false"))
    companion = ComputeProcess()
    with pytest.raises(LodekitError, match="ended twice") as caught:
        companion.call("list_samples")
    assert str(caught.value) == PROCESS_ENDED_MESSAGE
    companion.close()


def test_without_the_equations_delayed_inputs_are_known_and_channels_apart(tmp_path: Path) -> None:
    """Near a rest, where curves of their own hardly violate the equations; one has the name of a twin."""
    known = {"a": lk.Parameter(fixed=1.0), "T": lk.Parameter(fixed=0.5)}
    gp = lk.LODEGP(lk.System("x_' = -a*x_ + delay(u, T); x = 2*x_", parameters=known), inputs={"u": "hold"})
    t = np.arange(6.0)
    rest = 1.0 + 1e-3 * np.sin(t)
    gp.fit(lk.Observations().add(t, "x_", rest).add(t, "x", 2.0 * rest).add(t, "u", np.ones(6)))
    gp.save(tmp_path / MODEL_FILE)
    (tmp_path / "request.json").write_text(json.dumps({"task": "free", "seed": 0}))
    run_task(tmp_path)
    assert json.loads((tmp_path / RESULT_FILE).read_text())["violation"] < 0.05


def test_a_validation_that_is_not_possible_names_no_folder(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("t,x\n" + "\n".join(f"{k},{k * k % 7}" for k in range(6)))
    (tmp_path / "system.toml").write_text('equations = "x\' = v"\n')
    session = StudioSession(file="log.csv", held_out=(70.0, 80.0)).to_dict()
    wanted = {"task": "fit", "session": session, "command": "", "code": ""}
    (tmp_path / "request.json").write_text(json.dumps(wanted))
    run_task(tmp_path)
    trouble = json.loads((tmp_path / RESULT_FILE).read_text())["validation"]["trouble"]
    assert trouble.startswith("log.csv: ")
    assert str(tmp_path) not in trouble


def test_a_shelf_keeps_the_newest_sessions_and_forgets_old_ones(tmp_path: Path) -> None:
    shelf = StudioServer(max_sessions=2, max_age_seconds=100.0, folder=tmp_path)
    first, second = shelf.open(), shelf.open()
    assert shelf.open(first.token) is first
    third = shelf.open()
    assert shelf.open(second.token) is not second
    assert not second.folder.exists()
    third.last_access = time.monotonic() - 101.0
    assert shelf.open(third.token) is third
    assert len(list(tmp_path.iterdir())) == 2


def test_a_task_that_fails_or_takes_too_long_says_so_in_words(tmp_path: Path) -> None:
    workshop = StudioServer(max_tasks=1)
    try:
        job = workshop.start(tmp_path, {"task": "fit"}, timeout=0.0)
        while job.is_running:
            time.sleep(0.01)
        assert "longer than 0 seconds" in job.result()["trouble"]
    finally:
        workshop.close()
    (tmp_path / "request.json").write_text(json.dumps({"task": "free", "seed": 0}))
    run_task(tmp_path)
    assert "trouble" in json.loads((tmp_path / RESULT_FILE).read_text())


def test_the_server_listens_to_this_machine_and_tells_nobody() -> None:
    found = streamlit_options(8501, "localhost", browser=False)
    assert (found["server.address"], found["server.maxUploadSize"]) == ("localhost", 50)
    assert found["browser.gatherUsageStats"] is False
    assert found["client.showErrorDetails"] == "none"
    with pytest.raises(LodekitError, match="expected a data file"):
        studio(Path("nowhere.csv"))
    assert signature(studio).parameters["address"].default == "localhost"


def test_nobody_learns_where_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_bytes(b"\x00\x01")
    with pytest.raises(DataError) as caught:
        open_data_file(tmp_path / "odd.csv")
    assert str(tmp_path) in str(caught.value)
    assert str(tmp_path) not in user_message(caught.value, tmp_path)
    assert safe_name("..\\..\\secret/../x.csv") == "x.csv"
    assert {safe_name(name) for name in ("model.lodekit", "fit-3", "progress.json", "sliders")} == {"log.csv"}
